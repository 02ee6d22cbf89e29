/* Layers with windows over images: convolution and pooling. */
#include "layer_kind.h"

#include <stdio.h>

/* Windows along one dimension; 0 if none fits, or if one could be in the padding only. */
static uint64_t window_count(uint64_t size, uint64_t kernel, uint64_t stride, uint64_t padding)
{
    if (padding >= kernel || size + 2 * padding < kernel)
        return 0;
    return (size + 2 * padding - kernel) / stride + 1;
}

static void slide_window(layer_shapes *s, uint64_t channels)
{
    if (!ty_layer_has_dimensions(s, 3, "an image of 3 dimensions"))
        return;
    s->out.dimension_count = 3;
    s->out.dimensions[0] = channels;
    s->out.dimensions[1] = window_count(s->in->dimensions[1], layer_size(s, TY_KERNEL_HEIGHT),
                                        layer_size(s, TY_STRIDE), layer_size(s, TY_PADDING_HEIGHT));
    s->out.dimensions[2] = window_count(s->in->dimensions[2], layer_size(s, TY_KERNEL_WIDTH),
                                        layer_size(s, TY_STRIDE), layer_size(s, TY_PADDING_WIDTH));
    if (s->out.dimensions[1] == 0 || s->out.dimensions[2] == 0)
        snprintf(s->complaint, sizeof s->complaint,
                 "an image no smaller than the window, and the window larger than its padding");
}

static void conv2d_shape(layer_shapes *s)
{
    uint64_t in = layer_size(s, TY_IN_CHANNELS), out = layer_size(s, TY_OUT_CHANNELS);
    uint64_t groups = layer_size(s, TY_GROUPS);

    slide_window(s, out);
    if (s->complaint[0] == '\0' && s->in->dimensions[0] != in)
        snprintf(s->complaint, sizeof s->complaint, "in_channels %llu", (unsigned long long)in);
    else if (in % groups != 0 || out % groups != 0)
        snprintf(s->complaint, sizeof s->complaint, "groups that divide in_ and out_channels");
}

static uint32_t conv2d_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    tensors[0] =
        layer_matrix("weight", a[TY_OUT_CHANNELS],
                     a[TY_IN_CHANNELS] / a[TY_GROUPS] * a[TY_KERNEL_HEIGHT] * a[TY_KERNEL_WIDTH],
                     TY_START_FAN_IN, TY_UNDIVIDED);
    tensors[1] = layer_vector("bias", a[TY_OUT_CHANNELS], 0, TY_UNDIVIDED);
    return a[TY_HAS_BIAS] != 0 ? 2 : 1;
}

/* Weights that one output element of a convolution is the sum over. */
static double filter(const layer_view *v)
{
    return at(v, TY_IN_CHANNELS) / at(v, TY_GROUPS) * at(v, TY_KERNEL_HEIGHT) *
           at(v, TY_KERNEL_WIDTH);
}

static double conv2d_parameters(const layer_view *v)
{
    return at(v, TY_OUT_CHANNELS) * (filter(v) + at(v, TY_HAS_BIAS));
}

static double conv2d_flop(const layer_view *v)
{
    return 2 * v->out * filter(v);
}

const layer_kind ty_kind_conv2d = {
    .row = {.name = "conv2d",
            .required = BIT(TY_IN_CHANNELS) | BIT(TY_OUT_CHANNELS) | WINDOW | BIT(TY_GROUPS) |
                        BIT(TY_HAS_BIAS),
            .products = 1,
            .matrices = 1,
            .is_convolution = true,
            .ignores_output = true},
    .shape = conv2d_shape,
    .tensors = conv2d_tensors,
    .parameters = conv2d_parameters,
    .forward_flop = conv2d_flop,
    .input_product = conv2d_flop,
};

/* ---- pool: the window of a global one is written out ---- */

static void pool_shape(layer_shapes *s)
{
    slide_window(s, s->in->dimensions[0]);
    if (s->complaint[0] == '\0' && layer_size(s, TY_IS_GLOBAL) != 0 &&
        (layer_size(s, TY_KERNEL_HEIGHT) != s->in->dimensions[1] ||
         layer_size(s, TY_KERNEL_WIDTH) != s->in->dimensions[2] || s->out.dimensions[1] != 1 ||
         s->out.dimensions[2] != 1))
        snprintf(s->complaint, sizeof s->complaint, "the image as the window of a global pool");
}

const layer_kind ty_kind_pool = {
    .row = {.name = "pool",
            .required = WINDOW | BIT(TY_IS_AVERAGE) | BIT(TY_IS_GLOBAL),
            .is_pass = true},
    .shape = pool_shape,
};
