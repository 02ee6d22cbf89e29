/* What playing costs, and keeping the weights that play. */
#include "costing.h"

#include <math.h>

/* Steps follow one another: each is a pass of one row of every episode. The environment is in it
 * only where it was measured. */
static ty_status play_by_kernels(ty_costing *costing, const ty_workload *step, double *seconds)
{
    const ty_plan *plan = costing->plan;
    const ty_plan alone = {.workload = (ty_workload *)step,
                           .stack = plan->stack,
                           .micro_batch_size = plan->micro_batch_size};
    ty_status status = TY_OK;

    *seconds = 0;
    for (uint32_t t = 0; t < costing->stage.type_count; t++) {
        double device_s = 0, host_s = 0;
        for (uint32_t l = 0; l + 1 < step->layer_count; l++) { /* without the loss */
            ty_layer_price price;
            TY_CHECK(ty_layer_price_of(&alone, l, costing->stage.types[t], &price, costing->error),
                     status, done);
            device_s += price.forward.device_s;
            host_s += price.forward.host_s;
        }
        *seconds = fmax(*seconds, fmax(device_s, host_s));
    }
    *seconds *= (double)plan->workload->input.dimensions[0];
    ty_cost_relies_on(costing, TY_DATASHEET);
done:
    return status;
}

static ty_status find_play(ty_costing *costing)
{
    const ty_plan *plan = costing->plan;
    ty_workload *step = NULL;
    char *signature = NULL;
    double ignored;
    ty_status status = ty_workload_play_signature(plan->workload, &signature, costing->error);

    if (status == TY_OK && (plan->profile == NULL ||
                            !ty_profile_layer(plan->profile, signature, plan->micro_batch_size,
                                              &costing->stage.play_s, &ignored))) {
        TY_CHECK(ty_workload_step_make(plan->workload, &step, costing->error), status, done);
        status = play_by_kernels(costing, step, &costing->stage.play_s);
    }
done:
    ty_free(signature);
    ty_workload_free(step);
    return status;
}

ty_status ty_cost_act(ty_costing *costing, const ty_instruction *instruction,
                      ty_instruction_cost *cost)
{
    ty_status status = TY_OK;

    (void)instruction;
    if (!(costing->stage.play_s > 0))
        status = find_play(costing);
    *cost = (ty_instruction_cost){.seconds = costing->stage.play_s + ty_cost_overhead_s(costing),
                                  .core_share = costing->stage.core_share};
    return status;
}

ty_status ty_cost_renew(ty_costing *costing, const ty_instruction *instruction,
                        ty_instruction_cost *cost)
{
    const double bytes =
        (double)ty_plan_policy_bytes(costing->plan) * ty_plan_policy_messages(costing->plan, 0);

    (void)instruction;
    *cost = (ty_instruction_cost){.seconds = ty_cost_memory_s(costing, 2 * bytes) +
                                             ty_cost_overhead_s(costing),
                                  .core_share = costing->stage.core_share};
    return TY_OK;
}
