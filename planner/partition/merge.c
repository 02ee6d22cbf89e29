/* Coarser graphs: layers joined so that fewer ideals are left. */
#include "bit_rows.h"
#include "graph_links.h"

#include <stdlib.h>
#include <string.h>

#define NO_PART UINT32_MAX

/* A graph on its way: `into[v]` is the layer that v joins in the step at hand, or v. */
typedef struct coarsening {
    ty_layer_graph *graph; /* NULL: still the given one */
    const ty_layer_graph *given;
    uint32_t *owners; /* [given layers] layer of the graph at hand */
    ty_arena *arena;  /* of one step */
    graph_links links;
    uint32_t *into;
    uint32_t *part_of;     /* [layer] NO_PART: all others come before or after it */
    uint32_t *part_ideals; /* [part] at most one above the limit */
    uint32_t part_count, limit;
} coarsening;

static const ty_layer_graph *at_hand(const coarsening *c)
{
    return c->graph != NULL ? c->graph : c->given;
}

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "merging a graph: out of memory");
}

/* ---- Joining --------------------------------------------------------------------------------- */

static uint32_t root(const coarsening *c, uint32_t layer)
{
    while (c->into[layer] != layer)
        layer = c->into[layer];
    return layer;
}

/* A member hands on what it makes if somebody outside reads it, or nobody at all. */
static bool hands_on(const coarsening *c, uint32_t layer)
{
    const graph_links *g = &c->links;
    for (uint32_t i = g->reader_starts[layer]; i < g->reader_starts[layer + 1]; i++)
        if (root(c, g->readers[i]) != root(c, layer))
            return true;
    return graph_reader_count(g, layer) == 0;
}

/* Joined layers are numbered by their first members, and called after them. */
static uint32_t number_roots(const coarsening *c, uint32_t *number)
{
    uint32_t count = 0, n = at_hand(c)->layer_count;

    for (uint32_t v = 0; v < n; v++)
        number[v] = NO_PART;
    for (uint32_t v = 0; v < n; v++)
        if (number[root(c, v)] == NO_PART)
            number[root(c, v)] = count++;
    for (uint32_t v = 0; v < n; v++)
        number[v] = number[root(c, v)];
    return count;
}

/* The graph with what joins joined. */
static ty_status join(coarsening *c, ty_error *error)
{
    const ty_layer_graph *from = at_hand(c);
    const uint32_t n = from->layer_count;
    ty_status status = TY_OK;
    uint32_t *number = ty_arena_alloc(c->arena, n, sizeof *number), count, edge_count = 0;
    ty_graph_layer *layers = ty_arena_alloc(c->arena, n, sizeof *layers);
    ty_graph_edge *edges = ty_arena_alloc(c->arena, (size_t)from->edge_count + 1, sizeof *edges);
    ty_layer_graph *joined = NULL;

    if (number == NULL || layers == NULL || edges == NULL)
        return out_of_memory(error);
    count = number_roots(c, number);
    for (uint32_t v = 0; v < n; v++) {
        ty_graph_layer *to = &layers[number[v]];
        to->name = to->name != NULL ? to->name : from->layers[v].name;
        to->compute_s += from->layers[v].compute_s;
        to->parameter_bytes += from->layers[v].parameter_bytes;
        to->activation_bytes += hands_on(c, v) ? from->layers[v].activation_bytes : 0;
    }
    for (uint32_t e = 0; e < from->edge_count; e++)
        if (number[from->edges[e].from] != number[from->edges[e].to])
            edges[edge_count++] =
                (ty_graph_edge){number[from->edges[e].from], number[from->edges[e].to]};
    TY_CHECK(ty_layer_graph_make(layers, count, edges, edge_count, &joined, error), status, done);
    for (uint32_t v = 0; v < c->given->layer_count; v++)
        c->owners[v] = number[c->owners[v]];
    ty_layer_graph_free(c->graph);
    c->graph = joined;
done:
    return status;
}

/* ---- Steps ----------------------------------------------------------------------------------- */

/* Links of the graph at hand, and nothing joined. */
static ty_status begin_step(coarsening *c, ty_error *error)
{
    const ty_layer_graph *g = at_hand(c);
    ty_status status = TY_OK;

    ty_arena_free(c->arena);
    c->arena = ty_arena_new();
    if (c->arena == NULL)
        return out_of_memory(error);
    TY_CHECK(graph_links_make(c->arena, g->layer_count, g->edges, g->edge_count, &c->links, error),
             status, done);
    c->into = ty_arena_alloc(c->arena, g->layer_count, sizeof *c->into);
    c->part_of = ty_arena_alloc(c->arena, g->layer_count, sizeof *c->part_of);
    c->part_ideals = ty_arena_alloc(c->arena, g->layer_count, sizeof *c->part_ideals);
    if (c->into == NULL || c->part_of == NULL || c->part_ideals == NULL)
        return out_of_memory(error);
    for (uint32_t v = 0; v < g->layer_count; v++)
        c->into[v] = v;
done:
    return status;
}

