/**
 * @file ty_workload.h
 * Models.
 *
 *   precision  the numbers that layers compute with
 *   workload   a model as a graph of layers
 */
#ifndef TY_WORKLOAD_H
#define TY_WORKLOAD_H

#include "ty_base.h"
#include "ty_json.h"

#include <stdbool.h>
#include <stdint.h>

/* ==== precision =============================================================================== */

/*
 * In what numbers layers compute: one enumeration for plans, profiles, runs and launch files.
 *
 *     ty_precision precision;
 *     TY_CHECK(ty_precision_find("bf16", &precision, error), status, done);
 *     ty_workload_set_precision(workload, precision);
 *
 * Weights that are updated, gradients and the optimizer's state are fp32 in all of them
 * (Micikevicius et al., "Mixed Precision Training", ICLR 2018). Sources of the narrow ones:
 * Micikevicius et al., "FP8 Formats for Deep Learning", 2022, arXiv:2209.05433; NVIDIA Transformer
 * Engine for which products are narrow: those of attention's projections, of mlps and of experts.
 * Attention itself, a head over a vocabulary, norms and what lies between layers stay in bf16.
 */

typedef enum ty_precision {
    TY_PRECISION_FP32,
    TY_PRECISION_TF32, /* numbers of 4 bytes, products of 10-bit significands, sums in fp32 */
    TY_PRECISION_BF16,
    TY_PRECISION_FP16, /* with loss scaling */
    TY_PRECISION_FP8,  /* narrow products of 8 bits, whatever their scaling; the rest bf16 */
    TY_PRECISION_FP4,  /* narrow products of 4 bits (NVFP4, MXFP4); the rest bf16 */
    TY_PRECISION_COUNT
} ty_precision;

#define TY_PRECISION_NAMES "fp32, tf32, bf16, fp16, fp8 or fp4"

const char *ty_precision_name(ty_precision precision); /* "fp32", ... */
/** From its name. @return TY_EINVAL: what was found and what there is */
ty_status ty_precision_find(const char *name, ty_precision *out, ty_error *error) TY_MUST_CHECK;

/** Bytes of a weight as layers read it and of a number between layers: 4 or 2. */
uint32_t ty_precision_bytes(ty_precision precision);
/** Whether products of weights are narrower than what lies between layers. */
bool ty_precision_is_narrow(ty_precision precision);
/** Bytes of a number in narrow products: 1, 0.5 or, where there are none, 0. */
double ty_precision_narrow_bytes(ty_precision precision);

/* ==== workload ================================================================================ */

/*
 * A workload: a network as a directed acyclic graph of layers, and what its batches are made of.
 *
 * Layers are stored in a topological order: a layer's inputs have smaller indices. A pipeline
 * stage is a contiguous range of that order. All sizes are per sample (an image, or a whole
 * sequence), so that any micro-batch follows by multiplication; parameters are per layer. Byte
 * figures hold for `element_bytes` per number (4: fp32); a plan in another precision scales them.
 *
 * The builders that make workloads are in workloads/; this header has what planner, simulator and
 * worker must agree on.
 */

