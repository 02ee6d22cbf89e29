/* SimGrid platforms (XML, version 4). A platform says which links a message passes; here it becomes
 * a graph again: routes place their links end to end, and a link that is already placed must fit.
 * Clusters (star, fat tree, torus) are drawn as their parameters say. A host is one device: SimGrid
 * knows its speed but no memory. */
#include "import_tree.h"
#include "xml.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH_LIMIT = 32, LEVEL_LIMIT = 8, NAME_ROOM = 200 };

typedef struct point {
    bool is_host, is_linked;
    double flop_per_s;
    uint32_t vertex;
} point;

typedef struct wire {
    double bandwidth, latency, lanes;
    uint32_t from, to; /* points; NO_INDEX: not placed by a route yet */
} wire;

typedef struct platform {
    importer *im;
    tree names, link_names; /* of points and of links that routes name */
    point *points;
    uint32_t point_room;
    wire *wires;
    uint32_t wire_count, wire_room;
    uint32_t *link_wires; /* [link_names] */
    uint32_t link_room;
    uint32_t junctions;
    double speed; /* of the hosts, the first's */
    bool has_backbone;
} platform;

static ty_status out_of_memory(const platform *p, ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for %.160s", p->im->name);
}

/* ---- Attributes -------------------------------------------------------------------------- */

static const struct unit {
    const char *text;
    double factor;
} units[] = {
    {"", 1},         {"f", 1},        {"kf", 1e3},          {"Mf", 1e6},
    {"Gf", 1e9},     {"Tf", 1e12},    {"Pf", 1e15},         {"Bps", 1},
    {"kBps", 1e3},   {"MBps", 1e6},   {"GBps", 1e9},        {"TBps", 1e12},
    {"bps", 0.125},  {"kbps", 125},   {"Mbps", 125e3},      {"Gbps", 125e6},
    {"Tbps", 125e9}, {"KiBps", 1024}, {"MiBps", 1048576.0}, {"GiBps", 1073741824.0},
    {"s", 1},        {"ms", 1e-3},    {"us", 1e-6},         {"ns", 1e-9},
    {"ps", 1e-12},   {"m", 60},
};

static ty_status read_quantity(const importer *im, const xml_element *e, const char *key,
                               double minimum, double maximum, double *out, ty_error *error)
{
    const char *text = xml_attribute(e, key);
    char *end = NULL;
    double value = text == NULL ? 0 : strtod(text, &end);

    for (size_t u = 0; text != NULL && end != text && u < sizeof units / sizeof units[0]; u++)
        if (strcmp(end, units[u].text) == 0) {
            *out = value * units[u].factor;
            if (*out >= minimum && *out <= maximum)
                return TY_OK;
        }
    return import_fail(im, error, xml_line(e),
                       "found %s=\"%.40s\", expected a number with a unit (1Gf, 125MBps, 50us)",
                       key, text != NULL ? text : "");
}

static ty_status need(const importer *im, const xml_element *e, const char *key, const char **out,
                      ty_error *error)
{
    *out = xml_attribute(e, key);
    if (*out == NULL || (*out)[0] == '\0')
        return import_fail(im, error, xml_line(e), "found <%.40s> without %s, expected it",
                           xml_name(e), key);
    return TY_OK;
}

/* ---- Points and wires -------------------------------------------------------------------- */

static ty_status point_of(platform *p, const char *name, unsigned line, uint32_t *index,
                          ty_error *error)
{
    ty_status status = tree_node_of(&p->names, name, line, index, error);

    if (status != TY_OK || p->names.count <= p->point_room)
        return status;
    point *points = ty_resize(p->points, p->names.room, sizeof *points);
    if (points == NULL)
        return out_of_memory(p, error);
    memset(points + p->point_room, 0, (p->names.room - p->point_room) * sizeof *points);
    p->points = points;
    p->point_room = p->names.room;
    return TY_OK;
}

/* A host, router or switch of its own name. */
static ty_status new_point(platform *p, const char *name, unsigned line, double flop_per_s,
                           uint32_t *index, ty_error *error)
{
    uint32_t before = p->names.count;
    ty_status status = point_of(p, name, line, index, error);

    if (status != TY_OK)
        return status;
    if (p->names.count == before)
        return import_fail(p->im, error, line, "found %.60s a second time, expected it once", name);
    p->points[*index] = (point){.is_host = flop_per_s > 0, .flop_per_s = flop_per_s};
    if (flop_per_s > 0 && !(p->speed > 0))
        p->speed = flop_per_s;
    return TY_OK;
}

