/* Flop, bytes and kernel counts of each layer kind: one row of formulas per kind.
 *
 * Flop. Those of matrix products and convolutions, as published figures and MFU count them; a
 * multiply-add is 2. Scores of a causal attention are counted in full, also the half that the mask
 * throws away: libraries compute it. Backward repeats every product once for the gradient of either
 * factor, hence twice forward; a layer whose input needs no gradient saves the products with its
 * input. Elementwise work is bound by memory everywhere, so it is in the traffic. Source: Narayanan
 * et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC
 * 2021, appendix.
 *
 * Stash. An executor keeps all outputs of a micro-batch until its backward is done; what a layer
 * keeps beyond its output is the `kept` column: a maximum, for one, is found again. A flatten is
 * its input under another shape: no memory, no kernel, no traffic.
 *
 * Traffic. Activations read and written by forward with one kernel per product and per fused
 * elementwise group; weights are not in it. */
#include "layer_quantities.h"

#include <math.h>

/* What the formulas see. Counts are doubles: exact up to 2^53, no overflow beyond. */
typedef struct view {
    const ty_layer *layer;
    double in;   /* elements of all inputs, per sample */
    double out;  /* elements of the output */
    double rows; /* of the first input seen as a matrix over its last dimension: T of [T,D] */
} view;

typedef double (*formula)(const view *v);

typedef struct rule {
    formula parameters; /* numbers; NULL stands for 0 in every column */
    formula forward_flop;
    formula input_product; /* the part of it that has the layer's input as a factor */
    formula kept;          /* numbers kept for backward beyond the output */
    formula traffic;       /* numbers read and written by forward */
    formula kernels;
    formula unweighted; /* the part of forward_flop that has no parameters as a factor */
} rule;

static double at(const view *v, ty_attribute attribute)
{
    return (double)v->layer->attributes[attribute];
}

static double one(const view *v)
{
    (void)v;
    return 1;
}

static double in_and_out(const view *v)
{
    return v->in + v->out;
}

/* ---- linear, convolution ---- */

static double linear_matrix(const view *v)
{
    return at(v, TY_IN_FEATURES) * at(v, TY_OUT_FEATURES);
}

static double linear_parameters(const view *v)
{
    double matrix = v->layer->tied_to == TY_NO_LAYER ? linear_matrix(v) : 0;
    return matrix + at(v, TY_HAS_BIAS) * at(v, TY_OUT_FEATURES);
}

static double linear_flop(const view *v)
{
    return 2 * v->rows * linear_matrix(v);
}

/* Weights that one output element of a convolution is the sum over. */
static double filter(const view *v)
{
    return at(v, TY_IN_CHANNELS) / at(v, TY_GROUPS) * at(v, TY_KERNEL_HEIGHT) *
           at(v, TY_KERNEL_WIDTH);
}

static double conv2d_parameters(const view *v)
{
    return at(v, TY_OUT_CHANNELS) * (filter(v) + at(v, TY_HAS_BIAS));
}

static double conv2d_flop(const view *v)
{
    return 2 * v->out * filter(v);
}

/* ---- norms ---- */

static double own(const view *v) /* 0 where parameters are another layer's */
{
    return 1 - at(v, TY_IS_SHARED);
}

static double gain_and_shift(const view *v)
{
    return own(v) * (2 - at(v, TY_LACKS_SHIFT)) * at(v, TY_FEATURES);
}

static double gain(const view *v)
{
    return at(v, TY_FEATURES);
}

static double two_per_row(const view *v) /* mean and reciprocal deviation */
{
    return 2 * v->rows;
}

static double one_per_row(const view *v)
{
    return v->rows;
}

/* The statistics of a channel span the batch, so the input is read twice. They are kept once per
 * micro-batch, here per sample: at most two numbers per channel too many. */
static double batch_norm_traffic(const view *v)
{
    return 2 * v->in + v->out;
}

/* ---- embedding ---- */

static double embedding_parameters(const view *v)
{
    double rows = at(v, TY_VOCABULARY) + at(v, TY_POSITIONS) + at(v, TY_TOKEN_TYPES);
    return rows * at(v, TY_FEATURES);
}

static double embedding_traffic(const view *v) /* tokens; rows of the tables; their sum */
{
    return v->in + v->out * (2 + (at(v, TY_POSITIONS) > 0) + (at(v, TY_TOKEN_TYPES) > 0));
}

