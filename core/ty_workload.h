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
 * The number formats that layers compute in: one enumeration for plans, profiles, runs and launch
 * files.
 *
 *     ty_precision precision;
 *     TY_CHECK(ty_precision_find("bf16", &precision, error), status, done);
 *     ty_workload_set_precision(workload, precision);
 *
 * Master weights, gradients and optimizer states are fp32 in all of them (Micikevicius et al.,
 * "Mixed Precision Training", ICLR 2018). Sources of the narrow ones: Micikevicius et al., "FP8
 * Formats for Deep Learning", 2022, arXiv:2209.05433; NVIDIA Transformer Engine for which products
 * are narrow: those of attention's projections, of mlps and of experts. Attention itself, a head
 * over a vocabulary, norms and the activations between layers stay in bf16.
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
/** From its name. @return TY_EINVAL with the name found and the valid ones */
ty_status ty_precision_find(const char *name, ty_precision *out, ty_error *error) TY_MUST_CHECK;

/** Bytes of a weight as layers read it and of a number between layers: 4 or 2. */
uint32_t ty_precision_bytes(ty_precision precision);
/** Whether products of weights are narrower than the activations between layers. */
bool ty_precision_is_narrow(ty_precision precision);
/** Bytes of a number in narrow products: 1 or 0.5; 0 if there are none. */
double ty_precision_narrow_bytes(ty_precision precision);

/* ==== workload ================================================================================ */

/*
 * A workload: a model as a directed acyclic graph of layers, and the contents of its batches.
 *
 * Layers are stored in a topological order: a layer's inputs have smaller indices. A pipeline stage
 * is a contiguous range of that order. All sizes are per sample (an image, or a full sequence), so
 * those of a micro-batch are a multiple; parameters are per layer. Byte figures hold for
 * `element_bytes` per number (4: fp32); a plan in another precision scales them.
 *
 * The builders that make workloads are in workloads/; this header has the definitions that planner,
 * simulator and worker share.
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
     * (Bahdanau, normalized) */                                                                   \
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

