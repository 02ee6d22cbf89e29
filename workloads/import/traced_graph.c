/* Converts numbered nodes in any order to layers in topological order. */
#include "traced_graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME_LENGTH 100 /* length of a node's name in a layer's name */

static ty_status fail_memory(const ty_traced_graph *g)
{
    return ty_fail(g->source->error, TY_ENOMEM, "%s: out of memory", g->source->path);
}

/* ---- Adding ---------------------------------------------------------------------------------- */

static ty_status grow(const ty_traced_graph *g, void **list, uint32_t count, uint32_t *capacity,
                      size_t size)
{
    void *grown;
    if (count < *capacity)
        return TY_OK;
    grown = ty_resize(*list, *capacity == 0 ? 64 : (size_t)*capacity * 2, size);
    if (grown == NULL)
        return fail_memory(g);
    *list = grown;
    *capacity = *capacity == 0 ? 64 : *capacity * 2;
    return TY_OK;
}

ty_status ty_traced_add_node(ty_traced_graph *graph, const ty_traced_node *node)
{
    void *list = graph->nodes;

    if (graph->node_count == TY_TRACED_MOST_NODES)
        return ty_fail(graph->source->error, TY_EPARSE, "%s: found more than %d nodes",
                       graph->source->path, TY_TRACED_MOST_NODES);
    TY_TRY(grow(graph, &list, graph->node_count, &graph->node_capacity, sizeof *node));
    graph->nodes = list;
    graph->nodes[graph->node_count++] = *node;
    return TY_OK;
}

ty_status ty_traced_add_edge(ty_traced_graph *graph, uint64_t from, uint64_t to)
{
    void *list = graph->edges;

    if (graph->edge_count == TY_TRACED_MOST_EDGES)
        return ty_fail(graph->source->error, TY_EPARSE, "%s: found more than %d edges",
                       graph->source->path, TY_TRACED_MOST_EDGES);
    TY_TRY(grow(graph, &list, graph->edge_count, &graph->edge_capacity, sizeof *graph->edges));
    graph->edges = list;
    graph->edges[graph->edge_count++] = (ty_traced_edge){.from_id = from, .to_id = to};
    return TY_OK;
}

/* ---- Order ----------------------------------------------------------------------------------- */

