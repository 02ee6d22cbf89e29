/* From a workload's layers to the values and nodes of a stage, and their memory. */
#include "cuda_stage.h"

#include <string.h>

/* A kind that is not here, or NULL, cannot be trained by this backend. */
static const cuda_kind *const kinds[TY_LAYER_KIND_COUNT] = {
    [TY_LAYER_LINEAR] = &cuda_linear,
    [TY_LAYER_CONV2D] = &cuda_conv2d,
    [TY_LAYER_POOL] = &cuda_pool_kind,
    [TY_LAYER_BATCH_NORM] = &cuda_batch_norm_kind,
    [TY_LAYER_LSTM] = &cuda_lstm,
    [TY_LAYER_ADDITIVE_ATTENTION] = &cuda_additive_attention,
    [TY_LAYER_LAYER_NORM] = &cuda_layer_norm,
    [TY_LAYER_RMS_NORM] = &cuda_rms_norm,
    [TY_LAYER_EMBEDDING] = &cuda_embedding_kind,
    [TY_LAYER_ATTENTION] = &cuda_attention_kind,
    [TY_LAYER_MLP] = &cuda_mlp,
    [TY_LAYER_MOE] = &cuda_moe,
    [TY_LAYER_ADD] = &cuda_add,
    [TY_LAYER_CONCAT] = &cuda_concat,
    [TY_LAYER_SLICE] = &cuda_slice,
    [TY_LAYER_RELU] = &cuda_relu,
    [TY_LAYER_GELU] = &cuda_gelu,
    [TY_LAYER_SILU] = &cuda_silu,
    [TY_LAYER_TANH] = &cuda_tanh,
    [TY_LAYER_FLATTEN] = &cuda_reorder,
    [TY_LAYER_SOFTMAX_CROSS_ENTROPY] = &cuda_loss_kind,
};

/* Of mlp, moe, attention, lstm and concat. */
static const uint64_t known_options =
    LAYER_OPTION(TY_IS_RELU) | LAYER_OPTION(TY_HAS_QKV_BIAS) | LAYER_OPTION(TY_HAS_QK_NORM) |
    LAYER_OPTION(TY_IS_REVERSED) | LAYER_OPTION(TY_IS_OF_FEATURES) |
    LAYER_OPTION(TY_RELATIVE_BUCKETS) | LAYER_OPTION(TY_SHARED_FEATURES);

const cuda_kind *cuda_kind_of(ty_layer_kind kind)
{
    return kinds[kind];
}

ty_status cuda_supports(const ty_workload *workload, uint32_t first_layer, uint32_t layer_count,
                        ty_error *error)
{
    for (uint32_t l = first_layer; l < first_layer + layer_count; l++) {
        const ty_layer *layer = &workload->layers[l];

        if (cuda_kind_of(layer->kind) == NULL)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the cuda backend does not train layers of kind %s",
                           layer->name, ty_layer_kind_name(layer->kind));
        if (layer_unknown_option(layer, known_options) != TY_ATTRIBUTE_COUNT)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the cuda backend does not train %s with %s", layer->name,
                           ty_layer_kind_name(layer->kind),
                           ty_attribute_name(layer_unknown_option(layer, known_options)));
        if (layer->kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY && layer->attributes[TY_CLASSES] == 1)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the cuda backend does not train a loss of one class",
                           layer->name);
        if (layer->kind == TY_LAYER_ATTENTION && layer->input_count > 1 &&
            layer->attributes[TY_RELATIVE_BUCKETS] > 0)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s: the cuda backend does not train attention to another "
                           "sequence with %s",
                           layer->name, ty_attribute_name(TY_RELATIVE_BUCKETS));
    }
    return TY_OK;
}

/* ---- Buffers ---- */

static bool block_keep(void ***blocks, uint32_t *count, uint32_t *room, void *block)
{
    if (*count == *room) {
        uint32_t grown_room = *room == 0 ? 64 : *room * 2;
        void **grown = ty_resize(*blocks, grown_room, sizeof *grown);
        if (grown == NULL)
            return false;
        *blocks = grown;
        *room = grown_room;
    }
    (*blocks)[(*count)++] = block;
    return true;
}

