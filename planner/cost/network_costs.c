/*
 * Communication costs: send/recv between stages and collectives of buckets. Measured times are
 * split into a fixed part and a rate, because a simulator needs both. The result is always seconds
 * = latency_s + edge_bytes / min(rate limit, narrowest link).
 */
#include "costing.h"

#include <math.h>

/* Fixed part and rate of a measured time. The fixed part is the time of the smallest payload; the
 * rest is per byte. If that exceeds the link's bandwidth, the link is the limit and the fixed part
 * is smaller. */
static ty_instruction_cost measured_parts(double seconds, double smallest_s, double edge_bytes,
                                          double link_bytes_per_s)
{
    ty_instruction_cost cost = {.latency_s = fmin(smallest_s, seconds), .edge_bytes = edge_bytes};
    double transfer_s = seconds - cost.latency_s, rate = link_bytes_per_s;

    if (transfer_s > 0 && edge_bytes > 0 && edge_bytes / transfer_s < link_bytes_per_s)
        rate = cost.rate_limit_bytes_per_s = edge_bytes / transfer_s;
    else
        cost.latency_s = fmax(0, seconds - edge_bytes / link_bytes_per_s);
    cost.seconds = cost.latency_s + edge_bytes / rate;
    return cost;
}

/* ---- Send/recv --------------------------------------------------------------------------- */

/* The slowest path between two replicas that send each other micro-batches, and its ends.
 */
static ty_status worst_path(const ty_costing *costing, uint32_t peer_stage, double bytes,
                            double *bandwidth_bytes_per_s, double *latency_s, uint32_t ends[2])
{
    const ty_plan *plan = costing->plan;
    const ty_plan_stage *own = &plan->stages[costing->stage.stage];
    const ty_plan_stage *peer = &plan->stages[peer_stage];
    const uint32_t width =
        ty_plan_replica_ranks(plan); /* rank i sends to rank i: the first represents all */
    double worst_s = -1;

    /* Micro-batch m pairs replicas m mod r and m mod r': the pairs repeat after r r' at the latest.
     */
    for (uint64_t m = 0; m < plan->micro_batches && m < (uint64_t)own->replicas * peer->replicas;
         m++) {
        uint32_t from = (uint32_t)(m % own->replicas), to = (uint32_t)(m % peer->replicas);
        double seconds, path_bytes_per_s, path_latency_s;
        if (m > 0 && from == 0 && to == 0)
            break;
        TY_TRY(ty_network_of_pair(costing->networks, own->devices[from * width],
                                  peer->devices[to * width], &path_bytes_per_s, &path_latency_s,
                                  costing->error));
        seconds = path_latency_s + bytes / path_bytes_per_s;
        if (seconds > worst_s) {
            worst_s = seconds;
            *bandwidth_bytes_per_s = path_bytes_per_s;
            *latency_s = path_latency_s;
            ends[0] = own->devices[from * width];
            ends[1] = peer->devices[to * width];
        }
    }
    return TY_OK;
}

/* Maximum number of pairs of devices to evaluate together; with more, neighbors are assumed to have
 * separate links, and only the simulator sees contention. */
#define MOST_PAIRS 256

/* Bandwidth of a send while all replicas and ranks of the stage send: at most `bandwidth`, less if
 * their routes share links. With unequal replicas, only as many as the side with fewer has are
 * busy. */