/** Kinds of layers: the enumerator and the symbol of the kind in core/model/layers/. */
#define TY_LAYER_KINDS(KIND)                                                                       \
    KIND(LINEAR, linear) /* y = x W^T + b over the last dimension */                               \
    KIND(CONV2D, conv2d) /* [C,H,W] -> [C',H',W'] */                                               \
    KIND(BATCH_NORM, batch_norm)                                                                   \
    KIND(LAYER_NORM, layer_norm)                                                                   \
    KIND(RMS_NORM, rms_norm)                                                                       \
    KIND(POOL, pool) /* maximum or average over a window, or over the image */                     \
    KIND(RELU, relu)                                                                               \
    KIND(GELU, gelu) /* the tanh form, as in GPT-2 */                                              \
    KIND(SILU, silu)                                                                               \
    /* tokens [T] -> [T,D], with learned positions if `positions` > 0 */                           \
    KIND(EMBEDDING, embedding)                                                                     \
    /* [T,D] -> [T,D]: query/key/value projection, softmax(QK^T)V, output projection. Of two       \
     * inputs the first has the keys and values, the second the queries */                         \
    KIND(ATTENTION, attention)                                                                     \
    KIND(MLP, mlp) /* [T,D] -> [T,D]: linear, activation (gelu unless gated), linear */            \
    KIND(MOE, moe) /* [T,D] -> [T,D]: a router, mlps as experts, shared ones for all tokens */     \
    KIND(LSTM, lstm)                                                                               \
    /* mean loss over the labels; always the last layer. Of one class: the logistic loss of its    \
     * score, labels 1 and 0 */                                                                    \
    KIND(SOFTMAX_CROSS_ENTROPY, softmax_cross_entropy)                                             \
    KIND(ADD, add)         /* sum of all inputs */                                                 \
    KIND(CONCAT, concat)   /* along the first dimension, or the last one */                        \
    KIND(FLATTEN, flatten) /* any shape -> [n] */                                                  \
    KIND(TANH, tanh)                                                                               \
    KIND(SLICE, slice) /* `rows` from `first_row` on of the first dimension */                     \
    /* [S,D] and [T,Q] -> [T,D]: rows of the first input weighted by                               \
     * softmax(g v/|v| tanh(Wq x + Wk m + b)), m and x being rows of the first and of the second   \
     * (Bahdanau, normalised) */                                                                   \
    KIND(ADDITIVE_ATTENTION, additive_attention)                                                   \
    /* [T,D] -> [T,D]: projection, convolution along the sequence, a selective state space,        \
     * projection (Mamba, Mamba-2) */                                                              \
    KIND(STATE_SPACE, state_space)                                                                 \
    /* [T,D] -> [T,D]: the same with linear attention by the gated delta rule */                   \
    KIND(GATED_DELTA, gated_delta)                                                                 \
    /* the batch [N] -> [D]: `rows` of its numbers, from `first_row` on, are indices of rows of a  \
     * table, which are summed or averaged */                                                      \
    KIND(EMBEDDING_BAG, embedding_bag)                                                             \
    /* n vectors [D] -> [D + n (n - 1) / 2]: the first one, then the product of each with every    \
     * one before it */                                                                            \
    KIND(DOT_INTERACTION, dot_interaction)                                                         \
    KIND(OPAQUE, opaque) /* only sizes and times: planned, simulated, replayed, never trained */

#define TY_LAYER_ENUMERATOR(NAME, symbol) TY_LAYER_##NAME,
typedef enum ty_layer_kind {
    TY_LAYER_KINDS(TY_LAYER_ENUMERATOR) TY_LAYER_KIND_COUNT
} ty_layer_kind;

