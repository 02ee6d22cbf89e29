#!/bin/sh
# Launch files: complete, accepted by the tools that they are for, and started if these are
# installed.
. "$(dirname "$0")/lib.sh"
checks=$SOURCE/tests/launch
python=/usr/bin/python3 # Debian's, with Debian's modules
export TRAINYARD_WORKER="$WORKER"
mkdir "$scratch/made"
cd "$scratch" || exit 1

# skip_without WHAT COMMAND...: reports a tool that is not installed.
have() {
    what=$1
    shift
    if "$@" >/dev/null 2>&1; then return 0; fi
    echo "skipped: $what is not here"
    return 1
}

# The named dimensions only; nothing else is sharded or recomputed.
rest() {
    all=$1
    for pair in tp=1 cp=1 ep=1 sp=0 zero=0 interleave=1 recompute=none; do
        case ",$all," in
        *",${pair%%=*}="*) ;;
        *) all=$all,$pair ;;
        esac
    done
    echo "$all"
}

expect 0 plan -w resnet50 -c "4x p100-server" --fix "$(rest pp=1)" --no-simulate -o ddp.json
expect 0 plan -w resnet50 -c "2x p100-server" --fix "$(rest pp=2)" --no-simulate -o pipe.json
expect 0 plan -w "gpt2 sequence=128" -c "2x p100-server" --fix replicas=4+2+2,schedule=1f1b,compression=none --no-simulate -o uneven.json
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,tp=2,dp=8,compression=none)" --no-simulate -o gpt.json
expect 0 plan -w resnet50 -c "2x p100-server" --fix "$(rest pp=1,compression=top-k:0.01)" --no-simulate -o topk.json

