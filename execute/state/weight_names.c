/* Names of weights: a table for each family. */
#include "weight_names.h"

#include <stdio.h>
#include <string.h>

/* How a layer's tensor is split into those of a file. */
typedef enum part {
    WHOLE,
    TRANSPOSED, /* as in Conv1D of GPT-2: [in][out] */
    QUERIES,
    KEYS,
    VALUES,
    FIRST_HALF, /* of an mlp with a gate: the gate */
    SECOND_HALF,
    EXPERTS /* one for each expert, in halves if it has a gate */
} part;

/*
 * `layer`: '*' stands for a number from 1 on. `name`: '#' for the last such number less 1, '@' for
 * the first one. For experts, '%' is the expert's index, and '|' separates the names of gate, value
 * and product.
 */
typedef struct row {
    const char *layer;
    uint32_t tensor;
    part part;
    const char *name, *other;
} row;

#define NORM(layer, name)                                                                          \
    {layer, 0, WHOLE, name ".weight", NULL},                                                       \
    {                                                                                              \
        layer, 1, WHOLE, name ".bias", NULL                                                        \
    }
#define STATISTICS(layer, name)                                                                    \
    NORM(layer, name), {layer, LAYER_RUNNING_MEAN, WHOLE, name ".running_mean", NULL},             \
    {                                                                                              \
        layer, LAYER_RUNNING_VARIANCE, WHOLE, name ".running_var", NULL                            \
    }
/* Names of queries, keys, values and the output. */
#define ATTENTION(layer, q, k, v, o)                                                               \
    {layer, ATTENTION_PROJECT, QUERIES, q ".weight", NULL},                                        \
        {layer, ATTENTION_PROJECT, KEYS, k ".weight", NULL},                                       \
        {layer, ATTENTION_PROJECT, VALUES, v ".weight", NULL},                                     \
        {layer, ATTENTION_PROJECT_BIAS, QUERIES, q ".bias", NULL},                                 \
        {layer, ATTENTION_PROJECT_BIAS, KEYS, k ".bias", NULL},                                    \
        {layer, ATTENTION_PROJECT_BIAS, VALUES, v ".bias", NULL},                                  \
        {layer, ATTENTION_OUT, WHOLE, o ".weight", NULL},                                          \
    {                                                                                              \
        layer, ATTENTION_OUT_BIAS, WHOLE, o ".bias", NULL                                          \
    }
#define MLP(layer, up, down)                                                                       \
    {layer, MLP_UP, WHOLE, up ".weight", NULL}, {layer, MLP_UP_BIAS, WHOLE, up ".bias", NULL},     \
        {layer, MLP_DOWN, WHOLE, down ".weight", NULL},                                            \
    {                                                                                              \
        layer, MLP_DOWN_BIAS, WHOLE, down ".bias", NULL                                            \
    }
#define END                                                                                        \
    {                                                                                              \
        NULL, 0, WHOLE, NULL, NULL                                                                 \
    }

static const row gpt2_rows[] = {
    {"embedding", EMBEDDING_TABLE, WHOLE, "transformer.wte.weight", NULL},
    {"embedding", EMBEDDING_POSITIONS, WHOLE, "transformer.wpe.weight", NULL},
    NORM("block*.attention_norm", "transformer.h.#.ln_1"),
    {"block*.attention", ATTENTION_PROJECT, TRANSPOSED, "transformer.h.#.attn.c_attn.weight", NULL},
    {"block*.attention", ATTENTION_PROJECT_BIAS, WHOLE, "transformer.h.#.attn.c_attn.bias", NULL},
    {"block*.attention", ATTENTION_OUT, TRANSPOSED, "transformer.h.#.attn.c_proj.weight", NULL},
    {"block*.attention", ATTENTION_OUT_BIAS, WHOLE, "transformer.h.#.attn.c_proj.bias", NULL},
    NORM("block*.mlp_norm", "transformer.h.#.ln_2"),
    {"block*.mlp", MLP_UP, TRANSPOSED, "transformer.h.#.mlp.c_fc.weight", NULL},
    {"block*.mlp", MLP_UP_BIAS, WHOLE, "transformer.h.#.mlp.c_fc.bias", NULL},
    {"block*.mlp", MLP_DOWN, TRANSPOSED, "transformer.h.#.mlp.c_proj.weight", NULL},
    {"block*.mlp", MLP_DOWN_BIAS, WHOLE, "transformer.h.#.mlp.c_proj.bias", NULL},
    NORM("final_norm", "transformer.ln_f"),
    {"output", 0, WHOLE, "lm_head.weight", NULL},
    END,
};

