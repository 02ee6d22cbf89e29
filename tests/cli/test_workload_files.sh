#!/bin/sh
# Workloads of other programs, with the detected file kind; exported and imported again they are the
# same.
. "$(dirname "$0")/lib.sh"
corpus=$SOURCE/tests/fuzz/corpus
cd "$scratch" || exit 1

while IFS='|' read -r file kind; do
    rm -f ./*.json ./*.et
    expect 0 workload import "$corpus/$file" -o in.json
    grep -qF "$file: $kind" err && pass || fail "$file: not taken for $kind"
    expect 0 workload export in.json -o out.json
    expect 0 workload import out.json -o again.json --quiet
    cmp -s in.json out.json && cmp -s in.json again.json && pass || fail "$file: JSON comes back as another workload"
    expect 0 workload export in.json --to chakra -o out.et
    expect 0 workload import out.et -o back.json
    grep -qF "out.et: Chakra" err && pass || fail "$file: what was exported is not taken for Chakra"
    cmp -s in.json back.json && pass || fail "$file: Chakra comes back as another workload"
done <<END
hf/tiny.json|Hugging Face config.json
hf/t5-base.json|Hugging Face config.json
megatron/gpt-345m.sh|Megatron-LM arguments
calculon/tiny.json|Calculon model
pipedream/branches.graph.txt|PipeDream
onnx/block.onnx|ONNX
chakra/mlp.et|Chakra
workload/tiny_cnn.json|trainyard.workload/1
zoo/residual.json|trainyard.zoo/1
END

# A script that only names its tokenizer; configurations of training programs as a query.
printf 'L=2\n--num-layers $L --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64\n' >script.sh
expect 3 workload import script.sh
expect_error_line "--vocabulary N"
expect 0 workload import script.sh --vocabulary 1000 --quiet
expect 0 workload show "./script.sh vocabulary=1000"
# Another vocabulary is accepted, or refused; GPT-2's is 50257 of 768 features.
while IFS='|' read -r workload parameters; do
    expect 0 workload show "$workload" --json
    expect_output "\"parameters\": $parameters,"
done <<END
gpt2 vocabulary=50304|124475904
bert-base-mlm vocabulary=30528|$((109514298 + 6 * 769))
$corpus/calculon/tiny.json vocabulary=1000|$("$TRAINYARD" workload show "$corpus/calculon/tiny.json" --json | awk -F '[:,]' '/"parameters"/ { print $2 - 50200 * 8; exit }')
END
for workload in "resnet50 vocabulary=9" "gnmt-8 vocabulary=9" "$corpus/pipedream/branches.graph.txt vocabulary=9" "$corpus/workload/tiny_cnn.json vocabulary=9"; do
    expect 2 workload show "$workload"
    expect_error_line "vocabulary=9"
done
data=$SOURCE/tests/workloads/data
expect 0 plan --config "$data/megatron.yaml" --cluster "1x dgx-a100" --no-simulate
grep -qF "NeMo, Megatron-Bridge or Megatron-LM YAML: megatron, tp=1,pp=2,cp=1,micro_batch=2,zero=1" err && pass || fail "the file's layout is not said"
sed '1,/^With the layout left open$/d' out | grep -q "^Step time .* of the file's$" && pass || fail "what would be better is not said"
# Only the typed command reproduces it.
grep -q "^Reproduce" out && fail "a command without the file is said to reproduce its plan" || pass
expect 0 plan --config "$data/deepspeed.json" --workload gpt2 --cluster "1x dgx-a100" --no-simulate --json
# The program of a DeepSpeed or Accelerate file has no pipeline stages, even if ZeRO 1 does not fit.
printf '{"train_batch_size": 256, "zero_optimization": {"stage": 1}, "bf16": {"enabled": true}}\n' >zero.json
printf 'distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 1\nmixed_precision: bf16\n' >zero.yaml
for file in zero.json zero.yaml; do
    expect 4 plan --config $file --workload "llama-2-13b batch=256" --cluster "4x dgx-a100" --no-simulate
    expect_output "With the layout left open" "PP 1  VPP 1"
    grep -q "PP [2-9]" out && fail "$file has pipeline stages" || pass
done
expect 2 plan --config "$data/accelerate.yaml" --cluster "1x dgx-a100"
expect_error_line "expected one beside it (--workload)"
expect 3 plan --config "$data/nemo.yaml" --cluster "1x dgx-a100"
expect_error_line "--vocabulary N"
expect 4 plan --config "$data/torchtitan.toml" --cluster "host:1 gpu:8 @t4 pcie3 eth25" --no-simulate
expect 2 plan --config "$data/megatron.yaml" --cluster "1x dgx-a100" --seq 512
expect 2 plan --workload gpt2 --vocabulary 9 --cluster "1x dgx-a100"

# A recipe in Python is not a settings file.
printf 'recipe = llm.llama3_8b.pretrain_recipe(num_nodes=2)\n' >recipe.py
expect 3 plan --config recipe.py --workload gpt2 --cluster "1x dgx-a100"
expect_error_line "found a recipe in Python" "expected the YAML"

# Models with layers of newer kinds are planned; the worker lacks these layers, and names them.
export TRAINYARD_WORKER="$WORKER"
while IFS='|' read -r lacking model; do
    printf '{"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "vocab_size": 100, %s}' "$model" >newer.json
    expect 0 plan -w "newer.json sequence=32 batch=8" -c "1x dgx-a100" --no-simulate -q
    expect 1 plan -w "newer.json sequence=32 batch=8" -c local:1 --no-simulate -q
    expect_error_line "the cpu backend does not train $lacking"
done <<END
layers of kind state_space|"model_type": "mamba2", "num_heads": 8, "head_dim": 16
layers of kind gated_delta|"model_type": "qwen3_next", "num_attention_heads": 4, "num_key_value_heads": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_conv_kernel_dim": 4, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32
attention with window|"model_type": "mistral", "num_attention_heads": 4, "sliding_window": 16
END

# Times of another device are scaled: an A100 has 1.7 times a V100's memory bandwidth and 1.24 of its fp32 rate.
chain=$corpus/pipedream/chain.graph.txt
one="--fix pp=1,dp=1,devices=1 --no-simulate"
# shellcheck disable=SC2086 # several words
step() { "$TRAINYARD" plan -w "$chain" -c "host:1 gpu:1 @$1 pcie3 eth10" $one --json -q ${2:+--profile-device $2} | awk -F '[:,]' '/"step_time_s"/ { print $2; exit }'; }
if awk -v same="$(step v100-sxm2-16gb v100-sxm2-16gb)" -v a100="$(step a100-sxm4-40gb v100-sxm2-16gb)" \
    'BEGIN { exit !(same > 0 && a100 < 0.95 * same && a100 > 0.4 * same) }'; then pass; else fail "times are not scaled"; fi
# shellcheck disable=SC2086
expect 0 plan -w "$chain" -c "host:1 gpu:1 @a100-sxm4-40gb pcie3 eth10" $one --profile-device v100-sxm2-16gb -o scaled.json
tr -s ' \n' ' ' <out | grep -q "Provenance layer times of the workload.s file.*measured elsewhere (v100-sxm2-16gb), scaled by 0" && pass || fail "the provenance does not say whose times they are"
grep -q "measured elsewhere (v100-sxm2-16gb), scaled by 0" err && grep -q 'measured elsewhere (v100-sxm2-16gb)' scaled.json && pass || fail "scaling is not said"
# shellcheck disable=SC2086
expect 2 plan -w "$chain" -c "host:1 gpu:1 @a100-sxm4-40gb pcie3 eth10" $one
expect_error_line "are of a device that the file does not name" "--profile-device a100-sxm4-40gb"
expect 2 plan -w gpt2 -c "1x dgx-a100" --profile-device v100-sxm2-16gb
expect_error_line "--profile-device" "no times of its own"
expect 2 plan -w "$chain" -c "1x dgx-a100" --profile-device v1000
expect_error_line "--profile-device" "v1000"
expect 2 plan -w "$chain" -c "1x dgx-a100 + 1x p100-server" --profile-device v100-sxm2-16gb
expect_error_line "--profile-device: found devices of several kinds"

expect 2 workload export mlp --to chakra
expect_error_line "--output FILE"
expect 2 workload export mlp --to chakrra -o x.et
expect_error_line "did you mean 'chakra'"
expect 2 workload show mlp --to chakra
expect 3 workload export mpl --to chakra -o x.et
expect_error_line "did you mean 'mlp'"
[ ! -e x.et ] && pass || fail "a file of a workload that is not there"
finish
