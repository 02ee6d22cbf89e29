/* PipeDream's optimizer on its own profiles: every objective of the reference list, and plans that
 * must be matched or beaten. Skipped if ../shared (or the folder in TY_SHARED) is absent. */
#include "ty_base.h"
#include "ty_json.h"
#include "ty_planner.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TOLERANCE 1e-9

static const struct {
    const char *name;
    bool is_merged; /* first merged by the branch compressor, as for the reference */
} models[] = {{"vgg16", false},      {"resnet50", false},      {"resnet101", false},
              {"resnext50", false},  {"squeezenet1_0", false}, {"gnmt", false},
              {"inception_v3", true}};
#define MODELS (sizeof models / sizeof *models)

/* ---- Inputs -----------------------------------------------------------------------------------
 */

typedef struct shared_path {
    char text[512];
} shared_path;

/* A file of the shared data; skips the test if it is absent. */
static shared_path shared(const char *folder, const char *file)
{
    const char *root = getenv("TY_SHARED");
    shared_path path;

    if (root != NULL)
        snprintf(path.text, sizeof path.text, "%s/data/%s%s", root, folder, file);
    else
        snprintf(path.text, sizeof path.text, TY_SHARED_DATA "/%s%s", folder, file);
    if (!ty_file_exists(path.text))
        cr_skip_test("%s is absent", path.text);
    return path;
}

static ty_states *states_of(size_t model)
{
    char folder[128];
    ty_layer_graph *graph = NULL, *merged = NULL;
    ty_states *states = NULL;
    ty_error error = {0};

    snprintf(folder, sizeof folder, "pipedream-profiles/%s/", models[model].name);
    cr_assert_eq(ty_layer_graph_read(shared(folder, "graph.txt").text, &graph, &error), TY_OK, "%s",
                 error.message);
    if (models[model].is_merged) {
        uint32_t *owners = ty_alloc(graph->layer_count, sizeof *owners);
        cr_assert_eq(ty_layer_graph_merge(graph, &merged, owners, &error), TY_OK, "%s",
                     error.message);
        ty_free(owners);
    }
    cr_assert_eq(ty_states_find(merged != NULL ? merged : graph, &states, &error), TY_OK, "%s",
                 error.message);
    ty_layer_graph_free(merged);
    ty_layer_graph_free(graph);
    return states;
}

static ty_json_document *load_reference(const char *folder)
{
    ty_json_document *document = NULL;
    ty_error error = {0};

    cr_assert_eq(ty_json_load(shared(folder, "reference.json").text, &document, &error), TY_OK,
                 "%s", error.message);
    return document;
}

static double number(const ty_json *object, const char *key)
{
    double value = NAN;
    ty_error error = {0};
    cr_assert_eq(ty_json_number(object, key, -HUGE_VAL, HUGE_VAL, &value, &error), TY_OK, "%s",
                 error.message);
    return value;
}

static const char *text(const ty_json *object, const char *key)
{
    const char *value = NULL;
    cr_assert_eq(ty_json_string(object, key, &value, NULL), TY_OK);
    return value;
}

static uint32_t read_levels(const ty_json *root, const char *cluster, ty_level *levels)
{
    const ty_json *clusters, *object, *units, *bandwidths;
    cr_assert_eq(ty_json_object(root, "clusters", &clusters, NULL), TY_OK);
    cr_assert_eq(ty_json_object(clusters, cluster, &object, NULL), TY_OK);
    cr_assert_eq(ty_json_array(object, "gpus", 1, 3, &units, NULL), TY_OK);
    cr_assert_eq(ty_json_array(object, "bytes_per_s", 1, 3, &bandwidths, NULL), TY_OK);
    for (uint32_t l = 0; l < ty_json_size(units); l++) {
        cr_assert_eq(ty_json_as_uint32(ty_json_at(units, l), 1, 64, &levels[l].units, NULL), TY_OK);
        cr_assert_eq(ty_json_as_number(ty_json_at(bandwidths, l), 0, HUGE_VAL,
                                       &levels[l].bandwidth_bytes_per_s, NULL),
                     TY_OK);
    }
    return (uint32_t)ty_json_size(units);
}

static ty_divide_options options_of(const char *option)
{
    ty_divide_options o = {.activation_ratio = 1};
    if (strcmp(option, "nocomm") == 0)
        o.activation_ratio = 0;
    else if (strcmp(option, "acr10") == 0)
        o.activation_ratio = 10;
    else if (strcmp(option, "acr1-mem16") == 0)
        o.memory_bytes = 16e9;
    else if (strcmp(option, "acr1-straight") == 0)
        o.is_straight = true;
    else if (strcmp(option, "acr1-fewer") == 0)
        o.may_use_fewer = true;
    else
        cr_assert_str_eq(option, "acr1");
    return o;
}

