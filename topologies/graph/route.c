/* Dijkstra's algorithm with labels (latency, bandwidth), compared in that order. A label never
 * improves along a path (latency grows, bandwidth shrinks), so the first one taken from the heap is
 * final. igraph has no "shortest, then widest" search, and its searches visit every vertex of the
 * cluster. The tests compare this one with a brute-force search. */
#include "route.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

router router_on(const ty_cluster *cluster)
{
    return (router){.cluster = cluster};
}

void router_clear(router *r)
{
    ty_free(r->labels);
    ty_free(r->heap);
    ty_free(r->links);
    ty_free(r->parts);
    ty_free(r->part_links);
    ty_free(r->gates);
    *r = (router){0};
}

/* ---- Labels: open addressing ------------------------------------------------------------- */

static route_label *slot_of(route_label *labels, uint32_t room, uint32_t vertex)
{
    uint32_t slot = (vertex * 2654435769u) & (room - 1); /* Knuth's multiplicative hash */

    while (labels[slot].vertex != 0 && labels[slot].vertex != vertex + 1)
        slot = (slot + 1) & (room - 1);
    return &labels[slot];
}

/* The label of a vertex, new ones with vertex == 0; valid until the next call. */
static route_label *label_of(router *r, uint32_t vertex)
{
    if (2 * r->label_count >= r->label_room) {
        uint32_t room = r->label_room == 0 ? 64 : 2 * r->label_room;
        route_label *labels = ty_alloc(room, sizeof *labels);
        if (labels == NULL)
            return NULL;
        for (uint32_t i = 0; i < r->label_room; i++)
            if (r->labels[i].vertex != 0)
                *slot_of(labels, room, r->labels[i].vertex - 1) = r->labels[i];
        ty_free(r->labels);
        r->labels = labels;
        r->label_room = room;
    }
    return slot_of(r->labels, r->label_room, vertex);
}

static bool improves(uint64_t latency_ps, double bandwidth, uint32_t link, const route_label *old)
{
    if (latency_ps != old->latency_ps)
        return latency_ps < old->latency_ps;
    if (bandwidth > old->bandwidth_bytes_per_s || bandwidth < old->bandwidth_bytes_per_s)
        return bandwidth > old->bandwidth_bytes_per_s;
    return link < old->link;
}

/* ---- Heap -------------------------------------------------------------------------------- */

static bool precedes(const route_candidate *a, const route_candidate *b)
{
    if (a->latency_ps != b->latency_ps)
        return a->latency_ps < b->latency_ps;
    if (a->bandwidth_bytes_per_s > b->bandwidth_bytes_per_s ||
        a->bandwidth_bytes_per_s < b->bandwidth_bytes_per_s)
        return a->bandwidth_bytes_per_s > b->bandwidth_bytes_per_s;
    return a->vertex < b->vertex;
}

