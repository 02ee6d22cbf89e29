/* SimGrid's <cluster>: builds a star, torus, fat tree or dragonfly from its parameters. */
#include "import_simgrid.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LEVEL_LIMIT = 8 };

typedef struct cluster_tag {
    const char *id, *prefix, *suffix;
    unsigned line;
    double speed, bandwidth, latency, cores;
    double limit; /* limiter_link: limits the sum that a host sends and receives */
    double port;  /* bandwidth of a host's own link under that limit */
    uint32_t count;
    uint32_t *hosts; /* [count] points */
} cluster_tag;

/* Adds the hosts of a list such as "0-99,105". */
static ty_status add_hosts(platform *p, const xml_element *e, cluster_tag *c, ty_error *error)
{
    const char *at;

    TY_TRY(simgrid_need(p->im, e, "radical", &at, error));
    while (*at != '\0') {
        char *end;
        unsigned long low = strtoul(at, &end, 10), high = low;
        bool is_ok = isdigit((unsigned char)*at) != 0;
        if (is_ok && *end == '-' && isdigit((unsigned char)end[1]))
            high = strtoul(end + 1, &end, 10);
        is_ok = is_ok && (*end == '\0' || *end == ',') && low <= high && high <= UINT32_MAX &&
                high - low < DEVICE_LIMIT && c->count + (high - low) < DEVICE_LIMIT;
        if (!is_ok)
            return import_fail(p->im, error, c->line,
                               "found radical=\"%.40s\", expected ranges such as 0-15", at);
        uint32_t *hosts = ty_resize(c->hosts, c->count + (high - low) + 1, sizeof *hosts);
        TY_TRY(ty_check_memory(hosts != NULL, error));
        c->hosts = hosts;
        for (unsigned long i = low; i <= high; i++) {
            char name[SIMGRID_NAME_ROOM];
            snprintf(name, sizeof name, "%.60s%lu%.60s", c->prefix, i, c->suffix);
            TY_TRY(simgrid_new_point(p, name, c->line, c->speed * c->cores, &c->hosts[c->count],
                                     error));
            c->count++;
        }
        at = *end == ',' ? end + 1 : end;
    }
    return TY_OK;
}

/* The hosts of a <cluster> or <cabinet>, and their links. */
static ty_status read_hosts(platform *p, const xml_element *e, cluster_tag *c, ty_error *error)
{
    TY_TRY(simgrid_need(p->im, e, "id", &c->id, error));
    c->prefix = xml_attribute(e, "prefix") != NULL ? xml_attribute(e, "prefix") : "";
    c->suffix = xml_attribute(e, "suffix") != NULL ? xml_attribute(e, "suffix") : "";
    TY_TRY(simgrid_quantity(p->im, e, "speed", 1, 1e18, &c->speed, error));
    TY_TRY(simgrid_quantity(p->im, e, "bw", 1, BANDWIDTH_MAXIMUM, &c->bandwidth, error));
    TY_TRY(simgrid_quantity(p->im, e, "lat", 0, LATENCY_MAXIMUM, &c->latency, error));
    if (xml_attribute(e, "core") != NULL)
        TY_TRY(simgrid_quantity(p->im, e, "core", 1, 1e6, &c->cores, error));
    c->limit = BANDWIDTH_MAXIMUM;
    if (xml_attribute(e, "limiter_link") != NULL)
        TY_TRY(simgrid_quantity(p->im, e, "limiter_link", 1, BANDWIDTH_MAXIMUM, &c->limit, error));
    c->port = fmin(c->bandwidth, c->limit);
    return add_hosts(p, e, c, error);
}

/* A switch with hosts around it, and the router to the outside. Every message passes the backbone:
 * half of its latency is added to each end's link, and its bandwidth limits each message. */
typedef struct star {
    uint32_t center;
    double bb_bandwidth, bb_latency; /* 0: none */
    double width;                    /* total bandwidth of the hosts' links */
} star;

