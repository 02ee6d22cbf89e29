/*
 * Text for terminals: width, required content, and one plan word for word. After an intended
 * change, regenerate golden/plan.txt with
 *
 *     TY_REGENERATE=1 build/dev/tests/test_reports --filter 'print/golden'
 *
 * and review the difference.
 */
#include "scene.h"

#include <criterion/criterion.h>

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No line exceeds the width, and none ends in a space. */
static void expect_narrow(const char *text, const char *what)
{
    size_t columns = 0, line = 1;

    for (const char *c = text; *c != '\0'; c++) {
        if (*c == '\n') {
            cr_expect_leq(columns, TY_PRINT_COLUMNS, "%s, line %zu: %zu columns\n%s", what, line,
                          columns, text);
            cr_expect(c == text || c[-1] != ' ', "%s, line %zu ends in a space\n%s", what, line,
                      text);
            columns = 0;
            line++;
        } else {
            columns += ((unsigned char)*c & 0xc0) != 0x80;
        }
    }
    cr_expect_eq(columns, 0, "%s: the last line ends", what);
    for (const char *c = text; (c = strstr(c, "nan")) != NULL; c++)
        cr_expect(isalpha((unsigned char)c[3]), "%s", text);
}

static char *printed(void (*print)(const ty_plan *, ty_text *), const ty_plan *plan)
{
    ty_text text = {0};
    char *out = NULL;

    print(plan, &text);
    cr_assert_eq(ty_text_take(&text, &out, NULL), TY_OK);
    return out;
}

static void print_plan(const ty_plan *plan, ty_text *text)
{
    ty_print_plan(plan, NULL, NULL, text);
}

static void rename_text(char **text, const char *name)
{
    ty_free(*text);
    *text = ty_strdup(name);
}

Test(print, plans_are_narrow)
{
    static const char *const names[] = {
        "x",
        "a-name-without-any-place-to-divide-it-that-is-longer-than-a-hundred-columns-which-"
        "nobody-should-give-to-anything-but-somebody-will",
        "ein Name mit Umlauten wie ä, ö und ü, der in einer Zeile keinen Platz hat und dennoch "
        "ganz "
        "zu lesen sein soll"};

    for (size_t i = 0; i < toy_spec_count; i++) {
        for (size_t n = 0; n < sizeof names / sizeof *names; n++)
            for (int is_predicted = 0; is_predicted < 2; is_predicted++) {
                scene s = scene_of(toy_specs[i].name);
                char *text;
                rename_text(&s.plan->workload->name, names[n]);
                rename_text(&s.plan->cluster_name, names[n]);
                rename_text(&s.plan->strategy, names[n]);
                rename_text(&s.plan->workload->layers[0].name, names[n]);
                if (is_predicted)
                    scene_predict(&s);
                text = printed(print_plan, s.plan);
                expect_narrow(text, toy_specs[i].name);
                cr_expect_eq(strstr(text, "12.5 ms") != NULL, is_predicted);
                cr_expect_eq(strstr(text, "Memory      not predicted") == NULL, is_predicted);
                cr_expect_eq(strstr(text, "14 plans searched; ") != NULL, is_predicted);
                ty_free(text);
                text = printed(ty_print_memory, s.plan);
                expect_narrow(text, toy_specs[i].name);
                ty_free(text);
                scene_clear(&s);
            }
    }
}

Test(print, wide_shares_fit)
{
    ty_step_summary summary = {.step_time_s = 1e-7,
                               .samples_per_s = 1.23456e12,
                               .tokens_per_s = 1.23456e15,
                               .compute_share = 1,
                               .exposed_collective_share = 1,
                               .exposed_transfer_share = 1,
                               .bubble_share = 1,
                               .input_share = 1};
    ty_text text = {0};

    memset(summary.limited_by, 'm', sizeof summary.limited_by - 1);
    ty_print_summary(&summary, NULL, "GPU", &text);
    expect_narrow(text.data, "summary");
    ty_text_clear(&text);
}

