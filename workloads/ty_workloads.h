/**
 * @file ty_workloads.h
 * Workloads: from the zoo, from files, and the builder that both use.
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
 * and "token_bytes" for tokens; "layers": a list of statements, each of which reads the previous
 * statement's tensor; "blocks" (optional). The statements:
 *     {"kind"}   a layer, with an optional "name":
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
 *                  "inputs": labels of vectors; the earliest layer's vector is the first
 *       tied_linear
 *                  "embedding": the label of the embedding whose matrix it uses
 *       lstm       "hidden_features", "has_bias" (true), "is_reversed" (false): from the last step
 *                  to the first
 *       additive_attention
 *                  "memory": the label of the attended sequence, "hidden_features" (of the scores);
 *                  queries are the current tensor
 *       opaque     "output" (that of its input), "parameters" (0), "forward_flop" (0), "inputs":
 *                  labels
 *       batch_norm, layer_norm, rms_norm, relu, gelu, silu, tanh, flatten, softmax_cross_entropy
 *     {"repeat": n, "layers": [..]}
 *                the same statements n times
 *     {"branches": [..], "join"}
 *                parallel lists of statements, [] for the tensor itself, joined by "add", "concat"
 *                (first dimension) or "concat_features" (last one)
 *     {"label": "x"}, {"from": "x"}
 *                names the tensor; continues from a named one
 *     {"join", "inputs"}
 *                joins labeled tensors
 *     {"frozen": [..]}
 *                the same statements; their layers are not trained
 *     {"block": "b", ..}
 *                the statements of "blocks": {"b": [..]}; "$key" in them means the member "key"
 *                here
 *   residual     "input", "sample_bytes", "block" ("basic" or "bottleneck"), "blocks" (a list:
 *                how many in each stage), "width" (of the first), "classes"
 *   transformer, decoder, encoder, encoder_decoder
 *                "blocks", "features", "heads", "vocabulary", "sequence", "token_bytes" (of one
 *                token in storage), and the members in docs/guides/bring-a-model.md: each family
 *                has its own defaults.
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
 * sequence=512"), or the path of a `trainyard.workload/1` or `trainyard.zoo/1` file or of any file
 * that ty_workload_import reads.
 * @return TY_EPARSE for bad content; TY_EIO naming the closest zoo entry for an unknown name.
 */
ty_status ty_workload_open(const char *name_or_path, ty_workload **out,
                           ty_error *error) TY_MUST_CHECK;

/** Values in place of the file's; 0: the file's, or else the importer's default. */
typedef struct ty_import_options {
    uint64_t sequence;   /* tokens per sample */
    uint32_t batch;      /* samples per step */
    uint64_t vocabulary; /* rows of a language model's vocabulary, which Megatron-LM pads; TY_EINVAL
                            unless the model has exactly one vocabulary size */
    const char *model;   /* for `open_model`: the model of a file without one (DeepSpeed's); other
                            formats ignore it; NULL: none */
    ty_status (*open_model)(const char *model, ty_workload **out,
                            ty_error *error); /* ty_workload_open, with a model */
    const struct training_pairs *settings; /* internal: keys that the caller reads itself, which get
                                              no note as unread; NULL: none */
} ty_import_options;

/** Result of an importer. Zero-initialize it. */
typedef struct ty_import_report {
    const char *format; /* the detected format: "Hugging Face config.json" */
    char **notes;       /* parts left out or assumed, one sentence each */
    uint32_t note_count;
} ty_import_report;
void ty_import_report_clear(ty_import_report *report);

/**
 * Reads a workload from another program's file and detects the format from the content.
 * docs/guides/bring-a-model.md lists the formats, with the keys that are read, ignored and assumed.
 * @param path    "-" is standard input
 * @param options may be NULL
 * @param report  [out] may be NULL; clear it with ty_import_report_clear
 * @return TY_EPARSE for an unknown format, invalid content, or a file without a model; TY_EINVAL
 *         for an option that does not suit the file.
 */
ty_status ty_workload_import(const char *path, const ty_import_options *options, ty_workload **out,
                             ty_import_report *report, ty_error *error) TY_MUST_CHECK;

/**
 * Writes a workload as a Chakra execution trace (.et) of one data-parallel rank: forward and
 * backward of every layer, an all-reduce of its gradients. An import of it gives the same workload.
 * If other programs changed the nodes, the import reads the nodes, and layers are opaque.
 */
ty_status ty_workload_export_chakra(const ty_workload *workload, const char *path,
                                    ty_error *error) TY_MUST_CHECK;

