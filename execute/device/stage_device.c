/* Passes over a stage's nodes, and the functions of device.h that are the same on every backend. */
#include "stage.h"

/* ---- Passes ---- */

static bool is_between(const stage_node *node, const stage_pass *pass)
{
    return node->layer_index >= pass->first && node->layer_index - pass->first < pass->count;
}

/* Recomputing skips a node whose output is stored, or computes the rest of it. */
static ty_status node_forward(ty_stage_device *stage, const stage_node *node,
                              const stage_pass *pass, ty_error *error)
{
    if (pass->is_again && node->is_kept)
        return TY_OK;
    if (pass->is_again && node->kept_bytes > 0)
        return node->kind->again(stage, node, pass->slot, error);
    return node->kind->forward(stage, node, pass->slot, error);
}

ty_status stage_nodes_forward(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t n = 0; n < stage->node_count && status == TY_OK; n++)
        if (is_between(&stage->nodes[n], pass))
            status = node_forward(stage, &stage->nodes[n], pass, error);
    return status;
}

/* A layer that has only frozen ones before it does nothing: its output needs no gradient. */
ty_status stage_nodes_backward(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t n = stage->node_count; n-- > 0 && status == TY_OK;) {
        const stage_node *node = &stage->nodes[n];
        const bool has_part = pass->part != STAGE_WEIGHTS || node->tensor_count > 0;
        if (has_part && is_between(node, pass) && stage->values[node->output].needs_gradient)
            status = node->kind->backward(stage, node, pass->slot, pass->is_first, error);
    }
    return status;
}

static ty_status pass_run(ty_stage_device *stage, const stage_pass *pass, ty_error *error)
{
    const ty_status status =
        stage_range_check(&stage->options, pass->slot, pass->first, pass->count, error);

    if (status != TY_OK)
        return status;
    stage->slot = pass->slot;
    if (!pass->is_forward)
        stage->part = pass->part;
    return stage->backend->pass(stage, pass, error);
}

ty_status stage_forward(ty_stage_device *stage, uint32_t slot, uint32_t first, uint32_t count,
                        ty_error *error)
{
    return pass_run(stage,
                    &(stage_pass){.is_forward = true, .slot = slot, .first = first, .count = count},
                    error);
}

ty_status stage_recompute(ty_stage_device *stage, uint32_t slot, uint32_t first, uint32_t count,
                          ty_error *error)
{
    return pass_run(
        stage,
        &(stage_pass){
            .is_forward = true, .is_again = true, .slot = slot, .first = first, .count = count},
        error);
}

static ty_status backward_part(ty_stage_device *stage, stage_part part, uint32_t slot,
                               uint32_t first, uint32_t count, bool is_first, ty_error *error)
{
    return pass_run(
        stage,
        &(stage_pass){
            .part = part, .slot = slot, .first = first, .count = count, .is_first = is_first},
        error);
}

ty_status stage_backward(ty_stage_device *stage, uint32_t slot, uint32_t first, uint32_t count,
                         bool is_first, ty_error *error)
{
    return backward_part(stage, STAGE_BOTH, slot, first, count, is_first, error);
}

ty_status stage_backward_input(ty_stage_device *stage, uint32_t slot, uint32_t first,
                               uint32_t count, ty_error *error)
{
    return backward_part(stage, STAGE_INPUTS, slot, first, count, false, error);
}

ty_status stage_backward_weight(ty_stage_device *stage, uint32_t slot, uint32_t first,
                                uint32_t count, bool is_first, ty_error *error)
{
    return backward_part(stage, STAGE_WEIGHTS, slot, first, count, is_first, error);
}

/* ---- Buffers ---- */

int32_t *stage_tokens(ty_stage_device *stage, uint32_t slot)
{
    return stage->tokens == NULL ? NULL : stage->tokens[slot];
}

int32_t *stage_labels(ty_stage_device *stage, uint32_t slot)
{
    return stage->labels == NULL ? NULL : stage->labels[slot];
}

float *stage_output(ty_stage_device *stage, uint32_t slot)
{
    return stage->behind.data == NULL ? NULL : stage->behind.data[slot];
}

float *stage_input_gradient(ty_stage_device *stage, uint32_t slot)
{
    return stage->before.gradient == NULL ? NULL : stage->before.gradient[slot];
}

float *stage_output_gradient(ty_stage_device *stage, uint32_t slot)
{
    return stage->behind.gradient == NULL ? NULL : stage->behind.gradient[slot];
}

float *stage_statistics(ty_stage_device *stage, uint64_t *count)
{
    *count = stage->statistic_count;
    return stage->statistics;
}

void stage_set_evaluating(ty_stage_device *stage, bool is_evaluating)
{
    stage->is_evaluating = is_evaluating;
}

uint64_t stage_memory_bytes(const ty_stage_device *stage)
{
    return stage->memory_bytes;
}

/* ---- Parameters ---- */

uint64_t stage_parameter_count(const ty_stage_device *stage)
{
    return stage->placed.count;
}

float *stage_weights(ty_stage_device *stage)
{
    return stage->parameters;
}

float *stage_gradients(ty_stage_device *stage)
{
    return stage->gradient_sets;
}

void stage_select_gradients(ty_stage_device *stage, uint32_t set)
{
    stage->gradients = stage->gradient_sets + set * stage->set_stride;
}

void stage_slice(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                 uint64_t *offset, uint64_t *count)
{
    stage_parameters_slice(&stage->options, &stage->placed, first_layer, layer_count, offset,
                           count);
}

void stage_tied_slice(const ty_stage_device *stage, uint64_t *offset, uint64_t *count)
{
    *offset = stage->placed.tied_offset;
    *count = stage->placed.tied_count;
}

uint64_t stage_ranks_join(const ty_stage_device *stage, uint32_t layer, bool is_tied,
                          const float *parts, float *whole)
{
    return stage_parameters_join(&stage->options, &stage->placed, layer, is_tied, parts, whole);
}

void stage_expert_slice(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                        uint64_t *offset, uint64_t *count)
{
    stage_parameters_expert_slice(&stage->options, &stage->placed, first_layer, layer_count, offset,
                                  count);
}

uint64_t stage_experts_join(const ty_stage_device *stage, uint32_t layer, const float *parts,
                            float *whole)
{
    return stage_parameters_experts_join(&stage->options, &stage->placed, layer, parts, whole);
}
