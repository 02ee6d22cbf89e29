#include "network.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ty_workload *network_new(ty_input_kind input_kind, uint32_t dimension_count,
                         const uint64_t *dimensions)
{
    ty_workload *w = calloc(1, sizeof *w);
    w->name = strdup("network");
    w->dataset = strdup("synthetic");
    w->element_bytes = 4;
    w->input_kind = input_kind;
    w->input.dimension_count = dimension_count;
    memcpy(w->input.dimensions, dimensions, dimension_count * sizeof *dimensions);
    w->tokens_per_sample = input_kind == TY_INPUT_TOKEN ? dimensions[0] : 0;
    return w;
}

void network_free(ty_workload *w)
{
    if (w == NULL)
        return;
    for (uint32_t l = 0; l < w->layer_count; l++) {
        free(w->layers[l].name);
        free(w->layers[l].inputs);
    }
    free(w->layers);
    ty_workload_index_clear(w);
    free(w->name);
    free(w->dataset);
    free(w);
}

static ty_layer *add(ty_workload *w, ty_layer_kind kind, const int *inputs, uint32_t count)
{
    char name[32];
    ty_layer *layer;
    w->layers = realloc(w->layers, (w->layer_count + 1) * sizeof *w->layers);
    layer = &w->layers[w->layer_count++];
    memset(layer, 0, sizeof *layer);
    snprintf(name, sizeof name, "layer%u", w->layer_count - 1);
    layer->name = strdup(name);
    layer->kind = kind;
    layer->tied_to = TY_NO_LAYER;
    layer->inputs = calloc(count, sizeof *layer->inputs);
    for (uint32_t i = 0; i < count; i++)
        if (inputs[i] >= 0)
            layer->inputs[layer->input_count++] = (uint32_t)inputs[i];
    layer->output = inputs[0] < 0 ? w->input : w->layers[inputs[0]].output;
    return layer;
}

static uint64_t *last(ty_layer *layer)
{
    return &layer->output.dimensions[layer->output.dimension_count - 1];
}

static int done(ty_workload *w, uint64_t parameters)
{
    ty_layer *layer = &w->layers[w->layer_count - 1];
    uint64_t elements = 1;
    for (uint32_t d = 0; d < layer->output.dimension_count; d++)
        elements *= layer->output.dimensions[d];
    layer->parameter_bytes = 4 * parameters;
    layer->output_bytes = 4 * elements;
    if (ty_workload_index_make(w, NULL) != TY_OK)
        abort();
    return (int)w->layer_count - 1;
}

int network_linear(ty_workload *w, int input, uint64_t out, bool has_bias)
{
    ty_layer *layer = add(w, TY_LAYER_LINEAR, &input, 1);
    uint64_t in = *last(layer);
    layer->attributes[TY_IN_FEATURES] = in;
    layer->attributes[TY_OUT_FEATURES] = out;
    layer->attributes[TY_HAS_BIAS] = has_bias;
    *last(layer) = out;
    return done(w, in * out + (has_bias ? out : 0));
}

int network_tied_linear(ty_workload *w, int input, int embedding)
{
    ty_layer *layer = add(w, TY_LAYER_LINEAR, &input, 1);
    layer->attributes[TY_IN_FEATURES] = *last(layer);
    layer->attributes[TY_OUT_FEATURES] = w->layers[embedding].attributes[TY_VOCABULARY];
    layer->tied_to = (uint32_t)embedding;
    *last(layer) = layer->attributes[TY_OUT_FEATURES];
    return done(w, 0);
}

static uint64_t window_out(uint64_t in, uint64_t window, uint64_t stride, uint64_t padding)
{
    return (in + 2 * padding - window) / stride + 1;
}

int network_conv2d(ty_workload *w, int input, uint64_t out, uint64_t height, uint64_t width,
                   uint64_t stride, uint64_t padding, uint64_t groups, bool has_bias)
{
    ty_layer *layer = add(w, TY_LAYER_CONV2D, &input, 1);
    uint64_t *shape = layer->output.dimensions, in = shape[0];
    layer->attributes[TY_IN_CHANNELS] = in;
    layer->attributes[TY_OUT_CHANNELS] = out;
    layer->attributes[TY_KERNEL_HEIGHT] = height;
    layer->attributes[TY_KERNEL_WIDTH] = width;
    layer->attributes[TY_STRIDE] = stride;
    layer->attributes[TY_PADDING_HEIGHT] = layer->attributes[TY_PADDING_WIDTH] = padding;
    layer->attributes[TY_GROUPS] = groups;
    layer->attributes[TY_HAS_BIAS] = has_bias;
    shape[0] = out;
    shape[1] = window_out(shape[1], height, stride, padding);
    shape[2] = window_out(shape[2], width, stride, padding);
    return done(w, out * (in / groups) * height * width + (has_bias ? out : 0));
}

