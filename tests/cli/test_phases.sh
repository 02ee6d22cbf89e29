#!/bin/sh
# A training of several phases: planned, predicted, run and compared. Its results equal, bit for
# bit, those of one run, or of runs joined by a checkpoint.
. "$(dirname "$0")/lib.sh"
export TRAINYARD_WORKER="$WORKER"
python=/usr/bin/python3
cd "$scratch" || exit 1
fix=pp=1,dp=2,compression=none,zero=0

# same RUN... : the losses of the first are, number for number, those of the others in sequence.
same() {
    $python - "$@" <<'END' && pass || fail "other losses: $*"
import json, sys
def losses(path):
    document = json.load(open(path))
    return document["phases"][-1]["losses"] if "phases" in document else document["losses"]
found, expected = losses(sys.argv[1]), losses(sys.argv[2])
assert len(found) > 4 and found == expected, (found, expected)
END
}

# Two phases of the same shape are one run of all their steps.
cat >alike.json <<'END'
{"schema": "trainyard.phases/1", "phases": [{"steps": 5}, {"steps": 4}]}
END
expect 0 check alike.json
expect_output "phases"
expect 0 plan -w mlp -c local:2 --fix $fix --no-simulate --phases alike.json -q -o alike-plan.json
expect_output "all     9 steps, " "data parallel 2"
expect 0 check alike-plan.json
expect 0 run alike-plan.json -q -o alike-run.json
expect_output "phase 1" "phase 2"
$python -c 'import json
first, second = [phase["plan"] for phase in json.load(open("alike-plan.json"))["phases"]]
assert all(first[key] == second[key] for key in ("stages", "buckets", "micro_batch_size", "micro_batches"))
json.dump(first, open("whole.json", "w"))' && pass || fail "phases of one shape have plans of two"
expect 0 run whole.json --steps 9 -q -o whole-run.json
same alike-run.json whole-run.json

# Other batch sizes, learning rates and momenta are runs that a checkpoint joins. An epoch is a
# number of samples.
cat >others.json <<'END'
{"schema": "trainyard.phases/1", "samples": 640, "phases": [
  {"epochs": 0.5, "global_batch": 64, "fix": "micro_batch=16"},
  {"steps": 3, "global_batch": 128, "learning_rate": 0.1, "momentum": 0.5},
  {"epochs": 0.4, "global_batch": 32, "learning_rate": 0.01, "momentum": 0.8}]}
END
expect 0 plan -w mlp -c local:2 --fix $fix --no-simulate --phases others.json -q -o plan.json
expect_output "    1      64 " "    2     128            0.1       0.5         3" "    3      32           0.01       0.8         8" "all     16 steps, 960 samples"
$python -c 'import json
for n, phase in enumerate(json.load(open("plan.json"))["phases"]):
    assert phase["plan"]["micro_batch_size"] == 16 or n > 0
    json.dump(phase["plan"], open(f"phase-{n}.json", "w"))'
expect 0 run phase-0.json --steps 5 --checkpoint state -q -o joined.json
expect 0 run phase-1.json --steps 8 --checkpoint state --resume -q -o joined.json
expect 0 run phase-2.json --steps 16 --checkpoint state --resume -q -o joined.json
expect 0 run plan.json -q -o run.json
same run.json joined.json
expect 0 check run.json

# Every reader supports them.
expect 0 estimate plan.json
expect_output "phase   batch  learning rate" "all     16 steps, 960 samples"
expect 0 simulate plan.json
expect_output "all     16 steps"
expect 0 estimate plan.json --json
$python - <<'END' && pass || fail "the time is not the sum of the phases' steps"
import json
found = json.load(open("out"))
assert len(found["phases"]) == 3 and [p["steps"] for p in found["phases"]] == [5, 3, 8]
sum_s = sum(p["steps"] * p["step_time_s"] for p in found["phases"])
assert abs(found["time_s"] - sum_s) < 1e-9 * sum_s
END
expect 0 compare plan.json run.json
expect_output "phase 3: 8 steps in batches of 32" "Step time   predicted"
expect 0 run plan.json --backend replay -q -o replay.json
# A target ends the phases.
expect 0 run plan.json --until loss=100 --evaluate-every 2 -q -o short.json
$python -c 'import json
assert [len(p["losses"]) for p in json.load(open("short.json"))["phases"]] == [2]' && pass || fail "phases go on behind the target"

