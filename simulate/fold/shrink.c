/* A plan that continues without the devices of one model replica. */
#include "ty_simulate.h"

#include "ty_base.h"

#include <string.h>

static ty_status check(const ty_plan *plan, uint32_t stage_replica, ty_error *error)
{
    if (stage_replica >= ty_plan_stage_replica_count(plan))
        return ty_fail(error, TY_EINVAL, "found stage replica %u, expected one below %u",
                       stage_replica, ty_plan_stage_replica_count(plan));
    for (uint32_t s = 0; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != plan->stages[0].replicas)
            return ty_fail(error, TY_EINFEASIBLE,
                           "stage 0 has %u replicas and stage %u %u: the plan cannot shrink by one",
                           plan->stages[0].replicas, s, plan->stages[s].replicas);
    if (plan->stages[0].replicas < 2)
        return ty_fail(error, TY_EINFEASIBLE, "there is one replica: the plan cannot shrink");
    return TY_OK;
}

static void forget_answer(ty_plan *plan)
{
    for (uint32_t c = 0; c < plan->candidate_count; c++) {
        ty_free(plan->candidates[c].name);
        ty_free(plan->candidates[c].reason);
        ty_free(plan->candidates[c].fix);
    }
    ty_free(plan->fix);
    plan->fix = NULL;
    ty_free(plan->candidates);
    ty_free(plan->memory);
    plan->candidates = NULL;
    plan->candidate_count = 0;
    plan->memory = NULL;
    plan->has_prediction = false;
    plan->prediction = plan->simulation = (ty_step_summary){0};
}

ty_status ty_plan_without_replica(const ty_plan *plan, uint32_t stage_replica, ty_plan **out,
                                  ty_error *error)
{
    const uint32_t width = ty_plan_replica_ranks(plan);
    ty_plan *made = NULL;
    ty_status status = check(plan, stage_replica, error);

    if (status == TY_OK)
        status = ty_plan_copy(plan, &made, error);
    if (status != TY_OK)
        return status;
    const uint32_t pipeline_rank = ty_plan_stage_of_replica(plan, stage_replica);
    const uint32_t lost = stage_replica - ty_plan_first_replica(plan, pipeline_rank);
    for (uint32_t s = 0; s < made->stage_count; s++) {
        ty_plan_stage *stage = &made->stages[s];
        memmove(stage->devices + (size_t)lost * width, stage->devices + (size_t)(lost + 1) * width,
                (size_t)(stage->replicas - 1 - lost) * width * sizeof *stage->devices);
        stage->replicas--;
    }
    made->micro_batches -= plan->micro_batches / plan->stages[0].replicas;
    made->global_batch = made->micro_batches * made->micro_batch_size;
    forget_answer(made);
    *out = made;
    return TY_OK;
}