# Every script passes the shell's parser and shellcheck; every file names its origin.
for to in mpirun slurm torchrun horovod deepspeed; do
    expect 0 export ddp.json --to $to -o "made/$to" --quiet
    for script in "made/$to"/*.sh "made/$to"/*.sbatch; do
        [ -f "$script" ] || continue
        if bash -n "$script"; then pass; else fail "$script is no shell script"; fi
        if [ -x "$script" ]; then pass; else fail "$script cannot be executed"; fi
        if grep -q '^# plan  *[0-9a-f]\{64\}$' "$script"; then pass; else fail "$script does not name its plan"; fi
        if have shellcheck command -v shellcheck; then
            if shellcheck -s bash "$script" >"$scratch/out"; then pass; else
                cat "$scratch/out"
                fail "shellcheck $script"
            fi
        fi
    done
done
if [ "$(grep -c '^host-[0-3] slots=4$' made/mpirun/hosts)" -eq 4 ]; then pass; else fail "hosts are not the plan's"; fi
if [ "$(grep -c '^[0-9]* host-' made/mpirun/ranks.txt)" -eq 16 ]; then pass; else fail "ranks.txt has not a line for each process"; fi
if grep -q 'NCCL_IB_DISABLE=1' made/mpirun/launch.sh; then pass; else fail "plain Ethernet is not told NCCL"; fi
expect 0 export gpt.json --to mpirun
if grep -q NCCL_IB_DISABLE "$scratch/out"; then fail "InfiniBand is switched off"; else pass; fi
# A plan whose ranks alternate between hosts: the sequential mapper, a host list from the
# allocation.
sed '/"devices": \[/s/\[0, 1, 2, 3, 4, 5, 6, 7/[0, 4, 2, 3, 1, 5, 6, 7/' ddp.json | sed -z 's/,\n *"digest": "[0-9a-f]*"//' >mixed.json
if cmp -s ddp.json mixed.json; then fail "the edit changed nothing"; fi
expect 0 export mixed.json --to mpirun -o made/mixed --quiet
expect 0 export mixed.json --to slurm -o made/mixed-slurm --quiet
if grep -q 'rmaps seq' made/mixed/launch.sh && [ "$(grep -c '^host-' made/mixed/hosts)" -eq 16 ] &&
    [ "$(grep '^host-' made/mixed/hosts | sed -n 2p)" = host-1 ]; then pass; else fail "the mixed plan is not placed"; fi
if grep -q 'distribution=arbitrary' made/mixed-slurm/job.sbatch; then pass; else fail "Slurm places the mixed plan"; fi
expect 1 export mixed.json --to torchrun
expect_error_line "to and fro"
expect 0 export ddp.json --to slurm --nodes 'gpu[07-10]'
expect_output "#SBATCH --nodelist=gpu07,gpu08,gpu09,gpu10" "#SBATCH --gpus-per-node=4" "--distribution=block"
expect 2 export ddp.json --to slurm --nodes 'gpu[07-09]'
expect_error_line "found 3" "expected 4"
expect 2 export ddp.json --to slurm --nodes 'gpu[1-3],-rf'
expect_error_line "host name" "--nodes"

# No file is overwritten silently.
expect 1 export ddp.json --to slurm -o made/slurm
expect_error_line "is there already" "--force"
expect 0 export ddp.json --to slurm -o made/slurm --force
if grep -q "^replaced made/slurm/job.sbatch" "$scratch/err"; then pass; else fail "replacing is not told"; fi

# Plans that a target cannot express.
expect 1 export pipe.json --to horovod
expect_error_line "--to horovod: it has no pipelines" "2 stages" "--fix pp=1"
expect 1 export uneven.json --to megatron
expect_error_line "--to megatron" "equally many replicas" "found 4 in stage 0 and 2 in stage 1"
expect 1 export topk.json --to torchrun
expect_error_line "top-k"
expect 0 plan -w gnmt-8 -c "2x p100-server" --fix "$(rest pp=1,compression=rows)" --no-simulate -o rows.json
expect 0 export rows.json --to horovod
expect_output "embeddings that the plan sends as rows travel densely here"
expect 0 export rows.json --to slurm
if grep -q 'travel densely' "$scratch/out"; then fail "the worker sends rows"; else pass; fi
expect 1 export gpt.json --to deepspeed
expect_error_line "tensor parallelism of 2" "megatron"
expect 2 export ddp.json --to slurmm
expect_error_line "slurmm" "did you mean slurm?"
expect 2 export ddp.json
expect 2 export ddp.json --to mpirun --image 'x y' --steps 0

# Kubernetes: against the resources' schemas.
expect 0 export ddp.json --to k8s-mpijob -o made/k8s
expect 0 export ddp.json --to k8s-pytorchjob -o made/k8s --image registry.example/train:1
expect 2 export ddp.json --to k8s-mpijob --image 'a: b'
if have "python3-jsonschema or python3-yaml" $python -c 'import jsonschema, yaml'; then
    if $python "$checks/check_yaml.py" made/k8s/mpijob.yaml ConfigMap PersistentVolumeClaim MPIJob &&
        $python "$checks/check_yaml.py" made/k8s/pytorchjob.yaml ConfigMap PyTorchJob; then pass; else fail "YAML"; fi
    sed 's/slotsPerWorker: 4/slotsPerWorker: four/' made/k8s/mpijob.yaml >bad.yaml
    if $python "$checks/check_yaml.py" bad.yaml ConfigMap PersistentVolumeClaim MPIJob >/dev/null; then
        fail "the schema accepts anything"
    else pass; fi
    $python - made/k8s/mpijob.yaml made/mpirun/job.json <<'END' && pass || fail "the job in the ConfigMap is another one"
import json, sys, yaml
inside = next(d for d in yaml.safe_load_all(open(sys.argv[1])) if d["kind"] == "ConfigMap")["data"]["job.json"]
sys.exit(json.loads(inside) != json.load(open(sys.argv[2])))
END
fi

# Files that start launch.sh on every host: by the resources' schemas, and run here with stand-ins
# for srun, scontrol and torchrun, which print the arguments of each host.
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,dp=16,compression=none)" --no-simulate -q -o hosts.json
mkdir -p stand-ins
cat >stand-ins/srun <<'END'
#!/bin/sh
for word in "$@"; do case $word in --nodes=*) nodes=${word#--nodes=} ;; esac; done
while [ "${1#--}" != "$1" ]; do shift; done
host=0
while [ $host -lt "$nodes" ]; do
    SLURM_NODEID=$host "$@"
    host=$((host + 1))
done
END
cat >stand-ins/scontrol <<'END'
#!/bin/sh
printf 'first\nsecond\n'
END
cat >stand-ins/torchrun <<'END'
#!/bin/sh
echo "$CUDA_VISIBLE_DEVICES $*" >>"$GIVEN"
END
chmod +x stand-ins/*
GIVEN=$scratch/given
export GIVEN
given() { # given TEXT COUNT: number of hosts that received the text
    if [ "$(grep -c -- "$1" "$GIVEN")" -eq "$2" ]; then pass; else fail "$2 hosts should be given $1: $(cat "$GIVEN")"; fi
}
for plan in torchrun:hosts megatron:gpt deepspeed:hosts; do
    to=${plan%:*}
    for on in slurm k8s-jobset k8s-trainjob skypilot; do
        expect 0 export "${plan#*:}.json" --to "$to" --on $on -o "made/$on-$to" --quiet
    done
    if shellcheck -s bash "made/slurm-$to/job.sbatch" >"$scratch/out"; then pass; else fail "shellcheck: $(cat "$scratch/out")"; fi
    if $python -c 'import jsonschema, yaml' 2>/dev/null; then
        if $python "$checks/check_yaml.py" "made/k8s-jobset-$to/jobset.yaml" ConfigMap JobSet &&
            $python "$checks/check_yaml.py" "made/k8s-trainjob-$to/trainjob.yaml" ConfigMap TrainingRuntime TrainJob &&
            $python "$checks/check_yaml.py" "made/skypilot-$to/task.yaml" "task of SkyPilot"; then pass; else fail "YAML of $to"; fi
        # The command of a pod, with the ConfigMap unpacked where it is mounted.
        for on in k8s-jobset:jobset k8s-trainjob:trainjob; do
            rm -rf pod && mkdir -p pod/plan pod/work
            $python - "made/${on%:*}-$to/${on#*:}.yaml" pod <<'END'
import pathlib, sys, yaml
documents = [d for d in yaml.safe_load_all(open(sys.argv[1])) if d]
folder = pathlib.Path(sys.argv[2])
for name, text in documents[0]["data"].items():
    (folder / "plan" / name).write_text(text)
job = documents[1]["spec"]
job = job.get("template", {}).get("spec", job)["replicatedJobs"][0]["template"]["spec"]
container = job["template"]["spec"]["containers"][0]
lines = [f"export {e['name']}='{e['value']}'" for e in container["env"]]
words = " ".join("'" + word.replace("/plan", str(folder.resolve() / "plan")) + "'" for word in container["command"])
(folder / "start.sh").write_text("\n".join(lines) + f"\ncd {folder.resolve()}/work\nexec " + words + ' "$@"\n')
END
            rm -f "$GIVEN"
            for host in 0 1; do
                PATH=$PWD/stand-ins:$PATH MEGATRON=/m JOB_COMPLETION_INDEX=$host PET_NODE_RANK=$host PET_MASTER_ADDR=gpt2-node-0-0.gpt2 \
                    PET_MASTER_PORT=29500 sh pod/start.sh --more 1 2>"$scratch/err" || fail "the pod of $to in $on"
            done
            given "--nnodes=2 --nproc_per_node=8" 2
            given "--node_rank=1 --master_addr=gpt2-node-0-0.gpt2 --master_port=29500" 1
            given "^0,1,2,3,4,5,6,7 .*--more 1$" 2
        done
    fi
    rm -f "$GIVEN"
    if (cd "made/slurm-$to" && PATH=$scratch/stand-ins:$PATH SLURM_SUBMIT_DIR=$PWD SLURM_JOB_ID=7 SLURM_JOB_NODELIST=x MEGATRON=/m \
        CUDA_VISIBLE_DEVICES=4,5 ./job.sbatch --more 1); then pass; else fail "job.sbatch of $to"; fi
    given "--nnodes=2 --nproc_per_node=8" 2
    given "--node_rank=0 --master_addr=first --master_port=20007" 1
    given "--node_rank=1 --master_addr=first --master_port=20007" 1
    given "^4,5 .*--more 1$" 2
    rm -f "$GIVEN"
    sed -n '/^run: |/,$ { /^run/d; s/^  //; p }' "made/skypilot-$to/task.yaml" >"made/skypilot-$to/run.sh"
    if (cd "made/skypilot-$to" && PATH=$scratch/stand-ins:$PATH SKYPILOT_NODE_RANK=1 SKYPILOT_NODE_IPS="10.0.0.1
10.0.0.2" MEGATRON=/m sh run.sh); then pass; else fail "the task of $to"; fi
    given "--node_rank=1 --master_addr=10.0.0.1 " 1
done
grep -q -- '--use-distributed-optimizer\|--tensor-model-parallel-size 2' "$GIVEN" || grep -q deepspeed_config "$GIVEN" || fail "the arguments are lost"
grep -qx '#SBATCH --gpus-per-node=8' made/slurm-torchrun/job.sbatch && grep -qx '#SBATCH --ntasks=2' made/slurm-torchrun/job.sbatch && pass || fail "what Slurm is asked for"
grep -q 'accelerators: "A100-80GB:8"' made/skypilot-torchrun/task.yaml && pass || fail "SkyPilot's name of the device"
expect 0 export hosts.json --to torchrun --on slurm --image registry.example/train:1
expect_output "--container-image=registry.example/train:1"
expect 0 export hosts.json --to torchrun --on k8s-jobset --rdma rdma/ib
expect_output "rdma/ib: 1" "IPC_LOCK" "mountPath: /dev/shm" "medium: Memory"
expect 0 export hosts.json --to torchrun --on k8s-jobset --rdma none
if grep -q IPC_LOCK "$scratch/out"; then fail "adapters that nobody asked for"; else pass; fi
expect 0 export ddp.json --to torchrun --on k8s-jobset
expect_output "# image: Trainyard's own has no training program but its worker"
if grep -q '^# image:' made/k8s/*.yaml; then fail "an image is asked for that was named, or that has the worker"; else pass; fi
if grep -q IPC_LOCK "$scratch/out"; then fail "plain Ethernet has no RDMA"; else pass; fi
expect 0 export hosts.json --to k8s-mpijob --image registry.example/worker:1
expect_output "mountPath: /dev/shm" "medium: Memory" "rdma/rdma_shared_device_a: 1" "IPC_LOCK" 'image: "registry.example/worker:1"'
expect 2 export hosts.json --to torchrun --on k8s-jobset --rdma 'a b'
expect_error_line "--rdma" "expected a resource"
expect 2 export hosts.json --to torchrun --on slrum
expect_error_line "did you mean slurm?"
expect 2 export hosts.json --to horovod --on slurm
expect_error_line "--on slurm: found --to horovod" "torchrun or megatron"

# The image contains what bootstrap installs.
for package in $(sed -n '/^build_packages=/,/"$/p' "$SOURCE/bootstrap" | tr -d '"' | sed 's/build_packages=//'); do
    if [ "$(grep -cw -- "$package" "$SOURCE/Containerfile")" -ge 1 ]; then pass; else fail "Containerfile lacks $package"; fi
done

# Megatron and DeepSpeed: exported files read back as the same plan.
for model in deepseek-v3 qwen3-32b; do
    sed 's/\("num_hidden_layers"\): *[0-9]*/\1: 5/; s/\("n_routed_experts"\): *[0-9]*/\1: 8/; s/\("hidden_size"\): *[0-9]*/\1: 512/' \
        "$SOURCE/tests/fuzz/corpus/hf/$model.json" >"small-$model.json"
