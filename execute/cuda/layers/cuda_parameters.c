/* Memory and initial values of a stage's parameters, gradients and statistics, and the all-gather
 * of sharded weights. */
#include "cuda_stage.h"

/* ---- Copies in the type of the passes ---- */

/* The unsharded range whose floats are at `at` in a set; or NULL. */
static const cuda_range *range_at(const cuda_layout *layout, uint64_t at)
{
    for (uint32_t k = 0; k < layout->kept_count; k++) {
        const cuda_range *range = &layout->kept[k];

        if (at >= range->start && at - range->start < range->count)
            return cuda_range_find(layout->whole, layout->whole_count, range->offset) == NULL
                       ? range
                       : NULL;
    }
    return NULL;
}

static cuda_copy copy_of_set(const ty_stage_device *stage, uint64_t set)
{
    return cuda_copy_of(stage, (char *)stage->own->version_weights +
                                   set * stage->own->weight_stride * stage->element);
}

/* Updates the copy of weights of any set that were written from outside. */
void cuda_weights_follow(ty_stage_device *stage, const float *at, uint64_t count,
                         cudaStream_t stream)
{
    const uint64_t all = stage_version_count(stage) * stage->set_stride;
    const uintptr_t first = (uintptr_t)stage->versions, end = (uintptr_t)(stage->versions + all);
    const cuda_range *range;
    cuda_copy copy;
    uint64_t place, set;

    if (stage->own->type == CUDA_TYPE_FLOAT || (uintptr_t)at < first || (uintptr_t)at >= end)
        return;
    place = (uint64_t)(at - stage->versions);
    set = place / stage->set_stride;
    place -= set * stage->set_stride;
    range = range_at(&stage->own->weight_layout, place);
    copy = copy_of_set(stage, set);
    if (range != NULL)
        cuda_copy_make(stage->own->type, &copy, range->offset + (place - range->start), count, at,
                       stream);
}

/* ---- How they start ---- */

static ty_status versions_fill(ty_stage_device *stage, const float *host, ty_error *error)
{
    const cuda_layout *layout = &stage->own->weight_layout;
    ty_status status = TY_OK;

    for (uint32_t v = 0; v < stage_version_count(stage); v++)
        for (uint32_t k = 0; k < layout->kept_count; k++) {
            const cuda_range *range = &layout->kept[k];
            float *to = stage->versions + v * stage->set_stride + range->start;

            CUDA_CHECK(cudaMemcpyAsync(to, host + range->offset, range->count * sizeof *host,
                                       cudaMemcpyHostToDevice, stage->own->stream),
                       status, done);
            cuda_weights_follow(stage, to, range->count, stage->own->stream);
        }
    CUDA_CHECK(cudaStreamSynchronize(stage->own->stream), status, done);
done:
    return status;
}

/* Batch norm statistics: means 0, variances 1. */
static ty_status statistics_fill(ty_stage_device *stage, ty_error *error)
{
    float *host = ty_alloc(stage->statistic_count, sizeof *host);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(host != NULL, error));
    for (uint32_t n = 0; n < stage->node_count; n++) {
        const stage_node *node = &stage->nodes[n];
        const uint64_t channels = node->layer->attributes[TY_FEATURES];

        for (uint64_t c = 0; node->kind == &cuda_batch_norm_kind && c < channels; c++)
            host[node->statistic_offset + channels + c] = 1.0f;
    }
    CUDA_CHECK(cudaMemcpyAsync(stage->statistics, host, stage->statistic_count * sizeof *host,
                               cudaMemcpyHostToDevice, stage->own->stream),
               status, done);
    CUDA_CHECK(cudaStreamSynchronize(stage->own->stream), status, done);
done:
    ty_free(host);
    return status;
}

/* Initial values, computed on the host. */
static ty_status parameters_fill(ty_stage_device *stage, ty_error *error)
{
    float *host = ty_alloc(stage->placed.count, sizeof *host);
    ty_status status;

    TY_TRY(ty_check_memory(host != NULL, error));
    stage_weights_fill(stage, host);
    status = versions_fill(stage, host, error);
    ty_free(host);
    return status == TY_OK ? statistics_fill(stage, error) : status;
}

