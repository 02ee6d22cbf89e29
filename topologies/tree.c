/* Trees over devices: Prim's algorithm on routes, which makes the slowest edge as fast as it can
 * be (a maximum spanning tree has the best bottleneck: Hu 1961, "The maximum capacity route
 * problem"). */
#include "route.h"

#include <math.h>

/* The best edge from the tree so far to a device outside of it. */
typedef struct reach {
    double bandwidth, latency;
    uint32_t parent;
    bool is_inside;
} reach;

static bool is_better(const reach *a, double bandwidth, double latency)
{
    if (bandwidth > a->bandwidth || bandwidth < a->bandwidth)
        return bandwidth > a->bandwidth;
    return latency < a->latency;
}

static ty_status extend(router *r, const uint32_t *devices, uint32_t count, uint32_t from,
                        reach *reaches, ty_error *error)
{
    for (uint32_t i = 0; i < count; i++) {
        ty_status status;
        if (reaches[i].is_inside)
            continue;
        if ((status = router_find(r, devices[from], devices[i], error)) != TY_OK)
            return status;
        if (is_better(&reaches[i], r->bandwidth_bytes_per_s, r->latency_s))
            reaches[i] = (reach){r->bandwidth_bytes_per_s, r->latency_s, from, false};
    }
    return TY_OK;
}

static uint32_t best_of(const reach *reaches, uint32_t count)
{
    uint32_t best = NO_INDEX;

    for (uint32_t i = 0; i < count; i++)
        if (!reaches[i].is_inside &&
            (best == NO_INDEX ||
             is_better(&reaches[best], reaches[i].bandwidth, reaches[i].latency)))
            best = i;
    return best;
}

ty_status ty_cluster_find_tree(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                               uint32_t *parents, double *bandwidth_bytes_per_s, ty_error *error)
{
    router r = router_on(cluster);
    reach *reaches = NULL;
    double slowest = HUGE_VAL;
    ty_status status = TY_OK;

    if (count == 0)
        return ty_fail(error, TY_EINVAL, "tree: found no device, expected at least one");
    if ((reaches = ty_alloc(count, sizeof *reaches)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a tree");
    for (uint32_t i = 0; i < count; i++)
        if (devices[i] >= cluster->device_count) {
            status = ty_fail(error, TY_EINVAL, "tree: found device %u, expected one below %u",
                             devices[i], cluster->device_count);
            goto cleanup;
        }
    for (uint32_t i = 0; i < count; i++)
        reaches[i] = (reach){.bandwidth = -1, .latency = HUGE_VAL};
    reaches[0].is_inside = true;
    TY_CHECK(extend(&r, devices, count, 0, reaches, error), status, cleanup);
    for (uint32_t added = 1; added < count; added++) {
        uint32_t next = best_of(reaches, count);
        slowest = fmin(slowest, reaches[next].bandwidth);
        reaches[next].is_inside = true;
        TY_CHECK(extend(&r, devices, count, next, reaches, error), status, cleanup);
    }
    for (uint32_t i = 0; i < count; i++)
        parents[i] = reaches[i].parent;
    *bandwidth_bytes_per_s = slowest;
cleanup:
    router_clear(&r);
    ty_free(reaches);
    return status;
}
