/* The interpreter's life, and what its two threads share: which instruction is next, what it waits
 * for, and which micro-batch has which slot of the device. */
#include "interpreter_state.h"

#include <math.h>
#include <string.h>
#include <time.h>

/* ---- Shared steps ------------------------------------------------------------------------ */

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

held_stage *interpreter_held(ty_interpreter *in, const ty_instruction *instruction)
{
    return &in->held[instruction->stage / ty_plan_position_count(in->options.plan)];
}

static micro_batch_state *micro_batch_at(const ty_interpreter *in, const held_stage *held,
                                         uint32_t step, uint32_t index)
{
    return &held->micro_batches[(size_t)(step % in->window) * in->local_micro_batches + index];
}

micro_batch_state *interpreter_micro_batch(ty_interpreter *in, const ty_instruction *instruction,
                                           uint32_t step)
{
    return micro_batch_at(in, interpreter_held(in, instruction), step, instruction->micro_batch);
}

bool interpreter_is_finished(const ty_interpreter *in, ty_stream stream, const stream_cursor *at)
{
    return in->streams[stream].count == 0 || at->round >= (int64_t)in->target;
}

uint32_t interpreter_head(const ty_interpreter *in, ty_stream stream, stream_cursor *at,
                          uint32_t *step)
{
    const stream_order *order = &in->streams[stream];

    for (; !interpreter_is_finished(in, stream, at); interpreter_advance(in, stream, at)) {
        uint32_t index = order->instructions[at->position];
        int64_t meant = at->round + in->program->instructions[index].lead;

        if (meant < (int64_t)in->first_step || meant >= (int64_t)in->target)
            continue;
        *step = (uint32_t)meant;
        return meant < (int64_t)interpreter_step_limit(in) ? index : NO_INDEX;
    }
    return NO_INDEX;
}

void interpreter_advance(const ty_interpreter *in, ty_stream stream, stream_cursor *at)
{
    at->is_ready = false;
    if (++at->position == in->streams[stream].count) {
        at->position = 0;
        at->round++;
    }
}

float *interpreter_gradients(const ty_interpreter *in, const held_stage *held, uint32_t step)
{
    const ty_device_backend *backend = in->options.backend;

    return backend->gradients(held->device) +
           step % in->gradient_sets * backend->parameter_count(held->device);
}

bool interpreter_waits_done(const ty_interpreter *in, uint32_t instruction, uint32_t step)
{
    const ty_instruction *waiting = &in->program->instructions[instruction];
    uint32_t i;

    for (i = 0; i < waiting->wait_count; i++) {
        if (in->done[waiting->waits[i]] <= step)
            return false;
    }
    return true;
}

static void bind_slots(const ty_interpreter *in, held_stage *held)
{
    uint64_t end = (uint64_t)interpreter_step_limit(in) * in->local_micro_batches;

    while (held->free_count > 0 && held->bound_count < end) {
        uint32_t step = (uint32_t)(held->bound_count / in->local_micro_batches);
        uint32_t index = held->forward_order[held->bound_count % in->local_micro_batches];

        micro_batch_at(in, held, step, index)->slot = held->free_slots[--held->free_count];
        held->bound_count++;
    }
}

void interpreter_bind_slots(ty_interpreter *in)
{
    uint32_t h;

    for (h = 0; h < in->held_count; h++)
        bind_slots(in, &in->held[h]);
}

/* A send's buffer is busy from the end of the pass that fills it until the message is away. */
static void mark_sends(const ty_interpreter *in, const ty_instruction *did, held_stage *held,
                       const micro_batch_state *batch)
{
    const ty_plan_stage *stage = &in->options.plan->stages[held->stage];
    slot_state *own = &held->slots[batch->slot];

    if (did->op == TY_OP_FORWARD && held->stage + 1 < in->options.plan->stage_count &&
        did->first_layer + did->layer_count == stage->first_layer + stage->layer_count)
        own->is_output_busy = true;
    if ((did->op == TY_OP_BACKWARD || did->op == TY_OP_BACKWARD_INPUT) && held->sends_gradient &&
        did->first_layer == stage->first_layer)
        own->is_gradient_busy = true;
    if (did->op == TY_OP_SEND && did->direction == TY_ACTIVATION)
        own->is_output_busy = false;
    if (did->op == TY_OP_SEND && did->direction == TY_GRADIENT)
        own->is_gradient_busy = false;
}

/* Whether its slot went to another micro-batch. */
static bool micro_batch_done(ty_interpreter *in, const ty_instruction *did, uint32_t step)
{
    held_stage *held = interpreter_held(in, did);
    micro_batch_state *batch = interpreter_micro_batch(in, did, step);
    bool is_slot_free = false;

    if (batch->slot != NO_INDEX)
        mark_sends(in, did, held, batch);
    if (did->op != TY_OP_SEND && --batch->held == 0) {
        held->free_slots[held->free_count++] = batch->slot;
        bind_slots(in, held);
        is_slot_free = true;
    }
    if (--batch->left == 0) {
        *batch = (micro_batch_state){.slot = NO_INDEX,
                                     .held = held->micro_batch_held[did->micro_batch],
                                     .left = held->micro_batch_left[did->micro_batch]};
    }
    return is_slot_free;
}