/** Attributes are unsigned integers; a table lists those of each kind (ty_layer_attribute_use). */
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
    TY_IS_GLOBAL,  /* pool: the window is the full image */
    TY_FEATURES,   /* norms, attention, mlp: size of the normalized or model dimension */
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
    TY_VALUE_HEAD_SIZE, /* attention: of values, if it is not head_size */
    TY_HAS_QKV_BIAS,    /* attention: biases of queries, keys and values but not of the output */
    TY_HAS_QK_NORM, /* attention: rms norms of every head's queries and keys, shared by the heads */
    TY_QUERY_RANK,  /* attention with latents (DeepSeek-V2): numbers per row for the queries */
    TY_KV_RANK,     /* ... and keys and values; latents have rms norms */
    TY_ROTARY_SIZE, /* ... and how much of head_size is rotated: one key for all heads */
    TY_RELATIVE_BUCKETS, /* attention: learned biases of the scores, per bucket of distances and
                            head */
    TY_IS_FUSED, /* attention: scores are recomputed in backward, never stored (FlashAttention) */
    TY_IS_RELU,  /* mlp: relu instead of gelu */
    TY_SHARED_FEATURES, /* moe: hidden features of the shared experts, all together */
    TY_HAS_ROUTER_BIAS, /* moe: a number per expert added to its score */
    TY_IS_REVERSED,     /* lstm: from the last step to the first */
    TY_IS_OF_FEATURES,  /* concat: along the last dimension */
    TY_WINDOW,          /* attention: the most keys that a query meets, the nearest before it */
    TY_CHOSEN_ROWS,     /* attention: the most keys that a query meets, chosen by an indexer */
    TY_INDEX_HEADS,     /* ... the indexer's heads of queries; it has one of keys */
    TY_INDEX_HEAD_SIZE,
    TY_HAS_SINKS, /* attention: a learned score per head in addition to those of the keys */
    TY_HAS_GATE,  /* attention: context times a sigmoid of a projection of the input; moe: of the
                     shared experts' sum, one number per token */
    TY_HAS_WIDE_QK_NORM, /* attention: rms norms of all heads' queries, and keys, together, or of
                            every head with gains of its own */
    TY_LACKS_KEY_BIAS,   /* attention: has_bias except for the keys */
    TY_SHARES_KV,        /* attention: values are the keys, of one projection */
    TY_LATENT_FEATURES,  /* moe: features that experts read and write; two matrices convert from and
                            to the model's features */
    TY_LACKS_SHIFT,      /* layer_norm: gains only */
    TY_IS_SHARED,        /* attention, mlp, layer_norm: parameters are those of the first such layer
                          * (ALBERT)
                          */
    TY_STATE_SIZE,       /* state_space: numbers of state per channel */
    TY_STEP_RANK, /* state_space of Mamba: numbers that its steps are computed from; Mamba-2 has
                     heads */
    TY_HAS_STEP_NORMS, /* ... which have rms norms, and so have the state's input and output (Jamba)
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
    TY_SPLIT_NONE,      /* each rank has the unsharded layer */
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
    bool is_recurrent; /* low-rank compressors send its matrices uncompressed */
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
/** Whether layers of `kind` have `attribute`; in JSON required ones must be present, unused ones
 * absent. */
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
    uint64_t stash_bytes; /* per sample, stored from forward to backward: output and other operands
                             of backward, but no inputs: these count at their producers. 0 if the
                             output is in its input's memory: flatten, and a relu that alone reads
                             its inputs inputs input */
    uint64_t traffic_bytes; /* per sample: activations read and written by forward (roofline) */
    uint32_t kernel_count;  /* launches of one forward pass on an accelerator */
    double measured_forward_s, measured_backward_s; /* per sample; opaque layers only, else 0 */
} ty_layer;

/** The row of a layer's kind; that of opaque layers if the kind is out of range. */
const ty_layer_row *ty_layer_row_of(const ty_layer *layer);

typedef enum ty_input_kind { TY_INPUT_REAL, TY_INPUT_TOKEN } ty_input_kind;

typedef enum ty_optimizer_kind {
    TY_OPTIMIZER_SGD,
    TY_OPTIMIZER_ADAMW,
    TY_OPTIMIZER_ADAM8BIT,
    TY_OPTIMIZER_ADAFACTOR,
    TY_OPTIMIZER_MUON,
    TY_OPTIMIZER_COUNT
} ty_optimizer_kind;
typedef struct ty_optimizer {
    ty_optimizer_kind kind;
    double learning_rate;
    double momentum;              /* 0 unless the row has momentum */
    double beta1, beta2, epsilon; /* 0 unless the row has betas */
    double weight_decay;          /* sgd: added to the gradient; others: decoupled */
} ty_optimizer;

/** One rank's part of a tensor; a vector has one column. */
typedef struct ty_tensor_part {
    double rows, columns;
    bool is_hidden; /* neither a table nor read by the loss */
} ty_tensor_part;

