/* Comparisons of timelines with known durations of all instructions. */
#include "scene.h"

#include <criterion/criterion.h>

#include <math.h>
#include <string.h>

static bool is_close(double a, double b)
{
    return fabs(a - b) <= 1e-9 * fmax(1, fmax(fabs(a), fabs(b)));
}

static int by_value(const void *left, const void *right)
{
    double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Median of the rule over stage replicas of a stage, steps, and equivalent instructions. */
static double median_of_rule(const scene *s, const ty_comparison_row *row, uint32_t steps,
                             scene_rule rule, uint32_t *per_step)
{
    double values[4096];
    size_t count = 0;
    const ty_stage_program *program = &s->program->stages[row->stage];

    *per_step = 0;
    for (uint32_t i = 0; i < program->instruction_count; i++) {
        const ty_instruction *in = &program->instructions[i];
        if (in->op != row->op || in->bucket != row->bucket || in->phase != row->phase ||
            in->first_layer != row->first_layer || in->layer_count != row->layer_count)
            continue;
        ++*per_step;
        for (uint32_t step = 0; step < steps; step++)
            for (uint32_t q = 0; q < s->plan->stages[row->stage].replicas; q++)
                values[count++] = rule(ty_plan_first_replica(s->plan, row->stage) + q, step, i, in);
    }
    cr_assert_gt(count, 0);
    qsort(values, count, sizeof *values, by_value);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void expect_rows(const scene *s, const ty_comparison *c)
{
    uint32_t instructions[4] = {0};

    for (uint32_t r = 0; r < c->row_count; r++) {
        const ty_comparison_row *row = &c->rows[r];
        uint32_t per_step;
        double predicted = median_of_rule(s, row, 2, scene_two_ms, &per_step);
        double measured = median_of_rule(s, row, 3, scene_slowing, &per_step);
        cr_expect(is_close(row->predicted_s, predicted), "%s row %u (%s): found %g, expected %g",
                  s->plan->strategy, r, ty_op_name(row->op), row->predicted_s, predicted);
        cr_expect(is_close(row->measured_s, measured), "%s row %u (%s): found %g, expected %g",
                  s->plan->strategy, r, ty_op_name(row->op), row->measured_s, measured);
        cr_expect(is_close(row->error, predicted / measured - 1));
        cr_expect_eq(row->per_step, per_step);
        instructions[row->stage] += per_step;
        if (r == 0)
            continue;
        cr_expect_geq(row->stage, row[-1].stage);
        cr_expect(row->stage > row[-1].stage || row->per_step * row->measured_s <=
                                                    row[-1].per_step * row[-1].measured_s + 1e-12,
                  "the largest share first");
    }
    for (uint32_t stage = 0; stage < s->plan->stage_count; stage++)
        cr_expect_eq(instructions[stage], s->program->stages[stage].instruction_count,
                     "every instruction is in one row");
}

/* Receives begin up to 300 ms before their sends, collectives up to 12 ms before their last member.
 * If any of this waiting counted, no median would be 2 ms. */
Test(compare, medians_without_waiting)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        scene s = scene_of(toy_specs[i].name);
        ty_timeline *predicted = scene_timeline(&s, 2, scene_two_ms);
        ty_run *run = scene_run(&s, scene_timeline(&s, 3, scene_slowing));
        ty_comparison *c = NULL;
        ty_error error = {0};

        cr_assert_eq(ty_compare(s.plan, s.program, predicted, run, &c, &error), TY_OK, "%s",
                     error.message);
        expect_rows(&s, c);
        /* Steps begin every second; each measured one is 1 ms longer than the previous one. */
        cr_expect(is_close(c->predicted.step_time_s, 1));
        cr_expect(is_close(c->measured.step_time_s, 1.001), "found %.12g", c->measured.step_time_s);
        cr_expect(is_close(c->step_time_error, 1 / 1.001 - 1));
        cr_expect_eq(c->predicted_peak_memory_bytes, 0);
        cr_expect_eq(c->measured_peak_memory_bytes, (99ull + run->stage_replica_count) << 20);
        ty_comparison_free(c);
        ty_run_free(run);
        ty_timeline_free(predicted);
        scene_clear(&s);
    }
}

