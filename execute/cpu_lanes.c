/* What a lane of a tensor parallel rank has of a layer, and what it tells the others. */
#include "cpu_layer.h"

#include <string.h>

/* ---- Parts ---- */

uint32_t cpu_lane_count(const ty_stage_options *options)
{
    return options->lanes.count > 1 ? options->lanes.count : 1;
}

cpu_range cpu_lane_range(uint64_t count, uint32_t lanes, uint32_t lane)
{
    const uint64_t part = cpu_lane_part(count, lanes), first = part * lane;

    if (first >= count)
        return (cpu_range){count, 0};
    return (cpu_range){first, count - first < part ? count - first : part};
}

static bool is_weights_divided(const ty_workload *workload, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(workload, layer);

    return split == TY_SPLIT_HEADS || split == TY_SPLIT_HIDDEN || split == TY_SPLIT_VOCABULARY;
}

bool cpu_is_divided(const ty_stage_options *options, uint32_t layer)
{
    return cpu_lane_count(options) > 1 && is_weights_divided(options->workload, layer);
}

static bool is_along_sequence(const ty_workload *workload, const ty_shape *shape)
{
    return shape->dimension_count == 2 && shape->dimensions[0] == workload->tokens_per_sample;
}

ty_shape cpu_lane_shape(const ty_stage_options *options, uint32_t layer)
{
    const ty_workload *workload = options->workload;
    const uint32_t lanes = cpu_lane_count(options);
    const ty_shape *whole = &workload->layers[layer].output;
    ty_shape shape = cpu_context_shape(options, whole);

    if (lanes == 1)
        return shape;
    if (workload->layers[layer].kind == TY_LAYER_LINEAR && cpu_is_divided(options, layer))
        shape.dimensions[shape.dimension_count - 1] =
            cpu_lane_part(shape.dimensions[shape.dimension_count - 1], lanes);
    else if (options->lanes.divides_sequence && is_along_sequence(workload, whole))
        shape.dimensions[0] /= lanes;
    return shape;
}

/* ---- Tensors ---- */

static uint64_t columns_of(const cpu_tensor *tensor)
{
    return tensor->columns > 0 ? tensor->columns : 1;
}

/* Rows that are divided by themselves: `group` of them, or all. */
static uint64_t group_rows(const cpu_tensor *tensor, uint32_t group)
{
    if (tensor->groups[0] == 0)
        return group == 0 ? tensor->count / columns_of(tensor) : 0;
    return group < CPU_MAX_GROUPS ? tensor->groups[group] : 0;
}

uint64_t cpu_tensor_lane_count(const cpu_tensor *tensor, uint32_t lanes)
{
    uint64_t rows = 0;

    if (lanes == 1 || tensor->division == CPU_UNDIVIDED)
        return tensor->count;
    if (tensor->division == CPU_BY_COLUMNS)
        return tensor->count / columns_of(tensor) * cpu_lane_part(columns_of(tensor), lanes);
    for (uint32_t g = 0; group_rows(tensor, g) > 0; g++)
        rows += cpu_lane_part(group_rows(tensor, g), lanes);
    return rows * columns_of(tensor);
}

static bool row_run(const cpu_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t index,
                    cpu_run *out)
{
    const uint64_t columns = columns_of(tensor);
    uint64_t before = 0, part = 0;
    cpu_range rows;

    if (index >= CPU_MAX_GROUPS || group_rows(tensor, (uint32_t)index) == 0)
        return false;
    for (uint32_t g = 0; g < index; g++) {
        before += group_rows(tensor, g);
        part += cpu_lane_part(group_rows(tensor, g), lanes);
    }
    rows = cpu_lane_range(group_rows(tensor, (uint32_t)index), lanes, lane);
    *out = (cpu_run){(before + rows.first) * columns, part * columns, rows.count * columns};
    return true;
}

static bool column_run(const cpu_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t row,
                       cpu_run *out)
{
    const uint64_t columns = columns_of(tensor);
    const cpu_range own = cpu_lane_range(columns, lanes, lane);

    if (row >= tensor->count / columns)
        return false;
    *out = (cpu_run){row * columns + own.first, row * cpu_lane_part(columns, lanes), own.count};
    return true;
}

