/* The ranks of a stage replica: collectives inside passes, on the compute thread, and gradients
 * that they sum before an update. */
#include "interpreter_parallel.h"
#include "interpreter_buckets.h"
#include "sharding.h"

#include <string.h>
#include <time.h>

/* Tensor-parallel ranks reach a collective at almost the same time, and most collectives are
 * shorter than a sleep. So a rank polls for as long as a sleep would take, then yields its core.
 * Later sleeps are short, since a thread that sleeps until it is woken loses its core to others
 * (docs/design/executor.md). */
static const double spin_s = 20e-6;

uint32_t interpreter_rank(const ty_interpreter *in, uint32_t stage_replica)
{
    return stage_replica * ty_plan_replica_ranks(in->options.plan) + in->replica_rank;
}

bool interpreter_is_first_rank(const ty_interpreter *in, uint32_t stage_replica)
{
    return in->stage_replica == stage_replica && in->replica_rank == 0;
}

static bool process_group_make(ty_interpreter *in, ty_parallelism kind)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t width = ty_plan_replica_ranks(plan), count = ty_plan_parallel_size(plan, kind);
    process_group *row = &in->groups[kind];

    row->members = ty_alloc(count, sizeof *row->members);
    if (row->members == NULL)
        return false;
    row->count = count;
    for (uint32_t n = 0; n < count; n++) {
        const uint32_t replica_rank = ty_plan_rank_along(plan, kind, in->replica_rank, n);
        row->members[n] = in->stage_replica * width + replica_rank;
        if (replica_rank == in->replica_rank)
            row->rank = n;
    }
    return true;
}

static bool sample_make(ty_interpreter *in)
{
    const uint64_t row = ty_shape_elements(&in->options.plan->workload->input);
    whole_sample *sample = &in->sample;

    if (in->groups[TY_CONTEXT_PARALLEL].count == 1)
        return true;
    sample->input = ty_alloc(row, sizeof *sample->input);
    sample->tokens = ty_alloc(row, sizeof *sample->tokens);
    sample->labels = ty_alloc(in->labels_per_sample, sizeof *sample->labels);
    return sample->input != NULL && sample->tokens != NULL && sample->labels != NULL;
}

ty_status interpreter_groups_open(ty_interpreter *in, ty_error *error)
{
    bool is_there = true;

    for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
        is_there = is_there && process_group_make(in, (ty_parallelism)k);
    if (!is_there || !sample_make(in))
        return ty_fail(error, TY_ENOMEM, "out of memory for the interpreter");
    return TY_OK;
}

void interpreter_groups_close(ty_interpreter *in)
{
    for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
        ty_free(in->groups[k].members);
    ty_free(in->sample.input);
    ty_free(in->sample.tokens);
    ty_free(in->sample.labels);
}

ty_parallel_group interpreter_parallel_group(ty_interpreter *in)
{
    const process_group *tensor = &in->groups[TY_TENSOR_PARALLEL],
                        *context = &in->groups[TY_CONTEXT_PARALLEL];
    const process_group *expert = &in->groups[TY_EXPERT_PARALLEL];

    return (ty_parallel_group){.tp_size = tensor->count,
                               .tp_rank = tensor->rank,
                               .divides_sequence = in->options.plan->sequence_parallel,
                               .cp_size = context->count,
                               .cp_rank = context->rank,
                               .ep_size = expert->count,
                               .ep_rank = expert->rank,
                               .tables = in->options.plan->table_shard,
                               .exchange = interpreter_parallel_exchange,
                               .record = interpreter_parallel_record,
                               .launch = interpreter_parallel_launch,
                               .context = in};
}

ty_status interpreter_members_find(const ty_interpreter *in, const ty_bucket *bucket,
                                   bucket_state *state, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t group = ty_bucket_group_of(plan, bucket, in->replica_rank);

    state->member_count = ty_bucket_device_count(plan, bucket);
    state->members = ty_alloc(state->member_count, sizeof *state->members);
    TY_TRY(ty_check_memory(state->members != NULL, error));
    (void)ty_bucket_ranks(plan, bucket, group, state->members);
    for (uint32_t m = 0; m < state->member_count; m++) {
        if (state->members[m] != in->options.transport->rank)
            continue;
        state->is_member = true;
        state->position = m;
    }
    return TY_OK;
}

/* ---- Samples ---------------------------------------------------------------------------- */

uint32_t interpreter_rank_samples(const ty_interpreter *in)
{
    return in->options.plan->micro_batch_size / in->groups[TY_EXPERT_PARALLEL].count;
}

