/* Piper's input files. */
#include "ty_json.h"
#include "ty_partition.h"

#include <float.h>
#include <math.h>

#define MOST_LAYERS 20000u

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "piper: out of memory");
}

static ty_status find_layer(const ty_piper_input *in, const ty_json *value, uint64_t id,
                            uint32_t *out, ty_error *error)
{
    for (uint32_t v = 0; v < in->layer_count; v++)
        if (in->layers[v].id == id) {
            *out = v;
            return TY_OK;
        }
    return ty_json_fail(value, error, "the id of a node");
}

/* ---- Edges ----------------------------------------------------------------------------------- */

static ty_status read_edge(ty_piper_input *in, const ty_json *object, uint32_t e, ty_error *error)
{
    ty_status status = TY_OK;
    uint64_t from, to;

    TY_CHECK(ty_json_uint64(object, "sourceId", 0, UINT32_MAX, &from, error), status, done);
    TY_CHECK(ty_json_uint64(object, "destId", 0, UINT32_MAX, &to, error), status, done);
    TY_CHECK(ty_json_number(object, "communicationCost", 0, HUGE_VAL, &in->edge_bytes[e], error),
             status, done);
    TY_CHECK(ty_json_end(object, error), status, done);
    TY_CHECK(find_layer(in, object, from, &in->edges[e].from, error), status, done);
    TY_CHECK(find_layer(in, object, to, &in->edges[e].to, error), status, done);
    for (uint32_t other = 0; other < e; other++)
        if (in->edges[other].from == in->edges[e].from && in->edges[other].to == in->edges[e].to)
            return ty_json_fail(object, error, "each edge once");
done:
    return status;
}

static ty_status read_edges(ty_piper_input *in, const ty_json *root, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *edges;

    TY_CHECK(ty_json_array(root, "edges", 0, MOST_LAYERS * 4, &edges, error), status, done);
    in->edge_count = (uint32_t)ty_json_size(edges);
    in->edges = ty_arena_alloc(in->arena, (size_t)in->edge_count + 1, sizeof *in->edges);
    in->edge_bytes = ty_arena_alloc(in->arena, (size_t)in->edge_count + 1, sizeof(double));
    if (in->edges == NULL || in->edge_bytes == NULL)
        return out_of_memory(error);
    for (uint32_t e = 0; e < in->edge_count; e++)
        TY_CHECK(read_edge(in, ty_json_at(edges, e), e, error), status, done);
done:
    return status;
}

/* ---- Variants -------------------------------------------------------------------------------- */

/* {"5": bytes, ...}: one figure for every edge that comes in from, or goes out to, a node. */
static ty_status read_sync(ty_piper_input *in, uint32_t layer, const ty_json *variant, bool is_in,
                           double *bytes, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *object;
    uint32_t found = 0, wanted = 0;

    TY_CHECK(ty_json_object(variant, is_in ? "syncTimeFw" : "syncTimeBw", &object, error), status,
             done);
    for (uint32_t e = 0; e < in->edge_count; e++) {
        const uint32_t self = is_in ? in->edges[e].to : in->edges[e].from;
        const uint32_t other = is_in ? in->edges[e].from : in->edges[e].to;
        char key[24];
        if (self != layer)
            continue;
        snprintf(key, sizeof key, "%llu", (unsigned long long)in->layers[other].id);
        TY_CHECK(ty_json_number(object, key, 0, HUGE_VAL, &bytes[e], error), status, done);
        wanted++;
    }
    found = (uint32_t)ty_json_size(object);
    if (found != wanted)
        status = ty_json_fail(object, error, "one figure for each of %u edges", wanted);
done:
    return status;
}

static ty_status read_variant(ty_piper_input *in, uint32_t layer, const ty_json *object,
                              ty_piper_variant *out, ty_error *error)
{
    const struct {
        const char *key;
        double *out;
    } rows[] = {{"timePerSample", &out->time_s},
                {"parameterSize", &out->parameter_bytes},
                {"memoryUsageA", &out->memory_bytes_per_micro_batch},
                {"memoryUsageB", &out->memory_bytes}};
    ty_status status = TY_OK;
    const char *name;

    TY_CHECK(ty_json_string(object, "id", &name, error), status, done);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        TY_CHECK(ty_json_number(object, rows[i].key, 0, DBL_MAX, rows[i].out, error), status, done);
    out->name = ty_arena_strdup(in->arena, name);
    out->forward_bytes = ty_arena_alloc(in->arena, (size_t)in->edge_count + 1, sizeof(double));
    out->backward_bytes = ty_arena_alloc(in->arena, (size_t)in->edge_count + 1, sizeof(double));
    if (out->name == NULL || out->forward_bytes == NULL || out->backward_bytes == NULL)
        return out_of_memory(error);
    TY_CHECK(read_sync(in, layer, object, true, out->forward_bytes, error), status, done);
    TY_CHECK(read_sync(in, layer, object, false, out->backward_bytes, error), status, done);
    status = ty_json_end(object, error);
done:
    return status;
}

