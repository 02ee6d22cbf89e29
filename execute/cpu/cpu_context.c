/* Context lanes: how attention gets at the tokens of the others (Dubey et al., "The Llama 3 Herd of
 * Models", 2024, section 3.3.2). */
#include "cpu_layer.h"

#include <string.h>

/* Rows between the whole sequences and the lanes' pieces, [lane][B][T / lanes][columns]. */
static void pieces_copy(const ty_stage_device *stage, const cpu_context_rows *rows, bool to_whole,
                        float *pieces, float *whole)
{
    const uint32_t lanes = lane_context_count(&stage->options);

    for (uint32_t l = 0; l < lanes; l++) {
        const token_runs runs = lane_token_runs_of(rows->sequence, lanes, l);
        const uint64_t count = runs.length * rows->columns;
        for (uint64_t b = 0; b < cpu_batch(stage); b++)
            for (uint32_t r = 0; r < runs.count; r++, pieces += count) {
                float *run = whole + (b * rows->sequence + runs.starts[r]) * rows->columns;
                memcpy(to_whole ? run : pieces, to_whole ? pieces : run, count * sizeof *run);
            }
    }
}

static ty_status exchange(ty_stage_device *stage, ty_collective_kind kind, uint64_t count,
                          float *pieces, ty_error *error)
{
    const ty_lane_group *lanes = &stage->options.lanes;

    return lanes->exchange(
        lanes->context,
        &(ty_lane_exchange){
            .among = TY_CONTEXT_LANES, .kind = kind, .data = pieces, .count = count},
        error);
}

static uint64_t own_rows(const ty_stage_device *stage, const cpu_context_rows *rows)
{
    return cpu_batch(stage) * rows->sequence / lane_context_count(&stage->options);
}

ty_status cpu_context_gather(ty_stage_device *stage, const cpu_context_rows *rows, const float *own,
                             float *pieces, float *whole, ty_error *error)
{
    const uint64_t count = own_rows(stage, rows);
    float *to = pieces + stage->options.lanes.context_position * count * rows->columns;
    ty_status status;

    for (uint64_t r = 0; r < count; r++)
        memcpy(to + r * rows->columns, own + r * rows->stride, rows->columns * sizeof *to);
    status = exchange(stage, TY_ALL_GATHER, count * rows->columns, pieces, error);
    if (status == TY_OK)
        pieces_copy(stage, rows, true, pieces, whole);
    return status;
}

ty_status cpu_context_scatter(ty_stage_device *stage, const cpu_context_rows *rows, float *whole,
                              float *pieces, float *own, ty_error *error)
{
    const uint32_t lanes = lane_context_count(&stage->options);
    const uint64_t count = own_rows(stage, rows);
    const float *from = pieces + stage->options.lanes.context_position * count * rows->columns;
    ty_status status;

    pieces_copy(stage, rows, false, pieces, whole);
    status = exchange(stage, TY_REDUCE_SCATTER, lanes * count * rows->columns, pieces, error);
    for (uint64_t r = 0; r < count && status == TY_OK; r++)
        memcpy(own + r * rows->stride, from + r * rows->columns, rows->columns * sizeof *own);
    return status;
}
