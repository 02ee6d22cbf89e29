/* Coarser graphs: branches joined, so that fewer ideals are left. */
#include "graph_links.h"

#include "ty_partition.h"

/* What a graph is merged with. `into[v]` is the first layer of those that v is joined with. */
typedef struct merging {
    const ty_layer_graph *graph;
    graph_links links;
    uint32_t *into;
} merging;

/* Layers behind a branching one that are the only readers of the one before and read nothing else.
 */
static void join_branches(merging *m, bool *is_branch)
{
    const graph_links *g = &m->links;

    for (uint32_t v = 0; v < g->layer_count; v++)
        m->into[v] = v;
    for (uint32_t i = 0; i < g->layer_count; i++) {
        uint32_t v = g->order[i], source;
        if (graph_source_count(g, v) != 1)
            continue;
        source = g->sources[g->source_starts[v]];
        is_branch[v] = graph_reader_count(g, source) > 1 || is_branch[source];
        if (is_branch[v] && graph_reader_count(g, source) == 1)
            m->into[v] = m->into[source];
    }
}

/* A member hands on what it makes if somebody outside reads it, or nobody at all. */
static bool hands_on(const merging *m, uint32_t layer)
{
    const graph_links *g = &m->links;

    for (uint32_t i = g->reader_starts[layer]; i < g->reader_starts[layer + 1]; i++)
        if (m->into[g->readers[i]] != m->into[layer])
            return true;
    return graph_reader_count(g, layer) == 0;
}

/* Joined layers are numbered by their first members, and called after them. */
static uint32_t number_joined(const merging *m, uint32_t *owners)
{
    uint32_t count = 0, n = m->graph->layer_count;

    for (uint32_t v = 0; v < n; v++)
        owners[v] = UINT32_MAX;
    for (uint32_t v = 0; v < n; v++)
        if (owners[m->into[v]] == UINT32_MAX)
            owners[m->into[v]] = count++;
    for (uint32_t v = 0; v < n; v++)
        owners[v] = owners[m->into[v]];
    return count;
}

ty_status ty_layer_graph_merge(const ty_layer_graph *graph, ty_layer_graph **out, uint32_t *owners,
                               ty_error *error)
{
    const uint32_t n = graph->layer_count;
    ty_status status = TY_OK;
    merging m = {.graph = graph};
    ty_arena *arena = ty_arena_new();
    bool *is_branch = arena != NULL ? ty_arena_alloc(arena, n, sizeof *is_branch) : NULL;
    ty_graph_layer *layers = arena != NULL ? ty_arena_alloc(arena, n, sizeof *layers) : NULL;
    ty_graph_edge *edges =
        arena != NULL ? ty_arena_alloc(arena, (size_t)graph->edge_count + 1, sizeof *edges) : NULL;
    uint32_t count, edge_count = 0;

    m.into = arena != NULL ? ty_arena_alloc(arena, n, sizeof *m.into) : NULL;
    if (m.into == NULL || is_branch == NULL || layers == NULL || edges == NULL) {
        status = ty_fail(error, TY_ENOMEM, "merging a graph: out of memory");
        goto cleanup;
    }
    TY_CHECK(ty_graph_links_make(arena, n, graph->edges, graph->edge_count, &m.links, error),
             status, cleanup);
    join_branches(&m, is_branch);
    count = number_joined(&m, owners);
    for (uint32_t v = 0; v < n; v++) {
        ty_graph_layer *to = &layers[owners[v]];
        to->name = to->name != NULL ? to->name : graph->layers[v].name;
        to->compute_s += graph->layers[v].compute_s;
        to->parameter_bytes += graph->layers[v].parameter_bytes;
        to->activation_bytes += hands_on(&m, v) ? graph->layers[v].activation_bytes : 0;
    }
    for (uint32_t e = 0; e < graph->edge_count; e++)
        if (owners[graph->edges[e].from] != owners[graph->edges[e].to])
            edges[edge_count++] =
                (ty_graph_edge){owners[graph->edges[e].from], owners[graph->edges[e].to]};
    status = ty_layer_graph_make(layers, count, edges, edge_count, out, error);

cleanup:
    ty_arena_free(arena);
    return status;
}