static void check_near(double found, double wanted, const char *name)
{
    cr_assert(fabs(found - wanted) <= TOLERANCE * wanted, "%s: %.17g, not %.17g", name, found,
              wanted);
}

/* ---- PipeDream --------------------------------------------------------------------------------
 */

static bool is_equal(const ty_division *a, const ty_division *b)
{
    return a->time_s == b->time_s && a->part_count == b->part_count &&
           memcmp(a->parts, b->parts, a->part_count * sizeof *a->parts) == 0;
}

/* @param is_thorough also repeats the query, and queries the flat partition */
static void check_row(const ty_json *root, const ty_json *row, const ty_states *states,
                      bool is_thorough)
{
    ty_level levels[3];
    ty_divide_options o = options_of(text(row, "option"));
    ty_division *found = NULL, *again = NULL, *flat = NULL;
    ty_error error = {0};
    char name[128];
    double single_s = number(row, "single_gpu_s");

    snprintf(name, sizeof name, "%s on %s, %s", text(row, "model"), text(row, "cluster"),
             text(row, "option"));
    o.levels = levels;
    o.level_count = read_levels(root, text(row, "cluster"), levels);
    cr_assert_eq(states->count - 1, (uint32_t)number(row, "states"), "%s", name);
    cr_assert_eq(ty_divide(states, &o, &found, &error), TY_OK, "%s: %s", name, error.message);
    check_near(found->time_s, number(row, "time_per_minibatch_s"), name);
    check_near(found->single_device_s, single_s, name);
    /* Printed with six decimals. */
    cr_assert_leq(fabs(single_s / found->data_parallel_s - number(row, "dp_speedup_vs_1gpu")),
                  1e-6 + 1e-9 * single_s / found->data_parallel_s, "%s", name);
    if (!is_thorough)
        goto cleanup;
    cr_assert_eq(ty_divide(states, &o, &again, &error), TY_OK);
    cr_assert(is_equal(found, again), "%s: another plan for the same question", name);
    o.is_flat = true;
    cr_assert_eq(ty_divide(states, &o, &flat, &error), TY_OK, "%s: %s", name, error.message);
    cr_assert_leq(flat->time_s, found->time_s, "%s", name);
cleanup:
    ty_division_free(found);
    ty_division_free(again);
    ty_division_free(flat);
}

Test(division_reference, every_objective_of_pipedream)
{
    ty_json_document *document = load_reference("pipedream-profiles/");
    const ty_json *root = ty_json_root(document), *results;
    uint32_t checked = 0;

    cr_assert_eq(ty_json_array(root, "results", 1, 10000, &results, NULL), TY_OK);
    for (size_t m = 0; m < MODELS; m++) {
        ty_states *states = states_of(m);
        for (size_t i = 0; i < ty_json_size(results); i++)
            if (strcmp(text(ty_json_at(results, i), "model"), models[m].name) == 0) {
                check_row(root, ty_json_at(results, i), states, checked % 8 == 0);
                checked++;
            }
        ty_states_free(states);
    }
    cr_assert_eq(checked, ty_json_size(results), "%u of %zu rows", checked, ty_json_size(results));
    fprintf(stderr, "division_reference: %u objectives of PipeDream's optimizer\n", checked);
    ty_json_free(document);
}

/* The published 15-1 partition of VGG-16, and better ones. */
Test(division_reference, replicas_on_devices_beat_servers)
{
    static const struct {
        ty_level levels[2];
        double published_s, servers_s;
    } rows[] = {{{{4, 10e9}, {4, 1.25e9}}, 0.05588, 0.067133996933},
                {{{8, 30e9}, {2, 3.125e9}}, 0.04885, 0.06576668672}};
    ty_states *states;

    states = states_of(0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        ty_divide_options o = {.levels = rows[i].levels, .level_count = 2, .activation_ratio = 1};
        ty_division *servers = NULL, *devices = NULL;
        cr_assert_eq(ty_divide(states, &o, &servers, NULL), TY_OK);
        o.is_flat = true;
        cr_assert_eq(ty_divide(states, &o, &devices, NULL), TY_OK);
        check_near(servers->time_s, rows[i].servers_s, "servers");
        cr_assert_leq(devices->time_s, rows[i].published_s);
        ty_division_free(servers);
        ty_division_free(devices);
    }
    ty_states_free(states);
}
