/* Layers that use the backend's own kernels: activations, norms, pooling, embedding, joins, loss.
 */
#include "cuda_stage.h"

/* ---- Activations ---- */

/* Fuses a relu into the preceding batch norm, or sum of two, if it is the only reader. */
static bool relu_join(stage_lowering *low, const stage_place *place)
{
    const ty_layer *layers = low->workload->layers, *relu = &layers[place->layer];
    const uint32_t maker = relu->input_count == 1 ? relu->inputs[0] : TY_NO_LAYER;

    if (maker == TY_NO_LAYER || maker < low->first ||
        !(ty_layer_row_of(&layers[maker])->has_statistics ||
          (ty_layer_row_of(&layers[maker])->is_sum && layers[maker].input_count == 2)))
        return false;
    for (uint32_t l = maker + 1; l < low->workload->layer_count; l++)
        for (uint32_t i = 0; i < layers[l].input_count; i++)
            if (layers[l].inputs[i] == maker && &layers[l] != relu)
                return false;
    for (uint32_t n = 0; n < low->stage->node_count; n++)
        if (low->stage->nodes[n].output == place->inputs[0]) {
            low->stage->nodes[n].has_relu = true;
            stage_value_share(low, place->inputs[0], place->output);
            return true;
        }
    return false;
}

#define ACTIVATION(kind)                                                                           \
    .order = STAGE_ANY_ORDER, .activation = (kind), .forward = stage_activation_forward,           \
    .backward = stage_activation_backward

const stage_kind cuda_relu = {.join = relu_join, ACTIVATION(STAGE_RELU)};
const stage_kind cuda_gelu = {ACTIVATION(STAGE_GELU)};
const stage_kind cuda_silu = {ACTIVATION(STAGE_SILU)};
const stage_kind cuda_tanh = {ACTIVATION(STAGE_TANH)};

/* ---- Norms: gain [features], shift [features] ---- */

static bool is_rms(const stage_node *node)
{
    return !ty_layer_row_of(node->layer)->subtracts_mean;
}

/* Fuses the sum of two right before a norm into it, unless recomputation needs separate layers. */
static void norm_take_sum(ty_stage_device *stage, stage_node *node)
{
    stage_node *sum = node > stage->nodes ? node - 1 : NULL;

    if (sum == NULL || stage->segments.count > 0 || sum->layer_index + 1 != node->layer_index ||
        sum->kind != &cuda_add || sum->input_count != 2 || sum->output != node->inputs[0])
        return;
    node->sum = sum;
    sum->is_made_behind = true;
}

static ty_status norm_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    uint64_t rows = stage_rows(&stage->values[node->output]);

    (void)error;
    norm_take_sum(stage, node);
    node->stash_bytes = 2 * rows * sizeof(float);
    node->sum_floats = cuda_norm_scratch(is_rms(node), rows, node->layer->attributes[TY_FEATURES]);
    return TY_OK;
}

static ty_status norm_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    const stage_node *sum = node->sum;

    (void)error;
    cuda_norm(stage->own->type, is_rms(node), stage_rows(&stage->values[node->output]),
              node->layer->attributes[TY_FEATURES],
              sum != NULL ? cuda_in(stage, sum, 0, slot) : cuda_in(stage, node, 0, slot),
              sum != NULL ? cuda_in(stage, sum, 1, slot) : NULL,
              sum != NULL ? cuda_out(stage, sum, slot) : NULL, cuda_parameters(stage, node, 0),
              is_rms(node) ? NULL : cuda_parameters(stage, node, 1), cuda_out(stage, node, slot),
              node->stash[slot], stage->own->stream);
    return TY_OK;
}

