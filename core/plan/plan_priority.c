/* Priority of early layers: plans that may have an `exchange_order`, and the checks of that
 * order. */
#include "plan_check.h"

#include "ty_base.h"

const char *ty_priority_refusal(const ty_priority_use *use)
{
    if (use->stages > 1)
        return "the next step's forward begins on the first stage, after the updates of others";
    if (use->width > 1)
        return "tensor, context or expert parallelism communicates inside layers, too";
    if (use->zero > 0)
        return "with ZeRO weights are gathered at once before the next step";
    if (use->servers > 0)
        return "servers answer in the order in which gradients come";
    if (use->staleness > 0)
        return "late gradients let no forward wait";
    if (use->local_steps > 1)
        return "replicas take local steps and exchange weights";
    if (use->is_evolution)
        return "a population has no gradients";
    if (use->is_played)
        return "the next step begins with episodes, after all updates";
    if (use->has_teacher)
        return "the next step's forward begins with a teacher that follows all updates";
    if (use->schedule >= 0 && !ty_schedule_is_plain((ty_schedule)use->schedule))
        return "that schedule has an order of its own, expected gpipe or 1f1b";
    if (use->is_recomputed)
        return "segments are made again with weights that may not be there";
    if (use->precision == TY_PRECISION_FP16)
        return "whether a step counts is known when all gradients of fp16 are there";
    if (use->replicas == 1)
        return "one replica exchanges nothing";
    return NULL;
}

const char *ty_plan_priority_refusal(const ty_plan *plan)
{
    ty_priority_use use = {.stages = plan->stage_count,
                           .replicas = plan->stages[0].replicas,
                           .width = ty_plan_replica_ranks(plan),
                           .zero = plan->zero,
                           .servers = plan->servers.count,
                           .staleness = plan->staleness,
                           .local_steps = plan->workload->local_steps,
                           .is_evolution = plan->workload->learning == TY_LEARNING_EVOLUTION,
                           .is_played = plan->workload->learning == TY_LEARNING_REINFORCEMENT,
                           .has_teacher = ty_workload_has_teacher(plan->workload),
                           .schedule = (int)plan->schedule,
                           .precision = plan->workload->precision};

    for (uint32_t s = 0; s < plan->stage_count; s++)
        use.is_recomputed =
            use.is_recomputed || ty_recompute_has_segments(plan->stages[s].recompute);
    return ty_priority_refusal(&use);
}

ty_status ty_plan_check_order(const plan_checker *c)
{
    const ty_plan *p = c->plan;
    const char *why;
    ty_status status = TY_OK;
    bool *is_met;

    if (p->exchange_order == NULL)
        return TY_OK;
    if ((why = ty_plan_priority_refusal(p)) != NULL)
        return ty_plan_complain(c, "/exchange_order: found one, expected none: %s", why);
    is_met = ty_alloc(p->bucket_count, sizeof *is_met);
    TY_TRY(ty_check_memory(is_met != NULL, c->error));
    for (uint32_t i = 0; i < p->bucket_count && status == TY_OK; i++) {
        const uint32_t bucket = p->exchange_order[i];
        if (bucket >= p->bucket_count)
            status =
                ty_plan_complain(c, "/exchange_order/%u: found %u, expected one of the %u buckets",
                                 i, bucket, p->bucket_count);
        else if (is_met[bucket])
            status = ty_plan_complain(
                c, "/exchange_order/%u: found bucket %u twice, expected each once", i, bucket);
        else
            is_met[bucket] = true;
    }
    ty_free(is_met);
    return status;
}