done
sed -i 's/"model_type": "qwen3",/&\n  "rope_theta": 1000000.0,/' small-qwen3-32b.json
while read -r lanes sequence model; do
    name=$(basename "$model" | cut -d' ' -f1)
    expect 0 plan -w "$model" -c "32x dgx-h100" --fix "$(rest "pp=1,tp=$lanes,sp=$sequence,zero=1,micro_batch=1,compression=none")" --global-batch 256 --no-simulate -o m.json
    [ "$got" -eq 0 ] || continue
    expect 0 export m.json --to megatron -o "made/megatron-$name" --quiet
    bash -n "made/megatron-$name/launch.sh" && pass || fail "launch.sh of $name"
    if have shellcheck command -v shellcheck; then
        shellcheck -s sh "made/megatron-$name/launch.sh" >"$scratch/out" && pass || fail "shellcheck: $(cat "$scratch/out")"
    fi
    expect 0 workload import "made/megatron-$name/megatron.args" --json
    cp "$scratch/out" back.json
    expect 0 workload show "$model" --json
    if /usr/bin/python3 - "$scratch/out" back.json "made/megatron-$name/megatron.args" "$lanes" <<'CHECK'; then pass; else
import json, re, sys
there, back = json.load(open(sys.argv[1])), json.load(open(sys.argv[2]))
text, lanes = open(sys.argv[3]).read(), int(sys.argv[4])
vocabulary = int(re.search(r"--vocab-size (\d+)", text)[1])
hidden = int(re.search(r"--hidden-size (\d+)", text)[1])
padded = -(-vocabulary // (128 * lanes)) * 128 * lanes
assert (f"# differs: it pads the vocabulary to {padded}\n" in text) == (padded != vocabulary)
more = (padded - vocabulary) * hidden
tables = 2 if "--untie-embeddings" in text else 1
assert back["parameters"] == there["parameters"] + more * tables, (back["parameters"], there["parameters"], more)
flop = 2 * more * there["tokens_per_sample"]
assert back["forward_flop_per_sample"] == there["forward_flop_per_sample"] + flop
assert back["tokens_per_sample"] == there["tokens_per_sample"] and back["global_batch"] == 256
CHECK
        fail "$name comes back from Megatron's arguments as another workload"
    fi
done <<END
4 0 gpt2 sequence=512
8 0 llama-2-7b
8 1 mixtral-8x7b
1 0 $scratch/small-deepseek-v3.json
1 0 $scratch/small-qwen3-32b.json
END
# The base of rotary positions is the configuration's, from file to file.
grep -qx -- '--rotary-base 1000000' made/megatron-small-qwen3-32b.json/megatron.args && pass || fail "the rotary base of qwen3-32b"
expect 0 workload import made/megatron-small-qwen3-32b.json/megatron.args -o rotary.json
grep -q '"rotary_base": 1000000' rotary.json && pass || fail "the rotary base is not read back"
expect 0 export gpt.json --to megatron
if grep -q rotary "$scratch/out"; then fail "learned positions have a rotary base"; else pass; fi
expect_output "--tensor-model-parallel-size 2" "--micro-batch-size" "--num-layers 12"
expect 1 export ddp.json --to megatron
expect_error_line "decoder"
# Recomputed segments are expressed there as numbers of blocks that divide a stage's.
segments="-w gpt2 -c 1x\ dgx-h100 --seq 256 --no-simulate -q --fix pp=1,dp=8,micro_batch=1,compression=none,tp=1,cp=1,ep=1,sp=0,zero=0,interleave=1"
for kind in full full:4 full:5 stage operator elementwise; do
    eval "expect 0 plan $segments,recompute=$kind -o recomputed-$kind.json"
done
expect 0 export recomputed-full.json --to megatron
expect_output "--recompute-granularity full" "--recompute-method uniform" "--recompute-num-layers 1"
expect 0 export recomputed-full:4.json --to megatron
expect_output "--recompute-num-layers 4"
expect 0 export recomputed-stage.json --to megatron
expect_output "--recompute-num-layers 12"
expect 1 export recomputed-full:5.json --to megatron
expect_error_line "found 5 of the 12 blocks of stage 0" "recompute=full"
expect 1 export recomputed-operator.json --to megatron
expect_error_line "not every other product (operator)" "recompute=full or selective"
expect 1 export recomputed-elementwise.json --to megatron
expect_error_line "activation functions of routed experts" "block1.mlp" "recompute=full or none"
expect 1 export recomputed-full:4.json --to torchrun
expect_error_line "block by block" "recompute=full"
expect 0 plan -w resnet50 -c "1x p100-server" --fix "$(rest pp=1,recompute=full)" --no-simulate -q -o blocks.json
expect 0 plan -w lenet -c "1x p100-server" --fix "$(rest pp=1,recompute=full)" --no-simulate -q -o few.json
expect 1 export few.json --to torchrun
expect_error_line "lenet repeats none" "recompute=none"
# Context and expert parallelism: the micro-batch size there is that of one rank.
moe="-w mixtral-8x7b -c 8x\ dgx-h100 --seq 256 --global-batch 64 --no-simulate -q"
eval "expect 0 plan $moe --fix $(rest pp=1,tp=2,ep=4,sp=1,zero=1,micro_batch=8,compression=none) -o experts.json"
eval "expect 0 plan $moe --fix $(rest pp=1,tp=2,cp=2,ep=4,sp=1,zero=1,compression=none) -o lanes.json"
eval "expect 0 plan $moe --fix $(rest pp=1,tp=2,ep=4,sp=0,zero=1,compression=none) -o whole.json"
expect 1 export whole.json --to megatron
expect_error_line "need sequence parallelism" "--fix sp=1"
eval "expect 0 plan $moe --fix $(rest pp=1,tp=2,ep=4,sp=1,zero=1,micro_batch=8,compression=none,recompute=elementwise) -o discarded.json"
expect 0 export discarded.json --to megatron
expect_output "--recompute-granularity selective" "--recompute-modules layernorm moe_act"
expect 0 export experts.json --to megatron
expect_output "--tensor-model-parallel-size 2" "--expert-model-parallel-size 4" "--micro-batch-size 2"
expect 0 export lanes.json --to megatron -o made/lanes --force --quiet
grep -q "differs: it divides experts among the parts of a sequence first" made/lanes/megatron.args && pass || fail "which devices share experts is not said"
if $python "$checks/check_megatron.py" made/lanes lanes.json >"$scratch/out" 2>&1; then pass; else fail "experts beside context lanes: $(tail -1 "$scratch/out")"; fi
# A plan that its framework cannot run is not proposed, and the pin is refused.
eval "expect 2 plan $moe --stack megatron --fix pp=1,tp=2,ep=4,sp=0"
expect_error_line "stack megatron has sequence parallelism if models with experts have tensor parallelism; found 2"
eval "expect 2 plan $moe --stack megatron --precision fp16 --fix ep=4"
expect_error_line "stack megatron has no expert parallelism in fp16; found 4"
expect 2 plan -w gpt2 -c "1x dgx-h100" --stack megatron --fix pp=2,recompute=full:4
expect_error_line "found 12 blocks, 2 of such stages, and 4"
expect 2 plan -w gpt2 -c "1x dgx-h100" --stack megatron --fix layers=38+38
expect_error_line "begins at layer 38 of the 76 of gpt2" "stages of stack megatron are of whole blocks"
expect 2 plan -w gpt2 -c "1x dgx-h100" --stack megatron --fix pp=8,interleave=2
expect_error_line "at most 14 stages, 16 were asked for"
# A model that Megatron has no arguments for is planned with a note; other frameworks get no note.
expect 0 plan -w "gnmt-8 batch=32" -c "2x dgx-a100" --precision fp16 --stack megatron --no-simulate -o translated.json
grep -q "warning: no launch files for this plan: --to megatron: pretrain_gpt.py trains decoders.* of gnmt-8 is" "$scratch/err" && pass ||
    fail "plan does not say that Megatron-LM has no arguments for it"
expect 1 export translated.json --to megatron
expect 0 plan -w "gpt2 batch=32" -c "2x dgx-a100" --stack megatron --no-simulate -o said.json
if grep -q "no launch files" "$scratch/err"; then fail "launch files that are there"; else pass; fi
expect 0 plan -w "gnmt-8 batch=32" -c "2x dgx-a100" --stack pytorch-ddp --no-simulate -o said.json
if grep -q "no launch files" "$scratch/err"; then fail "a stack without launch files of its own"; else pass; fi
# An embedding, and a head, may be stages by themselves: the published layout of Llama 3.1 405B's
# 126 blocks is 16 x 8.
expect 0 plan -w "decoder blocks=14 features=512 heads=8 kv_heads=8 hidden_features=2048 vocabulary=32000 sequence=512" -c "1x dgx-h100" --stack megatron --global-batch 64 \
    --fix pp=8,interleave=2,schedule=interleaved,micro_batch=1 --no-simulate -q -o ends.json
expect 0 export ends.json --to megatron -o made/ends --quiet
if $python "$checks/check_megatron.py" made/ends ends.json >"$scratch/out" 2>&1; then pass; else fail "stages of an embedding and of a head: $(tail -1 "$scratch/out")"; fi
expect 1 export experts.json --to torchrun
expect_error_line "tensor parallelism of 2"
expect 3 workload import made/deepspeed/ds_config.json
expect_error_line "DeepSpeed configuration" "batch=256"
expect 0 workload import made/deepspeed/ds_config.json --workload gpt2 -o back.json
grep -q "DeepSpeed configuration" "$scratch/err" && pass || fail "import does not say what it read"
grep -q '"global_batch": 256' back.json && pass || fail "the batch of ds_config.json"
grep -q '"train_micro_batch_size_per_gpu"' made/deepspeed/ds_config.json && pass || fail "ds_config.json"

# The settings of torchrun, Horovod and DeepSpeed match the plan: precision, recomputation,
# sharding, buckets. Accelerate's module does not repeat the settings of its own file.
while IFS='|' read -r targets precision model cluster fix others; do
    # shellcheck disable=SC2086 # several options
    expect 0 plan -w "$model" -c "$cluster" --fix "$(rest "$fix")" $others --no-simulate -q -o settings.json
    for to in $targets; do
        expect 0 export settings.json --to "$to" -o made/settings --quiet --force
        if $python "$checks/check_settings.py" made/settings/trainyard_plan.py settings.json "$to" "$precision" >"$scratch/out" 2>&1; then pass; else
            fail "trainyard_plan.py for $to of $model on $cluster, $fix: $(tail -n 1 "$scratch/out")"
        fi
    done
done <<END
torchrun horovod deepspeed|bf16|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,compression=none
torchrun horovod deepspeed|bf16|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,compression=none,recompute=full,bucket=25MB
torchrun deepspeed|bf16|gpt2 sequence=512|2x dgx-h100|pp=1,tp=1,compression=none,recompute=operator,zero=3
torchrun deepspeed|bf16|gpt2 sequence=512|2x dgx-h100|pp=1,tp=1,compression=none,recompute=elementwise,zero=3
torchrun deepspeed|bf16|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,compression=none,recompute=selective,zero=2,micro_batch=1
torchrun accelerate|bf16|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,zero=3,recompute=full,compression=none
accelerate|bf16|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,zero=2,recompute=selective,micro_batch=1,compression=none
torchrun deepspeed|bf16|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,zero=1,compression=none
torchrun|bf16|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,compression=bf16
torchrun horovod deepspeed|fp16|gpt2 sequence=512|2x dgx1-v100|pp=1,tp=1,compression=fp16
torchrun horovod deepspeed|fp32|resnet50|4x p100-server|pp=1,bucket=4MB
torchrun|fp32|vgg16|4x p100-server|pp=1,bucket=1MB
torchrun|fp32|resnet50|4x p100-server|pp=1,compression=none
torchrun|bf16|gpt2 sequence=512|2x dgx-h100|pp=1,tp=1,compression=none,recompute=full,zero=3|--precision fp8 --stack pytorch-fsdp
torchrun|bf16|gpt2 sequence=512|2x dgx-h100|pp=1,tp=1,compression=none|--precision fp8 --stack pytorch-ddp
END
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,tp=1,compression=bf16)" --no-simulate -q -o half.json
expect 1 export half.json --to horovod
expect_error_line "halves gradients to fp16 only"
expect 0 export half.json --to deepspeed -o made/half --quiet
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,tp=1,compression=none,zero=3)" --no-simulate -q -o sharded.json
expect 0 export sharded.json --to deepspeed -o made/sharded --quiet
expect 0 export ddp.json --to deepspeed -o made/whole --quiet
if /usr/bin/python3 - made/half made/sharded made/whole <<'END'; then pass; else fail "ds_config.json"; fi
import json, sys
half, sharded, whole = (json.load(open(folder + "/ds_config.json")) for folder in sys.argv[1:])
for config in half, sharded:
    assert config["bf16"] == {"enabled": True} and config["fp16"] == {"enabled": False}
    assert config["data_types"] == {"grad_accum_dtype": "fp32"}
