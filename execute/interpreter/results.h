/* Measurements of all ranks, gathered on rank 0. Internal to execute/. */
#ifndef TY_EXECUTE_RESULTS_H
#define TY_EXECUTE_RESULTS_H

#include "checkpoint.h"
#include "interpreter.h"

/** The steps of a timeline, counted from the first one that was recorded. */
typedef struct ty_recorded_steps {
    uint32_t first, count;
} ty_recorded_steps;

/** The reading of this rank's ty_now_s that is time 0 on all ranks. On all ranks together. */
ty_status ty_results_clock(ty_transport *transport, double *origin_s,
                           ty_error *error) TY_MUST_CHECK;

/**
 * Gathers timeline, losses and memory on rank 0, which fills in `run` and writes the job's output.
 * On all ranks. With a folder for checkpoints, it stores the result there, too.
 * @param window  recorded steps, all of which have ended; without any, there is no timeline
 * @param run wall time and evaluations are filled in by the caller
 * @param is_written [out] whether the job's output is written; on rank 0, whatever else failed
 */
ty_status ty_results_save(const ty_job *job, ty_interpreter *interpreter, ty_transport *transport,
                          ty_recorded_steps window, double origin_s, ty_run *run, bool *is_written,
                          ty_error *error) TY_MUST_CHECK;

/**
 * Whether the run that wrote the checkpoint reached the job's steps or target, and its result is in
 * the folder. Ranks that see the same folder get the same answer.
 * @return TY_ENOMEM; an unreadable result counts as none
 */
ty_status ty_result_is_kept(const ty_job *job, const ty_checkpoint_place *place, bool *out,
                            ty_error *error) TY_MUST_CHECK;
/** Writes that result to the job's output. */
ty_status ty_result_give_again(const ty_job *job, ty_error *error) TY_MUST_CHECK;

#endif
