/* The communication thread: advances sends, receives and collectives together, and after each step
 * exchanges the loss and whether anyone was asked to stop. Sleeps when nothing moves. */
#include "interpreter_state.h"

#include <math.h>
#include <string.h>
#include <time.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

enum {
    /* Between looks while this rank computes: every one interrupts it. */
    BUSY_NS = 10000000,
    BUSY_AWAITED_SHORTEST_NS = 400000,
    BUSY_AWAITED_NS = 2000000,
    ROUNDS_PER_DOUBLING = 4,
    /* What a send leaves at once without being looked after; see transport_mpi.c. */
    LONG_MESSAGE_BYTES = 524288,
    UNTIL_RUNG_NS = 1000000000
};
enum { STAGED_AHEAD = 2 }; /* activations that may land before their slot is free */

/* ---- Messages: the transport's, or the link's between devices --------------------------- */

static uint32_t transfer_tag(const ty_interpreter *in, const ty_instruction *transfer,
                             uint32_t step)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t behind_cut =
        transfer->peer_stage > transfer->stage ? transfer->peer_stage : transfer->stage;
    const uint32_t cut = behind_cut / ty_plan_position_count(plan);
    const uint32_t m =
        ty_program_global_micro_batch(plan, transfer->stage, in->replica, transfer->micro_batch);

    return (uint32_t)TAG_TRANSFER |
           (transfer->direction == TY_GRADIENT ? (uint32_t)TAG_GRADIENT : 0) |
           ((step % in->window * in->held_count + cut) * plan->micro_batches + m);
}

static ty_transfer transfer_of(const ty_interpreter *in, uint32_t index, uint32_t step,
                               void *buffer)
{
    const ty_instruction *transfer = &in->program->instructions[index];

    return (ty_transfer){
        .peer = interpreter_process(in, ty_program_peer_rank(in->options.plan, in->rank, transfer)),
        .tag = transfer_tag(in, transfer, step),
        .direction = transfer->direction,
        .order = in->link != NULL ? interpreter_order(in, index, step) : 0,
        .buffer = buffer,
        .bytes = transfer->bytes};
}

static ty_status message_send(ty_interpreter *in, const ty_transfer *transfer, ty_request **out,
                              ty_error *error)
{
    ty_transport *transport = in->options.transport;

    if (in->link != NULL)
        return in->link->send(in->link, transfer, out, error);
    return transport->send(transport, transfer->peer, transfer->tag, transfer->buffer,
                           transfer->bytes, out, error);
}

static ty_status message_receive(ty_interpreter *in, const ty_transfer *transfer, ty_request **out,
                                 ty_error *error)
{
    ty_transport *transport = in->options.transport;

    if (in->link != NULL)
        return in->link->receive(in->link, transfer, out, error);
    return transport->receive(transport, transfer->peer, transfer->tag, transfer->buffer,
                              transfer->bytes, out, error);
}

static ty_status message_test(ty_interpreter *in, ty_request *request, bool *is_done,
                              ty_error *error)
{
    if (in->link != NULL)
        return in->link->test(in->link, request, is_done, error);
    return in->options.transport->test(in->options.transport, request, is_done, error);
}

static void message_cancel(ty_interpreter *in, ty_request *request)
{
    if (in->link != NULL)
        in->link->cancel(in->link, request);
    else
        in->options.transport->cancel(in->options.transport, request);
}

/* ---- Sends ------------------------------------------------------------------------------- */

/* The next send if what it sends is there; with its slot. */
static uint32_t ready_send(ty_interpreter *in, uint32_t *step, uint32_t *slot)
{
    uint32_t next;

    pthread_mutex_lock(&in->lock);
    next = interpreter_head(in, TY_STREAM_SEND, &in->send, step);
    if (next != NO_INDEX && !interpreter_waits_done(in, next, *step))
        next = NO_INDEX;
    if (next != NO_INDEX)
        *slot = interpreter_micro_batch(in, &in->program->instructions[next], *step)->slot;
    pthread_mutex_unlock(&in->lock);
    return next;
}

