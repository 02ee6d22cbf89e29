#include "collective_cases.h"

#include "device.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const uint64_t counts[] = {0, 1, 2, 3, 5, 64, 1000, 65537, 300001};
enum { COUNTS = sizeof counts / sizeof counts[0] };

/* Small integers, so that sums of floats and halves are exact in any order. */
static int whole_value(uint32_t rank, uint64_t i)
{
    return (int)((rank * 7919u + i * 104729u + i / 7) % 17u) - 8;
}

static float fraction_value(uint32_t rank, uint64_t i)
{
    return (float)whole_value(rank, i) * 0.1f + (float)(rank + 1) / 3.0f;
}

static uint32_t case_tag(uint32_t a, uint64_t b)
{
    return 1000 + a * 100 + (uint32_t)(b % 97);
}

typedef struct group {
    uint32_t count, members[16], position;
    uint32_t hosts[16]; /* of hierarchies */
} group;

/* Possible hosts of a group's members. */
typedef uint32_t (*layout)(uint32_t member);

static uint32_t on_one_host(uint32_t member)
{
    (void)member;
    return 0;
}

static uint32_t in_pairs(uint32_t member)
{
    return member / 2;
}

static uint32_t in_turns(uint32_t member)
{
    return 9 - member % 2; /* hosts may start above 0, and in another order than members */
}

static uint32_t in_threes(uint32_t member)
{
    return member / 3;
}

static uint32_t each_alone(uint32_t member)
{
    return member;
}

static const layout layouts[] = {on_one_host, in_pairs, in_turns, in_threes, each_alone};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static ty_status wrong(ty_error *error, const char *what, const group *g, uint64_t count,
                       uint64_t i, double found, double expected)
{
    return ty_fail(error, TY_EBACKEND, "%s of %llu among %u: element %llu is %g, expected %g", what,
                   (unsigned long long)count, g->count, (unsigned long long)i, found, expected);
}

/* Options common to all members; kinds without a sum have no algorithm. */
static ty_collective_options options_of(const group *g, ty_collective_kind kind, ty_element element,
                                        void *data, uint64_t count)
{
    return (ty_collective_options){.kind = kind,
                                   .members = g->members,
                                   .hosts = g->hosts,
                                   .member_count = g->count,
                                   .data = data,
                                   .count = count,
                                   .element = element};
}

static ty_status sum_up(ty_transport *t, ty_algorithm algorithm, const group *g, ty_element element,
                        void *data, uint64_t count, uint32_t tag, ty_error *error)
{
    ty_collective_options options = options_of(g, TY_ALL_REDUCE, element, data, count);

    options.algorithm = algorithm;
    options.tag = tag;
    return ty_collective_run(t, &options, error);
}

/* ---- Integers as each element type ----------------------------------------------- */

static void float_put(void *at, int value)
{
    const float number = (float)value;

    memcpy(at, &number, sizeof number);
}

/* A half of an integer from -2048 to 2048, by its definition: 1.fraction * 2^exponent. */
static uint16_t half_of(int value)
{
    int exponent;
    double fraction = frexp(fabs((double)value), &exponent);

    if (value == 0)
        return 0;
    return (uint16_t)((value < 0 ? 0x8000 : 0) + ((exponent + 14) << 10) +
                      (int)((fraction * 2 - 1) * 1024));
}

static void half_put(void *at, int value)
{
    const uint16_t number = half_of(value);

    memcpy(at, &number, sizeof number);
}

/* Small integers are exact as bfloats: the upper half of their float. */
static void bfloat_put(void *at, int value)
{
    const float number = (float)value;
    uint32_t bits;
    uint16_t upper;

    memcpy(&bits, &number, sizeof bits);
    upper = (uint16_t)(bits >> 16);
    memcpy(at, &upper, sizeof upper);
}

