#!/bin/sh
# Exported files read back as they were: launch files as a query, traces, platforms. The test finds
# the pairs itself: every file of every target is given to every reader.
. "$(dirname "$0")/lib.sh"
mkdir "$scratch/made"
cd "$scratch" || exit 1
same=$SOURCE/tests/launch/same_plan.py

# TARGET|FILE|MODEL|CLUSTER|OPTIONS of plan|--fix|content of the format; a separate model if the
# format has none.
while IFS='|' read -r target file model cluster options fix held; do
    told="$target, $model, $options $fix"
    # shellcheck disable=SC2086 # several words
    expect 0 plan -w "$model" -c "$cluster" $options --fix "$fix,compression=none" --no-simulate -q -o there.json
    [ "$got" -eq 0 ] || continue
    rm -rf made/out
    expect 0 export there.json --to "$target" -o made/out --quiet
    [ "$got" -eq 0 ] || { fail "$told: $(cat err)"; continue; }
    case $held in *model*) beside= ;; *) beside="-w" ;; esac
    # shellcheck disable=SC2086
    expect 0 plan --config "made/out/$file" ${beside:+-w "$model"} -c "$cluster" --no-simulate -q -o back.json
    [ "$got" -eq 0 ] || { fail "$told"; continue; }
    # shellcheck disable=SC2086
    if /usr/bin/python3 "$same" there.json back.json $held >out 2>&1; then pass; else fail "$told: $(tail -1 out)"; fi
done <<END
megatron|megatron.args|llama-3.1-8b batch=64|4x dgx-h100|--stack megatron|pp=2,tp=2,cp=1,sp=1,zero=1,recompute=full:4,micro_batch=1|model optimizer batch micro schedule precision recompute
megatron|megatron.args|llama-3.1-8b batch=64|4x dgx-h100|--stack megatron --precision fp8|pp=4,tp=1,cp=1,sp=0,zero=1,interleave=2,schedule=interleaved,recompute=none,micro_batch=1|model optimizer batch micro schedule precision recompute
megatron|megatron.args|llama-3.1-8b batch=48|3x dgx-h100|--stack megatron|pp=3,tp=2,cp=1,sp=1,zero=1,recompute=full,micro_batch=2|model optimizer batch micro schedule precision recompute
megatron|megatron.args|llama-3.1-8b batch=48|3x dgx-h100|--stack megatron --optimizer muon|pp=3,tp=2,cp=1,sp=1,zero=0,recompute=full,micro_batch=2|model optimizer batch micro schedule precision recompute
megatron|megatron.args|llama-3.1-8b batch=48|3x dgx-h100|--stack megatron|pp=3,tp=2,cp=2,sp=0,zero=1,interleave=2,schedule=interleaved,recompute=selective,micro_batch=2|model optimizer batch micro schedule precision recompute
megatron|megatron.args|mixtral-8x7b batch=128|8x dgx-h100|--stack megatron|pp=2,tp=2,ep=4,cp=1,sp=1,zero=1,recompute=elementwise,micro_batch=8|model optimizer batch micro schedule precision recompute
megatron|megatron.args|mixtral-8x7b batch=128|8x dgx-h100|--stack megatron|pp=2,tp=1,ep=4,cp=2,sp=0,zero=1,recompute=none,micro_batch=4|model optimizer batch micro schedule precision recompute
megatron|megatron.args|qwen3-30b-a3b batch=128|4x dgx-a100|--stack megatron --precision fp16|pp=4,tp=1,ep=1,cp=1,sp=0,zero=1,recompute=full,micro_batch=1|model optimizer batch micro schedule precision recompute
torchtitan|torchtitan.toml|llama-3.1-8b batch=64|4x dgx-h100|--stack torchtitan|pp=2,tp=4,cp=1,sp=1,zero=3,recompute=full,micro_batch=1|model batch micro schedule precision recompute
torchtitan|torchtitan.toml|llama-3.1-8b batch=64|4x dgx-h100|--stack torchtitan|pp=4,tp=2,cp=1,sp=1,zero=2,interleave=2,schedule=interleaved,recompute=none,micro_batch=1|model batch micro schedule precision recompute
torchtitan|torchtitan.toml|llama-3.1-8b batch=64|4x dgx-h100|--stack torchtitan|pp=2,tp=2,cp=2,sp=1,zero=2,schedule=gpipe,recompute=operator,micro_batch=2|model batch micro schedule precision recompute
torchtitan|torchtitan.toml|llama-3.1-8b batch=64|4x dgx-h100|--stack torchtitan --precision fp8|pp=1,tp=1,cp=1,sp=0,zero=3,recompute=full,micro_batch=2|model batch micro schedule precision recompute
torchtitan|torchtitan.toml|qwen3-30b-a3b batch=64|4x dgx-h100|--stack torchtitan|pp=1,tp=1,cp=1,ep=8,sp=0,zero=3,recompute=full,micro_batch=8|model batch micro schedule precision recompute
deepspeed|ds_config.json|gpt2 batch=64|2x dgx-a100|--stack deepspeed|pp=1,tp=1,zero=0,recompute=none,micro_batch=2|optimizer batch micro schedule precision
deepspeed|ds_config.json|gpt2 batch=64|2x dgx-a100|--stack deepspeed|pp=1,tp=1,zero=1,recompute=none,micro_batch=4|optimizer batch micro schedule precision
deepspeed|ds_config.json|gpt2 batch=64|2x dgx-a100|--stack deepspeed --precision fp16|pp=1,tp=1,zero=2,recompute=none,micro_batch=1|optimizer batch micro schedule precision
deepspeed|ds_config.json|gpt2 batch=64|2x dgx-a100|--stack deepspeed|pp=1,tp=1,zero=3,recompute=none,micro_batch=2|optimizer batch micro schedule precision
deepspeed|ds_config.json|gpt2 batch=64|2x dgx-a100|--stack deepspeed --optimizer adafactor|pp=1,tp=1,zero=3,recompute=none,micro_batch=2|optimizer batch micro schedule precision
accelerate|accelerate.yaml|gpt2 batch=64|2x dgx-a100|--stack pytorch-fsdp|pp=1,zero=3,recompute=full|schedule precision recompute
accelerate|accelerate.yaml|gpt2 batch=64|2x dgx-a100|--stack pytorch-fsdp --precision fp16|pp=1,zero=2,recompute=none|schedule precision recompute
accelerate|accelerate.yaml|gpt2 batch=64|2x dgx-a100|--stack pytorch-ddp --precision fp32|pp=1,zero=0,recompute=none|schedule precision
END