# Images of other sizes: the same parameters, each phase's samples and costs at its size.
cat >images-net.json <<'END'
{"schema": "trainyard.zoo/1", "name": "small-resnet", "family": "residual", "source": "a test", "input": [3, 24, 24], "sample_bytes": 1729,
 "block": "basic", "blocks": [1, 1], "width": 4, "classes": 3, "dataset": "synthetic", "global_batch": 12,
 "optimizer": {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0}}
END
cat >sizes.json <<'END'
{"schema": "trainyard.phases/1", "phases": [{"steps": 4, "image_size": 16}, {"steps": 3}, {"steps": 3, "image_size": [32, 40], "global_batch": 24}]}
END
expect 0 check sizes.json
expect 0 plan -w images-net.json -c local:2 --fix $fix,micro_batch=3 --no-simulate --phases sizes.json -q -o sizes-plan.json
expect_output "phase   batch     images  learning rate" "    1      12      16x16 " "    2      12      24x24 " "    3      24      32x40 "
expect 0 check sizes-plan.json
for command in estimate simulate; do
    expect 0 $command sizes-plan.json --json
    $python - <<'END' && pass || fail "$command: not each phase at its own size"
import json
phases = json.load(open("out"))["phases"]
assert [p["image_size"] for p in phases] == [[16, 16], [24, 24], [32, 40]], phases
assert phases[0]["step_time_s"] < phases[1]["step_time_s"] < phases[2]["step_time_s"], phases
END
done
# A phase's plan is that of the model at its size.
expect 0 plan -w "images-net.json image_size=32x40" -c local:2 --global-batch 24 --fix $fix,micro_batch=3 --no-simulate -q -o alone.json
$python - <<'END' && pass || fail "another network than that of the size alone"
import json
phases = [p["plan"] for p in json.load(open("sizes-plan.json"))["phases"]]
alone = json.load(open("alone.json"))
assert phases[2]["workload"] == alone["workload"] and phases[2]["workload_digest"] == alone["workload_digest"]
assert phases[0]["workload"]["input_shape"] == [3, 16, 16] and phases[1]["workload"]["input_shape"] == [3, 24, 24]
for n, plan in enumerate(phases):
    json.dump(plan, open(f"size-{n}.json", "w"))
