/**
 * @file stage.h
 * A stage's layers as nodes that read and write values: the same on every backend that computes.
 * Internal to execute/.
 *
 * A *value* is a tensor of one micro-batch: the batch, a tensor that crosses the cut before the
 * stage, or the output of a layer, in one of two memory orders. A *node* computes one value. Most
 * layers are one node. A change of order before a layer is a node of its own; a flatten is another
 * name for its input, or such a change. A kind may join a layer to the node before it (`join`).
 * stage_build.c does the lowering. A backend has its kernels, its memory, and a table from kinds of
 * layers to their functions.
 *
 * Every value has data for each slot. If the stage is recomputed, data, stashes and gradients that
 * only one segment uses are in the working set: one memory for all segments and slots. Gradients of
 * values inside the stage are one set for all slots, because the backward passes of two
 * micro-batches are never interleaved. If backward has two parts, gradients are per slot and none
 * is overwritten by another: the second part of a layer reads its output's gradient as the first
 * part did. The functions of a layer are the same for both parts: a gradient that a part does not
 * compute is NULL.
 *
 * With tensor parallelism, parameters and values are the shards of this rank. A sharded layer reads
 * all of its input and makes a summand of all of its output, which an all-reduce sums; with
 * sequence parallelism, reading gathers and summing scatters (stage_parallel.c). With context
 * parallelism everything is of this rank's tokens, and only attention communicates. With expert
 * parallelism it is of this rank's samples, and experts see those of all ranks.
 */
#ifndef TY_EXECUTE_STAGE_H
#define TY_EXECUTE_STAGE_H

#include "device.h"
#include "stage_layers.h"
#include "stage_parameters.h"
#include "stage_pieces.h"

/** No value. */
#define STAGE_NONE UINT32_MAX

/** Memory order of elements. With one channel, or one pixel, both are the same. */
typedef enum stage_order {
    STAGE_PLANES,        /* [B, C, H, W], as in the workload and in messages */
    STAGE_CHANNELS_LAST, /* [B, H, W, C]: the order in which layers of images compute */
    STAGE_ANY_ORDER      /* of a kind: that of its first input */
} stage_order;

typedef struct stage_value {
    ty_shape shape; /* per sample, as in the workload whatever the order */
    stage_order order;
    uint64_t count;       /* elements of a micro-batch */
    uint32_t data_of;     /* the value whose memory it uses; itself if its own */
    uint32_t gradient_of; /* likewise for gradients */
    bool needs_gradient;
    bool
        becomes_gradient; /* in its own memory: the node that computes the gradient reads it last */
    bool is_kept;         /* per slot even if the stage is recomputed */
    bool crosses;         /* set at the root of its gradient: it is in a message */
    bool gets_gradient;   /* likewise: backward begins with its gradient from the next stage */
    bool is_private;      /* one reader, which may overwrite it */
    bool is_inside;       /* of a node, which computes and uses it in tiles: has no memory */
    /* The only segment that uses its data, and its gradient, by root; or STAGE_NO_SEGMENT. */
    uint32_t segment, gradient_segment;
    void **data;     /* [slots] */
    void **gradient; /* [slots]; NULL if it has none */
} stage_value;

/* A tensor that crosses a cut of the stage, and its part of the message. */
typedef struct stage_crossing {
    uint32_t value;
    uint64_t offset, gradient_offset; /* numbers */
    bool has_gradient_part;
    /* If values are stored in messages: this one has its memory elsewhere, because it is in another
     * message too. */
    bool is_copied, is_gradient_copied;
    bool adds; /* its gradient is added to an earlier one of the same memory */
} stage_crossing;

/** One message for all tensors that cross a cut, one after the other. */
typedef struct stage_cut {
    uint32_t count;
    stage_crossing *tensors; /* [count], in the order of the layers that compute them */
    uint64_t numbers, gradient_numbers;
    uint32_t number_bytes;
    void **data;     /* [slots]; NULL without tensors */
    void **gradient; /* [slots]; NULL if backward does not reach the cut */
} stage_cut;

typedef struct stage_kind stage_kind;
typedef struct stage_backend stage_backend;
typedef struct stage_lowering stage_lowering;

