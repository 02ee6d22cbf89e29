/* Checkpoints: a run that was cut anywhere goes on as if it had not been, and whatever goes wrong
 * leaves the last checkpoint as it was. */
#include "plans.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { STEPS = 6, EVERY = 3 };

#define BATCH .global_batch = 24, .micro_batch_size = 3
static const plan_shape shapes[] = {
    {"one rank", .replicas = {1}, .buckets = 1, BATCH},
    {"data parallel 2, top-k", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1}},
    {"1f1b 2+1", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {3}, .buckets = 2, BATCH},
    {"zero 3, 3 replicas", .replicas = {3}, .buckets = 2, .global_batch = 24, .micro_batch_size = 4,
     .zero = 3},
    {"interleaved 2 x 2", .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5},
     .buckets = 1, BATCH, .interleave = 2},
    {"pipedream 3 stages", .schedule = TY_PIPEDREAM, .replicas = {1, 1, 1}, .cuts = {2, 4},
     .buckets = 1, .global_batch = 24, .micro_batch_size = 12},
    {"2bw 2 stages", .schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {3}, .buckets = 1,
     BATCH},
    {"data parallel 2, random-k", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_RANDOM_K, .ratio = 0.1}},
    {"data parallel 2, dgc in its warm-up", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_DGC, .ratio = 0.01, .warmup_steps = 5}},
    {"data parallel 2, powersgd", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_POWERSGD, .rank = 2}},
    {"data parallel 2, one-bit", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_ONE_BIT}},
    {"data parallel 2, ternary", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_TERNARY}},
    {"data parallel 2, int8", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_INT8}},
};

typedef struct fixture {
    char *directory;
    char checkpoint[512], latest[600];
} fixture;

static fixture fixture_make(void)
{
    fixture f = {.directory = directory_make()};

    snprintf(f.checkpoint, sizeof f.checkpoint, "%s/state", f.directory);
    snprintf(f.latest, sizeof f.latest, "%s/latest.json", f.checkpoint);
    return f;
}

static void fixture_free(fixture *f)
{
    char command[600];

    snprintf(command, sizeof command, "rm -rf %s", f->checkpoint);
    cr_assert_eq(system(command), 0);
    directory_remove(f->directory);
}

static ty_status run(const fixture *f, const plan_shape *shape, uint32_t steps, bool resume,
                     ty_run **out, ty_error *error)
{
    ty_job *job = make_job(make_plan("mlp", shape), steps, f->directory);
    ty_status status;

    ty_free(job->gradients); /* saving them would end a stretch */
    job->gradients = NULL;
    job->checkpoint = ty_strdup(f->checkpoint);
    job->checkpoint_every = EVERY;
    job->resume = resume;
    status =
        ty_execute_job_locally(job, ty_plan_rank_count(job->plan), &(ty_execute_options){0}, error);
    if (status == TY_OK && out != NULL)
        status = ty_run_load(job->output, out, error);
    ty_job_free(job);
    return status;
}

static void must_run(const fixture *f, const plan_shape *shape, uint32_t steps, bool resume,
                     ty_run **out)
{
    ty_error error = {0};

    cr_assert_eq(run(f, shape, steps, resume, out, &error), TY_OK, "%s: %s", shape->name,
                 error.message);
}

/* Bit for bit: optimizer state, residuals, versions, order of samples, everything. */
Test(checkpoint, going_on_is_as_if_never_stopped)
{
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fixture whole = fixture_make(), cut = fixture_make();
        ty_run *expected = NULL, *found = NULL;

        must_run(&whole, &shapes[i], STEPS, false, &expected);
        must_run(&cut, &shapes[i], EVERY, false, NULL);
        must_run(&cut, &shapes[i], STEPS, true, &found);
        cr_assert_eq(found->step_count, STEPS);
        for (uint32_t s = 0; s < STEPS; s++)
            cr_assert_eq(found->losses[s], expected->losses[s],
                         "%s: loss of step %u is %.17g, expected %.17g", shapes[i].name, s,
                         found->losses[s], expected->losses[s]);
        ty_run_free(expected);
        ty_run_free(found);
        fixture_free(&whole);
        fixture_free(&cut);
    }
}