static ty_status share_links(const ty_costing *costing, uint32_t peer_stage,
                             double *bandwidth_bytes_per_s)
{
    const ty_plan *plan = costing->plan;
    const ty_plan_stage *own = &plan->stages[costing->stage.stage];
    const ty_plan_stage *peer = &plan->stages[peer_stage];
    const uint32_t width = ty_plan_replica_ranks(plan);
    const uint32_t busy = own->replicas < peer->replicas ? own->replicas : peer->replicas;
    uint32_t from[MOST_PAIRS], to[MOST_PAIRS], count = 0, pairs = 0;
    double shared;
    ty_status status;

    for (uint64_t m = 0; m < plan->micro_batches; m++, pairs++) {
        const uint32_t a = (uint32_t)(m % own->replicas), b = (uint32_t)(m % peer->replicas);
        if (m > 0 && a == 0 && b == 0)
            break;
        if (count + width > MOST_PAIRS)
            return TY_OK;
        for (uint32_t replica_rank = 0; replica_rank < width; replica_rank++, count++) {
            from[count] = own->devices[a * width + replica_rank];
            to[count] = peer->devices[b * width + replica_rank];
        }
    }
    status = ty_network_shared_rate(costing->networks, from, to, count, (double)busy / pairs,
                                    &shared, costing->error);
    if (status == TY_OK)
        *bandwidth_bytes_per_s = fmin(*bandwidth_bytes_per_s, shared);
    return status;
}

static ty_status cost_transfer(ty_costing *costing, uint32_t peer_stage, uint64_t payload,
                               ty_instruction_cost *cost)
{
    double bytes = (double)payload, bandwidth = HUGE_VAL, latency_s = 0;
    double seconds, smallest_s;
    uint32_t ends[2] = {0, 0};

    TY_TRY(worst_path(costing, peer_stage, bytes, &bandwidth, &latency_s, ends));
    if (costing->is_local && ty_profile_transfer(costing->profile, payload, &seconds) &&
        ty_profile_transfer(costing->profile, 1, &smallest_s)) {
        *cost = measured_parts(seconds, smallest_s, bytes, bandwidth);
        cost->core_share = ty_profile_busy_share(costing->profile, payload);
    } else {
        const ty_stack *stack = ty_stack_of(costing->plan);
        const ty_group_network *pair;
        double share, message_s;
        TY_TRY(share_links(costing, peer_stage, &bandwidth));
        TY_TRY(ty_network_of_group(costing->networks, ends, 2, &pair, costing->error));
        share = stack->transfer_share * ty_group_pair_share(pair, stack, &message_s);
        latency_s += stack->transfer_s + message_s;
        bandwidth *= share;
        *cost = (ty_instruction_cost){.seconds = latency_s + bytes / bandwidth,
                                      .latency_s = latency_s,
                                      .edge_bytes = bytes,
                                      .rate_limit_bytes_per_s = share < 1 ? bandwidth : 0,
                                      .core_share = 1};
        ty_cost_relies_on(costing, TY_DATASHEET);
    }
    cost->core_share *= costing->stage.core_share;
    return TY_OK;
}

ty_status ty_cost_send(ty_costing *costing, const ty_instruction *instruction,
                       ty_instruction_cost *cost)
{
    const uint32_t stage = instruction->stage, peer = instruction->peer_stage;
    ty_stage_transfer *known = &costing->stage.transfers[peer > stage ? 1 : 0];

    if (peer >= costing->plan->stage_count || stage >= costing->plan->stage_count ||
        (peer + 1 != stage && peer != stage + 1))
        return ty_fail(costing->error, TY_EINVAL,
                       "program:/stages/%u: a send to stage %u, which is no neighbour of it in a "
                       "plan of %u",
                       stage, peer, costing->plan->stage_count);
    if (!known->is_known || known->bytes != instruction->bytes) {
        ty_status status = cost_transfer(costing, peer, instruction->bytes, &known->cost);
        if (status != TY_OK)
            return status;
        known->bytes = instruction->bytes;
        known->is_known = true;
    }
    *cost = known->cost;
    return TY_OK;
}

ty_status ty_cost_receive(ty_costing *costing, const ty_instruction *instruction,
                          ty_instruction_cost *cost)
{
    (void)costing;
    (void)instruction;
    *cost = (ty_instruction_cost){0};
    return TY_OK;
}

/* ---- Collectives ------------------------------------------------------------------------- */

/* Groups run their collectives at the same time. At most this many routes are evaluated: the first
 * hosts show the contention for a host's NICs. */
#define MOST_GROUP_ROUTES 64

/* Rings of groups of devices, up to the maximum above. */
typedef struct group_routes {
    uint32_t from[MOST_GROUP_ROUTES], to[MOST_GROUP_ROUTES];
    uint32_t count, first; /* routes; of the first group */
} group_routes;