void *cuda_buffer(ty_stage_device *stage, uint64_t bytes)
{
    void *made = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cudaMalloc(&made, bytes) != cudaSuccess)
        return NULL;
    /* The zeros go by the legacy stream, which the stage's streams do not wait for. */
    if (cudaMemset(made, 0, bytes) != cudaSuccess || cudaStreamSynchronize(NULL) != cudaSuccess ||
        !block_keep(&stage->blocks, &stage->block_count, &stage->block_room, made)) {
        cudaFree(made);
        return NULL;
    }
    stage->memory_bytes += bytes;
    cuda_memory_count(stage, bytes);
    return made;
}

void *cuda_host_buffer(ty_stage_device *stage, uint64_t bytes)
{
    void *made = NULL;

    bytes = bytes > 0 ? bytes : 1;
    if (cudaHostAlloc(&made, bytes, cudaHostAllocDefault) != cudaSuccess)
        return NULL;
    memset(made, 0, bytes);
    if (!block_keep(&stage->host_blocks, &stage->host_block_count, &stage->host_block_room, made)) {
        cudaFreeHost(made);
        return NULL;
    }
    return made;
}

void cuda_buffers_free(ty_stage_device *stage)
{
    for (uint32_t b = 0; b < stage->block_count; b++)
        cudaFree(stage->blocks[b]);
    for (uint32_t b = 0; b < stage->host_block_count; b++)
        cudaFreeHost(stage->host_blocks[b]);
    ty_free(stage->blocks);
    ty_free(stage->host_blocks);
}

/* ---- Values and nodes ---- */

/* What lowering needs to know beside the stage itself. */
typedef struct lowering {
    ty_stage_device *stage;
    const ty_workload *workload;
    uint32_t first, end;            /* layers */
    uint32_t before_count, *before; /* layers whose outputs cross the cut before the stage */
    uint32_t behind_count, *behind; /* and that behind it */
    uint32_t first_backward;        /* layers before it have no backward */
    bool *trains; /* [layer_count of the workload]: a parameter at or before it is trained */
    bool *flags;  /* [values] scratch */
} lowering;

/* The value that a layer makes: what crosses (the batch counts as one) comes before those of the
 * stage's layers. */
static uint32_t value_of(const lowering *low, uint32_t producer)
{
    uint32_t at = 0;

    if (producer >= low->first)
        return low->before_count + producer - low->first;
    while (low->before[at] != producer)
        at++;
    return at;
}

static uint32_t input_of(const lowering *low, const ty_layer *layer, uint32_t i)
{
    return layer->input_count == 0 ? 0 : value_of(low, layer->inputs[i]);
}

static ty_status inputs_check(const lowering *low, const ty_layer *layer, ty_error *error)
{
    if (layer->input_count == 0 && low->first > 0)
        return ty_fail(error, TY_EINVAL, "layer %s reads the batch, which only stage 0 has",
                       layer->name);
    return TY_OK;
}

static void value_make(lowering *low, uint32_t at, const ty_shape *shape, cuda_order order,
                       bool needs_gradient)
{
    const uint64_t batch = low->stage->options.micro_batch_size;

    low->stage->values[at] = (cuda_value){.shape = *shape,
                                          .order = order,
                                          .count = ty_shape_elements(shape) * batch,
                                          .same_as = at,
                                          .needs_gradient = needs_gradient};
}

/* What this lane has of a layer's output. */
static void output_make(lowering *low, uint32_t at, uint32_t producer, cuda_order order)
{
    const ty_shape shape = lane_shape(&low->stage->options, producer);

    value_make(low, at, &shape, order, low->trains[producer]);
}

