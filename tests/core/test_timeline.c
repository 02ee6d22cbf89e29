/* Timelines: order and finding, the check, and summaries computed by hand. */
#include "toy.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_near(double a, double b)
{
    return fabs(a - b) <= 1e-12 * (1 + fabs(b));
}

/* Every instruction of every stage replica and step, starting at its own number. */
static ty_timeline *counted_timeline(const ty_plan *plan, const ty_program *program, uint32_t steps)
{
    ty_timeline *timeline;
    cr_assert_eq(ty_timeline_new(plan, steps, &timeline, NULL), TY_OK);
    for (uint32_t step = 0; step < steps; step++)
        for (uint32_t stage_replica = 0; stage_replica < timeline->stage_replica_count;
             stage_replica++) {
            uint32_t s = ty_plan_stage_of_replica(plan, stage_replica);
            for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
                toy_event(timeline, step, stage_replica, i, step * 1e6 + stage_replica * 1e3 + i,
                          step * 1e6 + stage_replica * 1e3 + i + 1);
        }
    return timeline;
}

static void shuffle(ty_timeline *timeline, unsigned seed)
{
    for (uint64_t i = timeline->event_count; i > 1; i--) {
        uint64_t j = (seed = seed * 1103515245u + 12345u) % i;
        ty_event swapped = timeline->events[i - 1];
        timeline->events[i - 1] = timeline->events[j];
        timeline->events[j] = swapped;
    }
}

