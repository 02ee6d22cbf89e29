/*
 * The feed-forward block of a transformer: linear, gelu or relu, linear; or gated (SwiGLU; Shazeer,
 * "GLU variants improve transformer", 2020): linear to gate and value, silu(gate) * value, linear.
 */
#include "cpu_layer.h"
#include "cpu_math.h"
#include "stage_shapes.h"

/* Stash of a slot: input and output of the activation. If backward has two parts, also the gradient
 * of that input, which else is scratch; with sequence parallelism also the gathered input and the
 * gathered gradient of the output. */
typedef struct kept {
    float *h, *a;  /* [rows][up], [rows][hidden] */
    float *dh;     /* [rows][up], or NULL */
    float *x, *dy; /* [rows][features], or NULL */
} kept;

/* Cuts a slot's stash. @return floats of it; `stash` may be NULL to count */
static uint64_t kept_cut(const ty_stage_device *stage, const stage_node *node, const stage_mlp *m,
                         float *found, float *stash, kept *out)
{
    const bool is_found = stage_finds_product(stage, node);
    const bool splits = stage->options.splits_backward;
    const uint64_t whole = splits && stage_gathers(stage, node) ? m->rows * m->features : 0;
    const uint64_t counts[] = {is_found ? 0 : m->rows * m->up, m->rows * m->hidden,
                               splits ? m->rows * m->up : 0, whole, whole};
    float **const parts[] = {&out->h, &out->a, &out->dh, &out->x, &out->dy};
    uint64_t used = 0;

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *parts[i] = stash != NULL && counts[i] > 0 ? stash + used : NULL;
        used += counts[i];
    }
    if (is_found)
        out->h = found;
    return used;
}

static ty_status mlp_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    stage_mlp m = stage_mlp_of(stage, node);
    kept none;

    (void)error;
    node->stash_bytes = kept_cut(stage, node, &m, NULL, NULL, &none) * sizeof(float);
    node->kept_bytes = stage_finds_product(stage, node) ? m.rows * m.up * sizeof(float) : 0;
    node->scratch_bytes = m.rows * (m.up + m.hidden) * sizeof(float);
    node->tp_elements = node->is_divided ? m.rows * m.features : 0;
    return TY_OK;
}

/* Adds the bias to `h` in place and applies gelu. */
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

CPU_CLONES static void relu_rows(uint64_t rows, uint64_t n, const float *bias, const float *h,
                                 float *a)
{
    for (uint64_t r = 0; r < rows; r++, h += n, a += n)
        for (uint64_t i = 0; i < n; i++) {
            const float x = h[i] + (bias != NULL ? bias[i] : 0.0f);
            a[i] = x > 0.0f ? x : 0.0f;
        }
}

CPU_CLONES static void relu_gradient(uint64_t count, const float *a, const float *da, float *dh)
{
    for (uint64_t i = 0; i < count; i++)
        dh[i] = a[i] > 0.0f ? da[i] : 0.0f;
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

void cpu_mlp_activate(bool is_gated, uint64_t rows, uint64_t hidden, const float *bias, float *h,
                      float *a)
{
    if (is_gated)
        gated_rows(rows, hidden, bias, h, a);
    else
        gelu_rows(rows, hidden, bias, h, a);
}

void cpu_mlp_activate_backward(bool is_gated, uint64_t rows, uint64_t hidden, const float *h,
                               const float *da, float *dh)
{
    if (is_gated)
        gated_gradient(rows, hidden, h, da, dh);
    else
        cpu_gelu_backward(rows * hidden, h, da, dh);
}

static cpu_output_product down_product(const stage_mlp *m, const kept *keep)
{
    return (cpu_output_product){.rows = m->rows,
                                .in = m->hidden,
                                .out = m->features,
                                .weight = MLP_DOWN,
                                .bias = MLP_DOWN_BIAS,
                                .has_bias = m->has_bias,
                                .x = keep->a,
                                .dy = keep->dy};
}

static ty_status mlp_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error)
{
    stage_mlp m = stage_mlp_of(stage, node);
    const float *bias = m.has_bias ? cpu_parameters(stage, node, MLP_UP_BIAS) : NULL, *x;
    cpu_output_product down;
    kept keep;
    ty_status status;

    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    status = cpu_whole_input(stage, node, 0, slot, stage->gather_workspace, &x, error);
    if (status != TY_OK)
        return status;
    cpu_affine(m.rows, m.features, m.up, x, cpu_parameters(stage, node, MLP_UP), NULL, keep.h);
    if (m.is_relu)
        relu_rows(m.rows, m.hidden, bias, keep.h, keep.a);
    else
        cpu_mlp_activate(m.is_gated, m.rows, m.hidden, bias, keep.h, keep.a);
    down = down_product(&m, &keep);
    return cpu_output_product_forward(stage, node, slot, &down, error);
}

/* Recomputes from the first product, to which gelu has added its bias: all, or the activation. */
static ty_status mlp_again(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                           ty_error *error)
{
    const stage_mlp m = stage_mlp_of(stage, node);
    const float *bias = m.has_bias ? cpu_parameters(stage, node, MLP_UP_BIAS) : NULL;
    cpu_output_product down;
    kept keep;

    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    if (m.is_relu)
        relu_rows(m.rows, m.hidden, bias, keep.h, keep.a);
    else
        cpu_mlp_activate(m.is_gated, m.rows, m.hidden, NULL, keep.h, keep.a);
    if (stage->segments.again[node->layer_index].what == TY_AGAIN_ACTIVATION)
        return TY_OK;
    down = down_product(&m, &keep);
    return cpu_output_product_forward(stage, node, slot, &down, error);
}

static ty_status mlp_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    stage_mlp m = stage_mlp_of(stage, node);
    float *da = stage->scratch, *dh;
    cpu_output_product down;
    kept keep;
    ty_status status;

    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    dh = keep.dh != NULL ? keep.dh : da + m.rows * m.hidden;
    down = down_product(&m, &keep);
    status = cpu_output_product_backward(stage, node, slot, &down, is_first, da, error);
    if (status != TY_OK)
        return status;
    if (stage->part != STAGE_WEIGHTS && m.is_relu)
        relu_gradient(m.rows * m.hidden, keep.a, da, dh);
    else if (stage->part != STAGE_WEIGHTS)
        cpu_mlp_activate_backward(m.is_gated, m.rows, m.hidden, keep.h, da, dh);
    return cpu_input_product_backward(stage, node, slot,
                                      &(cpu_input_product){.rows = m.rows,
                                                           .in = m.features,
                                                           .out = m.up,
                                                           .weight = MLP_UP,
                                                           .bias = MLP_UP_BIAS,
                                                           .has_bias = m.has_bias,
                                                           .x = keep.x},
                                      dh, is_first, error);
}

static ty_status mlp_supports(const ty_workload *workload, uint32_t layer, ty_error *error)
{
    const ty_layer *l = &workload->layers[layer];

    if (l->attributes[TY_IS_RELU] != 0 && l->attributes[TY_IS_GATED] != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: the cpu backend does not train a gated mlp with is_relu",
                       l->name);
    return TY_OK;
}

const stage_kind cpu_mlp = {
    .supports = mlp_supports,
    .build = mlp_build,
    .forward = mlp_forward,
    .again = mlp_again,
    .backward = mlp_backward,
};
