/* What the ranks measured, brought together on rank 0. Internal to execute/. */
#ifndef TY_EXECUTE_RESULTS_H
#define TY_EXECUTE_RESULTS_H

#include "interpreter.h"

/** The reading of this rank's ty_now_s that all ranks take as 0. On all ranks at once. */
ty_status ty_results_clock(ty_transport *transport, double *origin_s,
                           ty_error *error) TY_MUST_CHECK;

/**
 * Gathers timeline, losses and memory on rank 0, which fills in `run` and writes the job's output.
 * On all ranks.
 * @param first_recorded, recorded_steps as the interpreter was told
 * @param run wall time and evaluations are filled in by the caller
 */
ty_status ty_results_save(const ty_job *job, ty_interpreter *interpreter, ty_transport *transport,
                          uint32_t first_recorded, uint32_t recorded_steps, double origin_s,
                          ty_run *run, ty_error *error) TY_MUST_CHECK;

#endif
