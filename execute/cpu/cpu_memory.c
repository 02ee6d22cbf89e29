/* The memory of a stage: what each slot has to itself, and what all slots share. */
#include "cpu_layer.h"

#include <string.h>

enum { ALIGNMENT = 64 }; /* bytes: a cache line, and the widest vector */

void *cpu_buffer(ty_stage_device *stage, uint64_t count, uint64_t size)
{
    const uint64_t alignment = ALIGNMENT;
    unsigned char *block;

    if (count > (UINT64_MAX - alignment) / size)
        return NULL;
    if (stage->block_count == stage->block_room) {
        uint32_t room = stage->block_room == 0 ? 64 : stage->block_room * 2;
        void **blocks = ty_resize(stage->blocks, room, sizeof *blocks);
        if (blocks == NULL)
            return NULL;
        stage->blocks = blocks;
        stage->block_room = room;
    }
    block = ty_alloc_large(count * size + alignment, 1);
    if (block == NULL)
        return NULL;
    stage->blocks[stage->block_count++] = block;
    stage->memory_bytes += count * size + alignment;
    return block + (alignment - (uintptr_t)block % alignment);
}

/* A pointer per slot; one block for all of them, or one each. NULL when memory runs out. */
static void *slots_allocate(ty_stage_device *stage, uint64_t bytes, bool is_shared)
{
    void **slots = cpu_buffer(stage, stage->options.slots, sizeof *slots);

    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++) {
        slots[s] = is_shared && s > 0 ? slots[0] : cpu_buffer(stage, bytes, 1);
        if (slots[s] == NULL)
            return NULL;
    }
    return slots;
}

static bool is_token_input(const ty_stage_device *stage)
{
    return stage->options.first_layer == 0 && stage->options.workload->input_kind == TY_INPUT_TOKEN;
}

static bool is_used_by_backward(const ty_stage_device *stage, uint32_t root)
{
    for (uint32_t n = 0; n < stage->node_count; n++) {
        const cpu_node *node = &stage->nodes[n];
        if (!stage->values[node->output].needs_gradient)
            continue;
        if (stage->values[node->output].data_of == root)
            return true;
        for (uint32_t i = 0; i < node->input_count; i++)
            if (stage->values[node->inputs[i]].data_of == root)
                return true;
    }
    return false;
}

/* Slots share what nothing needs once forward is over: what lies before the first trained layer. */
static bool is_passing(const ty_stage_device *stage, uint32_t root)
{
    return !stage->values[root].is_kept && !is_used_by_backward(stage, root);
}

/* ---- What lies in the working set of a stage that is recomputed ---- */

static uint32_t data_segment(const ty_stage_device *stage, uint32_t root)
{
    const cpu_value *value = &stage->values[root];

    return stage_segment_of_part(&stage->segments, value->is_kept || value->is_inside,
                                 value->segment);
}

static uint32_t gradient_segment(const ty_stage_device *stage, uint32_t root)
{
    const cpu_value *value = &stage->values[root];

    return stage_segment_of_part(&stage->segments, value->is_gradient_kept || value->is_inside,
                                 value->gradient_segment);
}

static uint32_t stash_segment(const ty_stage_device *stage, const cpu_node *node)
{
    return stage_segment_of_stash(&stage->segments, node->is_kept, node->layer_index);
}

static bool has_data(const ty_stage_device *stage, uint32_t v)
{
    const bool is_loss = v == stage->value_count - 1 && stage->output.count == 0;

    return !(v == 0 && is_token_input(stage)) && !is_loss && stage->values[v].data_of == v;
}

static bool has_own_gradient(const ty_stage_device *stage, uint32_t v)
{
    return stage->values[v].needs_gradient && stage->values[v].gradient_of == v;
}

static bool working_set_allocate(ty_stage_device *stage)
{
    stage_working_set *set = &stage->working_set;

    if (stage->segments.count == 0)
        return true;
    set->used = cpu_buffer(stage, stage->segments.count, sizeof *set->used);
    if (set->used == NULL)
        return false;
    for (uint32_t v = 0; v < stage->value_count; v++) {
        const uint64_t bytes = stage->values[v].count * sizeof(float);
        if (has_data(stage, v))
            stage_working_set_take(set, data_segment(stage, v), bytes, ALIGNMENT);
        if (has_own_gradient(stage, v))
            stage_working_set_take(set, gradient_segment(stage, v), bytes, ALIGNMENT);
    }
    for (uint32_t n = 0; n < stage->node_count; n++)
        stage_working_set_take(set, stash_segment(stage, &stage->nodes[n]),
                               stage->nodes[n].stash_bytes, ALIGNMENT);
    set->memory = cpu_buffer(stage, stage_working_set_measure(set, &stage->segments), 1);
    return set->memory != NULL;
}

/* The same place of the working set for each slot, or as slots_allocate. */
static void *place(ty_stage_device *stage, uint64_t bytes, uint32_t segment, bool is_shared)
{
    void **slots;
    uint64_t at;

    if (segment == STAGE_NO_SEGMENT)
        return slots_allocate(stage, bytes, is_shared);
    slots = cpu_buffer(stage, stage->options.slots, sizeof *slots);
    at = stage_working_set_take(&stage->working_set, segment, bytes, ALIGNMENT);
    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++)
        slots[s] = stage->working_set.memory + at;
    return slots;
}

static bool has_loss(const ty_stage_device *stage)
{
    return stage->output.count == 0;
}