/* A node with room for its inputs. */
static ty_status node_begin(lowering *low, const cuda_kind *kind, uint32_t index,
                            uint32_t input_count, uint32_t output, cuda_node **out, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const ty_layer *layer = &low->workload->layers[index];
    cuda_node *node = &stage->nodes[stage->node_count];

    *node = (cuda_node){.kind = kind,
                        .layer = layer,
                        .layer_index = index,
                        .input_count = input_count,
                        .output = output};
    node->inputs = ty_alloc(node->input_count, sizeof *node->inputs);
    node->adds = ty_alloc(node->input_count, sizeof *node->adds);
    stage->node_count++;
    if (node->inputs == NULL || node->adds == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s", layer->name);
    *out = node;
    return TY_OK;
}

static bool is_in_order(const cuda_value *value, cuda_order order)
{
    return value->order == order || cuda_channels(value) == 1 || cuda_pixels(value) == 1;
}

/* Has `value` in the order that layer `index` reads: it, or a copy of it in front of the layer. */
static ty_status value_in_order(lowering *low, uint32_t value, cuda_order order, uint32_t index,
                                uint32_t *out, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const cuda_value *from = &stage->values[value];
    cuda_node *node;
    ty_status status;

    *out = value;
    if (is_in_order(from, order))
        return TY_OK;
    *out = stage->value_count++;
    value_make(low, *out, &from->shape, order, from->needs_gradient);
    status = node_begin(low, &cuda_reorder, index, 1, *out, &node, error);
    if (status == TY_OK)
        node->inputs[0] = value;
    return status;
}

static ty_status node_add(lowering *low, uint32_t index, cuda_order order, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    const ty_layer *layer = &low->workload->layers[index];
    const uint32_t owner = layer->tied_to, count = layer->input_count > 0 ? layer->input_count : 1;
    lane_tensor tensors[LAYER_MAX_TENSORS] = {0};
    uint32_t *inputs = ty_alloc(count, sizeof *inputs);
    cuda_node *node;
    ty_status status = TY_OK;

    if (inputs == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s", layer->name);
    for (uint32_t i = 0; i < count; i++) {
        inputs[i] = input_of(low, layer, i);
        if (layer->kind != TY_LAYER_FLATTEN) /* reads either */
            TY_CHECK(value_in_order(low, inputs[i], order, index, &inputs[i], error), status,
                     cleanup);
    }
    TY_CHECK(node_begin(low, cuda_kind_of(layer->kind), index, count, value_of(low, index), &node,
                        error),
             status, cleanup);
    memcpy(node->inputs, inputs, count * sizeof *inputs);
    node->whole_input =
        lane_context_shape(&stage->options, ty_layer_input_shape(low->workload, index, 0));
    node->whole_output = lane_context_shape(&stage->options, &layer->output);
    node->is_divided = lane_divides(&stage->options, index);
    node->is_matrix_frozen = owner != TY_NO_LAYER && low->workload->layers[owner].is_frozen;
    node->tensor_count = ty_layer_tensors(low->workload, index, tensors);
    status = stage_parameters_locate(&stage->options, &stage->placed, index, node->offsets, error);
cleanup:
    ty_free(inputs);
    return status;
}

/* What comes in lies as its first reader wants it; what is only passed on as in the messages. */
static cuda_order order_wanted(const lowering *low, uint32_t value)
{
    for (uint32_t l = low->first; l < low->end; l++) {
        const ty_layer *layer = &low->workload->layers[l];
        const cuda_order order = cuda_kind_of(layer->kind)->order;
        bool is_read = false;

        for (uint32_t i = 0; i < (layer->input_count > 0 ? layer->input_count : 1); i++)
            is_read = is_read || input_of(low, layer, i) == value;
        if (is_read && order == CUDA_ANY_ORDER)
            return layer->output.dimension_count == 3 ? CUDA_CHANNELS_LAST : CUDA_PLANES;
        if (is_read)
            return order;
    }
    return CUDA_PLANES;
}

/* The batch, or what crosses the cut before the stage. */
static ty_status lower_input(lowering *low, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    ty_status status = TY_OK;

    if (low->first == 0) {
        const ty_shape batch = lane_context_shape(&stage->options, &low->workload->input);

        value_make(low, 0, &batch, order_wanted(low, 0), false);
        if (low->workload->input_kind != TY_INPUT_TOKEN)
            status = cuda_cut_add(stage, &stage->before, 0, false, error);
        return status;
    }
    for (uint32_t i = 0; i < low->before_count && status == TY_OK; i++) {
        const uint32_t producer = low->before[i];

        output_make(low, i, producer, order_wanted(low, i));
        status = cuda_cut_add(stage, &stage->before, i, producer >= low->first_backward, error);
    }
    return status;
}

/* Whether a layer's output is what the loss of this stage reads, and nobody else. */
static bool is_scores(const lowering *low, uint32_t layer)
{
    const ty_layer *next = &low->workload->layers[layer + 1 < low->end ? layer + 1 : layer];

    return low->workload->layers[layer].kind == TY_LAYER_LINEAR &&
           next->kind == TY_LAYER_SOFTMAX_CROSS_ENTROPY && next->input_count == 1 &&
           next->inputs[0] == layer;
}

/* Rows of scores of a size that fast products of 16-bit numbers want: a vocabulary is as odd as it
 * pleases. */
static void scores_pad(lowering *low, uint32_t at)
{
    ty_shape shape = low->stage->values[at].shape;
    uint64_t *classes = &shape.dimensions[shape.dimension_count - 1];
    const uint64_t several =
        *classes < CUDA_MANY_SCORES ? CUDA_SCORE_ALIGNMENT : CUDA_SCORE_PADDING;

    if (low->stage->type == CUDA_TYPE_FLOAT)
        return;
    *classes = (*classes + several - 1) / several * several;
    value_make(low, at, &shape, CUDA_PLANES, low->stage->values[at].needs_gradient);
}

/* The node whose output a relu can be part of: that of a batch norm or of a sum of two that nobody
 * else reads. NULL: none. */
static cuda_node *relu_joins(const lowering *low, const ty_layer *relu)
{
    const uint32_t maker = relu->input_count == 1 ? relu->inputs[0] : TY_NO_LAYER;
    const ty_layer *layers = low->workload->layers;

    if (relu->kind != TY_LAYER_RELU || maker == TY_NO_LAYER || maker < low->first ||
        !(layers[maker].kind == TY_LAYER_BATCH_NORM ||
          (layers[maker].kind == TY_LAYER_ADD && layers[maker].input_count == 2)))
        return NULL;
    for (uint32_t l = maker + 1; l < low->workload->layer_count; l++)
        for (uint32_t i = 0; i < layers[l].input_count; i++)
            if (layers[l].inputs[i] == maker && &layers[l] != relu)
                return NULL;
    for (uint32_t n = 0; n < low->stage->node_count; n++)
        if (low->stage->nodes[n].output == value_of(low, maker))
            return &low->stage->nodes[n];
    return NULL;
}

/* The batch norm that can make a sum, too; what is recomputed knows layers one by one. NULL: none.
 */
static cuda_node *sum_joins(const lowering *low, uint32_t sum)
{
    const ty_stage_device *stage = low->stage;
    const uint32_t norm = ty_workload_norm_of_sum(low->workload, sum);
    const cuda_value *other;

    if (norm == TY_NO_LAYER || norm < low->first || stage->segments.count > 0)
        return NULL;
    other = &stage->values[value_of(low, low->workload->layers[sum].inputs[0])];
    return is_in_order(other, CUDA_CHANNELS_LAST) ? &stage->nodes[stage->node_count - 1] : NULL;
}

static ty_status sum_join(lowering *low, cuda_node *norm, uint32_t sum, ty_error *error)
{
    uint32_t *inputs = ty_alloc(2, sizeof *inputs);
    bool *adds = ty_alloc(2, sizeof *adds);

    if (inputs == NULL || adds == NULL) {
        ty_free(inputs);
        ty_free(adds);
        return ty_fail(error, TY_ENOMEM, "out of memory for layer %s",
                       low->workload->layers[sum].name);
    }
    inputs[0] = norm->inputs[0];
    inputs[1] = value_of(low, low->workload->layers[sum].inputs[0]);
    ty_free(norm->inputs);
    ty_free(norm->adds);
    norm->inputs = inputs;
    norm->adds = adds;
    norm->input_count = 2;
    low->stage->values[norm->output].same_as = value_of(low, sum);
    norm->output = value_of(low, sum);
    return TY_OK;
}

/* Lets a layer or RMS norm, which is the last node, make the sum of two right before it. */
static void norm_take_sum(const lowering *low, uint32_t norm)
{
    ty_stage_device *stage = low->stage;
    const ty_layer *layer = &low->workload->layers[norm];
    cuda_node *node = &stage->nodes[stage->node_count - 1], *sum = node - 1;

    if ((layer->kind != TY_LAYER_LAYER_NORM && layer->kind != TY_LAYER_RMS_NORM) ||
        stage->node_count < 2 || stage->segments.count > 0 || sum->layer_index + 1 != norm ||
        sum->kind != &cuda_add || sum->input_count != 2 || sum->output != node->inputs[0])
        return;
    node->sum = sum;
    sum->is_made_behind = true;
}

static ty_status lower_layers(lowering *low, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t l = low->first; l < low->end && status == TY_OK; l++) {
        const ty_layer *layer = &low->workload->layers[l];
        const uint32_t made = value_of(low, l);
        const cuda_value *read;
        cuda_node *before = relu_joins(low, layer), *norm = sum_joins(low, l);
        cuda_order order = cuda_kind_of(layer->kind)->order;

        TY_CHECK(inputs_check(low, layer, error), status, done);
        read = &low->stage->values[input_of(low, layer, 0)];
        order = order == CUDA_ANY_ORDER ? read->order : order;
        output_make(low, made, l, order);
        if (is_scores(low, l)) {
            scores_pad(low, made);
            low->stage->values[made].becomes_gradient = true;
        }
        if (before != NULL)
            before->has_relu = true;
        if (before != NULL || (layer->kind == TY_LAYER_FLATTEN && !cuda_is_channels_last(read))) {
            low->stage->values[made].same_as = read->same_as;
        } else if (norm != NULL) {
            status = sum_join(low, norm, l, error);
        } else {
            TY_CHECK(node_add(low, l, order, error), status, done);
            norm_take_sum(low, l);
        }
    }
done:
    return status;
}

/* What crosses the cut behind the stage; behind a loss nothing. */
static ty_status lower_output(lowering *low, ty_error *error)
{
    ty_stage_device *stage = low->stage;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < low->behind_count && status == TY_OK; i++)
        status = cuda_cut_add(stage, &stage->behind, value_of(low, low->behind[i]),
                              low->behind[i] >= low->first_backward, error);
    return status;
}