static double bag_parameters(const view *v)
{
    return at(v, TY_VOCABULARY) * at(v, TY_FEATURES);
}

static double bag_traffic(const view *v) /* indices; rows of the table; their sum */
{
    return at(v, TY_ROWS) * (1 + at(v, TY_FEATURES)) + v->out;
}

/* ---- dot interaction: products of every two of the inputs (Naumov et al., arXiv:1906.00091,
 * section 2.1) ---- */

static double interaction_flop(const view *v)
{
    return v->in * (v->layer->input_count - 1);
}

/* ---- attention ----
 *
 * T query rows and S rows of keys and values, of D features each; T = S and the same rows unless
 * there is a second input. Heads of size h, the values' of size w; H of them have queries, K keys
 * and values.
 *
 * With latents (DeepSeek-AI, arXiv:2405.04434, section 2.1 and appendix C) queries come from q
 * numbers per row instead of D, keys and values from k; the last r numbers of a key are made from
 * the row directly, once for all heads. Rotating queries and keys by their positions has no
 * parameters and happens in place. */

static double query_rows(const view *v)
{
    return v->out / at(v, TY_FEATURES);
}

static double head_values(const view *v)
{
    return at(v, TY_VALUE_HEAD_SIZE) > 0 ? at(v, TY_VALUE_HEAD_SIZE) : at(v, TY_HEAD_SIZE);
}

static double query_width(const view *v)
{
    return at(v, TY_HEADS) * at(v, TY_HEAD_SIZE);
}

static double kv_width(const view *v) /* keys and values */
{
    return at(v, TY_KV_HEADS) *
           (at(v, TY_HEAD_SIZE) + (at(v, TY_SHARES_KV) > 0 ? 0 : head_values(v)));
}

static double context_width(const view *v)
{
    return at(v, TY_HEADS) * head_values(v);
}

static double kv_latent(const view *v) /* and the part of the keys beside it */
{
    return at(v, TY_KV_RANK) + at(v, TY_ROTARY_SIZE);
}

/* Width of what the layer's input is multiplied to, for queries and for keys and values. */
static double first_query_width(const view *v)
{
    return at(v, TY_QUERY_RANK) > 0 ? at(v, TY_QUERY_RANK) : query_width(v);
}

static double first_kv_width(const view *v)
{
    return at(v, TY_KV_RANK) > 0 ? kv_latent(v) : kv_width(v);
}

/* Matrices from latents to queries, and to keys and values less the rotated part. */
static double query_expansion(const view *v)
{
    return at(v, TY_QUERY_RANK) * query_width(v);
}

static double kv_expansion(const view *v)
{
    return at(v, TY_KV_RANK) * (kv_width(v) - at(v, TY_HEADS) * at(v, TY_ROTARY_SIZE));
}

static double gate_width(const view *v)
{
    return at(v, TY_HAS_GATE) * context_width(v);
}

/* Keys that a query meets: all, those in its window, or those that were chosen for it. */
static double met_rows(const view *v)
{
    double rows = v->rows;

    if (at(v, TY_WINDOW) > 0)
        rows = fmin(rows, at(v, TY_WINDOW));
    return at(v, TY_CHOSEN_ROWS) > 0 ? fmin(rows, at(v, TY_CHOSEN_ROWS)) : rows;
}

static double score_count(const view *v)
{
    return at(v, TY_HEADS) * query_rows(v) * met_rows(v);
}

/* The indexer (DeepSeek-V3.2): queries from the latent or the input, one key a row, a weight per
 * head; keys have a layer norm. */
static double index_queries(const view *v)
{
    return at(v, TY_INDEX_HEADS) * at(v, TY_INDEX_HEAD_SIZE);
}

static double index_parameters(const view *v)
{
    double from = at(v, TY_QUERY_RANK) > 0 ? at(v, TY_QUERY_RANK) : at(v, TY_FEATURES);
    return from * index_queries(v) +
           at(v, TY_FEATURES) * (at(v, TY_INDEX_HEAD_SIZE) + at(v, TY_INDEX_HEADS)) +
           2 * at(v, TY_INDEX_HEAD_SIZE);
}

