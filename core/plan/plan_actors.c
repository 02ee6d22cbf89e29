/* Actors: their stage, their messages, and the plans that may have them. */
#include "ty_plan.h"

bool ty_plan_is_of_actors(const ty_plan *plan, uint32_t stage)
{
    return stage == 0 && plan->stage_count > 1 && plan->stages[0].layer_count == 0;
}

uint32_t ty_plan_actors(const ty_plan *plan)
{
    return ty_plan_is_of_actors(plan, 0) ? plan->stages[0].replicas : 0;
}

uint32_t ty_plan_first_stage(const ty_plan *plan)
{
    return ty_plan_is_of_actors(plan, 0) ? 1 : 0;
}

uint32_t ty_plan_policy_messages(const ty_plan *plan, uint32_t stage)
{
    const uint32_t actors = ty_plan_actors(plan);
    const uint32_t own = plan->stages[stage].replicas;
    const uint32_t others = actors == 0 ? 0 : plan->stages[1 - stage].replicas;

    return actors == 0 ? 0 : others > own ? others / own : 1;
}

uint64_t ty_plan_policy_bytes(const ty_plan *plan)
{
    const ty_workload *w = plan->workload;
    const uint64_t weights = ty_workload_parameter_bytes(w, 0, w->layer_count) / w->element_bytes;
    const uint64_t parts = ty_plan_policy_messages(plan, 0);

    return parts == 0 ? 0 : (weights + parts - 1) / parts * sizeof(float);
}

bool ty_actors_suit(uint32_t actors, uint32_t learners, uint32_t micro_batches)
{
    return actors > 0 && learners > 0 && (actors % learners == 0 || learners % actors == 0) &&
           micro_batches % actors == 0 && micro_batches % learners == 0;
}

const char *ty_plan_acting_refusal(const ty_plan *plan)
{
    if (plan->workload->learning != TY_LEARNING_REINFORCEMENT)
        return NULL;
    if (ty_plan_replica_ranks(plan) > 1)
        return "with tensor, context or expert parallelism no device has the entire policy";
    if (plan->zero > 0)
        return "with ZeRO weights are gathered for passes, and not for playing";
    if (plan->staleness > 0)
        return "gradients are late, and with actors samples are";
    if (!ty_schedule_is_plain(plan->schedule))
        return "the schedule is for stages, and learners have the whole network";
    if (plan->workload->precision != TY_PRECISION_FP32)
        return "policies play in fp32";
    return NULL;
}