static ty_status new_wire(platform *p, uint32_t from, uint32_t to, double bandwidth, double latency,
                          double lanes, ty_error *error)
{
    if (p->wire_count == p->wire_room) {
        uint32_t room = p->wire_room == 0 ? 256 : 2 * p->wire_room;
        wire *wires = p->wire_room > LINK_LIMIT ? NULL : ty_resize(p->wires, room, sizeof *wires);
        if (wires == NULL)
            return out_of_memory(p, error);
        p->wires = wires;
        p->wire_room = room;
    }
    p->wires[p->wire_count++] = (wire){bandwidth, latency, lanes, from, to};
    return TY_OK;
}

static ty_status new_junction(platform *p, uint32_t *index, ty_error *error)
{
    char name[48];

    snprintf(name, sizeof name, "junction-%u", p->junctions++);
    return new_point(p, name, 0, 0, index, error);
}

/* ---- Clusters ---------------------------------------------------------------------------- */

typedef struct cluster_tag {
    const char *id, *prefix, *suffix;
    unsigned line;
    double speed, bandwidth, latency, cores;
    uint32_t count;
    uint32_t *hosts; /* [count] points */
} cluster_tag;

/* "0-99,105": so many names. */
static ty_status add_hosts(platform *p, const xml_element *e, cluster_tag *c, ty_error *error)
{
    const char *at;
    ty_status status;

    TY_CHECK(need(p->im, e, "radical", &at, error), status, done);
    while (*at != '\0') {
        char *end;
        unsigned long low = strtoul(at, &end, 10), high = low;
        bool is_ok = isdigit((unsigned char)*at) != 0;
        if (is_ok && *end == '-' && isdigit((unsigned char)end[1]))
            high = strtoul(end + 1, &end, 10);
        is_ok = is_ok && (*end == '\0' || *end == ',') && low <= high &&
                high - low < DEVICE_LIMIT && c->count + (high - low) < DEVICE_LIMIT;
        if (!is_ok)
            return import_fail(p->im, error, c->line,
                               "found radical=\"%.40s\", expected ranges such as 0-15", at);
        uint32_t *hosts = ty_resize(c->hosts, c->count + (high - low) + 1, sizeof *hosts);
        if (hosts == NULL)
            return out_of_memory(p, error);
        c->hosts = hosts;
        for (unsigned long i = low; i <= high; i++) {
            char name[NAME_ROOM];
            snprintf(name, sizeof name, "%.60s%lu%.60s", c->prefix, i, c->suffix);
            TY_CHECK(new_point(p, name, c->line, c->speed * c->cores, &c->hosts[c->count], error),
                     status, done);
            c->count++;
        }
        at = *end == ',' ? end + 1 : end;
    }
    status = TY_OK;
done:
    return status;
}

/* Hosts around a switch. A backbone is passed by every message: its latency is shared out to the
 * two hosts' links, its bandwidth bounds each. */
static ty_status add_star(platform *p, const xml_element *e, const cluster_tag *c, ty_error *error)
{
    double bandwidth = c->bandwidth, latency = c->latency, bb_bandwidth = 0, bb_latency = 0;
    uint32_t center, router;
    char name[NAME_ROOM];
    ty_status status;

    if (xml_attribute(e, "bb_bw") != NULL) {
        TY_CHECK(read_quantity(p->im, e, "bb_bw", 1, BANDWIDTH_MAXIMUM, &bb_bandwidth, error),
                 status, done);
        if (xml_attribute(e, "bb_lat") != NULL)
            TY_CHECK(read_quantity(p->im, e, "bb_lat", 0, 100, &bb_latency, error), status, done);
        bandwidth = fmin(bandwidth, bb_bandwidth);
        latency += bb_latency / 2;
        p->has_backbone = true;
    }
    snprintf(name, sizeof name, "%.60s-switch", c->id);
    TY_CHECK(new_point(p, name, c->line, 0, &center, error), status, done);
    snprintf(name, sizeof name, "%.60s%.60s_router%.60s", c->prefix, c->id, c->suffix);
    TY_CHECK(new_point(p, name, c->line, 0, &router, error), status, done);
    TY_CHECK(new_wire(p, center, router, bb_bandwidth > 0 ? bb_bandwidth : c->bandwidth * c->count,
                      bb_latency / 2, 1, error),
             status, done);
    for (uint32_t i = 0; i < c->count; i++)
        TY_CHECK(new_wire(p, c->hosts[i], center, bandwidth, latency, 1, error), status, done);
done:
    return status;
}

