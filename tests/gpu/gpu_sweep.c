/* Collectives between devices over the link that training uses, as a log of nccl-tests. */
#include "../execute/rank_threads.h"
#include "device_link.h"
#include "gpu_cases.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_USAGE = 2, EXIT_SKIP = 77, WARM_UPS = 3, CALLS = 20, SMALLEST_BYTES = 1024 };

/* The name in nccl-tests, and the bytes on the busiest link relative to the message: (n - 1) / n,
 * twice that for an all-reduce (its doc/PERFORMANCE.md). */
typedef struct swept {
    const char *name, *program;
    ty_collective_kind kind;
    ty_element element;
    double rounds;
} swept;
static const swept collectives[] = {
    {"all_reduce", "all_reduce_perf", TY_ALL_REDUCE, TY_ELEMENT_FLOAT, 2},
    {"all_gather", "all_gather_perf", TY_ALL_GATHER, TY_ELEMENT_BYTE, 1},
    {"reduce_scatter", "reduce_scatter_perf", TY_REDUCE_SCATTER, TY_ELEMENT_FLOAT, 1},
    {"all_to_all", "alltoall_perf", TY_ALL_TO_ALL, TY_ELEMENT_BYTE, 1},
};

/* Shared by all ranks, which are threads. */
static struct {
    const swept *what;
    uint32_t ranks;
    uint64_t largest_bytes;
    ty_plan *plan;
    ty_program *program;
    atomic_bool shares; /* two ranks per GPU */
} sweep;

static ty_status call_run(ty_device_link *link, const ty_collective_options *options,
                          ty_error *error)
{
    ty_request *request = NULL;
    bool is_done = false;
    ty_status status = link->exchange(link, options, &request, error);

    while (status == TY_OK && !is_done)
        status = link->test(link, request, &is_done, error);
    return status;
}

/* A rank's input is its index plus one, in every float. The result is the sum of all inputs, or the
 * input of the rank that owns the shard. Counts the wrong floats in the output. */
static uint64_t wrong_count(const float *data, uint64_t count, uint32_t rank)
{
    const uint32_t n = sweep.ranks;
    const uint64_t part = count / n;
    const bool is_sum = sweep.what->element == TY_ELEMENT_FLOAT;
    const bool is_share = sweep.what->kind == TY_REDUCE_SCATTER;
    uint64_t wrong_ones = 0;

    for (uint64_t i = is_share ? rank * part : 0; i < (is_share ? (rank + 1) * part : n * part);
         i++)
        wrong_ones += data[i] != (float)(is_sum ? n * (n + 1) / 2 : i / part + 1);
    return wrong_ones;
}

static ty_status result_check(const ty_link_options *to, ty_device_link *link,
                              const ty_collective_options *options, uint64_t bytes, float *host,
                              ty_error *error)
{
    const ty_device_memory *memory = gpu->memory;
    const uint64_t count = bytes / sizeof *host;
    uint64_t wrong_ones;
    ty_status status;

    for (uint64_t i = 0; i < count; i++)
        host[i] = (float)(to->transport->rank + 1);
    TY_CHECK(memory->write(to->stage, options->data, host, bytes, error), status, done);
    TY_CHECK(call_run(link, options, error), status, done);
    TY_CHECK(memory->read(to->stage, host, options->data, bytes, error), status, done);
    wrong_ones = wrong_count(host, count, to->transport->rank);
    if (wrong_ones > 0)
        status = ty_fail(error, TY_EBACKEND, "%s of %llu bytes: %llu of %llu numbers are wrong",
                         sweep.what->name, (unsigned long long)bytes,
                         (unsigned long long)wrong_ones, (unsigned long long)count);
done:
    return status;
}

/* Zeros stay zeros, for any number of sums. */
static ty_status row_measure(const ty_link_options *to, ty_device_link *link, float *data,
                             float *host, uint64_t bytes, ty_error *error)
{
    const swept *what = sweep.what;
    const uint32_t n = sweep.ranks;
    const uint64_t size = ty_element_bytes(what->element);
    const bool is_of_parts = what->element == TY_ELEMENT_BYTE;
    uint32_t members[RANK_THREADS_MOST];
    ty_collective_options options = {.kind = what->kind,
                                     .members = members,
                                     .member_count = n,
                                     .data = data,
                                     .count = is_of_parts ? bytes / n : bytes / size,
                                     .element = what->element};
    double started_s, us, algorithm;

    for (uint32_t m = 0; m < n; m++)
        members[m] = m;
    TY_TRY(result_check(to, link, &options, bytes, host, error));
    memset(host, 0, bytes);
    TY_TRY(gpu->memory->write(to->stage, data, host, bytes, error));
    for (int i = 0; i < WARM_UPS; i++)
        TY_TRY(call_run(link, &options, error));
    TY_TRY(ty_transport_barrier(to->transport, error));
    started_s = ty_now_s();
    for (int i = 0; i < CALLS; i++)
        TY_TRY(call_run(link, &options, error));
    us = (ty_now_s() - started_s) / CALLS * 1e6;
    algorithm = (double)bytes / us * 1e-3;
    if (to->transport->rank == 0) {
        printf("%12llu %12llu %8s %6s %6d", (unsigned long long)bytes,
               (unsigned long long)(bytes / sizeof *host / (is_of_parts ? n : 1)), "float",
               is_of_parts ? "none" : "sum", -1);
        for (int half = 0; half < 2; half++)
            printf(" %9.2f %7.3f %7.3f %5d", us, algorithm, algorithm * what->rounds * (n - 1) / n,
                   0);
        printf("\n");
        fflush(stdout);
    }
    return TY_OK;
}