/** Attributes are unsigned integers; which ones a kind has is a table (ty_layer_attribute_use). */
typedef enum ty_attribute {
    TY_IN_FEATURES,
    TY_OUT_FEATURES,
    TY_HAS_BIAS,
    TY_IN_CHANNELS,
    TY_OUT_CHANNELS,
    TY_KERNEL_HEIGHT,
    TY_KERNEL_WIDTH,
    TY_STRIDE,
    TY_PADDING_HEIGHT,
    TY_PADDING_WIDTH,
    TY_GROUPS,
    TY_IS_AVERAGE, /* pool: mean instead of maximum; embedding_bag: instead of the sum */
    TY_IS_GLOBAL,  /* pool: the window is the whole image */
    TY_FEATURES,   /* norms, attention, mlp: size of the normalised or model dimension */
    TY_HIDDEN_FEATURES,
    TY_IS_GATED, /* mlp: SwiGLU, three matrices */
    TY_VOCABULARY,
    TY_POSITIONS,
    TY_HEADS,
    TY_KV_HEADS,
    TY_HEAD_SIZE,
    TY_IS_CAUSAL,
    TY_EXPERTS,
    TY_EXPERTS_PER_TOKEN,
    TY_CLASSES,
    TY_FIRST_ROW, /* slice; embedding_bag: place of the first index in a sample, */
    TY_ROWS,      /* and how many there are */
    /* Optional ones. */
    TY_TOKEN_TYPES,     /* embedding: rows of a table of segments, as in BERT */
    TY_VALUE_HEAD_SIZE, /* attention: of values, where it is not head_size */
    TY_HAS_QKV_BIAS,    /* attention: biases of queries, keys and values but not of the output */
    TY_HAS_QK_NORM, /* attention: rms norms of every head's queries and keys, shared by the heads */
    TY_QUERY_RANK,  /* attention with latents (DeepSeek-V2): numbers the queries are made from */
    TY_KV_RANK,     /* ... and keys and values; latents have rms norms */
    TY_ROTARY_SIZE, /* ... and how much of head_size is rotated: one key for all heads */
    TY_RELATIVE_BUCKETS, /* attention: learned biases of the scores, per bucket of distances and
                            head */
    TY_IS_FUSED, /* attention: scores are made anew in backward, never kept (FlashAttention) */
    TY_IS_RELU,  /* mlp: relu instead of gelu */
    TY_SHARED_FEATURES, /* moe: hidden features of the shared experts, all together */
    TY_HAS_ROUTER_BIAS, /* moe: a number per expert added to its score */
    TY_IS_REVERSED,     /* lstm: from the last step to the first */
    TY_IS_OF_FEATURES,  /* concat: along the last dimension */
    TY_WINDOW,          /* attention: a query meets at most so many keys, the nearest before it */
    TY_CHOSEN_ROWS, /* attention: a query meets at most so many keys, which an indexer chooses */
    TY_INDEX_HEADS, /* ... of so many heads of queries and one of keys */
    TY_INDEX_HEAD_SIZE,
    TY_HAS_SINKS,        /* attention: a learned score per head that no key has */
    TY_HAS_GATE,         /* attention: context times a sigmoid of a projection of the input; moe: of
                            the shared experts' sum, one number a token */
    TY_HAS_WIDE_QK_NORM, /* attention: rms norms of all heads' queries, and keys, together, or of
                            every head with gains of its own */
    TY_LACKS_KEY_BIAS,   /* attention: has_bias but for the keys */
    TY_SHARES_KV,        /* attention: values are the keys, of one projection */
    TY_LATENT_FEATURES,  /* moe: experts read and write so many features, which two matrices make of
                            the model's and make them of */
    TY_LACKS_SHIFT,      /* layer_norm: gains only */
    TY_IS_SHARED,        /* attention, mlp, layer_norm: parameters are those of the first such layer
                          * (ALBERT)
                          */
    TY_STATE_SIZE,       /* state_space: numbers of state per channel */
    TY_STEP_RANK, /* state_space of Mamba: numbers its steps are made from; Mamba-2 has heads */
    TY_HAS_STEP_NORMS, /* ... which have rms norms, as have what writes and reads the state (Jamba)
                        */
    TY_ATTRIBUTE_COUNT
} ty_attribute;

typedef enum ty_attribute_use {
    TY_ATTRIBUTE_UNUSED,
    TY_ATTRIBUTE_REQUIRED,
    TY_ATTRIBUTE_OPTIONAL /* 0: absent, from files and signatures too */
} ty_attribute_use;

/**
 * How tensor parallelism splits a layer (Shoeybi et al., "Megatron-LM", 2019, section 3;
 * Korthikanti et al., "Reducing Activation Recomputation", 2022, section 4.2).
 */
typedef enum ty_tensor_split {
    TY_SPLIT_NONE,      /* each rank has the whole layer */
    TY_SPLIT_SEQUENCE,  /* each rank has all weights; sequence parallelism splits work and
                           activations: norms, activations, residual additions */
    TY_SPLIT_HEADS,     /* attention: by heads */
    TY_SPLIT_HIDDEN,    /* mlp and its gate: by hidden features */
    TY_SPLIT_EXPERTS,   /* moe: by the hidden features of each expert */
    TY_SPLIT_VOCABULARY /* embeddings, the output projection and the loss of its scores */
} ty_tensor_split;

typedef enum ty_layer_table {
    TY_TABLE_NONE,
    TY_TABLE_OF_TOKENS, /* an embedding */
    TY_TABLE_OF_BAG     /* an embedding bag, whose tables expert parallelism may shard */
} ty_layer_table;

/**
 * Properties of every layer of a kind. Code reads these and compares no kinds; shapes, tensors and
 * formulas are in the kind's file in core/model/layers/.
 */