/* Every query meets every key of it; each score counts twice the size of a head. */
static double index_scores(const view *v)
{
    return 2 * query_rows(v) * v->rows * index_queries(v);
}

static double attention_parameters(const view *v)
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
    return own(v) * (matrices + biases + norms + per_head * at(v, TY_HEADS));
}

static double attention_input_product(const view *v)
{
    double from_latent = at(v, TY_QUERY_RANK) > 0 ? 0 : index_queries(v);
    double indexer = at(v, TY_INDEX_HEAD_SIZE) + at(v, TY_INDEX_HEADS) + from_latent;
    return 2 * at(v, TY_FEATURES) *
           (query_rows(v) * (first_query_width(v) + gate_width(v) + indexer) +
            v->rows * first_kv_width(v));
}

static double attention_scores(const view *v) /* and context */
{
    return 2 * score_count(v) * (at(v, TY_HEAD_SIZE) + head_values(v)) + index_scores(v);
}

static double attention_flop(const view *v)
{
    double from_latent = at(v, TY_QUERY_RANK) * index_queries(v);
    double expansion =
        2 * (query_rows(v) * (query_expansion(v) + from_latent) + v->rows * kv_expansion(v));
    double output = 2 * query_rows(v) * at(v, TY_FEATURES) * context_width(v);
    return attention_input_product(v) + expansion + attention_scores(v) + output;
}

/* Queries, keys, values, context; what norms of latents and heads read; probabilities, or, where
 * scores are made anew, the logarithm of each row's sum (Dao et al., arXiv:2205.14135, section
 * 3.1). Making them anew is no model flop: it is not in the backward's. */
static double attention_kept(const view *v)
{
    double queries = query_rows(v) * (query_width(v) + context_width(v) + 2 * at(v, TY_QUERY_RANK));
    double keys = v->rows * (kv_width(v) + 2 * at(v, TY_KV_RANK));
    double normed =
        (at(v, TY_HAS_QK_NORM) + at(v, TY_HAS_WIDE_QK_NORM)) *
        (query_rows(v) * query_width(v) + v->rows * at(v, TY_KV_HEADS) * at(v, TY_HEAD_SIZE));
    double scores = at(v, TY_IS_FUSED) > 0 ? at(v, TY_HEADS) * query_rows(v) : score_count(v);
    double gates = query_rows(v) * gate_width(v);
    double indexer = query_rows(v) * (index_queries(v) + at(v, TY_CHOSEN_ROWS)) +
                     v->rows * at(v, TY_INDEX_HEAD_SIZE);
    return queries + keys + normed + scores + gates + indexer;
}

/* Everything inside is written once and read once; the softmax reads and writes the scores. */
static double attention_traffic(const view *v)
{
    double softmax = at(v, TY_IS_FUSED) > 0 ? 0 : 2 * score_count(v);
    return v->in + v->out + 2 * attention_kept(v) + softmax;
}

/* Projection, scores, softmax, context, output. Fused, the three in the middle are one. A second
 * input has a projection of its own, and so have latents, each with a norm and a matrix to
 * follow. */
static double attention_kernels(const view *v)
{
    double products = at(v, TY_IS_FUSED) > 0 ? 3 : 5;
    double latents = (at(v, TY_QUERY_RANK) > 0 ? 2 : 0) + (at(v, TY_KV_RANK) > 0 ? 3 : 0);
    double norms = 2 * (at(v, TY_HAS_QK_NORM) + at(v, TY_HAS_WIDE_QK_NORM));
    double indexer = at(v, TY_INDEX_HEADS) > 0 ? 5 : 0; /* products, norm, scores, choice */
    return products + latents + norms + indexer + at(v, TY_HAS_GATE) + (v->layer->input_count > 1);
}

/* ---- mlp: T rows of D features, F hidden ones ---- */

static double mlp_matrices(const view *v)
{
    return 2 + at(v, TY_IS_GATED);
}

static double hidden_elements(const view *v)
{
    return v->rows * at(v, TY_HIDDEN_FEATURES);
}

static double mlp_parameters(const view *v)
{
    double features = at(v, TY_FEATURES), hidden = at(v, TY_HIDDEN_FEATURES);
    return own(v) * (mlp_matrices(v) * features * hidden +
                     at(v, TY_HAS_BIAS) * ((mlp_matrices(v) - 1) * hidden + features));
}

