/* Some rows of the first dimension of every sample. */
#include "cpu_layer.h"

#include <string.h>

/* Floats: of a sample of the input, before the rows that are read, of these. */
typedef struct slice {
    uint64_t sample, before, count;
} slice;

static slice slice_of(const ty_stage_device *stage, const stage_node *node)
{
    const stage_value *input = &stage->values[node->inputs[0]];
    const uint64_t sample = input->count / stage_batch(stage);
    const uint64_t row = sample / input->shape.dimensions[0];

    return (slice){sample, node->layer->attributes[TY_FIRST_ROW] * row,
                   node->layer->attributes[TY_ROWS] * row};
}

static ty_status slice_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               ty_error *error)
{
    const slice s = slice_of(stage, node);
    const float *x = cpu_in(stage, node, 0, slot);
    float *y = cpu_out(stage, node, slot);

    (void)error;
    for (uint64_t b = 0; b < stage_batch(stage); b++)
        memcpy(y + b * s.count, x + b * s.sample + s.before, s.count * sizeof *y);
    return TY_OK;
}

/* Rows that are not read have no gradient from here. */
static ty_status slice_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                bool is_first, ty_error *error)
{
    const slice s = slice_of(stage, node);
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *dx = cpu_in_gradient(stage, node, 0, slot);

    (void)is_first, (void)error;
    if (dx == NULL)
        return TY_OK;
    if (!node->adds[0])
        memset(dx, 0, stage_batch(stage) * s.sample * sizeof *dx);
    for (uint64_t b = 0; b < stage_batch(stage); b++)
        cpu_accumulate(s.count, dy + b * s.count, true, dx + b * s.sample + s.before);
    return TY_OK;
}

const stage_kind cpu_slice_layer = {.forward = slice_forward, .backward = slice_backward};
