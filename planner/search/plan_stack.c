/* Moves a plan to another stack. */
#include "candidate.h"

#include <string.h>

/* Whether the stack can run the plan: its values, stage by stage, and bucket by bucket. */
static ty_status check_plan(const ty_stack *stack, const ty_plan *plan, ty_error *error)
{
    const bool is_fp16 =
        ty_trains_in_fp16(plan->workload, plan->cluster, ty_plan_device_of_replica(plan, 0));
    uint32_t *first_layers = ty_alloc(plan->stage_count, sizeof *first_layers);
    ty_pins pins;
    ty_status status = ty_check_memory(first_layers != NULL, error);

    for (uint32_t s = 0; status == TY_OK && s < plan->stage_count; s++) {
        ty_plan_pins(plan, s, &pins);
        pins.dimensions.recompute_blocks = 1; /* of every stage, below */
        if (plan->stages[s].replicas != plan->stages[0].replicas &&
            !ty_axis_may(&stack->plans.may, TY_AXIS_REPLICAS, TY_KIND_UNEQUAL))
            status = ty_fail(error, TY_EINVAL,
                             "stack %s has stages with equal replicas; found %u and %u",
                             stack->name, plan->stages[0].replicas, plan->stages[s].replicas);
        else
            status = ty_stack_check(stack, &pins, plan->workload, is_fp16, error);
        if (status == TY_OK)
            first_layers[s] = plan->stages[s].first_layer;
    }
    if (status == TY_OK)
        status =
            ty_stack_stages_check(&stack->plans, plan->workload, first_layers, plan->stage_count,
                                  plan->stages[0].recompute == TY_RECOMPUTE_FULL,
                                  plan->stages[0].recompute_blocks, error);
    for (uint32_t b = 0; status == TY_OK && b < plan->bucket_count; b++) {
        ty_pin(&pins, TY_AXIS_COMPRESSION, plan->buckets[b].compression.kind);
        status = ty_stack_check(stack, &pins, plan->workload, is_fp16, error);
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
