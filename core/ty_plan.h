/**
 * @file ty_plan.h
 * Plans.
 *
 *   schedule  pipeline schedules as a table
 *   plan      stages, replicas, micro-batches, gradient buckets
 *   deploy    whether a trained model fits a small device
 */
#ifndef TY_PLAN_H
#define TY_PLAN_H

#include "ty_axes.h"
#include "ty_base.h"
#include "ty_cluster.h"
#include "ty_json.h"
#include "ty_profile.h"
#include "ty_stack.h"
#include "ty_workload.h"

#include <stdbool.h>
#include <stdint.h>

/* ==== schedule ================================================================================ */

/*
 * Pipeline schedules as a table. planner/lower/schedule_NAME.c holds the order of a stage's forward
 * and backward passes, and nothing else does. Every other property of a schedule is a column of its
 * row: code reads the row and never compares schedules.
 */

/** Weight versions that a pipeline rank keeps (weight stashing). */
typedef enum ty_weight_versions {
    TY_WEIGHTS_ONE,       /* the newest */
    TY_WEIGHTS_DOUBLE,    /* a step uses the version before the newest */
    TY_WEIGHTS_IN_FLIGHT, /* one per update that an in-flight micro-batch lacks */
} ty_weight_versions;

typedef struct ty_schedule_row {
    const char *name;        /* "1f1b", in plans and --fix */
    const char *megatron;    /* Megatron-LM's name; NULL: it has no such schedule */
    const char *torchtitan;  /* torchtitan's pipeline_parallel_schedule; or NULL */
    bool is_usual;           /* searched by default */
    bool is_interleaved;     /* virtual stages: several stages per pipeline rank */
    bool needs_pipeline;     /* needs more than one stage */
    bool is_asynchronous;    /* weights are updated while micro-batches are in flight */
    bool splits_backward;    /* first activation gradients, later weight gradients */
    bool has_full_in_flight; /* all micro-batches of a step are in flight */
    ty_weight_versions versions;
    uint8_t most_zero;       /* the highest ZeRO stage that it supports */
    uint8_t least_per_stage; /* the least micro-batches per replica and pipeline rank */
    uint8_t warmup_times;    /* warm-up forward passes over those of 1F1B */
} ty_schedule_row;

/** The row of a schedule; for an invalid value the row of 1F1B. */
const ty_schedule_row *ty_schedule_at(ty_schedule schedule);

/** The default schedule. */
ty_schedule ty_schedule_default(bool is_interleaved);

/** Whether a schedule suits one stage with replicas of the unsharded model: synchronous, one stage
 * per pipeline rank, one backward pass. */
bool ty_schedule_is_plain(ty_schedule schedule);

/** Weight versions kept in addition to the newest. @param lead the most updates that a micro-batch
 * can lack, from the pipeline rank's program */
uint32_t ty_schedule_stashed_versions(ty_schedule schedule, uint32_t lead);

/** The layout that a schedule has to support. */
typedef struct ty_schedule_use {
    uint32_t pipeline_size;  /* pipeline ranks, at least 1 */
    uint32_t virtual_stages; /* stages per pipeline rank, at least 1 */
    uint32_t micro_batches;  /* of each replica */
    uint32_t zero;           /* level */
    bool has_segments;       /* recomputation splits a stage into segments */
} ty_schedule_use;

typedef enum ty_schedule_problem {
    TY_SCHEDULE_SUITS,
    TY_SCHEDULE_VIRTUAL_STAGES, /* interleaved schedules, and only they, have several stages per
                                   pipeline rank */
    TY_SCHEDULE_MULTIPLE,       /* the micro-batches are not a multiple of the pipeline ranks */
    TY_SCHEDULE_TOO_FEW,        /* fewer micro-batches than least_per_stage requires */
    TY_SCHEDULE_SEGMENTS,       /* recomputation in segments needs an unsplit backward pass */
    TY_SCHEDULE_ZERO,           /* it does not support that ZeRO stage */
} ty_schedule_problem;

/** Whether a schedule supports a layout: the one rule for searching, pinning and reading plans. */
ty_schedule_problem ty_schedule_check(ty_schedule schedule, const ty_schedule_use *use);

/* ==== plan ==================================================================================== */

/*
 * A plan specifies *what* to run: the layers of each stage, the replicas of each stage and their
 * devices, the number of micro-batches, the schedule, and each gradient bucket with its collective
 * and compression. The order of execution follows from it: see ty_program.h.
 *
 * One shape covers every strategy:
 *   data parallel      one stage with r replicas; `zero` shards what its replicas would duplicate
 *   pipeline           several stages with one replica each
 *   hybrid             several stages, each with its own number of replicas
 *   tensor parallel    every replica is a group of `tensor_parallel` devices
 *   context parallel   ... of `context_parallel` devices, each with a shard of every sequence
 *   expert parallel    ... of `expert_parallel` devices, each with its samples and its experts, or
 *                      with a shard of the tables that embedding bags read (`table_shard`)
 *   parameter servers  replicas, and `servers` that sum their gradients
 *   actors, learners   a first stage without layers plays episodes; the second one learns from them
 *   interleaved        `virtual_stages` stages, far apart in the model, share their devices
 * A step has `micro_batches` micro-batches of `micro_batch_size` samples, numbered through all
 * replicas: replica m mod r of each stage computes micro-batch m. Gradient accumulation is a stage
 * whose replicas each compute several micro-batches.
 *
 * Pipeline ranks: with v virtual stages per pipeline rank, stages s, s + P, s + 2P, ... run on the
 * same devices, where P = stage_count / v is the number of pipeline ranks. With v = 1 each stage
 * has a pipeline rank of its own. The program of a pipeline rank runs all its stages.
 *
 * Stage replicas are numbered by pipeline rank: stage replica = replicas of all earlier pipeline
 * ranks + own replica index. With tensor, context or expert parallelism a stage replica is a group
 * of devices, its ranks. They run the same program in step, each on its shard of every layer (see
 * "Ranks"). A transfer between two stage replicas takes place between each rank and the rank with
 * the same index in the other one. The ranks that have the same gradients form one process group.
 *
 * A plan is self-contained: it carries the workload, the cluster, the stack and the profile that it
 * was made from, and the digests of the workload and the cluster that it is for. The stack changes
 * the predictions of a plan, never its execution.
 */

typedef struct ty_plan_stage {
    uint32_t first_layer, layer_count;
    uint32_t replicas;
    uint32_t *devices; /* [replicas][ranks]: device index in the cluster; the same for all stages of
                          a pipeline rank */
    /* elementwise, operator, full: instructions recompute segments. Selective, and scores in
     * operator: the executor recomputes inside the backward pass of attention, without an
     * instruction */
    ty_recompute recompute;
    uint32_t recompute_blocks; /* full: blocks of the model per segment; 0: the entire stage */
} ty_plan_stage;

/**
 * Gradients that are reduced together and updated together: those of a contiguous range of layers
 * of one stage, averaged over its replicas; or those of one tied weight, summed over the replicas
 * of the two stages that have a copy.
 *
 * Every trainable parameter of every stage belongs to exactly one bucket; a stage with one replica
 * has buckets too, which are updated without a collective. Each stage that has a bucket updates it
 * once per step. A matrix used in another stage than its owner's has a bucket of its own; the
 * owner's other parameters (a bias, position embeddings) stay in the bucket of its range. A range
 * may include layers without parameters but needs one with parameters, and it may include no frozen
 * layer with parameters: the gradients of a bucket are contiguous in memory.
 *
 * With expert parallelism, routed experts and tables are sharded over expert-parallel ranks, so
 * they are on fewer ranks than all other parameters. A bucket whose layers have both kinds is
 * therefore two: one of all other parameters, and directly after it one `of_experts` with the same
 * layers. If there are no other parameters, only the second one exists. One bucket holds all
 * sharded tables.
 */