static void expect_failure(const fixture *f, const plan_shape *shape, uint32_t steps, bool resume,
                           ty_status expected, const char *words)
{
    ty_error error = {0};
    const ty_status status = run(f, shape, steps, resume, NULL, &error);

    cr_assert_eq(status, expected, "status %d: %s", (int)status, error.message);
    cr_assert_not_null(strstr(error.message, words), "found \"%s\", expected \"%s\"", error.message,
                       words);
}

Test(checkpoint, says_what_does_not_fit)
{
    fixture f = fixture_make();
    plan_shape other = shapes[2];

    expect_failure(&f, &shapes[2], STEPS, true, TY_EIO, "there is no checkpoint");
    must_run(&f, &shapes[2], EVERY, false, NULL);
    expect_failure(&f, &shapes[2], STEPS, false, TY_EINVAL, "of an earlier run");
    expect_failure(&f, &shapes[0], STEPS, true, TY_EPARSE, "of 1 ranks as the plan has");
    other.buckets = 1;
    expect_failure(&f, &other, STEPS, true, TY_EPARSE, "this very plan");
    expect_failure(&f, &shapes[2], EVERY, true, TY_EPARSE, "fewer than 3 steps");
    must_run(&f, &shapes[2], STEPS, true, NULL);
    fixture_free(&f);
}

static void change(const char *path, long from_end, bool is_cut)
{
    FILE *file = fopen(path, "r+b");
    long length;
    int byte;

    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, 0, SEEK_END), 0);
    length = ftell(file) - from_end;
    if (is_cut) {
        cr_assert_eq(ftruncate(fileno(file), length), 0);
    } else {
        cr_assert_eq(fseek(file, length, SEEK_SET), 0);
        byte = fgetc(file);
        cr_assert_eq(fseek(file, length, SEEK_SET), 0);
        fputc(byte ^ 1, file);
    }
    fclose(file);
}

Test(checkpoint, tells_damage)
{
    fixture f = fixture_make();
    char path[700];

    must_run(&f, &shapes[2], EVERY, false, NULL);
    snprintf(path, sizeof path, "%s/step-%d/rank-1", f.checkpoint, EVERY);
    change(path, 1000, false);
    expect_failure(&f, &shapes[2], STEPS, true, TY_EPARSE, "SHA-256");
    change(path, 1000, false);
    change(path, 5, true);
    expect_failure(&f, &shapes[2], STEPS, true, TY_EPARSE, "rank-1: truncated in section");
    unlink(path);
    expect_failure(&f, &shapes[2], STEPS, true, TY_EIO, "rank-1: No such file");
    fixture_free(&f);
}

/* A file that cannot grow, as on a full disk. */
Test(checkpoint, full_disk_loses_nothing)
{
    fixture f = fixture_make();
    struct rlimit limit, all;
    ty_run *found = NULL;

    signal(SIGXFSZ, SIG_IGN);
    must_run(&f, &shapes[2], EVERY, false, NULL);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
    limit = all;
    limit.rlim_cur = 2000000;
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_failure(&f, &shapes[2], STEPS, true, TY_EIO, "File too large");
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
    must_run(&f, &shapes[2], STEPS, true, &found);
    cr_assert_eq(found->step_count, STEPS);
    ty_run_free(found);
    fixture_free(&f);
}

/* The loss overflows behind the first checkpoint, which stays. */
Test(checkpoint, divergence_loses_nothing)
{
    fixture f = fixture_make();
    ty_job *job = make_job(make_plan("mlp", &shapes[2]), 200, f.directory);
    ty_error error = {0};
    ty_status status;

    job->plan->optimizer.learning_rate = 3;
    ty_program_free(job->program);
    job->program = NULL;
    cr_assert_eq(ty_plan_lower(job->plan, &job->program, &error), TY_OK, "%s", error.message);
    job->checkpoint = ty_strdup(f.checkpoint);
    job->checkpoint_every = 1;
    status = ty_execute_job_locally(job, 3, &(ty_execute_options){0}, &error);
    cr_assert_eq(status, TY_EBACKEND, "%s", error.message);
    cr_assert_not_null(strstr(error.message, "finite"), "%s", error.message);
    cr_assert(ty_file_exists(f.latest));
    /* What is named is there. */
    job->steps = 1000;
    job->resume = true;
    status = ty_execute_job_locally(job, 3, &(ty_execute_options){0}, &error);
    cr_assert_eq(status, TY_EBACKEND, "%s", error.message);
    ty_job_free(job);
    fixture_free(&f);
}
