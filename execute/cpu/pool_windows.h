/**
 * @file pool_windows.h
 * The windows of a pooling layer, the same on every backend; read by kernels, too. Internal to
 * execute/.
 */
#ifndef TY_EXECUTE_POOL_WINDOWS_H
#define TY_EXECUTE_POOL_WINDOWS_H

#include "ty_core.h"

typedef struct pool_windows {
    uint64_t channels;
    uint64_t in_height, in_width, out_height, out_width;
    uint64_t height, width, stride, padding_height, padding_width;
    bool is_average; /* the divisor counts padding */
} pool_windows;

/** The windows of a pooling layer from `in` to `out`, both [channels][height][width]. */
static inline pool_windows pool_windows_of(const ty_layer *layer, const ty_shape *in,
                                           const ty_shape *out)
{
    const uint64_t *a = layer->attributes;
    const bool is_global = a[TY_IS_GLOBAL] != 0;
    pool_windows made;

    made.channels = in->dimensions[0];
    made.in_height = in->dimensions[1];
    made.in_width = in->dimensions[2];
    made.out_height = out->dimensions[1];
    made.out_width = out->dimensions[2];
    made.height = is_global ? made.in_height : a[TY_KERNEL_HEIGHT];
    made.width = is_global ? made.in_width : a[TY_KERNEL_WIDTH];
    made.stride = is_global ? 1 : a[TY_STRIDE];
    made.padding_height = is_global ? 0 : a[TY_PADDING_HEIGHT];
    made.padding_width = is_global ? 0 : a[TY_PADDING_WIDTH];
    made.is_average = a[TY_IS_AVERAGE] != 0;
    return made;
}

#endif
