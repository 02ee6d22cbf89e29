/* Jobs and runs: round trips through files, refusals. */
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
    } else if (kind == TY_JOB_SAMPLES) {
        job->data = ty_strdup("/data");
        job->bad_samples = 3;
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
    run->stage_replica_count = 1;
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
    run->evaluations[0] =
        (ty_evaluation){.step = 4, .seconds = 40.25, .accuracy = 0.875, .loss = 0.125};
    ty_program_free(program);
    ty_plan_free(plan);
    return run;
}

Test(run, jobs_go_there_and_back)
{
    for (int kind = TY_JOB_TRAIN; kind < TY_JOB_COUNT; kind++) {
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
        cr_assert_eq((loaded->program == NULL), (kind != TY_JOB_TRAIN));
        cr_assert_eq(loaded->bad_samples, job->bad_samples);
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
        {"\"seed\": 1", "\"seed\": 2", ":/plan/digest: the plan changed after it was written"},
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
    job = make_job(TY_JOB_SAMPLES);
    ty_free(job->data);
    job->data = NULL;
    cr_assert_eq(ty_job_save(job, path, &error), TY_EPARSE);
    cr_assert_not_null(strstr(error.message, ":/data: found none"), "%s", error.message);
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
        /* A negative square gives no noise scale in the file. */
        run->noise = (ty_gradient_noise){1, has_timeline ? -0.5 : 0.25, 3};
        run->noise_sample_count = 1;
        run->noise_samples = ty_alloc(1, sizeof *run->noise_samples);
        run->noise_samples[0] = (ty_noise_sample){2, run->noise.square, 3};
        run->distortion_steps = 3;
        run->distortion = 0.125;
        run->variant.bits = has_timeline ? 8 : 0;
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
        cr_assert_str_eq(loaded->plan_digest.hex, run->plan_digest.hex);
        cr_assert_eq(loaded->noise.square, run->noise.square);
        cr_assert_eq(loaded->noise_samples[0].step, 2);
        cr_assert_eq(loaded->distortion, 0.125);
        cr_assert_eq(loaded->variant.bits, run->variant.bits);
        ty_free(first);
        ty_free(second);
        ty_run_free(run);
        ty_run_free(loaded);
        remove(path);
    }
}

/* Version 1 calls a stage replica a rank. */
Test(run, first_version_is_read_and_written_anew)
{
    const char *path = toy_path("older-run.json");
    ty_run *run = NULL, *again = NULL;
    ty_error error = {0};
    char *text;

    cr_assert_eq(ty_run_load(TY_CORPUS "/run/run.json", &run, &error), TY_OK, "%s", error.message);
    cr_expect_eq(run->stage_replica_count, 2);
    cr_expect_eq(run->timeline->stage_replica_count, 2);
    cr_expect_eq(run->timeline->events[run->timeline->event_count - 1].stage_replica, 1);
    cr_assert_eq(ty_run_save(run, path, &error), TY_OK, "%s", error.message);
    text = toy_read(path);
    cr_expect_not_null(strstr(text, "\"trainyard.run/2\""));
    cr_expect_not_null(strstr(text, "\"trainyard.timeline/2\""));
    cr_expect_null(strstr(text, "\"rank_count\""));
    cr_assert_eq(ty_run_load(path, &again, &error), TY_OK, "%s", error.message);
    cr_expect_eq(again->timeline->event_count, run->timeline->event_count);
    cr_expect_arr_eq(again->timeline->events, run->timeline->events,
                     run->timeline->event_count * sizeof *run->timeline->events);
    ty_free(text);
    ty_run_free(run);
    ty_run_free(again);
    remove(path);
}

Test(run, bad_runs_are_refused_with_pointer)
{
    const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"trainyard.run/2", "trainyard.job/1", ":/schema"},
        {"\"stage_replica_count\": 1", "\"stage_replica_count\": 2",
         ":/peak_memory_bytes: found an array of 1"},
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
    cr_assert_eq(ty_run_save(run, path, &error), TY_ELIMIT);
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

/* ---- Rates of reading ---- */

