/* Where a stage's parameters lie, which is where the CPU backend has them, and how they start. */
#include "cuda_stage.h"

uint32_t cuda_layer_tensors(const ty_workload *workload, uint32_t layer,
                            lane_tensor tensors[CUDA_MAX_TENSORS])
{
    const cuda_kind *kind = cuda_kind_of(workload->layers[layer].kind);

    return kind == NULL || kind->tensors == NULL ? 0 : kind->tensors(workload, layer, tensors);
}

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

/* Whether the layer's matrix lies behind all slices, because another stage has a copy. */
static bool is_matrix_apart(const ty_stage_options *options, uint32_t layer)
{
    uint32_t tied = options->tied_layer;

    return tied != TY_NO_LAYER &&
           matrix_owner(options->workload, layer) == matrix_owner(options->workload, tied);
}

static uint64_t own_count(const ty_stage_options *options, const lane_tensor *tensor)
{
    return lane_tensor_count(tensor, lane_count(options));
}

/* Whether the layer's matrix is that of a frozen layer of another stage, which no bucket keeps
 * equal: it lies behind all else, once for each such layer. */
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
        lane_tensor tensors[CUDA_MAX_TENSORS] = {0};

        if (is_frozen_copy(options, layer) &&
            cuda_layer_tensors(options->workload, layer, tensors) > 0)
            sum += own_count(options, &tensors[0]);
    }
    return sum;
}

/* Parameters in the layer's own slice, checked against the workload's figure. */
static ty_status slice_count(const ty_stage_options *options, uint32_t index, uint64_t *out,
                             ty_error *error)
{
    const ty_workload *workload = options->workload;
    const ty_layer *layer = &workload->layers[index];
    lane_tensor tensors[CUDA_MAX_TENSORS] = {0};
    uint32_t count = cuda_layer_tensors(workload, index, tensors);
    uint64_t own = 0;

    *out = 0;
    for (uint32_t t = 0; t < count; t++) {
        bool is_tied = t == 0 && layer->tied_to != TY_NO_LAYER;
        own += is_tied ? 0 : tensors[t].count;
        *out += is_tied || (t == 0 && is_matrix_apart(options, index))
                    ? 0
                    : own_count(options, &tensors[t]);
    }
    if (own * workload->element_bytes != layer->parameter_bytes)
        return ty_fail(error, TY_EINVAL,
                       "layer %s: found %llu parameter bytes, its attributes make %llu",
                       layer->name, (unsigned long long)layer->parameter_bytes,
                       (unsigned long long)(own * workload->element_bytes));
    return TY_OK;
}

