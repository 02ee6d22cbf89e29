/* Asks what a user would, and says how. */
#include "asked.h"

#include "ty_planner.h"
#include "ty_study.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A step is computing, in proportion to the scale, and the rest: each round leaves the rest's share
   of the error. */
#define MOST_ROUNDS 200
#define SCALE_TOLERANCE 1e-6
#define SMALLEST_SCALE 1e-4

void ty_asked_set_scale(ty_asked *asked, const char *stack, double scale)
{
    char number[32];

    ty_format_number(scale, number);
    if (scale < 1 || scale > 1)
        snprintf(asked->stack, sizeof asked->stack, "%s compute_scale=%s", stack, number);
    else
        snprintf(asked->stack, sizeof asked->stack, "%s", stack);
}

ty_status ty_asked_step(const ty_asked *asked, const ty_record *record, double *step_s,
                        bool *is_fitted, ty_error *error)
{
    const ty_question question = {.workload = asked->workload,
                                  .cluster = asked->cluster,
                                  .stack = asked->stack,
                                  .precision = asked->precision,
                                  .fix = asked->fix,
                                  .global_batch = asked->global_batch,
                                  .seed = 1};
    ty_question_inputs inputs = {0};
    char source[64];
    ty_plan *plan = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_question_open(&question, NULL, &inputs, error), status, cleanup);
    TY_CHECK(ty_question_plan(&question, &inputs, NULL, &plan, error), status, cleanup);
    *step_s = plan->prediction.step_time_s;
    snprintf(source, sizeof source, "%.*s", (int)strcspn(record->id, "/"), record->id);
    for (char *c = source; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    *is_fitted = ty_stack_is_fitted(inputs.stack, source, record->model);

cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&inputs);
    return status;
}

ty_status ty_asked_calibrate(ty_asked *asked, const ty_record *record, const char *stack,
                             double measured_s, double *out, ty_error *error)
{
    double scale = 1, step_s;
    bool is_fitted;
    ty_status status;

    for (int round = 0; round < MOST_ROUNDS && scale > SMALLEST_SCALE; round++) {
        ty_asked_set_scale(asked, stack, scale);
        status = ty_asked_step(asked, record, &step_s, &is_fitted, error);
        if (status != TY_OK)
            return status;
        if (fabs(step_s / measured_s - 1) < SCALE_TOLERANCE) {
            *out = scale;
            return TY_OK;
        }
        scale *= measured_s / step_s;
    }
    return ty_fail(error, TY_EINFEASIBLE, "no scale makes a step take %g s", measured_s);
}

ty_status ty_asked_answer(const ty_asked *asked, double step_s, ty_verdict *out, ty_error *error)
{
    const struct {
        const char *option, *value;
    } options[] = {{"--workload", asked->workload},
                   {"--cluster", asked->cluster},
                   {"--stack", asked->stack},
                   {"--precision", asked->precision},
                   {"--fix", asked->fix}};
    const size_t count = sizeof options / sizeof options[0];
    const char *words[2 * (sizeof options / sizeof options[0]) + 6] = {"plan"};
    size_t at = 1;
    char batch[16];

    for (size_t i = 0; i < count; i++) {
        if (options[i].value[0] == '\0')
            continue;
        words[at++] = options[i].option;
        words[at++] = options[i].value;
    }
    snprintf(batch, sizeof batch, "%u", asked->global_batch);
    words[at++] = "--global-batch";
    words[at++] = batch;
    words[at++] = "--no-simulate";
    words[at] = "--json";
    out->is_predicted = true;
    out->answer = step_s;
    out->answer_at = TY_STEP_TIME_AT;
    return ty_verdict_command(words, &out->command, error);
}
