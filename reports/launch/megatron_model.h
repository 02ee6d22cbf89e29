/**
 * @file megatron_model.h
 * A workload in Megatron-LM's words. Internal to reports/.
 */
#ifndef TY_REPORTS_MEGATRON_MODEL_H
#define TY_REPORTS_MEGATRON_MODEL_H

#include "ty_core.h"

/** A decoder of equal blocks, as pretrain_gpt.py builds it. */
typedef struct megatron_model {
    uint32_t blocks;
    uint32_t first_block_layer; /* layer of the first block; block b begins at it + b * layers */
    uint32_t block_layers;
    const ty_layer *embedding, *norm, *attention;
    const ty_layer *mlp; /* of a block without experts; NULL: every block has some */
    const ty_layer *moe; /* of a block with experts; NULL: none has */
    bool *has_experts;   /* [blocks]; free with ty_free */
    bool is_tied;
} megatron_model;

/** @return TY_EUNSUPPORTED naming the layer that pretrain_gpt.py would not build. */
ty_status ty_megatron_model_of(const ty_workload *workload, megatron_model *out,
                               ty_error *error) TY_MUST_CHECK;

/** Appends "--num-layers 24\n" and so on. @param lanes of tensor parallelism */
ty_status ty_megatron_model_arguments(const ty_workload *workload, const megatron_model *model,
                                      uint32_t lanes, ty_text *text, ty_error *error) TY_MUST_CHECK;

#endif
