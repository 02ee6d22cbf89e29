/* The cluster with the load of its links, and the traffic matrix. Large clusters are drawn by
 * groups: devices and NICs join their host, then hosts join their first switch. */
#include "html.h"
#include "ty_simulate.h"

#include <math.h>
#include <stdlib.h>

#define MOST_DRAWN 80       /* vertices drawn individually */
#define MOST_DRAWN_HOSTS 40 /* hosts drawn individually */
#define MOST_OPEN_GROUPS 8  /* groups of hosts drawn with their contents */
#define MOST_BUSY_LINKS 20
#define MOST_MATRIX 32     /* devices in the matrix; above, hosts, or blocks of devices */
#define MOST_DEVICES 16384 /* above, counting every route takes too long for a page */

typedef struct network {
    const ty_cluster *cluster;
    double *link_bytes;  /* [links][2]: bytes per step, in the direction of the link, and back */
    ty_traffic *traffic; /* bytes between devices */
    uint32_t traffic_count;
    double step_time_s;
    uint32_t vertex_count;
    uint32_t *group;    /* [vertices]: the vertex that represents it */
    uint32_t *level;    /* [vertices]: height in the picture */
    uint32_t *distance; /* [vertices]: links to the nearest host */
    uint32_t *members;  /* [vertices]: vertices that it represents */
    uint32_t *node;     /* [vertices]: index among the drawn ones */
} network;

static void network_clear(network *n)
{
    ty_free(n->link_bytes);
    ty_free(n->traffic);
    ty_free(n->group);
    ty_free(n->level);
    ty_free(n->distance);
    ty_free(n->members);
    ty_free(n->node);
}

/* Counts bytes per step over links, and from device to device. */
static ty_status traffic_find(const ty_report_input *in, network *n, ty_error *error)
{
    ty_link_load *loads = NULL;
    uint32_t count = 0;
    ty_status status = TY_OK;

    n->link_bytes = ty_alloc(2 * (size_t)ty_cluster_link_count(in->cluster), sizeof *n->link_bytes);
    TY_TRY(ty_check_memory(n->link_bytes != NULL, error));
    TY_CHECK(ty_link_loads(in->plan, in->program, in->costs, in->cluster, &loads, &count, error),
             status, done);
    for (uint32_t i = 0; i < count; i++)
        n->link_bytes[2 * (size_t)loads[i].link + loads[i].is_backward] = loads[i].bytes;
    status = ty_traffic_matrix(in->plan, in->program, in->costs, in->cluster, TY_BETWEEN_DEVICES,
                               &n->traffic, &n->traffic_count, error);
done:
    ty_free(loads);
    return status;
}

static ty_status network_new(const ty_report_input *in, double step_time_s, network *n,
                             ty_error *error)
{
    const uint32_t count = ty_cluster_vertex_count(in->cluster);

    *n = (network){.cluster = in->cluster, .step_time_s = step_time_s, .vertex_count = count};
    n->group = ty_alloc(count, sizeof *n->group);
    n->level = ty_alloc(count, sizeof *n->level);
    n->distance = ty_alloc(count, sizeof *n->distance);
    n->members = ty_alloc(count, sizeof *n->members);
    n->node = ty_alloc(count, sizeof *n->node);
    TY_TRY(ty_check_memory(n->group != NULL && n->level != NULL && n->distance != NULL &&
                               n->members != NULL && n->node != NULL,
                           error));
    return traffic_find(in, n, error);
}

/* Utilization of a link in a step, in the busier direction. */
static double load_of(const network *n, uint32_t link)
{
    const double bytes = fmax(n->link_bytes[2 * (size_t)link], n->link_bytes[2 * (size_t)link + 1]);
    return bytes / (ty_cluster_link(n->cluster, link)->bandwidth_bytes_per_s * n->step_time_s);
}

/* ---- Grouping ------------------------------------------------------------------------------ */

static bool is_inside(ty_vertex_kind kind)
{
    return kind == TY_VERTEX_DEVICE || kind == TY_VERTEX_DEVICE_SWITCH || kind == TY_VERTEX_NIC;
}

/* Finds distances from hosts and, for vertices inside hosts, the nearest host. Relaxes until
 * nothing changes: a fabric is a few links deep. */