uint32_t interpreter_first_sample(const ty_interpreter *in)
{
    return in->groups[TY_EXPERT_PARALLEL].rank * interpreter_rank_samples(in);
}

/* This rank's tokens of `tokens`, each of `size` bytes. */
static void tokens_take(const ty_interpreter *in, uint64_t tokens, uint64_t size, const void *whole,
                        void *own)
{
    const process_group *context = &in->groups[TY_CONTEXT_PARALLEL];
    const uint64_t run = tokens / context->count / TY_CONTEXT_RUNS * size;

    for (uint32_t r = 0; r < TY_CONTEXT_RUNS; r++) {
        const uint64_t start =
            ty_context_run_start(tokens, context->count, context->rank, r) * size;
        memcpy((char *)own + r * run, (const char *)whole + start, run);
    }
}

uint64_t interpreter_row_inputs(const ty_interpreter *in)
{
    return ty_shape_elements(&in->options.plan->workload->input) /
           in->groups[TY_CONTEXT_PARALLEL].count;
}

uint64_t interpreter_row_labels(const ty_interpreter *in)
{
    return in->labels_per_sample / in->groups[TY_CONTEXT_PARALLEL].count;
}

whole_sample interpreter_slot_rows(const ty_interpreter *in,
                                   const virtual_stage_state *virtual_stage, uint32_t slot)
{
    const ty_plan *plan = in->options.plan;
    const ty_device_backend *backend = in->options.backend;
    const bool is_first = virtual_stage->stage == 0,
               is_last = virtual_stage->stage + 1 == plan->stage_count;
    const bool is_token = plan->workload->input_kind == TY_INPUT_TOKEN;

    return (whole_sample){
        .input = is_first && !is_token ? backend->input(virtual_stage->device, slot) : NULL,
        .tokens = is_first && is_token ? backend->tokens(virtual_stage->device, slot) : NULL,
        .labels = is_last ? backend->labels(virtual_stage->device, slot) : NULL};
}

whole_sample interpreter_row_at(const ty_interpreter *in, const whole_sample *batch, uint64_t row)
{
    const uint64_t inputs = row * interpreter_row_inputs(in);
    const uint64_t labels = row * interpreter_row_labels(in);

    return (whole_sample){.input = batch->input != NULL ? batch->input + inputs : NULL,
                          .tokens = batch->tokens != NULL ? batch->tokens + inputs : NULL,
                          .labels = batch->labels != NULL ? batch->labels + labels : NULL};
}

ty_status interpreter_sample_load(ty_interpreter *in, const whole_sample *batch,
                                  const ty_dataset *dataset, uint64_t sample, uint64_t row,
                                  ty_error *error)
{
    const whole_sample to = interpreter_row_at(in, batch, row), *all = &in->sample;
    const ty_shape *input = &in->options.plan->workload->input;
    const uint64_t length = input->dimensions[0];

    if (in->groups[TY_CONTEXT_PARALLEL].count == 1)
        return ty_dataset_sample(dataset, sample, to.input, to.tokens, to.labels, error);
    TY_TRY(ty_dataset_sample(dataset, sample, to.input != NULL ? all->input : NULL,
                             to.tokens != NULL ? all->tokens : NULL,
                             to.labels != NULL ? all->labels : NULL, error));
    if (to.input != NULL)
        tokens_take(in, length, ty_shape_elements(input) / length * sizeof *to.input, all->input,
                    to.input);
    if (to.tokens != NULL)
        tokens_take(in, length, sizeof *to.tokens, all->tokens, to.tokens);
    if (to.labels != NULL)
        tokens_take(in, in->labels_per_sample, sizeof *to.labels, all->labels, to.labels);
    return TY_OK;
}

/* ---- Collectives ------------------------------------------------------------------------ */

/* Whether the other thread has failed: partners may then never arrive at the collective. */
static bool has_failed(ty_interpreter *in)
{
    bool found;

    pthread_mutex_lock(&in->lock);
    found = in->failure != TY_OK;
    pthread_mutex_unlock(&in->lock);
    return found;
}

/* A collective in flight: over the transport, or over the compute thread's link between devices. */
typedef struct parallel_message {
    ty_collective *collective;
    ty_request *request;
} parallel_message;