/* Whole numbers between commas, up to a semicolon. */
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
    ty_status status = TY_OK;

    for (uint32_t d = 0; d < dimensions && count <= DEVICE_LIMIT; d++)
        count *= sizes[d];
    if (dimensions == 0 || *at != '\0' || count != c->count)
        return bad_parameters(p, e, "sizes whose product is the number of hosts", error);
    /* hosts do not forward for others: each gets a router */
    first = p->names.count;
    for (uint32_t i = 0; i < c->count; i++) {
        uint32_t router;
        TY_CHECK(new_junction(p, &router, error), status, done);
        TY_CHECK(new_wire(p, c->hosts[i], router, 2 * dimensions * c->bandwidth, 0, 1, error),
                 status, done);
    }
    stride = 1;
    for (uint32_t d = 0; d < dimensions; stride *= sizes[d++])
        for (uint32_t i = 0; i < c->count && sizes[d] > 1; i++) {
            uint32_t place = i / stride % sizes[d];
            uint32_t next = i + (place + 1 < sizes[d] ? stride : stride - sizes[d] * stride);
            if (sizes[d] > 2 || place == 0)
                TY_CHECK(new_wire(p, first + i, first + next, c->bandwidth, c->latency,
                                  sizes[d] == 2 ? 2 : 1, error),
                         status, done);
        }
done:
    return status;
}

/* Parallel ports generalized fat tree (Zahavi 2012): at level l, digits up to l count parents and
 * the others children; two nodes a level apart are linked when all digits but that level's agree.
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
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < nodes_at(t, level + 1); i++)
        TY_CHECK(new_junction(p, &above[i], error), status, done);
    for (uint32_t i = 0; i < count; i++) {
        uint32_t low = i % stride, high = i / stride / t->down[level];
        for (uint32_t parent = 0; parent < t->up[level]; parent++)
            TY_CHECK(new_wire(p, below[i], above[low + stride * (parent + t->up[level] * high)],
                              c->bandwidth, c->latency, t->ports[level], error),
                     status, done);
    }
done:
    return status;
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
    if (below == NULL || above == NULL) {
        status = out_of_memory(p, error);
        goto cleanup;
    }
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

static ty_status add_cluster(platform *p, const xml_element *e, ty_error *error)
{
    static const struct {
        const char *name;
        ty_status (*add)(platform *p, const xml_element *e, const cluster_tag *c, ty_error *error);
    } shapes[] = {{"FLAT", add_star}, {"TORUS", add_torus}, {"FAT_TREE", add_fat_tree}};
    const char *topology = xml_attribute(e, "topology");
    cluster_tag c = {.line = xml_line(e), .cores = 1};
    size_t s = 0;
    ty_status status;

    topology = topology != NULL ? topology : "FLAT";
    TY_CHECK(need(p->im, e, "id", &c.id, error), status, cleanup);
    TY_CHECK(need(p->im, e, "prefix", &c.prefix, error), status, cleanup);
    c.suffix = xml_attribute(e, "suffix") != NULL ? xml_attribute(e, "suffix") : "";
    TY_CHECK(read_quantity(p->im, e, "speed", 1, 1e18, &c.speed, error), status, cleanup);
    TY_CHECK(read_quantity(p->im, e, "bw", 1, BANDWIDTH_MAXIMUM, &c.bandwidth, error), status,
             cleanup);
    TY_CHECK(read_quantity(p->im, e, "lat", 0, 100, &c.latency, error), status, cleanup);
    if (xml_attribute(e, "core") != NULL)
        TY_CHECK(read_quantity(p->im, e, "core", 1, 1e6, &c.cores, error), status, cleanup);
    while (s < 3 && strcmp(shapes[s].name, topology) != 0)
        s++;
    if (s == 3) {
        status =
            import_fail(p->im, error, c.line,
                        "found topology=\"%.40s\", expected FLAT, FAT_TREE or TORUS", topology);
        goto cleanup;
    }
    TY_CHECK(add_hosts(p, e, &c, error), status, cleanup);
    status = shapes[s].add(p, e, &c, error);
cleanup:
    ty_free(c.hosts);
    return status;
}

/* ---- Hosts, links, routes ---------------------------------------------------------------- */

