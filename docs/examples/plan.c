/* Plans data parallel training through the library: plan WORKLOAD CLUSTER. */
#include <trainyard/ty_planner.h>
#include <trainyard/ty_reports.h>

#include <stdio.h>

int main(int count, char **words)
{
    ty_error error = {0};
    ty_status status = TY_OK;
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;
    ty_plan_options options = ty_plan_options_default();
    ty_text text = {0};

    if (count != 3) {
        fprintf(stderr, "usage: plan WORKLOAD CLUSTER\n");
        return 2;
    }
    options.pipeline_stages = 1;
    TY_CHECK(ty_workload_open(words[1], &workload, &error), status, cleanup);
    TY_CHECK(ty_cluster_open(words[2], NULL, &cluster, &error), status, cleanup);
    TY_CHECK(ty_plan_search(workload, cluster, NULL, &options, &plan, &error), status, cleanup);
    printf("%s: %.6g s a step, limited by %s\n", plan->strategy, plan->prediction.step_time_s,
           plan->prediction.limited_by);
    ty_print_plan(plan, cluster, NULL, &text);
    TY_CHECK(ty_text_check(&text, &error), status, cleanup);
    fputs(text.data, stdout);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "plan: %s\n", error.message);
    ty_text_clear(&text);
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(workload);
    return status == TY_OK ? 0 : 1;
}
