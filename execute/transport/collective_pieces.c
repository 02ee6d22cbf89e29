/* Collectives whose members send and receive pieces in a fixed order, and add each received piece
 * or copy it into place. In a ring a member sends the piece that arrived one round before. In a
 * parameter-server all-reduce each member sums its shard for all. */
#include "collective_state.h"

enum { PIECE_BYTES = 256 * 1024 }; /* so that adding one piece overlaps the transfer of the next */

/* Piece `part` of a chunk. */
static collective_piece piece_of(const ty_collective *c, uint32_t peer, uint32_t chunk,
                                 uint64_t part)
{
    uint64_t first =
        c->is_of_shares ? ty_share_start(c->count, c->member_count, chunk) : chunk * c->count;
    uint64_t last =
        c->is_of_shares ? ty_share_start(c->count, c->member_count, chunk + 1) : first + c->count;
    uint64_t start = (last - first) * part / c->pieces_per_round;
    uint64_t end = (last - first) * (part + 1) / c->pieces_per_round;

    return (collective_piece){peer, first + start, end - start};
}

/* Pieces below this index are added, later ones are copied into place. */
static uint64_t summed_pieces(const ty_collective *c)
{
    return c->sum_rounds * c->pieces_per_round;
}

/* ---- Ring -------------------------------------------------------------------------------- */

/* In round s member p sends chunk p - s and receives chunk p - s - 1, modulo the members. In an
 * all-reduce the first n - 1 rounds add, after which member p has the complete sum of chunk p + 1.
 * The last n - 1 rounds pass the sums on; an all-gather has only those, with one chunk per member.
 * A reduce-scatter has only the first, starting one chunk before, so that member p ends with the
 * sum of chunk p. */
static collective_piece ring_piece(const ty_collective *c, uint64_t index, uint32_t behind,
                                   uint32_t peer)
{
    uint64_t n = c->member_count, round = index / c->pieces_per_round;
    uint32_t chunk = (uint32_t)((c->position + 2 * n - (round + behind + c->ahead) % n) % n);

    return piece_of(c, peer, chunk, index % c->pieces_per_round);
}

static collective_piece ring_outgoing(const ty_collective *c, uint64_t index)
{
    return ring_piece(c, index, 0, (c->position + 1) % c->member_count);
}

static collective_piece ring_incoming(const ty_collective *c, uint64_t index)
{
    return ring_piece(c, index, 1, (c->position + c->member_count - 1) % c->member_count);
}

/* The piece to send is the one that arrived one round before. */
static bool ring_may_send(const ty_collective *c)
{
    return c->sends_started < c->receives_done + c->pieces_per_round;
}

/* A sum overwrites this member's summand of that chunk, which was sent n - 1 rounds before. */
static bool ring_may_receive(const ty_collective *c)
{
    uint64_t summed = summed_pieces(c);

    return summed == 0 || c->receives_started < summed ||
           c->sends_done > c->receives_started - summed;
}

/* ---- Parameter-server all-reduce --------------------------------------------------------- */

/* Member p serves chunk p. In round k of the first n - 1 it sends chunk p + k to member p + k and
 * adds member p - k's summand of chunk p. In the other rounds the same pairs send the sums. Each
 * member adds in a fixed order, so that equal summands make equal bits. */
static uint32_t servers_round(const ty_collective *c, uint64_t index)
{
    return (uint32_t)(index / c->pieces_per_round % (c->member_count - 1)) + 1;
}

static collective_piece servers_outgoing(const ty_collective *c, uint64_t index)
{
    uint32_t to = (c->position + servers_round(c, index)) % c->member_count;

    return piece_of(c, to, index < summed_pieces(c) ? to : c->position,
                    index % c->pieces_per_round);
}

static collective_piece servers_incoming(const ty_collective *c, uint64_t index)
{
    uint32_t from = (c->position + c->member_count - servers_round(c, index)) % c->member_count;

    return piece_of(c, from, index < summed_pieces(c) ? c->position : from,
                    index % c->pieces_per_round);
}

/* Whether this member's sum is complete. */
static bool servers_may_send(const ty_collective *c)
{
    return c->sends_started < summed_pieces(c) || c->receives_done >= summed_pieces(c);
}