/* Slowdown of groups that share NICs: the rate of the first one's ring alone over the rate of each
 * while all run. */
static ty_status crowd_of_groups(const ty_costing *costing, const group_routes *routes,
                                 double *crowd)
{
    double alone, together;

    *crowd = 1;
    if (routes->count == routes->first)
        return TY_OK;
    TY_TRY(ty_network_shared_rate(costing->networks, routes->from, routes->to, routes->first, 1,
                                  &alone, costing->error));
    TY_TRY(ty_network_shared_rate(costing->networks, routes->from, routes->to, routes->count, 1,
                                  &together, costing->error));
    if (together > 0 && together < alone)
        *crowd = alone / together;
    return TY_OK;
}

/* Slowdown of the TP, CP or EP groups of one stage replica; TP groups are assumed to share no
 * links. */
static ty_status crowd_of_parallel(const ty_costing *costing, ty_parallelism kind, double *crowd)
{
    const ty_plan *plan = costing->plan;
    const uint32_t *devices = plan->stages[costing->stage.stage].devices;
    const uint32_t count = ty_plan_parallel_size(plan, kind), width = ty_plan_replica_ranks(plan);
    group_routes routes = {.first = count};

    *crowd = 1;
    if (kind == TY_TENSOR_PARALLEL || count > MOST_GROUP_ROUTES)
        return TY_OK;
    for (uint32_t replica_rank = 0;
         replica_rank < width && routes.count + count <= MOST_GROUP_ROUTES; replica_rank++) {
        if (ty_plan_rank_along(plan, kind, replica_rank, 0) != replica_rank)
            continue;
        for (uint32_t n = 0; n < count; n++, routes.count++) {
            routes.from[routes.count] = devices[ty_plan_rank_along(plan, kind, replica_rank, n)];
            routes.to[routes.count] =
                devices[ty_plan_rank_along(plan, kind, replica_rank, (n + 1) % count)];
        }
    }
    return crowd_of_groups(costing, &routes, crowd);
}

/* Slowdown of the groups that reduce a bucket. */
static ty_status crowd_of_bucket(const ty_costing *costing, const ty_bucket *bucket, double *crowd)
{
    const ty_plan *plan = costing->plan;
    const ty_plan_stage *planned = &plan->stages[bucket->stage];
    const uint32_t groups = ty_bucket_group_count(plan, bucket),
                   width = ty_plan_replica_ranks(plan);
    const uint32_t per_replica = ty_bucket_rank_count(plan, bucket);
    uint32_t members = planned->replicas * per_replica;
    group_routes routes = {.count = 0};

    *crowd = 1;
    if (members * groups > MOST_GROUP_ROUTES)
        members = MOST_GROUP_ROUTES / groups;
    if (groups == 1 || members < 2)
        return TY_OK;
    routes.first = members;
    for (uint32_t g = 0; g < groups; g++)
        for (uint32_t m = 0; m < members; m++, routes.count++) {
            const uint32_t next = (m + 1) % members;
            routes.from[routes.count] =
                planned->devices[m / per_replica * width +
                                 ty_bucket_rank(plan, bucket, g, m % per_replica)];
            routes.to[routes.count] =
                planned->devices[next / per_replica * width +
                                 ty_bucket_rank(plan, bucket, g, next % per_replica)];
        }
    return crowd_of_groups(costing, &routes, crowd);
}

/* On a torus the groups between a group's members share its links, whatever `otherwise` the routes
 * give. Over sockets a group alone does not fill the NIC, which others then use. */
static double crowd_of(const ty_group_network *network, const ty_stack *stack,
                       ty_collective_kind kind, ty_algorithm algorithm, double otherwise)
{
    const ty_torus *torus = &network->rails.torus;
    double latency_s;

    if (network->rails.hosts > 1 && ty_link_transport_is_sockets(network->library.transport))
        return fmax(1, otherwise * ty_group_pair_share(network, stack, &latency_s));
    if (algorithm != TY_AUTOMATIC || torus->axis_count == 0)
        return otherwise;
    return ty_torus_rate(torus, kind, false) / ty_torus_rate(torus, kind, true);
}

