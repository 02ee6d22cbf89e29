/* Reads hosts.json: the inside of hosts, their price and power. */
#include "build.h"
#include "catalogue_read.h"

#include <stdio.h>
#include <string.h>

/* ---- Hosts ------------------------------------------------------------------------------- */

static uint32_t find_vertex(const catalogue_host *host, const char *name)
{
    for (uint32_t v = 0; v < host->vertex_count; v++)
        if (strcmp(host->vertices[v].name, name) == 0)
            return v;
    return NO_INDEX;
}

static ty_status read_vertices(const catalogue *c, const ty_json *object, catalogue_host *host,
                               ty_error *error)
{
    const ty_json *list, *row;
    const char *kinds[TY_VERTEX_KIND_COUNT];

    for (int k = 0; k < TY_VERTEX_KIND_COUNT; k++)
        kinds[k] = ty_vertex_kind_name((ty_vertex_kind)k);
    TY_TRY(ty_json_array(object, "vertices", 1, 10000, &list, error));
    host->vertices = ty_arena_alloc(c->arena, ty_json_size(list), sizeof *host->vertices);
    TY_TRY(ty_check_memory(host->vertices != NULL, error));
    for (size_t i = 0; i < ty_json_size(list); i++) {
        catalogue_vertex *vertex = &host->vertices[i];
        int kind;
        row = ty_json_at(list, i);
        TY_TRY(ty_json_enum(row, "kind", kinds, TY_VERTEX_KIND_COUNT, &kind, error));
        vertex->kind = (ty_vertex_kind)kind;
        TY_TRY(catalogue_copy_member(c, row, "name", &vertex->name, error));
        if ((vertex->kind == TY_VERTEX_HOST) != (i == 0) || vertex->kind == TY_VERTEX_SWITCH)
            return ty_json_fail(row, error, "one host, first, and no network switch");
        if (find_vertex(host, vertex->name) != NO_INDEX)
            return ty_json_fail(row, error, "a name that no other vertex has");
        host->vertex_count++;
        TY_TRY(ty_json_end(row, error));
    }
    return TY_OK;
}

static ty_status read_edge(const catalogue *c, const ty_json *row, const catalogue_host *host,
                           catalogue_edge *out, ty_error *error)
{
    const char *from, *to, *link;

    out->lanes = 1;
    TY_TRY(ty_json_string(row, "from", &from, error));
    TY_TRY(ty_json_string(row, "to", &to, error));
    TY_TRY(ty_json_string(row, "type", &link, error));
    if (ty_json_has(row, "lanes"))
        TY_TRY(ty_json_number(row, "lanes", LANES_MINIMUM, LANES_MAXIMUM, &out->lanes, error));
    TY_TRY(ty_json_end(row, error));
    out->from = find_vertex(host, from);
    out->to = find_vertex(host, to);
    out->link = catalogue_find_link(c, link);
    if (out->from == NO_INDEX || out->to == NO_INDEX || out->from == out->to)
        return ty_json_fail(row, error, "a link between two vertices of the host");
    if (out->link == NO_INDEX || c->links[out->link].use == LINK_NETWORK)
        return ty_json_fail(row, error, "a type of link used inside hosts");
    return TY_OK;
}

static ty_status read_edges(const catalogue *c, const ty_json *object, catalogue_host *host,
                            ty_error *error)
{
    const ty_json *list;
    ty_status status = TY_OK;

    TY_TRY(ty_json_array(object, "links", 1, 100000, &list, error));
    host->edges = ty_arena_alloc(c->arena, ty_json_size(list), sizeof *host->edges);
    TY_TRY(ty_check_memory(host->edges != NULL, error));
    for (size_t i = 0; i < ty_json_size(list) && status == TY_OK; i++)
        status = read_edge(c, ty_json_at(list, i), host, &host->edges[host->edge_count++], error);
    return status;
}

/* ---- Layouts: servers of the usual build, in one line -------------------------------------- */

/* Devices below PCIe switches below processors, optionally with a device switch. */
typedef struct layout {
    uint32_t devices, nics, switches, roots; /* no switch: devices and NICs on the processors */
    uint32_t among, port, bridge, smp;       /* links; NO_INDEX if none */
} layout;

