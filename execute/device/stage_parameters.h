/**
 * @file stage_parameters.h
 * Where a stage's parameters lie in the one array that device.h promises, and how they start: the
 * same on every backend. Internal to execute/.
 *
 * Layers' slices come in layer order. Behind them lie, where expert-parallel ranks divide them, the
 * experts of all layers, likewise; then the matrix that is tied to another stage's, and behind that
 * a copy of the matrix of each layer whose owner is frozen and elsewhere, which no bucket keeps
 * equal.
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
/** Where each tensor of a layer lies. TY_EINVAL: its matrix is in another stage. */
ty_status stage_parameters_locate(const ty_stage_options *options, const stage_parameters *placed,
                                  uint32_t layer, uint64_t offsets[LAYER_MAX_TENSORS],
                                  ty_error *error) TY_MUST_CHECK;
/** Initial weights of a layer, this rank's part, at `offsets` of `parameters`. A shared matrix
 * starts as its owner would have it, whoever holds the copy, and a teacher's layer as the one that
 * it follows. */
void stage_parameters_fill(const ty_stage_options *options, uint32_t layer,
                           const uint64_t offsets[LAYER_MAX_TENSORS], float *parameters);
/** A layer's whole parameters from the ranks'; see shards_join of device.h. */
uint64_t stage_parameters_join(const ty_stage_options *options, const stage_parameters *placed,
                               uint32_t layer, bool is_tied, const float *parts, float *whole);
/** Likewise of its experts; see experts_join. */
uint64_t stage_parameters_experts_join(const ty_stage_options *options,
                                       const stage_parameters *placed, uint32_t layer,
                                       const float *parts, float *whole);
/** Slice of a range of layers; of their experts, where expert-parallel ranks divide them. */
void stage_parameters_slice(const ty_stage_options *options, const stage_parameters *placed,
                            uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                            uint64_t *count);
void stage_parameters_expert_slice(const ty_stage_options *options, const stage_parameters *placed,
                                   uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                                   uint64_t *count);

#endif
