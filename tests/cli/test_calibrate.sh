#!/bin/sh
# Logs of nccl-tests become a profile that the planner prefers; short trainings show how a workload
# converges.
. "$(dirname "$0")/lib.sh"
log=$scratch/all_reduce.log
profile=$scratch/profile.json

{
    echo "all_reduce_perf -b 1M -e 1G"
    echo "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    i=0
    while [ $i -lt 8 ]; do
        echo "#  Rank  $i Group  0 Pid 1 on alpha device  $i [0x0f] NVIDIA H100"
        i=$((i + 1))
    done
    echo "1048576 262144 float sum -1 1000 1.05 1.84 0 1000 1.05 1.84 0"
    echo "1073741824 268435456 float sum -1 1000000 1.07 1.88 0 1000000 1.07 1.88 0"
} >"$log"
expect 0 calibrate "$log" -c "1x dgx-h100" -o "$profile"
grep -q '"algorithm": "automatic"' "$profile" || fail "no row of the library's own choice"
grep -q '"hosts": 1' "$profile" || fail "no row says on how many hosts it was"

# Far slower than the model: only the log can make the plan so slow.
expect 0 plan -w vgg16 -c "1x dgx-h100" --fix dp=8 --no-simulate -o "$scratch/model.json"
expect 0 plan -w vgg16 -c "1x dgx-h100" -p "$profile" --fix dp=8 --no-simulate \
    -o "$scratch/measured.json"
step() { sed -n 's/.*"step_time_s": \([0-9.e-]*\).*/\1/p' "$1" | head -n 1; }
awk "BEGIN { exit !($(step "$scratch/measured.json") > 3 * $(step "$scratch/model.json")) }" ||
    fail "the planner did not prefer what was measured"

expect 2 calibrate "$log"
expect 3 calibrate "$scratch/absent.log" -c "1x dgx-h100"
echo "srun: error: no" >"$scratch/failed.log"
expect 3 calibrate "$scratch/failed.log" -c "1x dgx-h100" -o "$scratch/none.json"
expect_error_line "failed.log" "no rows" "srun: error: no"
test ! -e "$scratch/none.json" || fail "a failed calibration left a file"
expect 3 calibrate "$log" -c "1x p100-server"
expect_error_line "all_reduce.log" "8 ranks" "4 devices"
expect 2 calibrate "$log" -c "1x dgx-h100" --collective all_reduc

for algorithm in hierarchical parameter-server block-manager; do
    expect 0 plan -w lenet -c "2x xeon-server" --fix dp=2,algorithm=$algorithm -o "$scratch/a.json"
    expect 0 simulate "$scratch/a.json"
    expect 0 run "$scratch/a.json" --anyway --steps 4 -q
done

# Short trainings: how a workload converges.
export TRAINYARD_WORKER="$WORKER"
calibrate="calibrate -w mlp -c local:2 --until accuracy=0.3 --global-batch 32 --steps 400 --evaluate-every 130 -q"
expect 0 $calibrate --seeds 2 --compressions top-k:0.01,powersgd-2 -o "$scratch/calibration.json"
expect_output "accuracy=0.3 in " "noise scale" "temperature noise lengthens" "top-k:0.01" "powersgd-2" "staleness" "propose     --global-batch"
expect 0 check "$scratch/calibration.json"
# Three ranks do not make two stages of one micro-batch: replicas with a staleness of one step
# measure its cost.
expect 0 calibrate -w mlp -c local:3 --until accuracy=0.3 --global-batch 48 --steps 400 --evaluate-every 130 -q -o "$scratch/late.json"
expect_output "stale updates per step of staleness"
grep -q '"distortion": 0\.[0-9]' "$scratch/calibration.json" || fail "no distortion was measured"
expect 0 plan -w mlp -c local:2 --global-batch 128 --fix pp=1,compression=top-k:0.01 --task "$scratch/calibration.json" \
    --no-simulate -q -o "$scratch/a.json"
