/*
 * The CPU backend: a stage's layers on one core, through oneDNN and vector loops. What the layers
 * become is decided in cpu_build.c; here are the functions of the backend. Nothing is allocated
 * between open and close.
 */
#include "cpu_layer.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Of mlp, attention, lstm, concat and moe. */
static const uint64_t known_options =
    LAYER_OPTION(TY_IS_RELU) | LAYER_OPTION(TY_HAS_QKV_BIAS) | LAYER_OPTION(TY_HAS_QK_NORM) |
    LAYER_OPTION(TY_RELATIVE_BUCKETS) | LAYER_OPTION(TY_IS_REVERSED) |
    LAYER_OPTION(TY_IS_OF_FEATURES) | LAYER_OPTION(TY_SHARED_FEATURES);

static ty_status cpu_supports(const ty_workload *workload, uint32_t first_layer,
                              uint32_t layer_count, ty_error *error)
{
    if (workload->precision != TY_PRECISION_FP32 || workload->element_bytes != sizeof(float))
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "the cpu backend computes in fp32: the plan is for %s, in numbers of %u bytes "
            "(plan with --precision fp32)",
            ty_precision_name(workload->precision), workload->element_bytes);
    for (uint32_t l = first_layer; l < first_layer + layer_count; l++) {
        const ty_layer *layer = &workload->layers[l];
        const cpu_kind *kind = cpu_kind_of(layer->kind);
        ty_status status;

        if (kind == NULL)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the cpu backend does not train layers of kind %s",
                           layer->name, ty_layer_kind_name(layer->kind));
        if (layer_unknown_option(layer, known_options) != TY_ATTRIBUTE_COUNT)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the cpu backend does not train %s with %s", layer->name,
                           ty_layer_kind_name(layer->kind),
                           ty_attribute_name(layer_unknown_option(layer, known_options)));
        if (kind->supports != NULL && (status = kind->supports(workload, l, error)) != TY_OK)
            return status;
    }
    return TY_OK;
}

static ty_status options_check(const ty_stage_options *options, ty_error *error)
{
    const ty_workload *workload = options->workload;
    ty_status status;

    if (options->precision != TY_PRECISION_FP32)
        return ty_fail(error, TY_EUNSUPPORTED, "the cpu backend computes in fp32, not in %s",
                       ty_precision_name(options->precision));
    if (options->layer_count == 0 || options->first_layer >= workload->layer_count ||
        options->layer_count > workload->layer_count - options->first_layer)
        return ty_fail(error, TY_EINVAL, "found layers %u + %u, expected a range within 0 to %u",
                       (unsigned)options->first_layer, (unsigned)options->layer_count,
                       (unsigned)workload->layer_count);
    if (options->micro_batch_size == 0 || options->slots == 0)
        return ty_fail(error, TY_EINVAL,
                       "found %u samples per micro-batch in %u slots, expected at least 1 of each",
                       (unsigned)options->micro_batch_size, (unsigned)options->slots);
    status = cpu_supports(workload, options->first_layer, options->layer_count, error);
    return status == TY_OK ? lanes_check(options, error) : status;
}

static void cpu_close(ty_stage_device *stage)
{
    if (stage == NULL)
        return;
    for (uint32_t n = 0; n < stage->node_count; n++)
        if (stage->nodes[n].kind->release != NULL)
            stage->nodes[n].kind->release(&stage->nodes[n]);
    for (uint32_t b = 0; b < stage->block_count; b++)
        ty_free(stage->blocks[b]);
    ty_free(stage->blocks);
    stage_parameters_clear(&stage->placed);
    stage_segments_clear(&stage->segments);
    ty_free(stage->input.tensors);
    ty_free(stage->output.tensors);
    ty_free(stage->nodes);
    ty_free(stage->values);
    ty_free(stage);
}

static ty_status cpu_open(const ty_stage_options *options, ty_stage_device **out, ty_error *error)
{
    ty_stage_device *stage = NULL;
    ty_status status = TY_OK;

    cpu_single_thread();
    TY_CHECK(options_check(options, error), status, cleanup);
    stage = ty_alloc(1, sizeof *stage);
    if (stage == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a stage");
        goto cleanup;
    }
    stage->options = *options;
    TY_CHECK(cpu_build(stage, error), status, cleanup);
    *out = stage;
    stage = NULL; /* given away */

cleanup:
    cpu_close(stage);
    return status;
}

/* ---- Buffers ---- */