static ty_status message_test(ty_interpreter *in, parallel_message *message, bool *is_done,
                              bool *is_moved, ty_error *error)
{
    ty_status status;

    if (message->collective != NULL)
        return ty_collective_test(message->collective, is_done, is_moved, error);
    status = in->parallel_link->test(in->parallel_link, message->request, is_done, error);
    if (status != TY_OK)
        message->request = NULL; /* it is freed */
    return status;
}

static void message_cancel(ty_interpreter *in, parallel_message *message)
{
    ty_collective_cancel(message->collective);
    if (message->request != NULL)
        in->parallel_link->cancel(in->parallel_link, message->request);
}

static ty_status wait_for(ty_interpreter *in, parallel_message *running, ty_error *error)
{
    double moved_s = ty_now_s();
    ty_backoff backoff = {0};
    bool is_done = false;
    ty_status status = TY_OK;

    while (!is_done && status == TY_OK) {
        const uint32_t seen = ty_transport_bell(in->options.transport, ty_tag_inbox(TAG_PARALLEL));
        bool is_moved = false;

        status = message_test(in, running, &is_done, &is_moved, error);
        if (status != TY_OK || is_done)
            break;
        if (is_moved) {
            moved_s = ty_now_s();
            backoff.rounds = 0;
        } else if (ty_now_s() - moved_s > spin_s) {
            if (has_failed(in))
                status =
                    ty_fail(error, TY_EBACKEND, "a collective inside a stage replica was given up");
            else
                ty_backoff_rest(&backoff, in->options.transport, ty_tag_inbox(TAG_PARALLEL), seen,
                                false);
        }
    }
    if (status != TY_OK)
        message_cancel(in, running);
    return status;
}

static ty_collective_options of_row(const ty_interpreter *in, ty_parallelism among,
                                    ty_collective_options options)
{
    const process_group *row = &in->groups[among];

    options.algorithm = TY_RING;
    options.members = row->members;
    options.member_count = row->count;
    options.tag = TAG_PARALLEL;
    return options;
}

static ty_status on_host(ty_interpreter *in, const ty_collective_options *options, ty_error *error)
{
    parallel_message running = {NULL, NULL};
    ty_status status =
        ty_collective_start(in->options.transport, options, &running.collective, error);

    return status == TY_OK ? wait_for(in, &running, error) : status;
}

ty_status interpreter_parallel_collective(ty_interpreter *in, ty_parallelism among,
                                          ty_collective_kind kind, ty_element element,
                                          uint64_t count, void *data, ty_error *error)
{
    const ty_collective_options options = of_row(
        in, among,
        (ty_collective_options){.kind = kind, .data = data, .count = count, .element = element});

    return on_host(in, &options, error);
}

static ty_collective_options of_exchange(const ty_interpreter *in,
                                         const ty_parallel_exchange *exchange)
{
    return of_row(in, exchange->among,
                  (ty_collective_options){.kind = exchange->kind,
                                          .data = exchange->data,
                                          .count = exchange->count,
                                          .sent_counts = exchange->sent_counts,
                                          .received_counts = exchange->received_counts,
                                          .received = exchange->received,
                                          .element = exchange->element});
}

ty_status interpreter_parallel_exchange(void *context, const ty_parallel_exchange *exchange,
                                        ty_error *error)
{
    ty_interpreter *in = context;
    const ty_collective_options options = of_exchange(in, exchange);
    parallel_message running = {NULL, NULL};
    ty_status status;

    if (in->memory == NULL)
        return on_host(in, &options, error);
    status = in->parallel_link->exchange(in->parallel_link, &options, &running.request, error);
    return status == TY_OK ? wait_for(in, &running, error) : status;
}

ty_status interpreter_parallel_record(void *context, ty_stage_device *stage,
                                      const ty_parallel_exchange *exchange, ty_error *error)
{
    ty_interpreter *in = context;
    const ty_collective_options options = of_exchange(in, exchange);

    if (in->parallel_link->record == NULL)
        return ty_fail(error, TY_EUNSUPPORTED, "ranks exchange through the host's memory");
    return in->parallel_link->record(in->parallel_link, stage, &options, error);
}

ty_status interpreter_parallel_launch(void *context, ty_stage_device *stage, ty_parallel_run *run,
                                      void *argument, ty_error *error)
{
    ty_interpreter *in = context;
    parallel_message running = {NULL, NULL};
    ty_status status =
        in->parallel_link->launch(in->parallel_link, stage, run, argument, &running.request, error);

    return status == TY_OK ? wait_for(in, &running, error) : status;
}

/* ---- Gradients of unsharded parameters -------------------------------------------------- */