expect 0 score "$scratch/a.json" --task "$scratch/calibration.json" --json
expect_output '"convergence_provenance": "measured"'
expect 0 plan -w mlp -c local:2 --objective time-to-target --task "$scratch/calibration.json" --no-simulate -q -o "$scratch/b.json"

# No run is discarded: a diverging probe, a run too short to compare and a small number of noise
# estimates are reported, and the rest is a calibration. This worker ends a run with one-bit as it
# ends one that diverges.
cat >"$scratch/worker" <<'END'
#!/bin/sh
if grep -q '"compression": "one-bit"' "$1"; then
    touch "$TRAINYARD_SIGNS/begun" "$TRAINYARD_SIGNS/said" "$TRAINYARD_SIGNS/diverged"
    exit 1
fi
exec "$REAL_WORKER" "$@"
END
chmod +x "$scratch/worker"
export REAL_WORKER="$WORKER"
TRAINYARD_WORKER=$scratch/worker
expect 0 $calibrate --compressions one-bit,int8 -o "$scratch/some.json"
TRAINYARD_WORKER=$WORKER
expect_output "int8 " "one-bit: not measured: training diverged" "propose     --global-batch"
expect 0 check "$scratch/some.json"
expect 0 calibrate -w mlp -c local:2 --until accuracy=0.3 --global-batch 32 --steps 400 --evaluate-every 20 --compressions int8 -q -o "$scratch/few.json"
expect_output "(2 estimates;" "int8: not measured: the target was reached in 20 steps"
expect 0 plan -w mlp -c local:2 --objective time-to-target --task "$scratch/few.json" --no-simulate -q

# Published points: the law through them, and the steps of another batch size by it.
expect 0 calibrate --reached 100:11epochs,1000:20epochs*5 --global-batch 3000
expect_output "10 epochs with the smallest batches" "noise scale 1000 samples" "to target   40 epochs"
expect 0 calibrate --reached 100:1100,1000:2000 --global-batch 3000 --json
expect_output '"schema": "trainyard.law/1"' '"unit": "samples"'
expect 0 calibrate --reached 100:1100,1000:2000 -o "$scratch/law.txt"
grep -q "1000 samples" "$scratch/law.txt" || fail "the law was not written"
expect 2 calibrate --reached 100:11epochs,1000:20
expect_error_line "--reached: found epochs and samples, expected one unit"
expect 2 calibrate --reached 100:11,100:12
expect_error_line "--reached: all points have batch 100"
expect 2 calibrate --reached 100:11,1000:20 "$log" -c "1x dgx-h100"
expect_error_line "expected one of logs, --workload and --reached"

expect 2 $calibrate "$log"
expect_error_line "expected one of logs, --workload and --reached"
expect 2 calibrate -c local:2
expect_error_line "needs logs, --workload or --reached"
expect 2 calibrate -w mlp -c local:2
expect_error_line "--until is needed"
expect 2 calibrate -w mlp -c "1x dgx-h100" --until accuracy=0.3
expect_error_line "--cluster: found 1x dgx-h100, expected local:N"
expect 2 calibrate -w mlp -c local:1 --until accuracy=0.3 -q
expect_error_line "found local:1, expected local:2 or more"
for bad in accuracy=2 loss=0 x; do
    expect 2 calibrate -w mlp -c local:2 --until $bad
    expect_error_line "--until: found '$bad'"
done
for bad in none top-k:2 topk, fp33; do
    expect 2 $calibrate --compressions $bad -o "$scratch/none.json"
    expect_error_line "--compressions: "
done
expect 1 calibrate -w mlp -c local:2 --until accuracy=1 --steps 20 --evaluate-every 20 -q -o "$scratch/none.json"
expect_error_line "accuracy=1 was not reached in 20 steps" "--steps"
expect 1 calibrate -w mlp -c local:2 --until accuracy=0.3 -d "$scratch/absent" -q -o "$scratch/none.json"
test ! -e "$scratch/none.json" || fail "a failed calibration left a file"
finish
