/**
 * @file cuda_stage.h
 * Inside the CUDA backend: the kinds of layers, on the values and nodes of stage.h, whose numbers
 * are of the type of the precision.
 *
 * A message per slot crosses a cut, which forward and backward convert from and to. Parameters and
 * gradients are arrays of floats; under bf16 and fp16 passes read a copy of the weights in that
 * type, which updates keep.
 *
 * A pass is queued on the stage's stream, or replayed there as a graph (cuda_graph.c), and awaited
 * once at its end, so that an instruction's time is its work's. Memory functions have a stream of
 * their own.
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

/* Whose attention: cuDNN's wherever it has it, or ours alone. */
#define CUDA_ATTENTION_SWITCH "TRAINYARD_CUDA_ATTENTION"
typedef enum cuda_attention_choice {
    CUDA_ATTENTION_AUTO,
    CUDA_ATTENTION_OWN
} cuda_attention_choice;

typedef struct cuda_plan_cache cuda_plan_cache; /* of matrix products; cuda_product.c */
typedef struct cuda_graphs cuda_graphs;         /* of passes; cuda_graph.c */
typedef struct cuda_choices cuda_choices;       /* of algorithms; cuda_choices.c */

/* Which places of a slot's batch hold which token; see cuda_token_groups. */
typedef struct token_slot {
    int32_t *tokens;               /* device */
    int32_t *host_groups, *groups; /* order, starts, group tokens, count */
} token_slot;

/* Parameters that lie side by side. */
typedef struct cuda_range {
    uint64_t offset, count;
    uint64_t start; /* of theirs in the array */
} cuda_range;

/* A set of weights, or of gradients: ranges that are kept, one behind the other, then the places of
 * those that are shared out - of weights whose passes read 16 bits, of what these read as floats.
 * Where nothing is, one range of all. */
typedef struct cuda_layout {
    cuda_range *kept, *whole;
    uint32_t kept_count, whole_count;
    uint64_t floats;
} cuda_layout;

/* Device memory of a size. */
typedef struct cuda_taken {
    void *memory;
    uint64_t bytes;
} cuda_taken;

struct stage_own {
    int ordinal;
    ty_device_identity identity;
    char description[400];
    uint64_t shared_bytes;   /* of a block, at most */
    int capability;          /* ten times the compute capability */
    int processors;          /* streaming multiprocessors */
    uint64_t capacity_bytes; /* of the GPU */
    cudaStream_t stream, side;
    cuda_type type;

    const cuda_blas *blas;
    cublasLtHandle_t blas_handle;
    cuda_plan_cache *products;
    cuda_choices *choices;
    const cuda_dnn *dnn; /* NULL before cuda_dnn_open */
    cudnnHandle_t dnn_handle;
    cuda_attention_choice attention_asked;
    uint32_t attention_layers, attention_layers_of_dnn;
    char attention_reason[160]; /* why the first that is not cuDNN's is not */
    void *workspace;
    uint64_t workspace_bytes;

    cuda_graphs *graphs;
    bool is_recording;           /* what is put on `stream` becomes part of a graph, */
    uint32_t recorded_exchanges; /* among it so many exchanges of ranks */
    bool waits_inside;           /* a pass is awaited in its middle: it cannot be a graph */
    bool is_timed;               /* the device's clock runs, */
    cudaEvent_t clock[2];        /* from when to when */

    float **host_input; /* [slots], first stage with real input; else NULL */
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
    void *gather_room; /* where a bucket's weights come together in the stage's type, or NULL */
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

    void *codec_workspace; /* what compressors work in, in turns */
    uint64_t codec_workspace_bytes;

    stage_blocks host_blocks;
    uint32_t link_blocks;     /* multiprocessors that kernels of its links may keep busy, at most */
    ty_launch_order launches; /* of all links of the process; */
    void (*launch_ring)(void *context); /* wakes the thread of the one that sleeps, or NULL */
    void *launch_ring_context;

    pthread_mutex_t memory_lock; /* of the following: several threads allocate */
    uint64_t taken_bytes, peak_bytes;
    cuda_taken *taken; /* [taken_count], which may be released before the stage is */
    uint32_t taken_count, taken_room;
};

/* ---- Memory (cuda_memory.c) ---- */

/** Zeroed memory that lives as long as the stage; NULL when there is none. */
void *cuda_buffer(ty_stage_device *stage, uint64_t bytes);
void *cuda_host_buffer(ty_stage_device *stage, uint64_t bytes);
void cuda_buffers_free(ty_stage_device *stage);
/** Counts the memory that a stage has taken of its device. */
void cuda_memory_count(ty_stage_device *stage, uint64_t bytes);
/** Zeroed memory; NULL when there is none. The device is a stage; NULL memory is ignored. */
void *cuda_memory_allocate(void *device, uint64_t bytes);
void cuda_memory_release(void *device, void *memory);

/* ---- Streams (cuda_stream.c) ---- */

