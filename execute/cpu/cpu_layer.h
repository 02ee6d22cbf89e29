/**
 * @file cpu_layer.h
 * Internals of the CPU backend: the kinds of layers, each in a file of its own, on the values and
 * nodes of stage.h. All numbers are floats.
 */
#ifndef TY_EXECUTE_CPU_LAYER_H
#define TY_EXECUTE_CPU_LAYER_H

#include "dnnl_wrap.h"
#include "init.h"
#include "stage.h"

/* Results of the loss layer for a slot. */
typedef struct cpu_loss {
    double sum;
    uint64_t correct;
} cpu_loss;

struct stage_own {
    cpu_loss *losses; /* [slots] */
};

/* ---- Memory (cpu_memory.c) ---- */

enum { CPU_ALIGNMENT = 64 }; /* bytes: a cache line, and the widest vector */
/** Zeroed, aligned memory that lives as long as the stage; NULL when there is none. */
void *cpu_buffer(ty_stage_device *stage, uint64_t bytes);

/* ---- Kinds ---- */

/** The kinds of layers that this backend trains, and their functions. */
#define CPU_KINDS(X)                                                                               \
    X(LINEAR, cpu_linear)                                                                          \
    X(CONV2D, cpu_conv2d)                                                                          \
    X(POOL, cpu_pool)                                                                              \
    X(BATCH_NORM, cpu_batch_norm)                                                                  \
    X(LSTM, cpu_lstm)                                                                              \
    X(LAYER_NORM, cpu_layer_norm)                                                                  \
    X(RMS_NORM, cpu_rms_norm)                                                                      \
    X(EMBEDDING, cpu_embedding)                                                                    \
    X(EMBEDDING_BAG, cpu_embedding_bag)                                                            \
    X(DOT_INTERACTION, cpu_dot_interaction)                                                        \
    X(ATTENTION, cpu_attention)                                                                    \
    X(ADDITIVE_ATTENTION, cpu_additive_attention)                                                  \
    X(MLP, cpu_mlp)                                                                                \
    X(MOE, cpu_moe)                                                                                \
    X(ADD, cpu_add)                                                                                \
    X(CONCAT, cpu_concat)                                                                          \
    X(SLICE, cpu_slice_layer)                                                                      \
    X(RELU, cpu_relu)                                                                              \
    X(GELU, cpu_gelu)                                                                              \
    X(SILU, cpu_silu)                                                                              \
    X(TANH, cpu_tanh_layer)                                                                        \
    X(FLATTEN, stage_reorder)                                                                      \
    X(SOFTMAX_CROSS_ENTROPY, cpu_loss_layer)
#define CPU_KIND(kind, name) extern const stage_kind name;
CPU_KINDS(CPU_KIND)
#undef CPU_KIND

/** Initializes the running statistics of a batch norm: mean 0, variance 1. */
void cpu_batch_norm_start(const ty_stage_device *stage, const stage_node *node);

/* ---- For the layers: where a node's operands are ---- */

static inline const float *cpu_in(const ty_stage_device *stage, const stage_node *node, uint32_t i,
                                  uint32_t slot)
{
    return stage->values[node->inputs[i]].data[slot];
}

static inline float *cpu_out(const ty_stage_device *stage, const stage_node *node, uint32_t slot)
{
    return stage->values[node->output].data[slot];
}

/** Where the gradient of the i-th input goes; NULL if it is not needed, or not in this part. */
static inline float *cpu_in_gradient(const ty_stage_device *stage, const stage_node *node,
                                     uint32_t i, uint32_t slot)
{
    const stage_value *value = &stage->values[node->inputs[i]];
    return value->needs_gradient && stage->part != STAGE_WEIGHTS ? value->gradient[slot] : NULL;
}

static inline float *cpu_out_gradient(const ty_stage_device *stage, const stage_node *node,
                                      uint32_t slot)
{
    return stage->values[node->output].gradient[slot];
}

static inline const float *cpu_parameters(const ty_stage_device *stage, const stage_node *node,
                                          uint32_t tensor)
{
    return stage->parameters + node->offsets[tensor];
}

/** Where the gradient of a parameter tensor goes; NULL if it is frozen, or not in this part. */
static inline float *cpu_parameter_gradient(const ty_stage_device *stage, const stage_node *node,
                                            uint32_t tensor)
{
    return stage_is_frozen(stage, node, tensor) ? NULL : stage->gradients + node->offsets[tensor];
}

/* ---- Sharded layers (cpu_parallel.c) ---- */

