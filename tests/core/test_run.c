/* Jobs and runs: files there and back, refusals. */
#include "toy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static ty_job *make_job(ty_job_kind kind)
{
    ty_job *job = ty_alloc(1, sizeof *job);

    job->kind = kind;
    job->plan = toy_plan_named("hybrid tied");
    job->backend = ty_strdup("cpu");
    job->output = ty_strdup("out.json");
    if (kind == TY_JOB_TRAIN) {
        job->program = toy_program(job->plan);
        job->data = ty_strdup("/data");
        job->steps = 10;
        job->warmup_steps = 2;
        job->timeline_steps = 8;
        job->until.accuracy = 0.5;
        job->evaluate_every = 3;
        job->gradients = ty_strdup("gradients.bin");
        job->init = ty_strdup("in.safetensors");
        job->save_weights = ty_strdup("out.safetensors");
        job->bad_samples = 7;
    } else {
        job->micro_batch_count = 3;
        job->micro_batches = ty_alloc(3, sizeof *job->micro_batches);
        for (uint32_t i = 0; i < 3; i++)
            job->micro_batches[i] = 1u << i;
    }
    return job;
}

static ty_run *make_run(void)
{
    ty_plan *plan = toy_plan_named("alone");
    ty_program *program = toy_program(plan);
    ty_run *run = ty_alloc(1, sizeof *run);

    cr_assert_eq(ty_timeline_new(plan, 2, &run->timeline, NULL), TY_OK);
    for (uint32_t step = 0; step < 2; step++)
        for (uint32_t i = 0; i < program->stages[0].instruction_count; i++)
            toy_event(run->timeline, step, 0, i, step * 10 + i, step * 10 + i + 0.75);
    run->plan_digest = run->timeline->plan_digest;
    run->backend = ty_strdup("cpu");
    run->machine = ty_strdup("a toy");
    run->versions = ty_strdup("none");
    run->date = ty_strdup("2020-01-01T00:00:00Z");
    run->rank_count = 1;
    run->step_count = 4;
    run->losses = ty_alloc(4, sizeof *run->losses);
    for (uint32_t i = 0; i < 4; i++)
        run->losses[i] = 1.0 / (i + 3);
    run->wall_s = 40.5;
    cr_assert_eq(ty_timeline_summarize(plan, program, run->timeline, &run->summary, NULL), TY_OK);
    run->peak_memory_bytes = ty_alloc(1, sizeof *run->peak_memory_bytes);
    run->peak_memory_bytes[0] = 123456789;
    run->evaluation_count = 1;
    run->evaluations = ty_alloc(1, sizeof *run->evaluations);
    run->evaluations[0] = (ty_evaluation){4, 40.25, 0.875, 0.125};
    ty_program_free(program);
    ty_plan_free(plan);
    return run;
}

