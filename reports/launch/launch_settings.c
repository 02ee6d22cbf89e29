/* trainyard_plan.py: a plan's settings for a training script of PyTorch, and what makes a model
 * train by them: PyTorch's own wrappers, Horovod's, or only what DeepSpeed leaves to the model's
 * code. Names: torch.nn.parallel, torch.distributed.optim, torch.distributed.fsdp (fully_shard and
 * MixedPrecisionPolicy: PyTorch 2.6 and later), torch.utils.checkpoint, torch.amp, torchao.float8,
 * horovod.torch.
 */
#include "launch.h"

#include <stdio.h>
#include <string.h>

static void write_buckets(const launch *l, ty_text *text)
{
    const launch_bucket_limit limit = ty_launch_bucket_limit(l);

    ty_text_addf(text, "BUCKET_BYTES = %llu  # gradients that travel together\n",
                 (unsigned long long)limit.bytes);
    if (limit.is_as_planned)
        ty_text_addf(text, "# Filled layer by layer they are the plan's %u.\n", limit.count);
    else
        ty_text_addf(text,
                     "# differs: no one limit yields the plan's %u buckets, this one makes %u; "
                     "plan with --fix bucket=25MB\n",
                     limit.planned, limit.count);
}

/* ---- Figures ----------------------------------------------------------------------------- */

static const char *torch_type(const char *precision)
{
    return strcmp(precision, "bf16") == 0   ? "torch.bfloat16"
           : strcmp(precision, "fp16") == 0 ? "torch.float16"
                                            : "torch.float32";
}

static void write_figures(const launch *l, launch_framework framework, uint32_t blocks,
                          ty_text *text)
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
    if (plan->workload->tokens_per_sample > 0)
        ty_text_addf(text, "SEQUENCE = %llu  # tokens a sample\n",
                     (unsigned long long)plan->workload->tokens_per_sample);
    ty_text_addf(text, "DEVICE = \"%s\"\n", l->has_accelerators ? "cuda" : "cpu");
    ty_text_addf(text, "PRECISION = %s  # of passes; weights, their gradients and updates: fp32\n",
                 torch_type(l->precision));
    if (l->has_tf32)
        ty_text_add(text, "torch.set_float32_matmul_precision(\"high\")  # TF32\n");
    if (framework == LAUNCH_PYTORCH)
        ty_text_addf(text, "PRODUCTS = \"%s\"  # of weights, in the blocks\n",
                     plan->workload->precision == TY_PRECISION_FP8 ? "fp8" : l->precision);
    ty_text_addf(text, "ZERO = %u  # what is sharded: 1 optimizer state, 2 gradients, 3 weights\n",
                 plan->zero);
    ty_text_addf(text, "GRADIENTS = %s  # as they travel\n",
                 torch_type(ty_launch_gradient_precision(l)));
    ty_text_addf(text, "RECOMPUTE = \"%s\"\n", ty_recompute_name(plan->stages[0].recompute));
    ty_text_addf(text, "BLOCKS = %u  # that the network repeats\n", blocks);
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

/* ---- Functions --------------------------------------------------------------------------- */

/* The lists of a model whose entries are alike: those of its blocks. */
static const char blocks_of[] =
    "\n\n"
    "def blocks_of(model):\n"
    "    \"\"\"The blocks of a model as the lists that hold them: (list, index) of each.\"\"\"\n"
    "    found, inside = [], set()\n"
    "    for module in model.modules():\n"
    "        if id(module) in inside or not isinstance(module, (torch.nn.ModuleList, "
    "torch.nn.Sequential)):\n"
    "            continue\n"
    "        if len(module) > 1 and len({type(child) for child in module}) == 1 and "
    "any(module[0].children()):\n"
    "            found += [(module, index) for index in range(len(module))]\n"
    "            inside.update(id(child) for child in module.modules())\n"
    "    if len(found) != BLOCKS:\n"
    "        raise ValueError(f\"the model lists {len(found)} equal blocks, the plan has "
    "{BLOCKS}\")\n"
    "    return found\n";