assert half["communication_data_type"] == "bf16" and sharded["communication_data_type"] == "fp32"
assert whole["bf16"] == whole["fp16"] == {"enabled": False}
zero = sharded["zero_optimization"]
assert zero["stage"] == 3 and zero["stage3_prefetch_bucket_size"] == zero["reduce_bucket_size"] > 0
assert not [key for key in half["zero_optimization"] if key.startswith("stage3")]
assert "contiguous_gradients" not in whole["zero_optimization"]
END

# Megatron's own rules accept every exported file, and it trains the planned layout.
while IFS='|' read -r model cluster fix others; do
    # shellcheck disable=SC2086 # several options
    expect 0 plan -w "$model" -c "$cluster" --fix "$(rest "$fix,compression=none")" $others --no-simulate -q -o ruled.json
    rm -rf made/ruled
    expect 0 export ruled.json --to megatron -o made/ruled --quiet
    if $python "$checks/check_megatron.py" made/ruled ruled.json >"$scratch/out" 2>&1; then pass; else
        fail "Megatron's rules: $model on $cluster, $fix: $(tail -n 1 "$scratch/out")"
    fi
done <<END
llama-3.1-8b batch=128|2x dgx-h100|tp=2,pp=1,zero=1|
mixtral-8x7b batch=64 sequence=256|8x dgx-h100|tp=2,ep=4,pp=1,sp=1,zero=1,recompute=elementwise|
llama-3.1-8b batch=128|2x dgx-h100|tp=2,pp=2|--stack megatron
llama-3.1-8b batch=128|2x dgx-h100|tp=8,pp=2,sp=1,zero=1,recompute=full|
llama-3.1-8b batch=128|2x dgx-h100|tp=4,pp=2,interleave=4,schedule=interleaved|--stack megatron
llama-3.1-8b batch=128|4x dgx-a100|tp=4,pp=1,cp=2,zero=1,recompute=selective|
llama-3.1-70b batch=512|64x dgx-h100|pp=4,tp=4,sp=1,interleave=10,schedule=interleaved,zero=1|--stack megatron
llama-3.1-70b batch=512|64x dgx-h100|pp=8,tp=4,recompute=full:5|--stack megatron
gpt2 sequence=512|4x dgx1-v100|tp=2,pp=2,schedule=1f1b|--precision fp16
gpt2 sequence=512|2x p100-server|pp=1,dp=4,tp=2|--precision fp32
gpt2 sequence=512|2x dgx-a100|pp=1,tp=2|--stack megatron-2021
mixtral-8x7b batch=256|16x dgx-h100|tp=2,ep=4,sp=1,zero=1,pp=1|
qwen3-30b-a3b batch=256|16x dgx-h100|ep=8,zero=1,pp=1|
llama-2-13b batch=512|2x dgx-a100|pp=8|
llama-2-70b batch=512|16x dgx-a100|tp=8,pp=4,recompute=stage|
END
# The checker refuses files that Megatron would stop at.
expect 0 export ruled.json --to megatron -o made/ruled --quiet --force
for edit in 's/^--bf16/--bf16\n--fp16/' 's/^--seed/--seeds/' 's/^--num-attention-heads .*/--num-attention-heads 60/' \
    's/^--global-batch-size .*/--global-batch-size 511/' 's/^--num-layers .*/--num-layers 41/'; do
    mkdir -p made/broken
    sed "$edit" made/ruled/megatron.args >made/broken/megatron.args
    cp made/ruled/launch.sh made/broken/
    if cmp -s made/ruled/megatron.args made/broken/megatron.args; then fail "the edit $edit changed nothing"; fi
    if $python "$checks/check_megatron.py" made/broken ruled.json >/dev/null 2>&1; then fail "Megatron's rules: $edit is taken"; else pass; fi
