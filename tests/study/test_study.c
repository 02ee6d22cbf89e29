/* The queries of ty_study.h as a program would make them. */
#include "ty_study.h"
#include "vary.h"

#include <criterion/criterion.h>

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const ty_question vgg = {
    .workload = "vgg16", .cluster = "2x p100-server", .seed = 1, .fix = "schedule=gpipe"};

/* ---- One question -------------------------------------------------------------------------- */

static ty_status plan_for(const ty_question *question, const ty_watch *watch, ty_plan **out,
                          ty_error *error)
{
    ty_question_inputs inputs = {0};
    ty_status status = TY_OK;

    TY_CHECK(ty_question_open(question, watch, &inputs, error), status, done);
    status = ty_question_plan(question, &inputs, watch, out, error);
done:
    ty_question_inputs_clear(&inputs);
    return status;
}

Test(study, pins_and_the_learning_rate_are_kept)
{
    ty_question question = vgg;
    ty_plan *plan = NULL;
    ty_error error = {0};

    question.fix = "pp=2,dp=4,schedule=1f1b";
    question.learning_rate = 0.125;
    cr_assert_eq(plan_for(&question, NULL, &plan, &error), TY_OK, "%s", error.message);
    cr_assert_eq(plan->stage_count, 2);
    cr_assert_eq(plan->stages[1].replicas, 4);
    cr_assert_eq(plan->schedule, TY_ONE_F_ONE_B);
    cr_assert_eq(plan->optimizer.learning_rate, 0.125);
    cr_assert_str_eq(plan->cluster_name, "2x p100-server");
    ty_plan_free(plan);
}