static ty_samples *make_samples(void)
{
    ty_samples *samples = ty_alloc(1, sizeof *samples);

    *samples = (ty_samples){.workload = ty_strdup("net"),
                            .data = ty_strdup("/data"),
                            .cores = 4,
                            .sample_count = 1000,
                            .sample_bytes = 50.5,
                            .data_bytes = 50500,
                            .visited = 100,
                            .skipped = 1,
                            .first_visit_samples_per_s = 80,
                            .rate_count = 3,
                            .rates = {{1, 123.456}, {2, 240}, {4, 250}}};
    return samples;
}

Test(run, rates_of_reading_go_there_and_back)
{
    const char *path = toy_path("samples.json");
    ty_samples *samples = make_samples(), *loaded = NULL;
    ty_error error = {0};
    char *first, *second;

    cr_assert_eq(ty_samples_save(samples, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_samples_load(path, &loaded, &error), TY_OK, "%s", error.message);
    first = toy_read(path);
    cr_assert_eq(ty_samples_save(loaded, path, &error), TY_OK, "%s", error.message);
    second = toy_read(path);
    cr_assert_str_eq(first, second);
    cr_assert_eq(loaded->rate_count, 3);
    cr_assert_eq(loaded->skipped, 1);
    cr_assert_not_null(strstr(first, "\"words\": \"data=50500,decode=120,cores=2\""), "%s", first);
    ty_free(first);
    ty_free(second);
    ty_samples_free(samples);
    ty_samples_free(loaded);
    remove(path);
}

Test(run, a_plan_is_told_of_the_fewest_threads_that_are_enough)
{
    static const struct {
        const char *what;
        uint32_t count;
        ty_samples_rate rates[3];
        double decode;
        uint32_t cores;
    } rows[] = {
        {"two are as good as four", 3, {{1, 100}, {2, 192}, {4, 200}}, 96, 2},
        {"four are better", 3, {{1, 100}, {2, 180}, {4, 200}}, 50, 4},
        {"more get in each other's way", 3, {{1, 100}, {2, 90}, {4, 50}}, 100, 1},
        {"no thread makes them", 1, {{0, 31250.4}}, 31250, 0},
        {"digits of a measurement", 1, {{1, 0.123456}}, 0.1235, 1},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_samples samples = {.rate_count = rows[i].count, .data_bytes = 1e9};
        ty_input input;

        memcpy(samples.rates, rows[i].rates, sizeof rows[i].rates);
        ty_samples_input(&samples, &input);
        cr_expect_leq(fabs(input.decode_samples_per_s - rows[i].decode), 0.5, "%s: %g",
                      rows[i].what, input.decode_samples_per_s);
        cr_expect_eq(input.cores, rows[i].cores, "%s", rows[i].what);
        cr_expect(input.data_bytes > 0.9e9 && input.data_bytes < 1.1e9, "%s", rows[i].what);
    }
}

Test(run, bad_rates_of_reading_are_refused_with_pointer)
{
    static const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"trainyard.samples/1", "trainyard.profile/1", ":/schema"},
        {"\"samples\": 1000", "\"samples\": 0", ":/samples: found 0"},
        {"\"visited\": 100", "\"visited\": 1001", ":/visited: found 1001"},
        {"\"sample_bytes\": 50.5", "\"sample_bytes\": 0", ":/sample_bytes: found 0"},
        {"{\"threads\": 2,", "{\"threads\": 1,", ":/rates/1/threads: found 1"},
        {"\"samples_per_s\": 250}", "\"samples_per_s\": -1}", ":/rates/2/samples_per_s: found -1"},
        {"\"samples_per_s\": 250}", "\"samples_per_s\": 1e13}", ":/rates/2/samples_per_s: found"},
        {"\"data_bytes\": 50500", "\"data_bytes\": 0.3", ":/data_bytes: found 0.3"},
        {"\"skipped\": 1", "\"skiped\": 1", ":/skipped"},
    };
    const char *path = toy_path("bad-samples.json");
    ty_samples *samples = make_samples();
    char *good;

    cr_assert_eq(ty_samples_save(samples, path, NULL), TY_OK);
    good = toy_read(path);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bad = toy_replace(good, rows[i].old, rows[i].new);
        ty_samples *loaded = NULL;
        ty_error error = {0};
        toy_write(path, bad);
        cr_expect_eq(ty_samples_load(path, &loaded, &error), TY_EPARSE, "row %zu", i);
        cr_expect_null(loaded);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_free(bad);
    }
    remove(path);
    ty_free(good);
    ty_samples_free(samples);
}
