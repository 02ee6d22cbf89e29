/* The builder: appends layers one by one. It computes shapes; ty_layer_set_quantities computes flop
 * and bytes. The first error is stored, and later calls do nothing. */
#include "builder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ty_builder {
    ty_workload *workload;
    uint32_t capacity;   /* of workload->layers */
    bool *has_trainable; /* [capacity]: the layer or one it depends on has parameters */
    uint32_t kind_counts[TY_LAYER_KIND_COUNT];
    char *next_name;
    uint64_t next_attributes[TY_ATTRIBUTE_COUNT];
    ty_error mistake;
};

/* Largest size; products of two stay far from 2^64. */
#define LARGEST_SIZE 2147483647u

static ty_status fail(ty_builder *b, ty_status status, const char *name, const char *message)
{
    return ty_fail(&b->mistake, status, "%s: %s", name, message);
}

static bool is_broken(const ty_builder *b)
{
    return b == NULL || b->mistake.status != TY_OK;
}

const ty_error *ty_builder_mistake(const ty_builder *builder)
{
    static const ty_error no_memory = {TY_ENOMEM, "out of memory"};
    if (builder == NULL)
        return &no_memory;
    return builder->mistake.status != TY_OK ? &builder->mistake : NULL;
}

/* ---- Life cycle ---------------------------------------------------------------------------- */

static bool is_sensible(const ty_shape *shape)
{
    double product = 1;
    if (shape->dimension_count == 0 || shape->dimension_count > TY_MAX_DIMENSIONS)
        return false;
    for (uint32_t i = 0; i < shape->dimension_count; i++) {
        if (shape->dimensions[i] == 0 || shape->dimensions[i] > LARGEST_SIZE)
            return false;
        product *= (double)shape->dimensions[i];
    }
    return product < 1e15;
}

static void set_text(ty_builder *b, char **field, const char *text)
{
    char *copy = ty_strdup(text);
    if (copy == NULL) {
        fail(b, TY_ENOMEM, text, "out of memory");
        return;
    }
    ty_free(*field);
    *field = copy;
}

static void set_defaults(ty_builder *b, ty_input_kind input_kind, const ty_shape *input)
{
    ty_workload *w = b->workload;
    bool is_token = input_kind == TY_INPUT_TOKEN;
    w->element_bytes = 4;
    w->input_kind = input_kind;
    w->input = *input;
    w->tokens_per_sample = is_token ? input->dimensions[0] : 0;
    /* Numbers and one label per sample; for a sequence, labels are the next tokens. */
    w->sample_bytes = 4 * (ty_shape_elements(input) + 1);
    w->global_batch = 32;
    w->optimizer = (ty_optimizer){.kind = TY_OPTIMIZER_SGD, .learning_rate = 0.01};
    set_text(b, &w->source, "built by hand");
    set_text(b, &w->dataset, "synthetic");
}

ty_builder *ty_builder_new(const char *name, ty_input_kind input_kind, const ty_shape *input)
{
    ty_builder *b = ty_alloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->workload = ty_alloc(1, sizeof *b->workload);
    if (b->workload == NULL) {
        ty_free(b);
        return NULL;
    }
    set_text(b, &b->workload->name, name);
    if (!is_sensible(input) || (input_kind == TY_INPUT_TOKEN && input->dimension_count != 1))
        fail(b, TY_EINVAL, name, "the batch has no sensible shape");
    else
        set_defaults(b, input_kind, input);
    return b;
}

void ty_builder_free(ty_builder *builder)
{
    if (builder == NULL)
        return;
    ty_workload_free(builder->workload);
    ty_free(builder->has_trainable);
    ty_free(builder->next_name);
    ty_free(builder);
}

/* A relu that is the only reader of its input works in place: only its output is stored. */
static ty_status settle_in_place(const ty_workload *w, ty_error *error)
{
    uint32_t *reader_counts = ty_alloc(w->layer_count, sizeof *reader_counts);

    TY_TRY(ty_check_memory(reader_counts != NULL, error));
    for (uint32_t i = 0; i < w->layer_count; i++)
        for (uint32_t k = 0; k < w->layers[i].input_count; k++)
            reader_counts[w->layers[i].inputs[k]]++;
    for (uint32_t i = 0; i < w->layer_count; i++)
        if (ty_layer_row_of(&w->layers[i])->works_in_place && w->layers[i].input_count == 1 &&
            reader_counts[w->layers[i].inputs[0]] == 1)
            w->layers[i].stash_bytes = 0;
    ty_free(reader_counts);
    return TY_OK;
}

