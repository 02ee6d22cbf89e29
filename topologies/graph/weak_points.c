/* Single points of failure. Devices do not forward, so the search runs on the graph of hosts,
 * switches and NICs, to which devices are attached. igraph finds articulation points, but not the
 * parts they cut off. Here Tarjan's search finds the candidates. Then the parts of each are
 * traversed in parallel until only the largest is unfinished, so the work depends on the size of
 * the other parts, not of the cluster. */
#include "cluster.h"
#include "ty_topologies.h"

#include <stdlib.h>
#include <string.h>

typedef struct walk {
    const ty_cluster *cluster;
    /* Tarjan: */
    uint32_t *order, *low, *parent_link, *next_port, *stack;
    uint32_t *component; /* [vertex] of the graph without devices */
    uint32_t main;       /* the component with all devices attached */
    bool *is_cut;        /* [vertex] */
    bool *is_bridge;     /* [link] */
    /* Parts: */
    uint32_t *part;        /* [vertex] stamp of the part it was found in */
    uint32_t *queue;       /* [vertex] linked queues of all parts: next in the queue */
    uint32_t *device_seen; /* [vertex or device] stamps */
    uint32_t *own;         /* [host] its devices */
    uint32_t stamp;
    ty_weak_point *points;
    uint32_t count, room;
} walk;

static bool forwards(const ty_cluster *c, uint32_t vertex)
{
    return c->vertices[vertex].kind != TY_VERTEX_DEVICE;
}

/* ---- Candidates: Tarjan 1972, "Depth-first search and linear graph algorithms" ------------- */

static void leave(walk *w, uint32_t v, uint32_t from, bool is_root_child)
{
    if (w->low[v] < w->low[from])
        w->low[from] = w->low[v];
    if (w->low[v] >= w->order[from] && !is_root_child)
        w->is_cut[from] = true;
    if (w->low[v] > w->order[from])
        w->is_bridge[w->parent_link[v]] = true;
}

static void visit(walk *w, uint32_t v, uint32_t link, uint32_t *clock, uint32_t *depth)
{
    w->order[v] = w->low[v] = ++*clock;
    w->component[v] = *depth > 0 ? w->component[w->stack[0]] : v;
    w->parent_link[v] = link;
    w->next_port[v] = w->cluster->port_starts[v];
    w->stack[(*depth)++] = v;
}

static void search_from(walk *w, uint32_t root, uint32_t *clock)
{
    const ty_cluster *c = w->cluster;
    uint32_t depth = 0, root_children = 0;

    visit(w, root, NO_INDEX, clock, &depth);
    while (depth > 0) {
        uint32_t v = w->stack[depth - 1];
        if (w->next_port[v] < c->port_starts[v + 1]) {
            const cluster_port *port = &c->ports[w->next_port[v]++];
            if (!forwards(c, port->vertex) || port->link == w->parent_link[v])
                continue;
            if (w->order[port->vertex] == 0) {
                visit(w, port->vertex, port->link, clock, &depth);
                root_children += v == root;
            } else if (w->order[port->vertex] < w->low[v]) {
                w->low[v] = w->order[port->vertex];
            }
            continue;
        }
        depth--;
        if (depth > 0)
            leave(w, v, w->stack[depth - 1], w->stack[depth - 1] == root);
    }
    w->is_cut[root] = root_children > 1;
}

/* Finds the component with links to the most devices; ty_cluster_finish ensures that it has all. */
static void find_main(walk *w)
{
    const ty_cluster *c = w->cluster;
    uint32_t most = 0;

    for (uint32_t d = 0; d < c->device_count; d++)
        for (uint32_t p = c->port_starts[c->device_vertices[d]];
             p < c->port_starts[c->device_vertices[d] + 1]; p++) {
            uint32_t next = c->ports[p].vertex, root = w->component[next];
            if (!forwards(c, next) || w->device_seen[root] == d + 1)
                continue;
            w->device_seen[root] = d + 1;
            if (++w->queue[root] > most) {
                most = w->queue[root];
                w->main = root;
            }
        }
    memset(w->device_seen, 0, c->vertex_count * sizeof *w->device_seen);
}

static void find_candidates(walk *w)
{
    uint32_t clock = 0;

    for (uint32_t v = 0; v < w->cluster->vertex_count; v++)
        if (forwards(w->cluster, v) && w->order[v] == 0)
            search_from(w, v, &clock);
    find_main(w);
}

