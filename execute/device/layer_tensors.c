/* One function for each kind of layer that has parameters. */
#include "layer_tensors.h"

#include "init.h"

#include <math.h>

static uint32_t linear_tensors(const ty_workload *workload, uint32_t index,
                               lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    const bool is_of_words = ty_layer_tensor_split(workload, index) == TY_SPLIT_VOCABULARY;
    const lane_division division = is_of_words ? LANE_BY_ROWS : LANE_UNDIVIDED;

    tensors[0] = (lane_tensor){.count = a[TY_IN_FEATURES] * a[TY_OUT_FEATURES],
                               .deviation = ty_init_deviation(workload, a[TY_IN_FEATURES]),
                               .division = division,
                               .columns = a[TY_IN_FEATURES]};
    tensors[1] = (lane_tensor){.count = a[TY_OUT_FEATURES], .division = division};
    return a[TY_HAS_BIAS] != 0 ? 2 : 1;
}

static uint32_t conv2d_tensors(const ty_workload *workload, uint32_t index,
                               lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    uint64_t fan_in = a[TY_IN_CHANNELS] / a[TY_GROUPS] * a[TY_KERNEL_HEIGHT] * a[TY_KERNEL_WIDTH];

    tensors[0] = (lane_tensor){.count = a[TY_OUT_CHANNELS] * fan_in,
                               .deviation = ty_init_deviation(workload, fan_in)};
    tensors[1] = (lane_tensor){.count = a[TY_OUT_CHANNELS]};
    return a[TY_HAS_BIAS] != 0 ? 2 : 1;
}

static uint32_t norm_tensors(const ty_workload *workload, uint32_t index,
                             lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const ty_layer *layer = &workload->layers[index];
    const uint64_t features = layer->attributes[TY_FEATURES];

    tensors[0] = (lane_tensor){.count = features, .constant = 1.0f};
    tensors[1] = (lane_tensor){.count = features};
    return layer->kind == TY_LAYER_RMS_NORM ? 1 : 2;
}

static uint32_t embedding_tensors(const ty_workload *workload, uint32_t index,
                                  lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    const double deviation = ty_init_transformer_deviation(workload, false);

    tensors[EMBEDDING_TABLE] = (lane_tensor){.count = a[TY_VOCABULARY] * a[TY_FEATURES],
                                             .deviation = deviation,
                                             .division = LANE_BY_ROWS,
                                             .columns = a[TY_FEATURES]};
    tensors[EMBEDDING_POSITIONS] = (lane_tensor){.count = a[TY_POSITIONS] * a[TY_FEATURES],
                                                 .deviation = deviation,
                                                 .division = LANE_BY_COLUMNS,
                                                 .columns = a[TY_FEATURES]};
    tensors[EMBEDDING_TYPES] = (lane_tensor){.count = a[TY_TOKEN_TYPES] * a[TY_FEATURES],
                                             .deviation = deviation,
                                             .division = LANE_BY_COLUMNS,
                                             .columns = a[TY_FEATURES]};
    return a[TY_TOKEN_TYPES] > 0 ? 3 : a[TY_POSITIONS] > 0 ? 2 : 1;
}

static uint32_t bag_tensors(const ty_workload *workload, uint32_t index,
                            lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;

    tensors[0] = (lane_tensor){.count = a[TY_VOCABULARY] * a[TY_FEATURES],
                               .deviation = ty_init_deviation(workload, a[TY_VOCABULARY]),
                               .columns = a[TY_FEATURES],
                               .is_table = true};
    return 1;
}