static ty_status join_branches(coarsening *c, ty_error *error)
{
    ty_status status = TY_OK;
    const graph_links *g = &c->links;
    bool *is_branch;

    TY_CHECK(begin_step(c, error), status, done);
    is_branch = ty_arena_alloc(c->arena, g->layer_count, sizeof *is_branch);
    if (is_branch == NULL)
        return out_of_memory(error);
    for (uint32_t i = 0; i < g->layer_count; i++) {
        uint32_t v = g->order[i], source;
        if (graph_source_count(g, v) != 1)
            continue;
        source = g->sources[g->source_starts[v]];
        is_branch[v] = graph_reader_count(g, source) > 1 || is_branch[source];
        if (is_branch[v] && graph_reader_count(g, source) == 1)
            c->into[v] = source;
    }
    status = join(c, error);
done:
    return status;
}

static bool is_free(const coarsening *c, uint32_t layer)
{
    const ty_graph_layer *l = &at_hand(c)->layers[layer];
    return l->compute_s == 0 && l->parameter_bytes == 0;
}

static bool have_same_part(const coarsening *c, uint32_t a, uint32_t b)
{
    return c->part_of[a] == c->part_of[b];
}

/* Each step says for one layer of a part which one it joins: itself for none. */
static uint32_t join_free(const coarsening *c, uint32_t v)
{
    const graph_links *g = &c->links;

    if (!is_free(c, v))
        return v;
    if (graph_source_count(g, v) == 1 && have_same_part(c, v, g->sources[g->source_starts[v]]))
        return g->sources[g->source_starts[v]];
    if (graph_reader_count(g, v) == 1 && have_same_part(c, v, g->readers[g->reader_starts[v]]) &&
        !is_free(c, g->readers[g->reader_starts[v]]))
        return g->readers[g->reader_starts[v]];
    return v;
}

static uint32_t join_run(const coarsening *c, uint32_t v)
{
    const graph_links *g = &c->links;
    uint32_t source;

    if (graph_source_count(g, v) != 1)
        return v;
    source = g->sources[g->source_starts[v]];
    return graph_reader_count(g, source) == 1 && have_same_part(c, v, source) ? source : v;
}

static bool are_twins(const graph_links *g, uint32_t a, uint32_t b)
{
    const uint32_t sources = graph_source_count(g, a), readers = graph_reader_count(g, a);

    return sources == graph_source_count(g, b) && readers == graph_reader_count(g, b) &&
           memcmp(&g->sources[g->source_starts[a]], &g->sources[g->source_starts[b]],
                  sources * sizeof *g->sources) == 0 &&
           memcmp(&g->readers[g->reader_starts[a]], &g->readers[g->reader_starts[b]],
                  readers * sizeof *g->readers) == 0;
}

static uint32_t join_twin(const coarsening *c, uint32_t v)
{
    for (uint32_t other = 0; other < v; other++)
        if (have_same_part(c, v, other) && are_twins(&c->links, v, other))
            return other;
    return v;
}

static uint32_t join_part(const coarsening *c, uint32_t v)
{
    for (uint32_t other = 0; other < v; other++)
        if (have_same_part(c, v, other))
            return other;
    return v;
}

/* ---- Parts ----------------------------------------------------------------------------------- */

/* Layers that are no part are those whose ancestors and descendants are all the others. */
static void find_parts(coarsening *c, uint32_t *relatives, bool *is_begun)
{
    const graph_links *g = &c->links;
    uint32_t cuts = 0;

    for (uint32_t v = 0; v < g->layer_count; v++)
        for (uint32_t a = 0; a < g->layer_count; a++)
            if (bit_has(graph_ancestors(g, v), a)) {
                relatives[v]++;
                relatives[a]++;
            }
    c->part_count = 0;
    for (uint32_t i = 0; i < g->layer_count; i++) {
        uint32_t v = g->order[i];
        if (relatives[v] == g->layer_count + 1) { /* itself counts twice */
            c->part_of[v] = NO_PART;
            cuts++;
        } else {
            if (!is_begun[cuts]) {
                is_begun[cuts] = true;
                c->part_count++; /* parts follow the order */
            }
            c->part_of[v] = c->part_count - 1;
        }
    }
}

