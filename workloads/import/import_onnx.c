/* ONNX models: every operator that the outputs need becomes a layer. Those with a layer kind
 * (convolution, linear, norms, pooling, ...) can be trained; the others are opaque, with their
 * weights, and flop if known. Weights may be initializers, inputs (files of IR version 3), results
 * of constants, or in other files: only their shapes matter.
 *
 * The first dimension of the graph's inputs is the batch and is removed; symbolic dimensions count
 * as 1. */
#include "onnx_graph.h"
#include "onnx_shapes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct run {
    ty_onnx_graph graph;
    ty_builder *builder;
    uint64_t batch;
    uint32_t output_count;  /* of the graph */
    bool *is_layer_read;    /* [layers so far and more] */
    uint32_t unknown_count; /* unknown operators */
    ty_wire first_unknown;
} run;

static ty_status bad_node(const run *r, const ty_onnx_node *n, const char *found)
{
    const ty_onnx_value *out = n->output_count > 0 && n->outputs[0] != TY_ONNX_NO_VALUE
                                   ? &r->graph.values[n->outputs[0]]
                                   : NULL;
    return ty_fail(r->graph.source->error, TY_EPARSE, "%s: %.*s that makes '%.*s': %s",
                   r->graph.source->path, (int)ty_wire_length(&n->operator_name),
                   (const char *)n->operator_name.at,
                   out != NULL ? (int)ty_wire_length(&out->name) : 0,
                   out != NULL ? (const char *)out->name.at : "", found);
}

/* ---- Samples --------------------------------------------------------------------------------- */

static bool has_batch(const run *r, const ty_onnx_value *v)
{
    return v->has_shape && v->rank > 0 && v->dimensions[0] == r->batch;
}

/* Without the batch; dimensions beyond the fourth are folded into the first. */
static ty_shape sample_shape(const run *r, const ty_onnx_value *v)
{
    ty_shape shape = {1, {1}};
    uint32_t extra;

    if (!v->has_shape)
        return shape;
    if (!has_batch(r, v) || v->rank == 1) {
        double elements = ceil(ty_onnx_elements(v) / (double)r->batch);
        shape.dimensions[0] = elements < 1      ? 1
                              : elements > 1e15 ? (uint64_t)1e15
                                                : (uint64_t)elements;
        return shape;
    }
    extra = v->rank - 1 > TY_MAX_DIMENSIONS ? v->rank - 1 - TY_MAX_DIMENSIONS : 0;
    for (uint32_t i = 1; i <= extra; i++)
        shape.dimensions[0] = shape.dimensions[0] * v->dimensions[i] % ((uint64_t)1 << 40);
    shape.dimension_count = v->rank - 1 - extra;
    shape.dimensions[0] *= v->dimensions[1 + extra];
    for (uint32_t i = 1; i < shape.dimension_count; i++)
        shape.dimensions[i] = v->dimensions[1 + extra + i];
    return shape;
}

static ty_status settle_input(run *r, ty_onnx_value *v)
{
    ty_import_source *source = r->graph.source;
    int length = (int)ty_wire_length(&v->name);

    if (!v->has_shape)
        return ty_fail(source->error, TY_EPARSE, "%s: input '%.*s': found no shape", source->path,
                       length, (const char *)v->name.at);
    for (uint32_t i = 0; i < v->rank; i++) {
        if (v->dimensions[i] > 0)
            continue;
        if (i > 0 && source->options->sequence == 0)
            return ty_fail(source->error, TY_EPARSE,
                           "%s: input '%.*s': found no size of dimension %u; sequence=N gives one",
                           source->path, length, (const char *)v->name.at, i);
        v->dimensions[i] = i == 0 ? 1 : source->options->sequence;
    }
    return TY_OK;
}

/* The file's shapes of intermediate values, at the sizes of the inputs. */
static void settle_hints(run *r)
{
    for (uint32_t i = 0; i < r->graph.value_count; i++) {
        ty_onnx_value *v = &r->graph.values[i];
        for (uint32_t k = 0; !v->is_constant && v->has_shape && k < v->rank; k++) {
            if (v->dimensions[k] == 0)
                v->dimensions[k] = k == 0 ? r->batch : r->graph.source->options->sequence;
            v->has_shape = v->dimensions[k] > 0;
        }
    }
}