Test(timeline, sorts_and_finds)
{
    for (size_t t = 0; t < toy_spec_count; t++) {
        ty_plan *plan = toy_plan(&toy_specs[t]);
        ty_program *program = toy_program(plan);
        ty_timeline *timeline = counted_timeline(plan, program, 3);
        ty_error error = {0};

        cr_assert_eq(timeline->event_count, 3 * ty_program_event_count(plan, program));
        shuffle(timeline, 7);
        ty_timeline_sort(timeline);
        cr_assert_eq(ty_timeline_check(plan, program, timeline, "toy", &error), TY_OK, "%s",
                     error.message);
        for (uint32_t step = 0; step < 3; step++)
            for (uint32_t stage_replica = 0; stage_replica < timeline->stage_replica_count;
                 stage_replica++) {
                uint32_t s = ty_plan_stage_of_replica(plan, stage_replica);
                for (uint32_t i = 0; i < program->stages[s].instruction_count; i++)
                    cr_assert_eq(
                        ty_timeline_find(timeline, program, plan, step, stage_replica, i)->start_s,
                        step * 1e6 + stage_replica * 1e3 + i);
            }
        ty_timeline_free(timeline);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

Test(timeline, check_refuses_each_flaw)
{
    enum { FORGOTTEN, DOUBLE, NOT_SORTED, NOT_A_NUMBER, INFINITE, BACKWARDS, RANKS, STEPS, FLAWS };
    static const char *const messages[FLAWS] = {
        "toy:/events: found 23 events, expected 8 for each of 3 steps",
        "toy:/events/5: found instruction 4 of stage replica 0 in step 0, expected instruction 5 "
        "of stage replica 0 "
        "in step 0",
        "toy:/events/0: found instruction 1 of stage replica 0",
        "toy:/events/4: found start nan s",
        "toy:/events/4: found start 4 s and end inf s",
        "toy:/events/4: found start 4 s and end 3 s of instruction 4 of stage replica 0 in step 0",
        "toy:/stage_replica_count: found 2, expected the plan's 1",
        "expected 8 for each of 2 steps",
    };
    ty_plan *plan = toy_plan_named("alone tied");
    ty_program *program = toy_program(plan);

    cr_assert_eq(ty_program_event_count(plan, program), 8);
    for (int flaw = 0; flaw < FLAWS; flaw++) {
        ty_timeline *timeline = counted_timeline(plan, program, 3);
        ty_event *events = timeline->events, swapped = events[0];
        ty_error error = {0};

        timeline->event_count -= flaw == FORGOTTEN;
        events[5].instruction -= flaw == DOUBLE;
        if (flaw == NOT_SORTED) {
            events[0] = events[1];
            events[1] = swapped;
        }
        if (flaw == NOT_A_NUMBER)
            events[4].start_s = (double)NAN;
        if (flaw == INFINITE)
            events[4].end_s = HUGE_VAL;
        if (flaw == BACKWARDS)
            events[4].end_s = 3;
        timeline->stage_replica_count += flaw == RANKS;
        timeline->step_count -= flaw == STEPS;
        cr_expect_eq(ty_timeline_check(plan, program, timeline, "toy", &error), TY_EPARSE);
        cr_expect_not_null(strstr(error.message, messages[flaw]), "\"%s\" lacks \"%s\"",
                           error.message, messages[flaw]);
        ty_timeline_free(timeline);
    }
    ty_program_free(program);
    ty_plan_free(plan);
}

/* ---- Summaries ----------------------------------------------------------------------------- */

typedef struct times {
    double start_s, end_s;
} times;

static void expect_summary(const ty_step_summary *found, const ty_step_summary *expected,
                           const char *name)
{
    const double pairs[][2] = {
        {found->step_time_s, expected->step_time_s},
        {found->samples_per_s, expected->samples_per_s},
        {found->tokens_per_s, expected->tokens_per_s},
        {found->compute_share, expected->compute_share},
        {found->exposed_collective_share, expected->exposed_collective_share},
        {found->exposed_transfer_share, expected->exposed_transfer_share},
        {found->bubble_share, expected->bubble_share},
        {found->input_share, expected->input_share},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        cr_expect(is_near(pairs[i][0], pairs[i][1]), "%s, figure %zu: %.15g, expected %.15g", name,
                  i, pairs[i][0], pairs[i][1]);
    cr_expect_str_eq(found->limited_by, expected->limited_by, "%s: %s", name, found->limited_by);
}

/* load, forward, backward, three updates */
Test(timeline, summary_of_one_rank)
{
    const struct {
        const char *name;
        times events[6];
        ty_step_summary expected;
    } rows[] = {
        {"waits for its data",
         {{0, 1}, {1, 3}, {3, 6}, {6, 7}, {7, 8}, {8, 10}},
         {10, 0.2, 0.6, 0.9, 0, 0, 0, 0.1, "input 10 %", 0, 0, 0, 0}},
        {"computes",
         {{0, 0.2}, {0.2, 3}, {3, 6}, {6, 7}, {7, 8}, {8, 10}},
         {10, 0.2, 0.6, 0.98, 0, 0, 0, 0.02, "compute", 0, 0, 0, 0}},
        {"waits for data, then for nothing",
         {{0, 3}, {3, 4}, {4, 5}, {6, 7}, {7, 8}, {8, 10}},
         {10, 0.2, 0.6, 0.6, 0, 0, 0.1, 0.3, "input 30 %, idle 10 %", 0, 0, 0, 0}},
        {"clocks that overlap count once",
         {{0, 1}, {1, 4}, {3, 6}, {5, 7}, {7, 8}, {8, 10}},
         {10, 0.2, 0.6, 0.9, 0, 0, 0, 0.1, "input 10 %", 0, 0, 0, 0}},
        {"data was there, but nothing was done",
         {{0, 0}, {1, 4}, {4, 6}, {6, 7}, {7, 8}, {8, 10}},
         {10, 0.2, 0.6, 0.9, 0, 0, 0.1, 0, "idle 10 %", 0, 0, 0, 0}},
    };
    ty_plan *plan = toy_plan_named("alone");
    ty_program *program = toy_program(plan);

    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_timeline *timeline;
        ty_step_summary summary;
        ty_error error = {0};
        cr_assert_eq(ty_timeline_new(plan, 1, &timeline, NULL), TY_OK);
        for (uint32_t i = 0; i < 6; i++)
            toy_event(timeline, 0, 0, i, rows[r].events[i].start_s, rows[r].events[i].end_s);
        cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_OK, "%s",
                     error.message);
        expect_summary(&summary, &rows[r].expected, rows[r].name);
        ty_timeline_free(timeline);
    }
    ty_program_free(program);
    ty_plan_free(plan);
}

/* Two stages, two micro-batches; forward 1 s, backward 2 s, transfer 0.5 s, update 0.25 s, all as
 * early as possible. Stage replica 0 waits from 2 to 6 for a gradient that is sent from 5.5. Stage
 * replica 1 waits from 0 to 1.5 for an activation that is sent from 1, and has no work from 8 to
 * 10.25. */
Test(timeline, summary_of_a_pipeline)
{
    static const times events[2][12] = {
        {
            {0, 0},     /* load 0 */
            {0, 1},     /* forward 0 */
            {1, 1.5},   /* send */
            {0, 0},     /* load 1 */
            {1, 2},     /* forward 1 */
            {2, 2.5},   /* send */
            {0, 6},     /* receive the gradient of 1 */
            {6, 8},     /* backward 1 */
            {6, 8},     /* receive the gradient of 0, which arrived at 8 */
            {8, 10},    /* backward 0 */
            {10, 10.25} /* update */
        },
        {{0, 0},      /* load 0 */
         {0, 1.5},    /* receive 0 */
         {1.5, 2.5},  /* forward 0 */
         {0, 0},      /* load 1 */
         {1.5, 2.5},  /* receive 1 */
         {2.5, 3.5},  /* forward 1 */
         {3.5, 5.5},  /* backward 1 */
         {5.5, 6},    /* send */
         {5.5, 7.5},  /* backward 0 */
         {7.5, 8},    /* send */
         {7.5, 7.75}, /* update */
         {7.75, 8}},  /* update */
    };
    const ty_step_summary expected = {.step_time_s = 10.25,
                                      .samples_per_s = 4 / 10.25,
                                      .tokens_per_s = 12 / 10.25,
                                      .compute_share = 12.75 / 20.5,
                                      .exposed_transfer_share = 1 / 20.5,
                                      .bubble_share = 6.75 / 20.5,
                                      .limited_by =
                                          "pipeline bubble 33 %, activation transfer 5 %"};
    ty_plan *plan = toy_plan_named("pipeline");
    ty_program *program = toy_program(plan);
    ty_timeline *timeline;
    ty_step_summary summary;
    ty_error error = {0};

    cr_assert_eq(program->stages[0].instruction_count, 11);
    cr_assert_eq(program->stages[1].instruction_count, 12);
    cr_assert_eq(ty_timeline_new(plan, 1, &timeline, NULL), TY_OK);
    for (uint32_t stage_replica = 0; stage_replica < 2; stage_replica++)
        for (uint32_t i = 0; i < program->stages[stage_replica].instruction_count; i++)
            toy_event(timeline, 0, stage_replica, i, events[stage_replica][i].start_s,
                      events[stage_replica][i].end_s);
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_OK, "%s",
                 error.message);
    expect_summary(&summary, &expected, "pipeline");
    ty_timeline_free(timeline);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* Two replicas. In each step forward and backward take 3 s. The first bucket's all-reduce takes 1
 * s, the second one's runs while the first is updated, and the third one's takes 1 s longer than
 * the updates: 6.5 s, of which 2 are exposed communication. */
static void add_parallel_step(ty_timeline *timeline, uint32_t step, double from, double load_s)
{
    static const times events[] = {{0, 0},    {0, 1},   {1, 3},    {3, 4},  {4, 4.5},
                                   {4, 4.25}, {4.5, 5}, {4.25, 6}, {6, 6.5}};
    for (uint32_t stage_replica = 0; stage_replica < 2; stage_replica++)
        for (uint32_t i = 0; i < 9; i++)
            toy_event(timeline, step, stage_replica, i,
                      from + events[i].start_s + (i > 0 ? load_s : 0),
                      from + events[i].end_s + load_s);
}

Test(timeline, summary_of_many_steps)
{
    const plan_shape spec = {"dp", .replicas = {2}, .buckets = 3, .micro_batches = 2};
    const struct {
        const char *name;
        uint32_t steps, late_step;
        double late_s;
        ty_step_summary expected;
    } rows[] = {
        {"three steps",
         3,
         9,
         0,
         {6.5, 4 / 6.5, 12 / 6.5, 4.5 / 6.5, 2 / 6.5, 0, 0, 0, "gradient all-reduce 31 %", 0, 0, 0,
          0}},
        /* up to 8 steps the mean, with or without disturbance: 7 steps of 6.5 s and 7 s more */
        {"eight steps, one disturbed",
         8,
         5,
         7,
         {7.5, 4 / 7.5, 12 / 7.5, 4.5 * 7 / 52.5, 2.0 * 7 / 52.5, 0, 0, 7 / 52.5,
          "gradient all-reduce 27 %, input 13 %", 0, 0, 0, 0}},
        /* with more steps the median; shares are of the total time */
        {"nine steps, one disturbed",
         9,
         5,
         13,
         {6.5, 4 / 6.5, 12 / 6.5, 36 / 65.0, 16 / 65.0, 0, 0, 13 / 65.0,
          "gradient all-reduce 25 %, input 20 %", 0, 0, 0, 0}},
        {"ten steps, the first does not count",
         10,
         0,
         1000,
         {6.5, 4 / 6.5, 12 / 6.5, 4.5 / 6.5, 2 / 6.5, 0, 0, 0, "gradient all-reduce 31 %", 0, 0, 0,
          0}},
    };
    ty_plan *plan = toy_plan(&spec);
    ty_program *program = toy_program(plan);

    cr_assert_eq(program->stages[0].instruction_count, 9);
    for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
        ty_timeline *timeline;
        ty_step_summary summary;
        double from = 0;
        ty_error error = {0};
        cr_assert_eq(ty_timeline_new(plan, rows[r].steps, &timeline, NULL), TY_OK);
        for (uint32_t step = 0; step < rows[r].steps; step++) {
            double late = step == rows[r].late_step ? rows[r].late_s : 0;
            add_parallel_step(timeline, step, from, late);
            from += 6.5 + late;
        }
        cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_OK, "%s",
                     error.message);
        expect_summary(&summary, &rows[r].expected, rows[r].name);
        ty_timeline_free(timeline);
    }
    ty_program_free(program);
    ty_plan_free(plan);
}

