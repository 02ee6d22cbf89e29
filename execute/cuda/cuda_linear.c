/* Layers that are mostly matrix products: linear, mlp, attention. Tensors and their order are the
 * CPU backend's. */
#include "cuda_stage.h"

#include <math.h>

/* ---- Linear: weight [out][in], bias [out] ---- */

static uint32_t linear_tensors(const ty_workload *workload, uint32_t index,
                               cuda_tensor tensors[CUDA_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;

    tensors[0] = (cuda_tensor){.count = a[TY_IN_FEATURES] * a[TY_OUT_FEATURES],
                               .deviation = ty_init_deviation(workload, a[TY_IN_FEATURES])};
    tensors[1] = (cuda_tensor){.count = a[TY_OUT_FEATURES]};
    return a[TY_HAS_BIAS] != 0 ? 2 : 1;
}

static ty_status linear_build(ty_stage_device *stage, cuda_node *node, ty_error *error)
{
    (void)error;
    node->sum_floats = cuda_affine_sums(cuda_rows(&stage->values[node->output]),
                                        node->layer->attributes[TY_OUT_FEATURES]);
    return TY_OK;
}

static ty_status linear_forward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    cuda_affine f = {.rows = cuda_rows(&stage->values[node->output]),
                     .in = a[TY_IN_FEATURES],
                     .out = a[TY_OUT_FEATURES],
                     .x = cuda_in(stage, node, 0, slot),
                     .weight = cuda_weights(stage, node, 0),
                     .bias = a[TY_HAS_BIAS] != 0 ? cuda_weights(stage, node, 1) : NULL,
                     .y = cuda_out(stage, node, slot)};

    return cuda_affine_forward(stage, &f, error);
}

static ty_status linear_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                 bool is_first, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    cuda_affine_gradient g = {.rows = cuda_rows(&stage->values[node->output]),
                              .in = a[TY_IN_FEATURES],
                              .out = a[TY_OUT_FEATURES],
                              .x = cuda_in(stage, node, 0, slot),
                              .weight = cuda_weights(stage, node, 0),
                              .dy = cuda_out_gradient(stage, node),
                              .dweight = cuda_parameter_gradient(stage, node, 0),
                              .dbias = a[TY_HAS_BIAS] != 0 ? cuda_parameter_gradient(stage, node, 1)
                                                           : NULL,
                              .dx = cuda_in_gradient(stage, node, 0),
                              .adds_weight = cuda_adds(node, 0, is_first),
                              .adds_bias = cuda_adds(node, 1, is_first),
                              .adds_x = node->adds[0]};

    return cuda_affine_backward(stage, &g, error);
}

const cuda_kind cuda_linear = {.tensors = linear_tensors,
                               .build = linear_build,
                               .forward = linear_forward,
                               .backward = linear_backward};

/* ---- Mlp: up [hidden or 2 hidden][features], down [features][hidden], their biases ---- */

enum { UP, DOWN, UP_BIAS, DOWN_BIAS };

typedef struct mlp {
    uint64_t rows, features, hidden, up;
    bool is_gated, has_bias;
} mlp;

/* Whether cuBLASLt does the gelu along the way, in each direction; found out at the first try. */
typedef struct mlp_state {
    bool fuses_forward, fuses_backward;
} mlp_state;

static mlp mlp_of(const ty_stage_device *stage, const cuda_node *node)
{
    const uint64_t *a = node->layer->attributes;
    bool is_gated = a[TY_IS_GATED] != 0;

    return (mlp){.rows = cuda_rows(&stage->values[node->output]),
                 .features = a[TY_FEATURES],
                 .hidden = a[TY_HIDDEN_FEATURES],
                 .up = a[TY_HIDDEN_FEATURES] * (is_gated ? 2 : 1),
                 .is_gated = is_gated,
                 .has_bias = a[TY_HAS_BIAS] != 0};
}

