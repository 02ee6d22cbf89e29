/*
 * What crosses the network: transfers between stages and exchanges of buckets. Measured times are
 * taken apart into a fixed part and a rate, because a simulator needs the parts; what comes out is
 * always seconds = latency_s + edge_bytes / min(rate limit, narrowest link).
 */
#include "costing.h"

#include <math.h>

/* The parts of a measured time. The fixed part is what the smallest payload takes; the rest is paid
   per byte. Where that would be more than the link carries, the link is the limit and the fixed
   part gives way. */
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

/* ---- Transfers --------------------------------------------------------------------------- */

/* The worst path between two replicas that exchange micro-batches: the transfer is slowest on it.
 */
static ty_status worst_path(const ty_costing *costing, uint32_t peer_stage, double bytes,
                            double *bandwidth_bytes_per_s, double *latency_s)
{
    const ty_plan *plan = costing->plan;
    const ty_plan_stage *own = &plan->stages[costing->stage.stage];
    const ty_plan_stage *peer = &plan->stages[peer_stage];
    const uint32_t width =
        ty_plan_width(plan); /* lanes meet their like: the first stands for all */
    double worst_s = -1;
    ty_status status;

    /* Micro-batch m pairs replicas m mod r and m mod r': the pairs repeat after r r' at the latest.
     */
    for (uint64_t m = 0; m < plan->micro_batches && m < (uint64_t)own->replicas * peer->replicas;
         m++) {
        uint32_t from = (uint32_t)(m % own->replicas), to = (uint32_t)(m % peer->replicas);
        ty_path path = {0};
        double seconds;
        if (m > 0 && from == 0 && to == 0)
            break;
        status = ty_cluster_path(costing->cluster, own->devices[from * width],
                                 peer->devices[to * width], &path, costing->error);
        if (status != TY_OK)
            return status;
        seconds = path.latency_s + bytes / path.bandwidth_bytes_per_s;
        if (seconds > worst_s) {
            worst_s = seconds;
            *bandwidth_bytes_per_s = path.bandwidth_bytes_per_s;
            *latency_s = path.latency_s;
        }
        ty_path_clear(&path);
    }
    return TY_OK;
}

