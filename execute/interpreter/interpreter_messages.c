/* Sends and receives between stages, over the transport or the link between devices. */
#include "interpreter_messages.h"
#include "interpreter_parallel.h"

#include <math.h>
#include <string.h>

enum {
    STAGED_AHEAD = 2,               /* activations that may arrive before their slot is free, */
    STAGED_MOST = STAGED_AHEAD + 1, /* and one more if compute waits for it */
    /* Sent at once, without a handshake; see transport_mpi.c. */
    LONG_MESSAGE_BYTES = 524288
};

typedef struct arrival { /* of a receive of one step; communication thread only */
    bool is_posted, is_here;
    ty_request *request;
    void *staging; /* where it arrives if its slot is not free yet */
} arrival;

typedef struct departure { /* a send in flight */
    uint32_t instruction, step;
    double started_s;
    ty_request *request;
} departure;

struct messages {
    stream_cursor send, receive;
    uint32_t *pairs;       /* [instruction]; see interpreter_pair */
    arrival *arrivals;     /* [window][instruction] */
    departure *departures; /* ring of `departure_capacity` */
    uint32_t departure_capacity, departure_first, departure_count;
    double last_departure_s;
    uint32_t receives_under_way;
    void **staging; /* free buffers */
    uint32_t staging_free, staging_used, staging_capacity;
    uint64_t staging_bytes;
    uint64_t scanned_generation;
};

/* ---- Their order between pairs of ranks --------------------------------------------------- */

static bool is_same_pair(const ty_interpreter *in, uint32_t a, uint32_t b)
{
    const ty_instruction *x = &in->program->instructions[a], *y = &in->program->instructions[b];
    const ty_plan *plan = in->options.plan;

    return x->op == y->op && x->direction == y->direction &&
           ty_program_peer_replica(plan, in->stage_replica, x) ==
               ty_program_peer_replica(plan, in->stage_replica, y);
}

/* For each instruction, the first of the program that moves messages in the same direction between
 * the same ranks. */
static ty_status pairs_make(ty_interpreter *in, ty_error *error)
{
    uint32_t i, k, count = in->program->instruction_count;

    in->messages->pairs = ty_alloc(count, sizeof *in->messages->pairs);
    TY_TRY(ty_check_memory(in->messages->pairs != NULL, error));
    for (i = 0; i < count; i++) {
        ty_op op = in->program->instructions[i].op;

        in->messages->pairs[i] = NO_INDEX;
        if (op != TY_OP_SEND && op != TY_OP_RECEIVE)
            continue;
        for (k = 0; in->program->instructions[k].op != op || !is_same_pair(in, i, k);)
            k++;
        in->messages->pairs[i] = k;
    }
    return TY_OK;
}

/* How often the k-th instruction runs, in this run, before the i-th does in a round. */
static uint64_t times_before(const ty_interpreter *in, uint32_t k, uint32_t i, int64_t round)
{
    const int64_t first = in->first_step, target = in->target;
    const int64_t end = round + in->program->instructions[k].lead + (k < i);

    return (uint64_t)((end < first ? first : end > target ? target : end) - first);
}

uint32_t interpreter_pair(const ty_interpreter *in, uint32_t index)
{
    return in->messages->pairs[index];
}

uint64_t interpreter_order(const ty_interpreter *in, uint32_t index, uint32_t step)
{
    const int64_t round = (int64_t)step - in->program->instructions[index].lead;
    uint64_t order = 0;

    for (uint32_t k = 0; k < in->program->instruction_count; k++)
        if (in->messages->pairs[k] == in->messages->pairs[index])
            order += in->first_step - in->origin_step + times_before(in, k, index, round);
    return order;
}

/* ---- Messages: the transport's, or the link's between devices --------------------------- */

static uint32_t transfer_tag(const ty_interpreter *in, const ty_instruction *transfer,
                             uint32_t step)
{
    const ty_plan *plan = in->options.plan;
    const uint32_t behind_cut =
        transfer->peer_stage > transfer->stage ? transfer->peer_stage : transfer->stage;
    const uint32_t cut = behind_cut / ty_plan_pipeline_size(plan);
    const uint32_t m =
        ty_program_global_micro_batch(plan, transfer->stage, in->replica, transfer->micro_batch);

    return (uint32_t)TAG_TRANSFER |
           (ty_direction_way(transfer->direction) > 0 ? (uint32_t)TAG_GRADIENT : 0) |
           ((step % in->window * in->virtual_stage_count + cut) * plan->micro_batches + m);
}

