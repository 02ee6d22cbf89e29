/*
 * The cuts of a stage. All tensors of a cut are one message, tensor after tensor, as planes. A
 * backend copies them from and to values, or stores a value that crosses in the message itself
 * wherever possible, so that it copies only tensors that are relayed.
 */
#include "stage.h"

ty_status stage_cut_add(ty_stage_device *stage, stage_cut *cut, uint32_t value,
                        bool has_gradient_part, ty_error *error)
{
    const uint64_t count = stage->values[value].count;
    stage_crossing *grown = ty_resize(cut->tensors, (size_t)cut->count + 1, sizeof *grown);

    if (grown == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors", (unsigned)cut->count + 1);
    cut->tensors = grown;
    cut->tensors[cut->count++] = (stage_crossing){.value = value,
                                                  .offset = cut->numbers,
                                                  .gradient_offset = cut->gradient_numbers,
                                                  .has_gradient_part = has_gradient_part};
    cut->numbers += count;
    cut->gradient_numbers += has_gradient_part ? count : 0;
    stage->values[stage->values[value].gradient_of].crosses = true;
    if (!stage->backend->copies_messages)
        stage->values[stage->values[value].data_of].is_kept = true;
    return TY_OK;
}

/* The part of each message that begins at `offset`. */
static void **parts(ty_stage_device *stage, const stage_cut *cut, void **from, uint64_t offset)
{
    void **slots = stage->backend->host_buffer(stage, stage->options.slots * sizeof *slots);

    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++)
        slots[s] = stage_part_at(cut, from[s], offset);
    return slots;
}

/* Puts a tensor into its part of the message, unless another message has its memory. */
static bool place(ty_stage_device *stage, const stage_cut *cut, stage_crossing *tensor)
{
    const stage_value *value = &stage->values[tensor->value];
    stage_value *root = &stage->values[value->data_of];
    stage_value *gradient_root = &stage->values[value->gradient_of];

    tensor->is_copied = root->data != NULL;
    if (!tensor->is_copied && (root->data = parts(stage, cut, cut->data, tensor->offset)) == NULL)
        return false;
    if (!stage_has_gradient(stage, tensor))
        return true;
    tensor->is_gradient_copied = gradient_root->gradient != NULL;
    if (!tensor->is_gradient_copied)
        gradient_root->gradient = parts(stage, cut, cut->gradient, tensor->gradient_offset);
    return gradient_root->gradient != NULL;
}

/* Backward crosses cuts after layers without parameters too: a gradient that no layer needs stays
 * 0. */
static bool cut_allocate(ty_stage_device *stage, stage_cut *cut)
{
    void *(*buffer)(ty_stage_device *, uint64_t) = stage->backend->buffer;

    if (cut->count == 0)
        return true;
    cut->data = stage_slots(stage, cut->numbers * cut->number_bytes, false, buffer);
    if (cut->data == NULL)
        return false;
    if (cut->gradient_numbers > 0) {
        cut->gradient =
            stage_slots(stage, cut->gradient_numbers * cut->number_bytes, false, buffer);
        if (cut->gradient == NULL)
            return false;
    }
    for (uint32_t i = 0; i < cut->count && !stage->backend->copies_messages; i++)
        if (!place(stage, cut, &cut->tensors[i]))
            return false;
    return true;
}

bool stage_cuts_allocate(ty_stage_device *stage)
{
    return cut_allocate(stage, &stage->before) && cut_allocate(stage, &stage->behind);
}
