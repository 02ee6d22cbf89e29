/* Checkpoints: a run interrupted at any point resumes with the same results, and no failure damages
 * the last checkpoint. */
#include "plans.h"

#include "checkpoint.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
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
     .buckets = 1, BATCH, .virtual_stages = 2},
    {"pipedream 3 stages", .schedule = TY_PIPEDREAM, .replicas = {1, 1, 1}, .cuts = {2, 4},
     .buckets = 1, .global_batch = 24, .micro_batch_size = 12},
    {"2bw 2 stages", .schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {3}, .buckets = 1,
     BATCH},
    {"data parallel 2, a step late", .replicas = {2}, .buckets = 2, BATCH, .staleness = 1},
    {"1f1b 2+2, 2 steps late, top-k", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {3},
     .buckets = 2, BATCH, .staleness = 2,
     .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1}},
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
    {"data parallel 2 of 2 ranks, zero 1", .replicas = {2}, .buckets = 2, .global_batch = 8,
     .micro_batch_size = 2, .zero = 1, .tp = 2},
    {"1f1b 2 stages of 2 ranks along the sequence", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1},
     .cuts = {13}, .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .tp = 2,
     .divides_sequence = true},
    {"data parallel 2 of 2 contexts, zero 1", .replicas = {2}, .buckets = 2, .global_batch = 8,
     .micro_batch_size = 2, .zero = 1, .contexts = 2},
    {"2 contexts of 2 ranks", .replicas = {1}, .buckets = 2, .global_batch = 8,
     .micro_batch_size = 2, .tp = 2, .contexts = 2},
    {"data parallel 2 of 2 experts, zero 1", .replicas = {2}, .buckets = 2, .global_batch = 8,
     .micro_batch_size = 2, .zero = 1, .experts = 2},
    {"1f1b 2 stages of 2 experts", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7},
     .buckets = 2, .global_batch = 8, .micro_batch_size = 2, .experts = 2},
    {"2 experts of 2 contexts, top-k", .replicas = {1}, .buckets = 2, .global_batch = 8,
     .micro_batch_size = 4, .contexts = 2, .experts = 2,
     .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1}},
    {"data parallel 2 of 2 ranks of tables by row", .replicas = {2}, .buckets = 2,
     .global_batch = 128, .micro_batch_size = 32, .experts = 2, .tables = TY_TABLES_ROW},
    {"data parallel 2 of 2 ranks of tables, zero 1", .replicas = {2}, .buckets = 2,
     .global_batch = 128, .micro_batch_size = 32, .zero = 1, .experts = 2,
     .tables = TY_TABLES_TABLE},
    {"data parallel 2, int8", .replicas = {2}, .buckets = 2, BATCH,
     .compression = {.kind = TY_COMPRESSION_INT8}},
};

typedef struct fixture {
    char *directory;
    char checkpoint[512], latest[600];
    uint32_t keep;
} fixture;

static fixture fixture_make(void)
{
    fixture f = {.directory = directory_make(), .keep = 1};

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

static ty_status run_plan_in_stretches(const fixture *f, ty_plan *plan, uint32_t steps,
                                       uint32_t every, bool resume, ty_run **out, ty_error *error)
{
    ty_job *job = make_job(plan, steps, f->directory);
    ty_status status;

    ty_free(job->gradients); /* saving them would force a checkpoint interval */
    job->gradients = NULL;
    job->checkpoint = ty_strdup(f->checkpoint);
    job->checkpoint_every = every;
    job->keep = f->keep;
    job->resume = resume;
    status = ty_execute_job_locally(job, ty_plan_launched_count(job->plan),
                                    &(ty_execute_options){0}, error);
    if (status == TY_OK && out != NULL)
        status = ty_run_load(job->output, out, error);
    ty_job_free(job);
    return status;
}

static ty_status run_plan(const fixture *f, ty_plan *plan, uint32_t steps, bool resume,
                          ty_run **out, ty_error *error)
{
    return run_plan_in_stretches(f, plan, steps, EVERY, resume, out, error);
}

static ty_status run(const fixture *f, const plan_shape *shape, uint32_t steps, bool resume,
                     ty_run **out, ty_error *error)
{
    const char *workload = shape->tables != TY_TABLES_WHOLE       ? "dlrm-tiny"
                           : shape->experts > 1                   ? moe_small
                           : shape->tp > 1 || shape->contexts > 1 ? "gpt-tiny sequence=16"
                                                                  : "mlp";

    return run_plan(f, make_plan(narrow(workload), shape), steps, resume, out, error);
}

static void must_run(const fixture *f, const plan_shape *shape, uint32_t steps, bool resume,
                     ty_run **out)
{
    ty_error error = {0};

    cr_assert_eq(run(f, shape, steps, resume, out, &error), TY_OK, "%s: %s", shape->name,
                 error.message);
}

/* Gradient noise is measured before and after the interruption: its history has all steps. */
static void noise_check(const char *name, const ty_run *found, const ty_run *expected)
{
    cr_assert_eq(found->noise.steps, expected->noise.steps, "%s", name);
    cr_assert_eq(found->noise_sample_count, expected->noise_sample_count,
                 "%s: %u noise samples, expected %u", name, found->noise_sample_count,
                 expected->noise_sample_count);
    for (uint32_t i = 0; i < expected->noise_sample_count; i++) {
        const ty_noise_sample *f = &found->noise_samples[i], *e = &expected->noise_samples[i];
        cr_assert_eq(f->step, e->step, "%s", name);
        cr_assert(f->square == e->square && f->variance == e->variance, "%s", name);
    }
}

/* Bit for bit: optimizer states, residuals, weight versions, order of samples, everything. */
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
        noise_check(shapes[i].name, found, expected);
        ty_run_free(expected);
        ty_run_free(found);
        fixture_free(&whole);
        fixture_free(&cut);
    }
}

