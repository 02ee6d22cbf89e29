/**
 * @file cpu_tables.h
 * Collectives for tables of embedding bags that are sharded over expert-parallel ranks (ty_plan.h,
 * "Tables"). The stage's first bag communicates for all: before the others in forward, after them
 * in backward. The others read their part of the result, and add theirs to the gradients.
 */
#ifndef TY_EXECUTE_CPU_TABLES_H
#define TY_EXECUTE_CPU_TABLES_H

#include "cpu_layer.h"

/** Whether the stage's tables are sharded. */
bool cpu_tables_are_divided(const ty_stage_device *stage);
/** Allocates the state of a bag; only the first one has any. */
ty_status cpu_tables_build(ty_stage_device *stage, stage_node *node, ty_error *error) TY_MUST_CHECK;
ty_status cpu_tables_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error) TY_MUST_CHECK;
ty_status cpu_tables_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error) TY_MUST_CHECK;

/** Whether all indices of a bag are rows of its table; else TY_EINVAL naming the first. */
ty_status cpu_indices_check(const ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            ty_error *error) TY_MUST_CHECK;

#endif
