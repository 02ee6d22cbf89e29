/* Graphs of layers, from copies and from PipeDream's profiles, and their states. */
#include "ty_partition.h"

#include "ty_base.h"
#include "ty_workloads.h"

#include <math.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 8192u              /* tables of ancestors are a square of bits */
#define MOST_PROFILE_BYTES (64u << 20) /* the largest known profile has 0.3 MB */

/* ---- Sets of bits ---------------------------------------------------------------------------- */

static bool has(const uint64_t *set, uint32_t bit)
{
    return (set[bit / 64] >> (bit % 64) & 1) != 0;
}

static void add(uint64_t *set, uint32_t bit)
{
    set[bit / 64] |= (uint64_t)1 << (bit % 64);
}

static void join(uint64_t *set, const uint64_t *other, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        set[w] |= other[w];
}

static bool is_inside(const uint64_t *part, const uint64_t *whole, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        if ((part[w] & ~whole[w]) != 0)
            return false;
    return true;
}

static bool meets(const uint64_t *a, const uint64_t *b, uint32_t words)
{
    for (uint32_t w = 0; w < words; w++)
        if ((a[w] & b[w]) != 0)
            return true;
    return false;
}

static uint32_t size_of(const uint64_t *set, uint32_t words)
{
    uint32_t count = 0;
    for (uint32_t w = 0; w < words; w++)
        for (uint64_t rest = set[w]; rest != 0; rest &= rest - 1)
            count++;
    return count;
}

static uint64_t *row(const ty_layer_graph *g, uint64_t *rows, uint32_t layer)
{
    return &rows[(size_t)layer * g->words];
}

/* ---- From copies ----------------------------------------------------------------------------- */

static ty_status copy_layers(ty_layer_graph *g, const ty_graph_layer *layers, ty_error *error)
{
    for (uint32_t i = 0; i < g->layer_count; i++) {
        const ty_graph_layer *l = &layers[i];
        const char *name = l->name != NULL ? l->name : "";
        const double least = fmin(l->compute_s, fmin(l->activation_bytes, l->parameter_bytes));
        if (!(least >= 0 && l->compute_s + l->activation_bytes + l->parameter_bytes < HUGE_VAL))
            return ty_fail(error, TY_EINVAL,
                           "layer %u (%s): found compute_s %g, activation_bytes %g and "
                           "parameter_bytes %g, expected finite numbers >= 0",
                           i, name, l->compute_s, l->activation_bytes, l->parameter_bytes);
        g->layers[i] = *l;
        TY_TRY(
            ty_check_memory((g->layers[i].name = ty_arena_strdup(g->arena, name)) != NULL, error));
    }
    return TY_OK;
}

/* Repeatedly takes the lowest layer whose sources have all been taken. */
static ty_status sort_layers(ty_layer_graph *g, ty_error *error)
{
    uint64_t *taken = ty_arena_alloc(g->arena, g->words, sizeof *taken);

    TY_TRY(ty_check_memory(taken != NULL, error));
    for (uint32_t i = 0, lowest = 0; i < g->layer_count; i++) {
        uint32_t v;
        while (has(taken, lowest))
            lowest++;
        for (v = lowest; v < g->layer_count; v++)
            if (!has(taken, v) && is_inside(row(g, g->sources, v), taken, g->words))
                break;
        if (v == g->layer_count)
            return ty_fail(error, TY_EINVAL, "layer %u depends on itself: found a circle of edges",
                           lowest);
        g->order[i] = v;
        add(taken, v);
        add(row(g, g->ancestors, v), v);
        for (uint32_t s = 0; s < g->layer_count; s++)
            if (has(row(g, g->sources, v), s))
                join(row(g, g->ancestors, v), row(g, g->ancestors, s), g->words);
    }
    return TY_OK;
}

