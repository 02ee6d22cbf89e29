/* Everything that a plan's program sends in a step, edge by edge. */
#ifndef TY_TRAFFIC_H
#define TY_TRAFFIC_H

#include "fold_graph.h"

/** What goes over an edge of the plan's graph is told to somebody: bytes from one device to
 * another, by an instruction of a position; `replica` of a transfer, TY_NO_EDGE of a collective. */
typedef struct ty_visit {
    const ty_fold_graph *graph;
    const ty_program *program;
    const ty_costs *costs;
    void (*tell)(void *context, const struct ty_visit *v, const ty_fold_edge *edge, uint32_t from,
                 uint32_t to, double bytes);
    void *context;
    uint32_t position, instruction, replica; /* of what is being told */
} ty_visit;
/** A collective of two positions is visited once, with the first. */
void ty_visit_all(ty_visit *visit);

#endif
