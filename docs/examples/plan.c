/* Plans with the library, as `trainyard plan` does: plan WORKLOAD CLUSTER [STACK]. */
#include <trainyard/ty_reports.h>
#include <trainyard/ty_study.h>

#include <stdio.h>

int main(int count, char **words)
{
    ty_error error = {0};
    ty_status status = TY_OK;
    ty_plan *plan = NULL;
    ty_text text = {0};
    ty_question question = {0}; /* unset members have the command line's defaults */

    if (count < 3 || count > 4) {
        fprintf(stderr, "usage: plan WORKLOAD CLUSTER [STACK]\n");
        return 2;
    }
    question.workload = words[1];
    question.cluster = words[2];
    question.stack = words[3]; /* NULL: the default */
    TY_CHECK(ty_question_answer(&question, NULL, &plan, &error), status, cleanup);
    printf("%s: %.6g s per step, limited by %s\n", plan->strategy,
           ty_plan_summary(plan)->step_time_s, ty_plan_summary(plan)->limited_by);
    ty_print_plan(plan, plan->cluster, NULL, &text);
    TY_CHECK(ty_text_check(&text, &error), status, cleanup);
    fputs(text.data, stdout);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "plan: %s\n", error.message);
    ty_text_clear(&text);
    ty_plan_free(plan);
    return status == TY_OK ? 0 : 1;
}