static ty_status add_host(platform *p, const xml_element *e, ty_error *error)
{
    const char *id;
    double speed, cores = 1;
    uint32_t index;
    ty_status status;

    TY_CHECK(need(p->im, e, "id", &id, error), status, done);
    TY_CHECK(read_quantity(p->im, e, "speed", 1, 1e18, &speed, error), status, done);
    if (xml_attribute(e, "core") != NULL)
        TY_CHECK(read_quantity(p->im, e, "core", 1, 1e6, &cores, error), status, done);
    status = new_point(p, id, xml_line(e), speed * cores, &index, error);
done:
    return status;
}

static ty_status add_router(platform *p, const xml_element *e, ty_error *error)
{
    const char *id;
    uint32_t index;
    ty_status status = need(p->im, e, "id", &id, error);

    return status == TY_OK ? new_point(p, id, xml_line(e), 0, &index, error) : status;
}

static ty_status add_link(platform *p, const xml_element *e, ty_error *error)
{
    const char *id;
    double bandwidth, latency = 0;
    uint32_t index, before = p->link_names.count;
    ty_status status;

    TY_CHECK(need(p->im, e, "id", &id, error), status, done);
    TY_CHECK(read_quantity(p->im, e, "bandwidth", 1, BANDWIDTH_MAXIMUM, &bandwidth, error), status,
             done);
    if (xml_attribute(e, "latency") != NULL)
        TY_CHECK(read_quantity(p->im, e, "latency", 0, 100, &latency, error), status, done);
    TY_CHECK(tree_node_of(&p->link_names, id, xml_line(e), &index, error), status, done);
    if (p->link_names.count == before)
        return import_fail(p->im, error, xml_line(e), "found link %.60s a second time", id);
    if (p->link_names.count > p->link_room) {
        uint32_t *wires = ty_resize(p->link_wires, p->link_names.room, sizeof *wires);
        if (wires == NULL)
            return out_of_memory(p, error);
        p->link_wires = wires;
        p->link_room = p->link_names.room;
    }
    p->link_wires[index] = p->wire_count;
    status = new_wire(p, NO_INDEX, NO_INDEX, bandwidth, latency, 1, error);
done:
    return status;
}

static wire *wire_named(platform *p, const xml_element *e, ty_error *error)
{
    const char *id = xml_attribute(e, "id");
    uint32_t index, before = p->link_names.count;

    if (id != NULL && tree_node_of(&p->link_names, id, 0, &index, error) == TY_OK &&
        p->link_names.count == before)
        return &p->wires[p->link_wires[index]];
    (void)import_fail(p->im, error, xml_line(e),
                      "found link_ctn id=\"%.60s\", expected a link named "
                      "before",
                      id != NULL ? id : "");
    return NULL;
}

static ty_status list_links(platform *p, const xml_element *route, wire **list, uint32_t *count,
                            ty_error *error)
{
    *count = 0;
    for (const xml_element *e = xml_first(route); e != NULL; e = xml_next(e)) {
        if (!xml_is(e, "link_ctn"))
            continue;
        if (*count == DEPTH_LIMIT)
            return import_fail(p->im, error, xml_line(e), "found more than %d links in a route",
                               DEPTH_LIMIT);
        if ((list[*count] = wire_named(p, e, error)) == NULL)
            return TY_EPARSE;
        (*count)++;
    }
    return TY_OK;
}

/* The end of a placed link that is not `at`; NO_INDEX where it does not touch it. */
static uint32_t beyond(const wire *w, uint32_t at)
{
    if (w->from == NO_INDEX)
        return NO_INDEX;
    return w->from == at ? w->to : w->to == at ? w->from : NO_INDEX;
}

/* From both ends over links that are placed; what is left between gets places of its own. */
static ty_status place_route(platform *p, const xml_element *e, uint32_t from, uint32_t to,
                             ty_error *error)
{
    wire *list[DEPTH_LIMIT];
    uint32_t count, first = 0, end, next;
    ty_status status;

    TY_CHECK(list_links(p, e, list, &count, error), status, done);
    end = count;
    while (first < end && (next = beyond(list[first], from)) != NO_INDEX) {
        from = next;
        first++;
    }
    while (first < end && (next = beyond(list[end - 1], to)) != NO_INDEX) {
        to = next;
        end--;
    }
    for (uint32_t i = first; i < end; i++)
        if (list[i]->from != NO_INDEX)
            return import_fail(p->im, error, xml_line(e),
                               "found a route whose links are elsewhere already, expected routes "
                               "over a graph");
    if (first == end && from != to)
        return import_fail(p->im, error, xml_line(e),
                           "found a route that does not end where it should, expected routes over "
                           "a graph");
    for (uint32_t i = first; i < end; i++) {
        /* new_junction may move points, not wires */
        next = to;
        if (i + 1 < end)
            TY_CHECK(new_junction(p, &next, error), status, done);
        list[i]->from = from;
        list[i]->to = next;
        from = next;
    }
done:
    return status;
}

