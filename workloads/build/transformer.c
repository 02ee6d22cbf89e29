/* Makes layers from sizes: decoders, encoders, and encoder-decoders. Sources: Vaswani et al.,
 * arXiv:1706.03762; Radford et al., "Language Models are Unsupervised Multitask Learners", 2019,
 * section 2.3 (decoder); Devlin et al., arXiv:1810.04805 (encoder); Raffel et al.,
 * arXiv:1910.10683, section 2.1 (both). Ignores dropout. Rotary positions have no parameters and no
 * layer. */
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

/* A block with all sizes filled in. */
static ty_transformer_block block_of(const ty_transformer *t, uint64_t block)
{
    ty_transformer_block b = {.window = t->window};

    if (t->block_list != NULL)
        b = t->block_list[block];
    else
        b.feed = has_experts(t, block) ? TY_FEED_EXPERTS : TY_FEED_MLP;
    b.heads = b.heads > 0 ? b.heads : t->heads;
    b.kv_heads = b.kv_heads > 0 ? b.kv_heads : kv_head_count(t);
    b.head_size = b.head_size > 0 ? b.head_size : t->head_size;
    if (b.head_size == 0 && b.heads > 0)
        b.head_size = t->features / b.heads;
    b.hidden_features = b.hidden_features > 0 ? b.hidden_features : t->hidden_features;
    return b;
}

static bool needs_mlp(const ty_transformer *t)
{
    if (t->form == TY_ENCODER_DECODER)
        return true;
    for (uint64_t i = 0; i < t->blocks; i++) {
        ty_transformer_block b = block_of(t, i);
        if (b.feed == TY_FEED_MLP && b.hidden_features == 0)
            return true;
    }
    return false;
}

static bool has_mixer(const ty_transformer *t, ty_mixer mixer)
{
    for (uint64_t i = 0; i < t->blocks && t->block_list != NULL; i++)
        if (t->block_list[i].mixer == mixer)
            return true;
    return t->block_list == NULL && mixer == TY_MIX_ATTENTION;
}

/* The first block with inconsistent heads; the number of blocks: none. */
static uint64_t find_odd_heads(const ty_transformer *t)
{
    for (uint64_t i = 0; i < t->blocks; i++) {
        ty_transformer_block b = block_of(t, i);
        if (b.mixer == TY_MIX_ATTENTION &&
            (b.heads == 0 || b.kv_heads == 0 || b.head_size == 0 || b.heads % b.kv_heads != 0))
            return i;
    }
    return t->blocks;
}