/* Waking a thread costs more than most of what an instruction does besides its work, so the compute
 * thread wakes the other one only for what it waits for. */
void interpreter_done(ty_interpreter *in, uint32_t instruction, uint32_t step, double start_s,
                      double end_s)
{
    const ty_instruction *did = &in->program->instructions[instruction];
    bool is_computed = did->stream == TY_STREAM_COMPUTE || did->stream == TY_STREAM_INPUT;
    bool must_wake = !is_computed || in->is_awaited[instruction];
    uint32_t first = in->options.first_recorded;

    in->done[instruction]++;
    if (step >= first && step - first < in->options.recorded_steps) {
        in->events[in->event_count++] = (ty_event){.rank = in->rank,
                                                   .step = step - first,
                                                   .instruction = instruction,
                                                   .start_s = start_s,
                                                   .end_s = end_s};
    }
    if (did->micro_batch != TY_NO_MICRO_BATCH && did->bucket == TY_NO_BUCKET &&
        micro_batch_done(in, did, step))
        must_wake = must_wake || in->streams[TY_STREAM_RECEIVE].count > 0;
    if (in->options.plan->zero == 3 && did->stream == TY_STREAM_COMPUTE &&
        did->micro_batch != TY_NO_MICRO_BATCH) {
        interpreter_pass_over(in, did);
        must_wake = true;
    }
    if (--in->left_in_step[step % in->window] == 0) {
        in->left_in_step[step % in->window] = in->program->instruction_count;
        in->steps_done++;
        must_wake = true;
    }
    if (must_wake)
        interpreter_wake(in);
}

/* ---- Opening ----------------------------------------------------------------------------- */

/* 2^16, as in torch.amp.GradScaler; only fp16 asks for it. */
static const double initial_loss_scale = 65536;

static ty_status no_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for the interpreter");
}

uint64_t ty_labels_per_sample(const ty_workload *workload)
{
    const ty_shape *scores = ty_layer_input_shape(workload, workload->layer_count - 1, 0);
    uint64_t classes = scores->dimensions[scores->dimension_count - 1];

    return ty_shape_elements(scores) / classes;
}

static ty_status streams_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, k, count = in->program->instruction_count;
    ty_stream s;

    for (s = 0; s < TY_STREAM_COUNT; s++) {
        in->streams[s].instructions = ty_alloc(count, sizeof(uint32_t));
        if (in->streams[s].instructions == NULL)
            return no_memory(error);
    }
    in->is_awaited = ty_alloc(count, sizeof *in->is_awaited);
    if (in->is_awaited == NULL)
        return no_memory(error);
    for (i = 0; i < count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];
        stream_order *order = &in->streams[instruction->stream];

        order->instructions[order->count++] = i;
        if (instruction->stream == TY_STREAM_COMPUTE || instruction->stream == TY_STREAM_INPUT)
            continue;
        for (k = 0; k < instruction->wait_count; k++)
            in->is_awaited[instruction->waits[k]] = true;
    }
    return TY_OK;
}

static bool is_of(const held_stage *held, const ty_instruction *instruction)
{
    return instruction->stage == held->stage && instruction->micro_batch != TY_NO_MICRO_BATCH &&
           instruction->bucket == TY_NO_BUCKET;
}

/* In which order compute meets a stage's micro-batches of one step: those furthest ahead first. */
static ty_status forward_order_find(const ty_interpreter *in, held_stage *held, ty_error *error)
{
    uint32_t i, met = 0, ahead;
    bool *is_met = ty_alloc(in->local_micro_batches, sizeof *is_met);

    if (is_met == NULL)
        return no_memory(error);
    for (ahead = in->lead + 1; ahead-- > 0;) {
        for (i = 0; i < in->program->instruction_count; i++) {
            const ty_instruction *forward = &in->program->instructions[i];

            if (forward->op != TY_OP_FORWARD || forward->lead != ahead || !is_of(held, forward) ||
                is_met[forward->micro_batch])
                continue;
            is_met[forward->micro_batch] = true;
            held->forward_order[met++] = forward->micro_batch;
        }
    }
    ty_free(is_met);
    return TY_OK;
}

static void instructions_count(const ty_interpreter *in, held_stage *held)
{
    uint32_t i;

    held->first_backward = NO_INDEX;
    for (i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];

        if (!is_of(held, instruction))
            continue;
        held->micro_batch_left[instruction->micro_batch]++;
        held->micro_batch_held[instruction->micro_batch] += instruction->op != TY_OP_SEND;
        if ((instruction->op == TY_OP_BACKWARD || instruction->op == TY_OP_BACKWARD_WEIGHT) &&
            held->first_backward == NO_INDEX)
            held->first_backward = instruction->micro_batch;
    }
}

/* Which micro-batches a stage has, in which order compute meets them, and how many instructions
 * each has. */
