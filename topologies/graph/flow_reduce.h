/* What a maximum flow between two vertices does not depend on, taken away before it is asked for.
 */
#ifndef TY_FLOW_REDUCE_H
#define TY_FLOW_REDUCE_H

#include "ty_core.h"

typedef struct flow_graph {
    uint32_t vertex_count, edge_count;
    uint32_t *ends;     /* [edge_count][2], undirected; an edge from a vertex to itself is none */
    double *capacities; /* [edge_count], > 0, each way */
} flow_graph;

/**
 * Replaces a graph by a smaller one of the same maximum flow between two vertices, in place:
 * parallel edges add up, a vertex of one edge goes with it, one of two becomes an edge of the
 * lesser capacity, until nothing changes. What is left has its vertices numbered anew: 0 is the
 * source, 1 the target. O(edges) a round, and rounds in the logarithm of the longest chain.
 */
ty_status flow_reduce(flow_graph *graph, uint32_t source, uint32_t target,
                      ty_error *error) TY_MUST_CHECK;

#endif