/** Appends a note to a report, unless it has it already. */
ty_status ty_import_report_add(ty_import_report *report, const char *note,
                               ty_error *error) TY_MUST_CHECK;

/** Whether a file, plain or gzip, begins like a trace of PyTorch's profiler; reads its first 4 KiB.
 * False for unreadable files and for pipes. */
bool ty_is_profiler_trace(const char *path);

/**
 * A profile from a trace of PyTorch's profiler (Kineto; Chrome's trace format), plain or gzip, of
 * any size: memory use grows with the number of different names. Rows are "kernel NAME" (mean of
 * its launches), "annotation NAME" (record_function on the device) and "host annotation NAME",
 * forward only, per call; collectives if the trace has their size and group. A truncated file gives
 * the events it has, with a note.
 * @param report [out] may be NULL; clear it with ty_import_report_clear, also after a failure
 * @return TY_EPARSE naming the byte for invalid JSON or a file without times; TY_ELIMIT for more
 * than 8 GiB of text or too many names.
 */
ty_status ty_profile_import_kineto(const char *path, ty_profile **out, ty_import_report *report,
                                   ty_error *error) TY_MUST_CHECK;

/** Kinds of kernels in a trace, by their names. */
typedef enum ty_traced_kind {
    TY_TRACED_PRODUCTS,
    TY_TRACED_ATTENTION, /* fused */
    TY_TRACED_PASSES,    /* all other kernels */
    TY_TRACED_COLLECTIVES,
    TY_TRACED_KIND_COUNT
} ty_traced_kind;
const char *ty_traced_kind_name(ty_traced_kind kind); /* "products", "attention", ... */

/** Kernel times from a trace of PyTorch's profiler: one rank, one or more steps. */
typedef struct ty_traced_steps {
    uint32_t steps; /* number of ProfilerStep annotations; 1 if there are none */
    double seconds[TY_TRACED_KIND_COUNT]; /* of all kernels of a step, mean over the steps */
    double step_s; /* from the first kernel's start to the last one's end, over the steps */
} ty_traced_steps;
/**
 * Kernel time per step on a device, by kind.
 * @return as ty_profile_import_kineto; TY_EPARSE also for a truncated file, whose last step is
 *         incomplete, and for one without kernels
 */
