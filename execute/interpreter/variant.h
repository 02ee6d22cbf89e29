/**
 * @file variant.h
 * Weights of a model as it is deployed, pruned or quantized (ty_plan.h). Internal to execute/.
 */
#ifndef TY_EXECUTE_VARIANT_H
#define TY_EXECUTE_VARIANT_H

#include "ty_plan.h"

/**
 * Prunes and quantizes a matrix, in floats. The ty_variant_pruned smallest magnitudes become 0, the
 * first ones among equals. Then, for integers of b bits, each row becomes round(w / s) s with s the
 * row's largest magnitude over 2^(b-1) - 1, ties to even (Jacob et al., "Quantization and Training
 * of Neural Networks", CVPR 2018, section 2.1, symmetric). For 16 bits it becomes the nearest
 * halves.
 */
ty_status variant_make_matrix(const ty_variant *variant, uint64_t rows, uint64_t columns,
                              float *weights, ty_error *error) TY_MUST_CHECK;

#endif
