/* Collectives as state machines over point-to-point messages. A ring is a sequence of pieces: piece
 * k goes to the right neighbour and piece k comes from the left one, and what is sent is what
 * arrived one round before. A tree is a short list of whole messages, one after the other. */
#include "codec.h"
#include "transport.h"

#include <string.h>

enum {
    WINDOW = 4,               /* pieces under way in each direction */
    PIECE_BYTES = 256 * 1024, /* so that adding one piece overlaps the transfer of the next */
    MAX_TREE_MOVES = 2 * 32 + 2
};

typedef struct element_type {
    uint64_t size;
    void (*add)(void *target, const void *source, uint64_t count); /* NULL: cannot be summed */
} element_type;

typedef struct tree_move {
    uint32_t peer; /* member index */
    bool is_send, is_sum;
} tree_move;

struct ty_collective {
    ty_transport *transport;
    const element_type *type;
    uint32_t *members;
    uint32_t member_count, position;
    uint32_t tag;
    char *data;
    uint64_t count;
    bool is_reduce;      /* some rounds add */
    bool is_of_shares;   /* chunks are shares of `count`, else `count` elements each */
    uint32_t sum_rounds; /* of a ring: those that add come first */
    uint32_t copy_rounds;
    uint32_t ahead; /* chunks that member p's first one is before the p-th */
    char *scratch;  /* arrivals to be added: WINDOW pieces of a ring, one whole message of a tree */
    ty_status (*advance)(ty_collective *collective, bool *is_moved, ty_error *error);

    /* Ring: `rounds` * `pieces_per_round` pieces each way, sent, received and finished in order. */
    uint64_t pieces_per_round, piece_count, piece_elements;
    uint64_t sends_started, sends_done, receives_started, receives_done;
    ty_request *sends[WINDOW], *receives[WINDOW];

    /* Tree. */
    uint32_t move_count, moves_done;
    tree_move moves[MAX_TREE_MOVES];
    ty_request *move_request;

    /* All to all: in round k a part goes to the k-th member after this one. */
    uint32_t round_count, rounds_done;
    bool is_round_started;
    ty_request *round_send, *round_receive;
};

static void add_floats(void *target, const void *source, uint64_t count)
{
    float *t = target;
    const float *s = source;
    uint64_t i;

    for (i = 0; i < count; i++)
        t[i] += s[i];
}

static void add_doubles(void *target, const void *source, uint64_t count)
{
    double *t = target;
    const double *s = source;
    uint64_t i;

    for (i = 0; i < count; i++)
        t[i] += s[i];
}

static void add_halves(void *target, const void *source, uint64_t count)
{
    ty_half_add(target, source, count);
}

static void add_bfloats(void *target, const void *source, uint64_t count)
{
    ty_bfloat_add(target, source, count);
}

static const element_type element_types[TY_ELEMENT_COUNT] = {
    [TY_ELEMENT_FLOAT] = {sizeof(float), add_floats},
    [TY_ELEMENT_HALF] = {sizeof(uint16_t), add_halves},
    [TY_ELEMENT_BFLOAT] = {sizeof(uint16_t), add_bfloats},
    [TY_ELEMENT_DOUBLE] = {sizeof(double), add_doubles},
    [TY_ELEMENT_BYTE] = {1, NULL},
};

/* ---- Ring -------------------------------------------------------------------------------- */

typedef struct piece {
    uint64_t first, count; /* elements in `data` */
} piece;

uint64_t ty_share_start(uint64_t count, uint32_t members, uint32_t position)
{
    /* Without count * position, which may wrap. */
    return count / members * position + count % members * position / members;
}

/* In round s member p sends chunk p - s and receives chunk p - s - 1, modulo the members. In an
 * all-reduce the first n - 1 rounds add, after which member p has the whole sum of chunk p + 1, and
 * the last n - 1 rounds hand the sums round; an all-gather has only those, with one chunk per
 * member. A reduce-scatter has only the first, starting one chunk before, so that member p ends
 * with the sum of chunk p. */
