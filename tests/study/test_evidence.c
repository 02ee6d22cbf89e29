/* Prediction intervals: by hand on a few rows, their coverage on the published ones, and the order
 * of comparisons. */
#include "ty_study.h"

#include "ty_base.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- The stored rows ------------------------------------------------------------------------ */

static ty_evidence *open_rows(void)
{
    ty_evidence *evidence = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_evidence_load(NULL, &evidence, &error), TY_OK, "%s", error.message);
    return evidence;
}

static uint32_t word(const ty_evidence *e, const char *text)
{
    for (uint32_t i = 0; i < e->word_count; i++)
        if (strcmp(e->words[i], text) == 0)
            return i;
    return TY_EVIDENCE_NONE;
}

/* Rows of the source are known, or the whole source, or the device, is left out. A new model of
 * cost changes the rows: docs/results/evidence.py writes them. */
Test(evidence, coverage)
{
    static const struct {
        ty_left_out left_out;
        double most_half_width;
    } judged[] = {{TY_LEFT_OUT_ROW, 0.20}, {TY_LEFT_OUT_SOURCE, 0.32}};
    static const char *const kinds[] = {"dense", "mixture", "encoder", "image"};
    ty_evidence *e = open_rows();
    ty_coverage c;

    for (size_t j = 0; j < sizeof judged / sizeof judged[0]; j++) {
        const char *name = ty_left_out_name(judged[j].left_out);
        cr_assert_eq(ty_evidence_coverage(e, judged[j].left_out, TY_EVIDENCE_NONE, &c, NULL),
                     TY_OK);
        cr_expect(c.rows > 1000, "%s: %u rows", name, c.rows);
        cr_expect(c.coverage >= 0.75 && c.coverage <= 0.87, "%s: coverage %g", name, c.coverage);
        cr_expect(c.median_half_width <= judged[j].most_half_width, "%s: half width %g", name,
                  c.median_half_width);
        for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
            cr_assert_eq(ty_evidence_coverage(e, judged[j].left_out, word(e, kinds[k]), &c, NULL),
                         TY_OK);
            cr_expect(c.rows >= 10 && c.coverage >= 0.65, "%s of %s: coverage %g of %u rows", name,
                      kinds[k], c.coverage, c.rows);
        }
    }
    ty_evidence_free(e);
}

Test(evidence, stored_factors)
{
    ty_evidence *e = open_rows();
    double known, unknown;

    cr_assert_eq(ty_evidence_factor(e, TY_LEFT_OUT_ROW, &known, NULL), TY_OK);
    cr_assert_eq(ty_evidence_factor(e, TY_LEFT_OUT_SOURCE, &unknown, NULL), TY_OK);
    cr_expect_float_eq(e->known_source_factor / known, 1, 1e-3, "%g, found %g",
                       e->known_source_factor, known);
    cr_expect_float_eq(e->new_source_factor / unknown, 1, 1e-3, "%g, found %g",
                       e->new_source_factor, unknown);
    ty_evidence_free(e);
}

/* A device, a format, software or a size that no row has inherits, and makes no interval narrower
 * than the one with it. */
Test(evidence, unknown_words)
{
    ty_evidence *e = open_rows();
    const ty_measured_run *row = NULL;
    ty_step_interval near, far;

    for (uint32_t i = 0; i < e->row_count; i++)
        if (strcmp(e->words[e->rows[i].release], "nemo") == 0 &&
            strcmp(e->words[e->rows[i].kind], "dense") == 0)
            row = &e->rows[i];
    cr_assert_neq(row, NULL);
    ty_measured_run question = *row;
    question.source = TY_EVIDENCE_NONE;
    near = ty_evidence_interval(e, &question, 2);
    question.device = question.generation = question.precision = TY_EVIDENCE_NONE;
    question.at[0] += 10;
    question.at[1] += 10;
    far = ty_evidence_interval(e, &question, 2);
    cr_expect(far.high_s / far.low_s > 1.2 * near.high_s / near.low_s, "%g to %g, and %g to %g",
              near.low_s, near.high_s, far.low_s, far.high_s);
    question.kind = question.framework = question.release = TY_EVIDENCE_NONE;
    far = ty_evidence_interval(e, &question, 2);
    cr_expect(far.low_s > 0 && far.low_s < far.expected_s && far.expected_s < far.high_s);
    cr_expect(far.high_s < 2 * 10, "%g", far.high_s);
    ty_evidence_free(e);
}

