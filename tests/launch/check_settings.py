"""trainyard_plan.py of a plan: check_settings.py SETTINGS PLAN. Its functions are run on a small model with
stand-ins for PyTorch's, which note what they are asked for; the notes must be what the plan says. The buckets
are those that DistributedDataParallel fills (torch/csrc/distributed/c10d/reducer.cpp,
compute_bucket_assignment_by_size): from the last parameter down, closed once they are full."""

import contextlib
import json
import pathlib
import sys
import types

notes = []


def note(name, result=None):
    def call(*arguments, **settings):
        notes.append((name, arguments, settings))
        return arguments[0] if result is None else result

    return call


class Module:
    def __init__(self, *inside):
        self.inside = list(inside)

    def children(self):
        return iter(self.inside)

    def modules(self):
        yield self
        for child in self.inside:
            yield from child.modules()

    def parameters(self):
        return []

    named_parameters = state_dict = parameters

    def set_requires_gradient_sync(self, wanted):
        notes.append(("sync", wanted, {}))

    def register_comm_hook(self, group, hook):
        notes.append(("hook", hook, {}))

    def no_sync(self):
        notes.append(("no_sync", (), {}))
        return contextlib.nullcontext()


class ModuleList(Module):
    def __len__(self):
        return len(self.inside)

    def __getitem__(self, index):
        return self.inside[index]

    def __setitem__(self, index, module):
        self.inside[index] = module

    def __iter__(self):
        return iter(self.inside)


class Block(Module):
    def compile(self):
        notes.append(("compile", (self,), {}))


class Wrapped(Module):
    def __init__(self, block, **settings):
        super().__init__(block)
        notes.append(("checkpoint", (block,), settings))

    def compile(self):
        notes.append(("compile", tuple(self.inside), {}))


class Operations:
    def __getattr__(self, name):
        return types.SimpleNamespace(default=name)


def module(name, **members):
    made = types.ModuleType(name)
    for key, value in members.items():
        setattr(made, key, value)
    sys.modules[name] = made
    parent, _, own = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], own, made)
    return made


def stand_ins():
    impl = types.SimpleNamespace(NO_REENTRANT="no reentrant")
    module("torch", float32="fp32", float16="fp16", bfloat16="bf16", autocast=note("autocast", "context"))
    module("torch.ops", aten=Operations())
    module("torch.nn", Module=Module, ModuleList=ModuleList, Sequential=type("Sequential", (ModuleList,), {}))
    module("torch.nn.parallel", DistributedDataParallel=note("ddp"))
    module("torch.optim", AdamW=note("adamw", "optimizer"), SGD=note("sgd", "optimizer"), Adafactor=note("adafactor", "optimizer"))
    module("torch.backends")
    module("torch.backends.cuda", enable_math_sdp=note("math"))
    module("torch.cuda")
    module("torch.cuda.amp", GradScaler=note("scaler", "scaler"))
    module("torch.utils")
    policy = types.SimpleNamespace(MUST_SAVE="keep", PREFER_RECOMPUTE="again")
    module("torch.utils.checkpoint", CheckpointPolicy=policy, create_selective_checkpoint_contexts=note("contexts"))
    module("torch.distributed", group=types.SimpleNamespace(WORLD="world"))
    module("torch.distributed.fsdp", MixedPrecisionPolicy=note("policy", "policy"), fully_shard=note("shard"))
    module("torch.distributed.optim", ZeroRedundancyOptimizer=note("zero", "optimizer"))
    module("torch.distributed.algorithms")
    module("torch.distributed.algorithms.ddp_comm_hooks")
    module(
        "torch.distributed.algorithms.ddp_comm_hooks.default_hooks", fp16_compress_hook="fp16", bf16_compress_hook="bf16"
    )
    module("torch.distributed.algorithms._checkpoint")
    module(
        "torch.distributed.algorithms._checkpoint.checkpoint_wrapper", CheckpointImpl=impl, checkpoint_wrapper=Wrapped
    )
    module("torchao")
    module("torchao.float8", convert_to_float8_training=note("narrow"))
    module("horovod")
    module(
        "horovod.torch",
        Compression=types.SimpleNamespace(none="fp32", fp16="fp16"),
        broadcast_parameters=note("broadcast", "nothing"),
        DistributedOptimizer=note("horovod"),
    )


def of(name):
    return [entry for entry in notes if entry[0] == name]


def filled(plan, full):
    """First layers of the buckets, from the last layer down."""
    element = plan["workload"]["element_bytes"]
    begins, held = [], 0
    for index in reversed(range(len(plan["workload"]["layers"]))):
        layer = plan["workload"]["layers"][index]
        if layer["parameter_bytes"] == 0 or layer.get("is_frozen"):
            continue
        if held == 0:
            begins.append(index)
        held += layer["parameter_bytes"] // element * 4
        if held >= full:
            held = 0
    return begins


def planned(plan):
    layers = plan["workload"]["layers"]
    ends = []
    for bucket in plan["buckets"]:
        own = range(bucket["first_layer"], bucket["first_layer"] + bucket["layer_count"])
        ends.append(max(index for index in own if layers[index]["parameter_bytes"] > 0))
    return ends


