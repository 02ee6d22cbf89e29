/* Messages and collectives through shared memory, with threads for the ranks of a host: the cases
 * of every transport, and the additional guarantees of this one. */
#include "collective_cases.h"
#include "rank_threads.h"
#include "shared_memory.h"
#include "shared_ranks.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST = 8 };

static void run_ranks(uint32_t size, rank_function function)
{
    ty_error error = {0};

    cr_assert_eq(rank_threads_all(shared_ranks_open, size, function, &error), TY_OK, "%s",
                 error.message);
}

Test(shared_memory, messages_of_each_tag_keep_their_order)
{
    for (uint32_t size = 1; size <= 3; size++)
        run_ranks(size, message_cases_run);
}

Test(shared_memory, collectives_equal_plain_sums)
{
    for (uint32_t size = 1; size <= MOST; size++)
        run_ranks(size, collective_cases_run);
}

/* ---- The same bits as with messages that are added one after the other ------------------- */

static const uint64_t awkward_counts[] = {0, 1, 7, 1023, 16384, 16385, 400003, 3000001};
enum { AWKWARD = sizeof awkward_counts / sizeof awkward_counts[0], BITS_RANKS = 3 };

static float fraction(uint32_t rank, uint64_t i)
{
    return (float)((rank * 7919u + i * 104729u) % 1009u) / 7.0f - 61.3f;
}

static ty_status sum_fill_and_run(ty_transport *t, ty_collective_kind kind, ty_algorithm algorithm,
                                  uint64_t count, float *data, ty_error *error)
{
    for (uint64_t i = 0; i < count; i++)
        data[i] = fraction(t->rank, i);
    return ty_collective_run(t,
                             &(ty_collective_options){.kind = kind,
                                                      .algorithm = algorithm,
                                                      .member_count = t->size,
                                                      .data = data,
                                                      .count = count,
                                                      .element = TY_ELEMENT_FLOAT,
                                                      .tag = 31},
                             error);
}

typedef struct bits_case {
    ty_collective_kind kind;
    ty_algorithm algorithm;
    uint64_t count;
    float *found[BITS_RANKS];
} bits_case;

static const bits_case *bits_wanted; /* for all ranks */

static ty_status bits_rank(ty_transport *t, ty_error *error)
{
    const bits_case *of = bits_wanted;

    return sum_fill_and_run(t, of->kind, of->algorithm, of->count, of->found[t->rank], error);
}

static void bits_find(const bits_case *of, rank_open open)
{
    ty_error error = {0};

    bits_wanted = of;
    cr_assert_eq(rank_threads_all(open, BITS_RANKS, bits_rank, &error), TY_OK, "%s", error.message);
}

static void bits_compare(ty_collective_kind kind, ty_algorithm algorithm, uint64_t count)
{
    bits_case over_messages = {.kind = kind, .algorithm = algorithm, .count = count};
    bits_case over_memory = over_messages;

    for (uint32_t r = 0; r < BITS_RANKS; r++) {
        over_messages.found[r] = ty_alloc(count, sizeof(float));
        over_memory.found[r] = ty_alloc(count, sizeof(float));
    }
    bits_find(&over_messages, ty_transport_local);
    bits_find(&over_memory, shared_ranks_open);
    for (uint32_t r = 0; r < BITS_RANKS; r++) {
        const uint64_t first = kind == TY_REDUCE_SCATTER ? ty_share_start(count, BITS_RANKS, r) : 0;
        const uint64_t end =
            kind == TY_REDUCE_SCATTER ? ty_share_start(count, BITS_RANKS, r + 1) : count;
        for (uint64_t i = first; i < end; i++)
            cr_assert_eq(
                memcmp(&over_memory.found[r][i], &over_messages.found[r][i], sizeof(float)), 0,
                "%s by %s of %llu: element %llu of rank %u is %.9g, expected %.9g",
                ty_collective_name(kind), ty_algorithm_name(algorithm), (unsigned long long)count,
                (unsigned long long)i, r, (double)over_memory.found[r][i],
                (double)over_messages.found[r][i]);
        ty_free(over_messages.found[r]);
        ty_free(over_memory.found[r]);
    }
}