/** An optimizer. The fp32 master copy of 16-bit weights is not among its states. */
typedef struct ty_optimizer_row {
    const char *name;   /* in files; see ty_optimizer_set for more words */
    const char *states; /* format of its states: "fp32", "8-bit" */
    bool has_momentum, has_betas;
    bool is_descent;  /* SGD: rate / (1 - momentum) is the distance per step */
    bool is_executed; /* trainyard-worker runs it */
    /* Bytes of the states of a tensor; NULL: ty_optimizer_state_count fp32 numbers per parameter */
    double (*state_bytes)(const ty_tensor_part *part);
    double (*flop)(const ty_tensor_part *part); /* products of a step, in bf16; NULL: none */
    double more_reads; /* a step reads weight and gradient once; more of the gradient */
    /* Names in launch files; NULL: the framework does not have it. DeepSpeed's are PyTorch's. */
    const char *pytorch, *megatron, *torchtitan;
    ty_optimizer usual; /* PyTorch's defaults */
} ty_optimizer_row;
/** The row of a kind; that of SGD if it is out of range. */
const ty_optimizer_row *ty_optimizer_row_of(ty_optimizer_kind kind);
const char *ty_optimizer_name(ty_optimizer_kind kind); /* "sgd", "adamw" */
/** The word that ty_optimizer_set reads back: "momentum" for SGD with momentum, else the name. */
const char *ty_optimizer_word(const ty_optimizer *optimizer);
/**
 * Sets the optimizer that a word names: sgd, momentum, adam or adamw, adam8bit, adafactor, muon, or
 * a framework's name for one of them ("adamw_8bit", "OneBitAdam"). Learning rate, betas and weight
 * decay stay if both have betas; else another optimizer gets its usual settings.
 * @return TY_EINVAL: unknown; lists the words and names the nearest
 */
ty_status ty_optimizer_set(ty_optimizer *optimizer, const char *word,
                           ty_error *error) TY_MUST_CHECK;
/** @return TY_EUNSUPPORTED, with the optimizers that it runs, if trainyard-worker does not run it
 */
ty_status ty_optimizer_check_executed(const ty_optimizer *optimizer, ty_error *error) TY_MUST_CHECK;
/** Optimizer states per parameter: 0 or 1 for SGD (momentum), 2 with betas. */
uint32_t ty_optimizer_state_count(const ty_optimizer *optimizer);

/** The learning rule, which determines the computation and communication of a step. */
typedef enum ty_learning {
    TY_LEARNING_GRADIENT,
    /* Every sample is a member of a population, evaluated forward only, with parameters of its own:
     * the shared ones plus noise from a seed. An all-gather shares members' scores, never
     * gradients; every replica regenerates all members' noise to update its copy. Source: Salimans
     * et al., "Evolution Strategies as a Scalable Alternative to Reinforcement Learning",
     * arXiv:1703.03864, algorithm 2. */
    TY_LEARNING_EVOLUTION,
    /* Every sample is an episode that the policy, the trained model, has played in an environment.
     * Each of its steps has an observation, the drawn action and its advantage, which is how much
     * better than usual the result was. The loss is the cross entropy of the drawn actions, each
     * times its advantage, so gradients are reduced as usual. Source: Williams, "Simple statistical
     * gradient-following algorithms for connectionist reinforcement learning", Machine Learning 8,
     * 1992 (REINFORCE). ty_plan.h, "Actors", specifies the replicas that play and their weights. */
    TY_LEARNING_REINFORCEMENT,
    TY_LEARNING_COUNT
} ty_learning;
const char *ty_learning_name(ty_learning learning); /* "gradient", "evolution", "reinforcement" */

/**
 * Semi-supervised learning: frozen layers are a teacher, whose weights are an average of those that
 * the trained layers, the student, have had. The student learns from the few labels, and on every
 * sample from the teacher's scores of another view of it. Source: Tarvainen and Valpola, "Mean
 * teachers are better role models", arXiv:1703.01780.
 *
 * A sample is two views of one of the data set, [2 C,H,W] or [2 N], the teacher's first. The loss
 * reads the scores of both, [2 classes], the teacher's first; for a batch of B it is
 *
 *     (every / B) sum over labelled of -log p_student[label]
 *         + (consistency / B) sum over all of mean over classes of (p_student - p_teacher)^2.
 *
 * The n-th frozen layer with parameters follows the n-th trained one, which has the same shape: it
 * starts as a copy, and after each update becomes decay x itself + (1 - decay) x the other.
 * Evaluation uses the teacher.
 */
typedef struct ty_teacher {
    uint32_t labelled;  /* samples of the data set with a label; 0: there is no teacher */
    uint32_t every;     /* every k-th sample of a batch has a label; this is k */
    double decay;       /* of the teacher's weights per step; 0 <= decay < 1 */
    double consistency; /* >= 0 */
    uint32_t shift;     /* most pixels by which each view is shifted in either direction */
} ty_teacher;