/* A checkpoint contains all updates. So with a checkpoint after every step nothing is stale, bit
 * for bit, and a run can resume with or without staleness. */
Test(checkpoint, nothing_is_under_way_in_it)
{
    plan_shape shape = {"data parallel 2", .replicas = {2}, .buckets = 2, BATCH};
    double in_time[STEPS] = {0};

    for (shape.staleness = 0; shape.staleness <= 2; shape.staleness++) {
        fixture f = fixture_make();
        plan_shape other = shape;
        ty_run *found = NULL;
        ty_error error = {0};

        cr_assert_eq(run_plan_in_stretches(&f, make_plan(narrow("mlp"), &shape), STEPS / 2, 1,
                                           false, NULL, &error),
                     TY_OK, "%s", error.message);
        other.staleness = 2 - shape.staleness;
        cr_assert_eq(run_plan_in_stretches(&f, make_plan(narrow("mlp"), &other), STEPS, 1, true,
                                           &found, &error),
                     TY_OK, "%s", error.message);
        for (uint32_t s = 0; s < STEPS; s++) {
            in_time[s] = shape.staleness == 0 ? found->losses[s] : in_time[s];
            cr_assert_eq(found->losses[s], in_time[s], "staleness %u, then %u, step %u",
                         shape.staleness, other.staleness, s);
        }
        cr_assert_lt(in_time[STEPS - 1], in_time[0]);
        ty_run_free(found);
        fixture_free(&f);
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

    expect_failure(&f, &shapes[2], STEPS, true, TY_EIO, "there is no checkpoint");
    must_run(&f, &shapes[2], EVERY, false, NULL);
    expect_failure(&f, &shapes[2], STEPS, false, TY_EINVAL, "of an earlier run");
    expect_failure(&f, &shapes[1], STEPS, true, TY_EPARSE,
                   "of this plan (\"data parallel 2, top-k\", 2");
    expect_failure(&f, &shapes[2], EVERY - 1, true, TY_EPARSE, "at most 2 steps, not one of 3");
    must_run(&f, &shapes[2], STEPS, true, NULL);
    fixture_free(&f);
}

/* With a warm-up longer than the remaining steps, and with one during which the run ends: the
 * trained steps are recorded and can be read. */
Test(checkpoint, few_steps_are_a_result)
{
    static const struct {
        uint32_t steps, recorded;
    } rows[] = {{1, 1}, {4, 3}, {10, 8}, {11, 1}, {30, 11}};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture f = fixture_make();
        ty_job *job =
            make_job(make_plan(narrow("mlp"), &shapes[2]), 20 + rows[i].steps, f.directory);
        ty_run *found = NULL;
        ty_error error = {0};

        must_run(&f, &shapes[2], 20, false, NULL);
        job->checkpoint = ty_strdup(f.checkpoint);
        job->resume = true;
        job->warmup_steps = 10;
        job->timeline_steps = 11;
        cr_assert_eq(ty_execute_job_locally(job, 3, &(ty_execute_options){0}, &error), TY_OK,
                     "%u steps: %s", rows[i].steps, error.message);
        cr_assert_eq(ty_run_load(job->output, &found, &error), TY_OK, "%u steps: %s", rows[i].steps,
                     error.message);
        cr_expect_eq(found->timeline->step_count, rows[i].recorded, "%u steps: %u recorded",
                     rows[i].steps, found->timeline->step_count);
        cr_expect(found->summary.step_time_s > 0);
        ty_run_free(found);
        ty_job_free(job);
        fixture_free(&f);
    }
}

