/* The feed-forward block of a transformer: up [hidden or 2 hidden][features], down
 * [features][hidden], and their biases. A tensor-parallel rank has a shard of the hidden features.
 * Tensors and their order are the CPU backend's. */
#include "cuda_stage.h"

/* Whether cuBLASLt fuses the gelu, in each direction; detected at the first try. */
typedef struct mlp_state {
    bool fuses_forward, fuses_backward;
} mlp_state;

/* The activation of an MLP without a gate. */
static cuda_activation activation_of(const stage_mlp *m)
{
    return m->is_relu ? CUDA_RELU : CUDA_GELU;
}

/* Stash: the activation's input [rows][up], unless recomputed, and its output [rows][hidden]; with
 * sequence parallelism also the unsharded layer input [rows][features]; if backward is split in two
 * also the gradient of the activation's input [rows][up]. Epilogues with a gelu require rows of a
 * multiple of 16 bytes and round as the type does; fp32 does not use them. */
static ty_status mlp_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const uint64_t aligned = 8; /* elements of 2 bytes */
    stage_mlp m = stage_mlp_of(stage, node);
    mlp_state *state = ty_alloc(1, sizeof *state);
    uint64_t widest = m.up > m.features ? m.up : m.features;

    TY_TRY(ty_check_memory(state != NULL, error));
    state->fuses_forward = state->fuses_backward =
        stage->own->type != CUDA_TYPE_FLOAT && !m.is_gated && !m.is_relu && m.hidden % aligned == 0;
    node->state = state;
    node->stash_bytes = node->scratch_bytes = m.rows * (m.up + m.hidden) * stage->element;
    node->sum_floats = cuda_affine_sums(m.rows, widest);
    if (node->is_divided)
        node->tp_elements = m.rows * m.features;
    if (stage_finds_product(stage, node)) {
        node->kept_bytes = m.rows * m.up * stage->element;
        node->stash_bytes -= node->kept_bytes;
    }
    if (stage->options.splits_backward)
        node->stash_bytes += m.rows * m.up * stage->element;
    return TY_OK;
}

/* Output of the activation; its input is at the start of the stash. */
static char *mlp_activated(const ty_stage_device *stage, const stage_node *node, uint32_t slot,
                           const stage_mlp *m)
{
    return (char *)node->stash[slot] +
           (node->kept_bytes > 0 ? 0 : m->rows * m->up * stage->element);
}

/* Place of the gradient of the activation's input. */
static char *mlp_hidden_gradient(const ty_stage_device *stage, const stage_node *node,
                                 uint32_t slot, const stage_mlp *m)
{
    const uint64_t bytes = m->rows * m->up * stage->element;

    return stage->options.splits_backward ? (char *)node->stash[slot] + node->stash_bytes - bytes
                                          : stage->scratch;
}

static void mlp_release(ty_stage_device *stage, stage_node *node)
{
    (void)stage;
    ty_free(node->state);
}

static void mlp_activate(const ty_stage_device *stage, const stage_mlp *m, const void *h, void *a)
{
    if (m->is_gated)
        cuda_gate(stage->own->type, m->rows, m->hidden, h, a, stage->own->stream);
    else
        cuda_activate(stage->own->type, activation_of(m), m->rows * m->hidden, h, a,
                      stage->own->stream);
}

static ty_status mlp_up(ty_stage_device *stage, const stage_node *node, const stage_mlp *m,
                        const void *x, void *h, void *a, ty_error *error)
{
    mlp_state *state = node->state;
    cuda_affine up = {.rows = m->rows,
                      .in = m->features,
                      .out = m->up,
                      .x = x,
                      .weight = cuda_weights(stage, node, MLP_UP),
                      .bias = m->has_bias ? cuda_weights(stage, node, MLP_UP_BIAS) : NULL,
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
    mlp_activate(stage, m, h, a);
    return status;
}

/* The bias is the product's epilogue; with TP it is added to the sum over ranks. */
static ty_status mlp_down(ty_stage_device *stage, const stage_node *node, const stage_mlp *m,
                          uint32_t slot, ty_error *error)
{
    void *y = cuda_out(stage, node, slot), *summand = stage_summand(stage, node, false, y);
    bool has_epilogue = m->has_bias && !node->is_divided;
    cuda_affine down = {.rows = m->rows,
                        .in = m->hidden,
                        .out = m->features,
                        .x = mlp_activated(stage, node, slot, m),
                        .weight = cuda_weights(stage, node, MLP_DOWN),
                        .bias = has_epilogue ? cuda_weights(stage, node, MLP_DOWN_BIAS) : NULL,
                        .y = summand};
    ty_status status = cuda_affine_forward(stage, &down, error);

    if (status != TY_OK)
        return status;
    if (m->has_bias && !has_epilogue)
        cuda_add_tp_bias(stage, m->rows, m->features, cuda_parameters(stage, node, MLP_DOWN_BIAS),
                         summand);
    return stage_ranks_sum(stage, node, &node->whole_output, summand, false, y, error);
}

static ty_status mlp_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error)
{
    stage_mlp m = stage_mlp_of(stage, node);
    const void *x;

    TY_TRY(stage_whole_input(stage, node, 0, slot, stage->gather_workspace, &x, error));
    TY_TRY(
        mlp_up(stage, node, &m, x, node->kept[slot], mlp_activated(stage, node, slot, &m), error));
    return mlp_down(stage, node, &m, slot, error);
}

