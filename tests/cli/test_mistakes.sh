#!/bin/sh
# The most likely mistakes, each with its exit code and its exact sentence: mistakes.txt. And every
# message that docs/troubleshooting.md quotes is one that is printed here or in the sources.
. "$(dirname "$0")/lib.sh"

: > "$scratch/empty.json"
echo hello > "$scratch/text.json"
"$TRAINYARD" workload export lenet -o "$scratch/workload.json" >/dev/null 2>&1
"$TRAINYARD" plan -w lenet -c "1x p100-server" --fix dp=2,pp=2 --no-simulate -q -o "$scratch/plan.json" >/dev/null 2>&1
table=$(cd "$(dirname "$0")" && pwd)/mistakes.txt
tab=$(printf '\t')
rows=0
cd "$scratch" || exit 1
while IFS="$tab" read -r code words sentence; do
    case $code in '#'*) continue ;; esac
    rows=$((rows + 1))
    eval "set -- $words"
    expect "$code" "$@"
    grep -v '^trainyard: try:' err > said
    if [ "$(cat said)" = "$sentence" ]; then pass; else fail "trainyard $words says '$(cat said)', expected '$sentence'"; fi
done < "$table"
if [ $rows -ge 60 ]; then pass; else fail "$rows mistakes, expected 60"; fi

# A change that fits is named where nothing does, and in JSON.
expect 4 plan -w llama-2-7b -c "1x dgx-a100" --global-batch 64 --fix dp=8,zero=0,tp=1 --json -q
if grep -q '^trainyard: try: without zero=0 it fits: [0-9.]* m\{0,1\}s a step$' err; then pass; else fail "no change is told"; fi
expect_output '"words": "without zero=0 it fits"' '"fix": "pp=1,dp=8,' '"step_time_s"'

# `code` in the first column of the page's tables; what changes from case to case is a dash (...).
page=$SOURCE/docs/troubleshooting.md
sed -n 's/^| `\([^`]*\)` |.*/\1/p' "$page" > quoted
[ "$(wc -l < quoted)" -ge 30 ] || fail "the page quotes $(wc -l < quoted) messages"
cat "$table" > printed
# The text of all string literals, those side by side joined, of every format the parts around its conversions.
cat "$SOURCE"/core/*.c "$SOURCE"/workloads/*.c "$SOURCE"/topologies/*.c "$SOURCE"/planner/*.c "$SOURCE"/planner/*/*.c "$SOURCE"/study/*.c \
    "$SOURCE"/simulate/*.c "$SOURCE"/execute/*/*.c "$SOURCE"/execute/*.c "$SOURCE"/reports/*.c "$SOURCE"/reports/launch/*.c "$SOURCE"/cli/*.c 2>/dev/null |
    tr '\n' ' ' | sed 's/" *"//g' >> printed
while read -r message; do
    missing=
    printf '%s\n' "$message" | sed 's/\.\.\./\n/g' > parts
    while read -r part; do
        [ -z "$part" ] || grep -qF -- "$part" printed || missing=$part
    done < parts
    if [ -z "$missing" ]; then pass; else fail "troubleshooting.md quotes '$message', and nothing prints '$missing'"; fi
done < quoted
# And each mistake has a row there: some quoted message has all its parts in it.
awk -F '\t' 'FILENAME == "quoted" { count++; quoted[count] = $0; next } /^#/ { next }
{
    is_there = 0
    for (q = 1; q <= count && !is_there; q++) {
        parts = split(quoted[q], part, /\.\.\./)
        is_there = 1
        for (p = 1; p <= parts; p++) if (index($3, part[p]) == 0) is_there = 0
    }
    if (!is_there) print $3
}' quoted "$table" > missing
if [ -s missing ]; then fail "troubleshooting.md has nothing about: $(cat missing)"; else pass; fi
finish
