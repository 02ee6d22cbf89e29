#!/bin/sh
# Learning rate, momentum and batch by successive halving: who goes on, what it cost, and that what is said of a trial
# is what a plain run of its settings gives.
. "$(dirname "$0")/lib.sh"
export TRAINYARD_WORKER="$WORKER"
mkdir "$scratch/made"
# The same micro-batches and buckets, whatever is measured, or sums are rounded in other places.
fix=pp=1,dp=2,micro_batch=8,compression=none,bucket=one,algorithm=ring
TMPDIR=$scratch/made
export TMPDIR
expect 0 calibrate -w mlp -c local:2 --trials learning_rate=1e-6+0.02+1e5+1e-5,batch=32 --steps 4 --seed 3 --fix $fix -o "$scratch/trials.json"
expect_only
grep -q "learning rate 100000, momentum 0.9, batch 32: out" "$scratch/err" && pass || fail "who diverged is not said"
for rate in 0.02 1e-5; do
    expect 0 plan -w mlp -c local:2 --fix $fix --global-batch 32 --learning-rate $rate --seed 3 --no-simulate -q -o "$scratch/plan.json"
    expect 0 run "$scratch/plan.json" --steps 32 --until loss=1e-300 --evaluate-every 32 -q -o "$scratch/run-$rate.json"
done
/usr/bin/python3 - "$scratch" >"$scratch/out" 2>&1 <<'END_OF_CHECK' && pass || fail "trials: $(tail -1 "$scratch/out")"
import json, sys
made = json.load(open(sys.argv[1] + "/trials.json"))
rows = made["trials"]
usual = made["first_round_samples"] // 4
assert made["schema"] == "trainyard.trials/1" and made["rounds"] == 2 and made["ranks"] == 2, made
# All in the first round, the better two in the second, twice as far.
first = 4 * usual
assert [r["learning_rate"] for r in rows[:2]] == [0.02, 1e-5] and rows[3]["learning_rate"] == 1e5, rows
assert [r["rounds"] for r in rows] == [2, 2, 1, 1] and [r["samples"] for r in rows] == [2 * first, 2 * first, first, 0], rows
assert [r["diverged"] for r in rows] == [False, False, False, True], rows
assert made["samples"] == sum(r["samples"] for r in rows) and made["samples_without_halving"] == 4 * 2 * first, made
assert abs(made["train_s"] - sum(r["train_s"] for r in rows)) < 1e-9, made
assert rows[0]["test_loss"] < rows[1]["test_loss"] < rows[2]["test_loss"], rows
# As a run has it that was never cut into rounds.
for row in rows[:2]:
    run = json.load(open(f"{sys.argv[1]}/run-{row['learning_rate']:.5g}.json".replace("1e-05", "1e-5")))
    assert len(run["losses"]) * 32 == row["samples"], (len(run["losses"]), row)
    last = run["evaluations"][-1]
    assert (last["loss"], last["accuracy"]) == (row["test_loss"], row["test_accuracy"]), (last, row)
# The noise scale is that of the one found.
noise = json.load(open(sys.argv[1] + "/run-0.02.json"))["gradient_noise"]
if noise["square"] > 0 and noise["variance"] > 0:
    assert abs(made["noise_scale_samples"] * noise["square"] / noise["variance"] - 1) < 1e-9, (made, noise)
assert made["by_the_rule"] == [], made
END_OF_CHECK
expect 1 calibrate -w mlp -c local:2 --trials learning_rate=1e5+1e4 --steps 4 -q
grep -q "every trial of round 1 diverged: expected a smaller learning rate" "$scratch/err" && pass || fail "that all diverged is not said"
expect_only
# Trainings that end for another reason have not diverged.
TRAINYARD_WORKER=/bin/false
expect 1 calibrate -w mlp -c local:2 --trials learning_rate=0.1+0.2 --steps 4 -q
grep -q "trainyard-worker ended with code 1 and without a word" "$scratch/err" && pass || fail "why the worker ended is not said"
TRAINYARD_WORKER="$WORKER"
expect_only
expect 2 calibrate -w mlp -c "2x p100-server" --trials learning_rate=0.1+1
expect_error_line "--cluster: found 2x p100-server, expected local:N"
for bad in "learning_rate=0.1" "rate=0.1+1" "learning_rate=0.1+,batch=3" "batch=1.5+2" "learning_rate=0.1+1,learning_rate=2" \
    "momentum=0.5+1" "learning_rate=0+1" "" "batch"; do
    TRAINYARD_WORKER=/bin/false XDG_CACHE_HOME="$scratch/unmeasured" expect 2 calibrate -w mlp -c local:2 --trials "$bad"
    expect_error_line "--trials"
done
expect 2 calibrate -w mlp -c local:2 --trials learning_rate=0.1+1 --until accuracy=0.5
expect_error_line "--trials: found with --until"
expect 2 calibrate --trials learning_rate=0.1+1
expect_error_line "--trials needs --workload"
finish