static ty_status norm_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    (void)error;
    cuda_norm_backward(stage->own->type, is_rms(node), stage_rows(&stage->values[node->output]),
                       node->layer->attributes[TY_FEATURES], cuda_in(stage, node, 0, slot),
                       cuda_parameters(stage, node, 0), node->stash[slot],
                       cuda_out_gradient(stage, node), cuda_parameter_gradient(stage, node, 0),
                       is_rms(node) ? NULL : cuda_parameter_gradient(stage, node, 1),
                       stage_adds(node, 0, is_first), node->adds[0],
                       cuda_in_gradient(stage, node, 0), stage->own->sums, stage->own->stream);
    return TY_OK;
}

const stage_kind cuda_layer_norm = {.floats = STAGE_BIT(0) | STAGE_BIT(1),
                                    .build = norm_build,
                                    .forward = norm_forward,
                                    .backward = norm_backward};
const stage_kind cuda_rms_norm = {.floats = STAGE_BIT(0),
                                  .build = norm_build,
                                  .forward = norm_forward,
                                  .backward = norm_backward};

/* ---- Batch norm, and a sum of two in which its output is one ---- */

/* Numbers per channel in a micro-batch. */
static uint64_t batch_norm_rows(const ty_stage_device *stage, const stage_node *node)
{
    return cuda_count(stage, node) / node->layer->attributes[TY_FEATURES];
}

static ty_status batch_norm_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const uint64_t channels = node->layer->attributes[TY_FEATURES];

    (void)error;
    node->stash_bytes = 3 * channels * sizeof(float);
    node->sum_floats = cuda_batch_norm_scratch(batch_norm_rows(stage, node), channels);
    node->statistic_offset = stage->statistic_count;
    stage->statistic_count += 2 * channels;
    return TY_OK;
}

/* Running mean and variance. */
static float *running_of(const ty_stage_device *stage, const stage_node *node)
{
    return stage->statistics + node->statistic_offset;
}

enum { OTHER = 1 }; /* input */

static bool has_other(const stage_node *node)
{
    return node->input_count > OTHER;
}

/* Whether the running statistics normalize. */
static bool is_given(const ty_stage_device *stage, const stage_node *node)
{
    return stage->is_evaluating || node->layer->is_frozen;
}

static ty_status batch_norm_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    ty_error *error)
{
    (void)error;
    cuda_batch_norm(
        stage->own->type, batch_norm_rows(stage, node), node->layer->attributes[TY_FEATURES],
        cuda_in(stage, node, 0, slot), cuda_parameters(stage, node, 0),
        cuda_parameters(stage, node, 1), is_given(stage, node) ? running_of(stage, node) : NULL,
        has_other(node) ? cuda_in(stage, node, OTHER, slot) : NULL, node->has_relu,
        cuda_out(stage, node, slot), node->stash[slot], stage->own->sums, stage->own->stream);
    return TY_OK;
}

/* Backward updates running statistics, so once per micro-batch, however often forward is
 * repeated. */
static ty_status batch_norm_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     bool is_first, ty_error *error)
{
    const uint64_t channels = node->layer->attributes[TY_FEATURES];
    const uint64_t rows = batch_norm_rows(stage, node);
    float *dgain = cuda_parameter_gradient(stage, node, 0);
    void *dy = cuda_out_gradient(stage, node);

    (void)error;
    cuda_batch_norm_backward(
        stage->own->type, rows, channels, cuda_in(stage, node, 0, slot),
        cuda_parameters(stage, node, 0),
        node->has_relu && !has_other(node) ? cuda_parameters(stage, node, 1) : NULL,
        node->has_relu && has_other(node) ? cuda_out(stage, node, slot) : NULL, node->stash[slot],
        is_given(stage, node), dy, dgain, cuda_parameter_gradient(stage, node, 1),
        stage_adds(node, 0, is_first), dgain != NULL ? running_of(stage, node) : NULL,
        node->adds[0], cuda_in_gradient(stage, node, 0), stage->own->sums, stage->own->stream);
    return stage_add_backward(stage, node, slot, is_first, error);
}

