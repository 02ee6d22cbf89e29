/* Elementwise layers: sums, activations, concatenations, slices, changes of order. */
#include "stage.h"

static void *data_of(const ty_stage_device *stage, uint32_t value, uint32_t slot)
{
    return stage->values[value].data[slot];
}

static void *gradient_of(const ty_stage_device *stage, uint32_t value, uint32_t slot)
{
    void **gradient = stage->values[value].gradient;

    return gradient == NULL ? NULL : gradient[slot];
}

/* Where the gradient of the i-th input goes, or NULL. */
static void *input_gradient(const ty_stage_device *stage, const stage_node *node, uint32_t i,
                            uint32_t slot)
{
    return stage->part == STAGE_WEIGHTS ? NULL : gradient_of(stage, node->inputs[i], slot);
}

/* ---- Sums ---- */

ty_status stage_add_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            ty_error *error)
{
    const stage_backend *backend = stage->backend;
    const uint64_t count = stage->values[node->output].count;
    void *y = data_of(stage, node->output, slot);
    const void *first = data_of(stage, node->inputs[0], slot);
    uint32_t next = 1;

    (void)error;
    if (node->is_made_behind)
        return TY_OK;
    if (node->input_count == 1)
        backend->accumulate(stage, count, first, false, y);
    else
        backend->sum(stage, count, first, data_of(stage, node->inputs[next++], slot),
                     node->has_relu, y);
    for (; next < node->input_count; next++)
        backend->accumulate(stage, count, data_of(stage, node->inputs[next], slot), true, y);
    return TY_OK;
}

/* An input may share the output's gradient (stage_gradients.c decides); then there is no work. */
ty_status stage_add_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             bool is_first, ty_error *error)
{
    const void *dy = gradient_of(stage, node->output, slot);

    (void)is_first, (void)error;
    for (uint32_t i = node->kind->first_summand; i < node->input_count; i++) {
        void *dx = input_gradient(stage, node, i, slot);
        if (dx != NULL && dx != dy)
            stage->backend->accumulate(stage, stage->values[node->output].count, dy, node->adds[i],
                                       dx);
    }
    return TY_OK;
}

/* ---- Activations ---- */

ty_status stage_activation_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   ty_error *error)
{
    (void)error;
    stage->backend->activate(stage, node->kind->activation, stage->values[node->output].count,
                             data_of(stage, node->inputs[0], slot),
                             data_of(stage, node->output, slot));
    return TY_OK;
}

ty_status stage_activation_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    bool is_first, ty_error *error)
{
    const stage_activation kind = node->kind->activation;
    const bool is_of_output = kind == STAGE_RELU || kind == STAGE_TANH;
    void *dx = input_gradient(stage, node, 0, slot);

    (void)is_first, (void)error;
    if (dx != NULL)
        stage->backend->activate_backward(
            stage, kind, stage->values[node->output].count,
            data_of(stage, is_of_output ? node->output : node->inputs[0], slot),
            gradient_of(stage, node->output, slot), node->adds[0], dx);
    return TY_OK;
}

/* ---- Concatenations ---- */

/* Number of samples, or with channels last of pixels: the first dimension is then the innermost. */
static uint64_t outer_count(const ty_stage_device *stage, const stage_value *value)
{
    return stage_batch(stage) * (stage_is_channels_last(value) ? stage_pixels(value) : 1);
}

/* Blocks of an input: along the first dimension, or the last, which comes before channels if these
 * are last. */
static uint64_t concat_count(const ty_stage_device *stage, const stage_node *node)
{
    const stage_value *y = &stage->values[node->output];

    if (node->layer->attributes[TY_IS_OF_FEATURES] == 0)
        return outer_count(stage, y);
    return stage_is_channels_last(y) ? stage_rows(y) / stage_channels(y) : stage_rows(y);
}

