#!/bin/sh
# A host with other load: measurements report it.
. "$(dirname "$0")/lib.sh"
export TRAINYARD_WORKER="$WORKER"
loads=
trap 'kill $loads 2>/dev/null; rm -rf "$scratch"' EXIT
python=$(command -v python3) || {
    echo "0 passed: skipped, there is no python3"
    exit 77
}
cores=$(nproc)
expect 0 plan -w mlp -c local:2 --fix pp=1 -q -o "$scratch/plan.json"
for core in $(seq "$cores"); do
    while :; do :; done &
    loads="$loads $!"
done
expect 0 run "$scratch/plan.json" --steps 150 -q -o "$scratch/run.json"
expect_output "Machine     busy: " " of 150 steps disturbed, others took "
expect 0 compare "$scratch/plan.json" "$scratch/run.json"
expect_output "Machine     was busy: "

# A profile is marked, and used until the host is less busy.
export XDG_CACHE_HOME="$scratch/cache"
expect 0 plan -w mlp -c local:2 --global-batch 16 --no-simulate
grep -q 'warning: this machine was busy: others took' "$scratch/err" && pass || fail "a busy machine is measured without a word"
kept=$(ls "$scratch"/cache/trainyard/profile-*.json)
grep -q '"others_share": 0\.[0-9]' "$kept" && pass || fail "the profile is not marked"
expect 0 plan -w mlp -c local:2 --global-batch 16 --no-simulate
grep -q 'warning: times were measured while others took' "$scratch/err" && pass || fail "a marked profile serves without a word"
# shellcheck disable=SC2086 # several
kill $loads
loads=

# The comparison's use of marks, on any host: every second step disturbed, and twice as long.
"$python" - "$scratch" <<'END' || fail "the run cannot be changed"
import json, sys
path = sys.argv[1] + "/run.json"
run = json.load(open(path))
steps = run["timeline"]["step_count"]
ends = [max(e[4] for e in run["timeline"]["events"] if e[1] == s) for s in range(steps)]
starts = [0.0]
for s in range(1, steps):  # 10 ms, or 20 ms where the number is odd
    starts.append(starts[-1] + (0.02 if s % 2 else 0.01))
for event in run["timeline"]["events"]:
    # all events of a step within its last half millisecond
    for i in (3, 4):
        event[i] = starts[event[1]] + 1 - 0.0005 * (1 - event[i] / (ends[-1] + 1))
for s in range(steps):
    last = max((e for e in run["timeline"]["events"] if e[1] == s), key=lambda e: e[4])
    last[4] = starts[s] + 1
run["disturbance"].update(steps=100, disturbed_steps=38, others_share=0.25, timeline_steps=list(range(1, steps, 2)))
json.dump(run, open(path, "w"))
END
expect 0 compare "$scratch/plan.json" "$scratch/run.json"
expect_output "was busy: 38 % of steps disturbed, others took 25 % of the cores" "ones: 10 ms"
expect 0 compare "$scratch/plan.json" "$scratch/run.json" --json
expect_output '"disturbed_share": 0.38' '"quiet_step_time_s": 0.01'
expect 0 report "$scratch/plan.json" "$scratch/run.json" -o "$scratch/report.html"
report_holds "$scratch/report.html" '"was busy: 38 % of steps disturbed, others took 25 % of the cores; the " in d["busy"] and "quiet ones: 10 ms" in d["busy"]'
page_says "$scratch/report.html" "The machine was busy: 38 % of steps disturbed"
sed -i 's/"disturbed_steps": 38/"disturbed_steps": 101/' "$scratch/run.json"
expect 3 compare "$scratch/plan.json" "$scratch/run.json"
expect_error_line "/disturbance/disturbed_steps" "101"

# Standard input is not consumed.
[ "$(printf 'rest\n' | sh -c '"$0" run "$1" --steps 4 -q -o "$2" >/dev/null 2>&1; cat' "$TRAINYARD" "$scratch/plan.json" "$scratch/short.json")" = rest ] &&
    pass || fail "mpirun reads what is not its own"
finish