/* Marks layers that have parameters, or depend on one that has. */
static void mark_trainable(const ty_workload *w, bool *is_marked)
{
    for (uint32_t i = 0; i < w->layer_count; i++) {
        const ty_layer *l = &w->layers[i];
        is_marked[i] = l->parameter_bytes > 0 || l->tied_to != TY_NO_LAYER;
        for (uint32_t k = 0; k < l->input_count; k++)
            is_marked[i] = is_marked[i] || is_marked[l->inputs[k]];
    }
}

/* The needed gradients are known only after all layers and frozen ones are. */
ty_status ty_workload_settle(ty_workload *w, ty_error *error)
{
    ty_status status = TY_OK;
    bool is_any_frozen = false;
    bool *takes_part = ty_alloc(w->layer_count, sizeof *takes_part);

    TY_TRY(ty_check_memory(takes_part != NULL, error));
    for (uint32_t i = 0; i < w->layer_count; i++)
        is_any_frozen = is_any_frozen || w->layers[i].is_frozen;
    if (is_any_frozen)
        ty_workload_mark_backward(w, takes_part);
    else
        mark_trainable(w, takes_part);
    for (uint32_t i = 0; i < w->layer_count; i++) {
        const ty_layer *l = &w->layers[i];
        bool needs_input_gradient = false;
        if (ty_layer_row_of(l)->is_opaque) /* its backward is specified */
            continue;
        for (uint32_t k = 0; k < l->input_count; k++)
            needs_input_gradient = needs_input_gradient || takes_part[l->inputs[k]];
        TY_CHECK(ty_layer_set_quantities(w, i, needs_input_gradient, error), status, cleanup);
    }
    status = settle_in_place(w, error);

cleanup:
    ty_free(takes_part);
    return status;
}

ty_status ty_builder_finish(ty_builder *builder, ty_workload **out, ty_error *error)
{
    ty_status status = TY_OK;

    if (is_broken(builder)) {
        const ty_error *mistake = ty_builder_mistake(builder);
        status = ty_fail(error, mistake->status, "%s", mistake->message);
        goto cleanup;
    }
    TY_CHECK(ty_workload_settle(builder->workload, error), status, cleanup);
    TY_CHECK(ty_workload_check(builder->workload, builder->workload->name, error), status, cleanup);
    TY_CHECK(ty_workload_index_make(builder->workload, error), status, cleanup);
    *out = builder->workload;
    builder->workload = NULL; /* ownership moved */

cleanup:
    ty_builder_free(builder);
    return status;
}

/* ---- What is said about the whole ----------------------------------------------------------- */

void ty_builder_set_source(ty_builder *builder, const char *source)
{
    if (!is_broken(builder))
        set_text(builder, &builder->workload->source, source);
}

void ty_builder_set_training(ty_builder *builder, const char *dataset, uint32_t global_batch,
                             const ty_optimizer *optimizer)
{
    if (is_broken(builder))
        return;
    set_text(builder, &builder->workload->dataset, dataset);
    builder->workload->global_batch = global_batch;
    builder->workload->optimizer = *optimizer;
}

void ty_builder_set_rotary_base(ty_builder *builder, uint64_t rotary_base)
{
    if (!is_broken(builder))
        builder->workload->rotary_base = rotary_base;
}

void ty_builder_set_scenario(ty_builder *builder, ty_learning learning, uint32_t local_steps,
                             double input_s_per_sample)
{
    if (is_broken(builder))
        return;
    builder->workload->learning = learning;
    builder->workload->local_steps = local_steps > 1 ? local_steps : 0;
    builder->workload->input_s_per_sample = input_s_per_sample;
}

void ty_builder_set_deviation(ty_builder *builder, double deviation)
{
    if (!is_broken(builder))
        builder->workload->deviation = deviation;
}

void ty_builder_set_teacher(ty_builder *builder, const ty_teacher *teacher)
{
    if (!is_broken(builder))
        builder->workload->teacher = *teacher;
}

