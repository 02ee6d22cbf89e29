/**
 * @file cpu_layer.h
 * Inside the CPU backend: how a stage's layers become nodes that read and write values.
 *
 * A *value* is a tensor of one micro-batch: an input of the stage, or what a layer makes of it. A
 * *node* computes one value from others. Most layers are one node; a change of memory layout in
 * front of a layer is a node of its own, flatten is none at all, a relu behind a linear layer is a
 * flag on the linear's node, and so is what pools a convolution's images. cpu_build.c does the
 * lowering, the cpu_*.c files hold one family of layers each.
 *
 * Every value has data for each slot. Where the stage is recomputed, those that no other segment
 * reads lie in the working set, and so do the stashes and gradients of their segment: one memory
 * for all segments and slots, since only one of them is in hand. Gradients of values inside the
 * stage are one set for all slots, because the backward passes of two micro-batches are never
 * interleaved; those of what crosses the stage's cuts are per slot, because they wait for their
 * neighbours. Where backward comes in two parts all are per slot, and none is overwritten by
 * another: the second part of a layer reads its output's gradient as the first part did. The
 * functions of a layer are the same for both: what a part does not ask for has nowhere to go
 * (cpu_in_gradient, cpu_parameter_gradient).
 *
 * With tensor lanes (cpu_lanes.c) tensors of parameters and values are what this lane
 * has. A divided layer reads all of its input and makes a summand of all of its output, which the
 * lanes sum; where they divide the sequence, reading gathers and summing scatters. With context
 * lanes (cpu_context.c) everything is of this lane's tokens, and only attention asks the others;
 * with expert lanes (cpu_experts.c) of its samples, and experts see those of all lanes.
 */
#ifndef TY_EXECUTE_CPU_LAYER_H
#define TY_EXECUTE_CPU_LAYER_H

#include "device.h"
#include "dnnl_wrap.h"
#include "init.h"
#include "stage_layers.h"
#include "stage_parameters.h"

#define CPU_NONE UINT32_MAX

typedef enum cpu_layout {
    CPU_PLAIN,         /* [B,C,H,W], as in the workload */
    CPU_CHANNELS_LAST, /* [B,H,W,C]: what convolution and pooling compute in */
    CPU_ANY_LAYOUT     /* of a kind: that of its first input */
} cpu_layout;

typedef struct cpu_value {
    ty_shape shape; /* per sample, as in the workload whatever the layout */
    cpu_layout layout;
    uint64_t count;       /* floats of a micro-batch */
    uint32_t data_of;     /* the value whose memory it uses; itself if its own */
    uint32_t gradient_of; /* likewise for gradients */
    bool needs_gradient;
    bool is_kept;          /* input or output of the stage, or of a segment: per slot even where
                              the stage is recomputed */
    bool is_gradient_kept; /* its gradient waits for a neighbour: per slot */
    bool gets_gradient;    /* by its root: backward begins with what a neighbour has found of it */
    bool is_private;       /* one reader, so that it may be overwritten */
    uint32_t segment, gradient_segment; /* of its data and of its gradient, of roots: the one that
                                           has to do with it, or STAGE_NO_SEGMENT */
    bool is_inside;   /* of a node, which makes and uses it piece by piece: has no memory */
    float **data;     /* [slots] */
    float **gradient; /* [slots] */
} cpu_value;

/* A tensor that crosses a cut of the stage, and its part of the message. */
typedef struct cpu_crossing {
    uint32_t value;
    uint64_t offset, gradient_offset; /* floats */
    bool has_gradient_part;
    /* What lies elsewhere because another message has it, too: a relayed tensor, or one memory for
     * two of them. */
    bool is_copied, is_gradient_copied;
    bool adds; /* its gradient is added to what is there */
} cpu_crossing;

/* What crosses one of the stage's cuts, as one message: tensor behind tensor. */
typedef struct cpu_cut {
    uint32_t count;
    cpu_crossing *tensors; /* [count], by the layers that make them */
    float **data;          /* [slots] or NULL */
    float **gradient;      /* [slots]; NULL where backward does not come to it */
} cpu_cut;

typedef struct cpu_kind cpu_kind;

