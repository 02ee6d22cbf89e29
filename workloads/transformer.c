/* From sizes to layers: decoders, encoders, and both together. Sources: Vaswani et al.,
 * arXiv:1706.03762; Radford et al., "Language Models are Unsupervised Multitask Learners", 2019,
 * section 2.3 (decoder); Devlin et al., arXiv:1810.04805 (encoder); Raffel et al.,
 * arXiv:1910.10683, section 2.1 (both). Dropout is left out. Positions that rotate queries and
 * keys have no parameters and no layer. */
#include "transformer.h"

#include <stdio.h>

#define MOST_BLOCKS 10000

uint64_t ty_transformer_longest(const ty_transformer *t)
{
    return t->longest_sequence > 0 ? t->longest_sequence : t->positions;
}

static uint64_t kv_head_count(const ty_transformer *t)
{
    return t->kv_heads > 0 ? t->kv_heads : t->heads;
}

static bool has_experts(const ty_transformer *t, uint64_t block)
{
    uint64_t interval = t->expert_interval > 0 ? t->expert_interval : 1;
    return t->experts > 0 && block >= t->dense_blocks && block % interval == 0;
}

static bool needs_mlp(const ty_transformer *t)
{
    return t->experts == 0 || t->form == TY_ENCODER_DECODER || t->expert_interval > 1 ||
           t->dense_blocks > 0;
}

bool ty_transformer_fits(const ty_transformer *t, char expected[TY_TRANSFORMER_TEXT_SIZE])
{
    uint64_t kv_heads = kv_head_count(t), longest = ty_transformer_longest(t);
    const struct {
        bool is_wrong;
        const char *what;
        uint64_t left;
        const char *relation;
        uint64_t right;
    } rules[] = {
        {t->blocks > MOST_BLOCKS || t->decoder_blocks > MOST_BLOCKS, "at most 10000 blocks",
         t->blocks, "and", t->decoder_blocks},
        {t->heads == 0 || (t->head_size == 0 && t->features % t->heads != 0),
         "heads that divide features", t->features, "is not a multiple of", t->heads},
        {kv_heads == 0 || t->heads % kv_heads != 0, "key/value heads that divide heads", t->heads,
         "is not a multiple of", kv_heads},
        {longest > 0 && t->sequence > longest, "sequence <= positions", t->sequence, "is above",
         longest},
        {t->experts_per_token > t->experts, "no more experts per token than experts",
         t->experts_per_token, "is above", t->experts},
        {t->experts > 0 && (t->expert_features == 0 || t->experts_per_token == 0),
         "experts with hidden features, some for each token", t->expert_features, "and",
         t->experts_per_token},
        {needs_mlp(t) && t->hidden_features == 0, "hidden features of the mlps", t->hidden_features,
         "for blocks of features", t->features},
    };

    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        if (!rules[i].is_wrong)
            continue;
        snprintf(expected, TY_TRANSFORMER_TEXT_SIZE, "%s; %llu %s %llu", rules[i].what,
                 (unsigned long long)rules[i].left, rules[i].relation,
                 (unsigned long long)rules[i].right);
        return false;
    }
    return true;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* Where the layers go, and what the next ones are called. */
typedef struct stack {
    ty_builder *builder;
    const ty_transformer *t;
    const char *prefix; /* "", or "encoder." */
    uint64_t block;     /* from 0 */
    bool is_causal;
    uint32_t memory; /* what a decoder's blocks attend to besides; TY_BATCH: nothing */
} stack;

static void name_next(const stack *s, const char *part)
{
    char name[64];
    snprintf(name, sizeof name, "%sblock%llu.%s", s->prefix, (unsigned long long)s->block + 1,
             part);
    ty_builder_name_next(s->builder, name);
}

static uint32_t append_norm(const stack *s, uint32_t x)
{
    return s->t->is_rms_norm ? ty_builder_rms_norm(s->builder, x)
                             : ty_builder_layer_norm(s->builder, x);
}

static uint64_t head_size(const ty_transformer *t)
{
    return t->head_size > 0 ? t->head_size : t->features / t->heads;
}