static ty_transfer transfer_of(const ty_interpreter *in, uint32_t index, uint32_t step,
                               void *buffer)
{
    const ty_instruction *transfer = &in->program->instructions[index];

    return (ty_transfer){
        .peer = interpreter_rank(
            in, ty_program_peer_replica(in->options.plan, in->stage_replica, transfer)),
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

/* The buffer in the slot that is sent, or that receives. */
static void *message_buffer(ty_interpreter *in, const ty_instruction *transfer, uint32_t slot,
                            uint32_t step)
{
    const ty_device_backend *backend = in->options.backend;
    ty_stage_device *device = interpreter_virtual_stage(in, transfer)->device;

    if (in->scenario.hooks->buffer != NULL)
        return in->scenario.hooks->buffer(&in->scenario, transfer, slot, step);
    if (transfer->op == TY_OP_SEND)
        return transfer->direction == TY_ACTIVATION ? backend->output(device, slot)
                                                    : backend->input_gradient(device, slot);
    return transfer->direction == TY_ACTIVATION ? backend->input(device, slot)
                                                : backend->output_gradient(device, slot);
}

/* ---- Sends ------------------------------------------------------------------------------- */

/* The next send if its data is ready; with its slot. */
static uint32_t ready_send(ty_interpreter *in, uint32_t *step, uint32_t *slot)
{
    uint32_t next;

    pthread_mutex_lock(&in->lock);
    next = interpreter_head(in, TY_STREAM_SEND, &in->messages->send, step);
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
        uint32_t end = (in->messages->departure_first + in->messages->departure_count) %
                       in->messages->departure_capacity;
        departure *started = &in->messages->departures[end];
        ty_transfer transfer = transfer_of(in, next, step, message_buffer(in, send, slot, step));
        ty_status status;

        *started = (departure){next, step, ty_now_s(), NULL};
        status = message_send(in, &transfer, &started->request, error);
        if (status != TY_OK)
            return status;
        in->messages->departure_count++;
        interpreter_advance(in, TY_STREAM_SEND, &in->messages->send);
        *is_moved = true;
    }
    return TY_OK;
}

/* Several may be in flight, but they end in order; each is timed from the end of the one before. */
static ty_status sends_finish(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    while (in->messages->departure_count > 0) {
        departure *oldest = &in->messages->departures[in->messages->departure_first];
        bool is_done = false;
        double start_s;
        ty_status status = message_test(in, oldest->request, &is_done, error);

        if (status != TY_OK)
            oldest->request = NULL;
        if (status != TY_OK || !is_done)
            return status;
        start_s = fmax(oldest->started_s, in->messages->last_departure_s);
        in->messages->last_departure_s = ty_now_s();
        pthread_mutex_lock(&in->lock);
        interpreter_done(in, oldest->instruction, oldest->step, start_s,
                         in->messages->last_departure_s);
        pthread_mutex_unlock(&in->lock);
        in->messages->departure_first =
            (in->messages->departure_first + 1) % in->messages->departure_capacity;
        in->messages->departure_count--;
        *is_moved = true;
    }
    return TY_OK;
}

/* ---- Receives ---------------------------------------------------------------------------- */

static arrival *arrival_at(ty_interpreter *in, uint32_t step, uint32_t instruction)
{
    return &in->messages->arrivals[(size_t)(step % in->window) * in->program->instruction_count +
                                   instruction];
}

/* Adds a staging buffer for the next activation that needs one. */
static bool staging_add(ty_interpreter *in)
{
    /* The list of free buffers grows here, so that returning a buffer cannot fail. */
    void **grown =
        ty_resize(in->messages->staging, in->messages->staging_capacity + 1, sizeof *grown);
    void *made;

    if (grown == NULL)
        return false;
    in->messages->staging = grown;
    made = in->memory == NULL
               ? ty_alloc(1, in->messages->staging_bytes)
               : in->memory->allocate(in->virtual_stages[0].device, in->messages->staging_bytes);
    if (made == NULL)
        return false;
    in->messages->staging_capacity++;
    in->messages->staging[in->messages->staging_free++] = made;
    return true;
}

static ty_status staging_fail(const ty_interpreter *in, ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for %llu bytes of activations",
                   (unsigned long long)in->messages->staging_bytes);
}

