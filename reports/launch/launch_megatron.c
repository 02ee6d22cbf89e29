/* Workloads and plans that pretrain_gpt.py of Megatron-LM can train, as values of its arguments.
 * Meaning and defaults: NVIDIA/Megatron-LM, megatron/training/arguments.py (core 0.12 and later for
 * --pipeline-model-parallel-layout). workloads/import/import_megatron.c reads them. */
#include "launch.h"

#include <stdio.h>
#include <string.h>

/* ---- The model --------------------------------------------------------------------------- */

/* A decoder of equal blocks, as pretrain_gpt.py builds it. */
typedef struct megatron_model {
    uint32_t blocks;
    uint32_t first_block_layer; /* layer of the first block; block b begins at it + b * layers */
    uint32_t block_layers;
    const ty_layer *embedding, *norm, *attention;
    const ty_layer *mlp; /* of a block without experts; NULL: all blocks have experts */
    const ty_layer *moe; /* of a block with experts; NULL: no block has experts */
    bool *has_experts;   /* [blocks]; free with ty_free */
    bool is_tied;
} megatron_model;

enum { NORM, ATTENTION, ATTENTION_ADD, MLP_NORM, MLP, MLP_ADD, BLOCK_LAYERS };
#define FIRST_BLOCK_LAYER 1    /* after the embedding */
#define LAYERS_AROUND 4        /* embedding, final norm, output, loss */
#define VOCABULARY_DIVISOR 128 /* --make-vocab-size-divisible-by, its default */

static ty_status refuse(const ty_workload *w, uint32_t layer, const char *expected, ty_error *error)
{
    return ty_fail(error, TY_EUNSUPPORTED,
                   "pretrain_gpt.py trains decoders of equal blocks; layer %u of "
                   "%.60s is %.60s (%s), expected %s",
                   layer, w->name, w->layers[layer].name, ty_layer_kind_name(w->layers[layer].kind),
                   expected);
}

static bool is_norm(const ty_layer *layer)
{
    return ty_layer_row_of(layer)->is_norm;
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
    if (!ty_layer_has_heads(&l[ATTENTION]) || l[ATTENTION].input_count != 1 ||
        !is_alike(&l[ATTENTION], m->attention))
        return refuse(w, at + ATTENTION, "attention as in the first block", error);
    if (!ty_layer_row_of(&l[ATTENTION_ADD])->is_sum ||
        !reads(&l[ATTENTION_ADD], at - 1, at + ATTENTION))
        return refuse(w, at + ATTENTION_ADD, "the sum after attention", error);
    if (!is_alike(&l[MLP_NORM], m->norm))
        return refuse(w, at + MLP_NORM, "the norm before the mlp", error);
    m->has_experts[block] = ty_layer_row_of(&l[MLP])->has_experts;
    mlp = m->has_experts[block] ? &m->moe : &m->mlp;
    if (*mlp == NULL)
        *mlp = &l[MLP];
    if (!ty_layer_row_of(&l[MLP])->has_activation || !is_alike(&l[MLP], *mlp))
        return refuse(w, at + MLP, "an mlp or experts as in other blocks", error);
    if (!ty_layer_row_of(&l[MLP_ADD])->is_sum || !reads(&l[MLP_ADD], at + ATTENTION_ADD, at + MLP))
        return refuse(w, at + MLP_ADD, "the sum after the mlp", error);
    return TY_OK;
}

static ty_status check_ends(const ty_workload *w, megatron_model *m, ty_error *error)
{
    const uint32_t last = w->layer_count - 1;
    const ty_layer *output = &w->layers[last - 1];

    if (ty_layer_row_of(&w->layers[0])->table != TY_TABLE_OF_TOKENS ||
        w->layers[0].attributes[TY_TOKEN_TYPES] > 0)
        return refuse(w, 0, "an embedding of tokens", error);
    if (!is_alike(&w->layers[last - 2], m->norm))
        return refuse(w, last - 2, "the final norm", error);
    m->is_tied = output->tied_to == 0;
    if (!ty_layer_has_split_scores(w, last - 1) || output->attributes[TY_HAS_BIAS] > 0 ||
        output->attributes[TY_OUT_FEATURES] != m->embedding->attributes[TY_VOCABULARY])
        return refuse(w, last - 1, "the logits, without bias", error);
    if (!ty_layer_row_of(&w->layers[last])->is_loss)
        return refuse(w, last, "the loss", error);
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].is_frozen)
            return refuse(w, l, "no frozen layer", error);
    return TY_OK;
}