/* ---- Parts cut off ----------------------------------------------------------------------- */

/* A part in traversal: a queue of vertices found but not processed. */
typedef struct part {
    uint32_t stamp, head, tail; /* head: NO_INDEX when done */
    uint32_t size;              /* vertices found so far */
} part;

static void enqueue(walk *w, part *p, uint32_t vertex)
{
    w->part[vertex] = p->stamp;
    w->queue[vertex] = NO_INDEX;
    w->next_port[vertex] = w->cluster->port_starts[vertex];
    p->size++;
    if (p->head == NO_INDEX)
        p->head = vertex;
    else
        w->queue[p->tail] = vertex;
    p->tail = vertex;
}

/* Joins b into a, which are connected. Stamps stay different; `same` maps them. */
typedef struct parts {
    part *list;
    uint32_t count, first_stamp;
    uint32_t *same; /* [count] */
} parts;

static uint32_t root_of(const parts *p, uint32_t i)
{
    while (p->same[i] != i)
        i = p->same[i] = p->same[p->same[i]];
    return i;
}

static void join(walk *w, parts *p, uint32_t a, uint32_t b)
{
    part *to = &p->list[a], *from = &p->list[b];

    p->same[b] = a;
    to->size += from->size;
    if (from->head == NO_INDEX)
        return;
    if (to->head == NO_INDEX) {
        to->head = from->head;
        to->tail = from->tail;
    } else {
        w->queue[to->tail] = from->head;
        to->tail = from->tail;
    }
    from->head = NO_INDEX;
}

/* Processes one port of the current vertex of part i, so that a switch with thousands of ports does
 * not delay other parts. Its neighbor joins the queue, or the neighbor's part joins this one. */
static void step(walk *w, parts *p, uint32_t i, uint32_t gone_vertex, uint32_t gone_link)
{
    const ty_cluster *c = w->cluster;
    const uint32_t v = p->list[i].head;
    const cluster_port *port;
    uint32_t other;

    if (w->next_port[v] == c->port_starts[v + 1]) {
        p->list[i].head = w->queue[v];
        return;
    }
    port = &c->ports[w->next_port[v]++];
    if (!forwards(c, port->vertex) || port->vertex == gone_vertex || port->link == gone_link)
        return;
    if (w->part[port->vertex] < p->first_stamp) {
        enqueue(w, &p->list[i], port->vertex);
        return;
    }
    other = root_of(p, w->part[port->vertex] - p->first_stamp);
    if (other != i)
        join(w, p, i, other);
}

static uint32_t count_unfinished(const parts *p)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < p->count; i++)
        count += p->same[i] == i && p->list[i].head != NO_INDEX;
    return count;
}

static uint32_t largest(const parts *p)
{
    uint32_t best = root_of(p, 0);

    for (uint32_t i = 1; i < p->count; i++)
        if (p->same[i] == i && p->list[i].size > p->list[best].size)
            best = i;
    return best;
}

/* Grows parts in turn until at most one is unfinished, and that one until it is the largest or
 * done. Returns the largest, which stays connected. */
static uint32_t grow_parts(walk *w, parts *p, uint32_t gone_vertex, uint32_t gone_link)
{
    uint32_t best;

    while (count_unfinished(p) > 1)
        for (uint32_t i = 0; i < p->count; i++)
            if (p->same[i] == i && p->list[i].head != NO_INDEX)
                step(w, p, i, gone_vertex, gone_link);
    best = largest(p);
    for (uint32_t i = 0; i < p->count; i++)
        while (p->same[i] == i && p->list[i].head != NO_INDEX && best != i) {
            step(w, p, i, gone_vertex, gone_link);
            best = root_of(p, best);
            if (p->list[i].size > p->list[best].size ||
                (p->list[i].size == p->list[best].size && i < best))
                best = i;
        }
    return best;
}

/* Whether a device has a link to the remaining part. `gone` as in step. */
static bool is_attached(const walk *w, parts *p, uint32_t main, uint32_t vertex,
                        uint32_t gone_vertex)
{
    const ty_cluster *c = w->cluster;

    for (uint32_t port = c->port_starts[vertex]; port < c->port_starts[vertex + 1]; port++) {
        uint32_t next = c->ports[port].vertex;
        if (!forwards(c, next) || next == gone_vertex || w->component[next] != w->main)
            continue;
        if (w->part[next] < p->first_stamp || /* not visited: in the large part */
            root_of(p, w->part[next] - p->first_stamp) == main)
            return true;
    }
    return false;
}

