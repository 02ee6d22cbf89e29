/* Counting what a program moves. */
#include "traffic.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct counter {
    const ty_plan *plan;
    const ty_program *program;
    const ty_costs *costs;
    traffic *out;
    uint32_t *members;  /* scratch, [ranks] */
    uint32_t *devices;  /* scratch, [ranks][lanes] */
    uint32_t own_first; /* flows of the rank in hand begin here */
} counter;

void ty_traffic_clear(traffic *t)
{
    ty_free(t->flows);
    ty_free(t->link_bytes);
    *t = (traffic){0};
}

/* Bytes from one device to another; pairs are summed rank by rank. */
static ty_status add_flow(counter *c, uint32_t source, uint32_t target, double bytes,
                          ty_error *error)
{
    traffic *t = c->out;
    uint32_t i = c->own_first;

    if (!(bytes > 0) || source == target)
        return TY_OK;
    while (i < t->flow_count && (t->flows[i].from != source || t->flows[i].to != target))
        i++;
    if (i < t->flow_count) {
        t->flows[i].bytes += bytes;
        return TY_OK;
    }
    if (t->flow_count == t->capacity) {
        const uint32_t capacity = t->capacity > 0 ? 2 * t->capacity : 256;
        flow *grown = ty_resize(t->flows, capacity, sizeof *grown);
        if (grown == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory");
        t->flows = grown;
        t->capacity = capacity;
    }
    t->flows[t->flow_count++] = (flow){source, target, bytes};
    return TY_OK;
}

/* Each lane to the same lane of another rank. */
static ty_status add_send(counter *c, uint32_t from, uint32_t to, double bytes, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t lane = 0; status == TY_OK && lane < ty_plan_width(c->plan); lane++)
        status = add_flow(c, ty_plan_device_of_lane(c->plan, from, lane),
                          ty_plan_device_of_lane(c->plan, to, lane), bytes, error);
    return status;
}

/* A member of a binomial tree sends up to its parent, and what comes down on to its children. */
static ty_status add_tree(counter *c, uint32_t own, uint32_t count, double bytes, ty_error *error)
{
    ty_status status = TY_OK;

    if (own > 0)
        TY_CHECK(add_flow(c, c->devices[own], c->devices[own & (own - 1)], bytes, error), status,
                 done);
    for (uint32_t bit = 1; own + bit < count && (own & bit) == 0; bit <<= 1)
        TY_CHECK(add_flow(c, c->devices[own], c->devices[own + bit], bytes, error), status, done);
done:
    return status;
}

/* What one device of a group sends, its `own`-th. */
static ty_status add_member(counter *c, uint32_t position, uint32_t index, uint32_t own,
                            uint32_t count, ty_error *error)
{
    const ty_instruction *in = &c->program->stages[position].instructions[index];
    const ty_bucket *bucket = &c->plan->buckets[in->bucket];

    if (bucket->algorithm == TY_TREE && in->op == TY_OP_COLLECTIVE &&
        ty_plan_exchange_kind(c->plan, bucket, in->phase) == TY_ALL_REDUCE)
        return add_tree(c, own, count, (double)in->bytes, error);
    return add_flow(c, c->devices[own], c->devices[(own + 1) % count],
                    c->costs->instructions[position][index].edge_bytes, error);
}

static ty_status add_collective(counter *c, uint32_t rank, uint32_t position, uint32_t index,
                                ty_error *error)
{
    const ty_bucket *bucket =
        &c->plan->buckets[c->program->stages[position].instructions[index].bucket];
    const uint32_t ranks = ty_bucket_members(c->plan, bucket, c->members);
    const uint32_t lanes = ty_bucket_lane_count(c->plan, bucket);
    ty_status status = TY_OK;
    uint32_t own = 0;

    while (own < ranks && c->members[own] != rank)
        own++;
    if (own == ranks || ranks * lanes < 2)
        return TY_OK;
    for (uint32_t g = 0; g < ty_bucket_group_count(c->plan, bucket); g++) {
        const uint32_t count = ty_bucket_devices(c->plan, bucket, g, c->devices);
        for (uint32_t n = 0; n < lanes; n++)
            TY_CHECK(add_member(c, position, index, own * lanes + n, count, error), status, done);
    }
done:
    return status;
}

static ty_status add_rank(counter *c, uint32_t rank, ty_error *error)
{
    const uint32_t position = ty_plan_stage_of_rank(c->plan, rank);
    const ty_stage_program *stage = &c->program->stages[position];
    ty_status status = TY_OK;

    c->own_first = c->out->flow_count;
    for (uint32_t i = 0; i < stage->instruction_count; i++) {
        const ty_instruction *in = &stage->instructions[i];
        if (in->op == TY_OP_SEND)
            TY_CHECK(add_send(c, rank, ty_program_peer_rank(c->plan, rank, in), (double)in->bytes,
                              error),
                     status, done);
        else if (in->op == TY_OP_COLLECTIVE || in->op == TY_OP_GATHER)
            TY_CHECK(add_collective(c, rank, position, i, error), status, done);
    }
done:
    return status;
}

/* Every flow over the links of its route. */
static ty_status add_routes(const ty_cluster *cluster, traffic *t, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t f = 0; f < t->flow_count; f++) {
        ty_path path = {0};
        uint32_t at = ty_cluster_device_vertex(cluster, t->flows[f].from);
        TY_CHECK(ty_cluster_path(cluster, t->flows[f].from, t->flows[f].to, &path, error), status,
                 done);
        for (uint32_t i = 0; i < path.link_count; i++) {
            const ty_link_edge *link = ty_cluster_link(cluster, path.links[i]);
            const bool is_back = link->from != at;
            t->link_bytes[2 * (size_t)path.links[i] + is_back] += t->flows[f].bytes;
            at = is_back ? link->from : link->to;
        }
        ty_path_clear(&path);
    }
done:
    return status;
}

ty_status ty_traffic_count(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                           const ty_cluster *cluster, traffic *out, ty_error *error)
{
    const uint32_t ranks = ty_plan_rank_count(plan);
    ty_status status = TY_OK;
    traffic t = {0};
    counter c = {.plan = plan, .program = program, .costs = costs, .out = &t};

    c.members = ty_alloc(ranks, sizeof *c.members);
    c.devices = ty_alloc((size_t)ranks * ty_plan_width(plan), sizeof *c.devices);
    t.link_bytes = ty_alloc(2 * (size_t)ty_cluster_link_count(cluster), sizeof *t.link_bytes);
    if (c.members == NULL || c.devices == NULL || t.link_bytes == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    for (uint32_t r = 0; r < ranks; r++)
        TY_CHECK(add_rank(&c, r, error), status, cleanup);
    TY_CHECK(add_routes(cluster, &t, error), status, cleanup);
    *out = t;
    t = (traffic){0}; /* given away */
cleanup:
    ty_free(c.members);
    ty_free(c.devices);
    ty_traffic_clear(&t);
    return status;
}