/* Distances are looked up once per stack: in its first block. */
static uint32_t append_attention(const stack *s, uint32_t x)
{
    const ty_transformer *t = s->t;
    const struct {
        ty_attribute attribute;
        uint64_t value;
    } options[] = {
        {TY_VALUE_HEAD_SIZE, t->value_head_size},
        {TY_HAS_QKV_BIAS, t->has_qkv_bias},
        {TY_HAS_QK_NORM, t->has_qk_norm},
        {TY_QUERY_RANK, t->query_rank},
        {TY_KV_RANK, t->kv_rank},
        {TY_ROTARY_SIZE, t->rotary_size},
        {TY_RELATIVE_BUCKETS, s->block == 0 ? t->relative_buckets : 0},
        {TY_IS_FUSED, t->is_fused},
    };

    name_next(s, "attention");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        ty_builder_set_next(s->builder, options[i].attribute, options[i].value);
    return ty_builder_attention(s->builder, x, t->heads, kv_head_count(t), head_size(t),
                                t->has_attention_bias, s->is_causal);
}

static uint32_t append_cross_attention(const stack *s, uint32_t x)
{
    name_next(s, "cross_attention");
    ty_builder_set_next(s->builder, TY_IS_FUSED, s->t->is_fused);
    return ty_builder_cross_attention(s->builder, x, s->memory, s->t->heads, kv_head_count(s->t),
                                      head_size(s->t), s->t->has_attention_bias);
}

static uint32_t append_mlp(const stack *s, uint32_t x)
{
    const ty_transformer *t = s->t;

    if (!has_experts(t, s->block)) {
        name_next(s, "mlp");
        ty_builder_set_next(s->builder, TY_IS_RELU, t->is_relu);
        return ty_builder_mlp(s->builder, x, t->hidden_features, t->has_mlp_bias, t->is_gated);
    }
    name_next(s, "moe");
    ty_builder_set_next(s->builder, TY_SHARED_FEATURES, t->shared_features);
    ty_builder_set_next(s->builder, TY_HAS_ROUTER_BIAS, t->has_router_bias);
    return ty_builder_moe(s->builder, x, t->experts, t->experts_per_token, t->expert_features,
                          t->has_mlp_bias, t->is_gated);
}

/* Attention, cross attention and mlp of a block: each with a sum around it and a norm, before it
 * or, in the encoder form, behind the sum. */
typedef struct part {
    const char *norm, *sum;
    uint32_t (*append)(const stack *s, uint32_t x);
} part;

static const part parts[] = {
    {"attention_norm", "attention_add", append_attention},
    {"cross_attention_norm", "cross_attention_add", append_cross_attention},
    {"mlp_norm", "mlp_add", append_mlp},
};

static uint32_t append_part(const stack *s, const part *p, uint32_t x)
{
    bool is_norm_first = s->t->form != TY_ENCODER;
    uint32_t inner = x;

    if (is_norm_first) {
        name_next(s, p->norm);
        inner = append_norm(s, x);
    }
    inner = p->append(s, inner);
    name_next(s, p->sum);
    x = ty_builder_add(s->builder, (uint32_t[]){x, inner}, 2);
    if (is_norm_first)
        return x;
    name_next(s, p->norm);
    return append_norm(s, x);
}

static uint32_t append_stack(stack *s, uint32_t x, uint64_t blocks)
{
    char name[32];

    for (s->block = 0; s->block < blocks; s->block++)
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            if (parts[i].append != append_cross_attention || s->memory != TY_BATCH)
                x = append_part(s, &parts[i], x);
    if (s->t->form == TY_ENCODER)
        return x;
    snprintf(name, sizeof name, "%sfinal_norm", s->prefix);
    ty_builder_name_next(s->builder, name);
    return append_norm(s, x);
}

/* ---- Heads ----------------------------------------------------------------------------------- */

static void append_loss(ty_builder *b, uint32_t logits)
{
    ty_builder_name_next(b, "loss");
    ty_builder_loss(b, logits);
}

