/* What a lane of a tensor parallel rank has of a layer. */
#include "lane_parts.h"

#include <string.h>

/* ---- Parts ---- */

uint32_t lane_count(const ty_stage_options *options)
{
    return options->lanes.count > 1 ? options->lanes.count : 1;
}

lane_range lane_range_of(uint64_t count, uint32_t lanes, uint32_t lane)
{
    const uint64_t part = lane_part(count, lanes), first = part * lane;

    if (first >= count)
        return (lane_range){count, 0};
    return (lane_range){first, count - first < part ? count - first : part};
}

static bool is_weights_divided(const ty_workload *workload, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(workload, layer);

    return split == TY_SPLIT_HEADS || split == TY_SPLIT_HIDDEN || split == TY_SPLIT_VOCABULARY;
}

bool lane_divides(const ty_stage_options *options, uint32_t layer)
{
    return lane_count(options) > 1 && is_weights_divided(options->workload, layer);
}

static bool is_along_sequence(const ty_workload *workload, const ty_shape *shape)
{
    return shape->dimension_count == 2 && shape->dimensions[0] == workload->tokens_per_sample;
}

ty_shape lane_shape(const ty_stage_options *options, uint32_t layer)
{
    const ty_workload *workload = options->workload;
    const uint32_t lanes = lane_count(options);
    ty_shape shape = workload->layers[layer].output;

    if (lanes == 1)
        return shape;
    if (workload->layers[layer].kind == TY_LAYER_LINEAR && lane_divides(options, layer))
        shape.dimensions[shape.dimension_count - 1] =
            lane_part(shape.dimensions[shape.dimension_count - 1], lanes);
    else if (options->lanes.divides_sequence && is_along_sequence(workload, &shape))
        shape.dimensions[0] /= lanes;
    return shape;
}

/* ---- Tensors ---- */

static uint64_t columns_of(const lane_tensor *tensor)
{
    return tensor->columns > 0 ? tensor->columns : 1;
}

/* Rows that are divided by themselves: `group` of them, or all. */
static uint64_t group_rows(const lane_tensor *tensor, uint32_t group)
{
    if (tensor->groups[0] == 0)
        return group == 0 ? tensor->count / columns_of(tensor) : 0;
    return group < LANE_MAX_GROUPS ? tensor->groups[group] : 0;
}

uint64_t lane_tensor_count(const lane_tensor *tensor, uint32_t lanes)
{
    uint64_t rows = 0;

    if (lanes == 1 || tensor->division == LANE_UNDIVIDED)
        return tensor->count;
    if (tensor->division == LANE_BY_COLUMNS)
        return tensor->count / columns_of(tensor) * lane_part(columns_of(tensor), lanes);
    for (uint32_t g = 0; group_rows(tensor, g) > 0; g++)
        rows += lane_part(group_rows(tensor, g), lanes);
    return rows * columns_of(tensor);
}

static bool row_run(const lane_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t index,
                    lane_run *out)
{
    const uint64_t columns = columns_of(tensor);
    uint64_t before = 0, part = 0;
    lane_range rows;

    if (index >= LANE_MAX_GROUPS || group_rows(tensor, (uint32_t)index) == 0)
        return false;
    for (uint32_t g = 0; g < index; g++) {
        before += group_rows(tensor, g);
        part += lane_part(group_rows(tensor, g), lanes);
    }
    rows = lane_range_of(group_rows(tensor, (uint32_t)index), lanes, lane);
    *out = (lane_run){(before + rows.first) * columns, part * columns, rows.count * columns};
    return true;
}

static bool column_run(const lane_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t row,
                       lane_run *out)
{
    const uint64_t columns = columns_of(tensor);
    const lane_range own = lane_range_of(columns, lanes, lane);

    if (row >= tensor->count / columns)
        return false;
    *out = (lane_run){row * columns + own.first, row * lane_part(columns, lanes), own.count};
    return true;
}

