/* The answer of a question is the fastest that the planner has, and comes with one simulation. */
#include "ty_study.h"

#include "ty_memory.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

typedef struct asked {
    ty_question question;
    ty_question_inputs inputs;
    ty_plan *plan;
} asked;

static asked ask(const char *workload, const char *cluster, uint32_t batch, const char *fix,
                 uint32_t top)
{
    asked a = {.question = {.workload = workload,
                            .cluster = cluster,
                            .global_batch = batch,
                            .fix = fix,
                            .seed = 1,
                            .top = top}};
    ty_error error = {0};

    cr_assert_eq(ty_question_open(&a.question, NULL, &a.inputs, &error), TY_OK, "%s",
                 error.message);
    if (ty_question_plan(&a.question, &a.inputs, NULL, &a.plan, &error) != TY_OK)
        a.plan = NULL;
    return a;
}

static void forget(asked *a)
{
    ty_plan_free(a->plan);
    ty_question_inputs_clear(&a->inputs);
}

/* Small batches. */
static const struct {
    const char *workload, *cluster;
    uint32_t batch;
} rows[] = {
    {"gpt2", "2x dgx-h100", 4},        {"bert-base", "2x dgx-h100", 2},
    {"gpt2", "1x dgx-a100", 3},        {"gpt2", "4x dgx1-v100", 6},
    {"resnet50", "2x dgx-h100", 6},    {"llama-3.1-8b", "2x dgx-h100", 4},
    {"bert-large", "3x dgx-a100", 10}, {"vgg16", "2x dgx-a100", 5},
};

/* No number of devices is faster than the number that the answer uses, and neither is a candidate
 * that the answer lists. */
Test(fastest, small_batches)
{
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        asked open = ask(rows[r].workload, rows[r].cluster, rows[r].batch, NULL, 0);
        const uint32_t all = ty_cluster_device_count(open.inputs.cluster);
        cr_assert_neq(open.plan, NULL, "%s", rows[r].workload);
        const double most_s =
            open.plan->prediction.step_time_s / (1 + TY_USUAL_TOLERANCE) * (1 - 1e-9);
        for (uint32_t n = 1; n <= all; n += n < 8 ? 1 : 8) {
            char fix[32];
            snprintf(fix, sizeof fix, "devices=%u", n);
            asked fixed = ask(rows[r].workload, rows[r].cluster, rows[r].batch, fix, 0);
            if (fixed.plan != NULL)
                cr_expect_geq(fixed.plan->prediction.step_time_s, most_s,
                              "%s on %s, %s: %g s, and %g s left open", rows[r].workload,
                              rows[r].cluster, fix, fixed.plan->prediction.step_time_s,
                              open.plan->prediction.step_time_s);
            forget(&fixed);
        }
        for (uint32_t c = 0; c < open.plan->candidate_count; c++) {
            const ty_candidate *row = &open.plan->candidates[c];
            cr_expect(row->step_time_s <= 0 || row->peak_memory_bytes == 0 ||
                          row->step_time_s >= most_s,
                      "%s on %s: %s: %g s", rows[r].workload, rows[r].cluster, row->name,
                      row->step_time_s);
        }
        forget(&open);
    }
}

/* Simulations that would take more than a second of CPU time are left out. */
Test(fastest, one_simulation_of_a_second)
{
    static const char *const fixes[] = {NULL, "pp=8,dp=2,tp=4,interleave=10,micro_batch=1"};

    for (size_t f = 0; ty_simulate_is_built() && f < sizeof fixes / sizeof *fixes; f++) {
        asked a = ask("llama-3.1-70b", "8x dgx-h100", 512, fixes[f], 5);
        uint32_t simulated = 0;
        cr_assert_neq(a.plan, NULL);
        for (uint32_t c = 0; c < a.plan->candidate_count; c++)
            simulated += a.plan->candidates[c].simulated_step_time_s > 0;
        cr_expect_eq(simulated, 1);
        cr_expect_gt(a.plan->simulation.step_time_s, 0);
        cr_expect_float_eq(a.plan->simulation.step_time_s / a.plan->prediction.step_time_s, 1,
                           0.02);
        forget(&a);
    }
}
