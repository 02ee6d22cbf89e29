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
 * Pipeline schedules as a table: in which order a stage's forwards and backwards run is written
 * once, in planner/lower/schedule_NAME.c; what else anybody has to know of a schedule is a column
 * of its row. No code outside compares schedules: it asks the row.
 */

typedef enum ty_schedule {
    TY_GPIPE,
    TY_ONE_F_ONE_B,
    TY_INTERLEAVED,
    TY_ZERO_BUBBLE,
    TY_ZERO_BUBBLE_2P,
    TY_PIPEDREAM,
    TY_PIPEDREAM_2BW,
    TY_SCHEDULE_COUNT
} ty_schedule;

/** Which sets of weights a pipeline rank keeps. */
typedef enum ty_weight_versions {
    TY_WEIGHTS_ONE,       /* the newest */
    TY_WEIGHTS_DOUBLE,    /* a step uses the version before the newest */
    TY_WEIGHTS_IN_FLIGHT, /* one for each update that a micro-batch in flight is behind */
} ty_weight_versions;

typedef struct ty_schedule_row {
    const char *name;        /* "1f1b", in plans and --fix */
    const char *megatron;    /* how Megatron-LM calls it, or NULL: it has none like it */
    const char *torchtitan;  /* likewise, of pipeline_parallel_schedule */
    bool is_usual;           /* searched unless another is asked for */
    bool is_interleaved;     /* several stages on each pipeline rank */
    bool needs_pipeline;     /* one stage alone has no use for it */
    bool is_asynchronous;    /* weights are updated while micro-batches are in flight */
    bool splits_backward;    /* first the gradients of activations, later those of weights */
    bool has_full_in_flight; /* all micro-batches of a step are in flight */
    ty_weight_versions versions;
    uint8_t most_zero;       /* the highest ZeRO level that it can have */
    uint8_t least_per_stage; /* micro-batches of each replica, for each pipeline rank: at least */
    uint8_t warmup_times;    /* forwards ahead of the first backward, in those of 1F1B */
} ty_schedule_row;

/** The row of a schedule; that of 1F1B for what is none. */
const ty_schedule_row *ty_schedule_at(ty_schedule schedule);

/** "unknown" for what is no schedule. */
const char *ty_schedule_name(ty_schedule schedule);

/** The schedule that is taken where nothing else is asked for. */
ty_schedule ty_schedule_default(bool is_interleaved);

/** Whether a schedule serves one stage and replicas of the whole network: synchronous, with one
 * stage a pipeline rank and one backward. */
bool ty_schedule_is_plain(ty_schedule schedule);

/** The weights kept beside the newest. @param lead updates that a micro-batch can be behind, of the
 *  pipeline rank's program */
uint32_t ty_schedule_stashed_versions(ty_schedule schedule, uint32_t lead);

/** What a schedule is asked to do. */
typedef struct ty_schedule_use {
    uint32_t pipeline_size;  /* devices of a pipeline, at least 1 */
    uint32_t virtual_stages; /* stages on each pipeline rank, at least 1 */
    uint32_t micro_batches;  /* of each replica */
    uint32_t zero;           /* level */
    bool has_segments;       /* recomputation makes segments of a stage */
} ty_schedule_use;

typedef enum ty_schedule_problem {
    TY_SCHEDULE_SUITS,
    TY_SCHEDULE_VIRTUAL_STAGES, /* several stages a pipeline rank belong to interleaved schedules,
                               and to those alone */
    TY_SCHEDULE_MULTIPLE,       /* the micro-batches are no multiple of the pipeline ranks */
    TY_SCHEDULE_TOO_FEW,        /* fewer micro-batches than least_per_stage asks for */
    TY_SCHEDULE_SEGMENTS,       /* recomputation in segments wants backward whole */
    TY_SCHEDULE_ZERO,           /* it has no sharding of that level */
} ty_schedule_problem;

/** Whether a schedule can do it: the one rule for searching, pinning and reading plans. */
ty_schedule_problem ty_schedule_check(ty_schedule schedule, const ty_schedule_use *use);

/* ==== plan ==================================================================================== */

/*
 * A plan says *what* to run: which layers form which stage, how many replicas each stage has and on
 * which devices, how many micro-batches, in which schedule, which gradient buckets with which
 * collective and compression. In which order follows from it: see ty_program.h.
 *
 * One shape covers every strategy:
 *   data parallel      one stage with r replicas; `zero` shards what its replicas would duplicate
 *   pipeline           several stages with one replica each
 *   hybrid             several stages, each with its own number of replicas
 *   tensor parallel    every replica is a group of `tensor_parallel` devices
 *   context parallel   ... of `context_parallel` devices, each with its part of every sequence
 *   expert parallel    ... of `expert_parallel` devices, each with its samples and its experts, or
 *                      its part of the tables that embedding bags read (`table_shard`)
 *   parameter servers  replicas, and `servers` that sum their gradients
 *   actors, learners   a first stage without layers plays episodes, from which the second learns
 *   interleaved        `virtual_stages` stages, far apart in the network, share their devices
 * A step has `micro_batches` micro-batches of `micro_batch_size` samples, numbered through all
 * replicas: micro-batch m is done by replica m mod r of each stage. Gradient accumulation is a
 * stage whose replicas each do several micro-batches.
 *
 * Pipeline ranks: with interleave v, stages s, s + P, s + 2P, ... lie on the same devices, P =
 * stage_count / v being the number of pipeline ranks of the pipeline. Without interleaving a
 * pipeline rank is a stage. A pipeline rank's program runs all its stages.
 *
 * Stage replicas are numbered pipeline rank by pipeline rank: stage replica = replicas of all
 * earlier pipeline ranks + own replica index. A stage replica is a replica: with tensor, context or
 * expert parallelism a group of devices, its ranks, which run the same program in step, each on its
 * share of every layer (see "Ranks"). Whatever is said of a stage replica's transfers holds for
 * each rank with the same rank of its partners, and an exchange of gradients takes place among all
 * ranks that have the same ones.
 *
 * A plan is self-contained: it carries the workload, the cluster, the stack and the profile it was
 * made from, with the digests of what it is made for. The stack changes what is predicted of a
 * plan, never what is run.
 */

/**
 * What forward does not keep for backward, which makes it again. Operator and full divide a stage
 * into segments (ty_recompute_segments): between forward and backward of a micro-batch only what
 * enters a segment is kept, and backward goes from segment to segment, each made again first.
 * Operator: a segment is one block, and of its matrix products every other one's output is kept as
 * well, as torchtitan's "selective op" does: of the linear and conv2d layers of a block the first,
 * third, ... one's; of every attention its projections and what it sums of the values (the scores
 * are as in selective); of every mlp what its first product makes. All else, and all of moe, lstm
 * and additive attention, is made again.
 * Elementwise: a segment is one block, and all is kept that backward reads but what norms and
 * activation functions make, those inside an mlp and of experts too; no product is made again. So
 * Megatron-Core's output-discarding recomputing has it ("layernorm", "moe_act").
 */
typedef enum ty_recompute {
    TY_RECOMPUTE_NONE,
    TY_RECOMPUTE_SELECTIVE, /* attention's inner activations only: softmax and what it makes */
    TY_RECOMPUTE_ELEMENTWISE,
    TY_RECOMPUTE_OPERATOR,
    TY_RECOMPUTE_FULL,
    TY_RECOMPUTE_COUNT
} ty_recompute;
const char *ty_recompute_name(ty_recompute recompute);
#define TY_MAX_RECOMPUTE_BLOCKS 10000
/** As users write it: "none", "selective", "elementwise", "operator", "full" (a segment is one
 * block), "full:4" (four blocks), "stage" (all of it). */