/* Multiplies the bandwidth term of a collective. The rate of an edge stays: the simulator has the
 * contention itself. */
static void slow_down(ty_instruction_cost *cost, double crowd)
{
    if (crowd > 1)
        cost->seconds = cost->latency_s + (cost->seconds - cost->latency_s) * crowd;
}

/* The network of the TP, CP or EP group of `replica_rank`; stored if it is narrower than the
 * narrowest so far. */
static ty_status price_parallel(ty_costing *costing, ty_parallelism kind, const uint32_t *replica,
                                uint32_t replica_rank)
{
    const uint32_t count = ty_plan_parallel_size(costing->plan, kind);
    const ty_group_network **narrowest = &costing->stage.parallel[kind], *found;
    uint32_t devices[TY_MAX_PARALLEL_SIZE];

    for (uint32_t n = 0; n < count; n++)
        devices[n] = replica[ty_plan_rank_along(costing->plan, kind, replica_rank, n)];
    TY_TRY(ty_network_of_group(costing->networks, devices, count, &found, costing->error));
    if (*narrowest == NULL ||
        found->ring_bandwidth_bytes_per_s < (*narrowest)->ring_bandwidth_bytes_per_s)
        *narrowest = found;
    return TY_OK;
}

/* Among the pipeline rank's TP, CP or EP groups, the one with the narrowest ring. */
static ty_status find_parallel(ty_costing *costing, ty_parallelism kind)
{
    const ty_plan *plan = costing->plan;
    const ty_plan_stage *planned = &plan->stages[costing->stage.stage];
    const uint32_t width = ty_plan_replica_ranks(plan);

    if (ty_plan_parallel_size(plan, kind) > TY_MAX_PARALLEL_SIZE)
        return ty_fail(costing->error, TY_EINVAL, "%u %s ranks, expected at most %d",
                       ty_plan_parallel_size(plan, kind), ty_parallelism_name(kind),
                       TY_MAX_PARALLEL_SIZE);
    for (uint32_t q = 0; q < planned->replicas; q++)
        for (uint32_t replica_rank = 0; replica_rank < width; replica_rank++)
            if (ty_plan_rank_along(plan, kind, replica_rank, 0) == replica_rank)
                TY_TRY(price_parallel(costing, kind, &planned->devices[(size_t)q * width],
                                      replica_rank));
    return crowd_of_parallel(costing, kind, &costing->stage.parallel_crowds[kind]);
}

static ty_status network_of_bucket(const ty_costing *costing, const ty_bucket *bucket,
                                   const ty_group_network **out)
{
    const ty_plan *plan = costing->plan;
    uint32_t count = ty_bucket_device_count(plan, bucket);
    uint32_t *devices = ty_alloc(count, sizeof *devices);
    ty_status status;

    TY_TRY(ty_check_memory(devices != NULL, costing->error));
    (void)ty_bucket_devices(plan, bucket, 0, devices);
    status = ty_network_of_group(costing->networks, devices, count, out, costing->error);
    ty_free(devices);
    return status;
}

/* The network of a bucket's members; all untied buckets of a stage have the same, except those of
 * experts. */
static ty_status find_network(ty_costing *costing, const ty_bucket *bucket,
                              const ty_group_network **out)
{
    const ty_group_network **known = &costing->stage.networks[bucket->of_experts];

    if (bucket->tied_stage != TY_NO_STAGE)
        return network_of_bucket(costing, bucket, out);
    if (*known == NULL)
        TY_TRY(network_of_bucket(costing, bucket, known));
    *out = *known;
    return TY_OK;
}

ty_status ty_cost_is_library(ty_costing *costing, const ty_bucket *bucket, bool *out)
{
    const ty_group_network *network;
    ty_status status = find_network(costing, bucket, &network);

    if (status == TY_OK)
        *out = ty_group_has_library(network);
    return status;
}

