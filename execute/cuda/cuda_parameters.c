/* Where the parameters of a stage and their gradients lie, also where replicas share them out, how
 * they start, in every set, and its statistics. */
#include "cuda_stage.h"

#include <stdlib.h>
#include <string.h>

static uint64_t aligned(uint64_t elements)
{
    return (elements + CUDA_COPY_ALIGNMENT - 1) / CUDA_COPY_ALIGNMENT * CUDA_COPY_ALIGNMENT;
}

/* ---- Floats ---- */

const cuda_range *cuda_range_find(const cuda_range *ranges, uint32_t count, uint64_t offset)
{
    for (uint32_t r = 0; r < count; r++)
        if (offset >= ranges[r].offset && offset - ranges[r].offset < ranges[r].count)
            return &ranges[r];
    return NULL;
}

/* Behind the last there is nothing. */
static uint64_t start_in(const cuda_range *range, uint64_t offset)
{
    return range == NULL ? 0 : range->start + (offset - range->offset);
}

uint64_t cuda_kept_start(const cuda_layout *layout, uint64_t offset)
{
    return start_in(cuda_range_find(layout->kept, layout->kept_count, offset), offset);
}

uint64_t cuda_used_start(const cuda_layout *layout, uint64_t offset)
{
    const cuda_range *whole = cuda_range_find(layout->whole, layout->whole_count, offset);

    return whole != NULL ? start_in(whole, offset) : cuda_kept_start(layout, offset);
}