void ty_recompute_text(ty_recompute recompute, uint32_t blocks, ty_text *text);
/** Its inverse. @return TY_EINVAL: what was found, and what there is */
ty_status ty_recompute_parse(const char *text, ty_recompute *recompute, uint32_t *blocks,
                             ty_error *error) TY_MUST_CHECK;

typedef struct ty_plan_stage {
    uint32_t first_layer, layer_count;
    uint32_t replicas;
    uint32_t *devices; /* [replicas][ranks]: device index in the cluster; the same for all stages of
                          a pipeline rank */
    /* elementwise, operator, full: instructions make segments again; selective, and scores in
     * operator: the executor's backward of attention does so by itself, no instruction says it */
    ty_recompute recompute;
    uint32_t recompute_blocks; /* full: blocks of the network a segment; 0: all of the stage */
} ty_plan_stage;

/**
 * Gradients that travel together and are updated together: a contiguous range of layers of one
 * stage, averaged over its replicas; or one tied weight, summed over the replicas of the two
 * stages that hold a copy.
 *
 * Every trainable parameter of every stage belongs to exactly one bucket; a stage with one replica
 * has buckets too, which are updated and not exchanged. Each stage that holds a bucket updates
 * it once a step. A matrix whose user is in another stage than its owner has a bucket of its own;
 * the owner's other parameters (a bias, positions) stay with the bucket of its range. A range may
 * include layers without parameters, but not only such, and no frozen ones with parameters: the
 * gradients of a bucket lie side by side.
 *
 * With expert parallelism, what expert-parallel ranks divide (routed experts, tables) is on fewer
 * ranks than everything else, so a bucket whose layers have some is two: one of everything else,
 * and right behind it, with the same layers, one `of_experts`; where there is nothing else, that
 * one alone. Divided tables are in one bucket, all of them.
 */
typedef struct ty_bucket {
    uint32_t stage; /* of a tied weight: the owner's, the earlier one */
    uint32_t first_layer, layer_count;
    /* The other stage of a tied weight, else TY_NO_STAGE; the bucket then is the one weight matrix
     * of `first_layer`, the owner, and `layer_count` is 1. */
    uint32_t tied_stage;
    /* Only with expert parallelism: what expert-parallel ranks divide of its layers, routed experts
     * and tables */
    bool of_experts;
    uint64_t gradient_bytes; /* of one rank, uncompressed, fp32: ty_bucket_gradient_bytes */
    ty_algorithm algorithm;
    ty_compression compression;
} ty_bucket;
#define TY_NO_STAGE UINT32_MAX
#define TY_GRADIENT_ELEMENT_BYTES 4 /* gradients are fp32 */

/** How expert-parallel ranks divide the tables of embedding bags among them. */
typedef enum ty_table_shard {
    TY_TABLES_WHOLE,  /* each has all of all of them */
    TY_TABLES_ROW,    /* each an equal part of the rows of each */
    TY_TABLES_COLUMN, /* each an equal part of the numbers of every row */
    TY_TABLES_TABLE, /* each whole ones: the largest first, to the rank with the fewest bytes so far
                      */
    TY_TABLE_SHARD_COUNT
} ty_table_shard;
const char *ty_table_shard_name(ty_table_shard shard); /* "row" */

/** Which server sums which gradients. */
typedef enum ty_server_shard {
    TY_SHARD_SIZE,   /* each an equal share of every bucket */
    TY_SHARD_TENSOR, /* whole tensors: the largest first, each to the server with the fewest bytes
                        so far; one of more than a fair share of all gradients is divided into equal
                        parts of at most that */
    TY_SERVER_SHARD_COUNT
} ty_server_shard;
const char *ty_server_shard_name(ty_server_shard shard); /* "size" */

/**
 * Devices that train nothing and sum gradients instead: dedicated parameter servers. In every
 * exchange each replica sends each server its part of the gradients (push); a server adds up the
 * replicas' parts in the order of their stage replicas and sends all of them the sum (pull) when
 * the whole part of the bucket is summed. Replicas update their weights themselves, so what is
 * learnt is what an all-reduce would have taught (Jiang et al., "BytePS", OSDI 2020, section 4.2: a
 * summation service), and late gradients (`staleness`) are as late as without.
 *
 * They are for plans of one stage of replicas without ranks or ZeRO, whose buckets are all
 * exchanged by TY_PARAMETER_SERVER, as they are, in fp16 or in bf16. Servers are no stage replicas
 * of the program: a job has them as processes behind those that train, server s as process
 * ty_plan_rank_count + s.
 */
typedef struct ty_plan_servers {
    uint32_t count;    /* 0: every member of a bucket serves an equal share of it */
    uint32_t *devices; /* [count] of the cluster; no stage uses them */
    ty_server_shard shard;
} ty_plan_servers;

/** Bytes of a device's memory by purpose. */
typedef struct ty_memory_use {
    uint64_t parameter_bytes, gradient_bytes, optimizer_bytes;
    uint64_t activation_bytes;    /* at the peak: micro-batches in flight times stash */
    uint64_t communication_bytes; /* send, receive and bucket buffers */
    uint64_t compression_bytes;   /* error feedback and encoded payloads */
    uint64_t workspace_bytes;     /* libraries, programs; on cores the samples in memory */
} ty_memory_use;
uint64_t ty_memory_use_total(const ty_memory_use *use);

/** What a reader of the program found a step to be made of; predicted and measured alike. */
typedef struct ty_step_summary {
    double step_time_s;
    double samples_per_s;
    double tokens_per_s; /* 0 where samples are not sequences */
    /* Shares of the step, averaged over stage replicas; they add up to 1. */
    double compute_share;
    double exposed_collective_share; /* compute waits for a gradient collective or its codec */
    double exposed_transfer_share;   /* compute waits for a neighbour's activation while it is being
                                        sent */
    double bubble_share;             /* compute waits for another stage's compute */
    double input_share;              /* compute waits for data */
    char limited_by[160];            /* "pipeline bubble 18 %, gradient all-reduce 9 %" */
    /* Of the devices in use (ty_step_summary_rate); 0 where it is not known. */
    uint32_t devices;
    double mfu;               /* model FLOPs over the peak of the plan's precision; 0 also on this
                                 machine's cores, whose rate is measured */
    double tflops_per_device; /* model TFLOP/s */
    double tokens_per_s_per_device;
} ty_step_summary;

/** Of the step: a band of messages, updates or compression that is narrower is not spoken of. */
#define TY_OUTSIDE_SHARE 0.05

/** Of the samples a second: what divides badly and costs less is not spoken of. */
#define TY_UNEVEN_SHARE 0.05

typedef enum ty_uneven_kind {
    TY_UNEVEN_BATCH,  /* samples of the global batch over devices */
    TY_UNEVEN_BLOCKS, /* blocks of the network over stages */
    TY_UNEVEN_COUNT
} ty_uneven_kind;
/** "global_batch", "blocks". */
const char *ty_uneven_name(ty_uneven_kind kind);

/** A number that divides badly, and those near it that divide better. */
typedef struct ty_uneven {
    uint32_t count, parts; /* 60 samples over 8 devices; count 0: nothing to say */
    /* By the estimate. Of a batch: of the best of `better`'s samples a second. Of blocks: what the
     * mean stage computes less than the slowest, as far as the division explains it. */
    double lost_share;
    uint32_t better_count;
    struct {
        uint32_t count;       /* samples a batch; stages */
        double samples_per_s; /* of the best plan with so many, estimated */
    } better[2];              /* ascending */
} ty_uneven;

/** One line of the search: a candidate and its fate. */
typedef struct ty_candidate {
    char *name;                   /* "data parallel 2, 4 buckets" */
    double step_time_s;           /* 0 when infeasible */
    double simulated_step_time_s; /* 0 when it was not simulated */
    uint64_t peak_memory_bytes;
    char *reason;  /* why it lost: "12 % slower: pipeline bubble 25 %"; "chosen" for the winner */
    char *fix;     /* "pp=2,dp=8,...": the --fix that asks for it; NULL: none is known */
    bool is_asked; /* named by the question, with --against */
} ty_candidate;