/* The algorithm whose rows apply to the worker: only all-reduces have a choice, and on one host a
 * hierarchy is a ring. */
static ty_algorithm measured_as(ty_collective_kind kind, ty_algorithm algorithm)
{
    if (kind != TY_ALL_REDUCE || algorithm == TY_AUTOMATIC || algorithm == TY_HIERARCHICAL)
        return TY_RING;
    return algorithm == TY_BLOCK_MANAGER ? TY_PARAMETER_SERVER : algorithm;
}

/* On the profiled host: rows of the worker's own algorithms. */
static bool measured_here(const ty_costing *costing, ty_collective_kind kind,
                          ty_algorithm algorithm, const ty_group_network *network, uint64_t bytes,
                          ty_instruction_cost *cost)
{
    const ty_algorithm rows = measured_as(kind, algorithm);
    double seconds, smallest_s, busy_share, crowd;

    if (!costing->is_local ||
        !ty_profile_collective(costing->profile, kind, rows, network->members, bytes, &seconds) ||
        !ty_profile_collective(costing->profile, kind, rows, network->members, 1, &smallest_s))
        return false;
    busy_share = ty_profile_busy_share(costing->profile, bytes);
    /* A collective was measured with all its members on the host; if they exceeded its cores, they
     * took turns. The time without contention is shorter by that factor, because readers of the
     * costs model the sharing of cores themselves. */
    double demand = network->members * costing->stage.rank_core_share * busy_share;
    crowd = fmax(1, demand / costing->profile->cores);
    *cost = measured_parts(seconds / crowd, smallest_s / crowd, cost->edge_bytes,
                           network->ring_bandwidth_bytes_per_s);
    cost->core_share = busy_share;
    return true;
}

ty_status ty_cost_inner(ty_costing *costing, const ty_inner_collective *inner, double *seconds,
                        double *hidden_s)
{
    const ty_stack *stack = ty_stack_of(costing->plan);
    const ty_group_network *group;
    ty_algorithm algorithm;
    ty_instruction_cost cost;
    double hidden;

    if (costing->stage.parallel[inner->among] == NULL)
        TY_TRY(find_parallel(costing, inner->among));
    group = costing->stage.parallel[inner->among];
    algorithm = ty_group_has_library(group) ? TY_AUTOMATIC : TY_RING;
    TY_TRY(ty_group_inner_cost(group, stack, inner, &cost, costing->error));
    if (!measured_here(costing, inner->kind, algorithm, group, inner->bytes, &cost))
        ty_cost_relies_on(costing, group->table != NULL ? TY_CALIBRATED : TY_DATASHEET);
    slow_down(&cost, crowd_of(group, stack, inner->kind, algorithm,
                              costing->stage.parallel_crowds[inner->among]));
    hidden = ty_talk_hidden(group, stack, inner);
    *seconds = cost.seconds * inner->count * (1 - hidden);
    if (inner->among == TY_EXPERT_PARALLEL)
        *hidden_s = cost.seconds * inner->count * hidden;
    return TY_OK;
}

/* On another cluster: rows with the same numbers of ranks and hosts. */
static bool measured_there(const ty_costing *costing, ty_collective_kind kind,
                           ty_algorithm algorithm, const ty_group_network *network, uint64_t bytes,
                           ty_instruction_cost *cost)
{
    double seconds, smallest_s, edge_bytes, rate;

    if (costing->profile == NULL || algorithm != TY_AUTOMATIC ||
        !ty_profile_placed_collective(costing->profile, kind, algorithm, network->members,
                                      network->rails.hosts, bytes, &seconds) ||
        !ty_profile_placed_collective(costing->profile, kind, algorithm, network->members,
                                      network->rails.hosts, 1, &smallest_s))
        return false;
    ty_group_automatic_edge(network, kind, bytes, &edge_bytes, &rate);
    *cost = measured_parts(seconds, smallest_s, edge_bytes, rate);
    return true;
}

