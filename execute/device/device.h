/**
 * @file device.h
 * A device backend computes the layers of a stage. One struct of functions and one file per
 * backend (device_cpu.c is the first). Internal to execute/.
 *
 * A ty_stage_device is one rank's shard of the model, built for fixed shapes: layers
 * [first_layer, first_layer + layer_count) for `micro_batch_size` samples. Its `slots` sets of
 * activations allow as many in-flight micro-batches. Activations are fp32, batch outermost, shapes
 * as in the workload: [B, C, H, W], [B, T, D], [B, N]; token inputs are int32 [B, T].
 *
 * One array holds the parameters of all layers, in layer order; another holds the gradients. A
 * bucket (a contiguous range of layers) is therefore a contiguous slice of both. A weight matrix
 * that is tied across two stages comes after all others and belongs to no layer's slice.
 *
 * Order of calls for one micro-batch in `slot`: fill input (or tokens, labels) -> forward -> read
 * output -> fill output gradient -> backward -> read input gradient. A pass may run in several
 * calls (backward cut at bucket boundaries), forward ascending and backward descending.
 * Micro-batches may be interleaved, but gradients inside a stage are one set for all slots: one
 * micro-batch's backward ends before another's begins. If a stage is recomputed, the activations
 * inside a segment and their gradients are one set for all slots and all segments. The activations
 * of frozen layers, which no backward needs, are always one set. No other call may come between a
 * segment's recompute and the end of its backward, or between the calls of one forward.
 * One thread at a time per stage device. Meanwhile another thread may read and write gradient
 * slices that no later backward of the step touches.
 */
#ifndef TY_EXECUTE_DEVICE_H
#define TY_EXECUTE_DEVICE_H

#include "codec.h"
#include "transport.h"
#include "ty_core.h"

typedef struct ty_stage_device ty_stage_device;

/** Launches work on a stage's device; see ty_parallel_group.launch. */
typedef ty_status ty_parallel_run(ty_stage_device *stage, void *argument, ty_error *error);

/** A collective of the ranks of a stage replica inside a pass; see ty_collective_options. */
typedef struct ty_parallel_exchange {
    ty_parallelism among;    /* process group: the ranks that differ from this one only in their
                                TP, CP or EP rank */
    ty_collective_kind kind; /* all-reduce, reduce-scatter, all-gather or all-to-all */
    ty_element element;
    void *data; /* device memory, if the backend has memory of its own */
    uint64_t count;
    const uint64_t *sent_counts,
        *received_counts; /* of an all-to-all with unequal counts, else NULL */
    void *received;
} ty_parallel_exchange;

/**
 * The ranks of a stage replica: devices that call the same functions in the same order.
 *
 * A tensor-parallel rank has a shard of every layer that ty_layer_tensor_split shards. Its shard of
 * a matrix is at most ceil(n / tp_size) heads, hidden features or words, from
 * ceil(n / tp_size) * tp_rank on. Elements after the last one are 0 and stay 0. Biases added after
 * a sum over ranks, and position embeddings, are sharded along their features. Without
 * `divides_sequence` everything else is unsharded and bit-identical on all ranks. With it (sequence
 * parallelism), activations between sharded layers are the rank's shard of the sequence,
 * [B, T / tp_size, D], and gradients of unsharded parameters are those of that shard.
 *
 * A context-parallel rank has the tokens of every sequence that ty_context_run_start gives, run
 * after run. Input, tokens, labels and all activations are [B, T / cp_size, ...], which
 * tensor-parallel ranks then shard further. Parameters are unsharded; their gradients and the loss
 * are those of the rank's tokens.
 *
 * An expert-parallel rank has samples of its own, and n / ep_size experts of every MoE layer, from
 * n / ep_size * ep_rank on. Each rank sends a token to the ranks of the experts that it chose, and
 * receives their outputs. All other parameters are unsharded; their gradients and the loss are
 * those of the rank's samples. Gradients of experts are those of the samples of all ranks. A rank's
 * shard of a table (ty_plan.h, "Tables") is rows or columns as for tensor parallelism, or entire
 * tables. Then all ranks have as much room as the one that has most, with padding after the last.
 */
