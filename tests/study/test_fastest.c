/* The answer to a query is the planner's fastest plan, and has one simulation. */
#include "ty_study.h"

#include "ty_base.h"

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

/* No number of devices is faster than the answer's, and neither is a candidate that the answer
 * lists. */
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

/* No answer exceeds the peak: image and language models on every kind of device. */
Test(fastest, at_most_the_peak)
{
    static const char *const models[] = {"vgg16", "resnet50", "bert-base"};
    ty_text seen = {0};
    char **names = NULL;
    uint32_t count = 0, asked_count = 0;

    cr_assert_eq(ty_catalogue_list(&names, &count, NULL), TY_OK);
    for (uint32_t i = 0; i < count; i++) {
        ty_cluster *cluster = NULL;
        char device[96];
        bool is_new;
        cr_assert_eq(ty_cluster_open(names[i], NULL, &cluster, NULL), TY_OK, "%s", names[i]);
        snprintf(device, sizeof device, ",%.90s,", ty_cluster_device_type(cluster, 0)->name);
        is_new = ty_cluster_device_count(cluster) <= 16 &&
                 (seen.length == 0 || strstr(seen.data, device) == NULL);
        ty_cluster_free(cluster);
        if (!is_new)
            continue;
        ty_text_add(&seen, device);
        for (size_t m = 0; m < sizeof models / sizeof *models; m++)
            for (int p = 0; p < 2; p++) {
                asked a = {.question = {.workload = models[m],
                                        .cluster = names[i],
                                        .precision = p == 0 ? "fp32" : NULL,
                                        .seed = 1}};
                ty_error error = {0};
                cr_assert_eq(ty_question_open(&a.question, NULL, &a.inputs, &error), TY_OK, "%s",
                             error.message);
                if (ty_question_plan(&a.question, &a.inputs, NULL, &a.plan, &error) == TY_OK) {
                    asked_count++;
                    cr_expect(a.plan->prediction.mfu >= 0 && a.plan->prediction.mfu <= 1,
                              "%s on %s: MFU %g", models[m], names[i], a.plan->prediction.mfu);
                } else {
                    a.plan = NULL;
                }
                forget(&a);
            }
    }
    cr_expect_gt(asked_count, 150);
    ty_text_clear(&seen);
    ty_names_free(names, count);
}

/* Simulations that would take more than a second of CPU time are skipped. */
Test(fastest, one_simulation_of_a_second)
{
    static const char *const fixes[] = {NULL, "pp=8,dp=2,tp=4,interleave=10,micro_batch=1"};

    for (size_t f = 0; f < sizeof fixes / sizeof *fixes; f++) {
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

/* ---- Unrequested changes ----------------------------------------------------------- */

/* Whether any bucket of the answer, or of its candidates, is compressed. */
static bool has_compression(const ty_plan *plan)
{
    for (uint32_t b = 0; b < plan->bucket_count; b++)
        if (plan->buckets[b].compression.kind != TY_COMPRESSION_NONE)
            return true;
    for (uint32_t c = 0; c < plan->candidate_count; c++)
        if (plan->candidates[c].fix != NULL &&
            strstr(plan->candidates[c].fix, "compression=none") == NULL)
            return true;
    return false;
}

/* Frameworks that compress gradients on request get compression on request only. */
Test(unasked, frameworks_compress_on_request)
{
    static const struct {
        const char *stack, *workload, *cluster;
        uint32_t batch;
    } cases[] = {
        {"pytorch-fsdp", "llama-2-7b", "2x p100-server", 8},
        {"pytorch-fsdp", "gpt2-xl", "4x dgx1-v100", 64},
        {"pytorch-ddp", "resnet50", "4x p100-server", 256},
        {"deepspeed", "gpt2-xl", "4x dgx1-v100", 64},
        {"torchtitan", "llama-3.1-8b", "2x dgx-a100", 64},
        {"horovod", "vgg16", "4x p100-server", 256},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int r = 0; r < 3; r++) {
            asked a = {.question = {.workload = cases[i].workload,
                                    .cluster = cases[i].cluster,
                                    .stack = cases[i].stack,
                                    .global_batch = cases[i].batch,
                                    .fix = r == 1 ? "compression=fp16" : NULL,
                                    .allow_lossy = r == 2,
                                    .seed = 1}};
            ty_error error = {0};
            cr_assert_eq(ty_question_open(&a.question, NULL, &a.inputs, &error), TY_OK, "%s",
                         error.message);
            if (ty_question_plan(&a.question, &a.inputs, NULL, &a.plan, &error) == TY_OK)
                cr_expect(r == 2 || has_compression(a.plan) == (r == 1), "%s: %s", cases[i].stack,
                          a.plan->fix);
            else
                cr_expect_eq(i, 0, "%s: %s", cases[i].stack, error.message);
            forget(&a);
        }
}

/* A pipeline schedule needs a pipeline; the search chooses the number of stages. */
Test(unasked, schedules_without_a_pipeline_are_refused)
{
    static const char *const refused[] = {"schedule=pipedream", "schedule=pipedream-2bw,tp=1",
                                          "schedule=zb-h1", "schedule=zb-2p,micro_batch=1"};
    static const char *const used[] = {"schedule=pipedream,pp=2", "schedule=1f1b", "schedule=gpipe",
                                       "schedule=interleaved"};

    for (size_t i = 0; i < 4; i++) {
        for (int r = 0; r < 2; r++) {
            asked a = {.question = {.workload = "gpt2",
                                    .cluster = "1x dgx-a100",
                                    .stack = "trainyard",
                                    .fix = r == 0 ? refused[i] : used[i],
                                    .seed = 1}};
            ty_error error = {0};
            ty_status status = ty_question_open(&a.question, NULL, &a.inputs, &error);
            if (status == TY_OK)
                status = ty_question_plan(&a.question, &a.inputs, NULL, &a.plan, &error);
            cr_expect_eq(status, r == 0 ? TY_EINVAL : TY_OK, "%s: %s", a.question.fix,
                         error.message);
            if (r == 0)
                cr_expect(strstr(error.message, "needs a pipeline") != NULL, "%s", error.message);
            forget(&a);
        }
    }
}
