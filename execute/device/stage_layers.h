/**
 * @file stage_layers.h
 * The layers of a stage that a pass runs, and those that backward has to reach: the same on every
 * backend. Internal to execute/.
 */
#ifndef TY_EXECUTE_STAGE_LAYERS_H
#define TY_EXECUTE_STAGE_LAYERS_H

#include "device.h"

/** TY_EINVAL: the stage has no such slot, or not all of these layers. */
ty_status stage_range_check(const ty_stage_options *options, uint32_t slot, uint32_t first_layer,
                            uint32_t layer_count, ty_error *error) TY_MUST_CHECK;
/** Whether a range has the stage's last layer. */
bool stage_range_has_last(const ty_stage_options *options, uint32_t first_layer,
                          uint32_t layer_count);

/** Segments in which a stage is recomputed (ty_recompute_segments). */
typedef struct stage_segments {
    uint32_t count;        /* 0: nothing is recomputed */
    uint32_t *starts;      /* first layers */
    ty_layer_again *again; /* [layers of the workload]: the part of each that is recomputed */
} stage_segments;
ty_status stage_segments_find(const ty_stage_options *options, stage_segments *out,
                              ty_error *error) TY_MUST_CHECK;
void stage_segments_clear(stage_segments *segments);
/** The segment that a layer of the stage is in. */
uint32_t stage_segment_of(const stage_segments *segments, uint32_t layer);

/* ---- The working set of a stage that is recomputed ---- */

/** No segment uses it, or several do: it is per slot. */
#define STAGE_NO_SEGMENT UINT32_MAX

/** The segment whose working set stores a buffer that only `segment` uses. STAGE_NO_SEGMENT if the
 * stage is not recomputed, or the buffer `is_kept` from forward to backward. */
uint32_t stage_segment_of_part(const stage_segments *segments, bool is_kept, uint32_t segment);
/** The same for the stash of a layer's node. */
uint32_t stage_segment_of_stash(const stage_segments *segments, bool is_kept, uint32_t layer);

/**
 * Memory that the segments of a stage use one after the other: as large as the one that needs most.
 * A first round of calls takes everything, to find the size; a second round, in the same or another
 * order, finds the addresses.
 */
typedef struct stage_working_set {
    unsigned char *memory; /* of the backend's own, aligned as its parts are */
    uint64_t *used;        /* [segments] bytes taken so far; zeros at first */
} stage_working_set;

/** Takes `bytes` more for a segment; does nothing without a segment.
 * @param alignment of parts, bytes. @return offset of this part */
uint64_t stage_working_set_take(stage_working_set *set, uint32_t segment, uint64_t bytes,
                                uint64_t alignment);
/** Bytes of the segment that needs most. Resets `used` to 0. */
uint64_t stage_working_set_measure(stage_working_set *set, const stage_segments *segments);

/** Whether a parameter at or before each layer is trained. @param trains [out][layers] */
void stage_trains_find(const ty_workload *workload, bool *trains);

#endif