int network_pool(ty_workload *w, int input, uint64_t window, uint64_t stride, uint64_t padding,
                 bool is_average)
{
    ty_layer *layer = add(w, TY_LAYER_POOL, &input, 1);
    uint64_t *shape = layer->output.dimensions;
    layer->attributes[TY_KERNEL_HEIGHT] = layer->attributes[TY_KERNEL_WIDTH] = window;
    layer->attributes[TY_STRIDE] = stride;
    layer->attributes[TY_PADDING_HEIGHT] = layer->attributes[TY_PADDING_WIDTH] = padding;
    layer->attributes[TY_IS_AVERAGE] = is_average;
    shape[1] = window_out(shape[1], window, stride, padding);
    shape[2] = window_out(shape[2], window, stride, padding);
    return done(w, 0);
}

int network_global_pool(ty_workload *w, int input)
{
    ty_layer *layer = add(w, TY_LAYER_POOL, &input, 1);
    layer->attributes[TY_IS_AVERAGE] = layer->attributes[TY_IS_GLOBAL] = 1;
    layer->output.dimensions[1] = layer->output.dimensions[2] = 1;
    return done(w, 0);
}

int network_simple(ty_workload *w, int input, ty_layer_kind kind)
{
    ty_layer *layer = add(w, kind, &input, 1);
    uint64_t features = *last(layer), elements = 1, parameters = 0;
    if (kind == TY_LAYER_LAYER_NORM || kind == TY_LAYER_RMS_NORM)
        parameters = kind == TY_LAYER_LAYER_NORM ? 2 * features : features;
    if (kind == TY_LAYER_BATCH_NORM) {
        features = layer->output.dimensions[0];
        parameters = 2 * features;
    }
    if (parameters > 0)
        layer->attributes[TY_FEATURES] = features;
    if (kind == TY_LAYER_FLATTEN) {
        for (uint32_t d = 0; d < layer->output.dimension_count; d++)
            elements *= layer->output.dimensions[d];
        layer->output = (ty_shape){1, {elements}};
    }
    return done(w, parameters);
}

int network_embedding(ty_workload *w, uint64_t vocabulary, uint64_t features, uint64_t positions)
{
    ty_layer *layer = add(w, TY_LAYER_EMBEDDING, &(int){-1}, 1);
    layer->attributes[TY_VOCABULARY] = vocabulary;
    layer->attributes[TY_FEATURES] = features;
    layer->attributes[TY_POSITIONS] = positions;
    layer->output = (ty_shape){2, {w->input.dimensions[0], features}};
    return done(w, (vocabulary + positions) * features);
}

void network_token_types(ty_workload *w, int layer, uint64_t types)
{
    ty_layer *embedding = &w->layers[layer];

    embedding->attributes[TY_TOKEN_TYPES] = types;
    embedding->parameter_bytes += types * embedding->attributes[TY_FEATURES] * w->element_bytes;
}

int network_attention(ty_workload *w, int input, uint64_t heads, uint64_t kv_heads,
                      uint64_t head_size, bool has_bias, bool is_causal)
{
    ty_layer *layer = add(w, TY_LAYER_ATTENTION, &input, 1);
    uint64_t features = *last(layer), qkv = (heads + 2 * kv_heads) * head_size;
    layer->attributes[TY_FEATURES] = features;
    layer->attributes[TY_HEADS] = heads;
    layer->attributes[TY_KV_HEADS] = kv_heads;
    layer->attributes[TY_HEAD_SIZE] = head_size;
    layer->attributes[TY_HAS_BIAS] = has_bias;
    layer->attributes[TY_IS_CAUSAL] = is_causal;
    return done(w, features * (qkv + heads * head_size) + (has_bias ? qkv + features : 0));
}

int network_cross_attention(ty_workload *w, int input, int memory, uint64_t heads,
                            uint64_t kv_heads, uint64_t head_size, bool has_bias)
{
    int layer = network_attention(w, input, heads, kv_heads, head_size, has_bias, false);
    ty_layer *l = &w->layers[layer];
    l->inputs = realloc(l->inputs, 2 * sizeof *l->inputs);
    l->inputs[0] = (uint32_t)memory;
    l->inputs[1] = (uint32_t)input;
    l->input_count = 2;
    return layer;
}

