/**
 * @file device.h
 * A device backend: what computes a stage's layers. One struct of functions and one file per
 * backend (device_cpu.c is the first). Internal to execute/.
 *
 * A ty_stage_device is one rank's part of the network, built for fixed shapes: layers
 * [first_layer, first_layer + layer_count) for `micro_batch_size` samples, with `slots` sets of
 * activations so that as many micro-batches can be in flight. Activations are fp32, batch
 * outermost, shapes as in the workload: [B, C, H, W], [B, T, D], [B, N]; token inputs are int32 [B,
 * T].
 *
 * Parameters of all layers lie in one array, in layer order, gradients likewise, so that a bucket
 * (a contiguous range of layers) is a contiguous slice of both. A weight matrix that is tied across
 * two stages lies behind all others and belongs to no layer's slice.
 *
 * Order of calls for one micro-batch in `slot`: fill input (or tokens, labels) -> forward -> read
 * output -> fill output gradient -> backward -> read input gradient. Ranges of layers may be given
 * in pieces (backward cut at bucket boundaries), forward ascending and backward descending.
 * Micro-batches may be interleaved, but gradients inside a stage are one set for all slots: one
 * micro-batch's backward is done before another's begins. Where a stage is recomputed, the
 * activations inside a segment, and what is there of their gradients, are one set for all slots and
 * all segments, and so are always activations that no backward needs, of frozen layers: nothing
 * comes between a segment's recompute and the end of its backward, or between pieces of a forward.
 * One thread at a time per stage device; gradient slices that no later backward of the step touches
 * may be read and written by another thread meanwhile.
 */
#ifndef TY_EXECUTE_DEVICE_H
#define TY_EXECUTE_DEVICE_H

#include "codec.h"
#include "transport.h"
#include "ty_core.h"

typedef struct ty_stage_device ty_stage_device;

/** Puts something on a stage's device; see ty_parallel_group.launch. */
typedef ty_status ty_parallel_run(ty_stage_device *stage, void *argument, ty_error *error);

/** What the ranks of a stage replica exchange inside a pass, as ty_collective_options has it. */
typedef struct ty_parallel_exchange {
    ty_parallelism among;    /* those that differ from this rank in its number of that kind only */
    ty_collective_kind kind; /* all-reduce, reduce-scatter, all-gather or all-to-all */
    ty_element element;
    void *data; /* the device's, where the backend has memory of its own */
    uint64_t count;
    const uint64_t *sent_counts,
        *received_counts; /* of an all-to-all of unequal parts, else NULL */
    void *received;
} ty_parallel_exchange;

/**
 * The ranks of a stage replica: devices that call the same functions in the same order.
 *
 * Tensor-parallel ranks have each their part of every layer that ty_layer_tensor_split divides. Of
 * a matrix a rank has the heads, hidden features or words from ceil(n / ranks) * position on, at
 * most ceil(n / ranks); what is behind the last one is 0 and stays so. Biases behind a sum over
 * ranks and positions are divided along their features. Without `divides_sequence` everything else
 * is whole on all ranks, alike to the bit. With it, activations between divided layers are each
 * rank's part of the sequence, [B, T / ranks, D], and gradients of undivided parameters are those
 * of that part.
 *
 * Context-parallel ranks have each the tokens of every sequence that ty_context_run_start says, run
 * behind run: input, tokens, labels and all activations are [B, T / context_count, ...], which
 * tensor-parallel ranks then divide further; parameters are whole, their gradients and the loss
 * those of the rank's tokens.
 *
 * Expert-parallel ranks have each samples of their own, and of every moe layer the experts from n /
 * ranks * position on, n / ranks of them: whoever has a token that chose one of them sends it there
 * and gets back what the expert makes of it. All other parameters are whole, their gradients and
 * the loss those of the rank's samples; gradients of experts are those of the samples of all ranks.
 * Of tables that they divide (ty_plan.h, "Tables") ranks have rows or columns as tensor-parallel
 * ranks have them, or whole tables; then all have as much room as the one that has most, behind the
 * last.
 */
