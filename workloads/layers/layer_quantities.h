/**
 * @file layer_quantities.h
 * What a layer costs, from its kind, attributes and shapes. Internal to workloads/.
 */
#ifndef TY_LAYER_QUANTITIES_H
#define TY_LAYER_QUANTITIES_H

#include "ty_core.h"

/**
 * Fills flop, bytes and kernel count of a layer whose kind, attributes, inputs, tie and output
 * shape are set.
 * @param needs_input_gradient whether backward must compute the gradient of the layer's input: not
 *                             where nothing before it has parameters that are trained. A frozen
 *                             layer needs no other gradient: its backward leaves out the products
 *                             that make those of its parameters
 * @return TY_EINVAL for a kind that has no formulas, and where a figure would not fit 2^53.
 */
ty_status ty_layer_set_quantities(ty_workload *workload, uint32_t layer, bool needs_input_gradient,
                                  ty_error *error) TY_MUST_CHECK;

#endif
