/* A rank's buckets: their slices, process groups and compressors, and the optimizer's state. */
#include "interpreter_buckets.h"
#include "interpreter_parallel.h"
#include "interpreter_watches.h"
#include "sharding.h"

static bool is_exchanged(const ty_interpreter *in, uint32_t bucket)
{
    const stream_order *order = &in->streams[TY_STREAM_COLLECTIVE];

    for (uint32_t i = 0; i < order->count; i++) {
        if (in->program->instructions[order->instructions[i]].bucket == bucket)
            return true;
    }
    return false;
}

/* Ranks of a bucket's process group share random numbers, which follow from the plan's seed and the
 * bucket. */
static ty_status codec_open(ty_interpreter *in, uint32_t index, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *bucket = &plan->buckets[index];
    bucket_state *state = &in->buckets[index];
    uint32_t count = ty_bucket_matrices(plan, bucket, NULL);
    ty_bucket_matrix *matrices = ty_alloc(count, sizeof *matrices);
    ty_codec_options options = {.compression = bucket->compression,
                                .count = state->count,
                                .member_count = state->member_count,
                                .position = state->position,
                                .seed = plan->seed ^ (uint64_t)(index + 1) << 32,
                                .matrices = matrices,
                                .matrix_count = count,
                                .row_room = ty_bucket_extent(plan, bucket).row_room,
                                .momentum = plan->optimizer.momentum};
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(matrices != NULL, error));
    ty_bucket_matrices(plan, bucket, matrices);
    if (in->memory == NULL)
        status = ty_codec_open(&options, &state->codec, error);
    if (in->memory == NULL && status == TY_OK)
        status = interpreter_distortion_open(in, &options, index, error);
    if (in->memory != NULL)
        status =
            in->memory->codec_open(state->virtual_stage->device, &options, &state->codec, error);
    ty_free(matrices);
    return status;
}

/* Hosts of the process group of a bucket with a hierarchical collective. */
static ty_status bucket_hosts(const ty_interpreter *in, const ty_bucket *bucket,
                              bucket_state *state, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t width = ty_plan_replica_ranks(plan);

    if (bucket->algorithm != TY_HIERARCHICAL || state->member_count < 2)
        return TY_OK;
    state->hosts = ty_alloc(state->member_count, sizeof *state->hosts);
    TY_TRY(ty_check_memory(state->hosts != NULL, error));
    for (uint32_t i = 0; i < state->member_count; i++)
        state->hosts[i] = ty_cluster_device_host(
            plan->cluster, ty_plan_device_of_replica_rank(plan, state->members[i] / width,
                                                          state->members[i] % width));
    return TY_OK;
}

/* The virtual stage of this rank that has a bucket's parameters. */
static virtual_stage_state *bucket_holder(ty_interpreter *in, const ty_bucket *bucket)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(in->options.plan);
    const uint32_t stage =
        bucket->stage % pipeline_size == in->pipeline_rank ? bucket->stage : bucket->tied_stage;

    return &in->virtual_stages[stage / pipeline_size];
}

void interpreter_bucket_slice(const ty_interpreter *in, uint32_t index, uint32_t first_layer,
                              uint32_t layer_count, uint64_t *offset, uint64_t *count)
{
    const ty_device_backend *backend = in->options.backend;
    const ty_stage_device *device = in->buckets[index].virtual_stage->device;

    if (in->options.plan->buckets[index].of_experts)
        backend->expert_slice(device, first_layer, layer_count, offset, count);
    else
        backend->slice(device, first_layer, layer_count, offset, count);
}

