/**
 * @file ty_planner.h
 * Plans how to train a workload on a cluster: costs (layers, collectives, memory, compression),
 * lowering of a plan to its program, the estimator, and the search.
 *
 *     ty_plan_options options = ty_plan_options_default();
 *     options.global_batch = 128;
 *     TY_CHECK(ty_plan_search(workload, cluster, profile, &options, &plan, error), ...);
 *
 * Every function here is pure: the same question gives the same plan. A workload trains in its own
 * precision, fp32 as the zoo opens it. The command line chooses precision and stack; for its
 * answers call ty_question_answer() (ty_study.h).
 */
#ifndef TY_PLANNER_H
#define TY_PLANNER_H

#include "ty_collective_model.h"
#include "ty_core.h"
#include "ty_partition.h"
#include "ty_topologies.h"
#include "ty_workloads.h"

/* ---- Lowering ---------------------------------------------------------------------------- */

/**
 * Lowers a plan to its program. Only this function defines schedules. The result passes
 * ty_program_check.
 *
 * GPipe: a stage replica runs all its forwards, then all backwards in reverse order of
 * micro-batches. 1F1B with flush: stage i warms up with w_i forwards. Here w_i = min(local
 * micro-batches, floor((R - 1 - replicas of earlier stages) / r_i)), with R stage replicas in all
 * (PipeDream section 3.2 with unequal replicas; p-1-i when all have one). It then alternates one
 * forward and one backward, and cools down. The last backward of a stage replica is split at the
 * boundaries of gradient buckets, so that each all-reduce starts as soon as its gradients are
 * complete; tied weights go last. Loads are at most two micro-batches ahead of their forwards.
 * Interleaved: the same with the virtual stages of each pipeline rank, in groups of PP
 * micro-batches. Zero bubble (H1): backward in two parts; pipeline rank n defers n weight-gradient
 * parts. PipeDream and 2BW: no flush; forwards run w_i micro-batches ahead of backwards, across
 * steps.
 */
ty_status ty_plan_lower(const ty_plan *plan, ty_program **out, ty_error *error) TY_MUST_CHECK;

/* ---- Costs ------------------------------------------------------------------------------- */

/**
 * Costs of every instruction of a program on the plan's cluster. A figure comes from
 * `plan->profile` if it has it, else from the roofline: time of a layer = max(flop / (peak *
 * efficiency), bytes / (bandwidth * efficiency)) + kernels * launch overhead.
 */
ty_status ty_costs_of_program(const ty_plan *plan, const ty_program *program,
                              const ty_cluster *cluster, ty_costs **out,
                              ty_error *error) TY_MUST_CHECK;

/** Forward and backward seconds of one unsharded layer for `samples` on a device, from its data
 * sheet or the profile, without any overhead of a stack. */
ty_status ty_layer_cost(const ty_workload *workload, uint32_t layer, uint32_t samples,
                        const ty_device_type *device, const ty_profile *profile, double *forward_s,
                        double *backward_s, ty_provenance *provenance,
                        ty_error *error) TY_MUST_CHECK;

/** Flop per sample of the forward pass's products with weights; the gradients of the weights take
 * the same again. 0 for a layer without weights. */
double ty_layer_weight_flop(const ty_workload *workload, const ty_layer *layer);
/** The share of a layer's backward that computes gradients of weights. */
double ty_layer_weight_share(const ty_workload *workload, const ty_layer *layer);

/**
 * The sum of a plan's gradient collectives, uncompressed and with `compression` of all buckets.
 * Tied weights do not count.
 * @param ring_bandwidth_bytes_per_s [out] of the narrowest ring; HUGE_VAL: no collectives
 */
ty_status ty_plan_exchange_terms(const ty_plan *plan, const ty_cluster *cluster,
                                 const ty_compression *compression, ty_exchange_terms *plain,
                                 ty_exchange_terms *compressed, double *ring_bandwidth_bytes_per_s,
                                 ty_error *error) TY_MUST_CHECK;
