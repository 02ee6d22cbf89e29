/**
 * @file cuda_stage.h
 * Inside the CUDA backend: a stage's layers as nodes that read and write values.
 *
 * A *value* is a tensor of one micro-batch in the type of the precision: the batch, what crosses
 * the cut before the stage, or what a layer makes of it, in one of two orders. A *node* is a layer,
 * or in front of one the change to the order that it reads; flatten is another name for its input,
 * or such a change. Data of values is per slot, gradients inside the stage are one set, or, where
 * backward comes in two parts, per slot; where the stage is recomputed, what only one segment has
 * to do with lies in a working set that all segments and slots share. The functions of a layer are
 * the same for both parts: what a part does not ask for has nowhere to go (cuda_in_gradient,
 * cuda_parameter_gradient). What crosses a cut is a message per slot, which forward and backward
 * convert from and to (cuda_cut.c).
 *
 * With tensor lanes (cuda_lanes.c) tensors of parameters and values are what this lane has. A
 * divided layer reads all of its input and makes a summand of all of its output, which the lanes
 * sum; where they divide the sequence, reading gathers and summing scatters. With context lanes
 * everything is of this lane's tokens, and only attention asks the others.
 *
 * Parameters and gradients are arrays of floats, laid out as the CPU backend does; under bf16 and
 * fp16 a copy of the weights in that type is what the passes read, and updates keep it.
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
#include "device.h"
#include "init.h"
#include "launch_order.h"
#include "stage_layers.h"
#include "stage_parameters.h"

#include <assert.h>
#include <pthread.h>

/* How elements lie. Of one channel, or one pixel, both are the same. */
typedef enum cuda_order {
    CUDA_PLANES,        /* [B, C, H, W], as in the workload and in messages */
    CUDA_CHANNELS_LAST, /* [B, H, W, C]: what layers of images compute in */
    CUDA_ANY_ORDER      /* of a kind: that of its first input */
} cuda_order;

typedef struct cuda_value {
    ty_shape shape; /* per sample, as in the workload whatever the order */
    cuda_order order;
    uint64_t count;       /* elements of a micro-batch */
    uint32_t same_as;     /* the value whose memory it uses; itself if its own */
    uint32_t gradient_of; /* and whose gradient's: that one's, or a sum's (cuda_gradients.c) */
    bool needs_gradient;
    bool becomes_gradient; /* in its own memory: who makes that is the last to read it */
    /* Of its memory and its gradient's: the segment that alone has to do with it, or
     * STAGE_NO_SEGMENT. */
    uint32_t segment, gradient_segment;
    bool is_kept;    /* per slot, though the stage is recomputed */
    void **data;     /* [slots] */
    void **gradient; /* [slots]; NULL where nobody asks for it */
} cuda_value;

/* A tensor that crosses a cut of the stage, and its part of the message. */
typedef struct cuda_crossing {
    uint32_t value;
    uint64_t offset, gradient_offset; /* numbers */
    bool has_gradient_part;
    bool adds; /* its gradient is added: another name of the same memory crosses, too */
} cuda_crossing;

/* What crosses one of the stage's cuts, as one message: tensor behind tensor. */
typedef struct cuda_cut {
    cuda_type type; /* of its numbers: as large as the workload's; the batch is floats */
    uint32_t count;
    cuda_crossing *tensors; /* [count], by the layers that make them */
    uint64_t numbers, gradient_numbers;
    void **data;     /* [slots], device; NULL without tensors */
    void **gradient; /* [slots], device; NULL where backward does not come to the cut */
} cuda_cut;

typedef struct cuda_kind cuda_kind;