/* Attributes of layers that the arguments below, or the checks, cover. */
static const ty_attribute said[] = {
    TY_FEATURES,        TY_HIDDEN_FEATURES, TY_HAS_BIAS,         TY_IS_GATED,
    TY_HEADS,           TY_KV_HEADS,        TY_HEAD_SIZE,        TY_IS_CAUSAL,
    TY_EXPERTS,         TY_VALUE_HEAD_SIZE, TY_HAS_QKV_BIAS,     TY_HAS_QK_NORM,
    TY_QUERY_RANK,      TY_KV_RANK,         TY_ROTARY_SIZE,      TY_IS_FUSED,
    TY_SHARED_FEATURES, TY_HAS_ROUTER_BIAS, TY_EXPERTS_PER_TOKEN};

/* Refuses attributes without an argument, such as windows, sinks and gates: Megatron-LM would train
 * another model. */
static ty_status check_said(const ty_workload *w, uint32_t layer, ty_error *error)
{
    for (int a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        bool is_said = w->layers[layer].attributes[a] == 0;
        for (size_t i = 0; i < sizeof said / sizeof said[0] && !is_said; i++)
            is_said = (int)said[i] == a;
        if (!is_said)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %u of %.60s (%.60s) has %s %llu, which these "
                           "arguments of pretrain_gpt.py cannot say",
                           layer, w->name, w->layers[layer].name,
                           ty_attribute_name((ty_attribute)a),
                           (unsigned long long)w->layers[layer].attributes[a]);
    }
    return TY_OK;
}

/* Megatron-LM has no argument for these. */
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

static ty_status model_of(const ty_workload *w, megatron_model *out, ty_error *error)
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
    TY_TRY(ty_check_memory(m.has_experts != NULL, error));
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

static void put_attention(launch_values *v, const megatron_model *m)
{
    static const struct {
        const char *key;
        ty_attribute attribute;
    } copied[] = {{"heads", TY_HEADS},           {"kv_heads", TY_KV_HEADS},
                  {"head_size", TY_HEAD_SIZE},   {"rotary_size", TY_ROTARY_SIZE},
                  {"query_rank", TY_QUERY_RANK}, {"kv_rank", TY_KV_RANK},
                  {"qkv_bias", TY_HAS_QKV_BIAS}, {"qk_norm", TY_HAS_QK_NORM}};
    const uint64_t *a = m->attention->attributes;

    for (size_t i = 0; i < sizeof copied / sizeof copied[0]; i++)
        ty_launch_put_uint(v, copied[i].key, a[copied[i].attribute]);
    ty_launch_put_flag(v, "grouped_heads", a[TY_KV_HEADS] != a[TY_HEADS]);
    ty_launch_put_uint(v, "plain_head_size", a[TY_HEAD_SIZE] - a[TY_ROTARY_SIZE]);
    ty_launch_put_uint(v, "value_head_size",
                       a[TY_VALUE_HEAD_SIZE] > 0 ? a[TY_VALUE_HEAD_SIZE] : a[TY_HEAD_SIZE]);
}

/* Writes the blocks with experts: those from the n-th on, or every n-th counted from 0. */
static void put_expert_blocks(launch_values *v, const megatron_model *m)
{
    uint32_t dense = 0, interval = 1, broken = 0;

    while (dense < m->blocks && !m->has_experts[dense])
        dense++;
    if (dense == 0)
        while (interval < m->blocks && !m->has_experts[interval])
            interval++;
    while (broken < m->blocks &&
           m->has_experts[broken] == (dense > 0 ? broken >= dense : broken % interval == 0))
        broken++;
    ty_launch_put_flag(v, "broken_pattern", broken < m->blocks);
    ty_launch_put_uint(v, "broken_block", broken);
    if (dense > 0)
        ty_launch_put(v, "expert_blocks", "([0]*%u+[1]*%u)", dense, m->blocks - dense);
    else
        ty_launch_put_uint(v, "expert_blocks", interval);
}

