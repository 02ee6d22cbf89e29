/**
 * @file cuda_stage.h
 * Internals of the CUDA backend: the kinds of layers, on the values and nodes of stage.h. Their
 * numbers have the type of the precision.
 *
 * One message per slot crosses a cut; forward and backward convert from and to it. Parameters and
 * gradients are arrays of floats. With bf16 and fp16, passes read a copy of the weights in that
 * type, which optimizer steps update.
 *
 * A pass is queued on the stage's stream, or replayed there as a graph (cuda_graph.c), and awaited
 * once at its end. So the time of an instruction is that of its kernels. Memory functions have
 * their own stream.
 */
#ifndef TY_EXECUTE_CUDA_STAGE_H
#define TY_EXECUTE_CUDA_STAGE_H

#include "cuda_dnn.h"
#include "cuda_kernels.h"
#include "cuda_libraries.h"
#include "init.h"
#include "launch_order.h"
#include "stage_shapes.h"

#include <assert.h>
#include <pthread.h>

/* Attention kernels: cuDNN's if it has one, or only attention.cu. */
#define CUDA_ATTENTION_SWITCH "TRAINYARD_CUDA_ATTENTION"
typedef enum cuda_attention_choice {
    CUDA_ATTENTION_AUTO,
    CUDA_ATTENTION_OWN
} cuda_attention_choice;

typedef struct cuda_plan_cache cuda_plan_cache; /* of matrix products; cuda_product.c */
typedef struct cuda_graphs cuda_graphs;         /* of passes; cuda_graph.c */
typedef struct cuda_choices cuda_choices;       /* of algorithms; cuda_choices.c */

/* Places of each token in a slot's batch; see cuda_token_groups. */
typedef struct token_slot {
    int32_t *tokens;               /* device */
    int32_t *host_groups, *groups; /* order, starts, group tokens, count */
} token_slot;

/* Adjacent parameters. */
typedef struct cuda_range {
    uint64_t offset, count;
    uint64_t start; /* of these in the array */
} cuda_range;

/* A set of weights, or of gradients: the unsharded ranges one after the other, then the places of
 * the sharded ones (ZeRO). If passes read weights in 16 bits, the latter only hold tensors that
 * passes read as floats. Without sharding, one range of all. */
typedef struct cuda_layout {
    cuda_range *kept, *whole;
    uint32_t kept_count, whole_count;
    uint64_t floats;
} cuda_layout;

/* A device allocation and its size. */
typedef struct cuda_taken {
    void *memory;
    uint64_t bytes;
} cuda_taken;

struct stage_own {
    int ordinal;
    ty_device_identity identity;
    char description[400];
    uint64_t shared_bytes;              /* of a block, at most */
    int capability;                     /* ten times the compute capability */
    int processors;                     /* streaming multiprocessors */
    uint64_t capacity_bytes;            /* of the GPU */
    cudaStream_t stream, side, sending; /* of passes, of memory functions, of batches */
    cuda_type type;

    const cuda_blas *blas;
    cublasLtHandle_t blas_handle;
    cuda_plan_cache *products;
    cuda_choices *choices;
    const cuda_dnn *dnn; /* NULL before cuda_dnn_open */
    cudnnHandle_t dnn_handle;
    cuda_attention_choice attention_asked;
    uint32_t attention_layers, attention_layers_of_dnn;
    char attention_reason[160]; /* why the first layer without cuDNN does not use it */
    void *workspace;
    uint64_t workspace_bytes;

    cuda_graphs *graphs;
    bool is_recording;           /* work queued on `stream` becomes part of a graph, */
    uint32_t recorded_exchanges; /* with this number of collectives */
    bool waits_inside;           /* the host waits inside a pass, which cannot be a graph then */
    bool is_timed;               /* the device's clock runs, */
    cudaEvent_t clock[2];        /* from when to when */