END
# Three classes of 12 images, each with its own side length.
$python - <<'END'
import os, random, struct, zlib
numbers = random.Random(3)
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
for c, colour in enumerate(((200, 60, 60), (60, 200, 60), (60, 60, 200))):
    os.makedirs(f"images/class{c}")
    for i in range(12):
        side = 20 + i
        rows = b"".join(b"\0" + bytes(min(255, max(0, v + numbers.randint(-40, 40))) for _ in range(side) for v in colour) for _ in range(side))
        open(f"images/class{c}/{i:02}.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
                                                     chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
END
for data in "" "--data images"; do
    rm -rf sized-state
    expect 0 run size-0.json --steps 4 --checkpoint sized-state $data -q -o sized-joined.json
    expect 0 run size-1.json --steps 7 --checkpoint sized-state --resume $data -q -o sized-joined.json
    expect 0 run size-2.json --steps 10 --checkpoint sized-state --resume $data -q -o sized-joined.json
    expect 0 run sizes-plan.json $data --save-weights sized.safetensors -q -o sized-run.json
    same sized-run.json sized-joined.json
    expect 0 run size-1.json --steps 10 $data -q -o one-size-run.json
    $python -c 'import json
sized, one = json.load(open("sized-run.json"))["phases"][-1]["losses"], json.load(open("one-size-run.json"))["losses"]
assert all(a != b for a, b in zip(sized[:4] + sized[7:], one[:4] + one[7:]))' && pass || fail "sizes make no difference"
done
expect 0 compare sizes-plan.json sized-run.json
expect_output "phase 3: 3 steps in batches of 24, images of 32x40"
expect 0 run sizes-plan.json --backend replay -q -o sized-replay.json
expect 0 report sizes-plan.json -o sized.html
expect 1 export sizes-plan.json --to slurm
expect_error_line "--to slurm: sizes-plan.json has the plans of several phases, which 'trainyard run' trains; expected one plan"
report_holds sized.html 'docs["phased-plan"]["phases"][2]["plan"]["workload"]["input_shape"][1:] == [32, 40]'
page_says sized.html "24|32x40|"
# Weights of one size continue training at another.
expect 0 run size-2.json --steps 4 --init sized.safetensors -q -o gone-on.json
# A data set with one size supports no other.
sed 's/"dataset": "synthetic"/"dataset": "fashion-mnist"/; s/"input": .3, 24, 24./"input": [1, 28, 28]/; s/"classes": 3/"classes": 10/' images-net.json >mnist-net.json
printf '{"schema": "trainyard.phases/1", "phases": [{"steps": 2}, {"steps": 2, "image_size": 32}]}' >mnist-sizes.json
expect 0 plan -w mnist-net.json -c local:2 --fix $fix,micro_batch=3 --no-simulate --phases mnist-sizes.json -q -o mnist-plan.json
expect 3 run mnist-plan.json -q -o mnist-run.json
grep -q "found images of 28 x 28, expected 1024 pixels" err && pass || fail "no word of the data set's size: $(cat err)"

# The progress to a target: of one phase, and of several with one shape, as of their plan.
cat >law.json <<'END'
{"schema": "trainyard.calibration/1", "temperature_cost": {"low": 0.2, "expected": 0.4, "high": 0.8}, "convergence":
 {"name": "mine", "target": "accuracy=0.3", "source": "made up", "noise_scale_samples": 300, "minimum_samples": 4000, "log_deviation": 0.1,
  "smallest_batch": 64, "largest_batch": 256, "noise_growth": 2, "scaling_rule": "linear", "learning_rate": 0.05, "batch": 128}}
END
way() {
    printf '{"schema": "trainyard.phases/1", "phases": [%s]}' "$1" >way.json
    expect 0 plan -w mlp -c local:2 --fix $fix --no-simulate --task law.json --phases way.json -q -o way-plan.json
    cp out way.txt
    expect 0 score way-plan.json --task law.json --json
    cp out way-score.json
    $python -c 'import json
json.dump(json.load(open("way-plan.json"))["phases"][0]["plan"], open("way-first.json", "w"))'
    expect 0 score way-first.json --task law.json --json
    cp out way-plain.json
}
as_plain() {
    $python - <<'END' && pass || fail "$1: not what the plan alone says"
import json
whole, plain = json.load(open("way-score.json")), json.load(open("way-plain.json"))
def near(a, b): return abs(a - b) <= 1e-9 * abs(b)
assert near(whole["steps_to_target"], plain["steps_to_target"]), (whole, plain)
for key in ("samples_to_target", "time_to_target_s"):
    assert all(near(whole[key][bound], plain[key][bound]) for bound in ("low", "expected", "high")), key
END
}
way '{"steps": 1000}'
as_plain "one phase"
expect 0 check way-score.json
expect 0 report way-plan.json --task law.json -o way.html
report_holds way.html 'docs["phased-score"]["is_reached"] and round(docs["phased-score"]["steps_to_target"]) == 45'
page_says way.html "Train mlp on local:2 in 1 phase: " "The target is met in phase 1, after 45 steps in all."
grep -q '^target  in phase 1, after 45 of its steps and 45 in all: ' way.txt && pass || fail "not $(grep '^target' way.txt)"
way '{"steps": 20}, {"steps": 10}, {"steps": 1000}'
as_plain "three phases"
grep -q '^target  in phase 3, after 15 of its steps and 45 in all: ' way.txt && pass || fail "not $(grep '^target' way.txt)"
way '{"steps": 10}'
as_plain "a phase that is too short"
grep -q '^target  not reached: 22.4 % of the way (19.7 to 25.5); 35 more steps of phase 1 would' way.txt && pass || fail "not $(grep '^target' way.txt)"
way '{"steps": 20, "learning_rate": 0.02}'
as_plain "another rate"
way '{"steps": 20, "momentum": 0.8}'
as_plain "another momentum"
# Batch sizes and learning rates by hand: finished phases count, the cost of noise is the last
# phase's.
way '{"steps": 20, "global_batch": 64}, {"steps": 10, "global_batch": 256, "learning_rate": 0.01}, {"steps": 1000, "momentum": 0.8}'
$python - <<'END' && pass || fail "not the law by hand"
import json, math
N, E, B0, r0, c, m0 = 300, 4000, 128, 0.05, 0.4, 0.9
def phase(batch, rate=None, momentum=m0):
    rule = r0 * (1 + N / B0) / (1 + N / batch)
    share = (rate or rule) * (1 - m0) / (1 - momentum) / rule
    noise = math.exp(c * (share * (B0 + N) / (batch + N) - 1))
    return E * (1 / batch + 1 / N) * noise / share, noise
phases, length = [(20, *phase(64)), (10, *phase(256, 0.01)), (1000, *phase(128, momentum=0.8))], 0
gone = sum(n * noise / steps for n, steps, noise in phases[:2])
last = (phases[2][2] - gone) * phases[2][1] / phases[2][2]
found = json.load(open("way-score.json"))
assert abs(found["steps_to_target"] - 30 - last) < 1e-6 and found["last_phase"] == 3 and found["is_reached"], (found, last)
for mine, own in zip(found["phases"], phases):
    assert abs(mine["steps_to_target"] / own[1] - 1) < 1e-9
    assert abs(mine["share_of_way"] / (own[0] / own[1] * own[2] / phases[2][2]) - 1) < 1e-9
END
expect 0 score way-plan.json --task law.json
expect_output "alone to the target" "target  in phase 3, after " "convergence: learning rate 0.01 is not the rule's"
expect 0 score way-plan.json
expect_output "no task: time to target"
expect 0 run way-plan.json --until accuracy=0.3 --evaluate-every 10 -q -o way-run.json
expect 0 compare way-plan.json way-run.json --task law.json
expect_output "Target      accuracy=0.3" "steps     predicted " "measured"
expect 0 compare plan.json run.json
expect 2 compare plan.json run.json --task law.json
expect_error_line "--task: the run had no target, expected one made with --until"
expect 3 score way-plan.json --task nosuch
# Images of another size count as many samples as those of the task.
printf '{"schema": "trainyard.phases/1", "phases": [{"steps": 100, "image_size": 128}, {"steps": 100}]}' >sizes-of-resnet.json
expect 0 plan -w resnet50 -c "2x p3.16xlarge" --no-simulate --phases sizes-of-resnet.json -q -o resnet-phases.json
expect_output "target  not reached: "
expect 0 score resnet-phases.json
expect_output "a sample counts the same at every size of its image" "money" "energy"
expect 0 report resnet-phases.json -o resnet.html
report_holds resnet.html 'not docs["phased-score"]["is_reached"] and docs["phased-score"]["last_phase"] == 2'
page_says resnet.html " of the way to the target: " " more steps of phase 2 would reach it."

# Interrupted in any phase, a training resumes to the same result.
cat >stopped.json <<'END'
{"schema": "trainyard.phases/1", "phases": [{"steps": 6, "global_batch": 64}, {"steps": 400, "global_batch": 32, "learning_rate": 0.01}, {"steps": 5, "global_batch": 128}]}
END
expect 0 plan -w mlp -c local:2 --fix $fix,micro_batch=8 --no-simulate --phases stopped.json -q -o stopped-plan.json
expect 0 run stopped-plan.json --checkpoint whole-state -q -o unstopped.json
same_phases() {
    $python - "$1" unstopped.json <<'END' && pass || fail "other losses: $1"
import json, sys
found, expected = (json.load(open(path))["phases"] for path in sys.argv[1:])
assert len(found) == len(expected) == 3
assert [p["losses"] for p in found] == [p["losses"] for p in expected]
assert [p["plan_digest"] for p in found] == [p["plan_digest"] for p in expected]
END
}
# Truncated at its end: the checkpoint of the first phase, of the second half, and all.
rm -rf stopped-state
"$TRAINYARD" run stopped-plan.json --checkpoint stopped-state --checkpoint-every 10 -q -o part.json >out 2>err </dev/null &
run=$!
for wait in $(seq 600); do
    if grep -qs '"step": [1-9][0-9]' stopped-state/latest.json; then break; fi
    sleep 0.02
done
kill -INT $run
wait $run
case $? in 0) fail "the run was not stopped" ;; *) pass ;; esac
$python -c 'import json
steps = json.load(open("stopped-state/latest.json"))["step"]
assert 6 < steps < 406, steps
part = json.load(open("part.json"))["phases"]
assert len(part) == 2 and len(part[0]["losses"]) == 6 and len(part[1]["losses"]) == steps, part' && pass || fail "not stopped in the second phase"
cp -r stopped-state stopped-copy
expect 0 run stopped-plan.json --checkpoint stopped-state --resume -q -o resumed.json
same_phases resumed.json
expect 0 check resumed.json
expect 0 compare stopped-plan.json resumed.json
# All was done: the same result again.
expect 0 run stopped-plan.json --checkpoint stopped-state --resume -q -o again.json
same_phases again.json
# In the first phase, and after it before its result was saved.
expect 0 plan -w mlp -c local:2 --fix $fix,micro_batch=8 --no-simulate --global-batch 64 -q -o first-phase.json
for steps in 3 6; do
    rm -rf early-state
    $python -c 'import json
