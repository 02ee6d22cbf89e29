/* The plan of each known system for a small model on two and three ranks is planned, simulated and
 * run. With a flush the run equals training on one rank, otherwise its emulation. */
#include "emulation.h"
#include "outcome.h"
#include "plans.h"
#include "ty_simulate.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 4, BATCH = 24 };

typedef struct subject {
    const char *workload, *cluster;
    double tolerance;
} subject;

static const subject subjects[] = {
    {"lenet", "host:1 gpu:2 @t4 pcie3 eth10 nics=2", 1e-3},
    {"mlp", "host:3 gpu:1 @t4 pcie3 eth10", 1e-4},
};

/* Effect of rounding to 16 bits on the loss of a few steps: a half has 11 significant bits. */
static const double half_tolerance = 4.0 / 2048;

static bool is_compressed(const ty_plan *plan)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (plan->buckets[b].compression.kind != TY_COMPRESSION_NONE)
            return true;
    return false;
}

static void simulate(const char *what, const ty_plan *plan, const ty_cluster *cluster)
{
    const ty_simulate_options options = ty_simulate_options_default();
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    ty_step_summary summary = {0};
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(plan, &program, &error), TY_OK, "%s: %s", what, error.message);
    cr_assert_eq(ty_costs_of_program(plan, program, cluster, &costs, &error), TY_OK, "%s: %s", what,
                 error.message);
    cr_assert_eq(ty_simulate(plan, program, costs, cluster, &options, &timeline, &error), TY_OK,
                 "%s: %s", what, error.message);
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_OK, "%s: %s",
                 what, error.message);
    cr_expect_gt(summary.step_time_s, 0, "%s", what);
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    ty_program_free(program);
}

static void check_alone(const char *what, const ty_job *job, const char *directory,
                        double tolerance)
{
    ty_job *alone = make_job_on(plan_alone(job->plan, BATCH), STEPS, directory);
    outcome found = outcome_of(job), expected = outcome_of(alone);

    compare_losses(what, &found, &expected, tolerance);
    outcome_free(&found);
    outcome_free(&expected);
    ty_job_free(alone);
}

static void run(const char *what, const subject *s, ty_plan *plan, const char *directory)
{
    const double tolerance = s->tolerance + (is_compressed(plan) ? half_tolerance : 0);
    ty_job *job = make_job_on(plan, STEPS, directory);

    ty_free(job->gradients); /* saving them would drain the pipeline */
    job->gradients = NULL;
    if (ty_schedule_at(plan->schedule)->is_asynchronous)
        compare_emulated(what, job, tolerance);
    else
        check_alone(what, job, directory, tolerance);
    ty_job_free(job);
}

static void check(const ty_system *system, const subject *s, const char *directory)
{
    ty_plan_options options = ty_plan_options_default();
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;
    ty_status status;
    char what[160];
    ty_error error = {0};

    snprintf(what, sizeof what, "%s of %s on %s", system->name, s->workload, s->cluster);
    options.global_batch = BATCH;
    options.seed = 42;
    cr_assert_eq(ty_workload_open(s->workload, &workload, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_cluster_open(s->cluster, NULL, &cluster, &error), TY_OK, "%s", error.message);
    status = ty_plan_system(system, workload, cluster, NULL, &options, &plan, &error);
    if (strcmp(system->name, "megatron") == 0) {
        cr_expect_eq(status, TY_EINVAL, "%s", what);
        cr_expect_not_null(strstr(error.message, "no layout"), "%s: %s", what, error.message);
    } else {
        cr_assert_eq(status, TY_OK, "%s: %s", what, error.message);
        simulate(what, plan, cluster);
        printf("%s: %s\n", what, plan->strategy);
        run(what, s, plan, directory);
    }
    ty_cluster_free(cluster);
    ty_workload_free(workload);
}

Test(systems, plan_simulate_and_run)
{
    char *directory = directory_make();
    const ty_system *system;

    write_data(directory);
    for (uint32_t i = 0; (system = ty_system_at(i)) != NULL; i++)
        for (size_t s = 0; s < sizeof subjects / sizeof subjects[0]; s++)
            check(system, &subjects[s], directory);
    directory_remove(directory);
}