/* Every other product's output is kept, or every product's, and what attention makes. */
static const char checkpointed[] =
    "\n\n"
    "def _keep_products():\n"
    "    from torch.utils.checkpoint import CheckpointPolicy, "
    "create_selective_checkpoint_contexts\n\n"
    "    aten = torch.ops.aten\n"
    "    attention = {\n"
    "        aten._scaled_dot_product_flash_attention.default,\n"
    "        aten._scaled_dot_product_efficient_attention.default,\n"
    "        aten._scaled_dot_product_cudnn_attention.default,\n"
    "    }\n"
    "    linear = {aten.mm.default, aten._scaled_mm.default}  # that of fp8\n"
    "    all_products = linear | {aten.addmm.default, aten.bmm.default, aten.convolution.default}\n"
    "    products = {False: 0, True: 0}\n\n"
    "    def policy(context, operation, *arguments, **settings):\n"
    "        if RECOMPUTE == \"elementwise\":\n"
    "            keeps = operation in all_products or operation in attention\n"
    "        elif operation in linear:\n"
    "            products[context.is_recompute] += 1\n"
    "            keeps = products[context.is_recompute] % 2 == 1\n"
    "        else:\n"
    "            keeps = operation in attention\n"
    "        return CheckpointPolicy.MUST_SAVE if keeps else CheckpointPolicy.PREFER_RECOMPUTE\n\n"
    "    return create_selective_checkpoint_contexts(policy)\n"
    "\n\n"
    "def checkpointed(model):\n"
    "    \"\"\"The model, whose blocks make again in backward what the plan does not keep.\"\"\"\n"
    "    if RECOMPUTE == \"selective\" and DEVICE == \"cuda\":\n"
    "        # Scores are made again by the fused kernels of attention; the plain one keeps them.\n"
    "        torch.backends.cuda.enable_math_sdp(False)\n"
    "    if RECOMPUTE in (\"full\", \"operator\", \"elementwise\"):\n"
    "        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (\n"
    "            CheckpointImpl,\n"
    "            checkpoint_wrapper,\n"
    "        )\n\n"
    "        settings = {\"checkpoint_impl\": CheckpointImpl.NO_REENTRANT}\n"
    "        if RECOMPUTE != \"full\":\n"
    "            settings[\"context_fn\"] = _keep_products\n"
    "        for blocks, index in blocks_of(model):\n"
    "            blocks[index] = checkpoint_wrapper(blocks[index], **settings)\n"
    "    return model\n";

static const char left_alone[] =
    "\n\n"
    "def checkpointed(model):\n"
    "    \"\"\"The model as it is: accelerate.yaml says that blocks are made again "
    "(fsdp_activation_checkpointing).\"\"\"\n"
    "    return model\n";

static const char precision[] =
    "\n\n"
    "def precision():\n"
    "    \"\"\"Around forward and loss: the plan's numbers.\"\"\"\n"
    "    if PRECISION == torch.float32:\n"
    "        return contextlib.nullcontext()\n"
    "    return torch.autocast(DEVICE, dtype=PRECISION)\n"
    "\n\n"
    "def scaler():\n"
    "    \"\"\"Of the loss; it does nothing but for fp16.\"\"\"\n"
    "    return torch.cuda.amp.GradScaler(enabled=PRECISION == torch.float16)\n";

/* Products of blocks are narrow, those of the logits and of routers are not, nor those of sizes
 * that tensor cores do not take. */
static const char in_fp8[] =
    "\n\n"
    "def in_fp8(model):\n"
    "    \"\"\"The model, whose blocks' products are in fp8 (torchao), but for those of "
    "routers.\"\"\"\n"
    "    from torchao.float8 import convert_to_float8_training\n\n"
    "    def is_taken(module, name):\n"
    "        is_router = name.rpartition(\".\")[2] in (\"gate\", \"router\")\n"
    "        return not is_router and module.in_features % 16 == 0 and module.out_features % 16 == "
    "0\n\n"
    "    for blocks, index in blocks_of(model):\n"
    "        convert_to_float8_training(blocks[index], module_filter_fn=is_taken)\n"
    "    return model\n";

