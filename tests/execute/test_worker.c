/* trainyard-worker as users run it: processes under mpirun, exit codes, messages, files. */
#include "plans.h"

#include <criterion/criterion.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const plan_shape data_parallel = {"data parallel 2", .replicas = {2}, .buckets = 2,
                                         .global_batch = 24, .micro_batch_size = 12};
static const plan_shape pipeline = {
    "1f1b 2+1",   .schedule = TY_ONE_F_ONE_B, .replicas = {2, 1},   .cuts = {3},
    .buckets = 2, .global_batch = 24,         .micro_batch_size = 6};

typedef struct fixture {
    char *directory;
    ty_job *job;
    char job_path[512], log_path[512];
    char log[8192]; /* of the last command: both streams */
} fixture;

static fixture fixture_make(const plan_shape *shape, uint32_t steps)
{
    fixture f = {.directory = directory_make()};
    ty_error error = {0};

    f.job = make_job(make_plan("mlp", shape), steps, f.directory);
    snprintf(f.job_path, sizeof f.job_path, "%s/job.json", f.directory);
    snprintf(f.log_path, sizeof f.log_path, "%s/log", f.directory);
    cr_assert_eq(ty_job_save(f.job, f.job_path, &error), TY_OK, "%s", error.message);
    return f;
}

static void fixture_free(fixture *f)
{
    directory_remove(f->directory);
    ty_job_free(f->job);
}

static void read_log(fixture *f)
{
    FILE *file = fopen(f->log_path, "r");
    size_t length = file != NULL ? fread(f->log, 1, sizeof f->log - 1, file) : 0;

    f->log[length] = '\0';
    if (file != NULL)
        fclose(file);
}

/* Starts a command with both streams in the log; blanks separate its arguments. */
static pid_t start(const fixture *f, const char *command)
{
    pid_t child = fork();

    if (child == 0) {
        char line[2048];

        snprintf(line, sizeof line, "exec %s > %s 2>&1", command, f->log_path);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(127);
    }
    cr_assert(child > 0);
    return child;
}

/* Its exit code, or -1 if it does not end within `limit_s`. */
static int finish(fixture *f, pid_t child, int limit_s)
{
    int state = 0, i;

    for (i = 0; i < limit_s * 20; i++) {
        if (waitpid(child, &state, WNOHANG) == child) {
            read_log(f);
            return WIFEXITED(state) ? WEXITSTATUS(state) : 128 + WTERMSIG(state);
        }
        usleep(50000);
    }
    kill(child, SIGKILL);
    waitpid(child, &state, 0);
    read_log(f);
    return -1;
}

static pid_t start_ranks(const fixture *f, int ranks, const char *job_path)
{
    char command[1400];

    snprintf(command, sizeof command, TY_TEST_MPIRUN " -n %d " TY_TEST_WORKER " %s", ranks,
             job_path);
    return start(f, command);
}

static int run_ranks(fixture *f, int ranks)
{
    return finish(f, start_ranks(f, ranks, f->job_path), 60);
}

/* The same job in this process: MPI must not change the result. */
static ty_run *run_here(const fixture *f)
{
    ty_error error = {0};
    ty_run *run = NULL;

    cr_assert_eq(ty_execute_job_locally(f->job, ty_plan_stage_replica_count(f->job->plan),
                                        &(ty_execute_options){0}, &error),
                 TY_OK, "%s", error.message);
    cr_assert_eq(ty_run_load(f->job->output, &run, &error), TY_OK, "%s", error.message);
    return run;
}

