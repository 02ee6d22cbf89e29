"""Megatron-LM's own rules on a launch folder: check_megatron.py FOLDER PLAN. Options, their types and
choices are those of megatron/training/arguments.py; the rules are validate_args' there and those of
TransformerConfig, of the interleaved schedule, of the uniform recomputing and of the experts' layer
(NVIDIA/Megatron-LM, core 0.15). Then what the arguments train is held against the plan."""

import json
import pathlib
import re
import sys

FLAGS = """group-query-attention swiglu disable-bias-linear add-qkv-bias qk-layernorm
untie-embeddings-and-output-weights multi-latent-attention moe-router-enable-expert-bias moe-grouped-gemm
sequence-parallel use-distributed-optimizer overlap-grad-reduce overlap-param-gather bf16 fp16
accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16""".split()
NUMBERS = """num-layers hidden-size ffn-hidden-size num-attention-heads kv-channels num-query-groups seq-length
max-position-embeddings rotary-base vocab-size make-vocab-size-divisible-by num-experts moe-router-topk
moe-ffn-hidden-size moe-shared-expert-intermediate-size q-lora-rank kv-lora-rank qk-head-dim qk-pos-emb-head-dim
v-head-dim tensor-model-parallel-size pipeline-model-parallel-size context-parallel-size
expert-model-parallel-size num-layers-per-virtual-pipeline-stage micro-batch-size global-batch-size
ddp-bucket-size recompute-num-layers seed train-iters""".split()
RATES = "lr weight-decay adam-beta1 adam-beta2 adam-eps sgd-momentum muon-momentum attention-dropout hidden-dropout".split()
CHOICES = {
    "normalization": ["LayerNorm", "RMSNorm"],
    "position-embedding-type": ["learned_absolute", "rope", "mrope", "relative", "none"],
    "optimizer": ["adam", "sgd", "muon"],
    "lr-decay-style": ["constant", "linear", "cosine", "inverse-square-root", "WSD"],
    "recompute-granularity": ["full", "selective"],
    "fp8-format": ["e4m3", "hybrid"],
    "recompute-method": ["uniform", "block"],
    "moe-token-dispatcher-type": ["allgather", "alltoall", "flex"],
    "moe-router-score-function": ["softmax", "sigmoid"],
    "cp-comm-type": ["p2p", "a2a", "all_gather", "a2a+p2p"],
    "attention-backend": ["flash", "fused", "unfused", "local", "auto"],
}
MODULES = ["core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts"]
TEXTS = ["moe-layer-freq", "pipeline-model-parallel-layout"]


def parse(text):
    words = re.sub(r"#.*", "", text).split()
    found = {}
    while words:
        name = words.pop(0)
        assert name.startswith("--"), name
        name = name[2:]
        assert name not in found, f"--{name} twice"
        if name in FLAGS:
            found[name] = True
            continue
        if name == "recompute-modules":  # one or more
            found[name] = []
            while words and not words[0].startswith("--"):
                assert words[0] in MODULES, words[0]
                found[name].append(words.pop(0))
            assert found[name]
            continue
        value = words.pop(0)
        if name in NUMBERS:
            value = int(value)
        elif name in RATES:
            value = float(value)
        elif name in CHOICES:
            assert value in CHOICES[name], (name, value)
        else:
            assert name in TEXTS, f"--{name} is not known to pretrain_gpt.py"
        found[name] = value
    return found