typedef struct cuda_node {
    const cuda_kind *kind;
    const ty_layer *layer;
    uint32_t layer_index; /* in the workload */
    uint32_t input_count;
    uint32_t *inputs; /* values */
    bool *adds;       /* [input_count] add to the input's gradient: a later node has written it */
    uint32_t output;
    /* Per sample, of the layer's first input and its output: all of this context lane's tokens,
     * whatever tensor lanes divide. */
    ty_shape whole_input, whole_output;
    uint32_t tensor_count; /* parameter tensors */
    uint64_t offsets[LAYER_MAX_TENSORS];
    /* In a set of weights (CUDA_NO_FLOATS: passes read no floats of it), of gradients, and of
     * weights in the stage's type. */
    uint64_t float_offsets[LAYER_MAX_TENSORS], gradient_offsets[LAYER_MAX_TENSORS];
    uint64_t weight_offsets[LAYER_MAX_TENSORS];
    bool is_divided;       /* among lanes, of which there are several */
    bool is_matrix_frozen; /* tied to a frozen layer's */
    bool has_relu; /* of batch norms and sums of two: the output is behind the next layer's */
    /* Of a layer or RMS norm the sum of two right before it, whose output its forward makes, and of
     * that sum that it is made so. */
    const struct cuda_node *sum;
    bool is_made_behind;
    bool adds_matrix; /* a later node with the same (tied) matrix has written its gradient */
    uint64_t stash_bytes, scratch_bytes;
    uint64_t sum_floats;    /* of scratch for sums over rows */
    uint64_t lane_elements; /* of the largest tensor that it gathers or sums among lanes */
    void **lane_kept;       /* [slots]: from one part of backward to the other, the whole input and
                               the gradient of the whole output; NULL: not gathered, or one part */
    void **stash;           /* [slots] */
    bool is_kept;           /* recomputing makes nothing of it: its stash is per slot */
    uint64_t kept_bytes;    /* or so much, per slot: `again` makes the rest */
    void **kept;            /* [slots]; else the stash */
    uint64_t statistic_offset; /* of its part of the stage's statistics */
    void *state;               /* the kind's own */
} cuda_node;

#define CUDA_BIT(tensor) (1u << (tensor))
struct cuda_kind {
    cuda_order order; /* of inputs and output */
    uint32_t floats;  /* CUDA_BIT of the tensors that passes read as floats, whatever their type */
    ty_status (*build)(ty_stage_device *stage, cuda_node *node, ty_error *error);
    ty_status (*forward)(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                         ty_error *error);
    /** Forward from `kept` on; only where build has set kept_bytes. */
    ty_status (*again)(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                       ty_error *error);
    ty_status (*backward)(ty_stage_device *stage, const cuda_node *node, uint32_t slot,
                          bool is_first, ty_error *error);
    void (*release)(ty_stage_device *stage, cuda_node *node); /* NULL: no state */
};

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

/* What backward is asked for. */
typedef enum cuda_part { CUDA_BOTH, CUDA_INPUTS, CUDA_WEIGHTS } cuda_part;

/* A pass of a slot, or of a range of its layers. */
typedef struct cuda_pass {
    bool is_forward, is_again;   /* forward; and one of a recompute */
    cuda_part part;              /* of backward */
    uint32_t slot, first, count; /* layers */
    bool is_first;               /* overwrites gradients of parameters */
} cuda_pass;

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

struct ty_stage_device {
    ty_stage_options options;
    stage_segments segments;
    /* Where the stage is recomputed: memory of what lies inside a segment, from its start for each
     * of them; how much of it each has taken so far, while it is given out. */
    stage_working_set working_set;
    int ordinal;
    ty_device_identity identity;
    char description[400];
    uint64_t shared_bytes;   /* of a block, at most */
    int capability;          /* ten times the compute capability */
    int processors;          /* streaming multiprocessors */
    uint64_t capacity_bytes; /* of the GPU */
    cudaStream_t stream, side;
    cuda_type type;
    uint64_t element; /* bytes */

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

    cuda_part part; /* of the backward under way, */
    uint32_t slot;  /* and whose it is */
    cuda_graphs *graphs;
    bool is_recording;           /* what is put on `stream` becomes part of a graph, */
    uint32_t recorded_exchanges; /* among it so many exchanges of lanes */
    bool waits_inside;           /* a pass is awaited in its middle: it cannot be a graph */
    bool is_timed;               /* the device's clock runs, */
    cudaEvent_t clock[2];        /* from when to when */

    uint32_t value_count, node_count;
    cuda_value *values; /* [0] is the batch, or what crosses the cut before the stage comes first */
    cuda_node *nodes;
    cuda_cut before, behind; /* before a first stage the batch, unless it is tokens; behind a loss
                                nothing */

