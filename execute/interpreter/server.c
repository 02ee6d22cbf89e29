/* A parameter server: see server.h. */
#include "server.h"
#include "collective_state.h"
#include "interpreter_buckets.h"

#include <string.h>

typedef struct order { /* from rank 0 */
    uint32_t first, end;
} order;

/* Progress of one replica with the current bucket, in pieces. */
typedef struct client {
    uint64_t awaited, arrived, added; /* awaited: receives that were started */
    uint64_t sent, taken;             /* sent: sends that were started */
    ty_request *requests[TY_SERVER_WINDOW];
    char *landing; /* [TY_SERVER_WINDOW][TY_SERVER_PIECE_BYTES] */
} client;

typedef struct piece {
    uint64_t at, count; /* elements; `at` counts the server's own */
} piece;

typedef struct serving {
    const ty_plan *plan;
    ty_transport *transport;
    ty_server_map map;
    uint32_t server, window;
    uint32_t client_count;
    client *clients; /* by rank */
    char *landings, *sums;
    piece *pieces; /* [piece_count] of the current bucket */
    uint64_t piece_count;
    const element_type *type;
    uint32_t tag;
    order next; /* arrives while steps are served */
    ty_request *next_request;
    bool is_told; /* `next` has arrived */
} serving;

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for a server");
}

/* ---- One bucket ---------------------------------------------------------------------------- */

static ty_status request_test(serving *s, ty_request **request, bool *is_done, ty_error *error)
{
    ty_status status = s->transport->test(s->transport, *request, is_done, error);

    if (status != TY_OK || *is_done)
        *request = NULL;
    return status;
}

static char *landing_of(const client *c, uint64_t index)
{
    return c->landing + index % TY_SERVER_WINDOW * TY_SERVER_PIECE_BYTES;
}

static ty_status client_receive(serving *s, uint32_t rank, bool *is_moved, ty_error *error)
{
    client *c = &s->clients[rank];
    bool is_done = true;

    while (c->awaited < s->piece_count && c->awaited - c->added < TY_SERVER_WINDOW) {
        TY_TRY(s->transport->receive(s->transport, rank, s->tag, landing_of(c, c->awaited),
                                     s->pieces[c->awaited].count * s->type->size,
                                     &c->requests[c->awaited % TY_SERVER_WINDOW], error));
        c->awaited++;
        *is_moved = true;
    }
    while (c->arrived < c->awaited && is_done) {
        TY_TRY(request_test(s, &c->requests[c->arrived % TY_SERVER_WINDOW], &is_done, error));
        c->arrived += is_done;
        *is_moved = *is_moved || is_done;
    }
    return TY_OK;
}

/* In the order of ranks, so that equal summands give equal bits. */
static void client_add(serving *s, uint32_t rank)
{
    client *c = &s->clients[rank];
    const uint64_t before = rank == 0 ? s->piece_count : s->clients[rank - 1].added;

    for (; c->added < c->arrived && c->added < before; c->added++) {
        const piece *p = &s->pieces[c->added];
        char *sum = s->sums + p->at * s->type->size;
        if (rank == 0)
            memcpy(sum, landing_of(c, c->added), p->count * s->type->size);
        else
            s->type->add(sum, landing_of(c, c->added), p->count);
    }
}

static ty_status client_send(serving *s, uint32_t rank, bool *is_moved, ty_error *error)
{
    client *c = &s->clients[rank];
    bool is_done = true;

    while (c->sent < s->piece_count && c->sent - c->taken < TY_SERVER_WINDOW) {
        const piece *p = &s->pieces[c->sent];
        TY_TRY(s->transport->send(s->transport, rank, s->tag, s->sums + p->at * s->type->size,
                                  p->count * s->type->size,
                                  &c->requests[c->sent % TY_SERVER_WINDOW], error));
        c->sent++;
        *is_moved = true;
    }
    while (c->taken < c->sent && is_done) {
        TY_TRY(request_test(s, &c->requests[c->taken % TY_SERVER_WINDOW], &is_done, error));
        c->taken += is_done;
        *is_moved = *is_moved || is_done;
    }
    return TY_OK;
}

