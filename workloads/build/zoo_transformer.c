/* The families of language models. They differ only in their defaults:
 *   transformer      a decoder as in GPT-2: learned positions, layer norms, biases everywhere,
 *                    gelu, logits with the embedding's matrix
 *   decoder          as in Llama: rotary positions, rms norms, no biases, gated mlps, logits with
 *                    their own matrix, fused attention
 *   encoder          as in BERT
 *   encoder_decoder  as in T5 */
#include "builder.h"
#include "transformer.h"
#include "zoo_family.h"

#include <stddef.h>
#include <string.h>

static const ty_transformer transformer = {.form = TY_DECODER,
                                           .kv_heads = 0,
                                           .positions = TY_ZOO_REQUIRED,
                                           .hidden_features = TY_ZOO_REQUIRED,
                                           .has_attention_bias = true,
                                           .has_mlp_bias = true,
                                           .is_tied = true};

static const ty_transformer decoder = {
    .form = TY_DECODER, .is_gated = true, .is_rms_norm = true, .is_fused = true};

static const ty_transformer encoder = {.form = TY_ENCODER,
                                       .head = TY_POOLER_HEAD,
                                       .positions = TY_ZOO_REQUIRED,
                                       .token_types = TY_ZOO_REQUIRED,
                                       .hidden_features = TY_ZOO_REQUIRED,
                                       .has_attention_bias = true,
                                       .has_mlp_bias = true,
                                       .is_tied = true};

static const ty_transformer encoder_decoder = {.form = TY_ENCODER_DECODER,
                                               .decoder_blocks = TY_ZOO_REQUIRED,
                                               .decoder_sequence = TY_ZOO_REQUIRED,
                                               .head_size = TY_ZOO_REQUIRED,
                                               .hidden_features = TY_ZOO_REQUIRED,
                                               .relative_buckets = TY_ZOO_REQUIRED,
                                               .is_rms_norm = true,
                                               .is_relu = true,
                                               .is_tied = true};

/* Keys with the names of their fields; the family's value is the default. */
#define FIELD(name)                                                                                \
    {                                                                                              \
#name, offsetof(ty_transformer, name)                                                      \
    }
static const struct field {
    const char *key;
    size_t offset;
} always[] = {FIELD(blocks),     FIELD(features), FIELD(heads),
              FIELD(vocabulary), FIELD(sequence), FIELD(token_bytes)},
  sizes[] = {FIELD(decoder_blocks),   FIELD(kv_heads),         FIELD(head_size),
             FIELD(hidden_features),  FIELD(positions),        FIELD(token_types),
             FIELD(decoder_sequence), FIELD(longest_sequence), FIELD(value_head_size),
             FIELD(query_rank),       FIELD(kv_rank),          FIELD(rotary_size),
             FIELD(relative_buckets), FIELD(experts),          FIELD(experts_per_token),
             FIELD(expert_features),  FIELD(shared_features),  FIELD(dense_blocks),
             FIELD(expert_interval)},
  flags[] = {
      FIELD(has_attention_bias), FIELD(has_qkv_bias), FIELD(has_mlp_bias), FIELD(has_qk_norm),
      FIELD(has_router_bias),    FIELD(is_gated),     FIELD(is_relu),      FIELD(is_rms_norm),
      FIELD(is_fused),           FIELD(is_tied)};
#define COUNT(table) (sizeof(table) / sizeof(table)[0])

static uint64_t *size_of(ty_transformer *t, const struct field *f)
{
    return (uint64_t *)(void *)((char *)t + f->offset);
}

static bool *flag_of(ty_transformer *t, const struct field *f)
{
    return (bool *)(void *)((char *)t + f->offset);
}

static ty_status read_head(const ty_zoo_reader *reader, ty_transformer *t)
{
    static const char *const names[] = {"language", "masked", "pooler"};
    static const ty_transformer_head heads[] = {TY_LANGUAGE_HEAD, TY_MASKED_HEAD, TY_POOLER_HEAD};
    int head;
    ty_status status;

    if (t->form != TY_ENCODER || !ty_json_has(reader->root, "head"))
        return TY_OK;
    status = ty_json_enum(reader->root, "head", names, COUNT(names), &head, reader->error);
    if (status == TY_OK)
        t->head = heads[head];
    return status;
}

static ty_status read_sizes(const ty_zoo_reader *reader, ty_transformer *t)
{
    for (size_t i = 0; i < COUNT(always); i++)
        TY_TRY(ty_zoo_size(reader->root, always[i].key, TY_ZOO_REQUIRED, size_of(t, &always[i]),
                           reader->error));
    for (size_t i = 0; i < COUNT(sizes); i++)
        TY_TRY(ty_zoo_size(reader->root, sizes[i].key, *size_of(t, &sizes[i]),
                           size_of(t, &sizes[i]), reader->error));
    for (size_t i = 0; i < COUNT(flags); i++)
        TY_TRY(ty_zoo_flag(reader->root, flags[i].key, *flag_of(t, &flags[i]),
                           flag_of(t, &flags[i]), reader->error));
    return read_head(reader, t);
}

static ty_status check_sizes(const ty_zoo_reader *reader, const ty_transformer *t)
{
    char expected[TY_TRANSFORMER_TEXT_SIZE];

    if (reader->overrides->sequence != 0 && t->positions > 0 && t->sequence > t->positions)
        return ty_fail(reader->error, TY_EINVAL,
                       "%s: found sequence=%llu, expected at most its %llu positions", reader->name,
                       (unsigned long long)t->sequence, (unsigned long long)t->positions);
    if (!ty_transformer_fits(t, expected))
        return ty_json_fail(reader->root, reader->error, "%s", expected);
    return TY_OK;
}

static ty_status read_family(ty_zoo_reader *reader, const ty_transformer *family)
{
    ty_transformer t = *family;
    bool has_frozen_matrices;

    TY_TRY(read_sizes(reader, &t));
    if (reader->overrides->sequence != 0)
        t.sequence = reader->overrides->sequence;
    if (reader->overrides->vocabulary != 0)
        t.vocabulary = reader->overrides->vocabulary;
    TY_TRY(check_sizes(reader, &t));
    TY_TRY(ty_zoo_flag(reader->root, "has_frozen_matrices", false, &has_frozen_matrices,
                       reader->error));
    reader->builder = ty_transformer_build(&t, reader->name);
    if (has_frozen_matrices)
        ty_builder_freeze_matrices(reader->builder);
    return ty_zoo_progress(reader, reader->root);
}

ty_status ty_zoo_transformer(ty_zoo_reader *reader)
{
    return read_family(reader, &transformer);
}

ty_status ty_zoo_decoder(ty_zoo_reader *reader)
{
    return read_family(reader, &decoder);
}

ty_status ty_zoo_encoder(ty_zoo_reader *reader)
{
    return read_family(reader, &encoder);
}

ty_status ty_zoo_encoder_decoder(ty_zoo_reader *reader)
{
    return read_family(reader, &encoder_decoder);
}
