#!/bin/sh
# Real runs through the command line: compare, report, trace, interrupts, stray ranks.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"
work=$scratch/made

expect 0 plan -w mlp -c local:2 --fix pp=1 -q -o "$work/plan.json"
expect 0 run "$work/plan.json" --steps 20 -q -o "$work/run.json"
expect_output "2 stage replicas" "Loss"
expect 0 compare "$work/plan.json" "$work/run.json"
expect_output "Step time" "forward" "all_reduce"
expect 0 compare "$work/plan.json" "$work/run.json" --json
expect_output '"schema": "trainyard.comparison/1"' '"step_time_error"'
expect 1 compare "$work/plan.json" "$work/run.json" --fail-over 0.000001%
expect 0 estimate "$work/plan.json" --program
expect_output "all_reduce" "update"
expect 0 simulate "$work/plan.json" --trace "$work/trace.json"
if grep -q '"ph": "X"' "$work/trace.json"; then pass; else fail "the trace has no slices"; fi
expect 0 report "$work/plan.json" "$work/run.json" -o "$work/report.html"
report_holds "$work/report.html" 'd["timeline"]["is_measured"] and any(item[1] for item in d["timeline"]["items"])'

# Gradients with a staleness of one step: planned on request, printed, simulated, run, compared, and
# scored.
expect 0 plan -w mlp -c local:2 --fix pp=1,staleness=1 -q -o "$work/late.json"
expect_output "DP 2  CP 1  EP 1, staleness 1" "per step, up to 1 step late"
expect 0 estimate "$work/late.json" --program
expect_output "all_reduce" "1 step ahead"
expect 0 simulate "$work/late.json" --jitter 20%
expect 0 run "$work/late.json" --steps 20 -q -o "$work/late-run.json"
expect_output "2 stage replicas" "Loss"
expect 0 compare "$work/late.json" "$work/late-run.json"
expect 0 score "$work/late.json" --task resnet50-imagenet --json
if grep -A3 staleness_multiplier "$scratch/out" | grep -q '"high": 1\.'; then pass; else fail "lateness costs nothing"; fi
expect 1 export "$work/late.json" --to torchrun
expect_error_line "gradients of every step" "staleness=0"
expect 2 plan -w mlp -c local:2 --fix pp=2,staleness=1
expect_error_line "staleness: found 1, expected 0" "no stage has replicas"
expect 2 plan -w mlp -c local:2 --fix staleness=99
expect_error_line "staleness" "64"

