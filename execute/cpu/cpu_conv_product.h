/**
 * @file cpu_conv_product.h
 * The gradient of a convolution's input as a product of matrices. Every pixel of the gradient of
 * the output times the weights is a column of input pixels. Columns are added at their place in
 * the image (Chellapilla et al., "High performance convolutional neural networks for document
 * processing", 2006). oneDNN's direct kernels compute whole vectors of input channels. If those
 * would be mostly empty, the product is faster (table in docs/results/performance.md).
 */
#ifndef TY_EXECUTE_CPU_CONV_PRODUCT_H
#define TY_EXECUTE_CPU_CONV_PRODUCT_H

#include "dnnl_wrap.h"

/** Whether the product is faster for this shape. */
bool cpu_conv_product_suits(const cpu_conv_shape *shape);
/** Working memory of a call. */
uint64_t cpu_conv_product_bytes(const cpu_conv_shape *shape);
/** dx from dy, both channels-last, and weights as in the parameter array. */
void cpu_conv_product_data(const cpu_conv_shape *shape, const float *dy, const float *weight,
                           float *dx, float *scratch);

#endif
