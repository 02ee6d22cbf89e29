#include "layer_profile.h"

#include "published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "pipedream_profiles.json";

enum { NODE, KIND, FORWARD_MS, BACKWARD_MS, ACTIVATION_BYTES, PARAMETER_BYTES, COLUMNS };
#define MOST_LAYERS 100000
#define MOST_MS 1e9
#define MOST_BYTES 1e15
#define BYTES_PER_NUMBER 4

typedef struct timed_layer {
    const char *kind;
    double forward_ms, backward_ms, activation_bytes, parameter_bytes;
    uint32_t built; /* index in the builder; TY_BATCH: the batch itself */
} timed_layer;

typedef struct timed_network {
    const ty_record *record;
    double samples;
    uint32_t count;
    timed_layer *layers; /* by node, from 1 */
    const ty_json *edges;
    uint32_t *inputs; /* [count] of the layer in hand */
    ty_builder *builder;
} timed_network;

/* ---- Reading --------------------------------------------------------------------------------- */

/* Nodes are numbered from 1 in a topological order. */
static ty_status read_layer(const ty_json *row, uint32_t expected, timed_layer *out,
                            ty_error *error)
{
    double *const figures[COLUMNS] = {[FORWARD_MS] = &out->forward_ms,
                                      [BACKWARD_MS] = &out->backward_ms,
                                      [ACTIVATION_BYTES] = &out->activation_bytes,
                                      [PARAMETER_BYTES] = &out->parameter_bytes};
    uint64_t node;
    ty_status status;

    if (ty_json_size(row) != COLUMNS)
        return ty_json_fail(row, error, "node, kind, two times and two sizes");
    TY_CHECK(ty_json_as_uint64(ty_json_at(row, NODE), expected, expected, &node, error), status,
             done);
    TY_CHECK(ty_json_as_string(ty_json_at(row, KIND), &out->kind, error), status, done);
    for (size_t c = FORWARD_MS; c < COLUMNS; c++)
        TY_CHECK(ty_json_as_number(ty_json_at(row, c), 0,
                                   c < ACTIVATION_BYTES ? MOST_MS : MOST_BYTES, figures[c], error),
                 status, done);
done:
    return status;
}

static ty_status read_layers(timed_network *n, ty_error *error)
{
    const ty_json *rows;
    ty_status status = ty_json_array(n->record->json, "layers", 1, MOST_LAYERS, &rows, error);

    if (status != TY_OK)
        return status;
    TY_CHECK(ty_json_array(n->record->json, "edges", 0, MOST_LAYERS, &n->edges, error), status,
             done);
    n->count = (uint32_t)ty_json_size(rows);
    n->layers = ty_alloc((size_t)n->count + 1, sizeof *n->layers);
    n->inputs = ty_alloc(n->count, sizeof *n->inputs);
    if (n->layers == NULL || n->inputs == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 1; i <= n->count; i++)
        TY_CHECK(read_layer(ty_json_at(rows, i - 1), i, &n->layers[i], error), status, done);
done:
    return status;
}

/* ---- Building -------------------------------------------------------------------------------- */

static ty_status find_inputs(timed_network *n, uint32_t node, uint32_t *count, ty_error *error)
{
    uint64_t from = 0, to = 0;
    ty_status status = TY_OK;

    *count = 0;
    for (size_t e = 0; e < ty_json_size(n->edges); e++) {
        const ty_json *edge = ty_json_at(n->edges, e);
        TY_CHECK(ty_json_as_uint64(ty_json_at(edge, 1), 1, n->count, &to, error), status, done);
        if (to != node)
            continue;
        TY_CHECK(ty_json_as_uint64(ty_json_at(edge, 0), 1, node - 1, &from, error), status, done);
        if (n->layers[from].built != TY_BATCH && *count < n->count)
            n->inputs[(*count)++] = n->layers[from].built;
    }
    if (*count == 0) /* reads samples alone */
        n->inputs[(*count)++] = TY_BATCH;
done:
    return status;
}

/* Loading samples, and states that start empty, are no layers. */
static bool is_batch(const timed_layer *l)
{
    bool is_input = strncmp(l->kind, "Input", strlen("Input")) == 0;
    bool is_nothing = !(l->forward_ms > 0 || l->backward_ms > 0 || l->activation_bytes > 0 ||
                        l->parameter_bytes > 0);
    return is_input || is_nothing;
}