static piece ring_piece(const ty_collective *c, uint64_t index, uint32_t behind)
{
    uint64_t n = c->member_count, round = index / c->pieces_per_round;
    uint64_t part = index % c->pieces_per_round;
    uint32_t chunk = (uint32_t)((c->position + 2 * n - (round + behind + c->ahead) % n) % n);
    uint64_t first =
        c->is_of_shares ? ty_share_start(c->count, c->member_count, chunk) : chunk * c->count;
    uint64_t last =
        c->is_of_shares ? ty_share_start(c->count, c->member_count, chunk + 1) : first + c->count;
    uint64_t start = (last - first) * part / c->pieces_per_round;
    uint64_t end = (last - first) * (part + 1) / c->pieces_per_round;

    return (piece){first + start, end - start};
}

/* Pieces below this index are added, later ones are copied into place. */
static uint64_t ring_summed(const ty_collective *c)
{
    return c->sum_rounds * c->pieces_per_round;
}

static char *ring_landing(const ty_collective *c, uint64_t index, piece where)
{
    if (index < ring_summed(c))
        return c->scratch + (index % WINDOW) * c->piece_elements * c->type->size;
    return c->data + where.first * c->type->size;
}

static ty_status ring_send(ty_collective *c, bool *is_moved, ty_error *error)
{
    uint32_t right = c->members[(c->position + 1) % c->member_count];
    ty_status status = TY_OK;

    while (c->sends_started < c->piece_count && c->sends_started - c->sends_done < WINDOW &&
           c->sends_started < c->receives_done + c->pieces_per_round) {
        piece p = ring_piece(c, c->sends_started, 0);
        ty_request **request = &c->sends[c->sends_started % WINDOW];

        *request = NULL;
        if (p.count > 0) {
            status =
                c->transport->send(c->transport, right, c->tag, c->data + p.first * c->type->size,
                                   p.count * c->type->size, request, error);
            if (status != TY_OK)
                return status;
        }
        c->sends_started++;
        *is_moved = true;
    }
    return status;
}

static ty_status ring_receive(ty_collective *c, bool *is_moved, ty_error *error)
{
    uint32_t left = c->members[(c->position + c->member_count - 1) % c->member_count];
    uint64_t summed = ring_summed(c);
    ty_status status = TY_OK;

    while (c->receives_started < c->piece_count &&
           c->receives_started - c->receives_done < WINDOW) {
        uint64_t k = c->receives_started;
        piece p = ring_piece(c, k, 1);
        ty_request **request = &c->receives[k % WINDOW];

        /* A sum lands where the own share of that chunk was sent from n - 1 rounds before. */
        if (summed > 0 && k >= summed && c->sends_done <= k - summed)
            break;
        *request = NULL;
        if (p.count > 0) {
            status = c->transport->receive(c->transport, left, c->tag, ring_landing(c, k, p),
                                           p.count * c->type->size, request, error);
            if (status != TY_OK)
                return status;
        }
        c->receives_started++;
        *is_moved = true;
    }
    return status;
}

/* Takes finished requests off one end; `is_done` false when the oldest is still under way. */
static ty_status oldest_test(ty_collective *c, ty_request **request, bool *is_done, ty_error *error)
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

static ty_status ring_finish(ty_collective *c, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;
    bool is_done = true;

    while (c->sends_done < c->sends_started) {
        status = oldest_test(c, &c->sends[c->sends_done % WINDOW], &is_done, error);
        if (status != TY_OK || !is_done)
            break;
        c->sends_done++;
        *is_moved = true;
    }
    while (status == TY_OK && c->receives_done < c->receives_started) {
        uint64_t k = c->receives_done;
        piece p = ring_piece(c, k, 1);

        status = oldest_test(c, &c->receives[k % WINDOW], &is_done, error);
        if (status != TY_OK || !is_done)
            break;
        if (k < ring_summed(c))
            c->type->add(c->data + p.first * c->type->size, ring_landing(c, k, p), p.count);
        c->receives_done++;
        *is_moved = true;
    }
    return status;
}

static ty_status ring_advance(ty_collective *c, bool *is_moved, ty_error *error)
{
    ty_status status;

    TY_CHECK(ring_finish(c, is_moved, error), status, done);
    TY_CHECK(ring_receive(c, is_moved, error), status, done);
    TY_CHECK(ring_send(c, is_moved, error), status, done);
done:
    return status;
}

static uint64_t ring_prepare(ty_collective *c)
{
    uint64_t n = c->member_count;
    uint64_t longest = c->is_of_shares ? (c->count + n - 1) / n : c->count;
    uint64_t limit = PIECE_BYTES / c->type->size;

    c->pieces_per_round = longest == 0 ? 1 : (longest - 1) / limit + 1;
    c->piece_elements = (longest + c->pieces_per_round - 1) / c->pieces_per_round;
    c->piece_count = (c->sum_rounds + c->copy_rounds) * c->pieces_per_round;
    c->advance = ring_advance;
    return c->is_reduce ? WINDOW * c->piece_elements : 0;
}

