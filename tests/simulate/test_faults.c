/* Long runs under failures against closed forms and by hand; shrunken plans; seeds side by side;
 * slow and missing links. */
#include "scenario.h"

#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

static double sum_of(const ty_endurance *e)
{
    return e->work_s + e->degraded_s + e->lost_s + e->checkpoint_s + e->down_s;
}

static ty_endurance endure(const ty_endurance_question *question)
{
    ty_endurance endurance;
    ty_error error = {0};

    cr_assert_eq(ty_endure(question, &endurance, &error), TY_OK, "%s", error.message);
    expect_close("all of the time", sum_of(&endurance), question->horizon_s, 1e-9);
    return endurance;
}

Test(faults, without_failures_only_checkpoints_cost)
{
    const ty_endurance_question question = {
        .horizon_s = 1000, .checkpoint_interval_s = 90, .checkpoint_write_s = 10};
    const ty_endurance e = endure(&question);

    expect_close("goodput", e.goodput, 0.9, 1e-12);
    cr_expect_eq(e.checkpoints, 10);
    cr_expect_eq(e.failures, 0);
}

/* The mean of many runs is Daly's expectation (Daly 2006, equation 20): with M between failures, d
 * to write, R to restart and t between checkpoints, t / (M e^(R/M) (e^((t+d)/M) - 1)). */
Test(faults, goodput_is_what_daly_expects)
{
    static const struct {
        double mtbf_s, interval_s, write_s, restart_s;
    } rows[] = {
        {3600, 600, 20, 300}, {10000, 1000, 60, 100}, {500, 100, 5, 60}, {86400, 3000, 1, 0}};

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double m = rows[i].mtbf_s, t = rows[i].interval_s;
        const double expected =
            t / (m * exp(rows[i].restart_s / m) * (exp((t + rows[i].write_s) / m) - 1));
        double sum = 0;
        for (uint64_t seed = 1; seed <= 20; seed++)
            sum += endure(&(ty_endurance_question){.horizon_s = 4000 * m,
                                                   .failure_rate_per_s = 1 / m,
                                                   .checkpoint_interval_s = t,
                                                   .checkpoint_write_s = rows[i].write_s,
                                                   .restart_s = rows[i].restart_s,
                                                   .seed = seed})
                       .goodput;
        expect_close("goodput", sum / 20, expected, 5e-3);
    }
}

/* One failure at 250 s: 50 s are lost, the restart takes 30 s; half of the replicas for 200 s. */
Test(faults, a_known_failure_by_hand)
{
    const ty_known_fault spare = {250, 1.0, 0}, shrink = {250, 1.0, 1}, cut = {250, 0.0, 0};
    const double rates[] = {1.0, 0.5};
    ty_endurance_question question = {.horizon_s = 1000,
                                      .known_count = 1,
                                      .known = &spare,
                                      .checkpoint_interval_s = 100,
                                      .restart_s = 30,
                                      .repair_s = 200};
    ty_endurance e = endure(&question);

    expect_close("lost", e.lost_s, 50, 1e-9);
    expect_close("down", e.down_s, 30, 1e-9);
    expect_close("work", e.work_s, 920, 1e-9);
    cr_expect_eq(e.failures, 1);
    question.known = &shrink;
    question.rates = rates;
    question.rate_count = 2;
    e = endure(&question);
    /* 280 to 450 s at half rate; then a second restart with all replicas. */
    expect_close("lost", e.lost_s, 50, 1e-9);
    expect_close("down", e.down_s, 60, 1e-9);
    expect_close("degraded", e.degraded_s, 85, 1e-9);
    expect_close("work", e.work_s, 200 + 85 + 520, 1e-9);
    cr_expect_eq(e.most_out, 1);
    question.known = &cut;
    question.rate_count = 0;
    e = endure(&question);
    expect_close("down", e.down_s, 230, 1e-9);
    expect_close("work", e.work_s, 200 + 520, 1e-9);
}

/* Increasing kinds of random failures, from the seed: times add up, and the same seed gives the
 * same times. */
Test(faults, random_runs_add_up_and_repeat)
{
    const double rates[] = {1.0, 0.9, 0.7};
    const ty_known_fault known[] = {{5000, 0.3, 0}, {9000, 1.0, 2}, {9000, 0.0, 1}};

    for (uint64_t seed = 1; seed <= 200; seed++) {
        ty_endurance_question question = {.horizon_s = 2e4 + 100.0 * (double)seed,
                                          .known_count = 3,
                                          .known = known,
                                          .failure_rate_per_s = 1e-4 * (double)(seed % 30),
                                          .checkpoint_interval_s = 10.0 * (double)(seed % 77 + 1),
                                          .checkpoint_write_s = (double)(seed % 5),
                                          .restart_s = (double)(seed % 200),
                                          .repair_s = 20.0 * (double)(seed % 100),
                                          .rate_count = (uint32_t)(seed % 4),
                                          .rates = rates,
                                          .seed = seed};
        const ty_endurance e = endure(&question), again = endure(&question);
        cr_expect(memcmp(&e, &again, sizeof e) == 0, "seed %u", (unsigned)seed);
        cr_expect(e.goodput >= 0 && e.goodput <= 1);
    }
}

