/* Time of planning: the named workloads, or every zoo entry, on three clusters of 16 devices,
 * without simulation, as JSON on stdout. Run from the source tree or with TRAINYARD_DATA set. */
#include "ty_planner.h"
#include "ty_workloads.h"

#include "timing.h"
#include "ty_base.h"

#include <stdio.h>
#include <stdlib.h>

#define RUNS 20 /* at most; the median is printed */
#define SECONDS_PER_ROW 0.5

static const char *const clusters[] = {"2x dgx-a100", "4x p100-server", "2x dgx1-v100"};

/* Median of several searches, and the plan of the last; NULL if none fits. */
static ty_status measure(const ty_workload *workload, const ty_cluster *cluster, double *median_s,
                         ty_plan **out, ty_error *error)
{
    ty_plan_options options = ty_plan_options_default();
    double seconds[RUNS], spent_s = 0;
    int runs = 0;
    ty_plan *plan = NULL;

    options.global_batch = workload->global_batch; /* at least one sample per device */
    if (options.global_batch < ty_cluster_device_count(cluster))
        options.global_batch = ty_cluster_device_count(cluster);
    for (; runs < RUNS && (runs < 3 || spent_s < SECONDS_PER_ROW); runs++) {
        const double start_s = cpu_s();
        ty_status status;
        ty_plan_free(plan);
        plan = NULL;
        status = ty_plan_search(workload, cluster, NULL, &options, &plan, error);
        if (status != TY_OK && status != TY_EINFEASIBLE)
            return status;
        seconds[runs] = cpu_s() - start_s;
        spent_s += seconds[runs];
    }
    *median_s = median(seconds, (size_t)runs);
    *out = plan;
    return TY_OK;
}

static ty_status run(const char *workload_name, const char *cluster_name, ty_json_writer *writer,
                     ty_error *error)
{
    ty_status status = TY_OK;
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;
    double median_s;

    TY_CHECK(ty_workload_open(workload_name, &workload, error), status, cleanup);
    TY_CHECK(ty_cluster_open(cluster_name, NULL, &cluster, error), status, cleanup);
    TY_CHECK(measure(workload, cluster, &median_s, &plan, error), status, cleanup);
    ty_json_open_flat(writer, NULL, '{');
    ty_json_put_string(writer, "workload", workload_name);
    ty_json_put_string(writer, "cluster", cluster_name);
    ty_json_put_number(writer, "cpu_ms", median_s * 1e3);
    if (plan == NULL) {
        ty_json_put_string(writer, "strategy", "none fits");
    } else {
        ty_json_put_uint(writer, "global_batch", plan->global_batch);
        ty_json_put_uint(writer, "candidates", plan->candidate_count);
        ty_json_put_string(writer, "strategy", plan->strategy);
        ty_json_put_number(writer, "step_time_s", plan->prediction.step_time_s);
    }
    ty_json_close(writer, '}');

cleanup:
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    ty_workload_free(workload);
    return status;
}

int main(int argc, char **argv)
{
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char **names = NULL, *json = NULL;
    uint32_t count = 0;
    ty_status status = TY_OK;

    TY_CHECK(ty_zoo_list(&names, &count, &error), status, cleanup);
    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", "trainyard.benchmark/1");
    ty_json_put_string(&writer, "name", "plan");
    ty_json_open(&writer, "rows", '[');
    for (uint32_t i = 0; i < (argc > 1 ? (uint32_t)argc - 1 : count); i++)
        for (size_t c = 0; c < sizeof clusters / sizeof *clusters; c++)
            TY_CHECK(run(argc > 1 ? argv[i + 1] : names[i], clusters[c], &writer, &error), status,
                     cleanup);
    ty_json_close(&writer, ']');
    ty_json_close(&writer, '}');
    TY_CHECK(ty_text_take(&text, &json, &error), status, cleanup);
    puts(json);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "bench_plan: %s\n", error.message);
    for (uint32_t i = 0; i < count; i++)
        ty_free(names[i]);
    ty_free(names);
    ty_free(json);
    ty_text_clear(&text);
    return status == TY_OK ? 0 : 1;
}