/* Runs again, with and without the saved result. */
Test(checkpoint, a_finished_run_gives_its_result_again)
{
    fixture f = fixture_make();
    ty_run *expected = NULL, *found = NULL;
    char path[700];

    must_run(&f, &shapes[2], STEPS, false, &expected);
    must_run(&f, &shapes[2], STEPS, true, &found);
    cr_expect_eq(found->wall_s, expected->wall_s);
    cr_expect_eq(found->timeline->event_count, expected->timeline->event_count);
    ty_run_free(found);
    snprintf(path, sizeof path, "%s/result.json", f.checkpoint);
    cr_assert_eq(unlink(path), 0);
    must_run(&f, &shapes[2], STEPS, true, &found);
    cr_expect_null(found->timeline);
    cr_assert_eq(found->step_count, STEPS);
    for (uint32_t s = 0; s < STEPS; s++)
        cr_expect_eq(found->losses[s], expected->losses[s], "step %u", s);
    ty_run_free(found);
    ty_run_free(expected);
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
    cr_assert_eq(mkfifo(path, 0600), 0); /* a pipe without a writer */
    expect_failure(&f, &shapes[2], STEPS, true, TY_EPARSE, "rank-1: found a pipe, expected a file");
    unlink(path);
    fixture_free(&f);
}

static void flip(const char *path, long at, int bit)
{
    FILE *file = fopen(path, "r+b");
    int byte;

    cr_assert_not_null(file, "%s", path);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    byte = fgetc(file);
    cr_assert_eq(fseek(file, at, SEEK_SET), 0);
    fputc(byte ^ (1 << bit), file);
    fclose(file);
}

static long file_length(const char *path)
{
    struct stat found;

    cr_assert_eq(stat(path, &found), 0, "%s", path);
    return (long)found.st_size;
}

/* Every single bit of latest.json, which equals checkpoint.json; some bits in each section of a
 * rank's file. */
Test(checkpoint, any_flipped_bit_is_refused)
{
    fixture f = fixture_make();
    ty_plan *plan = make_plan(narrow("mlp"), &shapes[2]);
    const ty_checkpoint_query query = {
        .directory = f.checkpoint, .plan = plan, .steps = STEPS, .most = STEPS};
    ty_checkpoint_place place;
    ty_error error = {0}, damage = {0};
    char path[700];
    long length, at;

    must_run(&f, &shapes[2], EVERY, false, NULL);
    snprintf(path, sizeof path, "%s/step-%d/checkpoint.json", f.checkpoint, EVERY);
    length = file_length(path);
    cr_assert_eq(length, file_length(f.latest));
    flip(path, length / 2, 3); /* then the copy has it */
    for (at = 0; at < length; at++)
        for (int bit = 0; bit < 8; bit++) {
            flip(f.latest, at, bit);
            cr_expect_eq(ty_checkpoint_find(&query, &place, &damage, &error), TY_EPARSE,
                         "bit %d of byte %ld", bit, at);
            flip(f.latest, at, bit);
        }
    cr_assert_eq(ty_checkpoint_find(&query, &place, &damage, &error), TY_OK, "%s", error.message);
    cr_assert_eq(place.step, EVERY);
    flip(path, length / 2, 3);
    cr_assert_eq(unlink(f.latest), 0);
    cr_assert_eq(ty_checkpoint_find(&query, &place, &damage, &error), TY_OK, "%s", error.message);
    snprintf(path, sizeof path, "%s/step-%d/rank-1", f.checkpoint, EVERY);
    length = file_length(path);
    for (int i = 0; i < 48; i++) { /* the headers, and what follows */
        at = i < 32 ? 8 * i : (long)((double)length * (i - 31) / 17);
        flip(path, at, i % 8);
        expect_failure(&f, &shapes[2], STEPS, true, TY_EPARSE, "rank-1: ");
        flip(path, at, i % 8);
    }
    must_run(&f, &shapes[2], STEPS, true, NULL);
    ty_plan_free(plan);
    fixture_free(&f);
}

/* A flipped bit in any file of the newest checkpoint costs the steps since the one before, and no
 * more: the losses are those of a run without damage. */
