/* Mlps and mixtures of them. mlp: T rows of D features, F hidden ones. moe: the same rows; E
 * experts of F hidden features, k of them for a token; shared ones of S hidden features together,
 * for all tokens. */
#include "layer_kind.h"

#include <stdio.h>

static uint32_t mlp_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    const uint64_t hidden = a[TY_HIDDEN_FEATURES], up = hidden * (a[TY_IS_GATED] != 0 ? 2 : 1);

    tensors[0] = layer_matrix("up.weight", up, a[TY_FEATURES], TY_START_NORMAL, TY_BY_ROWS);
    tensors[1] =
        layer_matrix("down.weight", a[TY_FEATURES], hidden, TY_START_RESIDUAL, TY_BY_COLUMNS);
    tensors[2] = layer_vector("up.bias", up, 0, TY_BY_ROWS);
    tensors[3] = layer_vector("down.bias", a[TY_FEATURES], 0, TY_BY_ROWS);
    tensors[0].groups[0] = tensors[2].groups[0] = hidden; /* a gate first, if there is one */
    tensors[0].groups[1] = tensors[2].groups[1] = up - hidden;
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

static double mlp_matrices(const layer_view *v)
{
    return 2 + at(v, TY_IS_GATED);
}

static double hidden_elements(const layer_view *v)
{
    return v->rows * at(v, TY_HIDDEN_FEATURES);
}

static double mlp_parameters(const layer_view *v)
{
    double features = at(v, TY_FEATURES), hidden = at(v, TY_HIDDEN_FEATURES);
    return ty_layer_owned(v) * (mlp_matrices(v) * features * hidden +
                                at(v, TY_HAS_BIAS) * ((mlp_matrices(v) - 1) * hidden + features));
}

static double mlp_flop(const layer_view *v)
{
    return 2 * mlp_matrices(v) * hidden_elements(v) * at(v, TY_FEATURES);
}

static double mlp_input_product(const layer_view *v)
{
    return 2 * (mlp_matrices(v) - 1) * hidden_elements(v) * at(v, TY_FEATURES);
}

/* Before and after the activation, which relu overwrites; gated: gate, value and their product. */
static double mlp_stashed(const layer_view *v)
{
    double in_place = at(v, TY_IS_RELU) * (1 - at(v, TY_IS_GATED));
    return (mlp_matrices(v) - in_place) * hidden_elements(v);
}

static double mlp_kernels(const layer_view *v) /* one per matrix and the activation */
{
    return mlp_matrices(v) + 1;
}

const layer_kind ty_kind_mlp = {
    .row = {.name = "mlp",
            .required =
                BIT(TY_FEATURES) | BIT(TY_HIDDEN_FEATURES) | BIT(TY_HAS_BIAS) | BIT(TY_IS_GATED),
            .optional = BIT(TY_IS_RELU) | BIT(TY_IS_SHARED),
            .products = 2,
            .matrices = 2,
            .split = TY_SPLIT_HIDDEN,
            .is_of_tokens = true,
            .ignores_output = true,
            .has_activation = true,
            .has_second = true},
    .shape = ty_layer_norm_shape,
    .tensors = mlp_tensors,
    .parameters = mlp_parameters,
    .forward_flop = mlp_flop,
    .input_product = mlp_input_product,
    .stashed = mlp_stashed,
    .kernels = mlp_kernels,
};

/* ---- moe ---- */

static void moe_shape(layer_shapes *s)
{
    if (ty_layer_ends_in(s, TY_FEATURES) &&
        layer_size(s, TY_EXPERTS_PER_TOKEN) > layer_size(s, TY_EXPERTS))
        snprintf(s->complaint, sizeof s->complaint, "experts_per_token to be at most experts");
    s->out = *s->in;
}

/* Of the mlps of `experts`, one after another: two matrices, and the biases after them. */
static void expert_tensors(const uint64_t *a, uint64_t experts, uint64_t hidden,
                           const char *const names[4], ty_layer_tensor *up)
{
    const uint64_t features = a[TY_FEATURES], values = a[TY_IS_GATED] != 0 ? hidden : 0;

    up[0] =
        layer_matrix(names[0], experts * (hidden + values), features, TY_START_NORMAL, TY_BY_ROWS);
    up[1] = layer_matrix(names[1], experts * features, hidden, TY_START_RESIDUAL, TY_BY_COLUMNS);
    up[0].groups[0] = hidden;
    up[0].groups[1] = values;
    if (a[TY_HAS_BIAS] == 0)
        return;
    up[2] = layer_matrix(names[2], experts * (hidden + values), 1, TY_START_CONSTANT, TY_BY_ROWS);
    up[3] = layer_matrix(names[3], experts, features, TY_START_CONSTANT, TY_BY_COLUMNS);
    up[2].groups[0] = hidden;
    up[2].groups[1] = values;
}

