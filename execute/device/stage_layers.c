#include "stage_layers.h"

ty_status stage_range_check(const ty_stage_options *options, uint32_t slot, uint32_t first_layer,
                            uint32_t layer_count, ty_error *error)
{
    const uint32_t before = first_layer - options->first_layer;

    if (slot >= options->slots)
        return ty_fail(error, TY_EINVAL, "found slot %u, expected less than %u", (unsigned)slot,
                       (unsigned)options->slots);
    if (first_layer < options->first_layer || before > options->layer_count ||
        layer_count > options->layer_count - before)
        return ty_fail(error, TY_EINVAL, "found layers %u + %u, the stage has %u + %u",
                       (unsigned)first_layer, (unsigned)layer_count, (unsigned)options->first_layer,
                       (unsigned)options->layer_count);
    return TY_OK;
}

bool stage_range_has_last(const ty_stage_options *options, uint32_t first_layer,
                          uint32_t layer_count)
{
    return layer_count > 0 &&
           first_layer + layer_count == options->first_layer + options->layer_count;
}

void stage_trains_find(const ty_workload *workload, bool *trains)
{
    for (uint32_t l = 0; l < workload->layer_count; l++) {
        const ty_layer *layer = &workload->layers[l];

        trains[l] = ty_layer_is_trained(workload, l);
        for (uint32_t i = 0; i < layer->input_count; i++)
            trains[l] = trains[l] || trains[layer->inputs[i]];
    }
}

ty_status stage_segments_find(const ty_stage_options *options, stage_segments *out, ty_error *error)
{
    const ty_workload *workload = options->workload;
    const ty_recompute_range range = {options->first_layer, options->layer_count,
                                      options->recompute, options->recompute_blocks};

    out->starts = ty_alloc(workload->layer_count, sizeof *out->starts);
    out->again = ty_alloc(workload->layer_count, sizeof *out->again);
    TY_TRY(ty_check_memory(out->starts != NULL && out->again != NULL, error));
    out->count = ty_recompute_segments(workload, &range, out->starts);
    ty_recompute_mark_again(workload, &range, out->starts, out->count, out->again);
    return TY_OK;
}

void stage_segments_clear(stage_segments *segments)
{
    ty_free(segments->starts);
    ty_free(segments->again);
}

uint32_t stage_segment_of(const stage_segments *segments, uint32_t layer)
{
    uint32_t segment = segments->count > 0 ? segments->count - 1 : 0;

    while (segment > 0 && segments->starts[segment] > layer)
        segment--;
    return segment;
}

uint32_t stage_segment_of_part(const stage_segments *segments, bool is_kept, uint32_t segment)
{
    return segments->count == 0 || is_kept ? STAGE_NO_SEGMENT : segment;
}

uint32_t stage_segment_of_stash(const stage_segments *segments, bool is_kept, uint32_t layer)
{
    return stage_segment_of_part(segments, is_kept, stage_segment_of(segments, layer));
}

uint64_t stage_working_set_take(stage_working_set *set, uint32_t segment, uint64_t bytes,
                                uint64_t alignment)
{
    uint64_t at;

    if (segment == STAGE_NO_SEGMENT)
        return 0;
    at = set->used[segment];
    set->used[segment] += (bytes + alignment - 1) / alignment * alignment;
    return at;
}

uint64_t stage_working_set_measure(stage_working_set *set, const stage_segments *segments)
{
    uint64_t largest = 0;

    for (uint32_t s = 0; s < segments->count; s++) {
        if (set->used[s] > largest)
            largest = set->used[s];
        set->used[s] = 0;
    }
    return largest;
}
