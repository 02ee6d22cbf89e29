/* The compute thread: runs the compute stream in order, and puts batches into slots when the next
 * compute instruction has to wait anyway. */
#include "interpreter_buckets.h"
#include "interpreter_input.h"
#include "interpreter_parallel.h"
#include "interpreter_replay.h"
#include "sharding.h"

#include <string.h>

static ty_status run_begin(ty_interpreter *in, const ty_instruction *begin, uint32_t step,
                           uint32_t slot, ty_error *error)
{
    (void)slot, (void)error;
    if (begin->bytes > 0)
        in->scenario.hooks->begin(&in->scenario, step);
    return TY_OK;
}

/* The weight version that a forward of a step uses. With 2BW it is the one before the newest that
 * the step could have (Narayanan et al., 2021, section 3.1). Else it is the newest, without the
 * steps that this pipeline rank has not ended yet. */
static uint32_t version_of(const ty_interpreter *in, const ty_instruction *forward, uint32_t step)
{
    if (ty_schedule_at(in->options.plan->schedule)->versions == TY_WEIGHTS_DOUBLE)
        return step > 0 ? step - 1 : 0;
    return step - in->first_step > forward->lead ? step - forward->lead : in->first_step;
}

/* Forward chooses the weights, recomputing and backward use the same. */
static void version_select(ty_interpreter *in, const ty_instruction *pass, uint32_t step)
{
    virtual_stage_state *virtual_stage = interpreter_virtual_stage(in, pass);
    micro_batch_state *batch;
    uint32_t version;

    if (virtual_stage->version_count == 1)
        return;
    pthread_mutex_lock(&in->lock);
    batch = interpreter_micro_batch(in, pass, step);
    if (pass->op == TY_OP_FORWARD)
        batch->version = version_of(in, pass, step) % virtual_stage->version_count;
    version = batch->version;
    pthread_mutex_unlock(&in->lock);
    in->options.backend->select(virtual_stage->device, version);
}

static void loss_add(ty_interpreter *in, uint32_t step, double sum, double count)
{
    pthread_mutex_lock(&in->lock);
    in->sums[step % in->window].loss_sum += sum;
    in->sums[step % in->window].label_count += count;
    pthread_mutex_unlock(&in->lock);
}

static ty_status run_forward(ty_interpreter *in, const ty_instruction *forward, uint32_t step,
                             uint32_t slot, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    ty_stage_device *device = interpreter_virtual_stage(in, forward)->device;
    double loss_sum = 0;
    uint64_t correct = 0, labels = 0;
    ty_status status;

    version_select(in, forward, step);
    if (in->scenario.hooks->forward != NULL) {
        scenario_loss loss = {0, 0};
        status = in->scenario.hooks->forward(&in->scenario, forward, step, slot, &loss, error);
        loss_add(in, step, loss.sum, loss.count);
        return status;
    }
    status = in->options.backend->forward(device, slot, forward->first_layer, forward->layer_count,
                                          error);
    if (status != TY_OK ||
        forward->first_layer + forward->layer_count != plan->workload->layer_count)
        return status;
    in->options.backend->loss(device, slot, &loss_sum, &correct, &labels);
    loss_add(in, step, loss_sum, (double)labels);
    return TY_OK;
}

static ty_status run_recompute(ty_interpreter *in, const ty_instruction *recompute, uint32_t step,
                               uint32_t slot, ty_error *error)
{
    version_select(in, recompute, step);
    return in->options.backend->recompute(interpreter_virtual_stage(in, recompute)->device, slot,
                                          recompute->first_layer, recompute->layer_count, error);
}

static ty_status run_backward(ty_interpreter *in, const ty_instruction *backward, uint32_t step,
                              uint32_t slot, ty_error *error)
{
    const virtual_stage_state *virtual_stage = interpreter_virtual_stage(in, backward);

    version_select(in, backward, step);
    interpreter_gradients_select(in, virtual_stage, step);
    return in->options.backend->backward(
        virtual_stage->device, slot, backward->first_layer, backward->layer_count,
        backward->micro_batch == virtual_stage->first_backward, error);
}