static int by_id(const void *a, const void *b)
{
    const ty_traced_node *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

static const ty_traced_node *find_node(const ty_traced_graph *g, uint64_t id)
{
    const ty_traced_node key = {.id = id};
    return g->node_count == 0 ? NULL : bsearch(&key, g->nodes, g->node_count, sizeof key, by_id);
}

static ty_status find_ends(ty_traced_graph *g)
{
    uint32_t kept = 0;

    if (g->node_count == 0)
        return ty_fail(g->source->error, TY_EPARSE, "%s: found no nodes", g->source->path);
    qsort(g->nodes, g->node_count, sizeof *g->nodes, by_id);
    for (uint32_t i = 1; i < g->node_count; i++)
        if (g->nodes[i - 1].id == g->nodes[i].id)
            return ty_fail(g->source->error, TY_EPARSE, "%s: found %s%llu twice", g->source->path,
                           g->prefix, (unsigned long long)g->nodes[i].id);
    for (uint32_t i = 0; i < g->edge_count; i++) {
        ty_traced_edge e = g->edges[i];
        const ty_traced_node *from = find_node(g, e.from_id), *to = find_node(g, e.to_id);
        if ((from == NULL || to == NULL) && !g->may_be_partial)
            return ty_fail(g->source->error, TY_EPARSE,
                           "%s: found an edge of %s%llu, which has no line", g->source->path,
                           g->prefix, (unsigned long long)(from == NULL ? e.from_id : e.to_id));
        if (from == NULL || to == NULL)
            continue;
        e.from = (uint32_t)(from - g->nodes);
        e.to = (uint32_t)(to - g->nodes);
        g->nodes[e.from].out_count++;
        g->nodes[e.to].in_count++;
        g->edges[kept++] = e;
    }
    g->dropped_edge_count = g->edge_count - kept;
    g->edge_count = kept;
    return TY_OK;
}

/* Edges grouped by either end: counting sort, stable. */
static ty_status group_edges(ty_traced_graph *g)
{
    uint32_t in = 0, out = 0;

    g->by_reader = ty_alloc(g->edge_count, sizeof *g->by_reader);
    g->by_producer = ty_alloc(g->edge_count, sizeof *g->by_producer);
    if (g->by_reader == NULL || g->by_producer == NULL)
        return fail_memory(g);
    for (uint32_t i = 0; i < g->node_count; i++) {
        ty_traced_node *n = &g->nodes[i];
        n->first_in = in;
        n->first_out = out;
        in += n->in_count;
        out += n->out_count;
        n->missing = n->in_count;
        n->in_count = n->out_count = 0;
    }
    for (uint32_t i = 0; i < g->edge_count; i++) {
        ty_traced_node *from = &g->nodes[g->edges[i].from], *to = &g->nodes[g->edges[i].to];
        g->by_producer[from->first_out + from->out_count++] = i;
        g->by_reader[to->first_in + to->in_count++] = i;
    }
    return TY_OK;
}

/* A heap of nodes, lowest number first: numbers follow the order of execution. */
static void heap_push(uint32_t *heap, uint32_t *count, uint32_t value)
{
    uint32_t at = (*count)++;
    for (; at > 0 && heap[(at - 1) / 2] > value; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = value;
}

static uint32_t heap_pop(uint32_t *heap, uint32_t *count)
{
    uint32_t top = heap[0], last = heap[--*count], at = 0;
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child + 1 < *count && heap[child + 1] < heap[child])
            child++;
        if (child >= *count || heap[child] >= last)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
    return top;
}

static ty_status sort_topologically(ty_traced_graph *g)
{
    ty_status status = TY_OK;
    uint32_t *heap = ty_alloc(g->node_count, sizeof *heap), waiting = 0, done = 0;

    g->order = ty_alloc(g->node_count, sizeof *g->order);
    if (heap == NULL || g->order == NULL) {
        status = fail_memory(g);
        goto cleanup;
    }
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].missing == 0)
            heap_push(heap, &waiting, i);
    while (waiting > 0) {
        uint32_t i = heap_pop(heap, &waiting);
        const ty_traced_node *n = &g->nodes[i];
        g->order[done++] = i;
        for (uint32_t k = 0; k < n->out_count; k++) {
            uint32_t reader = g->edges[g->by_producer[n->first_out + k]].to;
            if (--g->nodes[reader].missing == 0)
                heap_push(heap, &waiting, reader);
        }
    }
    for (uint32_t i = 0; i < g->node_count && done < g->node_count; i++)
        if (g->nodes[i].missing > 0) {
            status = ty_fail(g->source->error, TY_EPARSE,
                             "%s: found a cycle that %s%llu is on or behind", g->source->path,
                             g->prefix, (unsigned long long)g->nodes[i].id);
            goto cleanup;
        }

cleanup:
    ty_free(heap);
    return status;
}

ty_status ty_traced_connect(ty_traced_graph *graph)
{
    TY_TRY(find_ends(graph));
    TY_TRY(group_edges(graph));
    return sort_topologically(graph);
}

void ty_traced_clear(ty_traced_graph *graph)
{
    for (uint32_t i = 0; i < graph->node_count; i++)
        ty_free(graph->nodes[i].inputs);
    ty_free(graph->nodes);
    ty_free(graph->edges);
    ty_free(graph->by_reader);
    ty_free(graph->by_producer);
    ty_free(graph->order);
}