/** Like stage_whole_input and stage_whole_gradient. */
static inline ty_status cpu_whole_input(ty_stage_device *stage, const stage_node *node,
                                        uint32_t input, uint32_t slot, float *room,
                                        const float **out, ty_error *error)
{
    const void *found = NULL;
    const ty_status status = stage_whole_input(stage, node, input, slot, room, &found, error);

    *out = found;
    return status;
}

static inline ty_status cpu_whole_gradient(ty_stage_device *stage, const stage_node *node,
                                           uint32_t slot, float *room, const float **out,
                                           ty_error *error)
{
    const void *found = NULL;
    const ty_status status = stage_whole_gradient(stage, node, slot, room, &found, error);

    *out = found;
    return status;
}

/** A product of one of a layer's unsharded inputs with a matrix, [out][in], or rows of one. */
typedef struct cpu_input_product {
    uint64_t rows, in, out;
    uint32_t weight, bias; /* parameter tensors */
    bool has_bias;
    uint32_t input;
    uint64_t first_row; /* of the matrix, and of the bias */
    float *x; /* [rows][in]: if backward has two parts and the input is gathered, stores it from the
                 first part to the second; else NULL */
} cpu_input_product;
ty_status cpu_input_product_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    const cpu_input_product *product, float *y,
                                    ty_error *error) TY_MUST_CHECK;
/**
 * Gradients of its weights and of the layer's input from that of its output. The input's is summed
 * over the ranks of a sharded layer. An input that forward gathered is gathered again.
 */
ty_status cpu_input_product_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     const cpu_input_product *product, const float *dy,
                                     bool is_first, ty_error *error) TY_MUST_CHECK;

/** A layer's last product, of an inner tensor with a matrix, [out][in]. Each rank of a sharded
 * layer computes a summand of the unsharded output. */
typedef struct cpu_output_product {
    uint64_t rows, in, out;
    uint32_t weight, bias; /* parameter tensors */
    bool has_bias;
    const float *x; /* [rows][in] */
    float *dy;      /* [rows][out]: if backward has two parts and the output's gradient is
                       gathered, stores it from the first part to the second; else NULL */
} cpu_output_product;
ty_status cpu_output_product_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     const cpu_output_product *product,
                                     ty_error *error) TY_MUST_CHECK;
/** Gradients of its weights and, unless this part computes only those, of x into `dx`. */
ty_status cpu_output_product_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                      const cpu_output_product *product, bool is_first, float *dx,
                                      ty_error *error) TY_MUST_CHECK;

/** y[r, c] += bias[c], with this rank's shard of [columns]; and the sums of the bias's gradient. */
void cpu_add_tp_bias(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                     const float *bias, float *y);
void cpu_tp_bias_gradient(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                          const float *dy, bool adds, float *sums);

/** As in stage_backend. */
void cpu_activate(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                  const void *x, void *y);
void cpu_activate_backward(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                           const void *of, const void *dy, bool adds, void *dx);
void cpu_transpose(const ty_stage_device *stage, uint64_t rows, uint64_t columns, const void *from,
                   bool adds, void *to);
void cpu_to_pieces(const ty_stage_device *stage, const stage_pieces *pieces, const void *whole,
                   void *message);
void cpu_from_pieces(const ty_stage_device *stage, const stage_pieces *pieces, const void *message,
                     void *whole);

/* ---- Expert parallelism (cpu_experts.c) ---- */

/** The copies of tokens that a MoE layer's experts process, rows of `features`. Copies of a rank's
 * own tokens are ordered by expert, over all ranks. Copies for its own experts are ordered by
 * expert, then by the rank that they come from. */
typedef struct cpu_expert_copies {
    uint64_t experts, features; /* experts: of this rank */
    const uint32_t *start; /* [ranks * experts + 1]: of the own tokens' copies for each expert */
    uint32_t *arrived;     /* [ranks][experts]: copies of each rank's tokens */
    uint32_t *first;       /* [experts + 1]: where those of each begin */
} cpu_expert_copies;
/** Ranks send each other their counts, once `start` is known: fills `arrived` and `first`. */
ty_status cpu_experts_meet(ty_stage_device *stage, const cpu_expert_copies *copies,
                           ty_error *error) TY_MUST_CHECK;
/** Sends this rank's copies to the ranks of their experts. @param by_rank as large as `by_expert`
 */
ty_status cpu_experts_send(ty_stage_device *stage, const cpu_expert_copies *copies, float *own,
                           float *by_rank, float *by_expert, ty_error *error) TY_MUST_CHECK;
/** The reverse: returns experts' outputs to the ranks of the tokens. */
ty_status cpu_experts_return(ty_stage_device *stage, const cpu_expert_copies *copies,
                             float *by_expert, float *by_rank, float *own,
                             ty_error *error) TY_MUST_CHECK;

/* ---- Softmax over keys (cpu_attention.c) ---- */

