/* Rows of a table chosen by tokens, plus a row per position, plus the row of the token type, which
 * is the first for all. A tensor-parallel rank has the rows of its words and its features of all
 * positions and types. All other numbers count as 0, and an all-reduce sums the ranks' results. */
#include "cpu_layer.h"

#include <string.h>

/* This rank's shard: words, and features of positions and types. */
typedef struct part {
    uint64_t features, length, rows; /* length: tokens of a sample */
    token_runs runs;
    shard_range words, own_features;
    uint64_t table_rows, own_stride; /* of its tensors */
} part;

static part part_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint32_t ranks = tp_size_of(&stage->options), rank = stage->options.parallel.tp_rank;
    const uint64_t length = stage->values[0].shape.dimensions[0];

    return (part){
        .features = a[TY_FEATURES],
        .length = length,
        .rows = stage_batch(stage) * length,
        .runs = cp_token_runs(&stage->options, stage->options.workload->input.dimensions[0]),
        .words = shard_range_of(a[TY_VOCABULARY], ranks, rank),
        .own_features = shard_range_of(a[TY_FEATURES], ranks, rank),
        .table_rows = shard_size(a[TY_VOCABULARY], ranks),
        .own_stride = shard_size(a[TY_FEATURES], ranks),
    };
}

/* Row of the rank's table, or NULL if another rank has it. */
static float *row_of(const part *p, float *table, int32_t token)
{
    const uint64_t word = (uint64_t)token;

    if (word < p->words.first || word - p->words.first >= p->words.count)
        return NULL;
    return table + (word - p->words.first) * p->features;
}

/* Offset of the row of the i-th token's position. */
static uint64_t position_offset(const part *p, uint64_t i)
{
    return token_place(&p->runs, i % p->length) * p->own_stride;
}

static ty_status embedding_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    (void)error;
    if (node->is_divided)
        node->tp_elements = stage_batch(stage) * ty_shape_elements(&node->whole_output);
    return TY_OK;
}

static ty_status embedding_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const part p = part_of(stage, node);
    const int32_t *tokens = stage->tokens[slot];
    float *table = stage->parameters + node->offsets[EMBEDDING_TABLE],
          *to = cpu_out(stage, node, slot);
    float *summand = stage_summand(stage, node, false, to), *y = summand;
    const float *positions =
        a[TY_POSITIONS] > 0 ? cpu_parameters(stage, node, EMBEDDING_POSITIONS) : NULL;

    for (uint64_t i = 0; i < p.rows; i++, y += p.features) {
        const float *row;

        if (tokens[i] < 0 || (uint64_t)tokens[i] >= a[TY_VOCABULARY])
            return ty_fail(error, TY_EINVAL, "layer %s: token %ld at place %lu, expected 0 to %lu",
                           node->layer->name, (long)tokens[i], (unsigned long)i,
                           (unsigned long)(a[TY_VOCABULARY] - 1));
        row = row_of(&p, table, tokens[i]);
        if (row != NULL)
            memcpy(y, row, p.features * sizeof *y);
        else
            memset(y, 0, p.features * sizeof *y);
        if (positions != NULL)
            cpu_accumulate(p.own_features.count, positions + position_offset(&p, i), true,
                           y + p.own_features.first);
    }
    if (a[TY_TOKEN_TYPES] > 0)
        cpu_add_tp_bias(stage, p.rows, p.features, cpu_parameters(stage, node, EMBEDDING_TYPES),
                        summand);
    return stage_ranks_sum(stage, node, &node->whole_output, summand, false, to, error);
}

/* Gradient of a tensor to which passes add; the first pass clears it. */
static float *gradient_of(const ty_stage_device *stage, const stage_node *node, uint32_t tensor,
                          uint64_t count, bool is_first)
{
    float *gradient = cpu_parameter_gradient(stage, node, tensor);

    if (!stage_adds(node, tensor, is_first))
        memset(gradient, 0, count * sizeof *gradient);
    return gradient;
}

static ty_status embedding_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const part p = part_of(stage, node);
    const int32_t *tokens = stage->tokens[slot];
    float *table = cpu_parameter_gradient(stage, node, EMBEDDING_TABLE);
    float *positions = NULL;
    const float *dy;
    ty_status status;

    if (table == NULL)
        return TY_OK;
    status = cpu_whole_gradient(stage, node, slot, stage->gather_workspace, &dy, error);
    if (status != TY_OK)
        return status;
    table = gradient_of(stage, node, EMBEDDING_TABLE, p.table_rows * p.features, is_first);
    if (a[TY_POSITIONS] > 0)
        positions =
            gradient_of(stage, node, EMBEDDING_POSITIONS, a[TY_POSITIONS] * p.own_stride, is_first);
    if (a[TY_TOKEN_TYPES] > 0)
        cpu_tp_bias_gradient(
            stage, p.rows, p.features, dy, true,
            gradient_of(stage, node, EMBEDDING_TYPES, a[TY_TOKEN_TYPES] * p.own_stride, is_first));
    for (uint64_t i = 0; i < p.rows; i++, dy += p.features) {
        float *row = row_of(&p, table, tokens[i]);

        if (row != NULL)
            cpu_accumulate(p.features, dy, true, row);
        if (positions != NULL)
            cpu_accumulate(p.own_features.count, dy + p.own_features.first, true,
                           positions + position_offset(&p, i));
    }
    return TY_OK;
}

const stage_kind cpu_embedding = {
    .build = embedding_build,
    .forward = embedding_forward,
    .backward = embedding_backward,
};
