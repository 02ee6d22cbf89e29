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
/** Whether anything at or before each layer is trained. @param trains [out][layers] */
void stage_trains_find(const ty_workload *workload, bool *trains);

#endif
