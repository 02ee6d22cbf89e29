/* SimGrid platforms (XML, version 4). A platform lists the links that a message passes. This
 * reconstructs a graph: routes place their links end to end, and placed links must match. A route
 * that does not fit the graph gets its own wires, like the links it names: latency and bandwidth
 * are right, but it shares them with no other. A host is one device: SimGrid has its speed but no
 * memory. */
#include "import_simgrid.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { DEPTH_LIMIT = 32 };

/* ---- Hosts, links, routes ---------------------------------------------------------------- */

static ty_status add_host(platform *p, const xml_element *e, ty_error *error)
{
    const char *id;
    double speed, cores = 1;
    uint32_t index;

    TY_TRY(simgrid_need(p->im, e, "id", &id, error));
    TY_TRY(simgrid_quantity(p->im, e, "speed", 1, 1e18, &speed, error));
    if (xml_attribute(e, "core") != NULL)
        TY_TRY(simgrid_quantity(p->im, e, "core", 1, 1e6, &cores, error));
    return simgrid_new_point(p, id, xml_line(e), speed * cores, &index, error);
}

static ty_status add_router(platform *p, const xml_element *e, ty_error *error)
{
    const char *id;
    uint32_t index;

    TY_TRY(simgrid_need(p->im, e, "id", &id, error));
    return simgrid_new_point(p, id, xml_line(e), 0, &index, error);
}

static ty_status add_link(platform *p, const xml_element *e, ty_error *error)
{
    const char *id, *policy;
    double bandwidth, latency = 0;
    uint32_t index, before = p->link_names.count;

    TY_TRY(simgrid_need(p->im, e, "id", &id, error));
    TY_TRY(simgrid_quantity(p->im, e, "bandwidth", 1, BANDWIDTH_MAXIMUM, &bandwidth, error));
    if (xml_attribute(e, "latency") != NULL)
        TY_TRY(simgrid_quantity(p->im, e, "latency", 0, LATENCY_MAXIMUM, &latency, error));
    TY_TRY(tree_node_of(&p->link_names, id, xml_line(e), &index, error));
    if (p->link_names.count == before)
        return import_fail(p->im, error, xml_line(e), "found link %.60s a second time", id);
    if (p->link_names.count > p->link_room) {
        uint32_t *wires = ty_resize(p->link_wires, p->link_names.room, sizeof *wires);
        TY_TRY(ty_check_memory(wires != NULL, error));
        p->link_wires = wires;
        p->link_room = p->link_names.room;
    }
    p->link_wires[index] = p->wire_count;
    TY_TRY(simgrid_new_wire(p, NO_INDEX, NO_INDEX, bandwidth, latency, 1, error));
    policy = xml_attribute(e, "sharing_policy");
    p->wires[p->link_wires[index]].is_fatpipe = policy != NULL && strcmp(policy, "FATPIPE") == 0;
    return TY_OK;
}

static ty_status list_links(platform *p, const xml_element *route, uint32_t *list, uint32_t *count,
                            ty_error *error)
{
    ty_status status = TY_OK;

    *count = 0;
    for (const xml_element *e = xml_first(route); e != NULL && status == TY_OK; e = xml_next(e)) {
        if (!xml_is(e, "link_ctn"))
            continue;
        if (*count == DEPTH_LIMIT)
            return import_fail(p->im, error, xml_line(e), "found more than %d links in a route",
                               DEPTH_LIMIT);
        status = simgrid_wire_named(p, e, "id", &list[*count], error);
        *count += status == TY_OK;
    }
    return status;
}

/* The other end of a placed link at `at`; NO_INDEX if it does not touch `at`. */
static uint32_t beyond(const platform *p, uint32_t index, uint32_t at)
{
    const wire *w = &p->wires[index];

    if (w->from == NO_INDEX)
        return NO_INDEX;
    return w->from == at ? w->to : w->to == at ? w->from : NO_INDEX;
}

/* The unplaced rest of a route between two points: links [first, end) of the list. */
typedef struct stretch {
    uint32_t list[DEPTH_LIMIT], first, end;
    uint32_t from, to;
} stretch;

static bool is_passable(const platform *p, uint32_t index, bool over_fatpipes)
{
    return over_fatpipes || !p->wires[index].is_fatpipe;
}

/* Shortens the rest from both ends over placed links. */
static void shorten(const platform *p, stretch *s, bool over_fatpipes)
{
    uint32_t next;

    while (s->first < s->end && is_passable(p, s->list[s->first], over_fatpipes) &&
           (next = beyond(p, s->list[s->first], s->from)) != NO_INDEX) {
        s->from = next;
        s->first++;
    }
    while (s->first < s->end && is_passable(p, s->list[s->end - 1], over_fatpipes) &&
           (next = beyond(p, s->list[s->end - 1], s->to)) != NO_INDEX) {
        s->to = next;
        s->end--;
    }
}