typedef struct ty_parallel_group {
    uint32_t tp_size, tp_rank; /* of tensor ranks; 0 counts as 1 */
    bool divides_sequence;
    uint32_t cp_size, cp_rank; /* likewise */
    uint32_t ep_size, ep_rank; /* likewise */
    ty_table_shard tables;     /* how expert-parallel ranks divide them */
    /** By the thread of the passes. Returns when the data is there. */
    ty_status (*exchange)(void *context, const ty_parallel_exchange *exchange, ty_error *error);
    /**
     * Puts the exchange into what `stage` is recording, which is a pass; by all ranks alike.
     * Parts of unequal sizes cannot be recorded.
     * @return TY_EUNSUPPORTED where the device does not exchange by itself
     */
    ty_status (*record)(void *context, ty_stage_device *stage, const ty_parallel_exchange *exchange,
                        ty_error *error);
    /** Puts on the stage's device what was recorded, by `run`, which is called when all ranks of
     * the rank have come as far. Returns when it is over. */
    ty_status (*launch)(void *context, ty_stage_device *stage, ty_parallel_run *run, void *argument,
                        ty_error *error);
    void *context;
} ty_parallel_group;

/** Weights from a file, which stages start from in place of the seed's; see weights.h. */
typedef struct ty_weights {
    /**
     * Elements [first, first + count) of a parameter tensor of a layer (layer_tensors.h), as one
     * device without ranks has it.
     * @return false, with nothing written: the layer is not in the file and starts from the seed
     */
    bool (*read)(const struct ty_weights *weights, uint32_t layer, uint32_t tensor, uint64_t first,
                 uint64_t count, float *out);
} ty_weights;

typedef struct ty_stage_options {
    const ty_workload *workload; /* borrowed for the life of the stage device */
    uint32_t first_layer, layer_count;
    uint32_t micro_batch_size; /* of this rank: expert-parallel ranks divide the plan's */
    uint32_t slots;            /* micro-batches in flight; >= 1 */
    ty_recompute recompute;    /* in segments: forward keeps of each slot what enters these */
    uint32_t recompute_blocks; /* as in ty_plan_stage */
    double loss_scale; /* of the summed loss's gradient: 1 / (global batch * labels per sample) */
    uint64_t seed;     /* of the initial weights */
    const ty_weights *weights; /* in their place, borrowed until the stage is open; NULL: none */
    uint32_t tied_layer; /* layer of this stage (owner or user) whose matrix is tied to another
                            stage's, or TY_NO_LAYER */
    ty_precision precision;
    uint32_t local_rank;   /* of the ranks on this host: which of its devices to use */
    bool is_deterministic; /* every sum has one order; a backend may have no other sums */
    bool splits_backward;  /* backward comes in two parts: what the second needs is kept per slot */
    bool measures_algorithms; /* of several ways to do the same the fastest is found by trying, and
                                 noted for all that come later; a backend may have none */
    uint32_t versions;        /* sets of weights side by side, all alike at first; 0 counts as 1 */
    uint32_t gradient_sets;   /* side by side, all 0 at first; 0 counts as 1. More only where the
                                 backend has `select_gradients` */
    bool is_sharded; /* parameters and gradients have no memory before `parameters_open`; only
                        where the backend has that, with one set of each */
    ty_parallel_group parallel; /* only where the backend has `shards_join` */
} ty_stage_options;

/* A compressor that runs where the gradients are; its functions are those of codec.h, and it
 * refuses with TY_EUNSUPPORTED what it has not. */
/* How device memory travels between ranks; see device_link.h. */
typedef struct ty_device_link ty_device_link;
typedef struct ty_link_options ty_link_options;

/** A device, told from all others wherever they are: ordinals are each process's own. All zeros:
 * none. */
typedef struct ty_device_identity {
    unsigned char bytes[16];
} ty_device_identity;

/** What became of the passes of a device that may replay launches it has recorded, as graphs. */
typedef struct ty_device_graphs {
    uint32_t count;       /* recorded, each of a pass unlike the others */
    uint64_t replays;     /* passes that were one of them */
    uint64_t queued;      /* passes that were not */
    const char *given_up; /* why the first that could not be recorded could not; NULL: none. Valid
                             as long as the stage */
} ty_device_graphs;

/* Consecutive parameters. */
typedef struct ty_parameter_range {
    uint64_t offset, count;
} ty_parameter_range;

/* A bucket of which a rank keeps its share (ZeRO), and the place where all of it is while it is
 * used: buckets of one place take turns. */
typedef struct ty_sharded_range {
    ty_parameter_range whole, share;
    uint32_t place;
} ty_sharded_range;