typedef struct ty_parallel_group {
    uint32_t tp_size, tp_rank; /* 0 counts as 1 */
    bool divides_sequence;
    uint32_t cp_size, cp_rank; /* likewise */
    uint32_t ep_size, ep_rank; /* likewise */
    ty_table_shard tables;     /* how they are sharded over expert-parallel ranks */
    /** Called by the thread of the passes. Returns when the data is complete. */
    ty_status (*exchange)(void *context, const ty_parallel_exchange *exchange, ty_error *error);
    /**
     * Adds the collective to the pass that `stage` is recording; called by all ranks alike.
     * Unequal counts cannot be recorded.
     * @return TY_EUNSUPPORTED if the device has no collectives of its own
     */
    ty_status (*record)(void *context, ty_stage_device *stage, const ty_parallel_exchange *exchange,
                        ty_error *error);
    /** Launches the recorded pass on the stage's device: calls `run` once all ranks of the stage
     * replica are ready. Returns when the pass has ended. */
    ty_status (*launch)(void *context, ty_stage_device *stage, ty_parallel_run *run, void *argument,
                        ty_error *error);
    void *context;
} ty_parallel_group;

/** Initial weights from a file instead of from the seed; see weights.h. */
typedef struct ty_weights {
    /**
     * Elements [first, first + count) of a layer's unsharded parameter tensor (layer_tensors.h).
     * @return false, with nothing written: the layer is not in the file and starts from the seed
     */
    bool (*read)(const struct ty_weights *weights, uint32_t layer, uint32_t tensor, uint64_t first,
                 uint64_t count, float *out);
} ty_weights;

typedef struct ty_stage_options {
    const ty_workload *workload; /* borrowed for the life of the stage device */
    uint32_t first_layer, layer_count;
    uint32_t micro_batch_size; /* of this rank: the plan's over the EP size */
    uint32_t slots;            /* in-flight micro-batches; >= 1 */
    ty_recompute recompute;    /* in segments: forward stores, per slot, their inputs */
    uint32_t recompute_blocks; /* as in ty_plan_stage */
    double loss_scale; /* of the summed loss's gradient: 1 / (global batch * labels per sample) */
    uint64_t seed;     /* of the initial weights */
    const ty_weights *weights; /* instead of these, borrowed until the stage is open; NULL: none */
    uint32_t tied_layer; /* layer of this stage (owner or user) whose matrix is tied to another
                            stage's, or TY_NO_LAYER */
    ty_precision precision;
    uint32_t local_rank;      /* of the ranks on this host: which of its devices to use */
    bool is_deterministic;    /* every sum has one order; a backend may have no other sums */
    bool splits_backward;     /* backward has two parts: the second's inputs are stored per slot */
    bool measures_algorithms; /* times the alternative algorithms and uses the fastest from then
                                 on; a backend may have no alternatives */
    uint32_t versions;        /* weight versions, all equal at first; 0 counts as 1 */
    uint32_t gradient_sets;   /* all 0 at first; 0 counts as 1. More only if the backend has
                                 `select_gradients` */
    bool is_sharded; /* parameters and gradients have no memory before `parameters_open`; only if
                        the backend has that, with one set of each */
    ty_parallel_group parallel; /* only if the backend has `shards_join` */
} ty_stage_options;

/* A compressor runs where the gradients are. Its functions are those of codec.h; it refuses with
 * TY_EUNSUPPORTED what it does not support. */
/* Communication of device memory between ranks; see device_link.h. */
typedef struct ty_device_link ty_device_link;
typedef struct ty_link_options ty_link_options;

/** Identity of a device, unique across hosts; ordinals are each process's own. All zeros: none. */
typedef struct ty_device_identity {
    unsigned char bytes[16];
} ty_device_identity;

/** Counts of passes replayed as recorded graphs of launches, and of passes launched one by one. */
typedef struct ty_device_graphs {
    uint32_t count;       /* recorded, one per distinct pass */
    uint64_t replays;     /* passes replayed from a graph */
    uint64_t queued;      /* passes launched one by one */
    const char *given_up; /* why the first failed recording failed; NULL: none failed. Valid as
                             long as the stage */
} ty_device_graphs;