ty_status ty_layer_graph_make(const ty_graph_layer *layers, uint32_t layer_count,
                              const ty_graph_edge *edges, uint32_t edge_count, ty_layer_graph **out,
                              ty_error *error)
{
    ty_layer_graph *g = ty_alloc(1, sizeof *g);
    size_t bytes;
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(g != NULL && (g->arena = ty_arena_new()) != NULL, error), status,
             cleanup);
    if (layer_count == 0 || layer_count > MOST_LAYERS) {
        status = ty_fail(error, TY_EINVAL, "found %u layers, expected 1 to %u", layer_count,
                         MOST_LAYERS);
        goto cleanup;
    }
    g->layer_count = layer_count;
    g->words = (layer_count + 63) / 64;
    bytes = g->words * sizeof(uint64_t);
    g->layers = ty_arena_alloc(g->arena, layer_count, sizeof *g->layers);
    g->sources = ty_arena_alloc(g->arena, layer_count, bytes);
    g->readers = ty_arena_alloc(g->arena, layer_count, bytes);
    g->ancestors = ty_arena_alloc(g->arena, layer_count, bytes);
    g->order = ty_arena_alloc(g->arena, layer_count, sizeof *g->order);
    TY_CHECK(ty_check_memory(g->layers != NULL && g->sources != NULL && g->readers != NULL &&
                                 g->ancestors != NULL && g->order != NULL,
                             error),
             status, cleanup);
    TY_CHECK(copy_layers(g, layers, error), status, cleanup);
    for (uint32_t e = 0; e < edge_count; e++) {
        if (edges[e].from >= layer_count || edges[e].to >= layer_count) {
            status = ty_fail(error, TY_EINVAL, "edge %u: found %u to %u, expected two of %u layers",
                             e, edges[e].from, edges[e].to, layer_count);
            goto cleanup;
        }
        add(row(g, g->readers, edges[e].from), edges[e].to);
        add(row(g, g->sources, edges[e].to), edges[e].from);
    }
    TY_CHECK(sort_layers(g, error), status, cleanup);
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

/* ---- Merging --------------------------------------------------------------------------------- */

/* Edges of a graph, between the owners of its layers. */
static uint32_t list_edges(const ty_layer_graph *g, const uint32_t *owners, ty_graph_edge *edges)
{
    uint32_t count = 0;

    for (uint32_t v = 0; v < g->layer_count; v++)
        for (uint32_t r = 0; r < g->layer_count; r++)
            if (has(row(g, g->readers, v), r) && owners[v] != owners[r])
                edges[count++] = (ty_graph_edge){owners[v], owners[r]};
    return count;
}

/* The merged layer of each layer, numbered by first members. @return their number */
static uint32_t find_owners(const ty_layer_graph *g, uint32_t *into, bool *is_branch,
                            uint32_t *owners)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < g->layer_count; i++) {
        const uint32_t v = g->order[i];
        uint32_t source = 0, readers;
        into[v] = v;
        owners[v] = UINT32_MAX;
        if (size_of(row(g, g->sources, v), g->words) != 1)
            continue;
        while (!has(row(g, g->sources, v), source))
            source++;
        readers = size_of(row(g, g->readers, source), g->words);
        is_branch[v] = readers > 1 || is_branch[source];
        if (is_branch[v] && readers == 1)
            into[v] = into[source];
    }
    for (uint32_t v = 0; v < g->layer_count; v++)
        if (owners[into[v]] == UINT32_MAX)
            owners[into[v]] = count++;
    for (uint32_t v = 0; v < g->layer_count; v++)
        owners[v] = owners[into[v]];
    return count;
}

/* Whether a layer outside its owner reads it, or none at all. */
static bool is_handed_on(const ty_layer_graph *g, const uint32_t *owners, uint32_t layer)
{
    const uint64_t *readers = row(g, g->readers, layer);

    for (uint32_t r = 0; r < g->layer_count; r++)
        if (has(readers, r) && owners[r] != owners[layer])
            return true;
    return size_of(readers, g->words) == 0;
}

