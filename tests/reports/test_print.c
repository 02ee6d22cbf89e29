/*
 * Text for terminals: width, what must be there, and one plan word for word. After a change that is
 * meant, write golden/plan.txt anew with
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

/* No line is wider than it may be, and none ends in a space. */
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
    ty_print_plan(plan, NULL, text);
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
                cr_expect_eq(strstr(text, "memory      not predicted") == NULL, is_predicted);
                cr_expect_eq(strstr(text, "... and 2 more") != NULL, is_predicted);
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
    ty_print_summary(&summary, &text);
    expect_narrow(text.data, "summary");
    ty_text_clear(&text);
}

Test(print, buckets_tell_all_kinds)
{
    scene s = scene_of("data parallel");
    char *text = printed(print_plan, s.plan);

    cr_assert_gt(s.plan->bucket_count, 1, "the toy's buckets take turns in their algorithm");
    cr_expect(strstr(text, ", ring and tree, uncompressed\n") != NULL, "%s", text);
    ty_free(text);
    scene_clear(&s);
    s = scene_of("pipeline");
    text = printed(print_plan, s.plan);
    cr_expect_null(strstr(text, "gradients   "), "nothing is exchanged\n%s", text);
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
        cr_expect(strstr(text.data, "step time   predicted 1 s, measured 1 s: -0.1 %") != NULL,
                  "%s", text.data);
        cr_expect(strstr(text.data, "        -\n") != NULL, "no error without a measurement");
        ty_text_clear(&text);
        ty_print_run(run, &text);
        expect_narrow(text.data, toy_specs[i].name);
        cr_expect(strstr(text.data, "loss        2.5000 -> 0.2500") != NULL, "%s", text.data);
        cr_expect(strstr(text.data, "accuracy 0.5000, loss 1.2500 after 10 steps") != NULL);
        ty_text_clear(&text);
        ty_comparison_free(c);
        ty_run_free(run);
        ty_timeline_free(predicted);
        scene_clear(&s);
    }
}

/* What stands behind a figure: a measurement, a stack that was judged, one that was not, nothing.
 */
Test(print, how_sure_a_prediction_is)
{
    scene s = scene_of("data parallel");
    ty_stack_judged judged = {.device = (char *)"h100", .rows = 26, .mean_error = 0.0647};
    ty_stack_fitted fitted = {.source = (char *)"rows"};
    ty_stack stack = {.name = (char *)"mine", .judged_count = 1, .judged = &judged};
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
        {TY_MEASURED, 0, true, "times measured on this hardware", 1024, 26},
        {TY_DATASHEET, 0, true,
         "constants of stack mine: 6.5 % off in the mean of 26 published measurements on h100* "
         "that none was fitted to",
         1024, 26},
        {TY_DATASHEET, 0, true,
         "constants of stack mine: 6.5 % off in the mean of 1 published measurement on h100* that "
         "none was fitted to",
         1024, 1},
        {TY_DATASHEET, 0, true, /* rows are of language models */
         "constants of stack mine, fitted to published measurements of which none is of such a "
         "network to judge them by: expect tens of per cent of error",
         0, 26},
        {TY_DATASHEET, 0, false,
         "times from data sheets and a roofline: expect tens of per cent of error", 0, 26},
        {TY_DATASHEET, 1, true,
         "constants of stack mine, fitted to published measurements of which none is left on "
         "a100-sxm4-80gb to judge them by: expect tens of per cent of error",
         1024, 26},
        {TY_CALIBRATED, 1, false, "times calibrated from published curves", 1024, 26},
        {TY_DATASHEET, 1, false,
         "times from data sheets and a roofline: expect tens of per cent of error", 1024, 26},
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
    s.plan->stack = own;
    scene_clear(&s);
    ty_cluster_free(clusters[0]);
    ty_cluster_free(clusters[1]);
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
