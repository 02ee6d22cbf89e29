/*
 * From a workload's layers to the values and nodes of a stage: parameter offsets, memory layouts,
 * what may be computed in place.
 */
#include "cpu_layer.h"

/* A kind that is not here, or NULL, cannot be trained by this backend. */
static const cpu_kind *const kinds[TY_LAYER_KIND_COUNT] = {
    [TY_LAYER_LINEAR] = &cpu_linear,
    [TY_LAYER_CONV2D] = &cpu_conv2d,
    [TY_LAYER_POOL] = &cpu_pool,
    [TY_LAYER_BATCH_NORM] = &cpu_batch_norm,
    [TY_LAYER_LSTM] = &cpu_lstm,
    [TY_LAYER_LAYER_NORM] = &cpu_layer_norm,
    [TY_LAYER_RMS_NORM] = &cpu_rms_norm,
    [TY_LAYER_EMBEDDING] = &cpu_embedding,
    [TY_LAYER_EMBEDDING_BAG] = &cpu_embedding_bag,
    [TY_LAYER_DOT_INTERACTION] = &cpu_dot_interaction,
    [TY_LAYER_ATTENTION] = &cpu_attention,
    [TY_LAYER_ADDITIVE_ATTENTION] = &cpu_additive_attention,
    [TY_LAYER_MLP] = &cpu_mlp,
    [TY_LAYER_MOE] = &cpu_moe,
    [TY_LAYER_ADD] = &cpu_add,
    [TY_LAYER_CONCAT] = &cpu_concat,
    [TY_LAYER_SLICE] = &cpu_slice_layer,
    [TY_LAYER_RELU] = &cpu_relu,
    [TY_LAYER_GELU] = &cpu_gelu,
    [TY_LAYER_SILU] = &cpu_silu,
    [TY_LAYER_TANH] = &cpu_tanh_layer,
    [TY_LAYER_FLATTEN] = &cpu_to_plain,
    [TY_LAYER_SOFTMAX_CROSS_ENTROPY] = &cpu_loss_layer,
};

const cpu_kind *cpu_kind_of(ty_layer_kind kind)
{
    return kinds[kind];
}

/* What lowering needs to know beside the stage itself. */
typedef struct lowering {
    ty_stage_device *stage;
    const ty_workload *workload;
    uint32_t first, count;
    uint32_t value_room, node_room;
    uint32_t before_count, *before; /* layers whose outputs cross the cut before the stage */
    uint32_t behind_count, *behind; /* and that behind it */
    uint32_t *values; /* [before + count]: of what crosses (of the batch, which counts as one), then
                         of each layer */
    uint32_t *readers; /* likewise: layers of the stage that read it */
    bool *trains;      /* [layer_count of the workload]: a parameter at or before it is trained */
} lowering;

/* ---- Values and nodes ---- */