void network_option(ty_workload *w, int layer, ty_attribute option, uint64_t value)
{
    ty_layer *l = &w->layers[layer];
    uint64_t *a = l->attributes, size = a[TY_HEAD_SIZE];
    a[option] = value;
    if (option == TY_HAS_QK_NORM)
        l->parameter_bytes += 4 * 2 * size;
    else if (option == TY_RELATIVE_BUCKETS)
        l->parameter_bytes += 4 * value * a[TY_HEADS];
    else if (option == TY_HAS_QKV_BIAS)
        l->parameter_bytes += 4 * (a[TY_HEADS] + 2 * a[TY_KV_HEADS]) * size;
}

int network_additive_attention(ty_workload *w, int input, int memory, uint64_t hidden)
{
    ty_layer *layer = add(w, TY_LAYER_ADDITIVE_ATTENTION, (int[]){memory, input}, 2);
    uint64_t features = *last(layer), in = w->layers[input].output.dimensions[1];
    layer->attributes[TY_FEATURES] = features;
    layer->attributes[TY_IN_FEATURES] = in;
    layer->attributes[TY_HIDDEN_FEATURES] = hidden;
    layer->output.dimensions[0] = w->layers[input].output.dimensions[0];
    return done(w, hidden * (in + features + 2) + 1);
}

int network_slice(ty_workload *w, int input, uint64_t first_row, uint64_t rows)
{
    ty_layer *layer = add(w, TY_LAYER_SLICE, &input, 1);
    layer->attributes[TY_FIRST_ROW] = first_row;
    layer->attributes[TY_ROWS] = rows;
    layer->output.dimensions[0] = rows;
    return done(w, 0);
}

int network_concat_features(ty_workload *w, const int *inputs, uint32_t count)
{
    ty_layer *layer = add(w, TY_LAYER_CONCAT, inputs, count);
    layer->attributes[TY_IS_OF_FEATURES] = 1;
    for (uint32_t i = 1; i < count; i++)
        *last(layer) += *last(&w->layers[inputs[i]]);
    return done(w, 0);
}

int network_bag(ty_workload *w, uint64_t vocabulary, uint64_t features, uint64_t first_row,
                uint64_t rows, bool is_average)
{
    ty_layer *layer = add(w, TY_LAYER_EMBEDDING_BAG, &(int){-1}, 1);
    layer->attributes[TY_VOCABULARY] = vocabulary;
    layer->attributes[TY_FEATURES] = features;
    layer->attributes[TY_FIRST_ROW] = first_row;
    layer->attributes[TY_ROWS] = rows;
    layer->attributes[TY_IS_AVERAGE] = is_average;
    *last(layer) = features;
    return done(w, vocabulary * features);
}

int network_interaction(ty_workload *w, const int *inputs, uint32_t count)
{
    ty_layer *layer = add(w, TY_LAYER_DOT_INTERACTION, inputs, count);
    *last(layer) += count * (count - 1) / 2;
    return done(w, 0);
}

int network_lstm(ty_workload *w, int input, uint64_t hidden, bool has_bias)
{
    ty_layer *layer = add(w, TY_LAYER_LSTM, &input, 1);
    uint64_t in = *last(layer);
    layer->attributes[TY_IN_FEATURES] = in;
    layer->attributes[TY_HIDDEN_FEATURES] = hidden;
    layer->attributes[TY_HAS_BIAS] = has_bias;
    *last(layer) = hidden;
    return done(w, 4 * hidden * (in + hidden + (has_bias ? 2 : 0)));
}

int network_mlp(ty_workload *w, int input, uint64_t hidden, bool has_bias, bool is_gated)
{
    ty_layer *layer = add(w, TY_LAYER_MLP, &input, 1);
    uint64_t features = *last(layer), up = hidden * (is_gated ? 2 : 1);
    layer->attributes[TY_FEATURES] = features;
    layer->attributes[TY_HIDDEN_FEATURES] = hidden;
    layer->attributes[TY_HAS_BIAS] = has_bias;
    layer->attributes[TY_IS_GATED] = is_gated;
    return done(w, features * (up + hidden) + (has_bias ? up + features : 0));
}

int network_moe(ty_workload *w, int input, uint64_t experts, uint64_t per_token, uint64_t hidden,
                bool has_bias, bool is_gated)
{
    ty_layer *layer = add(w, TY_LAYER_MOE, &input, 1);
    uint64_t features = *last(layer), up = hidden * (is_gated ? 2 : 1);
    layer->attributes[TY_FEATURES] = features;
    layer->attributes[TY_HIDDEN_FEATURES] = hidden;
    layer->attributes[TY_HAS_BIAS] = has_bias;
    layer->attributes[TY_IS_GATED] = is_gated;
    layer->attributes[TY_EXPERTS] = experts;
    layer->attributes[TY_EXPERTS_PER_TOKEN] = per_token;
    return done(w,
                experts * (features + features * (up + hidden) + (has_bias ? up + features : 0)));
}