static const struct number {
    const char *name;
    ty_element element;
    uint64_t bytes;
    void (*put)(void *at, int value);
} numbers[] = {
    {"float", TY_ELEMENT_FLOAT, 4, float_put},
    {"half", TY_ELEMENT_HALF, 2, half_put},
    {"bfloat", TY_ELEMENT_BFLOAT, 2, bfloat_put},
};
enum { NUMBERS = sizeof numbers / sizeof numbers[0] };

/* Element i of the sum over the group. */
static int sum_value(const group *g, uint64_t i)
{
    int sum = 0;

    for (uint32_t m = 0; m < g->count; m++)
        sum += whole_value(g->members[m], i);
    return sum;
}

/* A sum of 0 may have either sign. */
static bool is_number(const struct number *n, const void *at, int value)
{
    unsigned char expected[4], found[4];

    n->put(expected, value);
    memcpy(found, at, n->bytes);
    if (value == 0)
        found[n->bytes - 1] &= 0x7f; /* little-endian: the sign is in the last byte */
    return memcmp(found, expected, n->bytes) == 0;
}

static ty_status check_number(ty_transport *t, ty_algorithm algorithm, const group *g,
                              const struct number *n, uint64_t count, ty_error *error)
{
    unsigned char *data = ty_alloc(count, n->bytes);
    ty_status status;

    for (uint64_t i = 0; i < count; i++)
        n->put(data + i * n->bytes, whole_value(t->rank, i));
    status = sum_up(t, algorithm, g, n->element, data, count,
                    case_tag((uint32_t)(n - numbers) + 1, count), error);
    for (uint64_t i = 0; i < count && status == TY_OK; i++)
        if (!is_number(n, data + i * n->bytes, sum_value(g, i)))
            status =
                ty_fail(error, TY_EBACKEND, "sum of %llu %ss among %u: element %llu, expected %d",
                        (unsigned long long)count, n->name, g->count, (unsigned long long)i,
                        sum_value(g, i));
    ty_free(data);
    return status;
}

/* ---- Other collectives ------------------------------------------------------------------- */

/* A reduce-scatter leaves each member its shard of the sum. Everything else is then overwritten,
 * and an all-gather of the shards must give the complete sum to all. */
static ty_status check_shares(ty_transport *t, const group *g, uint64_t count, ty_error *error)
{
    const uint64_t start = ty_share_start(count, g->count, g->position);
    const uint64_t end = ty_share_start(count, g->count, g->position + 1);
    float *data = ty_alloc(count, sizeof *data);
    ty_collective_options options = options_of(g, TY_REDUCE_SCATTER, TY_ELEMENT_FLOAT, data, count);
    uint64_t i;
    ty_status status;

    options.tag = case_tag(6, count);
    for (i = 0; i < count; i++)
        data[i] = (float)whole_value(t->rank, i);
    TY_CHECK(ty_collective_run(t, &options, error), status, cleanup);
    for (i = 0; i < count && status == TY_OK; i++) {
        if (i < start || i >= end)
            data[i] = -1e6f;
        else if (data[i] != (float)sum_value(g, i))
            status = wrong(error, "reduce-scatter", g, count, i, (double)data[i], sum_value(g, i));
    }
    TY_CHECK(status, status, cleanup);
    options.kind = TY_ALL_GATHER;
    options.is_of_shares = true;
    options.tag = case_tag(7, count);
    TY_CHECK(ty_collective_run(t, &options, error), status, cleanup);
    for (i = 0; i < count && status == TY_OK; i++)
        if (data[i] != (float)sum_value(g, i))
            status =
                wrong(error, "gather of shares", g, count, i, (double)data[i], sum_value(g, i));
cleanup:
    ty_free(data);
    return status;
}