/** What a search looked at. */
typedef struct ty_plan_searched {
    uint64_t layouts;   /* that were bounded, one by one or by families; 0: it looked at none */
    uint32_t estimates; /* plans whose programs were walked; 0: nothing was searched */
} ty_plan_searched;

/** A network as it is deployed: numbers of so many bits (32 and 16 of floats, 8 and 4 of integers),
 * so many per cent of each matrix's weights, the smallest, being zeros. */
typedef struct ty_variant {
    uint32_t bits, pruned_percent;
} ty_variant;

/** What a variant needs of a device: ty_plan.h. */
typedef struct ty_variant_need {
    uint64_t weight_bytes, activation_bytes;
    double time_s; /* of a sample; 0: the budget says no rate */
} ty_variant_need;

#define TY_BUDGET_NAME_SIZE 32
/** What a class of devices has for a network that was trained: ty_plan.h. 0: not said. */
typedef struct ty_budget {
    char name[TY_BUDGET_NAME_SIZE];           /* of the catalogue; "": figures of one's own */
    double memory_bytes;                      /* weights and live activations */
    double time_s;                            /* of a sample, forward */
    double flop_per_s, bandwidth_bytes_per_s; /* that are reached */
    ty_variant variant;                       /* the only one that is looked at; bits 0: any */
} ty_budget;

/** A trained network on a device: ty_deploy. */
typedef struct ty_deployment {
    ty_budget budget;
    ty_variant variant; /* bits 0: nothing is said of a device */
    ty_variant_need need;
} ty_deployment;

/** Time and money of a training of some length: ty_training_cost_of in study/ty_economics.h. */
typedef struct ty_training_cost {
    double steps; /* 0: nobody asked */
    double samples;
    double tokens;                    /* 0: samples are not sequences */
    double days;                      /* checkpoints and failures included */
    double goodput;                   /* share of the days that lasts as work */
    char price_kind[24];              /* "rental"; "": no price is known, as are the next three */
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
    char *cluster_name;  /* as the user gave it: "local:2", "16x dgx-a100" */
    ty_cluster *cluster; /* shared with whoever asked for the plan */
    ty_input input;      /* what is said of the samples: predicted with, as the stack */
    /* The device that what was trained is for. Training is the same without; the worker tests the
     * variant beside the weights that it trains. */
    ty_deployment deployment;
    uint32_t idle_devices; /* of the cluster: neither a stage nor a server uses them */
    ty_profile *profile;   /* NULL: planned from data sheets */
    ty_stack *stack; /* that it was costed with; "trainyard" of a file that names none. NULL only
                        in plans made by hand whose costs nobody asks for */

    char *strategy; /* for people: "data parallel 2", "1f1b 2 stages" */
    /* "pp=2,dp=8,...": the --fix that asks for this plan, with the same workload, cluster, stack,
     * precision and global batch; NULL: none is known */
    char *fix;
    ty_schedule schedule;
    uint32_t global_batch; /* = micro_batches * micro_batch_size */
    uint32_t micro_batch_size, micro_batches;
    uint32_t virtual_stages; /* stages a pipeline rank; 0 counts as 1 */
    /* Ranks a replica, their product; each 0 counts as 1. */
    uint32_t tensor_parallel, context_parallel, expert_parallel;
    bool sequence_parallel; /* what tensor parallelism leaves whole is divided along the sequence */
    ty_table_shard table_shard; /* otherwise than whole only with expert parallelism */
    /* 1: optimizer state is sharded over all that exchange its gradients (a stage's replicas and
     * those of their ranks that have the same weights), 2: gradients too, 3: weights too; 0:
     * nothing (Rajbhandari et al., "ZeRO", SC 2020) */
    uint32_t zero;
    /* Steps that a gradient may be late: the exchange of step t may take until the end of step t +
     * staleness, where the update with its mean is made, so a step's passes use weights that lack
     * the last `staleness` updates, the same ones on all replicas (delayed gradients: Li et al.,
     * "Pipe-SGD", NeurIPS 2018, section 3). A replica is at most so many steps ahead of another,
     * the bound of stale synchronous parallel (Ho et al., NIPS 2013). With a flush and replicas
     * only. */
    uint32_t staleness;
    uint32_t lag; /* updates that the weights of actors lack; see "Actors" */
    ty_optimizer optimizer;
    uint64_t seed; /* of initial weights and of the order of samples; below 2^53 */
    ty_plan_servers servers;
    uint32_t stage_count;
    ty_plan_stage *stages;
    uint32_t bucket_count;
    ty_bucket *buckets; /* of each stage from its last layer to its first; tied ones at the end */
    /* [bucket_count]: in which order buckets are exchanged, each once; NULL: as backward finishes
     * them, which is their own order, and the next step begins behind all updates. With an order,
     * each layer's forward of the next step waits for the exchange of its own bucket only
     * ("priority": Jayarajan et al., "P3", MLSys 2019; Peng et al., "ByteScheduler", SOSP 2019),
     * the link is still one bucket's at a time, and what is learnt is the same, bit by bit. See
     * ty_plan_priority_refusal for the plans that may have one. */
    uint32_t *exchange_order;

    /* The answer. */
    bool has_prediction;
    ty_step_summary prediction; /* by the estimator */
    ty_step_summary simulation; /* by the simulator; step_time_s 0 when it was not simulated */
    ty_provenance provenance;   /* of the least certain figure that mattered */
    /* The estimator's step with all that lies outside the measured sizes of `profile` at either end
     * of its band (ty_outside): where the micro-batch does, or the band is wider than
     * TY_OUTSIDE_SHARE of the step; else both 0 */
    double least_step_time_s, most_step_time_s;
    ty_uneven uneven[TY_UNEVEN_COUNT]; /* what ty_question_uneven found */
    ty_training_cost cost;             /* if the question has a length of training */
    ty_memory_use *memory;             /* [stage_count], per device; NULL: not counted */
    double memory_reserve; /* share of usable memory that should stay free; files without: 0 */
    uint32_t candidate_count;
    ty_plan_searched searched;
    ty_candidate *candidates; /* the chosen one first; order: ty_plan_search */
} ty_plan;

/** Of the two times of a candidate the simulated one, if there is one; 0: neither. */
double ty_candidate_step_s(const ty_candidate *candidate);
/**
 * Whether a candidate that fits is on the Pareto front of step time and memory: no other is as good
 * in both and better in one. On one cluster and at one batch, money and energy grow with the step.
 */
bool ty_plan_is_on_front(const ty_plan *plan, uint32_t candidate);

/**
 * Reads `trainyard.plan/1` (docs/reference/file-formats.md), with ty_plan_check at the end: a plan
 * that was loaded is a plan that holds. TY_EPARSE names file, pointer, what was found and what was
 * expected.
 */