static ty_status add_route(platform *p, const xml_element *e, ty_error *error)
{
    bool is_zone = xml_is(e, "zoneRoute") || xml_is(e, "ASroute") || xml_is(e, "bypassZoneRoute");
    const char *names[2];
    uint32_t ends[2], before = p->names.count;
    ty_status status;

    TY_CHECK(need(p->im, e, is_zone ? "gw_src" : "src", &names[0], error), status, done);
    TY_CHECK(need(p->im, e, is_zone ? "gw_dst" : "dst", &names[1], error), status, done);
    for (int k = 0; k < 2; k++) {
        TY_CHECK(point_of(p, names[k], xml_line(e), &ends[k], error), status, done);
        if (p->names.count > before)
            return import_fail(p->im, error, xml_line(e),
                               "found a route to %.60s, expected a host or router named before",
                               names[k]);
    }
    status = place_route(p, e, ends[0], ends[1], error);
done:
    return status;
}

/* ---- Zones ------------------------------------------------------------------------------- */

static ty_status add_zone(platform *p, const xml_element *zone, int depth, ty_error *error);

static ty_status skip(platform *p, const xml_element *e, ty_error *error)
{
    (void)p;
    (void)e;
    (void)error;
    return TY_OK;
}

static ty_status add_element(platform *p, const xml_element *e, int depth, ty_error *error)
{
    static const struct {
        const char *name;
        ty_status (*add)(platform *p, const xml_element *e, ty_error *error);
    } elements[] = {
        {"host", add_host},       {"router", add_router}, {"link", add_link},
        {"cluster", add_cluster}, {"route", add_route},   {"zoneRoute", add_route},
        {"ASroute", add_route},   {"prop", skip},         {"config", skip},
        {"mount", skip},          {"storage", skip},      {"storage_type", skip},
    };

    if (xml_is(e, "zone") || xml_is(e, "AS"))
        return add_zone(p, e, depth + 1, error);
    for (size_t i = 0; i < sizeof elements / sizeof elements[0]; i++)
        if (xml_is(e, elements[i].name))
            return elements[i].add(p, e, error);
    return import_fail(p->im, error, xml_line(e),
                       "found <%.40s>, expected zone, cluster, host, router, link, route or "
                       "zoneRoute",
                       xml_name(e));
}

static ty_status add_zone(platform *p, const xml_element *zone, int depth, ty_error *error)
{
    ty_status status = TY_OK;

    if (depth > DEPTH_LIMIT)
        return import_fail(p->im, error, xml_line(zone), "found zones nested deeper than %d",
                           DEPTH_LIMIT);
    for (const xml_element *e = xml_first(zone); e != NULL && status == TY_OK; e = xml_next(e))
        status = add_element(p, e, depth, error);
    return status;
}

/* ---- Into the cluster -------------------------------------------------------------------- */

/* What some host is linked to, over however many wires: routers that lead nowhere are left out. */
static void find_linked(platform *p)
{
    bool has_changed = true;

    for (uint32_t i = 0; i < p->names.count; i++)
        p->points[i].is_linked = p->points[i].is_host;
    while (has_changed) {
        has_changed = false;
        for (uint32_t w = 0; w < p->wire_count; w++) {
            const wire *e = &p->wires[w];
            if (e->from == NO_INDEX || p->points[e->from].is_linked == p->points[e->to].is_linked)
                continue;
            p->points[e->from].is_linked = p->points[e->to].is_linked = true;
            has_changed = true;
        }
    }
}

/* Of the options, else made up of the speed. */
static ty_status device_type(platform *p, double flop_per_s, uint32_t *type, ty_error *error)
{
    importer *im = p->im;
    ty_cluster *c = im->cluster;
    char name[48], source[] = "speed in the platform; memory assumed (16 GiB, a byte a flop)";
    ty_device_type made = {.name = name,
                           .source = source,
                           .peak_fp32_flop_per_s = flop_per_s,
                           .memory_bandwidth_bytes_per_s = flop_per_s,
                           .memory_bytes = (uint64_t)16 << 30,
                           .matmul_efficiency = 1,
                           .memory_efficiency = 1};
    const ty_device_type *known = NULL;

    if (import_device(im) != NO_INDEX)
        known = &im->catalogue->device_types[import_device(im)];
    snprintf(name, sizeof name, "simgrid-%.6gGf", flop_per_s / 1e9);
    for (*type = 0; *type < c->device_type_count; (*type)++)
        if (strcmp(c->device_types[*type].name, known != NULL ? known->name : name) == 0)
            return TY_OK;
    return cluster_add_device_type(c, known != NULL ? known : &made, type, error);
}