static ty_status cost_transfer(ty_costing *costing, uint32_t peer_stage, uint64_t payload,
                               ty_instruction_cost *cost)
{
    double bytes = (double)payload, bandwidth = HUGE_VAL, latency_s = 0;
    double seconds, smallest_s;
    ty_status status = worst_path(costing, peer_stage, bytes, &bandwidth, &latency_s);

    if (status != TY_OK)
        return status;
    if (costing->is_local && ty_profile_transfer(costing->profile, payload, &seconds) &&
        ty_profile_transfer(costing->profile, 1, &smallest_s)) {
        *cost = measured_parts(seconds, smallest_s, bytes, bandwidth);
    } else {
        *cost = (ty_instruction_cost){
            .seconds = latency_s + bytes / bandwidth, .latency_s = latency_s, .edge_bytes = bytes};
        ty_cost_relies_on(costing, TY_DATASHEET);
    }
    cost->core_share = costing->stage.core_share;
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

/* The narrowest ring that the lanes of one of the position's ranks form. */
static ty_status find_lanes(ty_costing *costing)
{
    const ty_plan_stage *planned = &costing->plan->stages[costing->stage.stage];
    const uint32_t width = ty_plan_width(costing->plan);
    ty_stage_costing *stage = &costing->stage;

    for (uint32_t q = 0; q < planned->replicas; q++) {
        double bandwidth, latency_s;
        ty_status status = ty_cluster_ring(costing->cluster, &planned->devices[(size_t)q * width],
                                           width, &bandwidth, &latency_s, costing->error);
        if (status != TY_OK)
            return status;
        if (q > 0 && bandwidth >= stage->lane_bandwidth_bytes_per_s)
            continue;
        stage->lane_bandwidth_bytes_per_s = bandwidth;
        stage->lane_latency_s = latency_s;
    }
    return TY_OK;
}

ty_status ty_cost_inner(ty_costing *costing, const ty_inner_collective *inner, double *seconds)
{
    const ty_stage_costing *stage = &costing->stage;
    ty_instruction_cost cost;
    ty_status status = TY_OK;

    if (!(stage->lane_bandwidth_bytes_per_s > 0))
        TY_CHECK(find_lanes(costing), status, done);
    TY_CHECK(ty_collective_cost(inner->kind, TY_RING, ty_plan_width(costing->plan), inner->bytes,
                                stage->lane_bandwidth_bytes_per_s, stage->lane_latency_s, &cost,
                                costing->error),
             status, done);
    ty_cost_relies_on(costing, TY_DATASHEET);
    *seconds = cost.seconds * inner->count;
done:
    return status;
}

static ty_status ring_of_bucket(const ty_costing *costing, const ty_bucket *bucket,
                                double *bandwidth_bytes_per_s, double *latency_s)
{
    const ty_plan *plan = costing->plan;
    uint32_t count = ty_bucket_member_count(plan, bucket);
    uint32_t *devices = ty_alloc(count, sizeof *devices);
    ty_status status;

    if (devices == NULL)
        return ty_fail(costing->error, TY_ENOMEM, "out of memory");
    ty_bucket_members(plan, bucket, devices);
    for (uint32_t i = 0; i < count; i++)
        devices[i] = ty_plan_device_of_rank(plan, devices[i]);
    status = ty_cluster_ring(costing->cluster, devices, count, bandwidth_bytes_per_s, latency_s,
                             costing->error);
    ty_free(devices);
    return status;
}

/* The ring of a bucket's members; all untied buckets of a stage have the same. */
static ty_status find_ring(ty_costing *costing, const ty_bucket *bucket,
                           double *bandwidth_bytes_per_s, double *latency_s)
{
    ty_stage_costing *stage = &costing->stage;
    ty_status status;

    if (bucket->tied_stage != TY_NO_STAGE)
        return ring_of_bucket(costing, bucket, bandwidth_bytes_per_s, latency_s);
    if (!(stage->ring_bandwidth_bytes_per_s > 0)) {
        status = ring_of_bucket(costing, bucket, &stage->ring_bandwidth_bytes_per_s,
                                &stage->ring_latency_s);
        if (status != TY_OK)
            return status;
    }
    *bandwidth_bytes_per_s = stage->ring_bandwidth_bytes_per_s;
    *latency_s = stage->ring_latency_s;
    return TY_OK;
}

/* A collective was measured with all its members on the host; where they were more than its cores,
 * they took turns. What it takes alone is less by that, because readers of the costs let crowded
 * ranks share cores themselves. */
static double crowd_of_measurement(const ty_costing *costing, uint32_t members)
{
    double demand = members * costing->stage.core_share;

    return fmax(1, demand / costing->profile->cores);
}

static ty_status cost_exchange(ty_costing *costing, const ty_bucket *bucket,
                               ty_collective_kind kind, ty_algorithm algorithm, uint64_t bytes,
                               ty_instruction_cost *cost)
{
    uint32_t members = ty_bucket_member_count(costing->plan, bucket);
    double bandwidth, latency_s, seconds, smallest_s;
    ty_status status;

    TY_CHECK(find_ring(costing, bucket, &bandwidth, &latency_s), status, done);
    TY_CHECK(ty_collective_cost(kind, algorithm, members, bytes, bandwidth, latency_s, cost,
                                costing->error),
             status, done);
    if (costing->is_local &&
        ty_profile_collective(costing->profile, kind, algorithm, members, bytes, &seconds) &&
        ty_profile_collective(costing->profile, kind, algorithm, members, 1, &smallest_s))
        *cost = measured_parts(seconds / crowd_of_measurement(costing, members),
                               smallest_s / crowd_of_measurement(costing, members),
                               cost->edge_bytes, bandwidth);
    else
        ty_cost_relies_on(costing, TY_DATASHEET);
done:
    return status;
}

ty_status ty_cost_bucket(ty_costing *costing, uint32_t index, ty_algorithm algorithm,
                         uint64_t bytes, ty_instruction_cost *cost)
{
    const ty_bucket *bucket = &costing->plan->buckets[index];
    return cost_exchange(costing, bucket, ty_plan_exchange_kind(costing->plan, bucket), algorithm,
                         bytes, cost);
}

/* An exchange every few steps, seen from one: as much sooner, with as much less to move. */
static void share_among_steps(ty_instruction_cost *cost, uint32_t interval)
{
    cost->seconds /= interval;
    cost->latency_s /= interval;
    cost->edge_bytes /= interval;
}

ty_status ty_cost_collective(ty_costing *costing, const ty_instruction *instruction,
                             ty_instruction_cost *cost)
{
    const ty_bucket *bucket;
    ty_status status;

    if (instruction->bucket >= costing->plan->bucket_count)
        return ty_fail(costing->error, TY_EINVAL,
                       "program:/stages/%u: a collective of bucket %u, but the plan has %u",
                       costing->stage.stage, instruction->bucket, costing->plan->bucket_count);
    bucket = &costing->plan->buckets[instruction->bucket];
    status = cost_exchange(costing, bucket,
                           instruction->op == TY_OP_GATHER
                               ? TY_ALL_GATHER
                               : ty_plan_exchange_kind(costing->plan, bucket),
                           bucket->algorithm, instruction->bytes, cost);
    if (status != TY_OK)
        return status;
    share_among_steps(cost, ty_plan_exchange_interval(costing->plan, bucket));
    cost->core_share = costing->stage.core_share;
    return TY_OK;
}
