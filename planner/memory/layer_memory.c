/* Layer kinds in the memory model: one row per kind, and the numbers
 * inside kinds that have some. */
#include "cost/kernels.h"
#include "memory/memory.h"

double ty_memory_tokens(const ty_shape *shape)
{
    const uint32_t count = shape->dimension_count;

    return (double)ty_shape_elements(shape) / (double)shape->dimensions[count > 0 ? count - 1 : 0];
}

static double tokens_in(const ty_workload *w, uint32_t layer)
{
    return ty_memory_tokens(ty_layer_input_shape(w, layer, 0));
}

/* A gate is a separate product. */
static double products(const ty_layer *l)
{
    return l->attributes[TY_IS_GATED] != 0 ? 2 : 1;
}

static void attention(const ty_workload *w, uint32_t layer, memory_numbers *n)
{
    const ty_layer *l = &w->layers[layer];
    const uint64_t *a = l->attributes;
    const double queries = ty_memory_tokens(&l->output), keys = tokens_in(w, layer);
    const double head = (double)a[TY_HEAD_SIZE], heads = (double)a[TY_HEADS];
    const double value = a[TY_VALUE_HEAD_SIZE] > 0 ? (double)a[TY_VALUE_HEAD_SIZE] : head;

    n->projected = n->widest =
        queries * heads * head + keys * (double)a[TY_KV_HEADS] * (head + value);
    n->second = queries * heads * value;
    n->scores = queries * keys * heads;
    n->latents =
        queries * (double)a[TY_QUERY_RANK] + keys * (double)(a[TY_KV_RANK] + a[TY_ROTARY_SIZE]);
}

static void mlp(const ty_workload *w, uint32_t layer, memory_numbers *n)
{
    const ty_layer *l = &w->layers[layer];

    n->second = n->widest =
        ty_memory_tokens(&l->output) * (double)l->attributes[TY_HIDDEN_FEATURES];
    n->projected = n->second * products(l);
}

static void moe(const ty_workload *w, uint32_t layer, memory_numbers *n)
{
    const ty_layer *l = &w->layers[layer];
    const uint64_t *a = l->attributes;
    const double tokens = ty_memory_tokens(&l->output);

    n->second = tokens * ty_layer_hidden_features(l);
    n->projected = n->second * products(l);
    n->routed = tokens * (a[TY_LATENT_FEATURES] > 0
                              ? (double)((a[TY_EXPERTS_PER_TOKEN] + 2) * a[TY_LATENT_FEATURES])
                              : (double)(a[TY_EXPERTS_PER_TOKEN] * a[TY_FEATURES]));
    n->router = tokens * (double)a[TY_EXPERTS];
    n->widest = tokens * (double)a[TY_HIDDEN_FEATURES];
}

static void lstm(const ty_workload *w, uint32_t layer, memory_numbers *n)
{
    const ty_layer *l = &w->layers[layer];

    n->projected = /* four gates */
        ty_memory_tokens(&l->output) * 4 * (double)l->attributes[TY_HIDDEN_FEATURES];
}

/* Of queries and keys, and of the vector. */
static void additive_attention(const ty_workload *w, uint32_t layer, memory_numbers *n)
{
    const ty_layer *l = &w->layers[layer];

    n->projected = (ty_memory_tokens(&l->output) + tokens_in(w, layer) + 1) *
                   (double)l->attributes[TY_HIDDEN_FEATURES];
}

static const memory_row rows[TY_LAYER_KIND_COUNT] = {
    [TY_LAYER_LINEAR] = {.is_narrow = true, .gives_scores = true},
    [TY_LAYER_CONV2D] = {.is_convolution = true, .is_image = true},
    [TY_LAYER_BATCH_NORM] = {.is_image = true},
    [TY_LAYER_POOL] = {.is_pool = true, .is_image = true},
    [TY_LAYER_RELU] = {.ignores_input = true, .is_rectifier = true},
    [TY_LAYER_ADD] = {.ignores_input = true, .has_mask = true, .is_sum = true},
    [TY_LAYER_CONCAT] = {.ignores_input = true},
    [TY_LAYER_SLICE] = {.ignores_input = true},
    [TY_LAYER_FLATTEN] = {.ignores_input = true, .is_flatten = true, .is_image = true},
    [TY_LAYER_EMBEDDING] = {.ignores_input = true, .has_mask = true},
    [TY_LAYER_EMBEDDING_BAG] = {.is_bag = true},
    [TY_LAYER_SOFTMAX_CROSS_ENTROPY] = {.ignores_input = true, .is_loss = true},
    [TY_LAYER_ATTENTION] = {attention, .is_narrow = true},
    [TY_LAYER_MLP] = {mlp, .is_narrow = true},
    [TY_LAYER_MOE] = {moe},
    [TY_LAYER_LSTM] = {lstm, .keeps_stash = true},
    [TY_LAYER_ADDITIVE_ATTENTION] = {additive_attention, .keeps_stash = true},
    [TY_LAYER_STATE_SPACE] = {.keeps_stash = true},
    [TY_LAYER_GATED_DELTA] = {.keeps_stash = true},
    [TY_LAYER_OPAQUE] = {.keeps_stash = true},
};

const memory_row *ty_memory_row_of(ty_layer_kind kind)
{
    return &rows[kind];
}

memory_numbers ty_memory_numbers(const ty_workload *w, uint32_t layer)
{
    const memory_row *row = ty_memory_row_of(w->layers[layer].kind);
    memory_numbers n = {0};

    if (row->numbers != NULL)
        row->numbers(w, layer, &n);
    return n;
}

uint32_t ty_memory_holder(const stage_memory *m, uint32_t layer)
{
    while (memory_layer(m, layer)->stash_bytes == 0 && memory_layer(m, layer)->input_count == 1)
        layer = memory_layer(m, layer)->inputs[0];
    return layer;
}
