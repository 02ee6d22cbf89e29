/* What the edges of a ring leave each other when all are busy. */
#include "route.h"

#include <math.h>

static ty_status check_members(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                               ty_error *error)
{
    bool *is_member;
    ty_status status = TY_OK;

    if (count == 0)
        return ty_fail(error, TY_EINVAL, "ring: found no device, expected at least one");
    is_member = ty_alloc(cluster->device_count, sizeof *is_member);
    if (is_member == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a ring");
    for (uint32_t i = 0; i < count && status == TY_OK; i++) {
        if (devices[i] >= cluster->device_count)
            status = ty_fail(error, TY_EINVAL, "ring: found device %u, expected one below %u",
                             devices[i], cluster->device_count);
        else if (is_member[devices[i]])
            status = ty_fail(error, TY_EINVAL, "ring: found device %u twice, expected it once",
                             devices[i]);
        else
            is_member[devices[i]] = true;
    }
    ty_free(is_member);
    return status;
}

/* Counts a route's uses of its links, each direction for itself. uses: [link][forth, back] */
static void count_uses(const router *r, uint32_t from_device, uint32_t *uses)
{
    const ty_cluster *cluster = r->cluster;
    uint32_t at = cluster->device_vertices[from_device];

    for (uint32_t i = 0; i < r->link_count; i++) {
        const ty_link_edge *link = &cluster->links[r->links[i]];
        uses[2 * (size_t)r->links[i] + (link->from != at)]++;
        at = link->from == at ? link->to : link->from;
    }
}

/* The least share of max-min fairness is that of the link with least bandwidth per use. Of a small
 * ring in a large cluster only its own links are looked at. */
static ty_status least_share(router *r, const uint32_t *devices, uint32_t count,
                             const uint32_t *uses, double *bandwidth, ty_error *error)
{
    enum { LINKS_OF_A_ROUTE = 8 };
    const ty_cluster *cluster = r->cluster;
    const size_t ways = 2 * (size_t)cluster->link_count;
    ty_status status = TY_OK;

    *bandwidth = HUGE_VAL;
    if ((size_t)count * LINKS_OF_A_ROUTE * LINKS_OF_A_ROUTE >= ways) {
        for (size_t i = 0; i < ways; i++)
            if (uses[i] > 0)
                *bandwidth =
                    fmin(*bandwidth, cluster->links[i / 2].bandwidth_bytes_per_s / uses[i]);
        return TY_OK;
    }
    for (uint32_t i = 0; i < count && status == TY_OK; i++) {
        status = router_find(r, devices[i], devices[(i + 1) % count], error);
        for (uint32_t l = 0; status == TY_OK && l < r->link_count; l++) {
            const uint32_t *both = &uses[2 * (size_t)r->links[l]];
            const uint32_t most = both[0] > both[1] ? both[0] : both[1];
            *bandwidth = fmin(*bandwidth, cluster->links[r->links[l]].bandwidth_bytes_per_s / most);
        }
    }
    return status;
}

ty_status ty_cluster_ring(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                          double *bandwidth_bytes_per_s, double *latency_s, ty_error *error)
{
    router r = router_on(cluster);
    uint32_t *uses = NULL;
    double bandwidth = HUGE_VAL, latency = 0;
    ty_status status;

    TY_CHECK(check_members(cluster, devices, count, error), status, cleanup);
    if ((uses = ty_alloc(2 * (size_t)cluster->link_count, sizeof *uses)) == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a ring");
        goto cleanup;
    }
    for (uint32_t i = 0; i < count; i++) {
        TY_CHECK(router_find(&r, devices[i], devices[(i + 1) % count], error), status, cleanup);
        count_uses(&r, devices[i], uses);
        latency = fmax(latency, r.latency_s);
    }
    TY_CHECK(least_share(&r, devices, count, uses, &bandwidth, error), status, cleanup);
    *bandwidth_bytes_per_s = bandwidth;
    *latency_s = latency;
cleanup:
    ty_free(uses);
    router_clear(&r);
    return status;
}