/* One, until another has to do with it as well. */
static void segment_note(uint32_t *segment, uint32_t another, bool *is_known)
{
    *segment = *is_known && *segment != another ? STAGE_NO_SEGMENT : another;
    *is_known = true;
}

/* Which segment each value, and its gradient, is of; what goes from one to another is kept, and
 * what recomputing does not make again. Copies in another order are. What crosses the cut before
 * the stage comes in with the first. `is_known`: [values], all false. */
static void segments_place(ty_stage_device *stage, bool *is_known)
{
    const uint32_t last = stage->segments.count - 1;

    for (uint32_t v = 0; v < stage->value_count; v++) {
        stage->values[v].segment = 0; /* unless a node makes it */
        stage->values[v].gradient_segment = STAGE_NO_SEGMENT;
    }
    for (uint32_t i = 0; i < stage->before.count + stage->behind.count; i++) {
        const cuda_crossing *tensor = i < stage->before.count
                                          ? &stage->before.tensors[i]
                                          : &stage->behind.tensors[i - stage->before.count];
        const uint32_t root = stage->values[tensor->value].gradient_of;
        segment_note(&stage->values[root].gradient_segment, i < stage->before.count ? 0 : last,
                     &is_known[root]);
    }
    for (uint32_t n = 0; n < stage->node_count; n++) {
        cuda_node *node = &stage->nodes[n];
        const uint32_t segment = stage_segment_of(&stage->segments, node->layer_index);
        const ty_layer_again again = stage->segments.again[node->layer_index];
        const uint32_t made = stage->values[node->output].same_as;
        const bool is_copy = node->kind == &cuda_reorder;
        uint32_t gradient;

        node->is_kept = again.what == TY_AGAIN_NOTHING && !is_copy;
        stage->values[made].segment = segment;
        stage->values[made].is_kept =
            stage->values[made].is_kept || (again.keeps_output && !is_copy);
        gradient = stage->values[node->output].gradient_of;
        segment_note(&stage->values[gradient].gradient_segment, segment, &is_known[gradient]);
        for (uint32_t i = 0; i < node->input_count; i++) {
            cuda_value *read = &stage->values[stage->values[node->inputs[i]].same_as];
            read->is_kept = read->is_kept || read->segment != segment;
            gradient = stage->values[node->inputs[i]].gradient_of;
            segment_note(&stage->values[gradient].gradient_segment, segment, &is_known[gradient]);
        }
    }
    for (uint32_t i = 0; i < stage->behind.count; i++) { /* copied behind the last layer */
        cuda_value *sent = &stage->values[stage->values[stage->behind.tensors[i].value].same_as];
        sent->is_kept = sent->is_kept || sent->segment != last;
    }
}

