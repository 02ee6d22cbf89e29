/* Failures against Monte Carlo; input, cost and energy against figures by hand. */
#include "../pin.h"
#include "ty_economics.h"
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_near(double found, double expected, double tolerance, const char *what)
{
    cr_assert(fabs(found - expected) <= tolerance * fabs(expected),
              "%s: found %.17g, expected %.17g", what, found, expected);
}

/* ---- Failures ---------------------------------------------------------------------------- */

static double exponential(double mean)
{
    return -mean * log((rand() + 1.0) / (RAND_MAX + 2.0));
}

/* Seconds to complete the work and checkpoint of one interval, including failures and restarts; a
 * failure during a restart repeats the restart. */
static double one_interval(double work_s, double write_s, double restart_s, double mtbf_s)
{
    double clock = 0, need = work_s + write_s;

    for (;;) {
        double failure = exponential(mtbf_s);
        if (failure >= need)
            return clock + need;
        clock += failure;
        for (;;) {
            double again = exponential(mtbf_s);
            if (again >= restart_s)
                break;
            clock += again;
        }
        clock += restart_s;
    }
}

Test(failures, goodput_is_what_playing_it_gives)
{
    static const struct {
        double mtbf, write, restart, interval;
    } cases[] = {
        {3600, 30, 120, 400}, {86400, 60, 300, 3000}, {1000, 50, 200, 900}, {500, 5, 400, 50}};

    srand(11);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ty_failure_question q = {.devices = 4,
                                 .device_mtbf_s = 4 * cases[i].mtbf,
                                 .host_mtbf_s = HUGE_VAL,
                                 .checkpoint_write_s = cases[i].write,
                                 .restart_s = cases[i].restart,
                                 .checkpoint_interval_s = cases[i].interval};
        ty_failure_forecast o;
        double clock = 0;
        int rounds = 60000;
        for (int r = 0; r < rounds; r++)
            clock +=
                one_interval(cases[i].interval, cases[i].write, cases[i].restart, cases[i].mtbf);
        cr_assert_eq(ty_failures(&q, &o, NULL), TY_OK);
        check_near(o.system_mtbf_s, cases[i].mtbf, 1e-12, "mtbf");
        check_near(o.goodput, rounds * cases[i].interval / clock, 0.02, "goodput");
    }
}

Test(failures, chosen_interval_is_the_best)
{
    for (double write = 0.01; write < 1000; write *= 7) {
        ty_failure_question q = {.devices = 1,
                                 .device_mtbf_s = 20000,
                                 .host_mtbf_s = HUGE_VAL,
                                 .checkpoint_write_s = write,
                                 .restart_s = 100};
        ty_failure_forecast chosen, other;
        double best = 0;
        cr_assert_eq(ty_failures(&q, &chosen, NULL), TY_OK);
        check_near(chosen.checkpoint_interval_s, sqrt(2 * write * 20000), 0.2, "Young's rule");
        for (double t = 1; t < 1e5; t *= 1.01) {
            q.checkpoint_interval_s = t;
            cr_assert_eq(ty_failures(&q, &other, NULL), TY_OK);
            best = fmax(best, other.goodput);
        }
        cr_assert_geq(chosen.goodput, best * (1 - 1e-4), "write %g: %g of %g", write,
                      chosen.goodput, best);
    }
}

Test(failures, limits)
{
    ty_failure_question q = {.devices = 8,
                             .hosts = 1,
                             .device_mtbf_s = HUGE_VAL,
                             .host_mtbf_s = HUGE_VAL,
                             .checkpoint_write_s = 10};
    ty_failure_forecast o = {0};

    cr_assert_eq(ty_failures(&q, &o, NULL), TY_OK);
    cr_assert_eq(o.goodput, 1, "nothing fails, nothing is written");
    q.checkpoint_interval_s = 90;
    cr_assert_eq(ty_failures(&q, &o, NULL), TY_OK);
    check_near(o.goodput, 0.9, 1e-12, "only writing");
    q.device_mtbf_s = 0;
    cr_assert_eq(ty_failures(&q, &o, NULL), TY_EINVAL);
    q.device_mtbf_s = NAN;
    cr_assert_eq(ty_failures(&q, &o, NULL), TY_EINVAL);
}

/* ---- Money, energy, score ---------------------------------------------------------------- */

static ty_cluster *open_cluster(const char *line)
{
    ty_cluster *cluster = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_cluster_open(line, NULL, &cluster, &error), TY_OK, "%s", error.message);
    return cluster;
}

