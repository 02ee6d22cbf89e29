/* Decoding of ONNX. Field numbers: onnx/onnx.proto of onnx/onnx (ModelProto, GraphProto, NodeProto,
 * AttributeProto, TensorProto, ValueInfoProto). Only reads the shapes of weights. */
#include "onnx_graph.h"

#include <stdlib.h>
#include <string.h>

#define MOST_NODES 200000
#define MOST_NAMES 4000000 /* inputs and outputs of all nodes */
#define MOST_PER_NODE 4096
#define MOST_DIMENSION 2147483647

enum { MODEL_GRAPH = 7, MODEL_OPSET = 8 };
enum {
    GRAPH_NODE = 1,
    GRAPH_INITIALIZER = 5,
    GRAPH_INPUT = 11,
    GRAPH_OUTPUT = 12,
    GRAPH_VALUE_INFO = 13
};
enum { NODE_INPUT = 1, NODE_OUTPUT = 2, NODE_NAME = 3, NODE_OPERATOR = 4, NODE_ATTRIBUTE = 5 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_I = 3, ATTRIBUTE_S = 4, ATTRIBUTE_T = 5, ATTRIBUTE_INTS = 8 };
enum {
    TENSOR_DIMENSIONS = 1,
    TENSOR_TYPE = 2,
    TENSOR_INT32 = 5,
    TENSOR_INT64 = 7,
    TENSOR_NAME = 8,
    TENSOR_RAW = 9
};
enum { TYPE_INT32 = 6, TYPE_INT64 = 7, TYPE_UINT8 = 2, TYPE_BOOL = 9 };

static ty_status fail_memory(const ty_onnx_graph *g)
{
    return ty_fail(g->source->error, TY_ENOMEM, "%s: out of memory", g->source->path);
}

static ty_status fail_broken(const ty_onnx_graph *g, const ty_wire *wire)
{
    return ty_fail(g->source->error, TY_EPARSE,
                   "%s: byte %zu: found a broken or cut-off message, expected a field of ONNX",
                   g->source->path, (size_t)((const char *)wire->at - g->source->bytes));
}

/* ---- Names ----------------------------------------------------------------------------------- */

static int by_name(const void *a, const void *b)
{
    return ty_wire_compare(&((const ty_onnx_value *)a)->name, &((const ty_onnx_value *)b)->name);
}

static ty_onnx_value *find(const ty_onnx_graph *g, const ty_wire *name)
{
    const ty_onnx_value key = {.name = *name};
    return g->value_count == 0 ? NULL
                               : bsearch(&key, g->values, g->value_count, sizeof key, by_name);
}

/* ---- Tensors and types ----------------------------------------------------------------------- */

static bool set_dimension(ty_onnx_value *v, int64_t size)
{
    if (v->rank == TY_ONNX_MOST_RANK || size < 0 || size > MOST_DIMENSION)
        return false;
    v->dimensions[v->rank++] = (uint64_t)size;
    return true;
}

/* The numbers of a small integer tensor, little-endian in raw_data or as varints. */
static ty_status keep_integers(const ty_onnx_graph *g, const ty_wire *tensor, unsigned width,
                               ty_onnx_value *v)
{
    int64_t *kept = ty_arena_alloc(g->arena, TY_ONNX_MOST_INTS, sizeof *kept);
    ty_wire wire = *tensor;
    ty_wire_field f;
    uint32_t count = 0;

    if (kept == NULL)
        return fail_memory(g);
    while (ty_wire_next(&wire, &f)) {
        if (f.number == TENSOR_INT32 || f.number == TENSOR_INT64)
            ty_wire_integers(&f, kept, TY_ONNX_MOST_INTS, &count);
        if (f.number != TENSOR_RAW || f.type != TY_WIRE_BYTES)
            continue;
        while (ty_wire_length(&f.bytes) >= width && count < TY_ONNX_MOST_INTS) {
            uint64_t bits = 0;
            for (unsigned i = 0; i < width; i++)
                bits |= (uint64_t)f.bytes.at[i] << (8 * i);
            f.bytes.at += width;
            kept[count++] = width == 4 ? (int32_t)(uint32_t)bits : (int64_t)bits;
        }
    }
    if (count > 0 && (double)count == ty_onnx_elements(v)) {
        v->integers = kept;
        v->integer_count = count;
    }
    return TY_OK;
}