ty_status ty_plan_load(const char *path, ty_plan **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_plan_from_json(const ty_json *object, ty_plan **out, ty_error *error) TY_MUST_CHECK;
void ty_plan_to_json(const ty_plan *plan, ty_json_writer *writer, const char *key);
/** Writes a plan that passes ty_plan_check; any other is refused with its message. */
ty_status ty_plan_save(const ty_plan *plan, const char *path, ty_error *error) TY_MUST_CHECK;
void ty_plan_free(ty_plan *plan);

/** What is expected of a step: the simulation where there is one, else the estimate. */
const ty_step_summary *ty_plan_summary(const ty_plan *plan);
/** Output tiles of Winograd's method are 4 x 4. */
#define TY_WINOGRAD_TILE 4.0
/**
 * The direct method's products over those of Winograd's method; 1 where the method does not apply.
 * m x m outputs of an r x r window take a x a products, a = m + r - 1, in place of m m r r.
 * Source: Lavin, Gray, "Fast algorithms for convolutional neural networks", CVPR 2016, section 4;
 * CUDNN_CONVOLUTION_*_ALGO_WINOGRAD_NONFUSED, for windows of 3 x 3 and 5 x 5.
 */
double ty_winograd_saving(const ty_layer *layer);
/** Whether the device's library chooses a convolution's method: it has a rate for it, in fp32. */
bool ty_convolution_is_chosen(const ty_workload *workload, const ty_layer *layer,
                              const ty_device_type *device);
/**
 * Model FLOPs of a step: forward and backward of all layers, attention scores counted without a
 * mask, recomputation not counted. Convolutions count the products of Winograd's method on devices
 * whose library chooses it, since the direct method's can exceed the peak.
 * @param cluster NULL: no library chooses
 */
double ty_plan_model_flop(const ty_plan *plan, const ty_cluster *cluster);
/** Peak of the devices that run stages, in the plan's precision, flop/s; 0: not known. */
double ty_plan_peak_flop_per_s(const ty_plan *plan, const ty_cluster *cluster);
/** Fills in MFU, TFLOP/s and tokens/s per device from the step time and tokens/s. Everything that
 * summarizes a plan's step calls it. */
void ty_step_summary_rate(const ty_plan *plan, ty_step_summary *summary);

/** The stage that leaves its devices the least free memory. */
typedef struct ty_memory_peak {
    uint32_t stage;
    uint64_t bytes;        /* predicted, per device */
    uint64_t usable_bytes; /* of its smallest device; 0: the plan has no cluster */
    bool is_tight;         /* less than TY_TIGHT_SHARE below the limit set by the reserve */
} ty_memory_peak;
#define TY_TIGHT_SHARE 0.03
/** @return false where memory was not predicted */
bool ty_plan_memory_peak(const ty_plan *plan, ty_memory_peak *out);
/** Adds to an open object mfu, tflops_per_device and tokens_per_s_per_device, as far as they are
 * known. */
void ty_step_rates_to_json(const ty_step_summary *summary, ty_json_writer *writer);
/** Adds the same, peak_memory_bytes and usable_memory_bytes. */
void ty_plan_rates_to_json(const ty_plan *plan, const ty_step_summary *summary,
                           ty_json_writer *writer);

/** Adds "--global-batch 64 --stack megatron --precision bf16", with --input where something was
 * said of the samples and --budget where a device was, words for a shell: with the workload, the
 * cluster and `--fix` and the plan's `fix` behind it, they ask for this plan. Of a plan with a
 * stack. */
void ty_plan_add_question(const ty_plan *plan, ty_text *text);
/** A deep copy. */
ty_status ty_plan_copy(const ty_plan *plan, ty_plan **out, ty_error *error) TY_MUST_CHECK;

/**
 * Everything that must hold: stages cover all layers once and in order and the first one has all
 * that read the batch; every stage's replicas divide the micro-batches; no device is used twice;
 * every trainable parameter is in exactly one bucket and no frozen one in any, and buckets are in
 * order and as large as their gradients; evolution has one stage; gradients are late only where
 * replicas exchange them in every step; an order of exchanges has every bucket once; batch
 * arithmetic; embedded digests match their documents
 * ("was made for another workload"): the workload's is ty_workload_digest, the cluster's the
 * SHA-256 of its compact text (ty_json_text).
 * @param name file name for messages.
 * @return TY_EPARSE with "name:/stages/1/replicas: found 3, expected ...".
 */
ty_status ty_plan_check(const ty_plan *plan, const char *name, ty_error *error) TY_MUST_CHECK;

/** What decides whether a plan may have an `exchange_order`; what is left open is 0, schedule -1.
 */
typedef struct ty_priority_use {
    uint32_t stages, replicas, width, zero, servers, staleness, local_steps;
    bool is_evolution, is_played, has_teacher, is_recomputed; /* in segments */
    int schedule;
    ty_precision precision;
} ty_priority_use;
/** Why there can be no order of exchanges, in words behind "...: "; NULL: there can. */
const char *ty_priority_refusal(const ty_priority_use *use);
/** Of a plan. */
const char *ty_plan_priority_refusal(const ty_plan *plan);

/**
 * What storage and decoding let through while all that read the samples do so at once: the ranks of
 * the first stage's replicas, each its part of their micro-batches. Nothing limits it where the
 * plan has no cluster, or one without storage, and nothing is said of decoding.
 */
ty_status ty_plan_input(const ty_plan *plan, ty_input_outlook *out, ty_error *error) TY_MUST_CHECK;

/* ---- Training recipe --------------------------------------------------------------------- */

/**
 * Updates that the weights of a stage's passes lack, on average over a step. Weight stashing makes
 * only those micro-batches late that the depth of the pipeline lets overtake the update: stage s of
 * n, each of whose r replicas has M/r of the M micro-batches, starts n-1-s of them early, which is
 * (n-1-s) r/M updates.
 */
double ty_plan_delay_updates(const ty_plan *plan, uint32_t stage);
/**
 * How the optimizer of a plan differs from its workload's, whose settings are for gradients that
 * arrive in time and whole. Nothing else sets them: the planner stores them in `optimizer`, and
 * every reader takes them from there.
 *
 * SGD with momentum m is stable on a curvature L, with gradients that are d updates late, if
 *     rate L < (1 - m)/d (d <= 1),    rate L < (1 - m) 2 sin(pi/(4d + 2)) (d > 1, m small)
 * so momentum falls to 1 - d, and the rate to the bound for a workload with rate L <= 1. The second
 * bound is exact for m = 0 and 2 % too high for m = 0.1 (Yang et al., "PipeMare", MLSys 2021, lemma
 * 1; lateness acts as momentum: Mitliagkas et al., "Asynchrony begets momentum", 2016). The moments
 * of AdamW are averages: only its rate falls, and only beyond d = 1.
 *
 * Error feedback also sends gradients late. Without momentum it trains like SGD to leading order
 * (Karimireddy et al., ICML 2019). So momentum falls to the least, and the rate rises to the
 * geometric mean of two: the rates that go as far without and with the momentum of the workload.
 * DGC has momentum of its own (Lin et al., ICLR 2018) and needs no change.
 */
typedef struct ty_recipe {
    double delay_updates; /* of the stage whose gradients are the latest */
    bool has_feedback;    /* some bucket has error feedback, and no momentum of its own */
    double momentum;      /* sgd; otherwise 0 */
    double rate_factor;   /* on the learning rate of the workload */
} ty_recipe;
ty_recipe ty_plan_recipe(const ty_plan *plan);
/** Whether it changes anything. */
bool ty_recipe_changes(const ty_recipe *recipe, const ty_optimizer *usual);
/** Progress per step, as a share of that with the optimizer of the workload: rate / (1 - momentum),
 * compared. */
double ty_recipe_share(const ty_recipe *recipe, const ty_optimizer *usual);
/**
 * Sets the optimizer by the recipe.
 * @param rate  learning rate for gradients that arrive in time and whole
 */
void ty_plan_set_learning_rate(ty_plan *plan, double rate);
/**
 * "learning rate 0.045 for 0.05, momentum 0.1 for 0.9: gradients arrive 1 update late". Adds
 * nothing where the recipe changes nothing.
 */
void ty_plan_recipe_text(const ty_plan *plan, ty_text *text);

/** Whether a compressor may keep anything from step to step. */
bool ty_bucket_keeps_state(const ty_bucket *bucket);
/** Whether more of a training's state than weights depends on who has which gradients: shards,
 * residuals, sets of weights. */
bool ty_plan_state_is_of_ranks(const ty_plan *plan);
/**
 * Equal of plans that can go on from each other's checkpoints: of one workload (but for the size of
 * its images), seed and optimizer (but for learning rate, and for momentum where both have some),
 * with the same stages, interleaving and ranks, and where the state is of stage replicas with the
 * same replicas, micro-batches and buckets.
 */
ty_status ty_plan_state_digest(const ty_plan *plan, ty_digest *out, ty_error *error) TY_MUST_CHECK;
/** Digest of what is to be run (not of predictions, candidates, the samples' way and the stack). */
ty_status ty_plan_digest(const ty_plan *plan, ty_digest *out, ty_error *error) TY_MUST_CHECK;

/** Beyond these a plan is refused as absurd. */
#define TY_MAX_RANKS 1000000
#define TY_MAX_MICRO_BATCHES 1000000
#define TY_MAX_PARALLEL_SIZE 1024 /* of each kind */
#define TY_MAX_STALENESS 64
#define TY_MAX_STAGES_OF_A_PLAN 10000
uint32_t ty_plan_stage_replica_count(const ty_plan *plan);
/** Processes that run a plan, one for each rank of each stage replica: process p is rank p % width
 * of stage replica p / width. */
uint32_t ty_plan_rank_count(const ty_plan *plan);
/** With the servers: as many as a job is started with. */
uint32_t ty_plan_launched_count(const ty_plan *plan);
/** The device of a launched process. */
uint32_t ty_plan_device_of_rank(const ty_plan *plan, uint32_t rank);
/** Stages a pipeline rank, at least 1; and ranks a stage replica, of all kinds, at least 1. */
uint32_t ty_plan_virtual_stages(const ty_plan *plan);
uint32_t ty_plan_replica_ranks(const ty_plan *plan);
uint32_t ty_plan_pipeline_size(const ty_plan *plan);
/** A stage replica's pipeline rank, which is also its first stage. */
uint32_t ty_plan_stage_of_replica(const ty_plan *plan, uint32_t stage_replica);
/** First stage replica of a stage's pipeline rank; with stage == stage_count the number of stage
 * replicas. */
uint32_t ty_plan_first_replica(const ty_plan *plan, uint32_t stage);
/**
 * The plan as if each device were a stage replica: `replicas` times the ranks, in one rank, and as
 * many more micro-batches. Transfers are between the same devices, so a timeline of devices (stage
 * replica: process) is one of this plan and its program. It is for looking at: exchanges have all
 * ranks as members, and it passes no check.
 * @param out [out] free with ty_plan_view_free before `plan`, whose parts it uses
 */
ty_status ty_plan_by_device(const ty_plan *plan, ty_plan **out, ty_error *error) TY_MUST_CHECK;
void ty_plan_view_free(ty_plan *view);
/** The device of a stage replica's first rank. */
uint32_t ty_plan_device_of_replica(const ty_plan *plan, uint32_t stage_replica);
uint32_t ty_plan_device_of_replica_rank(const ty_plan *plan, uint32_t stage_replica,
                                        uint32_t replica_rank);
/** The stage that holds a layer. */
uint32_t ty_plan_stage_of_layer(const ty_plan *plan, uint32_t layer);
/**
 * The other stage with a copy of the weight matrix that `layer` owns: that of the first later layer
 * tied to it outside its own stage; TY_NO_STAGE when there is none.
 */
uint32_t ty_plan_tied_stage(const ty_plan *plan, uint32_t layer);

/** Uncompressed fp32 bytes of the gradients a bucket holds, from the workload. Frozen layers have
 *  none; matrices with a tied bucket count there only. O(layers). */
uint64_t ty_bucket_gradient_bytes(const ty_plan *plan, const ty_bucket *bucket);
/** A weight matrix inside a bucket, row-major; a row makes one output. */
typedef struct ty_bucket_matrix {
    uint64_t offset; /* elements of the bucket before it */
    uint64_t rows, columns;
} ty_bucket_matrix;
/**
 * The matrices of a bucket's gradients, in memory order; what lies between them is vectors. Layers
 * whose attributes do not say which matrices they have (opaque ones) have none, nor have
 * those that are divided among ranks.
 * @param matrices [out] room for as many as a call with NULL returns, or NULL to count
 */
uint32_t ty_bucket_matrices(const ty_plan *plan, const ty_bucket *bucket,
                            ty_bucket_matrix *matrices);
/** Of one layer, at most. */
#define TY_MOST_MATRICES 2
/**
 * The matrices of a layer's own parameters, in memory order: of linear, convolution, embedding
 * (without token types), attention, mlp and LSTM layers; offsets are elements of the layer's. One
 * that is tied is its owner's.
 * @return how many; 0 where attributes do not say which there are (attention with latents)
 */
uint32_t ty_layer_matrices(const ty_workload *workload, uint32_t layer,
                           ty_bucket_matrix out[TY_MOST_MATRICES]);
/**
 * Whether the gradient of a layer may travel as rows (TY_COMPRESSION_ROWS): a trained embedding
 * whose matrix no other layer uses, whole on every replica, of which a step touches at most as many
 * rows as a replica has tokens. O(layers).
 * @return TY_EINVAL with the reason: another kind of layer, tied, frozen, ranks, ZeRO, local steps
 *         (weights are averaged then), evolution, 2^32 - 1 rows or more
 */
ty_status ty_rows_check(const ty_plan *plan, uint32_t layer, ty_error *error) TY_MUST_CHECK;
/** Tokens that each replica of a stage meets in a step, at an embedding of it. */
uint64_t ty_plan_replica_tokens(const ty_plan *plan, uint32_t stage, uint32_t embedding);
/** What its compression sees of a bucket. O(1) but for powersgd, which asks for the matrices. Of
 *  rows a payload has room for all that the replica's tokens of a step may touch. */
ty_gradient_extent ty_bucket_extent(const ty_plan *plan, const ty_bucket *bucket);
/** Bytes each member hands to the network in a phase of the bucket's exchange, see
 *  ty_compression_wire_bytes; uncompressed: its gradients, in the one phase. */
uint64_t ty_bucket_wire_bytes(const ty_plan *plan, const ty_bucket *bucket, uint32_t phase);
/** Whether ZeRO divides a bucket among its members: each gets its share of the sum, and later the
 * weights that came of the others' shares. Its compression is one that ty_compression_shards. */
bool ty_bucket_is_sharded(const ty_plan *plan, const ty_bucket *bucket);
/**
 * What a step exchanges for a bucket in a phase, of as many as ty_compression_phases says. In
 * evolution that is an all-gather of a score and a seed for each sample, whatever the bucket's
 * size; of a sharded bucket a reduce-scatter; else what its compression says of the phase.
 */
uint64_t ty_plan_exchange_bytes(const ty_plan *plan, const ty_bucket *bucket, uint32_t phase);
ty_collective_kind ty_plan_exchange_kind(const ty_plan *plan, const ty_bucket *bucket,
                                         uint32_t phase);
/** The bytes of all phases. */
uint64_t ty_bucket_exchange_bytes(const ty_plan *plan, const ty_bucket *bucket);
/** Steps between two exchanges of a bucket: the workload's local steps, 1 without; a tied weight's
 *  gradients belong together in every step. */
uint32_t ty_plan_exchange_interval(const ty_plan *plan, const ty_bucket *bucket);
/** Stage replicas that take part in a bucket, ascending. @param stage_replicas [out] room for
 * ty_plan_stage_replica_count. */
uint32_t ty_bucket_members(const ty_plan *plan, const ty_bucket *bucket, uint32_t *stage_replicas);
/** How many they are. */
uint32_t ty_bucket_member_count(const ty_plan *plan, const ty_bucket *bucket);

/*
 * A bucket is exchanged by several groups side by side, which have different gradients. In a group
 * are, of each member stage replica, the ranks that have the same: all context-parallel and
 * expert-parallel ranks with one number of their tensor-parallel rank; of experts the
 * context-parallel ranks only.
 */
/** Ranks of each stage replica in one group. */
uint32_t ty_bucket_rank_count(const ty_plan *plan, const ty_bucket *bucket);
/** Groups: all ranks / ty_bucket_rank_count. */
uint32_t ty_bucket_group_count(const ty_plan *plan, const ty_bucket *bucket);
/** The n-th rank of a stage replica in a group; and the group that a rank is in. */
uint32_t ty_bucket_rank(const ty_plan *plan, const ty_bucket *bucket, uint32_t group, uint32_t n);
uint32_t ty_bucket_group_of(const ty_plan *plan, const ty_bucket *bucket, uint32_t replica_rank);
/** Devices of a group: its ranks of all members. With one there is nothing to exchange. */
uint32_t ty_bucket_device_count(const ty_plan *plan, const ty_bucket *bucket);
/** Them, by member and then by rank. @param devices [out] room for ty_bucket_device_count */
uint32_t ty_bucket_devices(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                           uint32_t *devices);
/** The same as processes: rank l of stage replica r is process r * ty_plan_replica_ranks + l. */
uint32_t ty_bucket_ranks(const ty_plan *plan, const ty_bucket *bucket, uint32_t group,
                         uint32_t *ranks);

/* ---- Actors ------------------------------------------------------------------------------- */

/**
 * A workload that learns by reinforcement has one stage of replicas, the learners. Without actors
 * each learner plays the episodes of its own micro-batches, in front of their forward, with the
 * weights that it has. With actors there is a stage before it, which has no layers and so no
 * gradients: its replicas play nothing but episodes, micro-batch m on actor m mod actors, and send
 * them to the learner that has the micro-batch, with everything that crosses a cut. Behind its
 * updates every learner sends the weights to its actors.
 *
 * Which weights make which samples: with a `lag` l, the episodes of step k are played with the
 * weights behind step k - 1 - l; those of the first l + 1 steps of a run, or of a stretch of it
 * that begins behind a test or a checkpoint, with the weights that it begins with. With lag 0
 * actors and learners take turns, and without actors it is the same. With lag 1 actors play for the
 * next step while learners learn. Seeds make the same episodes whoever plays them, so that the
 * number of actors and learners changes what is learnt as little as that of replicas does: by
 * rounding.
 *
 * Of actors and learners one number is a multiple of the other. With more actors a learner sends to
 * several; with fewer an actor gets from each of several learners an equal part of the weights.
 * Message m of these is about micro-batch m, as all transfers are, m from 0 to the larger number.
 */
#define TY_MAX_LAG 16
/** 0: without. */
uint32_t ty_plan_actors(const ty_plan *plan);
/** Whether a stage is the actors'. */
bool ty_plan_is_of_actors(const ty_plan *plan, uint32_t stage);
/** The stage that has the first layer. */
uint32_t ty_plan_first_stage(const ty_plan *plan);
/** Messages with weights that each learner sends in a step, or each actor receives: 1, or where
 * there are more of the others so many times as many. */
uint32_t ty_plan_policy_messages(const ty_plan *plan, uint32_t stage);
/** Bytes of one: of all weights or of a part, 4 for each. */
uint64_t ty_plan_policy_bytes(const ty_plan *plan);
/** What a plan has that is not combined with playing episodes, in words behind "...: "; NULL:
 * nothing, or there are none to play. Of a plan of which at least the workload, ranks, ZeRO,
 * staleness and schedule are there; ty_plan_priority_refusal is of the order. */
const char *ty_plan_acting_refusal(const ty_plan *plan);
/** Whether so many actors and learners go together. */
bool ty_actors_suit(uint32_t actors, uint32_t learners, uint32_t micro_batches);

/* ---- Servers ------------------------------------------------------------------------------ */

/** Of `count` elements in equal shares, as far as they go, the first of share `position`; with
 * position == shares one behind the last. */
uint64_t ty_share_start(uint64_t count, uint32_t shares, uint32_t position);
/** Elements of a bucket that one server sums; of each bucket in memory order. */
typedef struct ty_server_part {
    uint32_t server;
    uint64_t first, count; /* elements of the bucket, count > 0 */
} ty_server_part;
/** Which server has what of every bucket. */
typedef struct ty_server_map {
    ty_server_part *parts;
    uint32_t *first_parts; /* [bucket_count + 1]: bucket b has those from first_parts[b] on */
} ty_server_map;
/** O(tensors log tensors). @param out [out] without servers empty; ty_server_map_clear */
ty_status ty_server_map_make(const ty_plan *plan, ty_server_map *out,
                             ty_error *error) TY_MUST_CHECK;
void ty_server_map_clear(ty_server_map *map);
/** Of a bucket, the share of the server that has most of it: from 1 / servers to 1. */
double ty_server_map_largest_share(const ty_server_map *map, uint32_t bucket);
/** Whether servers can sum what replicas send: gradients as they are, in fp16 or in bf16. */
bool ty_server_can_sum(const ty_compression *compression);
/** Pieces that a server receives from each replica at once, and their size. */
enum { TY_SERVER_WINDOW = 4, TY_SERVER_PIECE_BYTES = 256 * 1024 };
/** Memory of a server, bytes: its part of the bucket of which it has most, and what replicas send
 * meanwhile. */
uint64_t ty_server_bytes(const ty_plan *plan, const ty_server_map *map, uint32_t server);

/* ---- Ranks -------------------------------------------------------------------------------- */

/**
 * Along which a stage replica's work is divided among its ranks. The rank with the numbers e, c and
 * t is rank (e * context_parallel + c) * tensor_parallel + t.
 *
 * Tensor-parallel ranks have each their part of the weights: see "Tensor parallelism".
 *
 * Context-parallel ranks have each their part of every sequence (Dubey et al., "The Llama 3 Herd of
 * Models", 2024, section 3.3.2): work, stash and transfers of all layers are divided, weights are
 * whole on each. Attention gathers keys and values of the whole sequence, in backward again, and
 * scatters the sums of their gradients. A rank has two runs of a sequence, one from the front and
 * one from the end (ty_context_run_start), so that causal attention is in balance.
 *
 * Expert-parallel ranks have each their samples of a micro-batch, and of every moe layer their
 * experts (Lepikhin et al., "GShard", ICLR 2021, section 3): work, stash and transfers of all
 * layers are divided, other weights are whole on each. Tokens travel to their experts and back by
 * an all-to-all each way. Experts are taken to be chosen equally often. Tables of embedding bags
 * are what they divide likewise: see "Tables".
 */
typedef enum ty_parallelism {
    TY_TENSOR_PARALLEL,
    TY_CONTEXT_PARALLEL,
    TY_EXPERT_PARALLEL,
    TY_PARALLELISM_COUNT
} ty_parallelism;
const char *ty_parallelism_name(ty_parallelism kind); /* "tensor" */
/** How many of a kind a stage replica has, at least 1. */
uint32_t ty_plan_parallel_size(const ty_plan *plan, ty_parallelism kind);
/** The rank with number n of a kind and all other numbers as those of `replica_rank`. */
uint32_t ty_plan_rank_along(const ty_plan *plan, ty_parallelism kind, uint32_t replica_rank,
                            uint32_t n);
/** Runs of a sequence that each of several context-parallel ranks has, of length / (2 ranks) tokens
 * each. */
#define TY_CONTEXT_RUNS 2
/** The token that the first (0) or second (1) run of a context-parallel rank starts at: the rank's
 * part from the front of a sequence of `length`, and its part from the end (Dubey et al., ibid.).
 */
uint64_t ty_context_run_start(uint64_t length, uint32_t ranks, uint32_t rank, uint32_t run);
/** Whether `ranks` context-parallel ranks can divide the sequences of a workload, in two parts for
 * each: else TY_EINVAL naming the layer. */
ty_status ty_context_check(const ty_workload *workload, uint32_t ranks,
                           ty_error *error) TY_MUST_CHECK;
/** Whether `ranks` divide the experts of all moe layers, and the tables as asked; there is one or
 * the other. Else TY_EINVAL. */
ty_status ty_expert_check(const ty_workload *workload, uint32_t ranks, ty_table_shard tables,
                          ty_error *error) TY_MUST_CHECK;
/** Parameters of a layer that expert-parallel ranks divide: routed experts, at most its own, or a
 * table; 0 without such ranks. */
uint64_t ty_layer_expert_elements(const ty_plan *plan, uint32_t layer);
/** What the rank that has most of all tables, and a part of the experts, has of them. */
uint64_t ty_rank_expert_elements(const ty_plan *plan, uint32_t layer);
/** Share of a layer's parameters, and of its work and stash, that each rank has. */
double ty_rank_parameter_share(const ty_plan *plan, uint32_t layer);
double ty_rank_work_share(const ty_plan *plan, uint32_t layer);
/** What a rank has of something along the sequence that is `bytes` a sample, for a micro-batch: its
 * samples, its part of the sequence; tensor-parallel ranks divide nothing of it. */
uint64_t ty_rank_bytes(const ty_plan *plan, uint64_t bytes);
/** A collective inside a layer, among the ranks of a kind. */
typedef struct ty_inner_collective {
    ty_parallelism among;
    ty_collective_kind kind;
    uint64_t bytes; /* all-reduce, reduce-scatter: each rank's input; all-gather: each rank's part;
                       all-to-all: all that a rank has for all */
    uint32_t count;
    uint32_t experts, chosen; /* of moe: of so many experts each token goes to so many, a copy for
                                 each; 0 else */
} ty_inner_collective;
/** Of `parts` equal parts of the experts, how many others than its own a token goes to, the experts
 * being chosen equally often, from `most` of the parts (0: all): (1 - 1/parts) most (1 - prod (e -
 * e/most - i) / (e - i)), i from 0 to chosen - 1, e being the experts of `most` parts. */
double ty_expert_parts_met(const ty_inner_collective *inner, double parts, double most);
#define TY_MAX_INNER_COLLECTIVES 8
/**
 * What one pass of a layer over one micro-batch exchanges inside a stage replica.
 * Tensor-parallel ranks: an all-reduce behind attention and behind the mlp forward, and one before
 * each backward; with sequence parallelism each is an all-gather and a reduce-scatter instead, and
 * backward of trained layers gathers their inputs once more (Korthikanti et al., section 4.2.2: a
 * rank keeps its own part). With fewer key and value heads than ranks an all-gather of the
 * projections, backward a reduce-scatter. Attention to another sequence does for that one what
 * it does for its own, but for the sum forward. Context-parallel ranks: of attention an all-gather
 * of keys and values, and backward besides a reduce-scatter of their gradients. Latents
 * (DeepSeek-V2) are expanded before. Expert-parallel ranks: of moe two all-to-alls of the tokens'
 * copies, one to the experts and one back; with sequence parallelism of each tensor-parallel rank's
 * part; of the first bag what is told under "Tables".
 * @param out [out] room for TY_MAX_INNER_COLLECTIVES
 * @return how many
 */
uint32_t ty_layer_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                    ty_inner_collective *out);

