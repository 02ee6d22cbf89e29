/* The local transport, and collectives over it, against sums computed by hand. */
#include "collective_cases.h"
#include "profile_job.h"
#include "rank_threads.h"

#include <criterion/criterion.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

/* Stores results in `ranks`. */
static void run_ranks(uint32_t size, rank_function function, rank_thread *ranks)
{
    ty_transport *transports[RANK_THREADS_MOST];
    ty_error error = {0};

    cr_assert_eq(ty_transport_local(size, transports, &error), TY_OK, "%s", error.message);
    cr_assert_eq(rank_threads_run(transports, size, function, ranks, &error), TY_OK, "%s",
                 error.message);
}

static void run_all_well(uint32_t size, rank_function function)
{
    ty_error error = {0};

    cr_assert_eq(rank_threads_all(ty_transport_local, size, function, &error), TY_OK, "%s",
                 error.message);
}

Test(transport, messages_of_each_tag_keep_their_order)
{
    static const uint32_t sizes[] = {1, 2, 3};
    size_t i;

    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        run_all_well(sizes[i], message_cases_run);
}

Test(transport, collectives_equal_plain_sums)
{
    static const uint32_t sizes[] = {1, 2, 3, 4, 5, 6, 7, 8};
    size_t i;

    for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        run_all_well(sizes[i], collective_cases_run);
}

static ty_status agree_case(ty_transport *t, ty_error *error)
{
    ty_status own = TY_OK, agreed;

    if (t->rank >= 2)
        own = ty_fail(error, t->rank == 2 ? TY_EIO : TY_EPARSE, "rank %u has no data", t->rank);
    agreed = ty_transport_agree(t, own, error);
    if (agreed != TY_EIO || strcmp(error->message, "rank 2 has no data") != 0)
        return ty_fail(error, TY_EBACKEND, "agreed on something else");
    return ty_transport_agree(t, TY_OK, error);
}

Test(transport, ranks_agree_on_the_first_failure)
{
    run_all_well(4, agree_case);
}

static ty_status size_case(ty_transport *t, ty_error *error)
{
    char bytes[8] = {0};

    if (t->rank == 0)
        return ty_transport_send(t, 1, 9, bytes, 8, error);
    return ty_transport_receive(t, 0, 9, bytes, 4, error);
}

Test(transport, a_message_of_the_wrong_size_is_refused)
{
    rank_thread ranks[2];

    run_ranks(2, size_case, ranks);
    cr_assert_eq(ranks[1].status, TY_EBACKEND);
    cr_assert_str_eq(ranks[1].error.message, "rank 1 got 8 bytes from rank 0 (tag 9), expected 4");
}

static ty_status lonely_case(ty_transport *t, ty_error *error)
{
    if (t->rank == 1)
        return ty_fail(error, TY_EIO, "rank 1 gives up");
    return ty_transport_barrier(t, error);
}

Test(transport, a_failing_rank_ends_the_others)
{
    rank_thread ranks[3];

    run_ranks(3, lonely_case, ranks);
    cr_assert_eq(ranks[0].status, TY_EBACKEND);
    cr_assert_eq(ranks[2].status, TY_EBACKEND);
    cr_assert_str_eq(ranks[0].error.message, "another rank failed");
}

static ty_status refusal_case(ty_transport *t, ty_error *error)
{
    static const struct {
        ty_collective_kind kind;
        ty_element element;
        uint32_t members[2];
        ty_status status;
        const char *message;
    } cases[] = {
        {TY_ALL_REDUCE, TY_ELEMENT_BYTE, {0, 1}, TY_EINVAL, "bytes cannot be summed"},
        {TY_BROADCAST, TY_ELEMENT_FLOAT, {0, 1}, TY_EUNSUPPORTED, "broadcast"},
        {TY_ALL_REDUCE, TY_ELEMENT_FLOAT, {5, 6}, TY_EINVAL, "is not a member"},
    };
    float data[4] = {0};
    size_t i;

    for (i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ty_error detail = {0};
        ty_status status = ty_collective_run(t,
                                             &(ty_collective_options){.kind = cases[i].kind,
                                                                      .members = cases[i].members,
                                                                      .member_count = 2,
                                                                      .data = data,
                                                                      .count = 4,
                                                                      .element = cases[i].element,
                                                                      .tag = 1},
                                             &detail);
        if (status != cases[i].status || strstr(detail.message, cases[i].message) == NULL)
            return ty_fail(error, TY_EBACKEND, "case %zu: status %d, \"%s\"", i, (int)status,
                           detail.message);
    }
    return TY_OK;
}

Test(transport, collectives_without_sense_are_refused)
{
    run_all_well(2, refusal_case);
}

Test(transport, backoff_looks_again_first_and_stays_short)
{
    ty_backoff backoff = {0};
    long last = 0;
    int i;

    cr_assert_eq(ty_backoff_next(&backoff), 0);
    for (i = 0; i < 1000; i++) {
        long delay = ty_backoff_next(&backoff);
        cr_assert(delay >= last && delay <= 50000, "round %d: %ld ns after %ld ns", i, delay, last);
        last = delay;
    }
    cr_assert_eq(last, 50000);
}

/* ---- Profile of a slow network ------------------------------------------------- */

typedef ty_status (*send_function)(ty_transport *transport, uint32_t to, uint32_t tag,
                                   const void *buffer, uint64_t bytes, ty_request **out,
                                   ty_error *error);
enum { LARGEST = 1 << 24 };
static _Atomic(send_function) quick_send;
static atomic_uint largest_sent;

/* The largest messages of a profile take one second per direction. */
static ty_status slow_send(ty_transport *transport, uint32_t to, uint32_t tag, const void *buffer,
                           uint64_t bytes, ty_request **out, ty_error *error)
{
    if (bytes == LARGEST)
        atomic_fetch_add(&largest_sent, 1);
    if (bytes == LARGEST && transport->rank == 0)
        nanosleep(&(struct timespec){.tv_sec = 1}, NULL);
    return atomic_load(&quick_send)(transport, to, tag, buffer, bytes, out, error);
}

static ty_status profile_transfers(ty_transport *transport, ty_error *error)
{
    ty_profile profile = {0};
    ty_profiler profiler = {.transport = transport, .haste = 1, .profile = &profile};
    ty_status status;

    atomic_store(&quick_send, transport->send);
    transport->send = slow_send;
    status = ty_profile_transfers(&profiler, error);
    if (status == TY_OK && transport->rank == 0) {
        const ty_transfer_time *last = &profile.transfer_times[profile.transfer_time_count - 1];
        cr_expect_eq(last->bytes, LARGEST);
        cr_expect(last->seconds >= 0.5, "found %g s", last->seconds);
    }
    ty_free(profile.transfer_times);
    return status;
}

/* Once to estimate the duration, and once to measure: two messages each. */
Test(transport, slow_transfers_are_timed_once)
{
    run_all_well(2, profile_transfers);
    cr_assert_eq(atomic_load(&largest_sent), 4, "%u messages", atomic_load(&largest_sent));
}