static uint32_t moe_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    static const char *const shared[] = {"shared.up.weight", "shared.down.weight", "shared.up.bias",
                                         "shared.down.bias"};
    static const char *const names[] = {"experts.up.weight", "experts.down.weight",
                                        "experts.up.bias", "experts.down.bias"};
    tensors[0] =
        layer_matrix("gate.weight", a[TY_EXPERTS], a[TY_FEATURES], TY_START_NORMAL, TY_BY_COLUMNS);
    if (a[TY_SHARED_FEATURES] > 0)
        expert_tensors(a, 1, a[TY_SHARED_FEATURES], shared, &tensors[1]);
    expert_tensors(a, a[TY_EXPERTS], a[TY_HIDDEN_FEATURES], names, &tensors[5]);
    for (int t = 5; t < 9; t++)
        tensors[t].experts = a[TY_EXPERTS];
    return a[TY_HAS_BIAS] != 0 ? 9 : 7;
}

/* Hidden numbers of a token, in all mlps it passes. */
static double hidden_of_token(const layer_view *v)
{
    return at(v, TY_EXPERTS_PER_TOKEN) * at(v, TY_HIDDEN_FEATURES) + at(v, TY_SHARED_FEATURES);
}

/* Features that experts read and write. */
static double expert_width(const layer_view *v)
{
    return at(v, TY_LATENT_FEATURES) > 0 ? at(v, TY_LATENT_FEATURES) : at(v, TY_FEATURES);
}

static double latent_matrix(const layer_view *v)
{
    return at(v, TY_FEATURES) * at(v, TY_LATENT_FEATURES);
}

static double moe_parameters(const layer_view *v)
{
    double features = at(v, TY_FEATURES), experts = at(v, TY_EXPERTS);
    double hidden = experts * at(v, TY_HIDDEN_FEATURES), shared = at(v, TY_SHARED_FEATURES);
    double written = experts * expert_width(v) + (shared > 0 ? features : 0);
    return (features + at(v, TY_HAS_ROUTER_BIAS)) * experts + at(v, TY_HAS_GATE) * features +
           2 * latent_matrix(v) + mlp_matrices(v) * (expert_width(v) * hidden + features * shared) +
           at(v, TY_HAS_BIAS) * ((mlp_matrices(v) - 1) * (hidden + shared) + written);
}

/* Of a token's experts, numbers in one of their matrices. */
static double expert_products(const layer_view *v)
{
    return at(v, TY_EXPERTS_PER_TOKEN) * at(v, TY_HIDDEN_FEATURES) * expert_width(v) +
           at(v, TY_SHARED_FEATURES) * at(v, TY_FEATURES);
}

static double router_flop(const layer_view *v) /* and of the gate */
{
    return 2 * v->out * (at(v, TY_EXPERTS) + at(v, TY_HAS_GATE));
}

static double moe_flop(const layer_view *v)
{
    return router_flop(v) +
           2 * v->rows * (mlp_matrices(v) * expert_products(v) + 2 * latent_matrix(v));
}

/* With latents the first product with the input is theirs, and the shared experts'. */
static double moe_input_product(const layer_view *v)
{
    double inner = at(v, TY_LATENT_FEATURES) > 0
                       ? latent_matrix(v) +
                             (mlp_matrices(v) - 1) * at(v, TY_SHARED_FEATURES) * at(v, TY_FEATURES)
                       : (mlp_matrices(v) - 1) * expert_products(v);
    return router_flop(v) + 2 * v->rows * inner;
}

/* The router's scores, a token's copies for its experts and their outputs, all hidden numbers as in
 * an mlp. */
static double moe_stashed(const layer_view *v)
{
    return v->rows * (at(v, TY_EXPERTS) + mlp_matrices(v) * hidden_of_token(v)) +
           2 * v->rows * expert_width(v) * at(v, TY_EXPERTS_PER_TOKEN) +
           2 * v->rows * at(v, TY_LATENT_FEATURES);
}

/* Router, choice, dispatch, combination; experts run as groups: one per matrix and the activation.
 */
static double moe_kernels(const layer_view *v)
{
    return 4 + mlp_kernels(v) * (1 + (at(v, TY_SHARED_FEATURES) > 0)) +
           (at(v, TY_LATENT_FEATURES) > 0 ? 2 : 0) + at(v, TY_HAS_GATE);
}

const layer_kind ty_kind_moe = {
    .row = {.name = "moe",
            .required = BIT(TY_FEATURES) | BIT(TY_HIDDEN_FEATURES) | BIT(TY_HAS_BIAS) |
                        BIT(TY_IS_GATED) | BIT(TY_EXPERTS) | BIT(TY_EXPERTS_PER_TOKEN),
            .optional = BIT(TY_SHARED_FEATURES) | BIT(TY_HAS_ROUTER_BIAS) | BIT(TY_HAS_GATE) |
                        BIT(TY_LATENT_FEATURES),
            .products = 2,
            .split = TY_SPLIT_EXPERTS,
            .has_experts = true,
            .is_of_tokens = true,
            .ignores_output = true,
            .has_activation = true},
    .shape = moe_shape,
    .tensors = moe_tensors,
    .parameters = moe_parameters,
    .forward_flop = moe_flop,
    .input_product = moe_input_product,
    .stashed = moe_stashed,
    .kernels = moe_kernels,
};