/* Outputs that nobody reads: a state's last value, taken out of a pair. */
static bool is_loose(const timed_network *n, uint32_t node)
{
    const timed_layer *l = &n->layers[node];
    uint64_t from = 0;

    for (size_t e = 0; e < ty_json_size(n->edges); e++)
        if (ty_json_as_uint64(ty_json_at(ty_json_at(n->edges, e), 0), 1, n->count, &from, NULL) ==
                TY_OK &&
            from == node)
            return false;
    return node < n->count && !(l->forward_ms > 0 || l->backward_ms > 0 || l->parameter_bytes > 0);
}

static ty_status build_layer(timed_network *n, uint32_t node, ty_error *error)
{
    timed_layer *l = &n->layers[node];
    const double per_sample = 1e-3 / n->samples;
    ty_opaque known = {.output = {1, {1}},
                       .parameter_bytes = (uint64_t)l->parameter_bytes,
                       .measured_forward_s = l->forward_ms * per_sample,
                       .measured_backward_s = l->backward_ms * per_sample,
                       .is_timed = true};
    char name[32];
    uint32_t inputs;
    ty_status status = TY_OK;

    l->built = TY_BATCH;
    if (is_batch(l) || is_loose(n, node))
        return TY_OK;
    known.output.dimensions[0] =
        (uint64_t)fmax(1, l->activation_bytes / BYTES_PER_NUMBER / n->samples);
    TY_CHECK(find_inputs(n, node, &inputs, error), status, done);
    snprintf(name, sizeof name, "node%u", node);
    ty_builder_name_next(n->builder, name);
    l->built = ty_builder_opaque(n->builder, n->inputs, inputs, &known);
done:
    return status;
}

static ty_status build(const ty_record *profile, double samples, ty_workload **out, ty_error *error)
{
    timed_network n = {.record = profile, .samples = samples};
    ty_status status;

    TY_CHECK(read_layers(&n, error), status, cleanup);
    n.builder = ty_builder_new(profile->model, TY_INPUT_REAL, &(ty_shape){1, {1}});
    if (n.builder == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    ty_builder_set_source(n.builder, profile->id);
    for (uint32_t i = 1; i <= n.count; i++)
        TY_CHECK(build_layer(&n, i, error), status, cleanup);
    status = ty_builder_finish(n.builder, out, error);
    n.builder = NULL;
cleanup:
    ty_builder_free(n.builder);
    ty_free(n.inputs);
    ty_free(n.layers);
    return status;
}

/* ---- Finding --------------------------------------------------------------------------------- */

/* The file beside the one in hand; "" where there is none. */
static ty_status find_file(const ty_records *records, char **out, ty_error *error)
{
    const char *slash = records->path != NULL ? strrchr(records->path, '/') : NULL;
    ty_text text = {0};
    ty_status status;

    ty_text_addf(&text, "%.*s%s", slash != NULL ? (int)(slash + 1 - records->path) : 0,
                 records->path != NULL ? records->path : "", file_name);
    status = ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}

ty_status ty_layer_profile_find(const ty_records *records, const ty_record *record,
                                ty_workload **workload, ty_error *error)
{
    ty_published_profile wanted = {0};
    ty_records *profiles = NULL;
    char *path = NULL;
    ty_status status = TY_OK;

    *workload = NULL;
    if (records->path == NULL)
        return TY_OK;
    TY_CHECK(find_file(records, &path, error), status, cleanup);
    if (access(path, R_OK) != 0)
        goto cleanup;
    TY_CHECK(ty_published_profile_of(record, &wanted, error), status, cleanup);
    TY_CHECK(ty_records_load(path, &profiles, error), status, cleanup);
    for (uint32_t i = 0; i < profiles->count && *workload == NULL; i++) {
        const ty_record *p = &profiles->items[i];
        double samples = ty_record_number(p, "batch", "micro");
        if (!(samples > 0))
            samples = wanted.samples;
        if (samples > 0 && strcmp(p->kind, "layer-profile") == 0 &&
            strcmp(p->model, wanted.model) == 0)
            TY_CHECK(build(p, samples, workload, error), status, cleanup);
    }
cleanup:
    ty_records_free(profiles);
    ty_free(path);
    return status;
}
