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
