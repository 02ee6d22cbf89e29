/* Collectives that use all NICs of a host: neighbors of each device, and rates after
 * contention. */
#include "route_loads.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct placed {
    uint32_t host, index;
} placed;

static int compare_placed(const void *left, const void *right)
{
    const placed *a = left, *b = right;
    if (a->host != b->host)
        return a->host < b->host ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

void ty_rails_clear(ty_rails *rails)
{
    ty_free(rails->order);
    *rails = (ty_rails){0};
}

/* Groups devices by host if hosts have equal numbers, else each on its own. */
static ty_status place(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                       ty_rails *rails, ty_error *error)
{
    placed *all = ty_alloc(count, sizeof *all);
    uint32_t hosts = 0, run = 0;
    bool is_equal = true;

    rails->order = ty_alloc(count, sizeof *rails->order);
    if (all == NULL || rails->order == NULL) {
        ty_free(all);
        return ty_check_memory(false, error);
    }
    for (uint32_t i = 0; i < count; i++)
        all[i] = (placed){ty_cluster_device_host(cluster, devices[i]), i};
    qsort(all, count, sizeof *all, compare_placed);
    for (uint32_t i = 0; i < count; i++) {
        bool is_last = i + 1 == count || all[i + 1].host != all[i].host;
        run++;
        if (!is_last)
            continue;
        is_equal = is_equal && (hosts == 0 || run == rails->per_host);
        rails->per_host = run;
        hosts++;
        run = 0;
    }
    rails->hosts = is_equal ? hosts : count;
    rails->per_host = is_equal ? rails->per_host : 1;
    for (uint32_t i = 0; i < count; i++)
        rails->order[i] = is_equal ? all[i].index : i;
    ty_free(all);
    return TY_OK;
}

/* Devices of a torus are numbered along its axes, the first axis fastest, and hosts are ranges of
 * that order. */
static ty_status order_along_axes(const uint32_t *devices, uint32_t count, ty_rails *rails,
                                  ty_error *error)
{
    placed *all = ty_alloc(count, sizeof *all);

    TY_TRY(ty_check_memory(all != NULL, error));
    for (uint32_t i = 0; i < count; i++)
        all[i] = (placed){devices[i], i};
    qsort(all, count, sizeof *all, compare_placed);
    for (uint32_t i = 0; i < count; i++)
        rails->order[i] = all[i].index;
    ty_free(all);
    return TY_OK;
}

/* ---- Rates after contention ---------------------------------------------------------------- */

static ty_status go_around(route_loads *l, const uint32_t *devices, const ty_rails *rails,
                           route_ways *out, ty_error *error)
{
    uint32_t g = rails->per_host;

    for (uint32_t i = 0; g > 1 && i < rails->hosts * g; i++) {
        uint32_t next = i - i % g + (i + 1) % g;
        TY_TRY(
            route_loads_note(l, devices[rails->order[i]], devices[rails->order[next]], out, error));
    }
    return TY_OK;
}

static ty_status go_across(route_loads *l, const uint32_t *devices, const ty_rails *rails,
                           route_ways *out, ty_error *error)
{
    uint32_t n = rails->hosts * rails->per_host;

    for (uint32_t i = 0; rails->hosts > 1 && i < n; i++) {
        uint32_t next = (i + rails->per_host) % n;
        TY_TRY(
            route_loads_note(l, devices[rails->order[i]], devices[rails->order[next]], out, error));
    }
    return TY_OK;
}

enum { MESH_MOST = 16 };

/* Whether two devices of the first host have a direct link. */
static bool is_mesh(const ty_cluster *cluster, const uint32_t *members, uint32_t count)
{
    uint32_t v = cluster->device_vertices[members[0]];

    for (uint32_t p = cluster->port_starts[v]; p < cluster->port_starts[v + 1]; p++)
        for (uint32_t i = 1; i < count; i++)
            if (cluster->ports[p].vertex == cluster->device_vertices[members[i]])
                return true;
    return false;
}

/* Orders the devices of every host as a ring through the first host does. */
static void reorder(ty_rails *rails, const uint32_t *members, const uint32_t *ring)
{
    uint32_t g = rails->per_host, turned[MESH_MOST];

    for (uint32_t h = 0; h < rails->hosts; h++) {
        uint32_t *order = rails->order + (size_t)h * g;
        for (uint32_t i = 0; i < g; i++)
            for (uint32_t j = 0; j < g; j++)
                if (members[j] == ring[i])
                    turned[i] = order[j];
        memcpy(order, turned, g * sizeof *order);
    }
}

/* For a mesh: neighbors in one of its rings, and the total rate of all its rings. Link lanes are
 * full-duplex, so every ring runs both ways. 0 if it has none. */
static ty_status find_mesh(const ty_cluster *cluster, const uint32_t *devices, ty_rails *rails,
                           double *all_bytes_per_s, ty_error *error)
{
    enum { BOTH_WAYS = 2 };
    uint32_t members[MESH_MOST], g = rails->per_host;
    ty_ring_set set = {0};

    if (g < 3 || g > MESH_MOST)
        return TY_OK;
    for (uint32_t i = 0; i < g; i++)
        members[i] = devices[rails->order[i]];
    if (!is_mesh(cluster, members, g))
        return TY_OK;
    TY_TRY(ty_cluster_find_rings(cluster, members, g, &set, error));
    reorder(rails, members, set.devices);
    if (!set.is_routed)
        *all_bytes_per_s = BOTH_WAYS * set.bandwidth_bytes_per_s;
    ty_ring_set_clear(&set);
    return TY_OK;
}

static ty_status measure(route_loads *l, const uint32_t *devices, ty_rails *rails, ty_error *error)
{
    const double g = rails->per_host, n = g * rails->hosts;
    const double kept = rails->hosts > 1 ? (g - 1) / g : 1; /* share of a ring's edges in hosts */
    double mesh = 0;
    route_ways around = {0}, across = {0};
    ty_status status;

    TY_CHECK(find_mesh(l->router.cluster, devices, rails, &mesh, error), status, done);
    TY_CHECK(go_across(l, devices, rails, &across, error), status, done);
    TY_CHECK(go_around(l, devices, rails, &around, error), status, done);
    route_loads_add(l, &across, 1);
    rails->across_bytes_per_s = route_loads_rate(l);
    rails->across_latency_s = across.latency_s;
    route_loads_forget(l);
    route_loads_add(l, &around, 1);
    rails->around_bytes_per_s = route_loads_rate(l);
    rails->around_latency_s = around.latency_s;
    if (mesh > rails->around_bytes_per_s) {
        rails->around_share = rails->around_bytes_per_s / mesh;
        rails->around_bytes_per_s = mesh;
    }
    route_loads_forget(l);
    route_loads_add(l, &around, (g - 1) / n * rails->around_share);
    route_loads_add(l, &across, (n - g) / n);
    rails->exchange_bytes_per_s = route_loads_rate(l);
    route_loads_forget(l);
    route_loads_add(l, &around, kept * rails->around_share);
    route_loads_add(l, &across, 1 / g);
    rails->bandwidth_bytes_per_s = route_loads_rate(l);
done:
    ty_free(around.ways);
    ty_free(across.ways);
    return status;
}

ty_status ty_cluster_rails(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                           ty_rails *out, ty_error *error)
{
    route_loads l = route_loads_on(cluster);
    ty_rails rails = {.around_share = 1};
    ty_status status = TY_OK;

    if (count == 0)
        return ty_fail(error, TY_EINVAL, "rails: found no device, expected at least one");
    for (uint32_t i = 0; i < count; i++)
        if (devices[i] >= cluster->device_count)
            return ty_fail(error, TY_EINVAL, "rails: found device %u, expected one below %u",
                           devices[i], cluster->device_count);
    TY_CHECK(place(cluster, devices, count, &rails, error), status, cleanup);
    TY_CHECK(ty_cluster_torus(cluster, devices, count, &rails.torus, error), status, cleanup);
    if (rails.torus.axis_count > 0)
        TY_CHECK(order_along_axes(devices, count, &rails, error), status, cleanup);
    TY_CHECK(measure(&l, devices, &rails, error), status, cleanup);
    if (rails.torus.axis_count > 0)
        rails.bandwidth_bytes_per_s = ty_torus_rate(&rails.torus, TY_ALL_GATHER, false);
    *out = rails;
    rails.order = NULL;
cleanup:
    ty_rails_clear(&rails);
    route_loads_clear(&l);
    return status;
}

ty_status ty_cluster_shared_rate(const ty_cluster *cluster, const uint32_t *from,
                                 const uint32_t *to, uint32_t count, double use,
                                 double *bytes_per_s, ty_error *error)
{
    route_loads l = route_loads_on(cluster);
    route_ways routes = {0};
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count; i++) {
        if (from[i] >= cluster->device_count || to[i] >= cluster->device_count) {
            status = ty_fail(error, TY_EINVAL, "routes: found devices %u and %u, expected below %u",
                             from[i], to[i], cluster->device_count);
            goto cleanup;
        }
        if (from[i] != to[i])
            TY_CHECK(route_loads_note(&l, from[i], to[i], &routes, error), status, cleanup);
    }
    route_loads_add(&l, &routes, use);
    *bytes_per_s = route_loads_rate(&l);
cleanup:
    ty_free(routes.ways);
    route_loads_clear(&l);
    return status;
}