static const row llama_rows[] = {
    {"embedding", EMBEDDING_TABLE, WHOLE, "model.embed_tokens.weight", NULL},
    {"block*.attention_norm", 0, WHOLE, "model.layers.#.input_layernorm.weight", NULL},
    ATTENTION("block*.attention", "model.layers.#.self_attn.q_proj",
              "model.layers.#.self_attn.k_proj", "model.layers.#.self_attn.v_proj",
              "model.layers.#.self_attn.o_proj"),
    {"block*.attention", ATTENTION_QUERY_GAIN, WHOLE, "model.layers.#.self_attn.q_norm.weight",
     NULL},
    {"block*.attention", ATTENTION_KEY_GAIN, WHOLE, "model.layers.#.self_attn.k_norm.weight", NULL},
    {"block*.mlp_norm", 0, WHOLE, "model.layers.#.post_attention_layernorm.weight", NULL},
    {"block*.mlp", MLP_UP, FIRST_HALF, "model.layers.#.mlp.gate_proj.weight", NULL},
    {"block*.mlp", MLP_UP, SECOND_HALF, "model.layers.#.mlp.up_proj.weight", NULL},
    {"block*.mlp", MLP_UP_BIAS, FIRST_HALF, "model.layers.#.mlp.gate_proj.bias", NULL},
    {"block*.mlp", MLP_UP_BIAS, SECOND_HALF, "model.layers.#.mlp.up_proj.bias", NULL},
    {"block*.mlp", MLP_DOWN, WHOLE, "model.layers.#.mlp.down_proj.weight", NULL},
    {"block*.mlp", MLP_DOWN_BIAS, WHOLE, "model.layers.#.mlp.down_proj.bias", NULL},
    {"block*.moe", MOE_ROUTER, WHOLE, "model.layers.#.block_sparse_moe.gate.weight",
     "model.layers.#.mlp.gate.weight"},
    {"block*.moe", MOE_UP, EXPERTS, "model.layers.#.block_sparse_moe.experts.%.w1|w3.weight",
     "model.layers.#.mlp.experts.%.gate_proj|up_proj.weight"},
    {"block*.moe", MOE_DOWN, EXPERTS, "model.layers.#.block_sparse_moe.experts.%.w2.weight",
     "model.layers.#.mlp.experts.%.down_proj.weight"},
    {"final_norm", 0, WHOLE, "model.norm.weight", NULL},
    {"output", 0, WHOLE, "lm_head.weight", NULL},
    {"output", 1, WHOLE, "lm_head.bias", NULL},
    END,
};

static const row bert_rows[] = {
    {"embedding", EMBEDDING_TABLE, WHOLE, "bert.embeddings.word_embeddings.weight", NULL},
    {"embedding", EMBEDDING_POSITIONS, WHOLE, "bert.embeddings.position_embeddings.weight", NULL},
    {"embedding", EMBEDDING_TYPES, WHOLE, "bert.embeddings.token_type_embeddings.weight", NULL},
    NORM("embedding_norm", "bert.embeddings.LayerNorm"),
    ATTENTION("block*.attention", "bert.encoder.layer.#.attention.self.query",
              "bert.encoder.layer.#.attention.self.key",
              "bert.encoder.layer.#.attention.self.value",
              "bert.encoder.layer.#.attention.output.dense"),
    NORM("block*.attention_norm", "bert.encoder.layer.#.attention.output.LayerNorm"),
    MLP("block*.mlp", "bert.encoder.layer.#.intermediate.dense",
        "bert.encoder.layer.#.output.dense"),
    NORM("block*.mlp_norm", "bert.encoder.layer.#.output.LayerNorm"),
    NORM("head", "cls.predictions.transform.dense"),
    NORM("head_norm", "cls.predictions.transform.LayerNorm"),
    {"output", 1, WHOLE, "cls.predictions.bias", NULL},
    NORM("pooler", "bert.pooler.dense"),
    NORM("classifier", "classifier"),
    END,
};