static ty_status sends_start(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    uint32_t next, step = 0, slot = NO_INDEX;

    while ((next = ready_send(in, &step, &slot)) != NO_INDEX) {
        const ty_instruction *send = &in->program->instructions[next];
        ty_stage_device *device = interpreter_held(in, send)->device;
        uint32_t end = (in->departure_first + in->departure_count) % in->departure_capacity;
        departure *started = &in->departures[end];
        float *buffer = send->direction == TY_ACTIVATION
                            ? in->options.backend->output(device, slot)
                            : in->options.backend->input_gradient(device, slot);
        ty_transfer transfer = transfer_of(in, next, step, buffer);
        ty_status status;

        *started = (departure){next, step, ty_now_s(), NULL};
        status = message_send(in, &transfer, &started->request, error);
        if (status != TY_OK)
            return status;
        in->departure_count++;
        interpreter_advance(in, TY_STREAM_SEND, &in->send);
        *is_moved = true;
    }
    return TY_OK;
}

/* Several may be under way, but they are done in order, each from when the one before was away. */
static ty_status sends_finish(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    while (in->departure_count > 0) {
        departure *oldest = &in->departures[in->departure_first];
        bool is_done = false;
        double start_s;
        ty_status status = message_test(in, oldest->request, &is_done, error);

        if (status != TY_OK)
            oldest->request = NULL;
        if (status != TY_OK || !is_done)
            return status;
        start_s = fmax(oldest->started_s, in->last_departure_s);
        in->last_departure_s = ty_now_s();
        pthread_mutex_lock(&in->lock);
        interpreter_done(in, oldest->instruction, oldest->step, start_s, in->last_departure_s);
        pthread_mutex_unlock(&in->lock);
        in->departure_first = (in->departure_first + 1) % in->departure_capacity;
        in->departure_count--;
        *is_moved = true;
    }
    return TY_OK;
}

/* ---- Receives ---------------------------------------------------------------------------- */

static arrival *arrival_at(ty_interpreter *in, uint32_t step, uint32_t instruction)
{
    return &in->arrivals[(size_t)(step % in->window) * in->program->instruction_count +
                         instruction];
}

static void *staging_take(ty_interpreter *in)
{
    void **grown;

    if (in->staging_free == 0) {
        /* Room to take every buffer back is made here, so that giving back cannot fail. */
        grown = ty_resize(in->staging, in->staging_capacity + 1, sizeof *grown);
        if (grown == NULL)
            return NULL;
        in->staging = grown;
        in->staging_capacity++;
        in->staging[in->staging_free++] =
            in->memory == NULL ? ty_alloc(1, in->staging_bytes)
                               : in->memory->allocate(in->held[0].device, in->staging_bytes);
    }
    in->staging_used++;
    return in->staging[--in->staging_free];
}

static void staging_give(ty_interpreter *in, void *buffer)
{
    in->staging[in->staging_free++] = buffer;
    in->staging_used--;
}

/* Posts a receive into its slot, or, for an activation whose slot is still taken, into a buffer of
 * its own; leaves it for later when that would be one too many and nobody waits for it yet. */
static ty_status receive_post(ty_interpreter *in, uint32_t index, uint32_t step, uint32_t slot,
                              bool is_head, bool *is_moved, ty_error *error)
{
    const ty_instruction *receive = &in->program->instructions[index];
    arrival *coming = arrival_at(in, step, index);
    ty_stage_device *device = interpreter_held(in, receive)->device;
    ty_transfer transfer;
    void *buffer;
    ty_status status;

    if (slot == NO_INDEX) {
        if (receive->direction == TY_GRADIENT || (in->staging_used >= STAGED_AHEAD && !is_head))
            return TY_OK;
        coming->staging = buffer = staging_take(in);
        if (buffer == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory for %llu bytes of activations",
                           (unsigned long long)in->staging_bytes);
    } else {
        buffer = receive->direction == TY_ACTIVATION
                     ? in->options.backend->input(device, slot)
                     : in->options.backend->output_gradient(device, slot);
    }
    transfer = transfer_of(in, index, step, buffer);
    status = message_receive(in, &transfer, &coming->request, error);
    if (status != TY_OK)
        return status;
    coming->is_posted = true;
    in->receives_under_way++;
    *is_moved = true;
    return TY_OK;
}

