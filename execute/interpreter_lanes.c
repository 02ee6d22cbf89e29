/* The lanes of a rank, seen by one of them: what they exchange inside passes, on the compute
 * thread, and the gradients that they sum before an update. */
#include "interpreter_state.h"

#include <string.h>
#include <time.h>

/* Lanes reach an exchange at almost the same time, and sleeping costs more than what most exchange
 * takes: a lane looks as long as a sleep would take before it gives its core away. */
static const double spin_s = 20e-6;

uint32_t interpreter_process(const ty_interpreter *in, uint32_t rank)
{
    return rank * ty_plan_width(in->options.plan) + in->lane;
}

bool interpreter_is_first_lane(const ty_interpreter *in, uint32_t rank)
{
    return in->rank == rank && in->lane == 0;
}

ty_status interpreter_lanes_open(ty_interpreter *in, ty_error *error)
{
    const uint32_t width = ty_plan_width(in->options.plan);

    in->lanes = ty_alloc(width, sizeof *in->lanes);
    if (in->lanes == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for the interpreter");
    for (uint32_t l = 0; l < width; l++)
        in->lanes[l] = in->rank * width + l;
    return TY_OK;
}

/* What happened to the other thread: the partners of this one may then never come. */
static bool has_failed(ty_interpreter *in)
{
    bool found;

    pthread_mutex_lock(&in->lock);
    found = in->failure != TY_OK;
    pthread_mutex_unlock(&in->lock);
    return found;
}

static ty_status wait_for(ty_interpreter *in, ty_collective *running, ty_error *error)
{
    double moved_s = ty_now_s();
    ty_backoff backoff = {0};
    bool is_done = false;
    ty_status status = TY_OK;

    while (!is_done && status == TY_OK) {
        bool is_moved = false;

        status = ty_collective_test(running, &is_done, &is_moved, error);
        if (status != TY_OK || is_done)
            break;
        if (is_moved) {
            moved_s = ty_now_s();
            backoff.rounds = 0;
        } else if (ty_now_s() - moved_s > spin_s) {
            if (has_failed(in))
                status = ty_fail(error, TY_EBACKEND, "an exchange among lanes was given up");
            else
                ty_backoff_wait(&backoff);
        }
    }
    if (status != TY_OK)
        ty_collective_cancel(running);
    return status;
}

ty_status interpreter_lane_exchange(void *context, const ty_lane_exchange *exchange,
                                    ty_error *error)
{
    ty_interpreter *in = context;
    ty_collective *running = NULL;
    const ty_collective_options options = {
        .kind = exchange->kind,
        .algorithm = TY_RING,
        .members = in->lanes,
        .member_count = ty_plan_width(in->options.plan),
        .data = exchange->data,
        .count = exchange->count,
        .element = exchange->is_maximum ? TY_ELEMENT_LARGEST_FLOAT : TY_ELEMENT_FLOAT,
        .tag = TAG_LANES};
    ty_status status = ty_collective_start(in->options.transport, &options, &running, error);

    return status == TY_OK ? wait_for(in, running, error) : status;
}

/* ---- Gradients that every lane has whole ------------------------------------------------ */

typedef struct gradient_range {
    uint64_t offset, count;
} gradient_range;

/* What an update here touches of an undivided layer's gradients; count 0 for others. */
static gradient_range whole_range(const ty_interpreter *in, const bucket_state *bucket,
                                  uint32_t layer)
{
    const ty_plan *plan = in->options.plan;
    gradient_range found = {0, 0};
    uint64_t end;

    if (plan->workload->layers[layer].is_frozen || ty_tensor_parameter_share(plan, layer) < 1)
        return found;
    in->options.backend->slice(bucket->held->device, layer, 1, &found.offset, &found.count);
    if (!bucket->is_sharded)
        return found;
    end = found.offset + found.count;
    if (found.offset < bucket->share_offset)
        found.offset = bucket->share_offset;
    if (end > bucket->share_offset + bucket->share_count)
        end = bucket->share_offset + bucket->share_count;
    found.count = end > found.offset ? end - found.offset : 0;
    return found;
}

/* Packs the gradients into `packed`, or unpacks them, times a factor. @return how many */
static uint64_t whole_copy(const ty_interpreter *in, uint32_t index, float *packed, bool unpacks,
                           float factor)
{
    const ty_bucket *planned = &in->options.plan->buckets[index];
    const bucket_state *bucket = &in->buckets[index];
    float *gradients = in->options.backend->gradients(bucket->held->device);
    uint64_t done = 0;

    for (uint32_t l = planned->first_layer; l < planned->first_layer + planned->layer_count; l++) {
        const gradient_range range = whole_range(in, bucket, l);

        for (uint64_t i = 0; i < range.count && packed != NULL; i++) {
            if (unpacks)
                gradients[range.offset + i] = factor * packed[done + i];
            else
                packed[done + i] = gradients[range.offset + i];
        }
        done += range.count;
    }
    return done;
}

ty_status interpreter_lanes_sum(ty_interpreter *in, uint32_t index, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    /* Parts of a sequence add up; what compressions made of the same gradient is averaged. */
    const float factor = plan->sequence_parallel ? 1.0f : 1.0f / (float)ty_plan_width(plan);
    uint64_t count;
    float *packed;
    ty_status status;

    if (ty_bucket_lane_bytes(plan, &plan->buckets[index]) == 0)
        return TY_OK;
    count = whole_copy(in, index, NULL, false, factor);
    packed = ty_alloc(count, sizeof *packed);
    if (packed == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for gradients");
    whole_copy(in, index, packed, false, factor);
    status = interpreter_lane_exchange(
        in, &(ty_lane_exchange){.kind = TY_ALL_REDUCE, .data = packed, .count = count}, error);
    if (status == TY_OK)
        whole_copy(in, index, packed, true, factor);
    ty_free(packed);
    return status;
}

double interpreter_lane_square(const ty_interpreter *in, uint32_t index, uint64_t offset,
                               uint64_t count)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *planned = &plan->buckets[index];
    const bucket_state *bucket = &in->buckets[index];
    const ty_device_backend *backend = in->options.backend;
    ty_stage_device *device = bucket->held->device;
    const float *gradients = backend->gradients(device);
    double sum = backend->square(device, gradients + offset, count), whole = 0;

    if (ty_plan_width(plan) == 1)
        return sum;
    for (uint32_t l = planned->first_layer; l < planned->first_layer + planned->layer_count; l++) {
        gradient_range range = {0, 0};
        uint64_t end;

        if (ty_tensor_parameter_share(plan, l) < 1)
            continue;
        backend->slice(device, l, 1, &range.offset, &range.count);
        end = range.offset + range.count < offset + count ? range.offset + range.count
                                                          : offset + count;
        range.offset = range.offset > offset ? range.offset : offset;
        if (end > range.offset)
            whole += backend->square(device, gradients + range.offset, end - range.offset);
    }
    return sum - whole + (plan->sequence_parallel ? 0 : whole / ty_plan_width(plan));
}