def stages_of(a, layers, pp):
    """Blocks of every stage in the model's order, and virtual stages per pipeline rank."""
    layout, each = a.get("pipeline-model-parallel-layout"), a.get("num-layers-per-virtual-pipeline-stage")
    assert layout is None or each is None, "two ways of saying the stages"
    if layout is not None:
        stages = layout.split("|")
        assert len(stages) % pp == 0, (len(stages), pp)
        assert stages[0].startswith("E") and stages[-1].endswith("L"), layout
        counts = []
        for stage in stages:
            match = re.fullmatch(r"E?(?:t\*(\d+))?L?", stage)
            assert match, stage
            counts.append(int(match[1] or 0))
        return counts, len(stages) // pp
    assert layers % pp == 0, f"{layers} layers on {pp} positions"
    if each is None:
        return [layers // pp] * pp, 1
    assert layers // pp % each == 0, (layers, pp, each)
    return [each] * (layers // each), layers // pp // each


def main():
    folder, plan = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text())
    script = (folder / "launch.sh").read_text()
    a = parse((folder / "megatron.args").read_text())
    nodes = int((re.search(r"--nnodes=(\d+)", script) or [0, 1])[1])
    world = nodes * int(re.search(r"--nproc_per_node=(\d+)", script)[1])
    tp, pp = a["tensor-model-parallel-size"], a["pipeline-model-parallel-size"]
    cp, ep = a.get("context-parallel-size", 1), a.get("expert-model-parallel-size", 1)

    # validate_args
    assert world % (tp * pp * cp) == 0, (world, tp, pp, cp)
    dp = world // (tp * pp * cp)
    assert a["global-batch-size"] % (a["micro-batch-size"] * dp) == 0
    micro_batches = a["global-batch-size"] // (a["micro-batch-size"] * dp)
    counts, virtual = stages_of(a, a["num-layers"], pp)
    assert sum(counts) == a["num-layers"], counts
    if virtual > 1:
        assert pp > 1
        assert micro_batches % pp == 0, "interleaved stages take micro-batches in groups of the positions"
    assert a["seq-length"] % (2 * cp if cp > 1 else 1) == 0
    assert a["max-position-embeddings"] >= a["seq-length"]
    assert not (a.get("bf16") and a.get("fp16"))
    assert not a.get("grad-reduce-in-bf16") or a.get("bf16")
    if a.get("overlap-param-gather"):
        assert a.get("use-distributed-optimizer") and a.get("overlap-grad-reduce")
    if a.get("ddp-bucket-size") is not None:
        assert a.get("overlap-grad-reduce") and a["ddp-bucket-size"] > 0
    if tp > 1 or cp > 1:
        assert "export CUDA_DEVICE_MAX_CONNECTIONS=1" in script
    granularity = a.get("recompute-granularity")
    if granularity == "selective":
        assert "recompute-method" not in a and "recompute-num-layers" not in a
    assert granularity == "selective" or "recompute-modules" not in a
    if granularity == "full":
        assert a["recompute-method"] == "uniform" and a["recompute-num-layers"] >= 1
        assert all(count % a["recompute-num-layers"] == 0 for count in counts), counts

    # TransformerConfig
    heads, groups = a["num-attention-heads"], a.get("num-query-groups", a["num-attention-heads"])
    assert ("num-query-groups" in a) == a.get("group-query-attention", False)
    assert heads % tp == 0 and groups % tp == 0 and heads % groups == 0, (heads, groups, tp)
    assert a["ffn-hidden-size"] % tp == 0
    if a.get("sequence-parallel"):
        assert tp > 1 and a["seq-length"] % tp == 0
    padded = -(-a["vocab-size"] // (a["make-vocab-size-divisible-by"] * tp)) * a["make-vocab-size-divisible-by"] * tp
    assert a["make-vocab-size-divisible-by"] == 128 and padded % (128 * tp) == 0
    if a["position-embedding-type"] != "rope":
        assert "rotary-base" not in a

    # Experts
    experts = a.get("num-experts")
    if experts is not None:
        assert experts % ep == 0 and a["moe-ffn-hidden-size"] % tp == 0
        assert not (ep > 1 and a.get("fp16"))
        assert tp == 1 or a.get("sequence-parallel"), "experts and tensor parallelism"
        assert not a.get("moe-grouped-gemm") or a.get("bf16")
        assert world % (tp * ep * pp) == 0
        if a.get("moe-router-enable-expert-bias"):
            assert a.get("moe-router-score-function") == "sigmoid"
        assert a["moe-token-dispatcher-type"] == "alltoall"
    else:
        assert ep == 1 and not [key for key in a if key.startswith("moe-")]

    # The plan
    lanes = plan.get("tensor_parallel", 1), plan.get("context_parallel", 1), plan.get("expert_parallel", 1)
    assert (tp, cp, ep) == lanes, (tp, cp, ep, lanes)
    stages = plan["stages"]
    assert (len(counts), virtual) == (len(stages), plan.get("interleave", 1))
    assert dp == stages[0]["replicas"] * ep, (dp, stages[0]["replicas"])
    assert a["global-batch-size"] == plan["global_batch"] and a["micro-batch-size"] * ep == plan["micro_batch_size"]
    attention = [i for i, layer in enumerate(plan["workload"]["layers"]) if layer["kind"] == "attention"]
    ends = [stage["first_layer"] + stage["layer_count"] for stage in stages]
    planned = [sum(stage["first_layer"] <= i < end for i in attention) for stage, end in zip(stages, ends)]
    assert counts == planned, (counts, planned)
    half = plan["workload"]["element_bytes"] == 2
    assert bool(a.get("bf16") or a.get("fp16")) == half
    assert bool(a.get("sequence-parallel")) == plan.get("sequence_parallel", False)
    assert bool(a.get("use-distributed-optimizer")) == (plan.get("zero", 0) == 1)
    assert bool(a.get("overlap-grad-reduce")) == (plan["stack"]["overlaps_exchange"] and world > tp * pp)
    modules = a.get("recompute-modules", ["core_attn"])
    kind = {("core_attn",): "selective", ("layernorm", "moe_act"): "elementwise"}[tuple(modules)]
    assert (kind if granularity == "selective" else granularity or "none") == stages[0]["recompute"]
    if kind == "elementwise":
        assert not any(layer["kind"] == "mlp" for layer in plan["workload"]["layers"]), "moe_act is of experts"
    if granularity == "full":
        layers = plan["workload"]["layers"]
        periods = [p for p in range(1, len(attention) // 2 + 1)
                   if all(layers[attention[i] + 3]["kind"] == layers[attention[i + p] + 3]["kind"]
                          for i in range(len(attention) - p))]
        blocks = stages[0].get("recompute_blocks", 0)
        dense = sum(layer["kind"] == "mlp" for layer in layers)
        if blocks > 0 and dense in (0, len(attention) // 2, len(attention)):  # what repeats is a block
            assert a["recompute-num-layers"] == blocks * min(periods, default=1), (blocks, periods)
    dropout = 0.1 if plan["stack"]["has_dropout"] else 0
    assert a["hidden-dropout"] == a["attention-dropout"] == dropout
    assert (a.get("attention-backend") == "unfused") == (plan["stack"]["attention"] == "scores")
    assert a["vocab-size"] == plan["workload"]["layers"][0]["attributes"]["vocabulary"]
    assert a.get("rotary-base") == plan["workload"].get("rotary_base")
    print(f"{world} devices: tp {tp}, cp {cp}, ep {ep}, dp {dp}, stages {counts}, {granularity or 'none'}")


main()
