/* Offsets of a stage's parameters, and their initial values. */
#include "stage_parameters.h"

#include "init.h"

#include <string.h>

static bool is_in_stage(const ty_stage_options *options, uint32_t layer)
{
    return layer >= options->first_layer && layer - options->first_layer < options->layer_count;
}

/* The layer whose matrix this one uses. */
static uint32_t matrix_owner(const ty_workload *workload, uint32_t layer)
{
    uint32_t owner = workload->layers[layer].tied_to;

    return owner == TY_NO_LAYER ? layer : owner;
}

/* Whether the layer's matrix comes after all slices, because another stage has a copy. */
static bool is_matrix_apart(const ty_stage_options *options, uint32_t layer)
{
    uint32_t tied = options->tied_layer;

    return tied != TY_NO_LAYER &&
           matrix_owner(options->workload, layer) == matrix_owner(options->workload, tied);
}

static uint64_t own_count(const ty_stage_options *options, uint32_t layer,
                          const sharded_tensor *tensor)
{
    uint64_t first;
    shard_place place;
    const sharded_tensor here = sharded_tensor_here(options, layer, tensor, &first, &place);

    return sharded_tensor_count(&here, place.ranks);
}

/* Whether the layer's matrix is that of a frozen layer of another stage, which no bucket keeps
 * equal: it comes after all else, once for each such layer. */
static bool is_frozen_copy(const ty_stage_options *options, uint32_t layer)
{
    uint32_t owner = options->workload->layers[layer].tied_to;

    return owner != TY_NO_LAYER && options->workload->layers[owner].is_frozen &&
           !is_in_stage(options, owner) && !is_matrix_apart(options, layer);
}

/* Numbers in the copies before layer `end` of the stage. */
static uint64_t frozen_copies_before(const ty_stage_options *options, uint32_t end)
{
    uint64_t sum = 0;

    for (uint32_t layer = options->first_layer; layer < end; layer++) {
        sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};

        if (is_frozen_copy(options, layer) &&
            ty_layer_tensors(options->workload, layer, tensors) > 0)
            sum += own_count(options, layer, &tensors[0]);
    }
    return sum;
}

/* Parameters in the layer's own slice, and in that of its experts. Attributes and the workload's
 * own figure must agree: costs are computed from one, training from the other. */
static ty_status slice_count(const ty_stage_options *options, uint32_t index, uint64_t *out,
                             uint64_t *of_experts, ty_error *error)
{
    const ty_workload *workload = options->workload;
    const ty_layer *layer = &workload->layers[index];
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};
    uint32_t count = ty_layer_tensors(workload, index, tensors);
    uint64_t own = 0;

    *out = *of_experts = 0;
    for (uint32_t t = 0; t < count; t++) {
        bool is_tied = t == 0 && layer->tied_to != TY_NO_LAYER;
        own += is_tied ? 0 : tensors[t].count;
        if (is_tied || (t == 0 && is_matrix_apart(options, index)))
            continue;
        *(is_ep_sharded(options, &tensors[t]) ? of_experts : out) +=
            own_count(options, index, &tensors[t]);
    }
    *of_experts += table_shard_padding(options, index);
    if (own * workload->element_bytes != layer->parameter_bytes)
        return ty_fail(error, TY_EINVAL,
                       "layer %s: found %llu parameter bytes, its attributes make %llu",
                       layer->name, (unsigned long long)layer->parameter_bytes,
                       (unsigned long long)(own * workload->element_bytes));
    return TY_OK;
}

/* Layers' slices, then those of their experts. */
static ty_status slices_place(const ty_stage_options *options, stage_parameters *out,
                              ty_error *error)
{
    const uint32_t layers = options->layer_count;
    uint64_t offset = 0, experts = 0;

    out->layer_offsets = ty_alloc((size_t)layers + 1, sizeof *out->layer_offsets);
    out->expert_offsets = ty_alloc((size_t)layers + 1, sizeof *out->expert_offsets);
    TY_TRY(ty_check_memory(out->layer_offsets != NULL && out->expert_offsets != NULL, error));
    for (uint32_t i = 0; i < layers; i++) {
        uint64_t count = 0, of_experts = 0;

        TY_TRY(slice_count(options, options->first_layer + i, &count, &of_experts, error));
        out->layer_offsets[i] = offset;
        out->expert_offsets[i] = experts;
        offset += count;
        experts += of_experts;
    }
    out->layer_offsets[layers] = offset;
    out->expert_offsets[layers] = experts;
    for (uint32_t i = 0; i <= layers; i++)
        out->expert_offsets[i] += offset;
    return TY_OK;
}

