/* Small models made by hand, so that the tests of execute/ need only core. */
#ifndef TEST_EXECUTE_NETWORK_H
#define TEST_EXECUTE_NETWORK_H

#include "ty_core.h"

/* A workload under construction. Layers name their inputs by index; -1 is the batch. */
ty_workload *network_new(ty_input_kind input_kind, uint32_t dimension_count,
                         const uint64_t *dimensions);
void network_free(ty_workload *network);

/* Each returns the index of the new layer. Shapes and parameter bytes follow from the inputs. */
int network_linear(ty_workload *network, int input, uint64_t out, bool has_bias);
int network_tied_linear(ty_workload *network, int input, int embedding);
int network_conv2d(ty_workload *network, int input, uint64_t out, uint64_t height, uint64_t width,
                   uint64_t stride, uint64_t padding, uint64_t groups, bool has_bias);
int network_pool(ty_workload *network, int input, uint64_t window, uint64_t stride,
                 uint64_t padding, bool is_average);
int network_global_pool(ty_workload *network, int input);
int network_simple(ty_workload *network, int input,
                   ty_layer_kind kind); /* relu, norms, flatten.. */
int network_embedding(ty_workload *network, uint64_t vocabulary, uint64_t features,
                      uint64_t positions);
/* Adds a table of segments to the embedding. */
void network_token_types(ty_workload *network, int embedding, uint64_t types);
int network_attention(ty_workload *network, int input, uint64_t heads, uint64_t kv_heads,
                      uint64_t head_size, bool has_bias, bool is_causal);
/* Keys and values come from the memory, an earlier layer. */
int network_cross_attention(ty_workload *network, int input, int memory, uint64_t heads,
                            uint64_t kv_heads, uint64_t head_size, bool has_bias);
/* Sets an optional attribute of the layer, and counts its parameters. */
void network_option(ty_workload *network, int layer, ty_attribute option, uint64_t value);
int network_additive_attention(ty_workload *network, int input, int memory, uint64_t hidden);
int network_slice(ty_workload *network, int input, uint64_t first_row, uint64_t rows);
int network_concat_features(ty_workload *network, const int *inputs, uint32_t count);
int network_bag(ty_workload *network, uint64_t vocabulary, uint64_t features, uint64_t first_row,
                uint64_t rows, bool is_average);
int network_interaction(ty_workload *network, const int *inputs, uint32_t count);
int network_lstm(ty_workload *network, int input, uint64_t hidden, bool has_bias);
int network_mlp(ty_workload *network, int input, uint64_t hidden, bool has_bias, bool is_gated);
int network_moe(ty_workload *network, int input, uint64_t experts, uint64_t per_token,
                uint64_t hidden, bool has_bias, bool is_gated);
/** Experts for the tokens that the router selects, next to `shared` hidden features of experts that
 * process all tokens. */
int network_moe_shared(ty_workload *network, int input, uint64_t experts, uint64_t per_token,
                       uint64_t hidden, uint64_t shared, bool has_bias, bool is_gated);
int network_join(ty_workload *network, ty_layer_kind kind, const int *inputs, uint32_t count);
int network_loss(ty_workload *network, int input);

/* The models of the benchmarks and of several tests. */
ty_workload *network_make_mlp(void);   /* 784-1024-1024-10 */
ty_workload *network_make_lenet(void); /* Caffe's: 20 and 50 filters, 500 hidden */
ty_workload *network_make_gpt(uint64_t layers, uint64_t features, uint64_t heads, uint64_t sequence,
                              uint64_t vocabulary);
/* A BERT block: token types, bidirectional attention, norms after the residual additions. */
ty_workload *network_make_encoder(uint64_t features, uint64_t heads, uint64_t sequence,
                                  uint64_t vocabulary, bool has_positions);

/* Small models whose sizes are multiples of no block size. */
ty_workload *network_make_activations(void); /* linear layers, each followed by one activation
                                              * function */
ty_workload *network_make_small_lenet(void);
/* Color images, groups, strides, padding, overlapping windows, joins, values read twice. */
ty_workload *network_make_residual(void);
/* Longer than a block of queries or of keys, and a multiple of neither size. */
ty_workload *network_make_small_gpt(void);
/* Two attention layers over 70 tokens with rotary embeddings of queries and keys, one causal, one
 * not. */
ty_workload *network_make_rotary(bool has_norms);
/* Numbers, indices of two tables and of a bag that is averaged, one more that is summed; one score.
 */
ty_workload *network_make_dlrm(void);
/* The last block's hidden features have biases, and a gate or not. */
ty_workload *network_make_llama(uint64_t hidden, bool is_gated);

#endif