    float **host_input; /* [slots], first stage with real input; else NULL */
    int32_t **host_tokens, **host_labels, **labels; /* [slots] or NULL */
    token_slot *token_slots;
    uint64_t token_vocabulary;
    uint64_t labels_per_sample;
    cuda_loss **losses;     /* [slots], device */
    cuda_loss *host_losses; /* [slots], pinned */
    float *row_loss;        /* [rows] */
    int32_t *row_best;

    stage_parameters placed;
    cuda_layout weight_layout, gradient_layout;
    float *versions, *gradient_sets; /* sets of weights and of gradients, `set_stride` apart */
    void *version_weights;           /* weights in the stage's type; `versions` for floats */
    uint64_t set_stride;             /* ty_parameter_stride; of sharded stages there is one set */
    uint64_t weight_stride;          /* of sets of weights in the stage's type */
    uint32_t copy_part_count;        /* tensors of a set; 0 for floats, which have no copy */
    uint64_t *copy_parts;            /* device: [3][copy_part_count], see cuda_copy */
    void *gather_room; /* where a bucket's weights come together in the stage's type, or NULL */
    float *parameters, *gradients, *optimizer_state; /* the first two of the sets in use, */
    void *weights;                                   /* and weights in the stage's type */
    uint32_t state_count;                            /* of optimizer_state, for the parameters of */
    uint32_t state_range_count;
    cuda_range *state_ranges; /* NULL: not decided yet */
    uint64_t statistic_count;
    float *statistics;             /* what layers keep from step to step that is no parameter */
    bool is_evaluating;            /* forward is of a test set */
    double *squares, *host_square; /* partial sums of `square`, and the sum */
    double loss_factor;            /* of scale_loss */
    float *scale, *host_scale;
    int32_t *is_bad, *host_is_bad;

    void *scratch;
    float *sums;
    void *lane_whole;   /* with lanes: room for the largest tensor that is gathered or summed */
    void *lane_message; /* the same in the order of messages, where that differs; or a float */

    void *codec_workspace; /* what compressors work in, in turns */
    uint64_t codec_workspace_bytes;

    void **blocks, **host_blocks;
    uint32_t block_count, block_room, host_block_count, host_block_room;
    uint32_t link_blocks;     /* multiprocessors that kernels of its links may keep busy, at most */
    ty_launch_order launches; /* of all links of the process; */
    void (*launch_ring)(void *context); /* wakes the thread of the one that sleeps, or NULL */
    void *launch_ring_context;

    uint64_t memory_bytes;
    pthread_mutex_t memory_lock; /* of what follows: several threads allocate */
    uint64_t taken_bytes, peak_bytes;
    cuda_taken *taken; /* [taken_count], what may be given back before the stage is */
    uint32_t taken_count, taken_room;
};

/* ---- Building (cuda_build.c, parameters in cuda_parameters.c) ---- */