bool lane_tensor_run(const lane_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t index,
                     lane_run *out)
{
    if (lanes > 1 && tensor->division == LANE_BY_ROWS)
        return row_run(tensor, lanes, lane, index, out);
    if (lanes > 1 && tensor->division == LANE_BY_COLUMNS)
        return column_run(tensor, lanes, lane, index, out);
    *out = (lane_run){0, 0, tensor->count};
    return index == 0;
}

void lane_tensor_join(const lane_tensor *tensor, uint32_t lanes, uint32_t lane, const float *part,
                      float *whole)
{
    lane_run run;

    for (uint64_t i = 0; lane_tensor_run(tensor, lanes, lane, i, &run); i++)
        memcpy(whole + run.whole, part + run.part, run.count * sizeof *whole);
}

/* ---- What can be divided ---- */

static ty_status layer_check(const ty_stage_options *options, const char *backend, uint32_t index,
                             ty_error *error)
{
    const ty_workload *workload = options->workload;
    const ty_layer *layer = &workload->layers[index];
    const uint32_t lanes = lane_count(options);
    const ty_tensor_split split = ty_layer_tensor_split(workload, index);
    const ty_shape *input = ty_layer_input_shape(workload, index, 0);
    const uint64_t features = layer->attributes[TY_FEATURES];
    const uint64_t kv_heads = layer->attributes[TY_KV_HEADS];

    if (features % lanes != 0 && is_weights_divided(workload, index))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %llu features among %u lanes, expected a multiple of them",
                       layer->name, (unsigned long long)features, lanes);
    if (split == TY_SPLIT_HEADS && kv_heads % lanes != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %llu key and value heads among %u lanes, expected a "
                       "multiple of them",
                       layer->name, (unsigned long long)kv_heads, lanes);
    if (layer->kind == TY_LAYER_LINEAR && split == TY_SPLIT_VOCABULARY &&
        !is_along_sequence(workload, input))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: the %s backend divides the classes of tokens among lanes, not "
                       "those of a whole sequence",
                       layer->name, backend);
    if (options->lanes.divides_sequence && split == TY_SPLIT_NONE)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: a %s is not divided along the sequence, expected a plan without "
                       "sequence parallelism",
                       layer->name, ty_layer_kind_name(layer->kind));
    if (layer->tied_to != TY_NO_LAYER &&
        is_weights_divided(workload, layer->tied_to) != is_weights_divided(workload, index))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: lanes divide its matrix otherwise than layer %s, its owner, does",
                       layer->name, workload->layers[layer->tied_to].name);
    return TY_OK;
}

/* Scores that are in parts are read by the loss alone. */
static ty_status readers_check(const ty_stage_options *options, uint32_t index, ty_error *error)
{
    const ty_workload *workload = options->workload;

    for (uint32_t i = 0; i < workload->layers[index].input_count; i++) {
        const uint32_t read = workload->layers[index].inputs[i];
        if (workload->layers[read].kind == TY_LAYER_LINEAR && lane_divides(options, read) &&
            workload->layers[index].kind != TY_LAYER_SOFTMAX_CROSS_ENTROPY)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s reads layer %s, of which each lane has a part",
                           workload->layers[index].name, workload->layers[read].name);
    }
    return TY_OK;
}

ty_status lanes_check(const ty_stage_options *options, const char *backend, ty_error *error)
{
    const ty_workload *workload = options->workload;
    const uint32_t lanes = lane_count(options);
    ty_status status = TY_OK;

    if (lanes == 1)
        return TY_OK;
    TY_CHECK(ty_tensor_check(workload, lanes, error), status, done);
    if (options->lanes.divides_sequence && workload->tokens_per_sample % lanes != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: found sequences of %llu tokens among %u lanes, expected a multiple of "
                       "them",
                       workload->name, (unsigned long long)workload->tokens_per_sample, lanes);
    for (uint32_t l = options->first_layer; l < options->first_layer + options->layer_count; l++) {
        TY_CHECK(layer_check(options, backend, l, error), status, done);
        TY_CHECK(readers_check(options, l, error), status, done);
    }
done:
    return status;
}
