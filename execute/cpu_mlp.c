/*
 * The feed-forward block of a transformer: linear, gelu, linear; or gated (SwiGLU; Shazeer, "GLU
 * variants improve transformer", 2020): linear to gate and value, silu(gate) * value, linear.
 */
#include "cpu_layer.h"
#include "cpu_math.h"

enum { UP, DOWN, UP_BIAS, DOWN_BIAS };

typedef struct mlp {
    uint64_t rows, features, hidden;
    uint64_t up; /* columns of the first product: hidden, or twice that */
    bool is_gated, has_bias;
} mlp;

static mlp mlp_of(const ty_stage_device *stage, const cpu_node *node)
{
    const uint64_t *a = node->layer->attributes;
    bool is_gated = a[TY_IS_GATED] != 0;

    return (mlp){
        .rows = cpu_rows(&stage->values[node->output]),
        .features = a[TY_FEATURES],
        .hidden = a[TY_HIDDEN_FEATURES],
        .up = a[TY_HIDDEN_FEATURES] * (is_gated ? 2 : 1),
        .is_gated = is_gated,
        .has_bias = a[TY_HAS_BIAS] != 0,
    };
}

/* up [hidden or 2 hidden][features], down [features][hidden], and their biases. The gate is the
 * first half of the rows of up. */
static uint32_t mlp_tensors(const ty_workload *workload, uint32_t index,
                            cpu_tensor tensors[CPU_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    uint64_t hidden = a[TY_HIDDEN_FEATURES], up = hidden * (a[TY_IS_GATED] != 0 ? 2 : 1);

    tensors[UP] = (cpu_tensor){.count = up * a[TY_FEATURES],
                               .deviation = ty_init_transformer_deviation(workload, false)};
    tensors[DOWN] = (cpu_tensor){.count = a[TY_FEATURES] * hidden,
                                 .deviation = ty_init_transformer_deviation(workload, true)};
    tensors[UP_BIAS] = (cpu_tensor){.count = up};
    tensors[DOWN_BIAS] = (cpu_tensor){.count = a[TY_FEATURES]};
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

/* Stash: what goes into the activation [rows][up], and what comes out [rows][hidden]; where
 * backward comes in two parts also the gradient of the former, which else is scratch. */
static ty_status mlp_build(ty_stage_device *stage, cpu_node *node, ty_error *error)
{
    mlp m = mlp_of(stage, node);

    (void)error;
    node->stash_bytes =
        m.rows * (m.up + m.hidden + (stage->options.splits_backward ? m.up : 0)) * sizeof(float);
    node->scratch_bytes = m.rows * (m.up + m.hidden) * sizeof(float);
    return TY_OK;
}

/* Adds the bias to `h`, keeps that, and applies gelu. */
CPU_CLONES static void gelu_rows(uint64_t rows, uint64_t n, const float *bias, float *h, float *a)
{
    for (uint64_t r = 0; r < rows; r++, h += n, a += n) {
        if (bias != NULL)
            for (uint64_t i = 0; i < n; i++)
                h[i] += bias[i];
        for (uint64_t i = 0; i < n; i++)
            a[i] = cpu_gelu_of(h[i]);
    }
}

CPU_CLONES static void gated_rows(uint64_t rows, uint64_t n, const float *bias, float *h, float *a)
{
    for (uint64_t r = 0; r < rows; r++, h += 2 * n, a += n) {
        if (bias != NULL)
            for (uint64_t i = 0; i < 2 * n; i++)
                h[i] += bias[i];
        for (uint64_t i = 0; i < n; i++)
            a[i] = h[i] * cpu_sigmoid(h[i]) * h[n + i];
    }
}

CPU_CLONES static void gated_gradient(uint64_t rows, uint64_t n, const float *h, const float *da,
                                      float *dh)
{
    for (uint64_t r = 0; r < rows; r++, h += 2 * n, dh += 2 * n, da += n)
        for (uint64_t i = 0; i < n; i++) {
            float s = cpu_sigmoid(h[i]);
            dh[n + i] = da[i] * h[i] * s;
            dh[i] = da[i] * h[n + i] * s * (1.0f + h[i] * (1.0f - s));
        }
}

static ty_status mlp_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                             ty_error *error)
{
    mlp m = mlp_of(stage, node);
    float *h = node->stash[slot], *a = h + m.rows * m.up;
    const float *bias = m.has_bias ? cpu_parameters(stage, node, UP_BIAS) : NULL;

    (void)error;
    cpu_affine(m.rows, m.features, m.up, cpu_in(stage, node, 0, slot),
               cpu_parameters(stage, node, UP), NULL, h);
    if (m.is_gated)
        gated_rows(m.rows, m.hidden, bias, h, a);
    else
        gelu_rows(m.rows, m.hidden, bias, h, a);
    cpu_affine(m.rows, m.hidden, m.features, a, cpu_parameters(stage, node, DOWN),
               m.has_bias ? cpu_parameters(stage, node, DOWN_BIAS) : NULL,
               cpu_out(stage, node, slot));
    return TY_OK;
}

static ty_status mlp_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    mlp m = mlp_of(stage, node);
    float *h = node->stash[slot], *a = h + m.rows * m.up, *da = stage->scratch;
    float *dh = stage->options.splits_backward ? a + m.rows * m.hidden : da + m.rows * m.hidden;
    cpu_affine_gradient down = {
        .weight = cpu_parameter_gradient(stage, node, DOWN),
        .bias = m.has_bias ? cpu_parameter_gradient(stage, node, DOWN_BIAS) : NULL,
        .x = stage->part == CPU_WEIGHTS ? NULL : da,
        .adds_weight = cpu_adds(node, DOWN, is_first),
        .adds_bias = cpu_adds(node, DOWN_BIAS, is_first),
    };
    cpu_affine_gradient up = {
        .weight = cpu_parameter_gradient(stage, node, UP),
        .bias = m.has_bias ? cpu_parameter_gradient(stage, node, UP_BIAS) : NULL,
        .x = cpu_in_gradient(stage, node, 0, slot),
        .adds_weight = cpu_adds(node, UP, is_first),
        .adds_bias = cpu_adds(node, UP_BIAS, is_first),
        .adds_x = node->adds[0],
    };

    (void)error;
    cpu_affine_backward(m.rows, m.hidden, m.features, a, cpu_parameters(stage, node, DOWN),
                        cpu_out_gradient(stage, node, slot), &down);
    if (stage->part != CPU_WEIGHTS && m.is_gated)
        gated_gradient(m.rows, m.hidden, h, da, dh);
    else if (stage->part != CPU_WEIGHTS)
        cpu_gelu_backward(m.rows * m.hidden, h, da, dh);
    cpu_affine_backward(m.rows, m.features, m.up, cpu_in(stage, node, 0, slot),
                        cpu_parameters(stage, node, UP), dh, &up);
    return TY_OK;
}

const cpu_kind cpu_mlp = {
    .tensors = mlp_tensors,
    .build = mlp_build,
    .forward = mlp_forward,
    .backward = mlp_backward,
};
