/**
 * @file checkpoint.h
 * Saves the state of a run and goes on from it. Internal to execute/.
 *
 *     DIR/latest.json           trainyard.checkpoint/2: plan, ranks, step, folder of the newest one
 *     DIR/step-N/rank-R         what rank R keeps after N steps
 *
 * A rank's file is a header and sections, each with its SHA-256, in the machine's byte order:
 * losses so far, and of each stage it holds all sets of weights, optimizer state, statistics and
 * what compressors have not sent yet; of a sharded bucket its own share only. Which samples come
 * next follows from the samples so far, which latest.json counts. latest.json has a digest of each
 * rank's header and sections, and one of itself: no bit of a checkpoint changes unnoticed.
 *
 * Files are written under a temporary name, flushed to the disk and renamed. latest.json is
 * replaced when all ranks' files are there, and the files it named before are removed after that:
 * whenever anything ends, latest.json names a complete checkpoint. All ranks see the same folder.
 */
#ifndef TY_EXECUTE_CHECKPOINT_H
#define TY_EXECUTE_CHECKPOINT_H

#include "interpreter.h"

/** A checkpoint that there is. Zero: none. */
typedef struct ty_checkpoint_place {
    uint32_t step;       /* steps done when it was written */
    uint64_t samples;    /* that they took of the training run */
    ty_digest plan;      /* of the plan that wrote it */
    uint32_t rank_count; /* files there are: processes of that plan */
    uint32_t source;     /* the process whose file this one goes on from */
    ty_digest file;      /* of that file */
} ty_checkpoint_place;

/**
 * The newest checkpoint in a folder. A plan goes on from its own, or from one of a plan that
 * differs in nothing that the state depends on: in micro-batches, their size, replicas, learning
 * rate, buckets, algorithms, devices. With ZeRO, compression or an asynchronous schedule the state
 * depends on all of these but the size of micro-batches, the learning rate, algorithms and devices.
 * @return TY_EIO: there is none; TY_EPARSE: damaged, or of another plan, or of more than `steps`
 * steps.
 */
ty_status ty_checkpoint_find(const char *directory, const ty_plan *plan, uint32_t rank,
                             uint32_t steps, ty_checkpoint_place *out,
                             ty_error *error) TY_MUST_CHECK;

/**
 * Makes the folder, finds out whether files can be written there, and keeps other runs out for as
 * long as this process lives or until ty_checkpoint_unlock: what a run that was killed held is
 * free. Removes what such a run left half-written. On one rank.
 * @param lock [out] for ty_checkpoint_unlock
 * @return TY_EIO: it cannot be written, or another run is using it
 */
ty_status ty_checkpoint_lock(const char *directory, int *lock, ty_error *error) TY_MUST_CHECK;
void ty_checkpoint_unlock(int lock);

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
ty_status ty_checkpoint_load(ty_interpreter *interpreter, const char *directory,
                             const ty_checkpoint_place *place, ty_error *error) TY_MUST_CHECK;

#endif
