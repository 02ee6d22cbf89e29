/**
 * @file cuda_kernels.h
 * Functions that launch the backend's own kernels on a stream. Internal to execute/cuda/.
 *
 * Activations have one `cuda_type`; parameters, their gradients and all sums are float. With
 * `adds`, a function adds to its output instead of overwriting it. Every kernel sums in a fixed
 * order: the same input gives the same bits. cudaGetLastError reports failed launches.
 */
#ifndef TY_EXECUTE_CUDA_KERNELS_H
#define TY_EXECUTE_CUDA_KERNELS_H

#include "pool_windows.h"
#include "stage_pieces.h"
#include "token_runs.h"

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cuda_type { CUDA_TYPE_FLOAT, CUDA_TYPE_BF16, CUDA_TYPE_HALF } cuda_type;
typedef enum cuda_activation { CUDA_RELU, CUDA_GELU, CUDA_SILU, CUDA_TANH } cuda_activation;

/* ---- Elements (elements.cu) ---- */

void cuda_convert(cuda_type from_type, const void *from, cuda_type to_type, void *to,
                  uint64_t count, cudaStream_t stream);
/** to (+)= from. */
void cuda_accumulate(cuda_type type, uint64_t count, const void *from, bool adds, void *to,
                     cudaStream_t stream);
/** The same into floats. */
void cuda_accumulate_float(cuda_type type, uint64_t count, const void *from, bool adds, float *to,
                           cudaStream_t stream);
/** to (+)= from, an array of floats. */
void cuda_take_floats(cuda_type type, uint64_t count, const float *from, bool adds, void *to,
                      cudaStream_t stream);
/** y = a + b, with a relu if `has_relu`. */
void cuda_sum(cuda_type type, uint64_t count, const void *a, const void *b, bool has_relu, void *y,
              cudaStream_t stream);
void cuda_activate(cuda_type type, cuda_activation kind, uint64_t count, const void *x, void *y,
                   cudaStream_t stream);
/** @param x the input, or for relu and tanh the output */
void cuda_activate_backward(cuda_type type, cuda_activation kind, uint64_t count, const void *x,
                            const void *dy, bool adds, void *dx, cudaStream_t stream);
/** a[r][i] = silu(h[r][i]) h[r][n + i]. h: [rows][2n], a: [rows][n] */
void cuda_gate(cuda_type type, uint64_t rows, uint64_t n, const void *h, void *a,
               cudaStream_t stream);
void cuda_gate_backward(cuda_type type, uint64_t rows, uint64_t n, const void *h, const void *da,
                        void *dh, cudaStream_t stream);
/** y[r][c] += bias[c], for y of `count` elements. */
void cuda_add_bias(cuda_type type, uint64_t count, uint64_t columns, const float *bias, void *y,
                   cudaStream_t stream);
/** Copies `width` of every `from_stride` elements to `width` of every `to_stride`. */
void cuda_copy_rows(cuda_type type, uint64_t rows, uint64_t width, const void *from,
                    uint64_t from_stride, bool adds, void *to, uint64_t to_stride,
                    cudaStream_t stream);
/** Floats of scratch that cuda_column_sums needs. */
uint64_t cuda_column_sums_scratch(uint64_t rows, uint64_t columns);
/** sums[c] (+)= sum over r of dy[r * stride + c], c < columns. */
void cuda_column_sums(cuda_type type, uint64_t rows, uint64_t columns, uint64_t stride,
                      const void *dy, bool adds, float *sums, float *scratch, cudaStream_t stream);

/* ---- Image layouts (layout.cu) ---- */

/** Transposes each matrix [rows][columns]: converts images between planes, [C][H W], and channels
 * last, [H W][C]. */
void cuda_transpose(cuda_type from_type, uint64_t matrices, uint64_t rows, uint64_t columns,
                    const void *from, cuda_type to_type, bool adds, void *to, cudaStream_t stream);