/**
 * The bandwidth of the replicas' networks below which `compression` of all buckets shortens the
 * gradient collectives of a plan, without overlap: ty_compression_crossover of the terms above. It
 * depends on latencies and on the compressor's speed, not on the actual bandwidth, which is
 * returned for comparison.
 * @param bandwidth_bytes_per_s      [out] 0: it never pays; HUGE_VAL: always
 * @param ring_bandwidth_bytes_per_s [out] of the narrowest ring; HUGE_VAL: no collectives
 */
ty_status ty_plan_compression_crossover(const ty_plan *plan, const ty_cluster *cluster,
                                        const ty_compression *compression,
                                        double *bandwidth_bytes_per_s,
                                        double *ring_bandwidth_bytes_per_s,
                                        ty_error *error) TY_MUST_CHECK;

/** Memory of one device of a stage's pipeline rank, as the worker will allocate it, row by row. */
ty_status ty_stage_memory(const ty_plan *plan, const ty_program *program, uint32_t stage,
                          ty_memory_use *out, ty_error *error) TY_MUST_CHECK;

/**
 * The simplest plan of a workload: one device, one micro-batch, the workload's usual batch. It is
 * the baseline for other plans.
 */
ty_status ty_plan_of_workload(const ty_workload *workload, ty_plan **out,
                              ty_error *error) TY_MUST_CHECK;

/* ---- Estimating -------------------------------------------------------------------------- */

/**
 * Estimates the timeline of `steps` consecutive steps of a program from its costs: every
 * instruction starts as soon as its stream, its waits and its partners allow. Stage replicas that
 * share the cores of a host slow each other: with total demand D > cores, all work that uses cores
 * progresses at cores/D. A collective progresses at the rate of its slowest member's host, a
 * send/recv at that of the slower of its two hosts. O(E log E) in the number of events E. Link
 * contention is left to the simulator.
 */
ty_status ty_estimate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      uint32_t steps, ty_timeline **out, ty_error *error) TY_MUST_CHECK;

/** Returns ty_timeline_summarize of ty_estimate's timeline without building the timeline. If all
 * stages have equal replicas, its cost does not grow with their number. */
ty_status ty_estimate_summary(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                              uint32_t steps, ty_step_summary *out, ty_error *error) TY_MUST_CHECK;

/* ---- Searching --------------------------------------------------------------------------- */

/** Simulates a finalist; the command line passes one that calls simulate/. TY_OK fills `summary`;
 * TY_ELIMIT: it takes too long, and the estimate is used, with a note. */
typedef ty_status (*ty_simulate_callback)(void *context, const ty_plan *plan,
                                          const ty_program *program, const ty_costs *costs,
                                          ty_step_summary *summary, ty_error *error);

/** Whether layers compute in fp16 on a device: the workload is fp16, or it is bf16 and the GPU
 * lacks bf16, which NVIDIA's GPUs have from Ampere on. @param cluster NULL: not known */
bool ty_trains_in_fp16(const ty_workload *workload, const ty_cluster *cluster, uint32_t device);

/** Moves a plan to another stack. Its prediction and candidates are dropped; its memory, if
 * present, is computed again. On failure the caller can only free the plan.
 * @return TY_EINVAL if that stack cannot run it (ty_stack_check) */
ty_status ty_plan_use_stack(ty_plan *plan, const ty_stack *stack, ty_error *error) TY_MUST_CHECK;

typedef enum ty_idle_rule {
    TY_IDLE_NEVER,
    TY_IDLE_IF_NEEDED, /* if no partition uses all devices */
    TY_IDLE_MAY
} ty_idle_rule;

/** A question about a workload and a cluster. Its pins (ty_axes.h) fix what a plan decides; axes
 * without a pin are searched. Stale gradients, servers and lag are used only if they are pinned:
 * they change convergence or the roles of devices. */
