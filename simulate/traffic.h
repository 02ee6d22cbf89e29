/* Everything that a plan's program sends in a step, edge by edge. */
#ifndef TY_TRAFFIC_H
#define TY_TRAFFIC_H

#include "fold_graph.h"

/** What goes over an edge of the plan's graph is told to somebody: bytes from one device to
 * another, by an instruction of a pipeline rank; `replica` of a
 * transfer and of what ranks exchange, TY_NO_EDGE of a collective of several ranks. */
typedef struct ty_visit {
    const ty_fold_graph *graph;
    const ty_program *program;
    const ty_costs *costs;
    void (*tell)(void *context, const struct ty_visit *v, const ty_fold_edge *edge, uint32_t from,
                 uint32_t to, double bytes);
    void *context;
    const ty_parallel_exchanges *parallel;        /* NULL: what ranks exchange is left out */
    uint32_t pipeline_rank, instruction, replica; /* of what is being told */
} ty_visit;
/** A collective of two pipeline ranks is visited once, with the first. */
void ty_visit_all(ty_visit *visit);

/** A graph of all that a program sends, and what its ranks exchange. */
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