/* ---- Tables ------------------------------------------------------------------------------- */

/**
 * What is exchanged for tables that expert-parallel ranks divide (Naumov et al., "Deep Learning
 * Recommendation Model", arXiv:1906.00091, section 4: the other layers are replicas, tables are on
 * devices of their own), all bags of the stage at once, with the first of them. Forward, the ranks
 * tell each other the indices of their samples:
 *   by rows     each sums, for the samples of all, the rows that it has; sums are reduce-scattered
 *   by columns  each makes its columns of the vectors of all samples, which go by an all-to-all to
 *               the ranks that have the samples
 *   by tables   the same with all columns of its tables, of which alone it is told the indices
 * Backward, the gradients of vectors go the way back, an all-gather or an all-to-all. The ranks of
 * tables are not alike; all figures are those of the one that has most.
 */
typedef struct ty_table_exchange {
    uint32_t first_bag;            /* TY_NO_LAYER: tables are whole, or there are none */
    uint64_t indices, own_indices; /* of a sample: all of them, and those that a rank looks up */
    uint64_t numbers, own_numbers; /* of a sample's vectors: all, and those that a rank makes */
} ty_table_exchange;
ty_table_exchange ty_plan_tables(const ty_plan *plan);
/** Of the ranks of tables that are on them whole, the one that has a layer's; and the numbers of
 * all tables of a rank. */
