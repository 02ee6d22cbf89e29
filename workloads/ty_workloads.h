/**
 * @file ty_workloads.h
 * Where workloads come from: the zoo, files, and a builder for both.
 *
 *     ty_workload *lenet = NULL;
 *     TY_CHECK(ty_workload_open("lenet", &lenet, error), status, cleanup);
 *
 * The zoo is data: workloads/zoo/NAME.json holds a list of layers, or the parameters of a family
 * ("residual", "transformer"), and its source. No model has a name in the code.
 *
 * `trainyard.zoo/1`: "name", "family", "source", "dataset", "global_batch", "optimizer" as in
 * `trainyard.workload/1`, and by family
 *   sequential   "input" (shape) and "sample_bytes" (in storage, labels included), or "sequence"
 * and "token_bytes" for tokens; "layers": a list of statements, each working on the tensor that the
 * one before left; "blocks" if wanted. The statements:
 *     {"kind"}   a layer, with "name" if wanted:
 *       linear     "out_features", "has_bias" (true)
 *       conv2d     "out_channels", "kernel", "stride" (1), "padding" (0), "groups" (1),
 *                  "has_bias" (true); kernel and padding are a size or [height, width]
 *       pool       "kernel", "stride" (kernel), "padding" (0), "is_average" (false);
 *                  or "is_global": true, alone
 *       slice      "rows" of the first dimension from "first_row" (0) on
 *       embedding  "vocabulary", "features", "positions" (0)
 *       embedding_bag
 *                  "vocabulary", "features", "rows" (1) indices from place "first_row" (0) of the
 *                  sample on, "is_average" (false): the mean of the table's rows instead of the sum
 *       dot_interaction
 *                  "inputs": labels of vectors, of which the first made is what comes first
 *       tied_linear
 *                  "embedding": the label of the one whose matrix it uses
 *       lstm       "hidden_features", "has_bias" (true), "is_reversed" (false): from the last step
 *                  to the first
 *       additive_attention
 *                  "memory": the label of the sequence that is attended to, "hidden_features" (of
 *                  the scores); queries are the tensor it works on
 *       opaque     "output" (that of its input), "parameters" (0), "forward_flop" (0), "inputs":
 *                  labels
 *       batch_norm, layer_norm, rms_norm, relu, gelu, silu, tanh, flatten, softmax_cross_entropy
 *     {"repeat": n, "layers": [..]}
 *                the same statements n times
 *     {"branches": [..], "join"}
 *                lists of statements side by side, [] being the tensor itself, joined by "add",
 *                "concat" (first dimension) or "concat_features" (last one)
 *     {"label": "x"}, {"from": "x"}
 *                names the tensor; goes on from a named one
 *     {"join", "inputs"}
 *                joins labelled tensors
 *     {"frozen": [..]}
 *                the same statements; their layers are not trained
 *     {"block": "b", ..}
 *                the statements of "blocks": {"b": [..]}; "$key" in them stands for a member here
 *   residual     "input", "sample_bytes", "block" ("basic" or "bottleneck"), "blocks" (a list:
 *                how many in each stage), "width" (of the first), "classes"
 *   transformer, decoder, encoder, encoder_decoder
 *                "blocks", "features", "heads", "vocabulary", "sequence", "token_bytes" (of one
 *                token in storage), and what docs/guides/bring-a-model.md lists: the families
 * differ in what they take for granted.
 *
 * In all families: "frozen_through" (the name of a layer: it and all before it are not trained),
 * "learning" ("gradient"), "local_steps", "rotary_base", "input_s_per_sample", "deviation" and
 * "teacher" as in `trainyard.workload/1`.
 */
#ifndef TY_WORKLOADS_H
#define TY_WORKLOADS_H

#include "ty_core.h"

/**
 * A zoo name ("resnet50"), a zoo name with a sequence length, batch or vocabulary ("gpt2
 * sequence=512"), or the path of a `trainyard.workload/1` or `trainyard.zoo/1` file or of any that
 * ty_workload_import reads.
 * @return TY_EPARSE for bad content; TY_EIO naming the closest zoo entry for an unknown name.
 */
ty_status ty_workload_open(const char *name_or_path, ty_workload **out,
                           ty_error *error) TY_MUST_CHECK;

