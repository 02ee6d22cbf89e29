/* A graph laid out as a chain: the cheapest way through its ideals, one layer at a time. */
#include "bit_rows.h"
#include "graph_links.h"
#include "set_table.h"

#include <string.h>

#define NO_LAYER UINT32_MAX

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "downset chain: out of memory");
}

/* Bytes and number of the tensors that members of a set make and others read. */
static double crossing(const ty_layer_graph *graph, const graph_links *g, const uint64_t *set,
                       uint32_t *tensors)
{
    double bytes = 0;

    *tensors = 0;
    for (uint32_t v = 0; v < g->layer_count; v++) {
        bool crosses = false;
        for (uint32_t i = g->reader_starts[v]; i < g->reader_starts[v + 1] && bit_has(set, v); i++)
            crosses = crosses || !bit_has(set, g->readers[i]);
        if (crosses) {
            bytes += graph->layers[v].activation_bytes;
            ++*tensors;
        }
    }
    return bytes;
}

static bool may_join(const graph_links *g, const uint64_t *set, uint32_t layer)
{
    for (uint32_t i = g->source_starts[layer]; i < g->source_starts[layer + 1]; i++)
        if (!bit_has(set, g->sources[i]))
            return false;
    return !bit_has(set, layer);
}

/* ---- The way through the ideals -------------------------------------------------------------- */

typedef struct way {
    const ty_layer_graph *graph;
    graph_links links;
    ty_ideals *ideals;
    set_table table; /* the ideals by their sets */
    double *bytes;   /* [ideal] over all cuts from it on */
    uint64_t *trial;
} way;

/* The best layer to add to an ideal: the first of those behind which the fewest bytes go. */
static uint32_t best_step(way *w, const uint64_t *set, uint32_t *next)
{
    uint32_t best = NO_LAYER;

    *next = NO_LAYER;
    for (uint32_t v = 0; v < w->links.layer_count; v++) {
        uint32_t ideal;
        if (!may_join(&w->links, set, v))
            continue;
        memcpy(w->trial, set, w->links.words * sizeof *set);
        bit_add(w->trial, v);
        ideal = set_table_find(&w->table, w->trial);
        if (best == NO_LAYER || w->bytes[ideal] < w->bytes[*next]) {
            best = v;
            *next = ideal;
        }
    }
    return best;
}

/* Ideals come after their parts, so that the last ones are known first. */
static void price_ideals(way *w)
{
    for (uint32_t i = w->ideals->count; i-- > 0;) {
        const uint64_t *set = set_table_at(&w->table, i);
        uint32_t next, tensors;
        w->bytes[i] = crossing(w->graph, &w->links, set, &tensors);
        if (best_step(w, set, &next) != NO_LAYER)
            w->bytes[i] += w->bytes[next];
    }
}

