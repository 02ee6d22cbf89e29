/* A cluster as a SimGrid platform.
 *
 * SimGrid must route as ty_cluster_path does. An island is a connected part without the network
 * switches, usually a host. If every island is connected to one switch and the switches form a
 * tree, the route between islands goes up, through the tree and down. Then each island is a zone
 * with the routes between its devices and up, and each switch is a zone with only a router. SimGrid
 * finds the only route through the tree, so the file grows with the devices, not with their pairs.
 * For other clusters the file lists all pairs, up to a size.
 *
 * SimGrid requires a link in every route between zones, although routes up end at the switch. Those
 * routes use the link "free", which has no latency and no effective limit. */
#include "platform.h"

#include <math.h>
#include <stdio.h>

#define NONE UINT32_MAX
enum { PAIRS_LIMIT = 1 << 17 }; /* of routes written out for one zone: 512 devices */

/** Devices that compute on the same SimGrid host are one endpoint. */
typedef struct endpoint {
    uint32_t device; /* the first of them */
    uint32_t host;   /* of the cluster, if its devices share cores; else NONE */
    uint32_t island;
} endpoint;

typedef struct platform {
    const ty_cluster *cluster;
    uint32_t endpoint_count;
    endpoint *endpoints; /* by island, then by device */
    uint32_t *islands;   /* [vertex]: smallest vertex of its island; NONE for network switches */
    uint32_t *gates;     /* [island]: its network switch; NONE: no or several */
    bool is_tree;
    bool has_speeds; /* of the devices, and latencies; else TY_SIMGRID_FLOP_PER_S, and none */
    ty_text text;
} platform;

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for a SimGrid platform");
}

ty_status ty_simgrid_host_name(const ty_cluster *cluster, uint32_t device,
                               char out[TY_SIMGRID_NAME_SIZE], ty_error *error)
{
    uint32_t host;

    if (device >= ty_cluster_device_count(cluster))
        return ty_fail(error, TY_EINVAL, "cluster %s: found device %u, expected one below %u",
                       ty_cluster_name(cluster), device, ty_cluster_device_count(cluster));
    host = ty_cluster_device_host(cluster, device);
    if (ty_cluster_host_cores(cluster, host) > 0)
        snprintf(out, TY_SIMGRID_NAME_SIZE, "host-%u", host);
    else
        snprintf(out, TY_SIMGRID_NAME_SIZE, "device-%u", device);
    return TY_OK;
}

/* ---- Structure --------------------------------------------------------------------------- */

static bool is_switch(const ty_cluster *cluster, uint32_t vertex)
{
    return ty_cluster_vertex_kind(cluster, vertex) == TY_VERTEX_SWITCH;
}

static uint32_t root_of(uint32_t *parents, uint32_t vertex)
{
    while (parents[vertex] != vertex) {
        parents[vertex] = parents[parents[vertex]];
        vertex = parents[vertex];
    }
    return vertex;
}

/* Islands by union-find; the smaller root wins, so a root is the smallest vertex. */
static void find_islands(platform *p)
{
    const ty_cluster *cluster = p->cluster;
    uint32_t count = ty_cluster_vertex_count(cluster);

    for (uint32_t v = 0; v < count; v++)
        p->islands[v] = v;
    for (uint32_t i = 0; i < ty_cluster_link_count(cluster); i++) {
        const ty_link_edge *link = ty_cluster_link(cluster, i);
        uint32_t a = root_of(p->islands, link->from), b = root_of(p->islands, link->to);
        if (!is_switch(cluster, link->from) && !is_switch(cluster, link->to))
            p->islands[a < b ? b : a] = a < b ? a : b;
    }
    for (uint32_t v = 0; v < count; v++)
        p->islands[v] = root_of(p->islands, v);
    for (uint32_t v = 0; v < count; v++)
        if (is_switch(cluster, v))
            p->islands[v] = NONE;
}

/* Gates of the islands. An island with two different ones is marked with itself, then gets none. */
static void find_gates(platform *p)
{
    const ty_cluster *cluster = p->cluster;
    uint32_t count = ty_cluster_vertex_count(cluster);

    for (uint32_t v = 0; v < count; v++)
        p->gates[v] = NONE;
    for (uint32_t i = 0; i < ty_cluster_link_count(cluster); i++) {
        const ty_link_edge *link = ty_cluster_link(cluster, i);
        bool is_from = is_switch(cluster, link->from);
        uint32_t gate = is_from ? link->from : link->to;
        uint32_t island = p->islands[is_from ? link->to : link->from];
        if (is_from == is_switch(cluster, link->to))
            continue;
        p->gates[island] = p->gates[island] == NONE || p->gates[island] == gate ? gate : island;
    }
    for (uint32_t v = 0; v < count; v++)
        if (p->gates[v] == v)
            p->gates[v] = NONE;
}

