#!/bin/sh
# Every system, every kind of staleness and every compressor trains lenet with its defaults;
# divergence is reported.
. "$(dirname "$0")/lib.sh"
export TRAINYARD_WORKER="$WORKER"
[ -e "$TRAINYARD_DATASETS/fashion-mnist" ] || { echo "needs Fashion-MNIST"; exit 77; }

# trains NAME OPTIONS...: 120 steps on two ranks. The loss falls to less than half, and never rises far.
trains() {
    name=$1
    shift
    expect 0 plan -w lenet -c local:2 --seed 1 --no-simulate -q -o "$scratch/plan.json" "$@"
    expect 0 run "$scratch/plan.json" --steps 120 -q -o "$scratch/run.json"
    python3 - "$scratch/run.json" >"$scratch/out" 2>&1 <<'END' && pass || fail "$name: $(tail -n 1 "$scratch/out")"
import json, sys
losses = json.load(open(sys.argv[1]))["losses"]
first, last, most = losses[0], sum(losses[-20:]) / 20, max(losses)
assert len(losses) == 120 and last < first / 2 and most < 1.5 * first, (first, last, most)
END
    [ ! -s "$scratch/err" ] || fail "$name: $(head -n 1 "$scratch/err")"
}

# One of each kind that diverged with the optimizer of the workload, then all.
some="one-bit top-k-sampled:0.01"
systems=pipedream-2bw
late=1
if [ -n "${TY_ALL:-}" ]; then
    some="none fp16 bf16 fp8-e4m3 fp8-e5m2 int8 ternary one-bit top-k:0.01 top-k:0.001 top-k-sampled:0.01 random-k:0.1 \
dgc:0.01 powersgd-1 powersgd-2 powersgd-4"
    systems="baidu-ring parameter-server tensorflow-on-spark bigdl horovod ddp moxing gpipe pipedream pipedream-2bw zero"
    late="1 2"
    trains "1F1B without a flush" --fix pp=2,schedule=pipedream
    trains "1F1B without a flush, one micro-batch" --fix pp=2,schedule=pipedream,micro_batch=128
    trains "one-bit, a step late" --fix pp=1,dp=2,compression=one-bit,staleness=1
fi
for system in $systems; do
    trains "$system" --system "$system"
done
for compression in $some; do
    trains "$compression" --fix "pp=1,dp=2,compression=$compression"
done
for staleness in $late; do
    trains "staleness $staleness" --fix "pp=1,dp=2,compression=none,staleness=$staleness"
done

# The plan reports its changes, in text and in JSON; a synchronous plan changes nothing.
late=pp=1,dp=2,compression=none,staleness=1
expect 0 plan -w lenet -c local:2 --fix $late --no-simulate -q
expect_output "Training    learning rate 0.045 for 0.05, momentum 0.1 for 0.9: gradients" "            arrive 1 update late"
expect 0 plan -w lenet -c local:2 --fix $late --no-simulate -q --json
expect_output '"recipe": {"delay_updates": 1, "error_feedback": false, "learning_rate_factor": 0.9'
expect 0 plan -w lenet -c local:2 --fix pp=1,dp=2,compression=fp16 --no-simulate -q --json
if grep -q '"recipe"' "$scratch/out"; then fail "a plan in time has a recipe"; else pass; fi

# A requested learning rate is used. With it training diverges, which is reported, and earlier
# results are kept.
expect 0 plan -w lenet -c local:2 --fix $late --seed 1 --learning-rate 0.5 --no-simulate -q -o "$scratch/plan.json"
expect 1 run "$scratch/plan.json" --steps 60 -q --checkpoint "$scratch/kept" --checkpoint-every 1
grep -q "warning: training diverges: the loss of step [0-9]* is .* more than 10 times the first" "$scratch/err" && pass ||
    fail "no warning"
grep -q "no longer a finite number in step [0-9]*; .*; the checkpoint after step [0-9]* is kept" "$scratch/err" && pass ||
    fail "not told what is kept"
warned=$(sed -n 's/.*the loss of step \([0-9]*\) .*/\1/p' "$scratch/err")
kept=$(sed -n 's/.*"step": \([0-9]*\),.*/\1/p' "$scratch/kept/latest.json")
[ "$kept" -gt 0 ] && [ "$kept" -lt "$warned" ] && pass || fail "warned in step $warned, kept step $kept"
expect 0 run "$scratch/plan.json" --steps "$kept" -q --checkpoint "$scratch/kept" --resume
finish