/* ---- Tree -------------------------------------------------------------------------------- */

/* Binomial: in round i members whose lowest set bit is i hand their sum to the member without that
 * bit; then the total goes back the same way. */
static uint64_t tree_prepare(ty_collective *c)
{
    uint32_t n = c->member_count, p = c->position, bit;

    for (bit = 1; bit < n && (p & bit) == 0; bit <<= 1) {
        if (p + bit < n)
            c->moves[c->move_count++] = (tree_move){.peer = p + bit, .is_sum = true};
    }
    if (p != 0) {
        c->moves[c->move_count++] = (tree_move){.peer = p - bit, .is_send = true};
        c->moves[c->move_count++] = (tree_move){.peer = p - bit};
    }
    while ((bit >>= 1) > 0) {
        if (p + bit < n)
            c->moves[c->move_count++] = (tree_move){.peer = p + bit, .is_send = true};
    }
    return c->count;
}

static ty_status tree_start(ty_collective *c, const tree_move *move, ty_error *error)
{
    uint32_t peer = c->members[move->peer];
    uint64_t bytes = c->count * c->type->size;

    if (move->is_send)
        return c->transport->send(c->transport, peer, c->tag, c->data, bytes, &c->move_request,
                                  error);
    return c->transport->receive(c->transport, peer, c->tag, move->is_sum ? c->scratch : c->data,
                                 bytes, &c->move_request, error);
}

static ty_status tree_advance(ty_collective *c, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;

    while (c->moves_done < c->move_count) {
        const tree_move *move = &c->moves[c->moves_done];
        bool is_done = false;

        if (c->move_request == NULL)
            TY_CHECK(tree_start(c, move, error), status, done);
        TY_CHECK(oldest_test(c, &c->move_request, &is_done, error), status, done);
        if (!is_done)
            break;
        if (move->is_sum)
            c->type->add(c->data, c->scratch, c->count);
        c->moves_done++;
        *is_moved = true;
    }
done:
    return status;
}

/* ---- All to all -------------------------------------------------------------------------- */

static ty_status round_start(ty_collective *c, ty_error *error)
{
    uint32_t k = c->rounds_done + 1, n = c->member_count;
    uint32_t to = (c->position + k) % n, from = (c->position + n - k) % n;
    uint64_t bytes = c->count * c->type->size;
    ty_status status = TY_OK;

    if (bytes > 0)
        TY_CHECK(c->transport->receive(c->transport, c->members[from], c->tag,
                                       c->scratch + from * bytes, bytes, &c->round_receive, error),
                 status, done);
    if (bytes > 0)
        TY_CHECK(c->transport->send(c->transport, c->members[to], c->tag, c->data + to * bytes,
                                    bytes, &c->round_send, error),
                 status, done);
    c->is_round_started = true;
done:
    return status;
}

/* What has come must not land on what is still to go, so it is moved into place at the end. */
static void rounds_place(ty_collective *c)
{
    uint64_t bytes = c->count * c->type->size;

    for (uint32_t m = 0; m < c->member_count; m++)
        if (m != c->position)
            memcpy(c->data + m * bytes, c->scratch + m * bytes, bytes);
}

static ty_status rounds_advance(ty_collective *c, bool *is_moved, ty_error *error)
{
    ty_status status = TY_OK;

    while (c->rounds_done < c->round_count) {
        bool is_sent = false, is_here = false;

        if (!c->is_round_started)
            TY_CHECK(round_start(c, error), status, done);
        TY_CHECK(oldest_test(c, &c->round_send, &is_sent, error), status, done);
        TY_CHECK(oldest_test(c, &c->round_receive, &is_here, error), status, done);
        if (!is_sent || !is_here)
            break;
        c->is_round_started = false;
        *is_moved = true;
        if (++c->rounds_done == c->round_count)
            rounds_place(c);
    }
done:
    return status;
}

static uint64_t rounds_prepare(ty_collective *c)
{
    c->round_count = c->member_count - 1;
    c->advance = rounds_advance;
    return c->member_count * c->count;
}

/* ---- All of them ------------------------------------------------------------------------- */

