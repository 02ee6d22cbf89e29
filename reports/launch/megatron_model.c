/* Which workloads pretrain_gpt.py builds, and with which arguments. Their meaning and defaults:
 * NVIDIA/Megatron-LM, megatron/training/arguments.py. workloads/import_megatron.c reads them. */
#include "megatron_model.h"

#include <string.h>

enum { NORM, ATTENTION, ATTENTION_ADD, MLP_NORM, MLP, MLP_ADD, BLOCK_LAYERS };
#define FIRST_BLOCK_LAYER 1    /* behind the embedding */
#define LAYERS_AROUND 4        /* embedding, final norm, output, loss */
#define VOCABULARY_DIVISOR 128 /* --make-vocab-size-divisible-by, its default */

static ty_status refuse(const ty_workload *w, uint32_t layer, const char *expected, ty_error *error)
{
    return ty_fail(error, TY_EUNSUPPORTED,
                   "--to megatron: pretrain_gpt.py trains decoders of equal blocks; layer %u of "
                   "%.60s is %.60s (%s), expected %s",
                   layer, w->name, w->layers[layer].name, ty_layer_kind_name(w->layers[layer].kind),
                   expected);
}

static bool is_norm(const ty_layer *layer)
{
    return layer->kind == TY_LAYER_LAYER_NORM || layer->kind == TY_LAYER_RMS_NORM;
}

static bool is_alike(const ty_layer *a, const ty_layer *b)
{
    return a->kind == b->kind && memcmp(a->attributes, b->attributes, sizeof a->attributes) == 0;
}

static bool reads(const ty_layer *layer, uint32_t a, uint32_t b)
{
    return layer->input_count == 2 && layer->inputs[0] == a && layer->inputs[1] == b;
}

static ty_status check_block(const ty_workload *w, megatron_model *m, uint32_t block,
                             ty_error *error)
{
    const uint32_t at = FIRST_BLOCK_LAYER + block * BLOCK_LAYERS;
    const ty_layer *l = &w->layers[at];
    const ty_layer **mlp;

    if (!is_norm(&l[NORM]) || !is_alike(&l[NORM], m->norm))
        return refuse(w, at + NORM, "the norm of a block", error);
    if (l[ATTENTION].kind != TY_LAYER_ATTENTION || l[ATTENTION].input_count != 1 ||
        !is_alike(&l[ATTENTION], m->attention))
        return refuse(w, at + ATTENTION, "attention as in the first block", error);
    if (l[ATTENTION_ADD].kind != TY_LAYER_ADD || !reads(&l[ATTENTION_ADD], at - 1, at + ATTENTION))
        return refuse(w, at + ATTENTION_ADD, "the sum behind attention", error);
    if (!is_alike(&l[MLP_NORM], m->norm))
        return refuse(w, at + MLP_NORM, "the norm before the mlp", error);
    m->has_experts[block] = l[MLP].kind == TY_LAYER_MOE;
    mlp = m->has_experts[block] ? &m->moe : &m->mlp;
    if (*mlp == NULL)
        *mlp = &l[MLP];
    if ((l[MLP].kind != TY_LAYER_MLP && l[MLP].kind != TY_LAYER_MOE) || !is_alike(&l[MLP], *mlp))
        return refuse(w, at + MLP, "an mlp or experts as in other blocks", error);
    if (l[MLP_ADD].kind != TY_LAYER_ADD || !reads(&l[MLP_ADD], at + ATTENTION_ADD, at + MLP))
        return refuse(w, at + MLP_ADD, "the sum behind the mlp", error);
    return TY_OK;
}

static ty_status check_ends(const ty_workload *w, megatron_model *m, ty_error *error)
{
    const uint32_t last = w->layer_count - 1;
    const ty_layer *output = &w->layers[last - 1];

    if (w->layers[0].kind != TY_LAYER_EMBEDDING || w->layers[0].attributes[TY_TOKEN_TYPES] > 0)
        return refuse(w, 0, "an embedding of tokens", error);
    if (!is_alike(&w->layers[last - 2], m->norm))
        return refuse(w, last - 2, "the final norm", error);
    m->is_tied = output->tied_to == 0;
    if (output->kind != TY_LAYER_LINEAR || output->attributes[TY_HAS_BIAS] > 0 ||
        output->attributes[TY_OUT_FEATURES] != m->embedding->attributes[TY_VOCABULARY])
        return refuse(w, last - 1, "the logits, without bias", error);
    if (w->layers[last].kind != TY_LAYER_SOFTMAX_CROSS_ENTROPY)
        return refuse(w, last, "the loss", error);
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].is_frozen)
            return refuse(w, l, "no frozen layer", error);
    return TY_OK;
}

/* Attributes that the arguments below, or the tests beside them, say of a kind of layer. */
static const ty_attribute said[] = {
    TY_FEATURES,        TY_HIDDEN_FEATURES, TY_HAS_BIAS,         TY_IS_GATED,
    TY_HEADS,           TY_KV_HEADS,        TY_HEAD_SIZE,        TY_IS_CAUSAL,
    TY_EXPERTS,         TY_VALUE_HEAD_SIZE, TY_HAS_QKV_BIAS,     TY_HAS_QK_NORM,
    TY_QUERY_RANK,      TY_KV_RANK,         TY_ROTARY_SIZE,      TY_IS_FUSED,
    TY_SHARED_FEATURES, TY_HAS_ROUTER_BIAS, TY_EXPERTS_PER_TOKEN};

