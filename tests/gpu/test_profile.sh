#!/bin/sh
# trainyard profile --backend cuda, end to end on the emulator: the content of the file, a plan that
# uses it, and the message without a GPU.
. "$SOURCE/tests/cli/lib.sh"
python=${PYTHON:-python3}
cd "$scratch" || exit 1
mkdir made

cat >net.json <<'ZOO'
{"schema": "trainyard.zoo/1", "name": "small", "family": "sequential", "source": "resnet18.json",
 "input": [1, 12, 12], "sample_bytes": 145, "dataset": "synthetic", "global_batch": 4,
 "optimizer": {"kind": "sgd", "learning_rate": 0.05, "momentum": 0.9, "weight_decay": 0},
 "layers": [{"kind": "conv2d", "out_channels": 4, "kernel": 3}, {"kind": "batch_norm"}, {"kind": "relu"},
  {"kind": "flatten"}, {"kind": "linear", "out_features": 16}, {"kind": "gelu"},
  {"kind": "linear", "out_features": 10}, {"kind": "softmax_cross_entropy"}]}
ZOO

# Without a GPU, or without the plugin, nothing is measured and nothing written.
if TRAINYARD_CUDA_PLUGIN=$PLUGIN "$TRAINYARD" profile -w net.json --backend cuda --micro-batches 2 -q -o made/none.json 2>err; then
    echo "there is a GPU here: no refusal to be seen"
    rm -f made/none.json
else
    if grep -q "GPU" err; then pass; else fail "no word of a GPU: $(cat err)"; fi
    expect_only
fi
if TRAINYARD_CUDA_PLUGIN=/nowhere.so "$TRAINYARD" profile -w net.json --backend cuda -q -o made/none.json 2>err; then
    fail "a plugin that is not there"
else
    if grep -q "the cuda backend cannot be loaded" err; then pass; else fail "$(cat err)"; fi
    expect_only
fi
expect 2 profile -w net.json --backend tpu
expect_error_line "--backend: found 'tpu', expected cpu or cuda"
expect 2 profile -w net.json --precision bf16
expect_error_line "the cpu backend computes in fp32; found 'bf16'"
expect 2 profile -w net.json --backend cuda --precision int4
expect_error_line "found 'int4', expected fp32, tf32, bf16 or fp16"

# With the rates of the catalogue, measured steps of a GPU: device, precision, workload, batch and
# seconds of the last day's runs.
"$python" - "$SOURCE/docs/results/gpu.json" >measured <<'PY'
import json, sys
day = [d for d in json.load(open(sys.argv[1])) if d.get("predictions")][-1]
for name, run in day["predictions"].items():
    used = day["benchmarks"][name]
    print(day["machine"]["planned_as"], used["precision"], name, used["batch"], run["summary"]["step_time_s"])
PY
while read -r device precision name batch seconds; do
    expect 0 plan -w "$name" -c "1x $device" --stack trainyard --precision "$precision" --global-batch "$batch" -q -o made/plan.json
    expect_output "Provenance  rates measured on NVIDIA"
    "$python" -c 'import json, sys
step = json.load(open("made/plan.json"))["prediction"]["step_time_s"]
sys.exit(abs(step / float(sys.argv[1]) - 1) > 0.2)' "$seconds" && pass || fail "$name: not within 20 % of $seconds s"
    rm -f made/plan.json
done <measured
[ -s measured ] && pass || fail "no measured run"

export TRAINYARD_CUDA_PLUGIN="$EMULATOR"
expect 0 profile -w net.json --backend cuda --precision bf16 --micro-batches 2,3 -q -o made/p.json
"$python" - made/p.json <<'CHECK' && pass || fail "the profile lacks something"
import json, sys
p = json.load(open(sys.argv[1]))
assert p["backend"] == "cuda" and p["precision"] == "bf16" and p["device"].startswith("emulated GPU, CUDA"), p["device"]
assert p["memory_bytes"] == 16 << 30 and p["peak_flop_per_s"] > 0 and p["memory_bandwidth_bytes_per_s"] > 0
assert p["instruction_overhead_s"] > 0 and p["concurrent_ranks"] == 1
kinds = {"conv2d", "batch_norm", "relu", "flatten", "linear", "gelu", "softmax_cross_entropy"}
rows = p["layer_times"]
assert {r["signature"].split()[0] for r in rows} == kinds and len(rows) == 2 * 8, rows
assert all("element_bytes=2" in r["signature"] for r in rows)
for row in rows:
    kind = row["signature"].split()[0]
    assert (row["forward_s"] > 0 and row["backward_s"] > 0) or kind in ("flatten", "relu"), row # this relu is part of the norm
    assert kind not in ("conv2d", "linear", "batch_norm") or row["weight_s"] > 0, row
    assert kind != "gelu" or (row["input_s"] > 0 and row["weight_s"] <= row["input_s"]), row
assert {r["elements"] for r in p["update_times"]} == {40, 8, 6416, 170, 6634}, p["update_times"]
assert {"fp16", "top-k"} <= {r["kind"] for r in p["codec_times"]}
assert max(r["elements"] for r in p["codec_times"]) == 65536 # the first size that holds all gradients
assert all(r["encode_s"] > 0 and r["decode_s"] > 0 for r in p["codec_times"])
assert p["collective_times"] == [] and p["transfer_times"] == []
CHECK
if "$python" -c "import jsonschema" 2>/dev/null; then
    if "$python" "$SOURCE/tests/cli/check_json.py" "$SOURCE/docs/schemas" made/p.json; then pass; else fail "the schema differs"; fi
