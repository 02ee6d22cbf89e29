/*
 * The estimator: closed forms, timelines computed on paper, and two slow oracles on random plans: a
 * fixed-point relaxation of all start and end times (no shared cores), and a simulation that
 * re-examines every instruction after each event (shared cores).
 */
#include "core_sharing.h"
#include "oracles.h"
#include "plans.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

static bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fmax(fabs(a), fabs(b)));
}

/* A plan with its program, costs of zero, and once estimated its timeline. */
typedef struct estimate_case {
    ty_plan *plan;
    ty_program *program;
    ty_costs *costs;
    ty_timeline *timeline;
} estimate_case;

static estimate_case open_case(const plan_shape *shape)
{
    estimate_case c = {.plan = make_plan(shape)};
    ty_error error = {0};

    cr_assert_eq(ty_plan_lower(c.plan, &c.program, &error), TY_OK, "%s", error.message);
    c.costs = make_costs(c.plan, c.program);
    return c;
}

static void close_case(estimate_case *c)
{
    ty_timeline_free(c->timeline);
    ty_costs_free(c->costs);
    ty_program_free(c->program);
    ty_plan_free(c->plan);
}

/* Estimates `steps` steps and returns the end of the last one's last event. */
static double run_case(estimate_case *c, uint32_t steps)
{
    ty_error error = {0};
    double end_s = 0;

    ty_timeline_free(c->timeline);
    c->timeline = NULL;
    cr_assert_eq(ty_estimate(c->plan, c->program, c->costs, steps, &c->timeline, &error), TY_OK,
                 "%s", error.message);
    cr_assert_eq(ty_timeline_check(c->plan, c->program, c->timeline, "timeline", &error), TY_OK,
                 "%s", error.message);
    for (uint64_t e = 0; e < c->timeline->event_count; e++)
        end_s = fmax(end_s, c->timeline->events[e].end_s);
    return end_s;
}

/* The only instruction of this operation on a stage replica, or the one of the given micro-batch or
 * bucket. */
static void expect_event(const estimate_case *c, uint32_t stage_replica, ty_op op, uint32_t which,
                         double start_s, double end_s)
{
    const ty_stage_program *stage =
        &c->program->stages[ty_plan_stage_of_replica(c->plan, stage_replica)];
    uint32_t found = 0;

    for (uint32_t i = 0; i < stage->instruction_count; i++) {
        const ty_instruction *instruction = &stage->instructions[i];
        const ty_event *event =
            ty_timeline_find(c->timeline, c->program, c->plan, 0, stage_replica, i);
        if (instruction->op != op ||
            (instruction->bucket != which && instruction->micro_batch != which))
            continue;
        found++;
        cr_expect(is_close(event->start_s, start_s) && is_close(event->end_s, end_s),
                  "stage replica %u, %s %u: found %g to %g, expected %g to %g", stage_replica,
                  ty_op_name(op), which, event->start_s, event->end_s, start_s, end_s);
    }
    cr_expect_eq(found, 1, "stage replica %u has %u %s %u", stage_replica, found, ty_op_name(op),
                 which);
}

/* The n-th part of a stage's backward pass. */
static ty_instruction_cost *piece_cost(estimate_case *c, uint32_t stage, uint32_t n)
{
    for (uint32_t i = 0; i < c->program->stages[stage].instruction_count; i++)
        if (c->program->stages[stage].instructions[i].op == TY_OP_BACKWARD && n-- == 0)
            return &c->costs->instructions[stage][i];
    cr_assert(false, "no such piece");
    return NULL;
}

static ty_instruction_cost *bucket_cost(estimate_case *c, uint32_t stage, ty_op op, uint32_t bucket)
{
    for (uint32_t i = 0; i < c->program->stages[stage].instruction_count; i++)
        if (c->program->stages[stage].instructions[i].op == op &&
            c->program->stages[stage].instructions[i].bucket == bucket)
            return &c->costs->instructions[stage][i];
    cr_assert(false, "no such bucket");
    return NULL;
}

/* ---- Closed forms ------------------------------------------------------------------------ */

/* A balanced pipeline with free transfers: (m + p - 1)(f + b) per step, GPipe and 1F1B alike (Huang
 * et al., 2019; Narayanan et al., 2021). Steps follow each other without overlap: the first stage
 * ends last. */
Test(estimate, balanced_pipelines)
{
    for (uint32_t p = 1; p <= MAX_STAGES; p++) {
        for (uint32_t m = 1; m <= 8; m++) {
            for (int schedule = 0; schedule <= TY_ONE_F_ONE_B; schedule++) {
                plan_shape shape = {
                    .schedule = (ty_schedule)schedule, .buckets = 1, .micro_batches = m};
                const double f = 1, b = 2;
                estimate_case c;
                double expected = (m + p - 1) * (f + b), found;
                for (uint32_t s = 0; s < p; s++)
                    shape.replicas[s] = shape.layers[s] = 1;
                c = open_case(&shape);
                for (uint32_t s = 0; s < p; s++) {
                    set_seconds(c.costs, c.program, s, TY_OP_FORWARD, f);
                    set_seconds(c.costs, c.program, s, TY_OP_BACKWARD, b);
                }
                found = run_case(&c, 1);
                cr_expect(is_close(found, expected), "%s %u stages %u micro-batches: %g, not %g",
                          ty_schedule_name((ty_schedule)schedule), p, m, found, expected);
                found = run_case(&c, 3);
                cr_expect(is_close(found, 3 * expected), "three steps: %g, not %g", found,
                          3 * expected);
                close_case(&c);
            }
        }
    }
}

