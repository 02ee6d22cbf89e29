#!/bin/sh
# The most likely mistakes, each with its exit code and its exact message: mistakes.txt. And every
# message that docs/reference/errors.md quotes is printed here or is in the sources.
. "$(dirname "$0")/lib.sh"

: > "$scratch/empty.json"
echo hello > "$scratch/text.json"
"$TRAINYARD" workload export lenet -o "$scratch/workload.json" >/dev/null 2>&1
"$TRAINYARD" plan -w lenet -c "1x p100-server" --fix dp=2,pp=2 --no-simulate -q -o "$scratch/plan.json" >/dev/null 2>&1
"$TRAINYARD" plan -w lenet -c "1x p100-server" --optimizer adafactor --no-simulate -q -o "$scratch/adafactor.json" >/dev/null 2>&1
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

# If nothing fits, a change that fits is named, also in JSON.
expect 4 plan -w llama-2-7b -c "1x dgx-a100" --global-batch 64 --fix dp=8,zero=0,tp=1 --json -q
if grep -q '^trainyard: try: without zero=0 it fits: [0-9.]* m\{0,1\}s per step$' err; then pass; else fail "no change is told"; fi
expect_output '"words": "without zero=0 it fits"' '"fix": "pp=1,dp=8,' '"step_time_s"'
# More hosts, too, for every way to write the cluster.
expect 4 memory -w llama-2-70b -c "8x h100" -q
if grep -q '^trainyard: try: on 16 devices ("2x dgx-h100") it fits: ' err; then pass; else fail "no more hosts are told where devices were counted"; fi
# The printed change works as printed.
sed -n 's/^trainyard: try:   trainyard plan /plan --no-simulate -q /p' err >printed
[ -s printed ] && eval "set -- $(cat printed)" && expect 0 "$@" || fail "no command is printed"
# Pins of a configuration file are the file's: --cluster is missing, and --workload is not.
expect 2 plan --config "$SOURCE/tests/workloads/data/torchtitan.toml" -q
expect_error_line "--cluster is needed"
expect 2 plan --config "$SOURCE/tests/workloads/data/torchtitan.toml" -c "4x h100" -q
expect_error_line "torchtitan.toml, as --fix tp: found \"8\", expected a whole number from 1 to 4"
# The memory of a configuration file is that of its plan.
expect 0 plan --config "$SOURCE/tests/workloads/data/torchtitan.toml" -c "16x dgx-h100" --no-simulate -q --json
planned=$(sed -n 's/.*"activation_bytes": *\([0-9]*\).*/\1/p' out | head -n 1)
expect 0 memory --config "$SOURCE/tests/workloads/data/torchtitan.toml" -c "16x dgx-h100" -q --json
[ -n "$planned" ] && expect_output "\"activation_bytes\": $planned"
expect 2 memory --vocabulary 100 -w gpt2 -c "8x h100" -q
expect_error_line "--vocabulary belongs to --config"

# `code` in the first column of the page's tables; a dash (...) stands for text that varies. Each
# message is printed: by a row of the table, or by a string literal of the sources (adjacent ones
# are joined), compared by the parts around the dashes. And every mistake has a row on the page: all
# parts of a quoted message are in it.
/usr/bin/python3 - "$SOURCE" "$table" >quoted <<'END' && pass || fail "errors.md: $(cat quoted)"
import pathlib, re, sys
source, table = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).read_text(encoding="utf-8")
page = (source / "docs/reference/errors.md").read_text(encoding="utf-8")
quoted = [[part for part in message.split("...") if part] for message in re.findall(r"^\| `([^`]*)` \|", page, re.M)]
folders = ("core", "workloads", "topologies", "planner", "study", "simulate", "execute", "reports", "cli")
text = " ".join(p.read_text(encoding="utf-8").replace("\n", " ") for f in folders for p in sorted([*(source / f).rglob("*.c"), *(source / f).rglob("*.in")]))
printed = table + re.sub(r'" *"', "", text)
missing = [f"quotes '{'...'.join(message)}', and nothing prints it" for message in quoted if not all(p in printed for p in message)]
sentences = [line.split("\t")[2] for line in table.splitlines() if not line.startswith("#")]
missing += [f"has nothing about: {s}" for s in sentences if not any(all(p in s for p in message) for message in quoted)]
if len(quoted) < 30:
    missing.append(f"quotes {len(quoted)} messages")
print("; ".join(missing) if missing else len(quoted))
sys.exit(bool(missing))
END
finish