static ty_status add_points(platform *p, ty_error *error)
{
    char source[] = "inside a host: no limit", kind[] = "inside", name[NAME_ROOM + 16];
    link_type inner = {.name = kind, .source = source, .bandwidth_bytes_per_s = 1e15};
    ty_cluster *c = p->im->cluster;
    uint32_t left_out = 0, type, device;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < p->names.count; i++) {
        point *at = &p->points[i];
        const char *id = p->names.nodes[i].name;
        left_out += !at->is_linked;
        if (!at->is_linked)
            continue;
        TY_CHECK(cluster_add_vertex(c, at->is_host ? TY_VERTEX_HOST : TY_VERTEX_SWITCH, id, 0,
                                    &at->vertex, error),
                 status, done);
        if (!at->is_host)
            continue;
        snprintf(name, sizeof name, "%.200s/cpu", id);
        TY_CHECK(device_type(p, at->flop_per_s, &type, error), status, done);
        TY_CHECK(cluster_add_device(c, name, type, at->vertex, &device, error), status, done);
        TY_CHECK(builder_own_link(&p->im->builder, device, at->vertex, &inner, 1, error), status,
                 done);
    }
    if (left_out > 0)
        import_note(p->im, "%u routers that lead to no host are left out", left_out);
done:
    return status;
}

/* Kinds of links are told apart by what they are: "125MBps 50us". */
static ty_status add_wires(platform *p, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t w = 0; w < p->wire_count; w++) {
        const wire *e = &p->wires[w];
        char name[64], source[] = "bandwidth and latency in the platform";
        link_type type = {.name = name,
                          .source = source,
                          .bandwidth_bytes_per_s = e->bandwidth,
                          .latency_s = e->latency};
        if (e->from == NO_INDEX || e->from == e->to || !p->points[e->from].is_linked)
            continue;
        snprintf(name, sizeof name, "%.9gMBps %.9gus", e->bandwidth / 1e6, e->latency * 1e6);
        TY_CHECK(builder_own_link(&p->im->builder, p->points[e->from].vertex,
                                  p->points[e->to].vertex, &type, e->lanes, error),
                 status, done);
    }
done:
    return status;
}

static ty_status build(platform *p, ty_error *error)
{
    ty_status status;

    find_linked(p);
    TY_CHECK(add_points(p, error), status, done);
    TY_CHECK(add_wires(p, error), status, done);
    if (import_device(p->im) == NO_INDEX)
        import_note(p->im, "a platform knows no memory: 16 GiB and a byte a flop assumed (a device "
                           "is an option)");
    if (p->has_backbone)
        import_note(p->im, "a backbone bounds each message, but not all of them together");
done:
    return status;
}

static ty_status read(importer *im, ty_error *error)
{
    xml_document *document = NULL;
    platform p = {.im = im};
    const char *version;
    ty_status status;

    TY_CHECK(tree_open(&p.names, im, error), status, cleanup);
    TY_CHECK(tree_open(&p.link_names, im, error), status, cleanup);
    TY_CHECK(xml_parse(im->text, im->length, im->name, &document, error), status, cleanup);
    version = xml_attribute(xml_root(document), "version");
    if (version == NULL || version[0] != '4') {
        status = import_fail(im, error, xml_line(xml_root(document)),
                             "found platform version \"%.20s\", expected 4 or 4.1",
                             version != NULL ? version : "");
        goto cleanup;
    }
    TY_CHECK(add_zone(&p, xml_root(document), 0, error), status, cleanup);
    status = build(&p, error);
cleanup:
    tree_close(&p.names);
    tree_close(&p.link_names);
    ty_free(p.points);
    ty_free(p.wires);
    ty_free(p.link_wires);
    xml_free(document);
    return status;
}

static bool probe(const char *text, size_t length)
{
    return xml_looks_like(text, length, "platform");
}

const import_format import_simgrid = {"simgrid", "SimGrid platform XML", probe, read};