ty_status interpreter_staging_open(ty_interpreter *in, ty_error *error)
{
    bool is_used = false;

    for (uint32_t i = 0; i < in->program->instruction_count; i++) {
        const ty_instruction *receive = &in->program->instructions[i];
        is_used = is_used || (receive->op == TY_OP_RECEIVE && receive->direction == TY_ACTIVATION);
    }
    while (is_used && in->link->is_direct && in->messages->staging_capacity < STAGED_MOST)
        if (!staging_add(in))
            return staging_fail(in, error);
    return TY_OK;
}

static void *staging_take(ty_interpreter *in)
{
    if (in->messages->staging_free == 0 && !staging_add(in))
        return NULL;
    in->messages->staging_used++;
    return in->messages->staging[--in->messages->staging_free];
}

static void staging_give(ty_interpreter *in, void *buffer)
{
    in->messages->staging[in->messages->staging_free++] = buffer;
    in->messages->staging_used--;
}

/* Posts a receive into its slot, or, for an activation whose slot is still taken, into a staging
 * buffer. Postpones it if that would be one too many and compute does not wait for it yet. */
static ty_status receive_post(ty_interpreter *in, uint32_t index, uint32_t step, uint32_t slot,
                              bool is_head, bool *is_moved, ty_error *error)
{
    const ty_instruction *receive = &in->program->instructions[index];
    arrival *coming = arrival_at(in, step, index);
    ty_transfer transfer;
    void *buffer;

    if (slot == NO_INDEX && interpreter_has_slot(in, receive)) {
        if (receive->direction == TY_GRADIENT ||
            (in->messages->staging_used >= STAGED_AHEAD && !is_head))
            return TY_OK;
        /* Receives come in the order in which passes need them, so that a slot becomes free. */
        if (in->link != NULL && in->link->is_direct && in->messages->staging_free == 0)
            return TY_OK;
        coming->staging = buffer = staging_take(in);
        if (buffer == NULL)
            return staging_fail(in, error);
    } else {
        buffer = message_buffer(in, receive, slot, step);
    }
    transfer = transfer_of(in, index, step, buffer);
    TY_TRY(message_receive(in, &transfer, &coming->request, error));
    coming->is_posted = true;
    in->messages->receives_under_way++;
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

/* Copies an activation from staging into its slot, once it has one. */
static ty_status receive_place(ty_interpreter *in, uint32_t index, uint32_t step, bool *is_moved,
                               ty_error *error)
{
    const ty_instruction *receive = &in->program->instructions[index];
    arrival *landed = arrival_at(in, step, index);
    ty_stage_device *device = interpreter_virtual_stage(in, receive)->device;
    uint32_t slot = slot_of(in, receive, step);
    void *input;

    if (slot == NO_INDEX)
        return TY_OK;
    input = message_buffer(in, receive, slot, step);
    if (in->memory == NULL)
        memcpy(input, landed->staging, receive->bytes);
    else
        TY_TRY(in->memory->copy(device, input, landed->staging, receive->bytes, error));
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

/* Runs before posting, because it frees buffers. */
static ty_status receives_place(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    const stream_order *order = &in->streams[TY_STREAM_RECEIVE];
    uint32_t step, i;
    ty_status status = TY_OK;

    for (step = 0; in->messages->staging_used > 0 && step < in->window; step++) {
        for (i = 0; i < order->count && status == TY_OK; i++) {
            const arrival *landed = arrival_at(in, step, order->instructions[i]);
            if (landed->staging != NULL && landed->is_here)
                status = receive_place(in, order->instructions[i], step, is_moved, error);
        }
    }
    return status;
}

/* Posts all possible receives of steps that may start; scans only if something has changed. */
static ty_status receives_start(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    const stream_order *order = &in->streams[TY_STREAM_RECEIVE];
    stream_cursor at = in->messages->receive;
    uint64_t generation;
    uint32_t limit;
    ty_status status = TY_OK;

    pthread_mutex_lock(&in->lock);
    limit = interpreter_step_limit(in);
    generation = in->generation;
    pthread_mutex_unlock(&in->lock);
    if (order->count == 0 || generation == in->messages->scanned_generation)
        return TY_OK;
    in->messages->scanned_generation = generation;
    status = receives_place(in, is_moved, error);
    for (; at.round < (int64_t)limit && status == TY_OK;
         interpreter_advance(in, TY_STREAM_RECEIVE, &at)) {
        uint32_t index = order->instructions[at.position];
        const ty_instruction *receive = &in->program->instructions[index];
        int64_t step = at.round + receive->lead;
        bool is_head = at.round == in->messages->receive.round &&
                       at.position == in->messages->receive.position;

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

/* The next receive, if all instructions that it waits for are done. */
static uint32_t ready_receive(ty_interpreter *in, uint32_t *step)
{
    uint32_t next;

    pthread_mutex_lock(&in->lock);
    next = interpreter_head(in, TY_STREAM_RECEIVE, &in->messages->receive, step);
    if (next != NO_INDEX && !interpreter_waits_done(in, next, *step))
        next = NO_INDEX;
    pthread_mutex_unlock(&in->lock);
    if (next != NO_INDEX && !in->messages->receive.is_ready) {
        in->messages->receive.is_ready = true;
        in->messages->receive.ready_s = ty_now_s();
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
    interpreter_done(in, index, step, in->messages->receive.ready_s, ty_now_s());
    pthread_mutex_unlock(&in->lock);
    interpreter_advance(in, TY_STREAM_RECEIVE, &in->messages->receive);
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
                in->messages->receives_under_way--;
            }
            if (status != TY_OK || !coming->is_here)
                return status;
        }
        receive_done(in, next, step, coming);
        *is_moved = true;
    }
    return TY_OK;
}

ty_status interpreter_messages_advance(ty_interpreter *in, bool *is_moved, ty_error *error)
{
    TY_TRY(receives_finish(in, is_moved, error));
    TY_TRY(sends_finish(in, is_moved, error));
    TY_TRY(receives_start(in, is_moved, error));
    return sends_start(in, is_moved, error);
}

bool interpreter_messages_are_under_way(const ty_interpreter *in)
{
    return in->messages->receives_under_way > 0 || in->messages->departure_count > 0;
}

bool interpreter_messages_are_awaited(const ty_interpreter *in)
{
    const struct messages *m = in->messages;

    for (uint32_t i = 0; i < m->departure_count; i++) {
        const departure *left = &m->departures[(m->departure_first + i) % m->departure_capacity];
        if (in->program->instructions[left->instruction].bytes > LONG_MESSAGE_BYTES)
            return true;
    }
    return false;
}

/* ---- Beginning and end --------------------------------------------------------------------- */

ty_status interpreter_messages_open(ty_interpreter *in, ty_error *error)
{
    const uint32_t count = in->program->instruction_count;
    struct messages *m = in->messages = ty_alloc(1, sizeof *m);

    TY_TRY(ty_check_memory(m != NULL, error));
    m->scanned_generation = UINT64_MAX; /* not scanned yet */
    m->arrivals = ty_alloc(count, in->window * sizeof *m->arrivals);
    m->departure_capacity = in->window * in->streams[TY_STREAM_SEND].count;
    m->departures = ty_alloc(m->departure_capacity, sizeof *m->departures);
    TY_TRY(ty_check_memory(m->arrivals != NULL && m->departures != NULL, error));
    for (uint32_t i = 0; i < count; i++) {
        const ty_instruction *receive = &in->program->instructions[i];
        if (receive->op == TY_OP_RECEIVE && receive->direction == TY_ACTIVATION &&
            receive->bytes > m->staging_bytes)
            m->staging_bytes = receive->bytes;
    }
    return pairs_make(in, error);
}

void interpreter_messages_start(ty_interpreter *in, stream_cursor at)
{
    in->messages->send = in->messages->receive = at;
}

static uint32_t arrival_count(const ty_interpreter *in)
{
    return in->messages == NULL || in->messages->arrivals == NULL
               ? 0
               : in->window * in->program->instruction_count;
}

void interpreter_messages_cancel(ty_interpreter *in)
{
    struct messages *m = in->messages;

    for (uint32_t i = 0; i < arrival_count(in); i++)
        if (m->arrivals[i].request != NULL)
            message_cancel(in, m->arrivals[i].request);
    for (uint32_t i = 0; m != NULL && i < m->departure_count; i++) {
        departure *left = &m->departures[(m->departure_first + i) % m->departure_capacity];
        if (left->request != NULL)
            message_cancel(in, left->request);
    }
}

void interpreter_staging_release(ty_interpreter *in)
{
    for (uint32_t i = 0; i < arrival_count(in); i++)
        interpreter_memory_free(in, in->messages->arrivals[i].staging);
}

void interpreter_messages_close(ty_interpreter *in)
{
    struct messages *m = in->messages;

    if (m == NULL)
        return;
    for (uint32_t i = 0; i < m->staging_free; i++)
        interpreter_memory_free(in, m->staging[i]);
    ty_free(m->staging);
    ty_free(m->pairs);
    ty_free(m->arrivals);
    ty_free(m->departures);
    ty_free(m);
}
