/* Megatron-LM: arguments of pretrain_gpt.py, one a line, and the torchrun that starts it. Names:
 * NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.12 and later for
 * --pipeline-model-parallel-layout). */
#include "launch.h"
#include "megatron_model.h"

#include <string.h>

static const char target[] = "megatron";

/* ---- What Megatron can do ---------------------------------------------------------------- */

static ty_status check_schedule(const ty_plan *plan, ty_error *error)
{
    const uint32_t positions = ty_plan_position_count(plan),
                   each = plan->micro_batches / plan->stages[0].replicas;

    if (plan->stage_count > 1 && plan->schedule != TY_ONE_F_ONE_B &&
        plan->schedule != TY_INTERLEAVED)
        return ty_launch_refuse(error, target,
                                "its pipelines run 1f1b or interleaved, and the plan %s; plan with "
                                "--fix schedule=1f1b",
                                ty_schedule_name(plan->schedule));
    for (uint32_t s = 1; s < plan->stage_count; s++) {
        if (plan->stages[s].replicas != plan->stages[0].replicas)
            return ty_launch_refuse(
                error, target,
                "every stage has equally many replicas there; found %u in stage "
                "0 and %u in stage %u; plan with --fix dp=N,pp=%u",
                plan->stages[0].replicas, plan->stages[s].replicas, s, plan->stage_count);
        if (plan->stages[s].recompute != plan->stages[0].recompute ||
            plan->stages[s].recompute_blocks != plan->stages[0].recompute_blocks)
            return ty_launch_refuse(error, target, "all stages recompute alike there");
    }
    if (ty_plan_interleave(plan) > 1 && each % positions != 0)
        return ty_launch_refuse(error, target,
                                "interleaved stages take the micro-batches of a replica in groups "
                                "of as many as there are positions; found %u and %u; plan with "
                                "--fix schedule=1f1b",
                                each, positions);
    if (plan->stages[0].recompute == TY_RECOMPUTE_OPERATOR)
        return ty_launch_refuse(
            error, target,
            "it recomputes whole layers or the core of attention, not every other "
            "product (operator); plan with --fix recompute=full or selective");
    return TY_OK;
}

/* Of norms and activation functions "layernorm" makes those of blocks again, "moe_act" those of
 * routed experts; there is no word for others
 * (megatron/core/transformer/transformer_config.py, recompute_modules). */
static ty_status check_elementwise(const ty_plan *plan, const megatron_model *m, ty_error *error)
{
    if (plan->stages[0].recompute == TY_RECOMPUTE_ELEMENTWISE &&
        (m->mlp != NULL || m->moe->attributes[TY_SHARED_FEATURES] > 0))
        return ty_launch_refuse(error, target,
                                "it recomputes activation functions of routed experts, and the "
                                "plan those of %.80s too (elementwise); plan with --fix "
                                "recompute=full or none",
                                (m->mlp != NULL ? m->mlp : m->moe)->name);
    return TY_OK;
}

/* What is divided among lanes must divide evenly. */
static ty_status check_lanes(const ty_plan *plan, const megatron_model *m, ty_error *error)
{
    const uint32_t tensor = ty_plan_lanes(plan, TY_TENSOR_LANES);
    const struct {
        const char *what;
        uint64_t number;
    } divided[] = {
        {"heads", m->attention->attributes[TY_HEADS]},
        {"heads of keys and values",
         m->attention->attributes[TY_KV_RANK] > 0 ? 0 : m->attention->attributes[TY_KV_HEADS]},
        {"features of the mlp", m->mlp != NULL ? m->mlp->attributes[TY_HIDDEN_FEATURES] : 0},
        {"features of an expert", m->moe != NULL ? m->moe->attributes[TY_HIDDEN_FEATURES] : 0},
        {"tokens", plan->sequence_parallel ? plan->workload->tokens_per_sample : 0},
    };

    for (size_t i = 0; i < sizeof divided / sizeof divided[0]; i++)
        if (divided[i].number % tensor != 0)
            return ty_launch_refuse(error, target,
                                    "tensor parallelism divides %s evenly there; found %llu among "
                                    "%u; plan with --fix tp=N",
                                    divided[i].what, (unsigned long long)divided[i].number, tensor);
    if (m->moe != NULL && tensor > 1 && !plan->sequence_parallel)
        return ty_launch_refuse(error, target,
                                "experts and tensor parallelism need sequence parallelism there; "
                                "plan with --fix sp=1 or tp=1");
    return TY_OK;
}

