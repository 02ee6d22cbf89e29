/* Convolutions, in channels-last layout, with the relu behind them if there is one. */
#include "cpu_layer.h"

/* Gradients that are to be added to something lie behind oneDNN's own working memory, and so does a
 * gradient of the input. */
static uint64_t own_scratch_offset(const cpu_node *node)
{
    return (cpu_conv_scratch_bytes(node->state) + 63) / 64 * 64;
}

static uint64_t weight_count(const cpu_node *node)
{
    const uint64_t *a = node->layer->attributes;
    return a[TY_OUT_CHANNELS] * (a[TY_IN_CHANNELS] / a[TY_GROUPS]) * a[TY_KERNEL_HEIGHT] *
           a[TY_KERNEL_WIDTH];
}

static ty_status conv2d_build(ty_stage_device *stage, cpu_node *node, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const cpu_value *in = &stage->values[node->inputs[0]], *out = &stage->values[node->output];
    cpu_conv_shape shape = {
        .batch = cpu_batch(stage),
        .groups = a[TY_GROUPS],
        .in_channels = a[TY_IN_CHANNELS],
        .in_height = in->shape.dimensions[1],
        .in_width = in->shape.dimensions[2],
        .out_channels = a[TY_OUT_CHANNELS],
        .out_height = out->shape.dimensions[1],
        .out_width = out->shape.dimensions[2],
        .kernel_height = a[TY_KERNEL_HEIGHT],
        .kernel_width = a[TY_KERNEL_WIDTH],
        .stride = a[TY_STRIDE],
        .padding_height = a[TY_PADDING_HEIGHT],
        .padding_width = a[TY_PADDING_WIDTH],
        .has_bias = a[TY_HAS_BIAS] != 0,
        .has_relu = node->has_relu,
        .has_weight_gradient = !node->layer->is_frozen,
        .has_input_gradient = in->needs_gradient,
    };
    cpu_conv *conv = NULL;
    uint64_t own;
    ty_status status = cpu_conv_open(&shape, node->layer->name, &conv, error);

    if (status != TY_OK)
        return status;
    node->state = conv;
    own = weight_count(node) + a[TY_OUT_CHANNELS];
    if (node->adds[0] && in->needs_gradient && in->count > own)
        own = in->count;
    node->scratch_bytes = own_scratch_offset(node) + own * sizeof(float);
    return TY_OK;
}

static void conv2d_release(cpu_node *node)
{
    cpu_conv_close(node->state);
}

static ty_status conv2d_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                ty_error *error)
{
    bool has_bias = node->layer->attributes[TY_HAS_BIAS] != 0;

    return cpu_conv_forward(node->state, cpu_in(stage, node, 0, slot),
                            cpu_parameters(stage, node, 0),
                            has_bias ? cpu_parameters(stage, node, 1) : NULL,
                            cpu_out(stage, node, slot), stage->scratch, error);
}

static ty_status weight_gradients(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                  bool is_first, float *scratch, ty_error *error)
{
    bool has_bias = node->layer->attributes[TY_HAS_BIAS] != 0;
    float *dw = cpu_parameter_gradient(stage, node, 0),
          *db = has_bias ? cpu_parameter_gradient(stage, node, 1) : NULL;
    uint64_t weights = weight_count(node), out = node->layer->attributes[TY_OUT_CHANNELS];
    ty_status status;

    if (dw == NULL)
        return TY_OK;
    if (!cpu_adds(node, 0, is_first))
        return cpu_conv_backward_weights(node->state, cpu_in(stage, node, 0, slot),
                                         cpu_out_gradient(stage, node, slot), dw, db,
                                         stage->scratch, error);
    status = cpu_conv_backward_weights(node->state, cpu_in(stage, node, 0, slot),
                                       cpu_out_gradient(stage, node, slot), scratch,
                                       has_bias ? scratch + weights : NULL, stage->scratch, error);
    if (status != TY_OK)
        return status;
    cpu_accumulate(weights, scratch, true, dw);
    if (has_bias)
        cpu_accumulate(out, scratch + weights, true, db);
    return TY_OK;
}

static ty_status conv2d_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    float *dy = cpu_out_gradient(stage, node, slot), *dx = cpu_in_gradient(stage, node, 0, slot);
    float *scratch = (float *)(void *)((char *)stage->scratch + own_scratch_offset(node));
    float *to = node->adds[0] ? scratch : dx;
    ty_status status;

    if (node->has_relu)
        cpu_relu_mask(stage->values[node->output].count, cpu_out(stage, node, slot), dy);
    status = weight_gradients(stage, node, slot, is_first, scratch, error);
    if (status != TY_OK || dx == NULL)
        return status;
    status = cpu_conv_backward_data(node->state, dy, cpu_parameters(stage, node, 0), to,
                                    stage->scratch, error);
    if (status == TY_OK && to != dx)
        cpu_accumulate(stage->values[node->inputs[0]].count, to, true, dx);
    return status;
}

const cpu_kind cpu_conv2d = {
    .layout = CPU_CHANNELS_LAST,
    .fuses_relu = true,
    .build = conv2d_build,
    .forward = conv2d_forward,
    .backward = conv2d_backward,
    .release = conv2d_release,
};