/* The tables, with room for what crosses, and the stage's. */
static ty_status lowering_start(lowering *low, ty_error *error)
{
    const ty_workload *workload = low->workload;
    ty_stage_device *stage = low->stage;
    uint32_t copies = 0;

    low->before = ty_alloc((size_t)low->first + 1, sizeof *low->before);
    low->behind = ty_alloc((size_t)low->end + 1, sizeof *low->behind);
    low->trains = ty_alloc(workload->layer_count, sizeof *low->trains);
    if (low->before == NULL || low->behind == NULL || low->trains == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for the table of layers");
    low->before_count =
        low->first == 0 ? 1 : ty_workload_crossing(workload, low->first, low->before);
    low->behind_count = low->end == workload->layer_count
                            ? 0
                            : ty_workload_crossing(workload, low->end, low->behind);
    for (uint32_t l = low->first; l < low->end; l++) /* each may be read as a copy */
        copies += workload->layers[l].input_count > 0 ? workload->layers[l].input_count : 1;
    stage->value_count = low->before_count + low->end - low->first;
    stage->values = ty_alloc((size_t)stage->value_count + copies, sizeof *stage->values);
    stage->nodes = ty_alloc((size_t)low->end - low->first + copies, sizeof *stage->nodes);
    low->flags = ty_alloc((size_t)stage->value_count + copies, sizeof *low->flags);
    if (stage->values == NULL || stage->nodes == NULL || low->flags == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors",
                       (unsigned)stage->value_count);
    return TY_OK;
}

static ty_status lower(ty_stage_device *stage, ty_error *error)
{
    const ty_stage_options *options = &stage->options;
    lowering low = {.stage = stage,
                    .workload = options->workload,
                    .first = options->first_layer,
                    .first_backward = ty_workload_first_backward(options->workload),
                    .end = options->first_layer + options->layer_count};
    ty_status status = TY_OK;

    TY_CHECK(lowering_start(&low, error), status, cleanup);
    stage_trains_find(low.workload, low.trains);
    TY_CHECK(lower_input(&low, error), status, cleanup);
    TY_CHECK(lower_layers(&low, error), status, cleanup);
    TY_CHECK(lower_output(&low, error), status, cleanup);
    cuda_gradients_place(stage, low.flags);
    if (stage->segments.count > 0) {
        memset(low.flags, 0, stage->value_count * sizeof *low.flags);
        segments_place(stage, low.flags);
    }
cleanup:
    ty_free(low.before);
    ty_free(low.behind);
    ty_free(low.trains);
    ty_free(low.flags);
    return status;
}

/* ---- Memory ---- */

typedef void *(*allocator)(ty_stage_device *stage, uint64_t bytes);

/* A pointer per slot; one block for all of them, or one each. NULL when memory runs out. */
static void *slots_allocate(ty_stage_device *stage, uint64_t bytes, bool is_shared,
                            allocator allocate)
{
    void **slots = cuda_host_buffer(stage, stage->options.slots * sizeof *slots);

    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++) {
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

/* ---- What lies in the working set of a stage that is recomputed ---- */

enum { ALIGNMENT = 256 }; /* bytes, of parts: as cudaMalloc has it */

static uint32_t data_segment(const ty_stage_device *stage, const cuda_value *value)
{
    return stage_segment_of_part(&stage->segments, value->is_kept, value->segment);
}

static uint32_t gradient_segment(const ty_stage_device *stage, const cuda_value *value)
{
    return stage_segment_of_part(&stage->segments, false, value->gradient_segment);
}

static uint32_t stash_segment(const ty_stage_device *stage, const cuda_node *node)
{
    return stage_segment_of_stash(&stage->segments, node->is_kept, node->layer_index);
}

/* What the loss layer makes lies elsewhere. */
static bool is_loss(const ty_stage_device *stage, uint32_t v)
{
    return cuda_has_loss(stage) && v == stage->nodes[stage->node_count - 1].output;
}

static bool has_data(const ty_stage_device *stage, uint32_t v)
{
    return !(v == 0 && is_token_input(stage)) && !is_loss(stage, v) &&
           stage->values[v].same_as == v;
}

static bool has_gradient(const ty_stage_device *stage, uint32_t v)
{
    return stage->values[v].needs_gradient && stage->values[v].gradient_of == v &&
           !stage->values[v].becomes_gradient && !is_loss(stage, v);
}

static bool working_set_allocate(ty_stage_device *stage)
{
    stage_working_set *set = &stage->working_set;

    if (stage->segments.count == 0)
        return true;
    set->used = cuda_host_buffer(stage, stage->segments.count * sizeof *set->used);
    if (set->used == NULL)
        return false;
    for (uint32_t v = 0; v < stage->value_count; v++) {
        const cuda_value *value = &stage->values[v];
        const uint64_t bytes = value->count * stage->element;
        if (has_data(stage, v))
            stage_working_set_take(set, data_segment(stage, value), bytes, ALIGNMENT);
        if (has_gradient(stage, v))
            stage_working_set_take(set, gradient_segment(stage, value), bytes, ALIGNMENT);
    }
    for (uint32_t n = 0; n < stage->node_count; n++)
        stage_working_set_take(set, stash_segment(stage, &stage->nodes[n]),
                               stage->nodes[n].stash_bytes, ALIGNMENT);
    set->memory = cuda_buffer(stage, stage_working_set_measure(set, &stage->segments));
    return set->memory != NULL;
}

/* The same place of the working set for each slot, or as slots_allocate. */
static void *place(ty_stage_device *stage, uint64_t bytes, uint32_t segment, bool is_shared)
{
    void **slots;
    uint64_t at;

    if (segment == STAGE_NO_SEGMENT)
        return slots_allocate(stage, bytes, is_shared, cuda_buffer);
    slots = cuda_host_buffer(stage, stage->options.slots * sizeof *slots);
    at = stage_working_set_take(&stage->working_set, segment, bytes, ALIGNMENT);
    for (uint32_t s = 0; slots != NULL && s < stage->options.slots; s++)
        slots[s] = stage->working_set.memory + at;
    return slots;
}

static bool values_allocate(ty_stage_device *stage)
{
    for (uint32_t v = 0; v < stage->value_count; v++) {
        cuda_value *value = &stage->values[v];
        const uint64_t bytes = value->count * stage->element;

        if (has_data(stage, v) &&
            (value->data = place(stage, bytes, data_segment(stage, value), false)) == NULL)
            return false;
        if (has_gradient(stage, v) &&
            (value->gradient = place(stage, bytes, gradient_segment(stage, value),
                                     !stage->options.splits_backward)) == NULL)
            return false;
    }
    for (uint32_t v = 0; v < stage->value_count; v++) {
        stage->values[v].data = stage->values[stage->values[v].same_as].data;
        if (stage->values[v].becomes_gradient && stage->values[v].needs_gradient)
            stage->values[v].gradient = stage->values[v].data;
        else
            stage->values[v].gradient = stage->values[stage->values[v].gradient_of].gradient;
    }
    return true;
}

/* An embedding has the second part of backward only. */
static bool kept_allocate(ty_stage_device *stage, cuda_node *node)
{
    if (!stage->options.splits_backward || !cuda_gathers(stage, node) ||
        node->kind == &cuda_embedding_kind)
        return true;
    node->lane_kept =
        slots_allocate(stage, 2 * node->lane_elements * stage->element, false, cuda_buffer);
    return node->lane_kept != NULL;
}

static bool nodes_allocate(ty_stage_device *stage)
{
    uint64_t scratch = 0, sums = 0, whole = 0, message = sizeof(float);

    for (uint32_t n = 0; n < stage->node_count; n++) {
        cuda_node *node = &stage->nodes[n];
        if (node->stash_bytes > 0) {
            node->stash = place(stage, node->stash_bytes, stash_segment(stage, node), false);
            if (node->stash == NULL)
                return false;
        }
        node->kept = node->stash;
        if (node->kept_bytes > 0 &&
            (node->kept = slots_allocate(stage, node->kept_bytes, false, cuda_buffer)) == NULL)
            return false;
        if (!kept_allocate(stage, node))
            return false;
        scratch = node->scratch_bytes > scratch ? node->scratch_bytes : scratch;
        sums = node->sum_floats > sums ? node->sum_floats : sums;
        whole = node->lane_elements > whole ? node->lane_elements : whole;
    }
    stage->scratch = cuda_buffer(stage, scratch);
    stage->sums = cuda_buffer(stage, sums * sizeof(float));
    stage->lane_whole = cuda_buffer(stage, whole * stage->element);
    if (stage->options.lanes.divides_sequence || lane_context_count(&stage->options) > 1)
        message += whole * stage->element;
    stage->lane_message = cuda_buffer(stage, message);
    return stage->scratch != NULL && stage->sums != NULL && stage->lane_whole != NULL &&
           stage->lane_message != NULL;
}

/* Where the batch comes in, if it is numbers. */
static bool input_allocate(ty_stage_device *stage)
{
    if (stage->options.first_layer > 0 || is_token_input(stage))
        return true;
    stage->host_input =
        slots_allocate(stage, stage->values[0].count * sizeof(float), false, cuda_host_buffer);
    return stage->host_input != NULL;
}

/* Per slot: tokens; the places ordered by token, where each group starts, its token, how many. */
static bool tokens_allocate(ty_stage_device *stage)
{
    uint64_t count = stage->values[0].count, bytes = count * sizeof(int32_t);
    uint64_t group_bytes = (3 * count + 2) * sizeof(int32_t);

    if (!is_token_input(stage))
        return true;
    stage->host_tokens = slots_allocate(stage, bytes, false, cuda_host_buffer);
    stage->token_slots = cuda_host_buffer(stage, stage->options.slots * sizeof *stage->token_slots);
    if (stage->host_tokens == NULL || stage->token_slots == NULL)
        return false;
    for (uint32_t s = 0; s < stage->options.slots; s++) {
        token_slot *slot = &stage->token_slots[s];
        slot->tokens = cuda_buffer(stage, bytes);
        slot->groups = cuda_buffer(stage, group_bytes);
        slot->host_groups = cuda_host_buffer(stage, group_bytes);
        if (slot->tokens == NULL || slot->groups == NULL || slot->host_groups == NULL)
            return false;
    }
    return true;
}

static bool loss_allocate(ty_stage_device *stage)
{
    const cuda_value *logits;
    uint64_t rows;

    if (!cuda_has_loss(stage))
        return true;
    logits = &stage->values[stage->nodes[stage->node_count - 1].inputs[0]];
    rows = cuda_rows(logits);
    stage->labels_per_sample = rows / cuda_batch(stage);
    stage->host_labels = slots_allocate(stage, rows * sizeof(int32_t), false, cuda_host_buffer);
    stage->labels = slots_allocate(stage, rows * sizeof(int32_t), false, cuda_buffer);
    stage->losses = slots_allocate(stage, sizeof(cuda_loss), false, cuda_buffer);
    stage->host_losses = cuda_host_buffer(stage, stage->options.slots * sizeof(cuda_loss));
    stage->row_loss = cuda_buffer(stage, rows * sizeof *stage->row_loss);
    stage->row_best = cuda_buffer(stage, rows * sizeof *stage->row_best);
    return stage->host_labels != NULL && stage->labels != NULL && stage->losses != NULL &&
           stage->host_losses != NULL && stage->row_loss != NULL && stage->row_best != NULL;
}

/* Running statistics, and what updates and measures say. */
static bool figures_allocate(ty_stage_device *stage)
{
    stage->statistics = cuda_buffer(stage, stage->statistic_count * sizeof(float));
    stage->squares = cuda_buffer(stage, CUDA_SQUARE_PARTS * sizeof *stage->squares);
    stage->host_square = cuda_host_buffer(stage, sizeof *stage->host_square);
    stage->scale = cuda_buffer(stage, sizeof *stage->scale);
    stage->host_scale = cuda_host_buffer(stage, sizeof *stage->host_scale);
    stage->is_bad = cuda_buffer(stage, sizeof *stage->is_bad);
    stage->host_is_bad = cuda_host_buffer(stage, sizeof *stage->host_is_bad);
    return stage->scale != NULL && stage->host_scale != NULL && stage->is_bad != NULL &&
           stage->host_is_bad != NULL && stage->statistics != NULL && stage->squares != NULL &&
           stage->host_square != NULL;
}

ty_status cuda_build(ty_stage_device *stage, ty_error *error)
{
    ty_status status = TY_OK;

    TY_CHECK(stage_segments_find(&stage->options, &stage->segments, error), status, cleanup);
    TY_CHECK(stage_parameters_place(&stage->options, &stage->placed, error), status, cleanup);
    TY_CHECK(lower(stage, error), status, cleanup);
    for (uint32_t n = 0; n < stage->node_count; n++) {
        cuda_node *node = &stage->nodes[n];
        if (node->kind->build != NULL)
            TY_CHECK(node->kind->build(stage, node, error), status, cleanup);
    }
    if (!working_set_allocate(stage) || !values_allocate(stage) || !nodes_allocate(stage) ||
        !cuda_cuts_allocate(stage) || !input_allocate(stage) || !tokens_allocate(stage) ||
        !loss_allocate(stage) || !figures_allocate(stage)) {
        (void)cudaGetLastError();
        status = ty_fail(error, TY_ENOMEM,
                         "out of GPU memory after %.3g GB for layers %u to %u with %u slots of %u "
                         "samples",
                         (double)stage->memory_bytes * 1e-9, (unsigned)stage->options.first_layer,
                         (unsigned)(stage->options.first_layer + stage->options.layer_count - 1),
                         (unsigned)stage->options.slots, (unsigned)stage->options.micro_batch_size);
        goto cleanup;
    }
    if (!stage->options.is_sharded)
        status = cuda_parameters_open(stage, NULL, error);
cleanup:
    return status;
}