/* For any times, shares add up to 1. */
Test(timeline, shares_add_up_to_one)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        ty_plan *plan = toy_plan(&toy_specs[seed % toy_spec_count]);
        ty_program *program = toy_program(plan);
        ty_timeline *timeline = counted_timeline(plan, program, 1 + seed % 12);
        ty_step_summary s;
        ty_error error = {0};
        unsigned state = seed;
        double sum;

        for (uint64_t i = 0; i < timeline->event_count; i++) {
            ty_event *event = &timeline->events[i];
            state = state * 1103515245u + 12345u;
            event->start_s = event->step * 20.0 + (state >> 16) % 1000 / 100.0;
            state = state * 1103515245u + 12345u;
            event->end_s = event->start_s + (state >> 16) % 1000 / 100.0 + 0.01;
        }
        cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &s, &error), TY_OK,
                     "seed %u: %s", seed, error.message);
        sum = s.compute_share + s.exposed_collective_share + s.exposed_transfer_share +
              s.bubble_share + s.input_share;
        cr_assert(is_near(sum, 1), "seed %u: %.15g", seed, sum);
        cr_assert(s.compute_share > 0 && s.exposed_collective_share >= 0 &&
                      s.exposed_transfer_share >= 0 && s.bubble_share >= 0 && s.input_share >= 0,
                  "seed %u", seed);
        cr_assert_gt(strlen(s.limited_by), 0);
        ty_timeline_free(timeline);
        ty_program_free(program);
        ty_plan_free(plan);
    }
}