static ty_status open_star(platform *p, const char *id, unsigned line, star *s, ty_error *error)
{
    char name[SIMGRID_NAME_ROOM];

    snprintf(name, sizeof name, "%.60s-switch", id);
    return simgrid_new_point(p, name, line, 0, &s->center, error);
}

/* @param bandwidth, latency attribute names */
static ty_status read_backbone(platform *p, const xml_element *e, const char *bandwidth,
                               const char *latency, star *s, ty_error *error)
{
    ty_status status =
        simgrid_quantity(p->im, e, bandwidth, 1, BANDWIDTH_MAXIMUM, &s->bb_bandwidth, error);

    if (status == TY_OK && xml_attribute(e, latency) != NULL)
        status = simgrid_quantity(p->im, e, latency, 0, LATENCY_MAXIMUM, &s->bb_latency, error);
    p->has_backbone = true;
    return status;
}

static ty_status join_host(platform *p, star *s, uint32_t host, double bandwidth, double latency,
                           ty_error *error)
{
    s->width += bandwidth;
    if (s->bb_bandwidth > 0)
        bandwidth = fmin(bandwidth, s->bb_bandwidth);
    return simgrid_new_wire(p, host, s->center, bandwidth, latency + s->bb_latency / 2, 1, error);
}

static ty_status join_router(platform *p, const star *s, uint32_t router, ty_error *error)
{
    return simgrid_new_wire(p, s->center, router, s->bb_bandwidth > 0 ? s->bb_bandwidth : s->width,
                            s->bb_latency / 2, 1, error);
}

static ty_status add_star(platform *p, const xml_element *e, const cluster_tag *c, ty_error *error)
{
    star s = {0};
    uint32_t router;
    const char *router_id = xml_attribute(e, "router_id");
    char name[SIMGRID_NAME_ROOM];

    if (xml_attribute(e, "bb_bw") != NULL)
        TY_TRY(read_backbone(p, e, "bb_bw", "bb_lat", &s, error));
    TY_TRY(open_star(p, c->id, c->line, &s, error));
    if (router_id != NULL && router_id[0] != '\0')
        snprintf(name, sizeof name, "%.180s", router_id);
    else
        snprintf(name, sizeof name, "%.60s%.60s_router%.60s", c->prefix, c->id, c->suffix);
    TY_TRY(simgrid_new_point(p, name, c->line, 0, &router, error));
    for (uint32_t i = 0; i < c->count; i++)
        TY_TRY(join_host(p, &s, c->hosts[i], c->port, c->latency, error));
    return join_router(p, &s, router, error);
}

/* ---- Zones with routing="Cluster" -------------------------------------------------------- */

bool simgrid_is_of_star(const xml_element *e)
{
    return xml_is(e, "cabinet") || xml_is(e, "host_link") || xml_is(e, "backbone");
}

static ty_status add_host_link(platform *p, const xml_element *e, star *s, ty_error *error)
{
    const char *id;
    uint32_t host, up, down;

    TY_TRY(simgrid_need(p->im, e, "id", &id, error));
    host = tree_find(&p->names, id);
    if (host == NO_INDEX)
        return import_fail(p->im, error, xml_line(e),
                           "found host_link id=\"%.60s\", expected a host named before", id);
    TY_TRY(simgrid_wire_named(p, e, "up", &up, error));
    TY_TRY(simgrid_wire_named(p, e, "down", &down, error));
    if (p->wires[up].bandwidth != p->wires[down].bandwidth ||
        p->wires[up].latency != p->wires[down].latency)
        return import_fail(p->im, error, xml_line(e),
                           "found host_link id=\"%.60s\" with another way up than down, expected "
                           "equal ones",
                           id);
    return join_host(p, s, host, p->wires[up].bandwidth, p->wires[up].latency, error);
}

static ty_status add_cabinet(platform *p, const xml_element *e, star *s, ty_error *error)
{
    cluster_tag c = {.line = xml_line(e), .cores = 1};
    ty_status status;

    TY_CHECK(read_hosts(p, e, &c, error), status, cleanup);
    for (uint32_t i = 0; i < c.count; i++)
        TY_CHECK(join_host(p, s, c.hosts[i], c.port, c.latency, error), status, cleanup);
cleanup:
    ty_free(c.hosts);
    return status;
}

