/* Graph algorithms by igraph. Only graph.c includes igraph; like igraph itself as Debian builds it,
 * these functions must be called from one thread at a time. */
#ifndef TY_GRAPH_H
#define TY_GRAPH_H

#include "ty_core.h"

/** An undirected graph for one call. */
typedef struct graph_edges {
    uint32_t vertex_count;
    uint32_t edge_count;
    const uint32_t *ends; /* [edge_count][2] */
} graph_edges;

/** Maximum flow, equal to the minimum cut, between two different vertices; edges have their
 * capacity in both directions. @param capacities [edge_count], > 0 */
ty_status graph_max_flow(const graph_edges *edges, const double *capacities, uint32_t source,
                         uint32_t target, double *flow, ty_error *error) TY_MUST_CHECK;

/**
 * Orbits of the automorphisms that keep colours.
 * @param colours [vertex_count]
 * @param orbits  [out, vertex_count] the lowest vertex of each vertex's orbit
 */
ty_status graph_orbits(const graph_edges *edges, const uint32_t *colours, uint32_t *orbits,
                       ty_error *error) TY_MUST_CHECK;

#endif