/* The order of a graph's layers; `order` has room for them. */
static ty_status find_order(const ty_layer_graph *graph, uint32_t limit, uint32_t *order,
                            ty_error *error)
{
    ty_status status = TY_OK;
    way w = {.graph = graph};
    ty_arena *arena = ty_arena_new();

    if (arena == NULL)
        return out_of_memory(error);
    TY_CHECK(graph_links_make(arena, graph->layer_count, graph->edges, graph->edge_count, &w.links,
                              error),
             status, cleanup);
    TY_CHECK(ty_ideals_find(graph, TY_IDEALS_ALL, limit, &w.ideals, error), status, cleanup);
    w.bytes = ty_arena_alloc(arena, w.ideals->count, sizeof *w.bytes);
    w.trial = ty_arena_alloc(arena, w.links.words, sizeof *w.trial);
    if (w.bytes == NULL || w.trial == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    w.table.words = w.links.words;
    for (uint32_t i = 0; i < w.ideals->count; i++)
        TY_CHECK(set_table_add(&w.table, &w.ideals->sets[(size_t)i * w.ideals->words], error),
                 status, cleanup);
    price_ideals(&w);
    for (uint32_t i = 0, ideal = 0; i < graph->layer_count; i++)
        order[i] = best_step(&w, set_table_at(&w.table, ideal), &ideal);

cleanup:
    set_table_clear(&w.table);
    ty_ideals_free(w.ideals);
    ty_arena_free(arena);
    return status;
}

/* ---- The chain ------------------------------------------------------------------------------- */

/* The same by way of the merged graph, where the graph itself has too many ideals. */
static ty_status find_merged_order(const ty_layer_graph *graph, const graph_links *g,
                                   uint32_t limit, ty_arena *arena, uint32_t *order,
                                   ty_error *error)
{
    ty_status status = TY_OK;
    ty_layer_graph *merged = NULL;
    uint32_t *owners = ty_arena_alloc(arena, graph->layer_count, sizeof *owners);
    uint32_t *merged_order = ty_arena_alloc(arena, graph->layer_count, sizeof *merged_order);
    uint32_t count = 0;

    if (owners == NULL || merged_order == NULL)
        return out_of_memory(error);
    TY_CHECK(ty_layer_graph_merge(graph, limit, &merged, owners, error), status, cleanup);
    TY_CHECK(find_order(merged, limit, merged_order, error), status, cleanup);
    for (uint32_t i = 0; i < merged->layer_count; i++)
        for (uint32_t k = 0; k < graph->layer_count; k++)
            if (owners[g->order[k]] == merged_order[i])
                order[count++] = g->order[k];

cleanup:
    ty_layer_graph_free(merged);
    return status;
}

static ty_status price_cuts(const ty_layer_graph *graph, const graph_links *g, ty_arena *arena,
                            ty_downset_chain *chain, ty_error *error)
{
    uint64_t *set = ty_arena_alloc(arena, g->words, sizeof *set);

    if (set == NULL)
        return out_of_memory(error);
    for (uint32_t i = 0; i < chain->count; i++) {
        bit_add(set, chain->layers[i]);
        chain->cut_bytes[i + 1] = crossing(graph, g, set, &chain->cut_tensors[i + 1]);
    }
    return TY_OK;
}

static ty_downset_chain *new_chain(uint32_t count)
{
    ty_downset_chain *chain = ty_alloc(1, sizeof *chain);

    if (chain == NULL)
        return NULL;
    chain->count = count;
    chain->layers = ty_alloc(count, sizeof *chain->layers);
    chain->cut_tensors = ty_alloc((size_t)count + 1, sizeof *chain->cut_tensors);
    chain->cut_bytes = ty_alloc((size_t)count + 1, sizeof *chain->cut_bytes);
    if (chain->layers == NULL || chain->cut_tensors == NULL || chain->cut_bytes == NULL) {
        ty_downset_chain_free(chain);
        return NULL;
    }
    return chain;
}

ty_status ty_downset_chain_find(const ty_layer_graph *graph, uint32_t limit, ty_downset_chain **out,
                                ty_error *error)
{
    ty_status status = TY_OK;
    ty_arena *arena = ty_arena_new();
    ty_downset_chain *chain = new_chain(graph->layer_count);
    ty_error attempt = {0};
    graph_links g;

    if (arena == NULL || chain == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    if (limit == 0 || limit > TY_MOST_IDEALS)
        limit = TY_MOST_IDEALS;
    TY_CHECK(
        graph_links_make(arena, graph->layer_count, graph->edges, graph->edge_count, &g, error),
        status, cleanup);
    status = find_order(graph, limit, chain->layers, &attempt);
    if (status == TY_ELIMIT)
        status = find_merged_order(graph, &g, limit, arena, chain->layers, error);
    else if (status != TY_OK)
        status = ty_fail(error, status, "%s", attempt.message);
    if (status != TY_OK)
        goto cleanup;
    TY_CHECK(price_cuts(graph, &g, arena, chain, error), status, cleanup);
    *out = chain;
    chain = NULL;

cleanup:
    ty_downset_chain_free(chain);
    ty_arena_free(arena);
    return status;
}

void ty_downset_chain_free(ty_downset_chain *chain)
{
    if (chain == NULL)
        return;
    ty_free(chain->layers);
    ty_free(chain->cut_tensors);
    ty_free(chain->cut_bytes);
    ty_free(chain);
}
