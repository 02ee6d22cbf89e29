/**
 * @file checkpoint_parts.h
 * The files of a checkpoint: one of each rank, and checkpoint.json. Internal to execute/.
 */
#ifndef TY_EXECUTE_CHECKPOINT_PARTS_H
#define TY_EXECUTE_CHECKPOINT_PARTS_H

#include "checkpoint.h"
#include "ty_json.h"

enum { CHECKPOINT_PATH_SIZE = 4096 };

/* ---- A rank's file (checkpoint_rank.c) ---- */

/**
 * Writes it to the disk under its name, durably, so that it survives a crash of the host.
 * @param digest [out] of the file: of its header and of its sections' headers, which have digests
 */
ty_status checkpoint_rank_save(ty_interpreter *interpreter, const char *directory,
                               const ty_checkpoint_place *place, ty_digest *digest,
                               ty_error *error) TY_MUST_CHECK;
ty_status checkpoint_rank_load(ty_interpreter *interpreter, const char *directory,
                               const ty_checkpoint_place *place, ty_error *error) TY_MUST_CHECK;
/** Whether the file exists and its digests are those of its content. TY_EIO, TY_EPARSE: not. */
ty_status checkpoint_rank_check(const char *directory, const ty_checkpoint_place *place,
                                ty_error *error) TY_MUST_CHECK;
/** Removes the file of this rank, and those that a plan with more ranks left. On rank 0 first
 * checkpoint.json, so that the rest is no longer a checkpoint. */
void checkpoint_rank_remove(const ty_interpreter *interpreter, const char *directory,
                            uint32_t step);

/* ---- checkpoint.json and latest.json (checkpoint_latest.c); see also checkpoint.h ---- */

/** Its keys. */
extern const json_record checkpoint_latest_record;
/** Steps of the folders step-N, descending; free with ty_free. */
ty_status checkpoint_steps(const char *directory, uint32_t **steps, uint32_t *count,
                           ty_error *error) TY_MUST_CHECK;
/** Whether a folder of a step lacks checkpoint.json, as it was killed while it was written. */
bool checkpoint_is_incomplete(const char *directory, uint32_t step);
/** @param files [place->rank_count] */
ty_status checkpoint_latest_write(const ty_plan *plan, const char *directory,
                                  const ty_checkpoint_place *place, const ty_digest *files,
                                  ty_error *error) TY_MUST_CHECK;

#endif