Test(money, prices_and_power_add_up)
{
    ty_cluster *priced = open_cluster("4x p4d.24xlarge"), *owned = open_cluster("2x dgx-a100");
    ty_cluster *unpriced = open_cluster("1x p100-server");
    ty_cost_rates rates = {0};
    ty_cluster_rates a, b, idle;

    cr_assert_eq(ty_cluster_rates_of(priced, 1, &rates, &a, NULL), TY_OK);
    cr_assert(a.has_price);
    check_near(a.price_usd_per_s * 3600, 4 * 21.957642, 1e-9, "list price");
    cr_assert_eq(ty_cluster_rates_of(owned, 1, &rates, &b, NULL), TY_OK);
    cr_assert(b.has_price, "the rent of such devices");
    cr_assert_str_eq(b.price_kind, "rental");
    cr_assert_eq(ty_cluster_rates_of(unpriced, 1, &rates, &b, NULL), TY_OK);
    cr_assert_not(b.has_price);
    cr_assert_eq(ty_cluster_rates_of(owned, 1, &rates, &b, NULL), TY_OK);
    check_near(b.power_w.high, 2 * 6500, 1e-9, "rated power");
    rates = (ty_cost_rates){
        .price_usd_per_device_hour = 2, .price_usd_per_kwh = 0.1, .power_usage_effectiveness = 1.5};
    cr_assert_eq(ty_cluster_rates_of(owned, 0, &rates, &idle, NULL), TY_OK);
    check_near(idle.power_w.expected, 2 * 6500 * 0.25 * 1.5, 1e-9, "idle, with the building");
    check_near(idle.price_usd_per_s * 3600, 16 * 2 + idle.power_w.expected / 1000 * 0.1, 1e-9,
               "energy paid for");
    cr_assert_eq(ty_cluster_rates_of(owned, 1.1, &rates, &idle, NULL), TY_EINVAL);
    rates.power_usage_effectiveness = 0.5;
    cr_assert_eq(ty_cluster_rates_of(owned, 1, &rates, &idle, NULL), TY_EINVAL);
    ty_cluster_free(priced);
    ty_cluster_free(owned);
    ty_cluster_free(unpriced);
}

/* From the query, from a host in the cluster, from the catalogue by host, then by device. */
Test(money, prices_by_what_is_asked)
{
    static const struct {
        const char *cluster, *price, *kind;
        double usd; /* per device and hour */
    } rows[] = {
        {"2x p4d.24xlarge", NULL, "on-demand", 21.957642 / 8},
        {"2x p4d.24xlarge", "on demand", "on-demand", 21.957642 / 8},
        {"2x p4d.24xlarge", "spot", "spot", 2.083},
        {"2x p4d.24xlarge", "2.50", "given", 2.5},
        {"2x p4d.24xlarge", "h100=9,a100-40gb=$1.50", "given", 1.5},
        {"2x p4d.24xlarge", "h100=9", "on-demand", 21.957642 / 8},
        {"p6-b300.48xlarge", NULL, "on-demand", 142.416 / 8},
        {"2x dgx-h100", NULL, "rental", 2.73},
        {"3x h100", NULL, "rental", 2.73},
        {"2x dgx-h100", "reserved", "reserved", 2.59},
        {"v5p-64", NULL, "on-demand", 4.2},
        {"dgx-h100", "spot", "", 0},
        {"dgx-h100", "spot,h100=2", "given", 2},
        {"1x dgx-h100 + 1x dgx-a100", "h100=2,a100=1", "given", 1.5},
        {"1x dgx-h100 + 1x p5.48xlarge", NULL, "mixed", (2.73 + 55.04 / 8) / 2},
    };
    static const char *const wrong[] = {
        "", "-1", "nan", "inf", "h100=", "h101=2", "cheap", "1e9", "h100=2=3"};
    ty_cluster *c = open_cluster("dgx-h100");
    ty_cluster_rates r;
    ty_error error = {0};

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const ty_cost_rates asked = {.price = rows[i].price};
        ty_cluster *cluster = open_cluster(rows[i].cluster);
        const char *price = rows[i].price != NULL ? rows[i].price : "no price";
        cr_assert_eq(ty_cluster_rates_of(cluster, 1, &asked, &r, &error), TY_OK, "%s",
                     error.message);
        cr_expect_eq(r.has_price, rows[i].usd > 0, "%s, %s", rows[i].cluster, price);
        cr_expect_str_eq(r.price_kind, rows[i].kind, "%s, %s: %s", rows[i].cluster, price,
                         r.price_kind);
        cr_expect_float_eq(r.price_usd_per_device_hour, rows[i].usd, 1e-9, "%s, %s: %g",
                           rows[i].cluster, price, r.price_usd_per_device_hour);
        ty_cluster_free(cluster);
    }
    for (size_t i = 1; i < sizeof wrong / sizeof wrong[0]; i++) {
        const ty_cost_question asked = {.price = wrong[i]};
        cr_expect_eq(ty_cost_question_check(&asked, &error), TY_EINVAL, "\"%s\"", wrong[i]);
    }
    ty_cluster_free(c);
}

