/* Collectives as state machines over point-to-point messages. Rings and parameter-server
 * all-reduces are sequences of pieces (collective_pieces.c). A tree is a short list of unsplit
 * messages, one after the other; a hierarchical all-reduce is three collectives, one after the
 * other. */
#include "collective_state.h"

#include "codec.h"

#include <stdlib.h>
#include <string.h>

static void add_floats(void *target, const void *source, uint64_t count)
{
    float *t = target;
    const float *s = source;

    for (uint64_t i = 0; i < count; i++)
        t[i] += s[i];
}

static void keep_largest(void *target, const void *source, uint64_t count)
{
    float *t = target;
    const float *s = source;

    for (uint64_t i = 0; i < count; i++)
        t[i] = s[i] > t[i] ? s[i] : t[i];
}

static void add_doubles(void *target, const void *source, uint64_t count)
{
    double *t = target;
    const double *s = source;

    for (uint64_t i = 0; i < count; i++)
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
    [TY_ELEMENT_LARGEST_FLOAT] = {sizeof(float), keep_largest},
    [TY_ELEMENT_HALF] = {sizeof(uint16_t), add_halves},
    [TY_ELEMENT_BFLOAT] = {sizeof(uint16_t), add_bfloats},
    [TY_ELEMENT_DOUBLE] = {sizeof(double), add_doubles},
    [TY_ELEMENT_BYTE] = {1, NULL},
};

uint64_t ty_element_bytes(ty_element element)
{
    return element_types[element].size;
}

const element_type *collective_element(ty_element element)
{
    return &element_types[element];
}

/* ---- Tree -------------------------------------------------------------------------------- */

/* Binomial: in round i members whose lowest set bit is i send their sum to the member without that
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
    while (c->moves_done < c->move_count) {
        const tree_move *move = &c->moves[c->moves_done];
        bool is_done = false;

        if (c->move_request == NULL)
            TY_TRY(tree_start(c, move, error));
        TY_TRY(collective_test_request(c, &c->move_request, &is_done, error));
        if (!is_done)
            break;
        if (move->is_sum)
            c->type->add(c->data, c->scratch, c->count);
        c->moves_done++;
        *is_moved = true;
    }
    return TY_OK;
}

/* ---- All-to-all -------------------------------------------------------------------------- */

/* Bytes of a member's part, and of all parts before it. */
typedef struct part {
    uint64_t before, bytes;
} part;

static part part_of(const ty_collective *c, const uint64_t *counts, uint32_t member)
{
    part found = {member * c->count, c->count};

    if (counts != NULL) {
        found = (part){0, counts[member]};
        for (uint32_t m = 0; m < member; m++)
            found.before += counts[m];
    }
    found.before *= c->type->size;
    found.bytes *= c->type->size;
    return found;
}

static ty_status round_start(ty_collective *c, ty_error *error)
{
    uint32_t k = c->rounds_done + 1, n = c->member_count;
    uint32_t to = (c->position + k) % n, from = (c->position + n - k) % n;
    const part out = part_of(c, c->sent_counts, to), in = part_of(c, c->received_counts, from);
    char *arrivals = c->received != NULL ? c->received : c->scratch;

    if (in.bytes > 0)
        TY_TRY(c->transport->receive(c->transport, c->members[from], c->tag, arrivals + in.before,
                                     in.bytes, &c->round_receive, error));
    if (out.bytes > 0)
        TY_TRY(c->transport->send(c->transport, c->members[to], c->tag, c->data + out.before,
                                  out.bytes, &c->round_send, error));
    c->is_round_started = true;
    return TY_OK;
}

/* Received data must not overwrite data still to be sent, so it is copied into place at the end. */
static void rounds_place(ty_collective *c)
{
    uint64_t bytes = c->count * c->type->size;

    for (uint32_t m = 0; m < c->member_count && c->received == NULL; m++)
        if (m != c->position)
            memcpy(c->data + m * bytes, c->scratch + m * bytes, bytes);
}

static ty_status rounds_advance(ty_collective *c, bool *is_moved, ty_error *error)
{
    while (c->rounds_done < c->round_count) {
        bool is_sent = false, is_here = false;

        if (!c->is_round_started)
            TY_TRY(round_start(c, error));
        TY_TRY(collective_test_request(c, &c->round_send, &is_sent, error));
        TY_TRY(collective_test_request(c, &c->round_receive, &is_here, error));
        if (!is_sent || !is_here)
            break;
        c->is_round_started = false;
        *is_moved = true;
        if (++c->rounds_done == c->round_count)
            rounds_place(c);
    }
    return TY_OK;
}