typedef struct ty_bucket {
    uint32_t stage; /* for a tied weight: the owner's, which is the earlier one */
    uint32_t first_layer, layer_count;
    /* The other stage of a tied weight, else TY_NO_STAGE. A tied bucket is the one weight matrix of
     * `first_layer`, the owner, and its `layer_count` is 1. */
    uint32_t tied_stage;
    /* Only with expert parallelism: the parameters that are sharded over expert-parallel ranks,
     * which are routed experts and tables */
    bool of_experts;
    uint64_t gradient_bytes; /* of one rank, uncompressed, fp32: ty_bucket_gradient_bytes */
    ty_algorithm algorithm;
    ty_compression compression;
} ty_bucket;
#define TY_NO_STAGE UINT32_MAX
#define TY_GRADIENT_ELEMENT_BYTES 4 /* gradients are fp32 */

/**
 * Dedicated parameter servers: devices that sum gradients and do not train. For every bucket, each
 * replica sends each server its part of the gradients (push). A server adds up the replicas' parts
 * in the order of their stage replicas. It sends the sum to all of them (pull) when its part of the
 * bucket is complete. Replicas update their weights themselves, so training takes the same steps as
 * with an all-reduce (Jiang et al., "BytePS", OSDI 2020, section 4.2: a summation service).
 * `staleness` has the same effect as without servers.
 *
 * They suit plans of one stage with replicas of one rank each, without ZeRO. All buckets use
 * TY_PARAMETER_SERVER, uncompressed or compressed to fp16 or bf16. Servers are not stage replicas
 * of the program: a job runs them as processes after those that train, server s as process
 * ty_plan_rank_count + s.
 */
typedef struct ty_plan_servers {
    uint32_t count;    /* 0: every member of a bucket sums an equal share of it */
    uint32_t *devices; /* [count]: devices of the cluster that no stage uses */
    ty_server_shard shard;
} ty_plan_servers;

/** Bytes of a device's memory by purpose. */
typedef struct ty_memory_use {
    uint64_t parameter_bytes, gradient_bytes, optimizer_bytes;
    uint64_t activation_bytes;    /* at the peak: in-flight micro-batches times stash */
    uint64_t communication_bytes; /* send, receive and bucket buffers */
    uint64_t compression_bytes;   /* error feedback and encoded payloads */
    uint64_t workspace_bytes;     /* libraries, programs; on CPU cores also the samples in memory */
} ty_memory_use;
uint64_t ty_memory_use_total(const ty_memory_use *use);

/** The breakdown of a step, in the same form for predictions and measurements. */
typedef struct ty_step_summary {
    double step_time_s;
    double samples_per_s;
    double tokens_per_s; /* 0 if samples are not sequences */
    /* Shares of the step time, averaged over stage replicas; they add up to 1. */
    double compute_share;
    double exposed_collective_share; /* compute waits for a gradient collective or its codec */
    double exposed_transfer_share;   /* compute waits for activations that a neighbor is sending */
    double bubble_share;             /* compute waits for another stage's compute */
    double input_share;              /* compute waits for data */
    char limited_by[160];            /* "pipeline bubble 18 %, gradient all-reduce 9 %" */
    /* Rates of the devices in use (ty_step_summary_rate); 0 if unknown. */
    uint32_t devices;
    double mfu; /* model FLOPs over the peak of the plan's precision; 0 also on this machine's CPU
                   cores, whose rate is measured */
    double tflops_per_device; /* model TFLOP/s */
    double tokens_per_s_per_device;
} ty_step_summary;

/** Share of the step: a narrower prediction interval of messages, updates or compression is not
 * reported. */
#define TY_OUTSIDE_SHARE 0.05

/** Share of the samples/s: an uneven partition that costs less is not reported. */
#define TY_UNEVEN_SHARE 0.05

typedef enum ty_imbalance_kind {
    TY_UNEVEN_BATCH,  /* samples of the global batch over devices */
    TY_UNEVEN_BLOCKS, /* blocks of the model over stages */
    TY_IMBALANCE_COUNT
} ty_imbalance_kind;
/** "global_batch", "blocks". */
const char *ty_imbalance_name(ty_imbalance_kind kind);

/** A number that does not divide evenly, and numbers near it that divide better. */
typedef struct ty_imbalance {
    uint32_t count, parts; /* 60 samples over 8 devices; count 0: nothing to report */
    /* Estimated loss. For a batch: share of the samples/s of the best of `better`. For blocks: how
     * much less the mean stage computes than the slowest, as far as the partition explains it. */
    double lost_share;
    uint32_t better_count;
    struct {
        uint32_t count;       /* samples per batch; stages */
        double samples_per_s; /* of the best plan with that count, estimated */
    } better[2];              /* ascending */
} ty_imbalance;

/** A prediction interval of a step time (study/ty_evidence.h). */
typedef struct ty_step_interval {
    double expected_s, low_s, high_s; /* the step time, corrected by published runs; its range */
    double coverage;                  /* share of steps in such a range: 0.8; 0: there is none */
} ty_step_interval;

#define TY_MOST_NEAREST 3
/** A published run near a plan. */
typedef struct ty_nearest_run {
    char model[64], device[32], framework[48], precision[8];
    char source[160]; /* repository and file, or paper and table */
    uint32_t devices;
    double step_s;
    double tokens_per_s; /* 0: samples are no sequences */
} ty_nearest_run;
/** One candidate of the search, and why it was rejected. */
typedef struct ty_candidate {
    char *name;                   /* "data parallel 2, 4 buckets" */
    double step_time_s;           /* 0 if infeasible */
    double simulated_step_time_s; /* 0 when it was not simulated */
    uint64_t peak_memory_bytes;
    char *reason;  /* why it was rejected: "12 % slower: pipeline bubble 25 %"; or "chosen" */
    char *fix;     /* the --fix that reproduces it: "pp=2,dp=8,..."; NULL: none is known */
    bool is_asked; /* named by the user with --against */
} ty_candidate;

/** The size of a search. */
typedef struct ty_plan_searched {
    uint64_t layouts;   /* bounded one by one or by family; 0: none */
    uint32_t estimates; /* plans estimated in full; 0: nothing was searched */
} ty_plan_searched;

/** Numeric format of a deployed model: bits per number (32 and 16 are floats, 8 and 4 integers) and
 * the percentage of each matrix's weights, the smallest ones, that are zero. */
typedef struct ty_variant {
    uint32_t bits, pruned_percent;
} ty_variant;

/** Memory and time that a variant needs: ty_plan.h. */
typedef struct ty_variant_need {
    uint64_t weight_bytes, activation_bytes;
    double time_s; /* per sample; 0: the budget has no rate */
} ty_variant_need;

#define TY_BUDGET_NAME_SIZE 32
/** Memory, time and rates that a class of devices offers a trained model: ty_plan.h. 0:
 * unspecified. */
typedef struct ty_budget {
    char name[TY_BUDGET_NAME_SIZE];           /* from the catalogue; "": the user's own figures */
    double memory_bytes;                      /* weights and live activations */
    double time_s;                            /* forward pass of one sample */
    double flop_per_s, bandwidth_bytes_per_s; /* achieved rates */
    ty_variant variant;                       /* the only one to consider; bits 0: any */
} ty_budget;

/** A trained model on a device: ty_deploy. */
typedef struct ty_deployment {
    ty_budget budget;
    ty_variant variant; /* bits 0: there is no device */
    ty_variant_need need;
} ty_deployment;

/** Time and cost of training for a given length: ty_training_cost_of in study/ty_economics.h. */
typedef struct ty_training_cost {
    double steps; /* 0: not requested */
    double samples;
    double tokens;       /* 0: samples are not sequences */
    double days;         /* checkpoints and failures included */
    double goodput;      /* useful time over wall-clock time */
    char price_kind[24]; /* "rental"; "": no price is known, and the next three are 0 */
    double price_usd_per_device_hour; /* mean of the devices */
    double cost_usd;
    double cost_usd_per_million_tokens;
    double energy_mwh; /* 0: no power is known */
} ty_training_cost;
/** Adds the line "Cost        193 days, $593k for 1T tokens at $2.00 per GPU-hour". */
void ty_training_cost_line(const ty_training_cost *cost, ty_text *text);

