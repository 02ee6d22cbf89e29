/* Attention: T query rows and S rows of keys and values, of D features each; T = S and the same
 * rows unless there is a second input. Heads of size h, the values' of size w; H of them have
 * queries, K keys and values.
 *
 * With latents (DeepSeek-AI, arXiv:2405.04434, section 2.1 and appendix C) queries come from q
 * numbers per row instead of D, keys and values from k; the last r numbers of a key are made from
 * the row directly, once for all heads. Rotating queries and keys by their positions has no
 * parameters and happens in place.
 *
 * Scores of a causal attention count in full, also the half that the mask removes: libraries
 * compute it. */
#include "layer_kind.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* Latents need each other, and the rotated part of a head is smaller than the head. */
static bool latents_fit(const layer_shapes *s)
{
    uint64_t kv = layer_size(s, TY_KV_RANK), rotary = layer_size(s, TY_ROTARY_SIZE);

    if (kv == 0)
        return rotary == 0 && layer_size(s, TY_QUERY_RANK) == 0;
    return s->layer->input_count < 2 && rotary < layer_size(s, TY_HEAD_SIZE) &&
           layer_size(s, TY_KV_HEADS) == layer_size(s, TY_HEADS);
}

static void attention_shape(layer_shapes *s)
{
    if (ty_layer_has_dimensions(s, 2, "a sequence of 2 dimensions") &&
        ty_layer_ends_in(s, TY_FEATURES)) {
        if (layer_size(s, TY_HEADS) % layer_size(s, TY_KV_HEADS) != 0)
            snprintf(s->complaint, sizeof s->complaint, "heads to be a multiple of kv_heads");
        else if (!latents_fit(s))
            snprintf(s->complaint, sizeof s->complaint,
                     "query_rank and rotary_size only with kv_rank; with it one input, kv_heads "
                     "equal to heads, and rotary_size below head_size");
    }
    if (s->complaint[0] == '\0' && s->layer->input_count > 1) { /* the queries decide the shape */
        s->in = ty_layer_input_shape(s->workload, s->index, 1);
        if (ty_layer_has_dimensions(s, 2, "a sequence of 2 dimensions"))
            ty_layer_ends_in(s, TY_FEATURES);
    }
    s->out = *s->in;
}

static uint32_t attention_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    const uint64_t queries = a[TY_HEADS] * a[TY_HEAD_SIZE], keys = a[TY_KV_HEADS] * a[TY_HEAD_SIZE];
    const uint64_t project = queries + 2 * keys, groups[] = {queries, keys, keys};
    const bool has_bias = a[TY_HAS_BIAS] != 0, has_qkv_bias = has_bias || a[TY_HAS_QKV_BIAS] != 0;
    const uint64_t gains = a[TY_HAS_QK_NORM] * a[TY_HEAD_SIZE];

    tensors[0] =
        layer_matrix("in_proj_weight", project, a[TY_FEATURES], TY_START_NORMAL, TY_BY_ROWS);
    tensors[1] =
        layer_matrix("out_proj.weight", a[TY_FEATURES], queries, TY_START_RESIDUAL, TY_BY_COLUMNS);
    tensors[2] = layer_vector("in_proj_bias", has_qkv_bias ? project : 0, 0, TY_BY_ROWS);
    memcpy(tensors[0].groups, groups, sizeof groups);
    if (has_qkv_bias)
        memcpy(tensors[2].groups, groups, sizeof groups);
    tensors[3] = layer_vector("out_proj.bias", has_bias ? a[TY_FEATURES] : 0, 0, TY_BY_ROWS);
    tensors[4] = layer_vector("q_norm.weight", gains, 1, TY_UNDIVIDED); /* all heads share them */
    tensors[5] = layer_vector("k_norm.weight", gains, 1, TY_UNDIVIDED);
    tensors[6] = layer_matrix("relative_attention_bias", a[TY_RELATIVE_BUCKETS], a[TY_HEADS],
                              TY_START_NORMAL, TY_BY_COLUMNS);
    return a[TY_RELATIVE_BUCKETS] > 0 ? 7 : gains > 0 ? 6 : has_bias ? 4 : has_qkv_bias ? 3 : 2;
}

static double head_values(const layer_view *v)
{
    return at(v, TY_VALUE_HEAD_SIZE) > 0 ? at(v, TY_VALUE_HEAD_SIZE) : at(v, TY_HEAD_SIZE);
}

