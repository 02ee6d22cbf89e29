/* Graphs of layers: from parts, from PipeDream's profiles, from workloads. */
#include "bit_rows.h"
#include "graph_links.h"

#include "ty_file.h"
#include "ty_workloads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 20000u /* ancestors are a square of bits: 50 MB */

/* ---- From parts ------------------------------------------------------------------------------ */

static ty_status check_layer(const ty_graph_layer *layer, uint32_t number, ty_error *error)
{
    const struct {
        const char *name;
        double value;
    } rows[] = {{"compute_s", layer->compute_s},
                {"activation_bytes", layer->activation_bytes},
                {"parameter_bytes", layer->parameter_bytes}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!(rows[i].value >= 0 && rows[i].value < HUGE_VAL))
            return ty_fail(error, TY_EINVAL,
                           "layer %u (%s): found %s %g, expected a finite number >= 0", number,
                           layer->name != NULL ? layer->name : "", rows[i].name, rows[i].value);
    return TY_OK;
}

static int by_ends(const void *left, const void *right)
{
    const ty_graph_edge *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    return (a->to > b->to) - (a->to < b->to);
}

static ty_status copy_edges(ty_layer_graph *g, const ty_graph_edge *edges, uint32_t edge_count,
                            ty_error *error)
{
    for (uint32_t e = 0; e < edge_count; e++)
        if (edges[e].from >= g->layer_count || edges[e].to >= g->layer_count)
            return ty_fail(error, TY_EINVAL, "edge %u: found %u to %u, expected two of %u layers",
                           e, edges[e].from, edges[e].to, g->layer_count);
    g->edges = ty_arena_alloc(g->arena, (size_t)edge_count + 1, sizeof *g->edges);
    if (g->edges == NULL)
        return ty_fail(error, TY_ENOMEM, "graph of %u edges: out of memory", edge_count);
    if (edge_count > 0)
        memcpy(g->edges, edges, edge_count * sizeof *edges);
    qsort(g->edges, edge_count, sizeof *g->edges, by_ends);
    for (uint32_t e = 0; e < edge_count; e++)
        if (e == 0 || by_ends(&g->edges[e - 1], &g->edges[e]) != 0)
            g->edges[g->edge_count++] = g->edges[e];
    return TY_OK;
}

static ty_status copy_layers(ty_layer_graph *g, const ty_graph_layer *layers, ty_error *error)
{
    ty_status status = TY_OK;

    g->layers = ty_arena_alloc(g->arena, g->layer_count, sizeof *g->layers);
    if (g->layers == NULL)
        return ty_fail(error, TY_ENOMEM, "graph of %u layers: out of memory", g->layer_count);
    for (uint32_t i = 0; i < g->layer_count; i++) {
        TY_CHECK(check_layer(&layers[i], i, error), status, done);
        g->layers[i] = layers[i];
        g->layers[i].name = ty_arena_strdup(g->arena, layers[i].name != NULL ? layers[i].name : "");
        if (g->layers[i].name == NULL)
            return ty_fail(error, TY_ENOMEM, "graph of %u layers: out of memory", g->layer_count);
    }
done:
    return status;
}

ty_status ty_layer_graph_make(const ty_graph_layer *layers, uint32_t layer_count,
                              const ty_graph_edge *edges, uint32_t edge_count, ty_layer_graph **out,
                              ty_error *error)
{
    ty_status status = TY_OK;
    ty_layer_graph *g = NULL;
    graph_links links;

    if (layer_count == 0 || layer_count > MOST_LAYERS)
        return ty_fail(error, TY_EINVAL, "found %u layers, expected 1 to %u", layer_count,
                       MOST_LAYERS);
    g = ty_alloc(1, sizeof *g);
    if (g != NULL)
        g->arena = ty_arena_new();
    if (g == NULL || g->arena == NULL) {
        status = ty_fail(error, TY_ENOMEM, "graph of %u layers: out of memory", layer_count);
        goto cleanup;
    }
    g->layer_count = layer_count;
    TY_CHECK(copy_layers(g, layers, error), status, cleanup);
    TY_CHECK(copy_edges(g, edges, edge_count, error), status, cleanup);
    TY_CHECK(ty_graph_links_make(g->arena, layer_count, g->edges, g->edge_count, &links, error),
             status, cleanup); /* refuses circles */
    *out = g;
    g = NULL;

cleanup:
    ty_layer_graph_free(g);
    return status;
}