/* A plan prints unusual gradient settings: every kind of compression and algorithm. */
Test(print, buckets_tell_all_kinds)
{
    scene s = scene_of("data parallel");
    char *text = printed(print_plan, s.plan);

    cr_assert_gt(s.plan->bucket_count, 1, "the toy's buckets take turns in their algorithm");
    cr_expect_null(strstr(text, "Gradients   "), "all-reduces of whole gradients\n%s", text);
    ty_free(text);
    s.plan->buckets[1].compression.kind = TY_COMPRESSION_FP16;
    text = printed(print_plan, s.plan);
    cr_expect(strstr(text, ", ring and tree, uncompressed and fp16\n") != NULL, "%s", text);
    ty_free(text);
    scene_clear(&s);
    s = scene_of("pipeline");
    text = printed(print_plan, s.plan);
    cr_expect_null(strstr(text, "Gradients   "), "nothing is exchanged\n%s", text);
    ty_free(text);
    scene_clear(&s);
}

Test(print, comparisons_and_runs)
{
    for (size_t i = 0; i < toy_spec_count; i++) {
        scene s = scene_of(toy_specs[i].name);
        ty_timeline *predicted = scene_timeline(&s, 2, scene_two_ms);
        ty_run *run = scene_run(&s, scene_timeline(&s, 3, scene_slowing));
        ty_comparison *c = NULL;
        ty_text text = {0};
        rename_text(&s.plan->workload->layers[0].name,
                    "a-layer-whose-name-is-longer-than-its-column-in-the-table-of-operations");
        cr_assert_eq(ty_compare(s.plan, s.program, predicted, run, &c, NULL), TY_OK);
        c->rows[0].measured_s = c->rows[0].error = 0;
        ty_print_comparison(s.plan, c, &text);
        expect_narrow(text.data, toy_specs[i].name);
        cr_expect(strstr(text.data, "Step time   predicted 1 s, measured 1 s: -0.1 %") != NULL,
                  "%s", text.data);
        cr_expect(strstr(text.data, "        -\n") != NULL, "no error without a measurement");
        ty_text_clear(&text);
        ty_print_run(run, &text);
        expect_narrow(text.data, toy_specs[i].name);
        cr_expect(strstr(text.data, "Loss        2.5000 -> 0.2500") != NULL, "%s", text.data);
        cr_expect(strstr(text.data, "accuracy 0.5000, loss 1.2500 after 10 steps") != NULL);
        ty_text_clear(&text);
        ty_comparison_free(c);
        ty_run_free(run);
        ty_timeline_free(predicted);
        scene_clear(&s);
    }
}

