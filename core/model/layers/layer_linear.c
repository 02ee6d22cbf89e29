/* Linear layers, and the loss over their scores. */
#include "layer_kind.h"

static void linear_shape(layer_shapes *s)
{
    if (!ty_layer_ends_in(s, TY_IN_FEATURES))
        return;
    s->out = *s->in;
    s->out.dimensions[s->out.dimension_count - 1] = layer_size(s, TY_OUT_FEATURES);
}

static uint32_t linear_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    tensors[0] = layer_matrix("weight", a[TY_OUT_FEATURES], a[TY_IN_FEATURES], TY_START_FAN_IN,
                              TY_UNDIVIDED);
    tensors[1] = layer_vector("bias", a[TY_OUT_FEATURES], 0, TY_UNDIVIDED);
    return a[TY_HAS_BIAS] != 0 ? 2 : 1;
}

static double linear_matrix(const layer_view *v)
{
    return at(v, TY_IN_FEATURES) * at(v, TY_OUT_FEATURES);
}

static double linear_parameters(const layer_view *v)
{
    double matrix = v->layer->tied_to == TY_NO_LAYER ? linear_matrix(v) : 0;
    return matrix + at(v, TY_HAS_BIAS) * at(v, TY_OUT_FEATURES);
}

static double linear_flop(const layer_view *v)
{
    return 2 * v->rows * linear_matrix(v);
}

const layer_kind ty_kind_linear = {
    .row = {.name = "linear",
            .required = BIT(TY_IN_FEATURES) | BIT(TY_OUT_FEATURES) | BIT(TY_HAS_BIAS),
            .products = 1,
            .matrices = 1,
            .split = TY_SPLIT_VOCABULARY,
            .is_of_tokens = true,
            .ignores_output = true,
            .tied_rows = TY_OUT_FEATURES,
            .tied_columns = TY_IN_FEATURES},
    .shape = linear_shape,
    .tensors = linear_tensors,
    .parameters = linear_parameters,
    .forward_flop = linear_flop,
    .input_product = linear_flop,
};

/* ---- softmax_cross_entropy: backward recomputes the probabilities from the scores and the
 * logarithm of the sum of their exponentials per row ---- */

static void loss_shape(layer_shapes *s)
{
    if (ty_layer_ends_in(s, TY_CLASSES))
        s->out = (ty_shape){1, {1}};
}

/* The scores are read for that sum and once more for the loss. */
static double loss_traffic(const layer_view *v)
{
    return 2 * v->in;
}

const layer_kind ty_kind_softmax_cross_entropy = {
    .row = {.name = "softmax_cross_entropy",
            .required = BIT(TY_CLASSES),
            .split = TY_SPLIT_VOCABULARY,
            .is_loss = true,
            .is_of_tokens = true},
    .shape = loss_shape,
    .stashed = ty_layer_one_per_row,
    .traffic = loss_traffic,
};