static void append_language_head(ty_builder *b, const ty_transformer *t, uint32_t x,
                                 uint32_t embedding)
{
    ty_builder_name_next(b, "output");
    x = t->is_tied ? ty_builder_tied_linear(b, x, embedding)
                   : ty_builder_linear(b, x, t->vocabulary, false);
    append_loss(b, x);
}

static void append_masked_head(ty_builder *b, const ty_transformer *t, uint32_t x,
                               uint32_t embedding)
{
    ty_builder_name_next(b, "head");
    x = ty_builder_linear(b, x, t->features, true);
    ty_builder_name_next(b, "head_gelu");
    x = ty_builder_gelu(b, x);
    ty_builder_name_next(b, "head_norm");
    x = ty_builder_layer_norm(b, x);
    ty_builder_name_next(b, "output");
    append_loss(b, ty_builder_tied_linear_with_bias(b, x, embedding));
}

static void append_pooler(ty_builder *b, const ty_transformer *t, uint32_t x, uint32_t embedding)
{
    (void)embedding;
    ty_builder_name_next(b, "first_token");
    x = ty_builder_slice(b, x, 0, 1);
    ty_builder_name_next(b, "pooler");
    x = ty_builder_linear(b, x, t->features, true);
    ty_builder_name_next(b, "pooler_tanh");
    ty_builder_tanh(b, x);
}

static void (*const heads[])(ty_builder *b, const ty_transformer *t, uint32_t x,
                             uint32_t embedding) = {
    [TY_LANGUAGE_HEAD] = append_language_head,
    [TY_MASKED_HEAD] = append_masked_head,
    [TY_POOLER_HEAD] = append_pooler,
};

/* ---- Forms ----------------------------------------------------------------------------------- */

/* One sequence, the encoder's tokens first, is embedded and then divided. */
static uint32_t append_both(ty_builder *b, const ty_transformer *t, uint32_t embedding)
{
    stack encoder = {.builder = b, .t = t, .prefix = "encoder.", .memory = TY_BATCH};
    stack decoder = {.builder = b, .t = t, .prefix = "decoder.", .is_causal = true};
    uint32_t x;

    ty_builder_name_next(b, "encoder.tokens");
    x = ty_builder_slice(b, embedding, 0, t->sequence);
    decoder.memory = append_stack(&encoder, x, t->blocks);
    ty_builder_name_next(b, "decoder.tokens");
    x = ty_builder_slice(b, embedding, t->sequence, t->decoder_sequence);
    return append_stack(&decoder, x, t->decoder_blocks);
}

static uint32_t append_one(ty_builder *b, const ty_transformer *t, uint32_t embedding)
{
    stack s = {
        .builder = b, .t = t, .prefix = "", .is_causal = t->form == TY_DECODER, .memory = TY_BATCH};

    if (t->form != TY_ENCODER)
        return append_stack(&s, embedding, t->blocks);
    ty_builder_name_next(b, "embedding_norm");
    return append_stack(&s, append_norm(&s, embedding), t->blocks);
}

/* Tokens in storage: labels are the tokens one further on, or the tokens that were masked; the
 * decoder of two reads its labels. */
static uint64_t stored_tokens(const ty_transformer *t)
{
    if (t->form == TY_ENCODER_DECODER)
        return t->sequence + t->decoder_sequence;
    return t->head == TY_MASKED_HEAD ? 2 * t->sequence : t->sequence + 1;
}

ty_builder *ty_transformer_build(const ty_transformer *t, const char *name)
{
    uint64_t tokens = t->sequence + (t->form == TY_ENCODER_DECODER ? t->decoder_sequence : 0);
    ty_builder *b = ty_builder_new(name, TY_INPUT_TOKEN, &(ty_shape){1, {tokens}});
    uint32_t embedding, x;

    ty_builder_set_sample_bytes(b, stored_tokens(t) * t->token_bytes);
    ty_builder_name_next(b, "embedding");
    ty_builder_set_next(b, TY_TOKEN_TYPES, t->token_types);
    embedding = ty_builder_embedding(b, TY_BATCH, t->vocabulary, t->features, t->positions);
    x = t->form == TY_ENCODER_DECODER ? append_both(b, t, embedding) : append_one(b, t, embedding);
    heads[t->head](b, t, x, embedding);
    return b;
}