static ty_status read_tensor(const ty_onnx_graph *g, const ty_wire *tensor, ty_onnx_value *v)
{
    int64_t sizes[TY_ONNX_MOST_RANK + 1];
    ty_wire wire = *tensor;
    ty_wire_field f;
    uint32_t count = 0;
    uint64_t type = 0;

    while (ty_wire_next(&wire, &f)) {
        if (f.number == TENSOR_DIMENSIONS)
            ty_wire_integers(&f, sizes, TY_ONNX_MOST_RANK + 1, &count);
        if (f.number == TENSOR_TYPE)
            type = f.value;
    }
    if (wire.is_broken)
        return fail_broken(g, &wire);
    v->rank = 0;
    for (uint32_t i = 0; i < count; i++)
        if (!set_dimension(v, i <= TY_ONNX_MOST_RANK ? sizes[i] : -1))
            return ty_fail(g->source->error, TY_EPARSE,
                           "%s: tensor '%.*s': found a dimension below 0, above 2^31 - 1 or beyond "
                           "the eighth",
                           g->source->path, (int)ty_wire_length(&v->name),
                           (const char *)v->name.at);
    v->has_shape = v->is_defined = v->is_constant = true;
    v->is_integer = type >= TYPE_UINT8 && type <= TYPE_BOOL && type != 8;
    if (type != TYPE_INT32 && type != TYPE_INT64)
        return TY_OK;
    return keep_integers(g, tensor, type == TYPE_INT32 ? 4 : 8, v);
}

/* TypeProto.tensor_type.shape.dim, three messages down. */
static bool enter(ty_wire *wire, uint32_t number)
{
    ty_wire_field f;
    while (ty_wire_next(wire, &f))
        if (f.number == number && f.type == TY_WIRE_BYTES) {
            *wire = f.bytes;
            return true;
        }
    return false;
}

static void read_type(ty_wire type, ty_onnx_value *v)
{
    ty_wire tensor, shape;
    ty_wire_field f, part;

    if (!enter(&type, 1))
        return;
    tensor = shape = type;
    while (ty_wire_next(&tensor, &f))
        if (f.number == 1)
            v->is_integer = f.value >= TYPE_UINT8 && f.value <= TYPE_BOOL && f.value != 8;
    if (v->has_shape || !enter(&shape, 2))
        return;
    v->has_shape = true;
    v->rank = 0;
    while (ty_wire_next(&shape, &f)) {
        int64_t size = 0;
        while (f.type == TY_WIRE_BYTES && ty_wire_next(&f.bytes, &part))
            if (part.number == 1)
                size = (int64_t)part.value;
        if (!set_dimension(v, size > 0 ? size : 0))
            v->has_shape = false;
    }
}

static void read_value_info(const ty_onnx_graph *g, ty_wire info, ty_onnx_value **out)
{
    ty_wire type = {0};
    ty_wire_field f;

    *out = NULL;
    while (ty_wire_next(&info, &f)) {
        if (f.number == 1 && f.type == TY_WIRE_BYTES)
            *out = find(g, &f.bytes);
        if (f.number == 2 && f.type == TY_WIRE_BYTES)
            type = f.bytes;
    }
    if (*out != NULL && type.at != NULL)
        read_type(type, *out);
}

double ty_onnx_elements(const ty_onnx_value *value)
{
    double product = 1;
    for (uint32_t i = 0; i < value->rank; i++)
        product *= (double)value->dimensions[i];
    return product;
}

/* ---- Attributes ------------------------------------------------------------------------------ */

static bool find_attribute(const ty_onnx_node *node, const char *name, ty_wire *out)
{
    ty_wire message = node->message;
    ty_wire_field f, part;

    while (ty_wire_next(&message, &f)) {
        ty_wire attribute = f.bytes;
        if (f.number != NODE_ATTRIBUTE || f.type != TY_WIRE_BYTES)
            continue;
        while (ty_wire_next(&attribute, &part))
            if (part.number == ATTRIBUTE_NAME && part.type == TY_WIRE_BYTES &&
                ty_wire_is(&part.bytes, name)) {
                *out = f.bytes;
                return true;
            }
    }
    return false;
}

uint32_t ty_onnx_attribute(const ty_onnx_node *node, const char *name, int64_t *out, uint32_t most)
{
    ty_wire attribute;
    ty_wire_field f;
    uint32_t count = 0;

    if (!find_attribute(node, name, &attribute))
        return 0;
    while (ty_wire_next(&attribute, &f))
        if (f.number == ATTRIBUTE_I || f.number == ATTRIBUTE_INTS)
            ty_wire_integers(&f, out, most, &count);
    return count < most ? count : most;
}

ty_wire ty_onnx_text_attribute(const ty_onnx_node *node, const char *name)
{
    ty_wire attribute, text = ty_wire_of("", 0);
    ty_wire_field f;

    if (find_attribute(node, name, &attribute))
        while (ty_wire_next(&attribute, &f))
            if (f.number == ATTRIBUTE_S && f.type == TY_WIRE_BYTES)
                text = f.bytes;
    return text;
}

