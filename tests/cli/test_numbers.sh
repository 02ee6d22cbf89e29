#!/bin/sh
# Values that are not numbers: refused in our own files, unknown in those of other tools.
. "$(dirname "$0")/lib.sh"
corpus=$SOURCE/tests/fuzz/corpus
mkdir "$scratch/made" "$scratch/tried"
cd "$scratch" || exit 1

# A document of every schema that a command reads.
expect 0 workload export "$corpus/zoo/decoder.json" -o made/workload.json
expect 0 cluster export "host:2 gpu:2 @h100 nvlink4 ndr400" -o made/cluster.json
expect 0 plan -w lenet -c "1x p100-server" --fix pp=2,dp=2,schedule=pipedream,compression=top-k:0.01 --no-simulate -q -o made/plan.json
sed 's/8x14x14/1024/' "$corpus/profile/bench.json" >made/profile.json # of a layer of mlp
expect 0 plan -w mlp -c "1x p100-server" --fix pp=1,dp=4 --profile made/profile.json --no-simulate -q -o made/measured.json
expect 0 estimate made/plan.json --json
mv out made/estimate.json
expect 0 simulate made/measured.json --json
mv out made/simulation.json
expect 0 whatif -w lenet -c "2x p100-server" --vary hosts=1,2 --no-simulate -q -o made/whatif.json
expect 0 stack show megatron --json
mv out made/stack.json
cat >made/phases.json <<END
{"schema": "trainyard.phases/1", "samples": 640, "phases": [{"steps": 8, "global_batch": 64, "momentum": 0.5},
  {"epochs": 0.5, "learning_rate": 0.1, "image_size": 32}]}
END
cat >made/device.json <<END
{"schema": "trainyard.device/1", "name": "mine", "source": "us", "like": "h100-sxm", "memory_bytes": 1000000000,
  "peak_fp32_flop_per_s": 1e12, "memory_bandwidth_bytes_per_s": 1e12}
END
cat >made/calibration.json <<END
{"schema": "trainyard.calibration/1", "convergence": {"name": "mine", "target": "loss 2", "source": "measured",
  "noise_scale_samples": 500, "minimum_samples": 1e5, "log_deviation": 0.05, "smallest_batch": 8, "largest_batch": 64,
  "noise_growth": 2, "scaling_rule": "sqrt"}}
END
for file in made/*.json "$corpus/run/run.json" "$corpus/run/job_profile.json" \
    "$corpus/zoo/residual.json" "$corpus/zoo/decoder.json" "$corpus/zoo/sequential.json"; do
    expect 0 check "$file"
    set -- "$@" "$file"
done
if python3 "$SOURCE/tests/cli/odd_numbers.py" "$TRAINYARD" tried "$@" >said; then pass; else fail "$(cat said)"; fi

# Other programs write NaN for unknown values. A required value is still required.
cat >made/config.json <<END
{"model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 4,
  "vocab_size": 1000, "max_position_embeddings": 512, "num_key_value_heads": NaN, "rms_norm_eps": Infinity}
END
expect 0 check made/config.json
expect_output "made/config.json:/num_key_value_heads: NaN or Infinity, treated as unknown, as are 1 more numbers"
expect 0 workload show made/config.json --json
sed 's/"num_key_value_heads": NaN, //' made/config.json >made/without.json
grep '"parameters"' out >expected
expect 0 workload show made/without.json --json
grep '"parameters"' out | cmp -s - expected && pass || fail "NaN is not like nothing"
sed 's/"hidden_size": 256/"hidden_size": NaN/' made/config.json >made/needed.json
expect 3 workload show made/needed.json
expect_error_line "needed.json:/hidden_size" "expected"
cat >made/deepspeed.json <<END
{"train_batch_size": 64, "gradient_clipping": NaN, "zero_optimization": {"stage": 1}, "optimizer": {"type": "AdamW",
  "params": {"lr": Infinity}}}
END
expect 0 check made/deepspeed.json
expect_output "deepspeed.json:/gradient_clipping: NaN or Infinity, treated as unknown, as are 1 more numbers"
cat >made/trace.json <<END
{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 1, "dur": 5},
  {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 10, "dur": 5, "args": {"grid": NaN, "Group size": -Infinity}},
  {"ph": "X", "cat": "kernel", "name": "lost", "ts": 20, "dur": NaN}]}
END
expect 0 check made/trace.json
expect_output "2 numbers are NaN or Infinity: treated as unknown" "1 events without a name or a duration"

# ---- A plan that changed ----

# The digest of a plan file covers each of its numbers, including the measured times.
expect 0 estimate made/measured.json
cp out expected
for number in forward_s step_time_s seed latency_s value; do
    case $number in value) to=0.5 ;; *) to=4 ;; esac # a share, of what this stack was measured to reach
    sed "0,/\"$number\": [0-9.e-]*/s//\"$number\": $to/" made/measured.json >made/changed.json
    cmp -s made/measured.json made/changed.json && continue # it has none
    expect 3 estimate made/changed.json
    expect_error_line "made/changed.json:/" "digest" "found"