static ty_status check_gather(ty_transport *t, const group *g, uint64_t count, ty_error *error)
{
    uint8_t *data = ty_alloc(count * g->count, 1);
    ty_collective_options options = options_of(g, TY_ALL_GATHER, TY_ELEMENT_BYTE, data, count);
    uint64_t i;
    uint32_t m;
    ty_status status;

    options.tag = case_tag(4, count);
    for (i = 0; i < count; i++)
        data[g->position * count + i] = (uint8_t)(whole_value(t->rank, i) + 100);
    TY_CHECK(ty_collective_run(t, &options, error), status, cleanup);
    for (m = 0; m < g->count && status == TY_OK; m++) {
        for (i = 0; i < count && status == TY_OK; i++) {
            int expected = whole_value(g->members[m], i) + 100;
            if (data[m * count + i] != expected)
                status = wrong(error, "all-gather", g, count, m * count + i, data[m * count + i],
                               expected);
        }
    }
cleanup:
    ty_free(data);
    return status;
}

/* Sums of fractions are correct up to rounding, with the same bits on all members. */
static ty_status check_bits(ty_transport *t, ty_algorithm algorithm, const group *g, uint64_t count,
                            ty_error *error)
{
    float *data = ty_alloc(count, sizeof *data);
    ty_digest *digests = ty_alloc(g->count, sizeof *digests);
    ty_collective_options options;
    uint64_t i;
    uint32_t m;
    ty_status status;

    for (i = 0; i < count; i++)
        data[i] = fraction_value(t->rank, i);
    TY_CHECK(sum_up(t, algorithm, g, TY_ELEMENT_FLOAT, data, count, case_tag(5, count), error),
             status, cleanup);
    for (i = 0; i < count && status == TY_OK; i++) {
        double expected = 0;
        for (m = 0; m < g->count; m++)
            expected += (double)fraction_value(g->members[m], i);
        if (fabs((double)data[i] - expected) > 1e-5)
            status = wrong(error, "sum of fractions", g, count, i, (double)data[i], expected);
    }
    digests[g->position] = ty_digest_of(data, count * sizeof *data);
    options = options_of(g, TY_ALL_GATHER, TY_ELEMENT_BYTE, digests, sizeof *digests);
    options.tag = case_tag(9, count);
    if (status == TY_OK)
        status = ty_collective_run(t, &options, error);
    for (m = 0; m < g->count && status == TY_OK; m++) {
        if (strcmp(digests[m].hex, digests[0].hex) != 0)
            status = ty_fail(error, TY_EBACKEND, "members 0 and %u have different sums", m);
    }
cleanup:
    ty_free(data);
    ty_free(digests);
    return status;
}

/* Value of each byte of an all-to-all: identifies sender and receiver. */
static char to_value(uint32_t from, uint32_t to, uint64_t i)
{
    return (char)(from * 31 + to * 7 + i % 13);
}

static ty_status check_all_to_all(ty_transport *t, const group *g, uint64_t count, ty_error *error)
{
    char *data = ty_alloc(g->count, count);
    ty_collective_options options = options_of(g, TY_ALL_TO_ALL, TY_ELEMENT_BYTE, data, count);
    uint32_t own = g->members[g->position];
    ty_status status;

    options.tag = case_tag(8, count);
    for (uint32_t m = 0; m < g->count; m++)
        for (uint64_t i = 0; i < count; i++)
            data[m * count + i] = to_value(own, g->members[m], i);
    TY_CHECK(ty_collective_run(t, &options, error), status, cleanup);
    for (uint32_t m = 0; m < g->count && status == TY_OK; m++)
        for (uint64_t i = 0; i < count && status == TY_OK; i++)
            if (data[m * count + i] != to_value(g->members[m], own, i))
                status = wrong(error, "all-to-all", g, count, m * count + i, data[m * count + i],
                               to_value(g->members[m], own, i));
cleanup:
    ty_free(data);
    return status;
}

/* Elements of one member for another, if they are unequal; some are 0. */
static uint64_t to_count(uint32_t from, uint32_t to, uint64_t count)
{
    return count * ((from * 5 + to * 3) % 4) / 3;
}

