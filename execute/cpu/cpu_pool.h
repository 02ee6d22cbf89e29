/**
 * @file cpu_pool.h
 * Pooling of channels-last images, for pooling layers and for convolutions that pool their own
 * output.
 */
#ifndef TY_EXECUTE_CPU_POOL_H
#define TY_EXECUTE_CPU_POOL_H

#include "cpu_layer.h"
#include "pool_windows.h"

/** Index of a maximum in its window, row by row from 0; all that backward needs. As wide as a
 * float, so that a vector of one matches a vector of the other. */
typedef int32_t cpu_place;
/** For the maximum of a window that a relu makes 0: its gradient is dropped. */
#define CPU_NO_PLACE INT32_MAX

typedef struct cpu_pooling {
    pool_windows windows;
    bool is_tiling;  /* every input pixel is in exactly one window */
    bool is_halving; /* maxima of tiling windows of two by two */
} cpu_pooling;

/** The pooling of a layer from `in` to `out`. */
cpu_pooling cpu_pooling_of(const ty_layer *layer, const ty_shape *in, const ty_shape *out);
/** Writes y and, for maxima, `places` of y's size. With `has_relu` there is a relu before or after
 * the maxima: negative numbers of `image` count as 0. */
void cpu_pooling_forward(const cpu_pooling *p, uint64_t samples, const float *image, bool has_relu,
                         float *y, cpu_place *places);
/** The gradient of the images, which with `adds` is added. Averages have no places. */
void cpu_pooling_backward(const cpu_pooling *p, uint64_t samples, const cpu_place *places,
                          const float *dy, bool adds, float *dimage);

#endif