static uint32_t attention_tensors(const ty_workload *workload, uint32_t index,
                                  lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    const uint64_t queries = a[TY_HEADS] * a[TY_HEAD_SIZE], keys = a[TY_KV_HEADS] * a[TY_HEAD_SIZE];
    const uint64_t project = queries + 2 * keys;

    tensors[ATTENTION_PROJECT] =
        (lane_tensor){.count = project * a[TY_FEATURES],
                      .deviation = ty_init_transformer_deviation(workload, false),
                      .division = LANE_BY_ROWS,
                      .columns = a[TY_FEATURES],
                      .groups = {queries, keys, keys}};
    tensors[ATTENTION_OUT] =
        (lane_tensor){.count = a[TY_FEATURES] * queries,
                      .deviation = ty_init_transformer_deviation(workload, true),
                      .division = LANE_BY_COLUMNS,
                      .columns = queries};
    if (a[TY_HAS_BIAS] != 0 || a[TY_HAS_QKV_BIAS] != 0)
        tensors[ATTENTION_PROJECT_BIAS] = (lane_tensor){
            .count = project, .division = LANE_BY_ROWS, .groups = {queries, keys, keys}};
    if (a[TY_HAS_BIAS] != 0)
        tensors[ATTENTION_OUT_BIAS] =
            (lane_tensor){.count = a[TY_FEATURES], .division = LANE_BY_ROWS};
    if (a[TY_HAS_QK_NORM] != 0) /* of every head alike */
        tensors[ATTENTION_QUERY_GAIN] = tensors[ATTENTION_KEY_GAIN] =
            (lane_tensor){.count = a[TY_HEAD_SIZE], .constant = 1.0f};
    tensors[ATTENTION_RELATIVE] =
        (lane_tensor){.count = a[TY_RELATIVE_BUCKETS] * a[TY_HEADS],
                      .deviation = ty_init_transformer_deviation(workload, false),
                      .division = LANE_BY_COLUMNS,
                      .columns = a[TY_HEADS]};
    if (a[TY_RELATIVE_BUCKETS] > 0)
        return ATTENTION_RELATIVE + 1;
    if (a[TY_HAS_QK_NORM] != 0)
        return ATTENTION_KEY_GAIN + 1;
    return a[TY_HAS_BIAS] != 0       ? ATTENTION_OUT_BIAS + 1
           : a[TY_HAS_QKV_BIAS] != 0 ? ATTENTION_PROJECT_BIAS + 1
                                     : ATTENTION_OUT + 1;
}

static uint32_t additive_tensors(const ty_workload *workload, uint32_t index,
                                 lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes, hidden = a[TY_HIDDEN_FEATURES];

    tensors[ADDITIVE_QUERY] =
        (lane_tensor){.count = hidden * a[TY_IN_FEATURES],
                      .deviation = ty_init_deviation(workload, a[TY_IN_FEATURES])};
    tensors[ADDITIVE_MEMORY] = (lane_tensor){
        .count = hidden * a[TY_FEATURES], .deviation = ty_init_deviation(workload, a[TY_FEATURES])};
    tensors[ADDITIVE_VECTOR] =
        (lane_tensor){.count = hidden, .deviation = ty_init_deviation(workload, hidden)};
    tensors[ADDITIVE_GAIN] =
        (lane_tensor){.count = 1, .constant = (float)sqrt(1.0 / (double)hidden)};
    tensors[ADDITIVE_BIAS] = (lane_tensor){.count = hidden};
    return ADDITIVE_BIAS + 1;
}