ty_status cuda_parameters_place(ty_stage_device *stage, ty_error *error)
{
    const ty_stage_options *options = &stage->options;
    lane_tensor tensors[CUDA_MAX_TENSORS] = {0};
    uint64_t offset = 0, count = 0;
    ty_status status = TY_OK;

    stage->layer_offsets = ty_alloc((size_t)options->layer_count + 1, sizeof *stage->layer_offsets);
    if (stage->layer_offsets == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for the table of layers");
    for (uint32_t i = 0; i < options->layer_count; i++) {
        TY_CHECK(slice_count(options, options->first_layer + i, &count, error), status, done);
        stage->layer_offsets[i] = offset;
        offset += count;
    }
    stage->layer_offsets[options->layer_count] = offset;
    stage->tied_offset = offset;
    if (options->tied_layer != TY_NO_LAYER) {
        if (!is_in_stage(options, options->tied_layer) ||
            cuda_layer_tensors(options->workload, options->tied_layer, tensors) == 0)
            return ty_fail(error, TY_EINVAL,
                           "tied layer %u is not a layer with a matrix of this stage",
                           (unsigned)options->tied_layer);
        stage->tied_count = own_count(options, &tensors[0]);
    }
    stage->parameter_count =
        offset + stage->tied_count +
        frozen_copies_before(options, options->first_layer + options->layer_count);
done:
    return status;
}

/* Where the tensors of a node's layer lie. */
ty_status cuda_parameters_locate(const ty_stage_device *stage, cuda_node *node, ty_error *error)
{
    const ty_stage_options *options = &stage->options;
    lane_tensor tensors[CUDA_MAX_TENSORS] = {0};
    uint32_t layer = node->layer_index, owner = matrix_owner(options->workload, layer);
    uint32_t count = cuda_layer_tensors(options->workload, layer, tensors);
    uint64_t offset = stage->layer_offsets[layer - options->first_layer];

    for (uint32_t t = 0; t < count; t++) {
        if (t == 0 && is_matrix_apart(options, layer)) {
            node->offsets[0] = stage->tied_offset;
        } else if (t == 0 && is_frozen_copy(options, layer)) {
            node->offsets[0] =
                stage->tied_offset + stage->tied_count + frozen_copies_before(options, layer);
        } else if (t == 0 && owner != layer) {
            if (!is_in_stage(options, owner))
                return ty_fail(error, TY_EINVAL,
                               "layer %s uses the matrix of layer %s, which is in another stage "
                               "and not named as tied",
                               node->layer->name, options->workload->layers[owner].name);
            node->offsets[0] = stage->layer_offsets[owner - options->first_layer];
        } else {
            node->offsets[t] = offset;
            offset += own_count(options, &tensors[t]);
        }
    }
    return TY_OK;
}

/* This lane's part of what one device would have. */
static void tensor_fill(const ty_stage_device *stage, float *parameters, uint32_t layer, uint32_t t,
                        const lane_tensor *tensor, uint64_t offset)
{
    const ty_stage_options *options = &stage->options;
    lane_run run;

    for (uint64_t r = 0;
         lane_tensor_run(tensor, lane_count(options), options->lanes.position, r, &run); r++) {
        float *to = parameters + offset + run.part;

        if (tensor->deviation > 0.0)
            ty_init_normal(options->seed, layer, t, tensor->deviation, run.whole, run.count, to);
        for (uint64_t i = 0; i < run.count && tensor->deviation <= 0.0; i++)
            to[i] = tensor->constant;
    }
}

uint64_t cuda_lanes_join(const ty_stage_device *stage, uint32_t layer, bool is_tied,
                         const float *parts, float *whole)
{
    const ty_stage_options *options = &stage->options;
    const uint32_t lanes = lane_count(options), index = layer - options->first_layer;
    const uint64_t part =
        is_tied ? stage->tied_count : stage->layer_offsets[index + 1] - stage->layer_offsets[index];
    const bool is_elsewhere =
        options->workload->layers[layer].tied_to != TY_NO_LAYER || is_matrix_apart(options, layer);
    lane_tensor tensors[CUDA_MAX_TENSORS] = {0};
    const uint32_t count = cuda_layer_tensors(options->workload, layer, tensors);
    uint64_t before = 0, total = 0;

    for (uint32_t t = !is_tied && is_elsewhere ? 1 : 0; t < (is_tied ? 1 : count); t++) {
        for (uint32_t l = 0; l < lanes && parts != NULL; l++)
            lane_tensor_join(&tensors[t], lanes, l, parts + l * part + before, whole + total);
        before += own_count(options, &tensors[t]);
        total += tensors[t].count;
    }
    return total;
}

static ty_status versions_fill(ty_stage_device *stage, const float *host, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t v = 0; v < cuda_version_count(stage); v++)
        CUDA_CHECK(cudaMemcpyAsync(stage->versions + v * stage->version_stride, host,
                                   stage->parameter_count * sizeof *host, cudaMemcpyHostToDevice,
                                   stage->stream),
                   status, done);
    if (stage->type != CUDA_TYPE_FLOAT)
        cuda_convert(CUDA_TYPE_FLOAT, stage->versions, stage->type, stage->version_weights,
                     cuda_version_count(stage) * stage->version_stride, stage->stream);
    CUDA_CHECK(cudaStreamSynchronize(stage->stream), status, done);
done:
    return status;
}

/* Of batch norm: means 0, variances 1. */
static ty_status statistics_fill(ty_stage_device *stage, ty_error *error)
{
    float *host = ty_alloc(stage->statistic_count, sizeof *host);
    ty_status status = TY_OK;

    if (host == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for statistics");
    for (uint32_t n = 0; n < stage->node_count; n++) {
        const cuda_node *node = &stage->nodes[n];
        const uint64_t channels = node->layer->attributes[TY_FEATURES];

        for (uint64_t c = 0; node->kind == &cuda_batch_norm_kind && c < channels; c++)
            host[node->statistic_offset + channels + c] = 1.0f;
    }
    CUDA_CHECK(cudaMemcpyAsync(stage->statistics, host, stage->statistic_count * sizeof *host,
                               cudaMemcpyHostToDevice, stage->stream),
               status, done);
    CUDA_CHECK(cudaStreamSynchronize(stage->stream), status, done);
done:
    ty_free(host);
    return status;
}

/* Made on the host. A shared matrix starts as its owner would have it, whoever holds the copy. */
ty_status cuda_parameters_fill(ty_stage_device *stage, ty_error *error)
{
    const ty_workload *workload = stage->options.workload;
    float *host = ty_alloc(stage->parameter_count, sizeof *host);
    ty_status status;

    if (host == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for initial weights");
    for (uint32_t n = 0; n < stage->node_count; n++) {
        const cuda_node *node = &stage->nodes[n];
        uint32_t owner = matrix_owner(workload, node->layer_index);
        lane_tensor own[CUDA_MAX_TENSORS] = {0}, first[CUDA_MAX_TENSORS] = {0};
        uint32_t count = cuda_layer_tensors(workload, node->layer_index, own);

        cuda_layer_tensors(workload, owner, first);
        if (count > 0)
            tensor_fill(stage, host, owner, 0, &first[0], node->offsets[0]);
        for (uint32_t t = 1; t < count; t++)
            tensor_fill(stage, host, node->layer_index, t, &own[t], node->offsets[t]);
    }
    status = versions_fill(stage, host, error);
    ty_free(host);
    return status == TY_OK ? statistics_fill(stage, error) : status;
}
