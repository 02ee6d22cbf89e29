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

expect 2 workload export mlp --to chakra
expect_error_line "--output FILE"
expect 2 workload export mlp --to chakrra -o x.et
expect_error_line "did you mean 'chakra'"
expect 2 workload show mlp --to chakra
expect 3 workload export mpl --to chakra -o x.et
expect_error_line "did you mean 'mlp'"
[ ! -e x.et ] && pass || fail "a file of a workload that is not there"
finish
