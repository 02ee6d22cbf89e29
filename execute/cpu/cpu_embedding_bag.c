/* Rows of a table chosen by a sample's categorical features, summed or averaged. */
#include "cpu_tables.h"

#include <string.h>

/* 2^24: numbers of a sample are fp32, which has no larger odd integers. */
#define MOST_ROWS 16777216u

static ty_status bag_supports(const ty_workload *workload, uint32_t layer, ty_error *error)
{
    const ty_layer *l = &workload->layers[layer];

    if (l->attributes[TY_VOCABULARY] <= MOST_ROWS)
        return TY_OK;
    return ty_fail(error, TY_EUNSUPPORTED,
                   "layer %s: found a table of %llu rows, expected at most %u, which fp32 numbers "
                   "can name",
                   l->name, (unsigned long long)l->attributes[TY_VOCABULARY], MOST_ROWS);
}

typedef struct bag {
    uint64_t sample, rows, features; /* numbers of a sample; indices of it; numbers of a row */
    float share;                     /* factor of each row in the bag's output */
    const float *indices;            /* of the first sample */
} bag;

static bag bag_of(const ty_stage_device *stage, const stage_node *node, uint32_t slot)
{
    const uint64_t *a = node->layer->attributes;

    return (bag){.sample = stage->values[node->inputs[0]].count / stage_batch(stage),
                 .rows = a[TY_ROWS],
                 .features = a[TY_FEATURES],
                 .share = a[TY_IS_AVERAGE] != 0 ? 1.0f / (float)a[TY_ROWS] : 1.0f,
                 .indices = cpu_in(stage, node, 0, slot) + a[TY_FIRST_ROW]};
}

static ty_status bag_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error)
{
    const bag b = bag_of(stage, node, slot);
    const float *table = cpu_parameters(stage, node, 0);
    float *y = cpu_out(stage, node, slot);
    ty_status status;

    if (cpu_tables_are_divided(stage))
        return cpu_tables_forward(stage, node, slot, error);
    status = cpu_indices_check(stage, node, slot, error);
    if (status != TY_OK)
        return status;
    memset(y, 0, stage_batch(stage) * b.features * sizeof *y);
    for (uint64_t s = 0; s < stage_batch(stage); s++)
        for (uint64_t r = 0; r < b.rows; r++)
            cpu_add_row(b.features, b.share,
                        table + (uint64_t)b.indices[s * b.sample + r] * b.features,
                        y + s * b.features);
    return TY_OK;
}

static ty_status bag_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    const bag b = bag_of(stage, node, slot);
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *table = cpu_parameter_gradient(stage, node, 0);

    if (cpu_tables_are_divided(stage))
        return cpu_tables_backward(stage, node, slot, is_first, error);
    if (table == NULL)
        return TY_OK;
    if (!stage_adds(node, 0, is_first))
        memset(table, 0, node->layer->attributes[TY_VOCABULARY] * b.features * sizeof *table);
    for (uint64_t s = 0; s < stage_batch(stage); s++)
        for (uint64_t r = 0; r < b.rows; r++)
            cpu_add_row(b.features, b.share, dy + s * b.features,
                        table + (uint64_t)b.indices[s * b.sample + r] * b.features);
    return TY_OK;
}

static ty_status bag_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    return cpu_tables_are_divided(stage) ? cpu_tables_build(stage, node, error) : TY_OK;
}

const stage_kind cpu_embedding_bag = {
    .supports = bag_supports, .build = bag_build, .forward = bag_forward, .backward = bag_backward};