ty_status ty_traced_steps_load(const char *path, ty_traced_steps *out,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Layer times of a workload from an imported trace, for `plan --profile`: a layer's forward time is
 * the device time per call of the annotation with its name, its backward time that of
 * NAME.backward. Layers of equal cost get their mean. Layers without kernels need no annotation,
 * layers without backward no second one. Keeps collectives and drops all other names.
 * @param samples per pass in the trace
 * @param report  [out] may be NULL: gives the number of layers found
 * @return TY_EPARSE if the trace has no layer's name, or only one of a layer's two.
 */
ty_status ty_profile_of_trace(const ty_profile *trace, const ty_workload *workload,
                              uint32_t samples, ty_profile **out, ty_import_report *report,
                              ty_error *error) TY_MUST_CHECK;
/** A line of a PipeDream profile (graph.txt), unconverted: one mini-batch. */
typedef struct ty_pipedream_node {
    uint64_t id; /* 12 of "node12" */
    const char *name;
    size_t name_length;
    double forward_ms, backward_ms, activation_bytes, parameter_bytes; /* sums of lists */
} ty_pipedream_node;
typedef struct ty_pipedream_visitor {
    void *context;
    ty_status (*node)(void *context, const ty_pipedream_node *node, ty_error *error);
    ty_status (*edge)(void *context, uint64_t from, uint64_t to, ty_error *error);
} ty_pipedream_visitor;

/** Calls the visitor for every line of a profile's text, in order, and stops at its first failure.
 * Names point into `bytes`. TY_EPARSE with `path` and line for invalid profiles. */
ty_status ty_pipedream_read(const char *path, const char *bytes, size_t length,
                            const ty_pipedream_visitor *visitor, ty_error *error) TY_MUST_CHECK;

/** Largest side of an image, pixels. */
#define TY_MOST_PIXELS 65535

/**
 * Changes the image size of a model: recomputes shapes, flop and bytes of all layers from their
 * kinds and attributes; the window of a global pool stays the entire image. Parameters stay the
 * same. Samples in storage keep their bytes per number, rounded down: 0 for compressed images with
 * less than one.
 * @param height, width pixels, 1 to TY_MOST_PIXELS
 * @return TY_EINVAL, workload unchanged: samples that are not images; or, naming the layer,
 *         parameters that depend on the size (a linear layer after a flatten), opaque layers, or
 *         figures that differ from those of the layer's kind. O(layers^2) as
 *         ty_workload_index_make.
 */
ty_status ty_workload_set_image_size(ty_workload *workload, uint32_t height, uint32_t width,
                                     ty_error *error) TY_MUST_CHECK;

/** Names of the zoo, sorted; free each and the array with ty_free. */
/**
 * The zoo model that `typed` names: "llama-3-70b" for "meta-llama/Meta-Llama-3-70B". Words after
 * the name ("batch=64") are ignored.
 * @param name     [out] free with ty_free; NULL: none
 * @param is_guess [out] the name is an alias or a part of the model's name
 */
ty_status ty_zoo_name(const char *typed, char **name, bool *is_guess,
                      ty_error *error) TY_MUST_CHECK;
ty_status ty_zoo_list(char ***names, uint32_t *count, ty_error *error) TY_MUST_CHECK;

/**
 * A builder: append layers, each given its kind, attributes and inputs; shapes, flop, bytes and
 * kernel counts follow. ty_builder_finish reports errors of all calls, so that a model reads as a
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
/** Members of scenarios other than layers, as in ty_workload. */
void ty_builder_set_scenario(ty_builder *builder, ty_learning learning, uint32_t local_steps,
                             double input_s_per_sample);
/** ty_workload.deviation. */
void ty_builder_set_deviation(ty_builder *builder, double deviation);
/** ty_workload.teacher; the layers that are frozen are the teacher's. */
void ty_builder_set_teacher(ty_builder *builder, const ty_teacher *teacher);
/** Freezes layers [first, end): ty_builder_finish subtracts the cost of their gradients from
 * backward.
 */
void ty_builder_freeze(ty_builder *builder, uint32_t first, uint32_t end);
/** Freezes all layers up to the one of that name; an error if there is none. */
void ty_builder_freeze_through(ty_builder *builder, const char *name);
/** Bytes read from storage per sample, labels included; without it, 4 per number and one label. */
void ty_builder_set_sample_bytes(ty_builder *builder, uint64_t sample_bytes);
/** Name of the next layer; without it layers are called kind and number ("conv2d3"). */
void ty_builder_name_next(ty_builder *builder, const char *name);
/** An optional attribute of the next layer; ty_layer_attribute_use has the attributes of a kind. */
void ty_builder_set_next(ty_builder *builder, ty_attribute attribute, uint64_t value);

/* Each returns the new layer's index, to be used as an input of later ones. */
uint32_t ty_builder_linear(ty_builder *builder, uint32_t input, uint64_t out_features,
                           bool has_bias);
/** A linear layer without bias that shares the embedding's matrix (GPT-2's output layer). */
uint32_t ty_builder_tied_linear(ty_builder *builder, uint32_t input, uint32_t embedding);
/** The same with its own bias (BERT's). */
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
/** The sum, or the mean, of `rows` rows of a table, whose indices are in a sample of numbers from
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
/** Likewise; scores come from a layer of `hidden_features`, values are the memory itself. */
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
/** Concatenates the last dimension: [T,A] and [T,B] -> [T,A+B]. */
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

/** One LSTM layer in one direction: [T,D] -> [T,H]; two biases per gate, as in cuDNN. Option:
 * TY_IS_REVERSED. */
uint32_t ty_builder_lstm(ty_builder *builder, uint32_t input, uint64_t hidden_features,
                         bool has_bias);

/** Costs of a layer that has no formulas. Zero-initialize; the other bytes follow from the
 * shapes. */
typedef struct ty_opaque {
    ty_shape output;
    uint64_t parameter_bytes;
    double forward_flop, backward_flop;             /* per sample */
    double measured_forward_s, measured_backward_s; /* per sample */
    bool is_timed; /* the times are known, even if 0; else costs follow from flop and bytes */
    bool is_view;  /* its output shares its input's memory */
} ty_opaque;
/** Any number of inputs, TY_BATCH alone or distinct layers in any order. */
uint32_t ty_builder_opaque(ty_builder *builder, const uint32_t *inputs, uint32_t count,
                           const ty_opaque *known);

/** Shape of an earlier layer, or of the batch; NULL after an error. Valid until the next layer. */
const ty_shape *ty_builder_shape(const ty_builder *builder, uint32_t layer);

/**
 * The cuts at which a workload may be partitioned into stages: indices c, ascending, such that
 * exactly one tensor crosses between layers c-1 and c. Excludes 0 and layer_count.
 * @param cuts [out] free with ty_free
 */
ty_status ty_workload_cuts(const ty_workload *workload, uint32_t **cuts, uint32_t *count,
                           ty_error *error) TY_MUST_CHECK;

#endif
