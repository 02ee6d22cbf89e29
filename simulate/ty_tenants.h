/**
 * @file ty_tenants.h
 * Several jobs on one cluster: they talk to nobody but themselves, and share its links.
 */
#ifndef TY_TENANTS_H
#define TY_TENANTS_H

#include "ty_core.h"
#include "ty_topologies.h"

struct ty_simulate_options;

typedef struct ty_tenant {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs;
    uint32_t first_device; /* the plan's device 0 is this one of the cluster */
} ty_tenant;

/**
 * Simulates them side by side, each for options->steps steps from time 0; who has done its steps
 * leaves the links to the others.
 * @param options   slowdowns of all devices, of one job after the other
 * @param timelines [out, count] one of each; free each with ty_timeline_free
 * @return TY_EINVAL: a device that there is not, or that two use; TY_EUNSUPPORTED: jobs that differ
 * in lanes, interleaving, sharding, staleness, or what learning they are for; and as ty_simulate
 */
ty_status ty_simulate_tenants(const ty_tenant *tenants, uint32_t count, const ty_cluster *cluster,
                              const struct ty_simulate_options *options, ty_timeline **timelines,
                              ty_error *error) TY_MUST_CHECK;

#endif