static double query_width(const layer_view *v)
{
    return at(v, TY_HEADS) * at(v, TY_HEAD_SIZE);
}

static double kv_width(const layer_view *v) /* keys and values */
{
    return at(v, TY_KV_HEADS) *
           (at(v, TY_HEAD_SIZE) + (at(v, TY_SHARES_KV) > 0 ? 0 : head_values(v)));
}

static double context_width(const layer_view *v)
{
    return at(v, TY_HEADS) * head_values(v);
}

static double kv_latent(const layer_view *v) /* and the rotated part of the keys */
{
    return at(v, TY_KV_RANK) + at(v, TY_ROTARY_SIZE);
}

/* Columns of the first products with the input, for queries and for keys and values. */
static double first_query_width(const layer_view *v)
{
    return at(v, TY_QUERY_RANK) > 0 ? at(v, TY_QUERY_RANK) : query_width(v);
}

static double first_kv_width(const layer_view *v)
{
    return at(v, TY_KV_RANK) > 0 ? kv_latent(v) : kv_width(v);
}

/* Matrices from latents to queries, and to keys and values less the rotated part. */
static double query_expansion(const layer_view *v)
{
    return at(v, TY_QUERY_RANK) * query_width(v);
}

static double kv_expansion(const layer_view *v)
{
    return at(v, TY_KV_RANK) * (kv_width(v) - at(v, TY_HEADS) * at(v, TY_ROTARY_SIZE));
}

static double gate_width(const layer_view *v)
{
    return at(v, TY_HAS_GATE) * context_width(v);
}

/* Keys that a query meets: all, those in its window, or the chosen ones. */
static double met_rows(const layer_view *v)
{
    double rows = v->rows;

    if (at(v, TY_WINDOW) > 0)
        rows = fmin(rows, at(v, TY_WINDOW));
    return at(v, TY_CHOSEN_ROWS) > 0 ? fmin(rows, at(v, TY_CHOSEN_ROWS)) : rows;
}

static double score_count(const layer_view *v)
{
    return at(v, TY_HEADS) * ty_layer_query_rows(v) * met_rows(v);
}

/* The indexer (DeepSeek-V3.2): queries from the latent or the input, one key per row, a weight per
 * head; keys have a layer norm. */
static double index_queries(const layer_view *v)
{
    return at(v, TY_INDEX_HEADS) * at(v, TY_INDEX_HEAD_SIZE);
}

static double index_parameters(const layer_view *v)
{
    double from = at(v, TY_QUERY_RANK) > 0 ? at(v, TY_QUERY_RANK) : at(v, TY_FEATURES);
    return from * index_queries(v) +
           at(v, TY_FEATURES) * (at(v, TY_INDEX_HEAD_SIZE) + at(v, TY_INDEX_HEADS)) +
           2 * at(v, TY_INDEX_HEAD_SIZE);
}

/* Every query meets every key of it; each score counts twice the size of a head. */
static double index_scores(const layer_view *v)
{
    return 2 * ty_layer_query_rows(v) * v->rows * index_queries(v);
}

static double attention_parameters(const layer_view *v)
{
    double features = at(v, TY_FEATURES);
    double projected = first_query_width(v) + first_kv_width(v);
    double matrices = features * (projected + gate_width(v) + context_width(v)) +
                      query_expansion(v) + kv_expansion(v) + index_parameters(v);
    double keys = at(v, TY_KV_HEADS) * at(v, TY_HEAD_SIZE);
    double biases = at(v, TY_HAS_BIAS) * (projected + features - at(v, TY_LACKS_KEY_BIAS) * keys) +
                    (at(v, TY_HAS_BIAS) > 0 ? 0 : at(v, TY_HAS_QKV_BIAS)) * projected;
    double norms = at(v, TY_QUERY_RANK) + at(v, TY_KV_RANK) +
                   at(v, TY_HAS_QK_NORM) * 2 * at(v, TY_HEAD_SIZE) +
                   at(v, TY_HAS_WIDE_QK_NORM) * (query_width(v) + keys);
    double per_head = at(v, TY_RELATIVE_BUCKETS) + at(v, TY_HAS_SINKS);
    return ty_layer_owned(v) * (matrices + biases + norms + per_head * at(v, TY_HEADS));
}

static double attention_input_product(const layer_view *v)
{
    double from_latent = at(v, TY_QUERY_RANK) > 0 ? 0 : index_queries(v);
    double indexer = at(v, TY_INDEX_HEAD_SIZE) + at(v, TY_INDEX_HEADS) + from_latent;
    return 2 * at(v, TY_FEATURES) *
           (ty_layer_query_rows(v) * (first_query_width(v) + gate_width(v) + indexer) +
            v->rows * first_kv_width(v));
}

