/**
 * @file stage_parameters.h
 * Offsets of a stage's parameters in the one array that device.h specifies, and their initial
 * values: the same on every backend. Internal to execute/.
 *
 * Layers' slices come first, in layer order. If experts are sharded over expert-parallel ranks,
 * their slices follow, also in layer order. Then comes the matrix that is tied to another stage's.
 * Last is a copy of the matrix of each layer whose owner is frozen and in another stage; no bucket
 * keeps these equal.
 */
#ifndef TY_EXECUTE_STAGE_PARAMETERS_H
#define TY_EXECUTE_STAGE_PARAMETERS_H

#include "layer_tensors.h"

typedef struct stage_parameters {
    uint64_t count;                           /* floats, of one set */
    uint64_t *layer_offsets, *expert_offsets; /* [layer_count + 1] */
    uint64_t tied_offset, tied_count;
} stage_parameters;

/** Freed by stage_parameters_clear. TY_EINVAL: the workload's figures do not fit its attributes, or
 * the tied layer has no matrix in this stage. */
ty_status stage_parameters_place(const ty_stage_options *options, stage_parameters *out,
                                 ty_error *error) TY_MUST_CHECK;
void stage_parameters_clear(stage_parameters *placed);
/** Offsets of a layer's tensors. TY_EINVAL: its matrix is in another stage. */
ty_status stage_parameters_locate(const ty_stage_options *options, const stage_parameters *placed,
                                  uint32_t layer, uint64_t offsets[LAYER_MAX_TENSORS],
                                  ty_error *error) TY_MUST_CHECK;
/** Writes this rank's shard of a layer's initial weights at `offsets` of `parameters`. Every copy
 * of a shared matrix starts like its owner's, and a teacher's layer like the one that it follows.
 */
void stage_parameters_fill(const ty_stage_options *options, uint32_t layer,
                           const uint64_t offsets[LAYER_MAX_TENSORS], float *parameters);
/** A layer's unsharded parameters from the ranks' shards; see shards_join of device.h. */
uint64_t stage_parameters_join(const ty_stage_options *options, const stage_parameters *placed,
                               uint32_t layer, bool is_tied, const float *parts, float *whole);
/** Likewise for its experts; see experts_join. */
uint64_t stage_parameters_experts_join(const ty_stage_options *options,
                                       const stage_parameters *placed, uint32_t layer,
                                       const float *parts, float *whole);
/** Slice of a range of layers; of their experts, if these are sharded over expert-parallel ranks.
 */
void stage_parameters_slice(const ty_stage_options *options, const stage_parameters *placed,
                            uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                            uint64_t *count);
void stage_parameters_expert_slice(const ty_stage_options *options, const stage_parameters *placed,
                                   uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                                   uint64_t *count);

#endif
