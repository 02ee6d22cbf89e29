/*
 * Lowers a workload's layers to the values and nodes of a stage: parameter offsets, memory orders,
 * layers that join others, buffers that only one segment uses.
 */
#include "stage.h"

#include <string.h>

/* Options of mlp, moe, attention, lstm and concat. */
static const uint64_t known_options =
    LAYER_OPTION(TY_IS_RELU) | LAYER_OPTION(TY_HAS_QKV_BIAS) | LAYER_OPTION(TY_HAS_QK_NORM) |
    LAYER_OPTION(TY_RELATIVE_BUCKETS) | LAYER_OPTION(TY_IS_REVERSED) |
    LAYER_OPTION(TY_IS_OF_FEATURES) | LAYER_OPTION(TY_SHARED_FEATURES);

ty_status stage_supports(const stage_backend *backend, const ty_workload *workload,
                         uint32_t first_layer, uint32_t layer_count, ty_error *error)
{
    for (uint32_t l = first_layer; l < first_layer + layer_count; l++) {
        const ty_layer *layer = &workload->layers[l];
        const stage_kind *kind = backend->kinds[layer->kind];
        const ty_attribute unknown = layer_unknown_option(layer, known_options);
        ty_status status;

        if (kind == NULL)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the %s backend does not train layers of kind %s", layer->name,
                           backend->name, ty_layer_kind_name(layer->kind));
        if (unknown != TY_ATTRIBUTE_COUNT)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the %s backend does not train %s with %s", layer->name,
                           backend->name, ty_layer_kind_name(layer->kind),
                           ty_attribute_name(unknown));
        if (kind->supports != NULL && (status = kind->supports(workload, l, error)) != TY_OK)
            return status;
    }
    return TY_OK;
}

ty_status stage_options_check(const stage_backend *backend, const ty_stage_options *options,
                              ty_error *error)
{
    const ty_workload *workload = options->workload;
    ty_status status;

    if (options->layer_count == 0 || options->first_layer >= workload->layer_count ||
        options->layer_count > workload->layer_count - options->first_layer)
        return ty_fail(error, TY_EINVAL, "found layers %u + %u, expected a range within 0 to %u",
                       (unsigned)options->first_layer, (unsigned)options->layer_count,
                       (unsigned)workload->layer_count);
    if (options->micro_batch_size == 0 || options->slots == 0)
        return ty_fail(error, TY_EINVAL,
                       "found %u samples per micro-batch in %u slots, expected at least 1 of each",
                       (unsigned)options->micro_batch_size, (unsigned)options->slots);
    status = stage_supports(backend, workload, options->first_layer, options->layer_count, error);
    return status == TY_OK ? parallel_check(options, error) : status;
}

/* ---- Values and nodes ---- */

/* Makes room for one more element of an array. */
static bool room_make(void **array, size_t size, uint32_t count, uint32_t *room)
{
    const uint32_t more = *room == 0 ? 64 : *room * 2;
    void *grown;

    if (count < *room)
        return true;
    grown = ty_resize(*array, more, size);
    if (grown == NULL)
        return false;
    *array = grown;
    *room = more;
    return true;
}

static ty_status value_add(stage_lowering *low, const ty_shape *shape, stage_order order,
                           bool needs_gradient, uint32_t *out, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const uint32_t at = stage->value_count;
    void *values = stage->values;

    if (!room_make(&values, sizeof *stage->values, at, &low->value_room))
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors", (unsigned)at + 1);
    stage->values = values;
    stage->values[at] = (stage_value){.shape = *shape,
                                      .order = order,
                                      .count = ty_shape_elements(shape) * stage_batch(stage),
                                      .data_of = at,
                                      .gradient_of = at,
                                      .needs_gradient = needs_gradient};
    stage->value_count++;
    *out = at;
    return TY_OK;
}