/* The cheapest plan costs no more than the fastest one. */
Test(study, an_objective_is_never_worse_by_its_own_measure)
{
    ty_question question = {.workload = "resnet50", .cluster = "1x p3.16xlarge", .seed = 1};
    ty_cluster *cluster = NULL;
    ty_plan *fastest = NULL, *cheapest = NULL;
    ty_score fast = {0}, cheap = {0};
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open(question.cluster, NULL, &cluster, &error), TY_OK);
    cr_assert_eq(plan_for(&question, NULL, &fastest, &error), TY_OK, "%s", error.message);
    question.objective = "cost";
    cr_assert_eq(plan_for(&question, NULL, &cheapest, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_score(fastest, cluster, NULL, NULL, &fast, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(ty_plan_score(cheapest, cluster, NULL, NULL, &cheap, &error), TY_OK);
    cr_assert(cheap.has_price && fast.has_price);
    cr_assert_leq(cheap.money_usd.expected, fast.money_usd.expected * (1 + 1e-9));
    ty_score_clear(&fast);
    ty_score_clear(&cheap);
    ty_plan_free(fastest);
    ty_plan_free(cheapest);
    ty_cluster_free(cluster);
}

/* Samples per second of the best plan for a query; 0: there is none. */
static double asked(const ty_question *question, uint32_t batch, const char *fix)
{
    ty_question other = *question;
    ty_plan *plan = NULL;
    ty_error error = {0};
    double samples_per_s;

    other.global_batch = batch;
    other.fix = fix;
    if (plan_for(&other, NULL, &plan, &error) != TY_OK)
        return 0;
    samples_per_s = plan->prediction.samples_per_s;
    ty_plan_free(plan);
    return samples_per_s;
}

/* Suggested changes are faster when they are queried, and there is no suggestion if no change
 * is. */
Test(study, what_divides_badly_is_found_by_asking, .timeout = 200)
{
    static const struct {
        const char *cluster, *fix;
        uint32_t batch;
        uint32_t batches[2]; /* faster ones; 0: none */
        uint32_t stages, stage_better;
        const char *better_fix;
    } rows[] = {
        {"dgx-a100", NULL, 60, {56, 64}, 0, 0, NULL},
        {"dgx-a100", NULL, 22, {16, 24}, 0, 0, NULL},
        {"dgx-a100", NULL, 64, {0, 0}, 0, 0, NULL},
        {"dgx-a100", NULL, 4, {0, 0}, 0, 0, NULL},             /* a divisor of the number of
                                                                * devices */
        {"dgx-a100", "micro_batch=5", 60, {0, 0}, 0, 0, NULL}, /* 64 is no multiple of 5 */
        {"3x dgx-a100", "pp=8", 96, {0, 0}, 8, 6, "pp=6"},
        {"dgx-a100", "pp=8", 64, {0, 0}, 8, 0, NULL}, /* 8 devices are no multiple of 6 */
        {"dgx-a100", "pp=4", 64, {0, 0}, 0, 0, NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ty_question question = {.workload = "bert-base",
                                      .cluster = rows[i].cluster,
                                      .fix = rows[i].fix,
                                      .global_batch = rows[i].batch,
                                      .stack = "megatron",
                                      .seed = 1};
        ty_question_inputs inputs = {0};
        ty_plan *plan = NULL;
        const ty_imbalance *batch, *blocks;
        ty_error error = {0};
        cr_assert_eq(ty_question_open(&question, NULL, &inputs, &error), TY_OK);
        cr_assert_eq(ty_question_plan(&question, &inputs, NULL, &plan, &error), TY_OK,
                     "row %zu: %s", i, error.message);
        cr_assert_eq(ty_question_imbalance(&question, &inputs, NULL, plan, &error), TY_OK, "%s",
                     error.message);
        batch = &plan->uneven[TY_UNEVEN_BATCH];
        blocks = &plan->uneven[TY_UNEVEN_BLOCKS];
        cr_assert_eq(batch->count, rows[i].batches[0] > 0 ? rows[i].batch : 0, "row %zu", i);
        for (uint32_t b = 0; b < 2 && rows[i].batches[0] > 0; b++) {
            const double there = asked(&question, rows[i].batches[b], rows[i].fix);
            cr_assert_eq(batch->better[b].count, rows[i].batches[b], "row %zu", i);
            cr_assert_eq(batch->better[b].samples_per_s, there, "row %zu", i);
            cr_assert_gt((1 - TY_UNEVEN_SHARE) * there, plan->prediction.samples_per_s);
            cr_assert_geq(batch->lost_share, 1 - plan->prediction.samples_per_s / there - 1e-12);
        }
        cr_assert_eq(blocks->parts, rows[i].stages, "row %zu", i);
        cr_assert_eq(blocks->better_count, rows[i].stage_better > 0, "row %zu", i);
        if (rows[i].stages > 0) { /* 12 blocks: two per stage, 1.5 on average */
            cr_assert_eq(blocks->count, 12);
            cr_assert(blocks->lost_share > TY_UNEVEN_SHARE && blocks->lost_share <= 0.25);
        }
        if (rows[i].stage_better > 0) {
            cr_assert_eq(blocks->better[0].count, rows[i].stage_better);
            cr_assert_eq(blocks->better[0].samples_per_s,
                         asked(&question, rows[i].batch, rows[i].better_fix));
            cr_assert_gt(blocks->better[0].samples_per_s, plan->prediction.samples_per_s);
        }
        ty_plan_free(plan);
        ty_question_inputs_clear(&inputs);
    }
}

Test(study, words_without_meaning_are_refused)
{
    static const struct {
        ty_question question;
        ty_status status;
        const char *words;
    } rows[] = {
        {{.workload = "vgg16", .cluster = "1x p100-server", .objective = "cots"},
         TY_EINVAL,
         "did you mean cost"},
        {{.workload = "vgg16", .cluster = "1x p100-server", .system = "horovodd"},
         TY_EINVAL,
         "did you mean horovod"},
        {{.workload = "vgg16", .cluster = "1x p100-server", .fix = "qq=1"}, TY_EINVAL, "'qq'"},
        {{.workload = "vgg16", .cluster = "1x p100-server", .fix = "pp=9"}, TY_EINVAL, "fix pp"},
        {{.workload = "vgg16", .cluster = "1x p100-server", .precision = "fp7"},
         TY_EINVAL,
         "--precision: found 'fp7', expected fp32"},
        {{.workload = "vgg16", .cluster = "1x p100-server", .precision = "fp8"},
         TY_EUNSUPPORTED,
         "p100-pcie-16gb: has no peak rate or bandwidth in fp8"},
        {{.workload = "vgg16", .cluster = "1x p100-server", .objective = "cost", .system = "gpipe"},
         TY_EINVAL,
         "expected one"},
        {{.workload = "vgg17", .cluster = "1x p100-server"}, TY_EIO, "did you mean 'vgg16'"},
        {{.cluster = "1x p100-server"}, TY_EINVAL, "needed"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_plan *plan = NULL;
        ty_error error = {0};
        cr_assert_eq(plan_for(&rows[i].question, NULL, &plan, &error), rows[i].status, "%zu: %s", i,
                     error.message);
        cr_assert(strstr(error.message, rows[i].words) != NULL, "%zu: %s", i, error.message);
        cr_assert_null(plan);
    }
}

static bool stop_at_once(void *context)
{
    ++*(int *)context;
    return true;
}

Test(study, who_waits_can_stop)
{
    int polls = 0;
    const ty_watch watch = {.should_stop = stop_at_once, .context = &polls};
    const char *values[] = {"1", "2"};
    const ty_whatif_axis axis = {"hosts", values, 2};
    ty_whatif *whatif = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_whatif_new(&vgg, &axis, 1, &whatif, &error), TY_OK);
    cr_assert_eq(ty_whatif_run(whatif, &watch, NULL, NULL, &error), TY_EINTERRUPTED);
    cr_assert_gt(polls, 0);
    cr_assert_eq(ty_whatif_done_count(whatif), 0);
    ty_whatif_free(whatif);
}

/* Text that is overwritten before the point is opened. */
Test(study, points_keep_their_words)
{
    static const char *const words[][2] = {
        {"bandwidth.pcie3", "x0.5"}, {"cluster", "1x p100-server"}, {"objective", "energy"}};
    ty_vary_point point = {0};
    ty_question_inputs inputs = {0};
    ty_error error = {0};

    cr_assert_eq(ty_vary_point_new(&vgg, &point, &error), TY_OK);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char key[32], value[32];
        snprintf(key, sizeof key, "%s", words[i][0]);
        snprintf(value, sizeof value, "%s", words[i][1]);
        cr_assert_eq(ty_vary_set(&point, key, value, &error), TY_OK, "%s", error.message);
        memset(key, 'x', sizeof key - 1);
        memset(value, 'x', sizeof value - 1);
    }
    cr_expect_str_eq(point.edits[0].name, "pcie3");
    cr_expect_str_eq(point.question.cluster, "1x p100-server");
    cr_expect_str_eq(point.question.objective, "energy");
    cr_expect_eq(ty_vary_open(&point, NULL, &inputs, &error), TY_OK, "%s", error.message);
    ty_question_inputs_clear(&inputs);
    ty_vary_point_clear(&point);
}

/* ---- What if ------------------------------------------------------------------------------- */

static ty_status count_row(void *context, const ty_whatif *whatif, ty_error *error)
{
    (void)error;
    cr_assert_eq(ty_whatif_done_count(whatif), ++*(uint32_t *)context);
    return TY_OK;
}

static double step_time_of(const char *row)
{
    const char *at = strstr(row, "\"step_time_s\": ");
    double seconds = NAN;

    cr_assert(at != NULL && sscanf(at, "\"step_time_s\": %lf", &seconds) == 1, "%s", row);
    return seconds;
}

/* Every row is the answer to the query itself; a document saves the work. */
Test(study, rows_are_answers)
{
    const char *hosts[] = {"1", "2"}, *stages[] = {"1", "2", "9"};
    const ty_whatif_axis axes[] = {{"hosts", hosts, 2}, {"pp", stages, 3}};
    ty_question question = {.workload = "vgg16", .cluster = "2x p100-server", .seed = 1};
    ty_whatif *whatif = NULL, *resumed = NULL;
    ty_text document = {0};
    ty_json_writer writer = ty_json_writer_on(&document);
    char path[] = "/tmp/ty-study-XXXXXX";
    uint32_t taken = 0;
    ty_error error = {0};

    cr_assert_eq(ty_whatif_new(&question, axes, 2, &whatif, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_whatif_row_count(whatif), 6);
    cr_assert_null(ty_whatif_row(whatif, 0));
    cr_assert_eq(ty_whatif_run(whatif, NULL, count_row, &taken, &error), TY_OK, "%s",
                 error.message);
    cr_assert_eq(taken, 6);
    for (uint32_t row = 0; row < 6; row++) {
        char cluster[32], fix[32];
        ty_question alone = question;
        ty_plan *plan = NULL;
        ty_error refusal = {0};
        snprintf(cluster, sizeof cluster, "%sx p100-server", ty_whatif_value(whatif, row, 0));
        snprintf(fix, sizeof fix, "pp=%s", ty_whatif_value(whatif, row, 1));
        alone.cluster = cluster;
        alone.fix = fix;
        if (plan_for(&alone, NULL, &plan, &refusal) == TY_OK) {
            cr_assert_float_eq(step_time_of(ty_whatif_row(whatif, row)),
                               plan->prediction.step_time_s, 1e-12);
        } else {
            cr_assert(strstr(ty_whatif_row(whatif, row), "\"reason\"") != NULL);
        }
        ty_plan_free(plan);
    }
    cr_assert_str_eq(ty_whatif_value(whatif, 4, 0), "2");
    cr_assert_str_eq(ty_whatif_value(whatif, 4, 1), "2"); /* the last axis changes fastest */

    ty_whatif_to_json(whatif, &writer);
    cr_assert_geq(close(mkstemp(path)), 0);
    cr_assert_eq(ty_file_write_text(path, &document, &error), TY_OK);
    cr_assert_eq(ty_whatif_new(&question, axes, 2, &resumed, &error), TY_OK);
    cr_assert_eq(ty_whatif_resume(resumed, path, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_whatif_done_count(resumed), 6);
    ty_whatif_free(resumed);
    question.seed = 2;
    cr_assert_eq(ty_whatif_new(&question, axes, 2, &resumed, &error), TY_OK);
    cr_assert_eq(ty_whatif_resume(resumed, path, &error), TY_EPARSE);
    ty_whatif_free(resumed);
    ty_whatif_free(whatif);
    ty_text_clear(&document);
    unlink(path);
}

/* ---- A long run ---------------------------------------------------------------------------- */

static void open_resnet(ty_plan_inputs *inputs, double *step_time_s)
{
    const ty_question question = {.workload = "resnet50",
                                  .cluster = "2x v100-8-roce100",
                                  .fix = "pp=1,compression=none,micro_batch=16,bucket=25MB",
                                  .stack = TY_WORKER_STACK,
                                  .precision = "fp32",
                                  .seed = 1};
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(plan_for(&question, NULL, &plan, &error), TY_OK, "%s", error.message);
    *step_time_s = plan->prediction.step_time_s;
    cr_assert_eq(ty_plan_inputs_from(plan, inputs, &error), TY_OK, "%s", error.message);
}

Test(study, elastic_runs_shrink_by_the_replicas_that_are_lost, .timeout = 100)
{
    const ty_fault faults[] = {{TY_FAULT_DEVICE, 3, 7200, "device:3"},
                               {TY_FAULT_HOST, 1, 86400, "host:1"}};
    ty_forecast_question question = ty_forecast_question_default();
    ty_simulate_options how = ty_simulate_options_default();
    ty_plan_inputs inputs = {0};
    ty_forecast rigid = {0}, elastic = {0};
    double step_time_s;
    ty_error error = {0};

    open_resnet(&inputs, &step_time_s);
    question.faults = faults;
    question.fault_count = 2;
    question.restart_s = 0;
    cr_assert_eq(ty_forecast_find(&inputs, &how, step_time_s, &question, &rigid, &error), TY_OK,
                 "%s", error.message);
    question.is_elastic = true;
    cr_assert_eq(ty_forecast_find(&inputs, &how, step_time_s, &question, &elastic, &error), TY_OK,
                 "%s", error.message);
    cr_assert_eq(rigid.endurance.failures, 2);
    cr_assert_eq(rigid.question.rate_count, 0); /* spares */
    cr_assert_eq(rigid.question.restart_s, 0);
    cr_assert_eq(elastic.known[0].replicas, 1);
    cr_assert_eq(elastic.known[1].replicas, 8);
    cr_assert_gt(elastic.question.rate_count, 1);
    cr_assert_eq(elastic.rates[0], 1);
    /* Two hosts lose up to seven replicas; with eight lost, all are on one host, which is
     * faster. */
    for (uint32_t k = 2; k < 8; k++)
        cr_assert_lt(elastic.rates[k], elastic.rates[k - 1]);
    cr_assert_gt(elastic.rates[8], elastic.rates[7]);
    cr_assert_lt(elastic.rates[8], 1);
    cr_assert_gt(rigid.endurance.goodput, elastic.endurance.goodput);
    cr_assert_str_eq(elastic.names[1], "host:1");
    ty_forecast_clear(&rigid);
    ty_forecast_clear(&elastic);

    question.faults = &(ty_fault){TY_FAULT_LINK, UINT32_MAX, 1, NULL};
    question.fault_count = 1;
    cr_assert_eq(ty_forecast_find(&inputs, &how, step_time_s, &question, &rigid, &error),
                 TY_EINVAL);
    ty_forecast_clear(&rigid);
    ty_plan_inputs_clear(&inputs);
}

/* ---- Documents, jobs ----------------------------------------------------------------------- */

Test(study, documents_of_a_plan)
{
    ty_plan_inputs inputs = {0};
    ty_json_document *score = NULL, *compression = NULL;
    const ty_json *curves;
    double step_time_s;
    ty_error error = {0};

    open_resnet(&inputs, &step_time_s);
    cr_assert_eq(ty_plan_score_document(&inputs, NULL, &score, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_json_schema(ty_json_root(score), "trainyard.score/1", &error), TY_OK);
    cr_assert_eq(ty_plan_compression_document(&inputs, &compression, &error), TY_OK);
    cr_assert_eq(ty_json_array(ty_json_root(compression), "curves", 1, 100, &curves, &error),
                 TY_OK);
    cr_assert_eq(ty_json_size(curves), 6); /* no compression, and the displayed ones */
    ty_json_free(score);
    ty_json_free(compression);
    inputs.plan->prediction.step_time_s = 0;
    cr_assert_eq(ty_plan_score_document(&inputs, NULL, &score, &error), TY_OK);
    cr_assert_null(score);
    ty_plan_inputs_clear(&inputs);
}

Test(study, jobs_of_a_training)
{
    ty_training training = {.until = {.accuracy = 0.5}};
    ty_plan_inputs inputs = {0};
    ty_job *job = NULL;
    double step_time_s;
    ty_error error = {0};

    open_resnet(&inputs, &step_time_s);
    cr_assert_eq(ty_training_job(&training, &inputs, "run.json", &job, &error), TY_OK);
    cr_assert_null(inputs.plan);
    cr_assert_str_eq(job->backend, "cpu");
    cr_assert_eq(job->evaluate_every, 50);
    cr_assert_eq(job->steps, 100000);
    cr_assert_eq(job->timeline_steps, 20);
    ty_job_free(job);
    ty_plan_inputs_clear(&inputs);

    open_resnet(&inputs, &step_time_s);
    training = (ty_training){.backend = "replay", .steps = 8};
    cr_assert_eq(ty_training_job(&training, &inputs, "run.json", &job, &error), TY_OK);
    cr_assert_eq(job->warmup_steps, 2);
    cr_assert_eq(job->timeline_steps, 6);
    cr_assert_not_null(job->instruction_s);
    ty_job_free(job);
    ty_plan_inputs_clear(&inputs);
}

Test(study, calibrations_need_replicas_and_a_target)
{
    ty_calibration_question question = {.question = {.workload = "mlp", .cluster = "2x dgx-a100"}};
    ty_calibration calibration;
    ty_error error = {0};

    cr_assert_eq(ty_calibrate(&question, NULL, &calibration, &error), TY_EINVAL);
    cr_assert(strstr(error.message, "local:N") != NULL, "%s", error.message);
    ty_calibration_clear(&calibration);
    question.question.cluster = "local:2";
    cr_assert_eq(ty_calibrate(&question, NULL, &calibration, &error), TY_EINVAL);
    cr_assert(strstr(error.message, "until") != NULL, "%s", error.message);
    ty_calibration_clear(&calibration);
}