ty_status ty_layer_graph_merge(const ty_layer_graph *graph, ty_layer_graph **out, uint32_t *owners,
                               ty_error *error)
{
    const uint32_t n = graph->layer_count;
    uint32_t *into = ty_alloc(n, sizeof *into);
    bool *is_branch = ty_alloc(n, sizeof *is_branch);
    ty_graph_layer *layers = ty_alloc(n, sizeof *layers);
    ty_graph_edge *edges = ty_alloc(
        (size_t)size_of(graph->readers, graph->layer_count * graph->words) + 1, sizeof *edges);
    ty_status status;

    if (into == NULL || is_branch == NULL || layers == NULL || edges == NULL) {
        status = ty_fail(error, TY_ENOMEM, "merging a graph: out of memory");
    } else {
        const uint32_t count = find_owners(graph, into, is_branch, owners);
        for (uint32_t v = 0; v < n; v++) {
            const ty_graph_layer *from = &graph->layers[v];
            ty_graph_layer *to = &layers[owners[v]];
            to->name = to->name != NULL ? to->name : from->name;
            to->compute_s += from->compute_s;
            to->parameter_bytes += from->parameter_bytes;
            to->activation_bytes += is_handed_on(graph, owners, v) ? from->activation_bytes : 0;
        }
        status =
            ty_layer_graph_make(layers, count, edges, list_edges(graph, owners, edges), out, error);
    }
    ty_free(edges);
    ty_free(layers);
    ty_free(is_branch);
    ty_free(into);
    return status;
}

/* ---- From a profile -------------------------------------------------------------------------- */

/* Nodes and edges in file order; edges by node number until all are read. */
typedef struct profile {
    const char *path;
    ty_arena *arena;
    ty_graph_layer *layers;
    uint64_t *ids, (*edges)[2];
    bool *is_input, *is_item;
    uint32_t node_count, node_most, edge_count, edge_most;
} profile;

static ty_status add_node(void *context, const ty_pipedream_node *from, ty_error *error)
{
    profile *p = context;
    const uint32_t n = p->node_count++;
    char name[32];

    if (n == p->node_most)
        return ty_fail(error, TY_EPARSE, "%s: found more than %u nodes", p->path, p->node_most);
    snprintf(name, sizeof name, "node%llu", (unsigned long long)from->id);
    p->ids[n] = from->id;
    p->is_input[n] = from->name_length >= 5 && memcmp(from->name, "Input", 5) == 0;
    p->is_item[n] = from->name_length >= 11 && memcmp(from->name, "__getitem__", 11) == 0;
    p->layers[n] = (ty_graph_layer){ty_arena_strdup(p->arena, name),
                                    (from->forward_ms + from->backward_ms) / 1000.0,
                                    from->activation_bytes, from->parameter_bytes};
    for (uint32_t k = 0; k < n; k++)
        if (p->ids[k] == from->id)
            return ty_fail(error, TY_EPARSE, "%s: found two lines for %s, expected one", p->path,
                           name);
    return p->layers[n].name != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "graph: out of memory");
}

static ty_status add_edge(void *context, uint64_t from, uint64_t to, ty_error *error)
{
    profile *p = context;

    if (p->edge_count == p->edge_most)
        return ty_fail(error, TY_EPARSE, "%s: found more than %u edges", p->path, p->edge_most);
    p->edges[p->edge_count][0] = from;
    p->edges[p->edge_count++][1] = to;
    return TY_OK;
}

static ty_status number_edges(const profile *p, ty_graph_edge *edges, ty_error *error)
{
    for (uint32_t e = 0; e < p->edge_count; e++)
        for (uint32_t end = 0; end < 2; end++) {
            uint32_t v = 0;
            while (v < p->node_count && p->ids[v] != p->edges[e][end])
                v++;
            if (v == p->node_count)
                return ty_fail(error, TY_EPARSE,
                               "%s: found an edge of node%llu, expected a line for that node",
                               p->path, (unsigned long long)p->edges[e][end]);
            *(end == 0 ? &edges[e].from : &edges[e].to) = v;
        }
    return TY_OK;
}

