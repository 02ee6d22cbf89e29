#!/bin/sh
# Measurements of other sources: scored, skipped with reasons, refused with a pointer.
. "$(dirname "$0")/lib.sh"

made="$scratch/made"
mkdir "$made"
cat >"$made/law.json" <<'EOF'
{"schema": 1, "family": "law", "count": 4, "records": [
 {"id": "law/a", "kind": "convergence", "source": {"work": "made"}, "confidence": "read", "model": {"name": "m"}, "batch": {"global": 100}, "measured": {"metric": "median_to_converge", "value": 1100, "unit": "samples"}},
 {"id": "law/b", "kind": "convergence", "source": {"work": "made"}, "confidence": "read", "model": {"name": "m"}, "batch": {"global": 500}, "measured": {"metric": "median_to_converge", "value": 1500, "unit": "samples"}},
 {"id": "law/c", "kind": "convergence", "source": {"work": "made"}, "confidence": "read", "model": {"name": "m"}, "batch": {"global": 2000}, "measured": {"metric": "median_to_converge", "value": 3000, "unit": "samples"}},
 {"id": "law/d", "kind": "accuracy", "source": {"work": "made"}, "confidence": "recalled", "note of mine": 1, "measured": {"metric": "top1", "value": 76, "unit": "%"}}]}
EOF
# A file of evidence: how often prediction intervals hold.
expect 0 validate "$SOURCE/study/evidence/rows.json"
expect_output "left out" "source    mixture" "device    all"
printf '{"schema": "trainyard.evidence/1", "about": "made"}' >"$scratch/rows.json"
expect 3 validate "$scratch/rows.json"
expect 0 validate "$made/law.json"
expect_output law "noise-scale-law" "skipped 1: no predictor for accuracy"
expect 0 validate "$made/law.json" --json
expect_output '"schema": "trainyard.validation/1"' '"source": "law"' '"rows": 4' '"fitted_rows": 2' \
    '"skipped_rows": 1' '"predicted_rows": 1' '"mean_error"' '"median_error"' '"p90_error"' '"pair_order"' \
    '"mean_regret"'
cp "$scratch/out" "$scratch/asked"
expect_output '"calibrate"' '"100:1100samples*1,2000:3000samples*1"' '"answer_at": "/to_target/expected"'
if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/asked" 1 >"$scratch/out"; then
    pass
else
    fail "commands of rows have other answers: $(cat "$scratch/out")"
fi
expect 0 validate "$made"
expect_output law
expect_only law.json

sed 's/"value": 1500/"value": "1500"/' "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect_error_line "bad.json:/records/1/measured/value" '"1500"'
sed 's/"count": 4/"count": 5/' "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect_error_line "bad.json:/records" "5"
sed 's,law/b,law/a,' "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect_error_line "law/a"
head -c 300 "$made/law.json" >"$scratch/bad.json"
expect 3 validate "$scratch/bad.json"
expect 3 validate "$scratch/nothing.json"
expect_error_line nothing.json
mkdir "$scratch/empty"
expect 3 validate "$scratch/empty"
expect_error_line "no file whose name ends in .json"
expect 2 validate