/* Whether the rest can be placed; only fatpipes may be placed elsewhere. */
static bool can_place(const platform *p, const stretch *s, bool with_fatpipes)
{
    for (uint32_t i = s->first; i < s->end; i++) {
        const wire *w = &p->wires[s->list[i]];
        if (w->from != NO_INDEX && !(with_fatpipes && w->is_fatpipe))
            return false;
    }
    return s->first < s->end ? s->from != s->to : s->from == s->to;
}

/* Places links end to end, with junctions between them. A link that is placed elsewhere gets a
 * second copy.
 */
static ty_status place_links(platform *p, stretch *s, ty_error *error)
{
    for (uint32_t i = s->first; i < s->end; i++) {
        wire w = p->wires[s->list[i]];
        uint32_t next = s->to;
        if (i + 1 < s->end)
            TY_TRY(simgrid_new_junction(p, &next, error));
        if (w.from == NO_INDEX) {
            p->wires[s->list[i]].from = s->from;
            p->wires[s->list[i]].to = next;
        } else {
            TY_TRY(simgrid_new_wire(p, s->from, next, w.bandwidth, w.latency, w.lanes, error));
        }
        s->from = next;
    }
    return TY_OK;
}

/* Stores a route between two hosts, to compare it with the graph's. */
static ty_status keep_route(platform *p, const stretch *s, route_read *made, ty_error *error)
{
    *made = (route_read){.from = s->from, .to = s->to, .bandwidth = BANDWIDTH_MAXIMUM};
    for (uint32_t i = 0; i < s->end; i++) {
        made->latency += p->wires[s->list[i]].latency;
        made->bandwidth = fmin(made->bandwidth, p->wires[s->list[i]].bandwidth);
    }
    TY_TRY(ty_reserve(&p->routes, p->route_count, &p->route_room, sizeof *p->routes, error));
    p->routes[p->route_count++] = *made;
    return TY_OK;
}

/* Adds a separate wire over a junction: directly linked hosts would forward for each other.
 */
static ty_status place_apart(platform *p, const route_read *route, ty_error *error)
{
    uint32_t between;

    TY_TRY(simgrid_new_junction(p, &between, error));
    TY_TRY(simgrid_new_wire(p, route->from, between, route->bandwidth, route->latency, 1, error));
    return simgrid_new_wire(p, between, route->to, route->bandwidth, 0, 1, error);
}

static ty_status place_route(platform *p, const xml_element *e, uint32_t from, uint32_t to,
                             ty_error *error)
{
    stretch whole = {.from = from, .to = to}, left;
    route_read route;
    ty_status status = list_links(p, e, whole.list, &whole.end, error);

    if (status != TY_OK || from == to) /* messages to itself pass no links */
        return status;
    if (whole.end > 0 && p->points[from].is_host && p->points[to].is_host) {
        TY_TRY(keep_route(p, &whole, &route, error));
        if (p->is_apart)
            return place_apart(p, &route, error);
    }
    left = whole;
    shorten(p, &left, true);
    if (can_place(p, &left, false))
        return place_links(p, &left, error);
    left = whole;
    shorten(p, &left, false);
    if (can_place(p, &left, true))
        return place_links(p, &left, error);
    if (whole.end == 0)
        return import_fail(p->im, error, xml_line(e),
                           "found a route without links between two places, expected some");
    p->redrawn++;
    return place_links(p, &whole, error);
}

static ty_status add_route(platform *p, const xml_element *e, ty_error *error)
{
    bool is_zone = xml_is(e, "zoneRoute") || xml_is(e, "ASroute") || xml_is(e, "bypassZoneRoute");
    const char *names[2];
    uint32_t ends[2], before = p->names.count;

    TY_TRY(simgrid_need(p->im, e, is_zone ? "gw_src" : "src", &names[0], error));
    TY_TRY(simgrid_need(p->im, e, is_zone ? "gw_dst" : "dst", &names[1], error));
    for (int k = 0; k < 2; k++) {
        TY_TRY(simgrid_point(p, names[k], xml_line(e), &ends[k], error));
        if (p->names.count > before)
            return import_fail(p->im, error, xml_line(e),
                               "found a route to %.60s, expected a host or router named before",
                               names[k]);
    }
    return place_route(p, e, ends[0], ends[1], error);
}

/* ---- Zones ------------------------------------------------------------------------------- */

static ty_status add_zone(platform *p, const xml_element *zone, int depth, ty_error *error);

