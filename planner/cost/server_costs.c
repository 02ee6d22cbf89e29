/* Costs of dedicated parameter servers: the rates of routes between replicas and servers while all
 * are in use, including the many routes to one server, and the time of a bucket over them. */
#include "costing.h"

#include <math.h>
#include <string.h>

/* Maximum number of devices whose latencies are evaluated: equal hosts have equal latencies. */
#define MOST_PAIRS 64

static ty_status longest_latency(ty_network_cache *networks, const uint32_t *workers,
                                 uint32_t worker_count, const uint32_t *servers,
                                 uint32_t server_count, double *latency_s, ty_error *error)
{
    double ignored, found_s;

    *latency_s = 0;
    for (uint32_t w = 0; w < worker_count && w < MOST_PAIRS; w++) {
        TY_TRY(ty_network_of_pair(networks, workers[w], servers[0], &ignored, &found_s, error));
        *latency_s = fmax(*latency_s, found_s);
    }
    for (uint32_t s = 1; s < server_count && s < MOST_PAIRS; s++) {
        TY_TRY(ty_network_of_pair(networks, workers[0], servers[s], &ignored, &found_s, error));
        *latency_s = fmax(*latency_s, found_s);
    }
    return TY_OK;
}

ty_status ty_server_network_find(ty_network_cache *networks, const uint32_t *workers,
                                 uint32_t worker_count, const uint32_t *servers,
                                 uint32_t server_count, ty_server_network *out, ty_error *error)
{
    const ty_cluster *cluster = ty_network_cache_cluster(networks);
    const size_t routes = (size_t)worker_count * server_count;
    uint32_t *from = ty_alloc(routes, sizeof *from), *to = ty_alloc(routes, sizeof *to);
    ty_server_network network = {.workers = worker_count, .servers = server_count};
    double all, one = HUGE_VAL;
    ty_status status = TY_OK;

    if (from == NULL || to == NULL || routes > UINT32_MAX / 4) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for the routes to servers");
        goto cleanup;
    }
    for (uint32_t s = 0; s < server_count; s++)
        for (uint32_t w = 0; w < worker_count; w++) {
            const size_t route = (size_t)s * worker_count + w;
            from[route] = workers[w];
            to[route] = servers[s];
            network.is_across =
                network.is_across || ty_cluster_device_host(cluster, workers[w]) !=
                                         ty_cluster_device_host(cluster, servers[s]);
        }
    TY_CHECK(ty_network_shared_rate(networks, from, to, (uint32_t)routes, 1, &all, error), status,
             cleanup);
    for (uint32_t s = 0; s < server_count; s++) {
        double rate;
        TY_CHECK(ty_network_shared_rate(networks, from + (size_t)s * worker_count,
                                        to + (size_t)s * worker_count, worker_count, 1, &rate,
                                        error),
                 status, cleanup);
        one = fmin(one, rate);
    }
    network.memory_bytes_per_s = HUGE_VAL;
    for (uint32_t s = 0; s < server_count; s++) {
        const ty_device_type *device = ty_cluster_device_type(cluster, servers[s]);
        network.memory_bytes_per_s =
            fmin(network.memory_bytes_per_s,
                 device->memory_bandwidth_bytes_per_s * device->memory_efficiency);
    }
    network.worker_bytes_per_s = all * server_count;
    network.server_bytes_per_s = one * worker_count;
    status = longest_latency(networks, workers, worker_count, servers, server_count,
                             &network.latency_s, error);
    *out = network;
cleanup:
    ty_free(from);
    ty_free(to);
    return status;
}

ty_status ty_server_exchange_cost(const ty_server_network *network, double largest_share,
                                  uint64_t bytes, ty_instruction_cost *cost, ty_error *error)
{
    const ty_parameter_servers servers = {.place = TY_SERVERS_DEDICATED,
                                          .workers = network->workers,
                                          .servers = network->servers,
                                          .worker_bytes_per_s = network->worker_bytes_per_s,
                                          .server_bytes_per_s = network->server_bytes_per_s,
                                          .latency_s = network->latency_s,
                                          .largest_share = largest_share};
    double seconds;

    TY_TRY(ty_parameter_server_seconds(&servers, (double)bytes, &seconds, error));
    *cost = (ty_instruction_cost){
        .seconds = seconds, .latency_s = 2 * network->latency_s, .edge_bytes = 2 * (double)bytes};
    if (seconds > cost->latency_s)
        cost->rate_limit_bytes_per_s = cost->edge_bytes / (seconds - cost->latency_s);
    return TY_OK;
}