static float *cpu_input(ty_stage_device *stage, uint32_t slot)
{
    if (stage->input.count > 0)
        return stage->input.data[slot];
    return stage->tokens != NULL ? NULL : stage->values[0].data[slot];
}

/* Values that are views of the input share its array of slots; slots may share memory. */
static float *cpu_swap_input(ty_stage_device *stage, uint32_t slot, float *fresh)
{
    float **slots = stage->values[0].data;
    float *used = slots[slot];

    for (uint32_t s = 0; s < stage->options.slots; s++)
        if (slots[s] == used)
            slots[s] = fresh;
    return used;
}

static int32_t *cpu_tokens(ty_stage_device *stage, uint32_t slot)
{
    return stage->tokens == NULL ? NULL : stage->tokens[slot];
}

static int32_t *cpu_labels(ty_stage_device *stage, uint32_t slot)
{
    return stage->labels == NULL ? NULL : stage->labels[slot];
}

static float *cpu_output(ty_stage_device *stage, uint32_t slot)
{
    return stage->output.count == 0 ? NULL : stage->output.data[slot];
}

static float *cpu_input_gradient(ty_stage_device *stage, uint32_t slot)
{
    return stage->input.gradient == NULL ? NULL : stage->input.gradient[slot];
}

static float *cpu_output_gradient(ty_stage_device *stage, uint32_t slot)
{
    return stage->output.gradient == NULL ? NULL : stage->output.gradient[slot];
}

/* ---- Passes ---- */

static bool is_between(const cpu_node *node, uint32_t first, uint32_t count)
{
    return node->layer_index >= first && node->layer_index - first < count;
}

static ty_status cpu_forward(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                             uint32_t layer_count, ty_error *error)
{
    ty_status status = stage_range_check(&stage->options, slot, first_layer, layer_count, error);

    cpu_single_thread();
    for (uint32_t n = 0; n < stage->node_count && status == TY_OK; n++)
        if (is_between(&stage->nodes[n], first_layer, layer_count))
            status = stage->nodes[n].kind->forward(stage, &stage->nodes[n], slot, error);
    if (status == TY_OK && stage_range_has_last(&stage->options, first_layer, layer_count))
        cpu_output_gather(stage, slot);
    return status;
}

/* What leaves the stage is still there from the forward. */
static ty_status cpu_recompute(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                               uint32_t layer_count, ty_error *error)
{
    ty_status status = stage_range_check(&stage->options, slot, first_layer, layer_count, error);

    cpu_single_thread();
    for (uint32_t n = 0; n < stage->node_count && status == TY_OK; n++) {
        const cpu_node *node = &stage->nodes[n];
        if (!is_between(node, first_layer, layer_count) || node->is_kept)
            continue;
        status = (node->kept_bytes > 0 ? node->kind->again : node->kind->forward)(stage, node, slot,
                                                                                  error);
    }
    return status;
}

/* A layer behind frozen ones only has nothing to do: its output needs no gradient. */
static ty_status backward_part(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                               uint32_t layer_count, bool is_first, cpu_part part, ty_error *error)
{
    ty_status status = stage_range_check(&stage->options, slot, first_layer, layer_count, error);

    cpu_single_thread();
    stage->part = part;
    if (status == TY_OK && part != CPU_WEIGHTS &&
        stage_range_has_last(&stage->options, first_layer, layer_count))
        cpu_gradient_scatter(stage, slot);
    for (uint32_t n = stage->node_count; n-- > 0 && status == TY_OK;) {
        const cpu_node *node = &stage->nodes[n];
        bool has_part = part != CPU_WEIGHTS || node->tensor_count > 0;
        if (has_part && is_between(node, first_layer, layer_count) &&
            stage->values[node->output].needs_gradient)
            status = node->kind->backward(stage, node, slot, is_first, error);
    }
    return status;
}

static ty_status cpu_backward(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                              uint32_t layer_count, bool is_first, ty_error *error)
{
    return backward_part(stage, slot, first_layer, layer_count, is_first, CPU_BOTH, error);
}

static ty_status cpu_backward_input(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                                    uint32_t layer_count, ty_error *error)
{
    return backward_part(stage, slot, first_layer, layer_count, false, CPU_INPUTS, error);
}

static ty_status cpu_backward_weight(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                                     uint32_t layer_count, bool is_first, ty_error *error)
{
    return backward_part(stage, slot, first_layer, layer_count, is_first, CPU_WEIGHTS, error);
}

