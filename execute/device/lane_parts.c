/* What a lane of a rank has of a layer. */
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

    return split == TY_SPLIT_HEADS || split == TY_SPLIT_HIDDEN || split == TY_SPLIT_EXPERTS ||
           split == TY_SPLIT_VOCABULARY;
}

bool lane_divides(const ty_stage_options *options, uint32_t layer)
{
    return lane_count(options) > 1 && is_weights_divided(options->workload, layer);
}

uint32_t lane_context_count(const ty_stage_options *options)
{
    return options->lanes.context_count > 1 ? options->lanes.context_count : 1;
}

uint32_t lane_expert_count(const ty_stage_options *options)
{
    return options->lanes.expert_count > 1 ? options->lanes.expert_count : 1;
}

/* The loss has no sequence of its own. */
ty_shape lane_context_shape(const ty_stage_options *options, const ty_shape *whole)
{
    const uint32_t lanes = lane_context_count(options);
    ty_shape shape = *whole;

    if (shape.dimensions[0] % lanes == 0)
        shape.dimensions[0] /= lanes;
    return shape;
}

_Static_assert(TOKEN_MOST_RUNS == TY_CONTEXT_RUNS, "a context lane's tokens are so many runs");

token_runs lane_token_runs_of(uint64_t sequence, uint32_t lanes, uint32_t lane)
{
    token_runs runs = {.count = 1, .length = sequence};

    if (lanes == 1)
        return runs;
    runs.count = TY_CONTEXT_RUNS;
    runs.length = sequence / lanes / TY_CONTEXT_RUNS;
    for (uint32_t r = 0; r < runs.count; r++)
        runs.starts[r] = ty_context_run_start(sequence, lanes, lane, r);
    return runs;
}

token_runs lane_token_runs(const ty_stage_options *options, uint64_t sequence)
{
    return lane_token_runs_of(sequence, lane_context_count(options),
                              options->lanes.context_position);
}

static bool is_along_sequence(const ty_workload *workload, const ty_shape *shape)
{
    return shape->dimension_count == 2 && shape->dimensions[0] == workload->tokens_per_sample;
}

ty_shape lane_shape(const ty_stage_options *options, uint32_t layer)
{
    const ty_workload *workload = options->workload;
    const uint32_t lanes = lane_count(options);
    const ty_shape *whole = &workload->layers[layer].output;
    ty_shape shape = lane_context_shape(options, whole);

    if (lanes == 1)
        return shape;
    if (ty_layer_has_split_scores(workload, layer))
        shape.dimensions[shape.dimension_count - 1] =
            lane_part(shape.dimensions[shape.dimension_count - 1], lanes);
    else if (options->lanes.divides_sequence && is_along_sequence(workload, whole))
        shape.dimensions[0] /= lanes;
    return shape;
}

/* ---- Tensors ---- */

static uint64_t columns_of(const lane_tensor *tensor)
{
    return tensor->columns > 0 ? tensor->columns : 1;
}

static uint64_t repeats_of(const lane_tensor *tensor)
{
    return tensor->experts > 0 ? tensor->experts : 1;
}

static uint32_t group_count(const lane_tensor *tensor)
{
    uint32_t count = 0;

    while (count < TY_MOST_TENSOR_GROUPS && tensor->groups[count] > 0)
        count++;
    return count > 0 ? count : 1;
}

/* Rows that are divided by themselves: `group` of them, or all. */
static uint64_t group_rows(const lane_tensor *tensor, uint32_t group)
{
    return tensor->groups[0] == 0 ? tensor->count / columns_of(tensor) / repeats_of(tensor)
                                  : tensor->groups[group];
}

bool lane_is_of_experts(const ty_stage_options *options, const lane_tensor *tensor)
{
    return lane_expert_count(options) > 1 &&
           (tensor->experts > 0 || (tensor->is_table && options->lanes.tables != TY_TABLES_WHOLE));
}

uint32_t lane_of_table(const ty_stage_options *options, uint32_t layer)
{
    const uint32_t lanes = lane_expert_count(options);

    return lanes > 1 && options->lanes.tables == TY_TABLES_TABLE &&
                   ty_layer_is_bag(&options->workload->layers[layer])
               ? ty_table_lane(options->workload, lanes, layer)
               : TY_NO_LAYER;
}

uint64_t lane_table_padding(const ty_stage_options *options, uint32_t layer)
{
    const uint32_t lanes = lane_expert_count(options);
    uint64_t own, most = 0;

    if (lane_of_table(options, layer) == TY_NO_LAYER)
        return 0;
    for (uint32_t l = layer + 1; l < options->workload->layer_count; l++)
        if (ty_layer_is_bag(&options->workload->layers[l]))
            return 0;
    for (uint32_t l = 0; l < lanes; l++) {
        const uint64_t elements = ty_table_lane_elements(options->workload, lanes, l);
        most = elements > most ? elements : most;
    }
    own = ty_table_lane_elements(options->workload, lanes, options->lanes.expert_position);
    return most - own;
}

