/**
 * @file network_cache.h
 * What plans ask a cluster's routes for, found once: the candidates of a search put the same groups
 * of devices to the same use again and again, and finding a group's network means finding a route
 * for each of its members. Internal to planner/.
 *
 * What is found depends on the cluster and the devices alone, so an answer is the same whether it
 * was remembered or not. A cache belongs to one thread; the cluster outlives it.
 */
#ifndef TY_NETWORK_CACHE_H
#define TY_NETWORK_CACHE_H

#include "group_network.h"

typedef struct ty_network_cache ty_network_cache;

/** More than this many bytes are not remembered from one plan to the next. */
#define TY_NETWORK_CACHE_BYTES ((size_t)256 << 20)

ty_status ty_network_cache_new(const ty_cluster *cluster, ty_network_cache **out,
                               ty_error *error) TY_MUST_CHECK;
void ty_network_cache_free(ty_network_cache *cache);
const ty_cluster *ty_network_cache_cluster(const ty_network_cache *cache);
/** Forgets everything where that is more than `bytes`; nothing it gave may be in use. */
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

/* ---- Servers of their own (server_costs.c) --------------------------------------------------- */

/** Between replicas and the servers of their gradients. */
typedef struct ty_server_network {
    uint32_t workers, servers; /* one rank each */
    /* What each worker sends while all send to all servers; what comes to a server, the slowest,
     * while all workers send to that one alone. */
    double worker_bytes_per_s, server_bytes_per_s;
    double latency_s;          /* of the longest way */
    double memory_bytes_per_s; /* that a server reads and writes, the slowest, while it adds up */
    bool is_across;            /* a server is on another host than a worker */
} ty_server_network;
/**
 * Seconds that a server takes to add up its part of a bucket, `bytes` from each of `workers`: the
 * first is copied, every other one read, as is the sum, which is written again. That is what the
 * worker's servers do, in memory, a piece at a time (execute/interpreter/server.c):
 *   (3 W - 1) S / memory rate
 * 0 where nothing is known of the memory.
 */
double ty_server_sum_seconds(uint32_t workers, double bytes, double memory_bytes_per_s);
/** O(workers times servers) routes, each asked for once. */
ty_status ty_server_network_find(ty_network_cache *networks, const uint32_t *workers,
                                 uint32_t worker_count, const uint32_t *servers,
                                 uint32_t server_count, ty_server_network *out,
                                 ty_error *error) TY_MUST_CHECK;
/** ty_parameter_server_seconds over it; its edges are a worker's, both ways. */
ty_status ty_server_exchange_cost(const ty_server_network *network, double largest_share,
                                  uint64_t bytes, ty_instruction_cost *cost,
                                  ty_error *error) TY_MUST_CHECK;
/**
 * ty_exchange_by_stack; then what the servers compute, which hides piece by piece behind what
 * arrives: a push takes the longer of the two.
 * @param members       the workers' own network
 * @param largest_share,bytes as in ty_server_exchange_cost
 */
void ty_server_exchange_by_stack(const ty_server_network *network, const ty_group_network *members,
                                 const ty_stack *stack, double largest_share, uint64_t bytes,
                                 ty_instruction_cost *cost);

#endif