/* The shape of a sample: that of the only input, or all inputs concatenated. */
static ty_status settle_inputs(run *r, ty_shape *sample)
{
    ty_onnx_graph *g = &r->graph;
    double total = 0;

    if (g->input_count == 0)
        return ty_fail(g->source->error, TY_EPARSE, "%s: found no input of the graph",
                       g->source->path);
    for (uint32_t i = 0; i < g->input_count; i++) {
        ty_onnx_value *v = &g->values[g->inputs[i]];
        TY_TRY(settle_input(r, v));
        if (i == 0)
            r->batch = v->rank > 0 ? v->dimensions[0] : 1;
        *sample = sample_shape(r, v);
        total += (double)ty_shape_elements(sample);
    }
    if (g->input_count > 1)
        *sample = (ty_shape){1, {total < 1e15 ? (uint64_t)total : (uint64_t)1e15}};
    settle_hints(r);
    return TY_OK;
}

/* The first input, if it depends on the batch. */
static const ty_onnx_value *tensor(const run *r, const ty_onnx_node *n)
{
    const ty_onnx_value *x = ty_onnx_input(&r->graph, n, 0);
    return x != NULL && !x->is_constant ? x : NULL;
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* The layer that produces a value; marks it as read. */
static uint32_t read_layer(run *r, const ty_onnx_value *v)
{
    if (v->layer != TY_BATCH)
        r->is_layer_read[v->layer] = true;
    return v->layer;
}

static void name_layer(run *r, const ty_onnx_node *n, const ty_onnx_value *out)
{
    char name[160];
    size_t length = ty_wire_length(&out->name), kind = ty_wire_length(&n->operator_name);

    if (length > 100 || kind > 40)
        return; /* by kind and number */
    snprintf(name, sizeof name, "%.*s %.*s", (int)kind, (const char *)n->operator_name.at,
             (int)length, (const char *)out->name.at);
    for (const char *at = name; *at != '\0'; at++)
        if (*at < ' ' || *at > '~')
            return;
    if (strlen(name) == kind + 1 + length)
        ty_builder_name_next(r->builder, name);
}

/* Number of parameters of the layer: counts each constant at its first reader. */
static double take_parameters(run *r, const ty_onnx_node *n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n->input_count; i++) {
        ty_onnx_value *v = ty_onnx_input(&r->graph, n, i);
        if (v == NULL || !v->is_constant || v->is_integer || v->is_counted || !v->has_shape)
            continue;
        sum += ty_onnx_elements(v);
        v->is_counted = true;
    }
    return sum;
}

static ty_status opaque(run *r, const ty_onnx_node *n, ty_onnx_value *out, double multiply_adds,
                        bool is_view)
{
    uint32_t *inputs = ty_alloc((size_t)n->input_count + 1, sizeof *inputs), count = 0;
    double parameters = take_parameters(r, n);
    ty_opaque known = {.output = sample_shape(r, out),
                       .forward_flop = 2 * multiply_adds / (double)r->batch,
                       .backward_flop = 4 * multiply_adds / (double)r->batch,
                       .is_view = is_view};

    TY_TRY(ty_check_memory(inputs != NULL, r->graph.source->error));
    for (uint32_t i = 0; i < n->input_count; i++) {
        const ty_onnx_value *v = ty_onnx_input(&r->graph, n, i);
        bool is_new = v != NULL && !v->is_constant && v->layer != TY_BATCH;
        for (uint32_t k = 0; k < count && is_new; k++)
            is_new = inputs[k] != v->layer;
        if (is_new)
            inputs[count++] = read_layer(r, v);
    }
    if (count == 0)
        inputs[count++] = TY_BATCH;
    known.parameter_bytes = parameters < 1e15 ? 4 * (uint64_t)parameters : (uint64_t)1 << 53;
    out->layer = ty_builder_opaque(r->builder, inputs, count, &known);
    ty_free(inputs);
    return TY_OK;
}

/* ---- Operators with a kind ------------------------------------------------------------------- */