/* Numbers the layers to keep; others have UINT32_MAX. @return their number */
static uint32_t keep_layers(profile *p, const ty_graph_edge *edges, uint32_t *numbers)
{
    uint32_t count = 0;

    for (uint32_t e = 0; e < p->edge_count; e++) {
        p->is_input[edges[e].to] = false;
        p->is_item[edges[e].from] = false;
    }
    for (uint32_t v = 0; v < p->node_count; v++) {
        const bool is_kept = !p->is_input[v] && !p->is_item[v];
        numbers[v] = is_kept ? count : UINT32_MAX;
        if (is_kept)
            p->layers[count++] = p->layers[v];
    }
    return count;
}

/* The graph with its layers in topological order: the first source stays first. */
static ty_status sorted(profile *p, const ty_layer_graph *g, ty_graph_edge *edges, uint32_t *places,
                        ty_layer_graph **out, ty_error *error)
{
    for (uint32_t i = 0; i < g->layer_count; i++) {
        p->layers[i] = g->layers[g->order[i]];
        places[g->order[i]] = i;
    }
    return ty_layer_graph_make(p->layers, g->layer_count, edges, list_edges(g, places, edges), out,
                               error);
}

static ty_status build(profile *p, ty_layer_graph **out, ty_error *error)
{
    ty_graph_edge *edges = ty_arena_alloc(p->arena, (size_t)p->edge_count + 1, sizeof *edges);
    uint32_t *numbers = ty_arena_alloc(p->arena, (size_t)p->node_count + 1, sizeof *numbers);
    uint32_t layer_count, edge_count = 0;
    ty_layer_graph *g = NULL;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(edges != NULL && numbers != NULL, error));
    TY_CHECK(number_edges(p, edges, error), status, cleanup);
    layer_count = keep_layers(p, edges, numbers);
    if (layer_count == 0) {
        status =
            ty_fail(error, TY_EPARSE, "%s: found nothing but inputs, expected layers", p->path);
        goto cleanup;
    }
    for (uint32_t e = 0; e < p->edge_count; e++)
        if (numbers[edges[e].from] != UINT32_MAX && numbers[edges[e].to] != UINT32_MAX)
            edges[edge_count++] = (ty_graph_edge){numbers[edges[e].from], numbers[edges[e].to]};
    status = ty_layer_graph_make(p->layers, layer_count, edges, edge_count, &g, NULL);
    if (status == TY_EINVAL)
        status = ty_fail(error, TY_EPARSE, "%s: found a circle of edges, expected none", p->path);
    else if (status != TY_OK)
        status = ty_fail(error, status, "graph: out of memory");
    else
        status = sorted(p, g, edges, numbers, out, error);

cleanup:
    ty_layer_graph_free(g);
    return status;
}