/** Frequently used properties of a workload's layers; made by ty_workload_index_make. */
typedef struct ty_workload_index {
    uint32_t *last_readers; /* [layer_count]: last reader of a layer's output; itself: none */
    uint64_t *cut_bytes;    /* [layer_count]: ty_workload_cut_bytes */
    uint32_t block_count, head;
    uint32_t *blocks; /* [block_count], ascending: ty_workload_blocks */
} ty_workload_index;

typedef struct ty_workload {
    char *name;
    char *source;           /* source of the shape: a paper, a model card, an imported file */
    uint32_t element_bytes; /* of a number between layers: ty_precision_bytes(precision), or the
                               value in a file */
    ty_precision precision; /* format that layers compute in; fp32 for numbers of any size but 2 */
    ty_input_kind input_kind;
    ty_shape input;             /* per sample; tokens: {T} */
    uint64_t sample_bytes;      /* read from storage per sample, labels included */
    uint64_t tokens_per_sample; /* sequence length; 0 if samples are not sequences */
    char *dataset;              /* "fashion-mnist", "text", or "synthetic" */
    uint32_t global_batch;      /* default global batch size */
    ty_optimizer optimizer;     /* the usual optimizer */
    /* Fields of scenarios; all 0 in ordinary training (docs/guides/scenarios.md). */
    ty_learning learning;
    uint32_t local_steps; /* steps of a replica between two averages of the weights (federated); 0:
                             gradients are averaged in every step */
    uint64_t rotary_base; /* base of rotary position embeddings, from the model's configuration. The
                             worker rotates queries and keys of self-attention with it, and training
                             programs need it; estimates ignore it. 0: none or unknown */
    double input_s_per_sample; /* of a source that generates samples at its own pace, such as a
                                  sensor or an environment; every replica of the first stage has
                                  one. 0: samples are in storage */
    ty_teacher teacher;
    double deviation; /* evolution: standard deviation of a member's noise; 0: unspecified, so the
                         workload can be planned but not run */
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
 * Checks a workload made by hand or read from a file: names unique, inputs earlier, every layer but
 * the last used, shapes that fit their kinds, finite quantities >= 0, tied layers of the same
 * matrix shape. TY_EPARSE with a pointer ("/layers/3/inputs/0: ...").
 */
ty_status ty_workload_check(const ty_workload *workload, const char *name,
                            ty_error *error) TY_MUST_CHECK;
/**
 * Computes `index`: the tensors that cross cuts, and the blocks. Call it when a new workload has
 * all its layers, as file readers and the builder do, and again after a change of layers, inputs or
 * sizes. @return TY_ENOMEM
 */
ty_status ty_workload_index_make(ty_workload *workload, ty_error *error) TY_MUST_CHECK;
void ty_workload_index_clear(ty_workload *workload);
void ty_workload_free(ty_workload *workload);
/** Converts weights and activations to another precision: scales all sizes. */
void ty_workload_set_precision(ty_workload *workload, ty_precision precision);

/** Digest of the canonical JSON: equal exactly when two workloads are. */
ty_status ty_workload_digest(const ty_workload *workload, ty_digest *out,
                             ty_error *error) TY_MUST_CHECK;
/** Digest of the model alone, whatever the size of its images: equal if two models have the same
 * parameters. */
ty_status ty_workload_network_digest(const ty_workload *workload, ty_digest *out,
                                     ty_error *error) TY_MUST_CHECK;

/** Shape of the layer's i-th input: the batch's shape for a layer without inputs. */
const ty_shape *ty_layer_input_shape(const ty_workload *workload, uint32_t layer, uint32_t i);
/**
 * The shape of a layer's output, by its kind, its attributes and the shapes of its inputs; for an
 * opaque layer, its stored shape.
 * @return TY_EINVAL for an input that does not fit: "found linear input 784, expected a last
 *         dimension of in_features 400". O(1), of joins O(inputs).
 */
ty_status ty_layer_shape(const ty_workload *workload, uint32_t layer, ty_shape *out,
                         ty_error *error) TY_MUST_CHECK;
/**
 * Sets flop, bytes and kernel count of a layer whose kind, attributes, inputs, tie and output shape
 * are set. Opaque layers keep their flop and parameters.
 * @param needs_input_gradient whether backward computes the gradient of the layer's input, which it
 *   does not if nothing before it is trained. A frozen layer computes no other gradient
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
    TY_START_RESIDUAL /* the same, scaled down by the number of layers that add to the residual */
} ty_tensor_start;

