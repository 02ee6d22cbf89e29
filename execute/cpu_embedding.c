/* Rows of a table chosen by tokens, plus a row per position. A lane has the rows of its words, the
 * others being 0 for it, and its features of all positions; the lanes sum what they found. */
#include "cpu_layer.h"

#include <string.h>

/* What this lane has: words, and features of the positions. */
typedef struct part {
    uint64_t features, length, rows; /* length: tokens of a sample */
    cpu_token_runs runs;
    lane_range words, position_features;
    uint64_t table_rows, position_stride; /* of its tensors */
} part;

static part part_of(const ty_stage_device *stage, const cpu_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint32_t lanes = lane_count(&stage->options), lane = stage->options.lanes.position;
    const uint64_t length = stage->values[0].shape.dimensions[0];

    return (part){
        .features = a[TY_FEATURES],
        .length = length,
        .rows = cpu_batch(stage) * length,
        .runs = cpu_token_runs_of(&stage->options, stage->options.workload->input.dimensions[0]),
        .words = lane_range_of(a[TY_VOCABULARY], lanes, lane),
        .position_features = lane_range_of(a[TY_FEATURES], lanes, lane),
        .table_rows = lane_part(a[TY_VOCABULARY], lanes),
        .position_stride = lane_part(a[TY_FEATURES], lanes),
    };
}

/* Row of the lane's table, or NULL where another lane has it. */
static float *row_of(const part *p, float *table, int32_t token)
{
    const uint64_t word = (uint64_t)token;

    if (word < p->words.first || word - p->words.first >= p->words.count)
        return NULL;
    return table + (word - p->words.first) * p->features;
}

/* Where the row of the i-th token's position starts. */
static uint64_t position_offset(const part *p, uint64_t i)
{
    return cpu_token_place(&p->runs, i % p->length) * p->position_stride;
}

static ty_status embedding_build(ty_stage_device *stage, cpu_node *node, ty_error *error)
{
    (void)error;
    if (node->is_divided)
        node->lane_floats = cpu_batch(stage) * ty_shape_elements(&node->whole_output);
    return TY_OK;
}

static ty_status embedding_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                   ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const part p = part_of(stage, node);
    const int32_t *tokens = stage->tokens[slot];
    float *table = stage->parameters + node->offsets[0], *to = cpu_out(stage, node, slot);
    float *summand = cpu_summand(stage, node, false, to), *y = summand;
    const float *positions = a[TY_POSITIONS] > 0 ? cpu_parameters(stage, node, 1) : NULL;

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
            cpu_accumulate(p.position_features.count, positions + position_offset(&p, i), true,
                           y + p.position_features.first);
    }
    return cpu_lanes_sum(stage, &node->whole_output, summand, false, to, error);
}

static void gradient_clear(const ty_stage_device *stage, const cpu_node *node, uint32_t tensor,
                           uint64_t count, bool is_first)
{
    if (!cpu_adds(node, tensor, is_first))
        memset(cpu_parameter_gradient(stage, node, tensor), 0, count * sizeof(float));
}

static ty_status embedding_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    const uint64_t *a = node->layer->attributes;
    const part p = part_of(stage, node);
    const int32_t *tokens = stage->tokens[slot];
    float *table = cpu_parameter_gradient(stage, node, 0), *positions = NULL;
    const float *dy;
    ty_status status;

    if (table == NULL)
        return TY_OK;
    status = cpu_whole_gradient(stage, node, slot, stage->lane_whole, &dy, error);
    if (status != TY_OK)
        return status;
    gradient_clear(stage, node, 0, p.table_rows * p.features, is_first);
    if (a[TY_POSITIONS] > 0) {
        gradient_clear(stage, node, 1, a[TY_POSITIONS] * p.position_stride, is_first);
        positions = cpu_parameter_gradient(stage, node, 1);
    }
    for (uint64_t i = 0; i < p.rows; i++, dy += p.features) {
        float *row = row_of(&p, table, tokens[i]);

        if (row != NULL)
            cpu_accumulate(p.features, dy, true, row);
        if (positions != NULL)
            cpu_accumulate(p.position_features.count, dy + p.position_features.first, true,
                           positions + position_offset(&p, i));
    }
    return TY_OK;
}

const cpu_kind cpu_embedding = {
    .build = embedding_build,
    .forward = embedding_forward,
    .backward = embedding_backward,
};
