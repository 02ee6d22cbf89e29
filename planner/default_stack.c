/* The software that is taken for granted where nobody names one. */
#include "candidate.h"

#include "ty_collective_model.h"

#include <string.h>

#define LANGUAGE_STACK "megatron"

/* Whether a network is one of tokens and attention, whose gradients are summed up in every step. */
static bool is_language_model(const ty_workload *w)
{
    bool has_attention = false;

    for (uint32_t l = 0; l < w->layer_count; l++)
        has_attention = has_attention || w->layers[l].kind == TY_LAYER_ATTENTION;
    return has_attention && w->tokens_per_sample > 0 && w->local_steps <= 1 &&
           w->learning == TY_LEARNING_GRADIENT;
}

/* What has units for 32-bit products cut to 19 bits: accelerators from Ampere on. */
static bool is_of_today(const ty_cluster *cluster)
{
    for (uint32_t d = 0; d < ty_cluster_device_count(cluster); d++)
        if (!(ty_cluster_device_type(cluster, d)->peak_tf32_flop_per_s > 0))
            return false;
    return true;
}

bool ty_trains_in_fp16(const ty_workload *workload, const ty_cluster *cluster, uint32_t device)
{
    ty_communicator communicator;

    if (workload->precision == TY_PRECISION_FP16 || workload->element_bytes != 2)
        return workload->precision == TY_PRECISION_FP16;
    return cluster != NULL &&
           ty_communicator_of(cluster, &device, 1, &communicator, NULL) == TY_OK &&
           communicator.generation == TY_VOLTA;
}

ty_stack_use ty_stack_use_of(const ty_workload *workload, const ty_plan_options *o)
{
    const ty_plan_dimensions *d = &o->dimensions;
    const bool is_interleaved = d->interleave > 1;
    ty_stack_use use = {
        .lanes = {d->tensor_parallel, d->context_parallel, d->expert_parallel},
        .stages = is_interleaved && o->pipeline_stages < 2 ? 2 : o->pipeline_stages,
        .schedule = is_interleaved    ? TY_INTERLEAVED
                    : o->fix_schedule ? (int)o->schedule
                                      : -1,
        .compression = o->fix_compression ? (int)o->compression.kind : -1,
        .recompute = (o->pinned & TY_PIN_RECOMPUTE) != 0 ? (int)d->recompute : -1,
        .zero = (o->pinned & TY_PIN_ZERO) != 0 ? (int)d->zero : -1,
        .staleness = o->staleness,
        .has_priority = o->priority != TY_PRIORITY_NONE,
        .shares_key_heads = ty_tensor_shares_key_heads(workload, d->tensor_parallel),
        .is_dense = ty_workload_is_dense(workload),
        .has_experts = ty_workload_has_experts(workload),
        .is_fp16 = workload->precision == TY_PRECISION_FP16,
        .sequence_parallel = (o->pinned & TY_PIN_SEQUENCE) != 0 ? (int)d->sequence_parallel : -1,
        .segment = d->recompute_blocks};
    const uint32_t *starts;
    uint32_t head;

    use.blocks = ty_workload_blocks(workload, &starts, &head);
    use.blocks -= head != TY_NO_LAYER;
    if (o->layers != NULL && o->pipeline_stages == 0) { /* one more than there are commas */
        const uint32_t held = d->interleave > 1 ? d->interleave : 1;
        use.stages = 1;
        for (const char *c = o->layers; *c != '\0'; c++)
            use.stages += *c == ',';
        use.stages = use.stages < held ? 1 : use.stages / held;
    }
    if (o->replicas != NULL) { /* "2,1" */
        const char *end = strchr(o->replicas, ',');
        const size_t length = end != NULL ? (size_t)(end - o->replicas) : 0;
        use.stages = 1;
        for (; end != NULL; end = strchr(end + 1, ',')) {
            use.stages++;
            use.is_uneven = use.is_uneven || strncmp(end + 1, o->replicas, length) != 0 ||
                            (end[1 + length] != ',' && end[1 + length] != '\0');
        }
    }
    if (o->layers == NULL) /* their stages are looked at one by one */
        use.parts = use.stages * (is_interleaved && o->pipeline_stages > 0 ? d->interleave : 1);
    return use;
}

const char *ty_stack_default_name(const ty_workload *workload, const ty_cluster *cluster,
                                  const ty_profile *profile, const ty_plan_options *options)
{
    ty_stack *stack = NULL;
    ty_stack_use use;
    bool can_run;

    if (profile != NULL || !is_language_model(workload) || !is_of_today(cluster) ||
        (options != NULL &&
         (options->allow_lossy || options->fix_algorithm || options->servers > 0)))
        return TY_WORKER_STACK;
    if (options == NULL)
        return LANGUAGE_STACK;
    use = ty_stack_use_of(workload, options);
    can_run = ty_stack_open(LANGUAGE_STACK, &stack, NULL) == TY_OK &&
              ty_stack_check(stack, &use, NULL) == TY_OK;
    ty_stack_free(stack);
    return can_run ? LANGUAGE_STACK : TY_WORKER_STACK;
}