Test(worker, trains_as_threads_do)
{
    static const plan_shape *const shapes[] = {&data_parallel, &pipeline};

    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        fixture f = fixture_make(shapes[i], 10);
        ty_run *expected = run_here(&f), *found = NULL;
        ty_error error = {0};
        int ranks = (int)ty_plan_stage_replica_count(f.job->plan);
        int code;

        unlink(f.job->output);
        code = run_ranks(&f, ranks);
        cr_assert_eq(code, 0, "%s: exit %d: %s", shapes[i]->name, code, f.log);
        cr_assert_eq(ty_run_load(f.job->output, &found, &error), TY_OK, "%s", error.message);
        for (uint32_t s = 0; s < 10; s++)
            cr_assert(fabs(found->losses[s] - expected->losses[s]) < 1e-6, "%s: step %u: %g, %g",
                      shapes[i]->name, s, found->losses[s], expected->losses[s]);
        cr_assert_eq(found->stage_replica_count, (uint32_t)ranks);
        cr_assert_eq(found->timeline->step_count, 2);
        cr_assert(found->summary.step_time_s > 0 && found->wall_s > 0);
        for (int r = 0; r < ranks; r++)
            cr_assert(found->peak_memory_bytes[r] > 10 << 20);
        ty_run_free(expected);
        ty_run_free(found);
        fixture_free(&f);
    }
}

/* Accuracy is over the same test samples in every layout, and training stops at it. */
Test(worker, evaluates_through_a_pipeline)
{
    fixture alone = fixture_make(&(plan_shape){"one rank", .replicas = {1}, .buckets = 1,
                                               .global_batch = 24, .micro_batch_size = 6},
                                 30);
    fixture piped = fixture_make(&pipeline, 30);
    ty_run *expected, *found;

    alone.job->until.accuracy = piped.job->until.accuracy = 1;
    alone.job->evaluate_every = piped.job->evaluate_every = 10;
    expected = run_here(&alone);
    found = run_here(&piped);
    cr_assert_eq(expected->evaluation_count, 3);
    cr_assert_eq(found->evaluation_count, 3);
    for (uint32_t i = 0; i < 3; i++) {
        const ty_evaluation *f = &found->evaluations[i], *e = &expected->evaluations[i];
        cr_assert_eq(f->step, 10 * (i + 1));
        cr_assert(fabs(f->loss - e->loss) < 1e-4, "loss %g, expected %g", f->loss, e->loss);
        cr_assert(fabs(f->accuracy - e->accuracy) < 0.03, "accuracy %g, expected %g", f->accuracy,
                  e->accuracy);
    }
    cr_assert(expected->evaluations[2].accuracy > 0.3);
    ty_run_free(found);

    piped.job->until.accuracy = 0.3;
    found = run_here(&piped);
    cr_assert(found->step_count <= 30 && found->step_count % 10 == 0);
    cr_assert(found->evaluations[found->evaluation_count - 1].accuracy >= 0.3);
    cr_assert_eq(ty_run_reached(found), &found->evaluations[found->evaluation_count - 1]);
    ty_run_free(found);

    /* The first test loss that is no larger than the second one measured. */
    piped.job->until = (ty_target){.loss = expected->evaluations[1].loss + 1e-3};
    found = run_here(&piped);
    cr_assert_eq(found->step_count, expected->evaluations[1].step);
    cr_assert_eq(ty_run_reached(found)->step, expected->evaluations[1].step);
    ty_run_free(expected);
    ty_run_free(found);
    fixture_free(&alone);
    fixture_free(&piped);
}

Test(worker, refuses_a_wrong_number_of_ranks)
{
    fixture f = fixture_make(&pipeline, 5);
    int code = run_ranks(&f, 2);

    cr_assert_eq(code, 3, "exit %d: %s", code, f.log);
    cr_assert_not_null(strstr(f.log, "/plan/stages: found a plan of 3 ranks, expected one of 2"),
                       "%s", f.log);
    cr_assert(!ty_file_exists(f.job->output));
    fixture_free(&f);
}

Test(worker, names_missing_data_on_every_rank_and_writes_nothing)
{
    fixture f = fixture_make(&pipeline, 5);
    char path[600];
    int code;

    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte", f.directory);
    unlink(path);
    code = run_ranks(&f, 3);
    cr_assert_eq(code, 1, "exit %d: %s", code, f.log);
    cr_assert_not_null(strstr(f.log, "train-images-idx3-ubyte"), "%s", f.log);
    cr_assert(!ty_file_exists(f.job->output));
    fixture_free(&f);
}

