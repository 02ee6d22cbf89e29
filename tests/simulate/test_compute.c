/* Compute streams and cores against timelines computed by hand. */
#include "scenario.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define TOLERANCE 1e-6
#define WAITS(...)                                                                                 \
    (const uint32_t[])                                                                             \
    {                                                                                              \
        __VA_ARGS__, TY_NO_INSTRUCTION                                                             \
    }

static ty_instruction_cost seconds(double s)
{
    return (ty_instruction_cost){.seconds = s};
}

static ty_instruction_cost busy(double s, double cores)
{
    return (ty_instruction_cost){.seconds = s, .core_share = cores};
}

struct span {
    uint32_t step, instruction;
    double start_s, end_s;
};

static void expect_spans(const scenario *s, const ty_timeline *timeline, uint32_t stage_replica,
                         const struct span *spans, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char what[64];
        const ty_event *event =
            event_of(s, timeline, spans[i].step, stage_replica, spans[i].instruction);
        snprintf(what, sizeof what, "stage replica %u, step %u, instruction %u", stage_replica,
                 spans[i].step, spans[i].instruction);
        expect_close(what, event->start_s, spans[i].start_s, TOLERANCE);
        expect_close(what, event->end_s, spans[i].end_s, TOLERANCE);
    }
}

/* One stage replica loads two micro-batches ahead and computes them; the next step's loads start
 * immediately. */
Test(compute, a_chain_with_loads_follows_the_hand_timeline)
{
    scenario s;
    scenario_open(&s, cluster_of("leaf:1 host:2 gpu:1 @v100-sxm2-16gb nvlink2 edr100"), 1,
                  (const uint32_t[]){1}, 2);
    scenario_add(&s, 0, op(TY_OP_LOAD), NULL, seconds(0.5));
    scenario_add(&s, 0, op(TY_OP_LOAD), NULL, seconds(2.0));
    scenario_add(&s, 0, op(TY_OP_FORWARD), WAITS(0), seconds(1.0));
    scenario_add(&s, 0, op(TY_OP_BACKWARD), NULL, seconds(0.25));
    scenario_add(&s, 0, op(TY_OP_FORWARD), WAITS(1), seconds(1.0));
    scenario_add(&s, 0, op(TY_OP_BACKWARD), NULL, seconds(0.25));
    scenario_add(&s, 0, op(TY_OP_UPDATE), NULL, seconds(0.125));
    scenario_add(&s, 0, op(TY_OP_UPDATE), NULL, seconds(0.0));
    scenario_close(&s);
    s.options.steps = 2;
    ty_timeline *timeline = scenario_simulate(&s);
    static const struct span spans[] = {
        {0, 0, 0.0, 0.5},     {0, 1, 0.5, 2.5},     {0, 2, 0.5, 1.5},     {0, 3, 1.5, 1.75},
        {0, 4, 2.5, 3.5},     {0, 5, 3.5, 3.75},    {0, 6, 3.75, 3.875},  {0, 7, 3.875, 3.875},
        {1, 0, 2.5, 3.0},     {1, 1, 3.0, 5.0},     {1, 2, 3.875, 4.875}, {1, 3, 4.875, 5.125},
        {1, 4, 5.125, 6.125}, {1, 5, 6.125, 6.375}, {1, 6, 6.375, 6.5},   {1, 7, 6.5, 6.5},
    };
    expect_spans(&s, timeline, 0, spans, sizeof spans / sizeof *spans);
    cr_expect_eq(timeline->event_count, 16);
    ty_timeline_free(timeline);
    scenario_free(&s);
}

/* A host of `cores` cores with this number of stage replicas, each of which keeps `share` cores
 * busy for 1 s. */
Test(compute, oversubscribed_cores_stretch_work)
{
    static const struct {
        uint32_t ranks, cores;
        double share, expected_s;
    } rows[] = {
        {1, 2, 1.0, 1.0}, {2, 2, 1.0, 1.0}, {3, 2, 1.0, 1.5}, {4, 2, 1.0, 2.0},
        {3, 4, 2.0, 1.5}, {2, 4, 2.0, 1.0}, {4, 2, 0.5, 1.0}, {8, 2, 0.5, 2.0},
        {1, 4, 2.5, 1.0}, {1, 2, 4.0, 2.0}, {3, 2, 0.0, 1.0},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        scenario s;
        char what[96];
        scenario_open(&s, cluster_of_cores(rows[i].ranks, rows[i].cores), 1, &rows[i].ranks,
                      rows[i].ranks);
        scenario_add(&s, 0, op(TY_OP_FORWARD), NULL, busy(1.0, rows[i].share));
        scenario_close(&s);
        ty_timeline *timeline = scenario_simulate(&s);
        snprintf(what, sizeof what, "%u stage replicas of %g cores on %u", rows[i].ranks,
                 rows[i].share, rows[i].cores);
        for (uint32_t r = 0; r < rows[i].ranks; r++)
            expect_close(what, event_of(&s, timeline, 0, r, 0)->end_s, rows[i].expected_s,
                         TOLERANCE);
        ty_timeline_free(timeline);
        scenario_free(&s);
    }
}