static uint32_t slot_of(ty_interpreter *in, const ty_instruction *receive, uint32_t step)
{
    uint32_t slot;

    pthread_mutex_lock(&in->lock);
    slot = interpreter_micro_batch(in, receive, step)->slot;
    pthread_mutex_unlock(&in->lock);
    return slot;
}

/* Moves an activation that landed elsewhere into its slot, once it has one. */
static ty_status receive_place(ty_interpreter *in, uint32_t index, uint32_t step, bool *is_moved,
                               ty_error *error)
{
    const ty_instruction *receive = &in->program->instructions[index];
    arrival *landed = arrival_at(in, step, index);
    ty_stage_device *device = interpreter_held(in, receive)->device;
    uint32_t slot = slot_of(in, receive, step);
    float *input;
    ty_status status = TY_OK;

    if (slot == NO_INDEX)
        return TY_OK;
    input = in->options.backend->input(device, slot);
    if (in->memory == NULL)
        memcpy(input, landed->staging, receive->bytes);
    else
        status = in->memory->copy(device, input, landed->staging, receive->bytes, error);
    if (status != TY_OK)
        return status;
    staging_give(in, landed->staging);
    landed->staging = NULL;
    landed->is_here = landed->is_posted;
    pthread_mutex_lock(&in->lock);
    interpreter_micro_batch(in, receive, step)->is_placed = true;
    interpreter_wake(in);
    pthread_mutex_unlock(&in->lock);
    *is_moved = true;
    return TY_OK;
}

/* Placing comes before posting: it frees buffers. */
static ty_status receives_place(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    const stream_order *order = &in->streams[TY_STREAM_RECEIVE];
    uint32_t step, i;
    ty_status status = TY_OK;

    for (step = 0; in->staging_used > 0 && step < in->window; step++) {
        for (i = 0; i < order->count && status == TY_OK; i++) {
            const arrival *landed = arrival_at(in, step, order->instructions[i]);
            if (landed->staging != NULL && landed->is_here)
                status = receive_place(in, order->instructions[i], step, is_moved, error);
        }
    }
    return status;
}

/* Posts what may be posted of the steps that may start; looks only when something has changed. */
static ty_status receives_start(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    const stream_order *order = &in->streams[TY_STREAM_RECEIVE];
    stream_cursor at = in->receive;
    uint64_t generation;
    uint32_t limit;
    ty_status status = TY_OK;

    pthread_mutex_lock(&in->lock);
    limit = interpreter_step_limit(in);
    generation = in->generation;
    pthread_mutex_unlock(&in->lock);
    if (order->count == 0 || generation == in->scanned_generation)
        return TY_OK;
    in->scanned_generation = generation;
    status = receives_place(in, is_moved, error);
    for (; at.round < (int64_t)limit && status == TY_OK;
         interpreter_advance(in, TY_STREAM_RECEIVE, &at)) {
        uint32_t index = order->instructions[at.position];
        const ty_instruction *receive = &in->program->instructions[index];
        int64_t step = at.round + receive->lead;
        bool is_head = at.round == in->receive.round && at.position == in->receive.position;

        /* Over a link messages come in order, so none is posted before one that must wait. */
        if (in->link != NULL && step >= (int64_t)limit && step < (int64_t)in->target)
            break;
        if (step < (int64_t)in->first_step || step >= (int64_t)limit)
            continue;
        if (!arrival_at(in, (uint32_t)step, index)->is_posted)
            status = receive_post(in, index, (uint32_t)step, slot_of(in, receive, (uint32_t)step),
                                  is_head, is_moved, error);
    }
    return status;
}

/* The next receive, if all it names is done. */
static uint32_t ready_receive(ty_interpreter *in, uint32_t *step)
{
    uint32_t next;

    pthread_mutex_lock(&in->lock);
    next = interpreter_head(in, TY_STREAM_RECEIVE, &in->receive, step);
    if (next != NO_INDEX && !interpreter_waits_done(in, next, *step))
        next = NO_INDEX;
    pthread_mutex_unlock(&in->lock);
    if (next != NO_INDEX && !in->receive.is_ready) {
        in->receive.is_ready = true;
        in->receive.ready_s = ty_now_s();
    }
    return next;
}