void ty_layer_graph_free(ty_layer_graph *graph)
{
    if (graph == NULL)
        return;
    ty_arena_free(graph->arena);
    ty_free(graph);
}

/* ---- From a profile -------------------------------------------------------------------------- */

static bool starts_with(const ty_pipedream_node *node, const char *word)
{
    size_t length = strlen(word);
    return node->name_length >= length && memcmp(node->name, word, length) == 0;
}

static ty_status grow(void **block, uint32_t count, uint32_t *capacity, size_t size,
                      ty_error *error)
{
    uint32_t wanted = *capacity == 0 ? 64 : *capacity * 2;
    void *more;

    if (count < *capacity)
        return TY_OK;
    more = wanted <= 1u << 24 ? ty_resize(*block, wanted, size) : NULL;
    if (more == NULL)
        return ty_fail(error, TY_ENOMEM, "graph: out of memory");
    *block = more;
    *capacity = wanted;
    return TY_OK;
}

typedef struct profile_node {
    ty_graph_layer layer;
    uint64_t id;
    bool is_input, is_item;
} profile_node;

typedef struct profile_edge {
    uint64_t from, to;
} profile_edge;

typedef struct profile_text {
    const char *path;
    ty_arena *arena;
    profile_node *nodes;
    profile_edge *edges;
    uint32_t node_count, node_capacity, edge_count, edge_capacity;
} profile_text;

static ty_status add_node(void *context, const ty_pipedream_node *from, ty_error *error)
{
    profile_text *p = context;
    ty_status status = TY_OK;
    profile_node *n;
    char name[32];

    TY_CHECK(grow((void **)&p->nodes, p->node_count, &p->node_capacity, sizeof *n, error), status,
             done);
    n = &p->nodes[p->node_count++];
    snprintf(name, sizeof name, "node%llu", (unsigned long long)from->id);
    *n = (profile_node){.id = from->id,
                        .is_input = starts_with(from, "Input"),
                        .is_item = starts_with(from, "__getitem__")};
    n->layer.name = ty_arena_strdup(p->arena, name);
    n->layer.compute_s = (from->forward_ms + from->backward_ms) / 1000.0;
    n->layer.activation_bytes = from->activation_bytes;
    n->layer.parameter_bytes = from->parameter_bytes;
    if (n->layer.name == NULL)
        status = ty_fail(error, TY_ENOMEM, "graph: out of memory");
done:
    return status;
}

static ty_status add_edge(void *context, uint64_t from, uint64_t to, ty_error *error)
{
    profile_text *p = context;
    ty_status status = TY_OK;

    TY_CHECK(grow((void **)&p->edges, p->edge_count, &p->edge_capacity, sizeof *p->edges, error),
             status, done);
    p->edges[p->edge_count++] = (profile_edge){from, to};
done:
    return status;
}

/* Index of a node by its number; files have hundreds. */
static ty_status find_node(const profile_text *p, uint64_t id, uint32_t *out, ty_error *error)
{
    for (uint32_t i = 0; i < p->node_count; i++)
        if (p->nodes[i].id == id) {
            *out = i;
            return TY_OK;
        }
    return ty_fail(error, TY_EPARSE, "%s: found an edge of node%llu, expected a line for that node",
                   p->path, (unsigned long long)id);
}

static ty_status check_numbers(const profile_text *p, ty_error *error)
{
    for (uint32_t i = 0; i < p->node_count; i++)
        for (uint32_t k = 0; k < i; k++)
            if (p->nodes[i].id == p->nodes[k].id)
                return ty_fail(error, TY_EPARSE, "%s: found two lines for node%llu, expected one",
                               p->path, (unsigned long long)p->nodes[i].id);
    return TY_OK;
}

/* Marks what is left out: first all sources called Input, then sinks called __getitem__. */
static void leave_out(const profile_text *p, const ty_graph_edge *edges, bool *is_out)
{
    for (uint32_t pass = 0; pass < 2; pass++) {
        for (uint32_t v = 0; v < p->node_count; v++) {
            bool is_end = pass == 0 ? p->nodes[v].is_input : p->nodes[v].is_item;
            for (uint32_t e = 0; e < p->edge_count && is_end; e++)
                is_end = pass == 0 ? edges[e].to != v : edges[e].from != v;
            is_out[v] = is_out[v] || is_end;
        }
    }
}