json.dump(json.load(open("stopped-plan.json"))["phases"][0]["plan"], open("first-phase.json", "w"))'
    expect 0 run first-phase.json --steps $steps --checkpoint early-state -q -o early.json
    expect 0 run stopped-plan.json --checkpoint early-state --resume -q -o early-resumed.json
    same_phases early-resumed.json
done
# A target that was met counts as met.
expect 0 run stopped-plan.json --until loss=100 --evaluate-every 2 --checkpoint met-state -q -o met.json
expect 0 run stopped-plan.json --until loss=100 --evaluate-every 2 --checkpoint met-state --resume -q -o met-again.json
$python -c 'import json
a, b = (json.load(open(n))["phases"] for n in ("met.json", "met-again.json"))
assert len(a) == len(b) == 1 and a[0]["losses"] == b[0]["losses"]' && pass || fail "phases go on behind the target that was met"
expect 2 run stopped-plan.json --resume
expect_error_line "--resume: found without --checkpoint"
expect 1 run stopped-plan.json --checkpoint no-state --resume -q
expect_error_line "there is no checkpoint to resume from"
expect 1 run stopped-plan.json --checkpoint stopped-state -q
expect_error_line "found a checkpoint of an earlier run, expected none"
cp stopped-copy/phase-1.json kept.json
sed 's/"plan_digest": "./"plan_digest": "f/' kept.json >stopped-copy/phase-1.json
cmp -s kept.json stopped-copy/phase-1.json && sed 's/"plan_digest": "./"plan_digest": "0/' kept.json >stopped-copy/phase-1.json
expect 3 run stopped-plan.json --checkpoint stopped-copy --resume -q
expect_error_line "stopped-copy/phase-1.json:/plan_digest: found that of another plan"