Test(faults, questions_that_make_no_sense)
{
    const ty_endurance_question good = {.horizon_s = 1, .checkpoint_interval_s = 1};
    ty_endurance_question bad[5];
    ty_endurance e;

    for (int i = 0; i < 5; i++)
        bad[i] = good;
    bad[0].horizon_s = NAN;
    bad[1].checkpoint_interval_s = 0;
    bad[2].restart_s = -1;
    bad[3].failure_rate_per_s = HUGE_VAL;
    bad[4].repair_s = NAN;
    for (int i = 0; i < 5; i++) {
        ty_error error = {0};
        cr_expect_eq(ty_endure(&bad[i], &e, &error), TY_EINVAL, "row %d", i);
        cr_expect(strstr(error.message, "endurance: ") != NULL, "%s", error.message);
    }
    bad[0] = good;
    bad[0].horizon_s = 1e12;
    bad[0].failure_rate_per_s = 1;
    cr_expect_eq(ty_endure(&bad[0], &e, NULL), TY_ELIMIT);
}

/* Stages of three replicas with two devices each lose the second replica. */
Test(faults, a_plan_without_a_replica)
{
    const uint32_t replicas[] = {3, 3};
    scenario s;
    ty_plan *smaller = NULL;
    ty_error error = {0};

    scenario_open(&s, cluster_of("2x dgx-a100"), 2, replicas, 6);
    s.plan.tensor_parallel = 2;
    s.plan.micro_batch_size = 4;
    for (uint32_t stage = 0; stage < 2; stage++) {
        ty_free(s.stages[stage].devices);
        s.stages[stage].devices = ty_alloc(6, sizeof(uint32_t));
        for (uint32_t d = 0; d < 6; d++)
            s.stages[stage].devices[d] = 6 * stage + d;
    }
    scenario_close(&s);
    cr_assert_eq(ty_plan_without_replica(&s.plan, 4, &smaller, &error), TY_OK, "%s", error.message);
    for (uint32_t stage = 0; stage < 2; stage++) {
        const uint32_t first = 6 * stage, expected[] = {first, first + 1, first + 4, first + 5};
        cr_expect_eq(smaller->stages[stage].replicas, 2);
        cr_expect_arr_eq(smaller->stages[stage].devices, expected, sizeof expected);
    }
    cr_expect_eq(smaller->micro_batches, 4);
    cr_expect_eq(smaller->global_batch, 16);
    ty_plan_free(smaller);
    s.stages[1].replicas = 1;
    cr_expect_eq(ty_plan_without_replica(&s.plan, 0, &smaller, &error), TY_EINFEASIBLE);
    s.stages[0].replicas = 1;
    cr_expect_eq(ty_plan_without_replica(&s.plan, 0, &smaller, &error), TY_EINFEASIBLE);
    cr_expect_eq(ty_plan_without_replica(&s.plan, 7, &smaller, &error), TY_EINVAL);
    scenario_free(&s);
}

static void open_ring(scenario *s, const char *cluster, uint32_t replicas)
{
    scenario_open(s, cluster_of(cluster), 1, &replicas, replicas);
    const uint32_t bucket = scenario_bucket(s, 0, TY_RING, TY_COMPRESSION_NONE);
    const uint32_t backward =
        scenario_add(s, 0, op(TY_OP_BACKWARD), NULL, (ty_instruction_cost){.seconds = 0.1});
    scenario_add(s, 0, exchange(bucket), (const uint32_t[]){backward, TY_NO_INSTRUCTION},
                 (ty_instruction_cost){.seconds = 0.1, .edge_bytes = 1e9});
    scenario_close(s);
}