typedef struct ty_layer_row {
    const char *name;                   /* "conv2d" */
    uint64_t required, optional;        /* sets of attributes: bit a for attribute a */
    uint32_t least_inputs, most_inputs; /* most_inputs 0: one, or the batch */
    uint32_t products; /* consecutive matrix products; 2 stands for more. Opaque layers: 0 */
    uint32_t matrices; /* leading tensors that are weight matrices of products or tables */
    ty_layer_table table;
    ty_tensor_split split;                /* at most: ty_layer_tensor_split has the conditions */
    ty_attribute tied_rows, tied_columns; /* of the matrix other layers may use; equal: none */
    bool is_opaque;
    bool is_loss;
    bool is_norm;        /* of the last dimension */
    bool subtracts_mean; /* of norms: layer norm, not RMS norm */
    bool has_statistics; /* running mean and variance of `features` */
    bool is_convolution;
    bool is_recurrent; /* low-rank compressors send its matrices whole */
    bool is_sum;
    bool is_view;        /* its input under another shape, in the same memory */
    bool works_in_place; /* if no other layer reads its input */
    bool is_pass;        /* bound by memory bandwidth: its time is that of its traffic */
    bool is_elementwise; /* recompute=elementwise recomputes all of it */
    bool has_activation; /* it recomputes the activation function inside */
    bool has_second;     /* recompute=operator recomputes its second product */
    bool ignores_output; /* backward does not read the layer's own output */
    bool has_experts;
    bool reads_tokens;
    bool is_of_tokens; /* the same for every token of a sequence, or attention */
    bool mixes_tokens; /* once per transformer block, or in place of attention */
} ty_layer_row;

const char *ty_layer_kind_name(ty_layer_kind kind);    /* "conv2d" */
const char *ty_attribute_name(ty_attribute attribute); /* "in_channels": also the JSON key */
/** Whether layers of `kind` have `attribute`; in JSON a required one must be there, unused ones
 * must not. */
ty_attribute_use ty_layer_attribute_use(ty_layer_kind kind, ty_attribute attribute);

#define TY_MAX_DIMENSIONS 4
#define TY_NO_LAYER UINT32_MAX

/** Shape of one sample's tensor, outermost first: image {C,H,W}, sequence {T,D}, vector {N}. */
typedef struct ty_shape {
    uint32_t dimension_count;
    uint64_t dimensions[TY_MAX_DIMENSIONS];
} ty_shape;
uint64_t ty_shape_elements(const ty_shape *shape); /* product; 1 for no dimension */
/** "1x28x28". */
#define TY_SHAPE_TEXT_SIZE 88
void ty_shape_text(const ty_shape *shape, char out[TY_SHAPE_TEXT_SIZE]);

typedef struct ty_layer {
    char *name; /* unique in the workload */
    ty_layer_kind kind;
    uint64_t attributes[TY_ATTRIBUTE_COUNT]; /* unused ones are 0 */
    uint32_t input_count;
    uint32_t *inputs; /* producers, ascending; none: reads the batch */
    uint32_t tied_to; /* an earlier layer whose weight matrix this one uses, or TY_NO_LAYER */
    bool is_frozen;   /* no gradient, no update; see ty_workload_first_backward */
    ty_shape output;  /* per sample */
    double forward_flop, backward_flop; /* per sample */
    uint64_t parameter_bytes; /* of this layer's own parameters; tied weights count at the owner */
    uint64_t output_bytes;    /* per sample */
    uint64_t stash_bytes;     /* per sample: kept from forward until backward is done: the layer's
                                 output     and what else its backward needs, but not its inputs, which
                                 count where     they are made. 0 where the output lies in its input's
                                 memory: flatten, and a relu that alone reads its input */
    uint64_t traffic_bytes;   /* per sample: activations read and written by forward (roofline) */
    uint32_t kernel_count;    /* launches of one forward pass on an accelerator */
    double measured_forward_s, measured_backward_s; /* per sample; opaque layers only, else 0 */
} ty_layer;

/** The row of a layer's kind; that of opaque layers if the kind is out of range. */
const ty_layer_row *ty_layer_row_of(const ty_layer *layer);

typedef enum ty_input_kind { TY_INPUT_REAL, TY_INPUT_TOKEN } ty_input_kind;

typedef enum ty_optimizer_kind { TY_OPTIMIZER_SGD, TY_OPTIMIZER_ADAMW } ty_optimizer_kind;
typedef struct ty_optimizer {
    ty_optimizer_kind kind;
    double learning_rate;
    double momentum;              /* sgd */
    double beta1, beta2, epsilon; /* adamw */
    double weight_decay;          /* sgd: added to the gradient; adamw: decoupled */
} ty_optimizer;
const char *ty_optimizer_name(ty_optimizer_kind kind); /* "sgd", "adamw" */
/** State numbers kept per parameter: 0 or 1 for SGD (momentum), 2 for AdamW. */
uint32_t ty_optimizer_state_count(const ty_optimizer *optimizer);