ty_status simgrid_add_star(platform *p, const xml_element *zone, ty_error *error)
{
    star s = {0};
    const char *id;

    TY_TRY(simgrid_need(p->im, zone, "id", &id, error));
    TY_TRY(open_star(p, id, xml_line(zone), &s, error));
    for (const xml_element *e = xml_first(zone); e != NULL; e = xml_next(e))
        if (xml_is(e, "backbone"))
            TY_TRY(read_backbone(p, e, "bandwidth", "latency", &s, error));
    for (const xml_element *e = xml_first(zone); e != NULL; e = xml_next(e))
        if (xml_is(e, "host_link"))
            TY_TRY(add_host_link(p, e, &s, error));
        else if (xml_is(e, "cabinet"))
            TY_TRY(add_cabinet(p, e, &s, error));
    for (const xml_element *e = xml_first(zone); e != NULL; e = xml_next(e))
        if (xml_is(e, "router"))
            TY_TRY(join_router(p, &s, tree_find(&p->names, xml_attribute(e, "id")), error));
    return TY_OK;
}

/* ---- Other shapes of <cluster> ----------------------------------------------------------- */

/* Integers separated by commas, up to a semicolon. */
static uint32_t read_list(const char **at, uint32_t *out)
{
    uint32_t count = 0;

    while (count < LEVEL_LIMIT && isdigit((unsigned char)**at)) {
        char *end;
        unsigned long value = strtoul(*at, &end, 10);
        if (value == 0 || value > DEVICE_LIMIT)
            return 0;
        out[count++] = (uint32_t)value;
        *at = *end == ',' ? end + 1 : end;
    }
    return count;
}

static ty_status bad_parameters(const platform *p, const xml_element *e, const char *expected,
                                ty_error *error)
{
    const char *text = xml_attribute(e, "topo_parameters");
    return import_fail(p->im, error, xml_line(e), "found topo_parameters=\"%.60s\", expected %s",
                       text != NULL ? text : "", expected);
}

static ty_status add_torus(platform *p, const xml_element *e, const cluster_tag *c, ty_error *error)
{
    const char *at = xml_attribute(e, "topo_parameters");
    uint32_t sizes[LEVEL_LIMIT], dimensions = at == NULL ? 0 : read_list(&at, sizes), first, stride;
    uint64_t count = 1;

    for (uint32_t d = 0; d < dimensions && count <= DEVICE_LIMIT; d++)
        count *= sizes[d];
    if (dimensions == 0 || *at != '\0' || count != c->count)
        return bad_parameters(p, e, "sizes whose product is the number of hosts", error);
    /* hosts do not forward for others: each gets a router */
    first = p->names.count;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t router;
        TY_TRY(simgrid_new_junction(p, &router, error));
        TY_TRY(simgrid_new_wire(p, c->hosts[i], router,
                                fmin(c->limit, 2 * dimensions * c->bandwidth), 0, 1, error));
    }
    stride = 1;
    for (uint32_t d = 0; d < dimensions; stride *= sizes[d++])
        for (uint32_t i = 0; i < c->count && sizes[d] > 1; i++) {
            uint32_t place = i / stride % sizes[d];
            uint32_t next = i + (place + 1 < sizes[d] ? stride : stride - sizes[d] * stride);
            TY_TRY(
                simgrid_new_wire(p, first + i, first + next, c->bandwidth, c->latency, 1, error));
        }
    return TY_OK;
}

/* Parallel ports generalized fat tree (Zahavi 2012): at level l, digits up to l count parents and
 * the others children. Two nodes of adjacent levels are linked if all digits except that level's
 * agree.
 */
typedef struct fat_tree {
    uint32_t levels, down[LEVEL_LIMIT], up[LEVEL_LIMIT], ports[LEVEL_LIMIT];
    uint32_t first; /* point of the first node of the level below */
} fat_tree;

