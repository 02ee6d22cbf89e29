/**
 * @file ty_systems.h
 * The systems that people know, as presets over the space of plans: what each of them would do with
 * a workload and a cluster, so that they can be set side by side, simulated and run alike.
 *
 *     const ty_system *system = ty_system_find("horovod");
 *     TY_CHECK(ty_plan_system(system, workload, cluster, NULL, &options, &plan, error), ...);
 *
 * A preset is the system's strategy, exchange and defaults, not its implementation: it is costed,
 * simulated and run as any plan is. Where a system tunes itself or leaves a choice to its users
 * (fusion threshold, stages, ZeRO level), the best of the choices is taken.
 */
#ifndef TY_SYSTEMS_H
#define TY_SYSTEMS_H

#include "ty_core.h"
#include "ty_topologies.h"

struct ty_plan_options;

typedef struct ty_system {
    const char *name;   /* "gpipe" */
    const char *what;   /* a line: what it does */
    const char *source; /* of its defaults */
} ty_system;

/** In the order they came up; NULL behind the last. */
const ty_system *ty_system_at(uint32_t index);
/** NULL when there is none of that name. */
const ty_system *ty_system_find(const char *name);

/**
 * The best plan among what the system can do. What the preset decides overrides `options` (stages,
 * schedule, dimensions, buckets, compression, exchange); batch, seed, simulation and the rest are
 * theirs.
 * @return what ty_plan_search returns; TY_EINFEASIBLE or TY_EINVAL of the choice that came closest
 *         when none is possible
 */
ty_status ty_plan_system(const ty_system *system, const ty_workload *workload,
                         const ty_cluster *cluster, const ty_profile *profile,
                         const struct ty_plan_options *options, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;

#endif