const stage_kind cuda_batch_norm_kind = {.order = STAGE_CHANNELS_LAST,
                                         .is_sum = true,
                                         .first_summand = 1,
                                         .floats = STAGE_BIT(0) | STAGE_BIT(1),
                                         .build = batch_norm_build,
                                         .forward = batch_norm_forward,
                                         .backward = batch_norm_backward};

/* ---- Pooling ---- */

static cuda_pool pool_of(const ty_stage_device *stage, const stage_node *node)
{
    const ty_shape *in = &stage->values[node->inputs[0]].shape;
    const ty_shape *out = &stage->values[node->output].shape;

    return (cuda_pool){.images = stage_batch(stage),
                       .windows = pool_windows_of(node->layer, in, out)};
}

static ty_status pool_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    cuda_pool pool = pool_of(stage, node);

    (void)error;
    cuda_pool_forward(stage->own->type, &pool, cuda_in(stage, node, 0, slot),
                      cuda_out(stage, node, slot), stage->own->stream);
    return TY_OK;
}

static ty_status pool_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    cuda_pool pool = pool_of(stage, node);
    void *dx = cuda_in_gradient(stage, node, 0);

    (void)is_first, (void)error;
    if (dx != NULL)
        cuda_pool_backward(stage->own->type, &pool, cuda_in(stage, node, 0, slot),
                           cuda_out(stage, node, slot), cuda_out_gradient(stage, node),
                           node->adds[0], dx, stage->own->stream);
    return TY_OK;
}

const stage_kind cuda_pool_kind = {
    .order = STAGE_CHANNELS_LAST, .forward = pool_forward, .backward = pool_backward};

/* ---- Embedding: of the table a rank has the rows of its words, of positions and types its
 * features, and the ranks sum what they found. All tokens are of the first type ---- */

static cuda_embedding_part embedding_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t sequence = stage->options.workload->input.dimensions[0];
    const uint32_t ranks = stage_shards(stage, node);
    const uint32_t rank = ranks > 1 ? stage->options.parallel.tp_rank : 0;
    const shard_range words = shard_range_of(a[TY_VOCABULARY], ranks, rank);
    const shard_range features = shard_range_of(a[TY_FEATURES], ranks, rank);

    return (cuda_embedding_part){.count = stage->values[0].count,
                                 .length = stage->values[0].shape.dimensions[0],
                                 .features = a[TY_FEATURES],
                                 .runs = cp_token_runs(&stage->options, sequence),
                                 .first_word = words.first,
                                 .words = words.count,
                                 .first_feature = features.first,
                                 .own_features = features.count};
}

static ty_status embedding_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    uint64_t vocabulary = node->layer->attributes[TY_VOCABULARY];

    (void)error;
    if (stage->own->token_vocabulary == 0 || vocabulary < stage->own->token_vocabulary)
        stage->own->token_vocabulary = vocabulary;
    if (node->layer->attributes[TY_TOKEN_TYPES] > 0)
        node->sum_floats =
            cuda_column_sums_scratch(stage->values[0].count, node->layer->attributes[TY_FEATURES]);
    if (node->is_divided)
        node->tp_elements = stage_batch(stage) * ty_shape_elements(&node->whole_output);
    return TY_OK;
}

static ty_status embedding_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   ty_error *error)
{
    const cuda_embedding_part part = embedding_of(stage, node);
    const bool has_positions = node->layer->attributes[TY_POSITIONS] > 0;
    void *y = cuda_out(stage, node, slot), *summand = stage_summand(stage, node, false, y);

    cuda_embedding(stage->own->type, &part, stage->own->token_slots[slot].tokens,
                   cuda_weights(stage, node, EMBEDDING_TABLE),
                   has_positions ? cuda_weights(stage, node, EMBEDDING_POSITIONS) : NULL, summand,
                   stage->own->stream);
    if (node->layer->attributes[TY_TOKEN_TYPES] > 0)
        cuda_add_tp_bias(stage, part.count, part.features,
                         cuda_parameters(stage, node, EMBEDDING_TYPES), summand);
    return stage_ranks_sum(stage, node, &node->whole_output, summand, false, y, error);
}

