/* How tensor parallelism divides layers among the lanes of a rank, and what the lanes then tell
   each other. */
#include "lanes.h"

#include <inttypes.h>

/* The loss over a divided vocabulary exchanges three numbers a label: the largest score, the sum of
   exponentials and the score of the label. Source: Shoeybi et al., "Megatron-LM", 2019, section 3.
 */
#define LOSS_NUMBERS_PER_LABEL 3
#define LOSS_NUMBER_BYTES 4

/* Whether the loss reads this layer: an output projection then, which is divided as the vocabulary.
 */
static bool is_read_by_loss(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *loss = &workload->layers[workload->layer_count - 1];

    if (loss->kind != TY_LAYER_SOFTMAX_CROSS_ENTROPY || workload->tokens_per_sample == 0)
        return false;
    for (uint32_t i = 0; i < loss->input_count; i++)
        if (loss->inputs[i] == layer)
            return true;
    return false;
}

/* Whether what the layer makes has a sequence to be divided. */
static bool is_along_sequence(const ty_workload *workload, const ty_layer *layer)
{
    return workload->tokens_per_sample > 0 && layer->output.dimension_count == 2;
}

ty_tensor_split ty_layer_tensor_split(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *l = &workload->layers[layer];

    switch (l->kind) {
    case TY_LAYER_ATTENTION:
        return TY_SPLIT_HEADS;
    case TY_LAYER_MLP:
        return TY_SPLIT_HIDDEN;
    case TY_LAYER_MOE:
        return TY_SPLIT_EXPERTS;
    case TY_LAYER_EMBEDDING:
        return TY_SPLIT_VOCABULARY;
    case TY_LAYER_LINEAR:
        if (is_read_by_loss(workload, layer))
            return TY_SPLIT_VOCABULARY;
        break;
    case TY_LAYER_SOFTMAX_CROSS_ENTROPY:
        if (l->input_count == 1 &&
            ty_layer_tensor_split(workload, l->inputs[0]) == TY_SPLIT_VOCABULARY)
            return TY_SPLIT_VOCABULARY;
        break;
    case TY_LAYER_LAYER_NORM:
    case TY_LAYER_RMS_NORM:
    case TY_LAYER_RELU:
    case TY_LAYER_GELU:
    case TY_LAYER_SILU:
    case TY_LAYER_TANH:
    case TY_LAYER_ADD:
        if (is_along_sequence(workload, l))
            return TY_SPLIT_SEQUENCE;
        break;
    case TY_LAYER_CONV2D:
    case TY_LAYER_BATCH_NORM:
    case TY_LAYER_POOL:
    case TY_LAYER_LSTM:
    case TY_LAYER_CONCAT:
    case TY_LAYER_FLATTEN:
    case TY_LAYER_SLICE:
    case TY_LAYER_OPAQUE:
    case TY_LAYER_KIND_COUNT:
        break;
    }
    return TY_SPLIT_NONE;
}

ty_status ty_tensor_check(const ty_workload *workload, uint32_t lanes, ty_error *error)
{
    bool is_divided = false;

    if (lanes <= 1)
        return TY_OK;
    for (uint32_t i = 0; i < workload->layer_count; i++) {
        const ty_layer *l = &workload->layers[i];
        const ty_tensor_split split = ty_layer_tensor_split(workload, i);
        const ty_attribute attribute =
            split == TY_SPLIT_HEADS ? TY_HEADS : TY_HIDDEN_FEATURES; /* a vocabulary is padded */

        if (split != TY_SPLIT_HEADS && split != TY_SPLIT_HIDDEN && split != TY_SPLIT_EXPERTS)
            continue;
        is_divided = true;
        if (l->attributes[attribute] % lanes != 0)
            return ty_fail(error, TY_EINVAL,
                           "tensor parallel %u: layer %u (\"%s\") has %s %" PRIu64
                           ", expected a divisor of it",
                           lanes, i, l->name, ty_attribute_name(attribute),
                           l->attributes[attribute]);
    }
    if (!is_divided)
        return ty_fail(
            error, TY_EINVAL,
            "tensor parallel %u: workload \"%s\" has no attention, mlp or moe layer that "
            "could be divided, expected 1",
            lanes, workload->name);
    return TY_OK;
}

double ty_tensor_parameter_share(const ty_plan *plan, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(plan->workload, layer);

    return split == TY_SPLIT_NONE || split == TY_SPLIT_SEQUENCE
               ? 1
               : 1.0 / ty_plan_lanes(plan, TY_TENSOR_LANES);
}