ty_status ty_onnx_constant(const ty_onnx_graph *graph, const ty_onnx_node *node,
                           ty_onnx_value *value)
{
    ty_wire attribute;
    ty_wire_field f;

    if (find_attribute(node, "value", &attribute))
        while (ty_wire_next(&attribute, &f))
            if (f.number == ATTRIBUTE_T && f.type == TY_WIRE_BYTES)
                return read_tensor(graph, &f.bytes, value);
    value->is_constant = value->is_defined = true; /* a number or text is no parameter */
    return TY_OK;
}

/* ---- The graph ------------------------------------------------------------------------------- */

/* A name of a field of `message`, or none. */
static ty_wire name_in(ty_wire message, uint32_t number)
{
    ty_wire_field f;
    while (ty_wire_next(&message, &f))
        if (f.number == number && f.type == TY_WIRE_BYTES)
            return f.bytes;
    return ty_wire_of("", 0);
}

/* Number of nodes, and an upper bound of names; detects all encoding errors. */
static ty_status count_all(ty_onnx_graph *g, ty_wire graph, uint32_t *name_count)
{
    ty_wire_field f, part;
    uint64_t names = 0, nodes = 0;

    while (ty_wire_next(&graph, &f)) {
        ty_wire message = f.bytes;
        if (f.type != TY_WIRE_BYTES)
            continue;
        names += f.number == GRAPH_INITIALIZER || f.number == GRAPH_INPUT;
        nodes += f.number == GRAPH_NODE;
        while (f.number == GRAPH_NODE && ty_wire_next(&message, &part))
            names += part.number == NODE_INPUT || part.number == NODE_OUTPUT;
        if (message.is_broken)
            return fail_broken(g, &message);
    }
    if (graph.is_broken)
        return fail_broken(g, &graph);
    if (nodes > MOST_NODES || names > MOST_NAMES)
        return ty_fail(g->source->error, TY_EPARSE,
                       "%s: found %llu nodes with %llu names, expected at most %d with %d",
                       g->source->path, (unsigned long long)nodes, (unsigned long long)names,
                       MOST_NODES, MOST_NAMES);
    g->node_count = (uint32_t)nodes;
    *name_count = (uint32_t)names;
    return TY_OK;
}

static void add_name(ty_onnx_graph *g, ty_wire name)
{
    if (ty_wire_length(&name) > 0)
        g->values[g->value_count++].name = name;
}

/* Collects every value once, sorted. */
static void collect_names(ty_onnx_graph *g, ty_wire graph)
{
    ty_wire_field f, part;
    uint32_t kept = 0;

    while (ty_wire_next(&graph, &f)) {
        ty_wire message = f.bytes;
        if (f.type != TY_WIRE_BYTES)
            continue;
        if (f.number == GRAPH_INITIALIZER)
            add_name(g, name_in(f.bytes, TENSOR_NAME));
        else if (f.number == GRAPH_INPUT)
            add_name(g, name_in(f.bytes, 1));
        while (f.number == GRAPH_NODE && ty_wire_next(&message, &part))
            if ((part.number == NODE_INPUT || part.number == NODE_OUTPUT) &&
                part.type == TY_WIRE_BYTES)
                add_name(g, part.bytes);
    }
    if (g->value_count > 0)
        qsort(g->values, g->value_count, sizeof *g->values, by_name);
    for (uint32_t i = 0; i < g->value_count; i++)
        if (i == 0 || ty_wire_compare(&g->values[i].name, &g->values[kept - 1].name) != 0)
            g->values[kept++] = g->values[i];
    g->value_count = kept;
}

static uint32_t index_of(const ty_onnx_graph *g, const ty_wire *name)
{
    const ty_onnx_value *v = ty_wire_length(name) > 0 ? find(g, name) : NULL;
    return v != NULL ? (uint32_t)(v - g->values) : TY_ONNX_NO_VALUE;
}

static ty_status read_node(const ty_onnx_graph *g, ty_wire message, ty_onnx_node *n)
{
    ty_wire wire = message;
    ty_wire_field f;

    n->message = message;
    n->operator_name = name_in(message, NODE_OPERATOR);
    while (ty_wire_next(&wire, &f)) {
        n->input_count += f.number == NODE_INPUT && f.type == TY_WIRE_BYTES;
        n->output_count += f.number == NODE_OUTPUT && f.type == TY_WIRE_BYTES;
    }
    if (n->input_count > MOST_PER_NODE || n->output_count > MOST_PER_NODE)
        return ty_fail(g->source->error, TY_EPARSE,
                       "%s: found a node of %u inputs and %u outputs, expected at most %d of each",
                       g->source->path, n->input_count, n->output_count, MOST_PER_NODE);
    n->inputs = ty_arena_alloc(g->arena, n->input_count, sizeof *n->inputs);
    n->outputs = ty_arena_alloc(g->arena, n->output_count, sizeof *n->outputs);
    if (n->inputs == NULL || n->outputs == NULL)
        return fail_memory(g);
    n->input_count = n->output_count = 0;
    while (ty_wire_next(&message, &f)) {
        if (f.type != TY_WIRE_BYTES)
            continue;
        if (f.number == NODE_INPUT)
            n->inputs[n->input_count++] = index_of(g, &f.bytes);
        else if (f.number == NODE_OUTPUT)
            n->outputs[n->output_count++] = index_of(g, &f.bytes);
    }
    return TY_OK;
}

