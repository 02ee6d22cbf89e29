/* Stale gradients: stragglers that change from step to step, against the recurrence from the
 * durations in the timeline itself. */
#include "scenario.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>

enum { REPLICAS = 4, STEPS = 200, MOST_LATE = 4 };
enum { FORWARD, BACKWARD, EXCHANGE, UPDATE };

static const double FORWARD_S = 1e-3, BACKWARD_S = 2e-3, UPDATE_S = 1e-4, EXCHANGE_S = 1.5e-3;

/* Replicas that compute and all-reduce their gradients, with a staleness. */
static void open(scenario *s, uint32_t staleness, double jitter, ty_resolution resolution)
{
    const ty_instruction_cost exchange_cost = {.seconds = EXCHANGE_S,
                                               .edge_bytes = 1.2e7 * EXCHANGE_S / 1e-3};
    uint32_t bucket;

    scenario_open(s, cluster_of("host:4 gpu:1 @v100-sxm2-16gb nvlink2 eth100"), 1,
                  (const uint32_t[]){REPLICAS}, REPLICAS);
    bucket = scenario_bucket(s, 0, TY_RING, TY_COMPRESSION_NONE);
    scenario_add(s, 0, op(TY_OP_FORWARD), NULL, (ty_instruction_cost){.seconds = FORWARD_S});
    scenario_add(s, 0, op(TY_OP_BACKWARD), NULL, (ty_instruction_cost){.seconds = BACKWARD_S});
    scenario_add(s, 0, exchange(bucket), (const uint32_t[]){BACKWARD, TY_NO_INSTRUCTION},
                 exchange_cost);
    scenario_add(s, 0, op(TY_OP_UPDATE), (const uint32_t[]){EXCHANGE, TY_NO_INSTRUCTION},
                 (ty_instruction_cost){.seconds = UPDATE_S});
    for (uint32_t i = FORWARD; i < UPDATE; i++)
        s->codes[0].instructions[i].lead = staleness;
    s->plan.staleness = staleness;
    scenario_close(s);
    s->options.steps = STEPS;
    s->options.jitter = jitter;
    s->options.seed = 7;
    s->options.resolution = resolution;
}

static double duration(const scenario *s, const ty_timeline *timeline, uint32_t step,
                       uint32_t stage_replica, uint32_t instruction)
{
    const ty_event *event = event_of(s, timeline, step, stage_replica, instruction);
    return event->end_s - event->start_s;
}

/* Time at which the all-reduce of a step began, after all members arrived. */
static double gathered_s(const scenario *s, const ty_timeline *timeline, uint32_t step)
{
    double last = 0;
    for (uint32_t q = 0; q < REPLICAS; q++)
        last = fmax(last, event_of(s, timeline, step, q, EXCHANGE)->start_s);
    return last;
}

/* All replicas by hand: the passes of a step, then the update of the step `staleness` earlier, once
 * its all-reduce is over. */
static void expect_recurrence(const scenario *s, const ty_timeline *timeline, uint32_t staleness)
{
    double free_s[REPLICAS] = {0}, exchanged_s[STEPS] = {0};
    char what[64];

    for (uint32_t round = 0; round < STEPS + staleness; round++) {
        const uint32_t updated = round - staleness;
        double ready_s = 0;

        for (uint32_t q = 0; q < REPLICAS && round < STEPS; q++) {
            free_s[q] += duration(s, timeline, round, q, FORWARD) +
                         duration(s, timeline, round, q, BACKWARD);
            ready_s = fmax(ready_s, free_s[q]);
        }
        if (round < STEPS)
            exchanged_s[round] = fmax(ready_s, round > 0 ? exchanged_s[round - 1] : 0) +
                                 event_of(s, timeline, round, 0, EXCHANGE)->end_s -
                                 gathered_s(s, timeline, round);
        for (uint32_t q = 0; q < REPLICAS && round >= staleness; q++) {
            free_s[q] =
                fmax(free_s[q], exchanged_s[updated]) + duration(s, timeline, updated, q, UPDATE);
            snprintf(what, sizeof what, "%u late: update of step %u on stage replica %u", staleness,
                     updated, q);
            expect_close(what, event_of(s, timeline, updated, q, UPDATE)->end_s, free_s[q], 1e-6);
        }
    }
}