static void receive_done(ty_interpreter *in, uint32_t index, uint32_t step, arrival *landed)
{
    const ty_instruction *receive = &in->program->instructions[index];
    bool is_staged = landed->staging != NULL;

    landed->is_posted = false;
    landed->is_here = is_staged;
    pthread_mutex_lock(&in->lock);
    if (!is_staged && receive->direction == TY_ACTIVATION)
        interpreter_micro_batch(in, receive, step)->is_placed = true;
    interpreter_done(in, index, step, in->receive.ready_s, ty_now_s());
    pthread_mutex_unlock(&in->lock);
    interpreter_advance(in, TY_STREAM_RECEIVE, &in->receive);
}

static ty_status receives_finish(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    uint32_t next, step = 0;

    while ((next = ready_receive(in, &step)) != NO_INDEX) {
        arrival *coming = arrival_at(in, step, next);
        ty_status status;

        if (!coming->is_posted)
            break;
        if (!coming->is_here) {
            status = message_test(in, coming->request, &coming->is_here, error);
            if (status != TY_OK || coming->is_here) {
                coming->request = NULL;
                in->receives_under_way--;
            }
            if (status != TY_OK || !coming->is_here)
                return status;
        }
        receive_done(in, next, step, coming);
        *is_moved = true;
    }
    return TY_OK;
}

/* ---- Collectives ------------------------------------------------------------------------- */

static float *gradients_of(const ty_interpreter *in, const bucket_state *bucket, uint32_t step)
{
    return interpreter_gradients(in, bucket->held, step) + bucket->offset;
}

static ty_status run_encode(ty_interpreter *in, const ty_instruction *encode, uint32_t step,
                            ty_error *error)
{
    bucket_state *bucket = &in->buckets[encode->bucket];

    if (in->memory != NULL)
        return in->memory->codec_encode(bucket->device_codec, encode->phase,
                                        gradients_of(in, bucket, step), error);
    ty_codec_encode(bucket->codec, encode->phase, gradients_of(in, bucket, step));
    return TY_OK;
}

static ty_status run_decode(ty_interpreter *in, const ty_instruction *decode, uint32_t step,
                            ty_error *error)
{
    bucket_state *bucket = &in->buckets[decode->bucket];

    if (in->memory != NULL)
        return in->memory->codec_decode(bucket->device_codec, gradients_of(in, bucket, step),
                                        error);
    ty_codec_decode(bucket->codec, gradients_of(in, bucket, step));
    return TY_OK;
}

static ty_status bucket_exchange(ty_interpreter *in, const ty_instruction *exchange, uint32_t step,
                                 ty_error *error)
{
    bucket_state *bucket = &in->buckets[exchange->bucket];
    const exchange_kind kind = interpreter_exchange_kind(in, exchange->bucket, step);
    const uint32_t place = step % in->window * in->options.plan->bucket_count;
    ty_collective_options options = {.kind = TY_ALL_REDUCE,
                                     .data = gradients_of(in, bucket, step),
                                     .count = bucket->count,
                                     .element = TY_ELEMENT_FLOAT};
    ty_status status;

    if (kind == EXCHANGE_NOTHING)
        return TY_OK;
    if (interpreter_is_timed(in))
        return interpreter_replay_exchange(
            in, exchange, (uint32_t)TAG_BUCKET | (place + exchange->bucket), error);
    if (kind == EXCHANGE_WEIGHTS) { /* FedAvg: McMahan et al., 2017, algorithm 1 */
        status = interpreter_update(in, exchange->bucket, step, error);
        if (status != TY_OK)
            return status;
        options.data = in->options.backend->parameters(bucket->held->device) + bucket->offset;
    } else if (bucket->codec != NULL) {
        options = ty_codec_exchange(bucket->codec, exchange->phase);
    } else if (bucket->device_codec != NULL) {
        options = in->memory->codec_exchange(bucket->device_codec, exchange->phase);
    }
    options.algorithm = in->options.plan->buckets[exchange->bucket].algorithm;
    options.members = bucket->members;
    options.hosts = bucket->hosts;
    options.member_count = bucket->member_count;
    options.tag = (uint32_t)TAG_BUCKET | (place + exchange->bucket);
    if (bucket->is_sharded)
        options.kind = TY_REDUCE_SCATTER;
    if (in->link != NULL)
        return in->link->exchange(in->link, &options, &in->exchange, error);
    return ty_collective_start(in->options.transport, &options, &in->running, error);
}