static bool data_allocate(ty_stage_device *stage)
{
    for (uint32_t v = 0; v < stage->value_count; v++) {
        cpu_value *value = &stage->values[v];
        bool is_loss = v == stage->value_count - 1 && has_loss(stage);
        if ((v == 0 && is_token_input(stage)) || is_loss || value->data != NULL ||
            stage->values[value->data_of].is_inside)
            continue;
        value->data = value->data_of != v /* an earlier one */
                          ? stage->values[value->data_of].data
                          : place(stage, value->count * sizeof(float), data_segment(stage, v),
                                  is_passing(stage, v));
        if (value->data == NULL)
            return false;
    }
    return true;
}

/* Gradients inside the stage are one set for all slots, unless they are read again later. */
static bool gradients_allocate(ty_stage_device *stage)
{
    for (uint32_t v = 0; v < stage->value_count; v++) {
        cpu_value *value = &stage->values[v];
        if (!value->needs_gradient || value->gradient_of != v || value->gradient != NULL ||
            value->is_inside)
            continue;
        value->gradient = place(stage, value->count * sizeof(float), gradient_segment(stage, v),
                                !value->is_gradient_kept && !stage->options.splits_backward);
        if (value->gradient == NULL)
            return false;
    }
    for (uint32_t v = 0; v < stage->value_count; v++)
        if (stage->values[v].needs_gradient)
            stage->values[v].gradient = stage->values[stage->values[v].gradient_of].gradient;
    return true;
}

static bool nodes_allocate(ty_stage_device *stage)
{
    uint64_t scratch = 0, whole = 0;

    for (uint32_t n = 0; n < stage->node_count; n++) {
        cpu_node *node = &stage->nodes[n];
        node->stash = place(stage, node->stash_bytes, stash_segment(stage, node),
                            !stage->values[node->output].needs_gradient);
        node->kept =
            node->kept_bytes == 0 ? node->stash : slots_allocate(stage, node->kept_bytes, false);
        if (node->stash == NULL || node->kept == NULL)
            return false;
        scratch = node->scratch_bytes > scratch ? node->scratch_bytes : scratch;
        whole = node->lane_floats > whole ? node->lane_floats : whole;
    }
    stage->scratch = cpu_buffer(stage, scratch, 1);
    if (stage->scratch == NULL || lane_count(&stage->options) == 1)
        return stage->scratch != NULL;
    stage->lane_whole = cpu_buffer(stage, whole, sizeof *stage->lane_whole);
    if (!stage->options.lanes.divides_sequence || cpu_batch(stage) == 1)
        whole = 0; /* one sample's sequence is in the order of lanes */
    stage->lane_pieces = cpu_buffer(stage, whole, sizeof *stage->lane_pieces);
    return stage->lane_whole != NULL && stage->lane_pieces != NULL;
}

static uint32_t version_count(const ty_stage_device *stage)
{
    return stage->options.versions > 1 ? stage->options.versions : 1;
}

static uint64_t gradient_set_count(const ty_stage_device *stage)
{
    return stage->options.gradient_sets > 1 ? stage->options.gradient_sets : 1;
}

static bool parameters_allocate(ty_stage_device *stage)
{
    stage->gradient_sets = cpu_buffer(
        stage, ty_parameter_stride(stage->placed.count) * gradient_set_count(stage), sizeof(float));
    stage->gradients = stage->gradient_sets;
    stage->versions = cpu_buffer(stage, version_count(stage), sizeof *stage->versions);
    for (uint32_t v = 0; stage->versions != NULL && v < version_count(stage); v++) {
        stage->versions[v] = cpu_buffer(stage, stage->placed.count, sizeof(float));
        if (stage->versions[v] == NULL)
            return false;
    }
    stage->parameters = stage->versions == NULL ? NULL : stage->versions[0];
    return stage->parameters != NULL && stage->gradients != NULL;
}

static bool statistics_allocate(ty_stage_device *stage)
{
    stage->statistics = cpu_buffer(stage, stage->statistic_count, sizeof(float));
    for (uint32_t n = 0; stage->statistics != NULL && n < stage->node_count; n++)
        if (stage->nodes[n].kind == &cpu_batch_norm)
            cpu_batch_norm_start(stage, &stage->nodes[n]);
    return stage->statistics != NULL;
}

void cpu_versions_fill(ty_stage_device *stage)
{
    for (uint32_t v = 1; v < version_count(stage); v++)
        memcpy(stage->versions[v], stage->versions[0],
               stage->placed.count * sizeof *stage->parameters);
}

static bool batch_allocate(ty_stage_device *stage)
{
    const ty_stage_options *options = &stage->options;
    uint64_t batch = options->micro_batch_size;

    if (is_token_input(stage)) {
        stage->tokens = slots_allocate(stage, stage->values[0].count * sizeof(int32_t), false);
        if (stage->tokens == NULL)
            return false;
    }
    if (has_loss(stage)) {
        const cpu_value *logits = &stage->values[stage->nodes[stage->node_count - 1].inputs[0]];
        stage->labels_per_sample = cpu_rows(logits) / batch;
        stage->labels =
            slots_allocate(stage,
                           (options->workload->learning == TY_LEARNING_REINFORCEMENT ? 2 : 1) *
                               stage->labels_per_sample * batch * sizeof(int32_t),
                           false);
        stage->losses = cpu_buffer(stage, options->slots, sizeof *stage->losses);
        if (stage->labels == NULL || stage->losses == NULL)
            return false;
    }
    return parameters_allocate(stage);
}

bool cpu_memory_allocate(ty_stage_device *stage)
{
    return cpu_cuts_allocate(stage) && working_set_allocate(stage) && data_allocate(stage) &&
           gradients_allocate(stage) && nodes_allocate(stage) && batch_allocate(stage) &&
           statistics_allocate(stage);
}
