#include "convolution_cost.h"

#include <math.h>

/* Channels that a block of an implicit matrix product makes side by side: cuDNN's single-precision
 * kernels make 128 x 64 outputs at a time, and fewer channels leave the rest of a block idle. */
#define TILE_CHANNELS 64.0
/* Two figures of those kernels, fitted with the rate itself: what a stride of more than one leaves
 * of the rate, and how many weights have half of it in their gradient: a product of few results
 * over all pixels of the batch, for which a device has too few blocks. Least squares of the log
 * error, weighted by time, over the 61 convolutions without groups, but for the first, of
 * ResNeXt-50 and SqueezeNet in PipeDream's profiles (msr-fiddle/pipedream, one V100, batches 128
 * and 256): 25 % are left, and 26 % on VGG-16, ResNet-50, ResNet-101 and Inception-v3 there. */
#define STRIDED_SHARE 0.85
#define HALF_RATE_WEIGHTS 32e3
/* Winograd's method on tiles of 4 x 4 outputs, in three kernels: transform, products, transform
 * back (Lavin, Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, section 4;
 * CUDNN_CONVOLUTION_*_ALGO_WINOGRAD_NONFUSED, for windows of 3 x 3 and 5 x 5). */
#define WINOGRAD_TILE 4.0

typedef struct shape {
    double in_channels, out_channels; /* of a group */
    double height, width;             /* of the output */
    double window;                    /* height of the window */
    bool is_square, is_strided, has_groups;
} shape;

typedef struct rates {
    double flop_per_s, bytes_per_s;
} rates;

static shape shape_of(const ty_layer *l)
{
    const double groups = fmax(1, (double)l->attributes[TY_GROUPS]);

    return (shape){.in_channels = (double)l->attributes[TY_IN_CHANNELS] / groups,
                   .out_channels = (double)l->attributes[TY_OUT_CHANNELS] / groups,
                   .height = (double)l->output.dimensions[1],
                   .width = (double)l->output.dimensions[2],
                   .window = (double)l->attributes[TY_KERNEL_HEIGHT],
                   .is_square = l->attributes[TY_KERNEL_HEIGHT] == l->attributes[TY_KERNEL_WIDTH],
                   .is_strided = l->attributes[TY_STRIDE] > 1,
                   .has_groups = groups > 1};
}

/* The share of whole tiles that is of use. */
static double filled(double size, double tile)
{
    return size / (ceil(size / tile) * tile);
}

/* Depthwise ones have kernels of their own, which memory bounds. */
static double channels_filled(double channels, const shape *s)
{
    bool is_depthwise = s->has_groups && s->in_channels <= 1 && s->out_channels <= 1;
    return is_depthwise ? 1 : filled(channels, TILE_CHANNELS);
}

static bool has_winograd(const shape *s)
{
    return s->is_square && (s->window == 3 || s->window == 5) && !s->is_strided && !s->has_groups;
}

/* m x m outputs of a window of r x r take a x a products, a = m + r - 1, for m m r r. Transformed
 * tensors are a a / (m m) times as large, written by the transform and read by the products. */
static double winograd_s(const shape *s, double flop, double traffic, double share, const rates *at)
{
    const double a = WINOGRAD_TILE + s->window - 1;
    const double growth = a * a / (WINOGRAD_TILE * WINOGRAD_TILE);
    const double saving = s->window * s->window / growth;
    const double covered = filled(s->height, WINOGRAD_TILE) * filled(s->width, WINOGRAD_TILE);

    return (flop / saving / share / at->flop_per_s + traffic * (1 + 2 * growth) / at->bytes_per_s) /
           covered;
}

/* One pass, which has that share of the rate in products. */
static double pass_s(const shape *s, double flop, double traffic, double weights, double share,
                     const rates *at)
{
    const double rate = at->flop_per_s * (s->is_strided ? STRIDED_SHARE : 1);
    const double memory_s = (traffic + weights) / at->bytes_per_s;
    const double direct_s = fmax(flop / share / rate, memory_s);

    if (!has_winograd(s))
        return direct_s;
    return fmin(direct_s, winograd_s(s, flop, traffic, share, at));
}

bool ty_convolution_is_chosen(const ty_workload *workload, const ty_layer *layer,
                              const ty_device_type *device)
{
    return layer->kind == TY_LAYER_CONV2D && workload->precision == TY_PRECISION_FP32 &&
           device->convolution_efficiency > 0;
}

convolution_times ty_convolution_cost(const ty_layer *layer, double samples,
                                      const ty_device_type *device)
{
    const shape s = shape_of(layer);
    const rates at = {.flop_per_s = device->peak_fp32_flop_per_s * device->convolution_efficiency,
                      .bytes_per_s =
                          device->memory_bandwidth_bytes_per_s * device->memory_efficiency};
    const double flop = samples * layer->forward_flop;
    const double traffic = samples * (double)layer->traffic_bytes;
    const double weights = (double)layer->parameter_bytes;
    const double weight_count = weights / 4;
    convolution_times t = {0};

    t.forward_s = pass_s(&s, flop, traffic, weights, channels_filled(s.out_channels, &s), &at);
    if (layer->backward_flop > layer->forward_flop)
        t.backward_s = pass_s(&s, flop, traffic, weights, channels_filled(s.in_channels, &s), &at);
    if (layer->backward_flop > 0) /* the gradient of the weights: read, added to, written */
        t.backward_s += pass_s(&s, flop, traffic, 2 * weights,
                               weight_count / (weight_count + HALF_RATE_WEIGHTS), &at);
    return t;
}
