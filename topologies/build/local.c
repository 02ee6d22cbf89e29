/* This machine as a cluster: one CPU device per rank, on one host with shared cores. */
#include "cluster.h"
#include "ty_topologies.h"

#include <math.h>
#include <stdio.h>

/** Fit of a message's time: latency + bytes / bandwidth. */
typedef struct transfer_fit {
    double latency_s, bandwidth_bytes_per_s;
} transfer_fit;

/* Least squares over the measured messages, each error relative to its time: with absolute errors,
 * noise of the largest messages would determine the latency. A negative latency is replaced by a
 * fit through zero. */
static bool fit_transfers(const ty_profile *profile, transfer_fit *out)
{
    double w = 0, x = 0, y = 0, xx = 0, xy = 0, slope, intercept, spread;

    for (uint32_t i = 0; i < profile->transfer_time_count; i++) {
        double seconds = profile->transfer_times[i].seconds;
        double bytes = (double)profile->transfer_times[i].bytes;
        double weight = 1 / (seconds * seconds);
        if (!(seconds > 0) || !isfinite(seconds))
            return false;
        w += weight;
        x += weight * bytes;
        y += weight * seconds;
        xx += weight * bytes * bytes;
        xy += weight * bytes * seconds;
    }
    spread = w * xx - x * x;
    if (!(spread > 1e-9 * w * xx)) /* one size only, or none */
        return false;
    slope = (w * xy - x * y) / spread;
    intercept = (y - slope * x) / w;
    if (intercept < 0) {
        intercept = 0;
        slope = xy / xx;
    }
    if (!(slope > 0) || !(1 / slope >= BANDWIDTH_MINIMUM) || !(1 / slope <= BANDWIDTH_MAXIMUM) ||
        !(intercept <= LATENCY_MAXIMUM))
        return false;
    *out = (transfer_fit){intercept, 1 / slope};
    return true;
}

static ty_status check_profile(uint32_t ranks, const ty_profile *profile, transfer_fit *fit,
                               ty_error *error)
{
    if (ranks == 0 || ranks > DEVICE_LIMIT)
        return ty_fail(error, TY_EINVAL, "local:%u: expected 1 to %d ranks", ranks, DEVICE_LIMIT);
    if (profile == NULL)
        return ty_fail(error, TY_EINVAL,
                       "local:%u: found no profile of this machine, expected one (make it with "
                       "\"trainyard profile\")",
                       ranks);
    if (profile->cores == 0 || profile->memory_bytes < ranks || !(profile->peak_flop_per_s >= 1) ||
        !(profile->memory_bandwidth_bytes_per_s >= 1))
        return ty_fail(error, TY_EINVAL,
                       "local:%u: found a profile without cores, memory, peak_flop_per_s or "
                       "memory_bandwidth_bytes_per_s, expected all of them",
                       ranks);
    if (fit_transfers(profile, fit))
        return TY_OK;
    if (ranks > 1)
        return ty_fail(error, TY_EINVAL,
                       "local:%u: found %u transfer times in the profile, expected at least two "
                       "sizes whose times grow with the size",
                       ranks, profile->transfer_time_count);
    *fit = (transfer_fit){0, profile->memory_bandwidth_bytes_per_s};
    return TY_OK;
}

/* Rates are measured, so they have no efficiency factor. */
static ty_status add_types(ty_cluster *cluster, uint32_t ranks, const ty_profile *profile,
                           const transfer_fit *fit, uint32_t *device_type, uint32_t *link,
                           ty_error *error)
{
    static char cpu[] = "cpu", memory[] = "memory", fitted[] = "fitted to the profile's transfers";
    ty_device_type device = {.name = cpu,
                             .peak_fp32_flop_per_s = profile->peak_flop_per_s,
                             .memory_bandwidth_bytes_per_s = profile->memory_bandwidth_bytes_per_s,
                             .memory_bytes = profile->memory_bytes / ranks,
                             .launch_overhead_s = profile->instruction_overhead_s,
                             .matmul_efficiency = 1,
                             .memory_efficiency = 1,
                             .core_share = 1};
    /* A message passes two links: up to the hub, down to its receiver. */
    link_type type = {.name = memory,
                      .source = fitted,
                      .bandwidth_bytes_per_s = fit->bandwidth_bytes_per_s,
                      .latency_s = fit->latency_s / 2};
    char source[200];

    snprintf(source, sizeof source, "measured: profile of %.120s",
             profile->machine != NULL ? profile->machine : "this machine");
    device.source = source;
    TY_TRY(ty_cluster_add_device_type(cluster, &device, device_type, error));
    return ty_cluster_add_link_type(cluster, &type, link, error);
}

ty_status ty_cluster_local(uint32_t ranks, const ty_profile *profile, ty_cluster **out,
                           ty_error *error)
{
    ty_cluster *cluster = NULL;
    cluster_problem problem = {0};
    transfer_fit fit = {0};
    uint32_t device_type, link, host, device;
    char name[32];
    ty_status status;

    TY_CHECK(check_profile(ranks, profile, &fit, error), status, cleanup);
    snprintf(name, sizeof name, "local:%u", ranks);
    TY_CHECK(ty_cluster_new(name, &cluster, error), status, cleanup);
    TY_CHECK(add_types(cluster, ranks, profile, &fit, &device_type, &link, error), status, cleanup);
    TY_CHECK(ty_cluster_add_vertex(cluster, TY_VERTEX_HOST, "host-0", profile->cores, &host, error),
             status, cleanup);
    for (uint32_t rank = 0; rank < ranks; rank++) {
        snprintf(name, sizeof name, "host-0/rank-%u", rank);
        TY_CHECK(ty_cluster_add_device(cluster, name, device_type, host, &device, error), status,
                 cleanup);
        TY_CHECK(ty_cluster_add_link(cluster, device, host, link, 1, error), status, cleanup);
    }
    TY_CHECK(ty_cluster_finish(cluster, &problem, error), status, cleanup);
    *out = cluster; /* a star needs no check */
    cluster = NULL; /* ownership moved */
cleanup:
    ty_cluster_free(cluster);
    return status;
}