Test(compare, predicted_memory)
{
    scene s = scene_of("hybrid");
    ty_timeline *predicted = scene_timeline(&s, 1, scene_two_ms);
    ty_run *run = scene_run(&s, scene_timeline(&s, 1, scene_slowing));
    ty_comparison *c = NULL;

    scene_predict(&s);
    cr_assert_eq(ty_compare(s.plan, s.program, predicted, run, &c, NULL), TY_OK);
    cr_expect_eq(c->predicted_peak_memory_bytes, ty_memory_use_total(&s.plan->memory[1]));
    ty_comparison_free(c);
    ty_run_free(run);
    ty_timeline_free(predicted);
    scene_clear(&s);
}

Test(compare, json_has_every_row)
{
    scene s = scene_of("hybrid tied");
    ty_timeline *predicted = scene_timeline(&s, 2, scene_two_ms);
    ty_run *run = scene_run(&s, scene_timeline(&s, 2, scene_slowing));
    ty_comparison *c = NULL;
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    const ty_json *root, *rows;
    ty_error error = {0};

    cr_assert_eq(ty_compare(s.plan, s.program, predicted, run, &c, &error), TY_OK);
    ty_comparison_to_json(s.plan, c, &writer, NULL);
    cr_assert_eq(ty_text_check(&text, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_json_parse(text.data, text.length, "comparison", &document, &error), TY_OK,
                 "%s", error.message);
    root = ty_json_root(document);
    cr_expect_eq(ty_json_schema(root, "trainyard.comparison/1", &error), TY_OK);
    cr_assert_eq(ty_json_array(root, "operations", 1, 1000, &rows, &error), TY_OK);
    cr_expect_eq(ty_json_size(rows), c->row_count);
    for (uint32_t r = 0; r < c->row_count; r++) {
        double predicted_s = 0, measured_s = 0;
        cr_expect_eq(ty_json_number(ty_json_at(rows, r), "predicted_s", 0, 1, &predicted_s, NULL),
                     TY_OK);
        cr_expect_eq(ty_json_number(ty_json_at(rows, r), "measured_s", 0, 1, &measured_s, NULL),
                     TY_OK);
        cr_expect_eq(predicted_s, c->rows[r].predicted_s);
        cr_expect_eq(measured_s, c->rows[r].measured_s);
    }
    ty_json_free(document);
    ty_text_clear(&text);
    ty_comparison_free(c);
    ty_run_free(run);
    ty_timeline_free(predicted);
    scene_clear(&s);
}

Test(compare, others_timelines_are_refused)
{
    scene s = scene_of("pipeline"), other = scene_of("hybrid");
    ty_timeline *predicted = scene_timeline(&s, 1, scene_two_ms);
    ty_timeline *foreign = scene_timeline(&other, 1, scene_two_ms);
    ty_run *run = scene_run(&s, scene_timeline(&s, 1, scene_slowing));
    ty_comparison *c = NULL;
    ty_error error = {0};

    cr_expect_eq(ty_compare(s.plan, s.program, foreign, run, &c, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "stage_replica_count: found 3, expected the plan's 2") != NULL,
              "%s", error.message);
    ty_timeline_free(run->timeline);
    run->timeline = foreign;
    cr_expect_eq(ty_compare(s.plan, s.program, predicted, run, &c, &error), TY_EPARSE);
    run->timeline = NULL;
    cr_expect_eq(ty_compare(s.plan, s.program, predicted, run, &c, &error), TY_EINVAL);
    cr_expect_str_eq(error.message, "the run has no timeline to compare with: it recorded none");
    cr_expect_null(c);
    ty_timeline_free(foreign);
    ty_timeline_free(predicted);
    ty_run_free(run);
    scene_clear(&s);
    scene_clear(&other);
}

Test(compare, survives_failing_allocations)
{
    scene s = scene_of("hybrid tied");
    ty_timeline *predicted = scene_timeline(&s, 2, scene_two_ms);
    ty_run *run = scene_run(&s, scene_timeline(&s, 2, scene_slowing));
    ty_comparison *c = NULL;
    ty_status status = TY_ENOMEM;
    long n;

    for (n = 1; status == TY_ENOMEM; n++) {
        ty_error error = {0};
        ty_memory_fail_after(n);
        status = ty_compare(s.plan, s.program, predicted, run, &c, &error);
        ty_memory_fail_after(0);
        cr_assert(status == TY_OK || status == TY_ENOMEM, "allocation %ld: %s", n, error.message);
        cr_assert_eq(c == NULL, status != TY_OK);
    }
    cr_expect_gt(n, 20);
    ty_comparison_free(c);
    ty_run_free(run);
    ty_timeline_free(predicted);
    scene_clear(&s);
}