/* Provenance of a figure: a measurement, a framework with known error, one without, none. */
Test(print, how_sure_a_prediction_is)
{
    scene s = scene_of("data parallel");
    ty_stack_judged judged = {.device = (char *)"h100", .rows = 26, .mean_error = 0.0647};
    ty_stack_fitted fitted = {.source = (char *)"rows"};
    ty_stack stack = {.name = (char *)"mine", .judged_count = 1, .judged = &judged};
    ty_stack_on hopper = {.device = (char *)"hopper",
                          .values = {0.8},
                          .sources = {(char *)"measured on a GPU: a product"}};
    ty_stack *own = s.plan->stack;
    ty_cluster *clusters[2] = {NULL, NULL};
    const struct {
        ty_provenance provenance;
        int cluster;
        bool is_fitted;
        const char *says;
        uint64_t tokens;
        uint32_t judged;
    } rows[] = {
        {TY_MEASURED, 0, true, "measured on this hardware", 1024, 26},
        {TY_DATASHEET, 0, true, "calibrated; mean error 6.5 % on 26 held-out h100 runs", 1024, 26},
        {TY_DATASHEET, 0, true, "calibrated; mean error 6.5 % on 1 held-out h100 run", 1024, 1},
        {TY_DATASHEET, 0, true, /* rows are of language models */
         "calibrated; no held-out runs of such models, expect an error of tens of percent", 0, 26},
        {TY_DATASHEET, 0, false, "data sheets and a roofline; expect an error of tens of percent",
         0, 26},
        {TY_DATASHEET, 1, true,
         "calibrated; no held-out runs on a100-sxm4-80gb, expect an error of tens of percent", 1024,
         26},
        {TY_CALIBRATED, 1, false, "calibrated from published curves", 1024, 26},
        {TY_DATASHEET, 1, false, "data sheets and a roofline; expect an error of tens of percent",
         1024, 26},
    };

    cr_assert_eq(ty_cluster_open("1x dgx-h100", NULL, &clusters[0], NULL), TY_OK);
    cr_assert_eq(ty_cluster_open("1x p4de.24xlarge", NULL, &clusters[1], NULL), TY_OK);
    s.plan->stack = &stack;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        ty_text text = {0};
        s.plan->provenance = rows[i].provenance;
        s.plan->workload->tokens_per_sample = rows[i].tokens;
        judged.rows = rows[i].judged;
        stack.fitted_count = rows[i].is_fitted;
        stack.fitted = &fitted;
        ty_print_certainty(s.plan, clusters[rows[i].cluster], &text);
        cr_expect_str_eq(text.data, rows[i].says);
        ty_text_clear(&text);
    }
    /* Measured rates of the framework on one generation. */
    stack.provenance = TY_MEASURED;
    stack.fitted_count = stack.judged_count = 0;
    stack.on = &hopper;
    stack.on_count = 1;
    for (int i = 0; i < 2; i++) {
        ty_text text = {0};
        s.plan->provenance = TY_DATASHEET;
        ty_print_certainty(s.plan, clusters[i], &text);
        cr_expect_str_eq(text.data,
                         i == 0 ? "rates measured on a GPU; the rest from data sheets"
                                : "data sheets and a roofline; expect an error of tens of percent");
        ty_text_clear(&text);
    }
    s.plan->stack = own;
    scene_clear(&s);
    ty_cluster_free(clusters[0]);
    ty_cluster_free(clusters[1]);
}

/* Memory is a part of usable memory. If it is close to the limit set by the reserve, the fit is
 * tight. */
Test(print, memory_that_exists)
{
    const struct {
        double gib, reserve;
        const char *says;
    } rows[] = {{60, 0.04, "Memory      60 of 79.1 GiB on stage 0; activations 60\n"},
                {73, 0.04, "Memory      73 of 79.1 GiB on stage 0; activations 73\n"},
                {74, 0.04, "Memory      74 of 79.1 GiB on stage 0, a tight fit; activations 74\n"},
                {74, 0, "Memory      74 of 79.1 GiB on stage 0; activations 74\n"},
                {77, 0, "Memory      77 of 79.1 GiB on stage 0, a tight fit; activations 77\n"}};
    scene s = scene_of("pipeline");

    ty_cluster_free(s.plan->cluster);
    cr_assert_eq(ty_cluster_open("2x dgx-h100", NULL, &s.plan->cluster, NULL), TY_OK);
    scene_predict(&s);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *text;
        memset(s.plan->memory, 0, s.plan->stage_count * sizeof *s.plan->memory);
        s.plan->memory[0].activation_bytes = (uint64_t)(rows[i].gib * 0x1p30);
        s.plan->memory_reserve = rows[i].reserve;
        text = printed(print_plan, s.plan);
        cr_expect(strstr(text, rows[i].says) != NULL, "%s\n%s", rows[i].says, text);
        ty_free(text);
    }
    scene_clear(&s);
}

Test(print, golden)
{
    scene s = scene_of("hybrid tied");
    char *text, *expected;
    FILE *file;

    scene_predict(&s);
    text = printed(print_plan, s.plan);
    if (getenv("TY_REGENERATE") != NULL) {
        file = fopen(TY_GOLDEN "/plan.txt", "wb");
        cr_assert_not_null(file);
        fputs(text, file);
        fclose(file);
    }
    expected = toy_read(TY_GOLDEN "/plan.txt");
    cr_expect_str_eq(text, expected);
    ty_free(expected);
    ty_free(text);
    scene_clear(&s);
}