static uint32_t count_at(walk *w, parts *p, uint32_t main, uint32_t vertex, uint32_t gone_vertex)
{
    const ty_cluster *c = w->cluster;
    uint32_t count = 0;

    for (uint32_t port = c->port_starts[vertex]; port < c->port_starts[vertex + 1]; port++) {
        uint32_t next = c->ports[port].vertex, device;
        if (forwards(c, next))
            continue;
        device = c->vertices[next].device;
        if (w->device_seen[device] == p->first_stamp)
            continue;
        w->device_seen[device] = p->first_stamp;
        count += !is_attached(w, p, main, next, gone_vertex);
    }
    return count;
}

/* Traverses the finished parts again to count the devices attached only to them. */
static uint32_t count_lost(walk *w, parts *p, uint32_t main, uint32_t gone_vertex,
                           uint32_t gone_link, const uint32_t *starts)
{
    const ty_cluster *c = w->cluster;
    uint32_t lost = gone_vertex == NO_INDEX ? 0 : count_at(w, p, main, gone_vertex, gone_vertex);
    uint32_t depth;

    for (uint32_t i = 0; i < p->count; i++) {
        uint32_t stamp = p->first_stamp + p->count; /* left */
        if (root_of(p, i) == main || w->order[starts[i]] == stamp)
            continue;
        depth = 0;
        w->stack[depth++] = starts[i];
        w->order[starts[i]] = stamp;
        while (depth > 0) {
            uint32_t v = w->stack[--depth];
            lost += count_at(w, p, main, v, gone_vertex);
            for (uint32_t port = c->port_starts[v]; port < c->port_starts[v + 1]; port++) {
                uint32_t next = c->ports[port].vertex;
                if (forwards(c, next) && next != gone_vertex && c->ports[port].link != gone_link &&
                    w->order[next] != stamp) {
                    w->order[next] = stamp;
                    w->stack[depth++] = next;
                }
            }
        }
    }
    return lost;
}

static ty_status add_point(walk *w, bool is_link, uint32_t index, uint32_t devices, ty_error *error)
{
    TY_TRY(ty_reserve(&w->points, w->count, &w->room, sizeof *w->points, error));
    w->points[w->count++] = (ty_weak_point){is_link, index, devices};
    return TY_OK;
}

/* @param starts a vertex of each part that may be cut off */
static ty_status examine(walk *w, const uint32_t *starts, uint32_t count, uint32_t gone_vertex,
                         uint32_t gone_link, uint32_t *lost, ty_error *error)
{
    parts p = {.count = count, .first_stamp = w->stamp + 1};
    ty_status status = TY_OK;

    p.list = ty_alloc(count, sizeof *p.list);
    p.same = ty_alloc(count, sizeof *p.same);
    TY_CHECK(ty_check_memory(p.list != NULL && p.same != NULL, error), status, cleanup);
    w->stamp += count + 1;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t stamp = w->part[starts[i]];
        p.same[i] = stamp < p.first_stamp ? i : stamp - p.first_stamp; /* parallel links */
        p.list[i] = (part){.stamp = p.first_stamp + i, .head = NO_INDEX, .tail = NO_INDEX};
        if (p.same[i] == i)
            enqueue(w, &p.list[i], starts[i]);
    }
    *lost = count_lost(w, &p, grow_parts(w, &p, gone_vertex, gone_link), gone_vertex, gone_link,
                       starts);
cleanup:
    ty_free(p.list);
    ty_free(p.same);
    return status;
}

/* Devices whose only link to the network is this vertex: all that is lost, unless it is an
 * articulation point. */
static uint32_t count_hangers(walk *w, uint32_t v)
{
    parts none = {.first_stamp = ++w->stamp};

    return count_at(w, &none, NO_INDEX, v, v);
}

static ty_status examine_vertex(walk *w, uint32_t v, uint32_t *starts, ty_error *error)
{
    const ty_cluster *c = w->cluster;
    uint32_t count = 0, lost = 0, own = 0;
    ty_status status = TY_OK;

    if (w->component[v] != w->main)
        return TY_OK;
    for (uint32_t port = c->port_starts[v]; port < c->port_starts[v + 1]; port++) {
        uint32_t next = c->ports[port].vertex;
        if (forwards(c, next))
            starts[count++] = next;
    }
    /* a host's own devices fail with it anyway */
    if (c->vertices[v].kind == TY_VERTEX_HOST)
        own = w->own[c->vertices[v].host];
    if (!w->is_cut[v])
        lost = count_hangers(w, v);
    else
        TY_TRY(examine(w, starts, count, v, NO_INDEX, &lost, error));
    if (lost > own)
        status = add_point(w, false, v, lost, error);
    return status;
}

