/**
 * @file memory.h
 * Memory of one device by a stack's own way of keeping activations. Internal to planner/;
 * ty_stage_memory asks by the plan's stack.
 */
#ifndef TY_PLANNER_MEMORY_H
#define TY_PLANNER_MEMORY_H

#include "ty_planner.h"

/**
 * TY_MEMORY_AUTOGRAD. @param program of which the peak of what is in flight is read
 * @param compression_bytes payloads and state of compressors, which are the same by all stacks
 */
ty_status ty_autograd_memory(const ty_plan *plan, const ty_program *program, uint32_t stage,
                             double compression_bytes, ty_memory_use *out,
                             ty_error *error) TY_MUST_CHECK;

#endif