static ty_status check_training(const ty_plan *plan, ty_error *error)
{
    if (plan->workload->local_steps > 1 || plan->workload->learning != TY_LEARNING_GRADIENT)
        return ty_launch_refuse(error, target, "it averages gradients in every step");
    if (plan->staleness > 0)
        return ty_launch_refuse(
            error, target,
            "it waits for the gradients of every step, and the plan's may be %u "
            "late; plan with --fix staleness=0",
            plan->staleness);
    if (plan->exchange_order != NULL)
        return ty_launch_refuse(error, target, TY_LAUNCH_NO_PRIORITY);
    if (plan->zero > 1)
        return ty_launch_refuse(
            error, target,
            "its distributed optimizer shards optimizer state (ZeRO 1), and the "
            "plan has ZeRO %u; deepspeed has it",
            plan->zero);
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (plan->buckets[b].compression.kind != TY_COMPRESSION_NONE &&
            plan->buckets[b].compression.kind != TY_COMPRESSION_ROWS)
            return ty_launch_refuse(error, target,
                                    "it compresses no gradients; plan with --fix compression=none");
    return TY_OK;
}

/* Blocks of a stage, whose ends must be those of blocks. */
static ty_status blocks_of_stage(const ty_plan *plan, const megatron_model *m, uint32_t stage,
                                 uint32_t *blocks, ty_error *error)
{
    const ty_plan_stage *s = &plan->stages[stage];
    const uint32_t last = m->first_block_layer + m->blocks * m->block_layers;
    uint32_t begin = s->first_layer, end = s->first_layer + s->layer_count;

    if (stage == 0)
        begin = m->first_block_layer;
    if (stage + 1 == plan->stage_count)
        end = last;
    if (end > last || begin > end || (begin - m->first_block_layer) % m->block_layers != 0 ||
        (end - begin) % m->block_layers != 0)
        return ty_launch_refuse(error, target,
                                "stages are of whole blocks there, and stage %u is from %s to %s",
                                stage, plan->workload->layers[s->first_layer].name,
                                plan->workload->layers[s->first_layer + s->layer_count - 1].name);
    *blocks = (end - begin) / m->block_layers;
    return TY_OK;
}

/* ---- Arguments --------------------------------------------------------------------------- */

/* "Et*6|t*7|t*6L": embedding, blocks, loss. */
static ty_status put_layout(const ty_plan *plan, const megatron_model *m, ty_text *text,
                            ty_error *error)
{
    ty_text layout = {0};
    ty_status status = TY_OK;
    uint32_t first = 0, blocks = 0;
    bool is_even = true;

    for (uint32_t s = 0; s < plan->stage_count; s++) {
        TY_CHECK(blocks_of_stage(plan, m, s, &blocks, error), status, cleanup);
        first = s == 0 ? blocks : first;
        is_even &= blocks == first;
        ty_text_addf(&layout, "%s%s", s > 0 ? "|" : "", s == 0 ? "E" : "");
        if (blocks > 0)
            ty_text_addf(&layout, "t*%u", blocks);
        ty_text_add(&layout, s + 1 == plan->stage_count ? "L" : "");
    }
    if (!is_even)
        ty_text_addf(text, "--pipeline-model-parallel-layout %s\n",
                     layout.data != NULL ? layout.data : "");
    else if (ty_plan_interleave(plan) > 1)
        ty_text_addf(text, "--num-layers-per-virtual-pipeline-stage %u\n", first);

cleanup:
    ty_text_clear(&layout);
    return status;
}

static bool overlaps_exchange(const ty_plan *plan)
{
    return plan->stack == NULL || plan->stack->overlaps_exchange;
}

static void put_parallelism(const launch *l, ty_text *text)
{
    const ty_plan *plan = l->plan;
    const bool is_exchanged =
        plan->stages[0].replicas * ty_plan_width(plan) > ty_plan_lanes(plan, TY_TENSOR_LANES);

    ty_text_addf(text, "--tensor-model-parallel-size %u\n--pipeline-model-parallel-size %u\n",
                 ty_plan_lanes(plan, TY_TENSOR_LANES), ty_plan_position_count(plan));
    /* The plan's context lanes gather keys and values. */
    if (plan->context_parallel > 1)
        ty_text_addf(text, "--context-parallel-size %u\n--cp-comm-type all_gather\n",
                     plan->context_parallel);
    /* What a device has and sends is the same: with whom it shares experts is not. */
    if (plan->expert_parallel > 1 && plan->context_parallel > 1)
        ty_text_add(text, "# differs: it divides experts among the parts of a sequence first, the "
                          "plan among samples\n");
    if (plan->expert_parallel > 1)
        ty_text_addf(text, "--expert-model-parallel-size %u\n", plan->expert_parallel);
    if (plan->sequence_parallel)
        ty_text_add(text, "--sequence-parallel\n");
    /* There a micro-batch is what one lane has. */
    ty_text_addf(text, "--micro-batch-size %u\n--global-batch-size %u\n",
                 plan->micro_batch_size / ty_plan_lanes(plan, TY_EXPERT_LANES), plan->global_batch);
    if (plan->zero == 1)
        ty_text_add(text, "--use-distributed-optimizer\n");
    if (is_exchanged && overlaps_exchange(plan)) {
        ty_text_addf(
            text, "--overlap-grad-reduce\n--ddp-bucket-size %llu\n",
            (unsigned long long)(ty_launch_bucket_limit(l).bytes / TY_GRADIENT_ELEMENT_BYTES));
        if (plan->zero == 1)
            ty_text_add(text, "--overlap-param-gather\n");
    }
}