typedef struct ty_plan {
    ty_workload *workload;
    ty_digest workload_digest;
    char *cluster_name;  /* as the user wrote it: "local:2", "16x dgx-a100" */
    ty_cluster *cluster; /* shared with the caller that requested the plan */
    ty_input input;      /* where samples come from; predictions use it, as they use the stack */
    /* The device to deploy the trained model on. It does not change training; the worker tests the
     * variant in addition to the weights that it trains. */
    ty_deployment deployment;
    uint32_t idle_devices; /* devices of the cluster that neither a stage nor a server uses */
    ty_profile *profile;   /* NULL: planned from data sheets */
    ty_stack *stack; /* source of its costs; "trainyard" in a file that names none. NULL only in
                        plans made by hand whose costs are never computed */

    char *strategy; /* for display: "data parallel 2", "1f1b 2 stages" */
    /* the --fix that reproduces this plan, given the same workload, cluster, stack, precision and
     * global batch: "pp=2,dp=8,..."; NULL: none is known */
    char *fix;
    ty_schedule schedule;
    uint32_t global_batch; /* = micro_batches * micro_batch_size */
    uint32_t micro_batch_size, micro_batches;
    uint32_t virtual_stages; /* stages per pipeline rank; 0 counts as 1 */
    /* TP, CP and EP size; their product is the ranks per stage replica; each 0 counts as 1. */
    uint32_t tensor_parallel, context_parallel, expert_parallel;
    bool sequence_parallel;     /* activations between TP layers are sharded along the sequence */
    ty_table_shard table_shard; /* sharded only with expert parallelism */
    /* ZeRO stage. 1: optimizer states are sharded over the process group that reduces their
     * gradients (a stage's replicas, and of their ranks those with the same weights); 2: gradients
     * too; 3: weights too; 0: nothing (Rajbhandari et al., "ZeRO", SC 2020) */
    uint32_t zero;
    /* Staleness: steps between computing and applying a gradient. The all-reduce of step t may take
     * until the end of step t + staleness, which applies its mean. So the passes of a step use
     * weights that lack the last `staleness` updates, the same ones on all replicas (delayed
     * gradients: Li et al., "Pipe-SGD", NeurIPS 2018, section 3). A replica is at most `staleness`
     * steps ahead of another, the bound of stale synchronous parallel (Ho et al., NIPS 2013).
     * Requires a pipeline flush and several replicas. */
    uint32_t staleness;
    uint32_t lag; /* updates that actors' weights lack; see "Actors" */
    ty_optimizer optimizer;
    uint64_t seed; /* of initial weights and of the order of samples; below 2^53 */
    ty_plan_servers servers;
    uint32_t stage_count;
    ty_plan_stage *stages;
    uint32_t bucket_count;
    ty_bucket *buckets; /* per stage, from its last layer to its first; tied ones at the end */
    /* [bucket_count]: the order in which buckets are reduced, each once. NULL: in the order of
     * `buckets`, as backward finishes them, and the next step begins after all updates. With an
     * order, each layer's forward of the next step waits only for its own bucket ("priority":
     * Jayarajan et al., "P3", MLSys 2019; Peng et al., "ByteScheduler", SOSP 2019). The link still
     * carries one bucket at a time, and training is bitwise the same. See ty_plan_refusal
     * for the plans that may have one. */
    uint32_t *exchange_order;

    /* The predictions. */
    bool has_prediction;
    ty_step_summary prediction; /* by the estimator */
    ty_step_summary simulation; /* by the simulator; step_time_s 0 if it was not simulated */
    ty_provenance provenance;   /* of the least certain figure that matters */
    /* Prediction interval of the estimator's step: every time outside the measured sizes of
     * `profile` at the lower or upper end of its own interval (ty_outside). Set if the micro-batch
     * size is outside them, or if the interval is wider than TY_OUTSIDE_SHARE of the step; else
     * both 0 */
    double least_step_time_s, most_step_time_s;
    ty_step_interval interval; /* of ty_plan_summary, from ty_plan_judge */
    uint32_t nearest_count;
    ty_nearest_run nearest[TY_MOST_NEAREST];
    ty_imbalance uneven[TY_IMBALANCE_COUNT]; /* from ty_question_imbalance */
    ty_training_cost cost;                   /* if the question has a training length */
    ty_memory_use *memory;                   /* [stage_count], per device; NULL: not counted */
    double memory_reserve; /* share of usable memory that should stay free; 0 in files without it */
    uint32_t candidate_count;
    ty_plan_searched searched;
    ty_candidate *candidates; /* the chosen one first; order: ty_plan_search */
} ty_plan;

/** The simulated step time of a candidate, else the estimated one; 0: none. */
double ty_candidate_step_s(const ty_candidate *candidate);
/**
 * Whether a candidate that fits is on the Pareto front of step time and memory: no other is as good
 * in both and better in one. On one cluster and at one batch, cost and energy grow with the step
 * time.
 */
bool ty_plan_is_on_front(const ty_plan *plan, uint32_t candidate);

/**
 * Reads `trainyard.plan/1` (docs/reference/file-formats.md), and runs ty_plan_check, so a loaded
 * plan is valid. TY_EPARSE names the file, the JSON pointer, the value found and the value
 * expected.
 */