done
sed 's/, "image_size": 32//' made/phases.json >made/mlp-phases.json
expect 0 plan -w mlp -c "1x p100-server" --fix pp=1,dp=4,compression=none --phases made/mlp-phases.json --no-simulate -q -o made/phased.json
sed '0,/"steps": 8/s//"steps": 9/' made/phased.json >made/changed.json
expect 3 estimate made/changed.json
expect_error_line "made/changed.json:/phases/0: " "expected a time_s of its 9 steps"
# If it is accepted unchanged, the current prediction is printed in addition to the file's.
python3 - <<END
import json
plan = json.load(open("made/measured.json"))
json.dump(plan, open("made/one-line.json", "w"))
del plan["digest"]
json.dump(plan, open("made/undigested.json", "w"))
for row in plan["profile"]["layer_times"]:
    row["forward_s"] = 4
json.dump(plan, open("made/changed.json", "w"))
END
for file in made/one-line.json made/undigested.json; do
    expect 0 estimate "$file"
    cmp -s out expected && [ ! -s err ] && pass || fail "$file is another plan"
done
for command in estimate simulate score "export --to mpirun" "report -o made/report.html"; do
    # shellcheck disable=SC2086
    expect 0 $command made/changed.json
    grep -q "^warning: made/changed.json: the plan predicts .* per step, but its estimate is now " err && pass || fail "$command says nothing"
done
expect 0 check made/changed.json
expect_output "warning: made/changed.json: the plan predicts"

# ---- Configurations of training programs: check prints what plan --config uses ----

cat >made/arguments.sh <<END
torchrun --nproc_per_node 8 pretrain_gpt.py --tensor-model-parallel-size 2 --num-layers 4 --hidden-size 256 --vocab-size 1000 \\
  --num-attention-heads 4 --seq-length 128 --max-position-embeddings 128 --micro-batch-size 1 --global-batch-size 64 --bf16 --strange 1
END
printf '\n[strange]\nkey = 3\n' | cat "$SOURCE/tests/workloads/data/torchtitan.toml" - >made/strange.toml
sed 's/^{/{"strange": {"key": 3},/' "$SOURCE/tests/workloads/data/deepspeed.json" >made/strange.json
for file in made/arguments.sh made/strange.toml made/strange.json "$SOURCE/tests/workloads/data/maxtext.yml" \
    "$SOURCE/tests/workloads/data/nemo-recipe.yaml" "$SOURCE/tests/workloads/data/megatron.yaml" "$SOURCE/tests/workloads/data/accelerate.yaml"; do
    expect 0 check "$file"
    sed -n 's/^    //p' out | grep -v "which has no model in it" >checked
    case $file in *.json | */accelerate*) set -- -w gpt2 ;; *) set -- ;; esac
    # Whether it fits is another query.
    "$TRAINYARD" plan --config "$file" "$@" -c "8x dgx-h100" --no-simulate >/dev/null 2>err
    sed -n 's/^trainyard: note: //p' err | grep -vE "^no batch is said|^the file starts" >planned
    cmp -s checked planned && pass || fail "check and plan --config differ: $(diff checked planned)"
done
expect 0 check made/arguments.sh made/strange.toml made/strange.json
expect_output "options not read: nproc-per-node, strange" "strange.key"
finish