static uint32_t mlp_tensors(const ty_workload *workload, uint32_t index,
                            cuda_tensor tensors[CUDA_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    uint64_t hidden = a[TY_HIDDEN_FEATURES], up = hidden * (a[TY_IS_GATED] != 0 ? 2 : 1);

    tensors[UP] = (cuda_tensor){.count = up * a[TY_FEATURES],
                                .deviation = ty_init_transformer_deviation(workload, false)};
    tensors[DOWN] = (cuda_tensor){.count = a[TY_FEATURES] * hidden,
                                  .deviation = ty_init_transformer_deviation(workload, true)};
    tensors[UP_BIAS] = (cuda_tensor){.count = up};
    tensors[DOWN_BIAS] = (cuda_tensor){.count = a[TY_FEATURES]};
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

/* Stash: before the activation [rows][up], behind it [rows][hidden]. The epilogues that do a gelu
 * want rows of a multiple of 16 bytes, and round as the type does; in fp32 they are not used. */
static ty_status mlp_build(ty_stage_device *stage, cuda_node *node, ty_error *error)
{
    const uint64_t aligned = 8; /* elements of 2 bytes */
    mlp m = mlp_of(stage, node);
    mlp_state *state = ty_alloc(1, sizeof *state);
    uint64_t widest = m.up > m.features ? m.up : m.features;

    if (state == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    state->fuses_forward = state->fuses_backward =
        stage->type != CUDA_TYPE_FLOAT && !m.is_gated && m.hidden % aligned == 0;
    node->state = state;
    node->stash_bytes = node->scratch_bytes = m.rows * (m.up + m.hidden) * stage->element;
    node->sum_floats = cuda_affine_sums(m.rows, widest);
    return TY_OK;
}

static void mlp_release(ty_stage_device *stage, cuda_node *node)
{
    (void)stage;
    ty_free(node->state);
}

static ty_status mlp_up(ty_stage_device *stage, const cuda_node *node, uint32_t slot, const mlp *m,
                        void *h, void *a, ty_error *error)
{
    mlp_state *state = node->state;
    cuda_affine up = {.rows = m->rows,
                      .in = m->features,
                      .out = m->up,
                      .x = cuda_in(stage, node, 0, slot),
                      .weight = cuda_weights(stage, node, UP),
                      .bias = m->has_bias ? cuda_weights(stage, node, UP_BIAS) : NULL,
                      .y = a,
                      .before_gelu = h};
    ty_status status;

    if (state->fuses_forward) {
        status = cuda_affine_forward(stage, &up, error);
        if (status != TY_EUNSUPPORTED)
            return status;
        state->fuses_forward = false;
    }
    up.y = h;
    up.before_gelu = NULL;
    status = cuda_affine_forward(stage, &up, error);
    if (m->is_gated)
        cuda_gate(stage->type, m->rows, m->hidden, h, a, stage->stream);
    else
        cuda_activate(stage->type, CUDA_GELU, m->rows * m->hidden, h, a, stage->stream);
    return status;
}

static ty_status mlp_forward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                             ty_error *error)
{
    mlp m = mlp_of(stage, node);
    char *h = node->stash[slot], *a = h + m.rows * m.up * stage->element;
    cuda_affine down = {.rows = m.rows,
                        .in = m.hidden,
                        .out = m.features,
                        .x = a,
                        .weight = cuda_weights(stage, node, DOWN),
                        .bias = m.has_bias ? cuda_weights(stage, node, DOWN_BIAS) : NULL,
                        .y = cuda_out(stage, node, slot)};
    ty_status status = mlp_up(stage, node, slot, &m, h, a, error);

    return status == TY_OK ? cuda_affine_forward(stage, &down, error) : status;
}

/* From the output's gradient to that of what went into the activation. */
static ty_status mlp_down_backward(ty_stage_device *stage, const cuda_node *node, const mlp *m,
                                   bool is_first, const char *h, char *dh, ty_error *error)
{
    mlp_state *state = node->state;
    char *da = dh + m->rows * m->up * stage->element;
    cuda_affine_gradient down = {
        .rows = m->rows,
        .in = m->hidden,
        .out = m->features,
        .x = h + m->rows * m->up * stage->element,
        .weight = cuda_weights(stage, node, DOWN),
        .dy = cuda_out_gradient(stage, node),
        .dweight = cuda_parameter_gradient(stage, node, DOWN),
        .dbias = m->has_bias ? cuda_parameter_gradient(stage, node, DOWN_BIAS) : NULL,
        .adds_weight = cuda_adds(node, DOWN, is_first),
        .adds_bias = cuda_adds(node, DOWN_BIAS, is_first)};
    cuda_affine_gradient input = down;
    ty_status status = cuda_affine_backward(stage, &down, error);

    input.dweight = input.dbias = NULL;
    if (status == TY_OK && state->fuses_backward) {
        input.dx = dh;
        input.x_before_gelu = h;
        status = cuda_affine_backward(stage, &input, error);
        if (status != TY_EUNSUPPORTED)
            return status;
        state->fuses_backward = false;
        status = TY_OK;
    }
    input.dx = da;
    input.x_before_gelu = NULL;
    if (status == TY_OK)
        status = cuda_affine_backward(stage, &input, error);
    if (m->is_gated)
        cuda_gate_backward(stage->type, m->rows, m->hidden, h, da, dh, stage->stream);
    else
        cuda_activate_backward(stage->type, CUDA_GELU, m->rows * m->hidden, h, da, false, dh,
                               stage->stream);
    return status;
}

static ty_status mlp_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    mlp m = mlp_of(stage, node);
    char *dh = stage->scratch;
    cuda_affine_gradient up = {.rows = m.rows,
                               .in = m.features,
                               .out = m.up,
                               .x = cuda_in(stage, node, 0, slot),
                               .weight = cuda_weights(stage, node, UP),
                               .dy = dh,
                               .dweight = cuda_parameter_gradient(stage, node, UP),
                               .dbias = m.has_bias ? cuda_parameter_gradient(stage, node, UP_BIAS)
                                                   : NULL,
                               .dx = cuda_in_gradient(stage, node, 0),
                               .adds_weight = cuda_adds(node, UP, is_first),
                               .adds_bias = cuda_adds(node, UP_BIAS, is_first),
                               .adds_x = node->adds[0]};
    ty_status status = mlp_down_backward(stage, node, &m, is_first, node->stash[slot], dh, error);

    return status == TY_OK ? cuda_affine_backward(stage, &up, error) : status;
}

const cuda_kind cuda_mlp = {.tensors = mlp_tensors,
                            .build = mlp_build,
                            .forward = mlp_forward,
                            .backward = mlp_backward,
                            .release = mlp_release};

/* ---- Attention: project [queries | keys | values][features], out [features][queries] ---- */

enum { PROJECT, OUT, PROJECT_BIAS, OUT_BIAS };

typedef struct attention {
    uint64_t rows, features, queries, project;
    bool has_bias;
    cuda_attention core;
} attention;

static attention attention_of(const ty_stage_device *stage, const cuda_node *node)
{
    const uint64_t *a = node->layer->attributes;
    uint64_t length = stage->values[node->output].shape.dimensions[0], size = a[TY_HEAD_SIZE];
    uint64_t queries = a[TY_HEADS] * size, project = queries + 2 * a[TY_KV_HEADS] * size;
    attention at = {.rows = cuda_batch(stage) * length,
                    .features = a[TY_FEATURES],
                    .queries = queries,
                    .project = project,
                    .has_bias = a[TY_HAS_BIAS] != 0,
                    .core = {.batch = cuda_batch(stage),
                             .length = length,
                             .heads = a[TY_HEADS],
                             .kv_heads = a[TY_KV_HEADS],
                             .head_size = size,
                             .stride = project,
                             .key_at = queries,
                             .value_at = queries + a[TY_KV_HEADS] * size,
                             .context_stride = queries,
                             .scale = 1.0f / sqrtf((float)size),
                             .is_causal = a[TY_IS_CAUSAL] != 0}};

    (void)cuda_attention_tiles(stage->type, stage->shared_bytes, &at.core);
    return at;
}

static uint32_t attention_tensors(const ty_workload *workload, uint32_t index,
                                  cuda_tensor tensors[CUDA_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    uint64_t queries = a[TY_HEADS] * a[TY_HEAD_SIZE];
    uint64_t project = queries + 2 * a[TY_KV_HEADS] * a[TY_HEAD_SIZE];

    tensors[PROJECT] = (cuda_tensor){.count = project * a[TY_FEATURES],
                                     .deviation = ty_init_transformer_deviation(workload, false)};
    tensors[OUT] = (cuda_tensor){.count = a[TY_FEATURES] * queries,
                                 .deviation = ty_init_transformer_deviation(workload, true)};
    tensors[PROJECT_BIAS] = (cuda_tensor){.count = project};
    tensors[OUT_BIAS] = (cuda_tensor){.count = a[TY_FEATURES]};
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

/* Stash: projections [rows][project], context [rows][queries], log-sums [batch][heads][length].
 * Scratch: the gradients of the first two, and the deltas. */
static ty_status attention_build(ty_stage_device *stage, cuda_node *node, ty_error *error)
{
    attention at = attention_of(stage, node);
    uint64_t log_sums = at.core.batch * at.core.heads * at.core.length * sizeof(float);

    if (!cuda_attention_tiles(stage->type, stage->shared_bytes, &at.core))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: heads of %llu need more shared memory than the GPU's %llu bytes",
                       node->layer->name, (unsigned long long)at.core.head_size,
                       (unsigned long long)stage->shared_bytes);
    if (at.core.heads > UINT16_MAX || at.core.batch > UINT16_MAX)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %llu heads and %llu samples, expected at most %d of each",
                       node->layer->name, (unsigned long long)at.core.heads,
                       (unsigned long long)at.core.batch, UINT16_MAX);
    node->stash_bytes = at.rows * (at.project + at.queries) * stage->element + log_sums + 256;
    node->scratch_bytes = node->stash_bytes;
    node->sum_floats =
        cuda_affine_sums(at.rows, at.project > at.features ? at.project : at.features);
    return TY_OK;
}

/* Pieces of a stash, or of the scratch of the same shape. */
typedef struct attention_memory {
    char *project, *context;
    float *rows; /* log-sums, or deltas */
} attention_memory;

static attention_memory memory_at(const ty_stage_device *stage, const attention *at, void *base)
{
    attention_memory m = {.project = base};
    uintptr_t end;

    m.context = m.project + at->rows * at->project * stage->element;
    end = (uintptr_t)(m.context + at->rows * at->queries * stage->element);
    m.rows = (float *)((end + 255) / 256 * 256);
    return m;
}

static ty_status attention_forward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                   ty_error *error)
{
    attention at = attention_of(stage, node);
    attention_memory m = memory_at(stage, &at, node->stash[slot]);
    cuda_affine in = {.rows = at.rows,
                      .in = at.features,
                      .out = at.project,
                      .x = cuda_in(stage, node, 0, slot),
                      .weight = cuda_weights(stage, node, PROJECT),
                      .bias = at.has_bias ? cuda_weights(stage, node, PROJECT_BIAS) : NULL,
                      .y = m.project};
    cuda_affine out = {.rows = at.rows,
                       .in = at.queries,
                       .out = at.features,
                       .x = m.context,
                       .weight = cuda_weights(stage, node, OUT),
                       .bias = at.has_bias ? cuda_weights(stage, node, OUT_BIAS) : NULL,
                       .y = cuda_out(stage, node, slot)};
    ty_status status = cuda_affine_forward(stage, &in, error);

    if (status != TY_OK)
        return status;
    cuda_attention_forward(stage->type, &at.core, m.project, m.context, m.rows, stage->stream);
    return cuda_affine_forward(stage, &out, error);
}

