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
    uint32_t count;   /* 0: nothing is recomputed */
    uint32_t *starts; /* first layers */
    bool *is_kept;    /* [layers of the workload]: recomputing finds what its first product made */
} stage_segments;
ty_status stage_segments_find(const ty_stage_options *options, stage_segments *out,
                              ty_error *error) TY_MUST_CHECK;
void stage_segments_clear(stage_segments *segments);
/** The segment that a layer of the stage is in. */
uint32_t stage_segment_of(const stage_segments *segments, uint32_t layer);

/** Whether anything at or before each layer is trained. @param trains [out][layers] */
void stage_trains_find(const ty_workload *workload, bool *trains);

#endif
