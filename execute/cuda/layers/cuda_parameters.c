/* The memory of a stage's parameters and gradients, how these start in every set, its statistics,
 * and weights that come together. */
#include "cuda_stage.h"

/* ---- How they start ---- */

static ty_status versions_fill(ty_stage_device *stage, const float *host, ty_error *error)
{
    const cuda_layout *layout = &stage->weight_layout;
    ty_status status = TY_OK;

    for (uint32_t v = 0; v < cuda_version_count(stage); v++)
        for (uint32_t k = 0; k < layout->kept_count; k++) {
            const cuda_range *range = &layout->kept[k];
            float *to = stage->versions + v * stage->set_stride + range->start;

            CUDA_CHECK(cudaMemcpyAsync(to, host + range->offset, range->count * sizeof *host,
                                       cudaMemcpyHostToDevice, stage->stream),
                       status, done);
            cuda_weights_follow(stage, to, range->count, stage->stream);
        }
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

/* Made on the host. */
static ty_status parameters_fill(ty_stage_device *stage, ty_error *error)
{
    float *host = ty_alloc(stage->placed.count, sizeof *host);
    ty_status status;

    if (host == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for initial weights");
    for (uint32_t n = 0; n < stage->node_count; n++)
        if (stage->nodes[n].tensor_count > 0)
            stage_parameters_fill(&stage->options, stage->nodes[n].layer_index,
                                  stage->nodes[n].offsets, host);
    status = versions_fill(stage, host, error);
    ty_free(host);
    return status == TY_OK ? statistics_fill(stage, error) : status;
}

/* ---- Memory ---- */

/* Buckets come together one after the other. */
static bool gather_room_take(ty_stage_device *stage)
{
    uint64_t largest = 0;

    for (uint32_t r = 0; r < stage->weight_layout.whole_count; r++)
        if (stage->weight_layout.whole[r].count > largest)
            largest = stage->weight_layout.whole[r].count;
    if (largest == 0 || stage->type == CUDA_TYPE_FLOAT)
        return true;
    stage->gather_room = cuda_buffer(stage, largest * stage->element);
    return stage->gather_room != NULL;
}

static bool parameters_allocate(ty_stage_device *stage)
{
    const uint64_t versions = cuda_version_count(stage), sets = cuda_gradient_set_count(stage);
    const uint64_t gradient_stride = ty_parameter_stride(stage->gradient_layout.floats);

    stage->versions = cuda_buffer(stage, versions * stage->set_stride * sizeof(float));
    stage->version_weights =
        stage->type == CUDA_TYPE_FLOAT
            ? stage->versions
            : cuda_buffer(stage, versions * stage->weight_stride * stage->element);
    stage->parameters = stage->versions;
    stage->weights = stage->version_weights;
    stage->gradient_sets = cuda_buffer(stage, sets * gradient_stride * sizeof(float));
    stage->gradients = stage->gradient_sets;
    return stage->parameters != NULL && stage->gradients != NULL && stage->weights != NULL &&
           gather_room_take(stage);
}

ty_status cuda_parameters_open(ty_stage_device *stage, const ty_sharding *sharding, ty_error *error)
{
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    TY_CHECK(cuda_layouts_place(stage, sharding, error), status, done);
    if (!parameters_allocate(stage)) {
        (void)cudaGetLastError();
        status = ty_fail(error, TY_ENOMEM,
                         "out of GPU memory after %.3g GB for the weights and gradients of layers "
                         "%u to %u",
                         (double)stage->memory_bytes * 1e-9, (unsigned)stage->options.first_layer,
                         (unsigned)(stage->options.first_layer + stage->options.layer_count - 1));
        goto done;
    }
    status = parameters_fill(stage, error);
done:
    return status;
}

/* ---- ZeRO's gathers ---- */

ty_status cuda_gather_begin(ty_stage_device *stage, const ty_sharded_range *bucket, void **data,
                            ty_element *element, ty_error *error)
{
    const cuda_layout *layout = &stage->weight_layout;
    const uint64_t place = bucket->share.offset - bucket->whole.offset;
    const float *share = stage->parameters + cuda_kept_start(layout, bucket->share.offset);
    ty_status status = TY_OK;

    *element = cuda_element(stage);
    *data = stage->gather_room;
    if (stage->gather_room == NULL) {
        *element = TY_ELEMENT_FLOAT;
        *data = stage->parameters + cuda_used_start(layout, bucket->whole.offset);
    }
    /* Where nothing is shared out the share is where it comes together. */
    if (layout->whole_count == 0 || bucket->share.count == 0)
        return TY_OK;
    TY_CHECK(cuda_use(stage, error), status, done);
    cuda_convert(CUDA_TYPE_FLOAT, share, stage->type,
                 (char *)*data + place * ty_element_bytes(*element), bucket->share.count,
                 stage->side);
    status = cuda_side_wait(stage, error);
done:
    return status;
}

ty_status cuda_gather_end(ty_stage_device *stage, const ty_sharded_range *bucket, ty_error *error)
{
    const cuda_copy copy = cuda_copy_of(stage, stage->weights);
    ty_status status;

    if (stage->gather_room == NULL)
        return TY_OK;
    TY_CHECK(cuda_use(stage, error), status, done);
    cuda_copy_spread(stage->type, &copy, bucket->whole.offset, bucket->whole.count,
                     stage->gather_room, stage->parameters, stage->side);
    status = cuda_side_wait(stage, error);
done:
    return status;
}
