/* Rows of a table chosen by tokens, plus a row per position. */
#include "cpu_layer.h"

#include <string.h>

/* table [vocabulary][features], positions [positions][features] */
static uint32_t embedding_tensors(const ty_workload *workload, uint32_t index,
                                  cpu_tensor tensors[CPU_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    double deviation = ty_init_transformer_deviation(workload, false);

    tensors[0] = (cpu_tensor){.count = a[TY_VOCABULARY] * a[TY_FEATURES], .deviation = deviation};
    tensors[1] = (cpu_tensor){.count = a[TY_POSITIONS] * a[TY_FEATURES], .deviation = deviation};
    return a[TY_POSITIONS] > 0 ? 2 : 1;
}

static ty_status embedding_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                   ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    uint64_t features = a[TY_FEATURES], length = stage->values[0].shape.dimensions[0];
    const int32_t *tokens = stage->tokens[slot];
    const float *table = cpu_parameters(stage, node, 0), *positions = NULL;
    float *y = cpu_out(stage, node, slot);

    if (a[TY_POSITIONS] > 0)
        positions = cpu_parameters(stage, node, 1);
    for (uint64_t i = 0; i < cpu_batch(stage) * length; i++, y += features) {
        if (tokens[i] < 0 || (uint64_t)tokens[i] >= a[TY_VOCABULARY])
            return ty_fail(error, TY_EINVAL, "layer %s: token %ld at place %lu, expected 0 to %lu",
                           node->layer->name, (long)tokens[i], (unsigned long)i,
                           (unsigned long)(a[TY_VOCABULARY] - 1));
        memcpy(y, table + (uint64_t)tokens[i] * features, features * sizeof *y);
        if (positions != NULL)
            cpu_accumulate(features, positions + i % length * features, true, y);
    }
    return TY_OK;
}

static void gradient_clear(const ty_stage_device *stage, const cpu_node *node, uint32_t tensor,
                           uint64_t rows, bool is_first)
{
    if (!cpu_adds(node, tensor, is_first))
        memset(cpu_parameter_gradient(stage, node, tensor), 0,
               rows * node->layer->attributes[TY_FEATURES] * sizeof(float));
}

static ty_status embedding_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    uint64_t features = a[TY_FEATURES], length = stage->values[0].shape.dimensions[0];
    const int32_t *tokens = stage->tokens[slot];
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *table = cpu_parameter_gradient(stage, node, 0), *positions = NULL;

    (void)error;
    if (table == NULL)
        return TY_OK;
    gradient_clear(stage, node, 0, a[TY_VOCABULARY], is_first);
    if (a[TY_POSITIONS] > 0) {
        gradient_clear(stage, node, 1, a[TY_POSITIONS], is_first);
        positions = cpu_parameter_gradient(stage, node, 1);
    }
    for (uint64_t i = 0; i < cpu_batch(stage) * length; i++, dy += features) {
        cpu_accumulate(features, dy, true, table + (uint64_t)tokens[i] * features);
        if (positions != NULL)
            cpu_accumulate(features, dy, true, positions + i % length * features);
    }
    return TY_OK;
}

const cpu_kind cpu_embedding = {
    .tensors = embedding_tensors,
    .forward = embedding_forward,
    .backward = embedding_backward,
};
