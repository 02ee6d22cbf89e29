#!/bin/sh
# Workloads of other programs in, with the kind of file that was guessed; out and in again they are
# the same.
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

# A script that only names its tokenizer; configurations of training programs as a question.
printf 'L=2\n--num-layers $L --hidden-size 64 --num-attention-heads 4 --max-position-embeddings 64\n' >script.sh
expect 3 workload import script.sh
expect_error_line "--vocabulary N"
expect 0 workload import script.sh --vocabulary 1000 --quiet
expect 0 workload show "./script.sh vocabulary=1000"
# Another vocabulary is taken, or refused; GPT-2's is 50257 of 768 features.
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
grep -q "^with the layout left open: .* of the file's$" out && pass || fail "what would be better is not said"
expect 0 plan --config "$data/deepspeed.json" --workload gpt2 --cluster "1x dgx-a100" --no-simulate --json
expect 2 plan --config "$data/accelerate.yaml" --cluster "1x dgx-a100"
expect_error_line "expected one beside it (--workload)"
expect 3 plan --config "$data/nemo.yaml" --cluster "1x dgx-a100"
expect_error_line "--vocabulary N"
expect 4 plan --config "$data/torchtitan.toml" --cluster "host:1 gpu:8 @t4 pcie3 eth25" --no-simulate
expect 2 plan --config "$data/megatron.yaml" --cluster "1x dgx-a100" --seq 512
expect 2 plan --workload gpt2 --vocabulary 9 --cluster "1x dgx-a100"

expect 2 workload export mlp --to chakra
expect_error_line "--output FILE"
expect 2 workload export mlp --to chakrra -o x.et
expect_error_line "did you mean 'chakra'"
expect 2 workload show mlp --to chakra
expect 3 workload export mpl --to chakra -o x.et
expect_error_line "did you mean 'mlp'"
[ ! -e x.et ] && pass || fail "a file of a workload that is not there"
finish