/* How far the bucket's exchange is. */
static ty_status exchange_test(ty_interpreter *in, bool *is_done, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;

    if (in->running != NULL) {
        status = ty_collective_test(in->running, is_done, is_moved, error);
        if (status == TY_OK && *is_done)
            in->running = NULL;
    } else if (in->exchange != NULL) {
        status = in->link->test(in->link, in->exchange, is_done, error);
        if (status != TY_OK || *is_done)
            in->exchange = NULL;
    }
    return status;
}

static ty_status bucket_gather(ty_interpreter *in, const ty_instruction *gather, uint32_t step,
                               ty_error *error)
{
    bucket_state *bucket = &in->buckets[gather->bucket];
    uint32_t place = step % in->window * in->options.plan->bucket_count;
    float *weights = in->options.backend->parameters(bucket->held->device);
    const ty_collective_options options = {.kind = TY_ALL_GATHER,
                                           .members = bucket->members,
                                           .member_count = bucket->member_count,
                                           .data = weights + bucket->offset,
                                           .count = bucket->count,
                                           .is_of_shares = true,
                                           .element = TY_ELEMENT_FLOAT,
                                           .tag = (uint32_t)TAG_BUCKET | (uint32_t)TAG_GATHER |
                                                  (place + gather->bucket)};

    if (interpreter_gather_is_done(in, gather, step))
        return TY_OK;
    if (interpreter_is_timed(in))
        return interpreter_replay_exchange(
            in, gather, (uint32_t)TAG_BUCKET | (uint32_t)TAG_GATHER | (place + gather->bucket),
            error);
    if (in->link != NULL)
        return in->link->exchange(in->link, &options, &in->exchange, error);
    return ty_collective_start(in->options.transport, &options, &in->running, error);
}

static uint32_t ready_collective(ty_interpreter *in, uint32_t *step)
{
    uint32_t next;

    pthread_mutex_lock(&in->lock);
    next = interpreter_head(in, TY_STREAM_COLLECTIVE, &in->collective, step);
    if (next != NO_INDEX && !interpreter_waits_done(in, next, *step))
        next = NO_INDEX;
    if (next != NO_INDEX && in->running == NULL && in->exchange == NULL &&
        in->program->instructions[next].op == TY_OP_GATHER &&
        !interpreter_gather_may_start(in, &in->program->instructions[next]))
        next = NO_INDEX;
    pthread_mutex_unlock(&in->lock);
    return next;
}

/* What an exchange made of weights: their sum over `divisor` members. */
static ty_status weights_take(const ty_interpreter *in, const bucket_state *bucket,
                              uint32_t divisor, ty_error *error)
{
    ty_stage_device *device = bucket->held->device;
    float *weights = in->options.backend->parameters(device) + bucket->offset;
    uint64_t i;

    if (in->memory != NULL)
        return in->memory->weights_take(device, weights, bucket->count, divisor, error);
    for (i = 0; i < bucket->count && divisor > 1; i++)
        weights[i] /= (float)divisor;
    return TY_OK;
}

static bool is_compressed(const bucket_state *bucket)
{
    return bucket->codec != NULL || bucket->device_codec != NULL;
}

static ty_status collective_done(ty_interpreter *in, uint32_t index, uint32_t step, ty_error *error)
{
    const ty_instruction *did = &in->program->instructions[index];
    const bucket_state *bucket = &in->buckets[did->bucket];
    ty_status status = TY_OK;

    if (did->op == (is_compressed(bucket) ? TY_OP_DECODE : TY_OP_COLLECTIVE)) {
        interpreter_noise_after(in, did->bucket, step);
        if (interpreter_exchange_kind(in, did->bucket, step) == EXCHANGE_WEIGHTS &&
            !interpreter_is_timed(in))
            TY_CHECK(weights_take(in, bucket, bucket->member_count, error), status, done);
        interpreter_exchange_over(in, bucket);
    }
    pthread_mutex_lock(&in->lock);
    interpreter_done(in, index, step, in->running_since_s, ty_now_s());
    pthread_mutex_unlock(&in->lock);
    interpreter_advance(in, TY_STREAM_COLLECTIVE, &in->collective);
done:
    return status;
}