# Every file of every target with every reader: accepted pairs are above, others below.
expect 0 plan -w "llama-3.1-8b batch=64" -c "4x dgx-h100" --stack torchtitan --fix pp=2,tp=4,sp=1,cp=1,zero=3,recompute=full,compression=none --no-simulate -q -o torchtitan.json
expect 0 plan -w "llama-3.1-8b batch=64" -c "4x dgx-h100" --stack megatron --fix pp=2,tp=2,cp=1,zero=1,recompute=none,compression=none --no-simulate -q -o megatron.json
expect 0 plan -w "gpt2 batch=64" -c "2x dgx-a100" --stack pytorch-ddp --fix pp=1,zero=0,recompute=none,compression=none,micro_batch=4 --no-simulate -q -o ddp.json
"$TRAINYARD" export --help | awk '/^Targets:/ { on = 1 } /^--on puts/ { on = 0 } on' | tr -c 'a-z0-9-' '\n' |
    grep -xE 'mpirun|slurm|k8s-[a-z]+|torchrun|horovod|deepspeed|accelerate|torchtitan|megatron|nccl-tuner' | sort -u >targets
echo chakra >>targets
"$TRAINYARD" export ddp.json --to nothing 2>&1 | tr -c 'a-z0-9-' '\n' >known
while read -r target; do grep -qx -- "$target" known && pass || fail "no target $target"; done <targets
[ "$(grep -c . targets)" -eq 12 ] && pass || fail "targets: $(tr '\n' ' ' <targets)"
while read -r target; do
    plan=ddp.json
    [ ! -f "$target.json" ] || plan=$target.json
    rm -rf "made/$target"
    expect 0 export "$plan" --to "$target" -o "made/$target" --quiet
    for file in "made/$target"/*; do
        case $file in *.[1-9].et | *.1[0-9].et) continue ;; esac # the files of all ranks are alike
        for reader in "plan --config $file -w gpt2 -c local:2 --no-simulate" "plan --config $file -c local:2 --no-simulate" "workload import $file" "cluster import $file" "stack show $file" "estimate $file"; do
            # shellcheck disable=SC2086
            "$TRAINYARD" $reader >/dev/null 2>err </dev/null
            case $? in 3) continue ;; 2) grep -q 'has no model in it\|expected one beside\|unknown\|not a known\|no stack' err && continue ;; esac
            echo "${reader%% made/*} ${file#made/}" >>read
        done
    done
done <targets
sort -u read | sed 's/ -w gpt2.*//; s/ --config/ --config/' >pairs
cat >expected <<END
plan --config accelerate/accelerate.yaml
plan --config deepspeed/ds_config.json
plan --config megatron/megatron.args
plan --config torchtitan/torchtitan.toml
workload import chakra/trace.0.et
workload import megatron/megatron.args
END
if cmp -s expected pairs; then pass; else fail "files that are written and read: $(diff expected pairs)"; fi

# A plan's trace contains the work of a rank's step: forward and twice that backward, times the
# number of samples.
expect 0 workload import made/chakra/trace.0.et -o step.json -q
if /usr/bin/python3 - ddp.json step.json >out 2>&1 <<'CHECK'; then pass; else fail "the work in a trace: $(tail -1 out)"; fi
import json, sys
plan, step = (json.load(open(path)) for path in sys.argv[1:])
work = lambda of: sum(layer["forward_flop"] for layer in of["layers"])
samples = plan["global_batch"] / plan["stages"][0]["replicas"]
assert abs(work(step) / (3 * samples * work(plan["workload"])) - 1) < 1e-3, (work(step), samples, work(plan["workload"]))
CHECK

# Platforms of SimGrid: devices, their rates, and their bisection.
for cluster in "2x dgx-a100" "leaf:2 host:2 gpu:4 @h100-sxm nvlink4 ndr400 oversub:2" "4x p100-server"; do
    expect 0 cluster export "$cluster" --to simgrid -o made/platform.xml --quiet
    expect 0 cluster import made/platform.xml -o platform.json --quiet
    for c in "$cluster" platform.json; do
        "$TRAINYARD" cluster show "$c" | sed -n '1s/.*: \([0-9]* devices\).*/\1/p; 2s/.* \([0-9.]* [GT]flop.s\) fp32.*/\1/p; /^bisection/p' >"$(basename "$c" | tr ' :' '__').told"
    done
    if cmp -s "$(basename "$cluster" | tr ' :' '__').told" platform.json.told; then pass; else fail "$cluster: $(cat "$(basename "$cluster" | tr ' :' '__').told" platform.json.told)"; fi
    rm -f made/platform.xml
done
finish
