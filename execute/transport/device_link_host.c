/* Device memory between ranks through host memory: copied from the device, sent over a transport,
 * copied to the other device. */
#include "device_link.h"

typedef struct host_buffer {
    void *memory;
    uint64_t bytes;
    bool is_taken;
} host_buffer;

typedef struct host_state {
    ty_link_options options;
    host_buffer *buffers; /* kept for the next message of the same size */
    uint32_t buffer_count;
} host_state;

typedef struct passage {
    void *host, *device;
    uint64_t bytes;
    bool is_arriving;          /* is written to the device at the end */
    void *received;            /* of an all-to-all with unequal counts: written instead of `host` */
    ty_request *message;       /* of a send or receive, */
    ty_collective *collective; /* or of a collective */
} passage;

static const ty_device_memory *memory_of(const host_state *state)
{
    return state->options.backend->memory;
}

static void *buffer_take(host_state *state, uint64_t bytes)
{
    host_buffer *grown;
    void *made;

    for (uint32_t i = 0; i < state->buffer_count; i++) {
        if (!state->buffers[i].is_taken && state->buffers[i].bytes == bytes) {
            state->buffers[i].is_taken = true;
            return state->buffers[i].memory;
        }
    }
    grown = ty_resize(state->buffers, state->buffer_count + 1, sizeof *grown);
    if (grown == NULL)
        return NULL;
    state->buffers = grown;
    made = memory_of(state)->host_allocate(state->options.stage, bytes);
    if (made != NULL)
        state->buffers[state->buffer_count++] = (host_buffer){made, bytes, true};
    return made;
}

static void buffer_give(host_state *state, const void *memory)
{
    for (uint32_t i = 0; i < state->buffer_count; i++) {
        if (state->buffers[i].memory == memory)
            state->buffers[i].is_taken = false;
    }
}

static void passage_free(host_state *state, passage *own)
{
    if (own != NULL) {
        buffer_give(state, own->host);
        buffer_give(state, own->received);
    }
    ty_free(own);
}

static ty_status passage_new(host_state *state, void *device, uint64_t bytes, passage **out,
                             ty_error *error)
{
    passage *made = ty_alloc(1, sizeof *made);

    if (made != NULL)
        made->host = buffer_take(state, bytes);
    if (made == NULL || made->host == NULL) {
        ty_free(made);
        return ty_fail(error, TY_ENOMEM, "out of memory for a message of %llu bytes",
                       (unsigned long long)bytes);
    }
    made->device = device;
    made->bytes = bytes;
    *out = made;
    return TY_OK;
}

static ty_status host_send(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                           ty_error *error)
{
    host_state *state = link->state;
    ty_transport *transport = state->options.transport;
    passage *own = NULL;
    ty_status status;

    TY_CHECK(passage_new(state, transfer->buffer, transfer->bytes, &own, error), status, cleanup);
    TY_CHECK(
        memory_of(state)->read(state->options.stage, own->host, own->device, own->bytes, error),
        status, cleanup);
    TY_CHECK(transport->send(transport, transfer->peer, transfer->tag, own->host, own->bytes,
                             &own->message, error),
             status, cleanup);
    *out = (ty_request *)own;
    own = NULL; /* given away */
cleanup:
    passage_free(state, own);
    return status;
}

static ty_status host_receive(ty_device_link *link, const ty_transfer *transfer, ty_request **out,
                              ty_error *error)
{
    host_state *state = link->state;
    ty_transport *transport = state->options.transport;
    passage *own = NULL;
    ty_status status;

    TY_CHECK(passage_new(state, transfer->buffer, transfer->bytes, &own, error), status, cleanup);
    own->is_arriving = true;
    TY_CHECK(transport->receive(transport, transfer->peer, transfer->tag, own->host, own->bytes,
                                &own->message, error),
             status, cleanup);
    *out = (ty_request *)own;
    own = NULL; /* given away */
cleanup:
    passage_free(state, own);
    return status;
}

/* Sizes that differ from message to message share buffers. */
static uint64_t rounded(uint64_t bytes)
{
    uint64_t room = 4096;

    while (room < bytes)
        room *= 2;
    return room;
}

/* Copies the data to the host and starts a collective on it. */
static ty_status passage_start(host_state *state, passage *own, const void *device, uint64_t bytes,
                               ty_collective_options *staged, ty_error *error)
{
    const ty_status status =
        memory_of(state)->read(state->options.stage, own->host, device, bytes, error);

    staged->data = own->host;
    return status == TY_OK
               ? ty_collective_start(state->options.transport, staged, &own->collective, error)
               : status;
}