/* Whether the network switches form one tree: connected, with one link fewer than switches. */
static ty_status find_tree(platform *p, ty_error *error)
{
    const ty_cluster *cluster = p->cluster;
    uint32_t count = ty_cluster_vertex_count(cluster), switches = 0, joined = 0, links = 0;
    uint32_t *parents = ty_alloc(count, sizeof *parents);

    TY_TRY(ty_check_memory(parents != NULL, error));
    for (uint32_t v = 0; v < count; v++) {
        parents[v] = v;
        switches += is_switch(cluster, v);
    }
    for (uint32_t i = 0; i < ty_cluster_link_count(cluster); i++) {
        const ty_link_edge *link = ty_cluster_link(cluster, i);
        uint32_t a, b;
        if (!is_switch(cluster, link->from) || !is_switch(cluster, link->to))
            continue;
        links++;
        a = root_of(parents, link->from);
        b = root_of(parents, link->to);
        joined += a != b;
        parents[a] = b;
    }
    ty_free(parents);
    p->is_tree = switches > 0 && links + 1 == switches && joined == links;
    return TY_OK;
}

/* Endpoints in the order of their islands; counting sort by island. */
static ty_status find_endpoints(platform *p, ty_error *error)
{
    const ty_cluster *cluster = p->cluster;
    uint32_t devices = ty_cluster_device_count(cluster),
             vertices = ty_cluster_vertex_count(cluster);
    endpoint *found = ty_alloc(devices, sizeof *found);
    uint32_t *starts = ty_alloc((size_t)vertices + 1, sizeof *starts);
    bool *has_host = ty_alloc(ty_cluster_host_count(cluster), sizeof *has_host);
    ty_status status = TY_OK;

    p->endpoints = ty_alloc(devices, sizeof *p->endpoints);
    TY_CHECK(
        ty_check_memory(found != NULL && starts != NULL && has_host != NULL && p->endpoints != NULL,
                        error),
        status, cleanup);
    for (uint32_t d = 0; d < devices; d++) {
        uint32_t host = ty_cluster_device_host(cluster, d);
        bool is_shared = ty_cluster_host_cores(cluster, host) > 0;
        uint32_t island = p->islands[ty_cluster_device_vertex(cluster, d)];
        if (is_shared && has_host[host])
            continue;
        has_host[host] = true;
        found[p->endpoint_count++] = (endpoint){d, is_shared ? host : NONE, island};
        starts[island + 1]++;
    }
    for (uint32_t v = 0; v < vertices; v++)
        starts[v + 1] += starts[v];
    for (uint32_t e = 0; e < p->endpoint_count; e++)
        p->endpoints[starts[found[e].island]++] = found[e];
cleanup:
    ty_free(found);
    ty_free(starts);
    ty_free(has_host);
    return status;
}

/* One zone per island works for several islands, each with its gate, around a tree. */
static bool is_hierarchical(const platform *p)
{
    if (!p->is_tree)
        return false;
    for (uint32_t e = 0; e < p->endpoint_count; e++)
        if (p->gates[p->endpoints[e].island] == NONE)
            return false;
    return p->endpoints[0].island != p->endpoints[p->endpoint_count - 1].island;
}

/* ---- Hosts whose cores are shared -------------------------------------------------------- */

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fabs(b);
}

/* Whether two pairs of devices have the same network for one message. */
static ty_status check_alike(const platform *p, const uint32_t pair[2], const uint32_t model[2],
                             ty_error *error)
{
    ty_path path = {0}, expected = {0};
    ty_status status;

    TY_CHECK(ty_cluster_path(p->cluster, pair[0], pair[1], &path, error), status, cleanup);
    TY_CHECK(ty_cluster_path(p->cluster, model[0], model[1], &expected, error), status, cleanup);
    if (!is_near(path.latency_s, expected.latency_s) ||
        !is_near(path.bandwidth_bytes_per_s, expected.bandwidth_bytes_per_s))
        status = ty_fail(error, TY_EUNSUPPORTED,
                         "cluster %s: found different paths between devices %u and %u and between "
                         "%u and %u, expected devices that share their host's cores to be linked "
                         "alike",
                         ty_cluster_name(p->cluster), pair[0], pair[1], model[0], model[1]);
cleanup:
    ty_path_clear(&path);
    ty_path_clear(&expected);
    return status;
}

