/*
 * Messages and collectives between ranks of one host, through shared memory and through MPI in
 * turns, as JSON.
 *
 *     mpirun -n RANKS bench_exchanges [seconds per row]
 *
 * A row is an operation of one size. Wall time is the median over calls of the slowest rank's, and
 * CPU time the mean over calls of the sum over ranks. The two transports alternate call by call, so
 * disturbances of the machine hit both; on a busy machine only their ratio means something.
 */
#include "timing.h"
#include "transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

enum { TAG = 9, MOST_CALLS = 2000, LEAST_CALLS = 4, WAYS = 2 };

static const uint64_t sizes[] = {4 << 10, 16 << 10, 64 << 10, 256 << 10,
                                 1 << 20, 4 << 20,  16 << 20, 64 << 20};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

typedef enum operation { TRANSFER, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, OPERATIONS } operation;
static const char *const names[] = {"transfer", "all-reduce", "reduce-scatter", "all-gather"};

/* Round trip between the first two ranks. */
static ty_status transfer(ty_transport *t, void *buffer, uint64_t bytes, ty_error *error)
{
    ty_status status = TY_OK;

    if (t->rank > 1)
        return TY_OK;
    if (t->rank == 0)
        TY_CHECK(ty_transport_send(t, 1, TAG, buffer, bytes, error), status, done);
    TY_CHECK(ty_transport_receive(t, 1 - t->rank, TAG, buffer, bytes, error), status, done);
    if (t->rank == 1)
        status = ty_transport_send(t, 0, TAG, buffer, bytes, error);
done:
    return status;
}

static ty_status operate(ty_transport *t, operation what, void *buffer, uint64_t bytes,
                         ty_error *error)
{
    static const ty_collective_kind kinds[] = {TY_ALL_REDUCE, TY_ALL_REDUCE, TY_REDUCE_SCATTER,
                                               TY_ALL_GATHER};

    if (what == TRANSFER)
        return transfer(t, buffer, bytes, error);
    return ty_collective_run(t,
                             &(ty_collective_options){.kind = kinds[what],
                                                      .algorithm = TY_RING,
                                                      .member_count = t->size,
                                                      .data = buffer,
                                                      .count = bytes / sizeof(float),
                                                      .is_of_shares = what == ALL_GATHER,
                                                      .element = TY_ELEMENT_FLOAT,
                                                      .tag = TAG},
                             error);
}

typedef struct row {
    double wall_s[WAYS][MOST_CALLS];
    double cpu_s[WAYS];
    uint32_t calls;
} row;

/* One call with each transport; the order alternates. */
static ty_status pair_time(ty_transport *t, operation what, void *buffer, uint64_t bytes, row *r,
                           ty_error *error)
{
    for (uint32_t i = 0; i < WAYS; i++) {
        const uint32_t way = (i + r->calls) % WAYS; /* 0: shared memory */
        double wall_s, cpu_s;

        TY_TRY(ty_transport_barrier(t, error));
        ty_transport_mpi_share(t, way == 0);
        TY_TRY(ty_transport_barrier(t, error));
        wall_s = clock_s(CLOCK_MONOTONIC);
        cpu_s = clock_s(CLOCK_PROCESS_CPUTIME_ID);
        TY_TRY(operate(t, what, buffer, bytes, error));
        r->wall_s[way][r->calls] = clock_s(CLOCK_MONOTONIC) - wall_s;
        r->cpu_s[way] += clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu_s;
        TY_TRY(ty_transport_barrier(t, error));
        ty_transport_mpi_share(t, true);
    }
    r->calls++;
    return TY_OK;
}

static ty_status sum_over_ranks(ty_transport *t, double *values, uint64_t count, ty_error *error)
{
    return ty_collective_run(t,
                             &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                      .algorithm = TY_TREE,
                                                      .member_count = t->size,
                                                      .data = values,
                                                      .count = count,
                                                      .element = TY_ELEMENT_DOUBLE,
                                                      .tag = TAG},
                             error);
}