typedef struct cpu_node {
    const cpu_kind *kind;
    const ty_layer *layer;
    uint32_t layer_index; /* in the workload */
    uint32_t input_count;
    uint32_t *inputs; /* values */
    bool *adds;       /* [input_count] add to the input's gradient: a later node has written it */
    uint32_t output;  /* value */
    /* Per sample, of the layer's first input and its output: all of this context lane's tokens,
     * whatever tensor lanes divide. */
    ty_shape whole_input, whole_output;
    bool has_relu;                       /* what it computes goes through a relu in place */
    const ty_layer *pool;                /* conv2d: what is then pooled into the output; or NULL */
    uint32_t tensor_count;               /* parameter tensors */
    uint64_t offsets[LAYER_MAX_TENSORS]; /* of them */
    bool is_divided;                     /* among lanes, of which there are several */
    bool is_matrix_frozen;               /* tied to a frozen layer's */
    bool adds_matrix;     /* a later node with the same (tied) matrix has written its gradient */
    uint64_t stash_bytes; /* kept from forward to backward, per slot */
    uint64_t scratch_bytes;
    uint64_t lane_floats;      /* the largest tensor it gathers or sums among lanes */
    void **stash;              /* [slots] */
    uint64_t kept_bytes;       /* what recomputing finds of it, per slot: `again` makes the rest */
    void **kept;               /* [slots] */
    bool is_kept;              /* recomputing makes nothing of it: its stash is per slot */
    uint64_t statistic_offset; /* of its part of the stage's statistics */
    void *state;               /* the kind's own */
} cpu_node;

/* A kind of layer. One constant per kind; cpu_build.c has the table. */
struct cpu_kind {
    /** NULL: always. */
    ty_status (*supports)(const ty_workload *workload, uint32_t layer, ty_error *error);
    cpu_layout layout; /* of inputs and output */
    bool fuses_relu;   /* heeds has_relu */
    bool fuses_pool;   /* and pool */
    bool reads_output; /* backward reads the output, so that nobody may overwrite it */
    /** Once inputs and output are known: stash, scratch, state. NULL: nothing to do. */
    ty_status (*build)(ty_stage_device *stage, cpu_node *node, ty_error *error);
    ty_status (*forward)(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                         ty_error *error);
    /** Forward from `kept` on; only where build has set kept_bytes. */
    ty_status (*again)(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                       ty_error *error);
    ty_status (*backward)(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                          bool is_first, ty_error *error);
    void (*release)(cpu_node *node); /* frees state; NULL: it lies in a cpu_buffer */
};

/* What backward is asked for. */
typedef enum cpu_part { CPU_BOTH, CPU_INPUTS, CPU_WEIGHTS } cpu_part;

/* What the loss layer leaves of a slot. */
typedef struct cpu_loss {
    double sum;
    uint64_t correct;
} cpu_loss;

struct ty_stage_device {
    ty_stage_options options;
    stage_segments segments;
    /* Where the stage is recomputed: memory of what lies inside a segment, from its start for each
     * of them; how much of it each has taken so far, while it is given out. */
    stage_working_set working_set;
    cpu_part part; /* of the backward under way */
    uint32_t value_count, node_count;
    cpu_value *values; /* [0] is the batch, or what crosses the cut before the stage comes first */
    cpu_node *nodes;   /* in the order of forward */
    cpu_cut input, output; /* before a first stage, and behind a loss, nothing crosses */
    int32_t **tokens;      /* [slots] or NULL */
    int32_t **labels;      /* [slots] or NULL */
    uint64_t labels_per_sample;
    cpu_loss *losses; /* [slots] */
    stage_parameters placed;
    float **versions;              /* sets of weights; `parameters` is the one in use */
    float *parameters, *gradients; /* the set of gradients that passes make */
    float *gradient_sets;          /* all of them */
    uint64_t statistic_count;
    float *statistics;  /* what layers keep from step to step that is no parameter */
    bool is_evaluating; /* forward is of a test set */
    void *scratch;      /* the largest of any node; contents do not outlive a call */
    float *lane_whole;  /* with lanes: room for the largest tensor that is gathered or summed */
    float *lane_pieces; /* the same in the order of lanes */
    void **blocks;      /* every buffer above, for closing */
    uint32_t block_count, block_room;
    uint64_t memory_bytes;
};

/* ---- Building (cpu_build.c) ---- */

