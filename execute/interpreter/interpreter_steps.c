/* State that the interpreter's two threads share: the next instruction, its dependencies, and the
 * micro-batch in each slot of the device. */
#include "interpreter_state.h"

void interpreter_wake(ty_interpreter *in)
{
    in->generation++;
    pthread_cond_signal(&in->for_compute);
    interpreter_wake_communication(in);
}

void interpreter_wake_communication(ty_interpreter *in)
{
    ty_transport *transport = in->options.transport;

    if (transport->wake != NULL)
        transport->wake(transport, 0);
    else
        pthread_cond_signal(&in->for_communication);
}

void interpreter_fail(ty_interpreter *in, ty_status status, const ty_error *error)
{
    pthread_mutex_lock(&in->lock);
    if (in->failure == TY_OK) {
        in->failure = status;
        in->error = *error;
    }
    interpreter_wake(in);
    pthread_mutex_unlock(&in->lock);
}

uint32_t interpreter_step_limit(const ty_interpreter *in)
{
    return in->target < in->controls_done + in->window ? in->target
                                                       : in->controls_done + in->window;
}

virtual_stage_state *interpreter_virtual_stage(ty_interpreter *in,
                                               const ty_instruction *instruction)
{
    return &in->virtual_stages[instruction->stage / ty_plan_pipeline_size(in->options.plan)];
}

static micro_batch_state *micro_batch_at(const ty_interpreter *in,
                                         const virtual_stage_state *virtual_stage, uint32_t step,
                                         uint32_t index)
{
    return &virtual_stage
                ->micro_batches[(size_t)(step % in->window) * in->local_micro_batches + index];
}

micro_batch_state *interpreter_micro_batch(ty_interpreter *in, const ty_instruction *instruction,
                                           uint32_t step)
{
    return micro_batch_at(in, interpreter_virtual_stage(in, instruction), step,
                          instruction->micro_batch);
}

bool interpreter_is_finished(const ty_interpreter *in, ty_stream stream, const stream_cursor *at)
{
    return in->streams[stream].count == 0 || at->round >= (int64_t)in->target;
}

uint32_t interpreter_next(const ty_interpreter *in, ty_stream stream, stream_cursor *at,
                          uint32_t *step)
{
    const stream_order *order = &in->streams[stream];

    for (; !interpreter_is_finished(in, stream, at); interpreter_advance(in, stream, at)) {
        uint32_t index = order->instructions[at->position];
        int64_t meant = at->round + in->program->instructions[index].lead;

        if (meant < (int64_t)in->first_step || meant >= (int64_t)in->target)
            continue;
        *step = (uint32_t)meant;
        return index;
    }
    return NO_INDEX;
}

uint32_t interpreter_head(const ty_interpreter *in, ty_stream stream, stream_cursor *at,
                          uint32_t *step)
{
    const uint32_t index = interpreter_next(in, stream, at, step);

    return index != NO_INDEX && *step < interpreter_step_limit(in) ? index : NO_INDEX;
}

void interpreter_advance(const ty_interpreter *in, ty_stream stream, stream_cursor *at)
{
    at->is_ready = false;
    if (++at->position == in->streams[stream].count) {
        at->position = 0;
        at->round++;
    }
}

float *interpreter_gradients(const ty_interpreter *in, const virtual_stage_state *virtual_stage,
                             uint32_t step)
{
    const ty_device_backend *backend = in->options.backend;

    return backend->gradients(virtual_stage->device) +
           step % in->gradient_sets *
               ty_parameter_stride(backend->parameter_count(virtual_stage->device));
}

bool interpreter_waits_done(const ty_interpreter *in, uint32_t instruction, uint32_t step)
{
    const ty_instruction *waiting = &in->program->instructions[instruction];

    for (uint32_t i = 0; i < waiting->wait_count; i++) {
        if (in->done[waiting->waits[i]] <= step)
            return false;
    }
    return true;
}

static void bind_slots(const ty_interpreter *in, virtual_stage_state *virtual_stage)
{
    uint64_t end = (uint64_t)interpreter_step_limit(in) * in->local_micro_batches;

    while (virtual_stage->free_count > 0 && virtual_stage->bound_count < end) {
        uint32_t step = (uint32_t)(virtual_stage->bound_count / in->local_micro_batches);
        uint32_t index =
            virtual_stage->forward_order[virtual_stage->bound_count % in->local_micro_batches];

        micro_batch_at(in, virtual_stage, step, index)->slot =
            virtual_stage->free_slots[--virtual_stage->free_count];
        virtual_stage->bound_count++;
    }
}

void interpreter_bind_slots(ty_interpreter *in)
{
    for (uint32_t h = 0; h < in->virtual_stage_count; h++)
        bind_slots(in, &in->virtual_stages[h]);
}