/* The symmetric window with the same output size, if any: asymmetric padding, SAME and rounding up
 * shift windows by less than a stride, which does not change costs. */
static bool fit_window(const ty_onnx_window *w, const ty_onnx_value *x, ty_window *out)
{
    uint64_t padding[2];

    if (w->is_dilated || w->stride[0] != w->stride[1])
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        uint64_t size = x->dimensions[2 + i], k = w->kernel[i], p = w->before[i];
        bool is_fit =
            p < k && size + 2 * p >= k && (size + 2 * p - k) / w->stride[i] + 1 == w->out[i];
        if (!is_fit) { /* the smallest padding with enough windows */
            uint64_t needed = (w->out[i] - 1) * w->stride[i] + k;
            p = needed > size ? (needed - size + 1) / 2 : 0;
            is_fit =
                p < k && size + 2 * p >= k && (size + 2 * p - k) / w->stride[i] + 1 == w->out[i];
        }
        if (!is_fit)
            return false;
        padding[i] = p;
    }
    *out = (ty_window){w->kernel[0], w->kernel[1], w->stride[0], padding[0], padding[1]};
    return true;
}

static bool is_weight(const ty_onnx_value *v, uint32_t rank)
{
    return v != NULL && v->is_constant && !v->is_integer && v->has_shape && v->rank == rank;
}

static void set_image(ty_onnx_value *out, const ty_onnx_value *x, uint64_t channels,
                      const ty_onnx_window *w)
{
    out->rank = 4;
    out->dimensions[0] = x->dimensions[0];
    out->dimensions[1] = channels;
    out->dimensions[2] = w->out[0];
    out->dimensions[3] = w->out[1];
    out->has_shape = true;
}

static ty_status convolution(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = tensor(r, n);
    ty_onnx_value *w = ty_onnx_input(&r->graph, n, 1);
    ty_onnx_value *bias = ty_onnx_input(&r->graph, n, 2);
    bool is_image = x != NULL && x->has_shape && x->rank == 4 && is_weight(w, 4);
    ty_onnx_window sliding;
    ty_window window;
    int64_t groups = 1;

    ty_onnx_attribute(n, "group", &groups, 1);
    if (!is_image)
        return opaque(r, n, out, 0, false);
    if (groups < 1 || groups > INT32_MAX ||
        x->dimensions[1] != w->dimensions[1] * (uint64_t)groups ||
        w->dimensions[0] % (uint64_t)groups != 0)
        return bad_node(r, n, "found channels that differ from the weights'");
    if (!ty_onnx_slide(n, x, &w->dimensions[2], &sliding))
        return bad_node(r, n, "found a window that does not fit");
    set_image(out, x, w->dimensions[0], &sliding);
    if (!has_batch(r, x) || w->is_counted || !fit_window(&sliding, x, &window))
        return opaque(r, n, out,
                      ty_onnx_elements(out) * ty_onnx_elements(w) / (double)w->dimensions[0],
                      false);
    w->is_counted = true;
    if (bias != NULL)
        bias->is_counted = true;
    out->layer = ty_builder_conv2d(r->builder, read_layer(r, x), w->dimensions[0], &window,
                                   (uint64_t)groups, bias != NULL);
    return TY_OK;
}

static ty_status pool(run *r, const ty_onnx_node *n, ty_onnx_value *out, bool is_average)
{
    const ty_onnx_value *x = tensor(r, n);
    ty_onnx_window sliding;
    ty_window window;

    if (x == NULL || !x->has_shape || x->rank != 4)
        return opaque(r, n, out, 0, false);
    if (!ty_onnx_slide(n, x, NULL, &sliding))
        return bad_node(r, n, "found a window that does not fit");
    set_image(out, x, x->dimensions[1], &sliding);
    if (!has_batch(r, x) || !fit_window(&sliding, x, &window))
        return opaque(r, n, out, 0, false);
    out->layer = ty_builder_pool(r->builder, read_layer(r, x), &window, is_average);
    return TY_OK;
}

static ty_status maximum_pool(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    return pool(r, n, out, false);
}

