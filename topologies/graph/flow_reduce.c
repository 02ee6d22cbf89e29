/* Hosts connect to the fabric by few links: of 30 links per device, only some of the fabric's
 * matter between halves of a cluster. */
#include "flow_reduce.h"

#include <math.h>
#include <string.h>

typedef struct reducer {
    flow_graph *graph;
    uint32_t source, target;
    uint32_t *first; /* [vertex_count + 1], start of a vertex's edges in `edges` */
    uint32_t *edges;
    uint32_t *degrees; /* [vertex_count] */
    uint32_t *marks;   /* [vertex_count]: the last neighbor seen, plus one */
    uint32_t *mark_edges;
    bool *is_stale; /* [vertex_count]: has a new edge that `edges` lacks */
} reducer;

static uint32_t *ends_of(const reducer *r, uint32_t edge)
{
    return &r->graph->ends[2 * (size_t)edge];
}

/* A removed edge connects a vertex to itself. */
static bool is_gone(const reducer *r, uint32_t edge)
{
    return ends_of(r, edge)[0] == ends_of(r, edge)[1];
}

static void remove_edge(const reducer *r, uint32_t edge)
{
    ends_of(r, edge)[1] = ends_of(r, edge)[0];
}

static uint32_t other_end(const reducer *r, uint32_t edge, uint32_t vertex)
{
    const uint32_t *ends = ends_of(r, edge);
    return ends[0] == vertex ? ends[1] : ends[0];
}

static void compact(flow_graph *graph)
{
    uint32_t count = 0;

    for (uint32_t e = 0; e < graph->edge_count; e++) {
        const uint32_t from = graph->ends[2 * (size_t)e], to = graph->ends[2 * (size_t)e + 1];
        if (from == to)
            continue;
        graph->ends[2 * (size_t)count] = from;
        graph->ends[2 * (size_t)count + 1] = to;
        graph->capacities[count++] = graph->capacities[e];
    }
    graph->edge_count = count;
}

static void list_edges(reducer *r)
{
    const flow_graph *g = r->graph;
    uint32_t sum = 0;

    memset(r->first, 0, ((size_t)g->vertex_count + 1) * sizeof *r->first);
    for (size_t i = 0; i < 2 * (size_t)g->edge_count; i++)
        r->first[g->ends[i]]++;
    for (uint32_t v = 0; v <= g->vertex_count; v++) { /* the end, then the start */
        sum += r->first[v];
        r->first[v] = sum;
    }
    for (size_t i = 0; i < 2 * (size_t)g->edge_count; i++)
        r->edges[--r->first[g->ends[i]]] = (uint32_t)(i / 2);
}

static bool merge_parallel(reducer *r)
{
    flow_graph *g = r->graph;
    bool is_changed = false;

    memset(r->marks, 0, g->vertex_count * sizeof *r->marks);
    memset(r->degrees, 0, g->vertex_count * sizeof *r->degrees);
    for (uint32_t v = 0; v < g->vertex_count; v++) {
        for (uint32_t i = r->first[v]; i < r->first[v + 1]; i++) {
            const uint32_t edge = r->edges[i], to = other_end(r, edge, v);
            if (is_gone(r, edge) || to < v)
                continue;
            if (r->marks[to] == v + 1) {
                g->capacities[r->mark_edges[to]] += g->capacities[edge];
                remove_edge(r, edge);
                is_changed = true;
                continue;
            }
            r->marks[to] = v + 1;
            r->mark_edges[to] = edge;
            r->degrees[v]++;
            r->degrees[to]++;
        }
    }
    return is_changed;
}

/* Removes a vertex with two edges; `kept` replaces both. */
static void join(reducer *r, uint32_t vertex, uint32_t kept, uint32_t dropped)
{
    double *capacities = r->graph->capacities;
    const uint32_t a = other_end(r, kept, vertex), b = other_end(r, dropped, vertex);

    capacities[kept] = fmin(capacities[kept], capacities[dropped]);
    remove_edge(r, dropped);
    ends_of(r, kept)[0] = a;
    ends_of(r, kept)[1] = b;
    r->is_stale[b] = true;
}

static bool take_small_vertices(reducer *r)
{
    bool is_changed = false;

    memset(r->is_stale, 0, r->graph->vertex_count * sizeof *r->is_stale);
    for (uint32_t v = 0; v < r->graph->vertex_count; v++) {
        uint32_t found[2], count = 0;
        if (v == r->source || v == r->target || r->is_stale[v] || r->degrees[v] > 2)
            continue;
        for (uint32_t i = r->first[v]; i < r->first[v + 1] && count < 2; i++)
            if (!is_gone(r, r->edges[i]))
                found[count++] = r->edges[i];
        if (count == 0)
            continue;
        is_changed = true;
        if (count == 2) {
            join(r, v, found[0], found[1]);
        } else {
            r->degrees[other_end(r, found[0], v)]--;
            remove_edge(r, found[0]);
        }
        r->degrees[v] = 0;
    }
    return is_changed;
}

/* Renumbers the vertices with edges; `marks` has the numbers. */
static void number_anew(reducer *r)
{
    flow_graph *g = r->graph;
    uint32_t count = 2;

    memset(r->marks, 0, g->vertex_count * sizeof *r->marks);
    for (size_t i = 0; i < 2 * (size_t)g->edge_count; i++) {
        const uint32_t v = g->ends[i];
        if (v == r->source || v == r->target)
            g->ends[i] = v == r->target;
        else if (r->marks[v] == 0)
            g->ends[i] = r->marks[v] = count++;
        else
            g->ends[i] = r->marks[v];
    }
    g->vertex_count = count;
}

ty_status flow_reduce(flow_graph *graph, uint32_t source, uint32_t target, ty_error *error)
{
    const size_t vertices = (size_t)graph->vertex_count + 1;
    reducer r = {
        .graph = graph,
        .source = source,
        .target = target,
        .first = ty_alloc(vertices, sizeof *r.first),
        .edges = ty_alloc(2 * (size_t)graph->edge_count + 1, sizeof *r.edges),
        .degrees = ty_alloc(vertices, sizeof *r.degrees),
        .marks = ty_alloc(vertices, sizeof *r.marks),
        .mark_edges = ty_alloc(vertices, sizeof *r.mark_edges),
        .is_stale = ty_alloc(vertices, sizeof *r.is_stale),
    };
    ty_status status = TY_OK;
    bool is_changed = true;

    TY_CHECK(ty_check_memory(r.first != NULL && r.edges != NULL && r.degrees != NULL &&
                                 r.marks != NULL && r.mark_edges != NULL && r.is_stale != NULL,
                             error),
             status, cleanup);
    while (is_changed) {
        compact(graph);
        list_edges(&r);
        is_changed = merge_parallel(&r);
        is_changed = take_small_vertices(&r) || is_changed;
    }
    number_anew(&r);
cleanup:
    ty_free(r.first);
    ty_free(r.edges);
    ty_free(r.degrees);
    ty_free(r.marks);
    ty_free(r.mark_edges);
    ty_free(r.is_stale);
    return status;
}
