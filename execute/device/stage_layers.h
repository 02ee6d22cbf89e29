/**
 * @file stage_layers.h
 * Which of a stage's layers a pass goes through, and which of them backward has to reach: the same
 * on every backend. Internal to execute/.
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

/** Where a stage is recomputed in segments (ty_recompute_segments). */
typedef struct stage_segments {
    uint32_t count;        /* 0: nothing is recomputed */
    uint32_t *starts;      /* first layers */
    ty_layer_again *again; /* [layers of the workload]: what recomputing makes again of each */
} stage_segments;
ty_status stage_segments_find(const ty_stage_options *options, stage_segments *out,
                              ty_error *error) TY_MUST_CHECK;
void stage_segments_clear(stage_segments *segments);
/** The segment that a layer of the stage is in. */
uint32_t stage_segment_of(const stage_segments *segments, uint32_t layer);

/* ---- The working set of a stage that is recomputed ---- */

/** No segment alone has to do with it, or several have: it is per slot. */
#define STAGE_NO_SEGMENT UINT32_MAX

/** In whose working set something lies that one segment has to do with; STAGE_NO_SEGMENT where the
 * stage is not recomputed, or it has to be `is_kept` from forward to backward. */
uint32_t stage_segment_of_part(const stage_segments *segments, bool is_kept, uint32_t segment);
/** The same of what a node of a layer keeps for itself. */
uint32_t stage_segment_of_stash(const stage_segments *segments, bool is_kept, uint32_t layer);

/**
 * Memory that the segments of a stage use one after the other: as large as the one that needs most.
 * First everything is taken, to know how large that is; then again, in the same or another order,
 * to know where it lies.
 */
typedef struct stage_working_set {
    unsigned char *memory; /* of the backend's own, aligned as its parts are */
    uint64_t *used;        /* [segments] bytes taken so far; zeros at first */
} stage_working_set;

/** Notes that a segment needs so many bytes more; without a segment, nothing.
 * @param alignment of parts, bytes. @return where this part begins */
uint64_t stage_working_set_take(stage_working_set *set, uint32_t segment, uint64_t bytes,
                                uint64_t alignment);
/** What the segment needs that needs most, bytes; all is given back. */
uint64_t stage_working_set_measure(stage_working_set *set, const stage_segments *segments);

/** Whether anything at or before each layer is trained. @param trains [out][layers] */
void stage_trains_find(const ty_workload *workload, bool *trains);

#endif