Test(timeline, summary_needs_time)
{
    ty_plan *plan = toy_plan_named("hybrid");
    ty_program *program = toy_program(plan);
    ty_timeline *timeline = counted_timeline(plan, program, 2);
    ty_step_summary summary = {.step_time_s = 5};
    ty_error error = {0};

    for (uint64_t i = 0; i < timeline->event_count; i++)
        timeline->events[i].start_s = timeline->events[i].end_s = 0;
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_EINVAL);
    cr_assert_not_null(strstr(error.message, "take no time"));
    timeline->event_count--;
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_EPARSE);
    timeline->event_count = timeline->step_count = 0;
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_EINVAL);
    cr_assert_eq(summary.step_time_s, 5, "untouched on failure");
    ty_timeline_free(timeline);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* No step is quadratic: a quarter of a million events, shuffled. */
Test(timeline, many_events)
{
    const plan_shape spec = {"many",
                             .replicas = {500, 1500, 1000},
                             .cuts = {2, 4},
                             .buckets = 1,
                             .micro_batches = 30000,
                             .compression.kind = TY_COMPRESSION_FP16,
                             .recompute = TY_RECOMPUTE_FULL};
    ty_plan *plan = toy_plan(&spec);
    ty_program *program = toy_program(plan);
    ty_timeline *timeline = counted_timeline(plan, program, 1);
    ty_step_summary summary;
    ty_error error = {0};

    cr_assert_gt(timeline->event_count, 250000);
    shuffle(timeline, 3);
    ty_timeline_sort(timeline);
    cr_assert_eq(ty_timeline_summarize(plan, program, timeline, &summary, &error), TY_OK, "%s",
                 error.message);
    ty_timeline_free(timeline);
    ty_program_free(program);
    ty_plan_free(plan);
}