ty_status ty_plan_load(const char *path, ty_plan **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_plan_from_json(const ty_json *object, ty_plan **out, ty_error *error) TY_MUST_CHECK;
void ty_plan_to_json(const ty_plan *plan, ty_json_writer *writer, const char *key);
/** Writes a plan that passes ty_plan_check; rejects any other with that check's message. */
ty_status ty_plan_save(const ty_plan *plan, const char *path, ty_error *error) TY_MUST_CHECK;
void ty_plan_free(ty_plan *plan);

/** The prediction of a step: the simulation if there is one, else the estimate. */
const ty_step_summary *ty_plan_summary(const ty_plan *plan);
/** Output tiles of Winograd's method are 4 x 4. */
#define TY_WINOGRAD_TILE 4.0
/**
 * The direct method's products over those of Winograd's method; 1 if the method does not apply. m x
 * m outputs of an r x r window take a x a products, a = m + r - 1, instead of m m r r. Source:
 * Lavin, Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, section 4;
 * CUDNN_CONVOLUTION_*_ALGO_WINOGRAD_NONFUSED, for windows of 3 x 3 and 5 x 5.
 */
double ty_winograd_saving(const ty_layer *layer);
/** Whether the device's library chooses a convolution's algorithm: the device has a rate for it, in
 * fp32. */
bool ty_convolution_is_chosen(const ty_workload *workload, const ty_layer *layer,
                              const ty_device_type *device);
/**
 * Model FLOPs of a step: forward and backward of all layers, attention scores without a mask,
 * without recomputation. Convolutions count the products of Winograd's method on devices whose
 * library chooses it, because those of the direct method can exceed the peak.
 * @param cluster NULL: no library chooses
 */
double ty_plan_model_flop(const ty_plan *plan, const ty_cluster *cluster);
/** Peak of the devices that run stages, in the plan's precision, flop/s; 0: unknown. */
double ty_plan_peak_flop_per_s(const ty_plan *plan, const ty_cluster *cluster);
/** Fills in MFU, TFLOP/s and tokens/s per device from the step time and tokens/s. Every function
 * that summarizes a plan's step calls it. */
void ty_step_summary_rate(const ty_plan *plan, ty_step_summary *summary);

/** The stage that leaves its devices the least free memory. */
typedef struct ty_memory_peak {
    uint32_t stage;
    uint64_t bytes;        /* predicted, per device */
    uint64_t usable_bytes; /* of its smallest device; 0: the plan has no cluster */
    bool is_tight;         /* less than TY_TIGHT_SHARE below the limit set by the reserve */
} ty_memory_peak;
#define TY_TIGHT_SHARE 0.03
/** @return false if memory was not predicted */
bool ty_plan_memory_peak(const ty_plan *plan, ty_memory_peak *out);
/** Adds mfu, tflops_per_device and tokens_per_s_per_device to an open object, if they are known. */
void ty_step_rates_to_json(const ty_step_summary *summary, ty_json_writer *writer);
/** Adds interval and nearest, if there are any. */
void ty_plan_interval_to_json(const ty_plan *plan, ty_json_writer *writer);
/** Adds all of these, peak_memory_bytes and usable_memory_bytes. */
void ty_plan_rates_to_json(const ty_plan *plan, const ty_step_summary *summary,
                           ty_json_writer *writer);

/** Adds "--global-batch 64 --stack megatron --precision bf16", quoted for a shell, with --input if
 * the samples were specified and --budget if a device was. With the workload and the cluster before
 * them, and `--fix` and the plan's `fix` after them, they reproduce this plan. The plan needs a
 * stack. */
void ty_plan_add_question(const ty_plan *plan, ty_text *text);
/** A deep copy. */
ty_status ty_plan_copy(const ty_plan *plan, ty_plan **out, ty_error *error) TY_MUST_CHECK;

/**
 * Checks every invariant of a plan. Stages cover all layers once and in order, and all layers that
 * read the batch are in the first one; the replicas of every stage divide the micro-batches; no
 * device is used twice. Every trainable parameter is in exactly one bucket and no frozen one in
 * any; buckets are in order and as large as their gradients. Evolution has one stage. Gradients are
 * stale only if replicas reduce them in every step. An `exchange_order` has every bucket once.
 * Batch sizes are consistent. Embedded digests match their documents ("was made for another
 * workload"): the workload's is ty_workload_digest, the cluster's the SHA-256 of its compact text
 * (ty_json_text).
 * @param name file name for messages.
 * @return TY_EPARSE with "name:/stages/1/replicas: found 3, expected ...".
 */
ty_status ty_plan_check(const ty_plan *plan, const char *name, ty_error *error) TY_MUST_CHECK;

/** The choices that decide whether a value can be combined with them. */
typedef struct ty_rule_scene {
    const ty_workload *workload;
    const ty_pins *pins;                  /* of a question, or the values of a plan */
    const ty_plan_dimensions *dimensions; /* of the pins, or of a candidate */
    uint32_t stages;                      /* 0: open */
    uint32_t replicas;                    /* of the stage with most; 0: open */
} ty_rule_scene;
/**
 * Why a question, a candidate or a plan cannot have stale gradients (TY_AXIS_STALENESS), parameter
 * servers, an `exchange_order` (TY_AXIS_PRIORITY) or fitted buckets (TY_AXIS_BUCKET), or why it
 * cannot play episodes (TY_AXIS_ACTORS). The text follows "...: ". NULL: it can. Rules are rows of
 * core/plan/plan_rules.c.
 */
const char *ty_axis_refusal(ty_axis axis, const ty_rule_scene *scene);
/** The same for a plan, whose stages are complete. */
const char *ty_plan_refusal(ty_axis axis, const ty_plan *plan);
/** The values of a plan that frameworks and rules read, with the recomputation of one stage. */
void ty_plan_pins(const ty_plan *plan, uint32_t stage, ty_pins *out);

/**
 * Sample rate of storage and decoding when all ranks of the first stage's replicas read at once,
 * each its shard of their micro-batches. It is unlimited if the plan has no cluster, or a cluster
 * without storage, and decoding is unspecified.
 */
ty_status ty_plan_input(const ty_plan *plan, ty_input_forecast *out, ty_error *error) TY_MUST_CHECK;

/* ---- Training recipe --------------------------------------------------------------------- */

/**
 * Updates that the weights of a stage's passes lack, on average over a step. With weight stashing,
 * only those micro-batches are stale that start early enough, by the depth of the pipeline, to
 * overtake the update. Stage s of n has r replicas with M/r of the M micro-batches each. It starts
 * n-1-s of them early, which is (n-1-s) r/M updates.
 */
double ty_plan_delay_updates(const ty_plan *plan, uint32_t stage);
/**
 * How the optimizer of a plan differs from its workload's, whose settings assume gradients without
 * staleness and compression error. This is their only source: the planner stores the settings in
 * `optimizer`, and every reader takes them from there.
 *
 * SGD with momentum m is stable on a curvature L, with gradients of staleness d, if
 *     rate L < (1 - m)/d (d <= 1),    rate L < (1 - m) 2 sin(pi/(4d + 2)) (d > 1, m small)
 * so momentum falls to 1 - d, and the rate to the bound for a workload with rate L <= 1. The second
 * bound is exact for m = 0 and 2 % too high for m = 0.1 (Yang et al., "PipeMare", MLSys 2021, lemma
 * 1; staleness acts as momentum: Mitliagkas et al., "Asynchrony begets momentum", 2016). The
 * moments of AdamW are averages: only its rate falls, and only beyond d = 1.
 *
 * Error feedback also delays gradients. Without momentum it trains like SGD to leading order
 * (Karimireddy et al., ICML 2019). So momentum falls to the minimum, and the rate rises to the
 * geometric mean of two rates: those that make the same progress without and with the momentum of
 * the workload. DGC has momentum of its own (Lin et al., ICLR 2018) and needs no change.
 */
typedef struct ty_recipe {
    double delay_updates; /* of the stage with the greatest staleness */
    bool has_feedback;    /* some bucket has error feedback, but no momentum of its own */
    double momentum;      /* sgd; otherwise 0 */
    double rate_factor;   /* multiplies the learning rate of the workload */
} ty_recipe;
ty_recipe ty_plan_recipe(const ty_plan *plan);
/** Whether a recipe changes the optimizer. */
bool ty_recipe_changes(const ty_recipe *recipe, const ty_optimizer *usual);
/** Progress per step over that with the optimizer of the workload: the ratio of rate / (1 -
 * momentum). */
double ty_recipe_share(const ty_recipe *recipe, const ty_optimizer *usual);
/**
 * Sets the optimizer from the recipe.
 * @param rate learning rate for gradients without staleness and compression error
 */
void ty_plan_set_learning_rate(ty_plan *plan, double rate);
/**
 * "learning rate 0.045 for 0.05, momentum 0.1 for 0.9: gradients arrive 1 update late". Adds
 * nothing if the recipe changes nothing.
 */
void ty_plan_recipe_text(const ty_plan *plan, ty_text *text);

/** Whether a compressor may have state that lasts from step to step. */
bool ty_bucket_keeps_state(const ty_bucket *bucket);
/** Whether more of the training state than the weights depends on which stage replica has which
 * gradients: shards, residuals, weight versions. */
bool ty_plan_state_is_of_ranks(const ty_plan *plan);
/**
 * A digest that is equal for plans that can resume from each other's checkpoints. These have one
 * workload (except the size of its images), seed and optimizer (except the learning rate, and
 * momentum if both have some), with the same stages, virtual stages and TP, CP and EP sizes. If the
 * state is per stage replica, they also have the same replicas, micro-batches and buckets.
 */
ty_status ty_plan_state_digest(const ty_plan *plan, ty_digest *out, ty_error *error) TY_MUST_CHECK;
/**
 * A digest that is equal for plans whose checkpoints have the same tensors, sharded alike within a
 * layer: these also resume from each other with other stages, replicas, buckets and ZeRO. An
 * asynchronous schedule, local steps, other learning than by gradients and compressors with state
 * bind a checkpoint to the plan's ranks.
 */
ty_status ty_plan_tensors_digest(const ty_plan *plan, ty_digest *out,
                                 ty_error *error) TY_MUST_CHECK;
/** Digest of everything that affects execution (not of predictions, candidates, the input path and
 * the stack). */
ty_status ty_plan_digest(const ty_plan *plan, ty_digest *out, ty_error *error) TY_MUST_CHECK;

/** A plan beyond these limits is rejected as implausible. */
#define TY_MAX_RANKS 1000000
#define TY_MAX_MICRO_BATCHES (1u << 30)
#define TY_MAX_PARALLEL_SIZE 1024 /* of each kind */
#define TY_MAX_STALENESS 64
#define TY_MAX_STAGES_OF_A_PLAN 10000
uint32_t ty_plan_stage_replica_count(const ty_plan *plan);
/** Ranks of a plan: one process per device. Process p is rank p % width of stage replica p / width,
 * width being the ranks per stage replica. */
uint32_t ty_plan_rank_count(const ty_plan *plan);
/** Ranks and servers: the processes that a job starts. */
uint32_t ty_plan_launched_count(const ty_plan *plan);
/** The device of a launched process. */
uint32_t ty_plan_device_of_rank(const ty_plan *plan, uint32_t rank);
/** Virtual stages per pipeline rank, at least 1; TP x CP x EP ranks per stage replica, at least 1;
 * pipeline ranks. */
uint32_t ty_plan_virtual_stages(const ty_plan *plan);
uint32_t ty_plan_replica_ranks(const ty_plan *plan);
uint32_t ty_plan_pipeline_size(const ty_plan *plan);
/** A stage replica's pipeline rank, which is also its first stage. */
uint32_t ty_plan_stage_of_replica(const ty_plan *plan, uint32_t stage_replica);
/** First stage replica of a stage's pipeline rank; with stage == stage_count the number of stage
 * replicas. */
uint32_t ty_plan_first_replica(const ty_plan *plan, uint32_t stage);
/**
 * A view of the plan in which each device is a stage replica with one rank: `replicas` is
 * multiplied by the ranks per stage replica, and so are the micro-batches. Transfers are between
 * the same devices, so a timeline by device (stage replica: process) is one of this view and its
 * program. The view is for display only: its collectives have all ranks as members, and it passes
 * no check.
 * @param out [out] free with ty_plan_view_free before `plan`, whose parts it uses
 */
ty_status ty_plan_by_device(const ty_plan *plan, ty_plan **out, ty_error *error) TY_MUST_CHECK;
void ty_plan_view_free(ty_plan *view);
/** The device of a stage replica's first rank. */
uint32_t ty_plan_device_of_replica(const ty_plan *plan, uint32_t stage_replica);
uint32_t ty_plan_device_of_replica_rank(const ty_plan *plan, uint32_t stage_replica,
                                        uint32_t replica_rank);
/** The stage that contains a layer. */
uint32_t ty_plan_stage_of_layer(const ty_plan *plan, uint32_t layer);
/**
 * The other stage with a copy of the weight matrix that `layer` owns: the stage of the first later
 * layer tied to it outside its own stage; TY_NO_STAGE if there is none.
 */
uint32_t ty_plan_tied_stage(const ty_plan *plan, uint32_t layer);

/** Uncompressed fp32 bytes of a bucket's gradients, from the workload. Frozen layers have none; a
 * matrix with a tied bucket counts only there. O(layers). */
uint64_t ty_bucket_gradient_bytes(const ty_plan *plan, const ty_bucket *bucket);
/** A weight matrix inside a bucket, row-major; one row per output. */
typedef struct ty_bucket_matrix {
    uint64_t offset; /* elements of the bucket before it */
    uint64_t rows, columns;
} ty_bucket_matrix;
/**
 * The matrices of a bucket's gradients, in memory order; between them there are vectors. Layers
 * whose attributes do not specify their matrices (opaque ones) have none, and neither have layers
 * that are sharded across ranks.
 * @param matrices [out] room for as many as a call with NULL returns, or NULL to count
 */
uint32_t ty_bucket_matrices(const ty_plan *plan, const ty_bucket *bucket,
                            ty_bucket_matrix *matrices);
/** The most matrices of one layer. */
#define TY_MOST_MATRICES 2
/**
 * The matrices of a layer's own parameters, in memory order: of linear, convolution, embedding
 * (without token types), attention, mlp and LSTM layers; offsets are in elements of the layer. A
 * tied matrix is its owner's.
 * @return how many; 0 if attributes do not specify them (attention with latents)
 */
uint32_t ty_layer_matrices(const ty_workload *workload, uint32_t layer,
                           ty_bucket_matrix out[TY_MOST_MATRICES]);
/**
 * Whether the gradient of a layer may be sent as rows (TY_COMPRESSION_ROWS): a trained embedding
 * whose matrix no other layer uses, unsharded on every replica. A step touches at most as many of
 * its rows as a replica has tokens. O(layers).
 * @return TY_EINVAL with the reason: another kind of layer, tied, frozen, ranks, ZeRO, local steps
 *         (weights are averaged then), evolution, 2^32 - 1 rows or more
 */
ty_status ty_rows_check(const ty_plan *plan, uint32_t layer, ty_error *error) TY_MUST_CHECK;
/** Tokens per step that each replica of a stage looks up in an embedding of the stage. */
uint64_t ty_plan_replica_tokens(const ty_plan *plan, uint32_t stage, uint32_t embedding);
/** The extent of a bucket's gradients, as its compression needs it. O(1) except for powersgd, which
 * needs the matrices. A payload of rows has room for all rows that the replica's tokens of a step
 * may touch. */
ty_gradient_extent ty_bucket_extent(const ty_plan *plan, const ty_bucket *bucket);
/** Message size in bytes per member in a phase of the bucket's communication, see
 * ty_compression_wire_bytes; uncompressed: its gradients, in the one phase. */
uint64_t ty_bucket_wire_bytes(const ty_plan *plan, const ty_bucket *bucket, uint32_t phase);
/** Whether ZeRO shards a bucket over its members: each gets its shard of the sum, and later gathers
 * the weights updated from the other shards. Its compression passes ty_compression_shards. */
bool ty_bucket_is_sharded(const ty_plan *plan, const ty_bucket *bucket);
/**
 * Bytes and collective of a bucket in one phase of a step; ty_compression_phases is the number of
 * phases. Evolution: an all-gather of a score and a seed per sample, whatever the bucket's size. A
 * sharded bucket: a reduce-scatter. Otherwise the compression determines it.
 */
uint64_t ty_plan_exchange_bytes(const ty_plan *plan, const ty_bucket *bucket, uint32_t phase);
ty_collective_kind ty_plan_exchange_kind(const ty_plan *plan, const ty_bucket *bucket,
                                         uint32_t phase);
/** The bytes of all phases. */
uint64_t ty_bucket_exchange_bytes(const ty_plan *plan, const ty_bucket *bucket);
/** Steps between two reductions of a bucket: the workload's local steps, 1 without them; for a tied
 * weight 1, because its gradients are summed in every step. */
uint32_t ty_plan_exchange_interval(const ty_plan *plan, const ty_bucket *bucket);
/** The stage replicas whose gradients a bucket reduces, ascending. @param stage_replicas [out] room
 * for ty_plan_stage_replica_count. */
uint32_t ty_bucket_members(const ty_plan *plan, const ty_bucket *bucket, uint32_t *stage_replicas);
/** The number of these stage replicas. */
uint32_t ty_bucket_member_count(const ty_plan *plan, const ty_bucket *bucket);

/*
 * Several process groups reduce a bucket concurrently, each with different gradients. A group
 * contains, of each member stage replica, the ranks with the same gradients: all context-parallel
 * and expert-parallel ranks with the same tensor-parallel rank; for experts only the
 * context-parallel ranks.
 */
/** Ranks of each stage replica in one group. */
uint32_t ty_bucket_rank_count(const ty_plan *plan, const ty_bucket *bucket);
/** Number of groups: ranks per stage replica / ty_bucket_rank_count. */
uint32_t ty_bucket_group_count(const ty_plan *plan, const ty_bucket *bucket);
/** The n-th rank of a stage replica in a group; and the group of a rank. */
uint32_t ty_bucket_rank(const ty_plan *plan, const ty_bucket *bucket, uint32_t group, uint32_t n);
uint32_t ty_bucket_group_of(const ty_plan *plan, const ty_bucket *bucket, uint32_t replica_rank);
/** Devices of a group: its ranks of all members. One device needs no collective. */
uint32_t ty_bucket_device_count(const ty_plan *plan, const ty_bucket *bucket);
/** The devices of a group, by member and then by rank. @param devices [out] room for
 * ty_bucket_device_count */
uint32_t ty_bucket_devices(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                           uint32_t *devices);
/** The same as processes: rank l of stage replica r is process r * ty_plan_replica_ranks + l. */
uint32_t ty_bucket_ranks(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                         uint32_t *ranks);

/* ---- Actors ------------------------------------------------------------------------------- */

/**
 * A workload with reinforcement learning has one stage of replicas, the learners. Without actors,
 * each learner plays the episodes of its own micro-batches before their forward pass, with its
 * current weights. With actors there is a stage before it, without layers and so without gradients.
 * Its replicas only play episodes, micro-batch m on actor m mod actors. They send the episodes to
 * the learner that has the micro-batch, together with every other tensor that crosses a cut. After
 * its updates every learner sends the weights to its actors.
 *
 * Policy staleness: with a `lag` of l, the episodes of step k are played with the weights after
 * step k - 1 - l. Those of the first l + 1 steps of a run, or of a part of it that begins after a
 * test or a checkpoint, use the weights that it begins with. With lag 0 actors and learners take
 * turns, which is equivalent to no actors. With lag 1 actors play for the next step while learners
 * learn. Seeds make the episodes independent of the rank that plays them. So the number of actors
 * and learners changes training as little as the number of replicas does: by rounding.
 *
 * The larger number of actors and learners is a multiple of the smaller. With more actors, a
 * learner sends to several. With fewer, an actor receives an equal part of the weights from each of
 * several learners. Message m of these has the number of micro-batch m, as all transfers do, with m
 * from 0 to the larger number.
 */
#define TY_MAX_LAG 16
/** Number of actors; 0: none. */
uint32_t ty_plan_actors(const ty_plan *plan);
/** Whether a stage consists of actors. */
bool ty_plan_is_of_actors(const ty_plan *plan, uint32_t stage);
/** The stage that has the first layer. */
uint32_t ty_plan_first_stage(const ty_plan *plan);
/** Messages with weights per step that each learner sends, or each actor receives: 1, or the ratio
 * of the others to them if there are more of the others. */
uint32_t ty_plan_policy_messages(const ty_plan *plan, uint32_t stage);
/** Bytes of one message: all weights or a part of them, 4 bytes each. */
uint64_t ty_plan_policy_bytes(const ty_plan *plan);
/** Whether these numbers of actors and learners can be combined. */
bool ty_actors_suit(uint32_t actors, uint32_t learners, uint32_t micro_batches);

/* ---- Servers ------------------------------------------------------------------------------ */

/** The first element of share `position` of `count` elements in shares as equal as possible; with
 * position == shares one after the last. */
uint64_t ty_share_start(uint64_t count, uint32_t shares, uint32_t position);
/** Elements of a bucket that one server sums; per bucket in memory order. */
typedef struct ty_server_part {
    uint32_t server;
    uint64_t first, count; /* elements of the bucket, count > 0 */
} ty_server_part;
/** The parts of every bucket by server. */
typedef struct ty_server_map {
    ty_server_part *parts;
    uint32_t *first_parts; /* [bucket_count + 1]: the parts of bucket b begin at first_parts[b] */
} ty_server_map;
/** O(tensors log tensors). @param out [out] empty without servers; free with ty_server_map_clear */
ty_status ty_server_map_make(const ty_plan *plan, ty_server_map *out,
                             ty_error *error) TY_MUST_CHECK;
void ty_server_map_clear(ty_server_map *map);
/** The largest share of a bucket that one server sums: from 1 / servers to 1. */
double ty_server_map_largest_share(const ty_server_map *map, uint32_t bucket);
/** Whether servers can sum gradients in this compression: uncompressed, fp16 or bf16. */
bool ty_server_can_sum(const ty_compression *compression);
/** Chunks that a server receives from each replica concurrently, and their size. */
enum { TY_SERVER_WINDOW = 4, TY_SERVER_PIECE_BYTES = 256 * 1024 };
/** Memory of a server in bytes: its largest part of a bucket, and receive buffers for the
 * replicas. */
uint64_t ty_server_bytes(const ty_plan *plan, const ty_server_map *map, uint32_t server);

/* ---- Ranks -------------------------------------------------------------------------------- */

/**
 * The kinds of parallelism that shard a stage replica's work across its ranks. The rank with EP
 * rank e, CP rank c and TP rank t is rank (e * context_parallel + c) * tensor_parallel + t of its
 * replica.
 *
 * Each tensor-parallel rank has a shard of the weights: see "Tensor parallelism".
 *
 * Each context-parallel rank has a shard of every sequence (Dubey et al., "The Llama 3 Herd of
 * Models", 2024, section 3.3.2): work, stash and transfers of all layers are sharded, weights are
 * replicated. Attention gathers the keys and values of the entire sequence, again in backward, and
 * reduce-scatters their gradients. A rank has two runs of a sequence, one from the front and one
 * from the end (ty_context_run_start), which balances causal attention.
 *
 * Each expert-parallel rank has its samples of a micro-batch, and its experts of every moe layer
 * (Lepikhin et al., "GShard", ICLR 2021, section 3): work, stash and transfers of all layers are
 * sharded, other weights are replicated. One all-to-all sends tokens to their experts, another one
 * returns them. The model assumes that experts are chosen equally often. Tables of embedding bags
 * are sharded likewise: see "Tables".
 */
typedef enum ty_parallelism {
    TY_TENSOR_PARALLEL,
    TY_CONTEXT_PARALLEL,
    TY_EXPERT_PARALLEL,
    TY_PARALLELISM_COUNT
} ty_parallelism;
const char *ty_parallelism_name(ty_parallelism kind); /* "tensor" */
/** TP, CP or EP size, at least 1. */
uint32_t ty_plan_parallel_size(const ty_plan *plan, ty_parallelism kind);
/** The rank with index n in its TP, CP or EP group and the other two indices of `replica_rank`. */
uint32_t ty_plan_rank_along(const ty_plan *plan, ty_parallelism kind, uint32_t replica_rank,
                            uint32_t n);
/** Runs of a sequence per context-parallel rank if there are several, of length / (2 ranks) tokens
 * each. */
#define TY_CONTEXT_RUNS 2
/** The first token of the first (0) or second (1) run of a context-parallel rank: its run from the
 * front of a sequence of `length`, and its run from the end (Dubey et al., ibid.). */
uint64_t ty_context_run_start(uint64_t length, uint32_t ranks, uint32_t rank, uint32_t run);
/** Checks that the sequences of a workload can be sharded over `ranks` context-parallel ranks, in
 * two runs for each: else TY_EINVAL naming the layer. */
ty_status ty_context_check(const ty_workload *workload, uint32_t ranks,
                           ty_error *error) TY_MUST_CHECK;
/** Checks that the experts of all moe layers and the tables can be sharded over `ranks` with this
 * table shard; the workload needs experts or tables. Else TY_EINVAL. */
ty_status ty_expert_check(const ty_workload *workload, uint32_t ranks, ty_table_shard tables,
                          ty_error *error) TY_MUST_CHECK;
/** Parameters of a layer that are sharded over expert-parallel ranks: routed experts, at most its
 * own, or a table; 0 without EP. */
uint64_t ty_layer_expert_elements(const ty_plan *plan, uint32_t layer);
/** The share of these parameters on one rank: the one with the most numbers in tables, or an equal
 * part of the experts. */
uint64_t ty_rank_expert_elements(const ty_plan *plan, uint32_t layer);
/** Share of a layer's parameters, and of its work and stash, per rank. */
double ty_rank_parameter_share(const ty_plan *plan, uint32_t layer);
double ty_rank_work_share(const ty_plan *plan, uint32_t layer);
/** An optimizer step, per parameter that a rank trains; without ZeRO, which shards both figures. */
typedef struct ty_optimizer_work {
    double state_bytes, flop;
} ty_optimizer_work;
/**
 * The mean over the layers [first, first + count), by the row of the plan's optimizer and the
 * tensors as TP and EP shard them: groups of rows (queries, keys, values) and experts are matrices
 * of their own. A layer of unknown tensors counts as one square matrix. Exactly the states of the
 * optimizer if they do not depend on shapes. O(count).
 */
ty_optimizer_work ty_plan_optimizer_work(const ty_plan *plan, uint32_t first, uint32_t count);
/** Bytes per rank and micro-batch of a tensor along the sequence that has `bytes` per sample. CP
 * and EP shard it; TP does not. */
uint64_t ty_rank_bytes(const ty_plan *plan, uint64_t bytes);
/** A collective inside a layer, in the TP, CP or EP group. */
typedef struct ty_inner_collective {
    ty_parallelism among;
    ty_collective_kind kind;
    uint64_t bytes; /* all-reduce, reduce-scatter: each rank's input; all-gather: each rank's shard;
                       all-to-all: the input of a rank for all ranks */
    uint32_t count;
    uint32_t experts, chosen; /* moe: the number of experts, and of experts per token; each of these
                                 gets a copy of the token. Else 0 */
} ty_inner_collective;
/** The number of other parts, of `parts` equal parts of the experts, that a token is sent to.
 * Experts are chosen equally often, from `most` of the parts (0: all): (1 - 1/parts) most (1 - prod
 * (e - e/most - i) / (e - i)), i from 0 to chosen - 1, where `most` parts have e experts. */
double ty_expert_parts_met(const ty_inner_collective *inner, double parts, double most);
#define TY_MAX_INNER_COLLECTIVES 8
/**
 * Collectives inside a stage replica in one pass of a layer over one micro-batch.
 *
 * Tensor parallelism: an all-reduce after attention and after the mlp forward, and one before each
 * in backward. With sequence parallelism each is an all-gather and a reduce-scatter instead, and
 * backward of trained layers gathers their inputs once more (Korthikanti et al., section 4.2.2: a
 * rank stores only its own shard). With fewer key and value heads than ranks, an all-gather of the
 * projections, and a reduce-scatter in backward. Attention to another sequence does the same for
 * that sequence as for its own, except the sum forward.
 *
 * Context parallelism: attention all-gathers keys and values, and backward also reduce-scatters
 * their gradients. Latents (DeepSeek-V2) are expanded before.
 *
 * Expert parallelism: each moe layer has two all-to-alls of the tokens' copies, one to the experts
 * and one back; with sequence parallelism each of the tensor-parallel rank's shard. The first
 * embedding bag has the collectives under "Tables".
 * @param out [out] room for TY_MAX_INNER_COLLECTIVES
 * @return how many
 */
uint32_t ty_layer_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                    ty_inner_collective *out);