def main():
    text, plan = pathlib.Path(sys.argv[1]).read_text(), json.loads(pathlib.Path(sys.argv[2]).read_text())
    framework = sys.argv[3]
    stand_ins()
    settings = {}
    exec(compile(text, sys.argv[1], "exec"), settings)
    stage, zero = plan["stages"][0], plan.get("zero", 0)
    recompute, blocks = stage["recompute"], settings["BLOCKS"]
    attention = sum(layer["kind"] == "attention" for layer in plan["workload"]["layers"])
    assert not attention or blocks == attention, (blocks, attention)

    assert settings["GLOBAL_BATCH"] == plan["global_batch"] and settings["MICRO_BATCH"] == plan["micro_batch_size"]
    assert settings["PASSES"] * settings["PROCESSES"] * settings["MICRO_BATCH"] == plan["global_batch"]
    half = settings["PRECISION"] != "fp32"
    assert half == (plan["workload"]["element_bytes"] == 2), settings["PRECISION"]
    assert settings["PRECISION"] == sys.argv[4], settings["PRECISION"]
    assert settings["ZERO"] == zero and settings["RECOMPUTE"] == recompute
    sends = {bucket["compression"] for bucket in plan["buckets"]} & {"fp16", "bf16"}
    assert {settings["GRADIENTS"]} == (sends or {"fp32"})

    model = Module(ModuleList(*[Block(Module()) for _ in range(blocks)]), Module())
    listed = list(model.inside[0]) if blocks else []
    has_engine = framework in ("deepspeed", "accelerate")
    made = settings["checkpointed"](model) if has_engine else settings["wrap"](model)
    assert made is model
    checked = of("checkpoint")
    told = "checkpointed(model) before" in settings["__doc__"]
    assert told == (framework == "deepspeed" and recompute != "none"), settings["__doc__"]
    script = (pathlib.Path(sys.argv[1]).parent / "launch.sh").read_text()
    assert ("no key of ds_config.json does" in script) == told, script
    narrow = plan["workload"].get("precision") == "fp8"
    assert [entry[1][0] for entry in of("narrow")] == [entry[1][0] for entry in of("compile")] == listed * narrow
    for entry in of("narrow"):
        takes = entry[2]["module_filter_fn"]
        sizes = types.SimpleNamespace(in_features=64, out_features=48), types.SimpleNamespace(in_features=64, out_features=8)
        assert [takes(sizes[0], name) for name in ("mlp.gate_proj", "mlp.gate", "moe.router")] == [True, False, False]
        assert not takes(sizes[1], "attention.q_proj")
    if recompute in ("full", "operator", "elementwise") and framework != "accelerate":
        assert [entry[1][0] for entry in checked] == listed, "every block, and nothing else"
        assert all(entry[2]["checkpoint_impl"] == "no reentrant" for entry in checked)
        assert all(("context_fn" in entry[2]) == (recompute != "full") for entry in checked)
    else:
        assert not checked
    if recompute in ("operator", "elementwise"):
        keeps = settings["_keep_products"]()
        context = types.SimpleNamespace(is_recompute=False)
        kept = [keeps(context, name) for name in ("mm", "_scaled_mm", "gelu", "mm", "_scaled_mm")]
        every_other = ["keep", "again", "again", "keep", "again"]
        assert kept == (every_other if recompute == "operator" else ["keep", "keep", "again", "keep", "keep"]), kept
        assert keeps(context, "_scaled_dot_product_flash_attention") == "keep"
    assert len(of("math")) == (recompute == "selective" and settings["DEVICE"] == "cuda")
    wrong = Module(ModuleList(*[Block(Module()) for _ in range(blocks + 3)]))
    try:
        settings["blocks_of"](wrong)
        raise SystemExit("a model of other blocks is taken")
    except ValueError:
        pass

    if framework == "torchrun" and zero >= 2:
        shards = of("shard")
        assert len(shards) == blocks + 1 and shards[-1][1][0] is model, "each block by itself, then what is left"
        assert [entry[1][0] for entry in shards[:-1]] == list(model.inside[0])
        assert all(entry[2] == {"mp_policy": "policy", "reshard_after_forward": zero == 3} for entry in shards)
        assert of("policy")[0][2] == {"param_dtype": settings["PRECISION"], "reduce_dtype": settings["GRADIENTS"]}
        assert not of("ddp")
        for number in range(settings["PASSES"]):
            settings["accumulating"](made, number)
        assert [entry[1] for entry in of("sync")] == [False] * (settings["PASSES"] - 1) + [True]
    elif framework == "torchrun":
        ddp = of("ddp")
        assert len(ddp) == 1 and not of("shard")
        full = int(ddp[0][2]["bucket_cap_mb"] * 1024 * 1024)  # as DistributedDataParallel counts
        assert full == settings["BUCKET_BYTES"] == sys.modules["torch.distributed"]._DEFAULT_FIRST_BUCKET_BYTES
        if "differs" not in text:
            assert filled(plan, full) == planned(plan), (filled(plan, full), planned(plan))
        else:
            assert filled(plan, full) != planned(plan)
            print(f"{len(filled(plan, full))} buckets for the plan's {len(planned(plan))}")
        assert [entry[1] for entry in of("hook")] == sorted(sends)
    if framework == "torchrun":
        settings["optimizer"](made)
        kind = "zero" if zero == 1 else plan["optimizer"]["kind"]
        used = of(kind)[0][2]
        assert used["lr"] == plan["optimizer"]["learning_rate"], used
    if framework == "horovod":
        assert len(of("broadcast")) == 1
        settings["optimizer"](made)
        assert of("horovod")[0][2]["backward_passes_per_step"] == settings["PASSES"]
        assert of("horovod")[0][2]["compression"] == settings["GRADIENTS"]
    if not has_engine:
        settings["precision"]()
        assert [(entry[1][0], entry[2]["dtype"]) for entry in of("autocast")] == (
            [(settings["DEVICE"], settings["PRECISION"])] if half else []
        )
        settings["scaler"]()
        assert of("scaler")[0][2] == {"enabled": settings["PRECISION"] == "fp16"}


main()