static ty_status value_add(lowering *low, const ty_shape *shape, cpu_layout layout,
                           bool needs_gradient, uint32_t *out, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    uint32_t at = stage->value_count;

    if (at == low->value_room) {
        uint32_t room = low->value_room == 0 ? 64 : low->value_room * 2;
        cpu_value *values = ty_resize(stage->values, room, sizeof *values);
        if (values == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors", (unsigned)room);
        stage->values = values;
        low->value_room = room;
    }
    stage->values[at] = (cpu_value){
        .shape = *shape,
        .layout = layout,
        .count = ty_shape_elements(shape) * stage->options.micro_batch_size,
        .data_of = at,
        .gradient_of = at,
        .needs_gradient = needs_gradient,
    };
    stage->value_count++;
    *out = at;
    return TY_OK;
}

static ty_status node_add(lowering *low, const cpu_kind *kind, uint32_t layer,
                          const uint32_t *inputs, uint32_t input_count, uint32_t output,
                          ty_error *error)
{
    ty_stage_device *stage = low->stage;
    lane_tensor tensors[LAYER_MAX_TENSORS] = {0};
    cpu_node *node;

    if (stage->node_count == low->node_room) {
        uint32_t room = low->node_room == 0 ? 64 : low->node_room * 2;
        cpu_node *nodes = ty_resize(stage->nodes, room, sizeof *nodes);
        if (nodes == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory for %u nodes", (unsigned)room);
        stage->nodes = nodes;
        low->node_room = room;
    }
    node = &stage->nodes[stage->node_count];
    *node = (cpu_node){
        .kind = kind,
        .layer = &low->workload->layers[layer],
        .layer_index = layer,
        .input_count = input_count,
        .output = output,
    };
    node->whole_input =
        lane_context_shape(&stage->options, ty_layer_input_shape(low->workload, layer, 0));
    node->whole_output = lane_context_shape(&stage->options, &node->layer->output);
    node->is_divided = lane_divides(&stage->options, layer);
    node->is_matrix_frozen = node->layer->tied_to != TY_NO_LAYER &&
                             low->workload->layers[node->layer->tied_to].is_frozen;
    node->inputs = cpu_buffer(stage, input_count, sizeof *node->inputs);
    node->adds = cpu_buffer(stage, input_count, sizeof *node->adds);
    if (node->inputs == NULL || node->adds == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s", node->layer->name);
    for (uint32_t i = 0; i < input_count; i++)
        node->inputs[i] = inputs[i];
    stage->node_count++;
    if (kind == cpu_kind_of(node->layer->kind))
        node->tensor_count = ty_layer_tensors(low->workload, layer, tensors);
    return node->tensor_count == 0 ? TY_OK
                                   : stage_parameters_locate(&stage->options, &stage->placed, layer,
                                                             node->offsets, error);
}

/* One channel or one pixel lies the same way in both layouts. */
static bool is_same_layout(const ty_shape *shape, cpu_layout a, cpu_layout b)
{
    return a == b || shape->dimension_count != 3 || shape->dimensions[0] == 1 ||
           shape->dimensions[1] * shape->dimensions[2] == 1;
}

/* The value, or a converted copy of it in front of `layer`. */
static ty_status value_in_layout(lowering *low, uint32_t value, cpu_layout layout, uint32_t layer,
                                 uint32_t *out, ty_error *error)
{
    const cpu_value from = low->stage->values[value]; /* copied: adding a value moves the array */
    ty_status status;

    *out = value;
    if (layout == CPU_ANY_LAYOUT || is_same_layout(&from.shape, from.layout, layout))
        return TY_OK;
    status = value_add(low, &from.shape, layout, from.needs_gradient, out, error);
    if (status != TY_OK)
        return status;
    return node_add(low, layout == CPU_PLAIN ? &cpu_to_plain : &cpu_to_channels_last, layer, &value,
                    1, *out, error);
}

/* Another name for `value`: same memory, same gradient. */
static void value_share(lowering *low, uint32_t value, uint32_t alias)
{
    cpu_value *values = low->stage->values;

    values[alias].data_of = values[value].data_of;
    values[alias].gradient_of = values[value].gradient_of;
    values[alias].is_private = values[alias].is_private && values[value].is_private;
}

/* Index into low->values and low->readers of what a layer makes. */
static uint32_t place_of(const lowering *low, uint32_t producer)
{
    uint32_t at = 0;

    if (producer >= low->first)
        return low->before_count + producer - low->first;
    while (low->before[at] != producer)
        at++;
    return at;
}

/* The same of what layer `layer` reads as its i-th input. */
static uint32_t input_place(const lowering *low, const ty_layer *layer, uint32_t i)
{
    return layer->input_count == 0 ? 0 : place_of(low, layer->inputs[i]);
}

/* Another name for its input, unless that lies in another layout. */
static ty_status lower_flatten(lowering *low, uint32_t index, uint32_t input, uint32_t output,
                               ty_error *error)
{
    const cpu_value *from = &low->stage->values[input];

    if (!is_same_layout(&from->shape, from->layout, CPU_PLAIN))
        return node_add(low, &cpu_to_plain, index, &input, 1, output, error);
    value_share(low, input, output);
    return TY_OK;
}

/* Overwrites its input if nobody else wants it; the layer that made it may do the work at once,
 * unless it makes averages of what the relu would change. */
static ty_status lower_relu(lowering *low, uint32_t index, uint32_t input, uint32_t output,
                            ty_error *error)
{
    ty_stage_device *stage = low->stage;
    cpu_node *last = stage->node_count > 0 ? &stage->nodes[stage->node_count - 1] : NULL;

    if (stage->values[input].is_private) {
        value_share(low, input, output);
        if (last != NULL && last->output == input && last->kind->fuses_relu &&
            (last->pool == NULL || last->pool->attributes[TY_IS_AVERAGE] == 0)) {
            last->has_relu = true;
            return TY_OK;
        }
    }
    return node_add(low, &cpu_relu, index, &input, 1, output, error);
}

/* A convolution pools its images itself, a few at a time, if nobody else wants them; the relu
 * between the two has been done by then. An average of what a relu has changed would need them in
 * backward, and backward in two parts needs their gradient twice. */
static ty_status lower_pool(lowering *low, uint32_t index, uint32_t input, uint32_t output,
                            ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const ty_layer *layer = &low->workload->layers[index];
    cpu_node *last = stage->node_count > 0 ? &stage->nodes[stage->node_count - 1] : NULL;
    const uint32_t made = last != NULL ? stage->values[last->output].data_of : CPU_NONE;
    const bool is_average = layer->attributes[TY_IS_AVERAGE] != 0;

    if (last == NULL || stage->values[input].data_of != made || !stage->values[input].is_private ||
        !last->kind->fuses_pool || last->pool != NULL || (is_average && last->has_relu) ||
        stage->options.splits_backward)
        return node_add(low, &cpu_pool, index, &input, 1, output, error);
    stage->values[made].is_inside = true;
    last->pool = layer;
    last->output = output;
    return TY_OK;
}

static ty_status lower_layer(lowering *low, uint32_t index, ty_error *error)
{
    const ty_layer *layer = &low->workload->layers[index];
    const cpu_kind *kind = cpu_kind_of(layer->kind);
    const ty_shape shape = lane_shape(&low->stage->options, index);
    uint32_t place = place_of(low, index), output, input_count;
    uint32_t *inputs;
    cpu_layout layout = kind->layout;
    ty_status status = TY_OK;

    input_count = layer->input_count > 0 ? layer->input_count : 1;
    inputs = ty_alloc(input_count, sizeof *inputs);
    if (inputs == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s", layer->name);
    for (uint32_t i = 0; i < input_count; i++) {
        uint32_t value = low->values[input_place(low, layer, i)];
        if (i == 0 && layout == CPU_ANY_LAYOUT)
            layout = low->stage->values[value].layout;
        if (layer->kind == TY_LAYER_FLATTEN) /* takes any, gives plain */
            inputs[i] = value;
        else
            TY_CHECK(value_in_layout(low, value, layout, index, &inputs[i], error), status,
                     cleanup);
    }
    TY_CHECK(value_add(low, &shape, shape.dimension_count == 3 ? layout : CPU_PLAIN,
                       low->trains[index], &output, error),
             status, cleanup);
    low->stage->values[output].is_private = low->readers[place] == 1 && !kind->reads_output;
    low->values[place] = output;
    if (layer->kind == TY_LAYER_FLATTEN)
        status = lower_flatten(low, index, inputs[0], output, error);
    else if (layer->kind == TY_LAYER_RELU)
        status = lower_relu(low, index, inputs[0], output, error);
    else if (layer->kind == TY_LAYER_POOL)
        status = lower_pool(low, index, inputs[0], output, error);
    else
        status = node_add(low, kind, index, inputs, input_count, output, error);

cleanup:
    ty_free(inputs);
    return status;
}

static ty_status readers_count(lowering *low, ty_error *error)
{
    for (uint32_t i = 0; i < low->count; i++) {
        const ty_layer *layer = &low->workload->layers[low->first + i];
        if (layer->input_count == 0 && low->first > 0)
            return ty_fail(error, TY_EINVAL, "layer %s reads the batch, which only stage 0 has",
                           layer->name);
        if (layer->input_count == 0)
            low->readers[0]++;
        for (uint32_t k = 0; k < layer->input_count; k++)
            low->readers[place_of(low, layer->inputs[k])]++;
    }
    /* What enters another segment is not overwritten there. */
    for (uint32_t i = 0; i < low->count; i++) {
        const ty_layer *layer = &low->workload->layers[low->first + i];
        for (uint32_t k = 0; k < layer->input_count; k++)
            if (layer->inputs[k] >= low->first &&
                stage_segment_of(&low->stage->segments, layer->inputs[k]) !=
                    stage_segment_of(&low->stage->segments, low->first + i))
                low->readers[place_of(low, layer->inputs[k])] += 2;
    }
    /* What is sent on is not overwritten, whoever reads it. */
    for (uint32_t i = 0; i < low->behind_count; i++)
        low->readers[place_of(low, low->behind[i])] += 2;
    return TY_OK;
}

/* The batch, or what crosses the cut before the stage. */
static ty_status lower_input(lowering *low, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    ty_status status = TY_OK;

    if (low->first == 0) {
        const ty_shape batch = lane_context_shape(&stage->options, &low->workload->input);
        TY_CHECK(value_add(low, &batch, CPU_PLAIN, false, &low->values[0], error), status, done);
        stage->values[0].is_kept = stage->values[0].is_gradient_kept = true;
        return TY_OK;
    }
    for (uint32_t i = 0; i < low->before_count; i++) {
        const uint32_t producer = low->before[i];
        const ty_shape shape = lane_shape(&stage->options, producer);
        TY_CHECK(value_add(low, &shape, CPU_PLAIN, low->trains[producer], &low->values[i], error),
                 status, done);
        TY_CHECK(cpu_cut_add(stage, &stage->input, producer, low->values[i], error), status, done);
    }
done:
    return status;
}

/* What crosses the cut behind the stage: plain; behind a loss nothing. */
static ty_status lower_output(lowering *low, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const uint32_t last = low->first + low->count - 1;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < low->behind_count; i++) {
        uint32_t value = low->values[place_of(low, low->behind[i])];
        TY_CHECK(value_in_layout(low, value, CPU_PLAIN, last, &value, error), status, done);
        TY_CHECK(cpu_cut_add(stage, &stage->output, low->behind[i], value, error), status, done);
    }
done:
    return status;
}

/* The tables, with room for what crosses. */
static ty_status lowering_start(lowering *low, ty_error *error)
{
    const ty_workload *workload = low->workload;
    const uint32_t end = low->first + low->count;

    low->before = ty_alloc((size_t)low->first + 1, sizeof *low->before);
    low->behind = ty_alloc((size_t)end + 1, sizeof *low->behind);
    low->trains = ty_alloc(workload->layer_count, sizeof *low->trains);
    if (low->before == NULL || low->behind == NULL || low->trains == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u layers", (unsigned)low->count);
    low->before_count =
        low->first == 0 ? 1 : ty_workload_crossing(workload, low->first, low->before);
    low->behind_count =
        end == workload->layer_count ? 0 : ty_workload_crossing(workload, end, low->behind);
    low->values = ty_alloc((size_t)low->before_count + low->count, sizeof *low->values);
    low->readers = ty_alloc((size_t)low->before_count + low->count, sizeof *low->readers);
    if (low->values == NULL || low->readers == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u layers", (unsigned)low->count);
    return TY_OK;
}

/* One, until another has to do with it as well. */
static void segment_note(uint32_t *segment, uint32_t another, bool *is_known)
{
    *segment = *is_known && *segment != another ? STAGE_NO_SEGMENT : another;
    *is_known = true;
}

/* Which segment each value is of; what goes from one to another is kept, and what recomputing does
 * not make again. Copies in another layout are. */
static ty_status segments_place(ty_stage_device *stage, ty_error *error)
{
    bool *is_known = ty_alloc(stage->value_count, sizeof *is_known);

    if (is_known == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors",
                       (unsigned)stage->value_count);
    for (uint32_t v = 0; v < stage->value_count; v++)
        stage->values[v].segment = stage->values[v].gradient_segment = STAGE_NO_SEGMENT;
    for (uint32_t n = 0; n < stage->node_count; n++) {
        cpu_node *node = &stage->nodes[n];
        const uint32_t segment = stage_segment_of(&stage->segments, node->layer_index);
        const ty_layer_again again = stage->segments.again[node->layer_index];
        const bool is_copy = node->kind == &cpu_to_plain || node->kind == &cpu_to_channels_last;
        cpu_value *made = &stage->values[stage->values[node->output].data_of];
        uint32_t gradient = stage->values[node->output].gradient_of;

        node->is_kept = again.what == TY_AGAIN_NOTHING && !is_copy;
        made->segment = segment;
        made->is_kept = made->is_kept || (again.keeps_output && !is_copy);
        segment_note(&stage->values[gradient].gradient_segment, segment, &is_known[gradient]);
        for (uint32_t i = 0; i < node->input_count; i++) {
            cpu_value *read = &stage->values[stage->values[node->inputs[i]].data_of];
            read->is_kept = read->is_kept || read->segment != segment;
            gradient = stage->values[node->inputs[i]].gradient_of;
            segment_note(&stage->values[gradient].gradient_segment, segment, &is_known[gradient]);
        }
    }
    ty_free(is_known);
    return TY_OK;
}

static ty_status lower(ty_stage_device *stage, ty_error *error)
{
    const ty_stage_options *options = &stage->options;
    lowering low = {
        .stage = stage,
        .workload = options->workload,
        .first = options->first_layer,
        .count = options->layer_count,
    };
    ty_status status = TY_OK;

    TY_CHECK(lowering_start(&low, error), status, cleanup);
    TY_CHECK(readers_count(&low, error), status, cleanup);
    stage_trains_find(low.workload, low.trains);
    TY_CHECK(lower_input(&low, error), status, cleanup);
    for (uint32_t i = 0; i < low.count; i++)
        TY_CHECK(lower_layer(&low, low.first + i, error), status, cleanup);
    TY_CHECK(lower_output(&low, error), status, cleanup);
    TY_CHECK(cpu_gradients_place(stage, error), status, cleanup);
    if (stage->segments.count > 0)
        TY_CHECK(segments_place(stage, error), status, cleanup);

cleanup:
    ty_free(low.before);
    ty_free(low.behind);
    ty_free(low.values);
    ty_free(low.readers);
    ty_free(low.trains);
    return status;
}

ty_status cpu_build(ty_stage_device *stage, ty_error *error)
{
    ty_status status = TY_OK;

    TY_CHECK(stage_segments_find(&stage->options, &stage->segments, error), status, cleanup);
    TY_CHECK(stage_parameters_place(&stage->options, &stage->placed, error), status, cleanup);
    TY_CHECK(lower(stage, error), status, cleanup);
    for (uint32_t n = 0; n < stage->node_count; n++) {
        cpu_node *node = &stage->nodes[n];
        if (node->kind->build != NULL)
            TY_CHECK(node->kind->build(stage, node, error), status, cleanup);
    }
    if (!cpu_memory_allocate(stage)) {
        status =
            ty_fail(error, TY_ENOMEM,
                    "out of memory after %.3g GB for layers %u to %u with %u slots of %u samples",
                    (double)stage->memory_bytes * 1e-9, (unsigned)stage->options.first_layer,
                    (unsigned)(stage->options.first_layer + stage->options.layer_count - 1),
                    (unsigned)stage->options.slots, (unsigned)stage->options.micro_batch_size);
        goto cleanup;
    }
    for (uint32_t n = 0; n < stage->node_count; n++)
        if (stage->nodes[n].tensor_count > 0)
            stage_parameters_fill(&stage->options, stage->nodes[n].layer_index,
                                  stage->nodes[n].offsets, stage->parameters);
    cpu_versions_fill(stage);

cleanup:
    return status;
}
