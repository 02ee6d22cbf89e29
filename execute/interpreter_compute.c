/* The compute thread: runs the compute stream in order, and loads batches when the next compute
 * instruction has to wait anyway. */
#include "interpreter_state.h"

static ty_status run_load(ty_interpreter *in, const ty_instruction *load, uint32_t step,
                          uint32_t slot, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_workload *workload = plan->workload;
    const ty_device_backend *backend = in->options.backend;
    bool is_first = in->stage == 0, is_last = in->stage + 1 == plan->stage_count;
    bool is_token = workload->input_kind == TY_INPUT_TOKEN;
    uint64_t row = ty_shape_elements(&workload->input), j;
    float *input = is_first && !is_token ? backend->input(in->device, slot) : NULL;
    int32_t *tokens = is_first && is_token ? backend->tokens(in->device, slot) : NULL;
    int32_t *labels = is_last ? backend->labels(in->device, slot) : NULL;
    uint64_t position =
        (uint64_t)step * plan->global_batch +
        (uint64_t)ty_program_global_micro_batch(plan, in->stage, in->replica, load->micro_batch) *
            plan->micro_batch_size;

    (void)error;
    for (j = 0; j < plan->micro_batch_size; j++) {
        uint64_t sample = ty_dataset_shuffled(in->options.dataset, plan->seed, position + j);

        ty_dataset_sample(in->options.dataset, sample, input != NULL ? input + j * row : NULL,
                          tokens != NULL ? tokens + j * row : NULL,
                          labels != NULL ? labels + j * in->labels_per_sample : NULL);
    }
    return TY_OK;
}

static ty_status run_forward(ty_interpreter *in, const ty_instruction *forward, uint32_t step,
                             uint32_t slot, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    ty_status status = in->options.backend->forward(in->device, slot, forward->first_layer,
                                                    forward->layer_count, error);
    double loss_sum = 0;
    uint64_t correct = 0, labels = 0;

    if (status != TY_OK ||
        forward->first_layer + forward->layer_count != plan->workload->layer_count)
        return status;
    in->options.backend->loss(in->device, slot, &loss_sum, &correct, &labels);
    pthread_mutex_lock(&in->lock);
    in->sums[step % PARITIES].loss_sum += loss_sum;
    in->sums[step % PARITIES].label_count += (double)labels;
    pthread_mutex_unlock(&in->lock);
    return TY_OK;
}

static ty_status run_recompute(ty_interpreter *in, const ty_instruction *recompute, uint32_t step,
                               uint32_t slot, ty_error *error)
{
    (void)recompute;
    (void)step;
    return in->options.backend->recompute(in->device, slot, error);
}

static ty_status run_backward(ty_interpreter *in, const ty_instruction *backward, uint32_t step,
                              uint32_t slot, ty_error *error)
{
    (void)step;
    return in->options.backend->backward(in->device, slot, backward->first_layer,
                                         backward->layer_count,
                                         backward->micro_batch == in->first_backward, error);
}

/* On the device, an overflow is counted, and the slice keeps its weights. */
static ty_status update_on_device(ty_interpreter *in, const ty_optimizer *optimizer, uint32_t step,
                                  uint64_t offset, uint64_t count, ty_error *error)
{
    bool is_finite = true;
    ty_status status = in->memory->update(in->device, optimizer, (uint64_t)step + 1, offset, count,
                                          &is_finite, error);

    if (status == TY_OK && !is_finite) {
        pthread_mutex_lock(&in->lock);
        in->sums[step % PARITIES].overflow_count += 1;
        pthread_mutex_unlock(&in->lock);
    }
    return status;
}

/* A compressor that has taken momentum leaves plain descent to the optimizer. */
static ty_optimizer optimizer_of(const ty_interpreter *in, uint32_t bucket)
{
    const ty_plan *plan = in->options.plan;
    ty_optimizer optimizer = plan->optimizer;

    if (bucket != TY_NO_BUCKET && ty_bucket_member_count(plan, &plan->buckets[bucket]) > 1 &&
        ty_compression_has_momentum(&plan->buckets[bucket].compression))
        optimizer.momentum = 0;
    return optimizer;
}

static ty_status update_slice(ty_interpreter *in, const ty_optimizer *optimizer, uint32_t step,
                              uint64_t offset, uint64_t count, ty_error *error)
{
    const ty_device_backend *backend = in->options.backend;

    if (count > 0 && in->memory != NULL)
        return update_on_device(in, optimizer, step, offset, count, error);
    if (count > 0)
        ty_optimizer_step(optimizer, (uint64_t)step + 1, count,
                          backend->parameters(in->device) + offset,
                          backend->gradients(in->device) + offset,
                          in->optimizer_state + offset * in->state_count);
    return TY_OK;
}

/* Without frozen layers, so that they keep their weights whatever the optimizer decays. Layers that
 * lie side by side are updated at once. */