/* Devices of one endpoint must be interchangeable: for each other, and for other devices. */
static ty_status check_sharing(const platform *p, const endpoint *e, uint32_t *second,
                               ty_error *error)
{
    uint32_t previous = e->device, other = NONE;

    *second = NONE;
    for (uint32_t i = 0; i < p->endpoint_count && other == NONE; i++)
        if (p->endpoints[i].device != e->device)
            other = p->endpoints[i].device;
    for (uint32_t d = e->device + 1; d < ty_cluster_device_count(p->cluster); d++) {
        if (ty_cluster_device_host(p->cluster, d) != e->host)
            continue;
        if (*second == NONE)
            *second = d;
        TY_TRY(check_alike(p, (uint32_t[]){previous, d}, (uint32_t[]){e->device, *second}, error));
        TY_TRY(check_alike(p, (uint32_t[]){e->device, d}, (uint32_t[]){e->device, *second}, error));
        if (other != NONE)
            TY_TRY(check_alike(p, (uint32_t[]){d, other}, (uint32_t[]){e->device, other}, error));
        previous = d;
    }
    return TY_OK;
}

/* The route from a shared host to itself: messages between its devices. Each has the full
 * bandwidth, because each pair has separate links. */
static ty_status write_loop_link(platform *p, const endpoint *e, ty_error *error)
{
    ty_path path = {0};
    uint32_t second;
    char bandwidth[32], latency[32];
    ty_status status = check_sharing(p, e, &second, error);

    if (status != TY_OK || second == NONE)
        return status;
    TY_TRY(ty_cluster_path(p->cluster, e->device, second, &path, error));
    ty_format_number(path.bandwidth_bytes_per_s, bandwidth);
    ty_format_number(p->has_speeds ? path.latency_s : 0.0, latency);
    ty_text_addf(&p->text,
                 "    <link id=\"loop-%u\" bandwidth=\"%sBps\" latency=\"%ss\" "
                 "sharing_policy=\"FATPIPE\"/>\n",
                 e->host, bandwidth, latency);
    ty_path_clear(&path);
    return TY_OK;
}

static bool has_loop(const platform *p, const endpoint *e)
{
    for (uint32_t d = e->device + 1; e->host != NONE && d < ty_cluster_device_count(p->cluster);
         d++)
        if (ty_cluster_device_host(p->cluster, d) == e->host)
            return true;
    return false;
}

const ty_storage *ty_simgrid_store(const ty_cluster *cluster)
{
    const uint32_t count = ty_cluster_storage_count(cluster);
    const ty_storage *last = count > 0 ? ty_cluster_storage(cluster, count - 1) : NULL;

    return last != NULL && last->is_shared ? last : NULL;
}

/* ---- Writing ----------------------------------------------------------------------------- */

static ty_status write_links(platform *p, ty_error *error)
{
    ty_text_add(&p->text, "  <zone id=\"links\" routing=\"Full\">\n"
                          "    <link id=\"free\" bandwidth=\"1e18Bps\" latency=\"0s\" "
                          "sharing_policy=\"FATPIPE\"/>\n");
    for (uint32_t i = 0; i < ty_cluster_link_count(p->cluster); i++) {
        const ty_link_edge *link = ty_cluster_link(p->cluster, i);
        char bandwidth[32], latency[32];
        ty_format_number(link->bandwidth_bytes_per_s, bandwidth);
        ty_format_number(p->has_speeds ? link->latency_s : 0.0, latency);
        ty_text_addf(&p->text,
                     "    <link id=\"link-%u\" bandwidth=\"%sBps\" latency=\"%ss\" "
                     "sharing_policy=\"SPLITDUPLEX\"/>\n",
                     i, bandwidth, latency);
    }
    if (!p->has_speeds && ty_simgrid_store(p->cluster) != NULL)
        ty_text_addf(&p->text, "    <host id=\"%s\" speed=\"%gf\"/>\n", TY_SIMGRID_STORE,
                     TY_SIMGRID_FLOP_PER_S);
    for (uint32_t e = 0; e < p->endpoint_count; e++) {
        ty_status status = TY_OK;
        if (p->endpoints[e].host != NONE)
            status = write_loop_link(p, &p->endpoints[e], error);
        if (status != TY_OK)
            return status;
    }
    ty_text_add(&p->text, "  </zone>\n");
    return TY_OK;
}