/* Ignores, with a note, elements that change over time or apply to one pair of hosts. */
static ty_status leave_out(platform *p, const xml_element *e, ty_error *error)
{
    (void)error;
    import_note(p->im, "line %u: <%.40s> is left out", xml_line(e), xml_name(e));
    return TY_OK;
}

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
        {"host", add_host},
        {"router", add_router},
        {"link", add_link},
        {"cluster", simgrid_add_cluster},
        {"route", add_route},
        {"zoneRoute", add_route},
        {"ASroute", add_route},
        {"prop", skip},
        {"config", skip},
        {"mount", skip},
        {"storage", skip},
        {"storage_type", skip},
        {"trace", leave_out},
        {"trace_connect", leave_out},
        {"bypassRoute", leave_out},
        {"bypassASroute", leave_out},
        {"bypassZoneRoute", leave_out},
    };

    if (xml_is(e, "peer"))
        return import_fail(p->im, error, xml_line(e),
                           "found <peer>, whose messages take as long as its coordinates say "
                           "(Vivaldi), expected hosts with links that could be drawn");
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

/* Number of endpoints in a zone. */
static uint32_t count_parts(const xml_element *zone)
{
    static const char *const parts[] = {"zone", "AS", "cluster", "host", "peer"};
    uint32_t count = 0;

    for (const xml_element *e = xml_first(zone); e != NULL; e = xml_next(e))
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            count += xml_is(e, parts[i]);
    return count;
}

static ty_status add_zone(platform *p, const xml_element *zone, int depth, ty_error *error)
{
    const char *routing = xml_attribute(zone, "routing");
    bool is_star = routing != NULL && strcasecmp(routing, "Cluster") == 0;
    ty_status status = TY_OK;

    if (routing != NULL && strcasecmp(routing, "Vivaldi") == 0 && count_parts(zone) > 1)
        return import_fail(p->im, error, xml_line(zone),
                           "found routing=\"%s\" among several parts, where messages take as long "
                           "as coordinates say, expected parts with links that could be drawn",
                           routing);
    if (routing != NULL && strcasecmp(routing, "Wifi") == 0)
        return import_fail(p->im, error, xml_line(zone),
                           "found routing=\"%s\", a cell that all share, expected zones whose "
                           "links can be drawn",
                           routing);
    if (depth > DEPTH_LIMIT)
        return import_fail(p->im, error, xml_line(zone), "found zones nested deeper than %d",
                           DEPTH_LIMIT);
    for (const xml_element *e = xml_first(zone); e != NULL && status == TY_OK; e = xml_next(e))
        if (!is_star || !simgrid_is_of_star(e))
            status = add_element(p, e, depth, error);
    return status == TY_OK && is_star ? simgrid_add_star(p, zone, error) : status;
}

/* ---- Into the cluster -------------------------------------------------------------------- */

static uint32_t group_of(const platform *p, uint32_t i)
{
    while (p->points[i].group != i) {
        p->points[i].group = p->points[p->points[i].group].group;
        i = p->points[i].group;
    }
    return i;
}

/* Finds the points connected to a host: excludes routers that lead nowhere. */
static void find_linked(platform *p)
{
    for (uint32_t i = 0; i < p->names.count; i++)
        p->points[i].group = i;
    for (uint32_t w = 0; w < p->wire_count; w++)
        if (p->wires[w].from != NO_INDEX)
            p->points[group_of(p, p->wires[w].from)].group = group_of(p, p->wires[w].to);
    for (uint32_t i = 0; i < p->names.count; i++)
        if (p->points[i].is_host)
            p->points[group_of(p, i)].is_linked = true;
    for (uint32_t i = 0; i < p->names.count; i++)
        p->points[i].is_linked = p->points[group_of(p, i)].is_linked;
}

/* The options' device, else one made from the speed. */
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
    return ty_cluster_add_device_type(c, known != NULL ? known : &made, type, error);
}

static ty_status add_points(platform *p, ty_error *error)
{
    char source[] = "inside a host: no limit", kind[] = "inside", name[SIMGRID_NAME_ROOM + 16];
    link_type inner = {.name = kind, .source = source, .bandwidth_bytes_per_s = 1e15};
    ty_cluster *c = p->im->cluster;
    uint32_t left_out = 0, type, device;

    for (uint32_t i = 0; i < p->names.count; i++) {
        point *at = &p->points[i];
        const char *id = p->names.nodes[i].name;
        left_out += !at->is_linked;
        if (!at->is_linked)
            continue;
        TY_TRY(ty_cluster_add_vertex(c, at->is_host ? TY_VERTEX_HOST : TY_VERTEX_SWITCH, id, 0,
                                     &at->vertex, error));
        if (!at->is_host)
            continue;
        snprintf(name, sizeof name, "%.200s/cpu", id);
        TY_TRY(device_type(p, at->flop_per_s, &type, error));
        at->device = c->device_count;
        TY_TRY(ty_cluster_add_device(c, name, type, at->vertex, &device, error));
        TY_TRY(builder_own_link(&p->im->builder, device, at->vertex, &inner, 1, error));
    }
    if (left_out > 0)
        import_note(p->im, "%u routers that lead to no host are left out", left_out);
    return TY_OK;
}

