/* Removes the parts of a graph that do not affect a maximum flow.
 */
#ifndef TY_FLOW_REDUCE_H
#define TY_FLOW_REDUCE_H

#include "ty_core.h"

typedef struct flow_graph {
    uint32_t vertex_count, edge_count;
    uint32_t *ends;     /* [edge_count][2], undirected; edges from a vertex to itself are ignored */
    double *capacities; /* [edge_count], > 0, per direction */
} flow_graph;

/**
 * Replaces a graph in place by a smaller one with the same maximum flow between two vertices.
 * Merges parallel edges, removes vertices with one edge, and replaces vertices with two edges by an
 * edge of the lower capacity, until nothing changes. Renumbers the remaining vertices: 0 is the
 * source, 1 the target. O(edges) per round; the number of rounds is logarithmic in the longest
 * chain.
 */
ty_status flow_reduce(flow_graph *graph, uint32_t source, uint32_t target,
                      ty_error *error) TY_MUST_CHECK;

#endif