ty_status ty_cost_collective_of(ty_costing *costing, const ty_bucket *bucket,
                                ty_collective_kind kind, ty_algorithm algorithm, uint64_t bytes,
                                ty_instruction_cost *cost)
{
    const ty_group_network *network;
    double crowd = 0, agreement_s;

    TY_TRY(find_network(costing, bucket, &network));
    if (costing->plan->servers.count > 0)
        TY_TRY(ty_cost_servers(costing, bucket, network, bytes, cost));
    else
        TY_TRY(ty_group_exchange_cost(network, kind, algorithm, bytes, cost, costing->error));
    if (costing->plan->servers.count == 0 &&
        !measured_here(costing, kind, algorithm, network, bytes, cost) &&
        !measured_there(costing, kind, algorithm, network, bytes, cost)) {
        ty_exchange_by_stack(network, ty_stack_of(costing->plan), kind, cost);
        ty_exchange_add_sums(network, kind, algorithm, bytes, cost);
        ty_cost_relies_on(costing, algorithm == TY_AUTOMATIC && network->table != NULL
                                       ? TY_CALIBRATED
                                       : TY_DATASHEET);
    }
    /* Also if the collective was measured: the worker measured it, without an agreement among
     * members. */
    agreement_s = ty_agreement_s(network, ty_stack_of(costing->plan));
    cost->latency_s += agreement_s;
    cost->seconds += agreement_s;
    if (bucket->tied_stage == TY_NO_STAGE)
        crowd = costing->stage.bucket_crowds[bucket->of_experts];
    if (!(crowd > 0))
        TY_TRY(crowd_of_bucket(costing, bucket, &crowd));
    if (bucket->tied_stage == TY_NO_STAGE)
        costing->stage.bucket_crowds[bucket->of_experts] = crowd;
    slow_down(cost, crowd_of(network, ty_stack_of(costing->plan), kind, algorithm, crowd));
    return TY_OK;
}

ty_status ty_cost_bucket(ty_costing *costing, uint32_t index, uint32_t phase,
                         ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost)
{
    const ty_bucket *bucket = &costing->plan->buckets[index];

    return ty_cost_collective_of(costing, bucket,
                                 ty_plan_exchange_kind(costing->plan, bucket, phase), algorithm,
                                 bytes, cost);
}

ty_status ty_cost_collective(ty_costing *costing, const ty_instruction *instruction,
                             ty_instruction_cost *cost)
{
    const ty_stack *stack = ty_stack_of(costing->plan);
    const ty_bucket *bucket;
    uint64_t bytes = instruction->bytes;

    if (instruction->bucket >= costing->plan->bucket_count)
        return ty_fail(costing->error, TY_EINVAL,
                       "program:/stages/%u: a collective of bucket %u, but the plan has %u",
                       costing->stage.stage, instruction->bucket, costing->plan->bucket_count);
    bucket = &costing->plan->buckets[instruction->bucket];
    if (instruction->phase >= ty_compression_phases(&bucket->compression))
        return ty_fail(costing->error, TY_EINVAL,
                       "program:/stages/%u: phase %u of bucket %u, which has no such phase",
                       costing->stage.stage, instruction->phase, instruction->bucket);
    if (instruction->op == TY_OP_COLLECTIVE && bucket->compression.kind == TY_COMPRESSION_NONE)
        bytes = (uint64_t)((double)bytes * stack->gradient_bytes / TY_GRADIENT_ELEMENT_BYTES);
    TY_TRY(ty_cost_collective_of(
        costing, bucket,
        instruction->op == TY_OP_GATHER
            ? TY_ALL_GATHER
            : ty_plan_exchange_kind(costing->plan, bucket, instruction->phase),
        bucket->algorithm, bytes, cost));
    /* A collective of every k-th step adds 1/k of its time and bytes to each step. */
    const uint32_t interval = ty_plan_exchange_interval(costing->plan, bucket);
    cost->seconds /= interval;
    cost->latency_s /= interval;
    cost->edge_bytes /= interval;
    /* A measurement includes the core use of its ranks. */
    cost->core_share = costing->stage.core_share * (cost->core_share > 0 ? cost->core_share : 1);
    return TY_OK;
}