    float **host_input; /* [slots], first stage with real input; else NULL */
    bool *is_taken;     /* [slots]: the batch of the next forward is on the device already */
    int32_t **labels;   /* [slots], device */
    token_slot *token_slots;
    uint64_t token_vocabulary;
    cuda_loss **losses;     /* [slots], device */
    cuda_loss *host_losses; /* [slots], pinned */
    float *row_loss;        /* [rows] */
    int32_t *row_best;

    cuda_layout weight_layout, gradient_layout;
    void *version_weights;    /* weights in the stage's type; `versions` for floats */
    uint64_t weight_stride;   /* of sets of weights in the stage's type */
    uint32_t copy_part_count; /* tensors of a set; 0 for floats, which have no copy */
    uint64_t *copy_parts;     /* device: [3][copy_part_count], see cuda_copy */
    void *gather_room;        /* target of a bucket's all-gather in the stage's type, or NULL */
    float *optimizer_state;
    void *weights;        /* of the set in use, in the stage's type */
    uint32_t state_count; /* of optimizer_state, for the parameters of */
    uint32_t state_range_count;
    cuda_range *state_ranges;      /* NULL: not decided yet */
    double *squares, *host_square; /* partial sums of `square`, and the sum */
    double loss_factor;            /* of scale_loss */
    float *scale, *host_scale;
    int32_t *is_bad, *host_is_bad;
    float *sums; /* of rows; as `scratch` */

    void *codec_workspace; /* workspace of compressors, used in turns */
    uint64_t codec_workspace_bytes;

    stage_blocks host_blocks;
    uint32_t link_blocks;               /* most multiprocessors for the kernels of its links */
    ty_launch_order launches;           /* of all links of the process; */
    void (*launch_ring)(void *context); /* wakes the thread of the one that sleeps, or NULL */
    void *launch_ring_context;

    pthread_mutex_t memory_lock; /* of the members below: several threads allocate */
    uint64_t taken_bytes, peak_bytes;
    cuda_taken *taken; /* [taken_count], which may be freed before the stage */
    uint32_t taken_count, taken_room;
};

/* ---- Memory (cuda_memory.c) ---- */

/** Zeroed memory that lives as long as the stage; NULL if out of memory. */
void *cuda_buffer(ty_stage_device *stage, uint64_t bytes);
void *cuda_host_buffer(ty_stage_device *stage, uint64_t bytes);
void cuda_buffers_free(ty_stage_device *stage);
/** Counts memory that a stage has allocated on its device. */
void cuda_memory_count(ty_stage_device *stage, uint64_t bytes);
/** Zeroed memory; NULL if out of memory. The device is a stage; NULL memory is ignored. */
void *cuda_memory_allocate(void *device, uint64_t bytes);
void cuda_memory_release(void *device, void *memory);

/* ---- Streams (cuda_stream.c) ---- */

enum { CUDA_CLOCK_START, CUDA_CLOCK_STOP };
/** Marks the device's clock, if it runs. In a graph, the mark is a node that marks the time of each
 * launch. */
ty_status cuda_clock_mark(const ty_stage_device *stage, int which, cudaStream_t stream,
                          ty_error *error) TY_MUST_CHECK;