static ty_status average_pool(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    return pool(r, n, out, true);
}

static ty_status global_pool(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = tensor(r, n);

    if (x == NULL || !x->has_shape || x->rank != 4 || !has_batch(r, x))
        return opaque(r, n, out, 0, false);
    set_image(out, x, x->dimensions[1], &(ty_onnx_window){.out = {1, 1}});
    out->layer = ty_builder_global_pool(r->builder, read_layer(r, x));
    return TY_OK;
}

static ty_status batch_norm(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = tensor(r, n);
    ty_onnx_value *scale = ty_onnx_input(&r->graph, n, 1);

    if (x == NULL || !x->has_shape || x->rank < 2 || !is_weight(scale, 1) || scale->is_counted ||
        !has_batch(r, x)) {
        if (x != NULL && x->has_shape)
            ty_onnx_same_shape(out, x);
        return opaque(r, n, out, 0, false);
    }
    if (scale->dimensions[0] != x->dimensions[1])
        return bad_node(r, n, "found channels that differ from the weights'");
    for (uint32_t i = 1; i < n->input_count; i++) /* running mean and variance are no parameters */
        if (ty_onnx_input(&r->graph, n, i) != NULL)
            ty_onnx_input(&r->graph, n, i)->is_counted = true;
    ty_onnx_same_shape(out, x);
    out->layer = ty_builder_batch_norm(r->builder, read_layer(r, x));
    return TY_OK;
}

/* y = x W (+ b), W of two dimensions, as [in, out] or, transposed, [out, in]. */
static ty_status linear(run *r, const ty_onnx_node *n, ty_onnx_value *out, bool is_transposed)
{
    const ty_onnx_value *x = tensor(r, n);
    ty_onnx_value *w = ty_onnx_input(&r->graph, n, 1), *bias = ty_onnx_input(&r->graph, n, 2);
    uint64_t in = w->dimensions[is_transposed ? 1 : 0],
             width = w->dimensions[is_transposed ? 0 : 1];

    if (x->dimensions[x->rank - 1] != in)
        return bad_node(r, n, "found features that differ from the weights'");
    ty_onnx_same_shape(out, x);
    out->dimensions[out->rank - 1] = width;
    if (w->is_counted || !has_batch(r, x))
        return opaque(r, n, out, ty_onnx_elements(out) * (double)in, false);
    w->is_counted = true;
    if (bias != NULL)
        bias->is_counted = true;
    out->layer = ty_builder_linear(r->builder, read_layer(r, x), width, bias != NULL);
    return TY_OK;
}

static bool is_linear(const run *r, const ty_onnx_node *n)
{
    const ty_onnx_value *x = tensor(r, n);
    return x != NULL && x->has_shape && x->rank >= 2 &&
           is_weight(ty_onnx_input(&r->graph, n, 1), 2);
}

static ty_status gemm(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    int64_t transposes_a = 0, transposes_b = 0;

    ty_onnx_attribute(n, "transA", &transposes_a, 1);
    ty_onnx_attribute(n, "transB", &transposes_b, 1);
    if (transposes_a != 0 || !is_linear(r, n))
        return opaque(r, n, out, 0, false);
    return linear(r, n, out, transposes_b != 0);
}

static ty_status matmul(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    double multiply_adds = 0;

    if (is_linear(r, n))
        return linear(r, n, out, false);
    if (!ty_onnx_matmul(&r->graph, n, out, &multiply_adds) && !out->has_shape)
        return bad_node(r, n, "found matrices that do not fit");
    return opaque(r, n, out, multiply_adds, false);
}

static ty_status activation(run *r, const ty_onnx_node *n, ty_onnx_value *out,
                            uint32_t (*append)(ty_builder *, uint32_t))
{
    const ty_onnx_value *x = tensor(r, n);

    if (x == NULL || !x->has_shape)
        return bad_node(r, n, "found no input of the batch whose shape is known");
    ty_onnx_same_shape(out, x);
    out->layer = append(r->builder, read_layer(r, x));
    return TY_OK;
}

static ty_status relu(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    return activation(r, n, out, ty_builder_relu);
}

static ty_status gelu(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    return activation(r, n, out, ty_builder_gelu);
}

