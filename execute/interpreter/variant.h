/**
 * @file variant.h
 * Weights as they are when a network is deployed (ty_plan.h). Internal to execute/.
 */
#ifndef TY_EXECUTE_VARIANT_H
#define TY_EXECUTE_VARIANT_H

#include "ty_plan.h"

/**
 * A matrix as a variant has it, in floats. Pruned are the ty_variant_pruned smallest magnitudes, of
 * equal ones the first. Then each row is, of integers of b bits, round(w / s) s with s the row's
 * largest magnitude over 2^(b-1) - 1, ties to even (Jacob et al., "Quantization and Training of
 * Neural Networks", CVPR 2018, section 2.1, symmetric); of 16 bits the nearest halves.
 */
ty_status variant_make_matrix(const ty_variant *variant, uint64_t rows, uint64_t columns,
                              float *weights, ty_error *error) TY_MUST_CHECK;

#endif
