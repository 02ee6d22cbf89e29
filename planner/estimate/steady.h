/*
 * Internal to planner/: the estimate of a step whose time and memory do not grow with the number of
 * micro-batches.
 *
 * Every event starts when all events that it waits for have ended. Suppose that all events of some
 * consecutive micro-batches come one period later than those of as many micro-batches before them,
 * and that fewer micro-batches are in flight. Then all later ones do, too: they wait for the same
 * events, one period later. So each further period adds the same time to every kind of work, and
 * two short programs that differ by one period show all longer ones.
 */
#ifndef TY_STEADY_H
#define TY_STEADY_H

#include "ty_planner.h"

#include "cost/network_cache.h"

/** A walk over a program: its timeline is that of one replica if that represents all. */
typedef struct ty_walked {
    ty_plan plan; /* as given, with the replicas of the timeline */
    ty_timeline *timeline;
    ty_step_summary summary;
    bool has_stages; /* of its own, to be freed */
} ty_walked;

/** ty_estimate_summary, and the timeline that it summarizes. @param out clear it also after a
 * failure */
ty_status ty_estimate_walk(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                           uint32_t steps, ty_walked *out, ty_error *error) TY_MUST_CHECK;
void ty_walked_clear(ty_walked *walked);

/** The costs of a program; the plan has the program's micro-batches. */
typedef ty_status ty_steady_costs(void *context, const ty_plan *plan, const ty_program *program,
                                  ty_costs **out, ty_error *error);

/**
 * Estimates a plan's step from a short program (ty_plan_lower_short): equal to that of the whole
 * program, to rounding, if the schedule becomes periodic within some ten thousand instructions. If
 * it does not, the whole program is walked. If that is too large, the time of the last quarter of
 * the longest program walked is extrapolated.
 */
ty_status ty_estimate_steady(const ty_plan *plan, const ty_program *program, ty_steady_costs *costs,
                             void *context, ty_step_summary *out, ty_error *error) TY_MUST_CHECK;

#endif
