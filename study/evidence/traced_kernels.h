/**
 * @file traced_kernels.h
 * Seconds of a step by kinds of kernels, to be held against a profiler's trace. Internal to study/.
 */
#ifndef TY_TRACED_KERNELS_H
#define TY_TRACED_KERNELS_H

#include "costing.h"
#include "ty_workloads.h"

/**
 * Seconds of a step that a device of the plan's first position spends in kernels of a kind:
 * forward, backward, what is recomputed, and among passes the updates; without the time between
 * kernels.
 * @param stack that the plan is costed with, in place of its own
 * @param kind  products, attention or passes
 * @return NaN where there is no memory, or no cost
 */
double ty_traced_kernels_s(ty_plan *plan, const ty_program *program, ty_network_cache *networks,
                           ty_traced_kind kind, ty_stack *stack);

#endif
