/**
 * @file onnx_graph.h
 * An ONNX file as nodes and the values between them. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_ONNX_GRAPH_H
#define TY_WORKLOADS_ONNX_GRAPH_H

#include "import.h"
#include "wire.h"

#define TY_ONNX_MOST_RANK 8
#define TY_ONNX_MOST_INTS 64 /* numbers stored of a constant: shapes, axes, pads */
#define TY_ONNX_NO_VALUE UINT32_MAX

typedef struct ty_onnx_value {
    ty_wire name;
    bool is_defined;  /* known after the nodes so far */
    bool is_constant; /* an initializer, or computed only from constants */
    bool is_counted;  /* its numbers are counted as a layer's parameters */
    bool is_integer;
    bool has_shape;
    bool is_output; /* of the graph */
    bool is_read;   /* by a needed node */
    uint32_t rank;
    uint64_t dimensions[TY_ONNX_MOST_RANK]; /* the batch included; 0: symbolic */
    uint32_t layer;                         /* of the workload, unless constant */
    uint32_t integer_count;                 /* 0: not stored */
    const int64_t *integers;
} ty_onnx_value;

typedef struct ty_onnx_node {
    ty_wire operator_name, message;
    uint32_t input_count, output_count;
    uint32_t *inputs; /* values; TY_ONNX_NO_VALUE if omitted */
    uint32_t *outputs;
    bool is_needed; /* for an output of the graph */
} ty_onnx_node;

typedef struct ty_onnx_graph {
    ty_import_source *source;
    ty_arena *arena; /* memory of everything below */
    uint64_t opset;
    uint32_t value_count, node_count, input_count;
    ty_onnx_value *values; /* by name */
    ty_onnx_node *nodes;
    uint32_t *inputs; /* values of the graph's inputs that are no initializers, in order */
} ty_onnx_graph;

/** Reads and connects the graph with initializers and shapes; evaluates no node. Free the arena. */
ty_status ty_onnx_read(ty_import_source *source, ty_onnx_graph *graph) TY_MUST_CHECK;

/** Integers of an attribute ("i" or "ints") of a node. @return their number, at most `most`; 0:
 * absent
 */
uint32_t ty_onnx_attribute(const ty_onnx_node *node, const char *name, int64_t *out, uint32_t most);
/** A string attribute; empty if there is none. */
ty_wire ty_onnx_text_attribute(const ty_onnx_node *node, const char *name);
/** Fills shape and small integers of `value` from the tensor attribute "value" of a Constant. */
ty_status ty_onnx_constant(const ty_onnx_graph *graph, const ty_onnx_node *node,
                           ty_onnx_value *value) TY_MUST_CHECK;
/** Product of the dimensions; a double, so that nothing overflows. */
double ty_onnx_elements(const ty_onnx_value *value);

#endif
