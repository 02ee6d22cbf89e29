/*
 * What crosses the cuts of a stage. All tensors of a cut are one message, tensor behind tensor,
 * images as planes, from which they are copied into values and back, so that what is only relayed,
 * from the cut before the stage to that behind it, is a value like any other. What a neighbour
 * found of the gradient of a value that crosses is where backward begins.
 */
#include "cuda_stage.h"

ty_status cuda_cut_add(const ty_stage_device *stage, cuda_cut *cut, uint32_t value,
                       bool has_gradient_part, ty_error *error)
{
    const uint64_t count = stage->values[value].count;
    cuda_crossing *grown = ty_resize(cut->tensors, (size_t)cut->count + 1, sizeof *grown);

    if (grown == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors", (unsigned)cut->count + 1);
    cut->tensors = grown;
    cut->tensors[cut->count++] = (cuda_crossing){.value = value,
                                                 .offset = cut->numbers,
                                                 .gradient_offset = cut->gradient_numbers,
                                                 .has_gradient_part = has_gradient_part};
    cut->numbers += count;
    cut->gradient_numbers += has_gradient_part ? count : 0;
    return TY_OK;
}

/* Whether this stage has a gradient for it. What nobody asks for stays 0 in the message. */
static bool has_gradient(const ty_stage_device *stage, const cuda_crossing *tensor)
{
    return tensor->has_gradient_part && stage->values[tensor->value].needs_gradient;
}

void cuda_cut_order(ty_stage_device *stage, bool *is_written)
{
    for (uint32_t i = 0; i < stage->behind.count; i++) {
        cuda_crossing *tensor = &stage->behind.tensors[i];
        const uint32_t root = stage->values[tensor->value].gradient_of;

        if (!has_gradient(stage, tensor))
            continue;
        tensor->adds = is_written[root];
        is_written[root] = true;
    }
}

static uint64_t bytes_of(const cuda_cut *cut, uint64_t numbers)
{
    return numbers * (cut->type == CUDA_TYPE_FLOAT ? sizeof(float) : sizeof(uint16_t));
}

/* A message for each slot; NULL when memory runs out. */
static void **messages(ty_stage_device *stage, uint64_t bytes)
{
    void **slots = cuda_host_buffer(stage, stage->options.slots * sizeof *slots);

    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++)
        if ((slots[s] = cuda_buffer(stage, bytes)) == NULL)
            return NULL;
    return slots;
}

static bool cut_allocate(ty_stage_device *stage, cuda_cut *cut)
{
    if (cut->numbers > 0 && (cut->data = messages(stage, bytes_of(cut, cut->numbers))) == NULL)
        return false;
    if (cut->gradient_numbers > 0)
        cut->gradient = messages(stage, bytes_of(cut, cut->gradient_numbers));
    return cut->gradient_numbers == 0 || cut->gradient != NULL;
}

bool cuda_cuts_allocate(ty_stage_device *stage)
{
    return cut_allocate(stage, &stage->before) && cut_allocate(stage, &stage->behind);
}

void cuda_cuts_free(ty_stage_device *stage)
{
    ty_free(stage->before.tensors);
    ty_free(stage->behind.tensors);
}

/* ---- Passes ---- */

static void *part_of(const cuda_cut *cut, void *message, uint64_t offset)
{
    return (char *)message + bytes_of(cut, offset);
}

/* A part of a message into what is like the value. */
static void part_take(const ty_stage_device *stage, const cuda_cut *cut, const cuda_value *like,
                      const void *from, bool adds, void *to)
{
    if (cuda_is_channels_last(like))
        cuda_transpose(cut->type, cuda_batch(stage), cuda_channels(like), cuda_pixels(like), from,
                       stage->type, adds, to, stage->stream);
    else if (cut->type == stage->type)
        cuda_accumulate(stage->type, like->count, from, adds, to, stage->stream);
    else
        cuda_take_floats(stage->type, like->count, from, adds, to, stage->stream);
}

/* And from it. */
static void part_give(const ty_stage_device *stage, const cuda_cut *cut, const cuda_value *like,
                      const void *from, void *to)
{
    if (cuda_is_channels_last(like))
        cuda_transpose(stage->type, cuda_batch(stage), cuda_pixels(like), cuda_channels(like), from,
                       cut->type, false, to, stage->stream);
    else
        cuda_convert(stage->type, from, cut->type, to, like->count, stage->stream);
}

void cuda_input_take(ty_stage_device *stage, uint32_t slot)
{
    const cuda_cut *cut = &stage->before;

    for (uint32_t i = 0; i < cut->count; i++) {
        const cuda_crossing *tensor = &cut->tensors[i];
        const cuda_value *value = &stage->values[tensor->value];

        part_take(stage, cut, value, part_of(cut, cut->data[slot], tensor->offset), false,
                  value->data[slot]);
    }
}

void cuda_output_give(ty_stage_device *stage, uint32_t slot)
{
    const cuda_cut *cut = &stage->behind;

    for (uint32_t i = 0; i < cut->count; i++) {
        const cuda_crossing *tensor = &cut->tensors[i];
        const cuda_value *value = &stage->values[tensor->value];

        part_give(stage, cut, value, value->data[slot],
                  part_of(cut, cut->data[slot], tensor->offset));
    }
}

void cuda_gradient_take(ty_stage_device *stage, uint32_t slot)
{
    const cuda_cut *cut = &stage->behind;

    for (uint32_t i = 0; i < cut->count; i++) {
        const cuda_crossing *tensor = &cut->tensors[i];
        const cuda_value *value = &stage->values[tensor->value];

        if (has_gradient(stage, tensor))
            part_take(stage, cut, value, part_of(cut, cut->gradient[slot], tensor->gradient_offset),
                      tensor->adds, value->gradient[slot]);
    }
}

void cuda_gradient_give(ty_stage_device *stage, uint32_t slot)
{
    const cuda_cut *cut = &stage->before;

    for (uint32_t i = 0; i < cut->count; i++) {
        const cuda_crossing *tensor = &cut->tensors[i];
        const cuda_value *value = &stage->values[tensor->value];

        if (has_gradient(stage, tensor))
            part_give(stage, cut, value, value->gradient[slot],
                      part_of(cut, cut->gradient[slot], tensor->gradient_offset));
    }
}