/* Whether this member's summands, which the sums overwrite, have been sent. */
static bool servers_may_receive(const ty_collective *c)
{
    return c->receives_started < summed_pieces(c) || c->sends_done >= summed_pieces(c);
}

/* ---- Dedicated servers ------------------------------------------------------------------- */

static collective_piece listed_piece(const ty_collective *c, uint64_t index)
{
    return c->listed[index];
}

static bool listed_may_send(const ty_collective *c)
{
    (void)c;
    return true;
}

/* A sum overwrites the summand that was sent. */
static bool listed_may_receive(const ty_collective *c)
{
    return c->receives_started < c->sends_done;
}

/* ---- All --------------------------------------------------------------------------------- */

static bool collective_sums(const ty_collective *c, uint32_t peer)
{
    return c->transport->sums != NULL && c->transport->sums(c->transport, c->members[peer]);
}

static char *landing_of(const ty_collective *c, uint64_t index, collective_piece where)
{
    if (index < summed_pieces(c))
        return c->scratch + (index % COLLECTIVE_WINDOW) * c->piece_elements * c->type->size;
    return c->data + where.first * c->type->size;
}

/* Whether the transport adds received data itself, without scratch. */
static bool is_summed_there(const ty_collective *c, uint64_t index, collective_piece where)
{
    return index < summed_pieces(c) && collective_sums(c, where.peer);
}

static ty_status piece_receive(ty_collective *c, uint64_t index, collective_piece p,
                               ty_request **request, ty_error *error)
{
    ty_transport *transport = c->transport;
    const uint64_t bytes = p.count * c->type->size;

    if (is_summed_there(c, index, p))
        return transport->receive_sum(transport, c->members[p.peer], c->tag,
                                      c->data + p.first * c->type->size, bytes, c->type->add,
                                      c->type->size, request, error);
    return transport->receive(transport, c->members[p.peer], c->tag, landing_of(c, index, p), bytes,
                              request, error);
}

static ty_status pieces_send(ty_collective *c, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;

    while (c->sends_started < c->piece_count &&
           c->sends_started - c->sends_done < COLLECTIVE_WINDOW && c->order->may_send(c)) {
        collective_piece p = c->order->outgoing(c, c->sends_started);
        ty_request **request = &c->sends[c->sends_started % COLLECTIVE_WINDOW];

        *request = NULL;
        if (p.count > 0) {
            status = c->transport->send(c->transport, c->members[p.peer], c->tag,
                                        c->data + p.first * c->type->size, p.count * c->type->size,
                                        request, error);
            if (status != TY_OK)
                return status;
        }
        c->sends_started++;
        *is_moved = true;
    }
    return status;
}

static ty_status pieces_receive(ty_collective *c, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;

    while (c->receives_started < c->piece_count &&
           c->receives_started - c->receives_done < COLLECTIVE_WINDOW && c->order->may_receive(c)) {
        uint64_t k = c->receives_started;
        collective_piece p = c->order->incoming(c, k);
        ty_request **request = &c->receives[k % COLLECTIVE_WINDOW];

        *request = NULL;
        if (p.count > 0) {
            status = piece_receive(c, k, p, request, error);
            if (status != TY_OK)
                return status;
        }
        c->receives_started++;
        *is_moved = true;
    }
    return status;
}

static ty_status pieces_finish(ty_collective *c, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;
    bool is_done = true;

    while (c->sends_done < c->sends_started) {
        status = collective_test_request(c, &c->sends[c->sends_done % COLLECTIVE_WINDOW], &is_done,
                                         error);
        if (status != TY_OK || !is_done)
            break;
        c->sends_done++;
        *is_moved = true;
    }
    while (status == TY_OK && c->receives_done < c->receives_started) {
        uint64_t k = c->receives_done;
        collective_piece p = c->order->incoming(c, k);

        status = collective_test_request(c, &c->receives[k % COLLECTIVE_WINDOW], &is_done, error);
        if (status != TY_OK || !is_done)
            break;
        if (k < summed_pieces(c) && !is_summed_there(c, k, p))
            c->type->add(c->data + p.first * c->type->size, landing_of(c, k, p), p.count);
        c->receives_done++;
        *is_moved = true;
    }
    return status;
}

/* Whether pieces are received into scratch before they are added. */
static bool needs_scratch(const ty_collective *c)
{
    bool is_needed = false;

    for (uint32_t m = 0; m < c->member_count; m++)
        is_needed = is_needed || (m != c->position && !collective_sums(c, m));
    return c->is_reduce && is_needed;
}