static void put_mlp(launch_values *v, const megatron_model *m)
{
    const ty_layer *any = m->mlp != NULL ? m->mlp : m->moe;

    ty_launch_put_uint(v, "ffn_hidden", any->attributes[TY_HIDDEN_FEATURES]);
    ty_launch_put_flag(v, "gated", any->attributes[TY_IS_GATED] > 0);
    ty_launch_put_flag(v, "mlp_bias", any->attributes[TY_HAS_BIAS] > 0);
    /* Megatron-LM recomputes activation functions of routed experts only
     * (megatron/core/transformer/transformer_config.py, recompute_modules). */
    if (m->mlp != NULL || m->moe->attributes[TY_SHARED_FEATURES] > 0)
        ty_launch_put_name(v, "dense_layer", any->name, 80);
    if (m->moe == NULL)
        return;
    ty_launch_put_uint(v, "experts", m->moe->attributes[TY_EXPERTS]);
    ty_launch_put_uint(v, "experts_per_token", m->moe->attributes[TY_EXPERTS_PER_TOKEN]);
    ty_launch_put_uint(v, "expert_hidden", m->moe->attributes[TY_HIDDEN_FEATURES]);
    ty_launch_put_uint(v, "shared_hidden", m->moe->attributes[TY_SHARED_FEATURES]);
    ty_launch_put_flag(v, "router_bias", m->moe->attributes[TY_HAS_ROUTER_BIAS] > 0);
    put_expert_blocks(v, m);
}

/* Megatron-LM pads a vocabulary to a multiple of 128 x TP. */
static void put_model(launch_values *v, const ty_workload *w, const megatron_model *m,
                      uint32_t tensor)
{
    const uint64_t vocabulary = m->embedding->attributes[TY_VOCABULARY],
                   multiple = (uint64_t)VOCABULARY_DIVISOR * tensor,
                   padded = (vocabulary + multiple - 1) / multiple * multiple;

    ty_launch_put_uint(v, "layers", m->blocks);
    ty_launch_put_uint(v, "hidden", m->embedding->output.dimensions[1]);
    ty_launch_put_uint(v, "positions", m->embedding->attributes[TY_POSITIONS]);
    ty_launch_put_flag(v, "rms_norm", !ty_layer_row_of(m->norm)->subtracts_mean);
    ty_launch_put_uint(v, "rotary_base", w->rotary_base);
    ty_launch_put_uint(v, "vocabulary", vocabulary);
    ty_launch_put_uint(v, "padded_vocabulary", padded != vocabulary ? padded : 0);
    ty_launch_put_flag(v, "tied", m->is_tied);
    put_attention(v, m);
    put_mlp(v, m);
}

/* ---- The plan ---------------------------------------------------------------------------- */

/* Tensor parallelism must divide all of these evenly. */
static void put_undivided(launch_values *v, const ty_plan *plan, const megatron_model *m)
{
    const uint32_t tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    const struct {
        const char *what;
        uint64_t number;
    } divided[] = {
        {"heads", m->attention->attributes[TY_HEADS]},
        {"heads of keys and values",
         m->attention->attributes[TY_KV_RANK] > 0 ? 0 : m->attention->attributes[TY_KV_HEADS]},
        {"features of the mlp", m->mlp != NULL ? m->mlp->attributes[TY_HIDDEN_FEATURES] : 0},
        {"features of an expert", m->moe != NULL ? m->moe->attributes[TY_HIDDEN_FEATURES] : 0},
        {"tokens", plan->sequence_parallel ? plan->workload->tokens_per_sample : 0},
    };

    for (size_t i = 0; i < sizeof divided / sizeof divided[0]; i++)
        if (divided[i].number % tensor != 0) {
            ty_launch_put_text(v, "undivided", divided[i].what);
            ty_launch_put_uint(v, "undivided_number", divided[i].number);
            return;
        }
}

/* Counts the blocks of a stage; false if it begins or ends inside one. */
static bool blocks_of_stage(const ty_plan *plan, const megatron_model *m, uint32_t stage,
                            uint32_t *blocks)
{
    const ty_plan_stage *s = &plan->stages[stage];
    const uint32_t last = m->first_block_layer + m->blocks * m->block_layers;
    uint32_t begin = s->first_layer, end = s->first_layer + s->layer_count;

    if (stage == 0)
        begin = m->first_block_layer;
    if (stage + 1 == plan->stage_count)
        end = last;
    *blocks = (end - begin) / m->block_layers;
    return end <= last && begin <= end && (begin - m->first_block_layer) % m->block_layers == 0 &&
           (end - begin) % m->block_layers == 0;
}

/* Writes "Et*6|t*7|t*6L" (embedding, blocks, loss) if stages have unequal numbers of blocks.
 * @return false if a stage cuts a block */
