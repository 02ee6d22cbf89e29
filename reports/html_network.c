/* The cluster as a picture with the load of its links, and who sends to whom. Large clusters are
 * drawn by groups: what is inside hosts goes into them, then hosts into their first switch. */
#include "page.h"
#include "ty_analysis.h"
#include "ty_simulate.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_DRAWN 80       /* vertices that are drawn one by one */
#define MOST_DRAWN_HOSTS 40 /* hosts */
#define MOST_OPEN_GROUPS 8  /* groups of hosts whose insides are drawn */
#define MOST_BUSY_LINKS 20
#define MOST_MATRIX                                                                                \
    32 /* devices that are shown one by one; beyond, hosts, or blocks of devices                   \
        */
#define MOST_DEVICES 16384 /* beyond, counting every route takes too long for a page */

typedef struct network {
    const ty_cluster *cluster;
    double *link_bytes;  /* [links][2]: of a step, in the direction of the link, and back */
    ty_traffic *traffic; /* between devices */
    uint32_t traffic_count;
    double step_time_s;
    uint32_t vertex_count;
    uint32_t *group;    /* [vertices]: the vertex that it is drawn as */
    uint32_t *level;    /* [vertices]: height in the picture */
    uint32_t *distance; /* [vertices]: links to the nearest host */
    uint32_t *members;  /* [vertices]: how many are drawn as this one */
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

/* What a step sends: over links, and from device to device. */
static ty_status traffic_find(const ty_report_input *in, network *n, ty_error *error)
{
    ty_link_load *loads = NULL;
    uint32_t count = 0;
    ty_status status = TY_OK;

    n->link_bytes = ty_alloc(2 * (size_t)ty_cluster_link_count(in->cluster), sizeof *n->link_bytes);
    if (n->link_bytes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
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
    if (n->group == NULL || n->level == NULL || n->distance == NULL || n->members == NULL ||
        n->node == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    return traffic_find(in, n, error);
}

/* The larger share of a link's two directions that is busy in a step. */
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

/* Distances from hosts and, for what is inside hosts, the nearest host. Relaxed until nothing
 * changes: a fabric is a few links deep. */
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

/* A group of hosts is drawn as the first host of their first switch. */
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

/* What is inside a group of hosts is drawn as one vertex of each kind, the first; `host` is that of
 * each vertex. Only where groups are few. */
static void open_groups(network *n, const uint32_t *host)
{
    uint32_t groups = 0;

    for (uint32_t v = 0; v < n->vertex_count; v++)
        groups += ty_cluster_vertex_kind(n->cluster, v) == TY_VERTEX_HOST && root_of(n, v) == v;
    if (groups > MOST_OPEN_GROUPS)
        return;
    for (uint32_t v = 0; v < n->vertex_count; v++)
        n->members[v] = UINT32_MAX; /* the first of each kind, kept for the group's host */
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
        /* What is inside a host does not count as a member of it. */
        n->members[drawn] +=
            ty_cluster_vertex_kind(n->cluster, v) == ty_cluster_vertex_kind(n->cluster, drawn);
    }
    ty_free(host);
    ty_free(scratch);
    return TY_OK;
}

/* ---- The picture --------------------------------------------------------------------------- */

static const char *plural_of(ty_vertex_kind kind)
{
    static const char *const plurals[TY_VERTEX_KIND_COUNT] = {
        [TY_VERTEX_DEVICE] = "devices",  [TY_VERTEX_DEVICE_SWITCH] = "device switches",
        [TY_VERTEX_HOST] = "hosts",      [TY_VERTEX_NIC] = "NICs",
        [TY_VERTEX_SWITCH] = "switches",
    };
    return plurals[kind];
}

/* [name, kind, level, members] */
static void put_nodes(page *p, network *n)
{
    uint32_t count = 0;

    ty_json_open(&p->json, "nodes", '[');
    for (uint32_t v = 0; v < n->vertex_count; v++) {
        char name[160];
        if (n->group[v] != v)
            continue;
        n->node[v] = count++;
        if (n->members[v] > 1)
            snprintf(name, sizeof name, "%u %s from %.100s", n->members[v],
                     plural_of(ty_cluster_vertex_kind(n->cluster, v)),
                     ty_cluster_vertex_name(n->cluster, v));
        else
            snprintf(name, sizeof name, "%.140s", ty_cluster_vertex_name(n->cluster, v));
        ty_json_open(&p->json, NULL, '[');
        ty_json_put_string(&p->json, NULL, name);
        ty_json_put_string(&p->json, NULL,
                           ty_vertex_kind_name(ty_cluster_vertex_kind(n->cluster, v)));
        ty_json_put_uint(&p->json, NULL, n->level[v]);
        ty_json_put_uint(&p->json, NULL, n->members[v]);
        ty_json_close(&p->json, ']');
    }
    ty_json_close(&p->json, ']');
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

/* [from, to, load, bytes, links, kind] */
static ty_status put_links(page *p, const network *n, ty_error *error)
{
    const uint32_t all = ty_cluster_link_count(n->cluster);
    drawn_link *links = ty_alloc(all, sizeof *links);
    uint32_t count = 0;

    if (links == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
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
    ty_json_open(&p->json, "links", '[');
    for (uint32_t i = 0; i < count; i++) {
        const ty_link_edge *link = ty_cluster_link(n->cluster, links[i].link);
        ty_json_open(&p->json, NULL, '[');
        ty_json_put_uint(&p->json, NULL, n->node[links[i].from]);
        ty_json_put_uint(&p->json, NULL, n->node[links[i].to]);
        ty_json_put_number(&p->json, NULL, links[i].load);
        ty_json_put_number(&p->json, NULL, links[i].bytes);
        ty_json_put_uint(&p->json, NULL, links[i].count);
        ty_json_put_string(&p->json, NULL, link->kind);
        ty_json_put_number(&p->json, NULL, link->bandwidth_bytes_per_s);
        ty_json_close(&p->json, ']');
    }
    ty_json_close(&p->json, ']');
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

static ty_status put_busy_links(page *p, const network *n, ty_error *error)
{
    const uint32_t count = ty_cluster_link_count(n->cluster);
    busy_link *busy = ty_alloc(count, sizeof *busy);

    if (busy == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t l = 0; l < count; l++)
        busy[l] = (busy_link){l, load_of(n, l)};
    qsort(busy, count, sizeof *busy, busiest_first);
    ty_page_table(p, "<from|<to|<kind|bandwidth|bytes a step, there|and back|load");
    for (uint32_t i = 0; i < count && i < MOST_BUSY_LINKS && busy[i].load > 0; i++) {
        const ty_link_edge *link = ty_cluster_link(n->cluster, busy[i].link);
        const double *bytes = &n->link_bytes[2 * (size_t)busy[i].link];
        char cell[40];
        ty_page_row(p);
        ty_page_text(p, ty_cluster_vertex_name(n->cluster, link->from));
        ty_page_text(p, ty_cluster_vertex_name(n->cluster, link->to));
        ty_page_text(p, link->kind);
        ty_page_format(PAGE_RATE, link->bandwidth_bytes_per_s, cell);
        ty_page_number(p, cell);
        for (int way = 0; way < 2; way++) {
            ty_page_format(PAGE_BYTES, bytes[way], cell);
            ty_page_number(p, cell);
        }
        ty_page_format(PAGE_SHARE, busy[i].load, cell);
        ty_page_number(p, cell);
        ty_page_end_row(p);
    }
    ty_page_end_table(p);
    ty_free(busy);
    return TY_OK;
}

/* ---- The matrix ---------------------------------------------------------------------------- */

/* What stands for a device in the matrix. */
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

#define MOST_PAIRS 200

static void put_pairs(page *p, const double *bytes, uint32_t size, const char *noun)
{
    char headings[96], cell[40];
    uint32_t rows = 0;

    snprintf(headings, sizeof headings, "from %s|to %s|bytes a step", noun, noun);
    ty_page_table(p, headings);
    for (uint32_t i = 0; i < size * size && rows < MOST_PAIRS; i++) {
        if (!(bytes[i] > 0))
            continue;
        ty_text_addf(p->html, "<tr><td>%u</td><td>%u</td>", i / size, i % size);
        ty_page_format(PAGE_BYTES, bytes[i], cell);
        ty_page_number(p, cell);
        ty_page_end_row(p);
        rows++;
    }
    ty_page_end_table(p);
    if (rows == MOST_PAIRS)
        ty_text_addf(p->html, "<p class=\"faint\">The first %d pairs.</p>\n", MOST_PAIRS);
}

static ty_status put_matrix(page *p, const network *n, ty_error *error)
{
    const uint32_t size = matrix_size(n);
    const char *noun = matrix_noun(n, size);
    double *bytes = ty_alloc((size_t)size * size, sizeof *bytes);

    if (bytes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t f = 0; f < n->traffic_count; f++) {
        const ty_traffic *one = &n->traffic[f];
        bytes[(size_t)matrix_group(n, one->from, size) * size + matrix_group(n, one->to, size)] +=
            one->bytes;
    }
    ty_page_section(p, "traffic", "Who sends to whom");
    ty_page_note(p, "Bytes of one step by sender and receiver, in the order of the cluster's "
                    "devices: what is far from the diagonal goes far.");
    ty_page_chart(p, "traffic", "heat", "Bytes of a step by sender and receiver",
                  "Heat map of bytes between senders and receivers; the table has the pairs");
    ty_json_put_uint(&p->json, "size", size);
    ty_json_put_string(&p->json, "noun", noun);
    ty_json_open(&p->json, "cells", '[');
    for (uint32_t i = 0; i < size * size; i++)
        if (bytes[i] > 0) {
            char row[96];
            snprintf(row, sizeof row, "[%u,%u,%.6g]", i % size, i / size, bytes[i]);
            ty_json_put_raw(&p->json, NULL, row);
        }
    ty_json_close(&p->json, ']');
    ty_page_chart_table(p, "Pairs");
    put_pairs(p, bytes, size, noun);
    ty_page_end_chart(p);
    ty_free(bytes);
    return TY_OK;
}

ty_status ty_page_network(page *p, ty_error *error)
{
    const ty_report_input *in = p->in;
    const ty_step_summary *s = p->prediction;
    ty_status status = TY_OK;
    network n = {0};

    if (in->cluster == NULL || in->costs == NULL || s == NULL || !(s->step_time_s > 0) ||
        ty_cluster_device_count(in->cluster) > MOST_DEVICES) {
        ty_page_missing(p, "Network and traffic",
                        "a plan with a prediction, of up to 16384 devices");
        return TY_OK;
    }
    TY_CHECK(network_new(in, s->step_time_s, &n, error), status, done);
    TY_CHECK(group(&n, error), status, done);
    ty_page_section(p, "network", "The network and its load");
    ty_page_note(p,
                 "Load: bytes that a step sends over a link in its busier direction, over what "
                 "the link could carry in the predicted step. Exchanges inside passes, and those "
                 "that come in every few steps only, are not counted.");
    ty_page_chart(p, "network", "graph", "The cluster, links coloured by load",
                  "Picture of devices, hosts and switches, links coloured by load; the table has "
                  "the busiest links");
    put_nodes(p, &n);
    TY_CHECK(put_links(p, &n, error), status, done);
    ty_page_chart_table(p, "The busiest links");
    TY_CHECK(put_busy_links(p, &n, error), status, done);
    ty_page_end_chart(p);
    TY_CHECK(put_matrix(p, &n, error), status, done);
done:
    network_clear(&n);
    return status;
}