void ty_builder_freeze(ty_builder *builder, uint32_t first, uint32_t end)
{
    if (is_broken(builder))
        return;
    for (uint32_t i = first; i < end && i < builder->workload->layer_count; i++)
        builder->workload->layers[i].is_frozen = true;
}

void ty_builder_freeze_matrices(ty_builder *builder)
{
    if (is_broken(builder))
        return;
    for (uint32_t i = 0; i < builder->workload->layer_count; i++)
        if (!ty_layer_row_of(&builder->workload->layers[i])->is_norm)
            builder->workload->layers[i].is_frozen = true;
}

void ty_builder_freeze_through(ty_builder *builder, const char *name)
{
    if (is_broken(builder))
        return;
    for (uint32_t i = 0; i < builder->workload->layer_count; i++) {
        if (strcmp(builder->workload->layers[i].name, name) != 0)
            continue;
        ty_builder_freeze(builder, 0, i + 1);
        return;
    }
    fail(builder, TY_EINVAL, name, "no layer of this name to freeze");
}

uint32_t ty_builder_layer_count(const ty_builder *builder)
{
    return is_broken(builder) ? 0 : builder->workload->layer_count;
}

void ty_builder_set_sample_bytes(ty_builder *builder, uint64_t sample_bytes)
{
    if (!is_broken(builder))
        builder->workload->sample_bytes = sample_bytes;
}

void ty_builder_name_next(ty_builder *builder, const char *name)
{
    if (!is_broken(builder))
        set_text(builder, &builder->next_name, name);
}

void ty_builder_set_next(ty_builder *builder, ty_attribute attribute, uint64_t value)
{
    if (!is_broken(builder))
        builder->next_attributes[attribute] = value;
}

/* ---- Appending ------------------------------------------------------------------------------ */

static ty_status reserve(ty_builder *b)
{
    uint32_t capacity = b->capacity == 0 ? 16 : b->capacity * 2;
    ty_layer *layers;
    bool *flags;

    if (b->workload->layer_count < b->capacity)
        return TY_OK;
    layers = ty_resize(b->workload->layers, capacity, sizeof *layers);
    if (layers == NULL)
        return fail(b, TY_ENOMEM, b->workload->name, "out of memory");
    b->workload->layers = layers;
    flags = ty_resize(b->has_trainable, capacity, sizeof *flags);
    if (flags == NULL)
        return fail(b, TY_ENOMEM, b->workload->name, "out of memory");
    b->has_trainable = flags;
    b->capacity = capacity;
    return TY_OK;
}

static char *take_name(ty_builder *b, ty_layer_kind kind)
{
    char text[64], *name = b->next_name;
    b->next_name = NULL;
    b->kind_counts[kind]++;
    if (name != NULL)
        return name;
    snprintf(text, sizeof text, "%s%u", ty_layer_kind_name(kind), b->kind_counts[kind]);
    return ty_strdup(text);
}

/* `input_count` 0 means the batch. */
static ty_status set_inputs(ty_builder *b, ty_layer *l, const uint32_t *inputs, uint32_t count)
{
    if (count == 1 && inputs[0] == TY_BATCH)
        count = 0;
    l->inputs = ty_alloc(count, sizeof *l->inputs);
    if (l->inputs == NULL)
        return fail(b, TY_ENOMEM, l->name, "out of memory");
    if (count > 0)
        memcpy(l->inputs, inputs, count * sizeof *inputs);
    l->input_count = count;
    return TY_OK;
}

/* Takes the optional attributes set for this layer; unsupported ones are errors. */
static ty_status take_attributes(ty_builder *b, ty_layer *l)
{
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++) {
        if (b->next_attributes[a] != 0 &&
            ty_layer_attribute_use(l->kind, a) != TY_ATTRIBUTE_OPTIONAL)
            return ty_fail(&b->mistake, TY_EINVAL, "%s: %s has no optional attribute %s", l->name,
                           ty_layer_kind_name(l->kind), ty_attribute_name(a));
        l->attributes[a] = b->next_attributes[a];
        b->next_attributes[a] = 0;
    }
    return TY_OK;
}