static plan_shape even_shape(ty_schedule schedule, uint32_t stages, uint32_t micro_batches)
{
    plan_shape shape = {.schedule = schedule, .buckets = 1, .micro_batches = micro_batches};

    for (uint32_t s = 0; s < stages; s++)
        shape.replicas[s] = shape.layers[s] = 1;
    return shape;
}

static void set_all_seconds(estimate_case *c, ty_op op, double seconds)
{
    for (uint32_t p = 0; p < c->program->stage_count; p++)
        set_seconds(c->costs, c->program, p, op, seconds);
}

/* With v virtual stages per pipeline rank, the bubble shrinks by a factor of v: (v m + p - 1)(f +
 * b) (Narayanan et al., 2021, section 2.2). */
Test(estimate, interleaved_pipeline)
{
    for (uint32_t p = 2; p <= 4; p++)
        for (uint32_t v = 2; v * p <= MOST_SHAPE_STAGES; v++)
            for (uint32_t m = p; m <= 4 * p; m += p) {
                plan_shape shape = even_shape(TY_INTERLEAVED, v * p, m);
                const double expected = (v * m + p - 1) * 3;
                estimate_case c;
                double found;
                ty_error error = {0};
                shape.virtual_stages = v;
                c = open_case(&shape);
                cr_assert_eq(ty_program_check(c.plan, c.program, "program", &error), TY_OK, "%s",
                             error.message);
                set_all_seconds(&c, TY_OP_FORWARD, 1);
                set_all_seconds(&c, TY_OP_BACKWARD, 2);
                found = run_case(&c, 1);
                cr_expect(is_close(found, expected), "%u x %u stages, %u micro-batches: %g, not %g",
                          v, p, m, found, expected);
                close_case(&c);
            }
}

/* Zero bubble H1: the bubble is (p - 1)(f + b - w), where w is the time of the weight gradients,
 * once there are enough micro-batches to delay (Qi et al., 2024, table 2). */
Test(estimate, zero_bubble_pipeline)
{
    for (uint32_t p = 1; p <= MAX_STAGES; p++)
        for (uint32_t m = 2 * p; m <= 4 * p; m++) {
            const plan_shape shape = even_shape(TY_ZERO_BUBBLE, p, m);
            const double expected = m * 3 + (p - 1);
            estimate_case c = open_case(&shape);
            double found;

            set_all_seconds(&c, TY_OP_FORWARD, 1);
            set_all_seconds(&c, TY_OP_BACKWARD_INPUT, 1);
            set_all_seconds(&c, TY_OP_BACKWARD_WEIGHT, 1);
            found = run_case(&c, 1);
            cr_expect(is_close(found, expected), "%u stages, %u micro-batches: %g, not %g", p, m,
                      found, expected);
            close_case(&c);
        }
}

/* Zero bubble H2: a step begins after the previous one without a bubble, except (p - 1)(f + b - 2w)
 * if passes are longer than two weight-gradient passes (Qi et al., 2024, table 2). */
Test(estimate, zero_bubble_of_twice_the_memory)
{
    static const double passes[][3] = {{1, 1, 1}, {1, 1.25, 0.75}, {1.5, 1, 1}, {1, 0.75, 1.25}};

    for (size_t i = 0; i < sizeof passes / sizeof *passes; i++)
        for (uint32_t p = 1; p <= MAX_STAGES; p++)
            for (uint32_t m = 2 * p; m <= 4 * p; m++) {
                const plan_shape shape = even_shape(TY_ZERO_BUBBLE_2P, p, m);
                const double f = passes[i][0], b = passes[i][1], w = passes[i][2];
                const double expected = m * (f + b + w) + (p - 1) * fmax(0, f + b - 2 * w);
                estimate_case c = open_case(&shape);
                ty_step_summary summary;
                ty_error error = {0};

                cr_assert_eq(ty_program_check(c.plan, c.program, "program", &error), TY_OK, "%s",
                             error.message);
                set_all_seconds(&c, TY_OP_FORWARD, f);
                set_all_seconds(&c, TY_OP_BACKWARD_INPUT, b);
                set_all_seconds(&c, TY_OP_BACKWARD_WEIGHT, w);
                run_case(&c, 3);
                cr_assert_eq(ty_timeline_summarize(c.plan, c.program, c.timeline, &summary, &error),
                             TY_OK, "%s", error.message);
                cr_expect(is_close(summary.step_time_s, expected),
                          "%u stages, %u micro-batches, passes of %g, %g and %g: %g, not %g", p, m,
                          f, b, w, summary.step_time_s, expected);
                close_case(&c);
            }
}