static const char pytorch[] =
    "\n\n"
    "def wrap(model):\n"
    "    \"\"\"The model as the plan trains it; torch.distributed is initialised.\"\"\"\n"
    "    if PRODUCTS == \"fp8\":\n"
    "        model = in_fp8(model)\n"
    "    model = checkpointed(model)\n"
    "    if PRODUCTS == \"fp8\":  # casts are fused\n"
    "        for blocks, index in blocks_of(model):\n"
    "            blocks[index].compile()\n"
    "    if ZERO >= 2:\n"
    "        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard\n\n"
    "        policy = MixedPrecisionPolicy(param_dtype=PRECISION, reduce_dtype=GRADIENTS)\n"
    "        settings = {\"mp_policy\": policy, \"reshard_after_forward\": ZERO == 3}\n"
    "        for blocks, index in blocks_of(model) if BLOCKS else []:\n"
    "            fully_shard(blocks[index], **settings)\n"
    "        return fully_shard(model, **settings)\n"
    "    # Before PyTorch 2.4 the first bucket has a limit of its own.\n"
    "    torch.distributed._DEFAULT_FIRST_BUCKET_BYTES = BUCKET_BYTES\n"
    "    wrapped = torch.nn.parallel.DistributedDataParallel(\n"
    "        model, bucket_cap_mb=BUCKET_BYTES / 2**20, gradient_as_bucket_view=True\n"
    "    )\n"
    "    if GRADIENTS != torch.float32:\n"
    "        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks\n\n"
    "        hook = default_hooks.fp16_compress_hook\n"
    "        if GRADIENTS == torch.bfloat16:\n"
    "            hook = default_hooks.bf16_compress_hook\n"
    "        wrapped.register_comm_hook(torch.distributed.group.WORLD, hook)\n"
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
    "    if ZERO >= 2:\n"
    "        wrapped.set_requires_gradient_sync(number == PASSES - 1)\n"
    "        return contextlib.nullcontext()\n"
    "    return contextlib.nullcontext() if number == PASSES - 1 else wrapped.no_sync()\n";

static const char horovod[] =
    "\n\n"
    "def wrap(model):\n"
    "    \"\"\"The model as the plan trains it; Horovod is initialised.\"\"\"\n"
    "    model = checkpointed(model)\n"
    "    hvd.broadcast_parameters(model.state_dict(), root_rank=0)\n"
    "    return model\n"
    "\n\n"
    "def optimizer(model):\n"
    "    \"\"\"The plan's optimizer, averaging gradients over all processes.\"\"\"\n"
    "    return hvd.DistributedOptimizer(\n"
    "        OPTIMIZER(model.parameters(), **OPTIMIZER_SETTINGS),\n"
    "        named_parameters=model.named_parameters(),\n"
    "        compression=hvd.Compression.none if GRADIENTS == torch.float32 else "
    "hvd.Compression.fp16,\n"
    "        backward_passes_per_step=PASSES,\n"
    "    )\n";

ty_status ty_launch_settings(const launch *l, launch_framework framework, ty_text *text,
                             ty_error *error)
{
    const ty_recompute recompute = l->plan->stages[0].recompute;
    const bool has_engine = framework == LAUNCH_DEEPSPEED || framework == LAUNCH_ACCELERATE;

    ty_launch_comments(l, "# ", text);
    ty_text_addf(text,
                 "\"\"\"Settings of a plan: import this in the training script.%s\"\"\"\n"
                 "import contextlib\n\n%simport torch\n\n",
                 framework == LAUNCH_DEEPSPEED && recompute != TY_RECOMPUTE_NONE
                     ? "\n\nNo key of ds_config.json says what is made again: the script does, by "
                       "checkpointed(model) before\ndeepspeed.initialize.\n"
                     : "",
                 framework == LAUNCH_HOROVOD ? "import horovod.torch as hvd\n" : "");
    write_figures(l, framework, ty_launch_blocks(l), text);
    if (framework == LAUNCH_PYTORCH)
        write_buckets(l, text);
    write_optimizer(&l->plan->optimizer, text);
    ty_text_add(text, blocks_of);
    ty_text_add(text, framework == LAUNCH_ACCELERATE && recompute == TY_RECOMPUTE_FULL
                          ? left_alone
                          : checkpointed);
    if (!has_engine) /* it has its own */
        ty_text_add(text, precision);
    if (framework == LAUNCH_PYTORCH)
        ty_text_add(text, in_fp8);
    ty_text_add(text, framework == LAUNCH_PYTORCH   ? pytorch
                      : framework == LAUNCH_HOROVOD ? horovod
                                                    : "");
    return ty_text_check(text, error);
}

ty_status ty_launch_add_settings(launch *l, launch_framework framework, ty_error *error)
{
    ty_text text = {0};
    const ty_status status = ty_launch_settings(l, framework, &text, error);

    if (status == TY_OK)
        return ty_launch_add(l, "trainyard_plan.py", &text, false, error);
    ty_text_clear(&text);
    return status;
}
