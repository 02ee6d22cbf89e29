/* Cases for the thread sanitizer: transports, collectives and complete jobs with threads for ranks.
 * They are in a plain program, since Criterion's processes do not start under that sanitizer. */
#include "collective_cases.h"
#include "plans.h"
#include "rank_threads.h"
#include "shared_ranks.h"

#include <math.h>
#include <stdio.h>

enum { STEPS = 5 };

/* oneDNN is not compiled with the sanitizer, which therefore does not see the guards of its lazily
 * created tables and locks. Reports with a frame of that library are not of this program. */
const char *__tsan_default_suppressions(void);
const char *__tsan_default_suppressions(void)
{
    return "race:libdnnl.so";
}

/* The test's output must not name the sanitizer. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "print_suppressions=0";
}

static ty_status transport_cases(ty_transport *transport, ty_error *error)
{
    const ty_status status = message_cases_run(transport, error);

    return status == TY_OK ? collective_cases_run(transport, error) : status;
}

/* A source with a fixed rate always has an input thread, for any number of cores. */
static const double pace_s = 1e-6;

static ty_status job_run(const char *workload, const plan_shape *shape, bool has_input_thread,
                         double losses[STEPS], ty_error *error)
{
    char *directory = directory_make();
    ty_plan *plan = make_plan(workload, shape);
    ty_job *job = NULL;
    ty_run *run = NULL;
    uint32_t i;
    ty_status status;

    plan->workload->input_s_per_sample = has_input_thread ? pace_s : 0;
    TY_CHECK(ty_workload_digest(plan->workload, &plan->workload_digest, error), status, cleanup);
    job = make_job(plan, STEPS, directory);
    if (job->plan->workload->tokens_per_sample == 0) { /* a test set of sequences would take long */
        job->until.accuracy = 1;
        job->evaluate_every = 3;
    }
    TY_CHECK(ty_execute_job_locally(job, ty_plan_launched_count(job->plan),
                                    &(ty_execute_options){0}, error),
             status, cleanup);
    TY_CHECK(ty_run_load(job->output, &run, error), status, cleanup);
    for (i = 0; i < STEPS; i++)
        losses[i] = run->losses[i];
cleanup:
    ty_run_free(run);
    ty_job_free(job);
    directory_remove(directory);
    return status;
}

#define BATCH .global_batch = 12, .micro_batch_size = 2
static const plan_shape of_ranks[] = {
    {"one rank", .replicas = {1}, .buckets = 1, BATCH},
    {"data parallel 3, ring", .replicas = {3}, .buckets = 3, BATCH},
    {"data parallel 2, all of top-k", .replicas = {2}, .buckets = 2, BATCH,
     .compression.kind = TY_COMPRESSION_TOP_K, .compression.ratio = 1},
    {"gpipe 3 stages", .schedule = TY_GPIPE, .replicas = {1, 1, 1}, .cuts = {2, 5}, .buckets = 1,
     BATCH},
    {"1f1b 3 stages, recompute", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1, 1}, .cuts = {2, 5},
     .buckets = 1, BATCH, .recompute = TY_RECOMPUTE_FULL},
    {"interleaved 2 x 2", .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5},
     .buckets = 1, BATCH, .virtual_stages = 2},
    {"zb-h1 3 stages", .schedule = TY_ZERO_BUBBLE, .replicas = {1, 1, 1}, .cuts = {2, 5},
     .buckets = 1, BATCH},
    {"zb-2p 3 stages", .schedule = TY_ZERO_BUBBLE_2P, .replicas = {1, 1, 1}, .cuts = {2, 5},
     .buckets = 1, BATCH},
    {"zero 3, 3 replicas", .replicas = {3}, .buckets = 3, BATCH, .zero = 3},
    {"1f1b 2+1, tree", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5}, .buckets = 2,
     BATCH, .algorithm = TY_TREE},
};

static const plan_shape of_parallel[] = {
    {"one rank", .replicas = {1}, .buckets = 1, BATCH},
    {"data parallel 2 of 2 ranks", .replicas = {2}, .buckets = 2, BATCH, .tp = 2},
    {"1f1b 2 stages of 2 ranks along the sequence", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1},
     .cuts = {13}, .buckets = 1, BATCH, .tp = 2, .divides_sequence = true},
    {"2 contexts of 2 ranks", .replicas = {1}, .buckets = 2, BATCH, .tp = 2, .contexts = 2},
};