/* Every price belongs to an existing host or device, has a date, and is between its bounds. */
Test(money, prices_of_the_catalogue)
{
    ty_json_document *document = NULL;
    const ty_json *rows;
    char *path = NULL;

    cr_assert_eq(ty_data_path("study/catalogue", "prices.json", &path, NULL), TY_OK);
    cr_assert_eq(ty_json_load(path, &document, NULL), TY_OK);
    cr_assert_eq(ty_json_array(ty_json_root(document), "prices", 1, 1000, &rows, NULL), TY_OK);
    for (size_t i = 0; i < ty_json_size(rows); i++) {
        const ty_json *row = ty_json_at(rows, i), *sources;
        const char *name, *text;
        char line[160];
        ty_cluster *host = NULL, *device = NULL;
        double usd, low, high;
        cr_assert_eq(ty_json_string(row, "name", &name, NULL), TY_OK);
        cr_assert_eq(ty_json_string(row, "kind", &text, NULL), TY_OK, "%s", name);
        cr_assert(strlen(text) < sizeof((ty_cluster_rates *)NULL)->price_kind, "%s", text);
        cr_assert_eq(ty_json_string(row, "date", &text, NULL), TY_OK, "%s", name);
        cr_expect(strncmp(text, "202", 3) == 0, "%s: %s", name, text);
        cr_assert_eq(ty_json_string(row, "source", &text, NULL), TY_OK, "%s", name);
        cr_assert_eq(ty_json_object(ty_json_root(document), "sources", &sources, NULL), TY_OK);
        cr_expect(ty_json_has(sources, text), "%s: %s", name, text);
        cr_assert_eq(ty_json_number(row, "usd_per_device_hour", 0.01, 100, &usd, NULL), TY_OK);
        if (ty_json_has(row, "low")) {
            cr_assert_eq(ty_json_number(row, "low", 0.01, usd, &low, NULL), TY_OK, "%s", name);
            cr_assert_eq(ty_json_number(row, "high", usd, 100, &high, NULL), TY_OK, "%s", name);
        }
        snprintf(line, sizeof line, "host:1 gpu:1 @%.80s pcie4 eth10", name);
        cr_expect(ty_cluster_open(name, NULL, &host, NULL) == TY_OK ||
                      ty_cluster_open(line, NULL, &device, NULL) == TY_OK,
                  "%s", name);
        ty_cluster_free(host);
        ty_cluster_free(device);
    }
    ty_json_free(document);
    ty_free(path);
}