/* Recomputes from the first product: the entire output, or only the activation. */
static ty_status mlp_again(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                           ty_error *error)
{
    stage_mlp m = stage_mlp_of(stage, node);

    mlp_activate(stage, &m, node->kept[slot], mlp_activated(stage, node, slot, &m));
    if (stage->segments.again[node->layer_index].what == TY_AGAIN_ACTIVATION)
        return TY_OK;
    return mlp_down(stage, node, &m, slot, error);
}

/* Computes the gradient of the activation's output into `da`, or, in one fused product, that of its
 * input into `dh`. */
static ty_status activation_backward(ty_stage_device *stage, const stage_node *node,
                                     const stage_mlp *m, cuda_affine_gradient *down, const void *h,
                                     void *da, void *dh, ty_error *error)
{
    mlp_state *state = node->state;
    ty_status status;

    down->dweight = down->dbias = NULL;
    if (state->fuses_backward) {
        down->dx = dh;
        down->x_before_gelu = h;
        status = cuda_affine_backward(stage, down, error);
        if (status != TY_EUNSUPPORTED)
            return status;
        state->fuses_backward = false;
    }
    down->dx = da;
    down->x_before_gelu = NULL;
    status = cuda_affine_backward(stage, down, error);
    if (m->is_gated)
        cuda_gate_backward(stage->own->type, m->rows, m->hidden, h, da, dh, stage->own->stream);
    else
        cuda_activate_backward(stage->own->type, activation_of(m), m->rows * m->hidden, h, da,
                               false, dh, stage->own->stream);
    return status;
}

/* Gradients of the second product and of the activation. */
static ty_status mlp_down_backward(ty_stage_device *stage, const stage_node *node,
                                   const stage_mlp *m, bool is_first, const char *h, const char *a,
                                   char *dh, ty_error *error)
{
    float *dbias = m->has_bias ? cuda_parameter_gradient(stage, node, MLP_DOWN_BIAS) : NULL;
    cuda_affine_gradient down = {.rows = m->rows,
                                 .in = m->hidden,
                                 .out = m->features,
                                 .x = a,
                                 .weight = cuda_weights(stage, node, MLP_DOWN),
                                 .dweight = cuda_parameter_gradient(stage, node, MLP_DOWN),
                                 .dbias = node->is_divided ? NULL : dbias,
                                 .adds_weight = stage_adds(node, MLP_DOWN, is_first),
                                 .adds_bias = stage_adds(node, MLP_DOWN_BIAS, is_first)};
    ty_status status;

    TY_CHECK(cuda_whole_gradient(stage, node, stage->gather_workspace, &down.dy, error), status,
             done);
    TY_CHECK(cuda_affine_backward(stage, &down, error), status, done);
    if (node->is_divided && dbias != NULL)
        cuda_tp_bias_gradient(stage, m->rows, m->features, down.dy, down.adds_bias, dbias);
    if (stage->part != STAGE_WEIGHTS)
        status = activation_backward(stage, node, m, &down, h,
                                     (char *)stage->scratch + m->rows * m->up * stage->element, dh,
                                     error);
done:
    return status;
}

static ty_status mlp_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    stage_mlp m = stage_mlp_of(stage, node);
    char *dh = mlp_hidden_gradient(stage, node, slot, &m);
    cuda_affine_gradient up = {
        .rows = m.rows,
        .in = m.features,
        .out = m.up,
        .weight = cuda_weights(stage, node, MLP_UP),
        .dy = dh,
        .dweight = cuda_parameter_gradient(stage, node, MLP_UP),
        .dbias = m.has_bias ? cuda_parameter_gradient(stage, node, MLP_UP_BIAS) : NULL,
        .adds_weight = stage_adds(node, MLP_UP, is_first),
        .adds_bias = stage_adds(node, MLP_UP_BIAS, is_first)};

    TY_TRY(mlp_down_backward(stage, node, &m, is_first, node->kept[slot],
                             mlp_activated(stage, node, slot, &m), dh, error));
    return cuda_input_product_backward(stage, node, 0, slot, &up, error);
}

const stage_kind cuda_mlp = {.floats = STAGE_BIT(MLP_DOWN_BIAS),
                             .build = mlp_build,
                             .forward = mlp_forward,
                             .again = mlp_again,
                             .backward = mlp_backward,
                             .release = mlp_release};