Test(run, jobs_go_there_and_back)
{
    for (int kind = TY_JOB_TRAIN; kind <= TY_JOB_PROFILE; kind++) {
        const char *path = toy_path("job.json");
        ty_job *job = make_job((ty_job_kind)kind), *loaded = NULL;
        char *first, *second;
        ty_error error = {0};

        cr_assert_eq(ty_job_save(job, path, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_job_load(path, &loaded, &error), TY_OK, "%s", error.message);
        first = toy_read(path);
        cr_assert_eq(ty_job_save(loaded, path, &error), TY_OK, "%s", error.message);
        second = toy_read(path);
        cr_assert_str_eq(first, second);
        cr_assert_eq(loaded->kind, (ty_job_kind)kind);
        cr_assert_eq(loaded->steps, job->steps);
        cr_assert_eq(loaded->until.accuracy, job->until.accuracy);
        cr_assert_eq((loaded->program == NULL), (kind == TY_JOB_PROFILE));
        cr_assert_eq(loaded->micro_batch_count, job->micro_batch_count);
        ty_free(first);
        ty_free(second);
        ty_job_free(job);
        ty_job_free(loaded);
        remove(path);
    }
}

Test(run, bad_jobs_are_refused_with_pointer)
{
    const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"trainyard.job/1", "trainyard.run/1", ":/schema"},
        {"\"kind\": \"train\"", "\"kind\": \"trian\"", ":/kind: found \"trian\""},
        {"\"kind\": \"train\"", "\"kind\": \"profile\"", "micro_batches"},
        {"\"steps\": 10", "\"steps\": 0", ":/steps: found 0"},
        {"\"steps\": 10", "\"steps\": 10, \"stepz\": 1", "stepz"},
        {"\"steps\": 10", "\"steps\": 9", ":/timeline_steps: found 8, expected at most"},
        {"\"warmup_steps\": 2", "\"warmup_steps\": 11",
         ":/warmup_steps: found 11, expected at "
         "most steps, 10"},
        {"\"accuracy\": 0.5", "\"accuracy\": 50", ":/until/accuracy: found 50"},
        {"\"accuracy\": 0.5", "\"loss\": -1", ":/until/loss: found -1"},
        {"\"accuracy\": 0.5", "\"accuracy\": 0.5, \"loss\": 1", ":/until/accuracy"},
        {"\"evaluate_every\": 3", "\"evaluate_every\": 0", ":/evaluate_every: found 0"},
        {"\"bad_samples\": 7", "\"bad_samples\": -1", ":/bad_samples: found -1"},
        {"\"init\": \"in.safetensors\"", "\"init\": \"\"", ":/init: found"},
        {"\"init\": \"in.safetensors\"",
         "\"init\": \"in.safetensors\", \"checkpoint\": \"c\", \"resume\": true",
         ":/init: found weights to start from with resume"},
        {"\"op\": \"backward\"", "\"op\": \"forward\"", ":/program/stages/0/instructions/"},
        {"\"global_batch\": 24", "\"global_batch\": 25", ":/plan/global_batch: found 25"},
        {"\"seed\": 1", "\"seed\": 2", ":/program/plan_digest: found "},
        {"\"name\": \"embed\"", "\"name\": \"embedding\"",
         ":/plan/workload_digest: this plan was "},
        {"\"kind\": \"relu\"", "\"kind\": \"rely\"", ":/plan/workload/layers/2/kind: found"},
    };
    const char *path = toy_path("bad-job.json");
    ty_job *job = make_job(TY_JOB_TRAIN);
    char *good;

    cr_assert_eq(ty_job_save(job, path, NULL), TY_OK);
    good = toy_read(path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bad = toy_replace(good, rows[i].old, rows[i].new);
        ty_job *loaded = NULL;
        ty_error error = {0};
        toy_write(path, bad);
        cr_expect_eq(ty_job_load(path, &loaded, &error), TY_EPARSE, "row %zu", i);
        cr_expect_null(loaded);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_free(bad);
    }
    remove(path);
    cr_assert_eq(ty_job_load(path, &job, NULL), TY_EIO);
    ty_free(good);
    ty_job_free(job);
}

Test(run, save_refuses_jobs_that_cannot_run)
{
    const char *path = toy_path("refused.json");
    ty_job *job = make_job(TY_JOB_TRAIN);
    ty_error error = {0};

    job->program->stages[0].instruction_count--;
    cr_assert_eq(ty_job_save(job, path, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, "expected one update of bucket"), "%s", error.message);
    job->program->stages[0].instruction_count++;
    job->steps = 1;
    cr_assert_eq(ty_job_save(job, path, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, ":/warmup_steps: found 2"), "%s", error.message);
    cr_assert(!ty_file_exists(path));
    ty_job_free(job);
    job = make_job(TY_JOB_PROFILE);
    job->micro_batches[1] = 0;
    cr_assert_eq(ty_job_save(job, path, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, ":/micro_batches/1: found 0"), "%s", error.message);
    ty_job_free(job);
}