/* ---- One device ---------------------------------------------------------------------------- */

static bool is_pci(const char *kind)
{
    return strncmp(kind, "pcie", 4) == 0;
}

/* Links to devices and device switches are scale-up links unless they are PCI. */
static void see_links(const ty_cluster *cluster, uint32_t device, ty_device_ports *ports)
{
    uint32_t v = cluster->device_vertices[device];

    for (uint32_t p = cluster->port_starts[v]; p < cluster->port_starts[v + 1]; p++) {
        const ty_link_edge *link = &cluster->links[cluster->ports[p].link];
        ty_vertex_kind kind = cluster->vertices[cluster->ports[p].vertex].kind;
        if ((kind == TY_VERTEX_DEVICE || kind == TY_VERTEX_DEVICE_SWITCH) && !is_pci(link->kind))
            ports->links_bytes_per_s += link->bandwidth_bytes_per_s;
    }
}

static void see_bridge(const ty_cluster *cluster, uint32_t device, ty_device_ports *ports)
{
    uint32_t hub = cluster->host_vertices[ty_cluster_device_host(cluster, device)];

    for (uint32_t p = cluster->port_starts[hub]; p < cluster->port_starts[hub + 1]; p++) {
        const char *kind = cluster->links[cluster->ports[p].link].kind;
        if (ports->bridge_kind == NULL || is_pci(ports->bridge_kind))
            ports->bridge_kind = kind;
    }
}