# The score uses the answer of each row's command, typed by hand.
cat >"$made/asked.json" <<'EOF'
{"schema": 1, "family": "asked", "count": 4, "records": [
 {"id": "asked/c", "kind": "collective", "source": {"work": "made"}, "confidence": "read", "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 16, "gpus_per_node": 8, "node": "AWS p4de.24xlarge"}, "collective": {"op": "all_gather", "bytes": 67108864}, "measured": {"metric": "time", "value": 1500, "unit": "us"}},
 {"id": "asked/d", "kind": "collective", "source": {"work": "made"}, "confidence": "read", "cluster": {"gpu": "H200-SXM", "gpus": 5, "gpus_per_node": 8}, "collective": {"op": "all_reduce", "bytes": 8589934592, "algorithm": "NVLS"}, "measured": {"metric": "bus_bandwidth", "value": 400, "unit": "GB/s"}},
 {"id": "asked/a", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "GPT", "family": "gpt", "layers": 12, "hidden": 1024, "heads": 16, "seq": 1024, "vocab": 51200}, "batch": {"global": 16, "micro": 2}, "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 8, "gpus_per_node": 8, "intra_node": {"GBps_per_gpu_per_direction": 300}}, "parallel": {"dp": 2, "tp": 2, "pp": 2, "recompute": "full", "zero": 0}, "measured": {"metric": "iteration_time", "value": 0.5, "unit": "s"}},
 {"id": "asked/b", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "GPT", "family": "gpt", "layers": 24, "hidden": 2048, "heads": 16, "seq": 2048}, "batch": {"global": 64, "micro": 1}, "cluster": {"gpu": "H100-SXM", "gpus": 16, "gpus_per_node": 8, "intra_node": {"GBps_per_gpu_per_direction": 450}, "inter_node": {"GBps_per_node": 400}}, "parallel": {"dp": 16, "zero": 1}, "measured": {"metric": "tokens_per_s_per_gpu", "value": 15000, "unit": "tokens/s"}}]}
EOF
expect 0 validate "$made/asked.json" --json
expect_output '"predictor": "language-model"' '"command"' '"--stack"' '"megatron-2021"' '"megatron"' \
    "a vocabulary of 51,200" '"predicted_step_time_s"' '"predicted_rows": 4' '"predictor": "collective"' \
    '"/rows/0/time_s"' '"/rows/0/bus_bandwidth_bytes_per_s"' '"NVLS"'
cp "$scratch/out" "$scratch/asked"
if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/asked" 1 >"$scratch/out"; then
    pass
else
    fail "commands of rows have other answers: $(cat "$scratch/out")"
fi
# Details that the source omits: sizes by the model's name, encoders, links by the kind of device,
# implied sharding.
cat >"$made/named.json" <<'EOF'
{"schema": 1, "family": "named", "count": 5, "records": [
 {"id": "deep-learning-examples/bert", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "BERT-large", "family": "bert", "layers": 24, "hidden": 1024, "heads": 16, "vocab": 30522, "seq": 128, "dtype": "amp-fp16"}, "batch": {"per_gpu_micro": 60, "grad_accum": 4}, "cluster": {"gpu": "V100-SXM3-32GB", "gpus": 32, "gpus_per_node": 16}, "parallel": {"dp": 32}, "measured": {"metric": "sequences_per_s", "value": 6000, "unit": "sequences/s"}},
 {"id": "jax-toolbox/t5", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "T5-v1.1-large", "family": "t5", "dtype": "bf16"}, "batch": {"per_gpu": 32}, "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 16, "gpus_per_node": 8}, "parallel": {"tp": 1}, "measured": {"metric": "sequences_per_s", "value": 1200, "unit": "sequences/s"}},
 {"id": "tpu-recipes/llama", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "Llama3.1-8B", "family": "gpt", "dtype": "bf16"}, "batch": {"tokens": 786432}, "cluster": {"gpu": "TPU v6e", "gpus": 32}, "measured": {"metric": "iteration_time", "value": 3.5, "unit": "s"}},
 {"id": "bigscience-v100/sharded", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "GPT 52B", "family": "gpt", "seq": 1024, "vocab": 50257, "dtype": "fp16", "size_label": "52B"}, "batch": {"global": 256, "micro": 4}, "cluster": {"gpu": "V100-SXM2-32GB", "gpus": 64, "gpus_per_node": 4}, "parallel": {"tp": 1, "pp": 1}, "measured": {"metric": "iteration_time", "value": 60, "unit": "s"}},
 {"id": "mlperf-training/llama", "kind": "time-to-train", "source": {"work": "made"}, "confidence": "read", "model": {"name": "Llama-3.1-405B", "family": "gpt", "layers": 126, "hidden": 16384, "seq": 8192, "dtype": "bf16"}, "batch": {"global": 448, "micro": 1, "grad_accum": 112}, "cluster": {"gpu": "Blackwell GPU (GB200)", "gpus": 256, "gpus_per_node": 4}, "parallel": {"tp": 4, "pp": 8, "cp": 2, "dp": 4, "interleave": 8}, "measured": {"metric": "time_to_train", "value": 206, "unit": "min"}, "also_measured": [{"metric": "steps_to_target_derived", "value": 618, "unit": "steps"}]}]}