/* Without a flush a step takes the time of the slowest stage. */
Test(estimate, pipeline_without_flush)
{
    for (uint32_t p = 1; p <= MAX_STAGES; p++)
        for (uint32_t m = 1; m <= 8; m++) {
            const plan_shape shape = even_shape(TY_PIPEDREAM, p, m);
            estimate_case c = open_case(&shape);
            ty_step_summary summary;
            ty_error error = {0};

            cr_assert_eq(ty_program_check(c.plan, c.program, "program", &error), TY_OK, "%s",
                         error.message);
            set_all_seconds(&c, TY_OP_FORWARD, 1);
            set_all_seconds(&c, TY_OP_BACKWARD, 2);
            set_seconds(c.costs, c.program, p / 2, TY_OP_BACKWARD, 3);
            run_case(&c, 4 + 2 * ty_program_largest_lead(c.program));
            cr_assert_eq(ty_timeline_summarize(c.plan, c.program, c.timeline, &summary, &error),
                         TY_OK, "%s", error.message);
            cr_expect(is_close(summary.step_time_s, 4.0 * m), "%u stages, %u micro-batches: %g", p,
                      m, summary.step_time_s);
            close_case(&c);
        }
}

/* Stale gradients: a step takes the longer of its computation and its communication, for any
 * staleness. With synchronous gradients it takes both, less the communication that the last
 * backward pass hides. */
