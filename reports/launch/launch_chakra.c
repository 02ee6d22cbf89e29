/* Chakra execution traces of a plan: trace.P.et for each rank P, and comm_group.json with the ranks
 * of every process group, as ASTRA-sim reads them. Instructions of a step become nodes: passes and
 * updates compute; transfers are sends and receives; buckets and collectives inside layers are
 * collectives. A ring or tree is one collective, and the reader chooses its algorithm. A hierarchy
 * or servers of shards are several collectives.
 * Source: mlcommons/chakra schema/protobuf/et_def.proto 0.0.4, and the attributes that
 * astra-sim/astra-sim reads (comm_type, comm_size, comm_src, comm_dst, comm_tag, pg_name). */
#include "chakra_write.h"
#include "launch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* About 200 bytes per node; more nodes would be gigabytes. */
#define MOST_NODES 20000000u

/* CollectiveCommType of et_def.proto; transfers have their own nodes. */
static const uint32_t collective_types[TY_COLLECTIVE_COUNT] = {
    [TY_ALL_REDUCE] = 0, [TY_REDUCE] = 1,     [TY_ALL_GATHER] = 2,
    [TY_BROADCAST] = 5,  [TY_ALL_TO_ALL] = 6, [TY_REDUCE_SCATTER] = 7};

/* Collectives of a bucket for one rank, if its algorithm is not a single one. */
typedef struct exchange {
    struct {
        ty_collective_kind kind;
        uint64_t bytes, group;
    } parts[3];
    uint32_t count;
} exchange;

typedef struct writer {
    const launch *l;
    uint32_t rank, stage_replica, replica_rank, pipeline_rank;
    exchange *exchanges;            /* [buckets]; empty for buckets that are one collective */
    uint64_t *ids;                  /* [instructions]: the last node of each */
    uint64_t last[TY_STREAM_COUNT]; /* node of the stream's last instruction, plus 1; 0: none */
    uint64_t next;
    ty_layer_again *again; /* [layers]: recomputed part of each */
    ty_text *file;
} writer;

/* ---- Groups ------------------------------------------------------------------------------ */

/* Process groups are numbered: of a stage's buckets, its experts and tied weights, per group of
 * ranks that reduces them; of TP, CP and EP in a stage replica, by their first rank. */
static uint64_t bucket_group(const ty_plan *plan, uint32_t bucket, uint32_t group)
{
    const ty_bucket *b = &plan->buckets[bucket];
    uint32_t row = b->tied_stage != TY_NO_STAGE ? 2 * plan->stage_count + bucket
                   : b->of_experts              ? plan->stage_count + b->stage
                                                : b->stage;

    return (uint64_t)row * ty_plan_replica_ranks(plan) + group + 1;
}

static uint64_t parallel_group(const ty_plan *plan, ty_parallelism kind, uint32_t stage_replica,
                               uint32_t replica_rank)
{
    const uint32_t width = ty_plan_replica_ranks(plan);
    const uint64_t before = (uint64_t)(2 * plan->stage_count + plan->bucket_count) * width;

    return before + ((uint64_t)kind * ty_plan_stage_replica_count(plan) + stage_replica) * width +
           ty_plan_rank_along(plan, kind, replica_rank, 0) + 1;
}

/* Group of a hierarchy: the ranks of one host, or those across hosts with the same shard; numbered
 * by its first rank. */
static uint64_t phase_group(const launch *l, uint32_t bucket, bool is_across, uint32_t first)
{
    const ty_plan *plan = l->plan;
    const uint64_t rows = 2 * plan->stage_count + plan->bucket_count;
    const uint64_t before =
        (rows + (uint64_t)TY_PARALLELISM_COUNT * ty_plan_stage_replica_count(plan)) *
        ty_plan_replica_ranks(plan);

    return before + (2 * (uint64_t)bucket + is_across) * l->rank_count + first + 1;
}

static int compare_places(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;
    return *a < *b ? -1 : *a > *b;
}

/* Sorts the ranks of a bucket's group by host. @return ranks per host; with unequal numbers 1,
 * since the worker's collectives then treat every rank as a host */
