/* Layout of a stage's parameters and gradients, unsharded or sharded over replicas (ZeRO). */
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

/* The last range ends the set. */
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
    TY_TRY(ty_check_memory(layout->kept != NULL, error));
    layout->kept[0] = (cuda_range){.count = count};
    layout->kept_count = 1;
    layout->floats = count;
    return TY_OK;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Start of each range's place, for `taken` floats per range.
 * @param in_turns false: each has its own place; @return the end of all */
static uint64_t places_stack(const ty_sharding *sharding, bool in_turns, const uint64_t *taken,
                             uint64_t start, uint64_t *starts)
{
    uint32_t places = in_turns ? 0 : sharding->range_count;

    for (uint32_t r = 0; r < sharding->range_count && in_turns; r++)
        places = sharding->ranges[r].place >= places ? sharding->ranges[r].place + 1 : places;
    for (uint32_t p = 0; p < places; p++) {
        uint64_t size = 0;

        for (uint32_t r = 0; r < sharding->range_count; r++)
            if ((in_turns ? sharding->ranges[r].place : r) == p) {
                size = larger(size, taken[r]);
                starts[r] = start;
            }
        start += ty_parameter_stride(size);
    }
    return start;
}

/* @param taken [range_count] floats in a range's place; NULL: the entire range */
static ty_status layout_shared_out(cuda_layout *layout, const ty_sharding *sharding, bool in_turns,
                                   const uint64_t *taken, ty_error *error)
{
    uint64_t *sizes = ty_alloc(2 * (size_t)sharding->range_count, sizeof *sizes);
    uint64_t *starts = sizes == NULL ? NULL : sizes + sharding->range_count;

    layout->kept = ty_alloc(sharding->kept_count, sizeof *layout->kept);
    layout->whole = ty_alloc(sharding->range_count, sizeof *layout->whole);
    if (sizes == NULL || layout->kept == NULL || layout->whole == NULL) {
        ty_free(sizes);
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
        sizes[r] = taken != NULL ? taken[r] : sharding->ranges[r].whole.count;
    layout->floats = places_stack(sharding, in_turns, sizes, layout->floats, starts);
    for (uint32_t r = 0; r < sharding->range_count; r++)
        layout->whole[r] = (cuda_range){sharding->ranges[r].whole.offset,
                                        sharding->ranges[r].whole.count, starts[r]};
    ty_free(sizes);
    return TY_OK;
}

/* ---- Tensors ----
 *
 * Floats are stored as in device.h, tensors without gaps. After a tensor with an odd number of
 * elements, the next one is misaligned for 16-bit reads of tensor cores, so in the type of the
 * passes each begins at a multiple. Passes in 16 bits only have that copy of sharded tensors, and
 * floats made from it if they read floats. */

typedef struct tensor_table {
    uint32_t count;
    uint64_t *starts;  /* [count], ascending: first floats of tensors */
    uint64_t *places;  /* their places in the type of the passes */
    uint64_t *floats;  /* their places as floats; see cuda_copy. The three arrays are contiguous */
    uint64_t *padding; /* [count]: zeros after each in the type of the passes */
    bool *is_read_as_floats; /* [count] */
} tensor_table;

static void table_free(tensor_table *table)
{
    ty_free(table->starts);
    ty_free(table->padding);
    ty_free(table->is_read_as_floats);
}

static int offset_compare(const void *x, const void *y)
{
    const uint64_t a = *(const uint64_t *)x, b = *(const uint64_t *)y;

    return (a > b) - (a < b);
}

static uint32_t table_find(const tensor_table *table, uint64_t offset)
{
    const uint64_t *found =
        bsearch(&offset, table->starts, table->count, sizeof *table->starts, offset_compare);

    return (uint32_t)(found - table->starts);
}

/* Size of a tensor in floats. */
static uint64_t table_size(const ty_stage_device *stage, const tensor_table *table, uint32_t part)
{
    const bool is_last = part + 1 == table->count;

    return (is_last ? stage->placed.count : table->starts[part + 1]) - table->starts[part];
}

/* Size of a tensor in the type of the passes. */
static uint64_t table_room(const ty_stage_device *stage, const tensor_table *table, uint32_t part)
{
    return aligned(table_size(stage, table, part) + table->padding[part]);
}

static ty_status table_make(const ty_stage_device *stage, tensor_table *table, ty_error *error)
{
    const size_t most = (size_t)stage->node_count * LAYER_MAX_TENSORS + 1;
    uint32_t count = 0;

    *table = (tensor_table){.starts = ty_alloc(3 * most, sizeof *table->starts),
                            .padding = ty_alloc(most, sizeof *table->padding),
                            .is_read_as_floats = ty_alloc(most, sizeof *table->is_read_as_floats)};
    if (table->starts == NULL || table->padding == NULL || table->is_read_as_floats == NULL) {
        table_free(table);
        return ty_fail(error, TY_ENOMEM, "out of memory for the table of tensors");
    }
    for (uint32_t n = 0; n < stage->node_count; n++)
        for (uint32_t t = 0; t < stage->nodes[n].tensor_count; t++)
            table->starts[count++] = stage->nodes[n].offsets[t];
    table->starts[count++] = 0; /* floats before the first tensor, if any */
    qsort(table->starts, count, sizeof *table->starts, offset_compare);
    for (uint32_t i = 0; i < count; i++)
        if (table->count == 0 || table->starts[table->count - 1] != table->starts[i])
            table->starts[table->count++] = table->starts[i];
    table->places = table->starts + table->count;
    table->floats = table->places + table->count;
    for (uint32_t n = 0; n < stage->node_count; n++) {
        const stage_node *node = &stage->nodes[n];
        sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};

        ty_layer_tensors(stage->options.workload, node->layer_index, tensors);
        if (cuda_linear_padding(stage, node) > 0)
            table->padding[table_find(table, node->offsets[0])] = cuda_linear_padding(stage, node);
        for (uint32_t t = 0; t < node->tensor_count; t++)
            if ((node->kind->floats & STAGE_BIT(t)) != 0 &&
                sharded_tensor_count(&tensors[t], tp_size_of(&stage->options)) > 0)
                table->is_read_as_floats[table_find(table, node->offsets[t])] = true;
    }
    return TY_OK;
}

