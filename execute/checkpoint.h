/**
 * @file checkpoint.h
 * Saves the state of a run and goes on from it. Internal to execute/.
 *
 *     DIR/latest.json           trainyard.checkpoint/1: plan, ranks, step, folder of the newest one
 *     DIR/step-N/rank-R         what rank R keeps after N steps
 *
 * A rank's file is a header and sections, each with its SHA-256, in the machine's byte order:
 * losses so far, and of each stage it holds all sets of weights, optimizer state, statistics and
 * what compressors have not sent yet; of a sharded bucket its own share only. Which samples come
 * next follows from the step.
 *
 * Files are written under a temporary name, flushed to the disk and renamed. latest.json is
 * replaced when all ranks' files are there, and the files it named before are removed after that:
 * whenever anything ends, latest.json names a complete checkpoint. All ranks see the same folder.
 */
#ifndef TY_EXECUTE_CHECKPOINT_H
#define TY_EXECUTE_CHECKPOINT_H

#include "interpreter.h"

/**
 * The newest checkpoint in a folder.
 * @param step [out] steps done when it was written
 * @return TY_EIO: there is none; TY_EPARSE: damaged, or of another plan, or of no fewer steps than
 * `steps`.
 */
ty_status ty_checkpoint_find(const char *directory, const ty_plan *plan, uint32_t steps,
                             uint32_t *step, ty_error *error) TY_MUST_CHECK;

/** TY_EINVAL when there is a checkpoint, which a run that does not go on from it would replace. */
ty_status ty_checkpoint_refuse(const char *directory, ty_error *error) TY_MUST_CHECK;

/**
 * All ranks, between runs. On failure (full disk, weights that are no longer finite) on any rank
 * all get its message, nothing of the new checkpoint stays and the one before is as it was.
 * @param replaced step of the one before, whose files are removed; equal to the present: none
 */
ty_status ty_checkpoint_save(ty_interpreter *interpreter, const char *directory, uint32_t replaced,
                             ty_error *error) TY_MUST_CHECK;

/**
 * On an interpreter that has not run. TY_EPARSE names a file that is truncated, damaged or of
 * another plan or rank.
 */
ty_status ty_checkpoint_load(ty_interpreter *interpreter, const char *directory, uint32_t step,
                             ty_error *error) TY_MUST_CHECK;

#endif