/* ---- Files --------------------------------------------------------------------------------- */

static ty_status parse(const char *text, ty_timeline **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(text, strlen(text), "t.json", &document, error);
    if (status == TY_OK)
        status = ty_timeline_from_json(ty_json_root(document), out, error);
    ty_json_free(document);
    return status;
}

Test(timeline, files_go_there_and_back)
{
    ty_plan *plan = toy_plan_named("hybrid tied");
    ty_program *program = toy_program(plan);
    ty_timeline *timeline = counted_timeline(plan, program, 2), *read = NULL;
    char *first, *second;
    ty_error error = {0};

    timeline->events[0].start_s = -0.1; /* clocks of two hosts may differ */
    timeline->events[3].end_s = 1.0 / 3 + 4;
    first = toy_timeline_json(timeline);
    cr_assert_eq(parse(first, &read, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_timeline_check(plan, program, read, "read", &error), TY_OK, "%s",
                 error.message);
    second = toy_timeline_json(read);
    cr_assert_str_eq(first, second);
    ty_free(second);
    ty_timeline_free(read);
    shuffle(timeline, 5); /* rows in any order are put in order */
    second = toy_timeline_json(timeline);
    cr_assert_eq(parse(second, &read, &error), TY_OK, "%s", error.message);
    ty_free(second);
    second = toy_timeline_json(read);
    cr_assert_str_eq(first, second);
    ty_free(first);
    ty_free(second);
    ty_timeline_free(read);
    ty_timeline_free(timeline);
    ty_program_free(program);
    ty_plan_free(plan);
}

Test(timeline, bad_files_are_refused_with_pointer)
{
    const struct {
        const char *old, *new, *message;
    } rows[] = {
        {"trainyard.timeline/2", "trainyard.timeline/9", "t.json:/schema"},
        {"\"stage_replica_count\": 1", "\"stage_replica_count\": 0",
         "t.json:/stage_replica_count: found 0"},
        {"[0, 0, 1, ", "[1, 0, 1, ", "t.json:/events/1/0: found 1"},
        {"[0, 0, 1, ", "[0, 1, 1, ", "t.json:/events/1/1: found 1"},
        {"[0, 0, 1, ", "[0, 0, -1, ", "t.json:/events/1/2: found -1"},
        {"[0, 0, 1, 1, 2]", "[0, 0, 1, 2, 1]", "t.json:/events/1/4: found 1"},
        {"[0, 0, 1, 1, 2]", "[0, 0, 1, 2]", "t.json:/events/1: found an array of 4"},
        {"[0, 0, 1, 1, 2]", "[0, 0, 1, 2, 3, 4]", "t.json:/events/1: found an array of 6"},
        {"[0, 0, 1, 1, 2]", "{}", "t.json:/events/1: found an object"},
        {"[0, 0, 1, 1, 2]", "[0, 0, 1, null, 2]", "t.json:/events/1/3: found null"},
        {"\"events\"", "\"event\"", "events"},
    };
    ty_plan *plan = toy_plan_named("alone");
    ty_program *program = toy_program(plan);
    ty_timeline *timeline = counted_timeline(plan, program, 1), *out = NULL;
    char *good = toy_timeline_json(timeline);
    ty_status status = TY_ENOMEM;

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *bad = toy_replace(good, rows[i].old, rows[i].new);
        ty_error error = {0};
        cr_expect_eq(parse(bad, &out, &error), TY_EPARSE, "row %zu", i);
        cr_expect_null(out);
        cr_expect_not_null(strstr(error.message, rows[i].message), "row %zu: \"%s\" lacks \"%s\"",
                           i, error.message, rows[i].message);
        ty_free(bad);
    }
    for (long count = 1; status != TY_OK; count++) {
        out = NULL;
        ty_memory_fail_after(count);
        status = parse(good, &out, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
        ty_timeline_free(out);
    }
    status = TY_ENOMEM;
    for (long count = 1; status != TY_OK; count++) {
        ty_step_summary summary;
        ty_memory_fail_after(count);
        status = ty_timeline_summarize(plan, program, timeline, &summary, NULL);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM);
    }
    ty_free(good);
    ty_timeline_free(timeline);
    ty_program_free(program);
    ty_plan_free(plan);
}