extern const cpu_kind cpu_linear, cpu_conv2d, cpu_pool, cpu_relu, cpu_gelu, cpu_silu,
    cpu_tanh_layer, cpu_layer_norm, cpu_rms_norm, cpu_embedding, cpu_attention,
    cpu_additive_attention, cpu_mlp, cpu_add, cpu_concat, cpu_slice_layer, cpu_loss_layer,
    cpu_batch_norm, cpu_lstm, cpu_moe, cpu_embedding_bag, cpu_dot_interaction;
/** Changes of layout, inserted where producer and consumer differ. */
extern const cpu_kind cpu_to_plain, cpu_to_channels_last;

/** The kind's functions, or NULL where this backend cannot train the kind. */
const cpu_kind *cpu_kind_of(ty_layer_kind kind);
/** Lowers the stage's layers into values and nodes and allocates everything. */
ty_status cpu_build(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Notes a tensor that crosses the cut before, or behind, the stage (cpu_cut.c); in order. */
ty_status cpu_cut_add(ty_stage_device *stage, cpu_cut *cut, uint32_t producer, uint32_t value,
                      ty_error *error) TY_MUST_CHECK;
/** Memory of both cuts, and of the values that lie in it. False when there is none. */
bool cpu_cuts_allocate(ty_stage_device *stage);
/** Behind the last forward, and before the first backward: what the messages have elsewhere. */
void cpu_output_gather(ty_stage_device *stage, uint32_t slot);
void cpu_gradient_scatter(ty_stage_device *stage, uint32_t slot);
/** Decides which values share a gradient, and which node is the first to write each
 * (cpu_gradients.c). */
ty_status cpu_gradients_place(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Running statistics of a batch norm: mean 0, variance 1. */
void cpu_batch_norm_start(const ty_stage_device *stage, const cpu_node *node);

/* ---- Memory (cpu_memory.c) ---- */

/** Zeroed, 64-byte aligned memory that lives as long as the stage; NULL when there is none. */
void *cpu_buffer(ty_stage_device *stage, uint64_t count, uint64_t size);
/** Memory of everything that lowering has found. False when there is none. */
bool cpu_memory_allocate(ty_stage_device *stage);
/** All sets of weights as the first. */
void cpu_versions_fill(ty_stage_device *stage);

/* ---- For the layers: where a node's operands are ---- */

static inline uint64_t cpu_batch(const ty_stage_device *stage)
{
    return stage->options.micro_batch_size;
}

static inline const float *cpu_in(const ty_stage_device *stage, const cpu_node *node, uint32_t i,
                                  uint32_t slot)
{
    return stage->values[node->inputs[i]].data[slot];
}

static inline float *cpu_out(const ty_stage_device *stage, const cpu_node *node, uint32_t slot)
{
    return stage->values[node->output].data[slot];
}

/** Where the gradient of the i-th input goes, or NULL if nobody asks for it, now or ever. */
static inline float *cpu_in_gradient(const ty_stage_device *stage, const cpu_node *node, uint32_t i,
                                     uint32_t slot)
{
    const cpu_value *value = &stage->values[node->inputs[i]];
    return value->needs_gradient && stage->part != CPU_WEIGHTS ? value->gradient[slot] : NULL;
}

static inline float *cpu_out_gradient(const ty_stage_device *stage, const cpu_node *node,
                                      uint32_t slot)
{
    return stage->values[node->output].gradient[slot];
}

static inline const float *cpu_parameters(const ty_stage_device *stage, const cpu_node *node,
                                          uint32_t tensor)
{
    return stage->parameters + node->offsets[tensor];
}

/** Where the gradient of a parameter tensor goes, or NULL where it is frozen or not asked for. */
static inline float *cpu_parameter_gradient(const ty_stage_device *stage, const cpu_node *node,
                                            uint32_t tensor)
{
    bool is_frozen = node->layer->is_frozen || (tensor == 0 && node->is_matrix_frozen);
    return is_frozen || stage->part == CPU_INPUTS ? NULL : stage->gradients + node->offsets[tensor];
}

/** Whether the gradient of a tensor is added to what is there rather than written. */
static inline bool cpu_adds(const cpu_node *node, uint32_t tensor, bool is_first)
{
    return !is_first || (tensor == 0 && node->adds_matrix);
}

/** Rows of a value seen as a matrix whose columns are its innermost dimension. */
static inline uint64_t cpu_rows(const cpu_value *value)
{
    return value->count / value->shape.dimensions[value->shape.dimension_count - 1];
}

/* ---- Lanes (cpu_lanes.c) ---- */

/** Sum, or the largest, over the lanes, in place. */
ty_status cpu_lanes_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count, float *data,
                               ty_error *error) TY_MUST_CHECK;
/** The sum over lanes of a tensor of that shape a sample, of which `to` gets what this lane has of
 * it. The summand is where cpu_summand says. Nothing to do without lanes. */
ty_status cpu_lanes_sum(ty_stage_device *stage, const ty_shape *shape, float *summand, bool adds,
                        float *to, ty_error *error) TY_MUST_CHECK;

/** Whether a divided layer has to gather what it reads and is given. */
static inline bool cpu_gathers(const ty_stage_device *stage, const cpu_node *node)
{
    return node->is_divided && stage->options.lanes.divides_sequence;
}

/** All of a layer's input, or of the gradient of its output; gathered, if need be, into `room`. Of
 * two inputs the second has the output's shape. */
ty_status cpu_whole_input(ty_stage_device *stage, const cpu_node *node, uint32_t input,
                          uint32_t slot, float *room, const float **out,
                          ty_error *error) TY_MUST_CHECK;
ty_status cpu_whole_gradient(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                             float *room, const float **out, ty_error *error) TY_MUST_CHECK;

/** A product of all of one of a layer's inputs with a matrix of it, [out][in], or with rows of one.
 */
typedef struct cpu_input_product {
    uint64_t rows, in, out;
    uint32_t weight, bias; /* parameter tensors */
    bool has_bias;
    uint32_t input;
    uint64_t first_row; /* of the matrix, and of the bias */
    float *x; /* [rows][in]: where backward comes in two parts and the input is gathered, room for
                 it from the first part to the second; else NULL */
} cpu_input_product;
ty_status cpu_input_product_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                    const cpu_input_product *product, float *y,
                                    ty_error *error) TY_MUST_CHECK;
