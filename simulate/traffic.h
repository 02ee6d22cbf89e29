/* Everything that a plan's program sends in a step, edge by edge. */
#ifndef TY_TRAFFIC_H
#define TY_TRAFFIC_H

#include "fold_graph.h"

/** A traversal that reports the traffic of every edge of the plan's graph: bytes from one device to
 * another, by an instruction of a pipeline rank. `replica` is that of a send or of a TP, CP or EP
 * collective; TY_NO_EDGE for a collective of several stage replicas. */
typedef struct ty_visit {
    const ty_fold_graph *graph;
    const ty_program *program;
    const ty_costs *costs;
    void (*tell)(void *context, const struct ty_visit *v, const ty_fold_edge *edge, uint32_t from,
                 uint32_t to, double bytes);
    void *context;
    const ty_parallel_exchanges *parallel;        /* NULL: without TP, CP and EP collectives */
    uint32_t pipeline_rank, instruction, replica; /* of the current call */
} ty_visit;
/** A collective of two pipeline ranks is visited once, with the first. */
void ty_visit_all(ty_visit *visit);

/** A graph of all sends and collectives of a program, also those within stage replicas. */
typedef struct ty_traffic_graph {
    ty_fold_graph graph;
    ty_parallel_exchanges parallel;
} ty_traffic_graph;
/** Clear it also after a failure. */
ty_status ty_traffic_graph_fill(ty_traffic_graph *all, const ty_plan *plan,
                                const ty_program *program, const ty_costs *costs,
                                const ty_cluster *cluster, ty_error *error) TY_MUST_CHECK;
void ty_traffic_graph_clear(ty_traffic_graph *all);

#endif