/** Makes the stage's GPU current for the calling thread. */
ty_status cuda_use(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Waits for a stream, and reports any failure on it. The other two set a mark and wait for the
 * stream of the passes, or for the side stream. */
ty_status cuda_stream_wait(cudaStream_t stream, ty_error *error) TY_MUST_CHECK;
ty_status cuda_pass_wait(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
ty_status cuda_side_wait(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Loads cuDNN for the first layer that needs it, and creates its handle, on `stream`.
 * TY_EUNSUPPORTED if it is missing. */
ty_status cuda_dnn_open(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;

/* ---- Parameters (cuda_parameters.c) ---- */

/** Memory of parameters and gradients, initial weights in every set, and statistics.
 * @param sharding NULL: no sharding */
ty_status cuda_parameters_open(ty_stage_device *stage, const ty_sharding *sharding,
                               ty_error *error) TY_MUST_CHECK;
/** As in device.h. */
ty_status cuda_gather_begin(ty_stage_device *stage, const ty_sharded_range *bucket, void **data,
                            ty_element *element, ty_error *error) TY_MUST_CHECK;
ty_status cuda_gather_end(ty_stage_device *stage, const ty_sharded_range *bucket,
                          ty_error *error) TY_MUST_CHECK;
/** Updates the copies in the stage's type after weights of any set were written from outside.
 * Sharded weights have no copy before their all-gather. */
void cuda_weights_follow(ty_stage_device *stage, const float *at, uint64_t count,
                         cudaStream_t stream);

/* ---- Layout of parameters and gradients (cuda_layout.c) ---- */

/** Sets the layouts, the offsets of nodes, and the table of tensors on the device. As
 * cuda_parameters_open. */
ty_status cuda_layouts_place(ty_stage_device *stage, const ty_sharding *sharding,
                             ty_error *error) TY_MUST_CHECK;
void cuda_layouts_clear(ty_stage_device *stage);
/** The range that contains a parameter, or NULL. */
const cuda_range *cuda_range_find(const cuda_range *ranges, uint32_t count, uint64_t offset);
/** Start of an unsharded parameter in a set. */
uint64_t cuda_kept_start(const cuda_layout *layout, uint64_t offset);
/** Start for passes: in its bucket's place, or that of the unsharded parameter. */
uint64_t cuda_used_start(const cuda_layout *layout, uint64_t offset);

/** Splits memory into blocks with the alignment of cudaMalloc, or, if NULL, only counts their
 * bytes. */
typedef struct cuda_cutter {
    char *from;
    uint64_t used;
} cuda_cutter;
static inline void *cuda_cut_off(cuda_cutter *c, uint64_t bytes)
{
    const uint64_t alignment = 256;
    void *piece = c->from != NULL ? c->from + c->used : NULL;

    c->used += (bytes + alignment - 1) / alignment * alignment;
    return piece;
}

/* ---- Kinds ---- */

/** Layer kinds of this backend, and their functions. */
#define CUDA_KINDS(X)                                                                              \
    X(LINEAR, cuda_linear)                                                                         \
    X(CONV2D, cuda_conv2d)                                                                         \
    X(POOL, cuda_pool_kind)                                                                        \
    X(BATCH_NORM, cuda_batch_norm_kind)                                                            \
    X(LSTM, cuda_lstm)                                                                             \
    X(ADDITIVE_ATTENTION, cuda_additive_attention)                                                 \
    X(LAYER_NORM, cuda_layer_norm)                                                                 \
    X(RMS_NORM, cuda_rms_norm)                                                                     \
    X(EMBEDDING, cuda_embedding_kind)                                                              \
    X(ATTENTION, cuda_attention_kind)                                                              \
    X(MLP, cuda_mlp)                                                                               \
    X(MOE, cuda_moe)                                                                               \
    X(ADD, cuda_add)                                                                               \
    X(CONCAT, cuda_concat)                                                                         \
    X(SLICE, cuda_slice)                                                                           \
    X(RELU, cuda_relu)                                                                             \
    X(GELU, cuda_gelu)                                                                             \
    X(SILU, cuda_silu)                                                                             \
    X(TANH, cuda_tanh)                                                                             \
    X(FLATTEN, stage_reorder)                                                                      \
    X(SOFTMAX_CROSS_ENTROPY, cuda_loss_kind)
#define CUDA_KIND(kind, name) extern const stage_kind name;
CUDA_KINDS(CUDA_KIND)
#undef CUDA_KIND

/* ---- Messages (cuda_cut.c) ---- */

/** Before the first forward, after the last; before the first backward, after the last. */
void cuda_input_take(ty_stage_device *stage, uint32_t slot);
void cuda_output_give(ty_stage_device *stage, uint32_t slot);
void cuda_gradient_take(ty_stage_device *stage, uint32_t slot);
void cuda_gradient_give(ty_stage_device *stage, uint32_t slot);

/* ---- Operands of kinds ---- */

static inline void *cuda_in(const ty_stage_device *stage, const stage_node *node, uint32_t i,
                            uint32_t slot)
{
    return stage->values[node->inputs[i]].data[slot];
}

static inline void *cuda_out(const ty_stage_device *stage, const stage_node *node, uint32_t slot)
{
    return stage->values[node->output].data[slot];
}

/** Destination of the gradient of the i-th input, or NULL if it is not needed, in this pass or at
 * all. */
static inline void *cuda_in_gradient(const ty_stage_device *stage, const stage_node *node,
                                     uint32_t i)
{
    void **gradient = stage->values[node->inputs[i]].gradient;

    return gradient == NULL || stage->part == STAGE_WEIGHTS ? NULL : gradient[stage->slot];
}

static inline void *cuda_out_gradient(const ty_stage_device *stage, const stage_node *node)
{
    void **gradient = stage->values[node->output].gradient;

    return gradient == NULL ? NULL : gradient[stage->slot];
}

static inline uint64_t cuda_count(const ty_stage_device *stage, const stage_node *node)
{
    return stage->values[node->output].count;
}

static inline const float *cuda_parameters(const ty_stage_device *stage, const stage_node *node,
                                           uint32_t tensor)
{
    assert(node->float_offsets[tensor] != CUDA_NO_FLOATS);
    return stage->parameters + node->float_offsets[tensor];
}

/** A set of weights in the stage's type. */
static inline cuda_copy cuda_copy_of(const ty_stage_device *stage, void *weights)
{
    return (cuda_copy){.weights = weights,
                       .part_count = stage->own->copy_part_count,
                       .starts = stage->own->copy_parts,
                       .places = stage->own->copy_parts + stage->own->copy_part_count,
                       .floats =
                           stage->own->copy_parts + 2 * (uint64_t)stage->own->copy_part_count};
}

/** The same in the stage's type. */
static inline const void *cuda_weights(const ty_stage_device *stage, const stage_node *node,
                                       uint32_t tensor)
{
    return (const char *)stage->own->weights + node->weight_offsets[tensor] * stage->element;
}

/** Destination of the gradient of a parameter tensor, or NULL if it is frozen or not needed. */
static inline float *cuda_parameter_gradient(const ty_stage_device *stage, const stage_node *node,
                                             uint32_t tensor)
{
    return stage_is_frozen(stage, node, tensor) ? NULL
                                                : stage->gradients + node->gradient_offsets[tensor];
}

/* ---- Ranks (cuda_parallel.c) ---- */

/** As stage_whole_gradient. If backward is split in two, the first part all-gathers for both, and
 * the second needs no communication. */
ty_status cuda_whole_gradient(ty_stage_device *stage, const stage_node *node, void *room,
                              const void **out, ty_error *error) TY_MUST_CHECK;
/** Whether a condition holds on all TP, or all CP, ranks; call from the thread of the passes. */
ty_status cuda_ranks_agree(ty_stage_device *stage, ty_parallelism among, bool *is_everywhere,
                           ty_error *error) TY_MUST_CHECK;
/** Runs a collective of the ranks after all work on the pass's stream: now, or as part of the graph
 * that is being recorded. Call from the thread of the passes. */
ty_status cuda_parallel_exchange(ty_stage_device *stage, const ty_parallel_exchange *exchange,
                                 ty_error *error) TY_MUST_CHECK;
/** y[r, c] += bias, this rank's shard of [columns], and the sums of its gradient. */
void cuda_add_tp_bias(ty_stage_device *stage, uint64_t rows, uint64_t columns, const float *bias,
                      void *y);
void cuda_tp_bias_gradient(ty_stage_device *stage, uint64_t rows, uint64_t columns, const void *dy,
                           bool adds, float *sums);

/* ---- Expert-parallel ranks (cuda_experts.c) ---- */

/**
 * Copies of tokens, grouped by expert with padding, to send to the ranks of these experts. On the
 * receiving rank, the copies of each expert are grouped by source rank. Counts are rows with
 * padding.
 */
typedef struct cuda_expert_copies {
    uint64_t experts, features; /* local experts; features of a copy */
    const int32_t *starts;      /* host, [ranks * experts + 1]: first own copy for each expert */
    /* Pinned, for the received copies: */
    int32_t *arrived;    /* [ranks][experts]: rows for each local expert */
    int32_t *first;      /* [experts + 1]: first row of each expert */
    int32_t *host_index; /* place in the message of each row, expert by expert; or -1 */
    int32_t *index;      /* the same on the device */
    int32_t *counts;     /* device, [2][ranks * experts] */
    void *received;      /* device: the message of the received copies */
} cuda_expert_copies;
/** Exchanges the number of rows for each expert and fills in the members above. Waits for the
 * device. */
ty_status cuda_experts_meet(ty_stage_device *stage, const cuda_expert_copies *copies,
                            ty_error *error) TY_MUST_CHECK;
/** All-to-all of own copies into the experts' rows, and back. */
ty_status cuda_experts_send(ty_stage_device *stage, const cuda_expert_copies *copies, void *own,
                            void *by_expert, ty_error *error) TY_MUST_CHECK;
ty_status cuda_experts_return(ty_stage_device *stage, const cuda_expert_copies *copies,
                              const void *by_expert, void *own, ty_error *error) TY_MUST_CHECK;

/* ---- Algorithms chosen by measurement (cuda_choices.c) ---- */

enum { CUDA_KEY_SIZE = 320 }; /* of a key, with its NUL */

/** Reads the choices noted on such a GPU, once cuBLASLt is loaded. @param gpu its name, up to a
 * comma */
ty_status cuda_choices_open(ty_stage_device *stage, const char *gpu, ty_error *error) TY_MUST_CHECK;
/** Writes new choices. */
void cuda_choices_close(ty_stage_device *stage);
/** False: no choice was noted; use the library's first guess. */
bool cuda_choice_find(const ty_stage_device *stage, const char *key, uint32_t *value);
ty_status cuda_choice_note(ty_stage_device *stage, const char *key, uint32_t value,
                           ty_error *error) TY_MUST_CHECK;
/** Times some runs of a candidate on the stage's stream, after a warm-up run.
 * @param run           queues one run; false: not possible
 * @param milliseconds  [out] negative if not possible */
ty_status cuda_trials_time(const ty_stage_device *stage, bool (*run)(const void *context),
                           const void *context, float *milliseconds, ty_error *error) TY_MUST_CHECK;

/* ---- Passes as graphs (cuda_graph.c) ---- */

/** Queues an entire pass on `stream` without waits or allocations. */
typedef ty_status cuda_pass_queue(ty_stage_device *stage, const stage_pass *pass, ty_error *error);
/** The same, as a graph from the second run on if the pass can be recorded (see cuda_graph.c).
 * `queue` may depend on the pass, on evaluation, and on the sets of weights and gradients in use;
 * all its other arguments must be the same in every such pass. */
ty_status cuda_pass_run(ty_stage_device *stage, const stage_pass *pass, cuda_pass_queue *queue,
                        ty_error *error) TY_MUST_CHECK;
/** TY_EINVAL for an invalid value of TRAINYARD_CUDA_GRAPHS. */
ty_status cuda_graphs_open(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
void cuda_graphs_free(ty_stage_device *stage);
/** Destroys the graphs: later passes are queued. */
void cuda_graphs_drop(ty_stage_device *stage);
ty_device_graphs cuda_graphs_counts(const ty_stage_device *stage);
/** Enclose work that another thread than that of the passes queues on `stream`: no pass is recorded
 * meanwhile, since its graph would capture that work. */
void cuda_recording_hold(ty_stage_device *stage);
void cuda_recording_go_on(ty_stage_device *stage);

/* ---- Matrix products (cuda_product.c) ---- */

/** y = x W^T, row-major: x [rows][in], W [out][in], y [rows][out], in the stage's type. */
typedef struct cuda_affine {
    uint64_t rows, in, out;
    uint64_t y_stride;             /* of rows of y; 0: out */
    const void *x, *weight, *bias; /* bias may be NULL */
    void *y;
    void *before_gelu; /* not NULL: receives the product; y is its gelu */
} cuda_affine;
ty_status cuda_affine_forward(ty_stage_device *stage, const cuda_affine *affine,
                              ty_error *error) TY_MUST_CHECK;

/** The same for rows with strides, with y in floats, optionally added to. Forward: x [rows][in], y
 * = x W^T [rows][out]; backward: x [rows][out], y = x W [rows][in]. */
typedef struct cuda_strided {
    uint64_t rows, in, out, x_stride, y_stride;
    const void *x, *weight; /* in the stage's type */
    float *y;
    bool adds;
} cuda_strided;
ty_status cuda_strided_forward(ty_stage_device *stage, const cuda_strided *product,
                               ty_error *error) TY_MUST_CHECK;
ty_status cuda_strided_backward(ty_stage_device *stage, const cuda_strided *product,
                                ty_error *error) TY_MUST_CHECK;

typedef struct cuda_affine_gradient {
    uint64_t rows, in, out;
    uint64_t dy_stride; /* likewise */
    bool is_padded; /* rows of dy have zeros after `out` columns, the weight has rows for them */
    const void *x, *weight, *dy;
    float *dweight, *dbias;    /* may be NULL */
    void *dx;                  /* may be NULL */
    const void *x_before_gelu; /* not NULL: dx is the gradient of this; x is its gelu */
    bool adds_weight, adds_bias, adds_x;
} cuda_affine_gradient;
ty_status cuda_affine_backward(ty_stage_device *stage, const cuda_affine_gradient *affine,
                               ty_error *error) TY_MUST_CHECK;
/** Gradients of the weights and of the input, for a product with an entire input of a layer; sums
 * the input's gradient over ranks. Repeats forward's all-gather for the first input; layers with an
 * all-gather have only one. `affine` lacks x, dx and adds_x. */
ty_status cuda_input_product_backward(ty_stage_device *stage, const stage_node *node,
                                      uint32_t input, uint32_t slot, cuda_affine_gradient *affine,
                                      ty_error *error) TY_MUST_CHECK;
/** Floats of scratch for the sums of cuda_affine_backward, */
uint64_t cuda_affine_sums(uint64_t rows, uint64_t out);
/** and for rows of the weight's gradient, if dy is padded. */
uint64_t cuda_affine_rest(uint64_t in, uint64_t out, uint64_t dy_stride);
void cuda_products_free(ty_stage_device *stage);

/* ---- Linear layers (cuda_linear.c) ---- */

/** Rows of 16-bit scores are multiples of these, for fast products: of few scores, and of many. */
enum { CUDA_SCORE_ALIGNMENT = 8, CUDA_SCORE_PADDING = 64, CUDA_MANY_SCORES = 1024 };
/** Zeros after the weight in the stage's type, in elements. */
uint64_t cuda_linear_padding(const ty_stage_device *stage, const stage_node *node);

/* ---- Updates (cuda_update.c); see device.h ---- */

ty_status cuda_state_open(ty_stage_device *stage, uint32_t state_count,
                          const ty_parameter_range *ranges, uint32_t range_count, ty_error *error);
float *cuda_state(const ty_stage_device *stage, uint64_t offset);
ty_status cuda_update_slice(ty_stage_device *stage, const ty_optimizer *optimizer, uint64_t step,
                            uint64_t offset, uint64_t count, bool *is_finite, ty_error *error);

/* ---- Compressors (cuda_codec.c) ---- */

ty_status cuda_codec_open(ty_stage_device *stage, const ty_codec_options *options, ty_codec **out,
                          ty_error *error);
ty_status cuda_codec_encode(ty_codec *codec, uint32_t phase, const float *gradients,
                            ty_error *error);
ty_status cuda_codec_decode(ty_codec *codec, float *gradients, ty_error *error);

/* ---- Links (transport_nccl.c) ---- */

ty_status cuda_link_check(ty_stage_device *stage, ty_error *error);
ty_status cuda_link_open(const ty_link_options *options, ty_device_link **out, ty_error *error);

#endif