Test(worker, refuses_bad_job_files)
{
    fixture f = fixture_make(&data_parallel, 5);
    char command[1400];
    int code;

    cr_assert_eq(ty_file_write(f.job_path, "{\"schema\": \"trainyard.job/1\"}", 29, NULL), TY_OK);
    code = run_ranks(&f, 2);
    cr_assert_eq(code, 3, "exit %d: %s", code, f.log);
    cr_assert_not_null(strstr(f.log, "job.json:/"), "%s", f.log);

    snprintf(command, sizeof command, TY_TEST_WORKER " %s/absent.json", f.directory);
    code = finish(&f, start(&f, command), 30);
    cr_assert_eq(code, 3, "exit %d: %s", code, f.log);
    cr_assert_not_null(strstr(f.log, "absent.json"), "%s", f.log);
    fixture_free(&f);
}

Test(worker, explains_itself)
{
    static const struct {
        const char *arguments;
        int code;
        const char *text;
    } rows[] = {
        {" --help", 0, "exit status"},
        {" --version", 0, "trainyard-worker "},
        {"", 2, "usage:"},
        {" --nonsense", 2, "nonsense"},
        {" one two", 2, "usage:"},
    };
    fixture f = fixture_make(&data_parallel, 5);

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char command[700];
        int code;

        snprintf(command, sizeof command, TY_TEST_WORKER "%s", rows[i].arguments);
        code = finish(&f, start(&f, command), 30);
        cr_assert_eq(code, rows[i].code, "\"%s\": exit %d", rows[i].arguments, code);
        cr_assert_not_null(strstr(f.log, rows[i].text), "\"%s\": %s", rows[i].arguments, f.log);
    }
    fixture_free(&f);
}

/* Waits until training has started, which the gradients of the first step show. */
static void wait_for_start(const fixture *f)
{
    for (int i = 0; i < 600 && !ty_file_exists(f->job->gradients); i++)
        usleep(50000);
    cr_assert(ty_file_exists(f->job->gradients));
}

/* Whether a process was started with the variable. */
static bool has_variable(int process, const char *variable)
{
    char path[64], environment[65536];
    FILE *file;
    size_t length, at;

    snprintf(path, sizeof path, "/proc/%d/environ", process);
    file = fopen(path, "r");
    if (file == NULL)
        return false;
    length = fread(environment, 1, sizeof environment - 1, file);
    environment[length] = '\0';
    fclose(file);
    for (at = 0; at < length; at += strlen(environment + at) + 1)
        if (strcmp(environment + at, variable) == 0)
            return true;
    return false;
}

/* The process of a rank of this job. */
static pid_t find_worker(const fixture *f, int rank)
{
    char command[700], variable[64];
    int process, found = 0;
    FILE *pipe;

    snprintf(variable, sizeof variable, "OMPI_COMM_WORLD_RANK=%d", rank);
    snprintf(command, sizeof command, "pgrep -f '^" TY_TEST_WORKER " %s$'", f->job_path);
    pipe = popen(command, "r");
    cr_assert_not_null(pipe);
    while (fscanf(pipe, "%d", &process) == 1)
        if (has_variable(process, variable))
            found = process;
    pclose(pipe);
    cr_assert(found > 0, "rank %d is not there", rank);
    return found;
}

Test(worker, all_ranks_end_when_one_is_killed)
{
    fixture f = fixture_make(&pipeline, 100000);
    pid_t child = start_ranks(&f, 3, f.job_path);
    int code;

    wait_for_start(&f);
    kill(find_worker(&f, 1), SIGKILL);
    code = finish(&f, child, 20);
    cr_assert(code > 0, "exit %d: %s", code, f.log);
    cr_assert(!ty_file_exists(f.job->output));
    fixture_free(&f);
}

/* The step in latest.json; 0 if there is none. */
static uint32_t latest_step(const char *path)
{
    ty_json_document *document = NULL;
    double step = 0;

    if (!ty_file_exists(path))
        return 0;
    cr_assert_eq(ty_json_load(path, &document, NULL), TY_OK);
    cr_assert_eq(ty_json_number(ty_json_root(document), "step", 1, 1e9, &step, NULL), TY_OK);
    ty_json_free(document);
    return (uint32_t)step;
}