/* All pushes, and when the last is added all pulls. */
static ty_status bucket_advance(serving *s, bool *is_done, bool *is_moved, ty_error *error)
{
    const client *last = &s->clients[s->client_count - 1];

    for (uint32_t r = 0; r < s->client_count && last->added < s->piece_count; r++)
        TY_TRY(client_receive(s, r, is_moved, error));
    for (uint32_t r = 0; r < s->client_count && last->added < s->piece_count; r++)
        client_add(s, r);
    *is_done = last->added == s->piece_count;
    for (uint32_t r = 0; r < s->client_count && last->added == s->piece_count; r++) {
        TY_TRY(client_send(s, r, is_moved, error));
        *is_done = *is_done && s->clients[r].taken == s->piece_count;
    }
    return TY_OK;
}

static void requests_cancel(serving *s)
{
    for (uint32_t r = 0; r < s->client_count; r++)
        for (uint32_t w = 0; w < TY_SERVER_WINDOW; w++)
            if (s->clients[r].requests[w] != NULL) {
                s->transport->cancel(s->transport, s->clients[r].requests[w]);
                s->clients[r].requests[w] = NULL;
            }
}

static void bucket_open(serving *s, uint32_t bucket, uint32_t step)
{
    const ty_server_part *parts = s->map.parts + s->map.first_parts[bucket];
    const uint32_t count = s->map.first_parts[bucket + 1] - s->map.first_parts[bucket];
    server_walk at = {0};
    uint64_t first, elements = 0;

    s->type = collective_element(ty_codec_element(&s->plan->buckets[bucket].compression));
    s->tag = interpreter_bucket_tag(s->plan, s->window, bucket, step);
    s->piece_count = 0;
    for (piece p = {0};
         collective_server_piece(parts, count, s->type->size, s->server, &at, &first, &p.count);
         elements += p.count) {
        p.at = elements;
        s->pieces[s->piece_count++] = p;
    }
    for (uint32_t r = 0; r < s->client_count; r++) {
        client *c = &s->clients[r];
        c->awaited = c->arrived = c->added = c->sent = c->taken = 0;
    }
}

/* Receives rank 0's next order, possibly while the last steps are served. */
static ty_status next_test(serving *s, ty_error *error)
{
    return s->is_told ? TY_OK : request_test(s, &s->next_request, &s->is_told, error);
}

static bool has_begun(const serving *s)
{
    for (uint32_t r = 0; r < s->client_count; r++)
        if (s->clients[r].arrived > 0)
            return true;
    return false;
}

/* @param is_over [out] the run ended before this bucket's step */
static ty_status bucket_serve(serving *s, uint32_t bucket, uint32_t step, bool *is_over,
                              ty_error *error)
{
    const uint32_t inbox = ty_tag_inbox(s->tag);
    ty_backoff backoff = {0};
    bool is_done = false;

    bucket_open(s, bucket, step);
    while (!is_done && s->piece_count > 0) {
        const uint32_t seen = ty_transport_bell(s->transport, inbox);
        bool is_moved = false;
        TY_TRY(bucket_advance(s, &is_done, &is_moved, error));
        TY_TRY(next_test(s, error));
        if (s->is_told && s->next.first == s->next.end && !has_begun(s)) {
            requests_cancel(s);
            *is_over = true;
            break;
        }
        if (is_moved)
            backoff.rounds = 0;
        else if (!is_done)
            ty_backoff_rest(&backoff, s->transport, inbox, seen, true);
    }
    return TY_OK;
}

/* ---- All buckets --------------------------------------------------------------------------- */

static ty_status next_await(serving *s, ty_error *error)
{
    return s->transport->receive(s->transport, 0, TAG_SERVERS, &s->next, sizeof s->next,
                                 &s->next_request, error);
}

