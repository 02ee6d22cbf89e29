/**
 * @file transformer.h
 * The sizes that make a transformer, and its layers: what the zoo's families and the importers of
 * language models have in common. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_TRANSFORMER_H
#define TY_WORKLOADS_TRANSFORMER_H

#include "ty_workloads.h"

typedef enum ty_transformer_form {
    TY_DECODER,        /* norms before what they feed, causal: GPT, Llama */
    TY_ENCODER,        /* norms behind each sum and the embedding: BERT */
    TY_ENCODER_DECODER /* T5: norms before; the decoder also attends to the encoder's output */
} ty_transformer_form;

typedef enum ty_transformer_head {
    TY_LANGUAGE_HEAD, /* logits of every position and the loss */
    TY_MASKED_HEAD,   /* encoders: linear, gelu and norm before the logits, which have a bias */
    TY_POOLER_HEAD    /* encoders: linear and tanh of the first token, no loss */
} ty_transformer_head;

/** Sizes are 0 where something is not there. */
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
    uint64_t longest_sequence; /* 0: positions, if there are any */
    uint64_t token_bytes;      /* of one token in storage */
    uint64_t value_head_size, query_rank, kv_rank, rotary_size, relative_buckets; /* ty_attribute */
    uint64_t experts, experts_per_token, expert_features, shared_features;
    uint64_t dense_blocks;    /* the first so many have an mlp, ... */
    uint64_t expert_interval; /* ... then every so manieth, counted from 0, has experts; 0: 1 */
    bool has_attention_bias, has_qkv_bias, has_mlp_bias, has_qk_norm, has_router_bias;
    bool is_gated, is_relu, is_rms_norm, is_fused;
    bool is_tied; /* logits are made with the embedding's matrix */
} ty_transformer;

/** The longest sequence it can be asked for; 0: any. */
uint64_t ty_transformer_longest(const ty_transformer *t);

/**
 * Whether the sizes go together.
 * @param expected [out] if not, what should have been: "heads that divide features; ..."
 */
#define TY_TRANSFORMER_TEXT_SIZE 160
bool ty_transformer_fits(const ty_transformer *t, char expected[TY_TRANSFORMER_TEXT_SIZE]);

/** A builder with all its layers, for sizes that fit; NULL only without memory. Source and training
 *  are left to the caller. */
ty_builder *ty_transformer_build(const ty_transformer *t, const char *name);

#endif
