/* Ranks that prove possession of their job's secret, and ranks that cannot. */
#include "job_secret.h"
#include "rank_threads.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define GOOD "0123456789abcdef0123456789abcdef"
#define OTHER "0123456789abcdef0123456789abcdeF"

static const double patience_s = 20;

static ty_job_secret secret_of(const char *text)
{
    ty_job_secret secret = {0};
    ty_error error = {0};

    cr_assert_eq(setenv(TY_SECRET_VARIABLE, text, 1), 0);
    cr_assert_eq(ty_job_secret_read(&secret, &error), TY_OK, "%s", error.message);
    cr_assert(secret.is_set);
    return secret;
}

/* Secrets of the ranks in a case; a rank with a function of its own replaces one of them. */
static ty_job_secret good, other;
static uint32_t stranger; /* its rank; number of ranks: none */
static rank_function part;

static ty_status honest_rank(ty_transport *t, ty_error *error)
{
    return ty_job_secret_prove(&good, t, patience_s, error);
}

static ty_status any_rank(ty_transport *t, ty_error *error)
{
    return t->rank == stranger ? part(t, error) : honest_rank(t, error);
}

static void run(uint32_t size, rank_thread *ranks)
{
    ty_transport *transports[RANK_THREADS_MOST];
    ty_error error = {0};

    cr_assert_eq(ty_transport_local(size, transports, &error), TY_OK, "%s", error.message);
    cr_assert_eq(rank_threads_run(transports, size, any_rank, ranks, &error), TY_OK, "%s",
                 error.message);
}

Test(job_secret, ranks_with_one_secret_take_each_other)
{
    rank_thread ranks[RANK_THREADS_MOST];

    good = secret_of(GOOD);
    for (uint32_t size = 1; size <= 6; size++) {
        stranger = size;
        run(size, ranks);
        for (uint32_t r = 0; r < size; r++)
            cr_expect_eq(ranks[r].status, TY_OK, "rank %u of %u: %s", r, size,
                         ranks[r].error.message);
    }
}

static ty_status rank_of_another_job(ty_transport *t, ty_error *error)
{
    return ty_job_secret_prove(&other, t, patience_s, error);
}

/* Messages of the protocol: 32 bytes to each rank, and from each. */
enum { BYTES = 32, MOST = 4, FIRST_TAG = 3, ROUNDS = 2 };
typedef unsigned char round_of_bytes[MOST][BYTES];

static ty_status bytes_swap(ty_transport *t, uint32_t tag, round_of_bytes to, round_of_bytes from,
                            ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t r = 0; r < t->size && status == TY_OK; r++)
        if (r != t->rank)
            status = ty_transport_send(t, r, tag, to[r], BYTES, error);
    for (uint32_t r = 0; r < t->size && status == TY_OK; r++)
        if (r != t->rank)
            status = ty_transport_receive(t, r, tag, from[r], BYTES, error);
    return status;
}

/* Sends back all it receives: numbers, then proofs. */
static ty_status mirror(ty_transport *t, ty_error *error)
{
    round_of_bytes heard = {{0}};
    ty_status status = TY_OK;

    for (uint32_t tag = FIRST_TAG; tag < FIRST_TAG + ROUNDS && status == TY_OK; tag++) {
        for (uint32_t r = 0; r < t->size && status == TY_OK; r++)
            if (r != t->rank)
                status = ty_transport_receive(t, r, tag, heard[r], BYTES, error);
        for (uint32_t r = 0; r < t->size && status == TY_OK; r++)
            if (r != t->rank)
                status = ty_transport_send(t, r, tag, heard[r], BYTES, error);
    }
    return status;
}

static round_of_bytes recorded[ROUNDS]; /* the genuine rank's messages in an earlier run */

/* Repeats the messages of the rank that it replaces. */
static ty_status replay(ty_transport *t, ty_error *error)
{
    round_of_bytes heard;
    ty_status status = bytes_swap(t, FIRST_TAG, recorded[0], heard, error);

    return status == TY_OK ? bytes_swap(t, FIRST_TAG + 1, recorded[1], heard, error) : status;
}

