/* How long dividing measured layer graphs takes, and what comes out: PipeDream's profiles on the
 * clusters of the reference list, hierarchically and by device, and Piper's search, as JSON on
 * stdout. Arguments: the folder of the profiles (MODEL/graph.txt) and Piper's bert32a100.json. */
#include "gnmt_shape.h"
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

/* ---- PipeDream --------------------------------------------------------------------------------
 */

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
    status = ty_layer_graph_merge(graph, 0, &merged, owners, error);
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

/* ---- Piper ------------------------------------------------------------------------------------
 */

static ty_status run_piper(const char *name, const ty_piper_input *in, ty_json_writer *w,
                           ty_error *error)
{
    ty_piper_division *division = NULL;
    const double start_s = cpu_s();
    ty_status status = ty_divide_piper(in, &division, error);

    if (status != TY_OK && status != TY_EINFEASIBLE)
        return status;
    ty_json_open_flat(w, NULL, '{');
    ty_json_put_string(w, "model", name);
    ty_json_put_number(w, "memory_bytes", in->memory_bytes);
    ty_json_put_uint(w, "devices", in->devices);
    ty_json_put_uint(w, "micro_batches", in->micro_batches);
    ty_json_put_number(w, "piper_cpu_s", cpu_s() - start_s);
    if (division != NULL) {
        ty_json_put_uint(w, "ideals", division->ideal_count);
        ty_json_put_uint(w, "ideal_pairs", division->pair_count);
        ty_json_put_uint(w, "stages", division->stage_count);
        ty_json_put_number(w, "time_per_micro_batch_s", division->time_s);
    } else {
        ty_json_put_string(w, "answer", "none fits");
    }
    ty_json_close(w, '}');
    ty_piper_division_free(division);
    return TY_OK;
}

static ty_status run_bert(const char *path, ty_json_writer *w, ty_error *error)
{
    static const struct {
        double gib;
        uint32_t devices, micro_batches;
    } rows[] = {{8, 8, 480},   {8, 64, 480},   {8, 512, 480}, {2, 64, 480},
                {80, 64, 480}, {8, 512, 1920}, {1, 64, 480}};
    ty_status status = TY_OK;
    ty_piper_input *in = NULL;

    TY_CHECK(ty_piper_read(path, &in, error), status, cleanup);
    in->bandwidth_bytes_per_s = 25.0 * 1073741824; /* as the reference list was made */
    for (size_t i = 0; i < COUNT(rows); i++) {
        in->memory_bytes = rows[i].gib * 1073741824;
        in->devices = rows[i].devices;
        in->micro_batches = rows[i].micro_batches;
        TY_CHECK(run_piper("bert32", in, w, error), status, cleanup);
    }

cleanup:
    ty_piper_input_free(in);
    return status;
}

/* An operator of the GNMT graph: those that feed several others or join them are cheap, every
 * fourth or so is an LSTM. Round figures; the graph is what is measured here. */
static ty_piper_variant gnmt_variant(uint32_t layer, bool is_recomputed, double *zeros)
{
    const bool is_lstm = layer < 29 ? layer % 4 == 3 || layer == 1 || layer == 4
                                    : layer == 33 || layer == 39 || (layer > 40 && layer % 6 == 2);
    const bool is_matrix = layer == 0 || layer == 30 || layer == GNMT_LAYERS - 1;
    const double activation_bytes = is_lstm ? 14e6 : 13e6;
    ty_piper_variant v = {.name = is_recomputed ? "activation recomp" : "vanilla",
                          .time_s = is_lstm     ? 20e-3
                                    : is_matrix ? 25e-3
                                                : 0.3e-3,
                          .parameter_bytes = is_lstm     ? 34e6
                                             : is_matrix ? 132e6
                                                         : 0,
                          .forward_bytes = zeros,
                          .backward_bytes = zeros};

    v.memory_bytes = 2 * v.parameter_bytes + (is_recomputed ? 0.91 * activation_bytes : 0);
    v.memory_bytes_per_micro_batch = is_recomputed ? 0.09 * activation_bytes : activation_bytes;
    v.time_s *= is_recomputed ? 4.0 / 3 : 1;
    return v;
}

static ty_status run_gnmt(ty_json_writer *w, ty_error *error)
{
    static const uint32_t devices[] = {8, 64, 256};
    static double zeros[GNMT_MOST_EDGES], edge_bytes[GNMT_MOST_EDGES];
    static ty_piper_degree degrees[GNMT_LAYERS];
    static ty_piper_layer layers[GNMT_LAYERS];
    static ty_graph_edge edges[GNMT_MOST_EDGES];
    ty_status status = TY_OK;
    ty_piper_input in = {.memory_bytes = 8.0 * 1073741824,
                         .micro_batches = 256,
                         .bandwidth_bytes_per_s = 25e9,
                         .layer_count = GNMT_LAYERS,
                         .layers = layers,
                         .edges = edges,
                         .edge_bytes = edge_bytes};

    in.edge_count = gnmt_edges(edges);
    for (uint32_t e = 0; e < in.edge_count; e++)
        edge_bytes[e] = 13e6;
    for (uint32_t v = 0; v < GNMT_LAYERS; v++) {
        degrees[v] = (ty_piper_degree){
            .tensor = 1,
            .variant_count = 2,
            .variants = {gnmt_variant(v, false, zeros), gnmt_variant(v, true, zeros)}};
        layers[v] =
            (ty_piper_layer){.id = v, .name = "", .degree_count = 1, .degrees = &degrees[v]};
    }
    for (size_t i = 0; i < COUNT(devices); i++) {
        in.devices = devices[i];
        TY_CHECK(run_piper("gnmt-shaped", &in, w, error), status, done);
    }
done:
    return status;
}

int main(int count, char **words)
{
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    char *json = NULL;
    ty_status status = TY_OK;

    if (count != 3) {
        fputs("usage: bench_partition PROFILES bert32a100.json\n", stderr);
        return 2;
    }
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.benchmark/1");
    ty_json_put_string(&w, "name", "partition");
    ty_json_open(&w, "rows", '[');
    for (size_t m = 0; m < COUNT(models); m++)
        TY_CHECK(run_model(words[1], models[m], &w, &error), status, cleanup);
    TY_CHECK(run_bert(words[2], &w, &error), status, cleanup);
    TY_CHECK(run_gnmt(&w, &error), status, cleanup);
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