/* Number of calls that fit into the time, equal on all ranks. */
static ty_status calls_agree(ty_transport *t, double pair_s, double budget_s, uint32_t *calls,
                             ty_error *error)
{
    ty_status status = sum_over_ranks(t, &pair_s, 1, error);
    const double fitting = budget_s / (pair_s / t->size);

    *calls = fitting > MOST_CALLS    ? MOST_CALLS
             : fitting < LEAST_CALLS ? LEAST_CALLS
                                     : (uint32_t)fitting;
    return status;
}

static ty_status row_time(ty_transport *t, operation what, uint64_t bytes, double budget_s,
                          void *buffer, bool is_first, ty_error *error)
{
    static row r;
    double started_s = clock_s(CLOCK_MONOTONIC);
    const double to_us = 1e6 / (what == TRANSFER ? 2 : 1);
    uint32_t calls;

    r.calls = 0;
    TY_TRY(pair_time(t, what, buffer, bytes, &r, error));
    TY_TRY(calls_agree(t, clock_s(CLOCK_MONOTONIC) - started_s, budget_s, &calls, error));
    r.calls = 0;
    r.cpu_s[0] = r.cpu_s[1] = 0;
    while (r.calls < calls)
        TY_TRY(pair_time(t, what, buffer, bytes, &r, error));
    TY_TRY(sum_over_ranks(t, r.cpu_s, WAYS, error));
    for (uint32_t w = 0; w < WAYS; w++)
        qsort(r.wall_s[w], calls, sizeof r.wall_s[w][0], ascending);
    if (t->rank == 0)
        printf("%s\n    {\"operation\": \"%s\", \"ranks\": %u, \"bytes\": %llu, \"calls\": %u, "
               "\"shared_us\": %.2f, \"mpi_us\": %.2f, \"wall_ratio\": %.2f, "
               "\"shared_cpu_us\": %.2f, \"mpi_cpu_us\": %.2f, \"cpu_ratio\": %.2f}",
               is_first ? "" : ",", names[what], t->size, (unsigned long long)bytes, calls,
               r.wall_s[0][calls / 2] * to_us, r.wall_s[1][calls / 2] * to_us,
               r.wall_s[1][calls / 2] / r.wall_s[0][calls / 2], r.cpu_s[0] / calls * to_us,
               r.cpu_s[1] / calls * to_us, r.cpu_s[1] / r.cpu_s[0]);
    return TY_OK;
}

static ty_status rows_time(ty_transport *t, double budget_s, ty_error *error)
{
    void *buffer = ty_alloc(1, sizes[SIZES - 1]); /* sums of zeros stay zeros */
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(buffer != NULL, error));
    if (t->rank == 0)
        printf("{\n  \"rows\": [");
    for (operation what = 0; what < OPERATIONS && status == TY_OK; what++)
        for (uint32_t i = 0; i < SIZES && status == TY_OK; i++)
            status = row_time(t, what, sizes[i], budget_s, buffer, what == 0 && i == 0, error);
    if (t->rank == 0)
        printf("\n  ]\n}\n");
    ty_free(buffer);
    return status;
}

int main(int argc, char **argv)
{
    const double budget_s = argc > 1 ? strtod(argv[1], NULL) : 0.5;
    ty_transport *t = NULL;
    ty_error error = {0};
    ty_status status = TY_OK;

    setenv("TRAINYARD_LINK", "shared", 1); /* else both transports might be MPI's */
    prctl(PR_SET_TIMERSLACK, 1000UL);      /* as the communication thread */
    TY_CHECK(ty_transport_mpi(&t, &error), status, done);
    if (t->size < 2)
        status = ty_fail(&error, TY_EINVAL, "found one rank, expected mpirun -n 2 or more");
    else
        status = rows_time(t, budget_s, &error);
done:
    if (status != TY_OK)
        fprintf(stderr, "bench_exchanges: %s\n", error.message);
    if (t != NULL) {
        t->is_broken = status != TY_OK;
        t->close(t);
    }
    return status == TY_OK ? EXIT_SUCCESS : EXIT_FAILURE;
}