typedef struct stage_node {
    const stage_kind *kind;
    const ty_layer *layer;
    uint32_t layer_index; /* in the workload */
    uint32_t input_count;
    uint32_t *inputs; /* values */
    bool *adds;       /* [input_count] adds to the input's gradient: a later node has written it */
    uint32_t output;  /* value */
    /* Per sample, of the layer's first input and its output: all of this rank's tokens, unsharded
     * by tensor parallelism. */
    ty_shape whole_input, whole_output;
    bool has_relu;         /* the output is that of the relu after it */
    const ty_layer *pool;  /* pools its images itself; or NULL */
    uint32_t tensor_count; /* parameter tensors */
    uint64_t offsets[LAYER_MAX_TENSORS];
    /* If a backend lays out the sets by itself: offsets in a weight version, in a set of gradients
     * and in the weights of the stage's type. */
    uint64_t float_offsets[LAYER_MAX_TENSORS], gradient_offsets[LAYER_MAX_TENSORS];
    uint64_t weight_offsets[LAYER_MAX_TENSORS];
    bool is_divided;       /* its parameters are sharded by tensor parallelism */
    bool is_matrix_frozen; /* tied to a frozen layer's */
    bool adds_matrix;      /* a later node with the same (tied) matrix has written its gradient */
    /* Of a norm: the sum of two tensors right before it, which its forward computes too. Of that
     * sum: whether a norm computes it. */
    const struct stage_node *sum;
    bool is_made_behind;
    uint64_t stash_bytes; /* stored from forward to backward, per slot */
    uint64_t scratch_bytes;
    uint64_t sum_floats;  /* of scratch for sums over rows */
    uint64_t tp_elements; /* of the largest tensor that it gathers or sums */
    void **tp_kept;       /* [slots]: the gathered input and gradient of the output, from the first
                               part of backward to the second; NULL: the backend keeps none */
    void **stash;         /* [slots] */
    bool is_kept;         /* recomputing skips it: its stash is per slot */
    uint64_t kept_bytes;  /* stored for recomputing, per slot: `again` computes the rest */
    void **kept;          /* [slots]; else the stash */
    uint64_t statistic_offset; /* in the stage's statistics */
    void *state;               /* the kind's own */
} stage_node;

#define STAGE_BIT(tensor) (1u << (tensor))

/** A layer's place in the lowering, before it has a node. */
typedef struct stage_place {
    uint32_t layer;
    const uint32_t *inputs; /* values */
    uint32_t output;        /* value */
} stage_place;

/** Elementwise layers: the gradients of relu and tanh are of their output, others of their input.
 */
typedef enum stage_activation { STAGE_RELU, STAGE_GELU, STAGE_SILU, STAGE_TANH } stage_activation;

/** A kind of layer on a backend. */
struct stage_kind {
    /** NULL: always. */
    ty_status (*supports)(const ty_workload *workload, uint32_t layer, ty_error *error);
    stage_order order; /* of inputs and output */
    uint32_t floats;   /* STAGE_BIT of the tensors that passes read as floats in any precision */
    bool fuses_relu;   /* a relu may be part of it, whose backward changes the output's gradient */
    bool fuses_pool;   /* and a pool */
    bool reads_output; /* backward reads the output, so that nothing may overwrite it */
    bool is_sum;       /* of its inputs from `first_summand` on, if it has several inputs */
    uint32_t first_summand;
    stage_activation activation; /* of stage_activation_forward and _backward */
    /** Joins the layer to an existing node, as part of it; or changes how the output is stored.
     * NULL, or false: the layer is a node of its own. */
    bool (*join)(stage_lowering *low, const stage_place *place);
    /** Once inputs and output are known: stash, scratch, state. NULL: nothing to do. */
    ty_status (*build)(ty_stage_device *stage, stage_node *node, ty_error *error);
    ty_status (*forward)(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                         ty_error *error);
    /** Forward from `kept` on; only if build has set kept_bytes. */
    ty_status (*again)(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                       ty_error *error);
    ty_status (*backward)(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                          bool is_first, ty_error *error);
    void (*release)(ty_stage_device *stage, stage_node *node); /* NULL: no state */
};

/* The gradients that backward computes. */
typedef enum stage_part { STAGE_BOTH, STAGE_INPUTS, STAGE_WEIGHTS } stage_part;

/** A pass of a slot, or of a range of its layers. */
typedef struct stage_pass {
    bool is_forward, is_again;   /* forward; forward of a recompute */
    stage_part part;             /* of backward */
    uint32_t slot, first, count; /* layers */
    bool is_first;               /* overwrites gradients of parameters */
} stage_pass;

