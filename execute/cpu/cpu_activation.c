/* Activation layers: relu if it is not fused, gelu, silu, tanh. */
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

void cpu_activate(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                  const void *x, void *y)
{
    static void (*const functions[])(uint64_t, const float *, float *) = {
        [STAGE_RELU] = cpu_relu_forward,
        [STAGE_GELU] = cpu_gelu_forward,
        [STAGE_SILU] = cpu_silu_forward,
        [STAGE_TANH] = tanh_rows,
    };

    (void)stage;
    functions[kind](count, x, y);
}

/* In place (the usual case of a relu), input and output share their gradient; no other node adds to
 * it. */
void cpu_activate_backward(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                           const void *of, const void *dy, bool adds, void *dx)
{
    float *to = adds ? stage->scratch : dx;

    if (kind == STAGE_RELU && dx == dy)
        cpu_relu_mask(count, of, dx);
    else if (kind == STAGE_RELU)
        relu_gradient(count, of, dy, adds, dx);
    else if (kind == STAGE_TANH)
        tanh_gradient(count, of, dy, adds, dx);
    else {
        (kind == STAGE_GELU ? cpu_gelu_backward : cpu_silu_backward)(count, of, dy, to);
        if (adds)
            cpu_accumulate(count, to, true, dx);
    }
}

/* Scratch for gradients of gelu and silu that are added. */
static ty_status smooth_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    (void)error;
    node->scratch_bytes = stage->values[node->output].count * sizeof(float);
    return TY_OK;
}

/* Overwrites its input if it is the only reader. The layer that computes the input may fuse the
 * relu, unless it averages numbers that the relu would change. */
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

#define ACTIVATION(kind)                                                                           \
    .activation = (kind), .forward = stage_activation_forward, .backward = stage_activation_backward

const stage_kind cpu_relu = {.order = STAGE_ANY_ORDER, .join = relu_join, ACTIVATION(STAGE_RELU)};
const stage_kind cpu_gelu = {.build = smooth_build, ACTIVATION(STAGE_GELU)};
const stage_kind cpu_silu = {.build = smooth_build, ACTIVATION(STAGE_SILU)};
const stage_kind cpu_tanh_layer = {.reads_output = true, ACTIVATION(STAGE_TANH)};
