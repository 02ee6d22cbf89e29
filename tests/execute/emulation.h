/* One thread that trains as the ranks of a plan would. It runs every stage's layers on a device of
 * their own, with the weights that the stage would have by then. Keeps every weight version. */
#ifndef TY_TEST_EXECUTE_EMULATION_H
#define TY_TEST_EXECUTE_EMULATION_H

#include "ty_execute.h"

/**
 * Losses of a job whose pipeline never drains and whose collectives lose nothing.
 * @param losses [out, job->steps]
 */
void emulate_job(const ty_job *job, double *losses);
/**
 * Updates that a stage has applied when its replica runs the forward pass of micro-batch `m` in
 * step `t`. `start` is the step that last filled the pipeline.
 * Flush: all updates before the step. PipeDream: the n-th forward pass is followed by the (n -
 * w)-th backward pass, where w is the number of micro-batches that keep the later stages busy. The
 * last backward pass of each step is followed by its update. 2BW: one fewer than the step could
 * have. Staleness d: all steps but the last d, and at least those before `start`.
 */
uint32_t emulated_version(const ty_plan *plan, uint32_t stage, uint32_t start, uint32_t t,
                          uint32_t m);

#endif