/** Memory that lives as long as the stage. */
typedef struct stage_blocks {
    void **blocks;
    uint32_t count, room;
} stage_blocks;

struct ty_stage_device {
    const stage_backend *backend;
    ty_stage_options options;
    stage_segments segments;
    /* If the stage is recomputed: the memory that its segments share, each from the start, and
     * during allocation the bytes that each has taken. */
    stage_working_set working_set;
    stage_part part;         /* of the current backward, */
    uint32_t slot;           /* and its slot */
    uint64_t element;        /* bytes of a value's number, */
    ty_element element_kind; /* and their type */
    uint32_t value_count, node_count;
    stage_value *values;      /* [0] is the batch, or the first to cross the cut before the stage */
    stage_node *nodes;        /* in the order of forward */
    stage_cut before, behind; /* after a loss nothing crosses */
    int32_t **tokens, **labels; /* [slots] of the host's memory, or NULL */
    uint64_t labels_per_sample;
    stage_parameters placed;
    float *versions, *gradient_sets; /* weight versions, sets of gradients; `set_stride` apart */
    uint64_t set_stride;
    float *parameters, *gradients; /* of the sets in use */
    uint64_t statistic_count;
    float *statistics;      /* state of layers from step to step that is no parameter */
    bool is_evaluating;     /* forward is of a test set */
    void *scratch;          /* the largest of any node; contents do not outlive a call */
    void *gather_workspace; /* the largest tensor that is gathered or summed */
    void *parallel_message; /* the same in the order of messages, if that differs */
    stage_blocks blocks;
    uint64_t memory_bytes;
    struct stage_own *own; /* the backend's */
};

/** The functions of a backend that every stage needs. */
struct stage_backend {
    const char *name;
    const char *memory;             /* "GPU ", before "memory" in messages */
    const stage_kind *const *kinds; /* [TY_LAYER_KIND_COUNT]; NULL: cannot be trained */
    uint32_t alignment;             /* of parts of the working set, bytes */
    /** Whether messages are copied from and to values in any order. Else values that cross are
     * stored in the messages. */
    bool copies_messages;
    /** Zeroed memory that lives as long as the stage; NULL when there is none. */
    void *(*buffer)(ty_stage_device *stage, uint64_t bytes);
    void *(*host_buffer)(ty_stage_device *stage, uint64_t bytes);
    /** Allocates the backend's own memory, after that of nodes and values. False when there is
     * none. */
    bool (*allocate)(ty_stage_device *stage);
    /** One pass; the range has been checked. */
    ty_status (*pass)(ty_stage_device *stage, const stage_pass *pass, ty_error *error);

    /* On values' numbers, for elementwise layers (stage_joins.c): */
    /** to (+)= from. */
    void (*accumulate)(const ty_stage_device *stage, uint64_t count, const void *from, bool adds,
                       void *to);
    /** y = a + b, or 0 if that is less and there is a relu. */
    void (*sum)(const ty_stage_device *stage, uint64_t count, const void *a, const void *b,
                bool has_relu, void *y);
    ty_status (*clear)(ty_stage_device *stage, uint64_t bytes, void *to, ty_error *error);
    /** to (+)= from, of rows of `columns`, strides apart. */
    void (*copy_rows)(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                      const void *from, uint64_t from_stride, bool adds, void *to,
                      uint64_t to_stride);
    /** to (+)= from, of each sample's matrix [rows][columns] its transpose. */
    void (*transpose)(const ty_stage_device *stage, uint64_t rows, uint64_t columns,
                      const void *from, bool adds, void *to);
    void (*activate)(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                     const void *x, void *y);
    /** @param of the layer's output or input */
    void (*activate_backward)(const ty_stage_device *stage, stage_activation kind, uint64_t count,
                              const void *of, const void *dy, bool adds, void *dx);

    /* For collectives inside a pass (stage_parallel.c): */
    ty_status (*exchange)(ty_stage_device *stage, const ty_parallel_exchange *exchange,
                          ty_error *error);
    void (*to_pieces)(const ty_stage_device *stage, const stage_pieces *pieces, const void *whole,
                      void *message);
    void (*from_pieces)(const ty_stage_device *stage, const stage_pieces *pieces,
                        const void *message, void *whole);
};

