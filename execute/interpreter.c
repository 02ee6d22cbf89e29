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
    return in->target < in->controls_done + PARITIES ? in->target : in->controls_done + PARITIES;
}

micro_batch_state *interpreter_micro_batch(ty_interpreter *in, uint32_t step, uint32_t index)
{
    return &in->micro_batches[(step % PARITIES) * in->local_micro_batches + index];
}

uint32_t interpreter_head(const ty_interpreter *in, ty_stream stream, const stream_cursor *at)
{
    const stream_order *order = &in->streams[stream];

    if (order->count == 0 || at->step >= interpreter_step_limit(in))
        return NO_INDEX;
    return order->instructions[at->position];
}

void interpreter_advance(const ty_interpreter *in, ty_stream stream, stream_cursor *at)
{
    at->is_ready = false;
    if (++at->position == in->streams[stream].count) {
        at->position = 0;
        at->step++;
    }
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

void interpreter_bind_slots(ty_interpreter *in)
{
    uint64_t end = (uint64_t)interpreter_step_limit(in) * in->local_micro_batches;

    while (in->free_count > 0 && in->bound_count < end) {
        uint32_t step = (uint32_t)(in->bound_count / in->local_micro_batches);
        uint32_t index = in->forward_order[in->bound_count % in->local_micro_batches];

        interpreter_micro_batch(in, step, index)->slot = in->free_slots[--in->free_count];
        in->bound_count++;
    }
}

/* A send's buffer is busy from the end of the pass that fills it until the message is away. */
static void mark_sends(ty_interpreter *in, const ty_instruction *did, micro_batch_state *batch)
{
    const ty_plan_stage *stage = &in->options.plan->stages[in->stage];
    slot_state *own = &in->slots[batch->slot];

    if (did->op == TY_OP_FORWARD && in->stage + 1 < in->options.plan->stage_count &&
        did->first_layer + did->layer_count == stage->first_layer + stage->layer_count)
        own->is_output_busy = true;
    if (did->op == TY_OP_BACKWARD && in->sends_gradient && did->first_layer == stage->first_layer)
        own->is_gradient_busy = true;
    if (did->op == TY_OP_SEND && did->direction == TY_ACTIVATION)
        own->is_output_busy = false;
    if (did->op == TY_OP_SEND && did->direction == TY_GRADIENT)
        own->is_gradient_busy = false;
}

/* Whether its slot went to another micro-batch. */
static bool micro_batch_done(ty_interpreter *in, const ty_instruction *did, uint32_t step)
{
    micro_batch_state *batch = interpreter_micro_batch(in, step, did->micro_batch);
    bool is_slot_free = false;

    if (batch->slot != NO_INDEX)
        mark_sends(in, did, batch);
    if (did->op != TY_OP_SEND && --batch->held == 0) {
        in->free_slots[in->free_count++] = batch->slot;
        interpreter_bind_slots(in);
        is_slot_free = true;
    }
    if (--batch->left == 0) {
        *batch = (micro_batch_state){.slot = NO_INDEX,
                                     .held = in->micro_batch_held[did->micro_batch],
                                     .left = in->micro_batch_left[did->micro_batch]};
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
    if (did->micro_batch != TY_NO_MICRO_BATCH && micro_batch_done(in, did, step))
        must_wake = must_wake || in->streams[TY_STREAM_RECEIVE].count > 0;
    if (--in->left_in_step[step % PARITIES] == 0) {
        in->left_in_step[step % PARITIES] = in->program->instruction_count;
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

/* Which micro-batches there are, in which order compute meets them, and how many instructions each
 * has. */
static ty_status micro_batches_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, met = 0, count = in->local_micro_batches;
    ty_status status = TY_OK;
    bool *is_met = ty_alloc(count, sizeof *is_met);

    in->forward_order = ty_alloc(count, sizeof *in->forward_order);
    in->micro_batch_left = ty_alloc(count, sizeof *in->micro_batch_left);
    in->micro_batch_held = ty_alloc(count, sizeof *in->micro_batch_held);
    in->micro_batches = ty_alloc(count, PARITIES * sizeof *in->micro_batches);
    if (is_met == NULL || in->forward_order == NULL || in->micro_batch_left == NULL ||
        in->micro_batch_held == NULL || in->micro_batches == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    in->first_backward = NO_INDEX;
    for (i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];
        uint32_t m = instruction->micro_batch;

        if (m == TY_NO_MICRO_BATCH)
            continue;
        in->micro_batch_left[m]++;
        in->micro_batch_held[m] += instruction->op != TY_OP_SEND;
        if (instruction->op == TY_OP_FORWARD && !is_met[m]) {
            is_met[m] = true;
            in->forward_order[met++] = m;
        }
        if (instruction->op == TY_OP_BACKWARD && in->first_backward == NO_INDEX)
            in->first_backward = m;
    }
    for (i = 0; i < PARITIES * count; i++) {
        in->micro_batches[i] = (micro_batch_state){.slot = NO_INDEX,
                                                   .held = in->micro_batch_held[i % count],
                                                   .left = in->micro_batch_left[i % count]};
    }
cleanup:
    ty_free(is_met);
    return status;
}

static ty_status state_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, count = in->program->instruction_count;

    in->done = ty_alloc(count, sizeof *in->done);
    in->arrivals = ty_alloc(count, PARITIES * sizeof *in->arrivals);
    in->departure_capacity = PARITIES * in->streams[TY_STREAM_SEND].count;
    in->departures = ty_alloc(in->departure_capacity, sizeof *in->departures);
    in->events = ty_alloc((size_t)in->options.recorded_steps * count, sizeof *in->events);
    in->losses = ty_alloc(in->options.steps, sizeof *in->losses);
    in->slots = ty_alloc(in->slot_count, sizeof *in->slots);
    in->free_slots = ty_alloc(in->slot_count, sizeof *in->free_slots);
    if (in->done == NULL || in->arrivals == NULL || in->departures == NULL || in->events == NULL ||
        in->losses == NULL || in->slots == NULL || in->free_slots == NULL)
        return no_memory(error);
    for (i = 0; i < in->slot_count; i++)
        in->free_slots[in->free_count++] = in->slot_count - 1 - i;
    for (i = 0; i < PARITIES; i++)
        in->left_in_step[i] = count;
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

static ty_status device_open(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_plan_stage *stage = &plan->stages[in->stage];
    const ty_device_backend *backend = in->options.backend;
    ty_stage_options options = {
        .workload = plan->workload,
        .first_layer = stage->first_layer,
        .layer_count = stage->layer_count,
        .micro_batch_size = plan->micro_batch_size,
        .slots = in->slot_count,
        .recompute = stage->recompute,
        .loss_scale = 1.0 / ((double)plan->global_batch * (double)in->labels_per_sample),
        .seed = plan->seed,
        .tied_layer = tied_layer(plan, in->stage),
        .precision = in->options.precision,
        .local_rank = in->options.transport->local_rank};
    ty_status status;

    TY_CHECK(backend->supports(plan->workload, stage->first_layer, stage->layer_count, error),
             status, done);
    TY_CHECK(backend->open(&options, &in->device, error), status, done);
    in->memory = backend->memory;
    in->state_count = ty_optimizer_state_count(&plan->optimizer);
    if (in->memory != NULL)
        return TY_OK; /* the backend keeps it */
    in->optimizer_state =
        ty_alloc(backend->parameter_count(in->device), in->state_count * sizeof(float));
    if (in->optimizer_state == NULL)
        status = no_memory(error);
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
        .momentum = plan->optimizer.kind == TY_OPTIMIZER_SGD ? plan->optimizer.momentum : 0};
    ty_status status;

    if (matrices == NULL)
        return no_memory(error);
    ty_bucket_matrices(plan, bucket, matrices);
    if (in->memory == NULL)
        status = ty_codec_open(&options, &state->codec, error);
    else
        status = in->memory->codec_open(in->device, &options, &state->device_codec, error);
    ty_free(matrices);
    return status;
}

static ty_status bucket_open(ty_interpreter *in, uint32_t index, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_bucket *bucket = &plan->buckets[index];
    bucket_state *state = &in->buckets[index];
    uint32_t i;

    state->members = ty_alloc(ty_plan_rank_count(plan), sizeof *state->members);
    if (state->members == NULL)
        return no_memory(error);
    state->member_count = ty_bucket_members(plan, bucket, state->members);
    for (i = 0; i < state->member_count; i++) {
        if (state->members[i] == in->rank) {
            state->is_member = true;
            state->position = i;
        }
    }
    if (!state->is_member)
        return TY_OK;
    if (bucket->tied_stage != TY_NO_STAGE)
        in->options.backend->tied_slice(in->device, &state->offset, &state->count);
    else
        in->options.backend->slice(in->device, bucket->first_layer, bucket->layer_count,
                                   &state->offset, &state->count);
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

uint64_t interpreter_cut_bytes(const ty_plan *plan, uint32_t layer)
{
    return ty_shape_elements(&plan->workload->layers[layer - 1].output) * sizeof(float) *
           plan->micro_batch_size;
}

/* What a wrong program could make this rank write outside its buffers. */
static ty_status program_fits(ty_interpreter *in, ty_error *error)
{
    const ty_plan *plan = in->options.plan;
    const ty_plan_stage *stage = &plan->stages[in->stage];
    uint32_t i;

    if (plan->micro_batches >= TAG_INDEX_LIMIT || plan->bucket_count >= TAG_INDEX_LIMIT)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "found %u micro-batches and %u buckets, expected fewer than %d",
                       plan->micro_batches, plan->bucket_count, TAG_INDEX_LIMIT);
    for (i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *instruction = &in->program->instructions[i];
        bool is_transfer = instruction->op == TY_OP_SEND || instruction->op == TY_OP_RECEIVE;
        uint32_t cut;

        if (!is_transfer)
            continue;
        cut = instruction->peer_stage > in->stage ? stage->first_layer + stage->layer_count
                                                  : stage->first_layer;
        if (instruction->bytes != interpreter_cut_bytes(plan, cut))
            return ty_fail(error, TY_EPARSE,
                           "program: /stages/%u/instructions/%u/bytes: found %llu, expected %llu",
                           in->stage, i, (unsigned long long)instruction->bytes,
                           (unsigned long long)interpreter_cut_bytes(plan, cut));
        if (instruction->op == TY_OP_RECEIVE && instruction->direction == TY_ACTIVATION)
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
        const float *buffer;

        if (instruction->op == TY_OP_SEND)
            buffer = is_activation ? backend->output(in->device, 0)
                                   : backend->input_gradient(in->device, 0);
        else if (instruction->op == TY_OP_RECEIVE)
            buffer = is_activation ? backend->input(in->device, 0)
                                   : backend->output_gradient(in->device, 0);
        else
            continue;
        if (buffer == NULL)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "program: /stages/%u/instructions/%u: the stage has no %s to %s",
                           in->stage, i, is_activation ? "activation" : "gradient",
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

/* What a plan may say and this runtime does not do yet. */
static ty_status check_plan(const ty_plan *plan, ty_error *error)
{
    const char *what = NULL;

    if (plan->schedule != TY_GPIPE && plan->schedule != TY_ONE_F_ONE_B)
        return ty_fail(error, TY_EUNSUPPORTED, "the worker cannot run schedule \"%s\" yet",
                       ty_schedule_name(plan->schedule));
    if (ty_plan_width(plan) > 1)
        what = "tensor parallelism";
    else if (plan->zero > 0)
        what = "ZeRO";
    for (uint32_t s = 0; s < plan->stage_count; s++)
        if (plan->stages[s].recompute == TY_RECOMPUTE_SELECTIVE)
            what = "selective recomputing";
    if (what != NULL)
        return ty_fail(error, TY_EUNSUPPORTED, "the worker cannot run plans with %s yet", what);
    return TY_OK;
}

ty_status ty_interpreter_open(const ty_interpreter_options *options, ty_interpreter **out,
                              ty_error *error)
{
    const ty_plan *plan = options->plan;
    ty_interpreter *in;
    ty_status status = check_plan(plan, error);

    if (status != TY_OK)
        return status;
    in = ty_alloc(1, sizeof *in);
    if (in == NULL)
        return no_memory(error);
    in->options = *options;
    in->rank = options->transport->rank;
    in->stage = ty_plan_stage_of_rank(plan, in->rank);
    in->replica = in->rank - ty_plan_first_rank(plan, in->stage);
    in->program = &options->program->stages[in->stage];
    in->local_micro_batches = plan->micro_batches / plan->stages[in->stage].replicas;
    in->sends_gradient =
        plan->stages[in->stage].first_layer > ty_workload_first_backward(plan->workload);
    in->slot_count = ty_program_peak_in_flight(options->program, in->stage);
    in->labels_per_sample = ty_labels_per_sample(plan->workload);
    in->loss_scales[0] = in->loss_scales[1] = initial_loss_scale;
    in->scanned_generation = UINT64_MAX; /* not looked yet */
    status = locks_make(in, error);
    if (status != TY_OK) {
        ty_free(in);
        return status;
    }
    TY_CHECK(program_fits(in, error), status, cleanup);
    TY_CHECK(streams_make(in, error), status, cleanup);
    TY_CHECK(micro_batches_make(in, error), status, cleanup);
    TY_CHECK(state_make(in, error), status, cleanup);
    TY_CHECK(device_open(in, error), status, cleanup);
    TY_CHECK(buffers_there(in, error), status, cleanup);
    TY_CHECK(buckets_open(in, error), status, cleanup);
    TY_CHECK(interpreter_orders_make(in, error), status, cleanup);
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
                               .stage = in->device,
                               .transport = in->options.transport};

    return in->memory == NULL ? TY_OK : ty_device_link_open(&options, &in->link, error);
}

static void memory_free(ty_interpreter *in, void *memory)
{
    if (in->memory == NULL)
        ty_free(memory);
    else if (memory != NULL)
        in->memory->release(in->device, memory);
}

static void buckets_close(ty_interpreter *in)
{
    uint32_t i;

    for (i = 0; in->buckets != NULL && i < in->options.plan->bucket_count; i++) {
        ty_free(in->buckets[i].members);
        if (in->buckets[i].codec != NULL)
            ty_codec_close(in->buckets[i].codec);
        if (in->buckets[i].device_codec != NULL)
            in->memory->codec_close(in->buckets[i].device_codec);
    }
    ty_free(in->buckets);
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
    buckets_close(in);
    for (i = 0; i < in->staging_free; i++)
        memory_free(in, in->staging[i]);
    if (in->device != NULL)
        in->options.backend->close(in->device);
    ty_free(in->orders);
    ty_free(in->order_counts);
    ty_free(in->staging);
    for (s = 0; s < TY_STREAM_COUNT; s++)
        ty_free(in->streams[s].instructions);
    ty_free(in->optimizer_state);
    ty_free(in->forward_order);
    ty_free(in->micro_batch_left);
    ty_free(in->micro_batch_held);
    ty_free(in->micro_batches);
    ty_free(in->is_awaited);
    ty_free(in->done);
    ty_free(in->arrivals);
    ty_free(in->departures);
    ty_free(in->events);
    ty_free(in->losses);
    ty_free(in->slots);
    ty_free(in->free_slots);
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

ty_status interpreter_orders_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, k, count = in->program->instruction_count;

    in->orders = ty_alloc(count, sizeof *in->orders);
    in->order_counts = ty_alloc(count, sizeof *in->order_counts);
    if (in->orders == NULL || in->order_counts == NULL)
        return no_memory(error);
    for (i = 0; in->memory != NULL && i < count; i++) {
        ty_op op = in->program->instructions[i].op;

        if (op != TY_OP_SEND && op != TY_OP_RECEIVE)
            continue;
        for (k = 0; k < count; k++) {
            if (in->program->instructions[k].op != op || !is_same_pair(in, i, k))
                continue;
            in->orders[i] += k < i;
            in->order_counts[i]++;
        }
    }
    return TY_OK;
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
    return in->memory->read(in->device, *owned, from, count * sizeof *from, error);
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

ty_status ty_interpreter_run(ty_interpreter *in, uint32_t until, ty_error *error)
{
    pthread_t compute;
    ty_error detail = {0};
    ty_status status;

    in->target = until;
    interpreter_bind_slots(in);
    if (pthread_create(&compute, NULL, interpreter_compute, in) != 0) {
        in->options.transport->is_broken = true;
        return ty_fail(error, TY_EBACKEND, "rank %u: no thread to compute with", in->rank);
    }
    status = interpreter_communicate(in, &detail);
    if (status != TY_OK)
        interpreter_fail(in, status, &detail);
    pthread_join(compute, NULL);
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

ty_stage_device *ty_interpreter_device(const ty_interpreter *in)
{
    return in->device;
}

ty_status ty_interpreter_describe(const ty_interpreter *in, char **out, ty_error *error)
{
    ty_text text = {0};

    *out = NULL;
    if (in->memory == NULL)
        return TY_OK;
    ty_text_addf(&text, "%s, link %s", in->memory->describe(in->device),
                 in->link != NULL ? in->link->name : "none");
    return ty_text_take(&text, out, error);
}
