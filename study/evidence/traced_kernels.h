/**
 * @file traced_kernels.h
 * Seconds of a step by kind of kernel, for comparison with a profiler's trace. Internal to study/.
 */
#ifndef TY_TRACED_KERNELS_H
#define TY_TRACED_KERNELS_H

#include "costing.h"
#include "ty_workloads.h"

/**
 * Seconds per step that a device in the plan's first pipeline rank spends in kernels of a kind:
 * forward, backward, recomputation and, for passes, optimizer steps; without the time between
 * kernels.
 * @param stack framework to cost the plan with
 * @param kind  products, attention or passes
 * @return NaN if out of memory, or without a cost
 */
double ty_traced_kernels_s(ty_plan *plan, const ty_program *program, ty_network_cache *networks,
                           ty_traced_kind kind, ty_stack *stack);

#endif
