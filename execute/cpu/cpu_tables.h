/**
 * @file cpu_tables.h
 * Tables of embedding bags that expert-parallel ranks divide: what the ranks tell each other
 * (ty_plan.h, "Tables"). The stage's first bag does so for all, forward before the others and
 * backward behind them; the others take what is theirs, and bring it.
 */
#ifndef TY_EXECUTE_CPU_TABLES_H
#define TY_EXECUTE_CPU_TABLES_H

#include "cpu_layer.h"

/** Whether the ranks divide the stage's tables. */
bool cpu_tables_are_divided(const ty_stage_device *stage);
/** Room for a bag; more than none for the first one. */
ty_status cpu_tables_build(ty_stage_device *stage, stage_node *node, ty_error *error) TY_MUST_CHECK;
ty_status cpu_tables_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error) TY_MUST_CHECK;
ty_status cpu_tables_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error) TY_MUST_CHECK;

/** Whether all indices of a bag are rows of its table; else TY_EINVAL naming the first. */
ty_status cpu_indices_check(const ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            ty_error *error) TY_MUST_CHECK;

#endif
