/* How long simulations take: rows of a workload on a cluster, as JSON on stdout. Run from the
 * source tree or with TRAINYARD_DATA set. */
#include "ty_planner.h"
#include "ty_simulate.h"
#include "ty_workloads.h"

#include "ty_memory.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#define BUCKET_BYTES 25000000u /* PyTorch DDP's usual bucket: 25 MB */

/* Ascending in memory: the largest child so far is all that the system tells. */
static const struct row {
    const char *workload, *cluster;
    uint32_t stages, replicas, micro_batches, micro_batch_size, steps;
    ty_resolution resolution;
} rows[] = {
    {"vgg16", "4x p100-server", 1, 16, 16, 32, 1, TY_FLOW},
    {"vgg16", "4x p100-server", 4, 4, 32, 8, 1, TY_FLOW},
    {"vgg16", "4x p100-server", 1, 16, 16, 32, 1, TY_CHUNK},
    {"vgg16", "64x dgx-a100", 4, 128, 1024, 4, 3, TY_FLOW},
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static double children_s(const struct rusage *use)
{
    return (double)(use->ru_utime.tv_sec + use->ru_stime.tv_sec) +
           (double)(use->ru_utime.tv_usec + use->ru_stime.tv_usec) * 1e-6;
}

/* Stages of about equal flop, cut where one tensor crosses; each replica on the next device. */
static ty_status make_stages(ty_plan *plan, const struct row *row, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_workload *w = plan->workload;
    uint32_t *cuts = NULL, cut_count = 0, next = 0, device = 0;
    double total = 0.0, behind = 0.0;

    TY_CHECK(ty_workload_cuts(w, &cuts, &cut_count, error), status, cleanup);
    for (uint32_t l = 0; l < w->layer_count; l++)
        total += w->layers[l].forward_flop;
    plan->stages = ty_alloc(row->stages, sizeof *plan->stages);
    plan->stage_count = row->stages;
    for (uint32_t s = 0; s < row->stages; s++) {
        ty_plan_stage *stage = &plan->stages[s];
        uint32_t end = w->layer_count;
        stage->first_layer =
            s == 0 ? 0 : plan->stages[s - 1].first_layer + plan->stages[s - 1].layer_count;
        uint32_t layer = stage->first_layer;
        while (s + 1 < row->stages && next < cut_count) {
            end = cuts[next++];
            for (; layer < end; layer++)
                behind += w->layers[layer].forward_flop;
            if (behind >= total * (s + 1) / row->stages)
                break;
        }
        stage->layer_count = end - stage->first_layer;
        stage->replicas = row->replicas;
        stage->devices = ty_alloc(row->replicas, sizeof *stage->devices);
        for (uint32_t q = 0; q < row->replicas; q++)
            stage->devices[q] = device++;
    }

cleanup:
    ty_free(cuts);
    return status;
}

/* Buckets of each stage, from its last layer to its first. */
static void make_buckets(ty_plan *plan)
{
    plan->buckets = ty_alloc(plan->workload->layer_count, sizeof *plan->buckets);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint32_t end = plan->stages[s].first_layer + plan->stages[s].layer_count;
        for (uint32_t first = end; first-- > plan->stages[s].first_layer;) {
            ty_bucket bucket = {.stage = s,
                                .first_layer = first,
                                .layer_count = end - first,
                                .tied_stage = TY_NO_STAGE,
                                .algorithm = TY_RING};
            bucket.gradient_bytes = ty_bucket_gradient_bytes(plan, &bucket);
            const bool is_last = first == plan->stages[s].first_layer;
            if (bucket.gradient_bytes < (is_last ? 1 : BUCKET_BYTES))
                continue;
            plan->buckets[plan->bucket_count++] = bucket;
            end = first;
        }
    }
}

