/**
 * @file onnx_shapes.h
 * Shapes of ONNX operators' outputs, and constant folding. Internal to workloads/.
 */
#ifndef TY_WORKLOADS_ONNX_SHAPES_H
#define TY_WORKLOADS_ONNX_SHAPES_H

#include "onnx_graph.h"

/* All of these set rank, dimensions and has_shape of `out` and return false if the inputs do not
 * fit or are unknown; `out` then keeps the file's shape, if any. */

/** Copies the shape of another value. */
void ty_onnx_same_shape(ty_onnx_value *out, const ty_onnx_value *from);
/** Broadcasts the shapes of the inputs: right-aligned, 1 extends to any size. */
bool ty_onnx_broadcast(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);
bool ty_onnx_reshape(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);
bool ty_onnx_flatten(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);
bool ty_onnx_squeeze(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);
bool ty_onnx_unsqueeze(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);
bool ty_onnx_transpose(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);
bool ty_onnx_concat(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out,
                    uint32_t *axis);
bool ty_onnx_reduce(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);
bool ty_onnx_matmul(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out,
                    double *multiply_adds);
bool ty_onnx_gather(const ty_onnx_graph *g, const ty_onnx_node *n, ty_onnx_value *out);

/** A sliding window over the last two dimensions, from an operator's attributes. */
typedef struct ty_onnx_window {
    uint64_t kernel[2], stride[2], before[2], out[2];
    bool is_dilated;
} ty_onnx_window;
/** @param kernel of the weights; NULL: the attribute "kernel_shape" */
bool ty_onnx_slide(const ty_onnx_node *n, const ty_onnx_value *x, const uint64_t *kernel,
                   ty_onnx_window *out);

/** The value of an input, or NULL if it is omitted. */
ty_onnx_value *ty_onnx_input(const ty_onnx_graph *g, const ty_onnx_node *n, uint32_t i);

/** Evaluates a node with constant inputs, or "Shape": shape and small integers of its outputs. */
ty_status ty_onnx_fold(const ty_onnx_graph *g, const ty_onnx_node *n,
                       ty_onnx_value *out) TY_MUST_CHECK;

#endif
