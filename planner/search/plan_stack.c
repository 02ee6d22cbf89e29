/* Moves a plan to another stack. */
#include "candidate.h"

#include <string.h>

/* Whether the stack can run the plan. */
static ty_status check_plan(const ty_stack *stack, const ty_plan *plan, ty_error *error)
{
    ty_stack_use use = {
        .sizes = {plan->tensor_parallel, plan->context_parallel, plan->expert_parallel},
        .stages = plan->stage_count,
        .schedule = (int)plan->schedule,
        .compression = -1,
        .zero = (int)plan->zero,
        .staleness = plan->staleness,
        .has_priority = plan->exchange_order != NULL,
        .shares_key_heads = ty_tensor_shares_key_heads(plan->workload, plan->tensor_parallel),
        .is_dense = ty_workload_is_dense(plan->workload),
        .has_experts = ty_workload_has_experts(plan->workload),
        .is_fp16 =
            ty_trains_in_fp16(plan->workload, plan->cluster, ty_plan_device_of_replica(plan, 0)),
        .segment = 1, /* of every stage, below */
        .sequence_parallel = plan->sequence_parallel};
    uint32_t *first_layers = ty_alloc(plan->stage_count, sizeof *first_layers);
    ty_status status = first_layers != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "out of memory");

    for (uint32_t s = 0; status == TY_OK && s < plan->stage_count; s++) {
        use.is_uneven = use.is_uneven || plan->stages[s].replicas != plan->stages[0].replicas;
        use.recompute = (int)plan->stages[s].recompute;
        first_layers[s] = plan->stages[s].first_layer;
        status = ty_stack_check(stack, &use, error);
    }
    if (status == TY_OK)
        status =
            ty_stack_stages_check(&stack->plans, plan->workload, first_layers, plan->stage_count,
                                  plan->stages[0].recompute == TY_RECOMPUTE_FULL,
                                  plan->stages[0].recompute_blocks, error);
    for (uint32_t b = 0; status == TY_OK && b < plan->bucket_count; b++) {
        use.compression = (int)plan->buckets[b].compression.kind;
        status = ty_stack_check(stack, &use, error);
    }
    ty_free(first_layers);
    return status;
}

ty_status ty_plan_use_stack(ty_plan *plan, const ty_stack *stack, ty_error *error)
{
    ty_stack *copy = NULL;
    ty_status status = check_plan(stack, plan, error);

    if (status == TY_OK)
        status = ty_stack_copy(stack, &copy, error);
    if (status != TY_OK)
        return status;
    ty_stack_free(plan->stack);
    plan->stack = copy;
    plan->has_prediction = false;
    plan->prediction = plan->simulation = (ty_step_summary){0};
    plan->least_step_time_s = plan->most_step_time_s = 0;
    memset(plan->uneven, 0, sizeof plan->uneven);
    for (uint32_t c = 0; c < plan->candidate_count; c++)
        candidate_clear(&plan->candidates[c]);
    ty_free(plan->fix); /* fields that follow from others may follow differently */
    plan->fix = NULL;
    plan->candidate_count = 0;
    return plan->memory == NULL ? TY_OK : ty_plan_count_memory(plan, error);
}
