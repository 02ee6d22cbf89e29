/* The planner's options for a question: pins, memory reserve and deployment. */
#include "question.h"

#include <stdlib.h>
#include <string.h>

ty_status ty_question_deploy(const ty_question *question, const ty_question_inputs *inputs,
                             ty_deployment *out, ty_error *error)
{
    ty_budget budget;
    ty_status status;

    *out = (ty_deployment){0};
    if (question->budget == NULL)
        return TY_OK;
    status = ty_budget_open(question->budget, &budget, error);
    return status == TY_OK ? ty_deploy(inputs->workload, &budget, out, error) : status;
}

ty_status ty_question_memory_reserve(const ty_question *question, double *out, ty_error *error)
{
    const char *text = question->memory_reserve;
    char *end;
    double percent;

    *out = TY_USUAL_MEMORY_RESERVE;
    if (text == NULL)
        return TY_OK;
    percent = strtod(text, &end);
    if (end == text || !(percent >= 0 && percent < 100) || (*end != '\0' && strcmp(end, "%") != 0))
        return ty_fail(error, TY_EINVAL,
                       "--memory-reserve: found '%.40s', expected a percentage of usable memory "
                       "from 0%% to 99%%",
                       text);
    *out = percent / 100;
    return TY_OK;
}

/* ---- Options ------------------------------------------------------------------------------- */

/* Without a pinned pipeline, a pinned schedule could be unused without a note. */
static ty_status check_schedule(const ty_question *question, const ty_workload *workload,
                                const ty_plan_options *o, ty_error *error)
{
    const bool is_said = ty_is_pinned(&o->pins, TY_AXIS(PP) | TY_AXIS(REPLICAS) | TY_AXIS(LAYERS));
    const bool needs_several = ty_is_pinned(&o->pins, TY_AXIS(SCHEDULE)) &&
                               ty_schedule_at(o->pins.schedule)->needs_pipeline;

    if (question->system != NULL || !needs_several || is_said ||
        workload->learning == TY_LEARNING_REINFORCEMENT) /* refused below with all others */
        return TY_OK;
    return ty_fail(
        error, TY_EINVAL,
        "--fix schedule=%s: needs a pipeline. Add pp=2 or more, or layers or replicas of "
        "several stages",
        ty_schedule_name(o->pins.schedule));
}

ty_status ty_plan_options_of(const ty_question *question, const ty_question_inputs *inputs,
                             ty_plan_options *out, ty_error *error)
{
    *out = ty_plan_options_default();
    out->stack = inputs->stack;
    out->global_batch = question->global_batch;
    out->seed = question->seed;
    TY_TRY(ty_question_memory_reserve(question, &out->memory_reserve, error));
    if (question->input != NULL)
        TY_TRY(ty_input_read(question->input, &out->input, error));
    out->allow_lossy = question->allow_lossy;
    /* Systems have no simpler alternatives. */
    out->tolerance = question->is_fastest || question->system != NULL ? 0 : TY_USUAL_TOLERANCE;
    if (question->fix != NULL)
        TY_TRY(ty_pins_read(question->fix, ty_cluster_device_count(inputs->cluster), &out->pins,
                            error));
    TY_TRY(check_schedule(question, inputs->workload, out, error));
    /* A question that pins the layout of the devices uses all of them if it can; systems use all
     * given devices. */
    out->idle = question->system != NULL ? TY_IDLE_NEVER
                : ty_is_pinned(&out->pins, TY_AXES_OF_RANKS | TY_AXIS(PP) | TY_AXIS(DP) |
                                               TY_AXIS(REPLICAS) | TY_AXIS(LAYERS))
                    ? TY_IDLE_IF_NEEDED
                    : TY_IDLE_MAY;
    return TY_OK;
}
