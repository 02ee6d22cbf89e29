/**
 * @file stage_shapes.h
 * Sizes of layers whose functions are a backend's own. Internal to execute/.
 */
#ifndef TY_EXECUTE_STAGE_SHAPES_H
#define TY_EXECUTE_STAGE_SHAPES_H

#include "stage.h"

/** Tensor-parallel ranks that shard a node's layer; 1 without. */
static inline uint32_t stage_shards(const ty_stage_device *stage, const stage_node *node)
{
    return node->is_divided ? tp_size_of(&stage->options) : 1;
}

/** Whether recomputing begins at the output of the first product of a node's layer. */
static inline bool stage_finds_product(const ty_stage_device *stage, const stage_node *node)
{
    const ty_again again = stage->segments.again[node->layer_index].what;

    return again == TY_AGAIN_SECOND || again == TY_AGAIN_ACTIVATION;
}

typedef struct stage_mlp {
    uint64_t rows, features, hidden;
    uint64_t up; /* columns of the first product: hidden, or twice that */
    bool is_gated, is_relu, has_bias;
} stage_mlp;

static inline stage_mlp stage_mlp_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t hidden = a[TY_HIDDEN_FEATURES] / stage_shards(stage, node);
    const bool is_gated = a[TY_IS_GATED] != 0;

    return (stage_mlp){
        .rows = stage_batch(stage) * ty_shape_elements(&node->whole_output) / a[TY_FEATURES],
        .features = a[TY_FEATURES],
        .hidden = hidden,
        .up = hidden * (is_gated ? 2 : 1),
        .is_gated = is_gated,
        .is_relu = a[TY_IS_RELU] != 0,
        .has_bias = a[TY_HAS_BIAS] != 0,
    };
}

typedef struct stage_lstm {
    uint64_t batch, length, rows; /* rows = batch * length */
    uint64_t in, hidden, gates;   /* gates: columns, 4 hidden */
    bool has_bias, is_reversed;
} stage_lstm;

static inline stage_lstm stage_lstm_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t length = stage->values[node->output].shape.dimensions[0];

    return (stage_lstm){.batch = stage_batch(stage),
                        .length = length,
                        .rows = stage_batch(stage) * length,
                        .in = a[TY_IN_FEATURES],
                        .hidden = a[TY_HIDDEN_FEATURES],
                        .gates = LSTM_GATES * a[TY_HIDDEN_FEATURES],
                        .has_bias = a[TY_HAS_BIAS] != 0,
                        .is_reversed = a[TY_IS_REVERSED] != 0};
}

/** The place in the sequence of the n-th step. */
static inline uint64_t stage_lstm_step(const stage_lstm *l, uint64_t n)
{
    return l->is_reversed ? l->length - 1 - n : n;
}

#endif