/* @param is_own the layer itself, and not a change of order before it */
static ty_status node_add(stage_lowering *low, const stage_kind *kind, bool is_own,
                          const stage_place *place, uint32_t input_count, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const ty_layer *layer = &low->workload->layers[place->layer];
    sharded_tensor tensors[LAYER_MAX_TENSORS] = {0};
    void *nodes = stage->nodes;
    stage_node *node;

    if (!room_make(&nodes, sizeof *stage->nodes, stage->node_count, &low->node_room))
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s", layer->name);
    stage->nodes = nodes;
    node = &stage->nodes[stage->node_count++];
    *node = (stage_node){.kind = kind,
                         .layer = layer,
                         .layer_index = place->layer,
                         .input_count = input_count,
                         .output = place->output};
    /* With room for a sum that may join. */
    node->inputs = ty_alloc((size_t)input_count + 1, sizeof *node->inputs);
    node->adds = ty_alloc((size_t)input_count + 1, sizeof *node->adds);
    if (node->inputs == NULL || node->adds == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s", layer->name);
    memcpy(node->inputs, place->inputs, input_count * sizeof *node->inputs);
    if (!is_own)
        return TY_OK;
    node->whole_input =
        cp_shape(&stage->options, ty_layer_input_shape(low->workload, place->layer, 0));
    node->whole_output = cp_shape(&stage->options, &layer->output);
    node->is_divided = is_tp_sharded(&stage->options, place->layer);
    node->is_matrix_frozen =
        layer->tied_to != TY_NO_LAYER && low->workload->layers[layer->tied_to].is_frozen;
    node->tensor_count = ty_layer_tensors(low->workload, place->layer, tensors);
    return node->tensor_count == 0 ? TY_OK
                                   : stage_parameters_locate(&stage->options, &stage->placed,
                                                             place->layer, node->offsets, error);
}

/* With one channel, or one pixel, both orders are the same. */
static bool is_same_order(const ty_shape *shape, stage_order a, stage_order b)
{
    return a == b || shape->dimension_count != 3 || shape->dimensions[0] == 1 ||
           shape->dimensions[1] * shape->dimensions[2] == 1;
}

/* The value, or a copy of it in another order before layer `layer`. */
static ty_status value_in_order(stage_lowering *low, uint32_t value, stage_order order,
                                uint32_t layer, uint32_t *out, ty_error *error)
{
    const stage_value from = low->stage->values[value]; /* adding a value moves the array */
    ty_status status;

    *out = value;
    if (order == STAGE_ANY_ORDER || is_same_order(&from.shape, from.order, order))
        return TY_OK;
    status = value_add(low, &from.shape, order, from.needs_gradient, out, error);
    if (status != TY_OK)
        return status;
    return node_add(low, &stage_reorder, false, &(stage_place){layer, &value, *out}, 1, error);
}

void stage_value_share(stage_lowering *low, uint32_t value, uint32_t alias)
{
    stage_value *values = low->stage->values;

    values[alias].data_of = values[value].data_of;
    values[alias].gradient_of = values[value].gradient_of;
    values[alias].is_private = values[alias].is_private && values[value].is_private;
}

/* Index into low->values and low->readers of the output of a layer. */
static uint32_t place_of(const stage_lowering *low, uint32_t producer)
{
    uint32_t at = 0;

    if (producer >= low->first)
        return low->before_count + producer - low->first;
    while (low->before[at] != producer)
        at++;
    return at;
}

/* The same for the i-th input of a layer. */
static uint32_t input_place(const stage_lowering *low, const ty_layer *layer, uint32_t i)
{
    return layer->input_count == 0 ? 0 : place_of(low, layer->inputs[i]);
}

uint32_t stage_value_of(const stage_lowering *low, uint32_t layer)
{
    return low->values[place_of(low, layer)];
}

static uint32_t input_count_of(const ty_layer *layer)
{
    return layer->input_count > 0 ? layer->input_count : 1;
}

/* ---- Layers ---- */

static ty_status lower_layer(stage_lowering *low, uint32_t index, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const ty_layer *layer = &low->workload->layers[index];
    const stage_kind *kind = stage->backend->kinds[layer->kind];
    const bool is_flatten = ty_layer_row_of(layer)->is_view; /* reads any order, writes planes */
    const ty_shape shape = tp_shape(&stage->options, index);
    const uint32_t at = place_of(low, index), count = input_count_of(layer);
    uint32_t *inputs = ty_alloc(count, sizeof *inputs);
    stage_place place = {.layer = index, .inputs = inputs};
    stage_order order = kind->order;
    const stage_value *read;
    ty_status status = TY_OK;

    if (inputs == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s", layer->name);
    for (uint32_t i = 0; i < count; i++) {
        inputs[i] = low->values[input_place(low, layer, i)];
        if (i == 0 && order == STAGE_ANY_ORDER)
            order = stage->values[inputs[0]].order;
        if (!is_flatten)
            TY_CHECK(value_in_order(low, inputs[i], order, index, &inputs[i], error), status,
                     cleanup);
    }
    TY_CHECK(value_add(low, &shape, shape.dimension_count == 3 ? order : STAGE_PLANES,
                       low->trains[index], &place.output, error),
             status, cleanup);
    stage->values[place.output].is_private = low->readers[at] == 1 && !kind->reads_output;
    low->values[at] = place.output;
    read = &stage->values[inputs[0]];
    if (is_flatten && is_same_order(&read->shape, read->order, STAGE_PLANES))
        stage_value_share(low, inputs[0], place.output);
    else if (kind->join == NULL || !kind->join(low, &place))
        status = node_add(low, kind, true, &place, count, error);
cleanup:
    ty_free(inputs);
    return status;
}

static ty_status readers_count(stage_lowering *low, ty_error *error)
{
    const stage_segments *segments = &low->stage->segments;

    for (uint32_t l = low->first; l < low->end; l++) {
        const ty_layer *layer = &low->workload->layers[l];
        if (layer->input_count == 0 && low->first > 0)
            return ty_fail(error, TY_EINVAL, "layer %s reads the batch, which only stage 0 has",
                           layer->name);
        for (uint32_t i = 0; i < input_count_of(layer); i++) {
            const uint32_t place = input_place(low, layer, i);
            const bool enters =
                layer->input_count > 0 && layer->inputs[i] >= low->first &&
                stage_segment_of(segments, layer->inputs[i]) != stage_segment_of(segments, l);
            low->readers[place] += enters ? 3 : 1; /* is not overwritten in another segment */
        }
    }
    for (uint32_t i = 0; i < low->behind_count; i++) /* nor are sent tensors */
        low->readers[place_of(low, low->behind[i])] += 2;
    return TY_OK;
}

/* ---- Cuts ---- */

/* Messages are planes. If they are copied, a value has the order of its first reader. */
static stage_order order_wanted(const stage_lowering *low, uint32_t place)
{
    if (!low->stage->backend->copies_messages)
        return STAGE_PLANES;
    for (uint32_t l = low->first; l < low->end; l++) {
        const ty_layer *layer = &low->workload->layers[l];
        const stage_order order = low->stage->backend->kinds[layer->kind]->order;

        for (uint32_t i = 0; i < input_count_of(layer); i++) {
            if (input_place(low, layer, i) != place)
                continue;
            if (order != STAGE_ANY_ORDER)
                return order;
            return layer->output.dimension_count == 3 ? STAGE_CHANNELS_LAST : STAGE_PLANES;
        }
    }
    return STAGE_PLANES;
}

static bool has_gradient_part(const stage_lowering *low, uint32_t producer)
{
    return producer >= ty_workload_first_backward(low->workload);
}

/* The batch, or the tensors that cross the cut before the stage. */
static ty_status lower_input(stage_lowering *low, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    ty_status status = TY_OK;

    if (low->first == 0) {
        const ty_shape batch = cp_shape(&stage->options, &low->workload->input);
        TY_CHECK(value_add(low, &batch, order_wanted(low, 0), false, &low->values[0], error),
                 status, done);
        stage->values[0].is_kept = !stage->backend->copies_messages;
        if (stage->backend->copies_messages && low->workload->input_kind != TY_INPUT_TOKEN)
            status = stage_cut_add(stage, &stage->before, 0, false, error);
        return status;
    }
    for (uint32_t i = 0; i < low->before_count; i++) {
        const uint32_t producer = low->before[i];
        const ty_shape shape = tp_shape(&stage->options, producer);
        TY_CHECK(value_add(low, &shape, order_wanted(low, i), low->trains[producer],
                           &low->values[i], error),
                 status, done);
        TY_CHECK(stage_cut_add(stage, &stage->before, low->values[i],
                               has_gradient_part(low, producer), error),
                 status, done);
    }
done:
    return status;
}

/* The tensors that cross the cut after the stage; after a loss none. */
static ty_status lower_output(stage_lowering *low, ty_error *error)
{
    ty_stage_device *stage = low->stage;

    for (uint32_t i = 0; i < low->behind_count; i++) {
        uint32_t value = stage_value_of(low, low->behind[i]);
        if (!stage->backend->copies_messages)
            TY_TRY(value_in_order(low, value, STAGE_PLANES, low->end - 1, &value, error));
        TY_TRY(stage_cut_add(stage, &stage->behind, value, has_gradient_part(low, low->behind[i]),
                             error));
    }
    return TY_OK;
}

/* ---- Segments ---- */

/* Notes that a segment uses a value: STAGE_NO_SEGMENT once a second one does. */
static void segment_note(ty_stage_device *stage, uint32_t value, uint32_t segment, bool *is_known)
{
    const uint32_t root = stage->values[value].gradient_of;
    uint32_t *noted = &stage->values[root].gradient_segment;

    *noted = is_known[root] && *noted != segment ? STAGE_NO_SEGMENT : segment;
    is_known[root] = true;
}

static stage_value *root_of(ty_stage_device *stage, uint32_t value)
{
    return &stage->values[stage->values[value].data_of];
}

static void node_place(ty_stage_device *stage, stage_node *node, bool *is_known)
{
    const uint32_t segment = stage_segment_of(&stage->segments, node->layer_index);
    const ty_layer_again again = stage->segments.again[node->layer_index];
    const bool is_copy = node->kind == &stage_reorder;
    stage_value *made = root_of(stage, node->output);

    node->is_kept = again.what == TY_AGAIN_NOTHING && !is_copy;
    made->segment = segment;
    made->is_kept = made->is_kept || (again.keeps_output && !is_copy);
    segment_note(stage, node->output, segment, is_known);
    for (uint32_t i = 0; i < node->input_count; i++) {
        stage_value *read = root_of(stage, node->inputs[i]);
        read->is_kept = read->is_kept || read->segment != segment;
        segment_note(stage, node->inputs[i], segment, is_known);
    }
}

/* Finds the segment of each value and of its gradient. A value that goes from one segment to
 * another is stored, as is one that recomputing does not compute; copies in another order are
 * rebuilt. Tensors that cross the cut before the stage enter the first segment. */
static ty_status segments_place(ty_stage_device *stage, ty_error *error)
{
    const uint32_t last = stage->segments.count - 1;
    bool *is_known = ty_alloc(stage->value_count, sizeof *is_known);

    if (is_known == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors",
                       (unsigned)stage->value_count);
    for (uint32_t v = 0; v < stage->value_count; v++) {
        stage->values[v].segment = 0; /* unless a node computes it */
        stage->values[v].gradient_segment = STAGE_NO_SEGMENT;
    }
    for (uint32_t i = 0; i < stage->before.count; i++)
        segment_note(stage, stage->before.tensors[i].value, 0, is_known);
    for (uint32_t i = 0; i < stage->behind.count; i++)
        segment_note(stage, stage->behind.tensors[i].value, last, is_known);
    for (uint32_t n = 0; n < stage->node_count; n++)
        node_place(stage, &stage->nodes[n], is_known);
    for (uint32_t i = 0; i < stage->behind.count; i++) {
        stage_value *sent = root_of(stage, stage->behind.tensors[i].value);
        sent->is_kept = sent->is_kept || sent->segment != last;
    }
    ty_free(is_known);
    return TY_OK;
}

/* ---- All of it ---- */

/* Allocates the tables, with room for tensors that cross. */
static ty_status lowering_start(stage_lowering *low, ty_error *error)
{
    const ty_workload *workload = low->workload;
    const uint32_t count = low->end - low->first;

    low->before = ty_alloc((size_t)low->first + 1, sizeof *low->before);
    low->behind = ty_alloc((size_t)low->end + 1, sizeof *low->behind);
    low->trains = ty_alloc(workload->layer_count, sizeof *low->trains);
    if (low->before == NULL || low->behind == NULL || low->trains == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u layers", (unsigned)count);
    low->before_count =
        low->first == 0 ? 1 : ty_workload_crossing(workload, low->first, low->before);
    low->behind_count = low->end == workload->layer_count
                            ? 0
                            : ty_workload_crossing(workload, low->end, low->behind);
    low->values = ty_alloc((size_t)low->before_count + count, sizeof *low->values);
    low->readers = ty_alloc((size_t)low->before_count + count, sizeof *low->readers);
    if (low->values == NULL || low->readers == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u layers", (unsigned)count);
    stage_trains_find(workload, low->trains);
    return readers_count(low, error);
}

static ty_status lower(ty_stage_device *stage, ty_error *error)
{
    const ty_stage_options *options = &stage->options;
    stage_lowering low = {.stage = stage,
                          .workload = options->workload,
                          .first = options->first_layer,
                          .end = options->first_layer + options->layer_count};
    ty_status status = TY_OK;

    TY_CHECK(lowering_start(&low, error), status, cleanup);
    TY_CHECK(lower_input(&low, error), status, cleanup);
    for (uint32_t l = low.first; l < low.end; l++)
        TY_CHECK(lower_layer(&low, l, error), status, cleanup);
    TY_CHECK(lower_output(&low, error), status, cleanup);
    TY_CHECK(stage_gradients_place(stage, error), status, cleanup);
    if (stage->segments.count > 0)
        status = segments_place(stage, error);
cleanup:
    ty_free(low.before);
    ty_free(low.behind);
    ty_free(low.values);
    ty_free(low.readers);
    ty_free(low.trains);
    return status;
}

ty_status stage_build(ty_stage_device *stage, ty_error *error)
{
    const ty_stage_options *options = &stage->options;
    ty_status status = TY_OK;

    TY_CHECK(stage_segments_find(options, &stage->segments, error), status, cleanup);
    TY_CHECK(stage_parameters_place(options, &stage->placed, error), status, cleanup);
    stage->set_stride = ty_parameter_stride(stage->placed.count);
    TY_CHECK(lower(stage, error), status, cleanup);
    for (uint32_t n = 0; n < stage->node_count; n++)
        if (stage->nodes[n].kind->build != NULL)
            TY_CHECK(stage->nodes[n].kind->build(stage, &stage->nodes[n], error), status, cleanup);
    if (!stage_cuts_allocate(stage) || !stage_memory_allocate(stage))
        status =
            ty_fail(error, TY_ENOMEM,
                    "out of %smemory after %.3g GB for layers %u to %u with %u slots of %u samples",
                    stage->backend->memory, (double)stage->memory_bytes * 1e-9,
                    (unsigned)options->first_layer,
                    (unsigned)(options->first_layer + options->layer_count - 1),
                    (unsigned)options->slots, (unsigned)options->micro_batch_size);
cleanup:
    return status;
}

ty_status stage_new(const stage_backend *backend, const ty_stage_options *options, size_t own_bytes,
                    ty_stage_device **out, ty_error *error)
{
    ty_stage_device *stage = ty_alloc(1, sizeof *stage);
    void *own = ty_alloc(1, own_bytes);

    if (stage == NULL || own == NULL) {
        ty_free(stage);
        ty_free(own);
        return ty_fail(error, TY_ENOMEM, "out of memory for a stage");
    }
    stage->backend = backend;
    stage->options = *options;
    stage->own = own;
    *out = stage;
    return TY_OK;
}

void stage_nodes_release(ty_stage_device *stage)
{
    for (uint32_t n = 0; n < stage->node_count; n++) {
        stage_node *node = &stage->nodes[n];
        if (node->kind->release != NULL)
            node->kind->release(stage, node);
        ty_free(node->inputs);
        ty_free(node->adds);
    }
    stage->node_count = 0;
}

void stage_clear(ty_stage_device *stage)
{
    stage_parameters_clear(&stage->placed);
    stage_segments_clear(&stage->segments);
    ty_free(stage->before.tensors);
    ty_free(stage->behind.tensors);
    ty_free(stage->blocks.blocks);
    ty_free(stage->values);
    ty_free(stage->nodes);
    ty_free(stage->own);
    ty_free(stage);
}
