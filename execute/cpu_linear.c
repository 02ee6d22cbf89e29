/* Linear layers over the innermost dimension, with the relu behind them if there is one. */
#include "cpu_layer.h"

static uint64_t in_features(const ty_layer *layer)
{
    return layer->attributes[TY_IN_FEATURES];
}

static uint64_t out_features(const ty_layer *layer)
{
    return layer->attributes[TY_OUT_FEATURES];
}

/* weight [out][in], bias [out] */
static uint32_t linear_tensors(const ty_workload *workload, uint32_t index,
                               cpu_tensor tensors[CPU_MAX_TENSORS])
{
    const ty_layer *layer = &workload->layers[index];

    tensors[0] = (cpu_tensor){
        .count = in_features(layer) * out_features(layer),
        .deviation = ty_init_deviation(workload, in_features(layer)),
    };
    tensors[1] = (cpu_tensor){.count = out_features(layer)};
    return layer->attributes[TY_HAS_BIAS] != 0 ? 2 : 1;
}

static ty_status linear_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                ty_error *error)
{
    const ty_layer *layer = node->layer;
    uint64_t rows = cpu_rows(&stage->values[node->output]), out = out_features(layer);
    bool has_bias = layer->attributes[TY_HAS_BIAS] != 0;
    float *y = cpu_out(stage, node, slot);

    (void)error;
    cpu_affine(rows, in_features(layer), out, cpu_in(stage, node, 0, slot),
               cpu_parameters(stage, node, 0), NULL, y);
    if (node->has_relu && has_bias)
        cpu_add_bias_relu(rows, out, cpu_parameters(stage, node, 1), y);
    else if (node->has_relu)
        cpu_relu_forward(rows * out, y, y);
    else if (has_bias)
        cpu_add_bias(rows, out, cpu_parameters(stage, node, 1), y);
    return TY_OK;
}

static ty_status linear_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    const ty_layer *layer = node->layer;
    uint64_t rows = cpu_rows(&stage->values[node->output]), out = out_features(layer);
    float *dy = cpu_out_gradient(stage, node, slot);
    cpu_affine_gradient to = {
        .weight = cpu_parameter_gradient(stage, node, 0),
        .bias = layer->attributes[TY_HAS_BIAS] != 0 ? cpu_parameter_gradient(stage, node, 1) : NULL,
        .x = cpu_in_gradient(stage, node, 0, slot),
        .adds_weight = cpu_adds(node, 0, is_first),
        .adds_bias = cpu_adds(node, 1, is_first),
        .adds_x = node->adds[0],
    };

    (void)error;
    if (node->has_relu)
        cpu_relu_mask(rows * out, cpu_out(stage, node, slot), dy);
    cpu_affine_backward(rows, in_features(layer), out, cpu_in(stage, node, 0, slot),
                        cpu_parameters(stage, node, 0), dy, &to);
    return TY_OK;
}

const cpu_kind cpu_linear = {
    .fuses_relu = true,
    .tensors = linear_tensors,
    .forward = linear_forward,
    .backward = linear_backward,
};