done

# torchtitan, Accelerate, NCCL's tuner: against the plan.
while IFS='|' read -r targets model cluster fix others; do
    # shellcheck disable=SC2086 # several options
    expect 0 plan -w "$model" -c "$cluster" --fix "$(rest "$fix,compression=none")" $others --no-simulate -q -o others.json
    for to in $targets; do
        rm -rf made/others
        expect 0 export others.json --to "$to" -o made/others --quiet
        if $python "$checks/check_others.py" "$to" made/others others.json >"$scratch/out" 2>&1; then pass; else
            fail "$to of $model on $cluster, $fix: $(tail -n 1 "$scratch/out")"
        fi
        if [ -f made/others/launch.sh ] && ! shellcheck -s sh made/others/launch.sh >"$scratch/out"; then
            fail "shellcheck of $to: $(cat "$scratch/out")"
        else pass; fi
        if [ "$to" = accelerate ] && ! $python "$checks/check_yaml.py" made/others/accelerate.yaml "configuration of Accelerate"; then
            fail "accelerate.yaml"
        else pass; fi
    done
done <<END
torchtitan nccl-tuner|llama-3.1-8b batch=256|8x dgx-h100|pp=1,tp=2,sp=1,zero=3,recompute=operator|
torchtitan|llama-3.1-8b batch=256|8x dgx-h100|pp=4,tp=4,sp=1,zero=2,schedule=1f1b,recompute=full|--stack torchtitan
torchtitan nccl-tuner|llama-3.1-8b batch=256|8x dgx-h100|pp=4,tp=2,sp=1,interleave=2,schedule=interleaved,zero=2|--stack torchtitan
torchtitan|qwen3-32b batch=256|8x dgx-h100|pp=1,tp=4,sp=1,zero=3,recompute=full|
torchtitan|llama-3.1-8b batch=256|8x dgx-h100|pp=1,tp=2,sp=1,zero=3,recompute=full|--precision fp8
accelerate nccl-tuner|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,zero=3,recompute=full|
accelerate|gpt2 sequence=512|2x dgx-a100|pp=1,tp=1,zero=2|
accelerate nccl-tuner|gpt2 sequence=512|2x dgx1-v100|pp=1,tp=1,zero=0,algorithm=ring|
accelerate nccl-tuner|resnet50|4x p100-server|pp=1,algorithm=tree|
END
# A plan in 8 bits, exported and imported; other formats cannot express it in a file.
expect 0 plan -w "llama-3.1-8b batch=64" -c "8x dgx-h100" --fix "$(rest pp=1,zero=3,compression=none)" --precision fp8 --no-simulate -q -o narrow.json
expect 0 export narrow.json --to torchtitan -o made/narrow --quiet
expect 0 plan --config made/narrow/torchtitan.toml --cluster "8x dgx-h100" --no-simulate -q --json
expect_output '"precision": "fp8"'
expect 0 export narrow.json --to k8s-pytorchjob
expect_output "in_fp8(model)"
expect 0 plan -w lenet -c "1x dgx-h100" --stack pytorch-ddp --precision fp8 --fix "$(rest pp=1,compression=none)" --no-simulate -q -o few.json
expect 1 export few.json --to torchrun
expect_error_line "products in fp8" "lenet repeats none"
expect 1 export narrow.json --to deepspeed
expect_error_line "found a plan in fp8, which only --to k8s-pytorchjob, torchrun, megatron, torchtitan can say" "--precision bf16"
expect 1 export ddp.json --to torchtitan
expect_error_line "no model for resnet50"
expect 0 plan -w "llama-3.1-8b batch=256" -c "8x dgx-h100" --fix "$(rest pp=1,tp=4,sp=1,zero=0,compression=none)" --stack megatron --no-simulate -q -o others.json
expect 1 export others.json --to torchtitan
expect_error_line "replicates unsharded models only" "zero=2 or 3"
expect 0 plan -w "llama-3.1-8b batch=256" -c "8x dgx-h100" --fix "$(rest pp=4,tp=4,sp=1,zero=1,compression=none)" --no-simulate -q -o others.json
expect 1 export others.json --to torchtitan
expect_error_line "shards weights, gradients and optimizer together"
# An optimizer that a framework lacks.
expect 0 plan -w "llama-3.1-8b batch=256" -c "8x dgx-h100" --fix "$(rest pp=1,tp=4,sp=1,zero=1,compression=none)" --optimizer muon --no-simulate -q -o muon.json
expect 1 export muon.json --to megatron
expect_error_line "its distributed optimizer does not run muon" "zero=0"
expect 0 plan -w "llama-3.1-8b batch=256" -c "8x dgx-h100" --fix "$(rest pp=1,tp=4,sp=1,zero=3,recompute=none,compression=none)" --stack torchtitan --optimizer muon --no-simulate -q -o muon.json
expect 1 export muon.json --to torchtitan
expect_error_line "trains by AdamW, and the plan by muon" "--optimizer adamw"
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,tp=1,zero=0,recompute=none,compression=none)" --optimizer adam8bit --no-simulate -q -o narrow_states.json
expect 1 export narrow_states.json --to deepspeed
expect_error_line "do not include adam8bit" "--optimizer adamw"
expect 1 export narrow_states.json --to megatron
expect_error_line "it has no optimizer adam8bit"
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,tp=1,zero=0,recompute=none,compression=none)" --optimizer adafactor --no-simulate -q -o factored.json
expect 0 export factored.json --to torchrun
expect_output "OPTIMIZER = torch.optim.Adafactor" "OPTIMIZER_SETTINGS = dict(lr=0.01, weight_decay=0)"
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,tp=1,zero=0,recompute=full,compression=none)" --no-simulate -q -o others.json
expect 1 export others.json --to accelerate
expect_error_line "recomputes whole blocks, with FSDP"
expect 0 plan -w mlp -c local:2 --fix "$(rest pp=1,dp=2)" -q -o processors.json
expect 1 export processors.json --to nccl-tuner
expect_error_line "the plan has processors"
expect 0 export hosts.json --to accelerate --on slurm -o made/accelerate-slurm --quiet
grep -q 'machine_rank "${NODE_RANK:-0}"' made/accelerate-slurm/launch.sh && [ -x made/accelerate-slurm/job.sbatch ] && pass || fail "Accelerate under Slurm"