/** A convolution's filters for channels-last images; `taps` is the number of places in its window.
 *  @param weights [outputs][inputs][taps], as in the parameters
 *  @param to [out] [outputs][taps][inputs] */
void cuda_filter_permute(cuda_type type, uint64_t outputs, uint64_t inputs, uint64_t taps,
                         const void *weights, void *to, cudaStream_t stream);
/** Converts their gradients back.
 *  @param from [outputs][taps][inputs], of the type
 *  @param gradients [outputs][inputs][taps] */
void cuda_filter_gradient(cuda_type type, uint64_t outputs, uint64_t inputs, uint64_t taps,
                          const void *from, bool adds, float *gradients, cudaStream_t stream);

/* ---- Norms over the innermost dimension (norm.cu) ---- */

/**
 * @param other  normalizes x + other; NULL: x
 * @param sum [out] x + other; NULL without `other`
 * @param statistics [out] [rows][2], mean and 1 / deviation; rms: mean is 0 and shift NULL
 */
void cuda_norm(cuda_type type, bool is_rms, uint64_t rows, uint64_t n, const void *x,
               const void *other, void *sum, const float *gain, const float *shift, void *y,
               float *statistics, cudaStream_t stream);
/** dgain, dshift, dx may each be NULL. @param scratch cuda_norm_scratch floats */
void cuda_norm_backward(cuda_type type, bool is_rms, uint64_t rows, uint64_t n, const void *x,
                        const float *gain, const float *statistics, const void *dy, float *dgain,
                        float *dshift, bool adds_parameters, bool adds_x, void *dx, float *scratch,
                        cudaStream_t stream);
uint64_t cuda_norm_scratch(bool is_rms, uint64_t rows, uint64_t n);

/* ---- Batch norm (batch_norm.cu): [rows][channels], images with their channels last ---- */

/**
 * Ioffe and Szegedy, 2015.
 * @param running [2][channels] mean and variance to normalize with; NULL: the batch's own
 * @param other  added to the normalized values; NULL: none
 * @param has_relu applies a relu to the sum
 * @param statistics [out] [channels][3]: the mean and 1 / deviation used, and the variance of the
 *                   batch
 * @param scratch cuda_batch_norm_scratch floats
 */
void cuda_batch_norm(cuda_type type, uint64_t rows, uint64_t channels, const void *x,
                     const float *gain, const float *shift, const float *running, const void *other,
                     bool has_relu, void *y, float *statistics, float *scratch,
                     cudaStream_t stream);
/**
 * @param shift  for a norm with a relu and no other summand, to recompute its output; else NULL
 * @param y      the output of a norm with a relu and another summand; else NULL
 * @param is_given whether the statistics were the running ones; dgain, dshift, dx may be NULL
 * @param running [2][channels] moves towards the batch's statistics, as in cpu_batch_norm.c; NULL
 *                without dgain
 * @param dy [in, out] with y, becomes 0 where the relu's output is 0, which gives the other
 *           summand's gradient
 */
void cuda_batch_norm_backward(cuda_type type, uint64_t rows, uint64_t channels, const void *x,
                              const float *gain, const float *shift, const void *y,
                              const float *statistics, bool is_given, void *dy, float *dgain,
                              float *dshift, bool adds_parameters, float *running, bool adds_x,
                              void *dx, float *scratch, cudaStream_t stream);
uint64_t cuda_batch_norm_scratch(uint64_t rows, uint64_t channels);

/* ---- Pooling (pool.cu): [B,H,W,C] ---- */

typedef struct cuda_pool {
    uint64_t images;
    pool_windows windows;
} cuda_pool;
void cuda_pool_forward(cuda_type type, const cuda_pool *pool, const void *x, void *y,
                       cudaStream_t stream);
/** The first of equal maxima, in row-major order, gets the gradient. */
void cuda_pool_backward(cuda_type type, const cuda_pool *pool, const void *x, const void *y,
                        const void *dy, bool adds, void *dx, cudaStream_t stream);

/* ---- Ranks (parallel.cu) ---- */