static double attention_scores(const layer_view *v) /* and context */
{
    return 2 * score_count(v) * (at(v, TY_HEAD_SIZE) + head_values(v)) + index_scores(v);
}

static double attention_flop(const layer_view *v)
{
    double from_latent = at(v, TY_QUERY_RANK) * index_queries(v);
    double expansion = 2 * (ty_layer_query_rows(v) * (query_expansion(v) + from_latent) +
                            v->rows * kv_expansion(v));
    double output = 2 * ty_layer_query_rows(v) * at(v, TY_FEATURES) * context_width(v);
    return attention_input_product(v) + expansion + attention_scores(v) + output;
}

/* Queries, keys, values, context; inputs of the norms of latents and heads; probabilities, or the
 * logarithm of each row's sum if backward recomputes the scores (Dao et al., arXiv:2205.14135,
 * section 3.1). That recomputation is no model flop: backward_flop leaves it out. */
static double attention_stashed(const layer_view *v)
{
    double queries =
        ty_layer_query_rows(v) * (query_width(v) + context_width(v) + 2 * at(v, TY_QUERY_RANK));
    double keys = v->rows * (kv_width(v) + 2 * at(v, TY_KV_RANK));
    double normed = (at(v, TY_HAS_QK_NORM) + at(v, TY_HAS_WIDE_QK_NORM)) *
                    (ty_layer_query_rows(v) * query_width(v) +
                     v->rows * at(v, TY_KV_HEADS) * at(v, TY_HEAD_SIZE));
    double scores =
        at(v, TY_IS_FUSED) > 0 ? at(v, TY_HEADS) * ty_layer_query_rows(v) : score_count(v);
    double gates = ty_layer_query_rows(v) * gate_width(v);
    double indexer = ty_layer_query_rows(v) * (index_queries(v) + at(v, TY_CHOSEN_ROWS)) +
                     v->rows * at(v, TY_INDEX_HEAD_SIZE);
    return queries + keys + normed + scores + gates + indexer;
}

/* Everything inside is written once and read once; the softmax reads and writes the scores. */
static double attention_traffic(const layer_view *v)
{
    double softmax = at(v, TY_IS_FUSED) > 0 ? 0 : 2 * score_count(v);
    return v->in + v->out + 2 * attention_stashed(v) + softmax;
}

/* Projection, scores, softmax, context, output. Fused, the three in the middle are one. A second
 * input has a projection of its own, and so have latents, each with a norm and a matrix to
 * follow. */
static double attention_kernels(const layer_view *v)
{
    double products = at(v, TY_IS_FUSED) > 0 ? 3 : 5;
    double latents = (at(v, TY_QUERY_RANK) > 0 ? 2 : 0) + (at(v, TY_KV_RANK) > 0 ? 3 : 0);
    double norms = 2 * (at(v, TY_HAS_QK_NORM) + at(v, TY_HAS_WIDE_QK_NORM));
    double indexer = at(v, TY_INDEX_HEADS) > 0 ? 5 : 0; /* products, norm, scores, choice */
    return products + latents + norms + indexer + at(v, TY_HAS_GATE) + (v->layer->input_count > 1);
}

const layer_kind ty_kind_attention = {
    .row = {.name = "attention",
            .required = BIT(TY_FEATURES) | BIT(TY_HEADS) | BIT(TY_KV_HEADS) | BIT(TY_HEAD_SIZE) |
                        BIT(TY_HAS_BIAS) | BIT(TY_IS_CAUSAL),
            .optional = BIT(TY_VALUE_HEAD_SIZE) | BIT(TY_HAS_QKV_BIAS) | BIT(TY_HAS_QK_NORM) |
                        BIT(TY_QUERY_RANK) | BIT(TY_KV_RANK) | BIT(TY_ROTARY_SIZE) |
                        BIT(TY_RELATIVE_BUCKETS) | BIT(TY_IS_FUSED) | BIT(TY_WINDOW) |
                        BIT(TY_CHOSEN_ROWS) | BIT(TY_INDEX_HEADS) | BIT(TY_INDEX_HEAD_SIZE) |
                        BIT(TY_HAS_SINKS) | BIT(TY_HAS_GATE) | BIT(TY_HAS_WIDE_QK_NORM) |
                        BIT(TY_LACKS_KEY_BIAS) | BIT(TY_SHARES_KV) | BIT(TY_IS_SHARED),
            .most_inputs = 2,
            .products = 2,
            .matrices = 2,
            .split = TY_SPLIT_HEADS,
            .is_of_tokens = true,
            .mixes_tokens = true,
            .ignores_output = true,
            .has_second = true},
    .shape = attention_shape,
    .tensors = attention_tensors,
    .parameters = attention_parameters,
    .forward_flop = attention_flop,
    .input_product = attention_input_product,
    .unweighted = attention_scores,
    .stashed = attention_stashed,
    .traffic = attention_traffic,
    .kernels = attention_kernels,
};

