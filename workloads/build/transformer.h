/**
 * @file transformer.h
 * Sizes of a transformer and its layers, for the zoo's families and the importers of language
 * models. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_TRANSFORMER_H
#define TY_WORKLOADS_TRANSFORMER_H

#include "ty_workloads.h"

typedef enum ty_transformer_form {
    TY_DECODER,        /* norms before attention and mlp, causal: GPT, Llama */
    TY_ENCODER,        /* norms after each sum and the embedding: BERT */
    TY_ENCODER_DECODER /* T5: norms before; the decoder also attends to the encoder's output */
} ty_transformer_form;

typedef enum ty_transformer_head {
    TY_LANGUAGE_HEAD,   /* logits of every position and the loss */
    TY_MASKED_HEAD,     /* encoders: linear, gelu and norm before the logits, which have a bias */
    TY_POOLER_HEAD,     /* encoders: linear and tanh of the first token, no loss */
    TY_CLASSIFIER_HEAD, /* classes of the first token, and the loss */
    TY_NO_HEAD
} ty_transformer_head;

/** Place of the norms of a block. */
typedef enum ty_norm_place {
    TY_NORMS_OF_FORM, /* after the sums of an encoder, else before attention and mlp */
    TY_NORMS_BEFORE,
    TY_NORMS_AROUND,   /* before and after attention and mlp, before the sum: Gemma 2 */
    TY_NORMS_BEHIND,   /* only after them, before the sum: OLMo 2 */
    TY_NORMS_AFTER_SUM /* as in BERT and OPT-350M */
} ty_norm_place;

typedef enum ty_mixer {
    TY_MIX_ATTENTION,
    TY_MIX_STATE_SPACE,
    TY_MIX_DELTA,
    TY_MIX_LINEAR, /* a matrix instead */
    TY_MIX_NONE
} ty_mixer;
typedef enum ty_feed { TY_FEED_MLP, TY_FEED_EXPERTS, TY_FEED_LINEAR, TY_FEED_NONE } ty_feed;

/** One block, if blocks differ; sizes of 0 are those of the model. */
typedef struct ty_transformer_block {
    ty_mixer mixer;
    ty_feed feed;
    uint64_t window; /* of attention; 0: none */
    uint64_t heads, kv_heads, head_size, hidden_features;
    bool shares_kv;
} ty_transformer_block;

/** Sizes of absent parts are 0. */
typedef struct ty_transformer {
    ty_transformer_form form;
    ty_transformer_head head;
    uint64_t blocks, decoder_blocks; /* the second of an encoder-decoder only */
    uint64_t features, heads;
    uint64_t kv_heads;                           /* 0: heads */
    uint64_t head_size;                          /* 0: features / heads */
    uint64_t hidden_features;                    /* of an mlp */
    uint64_t vocabulary, positions, token_types; /* rows of the embedding's tables */
    uint64_t sequence, decoder_sequence;
    uint64_t longest_sequence; /* that it was trained with; longer ones are possible up to
                                  `positions`, which are 0 for rotary ones; 0: positions */
    uint64_t token_bytes;      /* of one token in storage */
    uint64_t value_head_size, query_rank, kv_rank, rotary_size, relative_buckets; /* ty_attribute */
    uint64_t experts, experts_per_token, expert_features, shared_features;
    uint64_t dense_blocks;    /* the first ones have an mlp, ... */
    uint64_t expert_interval; /* ... then every k-th, counted from 0, has experts; 0: 1 */
    bool has_attention_bias, has_qkv_bias, has_mlp_bias, has_qk_norm, has_router_bias;
    bool is_gated, is_relu, is_rms_norm, is_fused;
    bool is_tied; /* logits use the embedding's matrix */

    /* Members for later families. */
    const ty_transformer_block *block_list; /* [blocks]; NULL: all equal, except for experts */
    ty_norm_place norm_place;
    bool is_parallel;   /* attention and mlp have the same input and one sum: GPT-J */
    bool has_two_norms; /* ... each with its own norm: GPT-NeoX */
    bool is_unshifted;  /* layer norms have gains only */
    bool is_shared;     /* all blocks share the first one's parameters: ALBERT */
    bool lacks_first_norm, lacks_final_norm, has_embedding_norm, has_output_bias;
    uint64_t embedding_features; /* of the tables, if a matrix projects them to features; else 0 */
    bool has_embedding_bias;     /* of that matrix */
    uint64_t late_positions;     /* rows of a table added after it */
    uint64_t classes;            /* classes of a classifier */
    uint64_t window, index_heads, index_head_size, chosen_rows; /* ty_attribute */
    bool has_sinks, has_attention_gate, has_wide_qk_norm, lacks_key_bias;
    bool has_shared_gate;
    uint64_t latent_features;
    uint64_t state_features, state_size, state_heads, state_groups, step_rank, state_kernel;
    bool has_state_bias, has_step_norms;
    uint64_t delta_heads, delta_key_heads, delta_head_size, delta_value_size;
} ty_transformer;

/** The longest supported sequence; 0: any. */
uint64_t ty_transformer_longest(const ty_transformer *t);

/**
 * Checks that the sizes are consistent.
 * @param expected [out] if not, the expected ones: "heads that divide features; ..."
 */
#define TY_TRANSFORMER_TEXT_SIZE 160
bool ty_transformer_fits(const ty_transformer *t, char expected[TY_TRANSFORMER_TEXT_SIZE]);

/** Appends its blocks and last norm after `x`; names begin with `prefix`. @param memory of
 * cross-attention; TY_BATCH: none */
uint32_t ty_transformer_append(ty_builder *builder, const ty_transformer *t, const char *prefix,
                               uint32_t x, uint32_t memory);
/** Appends its head after `x`. @param embedding the layer with the matrix of tied logits */
void ty_transformer_append_head(ty_builder *builder, const ty_transformer *t, uint32_t x,
                                uint32_t embedding);
/** Appends its embedding with the optional norm and matrix after it. @param x [out] input of the
 * blocks */
uint32_t ty_transformer_append_embedding(ty_builder *builder, const ty_transformer *t, uint32_t *x);

/** A builder with all its layers, for consistent sizes; NULL only if out of memory. The caller sets
 * source and training. */
ty_builder *ty_transformer_build(const ty_transformer *t, const char *name);

#endif
