#!/bin/sh
# Real runs through the command line: compare, report, trace, interrupts, stray ranks.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"
work=$scratch/made

expect 0 plan -w mlp -c local:2 --fix pp=1 -q -o "$work/plan.json"
expect 0 run "$work/plan.json" --steps 20 -q -o "$work/run.json"
expect_output "2 ranks" "loss"
expect 0 compare "$work/plan.json" "$work/run.json"
expect_output "step time" "forward" "all_reduce"
expect 0 compare "$work/plan.json" "$work/run.json" --json
expect_output '"schema": "trainyard.comparison/1"' '"step_time_error"'
expect 1 compare "$work/plan.json" "$work/run.json" --fail-over 0.000001%
expect 0 estimate "$work/plan.json" --program
expect_output "all_reduce" "update"
expect 0 simulate "$work/plan.json" --trace "$work/trace.json"
if grep -q '"ph": "X"' "$work/trace.json"; then pass; else fail "the trace has no slices"; fi
expect 0 report "$work/plan.json" "$work/run.json" -o "$work/report.html"
if grep -q "measured:" "$work/report.html"; then pass; else fail "the report has no measured timeline"; fi

# A run of another plan is refused.
expect 0 plan -w mlp -c local:2 --fix pp=2 -q -o "$work/other.json"
expect 3 compare "$work/other.json" "$work/run.json"
expect_error_line "another plan"

# More ranks than the plan has: the job file is caught on its way to the worker.
cat >"$scratch/catch" <<CATCH
#!/bin/sh
cp "\$1" "$scratch/job.json"
CATCH
chmod +x "$scratch/catch"
TRAINYARD_WORKER=$scratch/catch "$TRAINYARD" run "$work/plan.json" --steps 4 -q >"$scratch/out" 2>&1
root=
[ "$(id -u)" -ne 0 ] || root=--allow-run-as-root
mpirun $root --oversubscribe --quiet -n 3 "$WORKER" -q "$scratch/job.json" >"$scratch/out" 2>"$scratch/err"
got=$?
if [ $got -eq 3 ]; then pass; else fail "exit code $got instead of 3 for three ranks of a plan of two"; fi
expect_error_line "/plan/stages" "found a plan of 2 ranks" "expected one of 3"

# Ctrl-C: exit code 130, no stray rank, no run file, nothing in the temporary folder.
export TMPDIR="$scratch/tmp"
mkdir "$TMPDIR"
"$TRAINYARD" run "$work/plan.json" --steps 1000000 -q -o "$work/long.json" >"$scratch/out" 2>"$scratch/err" &
pid=$!
tries=0
while [ $tries -lt 100 ] && ! pgrep -f "$TMPDIR/trainyard" >/dev/null; do
    tries=$((tries + 1))
    sleep 0.1
done
sleep 2
kill -INT $pid
wait $pid
got=$?
if [ $got -eq 130 ]; then pass; else fail "exit code $got instead of 130 after an interrupt"; fi
sleep 1
if pgrep -f "$TMPDIR/trainyard" >/dev/null; then fail "ranks are still there after an interrupt"; else pass; fi
if [ -e "$work/long.json" ]; then fail "an interrupted run left its output"; else pass; fi
if ls -A "$TMPDIR" | grep -q '^trainyard'; then fail "left behind: $(ls -A "$TMPDIR")"; else pass; fi
finish