static ty_status steps_serve(serving *s, const ty_stage_program *program, order steps,
                             bool *is_over, ty_error *error)
{
    for (uint32_t step = steps.first; step < steps.end && !*is_over; step++)
        for (uint32_t i = 0; i < program->instruction_count && !*is_over; i++)
            if (program->instructions[i].op == TY_OP_COLLECTIVE)
                TY_TRY(bucket_serve(s, program->instructions[i].bucket, step, is_over, error));
    return TY_OK;
}

static ty_status serving_open(serving *s, ty_error *error)
{
    const uint64_t window = (uint64_t)TY_SERVER_WINDOW * TY_SERVER_PIECE_BYTES;
    uint64_t most_parts = 0, bytes;
    ty_status status = ty_server_map_make(s->plan, &s->map, error);

    if (status != TY_OK)
        return status;
    bytes = ty_server_bytes(s->plan, &s->map, s->server);
    for (uint32_t b = 0; b < s->plan->bucket_count; b++) {
        const uint64_t parts = s->map.first_parts[b + 1] - s->map.first_parts[b];
        most_parts = parts > most_parts ? parts : most_parts;
    }
    s->clients = ty_alloc(s->client_count, sizeof *s->clients);
    s->landings = ty_alloc(s->client_count, window);
    s->sums = ty_alloc(1, bytes > 0 ? bytes : 1);
    /* The last piece of every part may be short. */
    s->pieces = ty_alloc(most_parts + bytes / TY_SERVER_PIECE_BYTES + 1, sizeof *s->pieces);
    if (s->clients == NULL || s->landings == NULL || s->sums == NULL || s->pieces == NULL)
        return out_of_memory(error);
    for (uint32_t r = 0; r < s->client_count; r++)
        s->clients[r].landing = s->landings + r * window;
    return TY_OK;
}

static void serving_close(serving *s)
{
    if (s->clients != NULL)
        requests_cancel(s);
    if (s->next_request != NULL)
        s->transport->cancel(s->transport, s->next_request);
    ty_server_map_clear(&s->map);
    ty_free(s->clients);
    ty_free(s->landings);
    ty_free(s->sums);
    ty_free(s->pieces);
}

ty_status ty_serve(const ty_plan *plan, const ty_program *program, ty_transport *transport,
                   ty_error *error)
{
    serving s = {.plan = plan,
                 .transport = transport,
                 .server = transport->rank - ty_plan_rank_count(plan),
                 .window = interpreter_window(plan, program),
                 .client_count = ty_plan_rank_count(plan)};
    bool is_over = false;
    ty_status status = serving_open(&s, error);

    TY_CHECK(status, status, cleanup);
    TY_CHECK(next_await(&s, error), status, cleanup);
    while (!is_over) {
        ty_backoff backoff = {0};
        order steps;
        while (!s.is_told) {
            const uint32_t inbox = ty_tag_inbox(TAG_SERVERS);
            const uint32_t seen = ty_transport_bell(transport, inbox);
            TY_CHECK(next_test(&s, error), status, cleanup);
            if (!s.is_told)
                ty_backoff_rest(&backoff, transport, inbox, seen, true);
        }
        steps = s.next;
        if (steps.first == steps.end)
            break;
        s.is_told = false;
        TY_CHECK(next_await(&s, error), status, cleanup);
        TY_CHECK(steps_serve(&s, &program->stages[0], steps, &is_over, error), status, cleanup);
    }
cleanup:
    serving_close(&s);
    return status;
}

ty_status ty_servers_notify(const ty_plan *plan, ty_transport *transport, uint32_t first,
                            uint32_t end, ty_error *error)
{
    const order steps = {first, end};
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < plan->servers.count && status == TY_OK; s++)
        status = ty_transport_send(transport, ty_plan_rank_count(plan) + s, TAG_SERVERS, &steps,
                                   sizeof steps, error);
    return status;
}