/* ---- Tables ------------------------------------------------------------------------------- */

/**
 * Collectives for tables that are sharded over expert-parallel ranks (Naumov et al., "Deep Learning
 * Recommendation Model", arXiv:1906.00091, section 4: the other layers are replicated, tables are
 * on devices of their own). They serve all bags of the stage at once, with the first bag. Forward,
 * the ranks send each other the indices of their samples:
 *   by rows     each rank sums its rows for all samples; the sums are reduce-scattered
 *   by columns  each rank computes its columns of the vectors of all samples; an all-to-all sends
 *               them to the ranks that have the samples
 *   by tables   the same with all columns of its tables; it receives only their indices
 * Backward, the gradients of vectors return by an all-gather or an all-to-all. The ranks have
 * unequal tables; all figures are those of the rank with the most.
 */
typedef struct ty_table_exchange {
    uint32_t first_bag;            /* TY_NO_LAYER: tables are unsharded, or there are none */
    uint64_t indices, own_indices; /* per sample: all, and those that a rank looks up */
    uint64_t numbers, own_numbers; /* per sample in vectors: all, and those that a rank computes */
} ty_table_exchange;
ty_table_exchange ty_plan_tables(const ty_plan *plan);
/** With TY_TABLES_TABLE: the rank that has a layer's table; and the numbers in all tables of a
 * rank. */