/* ---- Opening and closing (stage_build.c, stage_memory.c) ---- */

/** Whether the backend has all kinds and options of these layers; else the status says which not.
 */
ty_status stage_supports(const stage_backend *backend, const ty_workload *workload,
                         uint32_t first_layer, uint32_t layer_count, ty_error *error) TY_MUST_CHECK;
ty_status stage_options_check(const stage_backend *backend, const ty_stage_options *options,
                              ty_error *error) TY_MUST_CHECK;
/** An empty stage with `own_bytes` of zeros for the backend. */
ty_status stage_new(const stage_backend *backend, const ty_stage_options *options, size_t own_bytes,
                    ty_stage_device **out, ty_error *error) TY_MUST_CHECK;
/** Lowers the stage's layers into values and nodes and allocates everything but parameters.
 * `element` and messages' `number_bytes` are set. */
ty_status stage_build(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;
/** The first releases the nodes' states; the second all else except the backend's buffers. */
void stage_nodes_release(ty_stage_device *stage);
void stage_clear(ty_stage_device *stage);
/** False when there is no memory for the list. */
bool stage_block_keep(stage_blocks *blocks, void *block);
/** Allocates everything that lowering has found except messages. False when memory runs out. */
bool stage_memory_allocate(ty_stage_device *stage);
/** A pointer per slot; one block for all of them, or one each. NULL when memory runs out. */
void *stage_slots(ty_stage_device *stage, uint64_t bytes, bool is_shared,
                  void *(*allocate)(ty_stage_device *stage, uint64_t bytes));
/** Initial weights, in the host's memory. @param parameters [placed.count] */
void stage_weights_fill(const ty_stage_device *stage, float *parameters);

/* ---- For `join` (stage_build.c) ---- */

struct stage_lowering {
    ty_stage_device *stage;
    const ty_workload *workload;
    uint32_t first, end; /* layers */
    uint32_t value_room, node_room;
    uint32_t before_count, *before; /* layers whose outputs cross the cut before the stage */
    uint32_t behind_count, *behind; /* and the cut after it */
    uint32_t *values; /* [before + layers]: of tensors that cross (the batch counts as one), then of
                         each layer */
    uint32_t *readers; /* likewise: number of layers of the stage that read it */
    bool *trains;      /* [layer_count of the workload]: a parameter at or before it is trained */
};

/** The value that a layer computes. */
uint32_t stage_value_of(const stage_lowering *low, uint32_t layer);
/** Makes `alias` another name of `value`: same memory, same gradient. */
void stage_value_share(stage_lowering *low, uint32_t value, uint32_t alias);
/** The last node so far, or NULL. */
static inline stage_node *stage_last_node(const stage_lowering *low)
{
    return low->stage->node_count > 0 ? &low->stage->nodes[low->stage->node_count - 1] : NULL;
}

/* ---- Gradients (stage_gradients.c) ---- */

/** Decides which values share a gradient, and which node is the first to write each. */
ty_status stage_gradients_place(ty_stage_device *stage, ty_error *error) TY_MUST_CHECK;

/* ---- Cuts (stage_cut.c) ---- */

/** Adds a tensor that crosses; in order. @param has_gradient_part whether backward reaches it */
ty_status stage_cut_add(ty_stage_device *stage, stage_cut *cut, uint32_t value,
                        bool has_gradient_part, ty_error *error) TY_MUST_CHECK;
/** Allocates both messages, and the values stored in them. False when memory runs out. */
bool stage_cuts_allocate(ty_stage_device *stage);
/** Whether this stage has a gradient for it. A gradient that no layer needs stays 0 in the message.
 */
static inline bool stage_has_gradient(const ty_stage_device *stage, const stage_crossing *tensor)
{
    return tensor->has_gradient_part && stage->values[tensor->value].needs_gradient;
}
/** The part of a message at an offset. */
static inline void *stage_part_at(const stage_cut *cut, void *message, uint64_t offset)
{
    return (char *)message + offset * cut->number_bytes;
}

/* ---- Passes (stage_device.c) ---- */

ty_status stage_nodes_forward(ty_stage_device *stage, const stage_pass *pass,
                              ty_error *error) TY_MUST_CHECK;
ty_status stage_nodes_backward(ty_stage_device *stage, const stage_pass *pass,
                               ty_error *error) TY_MUST_CHECK;
/** Whether a pass has the stage's last layer, or its first. */
static inline bool stage_pass_has_last(const ty_stage_device *stage, const stage_pass *pass)
{
    return stage_range_has_last(&stage->options, pass->first, pass->count);
}
static inline bool stage_pass_has_first(const ty_stage_device *stage, const stage_pass *pass)
{
    return pass->count > 0 && pass->first == stage->options.first_layer;
}

/* ---- Functions of device.h that are the same for all (stage_device.c) ---- */

int32_t *stage_tokens(ty_stage_device *stage, uint32_t slot);
int32_t *stage_labels(ty_stage_device *stage, uint32_t slot);
float *stage_output(ty_stage_device *stage, uint32_t slot);
float *stage_input_gradient(ty_stage_device *stage, uint32_t slot);
float *stage_output_gradient(ty_stage_device *stage, uint32_t slot);
ty_status stage_forward(ty_stage_device *stage, uint32_t slot, uint32_t first, uint32_t count,
                        ty_error *error);
ty_status stage_recompute(ty_stage_device *stage, uint32_t slot, uint32_t first, uint32_t count,
                          ty_error *error);
ty_status stage_backward(ty_stage_device *stage, uint32_t slot, uint32_t first, uint32_t count,
                         bool is_first, ty_error *error);
ty_status stage_backward_input(ty_stage_device *stage, uint32_t slot, uint32_t first,
                               uint32_t count, ty_error *error);
ty_status stage_backward_weight(ty_stage_device *stage, uint32_t slot, uint32_t first,
                                uint32_t count, bool is_first, ty_error *error);
float *stage_statistics(ty_stage_device *stage, uint64_t *count);
void stage_set_evaluating(ty_stage_device *stage, bool is_evaluating);
uint64_t stage_parameter_count(const ty_stage_device *stage);
float *stage_weights(ty_stage_device *stage);
float *stage_gradients(ty_stage_device *stage);
void stage_select_gradients(ty_stage_device *stage, uint32_t set);
void stage_slice(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                 uint64_t *offset, uint64_t *count);
void stage_tied_slice(const ty_stage_device *stage, uint64_t *offset, uint64_t *count);
uint64_t stage_ranks_join(const ty_stage_device *stage, uint32_t layer, bool is_tied,
                          const float *parts, float *whole);
void stage_expert_slice(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                        uint64_t *offset, uint64_t *count);
uint64_t stage_experts_join(const ty_stage_device *stage, uint32_t layer, const float *parts,
                            float *whole);
uint64_t stage_memory_bytes(const ty_stage_device *stage);

#define STAGE_FUNCTIONS                                                                            \
    .tokens = stage_tokens, .labels = stage_labels, .output = stage_output,                        \
    .input_gradient = stage_input_gradient, .output_gradient = stage_output_gradient,              \
    .forward = stage_forward, .recompute = stage_recompute, .backward = stage_backward,            \
    .backward_input = stage_backward_input, .backward_weight = stage_backward_weight,              \
    .statistics = stage_statistics, .set_evaluating = stage_set_evaluating,                        \
    .parameter_count = stage_parameter_count, .parameters = stage_weights,                         \
    .gradients = stage_gradients, .select_gradients = stage_select_gradients,                      \
    .slice = stage_slice, .tied_slice = stage_tied_slice, .shards_join = stage_ranks_join,         \
    .expert_slice = stage_expert_slice, .experts_join = stage_experts_join,                        \
    .memory_bytes = stage_memory_bytes

/* ---- Elementwise layers (stage_joins.c) ---- */

ty_status stage_add_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                            ty_error *error);
/** Computes the summands' gradients. */
ty_status stage_add_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             bool is_first, ty_error *error);
ty_status stage_concat_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               ty_error *error);
ty_status stage_concat_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                bool is_first, ty_error *error);
ty_status stage_slice_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error);
ty_status stage_slice_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error);
ty_status stage_activation_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   ty_error *error);
ty_status stage_activation_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    bool is_first, ty_error *error);
/** A copy from the input's order to the output's. */
extern const stage_kind stage_reorder;