static uint32_t place_members(const launch *l, const ty_bucket *bucket, uint32_t group,
                              const uint32_t *stage_replicas, uint32_t count, uint64_t *places)
{
    const uint32_t per_replica = ty_bucket_rank_count(l->plan, bucket),
                   width = ty_plan_replica_ranks(l->plan);
    const uint32_t members = count * per_replica;
    uint32_t run = 0, per_host = 0;
    bool is_equal = true;

    for (uint32_t m = 0; m < members; m++) {
        const uint32_t rank = stage_replicas[m / per_replica] * width +
                              ty_bucket_rank(l->plan, bucket, group, m % per_replica);
        places[m] = (uint64_t)l->ranks[rank].host << 32 | rank;
    }
    qsort(places, members, sizeof *places, compare_places);
    for (uint32_t m = 0; m < members && is_equal; m++) {
        run++;
        if (m + 1 < members && places[m + 1] >> 32 == places[m] >> 32)
            continue;
        is_equal = per_host == 0 || run == per_host;
        per_host = run;
        run = 0;
    }
    return is_equal ? per_host : 1;
}

static bool is_exchange_of(const ty_plan *plan, const ty_bucket *bucket, ty_algorithm algorithm)
{
    return bucket->algorithm == algorithm && ty_bucket_device_count(plan, bucket) > 1 &&
           ty_plan_exchange_kind(plan, bucket, 0) == TY_ALL_REDUCE &&
           ty_compression_phases(&bucket->compression) == 1;
}

static void open_group(ty_json_writer *w, uint64_t group)
{
    char name[24];

    snprintf(name, sizeof name, "%llu", (unsigned long long)group);
    ty_json_open_flat(w, name, '[');
}

/* Writes the ranks that reduce a bucket. */
static void put_bucket_groups(const ty_plan *plan, uint32_t index, const uint32_t *stage_replicas,
                              uint32_t count, ty_json_writer *w)
{
    const ty_bucket *bucket = &plan->buckets[index];
    const uint32_t per_replica = ty_bucket_rank_count(plan, bucket),
                   width = ty_plan_replica_ranks(plan);

    for (uint32_t g = 0; g < ty_bucket_group_count(plan, bucket); g++) {
        open_group(w, bucket_group(plan, index, g));
        for (uint32_t m = 0; m < count * per_replica; m++)
            ty_json_put_uint(w, NULL,
                             (uint64_t)stage_replicas[m / per_replica] * width +
                                 ty_bucket_rank(plan, bucket, g, m % per_replica));
        ty_json_close(w, ']');
    }
}

/* Writes the groups inside and across hosts of a bucket with a hierarchical all-reduce. */
static void put_phase_groups(const launch *l, uint32_t index, const uint32_t *stage_replicas,
                             uint32_t count, uint64_t *places, ty_json_writer *w)
{
    const ty_bucket *bucket = &l->plan->buckets[index];
    const uint32_t members = count * ty_bucket_rank_count(l->plan, bucket);

    for (uint32_t g = 0; g < ty_bucket_group_count(l->plan, bucket); g++) {
        const uint32_t per_host = place_members(l, bucket, g, stage_replicas, count, places);
        if (per_host == 1)
            continue;
        for (uint32_t m = 0; m < members; m++) {
            if (m % per_host == 0)
                open_group(w, phase_group(l, index, false, (uint32_t)places[m]));
            ty_json_put_uint(w, NULL, (uint32_t)places[m]);
            if (m % per_host == per_host - 1)
                ty_json_close(w, ']');
        }
        for (uint32_t share = 0; share < per_host && per_host < members; share++) {
            open_group(w, phase_group(l, index, true, (uint32_t)places[share]));
            for (uint32_t m = share; m < members; m += per_host)
                ty_json_put_uint(w, NULL, (uint32_t)places[m]);
            ty_json_close(w, ']');
        }
    }
}