/** How a stage's parameters are shared out among the ranks that have them. */
typedef struct ty_sharding {
    bool of_weights, of_gradients;
    bool weights_last; /* each bucket's from one gather to the next, in memory of their own: no
                          place is for turns */
    uint32_t range_count, kept_count;
    const ty_sharded_range *ranges;
    const ty_parameter_range *kept; /* what this rank has at any time: shares, and all else */
} ty_sharding;

typedef enum ty_parameter_array { TY_WEIGHTS, TY_GRADIENTS } ty_parameter_array;

/**
 * What a backend offers whose memory the host cannot touch. Then `output`, `input_gradient`,
 * `output_gradient`, `parameters`, `gradients`, `statistics` and the `input` of every stage but the
 * first are addresses of the device; `tokens`, `labels` and the first stage's `input` stay host
 * memory, which forward copies. All functions return when the work is done. They are called by the
 * thread of the passes, by another one, or by both at once.
 */
typedef struct ty_device_memory {
    /** Memory of parameters, as they start, and gradients of a stage that was opened with
     * `is_sharded`: of what is shared out so much as this rank keeps, and the places. Once, before
     * anything else is asked of them. `parameters` and `gradients` then mean nothing of what is
     * shared out, which `kept` and `whole` find. */
    ty_status (*parameters_open)(ty_stage_device *stage, const ty_sharding *sharding,
                                 ty_error *error);
    /** Where a parameter is kept, with those behind it that are of the same range. */
    float *(*kept)(const ty_stage_device *stage, ty_parameter_array of, uint64_t offset);
    /** Where a bucket's gradients are made and exchanged. */
    float *(*whole)(const ty_stage_device *stage, uint64_t offset);
    /** A bucket's weights come together: `data` [count] has this rank's share filled in, `element`
     * says of which numbers. These are 16 bits where passes have 16 bits and weights are shared
     * out. One bucket at a time. */
    ty_status (*gather_begin)(ty_stage_device *stage, const ty_sharded_range *bucket, void **data,
                              ty_element *element, ty_error *error);
    /** They are together: passes find them, those that they read as floats rounded likewise. */
    ty_status (*gather_end)(ty_stage_device *stage, const ty_sharded_range *bucket,
                            ty_error *error);
    /** Zeroed state of the optimizer for the parameters of these ranges, ascending, and for no
     * others; once, before all updates, which are each of one range. Freed with the stage. */
    ty_status (*state_open)(ty_stage_device *stage, uint32_t state_count,
                            const ty_parameter_range *ranges, uint32_t range_count,
                            ty_error *error);
    /** Where the state of the parameters from `offset` to the end of their range lies. */
    float *(*state)(const ty_stage_device *stage, uint64_t offset);
    /** Weights from `offset` on that came over a link, of the set in use and not shared out:
     * divided by `divisor`, and whatever else the passes read of them is made anew. `write` and
     * `copy` do so by themselves. */
    ty_status (*weights_average)(ty_stage_device *stage, uint64_t offset, uint64_t count,
                                 uint32_t divisor, ty_error *error);
    /** Zeroed; NULL when there is none. Freed by `release` before the stage is closed. */
    void *(*allocate)(ty_stage_device *stage, uint64_t bytes);
    void (*release)(ty_stage_device *stage, void *memory);
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
     * ty_optimizer_step on a slice that no pass under way reads, by the selected gradients; the
     * state is the backend's. Under fp16 these are first divided by the factor of `scale_loss`.
     * @param is_finite [out] false: a gradient overflowed and the slice was left as it is
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
    /** Between devices without the host's memory. Collective: all ranks call it together. */
    ty_status (*link_open)(const ty_link_options *options, ty_device_link **out, ty_error *error);
    /** Which device the stage is on. */
    ty_device_identity (*identity)(const ty_stage_device *stage);
    /** "NVIDIA H100, CUDA 13.0, cuDNN 9.19, NCCL 2.28": for the run's record. */
    const char *(*describe)(const ty_stage_device *stage);
    /** So far, for the same. */
    ty_device_graphs (*graphs)(const ty_stage_device *stage);
    /** From now on, or no longer, passes and memory functions are timed by the device's own clock:
     * what the last one took there, without what the host does before and behind it. One thread. */
    ty_status (*time)(ty_stage_device *stage, bool is_timed, ty_error *error);
    ty_status (*seconds)(ty_stage_device *stage, double *seconds, ty_error *error);
    /** y = x W^T of matrices [side][side] in the type of the precision: what the device's rate of
     * multiplying is measured by. Room of side^2 floats will do for each. */
    ty_status (*multiply)(ty_stage_device *stage, uint64_t side, const void *x, const void *weight,
                          void *y, ty_error *error);
    /** Of the device, all of it. */
    uint64_t (*capacity_bytes)(const ty_stage_device *stage);
    /** What the stage has taken of it so far, at its highest: its buffers, the optimizer's state,
     * compressors, staging and what its link has. Not what the device's libraries take for
     * themselves. */
    uint64_t (*peak_bytes)(ty_stage_device *stage);
} ty_device_memory;