const cuda_kind *cuda_kind_of(ty_layer_kind kind);
ty_status cuda_build(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Zeroed memory that lives as long as the stage; NULL when there is none. */
void *cuda_buffer(ty_stage_device *stage, uint64_t bytes);
/** Counts what a stage has taken of its device's memory. */
void cuda_memory_count(ty_stage_device *stage, uint64_t bytes);
void *cuda_host_buffer(ty_stage_device *stage, uint64_t bytes);
void cuda_buffers_free(ty_stage_device *stage);
ty_status cuda_supports(const ty_workload *workload, uint32_t first_layer, uint32_t layer_count,
                        ty_error *error);

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

/* ---- Gradients (cuda_gradients.c) ---- */

/** Which gradients share memory, and who writes each first. @param flags [value_count] scratch */
void cuda_gradients_place(ty_stage_device *stage, bool *flags);

/* ---- Cuts (cuda_cut.c) ---- */

/** Notes a tensor that crosses; in order. @param has_gradient_part whether backward comes to it */
ty_status cuda_cut_add(const ty_stage_device *stage, cuda_cut *cut, uint32_t value,
                       bool has_gradient_part, ty_error *error) TY_MUST_CHECK;
/** Marks the gradients that backward begins with as written. @param is_written [value_count] */
void cuda_cut_order(ty_stage_device *stage, bool *is_written);
/** Memory of the messages. False when there is none. */
bool cuda_cuts_allocate(ty_stage_device *stage);
void cuda_cuts_free(ty_stage_device *stage);
/** Between messages and values: before the first forward, behind the last; before the first
 * backward, behind the last. */
void cuda_input_take(ty_stage_device *stage, uint32_t slot);
void cuda_output_give(ty_stage_device *stage, uint32_t slot);
void cuda_gradient_take(ty_stage_device *stage, uint32_t slot);
void cuda_gradient_give(ty_stage_device *stage, uint32_t slot);

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

extern const cuda_kind cuda_linear, cuda_conv2d, cuda_pool_kind, cuda_relu, cuda_gelu, cuda_silu,
    cuda_tanh, cuda_layer_norm, cuda_rms_norm, cuda_batch_norm_kind, cuda_embedding_kind,
    cuda_attention_kind, cuda_mlp, cuda_moe, cuda_add, cuda_concat, cuda_slice, cuda_loss_kind,
    cuda_lstm, cuda_additive_attention;
/** From the input's order to the output's. */
extern const cuda_kind cuda_reorder;

/* ---- What kinds ask of the stage ---- */

/** Whether the network ends here. */
static inline bool cuda_has_loss(const ty_stage_device *stage)
{
    return stage->behind.count == 0;
}

/** Sets of weights. */
static inline uint32_t cuda_version_count(const ty_stage_device *stage)
{
    return stage->options.versions > 0 ? stage->options.versions : 1;
}

/** Sets of gradients. */
static inline uint32_t cuda_gradient_set_count(const ty_stage_device *stage)
{
    return stage->options.gradient_sets > 0 ? stage->options.gradient_sets : 1;
}

static inline uint64_t cuda_batch(const ty_stage_device *stage)
{
    return stage->options.micro_batch_size;
}

/* What a value's numbers are to who moves or sums them. */
static inline ty_element cuda_element(const ty_stage_device *stage)
{
    return stage->type == CUDA_TYPE_FLOAT  ? TY_ELEMENT_FLOAT
           : stage->type == CUDA_TYPE_BF16 ? TY_ELEMENT_BFLOAT
                                           : TY_ELEMENT_HALF;
}

static inline void *cuda_in(const ty_stage_device *stage, const cuda_node *node, uint32_t i,
                            uint32_t slot)
{
    return stage->values[node->inputs[i]].data[slot];
}

static inline void *cuda_out(const ty_stage_device *stage, const cuda_node *node, uint32_t slot)
{
    return stage->values[node->output].data[slot];
}

/** Where the gradient of the i-th input goes, or NULL if nobody asks for it, now or ever. */
static inline void *cuda_in_gradient(const ty_stage_device *stage, const cuda_node *node,
                                     uint32_t i)
{
    void **gradient = stage->values[node->inputs[i]].gradient;

    return gradient == NULL || stage->part == CUDA_WEIGHTS ? NULL : gradient[stage->slot];
}

static inline void *cuda_out_gradient(const ty_stage_device *stage, const cuda_node *node)
{
    void **gradient = stage->values[node->output].gradient;

    return gradient == NULL ? NULL : gradient[stage->slot];
}

static inline uint64_t cuda_count(const ty_stage_device *stage, const cuda_node *node)
{
    return stage->values[node->output].count;
}

static inline const float *cuda_parameters(const ty_stage_device *stage, const cuda_node *node,
                                           uint32_t tensor)
{
    assert(node->float_offsets[tensor] != CUDA_NO_FLOATS);
    return stage->parameters + node->float_offsets[tensor];
}

/** A set of weights in the stage's type. */
static inline cuda_copy cuda_copy_of(const ty_stage_device *stage, void *weights)
{
    return (cuda_copy){.weights = weights,
                       .part_count = stage->copy_part_count,
                       .starts = stage->copy_parts,
                       .places = stage->copy_parts + stage->copy_part_count,
                       .floats = stage->copy_parts + 2 * (uint64_t)stage->copy_part_count};
}

/** The same in the stage's type. */
static inline const void *cuda_weights(const ty_stage_device *stage, const cuda_node *node,
                                       uint32_t tensor)
{
    return (const char *)stage->weights + node->weight_offsets[tensor] * stage->element;
}

/** Where the gradient of a parameter tensor goes, or NULL where it is frozen or not asked for. */
static inline float *cuda_parameter_gradient(const ty_stage_device *stage, const cuda_node *node,
                                             uint32_t tensor)
{
    bool is_frozen = node->layer->is_frozen || (tensor == 0 && node->is_matrix_frozen);

    return is_frozen || stage->part == CUDA_INPUTS
               ? NULL
               : stage->gradients + node->gradient_offsets[tensor];
}

static inline bool cuda_adds(const cuda_node *node, uint32_t tensor, bool is_first)
{
    return !is_first || (tensor == 0 && node->adds_matrix);
}

/** Whether recomputing begins at what the first product of a node's layer made. */
static inline bool cuda_finds_product(const ty_stage_device *stage, const cuda_node *node)
{
    const ty_again again = stage->segments.again[node->layer_index].what;

    return again == TY_AGAIN_SECOND || again == TY_AGAIN_ACTIVATION;
}

static inline uint64_t cuda_channels(const cuda_value *value)
{
    return value->shape.dimensions[0];
}

/** Of a sample. */
static inline uint64_t cuda_pixels(const cuda_value *value)
{
    return ty_shape_elements(&value->shape) / cuda_channels(value);
}

/** Whether a value lies otherwise than as planes. */
static inline bool cuda_is_channels_last(const cuda_value *value)
{
    return value->order == CUDA_CHANNELS_LAST && cuda_channels(value) > 1 && cuda_pixels(value) > 1;
}

/** Rows of a value that is no image, as a matrix whose columns are its innermost dimension. */
static inline uint64_t cuda_rows(const cuda_value *value)
{
    return value->count / value->shape.dimensions[value->shape.dimension_count - 1];
}

/* ---- Lanes (cuda_lanes.c) ---- */

/** Whether a divided layer has to gather what it reads and is given. */
static inline bool cuda_gathers(const ty_stage_device *stage, const cuda_node *node)
{
    return node->is_divided && stage->options.lanes.divides_sequence;
}

/** Lanes that divide the node's layer; 1 where nobody does. */
static inline uint32_t cuda_lanes_of(const ty_stage_device *stage, const cuda_node *node)
{
    return node->is_divided ? lane_count(&stage->options) : 1;
}

/** All of a layer's input, or of the gradient of its output; gathered, if need be, into `room`. */
ty_status cuda_whole_input(ty_stage_device *stage, const cuda_node *node, uint32_t slot, void *room,
                           const void **out, ty_error *error) TY_MUST_CHECK;
ty_status cuda_whole_gradient(ty_stage_device *stage, const cuda_node *node, void *room,
                              const void **out, ty_error *error) TY_MUST_CHECK;

/** Where a layer writes what lanes sum into `to`: there, unless it is added to what `to` has or is
 * more than this lane's part. Without lanes the layer adds by itself. NULL stays NULL. */
static inline void *cuda_summand(const ty_stage_device *stage, const cuda_node *node, bool adds,
                                 void *to)
{
    bool is_apart = node->is_divided && (adds || stage->options.lanes.divides_sequence);

    return to != NULL && is_apart ? stage->lane_whole : to;
}

/** Sums the lanes' summands of a tensor of that shape a sample, of which `to` gets what this lane
 * has of it; `summand`, which may be `to`, is used up. Nothing to do for layers that are not
 * divided. */
ty_status cuda_lanes_sum(ty_stage_device *stage, const cuda_node *node, const ty_shape *shape,
                         void *summand, bool adds, void *to, ty_error *error) TY_MUST_CHECK;
/** Rows of all sequences of a micro-batch, [B][sequence][columns]; a context lane's own rows, [B][T
 * / lanes][columns], lie `stride` elements apart. */
typedef struct cuda_context_rows {
    uint64_t sequence, columns, stride;
} cuda_context_rows;
/** All rows from those of the lanes. */
ty_status cuda_context_gather(ty_stage_device *stage, const cuda_context_rows *rows,
                              const void *own, void *whole, ty_error *error) TY_MUST_CHECK;
/** This lane's rows of the sum over lanes. */
ty_status cuda_context_scatter(ty_stage_device *stage, const cuda_context_rows *rows,
                               const void *whole, void *own, ty_error *error) TY_MUST_CHECK;

/** Sum, or the largest, over the tensor lanes, in place, in device memory. */
ty_status cuda_lanes_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count,
                                float *data, ty_error *error) TY_MUST_CHECK;