static ty_status read_degree(ty_piper_input *in, uint32_t layer, const ty_json *variants,
                             ty_piper_degree *out, ty_error *error)
{
    ty_status status = TY_OK;
    uint64_t tensor;

    if (ty_parse_uint(ty_json_key(variants), 1, TY_MOST_DEVICES, &tensor, NULL) != TY_OK)
        return ty_json_fail(variants, error, "a number of devices from 1 to %d as its name",
                            TY_MOST_DEVICES);
    if (!ty_json_is_array(variants) || ty_json_size(variants) < 1 || ty_json_size(variants) > 2)
        return ty_json_fail(variants, error, "one or two ways to run the node");
    out->tensor = (uint32_t)tensor;
    out->variant_count = (uint32_t)ty_json_size(variants);
    for (uint32_t i = 0; i < out->variant_count; i++)
        TY_CHECK(read_variant(in, layer, ty_json_at(variants, i), &out->variants[i], error), status,
                 done);
done:
    return status;
}

static ty_status read_degrees(ty_piper_input *in, uint32_t v, const ty_json *node, ty_error *error)
{
    ty_piper_layer *layer = &in->layers[v];
    ty_status status = TY_OK;
    const ty_json *object;

    TY_CHECK(ty_json_object(node, "TMPCs", &object, error), status, done);
    if (ty_json_size(object) == 0 || ty_json_size(object) > TY_MOST_DEVICES)
        return ty_json_fail(object, error, "a number of devices at least");
    layer->degree_count = (uint32_t)ty_json_size(object);
    layer->degrees = ty_arena_alloc(in->arena, layer->degree_count, sizeof *layer->degrees);
    if (layer->degrees == NULL)
        return out_of_memory(error);
    for (uint32_t i = 0; i < layer->degree_count; i++)
        TY_CHECK(read_degree(in, v, ty_json_at(object, i), &layer->degrees[i], error), status,
                 done);
    status = ty_json_end(node, error);
done:
    return status;
}

/* ---- Nodes ----------------------------------------------------------------------------------- */

static ty_status read_names(ty_piper_input *in, const ty_json *nodes, ty_error *error)
{
    ty_status status = TY_OK;

    in->layer_count = (uint32_t)ty_json_size(nodes);
    in->layers = ty_arena_alloc(in->arena, in->layer_count, sizeof *in->layers);
    if (in->layers == NULL)
        return out_of_memory(error);
    for (uint32_t v = 0; v < in->layer_count; v++) {
        const ty_json *node = ty_json_at(nodes, v);
        const char *name = "";
        TY_CHECK(ty_json_uint64(node, "id", 0, UINT32_MAX, &in->layers[v].id, error), status, done);
        if (ty_json_has(node, "name"))
            TY_CHECK(ty_json_string(node, "name", &name, error), status, done);
        in->layers[v].name = ty_arena_strdup(in->arena, name);
        if (in->layers[v].name == NULL)
            return out_of_memory(error);
        for (uint32_t other = 0; other < v; other++)
            if (in->layers[other].id == in->layers[v].id)
                return ty_json_fail(node, error, "an id that no other node has");
    }
done:
    return status;
}

static ty_status read_root(ty_piper_input *in, const ty_json *root, ty_error *error)
{
    ty_status status = TY_OK;
    const ty_json *nodes;

    TY_CHECK(ty_json_number(root, "maxMemoryPerDevice", DBL_MIN, DBL_MAX, &in->memory_bytes, error),
             status, done);
    TY_CHECK(ty_json_uint32(root, "maxDevices", 1, TY_MOST_DEVICES, &in->devices, error), status,
             done);
    TY_CHECK(ty_json_number(root, "bandwidth", DBL_MIN, DBL_MAX, &in->bandwidth_bytes_per_s, error),
             status, done);
    TY_CHECK(ty_json_uint32(root, "mbsInBatch", 1, 1u << 30, &in->micro_batches, error), status,
             done);
    TY_CHECK(ty_json_array(root, "nodes", 1, MOST_LAYERS, &nodes, error), status, done);
    TY_CHECK(read_names(in, nodes, error), status, done);
    TY_CHECK(read_edges(in, root, error), status, done);
    for (uint32_t v = 0; v < in->layer_count; v++)
        TY_CHECK(read_degrees(in, v, ty_json_at(nodes, v), error), status, done);
    status = ty_json_end(root, error);
done:
    return status;
}

ty_status ty_piper_read(const char *path, ty_piper_input **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_json_document *document = NULL;
    ty_piper_input *in = ty_alloc(1, sizeof *in);

    if (in != NULL)
        in->arena = ty_arena_new();
    if (in == NULL || in->arena == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    if (!ty_json_is_object(ty_json_root(document))) {
        status = ty_json_fail(ty_json_root(document), error, "an object");
        goto cleanup;
    }
    TY_CHECK(read_root(in, ty_json_root(document), error), status, cleanup);
    *out = in;
    in = NULL;

cleanup:
    ty_json_free(document);
    ty_piper_input_free(in);
    return status;
}

void ty_piper_input_free(ty_piper_input *input)
{
    if (input == NULL)
        return;
    ty_arena_free(input->arena);
    ty_free(input);
}