/** What is asked for beside the file; 0: as the file says, or else the importer's usual value. */
typedef struct ty_import_options {
    uint64_t sequence;   /* tokens per sample */
    uint32_t batch;      /* samples per step */
    uint64_t vocabulary; /* rows of the vocabulary, of language models, in place of the file's;
                            Megatron-LM's pad it. Refused (TY_EINVAL) where there is no one such
                            size */
    const char *model;   /* for `open_model`: of a file that trains one but has none in it
                            (DeepSpeed's); ignored by all others; NULL: none */
    ty_status (*open_model)(const char *model, ty_workload **out,
                            ty_error *error); /* ty_workload_open, with a model */
    const struct training_pairs *settings; /* internal: what else the caller reads of the file, so
                                              that no note calls it unread; NULL: nothing */
} ty_import_options;

/** What an importer found out. Zero-initialise it. */
typedef struct ty_import_report {
    const char *format; /* the kind of file it was taken for: "Hugging Face config.json" */
    char **notes;       /* what was left out or assumed, a sentence each */
    uint32_t note_count;
} ty_import_report;
void ty_import_report_clear(ty_import_report *report);

/**
 * A workload from a file that another program wrote or reads; the kind is guessed from the content.
 * docs/guides/bring-a-model.md lists the kinds, and what of each is read, ignored and assumed.
 * @param path    "-" is standard input
 * @param options may be NULL
 * @param report  [out] may be NULL; clear it with ty_import_report_clear
 * @return TY_EPARSE for a file of no known kind, one that is broken, and one that holds no model;
 *         TY_EINVAL for an option that does not suit the file.
 */
ty_status ty_workload_import(const char *path, const ty_import_options *options, ty_workload **out,
                             ty_import_report *report, ty_error *error) TY_MUST_CHECK;

/**
 * Writes a workload as a Chakra execution trace (.et) of one data-parallel rank: forward and
 * backward of every layer, an all-reduce of its gradients. Imported again it is the same; where
 * other programs have changed the nodes, those count, and layers are opaque.
 */
ty_status ty_workload_export_chakra(const ty_workload *workload, const char *path,
                                    ty_error *error) TY_MUST_CHECK;

/** Appends a note to a report that does not have it yet. */
ty_status ty_import_report_add(ty_import_report *report, const char *note,
                               ty_error *error) TY_MUST_CHECK;

/** Whether a file, plain or gzip, begins as a trace of PyTorch's profiler: a look at its first 4
 * KiB. False for one that cannot be read, and for pipes. */
bool ty_is_profiler_trace(const char *path);

/**
 * A profile from a trace of PyTorch's profiler (Kineto; Chrome's trace format), plain or gzip, of
 * any size: memory follows the number of different names. Rows are "kernel NAME" (mean of its
 * launches), "annotation NAME" (record_function on the device) and "host annotation NAME", forward
 * only, per call; collectives where the trace says their size and group. A file that ends too early
 * gives what it has, with a note.
 * @param report [out] may be NULL; clear it with ty_import_report_clear, also after a failure
 * @return TY_EPARSE naming the byte for what is no JSON or holds no times; TY_ELIMIT for more than
 * 8 GiB of text or too many names.
 */
ty_status ty_profile_import_kineto(const char *path, ty_profile **out, ty_import_report *report,
                                   ty_error *error) TY_MUST_CHECK;

/** What kernels of a trace are, told by their names. */
typedef enum ty_traced_kind {
    TY_TRACED_PRODUCTS,
    TY_TRACED_ATTENTION, /* fused */
    TY_TRACED_PASSES,    /* whatever is none of the others */
    TY_TRACED_COLLECTIVES,
    TY_TRACED_KIND_COUNT
} ty_traced_kind;
const char *ty_traced_kind_name(ty_traced_kind kind); /* "products", "attention", ... */

/** Of a trace of PyTorch's profiler: one rank, one or more steps. */
typedef struct ty_traced_steps {
    uint32_t steps;                       /* of its ProfilerStep annotations; 1 where it has none */
    double seconds[TY_TRACED_KIND_COUNT]; /* of all kernels of a step, their mean over the steps */
    double step_s; /* from the first kernel's start to the last one's end, over the steps */
} ty_traced_steps;
/**
 * What the kernels of a step take on a device, by kind.
 * @return as ty_profile_import_kineto; TY_EPARSE too for a file that ends too early, whose last
 * step is none, and for one without kernels
 */