typedef struct ty_plan_options {
    const ty_stack *stack; /* borrowed; NULL: that of ty_stack_open_default */
    ty_input input;        /* of the samples; all 0: not specified */
    uint32_t global_batch; /* 0: the workload's usual one */
    /* With pinned layers, layouts (which partition blocks equally) are not considered; TP, CP, EP
     * and ZeRO are considered only if they are pinned or nothing fits without. With a pinned DP
     * size, if TP, CP, EP and PP are open, they use all devices that it leaves. */
    ty_pins pins;
    ty_idle_rule idle; /* whether plans may leave hosts idle, or devices of one host, unless
                          devices are pinned */
    /* Among plans at most this share slower than the fastest, the simplest is the answer
     * (ty_plan_search); 0: the fastest. */
    double tolerance;
    bool layouts_only; /* only equal stages of models of blocks on equal accelerators */
    bool allow_lossy;  /* search may choose lossy compressors: they change convergence */
    uint64_t seed;
    double memory_reserve; /* share of every device's usable memory that stays free */
    bool answer_alone;     /* the plan has no `candidates`, only the answer */
    /* The maximum number of simulations; 0: none. The answer is simulated. Others are simulated,
     * one of each layout, only if that makes it slower than their estimates. */
    uint32_t simulate_top;
    ty_simulate_callback simulate;
    void *simulate_context;
    bool (*should_stop)(void *context); /* polled; NULL: never. If it returns true, the search
                                           returns the best plan so far. */
    void *stop_context;
    /* Progress of a long search, one line without a newline, for clusters of TY_MANY_DEVICES or
     * more; NULL: none. */
    void (*note)(void *context, const char *line);
    void *note_context;
} ty_plan_options;
#define TY_MANY_DEVICES 1024
/* Default `tolerance` of the command line. */
#define TY_USUAL_TOLERANCE 0.005
ty_plan_options ty_plan_options_default(void);

/**
 * Opens the stack of a question that names none: for a language or image model on devices of a
 * known generation, the first in planner/default_stacks.json that can run the options. It is
 * Trainyard's own worker otherwise, and also with a profile, if lossy compressors are allowed, or
 * if an algorithm or servers are pinned.
 * @param profile NULL: data sheets
 * @param options NULL: defaults
 */
ty_status ty_stack_open_default(const ty_workload *workload, const ty_cluster *cluster,
                                const ty_profile *profile, const ty_plan_options *options,
                                ty_stack **out, ty_error *error) TY_MUST_CHECK;

/** The minimum number of devices for one copy of parameters, gradients and optimizer states by the
 * memory model, with the largest devices of the cluster.
 *  @param memory_reserve as in ty_plan_options
 *  @param state_bytes [out] bytes of that copy */
double ty_least_devices(const ty_workload *workload, const ty_cluster *cluster,
                        const ty_stack *stack, uint32_t staleness, double memory_reserve,
                        double *state_bytes);

/**
 * Returns the best plan found. Candidates are data parallelism over all devices, and GPipe and 1F1B
 * with every PP size and replica vector that the partition proposes. Each has its micro-batch
 * sizes, buckets and compression. The estimator ranks them, then the simulator (`simulate_top`).
 *
 * 16-bit casts are proposed if they may save 1 % of the step, lossy compressors only with
 * `allow_lossy`, and neither if the stack compresses on request only (`compression_on_request`).
 * Buckets that a proposed compressor makes slower stay uncompressed, as tied weights do. An
 * embedding that is not tied has a bucket of its own. It is sent as rows if the planner predicts
 * that to be faster, and the best candidate is estimated with dense embeddings as well.
 * A pinned compression overrides both. If nothing fits, the planner tries ZeRO, recomputation and
 * TP inside hosts, the cheapest first, unless they are pinned.
 *
 * With `tolerance`, the planner searches again for simpler plans that are at most that share
 * slower: data parallelism alone, no pipeline, VPP 1, then at most 2, 4 and 8. A plan is simpler if
 * it combines fewer of TP, CP, EP, PP, virtual stages (or a schedule other than 1F1B and GPipe) and
 * unequal stages; then if its VPP is smaller.
 *
 * The quick estimate that orders candidates assumes that all devices equal the first one and that
 * stages are on consecutive devices; estimator and simulator use every device's own figures.
 *
 * `plan->candidates` has every candidate and why it was rejected: first the best of each strategy
 * (schedule, PP size, replicas), best first and the chosen one at the top, then all other variants
 * (micro-batches, buckets, compression), best first. Simulated ones come before estimated ones,
 * then those with only a quick estimate; those that do not fit come last.
 * @param profile measured times, or NULL
 * @return TY_EINFEASIBLE with the tightest constraint and by how much it is missed; TY_EINVAL for
 * invalid questions (global batch not divisible, fixed values that contradict); TY_EINTERRUPTED if
 * `should_stop` stopped the search before any candidate fit.
 */