static void save_job(const fixture *f)
{
    ty_error error = {0};

    cr_assert_eq(ty_job_save(f->job, f->job_path, &error), TY_OK, "%s", error.message);
}

/* Runs until there is a checkpoint after step `step`, a little longer, and kills one rank during a
 * step or during the writing of a checkpoint. */
static void run_and_kill(fixture *f, const char *latest, uint32_t step, int rank)
{
    pid_t child = start_ranks(f, 3, f->job_path);
    int code;

    for (int i = 0; i < 6000 && latest_step(latest) <= step; i++)
        usleep(5000);
    usleep((useconds_t)rank * 7000);
    kill(find_worker(f, rank), SIGKILL);
    code = finish(f, child, 20);
    cr_assert(code > 0, "rank %d: exit %d: %s", rank, code, f->log);
}

/* Each rank is killed once, at a random moment. The newest checkpoint is complete, and the run
 * resumed from it equals one that was never killed. */
Test(worker, goes_on_after_kills)
{
    enum { EVERY = 5 };
    fixture f = fixture_make(&pipeline, 100000);
    char folder[512], latest[600], command[700];
    ty_run *found = NULL, *expected = NULL;
    ty_error error = {0};
    uint32_t step = 0;
    int code;

    snprintf(folder, sizeof folder, "%s/state", f.directory);
    snprintf(latest, sizeof latest, "%s/latest.json", folder);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    ty_free(f.job->gradients); /* saving them would force a checkpoint interval */
    f.job->gradients = NULL;
    f.job->checkpoint = ty_strdup(folder);
    f.job->checkpoint_every = EVERY;
    for (int rank = 0; rank < 3; rank++) {
        f.job->resume = rank > 0;
        save_job(&f);
        run_and_kill(&f, latest, step, rank);
        cr_assert(latest_step(latest) > step);
        step = latest_step(latest);
    }
    f.job->steps = step + EVERY;
    save_job(&f);
    code = run_ranks(&f, 3);
    cr_assert_eq(code, 0, "exit %d: %s", code, f.log);
    cr_assert_eq(ty_run_load(f.job->output, &found, &error), TY_OK, "%s", error.message);

    cr_assert_eq(system(command), 0);
    f.job->resume = false;
    expected = run_here(&f);
    cr_assert_eq(found->step_count, step + EVERY);
    for (uint32_t s = 0; s < expected->step_count; s++)
        cr_assert_eq(found->losses[s], expected->losses[s], "step %u", s);
    cr_assert_eq(system(command), 0);
    ty_run_free(found);
    ty_run_free(expected);
    fixture_free(&f);
}

/* Sums have the same bits for every transport. */
Test(worker, links_make_no_difference)
{
    static const char *const links[] = {"mpi", "shared"};
    fixture f = fixture_make(&pipeline, 10);
    ty_run *expected = run_here(&f);

    for (size_t i = 0; i < sizeof links / sizeof links[0]; i++) {
        ty_run *found = NULL;
        ty_error error = {0};
        int code;

        unlink(f.job->output);
        setenv("TRAINYARD_LINK", links[i], 1);
        code = run_ranks(&f, 3);
        cr_assert_eq(code, 0, "%s: exit %d: %s", links[i], code, f.log);
        cr_assert_eq(ty_run_load(f.job->output, &found, &error), TY_OK, "%s", error.message);
        cr_assert_eq(strstr(found->versions, ", shared memory") != NULL, i == 1, "%s: %s", links[i],
                     found->versions);
        for (uint32_t s = 0; s < 10; s++)
            cr_assert_eq(found->losses[s], expected->losses[s], "%s: step %u: %.17g, %.17g",
                         links[i], s, found->losses[s], expected->losses[s]);
        ty_run_free(found);
    }
    ty_run_free(expected);
    fixture_free(&f);
}

Test(worker, refuses_an_unknown_link)
{
    fixture f = fixture_make(&data_parallel, 10);
    int code;

    setenv("TRAINYARD_LINK", "token-ring", 1);
    code = run_ranks(&f, 2);
    cr_assert_eq(code, 1, "exit %d: %s", code, f.log);
    cr_assert_not_null(strstr(f.log, "TRAINYARD_LINK: found \"token-ring\", expected mpi, shared, "
                                     "host, nccl or auto"),
                       "%s", f.log);
    fixture_free(&f);
}