static ty_status pieces_advance(ty_collective *c, bool *is_moved, ty_error *error)
{
    TY_TRY(pieces_finish(c, is_moved, error));
    TY_TRY(pieces_receive(c, is_moved, error));
    TY_TRY(pieces_send(c, is_moved, error));
    return TY_OK;
}

static uint64_t pieces_prepare(ty_collective *c, const piece_order *order)
{
    uint64_t n = c->member_count;
    uint64_t longest = c->is_of_shares ? (c->count + n - 1) / n : c->count;
    uint64_t limit = PIECE_BYTES / c->type->size;

    c->order = order;
    c->pieces_per_round = longest == 0 ? 1 : (longest - 1) / limit + 1;
    c->piece_elements = (longest + c->pieces_per_round - 1) / c->pieces_per_round;
    c->piece_count = (c->sum_rounds + c->copy_rounds) * c->pieces_per_round;
    c->advance = pieces_advance;
    return needs_scratch(c) ? COLLECTIVE_WINDOW * c->piece_elements : 0;
}

uint64_t collective_ring_prepare(ty_collective *c)
{
    static const piece_order ring = {ring_outgoing, ring_incoming, ring_may_send, ring_may_receive};

    return pieces_prepare(c, &ring);
}

static uint32_t pieces_of(uint64_t count, uint64_t element_bytes)
{
    return (uint32_t)((count - 1) / (TY_SERVER_PIECE_BYTES / element_bytes) + 1);
}

bool collective_server_piece(const ty_server_part *parts, uint32_t part_count,
                             uint64_t element_bytes, uint32_t server, server_walk *at,
                             uint64_t *first, uint64_t *count)
{
    for (; at->part < part_count; at->part++, at->piece = 0) {
        const ty_server_part *part = &parts[at->part];
        const uint32_t pieces = pieces_of(part->count, element_bytes);
        uint64_t from;
        if (part->server != server || at->piece == pieces)
            continue;
        from = ty_share_start(part->count, pieces, at->piece++);
        *first = part->first + from;
        *count = ty_share_start(part->count, pieces, at->piece) - from;
        return true;
    }
    return false;
}

/* Pieces of all servers in turn; each member begins with another server, so that none waits. */
ty_status collective_listed_prepare(ty_collective *c, const ty_collective_options *o,
                                    ty_error *error)
{
    static const piece_order listed = {listed_piece, listed_piece, listed_may_send,
                                       listed_may_receive};
    server_walk *walks = ty_alloc(o->server_count, sizeof *walks);
    bool is_any = true;

    for (uint32_t p = 0; p < o->part_count; p++)
        c->piece_count += pieces_of(o->parts[p].count, c->type->size);
    c->listed = ty_alloc(c->piece_count, sizeof *c->listed);
    if (walks == NULL || c->listed == NULL) {
        ty_free(walks);
        return ty_fail(error, TY_ENOMEM, "out of memory for a collective");
    }
    for (uint64_t made = 0; is_any;) {
        is_any = false;
        for (uint32_t s = 0; s < o->server_count; s++) {
            const uint32_t server = (c->position + s) % o->server_count;
            collective_piece piece = {.peer = c->member_count + server};
            if (!collective_server_piece(o->parts, o->part_count, c->type->size, server,
                                         &walks[server], &piece.first, &piece.count))
                continue;
            c->listed[made++] = piece;
            is_any = true;
        }
    }
    ty_free(walks);
    c->order = &listed;
    c->sum_rounds = 0;
    c->pieces_per_round = 1;
    c->advance = pieces_advance;
    return TY_OK;
}

uint64_t collective_servers_prepare(ty_collective *c)
{
    static const piece_order servers = {servers_outgoing, servers_incoming, servers_may_send,
                                        servers_may_receive};

    return pieces_prepare(c, &servers);
}

ty_status collective_test_request(ty_collective *c, ty_request **request, bool *is_done,
                                  ty_error *error)
{
    ty_status status = TY_OK;

    *is_done = *request == NULL;
    if (!*is_done) {
        status = c->transport->test(c->transport, *request, is_done, error);
        if (status != TY_OK || *is_done)
            *request = NULL;
    }
    return status;
}