static const row resnet_rows[] = {
    {"stem.conv", 0, WHOLE, "conv1.weight", NULL},
    STATISTICS("stem.conv_norm", "bn1"),
    {"stage*.block*.conv1", 0, WHOLE, "layer@.#.conv1.weight", NULL},
    STATISTICS("stage*.block*.conv1_norm", "layer@.#.bn1"),
    {"stage*.block*.conv2", 0, WHOLE, "layer@.#.conv2.weight", NULL},
    STATISTICS("stage*.block*.conv2_norm", "layer@.#.bn2"),
    {"stage*.block*.conv3", 0, WHOLE, "layer@.#.conv3.weight", NULL},
    STATISTICS("stage*.block*.conv3_norm", "layer@.#.bn3"),
    {"stage*.block*.shortcut", 0, WHOLE, "layer@.#.downsample.0.weight", NULL},
    STATISTICS("stage*.block*.shortcut_norm", "layer@.#.downsample.1"),
    NORM("output", "fc"),
    END,
};

static const struct {
    const char *name;
    const row *rows;
    const char *prefix;   /* that files may omit */
    const char *sign;     /* a layer that only this family has */
    const char *spare[6]; /* ends of the names of tensors that files may also have */
} families[WEIGHT_FAMILY_COUNT] = {
    [WEIGHTS_OWN] = {"trainyard", NULL, "", NULL, {NULL}},
    [WEIGHTS_RESNET] = {"resnet", resnet_rows, "", "stem.conv", {"num_batches_tracked"}},
    [WEIGHTS_BERT] = {"bert",
                      bert_rows,
                      "bert.",
                      "embedding_norm",
                      {"position_ids", "pooler.dense.weight", "pooler.dense.bias",
                       "seq_relationship.weight", "seq_relationship.bias",
                       "cls.predictions.decoder.weight"}},
    [WEIGHTS_GPT2] = {"gpt2",
                      gpt2_rows,
                      "transformer.",
                      "final_norm",
                      {".attn.bias", ".attn.masked_bias", "lm_head.weight"}},
    [WEIGHTS_LLAMA] =
        {"llama", llama_rows, "model.", "final_norm", {"rotary_emb.inv_freq", "lm_head.weight"}},
};

const char *weight_family_name(weight_family family)
{
    return families[family].name;
}

/* ---- The family ---- */

typedef struct numbers { /* matched by the '*' */
    uint32_t count;
    unsigned long values[2];
} numbers;

static bool layer_matches(const char *pattern, const char *name, numbers *out)
{
    out->count = 0;
    for (; *pattern != '\0'; pattern++) {
        if (*pattern != '*') {
            if (*pattern != *name++)
                return false;
            continue;
        }
        if (*name < '1' || *name > '9' || out->count == 2)
            return false;
        for (out->values[out->count] = 0; *name >= '0' && *name <= '9'; name++)
            out->values[out->count] = out->values[out->count] * 10 + (unsigned long)(*name - '0');
        out->count++;
    }
    return *name == '\0';
}

static const row *row_of(weight_family family, const ty_layer *layer, uint32_t tensor,
                         uint32_t index, numbers *found)
{
    for (const row *r = families[family].rows; r->layer != NULL; r++)
        if (r->tensor == tensor && layer_matches(r->layer, layer->name, found) && index-- == 0)
            return r;
    return NULL;
}

static bool is_tied(const ty_layer *layer, uint32_t tensor)
{
    return tensor == 0 && layer->tied_to != TY_NO_LAYER;
}