/* ---- Nodes that stay ------------------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Inputs of a node, each once; skipped nodes are replaced by their inputs. */
static ty_status gather_inputs(ty_traced_graph *g, ty_traced_node *n)
{
    uint32_t count = 0, kept = 0;

    for (uint32_t k = 0; k < n->in_count; k++) {
        const ty_traced_node *from = &g->nodes[g->edges[g->by_reader[n->first_in + k]].from];
        count += from->is_passed_over ? from->input_count : 1;
        if (count > TY_TRACED_MOST_EDGES - g->input_count)
            return ty_fail(g->source->error, TY_EPARSE, "%s: found more than %d inputs of layers",
                           g->source->path, TY_TRACED_MOST_EDGES);
    }
    g->input_count += count;
    n->inputs = ty_alloc((size_t)count + 1, sizeof *n->inputs); /* one more for a chain */
    if (n->inputs == NULL)
        return fail_memory(g);
    for (uint32_t k = 0; k < n->in_count; k++) {
        uint32_t producer = g->edges[g->by_reader[n->first_in + k]].from;
        const ty_traced_node *from = &g->nodes[producer];
        if (!from->is_passed_over) {
            n->inputs[n->input_count++] = producer;
            continue;
        }
        if (from->input_count > 0)
            memcpy(n->inputs + n->input_count, from->inputs,
                   from->input_count * sizeof *from->inputs);
        n->input_count += from->input_count;
    }
    qsort(n->inputs, n->input_count, sizeof *n->inputs, ascending);
    for (uint32_t i = 0; i < n->input_count; i++)
        if (i == 0 || n->inputs[i] != n->inputs[i - 1])
            n->inputs[kept++] = n->inputs[i];
    n->input_count = kept;
    return TY_OK;
}

static ty_status settle(ty_traced_graph *g)
{
    ty_status status = TY_OK;
    uint32_t kept = 0, unread = 0, last = UINT32_MAX;

    for (uint32_t i = 0; i < g->node_count; i++) {
        ty_traced_node *n = &g->nodes[g->order[i]];
        TY_TRY(gather_inputs(g, n));
        if (n->is_passed_over)
            continue;
        if (g->is_chain && n->input_count == 0 && last != UINT32_MAX)
            n->inputs[n->input_count++] = last;
        last = g->order[i];
    }
    for (uint32_t i = g->node_count; i-- > 0;) {
        ty_traced_node *n = &g->nodes[g->order[i]];
        if (n->is_passed_over)
            continue;
        n->is_kept = n->is_kept || n->is_work;
        kept += n->is_kept;
        unread += !n->is_kept;
        for (uint32_t k = 0; n->is_kept && k < n->input_count; k++)
            g->nodes[n->inputs[k]].is_kept = true;
    }
    if (kept == 0)
        status = ty_fail(g->source->error, TY_EPARSE,
                         "%s: found no operator with a time or parameters", g->source->path);
    if (unread > 0)
        ty_import_note(g->source, "%u outputs that nothing reads are left out", unread);
    if (g->dropped_edge_count > 0)
        ty_import_note(g->source, "%u edges of nodes that are not in the file are left out",
                       g->dropped_edge_count);
    return status;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* Copies a name in plain characters. @return whether nothing was replaced or cut */
static bool plain_name(const ty_traced_node *n, char out[NAME_LENGTH + 1])
{
    bool is_same = n->name_length <= NAME_LENGTH && n->name_length > 0;
    size_t length = n->name_length < NAME_LENGTH ? n->name_length : NAME_LENGTH;

    for (size_t i = 0; i < length; i++) {
        bool is_plain = n->name[i] >= ' ' && n->name[i] <= '~';
        out[i] = is_plain ? n->name[i] : '?';
        is_same = is_same && is_plain;
    }
    out[length] = '\0';
    return is_same;
}

static int by_name(const void *a, const void *b)
{
    const ty_traced_node *x = *(const ty_traced_node *const *)a;
    const ty_traced_node *y = *(const ty_traced_node *const *)b;
    size_t shorter = x->name_length < y->name_length ? x->name_length : y->name_length;
    int order = shorter > 0 ? memcmp(x->name, y->name, shorter) : 0;
    return order != 0 ? order
                      : (x->name_length > y->name_length) - (x->name_length < y->name_length);
}

/* Marks the nodes that need their number in the name: those with a repeated or invalid name. If
 * there are any, names that look numbered get theirs too, so that all differ. */
static ty_status find_numbered(const ty_traced_graph *g, bool *is_numbered)
{
    const ty_traced_node **sorted = ty_alloc(g->node_count, sizeof *sorted);
    char text[NAME_LENGTH + 1];
    size_t prefix = strlen(g->prefix);
    uint32_t count = 0;
    bool is_any = false;

    if (sorted == NULL)
        return fail_memory(g);
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].is_kept)
            sorted[count++] = &g->nodes[i];
    if (count > 0)
        qsort(sorted, count, sizeof *sorted, by_name);
    for (uint32_t i = 0; i < count; i++) {
        bool is_shared = (i > 0 && by_name(&sorted[i - 1], &sorted[i]) == 0) ||
                         (i + 1 < count && by_name(&sorted[i], &sorted[i + 1]) == 0);
        bool *is_this = &is_numbered[sorted[i] - g->nodes];
        *is_this = g->is_always_numbered || is_shared || !plain_name(sorted[i], text);
        is_any = is_any || *is_this;
    }
    for (uint32_t i = 0; i < count && is_any; i++)
        if (sorted[i]->name_length >= prefix && memcmp(sorted[i]->name, g->prefix, prefix) == 0)
            is_numbered[sorted[i] - g->nodes] = true;
    ty_free(sorted);
    return TY_OK;
}