static double mlp_flop(const view *v)
{
    return 2 * mlp_matrices(v) * hidden_elements(v) * at(v, TY_FEATURES);
}

static double mlp_input_product(const view *v)
{
    return 2 * (mlp_matrices(v) - 1) * hidden_elements(v) * at(v, TY_FEATURES);
}

/* Before and after the activation, which relu overwrites; gated: gate, value and their product. */
static double mlp_kept(const view *v)
{
    double in_place = at(v, TY_IS_RELU) * (1 - at(v, TY_IS_GATED));
    return (mlp_matrices(v) - in_place) * hidden_elements(v);
}

static double mlp_traffic(const view *v)
{
    return v->in + v->out + 2 * mlp_kept(v);
}

static double mlp_kernels(const view *v) /* one per matrix and the activation */
{
    return mlp_matrices(v) + 1;
}

/* ---- moe: T rows of D features; E experts of F hidden features, k of them for a token; shared
 * ones of S hidden features together, for all tokens ---- */

/* Hidden numbers of a token, in all mlps it passes. */
static double hidden_of_token(const view *v)
{
    return at(v, TY_EXPERTS_PER_TOKEN) * at(v, TY_HIDDEN_FEATURES) + at(v, TY_SHARED_FEATURES);
}

/* Features that experts read and write. */
static double expert_width(const view *v)
{
    return at(v, TY_LATENT_FEATURES) > 0 ? at(v, TY_LATENT_FEATURES) : at(v, TY_FEATURES);
}

static double latent_matrix(const view *v)
{
    return at(v, TY_FEATURES) * at(v, TY_LATENT_FEATURES);
}

static double moe_parameters(const view *v)
{
    double features = at(v, TY_FEATURES), experts = at(v, TY_EXPERTS);
    double hidden = experts * at(v, TY_HIDDEN_FEATURES), shared = at(v, TY_SHARED_FEATURES);
    double written = experts * expert_width(v) + (shared > 0 ? features : 0);
    return (features + at(v, TY_HAS_ROUTER_BIAS)) * experts + at(v, TY_HAS_GATE) * features +
           2 * latent_matrix(v) + mlp_matrices(v) * (expert_width(v) * hidden + features * shared) +
           at(v, TY_HAS_BIAS) * ((mlp_matrices(v) - 1) * (hidden + shared) + written);
}

/* Of a token's experts, numbers in one of their matrices. */
static double expert_products(const view *v)
{
    return at(v, TY_EXPERTS_PER_TOKEN) * at(v, TY_HIDDEN_FEATURES) * expert_width(v) +
           at(v, TY_SHARED_FEATURES) * at(v, TY_FEATURES);
}

static double router_flop(const view *v) /* and of the gate */
{
    return 2 * v->out * (at(v, TY_EXPERTS) + at(v, TY_HAS_GATE));
}

static double moe_flop(const view *v)
{
    return router_flop(v) +
           2 * v->rows * (mlp_matrices(v) * expert_products(v) + 2 * latent_matrix(v));
}

/* With latents the first product with the input is theirs, and the shared experts'. */
static double moe_input_product(const view *v)
{
    double inner = at(v, TY_LATENT_FEATURES) > 0
                       ? latent_matrix(v) +
                             (mlp_matrices(v) - 1) * at(v, TY_SHARED_FEATURES) * at(v, TY_FEATURES)
                       : (mlp_matrices(v) - 1) * expert_products(v);
    return router_flop(v) + 2 * v->rows * inner;
}

/* The router's scores, a token's copies for its experts and what they make of them, all hidden
 * numbers as in an mlp. */
static double moe_kept(const view *v)
{
    return v->rows * (at(v, TY_EXPERTS) + mlp_matrices(v) * hidden_of_token(v)) +
           2 * v->rows * expert_width(v) * at(v, TY_EXPERTS_PER_TOKEN) +
           2 * v->rows * at(v, TY_LATENT_FEATURES);
}

static double moe_traffic(const view *v)
{
    return v->in + v->out + 2 * moe_kept(v);
}

/* Router, choice, dispatch, combination; experts run as groups: one per matrix and the activation.
 */