/**
 * From the gradient of what it makes those of its weights and of the layer's input, the latter
 * summed over the lanes of a divided layer. What had to be gathered for forward is gathered again.
 */
ty_status cpu_input_product_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                     const cpu_input_product *product, const float *dy,
                                     bool is_first, ty_error *error) TY_MUST_CHECK;

/** A layer's last product, of what lies inside it with a matrix, [out][in]: a divided layer's lanes
 * each make a summand of all of the output. */
typedef struct cpu_output_product {
    uint64_t rows, in, out;
    uint32_t weight, bias; /* parameter tensors */
    bool has_bias;
    const float *x; /* [rows][in] */
    float *dy;      /* [rows][out]: where backward comes in two parts and the output's gradient is
                       gathered, room for it from the first part to the second; else NULL */
} cpu_output_product;
ty_status cpu_output_product_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                     const cpu_output_product *product,
                                     ty_error *error) TY_MUST_CHECK;
/** Gradients of its weights and, unless only those are asked for, of x into `dx`. */
ty_status cpu_output_product_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                                      const cpu_output_product *product, bool is_first, float *dx,
                                      ty_error *error) TY_MUST_CHECK;

/** Where a layer writes what lanes sum into `to`: there, unless it is added to what `to` has or is
 * more than this lane's part. Without lanes the layer adds by itself. NULL stays NULL. */
static inline float *cpu_summand(const ty_stage_device *stage, const cpu_node *node, bool adds,
                                 float *to)
{
    bool is_apart = node->is_divided && (adds || stage->options.lanes.divides_sequence);
    return to != NULL && is_apart ? stage->lane_whole : to;
}

/** y[r, c] += bias, this lane's part of [columns], and the sums of its gradient. */
void cpu_add_lane_bias(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                       const float *bias, float *y);
void cpu_lane_bias_gradient(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                            const float *dy, bool adds, float *sums);

/* ---- Context lanes (cpu_context.c) ---- */

/** Rows of all sequences of a micro-batch, [B][sequence][columns]; a lane's own rows, [B][T /
 * lanes][columns], lie `stride` floats apart. `pieces` has room for the whole, too. */