uint32_t ty_table_rank(const ty_workload *workload, uint32_t ranks, uint32_t layer);
uint64_t ty_table_rank_elements(const ty_workload *workload, uint32_t ranks, uint32_t rank);
/** Why a stage with sharded tables cannot use a kind of recomputation, as text to follow "...: ";
 * NULL: it can. */
const char *ty_table_recompute_refusal(ty_table_shard tables, ty_recompute recompute);
/** Whether a bucket `of_experts` has the same layers as the bucket before it. */
bool ty_bucket_is_beside(const ty_plan *plan, uint32_t bucket);

/* ---- Tensor parallelism ------------------------------------------------------------------- */

/** Shards of the sequences between TP layers: with sequence parallelism one per tensor-parallel and
 * context-parallel rank, else 1. */
uint32_t ty_plan_sequence_parts(const ty_plan *plan);
/** Whether several ranks share a key and value head, because there are more ranks than such
 * heads. */
bool ty_tensor_shares_key_heads(const ty_workload *workload, uint32_t ranks);
/**
 * Checks that a workload can be sharded over `ranks` tensor-parallel ranks: the heads of attention
 * and the hidden features of mlps and experts are multiples of `ranks`; key and value heads are
 * multiples or divisors. The sequences of these layers are multiples of `sequence_parts`
 * (ty_plan_sequence_parts). A vocabulary is padded. If there are fewer key and value heads than
 * ranks, several ranks use the same head: each computes its part of the projections, and an
 * all-gather completes them (Megatron-LM, megatron/core/transformer/attention.py, "num_query_groups
 * < world_size").
 * @return TY_EINVAL naming the layer, the value found and the value expected
 */
