/**
 * @file checkpoint_parts.h
 * What checkpoints are made of: a file of each rank, and latest.json. Internal to execute/.
 */
#ifndef TY_EXECUTE_CHECKPOINT_PARTS_H
#define TY_EXECUTE_CHECKPOINT_PARTS_H

#include "checkpoint.h"
#include "ty_json.h"

enum { CHECKPOINT_PATH_SIZE = 4096 };

/* ---- A rank's file (checkpoint_rank.c) ---- */

/**
 * To the disk under its name, and so that it is there when the machine ends.
 * @param digest [out] of the file: of its header and those of its sections, which have their own
 */
ty_status checkpoint_rank_save(ty_interpreter *interpreter, const char *directory,
                               const ty_checkpoint_place *place, ty_digest *digest,
                               ty_error *error) TY_MUST_CHECK;
ty_status checkpoint_rank_load(ty_interpreter *interpreter, const char *directory,
                               const ty_checkpoint_place *place, ty_error *error) TY_MUST_CHECK;
/** Files of this rank, and of those that a plan with more ranks left. */
void checkpoint_rank_remove(const ty_interpreter *interpreter, const char *directory,
                            uint32_t step);

/* ---- latest.json (checkpoint_latest.c); see also checkpoint.h ---- */

/** What there is in it. */
extern const json_record checkpoint_latest_record;
/** @param files [place->rank_count] */
ty_status checkpoint_latest_write(const ty_plan *plan, const char *directory,
                                  const ty_checkpoint_place *place, const ty_digest *files,
                                  ty_error *error) TY_MUST_CHECK;

#endif