/** How parameters get better, and so what a step has to compute and exchange. */
typedef enum ty_learning {
    TY_LEARNING_GRADIENT,
    /* Every sample is a member of a population, evaluated forward only, with parameters of its own:
     * the shared ones plus noise from a seed. Members' scores are exchanged, never gradients; every
     * replica makes all members' noise anew to update its copy. Source: Salimans et al., "Evolution
     * Strategies as a Scalable Alternative to Reinforcement Learning", arXiv:1703.03864, algorithm
     * 2. */
    TY_LEARNING_EVOLUTION,
    /* Every sample is an episode that the policy, which is what learns, has played in an
     * environment: of each of its steps what was seen, the action that was drawn, and how much
     * better what came of it was than usual, its advantage. The loss is the cross entropy of the
     * drawn actions, each times its advantage, so that gradients are exchanged as ever. Source:
     * Williams, "Simple statistical gradient-following algorithms for connectionist reinforcement
     * learning", Machine Learning 8, 1992 (REINFORCE). Who plays, and with which weights:
     * ty_plan.h, "Actors". */
    TY_LEARNING_REINFORCEMENT,
    TY_LEARNING_COUNT
} ty_learning;
const char *ty_learning_name(ty_learning learning); /* "gradient", "evolution", "reinforcement" */

/**
 * Semi-supervised learning: frozen layers are a teacher, an average of the weights that the trained
 * ones, the student, had; the student learns from the few labels there are, and everywhere from
 * what the teacher says of another view of the sample. Source: Tarvainen and Valpola, "Mean
 * teachers are better role models", arXiv:1703.01780.
 *
 * A sample is two views of one of the data set, [2 C,H,W] or [2 N], the teacher's first. The loss
 * reads both networks' scores, [2 classes], the teacher's first; of a batch of B it is
 *
 *     (every / B) sum over labelled of -log p_student[label]
 *         + (consistency / B) sum over all of mean over classes of (p_student - p_teacher)^2.
 *
 * The n-th frozen layer with parameters follows the n-th trained one, which it is like: it starts
 * as that, and behind each update becomes decay x itself + (1 - decay) x the other. The teacher is
 * what is evaluated.
 */
typedef struct ty_teacher {
    uint32_t
        labelled;   /* samples of the data set whose labels may be seen; 0: there is no teacher */
    uint32_t every; /* of a batch every so manieth sample is one of these; others have no label */
    double decay;   /* of the teacher's weights in a step; 0 <= decay < 1 */
    double consistency; /* >= 0 */
    uint32_t shift;     /* pixels by which each view is displaced, at most, in either direction */
} ty_teacher;

/** What is asked of a workload's layers again and again; made by ty_workload_index_make. */
typedef struct ty_workload_index {
    uint32_t *last_readers; /* [layer_count]: the last that reads a layer's output; itself: none */
    uint64_t *cut_bytes;    /* [layer_count]: ty_workload_cut_bytes */
    uint32_t block_count, head;
    uint32_t *blocks; /* [block_count], ascending: ty_workload_blocks */
} ty_workload_index;

typedef struct ty_workload {
    char *name;
    char *source; /* where the shape comes from: a paper, a model card, an imported file */
    uint32_t element_bytes; /* of a number between layers: ty_precision_bytes(precision) where that
                               was chosen here, else what a file says */
    ty_precision precision; /* what layers compute in; fp32 for numbers of any other size than 2 */
    ty_input_kind input_kind;
    ty_shape input;             /* per sample; tokens: {T} */
    uint64_t sample_bytes;      /* read from storage per sample, labels included */
    uint64_t tokens_per_sample; /* sequence length; 0 where samples are not sequences */
    char *dataset;              /* "fashion-mnist", "text", or "synthetic" */
    uint32_t global_batch;      /* the usual batch, used when the user names none */
    ty_optimizer optimizer;     /* the usual optimizer */
    /* Members of scenarios; all 0 in ordinary training (docs/guides/scenarios.md). */
    ty_learning learning;
    uint32_t local_steps; /* steps a replica does alone before weights are averaged (federated);
                             0: gradients are averaged in every step */
    uint64_t rotary_base; /* of rotary positions, as the model's configuration says it: by them the
                             worker turns queries and keys of attention to the own sequence, and
                             training programs want it; estimates leave it out. 0: none, or not said
                           */
    double input_s_per_sample; /* of a source that makes samples in its own time, a sensor or an
                                  environment with its actors; every replica of the first stage has
                                  one. 0: samples lie in storage */
    ty_teacher teacher;
    double deviation; /* evolution: of the noise that makes a member of the shared parameters; 0:
                         not said, so that it is planned and not run */
    uint32_t layer_count;
    ty_layer *layers;
    ty_workload_index index;
} ty_workload;