/* A window, sinks, a gate: what no argument here says would train something else. */
static ty_status check_said(const ty_workload *w, uint32_t layer, ty_error *error)
{
    for (int a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        bool is_said = w->layers[layer].attributes[a] == 0;
        for (size_t i = 0; i < sizeof said / sizeof said[0] && !is_said; i++)
            is_said = (int)said[i] == a;
        if (!is_said)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "--to megatron: layer %u of %.60s (%.60s) has %s %llu, which these "
                           "arguments of pretrain_gpt.py cannot say",
                           layer, w->name, w->layers[layer].name,
                           ty_attribute_name((ty_attribute)a),
                           (unsigned long long)w->layers[layer].attributes[a]);
    }
    return TY_OK;
}

/* What Megatron has no argument for. */
static ty_status check_attributes(const ty_workload *w, const megatron_model *m, ty_error *error)
{
    const uint64_t *a = m->attention->attributes;
    const ty_layer *mlp = m->mlp != NULL ? m->mlp : m->moe;
    bool has_latents = a[TY_KV_RANK] > 0;

    for (uint32_t l = FIRST_BLOCK_LAYER; l < w->layer_count - 2; l++) {
        const ty_status status = check_said(w, l, error);
        if (status != TY_OK)
            return status;
    }
    if (m->moe != NULL && m->mlp != NULL &&
        m->moe->attributes[TY_IS_GATED] != m->mlp->attributes[TY_IS_GATED])
        return refuse(w, FIRST_BLOCK_LAYER + MLP, "experts gated as the mlps are", error);

    if (a[TY_RELATIVE_BUCKETS] > 0 || !a[TY_IS_CAUSAL] ||
        (a[TY_VALUE_HEAD_SIZE] > 0 && !has_latents))
        return refuse(w, FIRST_BLOCK_LAYER + ATTENTION, "causal attention without relative biases",
                      error);
    if ((a[TY_HAS_BIAS] > 0) != (mlp->attributes[TY_HAS_BIAS] > 0))
        return refuse(w, FIRST_BLOCK_LAYER + ATTENTION, "biases as the mlp has (or has not)",
                      error);
    return TY_OK;
}

ty_status ty_megatron_model_of(const ty_workload *w, megatron_model *out, ty_error *error)
{
    ty_status status = TY_OK;
    megatron_model m = {.first_block_layer = FIRST_BLOCK_LAYER, .block_layers = BLOCK_LAYERS};

    if (w->layer_count < LAYERS_AROUND + BLOCK_LAYERS ||
        (w->layer_count - LAYERS_AROUND) % BLOCK_LAYERS != 0)
        return refuse(w, 0, "a decoder: embedding, blocks of six layers, norm, logits, loss",
                      error);
    m.blocks = (w->layer_count - LAYERS_AROUND) / BLOCK_LAYERS;
    m.embedding = &w->layers[0];
    m.norm = &w->layers[FIRST_BLOCK_LAYER];
    m.attention = &w->layers[FIRST_BLOCK_LAYER + ATTENTION];
    m.has_experts = ty_alloc(m.blocks, sizeof *m.has_experts);
    if (m.has_experts == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t b = 0; b < m.blocks; b++)
        TY_CHECK(check_block(w, &m, b, error), status, cleanup);
    TY_CHECK(check_ends(w, &m, error), status, cleanup);
    TY_CHECK(check_attributes(w, &m, error), status, cleanup);
    *out = m;
    m.has_experts = NULL;

cleanup:
    ty_free(m.has_experts);
    return status;
}

/* ---- Arguments --------------------------------------------------------------------------- */

static void put(ty_text *text, const char *name, uint64_t value)
{
    ty_text_addf(text, "--%s %llu\n", name, (unsigned long long)value);
}

static void put_attention(const megatron_model *m, ty_text *text)
{
    const uint64_t *a = m->attention->attributes;

    put(text, "num-attention-heads", a[TY_HEADS]);
    if (a[TY_KV_RANK] > 0) {
        ty_text_add(text, "--multi-latent-attention\n");
        if (a[TY_QUERY_RANK] > 0)
            put(text, "q-lora-rank", a[TY_QUERY_RANK]);
        put(text, "kv-lora-rank", a[TY_KV_RANK]);
        put(text, "qk-head-dim", a[TY_HEAD_SIZE] - a[TY_ROTARY_SIZE]);
        put(text, "qk-pos-emb-head-dim", a[TY_ROTARY_SIZE]);
        put(text, "v-head-dim",
            a[TY_VALUE_HEAD_SIZE] > 0 ? a[TY_VALUE_HEAD_SIZE] : a[TY_HEAD_SIZE]);
        return;
    }
    put(text, "kv-channels", a[TY_HEAD_SIZE]);
    if (a[TY_KV_HEADS] != a[TY_HEADS]) {
        ty_text_add(text, "--group-query-attention\n");
        put(text, "num-query-groups", a[TY_KV_HEADS]);
    }
    if (a[TY_HAS_QKV_BIAS] > 0)
        ty_text_add(text, "--add-qkv-bias\n");
    if (a[TY_HAS_QK_NORM] > 0)
        ty_text_add(text, "--qk-layernorm\n");
}

