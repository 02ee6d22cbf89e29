#!/bin/sh
# Every command of the README's sh blocks runs and ends with 0. `./bootstrap demo` stands for a short demo of
# the programs under test; `./bootstrap test` is what runs this.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made" "$scratch/bin"
ln -s "$TRAINYARD" "$scratch/bin/trainyard"
export TRAINYARD_WORKER="$WORKER"
PATH="$scratch/bin:$PATH"
cd "$scratch/made" || exit 1

for page in "$SOURCE/README.md" "$SOURCE"/docs/*.md; do
    awk '/^```sh$/ { inside = 1; next } /^```/ { inside = 0 } inside' "$page" >"$scratch/commands"
    while IFS= read -r line; do
        case $line in
        '' | '#'* | './bootstrap test') continue ;;
        './bootstrap demo') line='trainyard demo --steps 40 --quiet' ;;
        esac
        line=$(printf '%s\n' "$line" | sed 's|build/release/trainyard|trainyard|g')
        if sh -c "$line" >"$scratch/out" 2>"$scratch/err" </dev/null; then
            pass
        else
            fail "$(basename "$page"): $line"
        fi
    done <"$scratch/commands"
done
[ $passed -gt 3 ] || fail "the README has hardly any commands"
finish