# Casts have no state between steps, so other buckets may follow.
expect 0 plan -w lenet -c "2x p100-server" --fix compression=fp16 --no-simulate --phases others.json -q -o cast-plan.json
expect_output "gradients fp16"
expect 0 report cast-plan.json -o cast.html

# Results before a failure are kept.
printf '{"schema": "trainyard.phases/1", "phases": [{"steps": 3}, {"steps": 30, "learning_rate": 100000}]}' >wild.json
expect 0 plan -w mlp -c local:2 --fix $fix --no-simulate --phases wild.json -q -o wild-plan.json
expect 1 run wild-plan.json -q -o wild-run.json
expect_output "phase 1"
expect 0 check wild-run.json
$python -c 'import json
assert [len(p["losses"]) for p in json.load(open("wild-run.json"))["phases"]][0] == 3' && pass || fail "the first phase is lost"

# Pins of one phase only; state of ranks stays with them.
cat >zero.json <<'END'
{"schema": "trainyard.phases/1", "phases": [{"steps": 2, "global_batch": 64, "fix": "zero=1"}, {"steps": 2, "global_batch": 128}]}
END
expect 0 plan -w mlp -c local:2 --fix pp=1,dp=2,compression=none --no-simulate --phases zero.json -q -o zero-plan.json
expect 0 run zero-plan.json -q -o zero-run.json
sed 's/"global_batch": 128/"global_batch": 66/' zero.json >odd.json
expect 2 plan -w mlp -c local:2 --fix pp=1,dp=2,compression=none,micro_batch=8 --no-simulate --phases odd.json -q
expect_error_line "phase 2: "

