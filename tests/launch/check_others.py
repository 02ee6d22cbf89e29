"""Files of torchtitan, Accelerate and NCCL's tuner against the plan: check_others.py TARGET FOLDER PLAN."""

import json
import pathlib
import sys
import tomllib

import yaml


def devices(plan):
    lanes = plan.get("tensor_parallel", 1) * plan.get("context_parallel", 1) * plan.get("expert_parallel", 1)
    return sum(stage["replicas"] for stage in plan["stages"]) // plan.get("interleave", 1) * lanes


def torchtitan(folder, plan):
    config = tomllib.loads((folder / "torchtitan.toml").read_text())
    p, t = config["parallelism"], config["training"]
    positions = len(plan["stages"]) // plan.get("interleave", 1)
    ep = plan.get("expert_parallel", 1)
    degrees = [p[key + "_degree"] for key in ("tensor_parallel", "context_parallel", "expert_parallel")]
    assert degrees == [plan.get(key, 1) for key in ("tensor_parallel", "context_parallel", "expert_parallel")]
    assert p["pipeline_parallel_degree"] == positions
    data = p["data_parallel_replicate_degree"] * p["data_parallel_shard_degree"]
    # torchtitan: the remaining dimension is data parallel; experts are sharded inside it
    assert data * degrees[0] * degrees[1] * positions == devices(plan)
    zero = plan.get("zero", 0)
    assert (p["data_parallel_shard_degree"] > 1) == (zero >= 2 and data > 1)
    assert p["fsdp_reshard_after_forward"] == ("always" if zero == 3 else "never")
    assert t["global_batch_size"] == plan["global_batch"]
    assert t["global_batch_size"] % (t["local_batch_size"] * data) == 0
    assert t["seq_len"] == plan["workload"]["tokens_per_sample"]
    assert t["mixed_precision_param"] == ("bfloat16" if plan["workload"]["element_bytes"] == 2 else "float32")
    narrow = plan["workload"].get("precision") == "fp8"
    assert config["model"].get("converters", []) == ["quantize.linear.float8"] * narrow
    assert ("float8" in config.get("quantize", {}).get("linear", {})) == narrow == ("compile" in config)
    recompute = plan["stages"][0]["recompute"]
    mode = config["activation_checkpoint"]["mode"]
    assert mode == {"none": "none", "full": "full", "operator": "selective"}[recompute]
    assert (config["activation_checkpoint"].get("selective_ac_option") == "op") == (recompute == "operator")
    assert config["optimizer"]["lr"] == plan["optimizer"]["learning_rate"]
    if positions > 1:
        size = p["pipeline_parallel_microbatch_size"]
        assert size * ep == plan["micro_batch_size"] and t["local_batch_size"] % size == 0
        parts = p["module_fqns_per_model_part"]
        layers = plan["workload"]["layers"]
        attention = [i for i, layer in enumerate(layers) if layer["kind"] == "attention"]
        assert len(parts) == len(plan["stages"])
        for part, stage in zip(parts, plan["stages"]):
            own = range(stage["first_layer"], stage["first_layer"] + stage["layer_count"])
            wanted = [f"layers.{b}" for b, layer in enumerate(attention) if layer in own]
            assert [name for name in part if name.startswith("layers.")] == wanted, (part, wanted)
        assert parts[0][0] == "tok_embeddings" and parts[-1][-2:] == ["norm", "output"]
    else:
        assert t["local_batch_size"] * ep == plan["micro_batch_size"]


def accelerate(folder, plan):
    config = yaml.safe_load((folder / "accelerate.yaml").read_text())
    script = (folder / "launch.sh").read_text()
    zero = plan.get("zero", 0)
    assert config["num_processes"] == devices(plan)
    assert (config["distributed_type"] == "FSDP") == (zero >= 2) == ("fsdp_config" in config)
    if zero >= 2:
        assert config["fsdp_config"]["fsdp_reshard_after_forward"] == (zero == 3)
        full = plan["stages"][0]["recompute"] == "full"
        assert config["fsdp_config"]["fsdp_activation_checkpointing"] == full
    assert (config["mixed_precision"] != "no") == (plan["workload"]["element_bytes"] == 2)
    passes = plan["micro_batches"] // plan["stages"][0]["replicas"]
    assert f"--gradient_accumulation_steps {passes} " in script


def nccl_tuner(folder, plan):
    """As plugins/tuner/example/plugin.c reads it: ten fields, names in lower case, the first match counts."""
    rows = [line.split(",") for line in (folder / "nccl_tuner.conf").read_text().splitlines() if line[:1] != "#"]
    assert rows and all(len(row) == 10 and len(",".join(row)) < 255 for row in rows)
    ranges = {}
    for kind, low, high, algorithm, protocol, channels, nodes, ranks, operations, registered in rows:
        assert kind in ("broadcast", "reduce", "allgather", "reducescatter", "allreduce"), kind
        assert algorithm in ("tree", "ring", "collnet_direct", "collnet_chain", "nvls", "nvls_tree", "pat"), algorithm
        assert protocol in ("ll", "ll128", "simple"), protocol
        assert int(channels) == -1 or 1 <= int(channels) <= 64
        assert (operations, registered) == ("-1", "-1") and 1 <= int(nodes) <= int(ranks)
        ranges.setdefault((kind, nodes, ranks), []).append((int(low), int(high), algorithm))
    for key, parts in ranges.items():
        assert parts[0][0] == 0 and parts[-1][1] == 2**64 - 1, (key, parts)
        assert all(a[1] + 1 == b[0] for a, b in zip(parts, parts[1:])), (key, parts)
    algorithms = {bucket["algorithm"] for bucket in plan["buckets"]}
    if algorithms <= {"ring", "tree"} and len(algorithms) == 1 and plan.get("tensor_parallel", 1) == 1:
        found = {part[2] for parts in ranges.values() for part in parts}
        assert found == algorithms, (found, algorithms)
    if plan.get("tensor_parallel", 1) > 1:
        assert any(ranks == str(plan["tensor_parallel"]) for _, _, ranks in ranges), ranges.keys()
    script = (folder / "nccl.sh").read_text()
    assert "NCCL_TUNER_CONFIG_FILE" in script and "NCCL_TUNER_PLUGIN" in script and "NCCL_ALGO" not in script


target, folder, plan = sys.argv[1], pathlib.Path(sys.argv[2]), json.loads(pathlib.Path(sys.argv[3]).read_text())
{"torchtitan": torchtitan, "accelerate": accelerate, "nccl-tuner": nccl_tuner}[target](folder, plan)
