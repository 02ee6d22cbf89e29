/* Widest paths. The widest bottleneck is found by a search that always goes on over the widest way
 * so far; among the links at least as wide, a second search finds the least latency. */
#include "cluster.h"
#include "ty_topologies.h"

#include <math.h>

typedef struct widest {
    const ty_cluster *cluster;
    double *best;      /* [vertex]: bandwidth in the first search, minus latency in the second */
    uint32_t *through; /* [vertex] link that leads to it */
    uint32_t *heap, *places; /* places: [vertex] index in the heap, NO_INDEX */
    bool *is_done;
    uint32_t heap_count;
} widest;

static bool precedes(const widest *w, uint32_t a, uint32_t b)
{
    if (w->best[a] > w->best[b] || w->best[a] < w->best[b])
        return w->best[a] > w->best[b];
    return a < b;
}

static void put(widest *w, uint32_t place, uint32_t vertex)
{
    w->heap[place] = vertex;
    w->places[vertex] = place;
}

static void rise(widest *w, uint32_t vertex)
{
    uint32_t i = w->places[vertex];

    for (; i > 0 && precedes(w, vertex, w->heap[(i - 1) / 2]); i = (i - 1) / 2)
        put(w, i, w->heap[(i - 1) / 2]);
    put(w, i, vertex);
}

static uint32_t take(widest *w)
{
    uint32_t first = w->heap[0], last = w->heap[--w->heap_count], i = 0, child;

    while ((child = 2 * i + 1) < w->heap_count) {
        if (child + 1 < w->heap_count && precedes(w, w->heap[child + 1], w->heap[child]))
            child++;
        if (!precedes(w, w->heap[child], last))
            break;
        put(w, i, w->heap[child]);
        i = child;
    }
    if (w->heap_count > 0)
        put(w, i, last);
    return first;
}

static void offer(widest *w, uint32_t vertex, uint32_t link, double value)
{
    if (w->is_done[vertex] || (w->places[vertex] != NO_INDEX && value <= w->best[vertex]))
        return;
    w->best[vertex] = value;
    w->through[vertex] = link;
    if (w->places[vertex] == NO_INDEX)
        put(w, w->heap_count++, vertex);
    rise(w, vertex);
}

/* @param least narrower links are left out; HUGE_VAL: the first search, by bandwidth */
static void search(widest *w, uint32_t from, uint32_t to, bool is_by_width, double least)
{
    const ty_cluster *c = w->cluster;

    for (uint32_t v = 0; v < c->vertex_count; v++) {
        w->places[v] = w->through[v] = NO_INDEX;
        w->is_done[v] = false;
    }
    w->heap_count = 0;
    offer(w, from, NO_INDEX, is_by_width ? HUGE_VAL : 0);
    while (w->heap_count > 0) {
        uint32_t at = take(w);
        w->is_done[at] = true;
        if (at == to)
            return;
        for (uint32_t p = c->port_starts[at]; p < c->port_starts[at + 1]; p++) {
            const cluster_port *port = &c->ports[p];
            const ty_link_edge *link = &c->links[port->link];
            bool is_passable =
                port->vertex == to || c->vertices[port->vertex].kind != TY_VERTEX_DEVICE;
            if (is_passable && (is_by_width || link->bandwidth_bytes_per_s >= least))
                offer(w, port->vertex, port->link,
                      is_by_width ? fmin(w->best[at], link->bandwidth_bytes_per_s)
                                  : w->best[at] - link->latency_s);
        }
    }
}

static uint32_t other_end(const ty_link_edge *link, uint32_t vertex)
{
    return link->from == vertex ? link->to : link->from;
}

static ty_status trace(const widest *w, uint32_t from, uint32_t to, ty_path *out, ty_error *error)
{
    const ty_cluster *c = w->cluster;
    uint32_t count = 0, *links;

    for (uint32_t v = to; v != from; v = other_end(&c->links[w->through[v]], v))
        count++;
    if ((links = ty_alloc(count, sizeof *links)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a path");
    *out = (ty_path){.link_count = count, .links = links, .bandwidth_bytes_per_s = HUGE_VAL};
    for (uint32_t v = to; v != from; v = other_end(&c->links[w->through[v]], v)) {
        const ty_link_edge *link = &c->links[w->through[v]];
        links[--count] = w->through[v];
        out->bandwidth_bytes_per_s = fmin(out->bandwidth_bytes_per_s, link->bandwidth_bytes_per_s);
        out->latency_s += link->latency_s;
    }
    return TY_OK;
}

ty_status ty_cluster_widest_path(const ty_cluster *cluster, uint32_t from_device,
                                 uint32_t to_device, ty_path *out, ty_error *error)
{
    size_t count = cluster->vertex_count;
    widest w = {.cluster = cluster};
    uint32_t from, to;
    ty_status status;

    if (from_device >= cluster->device_count || to_device >= cluster->device_count)
        return ty_fail(error, TY_EINVAL, "cluster %s: found device %u, expected one below %u",
                       cluster->name, from_device > to_device ? from_device : to_device,
                       cluster->device_count);
    from = cluster->device_vertices[from_device];
    to = cluster->device_vertices[to_device];
    w.best = ty_alloc(count, sizeof *w.best);
    w.through = ty_alloc(3 * count, sizeof *w.through);
    w.is_done = ty_alloc(count, sizeof *w.is_done);
    if (w.best == NULL || w.through == NULL || w.is_done == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a path");
        goto cleanup;
    }
    w.heap = w.through + count;
    w.places = w.heap + count;
    search(&w, from, to, true, 0);
    search(&w, from, to, false, w.best[to]);
    status = trace(&w, from, to, out, error);
cleanup:
    ty_free(w.best);
    ty_free(w.through);
    ty_free(w.is_done);
    return status;
}