/* With unequal counts, a member's part for itself is copied without a message. */
static uint64_t rounds_prepare(ty_collective *c, const ty_collective_options *options)
{
    c->round_count = c->member_count - 1;
    c->advance = rounds_advance;
    if (options->sent_counts == NULL)
        return c->member_count * c->count;
    c->sent_counts = options->sent_counts;
    c->received_counts = options->received_counts;
    c->received = options->received;
    memcpy(c->received + part_of(c, c->received_counts, c->position).before,
           c->data + part_of(c, c->sent_counts, c->position).before,
           part_of(c, c->sent_counts, c->position).bytes);
    return 0;
}

/* ---- Hierarchy --------------------------------------------------------------------------- */

typedef struct placed {
    uint32_t host, member;
} placed;

static int compare_placed(const void *left, const void *right)
{
    const placed *a = left, *b = right;

    if (a->host != b->host)
        return a->host < b->host ? -1 : 1;
    return a->member < b->member ? -1 : a->member > b->member;
}

/* Orders members by host. @return members of each host; 1 with unequal numbers: every member then
 * counts as a host of its own, as in the cost model (ty_rails) */
static uint32_t members_place(const ty_collective *c, const uint32_t *hosts, placed *all)
{
    uint32_t run = 0, per_host = 0;
    bool is_equal = true;

    for (uint32_t m = 0; m < c->member_count; m++)
        all[m] = (placed){hosts == NULL ? 0 : hosts[m], m};
    qsort(all, c->member_count, sizeof *all, compare_placed);
    for (uint32_t i = 0; i < c->member_count; i++) {
        run++;
        if (i + 1 < c->member_count && all[i + 1].host == all[i].host)
            continue;
        is_equal = is_equal && (per_host == 0 || run == per_host);
        per_host = run;
        run = 0;
    }
    for (uint32_t m = 0; m < c->member_count && !is_equal; m++)
        all[m] = (placed){m, m};
    return is_equal ? per_host : 1;
}

/* Phases of member `own` of `all`: a reduce-scatter in its host, an all-reduce of its shard across
 * hosts with the members of the same shard, and an all-gather in its host. */
static void phases_make(ty_collective *c, const placed *all, uint32_t per_host, uint32_t own)
{
    const uint32_t place = own % per_host, hosts = c->member_count / per_host;
    const uint64_t start = ty_share_start(c->count, per_host, place);
    const uint64_t end = ty_share_start(c->count, per_host, place + 1);
    ty_collective_options inside = {.members = c->groups,
                                    .member_count = per_host,
                                    .data = c->data,
                                    .count = c->count,
                                    .element = c->element,
                                    .tag = c->tag};
    ty_collective_options across = {.kind = TY_ALL_REDUCE,
                                    .algorithm = TY_RING,
                                    .members = c->groups + per_host,
                                    .member_count = hosts,
                                    .data = c->data + start * c->type->size,
                                    .count = end - start,
                                    .element = c->element,
                                    .tag = c->tag};

    for (uint32_t i = 0; i < per_host; i++)
        c->groups[i] = c->members[all[own - place + i].member];
    for (uint32_t h = 0; h < hosts; h++)
        c->groups[per_host + h] = c->members[all[h * per_host + place].member];
    inside.kind = TY_REDUCE_SCATTER;
    c->phases[c->phase_count++] = inside;
    c->phases[c->phase_count++] = across;
    inside.kind = TY_ALL_GATHER;
    inside.is_of_shares = true;
    c->phases[c->phase_count++] = inside;
}

static ty_status phases_advance(ty_collective *c, bool *is_moved, ty_error *error)
{
    while (c->phases_done < c->phase_count) {
        bool is_done = false;

        if (c->running == NULL)
            TY_TRY(
                ty_collective_start(c->transport, &c->phases[c->phases_done], &c->running, error));
        TY_TRY(ty_collective_test(c->running, &is_done, is_moved, error));
        if (!is_done)
            break;
        c->running = NULL;
        c->phases_done++;
        *is_moved = true;
    }
    return TY_OK;
}