/* For each range, the size used in its place by tensors stored as floats, or by all tensors; and
 * each tensor's offset in it. */
static void places_fill(const ty_stage_device *stage, const ty_sharding *sharding,
                        const tensor_table *table, bool of_floats, uint64_t *taken,
                        uint64_t *places)
{
    for (uint32_t i = 0; i < table->count; i++)
        for (uint32_t r = 0; r < sharding->range_count; r++) {
            const ty_parameter_range *whole = &sharding->ranges[r].whole;

            if (table->starts[i] < whole->offset ||
                table->starts[i] - whole->offset >= whole->count ||
                (of_floats && !table->is_read_as_floats[i]))
                continue;
            places[i] = taken[r];
            taken[r] +=
                of_floats ? aligned(table_size(stage, table, i)) : table_room(stage, table, i);
        }
}

static ty_status weights_shared_out(ty_stage_device *stage, const ty_sharding *sharding,
                                    tensor_table *table, ty_error *error)
{
    cuda_layout *layout = &stage->own->weight_layout;
    uint64_t *taken;
    ty_status status;

    if (stage->own->type == CUDA_TYPE_FLOAT)
        return layout_shared_out(layout, sharding, !sharding->weights_last, NULL, error);
    taken = ty_alloc(sharding->range_count, sizeof *taken);
    TY_TRY(ty_check_memory(taken != NULL, error));
    places_fill(stage, sharding, table, true, taken, table->floats);
    status = layout_shared_out(layout, sharding, !sharding->weights_last, taken, error);
    for (uint32_t i = 0; i < table->count && status == TY_OK; i++) {
        const cuda_range *whole =
            cuda_range_find(layout->whole, layout->whole_count, table->starts[i]);

        if (whole != NULL)
            table->floats[i] =
                table->is_read_as_floats[i] ? whole->start + table->floats[i] : CUDA_NO_FLOATS;
    }
    ty_free(taken);
    return status;
}