int network_moe_shared(ty_workload *w, int input, uint64_t experts, uint64_t per_token,
                       uint64_t hidden, uint64_t shared, bool has_bias, bool is_gated)
{
    int made = network_moe(w, input, experts, per_token, hidden, has_bias, is_gated);
    ty_layer *layer = &w->layers[made];
    uint64_t features = layer->attributes[TY_FEATURES], up = shared * (is_gated ? 2 : 1);
    layer->attributes[TY_SHARED_FEATURES] = shared;
    layer->parameter_bytes +=
        (features * (up + shared) + (has_bias ? up + features : 0)) * w->element_bytes;
    return made;
}

int network_join(ty_workload *w, ty_layer_kind kind, const int *inputs, uint32_t count)
{
    ty_layer *layer = add(w, kind, inputs, count);
    if (kind == TY_LAYER_CONCAT)
        for (uint32_t i = 1; i < count; i++)
            layer->output.dimensions[0] += w->layers[inputs[i]].output.dimensions[0];
    return done(w, 0);
}

int network_loss(ty_workload *w, int input)
{
    ty_layer *layer = add(w, TY_LAYER_SOFTMAX_CROSS_ENTROPY, &input, 1);
    layer->attributes[TY_CLASSES] = *last(layer);
    layer->output = (ty_shape){1, {1}};
    return done(w, 0);
}

ty_workload *network_make_mlp(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 28, 28});
    int x = network_simple(w, -1, TY_LAYER_FLATTEN);
    x = network_simple(w, network_linear(w, x, 1024, true), TY_LAYER_RELU);
    x = network_simple(w, network_linear(w, x, 1024, true), TY_LAYER_RELU);
    network_loss(w, network_linear(w, x, 10, true));
    w->optimizer = (ty_optimizer){TY_OPTIMIZER_SGD, .learning_rate = 0.05, .momentum = 0.9};
    return w;
}

ty_workload *network_make_lenet(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 28, 28});
    int x = network_conv2d(w, -1, 20, 5, 5, 1, 0, 1, true);
    x = network_pool(w, x, 2, 2, 0, false);
    x = network_conv2d(w, x, 50, 5, 5, 1, 0, 1, true);
    x = network_pool(w, x, 2, 2, 0, false);
    x = network_simple(w, x, TY_LAYER_FLATTEN);
    x = network_simple(w, network_linear(w, x, 500, true), TY_LAYER_RELU);
    network_loss(w, network_linear(w, x, 10, true));
    w->optimizer = (ty_optimizer){TY_OPTIMIZER_SGD, .learning_rate = 0.05, .momentum = 0.9};
    return w;
}

ty_workload *network_make_gpt(uint64_t layers, uint64_t features, uint64_t heads, uint64_t sequence,
                              uint64_t vocabulary)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, &sequence);
    int tokens = network_embedding(w, vocabulary, features, sequence), x = tokens;
    for (uint64_t l = 0; l < layers; l++) {
        int y = network_simple(w, x, TY_LAYER_LAYER_NORM);
        y = network_attention(w, y, heads, heads, features / heads, true, true);
        x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
        y = network_simple(w, x, TY_LAYER_LAYER_NORM);
        y = network_mlp(w, y, 4 * features, true, false);
        x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    }
    x = network_simple(w, x, TY_LAYER_LAYER_NORM);
    network_loss(w, network_tied_linear(w, x, tokens));
    w->optimizer = (ty_optimizer){TY_OPTIMIZER_ADAMW, .learning_rate = 1e-3, .beta1 = 0.9,
                                  .beta2 = 0.999,     .epsilon = 1e-8,       .weight_decay = 0.01};
    return w;
}

ty_workload *network_make_encoder(uint64_t features, uint64_t heads, uint64_t sequence,
                                  uint64_t vocabulary, bool has_positions)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, &sequence);
    int x = network_embedding(w, vocabulary, features, has_positions ? sequence : 0), y;

    network_token_types(w, x, 2);
    y = network_attention(w, x, heads, heads, features / heads, true, false);
    x = network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2), TY_LAYER_LAYER_NORM);
    y = network_mlp(w, x, 2 * features, true, false);
    x = network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2), TY_LAYER_LAYER_NORM);
    network_loss(w, network_linear(w, x, vocabulary, true));
    return w;
}