/* ---- Collectives inside a pass (stage_parallel.c) ---- */

/** Sum, or the largest, over the tensor-parallel ranks, in place. */
ty_status stage_ranks_all_reduce(ty_stage_device *stage, bool is_maximum, uint64_t count,
                                 float *data, ty_error *error) TY_MUST_CHECK;
/** Sums the ranks' summands of a tensor of that shape per sample; `to` gets this rank's shard of
 * the sum. `summand`, which may be `to`, is used up. Nothing to do for layers that are not sharded.
 */
ty_status stage_ranks_sum(ty_stage_device *stage, const stage_node *node, const ty_shape *shape,
                          void *summand, bool adds, void *to, ty_error *error) TY_MUST_CHECK;
/** A layer's unsharded input, or gradient of its output; gathered into `room` if it is sharded. If
 * there are two inputs, the second has the output's shape. */
ty_status stage_whole_input(ty_stage_device *stage, const stage_node *node, uint32_t input,
                            uint32_t slot, void *room, const void **out,
                            ty_error *error) TY_MUST_CHECK;
ty_status stage_whole_gradient(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               void *room, const void **out, ty_error *error) TY_MUST_CHECK;
/** Rows of all sequences of a micro-batch, [B][sequence][columns]. A context-parallel rank has
 * [B][T / n][columns] of n ranks, `stride` elements apart. */