uint32_t ty_table_rank(const ty_workload *workload, uint32_t ranks, uint32_t layer);
uint64_t ty_table_rank_elements(const ty_workload *workload, uint32_t ranks, uint32_t rank);
/** Why a stage cannot recompute in a way where tables are divided, in words behind "...: "; NULL:
 * it can. */
const char *ty_table_recompute_refusal(ty_table_shard tables, ty_recompute recompute);
/** Whether a bucket of what expert-parallel ranks divide has the layers of the one before it. */
bool ty_bucket_is_beside(const ty_plan *plan, uint32_t bucket);

/* ---- Tensor parallelism ------------------------------------------------------------------- */

/** Parts that the sequences between divided layers are in: with sequence parallelism one for each
 * tensor-parallel and context-parallel rank, else 1. */
uint32_t ty_plan_sequence_parts(const ty_plan *plan);
/** Whether some rank would have a part of a head of keys and values, where there are more ranks
 * than such heads. */
bool ty_tensor_shares_key_heads(const ty_workload *workload, uint32_t ranks);
/**
 * Whether `ranks` can divide a workload: the heads of attention and the hidden features of mlps and
 * experts are multiples of them; key and value heads are multiples or divisors; the sequences of
 * these layers are multiples of `sequence_parts` (ty_plan_sequence_parts). A vocabulary is padded.
 * Of fewer key and value heads than ranks several ranks use the same: each makes its part of the
 * projections, and they are gathered (Megatron-LM, megatron/core/transformer/attention.py,
 * "num_query_groups < world_size").
 * @return TY_EINVAL naming the layer, what it has, and what was expected
 */