static double moe_kernels(const view *v)
{
    return 4 + mlp_kernels(v) * (1 + (at(v, TY_SHARED_FEATURES) > 0)) +
           (at(v, TY_LATENT_FEATURES) > 0 ? 2 : 0) + at(v, TY_HAS_GATE);
}

/* ---- slice ---- */

static double out_twice(const view *v) /* copied: the rest of the input is not touched */
{
    return 2 * v->out;
}

/* ---- lstm: T steps of D features, H hidden ones; gates as cuDNN and PyTorch lay them out, each
 * with a bias for its input and one for its state. The products with the input are one; every step
 * has one with the state, which waits for the step before. Kept: the four gates and the cell. ----
 */

static double lstm_gates(const view *v)
{
    return 4 * at(v, TY_HIDDEN_FEATURES);
}

static double lstm_parameters(const view *v)
{
    return lstm_gates(v) *
           (at(v, TY_IN_FEATURES) + at(v, TY_HIDDEN_FEATURES) + 2 * at(v, TY_HAS_BIAS));
}

static double lstm_input_product(const view *v)
{
    return 2 * v->rows * lstm_gates(v) * at(v, TY_IN_FEATURES);
}

static double lstm_flop(const view *v)
{
    return lstm_input_product(v) + 2 * v->rows * lstm_gates(v) * at(v, TY_HIDDEN_FEATURES);
}

static double lstm_kept(const view *v)
{
    return v->rows * (lstm_gates(v) + at(v, TY_HIDDEN_FEATURES));
}

static double lstm_traffic(const view *v)
{
    return v->in + v->out + 2 * lstm_kept(v);
}

static double lstm_kernels(const view *v)
{
    return 1 + v->rows;
}

/* ---- additive attention: S rows of D features, of which T rows of Q make each a weighted sum, by
 * scores of H hidden numbers. Matrices of queries and keys, a vector and its gain, a bias
 * (Bahdanau, Cho and Bengio, arXiv:1409.0473, appendix A.1.2, with the weights of Salimans and
 * Kingma, arXiv:1602.07868). The sums under tanh are made anew in backward: T S H numbers are not
 * kept. Products: queries, keys, scores, values; and the softmax. ---- */

static double additive_parameters(const view *v)
{
    return at(v, TY_HIDDEN_FEATURES) * (at(v, TY_IN_FEATURES) + at(v, TY_FEATURES) + 2) + 1;
}

static double additive_input_product(const view *v)
{
    return 2 * at(v, TY_HIDDEN_FEATURES) *
           (query_rows(v) * at(v, TY_IN_FEATURES) + v->rows * at(v, TY_FEATURES));
}

static double additive_values(const view *v)
{
    return 2 * query_rows(v) * v->rows * at(v, TY_FEATURES);
}

static double additive_flop(const view *v)
{
    return additive_input_product(v) + 2 * query_rows(v) * v->rows * at(v, TY_HIDDEN_FEATURES) +
           additive_values(v);
}

static double additive_kept(const view *v)
{
    return (query_rows(v) + v->rows) * at(v, TY_HIDDEN_FEATURES) + query_rows(v) * v->rows;
}

static double additive_traffic(const view *v)
{
    return v->in + v->out + 2 * additive_kept(v);
}

static double additive_kernels(const view *v)
{
    (void)v;
    return 5;
}

/* ---- state space: T rows of D features; I inner ones with N numbers of state each.
 *
 * Mamba (Gu and Dao, arXiv:2312.00752, section 3.4): the input makes I channels and as many gates;
 * after a convolution over K rows the channels make the steps, through a rank, and what writes and
 * reads the state, N numbers each.
 * Mamba-2 (Dao and Gu, arXiv:2405.21060, section 8): all of that is made of the input at once,
 * steps are one a head, groups of heads share what writes and reads; the output is normed before
 * the last projection. The state is written and read once a row: 4 I N flop; a scan in chunks keeps
 * it at their ends alone. ---- */

static double channels(const view *v)
{
    return at(v, TY_HIDDEN_FEATURES);
}

static bool has_ranked_steps(const view *v)
{
    return at(v, TY_STEP_RANK) > 0;
}

static double written_and_read(const view *v) /* numbers a row */
{
    return 2 * (has_ranked_steps(v) ? 1 : at(v, TY_GROUPS)) * at(v, TY_STATE_SIZE);
}