void cuda_to_pieces(cuda_type type, const stage_pieces *p, const void *whole, void *pieces,
                    cudaStream_t stream);
void cuda_from_pieces(cuda_type type, const stage_pieces *p, const void *pieces, void *whole,
                      cudaStream_t stream);
/** y[r][first + c] += bias[c], c < count, of rows of `columns`. */
void cuda_add_part_bias(cuda_type type, uint64_t rows, uint64_t columns, uint64_t first,
                        uint64_t count, const float *bias, void *y, cudaStream_t stream);

/* ---- Loss (loss.cu) ---- */

/** Rows of scores. This rank has `own` classes from `first` on; without TP, own = classes. Rows are
 * `stride` elements apart, the rest is padding. */
typedef struct cuda_scores {
    uint64_t rows, classes, stride, first, own;
} cuda_scores;

typedef struct cuda_loss {
    double sum;
    uint64_t correct;
    int64_t bad_row; /* the first row whose label is out of range, or -1 */
} cuda_loss;
/** @param log_sums [rows], kept for backward
 *  @param row_loss, row_best [rows] scratch
 *  @param loss [out] one, in device memory */
void cuda_cross_entropy(cuda_type type, const cuda_scores *s, const void *logits,
                        const int32_t *labels, float *log_sums, float *row_loss, int32_t *row_best,
                        cuda_loss *loss, cudaStream_t stream);
/** dx = scale (softmax - 1 at the label), 0 in the padding. @param scale in device memory */
void cuda_cross_entropy_backward(cuda_type type, const cuda_scores *s, const void *logits,
                                 const int32_t *labels, const float *log_sums, const float *scale,
                                 bool adds, void *dx, cudaStream_t stream);
/* The same on TP ranks, in three steps (Shoeybi et al., "Megatron-LM", 2019, section 3). An
 * all-reduce takes the maximum of the maxima after the first step, and the sums of the other two
 * after the second. */
/** maxima: [rows], of this rank's scores; -infinity if it has none. */
void cuda_tp_maxima(cuda_type type, const cuda_scores *s, const void *logits, float *maxima,
                    cudaStream_t stream);
/** sums: [rows], of exp(score - maximum); of_labels: [rows], the label's score if this rank has it,
 * else 0. */
void cuda_tp_exponentials(cuda_type type, const cuda_scores *s, const void *logits,
                          const int32_t *labels, const float *maxima, float *sums, float *of_labels,
                          cudaStream_t stream);
/** Of equal largest scores, the label's counts, at any index. */
void cuda_tp_cross_entropy(const cuda_scores *s, const int32_t *labels, const float *maxima,
                           const float *sums, const float *of_labels, float *log_sums,
                           float *row_loss, int32_t *row_best, cuda_loss *loss,
                           cudaStream_t stream);

/* ---- Embedding (embedding.cu) ---- */

/** This rank's shard of a table and of positions: the rows of `words` words from `first_word` on,
 * and for all positions `own_features` features from `first_feature` on. Without TP, the entire
 * tensors. */
typedef struct cuda_embedding_part {
    uint64_t count, length, features; /* places in total and per sequence; features per row */
    token_runs runs;                  /* places of this rank in the sequence */
    uint64_t first_word, words, first_feature, own_features;
} cuda_embedding_part;
/** y[i] = table[tokens[i]] + positions[that of i], with 0 for rows of other ranks. positions may be
 * NULL.
 */
void cuda_embedding(cuda_type type, const cuda_embedding_part *part, const int32_t *tokens,
                    const void *table, const void *positions, void *y, cudaStream_t stream);
/**
 * Places of each token in a batch, so that one block sums each row of the table in the order of the
 * places. order: [count] places, grouped by token, ascending; starts: [groups + 1]; group_tokens:
 * [groups].
 */
