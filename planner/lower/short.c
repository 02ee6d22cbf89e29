/*
 * Shorter programs. A schedule warms up, repeats its steady state and cools down. More
 * micro-batches only add repetitions, so a program of fewer shows the memory of all, and two of
 * them the time (estimate/steady.c).
 */
#include "lowering.h"

/* Micro-batches of a window beyond those in flight: loads are ahead of them. */
#define MORE_THAN_IN_FLIGHT 8
/* A program is shortened if it has more micro-batches than this number of short ones. */
#define SHORT_PROGRAMS 3

uint64_t ty_plan_repetition(const ty_plan *plan)
{
    const bool is_interleaved = ty_schedule_at(plan->schedule)->is_interleaved;
    uint64_t together = 1;

    for (uint32_t s = 0; s < plan->stage_count; s++) /* a multiple of all: it divides the plan's */
        together = together / ty_greatest_divisor(together, plan->stages[s].replicas) *
                   plan->stages[s].replicas;
    return together * (is_interleaved ? ty_plan_pipeline_size(plan) : 1);
}

/* At least the in-flight micro-batches of a replica, but for GPipe's. */
static uint64_t in_flight(const ty_plan *plan)
{
    uint64_t most = 0;

    for (uint32_t p = 0; p < ty_plan_pipeline_size(plan); p++) {
        const uint64_t warmup = ty_plan_warmup(plan, p);
        most = warmup > most ? warmup : most;
    }
    return (most + 1) * ty_schedule_at(plan->schedule)->warmup_times;
}

/* At least the micro-batches from the one whose forward is next to the one whose last pass is: of
 * interleaved stages three groups, of a backward in two parts the deferred ones, too. */
static uint64_t at_once(const ty_plan *plan)
{
    const ty_schedule_row *row = ty_schedule_at(plan->schedule);

    return in_flight(plan) * (row->is_interleaved ? 3 : row->splits_backward ? 2 : 1);
}

/* The plan's, or fewer: a multiple of its repetition with `local` or more of every replica. */
static uint32_t at_most_plans(const ty_plan *plan, uint64_t local, uint64_t programs)
{
    const uint64_t repetition = ty_plan_repetition(plan);
    uint64_t count = 0;

    for (uint32_t p = 0; p < ty_plan_pipeline_size(plan); p++)
        count = local * plan->stages[p].replicas > count ? local * plan->stages[p].replicas : count;
    count = (count + repetition - 1) / repetition * repetition;
    return ty_plan_actors(plan) > 0 || plan->micro_batches <= programs * count ? plan->micro_batches
                                                                               : (uint32_t)count;
}

uint32_t ty_plan_memory_micro_batches(const ty_plan *plan)
{
    return at_most_plans(plan, 2 * in_flight(plan), 1);
}

uint32_t ty_plan_steady_micro_batches(const ty_plan *plan)
{
    return at_most_plans(plan, TY_SHORT_WINDOWS * (at_once(plan) + MORE_THAN_IN_FLIGHT),
                         SHORT_PROGRAMS);
}
