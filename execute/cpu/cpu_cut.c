/*
 * What crosses the cuts of a stage. All tensors of a cut are one message. A value that crosses lies
 * in the message itself wherever it can, so that nothing is copied; what is only relayed, from the
 * cut before the stage to that behind it, is, and the gradients found of it further on are where
 * backward begins.
 */
#include "cpu_layer.h"

#include <string.h>

static const ty_workload *workload_of(const ty_stage_device *stage)
{
    return stage->options.workload;
}

/* Floats of all tensors before the n-th. */
static uint64_t floats_before(const ty_stage_device *stage, const cpu_cut *cut, uint32_t n,
                              bool is_gradient)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < n; i++)
        if (!is_gradient || cut->tensors[i].has_gradient_part)
            sum += stage->values[cut->tensors[i].value].count;
    return sum;
}

ty_status cpu_cut_add(ty_stage_device *stage, cpu_cut *cut, uint32_t producer, uint32_t value,
                      ty_error *error)
{
    cpu_crossing *grown = ty_resize(cut->tensors, (size_t)cut->count + 1, sizeof *grown);

    if (grown == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors", (unsigned)cut->count + 1);
    cut->tensors = grown;
    cut->tensors[cut->count] = (cpu_crossing){
        .value = value,
        .offset = floats_before(stage, cut, cut->count, false),
        .gradient_offset = floats_before(stage, cut, cut->count, true),
        .has_gradient_part = producer >= ty_workload_first_backward(workload_of(stage)),
    };
    cut->count++;
    stage->values[stage->values[value].data_of].is_kept = true;
    stage->values[stage->values[value].gradient_of].is_gradient_kept = true;
    return TY_OK;
}

/* ---- Memory ---- */

/* A message for each slot, of all tensors, or of all gradients. */
static float **messages(ty_stage_device *stage, const cpu_cut *cut, bool is_gradient)
{
    const uint64_t floats = floats_before(stage, cut, cut->count, is_gradient);
    float **slots = cpu_buffer(stage, stage->options.slots, sizeof *slots);

    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++)
        if ((slots[s] = cpu_buffer(stage, floats, sizeof **slots)) == NULL)
            return NULL;
    return slots;
}

/* The part of each message that begins at `offset`. */
static float **parts(ty_stage_device *stage, float **from, uint64_t offset)
{
    float **slots = cpu_buffer(stage, stage->options.slots, sizeof *slots);

    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++)
        slots[s] = from[s] + offset;
    return slots;
}

/* Backward crosses cuts behind layers without parameters too: what nobody asks for stays 0, and is
 * not looked at where it arrives. */
static bool has_gradients(const cpu_cut *cut)
{
    for (uint32_t i = 0; i < cut->count; i++)
        if (cut->tensors[i].has_gradient_part)
            return true;
    return false;
}

/* Puts a tensor into its part of the message, unless another message has its memory. */
static bool place(ty_stage_device *stage, const cpu_cut *cut, cpu_crossing *tensor)
{
    const cpu_value *value = &stage->values[tensor->value];
    cpu_value *root = &stage->values[value->data_of];
    cpu_value *gradient_root = &stage->values[value->gradient_of];

    tensor->is_copied = root->data != NULL;
    if (!tensor->is_copied && (root->data = parts(stage, cut->data, tensor->offset)) == NULL)
        return false;
    if (!value->needs_gradient || !tensor->has_gradient_part)
        return true;
    tensor->is_gradient_copied = gradient_root->gradient != NULL;
    if (!tensor->is_gradient_copied)
        gradient_root->gradient = parts(stage, cut->gradient, tensor->gradient_offset);
    return gradient_root->gradient != NULL;
}

static bool cut_allocate(ty_stage_device *stage, cpu_cut *cut)
{
    if (cut->count == 0)
        return true;
    if ((cut->data = messages(stage, cut, false)) == NULL)
        return false;
    if (has_gradients(cut) && (cut->gradient = messages(stage, cut, true)) == NULL)
        return false;
    for (uint32_t i = 0; i < cut->count; i++)
        if (!place(stage, cut, &cut->tensors[i]))
            return false;
    return true;
}

/* Of several parts of a message that go to one memory, the first to come is written: the one that
 * lies there is there before. */
static void order_parts(ty_stage_device *stage)
{
    const cpu_cut *cut = &stage->output;

    for (uint32_t i = 0; i < cut->count; i++) {
        const uint32_t root = stage->values[cut->tensors[i].value].gradient_of;
        for (uint32_t k = 0; k < cut->count; k++)
            if (cut->tensors[k].has_gradient_part &&
                stage->values[cut->tensors[k].value].gradient_of == root &&
                (k < i || (k != i && !cut->tensors[k].is_gradient_copied)))
                cut->tensors[i].adds = true;
    }
}

bool cpu_cuts_allocate(ty_stage_device *stage)
{
    if (!cut_allocate(stage, &stage->input) || !cut_allocate(stage, &stage->output))
        return false;
    order_parts(stage);
    return true;
}

/* ---- Passes ---- */

void cpu_output_gather(ty_stage_device *stage, uint32_t slot)
{
    for (uint32_t i = 0; i < stage->output.count; i++) {
        const cpu_crossing *tensor = &stage->output.tensors[i];
        const cpu_value *value = &stage->values[tensor->value];
        if (tensor->is_copied)
            memcpy(stage->output.data[slot] + tensor->offset, value->data[slot],
                   value->count * sizeof(float));
    }
}

void cpu_gradient_scatter(ty_stage_device *stage, uint32_t slot)
{
    for (uint32_t i = 0; i < stage->output.count; i++) {
        const cpu_crossing *tensor = &stage->output.tensors[i];
        const cpu_value *value = &stage->values[tensor->value];
        if (tensor->is_gradient_copied)
            cpu_accumulate(value->count, stage->output.gradient[slot] + tensor->gradient_offset,
                           tensor->adds, value->gradient[slot]);
    }
}
