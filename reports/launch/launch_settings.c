/* trainyard_plan.py: a plan's settings for a training script of PyTorch, with DistributedData-
 * Parallel, ZeRO and FSDP of PyTorch itself, or with Horovod. Their names: torch.nn.parallel,
 * torch.distributed.optim, torch.distributed.fsdp (PyTorch 1.12 and later), horovod.torch. */
#include "launch.h"

#define MIB 1048576.0

static void write_figures(const launch *l, ty_text *text)
{
    const ty_plan *plan = l->plan;
    uint32_t each = plan->micro_batches / plan->stages[0].replicas;

    ty_text_addf(text,
                 "PROCESSES = %u\nGLOBAL_BATCH = %u  # samples a step\n"
                 "MICRO_BATCH = %u  # samples a pass, on each process\n"
                 "PASSES = %u  # before the optimizer's step: gradient accumulation\n"
                 "SEED = %llu\n",
                 l->process_count, plan->global_batch, plan->micro_batch_size, each,
                 (unsigned long long)plan->seed);
    ty_text_addf(text, "ZERO = %u  # what is sharded: 1 optimizer state, 2 gradients, 3 weights\n",
                 plan->zero);
    ty_text_addf(text, "BUCKET_MB = %.6g  # MiB of gradients that travel together\n",
                 (double)ty_launch_bucket_bytes(l) / MIB);
    ty_text_addf(text, "SENDS_FP16 = %s  # gradients are halved for the network\n",
                 ty_launch_is_fp16(l) ? "True" : "False");
}

static void write_optimizer(const ty_optimizer *o, ty_text *text)
{
    char a[32], b[32], c[32], d[32], e[32];

    ty_format_number(o->learning_rate, a);
    ty_format_number(o->weight_decay, b);
    ty_format_number(o->momentum, c);
    if (o->kind == TY_OPTIMIZER_SGD) {
        ty_text_addf(text,
                     "OPTIMIZER = torch.optim.SGD\n"
                     "OPTIMIZER_SETTINGS = dict(lr=%s, momentum=%s, weight_decay=%s)\n",
                     a, c, b);
        return;
    }
    ty_format_number(o->beta1, c);
    ty_format_number(o->beta2, d);
    ty_format_number(o->epsilon, e);
    ty_text_addf(text,
                 "OPTIMIZER = torch.optim.AdamW\n"
                 "OPTIMIZER_SETTINGS = dict(lr=%s, betas=(%s, %s), eps=%s, weight_decay=%s)\n",
                 a, c, d, e, b);
}

static const char pytorch[] =
    "\n\n"
    "def wrap(model):\n"
    "    \"\"\"The model as the plan trains it; torch.distributed is initialised.\"\"\"\n"
    "    if ZERO >= 2:\n"
    "        from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy\n\n"
    "        return FullyShardedDataParallel(\n"
    "            model,\n"
    "            sharding_strategy=ShardingStrategy.FULL_SHARD if ZERO == 3 else "
    "ShardingStrategy.SHARD_GRAD_OP,\n"
    "        )\n"
    "    wrapped = torch.nn.parallel.DistributedDataParallel(\n"
    "        model, bucket_cap_mb=max(BUCKET_MB, 1e-3), gradient_as_bucket_view=True\n"
    "    )\n"
    "    if SENDS_FP16:\n"
    "        from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import "
    "fp16_compress_hook\n\n"
    "        wrapped.register_comm_hook(torch.distributed.group.WORLD, fp16_compress_hook)\n"
    "    return wrapped\n"
    "\n\n"
    "def optimizer(wrapped):\n"
    "    \"\"\"The plan's optimizer, sharded where the plan says so.\"\"\"\n"
    "    if ZERO == 1:\n"
    "        from torch.distributed.optim import ZeroRedundancyOptimizer\n\n"
    "        return ZeroRedundancyOptimizer(\n"
    "            wrapped.parameters(), optimizer_class=OPTIMIZER, **OPTIMIZER_SETTINGS\n"
    "        )\n"
    "    return OPTIMIZER(wrapped.parameters(), **OPTIMIZER_SETTINGS)\n"
    "\n\n"
    "def accumulating(wrapped, number):\n"
    "    \"\"\"Around pass `number` of a step, from 0: gradients travel with the last one "
    "only.\"\"\"\n"
    "    return contextlib.nullcontext() if number == PASSES - 1 else wrapped.no_sync()\n";

static const char horovod[] =
    "\n\n"
    "def optimizer(model):\n"
    "    \"\"\"The plan's optimizer, averaging gradients over all processes.\"\"\"\n"
    "    hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
    "    return hvd.DistributedOptimizer(\n"
    "        OPTIMIZER(model.parameters(), **OPTIMIZER_SETTINGS),\n"
    "        named_parameters=model.named_parameters(),\n"
    "        compression=hvd.Compression.fp16 if SENDS_FP16 else hvd.Compression.none,\n"
    "        backward_passes_per_step=PASSES,\n"
    "    )\n";

void ty_launch_settings(const launch *l, bool is_horovod, ty_text *text)
{
    ty_launch_comments(l, "# ", text);
    ty_text_addf(text, "\"\"\"Settings of a plan: import this in the training script.\"\"\"\n%s\n",
                 is_horovod ? "import horovod.torch as hvd\nimport torch\n"
                            : "import contextlib\n\nimport torch\n");
    write_figures(l, text);
    write_optimizer(&l->plan->optimizer, text);
    ty_text_add(text, is_horovod ? horovod : pytorch);
}

ty_status ty_launch_add_settings(launch *l, bool is_horovod, ty_error *error)
{
    ty_text text = {0};

    ty_launch_settings(l, is_horovod, &text);
    return ty_launch_add(l, "trainyard_plan.py", &text, false, error);
}