static ty_status run_backward_input(ty_interpreter *in, const ty_instruction *backward,
                                    uint32_t step, uint32_t slot, ty_error *error)
{
    (void)step;
    return in->options.backend->backward_input(interpreter_virtual_stage(in, backward)->device,
                                               slot, backward->first_layer, backward->layer_count,
                                               error);
}

static ty_status run_backward_weight(ty_interpreter *in, const ty_instruction *backward,
                                     uint32_t step, uint32_t slot, ty_error *error)
{
    const virtual_stage_state *virtual_stage = interpreter_virtual_stage(in, backward);

    interpreter_gradients_select(in, virtual_stage, step);
    return in->options.backend->backward_weight(
        virtual_stage->device, slot, backward->first_layer, backward->layer_count,
        backward->micro_batch == virtual_stage->first_backward, error);
}

/* Weights that were averaged have been updated before. */
static ty_status run_update(ty_interpreter *in, const ty_instruction *update, uint32_t step,
                            uint32_t slot, ty_error *error)
{
    const scenario *hooks = in->scenario.hooks;
    const bucket_state *bucket = &in->buckets[update->bucket];

    (void)slot;
    if (interpreter_exchange_kind(in, update->bucket, step) == EXCHANGE_WEIGHTS)
        return TY_OK;
    if (hooks->gradient != NULL)
        hooks->gradient(&in->scenario, bucket->offset, bucket->count,
                        interpreter_gradients(in, bucket->virtual_stage, step) + bucket->offset);
    TY_TRY(interpreter_tp_sum(in, update->bucket, step, error));
    TY_TRY(interpreter_update(in, update->bucket, step, error));
    if (hooks->updated != NULL)
        hooks->updated(&in->scenario, update->bucket, step);
    return TY_OK;
}

typedef ty_status (*run_function)(ty_interpreter *in, const ty_instruction *instruction,
                                  uint32_t step, uint32_t slot, ty_error *error);

static const run_function run_functions[TY_OP_COUNT] = {
    [TY_OP_BEGIN] = run_begin,
    [TY_OP_LOAD] = interpreter_load,
    [TY_OP_FORWARD] = run_forward,
    [TY_OP_RECOMPUTE] = run_recompute,
    [TY_OP_BACKWARD] = run_backward,
    [TY_OP_BACKWARD_INPUT] = run_backward_input,
    [TY_OP_BACKWARD_WEIGHT] = run_backward_weight,
    [TY_OP_UPDATE] = run_update,
};

/* Whether a pass computes the stage's output. */
static bool has_last_layer(const ty_interpreter *in, const ty_instruction *pass)
{
    const ty_plan_stage *stage = &in->options.plan->stages[pass->stage];

    return pass->first_layer + pass->layer_count == stage->first_layer + stage->layer_count;
}

/* All instructions that it waits for are done, and the buffers that it fills are free. */
static bool is_ready(ty_interpreter *in, uint32_t index, uint32_t step)
{
    const ty_instruction *next = &in->program->instructions[index];
    const micro_batch_state *batch;
    const slot_state *slot;

    if (!interpreter_waits_done(in, index, step))
        return false;
    if (next->op == TY_OP_LOAD && !interpreter_batch_is_ready(in))
        return false;
    if (next->micro_batch == TY_NO_MICRO_BATCH)
        return true;
    batch = interpreter_micro_batch(in, next, step);
    if (batch->slot == NO_INDEX)
        return false;
    slot = &interpreter_virtual_stage(in, next)->slots[batch->slot];
    if (next->op == TY_OP_FORWARD && next->stage > 0 && !batch->is_placed)
        return false;
    if (next->op == TY_OP_FORWARD ||
        (next->op == TY_OP_LOAD && next->stream == TY_STREAM_COMPUTE) ||
        (next->op == TY_OP_RECOMPUTE && has_last_layer(in, next)))
        return !slot->is_output_busy;
    if (next->op == TY_OP_BACKWARD || next->op == TY_OP_BACKWARD_INPUT)
        return !slot->is_gradient_busy && interpreter_backward_may_start(in, next);
    return true;
}