/* A new layer with name, kind, options and inputs; NULL after an error. `finish_layer` adds it.
 */
static ty_layer *begin_layer(ty_builder *b, ty_layer_kind kind, const uint32_t *inputs,
                             uint32_t count)
{
    ty_layer *l;
    if (is_broken(b) || reserve(b) != TY_OK)
        return NULL;
    l = &b->workload->layers[b->workload->layer_count];
    memset(l, 0, sizeof *l);
    l->kind = kind;
    l->tied_to = TY_NO_LAYER;
    l->name = take_name(b, kind);
    if (l->name == NULL) {
        fail(b, TY_ENOMEM, b->workload->name, "out of memory");
        return NULL;
    }
    if (take_attributes(b, l) != TY_OK || set_inputs(b, l, inputs, count) != TY_OK) {
        ty_free(l->name);
        return NULL;
    }
    return l;
}

static ty_status complete(ty_builder *b, ty_layer *l)
{
    uint32_t self = b->workload->layer_count;
    bool input_is_trained = false;
    ty_error detail = {0};
    ty_status status;

    if (ty_layer_derive_shape(b->workload, self, &detail) != TY_OK)
        return ty_fail(&b->mistake, TY_EINVAL, "%s", detail.message);
    for (uint32_t i = 0; i < l->input_count; i++)
        input_is_trained = input_is_trained || b->has_trainable[l->inputs[i]];
    status = ty_layer_set_quantities(b->workload, self, input_is_trained, &b->mistake);
    b->has_trainable[self] =
        input_is_trained || l->parameter_bytes > 0 || l->tied_to != TY_NO_LAYER;
    return status;
}

static uint32_t finish_layer(ty_builder *b, ty_layer *l)
{
    if (is_broken(b) || complete(b, l) != TY_OK) {
        ty_free(l->name);
        ty_free(l->inputs);
        return 0;
    }
    return b->workload->layer_count++;
}

typedef struct setting {
    ty_attribute attribute;
    uint64_t value;
} setting;

/* A layer with `count` settings, listed by SET. */
static uint32_t append(ty_builder *b, ty_layer_kind kind, const uint32_t *inputs,
                       uint32_t input_count, const setting *settings, size_t count)
{
    ty_layer *l = begin_layer(b, kind, inputs, input_count);

    if (l == NULL)
        return 0;
    for (size_t i = 0; i < count; i++)
        l->attributes[settings[i].attribute] = settings[i].value;
    return finish_layer(b, l);
}

#define SET(...)                                                                                   \
    (const setting[]){__VA_ARGS__}, sizeof((const setting[]){__VA_ARGS__}) / sizeof(setting)

const ty_shape *ty_builder_shape(const ty_builder *builder, uint32_t layer)
{
    if (is_broken(builder))
        return NULL;
    if (layer == TY_BATCH)
        return &builder->workload->input;
    return layer < builder->workload->layer_count ? &builder->workload->layers[layer].output : NULL;
}

/* One dimension of a layer's output; 0 if there is no such layer. */
static uint64_t dimension(const ty_builder *b, uint32_t layer, uint32_t d)
{
    const ty_shape *shape = ty_builder_shape(b, layer);
    return shape != NULL && d < shape->dimension_count ? shape->dimensions[d] : 0;
}

static uint64_t last_dimension(const ty_builder *b, uint32_t layer)
{
    const ty_shape *shape = ty_builder_shape(b, layer);
    return shape != NULL ? shape->dimensions[shape->dimension_count - 1] : 0;
}

/* ---- Layers, in the order of the header ------------------------------------------------------ */

static uint32_t linear(ty_builder *b, uint32_t input, uint64_t out_features, bool has_bias,
                       uint32_t tied_to)
{
    ty_layer *l = begin_layer(b, TY_LAYER_LINEAR, &input, 1);

    if (l == NULL)
        return 0;
    l->attributes[TY_IN_FEATURES] = last_dimension(b, input);
    l->attributes[TY_OUT_FEATURES] = out_features;
    l->attributes[TY_HAS_BIAS] = has_bias;
    l->tied_to = tied_to;
    return finish_layer(b, l);
}

uint32_t ty_builder_linear(ty_builder *builder, uint32_t input, uint64_t out_features,
                           bool has_bias)
{
    return linear(builder, input, out_features, has_bias, TY_NO_LAYER);
}