/* Consecutive parameters. */
typedef struct ty_parameter_range {
    uint64_t offset, count;
} ty_parameter_range;

/* A sharded bucket (ZeRO): a rank keeps its shard, and a place holds the entire bucket while it is
 * used. Buckets of one place take turns. */
typedef struct ty_sharded_range {
    ty_parameter_range whole, share;
    uint32_t place;
} ty_sharded_range;

/** How a stage's parameters are sharded over its data-parallel ranks. */
typedef struct ty_sharding {
    bool of_weights, of_gradients;
    bool weights_last; /* each bucket's weights stay valid until its next all-gather, in memory of
                          their own: no two share a place */
    uint32_t range_count, kept_count;
    const ty_sharded_range *ranges;
    const ty_parameter_range *kept; /* ranges this rank always has: its shards, and all unsharded */
} ty_sharding;

typedef enum ty_parameter_array { TY_WEIGHTS, TY_GRADIENTS } ty_parameter_array;

/**
 * Functions of a backend whose memory the host cannot access. Then `output`, `input_gradient`,
 * `output_gradient`, `parameters`, `gradients`, `statistics` and the `input` of every stage but the
 * first are device addresses. `tokens`, `labels` and the first stage's `input` stay host memory,
 * which forward copies. All functions return when the work is done. The thread of the passes calls
 * them, or another one, or both at once.
 */