ty_workload *network_make_activations(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 5, 7});
    int x = network_simple(w, -1, TY_LAYER_FLATTEN);
    x = network_simple(w, network_linear(w, x, 33, true), TY_LAYER_RELU);
    x = network_simple(w, network_linear(w, x, 17, false), TY_LAYER_RELU);
    x = network_simple(w, network_linear(w, x, 20, true), TY_LAYER_GELU);
    x = network_simple(w, network_linear(w, x, 18, true), TY_LAYER_SILU);
    network_loss(w, network_linear(w, x, 10, true));
    return w;
}

ty_workload *network_make_small_lenet(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){1, 12, 12});
    int x = network_pool(w, network_conv2d(w, -1, 5, 3, 3, 1, 0, 1, true), 2, 2, 0, false);
    x = network_simple(w, network_conv2d(w, x, 7, 3, 2, 1, 1, 1, true), TY_LAYER_RELU);
    x = network_simple(w, network_pool(w, x, 2, 2, 0, false), TY_LAYER_RELU);
    x = network_simple(w, x, TY_LAYER_FLATTEN);
    x = network_simple(w, network_linear(w, x, 11, true), TY_LAYER_RELU);
    network_loss(w, network_linear(w, x, 10, true));
    return w;
}

ty_workload *network_make_residual(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 3, (uint64_t[]){3, 11, 9});
    int stem = network_simple(w, network_conv2d(w, -1, 18, 3, 3, 2, 1, 1, false), TY_LAYER_RELU);
    int x = network_pool(w, stem, 3, 2, 1, false), y, z;
    y = network_simple(w, network_conv2d(w, x, 18, 3, 3, 1, 1, 3, true), TY_LAYER_RELU);
    y = network_conv2d(w, y, 18, 1, 1, 1, 0, 1, true);
    x = network_simple(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2), TY_LAYER_RELU);
    y = network_conv2d(w, x, 4, 1, 1, 1, 0, 1, true);
    z = network_pool(w, x, 3, 1, 1, true);
    x = network_join(w, TY_LAYER_CONCAT, (int[]){x, y, z}, 3);
    y = network_simple(w, x, TY_LAYER_FLATTEN);
    x = network_simple(w, network_global_pool(w, x), TY_LAYER_FLATTEN);
    x = network_linear(w, x, 10, true);
    y = network_linear(w, y, 10, true);
    network_loss(w, network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2));
    return w;
}

ty_workload *network_make_small_gpt(void)
{
    return network_make_gpt(2, 24, 3, 70, 31);
}

ty_workload *network_make_rotary(bool has_norms)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){70});
    int x = network_embedding(w, 23, 12, 0), y;
    w->rotary_base = 50; /* so that the slowest frequency also rotates far */
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 4, 2, 6, false, true);
    if (has_norms)
        network_option(w, y, TY_HAS_QK_NORM, 1);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_attention(w, x, 3, 3, 2, true, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

ty_workload *network_make_llama(uint64_t hidden, bool is_gated)
{
    ty_workload *w = network_new(TY_INPUT_TOKEN, 1, (uint64_t[]){9});
    int x = network_embedding(w, 23, 20, 0), y;
    y = network_attention(w, network_simple(w, x, TY_LAYER_RMS_NORM), 6, 2, 4, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, network_simple(w, x, TY_LAYER_RMS_NORM), 30, false, true);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_attention(w, x, 2, 1, 7, true, false);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    y = network_mlp(w, x, hidden, true, is_gated);
    x = network_join(w, TY_LAYER_ADD, (int[]){x, y}, 2);
    network_loss(w, network_linear(w, x, 23, true));
    return w;
}

ty_workload *network_make_dlrm(void)
{
    ty_workload *w = network_new(TY_INPUT_REAL, 1, (uint64_t[]){10});
    int x = network_linear(w, network_slice(w, -1, 0, 3), 7, true), inputs[5];
    inputs[0] = network_simple(w, x, TY_LAYER_RELU);
    inputs[1] = network_bag(w, 11, 7, 3, 1, false);
    inputs[2] = network_bag(w, 5, 7, 4, 3, true);
    inputs[3] = network_bag(w, 4, 7, 7, 2, false);
    inputs[4] = network_bag(w, 3, 7, 9, 1, false);
    x = network_linear(w, network_interaction(w, inputs, 5), 6, true);
    network_loss(w, network_linear(w, network_simple(w, x, TY_LAYER_RELU), 1, true));
    return w;
}