static ty_status members_copy(ty_collective *c, const uint32_t *members, ty_error *error)
{
    uint32_t i;

    c->members = ty_alloc(c->member_count, sizeof *c->members);
    if (c->members == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    c->position = UINT32_MAX;
    for (i = 0; i < c->member_count; i++) {
        c->members[i] = members == NULL ? i : members[i];
        if (c->members[i] == c->transport->rank)
            c->position = i;
    }
    if (c->position == UINT32_MAX)
        return ty_fail(error, TY_EINVAL, "rank %u is not a member of the collective",
                       c->transport->rank);
    return TY_OK;
}

static ty_status prepare(ty_collective *c, const ty_collective_options *options, ty_error *error)
{
    uint64_t scratch;

    if (options->kind != TY_ALL_REDUCE && options->kind != TY_ALL_GATHER &&
        options->kind != TY_REDUCE_SCATTER && options->kind != TY_ALL_TO_ALL)
        return ty_fail(error, TY_EUNSUPPORTED, "collective %s is not built in",
                       ty_collective_name(options->kind));
    if (options->kind == TY_ALL_REDUCE && !ty_algorithm_is_built_in(options->algorithm))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "all_reduce by %s is not built in, expected ring, tree or automatic",
                       ty_algorithm_name(options->algorithm));
    if (c->is_reduce && c->type->add == NULL)
        return ty_fail(error, TY_EINVAL, "bytes cannot be summed");
    if (c->is_reduce)
        c->sum_rounds = c->member_count - 1;
    if (options->kind != TY_REDUCE_SCATTER)
        c->copy_rounds = c->member_count - 1;
    c->ahead = options->kind == TY_REDUCE_SCATTER;
    if (options->kind == TY_ALL_TO_ALL)
        scratch = rounds_prepare(c);
    else if (options->kind == TY_ALL_REDUCE && options->algorithm == TY_TREE)
        scratch = tree_prepare(c);
    else
        scratch = ring_prepare(c);
    c->scratch = ty_alloc(scratch, c->type->size);
    return c->scratch != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "out of memory for a collective");
}

ty_status ty_collective_start(ty_transport *transport, const ty_collective_options *options,
                              ty_collective **out, ty_error *error)
{
    ty_collective *c = ty_alloc(1, sizeof *c);
    ty_status status;

    if (c == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    c->transport = transport;
    c->type = &element_types[options->element];
    c->member_count = options->member_count;
    c->tag = options->tag;
    c->data = options->data;
    c->count = options->count;
    c->is_reduce = options->kind == TY_ALL_REDUCE || options->kind == TY_REDUCE_SCATTER;
    c->is_of_shares = c->is_reduce || options->is_of_shares;
    c->advance = tree_advance;
    TY_CHECK(members_copy(c, options->members, error), status, cleanup);
    TY_CHECK(prepare(c, options, error), status, cleanup);
    *out = c;
    return TY_OK;

cleanup:
    ty_collective_cancel(c);
    return status;
}

ty_status ty_collective_test(ty_collective *collective, bool *is_done, bool *is_moved,
                             ty_error *error)
{
    ty_status status = collective->advance(collective, is_moved, error);

    if (status != TY_OK)
        return status;
    *is_done = collective->moves_done == collective->move_count &&
               collective->rounds_done == collective->round_count &&
               collective->sends_done == collective->piece_count &&
               collective->receives_done == collective->piece_count;
    if (*is_done)
        ty_collective_cancel(collective);
    return TY_OK;
}

static void requests_cancel(ty_collective *c, ty_request **requests, uint64_t done,
                            uint64_t started)
{
    for (; done < started; done++) {
        if (requests[done % WINDOW] != NULL)
            c->transport->cancel(c->transport, requests[done % WINDOW]);
    }
}

void ty_collective_cancel(ty_collective *c)
{
    if (c == NULL)
        return;
    requests_cancel(c, c->sends, c->sends_done, c->sends_started);
    requests_cancel(c, c->receives, c->receives_done, c->receives_started);
    if (c->move_request != NULL)
        c->transport->cancel(c->transport, c->move_request);
    if (c->round_send != NULL)
        c->transport->cancel(c->transport, c->round_send);
    if (c->round_receive != NULL)
        c->transport->cancel(c->transport, c->round_receive);
    ty_free(c->members);
    ty_free(c->scratch);
    ty_free(c);
}