bool ty_transformer_fits(const ty_transformer *t, char expected[TY_TRANSFORMER_TEXT_SIZE])
{
    uint64_t kv_heads = kv_head_count(t);
    bool attends = has_mixer(t, TY_MIX_ATTENTION);
    const struct {
        bool is_wrong;
        const char *what;
        uint64_t left;
        const char *relation;
        uint64_t right;
    } rules[] = {
        {t->blocks > MOST_BLOCKS || t->decoder_blocks > MOST_BLOCKS, "at most 10000 blocks",
         t->blocks, "and", t->decoder_blocks},
        {attends && (t->heads == 0 || (t->head_size == 0 && t->features % t->heads != 0)),
         "heads that divide features", t->features, "is not a multiple of", t->heads},
        {attends && (kv_heads == 0 || t->heads % kv_heads != 0),
         "key/value heads that divide heads", t->heads, "is not a multiple of", kv_heads},
        {t->positions > 0 && t->sequence > t->positions, "sequence <= positions", t->sequence,
         "is above", t->positions},
        {t->experts_per_token > t->experts, "no more experts per token than experts",
         t->experts_per_token, "is above", t->experts},
        {t->experts > 0 && (t->expert_features == 0 || t->experts_per_token == 0),
         "experts with hidden features, some for each token", t->expert_features, "and",
         t->experts_per_token},
        {has_mixer(t, TY_MIX_STATE_SPACE) &&
             (t->state_features == 0 || t->state_size == 0 || t->state_kernel == 0 ||
              (t->state_heads > 0 && t->state_features % t->state_heads != 0)),
         "state spaces with inner features that their heads divide", t->state_features, "and",
         t->state_heads},
        {has_mixer(t, TY_MIX_DELTA) && (t->delta_heads == 0 || t->delta_key_heads == 0 ||
                                        t->delta_heads % t->delta_key_heads != 0),
         "heads of linear attention that are a multiple of the key heads", t->delta_heads, "and",
         t->delta_key_heads},
        {t->blocks <= MOST_BLOCKS && needs_mlp(t) && t->hidden_features == 0,
         "hidden features of the mlps", t->hidden_features, "for blocks of features", t->features},
        {t->blocks <= MOST_BLOCKS && t->block_list != NULL && find_odd_heads(t) < t->blocks,
         "heads of a size, a multiple of the key/value heads, in each block", find_odd_heads(t),
         "of", t->blocks},
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

/* Destination and names of the next layers. */
typedef struct stack {
    ty_builder *builder;
    const ty_transformer *t;
    const char *prefix; /* "", or "encoder." */
    uint64_t block;     /* from 0 */
    bool is_causal;
    uint32_t memory; /* cross-attention memory of a decoder's blocks; TY_BATCH: none */
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
    if (s->t->is_rms_norm)
        return ty_builder_rms_norm(s->builder, x);
    ty_builder_set_next(s->builder, TY_LACKS_SHIFT, s->t->is_unshifted);
    return ty_builder_layer_norm(s->builder, x);
}

/* A norm of a block, which may be the first block's. */
static uint32_t append_block_norm(const stack *s, const char *name, uint32_t x)
{
    name_next(s, name);
    if (!s->t->is_rms_norm)
        ty_builder_set_next(s->builder, TY_IS_SHARED, s->t->is_shared && s->block > 0);
    return append_norm(s, x);
}

static uint64_t head_size(const ty_transformer *t)
{
    return t->head_size > 0 ? t->head_size : t->features / t->heads;
}

/* Only the first block of a stack has the table of distances. */
static uint32_t append_attention(const stack *s, uint32_t x)
{
    const ty_transformer *t = s->t;
    const ty_transformer_block b = block_of(t, s->block);
    const ty_shape *shape = ty_builder_shape(s->builder, x);
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
        {TY_WINDOW, shape != NULL && b.window < shape->dimensions[0] ? b.window : 0},
        {TY_CHOSEN_ROWS, t->chosen_rows},
        {TY_INDEX_HEADS, t->index_heads},
        {TY_INDEX_HEAD_SIZE, t->index_head_size},
        {TY_HAS_SINKS, t->has_sinks},
        {TY_HAS_GATE, t->has_attention_gate},
        {TY_HAS_WIDE_QK_NORM, t->has_wide_qk_norm},
        {TY_LACKS_KEY_BIAS, t->lacks_key_bias},
        {TY_SHARES_KV, b.shares_kv},
        {TY_IS_SHARED, t->is_shared && s->block > 0},
    };

    name_next(s, "attention");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        ty_builder_set_next(s->builder, options[i].attribute, options[i].value);
    return ty_builder_attention(s->builder, x, b.heads, b.kv_heads, b.head_size,
                                t->has_attention_bias, s->is_causal);
}

static uint32_t append_state_space(const stack *s, uint32_t x)
{
    const ty_transformer *t = s->t;

    name_next(s, "state_space");
    ty_builder_set_next(s->builder, TY_HEADS, t->state_heads);
    ty_builder_set_next(s->builder, TY_GROUPS, t->state_heads > 0 ? t->state_groups : 0);
    ty_builder_set_next(s->builder, TY_STEP_RANK, t->state_heads > 0 ? 0 : t->step_rank);
    ty_builder_set_next(s->builder, TY_HAS_STEP_NORMS, t->has_step_norms);
    return ty_builder_state_space(s->builder, x, t->state_features, t->state_size, t->state_kernel,
                                  t->has_state_bias);
}

static uint32_t append_delta(const stack *s, uint32_t x)
{
    const ty_transformer *t = s->t;

    name_next(s, "gated_delta");
    return ty_builder_gated_delta(s->builder, x, t->delta_heads, t->delta_key_heads,
                                  t->delta_head_size, t->delta_value_size, t->state_kernel);
}

/* A replacement of attention or an mlp, found by architecture search. */
static uint32_t append_matrix(const stack *s, const char *name, uint32_t x, bool has_bias)
{
    name_next(s, name);
    return ty_builder_linear(s->builder, x, s->t->features, has_bias);
}

static uint32_t append_mixer(const stack *s, uint32_t x)
{
    const ty_mixer mixer = block_of(s->t, s->block).mixer;

    if (mixer == TY_MIX_STATE_SPACE)
        return append_state_space(s, x);
    if (mixer == TY_MIX_LINEAR)
        return append_matrix(s, "attention_linear", x, s->t->has_attention_bias);
    return mixer == TY_MIX_DELTA ? append_delta(s, x) : append_attention(s, x);
}

static uint32_t append_cross_attention(const stack *s, uint32_t x)
{
    name_next(s, "cross_attention");
    ty_builder_set_next(s->builder, TY_IS_FUSED, s->t->is_fused);
    ty_builder_set_next(s->builder, TY_LACKS_KEY_BIAS, s->t->lacks_key_bias);
    return ty_builder_cross_attention(s->builder, x, s->memory, s->t->heads, kv_head_count(s->t),
                                      head_size(s->t), s->t->has_attention_bias);
}

static uint32_t append_mlp(const stack *s, uint32_t x)
{
    const ty_transformer *t = s->t;

    const ty_transformer_block b = block_of(t, s->block);

    if (b.feed == TY_FEED_LINEAR)
        return append_matrix(s, "mlp_linear", x, t->has_mlp_bias);
    if (b.feed != TY_FEED_EXPERTS) {
        name_next(s, "mlp");
        ty_builder_set_next(s->builder, TY_IS_RELU, t->is_relu);
        ty_builder_set_next(s->builder, TY_IS_SHARED, t->is_shared && s->block > 0);
        return ty_builder_mlp(s->builder, x, b.hidden_features, t->has_mlp_bias, t->is_gated);
    }
    name_next(s, "moe");
    ty_builder_set_next(s->builder, TY_SHARED_FEATURES, t->shared_features);
    ty_builder_set_next(s->builder, TY_HAS_ROUTER_BIAS, t->has_router_bias);
    ty_builder_set_next(s->builder, TY_HAS_GATE, t->has_shared_gate);
    ty_builder_set_next(s->builder, TY_LATENT_FEATURES, t->latent_features);
    return ty_builder_moe(s->builder, x, t->experts, t->experts_per_token, t->expert_features,
                          t->has_mlp_bias, t->is_gated);
}

/* Attention, cross attention and mlp of a block: each with a sum around it and norms. */
typedef struct part {
    const char *norm, *behind, *sum;
    uint32_t (*append)(const stack *s, uint32_t x);
} part;

static const part parts[] = {
    {"attention_norm", "attention_post_norm", "attention_add", append_mixer},
    {"cross_attention_norm", "cross_attention_post_norm", "cross_attention_add",
     append_cross_attention},
    {"mlp_norm", "mlp_post_norm", "mlp_add", append_mlp},
};

static bool has_part(const stack *s, const part *p)
{
    const ty_transformer_block b = block_of(s->t, s->block);

    if (p->append == append_mixer)
        return b.mixer != TY_MIX_NONE;
    return p->append == append_mlp ? b.feed != TY_FEED_NONE : s->memory != TY_BATCH;
}

static bool is_behind_sum(const ty_transformer *t)
{
    return t->norm_place == TY_NORMS_AFTER_SUM ||
           (t->form == TY_ENCODER && t->norm_place == TY_NORMS_OF_FORM);
}

static uint32_t append_part(const stack *s, const part *p, uint32_t x)
{
    const ty_norm_place place = s->t->norm_place;
    uint32_t inner = x;

    if (!is_behind_sum(s->t) && place != TY_NORMS_BEHIND &&
        !(s->t->lacks_first_norm && s->block == 0 && p == parts))
        inner = append_block_norm(s, p->norm, x);
    inner = p->append(s, inner);
    if (place == TY_NORMS_AROUND || place == TY_NORMS_BEHIND)
        inner = append_block_norm(s, p->behind, inner);
    name_next(s, p->sum);
    x = ty_builder_add(s->builder, (uint32_t[]){x, inner}, 2);
    return is_behind_sum(s->t) ? append_block_norm(s, p->norm, x) : x;
}

/* Both parts read the block's input, and one sum joins all three. */
static uint32_t append_parallel(const stack *s, uint32_t x)
{
    uint32_t normed = append_block_norm(s, "attention_norm", x), attention, mlp;

    attention = append_mixer(s, normed);
    if (s->t->has_two_norms)
        normed = append_block_norm(s, "mlp_norm", x);
    mlp = append_mlp(s, normed);
    name_next(s, "add");
    return ty_builder_add(s->builder, (uint32_t[]){x, attention, mlp}, 3);
}

static uint32_t append_stack(stack *s, uint32_t x, uint64_t blocks)
{
    char name[32];

    for (s->block = 0; s->block < blocks; s->block++) {
        if (s->t->is_parallel) {
            x = append_parallel(s, x);
            continue;
        }
        for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
            if (has_part(s, &parts[i]))
                x = append_part(s, &parts[i], x);
    }
    if (is_behind_sum(s->t) || s->t->lacks_final_norm)
        return x;
    snprintf(name, sizeof name, "%sfinal_norm", s->prefix);
    ty_builder_name_next(s->builder, name);
    return append_norm(s, x);
}

uint32_t ty_transformer_append(ty_builder *builder, const ty_transformer *t, const char *prefix,
                               uint32_t x, uint32_t memory)
{
    stack s = {.builder = builder,
               .t = t,
               .prefix = prefix,
               .is_causal = t->form == TY_DECODER,
               .memory = memory};
    return append_stack(&s, x, t->blocks);
}

/* ---- Heads ----------------------------------------------------------------------------------- */

static void append_loss(ty_builder *b, uint32_t logits)
{
    ty_builder_name_next(b, "loss");
    ty_builder_loss(b, logits);
}

/* Input features of tied logits. */
static uint64_t logit_features(const ty_transformer *t)
{
    return t->embedding_features > 0 ? t->embedding_features : t->features;
}

static void append_language_head(ty_builder *b, const ty_transformer *t, uint32_t x,
                                 uint32_t embedding)
{
    if (t->embedding_features > 0) {
        ty_builder_name_next(b, "output_projection");
        x = ty_builder_linear(b, x, t->embedding_features, t->has_embedding_bias);
    }
    ty_builder_name_next(b, "output");
    if (t->is_tied)
        x = t->has_output_bias ? ty_builder_tied_linear_with_bias(b, x, embedding)
                               : ty_builder_tied_linear(b, x, embedding);
    else
        x = ty_builder_linear(b, x, t->vocabulary, t->has_output_bias);
    append_loss(b, x);
}

static void append_masked_head(ty_builder *b, const ty_transformer *t, uint32_t x,
                               uint32_t embedding)
{
    const stack s = {.builder = b, .t = t};

    ty_builder_name_next(b, "head");
    x = ty_builder_linear(b, x, logit_features(t), !t->is_unshifted);
    ty_builder_name_next(b, "head_gelu");
    x = ty_builder_gelu(b, x);
    ty_builder_name_next(b, "head_norm");
    x = append_norm(&s, x);
    ty_builder_name_next(b, "output");
    append_loss(b, ty_builder_tied_linear_with_bias(b, x, embedding));
}

static void append_classifier(ty_builder *b, const ty_transformer *t, uint32_t x,
                              uint32_t embedding)
{
    (void)embedding;
    ty_builder_name_next(b, "first_token");
    x = ty_builder_slice(b, x, 0, 1);
    ty_builder_name_next(b, "classifier");
    append_loss(b, ty_builder_linear(b, x, t->classes, true));
}

static void append_nothing(ty_builder *b, const ty_transformer *t, uint32_t x, uint32_t embedding)
{
    (void)b;
    (void)t;
    (void)x;
    (void)embedding;
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
    [TY_CLASSIFIER_HEAD] = append_classifier,
    [TY_NO_HEAD] = append_nothing,
};

void ty_transformer_append_head(ty_builder *builder, const ty_transformer *t, uint32_t x,
                                uint32_t embedding)
{
    heads[t->head](builder, t, x, embedding);
}

/* ---- Forms ----------------------------------------------------------------------------------- */

/* Embeds one sequence, the encoder's tokens first, then splits it. */
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

/* A table of positions, added to the input. */
static uint32_t append_late_positions(ty_builder *b, const ty_transformer *t, uint32_t x)
{
    const ty_shape *shape = ty_builder_shape(b, x);
    ty_opaque known = {.parameter_bytes = 4 * t->late_positions * t->features};

    if (shape != NULL)
        known.output = *shape;
    ty_builder_name_next(b, "positions");
    return ty_builder_opaque(b, &x, 1, &known);
}

uint32_t ty_transformer_append_embedding(ty_builder *builder, const ty_transformer *t, uint32_t *x)
{
    const stack s = {.builder = builder, .t = t};
    uint32_t embedding;

    ty_builder_name_next(builder, "embedding");
    ty_builder_set_next(builder, TY_TOKEN_TYPES, t->token_types);
    embedding =
        ty_builder_embedding(builder, TY_BATCH, t->vocabulary, logit_features(t), t->positions);
    *x = embedding;
    if ((t->form == TY_ENCODER && is_behind_sum(t)) || t->has_embedding_norm) {
        ty_builder_name_next(builder, "embedding_norm");
        *x = append_norm(&s, *x);
    }
    if (t->embedding_features > 0) {
        ty_builder_name_next(builder, "embedding_projection");
        *x = ty_builder_linear(builder, *x, t->features, t->has_embedding_bias);
    }
    if (t->late_positions > 0)
        *x = append_late_positions(builder, t, *x);
    return embedding;
}

/* Tokens in storage: labels are the next tokens, or the masked tokens; a T5 decoder reads its
 * labels. */
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
    embedding = ty_transformer_append_embedding(b, t, &x);
    x = t->form == TY_ENCODER_DECODER ? append_both(b, t, embedding)
                                      : ty_transformer_append(b, t, "", x, TY_BATCH);
    ty_transformer_append_head(b, t, x, embedding);
    return b;
}
