/* PipeDream's states: ideals with the sums that intervals of a pipeline are made of. */
#include "bit_rows.h"
#include "graph_links.h"

static void add_up(const ty_layer_graph *graph, ty_states *s)
{
    for (uint32_t i = 0; i < s->ideals->count; i++)
        for (uint32_t v = 0; v < graph->layer_count; v++)
            if (ty_ideal_has(s->ideals, i, v)) {
                s->compute_s[i] += graph->layers[v].compute_s;
                s->activation_bytes[i] += graph->layers[v].activation_bytes;
                s->parameter_bytes[i] += graph->layers[v].parameter_bytes;
            }
}

static bool is_last(const graph_links *g, const ty_ideals *ideals, uint32_t ideal, uint32_t layer)
{
    for (uint32_t i = g->reader_starts[layer]; i < g->reader_starts[layer + 1]; i++)
        if (ty_ideal_has(ideals, ideal, g->readers[i]))
            return false;
    return true;
}

/* Whether `layer`, an ancestor of `last`, feeds one that is neither `last` nor an ancestor of it.
 */
static bool feeds_others(const graph_links *g, uint32_t layer, uint32_t last)
{
    for (uint32_t i = g->reader_starts[layer]; i < g->reader_starts[layer + 1]; i++)
        if (!bit_has(graph_ancestors(g, last), g->readers[i]))
            return true;
    return false;
}

/* What PipeDream's augmented antichain of a state hands on. */
static void find_output(const ty_layer_graph *graph, const graph_links *g, ty_states *s,
                        uint32_t ideal, uint64_t *handed)
{
    const uint32_t n = graph->layer_count;

    for (uint32_t w = 0; w < g->words; w++)
        handed[w] = 0;
    for (uint32_t last = 0; last < n; last++) {
        if (!ty_ideal_has(s->ideals, ideal, last) || !is_last(g, s->ideals, ideal, last))
            continue;
        bit_add(handed, last);
        for (uint32_t v = 0; v < n; v++)
            if (v != last && bit_has(graph_ancestors(g, last), v) && feeds_others(g, v, last))
                bit_add(handed, v);
    }
    for (uint32_t v = 0; v < n; v++)
        if (bit_has(handed, v))
            s->output_bytes[ideal] += graph->layers[v].activation_bytes;
}

static void compare_states(ty_states *s)
{
    for (uint32_t whole = 0; whole < s->ideals->count; whole++)
        for (uint32_t part = 0; part <= whole; part++)
            if (ty_ideal_is_inside(s->ideals, part, whole))
                bit_add(&s->inside[(size_t)whole * s->row_words], part);
}

static ty_status allocate(ty_states *s, ty_error *error)
{
    const uint32_t count = s->ideals->count;

    s->row_words = bit_words(count);
    s->compute_s = ty_alloc(count, sizeof(double));
    s->activation_bytes = ty_alloc(count, sizeof(double));
    s->parameter_bytes = ty_alloc(count, sizeof(double));
    s->output_bytes = ty_alloc(count, sizeof(double));
    s->inside = ty_alloc((size_t)count * s->row_words, sizeof(uint64_t));
    if (s->compute_s == NULL || s->activation_bytes == NULL || s->parameter_bytes == NULL ||
        s->output_bytes == NULL || s->inside == NULL)
        return ty_fail(error, TY_ENOMEM, "%u states: out of memory", count);
    return TY_OK;
}

ty_status ty_states_find(const ty_layer_graph *graph, uint32_t limit, ty_states **out,
                         ty_error *error)
{
    ty_status status = TY_OK;
    ty_arena *arena = ty_arena_new();
    ty_states *s = ty_alloc(1, sizeof *s);
    graph_links links;
    uint64_t *handed = NULL;

    if (arena == NULL || s == NULL) {
        status = ty_fail(error, TY_ENOMEM, "states: out of memory");
        goto cleanup;
    }
    if (limit == 0 || limit > TY_MOST_STATES)
        limit = TY_MOST_STATES;
    TY_CHECK(ty_graph_links_make(arena, graph->layer_count, graph->edges, graph->edge_count, &links,
                                 error),
             status, cleanup);
    TY_CHECK(ty_ideals_find(graph, limit, &s->ideals, error), status, cleanup);
    TY_CHECK(allocate(s, error), status, cleanup);
    handed = ty_arena_alloc(arena, links.words, sizeof *handed);
    if (handed == NULL) {
        status = ty_fail(error, TY_ENOMEM, "states: out of memory");
        goto cleanup;
    }
    add_up(graph, s);
    for (uint32_t i = 1; i < s->ideals->count; i++)
        find_output(graph, &links, s, i, handed);
    compare_states(s);
    *out = s;
    s = NULL;

cleanup:
    ty_states_free(s);
    ty_arena_free(arena);
    return status;
}

void ty_states_free(ty_states *states)
{
    if (states == NULL)
        return;
    ty_ideals_free(states->ideals);
    ty_free(states->compute_s);
    ty_free(states->activation_bytes);
    ty_free(states->parameter_bytes);
    ty_free(states->output_bytes);
    ty_free(states->inside);
    ty_free(states);
}