static uint32_t tied_linear(ty_builder *builder, uint32_t input, uint32_t embedding, bool has_bias)
{
    const ty_layer *owner;
    if (is_broken(builder))
        return 0;
    if (embedding >= builder->workload->layer_count ||
        ty_layer_row_of(&builder->workload->layers[embedding])->table != TY_TABLE_OF_TOKENS) {
        fail(builder, TY_EINVAL, builder->workload->name,
             "a tied linear layer needs an earlier embedding");
        return 0;
    }
    owner = &builder->workload->layers[embedding];
    if (last_dimension(builder, input) != owner->attributes[TY_FEATURES]) {
        fail(builder, TY_EINVAL, owner->name, "features differ from those of the tied layer");
        return 0;
    }
    return linear(builder, input, owner->attributes[TY_VOCABULARY], has_bias, embedding);
}

uint32_t ty_builder_tied_linear(ty_builder *builder, uint32_t input, uint32_t embedding)
{
    return tied_linear(builder, input, embedding, false);
}

uint32_t ty_builder_tied_linear_with_bias(ty_builder *builder, uint32_t input, uint32_t embedding)
{
    return tied_linear(builder, input, embedding, true);
}

#define WINDOW(w)                                                                                  \
    {TY_KERNEL_HEIGHT, (w)->height}, {TY_KERNEL_WIDTH, (w)->width}, {TY_STRIDE, (w)->stride},      \
        {TY_PADDING_HEIGHT, (w)->padding_height},                                                  \
    {                                                                                              \
        TY_PADDING_WIDTH, (w)->padding_width                                                       \
    }

uint32_t ty_builder_conv2d(ty_builder *builder, uint32_t input, uint64_t out_channels,
                           const ty_window *window, uint64_t groups, bool has_bias)
{
    return append(builder, TY_LAYER_CONV2D, &input, 1,
                  SET({TY_IN_CHANNELS, dimension(builder, input, 0)},
                      {TY_OUT_CHANNELS, out_channels}, {TY_GROUPS, groups}, {TY_HAS_BIAS, has_bias},
                      WINDOW(window)));
}

uint32_t ty_builder_pool(ty_builder *builder, uint32_t input, const ty_window *window,
                         bool is_average)
{
    return append(builder, TY_LAYER_POOL, &input, 1,
                  SET({TY_IS_AVERAGE, is_average}, WINDOW(window)));
}

/* Stores the explicit window, so that most readers can ignore is_global. */
uint32_t ty_builder_global_pool(ty_builder *builder, uint32_t input)
{
    const ty_window whole = {
        .height = dimension(builder, input, 1), .width = dimension(builder, input, 2), .stride = 1};

    return append(builder, TY_LAYER_POOL, &input, 1,
                  SET({TY_IS_AVERAGE, 1}, {TY_IS_GLOBAL, 1}, WINDOW(&whole)));
}

uint32_t ty_builder_batch_norm(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_BATCH_NORM, &input, 1,
                  SET({TY_FEATURES, dimension(builder, input, 0)})); /* channels first */
}

uint32_t ty_builder_layer_norm(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_LAYER_NORM, &input, 1,
                  SET({TY_FEATURES, last_dimension(builder, input)}));
}

uint32_t ty_builder_rms_norm(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_RMS_NORM, &input, 1,
                  SET({TY_FEATURES, last_dimension(builder, input)}));
}

uint32_t ty_builder_relu(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_RELU, &input, 1, NULL, 0);
}

uint32_t ty_builder_gelu(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_GELU, &input, 1, NULL, 0);
}

uint32_t ty_builder_silu(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_SILU, &input, 1, NULL, 0);
}

uint32_t ty_builder_tanh(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_TANH, &input, 1, NULL, 0);
}

uint32_t ty_builder_slice(ty_builder *builder, uint32_t input, uint64_t first_row, uint64_t rows)
{
    return append(builder, TY_LAYER_SLICE, &input, 1,
                  SET({TY_FIRST_ROW, first_row}, {TY_ROWS, rows}));
}

uint32_t ty_builder_flatten(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_FLATTEN, &input, 1, NULL, 0);
}