ty_status ty_layer_graph_read(const char *path, ty_layer_graph **out, ty_error *error)
{
    profile p = {.path = path, .arena = ty_arena_new(), .node_most = MOST_LAYERS};
    const ty_pipedream_visitor visitor = {&p, add_node, add_edge};
    char *bytes = NULL;
    const char *text;
    size_t length;
    ty_status status = TY_OK;

    TY_CHECK(ty_file_read(path, MOST_PROFILE_BYTES, &bytes, &length, error), status, cleanup);
    text = bytes;
    ty_skip_mark(&text, &length);
    for (size_t i = 0; i < length; i++) /* a line has one edge */
        p.edge_most += text[i] == '\n' || i + 1 == length;
    if (p.arena != NULL) {
        p.layers = ty_arena_alloc(p.arena, p.node_most, sizeof *p.layers);
        p.ids = ty_arena_alloc(p.arena, p.node_most, sizeof *p.ids);
        p.is_input = ty_arena_alloc(p.arena, p.node_most, sizeof *p.is_input);
        p.is_item = ty_arena_alloc(p.arena, p.node_most, sizeof *p.is_item);
        p.edges = ty_arena_alloc(p.arena, (size_t)p.edge_most + 1, sizeof *p.edges);
    }
    TY_CHECK(ty_check_memory(p.arena != NULL && p.layers != NULL && p.ids != NULL &&
                                 p.is_input != NULL && p.is_item != NULL && p.edges != NULL,
                             error),
             status, cleanup);
    TY_CHECK(ty_pipedream_read(path, text, length, &visitor, error), status, cleanup);
    status = build(&p, out, error);

cleanup:
    ty_free(bytes);
    ty_arena_free(p.arena);
    return status;
}

/* ---- States ---------------------------------------------------------------------------------- */

typedef struct graph_state {
    double compute_s;
    uint32_t size, words;
    uint64_t *set;
} graph_state;

static int by_set(const void *left, const void *right)
{
    const graph_state *a = left, *b = right;

    for (uint32_t w = 0; w < a->words; w++)
        if (a->set[w] != b->set[w])
            return a->set[w] < b->set[w] ? -1 : 1;
    return 0;
}

static int by_rank(const void *left, const void *right)
{
    const graph_state *a = *(graph_state *const *)left, *b = *(graph_state *const *)right;

    if (a->compute_s != b->compute_s)
        return a->compute_s < b->compute_s ? -1 : 1;
    return a->size != b->size ? (a->size > b->size) - (a->size < b->size) : by_set(a, b);
}

/* Sums run over layers in one order, so that a subset never exceeds its superset, rounding
 * included. */
static double sum(const ty_layer_graph *g, const uint64_t *set, size_t field)
{
    double total = 0;

    for (uint32_t v = 0; v < g->layer_count; v++)
        if (has(set, v))
            total += *(const double *)((const char *)&g->layers[v] + field);
    return total;
}

/* A state, unless it is known. @param known tree of tsearch */
static ty_status keep(const ty_layer_graph *g, const uint64_t *set, ty_arena *arena, void **known,
                      graph_state **states, uint32_t *count, ty_error *error)
{
    graph_state key = {.words = g->words, .set = (uint64_t *)set}, *s;

    if (tfind(&key, known, by_set) != NULL)
        return TY_OK;
    if (*count == TY_MOST_STATES)
        return ty_fail(error, TY_ELIMIT,
                       "a graph of %u layers has more than %u states; merge it first",
                       g->layer_count, TY_MOST_STATES);
    key.compute_s = sum(g, set, offsetof(ty_graph_layer, compute_s));
    key.size = size_of(set, g->words);
    key.set = ty_arena_alloc(arena, g->words, sizeof *set);
    s = ty_arena_alloc(arena, 1, sizeof *s);
    TY_TRY(ty_check_memory(key.set != NULL && s != NULL, error));
    memcpy(key.set, set, g->words * sizeof *set);
    *s = key;
    TY_TRY(ty_check_memory(tsearch(s, known, by_set) != NULL, error));
    states[(*count)++] = s;
    return TY_OK;
}

static ty_status grow(const ty_layer_graph *g, ty_arena *arena, void **known, graph_state **states,
                      uint32_t *count, ty_error *error)
{
    uint64_t *trial = ty_arena_alloc(arena, g->words, sizeof *trial);

    TY_TRY(ty_check_memory(trial != NULL, error));
    TY_TRY(keep(g, trial, arena, known, states, count, error));
    add(trial, g->order[0]);
    TY_TRY(keep(g, trial, arena, known, states, count, error));
    for (uint32_t i = 1; i < *count; i++)
        for (uint32_t v = 0; v < g->layer_count; v++) {
            if (has(states[i]->set, v) || !meets(states[i]->set, row(g, g->sources, v), g->words))
                continue;
            memcpy(trial, states[i]->set, g->words * sizeof *trial);
            join(trial, row(g, g->ancestors, v), g->words);
            TY_TRY(keep(g, trial, arena, known, states, count, error));
        }
    qsort(states, *count, sizeof *states, by_rank);
    return TY_OK;
}