static const plan_shape of_inputs[] = {
    {"data parallel 2", .replicas = {2}, .buckets = 2, BATCH},
    {"1f1b 2 stages, recompute", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {3},
     .buckets = 1, BATCH, .recompute = TY_RECOMPUTE_FULL},
    {"interleaved 2 x 2", .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5},
     .buckets = 1, BATCH, .virtual_stages = 2},
};

/* All have the same staleness: they train alike. */
static const plan_shape of_late[] = {
    {"data parallel 2, a step late", .replicas = {2}, .buckets = 3, BATCH, .staleness = 1},
    {"data parallel 3, all of top-k, a step late", .replicas = {3}, .buckets = 2, BATCH,
     .compression.kind = TY_COMPRESSION_TOP_K, .compression.ratio = 1, .staleness = 1},
    {"1f1b 2+1, a step late", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {5},
     .buckets = 2, BATCH, .staleness = 1},
    {"2 and 2 servers, a step late", .replicas = {2}, .buckets = 3, BATCH, .staleness = 1,
     .algorithm = TY_PARAMETER_SERVER, .servers = 2, .shard = TY_SHARD_TENSOR},
};

static ty_status jobs_run(const char *workload, const plan_shape *shapes, size_t count,
                          ty_error *error)
{
    double expected[STEPS], found[STEPS];
    ty_status status = job_run(workload, &shapes[0], false, expected, error);

    for (size_t i = 1; i < count && status == TY_OK; i++) {
        status = job_run(workload, &shapes[i], false, found, error);
        for (uint32_t s = 0; s < STEPS && status == TY_OK; s++) {
            if (fabs(found[s] - expected[s]) > 1e-3 * expected[s])
                status = ty_fail(error, TY_EBACKEND, "%s: loss of step %u is %g, expected %g",
                                 shapes[i].name, s, found[s], expected[s]);
        }
    }
    return status;
}

/* Losses are the same to the bit with or without an input thread, also with recomputed stages, and
 * with test passes between steps. */
static ty_status inputs_run(const char *workload, const plan_shape *shapes, size_t count,
                            ty_error *error)
{
    double expected[STEPS], found[STEPS];
    ty_status status = TY_OK;

    for (size_t i = 0; i < count && status == TY_OK; i++) {
        TY_CHECK(job_run(workload, &shapes[i], false, expected, error), status, done);
        TY_CHECK(job_run(workload, &shapes[i], true, found, error), status, done);
        for (uint32_t s = 0; s < STEPS && status == TY_OK; s++)
            if (found[s] != expected[s])
                status = ty_fail(error, TY_EBACKEND,
                                 "%s of %s: loss of step %u is %.17g with an input thread, "
                                 "expected %.17g",
                                 shapes[i].name, workload, s, found[s], expected[s]);
    }
done:
    return status;
}

int main(void)
{
    static const uint32_t sizes[] = {2, 3, 5}; /* sizes of groups of ranks */
    ty_error error = {0};
    ty_status status;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        TY_CHECK(rank_threads_all(ty_transport_local, sizes[i], transport_cases, &error), status,
                 done);
        TY_CHECK(rank_threads_all(shared_ranks_open, sizes[i], transport_cases, &error), status,
                 done);
    }
    TY_CHECK(jobs_run(narrow("mlp"), of_ranks, sizeof of_ranks / sizeof of_ranks[0], &error),
             status, done);
    TY_CHECK(jobs_run(narrow("mlp"), of_late, sizeof of_late / sizeof of_late[0], &error), status,
             done);
    TY_CHECK(jobs_run("gpt-tiny sequence=16", of_parallel,
                      sizeof of_parallel / sizeof of_parallel[0], &error),
             status, done);
    TY_CHECK(inputs_run("lenet", of_inputs, sizeof of_inputs / sizeof of_inputs[0], &error), status,
             done);
    status = inputs_run("gpt-tiny sequence=16", &of_parallel[3], 1, &error);
done:
    if (status != TY_OK)
        fprintf(stderr, "%s\n", error.message);
    else
        puts("all threads agree");
    return status == TY_OK ? 0 : 1;
}
