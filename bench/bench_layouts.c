/* Cost of the fast evaluation of a layout, its lower bound, and the number of layouts of a
 * question: GPT-3 with a batch of 1,536 on 4,096 devices. Arguments are names of stacks, by default
 * "trainyard" and "megatron". Run from the source tree or with TRAINYARD_DATA set. */
#include "layout_space.h"

#include "timing.h"
#include "ty_base.h"
#include "ty_workloads.h"

#include <stdio.h>

#define TIMES 20000 /* of each bound */

/* Pipelines with TP 8. */
static const struct {
    uint32_t pipeline_size, virtual_stages, zero;
} shapes[] = {{1, 1, 1}, {8, 1, 0}, {8, 12, 0}, {16, 6, 0}, {64, 1, 0}};

static ty_status time_bounds(const search_question *q, ty_json_writer *writer, ty_error *error)
{
    const ty_plan_dimensions ranks = {.tensor_parallel = 8,
                                      .context_parallel = 1,
                                      .expert_parallel = 1,
                                      .sequence_parallel = true,
                                      .recompute = TY_RECOMPUTE_NONE};
    layout_space space = {0};
    layout_cell cell = {0};
    bool has_blocks = false;
    ty_status status = TY_OK;

    TY_CHECK(ty_layout_space_open(q, &space, &has_blocks, error), status, done);
    TY_CHECK(ty_layout_cell_make(&space, &ranks, 1, &cell, error), status, done);
    ty_json_open(writer, "bounds", '[');
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        layout l = {.dimensions = ranks,
                    .pipeline_size = shapes[i].pipeline_size,
                    .replicas = q->device_count / 8 / shapes[i].pipeline_size,
                    .micro_batch_size = 1,
                    .schedule = shapes[i].virtual_stages > 1 ? TY_INTERLEAVED : TY_ONE_F_ONE_B,
                    .bucket_bytes = UINT64_MAX};
        layout_grid_costs grid;
        double start_s, sum_s = 0;

        l.dimensions.zero = shapes[i].zero;
        l.dimensions.virtual_stages = shapes[i].virtual_stages > 1 ? shapes[i].virtual_stages : 0;
        TY_CHECK(ty_layout_grid_make(&space, &ranks, l.pipeline_size, &grid, error), status, done);
        start_s = cpu_s();
        for (int k = 0; k < TIMES; k++) {
            l.bucket_bytes -= 1; /* each call differs from the previous one */
            sum_s += ty_layout_bound_s(&space, &l, &cell, &grid);
        }
        ty_json_open_flat(writer, NULL, '{');
        ty_json_put_uint(writer, "positions", l.pipeline_size);
        ty_json_put_uint(writer, "stages_a_position", shapes[i].virtual_stages);
        ty_json_put_number(writer, "cpu_us", (cpu_s() - start_s) / TIMES * 1e6);
        ty_json_put_number(writer, "bound_s", sum_s / TIMES);
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
done:
    ty_layout_cell_clear(&cell);
    ty_layout_space_clear(&space);
    return status;
}

static ty_status run(const char *stack_name, ty_json_writer *writer, ty_error *error)
{
    ty_plan_options options = ty_plan_options_default();
    search_question question = {0};
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_layouts *layouts = NULL;
    ty_stack *stack = NULL;
    double start_s;
    ty_status status;

    TY_CHECK(ty_workload_open("gpt3-175b", &workload, error), status, cleanup);
    ty_workload_set_precision(workload, TY_PRECISION_BF16);
    TY_CHECK(ty_cluster_open("512x dgx-a100", NULL, &cluster, error), status, cleanup);
    TY_CHECK(ty_stack_open(stack_name, &stack, error), status, cleanup);
    options.stack = stack;
    options.global_batch = 1536;
    TY_CHECK(ty_search_question_make(workload, cluster, NULL, &options, &question, error), status,
             cleanup);
    start_s = cpu_s();
    TY_CHECK(ty_layouts_open(&question, &layouts, error), status, cleanup);
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "stack", stack_name);
    ty_json_put_number(writer, "costs_cpu_ms", (cpu_s() - start_s) * 1e3);
    ty_json_put_uint(writer, "layouts", ty_layouts_count(layouts));
    TY_CHECK(time_bounds(&question, writer, error), status, cleanup);
    ty_json_close(writer, '}');

cleanup:
    ty_layouts_close(layouts);
    ty_search_question_clear(&question);
    ty_stack_free(stack);
    ty_cluster_free(cluster);
    ty_workload_free(workload);
    return status;
}

int main(int argc, char **argv)
{
    static char *usual[] = {"trainyard", "megatron"};
    char **names = argc > 1 ? argv + 1 : usual;
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_on(&text);
    char *json = NULL;
    ty_status status = TY_OK;

    ty_json_open(&writer, NULL, '{');
    ty_json_put_string(&writer, "schema", "trainyard.benchmark/1");
    ty_json_put_string(&writer, "name", "layouts");
    ty_json_open(&writer, "rows", '[');
    for (int i = 0; i < (argc > 1 ? argc - 1 : 2); i++)
        TY_CHECK(run(names[i], &writer, &error), status, cleanup);
    ty_json_close(&writer, ']');
    ty_json_close(&writer, '}');
    TY_CHECK(ty_text_take(&text, &json, &error), status, cleanup);
    puts(json);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "bench_layouts: %s\n", error.message);
    ty_free(json);
    ty_text_clear(&text);
    return status == TY_OK ? 0 : 1;
}