/* ---- By hand ------------------------------------------------------------------------------- */

#define COLUMNS                                                                                    \
    "\"columns\": [\"source\", \"citation\", \"model\", \"kind\", \"devices\", \"device\", "       \
    "\"generation\", \"hosts\", \"framework\", \"release\", \"precision\", \"parameters\", "       \
    "\"sequence\", \"global_batch\", \"is_assumed\", \"is_fitted\", \"step_s\", "                  \
    "\"predicted_s\"]"

static ty_status read_text(const char *text, ty_evidence **out, ty_error *error)
{
    char path[] = "/tmp/evidenceXXXXXX";
    FILE *file;
    int handle = mkstemp(path);
    ty_status status;

    cr_assert(handle >= 0);
    file = fdopen(handle, "w");
    cr_assert_neq(file, NULL);
    cr_assert(fputs(text, file) >= 0);
    cr_assert_eq(fclose(file), 0);
    status = ty_evidence_load(path, out, error);
    cr_expect(status != TY_OK || ty_is_evidence(path));
    (void)remove(path);
    return status;
}

/* Ten sources of one row each, residuals -0.5, -0.4, ... 0.4; words 0 to 9 are sources. */
static void ten_rows(ty_text *text, const char *columns, uint32_t kind)
{
    ty_text_addf(text,
                 "{\"schema\": \"trainyard.evidence/1\", \"about\": \"a test\", "
                 "\"known_source_factor\": 1, \"new_source_factor\": 2, %s, \"words\": "
                 "[\"0\",\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"x\"], \"rows\": [",
                 columns);
    for (uint32_t i = 0; i < 10; i++)
        ty_text_addf(text, "%s[%u,10,10,%u,8,10,10,1,10,10,10,1e9,2048,64,0,0,%.17g,1]",
                     i > 0 ? "," : "", i, kind, exp(0.1 * i - 0.5));
    ty_text_add(text, "]}");
}

/* All groups have the ten rows: the median -0.1 shifts by 10 / (10 + 20) of the rest, five times;
 * width: the eighth of ten distances from the shift. */
Test(evidence, by_hand)
{
    ty_text text = {0};
    ty_evidence *e = NULL;
    ty_error error = {0};
    ty_step_interval found;
    double shift = 0;

    ten_rows(&text, COLUMNS, 10);
    cr_assert_eq(read_text(text.data, &e, &error), TY_OK, "%s", error.message);
    ty_measured_run question = e->rows[0];
    question.source = TY_EVIDENCE_NONE;
    found = ty_evidence_interval(e, &question, 1);
    for (int i = 0; i < 5; i++)
        shift += (-0.1 - shift) / 3;
    cr_expect_float_eq(log(found.expected_s), shift, 1e-9, "%g", log(found.expected_s));
    cr_expect_float_eq(log(found.high_s) - shift, 2 * (0.3 - shift), 1e-9);
    cr_expect_float_eq(shift - log(found.low_s), 2 * (0.3 - shift), 1e-9);
    cr_expect_float_eq(found.coverage, 0.8, 1e-12);
    /* A known source: its own row at 0.4 moves the shift by 1 / (1 + 3). */
    question.source = e->rows[9].source;
    found = ty_evidence_interval(e, &question, 1);
    cr_expect_float_eq(log(found.expected_s), shift + (0.4 - shift) / 4, 1e-9);
    ty_evidence_free(e);
    ty_text_clear(&text);
}

Test(evidence, bad_files)
{
    ty_text text = {0};
    ty_evidence *e = NULL;
    ty_error error = {0};

    ten_rows(&text, COLUMNS, 11);
    cr_expect_eq(read_text(text.data, &e, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "indices of words") != NULL, "%s", error.message);
    ty_text_clear(&text);
    ten_rows(&text, "\"columns\": [\"source\"]", 10);
    cr_expect_eq(read_text(text.data, &e, &error), TY_EPARSE);
    cr_expect(strstr(error.message, "/columns") != NULL, "%s", error.message);
    ty_text_clear(&text);
}

