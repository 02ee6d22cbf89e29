/* Sends and receives between stages, over the transport or the link between devices. */
#include "interpreter_state.h"

#include <math.h>
#include <string.h>

enum {
    STAGED_AHEAD = 2,              /* activations that may land before their slot is free, */
    STAGED_MOST = STAGED_AHEAD + 1 /* and one more that everything waits for */
};

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
           (ty_direction_way(transfer->direction) > 0 ? (uint32_t)TAG_GRADIENT : 0) |
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

/* Where what is sent lies, or what is received is to lie, with its slot. */
static void *message_buffer(ty_interpreter *in, const ty_instruction *transfer, uint32_t slot,
                            uint32_t step)
{
    const ty_device_backend *backend = in->options.backend;
    ty_stage_device *device = interpreter_held(in, transfer)->device;

    if (in->scenario.hooks->buffer != NULL)
        return in->scenario.hooks->buffer(&in->scenario, transfer, slot, step);
    if (transfer->op == TY_OP_SEND)
        return transfer->direction == TY_ACTIVATION ? backend->output(device, slot)
                                                    : backend->input_gradient(device, slot);
    return transfer->direction == TY_ACTIVATION ? backend->input(device, slot)
                                                : backend->output_gradient(device, slot);
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

ty_status interpreter_sends_start(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    uint32_t next, step = 0, slot = NO_INDEX;

    while ((next = ready_send(in, &step, &slot)) != NO_INDEX) {
        const ty_instruction *send = &in->program->instructions[next];
        uint32_t end = (in->departure_first + in->departure_count) % in->departure_capacity;
        departure *started = &in->departures[end];
        ty_transfer transfer = transfer_of(in, next, step, message_buffer(in, send, slot, step));
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
ty_status interpreter_sends_finish(ty_interpreter *in, bool *is_moved, ty_error *error)
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

/* One more, to be given to the next activation that needs it. */
static bool staging_add(ty_interpreter *in)
{
    /* Room to take every buffer back is made here, so that giving back cannot fail. */
    void **grown = ty_resize(in->staging, in->staging_capacity + 1, sizeof *grown);
    void *made;

    if (grown == NULL)
        return false;
    in->staging = grown;
    made = in->memory == NULL ? ty_alloc(1, in->staging_bytes)
                              : in->memory->allocate(in->held[0].device, in->staging_bytes);
    if (made == NULL)
        return false;
    in->staging_capacity++;
    in->staging[in->staging_free++] = made;
    return true;
}

static ty_status staging_fail(const ty_interpreter *in, ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for %llu bytes of activations",
                   (unsigned long long)in->staging_bytes);
}

ty_status interpreter_staging_open(ty_interpreter *in, ty_error *error)
{
    bool is_used = false;

    for (uint32_t i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *receive = &in->program->instructions[i];
        is_used = is_used || (receive->op == TY_OP_RECEIVE && receive->direction == TY_ACTIVATION);
    }
    while (is_used && in->link->is_direct && in->staging_capacity < STAGED_MOST)
        if (!staging_add(in))
            return staging_fail(in, error);
    return TY_OK;
}

static void *staging_take(ty_interpreter *in)
{
    if (in->staging_free == 0 && !staging_add(in))
        return NULL;
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
    ty_transfer transfer;
    void *buffer;
    ty_status status;

    if (slot == NO_INDEX && interpreter_has_slot(in, receive)) {
        if (receive->direction == TY_GRADIENT || (in->staging_used >= STAGED_AHEAD && !is_head))
            return TY_OK;
        /* Receives come in the order in which passes need them, so that a slot gets free. */
        if (in->link != NULL && in->link->is_direct && in->staging_free == 0)
            return TY_OK;
        coming->staging = buffer = staging_take(in);
        if (buffer == NULL)
            return staging_fail(in, error);
    } else {
        buffer = message_buffer(in, receive, slot, step);
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
    void *input;
    ty_status status = TY_OK;

    if (slot == NO_INDEX)
        return TY_OK;
    input = message_buffer(in, receive, slot, step);
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
ty_status interpreter_receives_start(ty_interpreter *in, bool *is_moved, ty_error *error)
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

ty_status interpreter_receives_finish(ty_interpreter *in, bool *is_moved, ty_error *error)
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

/* ---- The end ------------------------------------------------------------------------------- */

static uint32_t arrival_count(const ty_interpreter *in)
{
    return in->arrivals == NULL ? 0 : in->window * in->program->instruction_count;
}

void interpreter_messages_cancel(ty_interpreter *in)
{
    uint32_t i;

    for (i = 0; i < arrival_count(in); i++) {
        if (in->arrivals[i].request != NULL)
            message_cancel(in, in->arrivals[i].request);
    }
    for (i = 0; i < in->departure_count; i++) {
        departure *left = &in->departures[(in->departure_first + i) % in->departure_capacity];
        if (left->request != NULL)
            message_cancel(in, left->request);
    }
}

void interpreter_staging_release(ty_interpreter *in)
{
    for (uint32_t i = 0; i < arrival_count(in); i++)
        interpreter_memory_free(in, in->arrivals[i].staging);
}