ty_status ty_workload_load(const char *path, ty_workload **out, ty_error *error) TY_MUST_CHECK;
/** From an object inside another document; `trainyard.workload/1` as in
 * docs/reference/file-formats.md. */
ty_status ty_workload_from_json(const ty_json *object, ty_workload **out,
                                ty_error *error) TY_MUST_CHECK;
/** Appends the workload as a JSON object (key NULL: the root). */
void ty_workload_to_json(const ty_workload *workload, ty_json_writer *writer, const char *key);
/** The member "teacher" of a document: `labelled`, `every`, `decay`, `consistency`, `shift`. */
ty_status ty_teacher_read(const ty_json *object, ty_teacher *teacher,
                          ty_error *error) TY_MUST_CHECK;
ty_status ty_workload_save(const ty_workload *workload, const char *path,
                           ty_error *error) TY_MUST_CHECK;
/**
 * Everything that must hold of a workload made by hand or read from a file: names unique, inputs
 * earlier, every layer but the last used, shapes that fit their kinds, finite quantities >= 0, tied
 * layers of the same matrix shape. TY_EPARSE with a pointer ("/layers/3/inputs/0: ...").
 */
ty_status ty_workload_check(const ty_workload *workload, const char *name,
                            ty_error *error) TY_MUST_CHECK;
/**
 * Finds what crosses cuts and which blocks repeat. Whoever makes a workload calls it when all
 * layers are there, as files' readers and the builder do, and who changes layers, inputs or sizes
 * afterwards calls it again. @return TY_ENOMEM
 */
ty_status ty_workload_index_make(ty_workload *workload, ty_error *error) TY_MUST_CHECK;
void ty_workload_index_clear(ty_workload *workload);
void ty_workload_free(ty_workload *workload);
/** Weights and activations in another precision (ty_workload.h): all sizes in proportion. */
void ty_workload_set_precision(ty_workload *workload, ty_precision precision);

/** Digest of the canonical JSON: equal exactly when two workloads are. */
ty_status ty_workload_digest(const ty_workload *workload, ty_digest *out,
                             ty_error *error) TY_MUST_CHECK;
/** Of the network alone, whatever the size of its images: equal where one's parameters are the
 * other's. */
ty_status ty_workload_network_digest(const ty_workload *workload, ty_digest *out,
                                     ty_error *error) TY_MUST_CHECK;

/** Shape of the layer's i-th input: the batch's shape for a layer without inputs. */
const ty_shape *ty_layer_input_shape(const ty_workload *workload, uint32_t layer, uint32_t i);
/**
 * The shape of a layer's output, by its kind, its attributes and the shapes of its inputs; of an
 * opaque layer the one that it has.
 * @return TY_EINVAL for an input that does not fit: "found linear input 784, expected a last
 *         dimension of in_features 400". O(1), of joins O(inputs).
 */
ty_status ty_layer_shape(const ty_workload *workload, uint32_t layer, ty_shape *out,
                         ty_error *error) TY_MUST_CHECK;
/**
 * Sets flop, bytes and kernel count of a layer whose kind, attributes, inputs, tie and output shape
 * are set. Opaque layers keep their flop and parameters.
 * @param needs_input_gradient whether backward computes the gradient of the layer's input: not if
 *                             nothing before it is trained. A frozen layer computes no other
 * @return TY_EINVAL for a figure above 2^53
 */
ty_status ty_layer_set_quantities(ty_workload *workload, uint32_t layer, bool needs_input_gradient,
                                  ty_error *error) TY_MUST_CHECK;

/** Whether the layer's output has a sequence that can be split. */
bool ty_layer_is_along_sequence(const ty_workload *workload, const ty_layer *layer);
ty_tensor_split ty_layer_tensor_split(const ty_workload *workload, uint32_t layer);
/** Whether tensor parallelism splits the layer's output by vocabulary: scores for the loss. */
bool ty_layer_has_split_scores(const ty_workload *workload, uint32_t layer);