Test(checkpoint, the_one_before_replaces_a_damaged_one)
{
    static const char *const files[] = {"rank-0", "rank-1", "rank-2"};
    fixture whole = fixture_make();
    ty_run *expected = NULL;

    must_run(&whole, &shapes[2], 3 * EVERY, false, &expected);
    for (int i = 0; i < 5; i++) {
        fixture f = fixture_make();
        ty_run *found = NULL;
        char path[700], other[700];
        struct stat mode;

        f.keep = 2;
        must_run(&f, &shapes[2], 2 * EVERY, false, NULL);
        snprintf(path, sizeof path, "%s/step-%d/%s", f.checkpoint, 2 * EVERY, files[i % 3]);
        cr_assert_eq(stat(path, &mode), 0);
        cr_expect_eq(mode.st_mode & 0777, 0600);
        if (i < 3)
            flip(path, file_length(path) / (i + 2), i);
        else if (i == 3)
            cr_assert_eq(unlink(path), 0);
        else
            change(path, 5, true);
        must_run(&f, &shapes[2], 3 * EVERY, true, &found);
        for (uint32_t s = 0; s < 3 * EVERY; s++)
            cr_assert_eq(found->losses[s], expected->losses[s], "case %d: step %u", i, s);
        snprintf(other, sizeof other, "%s/step-%d", f.checkpoint, EVERY);
        cr_expect(!ty_file_exists(other), "two are kept");
        cr_expect(ty_file_exists(path), "case %d: it is written again", i);
        ty_run_free(found);
        fixture_free(&f);
    }
    ty_run_free(expected);
    fixture_free(&whole);
}

/* A lock held by this process counts as another's. A lock without an owner is ignored, and
 * partially written files are removed. */
Test(checkpoint, one_run_at_a_time)
{
    fixture f = fixture_make();
    ty_error error = {0};
    char path[700], holder[64];
    int lock;

    cr_assert_eq(ty_checkpoint_lock(f.checkpoint, &lock, &error), TY_OK, "%s", error.message);
    snprintf(holder, sizeof holder, "another run is using this folder: process %ld on",
             (long)getpid());
    expect_failure(&f, &shapes[2], EVERY, false, TY_EIO, holder);
    ty_checkpoint_unlock(lock);
    snprintf(path, sizeof path, "%s/.trainyard-1-0.tmp", f.checkpoint);
    cr_assert_eq(ty_file_write(path, "x", 1, NULL), TY_OK);
    must_run(&f, &shapes[2], EVERY, false, NULL);
    cr_expect(!ty_file_exists(path));
    fixture_free(&f);
}

/* A link in place of a step's folder cannot redirect writes or removals. */
Test(checkpoint, folders_of_steps_are_no_links)
{
    fixture f = fixture_make();
    char elsewhere[600], link[700], path[700];

    snprintf(elsewhere, sizeof elsewhere, "%s/elsewhere", f.directory);
    snprintf(path, sizeof path, "%s/rank-0", elsewhere);
    cr_assert_eq(ty_directory_make(elsewhere, NULL), TY_OK);
    cr_assert_eq(ty_file_write(path, "precious", 8, NULL), TY_OK);
    cr_assert_eq(ty_directory_make(f.checkpoint, NULL), TY_OK);
    snprintf(link, sizeof link, "%s/step-%d", f.checkpoint, EVERY);
    cr_assert_eq(symlink(elsewhere, link), 0);
    expect_failure(&f, &shapes[2], EVERY, false, TY_EIO, "found a symbolic link");
    cr_expect_eq(file_length(path), 8);
    must_run(&f, &shapes[2], EVERY, false, NULL); /* the link was removed with the failed
                                                   * checkpoint */
    cr_expect_eq(file_length(path), 8);
    unlink(path);
    rmdir(elsewhere);
    fixture_free(&f);
}

/* A file that cannot grow, as on a full disk. */
Test(checkpoint, full_disk_loses_nothing)
{
    fixture f = fixture_make();
    struct rlimit limit, all;
    ty_run *found = NULL;
    char path[700];

    signal(SIGXFSZ, SIG_IGN);
    must_run(&f, &shapes[2], EVERY, false, NULL);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &all), 0);
    limit = all;
    snprintf(path, sizeof path, "%s/step-%d/rank-0", f.checkpoint, EVERY);
    limit.rlim_cur = (rlim_t)file_length(path) - 4096; /* more than the number of samples */
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_failure(&f, &shapes[2], STEPS, true, TY_EIO,
                   "File too large; the result is of the 6 steps");
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
    snprintf(path, sizeof path, "%s/run.json", f.directory);
    cr_assert_eq(ty_run_load(path, &found, NULL), TY_OK);
    cr_assert_eq(found->step_count, STEPS);
    ty_run_free(found);
    must_run(&f, &shapes[2], STEPS, true, &found);
    cr_assert_eq(found->step_count, STEPS);
    ty_run_free(found);
    fixture_free(&f);
}