Test(shared_memory, sums_have_the_bits_of_plain_messages)
{
    for (size_t c = 0; c < AWKWARD; c++) {
        bits_compare(TY_ALL_REDUCE, TY_RING, awkward_counts[c]);
        bits_compare(TY_ALL_REDUCE, TY_TREE, awkward_counts[c]);
        bits_compare(TY_ALL_REDUCE, TY_PARAMETER_SERVER, awkward_counts[c]);
        bits_compare(TY_REDUCE_SCATTER, TY_RING, awkward_counts[c]);
    }
}

/* ---- Flow control ------------------------------------------------------------------------ */

enum { LONG_BYTES = 5 << 20, MANY = 300 }; /* more than all slots can store, of either size */

static ty_status wait_for(ty_transport *t, ty_request *request, ty_error *error)
{
    ty_backoff backoff = {0};
    bool is_done = false;
    ty_status status;

    while ((status = t->test(t, request, &is_done, error)) == TY_OK && !is_done)
        ty_backoff_wait(&backoff);
    return status;
}

/* Rank 0 sends more than fits to rank 1, which receives it last. Meanwhile rank 2's message must
 * arrive, and so must rank 1's short message sent after the long one. */
static ty_status congestion_case(ty_transport *t, ty_error *error)
{
    unsigned char *sent = ty_alloc(1, LONG_BYTES), *received = ty_alloc(1, LONG_BYTES);
    ty_request *long_one = NULL;
    uint32_t mark = 5;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < LONG_BYTES; i++)
        sent[i] = (unsigned char)(i * 31 + i / 256);
    if (t->rank == 0) {
        TY_CHECK(t->send(t, 1, 3, sent, LONG_BYTES, &long_one, error), status, done);
        TY_CHECK(ty_transport_send(t, 1, 4, &mark, sizeof mark, error), status, done);
        TY_CHECK(ty_transport_send(t, 2, 4, &mark, sizeof mark, error), status, done);
        TY_CHECK(ty_transport_receive(t, 2, 5, &mark, sizeof mark, error), status, done);
        TY_CHECK(wait_for(t, long_one, error), status, done);
    } else {
        mark = 0;
        TY_CHECK(ty_transport_receive(t, 0, 4, &mark, sizeof mark, error), status, done);
        if (mark != 5)
            status = ty_fail(error, TY_EBACKEND, "found %u, expected 5", mark);
        if (t->rank == 2 && status == TY_OK)
            status = ty_transport_send(t, 0, 5, &mark, sizeof mark, error);
        if (t->rank == 1 && status == TY_OK)
            status = ty_transport_receive(t, 0, 3, received, LONG_BYTES, error);
        if (t->rank == 1 && status == TY_OK && memcmp(sent, received, LONG_BYTES) != 0)
            status = ty_fail(error, TY_EBACKEND, "a long message came changed");
    }
done:
    ty_free(sent);
    ty_free(received);
    return status;
}

Test(shared_memory, a_long_message_holds_up_no_other)
{
    run_ranks(3, congestion_case);
}

/* More messages than fit in a ring, before the other side receives the first. */
static ty_status many_case(ty_transport *t, ty_error *error)
{
    ty_request *requests[MANY] = {NULL};
    uint32_t values[MANY], go = 0;

    if (t->rank == 0) {
        for (uint32_t i = 0; i < MANY; i++) {
            values[i] = i * i;
            TY_TRY(t->send(t, 1, 7, &values[i], sizeof values[i], &requests[i], error));
        }
        TY_TRY(ty_transport_send(t, 1, 8, &go, sizeof go, error));
        for (uint32_t i = 0; i < MANY; i++)
            TY_TRY(wait_for(t, requests[i], error));
        return TY_OK;
    }
    TY_TRY(ty_transport_receive(t, 0, 8, &go, sizeof go, error));
    for (uint32_t i = 0; i < MANY; i++) {
        TY_TRY(ty_transport_receive(t, 0, 7, &go, sizeof go, error));
        if (go != i * i)
            return ty_fail(error, TY_EBACKEND, "message %u is %u, expected %u", i, go, i * i);
    }
    return TY_OK;
}