/* A send's buffer is busy from the end of the pass that fills it until the send has ended. */
static void mark_sends(const ty_interpreter *in, const ty_instruction *did,
                       virtual_stage_state *virtual_stage, const micro_batch_state *batch)
{
    const ty_plan_stage *stage = &in->options.plan->stages[virtual_stage->stage];
    slot_state *own = &virtual_stage->slots[batch->slot];

    if ((did->op == TY_OP_FORWARD || did->op == TY_OP_LOAD) &&
        virtual_stage->stage + 1 < in->options.plan->stage_count &&
        did->first_layer + did->layer_count == stage->first_layer + stage->layer_count)
        own->is_output_busy = true;
    if ((did->op == TY_OP_BACKWARD || did->op == TY_OP_BACKWARD_INPUT) &&
        virtual_stage->sends_gradient && did->first_layer == stage->first_layer)
        own->is_gradient_busy = true;
    if (did->op == TY_OP_SEND && did->direction == TY_ACTIVATION)
        own->is_output_busy = false;
    if (did->op == TY_OP_SEND && did->direction == TY_GRADIENT)
        own->is_gradient_busy = false;
}

bool interpreter_has_slot(const ty_interpreter *in, const ty_instruction *instruction)
{
    const bool is_of_weights =
        instruction->direction == TY_GRADIENT && ty_plan_actors(in->options.plan) > 0;

    return instruction->micro_batch != TY_NO_MICRO_BATCH && instruction->bucket == TY_NO_BUCKET &&
           !is_of_weights;
}

/* Counts an instruction of a micro-batch. @return whether its slot went to another one */
static bool micro_batch_done(ty_interpreter *in, const ty_instruction *did, uint32_t step)
{
    virtual_stage_state *virtual_stage = interpreter_virtual_stage(in, did);
    micro_batch_state *batch = interpreter_micro_batch(in, did, step);
    bool is_slot_free = false;

    if (batch->slot != NO_INDEX)
        mark_sends(in, did, virtual_stage, batch);
    if (did->op != TY_OP_SEND && --batch->held == 0) {
        virtual_stage->free_slots[virtual_stage->free_count++] = batch->slot;
        bind_slots(in, virtual_stage);
        is_slot_free = true;
    }
    if (--batch->left == 0) {
        *batch = (micro_batch_state){.slot = NO_INDEX,
                                     .held = virtual_stage->micro_batch_held[did->micro_batch],
                                     .left = virtual_stage->micro_batch_left[did->micro_batch]};
    }
    return is_slot_free;
}

/* Waking a thread costs more than most other overhead of an instruction, so the compute thread
 * wakes the other one only for instructions that it waits for. */
void interpreter_done(ty_interpreter *in, uint32_t instruction, uint32_t step, double start_s,
                      double end_s)
{
    const ty_instruction *did = &in->program->instructions[instruction];
    bool is_computed = did->stream == TY_STREAM_COMPUTE || did->stream == TY_STREAM_INPUT;
    bool must_wake = !is_computed || in->is_awaited[instruction];
    uint32_t first = in->options.first_recorded;

    in->done[instruction]++;
    if (step >= first && step - first < in->options.recorded_steps) {
        in->events[in->event_count++] = (ty_event){.stage_replica = in->stage_replica,
                                                   .step = step - first,
                                                   .instruction = instruction,
                                                   .start_s = start_s,
                                                   .end_s = end_s};
    }
    if (interpreter_has_slot(in, did) && micro_batch_done(in, did, step))
        must_wake = must_wake || in->streams[TY_STREAM_RECEIVE].count > 0;
    if (--in->left_in_step[step % in->window] == 0) {
        in->left_in_step[step % in->window] = in->program->instruction_count;
        in->steps_done++;
        must_wake = true;
    }
    if (must_wake)
        interpreter_wake(in);
}

/* ---- Memory, and the plan ------------------------------------------------------------------ */

bool interpreter_is_timed(const ty_interpreter *in)
{
    return in->options.backend->is_timed;
}

/* With stale gradients a step ends with its update, `staleness` steps after its passes, and a fast
 * replica's passes are as many steps ahead of a slow one's. */
uint32_t interpreter_window(const ty_plan *plan, const ty_program *program)
{
    return STEPS_AT_ONCE + ty_program_largest_lead(program) + plan->staleness;
}

/* Frees memory of the device or the host, depending on the backend. */
void interpreter_memory_free(ty_interpreter *in, void *memory)
{
    if (in->memory == NULL)
        ty_free(memory);
    else if (memory != NULL)
        in->memory->release(in->virtual_stages[0].device, memory);
}

ty_status interpreter_host_floats(ty_interpreter *in, const float *from, uint64_t count,
                                  const float **out, float **owned, ty_error *error)
{
    *out = from;
    if (in->memory == NULL)
        return TY_OK;
    *owned = ty_alloc(count, sizeof **owned);
    TY_TRY(ty_check_memory(*owned != NULL, error));
    *out = *owned;
    return in->memory->read(in->virtual_stages[0].device, *owned, from, count * sizeof *from,
                            error);
}