/* A disk without room for some checkpoints: the run continues, and ends well once there is room at
 * the end. */
Test(checkpoint, full_disk_delays_a_checkpoint)
{
    fixture f = fixture_make(), whole = fixture_make();
    ty_run *expected = NULL, *found = NULL;
    char path[700];

    must_run(&whole, &shapes[2], 3 * EVERY, false, &expected);
    must_run(&f, &shapes[2], EVERY, false, NULL);
    snprintf(path, sizeof path, "%s/step-%d", f.checkpoint, 2 * EVERY);
    cr_assert_eq(ty_file_write(path, "in the way", 10, NULL), TY_OK); /* of its folder */
    must_run(&f, &shapes[2], 3 * EVERY, true, &found);
    for (uint32_t s = 0; s < 3 * EVERY; s++)
        cr_assert_eq(found->losses[s], expected->losses[s], "step %u", s);
    snprintf(path, sizeof path, "%s/step-%d/rank-0", f.checkpoint, 3 * EVERY);
    cr_expect(ty_file_exists(path));
    ty_run_free(found);
    ty_run_free(expected);
    fixture_free(&f);
    fixture_free(&whole);
}

/* Checkpoints by time do not change a synchronous training. */
Test(checkpoint, by_time)
{
    fixture f = fixture_make(), whole = fixture_make();
    ty_run *expected = NULL, *found = NULL;
    ty_job *job = make_job(make_plan(narrow("mlp"), &shapes[2]), 40, f.directory);
    ty_error error = {0};
    char path[700];
    int count = 0;

    must_run(&whole, &shapes[2], 40, false, &expected);
    job->checkpoint = ty_strdup(f.checkpoint);
    job->checkpoint_every_s = 1e-6; /* after every look at the clock */
    job->keep = 1000;
    cr_assert_eq(ty_execute_job_locally(job, 3, &(ty_execute_options){0}, &error), TY_OK, "%s",
                 error.message);
    for (int s = 1; s <= 40; s++) {
        snprintf(path, sizeof path, "%s/step-%d/checkpoint.json", f.checkpoint, s);
        count += ty_file_exists(path);
    }
    cr_expect_eq(count, 40);
    cr_assert_eq(ty_run_load(job->output, &found, &error), TY_OK, "%s", error.message);
    for (uint32_t s = 0; s < 40; s++)
        cr_assert_eq(found->losses[s], expected->losses[s], "step %u", s);
    ty_run_free(found);
    ty_run_free(expected);
    ty_job_free(job);
    fixture_free(&f);
    fixture_free(&whole);
}

/* The loss overflows after the first checkpoint, which is preserved. */
Test(checkpoint, divergence_loses_nothing)
{
    fixture f = fixture_make();
    ty_job *job = make_job(make_plan(narrow("mlp"), &shapes[2]), 200, f.directory);
    ty_error error = {0};
    ty_status status;

    job->plan->optimizer.learning_rate = 3;
    ty_program_free(job->program);
    job->program = NULL;
    cr_assert_eq(ty_plan_lower(job->plan, &job->program, &error), TY_OK, "%s", error.message);
    job->checkpoint = ty_strdup(f.checkpoint);
    job->checkpoint_every = 1;
    status = ty_execute_job_locally(job, 3, &(ty_execute_options){0}, &error);
    cr_assert_eq(status, TY_ELIMIT, "%s", error.message);
    cr_assert_not_null(strstr(error.message, "finite"), "%s", error.message);
    cr_assert(ty_file_exists(f.latest));
    /* The checkpoint named in the message exists. */
    job->steps = 1000;
    job->resume = true;
    status = ty_execute_job_locally(job, 3, &(ty_execute_options){0}, &error);
    cr_assert_eq(status, TY_ELIMIT, "%s", error.message);
    ty_job_free(job);
    fixture_free(&f);
}

/* ---- Resuming with another batch size
 * --------------------------------------------------------- */

#define TWICE .global_batch = 48, .micro_batch_size = 4

/* Shapes before and after; the reference is a single rank with the same batches. */
typedef struct switched {
    const char *name;
    plan_shape before, after;
} switched;

static const plan_shape alone_before = {"one rank, before", .replicas = {1}, .buckets = 1,
                                        .global_batch = 24, .micro_batch_size = 24};
static const plan_shape alone_after = {"one rank, after", .replicas = {1}, .buckets = 1,
                                       .global_batch = 48, .micro_batch_size = 48};

