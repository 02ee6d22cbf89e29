/**
 * @file dnnl_wrap.h
 * All of oneDNN that the CPU backend uses, so that a change of its interface (3.x differs from 2.x)
 * touches one file. Everything runs on the calling thread.
 */
#ifndef TY_EXECUTE_DNNL_WRAP_H
#define TY_EXECUTE_DNNL_WRAP_H

#include "ty_status.h"

#include <stdbool.h>
#include <stdint.h>

/**
 * Makes oneDNN compute on the calling thread alone. OpenMP keeps that setting per thread, so every
 * entry into the backend calls it; it costs nanoseconds.
 */
void cpu_single_thread(void);

/** C[m,n] = alpha op(A) op(B) + beta C, row-major; a transposed operand is stored the other way
 *  round. Strides are floats from row to row of what is stored. */
void cpu_gemm(bool is_a_transposed, bool is_b_transposed, uint64_t m, uint64_t n, uint64_t k,
              float alpha, const float *a, uint64_t a_stride, const float *b, uint64_t b_stride,
              float beta, float *c, uint64_t c_stride);

#endif