/** Floats from one set of weights, or of gradients, to the next where they lie side by side: so
 * many that all sets are aligned alike, whatever `parameter_count` is. */
static inline uint64_t ty_parameter_stride(uint64_t parameter_count)
{
    const uint64_t alignment = 256;

    return (parameter_count + alignment - 1) / alignment * alignment;
}

typedef struct ty_device_backend {
    const char *name; /* "cpu" */
    /** Nothing is computed: instructions take the times that the job gives them, messages are of
     * the buffers below, and exchanges of others. Functions from `forward` on are NULL but for
     * `memory_bytes`. */
    bool is_timed;

    /** Whether every layer of the range can be trained; else TY_EUNSUPPORTED naming the layer. */
    ty_status (*supports)(const ty_workload *workload, uint32_t first_layer, uint32_t layer_count,
                          ty_error *error);
    /**
     * Weights depend on (seed, layer index in the workload, position in the tensor) only, never on
     * how layers are divided into stages: the oracle tests rest on it. Linear and conv: normal with
     * deviation sqrt(1 / (3 fan in)); in networks with attention: normal 0.02, output projections
     * 0.02 / sqrt(2 * blocks); biases 0; norm gains 1.
     */
    ty_status (*open)(const ty_stage_options *options, ty_stage_device **out, ty_error *error);
    void (*close)(ty_stage_device *stage);

    /* Buffers of a slot; host memory for "cpu". Sizes follow from the workload's shapes. What
     * crosses cuts is of the workload's `element_bytes` a number: floats, or, where these are two,
     * numbers of the passes' type. */
    float *(*input)(ty_stage_device *stage, uint32_t slot);
    /** Only of a first stage with `input`: from here on that of the slot is `fresh`, as large, host
     * memory that is aligned to 64 bytes and outlives the slot's use of it.
     * @return what it was */
    float *(*swap_input)(ty_stage_device *stage, uint32_t slot, float *fresh);
    int32_t *(*tokens)(ty_stage_device *stage, uint32_t slot); /* token input; NULL if none */
    int32_t *(*labels)(ty_stage_device *stage,
                       uint32_t slot); /* last stage: [B] or [B, T]; in reinforcement, behind
                                          them as many floats, their advantages; else NULL */
    float *(*output)(ty_stage_device *stage, uint32_t slot); /* last stage: NULL */
    /** NULL in the first stage, and where backward does not come to what is before the stage
     * (ty_workload_first_backward). */
    float *(*input_gradient)(ty_stage_device *stage, uint32_t slot);
    /** Used up by backward. NULL in the last stage, and where backward does not come to the stage.
     */
    float *(*output_gradient)(ty_stage_device *stage, uint32_t slot);

    ty_status (*forward)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                         uint32_t layer_count, ty_error *error);
    /** Forward again of layers of one segment from what the slot has kept, before their backward;
     * only where the stage is recomputed. */
    ty_status (*recompute)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                           uint32_t layer_count, ty_error *error);
    /** @param is_first overwrite the parameter gradients instead of adding to them: the first
     *         micro-batch of a step for this range */
    ty_status (*backward)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                          uint32_t layer_count, bool is_first, ty_error *error);
    /** Backward in two parts, only with `splits_backward`: the gradients of what the layers read,
     * then, at any time before the slot's next forward, those of their weights. The parts of
     * several micro-batches may be interleaved. NULL where a backend cannot. */
    ty_status (*backward_input)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                                uint32_t layer_count, ty_error *error);
    ty_status (*backward_weight)(ty_stage_device *stage, uint32_t slot, uint32_t first_layer,
                                 uint32_t layer_count, bool is_first, ty_error *error);
    /** Statistics that layers keep beside their parameters (batch norm: running mean and variance);
     * count 0 without. NULL where a backend has none. */
    float *(*statistics)(ty_stage_device *stage, uint64_t *count);
    /** Whether forward from here on is of a test set: with those statistics. NULL likewise. */
    void (*set_evaluating)(ty_stage_device *stage, bool is_evaluating);
    /** Sum of the loss over the slot's labels, and how many predictions were right. Last stage,
     * after forward. */
    void (*loss)(ty_stage_device *stage, uint32_t slot, double *loss_sum, uint64_t *correct,
                 uint64_t *labels);

    /* Parameters: arrays of parameter_count floats. Gradients of frozen layers stay 0; with weight
     * decay their slices must be kept from the optimizer. */
    uint64_t (*parameter_count)(const ty_stage_device *stage);
    /** From here on passes and `parameters` mean this set of weights; at first it is set 0. NULL
     * where a backend has but one. */
    void (*select)(ty_stage_device *stage, uint32_t version);
    float *(*parameters)(ty_stage_device *stage);
    /** The first set; each of the others is ty_parameter_stride floats behind the one before. */
    float *(*gradients)(ty_stage_device *stage);
    /** From here on passes make this set of gradients, and an update in device memory is by it; at
     * first it is set 0. By the thread of the passes. NULL where a backend has but one. */
    void (*select_gradients)(ty_stage_device *stage, uint32_t set);
    /** Slice of a range of layers in those arrays, without the tied matrix and, where there are
     * expert-parallel ranks, without experts. */
    void (*slice)(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                  uint64_t *offset, uint64_t *count);
    /** What lies there, in whichever of those arrays, is not read before it is written anew: its
     * memory may be given back meanwhile. NULL where a backend keeps it. */
    void (*discard)(ty_stage_device *stage, float *first, uint64_t count);
    /** Sum of squares, of any part of those arrays. NULL where a backend has no way. */
    double (*square)(ty_stage_device *stage, const float *first, uint64_t count);
    /** Slice of the tied matrix; count 0 if the stage has none. */
    void (*tied_slice)(const ty_stage_device *stage, uint64_t *offset, uint64_t *count);
    /**
     * From the ranks' slices of a layer, or of the tied matrix that it owns, that of one device
     * without ranks. @param parts [ranks][count of the slice], or NULL to count
     * @return numbers of the whole. NULL where a backend has no ranks.
     */
    uint64_t (*shards_join)(const ty_stage_device *stage, uint32_t layer, bool is_tied,
                            const float *parts, float *whole);
    /** Slice of what expert-parallel ranks divide of a range of layers, experts and tables; what
     * they do not divide is in the layers' slices. NULL where a backend has no expert-parallel
     * ranks. */
    void (*expert_slice)(const ty_stage_device *stage, uint32_t first_layer, uint32_t layer_count,
                         uint64_t *offset, uint64_t *count);
    /** From the ranks' slices of a layer's experts, [expert-parallel ranks][tensor-parallel
     * ranks][count], those of one device; of a table that one rank has whole, from that rank's
     * slice. As shards_join, NULL where expert_slice is. */
    uint64_t (*experts_join)(const ty_stage_device *stage, uint32_t layer, const float *parts,
                             float *whole);
    /** Allocated bytes, for the memory row of a run. */
    uint64_t (*memory_bytes)(const ty_stage_device *stage);
    const ty_device_memory *memory; /* NULL: all of the above is host memory */
} ty_device_backend;