Test(shared_memory, messages_wait_for_room)
{
    run_ranks(2, many_case);
}

static ty_status size_case(ty_transport *t, ty_error *error)
{
    char bytes[8] = {0};
    ty_error detail = {0};
    ty_status status;

    if (t->rank == 0)
        return ty_transport_send(t, 1, 9, bytes, 8, error);
    status = ty_transport_receive(t, 0, 9, bytes, 4, &detail);
    if (status != TY_EBACKEND || strcmp(detail.message, "found a message of 8 bytes from local "
                                                        "rank 0 (tag 9), expected 4") != 0)
        return ty_fail(error, TY_EBACKEND, "status %d, \"%s\"", (int)status, detail.message);
    return TY_OK;
}

Test(shared_memory, a_message_of_the_wrong_size_is_refused)
{
    run_ranks(2, size_case);
}

/* Requests canceled before, during and after arrival, in any state; the rest is freed at the
 * end. */
static ty_status cancel_case(ty_transport *t, ty_error *error)
{
    char *bytes = ty_alloc(1, LONG_BYTES);
    ty_request *half = NULL, *never = NULL, *sum = NULL;
    uint32_t mark = 0;
    ty_status status = TY_OK;

    if (t->rank == 0) {
        TY_CHECK(t->send(t, 1, 3, bytes, LONG_BYTES, &half, error), status, done);
        TY_CHECK(ty_transport_receive(t, 1, 4, &mark, sizeof mark, error), status, done);
        t->cancel(t, half);
    } else {
        bool is_done = false;
        TY_CHECK(t->receive(t, 0, 3, bytes, LONG_BYTES, &half, error), status, done);
        TY_CHECK(t->receive(t, 0, 99, &mark, sizeof mark, &never, error), status, done);
        TY_CHECK(t->receive(t, 0, 98, &mark, sizeof mark, &sum, error), status, done);
        TY_CHECK(t->test(t, half, &is_done, error), status, done);
        t->cancel(t, never);
        t->cancel(t, sum);
        if (!is_done)
            t->cancel(t, half);
        status = ty_transport_send(t, 0, 4, &mark, sizeof mark, error);
    }
done:
    ty_free(bytes);
    return status;
}

Test(shared_memory, requests_can_be_given_up)
{
    run_ranks(2, cancel_case);
}

/* ---- Bells ------------------------------------------------------------------------------- */

/* Each sleep may only end by the bell. If a ring were missed, a round would take 100 ms and the
 * test half an hour. */
static ty_status ping_case(ty_transport *t, ty_error *error)
{
    enum { ROUNDS = 20000 };
    uint32_t value = 0;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < ROUNDS && status == TY_OK; i++) {
        if (i % 2 == t->rank)
            status = ty_transport_send(t, 1 - t->rank, 6, &i, sizeof i, error);
        else
            status = ty_transport_receive(t, 1 - t->rank, 6, &value, sizeof value, error);
        if (i % 2 != t->rank && status == TY_OK && value != i)
            status = ty_fail(error, TY_EBACKEND, "found %u, expected %u", value, i);
    }
    return status;
}

Test(shared_memory, no_ring_is_missed, .timeout = 100)
{
    run_ranks(2, ping_case);
}

/* ---- Failures ------------------------------------------------------------------------ */