static ty_status run_update(ty_interpreter *in, const ty_instruction *update, uint32_t step,
                            uint32_t slot, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_optimizer optimizer = optimizer_of(in, update->bucket);
    uint64_t first = 0, end = 0;
    uint32_t layer;
    ty_status status = TY_OK;

    (void)slot;
    if (update->bucket != TY_NO_BUCKET && plan->buckets[update->bucket].tied_stage != TY_NO_STAGE) {
        const bucket_state *bucket = &in->buckets[update->bucket];
        return update_slice(in, &optimizer, step, bucket->offset, bucket->count, error);
    }
    for (layer = update->first_layer; layer < update->first_layer + update->layer_count; layer++) {
        uint64_t offset = 0, count = 0;

        if (plan->workload->layers[layer].is_frozen)
            continue;
        in->options.backend->slice(in->device, layer, 1, &offset, &count);
        if (count > 0 && offset != end) {
            TY_CHECK(update_slice(in, &optimizer, step, first, end - first, error), status, done);
            first = offset;
        }
        end = count > 0 ? offset + count : end;
    }
    status = update_slice(in, &optimizer, step, first, end - first, error);
done:
    return status;
}

typedef ty_status (*run_function)(ty_interpreter *in, const ty_instruction *instruction,
                                  uint32_t step, uint32_t slot, ty_error *error);

static const run_function run_functions[TY_OP_COUNT] = {
    [TY_OP_LOAD] = run_load,           [TY_OP_FORWARD] = run_forward,
    [TY_OP_RECOMPUTE] = run_recompute, [TY_OP_BACKWARD] = run_backward,
    [TY_OP_UPDATE] = run_update,
};

/* Everything it names is done, and the buffers it fills are its own. */
static bool is_ready(ty_interpreter *in, uint32_t index, uint32_t step)
{
    const ty_instruction *next = &in->program->instructions[index];
    const micro_batch_state *batch;

    if (!interpreter_waits_done(in, index, step))
        return false;
    if (next->micro_batch == TY_NO_MICRO_BATCH)
        return true;
    batch = interpreter_micro_batch(in, step, next->micro_batch);
    if (batch->slot == NO_INDEX)
        return false;
    if (next->op == TY_OP_FORWARD && in->stage > 0 && !batch->is_placed)
        return false;
    if (next->op == TY_OP_FORWARD || next->op == TY_OP_RECOMPUTE)
        return !in->slots[batch->slot].is_output_busy;
    if (next->op == TY_OP_BACKWARD)
        return !in->slots[batch->slot].is_gradient_busy;
    return true;
}

/* Runs the instruction with the lock released. */
static ty_status run_one(ty_interpreter *in, ty_stream stream, stream_cursor *at, uint32_t index,
                         ty_error *error)
{
    const ty_instruction *next = &in->program->instructions[index];
    uint32_t slot = next->micro_batch == TY_NO_MICRO_BATCH
                        ? NO_INDEX
                        : interpreter_micro_batch(in, at->step, next->micro_batch)->slot;
    double start_s = ty_now_s();
    double loss_scale = in->loss_scales[at->step % PARITIES];
    bool is_scaled = in->options.precision == TY_PRECISION_FP16;
    ty_status status;

    pthread_mutex_unlock(&in->lock);
    if (is_scaled && stream == TY_STREAM_COMPUTE && at->position == 0)
        in->memory->scale_loss(in->device, loss_scale);
    status = run_functions[next->op](in, next, at->step, slot, error);
    pthread_mutex_lock(&in->lock);
    if (status == TY_OK) {
        interpreter_done(in, index, at->step, start_s, ty_now_s());
        interpreter_advance(in, stream, at);
    }
    return status;
}

static bool is_finished(const ty_interpreter *in, ty_stream stream, const stream_cursor *at)
{
    return in->streams[stream].count == 0 || at->step >= in->target;
}

/* The communication thread looks more often from now on: the core is free. */
static void wait_for_messages(ty_interpreter *in)
{
    in->is_compute_waiting = true;
    pthread_cond_signal(&in->for_communication);
    pthread_cond_wait(&in->for_compute, &in->lock);
    in->is_compute_waiting = false;
}

void *interpreter_compute(void *argument)
{
    ty_interpreter *in = argument;
    ty_error error = {0};
    ty_status status = TY_OK;

    pthread_mutex_lock(&in->lock);
    while (status == TY_OK && in->failure == TY_OK &&
           !(is_finished(in, TY_STREAM_COMPUTE, &in->compute) &&
             is_finished(in, TY_STREAM_INPUT, &in->input))) {
        uint32_t next = interpreter_head(in, TY_STREAM_COMPUTE, &in->compute);
        uint32_t load = interpreter_head(in, TY_STREAM_INPUT, &in->input);

        if (next != NO_INDEX && is_ready(in, next, in->compute.step))
            status = run_one(in, TY_STREAM_COMPUTE, &in->compute, next, &error);
        else if (load != NO_INDEX && is_ready(in, load, in->input.step))
            status = run_one(in, TY_STREAM_INPUT, &in->input, load, &error);
        else
            wait_for_messages(in);
    }
    pthread_mutex_unlock(&in->lock);
    if (status != TY_OK)
        interpreter_fail(in, status, &error);
    return NULL;
}