ty_status stage_concat_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               ty_error *error)
{
    const uint64_t count = concat_count(stage, node);
    const uint64_t row = stage->values[node->output].count / count;
    char *y = data_of(stage, node->output, slot);

    (void)error;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint64_t piece = stage->values[node->inputs[i]].count / count;
        stage->backend->copy_rows(stage, count, piece, data_of(stage, node->inputs[i], slot), piece,
                                  false, y, row);
        y += piece * stage->element;
    }
    return TY_OK;
}

ty_status stage_concat_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                bool is_first, ty_error *error)
{
    const uint64_t count = concat_count(stage, node);
    const uint64_t row = stage->values[node->output].count / count;
    const char *dy = gradient_of(stage, node->output, slot);

    (void)is_first, (void)error;
    for (uint32_t i = 0; i < node->input_count; i++) {
        const uint64_t piece = stage->values[node->inputs[i]].count / count;
        void *dx = input_gradient(stage, node, i, slot);
        if (dx != NULL)
            stage->backend->copy_rows(stage, count, piece, dy, row, node->adds[i], dx, piece);
        dy += piece * stage->element;
    }
    return TY_OK;
}

/* ---- Slices: some rows of the first dimension of every sample, or channels of every pixel ---- */

/* Number of samples or pixels; elements: of the input, before the rows that are read, of these. */
typedef struct slice {
    uint64_t outer, whole, before, count;
} slice;

static slice slice_of(const ty_stage_device *stage, const stage_node *node)
{
    const stage_value *input = &stage->values[node->inputs[0]];
    const uint64_t outer = outer_count(stage, input), whole = input->count / outer;
    const uint64_t row = whole / input->shape.dimensions[0];

    return (slice){outer, whole, node->layer->attributes[TY_FIRST_ROW] * row,
                   node->layer->attributes[TY_ROWS] * row};
}

ty_status stage_slice_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    const slice s = slice_of(stage, node);
    const char *x = data_of(stage, node->inputs[0], slot);

    (void)error;
    stage->backend->copy_rows(stage, s.outer, s.count, x + s.before * stage->element, s.whole,
                              false, data_of(stage, node->output, slot), s.count);
    return TY_OK;
}

/* Rows that are not read get no gradient from this layer. */
ty_status stage_slice_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const slice s = slice_of(stage, node);
    char *dx = input_gradient(stage, node, 0, slot);
    ty_status status = TY_OK;

    (void)is_first;
    if (dx == NULL)
        return TY_OK;
    if (!node->adds[0])
        status = stage->backend->clear(stage, s.outer * s.whole * stage->element, dx, error);
    if (status == TY_OK)
        stage->backend->copy_rows(stage, s.outer, s.count, gradient_of(stage, node->output, slot),
                                  s.count, true, dx + s.before * stage->element, s.whole);
    return status;
}

/* ---- Changes of order ---- */

/* Data or gradients, from the order of one value to that of the other. The shape is that of the
 * node's input: the output of a flatten has lost it. */
static void reorder(const ty_stage_device *stage, const stage_node *node, bool is_to_planes,
                    const void *from, bool adds, void *to)
{
    const stage_value *image = &stage->values[node->inputs[0]];
    const uint64_t channels = stage_channels(image), pixels = stage_pixels(image);

    stage->backend->transpose(stage, is_to_planes ? pixels : channels,
                              is_to_planes ? channels : pixels, from, adds, to);
}

static bool reads_planes(const ty_stage_device *stage, const stage_node *node)
{
    return stage->values[node->inputs[0]].order == STAGE_PLANES;
}

static ty_status reorder_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                 ty_error *error)
{
    (void)error;
    reorder(stage, node, !reads_planes(stage, node), data_of(stage, node->inputs[0], slot), false,
            data_of(stage, node->output, slot));
    return TY_OK;
}

static ty_status reorder_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                  bool is_first, ty_error *error)
{
    void *dx = input_gradient(stage, node, 0, slot);

    (void)is_first, (void)error;
    if (dx != NULL)
        reorder(stage, node, reads_planes(stage, node), gradient_of(stage, node->output, slot),
                node->adds[0], dx);
    return TY_OK;
}

const stage_kind stage_reorder = {.forward = reorder_forward, .backward = reorder_backward};