/* A rank in a process of its own is killed while the other waits for its message. */
static void wait_for_killed(bool at_bell)
{
    ty_shared_address addresses[2];
    ty_shared_memory *memory = NULL;
    ty_request *request = NULL;
    ty_error error = {0};
    ty_status status;
    bool is_done = false;
    char byte = 0;
    int toward[2];
    pid_t child;

    cr_assert_eq(pipe(toward), 0);
    child = fork();
    if (child == 0) {
        ty_shared_memory *own = NULL;
        ty_shared_address mine;
        if (ty_shared_memory_make(2, 1, &own, &mine, &error) != TY_OK ||
            write(toward[1], &mine, sizeof mine) != (ssize_t)sizeof mine)
            _exit(1);
        for (;;)
            pause();
    }
    cr_assert_eq(read(toward[0], &addresses[1], sizeof addresses[1]), sizeof addresses[1]);
    cr_assert_eq(ty_shared_memory_make(2, 0, &memory, &addresses[0], &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_shared_memory_join(memory, addresses, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_shared_receive(
                     memory, &(ty_shared_message){.member = 1, .tag = 2, .to = &byte, .bytes = 1},
                     &request, &error),
                 TY_OK);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    for (;;) {
        const uint32_t seen = ty_shared_bell(memory, 0);
        status = ty_shared_test(memory, request, &is_done, &error);
        if (status != TY_OK)
            break;
        cr_assert(!is_done);
        if (at_bell)
            ty_shared_sleep(memory, 0, seen, 1000000000);
        else
            usleep(1000);
    }
    cr_assert_eq(status, TY_EBACKEND);
    cr_assert_str_eq(error.message, "the process of local rank 1 is gone");
    ty_shared_memory_close(memory);
}

Test(shared_memory, a_killed_rank_is_noticed, .timeout = 60)
{
    wait_for_killed(true);
}

Test(shared_memory, a_killed_rank_is_noticed_by_who_only_asks, .timeout = 60)
{
    wait_for_killed(false);
}

static size_t entries_of(const char *folder)
{
    DIR *opened = opendir(folder);
    size_t count = 0;

    cr_assert_not_null(opened, "%s", folder);
    while (readdir(opened) != NULL)
        count++;
    closedir(opened);
    return count;
}

/* Segments have no names, and their descriptors are closed once all ranks have joined. */
Test(shared_memory, nothing_is_left)
{
    const size_t descriptors = entries_of("/proc/self/fd");
    ty_transport *transports[2];
    ty_error error = {0};

    cr_assert_eq(shared_ranks_open(2, transports, &error), TY_OK, "%s", error.message);
    cr_assert_eq(entries_of("/proc/self/fd"), descriptors);
    transports[0]->close(transports[0]);
    transports[1]->close(transports[1]);
}

/* ---- No shared memory -------------------------------------------------------------------- */

Test(shared_memory, too_little_memory_is_told)
{
    const struct rlimit small = {1 << 16, RLIM_INFINITY};
    ty_shared_memory *memory = NULL;
    ty_shared_address address;
    ty_error error = {0};

    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
    cr_assert_eq(ty_shared_memory_make(2, 0, &memory, &address, &error), TY_ENOMEM);
    cr_assert_str_eq(error.message, "shared memory: limit on the size of files: File too large");
    cr_assert_null(memory);
}

Test(shared_memory, other_files_are_refused)
{
    ty_shared_address addresses[2];
    ty_shared_memory *memory = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_shared_memory_make(2, 0, &memory, &addresses[0], &error), TY_OK, "%s",
                 error.message);
    addresses[1] = (ty_shared_address){getpid(), 0, 1};
    cr_assert_eq(ty_shared_memory_join(memory, addresses, &error), TY_EUNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "expected the segment of a rank"), "%s",
                       error.message);
    addresses[1] = addresses[0];
    addresses[1].check++;
    cr_assert_eq(ty_shared_memory_join(memory, addresses, &error), TY_EUNSUPPORTED);
    cr_assert_not_null(strstr(error.message, "is another one here"), "%s", error.message);
    ty_shared_memory_close(memory);
    cr_assert_eq(
        ty_shared_memory_make(TY_SHARED_MOST_MEMBERS + 1, 0, &memory, &addresses[0], &error),
        TY_EUNSUPPORTED);
}