typedef struct gradient_range {
    uint64_t offset, count;
} gradient_range;

/* The range of an unsharded layer's gradients that this rank's update uses; else count 0. */
static gradient_range whole_range(const ty_interpreter *in, const bucket_state *bucket,
                                  uint32_t layer)
{
    const ty_plan *plan = in->options.plan;
    gradient_range found = {0, 0};
    uint64_t end;

    if (plan->workload->layers[layer].is_frozen || ty_tensor_parameter_share(plan, layer) < 1)
        return found;
    in->options.backend->slice(bucket->virtual_stage->device, layer, 1, &found.offset,
                               &found.count);
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

/* Number of unsharded gradients of a bucket. */
static uint64_t whole_count(const ty_interpreter *in, uint32_t index)
{
    const ty_bucket *planned = &in->options.plan->buckets[index];
    uint64_t sum = 0;

    for (uint32_t l = planned->first_layer; l < planned->first_layer + planned->layer_count; l++)
        sum += whole_range(in, &in->buckets[index], l).count;
    return sum;
}

/* Copies gradients from the device's memory, or into it. */
static ty_status range_move(const ty_interpreter *in, const bucket_state *bucket, uint32_t step,
                            const gradient_range *range, float *packed, bool unpacks,
                            ty_error *error)
{
    ty_stage_device *device = bucket->virtual_stage->device;
    float *gradients = interpreter_gradients_at(in, bucket->virtual_stage, step, range->offset);
    const uint64_t bytes = range->count * sizeof *packed;

    if (in->memory != NULL)
        return unpacks ? in->memory->write(device, gradients, packed, bytes, error)
                       : in->memory->read(device, packed, gradients, bytes, error);
    memcpy(unpacks ? gradients : packed, unpacks ? packed : gradients, bytes);
    return TY_OK;
}

/* Packs the gradients into `packed`, or unpacks them. */
static ty_status whole_copy(const ty_interpreter *in, uint32_t index, uint32_t step, float *packed,
                            bool unpacks, ty_error *error)
{
    const ty_bucket *planned = &in->options.plan->buckets[index];
    const bucket_state *bucket = &in->buckets[index];
    const uint32_t end = planned->first_layer + planned->layer_count;
    ty_status status = TY_OK;

    for (uint32_t l = planned->first_layer; l < end && status == TY_OK; l++) {
        const gradient_range range = whole_range(in, bucket, l);

        if (range.count > 0)
            status = range_move(in, bucket, step, &range, packed, unpacks, error);
        packed += range.count;
    }
    return status;
}

ty_status interpreter_tp_sum(ty_interpreter *in, uint32_t index, uint32_t step, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    /* Gradients of shards of a sequence add up; results of compressing equal gradients are
     * averaged. */
    const float factor =
        plan->sequence_parallel ? 1.0f : 1.0f / (float)in->groups[TY_TENSOR_PARALLEL].count;
    uint64_t count;
    float *packed;
    ty_status status;

    if (ty_bucket_rank_bytes(plan, &plan->buckets[index]) == 0)
        return TY_OK;
    count = whole_count(in, index);
    packed = ty_alloc(count, sizeof *packed);
    TY_TRY(ty_check_memory(packed != NULL, error));
    TY_CHECK(whole_copy(in, index, step, packed, false, error), status, cleanup);
    TY_CHECK(interpreter_parallel_collective(in, TY_TENSOR_PARALLEL, TY_ALL_REDUCE,
                                             TY_ELEMENT_FLOAT, count, packed, error),
             status, cleanup);
    for (uint64_t i = 0; i < count; i++)
        packed[i] *= factor;
    status = whole_copy(in, index, step, packed, true, error);
cleanup:
    ty_free(packed);
    return status;
}

double interpreter_rank_square(const ty_interpreter *in, uint32_t index, const float *gradients,
                               uint64_t offset, uint64_t count)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *planned = &plan->buckets[index];
    const bucket_state *bucket = &in->buckets[index];
    const ty_device_backend *backend = in->options.backend;
    ty_stage_device *device = bucket->virtual_stage->device;
    const uint32_t ranks = in->groups[TY_TENSOR_PARALLEL].count;
    double sum = backend->square(device, gradients, count), whole = 0;

    if (ranks == 1)
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
            whole +=
                backend->square(device, gradients + (range.offset - offset), end - range.offset);
    }
    return sum - whole + (plan->sequence_parallel ? 0 : whole / ranks);
}
