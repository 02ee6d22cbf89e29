/* Sums of several inputs, and inputs one behind the other or side by side. */
#include "cpu_layer.h"

#include <string.h>

static ty_status add_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error)
{
    uint64_t count = stage->values[node->output].count;
    float *y = cpu_out(stage, node, slot);
    uint32_t next = 1;

    (void)error;
    if (node->input_count == 1)
        cpu_accumulate(count, cpu_in(stage, node, 0, slot), false, y);
    else
        cpu_sum(count, cpu_in(stage, node, 0, slot), cpu_in(stage, node, next++, slot), y);
    for (; next < node->input_count; next++)
        cpu_accumulate(count, cpu_in(stage, node, next, slot), true, y);
    return TY_OK;
}

/* An input may share the output's gradient (stage_gradients.c decides); then nothing is left to do.
 */
static ty_status add_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    const float *dy = cpu_out_gradient(stage, node, slot);

    (void)is_first, (void)error;
    for (uint32_t i = 0; i < node->input_count; i++) {
        float *dx = cpu_in_gradient(stage, node, i, slot);
        if (dx != NULL && dx != dy)
            cpu_accumulate(stage->values[node->output].count, dy, node->adds[i], dx);
    }
    return TY_OK;
}

/* What is made of a piece of each input: a sample, or, along the last dimension, a row. */
static uint64_t concat_count(const ty_stage_device *stage, const stage_node *node)
{
    return node->layer->attributes[TY_IS_OF_FEATURES] != 0
               ? stage_rows(&stage->values[node->output])
               : stage_batch(stage);
}

static ty_status concat_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                ty_error *error)
{
    uint64_t count = concat_count(stage, node);
    uint64_t row = stage->values[node->output].count / count, at = 0;
    float *y = cpu_out(stage, node, slot);

    (void)error;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint64_t piece = stage->values[node->inputs[i]].count / count;
        const float *x = cpu_in(stage, node, i, slot);
        for (uint64_t b = 0; b < count; b++)
            memcpy(y + b * row + at, x + b * piece, piece * sizeof *y);
        at += piece;
    }
    return TY_OK;
}

static ty_status concat_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    uint64_t count = concat_count(stage, node);
    uint64_t row = stage->values[node->output].count / count, at = 0;
    const float *dy = cpu_out_gradient(stage, node, slot);

    (void)is_first, (void)error;
    for (uint32_t i = 0; i < node->input_count; i++) {
        uint64_t piece = stage->values[node->inputs[i]].count / count;
        float *dx = cpu_in_gradient(stage, node, i, slot);
        for (uint64_t b = 0; b < count && dx != NULL; b++)
            cpu_accumulate(piece, dy + b * row + at, node->adds[i], dx + b * piece);
        at += piece;
    }
    return TY_OK;
}

const stage_kind cpu_add = {
    .order = STAGE_ANY_ORDER, .is_sum = true, .forward = add_forward, .backward = add_backward};
const stage_kind cpu_concat = {.forward = concat_forward, .backward = concat_backward};