static ty_status rank_sweep(ty_transport *transport, ty_error *error)
{
    ty_stage_options options = {.workload = sweep.plan->workload,
                                .layer_count = sweep.plan->workload->layer_count,
                                .micro_batch_size = 2,
                                .slots = 1,
                                .loss_scale = 1,
                                .tied_layer = TY_NO_LAYER,
                                .local_rank = transport->rank};
    ty_link_options to = {.plan = sweep.plan,
                          .program = sweep.program,
                          .backend = gpu,
                          .transport = transport,
                          .all_to_all_bytes =
                              sweep.what->kind == TY_ALL_TO_ALL ? sweep.largest_bytes : 0};
    ty_device_identity own;
    ty_device_link *link = NULL;
    float *data = NULL, *host = ty_alloc(1, sweep.largest_bytes);
    uint32_t first = 0;
    ty_status status;

    TY_CHECK(gpu->open(&options, &to.stage, error), status, cleanup);
    own = gpu->memory->identity(to.stage);
    TY_CHECK(ty_device_first_user(transport, &own, &first, error), status, cleanup);
    if (first != transport->rank) {
        atomic_store(&sweep.shares, true);
        status = ty_fail(error, TY_EUNSUPPORTED, "ranks share a GPU");
    }
    TY_CHECK(ty_transport_agree(transport, status, error), status, cleanup);
    data = gpu->memory->allocate(to.stage, sweep.largest_bytes);
    if (data == NULL || host == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory for %llu bytes",
                         (unsigned long long)sweep.largest_bytes);
    TY_CHECK(ty_transport_agree(transport, status, error), status, cleanup);
    TY_CHECK(ty_device_link_open(&to, &link, error), status, cleanup);
    if (transport->rank == 0)
        printf("# over %s\n#       size        count     type  redop   root      time   algbw   "
               "busbw #wrong      time   algbw   busbw #wrong\n",
               link->name);
    for (uint64_t bytes = SMALLEST_BYTES; bytes <= sweep.largest_bytes && status == TY_OK;
         bytes *= 4)
        status = row_measure(&to, link, data, host, bytes, error);
cleanup:
    if (status != TY_OK)
        transport->is_broken = true;
    if (link != NULL)
        link->close(link);
    if (data != NULL)
        gpu->memory->release(to.stage, data);
    if (to.stage != NULL)
        gpu->close(to.stage);
    ty_free(host);
    return status;
}

int sweep_run(const char *collective, uint32_t ranks, uint64_t largest_bytes)
{
    plan_shape shape = {.name = "sweep", .replicas = {ranks}, .buckets = 1};
    ty_error error = {0};
    char host[64] = "";
    ty_status status;

    for (size_t i = 0; i < sizeof collectives / sizeof *collectives; i++)
        if (strcmp(collectives[i].name, collective) == 0)
            sweep.what = &collectives[i];
    if (sweep.what == NULL || ranks < 2 || ranks > RANK_THREADS_MOST ||
        (ranks & (ranks - 1)) != 0 || largest_bytes < SMALLEST_BYTES) {
        fprintf(
            stderr,
            "found --sweep %s %u %llu, expected a collective, a power of two of 2 to %d ranks, at "
            "least %d bytes\n",
            collective, ranks, (unsigned long long)largest_bytes, RANK_THREADS_MOST,
            SMALLEST_BYTES);
        return EXIT_USAGE;
    }
    if (ty_device_backend_find("cuda", false, &gpu, &error) != TY_OK) {
        fprintf(stderr, "%s\n", error.message);
        return EXIT_SKIP;
    }
    sweep.ranks = ranks;
    sweep.largest_bytes = largest_bytes;
    shape.global_batch = 2 * ranks;
    shape.micro_batch_size = 2;
    sweep.plan = make_plan(mlp_small, &shape);
    gethostname(host, sizeof host - 1);
    printf("# %s, as the link of trainyard-worker runs it\n", sweep.what->program);
    for (uint32_t r = 0; r < ranks; r++)
        printf("#  Rank %2u Group  0 Pid %6d on %s device %2u\n", r, (int)getpid(), host, r);
    status = ty_plan_lower(sweep.plan, &sweep.program, &error);
    if (status == TY_OK)
        status = rank_threads_all(ty_transport_local, ranks, rank_sweep, &error);
    ty_program_free(sweep.program);
    ty_plan_free(sweep.plan);
    if (atomic_load(&sweep.shares))
        fprintf(stderr, "%u ranks would share a GPU\n", ranks);
    else if (status != TY_OK)
        fprintf(stderr, "%s\n", error.message);
    return atomic_load(&sweep.shares) ? EXIT_SKIP : status != TY_OK;
}