/* ---- additive_attention: T rows of Q features have a weighted sum each of S rows of D features,
 * by scores of H hidden numbers. Matrices of queries and keys, a vector and its gain, a bias
 * (Bahdanau, Cho and Bengio, arXiv:1409.0473, appendix A.1.2, with the weights of Salimans and
 * Kingma, arXiv:1602.07868). Backward recomputes the T S H sums under tanh. Products: queries,
 * keys, scores, values; and the softmax. ---- */

/* The memory, then the queries. */
static void additive_attention_shape(layer_shapes *s)
{
    if (!ty_layer_has_dimensions(s, 2, "a sequence of 2 dimensions") ||
        !ty_layer_ends_in(s, TY_FEATURES))
        return;
    s->in = ty_layer_input_shape(s->workload, s->index, 1);
    if (ty_layer_has_dimensions(s, 2, "a sequence of 2 dimensions") &&
        ty_layer_ends_in(s, TY_IN_FEATURES))
        s->out = (ty_shape){2, {s->in->dimensions[0], layer_size(s, TY_FEATURES)}};
}

static uint32_t additive_tensors(const uint64_t *a, ty_layer_tensor *tensors)
{
    const uint64_t hidden = a[TY_HIDDEN_FEATURES];

    tensors[0] =
        layer_matrix("query.weight", hidden, a[TY_IN_FEATURES], TY_START_FAN_IN, TY_UNDIVIDED);
    tensors[1] =
        layer_matrix("memory.weight", hidden, a[TY_FEATURES], TY_START_FAN_IN, TY_UNDIVIDED);
    tensors[2] = layer_vector("vector", hidden, 0, TY_UNDIVIDED);
    tensors[2].start = TY_START_FAN_IN;
    tensors[2].fan_in = hidden;
    tensors[3] = layer_vector("gain", 1, (float)sqrt(1.0 / (double)hidden), TY_UNDIVIDED);
    tensors[4] = layer_vector("bias", hidden, 0, TY_UNDIVIDED);
    return 5;
}

static double additive_parameters(const layer_view *v)
{
    return at(v, TY_HIDDEN_FEATURES) * (at(v, TY_IN_FEATURES) + at(v, TY_FEATURES) + 2) + 1;
}

static double additive_input_product(const layer_view *v)
{
    return 2 * at(v, TY_HIDDEN_FEATURES) *
           (ty_layer_query_rows(v) * at(v, TY_IN_FEATURES) + v->rows * at(v, TY_FEATURES));
}

static double additive_values(const layer_view *v)
{
    return 2 * ty_layer_query_rows(v) * v->rows * at(v, TY_FEATURES);
}

static double additive_flop(const layer_view *v)
{
    return additive_input_product(v) +
           2 * ty_layer_query_rows(v) * v->rows * at(v, TY_HIDDEN_FEATURES) + additive_values(v);
}

static double additive_stashed(const layer_view *v)
{
    return (ty_layer_query_rows(v) + v->rows) * at(v, TY_HIDDEN_FEATURES) +
           ty_layer_query_rows(v) * v->rows;
}

static double additive_kernels(const layer_view *v)
{
    (void)v;
    return 5;
}

const layer_kind ty_kind_additive_attention = {
    .row = {.name = "additive_attention",
            .required = BIT(TY_IN_FEATURES) | BIT(TY_FEATURES) | BIT(TY_HIDDEN_FEATURES),
            .least_inputs = 2,
            .most_inputs = 2,
            .products = 2},
    .shape = additive_attention_shape,
    .tensors = additive_tensors,
    .parameters = additive_parameters,
    .forward_flop = additive_flop,
    .input_product = additive_input_product,
    .unweighted = additive_values,
    .stashed = additive_stashed,
    .kernels = additive_kernels,
};
