#!/bin/sh
# The limits of docs/reference/scripting.md: an answer at both edges within 1 GiB of address space,
# and a refusal beyond them.
. "$(dirname "$0")/lib.sh"
export TMPDIR="$scratch"
if [ -n "${TY_SANITIZE:-}" ]; then
    echo "skipped: a sanitizer reserves the address space"
    exit 77
fi
# shellcheck disable=SC3045
ulimit -v 1048576

# ask N QUESTION CODE...: the question with this number ends with one of the codes.
ask() {
    number=$1
    eval "set -- $2"
    for word in "$@"; do
        shift
        set -- "$@" "$(printf '%s' "$word" | sed "s/^N\\(x \\)\\{0,1\\}/$number\\1/; s/\\([=:]\\)N/\\1$number/")"
    done
    timeout -s KILL 60 "$TRAINYARD" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null
    got=$?
}

sed -n '/^## Limits/,/^## Commands/s/^| \(.*\) | \([0-9]*\) | \([0-9]*\) | `\(.*\)` | `\(.*\)` |$/\2|\3|\4|\5/p' \
    "$SOURCE/docs/reference/scripting.md" >"$scratch/rows"
[ "$(wc -l <"$scratch/rows")" -ge 11 ] || fail "the table of limits was not read"
while IFS='|' read -r least most question file; do
    [ -f "$SOURCE/$file" ] && pass || fail "$file does not exist"
    for number in "$least" "$most"; do
        ask "$number" "$question"
        [ $got -eq 0 ] || [ $got -eq 4 ] && pass || fail "exit code $got with $number: $question"
    done
    for number in $((least - 1)) $((most + 1)); do
        [ "$number" -ge 0 ] || continue
        ask "$number" "$question"
        [ $got -eq 2 ] || [ $got -eq 3 ] && pass || fail "exit code $got with $number: $question"
    done
done <"$scratch/rows"
finish