static ty_status micro_batches_make(ty_interpreter *in, held_stage *held, ty_error *error)
{
    uint32_t i, count = in->local_micro_batches;
    ty_status status;

    held->forward_order = ty_alloc(count, sizeof *held->forward_order);
    held->micro_batch_left = ty_alloc(count, sizeof *held->micro_batch_left);
    held->micro_batch_held = ty_alloc(count, sizeof *held->micro_batch_held);
    held->micro_batches = ty_alloc(count, in->window * sizeof *held->micro_batches);
    if (held->forward_order == NULL || held->micro_batch_left == NULL ||
        held->micro_batch_held == NULL || held->micro_batches == NULL)
        return no_memory(error);
    status = forward_order_find(in, held, error);
    instructions_count(in, held);
    for (i = 0; i < in->window * count; i++) {
        held->micro_batches[i] = (micro_batch_state){.slot = NO_INDEX,
                                                     .held = held->micro_batch_held[i % count],
                                                     .left = held->micro_batch_left[i % count]};
    }
    return status;
}

static ty_status slots_make(held_stage *held, ty_error *error)
{
    uint32_t i;

    held->slots = ty_alloc(held->slot_count, sizeof *held->slots);
    held->free_slots = ty_alloc(held->slot_count, sizeof *held->free_slots);
    if (held->slots == NULL || held->free_slots == NULL)
        return no_memory(error);
    for (i = 0; i < held->slot_count; i++)
        held->free_slots[held->free_count++] = held->slot_count - 1 - i;
    return TY_OK;
}

static ty_status state_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, count = in->program->instruction_count;

    in->done = ty_alloc(count, sizeof *in->done);
    in->arrivals = ty_alloc(count, in->window * sizeof *in->arrivals);
    in->departure_capacity = in->window * in->streams[TY_STREAM_SEND].count;
    in->departures = ty_alloc(in->departure_capacity, sizeof *in->departures);
    in->events = ty_alloc((size_t)in->options.recorded_steps * count, sizeof *in->events);
    in->losses = ty_alloc(in->options.steps, sizeof *in->losses);
    in->left_in_step = ty_alloc(in->window, sizeof *in->left_in_step);
    in->sums = ty_alloc(in->window, sizeof *in->sums);
    in->loss_scales = ty_alloc(in->window, sizeof *in->loss_scales);
    if (in->done == NULL || in->arrivals == NULL || in->departures == NULL || in->events == NULL ||
        in->losses == NULL || in->left_in_step == NULL || in->sums == NULL ||
        in->loss_scales == NULL)
        return no_memory(error);
    for (i = 0; i < in->window; i++) {
        in->left_in_step[i] = count;
        in->loss_scales[i] = initial_loss_scale;
    }
    return TY_OK;
}

static uint32_t tied_layer(const ty_plan *plan, uint32_t stage)
{
    const ty_plan_stage *own = &plan->stages[stage];
    uint32_t i, layer;

    for (i = 0; i < plan->bucket_count; i++) {
        const ty_bucket *bucket = &plan->buckets[i];

        if (bucket->tied_stage == TY_NO_STAGE)
            continue;
        if (bucket->stage == stage)
            return bucket->first_layer;
        if (bucket->tied_stage != stage)
            continue;
        for (layer = own->first_layer; layer < own->first_layer + own->layer_count; layer++) {
            if (plan->workload->layers[layer].tied_to == bucket->first_layer)
                return layer;
        }
    }
    return TY_NO_LAYER;
}

/* Sets of weights: PipeDream's micro-batches are up to `lead` updates behind the newest; in 2BW a
 * step uses the one before the newest. */
static uint32_t version_count(const ty_interpreter *in)
{
    if (interpreter_is_timed(in))
        return 1;
    if (in->options.plan->schedule == TY_PIPEDREAM_2BW)
        return 2;
    return in->options.plan->schedule == TY_PIPEDREAM ? in->lead + 1 : 1;
}

/* A replica that steps alone means its own part of the batch. */
static double local_share(const ty_plan *plan)
{
    return plan->workload->local_steps > 1 ? plan->stages[0].replicas : 1;
}

static ty_status device_open(ty_interpreter *in, held_stage *held, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_plan_stage *stage = &plan->stages[held->stage];
    const ty_device_backend *backend = in->options.backend;
    ty_stage_options options = {.workload = plan->workload,
                                .first_layer = stage->first_layer,
                                .layer_count = stage->layer_count,
                                .micro_batch_size = plan->micro_batch_size,
                                .slots = held->slot_count,
                                .recompute = stage->recompute,
                                .loss_scale = local_share(plan) / ((double)plan->global_batch *
                                                                   (double)in->labels_per_sample),
                                .seed = plan->seed,
                                .tied_layer = tied_layer(plan, held->stage),
                                .precision = in->options.precision,
                                .local_rank = in->options.transport->local_rank,
                                .splits_backward = plan->schedule == TY_ZERO_BUBBLE,
                                .versions = held->version_count,
                                .gradient_sets = in->gradient_sets,
                                .lanes = interpreter_lane_group(in)};
    ty_status status;

    TY_CHECK(backend->supports(plan->workload, stage->first_layer, stage->layer_count, error),
             status, done);
    TY_CHECK(backend->open(&options, &held->device, error), status, done);
    if (in->memory != NULL)
        return TY_OK; /* the backend keeps it */
    held->optimizer_state =
        ty_alloc(backend->parameter_count(held->device), in->state_count * sizeof(float));
    if (held->optimizer_state == NULL)
        status = no_memory(error);
done:
    return status;
}