static ty_status layouts_place(ty_stage_device *stage, const ty_sharding *sharding,
                               tensor_table *table, ty_error *error)
{
    const bool weights = sharding != NULL && sharding->of_weights;
    const bool gradients = sharding != NULL && sharding->of_gradients;
    const cuda_layout *of_weights = &stage->own->weight_layout;

    TY_TRY(weights ? weights_shared_out(stage, sharding, table, error)
                   : layout_of_all(&stage->own->weight_layout, stage->placed.count, error));
    TY_TRY(gradients ? layout_shared_out(&stage->own->gradient_layout, sharding, true, NULL, error)
                     : layout_of_all(&stage->own->gradient_layout, stage->placed.count, error));
    for (uint32_t n = 0; n < stage->node_count; n++) {
        stage_node *node = &stage->nodes[n];

        for (uint32_t t = 0; t < node->tensor_count; t++) {
            const uint64_t offset = node->offsets[t];
            const bool is_apart =
                stage->own->type != CUDA_TYPE_FLOAT &&
                cuda_range_find(of_weights->whole, of_weights->whole_count, offset) != NULL;

            node->float_offsets[t] = is_apart ? table->floats[table_find(table, offset)]
                                              : cuda_used_start(of_weights, offset);
            node->gradient_offsets[t] = cuda_used_start(&stage->own->gradient_layout, offset);
        }
    }
    return TY_OK;
}

/* ---- Copies in the type of the passes ---- */

/* Finds each tensor in the unsharded ranges, or in the range's place. */
static ty_status copies_find(ty_stage_device *stage, const ty_sharding *sharding,
                             const tensor_table *table, ty_error *error)
{
    const cuda_layout *layout = &stage->own->weight_layout;
    uint64_t *taken = ty_alloc(2 * (size_t)layout->whole_count, sizeof *taken), kept = 0;
    uint64_t *bases = taken == NULL ? NULL : taken + layout->whole_count;

    TY_TRY(ty_check_memory(taken != NULL, error));
    for (uint32_t i = 0; i < table->count; i++)
        if (cuda_range_find(layout->whole, layout->whole_count, table->starts[i]) == NULL) {
            table->places[i] = kept;
            kept += table_room(stage, table, i);
        }
    if (layout->whole_count > 0) {
        places_fill(stage, sharding, table, false, taken, table->places);
        kept = places_stack(sharding, !sharding->weights_last, taken, kept, bases);
    }
    for (uint32_t i = 0; i < table->count; i++) {
        const cuda_range *whole =
            cuda_range_find(layout->whole, layout->whole_count, table->starts[i]);

        table->places[i] += whole == NULL ? 0 : bases[whole - layout->whole];
    }
    ty_free(taken);
    stage->own->weight_stride = ty_parameter_stride(kept);
    for (uint32_t n = 0; n < stage->node_count; n++)
        for (uint32_t t = 0; t < stage->nodes[n].tensor_count; t++)
            stage->nodes[n].weight_offsets[t] =
                table->places[table_find(table, stage->nodes[n].offsets[t])];
    return TY_OK;
}

/* Places of tensors in a set of weights in the stage's type. */
static ty_status copies_place(ty_stage_device *stage, const ty_sharding *sharding,
                              const tensor_table *table, ty_error *error)
{
    const uint64_t bytes = 3 * table->count * sizeof *table->starts;
    ty_status status = TY_OK;

    stage->own->weight_stride = stage->set_stride;
    for (uint32_t n = 0; n < stage->node_count; n++)
        memcpy(stage->nodes[n].weight_offsets, stage->nodes[n].float_offsets,
               sizeof stage->nodes[n].float_offsets);
    if (stage->own->type == CUDA_TYPE_FLOAT)
        return TY_OK;
    TY_CHECK(copies_find(stage, sharding, table, error), status, done);
    stage->own->copy_part_count = table->count;
    stage->own->copy_parts = cuda_buffer(stage, bytes);
    TY_TRY(ty_check_memory(stage->own->copy_parts != NULL, error));
    CUDA_CHECK(cudaMemcpyAsync(stage->own->copy_parts, table->starts, bytes, cudaMemcpyHostToDevice,
                               stage->own->stream),
               status, done);
    CUDA_CHECK(cudaStreamSynchronize(stage->own->stream), status, done);
done:
    return status;
}

ty_status cuda_layouts_place(ty_stage_device *stage, const ty_sharding *sharding, ty_error *error)
{
    tensor_table table = {0};
    ty_status status;

    TY_CHECK(table_make(stage, &table, error), status, done);
    TY_CHECK(layouts_place(stage, sharding, &table, error), status, done);
    stage->set_stride = ty_parameter_stride(stage->own->weight_layout.floats);
    status = copies_place(stage, sharding, &table, error);
done:
    table_free(&table);
    return status;
}

void cuda_layouts_clear(ty_stage_device *stage)
{
    ty_free(stage->own->weight_layout.kept);
    ty_free(stage->own->weight_layout.whole);
    ty_free(stage->own->gradient_layout.kept);
    ty_free(stage->own->gradient_layout.whole);
}