double ty_tensor_work_share(const ty_plan *plan, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(plan->workload, layer);

    return split == TY_SPLIT_NONE || (split == TY_SPLIT_SEQUENCE && !plan->sequence_parallel)
               ? 1
               : 1.0 / ty_plan_lanes(plan, TY_TENSOR_LANES);
}

static ty_inner_collective of_tensors(ty_collective_kind kind, uint64_t bytes, uint32_t count)
{
    return (ty_inner_collective){TY_TENSOR_LANES, kind, bytes, count};
}

/* All of a tensor, in the form that tensor or sequence parallelism exchanges it. */
static uint32_t exchange_whole(const ty_plan *plan, uint64_t bytes, bool gathers, bool scatters,
                               ty_inner_collective *out)
{
    uint32_t count = 0;

    if (!plan->sequence_parallel) {
        if (scatters) /* a sum that every lane needs; what is to be gathered is whole already */
            out[count++] = of_tensors(TY_ALL_REDUCE, bytes, 1);
        return count;
    }
    if (gathers)
        out[count++] = of_tensors(TY_ALL_GATHER, bytes / ty_plan_lanes(plan, TY_TENSOR_LANES), 1);
    if (scatters)
        out[count++] = of_tensors(TY_REDUCE_SCATTER, bytes, 1);
    return count;
}

uint32_t ty_tensor_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                     ty_inner_collective *out)
{
    const ty_workload *workload = plan->workload;
    const ty_layer *l = &workload->layers[layer];
    const uint64_t output = ty_lane_bytes(plan, l->output_bytes);
    const ty_shape *input = ty_layer_input_shape(workload, layer, 0);

    if (ty_plan_lanes(plan, TY_TENSOR_LANES) == 1)
        return 0;
    switch (ty_layer_tensor_split(workload, layer)) {
    case TY_SPLIT_HEADS:
    case TY_SPLIT_HIDDEN:
    case TY_SPLIT_EXPERTS:
        return exchange_whole(plan, output, true, true, out);
    case TY_SPLIT_VOCABULARY:
        if (l->kind == TY_LAYER_EMBEDDING)
            return exchange_whole(plan, output, is_backward, !is_backward, out);
        if (l->kind == TY_LAYER_LINEAR)
            return exchange_whole(
                plan, ty_lane_bytes(plan, ty_shape_elements(input) * workload->element_bytes),
                !is_backward, is_backward, out);
        if (is_backward)
            return 0;
        out[0] = of_tensors(TY_ALL_REDUCE,
                            ty_lane_bytes(plan, workload->tokens_per_sample * LOSS_NUMBER_BYTES),
                            LOSS_NUMBERS_PER_LABEL);
        return 1;
    case TY_SPLIT_NONE:
    case TY_SPLIT_SEQUENCE:
        break;
    }
    return 0;
}

/* Whether every lane makes the same of equal gradients, whatever else is in their bucket. */
static bool is_elementwise(ty_compression_kind kind)
{
    return kind == TY_COMPRESSION_NONE || kind == TY_COMPRESSION_FP16 ||
           kind == TY_COMPRESSION_BF16;
}

uint64_t ty_bucket_lane_bytes(const ty_plan *plan, const ty_bucket *bucket)
{
    const ty_workload *workload = plan->workload;
    const uint32_t members = ty_bucket_device_count(plan, bucket);
    const bool is_alike = members == 1 || is_elementwise(bucket->compression.kind);
    uint64_t elements = 0;

    if (ty_plan_lanes(plan, TY_TENSOR_LANES) == 1 || bucket->tied_stage != TY_NO_STAGE ||
        bucket->of_experts || (!plan->sequence_parallel && is_alike))
        return 0;
    for (uint32_t i = bucket->first_layer; i < bucket->first_layer + bucket->layer_count; i++)
        if (!workload->layers[i].is_frozen && ty_tensor_parameter_share(plan, i) >= 1)
            elements += workload->layers[i].parameter_bytes / workload->element_bytes;
    if (ty_bucket_is_sharded(plan, bucket))
        elements = (elements + members - 1) / members;
    return elements * TY_GRADIENT_ELEMENT_BYTES;
}

uint64_t ty_layer_lane_bytes(const ty_plan *plan, uint32_t layer)
{
    const ty_layer *l = &plan->workload->layers[layer];
    const uint64_t lanes = ty_plan_lanes(plan, TY_TENSOR_LANES);

    if (lanes > 1 && l->kind == TY_LAYER_LINEAR &&
        ty_layer_tensor_split(plan->workload, layer) == TY_SPLIT_VOCABULARY) {
        const uint64_t rows = l->attributes[TY_OUT_FEATURES];
        return l->output_bytes / rows * ((rows + lanes - 1) / lanes);
    }
    return plan->sequence_parallel ? l->output_bytes / lanes : l->output_bytes;
}