enum { CUDA_CLOCK_START, CUDA_CLOCK_STOP };
/** Marks the device's clock, if it runs. In a graph a mark is a part of it, which marks the time
 * whenever it is launched. */
ty_status cuda_clock_mark(const ty_stage_device *stage, int which, cudaStream_t stream,
                          ty_error *error) TY_MUST_CHECK;
/** Makes the calling thread's calls go to the stage's GPU. */
ty_status cuda_use(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Waits for a stream, and reports any failure on it; with a mark, that of the passes, or the side
 * stream. */
ty_status cuda_stream_wait(cudaStream_t stream, ty_error *error) TY_MUST_CHECK;
ty_status cuda_pass_wait(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
ty_status cuda_side_wait(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Loads cuDNN with the first layer that asks for it, and makes its handle, on `stream`.
 * TY_EUNSUPPORTED where it is not there. */
ty_status cuda_dnn_open(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;

/* ---- Parameters (cuda_parameters.c) ---- */

/** Memory of parameters and gradients, initial weights in every set, and statistics.
 * @param sharding NULL: nothing is shared out */
ty_status cuda_parameters_open(ty_stage_device *stage, const ty_sharding *sharding,
                               ty_error *error) TY_MUST_CHECK;
/** As device.h has them. */
ty_status cuda_gather_begin(ty_stage_device *stage, const ty_sharded_range *bucket, void **data,
                            ty_element *element, ty_error *error) TY_MUST_CHECK;
ty_status cuda_gather_end(ty_stage_device *stage, const ty_sharded_range *bucket,
                          ty_error *error) TY_MUST_CHECK;
/** Of weights of any set, which have come from outside, the copies in the stage's type; of what is
 * shared out there is none before it is gathered. */
void cuda_weights_follow(ty_stage_device *stage, const float *at, uint64_t count,
                         cudaStream_t stream);

/* ---- Where parameters and gradients lie (cuda_layout.c) ---- */

/** Decides it: layouts, offsets of nodes, and the table of tensors on the device. As
 * cuda_parameters_open. */
ty_status cuda_layouts_place(ty_stage_device *stage, const ty_sharding *sharding,
                             ty_error *error) TY_MUST_CHECK;
void cuda_layouts_clear(ty_stage_device *stage);
/** The range that has a parameter, or NULL. */
const cuda_range *cuda_range_find(const cuda_range *ranges, uint32_t count, uint64_t offset);
/** Where a parameter is kept in a set. */
uint64_t cuda_kept_start(const cuda_layout *layout, uint64_t offset);
/** Where passes find it: in its bucket's place, or where it is kept. */
uint64_t cuda_used_start(const cuda_layout *layout, uint64_t offset);

/** Cuts pieces off memory, or only counts them where there is none, each as aligned as what
 * cudaMalloc gives. */
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

/** The kinds that this backend trains, and their functions. */
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

/** Where the gradient of the i-th input goes, or NULL if nobody asks for it, now or ever. */
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

/** Where the gradient of a parameter tensor goes, or NULL where it is frozen or not asked for. */
static inline float *cuda_parameter_gradient(const ty_stage_device *stage, const stage_node *node,
                                             uint32_t tensor)
{
    return stage_is_frozen(stage, node, tensor) ? NULL
                                                : stage->gradients + node->gradient_offsets[tensor];
}

/* ---- Ranks (cuda_parallel.c) ---- */

/** As stage_whole_gradient. Where backward comes in two parts, the first gathers for both, so that
 * the second exchanges nothing. */
ty_status cuda_whole_gradient(ty_stage_device *stage, const stage_node *node, void *room,
                              const void **out, ty_error *error) TY_MUST_CHECK;
/** Whether something is so on all tensor, or all context, ranks; by the thread of the passes. */
ty_status cuda_ranks_agree(ty_stage_device *stage, ty_parallelism among, bool *is_everywhere,
                           ty_error *error) TY_MUST_CHECK;
/** What ranks exchange, behind all that is on the pass's stream: now, or when the pass that is
 * being recorded comes to it. By the thread of the passes. */
ty_status cuda_parallel_exchange(ty_stage_device *stage, const ty_parallel_exchange *exchange,
                                 ty_error *error) TY_MUST_CHECK;
/** y[r, c] += bias, this rank's part of [columns], and the sums of its gradient. */
void cuda_add_tp_bias(ty_stage_device *stage, uint64_t rows, uint64_t columns, const float *bias,
                      void *y);
void cuda_tp_bias_gradient(ty_stage_device *stage, uint64_t rows, uint64_t columns, const void *dy,
                           bool adds, float *sums);

/* ---- Expert-parallel ranks (cuda_experts.c) ---- */

/**
 * Copies of tokens, grouped by expert with what pads each, which go to the ranks that have these;
 * there each expert's are grouped by rank. Counts are rows with padding.
 */
typedef struct cuda_expert_copies {
    uint64_t experts, features; /* of this rank; of a copy */
    const int32_t *starts;      /* host, [ranks * experts + 1]: of the own copies for each expert */
    /* Pinned, of what came: */
    int32_t *arrived;    /* [ranks][experts]: rows for each expert here */
    int32_t *first;      /* [experts + 1]: where each one's begin */
    int32_t *host_index; /* of each row, expert by expert, where it is in the message; or -1 */
    int32_t *index;      /* the same on the device */
    int32_t *counts;     /* device, [2][ranks * experts] */
    void *received;      /* device: the message of the copies that came */
} cuda_expert_copies;
/** How many rows come for each expert: fills in what is about these. Awaits the device. */
ty_status cuda_experts_meet(ty_stage_device *stage, const cuda_expert_copies *copies,
                            ty_error *error) TY_MUST_CHECK;
/** Own copies to the experts, into the rows of these, and back. */
ty_status cuda_experts_send(ty_stage_device *stage, const cuda_expert_copies *copies, void *own,
                            void *by_expert, ty_error *error) TY_MUST_CHECK;
ty_status cuda_experts_return(ty_stage_device *stage, const cuda_expert_copies *copies,
                              const void *by_expert, void *own, ty_error *error) TY_MUST_CHECK;

/* ---- Algorithms chosen by measurement (cuda_choices.c) ---- */

enum { CUDA_KEY_SIZE = 320 }; /* of what is chosen for, with its NUL */

/** What was noted on such a GPU, once cuBLASLt is there. @param gpu its name, up to a comma */
ty_status cuda_choices_open(ty_stage_device *stage, const char *gpu, ty_error *error) TY_MUST_CHECK;
/** Writes what is new. */
void cuda_choices_close(ty_stage_device *stage);
/** False: nothing was chosen, and the library's first guess is to be used. */
bool cuda_choice_find(const ty_stage_device *stage, const char *key, uint32_t *value);
ty_status cuda_choice_note(ty_stage_device *stage, const char *key, uint32_t value,
                           ty_error *error) TY_MUST_CHECK;
/** Some runs of what is tried on the stage's stream, behind a first one.
 * @param run           puts one there; false: it cannot
 * @param milliseconds  [out] negative where it cannot */
ty_status cuda_trials_time(const ty_stage_device *stage, bool (*run)(const void *context),
                           const void *context, float *milliseconds, ty_error *error) TY_MUST_CHECK;

/* ---- Passes as graphs (cuda_graph.c) ---- */

/** Puts all of a pass on `stream`, awaiting nothing and allocating nothing. */
typedef ty_status cuda_pass_queue(ty_stage_device *stage, const stage_pass *pass, ty_error *error);
/** The same, as a graph where it has been made before, does not talk to ranks and can be recorded.
 * `queue` may depend on the pass, on whether it is evaluation and on the sets of weights and
 * gradients in use; numbers that it passes on must be the same for all passes alike. */
ty_status cuda_pass_run(ty_stage_device *stage, const stage_pass *pass, cuda_pass_queue *queue,
                        ty_error *error) TY_MUST_CHECK;
/** TY_EINVAL for what TRAINYARD_CUDA_GRAPHS may not be. */
ty_status cuda_graphs_open(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
void cuda_graphs_free(ty_stage_device *stage);
/** Destroys what was recorded: its passes are queued from then on. */
void cuda_graphs_drop(ty_stage_device *stage);
ty_device_graphs cuda_graphs_counts(const ty_stage_device *stage);
/** Around what another thread than that of the passes puts on `stream`: no pass is recorded
 * meanwhile, which would take it for its own. */
void cuda_recording_hold(ty_stage_device *stage);
void cuda_recording_go_on(ty_stage_device *stage);

/* ---- Matrix products (cuda_product.c) ---- */

/** y = x W^T, row-major: x [rows][in], W [out][in], y [rows][out], in the stage's type. */
typedef struct cuda_affine {
    uint64_t rows, in, out;
    uint64_t y_stride;             /* of rows of y; 0: out */
    const void *x, *weight, *bias; /* bias may be NULL */
    void *y;
    void *before_gelu; /* not NULL: y = gelu of what is written here */
} cuda_affine;
ty_status cuda_affine_forward(ty_stage_device *stage, const cuda_affine *affine,
                              ty_error *error) TY_MUST_CHECK;

/** The same for rows that lie strides apart, with y in floats, which may be added to. Forward: x
 * [rows][in], y = x W^T [rows][out]; backward: x [rows][out], y = x W [rows][in]. */
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
    const void *x_before_gelu; /* not NULL: dx is the gradient of this, of which x is the gelu */
    bool adds_weight, adds_bias, adds_x;
} cuda_affine_gradient;
ty_status cuda_affine_backward(ty_stage_device *stage, const cuda_affine_gradient *affine,
                               ty_error *error) TY_MUST_CHECK;
/** Of a product of all of one of a layer's inputs the gradients of weights and of the input, the
 * latter summed over ranks. What had to be gathered for forward is gathered again, of the first
 * input; layers whose ranks gather have one. `affine` lacks x, dx and adds_x. */
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
