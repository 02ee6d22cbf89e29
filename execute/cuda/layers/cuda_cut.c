/* Converts between messages and values: tensor after tensor, images as planes. A tensor that is
 * only relayed is a value like any other. */
#include "cuda_stage.h"

/* Type of a message's numbers. */
static cuda_type type_of(const ty_stage_device *stage, const stage_cut *cut)
{
    return cut->number_bytes == sizeof(float) ? CUDA_TYPE_FLOAT : stage->own->type;
}

/* Converts a part of a message to the value's layout. */
static void part_take(const ty_stage_device *stage, const stage_cut *cut, const stage_value *like,
                      const void *from, bool adds, void *to)
{
    if (stage_is_channels_last(like))
        cuda_transpose(type_of(stage, cut), stage_batch(stage), stage_channels(like),
                       stage_pixels(like), from, stage->own->type, adds, to, stage->own->stream);
    else if (type_of(stage, cut) == stage->own->type)
        cuda_accumulate(stage->own->type, like->count, from, adds, to, stage->own->stream);
    else
        cuda_take_floats(stage->own->type, like->count, from, adds, to, stage->own->stream);
}

/* The reverse. */
static void part_give(const ty_stage_device *stage, const stage_cut *cut, const stage_value *like,
                      const void *from, void *to)
{
    if (stage_is_channels_last(like))
        cuda_transpose(stage->own->type, stage_batch(stage), stage_pixels(like),
                       stage_channels(like), from, type_of(stage, cut), false, to,
                       stage->own->stream);
    else
        cuda_convert(stage->own->type, from, type_of(stage, cut), to, like->count,
                     stage->own->stream);
}

void cuda_input_take(ty_stage_device *stage, uint32_t slot)
{
    const stage_cut *cut = &stage->before;

    for (uint32_t i = 0; i < cut->count; i++) {
        const stage_crossing *tensor = &cut->tensors[i];
        const stage_value *value = &stage->values[tensor->value];

        part_take(stage, cut, value, stage_part_at(cut, cut->data[slot], tensor->offset), false,
                  value->data[slot]);
    }
}

void cuda_output_give(ty_stage_device *stage, uint32_t slot)
{
    const stage_cut *cut = &stage->behind;

    for (uint32_t i = 0; i < cut->count; i++) {
        const stage_crossing *tensor = &cut->tensors[i];
        const stage_value *value = &stage->values[tensor->value];

        part_give(stage, cut, value, value->data[slot],
                  stage_part_at(cut, cut->data[slot], tensor->offset));
    }
}

void cuda_gradient_take(ty_stage_device *stage, uint32_t slot)
{
    const stage_cut *cut = &stage->behind;

    for (uint32_t i = 0; i < cut->count; i++) {
        const stage_crossing *tensor = &cut->tensors[i];
        const stage_value *value = &stage->values[tensor->value];

        if (stage_has_gradient(stage, tensor))
            part_take(stage, cut, value,
                      stage_part_at(cut, cut->gradient[slot], tensor->gradient_offset),
                      tensor->adds, value->gradient[slot]);
    }
}

void cuda_gradient_give(ty_stage_device *stage, uint32_t slot)
{
    const stage_cut *cut = &stage->before;

    for (uint32_t i = 0; i < cut->count; i++) {
        const stage_crossing *tensor = &cut->tensors[i];
        const stage_value *value = &stage->values[tensor->value];

        if (stage_has_gradient(stage, tensor))
            part_give(stage, cut, value, value->gradient[slot],
                      stage_part_at(cut, cut->gradient[slot], tensor->gradient_offset));
    }
}