/* Distinct layers of equal shapes; nothing else. */
static bool are_layers(const run *r, const ty_onnx_node *n, uint32_t *layers)
{
    for (uint32_t i = 0; i < n->input_count; i++) {
        const ty_onnx_value *v = ty_onnx_input(&r->graph, n, i);
        if (v == NULL || v->is_constant || v->layer == TY_BATCH || !has_batch(r, v))
            return false;
        layers[i] = v->layer;
        for (uint32_t k = 0; k < i; k++)
            if (layers[k] == layers[i])
                return false;
    }
    return n->input_count >= 2;
}

#define MOST_JOINED 64

static ty_status add(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    uint32_t layers[MOST_JOINED];
    bool is_same = n->input_count <= MOST_JOINED && are_layers(r, n, layers);

    if (!ty_onnx_broadcast(&r->graph, n, out))
        return bad_node(r, n, "found shapes that do not fit");
    for (uint32_t i = 0; is_same && i < n->input_count; i++)
        is_same = ty_onnx_elements(ty_onnx_input(&r->graph, n, i)) == ty_onnx_elements(out) &&
                  ty_onnx_input(&r->graph, n, i)->rank == out->rank;
    if (!is_same)
        return opaque(r, n, out, 0, false);
    for (uint32_t i = 0; i < n->input_count; i++)
        r->is_layer_read[layers[i]] = true;
    out->layer = ty_builder_add(r->builder, layers, n->input_count);
    return TY_OK;
}

static ty_status concat(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    uint32_t layers[MOST_JOINED], axis = 0;
    bool is_plain = n->input_count <= MOST_JOINED && are_layers(r, n, layers);

    if (!ty_onnx_concat(&r->graph, n, out, &axis))
        return bad_node(r, n, "found shapes that do not fit");
    for (uint32_t i = 1; is_plain && i < n->input_count; i++)
        is_plain = layers[i] > layers[i - 1];
    if (!is_plain || axis != 1 || out->rank > TY_MAX_DIMENSIONS + 1)
        return opaque(r, n, out, 0, false);
    for (uint32_t i = 0; i < n->input_count; i++)
        r->is_layer_read[layers[i]] = true;
    out->layer = ty_builder_concat(r->builder, layers, n->input_count);
    return TY_OK;
}

/* ---- Operators that only look at things in another way ----------------------------------------
 */

static ty_status same_layer(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = tensor(r, n);

    if (x == NULL)
        return bad_node(r, n, "found no input that depends on the batch");
    if (x->has_shape)
        ty_onnx_same_shape(out, x);
    out->layer = x->layer;
    return TY_OK;
}

static ty_status view(run *r, const ty_onnx_node *n, ty_onnx_value *out, bool is_known)
{
    const ty_onnx_value *x = tensor(r, n);

    if (!is_known && !out->has_shape)
        return bad_node(r, n, "found a shape that does not follow from the inputs");
    if (x != NULL && x->layer != TY_BATCH && has_batch(r, x) && has_batch(r, out) &&
        out->rank == 2 && ty_onnx_elements(x) == ty_onnx_elements(out)) {
        out->layer = ty_builder_flatten(r->builder, read_layer(r, x));
        return TY_OK;
    }
    return opaque(r, n, out, 0, true);
}

/* ---- Operators without a kind -----------------------------------------------------------------
 */

static ty_status one_to_one(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = tensor(r, n);
    if (x != NULL && x->has_shape)
        ty_onnx_same_shape(out, x);
    return opaque(r, n, out, 0, false);
}

/* At the end of a classifier it is part of the loss, which training adds. */
static ty_status softmax(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = tensor(r, n);
    const ty_shape *shape;
    uint32_t layer;

    if (!out->is_output || out->is_read || r->output_count != 1 || x == NULL || !has_batch(r, x))
        return one_to_one(r, n, out);
    layer = read_layer(r, x);
    shape = ty_builder_shape(r->builder, layer);
    if (shape != NULL && shape->dimension_count > 1 &&
        ty_shape_elements(shape) == shape->dimensions[0]) {
        layer = ty_builder_flatten(r->builder, layer);
        r->is_layer_read[layer] = true;
    }
    out->layer = ty_builder_loss(r->builder, layer);
    ty_import_note(r->graph.source, "the softmax at the end is taken as the loss of training");
    return TY_OK;
}

