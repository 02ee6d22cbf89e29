/* Where the parameters of a stage lie in the type of its passes, how they start, in every set, and
 * its statistics. */
#include "cuda_stage.h"

#include <stdlib.h>
#include <string.h>

/* ---- Copies in the type of the passes ----
 *
 * Floats lie as device.h has them, one tensor right behind the other, which after one of an odd
 * number of elements is not where tensor cores read 16 bit. */

static int offset_compare(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return (a > b) - (a < b);
}

/* First floats of all tensors, ascending, each once. @return how many */
static uint32_t starts_list(const ty_stage_device *stage, uint64_t *starts)
{
    uint32_t count = 0, kept = 0;

    for (uint32_t n = 0; n < stage->node_count; n++)
        for (uint32_t t = 0; t < stage->nodes[n].tensor_count; t++)
            starts[count++] = stage->nodes[n].offsets[t];
    starts[count++] = 0; /* what lies before all, if anything does */
    qsort(starts, count, sizeof *starts, offset_compare);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || starts[kept - 1] != starts[i])
            starts[kept++] = starts[i];
    return kept;
}

static uint64_t place_of(const uint64_t *starts, const uint64_t *places, uint32_t count,
                         uint64_t offset)
{
    const uint64_t *found = bsearch(&offset, starts, count, sizeof *starts, offset_compare);

    return places[found - starts];
}

static uint64_t aligned(uint64_t elements)
{
    return (elements + CUDA_COPY_ALIGNMENT - 1) / CUDA_COPY_ALIGNMENT * CUDA_COPY_ALIGNMENT;
}

/* @param parts [2 * count]: starts, then places, of `count` tensors */
static void places_find(ty_stage_device *stage, uint64_t *parts, uint32_t count)
{
    uint64_t *starts = parts, *places = parts + count, next = 0;

    for (uint32_t i = 0; i < count; i++) {
        places[i] = next;
        next += aligned((i + 1 < count ? starts[i + 1] : stage->placed.count) - starts[i]);
    }
    stage->weight_stride = ty_parameter_stride(next);
    for (uint32_t n = 0; n < stage->node_count; n++)
        for (uint32_t t = 0; t < stage->nodes[n].tensor_count; t++)
            stage->nodes[n].weight_offsets[t] =
                place_of(starts, places, count, stage->nodes[n].offsets[t]);
}

ty_status cuda_copies_place(ty_stage_device *stage, ty_error *error)
{
    const size_t most = (size_t)stage->node_count * LAYER_MAX_TENSORS + 1;
    uint64_t *starts = ty_alloc(most, sizeof *starts), *parts = ty_alloc(2 * most, sizeof *parts);
    uint32_t count;
    ty_status status = TY_OK;

    stage->weight_stride = ty_parameter_stride(stage->placed.count);
    for (uint32_t n = 0; n < stage->node_count; n++)
        memcpy(stage->nodes[n].weight_offsets, stage->nodes[n].offsets,
               sizeof stage->nodes[n].offsets);
    if (starts == NULL || parts == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for the table of tensors");
        goto cleanup;
    }
    if (stage->type == CUDA_TYPE_FLOAT)
        goto cleanup;
    count = starts_list(stage, starts);
    memcpy(parts, starts, count * sizeof *starts);
    places_find(stage, parts, count);
    stage->copy_part_count = count;
    stage->copy_parts = cuda_buffer(stage, 2 * count * sizeof *parts);
    if (stage->copy_parts == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of GPU memory for the table of tensors");
        goto cleanup;
    }
    CUDA_CHECK(cudaMemcpyAsync(stage->copy_parts, parts, 2 * count * sizeof *parts,
                               cudaMemcpyHostToDevice, stage->stream),
               status, cleanup);
    CUDA_CHECK(cudaStreamSynchronize(stage->stream), status, cleanup);
cleanup:
    ty_free(starts);
    ty_free(parts);
    return status;
}

/* ---- How they start ---- */

static ty_status versions_fill(ty_stage_device *stage, const float *host, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t v = 0; v < cuda_version_count(stage); v++) {
        float *set = stage->versions + v * stage->set_stride;

        CUDA_CHECK(cudaMemcpyAsync(set, host, stage->placed.count * sizeof *host,
                                   cudaMemcpyHostToDevice, stage->stream),
                   status, done);
        cuda_weights_follow(stage, set, stage->placed.count, stage->stream);
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