static ty_status make_plan(const struct row *row, const ty_cluster *cluster, ty_plan **out,
                           ty_error *error)
{
    ty_status status = TY_OK;
    ty_plan *plan = ty_alloc(1, sizeof *plan);

    TY_CHECK(ty_workload_open(row->workload, &plan->workload, error), status, cleanup);
    TY_CHECK(ty_workload_digest(plan->workload, &plan->workload_digest, error), status, cleanup);
    TY_CHECK(ty_cluster_digest(cluster, &plan->cluster_digest, error), status, cleanup);
    plan->cluster_name = ty_strdup(row->cluster);
    plan->strategy = ty_strdup("benchmark");
    plan->schedule = TY_ONE_F_ONE_B;
    plan->micro_batches = row->micro_batches;
    plan->micro_batch_size = row->micro_batch_size;
    plan->global_batch = row->micro_batches * row->micro_batch_size;
    plan->optimizer = plan->workload->optimizer;
    TY_CHECK(make_stages(plan, row, error), status, cleanup);
    make_buckets(plan);
    *out = plan;
    plan = NULL;

cleanup:
    ty_plan_free(plan);
    return status;
}

/* ---- Measuring ----------------------------------------------------------------------------- */

static ty_status measure(const struct row *row, const ty_plan *plan, const ty_cluster *cluster,
                         ty_json_writer *writer, ty_error *error)
{
    ty_status status = TY_OK;
    ty_program *program = NULL;
    ty_costs *costs = NULL;
    ty_timeline *timeline = NULL;
    struct rusage before, after;
    ty_simulate_options options = ty_simulate_options_default();

    options.steps = row->steps;
    options.resolution = row->resolution;
    TY_CHECK(ty_plan_lower(plan, &program, error), status, cleanup);
    TY_CHECK(ty_costs_of_program(plan, program, cluster, &costs, error), status, cleanup);
    getrusage(RUSAGE_CHILDREN, &before);
    const double start_s = now_s();
    TY_CHECK(ty_simulate(plan, program, costs, cluster, &options, &timeline, error), status,
             cleanup);
    const double wall_s = now_s() - start_s;
    getrusage(RUSAGE_CHILDREN, &after);

    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "workload", row->workload);
    ty_json_put_string(writer, "cluster", row->cluster);
    ty_json_put_uint(writer, "ranks", ty_plan_rank_count(plan));
    ty_json_put_uint(writer, "stages", plan->stage_count);
    ty_json_put_uint(writer, "steps", row->steps);
    ty_json_put_string(writer, "resolution", row->resolution == TY_FLOW ? "flow" : "chunk");
    ty_json_put_uint(writer, "events", timeline->event_count);
    ty_json_put_number(writer, "wall_s", wall_s);
    ty_json_put_number(writer, "child_cpu_s", children_s(&after) - children_s(&before));
    ty_json_put_uint(writer, "child_peak_memory_bytes", (uint64_t)after.ru_maxrss * 1024);
    ty_json_put_number(writer, "simulated_s", timeline->events[timeline->event_count - 1].end_s);
    ty_json_close(writer, '}');

cleanup:
    ty_timeline_free(timeline);
    ty_costs_free(costs);
    ty_program_free(program);
    return status;
}

static ty_status run(const struct row *row, ty_json_writer *writer, ty_error *error)
{
    ty_status status = TY_OK;
    ty_cluster *cluster = NULL;
    ty_plan *plan = NULL;

    TY_CHECK(ty_cluster_open(row->cluster, NULL, &cluster, error), status, cleanup);
    TY_CHECK(make_plan(row, cluster, &plan, error), status, cleanup);
    TY_CHECK(measure(row, plan, cluster, writer, error), status, cleanup);

cleanup:
    ty_plan_free(plan);
    ty_cluster_free(cluster);
    return status;
}

int main(void)
{
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *json = NULL;

    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", "trainyard.benchmark/1");
    ty_json_put_string(&writer, "name", "simulate");
    ty_json_open(&writer, "rows", '[');
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (run(&rows[i], &writer, &error) != TY_OK) {
            fprintf(stderr, "bench_simulate: row %zu: %s\n", i, error.message);
            ty_text_clear(&text);
            return 1;
        }
    }
    ty_json_close(&writer, ']');
    ty_json_close(&writer, '}');
    if (ty_text_take(&text, &json, &error) != TY_OK) {
        fprintf(stderr, "bench_simulate: %s\n", error.message);
        return 1;
    }
    puts(json);
    ty_free(json);
    return 0;
}