bool cpu_tensor_run(const cpu_tensor *tensor, uint32_t lanes, uint32_t lane, uint64_t index,
                    cpu_run *out)
{
    if (lanes > 1 && tensor->division == CPU_BY_ROWS)
        return row_run(tensor, lanes, lane, index, out);
    if (lanes > 1 && tensor->division == CPU_BY_COLUMNS)
        return column_run(tensor, lanes, lane, index, out);
    *out = (cpu_run){0, 0, tensor->count};
    return index == 0;
}

void cpu_tensor_join(const cpu_tensor *tensor, uint32_t lanes, uint32_t lane, const float *part,
                     float *whole)
{
    cpu_run run;

    for (uint64_t i = 0; cpu_tensor_run(tensor, lanes, lane, i, &run); i++)
        memcpy(whole + run.whole, part + run.part, run.count * sizeof *whole);
}

ty_status cpu_lanes_check(const ty_stage_options *options, ty_error *error)
{
    const uint32_t lanes = cpu_lane_count(options);
    const uint32_t parts = lanes * cpu_context_count(options);
    const ty_status status = cpu_context_check(options, error);

    if (status != TY_OK)
        return status;
    return ty_tensor_run_check(options->workload, lanes,
                               options->lanes.divides_sequence ? parts : 1, options->first_layer,
                               options->layer_count, error);
}

/* ---- Exchanges ---- */

static ty_status exchange(ty_stage_device *stage, ty_collective_kind kind, bool is_maximum,
                          uint64_t count, float *data, ty_error *error)
{
    const ty_lane_group *lanes = &stage->options.lanes;

    return lanes->exchange(
        lanes->context,
        &(ty_lane_exchange){.kind = kind, .is_maximum = is_maximum, .data = data, .count = count},
        error);
}

ty_status cpu_lanes_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count, float *data,
                               ty_error *error)
{
    return exchange(stage, TY_ALL_REDUCE, is_maximum, count, data, error);
}

/* A tensor [B, T, D] in the order [lane][B][T / lanes][D], in which each lane's part is one piece.
 */
typedef struct pieces {
    uint64_t batch, lanes, run; /* run: floats of one sample's part */
} pieces;

static pieces pieces_of(const ty_stage_device *stage, const ty_shape *whole)
{
    const uint64_t lanes = cpu_lane_count(&stage->options);

    return (pieces){cpu_batch(stage), lanes, ty_shape_elements(whole) / lanes};
}

static void to_pieces(const pieces *p, const float *whole, float *by_lane)
{
    for (uint64_t l = 0; l < p->lanes; l++)
        for (uint64_t b = 0; b < p->batch; b++)
            memcpy(by_lane + (l * p->batch + b) * p->run, whole + (b * p->lanes + l) * p->run,
                   p->run * sizeof *whole);
}

static void from_pieces(const pieces *p, const float *by_lane, float *whole)
{
    for (uint64_t l = 0; l < p->lanes; l++)
        for (uint64_t b = 0; b < p->batch; b++)
            memcpy(whole + (b * p->lanes + l) * p->run, by_lane + (l * p->batch + b) * p->run,
                   p->run * sizeof *whole);
}

ty_status cpu_lanes_gather(ty_stage_device *stage, const ty_shape *shape, const float *own,
                           float *whole, ty_error *error)
{
    const pieces p = pieces_of(stage, shape);
    const uint64_t part = p.batch * p.run;
    float *by_lane = p.batch == 1 ? whole : stage->lane_pieces;
    ty_status status;

    memcpy(by_lane + stage->options.lanes.position * part, own, part * sizeof *own);
    status = exchange(stage, TY_ALL_GATHER, false, part, by_lane, error);
    if (status == TY_OK && by_lane != whole)
        from_pieces(&p, by_lane, whole);
    return status;
}

static ty_status sum_scattered(ty_stage_device *stage, const ty_shape *shape, float *summand,
                               bool adds, float *to, ty_error *error)
{
    const pieces p = pieces_of(stage, shape);
    const uint64_t part = p.batch * p.run;
    float *by_lane = p.batch == 1 ? summand : stage->lane_pieces;
    ty_status status;

    if (by_lane != summand)
        to_pieces(&p, summand, by_lane);
    status = exchange(stage, TY_REDUCE_SCATTER, false, part * p.lanes, by_lane, error);
    if (status == TY_OK)
        cpu_accumulate(part, by_lane + stage->options.lanes.position * part, adds, to);
    return status;
}