static ty_status held_open(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t positions = ty_plan_position_count(plan);
    uint32_t h;
    ty_status status = TY_OK;

    in->held = ty_alloc(ty_plan_interleave(plan), sizeof *in->held);
    if (in->held == NULL)
        return no_memory(error);
    in->held_count = ty_plan_interleave(plan);
    for (h = 0; h < in->held_count; h++) {
        held_stage *held = &in->held[h];

        held->stage = in->position + h * positions;
        held->version_count = version_count(in);
        held->sends_gradient =
            plan->stages[held->stage].first_layer > ty_workload_first_backward(plan->workload);
        held->slot_count = ty_program_peak_in_flight(in->options.program, held->stage);
        TY_CHECK(micro_batches_make(in, held, error), status, done);
        TY_CHECK(slots_make(held, error), status, done);
        TY_CHECK(device_open(in, held, error), status, done);
    }
done:
    return status;
}

static bool is_exchanged(const ty_interpreter *in, uint32_t bucket)
{
    const stream_order *order = &in->streams[TY_STREAM_COLLECTIVE];
    uint32_t i;

    for (i = 0; i < order->count; i++) {
        if (in->program->instructions[order->instructions[i]].bucket == bucket)
            return true;
    }
    return false;
}

/* Random numbers that members share follow from the plan's seed and the bucket. */
static ty_status codec_open(ty_interpreter *in, uint32_t index, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *bucket = &plan->buckets[index];
    bucket_state *state = &in->buckets[index];
    uint32_t count = ty_bucket_matrices(plan, bucket, NULL);
    ty_bucket_matrix *matrices = ty_alloc(count, sizeof *matrices);
    ty_codec_options options = {
        .compression = bucket->compression,
        .count = state->count,
        .member_count = state->member_count,
        .position = state->position,
        .seed = plan->seed ^ (uint64_t)(index + 1) << 32,
        .matrices = matrices,
        .matrix_count = count,
        .row_room = ty_bucket_extent(plan, bucket).row_room,
        .momentum = plan->optimizer.kind == TY_OPTIMIZER_SGD ? plan->optimizer.momentum : 0};
    ty_status status = TY_OK;

    if (matrices == NULL)
        return no_memory(error);
    ty_bucket_matrices(plan, bucket, matrices);
    if (in->memory == NULL)
        status = ty_codec_open(&options, &state->codec, error);
    if (in->memory == NULL && status == TY_OK)
        status = interpreter_distortion_open(in, &options, state, error);
    if (in->memory != NULL)
        status = in->memory->codec_open(state->held->device, &options, &state->device_codec, error);
    ty_free(matrices);
    return status;
}