/* Elements of a layer's unsharded tensor, or of its statistics; 0: none. */
static uint64_t tensor_count(const ty_workload *w, uint32_t layer, uint32_t tensor,
                             sharded_tensor *out)
{
    const ty_layer *l = &w->layers[layer];
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};

    *out = (sharded_tensor){0};
    if (tensor >= LAYER_MAX_TENSORS) {
        if (ty_layer_row_of(l)->has_statistics)
            *out = (sharded_tensor){.name = tensor == LAYER_RUNNING_MEAN ? "running_mean"
                                                                         : "running_var",
                                    .count = l->attributes[TY_FEATURES]};
    } else if (tensor < ty_layer_tensors(w, layer, tensors) && !is_tied(l, tensor)) {
        *out = tensors[tensor];
    }
    return out->count;
}

/* Whether an mlp has the family's form. */
static bool is_form(weight_family family, const ty_layer *layer)
{
    const bool is_gated = layer->attributes[TY_IS_GATED] != 0;

    if (!ty_layer_row_of(layer)->has_activation)
        return true;
    return family == WEIGHTS_LLAMA ? is_gated : !is_gated;
}

/* Whether the family has a name for every tensor of the model. */
static bool has_all(weight_family family, const ty_workload *w)
{
    bool has_sign = false;
    sharded_tensor tensor;
    numbers found;

    for (uint32_t l = 0; l < w->layer_count; l++) {
        has_sign = has_sign || strcmp(w->layers[l].name, families[family].sign) == 0;
        if (!is_form(family, &w->layers[l]))
            return false;
        for (uint32_t t = 0; t < LAYER_FILE_TENSORS; t++)
            if (tensor_count(w, l, t, &tensor) > 0 &&
                row_of(family, &w->layers[l], t, 0, &found) == NULL)
                return false;
    }
    return has_sign;
}

weight_names weight_names_of(const ty_workload *w)
{
    weight_names names = {w, WEIGHTS_OWN};
    bool has_rms_norm = false;

    for (uint32_t l = 0; l < w->layer_count; l++)
        has_rms_norm = has_rms_norm || (ty_layer_row_of(&w->layers[l])->is_norm &&
                                        !ty_layer_row_of(&w->layers[l])->subtracts_mean);
    for (weight_family f = WEIGHTS_OWN + 1; f < WEIGHT_FAMILY_COUNT; f++)
        if ((f == WEIGHTS_LLAMA) == has_rms_norm && has_all(f, w))
            names.family = f;
    return names;
}

/* ---- Pieces ---- */

static void shape_set(const ty_layer *layer, uint32_t tensor, uint64_t columns, weight_piece *out)
{
    const uint64_t *a = layer->attributes;

    if (ty_layer_row_of(layer)->is_convolution && tensor == 0) {
        out->dimension_count = 4;
        out->dimensions[0] = out->rows;
        out->dimensions[1] = a[TY_IN_CHANNELS] / a[TY_GROUPS];
        out->dimensions[2] = a[TY_KERNEL_HEIGHT];
        out->dimensions[3] = a[TY_KERNEL_WIDTH];
    } else if (columns > 1 || (columns == 1 && !ty_layer_row_of(layer)->has_experts)) {
        out->dimension_count = 2;
        out->dimensions[0] = out->is_transposed ? columns : out->rows;
        out->dimensions[1] = out->is_transposed ? out->rows : columns;
    } else {
        out->dimension_count = 1;
        out->dimensions[0] = out->rows;
    }
}

/* Selects the index-th of the words separated by '|'. */
static void alternatives_take(char *name, uint32_t index)
{
    char *first = strchr(name, '|'), *start, *end;
    char word[WEIGHT_NAME_SIZE];

    if (first == NULL)
        return;
    for (start = first; start > name && start[-1] != '.'; start--)
        continue;
    end = first + strcspn(first, ".");
    if (index == 0)
        snprintf(word, sizeof word, "%.*s%s", (int)(first - start), start, end);
    else
        snprintf(word, sizeof word, "%s", first + 1);
    memmove(start, word, strlen(word) + 1);
}