# The plans of docs/guides/export.md: the files match the plan item by item, as on the page.
llama='-w llama-3.1-70b\ batch=512 -c 64x\ dgx-h100 --no-simulate -q'
eval "expect 0 plan $llama --stack megatron --fix $(rest pp=4,tp=4,sp=1,interleave=10,schedule=interleaved,zero=1,compression=none) -o llama.json"
eval "expect 0 plan $llama --stack pytorch-fsdp --fix $(rest pp=1,tp=1,zero=3,recompute=full,compression=none) -o llama-sharded.json"
expect 0 export llama.json --to megatron --on slurm -o made/llama-slurm --quiet
expect 0 export llama.json --to megatron --on k8s-jobset -o made/llama-jobset --quiet
expect 0 export llama-sharded.json --to torchrun --on slurm -o made/llama-torchrun --quiet
if $python "$checks/items.py" llama.json made/llama-slurm made/llama-jobset llama-sharded.json made/llama-torchrun >items.txt 2>"$scratch/err"; then pass; else
    fail "what was planned and what the files say"
fi
[ "$(wc -l <items.txt)" -gt 25 ] && pass || fail "the table of items is short"
while read -r line; do
    [ -z "$line" ] || grep -qxF -- "$line" "$SOURCE/docs/guides/export.md" || fail "docs/guides/export.md lacks: $line"
