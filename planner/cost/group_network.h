/* What lies between the members of an exchange, found out once and asked for every bucket. Internal
 * to planner/. */
#ifndef TY_GROUP_NETWORK_H
#define TY_GROUP_NETWORK_H

#include "ty_planner.h"

typedef struct ty_group_network {
    uint32_t members;
    uint32_t groups_per_host; /* such groups that the devices of the first one's host are in */
    ty_rails rails;
    double ring_bandwidth_bytes_per_s, ring_latency_s; /* one ring, members in their order */
    double memory_bytes_per_s;  /* that a member reads and writes, the slowest, while it adds up */
    ty_collective_table *table; /* NULL: no library's model covers the devices */
} ty_group_network;

/** @param devices of the members, in their order */
ty_status ty_group_network_find(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                                ty_group_network *out, ty_error *error) TY_MUST_CHECK;
void ty_group_network_clear(ty_group_network *network);

/**
 * An exchange of `bytes` that each member puts in, without measured figures:
 * - ring, tree: ty_collective_cost on one ring;
 * - automatic: the library's choice over all NICs of a host, no faster than the links; on a torus
 *   all axes at once (ty_program.h); where no library is modelled, rings over all NICs;
 * - hierarchical, parameter server (a share on every member; servers of their own are in
 *   server_costs.c), block manager: ty_collective_model.h.
 * Only an all-reduce has the last three; others are priced, and played, as a ring.
 */
ty_status ty_group_exchange_cost(const ty_group_network *network, ty_collective_kind kind,
                                 ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost,
                                 ty_error *error) TY_MUST_CHECK;
/** Of an algorithm that the library has chosen, or was told to take, no faster than the links;
 * `table` is not NULL. */
void ty_group_library_cost(const ty_group_network *network, ty_collective_kind kind, uint64_t bytes,
                           const ty_collective_choice *choice, ty_instruction_cost *cost);
/**
 * What a stack makes of an exchange that the library's model has priced: its own time beside it,
 * the share of the rate that it reaches, what groups of a host lose to one another, the most that a
 * group draws which does not fill its hosts (ty_stack.h). Measured figures have all that in them.
 */
void ty_exchange_by_stack(const ty_group_network *network, const ty_stack *stack,
                          ty_collective_kind kind, ty_instruction_cost *cost);
/**
 * Then what members add up that serve each other, each its share of the bucket (parameter server,
 * block manager): of every other member as much is read as of the own part, which is there, and
 * written again, by the device that computes (execute/transport/collective_pieces.c):
 *   3 (n - 1) / n bytes / memory rate
 * which hides piece by piece behind what arrives: ty_sum_hide. Other algorithms, measured figures
 * and a library's model have it in them.
 */
void ty_exchange_add_sums(const ty_group_network *network, ty_collective_kind kind,
                          ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost);
/** Adding up hides behind what arrives, piece by piece: a push, half of the exchange, takes the
 * longer of the two. */
void ty_sum_hide(double sum_s, ty_instruction_cost *cost);
/** Of a collective among ranks, the share that is not waited for. What tensor-parallel ranks hide
 * needs memory that all members reach. What expert-parallel ranks hide needs products to last as
 * long, and costs them `overlap_loss` of it. */
double ty_talk_hidden(const ty_group_network *ranks, const ty_stack *stack,
                      const ty_inner_collective *inner);
/** Whether all members reach each other without a host's adapters: in a host, or on a torus. */
bool ty_group_is_inside(const ty_group_network *network);
/** Whether there is a library that chooses by itself: NCCL, or XLA on a torus. */
bool ty_group_has_library(const ty_group_network *network);
/**
 * One collective inside a layer, alone, by the library's choice, or as a ring where none chooses;
 * with what the stack makes of it. An all-to-all of experts is the mean of the way to them and the
 * way back. Where tokens cross the network once for all experts of a host (`expert_once`) it is an
 * all-to-all of so many bytes less, or as long as passing on inside the hosts takes, whichever is
 * longer: both go on at once, piece by piece (DeepSeek-AI, DeepEP, 2025).
 */
ty_status ty_group_inner_cost(const ty_group_network *ranks, const ty_stack *stack,
                              const ty_inner_collective *inner, ty_instruction_cost *cost,
                              ty_error *error) TY_MUST_CHECK;
/** Until the members of an exchange agree that it is ready on all of them (ty_stack.h). */
double ty_agreement_s(const ty_group_network *network, const ty_stack *stack);
/** Bytes over each edge of the channelled ring, and what its links allow. */
void ty_group_automatic_edge(const ty_group_network *network, ty_collective_kind kind,
                             uint64_t bytes, double *edge_bytes, double *link_bytes_per_s);

#endif
