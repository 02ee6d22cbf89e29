/**
 * @file question.h
 * What the words of a question mean. Internal to study/.
 */
#ifndef TY_STUDY_QUESTION_H
#define TY_STUDY_QUESTION_H

#include "ty_study.h"

/** What `fix` and the rest of a question ask the planner for. TY_EINVAL names the key.
 *  @param texts gets storage that must outlive the options */
ty_status ty_plan_options_of(const ty_question *question, const ty_question_inputs *inputs,
                             ty_fix_texts *texts, ty_plan_options *out,
                             ty_error *error) TY_MUST_CHECK;

/** The variant that keeps the question's budget; of a question without one nothing (bits 0).
 * @return as ty_budget_open and ty_deploy */
ty_status ty_question_deploy(const ty_question *question, const ty_question_inputs *inputs,
                             ty_deployment *out, ty_error *error) TY_MUST_CHECK;

typedef enum ty_objective {
    TY_THROUGHPUT,
    TY_TIME_TO_TARGET,
    TY_COST,
    TY_ENERGY,
    TY_OBJECTIVE_COUNT
} ty_objective;
/** "throughput" and the like; NULL is throughput. TY_EINVAL has the nearest. */
ty_status ty_objective_find(const char *name, ty_objective *out, ty_error *error) TY_MUST_CHECK;

/** TY_EINVAL: no workload, or no cluster. */
ty_status ty_question_check_inputs(const ty_question *question, ty_error *error) TY_MUST_CHECK;

/** Whether a question has a sense, as far as that is known without searching: its words, and what
 * is fixed against workload, devices and stack. Only how many devices there are on which hosts
 * counts, not what they can do: a machine can be asked about before it is measured.
 * @return as ty_question_plan; TY_OK where only the search tells */
ty_status ty_question_check(const ty_question *question, const ty_question_inputs *inputs,
                            ty_error *error) TY_MUST_CHECK;

/** The best plan by the planner's search, by the question's system or by its objective. */
ty_status ty_question_find(const ty_question *question, const ty_question_inputs *q,
                           ty_plan_options *how, ty_plan **out, ty_error *error) TY_MUST_CHECK;

static inline bool ty_watch_stops(const ty_watch *watch)
{
    return watch != NULL && watch->should_stop != NULL && watch->should_stop(watch->context);
}
static inline bool ty_watch_stops_now(const ty_watch *watch)
{
    return watch != NULL && watch->should_stop_now != NULL &&
           watch->should_stop_now(watch->context);
}
static inline bool ty_watch_listens(const ty_watch *watch)
{
    return watch != NULL && watch->note != NULL;
}
/** A line to whoever listens. */
void ty_watch_note(const ty_watch *watch, const char *format, ...) TY_PRINTF(2, 3);

#endif