ty_status ty_tensor_check(const ty_workload *workload, uint32_t ranks, uint32_t sequence_parts,
                          ty_error *error) TY_MUST_CHECK;
/**
 * Checks that the worker can also run a range of layers with tensor parallelism. Their features,
 * those of shared experts and key and value heads are multiples of `ranks`. Only token classes are
 * sharded. Either both users of a tied matrix are sharded or none. With more than one sequence
 * part, every layer is of tokens.
 * @return as ty_tensor_check, or TY_EUNSUPPORTED naming the layer
 */
ty_status ty_tensor_run_check(const ty_workload *workload, uint32_t ranks, uint32_t sequence_parts,
                              uint32_t first_layer, uint32_t layer_count,
                              ty_error *error) TY_MUST_CHECK;
/** Share of a layer's parameters, and of its work and stash, per tensor-parallel rank: 1 / ranks or
 * 1. All parameters of a TP layer are sharded, biases and position embeddings too: each rank adds
 * its shard of them to the input of the all-reduce. */
double ty_tensor_parameter_share(const ty_plan *plan, uint32_t layer);
double ty_tensor_work_share(const ty_plan *plan, uint32_t layer);

/**
 * Bytes of a bucket's gradients that the tensor-parallel ranks of a stage replica all-reduce before
 * its update, once per step. Parameters that every rank has unsharded (norms) need it if ranks saw
 * different parts of the sequence, or if a compression chose different elements on each rank. A
 * sharded bucket needs it for its own shard of them. 0: every rank has the same gradients already.
 */
uint64_t ty_bucket_rank_bytes(const ty_plan *plan, const ty_bucket *bucket);
/** Bytes per sample and tensor-parallel rank of a layer's output: its shard of the sequence or of
 * the vocabulary, or the full output. */
uint64_t ty_layer_rank_bytes(const ty_plan *plan, uint32_t layer);

