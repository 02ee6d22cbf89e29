/* One thread that trains as a plan's ranks would: every stage's layers on a device of their own,
 * with the weights that the stage would have by then. Keeps every set of weights. */
#ifndef TY_TEST_EXECUTE_EMULATION_H
#define TY_TEST_EXECUTE_EMULATION_H

#include "ty_execute.h"

/**
 * Losses of a job whose pipe is never drained and whose exchanges lose nothing.
 * @param losses [out, job->steps]
 */
void emulate_job(const ty_job *job, double *losses);
/**
 * How many updates a stage has behind it when its replica does micro-batch `m` of step `t` forward,
 * `start` being the step with which the pipe was last filled. With a flush: all before the step.
 * PipeDream: forward of the n-th is followed by backward of the (n - w)th, w being how many the
 * later stages keep busy, and each step's last backward by its update. 2BW: one fewer than the step
 * could have. Late gradients: those of the steps since `start` that are so many before.
 */
uint32_t emulated_version(const ty_plan *plan, uint32_t stage, uint32_t start, uint32_t t,
                          uint32_t m);

#endif
