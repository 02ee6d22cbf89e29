/* Changes of memory layout. */
#include "cpu_layer.h"
#include "cpu_math.h"

/* One sample's [rows][columns] matrix to [columns][rows]. */
CPU_CLONES static void transpose(uint64_t rows, uint64_t columns, const float *from, bool adds,
                                 float *to)
{
    for (uint64_t c = 0; c < columns; c++)
        for (uint64_t r = 0; r < rows; r++) {
            float sum = from[r * columns + c];
            to[c * rows + r] = adds ? to[c * rows + r] + sum : sum;
        }
}

static void transpose_batch(const ty_stage_device *stage, const stage_value *image,
                            bool is_to_plain, const float *from, bool adds, float *to)
{
    uint64_t channels = image->shape.dimensions[0];
    uint64_t pixels = image->shape.dimensions[1] * image->shape.dimensions[2];

    for (uint64_t b = 0; b < stage_batch(stage); b++) {
        uint64_t offset = b * channels * pixels;
        if (is_to_plain)
            transpose(pixels, channels, from + offset, adds, to + offset);
        else
            transpose(channels, pixels, from + offset, adds, to + offset);
    }
}

static void layout_backward(const ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            bool is_to_plain)
{
    float *dx = cpu_in_gradient(stage, node, 0, slot);

    if (dx != NULL)
        transpose_batch(stage, &stage->values[node->inputs[0]], is_to_plain,
                        cpu_out_gradient(stage, node, slot), node->adds[0], dx);
}

/* The shape is the input's: the output of a flatten has lost it. */
static ty_status to_plain_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                  ty_error *error)
{
    (void)error;
    transpose_batch(stage, &stage->values[node->inputs[0]], true, cpu_in(stage, node, 0, slot),
                    false, cpu_out(stage, node, slot));
    return TY_OK;
}

static ty_status to_plain_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   bool is_first, ty_error *error)
{
    (void)is_first, (void)error;
    layout_backward(stage, node, slot, false);
    return TY_OK;
}

static ty_status to_channels_last_forward(ty_stage_device *stage, const stage_node *node,
                                          uint32_t slot, ty_error *error)
{
    (void)error;
    transpose_batch(stage, &stage->values[node->inputs[0]], false, cpu_in(stage, node, 0, slot),
                    false, cpu_out(stage, node, slot));
    return TY_OK;
}

static ty_status to_channels_last_backward(ty_stage_device *stage, const stage_node *node,
                                           uint32_t slot, bool is_first, ty_error *error)
{
    (void)is_first, (void)error;
    layout_backward(stage, node, slot, true);
    return TY_OK;
}

const stage_kind cpu_to_plain = {.forward = to_plain_forward, .backward = to_plain_backward};
const stage_kind cpu_to_channels_last = {.forward = to_channels_last_forward,
                                         .backward = to_channels_last_backward};
