/* How the parameters of a stage start, in every set, and its statistics. */
#include "cuda_stage.h"

static ty_status versions_fill(ty_stage_device *stage, const float *host, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t v = 0; v < cuda_version_count(stage); v++)
        CUDA_CHECK(cudaMemcpyAsync(stage->versions + v * stage->set_stride, host,
                                   stage->placed.count * sizeof *host, cudaMemcpyHostToDevice,
                                   stage->stream),
                   status, done);
    if (stage->type != CUDA_TYPE_FLOAT)
        cuda_convert(CUDA_TYPE_FLOAT, stage->versions, stage->type, stage->version_weights,
                     cuda_version_count(stage) * stage->set_stride, stage->stream);
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
ty_status cuda_parameters_fill(ty_stage_device *stage, ty_error *error)
{
    float *host = ty_alloc(stage->placed.count, sizeof *host);
    ty_status status;

    if (host == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for initial weights");
    for (uint32_t n = 0; n < stage->node_count; n++)
        stage_parameters_fill(&stage->options, stage->nodes[n].layer_index, stage->nodes[n].offsets,
                              host);
    status = versions_fill(stage, host, error);
    ty_free(host);
    return status == TY_OK ? statistics_fill(stage, error) : status;
}