static ty_run *run_switched(const plan_shape *before, const plan_shape *after)
{
    fixture f = fixture_make();
    ty_run *found = NULL;

    must_run(&f, before, EVERY, false, NULL);
    must_run(&f, after, STEPS + EVERY, true, &found); /* with another checkpoint in between */
    cr_assert_eq(found->step_count, STEPS + EVERY);
    for (int step = EVERY; step < STEPS + EVERY; step += EVERY) { /* files of other ranks are
                                                                   * removed */
        char folder[700];
        snprintf(folder, sizeof folder, "%s/step-%d", f.checkpoint, step);
        cr_expect_neq(access(folder, F_OK), 0, "%s is still there", folder);
    }
    fixture_free(&f);
    return found;
}

Test(checkpoint, another_batch_goes_on_where_the_first_ended)
{
    static const switched rows[] = {
        {"more micro-batches",
         {"a", .replicas = {2}, .buckets = 2, BATCH},
         {"b", .replicas = {2}, .buckets = 2, .global_batch = 48, .micro_batch_size = 3}},
        {"larger ones, other buckets",
         {"a", .replicas = {2}, .buckets = 2, BATCH},
         {"b", .replicas = {2}, .buckets = 1, .global_batch = 48, .micro_batch_size = 6}},
        {"more replicas",
         {"a", .replicas = {2}, .buckets = 1, BATCH},
         {"b", .replicas = {4}, .buckets = 1, TWICE, .algorithm = TY_PARAMETER_SERVER}},
        {"fewer replicas",
         {"a", .replicas = {4}, .buckets = 2, BATCH},
         {"b", .replicas = {3}, .buckets = 2, TWICE}},
        {"other replicas of stages",
         {"a", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 2}, .cuts = {3}, .buckets = 1, BATCH},
         {"b", .schedule = TY_ONE_F_ONE_B, .replicas = {3, 1}, .cuts = {3}, .buckets = 1, TWICE}},
        {"another schedule with a flush",
         {"a", .schedule = TY_GPIPE, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
         {"b", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, TWICE}},
        {"zero 2, larger micro-batches",
         {"a", .replicas = {2}, .buckets = 2, BATCH, .zero = 2},
         {"b", .replicas = {2}, .buckets = 2, .global_batch = 48, .micro_batch_size = 6,
          .zero = 2}},
    };
    ty_run *expected = run_switched(&alone_before, &alone_after);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_run *found = run_switched(&rows[i].before, &rows[i].after);
        for (uint32_t s = 0; s < STEPS + EVERY; s++)
            cr_expect(fabs(found->losses[s] - expected->losses[s]) < 1e-5 * expected->losses[s],
                      "%s: loss of step %u is %.9g, expected %.9g", rows[i].name, s,
                      found->losses[s], expected->losses[s]);
        ty_run_free(found);
    }
    ty_run_free(expected);
}

/* Other stages, replicas and ZeRO: tensors come from the files of several ranks. */
Test(checkpoint, another_division_goes_on)
{
#define SMALL .buckets = 2, .global_batch = 8, .micro_batch_size = 2
    static const switched rows[] = {
        {"a pipeline",
         {"a", .replicas = {1}, .buckets = 1, BATCH},
         {"b", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {3}, .buckets = 2, BATCH}},
        {"no pipeline, zero 3",
         {"a", .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1}, .cuts = {3}, .buckets = 2, BATCH},
         {"b", .replicas = {3}, .buckets = 2, .global_batch = 24, .micro_batch_size = 4,
          .zero = 3}},
        {"virtual stages after zero 1",
         {"a", .replicas = {4}, .buckets = 2, BATCH, .zero = 1},
         {"b", .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5},
          .buckets = 1, BATCH, .virtual_stages = 2}},
        {"more shards",
         {"a", .replicas = {2}, .buckets = 2, BATCH, .zero = 2},
         {"b", .replicas = {4}, .buckets = 1, BATCH, .zero = 1}},
        {"tied weights in two stages",
         {"a", .replicas = {2}, SMALL, .zero = 1, .tp = 2},
         {"b", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, SMALL, .tp = 2}},
        {"tied weights in one stage",
         {"a", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, SMALL, .tp = 2},
         {"b", .replicas = {2}, SMALL, .zero = 3, .tp = 2}},
        {"experts",
         {"a", .replicas = {2}, SMALL, .zero = 1, .experts = 2},
         {"b", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {7}, SMALL, .experts = 2}},
        {"contexts",
         {"a", .replicas = {2}, SMALL, .zero = 1, .contexts = 2},
         {"b", .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {13}, SMALL, .contexts = 2}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fixture whole = fixture_make(), cut = fixture_make();
        ty_run *expected = NULL, *found = NULL;

        must_run(&whole, &rows[i].before, STEPS + EVERY, false, &expected);
        must_run(&cut, &rows[i].before, EVERY, false, NULL);
        must_run(&cut, &rows[i].after, STEPS + EVERY, true, &found);
        for (uint32_t s = 0; s < STEPS + EVERY; s++)
            cr_expect(fabs(found->losses[s] - expected->losses[s]) < 1e-5 * expected->losses[s],
                      "%s: loss of step %u is %.9g, expected %.9g", rows[i].name, s,
                      found->losses[s], expected->losses[s]);
        ty_run_free(expected);
        ty_run_free(found);
        fixture_free(&whole);
        fixture_free(&cut);
    }
}

