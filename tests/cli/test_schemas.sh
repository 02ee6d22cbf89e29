#!/bin/sh
# Every --json document of every command, and every written file, against docs/schemas.
. "$(dirname "$0")/lib.sh"
python=/usr/bin/python3 # Debian's, with Debian's modules
if ! $python -c 'import jsonschema' 2>/dev/null; then
    echo "skipped: python3-jsonschema is not here"
    echo "1 passed"
    exit 0
fi
export TRAINYARD_WORKER="$WORKER"
mkdir "$scratch/made" "$scratch/documents"
cd "$scratch" || exit 1
documents=0

# document COMMAND...: its output is a document; failing_document: the same with exit code 4.
document() {
    document_of 0 "$@"
}
failing_document() {
    document_of 4 "$@"
}
document_of() {
    expect "$@" --json
    shift
    documents=$((documents + 1))
    mv "$scratch/out" "documents/$documents-$1.json"
    echo "$1" >>covered
}

expect 0 plan -w lenet -c local:2 --fix pp=2 -q -o made/plan.json
expect 0 plan -w gpt2 -c "2x dgx-a100" --fix pp=1,tp=2,dp=8,zero=1 --no-simulate -o made/sharded.json
document plan -w lenet -c local:2 --fix pp=1 -q
document plan -w gpt2 -c "2x dgx-a100" --fix pp=2 --no-simulate
document plan -w bert-base -c dgx-a100 --global-batch 60 --no-simulate # divides badly
document plan -w fedavg-cnn -c phones --no-simulate
document plan -w "gpt2 sequence=256" -c "1x dgx-a100" --fix pp=1,dp=8,compression=top-k:0.01 --no-simulate
for codec in one-bit powersgd-2 dgc:0.001:100:4; do
    document plan -w "gpt2 sequence=256" -c "1x dgx-a100" --fix "pp=1,dp=8,compression=$codec" --no-simulate
done
document plan -w lenet -c "1x p100-server" --budget phone,variant=int8 --no-simulate
failing_document plan -w resnet50 -c "1x p100-server" --budget memory=100KB -q
expect 0 plan -w mlp -c local:2 --fix pp=1,dp=2 --budget microcontroller,memory=1MB -q -o made/tiny.json
document estimate made/tiny.json
document run made/tiny.json --steps 12 -q
expect 0 run made/tiny.json --steps 12 -q -o made/tiny-run.json
document compare made/tiny.json made/tiny-run.json
echo '{"schema": "trainyard.phases/1", "samples": 640, "phases": [{"steps": 8, "global_batch": 64, "momentum": 0.5}, {"epochs": 0.5, "learning_rate": 0.1, "fix": "micro_batch=32"}]}' >documents/phases.json
document plan -w mlp -c local:2 --fix pp=1,dp=2,compression=none --phases documents/phases.json --no-simulate -q
expect 0 plan -w mlp -c local:2 --fix pp=1,dp=2,compression=none --phases documents/phases.json --no-simulate -q -o made/phased.json
document estimate made/phased.json
document simulate made/phased.json
document run made/phased.json -q
expect 0 run made/phased.json -q -o made/phased-run.json
document compare made/phased.json made/phased-run.json
document score made/phased.json
document estimate made/plan.json
document estimate made/sharded.json
document simulate made/plan.json
document simulate made/plan.json --straggler spread:5% --jitter 2% --seeds 4
document simulate made/sharded.json --fail random,device:3@2h,host:1@3d --elastic --seeds 3
document simulate made/sharded.json --slow-link host-0/gpu-0:host-0/pcie-0=0.5 --fail link:host-0/gpu-0:host-0/nvswitch@1h
expect 0 plan -w lenet -c "1x p100-server" --fix pp=1 --no-simulate -o made/small.json
document simulate made/small.json --cluster "2x p100-server" --beside made/small.json
document memory -w gpt2 -c "2x dgx-a100"
document memory -w gpt2 -c "2x dgx-a100" --stack pytorch-ddp
document stack list
document workload list
document cluster list
document stack show megatron-2021
document run made/plan.json --steps 12 -q
document run made/plan.json --until accuracy=0.05 --steps 60 -q
expect 0 run made/plan.json --steps 12 -q -o made/run.json
expect 0 plan -w mlp -c local:2 --fix pp=1,dp=2 -q -o made/parallel.json
document run made/parallel.json --steps 12 --checkpoint "$scratch/state" -q
cp state/latest.json documents/checkpoint.json
document compare made/plan.json made/run.json
document calibrate -w mlp -c local:2 --until accuracy=0.3 --steps 400 --global-batch 32 --evaluate-every 130 --compressions top-k:0.01 -q -o made/calibration.json
cp made/calibration.json documents/
expect 0 run made/parallel.json --until loss=3 --evaluate-every 10 --steps 20 -q -o made/reached.json
document compare made/parallel.json made/reached.json --task made/calibration.json
expect 0 run made/phased.json --until loss=3 --evaluate-every 10 -q -o made/phased-reached.json
document compare made/phased.json made/phased-reached.json --task made/calibration.json
for name in gpt2 lenet transfer-resnet50 mixtral-8x7b deepseek-v3 gnmt-8; do document workload show $name; done
document workload import "$SOURCE/tests/fuzz/corpus/pipedream/chain.graph.txt"
document cluster show "leaf:2 host:2 dgx-h100"
document profile -w gpt-tiny --data "$SOURCE/LICENSE" -q
cp "documents/$documents-profile.json" documents/samples.json
document data tokenize "$SOURCE/README.md" --vocabulary 300 -o made/readme.tokens
document cluster check "leaf:2 host:2 dgx-h100"
document cluster collective "leaf:2 host:2 dgx-h100" --collective all_gather
document cluster collective "2x xeon-server" --algorithm hierarchical --size 4096,1GB
document cluster check "$SOURCE/tests/topologies/data/nccl.xml"
document check made/plan.json made/run.json
document systems -w gpt2 -c "2x dgx-a100"
document systems -w lenet -c local:2
expect 0 plan -w resnet50 -c "2x p3.16xlarge" --objective time-to-target --task resnet50-imagenet --no-simulate -o made/priced.json
document score made/priced.json --task resnet50-imagenet
printf '{"schema": "trainyard.phases/1", "phases": [{"steps": 100, "image_size": 128}, {"steps": 100}]}' >short-phases.json
expect 0 plan -w resnet50 -c "2x p3.16xlarge" --phases short-phases.json --no-simulate -q -o made/priced-phases.json
document score made/priced-phases.json
expect 0 plan -w mlp -c local:2 --fix pp=1,staleness=2 -q -o documents/late.json
expect 0 plan -w mlp -c local:3 --fix servers=1,shard=tensor,compression=none -q -o documents/served.json
document score made/plan.json
document partition "$SOURCE/docs/examples/encoder.graph.txt" --machines 2x2 --bandwidths 10GB/s,10Gb/s
printf '%s' '{"schema": 1, "family": "law", "count": 2, "records": [
 {"id": "law/a", "kind": "accuracy", "source": {"work": "made"}, "confidence": "read", "measured": {"metric": "top1", "value": 76, "unit": "%"}},
 {"id": "law/b", "kind": "convergence", "source": {"work": "made"}, "confidence": "read", "model": {"name": "m"}, "batch": {"global": 100}, "measured": {"metric": "median_to_converge", "value": 1100, "unit": "samples"}}]}' >law.json