static void measure(network *n, uint32_t *host)
{
    bool is_changing = true;

    for (uint32_t v = 0; v < n->vertex_count; v++) {
        const bool is_host = ty_cluster_vertex_kind(n->cluster, v) == TY_VERTEX_HOST;
        n->distance[v] = is_host ? 0 : UINT32_MAX - 1;
        host[v] = v;
    }
    while (is_changing) {
        is_changing = false;
        for (uint32_t l = 0; l < ty_cluster_link_count(n->cluster); l++) {
            const ty_link_edge *link = ty_cluster_link(n->cluster, l);
            for (int way = 0; way < 2; way++) {
                const uint32_t from = way == 0 ? link->from : link->to;
                const uint32_t to = way == 0 ? link->to : link->from;
                if (n->distance[from] + 1 >= n->distance[to])
                    continue;
                n->distance[to] = n->distance[from] + 1;
                if (is_inside(ty_cluster_vertex_kind(n->cluster, to)))
                    host[to] = host[from];
                is_changing = true;
            }
        }
    }
}

static void set_levels(network *n)
{
    static const uint32_t levels[TY_VERTEX_KIND_COUNT] = {
        [TY_VERTEX_DEVICE] = 0, [TY_VERTEX_DEVICE_SWITCH] = 1, [TY_VERTEX_HOST] = 2,
        [TY_VERTEX_NIC] = 3,    [TY_VERTEX_SWITCH] = 3,
    };

    for (uint32_t v = 0; v < n->vertex_count; v++) {
        const ty_vertex_kind kind = ty_cluster_vertex_kind(n->cluster, v);
        n->level[v] = levels[kind];
        if (kind == TY_VERTEX_SWITCH && n->distance[v] < 64)
            n->level[v] += n->distance[v];
    }
}

/* Groups hosts by their first switch; its first host represents them. */
static void group_hosts(network *n, uint32_t *first_host)
{
    for (uint32_t v = 0; v < n->vertex_count; v++)
        first_host[v] = UINT32_MAX;
    for (uint32_t l = 0; l < ty_cluster_link_count(n->cluster); l++) {
        const ty_link_edge *link = ty_cluster_link(n->cluster, l);
        for (int way = 0; way < 2; way++) {
            const uint32_t inside = way == 0 ? link->from : link->to;
            const uint32_t other = way == 0 ? link->to : link->from;
            const uint32_t own = n->group[inside];
            if (ty_cluster_vertex_kind(n->cluster, other) != TY_VERTEX_SWITCH ||
                ty_cluster_vertex_kind(n->cluster, own) != TY_VERTEX_HOST)
                continue;
            if (first_host[other] == UINT32_MAX)
                first_host[other] = own;
            if (first_host[other] < own && n->group[own] == own)
                n->group[own] = first_host[other];
        }
    }
}

static uint32_t root_of(const network *n, uint32_t vertex)
{
    while (n->group[vertex] != vertex)
        vertex = n->group[vertex];
    return vertex;
}

/* Draws the contents of a group of hosts as one vertex per kind, the first; `host` is that of each
 * vertex. Only if groups are few. */
static void open_groups(network *n, const uint32_t *host)
{
    uint32_t groups = 0;

    for (uint32_t v = 0; v < n->vertex_count; v++)
        groups += ty_cluster_vertex_kind(n->cluster, v) == TY_VERTEX_HOST && root_of(n, v) == v;
    if (groups > MOST_OPEN_GROUPS)
        return;
    for (uint32_t v = 0; v < n->vertex_count; v++)
        n->members[v] = UINT32_MAX; /* first of each kind of the group's host */
    for (ty_vertex_kind kind = 0; kind < TY_VERTEX_KIND_COUNT; kind++) {
        if (!is_inside(kind))
            continue;
        for (uint32_t v = 0; v < n->vertex_count; v++) {
            const uint32_t own = root_of(n, host[v]);
            if (ty_cluster_vertex_kind(n->cluster, v) != kind ||
                ty_cluster_vertex_kind(n->cluster, own) != TY_VERTEX_HOST)
                continue;
            if (n->members[own] == UINT32_MAX)
                n->members[own] = v;
            n->group[v] = n->members[own];
        }
        for (uint32_t v = 0; v < n->vertex_count; v++)
            n->members[v] = UINT32_MAX;
    }
    for (uint32_t v = 0; v < n->vertex_count; v++)
        n->members[v] = 0;
}

