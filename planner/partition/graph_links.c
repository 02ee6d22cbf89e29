/* Neighbours, a topological order and ancestors of a graph's layers. */
#include "graph_links.h"

#include "bit_rows.h"

/* Both lists of neighbours from the edges, by counting. */
static ty_status link_edges(ty_arena *arena, const ty_graph_edge *edges, uint32_t edge_count,
                            graph_links *g, ty_error *error)
{
    const uint32_t n = g->layer_count;
    uint32_t *reader_at, *source_at;

    g->reader_starts = ty_arena_alloc(arena, (size_t)n + 1, sizeof(uint32_t));
    g->source_starts = ty_arena_alloc(arena, (size_t)n + 1, sizeof(uint32_t));
    g->readers = ty_arena_alloc(arena, (size_t)edge_count + 1, sizeof(uint32_t));
    g->sources = ty_arena_alloc(arena, (size_t)edge_count + 1, sizeof(uint32_t));
    reader_at = ty_arena_alloc(arena, n, sizeof(uint32_t));
    source_at = ty_arena_alloc(arena, n, sizeof(uint32_t));
    if (g->reader_starts == NULL || g->source_starts == NULL || g->readers == NULL ||
        g->sources == NULL || reader_at == NULL || source_at == NULL)
        return ty_fail(error, TY_ENOMEM, "graph of %u layers: out of memory", n);
    for (uint32_t e = 0; e < edge_count; e++) {
        g->reader_starts[edges[e].from + 1]++;
        g->source_starts[edges[e].to + 1]++;
    }
    for (uint32_t v = 0; v < n; v++) {
        g->reader_starts[v + 1] += g->reader_starts[v];
        g->source_starts[v + 1] += g->source_starts[v];
    }
    for (uint32_t e = 0; e < edge_count; e++) {
        uint32_t from = edges[e].from, to = edges[e].to;
        g->readers[g->reader_starts[from] + reader_at[from]++] = to;
        g->sources[g->source_starts[to] + source_at[to]++] = from;
    }
    return TY_OK;
}

static void join_sources(graph_links *g, uint32_t layer)
{
    uint64_t *row = &g->ancestors[(size_t)layer * g->words];

    bit_add(row, layer);
    for (uint32_t i = g->source_starts[layer]; i < g->source_starts[layer + 1]; i++)
        bits_join(row, graph_ancestors(g, g->sources[i]), g->words);
}

/* Takes the lowest layer all of whose sources are taken, again and again. */
static ty_status sort_layers(ty_arena *arena, graph_links *g, ty_error *error)
{
    const uint32_t n = g->layer_count;
    bool *is_taken = ty_arena_alloc(arena, n, sizeof *is_taken);
    uint32_t *waiting = ty_arena_alloc(arena, n, sizeof *waiting), lowest = 0;

    g->order = ty_arena_alloc(arena, n, sizeof *g->order);
    if (is_taken == NULL || waiting == NULL || g->order == NULL)
        return ty_fail(error, TY_ENOMEM, "graph of %u layers: out of memory", n);
    for (uint32_t v = 0; v < n; v++)
        waiting[v] = graph_source_count(g, v);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t v = lowest;
        while (v < n && (is_taken[v] || waiting[v] > 0))
            v++;
        if (v == n) {
            for (v = 0; is_taken[v]; v++)
                continue;
            return ty_fail(error, TY_EINVAL, "layer %u depends on itself: found a circle of edges",
                           v);
        }
        g->order[i] = v;
        is_taken[v] = true;
        lowest = v + 1;
        for (uint32_t r = g->reader_starts[v]; r < g->reader_starts[v + 1]; r++)
            if (--waiting[g->readers[r]] == 0 && g->readers[r] < lowest)
                lowest = g->readers[r];
        join_sources(g, v);
    }
    return TY_OK;
}

ty_status ty_graph_links_make(ty_arena *arena, uint32_t layer_count, const ty_graph_edge *edges,
                              uint32_t edge_count, graph_links *out, ty_error *error)
{
    ty_status status = TY_OK;
    graph_links g = {.layer_count = layer_count, .words = bit_words(layer_count)};

    g.ancestors = ty_arena_alloc(arena, layer_count, g.words * sizeof(uint64_t));
    if (g.ancestors == NULL)
        return ty_fail(error, TY_ENOMEM, "graph of %u layers: out of memory", layer_count);
    TY_CHECK(link_edges(arena, edges, edge_count, &g, error), status, done);
    TY_CHECK(sort_layers(arena, &g, error), status, done);
    *out = g;
done:
    return status;
}
