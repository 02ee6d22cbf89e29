/* The first of some vectors, followed by the product of each with every one before it: (1,0),
 * (2,0), (2,1), .. (Naumov et al., arXiv:1906.00091, section 2.1). */
#include "cpu_layer.h"
#include "cpu_math.h"

#include <string.h>

CPU_CLONES static float dot(uint64_t count, const float *a, const float *b)
{
    float sum = 0.0f;

#pragma omp simd reduction(+ : sum)
    for (uint64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

CPU_CLONES static void add_scaled(uint64_t count, float scale, const float *x, float *to)
{
#pragma omp simd
    for (uint64_t i = 0; i < count; i++)
        to[i] += scale * x[i];
}

static ty_status interaction_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     ty_error *error)
{
    const uint64_t size = stage->values[node->inputs[0]].count / stage_batch(stage);
    float *y = cpu_out(stage, node, slot);

    (void)error;
    for (uint64_t s = 0; s < stage_batch(stage); s++) {
        memcpy(y, cpu_in(stage, node, 0, slot) + s * size, size * sizeof *y);
        y += size;
        for (uint32_t i = 1; i < node->input_count; i++)
            for (uint32_t k = 0; k < i; k++)
                *y++ = dot(size, cpu_in(stage, node, i, slot) + s * size,
                           cpu_in(stage, node, k, slot) + s * size);
    }
    return TY_OK;
}

static void pair_backward(const ty_stage_device *stage, const stage_node *node, uint32_t slot,
                          uint32_t to, uint32_t from, uint64_t at, uint64_t size, float dy)
{
    float *dx = cpu_in_gradient(stage, node, to, slot);

    if (dx != NULL)
        add_scaled(size, dy, cpu_in(stage, node, from, slot) + at, dx + at);
}

static ty_status interaction_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                      bool is_first, ty_error *error)
{
    const uint64_t size = stage->values[node->inputs[0]].count / stage_batch(stage);
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *first = cpu_in_gradient(stage, node, 0, slot);

    (void)is_first, (void)error;
    for (uint32_t i = 0; i < node->input_count; i++) {
        float *dx = cpu_in_gradient(stage, node, i, slot);
        if (dx != NULL && !node->adds[i])
            memset(dx, 0, stage_batch(stage) * size * sizeof *dx);
    }
    for (uint64_t s = 0; s < stage_batch(stage); s++) {
        if (first != NULL)
            cpu_accumulate(size, dy, true, first + s * size);
        dy += size;
        for (uint32_t i = 1; i < node->input_count; i++)
            for (uint32_t k = 0; k < i; k++, dy++) {
                pair_backward(stage, node, slot, i, k, s * size, size, *dy);
                pair_backward(stage, node, slot, k, i, s * size, size, *dy);
            }
    }
    return TY_OK;
}

const stage_kind cpu_dot_interaction = {.forward = interaction_forward,
                                        .backward = interaction_backward};