done <items.txt
pass
if sed 's/--bf16/--fp16/' -i made/llama-slurm/megatron.args &&
    $python "$checks/items.py" llama.json made/llama-slurm made/llama-jobset llama-sharded.json made/llama-torchrun >/dev/null 2>&1; then
    fail "another precision is not seen"
else pass; fi

# A plan for GPUs runs on GPUs in the plan's precision, unless specified otherwise.
job_has() { # job_has PATTERN WORDS...
    pattern=$1
    shift
    expect 0 export "$@"
    if grep -q "$pattern" "$scratch/out"; then pass; else fail "the job lacks $pattern: $*"; fi
}
job_has '"backend": "cuda"' gpt.json --to slurm
job_has '^ *"precision": "bf16",$' gpt.json --to k8s-mpijob
job_has '"backend": "cuda"' ddp.json --to mpirun
if grep -q '^  "precision"' "$scratch/out"; then fail "fp32 is not said"; else pass; fi
job_has '"backend": "cpu"' gpt.json --to slurm --backend cpu
if grep -q '^  "precision"' "$scratch/out"; then fail "processors have no bf16"; else pass; fi
job_has '"precision": "tf32"' ddp.json --to mpirun --precision tf32
expect 0 plan -w gpt2 -c "torus:4x4 @tpu-v4 ici-v4 host:4" --no-simulate -q -o tpu.json
expect 1 export tpu.json --to mpirun
expect_error_line "--to mpirun" "found tpu-v4" "--backend cpu"
job_has '"backend": "cpu"' tpu.json --to mpirun --backend cpu

# Chakra: dependencies, transfers and groups of all processes are consistent.
for plan in ddp pipe gpt lanes; do
    expect 0 export $plan.json --to chakra -o "made/chakra-$plan" --quiet
    if /usr/bin/python3 "$checks/check_chakra.py" "made/chakra-$plan"; then pass; else fail "Chakra traces of $plan"; fi
done
for algorithm in ring hierarchical parameter-server block-manager; do
    expect 0 plan -w resnet50 -c "4x p100-server" --fix "$(rest pp=1,compression=none,algorithm=$algorithm)" --no-simulate -q -o exchanged.json
    expect 0 export exchanged.json --to chakra -o made/exchanged --quiet --force
    if /usr/bin/python3 "$checks/check_chakra.py" made/exchanged exchanged.json; then pass; else fail "Chakra traces of $algorithm"; fi
    [ $algorithm != ring ] || { expect 0 export exchanged.json --to torchrun && expect_output "export NCCL_ALGO=Ring" "export NCCL_DEBUG=WARN"; }