EOF
expect 0 validate "$made/named.json" --json
expect_output '"predicted_rows": 4' '"fitted_rows": 1' '"encoder blocks=24 features=1024' 'encoder_decoder blocks=24' '"llama-3.1-8b sequence=8192"' \
    '"mesh:4x8 @tpu-v6e ici-v6e"' '"maxtext"' '"deepspeed"' 'blocks recomputed, the fastest' 'ZeRO 3' \
    '"host:4 gpu:64 @gb200 nvlink5 ndr400"' 'the measured number of steps, evaluation not counted'
cp "$scratch/out" "$scratch/asked"
if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/asked" 1 >"$scratch/out"; then
    pass
else
    fail "commands of rows have other answers: $(cat "$scratch/out")"
fi
# Image models on more devices: the time of one device is a constant of the framework that the
# command names.
cat >"$made/images.json" <<'EOF'
{"schema": 1, "family": "images", "count": 3, "records": [
 {"id": "images/one", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50", "family": "cnn", "dtype": "fp32"}, "batch": {"global": 64, "per_gpu": 64}, "cluster": {"gpu": "P100-SXM2-16GB", "gpus": 1, "gpus_per_node": 1, "node": "DGX-1"}, "measured": {"metric": "images_per_s", "value": 180, "unit": "images/s"}},
 {"id": "images/all", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50", "family": "cnn", "dtype": "fp32"}, "batch": {"global": 512, "per_gpu": 64}, "cluster": {"gpu": "P100-SXM2-16GB", "gpus": 8, "gpus_per_node": 8, "node": "DGX-1"}, "parallel": {"dp": 8, "update": "replicated-nccl"}, "measured": {"metric": "images_per_s", "value": 1400, "unit": "images/s"}},
 {"id": "images/server", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50", "family": "cnn", "dtype": "fp32"}, "batch": {"global": 512, "per_gpu": 64}, "cluster": {"gpu": "P100-SXM2-16GB", "gpus": 8, "gpus_per_node": 8, "node": "DGX-1"}, "parallel": {"dp": 8, "update": "parameter-server-cpu"}, "measured": {"metric": "images_per_s", "value": 1300, "unit": "images/s"}}]}
EOF
expect 0 validate "$made/images.json" --json
expect_output '"predictor": "data-parallel-absolute"' '"predictor": "data-parallel-scaling"' '"tensorflow-2017 compute_scale=' '"1x dgx1-p100"' 'devices=0-0' '"predicted_rows": 3'
cp "$scratch/out" "$scratch/asked"
grep '"images/all"' "$scratch/asked" >"$scratch/out"
awk -F '"predicted": ' '{ exit !($2 + 0 > 0.9 * 1440 && $2 + 0 < 1440) }' "$scratch/out" && pass || fail "8 devices: $(cat "$scratch/out"), not a little less than 8 times 180"
if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/asked" 1 >"$scratch/out"; then
    pass
else
    fail "commands of rows have other answers: $(cat "$scratch/out")"
fi
grep -q 'algorithm=parameter-server' "$scratch/asked" && pass || fail "servers are not asked for: $(cat "$scratch/asked")"
grep -q "asked 3 of 3 rows" "$scratch/out" && pass || fail "$(cat "$scratch/out")"
# A benchmark's times: runs on more devices of one kind, with another batch, from the run on the fewest.
cat >"$made/benchmark.json" <<'EOF'
{"schema": 1, "family": "benchmark", "count": 3, "records": [
 {"id": "benchmark/8", "kind": "time-to-train", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50 v1.5", "family": "cnn"}, "batch": {"global": 3264}, "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 8, "gpus_per_node": 8}, "measured": {"metric": "time_to_train", "value": 28.8, "unit": "min"}, "also_measured": [{"metric": "steps_to_target_derived", "value": 13737, "unit": "steps"}]},
 {"id": "benchmark/again", "kind": "time-to-train", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50 v1.5", "family": "cnn"}, "batch": {"global": 3264}, "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 8, "gpus_per_node": 8}, "measured": {"metric": "time_to_train", "value": 29, "unit": "min"}, "also_measured": [{"metric": "steps_to_target_derived", "value": 13737, "unit": "steps"}]},
 {"id": "benchmark/64", "kind": "time-to-train", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50 v1.5", "family": "cnn"}, "batch": {"global": 13056}, "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 64, "gpus_per_node": 8, "inter_node": {"network": "Compute: 8x ConnectX-6 IB HDR 200Gb/sec"}}, "measured": {"metric": "time_to_train", "value": 4.9, "unit": "min"}, "also_measured": [{"metric": "steps_to_target_derived", "value": 4417, "unit": "steps"}]}]}
EOF
expect 0 validate "$made/benchmark.json" --json
expect_output '"predicted_rows": 1' 'rates as in benchmark/8, the measured number of steps' 'runs again what others' 'the fewest devices of its series'
grep '"benchmark/64"' "$scratch/out" | awk -F '"predicted": ' '{ exit !($2 + 0 > 4 && $2 + 0 < 6) }' && pass || fail "64 devices: $(grep benchmark/64 "$scratch/out")"
# Models whose name only gives the size of the gradients, on more devices. Benchmark rows need at
# least half of the samples per device.
cat >"$made/series.json" <<'EOF'
{"schema": 1, "family": "series", "count": 5, "records": [
 {"id": "series/1", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "SpeechRecognition/Jasper", "family": "speech", "dtype": "amp-fp16"}, "batch": {"per_gpu_micro": 32}, "cluster": {"gpu": "V100-SXM3-32GB", "gpus": 1, "gpus_per_node": 1}, "parallel": {"dp": 1}, "measured": {"metric": "sequences_per_s", "value": 38, "unit": "sequences/s"}},
 {"id": "series/16", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "SpeechRecognition/Jasper", "family": "speech", "dtype": "amp-fp16"}, "batch": {"per_gpu_micro": 32}, "cluster": {"gpu": "V100-SXM3-32GB", "gpus": 16, "gpus_per_node": 16}, "parallel": {"dp": 16}, "measured": {"metric": "sequences_per_s", "value": 560, "unit": "sequences/s"}},
 {"id": "series/unknown", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "Nobody's", "family": "speech"}, "batch": {"per_gpu_micro": 32}, "cluster": {"gpu": "V100-SXM3-32GB", "gpus": 1}, "measured": {"metric": "sequences_per_s", "value": 38, "unit": "sequences/s"}},
 {"id": "series/b8", "kind": "time-to-train", "source": {"work": "made"}, "confidence": "read", "model": {"name": "3D U-Net", "family": "cnn-segmentation"}, "batch": {"global": 56}, "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 8, "gpus_per_node": 8}, "measured": {"metric": "time_to_train", "value": 23, "unit": "min"}, "also_measured": [{"metric": "steps_to_target_derived", "value": 6000, "unit": "steps"}]},
 {"id": "series/b800", "kind": "time-to-train", "source": {"work": "made"}, "confidence": "read", "model": {"name": "3D U-Net", "family": "cnn-segmentation"}, "batch": {"global": 800}, "cluster": {"gpu": "A100-SXM4-80GB", "gpus": 800, "gpus_per_node": 8, "inter_node": {"network": "IB HDR"}}, "measured": {"metric": "time_to_train", "value": 3, "unit": "min"}, "also_measured": [{"metric": "steps_to_target_derived", "value": 4800, "unit": "steps"}]}]}