static uint64_t nodes_at(const fat_tree *t, uint32_t level)
{
    uint64_t count = 1;

    for (uint32_t i = 0; i < t->levels && count <= VERTEX_LIMIT; i++)
        count *= i < level ? t->up[i] : t->down[i];
    return count;
}

/* Radix and stride of a digit among the nodes of a level. */
static uint32_t stride_of(const fat_tree *t, uint32_t level, uint32_t digit)
{
    uint32_t stride = 1;

    for (uint32_t i = 0; i < digit; i++)
        stride *= i < level ? t->up[i] : t->down[i];
    return stride;
}

static ty_status add_level(platform *p, const cluster_tag *c, fat_tree *t, uint32_t level,
                           const uint32_t *below, uint32_t *above, ty_error *error)
{
    uint32_t count = (uint32_t)nodes_at(t, level), stride = stride_of(t, level, level);

    for (uint32_t i = 0; i < nodes_at(t, level + 1); i++)
        TY_TRY(simgrid_new_junction(p, &above[i], error));
    for (uint32_t i = 0; i < count; i++) {
        uint32_t low = i % stride, high = i / stride / t->down[level];
        for (uint32_t parent = 0; parent < t->up[level]; parent++)
            TY_TRY(simgrid_new_wire(
                p, below[i], above[low + stride * (parent + t->up[level] * high)],
                level == 0 ? c->port : c->bandwidth, c->latency, t->ports[level], error));
    }
    return TY_OK;
}

static ty_status add_fat_tree(platform *p, const xml_element *e, const cluster_tag *c,
                              ty_error *error)
{
    const char *at = xml_attribute(e, "topo_parameters");
    uint32_t *below = NULL, *above = NULL, *swapped;
    uint64_t widest = 0;
    fat_tree t = {0};
    uint32_t lists[3][LEVEL_LIMIT] = {{0}};
    bool is_ok = at != NULL && read_list(&at, &t.levels) == 1 && t.levels <= LEVEL_LIMIT;
    ty_status status = TY_OK;

    for (int k = 0; k < 3 && is_ok; k++)
        is_ok = *at++ == ';' && read_list(&at, lists[k]) == t.levels;
    memcpy(t.down, lists[0], sizeof t.down);
    memcpy(t.up, lists[1], sizeof t.up);
    memcpy(t.ports, lists[2], sizeof t.ports);
    for (uint32_t l = 0; is_ok && l <= t.levels; l++)
        widest = nodes_at(&t, l) > widest ? nodes_at(&t, l) : widest;
    if (!is_ok || *at != '\0' || nodes_at(&t, 0) != c->count || widest > DEVICE_LIMIT)
        return bad_parameters(p, e, "LEVELS;DOWN,...;UP,...;PORTS,... for the number of hosts",
                              error);
    below = ty_alloc(widest, sizeof *below);
    above = ty_alloc(widest, sizeof *above);
    TY_CHECK(ty_check_memory(below != NULL && above != NULL, error), status, cleanup);
    memcpy(below, c->hosts, c->count * sizeof *below);
    for (uint32_t l = 0; l < t.levels; l++) {
        TY_CHECK(add_level(p, c, &t, l, below, above, error), status, cleanup);
        swapped = below;
        below = above;
        above = swapped;
    }
cleanup:
    ty_free(below);
    ty_free(above);
    return status;
}

/* topo_parameters of a dragonfly (Kim et al. 2008; the wiring is SimGrid's). All routers of a
 * chassis are linked (green), so are those with the same index in the chassis of a group (black),
 * and router j of group i with router i of group j (blue). Each has a number of parallel links. */
typedef struct dragonfly {
    uint32_t groups, blue, chassis, black, routers, green, nodes;
    uint32_t first; /* point of the first router; group by group, chassis by chassis */
} dragonfly;