static bool put_stages(launch_values *v, const ty_plan *plan, const megatron_model *m)
{
    ty_text layout = {0};
    uint32_t first = 0, blocks = 0, s = 0;
    bool is_even = true;

    for (; s < plan->stage_count && blocks_of_stage(plan, m, s, &blocks); s++) {
        first = s == 0 ? blocks : first;
        is_even &= blocks == first;
        ty_text_addf(&layout, "%s%s", s > 0 ? "|" : "", s == 0 ? "E" : "");
        if (blocks > 0)
            ty_text_addf(&layout, "t*%u", blocks);
    }
    ty_text_add(&layout, "L");
    if (s < plan->stage_count) {
        const ty_plan_stage *cut = &plan->stages[s];
        const ty_layer *layers = &plan->workload->layers[cut->first_layer];
        ty_launch_put_flag(v, "cut_block", true);
        ty_launch_put_uint(v, "cut_stage", s);
        ty_launch_put_name(v, "cut_first", layers[0].name, 200);
        ty_launch_put_name(v, "cut_last", layers[cut->layer_count - 1].name, 200);
    } else if (!is_even) {
        ty_launch_put_taken(v, "layout", &layout);
    } else if (ty_plan_virtual_stages(plan) > 1) {
        ty_launch_put_uint(v, "virtual_layers", first);
    }
    ty_text_clear(&layout);
    return s == plan->stage_count;
}

/* Megatron-LM layers per block of the plan: several if the repeated pattern has several, as one
 * with experts and one without. 0: blocks differ. */
static uint32_t layers_of_block(const ty_workload *w, const megatron_model *m)
{
    const uint32_t *starts;
    uint32_t head, each = 0;
    const uint32_t count = ty_workload_blocks(w, &starts, &head),
                   last = m->first_block_layer + m->blocks * m->block_layers;

    for (uint32_t b = 0; b < count; b++) {
        const uint32_t begin = b > 0 ? starts[b] : m->first_block_layer,
                       end = b + 1 < count && starts[b + 1] < last ? starts[b + 1] : last,
                       layers = begin < last ? (end - begin) / m->block_layers : 0;
        if (layers > 0 && each > 0 && layers != each)
            return 0;
        each = layers > 0 ? layers : each;
    }
    return each;
}

/* In Megatron-LM, a segment is a number of layers that divides those of every stage. */
static void put_recompute(launch_values *v, const ty_plan *plan, const megatron_model *m)
{
    const uint32_t each = plan->stages[0].recompute_blocks;
    uint32_t segment = each * layers_of_block(plan->workload, m), blocks = 0;

    ty_launch_put_flag(v, "uneven_blocks", segment == 0 && each > 0);
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        (void)blocks_of_stage(plan, m, s, &blocks);
        if (segment == 0)
            segment = blocks;
        if (segment == 0 || blocks % segment != 0) {
            ty_launch_put_flag(v, "uneven_segments", true);
            ty_launch_put_uint(v, "segment_blocks", blocks);
            ty_launch_put_uint(v, "segment_stage", s);
            break;
        }
    }
    ty_launch_put_uint(v, "recompute_layers", segment);
}

/* Megatron-LM's defaults are a dropout of 0.1 and fused attention if available. It sums gradients
 * in 32 bits unless the framework keeps 16. */
static void put_software(launch_values *v, const ty_plan *plan)
{
    const ty_stack *stack = plan->stack;
    const bool is_exchanged = plan->stages[0].replicas * ty_plan_replica_ranks(plan) >
                              ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);

    ty_launch_put_text(v, "dropout", stack != NULL && stack->has_dropout ? "0.1" : "0.0");
    ty_launch_put_flag(v, "unfused_attention",
                       stack != NULL && stack->attention == TY_ATTENTION_SCORES);
    ty_launch_put_flag(v, "half_gradients",
                       stack != NULL && stack->gradient_bytes < TY_GRADIENT_ELEMENT_BYTES);
    ty_launch_put_flag(v, "overlapped_exchange",
                       is_exchanged && (stack == NULL || stack->overlaps_exchange));
}

void ty_launch_put_megatron(launch *l)
{
    const ty_plan *plan = l->plan;
    launch_values *v = &l->values;
    megatron_model model = {0};
    ty_error refusal = {0};
    const ty_status status = model_of(plan->workload, &model, &refusal);

    if (status == TY_ENOMEM)
        v->failed = status;
    if (status != TY_OK) {
        ty_launch_put_name(v, "megatron_refusal", refusal.message, (int)sizeof refusal.message);
        return;
    }
    put_model(v, plan->workload, &model, ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL));
    put_undivided(v, plan, &model);
    put_software(v, plan);
    if (put_stages(v, plan, &model))
        put_recompute(v, plan, &model);
    ty_free(model.has_experts);
}
