/* Each plan that does not fit comes with a change that makes it fit: the first one in the order
 * documented for ty_question_suggestion, found here by querying each change by hand. Its line gives
 * the promised result. */
#include "ty_study.h"

#include <criterion/criterion.h>

#include <string.h>

static ty_status answer(const ty_question *question, ty_plan **out, ty_error *error)
{
    ty_question_inputs inputs = {0};
    ty_status status = ty_question_open(question, NULL, &inputs, error);

    if (status == TY_OK)
        status = ty_question_plan(question, &inputs, NULL, out, error);
    ty_question_inputs_clear(&inputs);
    return status;
}

static bool fits(const ty_question *question)
{
    ty_plan *plan = NULL;
    ty_error error = {0};
    const bool has_plan = answer(question, &plan, &error) == TY_OK;

    ty_plan_free(plan);
    return has_plan;
}

/* @param out [out] clear with ty_suggestion_clear */
static void refused(const ty_question *question, ty_suggestion *out)
{
    ty_question_inputs inputs = {0};
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_question_open(question, NULL, &inputs, &error), TY_OK, "%s", error.message);
    cr_assert_eq(ty_question_plan(question, &inputs, NULL, &plan, &error), TY_EINFEASIBLE,
                 "%s %s fits: %s", question->workload, question->fix, error.message);
    cr_assert_eq(ty_question_suggestion(question, &inputs, NULL, out, &error), TY_OK, "%s",
                 error.message);
    ty_question_inputs_clear(&inputs);
}

/* The change, typed as printed, gives the promised step time. */
static void type(const ty_question *question, const ty_suggestion *suggestion)
{
    const ty_question typed = {.workload = question->workload,
                               .cluster = suggestion->cluster,
                               .stack = ty_stack_words(suggestion->plan->stack),
                               .precision =
                                   ty_precision_name(suggestion->plan->workload->precision),
                               .global_batch = suggestion->plan->global_batch,
                               .fix = suggestion->plan->fix,
                               .seed = question->seed};
    ty_plan *plan = NULL;
    ty_error error = {0};

    cr_assert_eq(answer(&typed, &plan, &error), TY_OK, "%s: --fix %s: %s", suggestion->words,
                 typed.fix, error.message);
    cr_expect_float_eq(plan->prediction.step_time_s / suggestion->plan->prediction.step_time_s, 1,
                       1e-9, "%s: %g s, promised %g s", suggestion->words,
                       plan->prediction.step_time_s, suggestion->plan->prediction.step_time_s);
    ty_plan_free(plan);
}

Test(remedies, the_first_that_fits_is_told, .timeout = 300)
{
    static const struct {
        const char *workload, *cluster, *precision, *system;
        const char *pins[4]; /* in the order in which they are dropped */
        uint32_t batch;
        const char *words; /* expected text if no single pin helps */
    } rows[] = {
        {"llama-2-7b", "1x dgx-a100", NULL, NULL, {"zero=0", "tp=1", "dp=8"}, 64, NULL},
        {"llama-2-7b",
         "1x dgx-a100",
         NULL,
         NULL,
         {"recompute=none", "zero=3", "micro_batch=64"},
         512,
         NULL},
        {"llama-2-7b", "2x dgx-a100", NULL, NULL, {"micro_batch=128", "pp=1", "dp=16"}, 2048, NULL},
        {"gpt2-xl", "1x dgx1-v100", NULL, NULL, {"zero=0", "tp=1", "dp=8"}, 64, NULL},
        {"vgg16",
         "host:2 gpu:2 @v100-sxm2-16gb nvlink2 eth10 nics=2",
         NULL,
         NULL,
         {"recompute=none", "pp=1", "staleness=40"},
         0,
         NULL},
        {"gpt3-175b",
         "1x dgx-a100",
         NULL,
         NULL,
         {NULL},
         0,
         "on 64 devices (\"8x dgx-a100\") it fits"},
        {"resnet50",
         "host:1 gpu:8 @v100-sxm2-16gb nvlink2 edr100",
         NULL,
         "horovod",
         {"zero=2"},
         0,
         NULL},
    };

    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char fix[128] = "", words[160] = "";
        ty_suggestion suggestion = {0};
        ty_question question = {.workload = rows[i].workload,
                                .cluster = rows[i].cluster,
                                .precision = rows[i].precision,
                                .system = rows[i].system,
                                .global_batch = rows[i].batch,
                                .seed = 1};
        for (int p = 0; p < 4 && rows[i].pins[p] != NULL; p++)
            snprintf(fix + strlen(fix), sizeof fix - strlen(fix), "%s%s", p > 0 ? "," : "",
                     rows[i].pins[p]);
        question.fix = fix[0] != '\0' ? fix : NULL;
        refused(&question, &suggestion);
        cr_assert_not_null(suggestion.words, "%s --fix %s", question.workload, fix);
        for (int out = 0; out < 4 && rows[i].pins[out] != NULL && words[0] == '\0'; out++) {
            char rest[128] = "";
            ty_question other = question;
            for (int p = 0; p < 4 && rows[i].pins[p] != NULL; p++)
                if (p != out)
                    snprintf(rest + strlen(rest), sizeof rest - strlen(rest), "%s%s",
                             rest[0] != '\0' ? "," : "", rows[i].pins[p]);
            other.fix = rest[0] != '\0' ? rest : NULL;
            if (fits(&other))
                snprintf(words, sizeof words, "without %s it fits", rows[i].pins[out]);
        }
        if (words[0] != '\0')
            cr_expect_str_eq(suggestion.words, words, "%s --fix %s", question.workload, fix);
        else if (rows[i].words != NULL)
            cr_expect_str_eq(suggestion.words, rows[i].words);
        else
            cr_expect_not_null(strchr(suggestion.words, ','), "%s --fix %s: %s", question.workload,
                               fix, suggestion.words); /* several pins */
        type(&question, &suggestion);
        ty_suggestion_clear(&suggestion);
    }
}