static ty_status examine_link(walk *w, uint32_t link, ty_error *error)
{
    uint32_t starts[2] = {w->cluster->links[link].from, w->cluster->links[link].to}, lost = 0;
    ty_status status = TY_OK;

    if (w->component[starts[0]] == w->main)
        status = examine(w, starts, 2, NO_INDEX, link, &lost, error);
    return status == TY_OK && lost > 0 ? add_point(w, true, link, lost, error) : status;
}

/* A device with one link to the network: that link is a weak point for one device. */
static ty_status examine_device(walk *w, uint32_t device, ty_error *error)
{
    const ty_cluster *c = w->cluster;
    uint32_t v = c->device_vertices[device], links = 0, last = NO_INDEX;

    for (uint32_t p = c->port_starts[v]; p < c->port_starts[v + 1]; p++)
        if (forwards(c, c->ports[p].vertex) && w->component[c->ports[p].vertex] == w->main) {
            links++;
            last = c->ports[p].link;
        }
    return links == 1 ? add_point(w, true, last, 1, error) : TY_OK;
}

static int compare_points(const void *a, const void *b)
{
    const ty_weak_point *x = a, *y = b;
    if (x->devices != y->devices)
        return x->devices > y->devices ? -1 : 1;
    if (x->is_link != y->is_link)
        return x->is_link ? 1 : -1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static bool make_room(walk *w)
{
    size_t vertices = w->cluster->vertex_count;

    w->order = ty_alloc(9 * vertices, sizeof *w->order);
    w->is_cut = ty_alloc(vertices, sizeof *w->is_cut);
    w->own = ty_alloc(w->cluster->host_count, sizeof *w->own);
    w->is_bridge = ty_alloc(w->cluster->link_count, sizeof *w->is_bridge);
    if (w->order == NULL)
        return false;
    w->low = w->order + vertices;
    w->parent_link = w->low + vertices;
    w->next_port = w->parent_link + vertices;
    w->stack = w->next_port + vertices;
    w->part = w->stack + vertices;
    w->queue = w->part + vertices;
    w->component = w->queue + vertices;
    w->device_seen = w->component + vertices;
    return w->is_cut != NULL && w->is_bridge != NULL && w->own != NULL;
}

ty_status ty_cluster_weak_points(const ty_cluster *cluster, ty_weak_point **points, uint32_t *count,
                                 ty_error *error)
{
    walk w = {.cluster = cluster};
    uint32_t *starts = ty_alloc(2 * (size_t)cluster->link_count + 1, sizeof *starts);
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(starts != NULL && make_room(&w), error), status, cleanup);
    find_candidates(&w);
    for (uint32_t d = 0; d < cluster->device_count; d++)
        w.own[ty_cluster_device_host(cluster, d)]++;
    memset(w.order, 0, cluster->vertex_count * sizeof *w.order); /* stamps from here on */
    for (uint32_t v = 0; v < cluster->vertex_count && cluster->device_count > 1; v++)
        if (forwards(cluster, v))
            TY_CHECK(examine_vertex(&w, v, starts, error), status, cleanup);
    for (uint32_t i = 0; i < cluster->link_count && cluster->device_count > 1; i++)
        if (w.is_bridge[i])
            TY_CHECK(examine_link(&w, i, error), status, cleanup);
    for (uint32_t d = 0; d < cluster->device_count && cluster->device_count > 1; d++)
        TY_CHECK(examine_device(&w, d, error), status, cleanup);
    if (w.count > 0)
        qsort(w.points, w.count, sizeof *w.points, compare_points);
    if (w.points == NULL)
        w.points = ty_alloc(1, sizeof *w.points);
    TY_CHECK(ty_check_memory(w.points != NULL, error), status, cleanup);
    *points = w.points;
    *count = w.count;
    w.points = NULL; /* ownership moved */
cleanup:
    ty_free(starts);
    ty_free(w.order);
    ty_free(w.own);
    ty_free(w.is_cut);
    ty_free(w.is_bridge);
    ty_free(w.points);
    return status;
}