/**
 * "cpu", "replay", or "cuda": a plugin (backends.c) that is loaded when it is first asked for.
 * @param is_alone whether the run has one rank, whose kernels may be loaded when they are needed
 * @return TY_EUNSUPPORTED: no such backend, the plugin is not there, or there is no GPU.
 */
ty_status ty_device_backend_find(const char *name, bool is_alone, const ty_device_backend **out,
                                 ty_error *error) TY_MUST_CHECK;
extern const ty_device_backend ty_device_cpu, ty_device_replay;

/* ---- Optimizers (optimizer.c) ------------------------------------------------------------ */

/**
 * One step on `count` parameters. @param state [count][ty_optimizer_state_count], zero at the
 * start: how parameters are divided into steps makes no difference SGD: v = momentum v + g + decay
 * w; w -= lr v.   AdamW: Loshchilov and Hutter, 2019, algorithm 2, with bias correction. @param
 * step 1 for the first
 */
void ty_optimizer_step(const ty_optimizer *optimizer, uint64_t step, uint64_t count,
                       float *parameters, const float *gradients, float *state);

/* ---- Data (data_*.c) --------------------------------------------------------------------- */

/** Labels of one sample: 1, or one per position of a sequence. */
uint64_t ty_labels_per_sample(const ty_workload *workload);
/** What labels are less than. */
uint64_t ty_class_count(const ty_workload *workload);