ty_status ty_plan_search(const ty_workload *workload, const ty_cluster *cluster,
                         const ty_profile *profile, const ty_plan_options *options, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;
/**
 * Adds a layout that the user asked about to a plan's candidates, with its slowdown. It replaces
 * the layout's own row if there is one. The answer keeps its row.
 * @param other  its plan, for the same question; NULL: there is none
 * @param fix the text that describes it
 * @param reason if there is no plan: why
 * @param row [in, out] its row, after the answer's, which is 0; incremented if it was added there
 * @return TY_ENOMEM
 */
ty_status ty_plan_put_beside(ty_plan *plan, const ty_plan *other, const char *fix,
                             const char *reason, uint32_t *row, ty_error *error) TY_MUST_CHECK;
/**
 * Runs the checks that ty_plan_search makes before it evaluates a candidate, with the same
 * messages. It reads only the number, hosts and kinds of devices, and no times.
 * @return TY_EINVAL for invalid questions; TY_OK if only the search can decide
 */
ty_status ty_plan_search_check(const ty_workload *workload, const ty_cluster *cluster,
                               const ty_profile *profile, const ty_plan_options *options,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Groups gradients into buckets: splits `count` gradients, in the order in which backward computes
 * them, into runs so that the last all-reduce ends first; exact by dynamic programming. A bucket
 * starts when its last gradient is ready and the bucket before it is done; buckets stay in order.
 * @param ready_s       [count] when each gradient is ready, ascending
 * @param seconds       callback: all-reduce time of gradients [first, first + count) as one bucket
 * @param first_of_last [out, count + 1] of the first n gradients, where the last bucket begins;
 * read it from `count` down. Break ties by fewer buckets
 * @param end_s         [out, count + 1] when the first n are done
 */
typedef double ty_bucket_seconds(void *context, uint32_t first, uint32_t count);
ty_status ty_buckets_choose(uint32_t count, const double *ready_s, ty_bucket_seconds *seconds,
                            void *context, uint32_t *first_of_last, double *end_s,
                            ty_error *error) TY_MUST_CHECK;

/**
 * Partitions a chain of layers into stages, exactly, by dynamic programming. It minimizes the time
 * of the slowest stage over all choices of cuts from `cuts` and all ways to assign `devices`
 * replicas. A stage's time is the larger of (compute + exposed gradient all-reduce) / replicas and
 * the send/recv time over either of its cuts / replicas. Ties: the least total time on cuts.
 * Source: Narayanan et al., "PipeDream", SOSP 2019, section 3.1, on a flat list of devices; there
 * as here, replicas share the tensors that cross a cut, and the side with fewer replicas limits the
 * rate.
 *
 * Solutions for the last layers serve all numbers of stages: open once, partition into 1 to
 * `stages`.
 * @param layer_s      [layer_count] forward + backward seconds of one micro-batch
 * @param transfer_s   [layer_count + 1] seconds for one micro-batch across the cut before a layer,
 * both ways
 * @param exchange_s   callback: seconds per micro-batch that the gradient all-reduce of layers
 * [first, first+count) among r replicas adds; 0 for r == 1
 * @param fits         callback: whether a stage fits its devices with that many stages after it; a
 * stage that does not fit as the last one does not fit before others; NULL: all fit
 * @param first_layers [out, stages] first layer of each stage;  @param replicas [out, stages]
 * @param bottleneck_s [out] seconds per micro-batch of the slowest stage
 */
typedef struct ty_partition_input {
    uint32_t layer_count;
    const double *layer_s, *transfer_s;
    uint32_t cut_count;
    const uint32_t *cuts;
    uint32_t devices, stages; /* all devices are used */
    double (*exchange_s)(void *context, uint32_t first, uint32_t count, uint32_t replicas);
    bool (*fits)(void *context, uint32_t first, uint32_t count, uint32_t replicas,
                 uint32_t stages_after);
    void *context;
    const uint32_t *fixed_replicas; /* [stages], for exactly as many; NULL: any */
    /* Replicas are assigned in multiples of this number, which divides `devices`; 0 counts as 1.
     * Run time grows with devices / granule. */
    uint32_t granule;
} ty_partition_input;
typedef struct ty_partitioner ty_partitioner;
/** @param input borrowed, with all it points to; must outlive *out */
ty_status ty_partitioner_open(const ty_partition_input *input, ty_partitioner **out,
                              ty_error *error) TY_MUST_CHECK;
/** @return TY_EINFEASIBLE: no partition into that many stages fits, or it has too few cuts */
ty_status ty_partitioner_divide(ty_partitioner *partitioner, uint32_t stages,
                                uint32_t *first_layers, uint32_t *replicas, double *bottleneck_s,
                                ty_error *error) TY_MUST_CHECK;
void ty_partitioner_close(ty_partitioner *partitioner);

/* ==== systems ================================================================================= */

/*
 * Presets of well-known training systems: the plan that each would choose for a workload and a
 * cluster. They are compared, simulated and run as other plans are.
 *
 *     const ty_system *system = ty_system_find("horovod");
 *     TY_CHECK(ty_plan_system(system, workload, cluster, NULL, &options, &plan, error), ...);
 *
 * A preset has the system's strategy, collectives and defaults, not its implementation. If a system
 * tunes itself or leaves a choice to its users (fusion threshold, cycle, stages, ZeRO stage), the
 * planner takes the best choice. The best plan of each choice is among the answer's candidates,
 * first, with its slowdown.
 */

struct ty_plan_options;

typedef struct ty_system {
    const char *name;   /* "gpipe" */
    const char *what;   /* one line: what it does */
    const char *source; /* of its defaults */
} ty_system;

/** In the order in which the systems were published; NULL after the last. */
const ty_system *ty_system_at(uint32_t index);
/** NULL if there is none of that name. */
const ty_system *ty_system_find(const char *name);

/**
 * The default global batch of systems: the workload's usual one, or the next that all devices of
 * the cluster share evenly.
 */
uint32_t ty_system_batch(const ty_workload *workload, const ty_cluster *cluster);

/**
 * Opens the default stack of a system: ty_stack_open_default of the question if that can run all of
 * the system's plans, else Trainyard's own worker, with the reason.
 */
ty_status ty_system_open_stack(const ty_system *system, const ty_workload *workload,
                               const ty_cluster *cluster, const ty_profile *profile,
                               const struct ty_plan_options *options, ty_stack **out,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Returns the best plan that the system can run. The plan has all that `options` fix (stages,
 * replicas, TP, CP, EP, schedule, buckets, compression, algorithm, sharding, recomputation,
 * staleness); if the system lacks one of them, the call fails. Open fields are as the system
 * chooses. Batch, seed, simulation and the rest come from `options`; an open batch is
 * ty_system_batch.
 * @param options a NULL stack is that of ty_system_open_stack
 * @return as ty_plan_search; TY_EINFEASIBLE with the system's name, the value found and what the
 * system has instead, if it lacks a fixed option; TY_EINFEASIBLE or TY_EINVAL of the choice that
 * came closest if none is possible
 */
ty_status ty_plan_system(const ty_system *system, const ty_workload *workload,
                         const ty_cluster *cluster, const ty_profile *profile,
                         const struct ty_plan_options *options, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;

/**
 * Whether two plans for one workload and cluster are equal: the same program of the same stack on
 * the same devices, with the same collectives for its buckets. Systems agree if their differences
 * do not matter: a model smaller than a bucket, or no pipeline faster than data parallelism.
 */
ty_status ty_systems_agree(const ty_plan *a, const ty_plan *b, bool *out,
                           ty_error *error) TY_MUST_CHECK;

#endif
