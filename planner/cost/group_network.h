/* The network between the members of a process group, found once and used for every bucket.
 * Internal to planner/. */
#ifndef TY_GROUP_NETWORK_H
#define TY_GROUP_NETWORK_H

#include "ty_planner.h"

typedef struct ty_group_network {
    uint32_t members;
    uint32_t
        groups_per_host; /* number of such groups among the devices of the first member's host */
    ty_rails rails;
    double ring_bandwidth_bytes_per_s, ring_latency_s; /* one ring, members in their order */
    double memory_bytes_per_s;  /* memory rate of the slowest member while it adds gradients */
    ty_collective_table *table; /* NULL: no library's model covers the devices */
    ty_communicator library;    /* with a table, what it was made from */
} ty_group_network;

/** @param devices of the members, in their order */
ty_status ty_group_network_find(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                                ty_group_network *out, ty_error *error) TY_MUST_CHECK;
void ty_group_network_clear(ty_group_network *network);

/**
 * Cost of a collective with an input of `bytes` per member, without measured figures.
 * - Ring, tree: ty_collective_cost on one ring.
 * - Automatic: the library's choice over all NICs of a host, no faster than the links; on a torus
 *   all axes at once (ty_program.h); if no library is modeled, rings over all NICs.
 * - Hierarchical, parameter server (a shard on every member; dedicated servers are in
 *   server_costs.c), block manager: ty_collective_model.h.
 * Only an all-reduce has the last three; other collectives are priced and simulated as a ring.
 */
ty_status ty_group_exchange_cost(const ty_group_network *network, ty_collective_kind kind,
                                 ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost,
                                 ty_error *error) TY_MUST_CHECK;
/** Cost of an algorithm that the library or the caller chose, no faster than the links; `table` is
 * not NULL. */
void ty_group_library_cost(const ty_group_network *network, ty_collective_kind kind, uint64_t bytes,
                           const ty_collective_choice *choice, ty_instruction_cost *cost);
/**
 * Adds a stack's overhead to a collective that the library's model priced: its own time, its share
 * of the rate, the loss from other groups of a host, and the rate limit of a group that does not
 * fill its hosts (ty_stack.h). Measured figures already include all of this.
 */
void ty_exchange_by_stack(const ty_group_network *network, const ty_stack *stack,
                          ty_collective_kind kind, ty_instruction_cost *cost);
/**
 * Then adds the time of sums if every member reduces its shard of the bucket (parameter server,
 * block manager). The compute device reads the shards of all other members and its own, and writes
 * the sum (execute/transport/collective_pieces.c):
 *   3 (n - 1) / n bytes / memory rate
 * It overlaps with the receive, chunk by chunk: ty_sum_hide. Other algorithms, measured figures and
 * a library's model already include it.
 */
void ty_exchange_add_sums(const ty_group_network *network, ty_collective_kind kind,
                          ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost);
/** Overlaps sums with the receive, chunk by chunk: a push, half of the time, takes the
 * longer of the two. */
void ty_sum_hide(double sum_s, ty_instruction_cost *cost);
/** The hidden share of a collective within a stage replica. TP ranks overlap only if all members
 * reach each other's memory. EP ranks overlap only as long as products run, and slow these by
 * `overlap_loss` of it. */
double ty_talk_hidden(const ty_group_network *ranks, const ty_stack *stack,
                      const ty_inner_collective *inner);
/** The share of its path's rate that a message between the two members of a group reaches, over
 * sockets or through host memory. @param latency_s [out] in addition to the path's */
double ty_group_pair_share(const ty_group_network *pair, const ty_stack *stack, double *latency_s);
/** Whether all members reach each other without a host's NICs: in one host, or on a torus. */
bool ty_group_is_inside(const ty_group_network *network);
/** Whether a library chooses the algorithm: NCCL, or XLA on a torus. */
bool ty_group_has_library(const ty_group_network *network);
/**
 * Cost of one collective inside a layer, alone, with the stack's overhead: by the library's choice,
 * or as a ring without a library. An all-to-all of experts is the mean of dispatch and combine. If
 * tokens cross the network once for all experts of a host (`expert_once`), it takes the longer of
 * an all-to-all of fewer bytes and the forwarding inside hosts, which overlap chunk by chunk
 * (DeepSeek-AI, DeepEP, 2025).
 */
ty_status ty_group_inner_cost(const ty_group_network *ranks, const ty_stack *stack,
                              const ty_inner_collective *inner, ty_instruction_cost *cost,
                              ty_error *error) TY_MUST_CHECK;
/** Seconds until the members of a group agree that a bucket is ready on
 * all of them (ty_stack.h). */
double ty_agreement_s(const ty_group_network *network, const ty_stack *stack);
/** Bytes over each edge of the ring in channels, and the bandwidth of its links. */
void ty_group_automatic_edge(const ty_group_network *network, ty_collective_kind kind,
                             uint64_t bytes, double *edge_bytes, double *link_bytes_per_s);

#endif