typedef enum ty_tensor_start {
    TY_START_CONSTANT,
    TY_START_FAN_IN,  /* normal, by `fan_in`; in models with attention as TY_START_NORMAL */
    TY_START_NORMAL,  /* normal, as in GPT-2 */
    TY_START_RESIDUAL /* the same, smaller by the number of layers that add to the residual */
} ty_tensor_start;

typedef enum ty_tensor_division { TY_UNDIVIDED, TY_BY_ROWS, TY_BY_COLUMNS } ty_tensor_division;

#define TY_MOST_TENSORS 9
#define TY_MOST_TENSOR_GROUPS 3

/** One parameter tensor of a layer: its size, its start, and how tensor parallelism divides it. */
typedef struct ty_layer_tensor {
    const char *name; /* "out_proj.weight": in files of weights */
    uint64_t count;
    ty_tensor_start start;
    float constant;
    uint64_t fan_in;
    ty_tensor_division division;
    uint64_t columns;                       /* of a matrix; 0: a vector */
    uint64_t groups[TY_MOST_TENSOR_GROUPS]; /* rows divided separately, up to a 0; none: all rows */
    uint64_t experts; /* consecutive, each with these groups; 0: not of experts */
    bool is_table;    /* of an embedding bag */
} ty_layer_tensor;

/**
 * The parameter tensors of a whole layer in memory order. A matrix that can be tied is the first;
 * a tensor in the middle may be empty.
 * @param tensors [out] [TY_MOST_TENSORS], zero-initialised
 * @return how many; 0 if the kind has none, or none that are known one by one
 */
uint32_t ty_layer_tensors(const ty_workload *workload, uint32_t layer, ty_layer_tensor *tensors);
/** The matrix that other layers may be tied to; false if the kind has none. */
bool ty_layer_tied_matrix(const ty_layer *layer, uint64_t *rows, uint64_t *columns);

/**
 * Checks the inputs and attributes of a layer that is being built, and sets the shape of its
 * output.
 * @return TY_EPARSE: "conv2d1/attributes/stride: found 0, expected 1 to 2147483647 for conv2d"
 */
ty_status ty_layer_derive_shape(ty_workload *workload, uint32_t layer,
                                ty_error *error) TY_MUST_CHECK;
/** Whether samples are images: numbers of shape [C,H,W]. */
bool ty_workload_has_images(const ty_workload *workload);

/**
 * A short text that is equal for layers that cost the same: kind, attributes, input shapes;
 * e.g. "linear in_features=784 out_features=1024 has_bias=1 input=784". Profiles are keyed by it.
 * Opaque layers have their times in it; frozen layers and elements other than 4 bytes are told
 * apart.
 */
ty_status ty_layer_signature(const ty_workload *workload, uint32_t layer, char **out,
                             ty_error *error) TY_MUST_CHECK;

/**
 * Whether a gradient trains parameters that the layer's pass uses: own ones unless it is frozen, or
 * the matrix of the layer it is tied to unless that one is.
 */
bool ty_layer_is_trained(const ty_workload *workload, uint32_t layer);
/**
 * Where backward ends: the first trained layer, where frozen ones are before it. What is before has
 * no backward, sends no gradients and keeps nothing for one. 0 in a network without frozen layers,
 * the layer count where nothing is trained by gradients. O(layers).
 */
uint32_t ty_workload_first_backward(const ty_workload *workload);
/** Whether the layer's first parameters are a table of which a sample touches a few rows:
 * embeddings and bags of them. */
bool ty_layer_has_table(const ty_layer *layer);
/** Whether it is a bag of rows of a table that expert parallelism may shard. */
bool ty_layer_is_bag(const ty_layer *layer);
bool ty_layer_has_heads(const ty_layer *layer); /* attention, which is split by them */
/** Whether frozen layers are a teacher that follows the trained ones (ty_teacher). */
bool ty_workload_has_teacher(const ty_workload *workload);
/** The trained layer that a teacher's follows, or TY_NO_LAYER. O(layers). */
uint32_t ty_layer_leader(const ty_workload *workload, uint32_t layer);
/** The teacher's layer that follows this one, or TY_NO_LAYER. O(layers). */
uint32_t ty_layer_follower(const ty_workload *workload, uint32_t layer);
/**
 * One step of an episode as a workload, for who plays: layers see one row where `workload`'s see
 * those of a whole episode. Behind the layers there is a loss over the actions, the workload's own
 * or, where it has none, one that nobody computes.
 * @param workload input {steps, numbers}, outputs {steps, ...}; @return TY_ENOMEM
 */