/** Whether something is so on all tensor, or all context, lanes; by the thread of the passes. */
ty_status cuda_lanes_agree(ty_stage_device *stage, ty_lane_kind among, bool *is_everywhere,
                           ty_error *error) TY_MUST_CHECK;
/** What lanes exchange, behind all that is on the pass's stream: now, or when the pass that is
 * being recorded comes to it. By the thread of the passes. */
ty_status cuda_lanes_exchange(ty_stage_device *stage, const ty_lane_exchange *exchange,
                              ty_error *error) TY_MUST_CHECK;
/** y[r, c] += bias, this lane's part of [columns], and the sums of its gradient. */
void cuda_add_lane_bias(ty_stage_device *stage, uint64_t rows, uint64_t columns, const float *bias,
                        void *y);
void cuda_lane_bias_gradient(ty_stage_device *stage, uint64_t rows, uint64_t columns,
                             const void *dy, bool adds, float *sums);

/* ---- Expert lanes (cuda_experts.c) ---- */

/**
 * Copies of tokens, grouped by expert with what pads each, which go to the lanes that have these;
 * there each expert's are grouped by lane. Counts are rows with padding.
 */
typedef struct cuda_expert_copies {
    uint64_t experts, features; /* of this lane; of a copy */
    const int32_t *starts;      /* host, [lanes * experts + 1]: of the own copies for each expert */
    /* Pinned, of what came: */
    int32_t *arrived;    /* [lanes][experts]: rows for each expert here */
    int32_t *first;      /* [experts + 1]: where each one's begin */
    int32_t *host_index; /* of each row, expert by expert, where it is in the message; or -1 */
    int32_t *index;      /* the same on the device */
    int32_t *counts;     /* device, [2][lanes * experts] */
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
typedef ty_status cuda_pass_queue(ty_stage_device *stage, const cuda_pass *pass, ty_error *error);
/** The same, as a graph where it has been made before, does not talk to lanes and can be recorded.
 * `queue` may depend on the pass, on whether it is evaluation and on the sets of weights and
 * gradients in use; numbers that it passes on must be the same for all passes alike. */
ty_status cuda_pass_run(ty_stage_device *stage, const cuda_pass *pass, cuda_pass_queue *queue,
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
 * latter summed over lanes. What had to be gathered for forward is gathered again, of the first
 * input; layers whose lanes gather have one. `affine` lacks x, dx and adds_x. */
ty_status cuda_input_product_backward(ty_stage_device *stage, const cuda_node *node, uint32_t input,
                                      uint32_t slot, cuda_affine_gradient *affine,
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
uint64_t cuda_linear_padding(const ty_stage_device *stage, const cuda_node *node);

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

/* ---- Shared by the files of the backend (device_cuda.c) ---- */

/** Zeroed memory; NULL when there is none. The device is a stage; NULL memory is ignored. */
void *cuda_memory_allocate(void *device, uint64_t bytes);
void cuda_memory_release(void *device, void *memory);
/** Loads cuDNN with the first layer that asks for it, and makes its handle, on `stream`.
 * TY_EUNSUPPORTED where it is not there. */
ty_status cuda_dnn_open(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Makes the calling thread's calls go to the stage's GPU. */
ty_status cuda_use(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Waits for the stream of the passes, and tells of anything that failed on it. */
ty_status cuda_pass_wait(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** Waits for the side stream, and tells of anything that failed on it. */
ty_status cuda_side_wait(const ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;

#endif
