/**
 * @file builder.h
 * Builder functions for the zoo reader. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_BUILDER_H
#define TY_WORKLOADS_BUILDER_H

#include "ty_workloads.h"

/** The first error so far, or NULL, so that a reader can report its line. */
const ty_error *ty_builder_mistake(const ty_builder *builder);

/** Layers appended so far. */
uint32_t ty_builder_layer_count(const ty_builder *builder);

/** Computes flop, bytes and kernels of all layers except opaque ones, after all have shapes.
 * @return as ty_layer_set_quantities */
ty_status ty_workload_settle(ty_workload *workload, ty_error *error) TY_MUST_CHECK;

/**
 * Trains only the norms, to model the cost of low-rank adapters (Hu et al., arXiv:2106.09685).
 * Gradients pass through every block, but matrices have none. The norms represent the adapters,
 * whose own products, about a thousandth of a block's, are ignored.
 */
void ty_builder_freeze_matrices(ty_builder *builder);

#endif