ty_status ty_workload_step_make(const ty_workload *workload, ty_workload **out,
                                ty_error *error) TY_MUST_CHECK;
/** What a profile calls the playing of a workload's episodes, as ty_layer_signature a layer: all
 * its steps, forward and in the environment. */
ty_status ty_workload_play_signature(const ty_workload *workload, char **out,
                                     ty_error *error) TY_MUST_CHECK;
/** Bytes of an episode as it is learnt from (reinforcement): numbers of 4 bytes, of each step what
 * was seen, the action and its advantage, and one score. */
uint64_t ty_workload_episode_bytes(const ty_workload *workload);
/** Why the whole network has to be in one stage, without ranks or shards: whatever else a plan may
 * divide. NULL: it need not. */
const char *ty_workload_whole_reason(const ty_workload *workload);
/** Whether layers come with times: those of the trace or the profile the workload was read from. */
bool ty_workload_has_times(const ty_workload *workload);
/** Whether activations are of other layers than routed experts too: mlps, shared experts, or
 * anything where there are no experts at all. */
bool ty_workload_is_dense(const ty_workload *workload);
bool ty_workload_has_experts(const ty_workload *workload); /* of any layer */
/**
 * Which layers take part in backward: trained ones and those that read from one, however far back;
 * all, in a network without frozen layers. A frozen branch beside a trained one has none either.
 * @param takes_part [out] [layer_count]
 */
void ty_workload_mark_backward(const ty_workload *workload, bool *takes_part);

/* Sums over a range of layers. */
uint64_t ty_workload_parameter_bytes(const ty_workload *workload, uint32_t first, uint32_t count);
uint64_t ty_workload_stash_bytes(const ty_workload *workload, uint32_t first, uint32_t count);
double ty_workload_forward_flop(const ty_workload *workload, uint32_t first, uint32_t count);
double ty_workload_backward_flop(const ty_workload *workload, uint32_t first, uint32_t count);

/**
 * Bytes per sample that cross the cut before layer `layer`: outputs of earlier layers that this or
 * a later layer reads, each counted once. 0 for layer 0 and for the layer count. O(1).
 */
uint64_t ty_workload_cut_bytes(const ty_workload *workload, uint32_t layer);
/**
 * The tensors that cross the cut before `layer`, named by the layers that make them: earlier ones
 * that this or a later layer reads. One that is read further on is relayed from stage to stage.
 * @param producers [out] ascending; room for `layer` of them, or NULL to count
 * @return how many. O(layers).
 */
uint32_t ty_workload_crossing(const ty_workload *workload, uint32_t layer, uint32_t *producers);
/**
 * The batch norm right before a sum of two that alone reads it: accelerators make both in one pass,
 * and of the norm's output nothing is left. O(1).
 * @return TY_NO_LAYER when `sum` is no such sum
 */
uint32_t ty_workload_norm_of_sum(const ty_workload *workload, uint32_t sum);
/**
 * Bytes per sample of gradients that come back over the cut before `layer`: of the crossing tensors
 * but those made before the first trained layer (ty_workload_first_backward), which are the first.
 */
uint64_t ty_workload_cut_gradient_bytes(const ty_workload *workload, uint32_t layer);
/** Whether a pipeline stage may begin at `layer`: all layers that read the batch, which the first
 *  stage alone loads, lie before it. */
bool ty_workload_is_divisible(const ty_workload *workload, uint32_t layer);
/** Whether exactly one tensor crosses the cut before a divisible `layer`: the previous layer's
 *  output. */
bool ty_workload_is_cut(const ty_workload *workload, uint32_t layer);

/**
 * Where the blocks of a network begin: equal layers side by side, as often as they repeat, each
 * with two matrix products at least (a segment of one would keep nearly all it makes). Of the
 * places in the repeated pattern that one is taken where the least crosses. What comes before a
 * repetition is part of its first block while it has fewer than two products; what repeats nothing
 * is cut where one tensor crosses, before a layer with a product or a norm, every two products.
 * @param starts [out] first layers, ascending; the first is 0; the workload's own
 * @param head [out] of the last one, if it is what lies behind all blocks (final norm, scores,
 *             loss); else TY_NO_LAYER
 * @return how many. O(1); finding them took O(layers times the length of a block), O(layers^2)
 * where nothing repeats.
 */
uint32_t ty_workload_blocks(const ty_workload *workload, const uint32_t **starts, uint32_t *head);

#endif