typedef enum ty_tensor_division { TY_UNDIVIDED, TY_BY_ROWS, TY_BY_COLUMNS } ty_tensor_division;

#define TY_MOST_TENSORS 9
#define TY_MOST_TENSOR_GROUPS 3

/** One parameter tensor of a layer: its size, its initial values, and how tensor parallelism shards
 * it. */
typedef struct ty_layer_tensor {
    const char *name; /* name in weight files: "out_proj.weight" */
    uint64_t count;
    ty_tensor_start start;
    float constant;
    uint64_t fan_in;
    ty_tensor_division division;
    uint64_t columns;                       /* of a matrix; 0: a vector */
    uint64_t groups[TY_MOST_TENSOR_GROUPS]; /* rows sharded separately, up to a 0; none: all rows */
    uint64_t experts; /* consecutive, each with these groups; 0: not of experts */
    bool is_table;    /* of an embedding bag */
} ty_layer_tensor;

/**
 * The parameter tensors of an unsharded layer in memory order. A matrix that can be tied is the
 * first; a tensor in the middle may be empty.
 * @param tensors [out] [TY_MOST_TENSORS], zero-initialized
 * @return how many; 0 if the kind has none, or they are not known individually
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
 * A short text that is equal for layers that cost the same: kind, attributes, input shapes; e.g.
 * "linear in_features=784 out_features=1024 has_bias=1 input=784". Profiles are keyed by it. It
 * contains the times of opaque layers, and it distinguishes frozen layers and elements of other
 * than 4 bytes.
 */
ty_status ty_layer_signature(const ty_workload *workload, uint32_t layer, char **out,
                             ty_error *error) TY_MUST_CHECK;

/**
 * Whether a gradient trains parameters that the layer uses: its own unless it is frozen, or the
 * matrix of the layer it is tied to unless that one is frozen.
 */
bool ty_layer_is_trained(const ty_workload *workload, uint32_t layer);
/**
 * The last layer of backward: the first trained layer, if there are frozen ones before it. Layers
 * before it have no backward, send no gradients and store nothing for one. 0 in a model without
 * frozen layers, the layer count if nothing is trained by gradients. O(layers).
 */
uint32_t ty_workload_first_backward(const ty_workload *workload);
/** Whether the layer's first parameters are a table: embeddings and embedding bags. A sample reads
 * only a few of its rows. */
bool ty_layer_has_table(const ty_layer *layer);
/** Whether the layer is an embedding bag, whose table expert parallelism may shard. */
bool ty_layer_is_bag(const ty_layer *layer);
bool ty_layer_has_heads(const ty_layer *layer); /* attention, which is split by them */
/** Whether frozen layers are a teacher that follows the trained ones (ty_teacher). */
bool ty_workload_has_teacher(const ty_workload *workload);
/** The trained layer that a teacher's follows, or TY_NO_LAYER. O(layers). */
uint32_t ty_layer_leader(const ty_workload *workload, uint32_t layer);
/** The teacher's layer that follows this one, or TY_NO_LAYER. O(layers). */
uint32_t ty_layer_follower(const ty_workload *workload, uint32_t layer);
/**
 * One step of an episode as a workload, for ranks that play: its layers have one row, those of
 * `workload` the rows of a full episode. After the layers there is a loss over the actions, the
 * workload's own or, if it has none, one that is never computed.
 * @param workload input {steps, numbers}, outputs {steps, ...}; @return TY_ENOMEM
 */
