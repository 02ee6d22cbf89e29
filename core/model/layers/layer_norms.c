/* Norms: of the batch per channel, and of the last dimension per row. */
#include "layer_kind.h"

#include <stdio.h>

static void batch_norm_shape(layer_shapes *s)
{
    if (s->in->dimensions[0] != layer_size(s, TY_FEATURES))
        snprintf(s->complaint, sizeof s->complaint, "a first dimension of features %llu",
                 (unsigned long long)layer_size(s, TY_FEATURES));
    s->out = *s->in;
}

static uint32_t norm_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    const uint64_t features = a[TY_FEATURES];

    tensors[0] = layer_vector("weight", features, 1, TY_UNDIVIDED);
    tensors[1] = layer_vector("bias", features, 0, TY_UNDIVIDED);
    return 2;
}

static uint32_t gain_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    return norm_tensors(a, tensors) - 1;
}

static double gain_and_shift(const layer_view *v)
{
    return ty_layer_owned(v) * (2 - at(v, TY_LACKS_SHIFT)) * at(v, TY_FEATURES);
}

static double gain(const layer_view *v)
{
    return at(v, TY_FEATURES);
}

static double two_per_row(const layer_view *v) /* mean and reciprocal deviation */
{
    return 2 * v->rows;
}

/* The statistics of a channel span the batch, so the input is read twice. They are stored once per
 * micro-batch, here per sample: at most two numbers per channel too many. */
static double batch_norm_traffic(const layer_view *v)
{
    return 2 * v->in + v->out;
}

const layer_kind ty_kind_batch_norm = {
    .row = {.name = "batch_norm",
            .required = BIT(TY_FEATURES),
            .has_statistics = true,
            .is_elementwise = true,
            .is_pass = true},
    .shape = batch_norm_shape,
    .tensors = norm_tensors,
    .parameters = gain_and_shift,
    .stashed = gain_and_shift,
    .traffic = batch_norm_traffic,
};

#define NORM_OF_ROWS                                                                               \
    .is_norm = true, .split = TY_SPLIT_SEQUENCE, .is_elementwise = true, .is_pass = true,          \
    .is_of_tokens = true

const layer_kind ty_kind_layer_norm = {
    .row = {.name = "layer_norm",
            .required = BIT(TY_FEATURES),
            .optional = BIT(TY_LACKS_SHIFT) | BIT(TY_IS_SHARED),
            .subtracts_mean = true,
            NORM_OF_ROWS},
    .shape = ty_layer_norm_shape,
    .tensors = norm_tensors,
    .parameters = gain_and_shift,
    .stashed = two_per_row,
    .traffic = ty_layer_in_and_out,
};

const layer_kind ty_kind_rms_norm = {
    .row = {.name = "rms_norm", .required = BIT(TY_FEATURES), NORM_OF_ROWS},
    .shape = ty_layer_norm_shape,
    .tensors = gain_tensors,
    .parameters = gain,
    .stashed = ty_layer_one_per_row,
    .traffic = ty_layer_in_and_out,
};