/* Which blocks have experts: those from the n-th on, or every n-th counted from 0. */
static ty_status put_expert_blocks(const megatron_model *m, ty_text *text, ty_error *error)
{
    uint32_t dense = 0, interval = 1;

    while (dense < m->blocks && !m->has_experts[dense])
        dense++;
    if (dense == 0)
        while (interval < m->blocks && !m->has_experts[interval])
            interval++;
    for (uint32_t b = 0; b < m->blocks; b++)
        if (m->has_experts[b] != (dense > 0 ? b >= dense : b % interval == 0))
            return ty_fail(error, TY_EUNSUPPORTED,
                           "--to megatron: block %u breaks the pattern of blocks with experts", b);
    if (dense > 0)
        ty_text_addf(text, "--moe-layer-freq ([0]*%u+[1]*%u)\n", dense, m->blocks - dense);
    else
        put(text, "moe-layer-freq", interval);
    return TY_OK;
}

static ty_status put_mlp(const megatron_model *m, ty_text *text, ty_error *error)
{
    const ty_layer *any = m->mlp != NULL ? m->mlp : m->moe;

    put(text, "ffn-hidden-size", any->attributes[TY_HIDDEN_FEATURES]);
    if (any->attributes[TY_IS_GATED] > 0)
        ty_text_add(text, "--swiglu\n");
    if (any->attributes[TY_HAS_BIAS] == 0)
        ty_text_add(text, "--disable-bias-linear\n");
    if (m->moe == NULL)
        return TY_OK;
    put(text, "num-experts", m->moe->attributes[TY_EXPERTS]);
    put(text, "moe-router-topk", m->moe->attributes[TY_EXPERTS_PER_TOKEN]);
    put(text, "moe-ffn-hidden-size", m->moe->attributes[TY_HIDDEN_FEATURES]);
    if (m->moe->attributes[TY_SHARED_FEATURES] > 0)
        put(text, "moe-shared-expert-intermediate-size", m->moe->attributes[TY_SHARED_FEATURES]);
    if (m->moe->attributes[TY_HAS_ROUTER_BIAS] > 0)
        ty_text_add(text, "--moe-router-score-function sigmoid\n--moe-router-enable-expert-bias\n");
    return put_expert_blocks(m, text, error);
}

/* What it pads a vocabulary to: a multiple of 128 and of the lanes of tensor parallelism. */
static uint64_t padded_vocabulary(const megatron_model *m, uint32_t lanes)
{
    const uint64_t multiple = (uint64_t)VOCABULARY_DIVISOR * lanes,
                   size = m->embedding->attributes[TY_VOCABULARY];

    return (size + multiple - 1) / multiple * multiple;
}

static void put_vocabulary(const megatron_model *m, uint32_t lanes, ty_text *text)
{
    const uint64_t vocabulary = m->embedding->attributes[TY_VOCABULARY],
                   padded = padded_vocabulary(m, lanes);

    if (padded != vocabulary)
        ty_text_addf(text, "# differs: it pads the vocabulary to %llu\n",
                     (unsigned long long)padded);
    put(text, "vocab-size", vocabulary);
    put(text, "make-vocab-size-divisible-by", VOCABULARY_DIVISOR);
    if (!m->is_tied)
        ty_text_add(text, "--untie-embeddings-and-output-weights\n");
}

/* It costs nothing, and a model trained on another one is another model. */
static void put_rotary(const ty_workload *w, ty_text *text)
{
    if (w->rotary_base > 0)
        put(text, "rotary-base", w->rotary_base);
    else
        ty_text_add(text, "# --rotary-base: the workload does not say it, and 10000 is usual\n");
}

ty_status ty_megatron_model_arguments(const ty_workload *w, const megatron_model *m, uint32_t lanes,
                                      ty_text *text, ty_error *error)
{
    uint64_t positions = m->embedding->attributes[TY_POSITIONS];

    put(text, "num-layers", m->blocks);
    put(text, "hidden-size", m->embedding->output.dimensions[1]);
    put_attention(m, text);
    ty_text_addf(text, "--normalization %s\n",
                 m->norm->kind == TY_LAYER_RMS_NORM ? "RMSNorm" : "LayerNorm");
    put(text, "seq-length", w->tokens_per_sample);
    put(text, "max-position-embeddings", positions > 0 ? positions : w->tokens_per_sample);
    ty_text_addf(text, "--position-embedding-type %s\n",
                 positions > 0 ? "learned_absolute" : "rope");
    if (positions == 0)
        put_rotary(w, text);
    put_vocabulary(m, lanes, text);
    return put_mlp(m, text, error);
}