ty_status stage_parameters_place(const ty_stage_options *options, stage_parameters *out,
                                 ty_error *error)
{
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};
    uint64_t offset;

    *out = (stage_parameters){0};
    TY_TRY(slices_place(options, out, error));
    offset = out->expert_offsets[options->layer_count];
    out->tied_offset = offset;
    if (options->tied_layer != TY_NO_LAYER) {
        if (!is_in_stage(options, options->tied_layer) ||
            ty_layer_tensors(options->workload, options->tied_layer, tensors) == 0)
            return ty_fail(error, TY_EINVAL,
                           "tied layer %u is not a layer with a matrix of this stage",
                           (unsigned)options->tied_layer);
        out->tied_count = own_count(options, options->tied_layer, &tensors[0]);
    }
    out->count = offset + out->tied_count +
                 frozen_copies_before(options, options->first_layer + options->layer_count);
    return TY_OK;
}

void stage_parameters_clear(stage_parameters *placed)
{
    ty_free(placed->layer_offsets);
    ty_free(placed->expert_offsets);
    *placed = (stage_parameters){0};
}

ty_status stage_parameters_locate(const ty_stage_options *options, const stage_parameters *placed,
                                  uint32_t layer, uint64_t offsets[LAYER_MAX_TENSORS],
                                  ty_error *error)
{
    const ty_workload *workload = options->workload;
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};
    const uint32_t owner = matrix_owner(workload, layer);
    const uint32_t count = ty_layer_tensors(workload, layer, tensors);
    uint64_t offset = placed->layer_offsets[layer - options->first_layer];
    uint64_t of_experts = placed->expert_offsets[layer - options->first_layer];

    for (uint32_t t = 0; t < count; t++) {
        if (t == 0 && is_matrix_apart(options, layer)) {
            offsets[0] = placed->tied_offset;
        } else if (t == 0 && is_frozen_copy(options, layer)) {
            offsets[0] =
                placed->tied_offset + placed->tied_count + frozen_copies_before(options, layer);
        } else if (t == 0 && owner != layer) {
            if (!is_in_stage(options, owner))
                return ty_fail(error, TY_EINVAL,
                               "layer %s uses the matrix of layer %s, which is in another stage "
                               "and not named as tied",
                               workload->layers[layer].name, workload->layers[owner].name);
            offsets[0] = placed->layer_offsets[owner - options->first_layer];
        } else if (is_ep_sharded(options, &tensors[t])) {
            offsets[t] = of_experts;
            of_experts += own_count(options, layer, &tensors[t]);
        } else {
            offsets[t] = offset;
            offset += own_count(options, layer, &tensors[t]);
        }
    }
    return TY_OK;
}

/* Fills this rank's shard of a tensor. */
static void tensor_fill(const ty_stage_options *options, uint32_t layer, uint32_t t,
                        const sharded_tensor *tensor, float *own)
{
    uint64_t first;
    shard_place place;
    const sharded_tensor here = sharded_tensor_here(options, layer, tensor, &first, &place);
    const double deviation = ty_init_deviation(options->workload, tensor);
    rank_run run;

    for (uint64_t r = 0; sharded_tensor_run(&here, place.ranks, place.rank, r, &run); r++) {
        float *to = own + run.part;

        if (options->weights != NULL &&
            options->weights->read(options->weights, layer, t, first + run.whole, run.count, to))
            continue;
        if (deviation > 0.0)
            ty_init_normal(options->seed, layer, t, deviation, first + run.whole, run.count, to);
        for (uint64_t i = 0; i < run.count && deviation <= 0.0; i++)
            to[i] = tensor->constant;
    }
}

