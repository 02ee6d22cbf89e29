/* Activations on their own: relu where it cannot be fused, gelu, silu, tanh. */
#include "cpu_layer.h"
#include "cpu_math.h"

CPU_CLONES void cpu_relu_forward(uint64_t count, const float *x, float *y)
{
    for (uint64_t i = 0; i < count; i++)
        y[i] = x[i] > 0.0f ? x[i] : 0.0f;
}

CPU_CLONES static void relu_gradient(uint64_t count, const float *y, const float *dy, bool adds,
                                     float *dx)
{
    if (adds)
        for (uint64_t i = 0; i < count; i++)
            dx[i] += y[i] > 0.0f ? dy[i] : 0.0f;
    else
        for (uint64_t i = 0; i < count; i++)
            dx[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

CPU_CLONES void cpu_gelu_forward(uint64_t count, const float *x, float *y)
{
    for (uint64_t i = 0; i < count; i++)
        y[i] = cpu_gelu_of(x[i]);
}

CPU_CLONES void cpu_gelu_backward(uint64_t count, const float *x, const float *dy, float *dx)
{
    for (uint64_t i = 0; i < count; i++)
        dx[i] = dy[i] * cpu_gelu_slope(x[i]);
}

CPU_CLONES void cpu_silu_forward(uint64_t count, const float *x, float *y)
{
    for (uint64_t i = 0; i < count; i++)
        y[i] = x[i] * cpu_sigmoid(x[i]);
}

CPU_CLONES void cpu_silu_backward(uint64_t count, const float *x, const float *dy, float *dx)
{
    for (uint64_t i = 0; i < count; i++) {
        float s = cpu_sigmoid(x[i]);
        dx[i] = dy[i] * s * (1.0f + x[i] * (1.0f - s));
    }
}

CPU_CLONES static void tanh_rows(uint64_t count, const float *x, float *y)
{
    for (uint64_t i = 0; i < count; i++)
        y[i] = cpu_tanh(x[i]);
}

CPU_CLONES static void tanh_gradient(uint64_t count, const float *y, const float *dy, bool adds,
                                     float *dx)
{
    for (uint64_t i = 0; i < count; i++)
        dx[i] = (adds ? dx[i] : 0.0f) + dy[i] * (1.0f - y[i] * y[i]);
}

static ty_status tanh_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    (void)error;
    tanh_rows(stage->values[node->output].count, cpu_in(stage, node, 0, slot),
              cpu_out(stage, node, slot));
    return TY_OK;
}

static ty_status tanh_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    float *dx = cpu_in_gradient(stage, node, 0, slot);

    (void)is_first, (void)error;
    if (dx != NULL)
        tanh_gradient(stage->values[node->output].count, cpu_out(stage, node, slot),
                      cpu_out_gradient(stage, node, slot), node->adds[0], dx);
    return TY_OK;
}

static ty_status relu_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    (void)error;
    cpu_relu_forward(stage->values[node->output].count, cpu_in(stage, node, 0, slot),
                     cpu_out(stage, node, slot));
    return TY_OK;
}

/* In place (the usual case) input and output share their gradient, which nobody else adds to. */
static ty_status relu_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const float *y = cpu_out(stage, node, slot);
    float *dy = cpu_out_gradient(stage, node, slot), *dx = cpu_in_gradient(stage, node, 0, slot);
    uint64_t count = stage->values[node->output].count;

    (void)is_first, (void)error;
    if (dx == dy)
        cpu_relu_mask(count, y, dy);
    else if (dx != NULL)
        relu_gradient(count, y, dy, node->adds[0], dx);
    return TY_OK;
}

/* The other activations need their input again, so they are never in place. */
static ty_status smooth_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    (void)error;
    node->scratch_bytes = stage->values[node->output].count * sizeof(float);
    return TY_OK;
}

static ty_status gelu_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    (void)error;
    cpu_gelu_forward(stage->values[node->output].count, cpu_in(stage, node, 0, slot),
                     cpu_out(stage, node, slot));
    return TY_OK;
}

static ty_status silu_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    (void)error;
    cpu_silu_forward(stage->values[node->output].count, cpu_in(stage, node, 0, slot),
                     cpu_out(stage, node, slot));
    return TY_OK;
}

static void smooth_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            void (*gradient)(uint64_t, const float *, const float *, float *))
{
    uint64_t count = stage->values[node->output].count;
    float *dx = cpu_in_gradient(stage, node, 0, slot);
    float *to = node->adds[0] ? stage->scratch : dx;

    if (dx == NULL)
        return;
    gradient(count, cpu_in(stage, node, 0, slot), cpu_out_gradient(stage, node, slot), to);
    if (to != dx)
        cpu_accumulate(count, to, true, dx);
}

static ty_status gelu_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    (void)is_first, (void)error;
    smooth_backward(stage, node, slot, cpu_gelu_backward);
    return TY_OK;
}

static ty_status silu_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    (void)is_first, (void)error;
    smooth_backward(stage, node, slot, cpu_silu_backward);
    return TY_OK;
}

/* Overwrites its input if it is the only reader; the layer that made that may do the work at once,
 * unless it averages numbers that the relu would change. */
static bool relu_join(stage_lowering *low, const stage_place *place)
{
    const uint32_t input = place->inputs[0];
    stage_node *last = stage_last_node(low);

    if (!low->stage->values[input].is_private)
        return false;
    stage_value_share(low, input, place->output);
    if (last == NULL || last->output != input || !last->kind->fuses_relu ||
        (last->pool != NULL && last->pool->attributes[TY_IS_AVERAGE] != 0))
        return false;
    last->has_relu = true;
    return true;
}

const stage_kind cpu_relu = {.order = STAGE_ANY_ORDER,
                             .join = relu_join,
                             .forward = relu_forward,
                             .backward = relu_backward};
const stage_kind cpu_gelu = {
    .build = smooth_build, .forward = gelu_forward, .backward = gelu_backward};
const stage_kind cpu_tanh_layer = {
    .reads_output = true, .forward = tanh_forward, .backward = tanh_backward};
const stage_kind cpu_silu = {
    .build = smooth_build, .forward = silu_forward, .backward = silu_backward};
