/*
 * Collectives by the latency-bandwidth model. Each is a number of steps, one message latency
 * each, and a number of bytes over every edge of its pattern.
 *
 * A binomial tree can reduce and broadcast, not gather pieces of different members more cheaply
 * than a ring: where a plan asks for such a tree, the ring is priced, which is what runs.
 */
#include "ty_planner.h"

#include <math.h>

/* Steps and bytes over one edge for n members of S bytes each. */
typedef struct pattern {
    double (*steps)(double n);
    double (*edge_bytes)(double n, double bytes);
} pattern;

static double ring_steps(double n)
{
    return n - 1;
}

static double ring_gathered(double n, double bytes)
{
    return (n - 1) * bytes;
}

static double ring_scattered(double n, double bytes)
{
    return (n - 1) / n * bytes;
}

static double two_ring_steps(double n)
{
    return 2 * (n - 1);
}

static double two_ring_scattered(double n, double bytes)
{
    return 2 * (n - 1) / n * bytes;
}

static double tree_steps(double n)
{
    return ceil(log2(n));
}

static double tree_bytes(double n, double bytes)
{
    return ceil(log2(n)) * bytes;
}

static double two_tree_steps(double n)
{
    return 2 * tree_steps(n);
}

static double two_tree_bytes(double n, double bytes)
{
    return 2 * tree_bytes(n, bytes);
}

/* Broadcast of a long message: scatter along a tree, then a ring all-gather (van de Geijn). */
static double scattered_broadcast_steps(double n)
{
    return tree_steps(n) + n - 1;
}

static double one_step(double n)
{
    return n > 1 ? 1 : 0;
}

static double all_bytes(double n, double bytes)
{
    return n > 1 ? bytes : 0;
}

/* Everybody sends everybody else a share, twice. */
static double two_exchange_steps(double n)
{
    return n > 1 ? 2 : 0;
}

/* Source of all rows: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication
   Operations in MPICH", 2005: all-gather 4.1, broadcast 4.2, reduce-scatter and all-reduce 4.3
   to 4.5. */
/* A broadcast of one, and a reduction to one, are each other's reverse. */
static const pattern rings[TY_COLLECTIVE_COUNT] = {
    [TY_ALL_REDUCE] = {two_ring_steps, two_ring_scattered},
    [TY_ALL_GATHER] = {ring_steps, ring_gathered},
    [TY_REDUCE_SCATTER] = {ring_steps, ring_scattered},
    [TY_BROADCAST] = {scattered_broadcast_steps, two_ring_scattered},
    [TY_REDUCE] = {scattered_broadcast_steps, two_ring_scattered},
    [TY_ALL_TO_ALL] = {ring_steps, ring_scattered},
    [TY_SEND_RECEIVE] = {one_step, all_bytes},
};
static const pattern trees[TY_COLLECTIVE_COUNT] = {
    [TY_ALL_REDUCE] = {two_tree_steps, two_tree_bytes},
    [TY_BROADCAST] = {tree_steps, tree_bytes},
    [TY_REDUCE] = {tree_steps, tree_bytes},
};
static const pattern shared_servers = {two_exchange_steps, two_ring_scattered};

/* Among members each on a host of its own, a hierarchy is a ring. */
static const pattern *pattern_of(ty_collective_kind kind, ty_algorithm algorithm)
{
    if (algorithm == TY_TREE && trees[kind].steps != NULL)
        return &trees[kind];
    if ((algorithm == TY_PARAMETER_SERVER || algorithm == TY_BLOCK_MANAGER) &&
        kind == TY_ALL_REDUCE)
        return &shared_servers;
    return &rings[kind];
}

ty_status ty_collective_cost(ty_collective_kind kind, ty_algorithm algorithm, uint32_t members,
                             uint64_t bytes, double bandwidth_bytes_per_s, double latency_s,
                             ty_instruction_cost *cost, ty_error *error)
{
    const pattern *p;

    if ((size_t)kind >= TY_COLLECTIVE_COUNT || (size_t)algorithm >= TY_ALGORITHM_COUNT)
        return ty_fail(error, TY_EINVAL, "collective %d by algorithm %d: there is no such thing",
                       (int)kind, (int)algorithm);
    if (members == 0)
        return ty_fail(error, TY_EINVAL, "%s: found 0 members, expected at least 1",
                       ty_collective_name(kind));
    if (!(bandwidth_bytes_per_s > 0) || !(latency_s >= 0) || isinf(latency_s))
        return ty_fail(error, TY_EINVAL,
                       "%s: found %g bytes/s and %g s of latency, expected a bandwidth > 0 and a "
                       "latency >= 0",
                       ty_collective_name(kind), bandwidth_bytes_per_s, latency_s);
    p = pattern_of(kind, algorithm);
    *cost = (ty_instruction_cost){.latency_s = p->steps(members) * latency_s,
                                  .edge_bytes = p->edge_bytes(members, (double)bytes)};
    cost->seconds = cost->latency_s + cost->edge_bytes / bandwidth_bytes_per_s;
    return TY_OK;
}