/* Buckets determine which parameters are updated together, but not their moments. */
Test(checkpoint, moments_belong_to_parameters)
{
    static const plan_shape two = {"2 buckets", .replicas = {2}, .buckets = 2, BATCH};
    static const plan_shape one = {"1 bucket", .replicas = {2}, .buckets = 1, BATCH};
    const plan_shape *const then[] = {&two, &one};
    ty_run *runs[2] = {NULL, NULL};

    for (int r = 0; r < 2; r++) {
        fixture f = fixture_make();
        for (int part = 0; part < 2; part++) {
            ty_plan *plan = make_plan(narrow("mlp"), part == 0 ? &two : then[r]);
            ty_error error = {0};

            plan->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_ADAMW,
                                             .learning_rate = 0.01,
                                             .beta1 = 0.9,
                                             .beta2 = 0.99,
                                             .epsilon = 1e-8};
            cr_assert_eq(run_plan(&f, plan, part == 0 ? EVERY : STEPS, part == 1,
                                  part == 0 ? NULL : &runs[r], &error),
                         TY_OK, "%s", error.message);
        }
        fixture_free(&f);
    }
    for (uint32_t s = 0; s < STEPS; s++)
        cr_assert_eq(runs[1]->losses[s], runs[0]->losses[s], "step %u: %.9g, expected %.9g", s,
                     runs[1]->losses[s], runs[0]->losses[s]);
    ty_run_free(runs[0]);
    ty_run_free(runs[1]);
}

static ty_run *run_still(const fixture *f, const plan_shape *shape, uint32_t steps, bool resume)
{
    ty_plan *plan = make_plan(narrow("mlp"), shape);
    ty_run *found = NULL;
    ty_error error = {0};

    plan->optimizer.learning_rate = 1e-30; /* constant weights */
    cr_assert_eq(run_plan(f, plan, steps, resume, &found, &error), TY_OK, "%s", error.message);
    return found;
}

/* With constant weights, a loss identifies its samples: a step of 48 equals two of 24, and no
 * sample is skipped or repeated. */
Test(checkpoint, samples_follow_on)
{
    static const plan_shape small = {"small", .replicas = {2}, .buckets = 1, BATCH};
    static const plan_shape large = {"large", .replicas = {3}, .buckets = 1, TWICE};
    fixture whole = fixture_make(), cut = fixture_make();
    ty_run *expected = run_still(&whole, &small, 9, false),
           *first = run_still(&cut, &small, 3, false);
    ty_run *second = run_still(&cut, &large, 5, true), *third = run_still(&cut, &small, 7, true);

    for (uint32_t s = 0; s < 2; s++) { /* steps 3 and 4 are of samples 72 to 167 */
        const double pair = (expected->losses[3 + 2 * s] + expected->losses[4 + 2 * s]) / 2;
        cr_expect(fabs(second->losses[3 + s] - pair) < 1e-5 * pair, "step %u: %.9g, expected %.9g",
                  3 + s, second->losses[3 + s], pair);
    }
    for (uint32_t s = 0; s < 2; s++) /* steps 5 and 6 of those from 168 on */
        cr_expect(
            fabs(third->losses[5 + s] - expected->losses[7 + s]) < 1e-5 * expected->losses[7 + s],
            "step %u: %.9g, expected %.9g", 5 + s, third->losses[5 + s], expected->losses[7 + s]);
    ty_run_free(expected);
    ty_run_free(first);
    ty_run_free(second);
    ty_run_free(third);
    fixture_free(&whole);
    fixture_free(&cut);
}

static void refuse_switch(const plan_shape *before, const plan_shape *after)
{
    fixture f = fixture_make();

    must_run(&f, before, EVERY, false, NULL);
    expect_failure(&f, after, STEPS, true, TY_EPARSE, "with the same tensors");
    must_run(&f, before, STEPS, true, NULL);
    fixture_free(&f);
}

