/* How long dividing measured layer graphs takes, and what comes out: PipeDream's profiles on the
 * clusters of the reference list, hierarchically and by device, as JSON on stdout. Argument: the
 * folder of the profiles (MODEL/graph.txt). */
#include "ty_planner.h"

#include "timing.h"
#include "ty_memory.h"

#include <stdio.h>

static const char *const models[] = {"vgg16",         "resnet50", "resnet101",   "resnext50",
                                     "squeezenet1_0", "gnmt",     "inception_v3"};

static const struct {
    const char *name;
    uint32_t level_count;
    ty_level levels[2];
} clusters[] = {{"A-1x4", 1, {{4, 10e9}}},
                {"A-3x4", 2, {{4, 10e9}, {3, 1.25e9}}},
                {"A-4x4", 2, {{4, 10e9}, {4, 1.25e9}}},
                {"B-1x8", 1, {{8, 30e9}}},
                {"B-2x8", 2, {{8, 30e9}, {2, 3.125e9}}},
                {"4x8-25G", 2, {{8, 30e9}, {4, 3.125e9}}},
                {"C-4x1", 1, {{4, 5e9}}},
                {"flat16-10G", 1, {{16, 1.25e9}}}};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static ty_status find_states(const ty_layer_graph *graph, ty_states **out, ty_error *error)
{
    ty_layer_graph *merged = NULL;
    uint32_t *owners;
    ty_status status = ty_states_find(graph, 0, out, error);

    if (status != TY_ELIMIT)
        return status;
    owners = ty_alloc(graph->layer_count, sizeof *owners);
    if (owners == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    status = ty_layer_graph_merge(graph, &merged, owners, error);
    if (status == TY_OK)
        status = ty_states_find(merged, 0, out, error);
    ty_layer_graph_free(merged);
    ty_free(owners);
    return status;
}

static ty_status divide(const ty_states *states, size_t cluster, ty_json_writer *w, ty_error *error)
{
    const ty_divide_options o = {.levels = clusters[cluster].levels,
                                 .level_count = clusters[cluster].level_count,
                                 .activation_ratio = 1};
    ty_status status = TY_OK;
    ty_division *levels = NULL, *flat = NULL;
    const double start_s = cpu_s();
    double middle_s;

    TY_CHECK(ty_divide_hierarchical(states, &o, &levels, error), status, cleanup);
    middle_s = cpu_s();
    TY_CHECK(ty_divide_flat(states, &o, &flat, error), status, cleanup);
    ty_json_put_number(w, "pipedream_s", levels->time_s);
    ty_json_put_number(w, "flat_s", flat->time_s);
    ty_json_put_number(w, "data_parallel_s", levels->data_parallel_s);
    ty_json_put_number(w, "pipedream_cpu_s", middle_s - start_s);
    ty_json_put_number(w, "flat_cpu_s", cpu_s() - middle_s);

cleanup:
    ty_division_free(levels);
    ty_division_free(flat);
    return status;
}

static ty_status run_model(const char *folder, const char *model, ty_json_writer *w,
                           ty_error *error)
{
    char path[1024];
    ty_status status = TY_OK;
    ty_layer_graph *graph = NULL;
    ty_states *states = NULL;
    double start_s = cpu_s(), states_s;

    snprintf(path, sizeof path, "%s/%s/graph.txt", folder, model);
    TY_CHECK(ty_layer_graph_read(path, &graph, error), status, cleanup);
    TY_CHECK(find_states(graph, &states, error), status, cleanup);
    states_s = cpu_s() - start_s;
    for (size_t c = 0; c < COUNT(clusters); c++) {
        ty_json_open_flat(w, NULL, '{');
        ty_json_put_string(w, "model", model);
        ty_json_put_string(w, "cluster", clusters[c].name);
        ty_json_put_uint(w, "states", states->ideals->count - 1);
        ty_json_put_number(w, "states_cpu_s", states_s);
        TY_CHECK(divide(states, c, w, error), status, cleanup);
        ty_json_close(w, '}');
    }

cleanup:
    ty_states_free(states);
    ty_layer_graph_free(graph);
    return status;
}

int main(int count, char **words)
{
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    char *json = NULL;
    ty_status status = TY_OK;

    if (count != 2) {
        fputs("usage: bench_partition PROFILES\n", stderr);
        return 2;
    }
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.benchmark/1");
    ty_json_put_string(&w, "name", "partition");
    ty_json_open(&w, "rows", '[');
    for (size_t m = 0; m < COUNT(models); m++)
        TY_CHECK(run_model(words[1], models[m], &w, &error), status, cleanup);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    TY_CHECK(ty_text_take(&text, &json, &error), status, cleanup);
    puts(json);

cleanup:
    if (status != TY_OK)
        fprintf(stderr, "bench_partition: %s\n", error.message);
    ty_free(json);
    ty_text_clear(&text);
    return status == TY_OK ? 0 : 1;
}
