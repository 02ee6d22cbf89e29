#!/bin/sh
# Frameworks: the catalogue, --stack in every command with a cost or memory, and the places that
# print the name.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"
cd "$scratch/made" || exit 1
ask() { # ask CODE COMMAND WORDS...: about gpt2 on two hosts
    code=$1 command=$2
    shift 2
    expect "$code" "$command" -w gpt2 -c "2x dgx-a100" "$@"
}

# The catalogue.
expect 0 stack list
expect_output "trainyard " "megatron-2021 " "Megatron-LM of 2021 on A100"
expect 0 stack list --quiet
[ "$(grep -c ' ' "$scratch/out")" -eq 0 ] && pass || fail "names alone have blanks"
for name in $(cat "$scratch/out"); do
    expect 0 stack show "$name"
    expect_output "Framework   $name (" "product_share" "gradient_bytes" "source"
    expect 0 check "$SOURCE/planner/stacks/$name.json"
    expect_output "trainyard.stack/1"
done
expect 0 stack show megatron-2021
expect_output "scores go through memory and are kept; dropout" "leave after the last backward" "megatron_lm: GPT 3.6B" "0.9016"
expect 0 stack show megatron-2021 --json -o mine.json
expect 0 stack show ./mine.json
expect_output "Framework   megatron-2021 ("
expect 2 stack
expect 2 stack dance
expect_error_line "dance" "list or show"
expect 2 stack lst
expect_error_line "did you mean 'list'"
expect 2 stack show
expect_error_line "show needs a name"
expect 2 stack list megatron
expect_error_line "list takes no name"
expect 2 stack show megatron-2012
expect_error_line "no stack or file 'megatron-2012'" "did you mean 'megatron-2021'"

# Constants after a name. Devices that wait for the slowest, and work that takes longer than its
# cost, affect the estimate and the simulation alike; among 8 devices the largest of normal numbers
# is 1.43 deviations off.
step() { # step COMMAND WORDS...: the step's time
    "$TRAINYARD" "$@" --json 2>"$scratch/err" | sed -n 's/.*"step_time_s": \([0-9.e-]*\).*/\1/p' | head -n 1
}
image="plan -w resnet50 -c dgx1-p100 --fix dp=8,micro_batch=64,compression=none,bucket=25MB --global-batch 512 --no-simulate"
plain=$(step $image --stack trainyard)
for change in "compute_scale=2 2" "step_jitter=0.1 1.143" "compute_scale=1.5 1.5"; do
    changed=$(step $image --stack "trainyard ${change% *}")
    awk "BEGIN { r = $changed / $plain / ${change#* }; exit !(r > 0.985 && r < 1.015) }" && pass || fail "${change% *}: $changed, not ${change#* } x $plain"
done
expect 0 $image --stack "trainyard step_jitter=0.1" -o waiting.json
expect_output "Framework   trainyard-changed (Trainyard's own worker, step_jitter=0.1)" "--stack 'trainyard step_jitter=0.1'"
estimated=$(step estimate waiting.json)
simulated=$(step simulate waiting.json)
awk "BEGIN { r = $estimated / $simulated; exit !(r > 0.995 && r < 1.005 && $estimated > 1.1 * $plain) }" && pass ||
    fail "waiting: $estimated estimated, $simulated simulated, $plain without"
expect 0 whatif -w resnet50 -c dgx1-p100 --fix dp=8,micro_batch=64 --global-batch 512 --no-simulate --vary "stack=trainyard,trainyard step_jitter=0.1"
expect_output "step_jitter=0.1"
expect 2 stack show "megatron compute_scal=2"
expect_error_line "did you mean 'compute_scale'?"
rm waiting.json