/* Output bytes of PipeDream's augmented antichain of a state. */
static double find_output(const ty_layer_graph *g, const uint64_t *set, uint64_t *handed)
{
    memset(handed, 0, g->words * sizeof *handed);
    for (uint32_t last = 0; last < g->layer_count; last++) {
        const uint64_t *needed = row(g, g->ancestors, last);
        if (!has(set, last) || meets(set, row(g, g->readers, last), g->words))
            continue;
        add(handed, last);
        for (uint32_t v = 0; v < g->layer_count; v++)
            if (has(needed, v) && !is_inside(row(g, g->readers, v), needed, g->words))
                add(handed, v);
    }
    return sum(g, handed, offsetof(ty_graph_layer, activation_bytes));
}

static ty_status make_states(const ty_layer_graph *g, ty_states *s, ty_error *error)
{
    void *known = NULL;
    graph_state **found = ty_arena_alloc(s->arena, TY_MOST_STATES, sizeof *found);
    uint64_t *handed = ty_arena_alloc(s->arena, g->words, sizeof *handed);
    double **sums[] = {&s->compute_s, &s->activation_bytes, &s->parameter_bytes, &s->output_bytes};
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(found != NULL && handed != NULL, error));
    s->words = g->words;
    TY_CHECK(grow(g, s->arena, &known, found, &s->count, error), status, cleanup);
    s->sets = ty_arena_alloc(s->arena, s->count, s->words * sizeof *s->sets);
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        *sums[i] = ty_arena_alloc(s->arena, s->count, sizeof(double));
    TY_CHECK(ty_check_memory(s->sets != NULL && s->compute_s != NULL &&
                                 s->activation_bytes != NULL && s->parameter_bytes != NULL &&
                                 s->output_bytes != NULL,
                             error),
             status, cleanup);
    for (uint32_t i = 0; i < s->count; i++) {
        const uint64_t *set = found[i]->set;
        memcpy(&s->sets[(size_t)i * s->words], set, s->words * sizeof *set);
        s->compute_s[i] = found[i]->compute_s;
        s->activation_bytes[i] = sum(g, set, offsetof(ty_graph_layer, activation_bytes));
        s->parameter_bytes[i] = sum(g, set, offsetof(ty_graph_layer, parameter_bytes));
        s->output_bytes[i] = find_output(g, set, handed);
    }

cleanup:
    while (known != NULL)
        tdelete(*(void **)known, &known, by_set);
    return status;
}

ty_status ty_states_find(const ty_layer_graph *graph, ty_states **out, ty_error *error)
{
    ty_states *s = ty_alloc(1, sizeof *s);
    ty_status status;

    if (s == NULL || (s->arena = ty_arena_new()) == NULL)
        status = ty_fail(error, TY_ENOMEM, "states: out of memory");
    else
        status = make_states(graph, s, error);
    if (status == TY_OK)
        *out = s;
    else
        ty_states_free(s);
    return status;
}

bool ty_state_has(const ty_states *states, uint32_t state, uint32_t layer)
{
    return has(&states->sets[(size_t)state * states->words], layer);
}

bool ty_state_is_inside(const ty_states *states, uint32_t part, uint32_t whole)
{
    return is_inside(&states->sets[(size_t)part * states->words],
                     &states->sets[(size_t)whole * states->words], states->words);
}

void ty_states_free(ty_states *states)
{
    if (states == NULL)
        return;
    ty_arena_free(states->arena);
    ty_free(states);
}