static ty_status check_unequal(ty_transport *t, const group *g, uint64_t count, ty_error *error)
{
    char *data = ty_alloc(g->count, count), *received = ty_alloc(g->count, count);
    uint64_t sent_counts[16], received_counts[16], at = 0;
    ty_collective_options options = options_of(g, TY_ALL_TO_ALL, TY_ELEMENT_BYTE, data, 0);
    uint32_t own = g->members[g->position];
    ty_status status;

    for (uint32_t m = 0; m < g->count; m++) {
        sent_counts[m] = to_count(own, g->members[m], count);
        received_counts[m] = to_count(g->members[m], own, count);
        for (uint64_t i = 0; i < sent_counts[m]; i++)
            data[at++] = to_value(own, g->members[m], i);
    }
    options.tag = case_tag(10, count);
    options.sent_counts = sent_counts;
    options.received_counts = received_counts;
    options.received = received;
    TY_CHECK(ty_collective_run(t, &options, error), status, cleanup);
    at = 0;
    for (uint32_t m = 0; m < g->count; m++)
        for (uint64_t i = 0; i < received_counts[m] && status == TY_OK; i++, at++)
            if (received[at] != to_value(g->members[m], own, i))
                status = wrong(error, "all-to-all of unequal parts", g, count, at, received[at],
                               to_value(g->members[m], own, i));
cleanup:
    ty_free(data);
    ty_free(received);
    return status;
}

static ty_status check_sums(ty_transport *t, ty_algorithm algorithm, const group *g,
                            ty_error *error)
{
    for (uint32_t i = 0; i < COUNTS; i++)
        for (uint32_t n = 0; n < NUMBERS; n++)
            TY_TRY(check_number(t, algorithm, g, &numbers[n], counts[i], error));
    return check_bits(t, algorithm, g, 10007, error);
}

/* Only hierarchical algorithms depend on the hosts of members. */
static ty_status check_algorithm(ty_transport *t, ty_algorithm algorithm, group *g, ty_error *error)
{
    const uint32_t tried = algorithm == TY_HIERARCHICAL ? LAYOUTS : 1;
    ty_status status = TY_OK;

    for (uint32_t l = 0; l < tried && status == TY_OK; l++) {
        for (uint32_t m = 0; m < g->count; m++)
            g->hosts[m] = layouts[l](m);
        status = check_sums(t, algorithm, g, error);
    }
    return status;
}

static ty_status check_group(ty_transport *t, group *g, ty_error *error)
{
    for (ty_algorithm algorithm = 0; algorithm < TY_ALGORITHM_COUNT; algorithm++)
        TY_TRY(check_algorithm(t, algorithm, g, error));
    for (uint32_t i = 0; i < COUNTS; i++) {
        TY_TRY(check_gather(t, g, counts[i], error));
        TY_TRY(check_all_to_all(t, g, counts[i], error));
        TY_TRY(check_unequal(t, g, counts[i], error));
        TY_TRY(check_shares(t, g, counts[i], error));
    }
    return TY_OK;
}

/* Two collectives with different tags, advanced alternately, started in opposite order on odd
 * ranks. */