/* A genuine rank whose messages are recorded. */
static ty_status recording_send(ty_transport *transport, uint32_t to, uint32_t tag,
                                const void *buffer, uint64_t bytes, ty_request **out,
                                ty_error *error)
{
    ty_transport *inner = ((wrapped_transport *)transport)->inner;

    if (tag - FIRST_TAG < ROUNDS && bytes == BYTES)
        memcpy(recorded[tag - FIRST_TAG][to], buffer, BYTES);
    return inner->send(inner, to, tag, buffer, bytes, out, error);
}

static ty_status recorded_rank(ty_transport *t, ty_error *error)
{
    wrapped_transport wrapped = transport_wrap(t);

    wrapped.transport.send = recording_send;
    return ty_job_secret_prove(&good, &wrapped.transport, patience_s, error);
}

static ty_status says_nonsense(ty_transport *t, ty_error *error)
{
    round_of_bytes nothing = {{0}}, heard;
    ty_status status = bytes_swap(t, FIRST_TAG, nothing, heard, error);

    return status == TY_OK ? bytes_swap(t, FIRST_TAG + 1, nothing, heard, error) : status;
}

/* With another size than a number. */
static ty_status says_much(ty_transport *t, ty_error *error)
{
    static const char much[1000];
    ty_status status = TY_OK;

    for (uint32_t r = 0; r < t->size && status == TY_OK; r++)
        if (r != t->rank)
            status = ty_transport_send(t, r, FIRST_TAG, much, sizeof much, error);
    return status;
}

Test(job_secret, strangers_are_refused)
{
    static const struct {
        const char *name;
        rank_function part;
        const char *expected;
    } strangers[] = {
        {"another job's", rank_of_another_job, "does not have the secret of this job"},
        {"an echo", mirror, "does not have the secret of this job"},
        {"a replay", replay, "does not have the secret of this job"},
        {"nonsense", says_nonsense, "does not have the secret of this job"},
        {"too much", says_much, "does not prove"},
    };
    rank_thread ranks[RANK_THREADS_MOST];

    good = secret_of(GOOD);
    other = secret_of(OTHER);
    stranger = 1;
    part = recorded_rank;
    run(3, ranks);
    for (uint32_t r = 0; r < 3; r++)
        cr_assert_eq(ranks[r].status, TY_OK, "%s", ranks[r].error.message);
    for (size_t s = 0; s < sizeof strangers / sizeof strangers[0]; s++) {
        bool is_named = false;
        part = strangers[s].part;
        run(3, ranks);
        /* The first honest rank that detects it exits; the other may report that instead. */
        for (uint32_t r = 0; r < 3; r += 2) {
            cr_expect_eq(ranks[r].status, TY_EBACKEND, "%s: rank %u takes it", strangers[s].name,
                         r);
            is_named = is_named || (strncmp(ranks[r].error.message, "rank 1 ", 7) == 0 &&
                                    strstr(ranks[r].error.message, strangers[s].expected) != NULL);
        }
        cr_expect(is_named, "%s: found \"%s\", expected rank 1 that %s", strangers[s].name,
                  ranks[0].error.message, strangers[s].expected);
    }
}

static ty_status says_nothing(ty_transport *t, ty_error *error)
{
    char byte;

    return ty_transport_receive(t, 0, FIRST_TAG + ROUNDS, &byte, 1, error); /* never comes */
}

static ty_status impatient_rank(ty_transport *t, ty_error *error)
{
    return t->rank == stranger ? says_nothing(t, error) : ty_job_secret_prove(&good, t, 0.2, error);
}

Test(job_secret, nobody_waits_for_who_says_nothing, .timeout = 60)
{
    ty_transport *transports[2];
    rank_thread ranks[2];
    ty_error error = {0};

    good = secret_of(GOOD);
    stranger = 1;
    cr_assert_eq(ty_transport_local(2, transports, &error), TY_OK);
    cr_assert_eq(rank_threads_run(transports, 2, impatient_rank, ranks, &error), TY_OK);
    cr_expect_eq(ranks[0].status, TY_EBACKEND);
    cr_expect_not_null(
        strstr(ranks[0].error.message, "rank 1 does not prove to rank 0 that it has the secret"),
        "%s", ranks[0].error.message);
    cr_expect_not_null(strstr(ranks[0].error.message, "said nothing for"), "%s",
                       ranks[0].error.message);
}