static bool push(router *r, route_candidate candidate)
{
    uint32_t i = r->heap_count;

    if (ty_reserve(&r->heap, r->heap_count, &r->heap_room, sizeof *r->heap, NULL) != TY_OK)
        return false;
    r->heap_count++;
    for (; i > 0 && precedes(&candidate, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap[i] = r->heap[(i - 1) / 2];
    r->heap[i] = candidate;
    return true;
}

static route_candidate pop(router *r)
{
    route_candidate first = r->heap[0], last = r->heap[--r->heap_count];
    uint32_t i = 0, child;

    while ((child = 2 * i + 1) < r->heap_count) {
        if (child + 1 < r->heap_count && precedes(&r->heap[child + 1], &r->heap[child]))
            child++;
        if (!precedes(&r->heap[child], &last))
            break;
        r->heap[i] = r->heap[child];
        i = child;
    }
    r->heap[i] = last;
    return first;
}

/* ---- Search ------------------------------------------------------------------------------ */

/* Vertices of a search: its ends, network switches, and the islands of its ends. */
typedef struct bounds {
    uint32_t from, to;
    bool stays_home; /* other islands do not forward */
} bounds;

static bool may_enter(const ty_cluster *cluster, const bounds *b, uint32_t vertex)
{
    const cluster_vertex *v = &cluster->vertices[vertex];

    if (vertex == b->to)
        return true;
    if (v->kind == TY_VERTEX_DEVICE)
        return false;
    return !b->stays_home || v->island == NO_INDEX ||
           v->island == cluster->vertices[b->from].island ||
           v->island == cluster->vertices[b->to].island;
}

static bool offer(router *r, const route_label *at, const cluster_port *port)
{
    const ty_link_edge *link = &r->cluster->links[port->link];
    uint64_t latency_ps = at->latency_ps + (uint64_t)llround(link->latency_s * 1e12);
    double bandwidth = fmin(at->bandwidth_bytes_per_s, link->bandwidth_bytes_per_s);
    uint32_t previous = at->vertex - 1;
    route_label *label = label_of(r, port->vertex); /* `at` may be invalid from here on */

    if (label == NULL)
        return false;
    if (label->vertex == 0)
        r->label_count++;
    else if (label->is_settled || !improves(latency_ps, bandwidth, port->link, label))
        return true;
    *label = (route_label){.vertex = port->vertex + 1,
                           .link = port->link,
                           .previous = previous,
                           .latency_ps = latency_ps,
                           .bandwidth_bytes_per_s = bandwidth};
    return push(r, (route_candidate){latency_ps, bandwidth, port->vertex});
}

static bool start(router *r, uint32_t from)
{
    route_label *label;

    for (uint32_t i = 0; i < r->label_room; i++)
        r->labels[i].vertex = 0;
    r->label_count = 0;
    r->heap_count = 0;
    if ((label = label_of(r, from)) == NULL)
        return false;
    *label = (route_label){.vertex = from + 1,
                           .link = NO_INDEX,
                           .previous = NO_INDEX,
                           .bandwidth_bytes_per_s = HUGE_VAL};
    r->label_count++;
    return push(r, (route_candidate){0, HUGE_VAL, from});
}

/* Labels everything nearer than `to`, or, if that is `from`, everything reachable; `is_found`:
 * whether `to` is reachable. */
static ty_status spread(router *r, const bounds *b, bool *is_found, ty_error *error)
{
    const ty_cluster *cluster = r->cluster;

    *is_found = false;
    TY_TRY(ty_check_memory(start(r, b->from), error));
    while (r->heap_count > 0) {
        uint32_t vertex = pop(r).vertex;
        route_label *label = slot_of(r->labels, r->label_room, vertex), at;
        if (label->is_settled)
            continue;
        label->is_settled = true;
        if (vertex == b->to && b->to != b->from) {
            *is_found = true;
            return TY_OK;
        }
        at = *label;
        for (uint32_t p = cluster->port_starts[vertex]; p < cluster->port_starts[vertex + 1]; p++)
            if (may_enter(cluster, b, cluster->ports[p].vertex) &&
                !offer(r, &at, &cluster->ports[p]))
                return ty_check_memory(false, error);
    }
    return TY_OK;
}

static void reverse(uint32_t *links, uint32_t count)
{
    for (uint32_t i = 0; i < count / 2; i++) {
        uint32_t link = links[i];
        links[i] = links[count - 1 - i];
        links[count - 1 - i] = link;
    }
}

static ty_status reserve_links(router *r, uint32_t more, ty_error *error)
{
    uint32_t room = r->link_room == 0 ? 16 : r->link_room;
    uint32_t *links;

    while (room < r->link_count + more)
        room *= 2;
    if (room == r->link_room)
        return TY_OK;
    links = ty_resize(r->links, room, sizeof *links);
    TY_TRY(ty_check_memory(links != NULL, error));
    r->links = links;
    r->link_room = room;
    return TY_OK;
}

/* Appends the links from `to` back to the start of the search. */
static ty_status trace(router *r, uint32_t to, ty_error *error)
{
    uint32_t vertex = to;

    for (;;) {
        const route_label *label = slot_of(r->labels, r->label_room, vertex);
        if (label->link == NO_INDEX)
            return TY_OK;
        TY_TRY(reserve_links(r, 1, error));
        r->links[r->link_count++] = label->link;
        vertex = label->previous;
    }
}

/* Appends the best path between two vertices, in order from the first. */
static ty_status append(router *r, uint32_t from, uint32_t to, bool stays_home, bool *is_found,
                        ty_error *error)
{
    bounds b = {from, to, stays_home};
    uint32_t first = r->link_count;
    ty_status status = spread(r, &b, is_found, error);

    if (status != TY_OK || !*is_found)
        return status;
    status = trace(r, to, error);
    if (status == TY_OK)
        reverse(r->links + first, r->link_count - first);
    return status;
}

/* ---- Parts that routes share ---------------------------------------------------------------- */

static route_part *part_slot_of(route_part *parts, uint32_t room, uint32_t from, uint32_t to)
{
    uint32_t slot = ((from * 2654435769u) ^ (to * 2246822519u)) & (room - 1);

    while (parts[slot].from != 0 && (parts[slot].from != from + 1 || parts[slot].to != to))
        slot = (slot + 1) & (room - 1);
    return &parts[slot];
}

/* Makes room for another part with that many links; keeps half of the slots empty. */
static bool reserve_part(router *r, uint32_t links)
{
    if (2 * (r->part_count + 1) > r->part_room) {
        const uint32_t room = r->part_room == 0 ? 64 : 2 * r->part_room;
        route_part *parts = ty_alloc(room, sizeof *parts);
        if (parts == NULL)
            return false;
        for (uint32_t i = 0; i < r->part_room; i++)
            if (r->parts[i].from != 0)
                *part_slot_of(parts, room, r->parts[i].from - 1, r->parts[i].to) = r->parts[i];
        ty_free(r->parts);
        r->parts = parts;
        r->part_room = room;
    }
    if (r->part_link_count + links > r->part_link_room) {
        const uint32_t room = 2 * r->part_link_room + links + 64;
        uint32_t *grown = ty_resize(r->part_links, room, sizeof *grown);
        if (grown == NULL)
            return false;
        r->part_links = grown;
        r->part_link_room = room;
    }
    return true;
}

/* Stores the links from `first` on as the path between two vertices. */
static bool remember(router *r, uint32_t from, uint32_t to, uint32_t first)
{
    const uint32_t count = r->link_count - first;

    if (!reserve_part(r, count))
        return false;
    *part_slot_of(r->parts, r->part_room, from, to) =
        (route_part){from + 1, to, r->part_link_count, count};
    memcpy(r->part_links + r->part_link_count, r->links + first, count * sizeof *r->links);
    r->part_link_count += count;
    r->part_count++;
    return true;
}

/* As append, for common parts of routes. */
static ty_status append_part(router *r, uint32_t from, uint32_t to, bool *is_found, ty_error *error)
{
    const uint32_t first = r->link_count;
    const route_part *known =
        r->part_room == 0 ? NULL : part_slot_of(r->parts, r->part_room, from, to);

    if (known != NULL && known->from != 0) {
        *is_found = true;
        TY_TRY(reserve_links(r, known->count, error));
        memcpy(r->links + first, r->part_links + known->first, known->count * sizeof *r->links);
        r->link_count += known->count;
        return TY_OK;
    }
    TY_TRY(append(r, from, to, true, is_found, error));
    return ty_check_memory(!*is_found || !r->is_asked_again || remember(r, from, to, first), error);
}

/* Up to this number of gates, one search finds the paths from a gate to all others: it visits all
 * switches with their ports, and all paths take some megabytes. */
#define MOST_GATES 1024

static int compare_gates(const void *left, const void *right)
{
    const uint32_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

static ty_status find_gates(router *r, ty_error *error)
{
    const ty_cluster *cluster = r->cluster;
    uint32_t *gates = ty_alloc(cluster->island_count, sizeof *gates), count = 0, kept = 0;

    TY_TRY(ty_check_memory(gates != NULL, error));
    for (uint32_t i = 0; i < cluster->island_count; i++)
        if (cluster->island_gates[i] != NO_INDEX)
            gates[count++] = cluster->island_gates[i];
    qsort(gates, count, sizeof *gates, compare_gates);
    for (uint32_t i = 0; i < count; i++)
        if (i == 0 || gates[i] != gates[kept - 1])
            gates[kept++] = gates[i];
    r->gates = gates;
    r->gate_count = kept;
    return TY_OK;
}

/* Stores the paths from a gate to all later ones in the list. */
static ty_status find_all_from(router *r, uint32_t from, ty_error *error)
{
    const bounds b = {from, from, true}; /* no target: labels everything */
    const uint32_t first = r->link_count;
    bool ignored;
    ty_status status = spread(r, &b, &ignored, error);

    for (uint32_t g = 0; g < r->gate_count && status == TY_OK; g++) {
        const uint32_t to = r->gates[g];
        if (to <= from || slot_of(r->labels, r->label_room, to)->vertex == 0)
            continue;
        TY_TRY(trace(r, to, error));
        reverse(r->links + first, r->link_count - first);
        TY_TRY(ty_check_memory(remember(r, from, to, first), error));
        r->link_count = first;
    }
    return status;
}

static uint32_t above(const ty_cluster *cluster, uint32_t vertex)
{
    const ty_link_edge *link = &cluster->links[cluster->root_links[vertex]];
    return link->from == vertex ? link->to : link->from;
}

/* The only path in a tree: up from both ends to their common ancestor. */
static ty_status append_in_tree(router *r, uint32_t from, uint32_t to, bool *is_found,
                                ty_error *error)
{
    const ty_cluster *cluster = r->cluster;
    const uint32_t *links = cluster->root_links, *distances = cluster->root_distances;
    const uint32_t first = r->link_count;
    uint32_t a = from, b = to, down = 0;

    TY_TRY(reserve_links(r, distances[from] + distances[to], error));
    while (a != b) {
        const bool is_up = distances[a] >= distances[b];
        const uint32_t link = is_up ? links[a] : links[b];
        if (link == NO_INDEX) { /* another tree */
            r->link_count = first;
            *is_found = false;
            return TY_OK;
        }
        /* Inserts it before the links down to `to`. */
        memmove(r->links + r->link_count - down + 1, r->links + r->link_count - down,
                down * sizeof *r->links);
        r->links[r->link_count++ - down] = link;
        if (is_up) {
            a = above(cluster, a);
        } else {
            down++;
            b = above(cluster, b);
        }
    }
    *is_found = true;
    return TY_OK;
}

/* From one gate to a later one in the list. */
static ty_status append_between_gates(router *r, uint32_t from, uint32_t to, bool *is_found,
                                      ty_error *error)
{
    if (r->cluster->root_links != NULL)
        return append_in_tree(r, from, to, is_found, error);
    if (r->is_kept && r->is_asked_again && r->gates == NULL)
        TY_TRY(find_gates(r, error));
    if (r->gates != NULL && r->gate_count <= MOST_GATES &&
        (r->part_room == 0 || part_slot_of(r->parts, r->part_room, from, to)->from == 0))
        TY_TRY(find_all_from(r, from, error));
    return append_part(r, from, to, is_found, error);
}

/* Between islands with one network switch each, a route goes up to one switch, from there to the
 * other, and down. The part up depends only on the device. */
static ty_status append_by_gates(router *r, uint32_t from, uint32_t to, bool *is_found,
                                 ty_error *error)
{
    const ty_cluster *cluster = r->cluster;
    const cluster_vertex *vertices = cluster->vertices;
    uint32_t up = cluster->island_gates[vertices[from].island];
    uint32_t down = cluster->island_gates[vertices[to].island];
    uint32_t first;

    TY_TRY(append_part(r, from, up, is_found, error));
    if (*is_found && up < down)
        TY_TRY(append_between_gates(r, up, down, is_found, error));
    if (*is_found && up > down) {
        first = r->link_count;
        TY_TRY(append_between_gates(r, down, up, is_found, error));
        reverse(r->links + first, r->link_count - first);
    }
    if (*is_found) {
        first = r->link_count;
        TY_TRY(append_part(r, to, down, is_found, error));
        reverse(r->links + first, r->link_count - first);
    }
    r->is_asked_again = true;
    return TY_OK;
}

static void sum_up(router *r)
{
    r->latency_s = 0;
    r->bandwidth_bytes_per_s = HUGE_VAL;
    for (uint32_t i = 0; i < r->link_count; i++) {
        const ty_link_edge *link = &r->cluster->links[r->links[i]];
        r->latency_s += link->latency_s;
        r->bandwidth_bytes_per_s = fmin(r->bandwidth_bytes_per_s, link->bandwidth_bytes_per_s);
    }
}

ty_status router_find(router *r, uint32_t from_device, uint32_t to_device, ty_error *error)
{
    const ty_cluster *cluster = r->cluster;
    uint32_t low = from_device < to_device ? from_device : to_device;
    uint32_t high = from_device < to_device ? to_device : from_device;
    uint32_t from, to, from_island, to_island;
    bool is_found = true;

    if (high >= cluster->device_count)
        return ty_fail(error, TY_EINVAL, "cluster %s: found device %u, expected one below %u",
                       cluster->name, high, cluster->device_count);
    r->link_count = 0;
    from = cluster->device_vertices[low];
    to = cluster->device_vertices[high];
    from_island = cluster->vertices[from].island;
    to_island = cluster->vertices[to].island;
    if (from_island != to_island && cluster->island_gates[from_island] != NO_INDEX &&
        cluster->island_gates[to_island] != NO_INDEX)
        TY_TRY(append_by_gates(r, from, to, &is_found, error));
    else if (low != high)
        TY_TRY(append(r, from, to, true, &is_found, error));
    if (!is_found) {
        r->link_count = 0;
        TY_TRY(append(r, from, to, false, &is_found, error));
    }
    sum_up(r);
    if (from_device > to_device)
        reverse(r->links, r->link_count);
    return TY_OK;
}
