/**
 * @file dnnl_wrap.h
 * All of oneDNN, 2 or 3, that the CPU backend uses, so that a change of its interface touches one
 * file. Everything runs on the calling thread.
 */
#ifndef TY_EXECUTE_DNNL_WRAP_H
#define TY_EXECUTE_DNNL_WRAP_H

#include "ty_base.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * Makes oneDNN compute on the calling thread only. OpenMP keeps that setting per thread, so every
 * entry into the backend calls it; it costs nanoseconds.
 */
void cpu_single_thread(void);

/** C[m,n] = alpha op(A) op(B) + beta C, row-major; a transposed operand is stored transposed.
 *  Strides are floats from row to row of the stored matrix. */
void cpu_gemm(bool is_a_transposed, bool is_b_transposed, uint64_t m, uint64_t n, uint64_t k,
              float alpha, const float *a, uint64_t a_stride, const float *b, uint64_t b_stride,
              float beta, float *c, uint64_t c_stride);

/**
 * A convolution over channels-last images [B,H,W,C] with weights as in the parameter array,
 * [out][in / groups][kernel height][kernel width]. Primitives are made once; calls allocate
 * nothing.
 */
typedef struct cpu_conv cpu_conv;

typedef struct cpu_conv_shape {
    uint64_t batch, groups;
    uint64_t in_channels, in_height, in_width;
    uint64_t out_channels, out_height, out_width;
    uint64_t kernel_height, kernel_width, stride, padding_height, padding_width;
    bool has_bias, has_relu;
    bool has_weight_gradient, has_input_gradient; /* backward passes that the caller will use */
} cpu_conv_shape;

/** @param name of the layer, for messages */
ty_status cpu_conv_open(const cpu_conv_shape *shape, const char *name, cpu_conv **out,
                        ty_error *error) TY_MUST_CHECK;
void cpu_conv_close(cpu_conv *conv);
/** Working memory that each of the calls below needs. */
uint64_t cpu_conv_scratch_bytes(const cpu_conv *conv);
ty_status cpu_conv_forward(cpu_conv *conv, const float *x, const float *weight, const float *bias,
                           float *y, void *scratch, ty_error *error) TY_MUST_CHECK;
/** Overwrites dw and db (NULL without bias). */
ty_status cpu_conv_backward_weights(cpu_conv *conv, const float *x, const float *dy, float *dw,
                                    float *db, void *scratch, ty_error *error) TY_MUST_CHECK;
ty_status cpu_conv_backward_data(cpu_conv *conv, const float *dy, const float *weight, float *dx,
                                 void *scratch, ty_error *error) TY_MUST_CHECK;

#endif