/* Found once for all buckets of a plan, which has one stage. */
static ty_status find(ty_costing *costing)
{
    const ty_plan *plan = costing->plan;
    ty_status status;

    if (costing->stage.server_network.workers > 0)
        return TY_OK;
    status = ty_server_network_find(
        costing->networks, plan->stages[0].devices, plan->stages[0].replicas, plan->servers.devices,
        plan->servers.count, &costing->stage.server_network, costing->error);
    if (status == TY_OK && plan->servers.shard == TY_SHARD_TENSOR)
        status = ty_server_map_make(plan, &costing->stage.server_map, costing->error);
    return status;
}

/* An equal share for a bucket that is not in the plan, but tried. */
static double largest_share(const ty_costing *costing, const ty_bucket *bucket)
{
    const ty_plan *plan = costing->plan;

    if (plan->servers.shard == TY_SHARD_TENSOR && costing->stage.server_map.parts != NULL)
        for (uint32_t b = 0; b < plan->bucket_count; b++)
            if (&plan->buckets[b] == bucket)
                return ty_server_map_largest_share(&costing->stage.server_map, b);
    return 1.0 / plan->servers.count;
}

/* On the profiled host: bytes of the busier end of a route at the rate of measured messages; a
 * server's sums at that of measured copies. */
static bool measured_here(const ty_costing *costing, double share, uint64_t bytes,
                          ty_instruction_cost *cost)
{
    const double served = share * costing->stage.server_network.workers;
    const uint64_t busiest = (uint64_t)((double)bytes * fmax(1, served));
    double way_s, smallest_s;

    if (!costing->is_local || !ty_profile_transfer(costing->profile, busiest, &way_s) ||
        !ty_profile_transfer(costing->profile, 1, &smallest_s))
        return false;
    smallest_s = fmin(smallest_s, way_s);
    *cost = (ty_instruction_cost){.seconds = 2 * way_s,
                                  .latency_s = 2 * smallest_s,
                                  .edge_bytes = cost->edge_bytes,
                                  .core_share = ty_profile_busy_share(costing->profile, busiest)};
    if (way_s > smallest_s)
        cost->rate_limit_bytes_per_s = cost->edge_bytes / (2 * (way_s - smallest_s));
    ty_sum_hide(ty_server_sum_seconds(costing->stage.server_network.workers, share * (double)bytes,
                                      costing->profile->memory_bandwidth_bytes_per_s),
                cost);
    return true;
}

ty_status ty_cost_servers(ty_costing *costing, const ty_bucket *bucket,
                          const ty_group_network *members, uint64_t bytes,
                          ty_instruction_cost *cost)
{
    ty_status status = find(costing);
    double share;

    if (status != TY_OK)
        return status;
    share = largest_share(costing, bucket);
    status =
        ty_server_exchange_cost(&costing->stage.server_network, share, bytes, cost, costing->error);
    if (status != TY_OK || measured_here(costing, share, bytes, cost))
        return status;
    ty_server_exchange_by_stack(&costing->stage.server_network, members, ty_stack_of(costing->plan),
                                share, bytes, cost);
    ty_cost_relies_on(costing, TY_DATASHEET);
    return TY_OK;
}

double ty_server_sum_seconds(uint32_t workers, double bytes, double memory_bytes_per_s)
{
    return memory_bytes_per_s > 0 ? (3.0 * workers - 1) * bytes / memory_bytes_per_s : 0;
}

void ty_server_exchange_by_stack(const ty_server_network *network, const ty_group_network *members,
                                 const ty_stack *stack, double largest_share, uint64_t bytes,
                                 ty_instruction_cost *cost)
{
    const double sum_s = ty_server_sum_seconds(network->workers, largest_share * (double)bytes,
                                               network->memory_bytes_per_s);
    ty_group_network seen = *members; /* borrows its pointers */

    if (network->is_across && seen.rails.hosts < 2)
        seen.rails.hosts = 2;
    ty_exchange_by_stack(&seen, stack, TY_ALL_REDUCE, cost);
    ty_sum_hide(sum_s, cost);
}