/* Writes the TP, CP or EP groups of a stage replica. */
static void put_parallel_groups(const ty_plan *plan, ty_parallelism kind, uint32_t stage_replica,
                                ty_json_writer *w)
{
    const uint32_t count = ty_plan_parallel_size(plan, kind), width = ty_plan_replica_ranks(plan);

    for (uint32_t replica_rank = 0; replica_rank < width && count > 1; replica_rank++) {
        if (ty_plan_rank_along(plan, kind, replica_rank, 0) != replica_rank)
            continue;
        open_group(w, parallel_group(plan, kind, stage_replica, replica_rank));
        for (uint32_t n = 0; n < count; n++)
            ty_json_put_uint(w, NULL,
                             (uint64_t)stage_replica * width +
                                 ty_plan_rank_along(plan, kind, replica_rank, n));
        ty_json_close(w, ']');
    }
}

static ty_status add_groups(launch *l, ty_error *error)
{
    const ty_plan *plan = l->plan;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    uint32_t *stage_replicas = ty_alloc(ty_plan_stage_replica_count(plan), sizeof *stage_replicas);
    bool *is_there = ty_alloc((size_t)plan->stage_count * 2, sizeof *is_there);
    uint64_t *places = ty_alloc(l->rank_count, sizeof *places);

    if (stage_replicas == NULL || is_there == NULL || places == NULL) {
        ty_free(stage_replicas);
        ty_free(is_there);
        ty_free(places);
        return ty_fail(error, TY_ENOMEM, "out of memory");
    }
    ty_json_open(&w, NULL, '{');
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];
        uint32_t count = ty_bucket_members(plan, bucket, stage_replicas);
        const uint32_t row = bucket->stage * 2 + bucket->of_experts;
        bool is_tied = bucket->tied_stage != TY_NO_STAGE;
        if (is_exchange_of(plan, bucket, TY_HIERARCHICAL))
            put_phase_groups(l, b, stage_replicas, count, places, &w);
        if (ty_bucket_device_count(plan, bucket) < 2 || (!is_tied && is_there[row]))
            continue;
        if (!is_tied)
            is_there[row] = true;
        put_bucket_groups(plan, b, stage_replicas, count, &w);
    }
    for (uint32_t r = 0; r < ty_plan_stage_replica_count(plan); r++)
        for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
            put_parallel_groups(plan, (ty_parallelism)k, r, &w);
    ty_json_close(&w, '}');
    ty_text_add(&text, "\n");
    ty_free(stage_replicas);
    ty_free(is_there);
    ty_free(places);
    return ty_launch_add(l, "comm_group.json", &text, error);
}

/* ---- Nodes ------------------------------------------------------------------------------- */

static void put_waits(const writer *w, const ty_instruction *in, ty_text *node)
{
    for (uint32_t i = 0; i < in->wait_count; i++)
        ty_wire_put_uint(node, TY_CHAKRA_DATA, w->ids[in->waits[i]]);
    if (w->last[in->stream] > 0)
        ty_wire_put_uint(node, TY_CHAKRA_CONTROL, w->last[in->stream] - 1);
}

static void put_collective(ty_text *node, ty_collective_kind kind, uint64_t bytes, uint64_t group)
{
    char name[24];

    snprintf(name, sizeof name, "%llu", (unsigned long long)group);
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "is_cpu_op", TY_CHAKRA_BOOL, 0);
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "comm_type", TY_CHAKRA_INT64,
                          collective_types[kind]);
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "comm_size", TY_CHAKRA_INT64, bytes);
    ty_chakra_put_string(node, TY_CHAKRA_ATTRIBUTE, "pg_name", name);
}

static void add_part(exchange *e, ty_collective_kind kind, uint64_t bytes, uint64_t group)
{
    e->parts[e->count].kind = kind;
    e->parts[e->count].bytes = bytes;
    e->parts[e->count++].group = group;
}

/* Splits a bucket's all-reduce into the collectives of the writer's rank. A hierarchy is a
 * reduce-scatter in each host, an all-reduce of every shard across hosts, and an all-gather in the
 * host. With a server of one shard per rank, it is a reduce-scatter and an all-gather. Bytes are
 * those that a rank puts in. */