typedef struct cuda_token_groups {
    const int32_t *order, *starts, *group_tokens;
    const int32_t *group_count; /* in device memory */
} cuda_token_groups;
/** Adds to dtable and dpositions (which may be NULL). @param most_groups bound on group_count */
void cuda_embedding_backward(cuda_type type, const cuda_embedding_part *part,
                             const cuda_token_groups *groups, uint64_t most_groups, const void *dy,
                             float *dtable, float *dpositions, cudaStream_t stream);

/* ---- Long short-term memory (lstm.cu) ---- */

/** One step of all samples. */
typedef struct cuda_cell {
    uint64_t batch, length, hidden, step;
    bool is_reversed;
} cuda_cell;
/** gates: [batch][length][4 hidden] floats; for this step the sums of both products, overwritten by
 * the activated gates; cells: [batch][length][hidden] floats. Biases: [4 hidden], or both NULL. */
void cuda_cell_forward(cuda_type type, const cuda_cell *c, const float *input_bias,
                       const float *state_bias, float *gates, float *cells, void *y,
                       cudaStream_t stream);
/** @param dstate, dcell [batch][hidden] gradients from the next step, unread at the last one; dcell
 *                becomes the gradient for the previous step. dgates is overwritten at this step. */
void cuda_cell_backward(cuda_type type, const cuda_cell *c, const float *gates, const float *cells,
                        const void *dy, const float *dstate, float *dcell, void *dgates,
                        cudaStream_t stream);

/* ---- Attention (attention.cu) ---- */

/** Query heads are at row + h * head_size, keys and values at key_at and value_at; strides in
 * elements. The queries may be those of a part of the sequence's `keys` tokens. */
typedef struct cuda_attention {
    uint64_t batch, length, keys, heads, kv_heads, head_size; /* length: queries of a sample */
    token_runs runs;           /* places of the queries in the sequence */
    uint64_t stride;           /* of a row of queries, */
    uint64_t key_stride;       /* of keys and values, */
    uint64_t key_at, value_at; /* which begin there, */
    uint64_t context_stride;   /* and of the context: heads * head_size */
    float scale;
    bool is_causal;
    bool is_ordered; /* sums gradients in a fixed order, as attention.cu always does */
    /* Added to the scores by the distance from query to key, or NULL: [buckets][heads]; and the
     * bucket of distance i = keys - 1 + key - query, [2 keys - 1]. */
    const float *biases;
    const int32_t *bucket_of;
    uint64_t buckets;
    uint32_t tile_queries, tile_keys; /* multiples of 16; see cuda_attention_tiles */
} cuda_attention;
/** Chooses the largest tiles that fit `shared_bytes` of shared memory, or the smallest that cover
 * all queries and all keys; false if none fits. */
bool cuda_attention_tiles(cuda_type type, uint64_t shared_bytes, cuda_attention *attention);
/** Allows the kernels `shared_bytes` of shared memory; once per device. */
cudaError_t cuda_attention_prepare(uint64_t shared_bytes);
/** Dao et al., "FlashAttention", NeurIPS 2022. @param log_sums [batch][heads][length] */
void cuda_attention_forward(cuda_type type, const cuda_attention *attention, const void *queries,
                            const void *keys, void *context, float *log_sums, cudaStream_t stream);
/** @param delta [batch][heads][length] scratch
 *  @param dqueries, dkeys [out] in the layout of queries and keys; keys that no query sees get 0
 *  @param distances [out] cuda_attention_distances floats, for cuda_attention_biases; NULL without
 *         biases */
void cuda_attention_backward(cuda_type type, const cuda_attention *attention, const void *queries,
                             const void *keys, const void *context, const float *log_sums,
                             const void *dcontext, float *delta, void *dqueries, void *dkeys,
                             float *distances, cudaStream_t stream);
/** Number of floats for the gradients by distance of every tile of queries, and for their sums. The
 * queries are those of entire sequences. */
uint64_t cuda_attention_distances(const cuda_attention *attention);
/** Gradients of the biases, from the distances of a backward pass. @param distances also scratch */
void cuda_attention_biases(const cuda_attention *attention, float *distances, bool adds,
                           float *dbiases, cudaStream_t stream);