/* Ideals of a part by itself, the empty one included; one above the limit where there are more. */
static ty_status count_ideals(const coarsening *c, uint32_t part, uint32_t *out, ty_error *error)
{
    const ty_layer_graph *g = at_hand(c);
    ty_status status = TY_OK;
    uint32_t *number = ty_arena_alloc(c->arena, g->layer_count, sizeof *number), layer_count = 0;
    ty_graph_layer *layers = ty_arena_alloc(c->arena, g->layer_count, sizeof *layers);
    ty_graph_edge *edges = ty_arena_alloc(c->arena, (size_t)g->edge_count + 1, sizeof *edges);
    uint32_t edge_count = 0;
    ty_layer_graph *inner = NULL;
    ty_ideals *ideals = NULL;

    if (number == NULL || layers == NULL || edges == NULL)
        return out_of_memory(error);
    for (uint32_t v = 0; v < g->layer_count; v++)
        if (c->part_of[v] == part) {
            number[v] = layer_count;
            layers[layer_count++] = g->layers[v];
        }
    for (uint32_t e = 0; e < g->edge_count; e++)
        if (c->part_of[g->edges[e].from] == part && c->part_of[g->edges[e].to] == part)
            edges[edge_count++] = (ty_graph_edge){number[g->edges[e].from], number[g->edges[e].to]};
    TY_CHECK(ty_layer_graph_make(layers, layer_count, edges, edge_count, &inner, error), status,
             cleanup);
    status = ty_ideals_find(inner, TY_IDEALS_ALL, c->limit, &ideals, NULL);
    *out = status == TY_OK ? ideals->count : c->limit + 1;
    if (status == TY_ELIMIT)
        status = TY_OK;
    else if (status != TY_OK)
        status = out_of_memory(error);

cleanup:
    ty_ideals_free(ideals);
    ty_layer_graph_free(inner);
    return status;
}

/* Parts and their ideals; `total` of the graph, the empty one included. */
static ty_status measure(coarsening *c, uint64_t *total, uint32_t *most, ty_error *error)
{
    const uint32_t n = at_hand(c)->layer_count;
    ty_status status = TY_OK;
    uint32_t *relatives;
    bool *is_begun;

    TY_CHECK(begin_step(c, error), status, done);
    relatives = ty_arena_alloc(c->arena, n, sizeof *relatives);
    is_begun = ty_arena_alloc(c->arena, (size_t)n + 1, sizeof *is_begun);
    if (relatives == NULL || is_begun == NULL)
        return out_of_memory(error);
    find_parts(c, relatives, is_begun);
    *total = 1;
    *most = 0;
    for (uint32_t v = 0; v < n; v++)
        *total += c->part_of[v] == NO_PART;
    for (uint32_t p = 0; p < c->part_count; p++) {
        TY_CHECK(count_ideals(c, p, &c->part_ideals[p], error), status, done);
        *total += c->part_ideals[p] - 1;
        *most = c->part_ideals[p] > *most ? c->part_ideals[p] : *most;
    }
done:
    return status;
}

/* One step on all parts that have `most` ideals. */
static ty_status make_coarser(coarsening *c, uint32_t most, ty_error *error)
{
    static uint32_t (*const steps[])(const coarsening *, uint32_t) = {join_free, join_run,
                                                                      join_twin, join_part};
    const uint32_t n = at_hand(c)->layer_count;
    bool has_joined = false;

    for (size_t i = 0; i < sizeof steps / sizeof *steps && !has_joined; i++)
        for (uint32_t v = 0; v < n; v++)
            if (c->part_of[v] != NO_PART && c->part_ideals[c->part_of[v]] == most) {
                c->into[v] = steps[i](c, v);
                has_joined = has_joined || c->into[v] != v;
            }
    return join(c, error);
}

ty_status ty_layer_graph_merge(const ty_layer_graph *graph, uint32_t limit, ty_layer_graph **out,
                               uint32_t *owners, ty_error *error)
{
    ty_status status = TY_OK;
    coarsening c = {.given = graph, .limit = limit, .owners = NULL};
    uint64_t total = 0;
    uint32_t most = 0;

    c.owners = ty_alloc(graph->layer_count, sizeof *c.owners);
    if (c.owners == NULL)
        return out_of_memory(error);
    for (uint32_t v = 0; v < graph->layer_count; v++)
        c.owners[v] = v;
    TY_CHECK(join_branches(&c, error), status, cleanup);
    while (limit > 0) {
        TY_CHECK(measure(&c, &total, &most, error), status, cleanup);
        if (total <= limit)
            break;
        if (c.part_count == 0) {
            status = ty_fail(error, TY_ELIMIT,
                             "a chain of %u layers has %llu ideals, expected at most %u",
                             c.graph->layer_count, (unsigned long long)total, limit);
            goto cleanup;
        }
        TY_CHECK(make_coarser(&c, most, error), status, cleanup);
    }
    memcpy(owners, c.owners, graph->layer_count * sizeof *owners);
    *out = c.graph;
    c.graph = NULL;

cleanup:
    ty_layer_graph_free(c.graph);
    ty_arena_free(c.arena);
    ty_free(c.owners);
    return status;
}