lane_tensor lane_tensor_here(const ty_stage_options *options, uint32_t layer,
                             const lane_tensor *tensor, uint64_t *first, lane_place *place)
{
    const uint32_t lanes = lane_expert_count(options), lane = options->lanes.expert_position;
    lane_tensor here = *tensor;

    *first = 0;
    *place = (lane_place){lane_count(options), options->lanes.position};
    if (!lane_is_of_experts(options, tensor))
        return here;
    if (!tensor->is_table) {
        here.experts /= lanes;
        here.count /= lanes;
        *first = lane * here.count;
        return here;
    }
    *place = (lane_place){lanes, lane};
    if (options->lanes.tables == TY_TABLES_ROW)
        here.division = TY_BY_ROWS;
    else if (options->lanes.tables == TY_TABLES_COLUMN)
        here.division = TY_BY_COLUMNS;
    else if (lane_of_table(options, layer) != lane)
        here.count = 0;
    return here;
}

uint64_t lane_tensor_count(const lane_tensor *tensor, uint32_t lanes)
{
    uint64_t rows = 0;

    if (lanes == 1 || tensor->division == TY_UNDIVIDED)
        return tensor->count;
    if (tensor->division == TY_BY_COLUMNS)
        return tensor->count / columns_of(tensor) * lane_part(columns_of(tensor), lanes);
    for (uint32_t g = 0; g < group_count(tensor); g++)
        rows += lane_part(group_rows(tensor, g), lanes);
    return rows * repeats_of(tensor) * columns_of(tensor);
}

static bool row_run(const lane_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t index,
                    lane_run *out)
{
    const uint64_t columns = columns_of(tensor), repeat = index / group_count(tensor);
    const uint32_t group = (uint32_t)(index % group_count(tensor));
    uint64_t before = 0, part = 0, all = 0, all_parts = 0;
    lane_range rows;

    if (repeat >= repeats_of(tensor) || group_rows(tensor, group) == 0)
        return false;
    for (uint32_t g = 0; g < group_count(tensor); g++) {
        before += g < group ? group_rows(tensor, g) : 0;
        part += g < group ? lane_part(group_rows(tensor, g), lanes) : 0;
        all += group_rows(tensor, g);
        all_parts += lane_part(group_rows(tensor, g), lanes);
    }
    rows = lane_range_of(group_rows(tensor, group), lanes, lane);
    *out = (lane_run){(repeat * all + before + rows.first) * columns,
                      (repeat * all_parts + part) * columns, rows.count * columns};
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
    if (lanes > 1 && tensor->division == TY_BY_ROWS)
        return row_run(tensor, lanes, lane, index, out);
    if (lanes > 1 && tensor->division == TY_BY_COLUMNS)
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

/* Batches that are not along the sequence have no tokens to be divided. */
static ty_status context_check(const ty_stage_options *options, ty_error *error)
{
    const uint32_t lanes = lane_context_count(options);
    const ty_shape *batch = &options->workload->input;
    ty_status status = ty_context_check(options->workload, lanes, error);

    if (status == TY_OK && lanes > 1 &&
        (batch->dimension_count > 2 ||
         batch->dimensions[0] != options->workload->tokens_per_sample))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "%s: found samples whose first dimension is %llu among %u context lanes, "
                       "expected one of %llu tokens",
                       options->workload->name, (unsigned long long)batch->dimensions[0], lanes,
                       (unsigned long long)options->workload->tokens_per_sample);
    return status;
}

/* Copies of tokens would travel from each tensor lane's part of the sequence, and be gathered
 * behind that. */
static ty_status copies_check(const ty_stage_options *options, ty_error *error)
{
    const uint32_t expert = lane_expert_count(options);

    for (uint32_t l = 0; l < options->layer_count && expert > 1; l++) {
        const ty_layer *layer = &options->workload->layers[options->first_layer + l];
        if (ty_layer_row_of(layer)->has_experts && lane_count(options) > 1 &&
            options->lanes.divides_sequence)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: found %u expert lanes with sequence parallelism, expected "
                           "one of them",
                           layer->name, expert);
    }
    return TY_OK;
}

ty_status lanes_check(const ty_stage_options *options, ty_error *error)
{
    const uint32_t lanes = lane_count(options);
    const uint32_t parts = lanes * lane_context_count(options);
    ty_status status = context_check(options, error);

    if (status == TY_OK)
        status = ty_expert_check(options->workload, lane_expert_count(options),
                                 options->lanes.tables, error);
    if (status == TY_OK)
        status = copies_check(options, error);
    if (status != TY_OK)
        return status;
    return ty_tensor_run_check(options->workload, lanes,
                               options->lanes.divides_sequence ? parts : 1, options->first_layer,
                               options->layer_count, error);
}