document validate law.json
document validate "$SOURCE/study/evidence/rows.json"
sed 's/"kind": "accuracy"/"kind": "convergence", "model": {"name": "m"}, "batch": {"global": 200}/; s/"top1", "value": 76, "unit": "%"/"median_to_converge", "value": 1200, "unit": "samples"/' law.json >laws.json
document validate laws.json
grep -q '"answer_at": ' documents/$documents-validate.json || fail "no row has a command"
document calibrate --reached 100:11epochs,1000:20epochs*5 --global-batch 3000
document calibrate --reached 100:1100,1000:2000
printf '%s' '{"schema": "trainyard.steps/1", "rows": [
 {"workload": "gpt2", "cluster": "1x dgx-a100", "global_batch": 64, "dp": 8, "step_s": 0.09},
 {"workload": "gpt2", "cluster": "2x dgx-a100", "global_batch": 64, "fix": "dp=16", "tokens_per_s": 900000},
 {"name": "ours", "workload": "gpt2-medium", "cluster": "1x dgx-a100", "global_batch": 64, "dp": "8", "mfu": 0.3}]}' >documents/steps.json
document calibrate --stack megatron documents/steps.json -o documents/fitted-stack.json
document calibrate --stack megatron --mfu 0.3 -w gpt2 -c "1x dgx-a100" -o documents/scaled-stack.json
failing_document plan -w gpt3-175b -c "1x dgx-a100" --fix pp=1,tp=1 -q
document whatif -w vgg16 -c "2x p100-server" -q --vary hosts=1,2 --vary micro_batch=8,77 --no-simulate
document whatif -w resnet50 -c "1x p3.16xlarge" -q --vary batch=256,512 --fix pp=1 --objective cost --task resnet50-imagenet
printf 'plan.top = 3\nseed = 7\n' >conf
TRAINYARD_CONFIG=$scratch/conf document config

# A calibration from a library's log has hosts, and so have the plans that use it.
{
    echo "all_reduce_perf -b 1M -e 1G"
    echo "# size count type redop root time algbw busbw #wrong time algbw busbw #wrong"
    for i in 0 1 2 3 4 5 6 7; do echo "#  Rank  $i Group  0 Pid 1 on alpha device  $i [0x0f] NVIDIA H100"; done
    echo "1048576 262144 float sum -1 1000 1.05 1.84 0 1000 1.05 1.84 0"
    echo "1073741824 268435456 float sum -1 1000000 1.07 1.88 0 1000000 1.07 1.88 0"
} >library.log
expect 0 calibrate library.log -c "1x dgx-h100" -o documents/library.json
if grep -q '"hosts": 1' documents/library.json; then pass; else fail "the calibration has no hosts"; fi
document plan -w "gpt2 sequence=256" -c "1x dgx-h100" --profile documents/library.json --fix pp=1 --no-simulate
expect 0 plan -w "gpt2 sequence=256" -c "1x dgx-h100" --profile documents/library.json --fix pp=1 --no-simulate -q -o documents/library-plan.json
document simulate documents/library-plan.json