static bool is_first_of_exchange(const ty_interpreter *in, const ty_instruction *instruction)
{
    const bucket_state *bucket = &in->buckets[instruction->bucket];

    return instruction->phase == 0 &&
           instruction->op == (is_compressed(bucket) ? TY_OP_ENCODE : TY_OP_COLLECTIVE);
}

static bool is_codec(const ty_instruction *instruction)
{
    return instruction->op == TY_OP_ENCODE || instruction->op == TY_OP_DECODE;
}

/* One instruction at most, so that transfers do not wait for a queue of compressions. */
static ty_status collective_advance(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    uint32_t step = 0, next = ready_collective(in, &step);
    const ty_instruction *instruction;
    bool is_done = true, is_linked;
    ty_status status = TY_OK;

    if (next == NO_INDEX)
        return TY_OK;
    instruction = &in->program->instructions[next];
    if (in->running == NULL && in->exchange == NULL && !in->is_passing) {
        in->running_since_s = ty_now_s();
        if (is_first_of_exchange(in, instruction)) {
            interpreter_noise_before(in, instruction->bucket, step);
            interpreter_distortion_measure(in, instruction->bucket, step);
        }
        *is_moved = true;
        if (interpreter_is_timed(in) && is_codec(instruction))
            in->is_passing = true;
        else if (instruction->op == TY_OP_ENCODE)
            status = run_encode(in, instruction, step, error);
        else if (instruction->op == TY_OP_DECODE)
            status = run_decode(in, instruction, step, error);
        else if (instruction->op == TY_OP_GATHER)
            status = bucket_gather(in, instruction, step, error);
        else
            status = bucket_exchange(in, instruction, step, error);
    }
    is_linked = in->exchange != NULL;
    if (status == TY_OK)
        status = exchange_test(in, &is_done, is_moved, error);
    if (status == TY_OK && is_done && is_linked && instruction->op == TY_OP_GATHER)
        status = weights_take(in, &in->buckets[instruction->bucket], 1, error);
    if (in->is_passing) {
        is_done = interpreter_is_over(in, next);
        in->is_passing = !is_done;
        *is_moved = *is_moved || is_done;
    }
    if (status == TY_OK && is_done)
        status = collective_done(in, next, step, error);
    return status;
}

/* ---- After each step --------------------------------------------------------------------- */

static ty_status control_start(ty_interpreter *in, ty_error *error)
{
    const volatile sig_atomic_t *stop = in->options.stop;
    step_control *sums;
    uint32_t place;
    bool is_due;

    pthread_mutex_lock(&in->lock);
    is_due = in->steps_done > in->controls_done;
    place = in->controls_done % in->window;
    sums = &in->sums[place];
    if (is_due) {
        in->control = *sums;
        *sums = (step_control){0};
    }
    pthread_mutex_unlock(&in->lock);
    if (!is_due)
        return TY_OK;
    in->control.stop_count = stop != NULL && *stop != 0;
    return ty_collective_start(in->options.transport,
                               &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                        .algorithm = TY_TREE,
                                                        .member_count = in->options.transport->size,
                                                        .data = &in->control,
                                                        .count = CONTROL_COUNT,
                                                        .element = TY_ELEMENT_DOUBLE,
                                                        .tag = (uint32_t)TAG_CONTROL | place},
                               &in->control_running, error);
}

/* Dynamic loss scaling (Micikevicius et al., "Mixed precision training", ICLR 2018), with the
 * constants of torch.amp.GradScaler. A rank may be a window ahead of the step whose verdict is in,
 * so the new factor is that of the first step behind the window, on all ranks. Needs the lock. */
static void loss_scale_adapt(ty_interpreter *in)
{
    enum { GROWTH_STEPS = 2000 };
    const double largest = 16777216, smallest = 1;
    double *own = &in->loss_scales[in->controls_done % in->window];
    double next = in->loss_scales[(in->controls_done + in->window - 1) % in->window];

    if (in->control.overflow_count > 0) {
        in->clean_steps = 0;
        *own = fmax(*own / 2, smallest);
    } else if (++in->clean_steps == GROWTH_STEPS) {
        in->clean_steps = 0;
        *own = fmin(next * 2, largest);
    } else {
        *own = next;
    }
}