static ty_status gradient_clear(ty_stage_device *stage, const stage_node *node, uint32_t tensor,
                                bool is_first, ty_error *error)
{
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};
    ty_status status = TY_OK;

    ty_layer_tensors(stage->options.workload, node->layer_index, tensors);
    if (!stage_adds(node, tensor, is_first))
        CUDA_CHECK(
            cudaMemsetAsync(cuda_parameter_gradient(stage, node, tensor), 0,
                            sharded_tensor_count(&tensors[tensor], tp_size_of(&stage->options)) *
                                sizeof(float),
                            stage->own->stream),
            status, done);
done:
    return status;
}

static ty_status embedding_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    const cuda_embedding_part part = embedding_of(stage, node);
    const uint64_t count = part.count;
    const int32_t *groups = stage->own->token_slots[slot].groups;
    cuda_token_groups of = {.order = groups,
                            .starts = groups + count,
                            .group_tokens = groups + 2 * count + 1,
                            .group_count = groups + 3 * count + 1};
    const uint64_t vocabulary = node->layer->attributes[TY_VOCABULARY];
    float *table = cuda_parameter_gradient(stage, node, EMBEDDING_TABLE);
    const bool has_positions = node->layer->attributes[TY_POSITIONS] > 0;
    const void *dy;

    if (table == NULL)
        return TY_OK;
    TY_TRY(cuda_whole_gradient(stage, node, stage->gather_workspace, &dy, error));
    for (uint32_t t = 0; t < node->tensor_count; t++)
        TY_TRY(gradient_clear(stage, node, t, is_first, error));
    cuda_embedding_backward(
        stage->own->type, &part, &of, count < vocabulary ? count : vocabulary, dy, table,
        has_positions ? cuda_parameter_gradient(stage, node, EMBEDDING_POSITIONS) : NULL,
        stage->own->stream);
    if (node->layer->attributes[TY_TOKEN_TYPES] > 0)
        cuda_tp_bias_gradient(stage, count, part.features, dy, true,
                              cuda_parameter_gradient(stage, node, EMBEDDING_TYPES));
    return TY_OK;
}

const stage_kind cuda_embedding_kind = {.floats = STAGE_BIT(EMBEDDING_TYPES),
                                        .build = embedding_build,
                                        .forward = embedding_forward,
                                        .backward = embedding_backward};

/* ---- Joins ---- */

static ty_status add_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    void *dy = cuda_out_gradient(stage, node);

    if (node->has_relu)
        cuda_activate_backward(stage->own->type, CUDA_RELU, cuda_count(stage, node),
                               cuda_out(stage, node, slot), dy, false, dy, stage->own->stream);
    return stage_add_backward(stage, node, slot, is_first, error);
}

/* Fuses a sum into the batch norm before it, unless recomputation needs separate layers. */
static bool sum_join(stage_lowering *low, const stage_place *place)
{
    ty_stage_device *stage = low->stage;
    const uint32_t layer = ty_workload_norm_of_sum(low->workload, place->layer);
    stage_node *norm = stage_last_node(low);

    if (layer == TY_NO_LAYER || layer < low->first || stage->segments.count > 0 ||
        !(stage->values[place->inputs[0]].order == STAGE_CHANNELS_LAST ||
          stage_channels(&stage->values[place->inputs[0]]) == 1 ||
          stage_pixels(&stage->values[place->inputs[0]]) == 1))
        return false;
    norm->inputs[norm->input_count++] = place->inputs[0]; /* it has a free entry */
    stage_value_share(low, place->output, norm->output);
    norm->output = place->output;
    return true;
}

const stage_kind cuda_add = {.order = STAGE_ANY_ORDER,
                             .is_sum = true,
                             .join = sum_join,
                             .forward = stage_add_forward,
                             .backward = add_backward};