typedef struct stage_context_rows {
    uint64_t sequence, columns, stride;
} stage_context_rows;
/** Gathers all rows from those of the ranks. @param message room for all rows, too */
ty_status stage_context_gather(ty_stage_device *stage, const stage_context_rows *rows,
                               const void *own, void *message, void *whole,
                               ty_error *error) TY_MUST_CHECK;
/** This rank's rows of the sum over ranks. */
ty_status stage_context_scatter(ty_stage_device *stage, const stage_context_rows *rows,
                                const void *whole, void *message, void *own,
                                ty_error *error) TY_MUST_CHECK;

/* ---- For the layers ---- */

static inline uint64_t stage_batch(const ty_stage_device *stage)
{
    return stage->options.micro_batch_size;
}

/** Whether the model ends here. */
static inline bool stage_has_loss(const ty_stage_device *stage)
{
    return stage->behind.count == 0;
}

/** Weight versions, and sets of gradients. */
static inline uint32_t stage_version_count(const ty_stage_device *stage)
{
    return stage->options.versions > 0 ? stage->options.versions : 1;
}
static inline uint32_t stage_gradient_set_count(const ty_stage_device *stage)
{
    return stage->options.gradient_sets > 0 ? stage->options.gradient_sets : 1;
}

/** Whether the gradient of a tensor is added to what is there rather than written. */
static inline bool stage_adds(const stage_node *node, uint32_t tensor, bool is_first)
{
    return !is_first || (tensor == 0 && node->adds_matrix);
}

/** Whether a parameter tensor has no gradient, now or ever. */
static inline bool stage_is_frozen(const ty_stage_device *stage, const stage_node *node,
                                   uint32_t tensor)
{
    return node->layer->is_frozen || (tensor == 0 && node->is_matrix_frozen) ||
           stage->part == STAGE_INPUTS;
}

static inline uint64_t stage_channels(const stage_value *value)
{
    return value->shape.dimensions[0];
}

/** Pixels of a sample. */
static inline uint64_t stage_pixels(const stage_value *value)
{
    return ty_shape_elements(&value->shape) / stage_channels(value);
}

/** Whether a value's memory order differs from planes. */
static inline bool stage_is_channels_last(const stage_value *value)
{
    return value->order == STAGE_CHANNELS_LAST && stage_channels(value) > 1 &&
           stage_pixels(value) > 1;
}

/** Rows of a value that is no image, as a matrix whose columns are its innermost dimension. */
static inline uint64_t stage_rows(const stage_value *value)
{
    return value->count / value->shape.dimensions[value->shape.dimension_count - 1];
}

/** Whether a sharded layer has to gather its input and its output's gradient. */
static inline bool stage_gathers(const ty_stage_device *stage, const stage_node *node)
{
    return node->is_divided && stage->options.parallel.divides_sequence;
}

/** Where a sharded layer writes its summand of `to`: there, unless it is added to a gradient or is
 * more than this rank's shard. An unsharded layer adds by itself. NULL stays NULL. */
static inline void *stage_summand(const ty_stage_device *stage, const stage_node *node, bool adds,
                                  void *to)
{
    bool is_apart = node->is_divided && (adds || stage->options.parallel.divides_sequence);

    return to != NULL && is_apart ? stage->gather_workspace : to;
}

#endif