static ty_status unknown(run *r, const ty_onnx_node *n, ty_onnx_value *out)
{
    const ty_onnx_value *x = tensor(r, n);

    if (!out->has_shape && x != NULL && x->has_shape)
        ty_onnx_same_shape(out, x);
    if (r->unknown_count++ == 0)
        r->first_unknown = n->operator_name;
    return opaque(r, n, out, 0, false);
}

/* Shape rule of an operator without a layer kind. */
typedef bool (*shape_rule)(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);

typedef struct operation {
    const char *name;
    ty_status (*append)(run *r, const ty_onnx_node *n, ty_onnx_value *out);
    shape_rule shape;  /* in place of `append` */
    const char *found; /* message if it has none; NULL: of a view */
} operation;

#define DIFFER "found shapes that do not fit"
static const operation operations[] = {
    {"Add", add, NULL, NULL},
    {"AveragePool", average_pool, NULL, NULL},
    {"BatchNormalization", batch_norm, NULL, NULL},
    {"Cast", same_layer, NULL, NULL},
    {"Clip", one_to_one, NULL, NULL},
    {"Concat", concat, NULL, NULL},
    {"Conv", convolution, NULL, NULL},
    {"Div", NULL, ty_onnx_broadcast, DIFFER},
    {"Dropout", same_layer, NULL, NULL},
    {"Elu", one_to_one, NULL, NULL},
    {"Erf", one_to_one, NULL, NULL},
    {"Exp", one_to_one, NULL, NULL},
    {"Flatten", NULL, ty_onnx_flatten, NULL},
    {"Gather", NULL, ty_onnx_gather, DIFFER},
    {"Gelu", gelu, NULL, NULL},
    {"Gemm", gemm, NULL, NULL},
    {"GlobalAveragePool", global_pool, NULL, NULL},
    {"HardSigmoid", one_to_one, NULL, NULL},
    {"HardSwish", one_to_one, NULL, NULL},
    {"Identity", same_layer, NULL, NULL},
    {"InstanceNormalization", one_to_one, NULL, NULL},
    {"LRN", one_to_one, NULL, NULL},
    {"LayerNormalization", one_to_one, NULL, NULL},
    {"LeakyRelu", relu, NULL, NULL},
    {"LogSoftmax", softmax, NULL, NULL},
    {"MatMul", matmul, NULL, NULL},
    {"MaxPool", maximum_pool, NULL, NULL},
    {"Mul", NULL, ty_onnx_broadcast, DIFFER},
    {"Neg", one_to_one, NULL, NULL},
    {"PRelu", NULL, ty_onnx_broadcast, DIFFER},
    {"Pow", NULL, ty_onnx_broadcast, DIFFER},
    {"ReduceMax", NULL, ty_onnx_reduce, "found axes that do not fit"},
    {"ReduceMean", NULL, ty_onnx_reduce, "found axes that do not fit"},
    {"ReduceSum", NULL, ty_onnx_reduce, "found axes that do not fit"},
    {"Relu", relu, NULL, NULL},
    {"Reshape", NULL, ty_onnx_reshape, NULL},
    {"Sigmoid", one_to_one, NULL, NULL},
    {"Softmax", softmax, NULL, NULL},
    {"Softplus", one_to_one, NULL, NULL},
    {"Sqrt", one_to_one, NULL, NULL},
    {"Squeeze", NULL, ty_onnx_squeeze, NULL},
    {"Sub", NULL, ty_onnx_broadcast, DIFFER},
    {"Sum", add, NULL, NULL},
    {"Tanh", one_to_one, NULL, NULL},
    {"Transpose", NULL, ty_onnx_transpose, "found a permutation that does not fit"},
    {"Unsqueeze", NULL, ty_onnx_unsqueeze, NULL},
    {"Where", NULL, ty_onnx_broadcast, DIFFER},
};

/* ---- The whole ------------------------------------------------------------------------------- */