/* Its layers in each block of the plan: several where what repeats are several layers, as one with
 * experts and one without. 0: one block has more than another. */
static uint32_t layers_of_block(const ty_workload *w, const megatron_model *m)
{
    const uint32_t *starts;
    uint32_t head, each = 0;
    const uint32_t count = ty_workload_blocks(w, &starts, &head),
                   last = m->first_block_layer + m->blocks * m->block_layers;

    for (uint32_t b = 0; b < count; b++) {
        const uint32_t begin = b > 0 ? starts[b] : m->first_block_layer,
                       end = b + 1 < count && starts[b + 1] < last ? starts[b + 1] : last,
                       layers = begin < last ? (end - begin) / m->block_layers : 0;
        if (layers > 0 && each > 0 && layers != each)
            return 0;
        each = layers > 0 ? layers : each;
    }
    return each;
}

/* There a segment is a number of layers that divides those of every stage. */
static ty_status put_recompute(const ty_plan *plan, const megatron_model *m, ty_text *text,
                               ty_error *error)
{
    uint32_t segment = plan->stages[0].recompute_blocks * layers_of_block(plan->workload, m);

    if (plan->stages[0].recompute == TY_RECOMPUTE_SELECTIVE)
        ty_text_add(text, "--recompute-granularity selective\n");
    if (plan->stages[0].recompute == TY_RECOMPUTE_ELEMENTWISE)
        ty_text_add(text, "--recompute-granularity selective\n"
                          "--recompute-modules layernorm moe_act\n");
    if (plan->stages[0].recompute != TY_RECOMPUTE_FULL)
        return TY_OK;
    if (segment == 0 && plan->stages[0].recompute_blocks > 0)
        return ty_launch_refuse(error, target,
                                "it recomputes as many layers at a time everywhere, and the plan "
                                "one block of more layers than another; plan with --fix "
                                "recompute=none or stage");
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint32_t blocks = 0;
        const ty_status status = blocks_of_stage(plan, m, s, &blocks, error);
        if (status != TY_OK)
            return status;
        if (segment == 0)
            segment = blocks;
        if (segment == 0 || blocks % segment != 0)
            return ty_launch_refuse(
                error, target,
                "it recomputes so many layers at a time as divide those of every "
                "stage; found %u of the %u blocks of stage %u; plan with --fix "
                "recompute=full",
                segment, blocks, s);
    }
    ty_text_addf(text,
                 "--recompute-granularity full\n--recompute-method uniform\n"
                 "--recompute-num-layers %u\n",
                 segment);
    return TY_OK;
}

static void put_number(ty_text *text, const char *name, double value)
{
    char number[32];

    ty_format_number(value, number);
    ty_text_addf(text, "--%s %s\n", name, number);
}

/* Gradients are summed and exchanged in 32 bits unless the plan's software keeps 16 of them. */
static void put_precision(const launch *l, ty_text *text)
{
    const bool is_half_gradient =
        l->plan->stack != NULL && l->plan->stack->gradient_bytes < TY_GRADIENT_ELEMENT_BYTES;
    const bool is_bf16 = strcmp(l->precision, "bf16") == 0;

    if (strcmp(l->precision, "fp32") == 0)
        return;
    ty_text_addf(text, "--%s\n", l->precision);
    if (l->plan->workload->precision == TY_PRECISION_FP8)
        ty_text_add(text, "--fp8-format hybrid\n");
    if (l->plan->workload->precision == TY_PRECISION_FP4)
        ty_text_add(text, "--fp4-format e2m1\n");
    if (!is_half_gradient)
        ty_text_add(text, "--accumulate-allreduce-grads-in-fp32\n");
    else if (is_bf16)
        ty_text_add(text, "--grad-reduce-in-bf16\n");
}

static void put_training(const launch *l, ty_text *text)
{
    const ty_optimizer *o = &l->plan->optimizer;

    ty_text_addf(text, "--optimizer %s\n", o->kind == TY_OPTIMIZER_SGD ? "sgd" : "adam");
    put_number(text, "lr", o->learning_rate);
    ty_text_add(text, "--lr-decay-style constant\n");
    put_number(text, "weight-decay", o->weight_decay);
    if (o->kind == TY_OPTIMIZER_SGD) {
        put_number(text, "sgd-momentum", o->momentum);
    } else {
        put_number(text, "adam-beta1", o->beta1);
        put_number(text, "adam-beta2", o->beta2);
        put_number(text, "adam-eps", o->epsilon);
    }
    ty_text_addf(text, "--seed %llu\n", (unsigned long long)l->plan->seed);
    put_precision(l, text);
    if (l->input->steps > 0)
        ty_text_addf(text, "--train-iters %u\n", l->input->steps);
}