typedef struct ty_device_memory {
    /** Allocates initial parameters and gradients of a stage that was opened with `is_sharded`:
     * this rank's shards of sharded ranges, and the places. Call it once, before anything else
     * uses them. `parameters` and `gradients` are then invalid for sharded ranges, which `kept` and
     * `whole` find. */
    ty_status (*parameters_open)(ty_stage_device *stage, const ty_sharding *sharding,
                                 ty_error *error);
    /** Address of a stored parameter, followed by the later ones of the same range. */
    float *(*kept)(const ty_stage_device *stage, ty_parameter_array of, uint64_t offset);
    /** Where a bucket's gradients are computed and reduced. */
    float *(*whole)(const ty_stage_device *stage, uint64_t offset);
    /** Begins the all-gather of a bucket's weights: `data` [count] has this rank's shard filled in,
     * and `element` is the type of its numbers. They are 16 bits if passes have 16 bits and weights
     * are sharded. One bucket at a time. */
    ty_status (*gather_begin)(ty_stage_device *stage, const ty_sharded_range *bucket, void **data,
                              ty_element *element, ty_error *error);
    /** Ends it: passes find the weights; those that they read as floats are rounded likewise. */
    ty_status (*gather_end)(ty_stage_device *stage, const ty_sharded_range *bucket,
                            ty_error *error);
    /** Zeroed state of the optimizer for the parameters of these ranges, ascending, and for no
     * others; once, before all updates, which are each of one range. Freed with the stage. */
    ty_status (*state_open)(ty_stage_device *stage, uint32_t state_count,
                            const ty_parameter_range *ranges, uint32_t range_count,
                            ty_error *error);
    /** Address of the state of the parameters from `offset` to the end of their range. */
    float *(*state)(const ty_stage_device *stage, uint64_t offset);
    /** Divides by `divisor` the weights from `offset` on that came over a link, which are unsharded
     * and of the version in use. Then updates the copies of them that passes read. `write` and
     * `copy` update these by themselves. */
    ty_status (*weights_average)(ty_stage_device *stage, uint64_t offset, uint64_t count,
                                 uint32_t divisor, ty_error *error);
    /** Zeroed; NULL when there is none. Freed by `release` before the stage is closed. */
    void *(*allocate)(ty_stage_device *stage, uint64_t bytes);
    void (*release)(ty_stage_device *stage, void *memory);
    /** Copies a batch of numbers for the first stage to `room`, of `allocate`, while passes run.
     * One thread, which may be another than that of the passes. */
    ty_status (*input_send)(ty_stage_device *stage, void *room, const float *host, ty_error *error);
    /** Makes such a batch the input of the slot's next forward, in place of `input`. */
    ty_status (*input_take)(ty_stage_device *stage, uint32_t slot, const void *room,
                            ty_error *error);
    /** Host memory that copies fast. */
    void *(*host_allocate)(ty_stage_device *stage, uint64_t bytes);
    void (*host_release)(ty_stage_device *stage, void *memory);
    ty_status (*read)(ty_stage_device *stage, void *host, const void *device, uint64_t bytes,
                      ty_error *error);
    ty_status (*write)(ty_stage_device *stage, void *device, const void *host, uint64_t bytes,
                       ty_error *error);
    ty_status (*copy)(ty_stage_device *stage, void *to, const void *from, uint64_t bytes,
                      ty_error *error);
    /**
     * ty_optimizer_step on a slice that no current pass reads, with the selected gradients; the
     * state is the backend's. Under fp16 these are first divided by the factor of `scale_loss`.
     * @param is_finite [out] false: a gradient overflowed and the slice is unchanged
     */
    ty_status (*update)(ty_stage_device *stage, const ty_optimizer *optimizer, uint64_t step,
                        uint64_t offset, uint64_t count, bool *is_finite, ty_error *error);
    /** From now on the loss's gradient is multiplied by `factor`; fp16 only. */
    void (*scale_loss)(ty_stage_device *stage, double factor);
    /** Compressors that compute on the device: ty_codec_open, ty_codec_encode and ty_codec_decode.
     * Closed before the stage is. */
    ty_status (*codec_open)(ty_stage_device *stage, const ty_codec_options *options, ty_codec **out,
                            ty_error *error);
    ty_status (*codec_encode)(ty_codec *codec, uint32_t phase, const float *gradients,
                              ty_error *error);
    ty_status (*codec_decode)(ty_codec *codec, float *gradients, ty_error *error);
    /** Whether link_open may succeed here: TY_EUNSUPPORTED says why not. NULL: never. */
    ty_status (*link_check)(ty_stage_device *stage, ty_error *error);
    /** Link between devices that bypasses host memory. Collective: all ranks call it together. */
    ty_status (*link_open)(const ty_link_options *options, ty_device_link **out, ty_error *error);
    /** The stage's device. */
    ty_device_identity (*identity)(const ty_stage_device *stage);
    /** "NVIDIA H100, CUDA 13.0, cuDNN 9.19, NCCL 2.28": for the run's record. */
    const char *(*describe)(const ty_stage_device *stage);
    /** Counts so far, for the same record. */
    ty_device_graphs (*graphs)(const ty_stage_device *stage);
    /** Turns timing of passes and memory functions by the device's own clock on or off. `seconds`
     * is the time of the last one on the device, without the host's work before and after it. One
     * thread. */
    ty_status (*time)(ty_stage_device *stage, bool is_timed, ty_error *error);
    ty_status (*seconds)(ty_stage_device *stage, double *seconds, ty_error *error);
    /** y = x W^T of matrices [side][side] in the type of the precision, to measure the device's
     * rate of multiplication. Each needs room for at most side^2 floats. */
    ty_status (*multiply)(ty_stage_device *stage, uint64_t side, const void *x, const void *weight,
                          void *y, ty_error *error);
    /** Memory of the device, all of it. */
    uint64_t (*capacity_bytes)(const ty_stage_device *stage);
    /** Peak memory of the stage so far: its buffers, the optimizer's state, compressors, staging
     * and its link. Memory that the device's libraries allocate for themselves does not count. */
    uint64_t (*peak_bytes)(ty_stage_device *stage);
} ty_device_memory;

/** Floats from one set of weights, or of gradients, to the next in one array: a count that aligns
 * all sets alike, whatever `parameter_count` is. */
static inline uint64_t ty_parameter_stride(uint64_t parameter_count)
{
    const uint64_t alignment = 256;

    return (parameter_count + alignment - 1) / alignment * alignment;
}