fi

# Algorithms were tried and the fastest recorded, for products and convolutions; later stages read
# the record.
rm -rf "$XDG_CACHE_HOME"/trainyard/cuda-*
export TRAINYARD_EMULATED_ALGORITHMS=1
expect 0 profile -w net.json --backend cuda --micro-batches 2 -q -o made/q.json
rm -f made/q.json
noted=$(ls "$XDG_CACHE_HOME"/trainyard/cuda-emulated-GPU-*.txt)
# The size of the square products that measure the peak depends on the load of the host.
of_net() { sed '/ \([0-9]*\) x \1 x \1, /d' "$noted"; }
# For convolutions in fp32 the stand-in's tenth and eleventh choices are valid; the latter is
# faster.
grep -q '^product fp32 .* = 1$' "$noted" && grep -q '^cudnn [0-9]* fp32 forward .* = 10$' "$noted" && pass || fail "$(cat "$noted")"
grep '^product' "$noted" | grep -q ' = [023]$' && fail "$(cat "$noted")" || pass
grep '^cudnn' "$noted" | grep -vq ' = 10$' && fail "$(cat "$noted")" || pass
of_net >noted.txt
least_s() { # of the profile's forward times of a kind
    "$python" -c 'import json, sys; print(min(int(r["forward_s"]) for r in json.load(open("made/q.json"))["layer_times"] if r["signature"].startswith(sys.argv[1])))' "$1"
}
expect 0 profile -w net.json --backend cuda --micro-batches 2 -q -o made/q.json
of_net | cmp -s - noted.txt && pass || fail "what was noted is measured again"
[ "$(least_s conv2d)" -lt 2000 ] && pass || fail "a convolution takes $(least_s conv2d) s"
[ "$(least_s linear)" -lt 1000 ] && pass || fail "a product takes $(least_s linear) s"
rm -f made/q.json
sed -i 's/^\(cudnn .* forward .*\) = 10$/\1 = 9/' "$noted" # which takes 3,000 s
expect 0 profile -w net.json --backend cuda --micro-batches 2 -q -o made/q.json
[ "$(least_s conv2d)" -ge 3000 ] && pass || fail "a convolution takes $(least_s conv2d) s, and not by what is noted"
rm -f made/q.json
sed -i 's/^\(product .*\) = 1$/\1 = 2/' "$noted" # which takes 2,000 s
expect 0 profile -w net.json --backend cuda --micro-batches 2 -q -o made/q.json
[ "$(least_s linear)" -ge 2000 ] && pass || fail "a product takes $(least_s linear) s, and not by what is noted"
rm -f made/q.json
sed -i 's/^\(product .*\) = 2$/\1 = 3/' "$noted" # which is refused: the first of the others takes 1,000 s
expect 0 profile -w net.json --backend cuda --micro-batches 2 -q -o made/q.json
[ "$(least_s linear)" -ge 1000 ] && [ "$(least_s linear)" -lt 2000 ] && pass || fail "a product takes $(least_s linear) s, and not by the next algorithm"
rm -f made/q.json "$noted"
unset TRAINYARD_EMULATED_ALGORITHMS

# Plans in that precision use the profile: if layers take a thousand times as long, so do steps,
# nearly. Plans in another one report that it has no times for them.
"$python" - made/p.json made/slow.json <<'SLOW'
import json, sys
p = json.load(open(sys.argv[1]))
for times in p["layer_times"]:
    for key in times:
        if key.endswith("_s"):
            times[key] *= 1000
json.dump(p, open(sys.argv[2], "w"))
SLOW
for profile in made/p.json made/slow.json; do
    expect 0 plan -w net.json -c "1x dgx-a100" --precision bf16 --fix dp=2 -p $profile --no-simulate -q -o made/plan.json
    "$python" -c 'import json; print(json.load(open("made/plan.json"))["prediction"]["step_time_s"])' >>steps
done
"$python" -c 'a, b = map(float, open("steps")); assert 100 * a < b < 1001 * a, (a, b)' && pass || fail "the plan does not rest on what was measured"
expect 3 plan -w net.json -c "1x dgx-a100" --precision fp32 -p made/p.json --no-simulate -q
expect_error_line "layer times" "none of a layer"

# Such a plan runs in its precision, with any number of stages; in floats it is another plan.
expect 0 plan -w net.json -c "1x dgx-a100" --precision bf16 --fix "pp=2,dp=1,devices=0-1" --no-simulate -q -o made/stages.json
export TRAINYARD_LINK=host TRAINYARD_EMULATED_DEVICES=2
expect 0 run made/stages.json --backend cuda --steps 2 -q -o made/run.json
"$python" - made/run.json <<'CHECK' && pass || fail "the run is not that of the plan"
import json, sys
r = json.load(open(sys.argv[1]))
assert len(r["losses"]) == 2 and ", bf16, " in r["versions"] and "link host" in r["versions"], r["versions"]
CHECK
expect 1 run made/stages.json --backend cuda --precision fp32 --steps 2 -q -o made/other.json
expect_error_line "the plan's numbers have 2 bytes: found precision fp32, expected that of the plan (bf16)"
finish