static ty_status write_host(platform *p, const endpoint *e, ty_error *error)
{
    char name[TY_SIMGRID_NAME_SIZE], speed[32];

    TY_TRY(ty_simgrid_host_name(p->cluster, e->device, name, error));
    ty_format_number(p->has_speeds
                         ? ty_cluster_device_type(p->cluster, e->device)->peak_fp32_flop_per_s
                         : TY_SIMGRID_FLOP_PER_S,
                     speed);
    ty_text_addf(&p->text, "    <host id=\"%s\" speed=\"%sf\" core=\"%u\"/>\n", name, speed,
                 e->host == NONE ? 1 : ty_cluster_host_cores(p->cluster, e->host));
    return TY_OK;
}

/* The links of a path, with their direction, as far as the first network switch or to its end. */
static void write_links_of(platform *p, uint32_t from_device, const ty_path *path, bool is_way_up)
{
    uint32_t at = ty_cluster_device_vertex(p->cluster, from_device);

    for (uint32_t i = 0; i < path->link_count; i++) {
        const ty_link_edge *link = ty_cluster_link(p->cluster, path->links[i]);
        if (is_way_up && is_switch(p->cluster, at))
            break;
        ty_text_addf(&p->text, "<link_ctn id=\"link-%u\" direction=\"%s\"/>", path->links[i],
                     link->from == at ? "UP" : "DOWN");
        at = link->from == at ? link->to : link->from;
    }
}

/* Between two endpoints; to the island's gate when `gate` is not NULL, as on the way to `b`. */
static ty_status write_route(platform *p, const endpoint *a, const endpoint *b, const char *gate,
                             ty_error *error)
{
    char from[TY_SIMGRID_NAME_SIZE], to[TY_SIMGRID_NAME_SIZE];
    ty_path path = {0};

    TY_TRY(ty_simgrid_host_name(p->cluster, a->device, from, error));
    TY_TRY(ty_simgrid_host_name(p->cluster, b->device, to, error));
    TY_TRY(ty_cluster_path(p->cluster, a->device, b->device, &path, error));
    ty_text_addf(&p->text, "    <route src=\"%s\" dst=\"%s\">", from, gate != NULL ? gate : to);
    write_links_of(p, a->device, &path, gate != NULL);
    ty_text_add(&p->text, "</route>\n");
    ty_path_clear(&path);
    return TY_OK;
}

/* Endpoints [first, end): hosts, and the routes between them. */
static ty_status write_hosts(platform *p, uint32_t first, uint32_t end, ty_error *error)
{
    const uint64_t count = end - first;
    ty_status status = TY_OK;

    if (count * (count - 1) / 2 > PAIRS_LIMIT)
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "cluster %s: found %llu devices whose routes have to be written out pair by "
            "pair, expected at most 512, or hosts with one network switch each in a tree "
            "of switches",
            ty_cluster_name(p->cluster), (unsigned long long)count);
    for (uint32_t e = first; e < end && status == TY_OK; e++)
        status = write_host(p, &p->endpoints[e], error);
    return status;
}

static ty_status write_pairs(platform *p, uint32_t first, uint32_t end, ty_error *error)
{
    for (uint32_t a = first; a < end; a++) {
        const endpoint *e = &p->endpoints[a];
        if (has_loop(p, e))
            ty_text_addf(&p->text,
                         "    <route src=\"host-%u\" dst=\"host-%u\"><link_ctn id=\"loop-%u\"/>"
                         "</route>\n",
                         e->host, e->host, e->host);
        for (uint32_t b = a + 1; b < end; b++)
            TY_TRY(write_route(p, e, &p->endpoints[b], NULL, error));
    }
    return TY_OK;
}

/* The endpoints of one island from `first` on; `end` gets where the next one starts. */
static ty_status write_island(platform *p, uint32_t first, uint32_t *end, ty_error *error)
{
    uint32_t island = p->endpoints[first].island;
    const endpoint *outside =
        p->endpoints[0].island == island ? &p->endpoints[p->endpoint_count - 1] : &p->endpoints[0];
    char gate[32];

    *end = first;
    while (*end < p->endpoint_count && p->endpoints[*end].island == island)
        ++*end;
    snprintf(gate, sizeof gate, "gate-%u", island);
    ty_text_addf(&p->text, "  <zone id=\"island-%u\" routing=\"Full\">\n", island);
    TY_TRY(write_hosts(p, first, *end, error));
    ty_text_addf(&p->text, "    <router id=\"%s\"/>\n", gate);
    TY_TRY(write_pairs(p, first, *end, error));
    for (uint32_t e = first; e < *end; e++)
        TY_TRY(write_route(p, &p->endpoints[e], outside, gate, error));
    ty_text_add(&p->text, "  </zone>\n");
    return TY_OK;
}