/* ---- Rotary positions (rotary.cu) ---- */

/** Rows [batch][length] that begin with the heads' elements; stride in elements. */
typedef struct cuda_rotary {
    uint64_t batch, length, heads, head_size, stride;
    token_runs runs; /* positions of the rows */
    double log2_base;
    bool is_back; /* inverse rotation, for gradients */
} cuda_rotary;
void cuda_rotate(cuda_type type, const cuda_rotary *rotary, void *rows, cudaStream_t stream);

/* ---- Mixtures of experts (moe.cu) ---- */

/** Tokens, each copied to its chosen experts: copy c is of token c / chosen.
 */
typedef struct cuda_mixture {
    uint64_t rows, experts, chosen, features;
} cuda_mixture;
/** @param scores [rows][experts]; choice, weight: [out] [rows][chosen], best first */
void cuda_route(const cuda_mixture *mixture, const float *scores, int32_t *choice, float *weight,
                cudaStream_t stream);
/** Reads or writes rows of a message in another order: row r is the index[r]-th of the message.
 * Below 0, take writes zeros and put skips the row. */
void cuda_rows_take(cuda_type type, uint64_t rows, uint64_t columns, const int32_t *index,
                    const void *message, void *to, cudaStream_t stream);
void cuda_rows_put(cuda_type type, uint64_t rows, uint64_t columns, const int32_t *index,
                   const void *from, void *message, cudaStream_t stream);
/** Rows of one expert's copies: their number, rounded up so that few shapes of products suffice.
 * ty_expert_rows is the most that all experts take. */
uint32_t cuda_expert_padded(uint32_t copies);
/**
 * Sorts copies by expert, then by token.
 * @param starts [out] [experts + 1]: first row of each expert
 * @param place [out] [copies]: the row of each copy; copy_of: [out] [rows]: the copy of each row,
 *              or -1
 */
void cuda_experts_place(const cuda_mixture *mixture, const int32_t *choice, int32_t *starts,
                        int32_t *place, int32_t *copy_of, cudaStream_t stream);
/** Copies the token of every row, times the copy's weight unless `weight` is NULL; zeros in the
 * padding.
 *  @param padded rows, with padding; from: [rows][features], to: [padded][features] */
void cuda_copies_take(cuda_type type, const cuda_mixture *mixture, uint64_t padded,
                      const int32_t *copy_of, const float *weight, const void *from, void *to,
                      cudaStream_t stream);
/** Sums the expert outputs of every token's copies, times their weights unless `weight` is NULL. */
void cuda_copies_sum(cuda_type type, const cuda_mixture *mixture, const int32_t *place,
                     const float *weight, const void *of_copies, bool adds, void *to,
                     cudaStream_t stream);
/** Gradient of the loss with respect to each copy's weight.
 *  @param of_copies expert outputs; dy: [rows][features]; gain: [out] [copies] */
void cuda_copy_gains(cuda_type type, const cuda_mixture *mixture, const int32_t *place,
                     const void *of_copies, const void *dy, float *gain, cudaStream_t stream);
/** @param dscores [out] [rows][stride], 0 for experts not chosen */
void cuda_scores_gradient(cuda_type type, const cuda_mixture *mixture, const int32_t *choice,
                          const float *weight, const float *gain, uint64_t stride, void *dscores,
                          cudaStream_t stream);
/** Columns [first, first + count) of [rows][columns] as a compact matrix, and back, with zeros
 * elsewhere. */
void cuda_columns_take(cuda_type type, uint64_t rows, uint64_t columns, uint64_t first,
                       uint64_t count, const void *from, void *to, cudaStream_t stream);
void cuda_columns_put(cuda_type type, uint64_t rows, uint64_t columns, uint64_t first,
                      uint64_t count, const void *from, void *to, cudaStream_t stream);

/* ---- Additive attention (additive.cu) ---- */