static ty_status group(network *n, ty_error *error)
{
    const bool is_whole = n->vertex_count <= MOST_DRAWN;
    const bool is_grouped = !is_whole && ty_cluster_host_count(n->cluster) > MOST_DRAWN_HOSTS;
    uint32_t *host = ty_alloc(n->vertex_count, sizeof *host);
    uint32_t *scratch = ty_alloc(n->vertex_count, sizeof *scratch);

    if (host == NULL || scratch == NULL) {
        ty_free(host);
        ty_free(scratch);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    measure(n, host);
    set_levels(n);
    for (uint32_t v = 0; v < n->vertex_count; v++)
        n->group[v] = is_whole ? v : host[v];
    if (is_grouped) {
        group_hosts(n, scratch);
        open_groups(n, host);
    }
    for (uint32_t v = 0; v < n->vertex_count; v++) {
        const uint32_t drawn = root_of(n, v);
        n->group[v] = drawn;
        /* Devices and NICs do not count as members of their host. */
        n->members[drawn] +=
            ty_cluster_vertex_kind(n->cluster, v) == ty_cluster_vertex_kind(n->cluster, drawn);
    }
    ty_free(host);
    ty_free(scratch);
    return TY_OK;
}

/* ---- The drawing --------------------------------------------------------------------------- */

/* [name of the first member, kind, level, members] */
static void put_nodes(network *n, ty_json_writer *w)
{
    uint32_t count = 0;

    ty_json_open(w, "nodes", '[');
    for (uint32_t v = 0; v < n->vertex_count; v++) {
        if (n->group[v] != v)
            continue;
        n->node[v] = count++;
        ty_report_put_row(w, "ssuu", ty_cluster_vertex_name(n->cluster, v),
                          ty_vertex_kind_name(ty_cluster_vertex_kind(n->cluster, v)), n->level[v],
                          n->members[v]);
    }
    ty_json_close(w, ']');
}

typedef struct drawn_link {
    uint32_t from, to; /* drawn vertices, from < to */
    uint32_t link;     /* the busiest of them */
    double load, bytes;
    uint32_t count;
} drawn_link;

static int by_ends(const void *left, const void *right)
{
    const drawn_link *a = left, *b = right;
    if (a->from != b->from)
        return a->from < b->from ? -1 : 1;
    if (a->to != b->to)
        return a->to < b->to ? -1 : 1;
    return (a->link > b->link) - (a->link < b->link);
}

static uint32_t merge_links(drawn_link *links, uint32_t count)
{
    uint32_t kept = 0;

    for (uint32_t i = 0; i < count; i++) {
        drawn_link *last = kept > 0 ? &links[kept - 1] : NULL;
        if (last == NULL || last->from != links[i].from || last->to != links[i].to) {
            links[kept++] = links[i];
            continue;
        }
        last->count++;
        last->bytes += links[i].bytes;
        if (links[i].load > last->load) {
            last->load = links[i].load;
            last->link = links[i].link;
        }
    }
    return kept;
}

/* [from, to, load, bytes, number of links, kind, bandwidth]; kind and bandwidth of the busiest */
static ty_status put_links(const network *n, ty_json_writer *w, ty_error *error)
{
    const uint32_t all = ty_cluster_link_count(n->cluster);
    drawn_link *links = ty_alloc(all, sizeof *links);
    uint32_t count = 0;

    TY_TRY(ty_check_memory(links != NULL, error));
    for (uint32_t l = 0; l < all; l++) {
        const ty_link_edge *link = ty_cluster_link(n->cluster, l);
        const uint32_t a = n->group[link->from], b = n->group[link->to];
        if (a != b)
            links[count++] = (drawn_link){.from = a < b ? a : b,
                                          .to = a < b ? b : a,
                                          .link = l,
                                          .load = load_of(n, l),
                                          .bytes = n->link_bytes[2 * (size_t)l] +
                                                   n->link_bytes[2 * (size_t)l + 1],
                                          .count = 1};
    }
    qsort(links, count, sizeof *links, by_ends);
    count = merge_links(links, count);
    ty_json_open(w, "links", '[');
    for (uint32_t i = 0; i < count; i++) {
        const ty_link_edge *link = ty_cluster_link(n->cluster, links[i].link);
        ty_report_put_row(w, "uuffusf", n->node[links[i].from], n->node[links[i].to], links[i].load,
                          links[i].bytes, links[i].count, link->kind, link->bandwidth_bytes_per_s);
    }
    ty_json_close(w, ']');
    ty_free(links);
    return TY_OK;
}

typedef struct busy_link {
    uint32_t link;
    double load;
} busy_link;

static int busiest_first(const void *left, const void *right)
{
    const busy_link *a = left, *b = right;
    if (a->load != b->load)
        return a->load < b->load ? 1 : -1;
    return (a->link > b->link) - (a->link < b->link);
}

/* [from, to, kind, bandwidth, bytes there, bytes back, load], the busiest first */
static ty_status put_busy_links(const network *n, ty_json_writer *w, ty_error *error)
{
    const uint32_t count = ty_cluster_link_count(n->cluster);
    busy_link *busy = ty_alloc(count, sizeof *busy);

    TY_TRY(ty_check_memory(busy != NULL, error));
    for (uint32_t l = 0; l < count; l++)
        busy[l] = (busy_link){l, load_of(n, l)};
    qsort(busy, count, sizeof *busy, busiest_first);
    ty_json_open(w, "busiest", '[');
    for (uint32_t i = 0; i < count && i < MOST_BUSY_LINKS && busy[i].load > 0; i++) {
        const ty_link_edge *link = ty_cluster_link(n->cluster, busy[i].link);
        const double *bytes = &n->link_bytes[2 * (size_t)busy[i].link];
        ty_report_put_row(w, "sssffff", ty_cluster_vertex_name(n->cluster, link->from),
                          ty_cluster_vertex_name(n->cluster, link->to), link->kind,
                          link->bandwidth_bytes_per_s, bytes[0], bytes[1], busy[i].load);
    }
    ty_json_close(w, ']');
    ty_free(busy);
    return TY_OK;
}

/* ---- The matrix ---------------------------------------------------------------------------- */

/* Row of a device in the matrix: itself, its host, or its block. */
static uint32_t matrix_group(const network *n, uint32_t device, uint32_t size)
{
    const uint32_t devices = ty_cluster_device_count(n->cluster);

    if (size == devices)
        return device;
    if (size == ty_cluster_host_count(n->cluster))
        return ty_cluster_device_host(n->cluster, device);
    return (uint32_t)((uint64_t)device * size / devices);
}

static uint32_t matrix_size(const network *n)
{
    const uint32_t devices = ty_cluster_device_count(n->cluster);
    const uint32_t hosts = ty_cluster_host_count(n->cluster);

    return devices <= MOST_MATRIX ? devices : hosts <= 2 * MOST_MATRIX ? hosts : 2 * MOST_MATRIX;
}

static const char *matrix_noun(const network *n, uint32_t size)
{
    return size == ty_cluster_device_count(n->cluster) ? "device"
           : size == ty_cluster_host_count(n->cluster) ? "host"
                                                       : "block of devices";
}

/* [receiver, sender, bytes] of the pairs that communicate */
static ty_status put_matrix(const network *n, ty_json_writer *w, ty_error *error)
{
    const uint32_t size = matrix_size(n);
    double *bytes = ty_alloc((size_t)size * size, sizeof *bytes);

    TY_TRY(ty_check_memory(bytes != NULL, error));
    for (uint32_t f = 0; f < n->traffic_count; f++) {
        const ty_traffic *one = &n->traffic[f];
        bytes[(size_t)matrix_group(n, one->from, size) * size + matrix_group(n, one->to, size)] +=
            one->bytes;
    }
    ty_json_put_uint(w, "matrix_size", size);
    ty_json_put_string(w, "matrix_noun", matrix_noun(n, size));
    ty_json_open(w, "matrix", '[');
    for (uint32_t i = 0; i < size * size; i++)
        if (bytes[i] > 0)
            ty_report_put_row(w, "uuf", i % size, i / size, bytes[i]);
    ty_json_close(w, ']');
    ty_free(bytes);
    return TY_OK;
}

ty_status ty_report_put_network(const ty_report_input *in, double step_time_s, ty_json_writer *w,
                                ty_error *error)
{
    ty_status status = TY_OK;
    network n = {0};

    if (in->cluster == NULL || in->costs == NULL || !(step_time_s > 0) ||
        ty_cluster_device_count(in->cluster) > MOST_DEVICES)
        return TY_OK;
    TY_CHECK(network_new(in, step_time_s, &n, error), status, done);
    TY_CHECK(group(&n, error), status, done);
    ty_json_open(w, "network", '{');
    put_nodes(&n, w);
    TY_CHECK(put_links(&n, w, error), status, done);
    TY_CHECK(put_busy_links(&n, w, error), status, done);
    TY_CHECK(put_matrix(&n, w, error), status, done);
    ty_json_close(w, '}');
done:
    network_clear(&n);
    return status;
}