/* ---- Sources of the secret ------------------------------------------------------------------- */

Test(job_secret, is_taken_out_of_the_environment)
{
    const ty_job_secret secret = secret_of(GOOD), again = secret_of(GOOD), third = secret_of(OTHER);
    ty_job_secret none = {.is_set = true};
    ty_error error = {0};

    cr_expect_null(getenv(TY_SECRET_VARIABLE));
    cr_expect_eq(memcmp(secret.key, again.key, sizeof secret.key), 0);
    cr_expect_neq(memcmp(secret.key, third.key, sizeof secret.key), 0);
    cr_expect_eq(ty_job_secret_read(&none, &error), TY_OK, "%s", error.message);
    cr_expect_not(none.is_set, "there is none");
}

Test(job_secret, bad_ones_are_refused)
{
    static const struct {
        const char *name, *text, *content; /* of the environment, of the file; NULL: absent */
        mode_t mode;
        ty_status status;
        const char *expected;
    } cases[] = {
        {"short", "0123456789", NULL, 0, TY_EINVAL, "expected 32 to 1024"},
        {"empty", "", NULL, 0, TY_EINVAL, "found a secret of 0 characters"},
        {"file", NULL, GOOD "\n", 0600, TY_OK, ""},
        {"read-only file", NULL, GOOD, 0400, TY_OK, ""},
        {"both", GOOD, GOOD, 0600, TY_EINVAL, "expected one of them"},
        {"short file", NULL, "0123456789\n", 0600, TY_EINVAL, "found a secret of 10 characters"},
        {"open to the group", NULL, GOOD, 0640, TY_EIO, "expected mode 0600, found 0640"},
        {"open to all", NULL, GOOD, 0604, TY_EIO, "expected mode 0600, found 0604"},
    };
    char path[] = "/tmp/ty-secret-XXXXXX", long_text[TY_SECRET_MOST_LENGTH + 2];
    const int file = mkstemp(path);
    ty_job_secret of_text = secret_of(GOOD);

    cr_assert(file >= 0);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const char *content = cases[c].content;
        ty_job_secret secret = {0};
        ty_error error = {0};
        ty_status status;
        unsetenv(TY_SECRET_VARIABLE);
        unsetenv(TY_SECRET_FILE_VARIABLE);
        if (cases[c].text != NULL)
            setenv(TY_SECRET_VARIABLE, cases[c].text, 1);
        if (content != NULL) {
            setenv(TY_SECRET_FILE_VARIABLE, path, 1);
            cr_assert_eq(ftruncate(file, 0), 0);
            cr_assert_eq(pwrite(file, content, strlen(content), 0), (ssize_t)strlen(content));
            cr_assert_eq(fchmod(file, cases[c].mode), 0);
        }
        status = ty_job_secret_read(&secret, &error);
        cr_expect_eq(status, cases[c].status, "%s: %s", cases[c].name, error.message);
        cr_expect_not_null(strstr(error.message, cases[c].expected), "%s: found \"%s\"",
                           cases[c].name, error.message);
        if (status == TY_OK)
            cr_expect_eq(memcmp(secret.key, of_text.key, sizeof secret.key), 0, "%s",
                         cases[c].name);
        else
            cr_expect_not(secret.is_set, "%s", cases[c].name);
    }
    unlink(path);
    close(file);
    {
        ty_job_secret secret = {0};
        ty_error error = {0};
        setenv(TY_SECRET_FILE_VARIABLE, path, 1);
        unsetenv(TY_SECRET_VARIABLE);
        cr_expect_eq(ty_job_secret_read(&secret, &error), TY_EIO, "a file that is not there");
        setenv(TY_SECRET_FILE_VARIABLE, "/dev/zero", 1);
        cr_expect_eq(ty_job_secret_read(&secret, &error), TY_EIO, "a device");
        unsetenv(TY_SECRET_FILE_VARIABLE);
        memset(long_text, 'x', sizeof long_text - 1);
        long_text[sizeof long_text - 1] = '\0';
        setenv(TY_SECRET_VARIABLE, long_text, 1);
        cr_expect_eq(ty_job_secret_read(&secret, &error), TY_EINVAL, "too long");
    }
}