static double step_s(const scenario *s, const ty_timeline *timeline)
{
    ty_step_summary summary;
    ty_error error = {0};

    cr_assert_eq(ty_timeline_summarize(&s->plan, &s->program, timeline, &summary, &error), TY_OK,
                 "%s", error.message);
    return summary.step_time_s;
}

/* Mean time between the steps after warm-up and before cool-down, for any staleness. */
static double mean_step_s(const scenario *s, const ty_timeline *timeline)
{
    const uint32_t first = MOST_LATE, last = STEPS - 1 - MOST_LATE;
    double from_s = 0, to_s = 0;

    for (uint32_t q = 0; q < REPLICAS; q++) {
        from_s = fmax(from_s, event_of(s, timeline, first, q, UPDATE)->end_s);
        to_s = fmax(to_s, event_of(s, timeline, last, q, UPDATE)->end_s);
    }
    return (to_s - from_s) / (last - first);
}

/* Computation and communication overlap: a step takes the longer of the two. */
Test(late, exchanges_hide_behind_the_next_steps)
{
    for (int resolution = TY_FLOW; resolution <= TY_CHUNK; resolution++)
        for (uint32_t staleness = 0; staleness <= MOST_LATE; staleness++) {
            scenario s;
            ty_timeline *timeline;
            const double computed_s = FORWARD_S + BACKWARD_S + UPDATE_S;

            open(&s, staleness, 0, (ty_resolution)resolution);
            timeline = scenario_simulate(&s);
            expect_recurrence(&s, timeline, staleness);
            if (staleness > 0)
                expect_close("a late step", step_s(&s, timeline), computed_s, 1e-6);
            else
                cr_assert_gt(step_s(&s, timeline), computed_s + 0.9 * EXCHANGE_S);
            ty_timeline_free(timeline);
            scenario_free(&s);
        }
}

/* Every compute time is random, so that each step has a straggler. Without staleness all wait for
 * it; with more staleness a step approaches the mean compute time. */
Test(late, stragglers_that_change_are_hidden)
{
    for (int resolution = TY_FLOW; resolution <= TY_CHUNK; resolution++) {
        double steps_s[MOST_LATE + 1], mean_s = 0, slowest_s = 0;

        for (uint32_t staleness = 0; staleness <= MOST_LATE; staleness++) {
            scenario s;
            ty_timeline *timeline;

            open(&s, staleness, 0.5, (ty_resolution)resolution);
            timeline = scenario_simulate(&s);
            expect_recurrence(&s, timeline, staleness);
            steps_s[staleness] = mean_step_s(&s, timeline);
            for (uint32_t step = 0; step < STEPS && staleness == 0; step++) {
                double longest = 0;
                for (uint32_t q = 0; q < REPLICAS; q++) {
                    const double own = duration(&s, timeline, step, q, FORWARD) +
                                       duration(&s, timeline, step, q, BACKWARD);
                    mean_s += own / REPLICAS / STEPS;
                    longest = fmax(longest, own);
                }
                slowest_s += longest / STEPS;
            }
            ty_timeline_free(timeline);
            scenario_free(&s);
        }
        printf("steps of %.3f ms in time, of %.3f, %.3f, %.3f and %.3f ms with 1 to 4 late; the "
               "slowest replica computes %.3f ms, the mean one %.3f ms\n",
               1e3 * steps_s[0], 1e3 * steps_s[1], 1e3 * steps_s[2], 1e3 * steps_s[3],
               1e3 * steps_s[4], 1e3 * slowest_s, 1e3 * mean_s);
        for (uint32_t staleness = 1; staleness <= MOST_LATE; staleness++)
            cr_expect_lt(steps_s[staleness], steps_s[staleness - 1], "staleness %u", staleness);
        cr_expect_gt(steps_s[0], slowest_s);
        cr_expect_lt(steps_s[1], slowest_s + UPDATE_S, "a step that is late hides the exchange");
        cr_expect_lt(steps_s[MOST_LATE], mean_s + 0.5 * (slowest_s - mean_s), "and stragglers");
    }
}
