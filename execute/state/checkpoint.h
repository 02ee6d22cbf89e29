/**
 * @file checkpoint.h
 * Saves the state of a run and resumes from it. Internal to execute/.
 *
 *     DIR/step-N/rank-R           state of rank R after N steps
 *     DIR/step-N/checkpoint.json  trainyard.checkpoint/3: plan, ranks, step, digests of the files
 *     DIR/latest.json             a copy of the newest checkpoint.json
 *
 * A rank's file is a header and sections, each with its SHA-256, in the host's byte order. Sections
 * hold the losses so far, and for each of the rank's stages all weight versions, optimizer states,
 * statistics and the residuals of compressors; only its own shard of a sharded bucket. The next
 * samples follow from the samples so far, which checkpoint.json counts. checkpoint.json has a
 * digest of each rank's header and sections, and one of itself, so that any changed bit of a
 * checkpoint is detected.
 *
 * Files are written under a temporary name, flushed to the disk and renamed. checkpoint.json is
 * written once all ranks' files exist; then all checkpoints but the newest K are removed. So a
 * checkpoint.json always names a complete checkpoint, even after a crash. A resumed run takes the
 * newest checkpoint whose files are intact on all ranks. All ranks see the same folder. Only the
 * user that trains can read its state.
 */
#ifndef TY_EXECUTE_CHECKPOINT_H
#define TY_EXECUTE_CHECKPOINT_H

#include "interpreter.h"

/** An existing checkpoint. Zero: none. */
typedef struct ty_checkpoint_place {
    uint32_t step;       /* steps done when it was written */
    uint64_t samples;    /* of the training run that these steps used */
    ty_digest plan;      /* of the plan that wrote it */
    uint32_t rank_count; /* files: ranks of that plan */
    uint32_t source;     /* the rank from whose file this one resumes */
    ty_digest file;      /* of that file */
    uint32_t stride;     /* > 0: it resumes from tensors in files source, source + stride, ... */
    ty_digest *files;    /* with a stride: of all ranks; owned, see ty_checkpoint_place_clear */
} ty_checkpoint_place;
void ty_checkpoint_place_clear(ty_checkpoint_place *place);

/** The checkpoints of a folder that one rank may resume from. */
typedef struct ty_checkpoint_query {
    const char *directory;
    const ty_plan *plan;
    uint32_t rank;
    uint32_t steps;   /* of the run */
    uint32_t most;    /* ignores checkpoints of more steps */
    bool is_optional; /* without any checkpoint, the place has step 0 */
} ty_checkpoint_query;

/**
 * The newest checkpoint in a folder whose own file is intact; if there is only one, its file is
 * checked when it is loaded. A plan resumes from its own, or from one of a plan with the
 * same state. That plan may differ in micro-batches, their size, replicas, learning rate, buckets,
 * algorithms and devices. With ZeRO, compression or an asynchronous schedule it may differ only in
 * micro-batch size, learning rate, algorithms and devices. Without compressors that keep state,
 * synchronous plans of the same TP, CP and EP sizes may also differ in stages and ZeRO: their ranks
 * gather their tensors from the files of several ranks.
 * @param damage [out] of a newer checkpoint; untouched if there is none
 * @return TY_EIO: there is none; TY_EPARSE: all are damaged, or the newest is of another plan, or
 * of more than `steps` steps.
 */
ty_status ty_checkpoint_find(const ty_checkpoint_query *query, ty_checkpoint_place *out,
                             ty_error *damage, ty_error *error) TY_MUST_CHECK;

/** The same on all ranks of the plan: the newest checkpoint whose files are all intact. */
ty_status ty_checkpoint_agree(ty_checkpoint_query query, ty_transport *transport,
                              ty_checkpoint_place *out, ty_error *damage,
                              ty_error *error) TY_MUST_CHECK;

/**
 * Creates the folder, checks that files can be written there, and locks out other runs until this
 * process ends or calls ty_checkpoint_unlock. The lock of a killed run is free. Removes files that
 * such a run left half-written. On one rank.
 * @param lock [out] for ty_checkpoint_unlock
 * @return TY_EIO: it cannot be written, or another run is using it
 */
ty_status ty_checkpoint_lock(const char *directory, int *lock, ty_error *error) TY_MUST_CHECK;
void ty_checkpoint_unlock(int lock);

/** TY_EINVAL if there is a checkpoint, which a run that does not resume from it would replace. */
ty_status ty_checkpoint_refuse(const char *directory, ty_error *error) TY_MUST_CHECK;

/**
 * All ranks, between runs. On failure (full disk, weights that are no longer finite) on any rank
 * all get its message, nothing of the new checkpoint remains and the one before is unchanged.
 * @param kept number of newest checkpoints that remain, this one included
 */
ty_status ty_checkpoint_save(ty_interpreter *interpreter, const char *directory, uint32_t kept,
                             ty_error *error) TY_MUST_CHECK;

/**
 * On an interpreter that has not run. TY_EPARSE names a file that is truncated, damaged or of
 * another plan or rank. Removes newer checkpoints, which are damaged or incomplete, and all but
 * `kept`.
 */
ty_status ty_checkpoint_load(ty_interpreter *interpreter, const char *directory,
                             const ty_checkpoint_place *place, uint32_t kept,
                             ty_error *error) TY_MUST_CHECK;

#endif