static ty_status bucket_open(ty_interpreter *in, uint32_t index, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *bucket = &plan->buckets[index];
    bucket_state *state = &in->buckets[index];

    TY_TRY(interpreter_members_find(in, bucket, state, error));
    if (!state->is_member)
        return TY_OK;
    TY_TRY(bucket_hosts(in, bucket, state, error));
    state->virtual_stage = bucket_holder(in, bucket);
    if (interpreter_is_timed(in)) {
        interpreter_share_find(in, index);
        return TY_OK;
    }
    if (bucket->tied_stage != TY_NO_STAGE)
        in->options.backend->tied_slice(state->virtual_stage->device, &state->offset,
                                        &state->count);
    else
        interpreter_bucket_slice(in, index, bucket->first_layer, bucket->layer_count,
                                 &state->offset, &state->count);
    interpreter_share_find(in, index);
    if (!is_exchanged(in, index))
        return TY_OK;
    if (state->count * sizeof(float) != bucket->gradient_bytes)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "plan: /buckets/%u: found %llu bytes of gradients, the device has %llu "
                       "there",
                       index, (unsigned long long)bucket->gradient_bytes,
                       (unsigned long long)(state->count * sizeof(float)));
    if (bucket->compression.kind == TY_COMPRESSION_NONE)
        return TY_OK;
    if (ty_compression_has_feedback(&bucket->compression) &&
        in->options.precision == TY_PRECISION_FP16)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "plan: /buckets/%u: %s keeps gradients from step to step, and fp16 scales "
                       "them differently in each; found both, expected bf16 or another compression",
                       index, ty_compression_name(bucket->compression.kind));
    return codec_open(in, index, error);
}

/* Opens the optimizer's state on devices that store it, for the ranges that this rank updates. If
 * weights and gradients are sharded there, it opens those first. */
static ty_status states_open(ty_interpreter *in, ty_error *error)
{
    ty_parameter_range *ranges;
    ty_status status = TY_OK;

    if (in->memory == NULL)
        return TY_OK;
    ranges = interpreter_kept_room(in);
    TY_TRY(ty_check_memory(ranges != NULL, error));
    for (uint32_t h = 0; h < in->virtual_stage_count && status == TY_OK; h++) {
        const uint32_t count = interpreter_kept_ranges(in, &in->virtual_stages[h], ranges);

        if (in->shares_weights || in->shares_gradients)
            TY_CHECK(interpreter_sharing_open(in, &in->virtual_stages[h], error), status, done);
        status = in->memory->state_open(in->virtual_stages[h].device, in->state_count, ranges,
                                        count, error);
    }
done:
    ty_free(ranges);
    return status;
}

ty_status interpreter_buckets_open(ty_interpreter *in, ty_error *error)
{
    uint32_t i, count = in->options.plan->bucket_count;

    in->buckets = ty_alloc(count, sizeof *in->buckets);
    TY_TRY(ty_check_memory(in->buckets != NULL, error));
    TY_TRY(ty_server_map_make(in->options.plan, &in->servers, error));
    for (i = 0; i < count; i++)
        TY_TRY(bucket_open(in, i, error));
    return states_open(in, error);
}

void interpreter_buckets_close(ty_interpreter *in)
{
    for (uint32_t i = 0; in->buckets != NULL && i < in->options.plan->bucket_count; i++) {
        ty_free(in->buckets[i].members);
        ty_free(in->buckets[i].hosts);
        ty_codec_close(in->buckets[i].codec);
    }
    ty_free(in->buckets);
    ty_server_map_clear(&in->servers);
}

uint32_t interpreter_bucket_tag(const ty_plan *plan, uint32_t window, uint32_t bucket,
                                uint32_t step)
{
    return (uint32_t)TAG_BUCKET | (step % window * plan->bucket_count + bucket);
}

void interpreter_servers_name(const ty_interpreter *in, uint32_t bucket,
                              ty_collective_options *options)
{
    const ty_server_map *map = &in->servers;

    if (in->options.plan->servers.count == 0)
        return;
    options->parts = map->parts + map->first_parts[bucket];
    options->part_count = map->first_parts[bucket + 1] - map->first_parts[bucket];
    options->server_count = in->options.plan->servers.count;
    options->first_server = ty_plan_rank_count(in->options.plan);
}