Test(worker, stops_after_a_step_when_interrupted)
{
    fixture f = fixture_make(&pipeline, 100000);
    pid_t child = start_ranks(&f, 3, f.job_path);
    ty_run *run = NULL;
    ty_error error = {0};
    int code;

    wait_for_start(&f);
    kill(find_worker(&f, 2), SIGINT);
    code = finish(&f, child, 20);
    cr_assert_eq(code, 130, "exit %d: %s", code, f.log);
    cr_assert_not_null(strstr(f.log, "stopped after "), "%s", f.log);
    /* Measurements up to then are saved. */
    cr_assert_eq(ty_run_load(f.job->output, &run, &error), TY_OK, "%s", error.message);
    cr_assert(run->step_count > 0 && run->step_count < 100000 && run->wall_s > 0);
    cr_assert(run->timeline->step_count > 0 && run->timeline->step_count <= run->step_count);
    cr_assert(run->summary.step_time_s > 0);
    ty_run_free(run);
    fixture_free(&f);
}

/* All ranks detect the overflow of the loss in the same step. */
Test(worker, tells_a_diverging_loss)
{
    fixture f = fixture_make(&pipeline, 50);
    ty_error error = {0};
    ty_status status;

    f.job->plan->optimizer.learning_rate = 1e6;
    ty_program_free(f.job->program);
    f.job->program = NULL;
    cr_assert_eq(ty_plan_lower(f.job->plan, &f.job->program, &error), TY_OK, "%s", error.message);
    status = ty_execute_job_locally(f.job, 3, &(ty_execute_options){0}, &error);
    cr_assert_eq(status, TY_ELIMIT);
    cr_assert_not_null(strstr(error.message, "no longer a finite number"), "%s", error.message);
    cr_assert(!ty_file_exists(f.job->output));
    fixture_free(&f);
}

Test(worker, profiles_this_machine)
{
    static const uint32_t sizes[] = {4, 16, 4};
    fixture f = fixture_make(&data_parallel, 5);
    ty_profile *profile = NULL;
    ty_error error = {0};
    int code;

    f.job->kind = TY_JOB_PROFILE;
    f.job->micro_batch_count = 3;
    f.job->micro_batches = ty_alloc(3, sizeof sizes[0]);
    memcpy(f.job->micro_batches, sizes, sizeof sizes);
    cr_assert_eq(ty_job_save(f.job, f.job_path, &error), TY_OK, "%s", error.message);
    code = run_ranks(&f, 2);
    cr_assert_eq(code, 0, "exit %d: %s", code, f.log);
    cr_assert_eq(ty_profile_load(f.job->output, &profile, &error), TY_OK, "%s", error.message);

    cr_assert_eq(profile->concurrent_ranks, 2);
    /* flatten, three sizes of linear, two relu of one size, loss: each at two sizes */
    cr_assert_eq(profile->layer_time_count, 2 * 6);
    cr_assert_eq(profile->transfer_time_count, 8);
    cr_assert_eq(profile->collective_time_count, 6 * 8);
    /* Three sizes of linear layer, and all of them together. */
    cr_assert_eq(profile->update_time_count, 4);
    cr_assert_eq(profile->codec_time_count, 24 * 3);
    cr_assert(profile->load_s_per_byte > 0 && profile->instruction_overhead_s > 0);
    cr_assert_str_eq(profile->input_source, f.job->plan->workload->name);
    cr_assert(profile->input_s_per_sample > 0);
    for (uint32_t i = 0; i + 1 < 8; i++)
        cr_assert(profile->transfer_times[i].seconds > 0);
    /* Sixteen times the work takes longer under any load of the host. */
    for (uint32_t i = 0; i < 3; i++)
        cr_assert(profile->collective_times[i * 8 + 7].seconds >
                  profile->collective_times[i * 8 + 3].seconds);
    ty_profile_free(profile);
    fixture_free(&f);
}