typedef struct cpu_context_rows {
    uint64_t sequence, columns, stride;
} cpu_context_rows;
/** All rows from those of the lanes. */
ty_status cpu_context_gather(ty_stage_device *stage, const cpu_context_rows *rows, const float *own,
                             float *pieces, float *whole, ty_error *error) TY_MUST_CHECK;
/** This lane's rows of the sum over lanes. */
ty_status cpu_context_scatter(ty_stage_device *stage, const cpu_context_rows *rows, float *whole,
                              float *pieces, float *own, ty_error *error) TY_MUST_CHECK;

/* ---- Expert lanes (cpu_experts.c) ---- */

/** The copies of tokens that a moe layer's experts see, rows of `features`. A lane's own tokens'
 * lie by expert, of all lanes; what its experts see lies by expert, and in each by the lane it is
 * of. */
typedef struct cpu_expert_copies {
    uint64_t experts, features; /* experts: of this lane */
    const uint32_t *start; /* [lanes * experts + 1]: of the own tokens' copies for each expert */
    uint32_t *arrived;     /* [lanes][experts]: copies of each lane's tokens */
    uint32_t *first;       /* [experts + 1]: where those of each begin */
} cpu_expert_copies;
/** Once `start` is known lanes tell each other: fills `arrived` and `first`. */
ty_status cpu_experts_meet(ty_stage_device *stage, const cpu_expert_copies *copies,
                           ty_error *error) TY_MUST_CHECK;
/** From the own copies to what the experts here see. @param by_lane room for as much */
ty_status cpu_experts_send(ty_stage_device *stage, const cpu_expert_copies *copies, float *own,
                           float *by_lane, float *by_expert, ty_error *error) TY_MUST_CHECK;
/** The way back. */
ty_status cpu_experts_return(ty_stage_device *stage, const cpu_expert_copies *copies,
                             float *by_expert, float *by_lane, float *own,
                             ty_error *error) TY_MUST_CHECK;

/* ---- Softmax over keys (cpu_attention.c) ---- */

/** Softmax of `rows` rows of scores, of which row r sees keys [0, visible + r) under a mask. The
 * rest of the row, up to `keys`, becomes 0. */
void cpu_softmax_rows(uint64_t rows, uint64_t keys, uint64_t stride, bool is_causal,
                      uint64_t visible, float *scores);
/** dp becomes p (dp - sum(p dp)): the gradient of what went into the softmax. */
void cpu_softmax_gradient(uint64_t rows, uint64_t keys, uint64_t stride, const float *p, float *dp);

/* ---- Rotary positions (cpu_rotary.c) ---- */

/** Rows [batch][length] that begin with the heads' numbers, and what turns them. */
typedef struct cpu_rotary {
    uint64_t batch, length, heads, head_size, stride; /* stride: from row to row */
    uint64_t base;
    const token_runs *runs; /* which positions the rows have */
    bool is_back;           /* the other way round: of gradients */
} cpu_rotary;
/** @param turns room for head_size numbers */
void cpu_rotate(const cpu_rotary *rotary, float *rows, float *turns);

/* ---- Biases of scores by distance (cpu_relative.c) ---- */

/** by_distance[keys - 1 + key - query] = biases[bucket][head]. @param by_distance [2 keys - 1] */
void cpu_relative_spread(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *biases, float *by_distance);
/** Adds to the gradients of the biases those of the distances. */
void cpu_relative_gather(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *by_distance, float *biases);

/* ---- Norms of rows (cpu_norm.c) ---- */

/** @param statistics [out] [rows] 1 / root mean square */
void cpu_rms_norm_rows(uint64_t rows, uint64_t n, const float *x, const float *gain, float *y,
                       float *statistics);
/** Adds to dgain, unless it is NULL. @param dx may be NULL, or dy */
void cpu_rms_norm_gradient(uint64_t rows, uint64_t n, const float *x, const float *gain,
                           const float *statistics, const float *dy, float *dgain, bool adds,
                           float *dx);

/* ---- What is between the products of an mlp (cpu_mlp.c) ---- */

/** Adds the bias, if there is one, to h: [rows][hidden], or, gated, [rows][2 hidden], keeps that,
 * and makes a: [rows][hidden] of it. */
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
/** Floats are summed a few at a time, then in doubles. */
double cpu_sum_of_squares(uint64_t count, const float *x);
/** to (+)= from. */
void cpu_accumulate(uint64_t count, const float *from, bool adds, float *to);

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