static ty_status read_kind(const catalogue *c, const ty_json *object, const char *key,
                           uint32_t *out, ty_error *error)
{
    const char *name;

    TY_TRY(ty_json_string(object, key, &name, error));
    *out = catalogue_find_link(c, name);
    if (*out == NO_INDEX || c->links[*out].use == LINK_NETWORK)
        return ty_json_fail(object, error, "as %s a kind of link used inside hosts", key);
    return TY_OK;
}

static ty_status read_layout(const catalogue *c, const ty_json *object, layout *out,
                             ty_error *error)
{
    const ty_json *row;

    *out = (layout){.among = NO_INDEX, .smp = NO_INDEX};
    TY_TRY(ty_json_object(object, "layout", &row, error));
    TY_TRY(ty_json_uint32(row, "devices", 1, 1000, &out->devices, error));
    TY_TRY(ty_json_uint32(row, "nics", 0, 1000, &out->nics, error));
    TY_TRY(ty_json_uint32(row, "switches", 0, 1000, &out->switches, error));
    TY_TRY(ty_json_uint32(row, "processors", 1, 1000, &out->roots, error));
    TY_TRY(read_kind(c, row, "port", &out->port, error));
    TY_TRY(read_kind(c, row, "bridge", &out->bridge, error));
    if (ty_json_has(row, "among"))
        TY_TRY(read_kind(c, row, "among", &out->among, error));
    if (out->roots > 1)
        TY_TRY(read_kind(c, row, "between", &out->smp, error));
    return ty_json_end(row, error);
}

static bool add_part(const catalogue *c, catalogue_host *host, ty_vertex_kind kind,
                     const char *name, uint32_t number)
{
    catalogue_vertex *vertex = &host->vertices[host->vertex_count];
    char text[64];

    snprintf(text, sizeof text, "%s-%u", name, number);
    vertex->kind = kind;
    vertex->name = ty_arena_strdup(c->arena, text);
    host->vertex_count++;
    return vertex->name != NULL;
}

static void add_wire(catalogue_host *host, uint32_t from, uint32_t to, uint32_t link)
{
    host->edges[host->edge_count++] = (catalogue_edge){from, to, link, 1};
}

/* The place of the i-th of `count` items, spread evenly and in order over `places`. */
static uint32_t place_of(uint32_t i, uint32_t count, uint32_t places)
{
    return (uint32_t)((uint64_t)i * places / count);
}

/* Vertices in this order: hub, processors (if several), device switch, PCIe switches, devices,
 * NICs. */
static bool draw(const catalogue *c, const layout *l, catalogue_host *host)
{
    uint32_t roots = l->roots > 1 ? l->roots : 0, below = l->switches > 0 ? l->switches : l->roots;
    uint32_t first_root = roots > 0 ? 1 : 0, among = 1 + roots;
    uint32_t first_switch = among + (l->among != NO_INDEX);
    uint32_t first_parent = l->switches > 0 ? first_switch : first_root;
    uint32_t first_device = first_switch + l->switches, first_nic = first_device + l->devices;
    bool is_ok = add_part(c, host, TY_VERTEX_HOST, "hub", 0);

    for (uint32_t i = 0; i < roots && is_ok; i++) {
        is_ok = add_part(c, host, TY_VERTEX_DEVICE_SWITCH, "root", i);
        add_wire(host, first_root + i, 0, l->smp);
    }
    if (l->among != NO_INDEX && is_ok)
        is_ok = add_part(c, host, TY_VERTEX_DEVICE_SWITCH, "device-switch", 0);
    for (uint32_t i = 0; i < l->switches && is_ok; i++) {
        is_ok = add_part(c, host, TY_VERTEX_DEVICE_SWITCH, "pcie", i);
        add_wire(host, first_switch + i, first_root + place_of(i, l->switches, l->roots),
                 l->bridge);
    }
    for (uint32_t i = 0; i < l->devices && is_ok; i++) {
        is_ok = add_part(c, host, TY_VERTEX_DEVICE, "gpu", i);
        if (l->among != NO_INDEX)
            add_wire(host, first_device + i, among, l->among);
        add_wire(host, first_device + i, first_parent + place_of(i, l->devices, below), l->port);
    }
    for (uint32_t i = 0; i < l->nics && is_ok; i++) {
        is_ok = add_part(c, host, TY_VERTEX_NIC, "nic", i);
        add_wire(host, first_nic + i, first_parent + place_of(i, l->nics, below), l->bridge);
    }
    return is_ok;
}