/* The graph with its layers in a topological order: the first source stays the first. */
static ty_status make_sorted(const profile_text *p, const ty_graph_layer *layers, uint32_t count,
                             ty_graph_edge *edges, uint32_t edge_count, ty_layer_graph **out,
                             ty_error *error)
{
    ty_status status = TY_OK;
    ty_graph_layer *sorted = ty_arena_alloc(p->arena, count, sizeof *sorted);
    uint32_t *places = ty_arena_alloc(p->arena, count, sizeof *places);
    graph_links links;

    if (sorted == NULL || places == NULL)
        return ty_fail(error, TY_ENOMEM, "graph: out of memory");
    if (count > MOST_LAYERS)
        return ty_fail(error, TY_EPARSE, "%s: found %u layers, expected at most %u", p->path, count,
                       MOST_LAYERS);
    status = ty_graph_links_make(p->arena, count, edges, edge_count, &links, error);
    if (status == TY_EINVAL)
        return ty_fail(error, TY_EPARSE, "%s: found a circle of edges, expected none", p->path);
    if (status != TY_OK)
        return status;
    for (uint32_t i = 0; i < count; i++) {
        sorted[i] = layers[links.order[i]];
        places[links.order[i]] = i;
    }
    for (uint32_t e = 0; e < edge_count; e++)
        edges[e] = (ty_graph_edge){places[edges[e].from], places[edges[e].to]};
    return ty_layer_graph_make(sorted, count, edges, edge_count, out, error);
}

static ty_status build(const profile_text *p, ty_layer_graph **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_graph_edge *edges = ty_arena_alloc(p->arena, (size_t)p->edge_count + 1, sizeof *edges);
    ty_graph_layer *layers = ty_arena_alloc(p->arena, (size_t)p->node_count + 1, sizeof *layers);
    bool *is_out = ty_arena_alloc(p->arena, (size_t)p->node_count + 1, sizeof *is_out);
    uint32_t *index = ty_arena_alloc(p->arena, (size_t)p->node_count + 1, sizeof *index);
    uint32_t layer_count = 0, edge_count = 0;

    if (edges == NULL || layers == NULL || is_out == NULL || index == NULL)
        return ty_fail(error, TY_ENOMEM, "graph: out of memory");
    TY_CHECK(check_numbers(p, error), status, done);
    for (uint32_t e = 0; e < p->edge_count; e++) {
        TY_CHECK(find_node(p, p->edges[e].from, &edges[e].from, error), status, done);
        TY_CHECK(find_node(p, p->edges[e].to, &edges[e].to, error), status, done);
    }
    leave_out(p, edges, is_out);
    for (uint32_t v = 0; v < p->node_count; v++)
        if (!is_out[v]) {
            index[v] = layer_count;
            layers[layer_count++] = p->nodes[v].layer;
        }
    for (uint32_t e = 0; e < p->edge_count; e++)
        if (!is_out[edges[e].from] && !is_out[edges[e].to])
            edges[edge_count++] = (ty_graph_edge){index[edges[e].from], index[edges[e].to]};
    if (layer_count == 0)
        return ty_fail(error, TY_EPARSE, "%s: found no layers beside inputs, expected some",
                       p->path);
    status = make_sorted(p, layers, layer_count, edges, edge_count, out, error);
done:
    return status;
}

#define MOST_PROFILE_BYTES (64u << 20) /* the largest known profile has 0.3 MB */

ty_status ty_layer_graph_read(const char *path, ty_layer_graph **out, ty_error *error)
{
    ty_status status = TY_OK;
    profile_text p = {.path = path, .arena = ty_arena_new()};
    const ty_pipedream_visitor visitor = {&p, add_node, add_edge};
    char *bytes = NULL;
    const char *text;
    size_t length;

    if (p.arena == NULL) {
        status = ty_fail(error, TY_ENOMEM, "graph: out of memory");
        goto cleanup;
    }
    TY_CHECK(ty_file_read(path, MOST_PROFILE_BYTES, &bytes, &length, error), status, cleanup);
    text = bytes;
    ty_skip_mark(&text, &length);
    TY_CHECK(ty_pipedream_read(path, text, length, &visitor, error), status, cleanup);
    status = build(&p, out, error);

cleanup:
    ty_free(bytes);
    ty_free(p.nodes);
    ty_free(p.edges);
    ty_arena_free(p.arena);
    return status;
}