/* ---- Memory ---- */

/* All-gathers run one bucket at a time. */
static bool gather_room_take(ty_stage_device *stage)
{
    uint64_t largest = 0;

    for (uint32_t r = 0; r < stage->own->weight_layout.whole_count; r++)
        if (stage->own->weight_layout.whole[r].count > largest)
            largest = stage->own->weight_layout.whole[r].count;
    if (largest == 0 || stage->own->type == CUDA_TYPE_FLOAT)
        return true;
    stage->own->gather_room = cuda_buffer(stage, largest * stage->element);
    return stage->own->gather_room != NULL;
}

static bool parameters_allocate(ty_stage_device *stage)
{
    const uint64_t versions = stage_version_count(stage), sets = stage_gradient_set_count(stage);
    const uint64_t gradient_stride = ty_parameter_stride(stage->own->gradient_layout.floats);

    stage->versions = cuda_buffer(stage, versions * stage->set_stride * sizeof(float));
    stage->own->version_weights =
        stage->own->type == CUDA_TYPE_FLOAT
            ? stage->versions
            : cuda_buffer(stage, versions * stage->own->weight_stride * stage->element);
    stage->parameters = stage->versions;
    stage->own->weights = stage->own->version_weights;
    stage->gradient_sets = cuda_buffer(stage, sets * gradient_stride * sizeof(float));
    stage->gradients = stage->gradient_sets;
    return stage->parameters != NULL && stage->gradients != NULL && stage->own->weights != NULL &&
           gather_room_take(stage);
}

ty_status cuda_parameters_open(ty_stage_device *stage, const ty_sharding *sharding, ty_error *error)
{
    TY_TRY(cuda_use(stage, error));
    TY_TRY(cuda_layouts_place(stage, sharding, error));
    if (!parameters_allocate(stage)) {
        (void)cudaGetLastError();
        return ty_fail(error, TY_ENOMEM,
                       "out of GPU memory after %.3g GB for the weights and gradients of layers "
                       "%u to %u",
                       (double)stage->memory_bytes * 1e-9, (unsigned)stage->options.first_layer,
                       (unsigned)(stage->options.first_layer + stage->options.layer_count - 1));
    }
    return parameters_fill(stage, error);
}

/* ---- ZeRO's gathers ---- */

ty_status cuda_gather_begin(ty_stage_device *stage, const ty_sharded_range *bucket, void **data,
                            ty_element *element, ty_error *error)
{
    const cuda_layout *layout = &stage->own->weight_layout;
    const uint64_t place = bucket->share.offset - bucket->whole.offset;
    const float *share = stage->parameters + cuda_kept_start(layout, bucket->share.offset);

    *element = stage->element_kind;
    *data = stage->own->gather_room;
    if (stage->own->gather_room == NULL) {
        *element = TY_ELEMENT_FLOAT;
        *data = stage->parameters + cuda_used_start(layout, bucket->whole.offset);
    }
    /* Without sharding, the shard is in the gathered place. */
    if (layout->whole_count == 0 || bucket->share.count == 0)
        return TY_OK;
    TY_TRY(cuda_use(stage, error));
    cuda_convert(CUDA_TYPE_FLOAT, share, stage->own->type,
                 (char *)*data + place * ty_element_bytes(*element), bucket->share.count,
                 stage->own->side);
    return cuda_side_wait(stage, error);
}

ty_status cuda_gather_end(ty_stage_device *stage, const ty_sharded_range *bucket, ty_error *error)
{
    const cuda_copy copy = cuda_copy_of(stage, stage->own->weights);

    if (stage->own->gather_room == NULL)
        return TY_OK;
    TY_TRY(cuda_use(stage, error));
    cuda_copy_spread(stage->own->type, &copy, bucket->whole.offset, bucket->whole.count,
                     stage->own->gather_room, stage->parameters, stage->own->side);
    return cuda_side_wait(stage, error);
}