sed 's/"global_batch": 128/"fix": "micro_batch=16"/' zero.json >pinned.json
expect 2 plan -w mlp -c local:2 --fix pp=1,dp=2,compression=none --no-simulate --phases pinned.json -q
expect_error_line "phase 2: found " "a plan that continues from the state of the first phase" "its replicas, buckets and number"
printf '{"schema": "trainyard.phases/1", "phases": [{"steps": 2}, {"steps": 2, "fix": "pp=2,dp=1"}]}' >cut.json
expect 2 plan -w mlp -c local:2 --fix compression=none,pp=1,dp=2 --no-simulate --phases cut.json -q
expect_error_line "phase 2: "
# Nor are they read from a file of other plans.
$python -c 'import json
d, e = json.load(open("plan.json")), json.load(open("zero-plan.json"))
d["phases"][1] = e["phases"][0]
json.dump(d, open("mixed.json", "w"))'
expect 3 estimate mixed.json
expect_error_line "mixed.json:/phases/1" "expected a plan that continues from the state of the first phase"

# Errors in them.
wrong() {
    printf '{"schema": "trainyard.phases/1", %s}' "$1" >wrong.json
    shift
    expect "$1" plan -w "$2" -c "1x p100-server" --no-simulate --phases wrong.json -q
    shift 2
    expect_error_line "$@"
}
wrong '"phases": []' 3 mlp "wrong.json:/phases"
wrong '"phases": [{"global_batch": 64}]' 3 mlp "wrong.json:/phases/0" "either steps or epochs"
wrong '"phases": [{"steps": 1, "epochs": 2}]' 3 mlp "either steps or epochs"
wrong '"phases": [{"epochs": 2}]' 3 mlp "expected steps, or the file's samples beside epochs"
wrong '"phases": [{"steps": 0}]' 3 mlp "wrong.json:/phases/0/steps"
wrong '"phases": [{"steps": 1, "momentum": 1}]' 3 mlp "wrong.json:/phases/0/momentum"
wrong '"phases": [{"steps": 1, "learning_rate": 0}]' 3 mlp "wrong.json:/phases/0/learning_rate"
wrong '"phases": [{"steps": 1, "batch": 64}]' 3 mlp "batch"
wrong '"phases": [{"steps": 1, "image_size": 0}]' 3 resnet50 "wrong.json:/phases/0/image_size"
wrong '"phases": [{"steps": 1, "image_size": [128]}]' 3 resnet50 "wrong.json:/phases/0/image_size"
wrong '"phases": [{"steps": 1, "image_size": [128, 70000]}]' 3 resnet50 "wrong.json:/phases/0/image_size/1"
wrong '"phases": [{"steps": 1}, {"steps": 1, "image_size": 128}]' 2 vgg16 "phase 2: image_size 128x128: layer linear1: found linear input 8192, expected a last dimension of in_features 25088"
wrong '"phases": [{"steps": 1, "image_size": 128}]' 2 gpt-tiny "phase 1: image_size: found samples of gpt-tiny that are not images"
wrong '"phases": [{"steps": 1}, {"steps": 1, "fix": "nonsense=1"}]' 2 mlp "phase 2: " "nonsense"
wrong '"phases": [{"steps": 1, "momentum": 0}]' 2 mlp "phase 1: momentum: found 0, expected one above 0, as mlp has it"
wrong '"phases": [{"steps": 1, "momentum": 0.5}]' 2 gpt-tiny "phase 1: momentum: found 0.5, expected none: adamw has betas"
wrong '"samples": 10, "phases": [{"epochs": 1}]' 2 mlp "phase 1: found 1 epochs of 10 samples"
for words in "--steps 5" "--metrics m"; do
    expect 2 run plan.json $words
    expect_error_line "found with a plan of several phases"
done
expect 2 estimate plan.json --trace t.json
expect_error_line "--trace: found with a plan of several phases"
# A report has a row for each.
expect 0 report plan.json -o report.html
report_holds report.html 'len(docs["phased-plan"]["phases"]) == 3 and "time_to_target_s" not in docs["phased-score"] and "layers" not in docs["phased-plan"]["phases"][0]["plan"]["workload"]'
page_says report.html " in 3 phases: " "samples/s of phase 3" "Phases of the training" "2|128|0.1|0.5|3|"
finish