uint32_t ty_builder_embedding(ty_builder *builder, uint32_t input, uint64_t vocabulary,
                              uint64_t features, uint64_t positions)
{
    return append(
        builder, TY_LAYER_EMBEDDING, &input, 1,
        SET({TY_VOCABULARY, vocabulary}, {TY_FEATURES, features}, {TY_POSITIONS, positions}));
}

uint32_t ty_builder_embedding_bag(ty_builder *builder, uint32_t input, uint64_t vocabulary,
                                  uint64_t features, uint64_t first_row, uint64_t rows,
                                  bool is_average)
{
    return append(builder, TY_LAYER_EMBEDDING_BAG, &input, 1,
                  SET({TY_VOCABULARY, vocabulary}, {TY_FEATURES, features},
                      {TY_FIRST_ROW, first_row}, {TY_ROWS, rows}, {TY_IS_AVERAGE, is_average}));
}

static uint32_t attention(ty_builder *builder, const uint32_t *inputs, uint32_t count,
                          uint64_t heads, uint64_t kv_heads, uint64_t head_size, bool has_bias,
                          bool is_causal)
{
    return append(builder, TY_LAYER_ATTENTION, inputs, count,
                  SET({TY_FEATURES, last_dimension(builder, inputs[count - 1])}, {TY_HEADS, heads},
                      {TY_KV_HEADS, kv_heads}, {TY_HEAD_SIZE, head_size}, {TY_HAS_BIAS, has_bias},
                      {TY_IS_CAUSAL, is_causal}));
}

uint32_t ty_builder_attention(ty_builder *builder, uint32_t input, uint64_t heads,
                              uint64_t kv_heads, uint64_t head_size, bool has_bias, bool is_causal)
{
    return attention(builder, &input, 1, heads, kv_heads, head_size, has_bias, is_causal);
}

uint32_t ty_builder_cross_attention(ty_builder *builder, uint32_t input, uint32_t memory,
                                    uint64_t heads, uint64_t kv_heads, uint64_t head_size,
                                    bool has_bias)
{
    return attention(builder, (uint32_t[]){memory, input}, 2, heads, kv_heads, head_size, has_bias,
                     false);
}

uint32_t ty_builder_additive_attention(ty_builder *builder, uint32_t input, uint32_t memory,
                                       uint64_t hidden_features)
{
    return append(builder, TY_LAYER_ADDITIVE_ATTENTION, (uint32_t[]){memory, input}, 2,
                  SET({TY_IN_FEATURES, last_dimension(builder, input)},
                      {TY_FEATURES, last_dimension(builder, memory)},
                      {TY_HIDDEN_FEATURES, hidden_features}));
}

uint32_t ty_builder_moe(ty_builder *builder, uint32_t input, uint64_t experts,
                        uint64_t experts_per_token, uint64_t hidden_features, bool has_bias,
                        bool is_gated)
{
    return append(builder, TY_LAYER_MOE, &input, 1,
                  SET({TY_FEATURES, last_dimension(builder, input)},
                      {TY_HIDDEN_FEATURES, hidden_features}, {TY_HAS_BIAS, has_bias},
                      {TY_IS_GATED, is_gated}, {TY_EXPERTS, experts},
                      {TY_EXPERTS_PER_TOKEN, experts_per_token}));
}

uint32_t ty_builder_mlp(ty_builder *builder, uint32_t input, uint64_t hidden_features,
                        bool has_bias, bool is_gated)
{
    return append(builder, TY_LAYER_MLP, &input, 1,
                  SET({TY_FEATURES, last_dimension(builder, input)},
                      {TY_HIDDEN_FEATURES, hidden_features}, {TY_HAS_BIAS, has_bias},
                      {TY_IS_GATED, is_gated}));
}

uint32_t ty_builder_state_space(ty_builder *builder, uint32_t input, uint64_t hidden_features,
                                uint64_t state_size, uint64_t kernel_width, bool has_bias)
{
    return append(builder, TY_LAYER_STATE_SPACE, &input, 1,
                  SET({TY_FEATURES, last_dimension(builder, input)},
                      {TY_HIDDEN_FEATURES, hidden_features}, {TY_STATE_SIZE, state_size},
                      {TY_KERNEL_WIDTH, kernel_width}, {TY_HAS_BIAS, has_bias}));
}