/* Side by side as one by one, and the spread of speeds shows in the step time. */
Test(faults, seeds_side_by_side)
{
    enum { SEEDS = 12 };
    double step_times_s[SEEDS], slowest_s = 0;
    scenario s;
    ty_error error = {0};

    open_ring(&s, "leaf:1 host:8 gpu:1 @v100-sxm2-16gb nvlink2 edr100", 8);
    s.options.spread = 0.05;
    s.options.jitter = 0.02;
    s.options.seed = 7;
    cr_assert_eq(ty_simulate_seeds(&s.plan, &s.program, s.costs, s.cluster, &s.options, SEEDS,
                                   step_times_s, &error),
                 TY_OK, "%s", error.message);
    for (uint32_t i = 0; i < SEEDS; i++) {
        ty_step_summary summary;
        ty_timeline *timeline = scenario_simulate(&s);
        cr_assert_eq(ty_timeline_summarize(&s.plan, &s.program, timeline, &summary, &error), TY_OK,
                     "%s", error.message);
        cr_expect(summary.step_time_s == step_times_s[i], "seed %u", i);
        slowest_s = fmax(slowest_s, step_times_s[i]);
        ty_timeline_free(timeline);
        s.options.seed++;
    }
    cr_expect(slowest_s > 0.1 + 0.005, "%g s", slowest_s);
    s.options.jitter = 7;
    cr_expect_eq(ty_simulate_seeds(&s.plan, &s.program, s.costs, s.cluster, &s.options, SEEDS,
                                   step_times_s, &error),
                 TY_EINVAL);
    cr_expect(strncmp(error.message, "seed ", 5) == 0, "%s", error.message);
    scenario_free(&s);
}

static double ring_end_s(scenario *s)
{
    ty_timeline *timeline = scenario_simulate(s);
    const double end_s = event_of(s, timeline, 0, 0, 1)->end_s - 0.1;
    ty_timeline_free(timeline);
    return end_s;
}

/* A ring runs at the bandwidth of its slowest link; without one, over the remaining routes. */
Test(faults, slow_and_missing_links)
{
    scenario s;
    ty_cluster *whole, *impaired = NULL;
    ty_error error = {0};
    uint32_t link = 0;

    open_ring(&s, "leaf:1 host:8 gpu:1 @v100-sxm2-16gb nvlink2 edr100", 8);
    whole = s.cluster;
    double *factors = ty_alloc(ty_cluster_link_count(whole), sizeof *factors);
    for (uint32_t l = 0; l < ty_cluster_link_count(whole); l++)
        factors[l] = 1.0;
    for (link = 0;
         ty_cluster_vertex_kind(whole, ty_cluster_link(whole, link)->to) != TY_VERTEX_SWITCH &&
         ty_cluster_vertex_kind(whole, ty_cluster_link(whole, link)->from) != TY_VERTEX_SWITCH;
         link++)
        ;
    factors[link] = 0.25;
    const double slow_s = 1e9 / (0.25 * ty_cluster_link(whole, link)->bandwidth_bytes_per_s);
    cr_assert_eq(ty_cluster_impaired(whole, factors, &impaired, &error), TY_OK, "%s",
                 error.message);
    s.cluster = impaired;
    for (int no_fold = 0; no_fold < 2; no_fold++) {
        s.options.no_fold = no_fold == 1;
        expect_close("slow", ring_end_s(&s), slow_s, 1e-3);
    }
    s.cluster = whole;
    ty_cluster_free(impaired);
    factors[link] = 0.0;
    cr_expect_eq(ty_cluster_impaired(whole, factors, &impaired, &error), TY_EINFEASIBLE);
    factors[link] = 2.0;
    cr_expect_eq(ty_cluster_impaired(whole, factors, &impaired, &error), TY_EINVAL);
    ty_free(factors);
    scenario_free(&s);
}

/* A mesh has other ways: over the host, more slowly. */
Test(faults, a_mesh_goes_on_without_a_link)
{
    scenario s;
    ty_cluster *whole, *impaired = NULL;
    ty_path path = {0};
    ty_error error = {0};

    open_ring(&s, "1x dgx1-v100", 8);
    whole = s.cluster;
    cr_assert_eq(ty_cluster_path(whole, 0, 1, &path, &error), TY_OK);
    cr_assert_eq(path.link_count, 1);
    const double before_s = ring_end_s(&s);
    double *factors = ty_alloc(ty_cluster_link_count(whole), sizeof *factors);
    for (uint32_t l = 0; l < ty_cluster_link_count(whole); l++)
        factors[l] = l == path.links[0] ? 0.0 : 1.0;
    ty_path_clear(&path);
    cr_assert_eq(ty_cluster_impaired(whole, factors, &impaired, &error), TY_OK, "%s",
                 error.message);
    cr_expect_eq(ty_cluster_link_count(impaired) + 1, ty_cluster_link_count(whole));
    s.cluster = impaired;
    cr_expect(ring_end_s(&s) > 1.5 * before_s);
    s.cluster = whole;
    ty_cluster_free(impaired);
    ty_free(factors);
    scenario_free(&s);
}