# Files.
for file in "$SOURCE"/planner/stacks/*.json; do cp "$file" documents/stack-"$(basename "$file")"; done
for name in gpt2 transfer-resnet50 es-humanoid; do expect 0 workload export $name -o documents/w-$name.json; done
expect 0 workload import "$SOURCE/tests/fuzz/corpus/pipedream/chain.graph.txt" -o documents/w-opaque.json
expect 0 cluster export "2x p4d.24xlarge" -o documents/c-priced.json
sed -n '/^```json$/,/^```$/p' "$SOURCE/docs/guides/describe-a-cluster.md" | sed '/^```/d' >documents/device.json
expect 0 plan -w gpt2 -c "host:2 gpu:8 @documents/device.json nvlink4 ndr400" --fix pp=1 --no-simulate -q -o documents/own-device.json
expect 0 cluster export "torus:4x4 @tpu-v4 ici-v4 host:4" -o documents/c-torus.json
expect 0 export made/plan.json --to mpirun --init in.safetensors --save-weights out.safetensors -o made/launch --quiet
cp made/launch/job.json documents/job.json
expect 0 export made/plan.json --to mpirun --backend replay -o made/replay --quiet
cp made/replay/job.json documents/replay-job.json
expect 0 run made/plan.json --backend replay --steps 2 -q -o documents/replay-run.json
cp made/plan.json made/sharded.json made/run.json documents/
expect 0 profile -w mlp --ranks 2 --micro-batches 16,32 -q -o documents/profile.json

if $python "$SOURCE/tests/cli/check_json.py" "$SOURCE/docs/schemas" documents/*.json; then pass; else fail "documents and schemas differ"; fi

# The keys in scripting.md are in a document of their command.
if $python - "$SOURCE/docs/reference/scripting.md" documents >out 2>&1 <<'END'; then pass; else fail "scripting.md: $(cat out)"; fi
import glob, json, re, sys
page, folder = sys.argv[1:]

def has(value, path):
    if not path:
        return True
    if path[0] == "[]":
        return isinstance(value, list) and any(has(one, path[1:]) for one in value)
    return isinstance(value, dict) and path[0] in value and has(value[path[0]], path[1:])

looked = 0
for row in re.findall(r"^\| (`trainyard .*) \| .* \| (.*) \|$", open(page, encoding="utf-8").read(), re.M):
    commands = re.findall(r"trainyard ([a-z]+)", row[0])
    documents = [json.load(open(path)) for c in commands for path in glob.glob(f"{folder}/*-{c}.json")]
    for key in re.findall(r"`([a-z][a-z0-9_.\[\]]*)`", row[1]):
        if key.endswith(".json"):
            continue
        looked += 1
        if not any(has(one, re.findall(r"\[\]|\w+", key)) for one in documents):
            print(f"no document of {' or '.join(commands)} has {key}")
            sys.exit(1)
if looked < 15:
    sys.exit(f"names {looked} keys")
END

# Complete: every command with --json has a row above.
for command in $("$TRAINYARD" --help | awk '/^  [a-z]/ { print $1 }'); do
    "$TRAINYARD" $command --help | grep -q -- '^  -j, --json ' || continue
    if grep -qx "$command" covered; then pass; else fail "$command --json is not held against a schema"; fi
done

# The schemas refuse the same files as the readers.
refused() { # refused NAME SED-EXPRESSION FILE
    sed "$2" "$3" >bad.json
    cmp -s bad.json "$3" && fail "the edit of $1 changed nothing"
    if $python "$SOURCE/tests/cli/check_json.py" "$SOURCE/docs/schemas" bad.json >/dev/null; then
        fail "the schema accepts $1"
    else pass; fi
    "$TRAINYARD" check bad.json >/dev/null 2>&1 && fail "the reader accepts $1" || pass
}
refused "an unknown key" '0,/"global_batch"/s//"globall_batch"/' made/plan.json
refused "a negative size" '0,/"replicas": [0-9]*/s//"replicas": -2/' made/plan.json
refused "a missing key" '/"wall_s"/d' made/run.json
refused "a wrong schema" '0,/trainyard.workload.1/s//trainyard.workload\/9/' documents/w-gpt2.json
refused "a constant out of range" 's/"memory_waste": 0,/"memory_waste": 11,/' "$SOURCE/planner/stacks/trainyard.json"
refused "a stack without a constant" '/"memory_waste": 0,/d' "$SOURCE/planner/stacks/trainyard.json"
refused "a text for a number" '0,/"power_w": [0-9.]*/s//"power_w": "many"/' documents/c-priced.json
finish
