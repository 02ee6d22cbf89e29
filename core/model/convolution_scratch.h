/**
 * @file convolution_scratch.h
 * What convolutions work in on GPUs, one layer of a stage at a time: planners count it, the
 * worker's GPU backend passes over engines that would take more than the limit, and tests hold it
 * against the plans that cuDNN makes.
 */
#ifndef CONVOLUTION_SCRATCH_H
#define CONVOLUTION_SCRATCH_H

#include "ty_workload.h"

/** Bytes that an engine may work in; in fp32 beside both images, of which it makes planes. */
#define TY_CONVOLUTION_SCRATCH_LIMIT (UINT64_C(256) << 20)

/** A layer; images lie channels last. */
typedef struct ty_convolution {
    uint64_t samples, groups;
    uint64_t in_channels, in_pixels, out_channels, out_pixels; /* channels of all groups */
    uint64_t window_height, window_width, stride;
    bool reads_samples; /* nobody asks for the gradient of what it reads */
} ty_convolution;

/**
 * What cuDNN works in, in the pass that takes most.
 * @param precision of what lies between layers; products that are narrower count as 16 bits
 * @return bytes
 * Source: workspace of cuDNN 9.19's plans for an H100 and an A100, by how it changes with shapes
 * (tests/gpu/dnn_plans.c). docs/guides/train-on-gpus.md has the error.
 *
 *  - fp32, without tensor cores: both images as planes, of eight groups at a time, and filters as
 *    such where windows have more than a pixel; of 3 x 3 in steps of one they may be there twice,
 *    and once as tiles of 4 x 4 (Lavin and Gray, "Fast Algorithms for Convolutional Neural
 *    Networks", CVPR 2016). Nothing for samples of up to four channels.
 *  - TF32: both images, channels rounded up to multiples of four, and filters; one image, if both
 *    are beyond the limit. Hopper's engines copy less.
 *  - 16 bits: images whose channels are no multiple of eight, rounded up to one.
 *  - Both of these: filters' gradients are summed in parts, in floats, as are images of few pixels.
 *    About a bound.
 * Where every channel is a group images are read as they are.
 */
uint64_t ty_convolution_scratch(const ty_convolution *convolution, ty_precision precision);

#endif
