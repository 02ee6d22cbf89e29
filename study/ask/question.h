/**
 * @file question.h
 * Interprets the texts of a question. Internal to study/.
 */
#ifndef TY_STUDY_QUESTION_H
#define TY_STUDY_QUESTION_H

#include "ty_study.h"

/** Planner options for `fix` and the rest of a question. TY_EINVAL names the key.
 * The question's texts must outlive the options. */
ty_status ty_plan_options_of(const ty_question *question, const ty_question_inputs *inputs,
                             ty_plan_options *out, ty_error *error) TY_MUST_CHECK;

/** The variant within the question's budget; bits 0 for a question without one.
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
/** An objective by its name, "throughput" by default (NULL). TY_EINVAL names the nearest. */
ty_status ty_objective_find(const char *name, ty_objective *out, ty_error *error) TY_MUST_CHECK;

/** TY_EINVAL: no workload, or no cluster. */
ty_status ty_question_check_inputs(const ty_question *question, ty_error *error) TY_MUST_CHECK;

/** Checks a question without a search: its texts, and its pins against workload, devices and
 * framework. Uses only the number of devices per host, not their rates, so it also works before a
 * machine is measured.
 * @return as ty_question_plan; TY_OK if only the search can tell */
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
/** Sends a line to the watch. */
void ty_watch_note(const ty_watch *watch, const char *format, ...) TY_PRINTF(2, 3);

#endif