static ty_status hierarchy_prepare(ty_collective *c, const ty_collective_options *options,
                                   ty_error *error)
{
    placed *all = ty_alloc(c->member_count, sizeof *all);
    uint32_t per_host, own = 0;

    c->groups = ty_alloc((size_t)2 * c->member_count, sizeof *c->groups);
    if (all == NULL || c->groups == NULL) {
        ty_free(all);
        return ty_fail(error, TY_ENOMEM, "out of memory for a collective");
    }
    per_host = members_place(c, options->hosts, all);
    while (all[own].member != c->position)
        own++;
    phases_make(c, all, per_host, own);
    ty_free(all);
    c->advance = phases_advance;
    return TY_OK;
}

/* ---- All collectives --------------------------------------------------------------------- */

static ty_status members_copy(ty_collective *c, const ty_collective_options *options,
                              ty_error *error)
{
    c->members = ty_alloc((size_t)c->member_count + options->server_count, sizeof *c->members);
    TY_TRY(ty_check_memory(c->members != NULL, error));
    c->position = UINT32_MAX;
    for (uint32_t i = 0; i < options->server_count; i++)
        c->members[c->member_count + i] = options->first_server + i;
    for (uint32_t i = 0; i < c->member_count; i++) {
        c->members[i] = options->members == NULL ? i : options->members[i];
        if (c->members[i] == c->transport->rank)
            c->position = i;
    }
    if (c->position == UINT32_MAX)
        return ty_fail(error, TY_EINVAL, "rank %u is not a member of the collective",
                       c->transport->rank);
    return TY_OK;
}

/* Finds the elements of scratch. */
static ty_status machine_prepare(ty_collective *c, const ty_collective_options *options,
                                 uint64_t *scratch, ty_error *error)
{
    const bool is_all_reduce = options->kind == TY_ALL_REDUCE;

    *scratch = 0;
    if (options->kind == TY_ALL_TO_ALL)
        *scratch = rounds_prepare(c, options);
    else if (is_all_reduce && options->algorithm == TY_TREE)
        *scratch = tree_prepare(c);
    else if (is_all_reduce && options->algorithm == TY_HIERARCHICAL)
        return hierarchy_prepare(c, options, error);
    else if (is_all_reduce && options->parts != NULL)
        return collective_listed_prepare(c, options, error);
    else if (is_all_reduce &&
             (options->algorithm == TY_PARAMETER_SERVER || options->algorithm == TY_BLOCK_MANAGER))
        *scratch = collective_servers_prepare(c);
    else
        *scratch = collective_ring_prepare(c);
    return TY_OK;
}

static ty_status prepare(ty_collective *c, const ty_collective_options *options, ty_error *error)
{
    uint64_t scratch;

    if (options->kind != TY_ALL_REDUCE && options->kind != TY_ALL_GATHER &&
        options->kind != TY_REDUCE_SCATTER && options->kind != TY_ALL_TO_ALL)
        return ty_fail(error, TY_EUNSUPPORTED, "collective %s is not built in",
                       ty_collective_name(options->kind));
    if (c->is_reduce && c->type->add == NULL)
        return ty_fail(error, TY_EINVAL, "bytes cannot be summed");
    if (c->is_reduce)
        c->sum_rounds = c->member_count - 1;
    if (options->kind != TY_REDUCE_SCATTER)
        c->copy_rounds = c->member_count - 1;
    c->ahead = options->kind == TY_REDUCE_SCATTER;
    TY_TRY(machine_prepare(c, options, &scratch, error));
    c->scratch = ty_alloc(scratch, c->type->size);
    return ty_check_memory(c->scratch != NULL, error);
}

ty_status ty_collective_start(ty_transport *transport, const ty_collective_options *options,
                              ty_collective **out, ty_error *error)
{
    ty_collective *c = ty_alloc(1, sizeof *c);
    ty_status status;

    TY_TRY(ty_check_memory(c != NULL, error));
    c->transport = transport;
    c->element = options->element;
    c->type = &element_types[options->element];
    c->member_count = options->member_count;
    c->tag = options->tag;
    c->data = options->data;
    c->count = options->count;
    c->is_reduce = options->kind == TY_ALL_REDUCE || options->kind == TY_REDUCE_SCATTER;
    c->is_of_shares = c->is_reduce || options->is_of_shares;
    c->advance = tree_advance;
    TY_CHECK(members_copy(c, options, error), status, cleanup);
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
               collective->phases_done == collective->phase_count &&
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
        if (requests[done % COLLECTIVE_WINDOW] != NULL)
            c->transport->cancel(c->transport, requests[done % COLLECTIVE_WINDOW]);
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
    ty_collective_cancel(c->running);
    ty_free(c->groups);
    ty_free(c->listed);
    ty_free(c->members);
    ty_free(c->scratch);
    ty_free(c);
}
