"""The plan against the files, item by item, as the table of docs/guides/export.md:
items.py PLAN MEGATRON_ON_SLURM MEGATRON_ON_KUBERNETES SHARDED_PLAN TORCHRUN_ON_SLURM. An item that differs ends it."""

import json
import pathlib
import re
import sys

import yaml

plan, sharded = (json.loads(pathlib.Path(sys.argv[i]).read_text()) for i in (1, 4))
slurm, cube, torch = (pathlib.Path(sys.argv[i]) for i in (2, 3, 5))


def words(text):
    return " ".join(re.sub(r"#.*", "", text.replace("#SBATCH ", "")).split()) + " "


def says(text, *wanted):
    """The words of a file, which must exist."""
    for word in wanted:
        assert word + " " in words(text), word
    return ", ".join(f"`{word}`" for word in wanted)


def row(item, planned, *files):
    print("| " + " | ".join([item, str(planned), *files]) + " |")


arguments, script, batch = ((slurm / name).read_text() for name in ("megatron.args", "launch.sh", "job.sbatch"))
config, jobset = [d for d in yaml.safe_load_all((cube / "jobset.yaml").read_text()) if d]
assert config["data"]["megatron.args"].splitlines()[8:] == arguments.splitlines()[8:], "the same arguments in the ConfigMap"
job = jobset["spec"]["replicatedJobs"][0]["template"]["spec"]
container = job["template"]["spec"]["containers"][0]
settings = (torch / "trainyard_plan.py").read_text()
torch_batch, torch_script = ((torch / name).read_text() for name in ("job.sbatch", "launch.sh"))

stages, workload, optimizer = plan["stages"], plan["workload"], plan["optimizer"]
pipeline_ranks, tensor = len(stages) // plan["interleave"], plan["tensor_parallel"]
devices = pipeline_ranks * stages[0]["replicas"] * tensor
attention = [i for i, layer in enumerate(workload["layers"]) if layer["kind"] == "attention"]
blocks = {sum(s["first_layer"] <= i < s["first_layer"] + s["layer_count"] for i in attention) for s in stages}
assert len(blocks) == 1
each = blocks.pop()
limits = container["resources"]["limits"]
assert job["completions"] == job["parallelism"] == devices // 8 and limits["nvidia.com/gpu"] == 8

print("| item | planned | Slurm and Megatron-LM | Kubernetes, where it says it itself |\n| --- | --- | --- | --- |")
row("hosts", devices // 8, says(batch, f"--nodes={devices // 8}") + ", " + says(script, f"--nnodes={devices // 8}"), f"`completions: {job['completions']}`")
row("devices a host", 8, says(batch, "--gpus-per-node=8") + ", " + says(script, "--nproc_per_node=8"), "`nvidia.com/gpu: 8`")
row("TP size", tensor, says(arguments, f"--tensor-model-parallel-size {tensor}"), "")
row("sequence parallel", "yes", says(arguments, "--sequence-parallel"), "")
row("PP size, virtual stages", f"{pipeline_ranks}, {len(stages)} of {each}", says(arguments, f"--pipeline-model-parallel-size {pipeline_ranks}", f"--num-layers-per-virtual-pipeline-stage {each}"), "")
row("replicas", stages[0]["replicas"], f"{devices} processes / {tensor} / {pipeline_ranks}", "")
row("batch, micro-batch", f"{plan['global_batch']}, {plan['micro_batch_size']}", says(arguments, f"--global-batch-size {plan['global_batch']}", f"--micro-batch-size {plan['micro_batch_size']}"), "")
assert workload["element_bytes"] == 2 and plan["stack"]["gradient_bytes"] == 4
row("precision", "bf16, gradients fp32", says(arguments, "--bf16", "--accumulate-allreduce-grads-in-fp32"), "")
assert plan["zero"] == 1 and plan["stack"]["overlaps_exchange"]
row("sharded", "optimizer", says(arguments, "--use-distributed-optimizer"), "")
row("gradient all-reduce", "during backward and forward", says(arguments, "--overlap-grad-reduce", "--overlap-param-gather"), "")
assert {s["recompute"] for s in stages} == {"none"} and "--recompute" not in arguments
row("recompute", "none", "no `--recompute-granularity`", "")
assert not plan["stack"]["has_dropout"]
row("dropout", "none", says(arguments, "--attention-dropout 0.0", "--hidden-dropout 0.0"), "")
shape = workload["layers"][attention[0]]["attributes"]
row("blocks, features, heads", f"{len(attention)}, {shape['features']}, {shape['heads']}/{shape['kv_heads']}", says(arguments, f"--num-layers {len(attention)}", f"--hidden-size {shape['features']}", f"--num-attention-heads {shape['heads']}", f"--num-query-groups {shape['kv_heads']}"), "")
row("sequence, rotary base", f"{workload['tokens_per_sample']}, {workload['rotary_base']}", says(arguments, f"--seq-length {workload['tokens_per_sample']}", f"--rotary-base {workload['rotary_base']}"), "")
vocabulary = workload["layers"][0]["attributes"]["vocabulary"]
padded = -(-vocabulary // (128 * tensor)) * 128 * tensor
assert f"# differs: it pads the vocabulary to {padded}\n" in arguments
row("vocabulary", vocabulary, says(arguments, f"--vocab-size {vocabulary}") + f"; differs: Megatron-LM pads it to {padded}, and the file says so", "")
row("optimizer", f"AdamW, rate {optimizer['learning_rate']}", says(arguments, "--optimizer adam", f"--lr {optimizer['learning_rate']}", "--lr-decay-style constant"), "")
row("adapters, shared memory", "InfiniBand", "the host's", "`rdma/rdma_shared_device_a: 1`, `/dev/shm` in memory")
assert limits["rdma/rdma_shared_device_a"] == 1
assert {"name": "shared-memory", "mountPath": "/dev/shm"} in container["volumeMounts"]

stage, optimizer = sharded["stages"][0], sharded["optimizer"]
print("\n| item | planned | Slurm and torchrun |\n| --- | --- | --- |")
row("hosts, devices a host", f"{stage['replicas'] // 8}, 8", says(torch_batch, f"--nodes={stage['replicas'] // 8}", "--gpus-per-node=8") + ", " + says(torch_script, f"--nnodes={stage['replicas'] // 8}", "--nproc_per_node=8"))
row("batch, micro-batch, passes", f"{sharded['global_batch']}, {sharded['micro_batch_size']}, {sharded['micro_batches'] // stage['replicas']}", says(settings, f"GLOBAL_BATCH = {sharded['global_batch']}", f"MICRO_BATCH = {sharded['micro_batch_size']}", f"PASSES = {sharded['micro_batches'] // stage['replicas']}"))
row("precision", "bf16, gradients fp32", says(settings, "PRECISION = torch.bfloat16", "GRADIENTS = torch.float32") + ": `MixedPrecisionPolicy`")
row("sharded", "weights, gradients, optimizer", says(settings, f"ZERO = {sharded['zero']}") + ": `fully_shard` of every block")
row("recompute", stage["recompute"], says(settings, f'RECOMPUTE = "{stage["recompute"]}"', f"BLOCKS = {len(attention)}") + ": `checkpoint_wrapper` of every block")
row("sequence", sharded["workload"]["tokens_per_sample"], says(settings, f"SEQUENCE = {sharded['workload']['tokens_per_sample']}"))
row("optimizer", f"AdamW, rate {optimizer['learning_rate']}", says(settings, "OPTIMIZER = torch.optim.AdamW", f"OPTIMIZER_SETTINGS = dict(lr={optimizer['learning_rate']},"))
