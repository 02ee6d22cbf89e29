/* Another software for a plan that was made with some. */
#include "candidate.h"

ty_status ty_plan_use_stack(ty_plan *plan, const ty_stack *stack, ty_error *error)
{
    ty_stack *copy = NULL;
    ty_status status = ty_stack_copy(stack, &copy, error);

    if (status != TY_OK)
        return status;
    ty_stack_free(plan->stack);
    plan->stack = copy;
    plan->has_prediction = false;
    plan->prediction = plan->simulation = (ty_step_summary){0};
    plan->least_step_time_s = plan->most_step_time_s = 0;
    for (uint32_t c = 0; c < plan->candidate_count; c++) {
        ty_free(plan->candidates[c].name);
        ty_free(plan->candidates[c].reason);
    }
    plan->candidate_count = 0;
    return plan->memory == NULL ? TY_OK : ty_plan_count_memory(plan, error);
}