static void name_make(const char *pattern, const numbers *found, uint32_t expert, uint32_t half,
                      char out[WEIGHT_NAME_SIZE])
{
    size_t used = 0;

    for (; *pattern != '\0' && used + 24 < WEIGHT_NAME_SIZE; pattern++) {
        unsigned long number = 0;

        if (strchr("#@%", *pattern) == NULL) {
            out[used++] = *pattern;
            continue;
        }
        if (*pattern == '#')
            number = found->values[found->count - 1] - 1;
        else
            number = *pattern == '@' ? found->values[0] : expert;
        used += (size_t)snprintf(out + used, WEIGHT_NAME_SIZE - used, "%lu", number);
    }
    out[used] = '\0';
    alternatives_take(out, half);
}

static uint64_t part_rows(const ty_layer *layer, part which, uint64_t rows)
{
    const uint64_t *a = layer->attributes;

    if (which == QUERIES)
        return a[TY_HEADS] * a[TY_HEAD_SIZE];
    if (which == KEYS || which == VALUES)
        return a[TY_KV_HEADS] * a[TY_HEAD_SIZE];
    return which == FIRST_HALF || which == SECOND_HALF ? rows / 2 : rows;
}

static bool has_head_norms(const ty_workload *w)
{
    for (uint32_t l = 0; l < w->layer_count; l++)
        if (w->layers[l].attributes[TY_HAS_QK_NORM] != 0)
            return true;
    return false;
}

bool weight_piece_at(const weight_names *names, uint32_t layer, uint32_t tensor, uint32_t index,
                     weight_piece *out)
{
    const ty_workload *w = names->workload;
    const ty_layer *l = &w->layers[layer];
    sharded_tensor whole;
    const uint64_t count = tensor_count(w, layer, tensor, &whole);
    const uint64_t columns = whole.columns, width = columns > 0 ? columns : 1;
    uint32_t expert = 0, half = 0;
    numbers found;
    const row *r;

    if (count == 0)
        return false;
    *out = (weight_piece){.rows = count / width, .columns = width};
    if (names->family == WEIGHTS_OWN) {
        snprintf(out->name, sizeof out->name, "%.120s.%s", l->name, whole.name);
        shape_set(l, tensor, columns, out);
        return index == 0;
    }
    r = row_of(names->family, l, tensor, 0, &found);
    if (r->part == EXPERTS) {
        const uint32_t halves = strchr(r->name, '|') != NULL ? 2 : 1;

        expert = index / halves;
        half = index % halves;
        if (expert >= whole.experts)
            return false;
        out->rows /= whole.experts * halves;
    } else if ((r = row_of(names->family, l, tensor, index, &found)) == NULL) {
        return false;
    }
    out->rows = part_rows(l, r->part, out->rows);
    out->is_transposed = r->part == TRANSPOSED;
    name_make(r->name, &found, expert, half, out->name);
    if (r->other != NULL)
        name_make(r->other, &found, expert, half, out->other);
    if (r->other != NULL && has_head_norms(w)) { /* Qwen's */
        char name[WEIGHT_NAME_SIZE];

        memcpy(name, out->name, sizeof name);
        memcpy(out->name, out->other, sizeof name);
        memcpy(out->other, name, sizeof name);
    }
    shape_set(l, tensor, columns, out);
    return true;
}

const char *weight_short_name(const weight_names *names, const char *name)
{
    const char *prefix = families[names->family].prefix;

    return strncmp(name, prefix, strlen(prefix)) == 0 ? name + strlen(prefix) : name;
}

bool weight_is_spare(const weight_names *names, const char *name)
{
    const size_t length = strlen(name);

    for (size_t i = 0; i < 6 && families[names->family].spare[i] != NULL; i++) {
        const char *end = families[names->family].spare[i];
        if (length >= strlen(end) && strcmp(name + length - strlen(end), end) == 0)
            return true;
    }
    return false;
}
