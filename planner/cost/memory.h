/**
 * @file memory.h
 * Memory of one device by a stack's own way of keeping activations, and what libraries take of it.
 * Internal to planner/; ty_stage_memory asks by the plan's stack.
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

/**
 * What a device has beside the other rows: libraries, on an accelerator with what these work in,
 * and on a host's cores the samples that a position at either end of the pipeline reads or has the
 * labels of.
 * @param positions of the pipeline; position p has the stages p, p + positions and so on
 */
uint64_t ty_workspace_bytes(const ty_plan *plan, uint32_t position, uint32_t positions,
                            bool is_on_cores);

#endif