static void divide_exchange(const writer *w, uint32_t index, const uint32_t *stage_replicas,
                            uint32_t count, uint64_t *places, exchange *out)
{
    const ty_plan *plan = w->l->plan;
    const ty_bucket *bucket = &plan->buckets[index];
    const uint64_t bytes = ty_plan_exchange_bytes(plan, bucket, 0);
    const uint32_t group = ty_bucket_group_of(plan, bucket, w->replica_rank);
    const uint32_t members = count * ty_bucket_rank_count(plan, bucket);

    if (is_exchange_of(plan, bucket, TY_HIERARCHICAL)) {
        const uint32_t per_host = place_members(w->l, bucket, group, stage_replicas, count, places);
        uint32_t own = 0;
        uint64_t inside, share = (bytes + per_host - 1) / per_host;
        while (own < members && (uint32_t)places[own] != w->rank)
            own++;
        if (own == members || per_host == 1)
            return;
        inside = phase_group(w->l, index, false, (uint32_t)places[own - own % per_host]);
        add_part(out, TY_REDUCE_SCATTER, bytes, inside);
        if (per_host < members)
            add_part(out, TY_ALL_REDUCE, share,
                     phase_group(w->l, index, true, (uint32_t)places[own % per_host]));
        add_part(out, TY_ALL_GATHER, share, inside);
    } else if (is_exchange_of(plan, bucket, TY_PARAMETER_SERVER) ||
               is_exchange_of(plan, bucket, TY_BLOCK_MANAGER)) {
        add_part(out, TY_REDUCE_SCATTER, bytes, bucket_group(plan, index, group));
        add_part(out, TY_ALL_GATHER, (bytes + members - 1) / members,
                 bucket_group(plan, index, group));
    }
}

static ty_status divide_exchanges(writer *w, ty_error *error)
{
    const ty_plan *plan = w->l->plan;
    uint32_t *stage_replicas = ty_alloc(ty_plan_stage_replica_count(plan), sizeof *stage_replicas);
    uint64_t *places = ty_alloc(w->l->rank_count, sizeof *places);
    ty_status status = TY_OK;

    w->exchanges = ty_alloc(plan->bucket_count, sizeof *w->exchanges);
    TY_CHECK(
        ty_check_memory(stage_replicas != NULL && places != NULL && w->exchanges != NULL, error),
        status, cleanup);
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        divide_exchange(w, b, stage_replicas,
                        ty_bucket_members(plan, &plan->buckets[b], stage_replicas), places,
                        &w->exchanges[b]);
cleanup:
    ty_free(stage_replicas);
    ty_free(places);
    return status;
}

/* Tag of a send/recv, equal on both sides: cut, micro-batch of the step, direction. */
static uint64_t tag_of(const writer *w, const ty_instruction *in)
{
    const ty_plan *plan = w->l->plan;
    uint32_t replica = w->stage_replica - ty_plan_first_replica(plan, w->pipeline_rank);
    uint32_t micro_batch = ty_program_global_micro_batch(plan, in->stage, replica, in->micro_batch);
    uint32_t cut = in->stage < in->peer_stage ? in->stage : in->peer_stage;

    return ((uint64_t)cut * plan->micro_batches + micro_batch) * 2 + (in->direction == TY_GRADIENT);
}

static void put_transfer(const writer *w, const ty_instruction *in, ty_text *node)
{
    uint64_t peer = (uint64_t)ty_program_peer_replica(w->l->plan, w->stage_replica, in) *
                        ty_plan_replica_ranks(w->l->plan) +
                    w->replica_rank;
    bool is_send = in->op == TY_OP_SEND;

    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "is_cpu_op", TY_CHAKRA_BOOL, 0);
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "comm_src", TY_CHAKRA_INT32,
                          is_send ? w->rank : peer);
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "comm_dst", TY_CHAKRA_INT32,
                          is_send ? peer : w->rank);
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "comm_tag", TY_CHAKRA_INT32, tag_of(w, in));
    ty_chakra_put_integer(node, TY_CHAKRA_ATTRIBUTE, "comm_size", TY_CHAKRA_INT64, in->bytes);
}

static bool is_backward(ty_op op)
{
    return op == TY_OP_BACKWARD || op == TY_OP_BACKWARD_INPUT || op == TY_OP_BACKWARD_WEIGHT;
}