static ty_status check_two_at_once(ty_transport *t, ty_error *error)
{
    enum { LENGTH = 70001 };
    float *data[2] = {ty_alloc(LENGTH, sizeof(float)), ty_alloc(LENGTH, sizeof(float))};
    ty_collective *running[2] = {NULL, NULL};
    ty_backoff backoff = {0};
    uint32_t i, k, n = t->size;
    ty_status status = TY_OK;

    for (i = 0; i < 2; i++) {
        uint32_t which = (i + t->rank) % 2;
        ty_collective_options options = {.kind = TY_ALL_REDUCE,
                                         .algorithm = which == 0 ? TY_RING : TY_TREE,
                                         .member_count = n,
                                         .data = data[which],
                                         .count = LENGTH,
                                         .element = TY_ELEMENT_FLOAT,
                                         .tag = 2000 + which};
        for (k = 0; k < LENGTH; k++)
            data[which][k] = (float)(which + 1);
        TY_CHECK(ty_collective_start(t, &options, &running[which], error), status, cleanup);
    }
    while (running[0] != NULL || running[1] != NULL) {
        bool is_moved = false;
        for (i = 0; i < 2; i++) {
            bool is_done = false;
            if (running[i] == NULL)
                continue;
            TY_CHECK(ty_collective_test(running[i], &is_done, &is_moved, error), status, cleanup);
            if (is_done)
                running[i] = NULL;
        }
        if (is_moved)
            backoff.rounds = 0;
        else
            ty_backoff_wait(&backoff);
    }
    for (k = 0; k < LENGTH && status == TY_OK; k++) {
        if (data[0][k] != (float)n || data[1][k] != (float)(2 * n))
            status = ty_fail(error, TY_EBACKEND, "two at once: %g and %g, expected %u and %u",
                             (double)data[0][k], (double)data[1][k], n, 2 * n);
    }
cleanup:
    ty_collective_cancel(running[0]);
    ty_collective_cancel(running[1]);
    ty_free(data[0]);
    ty_free(data[1]);
    return status;
}

ty_status collective_cases_run(ty_transport *t, ty_error *error)
{
    group all = {.count = t->size, .position = t->rank};
    group odd = {.count = 0};
    uint32_t i;

    for (i = 0; i < t->size; i++) {
        all.members[i] = i;
        if (i % 2 == 1) {
            if (i == t->rank)
                odd.position = odd.count;
            odd.members[odd.count++] = i;
        }
    }
    TY_TRY(check_group(t, &all, error));
    if (t->rank % 2 == 1)
        TY_TRY(check_group(t, &odd, error));
    TY_TRY(check_two_at_once(t, error));
    TY_TRY(ty_transport_barrier(t, error));
    return TY_OK;
}

/* Messages to the next rank with two tags, received in the other order; the order within a tag is
 * preserved. */
ty_status message_cases_run(ty_transport *t, ty_error *error)
{
    enum { MESSAGES = 20, LENGTH = 3000 };
    uint32_t to = (t->rank + 1) % t->size, from = (t->rank + t->size - 1) % t->size, i;
    static const uint32_t tags[2] = {77, TY_TAG_LIMIT - 1};
    uint32_t *sent = ty_alloc(2 * MESSAGES, LENGTH * sizeof *sent);
    uint32_t *received = ty_alloc(LENGTH, sizeof *received);
    ty_request *requests[2 * MESSAGES];
    ty_status status = TY_OK;

    for (i = 0; i < 2 * MESSAGES; i++) {
        sent[i * LENGTH] = i;
        sent[(i + 1) * LENGTH - 1] = t->rank;
        TY_CHECK(t->send(t, to, tags[i % 2], &sent[i * LENGTH], LENGTH * sizeof *sent, &requests[i],
                         error),
                 status, cleanup);
    }
    for (i = 0; i < 2 * MESSAGES; i++) {
        uint32_t which = i < MESSAGES ? 1 : 0, expected = 2 * (i % MESSAGES) + which;

        TY_CHECK(
            ty_transport_receive(t, from, tags[which], received, LENGTH * sizeof *received, error),
            status, cleanup);
        if (received[0] != expected || received[LENGTH - 1] != from) {
            status = ty_fail(error, TY_EBACKEND, "message %u of rank %u, expected %u of %u",
                             received[0], received[LENGTH - 1], expected, from);
            goto cleanup;
        }
    }
    for (i = 0; i < 2 * MESSAGES; i++) {
        bool is_done = false;
        ty_backoff backoff = {0};
        while (!is_done) {
            TY_CHECK(t->test(t, requests[i], &is_done, error), status, cleanup);
            if (!is_done)
                ty_backoff_wait(&backoff);
        }
    }
    TY_CHECK(ty_transport_barrier(t, error), status, cleanup);
cleanup:
    ty_free(sent);
    ty_free(received);
    return status;
}