static bool read_dragonfly(const char *at, dragonfly *d)
{
    uint32_t lists[4][LEVEL_LIMIT], counts[4];

    for (int k = 0; at != NULL && k < 4; k++) {
        counts[k] = read_list(&at, lists[k]);
        if (counts[k] != (k < 3 ? 2 : 1) || *at != (k < 3 ? ';' : '\0'))
            return false;
        at += k < 3;
    }
    if (at == NULL)
        return false;
    *d = (dragonfly){.groups = lists[0][0],
                     .blue = lists[0][1],
                     .chassis = lists[1][0],
                     .black = lists[1][1],
                     .routers = lists[2][0],
                     .green = lists[2][1],
                     .nodes = lists[3][0]};
    return (uint64_t)d->chassis * d->routers >= d->groups;
}

static uint64_t dragonfly_hosts(const dragonfly *d)
{
    uint64_t routers = (uint64_t)d->groups * d->chassis; /* each at most DEVICE_LIMIT */

    if (routers > DEVICE_LIMIT || routers * d->routers > DEVICE_LIMIT)
        return 0;
    return routers * d->routers * d->nodes;
}

static ty_status add_group(platform *p, const cluster_tag *c, const dragonfly *d, uint32_t group,
                           ty_error *error)
{
    uint32_t in_group = d->chassis * d->routers, base = d->first + group * in_group;

    for (uint32_t at = 0; at < in_group; at++) {
        uint32_t chassis = at / d->routers, place = at % d->routers;
        for (uint32_t other = place + 1; other < d->routers; other++)
            TY_TRY(simgrid_new_wire(p, base + at, base + chassis * d->routers + other, c->bandwidth,
                                    c->latency, d->green, error));
        for (uint32_t other = chassis + 1; other < d->chassis; other++)
            TY_TRY(simgrid_new_wire(p, base + at, base + other * d->routers + place, c->bandwidth,
                                    c->latency, d->black, error));
    }
    for (uint32_t other = group + 1; other < d->groups; other++)
        TY_TRY(simgrid_new_wire(p, base + other, d->first + other * in_group + group, c->bandwidth,
                                c->latency, d->blue, error));
    return TY_OK;
}

static ty_status add_dragonfly(platform *p, const xml_element *e, const cluster_tag *c,
                               ty_error *error)
{
    dragonfly d = {0};

    if (!read_dragonfly(xml_attribute(e, "topo_parameters"), &d) || dragonfly_hosts(&d) != c->count)
        return bad_parameters(p, e,
                              "GROUPS,LINKS;CHASSIS,LINKS;ROUTERS,LINKS;NODES whose product is the "
                              "number of hosts, with a router for every other group",
                              error);
    d.first = p->names.count;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t router = d.first + i / d.nodes;
        if (i % d.nodes == 0)
            TY_TRY(simgrid_new_junction(p, &router, error));
        TY_TRY(simgrid_new_wire(p, c->hosts[i], router, c->port, c->latency, 1, error));
    }
    for (uint32_t group = 0; group < d.groups; group++)
        TY_TRY(add_group(p, c, &d, group, error));
    return TY_OK;
}

ty_status simgrid_add_cluster(platform *p, const xml_element *e, ty_error *error)
{
    static const struct {
        const char *name;
        ty_status (*add)(platform *p, const xml_element *e, const cluster_tag *c, ty_error *error);
    } shapes[] = {{"FLAT", add_star},
                  {"TORUS", add_torus},
                  {"FAT_TREE", add_fat_tree},
                  {"DRAGONFLY", add_dragonfly}};
    enum { SHAPE_COUNT = sizeof shapes / sizeof shapes[0] };
    const char *topology = xml_attribute(e, "topology");
    cluster_tag c = {.line = xml_line(e), .cores = 1};
    size_t s = 0;
    ty_status status;

    topology = topology != NULL ? topology : "FLAT";
    while (s < SHAPE_COUNT && strcmp(shapes[s].name, topology) != 0)
        s++;
    if (s == SHAPE_COUNT) {
        status = import_fail(
            p->im, error, c.line,
            "found topology=\"%.40s\", expected FLAT, TORUS, FAT_TREE or DRAGONFLY", topology);
        goto cleanup;
    }
    TY_CHECK(read_hosts(p, e, &c, error), status, cleanup);
    status = shapes[s].add(p, e, &c, error);
cleanup:
    ty_free(c.hosts);
    return status;
}