static double convolved(const view *v)
{
    return channels(v) + (has_ranked_steps(v) ? 0 : written_and_read(v));
}

static double from_input(const view *v) /* what the first product makes of a row */
{
    return channels(v) + convolved(v) + at(v, TY_HEADS);
}

static double
step_matrices(const view *v) /* of Mamba: channels to ranks and state, ranks to steps */
{
    return has_ranked_steps(v) ? channels(v) * (2 * at(v, TY_STEP_RANK) + written_and_read(v)) : 0;
}

static double state_space_parameters(const view *v)
{
    double matrices = at(v, TY_FEATURES) * (from_input(v) + channels(v)) + step_matrices(v);
    double convolution = convolved(v) * (at(v, TY_KERNEL_WIDTH) + 1);
    double biases = at(v, TY_HAS_BIAS) * (from_input(v) + at(v, TY_FEATURES));
    double dynamics = has_ranked_steps(v) /* bias of steps, decay, what passes by; norm */
                          ? channels(v) * (2 + at(v, TY_STATE_SIZE))
                          : 3 * at(v, TY_HEADS) + channels(v);
    double norms = at(v, TY_HAS_STEP_NORMS) * (at(v, TY_STEP_RANK) + written_and_read(v));
    return matrices + convolution + biases + dynamics + norms;
}

static double state_space_input_product(const view *v)
{
    return 2 * v->rows * at(v, TY_FEATURES) * from_input(v);
}

static double state_space_scan(const view *v)
{
    return 4 * v->rows * channels(v) * at(v, TY_STATE_SIZE);
}

static double state_space_flop(const view *v)
{
    return state_space_input_product(v) + state_space_scan(v) +
           2 * v->rows *
               (channels(v) * at(v, TY_FEATURES) + step_matrices(v) +
                convolved(v) * at(v, TY_KERNEL_WIDTH));
}

#define SCAN_CHUNK 256 /* rows: Mamba-2's chunk_size, and what mamba_ssm makes anew from */

static double state_space_kept(const view *v)
{
    double row =
        from_input(v) + convolved(v) + channels(v) + (has_ranked_steps(v) ? channels(v) : 0);
    return v->rows * (row + at(v, TY_STEP_RANK)) +
           v->rows / SCAN_CHUNK * channels(v) * at(v, TY_STATE_SIZE);
}

static double state_space_traffic(const view *v)
{
    return v->in + v->out + 2 * state_space_kept(v);
}

static double state_space_kernels(const view *v) /* products, convolution, scan, norm */
{
    return has_ranked_steps(v) ? 6 : 5;
}

/* ---- gated delta rule (Yang, Kautz and Hatamizadeh, arXiv:2412.06464; Qwen3-Next): H heads of
 * values of w numbers, K of queries and keys of h; gates as wide as the values; a decay and a
 * strength a head. The state of a head is h x w: the key reads it, the correction is written, the
 * query reads it. ---- */

static double delta_keys(const view *v)
{
    return at(v, TY_KV_HEADS) * at(v, TY_HEAD_SIZE);
}

static double delta_values(const view *v)
{
    return at(v, TY_HEADS) * at(v, TY_VALUE_HEAD_SIZE);
}

static double delta_convolved(const view *v)
{
    return 2 * delta_keys(v) + delta_values(v);
}

static double delta_from_input(const view *v)
{
    return delta_convolved(v) + delta_values(v) + 2 * at(v, TY_HEADS);
}

static double delta_parameters(const view *v)
{
    return at(v, TY_FEATURES) * (delta_from_input(v) + delta_values(v)) +
           delta_convolved(v) * at(v, TY_KERNEL_WIDTH) + 2 * at(v, TY_HEADS) +
           at(v, TY_VALUE_HEAD_SIZE);
}

static double delta_input_product(const view *v)
{
    return 2 * v->rows * at(v, TY_FEATURES) * delta_from_input(v);
}

static double delta_state(const view *v)
{
    return at(v, TY_HEADS) * at(v, TY_HEAD_SIZE) * at(v, TY_VALUE_HEAD_SIZE);
}

static double delta_scan(const view *v)
{
    return 6 * v->rows * delta_state(v);
}