ty_status ty_traced_steps_load(const char *path, ty_traced_steps *out,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Layer times of a workload from an imported trace, for `plan --profile`: a layer takes forward
 * what the trace's annotation of its name took per call on the device, and backward what the one
 * called NAME.backward did; layers that cost the same get their mean. Layers without kernels need
 * none, nor do those without backward a second. Collectives are kept, all other names dropped.
 * @param samples in one pass of the trace
 * @param report  [out] may be NULL: says how many layers were found
 * @return TY_EPARSE where no layer's name is in the trace, or only one of a layer's two.
 */
ty_status ty_profile_of_trace(const ty_profile *trace, const ty_workload *workload,
                              uint32_t samples, ty_profile **out, ty_import_report *report,
                              ty_error *error) TY_MUST_CHECK;
/** A line of a PipeDream profile (graph.txt), as it stands there: one mini-batch. */
typedef struct ty_pipedream_node {
    uint64_t id; /* 12 of "node12" */
    const char *name;
    size_t name_length;
    double forward_ms, backward_ms, activation_bytes, parameter_bytes; /* lists are added up */
} ty_pipedream_node;
typedef struct ty_pipedream_visitor {
    void *context;
    ty_status (*node)(void *context, const ty_pipedream_node *node, ty_error *error);
    ty_status (*edge)(void *context, uint64_t from, uint64_t to, ty_error *error);
} ty_pipedream_visitor;

/** Calls the visitor for every line of a profile's text, in order, and stops at its first failure.
 * Names lie in `bytes`. TY_EPARSE with `path` and line for what is no profile. */
ty_status ty_pipedream_read(const char *path, const char *bytes, size_t length,
                            const ty_pipedream_visitor *visitor, ty_error *error) TY_MUST_CHECK;

/** Largest side of an image, pixels. */
#define TY_MOST_PIXELS 65535

/**
 * Makes the same network of images of another size: shapes, flop and bytes of all layers follow
 * from their kinds and attributes; the window of a global pool is the whole image again. Parameters
 * stay as they are. Samples in storage have as many bytes per number as before, less than one (of
 * compressed images) none.
 * @param height, width pixels, 1 to TY_MOST_PIXELS
 * @return TY_EINVAL, the workload as it was: for samples that are not images; naming the layer, for
 *         a network whose parameters go with the size (a linear layer behind a flatten), that has
 *         opaque layers, or figures that are not those of its layers' kinds. O(layers^2) as
 *         ty_workload_index_make.
 */
ty_status ty_workload_set_image_size(ty_workload *workload, uint32_t height, uint32_t width,
                                     ty_error *error) TY_MUST_CHECK;

/** Names of the zoo, sorted; free each and the array with ty_free. */
/**
 * The zoo's model that `typed` stands for: "llama-3-70b" for "meta-llama/Meta-Llama-3-70B". Words
 * after the name ("batch=64") do not count.
 * @param name     [out] free with ty_free; NULL: none
 * @param is_guess [out] the name is an alias or a part of the model's own
 */
ty_status ty_zoo_name(const char *typed, char **name, bool *is_guess,
                      ty_error *error) TY_MUST_CHECK;
ty_status ty_zoo_list(char ***names, uint32_t *count, ty_error *error) TY_MUST_CHECK;

/**
 * A builder: append layers, each given its kind, attributes and inputs; shapes, flop, bytes and
 * kernel counts follow. Mistakes are kept until ty_builder_finish, so that a network reads as a
 * list of layers.
 *
 *     ty_builder *b = ty_builder_new("mlp", TY_INPUT_REAL, &(ty_shape){3, {1, 28, 28}});
 *     uint32_t x = ty_builder_flatten(b, TY_BATCH);
 *     x = ty_builder_linear(b, x, 1024, true);
 *     x = ty_builder_relu(b, x);
 *     x = ty_builder_linear(b, x, 10, true);
 *     ty_builder_loss(b, x);
 *     TY_CHECK(ty_builder_finish(b, &workload, error), status, cleanup);  // frees b
 */
typedef struct ty_builder ty_builder;

#define TY_BATCH UINT32_MAX /* as an input: the batch itself */

ty_builder *ty_builder_new(const char *name, ty_input_kind input_kind, const ty_shape *input);
/** Checks and completes the workload; frees the builder in any case. */
ty_status ty_builder_finish(ty_builder *builder, ty_workload **out, ty_error *error) TY_MUST_CHECK;
void ty_builder_free(ty_builder *builder);

void ty_builder_set_source(ty_builder *builder, const char *source);
/** Data set, usual global batch and optimizer. */
void ty_builder_set_training(ty_builder *builder, const char *dataset, uint32_t global_batch,
                             const ty_optimizer *optimizer);
/** ty_workload.rotary_base. */
void ty_builder_set_rotary_base(ty_builder *builder, uint64_t rotary_base);
/** What scenarios have beyond layers, as in ty_workload. */
void ty_builder_set_scenario(ty_builder *builder, ty_learning learning, uint32_t local_steps,
                             double input_s_per_sample);
/** ty_workload.deviation. */
void ty_builder_set_deviation(ty_builder *builder, double deviation);
/** ty_workload.teacher; the layers that are frozen are the teacher's. */
void ty_builder_set_teacher(ty_builder *builder, const ty_teacher *teacher);
/** Freezes layers [first, end): finishing takes what their gradients cost off the backward of all.
 */
void ty_builder_freeze(ty_builder *builder, uint32_t first, uint32_t end);
/** Freezes all layers up to the one of that name; a mistake if there is none. */
void ty_builder_freeze_through(ty_builder *builder, const char *name);
/** Bytes read from storage per sample, labels included; without it, 4 per number and one label. */
void ty_builder_set_sample_bytes(ty_builder *builder, uint64_t sample_bytes);
/** Name of the next layer; without it layers are called kind and number ("conv2d3"). */
void ty_builder_name_next(ty_builder *builder, const char *name);
/** An optional attribute of the next layer; which a kind has says ty_layer_attribute_use. */
void ty_builder_set_next(ty_builder *builder, ty_attribute attribute, uint64_t value);

/* Each returns the new layer's index, to be used as an input of later ones. */
uint32_t ty_builder_linear(ty_builder *builder, uint32_t input, uint64_t out_features,
                           bool has_bias);
/** A linear layer without bias that uses the embedding's matrix (GPT-2's output layer). */
uint32_t ty_builder_tied_linear(ty_builder *builder, uint32_t input, uint32_t embedding);
/** The same with a bias of its own (BERT's). */
uint32_t ty_builder_tied_linear_with_bias(ty_builder *builder, uint32_t input, uint32_t embedding);
typedef struct ty_window { /* of a convolution or pooling */
    uint64_t height, width, stride, padding_height, padding_width;
} ty_window;
uint32_t ty_builder_conv2d(ty_builder *builder, uint32_t input, uint64_t out_channels,
                           const ty_window *window, uint64_t groups, bool has_bias);
uint32_t ty_builder_pool(ty_builder *builder, uint32_t input, const ty_window *window,
                         bool is_average);
uint32_t ty_builder_global_pool(ty_builder *builder,
                                uint32_t input); /* average, [C,H,W] -> [C,1,1] */
uint32_t ty_builder_batch_norm(ty_builder *builder, uint32_t input);
uint32_t ty_builder_layer_norm(ty_builder *builder, uint32_t input);
uint32_t ty_builder_rms_norm(ty_builder *builder, uint32_t input);
uint32_t ty_builder_relu(ty_builder *builder, uint32_t input);
uint32_t ty_builder_gelu(ty_builder *builder, uint32_t input);
uint32_t ty_builder_silu(ty_builder *builder, uint32_t input);
uint32_t ty_builder_tanh(ty_builder *builder, uint32_t input);
uint32_t ty_builder_flatten(ty_builder *builder, uint32_t input);
/** `rows` of the first dimension from `first_row` on: tokens of a sequence. */
uint32_t ty_builder_slice(ty_builder *builder, uint32_t input, uint64_t first_row, uint64_t rows);
uint32_t ty_builder_embedding(ty_builder *builder, uint32_t input, uint64_t vocabulary,
                              uint64_t features, uint64_t positions);
/** The sum, or the mean, of `rows` rows of a table, whose indices lie in a sample of numbers from
 * place `first_row` on. */
uint32_t ty_builder_embedding_bag(ty_builder *builder, uint32_t input, uint64_t vocabulary,
                                  uint64_t features, uint64_t first_row, uint64_t rows,
                                  bool is_average);
uint32_t ty_builder_attention(ty_builder *builder, uint32_t input, uint64_t heads,
                              uint64_t kv_heads, uint64_t head_size, bool has_bias, bool is_causal);
/** Queries from `input`, keys and values from `memory`, an earlier layer. */
uint32_t ty_builder_cross_attention(ty_builder *builder, uint32_t input, uint32_t memory,
                                    uint64_t heads, uint64_t kv_heads, uint64_t head_size,
                                    bool has_bias);
/** Likewise; scores of a layer of so many hidden features, values are the memory itself. */
uint32_t ty_builder_additive_attention(ty_builder *builder, uint32_t input, uint32_t memory,
                                       uint64_t hidden_features);
uint32_t ty_builder_mlp(ty_builder *builder, uint32_t input, uint64_t hidden_features,
                        bool has_bias, bool is_gated);
/** @param hidden_features of one expert */
uint32_t ty_builder_moe(ty_builder *builder, uint32_t input, uint64_t experts,
                        uint64_t experts_per_token, uint64_t hidden_features, bool has_bias,
                        bool is_gated);
uint32_t ty_builder_add(ty_builder *builder, const uint32_t *inputs, uint32_t count);
uint32_t ty_builder_concat(ty_builder *builder, const uint32_t *inputs, uint32_t count);
/** Side by side in the last dimension: [T,A] and [T,B] -> [T,A+B]. */
uint32_t ty_builder_concat_features(ty_builder *builder, const uint32_t *inputs, uint32_t count);
/** The first of some vectors of one size, and the products of all pairs of them. */
uint32_t ty_builder_dot_interaction(ty_builder *builder, const uint32_t *inputs, uint32_t count);
uint32_t ty_builder_loss(ty_builder *builder,
                         uint32_t input); /* softmax cross-entropy over the last dimension */

/** A selective state space. Options: TY_HEADS and TY_GROUPS (Mamba-2), or TY_STEP_RANK (Mamba) and
 * TY_HAS_STEP_NORMS. */
uint32_t ty_builder_state_space(ty_builder *builder, uint32_t input, uint64_t hidden_features,
                                uint64_t state_size, uint64_t kernel_width, bool has_bias);
/** Linear attention by the gated delta rule: `heads` of values, `kv_heads` of queries and keys. */
uint32_t ty_builder_gated_delta(ty_builder *builder, uint32_t input, uint64_t heads,
                                uint64_t kv_heads, uint64_t head_size, uint64_t value_head_size,
                                uint64_t kernel_width);

/** Attends to nothing outside its own direction: [T,D] -> [T,H]; biases as cuDNN has them, two per
 * gate. Option: TY_IS_REVERSED. */
uint32_t ty_builder_lstm(ty_builder *builder, uint32_t input, uint64_t hidden_features,
                         bool has_bias);

/** What is known of a layer that has no formulas. Zero-initialise; the other bytes follow from the
 * shapes. */
typedef struct ty_opaque {
    ty_shape output;
    uint64_t parameter_bytes;
    double forward_flop, backward_flop;             /* per sample */
    double measured_forward_s, measured_backward_s; /* per sample */
    bool is_timed; /* the times are known, be they 0; else costs follow from flop and bytes */
    bool is_view;  /* its output lies in its input's memory */
} ty_opaque;
/** Any number of inputs, TY_BATCH alone or distinct layers in any order. */
uint32_t ty_builder_opaque(ty_builder *builder, const uint32_t *inputs, uint32_t count,
                           const ty_opaque *known);

/** Shape of a layer appended before, or of the batch; NULL after a mistake. Valid until the next
 * layer. */
const ty_shape *ty_builder_shape(const ty_builder *builder, uint32_t layer);

/**
 * The cuts at which a workload may be divided into stages: positions c, ascending, such that
 * exactly one tensor crosses between layers c-1 and c. 0 and layer_count are not included.
 * @param cuts [out] free with ty_free
 */
ty_status ty_workload_cuts(const ty_workload *workload, uint32_t **cuts, uint32_t *count,
                           ty_error *error) TY_MUST_CHECK;

#endif
