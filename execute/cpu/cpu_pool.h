/**
 * @file cpu_pool.h
 * Pooling of channels-last images, for the layer of that kind and for convolutions that pool what
 * they make before anybody else sees it.
 */
#ifndef TY_EXECUTE_CPU_POOL_H
#define TY_EXECUTE_CPU_POOL_H

#include "cpu_layer.h"
#include "pool_windows.h"

/** Which number of its window a maximum is, row by row from 0; all that backward needs of it. As
 * wide as a float, so that a vector of one goes with a vector of the other. */
typedef int32_t cpu_place;
/** The maximum of a window that a relu makes 0: its gradient goes nowhere. */
#define CPU_NO_PLACE INT32_MAX

typedef struct cpu_pooling {
    pool_windows windows;
    bool is_tiling;  /* every input pixel is in exactly one window */
    bool is_halving; /* maxima of tiling windows of two by two */
} cpu_pooling;

/** How a pooling layer makes `out` of `in`. */
cpu_pooling cpu_pooling_of(const ty_layer *layer, const ty_shape *in, const ty_shape *out);
/** y and, of maxima, where they are; as `places` of y's size has it. With `has_relu` there is a
 * relu in front of the maxima or behind them: what `image` has is not below 0. */
void cpu_pooling_forward(const cpu_pooling *p, uint64_t samples, const float *image, bool has_relu,
                         float *y, cpu_place *places);
/** The gradient of the images, or with `adds` what is added to it. Averages have no places. */
void cpu_pooling_backward(const cpu_pooling *p, uint64_t samples, const cpu_place *places,
                          const float *dy, bool adds, float *dimage);

#endif