ty_status ty_workload_step_make(const ty_workload *workload, ty_workload **out,
                                ty_error *error) TY_MUST_CHECK;
/** The signature of playing a workload's episodes, for profiles, as ty_layer_signature for a layer:
 * all steps, forward passes and environment. */
ty_status ty_workload_play_signature(const ty_workload *workload, char **out,
                                     ty_error *error) TY_MUST_CHECK;
/** Bytes of a training episode (reinforcement): numbers of 4 bytes; per step the observation, the
 * action and its advantage, and per episode one score. */
uint64_t ty_workload_episode_bytes(const ty_workload *workload);
/** Why the model has to be in one stage, without tensor, context or expert parallelism and ZeRO.
 * NULL: it need not. */
const char *ty_workload_whole_reason(const ty_workload *workload);
/** Whether layers have measured times: those of the trace or the profile that the workload was read
 * from. */
bool ty_workload_has_times(const ty_workload *workload);
/** Whether layers other than routed experts have activation functions: mlps, shared experts; also
 * true of any model without experts. */
bool ty_workload_is_dense(const ty_workload *workload);
bool ty_workload_has_experts(const ty_workload *workload); /* of any layer */
/**
 * Marks the layers with a backward pass: trained ones and all that depend on one; all layers in a
 * model without frozen ones. A frozen branch parallel to a trained one has none.
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
 * The tensors that cross the cut before `layer`, identified by their producers: earlier layers that
 * this or a later layer reads. A tensor that a later stage reads is relayed from stage to stage.
 * @param producers [out] ascending; room for `layer` of them, or NULL to count
 * @return how many. O(layers).
 */
uint32_t ty_workload_crossing(const ty_workload *workload, uint32_t layer, uint32_t *producers);
/**
 * The batch norm directly before a sum of two inputs that is its only reader: accelerators fuse
 * both into one pass and never store the norm's output. O(1).
 * @return TY_NO_LAYER if `sum` is no such sum
 */
uint32_t ty_workload_norm_of_sum(const ty_workload *workload, uint32_t sum);
/**
 * Bytes per sample of the gradients that cross the cut before `layer`: those of the crossing
 * tensors except the first ones, produced before the first trained layer
 * (ty_workload_first_backward).
 */
uint64_t ty_workload_cut_gradient_bytes(const ty_workload *workload, uint32_t layer);
/** Whether a pipeline stage may begin at `layer`: all layers that read the batch are before it,
 * because only the first stage loads it. */
bool ty_workload_is_divisible(const ty_workload *workload, uint32_t layer);
/** Whether exactly one tensor crosses the cut before a divisible `layer`: the previous layer's
 *  output. */
bool ty_workload_is_cut(const ty_workload *workload, uint32_t layer);

/**
 * The first layers of a model's blocks. Blocks are equal runs of layers that repeat, each with at
 * least two matrix products (a segment of one would store nearly all its outputs). Of the places in
 * the repeated pattern, blocks begin where the fewest bytes cross. Layers before a repetition
 * belong to its first block if they have fewer than two products. Layers that do not repeat are cut
 * where one tensor crosses, before a layer with a product or a norm, every two products.
 * @param starts [out] first layers, ascending; the first is 0; the workload's own
 * @param head [out] the first layer of the last block if that is the head, after all others (final
 *   norm, scores, loss); else TY_NO_LAYER
 * @return how many. O(1); ty_workload_index_make finds them in O(layers times the length of a
 *   block), O(layers^2) if nothing repeats.
 */
uint32_t ty_workload_blocks(const ty_workload *workload, const uint32_t **starts, uint32_t *head);

#endif