# Flags of a Megatron-LM file: each omitted one changes the step.
flags="--tp-comm-overlap --overlap-grad-reduce --overlap-param-gather --grad-reduce-in-bf16"
megatron() { # megatron FLAGS: the step of a file that has them
    printf '%s\n' "--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --seq-length 2048 --max-position-embeddings 2048" \
        "--vocab-size 32000 --micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer" \
        "--tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2" "$1" >flags.txt
    step plan --config flags.txt -c "4x dgx-h100" --no-simulate
}
whole=$(megatron "$flags")
for flag in $flags; do
    without=$(megatron "$(echo "$flags" | sed "s/$flag//")")
    awk "BEGIN { exit !($without > 1.001 * $whole) }" && pass || fail "$flag: $whole s with it, $without s without"
done
expect 0 plan --config flags.txt -c "4x dgx-h100" --no-simulate --stack nemo
grep -q "note: tp_comm_overlap=on not used" "$scratch/err" && pass || fail "a switch of another stack is not noted"
rm flags.txt

# A user's file, and errors in one.
printf '%s' '{"schema": "trainyard.stack/1", "name": "ours", "title": "Our trainer", "source": "our runs", "provenance": "measured", "like": "pytorch-ddp", "memory_waste": 0.01}' >ours.json
ask 0 memory --stack ours.json
expect_output "Framework   ours (Our trainer"
sed 's/0.01/10.01/' ours.json >bad.json
ask 3 plan --stack bad.json
expect_error_line "bad.json:/memory_waste: found 10.01, expected a number from 0 to 10"
sed 's/"pytorch-ddp"/".\/bad.json"/' ours.json >bad.json
ask 3 plan --stack bad.json
expect_error_line "bad.json:/like:" "not like this one in turn"
ask 2 plan --stack megatrn
expect_error_line "no stack or file 'megatrn'" "did you mean 'megatron'"
expect 2 run mine.json --stack megatron
expect_error_line "--stack"

# Plans that it cannot run are not proposed, and refused by name on request.
ask 2 plan --stack pytorch-ddp --fix pp=2
expect_error_line "stack pytorch-ddp has no pp=2: its pp is 1"
ask 2 plan --stack megatron --fix zero=3
expect_error_line "stack megatron has no zero=3: its zero is 0, 1"
expect 0 stack show pytorch-fsdp
expect_output "levels of ZeRO 0, 2, 3"
tr -s ' \n' ' ' <"$scratch/out" | grep -q "stages with equal replicas" && pass || fail "plans of unequal stages"

# The default: by the model, the devices, and the options; otherwise our own worker.
while IFS='|' read -r stack workload cluster words; do
    # shellcheck disable=SC2086
    expect 0 plan --no-simulate -w "$workload" -c "$cluster" $words
    expect_output "Framework   $stack ("
done <<'END'
nemo|llama-3-8b|2x dgx-h100|
nemo|llama-3-8b|2x dgx-b200|
torchtitan|llama-3-8b|2x dgx-h100|--fix zero=3,tp=2
pytorch-fsdp|llama-3-8b|2x dgx-h100|--fix zero=3
nemo-2022|llama-3-8b|2x dgx-a100|
megatron-vtrain-node|gpt2|2x dgx-a100|--fix zero=1,tp=2,schedule=1f1b
pytorch-fsdp|gpt2|2x dgx-a100|--fix zero=3
torchtitan|gpt2|2x dgx-a100|--fix schedule=gpipe,pp=2
pytorch-fsdp|gpt2|2x dgx-a100|--fix compression=fp16
trainyard|gpt2|2x dgx-a100|--fix replicas=8+4+4
trainyard|gpt2|2x dgx-a100|--allow-lossy
trainyard|gpt2|2x dgx-a100|--system zero
trainyard|gpt2|2x dgx-a100|--fix algorithm=ring
megatron-2021|gpt2|2x dgx1-v100|
megatron-2021|gpt2|1x g4dn.12xlarge|
megatron|gpt2|1x rtx-4090-server|
maxtext|gpt2|torus:4x4 @tpu-v5e ici-v5e host:4|
pytorch-ddp|resnet50|2x dgx-a100|
tensorflow-2017|resnet50|2x p100-server|
trainyard|mlp|2x dgx-a100|
END
expect 0 plan --no-simulate -w resnet50 -c "2x dgx-a100"
expect_output "Precision   bf16"

# A rate that no measurement supports is called an estimate.
for host in gb300-tray mi300x-server; do
    expect 0 plan --no-simulate -w gpt2 -c "1x $host" --precision fp8
    tr -s ' \n' ' ' <"$scratch/out" >"$scratch/line"
    grep -q "no measurement supports the rate in fp8 on [a-z0-9]*, which is an estimate" "$scratch/line" && pass || fail "$host: fp8 is not called an estimate"
done
expect 0 plan --no-simulate -w gpt2 -c "1x dgx-h100" --precision fp8
if grep -q "no measurement supports" "$scratch/out"; then fail "fp8 on an H100 is called an estimate"; else pass; fi

# Every result names its framework: the default, and a requested one.
ask 0 plan --no-simulate --stack megatron -o usual.json
expect_output "Framework   megatron (Megatron-Core with Transformer Engine"
ask 0 plan --no-simulate --stack ours.json -o other.json
expect_output "Framework   ours (Our trainer"
ask 0 plan --no-simulate --stack ours.json --json
expect_output '"title": "Our trainer"'
ask 0 memory
expect_output "Framework   megatron-vtrain-node ("
ask 0 memory --stack ours.json --json
expect_output '"stack": "ours"'
ask 0 systems --stack ours.json --json
expect_output '"stack": "ours"'
ask 0 systems
expect_output "Framework   megatron-vtrain-node (" "stack trainyard: gpipe has plans that stack megatron-vtrain-node does not"
ask 0 systems --json
expect_output '"stack_reason": "gpipe has plans that stack megatron-vtrain-node does not"'
ask 0 whatif --vary zero=1,3 --fix tp=1 -q --no-simulate
expect_output "stack pytorch-fsdp (because stack megatron-vtrain-node has no zero=3"
ask 0 plan --no-simulate --fix zero=3
tr -s ' \n' ' ' <"$scratch/out" | grep -q "because stack megatron-vtrain-node has no zero=3" && pass || fail "no reason for another stack"
ask 0 whatif --vary stack=trainyard,./ours.json --no-simulate --quiet --json
expect_output '"values": {"stack": "./ours.json"}' '"stack": "ours"' '"stack": "trainyard"'
ask 0 whatif --vary batch=512 --stack ./ours.json --no-simulate --quiet --json
expect_output '"stack": "./ours.json"' '"stack": "ours"'
expect 4 plan -w gpt3-175b -c "1x dgx-a100" --fix pp=1,tp=1 --stack ours.json --json -q
expect_output '"stack": "ours"'

# A plan has its framework, and can be queried with another one: only the name of the file changes.
expect 0 estimate usual.json
expect_output "Framework   megatron ("
mv ours.json elsewhere.json
expect 0 estimate other.json --json
expect_output '"stack": "ours"'
expect 0 estimate usual.json --stack elsewhere.json --json
expect_output '"stack": "ours"'
expect 0 estimate usual.json --stack megatron
expect_output "Framework   megatron ("
expect 0 plan -w gpt2 -c "2x dgx-a100" --fix zero=3 --stack trainyard --no-simulate -q -o sharded.json
expect 2 estimate sharded.json --stack megatron
expect_error_line "stack megatron" "zero"
expect 0 plan -w llama-3-8b -c "2x dgx-a100" --fix tp=16,sp=1,recompute=full --no-simulate -q -o shared-heads.json
expect 2 estimate shared-heads.json --stack megatron
expect_error_line "heads of keys and values of their own; found 16 ranks"
expect 2 estimate usual.json --stack megatrn
expect_error_line "did you mean 'megatron'"
expect 0 simulate other.json --stack trainyard
expect_output "Framework   trainyard ("
expect 0 simulate other.json --json
expect_output '"stack": "ours"'
expect 0 report other.json -o report.html
report_holds report.html 'd["plan"]["framework"] == "ours" and d["plan"]["framework_title"] == "Our trainer"'

# A launch file quotes only figures of the software that it starts.
for target in mpirun slurm; do
    expect 0 export other.json --to $target
    expect_output "# stack    trainyard: what is expected is of this software" "# expects "
done
expect 0 plan --no-simulate -w resnet50 -c "2x dgx-a100" --stack trainyard --fix pp=1,zero=0,compression=none -o images.json
expect 0 export images.json --to torchrun
expect_output "nothing is predicted of this software"
if grep -q "# expects " "$scratch/out"; then fail "a figure of the worker's stands in a launch file of PyTorch"; else pass; fi
expect 0 plan --no-simulate -w resnet50 -c "2x dgx-a100" --fix pp=1,zero=0,compression=none -o images.json
expect 0 export images.json --to torchrun
expect_output "# stack    pytorch-ddp: what is expected is of this software" "# expects "

# A plan from before frameworks were recorded counts as the worker's.
if [ -x /usr/bin/python3 ]; then
    /usr/bin/python3 -c 'import json,sys; d = json.load(open("other.json")); del d["stack"], d["digest"]; json.dump(d, open("old.json", "w"))'
    expect 0 estimate old.json
    expect_output "Framework   trainyard ("
fi
finish
