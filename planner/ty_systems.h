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
 * (fusion threshold, cycle, stages, ZeRO level), the best of the choices is taken; the best plan of
 * each is among the candidates of the answer, in front, with what it loses.
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
 * The batch that systems are given where none is asked for: the workload's usual one, or the next
 * that all devices of the cluster share evenly.
 */
uint32_t ty_system_batch(const ty_workload *workload, const ty_cluster *cluster);

/**
 * Opens the stack of a system where none is named: the usual one of the question
 * (ty_stack_open_default) where that has all of the system's plans, else Trainyard's own worker's,
 * which says why.
 */
ty_status ty_system_open_stack(const ty_system *system, const ty_workload *workload,
                               const ty_cluster *cluster, const ty_profile *profile,
                               const struct ty_plan_options *options, ty_stack **out,
                               ty_error *error) TY_MUST_CHECK;

/**
 * The best plan among what the system can do. What `options` ask for (stages, replicas, lanes,
 * schedule, buckets, compression, algorithm, sharding, recomputing, late gradients) is in the plan,
 * or the system does not have it and says so; what they leave open is as the system does it. Batch,
 * seed, simulation and the rest are theirs, the batch that they leave open ty_system_batch.
 * @param options a NULL stack is that of ty_system_open_stack
 * @return what ty_plan_search returns; TY_EINFEASIBLE with the system's name, what was found and
 *         what it has instead, where something is asked for that it has not; TY_EINFEASIBLE or
 *         TY_EINVAL of the choice that came closest when none is possible
 */
ty_status ty_plan_system(const ty_system *system, const ty_workload *workload,
                         const ty_cluster *cluster, const ty_profile *profile,
                         const struct ty_plan_options *options, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;

/**
 * Whether two plans for one workload and cluster are the same under two names: one program of
 * one stack on the same devices, its buckets exchanged alike. Systems agree where nothing that
 * distinguishes them comes up: a network smaller than a bucket, no pipeline that is faster than
 * replicas.
 */
ty_status ty_systems_agree(const ty_plan *a, const ty_plan *b, bool *out,
                           ty_error *error) TY_MUST_CHECK;

#endif