typedef struct ty_device_backend {
    const char *name; /* "cpu" */
    /** Nothing is computed: instructions take the times that the job gives them. Messages use the
     * buffers below, collectives use others. Functions from `forward` on are NULL except
     * `memory_bytes`. */
    bool is_timed;

    /** Whether every layer of the range can be trained; else TY_EUNSUPPORTED naming the layer. */
    ty_status (*supports)(const ty_workload *workload, uint32_t first_layer, uint32_t layer_count,
                          ty_error *error);
    /**
     * Weights depend on (seed, layer index in the workload, index in the tensor) only, never on how
     * layers are partitioned into stages: the oracle tests rely on it. Linear and conv: normal with
     * deviation sqrt(1 / (3 fan in)); in models with attention: normal 0.02, output projections
     * 0.02 / sqrt(2 * blocks); biases 0; norm gains 1.
     */
    ty_status (*open)(const ty_stage_options *options, ty_stage_device **out, ty_error *error);
    void (*close)(ty_stage_device *stage);

    /* Buffers of a slot; host memory for "cpu". Sizes follow from the workload's shapes. Tensors
     * that cross cuts have the workload's `element_bytes` per number: floats, or, if these are two
     * bytes, numbers of the passes' type. */
    float *(*input)(ty_stage_device *stage, uint32_t slot);
    /** Only of a first stage with `input`, if `memory` is NULL: replaces the slot's input buffer by
     * `fresh`, which is as large, aligned to 64 bytes, and outlives the slot's use of it.
     * @return the buffer before */
    float *(*swap_input)(ty_stage_device *stage, uint32_t slot, float *fresh);
    int32_t *(*tokens)(ty_stage_device *stage, uint32_t slot); /* token input; NULL if none */
    int32_t *(*labels)(ty_stage_device *stage,
                       uint32_t slot); /* last stage: [B] or [B, T]; in reinforcement, followed by
                                          as many floats, their advantages; else NULL */
    float *(*output)(ty_stage_device *stage, uint32_t slot); /* last stage: NULL */
    /** NULL in the first stage, and if backward does not reach the layers before the stage
     * (ty_workload_first_backward). */
    float *(*input_gradient)(ty_stage_device *stage, uint32_t slot);
    /** Overwritten by backward. NULL in the last stage, and if backward does not reach the stage.
     */
    float *(*output_gradient)(ty_stage_device *stage, uint32_t slot);

    ty_status (*forward)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                         uint32_t layer_count, ty_error *error);
    /** Forward again, from the slot's stored activations, of layers of one segment before their
     * backward; only if the stage is recomputed. */
    ty_status (*recompute)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                           uint32_t layer_count, ty_error *error);
    /** @param is_first overwrite the parameter gradients instead of adding to them: the first
     *         micro-batch of a step for this range */
    ty_status (*backward)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                          uint32_t layer_count, bool is_first, ty_error *error);
    /** Backward in two parts, only with `splits_backward`: the gradients of the layers' inputs,
     * then, at any time before the slot's next forward, those of their weights. The parts of
     * several micro-batches may be interleaved. NULL if a backend cannot. */
    ty_status (*backward_input)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                                uint32_t layer_count, ty_error *error);
    ty_status (*backward_weight)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                                 uint32_t layer_count, bool is_first, ty_error *error);
    /** Statistics that layers have in addition to their parameters (batch norm: running mean and
     * variance); count 0 without. NULL if a backend has none. */
    float *(*statistics)(ty_stage_device *stage, uint64_t *count);
    /** Whether forward from now on is of a test set: with those statistics. NULL likewise. */
    void (*set_evaluating)(ty_stage_device *stage, bool is_evaluating);
    /** Sum of the loss over the slot's labels, and how many predictions were right. Last stage,
     * after forward. */
    void (*loss)(ty_stage_device *stage, uint32_t slot, double *loss_sum, uint64_t *correct,
                 uint64_t *labels);

    /* Parameters: arrays of parameter_count floats. Gradients of frozen layers stay 0; with weight
     * decay the optimizer must not see their slices. */
    uint64_t (*parameter_count)(const ty_stage_device *stage);
    /** Passes and `parameters` use this weight version from now on, version 0 at first. NULL if a
     * backend has only one. */
    void (*select)(ty_stage_device *stage, uint32_t version);
    float *(*parameters)(ty_stage_device *stage);
    /** The first set; each of the others is ty_parameter_stride floats after the one before. */
    float *(*gradients)(ty_stage_device *stage);
    /** Passes compute this set of gradients from now on, and updates in device memory read it;
     * set 0 at first. Called by the thread of the passes. NULL if a backend has only one. */
    void (*select_gradients)(ty_stage_device *stage, uint32_t set);
    /** Slice of a range of layers in those arrays, without the tied matrix and, with
     * expert parallelism, without experts. */
    void (*slice)(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                  uint64_t *offset, uint64_t *count);
    /** Marks a slice, of any of those arrays, as not read before it is written: its memory may be
     * released meanwhile. NULL if a backend keeps it. */
    void (*discard)(ty_stage_device *stage, float *first, uint64_t count);
    /** Sum of squares of any slice of those arrays. NULL if a backend does not compute it. */
    double (*square)(ty_stage_device *stage, const float *first, uint64_t count);
    /** Slice of the tied matrix; count 0 if the stage has none. */
    void (*tied_slice)(const ty_stage_device *stage, uint64_t *offset, uint64_t *count);
    /**
     * Joins the ranks' slices of a layer, or of the tied matrix that it owns, into the unsharded
     * one. @param parts [tensor-parallel ranks][count of the slice], or NULL to count
     * @return numbers of the unsharded slice. NULL if a backend has no tensor parallelism.
     */
    uint64_t (*shards_join)(const ty_stage_device *stage, uint32_t layer, bool is_tied,
                            const float *parts, float *whole);
    /** Slice of the parameters of a range of layers that are sharded over expert-parallel ranks,
     * experts and tables; all others are in the layers' slices. NULL if a backend has no expert
     * parallelism. */
    void (*expert_slice)(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                         uint64_t *offset, uint64_t *count);
    /** Joins the ranks' slices of a layer's experts, [expert-parallel ranks][tensor-parallel
     * ranks][count], into the unsharded one; a table that one rank has entirely comes from that
     * rank's slice. Like shards_join; NULL if expert_slice is. */
    uint64_t (*experts_join)(const ty_stage_device *stage, uint32_t layer, const float *parts,
                             float *whole);
    /** Allocated bytes, for the memory row of a run. */
    uint64_t (*memory_bytes)(const ty_stage_device *stage);
    const ty_device_memory *memory; /* NULL: all of the above is host memory */
} ty_device_backend;