static void cpu_loss_read(ty_stage_device *stage, uint32_t slot, double *loss_sum,
                          uint64_t *correct, uint64_t *labels)
{
    bool has_loss = stage->losses != NULL;

    *loss_sum = has_loss ? stage->losses[slot].sum : 0.0;
    *correct = has_loss ? stage->losses[slot].correct : 0;
    *labels = has_loss ? stage->labels_per_sample * cpu_batch(stage) : 0;
}

/* ---- Parameters ---- */

static uint64_t cpu_parameter_count(const ty_stage_device *stage)
{
    return stage->placed.count;
}

static void cpu_select(ty_stage_device *stage, uint32_t version)
{
    stage->parameters = stage->versions[version];
}

static float *cpu_statistics(ty_stage_device *stage, uint64_t *count)
{
    *count = stage->statistic_count;
    return stage->statistics;
}

static void cpu_set_evaluating(ty_stage_device *stage, bool is_evaluating)
{
    stage->is_evaluating = is_evaluating;
}

static float *cpu_parameter_array(ty_stage_device *stage)
{
    return stage->parameters;
}

static float *cpu_gradient_array(ty_stage_device *stage)
{
    return stage->gradient_sets;
}

static void cpu_select_gradients(ty_stage_device *stage, uint32_t set)
{
    stage->gradients = stage->gradient_sets + set * ty_parameter_stride(stage->placed.count);
}

static void cpu_slice(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                      uint64_t *offset, uint64_t *count)
{
    stage_parameters_slice(&stage->options, &stage->placed, first_layer, layer_count, offset,
                           count);
}

static void cpu_expert_slice(const ty_stage_device *stage, uint32_t first_layer,
                             uint32_t layer_count, uint64_t *offset, uint64_t *count)
{
    stage_parameters_expert_slice(&stage->options, &stage->placed, first_layer, layer_count, offset,
                                  count);
}

static uint64_t cpu_experts_join(const ty_stage_device *stage, uint32_t layer, const float *parts,
                                 float *whole)
{
    return stage_parameters_experts_join(&stage->options, &stage->placed, layer, parts, whole);
}

static uint64_t cpu_lanes_join(const ty_stage_device *stage, uint32_t layer, bool is_tied,
                               const float *parts, float *whole)
{
    return stage_parameters_join(&stage->options, &stage->placed, layer, is_tied, parts, whole);
}

/* Whole pages go back to the system, which hands out others, of zeros, when they are touched. */
static void cpu_discard(ty_stage_device *stage, float *first, uint64_t count)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t start = ((uintptr_t)first + page - 1) / page * page;
    const uintptr_t end = (uintptr_t)(first + count) / page * page;

    (void)stage;
    if (start < end)
        madvise((void *)start, end - start, MADV_DONTNEED);
}

static double cpu_square(ty_stage_device *stage, const float *first, uint64_t count)
{
    (void)stage;
    return cpu_sum_of_squares(count, first);
}

static void cpu_tied_slice(const ty_stage_device *stage, uint64_t *offset, uint64_t *count)
{
    *offset = stage->placed.tied_offset;
    *count = stage->placed.tied_count;
}

static uint64_t cpu_memory_bytes(const ty_stage_device *stage)
{
    return stage->memory_bytes;
}

const ty_device_backend ty_device_cpu = {
    .name = "cpu",
    .supports = cpu_supports,
    .open = cpu_open,
    .close = cpu_close,
    .input = cpu_input,
    .swap_input = cpu_swap_input,
    .tokens = cpu_tokens,
    .labels = cpu_labels,
    .output = cpu_output,
    .input_gradient = cpu_input_gradient,
    .output_gradient = cpu_output_gradient,
    .forward = cpu_forward,
    .recompute = cpu_recompute,
    .backward = cpu_backward,
    .backward_input = cpu_backward_input,
    .backward_weight = cpu_backward_weight,
    .statistics = cpu_statistics,
    .set_evaluating = cpu_set_evaluating,
    .loss = cpu_loss_read,
    .parameter_count = cpu_parameter_count,
    .select = cpu_select,
    .parameters = cpu_parameter_array,
    .gradients = cpu_gradient_array,
    .select_gradients = cpu_select_gradients,
    .slice = cpu_slice,
    .discard = cpu_discard,
    .square = cpu_square,
    .tied_slice = cpu_tied_slice,
    .lanes_join = cpu_lanes_join,
    .expert_slice = cpu_expert_slice,
    .experts_join = cpu_experts_join,
    .memory_bytes = cpu_memory_bytes,
};