/* A rank may be a window ahead of the step whose verdict is in; stopping takes effect after that.
 */
static void control_done(ty_interpreter *in)
{
    double loss = interpreter_is_timed(in) ? 0 : in->control.loss_sum / in->control.label_count;
    uint32_t last;

    interpreter_noise_add(in, &in->control);
    interpreter_distortion_add(in, &in->control);
    in->is_diverged = in->is_diverged || !isfinite(loss);
    in->is_stopped = in->is_stopped || in->control.stop_count > 0;
    pthread_mutex_lock(&in->lock);
    in->losses[in->controls_done] = loss;
    loss_scale_adapt(in);
    last = in->controls_done + in->window;
    if ((in->is_diverged || in->is_stopped) && in->target > last)
        in->target = last;
    in->controls_done++;
    interpreter_bind_slots(in);
    interpreter_wake(in);
    pthread_mutex_unlock(&in->lock);
    if (in->options.on_step != NULL)
        in->options.on_step(in->options.context, in->controls_done, loss);
}

static ty_status control_advance(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    bool is_done = false;
    ty_status status = TY_OK;

    if (in->control_running == NULL)
        status = control_start(in, error);
    if (status != TY_OK || in->control_running == NULL)
        return status;
    status = ty_collective_test(in->control_running, &is_done, is_moved, error);
    if (status == TY_OK && is_done) {
        in->control_running = NULL;
        control_done(in);
        *is_moved = true;
    }
    return status;
}

/* ---- The loop ---------------------------------------------------------------------------- */

static struct timespec later(long nanoseconds)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    at.tv_nsec += nanoseconds;
    if (at.tv_nsec >= 1000000000) {
        at.tv_nsec -= 1000000000;
        at.tv_sec++;
    }
    return at;
}

/* Whether what partners wait for goes on only when this rank looks: rounds of an exchange, and
 * messages that ask before they go. */
static bool is_awaited(const ty_interpreter *in)
{
    bool is_any = in->running != NULL || in->exchange != NULL || in->is_passing;

    for (uint32_t i = 0; i < in->departure_count && !is_any; i++) {
        const departure *left = &in->departures[(in->departure_first + i) % in->departure_capacity];
        is_any = in->program->instructions[left->instruction].bytes > LONG_MESSAGE_BYTES;
    }
    return is_any;
}

/* While the compute thread works, nobody on this rank waits for what is under way, and every look
 * takes the core from it. */
static long busy_delay(const ty_interpreter *in, const ty_backoff *backoff)
{
    uint32_t doublings = backoff->rounds / ROUNDS_PER_DOUBLING;

    if (!is_awaited(in))
        return BUSY_NS;
    return doublings < 3 ? BUSY_AWAITED_SHORTEST_NS << doublings : BUSY_AWAITED_NS;
}

/* Whether all that is under way rings: nothing need be looked for in between. */
static bool is_told(const ty_interpreter *in)
{
    return in->options.transport->rings_always && in->exchange == NULL && in->link == NULL &&
           !in->is_passing;
}

/* At the transport's bell, which messages and the compute thread ring. */
static void rest_at_bell(ty_interpreter *in, uint32_t seen, long delay)
{
    ty_transport *transport = in->options.transport;

    transport->sleep(transport, 0, seen, is_told(in) ? UNTIL_RUNG_NS : delay);
}

typedef struct glance { /* what there was before a look */
    uint64_t generation;
    uint32_t bell;
} glance;

/* Sleeps until the compute thread did something or has nothing to do, or a message rings, or a
 * little while messages are under way that do not. */