Test(run, runs_go_there_and_back)
{
    for (int has_timeline = 0; has_timeline < 2; has_timeline++) {
        const char *path = toy_path("run.json");
        ty_run *run = make_run(), *loaded = NULL;
        char *first, *second;
        ty_error error = {0};

        if (!has_timeline) {
            ty_timeline_free(run->timeline);
            run->timeline = NULL;
            run->evaluation_count = 0;
        }
        cr_assert_eq(ty_run_save(run, path, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_run_load(path, &loaded, &error), TY_OK, "%s", error.message);
        first = toy_read(path);
        cr_assert_eq(ty_run_save(loaded, path, &error), TY_OK, "%s", error.message);
        second = toy_read(path);
        cr_assert_str_eq(first, second);
        cr_assert_eq(loaded->losses[3], run->losses[3]);
        cr_assert_eq(loaded->summary.step_time_s, run->summary.step_time_s);
        cr_assert_str_eq(loaded->summary.limited_by, run->summary.limited_by);
        cr_assert_eq((loaded->timeline != NULL), has_timeline);
        ty_free(first);
        ty_free(second);
        ty_run_free(run);
        ty_run_free(loaded);
        remove(path);
    }
}

Test(run, bad_runs_are_refused_with_pointer)
{
    const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"trainyard.run/1", "trainyard.job/1", ":/schema"},
        {"\"rank_count\": 1", "\"rank_count\": 2", ":/peak_memory_bytes: found an array of 1"},
        {"\"losses\": [", "\"losses\": [null, ", ":/losses/0: found null"},
        {"\"losses\": [", "\"losses\": [], \"more\": [", ":/losses"},
        {"\"accuracy\": 0.875", "\"accuracy\": 87.5", ":/evaluations/0/accuracy: found 87.5"},
        {"\"wall_s\": 40.5", "\"wall_s\": -1", ":/wall_s: found -1"},
        {"\"machine\": \"a toy\"", "\"machine\": \"\"", ":/machine"},
        {"\"plan_digest\": \"", "\"plan_digest\": \"A", ":/plan_digest: found \"A"},
        {"\"compute_share\": ", "\"compute_share\": 1", ":/summary/compute_share: found 1"},
        {"[0, 1, 5, 15, 15.75]", "[0, 2, 5, 15, 15.75]", ":/timeline/events/11/1: found 2"},
    };
    const char *path = toy_path("bad-run.json");
    ty_run *run = make_run(), *loaded = NULL;
    char *good;
    ty_error error = {0};

    cr_assert_eq(ty_run_save(run, path, NULL), TY_OK);
    good = toy_read(path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bad = toy_replace(good, rows[i].old, rows[i].new);
        toy_write(path, bad);
        cr_expect_eq(ty_run_load(path, &loaded, &error), TY_EPARSE, "row %zu", i);
        cr_expect_null(loaded);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_free(bad);
    }
    ty_free(good);
    remove(path);
    run->losses[2] = (double)NAN;
    cr_assert_eq(ty_run_save(run, path, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "the loss of step 2 is nan: training diverged"));
    cr_assert(!ty_file_exists(path));
    run->losses[2] = 1;
    run->plan_digest.hex[0] = run->plan_digest.hex[0] == '0' ? '1' : '0';
    cr_assert_eq(ty_run_save(run, path, &error), TY_OK);
    cr_assert_eq(ty_run_load(path, &loaded, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, ":/timeline/plan_digest: this timeline is of another"),
                       "%s", error.message);
    remove(path);
    ty_run_free(run);
}

Test(run, survives_each_failing_allocation)
{
    const char *path = toy_path("memory.json");
    ty_job *job = make_job(TY_JOB_TRAIN), *loaded;
    ty_run *run = make_run(), *read;
    ty_status status = TY_ENOMEM;

    cr_assert_eq(ty_job_save(job, path, NULL), TY_OK);
    for (long count = 1; status != TY_OK; count++) {
        ty_error error = {0};
        loaded = NULL;
        ty_memory_fail_after(count);
        status = ty_job_load(path, &loaded, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "%ld: %s", count, error.message);
        cr_assert_eq(loaded == NULL, status != TY_OK);
        ty_job_free(loaded);
    }
    status = TY_ENOMEM;
    for (long count = 1; status != TY_OK; count++) {
        ty_memory_fail_after(count);
        status = ty_run_save(run, path, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
    }
    status = TY_ENOMEM;
    for (long count = 1; status != TY_OK; count++) {
        read = NULL;
        ty_memory_fail_after(count);
        status = ty_run_load(path, &read, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
        ty_run_free(read);
    }
    remove(path);
    ty_job_free(job);
    ty_run_free(run);
}