done
expect 0 workload import made/chakra-ddp/trace.0.et
expect 2 export ddp.json --to chakra

# Plans that the worker does not support are refused by name.
expect 0 plan -w dqn-atari -c "host:1 gpu:2 @t4 pcie3 eth10 nics=2" --no-simulate -q -o opaque.json
expect 1 run opaque.json --anyway --steps 2
if grep -q "dqn-atari: found layer td_loss at the end" "$scratch/err"; then pass; else fail "the worker does not say what it refuses"; fi

# mpirun starts our worker for real.
expect 0 plan -w mlp -c local:2 --fix "$(rest pp=1,compression=none)" -q -o local.json
expect 0 export local.json --to mpirun -o made/run --steps 6 --quiet
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
if made/run/launch.sh --oversubscribe >"$scratch/out" 2>"$scratch/err"; then pass; else fail "launch.sh of mpirun"; fi
expect 0 compare local.json made/run/run.json

# Slurm on one node, this host: it accepts our script and runs it.
. "$SOURCE/tests/launch/slurm.sh"
expect 0 export local.json --to slurm -o made/sbatch --steps 6 --quiet
if [ "$(id -u)" -ne 0 ] || [ "$(nproc)" -lt 2 ]; then
    echo "skipped: Slurm's daemons need root and two processors"
elif have "Slurm (slurmctld, slurmd, munge)" command -v slurmctld && have munge command -v munged; then
    if ! slurm_start; then
        echo "skipped: Slurm does not start here: $(tail -n 1 "$scratch/slurm/d.log" "$scratch/slurm/ctld.log" | tr '\n' ' ')"
    else
        mpi=pmix
        srun --mpi=list 2>&1 | grep -q pmix || mpi=none
        if (cd made/sbatch && TRAINYARD_MPI=$mpi timeout 120 sbatch --wait job.sbatch) >"$scratch/out" 2>"$scratch/err"; then pass; else
            fail "sbatch"
            cat "$scratch/out" made/sbatch/*.out
        fi
        expect 0 compare local.json made/sbatch/run.json
    fi
fi

# torchrun starts two ranks that train with the plan's settings.
cat >train.py <<'END'
import torch, torch.distributed as dist
import trainyard_plan as plan
dist.init_process_group("gloo")
torch.manual_seed(plan.SEED)
model = plan.wrap(torch.nn.Linear(8, 1))
optimizer = plan.optimizer(model)
for step in range(3):
    optimizer.zero_grad()
    for number in range(plan.PASSES):
        with plan.accumulating(model, number):
            model(torch.ones(plan.MICRO_BATCH, 8) * (dist.get_rank() + 1)).sum().backward()
    optimizer.step()
total = torch.cat([p.detach().flatten() for p in model.parameters()])
other = total.clone()
dist.broadcast(other, 0)
assert dist.get_world_size() == plan.PROCESSES == 2 and torch.equal(total, other)
print("rank", dist.get_rank(), "agrees")
END
# PyTorch itself recomputes blocks, and its buckets are the plan's.
cat >blocks.py <<'END'
import json, sys
import torch
import torch.distributed as dist
settings = {}
exec(compile(open(sys.argv[1]).read(), sys.argv[1], "exec"), settings)
plan = json.load(open(sys.argv[2]))

class Block(torch.nn.Module):
    runs = 0

    def __init__(self):
        super().__init__()
        self.inside = torch.nn.Linear(4, 4)

    def forward(self, x):
        Block.runs += 1
        return torch.tanh(self.inside(x))

model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ModuleList([Block() for _ in range(settings["BLOCKS"])]))
made = settings["checkpointed"](model)
x = made[0](torch.ones(2, 4))
with settings["precision"]() if settings["DEVICE"] == "cpu" else torch.autocast("cpu", dtype=settings["PRECISION"]):
    for block in made[1]:
        x = block(x)
x.float().sum().backward()
assert Block.runs == 2 * settings["BLOCKS"], "forward, and again in backward"
element = plan["workload"]["element_bytes"]
layers = [(i, l) for i, l in enumerate(plan["workload"]["layers"]) if l["parameter_bytes"] > 0]
tensors = [torch.empty(l["parameter_bytes"] // element) for i, l in reversed(layers)]
buckets, _ = dist._compute_bucket_assignment_by_size(tensors, [settings["BUCKET_BYTES"]])
lasts = [max(layers[len(layers) - 1 - t][0] for t in bucket) for bucket in buckets]
kept = {i for i, l in layers}
planned = [max(i for i in range(b["first_layer"], b["first_layer"] + b["layer_count"]) if i in kept) for b in plan["buckets"]]
assert lasts == planned and len(planned) > 3, (lasts, planned)
print("agrees")
END
expect 0 plan -w "gpt2 sequence=512" -c "2x dgx-a100" --fix "$(rest pp=1,tp=1,compression=none,recompute=full,bucket=25MB)" --no-simulate -q -o buckets.json
expect 0 export buckets.json --to torchrun -o made/buckets --quiet
if have python3-torch $python -c 'import torch'; then
    if $python blocks.py made/buckets/trainyard_plan.py buckets.json >"$scratch/out" 2>"$scratch/err" && grep -q agrees "$scratch/out"; then pass; else
        fail "PyTorch makes other blocks or buckets: $(tail -n 1 "$scratch/err")"
    fi
fi
expect 0 export local.json --to torchrun -o made/torch --quiet
if have python3-torch $python -c 'import torch.distributed.run'; then
    cp train.py made/torch/
    # Debian's 1.13 under Python 3.11 takes no --redirects 0, its default, nor 3.
    if TORCHRUN="$python -m torch.distributed.run --redirects 1 --tee 1 --log_dir $scratch/log" timeout 120 made/torch/launch.sh >"$scratch/out" 2>"$scratch/err" &&
        [ "$(cat "$scratch/out" "$scratch/err" | grep -c agrees)" -eq 2 ]; then pass; else fail "torchrun"; tail -n 20 "$scratch/err"; fi
fi
finish