ty_status ty_tensor_check(const ty_workload *workload, uint32_t ranks, uint32_t sequence_parts,
                          ty_error *error) TY_MUST_CHECK;
/**
 * Whether the worker can besides divide a range of layers: their features, those of shared experts
 * and key and value heads are multiples of `ranks`, only classes of tokens are divided, as are both
 * users of a tied matrix or none; with more than one sequence part every layer is of tokens.
 * @return as ty_tensor_check, or TY_EUNSUPPORTED naming the layer
 */
ty_status ty_tensor_run_check(const ty_workload *workload, uint32_t ranks, uint32_t sequence_parts,
                              uint32_t first_layer, uint32_t layer_count,
                              ty_error *error) TY_MUST_CHECK;
/** Share of a layer's parameters, and of its work and stash, that each tensor-parallel rank has: 1
 * / ranks or 1. All parameters of a divided layer are divided, biases and positions too: each rank
 * adds its part of them to what the ranks then sum. */
double ty_tensor_parameter_share(const ty_plan *plan, uint32_t layer);
double ty_tensor_work_share(const ty_plan *plan, uint32_t layer);

/**
 * Bytes of a bucket's gradients that the tensor-parallel ranks of a stage replica sum (all-reduce)
 * before its update, once a step. Parameters that every rank has whole (norms) need it where ranks
 * saw different parts of the sequence, and where a compression chose differently on each rank; of a
 * sharded bucket the own share of them. 0: every rank has their gradients already.
 */
uint64_t ty_bucket_rank_bytes(const ty_plan *plan, const ty_bucket *bucket);
/** Bytes of a sample that each tensor-parallel rank has of what a layer makes: its part of the
 * sequence, or of the vocabulary, or all. */
uint64_t ty_layer_rank_bytes(const ty_plan *plan, uint32_t layer);

