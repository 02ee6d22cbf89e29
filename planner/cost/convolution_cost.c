#include "convolution_cost.h"

#include <math.h>

/* Channels that a block of an implicit matrix product computes at once: cuDNN's fp32 kernels
 * compute 128 x 64 outputs at a time, and fewer channels leave the rest of a block idle. */
#define TILE_CHANNELS 64.0
/* Two constants of those kernels, fitted together with the rate. The first is the factor on the
 * rate for a stride above one. The second is the number of weights whose gradient runs at half the
 * rate: a product of few results over all pixels of the batch has too few blocks for a device.
 * Least squares of the log error, weighted by time, over the 61 convolutions without groups, but
 * for the first, of ResNeXt-50 and SqueezeNet in PipeDream's profiles (msr-fiddle/pipedream, one
 * V100, batches 128 and 256): 25 % are left, and 26 % on VGG-16, ResNet-50, ResNet-101 and
 * Inception-v3 there. */
#define STRIDED_SHARE 0.85
#define HALF_RATE_WEIGHTS 32e3

typedef struct shape {
    double in_channels, out_channels; /* of a group */
    double height, width;             /* of the output */
    double window;                    /* height of the window */
    double saving;                    /* of Winograd's method; 1: it does not apply */
    bool is_strided, has_groups;
} shape;

typedef struct rates {
    double flop_per_s, bytes_per_s;
} rates;

/* The useful share of full tiles. */
static double filled(double size, double tile)
{
    return size / (ceil(size / tile) * tile);
}

/* Depthwise ones have special kernels, limited by memory. */
static double channels_filled(double channels, const shape *s)
{
    bool is_depthwise = s->has_groups && s->in_channels <= 1 && s->out_channels <= 1;
    return is_depthwise ? 1 : filled(channels, TILE_CHANNELS);
}

/* Transformed tensors are a a / (m m) times as large (ty_winograd_saving), written by the transform
 * and read by the products: three kernels, with the transform back. */
static double winograd_s(const shape *s, double flop, double traffic, double share, const rates *at)
{
    const double growth = s->window * s->window / s->saving;
    const double covered = filled(s->height, TY_WINOGRAD_TILE) * filled(s->width, TY_WINOGRAD_TILE);

    return (flop / s->saving / share / at->flop_per_s +
            traffic * (1 + 2 * growth) / at->bytes_per_s) /
           covered;
}

/* One pass; its products run at that share of the rate. */
static double pass_s(const shape *s, double flop, double traffic, double weights, double share,
                     const rates *at)
{
    const double rate = at->flop_per_s * (s->is_strided ? STRIDED_SHARE : 1);
    const double memory_s = (traffic + weights) / at->bytes_per_s;
    const double direct_s = fmax(flop / share / rate, memory_s);

    if (s->saving <= 1)
        return direct_s;
    return fmin(direct_s, winograd_s(s, flop, traffic, share, at));
}

convolution_times ty_convolution_cost(const ty_layer *layer, double samples,
                                      const ty_device_type *device)
{
    const double groups = fmax(1, (double)layer->attributes[TY_GROUPS]);
    const shape s = {.in_channels = (double)layer->attributes[TY_IN_CHANNELS] / groups,
                     .out_channels = (double)layer->attributes[TY_OUT_CHANNELS] / groups,
                     .height = (double)layer->output.dimensions[1],
                     .width = (double)layer->output.dimensions[2],
                     .window = (double)layer->attributes[TY_KERNEL_HEIGHT],
                     .saving = ty_winograd_saving(layer),
                     .is_strided = layer->attributes[TY_STRIDE] > 1,
                     .has_groups = groups > 1};
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