typedef struct ty_dataset ty_dataset;
/**
 * Opens the workload's data set: "fashion-mnist" (IDX files, .gz or not, in `directory` or where
 * Debian's dataset-fashion-mnist puts them), "text" (`directory` is a text file, or one of tokens
 * (data_tokens.c), or NULL for the GPL that Debian installs; windows of tokens_per_sample + 1),
 * "synthetic": made from nothing, or where `directory` is not NULL what is there: images (a folder
 * or tar files, data_images.c) for a workload of images, else text.
 * @param is_test the test part
 * @return TY_EIO: absent; TY_EPARSE: not such a file, truncated, sizes that disagree, labels out of
 * range.
 */
ty_status ty_dataset_open(const ty_workload *workload, const char *directory, bool is_test,
                          ty_dataset **out, ty_error *error) TY_MUST_CHECK;
void ty_dataset_close(ty_dataset *dataset);
/** How samples are read that take work, as images do; nothing for those that lie in memory. */
typedef struct ty_reading {
    uint32_t bad_samples; /* so many that cannot be read may be skipped */
    uint32_t threads;     /* that make samples ahead of time; 0: they are made when asked for */
    uint32_t room;        /* for so many made ahead */
    bool labels_only; /* no input will be asked for: where none may be skipped, nothing is read */
} ty_reading;
/** Once, before the first sample. TY_ENOMEM; TY_EBACKEND: no thread. */
ty_status ty_dataset_prepare(ty_dataset *dataset, const ty_reading *reading,
                             ty_error *error) TY_MUST_CHECK;
uint64_t ty_dataset_sample_count(const ty_dataset *dataset);
/** Whether samples have to be made, so that threads help. */
bool ty_dataset_takes_work(const ty_dataset *dataset);
/** What a sample takes where it is stored; 0: it is not there. */
double ty_dataset_stored_bytes(const ty_dataset *dataset, uint64_t sample);
/** Of all samples, where they share what is stored, as windows of a text do; 0: they do not. */
double ty_dataset_data_bytes(const ty_dataset *dataset);
/**
 * The sample that is the `position`-th of the whole training run under `seed`: epochs one after the
 * other, each a permutation of its own. O(1), the same on every rank.
 */
uint64_t ty_dataset_shuffled(const ty_dataset *dataset, uint64_t seed, uint64_t position);
/**
 * The same where only some labels may be seen (ty_teacher): of those that are labelled, which the
 * seed chooses, at every so manieth position, in epochs of their own.
 * @param has_label [out] whether it is one of them; always true without a teacher
 */
uint64_t ty_dataset_visited(const ty_dataset *dataset, uint64_t seed, uint64_t position,
                            bool *has_label);
/** Displaces the views of a row as it is at that position; nothing where they are as they are. */
void ty_dataset_displace(const ty_dataset *dataset, uint64_t seed, uint64_t position, float *input);
/** In place of the label of a sample whose label may not be seen. */
#define TY_NO_LABEL (-1)
/**
 * One sample into one row of a batch. Of samples that cannot be read as many are skipped as the
 * options say: the next one that can be stands in for it.
 * @param input floats (or NULL), @param tokens int32 (or NULL), @param labels int32 (or NULL): what
 * the stage has room for.
 * @return TY_EPARSE naming a sample that cannot be read, if it is one too many
 */
ty_status ty_dataset_sample(const ty_dataset *dataset, uint64_t sample, float *input,
                            int32_t *tokens, int32_t *labels, ty_error *error) TY_MUST_CHECK;
/** That a sample will be asked for before long: one that takes work is made by another thread
 * meanwhile, if there is room. */
void ty_dataset_expect(const ty_dataset *dataset, uint64_t sample);
/** Makes now what is made once and then kept, so that taking a sample is as fast as it gets. */
void ty_dataset_fill(const ty_dataset *dataset);
/** Samples skipped so far. @param first [out] what was said of the first of them; may be NULL */
uint32_t ty_dataset_skipped(const ty_dataset *dataset, const char **first);

#endif
