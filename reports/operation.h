/** @file operation.h  Names of instructions for people. Internal to reports/. */
#ifndef TY_REPORTS_OPERATION_H
#define TY_REPORTS_OPERATION_H

#include "ty_core.h"

/** Writes a name: "forward conv1 .. relu3", "all_reduce bucket 2", "send"; of a second phase with
 * that. */
void ty_operation_name(const ty_plan *plan, ty_op op, uint32_t first_layer, uint32_t layer_count,
                       uint32_t bucket, uint32_t phase, char *out, size_t size);

#endif