/**
 * "cpu", "replay", or "cuda": a plugin (backends.c) that is loaded at its first request.
 * @param is_alone whether the run has one rank, whose kernels may be loaded when they are needed
 * @return TY_EUNSUPPORTED: no such backend, the plugin is missing, or there is no GPU.
 */
ty_status ty_device_backend_find(const char *name, bool is_alone, const ty_device_backend **out,
                                 ty_error *error) TY_MUST_CHECK;
extern const ty_device_backend ty_device_cpu, ty_device_replay;

/* ---- Optimizers (optimizer.c) ------------------------------------------------------------ */

/**
 * One step of an optimizer that the worker runs (ty_optimizer_check_executed) on `count`
 * parameters; calls on slices give the same result as one call on all.
 * SGD: v = momentum v + g + decay w; w -= lr v.
 * AdamW: Loshchilov and Hutter, 2019, algorithm 2, with bias correction.
 * @param step 1 for the first
 * @param state [count][ty_optimizer_state_count], zero at the start
 */
void ty_optimizer_step(const ty_optimizer *optimizer, uint64_t step, uint64_t count,
                       float *parameters, const float *gradients, float *state);

/* ---- Data (data_*.c) --------------------------------------------------------------------- */

/** Labels of one sample: 1, or one per token of a sequence. */
uint64_t ty_labels_per_sample(const ty_workload *workload);
/** Number of classes: labels are less than this. */
uint64_t ty_class_count(const ty_workload *workload);