static double delta_flop(const view *v)
{
    return delta_input_product(v) + delta_scan(v) +
           2 * v->rows *
               (at(v, TY_FEATURES) * delta_values(v) + delta_convolved(v) * at(v, TY_KERNEL_WIDTH));
}

#define DELTA_CHUNK 64 /* rows between states that are kept: flash-linear-attention */

static double delta_kept(const view *v)
{
    return v->rows * (delta_from_input(v) + delta_convolved(v) + delta_values(v)) +
           v->rows / DELTA_CHUNK * delta_state(v);
}

static double delta_traffic(const view *v)
{
    return v->in + v->out + 2 * delta_kept(v);
}

static double delta_kernels(const view *v) /* three products, convolution, scan in four, norm */
{
    (void)v;
    return 9;
}

/* ---- loss ---- */

/* Logits are read for the logarithm of the sum of their exponentials and once more for the loss;
 * backward makes the probabilities anew from the logits and that one number per row. */
static double loss_traffic(const view *v)
{
    return 2 * v->in;
}

static const rule rules[TY_LAYER_KIND_COUNT] = {
    [TY_LAYER_LINEAR] = {linear_parameters, linear_flop, linear_flop, NULL, in_and_out, one},
    [TY_LAYER_CONV2D] = {conv2d_parameters, conv2d_flop, conv2d_flop, NULL, in_and_out, one},
    [TY_LAYER_BATCH_NORM] = {gain_and_shift, NULL, NULL, gain_and_shift, batch_norm_traffic, one},
    [TY_LAYER_LAYER_NORM] = {gain_and_shift, NULL, NULL, two_per_row, in_and_out, one},
    [TY_LAYER_RMS_NORM] = {gain, NULL, NULL, one_per_row, in_and_out, one},
    [TY_LAYER_POOL] = {NULL, NULL, NULL, NULL, in_and_out, one},
    [TY_LAYER_RELU] = {NULL, NULL, NULL, NULL, in_and_out, one},
    [TY_LAYER_GELU] = {NULL, NULL, NULL, NULL, in_and_out, one},
    [TY_LAYER_SILU] = {NULL, NULL, NULL, NULL, in_and_out, one},
    [TY_LAYER_EMBEDDING] = {embedding_parameters, NULL, NULL, NULL, embedding_traffic, one},
    [TY_LAYER_ATTENTION] = {attention_parameters, attention_flop, attention_input_product,
                            attention_kept, attention_traffic, attention_kernels, attention_scores},
    [TY_LAYER_MLP] = {mlp_parameters, mlp_flop, mlp_input_product, mlp_kept, mlp_traffic,
                      mlp_kernels},
    [TY_LAYER_MOE] = {moe_parameters, moe_flop, moe_input_product, moe_kept, moe_traffic,
                      moe_kernels},
    [TY_LAYER_LSTM] = {lstm_parameters, lstm_flop, lstm_input_product, lstm_kept, lstm_traffic,
                       lstm_kernels},
    [TY_LAYER_SOFTMAX_CROSS_ENTROPY] = {NULL, NULL, NULL, one_per_row, loss_traffic, one},
    [TY_LAYER_ADD] = {NULL, NULL, NULL, NULL, in_and_out, one},
    [TY_LAYER_CONCAT] = {NULL, NULL, NULL, NULL, in_and_out, one},
    [TY_LAYER_TANH] = {NULL, NULL, NULL, NULL, in_and_out, one},
    [TY_LAYER_SLICE] = {NULL, NULL, NULL, NULL, out_twice, one},
    [TY_LAYER_ADDITIVE_ATTENTION] = {additive_parameters, additive_flop, additive_input_product,
                                     additive_kept, additive_traffic, additive_kernels,
                                     additive_values},
    [TY_LAYER_STATE_SPACE] = {state_space_parameters, state_space_flop, state_space_input_product,
                              state_space_kept, state_space_traffic, state_space_kernels,
                              state_space_scan},
    [TY_LAYER_GATED_DELTA] = {delta_parameters, delta_flop, delta_input_product, delta_kept,
                              delta_traffic, delta_kernels, delta_scan},
    [TY_LAYER_EMBEDDING_BAG] = {bag_parameters, NULL, NULL, NULL, bag_traffic, one},
    [TY_LAYER_DOT_INTERACTION] = {NULL, interaction_flop, interaction_flop, NULL, in_and_out, one,
                                  interaction_flop},
    [TY_LAYER_FLATTEN] = {NULL, NULL, NULL, NULL, NULL, NULL},
};