/** Samples, query and memory rows per sample, columns of the memory, and columns under the tanh. */
typedef struct cuda_additive {
    uint64_t batch, length, keys, features, hidden;
} cuda_additive;
/** u = g v / |v|; all [hidden], gain: one number. */
void cuda_additive_vector(uint64_t hidden, const float *v, const float *gain, float *u,
                          cudaStream_t stream);
void cuda_additive_vector_gradients(uint64_t hidden, const float *v, const float *gain,
                                    const float *du, bool adds, float *dv, float *dgain,
                                    cudaStream_t stream);
/** @param u [hidden]; q: [batch][length][hidden]; k: [batch][keys][hidden]
 *  @param memory [batch][keys][features]; p: [out] [batch][length][keys]
 *  @param y [out] [batch][length][features] */
void cuda_additive_forward(cuda_type type, const cuda_additive *additive, const float *u,
                           const void *q, const void *k, const void *memory, float *p, void *y,
                           cudaStream_t stream);
/** @param dscores scratch, as p; du_of_row: [out] [batch][length][hidden]; the sum of its rows is
 *                the gradient of u */
void cuda_additive_backward(cuda_type type, const cuda_additive *additive, const float *u,
                            const void *q, const void *k, const void *memory, const float *p,
                            const void *dy, float *dscores, void *dq, void *dk, float *du_of_row,
                            cudaStream_t stream);
/** Gradient of the memory as values. */
void cuda_additive_memory(cuda_type type, const cuda_additive *additive, const float *p,
                          const void *dy, bool adds, void *dmemory, cudaStream_t stream);

/* ---- Optimizer (update.cu) ---- */

typedef struct cuda_update {
    bool is_adamw;
    float rate, momentum, decay;                   /* sgd */
    float beta1, beta2, root_scale, epsilon, keep; /* adamw; see optimizer.c */
} cuda_update;
/** The weights in the type of the passes. In this set, unlike in the floats, tensors begin at
 * multiples of CUDA_COPY_ALIGNMENT elements. */
enum { CUDA_COPY_ALIGNMENT = 64 };
typedef struct cuda_copy {
    void *weights;
    uint32_t part_count;
    const uint64_t *starts; /* [part_count], ascending, device memory: first floats of tensors */
    const uint64_t *places; /* their starts in `weights` */
    const uint64_t *floats; /* starts in the set of sharded tensors that passes read as floats;
                               CUDA_NO_FLOATS: not read as floats */
} cuda_copy;
#define CUDA_NO_FLOATS UINT64_MAX
/** Makes the copies of `count` floats of a set, from its `first` on. */
void cuda_copy_make(cuda_type type, const cuda_copy *copy, uint64_t first, uint64_t count,
                    const float *from, cudaStream_t stream);
/** From `count` elements of a sharded set, from its `first` on, in the type of the copies: writes
 * the copies, and floats of `set` if passes read those. */
void cuda_copy_spread(cuda_type type, const cuda_copy *copy, uint64_t first, uint64_t count,
                      const void *from, float *set, cudaStream_t stream);
/** Optimizer step of the parameters from the set's `first` on. @param copy of the same set, or
 * NULL. State as in ty_optimizer_step; NULL if there is none. */
void cuda_update_step(cuda_type type, const cuda_update *update, uint64_t first, uint64_t count,
                      float *parameters, const float *gradients, float *state,
                      const cuda_copy *copy, cudaStream_t stream);
enum { CUDA_SQUARE_PARTS = 256 };
/** Sum of squares, in doubles. @param parts [CUDA_SQUARE_PARTS] scratch; the first is the result */
void cuda_squares(uint64_t count, const float *x, double *parts, cudaStream_t stream);
/** x /= divisor. */
void cuda_divide(uint64_t count, float divisor, float *x, cudaStream_t stream);
/** gradients *= factor; *is_bad becomes 1 if one is not finite, else it is unchanged. */
void cuda_unscale(uint64_t count, float factor, float *gradients, int32_t *is_bad,
                  cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