static uint32_t mlp_tensors(const ty_workload *workload, uint32_t index,
                            lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    const uint64_t hidden = a[TY_HIDDEN_FEATURES], up = hidden * (a[TY_IS_GATED] != 0 ? 2 : 1);
    const uint64_t values = up - hidden; /* rows behind the gate's */

    tensors[MLP_UP] = (lane_tensor){.count = up * a[TY_FEATURES],
                                    .deviation = ty_init_transformer_deviation(workload, false),
                                    .division = LANE_BY_ROWS,
                                    .columns = a[TY_FEATURES],
                                    .groups = {hidden, values}};
    tensors[MLP_DOWN] = (lane_tensor){.count = a[TY_FEATURES] * hidden,
                                      .deviation = ty_init_transformer_deviation(workload, true),
                                      .division = LANE_BY_COLUMNS,
                                      .columns = hidden};
    tensors[MLP_UP_BIAS] =
        (lane_tensor){.count = up, .division = LANE_BY_ROWS, .groups = {hidden, values}};
    tensors[MLP_DOWN_BIAS] = (lane_tensor){.count = a[TY_FEATURES], .division = LANE_BY_ROWS};
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

/* What an mlp has, of experts one behind the other. */
typedef struct mlp_shape {
    uint64_t experts, features, hidden;
    bool is_gated;
} mlp_shape;

static lane_tensor expert_up(const mlp_shape *m, uint64_t columns, double deviation)
{
    const uint64_t values = m->is_gated ? m->hidden : 0; /* rows behind the gate's */

    return (lane_tensor){.count = m->experts * (m->hidden + values) * columns,
                         .deviation = deviation,
                         .division = LANE_BY_ROWS,
                         .columns = columns,
                         .groups = {m->hidden, values}};
}

static lane_tensor expert_down(const mlp_shape *m, uint64_t rows, uint64_t columns,
                               double deviation)
{
    return (lane_tensor){.count = m->experts * rows * columns,
                         .deviation = deviation,
                         .division = LANE_BY_COLUMNS,
                         .columns = columns};
}

/* From up on: two matrices, and the biases behind them. */
static void expert_tensors(const ty_workload *workload, const mlp_shape *m, bool has_bias,
                           lane_tensor *up)
{
    up[0] = expert_up(m, m->features, ty_init_transformer_deviation(workload, false));
    up[1] = expert_down(m, m->features, m->hidden, ty_init_transformer_deviation(workload, true));
    if (!has_bias)
        return;
    up[2] = expert_up(m, 1, 0);
    up[3] = expert_down(m, 1, m->features, 0);
}

static uint32_t moe_tensors(const ty_workload *workload, uint32_t index,
                            lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    const bool has_bias = a[TY_HAS_BIAS] != 0, is_gated = a[TY_IS_GATED] != 0;
    const mlp_shape shared = {1, a[TY_FEATURES], a[TY_SHARED_FEATURES], is_gated};
    const mlp_shape experts = {a[TY_EXPERTS], a[TY_FEATURES], a[TY_HIDDEN_FEATURES], is_gated};

    tensors[MOE_ROUTER] = (lane_tensor){.count = a[TY_EXPERTS] * a[TY_FEATURES],
                                        .deviation = ty_init_transformer_deviation(workload, false),
                                        .division = LANE_BY_COLUMNS,
                                        .columns = a[TY_FEATURES]};
    if (shared.hidden > 0)
        expert_tensors(workload, &shared, has_bias, &tensors[MOE_SHARED_UP]);
    expert_tensors(workload, &experts, has_bias, &tensors[MOE_UP]);
    for (int t = MOE_UP; t <= MOE_DOWN_BIAS; t++)
        tensors[t].experts = experts.experts;
    return has_bias ? MOE_DOWN_BIAS + 1 : MOE_DOWN + 1;
}

static uint32_t lstm_tensors(const ty_workload *workload, uint32_t index,
                             lane_tensor tensors[LAYER_MAX_TENSORS])
{
    const uint64_t *a = workload->layers[index].attributes;
    const uint64_t hidden = a[TY_HIDDEN_FEATURES];
    const double deviation = ty_init_deviation(workload, hidden);

    tensors[LSTM_INPUT] =
        (lane_tensor){.count = LSTM_GATES * hidden * a[TY_IN_FEATURES], .deviation = deviation};
    tensors[LSTM_STATE] =
        (lane_tensor){.count = LSTM_GATES * hidden * hidden, .deviation = deviation};
    tensors[LSTM_INPUT_BIAS] = tensors[LSTM_STATE_BIAS] =
        (lane_tensor){.count = LSTM_GATES * hidden};
    return a[TY_HAS_BIAS] != 0 ? 4 : 2;
}

ty_attribute layer_unknown_option(const ty_layer *layer, uint64_t known)
{
    known |= LAYER_OPTION(TY_IS_FUSED) | LAYER_OPTION(TY_TOKEN_TYPES);
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++)
        if (ty_layer_attribute_use(layer->kind, a) == TY_ATTRIBUTE_OPTIONAL &&
            (known & LAYER_OPTION(a)) == 0 && layer->attributes[a] != 0)
            return a;
    return TY_ATTRIBUTE_COUNT;
}

uint32_t layer_tensors(const ty_workload *workload, uint32_t layer,
                       lane_tensor tensors[LAYER_MAX_TENSORS])
{
    static uint32_t (*const of_kind[TY_LAYER_KIND_COUNT])(const ty_workload *, uint32_t,
                                                          lane_tensor[LAYER_MAX_TENSORS]) = {
        [TY_LAYER_LINEAR] = linear_tensors,
        [TY_LAYER_CONV2D] = conv2d_tensors,
        [TY_LAYER_BATCH_NORM] = norm_tensors,
        [TY_LAYER_LAYER_NORM] = norm_tensors,
        [TY_LAYER_RMS_NORM] = norm_tensors,
        [TY_LAYER_EMBEDDING] = embedding_tensors,
        [TY_LAYER_EMBEDDING_BAG] = bag_tensors,
        [TY_LAYER_ATTENTION] = attention_tensors,
        [TY_LAYER_ADDITIVE_ATTENTION] = additive_tensors,
        [TY_LAYER_MLP] = mlp_tensors,
        [TY_LAYER_MOE] = moe_tensors,
        [TY_LAYER_LSTM] = lstm_tensors};
    const ty_layer_kind kind = workload->layers[layer].kind;

    return of_kind[kind] == NULL ? 0 : of_kind[kind](workload, layer, tensors);
}