/* Where its members are, for those that exchange by host. */
static ty_status bucket_hosts(const ty_interpreter *in, const ty_bucket *bucket,
                              bucket_state *state, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    uint32_t *hosts;
    ty_status status;

    if (bucket->algorithm != TY_HIERARCHICAL || state->member_count < 2)
        return TY_OK;
    hosts = ty_alloc(ty_plan_process_count(plan), sizeof *hosts);
    state->hosts = ty_alloc(state->member_count, sizeof *state->hosts);
    if (hosts == NULL || state->hosts == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    TY_CHECK(ty_plan_hosts(plan, hosts, error), status, cleanup);
    for (uint32_t i = 0; i < state->member_count; i++)
        state->hosts[i] = hosts[state->members[i]];
cleanup:
    ty_free(hosts);
    return status;
}

/* The stage here that has a bucket's parameters. */
static held_stage *bucket_holder(ty_interpreter *in, const ty_bucket *bucket)
{
    const uint32_t positions = ty_plan_position_count(in->options.plan);
    const uint32_t stage =
        bucket->stage % positions == in->position ? bucket->stage : bucket->tied_stage;

    return &in->held[stage / positions];
}

static ty_status bucket_open(ty_interpreter *in, uint32_t index, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *bucket = &plan->buckets[index];
    bucket_state *state = &in->buckets[index];
    ty_status status = TY_OK;

    TY_CHECK(interpreter_members_find(in, bucket, state, error), status, done);
    if (!state->is_member)
        return TY_OK;
    TY_CHECK(bucket_hosts(in, bucket, state, error), status, done);
    state->held = bucket_holder(in, bucket);
    if (interpreter_is_timed(in)) {
        interpreter_share_find(in, index);
        return TY_OK;
    }
    if (bucket->tied_stage != TY_NO_STAGE)
        in->options.backend->tied_slice(state->held->device, &state->offset, &state->count);
    else
        in->options.backend->slice(state->held->device, bucket->first_layer, bucket->layer_count,
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
    status = codec_open(in, index, error);
done:
    return status;
}

/* Where the device keeps it: for what this rank updates. */
static ty_status states_open(ty_interpreter *in, ty_error *error)
{
    ty_parameter_range *ranges;
    ty_status status = TY_OK;

    if (in->memory == NULL)
        return TY_OK;
    ranges = interpreter_kept_room(in);
    if (ranges == NULL)
        return no_memory(error);
    for (uint32_t h = 0; h < in->held_count && status == TY_OK; h++) {
        const uint32_t count = interpreter_kept_ranges(in, &in->held[h], ranges);

        status = in->memory->state_open(in->held[h].device, in->state_count, ranges, count, error);
    }
    ty_free(ranges);
    return status;
}

static ty_status buckets_open(ty_interpreter *in, ty_error *error)
{
    uint32_t i, count = in->options.plan->bucket_count;
    ty_status status = TY_OK;

    in->buckets = ty_alloc(count, sizeof *in->buckets);
    if (in->buckets == NULL)
        return no_memory(error);
    for (i = 0; i < count && status == TY_OK; i++)
        status = bucket_open(in, i, error);
    return status;
}

/* Every output counts at its first reader behind the cut. */
uint64_t interpreter_cut_bytes(const ty_plan *plan, uint32_t layer, ty_direction direction)
{
    const ty_workload *w = plan->workload;
    const uint32_t first = direction == TY_GRADIENT ? ty_workload_first_backward(w) : 0;
    uint64_t bytes = 0;

    for (uint32_t producer = first; producer < layer; producer++) {
        bool crosses = false;
        for (uint32_t l = layer; l < w->layer_count && !crosses; l++)
            for (uint32_t k = 0; k < w->layers[l].input_count; k++)
                crosses = crosses || w->layers[l].inputs[k] == producer;
        if (crosses)
            bytes += ty_plan_width(plan) > 1
                         ? ty_layer_lane_bytes(plan, producer)
                         : ty_shape_elements(&w->layers[producer].output) * sizeof(float);
    }
    return ty_lane_bytes(plan, bytes);
}

/* Numbers that go into tags. */
static ty_status tags_fit(const ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;

    if ((uint64_t)plan->micro_batches * in->held_count >= TAG_INDEX_LIMIT / in->window ||
        plan->bucket_count >= TAG_INDEX_LIMIT / in->window)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "found %u micro-batches in %u stages a position and %u buckets, expected "
                       "fewer than %u",
                       plan->micro_batches, in->held_count, plan->bucket_count,
                       TAG_INDEX_LIMIT / in->window);
    return TY_OK;
}

/* Of a transfer: devices that compute do so in fp32, others have what the plan says. */
static uint64_t transfer_bytes(const ty_interpreter *in, const ty_instruction *transfer)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t behind_cut =
        transfer->peer_stage > transfer->stage ? transfer->peer_stage : transfer->stage;

    return interpreter_is_timed(in)
               ? ty_plan_transfer_bytes(plan, behind_cut, transfer->direction)
               : interpreter_cut_bytes(plan, plan->stages[behind_cut].first_layer,
                                       transfer->direction);
}

/* What a wrong program could make this rank write outside its buffers. */
static ty_status program_fits(ty_interpreter *in, ty_error *error)
{
    uint32_t i;

    for (i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];
        bool is_transfer = instruction->op == TY_OP_SEND || instruction->op == TY_OP_RECEIVE;

        if (!is_transfer)
            continue;
        if (instruction->bytes != transfer_bytes(in, instruction))
            return ty_fail(error, TY_EPARSE,
                           "program: /stages/%u/instructions/%u/bytes: found %llu, expected %llu",
                           in->position, i, (unsigned long long)instruction->bytes,
                           (unsigned long long)transfer_bytes(in, instruction));
        if (instruction->op == TY_OP_RECEIVE && instruction->direction == TY_ACTIVATION &&
            instruction->bytes > in->staging_bytes)
            in->staging_bytes = instruction->bytes;
    }
    return TY_OK;
}

/* A device has no gradient buffer where nothing behind it is trained. */
static ty_status buffers_there(ty_interpreter *in, ty_error *error)
{
    const ty_device_backend *backend = in->options.backend;
    uint32_t i;

    for (i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];
        bool is_activation = instruction->direction == TY_ACTIVATION;
        ty_stage_device *device;
        const float *buffer;

        if (instruction->op != TY_OP_SEND && instruction->op != TY_OP_RECEIVE)
            continue;
        device = interpreter_held(in, instruction)->device;
        if (instruction->op == TY_OP_SEND)
            buffer =
                is_activation ? backend->output(device, 0) : backend->input_gradient(device, 0);
        else
            buffer =
                is_activation ? backend->input(device, 0) : backend->output_gradient(device, 0);
        if (buffer == NULL)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "program: /stages/%u/instructions/%u: the stage has no %s to %s",
                           in->position, i, is_activation ? "activation" : "gradient",
                           ty_op_name(instruction->op));
    }
    return TY_OK;
}