static ty_plan *plan_resnet(const ty_cluster *cluster, uint32_t batch)
{
    ty_workload *workload = NULL;
    ty_plan_options options = ty_plan_options_default();
    ty_plan *plan = NULL;
    ty_error error = {0};

    options.global_batch = batch;
    pin(&options.pins, "pp=1,compression=none");
    cr_assert_eq(ty_workload_open("resnet50", &workload, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_plan_search(workload, cluster, NULL, &options, &plan, &error), TY_OK, "%s",
                 error.message);
    ty_workload_free(workload);
    return plan;
}

Test(score, figures_hang_together)
{
    ty_cluster *cluster = open_cluster("2x p3.16xlarge");
    ty_plan *plan = plan_resnet(cluster, 1024);
    ty_score_question q = ty_score_question_default();
    ty_convergence *task = NULL;
    ty_score s;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_error error = {0};

    cr_assert_eq(ty_convergence_of_workload("resnet50", &task, &error), TY_OK);
    q.task = task;
    cr_assert_eq(ty_score_plan(plan, cluster, &q, &s, &error), TY_OK, "%s", error.message);
    check_near(s.time_to_target_s.expected,
               ty_convergence_steps(task, 1024) * plan->prediction.step_time_s / s.failures.goodput,
               1e-9, "steps x step time / goodput");
    check_near(s.money_usd.expected, s.time_to_target_s.expected / 3600 * 2 * 24.48, 1e-9, "money");
    check_near(s.energy_j.expected, s.time_to_target_s.expected * s.power_w.expected, 1e-9,
               "energy");
    cr_assert(s.failures.goodput > 0.99 && s.failures.goodput < 1);
    cr_assert(s.time_to_target_s.low < s.time_to_target_s.expected &&
              s.time_to_target_s.expected < s.time_to_target_s.high);
    check_near((double)s.checkpoint_bytes, 2 * 4 * 25557032.0, 0.01, "weights and momentum");
    ty_score_to_json(&s, &w, NULL);
    cr_assert_eq(text.failed, TY_OK);
    cr_assert_not_null(strstr(text.data, "trainyard.score/1"));
    cr_assert_not_null(strstr(text.data, "\"convergence_provenance\": \"prior\""));
    ty_text_clear(&text);
    ty_score_clear(&s);
    q.compressor = "top-k";
    q.staleness = TY_STALENESS_ASYNCHRONOUS;
    q.staleness_depth = 16;
    cr_assert_eq(ty_score_plan(plan, cluster, &q, &s, &error), TY_OK);
    cr_assert_gt(s.time_to_target_s.expected * 1.0,
                 1.05 * ty_convergence_steps(task, 1024) * plan->prediction.step_time_s);
    ty_score_clear(&s);
    ty_convergence_free(task);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
}

/* Days, dollars and energy of a training length follow from the step, for every way to specify
 * it. */
Test(cost, of_a_length_of_training)
{
    ty_cluster *cluster = open_cluster("2x p3.16xlarge");
    ty_plan *plan = plan_resnet(cluster, 1024);
    ty_cost_question q = {.steps = 1e6}, epochs = {.epochs = 3}, tokens = {.tokens = 1e9};
    ty_training_cost c = {0}, other = {0};
    ty_score s;
    ty_error error = {0};
    ty_score_question score = ty_score_question_default();
    ty_text text = {0};

    score.cost = q;
    cr_assert_eq(ty_training_cost_of(plan, cluster, &q, &c, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_score_plan(plan, cluster, &score, &s, &error), TY_OK, "%s", error.message);
    cr_expect_eq(c.goodput, s.failures.goodput);
    cr_expect_eq(c.samples, 1024e6);
    cr_expect_eq(c.tokens, 0);
    check_near(c.days * 86400, 1e6 * ty_plan_summary(plan)->step_time_s / c.goodput, 1e-12, "days");
    check_near(c.cost_usd, c.days * 24 * 2 * 24.48, 1e-12, "dollars");
    check_near(c.energy_mwh, s.power_w.expected * c.days * 24 / 1e6, 1e-12, "energy");
    cr_expect_str_eq(c.price_kind, "on-demand");
    cr_expect_eq(s.cost.cost_usd, c.cost_usd, "one home");

    cr_assert_eq(ty_training_cost_of(plan, cluster, &tokens, &other, &error), TY_EINVAL);
    cr_expect_not_null(strstr(error.message, "--tokens"), "%s", error.message);
    cr_assert_eq(ty_training_cost_of(plan, cluster, &epochs, &other, &error), TY_EINVAL);
    plan->input.data_bytes = 1024.0 * 1000 * (double)plan->workload->sample_bytes;
    cr_assert_eq(ty_training_cost_of(plan, cluster, &epochs, &other, &error), TY_OK);
    check_near(other.steps, 3000, 1e-12, "epochs");
    plan->input.data_bytes = 0;

    q.price = "3";
    q.failure_rate = "x1000";
    q.power = "x2";
    cr_assert_eq(ty_training_cost_of(plan, cluster, &q, &other, &error), TY_OK);
    cr_expect_lt(other.goodput, c.goodput);
    check_near(other.days * other.goodput, c.days * c.goodput, 1e-12, "the same work");
    check_near(other.cost_usd, other.days * 24 * 16 * 3, 1e-12, "dollars of a given price");
    check_near(other.energy_mwh / other.days, 2 * c.energy_mwh / c.days, 1e-9, "power");
    q.epochs = 1;
    cr_expect_eq(ty_training_cost_of(plan, cluster, &q, &other, &error), TY_EINVAL);

    c = (ty_training_cost){.steps = 1,
                           .samples = 1,
                           .tokens = 1e12,
                           .days = 193.2,
                           .price_kind = "given",
                           .price_usd_per_device_hour = 2,
                           .cost_usd = 592896};
    ty_training_cost_line(&c, &text);
    cr_expect_str_eq(text.data,
                     "Cost        193 days, $593k for 1T tokens at $2.00 per GPU-hour\n");
    ty_text_clear(&text);
    ty_score_clear(&s);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
}

/* The first of two stages is stale, by the one micro-batch that overtakes the update. */
Test(score, late_gradients_by_micro_batches)
{
    ty_cluster *cluster = open_cluster("2x p3.16xlarge");
    ty_plan *plan = plan_resnet(cluster, 1024);
    ty_convergence *task = NULL;
    ty_score_question q = ty_score_question_default();
    ty_plan_stage *whole = plan->stages, halves[2] = {whole[0], whole[0]};
    const uint32_t micro_batches = plan->micro_batches, stage_count = plan->stage_count;
    ty_error error = {0};

    cr_assert_eq(ty_convergence_of_workload("resnet50", &task, &error), TY_OK);
    q.task = task;
    q.staleness = TY_STALENESS_WEIGHT_STASHING;
    plan->schedule = TY_PIPEDREAM;
    plan->stages = halves;
    plan->stage_count = 2;
    for (uint32_t replicas = 1; replicas <= 2; replicas++)
        for (uint32_t m = replicas; m <= 16; m *= 2) {
            ty_score s;
            ty_interval expected;
            halves[0].replicas = halves[1].replicas = replicas;
            plan->micro_batches = m;
            cr_assert_eq(ty_score_plan(plan, cluster, &q, &s, &error), TY_OK, "%s", error.message);
            cr_assert_eq(ty_staleness_multiplier(task, 1024, 0.5 * replicas / m, &expected, NULL),
                         TY_OK);
            check_near(s.staleness_multiplier.expected, expected.expected, 1e-12, "multiplier");
            ty_score_clear(&s);
        }
    plan->stages = whole;
    plan->stage_count = stage_count;
    plan->micro_batches = micro_batches;
    ty_convergence_free(task);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
}

/* A plan with a staleness: it applies to all its gradients, for any stages. */
Test(score, late_gradients_of_a_plan)
{
    ty_cluster *cluster = open_cluster("2x p3.16xlarge");
    ty_plan *plan = plan_resnet(cluster, 1024);
    ty_convergence *task = NULL;
    ty_score_question q = ty_score_question_default();
    ty_error error = {0};

    cr_assert_eq(ty_convergence_of_workload("resnet50", &task, &error), TY_OK);
    q.task = task;
    q.staleness = TY_STALENESS_DELAYED;
    for (plan->staleness = 0; plan->staleness <= 3; plan->staleness++) {
        ty_score s;
        ty_interval expected;
        cr_assert_eq(ty_score_plan(plan, cluster, &q, &s, &error), TY_OK, "%s", error.message);
        cr_assert_eq(ty_staleness_multiplier(task, 1024, plan->staleness, &expected, NULL), TY_OK);
        check_near(s.staleness_multiplier.expected, expected.expected, 1e-12, "multiplier");
        check_near(s.staleness_multiplier.high, expected.high, 1e-12, "highest multiplier");
        check_near(s.rate_multiplier.expected, 1, 1e-12, "prior of tuned rates");
        ty_score_clear(&s);
    }
    /* If the synchronous learning rate is known, the recipe's smaller steps count. */
    task->learning_rate = 0.1;
    task->batch = 1024;
    plan->staleness = 1;
    for (int is_named = 0; is_named <= 1; is_named++) {
        ty_score s;
        q.learning_rate = is_named ? 0.1 * 0.1 : 0;
        cr_assert_eq(ty_score_plan(plan, cluster, &q, &s, &error), TY_OK, "%s", error.message);
        check_near(s.rate_multiplier.expected, 10, 1e-9, "a tenth of the way");
        ty_score_clear(&s);
    }
    ty_convergence_free(task);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
}

Test(score, slow_input_is_named)
{
    ty_cluster *cluster = open_cluster("2x p3.16xlarge storage=far{bandwidth=2MB/s}");
    ty_plan *plan = plan_resnet(cluster, 1024);
    ty_score_question q = ty_score_question_default();
    ty_score s;

    cr_assert_eq(ty_score_plan(plan, cluster, &q, &s, NULL), TY_OK);
    cr_assert(s.is_bound_by_input);
    cr_assert_str_eq(s.input_bound_by, "far");
    check_near(s.samples_per_s, 2e6 / (double)plan->workload->sample_bytes, 1e-6, "by the store");
    cr_assert_not_null(strstr(plan->prediction.limited_by, "input (far) 100 %"), "%s",
                       plan->prediction.limited_by);
    cr_assert_not(s.has_target);
    ty_score_clear(&s);
    plan->has_prediction = false;
    cr_assert_eq(ty_score_plan(plan, cluster, &q, &s, NULL), TY_EINVAL);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
}