static ty_status check_inputs(const run *r, const ty_onnx_node *n, bool *is_constant)
{
    *is_constant = ty_wire_is(&n->operator_name, "Shape");
    for (uint32_t i = 0; i < n->input_count; i++) {
        const ty_onnx_value *v = ty_onnx_input(&r->graph, n, i);
        if (v != NULL && !v->is_defined)
            return bad_node(r, n, "found an input that nothing before it makes");
        if (v != NULL && !v->is_constant && !ty_wire_is(&n->operator_name, "Shape"))
            return TY_OK;
    }
    *is_constant = true;
    return TY_OK;
}

/* Further outputs that are read, such as those of a split, are views of the first one's layer.
 */
static ty_status define_outputs(run *r, const ty_onnx_node *n, bool is_constant)
{
    const ty_onnx_value *first = &r->graph.values[n->outputs[0]];

    for (uint32_t i = 1; i < n->output_count; i++) {
        ty_onnx_value *out;
        ty_opaque known = {.is_view = true};
        if (n->outputs[i] == TY_ONNX_NO_VALUE)
            continue;
        out = &r->graph.values[n->outputs[i]];
        if (out->is_defined)
            return bad_node(r, n, "found an output that has been made before");
        out->is_defined = true;
        out->is_constant = is_constant;
        if (is_constant || (!out->is_read && !out->is_output))
            continue;
        if (!out->has_shape && first->has_shape)
            ty_onnx_same_shape(out, first);
        known.output = sample_shape(r, out);
        name_layer(r, n, out);
        out->layer = ty_builder_opaque(r->builder, &(uint32_t){read_layer(r, first)}, 1, &known);
    }
    return TY_OK;
}

static ty_status append_by_shape(run *r, const ty_onnx_node *n, ty_onnx_value *out,
                                 const operation *o)
{
    const bool is_known = o->shape(&r->graph, n, out);

    if (o->found == NULL)
        return view(r, n, out, is_known);
    return is_known || out->has_shape ? opaque(r, n, out, 0, false) : bad_node(r, n, o->found);
}

static ty_status run_node(run *r, const ty_onnx_node *n)
{
    static const operation other = {.append = unknown};
    const operation *o = &other;
    ty_onnx_value *out;
    bool is_constant;

    TY_TRY(check_inputs(r, n, &is_constant));
    if (n->output_count == 0 || n->outputs[0] == TY_ONNX_NO_VALUE)
        return bad_node(r, n, "found no first output");
    out = &r->graph.values[n->outputs[0]];
    if (out->is_defined)
        return bad_node(r, n, "found an output that has been made before");
    if (is_constant) {
        TY_TRY(ty_onnx_fold(&r->graph, n, out));
        return define_outputs(r, n, true);
    }
    for (size_t i = 0; i < sizeof operations / sizeof operations[0]; i++)
        if (ty_wire_is(&n->operator_name, operations[i].name))
            o = &operations[i];
    if (o->append != same_layer)
        name_layer(r, n, out);
    TY_TRY(o->append != NULL ? o->append(r, n, out) : append_by_shape(r, n, out, o));
    out->is_defined = true;
    return define_outputs(r, n, false);
}

/* Several inputs are views of parts of the batch. */
static void append_inputs(run *r)
{
    ty_onnx_graph *g = &r->graph;

    for (uint32_t i = 0; i < g->input_count; i++) {
        ty_onnx_value *v = &g->values[g->inputs[i]];
        ty_opaque known = {.output = sample_shape(r, v), .is_view = true};
        v->layer = TY_BATCH;
        if (g->input_count > 1 && v->is_read)
            v->layer = ty_builder_opaque(r->builder, &(uint32_t){TY_BATCH}, 1, &known);
    }
}

/* Joins several outputs of the graph in one layer without cost. */
static ty_status join_ends(run *r, uint32_t layer_count)
{
    uint32_t *ends = ty_alloc(layer_count, sizeof *ends), count = 0;

    TY_TRY(ty_check_memory(ends != NULL, r->graph.source->error));
    for (uint32_t i = 0; i < layer_count; i++)
        if (!r->is_layer_read[i])
            ends[count++] = i;
    if (count > 1) {
        ty_import_note(r->graph.source, "%u outputs are joined by a layer of no cost", count);
        ty_builder_opaque(r->builder, ends, count,
                          &(ty_opaque){.output = {1, {1}}, .is_timed = true});
    }
    ty_free(ends);
    return TY_OK;
}