/* FLOPs of one rank; each part of a split backward has half. */
static double flop_of(const writer *w, const ty_instruction *in)
{
    const ty_plan *plan = w->l->plan;
    double flop = 0;

    if (in->op != TY_OP_FORWARD && in->op != TY_OP_RECOMPUTE && !is_backward(in->op))
        return 0;
    for (uint32_t i = in->first_layer; i < in->first_layer + in->layer_count; i++) {
        const ty_layer *layer = &plan->workload->layers[i];
        flop += ty_rank_work_share(plan, i) *
                (is_backward(in->op) ? layer->backward_flop
                 : in->op == TY_OP_FORWARD
                     ? layer->forward_flop
                     : layer->forward_flop * ty_layer_recompute_share(layer, w->again[i].what));
    }
    return flop * plan->micro_batch_size *
           (in->op == TY_OP_BACKWARD || !is_backward(in->op) ? 1 : 0.5);
}

static uint64_t output_bytes(const ty_plan *plan, const ty_instruction *in)
{
    if (in->layer_count == 0)
        return in->bytes;
    return ty_rank_bytes(
        plan, plan->workload->layers[in->first_layer + in->layer_count - 1].output_bytes);
}

/* Adds a collective after the last node. */
static void put_after(writer *w, const char *name, const char *suffix, ty_collective_kind kind,
                      uint64_t bytes, uint64_t group)
{
    ty_text node = {0};

    ty_chakra_begin_node(&node, w->next, name, suffix, TY_CHAKRA_COLLECTIVE);
    ty_wire_put_uint(&node, TY_CHAKRA_DATA, w->next - 1);
    put_collective(&node, kind, bytes, group);
    ty_chakra_put_message(w->file, &node);
    w->next++;
}

/* Adds the TP, CP and EP collectives of a pass. */
static void put_inner(writer *w, const ty_instruction *in, const char *name)
{
    const ty_plan *plan = w->l->plan;

    if (ty_plan_replica_ranks(plan) < 2 || in->op == TY_OP_BACKWARD_WEIGHT || flop_of(w, in) <= 0)
        return;
    for (uint32_t i = in->first_layer; i < in->first_layer + in->layer_count; i++) {
        ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
        uint32_t count = in->op == TY_OP_RECOMPUTE
                             ? ty_layer_recompute_collectives(plan, i, w->again[i].what, inner)
                             : ty_layer_inner_collectives(plan, i, is_backward(in->op), inner);
        for (uint32_t c = 0; c < count; c++)
            for (uint32_t k = 0; k < inner[c].count; k++)
                put_after(w, name, " parallel", inner[c].kind, inner[c].bytes,
                          parallel_group(plan, inner[c].among, w->stage_replica, w->replica_rank));
    }
}

static uint32_t type_of(ty_op op)
{
    return op == TY_OP_SEND                               ? TY_CHAKRA_SEND
           : op == TY_OP_RECEIVE                          ? TY_CHAKRA_RECEIVE
           : op == TY_OP_COLLECTIVE || op == TY_OP_GATHER ? TY_CHAKRA_COLLECTIVE
                                                          : TY_CHAKRA_COMPUTE;
}