static ty_status draw_layout(const catalogue *c, const ty_json *object, catalogue_host *host,
                             ty_error *error)
{
    layout l;
    size_t vertices, edges;

    TY_TRY(read_layout(c, object, &l, error));
    vertices = 2 + (size_t)l.roots + l.switches + l.devices + l.nics;
    edges = (size_t)l.roots + l.switches + 2 * (size_t)l.devices + l.nics;
    host->vertices = ty_arena_alloc(c->arena, vertices, sizeof *host->vertices);
    host->edges = ty_arena_alloc(c->arena, edges, sizeof *host->edges);
    return ty_check_memory(host->vertices != NULL && host->edges != NULL && draw(c, &l, host),
                           error);
}

/* Replaces links of one kind by another, as in {"nvlink4": "nvlink5"}. */
static ty_status replace_links(const catalogue *c, const ty_json *object, catalogue_host *host,
                               ty_error *error)
{
    const ty_json *with;
    catalogue_edge *edges;

    TY_TRY(ty_json_object(object, "with", &with, error));
    edges = ty_arena_alloc(c->arena, host->edge_count, sizeof *edges);
    TY_TRY(ty_check_memory(edges != NULL, error));
    memcpy(edges, host->edges, host->edge_count * sizeof *edges);
    host->edges = edges;
    for (size_t i = 0; i < ty_json_size(with); i++) {
        const ty_json *member = ty_json_at(with, i);
        const char *name;
        uint32_t from = catalogue_find_link(c, ty_json_key(member)), to, count = 0;
        TY_TRY(ty_json_as_string(member, &name, error));
        to = catalogue_find_link(c, name);
        for (uint32_t e = 0; from != NO_INDEX && e < host->edge_count; e++)
            if (edges[e].link == from) {
                edges[e].link = to;
                count++;
            }
        if (to == NO_INDEX || count == 0 || c->links[to].use != c->links[from].use)
            return ty_json_fail(member, error, "two kinds of link of one use, the first in use");
    }
    return TY_OK;
}

/* The inside of a host: its own, in full or as a layout, or that of an earlier host ("like") with
 * other devices and kinds of link. */
static ty_status read_inside(const catalogue *c, const ty_json *object, catalogue_host *host,
                             ty_error *error)
{
    const char *name;
    uint32_t like;
    ty_status status;

    if (ty_json_has(object, "layout"))
        return draw_layout(c, object, host, error);
    if (!ty_json_has(object, "like")) {
        status = read_vertices(c, object, host, error);
        return status == TY_OK ? read_edges(c, object, host, error) : status;
    }
    TY_TRY(ty_json_string(object, "like", &name, error));
    if ((like = catalogue_find_host(c, name)) == NO_INDEX)
        return ty_json_fail(object, error, "to be like an earlier host");
    host->vertex_count = c->hosts[like].vertex_count;
    host->vertices = c->hosts[like].vertices;
    host->edge_count = c->hosts[like].edge_count;
    host->edges = c->hosts[like].edges;
    return ty_json_has(object, "with") ? replace_links(c, object, host, error) : TY_OK;
}

/* Price, power, memory and NICs are optional, with their own sources. */
static ty_status read_figures(const catalogue *c, const ty_json *object, const ty_json *sources,
                              ty_host_type *out, ty_error *error)
{
    citation price = {.sources = sources}, power = {.sources = sources};
    const ty_json *figure;
    double memory_bytes = 0, nics = 0;
    ty_status status = TY_OK;

    if (ty_json_has(object, "price_usd_per_hour")) {
        TY_CHECK(ty_json_object(object, "price_usd_per_hour", &figure, error), status, cleanup);
        TY_CHECK(catalogue_copy_member(c, figure, "date", &out->price_date, error), status,
                 cleanup);
        TY_CHECK(catalogue_read_figure(object, "price_usd_per_hour", 0, 1e6, &price,
                                       &out->price_usd_per_hour, error),
                 status, cleanup);
        TY_CHECK(catalogue_take_citation(c, &price, &out->price_source, error), status, cleanup);
    }
    if (ty_json_has(object, "power_w"))
        TY_CHECK(catalogue_read_figure(object, "power_w", 0, 1e7, &power, &out->power_w, error),
                 status, cleanup);
    if (ty_json_has(object, "memory_bytes"))
        TY_CHECK(
            catalogue_read_figure(object, "memory_bytes", 1, 1e15, &power, &memory_bytes, error),
            status, cleanup);
    if (ty_json_has(object, "nics_per_link"))
        TY_CHECK(catalogue_read_figure(object, "nics_per_link", 1, 1024, &power, &nics, error),
                 status, cleanup);
    out->memory_bytes = (uint64_t)memory_bytes;
    out->nics_per_link = (uint32_t)nics;
cleanup:
    ty_text_clear(&price.text);
    ty_text_clear(&power.text);
    return status;
}