static void name_layer(const ty_traced_graph *g, ty_builder *b, const ty_traced_node *n,
                       bool is_numbered)
{
    char text[NAME_LENGTH + 1], name[NAME_LENGTH + 60];

    plain_name(n, text);
    if (is_numbered)
        snprintf(name, sizeof name, "%.20s%llu %s", g->prefix, (unsigned long long)n->id, text);
    else
        snprintf(name, sizeof name, "%s", text);
    ty_builder_name_next(b, name);
}

static ty_status append(const ty_traced_graph *g, ty_builder *b, ty_traced_node *n)
{
    uint32_t batch[] = {TY_BATCH};
    uint32_t *inputs = ty_alloc(n->input_count, sizeof *inputs);
    ty_opaque known = n->known;

    if (inputs == NULL)
        return fail_memory(g);
    known.output = (ty_shape){1, {n->output_elements > 0 ? n->output_elements : 1}};
    for (uint32_t i = 0; i < n->input_count; i++)
        inputs[i] = g->nodes[n->inputs[i]].layer;
    n->layer = n->input_count > 0 ? ty_builder_opaque(b, inputs, n->input_count, &known)
                                  : ty_builder_opaque(b, batch, 1, &known);
    ty_free(inputs);
    return TY_OK;
}

/* Joins several ends, such as auxiliary heads, in one layer. */
static ty_status join_ends(const ty_traced_graph *g, ty_builder *b)
{
    uint32_t *ends = ty_alloc(g->node_count, sizeof *ends), count = 0;
    bool *is_read = ty_alloc(g->node_count, sizeof *is_read);
    const ty_opaque nothing = {.output = {1, {1}}, .is_timed = true};
    ty_status status = TY_OK;

    if (ends == NULL || is_read == NULL) {
        status = fail_memory(g);
        goto cleanup;
    }
    for (uint32_t i = 0; i < g->node_count; i++)
        for (uint32_t k = 0; g->nodes[i].is_kept && k < g->nodes[i].input_count; k++)
            is_read[g->nodes[i].inputs[k]] = true;
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].is_kept && !is_read[i])
            ends[count++] = g->nodes[i].layer;
    if (count > 1) {
        ty_import_note(g->source, "%u ends are joined by a layer of no cost", count);
        ty_builder_opaque(b, ends, count, &nothing);
    }

cleanup:
    ty_free(ends);
    ty_free(is_read);
    return status;
}

ty_status ty_traced_build(ty_traced_graph *graph, ty_builder *builder)
{
    ty_status status = TY_OK;
    bool *is_numbered = ty_alloc(graph->node_count, sizeof *is_numbered);

    if (is_numbered == NULL)
        return fail_memory(graph);
    TY_CHECK(settle(graph), status, cleanup);
    TY_CHECK(find_numbered(graph, is_numbered), status, cleanup);
    for (uint32_t i = 0; i < graph->node_count; i++) {
        ty_traced_node *n = &graph->nodes[graph->order[i]];
        if (!n->is_kept)
            continue;
        name_layer(graph, builder, n, is_numbered[graph->order[i]]);
        TY_CHECK(append(graph, builder, n), status, cleanup);
    }
    status = join_ends(graph, builder);

cleanup:
    ty_free(is_numbered);
    return status;
}