/* Routes between neighboring zones: islands and their gates, switches and switches. */
static void write_zone_routes(platform *p)
{
    for (uint32_t e = 0; e < p->endpoint_count; e++) {
        uint32_t island = p->endpoints[e].island;
        if (e > 0 && p->endpoints[e - 1].island == island)
            continue;
        ty_text_addf(&p->text,
                     "  <zoneRoute src=\"island-%u\" dst=\"switch-%u\" gw_src=\"gate-%u\" "
                     "gw_dst=\"router-%u\"><link_ctn id=\"free\"/></zoneRoute>\n",
                     island, p->gates[island], island, p->gates[island]);
    }
    for (uint32_t i = 0; i < ty_cluster_link_count(p->cluster); i++) {
        const ty_link_edge *link = ty_cluster_link(p->cluster, i);
        if (is_switch(p->cluster, link->from) && is_switch(p->cluster, link->to))
            ty_text_addf(&p->text,
                         "  <zoneRoute src=\"switch-%u\" dst=\"switch-%u\" gw_src=\"router-%u\" "
                         "gw_dst=\"router-%u\"><link_ctn id=\"link-%u\" direction=\"UP\"/>"
                         "</zoneRoute>\n",
                         link->from, link->to, link->from, link->to, i);
    }
}

static ty_status write_hierarchy(platform *p, ty_error *error)
{
    for (uint32_t e = 0; e < p->endpoint_count;)
        TY_TRY(write_island(p, e, &e, error));
    for (uint32_t v = 0; v < ty_cluster_vertex_count(p->cluster); v++)
        if (is_switch(p->cluster, v))
            ty_text_addf(&p->text,
                         "  <zone id=\"switch-%u\" routing=\"Full\"><router id=\"router-%u\"/>"
                         "</zone>\n",
                         v, v);
    write_zone_routes(p);
    return TY_OK;
}

static ty_status write_platform(platform *p, ty_error *error)
{
    ty_text_add(&p->text, "<?xml version=\"1.0\"?>\n"
                          "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
                          "<platform version=\"4.1\">\n"
                          "<zone id=\"cluster\" routing=\"DijkstraCache\">\n");
    TY_TRY(write_links(p, error));
    if (is_hierarchical(p)) {
        TY_TRY(write_hierarchy(p, error));
    } else {
        ty_text_add(&p->text, "  <zone id=\"devices\" routing=\"Full\">\n");
        TY_TRY(write_hosts(p, 0, p->endpoint_count, error));
        TY_TRY(write_pairs(p, 0, p->endpoint_count, error));
        ty_text_add(&p->text, "  </zone>\n");
    }
    ty_text_add(&p->text, "</zone>\n</platform>\n");
    return TY_OK;
}

static ty_status make_platform(const ty_cluster *cluster, bool has_speeds, ty_text *xml,
                               ty_error *error)
{
    uint32_t vertices = ty_cluster_vertex_count(cluster);
    platform p = {.cluster = cluster, .has_speeds = has_speeds};
    ty_status status;

    p.islands = ty_alloc(vertices, sizeof *p.islands);
    p.gates = ty_alloc(vertices, sizeof *p.gates);
    TY_CHECK(ty_check_memory(p.islands != NULL && p.gates != NULL, error), status, cleanup);
    find_islands(&p);
    find_gates(&p);
    TY_CHECK(find_tree(&p, error), status, cleanup);
    TY_CHECK(find_endpoints(&p, error), status, cleanup);
    TY_CHECK(write_platform(&p, error), status, cleanup);
    ty_text_append(xml, p.text.data, p.text.length);
    if (p.text.failed || xml->failed)
        status = out_of_memory(error);
cleanup:
    ty_text_clear(&p.text);
    ty_free(p.endpoints);
    ty_free(p.islands);
    ty_free(p.gates);
    return status;
}

ty_status ty_simgrid_platform(const ty_cluster *cluster, ty_text *xml, ty_error *error)
{
    return make_platform(cluster, false, xml, error);
}

ty_status ty_cluster_to_simgrid(const ty_cluster *cluster, ty_text *xml, ty_error *error)
{
    return make_platform(cluster, true, xml, error);
}

ty_status ty_simgrid_check_cores(const ty_cluster *cluster, ty_error *error)
{
    ty_text unused = {0};
    ty_status status = TY_OK;
    bool has_cores = false;

    for (uint32_t h = 0; h < ty_cluster_host_count(cluster); h++)
        has_cores |= ty_cluster_host_cores(cluster, h) > 0;
    if (has_cores)
        status = ty_simgrid_platform(cluster, &unused, error);
    ty_text_clear(&unused);
    return status;
}
