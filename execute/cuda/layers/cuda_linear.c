/* Linear layers: weight [out][in], bias [out]. A tensor-parallel rank has a shard of the rows of an
 * output projection before the loss. Tensors and their order are the CPU backend's. */
#include "cuda_stage.h"

/* Output features of this rank, padded. */
static uint64_t out_features(const ty_stage_device *stage, const stage_node *node)
{
    return shard_size(node->layer->attributes[TY_OUT_FEATURES], stage_shards(stage, node));
}

/* Scores may be padded; the weight then has as many rows of zeros, which also aligns the bias. */
static uint64_t out_stride(const ty_stage_device *stage, const stage_node *node)
{
    const ty_shape *out = &stage->values[node->output].shape;

    return out->dimensions[out->dimension_count - 1];
}

uint64_t cuda_linear_padding(const ty_stage_device *stage, const stage_node *node)
{
    return node->kind == &cuda_linear ? (out_stride(stage, node) - out_features(stage, node)) *
                                            node->layer->attributes[TY_IN_FEATURES]
                                      : 0;
}

static ty_status linear_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const uint64_t rows = stage_rows(&stage->values[node->output]), out = out_features(stage, node);
    const uint64_t sums = cuda_affine_sums(rows, out);
    const uint64_t rest =
        cuda_affine_rest(node->layer->attributes[TY_IN_FEATURES], out, out_stride(stage, node));

    (void)error;
    node->sum_floats = sums > rest ? sums : rest;
    if (node->is_divided)
        node->tp_elements = rows * node->layer->attributes[TY_IN_FEATURES];
    return TY_OK;
}

static ty_status linear_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    cuda_affine f = {.rows = stage_rows(&stage->values[node->output]),
                     .in = a[TY_IN_FEATURES],
                     .out = out_stride(stage, node),
                     .weight = cuda_weights(stage, node, 0),
                     .bias = a[TY_HAS_BIAS] != 0 ? cuda_weights(stage, node, 1) : NULL,
                     .y = cuda_out(stage, node, slot)};
    ty_status status =
        stage_whole_input(stage, node, 0, slot, stage->gather_workspace, &f.x, error);

    return status == TY_OK ? cuda_affine_forward(stage, &f, error) : status;
}

static ty_status linear_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    cuda_affine_gradient g = {.rows = stage_rows(&stage->values[node->output]),
                              .in = a[TY_IN_FEATURES],
                              .out = out_features(stage, node),
                              .dy_stride = out_stride(stage, node),
                              .is_padded = cuda_linear_padding(stage, node) > 0,
                              .weight = cuda_weights(stage, node, 0),
                              .dy = cuda_out_gradient(stage, node),
                              .dweight = cuda_parameter_gradient(stage, node, 0),
                              .dbias = a[TY_HAS_BIAS] != 0 ? cuda_parameter_gradient(stage, node, 1)
                                                           : NULL,
                              .adds_weight = stage_adds(node, 0, is_first),
                              .adds_bias = stage_adds(node, 1, is_first)};

    return cuda_input_product_backward(stage, node, 0, slot, &g, error);
}

/* The gradient overwrites scores that only the loss of this stage reads. Their rows are padded to a
 * size that fast products of 16-bit numbers need, for any vocabulary. */
static bool scores_join(stage_lowering *low, const stage_place *place)
{
    const uint32_t after = place->layer + 1 < low->end ? place->layer + 1 : place->layer;
    const ty_layer *next = &low->workload->layers[after];
    stage_value *value = &low->stage->values[place->output];
    uint64_t *classes = &value->shape.dimensions[value->shape.dimension_count - 1];
    const uint64_t several =
        *classes < CUDA_MANY_SCORES ? CUDA_SCORE_ALIGNMENT : CUDA_SCORE_PADDING;

    if (!ty_layer_row_of(next)->is_loss || next->input_count != 1 ||
        next->inputs[0] != place->layer)
        return false;
    value->becomes_gradient = true;
    if (low->stage->own->type != CUDA_TYPE_FLOAT)
        *classes = (*classes + several - 1) / several * several;
    value->count = ty_shape_elements(&value->shape) * stage_batch(low->stage);
    return false;
}

const stage_kind cuda_linear = {.join = scores_join,
                                .build = linear_build,
                                .forward = linear_forward,
                                .backward = linear_backward};