static void rest(ty_interpreter *in, const glance *seen, ty_backoff *backoff)
{
    bool is_under_way = in->receives_under_way > 0 || in->departure_count > 0 ||
                        in->running != NULL || in->exchange != NULL || in->is_passing ||
                        in->control_running != NULL;
    const bool has_bell = in->options.transport->sleep != NULL;
    long delay = is_under_way ? ty_backoff_next(backoff) : 0;
    bool looks_again;
    struct timespec at;

    pthread_mutex_lock(&in->lock);
    looks_again = is_under_way && delay == 0 && in->is_compute_waiting;
    if (!is_under_way)
        delay = UNTIL_RUNG_NS;
    else if (!in->is_compute_waiting)
        delay = busy_delay(in, backoff);
    if (!looks_again && !has_bell && in->generation == seen->generation) {
        at = later(delay);
        if (is_under_way)
            pthread_cond_timedwait(&in->for_communication, &in->lock, &at);
        else
            pthread_cond_wait(&in->for_communication, &in->lock);
    }
    pthread_mutex_unlock(&in->lock);
    if (!looks_again && has_bell)
        rest_at_bell(in, seen->bell, delay);
}

static bool look(ty_interpreter *in, glance *seen)
{
    bool must_go_on;

    seen->bell = ty_transport_bell(in->options.transport, 0);
    pthread_mutex_lock(&in->lock);
    seen->generation = in->generation;
    must_go_on = in->failure == TY_OK && in->controls_done < in->target;
    pthread_mutex_unlock(&in->lock);
    return must_go_on;
}

#ifdef __linux__
typedef struct scheduling { /* of sched_setattr(2), which libc has no name for here */
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t slice_ns, deadline_ns, period_ns;
} scheduling;
#endif

/* The system's scheduler (EEVDF; Linux 6.12 and later) lets a thread that asks for short slices run
 * before one in the middle of a long slice. So this one, where it is woken only when there is
 * something to do, does it at once: otherwise the compute thread on the same core goes first, for
 * up to 3 ms. 0: the usual slice. Systems that do not know of this refuse or ignore it. */
static void slices_ask(const ty_interpreter *in, uint64_t slice_ns)
{
#ifdef __linux__
    scheduling own = {.size = sizeof own};

    if (in->options.transport->sleep == NULL ||
        syscall(SYS_sched_getattr, 0, &own, sizeof own, 0) != 0 || own.policy != 0)
        return;
    own.slice_ns = slice_ns;
    (void)syscall(SYS_sched_setattr, 0, &own, 0);
#else
    (void)in, (void)slice_ns;
#endif
}

ty_status interpreter_communicate(ty_interpreter *in, ty_error *error)
{
    const uint64_t shortest_ns = 100000; /* that the scheduler grants */
    ty_backoff backoff = {0};
    glance seen = {0};
    ty_status status = TY_OK;

#ifdef __linux__
    prctl(PR_SET_TIMERSLACK, 1000UL); /* short sleeps are else lengthened by 50 microseconds */
#endif
    slices_ask(in, shortest_ns);
    while (look(in, &seen)) {
        bool is_moved = false;

        TY_CHECK(receives_finish(in, &is_moved, error), status, done);
        TY_CHECK(sends_finish(in, &is_moved, error), status, done);
        TY_CHECK(receives_start(in, &is_moved, error), status, done);
        TY_CHECK(sends_start(in, &is_moved, error), status, done);
        TY_CHECK(collective_advance(in, &is_moved, error), status, done);
        TY_CHECK(control_advance(in, &is_moved, error), status, done);
        if (is_moved)
            backoff.rounds = 0;
        else
            rest(in, &seen, &backoff);
    }
done:
    slices_ask(in, 0);
    return status;
}

void interpreter_cancel(ty_interpreter *in)
{
    uint32_t i;

    for (i = 0; in->arrivals != NULL && i < in->window * in->program->instruction_count; i++) {
        if (in->arrivals[i].request != NULL)
            message_cancel(in, in->arrivals[i].request);
        if (in->memory == NULL)
            ty_free(in->arrivals[i].staging);
        else if (in->arrivals[i].staging != NULL)
            in->memory->release(in->held[0].device, in->arrivals[i].staging);
    }
    for (i = 0; i < in->departure_count; i++) {
        departure *left = &in->departures[(in->departure_first + i) % in->departure_capacity];
        if (left->request != NULL)
            message_cancel(in, left->request);
    }
    if (in->exchange != NULL)
        in->link->cancel(in->link, in->exchange);
    ty_collective_cancel(in->running);
    ty_collective_cancel(in->control_running);
}
