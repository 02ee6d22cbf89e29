/* Shards of tensors in messages, and products of sharded layers. */
#include "cpu_layer.h"

#include <string.h>

/* The index, in [B][n * runs], of run i of [n][B][runs]; see ty_context_run_start. */
static uint64_t place_of(const stage_pieces *p, uint64_t i)
{
    const uint64_t run = i % p->runs, b = i / p->runs % p->batch, rank = i / p->runs / p->batch;

    return b * p->ranks * p->runs + (run == 0 ? rank : p->ranks * p->runs - 1 - rank);
}

void cpu_to_pieces(const ty_stage_device *stage, const stage_pieces *p, const void *whole,
                   void *message)
{
    const float *from = whole;
    float *to = message;

    (void)stage;
    for (uint64_t i = 0; i < p->ranks * p->batch * p->runs; i++)
        memcpy(to + i * p->run, from + place_of(p, i) * p->run, p->run * sizeof *to);
}

void cpu_from_pieces(const ty_stage_device *stage, const stage_pieces *p, const void *message,
                     void *whole)
{
    const float *from = message;
    float *to = whole;

    (void)stage;
    for (uint64_t i = 0; i < p->ranks * p->batch * p->runs; i++)
        memcpy(to + place_of(p, i) * p->run, from + i * p->run, p->run * sizeof *to);
}

/* ---- Products of a sharded layer ---- */

/* The input from which weights' gradients are computed. */
static ty_status input_find(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            const cpu_input_product *product, const float **out, ty_error *error)
{
    float *room = product->x != NULL ? product->x : stage->gather_workspace;

    *out = room;
    if (!stage_gathers(stage, node)) {
        *out = cpu_in(stage, node, product->input, slot);
        return TY_OK;
    }
    if (stage->part == STAGE_WEIGHTS ||
        !ty_layer_is_trained(stage->options.workload, node->layer_index))
        return TY_OK; /* it is in place, or not needed */
    return cpu_whole_input(stage, node, product->input, slot, room, out, error);
}

static const float *product_weight(const ty_stage_device *stage, const stage_node *node,
                                   const cpu_input_product *product)
{
    return cpu_parameters(stage, node, product->weight) + product->first_row * product->in;
}

ty_status cpu_input_product_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    const cpu_input_product *product, float *y, ty_error *error)
{
    const float *bias =
        product->has_bias ? cpu_parameters(stage, node, product->bias) + product->first_row : NULL;
    const float *x;
    const ty_status status =
        cpu_whole_input(stage, node, product->input, slot, stage->gather_workspace, &x, error);

    if (status == TY_OK)
        cpu_affine(product->rows, product->in, product->out, x,
                   product_weight(stage, node, product), bias, y);
    return status;
}

/* The rows' part of a tensor's gradient; NULL stays NULL. */
static float *gradient_rows(const ty_stage_device *stage, const stage_node *node, uint32_t tensor,
                            uint64_t before)
{
    float *gradient = cpu_parameter_gradient(stage, node, tensor);

    return gradient != NULL ? gradient + before : NULL;
}

ty_status cpu_input_product_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     const cpu_input_product *product, const float *dy,
                                     bool is_first, ty_error *error)
{
    const float *weight = product_weight(stage, node, product), *x;
    const uint32_t input = product->input;
    float *dx = cpu_in_gradient(stage, node, input, slot);
    float *summand = stage_summand(stage, node, node->adds[input], dx);
    const cpu_affine_gradient of_weights = {
        .weight = gradient_rows(stage, node, product->weight, product->first_row * product->in),
        .bias = product->has_bias ? gradient_rows(stage, node, product->bias, product->first_row)
                                  : NULL,
        .adds_weight = stage_adds(node, product->weight, is_first),
        .adds_bias = stage_adds(node, product->bias, is_first),
    };
    const cpu_affine_gradient of_input = {
        .x = summand,
        .adds_x = summand == dx && node->adds[input],
    };
    ty_status status = input_find(stage, node, slot, product, &x, error);

    if (status != TY_OK)
        return status;
    cpu_affine_backward(product->rows, product->in, product->out, x, weight, dy, &of_weights);
    /* The input's gradient may overwrite the gathered input. */
    cpu_affine_backward(product->rows, product->in, product->out, x, weight, dy, &of_input);
    return stage_ranks_sum(stage, node, input == 0 ? &node->whole_input : &node->whole_output,
                           summand, node->adds[input], dx, error);
}

ty_status cpu_output_product_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     const cpu_output_product *product, ty_error *error)
{
    float *y = cpu_out(stage, node, slot), *summand = stage_summand(stage, node, false, y);

    cpu_affine(product->rows, product->in, product->out, product->x,
               cpu_parameters(stage, node, product->weight), NULL, summand);
    if (product->has_bias)
        cpu_add_tp_bias(stage, product->rows, product->out,
                        cpu_parameters(stage, node, product->bias), summand);
    return stage_ranks_sum(stage, node, &node->whole_output, summand, false, y, error);
}

ty_status cpu_output_product_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                      const cpu_output_product *product, bool is_first, float *dx,
                                      ty_error *error)
{
    float *bias = product->has_bias ? cpu_parameter_gradient(stage, node, product->bias) : NULL;
    const cpu_affine_gradient to = {
        .weight = cpu_parameter_gradient(stage, node, product->weight),
        .x = stage->part == STAGE_WEIGHTS ? NULL : dx,
        .adds_weight = stage_adds(node, product->weight, is_first),
    };
    const float *dy = product->dy;
    ty_status status = TY_OK;

    if (dy == NULL || stage->part != STAGE_WEIGHTS)
        status = cpu_whole_gradient(stage, node, slot,
                                    product->dy != NULL ? product->dy : stage->gather_workspace,
                                    &dy, error);
    if (status != TY_OK)
        return status;
    cpu_affine_backward(product->rows, product->in, product->out, product->x,
                        cpu_parameters(stage, node, product->weight), dy, &to);
    if (bias != NULL)
        cpu_tp_bias_gradient(stage, product->rows, product->out, dy,
                             stage_adds(node, product->bias, is_first), bias);
    return TY_OK;
}

void cpu_add_tp_bias(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                     const float *bias, float *y)
{
    const shard_range own =
        shard_range_of(columns, tp_size_of(&stage->options), stage->options.parallel.tp_rank);

    if (own.count == columns) {
        cpu_add_bias(rows, columns, bias, y);
        return;
    }
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < own.count; c++)
            y[r * columns + own.first + c] += bias[c];
}

void cpu_tp_bias_gradient(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                          const float *dy, bool adds, float *sums)
{
    const shard_range own =
        shard_range_of(columns, tp_size_of(&stage->options), stage->options.parallel.tp_rank);

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