EOF
expect 0 validate "$made/series.json" --json
expect_output '"predicted_rows": 1' '"predictor": "series"' 'work as in series/1, 333 M parameters' '"666000000"' \
    'fewest devices of its series' 'less than half of the samples a device'
cp "$scratch/out" "$scratch/asked"
# Sixteen devices have a little less than sixteen times the throughput of one.
grep '"series/16"' "$scratch/asked" | awk -F '"predicted": ' '{ exit !($2 + 0 > 0.85 * 608 && $2 + 0 < 608) }' && pass || fail "16 devices: $(grep series/16 "$scratch/asked")"
if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/asked" 1 >"$scratch/out"; then
    pass
else
    fail "commands of rows have other answers: $(cat "$scratch/out")"
fi
# The page of results: written, checked, and rejected after an error that grew, or a row or source
# that is missing.
page="$SOURCE/docs/results/validation.py"
"$TRAINYARD" validate "$made" --json >"$scratch/asked"
python3 "$page" write <"$scratch/asked" >"$scratch/page.md"
grep -q "^| data-parallel-scaling | benchmark | 1 | " "$scratch/page.md" && grep -q "^| 1 | no predictor for accuracy of what it measures | a training run: .* | law |" "$scratch/page.md" && pass || fail "$(cat "$scratch/page.md")"
mkdir "$scratch/stacks"
cp "$SOURCE"/planner/stacks/*.json "$scratch/stacks"
python3 "$page" stacks "$scratch/stacks" <"$scratch/asked"
if python3 "$page" check "$scratch/page.md" "$scratch/stacks" <"$scratch/asked" >"$scratch/out"; then pass; else fail "$(cat "$scratch/out")"; fi
# refuses SED WORDS: after this change of the page, the check fails with these words.
refuses() {
    sed "$1" "$scratch/page.md" >"$scratch/changed.md"
    if python3 "$page" check "$scratch/changed.md" "$scratch/stacks" <"$scratch/asked" >"$scratch/out"; then
        fail "nothing is worse than $1"
    elif grep -q "$2" "$scratch/out"; then
        pass
    else
        fail "$1: $(cat "$scratch/out")"
    fi
}
refuses 's/^\(| data-parallel-scaling | benchmark | 1 | \)[0-9.]*/\10.001/' "data-parallel-scaling of benchmark: mean_error is"
refuses 's/^| data-parallel-scaling | benchmark | 1 /| data-parallel-scaling | benchmark | 2 /' "1 rows, 2 are written"
refuses 's/^| data-parallel-scaling | benchmark /| data-parallel-scaling | other /' "no row is predicted"
refuses '/^| [a-z]/d' "found no row of a table"
# A reason without a known remedy.
sed 's/no predictor for accuracy of what it measures/nobody knows/' "$scratch/asked" >"$scratch/unknown"
if python3 "$page" check "$scratch/page.md" "$scratch/stacks" <"$scratch/unknown" >"$scratch/out"; then
    fail "a reason that nothing is said of passes"
elif grep -q "what a person could do: nobody knows" "$scratch/out"; then
    pass
else
    fail "$(cat "$scratch/out")"
fi
# The errors in a framework's file are the measured ones.
python3 - "$scratch/stacks/megatron.json" <<'END'
import pathlib
import sys

path = pathlib.Path(sys.argv[1])
text = path.read_text()
path.write_text(text[:-3] + ',\n  "judged": [\n    {"device": "h100", "rows": 1, "mean_error": 0}\n  ]\n}\n')
END
refuses 's/^//' "megatron.json: judged by other rows"

if [ -d "$SOURCE/../shared/data/measurements" ]; then
    expect 0 validate "$SOURCE/../shared/data/measurements" --json
    cp "$scratch/out" "$scratch/all"
    if python3 "$page" check "$SOURCE/docs/results/validation.md" "$SOURCE/planner/stacks" <"$scratch/all" >"$scratch/out"; then
        pass
    else
        fail "worse than docs/results/validation.md has it: $(cat "$scratch/out")"
    fi
    if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/all" 50 >"$scratch/out"; then
        pass
    else
        fail "commands of rows have other answers: $(cat "$scratch/out")"
    fi
else
    echo "skipped: no ../shared/data/measurements"
fi
finish