/* "network_bits_per_s": a host has no more network than its source says. */
static ty_status check_network(const catalogue *c, const ty_json *object, const ty_json *sources,
                               const catalogue_host *host, ty_error *error)
{
    citation cited = {.sources = sources};
    const double bits = 8, drawn = bits * catalogue_host_count_of(host, TY_VERTEX_NIC) *
                                   c->links[host->network].type.bandwidth_bytes_per_s;
    double stated = 0;
    ty_status status;

    if (!ty_json_has(object, "network_bits_per_s"))
        return TY_OK;
    status = catalogue_read_figure(object, "network_bits_per_s", 1, 1e18, &cited, &stated, error);
    ty_text_clear(&cited.text);
    if (status == TY_OK && drawn > stated)
        return ty_json_fail(object, error, "NICs of %g bits/s in total, its network_bits_per_s",
                            stated);
    return status;
}

/* "domain_hosts": hosts that share a device switch. "trays": hosts of a rack. */
static ty_status read_domain(const catalogue *c, const ty_json *object, catalogue_host *host,
                             ty_error *error)
{
    const char *tray;

    host->tray = NO_INDEX;
    if (ty_json_has(object, "domain_hosts")) {
        TY_TRY(ty_json_uint32(object, "domain_hosts", 2, 10000, &host->domain_hosts, error));
        host->domain_switch = find_vertex(host, "device-switch-0");
        if (host->domain_switch == NO_INDEX)
            return ty_json_fail(object, error, "a switch among the devices that hosts can share");
    }
    if (ty_json_has(object, "trays")) {
        TY_TRY(ty_json_string(object, "trays", &tray, error));
        host->tray = catalogue_find_host(c, tray);
        if (host->tray == NO_INDEX || c->hosts[host->tray].domain_hosts == 0)
            return ty_json_fail(object, error, "trays that are an earlier host with domain_hosts");
    }
    return TY_OK;
}

ty_status catalogue_read_host(const catalogue *c, const ty_json *object, const ty_json *sources,
                              catalogue_host *out, ty_error *error)
{
    citation cited = {.sources = sources};
    const char *device, *network;
    ty_status status;

    TY_CHECK(catalogue_copy_member(c, object, "name", &out->name, error), status, cleanup);
    TY_CHECK(catalogue_cite(&cited, object, error), status, cleanup);
    TY_CHECK(catalogue_take_citation(c, &cited, &out->type.source, error), status, cleanup);
    out->type.name = out->name;
    TY_CHECK(read_figures(c, object, sources, &out->type, error), status, cleanup);
    TY_CHECK(ty_json_string(object, "device", &device, error), status, cleanup);
    TY_CHECK(ty_json_string(object, "network", &network, error), status, cleanup);
    out->device_type = catalogue_find_device(c, device);
    out->network = catalogue_find_link(c, network);
    if (out->device_type == NO_INDEX) {
        status = ty_json_fail(object, error, "as device one of devices.json");
        goto cleanup;
    }
    if (out->network == NO_INDEX || c->links[out->network].use != LINK_NETWORK) {
        status = ty_json_fail(object, error, "as network one of links.json");
        goto cleanup;
    }
    TY_CHECK(read_inside(c, object, out, error), status, cleanup);
    TY_CHECK(read_domain(c, object, out, error), status, cleanup);
    TY_CHECK(check_network(c, object, sources, out, error), status, cleanup);
    status = ty_json_end(object, error);
cleanup:
    ty_text_clear(&cited.text);
    return status;
}