static uint32_t count_layers(const ty_builder *b, uint32_t most)
{
    uint32_t count = 0;
    while (count < most && ty_builder_shape(b, count) != NULL)
        count++;
    return count;
}

static ty_status run_all(run *r, uint32_t most_layers)
{
    ty_onnx_graph *g = &r->graph;
    uint32_t layers;

    append_inputs(r);
    for (uint32_t i = 0; i < g->node_count; i++)
        if (g->nodes[i].is_needed)
            TY_TRY(run_node(r, &g->nodes[i]));
    layers = count_layers(r->builder, most_layers);
    TY_TRY(join_ends(r, layers));
    if (layers == 0 && ty_builder_shape(r->builder, TY_BATCH) != NULL)
        return ty_fail(g->source->error, TY_EPARSE,
                       "%s: found no operator between the inputs and the outputs", g->source->path);
    if (r->unknown_count > 0)
        ty_import_note(
            g->source,
            "%u operators that are not known, '%.*s' first, are opaque layers without flop",
            r->unknown_count, (int)ty_wire_length(&r->first_unknown),
            (const char *)r->first_unknown.at);
    return TY_OK;
}

/* Upper bound of layers: one per output of a node, one more per node, inputs, the end.
 */
static uint32_t most_layers_of(run *r)
{
    uint64_t most = (uint64_t)r->graph.input_count + 8;
    for (uint32_t i = 0; i < r->graph.node_count; i++)
        most += (uint64_t)r->graph.nodes[i].output_count + 1;
    for (uint32_t i = 0; i < r->graph.value_count; i++)
        r->output_count += r->graph.values[i].is_output;
    return (uint32_t)most; /* names are bounded */
}

static ty_status build(run *r, ty_workload **out)
{
    const ty_optimizer optimizer = {
        .kind = TY_OPTIMIZER_SGD, .learning_rate = 0.01, .momentum = 0.9};
    ty_import_source *source = r->graph.source;
    ty_status status = TY_OK;
    uint32_t most = most_layers_of(r);
    ty_shape sample = {0};
    char *name = NULL;

    TY_CHECK(ty_import_name(source, &name), status, cleanup);
    TY_CHECK(settle_inputs(r, &sample), status, cleanup);
    r->is_layer_read = ty_alloc(most, sizeof *r->is_layer_read);
    TY_CHECK(ty_check_memory(r->is_layer_read != NULL, source->error), status, cleanup);
    r->builder = ty_builder_new(name, TY_INPUT_REAL, &sample);
    ty_builder_set_source(r->builder, "ONNX model");
    ty_builder_set_training(r->builder, "synthetic",
                            source->options->batch > 0 ? source->options->batch : 32, &optimizer);
    TY_CHECK(run_all(r, most), status, cleanup);
    status = ty_import_finish(source, r->builder, out);
    r->builder = NULL; /* finishing frees it */

cleanup:
    ty_builder_free(r->builder);
    ty_free(r->is_layer_read);
    ty_free(name);
    return status;
}

static ty_status read(ty_import_source *source, ty_workload **out)
{
    run r = {0};
    ty_status status = TY_OK;

    TY_CHECK(ty_onnx_read(source, &r.graph), status, cleanup);
    status = build(&r, out);

cleanup:
    ty_arena_free(r.graph.arena);
    return status;
}

/* The IR version, then a field of a model that is a string or a message. */
static bool probe(ty_import_source *source)
{
    const uint8_t *b = (const uint8_t *)source->bytes;
    return source->length > 3 && b[0] == 0x08 && b[1] >= 1 && b[1] < 0x40 &&
           memchr("\x12\x1a\x22\x32\x3a\x42", b[2], 6) != NULL;
}

const ty_import_format ty_import_onnx = {"ONNX", probe, read, false};
