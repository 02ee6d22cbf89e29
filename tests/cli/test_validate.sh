#!/bin/sh
# Measurements of others: scored, skipped with reasons, refused with a pointer.
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

# What is scored is what is answered: the commands of rows, typed.
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
# Image networks on more devices: what one device took is a constant of the stack that the command names; what the
# command line has no words for is predicted without one.
cat >"$made/images.json" <<'EOF'
{"schema": 1, "family": "images", "count": 3, "records": [
 {"id": "images/one", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50", "family": "cnn", "dtype": "fp32"}, "batch": {"global": 64, "per_gpu": 64}, "cluster": {"gpu": "P100-SXM2-16GB", "gpus": 1, "gpus_per_node": 1, "node": "DGX-1"}, "measured": {"metric": "images_per_s", "value": 180, "unit": "images/s"}},
 {"id": "images/all", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50", "family": "cnn", "dtype": "fp32"}, "batch": {"global": 512, "per_gpu": 64}, "cluster": {"gpu": "P100-SXM2-16GB", "gpus": 8, "gpus_per_node": 8, "node": "DGX-1"}, "parallel": {"dp": 8, "update": "replicated-nccl"}, "measured": {"metric": "images_per_s", "value": 1400, "unit": "images/s"}},
 {"id": "images/server", "kind": "training-speed", "source": {"work": "made"}, "confidence": "read", "model": {"name": "ResNet-50", "family": "cnn", "dtype": "fp32"}, "batch": {"global": 512, "per_gpu": 64}, "cluster": {"gpu": "P100-SXM2-16GB", "gpus": 8, "gpus_per_node": 8, "node": "DGX-1"}, "parallel": {"dp": 8, "update": "parameter-server-cpu"}, "measured": {"metric": "images_per_s", "value": 1300, "unit": "images/s"}}]}
EOF
expect 0 validate "$made/images.json" --json
expect_output '"predictor": "data-parallel-absolute"' '"predictor": "data-parallel-scaling"' '"tensorflow-2017 compute_scale=' '"host:1 gpu:1 @p100-sxm2' '"1x dgx1-p100"' '"predicted_rows": 3'
cp "$scratch/out" "$scratch/asked"
grep '"images/all"' "$scratch/asked" >"$scratch/out"
awk -F '"predicted": ' '{ exit !($2 + 0 > 0.9 * 1440 && $2 + 0 < 1440) }' "$scratch/out" && pass || fail "8 devices: $(cat "$scratch/out"), not a little less than 8 times 180"
if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/asked" 1 >"$scratch/out"; then
    pass
else
    fail "commands of rows have other answers: $(cat "$scratch/out")"
fi
grep -q "asked 2 of 2 rows" "$scratch/out" && pass || fail "$(cat "$scratch/out")"
if [ -d "$SOURCE/../shared/data/measurements" ]; then
    expect 0 validate "$SOURCE/../shared/data/measurements" --json
    cp "$scratch/out" "$scratch/all"
    if python3 "$SOURCE/tests/cli/ask_again.py" "$TRAINYARD" "$scratch/all" 50 >"$scratch/out"; then
        pass
    else
        fail "commands of rows have other answers: $(cat "$scratch/out")"
    fi
else
    echo "skipped: no ../shared/data/measurements"
fi
finish