/* Costs may specify that stage replicas of a host do not compete: then core shares have no
 * effect. */
Test(compute, without_shared_cores_nothing_stretches)
{
    scenario s;
    scenario_open(&s, cluster_of_cores(3, 2), 1, (const uint32_t[]){3}, 3);
    scenario_add(&s, 0, op(TY_OP_FORWARD), NULL, busy(1.0, 1.0));
    scenario_close(&s);
    s.costs->host_cores[0] = HUGE_VAL;
    ty_timeline *timeline = scenario_simulate(&s);
    for (uint32_t r = 0; r < 3; r++)
        expect_close("rank", event_of(&s, timeline, 0, r, 0)->end_s, 1.0, TOLERANCE);
    ty_timeline_free(timeline);
    scenario_free(&s);
}

/*
 * Two stage replicas on two cores. Stage replica 0 sends for 0.5 s, one core busy at each end,
 * while both compute for 1 s. The load is four on two cores, so all run at half speed until the
 * copy ends at 1.0. The remaining compute, 0.5 s each, then has a core to itself.
 */
Test(compute, a_copy_by_cpu_competes_with_computing)
{
    scenario s;
    scenario_open(&s, cluster_of_cores(2, 2), 2, (const uint32_t[]){1, 1}, 1);
    scenario_add(&s, 0, transfer(TY_OP_SEND, TY_ACTIVATION, 1, 0), NULL, busy(0.5, 1.0));
    scenario_add(&s, 0, op(TY_OP_FORWARD), NULL, busy(1.0, 1.0));
    scenario_add(&s, 1, op(TY_OP_FORWARD), NULL, busy(1.0, 1.0));
    scenario_add(&s, 1, transfer(TY_OP_RECEIVE, TY_ACTIVATION, 0, 0), NULL, busy(0.5, 1.0));
    scenario_add(&s, 1, op(TY_OP_BACKWARD), WAITS(1), busy(0.25, 1.0));
    scenario_close(&s);
    ty_timeline *timeline = scenario_simulate(&s);
    static const struct span first[] = {{0, 0, 0.0, 1.0}, {0, 1, 0.0, 1.5}};
    static const struct span second[] = {{0, 0, 0.0, 1.5}, {0, 1, 0.0, 1.0}, {0, 2, 1.5, 1.75}};
    expect_spans(&s, timeline, 0, first, 2);
    expect_spans(&s, timeline, 1, second, 3);
    ty_timeline_free(timeline);
    scenario_free(&s);
}

/* Collectives on one host take their seconds if cores are free, and longer otherwise. */
Test(compute, a_collective_on_one_host_uses_its_cores)
{
    for (uint32_t ranks = 2; ranks <= 4; ranks++) {
        for (int algorithm = TY_RING; algorithm <= TY_TREE; algorithm++) {
            scenario s;
            const ty_instruction_cost cost = {.seconds = 0.3,
                                              .latency_s = 0.1,
                                              .edge_bytes = 1e6,
                                              .rate_limit_bytes_per_s = 5e6,
                                              .core_share = 1.0};
            scenario_open(&s, cluster_of_cores(ranks, 2), 1, &ranks, ranks);
            const uint32_t bucket =
                scenario_bucket(&s, 0, (ty_algorithm)algorithm, TY_COMPRESSION_NONE);
            scenario_add(&s, 0, exchange(bucket), NULL, cost);
            scenario_close(&s);
            ty_timeline *timeline = scenario_simulate(&s);
            const double expected = 0.3 * (ranks > 2 ? ranks / 2.0 : 1.0);
            expect_close(ty_algorithm_name((ty_algorithm)algorithm),
                         event_of(&s, timeline, 0, ranks - 1, 0)->end_s, expected, TOLERANCE);
            ty_timeline_free(timeline);
            scenario_free(&s);
        }
    }
}

Test(compute, the_same_question_gives_the_same_bytes)
{
    scenario s;
    scenario_open(&s, cluster_of_cores(3, 2), 1, (const uint32_t[]){3}, 3);
    const uint32_t bucket = scenario_bucket(&s, 0, TY_RING, TY_COMPRESSION_NONE);
    scenario_add(&s, 0, op(TY_OP_LOAD), NULL, busy(0.1, 1.0));
    scenario_add(&s, 0, op(TY_OP_FORWARD), WAITS(0), busy(1.0 / 3.0, 1.0));
    scenario_add(&s, 0, exchange(bucket), WAITS(1), busy(0.1, 0.7));
    scenario_add(&s, 0, op(TY_OP_FORWARD), NULL, busy(0.7, 1.0));
    scenario_close(&s);
    s.options.steps = 20;
    ty_timeline *first = scenario_simulate(&s);
    ty_timeline *second = scenario_simulate(&s);
    cr_assert_eq(first->event_count, second->event_count);
    cr_expect(memcmp(first->events, second->events, first->event_count * sizeof(ty_event)) == 0);
    ty_timeline_free(first);
    ty_timeline_free(second);
    scenario_free(&s);
}
