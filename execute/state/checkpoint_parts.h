/**
 * @file checkpoint_parts.h
 * The files of a checkpoint: one of each rank, and checkpoint.json. Internal to execute/.
 */
#ifndef TY_EXECUTE_CHECKPOINT_PARTS_H
#define TY_EXECUTE_CHECKPOINT_PARTS_H

#include "checkpoint.h"
#include "ty_json.h"

enum { CHECKPOINT_PATH_SIZE = 4096 };

/* ---- The state of a rank (checkpoint_tensors.c) ---- */

/* A block of memory that is part of the state. */
typedef struct checkpoint_section {
    void *data;
    uint64_t bytes;
    bool is_weights;         /* floats that must be finite */
    ty_stage_device *device; /* that owns the memory; NULL: host memory */
} checkpoint_section;

typedef enum checkpoint_kind {
    CHECKPOINT_WEIGHTS,
    CHECKPOINT_STATES, /* of the optimizer */
    CHECKPOINT_EXPERT_WEIGHTS,
    CHECKPOINT_EXPERT_STATES,
    CHECKPOINT_STATISTICS,
    CHECKPOINT_EQUAL /* equal on all ranks; `layer` numbers them */
} checkpoint_kind;

/* The part of a section with bytes of one layer. As in files. */
typedef struct checkpoint_extent {
    uint32_t layer, kind, section, unused;
    uint64_t start, bytes; /* of this rank's shard of the layer */
    uint64_t at;           /* in the section */
} checkpoint_extent;

typedef struct checkpoint_sections {
    const ty_device_memory *memory; /* of sections on a device */
    checkpoint_section *items;
    uint32_t count, capacity;
    checkpoint_extent *extents; /* the last section */
    uint32_t extent_count, extent_capacity;
    bool has_failed;
} checkpoint_sections;

/** All of this rank's state; borrows the interpreter. */
ty_status checkpoint_sections_find(ty_interpreter *in, checkpoint_sections *out,
                                   ty_error *error) TY_MUST_CHECK;
void checkpoint_sections_clear(checkpoint_sections *sections);
/** Fills this rank's state from the files of a plan with other ranks, but the same TP, CP and EP
 * sizes. */
ty_status checkpoint_tensors_load(ty_interpreter *in, const char *directory,
                                  const ty_checkpoint_place *place, ty_error *error) TY_MUST_CHECK;

/* ---- A rank's file (checkpoint_rank.c) ---- */

/** A file in memory whose digests are those of its content. */
typedef struct checkpoint_file {
    const char *bytes;
    size_t length;
} checkpoint_file;
/** TY_EIO, TY_EPARSE: there is no such file, or it is damaged. */
ty_status checkpoint_file_open(const char *directory, uint32_t step, uint32_t rank,
                               const ty_digest *digest, checkpoint_file *out,
                               ty_error *error) TY_MUST_CHECK;
void checkpoint_file_close(checkpoint_file *file);
/** A section's content; NULL: there are not that many. */
const char *checkpoint_file_section(const checkpoint_file *file, uint32_t index, uint64_t *bytes);
/** Number of sections in it. */
uint32_t checkpoint_file_sections(const checkpoint_file *file);

/**
 * Writes it to the disk under its name, durably, so that it survives a crash of the host.
 * @param digest [out] of the file: of its header and of its sections' headers, which have digests
 */
ty_status checkpoint_rank_save(ty_interpreter *interpreter, const char *directory,
                               const ty_checkpoint_place *place, ty_digest *digest,
                               ty_error *error) TY_MUST_CHECK;
ty_status checkpoint_rank_load(ty_interpreter *interpreter, const char *directory,
                               const ty_checkpoint_place *place, ty_error *error) TY_MUST_CHECK;
/** Whether the file of a rank exists and is intact. TY_EIO, TY_EPARSE: not. */
ty_status checkpoint_rank_check(const char *directory, uint32_t step, uint32_t rank,
                                const ty_digest *digest, ty_error *error) TY_MUST_CHECK;
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