/* Up to the first network switch. */
static ty_status see_way_out(const ty_cluster *cluster, uint32_t device, uint32_t outside,
                             ty_device_ports *ports, ty_error *error)
{
    router r = router_on(cluster);
    uint32_t at = cluster->device_vertices[device];
    ty_status status = router_find(&r, device, outside, error);

    ports->network_bytes_per_s = ports->up_bytes_per_s = HUGE_VAL;
    for (uint32_t i = 0; status == TY_OK && i < r.link_count; i++) {
        const ty_link_edge *link = &cluster->links[r.links[i]];
        at = link->from == at ? link->to : link->from;
        ports->up_bytes_per_s = fmin(ports->up_bytes_per_s, ports->network_bytes_per_s);
        ports->network_bytes_per_s = link->bandwidth_bytes_per_s;
        ports->network_kind = link->kind;
        ports->network_link = r.links[i];
        if (cluster->vertices[at].kind == TY_VERTEX_SWITCH)
            break;
    }
    router_clear(&r);
    return status;
}

ty_status ty_cluster_device_ports(const ty_cluster *cluster, uint32_t device, uint32_t outside,
                                  ty_device_ports *out, ty_error *error)
{
    ty_device_ports ports = {0};
    ty_status status = TY_OK;

    if (device >= cluster->device_count ||
        (outside != TY_NO_DEVICE && outside >= cluster->device_count))
        return ty_fail(error, TY_EINVAL, "found device %u, expected one below %u",
                       device >= cluster->device_count ? device : outside, cluster->device_count);
    see_links(cluster, device, &ports);
    see_bridge(cluster, device, &ports);
    if (outside != TY_NO_DEVICE)
        status = see_way_out(cluster, device, outside, &ports, error);
    if (status == TY_OK)
        *out = ports;
    return status;
}