void stage_parameters_fill(const ty_stage_options *options, uint32_t layer,
                           const uint64_t offsets[LAYER_MAX_TENSORS], float *parameters)
{
    const uint32_t leader = ty_layer_leader(options->workload, layer);
    const uint32_t owner = matrix_owner(options->workload, layer);
    sharded_tensor own[LAYER_MAX_TENSORS] = {0}, first[LAYER_MAX_TENSORS] = {0};
    const uint32_t count = ty_layer_tensors(options->workload, layer, own);

    ty_layer_tensors(options->workload, owner, first);
    if (leader != TY_NO_LAYER) {
        for (uint32_t t = 0; t < count; t++)
            tensor_fill(options, leader, t, &own[t], parameters + offsets[t]);
        return;
    }
    if (count > 0)
        tensor_fill(options, owner, 0, &first[0], parameters + offsets[0]);
    for (uint32_t t = 1; t < count; t++)
        tensor_fill(options, layer, t, &own[t], parameters + offsets[t]);
}

uint64_t stage_parameters_join(const ty_stage_options *options, const stage_parameters *placed,
                               uint32_t layer, bool is_tied, const float *parts, float *whole)
{
    const uint32_t ranks = tp_size_of(options), index = layer - options->first_layer;
    const uint64_t part = is_tied ? placed->tied_count
                                  : placed->layer_offsets[index + 1] - placed->layer_offsets[index];
    const bool is_elsewhere =
        options->workload->layers[layer].tied_to != TY_NO_LAYER || is_matrix_apart(options, layer);
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};
    const uint32_t count = ty_layer_tensors(options->workload, layer, tensors);
    uint64_t before = 0, total = 0;

    for (uint32_t t = !is_tied && is_elsewhere ? 1 : 0; t < (is_tied ? 1 : count); t++) {
        if (is_ep_sharded(options, &tensors[t]))
            continue;
        for (uint32_t l = 0; l < ranks && parts != NULL; l++)
            sharded_tensor_join(&tensors[t], ranks, l, parts + l * part + before, whole + total);
        before += own_count(options, layer, &tensors[t]);
        total += tensors[t].count;
    }
    return total;
}

/* Joins one tensor of experts, or a table, from its offset in each rank's slice. */
static void experts_tensor_join(const ty_stage_options *options, uint32_t layer,
                                const sharded_tensor *tensor, uint64_t part, const float *parts,
                                float *whole)
{
    const uint32_t experts = ep_size_of(options), ranks = tp_size_of(options);
    uint64_t first;
    shard_place place;
    const sharded_tensor here = sharded_tensor_here(options, layer, tensor, &first, &place);

    if (ep_rank_of_table(options, layer) != TY_NO_LAYER) {
        memcpy(whole, parts, tensor->count * sizeof *whole);
        return;
    }
    for (uint32_t e = 0; e < experts; e++)
        for (uint32_t l = 0; l < (tensor->is_table ? 1 : ranks); l++)
            sharded_tensor_join(&here, place.ranks, tensor->is_table ? e : l,
                                parts + (e * ranks + l) * part,
                                whole + (tensor->is_table ? 0 : e * here.count));
}

uint64_t stage_parameters_experts_join(const ty_stage_options *options,
                                       const stage_parameters *placed, uint32_t layer,
                                       const float *parts, float *whole)
{
    const uint32_t index = layer - options->first_layer;
    const uint64_t part = placed->expert_offsets[index + 1] - placed->expert_offsets[index];
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};
    const uint32_t count = ty_layer_tensors(options->workload, layer, tensors);
    uint64_t before = 0, total = 0;

    for (uint32_t t = 0; t < count; t++) {
        if (!is_ep_sharded(options, &tensors[t]))
            continue;
        if (parts != NULL)
            experts_tensor_join(options, layer, &tensors[t], part, parts + before, whole + total);
        before += own_count(options, layer, &tensors[t]);
        total += tensors[t].count;
    }
    return total;
}

static void range_find(const ty_stage_options *options, const uint64_t *offsets,
                       uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                       uint64_t *count)
{
    const uint32_t first = first_layer - options->first_layer;

    *offset = offsets[first];
    *count = offsets[first + layer_count] - *offset;
}

void stage_parameters_slice(const ty_stage_options *options, const stage_parameters *placed,
                            uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                            uint64_t *count)
{
    range_find(options, placed->layer_offsets, first_layer, layer_count, offset, count);
}

void stage_parameters_expert_slice(const ty_stage_options *options, const stage_parameters *placed,
                                   uint32_t first_layer, uint32_t layer_count, uint64_t *offset,
                                   uint64_t *count)
{
    range_find(options, placed->expert_offsets, first_layer, layer_count, offset, count);
}
