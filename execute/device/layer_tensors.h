/**
 * @file layer_tensors.h
 * The parameter tensors of each kind of layer: sizes, initial values and shards, the same on every
 * backend. Checkpoints, buckets and joined gradients rely on it. Internal to execute/.
 */
#ifndef TY_EXECUTE_LAYER_TENSORS_H
#define TY_EXECUTE_LAYER_TENSORS_H

#include "shards.h"

#define LAYER_MAX_TENSORS TY_MOST_TENSORS
/** After them, in weight files only: the running statistics of batch norm, [features] each. */
enum { LAYER_RUNNING_MEAN = LAYER_MAX_TENSORS, LAYER_RUNNING_VARIANCE, LAYER_FILE_TENSORS };

/** embedding: table [vocabulary][features], positions [positions][features], token types
 * [types][features]. Every token has the first type: data sets have one segment per sample */
enum { EMBEDDING_TABLE, EMBEDDING_POSITIONS, EMBEDDING_TYPES };
/** attention: project [queries | keys | values][features], out [features][queries]; gains of the
 * norms of a head's queries and keys [head size]; biases of scores [relative buckets][heads] */
enum {
    ATTENTION_PROJECT,
    ATTENTION_OUT,
    ATTENTION_PROJECT_BIAS,
    ATTENTION_OUT_BIAS,
    ATTENTION_QUERY_GAIN,
    ATTENTION_KEY_GAIN,
    ATTENTION_RELATIVE
};
/** additive attention: matrices of queries [hidden][in] and of the memory [hidden][features], a
 * vector of direction [hidden] and length [1] of its own, a bias [hidden] */
enum { ADDITIVE_QUERY, ADDITIVE_MEMORY, ADDITIVE_VECTOR, ADDITIVE_GAIN, ADDITIVE_BIAS };
/** mlp: up [hidden or 2 hidden][features], whose first half is the gate, if there is one; down
 * [features][hidden] */
enum { MLP_UP, MLP_DOWN, MLP_UP_BIAS, MLP_DOWN_BIAS };
/** moe: router [experts][features]; the tensors of an mlp for the shared experts together; then the
 * same for each expert, one after the other */
enum {
    MOE_ROUTER,
    MOE_SHARED_UP,
    MOE_SHARED_DOWN,
    MOE_SHARED_UP_BIAS,
    MOE_SHARED_DOWN_BIAS,
    MOE_UP,
    MOE_DOWN,
    MOE_UP_BIAS,
    MOE_DOWN_BIAS
};
/** lstm: input [gates][in], state [gates][hidden]; gates i, f, g, o, as in cuDNN and PyTorch */
enum { LSTM_INPUT, LSTM_STATE, LSTM_INPUT_BIAS, LSTM_STATE_BIAS };
enum { LSTM_GATES = 4 };

/** An attribute's bit in a set of attributes. */
#define LAYER_OPTION(attribute) ((uint64_t)1 << (attribute))
/**
 * The first option of a layer that is neither one that every backend builds nor in `known`;
 * TY_ATTRIBUTE_COUNT: none. Fused attention is the same function, with other memory.
 */
ty_attribute layer_unknown_option(const ty_layer *layer, uint64_t known);

#endif
