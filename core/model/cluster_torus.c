/* Finds devices that form tori and meshes, by their links, so clusters from files and from
 * command-line text behave the same. */
#include "cluster.h"

uint32_t ty_cluster_link_between(const ty_cluster *cluster, uint32_t from, uint32_t to)
{
    for (uint32_t p = cluster->port_starts[from]; p < cluster->port_starts[from + 1]; p++)
        if (cluster->ports[p].vertex == to)
            return cluster->ports[p].link;
    return NO_INDEX;
}

/* The network switch that only this device is linked to. */
static uint32_t router_of(const ty_cluster *c, uint32_t device)
{
    const uint32_t v = c->device_vertices[device];
    uint32_t router = NO_INDEX;

    for (uint32_t p = c->port_starts[v]; p < c->port_starts[v + 1]; p++) {
        if (c->vertices[c->ports[p].vertex].kind != TY_VERTEX_SWITCH)
            continue;
        if (router != NO_INDEX)
            return NO_INDEX;
        router = c->ports[p].vertex;
    }
    if (router == NO_INDEX)
        return NO_INDEX;
    for (uint32_t p = c->port_starts[router]; p < c->port_starts[router + 1]; p++)
        if (c->ports[p].vertex != v && c->vertices[c->ports[p].vertex].kind == TY_VERTEX_DEVICE)
            return NO_INDEX;
    return router;
}

static bool are_linked(const ty_cluster *c, const uint32_t *routers, uint32_t from, uint64_t to)
{
    return to < c->device_count && routers[from] != NO_INDEX && routers[to] != NO_INDEX &&
           ty_cluster_link_between(c, routers[from], routers[to]) != NO_INDEX;
}

/* The axes along which the first device has neighbors: from one end to the other of each. */
static void find_axes(const ty_cluster *c, const uint32_t *routers, cluster_torus *t)
{
    for (t->count = 1;
         t->axis_count < TY_TORUS_AXES && are_linked(c, routers, t->first, t->first + t->count);
         t->axis_count++) {
        uint32_t size = 2;
        while (are_linked(c, routers, t->first + (size - 1) * t->count,
                          (uint64_t)t->first + (uint64_t)size * t->count))
            size++;
        t->sizes[t->axis_count] = size;
        t->is_closed[t->axis_count] =
            size > 2 && are_linked(c, routers, t->first, t->first + (size - 1) * t->count);
        t->count *= size;
    }
}

static bool has_all_links(const ty_cluster *c, const uint32_t *routers, const cluster_torus *t)
{
    if ((uint64_t)t->first + t->count > c->device_count)
        return false;
    for (uint32_t axis = 0, stride = 1; axis < t->axis_count; stride *= t->sizes[axis++])
        for (uint32_t i = t->first; i < t->first + t->count; i++) {
            const uint32_t at = (i - t->first) / stride % t->sizes[axis];
            const bool is_last = at + 1 == t->sizes[axis];
            if (is_last && !t->is_closed[axis])
                continue;
            if (!are_linked(c, routers, i, is_last ? i - at * stride : i + stride))
                return false;
        }
    return true;
}

ty_status ty_cluster_find_tori(ty_cluster *cluster, ty_error *error)
{
    const uint32_t devices = cluster->device_count;
    uint32_t *routers = ty_alloc(devices, sizeof *routers), count = 0, room = 0;
    cluster_torus *tori = NULL;
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(routers != NULL, error));
    for (uint32_t d = 0; d < devices; d++)
        routers[d] = router_of(cluster, d);
    for (uint32_t d = 0; d < devices;) {
        cluster_torus torus = {.first = d};
        if (routers[d] != NO_INDEX)
            find_axes(cluster, routers, &torus);
        if (torus.axis_count == 0 || !has_all_links(cluster, routers, &torus)) {
            d += torus.count > 1 ? torus.count : 1;
            continue;
        }
        TY_CHECK(ty_reserve(&tori, count, &room, sizeof *tori, error), status, cleanup);
        tori[count++] = torus;
        d += torus.count;
    }
    if (count == 0)
        goto cleanup;
    cluster->torus_count = count;
    cluster->tori = tori;
    cluster->routers = routers;
    tori = NULL; /* given away */
    routers = NULL;
cleanup:
    ty_free(tori);
    ty_free(routers);
    return status;
}