/* One range of all. */
static ty_status layout_of_all(cuda_layout *layout, uint64_t count, ty_error *error)
{
    layout->kept = ty_alloc(1, sizeof *layout->kept);
    if (layout->kept == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for the table of parameters");
    layout->kept[0] = (cuda_range){.count = count};
    layout->kept_count = 1;
    layout->floats = count;
    return TY_OK;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Where each range's place starts, if the ranges take so much of it. @return the end of all */
static uint64_t places_stack(const ty_sharding *sharding, const uint64_t *taken, uint64_t start,
                             uint64_t *starts)
{
    uint32_t places = 0;

    for (uint32_t r = 0; r < sharding->range_count; r++)
        places = sharding->ranges[r].place >= places ? sharding->ranges[r].place + 1 : places;
    for (uint32_t p = 0; p < places; p++) {
        uint64_t size = 0;

        for (uint32_t r = 0; r < sharding->range_count; r++)
            if (sharding->ranges[r].place == p) {
                size = larger(size, taken[r]);
                starts[r] = start;
            }
        start += ty_parameter_stride(size);
    }
    return start;
}

static ty_status layout_shared_out(cuda_layout *layout, const ty_sharding *sharding,
                                   ty_error *error)
{
    uint64_t *taken = ty_alloc(2 * (size_t)sharding->range_count, sizeof *taken);
    uint64_t *starts = taken == NULL ? NULL : taken + sharding->range_count;

    layout->kept = ty_alloc(sharding->kept_count, sizeof *layout->kept);
    layout->whole = ty_alloc(sharding->range_count, sizeof *layout->whole);
    if (taken == NULL || layout->kept == NULL || layout->whole == NULL) {
        ty_free(taken);
        return ty_fail(error, TY_ENOMEM, "out of memory for the table of parameters");
    }
    layout->kept_count = sharding->kept_count;
    layout->whole_count = sharding->range_count;
    for (uint32_t k = 0; k < sharding->kept_count; k++) {
        const ty_parameter_range *range = &sharding->kept[k];

        layout->kept[k] = (cuda_range){range->offset, range->count, layout->floats};
        layout->floats += aligned(range->count);
    }
    for (uint32_t r = 0; r < sharding->range_count; r++)
        taken[r] = sharding->ranges[r].whole.count;
    layout->floats = places_stack(sharding, taken, layout->floats, starts);
    for (uint32_t r = 0; r < sharding->range_count; r++)
        layout->whole[r] = (cuda_range){sharding->ranges[r].whole.offset, taken[r], starts[r]};
    ty_free(taken);
    return TY_OK;
}

static ty_status layouts_place(ty_stage_device *stage, const ty_sharding *sharding, ty_error *error)
{
    const bool weights = sharding != NULL && sharding->of_weights;
    const bool gradients = sharding != NULL && sharding->of_gradients;
    ty_status status;

    TY_CHECK(weights ? layout_shared_out(&stage->weight_layout, sharding, error)
                     : layout_of_all(&stage->weight_layout, stage->placed.count, error),
             status, done);
    TY_CHECK(gradients ? layout_shared_out(&stage->gradient_layout, sharding, error)
                       : layout_of_all(&stage->gradient_layout, stage->placed.count, error),
             status, done);
    for (uint32_t n = 0; n < stage->node_count; n++) {
        cuda_node *node = &stage->nodes[n];

        for (uint32_t t = 0; t < node->tensor_count; t++) {
            node->float_offsets[t] = cuda_used_start(&stage->weight_layout, node->offsets[t]);
            node->gradient_offsets[t] = cuda_used_start(&stage->gradient_layout, node->offsets[t]);
        }
    }
done:
    return status;
}

void cuda_parameters_clear(ty_stage_device *stage)
{
    ty_free(stage->weight_layout.kept);
    ty_free(stage->weight_layout.whole);
    ty_free(stage->gradient_layout.kept);
    ty_free(stage->gradient_layout.whole);
}

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

/* Among what is kept, or in the range's place. */
static ty_status places_find(ty_stage_device *stage, const ty_sharding *sharding,
                             const uint64_t *starts, uint64_t *places, uint32_t count,
                             ty_error *error)
{
    const cuda_layout *layout = &stage->weight_layout;
    uint64_t *taken = ty_alloc(2 * (size_t)layout->whole_count, sizeof *taken), kept = 0;
    uint64_t *bases = taken == NULL ? NULL : taken + layout->whole_count;

    if (taken == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for the table of tensors");
    for (uint32_t i = 0; i < count; i++) {
        const uint64_t end = i + 1 < count ? starts[i + 1] : stage->placed.count;
        const cuda_range *whole = cuda_range_find(layout->whole, layout->whole_count, starts[i]);
        uint64_t *next = whole == NULL ? &kept : &taken[whole - layout->whole];

        places[i] = *next;
        *next += aligned(end - starts[i]);
    }
    if (layout->whole_count > 0)
        kept = places_stack(sharding, taken, kept, bases);
    for (uint32_t i = 0; i < count; i++) {
        const cuda_range *whole = cuda_range_find(layout->whole, layout->whole_count, starts[i]);

        places[i] += whole == NULL ? 0 : bases[whole - layout->whole];
    }
    ty_free(taken);
    stage->weight_stride = ty_parameter_stride(kept);
    for (uint32_t n = 0; n < stage->node_count; n++)
        for (uint32_t t = 0; t < stage->nodes[n].tensor_count; t++)
            stage->nodes[n].weight_offsets[t] =
                place_of(starts, places, count, stage->nodes[n].offsets[t]);
    return TY_OK;
}

/* Where tensors are in a set of weights in the stage's type. */
static ty_status copies_place(ty_stage_device *stage, const ty_sharding *sharding, ty_error *error)
{
    const size_t most = (size_t)stage->node_count * LAYER_MAX_TENSORS + 1;
    uint64_t *starts = ty_alloc(most, sizeof *starts), *parts = ty_alloc(2 * most, sizeof *parts);
    uint32_t count;
    ty_status status = TY_OK;

    stage->weight_stride = stage->set_stride;
    for (uint32_t n = 0; n < stage->node_count; n++)
        memcpy(stage->nodes[n].weight_offsets, stage->nodes[n].float_offsets,
               sizeof stage->nodes[n].float_offsets);
    if (starts == NULL || parts == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for the table of tensors");
        goto cleanup;
    }
    if (stage->type == CUDA_TYPE_FLOAT)
        goto cleanup;
    count = starts_list(stage, starts);
    memcpy(parts, starts, count * sizeof *starts);
    TY_CHECK(places_find(stage, sharding, parts, parts + count, count, error), status, cleanup);
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
    return stage->parameters != NULL && stage->gradients != NULL && stage->weights != NULL;
}

ty_status cuda_parameters_open(ty_stage_device *stage, const ty_sharding *sharding, ty_error *error)
{
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, done);
    TY_CHECK(layouts_place(stage, sharding, error), status, done);
    stage->set_stride = ty_parameter_stride(stage->weight_layout.floats);
    TY_CHECK(copies_place(stage, sharding, error), status, done);
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
