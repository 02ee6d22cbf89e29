/* Send/recv and collectives between the started ranks, with the same state machines and the same
 * sleeping as in training. */
#include "profile_job.h"

#include <time.h>

enum { TRANSFER_TAG = 8, COLLECTIVE_TAG = 9, MAX_REPETITIONS = 200 };

static const uint64_t sizes[] = {
    UINT64_C(1) << 10, UINT64_C(1) << 12, UINT64_C(1) << 14, UINT64_C(1) << 16,
    UINT64_C(1) << 18, UINT64_C(1) << 20, UINT64_C(1) << 22, UINT64_C(1) << 24,
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static double cpu_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Repetitions after a first call of `first_s`, the same on all members: the mean over them has the
 * same bits on each. Calls of seconds, on slow networks, vary little. */
static ty_status repetitions_agree(const ty_profiler *p, uint32_t members, double first_s,
                                   uint32_t *count, ty_error *error)
{
    const double budget_s = 0.05 / p->haste, long_s = 0.4 / p->haste;
    const uint32_t least = ty_profiler_least(p, 5);
    double mean_s = first_s;
    ty_status status = ty_collective_run(p->transport,
                                         &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                                  .algorithm = TY_TREE,
                                                                  .member_count = members,
                                                                  .data = &mean_s,
                                                                  .count = 1,
                                                                  .element = TY_ELEMENT_DOUBLE,
                                                                  .tag = COLLECTIVE_TAG},
                                         error);

    mean_s /= members;
    if (mean_s > long_s)
        *count = 1;
    else
        *count = mean_s * MAX_REPETITIONS < budget_s ? MAX_REPETITIONS
                 : mean_s * least > budget_s         ? least
                                                     : (uint32_t)(budget_s / mean_s);
    return status;
}

/* One round trip. */
static ty_status round_trip(ty_transport *transport, char *buffer, uint64_t bytes, ty_error *error)
{
    const uint32_t peer = 1 - transport->rank;
    ty_status status = TY_OK;

    if (transport->rank == 0)
        TY_CHECK(ty_transport_send(transport, peer, TRANSFER_TAG, buffer, bytes, error), status,
                 done);
    TY_CHECK(ty_transport_receive(transport, peer, TRANSFER_TAG, buffer, bytes, error), status,
             done);
    if (transport->rank == 1)
        status = ty_transport_send(transport, peer, TRANSFER_TAG, buffer, bytes, error);
done:
    return status;
}

/* Half of a round trip. */
static ty_status transfer_time(const ty_profiler *p, char *buffer, uint64_t bytes, double *seconds,
                               double *cpu_s, ty_error *error)
{
    ty_transport *transport = p->transport;
    double samples[MAX_REPETITIONS], started_s = ty_now_s(), cpu_started_s;
    uint32_t count = 0, i;

    TY_TRY(round_trip(transport, buffer, bytes, error));
    TY_TRY(repetitions_agree(p, 2, (ty_now_s() - started_s) / 2, &count, error));
    cpu_started_s = cpu_now_s();
    for (i = 0; i < count; i++) {
        started_s = ty_now_s();
        TY_TRY(round_trip(transport, buffer, bytes, error));
        samples[i] = (ty_now_s() - started_s) / 2;
    }
    *seconds = ty_median(samples, count);
    *cpu_s = (cpu_now_s() - cpu_started_s) / (2.0 * count);
    return TY_OK;
}

ty_status ty_profile_transfers(ty_profiler *p, ty_error *error)
{
    ty_profile *profile = p->profile;
    char *buffer = ty_alloc(1, sizes[SIZES - 1]);
    ty_status status = TY_OK;

    profile->transfer_times = ty_alloc(SIZES, sizeof *profile->transfer_times);
    TY_CHECK(ty_check_memory(buffer != NULL && profile->transfer_times != NULL, error), status,
             cleanup);
    for (uint32_t i = 0; i < SIZES && p->transport->size > 1; i++) {
        double seconds = 0, cpu_s = 0;

        TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
        if (p->transport->rank < 2)
            TY_CHECK(transfer_time(p, buffer, sizes[i], &seconds, &cpu_s, error), status, cleanup);
        profile->transfer_times[profile->transfer_time_count++] =
            (ty_transfer_time){sizes[i], seconds, cpu_s};
    }
cleanup:
    ty_free(buffer);
    return status;
}

static ty_status collective_time(ty_profiler *p, ty_collective_time *row, void *buffer,
                                 ty_error *error)
{
    const bool is_sum = row->kind == TY_ALL_REDUCE || row->kind == TY_REDUCE_SCATTER;
    ty_collective_options options = {.kind = row->kind,
                                     .algorithm = row->algorithm,
                                     .member_count = row->ranks,
                                     .data = buffer,
                                     .count = is_sum ? row->bytes / sizeof(float)
                                              : row->kind == TY_ALL_TO_ALL ? row->bytes / row->ranks
                                                                           : row->bytes,
                                     .element = is_sum ? TY_ELEMENT_FLOAT : TY_ELEMENT_BYTE,
                                     .tag = COLLECTIVE_TAG};
    double samples[MAX_REPETITIONS], started_s;
    uint32_t count = 0;

    TY_TRY(ty_transport_barrier(p->transport, error));
    if (p->transport->rank >= row->ranks)
        return TY_OK;
    started_s = ty_now_s();
    TY_TRY(ty_collective_run(p->transport, &options, error));
    TY_TRY(repetitions_agree(p, row->ranks, ty_now_s() - started_s, &count, error));
    for (uint32_t i = 0; i < count; i++) {
        started_s = ty_now_s();
        TY_TRY(ty_collective_run(p->transport, &options, error));
        samples[i] = ty_now_s() - started_s;
    }
    row->seconds = ty_median(samples, count);
    return TY_OK;
}

ty_status ty_profile_collectives(ty_profiler *p, uint32_t ranks, ty_error *error)
{
    static const struct {
        ty_collective_kind kind;
        ty_algorithm algorithm;
    } kinds[] = {{TY_ALL_REDUCE, TY_RING},
                 {TY_ALL_REDUCE, TY_TREE},
                 {TY_ALL_REDUCE, TY_PARAMETER_SERVER},
                 {TY_REDUCE_SCATTER, TY_RING},
                 {TY_ALL_GATHER, TY_RING},
                 {TY_ALL_TO_ALL, TY_RING}};
    enum { KINDS = sizeof kinds / sizeof kinds[0] };
    ty_profile *profile = p->profile;
    void *buffer = ty_alloc(ranks, sizes[SIZES - 1]); /* zeros stay zeros however often summed */
    ty_collective_time *rows = ty_resize(
        profile->collective_times, profile->collective_time_count + SIZES * KINDS, sizeof *rows);
    ty_status status = TY_OK;

    if (rows != NULL)
        profile->collective_times = rows;
    TY_CHECK(ty_check_memory(buffer != NULL && rows != NULL, error), status, cleanup);
    for (uint32_t i = 0; i < SIZES * KINDS; i++) {
        ty_collective_time *row = &rows[profile->collective_time_count];

        *row = (ty_collective_time){.kind = kinds[i / SIZES].kind,
                                    .algorithm = kinds[i / SIZES].algorithm,
                                    .ranks = ranks,
                                    .bytes = sizes[i % SIZES]};
        TY_CHECK(collective_time(p, row, buffer, error), status, cleanup);
        profile->collective_time_count++;
    }
cleanup:
    ty_free(buffer);
    return status;
}
