/**
 * @file scratch.h
 * Scratch memory of cuDNN on GPUs, one layer of a stage at a time. Internal to planner/; the test
 * gpu_cudnn_plans compares it with the plans of the real cuDNN.
 */
#ifndef TY_PLANNER_SCRATCH_H
#define TY_PLANNER_SCRATCH_H

#include "gpu_scratch.h"
#include "ty_workload.h"

/**
 * Bytes of attention's backward by cuDNN 9.19. Non-deterministic (the default): the gradients of
 * queries as floats, on Ampere twice. Deterministic (`--deterministic`): a 16-bit gradient of every
 * score, with queries rounded up to 64 and keys to 128. If heads share keys, also the 16-bit
 * gradients of keys and values for each head. Both have a few numbers per row.
 * @param heads,kv_heads of one rank
 * @param length,keys queries and keys per sequence
 */
uint64_t ty_attention_scratch(uint64_t samples, uint64_t heads, uint64_t kv_heads,
                              uint64_t head_size, uint64_t length, uint64_t keys, bool is_ordered);

/** A layer; images are channels last. */
typedef struct ty_convolution {
    uint64_t samples, groups;
    uint64_t in_channels, in_pixels, out_channels, out_pixels; /* channels of all groups */
    uint64_t window_height, window_width, stride;
    bool reads_samples; /* the gradient of its input is not computed */
} ty_convolution;

/**
 * Maximum scratch bytes of a convolution's passes.
 * @param precision of activations between layers; narrower products count as 16 bits
 * Source: workspace of cuDNN 9.19's plans for an H100 and an A100, fitted to its change with shapes
 * (tests/gpu/dnn_plans.c). docs/guides/train-on-gpus.md has the error.
 *
 *  - fp32, without tensor cores: both images as planes, eight groups at a time, and filters as
 *    planes if windows have more than a pixel. Filters of 3 x 3 with stride 1 may be stored twice,
 *    and once as tiles of 4 x 4 (Lavin and Gray, "Fast Algorithms for Convolutional Neural
 *    Networks", CVPR 2016). Nothing for samples of up to four channels.
 *  - TF32: both images, channels rounded up to multiples of four, and filters; one image if both
 *    exceed the limit. Hopper's engines copy less.
 *  - 16 bits: images whose channels are no multiple of eight, rounded up to one.
 *  - Both of these: partial sums of filters' gradients as floats, and of images of few pixels.
 *    Close to an upper bound.
 * If every channel is a group, images are read as they are.
 */
uint64_t ty_convolution_scratch(const ty_convolution *convolution, ty_precision precision);

#endif