/** Softmax of `rows` rows of scores. Under a causal mask row r sees keys [0, visible + r). The rest
 * of the row, up to `keys`, becomes 0. */
void cpu_softmax_rows(uint64_t rows, uint64_t keys, uint64_t stride, bool is_causal,
                      uint64_t visible, float *scores);
/** dp becomes p (dp - sum(p dp)): the gradient of the softmax's input. */
void cpu_softmax_gradient(uint64_t rows, uint64_t keys, uint64_t stride, const float *p, float *dp);

/* ---- Rotary position embeddings (cpu_rotary.c) ---- */

/** Rows [batch][length] that begin with the heads' numbers, and their rotation. */
typedef struct cpu_rotary {
    uint64_t batch, length, heads, head_size, stride; /* stride: from row to row */
    uint64_t base;
    const token_runs *runs; /* positions of the rows in the sequence */
    bool is_back;           /* rotates back: for gradients */
} cpu_rotary;
/** @param turns room for head_size numbers */
void cpu_rotate(const cpu_rotary *rotary, float *rows, float *turns);

/* ---- Biases of scores by distance (cpu_relative.c) ---- */

/** by_distance[keys - 1 + key - query] = biases[bucket][head]. @param by_distance [2 keys - 1] */
void cpu_relative_spread(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *biases, float *by_distance);
/** Adds the gradients by distance to those of the biases. */
void cpu_relative_gather(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *by_distance, float *biases);

/* ---- Norms of rows (cpu_norm.c) ---- */

/** @param statistics [out] [rows] 1 / root mean square */
void cpu_rms_norm_rows(uint64_t rows, uint64_t n, const float *x, const float *gain, float *y,
                       float *statistics);
/** Adds to dgain unless it is NULL. @param dx may be NULL, or dy */
void cpu_rms_norm_gradient(uint64_t rows, uint64_t n, const float *x, const float *gain,
                           const float *statistics, const float *dy, float *dgain, bool adds,
                           float *dx);

/* ---- Between the products of an mlp (cpu_mlp.c) ---- */

/** Adds the bias, if there is one, to h in place: [rows][hidden], or, gated, [rows][2 hidden]. Then
 * computes the activation a: [rows][hidden]. */
void cpu_mlp_activate(bool is_gated, uint64_t rows, uint64_t hidden, const float *bias, float *h,
                      float *a);
void cpu_mlp_activate_backward(bool is_gated, uint64_t rows, uint64_t hidden, const float *h,
                               const float *da, float *dh);

/* ---- Arithmetic shared by layers (cpu_math.c) ---- */

/** y[r,c] += bias[c]. */
void cpu_add_bias(uint64_t rows, uint64_t columns, const float *bias, float *y);
/** y[r,c] = max(0, y[r,c] + bias[c]). */
void cpu_add_bias_relu(uint64_t rows, uint64_t columns, const float *bias, float *y);
/** sums[c] (+)= sum over r of dy[r,c]. */
void cpu_column_sums(uint64_t rows, uint64_t columns, const float *dy, bool adds, float *sums);
/** dy = 0 where y <= 0. */
void cpu_relu_mask(uint64_t count, const float *y, float *dy);
/** y = max(0, x), in place if they are the same. */
void cpu_relu_forward(uint64_t count, const float *x, float *y);
void cpu_gelu_forward(uint64_t count, const float *x, float *y);
void cpu_gelu_backward(uint64_t count, const float *x, const float *dy, float *dx);
void cpu_silu_forward(uint64_t count, const float *x, float *y);
void cpu_silu_backward(uint64_t count, const float *x, const float *dy, float *dx);
/** y = a + b. */
void cpu_sum(uint64_t count, const float *a, const float *b, float *y);
/** Sums a few squares at a time in floats, then in doubles. */
double cpu_sum_of_squares(uint64_t count, const float *x);
/** to (+)= from. */
void cpu_accumulate(uint64_t count, const float *from, bool adds, float *to);
/** to += share * row. */
void cpu_add_row(uint64_t count, float share, const float *row, float *to);

/** Linear map over rows: y = x W^T + b; bias may be NULL. */
void cpu_affine(uint64_t rows, uint64_t in, uint64_t out, const float *x, const float *weight,
                const float *bias, float *y);
/** Its gradients; any of dw, db, dx may be NULL. */
typedef struct cpu_affine_gradient {
    float *weight, *bias, *x;
    bool adds_weight, adds_bias, adds_x;
} cpu_affine_gradient;
void cpu_affine_backward(uint64_t rows, uint64_t in, uint64_t out, const float *x,
                         const float *weight, const float *dy, const cpu_affine_gradient *to);

#endif