ty_status cpu_lanes_sum(ty_stage_device *stage, const ty_shape *shape, float *summand, bool adds,
                        float *to, ty_error *error)
{
    const uint64_t count = ty_shape_elements(shape) * cpu_batch(stage);
    ty_status status;

    if (cpu_lane_count(&stage->options) == 1)
        return TY_OK; /* it is there */
    if (stage->options.lanes.divides_sequence)
        return sum_scattered(stage, shape, summand, adds, to, error);
    status = exchange(stage, TY_ALL_REDUCE, false, count, summand, error);
    if (status == TY_OK && summand != to)
        cpu_accumulate(count, summand, adds, to);
    return status;
}

/* ---- A divided layer's operands ---- */

ty_status cpu_whole_input(ty_stage_device *stage, const cpu_node *node, uint32_t slot, float *room,
                          const float **out, ty_error *error)
{
    *out = cpu_in(stage, node, 0, slot);
    if (!cpu_gathers(stage, node))
        return TY_OK;
    *out = room;
    return cpu_lanes_gather(stage, &node->whole_input, cpu_in(stage, node, 0, slot), room, error);
}

ty_status cpu_whole_gradient(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                             float *room, const float **out, ty_error *error)
{
    *out = cpu_out_gradient(stage, node, slot);
    if (!cpu_gathers(stage, node))
        return TY_OK;
    *out = room;
    return cpu_lanes_gather(stage, &node->whole_output, cpu_out_gradient(stage, node, slot), room,
                            error);
}

/* What weights' gradients are made of. */
static ty_status input_find(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                            const cpu_input_product *product, const float **out, ty_error *error)
{
    float *room = product->x != NULL ? product->x : stage->lane_whole;

    *out = room;
    if (!cpu_gathers(stage, node)) {
        *out = cpu_in(stage, node, 0, slot);
        return TY_OK;
    }
    if (stage->part == CPU_WEIGHTS ||
        !ty_layer_is_trained(stage->options.workload, node->layer_index))
        return TY_OK; /* it is there, or nobody asks for it */
    return cpu_whole_input(stage, node, slot, room, out, error);
}

ty_status cpu_input_product_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                     const cpu_input_product *product, const float *dy,
                                     bool is_first, ty_error *error)
{
    const float *weight = cpu_parameters(stage, node, product->weight), *x;
    float *dx = cpu_in_gradient(stage, node, 0, slot);
    float *summand = cpu_summand(stage, node, node->adds[0], dx);
    const cpu_affine_gradient of_weights = {
        .weight = cpu_parameter_gradient(stage, node, product->weight),
        .bias = product->has_bias ? cpu_parameter_gradient(stage, node, product->bias) : NULL,
        .adds_weight = cpu_adds(node, product->weight, is_first),
        .adds_bias = cpu_adds(node, product->bias, is_first),
    };
    const cpu_affine_gradient of_input = {
        .x = summand,
        .adds_x = summand == dx && node->adds[0],
    };
    ty_status status = input_find(stage, node, slot, product, &x, error);

    if (status != TY_OK)
        return status;
    cpu_affine_backward(product->rows, product->in, product->out, x, weight, dy, &of_weights);
    /* The input's gradient may lie where the whole input was. */
    cpu_affine_backward(product->rows, product->in, product->out, x, weight, dy, &of_input);
    if (dx == NULL || !node->is_divided)
        return TY_OK;
    return cpu_lanes_sum(stage, &node->whole_input, summand, node->adds[0], dx, error);
}

void cpu_add_lane_bias(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                       const float *bias, float *y)
{
    const cpu_range own =
        cpu_lane_range(columns, cpu_lane_count(&stage->options), stage->options.lanes.position);

    if (own.count == columns) {
        cpu_add_bias(rows, columns, bias, y);
        return;
    }
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < own.count; c++)
            y[r * columns + own.first + c] += bias[c];
}

void cpu_lane_bias_gradient(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                            const float *dy, bool adds, float *sums)
{
    const cpu_range own =
        cpu_lane_range(columns, cpu_lane_count(&stage->options), stage->options.lanes.position);

    if (own.count == columns) {
        cpu_column_sums(rows, columns, dy, adds, sums);
        return;
    }
    if (!adds)
        memset(sums, 0, own.count * sizeof *sums);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < own.count; c++)
            sums[c] += dy[r * columns + own.first + c];
}
