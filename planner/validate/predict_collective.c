/* nccl-tests: the ring or the tree over the devices in order, whichever is faster. */
#include "predictors.h"
#include "published.h"
#include "ty_planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define LARGEST_RING_SEARCH 64 /* of ty_cluster_find_rings */

static const struct {
    const char *operation;
    ty_collective_kind kind;
    double bus_factor; /* of (n-1)/n: what nccl-tests multiplies size over time with */
    bool is_whole;     /* the size column is what all members end with, not what one brings */
} operations[] = {
    {"all_reduce", TY_ALL_REDUCE, 2, false},
    {"all_gather", TY_ALL_GATHER, 1, true},
    {"reduce_scatter", TY_REDUCE_SCATTER, 1, false},
};

bool ty_takes_collective(const ty_records *records, uint32_t index)
{
    return strcmp(records->items[index].kind, "collective") == 0;
}

static ty_status fastest(ty_collective_kind kind, uint32_t members, uint64_t bytes,
                         double bandwidth_bytes_per_s, double latency_s, double *seconds,
                         ty_error *error)
{
    ty_instruction_cost cost;
    ty_status status = TY_OK;

    *seconds = HUGE_VAL;
    for (int a = 0; a < TY_ALGORITHM_COUNT; a++) {
        TY_CHECK(ty_collective_cost(kind, (ty_algorithm)a, members, bytes, bandwidth_bytes_per_s,
                                    latency_s, &cost, error),
                 status, done);
        *seconds = fmin(*seconds, cost.seconds);
    }
done:
    return status;
}

/* Inside a host NCCL runs as many rings at once as its direct links have lanes for. */
static ty_status use_all_lanes(const ty_cluster *cluster, const uint32_t *devices, uint32_t members,
                               double *bandwidth_bytes_per_s, ty_error *error)
{
    ty_ring_set rings = {0};
    ty_status status;

    if (ty_cluster_host_count(cluster) > 1 || members > LARGEST_RING_SEARCH)
        return TY_OK;
    status = ty_cluster_find_rings(cluster, devices, members, &rings, error);
    if (status == TY_OK)
        *bandwidth_bytes_per_s = fmax(*bandwidth_bytes_per_s, rings.bandwidth_bytes_per_s);
    ty_ring_set_clear(&rings);
    return status;
}

static ty_status time_collective(const ty_record *r, const ty_cluster *cluster, size_t op,
                                 double *seconds, ty_error *error)
{
    uint32_t members = (uint32_t)r->gpus;
    uint32_t *devices = ty_alloc(members, sizeof *devices);
    double bandwidth, latency_s;
    double bytes = operations[op].is_whole ? r->collective_bytes / members : r->collective_bytes;
    ty_status status = TY_OK;

    if (devices == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < members; i++)
        devices[i] = i;
    TY_CHECK(ty_cluster_ring(cluster, devices, members, &bandwidth, &latency_s, error), status,
             cleanup);
    TY_CHECK(use_all_lanes(cluster, devices, members, &bandwidth, error), status, cleanup);
    status = fastest(operations[op].kind, members, (uint64_t)bytes, bandwidth, latency_s, seconds,
                     error);

cleanup:
    ty_free(devices);
    return status;
}

ty_status ty_predict_collective(const ty_records *records, uint32_t index, ty_verdict *out,
                                ty_error *error)
{
    const ty_record *r = &records->items[index];
    const size_t count = sizeof operations / sizeof operations[0];
    ty_cluster *cluster = NULL;
    size_t op = 0;
    double seconds;
    ty_status status = TY_OK;

    while (op < count && strcmp(operations[op].operation, r->operation) != 0)
        op++;
    if (op == count || !(r->gpus >= 2) || !(r->collective_bytes >= 1)) {
        snprintf(out->reason, sizeof out->reason, "collective not known, or without a size");
        return TY_OK;
    }
    TY_CHECK(ty_published_cluster(r, &cluster, out->reason, error), status, cleanup);
    if (cluster == NULL)
        goto cleanup;
    TY_CHECK(time_collective(r, cluster, op, &seconds, error), status, cleanup);
    out->is_predicted = true;
    out->value = strcmp(r->unit, "us") == 0 ? seconds * 1e6
                                            : operations[op].bus_factor * (r->gpus - 1) / r->gpus *
                                                  r->collective_bytes / seconds / 1e9;

cleanup:
    ty_cluster_free(cluster);
    return status;
}