uint32_t ty_builder_gated_delta(ty_builder *builder, uint32_t input, uint64_t heads,
                                uint64_t kv_heads, uint64_t head_size, uint64_t value_head_size,
                                uint64_t kernel_width)
{
    return append(builder, TY_LAYER_GATED_DELTA, &input, 1,
                  SET({TY_FEATURES, last_dimension(builder, input)}, {TY_HEADS, heads},
                      {TY_KV_HEADS, kv_heads}, {TY_HEAD_SIZE, head_size},
                      {TY_VALUE_HEAD_SIZE, value_head_size}, {TY_KERNEL_WIDTH, kernel_width}));
}

uint32_t ty_builder_lstm(ty_builder *builder, uint32_t input, uint64_t hidden_features,
                         bool has_bias)
{
    return append(builder, TY_LAYER_LSTM, &input, 1,
                  SET({TY_IN_FEATURES, last_dimension(builder, input)},
                      {TY_HIDDEN_FEATURES, hidden_features}, {TY_HAS_BIAS, has_bias}));
}

/* ---- Several inputs, and the end ------------------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* A sorted copy; NULL after an error. */
static uint32_t *sort_inputs(ty_builder *b, const uint32_t *inputs, uint32_t count)
{
    uint32_t *sorted;
    if (is_broken(b))
        return NULL;
    sorted = ty_alloc(count, sizeof *sorted);
    if (sorted == NULL) {
        fail(b, TY_ENOMEM, b->workload->name, "out of memory");
        return NULL;
    }
    if (count > 0) {
        memcpy(sorted, inputs, count * sizeof *sorted);
        qsort(sorted, count, sizeof *sorted, ascending);
    }
    return sorted;
}

static uint32_t append_sorted(ty_builder *b, ty_layer_kind kind, const uint32_t *inputs,
                              uint32_t count)
{
    uint32_t *sorted = sort_inputs(b, inputs, count);
    const uint32_t layer = sorted == NULL ? 0 : append(b, kind, sorted, count, NULL, 0);

    ty_free(sorted);
    return layer;
}

uint32_t ty_builder_add(ty_builder *builder, const uint32_t *inputs, uint32_t count)
{
    return append_sorted(builder, TY_LAYER_ADD, inputs, count);
}

uint32_t ty_builder_concat(ty_builder *builder, const uint32_t *inputs, uint32_t count)
{
    return append(builder, TY_LAYER_CONCAT, inputs, count, NULL, 0);
}

uint32_t ty_builder_concat_features(ty_builder *builder, const uint32_t *inputs, uint32_t count)
{
    return append(builder, TY_LAYER_CONCAT, inputs, count, SET({TY_IS_OF_FEATURES, 1}));
}

uint32_t ty_builder_dot_interaction(ty_builder *builder, const uint32_t *inputs, uint32_t count)
{
    return append_sorted(builder, TY_LAYER_DOT_INTERACTION, inputs, count);
}

uint32_t ty_builder_loss(ty_builder *builder, uint32_t input)
{
    return append(builder, TY_LAYER_SOFTMAX_CROSS_ENTROPY, &input, 1,
                  SET({TY_CLASSES, last_dimension(builder, input)}));
}

/* ---- Layers without formulas ----------------------------------------------------------------- */

uint32_t ty_builder_opaque(ty_builder *builder, const uint32_t *inputs, uint32_t count,
                           const ty_opaque *known)
{
    uint32_t *sorted = sort_inputs(builder, inputs, count);
    ty_layer *l = sorted == NULL ? NULL : begin_layer(builder, TY_LAYER_OPAQUE, sorted, count);

    ty_free(sorted);
    if (l == NULL)
        return 0;
    l->output = known->output;
    l->parameter_bytes = known->parameter_bytes;
    l->forward_flop = known->forward_flop;
    l->backward_flop = known->backward_flop;
    l->measured_forward_s = known->measured_forward_s;
    l->measured_backward_s = known->measured_backward_s;
    l->kernel_count = !known->is_view;
    l->traffic_bytes = !known->is_timed && !known->is_view; /* whether to compute it */
    return finish_layer(builder, l);
}