Test(checkpoint, what_the_state_depends_on_must_be_the_same)
{
    static const switched rows[] = {
        {"residuals",
         {"a", .replicas = {2}, .buckets = 2, BATCH,
          .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1}},
         {"b", .replicas = {4}, .buckets = 2, BATCH,
          .compression = {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1}}},
        {"sets of weights",
         {"a", .schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, BATCH},
         {"b", .schedule = TY_PIPEDREAM, .replicas = {1, 1}, .cuts = {3}, .buckets = 1, TWICE}},
        {"experts of each rank",
         {"a", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 4,
          .experts = 2},
         {"b", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 4,
          .experts = 4}},
        {"tables of each rank",
         {"a", .replicas = {1}, .buckets = 1, .global_batch = 128, .micro_batch_size = 64,
          .experts = 2, .tables = TY_TABLES_ROW},
         {"b", .replicas = {1}, .buckets = 1, .global_batch = 128, .micro_batch_size = 64,
          .experts = 2, .tables = TY_TABLES_COLUMN}},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        refuse_switch(&rows[i].before, &rows[i].after);
}

/* The same plan with one other value. */
/* Row compression has no state between steps: a run can resume with another number of replicas,
 * with or without rows. */
Test(checkpoint, rows_belong_to_no_rank)
{
    static const char text[] =
        "{\"schema\": \"trainyard.zoo/1\", \"name\": \"words\", \"family\": \"sequential\","
        "\"source\": \"made up\", \"sequence\": 8, \"token_bytes\": 4, \"dataset\": \"synthetic\","
        "\"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\", \"learning_rate\": 0.1,"
        "\"momentum\": 0.9, \"weight_decay\": 0},"
        "\"layers\": [{\"kind\": \"embedding\", \"vocabulary\": 300, \"features\": 16},"
        "{\"kind\": \"linear\", \"out_features\": 300}, {\"kind\": \"softmax_cross_entropy\"}]}";
    static const plan_shape tables[] = {
        {"one rank", .replicas = {1}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2},
        {"rows", .replicas = {2}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2,
         .compression.kind = TY_COMPRESSION_ROWS},
        {"rows of 4", .replicas = {4}, .buckets = 1, .global_batch = 8, .micro_batch_size = 2,
         .compression.kind = TY_COMPRESSION_ROWS},
        {"dense", .replicas = {4}, .buckets = 1, .global_batch = 8, .micro_batch_size = 1},
    };
    ty_run *expected = NULL;

    for (int i = 0; i < 3; i++) {
        fixture f = fixture_make();
        ty_run *found = NULL;
        ty_error error = {0};
        cr_assert_eq(run_plan(&f, make_plan(text, &tables[i > 0]), EVERY, false, NULL, &error),
                     TY_OK, "%s", error.message);
        cr_assert_eq(
            run_plan(&f, make_plan(text, &tables[i > 0 ? i + 1 : 0]), STEPS, true, &found, &error),
            TY_OK, "%s", error.message);
        if (i == 0)
            expected = found;
        for (int s = 0; i > 0 && s < STEPS; s++)
            cr_expect(fabs(found->losses[s] - expected->losses[s]) < 1e-4 * expected->losses[s],
                      "%s: loss of step %d is %.9g, expected %.9g", tables[i + 1].name, s,
                      found->losses[s], expected->losses[s]);
        if (i > 0)
            ty_run_free(found);
        fixture_free(&f);
    }
    ty_run_free(expected);
}

Test(checkpoint, another_optimizer_or_seed_is_refused)
{
    static const plan_shape shape = {"a", .replicas = {2}, .buckets = 1, BATCH};
    fixture f = fixture_make();

    must_run(&f, &shape, EVERY, false, NULL);
    for (int i = 0; i < 5; i++) {
        ty_plan *plan = make_plan(narrow("mlp"), &shape);
        ty_error error = {0};
        if (i == 0)
            plan->seed++;
        else if (i == 1)
            plan->optimizer.momentum = 0; /* without optimizer state */
        else if (i == 2)
            plan->optimizer.weight_decay = 0.5;
        else if (i == 3)
            plan->optimizer.learning_rate /= 2;
        else
            plan->optimizer.momentum = 0.5;
        cr_expect_eq(run_plan(&f, plan, i < 4 ? STEPS : STEPS + 1, true, NULL, &error),
                     i < 3 ? TY_EPARSE : TY_OK, "case %d: %s", i, error.message);
    }
    fixture_free(&f);
}