/* What the plan's software does beside the network: Megatron's own defaults are dropout of a tenth
 * and fused attention where it can be had. */
static void put_stack(const ty_plan *plan, ty_text *text)
{
    const char *dropout = plan->stack != NULL && plan->stack->has_dropout ? "0.1" : "0.0";

    ty_text_addf(text, "--attention-dropout %s\n--hidden-dropout %s\n", dropout, dropout);
    if (plan->stack != NULL && plan->stack->attention == TY_ATTENTION_SCORES)
        ty_text_add(text, "--attention-backend unfused\n");
}

/* Tokens travel to their experts by an all-to-all, which are one grouped product where the devices
 * have bf16. */
static void put_experts(const launch *l, ty_text *text)
{
    ty_text_add(text, "--moe-token-dispatcher-type alltoall\n");
    if (strcmp(l->precision, "bf16") == 0)
        ty_text_add(text, "--moe-grouped-gemm\n");
}

static ty_status write_arguments(const launch *l, const megatron_model *m, ty_text *text,
                                 ty_error *error)
{
    ty_status status = TY_OK;

    ty_launch_comments(l, "# ", text);
    TY_CHECK(ty_megatron_model_arguments(l->plan->workload, m,
                                         ty_plan_lanes(l->plan, TY_TENSOR_LANES), text, error),
             status, done);
    put_stack(l->plan, text);
    if (m->moe != NULL)
        put_experts(l, text);
    put_parallelism(l, text);
    TY_CHECK(put_recompute(l->plan, m, text, error), status, done);
    TY_CHECK(put_layout(l->plan, m, text, error), status, done);
    put_training(l, text);
done:
    return status;
}

static void write_script(const launch *l, ty_text *text)
{
    ty_text_add(text, "#!/bin/sh\n");
    ty_launch_comments(l, "# ", text);
    ty_text_add(text, "# MEGATRON: the folder of Megatron-LM. Data, tokenizer and checkpoints are "
                      "arguments\n# of this script.\n"
                      "# shellcheck disable=SC2046 # megatron.args is to become words, and none of "
                      "them a pattern\n"
                      "set -f\n");
    /* It wants that for devices before Blackwell, so that transfers are queued in order. */
    if (ty_plan_lanes(l->plan, TY_TENSOR_LANES) > 1 || l->plan->context_parallel > 1)
        ty_text_add(text, "export CUDA_DEVICE_MAX_CONNECTIONS=1\n");
    ty_launch_write_torchrun(l, text);
    ty_text_add(text, "    \"${MEGATRON:?}/pretrain_gpt.py\" $(sed 's/#.*//' megatron.args) "
                      "\"$@\"\n");
}

/* Whether it can run a plan, wherever its devices are. Fills the model: free has_experts. */
static ty_status check_plan(const ty_plan *plan, megatron_model *model, ty_error *error)
{
    ty_status status;
    uint32_t blocks;

    TY_CHECK(ty_megatron_model_of(plan->workload, model, error), status, done);
    TY_CHECK(check_schedule(plan, error), status, done);
    TY_CHECK(check_training(plan, error), status, done);
    TY_CHECK(check_lanes(plan, model, error), status, done);
    TY_CHECK(check_elementwise(plan, model, error), status, done);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        TY_CHECK(blocks_of_stage(plan, model, s, &blocks, error), status, done);
done:
    return status;
}

ty_status ty_launch_megatron(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    megatron_model model = {0};
    ty_text arguments = {0}, script = {0};

    TY_CHECK(check_plan(l->plan, &model, error), status, cleanup);
    TY_CHECK(ty_launch_check_blocks(l, target, error), status, cleanup);
    if (strcmp(l->precision, "fp16") == 0 && l->plan->expert_parallel > 1) {
        status = ty_launch_refuse(error, target,
                                  "experts are not divided in fp16 there; plan with --fix ep=1");
        goto cleanup;
    }
    TY_CHECK(write_arguments(l, &model, &arguments, error), status, cleanup);
    write_script(l, &script);
    TY_CHECK(ty_launch_add(l, "megatron.args", &arguments, false, error), status, cleanup);
    TY_CHECK(ty_launch_add(l, "launch.sh", &script, true, error), status, cleanup);
    status = ty_launch_next(l, error, "MEGATRON=/path/to/Megatron-LM ./launch.sh --data-path ...");

cleanup:
    ty_free(model.has_experts);
    ty_text_clear(&arguments);
    ty_text_clear(&script);
    return status;
}
