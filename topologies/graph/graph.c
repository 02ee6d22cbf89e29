/* Components, flows and automorphisms by igraph. Its errors become TY_EBACKEND (or TY_ENOMEM) here.
 */
#include "graph.h"
#include "cluster.h"

#include <igraph.h>

static ty_status translate(igraph_error_t code, ty_error *error)
{
    if (code == IGRAPH_SUCCESS)
        return TY_OK;
    if (code == IGRAPH_ENOMEM)
        return ty_fail(error, TY_ENOMEM, "out of memory in igraph");
    return ty_fail(error, TY_EBACKEND, "igraph: %s", igraph_strerror(code));
}

/* igraph's own handler would print and abort. */
static igraph_error_t create(igraph_t *graph, const graph_edges *edges)
{
    igraph_vector_int_t ends;
    igraph_error_t code;

    igraph_set_error_handler(igraph_error_handler_ignore);
    code = igraph_vector_int_init(&ends, 2 * (igraph_integer_t)edges->edge_count);
    if (code != IGRAPH_SUCCESS)
        return code;
    for (uint32_t i = 0; i < 2 * edges->edge_count; i++)
        VECTOR(ends)[i] = edges->ends[i];
    code = igraph_create(graph, &ends, edges->vertex_count, IGRAPH_UNDIRECTED);
    igraph_vector_int_destroy(&ends);
    return code;
}

ty_status graph_max_flow(const graph_edges *edges, const double *capacities, uint32_t source,
                         uint32_t target, double *flow, ty_error *error)
{
    igraph_t graph;
    igraph_vector_t capacity;
    igraph_real_t value = 0;
    igraph_error_t code = create(&graph, edges);

    if (code != IGRAPH_SUCCESS)
        return translate(code, error);
    code = igraph_vector_init(&capacity, edges->edge_count);
    if (code == IGRAPH_SUCCESS) {
        for (uint32_t e = 0; e < edges->edge_count; e++)
            VECTOR(capacity)[e] = capacities[e];
        code = igraph_maxflow_value(&graph, &value, source, target, &capacity, NULL);
        igraph_vector_destroy(&capacity);
    }
    igraph_destroy(&graph);
    if (code == IGRAPH_SUCCESS)
        *flow = value;
    return translate(code, error);
}

/* Joins each vertex with its image under each generator; the lowest vertex represents its orbit. */
static void join(const igraph_vector_int_list_t *generators, uint32_t count, uint32_t *orbits)
{
    for (uint32_t v = 0; v < count; v++)
        orbits[v] = v;
    for (igraph_integer_t g = 0; g < igraph_vector_int_list_size(generators); g++) {
        const igraph_vector_int_t *generator = igraph_vector_int_list_get_ptr(generators, g);
        for (uint32_t v = 0; v < count; v++) {
            uint32_t a = ty_cluster_root_of(orbits, v);
            uint32_t b = ty_cluster_root_of(orbits, (uint32_t)VECTOR(*generator)[v]);
            orbits[a > b ? a : b] = a < b ? a : b;
        }
    }
    for (uint32_t v = 0; v < count; v++)
        orbits[v] = ty_cluster_root_of(orbits, v);
}

ty_status graph_orbits(const graph_edges *edges, const uint32_t *colours, uint32_t *orbits,
                       ty_error *error)
{
    igraph_t graph;
    igraph_vector_int_t colour;
    igraph_vector_int_list_t generators;
    igraph_error_t code = create(&graph, edges);

    if (code != IGRAPH_SUCCESS)
        return translate(code, error);
    code = igraph_vector_int_init(&colour, edges->vertex_count);
    if (code != IGRAPH_SUCCESS)
        goto free_graph;
    for (uint32_t v = 0; v < edges->vertex_count; v++)
        VECTOR(colour)[v] = colours[v];
    code = igraph_vector_int_list_init(&generators, 0);
    if (code != IGRAPH_SUCCESS)
        goto free_colour;
    code = igraph_automorphism_group(&graph, &colour, &generators, IGRAPH_BLISS_FL, NULL);
    if (code == IGRAPH_SUCCESS)
        join(&generators, edges->vertex_count, orbits);
    igraph_vector_int_list_destroy(&generators);
free_colour:
    igraph_vector_int_destroy(&colour);
free_graph:
    igraph_destroy(&graph);
    return translate(code, error);
}
