/* Rates of a ring's edges under contention when all are busy. */
#include "route_loads.h"

static ty_status check_members(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                               ty_error *error)
{
    bool *is_member;
    ty_status status = TY_OK;

    if (count == 0)
        return ty_fail(error, TY_EINVAL, "ring: found no device, expected at least one");
    is_member = ty_alloc(cluster->device_count, sizeof *is_member);
    TY_TRY(ty_check_memory(is_member != NULL, error));
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

ty_status ty_cluster_ring(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                          double *bandwidth_bytes_per_s, double *latency_s, ty_error *error)
{
    route_loads l = route_loads_on(cluster);
    route_ways ring = {0};
    ty_status status;

    TY_CHECK(check_members(cluster, devices, count, error), status, cleanup);
    for (uint32_t i = 0; i < count; i++)
        TY_CHECK(route_loads_note(&l, devices[i], devices[(i + 1) % count], &ring, error), status,
                 cleanup);
    route_loads_add(&l, &ring, 1);
    *bandwidth_bytes_per_s = route_loads_rate(&l);
    *latency_s = ring.latency_s;
cleanup:
    ty_free(ring.ways);
    route_loads_clear(&l);
    return status;
}
