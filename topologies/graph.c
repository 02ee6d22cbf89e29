/* Components, flows and automorphisms by igraph. Its errors become TY_EBACKEND (or TY_ENOMEM) here.
 */
#include "graph.h"

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

/* Union and find: the least vertex stands for all that are joined. */
static uint32_t root_of(uint32_t *parents, uint32_t vertex)
{
    while (parents[vertex] != vertex)
        vertex = parents[vertex] = parents[parents[vertex]];
    return vertex;
}

/* igraph would build its graph first, which takes longer than all this, and every cluster is asked
 * for its components. */
ty_status graph_components(const graph_edges *edges, uint32_t *members, uint32_t *count,
                           ty_error *error)
{
    uint32_t *parents = ty_alloc(edges->vertex_count, sizeof *parents), found = 0;

    if (parents == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for components");
    for (uint32_t v = 0; v < edges->vertex_count; v++)
        parents[v] = v;
    for (uint32_t e = 0; e < edges->edge_count; e++) {
        const uint32_t a = root_of(parents, edges->ends[2 * (size_t)e]);
        const uint32_t b = root_of(parents, edges->ends[2 * (size_t)e + 1]);
        parents[a < b ? b : a] = a < b ? a : b;
    }
    for (uint32_t v = 0; v < edges->vertex_count; v++) {
        const uint32_t root = root_of(parents, v);
        members[v] = root == v ? found++ : members[root];
    }
    ty_free(parents);
    *count = found;
    return TY_OK;
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

/* Joins each vertex with where each generator takes it; the least vertex stands for all. */
static void join(const igraph_vector_int_list_t *generators, uint32_t count, uint32_t *orbits)
{
    for (uint32_t v = 0; v < count; v++)
        orbits[v] = v;
    for (igraph_integer_t g = 0; g < igraph_vector_int_list_size(generators); g++) {
        const igraph_vector_int_t *generator = igraph_vector_int_list_get_ptr(generators, g);
        for (uint32_t v = 0; v < count; v++) {
            uint32_t a = root_of(orbits, v);
            uint32_t b = root_of(orbits, (uint32_t)VECTOR(*generator)[v]);
            orbits[a > b ? a : b] = a < b ? a : b;
        }
    }
    for (uint32_t v = 0; v < count; v++)
        orbits[v] = root_of(orbits, v);
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