static ty_status parts_exchange(host_state *state, const ty_collective_options *options,
                                ty_request **out, ty_error *error)
{
    const uint64_t size = ty_element_bytes(options->element);
    ty_collective_options staged = *options;
    passage *own = NULL;
    uint64_t sent = 0, received = 0;
    ty_status status;

    for (uint32_t p = 0; p < options->member_count; p++) {
        sent += options->sent_counts[p] * size;
        received += options->received_counts[p] * size;
    }
    TY_CHECK(passage_new(state, options->received, rounded(sent), &own, error), status, cleanup);
    own->bytes = received;
    own->is_arriving = true;
    own->received = buffer_take(state, rounded(received));
    if (own->received == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a message of %llu bytes",
                         (unsigned long long)received);
        goto cleanup;
    }
    staged.received = own->received;
    TY_CHECK(passage_start(state, own, options->data, sent, &staged, error), status, cleanup);
    *out = (ty_request *)own;
    own = NULL; /* given away */
cleanup:
    passage_free(state, own);
    return status;
}

static ty_status host_exchange(ty_device_link *link, const ty_collective_options *options,
                               ty_request **out, ty_error *error)
{
    host_state *state = link->state;
    bool is_of_parts = options->kind == TY_ALL_TO_ALL ||
                       (options->kind == TY_ALL_GATHER && !options->is_of_shares);
    uint64_t parts = is_of_parts ? options->member_count : 1;
    uint64_t bytes = parts * options->count * ty_element_bytes(options->element);
    ty_collective_options staged = *options;
    passage *own = NULL;
    ty_status status;

    if (options->sent_counts != NULL)
        return parts_exchange(state, options, out, error);
    TY_CHECK(passage_new(state, options->data, bytes, &own, error), status, cleanup);
    own->is_arriving = true;
    TY_CHECK(passage_start(state, own, own->device, bytes, &staged, error), status, cleanup);
    *out = (ty_request *)own;
    own = NULL; /* given away */
cleanup:
    passage_free(state, own);
    return status;
}

static void host_cancel(ty_device_link *link, ty_request *request)
{
    host_state *state = link->state;
    passage *own = (passage *)request;

    if (own == NULL)
        return;
    if (own->message != NULL)
        state->options.transport->cancel(state->options.transport, own->message);
    ty_collective_cancel(own->collective);
    passage_free(state, own);
}

static ty_status host_test(ty_device_link *link, ty_request *request, bool *is_done,
                           ty_error *error)
{
    host_state *state = link->state;
    passage *own = (passage *)request;
    bool is_moved = false;
    ty_status status;

    if (own->collective != NULL)
        status = ty_collective_test(own->collective, is_done, &is_moved, error);
    else
        status =
            state->options.transport->test(state->options.transport, own->message, is_done, error);
    if (status == TY_OK && !*is_done)
        return TY_OK;
    if (status == TY_OK || own->collective == NULL)
        own->message = NULL; /* a transport frees its message in both cases, */
    if (status == TY_OK)
        own->collective = NULL; /* a collective is freed only when it is done */
    if (status == TY_OK && own->is_arriving)
        status = memory_of(state)->write(state->options.stage, own->device,
                                         own->received != NULL ? own->received : own->host,
                                         own->bytes, error);
    host_cancel(link, request);
    return status;
}

static void host_close(ty_device_link *link)
{
    host_state *state;

    if (link == NULL)
        return;
    state = link->state;
    for (uint32_t i = 0; i < state->buffer_count; i++)
        memory_of(state)->host_release(state->options.stage, state->buffers[i].memory);
    ty_free(state->buffers);
    ty_free(state);
    ty_free(link);
}

ty_status ty_device_link_host(const ty_link_options *options, ty_device_link **out, ty_error *error)
{
    ty_device_link *link = ty_alloc(1, sizeof *link);
    host_state *state = ty_alloc(1, sizeof *state);

    if (link == NULL || state == NULL) {
        ty_free(link);
        ty_free(state);
        return ty_fail(error, TY_ENOMEM, "out of memory for a link");
    }
    state->options = *options;
    *link = (ty_device_link){.name = "host",
                             .state = state,
                             .send = host_send,
                             .receive = host_receive,
                             .exchange = host_exchange,
                             .test = host_test,
                             .cancel = host_cancel,
                             .close = host_close};
    *out = link;
    return TY_OK;
}