const stage_kind cuda_concat = {
    .order = STAGE_ANY_ORDER, .forward = stage_concat_forward, .backward = stage_concat_backward};
const stage_kind cuda_slice = {
    .order = STAGE_ANY_ORDER, .forward = stage_slice_forward, .backward = stage_slice_backward};

/* ---- Loss; of every row's scores a rank has those of its words ---- */

static cuda_scores scores_of(const ty_stage_device *stage, const stage_node *node)
{
    const stage_value *logits = &stage->values[node->inputs[0]];
    const ty_shape *whole = &node->whole_input;
    const uint64_t classes = whole->dimensions[whole->dimension_count - 1];
    const uint32_t ranks = stage_shards(stage, node);
    const shard_range own =
        shard_range_of(classes, ranks, ranks > 1 ? stage->options.parallel.tp_rank : 0);

    return (cuda_scores){.rows = stage_rows(logits),
                         .classes = classes,
                         .stride = logits->shape.dimensions[logits->shape.dimension_count - 1],
                         .first = own.first,
                         .own = own.count};
}

/* Stash: log-sum-exp of each row. */
static ty_status loss_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const uint64_t rows = stage_rows(&stage->values[node->inputs[0]]);

    (void)error;
    node->stash_bytes = rows * sizeof(float);
    if (node->is_divided)
        node->sum_floats = 3 * rows;
    return TY_OK;
}

static ty_status loss_among_tp_ranks(ty_stage_device *stage, const cuda_scores *s,
                                     const void *logits, uint32_t slot, float *log_sums,
                                     ty_error *error)
{
    float *maxima = stage->own->sums, *sums = maxima + s->rows, *of_labels = sums + s->rows;
    const int32_t *labels = stage->own->labels[slot];

    cuda_tp_maxima(stage->own->type, s, logits, maxima, stage->own->stream);
    TY_TRY(stage_ranks_all_reduce(stage, true, s->rows, maxima, error));
    cuda_tp_exponentials(stage->own->type, s, logits, labels, maxima, sums, of_labels,
                         stage->own->stream);
    TY_TRY(stage_ranks_all_reduce(stage, false, s->rows, sums, error));
    TY_TRY(stage_ranks_all_reduce(stage, false, s->rows, of_labels, error));
    cuda_tp_cross_entropy(s, labels, maxima, sums, of_labels, log_sums, stage->own->row_loss,
                          stage->own->row_best, stage->own->losses[slot], stage->own->stream);
    return TY_OK;
}

static ty_status loss_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    const cuda_scores s = scores_of(stage, node);
    const void *logits = cuda_in(stage, node, 0, slot);

    if (node->is_divided)
        return loss_among_tp_ranks(stage, &s, logits, slot, node->stash[slot], error);
    cuda_cross_entropy(stage->own->type, &s, logits, stage->own->labels[slot], node->stash[slot],
                       stage->own->row_loss, stage->own->row_best, stage->own->losses[slot],
                       stage->own->stream);
    return TY_OK;
}

static ty_status loss_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const cuda_scores s = scores_of(stage, node);
    void *dx = cuda_in_gradient(stage, node, 0);

    (void)is_first, (void)error;
    if (dx != NULL)
        cuda_cross_entropy_backward(stage->own->type, &s, cuda_in(stage, node, 0, slot),
                                    stage->own->labels[slot], node->stash[slot], stage->own->scale,
                                    node->adds[0], dx, stage->own->stream);
    return TY_OK;
}

static ty_status loss_supports(const ty_workload *workload, uint32_t layer, ty_error *error)
{
    if (workload->layers[layer].attributes[TY_CLASSES] != 1)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED,
                   "layer %s: the cuda backend does not train a loss of one class",
                   workload->layers[layer].name);
}

const stage_kind cuda_loss_kind = {.supports = loss_supports,
                                   .build = loss_build,
                                   .forward = loss_forward,
                                   .backward = loss_backward};
