/* Linear layers over the innermost dimension, with the relu after them if there is one. A
 * tensor-parallel rank has the rows of its words of the output projection before the loss. */
#include "cpu_layer.h"

static uint64_t in_features(const ty_layer *layer)
{
    return layer->attributes[TY_IN_FEATURES];
}

/* Output features of this rank, padded. */
static uint64_t out_features(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t out = node->layer->attributes[TY_OUT_FEATURES];
    return node->is_divided ? shard_size(out, tp_size_of(&stage->options)) : out;
}

/* With sequence parallelism and a backward in two parts, a slot stores the gathered input. */
static ty_status linear_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const uint64_t rows = stage_rows(&stage->values[node->output]);

    (void)error;
    if (node->is_divided)
        node->tp_elements = rows * in_features(node->layer);
    if (stage_gathers(stage, node) && stage->options.splits_backward)
        node->stash_bytes = node->tp_elements * sizeof(float);
    return TY_OK;
}

static ty_status linear_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                ty_error *error)
{
    const ty_layer *layer = node->layer;
    uint64_t rows = stage_rows(&stage->values[node->output]), out = out_features(stage, node);
    bool has_bias = layer->attributes[TY_HAS_BIAS] != 0;
    const float *x;
    float *y = cpu_out(stage, node, slot);
    ty_status status = cpu_whole_input(stage, node, 0, slot, stage->gather_workspace, &x, error);

    if (status != TY_OK)
        return status;
    cpu_affine(rows, in_features(layer), out, x, cpu_parameters(stage, node, 0), NULL, y);
    if (node->has_relu && has_bias)
        cpu_add_bias_relu(rows, out, cpu_parameters(stage, node, 1), y);
    else if (node->has_relu)
        cpu_relu_forward(rows * out, y, y);
    else if (has_bias)
        cpu_add_bias(rows, out, cpu_parameters(stage, node, 1), y);
    return TY_OK;
}

static ty_status linear_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    const cpu_input_product product = {
        .rows = stage_rows(&stage->values[node->output]),
        .in = in_features(node->layer),
        .out = out_features(stage, node),
        .weight = 0,
        .bias = 1,
        .has_bias = node->layer->attributes[TY_HAS_BIAS] != 0,
        .x = node->stash_bytes > 0 ? node->stash[slot] : NULL,
    };
    float *dy = cpu_out_gradient(stage, node, slot);

    if (node->has_relu)
        cpu_relu_mask(product.rows * product.out, cpu_out(stage, node, slot), dy);
    return cpu_input_product_backward(stage, node, slot, &product, dy, is_first, error);
}

const stage_kind cpu_linear = {
    .fuses_relu = true,
    .build = linear_build,
    .forward = linear_forward,
    .backward = linear_backward,
};
