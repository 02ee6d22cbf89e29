/* What igraph does for a cluster. The only file that includes igraph is graph.c; like igraph itself
 * as Debian builds it, these functions must be called from one thread at a time. */
#ifndef TY_GRAPH_H
#define TY_GRAPH_H

#include "ty_core.h"

/** An undirected graph for the length of one question. */
typedef struct graph_edges {
    uint32_t vertex_count;
    uint32_t edge_count;
    const uint32_t *ends; /* [edge_count][2] */
} graph_edges;

/** Maximum flow, and so least cut, between two different vertices; each edge carries its capacity
 *  both ways. @param capacities [edge_count], > 0 */
ty_status graph_max_flow(const graph_edges *edges, const double *capacities, uint32_t source,
                         uint32_t target, double *flow, ty_error *error) TY_MUST_CHECK;

/**
 * Orbits of the automorphisms that keep colours.
 * @param colours [vertex_count]
 * @param orbits  [out, vertex_count] the least vertex of each vertex's orbit
 */
ty_status graph_orbits(const graph_edges *edges, const uint32_t *colours, uint32_t *orbits,
                       ty_error *error) TY_MUST_CHECK;

#endif