/* Runs the instruction with the lock released. */
static ty_status run_one(ty_interpreter *in, ty_stream stream, stream_cursor *at, uint32_t index,
                         uint32_t step, ty_error *error)
{
    const ty_instruction *next = &in->program->instructions[index];
    uint32_t slot = next->micro_batch == TY_NO_MICRO_BATCH
                        ? NO_INDEX
                        : interpreter_micro_batch(in, next, step)->slot;
    double start_s = ty_now_s();
    double loss_scale = in->loss_scales[step % in->window];
    bool is_scaled = in->options.precision == TY_PRECISION_FP16 && stream == TY_STREAM_COMPUTE;
    ty_status status = TY_OK;

    if (next->op == TY_OP_BACKWARD)
        interpreter_backward_starts(in, next);
    pthread_mutex_unlock(&in->lock);
    for (uint32_t h = 0; h < in->virtual_stage_count && is_scaled; h++) /* steps may overlap */
        in->memory->scale_loss(in->virtual_stages[h].device, loss_scale);
    if (interpreter_is_timed(in))
        status = interpreter_play(in, index, start_s, error);
    else
        status = run_functions[next->op](in, next, step, slot, error);
    pthread_mutex_lock(&in->lock);
    if (status == TY_OK) {
        interpreter_done(in, index, step, start_s, ty_now_s());
        if (in->options.plan->zero == 3 && stream == TY_STREAM_COMPUTE &&
            next->micro_batch != TY_NO_MICRO_BATCH) {
            interpreter_pass_over(in, next);
            interpreter_wake(in);
        }
        interpreter_advance(in, stream, at);
    }
    return status;
}

/* The core is free: makes the communication thread poll more often, unless messages ring. */
static void wait_for_messages(ty_interpreter *in)
{
    in->is_compute_waiting = true;
    if (!in->options.transport->rings_always)
        interpreter_wake_communication(in);
    pthread_cond_wait(&in->for_compute, &in->lock);
    in->is_compute_waiting = false;
}

void *interpreter_compute(void *argument)
{
    ty_interpreter *in = argument;
    ty_error error = {0};
    ty_status status = TY_OK;

    if (interpreter_is_timed(in) || ty_plan_replica_ranks(in->options.plan) > 1)
        interpreter_sleep_finely();
    status = interpreter_input_start(in, &error);
    pthread_mutex_lock(&in->lock);
    while (status == TY_OK && in->failure == TY_OK &&
           !(interpreter_is_finished(in, TY_STREAM_COMPUTE, &in->compute) &&
             interpreter_is_finished(in, TY_STREAM_INPUT, &in->input))) {
        uint32_t step = 0, load_step = 0;
        uint32_t next = interpreter_head(in, TY_STREAM_COMPUTE, &in->compute, &step);
        uint32_t load = interpreter_head(in, TY_STREAM_INPUT, &in->input, &load_step);

        if (next != NO_INDEX && is_ready(in, next, step))
            status = run_one(in, TY_STREAM_COMPUTE, &in->compute, next, step, &error);
        else if (load != NO_INDEX && is_ready(in, load, load_step))
            status = run_one(in, TY_STREAM_INPUT, &in->input, load, load_step, &error);
        else
            wait_for_messages(in);
    }
    pthread_mutex_unlock(&in->lock);
    interpreter_input_stop(in);
    if (status != TY_OK)
        interpreter_fail(in, status, &error);
    return NULL;
}