typedef struct ty_dataset ty_dataset;
/**
 * Opens the workload's data set.
 * - "fashion-mnist": IDX files, .gz or not, in `directory` or where Debian's dataset-fashion-mnist
 *   installs them.
 * - "text": `directory` is a text file, or one of tokens (tokens.h), or NULL for the GPL that
 *   Debian installs; windows of tokens_per_sample + 1.
 * - "synthetic": generated if `directory` is NULL. Else read from there: images (a folder or tar
 *   files, data_images.c) for a workload of images, else text.
 * @param is_test the test set
 * @return TY_EIO: absent; TY_EPARSE: not such a file, truncated, sizes that disagree, labels out of
 * range.
 */
ty_status ty_dataset_open(const ty_workload *workload, const char *directory, bool is_test,
                          ty_dataset **out, ty_error *error) TY_MUST_CHECK;
void ty_dataset_close(ty_dataset *dataset);
/** How samples that need decoding, such as images, are read; no effect on those in memory. */
typedef struct ty_reading {
    uint32_t bad_samples; /* unreadable samples that may be skipped */
    uint32_t threads;     /* decode samples ahead of time; 0: samples are decoded on request */
    uint32_t room;        /* samples decoded ahead, at most */
    bool labels_only;     /* no input will be requested: if none may be skipped, nothing is read */
} ty_reading;
/** Once, before the first sample. TY_ENOMEM; TY_EBACKEND: no thread. */
ty_status ty_dataset_prepare(ty_dataset *dataset, const ty_reading *reading,
                             ty_error *error) TY_MUST_CHECK;
uint64_t ty_dataset_sample_count(const ty_dataset *dataset);
/** Whether samples need decoding, so that threads help. */
bool ty_dataset_takes_work(const ty_dataset *dataset);
/** Stored size of a sample; 0: it is not stored. */
double ty_dataset_stored_bytes(const ty_dataset *dataset, uint64_t sample);
/** Stored size of all samples if they overlap, as windows of a text do; 0: they do not. */
double ty_dataset_data_bytes(const ty_dataset *dataset);
/**
 * The `position`-th sample of the entire training run under `seed`: epochs one after the other,
 * each a permutation of its own. O(1), the same on every rank.
 */
uint64_t ty_dataset_shuffled(const ty_dataset *dataset, uint64_t seed, uint64_t position);
/**
 * The same if only some labels may be seen (ty_teacher). Every k-th position is a labeled sample;
 * the seed chooses which samples these are, in epochs of their own.
 * @param has_label [out] whether it is one of them; always true without a teacher
 */
uint64_t ty_dataset_visited(const ty_dataset *dataset, uint64_t seed, uint64_t position,
                            bool *has_label);
/** Displaces the views of a row at that position; does nothing if they are not displaced. */
void ty_dataset_displace(const ty_dataset *dataset, uint64_t seed, uint64_t position, float *input);
/** Instead of the label of a sample whose label may not be seen. */
#define TY_NO_LABEL (-1)
/**
 * Copies one sample into one row of a batch. The next readable sample replaces an unreadable one,
 * up to the number that the options allow.
 * @param input floats (or NULL), @param tokens int32 (or NULL), @param labels int32 (or NULL):
 * NULL if the stage has no such buffer.
 * @return TY_EPARSE naming a sample that cannot be read, if it is one too many
 */
ty_status ty_dataset_sample(const ty_dataset *dataset, uint64_t sample, float *input,
                            int32_t *tokens, int32_t *labels, ty_error *error) TY_MUST_CHECK;
/** Announces that a sample will soon be requested: another thread decodes it meanwhile, if it needs
 * decoding and there is room. */
void ty_dataset_expect(const ty_dataset *dataset, uint64_t sample);
/** Fills caches now, so that ty_dataset_sample is as fast as it gets. */
void ty_dataset_fill(const ty_dataset *dataset);
/** Samples skipped so far. @param first [out] error message of the first of them; may be NULL */
uint32_t ty_dataset_skipped(const ty_dataset *dataset, const char **first);

#endif