/* A summary as a JSON object, in the same form in every document. */
void ty_step_summary_to_json(const ty_step_summary *summary, ty_json_writer *writer,
                             const char *key);
ty_status ty_step_summary_from_json(const ty_json *object, ty_step_summary *out,
                                    ty_error *error) TY_MUST_CHECK;

/* ---- Segments of recomputing (recompute.c) --------------------------------------------------- */

/** Whether backward recomputes segments: elementwise, operator and full. */
bool ty_recompute_has_segments(ty_recompute recompute);

/** Consecutive layers, such as a stage, and their kind of recomputation. */
typedef struct ty_recompute_range {
    uint32_t first_layer, layer_count;
    ty_recompute recompute;
    uint32_t blocks;
} ty_recompute_range;
/**
 * The first layers of the segments of a range: the range's first layer, then every `blocks` blocks.
 * If a range begins inside a block, the rest of that block is its first segment. The head is a
 * segment of its own; frozen layers that backward does not reach are one segment.
 * @param starts [out] room for the workload's layer_count
 * @return how many; 0 if the kind has no segments
 */
uint32_t ty_recompute_segments(const ty_workload *workload, const ty_recompute_range *range,
                               uint32_t *starts);
/** The segments of a stage. */
uint32_t ty_plan_segments(const ty_plan *plan, uint32_t stage, uint32_t *starts);
/**
 * Whether the last segment of a stage skips recomputation because its backward directly follows its
 * forward. This holds for the stage with the loss, unless it has only one segment. It models
 * systems that exclude the model's head (Megatron-LM, torchtitan) or the last micro-batch
 * (torchgpipe) from recomputation.
 */
bool ty_plan_forward_serves_backward(const ty_plan *plan, uint32_t stage);
/** The part of a layer that is recomputed. */
typedef enum ty_again {
    TY_AGAIN_ALL,        /* its forward, from its inputs */
    TY_AGAIN_SECOND,     /* attention, mlp: the second product, from the output of the first */
    TY_AGAIN_ACTIVATION, /* mlp, moe: the outputs of activation functions, from their inputs */
    TY_AGAIN_NOTHING     /* everything that backward reads is stored */
} ty_again;

/** A layer of a stage that is recomputed in segments. */
typedef struct ty_layer_again {
    ty_again what;
    bool keeps_output; /* its output is stored from forward to backward, not recomputed */
} ty_layer_again;

/**
 * Marks the recomputed part of each of the range's layers: everything with full; else see
 * ty_recompute. With elementwise, the output of a product or a sum that only additions read is
 * neither stored nor recomputed, because no backward reads it. A layer that works in place, or is
 * an alias of its input, is treated like its input.
 * @param starts [segments] from ty_recompute_segments
 * @param again [out] [layer_count of the workload]; written for the range
 */
void ty_recompute_mark_again(const ty_workload *workload, const ty_recompute_range *range,
                             const uint32_t *starts, uint32_t segments, ty_layer_again *again);
/** ty_recompute_mark_again for all stages of a plan. @return TY_ENOMEM */
ty_status ty_plan_mark_again(const ty_plan *plan, ty_layer_again *again,
                             ty_error *error) TY_MUST_CHECK;
/** Share of a layer's forward FLOPs that is recomputed: all, that of its second product, or
 * none. */
double ty_layer_recompute_share(const ty_layer *layer, ty_again again);
/** Collectives inside a stage replica when a layer is recomputed: those of its forward, except the
 * ones of a product that is not recomputed. @param out as in ty_layer_inner_collectives */
uint32_t ty_layer_recompute_collectives(const ty_plan *plan, uint32_t layer, ty_again again,
                                        ty_inner_collective *out);

/* ==== deploy ================================================================================== */

/*
 * A trained model on a small device: budgets of device classes, and the variants of a model that
 * fit them.
 *
 *     ty_budget budget = {0};
 *     ty_budget_read("memory=320KB,time=100ms,rate=250MFLOPS", &budget, &error);
 *     ty_deploy(workload, &budget, &deployment, &error);     // deployment.variant: "int4"
 *
 * The device computes the forward pass of one sample. Its memory holds the weights and the largest
 * activations that are live at once. Deployment does not affect training.
 */

/** Reads "int8", "fp16-pruned-50". @return TY_EINVAL with the value found and the valid ones */
ty_status ty_variant_parse(const char *text, ty_variant *out, ty_error *error) TY_MUST_CHECK;
#define TY_VARIANT_TEXT_SIZE 24
/** Its inverse. */
void ty_variant_text(const ty_variant *variant, char out[TY_VARIANT_TEXT_SIZE]);
/** As a member of a document. */
ty_status ty_variant_from_json(const ty_json *object, const char *key, ty_variant *out,
                               ty_error *error) TY_MUST_CHECK;
/** Whether weights differ from the trained ones: any variant except fp32 without pruning. */
bool ty_variant_changes(const ty_variant *variant);

/** The candidates, in order of increasing pruning, then of decreasing bits. */
#define TY_VARIANT_COUNT 16
ty_variant ty_variant_at(uint32_t index);

/** The number of a matrix's `elements`, the smallest in magnitude, that are pruned. */
uint64_t ty_variant_pruned(const ty_variant *variant, uint64_t elements);
/**
 * Bytes of the model's weights. A matrix (ty_layer_matrices) of n elements and r rows, k of them
 * not pruned, has k numbers of the variant's bits, in full bytes; integers need a scale of 4 bytes
 * per row; pruning needs a bitmap of n bits. All other parameters (of experts, say) and the
 * statistics of batch norms are 4 bytes each.
 */
uint64_t ty_variant_weight_bytes(const ty_workload *workload, const ty_variant *variant);

/** "memory=100KB,time=100ms,rate=1TFLOPS,bandwidth=10GB/s,variant=int8": sets the given fields.
 * Setting a figure clears the budget's name.
 * @return TY_EINVAL naming the key, the value found and the value expected */
ty_status ty_budget_read(const char *text, ty_budget *budget, ty_error *error) TY_MUST_CHECK;
/** Checks that there is a limit of memory or time, and a rate if there is one of time. */
ty_status ty_budget_check(const ty_budget *budget, ty_error *error) TY_MUST_CHECK;
/** Appends the name, or the figures in the form that ty_budget_read reads. */
void ty_budget_words(const ty_budget *budget, ty_text *text);

/**
 * Memory and time that a variant needs on a device:
 *   memory   ty_variant_weight_bytes, and the largest sum over layers of the activations that are
 *            live while one is computed, including the sample, in 4 bytes per number; layers that
 *            work in place count once, and the loss is not counted;
 *   time     sum over layers of the longer of flop / rate and bytes of weights read / bandwidth,
 *            each 0 if the budget does not specify it. Of a table, only the sample's rows are read.
 *            Zeros are multiplied like other numbers: pruning saves only memory and reading.
 * O(layers). @return TY_EINVAL if the model has no forward pass of its own: an opaque layer, a
 * teacher; TY_ENOMEM
 */
ty_status ty_variant_needs(const ty_workload *workload, const ty_variant *variant,
                           const ty_budget *budget, ty_variant_need *out,
                           ty_error *error) TY_MUST_CHECK;
bool ty_budget_is_kept(const ty_budget *budget, const ty_variant_need *need);

/**
 * The first variant that fits the budget, or the budget's own variant if it fits.
 * @return as ty_variant_needs and ty_budget_check; TY_EINFEASIBLE with the nearest variant
 */
ty_status ty_deploy(const ty_workload *workload, const ty_budget *budget, ty_deployment *out,
                    ty_error *error) TY_MUST_CHECK;

/** As a member of a document, with the needs of every variant. */
ty_status ty_deployment_from_json(const ty_json *object, const char *key,
                                  const ty_workload *workload, ty_deployment *out,
                                  ty_error *error) TY_MUST_CHECK;
void ty_deployment_to_json(const ty_deployment *deployment, const ty_workload *workload,
                           ty_json_writer *writer, const char *key);

#endif
