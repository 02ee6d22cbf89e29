/**
 * @file ty_simulate.h
 * Walks a program on a simulated cluster (SimGrid): the same instructions and costs as the
 * estimator, but transfers and collectives share real links, and ranks share real cores.
 *
 * SimGrid allows one platform per process and aborts on what it does not like. Everything is checked
 * before it sees anything, and each simulation runs in a child process whose death is reported as
 * TY_EBACKEND with its reason. Deterministic.
 */
#ifndef TY_SIMULATE_H
#define TY_SIMULATE_H

#include "ty_core.h"
#include "ty_topologies.h"

/** How finely collectives are played. */
typedef enum ty_resolution {
    TY_FLOW, /* one flow per edge of the collective's pattern for all its bytes */
    TY_CHUNK /* every step of the ring or tree is a message */
} ty_resolution;

typedef struct ty_simulate_options {
    uint32_t steps;           /* consecutive steps; >= 1 */
    ty_resolution resolution;
    double time_limit_s;      /* wall-clock seconds before the child is stopped (TY_ELIMIT); > 0 */
} ty_simulate_options;
ty_simulate_options ty_simulate_options_default(void); /* 3 steps, flow, 300 s */

ty_status ty_simulate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_cluster *cluster, const ty_simulate_options *options,
                      ty_timeline **out, ty_error *error) TY_MUST_CHECK;

/** The SimGrid platform (XML, DTD 4.1) of a cluster: one host per device, links and routes as in the graph. */
ty_status ty_cluster_to_simgrid(const ty_cluster *cluster, ty_text *xml,
                                ty_error *error) TY_MUST_CHECK;

#endif