/* Initializers first: in old files they are inputs too (IR version 3). */
static ty_status read_values(ty_onnx_graph *g, ty_wire graph)
{
    ty_wire initializers = graph;
    ty_onnx_value *v;
    ty_wire_field f;

    while (ty_wire_next(&initializers, &f)) {
        ty_wire name = f.type == TY_WIRE_BYTES ? name_in(f.bytes, TENSOR_NAME) : ty_wire_of("", 0);
        if (f.number == GRAPH_INITIALIZER && (v = find(g, &name)) != NULL)
            TY_TRY(read_tensor(g, &f.bytes, v));
    }
    while (ty_wire_next(&graph, &f)) {
        bool is_input = f.number == GRAPH_INPUT, is_output = f.number == GRAPH_OUTPUT;
        if (f.type != TY_WIRE_BYTES || (!is_input && !is_output && f.number != GRAPH_VALUE_INFO))
            continue;
        read_value_info(g, f.bytes, &v);
        if (v == NULL)
            continue;
        v->is_output = v->is_output || is_output;
        if (is_input && !v->is_defined) {
            v->is_defined = true;
            g->inputs[g->input_count++] = (uint32_t)(v - g->values);
        }
    }
    return TY_OK;
}

static ty_status read_nodes(ty_onnx_graph *g, ty_wire graph)
{
    ty_wire_field f;
    uint32_t count = 0;

    while (ty_wire_next(&graph, &f))
        if (f.number == GRAPH_NODE && f.type == TY_WIRE_BYTES)
            TY_TRY(read_node(g, f.bytes, &g->nodes[count++]));
    return TY_OK;
}

/* Marks the needed nodes, from the graph's outputs backwards. */
static void mark_needed(ty_onnx_graph *g)
{
    for (uint32_t i = g->node_count; i-- > 0;) {
        ty_onnx_node *n = &g->nodes[i];
        for (uint32_t k = 0; k < n->output_count; k++)
            if (n->outputs[k] != TY_ONNX_NO_VALUE)
                n->is_needed = n->is_needed || g->values[n->outputs[k]].is_read ||
                               g->values[n->outputs[k]].is_output;
        for (uint32_t k = 0; n->is_needed && k < n->input_count; k++)
            if (n->inputs[k] != TY_ONNX_NO_VALUE)
                g->values[n->inputs[k]].is_read = true;
    }
}

static ty_status find_graph(ty_onnx_graph *g, ty_wire *graph)
{
    ty_wire model = ty_wire_of(g->source->bytes, g->source->length);
    ty_wire_field f, part;

    *graph = (ty_wire){0};
    while (ty_wire_next(&model, &f)) {
        if (f.number == MODEL_GRAPH && f.type == TY_WIRE_BYTES)
            *graph = f.bytes;
        while (f.number == MODEL_OPSET && f.type == TY_WIRE_BYTES && ty_wire_next(&f.bytes, &part))
            if (part.number == 2)
                g->opset = part.value;
    }
    if (model.is_broken)
        return fail_broken(g, &model);
    if (graph->at == NULL)
        return ty_fail(g->source->error, TY_EPARSE, "%s: found no graph in the ONNX model",
                       g->source->path);
    return TY_OK;
}

ty_status ty_onnx_read(ty_import_source *source, ty_onnx_graph *graph)
{
    ty_onnx_graph *g = graph;
    uint32_t names;
    ty_wire wire;

    *g = (ty_onnx_graph){.source = source, .arena = ty_arena_new()};
    if (g->arena == NULL)
        return fail_memory(g);
    TY_TRY(find_graph(g, &wire));
    TY_TRY(count_all(g, wire, &names));
    g->values = ty_arena_alloc(g->arena, names, sizeof *g->values);
    g->inputs = ty_arena_alloc(g->arena, names, sizeof *g->inputs);
    g->nodes = ty_arena_alloc(g->arena, g->node_count, sizeof *g->nodes);
    if (g->values == NULL || g->inputs == NULL || g->nodes == NULL)
        return fail_memory(g);
    collect_names(g, wire);
    TY_TRY(read_values(g, wire));
    TY_TRY(read_nodes(g, wire));
    mark_needed(g);
    return TY_OK;
}