static bool has_rule(ty_layer_kind kind)
{
    return kind == TY_LAYER_FLATTEN ||
           ((unsigned)kind < TY_LAYER_KIND_COUNT && rules[kind].traffic != NULL);
}

static double value(formula f, const view *v)
{
    return f != NULL ? f(v) : 0;
}

static double elements(const ty_shape *shape)
{
    double product = 1;
    for (uint32_t i = 0; i < shape->dimension_count; i++)
        product *= (double)shape->dimensions[i];
    return product;
}

static view view_of(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *l = &workload->layers[layer];
    const ty_shape *first = ty_layer_input_shape(workload, layer, 0);
    view v = {.layer = l, .out = elements(&l->output)};
    for (uint32_t i = 0; i < (l->input_count > 0 ? l->input_count : 1); i++)
        v.in += elements(ty_layer_input_shape(workload, layer, i));
    v.rows = first->dimension_count > 0
                 ? elements(first) / (double)first->dimensions[first->dimension_count - 1]
                 : 1;
    return v;
}

#define LARGEST 9007199254740992.0 /* 2^53: what JSON carries exactly */

/* Parameters, flop and times of an opaque layer are given; sizes follow from its shapes. One
 * without a kernel is a view of its input; traffic is asked for by a 1. */
static ty_status set_opaque(const ty_workload *workload, ty_layer *l, const view *v,
                            ty_error *error)
{
    double size = (double)workload->element_bytes, traffic = (v->in + v->out) * size;

    if (!(traffic <= LARGEST && (double)l->parameter_bytes <= LARGEST))
        return ty_fail(error, TY_EINVAL, "%s: sizes above 2^53 bytes", l->name);
    l->output_bytes = (uint64_t)(v->out * size);
    l->stash_bytes = l->kernel_count == 0 ? 0 : l->output_bytes;
    l->traffic_bytes = l->traffic_bytes == 0 ? 0 : (uint64_t)traffic;
    return TY_OK;
}

/* Every product is repeated for the gradient of either factor: of the input where anything before
 * is trained, of the parameters where they are. */
static double backward_flop(const ty_layer *l, const rule *r, const view *v,
                            bool needs_input_gradient)
{
    double forward = value(r->forward_flop, v);
    double of_parameters = forward - value(r->unweighted, v);

    if (l->is_frozen)
        return needs_input_gradient ? 2 * forward - of_parameters : 0;
    return 2 * forward - (needs_input_gradient ? 0 : value(r->input_product, v));
}

ty_status ty_layer_set_quantities(ty_workload *workload, uint32_t layer, bool needs_input_gradient,
                                  ty_error *error)
{
    ty_layer *l = &workload->layers[layer];
    double size = (double)workload->element_bytes;
    double parameters, output, stash, traffic;
    const rule *r;
    view v;

    if (l->kind == TY_LAYER_OPAQUE) {
        v = view_of(workload, layer);
        return set_opaque(workload, l, &v, error);
    }
    if (!has_rule(l->kind))
        return ty_fail(error, TY_EINVAL, "%s: no formulas for layers of kind %s", l->name,
                       ty_layer_kind_name(l->kind));
    r = &rules[l->kind];
    v = view_of(workload, layer);
    parameters = value(r->parameters, &v) * size;
    output = v.out * size;
    stash = l->kind == TY_LAYER_FLATTEN ? 0 : (v.out + value(r->kept, &v)) * size;
    traffic = value(r->traffic, &v) * size;
    if (!(parameters <= LARGEST && stash <= LARGEST && traffic <= LARGEST))
        return ty_fail(error, TY_EINVAL, "%s: sizes above 2^53 bytes", l->name);

    l->forward_flop = value(r->forward_flop, &v);
    l->backward_flop = backward_flop(l, r, &v, needs_input_gradient);
    l->parameter_bytes = (uint64_t)parameters;
    l->output_bytes = (uint64_t)output;
    l->stash_bytes = (uint64_t)stash;
    l->traffic_bytes = (uint64_t)traffic;
    l->kernel_count = (uint32_t)value(r->kernels, &v);
    return TY_OK;
}
