/* Lstm: T steps of D features, H hidden ones; gates in the order of cuDNN and PyTorch, each with a
 * bias for its input and one for its state. The products with the input are one; every step has one
 * with the state, which waits for the step before. Stashed: the four gates and the cell. */
#include "layer_kind.h"

enum { GATES = 4 };

static void lstm_shape(layer_shapes *s)
{
    if (ty_layer_has_dimensions(s, 2, "a sequence of 2 dimensions") &&
        ty_layer_ends_in(s, TY_IN_FEATURES))
        s->out = (ty_shape){2, {s->in->dimensions[0], layer_size(s, TY_HIDDEN_FEATURES)}};
}

static uint32_t lstm_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    const uint64_t hidden = a[TY_HIDDEN_FEATURES];

    tensors[0] = layer_matrix("weight_ih_l0", GATES * hidden, a[TY_IN_FEATURES], TY_START_FAN_IN,
                              TY_UNDIVIDED);
    tensors[0].fan_in = hidden;
    tensors[1] =
        layer_matrix("weight_hh_l0", GATES * hidden, hidden, TY_START_FAN_IN, TY_UNDIVIDED);
    tensors[2] = layer_vector("bias_ih_l0", GATES * hidden, 0, TY_UNDIVIDED);
    tensors[3] = layer_vector("bias_hh_l0", GATES * hidden, 0, TY_UNDIVIDED);
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

static double lstm_gates(const layer_view *v)
{
    return 4 * at(v, TY_HIDDEN_FEATURES);
}

static double lstm_parameters(const layer_view *v)
{
    return lstm_gates(v) *
           (at(v, TY_IN_FEATURES) + at(v, TY_HIDDEN_FEATURES) + 2 * at(v, TY_HAS_BIAS));
}

static double lstm_input_product(const layer_view *v)
{
    return 2 * v->rows * lstm_gates(v) * at(v, TY_IN_FEATURES);
}

static double lstm_flop(const layer_view *v)
{
    return lstm_input_product(v) + 2 * v->rows * lstm_gates(v) * at(v, TY_HIDDEN_FEATURES);
}

static double lstm_stashed(const layer_view *v)
{
    return v->rows * (lstm_gates(v) + at(v, TY_HIDDEN_FEATURES));
}

static double lstm_kernels(const layer_view *v)
{
    return 1 + v->rows;
}

const layer_kind ty_kind_lstm = {
    .row = {.name = "lstm",
            .required = BIT(TY_IN_FEATURES) | BIT(TY_HIDDEN_FEATURES) | BIT(TY_HAS_BIAS),
            .optional = BIT(TY_IS_REVERSED),
            .products = 2,
            .matrices = 2,
            .is_recurrent = true},
    .shape = lstm_shape,
    .tensors = lstm_tensors,
    .parameters = lstm_parameters,
    .forward_flop = lstm_flop,
    .input_product = lstm_input_product,
    .stashed = lstm_stashed,
    .kernels = lstm_kernels,
};
