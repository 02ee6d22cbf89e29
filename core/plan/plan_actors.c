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
