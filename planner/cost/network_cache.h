/**
 * @file network_cache.h
 * Caches networks of groups of devices: the candidates of a search use the same groups many times,
 * and finding a group's network takes a route for each of its members. Internal to planner/.
 *
 * Results depend only on the cluster and the devices, so a cached answer equals a new one. A cache
 * belongs to one thread; the cluster must outlive it.
 */
#ifndef TY_NETWORK_CACHE_H
#define TY_NETWORK_CACHE_H

#include "group_network.h"

typedef struct ty_network_cache ty_network_cache;

/** Maximum size in bytes that the cache keeps from one plan to the next. */
#define TY_NETWORK_CACHE_BYTES ((size_t)256 << 20)

ty_status ty_network_cache_new(const ty_cluster *cluster, ty_network_cache **out,
                               ty_error *error) TY_MUST_CHECK;
void ty_network_cache_free(ty_network_cache *cache);
const ty_cluster *ty_network_cache_cluster(const ty_network_cache *cache);
/** Empties a cache of more than `bytes`; no result of it may be in use. */
void ty_network_cache_trim(ty_network_cache *cache, size_t bytes);

/** ty_group_network_find. @param out [out] the cache's, valid until it is trimmed or freed */
ty_status ty_network_of_group(ty_network_cache *cache, const uint32_t *devices, uint32_t count,
                              const ty_group_network **out, ty_error *error) TY_MUST_CHECK;
/** Bandwidth and latency of ty_cluster_path. */
ty_status ty_network_of_pair(ty_network_cache *cache, uint32_t from, uint32_t to,
                             double *bandwidth_bytes_per_s, double *latency_s,
                             ty_error *error) TY_MUST_CHECK;
/** ty_cluster_shared_rate. */
ty_status ty_network_shared_rate(ty_network_cache *cache, const uint32_t *from, const uint32_t *to,
                                 uint32_t count, double use, double *bytes_per_s,
                                 ty_error *error) TY_MUST_CHECK;

/* ---- Dedicated servers (server_costs.c) ------------------------------------------------------ */

/** The network between replicas and their parameter servers. */
typedef struct ty_server_network {
    uint32_t workers, servers; /* of one rank each */
    /* Send rate of each worker while all send to all servers; receive rate of the slowest server
     * while all workers send only to it. */
    double worker_bytes_per_s, server_bytes_per_s;
    double latency_s;          /* of the longest route */
    double memory_bytes_per_s; /* memory rate of the slowest server while it adds gradients */
    bool is_across;            /* a server is on another host than a worker */
} ty_server_network;
/**
 * Seconds that a server takes to sum its shard of a bucket, `bytes` from each of `workers`. The
 * first is copied; for every other one, it reads the input and the sum and writes the sum, chunk by
 * chunk in memory (execute/interpreter/server.c):
 *   (3 W - 1) S / memory rate
 * 0 if the memory rate is unknown.
 */
double ty_server_sum_seconds(uint32_t workers, double bytes, double memory_bytes_per_s);
/** O(workers times servers) routes, each looked up once. */
ty_status ty_server_network_find(ty_network_cache *networks, const uint32_t *workers,
                                 uint32_t worker_count, const uint32_t *servers,
                                 uint32_t server_count, ty_server_network *out,
                                 ty_error *error) TY_MUST_CHECK;
/** ty_parameter_server_seconds on this network; the edges are a worker's, both ways. */
ty_status ty_server_exchange_cost(const ty_server_network *network, double largest_share,
                                  uint64_t bytes, ty_instruction_cost *cost,
                                  ty_error *error) TY_MUST_CHECK;
/**
 * ty_exchange_by_stack, then the servers' sums, which overlap with the receive chunk by chunk: a
 * push takes the longer of the two.
 * @param members       the workers' own network
 * @param largest_share,bytes as in ty_server_exchange_cost
 */
void ty_server_exchange_by_stack(const ty_server_network *network, const ty_group_network *members,
                                 const ty_stack *stack, double largest_share, uint64_t bytes,
                                 ty_instruction_cost *cost);

#endif