/* The name of a kind of link is its figures: "125MBps 50us". */
static ty_status add_wires(platform *p, ty_error *error)
{
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
        TY_TRY(builder_own_link(&p->im->builder, p->points[e->from].vertex, p->points[e->to].vertex,
                                &type, e->lanes, error));
    }
    return TY_OK;
}

static ty_status build(platform *p, ty_error *error)
{
    find_linked(p);
    TY_TRY(add_points(p, error));
    TY_TRY(add_wires(p, error));
    if (import_device(p->im) == NO_INDEX)
        import_note(p->im, "a platform knows no memory: 16 GiB and a byte a flop assumed (a device "
                           "is an option)");
    if (p->redrawn > 0)
        import_note(p->im,
                    "%u routes have links that lie elsewhere in others: drawn again for each, not "
                    "shared with those",
                    p->redrawn);
    if (p->has_backbone)
        import_note(p->im, "a backbone bounds each message, but not all of them together");
    return TY_OK;
}

/* Number of routes between hosts that differ in the graph, where least latency decides. */
static ty_status count_others(const platform *p, uint32_t *others, ty_error *error)
{
    ty_routes *routes = NULL;
    ty_status status;

    *others = 0;
    TY_CHECK(ty_routes_new(p->im->cluster, &routes, error), status, cleanup);
    for (uint32_t r = 0; r < p->route_count; r++) {
        const route_read *want = &p->routes[r];
        ty_path way;
        TY_CHECK(ty_routes_find(routes, p->points[want->from].device, p->points[want->to].device,
                                &way, error),
                 status, cleanup);
        *others += fabs(way.latency_s - want->latency) > 1e-12 + 1e-9 * want->latency ||
                   fabs(way.bandwidth_bytes_per_s - want->bandwidth) > 1e-9 * want->bandwidth;
    }
cleanup:
    ty_routes_free(routes);
    return status;
}

static void close_platform(platform *p)
{
    tree_close(&p->names);
    tree_close(&p->link_names);
    ty_free(p->points);
    ty_free(p->wires);
    ty_free(p->link_wires);
    ty_free(p->routes);
}

/* @param is_apart every route between two hosts is a separate wire */
static ty_status draw(importer *im, const xml_element *root, bool is_apart, uint32_t *others,
                      ty_error *error)
{
    platform p = {.im = im, .is_apart = is_apart};
    ty_status status;

    TY_CHECK(import_start(im, error), status, cleanup);
    TY_CHECK(tree_open(&p.names, im, error), status, cleanup);
    TY_CHECK(tree_open(&p.link_names, im, error), status, cleanup);
    TY_CHECK(add_zone(&p, root, 0, error), status, cleanup);
    TY_CHECK(build(&p, error), status, cleanup);
    TY_CHECK(import_finish(im, error), status, cleanup);
    TY_CHECK(count_others(&p, others, error), status, cleanup);
    if (is_apart)
        import_note(im,
                    "no graph of the links has all routes: each of the %u between two hosts is "
                    "drawn by itself, as long and as wide as it is, and shares its links with "
                    "none",
                    p.route_count);
    if (is_apart && *others > 0)
        import_note(im,
                    "%u of these are not those of the platform: the way back is the way there "
                    "here",
                    *others);
cleanup:
    close_platform(&p);
    return status;
}

static ty_status read(importer *im, ty_error *error)
{
    xml_document *document = NULL;
    const char *version;
    uint32_t others = 0;
    ty_status status;

    TY_CHECK(xml_parse(im->text, im->length, im->name, &document, error), status, cleanup);
    version = xml_attribute(xml_root(document), "version");
    if (version == NULL || version[0] != '4') {
        status = import_fail(im, error, xml_line(xml_root(document)),
                             "found platform version \"%.20s\", expected 4 or 4.1",
                             version != NULL ? version : "");
        goto cleanup;
    }
    TY_CHECK(draw(im, xml_root(document), false, &others, error), status, cleanup);
    if (others > 0)
        status = draw(im, xml_root(document), true, &others, error);
cleanup:
    xml_free(document);
    return status;
}

static bool probe(const char *text, size_t length)
{
    return xml_looks_like(text, length, "platform");
}

const import_format import_simgrid = {"simgrid", "SimGrid platform XML", probe, read};