Test(estimate, late_gradients)
{
    static const struct {
        double forward_s, backward_s, update_s, exchange_s, in_time_s, late_s;
    } rows[] = {
        {1, 2, 0.5, 2, 5.5, 3.5},     /* computing takes longer */
        {1, 2, 0.5, 7, 10.5, 7},      /* exchanging does */
        {1, 2, 0.5, 3.5, 7, 3.5},     /* both take equally long */
        {0.25, 0.5, 0, 16, 16.75, 16} /* one collective spans the computation of several steps */
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        for (uint32_t staleness = 0; staleness <= 4; staleness++) {
            const plan_shape shape = {.schedule = TY_ONE_F_ONE_B,
                                      .replicas = {3},
                                      .layers = {2},
                                      .buckets = 1,
                                      .micro_batches = 3,
                                      .staleness = staleness};
            estimate_case c = open_case(&shape);
            ty_step_summary summary;
            ty_error error = {0};

            cr_assert_eq(ty_program_check(c.plan, c.program, "program", &error), TY_OK, "%s",
                         error.message);
            set_seconds(c.costs, c.program, 0, TY_OP_FORWARD, rows[i].forward_s);
            set_seconds(c.costs, c.program, 0, TY_OP_BACKWARD, rows[i].backward_s);
            set_seconds(c.costs, c.program, 0, TY_OP_UPDATE, rows[i].update_s);
            set_seconds(c.costs, c.program, 0, TY_OP_COLLECTIVE, rows[i].exchange_s);
            run_case(&c, 3 + 2 * ty_program_largest_lead(c.program));
            cr_assert_eq(ty_timeline_summarize(c.plan, c.program, c.timeline, &summary, &error),
                         TY_OK, "%s", error.message);
            cr_expect(
                is_close(summary.step_time_s, staleness > 0 ? rows[i].late_s : rows[i].in_time_s),
                "row %zu, staleness %u: %g", i, staleness, summary.step_time_s);
            cr_expect(is_close(summary.compute_share + summary.exposed_collective_share +
                                   summary.bubble_share,
                               1),
                      "row %zu, staleness %u", i, staleness);
            close_case(&c);
        }
}

/* One stage replica represents all that are interchangeable. */
Test(estimate, folding_changes_nothing)
{
    random_numbers numbers = {4711};

    for (int i = 0; i < 60; i++) {
        plan_shape shape = random_shape(&numbers);
        estimate_case c;
        ty_timeline *all;
        const uint32_t replicas = 1 + random_below(&numbers, 3);
        shape.micro_batches = replicas * (1 + random_below(&numbers, 4));
        for (uint32_t s = 0; shape.replicas[s] > 0; s++)
            shape.replicas[s] = replicas;
        shape.staleness = replicas > 1 ? shape.staleness : 0;
        if (shape.schedule == TY_ONE_F_ONE_B && shape.recompute == TY_RECOMPUTE_NONE &&
            !shape.is_tied && ty_compression_shards(&shape.compression))
            shape.zero = shape.staleness > 0 ? 0 : random_below(&numbers, 4);
        c = open_case(&shape);
        set_random_seconds(c.costs, c.plan, c.program, &numbers);
        for (uint32_t h = 0; h < c.costs->host_count; h++)
            c.costs->host_cores[h] = 1000; /* enough cores, but limited, so that sharing is
                                            * evaluated */
        run_case(&c, 2);
        all = c.timeline;
        c.timeline = NULL;
        for (uint32_t h = 0; h < c.costs->host_count; h++)
            c.costs->host_cores[h] = HUGE_VAL;
        run_case(&c, 2);
        for (uint64_t e = 0; e < all->event_count; e++)
            cr_assert(is_close(all->events[e].start_s, c.timeline->events[e].start_s) &&
                          is_close(all->events[e].end_s, c.timeline->events[e].end_s),
                      "plan %d, event %llu", i, (unsigned long long)e);
        ty_timeline_free(all);
        close_case(&c);
    }
}

/* ZeRO: weights are all-gathered before use, and the program passes the proof for all stages. */
Test(estimate, sharded_programs_hold)
{
    for (uint32_t zero = 1; zero <= 3; zero++)
        for (uint32_t m = 2; m <= 6; m += 2) {
            plan_shape shape = even_shape(m == 4 ? TY_GPIPE : TY_ONE_F_ONE_B, 2, m);
            estimate_case c;
            ty_error error = {0};
            double found, expected;

            shape.zero = zero;
            shape.replicas[0] = shape.replicas[1] = 2;
            shape.layers[0] = shape.layers[1] = shape.buckets = 2;
            c = open_case(&shape);
            cr_assert_eq(ty_program_check(c.plan, c.program, "program", &error), TY_OK, "%s",
                         error.message);
            set_all_seconds(&c, TY_OP_GATHER, 1);
            /* The all-gathers of the second stage and the one-way pipeline. With ZeRO 1 and 2, two
             * of them precede the end of the first forward pass; with ZeRO 3, two per pass. */
            found = run_case(&c, 1);
            expected = zero < 3 ? 2 : 0;
            for (uint32_t i = 0; zero == 3 && i < c.program->stages[0].instruction_count; i++)
                expected += c.program->stages[0].instructions[i].op == TY_OP_GATHER;
            cr_expect(zero < 3 ? is_close(found, expected) : found >= expected,
                      "zero %u, %u micro-batches: %g, not %g", zero, m, found, expected);
            close_case(&c);
        }
}

/* One micro-batch through a pipeline: everything is sequential. */
Test(estimate, one_micro_batch_in_turn)
{
    plan_shape shape = {.schedule = TY_GPIPE,
                        .replicas = {1, 1, 1},
                        .layers = {1, 1, 1},
                        .buckets = 1,
                        .micro_batches = 1,
                        .recompute = TY_RECOMPUTE_FULL};
    estimate_case c = open_case(&shape);
    double found;

    for (uint32_t s = 0; s < 3; s++) {
        set_seconds(c.costs, c.program, s, TY_OP_FORWARD, 1);
        set_seconds(c.costs, c.program, s, TY_OP_RECOMPUTE, 1);
        set_seconds(c.costs, c.program, s, TY_OP_BACKWARD, 2);
        set_seconds(c.costs, c.program, s, TY_OP_SEND, 10);
        set_seconds(c.costs, c.program, s, TY_OP_UPDATE, 4);
        set_seconds(c.costs, c.program, s, TY_OP_LOAD, 5);
    }
    /* Only the last stage's recomputation is on the critical path: the others recompute while they
     * wait. */
    found = run_case(&c, 1);
    cr_expect(is_close(found, 5 + 3 * 1 + 1 + 3 * 2 + 4 * 10 + 4), "found %g", found);
    close_case(&c);
}

/* ---- On paper ---------------------------------------------------------------------------- */

static const plan_shape two_buckets = {
    .schedule = TY_GPIPE, .replicas = {2}, .layers = {3}, .buckets = 2, .micro_batches = 2};

static estimate_case open_overlap(ty_compression_kind compression)
{
    plan_shape shape = two_buckets;
    estimate_case c;

    shape.compression.kind = compression;
    c = open_case(&shape);
    set_seconds(c.costs, c.program, 0, TY_OP_LOAD, 1);
    set_seconds(c.costs, c.program, 0, TY_OP_FORWARD, 3);
    set_seconds(c.costs, c.program, 0, TY_OP_ENCODE, 1);
    set_seconds(c.costs, c.program, 0, TY_OP_DECODE, 1);
    set_seconds(c.costs, c.program, 0, TY_OP_UPDATE, 0.5);
    piece_cost(&c, 0, 0)->seconds = 2;
    piece_cost(&c, 0, 1)->seconds = 4;
    bucket_cost(&c, 0, TY_OP_COLLECTIVE, 0)->seconds = 5;
    bucket_cost(&c, 0, TY_OP_COLLECTIVE, 1)->seconds = 1;
    return c;
}

/* Batches are prepared one step ahead, unless no core is left for that. Then they are prepared when
 * the slot is free, and every step waits for them. */
Test(estimate, input_ahead_and_between_steps)
{
    double end_s[2], start_s[2];

    for (int is_between = 0; is_between < 2; is_between++) {
        estimate_case c = open_overlap(TY_COMPRESSION_NONE);
        const ty_stage_program *stage = &c.program->stages[0];
        uint32_t load = 0, last;

        for (uint32_t i = 0; i < stage->instruction_count; i++)
            if (stage->instructions[i].op == TY_OP_LOAD) {
                c.costs->instructions[0][i].is_between_steps = is_between != 0;
                load = i;
            }
        last = ty_program_last_pass(stage, load);
        cr_assert_eq(stage->instructions[last].op, TY_OP_BACKWARD);
        end_s[is_between] = run_case(&c, 4);
        start_s[is_between] = ty_timeline_find(c.timeline, c.program, c.plan, 1, 0, load)->start_s -
                              ty_timeline_find(c.timeline, c.program, c.plan, 0, 0, last)->end_s;
        close_case(&c);
    }
    cr_expect_lt(start_s[0], 0);
    cr_expect(is_close(start_s[1], 0), "found %g", start_s[1]);
    cr_expect(end_s[1] >= end_s[0], "found %g and %g", end_s[1], end_s[0]);
}

/* load 0-1, forward 1-4, backward 4-6 and 6-10; the first bucket starts at 6 and delays the
 * second. */
Test(estimate, data_parallel_overlap)
{
    estimate_case c = open_overlap(TY_COMPRESSION_NONE);

    cr_expect(is_close(run_case(&c, 1), 12.5));
    for (uint32_t stage_replica = 0; stage_replica < 2; stage_replica++) {
        expect_event(&c, stage_replica, TY_OP_LOAD, 0, 0, 1);
        expect_event(&c, stage_replica, TY_OP_FORWARD, 0, 1, 4);
        expect_event(&c, stage_replica, TY_OP_COLLECTIVE, 0, 6, 11);
        expect_event(&c, stage_replica, TY_OP_COLLECTIVE, 1, 11, 12);
        expect_event(&c, stage_replica, TY_OP_UPDATE, 0, 11, 11.5);
        expect_event(&c, stage_replica, TY_OP_UPDATE, 1, 12, 12.5);
    }
    close_case(&c);
    c = open_overlap(TY_COMPRESSION_FP16);
    cr_expect(is_close(run_case(&c, 1), 16.5));
    expect_event(&c, 1, TY_OP_ENCODE, 0, 6, 7);
    expect_event(&c, 1, TY_OP_COLLECTIVE, 0, 7, 12);
    expect_event(&c, 1, TY_OP_DECODE, 0, 12, 13);
    expect_event(&c, 1, TY_OP_ENCODE, 1, 13, 14);
    expect_event(&c, 1, TY_OP_COLLECTIVE, 1, 14, 15);
    expect_event(&c, 1, TY_OP_DECODE, 1, 15, 16);
    expect_event(&c, 1, TY_OP_UPDATE, 0, 13, 13.5);
    expect_event(&c, 1, TY_OP_UPDATE, 1, 16, 16.5);
    close_case(&c);
}

/* Two replicas feed one. Its second backward belongs to the first stage replica, which delays the
 * all-reduce. */
Test(estimate, hybrid_two_plus_one)
{
    plan_shape shape = {.schedule = TY_GPIPE,
                        .replicas = {2, 1},
                        .layers = {1, 1},
                        .buckets = 1,
                        .micro_batches = 2};
    estimate_case c = open_case(&shape);
    double found;

    set_seconds(c.costs, c.program, 0, TY_OP_FORWARD, 4);
    set_seconds(c.costs, c.program, 0, TY_OP_SEND, 1);
    set_seconds(c.costs, c.program, 1, TY_OP_FORWARD, 2);
    set_seconds(c.costs, c.program, 1, TY_OP_BACKWARD, 3);
    set_seconds(c.costs, c.program, 1, TY_OP_SEND, 1);
    set_seconds(c.costs, c.program, 0, TY_OP_BACKWARD, 6);
    set_seconds(c.costs, c.program, 0, TY_OP_COLLECTIVE, 2);
    set_seconds(c.costs, c.program, 0, TY_OP_UPDATE, 1);
    set_seconds(c.costs, c.program, 1, TY_OP_UPDATE, 1);
    found = run_case(&c, 2);
    cr_expect(is_close(found, 50), "found %g", found);
    expect_event(&c, 0, TY_OP_FORWARD, 0, 0, 4);
    expect_event(&c, 0, TY_OP_SEND, 0, 4, 5);
    expect_event(&c, 1, TY_OP_FORWARD, 0, 0, 4);
    expect_event(&c, 2, TY_OP_RECEIVE, 0, 0, 5);
    expect_event(&c, 2, TY_OP_RECEIVE, 1, 5, 5);
    expect_event(&c, 2, TY_OP_FORWARD, 0, 5, 7);
    expect_event(&c, 2, TY_OP_FORWARD, 1, 7, 9);
    expect_event(&c, 2, TY_OP_BACKWARD, 1, 9, 12);
    expect_event(&c, 2, TY_OP_SEND, 1, 12, 13);
    expect_event(&c, 2, TY_OP_BACKWARD, 0, 12, 15);
    expect_event(&c, 2, TY_OP_SEND, 0, 15, 16);
    expect_event(&c, 0, TY_OP_RECEIVE, 0, 0, 16);
    expect_event(&c, 1, TY_OP_RECEIVE, 0, 0, 13);
    expect_event(&c, 0, TY_OP_BACKWARD, 0, 16, 22);
    expect_event(&c, 1, TY_OP_BACKWARD, 0, 13, 19);
    expect_event(&c, 0, TY_OP_COLLECTIVE, 0, 22, 24);
    expect_event(&c, 1, TY_OP_COLLECTIVE, 0, 19, 24);
    expect_event(&c, 0, TY_OP_UPDATE, 0, 24, 25);
    expect_event(&c, 2, TY_OP_UPDATE, 1, 15, 16);
    close_case(&c);
}

/* ---- Shared cores ------------------------------------------------------------------------ */

Test(estimate, three_ranks_on_two_cores)
{
    plan_shape shape = {
        .schedule = TY_GPIPE, .replicas = {3}, .layers = {1}, .buckets = 1, .micro_batches = 3};
    const double cores[] = {1, 2, 3, 4};
    const double expected[] = {9, 4.5, 3, 3};

    for (size_t i = 0; i < sizeof cores / sizeof cores[0]; i++) {
        estimate_case c = open_case(&shape);
        double found;
        set_seconds(c.costs, c.program, 0, TY_OP_FORWARD, 1);
        set_seconds(c.costs, c.program, 0, TY_OP_BACKWARD, 2);
        share_host(c.costs, cores[i]);
        found = run_case(&c, 1);
        cr_expect(is_close(found, expected[i]), "%g cores: %g, not %g", cores[i], found,
                  expected[i]);
        close_case(&c);
    }
}

/* Two stage replicas on two cores: forward 0-2, backward 2-4, then the load is four cores until the
 * collective ends. */
Test(estimate, exchange_slows_compute)
{
    estimate_case c = open_case(&two_buckets);
    double found;

    set_seconds(c.costs, c.program, 0, TY_OP_FORWARD, 2);
    piece_cost(&c, 0, 0)->seconds = 2;
    piece_cost(&c, 0, 1)->seconds = 4;
    bucket_cost(&c, 0, TY_OP_COLLECTIVE, 0)->seconds = 2;
    bucket_cost(&c, 0, TY_OP_COLLECTIVE, 1)->seconds = 1;
    share_host(c.costs, 2);
    found = run_case(&c, 1);
    cr_expect(is_close(found, 11), "found %g", found);
    expect_event(&c, 0, TY_OP_COLLECTIVE, 0, 4, 8);
    expect_event(&c, 1, TY_OP_COLLECTIVE, 1, 10, 11);
    close_case(&c);
}

/* Operations that need no cores are not slowed: the same with an interconnect that needs no CPU. */
Test(estimate, exchange_without_cores)
{
    estimate_case c = open_case(&two_buckets);

    set_seconds(c.costs, c.program, 0, TY_OP_FORWARD, 2);
    piece_cost(&c, 0, 0)->seconds = 2;
    piece_cost(&c, 0, 1)->seconds = 4;
    for (uint32_t b = 0; b < 2; b++) {
        bucket_cost(&c, 0, TY_OP_COLLECTIVE, b)->seconds = 2;
        bucket_cost(&c, 0, TY_OP_COLLECTIVE, b)->core_share = 0;
    }
    share_host(c.costs, 1); /* computes at half speed */
    cr_expect(is_close(run_case(&c, 1), 18));
    expect_event(&c, 0, TY_OP_COLLECTIVE, 0, 8, 10);
    expect_event(&c, 0, TY_OP_COLLECTIVE, 1, 16, 18);
    close_case(&c);
}

/* Stage replicas 0 and 1 share one core, stage replica 2 has one to itself: the collective runs at
 * the speed of the shared core. */
Test(estimate, slowest_host_sets_the_pace)
{
    plan_shape shape = {
        .schedule = TY_GPIPE, .replicas = {3}, .layers = {1}, .buckets = 1, .micro_batches = 3};
    estimate_case c = open_case(&shape);

    set_seconds(c.costs, c.program, 0, TY_OP_FORWARD, 1);
    set_seconds(c.costs, c.program, 0, TY_OP_BACKWARD, 1);
    set_seconds(c.costs, c.program, 0, TY_OP_COLLECTIVE, 3);
    for (uint32_t stage_replica = 0; stage_replica < 3; stage_replica++) {
        c.costs->replica_host[stage_replica] = stage_replica / 2;
        c.costs->host_cores[stage_replica] = 1;
    }
    cr_expect(is_close(run_case(&c, 1), 10));
    expect_event(&c, 0, TY_OP_BACKWARD, 0, 2, 4);
    expect_event(&c, 2, TY_OP_BACKWARD, 0, 1, 2);
    expect_event(&c, 0, TY_OP_COLLECTIVE, 0, 4, 10);
    expect_event(&c, 2, TY_OP_COLLECTIVE, 0, 2, 10);
    close_case(&c);
}

/* Core sharing alone: one second and two on one core end at 2 and 3; one that starts and ends in
 * between; one on two hosts. */
Test(estimate, sharing_by_hand)
{
    ty_sharing sharing = {0};
    const double cores[2] = {1, 2}, demand[2] = {10, 10};
    uint32_t slot;

    cr_assert_eq(ty_sharing_init(&sharing, 4, 8, 2, cores, demand, NULL), TY_OK);
    ty_sharing_start(&sharing, 0, 1);
    ty_sharing_use(&sharing, 0, 0, 1);
    ty_sharing_start(&sharing, 1, 2);
    ty_sharing_use(&sharing, 1, 0, 1);
    cr_assert(ty_sharing_next(&sharing, &slot) && slot == 0 && is_close(sharing.now_s, 2));
    /* From 2 to 3, half a second of work runs at half speed and leaves 0.5 of slot 1. */
    ty_sharing_start(&sharing, 2, 0.5);
    ty_sharing_use(&sharing, 2, 0, 1);
    cr_assert(ty_sharing_next(&sharing, &slot) && slot == 2 && is_close(sharing.now_s, 3));
    /* Uses both hosts. Host 1 has two cores for a load of four, which also gives half speed. */
    ty_sharing_start(&sharing, 3, 1);
    ty_sharing_use(&sharing, 3, 0, 0);
    ty_sharing_use(&sharing, 3, 1, 4);
    cr_assert(ty_sharing_next(&sharing, &slot) && slot == 1 && is_close(sharing.now_s, 3.5));
    cr_assert(ty_sharing_next(&sharing, &slot) && slot == 3 && is_close(sharing.now_s, 5));
    cr_assert(!ty_sharing_next(&sharing, &slot));
    ty_sharing_clear(&sharing);
}

/* ---- Random plans ------------------------------------------------------------------------ */

static void expect_same(const ty_timeline *found, const double *starts, const double *ends,
                        uint64_t seed, const char *oracle)
{
    for (uint64_t e = 0; e < found->event_count; e++) {
        const ty_event *event = &found->events[e];
        cr_assert(is_close(event->start_s, starts[e]) && is_close(event->end_s, ends[e]),
                  "seed %llu, %s, step %u stage replica %u instruction %u: found %.12g to %.12g, "
                  "expected "
                  "%.12g to %.12g",
                  (unsigned long long)seed, oracle, event->step, event->stage_replica,
                  event->instruction, event->start_s, event->end_s, starts[e], ends[e]);
    }
}

/* A stage replica runs one compute instruction at a time. */
static double busiest_replica(const estimate_case *c)
{
    double busiest = 0;
    for (uint32_t s = 0; s < c->plan->stage_count; s++) {
        double sum = 0;
        for (uint32_t i = 0; i < c->program->stages[s].instruction_count; i++)
            if (c->program->stages[s].instructions[i].stream == TY_STREAM_COMPUTE)
                sum += c->costs->instructions[s][i].seconds;
        busiest = fmax(busiest, sum);
    }
    return busiest;
}

Test(estimate, random_plans_against_relaxation)
{
    for (uint64_t seed = 1; seed <= 200; seed++) {
        random_numbers numbers = {seed * 0x9E3779B97F4A7C15ULL};
        plan_shape shape = random_shape(&numbers);
        uint32_t steps = 1 + random_below(&numbers, 3);
        estimate_case c = open_case(&shape);
        double *starts, *ends, time;

        set_random_seconds(c.costs, c.plan, c.program, &numbers);
        time = run_case(&c, steps);
        relax(c.plan, c.program, c.costs, steps, &starts, &ends);
        expect_same(c.timeline, starts, ends, seed, "relaxation");
        cr_expect_geq(time * (1 + 1e-12), busiest_replica(&c) * steps);
        ty_free(starts);
        ty_free(ends);
        close_case(&c);
    }
}

/* Stage replicas on few hosts with few cores, and core shares of all sizes. */
static void crowd(estimate_case *c, random_numbers *numbers)
{
    uint32_t hosts = 1 + random_below(numbers, 3);
    const double shares[] = {0, 0.5, 1, 2};

    if (hosts > c->costs->stage_replica_count)
        hosts = c->costs->stage_replica_count;
    c->costs->host_count = hosts;
    for (uint32_t h = 0; h < hosts; h++)
        c->costs->host_cores[h] = 1 + random_below(numbers, 4);
    for (uint32_t stage_replica = 0; stage_replica < c->costs->stage_replica_count; stage_replica++)
        c->costs->replica_host[stage_replica] = random_below(numbers, hosts);
    for (uint32_t s = 0; s < c->plan->stage_count; s++)
        for (uint32_t i = 0; i < c->program->stages[s].instruction_count; i++)
            if (c->program->stages[s].instructions[i].op != TY_OP_RECEIVE)
                c->costs->instructions[s][i].core_share = shares[random_below(numbers, 4)];
}

Test(estimate, random_plans_on_shared_cores)
{
    for (uint64_t seed = 1; seed <= 100; seed++) {
        random_numbers numbers = {seed * 0xD1B54A32D192ED03ULL};
        plan_shape shape = random_shape(&numbers);
        estimate_case c;
        double *starts, *ends, time, half;

        shape.micro_batches = 6;
        c = open_case(&shape);
        set_random_seconds(c.costs, c.plan, c.program, &numbers);
        crowd(&c, &numbers);
        time = run_case(&c, 2);
        walk_slowly(c.plan, c.program, c.costs, 2, &starts, &ends);
        expect_same(c.timeline, starts, ends, seed, "slow walk");
        cr_expect_geq(time * (1 + 1e-12), busiest_replica(&c) * 2);
        /* Twice the speed of everything: half the time. */
        for (uint32_t s = 0; s < c.plan->stage_count; s++)
            for (uint32_t i = 0; i < c.program->stages[s].instruction_count; i++)
                c.costs->instructions[s][i].seconds *= 0.5;
        half = run_case(&c, 2);
        cr_expect(is_close(2 * half, time), "seed %llu: %.12g and %.12g", (unsigned long long)seed,
                  time, half);
        ty_free(starts);
        ty_free(ends);
        close_case(&c);
    }
}

/* ---- What goes wrong --------------------------------------------------------------------- */

static const plan_shape small = {.schedule = TY_ONE_F_ONE_B,
                                 .replicas = {1, 2},
                                 .layers = {2, 3},
                                 .stage_buckets = {1, 2},
                                 .micro_batches = 4,
                                 .compression.kind = TY_COMPRESSION_FP16,
                                 .is_tied = true};

static void too_few_costs(estimate_case *c)
{
    c->costs->instruction_counts[1]--;
}

static void other_replicas(estimate_case *c)
{
    c->costs->stage_replica_count--;
}

static void negative_seconds(estimate_case *c)
{
    c->costs->instructions[0][1].seconds = -1;
}

static void not_a_number(estimate_case *c)
{
    c->costs->instructions[0][1].seconds = NAN;
}

static void no_host(estimate_case *c)
{
    c->costs->replica_host[2] = 9;
}

static void no_cores(estimate_case *c)
{
    c->costs->host_cores[1] = 0;
}

static void lost_send(estimate_case *c)
{
    ty_instruction *send = &c->program->stages[0].instructions[2];
    cr_assert_eq(send->op, TY_OP_SEND);
    send->op = TY_OP_LOAD;
    send->stream = TY_STREAM_INPUT;
}

static void no_such_peer(estimate_case *c)
{
    c->program->stages[0].instructions[2].peer_stage = 2;
}

Test(estimate, bad_input_is_refused)
{
    static const struct {
        void (*spoil)(estimate_case *c);
        const char *message;
    } rows[] = {
        {too_few_costs, "costs of stage 1: found "},
        {other_replicas, "costs for 2 stages and 2 stage replicas"},
        {negative_seconds, "costs of stage 0: a forward takes -1 s"},
        {not_a_number, "costs of stage 0: a forward takes "},
        {no_host, "costs: stage replica 2 is on host 9, expected one of 3 hosts with cores"},
        {no_cores, "costs: stage replica 1 is on host 1, expected one of 3 hosts with cores"},
        {lost_send, "the program never ends: stage replica 0 is stuck at instruction "},
        {no_such_peer, "program:/stages/0: a send has no such stream, partner or bucket"},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        estimate_case c = open_case(&small);
        ty_error error = {0};

        rows[i].spoil(&c);
        cr_expect_eq(ty_estimate(c.plan, c.program, c.costs, 1, &c.timeline, &error), TY_EINVAL,
                     "%s", rows[i].message);
        cr_expect(strstr(error.message, rows[i].message) != NULL, "found \"%s\", expected \"%s\"",
                  error.message, rows[i].message);
        cr_expect_null(c.timeline);
        close_case(&c);
    }
}

Test(estimate, no_steps)
{
    estimate_case c = open_case(&small);
    ty_error error = {0};

    cr_expect_eq(ty_estimate(c.plan, c.program, c.costs, 0, &c.timeline, &error), TY_EINVAL);
    cr_expect_str_eq(error.message, "steps: found 0, expected at least 1");
    close_case(&c);
}

Test(estimate, memory_may_run_out_anywhere)
{
    estimate_case c = open_case(&small);
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status != TY_OK; n++) {
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_estimate(c.plan, c.program, c.costs, 2, &c.timeline, &error);
        ty_memory_fail_after(0);
        if (status != TY_OK) {
            cr_assert_eq(status, TY_ENOMEM, "allocation %ld: %s", n, error.message);
            cr_assert_eq(error.status, TY_ENOMEM);
            cr_assert_null(c.timeline);
        }
    }
    cr_expect_gt(n, 15);
    close_case(&c);
}