static ty_status locks_make(ty_interpreter *in, ty_error *error)
{
    pthread_condattr_t monotonic;

    if (pthread_mutex_init(&in->lock, NULL) != 0)
        return no_memory(error);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&in->for_compute, &monotonic);
    pthread_cond_init(&in->for_communication, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return TY_OK;
}

/* Weights are averaged bucket by bucket, among replicas that took equally large steps. */
static ty_status check_local_steps(const ty_plan *plan, ty_error *error)
{
    const char *what = NULL;

    for (uint32_t s = 1; s < plan->stage_count; s++)
        if (plan->stages[s].replicas != plan->stages[0].replicas)
            what = "stages of unequal replicas";
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (plan->buckets[b].tied_stage != TY_NO_STAGE)
            what = "weights tied across stages";
        else if (plan->buckets[b].compression.kind != TY_COMPRESSION_NONE)
            what = "compressed weights";
    if (plan->zero > 0)
        what = "ZeRO";
    if (ty_schedule_is_asynchronous(plan->schedule))
        what = "an asynchronous schedule";
    if (plan->sequence_parallel)
        what = "sequence parallelism";
    if (plan->workload->local_steps <= 1 || what == NULL)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED, "the worker does not take %u local steps with %s",
                   plan->workload->local_steps, what);
}

/* A member's share of the places that random-k draws lies in its share of the bucket only if no
 * stratum crosses the border between two shares. */
static ty_status check_random_share(const ty_plan *plan, uint32_t index, ty_error *error)
{
    const ty_bucket *bucket = &plan->buckets[index];
    const uint32_t members = ty_bucket_device_count(plan, bucket);
    uint64_t kept;

    if (!ty_bucket_is_sharded(plan, bucket) || bucket->compression.kind != TY_COMPRESSION_RANDOM_K)
        return TY_OK;
    kept = ty_compression_kept(&bucket->compression, bucket->gradient_bytes / sizeof(float));
    if (kept % members == 0)
        return TY_OK;
    return ty_fail(
        error, TY_EUNSUPPORTED,
        "plan: /buckets/%u: found random-k of %llu elements shared by %u devices (ZeRO), "
        "expected a multiple of %u",
        index, (unsigned long long)kept, members, members);
}

/* What a plan asks of devices that this backend does not do yet. */
static ty_status check_backend(const ty_device_backend *backend, const ty_plan *plan,
                               ty_precision precision, ty_error *error)
{
    const char *what = NULL;

    if (backend->select == NULL && ty_schedule_is_asynchronous(plan->schedule))
        what = "several sets of weights";
    if (backend->select_gradients == NULL && plan->staleness > 0)
        what = "late gradients (staleness)";
    if (backend->backward_weight == NULL && plan->schedule == TY_ZERO_BUBBLE)
        what = "backward in two parts";
    if (backend->lanes_join == NULL && ty_plan_width(plan) > 1)
        what = "tensor parallelism";
    if (backend->memory != NULL && ty_plan_lanes(plan, TY_CONTEXT_LANES) > 1)
        what = "context parallelism";
    /* Their threads would both ask the lanes about overflows. */
    if (precision == TY_PRECISION_FP16 && plan->workload->local_steps > 1 &&
        ty_plan_width(plan) > 1)
        what = "local steps of lanes in fp16";
    if (what == NULL)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED, "backend \"%s\" cannot run plan \"%s\" yet: found %s",
                   backend->name, plan->strategy, what);
}

/* What a plan may say and this runtime does not do yet. */
static ty_status check_plan(const ty_plan *plan, bool is_timed, ty_error *error)
{
    ty_status status = TY_OK;

    if (!is_timed && ty_plan_lanes(plan, TY_EXPERT_LANES) > 1)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "the worker cannot run plans with %s parallelism yet",
                       ty_lane_kind_name(TY_EXPERT_LANES));
    for (uint32_t b = 0; b < plan->bucket_count && status == TY_OK && !is_timed; b++)
        status = check_random_share(plan, b, error);
    return status == TY_OK && !is_timed ? check_local_steps(plan, error) : status;
}

