/* What the lanes of a tensor parallel rank tell each other. */
#include "cpu_layer.h"

#include <string.h>

static ty_status exchange(ty_stage_device *stage, ty_collective_kind kind, bool is_maximum,
                          uint64_t count, float *data, ty_error *error)
{
    const ty_lane_group *lanes = &stage->options.lanes;

    return lanes->exchange(
        lanes->context,
        &(ty_lane_exchange){.kind = kind,
                            .element = is_maximum ? TY_ELEMENT_LARGEST_FLOAT : TY_ELEMENT_FLOAT,
                            .data = data,
                            .count = count},
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
    const uint64_t lanes = lane_count(&stage->options);

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

/* A tensor of shape [T, D] a sample from the lanes' parts of its sequence. */
static ty_status cpu_lanes_gather(ty_stage_device *stage, const ty_shape *shape, const float *own,
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

    if (lane_count(&stage->options) == 1)
        return TY_OK; /* it is there */
    if (stage->options.lanes.divides_sequence)
        return sum_scattered(stage, shape, summand, adds, to, error);
    status = exchange(stage, TY_ALL_REDUCE, false, count, summand, error);
    if (status == TY_OK && summand != to)
        cpu_accumulate(count, summand, adds, to);
    return status;
}

/* ---- A divided layer's operands ---- */

static const ty_shape *whole_shape(const cpu_node *node, uint32_t input)
{
    return input == 0 ? &node->whole_input : &node->whole_output;
}

ty_status cpu_whole_input(ty_stage_device *stage, const cpu_node *node, uint32_t input,
                          uint32_t slot, float *room, const float **out, ty_error *error)
{
    *out = cpu_in(stage, node, input, slot);
    if (!cpu_gathers(stage, node))
        return TY_OK;
    *out = room;
    return cpu_lanes_gather(stage, whole_shape(node, input), cpu_in(stage, node, input, slot), room,
                            error);
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
        *out = cpu_in(stage, node, product->input, slot);
        return TY_OK;
    }
    if (stage->part == CPU_WEIGHTS ||
        !ty_layer_is_trained(stage->options.workload, node->layer_index))
        return TY_OK; /* it is there, or nobody asks for it */
    return cpu_whole_input(stage, node, product->input, slot, room, out, error);
}

static const float *product_weight(const ty_stage_device *stage, const cpu_node *node,
                                   const cpu_input_product *product)
{
    return cpu_parameters(stage, node, product->weight) + product->first_row * product->in;
}

ty_status cpu_input_product_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                    const cpu_input_product *product, float *y, ty_error *error)
{
    const float *bias =
        product->has_bias ? cpu_parameters(stage, node, product->bias) + product->first_row : NULL;
    const float *x;
    const ty_status status =
        cpu_whole_input(stage, node, product->input, slot, stage->lane_whole, &x, error);

    if (status == TY_OK)
        cpu_affine(product->rows, product->in, product->out, x,
                   product_weight(stage, node, product), bias, y);
    return status;
}

/* The rows' part of a tensor's gradient; NULL stays NULL. */
static float *gradient_rows(const ty_stage_device *stage, const cpu_node *node, uint32_t tensor,
                            uint64_t before)
{
    float *gradient = cpu_parameter_gradient(stage, node, tensor);

    return gradient != NULL ? gradient + before : NULL;
}

ty_status cpu_input_product_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                     const cpu_input_product *product, const float *dy,
                                     bool is_first, ty_error *error)
{
    const float *weight = product_weight(stage, node, product), *x;
    const uint32_t input = product->input;
    float *dx = cpu_in_gradient(stage, node, input, slot);
    float *summand = cpu_summand(stage, node, node->adds[input], dx);
    const cpu_affine_gradient of_weights = {
        .weight = gradient_rows(stage, node, product->weight, product->first_row * product->in),
        .bias = product->has_bias ? gradient_rows(stage, node, product->bias, product->first_row)
                                  : NULL,
        .adds_weight = cpu_adds(node, product->weight, is_first),
        .adds_bias = cpu_adds(node, product->bias, is_first),
    };
    const cpu_affine_gradient of_input = {
        .x = summand,
        .adds_x = summand == dx && node->adds[input],
    };
    ty_status status = input_find(stage, node, slot, product, &x, error);

    if (status != TY_OK)
        return status;
    cpu_affine_backward(product->rows, product->in, product->out, x, weight, dy, &of_weights);
    /* The input's gradient may lie where the whole input was. */
    cpu_affine_backward(product->rows, product->in, product->out, x, weight, dy, &of_input);
    if (dx == NULL || !node->is_divided)
        return TY_OK;
    return cpu_lanes_sum(stage, whole_shape(node, input), summand, node->adds[input], dx, error);
}

ty_status cpu_output_product_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                     const cpu_output_product *product, ty_error *error)
{
    float *y = cpu_out(stage, node, slot), *summand = cpu_summand(stage, node, false, y);

    cpu_affine(product->rows, product->in, product->out, product->x,
               cpu_parameters(stage, node, product->weight), NULL, summand);
    if (product->has_bias)
        cpu_add_lane_bias(stage, product->rows, product->out,
                          cpu_parameters(stage, node, product->bias), summand);
    return cpu_lanes_sum(stage, &node->whole_output, summand, false, y, error);
}

ty_status cpu_output_product_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                      const cpu_output_product *product, bool is_first, float *dx,
                                      ty_error *error)
{
    float *bias = product->has_bias ? cpu_parameter_gradient(stage, node, product->bias) : NULL;
    const cpu_affine_gradient to = {
        .weight = cpu_parameter_gradient(stage, node, product->weight),
        .x = stage->part == CPU_WEIGHTS ? NULL : dx,
        .adds_weight = cpu_adds(node, product->weight, is_first),
    };
    const float *dy = product->dy;
    ty_status status = TY_OK;

    if (dy == NULL || stage->part != CPU_WEIGHTS)
        status = cpu_whole_gradient(
            stage, node, slot, product->dy != NULL ? product->dy : stage->lane_whole, &dy, error);
    if (status != TY_OK)
        return status;
    cpu_affine_backward(product->rows, product->in, product->out, product->x,
                        cpu_parameters(stage, node, product->weight), dy, &to);
    if (bias != NULL)
        cpu_lane_bias_gradient(stage, product->rows, product->out, dy,
                               cpu_adds(node, product->bias, is_first), bias);
    return TY_OK;
}

void cpu_add_lane_bias(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                       const float *bias, float *y)
{
    const lane_range own =
        lane_range_of(columns, lane_count(&stage->options), stage->options.lanes.position);

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
    const lane_range own =
        lane_range_of(columns, lane_count(&stage->options), stage->options.lanes.position);

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