/* ---- Plans ---------------------------------------------------------------------------------- */

static ty_plan *plan_of(const ty_question *question)
{
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_question_answer(question, NULL, &plan, &error), TY_OK, "%s", error.message);
    return plan;
}

/* Layouts, devices, hosts and sizes have one shift, so the expected times keep the order of the
 * step times. */
Test(evidence, order_is_kept)
{
    static const ty_question questions[] = {
        {.workload = "llama-3.1-8b", .cluster = "1x dgx-h100", .fix = "tp=8"},
        {.workload = "llama-3.1-8b", .cluster = "1x dgx-h100", .fix = "tp=2"},
        {.workload = "llama-3.1-8b", .cluster = "4x dgx-h100"},
        {.workload = "llama-3.1-70b", .cluster = "8x dgx-h200"},
        {.workload = "llama-3.1-70b", .cluster = "16x dgx-b200", .global_batch = 512},
    };
    double shift = 0;

    for (size_t i = 0; i < sizeof questions / sizeof questions[0]; i++) {
        ty_question question = questions[i];
        question.stack = "nemo";
        question.precision = "bf16";
        question.no_simulate = true;
        ty_plan *plan = plan_of(&question);
        const double found = plan->interval.expected_s / plan->prediction.step_time_s;
        cr_assert(found > 0);
        if (i > 0)
            cr_expect_float_eq(found / shift, 1, 1e-9, "%s on %s: %g, not %g", question.workload,
                               question.cluster, found, shift);
        shift = found;
        ty_plan_free(plan);
    }
}

Test(evidence, of_a_plan)
{
    const ty_question question = {
        .workload = "llama-3.1-8b", .cluster = "1x dgx-h100", .no_simulate = true};
    ty_plan *plan = plan_of(&question), *read = NULL;
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_json_document *document = NULL;
    const double step_s = plan->prediction.step_time_s;
    ty_error error = {0};

    cr_expect(plan->interval.low_s < plan->interval.expected_s &&
              plan->interval.expected_s < plan->interval.high_s);
    cr_expect(plan->interval.low_s < step_s && step_s < plan->interval.high_s);
    cr_expect_eq(plan->nearest_count, TY_MOST_NEAREST);
    for (uint32_t i = 0; i < plan->nearest_count; i++) {
        cr_expect(plan->nearest[i].tokens_per_s > 0 && plan->nearest[i].step_s > 0);
        for (uint32_t k = 0; k < i; k++)
            cr_expect_str_neq(plan->nearest[i].model, plan->nearest[k].model);
    }
    ty_plan_to_json(plan, &w, NULL);
    cr_assert_eq(ty_json_parse(text.data, text.length, "plan", &document, &error), TY_OK);
    cr_assert_eq(ty_plan_from_json(ty_json_root(document), &read, &error), TY_OK, "%s",
                 error.message);
    cr_expect_eq(memcmp(&read->interval, &plan->interval, sizeof read->interval), 0);
    cr_expect_eq(read->nearest_count, plan->nearest_count);
    cr_expect_str_eq(read->nearest[0].source, plan->nearest[0].source);
    ty_json_free(document);
    ty_text_clear(&text);
    ty_plan_free(read);
    ty_plan_free(plan);
}

/* Published errors are not those of times measured on the user's own devices. */
Test(evidence, measured_times)
{
    const ty_question question = {
        .workload = "mlp", .cluster = "1x p100-server", .no_simulate = true};
    ty_plan *plan = plan_of(&question);
    ty_profile profile = {0};

    cr_expect(plan->interval.coverage > 0);
    plan->profile = &profile;
    cr_assert_eq(ty_plan_judge(plan, plan->prediction.step_time_s, NULL), TY_OK);
    cr_expect(!(plan->interval.coverage > 0) && plan->nearest_count == 0);
    plan->profile = NULL;
    ty_plan_free(plan);
}