ty_status ty_interpreter_open(const ty_interpreter_options *options, ty_interpreter **out,
                              ty_error *error)
{
    const ty_plan *plan = options->plan;
    ty_interpreter *in;
    ty_status status = check_plan(plan, options->backend->is_timed, error);

    if (status == TY_OK && !options->backend->is_timed)
        status = check_backend(options->backend, plan, options->precision, error);
    if (status != TY_OK)
        return status;
    in = ty_alloc(1, sizeof *in);
    if (in == NULL)
        return no_memory(error);
    in->options = *options;
    in->memory = options->backend->memory;
    in->rank = options->transport->rank / ty_plan_width(plan);
    in->lane = options->transport->rank % ty_plan_width(plan);
    in->position = ty_plan_stage_of_rank(plan, in->rank);
    in->replica = in->rank - ty_plan_first_rank(plan, in->position);
    in->program = &options->program->stages[in->position];
    in->lead = ty_program_lead(options->program, in->position);
    /* With late gradients a step ends with its update, `staleness` steps behind its passes, and a
     * fast replica's passes are as many steps ahead of a slow one's. */
    in->window = STEPS_AT_ONCE + ty_program_largest_lead(options->program) + plan->staleness;
    in->gradient_sets = options->backend->is_timed ? 1 : plan->staleness + 1;
    in->local_micro_batches = plan->micro_batches / plan->stages[in->position].replicas;
    in->state_count = ty_optimizer_state_count(&plan->optimizer);
    in->labels_per_sample = options->backend->is_timed ? 1 : ty_labels_per_sample(plan->workload);
    in->scanned_generation = UINT64_MAX; /* not looked yet */
    status = locks_make(in, error);
    if (status != TY_OK) {
        ty_free(in);
        return status;
    }
    TY_CHECK(interpreter_lanes_open(in, error), status, cleanup);
    TY_CHECK(program_fits(in, error), status, cleanup);
    TY_CHECK(streams_make(in, error), status, cleanup);
    TY_CHECK(state_make(in, error), status, cleanup);
    TY_CHECK(interpreter_noise_open(in, error), status, cleanup);
    TY_CHECK(held_open(in, error), status, cleanup);
    TY_CHECK(tags_fit(in, error), status, cleanup);
    TY_CHECK(buffers_there(in, error), status, cleanup);
    TY_CHECK(buckets_open(in, error), status, cleanup);
    TY_CHECK(states_open(in, error), status, cleanup);
    if (interpreter_is_timed(in))
        TY_CHECK(interpreter_payload_open(in, error), status, cleanup);
    TY_CHECK(interpreter_pairs_make(in, error), status, cleanup);
    interpreter_shares_only(in);
    *out = in;
    return TY_OK;

cleanup:
    ty_interpreter_close(in);
    return status;
}

ty_status ty_interpreter_connect(ty_interpreter *in, ty_error *error)
{
    ty_link_options options = {.plan = in->options.plan,
                               .program = in->options.program,
                               .backend = in->options.backend,
                               .stage = in->held[0].device,
                               .transport = in->options.transport};
    ty_status status;

    if (in->memory == NULL)
        return TY_OK;
    status = ty_device_link_open(&options, &in->link, error);
    options.is_of_lanes = true;
    if (status == TY_OK && ty_plan_width(in->options.plan) > 1)
        status = ty_device_link_open(&options, &in->lane_link, error);
    return status;
}

static void memory_free(ty_interpreter *in, void *memory)
{
    if (in->memory == NULL)
        ty_free(memory);
    else if (memory != NULL)
        in->memory->release(in->held[0].device, memory);
}

static void buckets_close(ty_interpreter *in)
{
    uint32_t i;

    for (i = 0; in->buckets != NULL && i < in->options.plan->bucket_count; i++) {
        ty_free(in->buckets[i].members);
        ty_free(in->buckets[i].hosts);
        if (in->buckets[i].codec != NULL)
            ty_codec_close(in->buckets[i].codec);
        ty_codec_close(in->buckets[i].probe);
        ty_free(in->buckets[i].probe_sum);
        if (in->buckets[i].device_codec != NULL)
            in->memory->codec_close(in->buckets[i].device_codec);
    }
    ty_free(in->buckets);
}

static void held_close(ty_interpreter *in, held_stage *held)
{
    if (held->device != NULL)
        in->options.backend->close(held->device);
    ty_free(held->optimizer_state);
    ty_free(held->forward_order);
    ty_free(held->micro_batch_left);
    ty_free(held->micro_batch_held);
    ty_free(held->micro_batches);
    ty_free(held->slots);
    ty_free(held->free_slots);
}

void ty_interpreter_close(ty_interpreter *in)
{
    ty_stream s;
    uint32_t i;

    if (in == NULL)
        return;
    interpreter_cancel(in);
    if (in->link != NULL)
        in->link->close(in->link);
    if (in->lane_link != NULL)
        in->lane_link->close(in->lane_link);
    buckets_close(in);
    interpreter_payload_close(in);
    for (i = 0; i < in->staging_free; i++)
        memory_free(in, in->staging[i]);
    for (i = 0; i < in->held_count; i++)
        held_close(in, &in->held[i]);
    ty_free(in->held);
    interpreter_lanes_close(in);
    ty_free(in->pairs);
    ty_free(in->staging);
    for (s = 0; s < TY_STREAM_COUNT; s++)
        ty_free(in->streams[s].instructions);
    ty_free(in->left_in_step);
    ty_free(in->sums);
    ty_free(in->loss_scales);
    ty_free(in->is_awaited);
    ty_free(in->done);
    ty_free(in->arrivals);
    ty_free(in->departures);
    ty_free(in->events);
    ty_free(in->losses);
    ty_free(in->noise_samples);
    pthread_cond_destroy(&in->for_compute);
    pthread_cond_destroy(&in->for_communication);
    pthread_mutex_destroy(&in->lock);
    ty_free(in);
}

/* ---- Device memory ----------------------------------------------------------------------- */

