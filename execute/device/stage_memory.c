/* The memory of a stage: buffers of each slot, and buffers that all slots share. */
#include "stage.h"

bool stage_block_keep(stage_blocks *blocks, void *block)
{
    if (blocks->count == blocks->room) {
        const uint32_t room = blocks->room == 0 ? 64 : blocks->room * 2;
        void **grown = ty_resize(blocks->blocks, room, sizeof *grown);
        if (grown == NULL)
            return false;
        blocks->blocks = grown;
        blocks->room = room;
    }
    blocks->blocks[blocks->count++] = block;
    return true;
}

void *stage_slots(ty_stage_device *stage, uint64_t bytes, bool is_shared,
                  void *(*allocate)(ty_stage_device *stage, uint64_t bytes))
{
    void **slots = stage->backend->host_buffer(stage, stage->options.slots * sizeof *slots);

    for (uint32_t s = 0; slots != NULL && bytes > 0 && s < stage->options.slots; s++) {
        slots[s] = is_shared && s > 0 ? slots[0] : allocate(stage, bytes);
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
        const stage_node *node = &stage->nodes[n];
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

/* Slots share the values that only forward reads: those before the first trained layer. */
static bool is_passing(const ty_stage_device *stage, uint32_t root)
{
    return !stage->values[root].is_kept && !is_used_by_backward(stage, root);
}

/* ---- Values and nodes, in the working set or in memory of their own ---- */

static uint32_t data_segment(const ty_stage_device *stage, uint32_t v)
{
    return stage_segment_of_part(&stage->segments, stage->values[v].is_kept,
                                 stage->values[v].segment);
}

static uint32_t gradient_segment(const ty_stage_device *stage, uint32_t v)
{
    const stage_value *value = &stage->values[v];

    return stage_segment_of_part(&stage->segments,
                                 value->crosses && !stage->backend->copies_messages,
                                 value->gradient_segment);
}

static uint32_t stash_segment(const ty_stage_device *stage, const stage_node *node)
{
    return stage_segment_of_stash(&stage->segments, node->is_kept, node->layer_index);
}

/* The loss is no value of the stage: it goes to the host. */
static bool is_loss(const ty_stage_device *stage, uint32_t v)
{
    return stage_has_loss(stage) && v == stage->nodes[stage->node_count - 1].output;
}

static bool lacks_data(const ty_stage_device *stage, uint32_t v)
{
    const stage_value *value = &stage->values[v];

    return value->data == NULL && value->data_of == v && !value->is_inside && !is_loss(stage, v) &&
           !(v == 0 && is_token_input(stage));
}

static bool lacks_gradient(const ty_stage_device *stage, uint32_t v)
{
    const stage_value *value = &stage->values[v];

    return value->gradient == NULL && value->needs_gradient && value->gradient_of == v &&
           !value->becomes_gradient && !value->is_inside && !is_loss(stage, v);
}

static bool working_set_allocate(ty_stage_device *stage)
{
    const uint64_t alignment = stage->backend->alignment;
    stage_working_set *set = &stage->working_set;

    if (stage->segments.count == 0)
        return true;
    set->used = stage->backend->host_buffer(stage, stage->segments.count * sizeof *set->used);
    if (set->used == NULL)
        return false;
    for (uint32_t v = 0; v < stage->value_count; v++) {
        const uint64_t bytes = stage->values[v].count * stage->element;
        if (lacks_data(stage, v))
            stage_working_set_take(set, data_segment(stage, v), bytes, alignment);
        if (lacks_gradient(stage, v))
            stage_working_set_take(set, gradient_segment(stage, v), bytes, alignment);
    }
    for (uint32_t n = 0; n < stage->node_count; n++)
        stage_working_set_take(set, stash_segment(stage, &stage->nodes[n]),
                               stage->nodes[n].stash_bytes, alignment);
    set->memory = stage->backend->buffer(stage, stage_working_set_measure(set, &stage->segments));
    return set->memory != NULL;
}

/* The same address in the working set for each slot, or like stage_slots. */
static void *place(ty_stage_device *stage, uint64_t bytes, uint32_t segment, bool is_shared)
{
    void **slots;
    uint64_t at;

    if (segment == STAGE_NO_SEGMENT)
        return stage_slots(stage, bytes, is_shared, stage->backend->buffer);
    slots = stage->backend->host_buffer(stage, stage->options.slots * sizeof *slots);
    at = stage_working_set_take(&stage->working_set, segment, bytes, stage->backend->alignment);
    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++)
        slots[s] = stage->working_set.memory + at;
    return slots;
}

/* Gradients inside the stage are one set for all slots, unless they are read again later. */
static bool values_allocate(ty_stage_device *stage)
{
    const bool is_apart = stage->options.splits_backward;

    for (uint32_t v = 0; v < stage->value_count; v++) {
        stage_value *value = &stage->values[v];
        const uint64_t bytes = value->count * stage->element;
        const bool is_sent = value->crosses && !stage->backend->copies_messages;

        if (lacks_data(stage, v) && (value->data = place(stage, bytes, data_segment(stage, v),
                                                         is_passing(stage, v))) == NULL)
            return false;
        if (lacks_gradient(stage, v) &&
            (value->gradient =
                 place(stage, bytes, gradient_segment(stage, v), !is_sent && !is_apart)) == NULL)
            return false;
    }
    for (uint32_t v = 0; v < stage->value_count; v++) {
        stage_value *value = &stage->values[v];

        value->data = stage->values[value->data_of].data;
        value->gradient = value->becomes_gradient && value->needs_gradient
                              ? value->data
                              : stage->values[value->gradient_of].gradient;
    }
    return true;
}

static bool nodes_allocate(ty_stage_device *stage)
{
    uint64_t scratch = 0, whole = 0;

    for (uint32_t n = 0; n < stage->node_count; n++) {
        stage_node *node = &stage->nodes[n];
        node->stash = place(stage, node->stash_bytes, stash_segment(stage, node),
                            !stage->values[node->output].needs_gradient);
        node->kept = node->kept_bytes == 0
                         ? node->stash
                         : stage_slots(stage, node->kept_bytes, false, stage->backend->buffer);
        if (node->stash == NULL || node->kept == NULL)
            return false;
        scratch = node->scratch_bytes > scratch ? node->scratch_bytes : scratch;
        whole = node->tp_elements > whole ? node->tp_elements : whole;
    }
    stage->scratch = stage->backend->buffer(stage, scratch);
    stage->gather_workspace = stage->backend->buffer(stage, whole * stage->element);
    /* One sample's sequence is in the order of ranks; a message has one number at least. */
    if (!(stage->options.parallel.divides_sequence && stage_batch(stage) > 1) &&
        cp_size_of(&stage->options) == 1)
        whole = 0;
    stage->parallel_message = stage->backend->buffer(stage, whole * stage->element + sizeof(float));
    return stage->scratch != NULL && stage->gather_workspace != NULL &&
           stage->parallel_message != NULL;
}

/* ---- Batches ---- */

static bool batch_allocate(ty_stage_device *stage)
{
    void *(*host_buffer)(ty_stage_device *, uint64_t) = stage->backend->host_buffer;
    const bool has_advantages = stage->options.workload->learning == TY_LEARNING_REINFORCEMENT;

    if (is_token_input(stage)) {
        stage->tokens =
            stage_slots(stage, stage->values[0].count * sizeof(int32_t), false, host_buffer);
        if (stage->tokens == NULL)
            return false;
    }
    if (stage_has_loss(stage)) {
        const stage_value *scores = &stage->values[stage->nodes[stage->node_count - 1].inputs[0]];
        const uint64_t rows = stage_rows(scores);
        stage->labels_per_sample = rows / stage_batch(stage);
        stage->labels = stage_slots(stage, (has_advantages ? 2 : 1) * rows * sizeof(int32_t), false,
                                    host_buffer);
        if (stage->labels == NULL)
            return false;
    }
    stage->statistics = stage->backend->buffer(stage, stage->statistic_count * sizeof(float));
    return stage->statistics != NULL;
}

bool stage_memory_allocate(ty_stage_device *stage)
{
    return working_set_allocate(stage) && values_allocate(stage) && nodes_allocate(stage) &&
           batch_allocate(stage) && stage->backend->allocate(stage);
}

void stage_weights_fill(const ty_stage_device *stage, float *parameters)
{
    for (uint32_t n = 0; n < stage->node_count; n++)
        if (stage->nodes[n].tensor_count > 0)
            stage_parameters_fill(&stage->options, stage->nodes[n].layer_index,
                                  stage->nodes[n].offsets, parameters);
}
