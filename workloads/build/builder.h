/**
 * @file builder.h
 * What the zoo reader asks of a builder beyond its public face. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_BUILDER_H
#define TY_WORKLOADS_BUILDER_H

#include "ty_workloads.h"

/** The first mistake so far, or NULL; so that a reader can say which of its lines made it. */
const ty_error *ty_builder_mistake(const ty_builder *builder);

/** Layers appended so far. */
uint32_t ty_builder_layer_count(const ty_builder *builder);

/** Flop, bytes and kernels of all layers but opaque ones, once all are there with their shapes.
 * @return as ty_layer_set_quantities */
ty_status ty_workload_settle(ty_workload *workload, ty_error *error) TY_MUST_CHECK;

/**
 * Trains the norms alone: what adapters of low rank cost (Hu et al., arXiv:2106.09685). Gradients
 * pass through every block, and no matrix has one; the norms stand for the adapters, whose own
 * products, some thousandth of a block's, are left out.
 */
void ty_builder_freeze_matrices(ty_builder *builder);

#endif