/* A summary as a JSON object, the same wherever it stands. */
void ty_step_summary_to_json(const ty_step_summary *summary, ty_json_writer *writer,
                             const char *key);
ty_status ty_step_summary_from_json(const ty_json *object, ty_step_summary *out,
                                    ty_error *error) TY_MUST_CHECK;

/* ---- Segments of recomputing (recompute.c) --------------------------------------------------- */

/** Whether backward makes segments again: elementwise, operator and full. */
bool ty_recompute_has_segments(ty_recompute recompute);

/** Layers, a stage or a part of the network, and how they recompute. */
typedef struct ty_recompute_range {
    uint32_t first_layer, layer_count;
    ty_recompute recompute;
    uint32_t blocks;
} ty_recompute_range;
/**
 * Where the segments of a range begin: at its first layer, then every `blocks` blocks; a range that
 * begins inside a block has the rest of it as its first. The head is a segment of its own; frozen
 * layers that backward does not come near are one.
 * @param starts [out] room for the workload's layer_count
 * @return how many; 0 where the kind has none
 */
uint32_t ty_recompute_segments(const ty_workload *workload, const ty_recompute_range *range,
                               uint32_t *starts);
/** Those of a stage. */
uint32_t ty_plan_segments(const ty_plan *plan, uint32_t stage, uint32_t *starts);
/**
 * Whether the last segment of a stage is not made again where its backward follows directly on its
 * forward: where the stage has the loss, unless all of it is one segment. That is what systems do
 * that keep the network's head out of recomputing (Megatron-LM, torchtitan) or the last micro-batch
 * (torchgpipe).
 */
bool ty_plan_forward_serves_backward(const ty_plan *plan, uint32_t stage);
/** What recomputing makes again of a layer. */
typedef enum ty_again {
    TY_AGAIN_ALL,        /* its forward, from its inputs */
    TY_AGAIN_SECOND,     /* attention, mlp: the second product, from what the first one made */
    TY_AGAIN_ACTIVATION, /* mlp, moe: what activation functions make, from what goes into them */
    TY_AGAIN_NOTHING     /* all that backward reads of it is kept */
} ty_again;

/** A layer where its stage is recomputed in segments. */
typedef struct ty_layer_again {
    ty_again what;
    bool keeps_output; /* its output is kept from forward to backward, not made again */
} ty_layer_again;

/**
 * What recomputing makes again of each of the range's layers: with full all; else see ty_recompute.
 * With elementwise what a product or a sum makes and only additions read is neither kept nor made
 * again: no backward reads it. What works in its input's memory, or is another name for it, is as
 * its input.
 * @param starts [segments] from ty_recompute_segments
 * @param again [out] [layer_count of the workload]; written for the range
 */
void ty_recompute_mark_again(const ty_workload *workload, const ty_recompute_range *range,
                             const uint32_t *starts, uint32_t segments, ty_layer_again *again);
/** The same for all stages of a plan. @return TY_ENOMEM */
ty_status ty_plan_mark_again(const ty_plan *plan, ty_layer_again *again,
                             ty_error *error) TY_MUST_CHECK;
/** Of a layer's forward flop, what recomputing makes again: all, that of its second product, or
 * none. */
double ty_layer_recompute_share(const ty_layer *layer, ty_again again);
/** What recomputing a layer exchanges inside a stage replica: as its forward, but for what belongs
 * to a product that is not made again. @param out as in ty_layer_inner_collectives */
uint32_t ty_layer_recompute_collectives(const ty_plan *plan, uint32_t layer, ty_again again,
                                        ty_inner_collective *out);

/* ==== deploy ================================================================================== */

/*
 * A trained network on a small device: budgets of device classes, and the variants of a network
 * that keep them.
 *
 *     ty_budget budget = {0};
 *     ty_budget_read("memory=320KB,time=100ms,rate=250MFLOPS", &budget, &error);
 *     ty_deploy(workload, &budget, &deployment, &error);     // deployment.variant: "int4"
 *
 * What is asked of the device is one sample, forward: its weights lie in memory beside the largest
 * activations that are alive at once. How the network is trained is not touched by it.
 */

/** Reads "int8", "fp16-pruned-50". @return TY_EINVAL: what was found, and what there is */
ty_status ty_variant_parse(const char *text, ty_variant *out, ty_error *error) TY_MUST_CHECK;
#define TY_VARIANT_TEXT_SIZE 24
/** Its inverse. */
void ty_variant_text(const ty_variant *variant, char out[TY_VARIANT_TEXT_SIZE]);
/** As a member of a document. */
ty_status ty_variant_from_json(const ty_json *object, const char *key, ty_variant *out,
                               ty_error *error) TY_MUST_CHECK;
/** Whether weights are others than those that were trained: not of fp32 without pruning. */
bool ty_variant_changes(const ty_variant *variant);

/** The candidates: what is pruned least first, of these the widest numbers first. */
#define TY_VARIANT_COUNT 16
ty_variant ty_variant_at(uint32_t index);

/** Of `elements` of a matrix, how many of the smallest magnitudes are pruned. */
uint64_t ty_variant_pruned(const ty_variant *variant, uint64_t elements);
/**
 * Bytes of the network's weights. Of every matrix (ty_layer_matrices) of n elements and r rows, of
 * which k are kept: k numbers of the variant's bits, as whole bytes; of integers a scale of 4 bytes
 * a row; where it is pruned a bit for each of the n, which says what is kept. All other
 * parameters (of experts, say) and the statistics of batch norms stay in 4 bytes each.
 */
uint64_t ty_variant_weight_bytes(const ty_workload *workload, const ty_variant *variant);

/** "memory=100KB,time=100ms,rate=1TFLOPS,bandwidth=10GB/s,variant=int8": sets what the words say.
 * A figure that is set leaves the budget without the name that it had.
 * @return TY_EINVAL naming the key, what was found and what was expected */
ty_status ty_budget_read(const char *text, ty_budget *budget, ty_error *error) TY_MUST_CHECK;
/** What must hold: there is a limit of memory or of time, and with time a rate. */
ty_status ty_budget_check(const ty_budget *budget, ty_error *error) TY_MUST_CHECK;
/** Appends the name, or the figures in these words. */
void ty_budget_words(const ty_budget *budget, ty_text *text);

/**
 * What a variant needs of a device:
 *   memory   ty_variant_weight_bytes, and the largest sum over layers of the activations that are
 *            alive while one is computed, the sample among them, in 4 bytes a number; what works in
 *            its input's memory counts once, and the loss is left out;
 *   time     sum over layers of the longer of flop / rate and bytes of weights read / bandwidth,
 *            each 0 where the budget does not say it. Of a table the rows of a sample are read.
 *            Zeros are multiplied as other numbers are: pruning saves memory and reading alone.
 * O(layers). @return TY_EINVAL where the network has no forward pass of its own: a layer that is
 * opaque, a teacher; TY_ENOMEM
 */
ty_status ty_variant_needs(const ty_workload *workload, const ty_variant *variant,
                           const ty_budget *budget, ty_variant_need *out,
                           ty_error *error) TY_MUST_CHECK;
bool ty_budget_is_kept(const ty_budget *budget, const ty_variant_need *need);

/**
 * The first variant that keeps the budget, or the one that it asks for if that does.
 * @return as ty_variant_needs and ty_budget_check; TY_EINFEASIBLE with the nearest variant
 */
ty_status ty_deploy(const ty_workload *workload, const ty_budget *budget, ty_deployment *out,
                    ty_error *error) TY_MUST_CHECK;

/** As a member of a document, with what every variant needs. */
ty_status ty_deployment_from_json(const ty_json *object, const char *key,
                                  const ty_workload *workload, ty_deployment *out,
                                  ty_error *error) TY_MUST_CHECK;
void ty_deployment_to_json(const ty_deployment *deployment, const ty_workload *workload,
                           ty_json_writer *writer, const char *key);

#endif