static void put_instruction(writer *w, uint32_t index)
{
    const ty_plan *plan = w->l->plan;
    const ty_instruction *in = &w->l->input->program->stages[w->pipeline_rank].instructions[index];
    const ty_instruction_cost *cost = &w->l->input->costs->instructions[w->pipeline_rank][index];
    uint32_t type = type_of(in->op);
    const exchange *parts = in->op == TY_OP_COLLECTIVE && w->exchanges[in->bucket].count > 0
                                ? &w->exchanges[in->bucket]
                                : NULL;
    char name[64];
    ty_text node = {0};

    if (in->micro_batch != TY_NO_MICRO_BATCH)
        snprintf(name, sizeof name, "%s %u", ty_op_name(in->op), in->micro_batch);
    else if (in->bucket != TY_NO_BUCKET)
        snprintf(name, sizeof name, "%s bucket %u", ty_op_name(in->op), in->bucket);
    else
        snprintf(name, sizeof name, "%s", ty_op_name(in->op));
    ty_chakra_begin_node(&node, w->next, name, "", type);
    put_waits(w, in, &node);
    if (type == TY_CHAKRA_SEND || type == TY_CHAKRA_RECEIVE)
        put_transfer(w, in, &node);
    else if (parts != NULL)
        put_collective(&node, parts->parts[0].kind, parts->parts[0].bytes, parts->parts[0].group);
    else if (type == TY_CHAKRA_COLLECTIVE)
        put_collective(
            &node,
            in->op == TY_OP_GATHER
                ? TY_ALL_GATHER
                : ty_plan_exchange_kind(plan, &plan->buckets[in->bucket], in->phase),
            in->bytes,
            bucket_group(plan, in->bucket,
                         ty_bucket_group_of(plan, &plan->buckets[in->bucket], w->replica_rank)));
    else
        ty_chakra_put_work(&node, cost->seconds - cost->inner_s, flop_of(w, in),
                           output_bytes(plan, in));
    ty_chakra_put_message(w->file, &node);
    w->next++;
    for (uint32_t i = 1; parts != NULL && i < parts->count; i++)
        put_after(w, name, "", parts->parts[i].kind, parts->parts[i].bytes, parts->parts[i].group);
    put_inner(w, in, name);
    w->ids[index] = w->next - 1;
    w->last[in->stream] = w->next;
}

static ty_status add_rank(launch *l, uint32_t rank, const char *comments, ty_error *error)
{
    ty_text file = {0}, metadata = {0};
    char name[32];
    ty_status status;
    writer w = {.l = l,
                .rank = rank,
                .stage_replica = l->ranks[rank].stage_replica,
                .replica_rank = l->ranks[rank].replica_rank,
                .file = &file};
    const ty_stage_program *program;

    w.pipeline_rank = ty_plan_stage_of_replica(l->plan, w.stage_replica);
    program = &l->input->program->stages[w.pipeline_rank];
    w.ids = ty_alloc(program->instruction_count, sizeof *w.ids);
    w.again = ty_alloc(l->plan->workload->layer_count, sizeof *w.again);
    TY_CHECK(ty_check_memory(w.ids != NULL && w.again != NULL, error), status, cleanup);
    TY_CHECK(ty_plan_mark_again(l->plan, w.again, error), status, cleanup);
    TY_CHECK(divide_exchanges(&w, error), status, cleanup);
    ty_wire_put_bytes(&metadata, TY_CHAKRA_VERSION, "0.0.4", 5);
    ty_chakra_put_string(&metadata, TY_CHAKRA_METADATA_ATTRIBUTE, "trainyard.comments", comments);
    ty_chakra_put_message(&file, &metadata);
    for (uint32_t i = 0; i < program->instruction_count; i++)
        put_instruction(&w, i);
    snprintf(name, sizeof name, "trace.%u.et", rank);
    status = ty_launch_add(l, name, &file, error);
    if (status == TY_OK)
        l->files->files[l->files->count - 1].is_binary = true;

cleanup:
    ty_free(w.ids);
    ty_free(w.again);
    ty_free(w.exchanges);
    return status;
}

ty_status ty_launch_chakra(launch *l, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text comments = {0};
    uint64_t nodes;

    if (l->input->program == NULL || l->input->costs == NULL)
        return ty_fail(error, TY_EINVAL, "--to chakra needs a program with its costs");
    nodes = ty_program_event_count(l->plan, l->input->program) * ty_plan_replica_ranks(l->plan);
    if (nodes > MOST_NODES)
        return ty_launch_refuse(error, "chakra",
                                "the traces would have %llu nodes, expected up to %u",
                                (unsigned long long)nodes, MOST_NODES);
    TY_CHECK(ty_launch_render("chakra", "comments", &l->values, &comments, error), status, done);
    TY_CHECK(add_groups(l, error), status, done);
    for (uint32_t p = 0; p < l->rank_count; p++)
        TY_CHECK(add_rank(l, p, comments.data, error), status, done);
done:
    ty_text_clear(&comments);
    return status;
}