static ty_status attention_backward(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    attention at = attention_of(stage, node);
    attention_memory m = memory_at(stage, &at, node->stash[slot]);
    attention_memory d = memory_at(stage, &at, stage->scratch);
    cuda_affine_gradient out = {
        .rows = at.rows,
        .in = at.queries,
        .out = at.features,
        .x = m.context,
        .weight = cuda_weights(stage, node, OUT),
        .dy = cuda_out_gradient(stage, node),
        .dweight = cuda_parameter_gradient(stage, node, OUT),
        .dbias = at.has_bias ? cuda_parameter_gradient(stage, node, OUT_BIAS) : NULL,
        .dx = d.context,
        .adds_weight = cuda_adds(node, OUT, is_first),
        .adds_bias = cuda_adds(node, OUT_BIAS, is_first)};
    cuda_affine_gradient in = {
        .rows = at.rows,
        .in = at.features,
        .out = at.project,
        .x = cuda_in(stage, node, 0, slot),
        .weight = cuda_weights(stage, node, PROJECT),
        .dy = d.project,
        .dweight = cuda_parameter_gradient(stage, node, PROJECT),
        .dbias = at.has_bias ? cuda_parameter_gradient(stage, node, PROJECT_BIAS) : NULL,
        .dx = cuda_in_gradient(stage, node, 0),
        .adds_weight = cuda_adds(node, PROJECT, is_first),
        .adds_bias = cuda_adds(node, PROJECT_BIAS, is_first),
        .adds_x = node->adds[0]};
    ty_status status = cuda_affine_backward(stage, &out, error);

    if (status != TY_OK)
        return status;
    cuda_attention_backward(stage->type, &at.core, m.project, m.context, m.rows, d.context, d.rows,
                            d.project, stage->stream);
    return cuda_affine_backward(stage, &in, error);
}

const cuda_kind cuda_attention_kind = {.tensors = attention_tensors,
                                       .build = attention_build,
                                       .forward = attention_forward,
                                       .backward = attention_backward};