static bool is_same_pair(const ty_interpreter *in, uint32_t a, uint32_t b)
{
    const ty_instruction *x = &in->program->instructions[a], *y = &in->program->instructions[b];
    const ty_plan *plan = in->options.plan;

    return x->op == y->op && x->direction == y->direction &&
           ty_program_peer_rank(plan, in->rank, x) == ty_program_peer_rank(plan, in->rank, y);
}

/* The first instruction of the program that moves messages of the same direction with the same
 * rank. */
ty_status interpreter_pairs_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, k, count = in->program->instruction_count;

    in->pairs = ty_alloc(count, sizeof *in->pairs);
    if (in->pairs == NULL)
        return no_memory(error);
    for (i = 0; i < count; i++) {
        ty_op op = in->program->instructions[i].op;

        in->pairs[i] = NO_INDEX;
        if (op != TY_OP_SEND && op != TY_OP_RECEIVE)
            continue;
        for (k = 0; in->program->instructions[k].op != op || !is_same_pair(in, i, k);)
            k++;
        in->pairs[i] = k;
    }
    return TY_OK;
}

/* How often the k-th instruction comes in this stretch before the i-th does in a round. */
static uint64_t times_before(const ty_interpreter *in, uint32_t k, uint32_t i, int64_t round)
{
    const int64_t first = in->first_step, target = in->target;
    const int64_t end = round + in->program->instructions[k].lead + (k < i);

    return (uint64_t)((end < first ? first : end > target ? target : end) - first);
}

uint64_t interpreter_order(const ty_interpreter *in, uint32_t index, uint32_t step)
{
    const int64_t round = (int64_t)step - in->program->instructions[index].lead;
    uint64_t order = 0;

    for (uint32_t k = 0; k < in->program->instruction_count; k++)
        if (in->pairs[k] == in->pairs[index])
            order += in->first_step - in->origin_step + times_before(in, k, index, round);
    return order;
}

ty_status interpreter_host_floats(ty_interpreter *in, const float *from, uint64_t count,
                                  const float **out, float **owned, ty_error *error)
{
    *out = from;
    if (in->memory == NULL)
        return TY_OK;
    *owned = ty_alloc(count, sizeof **owned);
    if (*owned == NULL)
        return no_memory(error);
    *out = *owned;
    return in->memory->read(in->held[0].device, *owned, from, count * sizeof *from, error);
}

/* ---- Running ----------------------------------------------------------------------------- */

static ty_status outcome(ty_interpreter *in, ty_error *error)
{
    if (in->failure != TY_OK) {
        in->options.transport->is_broken = true;
        return ty_fail(error, in->failure, "rank %u: %s", in->rank, in->error.message);
    }
    if (in->is_diverged)
        return ty_fail(error, TY_EBACKEND,
                       "the loss is no longer a finite number in step %u; a smaller learning rate "
                       "than %g may help",
                       in->controls_done, in->options.plan->optimizer.learning_rate);
    if (in->is_stopped)
        return ty_fail(error, TY_EINTERRUPTED, "stopped after %u of %u steps", in->controls_done,
                       in->options.steps);
    return TY_OK;
}

/* Every stream starts as many rounds before the first step as the position runs ahead. */
static void stretch_start(ty_interpreter *in, uint32_t until)
{
    const stream_cursor start = {.round = (int64_t)in->controls_done - in->lead};

    in->first_step = in->controls_done;
    in->target = until;
    in->compute = in->input = in->send = in->receive = in->collective = start;
    interpreter_bind_slots(in);
}

/* What is asked of the device between runs is asked of the newest weights. */
static void newest_select(ty_interpreter *in)
{
    uint32_t h;

    for (h = 0; h < in->held_count; h++) {
        if (in->held[h].version_count > 1)
            in->options.backend->select(in->held[h].device,
                                        in->controls_done % in->held[h].version_count);
    }
}

ty_status ty_interpreter_run(ty_interpreter *in, uint32_t until, ty_error *error)
{
    pthread_t compute;
    ty_error detail = {0};
    ty_status status;

    stretch_start(in, until);
    if (pthread_create(&compute, NULL, interpreter_compute, in) != 0) {
        in->options.transport->is_broken = true;
        return ty_fail(error, TY_EBACKEND, "rank %u: no thread to compute with", in->rank);
    }
    status = interpreter_communicate(in, &detail);
    if (status != TY_OK)
        interpreter_fail(in, status, &detail);
    pthread_join(compute, NULL);
    newest_select(in);
    return outcome(in, error);
}

uint32_t ty_interpreter_steps(const ty_interpreter *in)
{
    return in->controls_done;
}

const double *ty_interpreter_losses(const ty_interpreter *in)
{
    return in->losses;
}

const ty_event *ty_interpreter_events(const ty_interpreter *in, uint64_t *count)
{
    *count = in->event_count;
    return in->events;
}

ty_status ty_interpreter_describe(const ty_interpreter *in, char **out, ty_error *error)
{
    ty_text text = {0};

    *out = NULL;
    if (in->memory == NULL)
        return TY_OK;
    ty_text_addf(&text, "%s, link %s", in->memory->describe(in->held[0].device),
                 in->link != NULL ? in->link->name : "none");
    return ty_text_take(&text, out, error);
}