# A dedicated server: planned, printed, simulated, run with one rank as the server; no framework
# supports it.
expect 0 plan -w mlp -c local:3 --fix servers=1,compression=none -q -o "$work/served.json"
expect_output "DP 2  CP 1" "1 that train" "parameter-server"
if grep -q '"shard": "size"' "$work/served.json"; then pass; else fail "the plan has no servers"; fi
expect 0 simulate "$work/served.json"
expect 0 run "$work/served.json" --steps 20 -q -o "$work/served-run.json"
expect_output "2 stage replicas" "Loss"
expect 0 run "$work/served.json" --steps 20 --until loss=3 --evaluate-every 5 -q
expect 0 compare "$work/served.json" "$work/served-run.json"
expect 0 run "$work/served.json" --steps 10 --checkpoint "$work/served" --checkpoint-every 4 -q
expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none -q -o "$work/unserved.json"
expect 0 run "$work/unserved.json" --steps 20 --checkpoint "$work/served" --resume -q
expect_output "20 steps" "Loss"
expect 0 report "$work/served.json" "$work/served-run.json" -o "$work/served.html"
expect 0 export "$work/served.json" --to mpirun -o "$work/served-launch"
if grep -q "mpirun -n 3 " "$work/served-launch"/*; then pass; else fail "the server is not launched"; fi
expect 1 export "$work/served.json" --to torchrun
expect_error_line "it has no servers of gradients, and the plan has 1" "servers=0"
expect 2 plan -w mlp -c local:3 --fix servers=3
expect_error_line "servers: found 3, expected fewer than the 3 devices"
expect 2 plan -w mlp -c local:3 --fix servers=1,algorithm=ring
expect_error_line "servers: found 1, expected 0" "another algorithm"
expect 2 plan -w mlp -c local:3 --fix shard=tensor
expect_error_line "shard: found \"tensor\" without servers"
expect 2 plan -w mlp -c local:3 --fix servers=1,shard=rows
expect_error_line "found 'rows', expected size or tensor"
expect 4 plan -w mlp -c local:3 --system ddp --fix servers=1 -q
expect_error_line "ddp has no servers=1: its servers is 0"
sed 's/"shard": "size"/"shard": "halves"/' "$work/served.json" >"$work/halves.json"
expect 3 estimate "$work/halves.json"
expect_error_line "/servers/shard: found \"halves\""

# The same run for Prometheus and as MLPerf's log.
expect 0 run "$work/plan.json" --steps 60 --until accuracy=0.05 -q --metrics "$work/run.prom" --mlperf-log "$work/run.log"
if /usr/bin/python3 -c 'import prometheus_client' 2>/dev/null; then
    if /usr/bin/python3 - "$work/run.prom" <<'END'; then pass; else fail "the metrics are not Prometheus' text"; fi
import sys
from prometheus_client.parser import text_string_to_metric_families as parse
families = {f.name: f for f in parse(open(sys.argv[1]).read())}
step = families["trainyard_step_time_seconds"].samples[0]
assert step.value > 0 and step.labels["workload"] == "mlp" and step.labels["cluster"] == "local:2"
assert [s.labels["stage_replica"] for s in families["trainyard_peak_memory_bytes"].samples] == ["0", "1"]
assert abs(sum(s.value for s in families["trainyard_step_share"].samples) - 1) < 1e-6
assert all(f.type == "gauge" and f.documentation for f in families.values())
END
else
    echo "skipped: python3-prometheus-client is not here"
fi
if /usr/bin/python3 - "$work/run.log" <<'END'; then pass; else fail "the log is not MLPerf's"; fi
import json, re, sys
# As mlcommons/logging parses it: compliance_checker/mlp_parser.
lines = [re.fullmatch(r":::MLLOG (\{.*\})\n", l) for l in open(sys.argv[1])]
events = [json.loads(m[1]) for m in lines]
assert all(set(e) == {"namespace", "time_ms", "event_type", "key", "value", "metadata"} for e in events)
assert all(e["event_type"] in ("POINT_IN_TIME", "INTERVAL_START", "INTERVAL_END") for e in events)
keys = [e["key"] for e in events]
assert keys.count("run_start") == keys.count("run_stop") == 1 and "global_batch_size" in keys
stop = events[-1]
assert stop["key"] == "run_stop" and stop["metadata"]["status"] == "success"
start = next(e for e in events if e["key"] == "run_start")
assert stop["time_ms"] > start["time_ms"] and "eval_accuracy" in keys and keys.count("tracked_stats") >= 50
END

# Without devices: a plan for other hosts, of a model that cannot train here. Only time and
# messages.
expect 0 plan -w resnet50 -c "1x p100-server" --global-batch 64 --fix pp=2,dp=2 --no-simulate -q -o "$work/resnet50.json"
expect 0 run "$work/resnet50.json" --backend replay --steps 2 -q -o "$work/resnet50-run.json" --metrics "$work/resnet50.prom" --mlperf-log "$work/resnet50.log"
expect_output "4 stage replicas (replay), 2 steps" "none: layers only took their time"
expect 0 compare "$work/resnet50.json" "$work/resnet50-run.json"
expect_output "Step time" "forward" "all_reduce"
expect 0 report "$work/resnet50.json" "$work/resnet50-run.json" -o "$work/resnet50.html"
expect 0 check "$work/resnet50-run.json"
if grep -q loss "$work/resnet50.prom" "$work/resnet50.log"; then fail "a replay has a loss"; else pass; fi
expect 1 run "$work/resnet50.json" --backend replay --until accuracy=0.5 -q
expect_error_line "replay" "trains nothing" "target"
expect 1 run "$work/plan.json" --backend rerun -q
expect_error_line "rerun" "replay"

# Until a test loss is reached; compared with a calibration's prediction.
expect 0 run "$work/plan.json" --steps 60 --until loss=50 --evaluate-every 20 -q -o "$work/reached.json"
expect_output "after 20 steps"
grep -q '"until": {"loss": 50}' "$work/reached.json" || fail "the run does not say what it was to reach"
printf '%s' '{"schema": "trainyard.calibration/1", "convergence": {"name": "made", "target": "loss=50", "source": "made",
 "noise_scale_samples": 1000, "minimum_samples": 1000, "log_deviation": 0.1, "smallest_batch": 128, "largest_batch": 128,
 "noise_growth": 1, "scaling_rule": "linear", "learning_rate": 0.05, "batch": 128}}' >"$work/made.json"
expect 0 compare "$work/plan.json" "$work/reached.json" --task "$work/made.json"
expect_output "Target      loss=50" "predicted 8.812" "measured 20: -55.9 %, outside the interval"
expect 0 compare "$work/plan.json" "$work/reached.json"
expect_output "measured 20" "no prediction"
expect 2 compare "$work/plan.json" "$work/run.json" --task "$work/made.json"
expect_error_line "had no target"
expect 3 compare "$work/plan.json" "$work/reached.json" --task "$work/absent.json"
for bad in accuracy=0 accuracy=1.5 accuracy=x loss=0 loss=-1 loss=inf loss=nan loss=1x lost=1 accuracy; do
    expect 2 run "$work/plan.json" --until $bad
    expect_error_line "--until: found '$bad'" "accuracy=X" "loss=X"
done
expect 2 run "$work/plan.json" --evaluate-every 10
expect_error_line "--evaluate-every: found without --until"

# The learning rate: the requested one, or the one that a calibration proposes for the batch size.
expect 0 plan -w mlp -c local:2 --fix pp=1 --global-batch 256 --learning-rate 0.02 --no-simulate -q -o "$work/rate.json"
grep -q '"learning_rate": 0.02[,}]' "$work/rate.json" || fail "the plan has another learning rate"
expect 0 plan -w mlp -c local:2 --fix pp=1 --global-batch 1000 --task "$work/made.json" --no-simulate -o "$work/rate.json"
grep -q "learning rate 0.2203 for a batch of 1000" "$scratch/err" || fail "the learning rate is not told"
for bad in 0 -1 x 1x nan 1e7; do
    expect 2 plan -w mlp -c local:2 --learning-rate=$bad -q
    expect_error_line "--learning-rate: found '$bad'"
done

# A run of another plan is refused.
expect 0 plan -w mlp -c local:2 --fix pp=2 -q -o "$work/other.json"
expect 3 compare "$work/other.json" "$work/run.json"
expect_error_line "another plan"

# Text as tokens, and back; a model with a large enough vocabulary trains on them.
expect 0 data tokenize "$SOURCE/README.md" "$SOURCE/docs/reference/file-formats.md" -o "$work/bytes.tokens"
expect_output "vocabulary 256"
expect 0 data tokenize "$SOURCE/README.md" "$SOURCE/docs/reference/file-formats.md" --vocabulary 512 -o "$work/pairs.tokens"
expect 0 data text "$work/pairs.tokens" -o "$work/text"
if cat "$SOURCE/README.md" "$SOURCE/docs/reference/file-formats.md" | cmp -s - "$work/text"; then pass; else fail "the text that comes back is another"; fi
expect 0 plan -w "gpt-tiny sequence=16" -c local:1 --no-simulate -q -o "$work/gpt.json"
expect 0 run "$work/gpt.json" --steps 3 --data "$work/bytes.tokens" -q -o "$work/gpt-run.json"
expect 3 run "$work/gpt.json" --steps 3 --data "$work/pairs.tokens" -q -o "$work/none.json"
expect_error_line "pairs.tokens" "found a vocabulary of 512 tokens" "256"
expect 3 data text "$work/text"
expect_error_line "found no header of tokens"
expect 2 data tokenize "$SOURCE/README.md"
expect 2 data tokenize "$SOURCE/README.md" --vocabulary 100 -o "$work/none.tokens"
expect 2 data shuffle "$SOURCE/README.md"

# Tensor parallelism: two ranks form one stage replica, with the loss of one rank; comparison of
# measured with predicted times.
expect 0 plan -w "gpt-tiny sequence=16" -c local:2 --fix tp=2 -q -o "$work/lanes.json"
expect 0 run "$work/lanes.json" --steps 20 -q -o "$work/lanes-run.json"
expect_output "1 stage replica (cpu)" "Loss"
expect 0 run "$work/gpt.json" --steps 20 -q -o "$work/gpt-run.json"
if /usr/bin/python3 - "$work/lanes-run.json" "$work/gpt-run.json" <<'END'; then pass; else fail "lanes learn something else"; fi
import json, sys
lanes, alone = (json.load(open(path))["losses"] for path in sys.argv[1:])
assert len(lanes) == len(alone) == 20
assert all(abs(a - b) < 1e-3 * b for a, b in zip(lanes, alone)), (lanes, alone)
END
expect 0 compare "$work/lanes.json" "$work/lanes-run.json"
expect_output "Step time" "forward" "update"
expect 0 report "$work/lanes.json" "$work/lanes-run.json" -o "$work/lanes.html"
if [ -n "${TY_ALL:-}" ]; then
    expect 0 plan -w "gpt-tiny sequence=16" -c local:4 --fix tp=2,sp=1 -q -o "$work/sequence.json"
    expect 0 run "$work/sequence.json" --steps 4 --checkpoint "$scratch/lanes" --checkpoint-every 2 -q -o "$work/sequence-run.json"
    expect 0 run "$work/sequence.json" --steps 6 --checkpoint "$scratch/lanes" --resume -q -o "$work/sequence-run.json"
    if [ "$(ls "$scratch/lanes/step-6" | grep -c rank-)" -eq 4 ]; then pass; else fail "not one checkpoint a lane"; fi
fi

# Expert parallelism: two ranks with two experts each train like one with four.
cat >"$work/moe.json" <<'END'
{"schema": "trainyard.zoo/1", "source": "mixtral-8x7b.json", "name": "moe-small", "family": "decoder", "blocks": 2,
 "features": 32, "heads": 4, "kv_heads": 2, "experts": 4, "experts_per_token": 2, "expert_features": 64,
 "vocabulary": 64, "sequence": 32, "longest_sequence": 32, "token_bytes": 1, "dataset": "synthetic",
 "global_batch": 16, "optimizer": {"kind": "adamw", "learning_rate": 0.001, "weight_decay": 0.01, "beta1": 0.9,
 "beta2": 0.999, "epsilon": 1e-08}}
END
expect 0 plan -w "$work/moe.json" -c local:2 --fix ep=2 -q -o "$work/experts.json"
expect 0 run "$work/experts.json" --steps 20 -q -o "$work/experts-run.json"
expect_output "1 stage replica (cpu)" "Loss"
expect 0 plan -w "$work/moe.json" -c local:1 --no-simulate -q -o "$work/mixture.json"
expect 0 run "$work/mixture.json" --steps 20 -q -o "$work/mixture-run.json"
if /usr/bin/python3 - "$work/experts-run.json" "$work/mixture-run.json" <<'END'; then pass; else fail "expert lanes learn something else"; fi
import json, sys
lanes, alone = (json.load(open(path))["losses"] for path in sys.argv[1:])
assert len(lanes) == len(alone) == 20 and alone[-1] < 0.9 * alone[0], alone
assert all(abs(a - b) < 1e-3 * b for a, b in zip(lanes, alone)), (lanes, alone)
END
expect 0 compare "$work/experts.json" "$work/experts-run.json"
expect_output "Step time" "forward" "update bucket 1"
expect 0 plan -w "$work/moe.json" -c local:4 --fix ep=2,dp=2,zero=1 --no-simulate -q -o "$work/sharded-experts.json"
expect 0 run "$work/sharded-experts.json" --steps 4 --checkpoint "$scratch/experts" --checkpoint-every 2 -q -o "$work/sharded-run.json"
expect 0 run "$work/sharded-experts.json" --steps 6 --checkpoint "$scratch/experts" --resume -q -o "$work/sharded-run.json"
if [ "$(ls "$scratch/experts/step-6" | grep -c rank-)" -eq 4 ]; then pass; else fail "not one checkpoint an expert lane"; fi

# A run resumes from its checkpoint; a mismatch is refused with one line.
expect 0 run "$work/plan.json" --steps 4 --checkpoint "$scratch/state" --checkpoint-every 2 -q -o "$work/first.json"
expect 0 run "$work/plan.json" --steps 8 --checkpoint "$scratch/state" --resume --keep 1 -q -o "$work/second.json"
if [ "$(ls "$scratch/state")" = "$(printf 'latest.json\nresult.json\nstep-8')" ]; then pass; else fail "old checkpoints stay"; fi
expect 2 run "$work/plan.json" --steps 9 --resume -q -o "$work/none.json"
expect_error_line "--resume" "--checkpoint"
expect 2 run "$work/plan.json" --steps 9 --keep 3 -q -o "$work/none.json"
expect_error_line "--keep" "--checkpoint"
for every in 0 3x 10minutes -1; do
    expect 2 run "$work/plan.json" --checkpoint "$scratch/none" --checkpoint-every=$every -q -o "$work/none.json"
    expect_error_line "--checkpoint-every: found '$every'" "10min"
done
expect 1 run "$work/plan.json" --steps 9 --checkpoint "$scratch/state" -q -o "$work/none.json"
expect_error_line "step-8/checkpoint.json" "earlier run"
expect 0 plan -w mlp -c local:2 --fix pp=1 --seed 7 --no-simulate -q -o "$work/seeded.json"
expect 3 run "$work/seeded.json" --steps 9 --checkpoint "$scratch/state" --resume -q -o "$work/none.json"
expect_error_line "step-8/checkpoint.json" "a checkpoint of this plan"
# Other stages continue, here in a copy.
cp -r "$scratch/state" "$scratch/moved"
expect 0 run "$work/other.json" --steps 9 --checkpoint "$scratch/moved" --resume -q -o "$work/moved.json"
/usr/bin/python3 -c 'import json, sys; a, b = (json.load(open(p))["losses"] for p in sys.argv[1:]); sys.exit(a != b[:8] or len(b) != 9)' \
    "$work/second.json" "$work/moved.json" && pass || fail "other stages do not continue the losses"

# All requested steps are done: the same result again, from the saved result or from the checkpoint.
expect 0 run "$work/plan.json" --steps 8 --checkpoint "$scratch/state" --resume -o "$work/again.json"
grep -q "finished before, after 8 steps" "$scratch/err" && pass || fail "a finished run does not say so"
cmp -s "$work/second.json" "$work/again.json" && pass || fail "the result that comes again is another"
rm "$scratch/state/result.json"
expect 0 run "$work/plan.json" --steps 8 --checkpoint "$scratch/state" --resume -o "$work/again.json"
grep -q "the checkpoint has all 8 steps" "$scratch/err" && pass || fail "a finished checkpoint does not say so"
same_losses() {
    /usr/bin/python3 -c 'import json, sys; a, b = (json.load(open(p))["losses"] for p in sys.argv[1:]); sys.exit(a != b)' "$1" "$2"
}
same_losses "$work/second.json" "$work/again.json" && pass || fail "a checkpoint has other losses than its run"
expect 0 check "$work/again.json"
expect 0 run "$work/plan.json" --steps 8 --checkpoint "$scratch/state" --resume -q --metrics "$work/again.prom" --mlperf-log "$work/again.log"
expect 3 compare "$work/plan.json" "$work/again.json"
expect_error_line "/timeline: found none" "recorded no step"
expect 0 report "$work/plan.json" "$work/again.json" -o "$work/again.html"
expect 3 run "$work/plan.json" --steps 7 --checkpoint "$scratch/state" --resume -q -o "$work/none.json"
expect_error_line "at most 7 steps, not one of 8"

# With any number of steps left, and a target met at any step, there is a result.
for more in 1 ${TY_ALL:+2 5 10 11}; do
    rm -rf "$scratch/late"
    expect 0 run "$work/plan.json" --steps 30 --checkpoint "$scratch/late" -q -o "$work/late-run.json"
    expect 0 run "$work/plan.json" --steps $((30 + more)) --checkpoint "$scratch/late" --resume -q -o "$work/late-run.json"
    expect 0 compare "$work/plan.json" "$work/late-run.json"
done
expect 0 run "$work/plan.json" --steps 60 --until loss=50 --evaluate-every 1 --checkpoint "$scratch/early" -q -o "$work/early.json"
expect_output "after 1 steps"
expect 0 compare "$work/plan.json" "$work/early.json"
expect 0 run "$work/plan.json" --steps 60 --until loss=50 --evaluate-every 1 --checkpoint "$scratch/early" --resume -o "$work/again.json"
grep -q "finished before, after 1 steps" "$scratch/err" && pass || fail "a target that was met is trained for again"
cmp -s "$work/early.json" "$work/again.json" && pass || fail "the result that comes again is another"

# A growing batch size: the same training continues under another plan.
expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none --global-batch 64 --no-simulate -q -o "$work/small.json"
expect 0 plan -w mlp -c local:2 --fix pp=1,compression=none --global-batch 192 --no-simulate -q -o "$work/large.json"
expect 0 run "$work/small.json" --steps 3 --checkpoint "$scratch/grown" -q -o "$work/small-run.json"
expect 0 run "$work/large.json" --steps 6 --checkpoint "$scratch/grown" --resume -q -o "$work/large-run.json"
if grep -q '"samples": 768' "$scratch/grown/latest.json"; then pass; else fail "3 steps of 64 and 3 of 192 are $(grep samples "$scratch/grown/latest.json")"; fi

# kill -9 of a rank, also of a tensor-parallel one: a message, no stray rank, and the rest of the
# steps from the checkpoint. Partial files of a writing rank are removed.
kill_one() {
    plan=$1
    state=$scratch/killed-$2
    "$TRAINYARD" run "$plan" --steps 100000 --checkpoint "$state" --checkpoint-every 2 -q -o "$work/killed.json" >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    # Beyond 20 steps the warm-up has ten: a run killed before that would resume with fewer steps
    # than these.
    tries=0
    while [ $tries -lt 1200 ] && ! grep -q '"step": [2-9][0-9]' "$state/latest.json" 2>/dev/null; do
        tries=$((tries + 1))
        sleep 0.1
    done
    rank=$(pgrep -P "$(pgrep -P $pid -x "mpirun|prterun")" -f trainyard-worker | tail -1)
    kill -9 "$rank"
    wait $pid
    got=$?
    if [ $got -eq 1 ]; then pass; else fail "exit code $got instead of 1 after a rank was killed"; fi
    sed -i '/^\[/d' "$scratch/err" # Open MPI's message about an interrupted transfer
    expect_error_line "signal 9" "--resume" "latest.json"
    if [ -e "$work/killed.json" ]; then fail "a killed run left its output"; else pass; fi
    mkdir -p "$state/step-1"
    touch "$state/step-1/rank-0" "$state/step-1/rank-1.tmp"
    step=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' "$state/latest.json")
    expect 0 run "$plan" --steps $((step + 3)) --checkpoint "$state" --resume --keep 1 -q -o "$work/killed.json"
    if [ "$(ls "$state")" = "$(printf 'latest.json\nresult.json\nstep-%d' $((step + 3)))" ]; then pass; else fail "left in the checkpoint's folder: $(ls "$state")"; fi
    rm -f "$work/killed.json"
}
kill_one "$work/plan.json" rank
kill_one "$work/lanes.json" lane

# More ranks than in the plan: the job file is intercepted on its way to the worker.
cat >"$scratch/catch" <<CATCH
#!/bin/sh
cp "\$1" "$scratch/job.json"
CATCH
chmod +x "$scratch/catch"
TRAINYARD_WORKER=$scratch/catch "$TRAINYARD" run "$work/plan.json" --steps 4 -q >"$scratch/out" 2>&1
root=
[ "$(id -u)" -ne 0 ] || root=--allow-run-as-root
mpirun $root --oversubscribe -n 3 "$WORKER" -q "$scratch/job.json" >"$scratch/out" 2>"$scratch/all"
got=$?
grep '^trainyard' "$scratch/all" >"$scratch/err" # the launcher prints its own messages
if [ $got -eq 3 ]; then pass; else fail "exit code $got instead of 3 for three ranks of a plan of two"; fi
expect_error_line "/plan/stages" "found a plan of 2 ranks" "expected one of 3"

# Ctrl-C: exit code 130, no stray rank, nothing in the temporary folder; measurements are reported
# and saved.
export TMPDIR="$scratch/tmp"
mkdir "$TMPDIR"
"$TRAINYARD" run "$work/plan.json" --steps 1000000 -q -o "$work/long.json" >"$scratch/out" 2>"$scratch/err" &
pid=$!
tries=0
while [ $tries -lt 600 ] && ! ls "$TMPDIR"/trainyard-*/begun >/dev/null 2>&1; do
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
expect_output "2 stage replicas" "Step time"
grep -q "interrupted; the result is of the steps until then" "$scratch/err" && pass || fail "nobody says that a result was kept"
expect 0 compare "$work/plan.json" "$work/long.json"
if ls -A "$TMPDIR" | grep -q '^trainyard'; then fail "left behind: $(ls -A "$TMPDIR")"; else pass; fi
finish
