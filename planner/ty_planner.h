/**
 * @file ty_planner.h
 * Decides how to train a workload on a cluster. Costs (layers, collectives, memory, compression),
 * lowering of a plan to its program, the estimator, and the search.
 *
 *     ty_plan_options options = ty_plan_options_default();
 *     options.global_batch = 128;
 *     TY_CHECK(ty_plan_search(workload, cluster, profile, &options, &plan, error), status,
 * cleanup);
 *
 * Everything here is a pure function of its inputs: the same question gives the same plan. A
 * workload is computed in the precision that it has, fp32 as the zoo opens it. For the answers of
 * the command line, which chooses precision and stack, call ty_question_answer() (ty_study.h).
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
 * The program of a plan: the only place where schedules are written down. The result passes
 * ty_program_check.
 *
 * GPipe: a replica does all its forwards, then all backwards in reverse order of micro-batches.
 * 1F1B with flush: stage i warms up with w_i forwards, w_i = min(local micro-batches,
 * floor((R - 1 - ranks of earlier stages) / r_i)) (PipeDream section 3.2 with unequal replicas;
 * p-1-i when all have one), then alternates one backward after each forward, then drains. The last
 * backward of a replica is cut at the boundaries of buckets that are exchanged, so that each leaves
 * as soon as its gradients are complete; tied weights go last. Loads are at most two micro-batches
 * ahead of their forwards.
 * Interleaved: the same with passes of several stages a position, in groups of as many
 * micro-batches as there are positions. Zero bubble (H1): backward in two parts, position n puts
 * off n of the weights' parts. PipeDream and 2BW: no flush; forwards run w_i micro-batches ahead of
 * backwards, across steps.
 */
ty_status ty_plan_lower(const ty_plan *plan, ty_program **out, ty_error *error) TY_MUST_CHECK;

/* ---- Costs ------------------------------------------------------------------------------- */

/**
 * Costs of every instruction of a program on the plan's cluster. From `plan->profile` where it
 * has the figure; else roofline: time of a layer = max(flop / (peak * efficiency), bytes /
 * (bandwidth * efficiency)) + kernels * launch overhead.
 */
ty_status ty_costs_of_program(const ty_plan *plan, const ty_program *program,
                              const ty_cluster *cluster, ty_costs **out,
                              ty_error *error) TY_MUST_CHECK;

/** Forward and backward seconds of one whole layer for `samples` on a device by its data sheet, or
 * by the profile: what no stack adds anything to. */
ty_status ty_layer_cost(const ty_workload *workload, uint32_t layer, uint32_t samples,
                        const ty_device_type *device, const ty_profile *profile, double *forward_s,
                        double *backward_s, ty_provenance *provenance,
                        ty_error *error) TY_MUST_CHECK;

/** Flop a sample of a forward pass's products with weights: what the gradients of the weights take
 * once more. 0 for a layer without weights. */
double ty_layer_weight_flop(const ty_workload *workload, const ty_layer *layer);
/** The share of a layer's backward that makes gradients of weights. */
double ty_layer_weight_share(const ty_workload *workload, const ty_layer *layer);

/**
 * The exchanges of a plan, all of them added up, plain and if all its buckets had `compression`.
 * Tied weights do not count.
 * @param ring_bandwidth_bytes_per_s [out] of the narrowest ring; HUGE_VAL: nothing is exchanged
 */
ty_status ty_plan_exchange_terms(const ty_plan *plan, const ty_cluster *cluster,
                                 const ty_compression *compression, ty_exchange_terms *plain,
                                 ty_exchange_terms *compressed, double *ring_bandwidth_bytes_per_s,
                                 ty_error *error) TY_MUST_CHECK;
/**
 * The bandwidth of the replicas' networks below which `compression` of all buckets shortens the
 * exchanges of a plan, were nothing of them hidden: ty_compression_crossover of the terms above. It
 * depends on latencies and on the compressor's speed, not on the
 * bandwidth there is, which comes back for comparison.
 * @param bandwidth_bytes_per_s      [out] 0: it never pays; HUGE_VAL: always
 * @param ring_bandwidth_bytes_per_s [out] of the narrowest ring; HUGE_VAL: nothing is exchanged
 */
ty_status ty_plan_compression_crossover(const ty_plan *plan, const ty_cluster *cluster,
                                        const ty_compression *compression,
                                        double *bandwidth_bytes_per_s,
                                        double *ring_bandwidth_bytes_per_s,
                                        ty_error *error) TY_MUST_CHECK;

/** Memory of one device of a stage's position: what the worker will allocate, row by row. */
ty_status ty_stage_memory(const ty_plan *plan, const ty_program *program, uint32_t stage,
                          ty_memory_use *out, ty_error *error) TY_MUST_CHECK;

/**
 * The simplest plan of a workload: one device, one micro-batch, the workload's usual batch. What
 * other plans are measured against.
 */
ty_status ty_plan_of_workload(const ty_workload *workload, ty_plan **out,
                              ty_error *error) TY_MUST_CHECK;

/* ---- Estimating -------------------------------------------------------------------------- */

/**
 * Walks the program of `steps` consecutive steps with its costs and writes a timeline: every
 * instruction starts as soon as its stream, its waits and its partners allow. Ranks that share the
 * cores of a host slow each other: with total demand D > cores, all that use cores progress at
 * cores/D. A collective goes at the pace of its slowest member's host, a transfer at that of the
 * slower of its two. O(E log E) in the number of events E. Links are not shared: that is the
 * simulator's business.
 */
ty_status ty_estimate(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      uint32_t steps, ty_timeline **out, ty_error *error) TY_MUST_CHECK;

/** What ty_timeline_summarize makes of ty_estimate's timeline, without the timeline: where all
 * stages have as many replicas it does not grow with them. */
ty_status ty_estimate_summary(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                              uint32_t steps, ty_step_summary *out, ty_error *error) TY_MUST_CHECK;

/* ---- Searching --------------------------------------------------------------------------- */

/** How a finalist is simulated; the command line plugs in simulate/. TY_OK fills `summary`;
 *  TY_ELIMIT: it takes too long, and the estimate stands, with a note. */
typedef ty_status (*ty_simulate_callback)(void *context, const ty_plan *plan,
                                          const ty_program *program, const ty_costs *costs,
                                          ty_step_summary *summary, ty_error *error);

/**
 * What a plan divides beside layers and samples. The default, all 0, divides nothing more; fields
 * are as in ty_plan and ty_plan_stage.
 */
typedef struct ty_plan_dimensions {
    uint32_t tensor_parallel, context_parallel, expert_parallel; /* 0 counts as 1 */
    bool sequence_parallel;
    ty_table_shard table_shard;
    uint32_t zero;
    uint32_t virtual_stages; /* stages a position; 0 counts as 1; more only with "interleaved" */
    ty_recompute recompute;
    uint32_t recompute_blocks;
} ty_plan_dimensions;

/** What of ty_plan_dimensions is asked for. */
typedef enum ty_pin {
    TY_PIN_TENSOR = 1 << 0,
    TY_PIN_CONTEXT = 1 << 1,
    TY_PIN_EXPERT = 1 << 2,
    TY_PIN_SEQUENCE = 1 << 3,
    TY_PIN_ZERO = 1 << 4,
    TY_PIN_VIRTUAL_STAGES = 1 << 5,
    TY_PIN_RECOMPUTE = 1 << 6,
    TY_PIN_TABLES = 1 << 7,
    TY_PIN_ALL = (1 << 8) - 1
} ty_pin;

/** Which buckets of a plan with a compressor are compressed. */
typedef enum ty_compress_rule {
    TY_COMPRESS_USUAL,  /* all where it is fixed, else the shorter ones */
    TY_COMPRESS_ALL,    /* all */
    TY_COMPRESS_SHORTER /* those whose own exchange is predicted to be shorter so */
} ty_compress_rule;

/** Which embeddings' gradients, and those of bags of them, travel as rows. */
typedef enum ty_embedding_rule {
    TY_EMBEDDINGS_USUAL,  /* none where a compression is fixed but for rows themselves; else those
                             that are shorter so, and none to compare with */
    TY_EMBEDDINGS_DENSE,  /* none */
    TY_EMBEDDINGS_SHORTER /* those whose own exchange is predicted to be shorter so */
} ty_embedding_rule;

/** Whether buckets are exchanged in an order of their own (ty_plan.h). */
typedef enum ty_priority_rule {
    TY_PRIORITY_NONE,    /* as backward finishes them */
    TY_PRIORITY_FRONT,   /* those of the front layers first, of those whose gradients are there */
    TY_PRIORITY_SHORTER, /* the one or the other, by the estimated step, where a plan may */
    TY_PRIORITY_RULE_COUNT
} ty_priority_rule;
const char *ty_priority_rule_name(ty_priority_rule rule); /* "0", "1", "shorter" */

/** Whether layers compute in fp16 on a device: they are asked to, or to compute in bf16, which
 * NVIDIA's GPUs have from Ampere on. @param cluster NULL: not known */
bool ty_trains_in_fp16(const ty_workload *workload, const ty_cluster *cluster, uint32_t device);

/** The same plan in other software: what it was predicted to take is dropped with its candidates,
 * its memory, where that was counted, is counted anew. On failure the plan is only good to free.
 * @return TY_EINVAL where that software cannot run it (ty_stack_check) */
ty_status ty_plan_use_stack(ty_plan *plan, const ty_stack *stack, ty_error *error) TY_MUST_CHECK;

typedef struct ty_plan_options {
    const ty_stack *stack;     /* borrowed; NULL: that of ty_stack_open_default */
    ty_input input;            /* of the samples; all 0: nothing is said */
    uint32_t global_batch;     /* 0: the workload's usual one */
    uint32_t micro_batch_size; /* 0: searched */
    uint32_t pipeline_stages;  /* positions of the pipeline; 0: searched */
    const char *replicas;      /* "2,1": replicas of each stage, fixed; NULL: searched */
    /* "26,24": layers of each stage, from the first on, with `virtual_stages` of all stages of a
     * position; NULL: searched. Layouts, which divide blocks equally, are not looked at then, and
     * ranks and what is sharded only where that is asked for or nothing fits without. */
    const char *layers;
    /* Replicas of every stage, equal; 0: searched. With ranks and stages left open as many of those
     * as it leaves devices for. */
    uint32_t data_parallel;
    /* So many of the cluster's devices, the others staying idle: whole hosts of a kind, or devices
     * of one host; 0: all, or with `may_idle` as many as are fastest. */
    uint32_t devices;
    const char *device_list; /* "0-7,16-23": these, `devices` of them, ascending; NULL: any */
    bool may_idle;           /* plans may leave hosts idle, or devices of one host */
    uint32_t pinned; /* bits of ty_pin: of `dimensions` what is as they say; the rest is searched */
    ty_plan_dimensions dimensions;
    /* Of plans no more than this share slower than the fastest the simplest is the answer
     * (ty_plan_search); 0: the fastest. */
    double tolerance;
    bool layouts_only; /* only equal stages of networks of blocks on equal accelerators */
    bool fix_schedule;
    ty_schedule schedule; /* if fix_schedule */
    /* Steps that gradients are late (ty_plan.h), of every candidate; 0: none. Late gradients change
     * what is learnt, so the search has them only where they are asked for. */
    uint32_t staleness;
    bool fix_staleness; /* asked for: who weighs steps against their time tries no other */
    /* Servers of gradients that train nothing (ty_plan.h), which all gradients go to by
     * TY_PARAMETER_SERVER: each is the first device of a host of its own, the slowest hosts first
     * and of equal ones the last, whose other devices stay idle; on a cluster of one host, one of
     * its last devices. The other devices are replicas of one stage, of which there are two at
     * least, without ranks or ZeRO. 0: none */
    uint32_t servers;
    bool fix_servers; /* asked for: presets that have servers try no other number */
    bool fix_shard;
    ty_server_shard shard; /* if fix_shard; else by size */
    /* Devices that only play episodes (ty_plan.h, "Actors"), the last of the cluster; the others
     * learn. 0: learners play themselves, and `lag` is 0 */
    uint32_t actors, lag;
    bool fix_actors; /* asked for: else every number that goes together with the others is tried */
    bool fix_compression;
    /* If fix_compression; else ratio and rank are those of what the search proposes by itself, 0
     * for 0.01 and 4, and the kind is not looked at. */
    ty_compression compression;
    ty_compress_rule compress;
    ty_embedding_rule embeddings;
    ty_priority_rule priority; /* front: of one stage of replicas, ty_priority_refusal */
    bool allow_lossy;          /* search may choose lossy compressors: they change convergence */
    bool fix_algorithm;        /* of all exchanges; else chosen for each bucket */
    ty_algorithm algorithm;
    uint64_t bucket_bytes; /* UINT64_MAX: one a stage; 0: searched */
    /* Fitted to when their gradients are ready (ty_buckets_choose), in place of bytes. Not with
     * stages that take turns on a device, ZeRO, expert-parallel ranks, local steps or late
     * gradients. */
    bool fit_buckets;
    /* > 0: gradients that backward makes in one beat of a cycle of that length share a bucket, as
     * far as `bucket_bytes` go, as Horovod fuses what is ready (Sergeev and Del Balso,
     * arXiv:1802.05799); beats count from the begin of a stage's backward. What an exchange waits
     * for its beat is the stack's exchange_cycle_s. 0: bytes alone close a bucket */
    double cycle_s;
    uint64_t seed;
    double memory_reserve; /* share of every device's usable memory that stays free */
    bool answer_alone;     /* the plan has no `candidates`: only the answer is wanted */
    /* The most simulations; 0: none. The answer is simulated. Others are only if that makes it
     * slower than their estimates, one of each layout. */
    uint32_t simulate_top;
    ty_simulate_callback simulate;
    void *simulate_context;
    bool (*should_stop)(void *context); /* polled; NULL: never. The best so far is returned. */
    void *stop_context;
    /* What a long search has found so far, a line without its end, for clusters of
     * TY_MANY_DEVICES and more; NULL: nobody listens. */
    void (*note)(void *context, const char *line);
    void *note_context;
} ty_plan_options;
#define TY_MANY_DEVICES 1024
/* The command line's `tolerance`. */
#define TY_USUAL_TOLERANCE 0.005
ty_plan_options ty_plan_options_default(void);

/* ---- --fix: options in the words of the command line -------------------------------------- */

/** What options borrow that ty_fix_read made. All 0: nothing. */
typedef struct ty_fix_texts {
    ty_text replicas, layers, devices;
} ty_fix_texts;
void ty_fix_texts_clear(ty_fix_texts *texts);
/**
 * "pp=2,micro_batch=4": sets what the words ask for, and leaves the rest of `options` alone. The
 * `fix` of a plan and of its candidates (ty_plan.h) is text of that kind and complete: with the
 * same workload, cluster, profile, stack, precision and global batch it gives the same plan, the
 * same step. What it does not name follows from what it names: the algorithm of each exchange
 * unless `algorithm` was asked for, which devices hold which stage (in order, stage after stage),
 * which buckets are compressed with `compress=shorter`, which embeddings travel as rows with
 * `embeddings=shorter`, and where fitted buckets end.
 * @param devices of the cluster
 * @param texts   must outlive the options
 * @return TY_EINVAL naming the key, what was found and what was expected
 */
ty_status ty_fix_read(const char *text, uint32_t devices, ty_fix_texts *texts,
                      ty_plan_options *options, ty_error *error) TY_MUST_CHECK;
/** The keys, one after the other; NULL behind the last. */
const char *ty_fix_key_at(uint32_t index);
/** What may stand behind the key and its equals sign, with blanks between: all words where these
 * are words (but not those with a figure of their own, as full:4), a few of its numbers or sizes.
 */
const char *ty_fix_values_at(uint32_t index);
bool ty_fix_key_is_known(const char *key);

/**
 * Opens the stack of a question that names none: for a language or image model on
 * devices of a known generation the first in planner/default_stacks.json that can run what is asked
 * for. All else is Trainyard's own worker, also where there is a profile, lossy compressors are
 * allowed, or an algorithm or servers are asked for.
 * @param profile NULL: data sheets
 * @param options NULL: nothing is asked for
 */
ty_status ty_stack_open_default(const ty_workload *workload, const ty_cluster *cluster,
                                const ty_profile *profile, const ty_plan_options *options,
                                ty_stack **out, ty_error *error) TY_MUST_CHECK;

/** The fewest devices that hold parameters, gradients and optimizer states, each once, by the
 * memory model: the largest devices of the cluster.
 *  @param memory_reserve as in ty_plan_options
 *  @param state_bytes [out] what they hold */
double ty_least_devices(const ty_workload *workload, const ty_cluster *cluster,
                        const ty_stack *stack, uint32_t staleness, double memory_reserve,
                        double *state_bytes);

/**
 * The best plan found. Candidates are data parallelism over all devices, and GPipe and 1F1B with
 * every stage count and replica vector that the partition proposes. Each has its micro-batch sizes,
 * buckets and compression. The estimator ranks them, then the simulator (`simulate_top`).
 *
 * 16-bit casts are proposed if they may save 1 % of the step, lossy compressors only with
 * `allow_lossy`, and neither if the stack compresses on request only (`compression_on_request`).
 * Buckets that a proposed compressor makes slower stay uncompressed, as tied weights do. An
 * embedding that is not tied has a bucket of its own. It travels as rows if the planner predicts
 * that to be faster, and the best candidate is estimated with dense embeddings as well.
 * `fix_compression` overrides both. If nothing fits, the planner tries ZeRO, recomputation and TP
 * inside hosts, the cheapest first; `dimensions` asks for them.
 *
 * With `tolerance`, the planner searches again for simpler plans that are at most that share
 * slower: data parallelism alone, no pipeline, VPP 1, then at most 2, 4 and 8. A plan is simpler if
 * it combines fewer of TP, CP, EP, pipeline stages, interleaving (or a schedule other than 1F1B and
 * GPipe) and unequal stages; then if it has fewer virtual stages.
 *
 * The quick look that orders candidates takes all devices for the first one and
 * stages on consecutive devices; estimator and simulator use every device's own figures.
 *
 * `plan->candidates` holds every candidate and its fate: first the best of each strategy (schedule,
 * stage count, replicas), best first and the chosen one at the top, then all other variants
 * (micro-batches, buckets, compression), best first. Simulated ones come before estimated
 * ones, those before the others, whose time is the quick look's, and what does not fit comes last.
 * @param profile measured times, or NULL
 * @return TY_EINFEASIBLE with the tightest constraint and by how much it is missed; TY_EINVAL for
 *         questions without sense (global batch not divisible, fixed values that contradict);
 *         TY_EINTERRUPTED when `should_stop` came before anything that fits was found.
 */
ty_status ty_plan_search(const ty_workload *workload, const ty_cluster *cluster,
                         const ty_profile *profile, const ty_plan_options *options, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;
/**
 * Puts a layout that somebody asked about among a plan's candidates, with what it is slower by, in
 * place of its own row where it has one. The answer stays where it is.
 * @param other  its plan, for the same question; NULL: there is none
 * @param fix    the words that asked for it
 * @param reason where there is no plan: why
 * @param row    [in, out] its row, behind the answer's, which is 0; one more where it was put there
 * @return TY_ENOMEM
 */
ty_status ty_plan_put_beside(ty_plan *plan, const ty_plan *other, const char *fix,
                             const char *reason, uint32_t *row, ty_error *error) TY_MUST_CHECK;
/**
 * What ty_plan_search refuses before it looks at any candidate, by the same words. Of the devices
 * only their number, hosts and kinds count, of times none.
 * @return TY_EINVAL for questions without sense; TY_OK where only the search tells
 */
ty_status ty_plan_search_check(const ty_workload *workload, const ty_cluster *cluster,
                               const ty_profile *profile, const ty_plan_options *options,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Which gradients share a bucket: of `count` gradients in the order in which backward makes them,
 * the runs by which the last exchange ends first, exact by dynamic programming. A bucket leaves
 * when its last gradient is ready and the bucket before it is through: nothing overtakes.
 * @param ready_s       [count] when each gradient is ready, ascending
 * @param seconds       callback: the exchange of gradients [first, first + count) as one bucket
 * @param first_of_last [out, count + 1] of the first n gradients, where the last bucket begins:
 * walk it from `count` down. Of equal ends that with fewest buckets
 * @param end_s         [out, count + 1] when the first n are through
 */
typedef double ty_bucket_seconds(void *context, uint32_t first, uint32_t count);
ty_status ty_buckets_choose(uint32_t count, const double *ready_s, ty_bucket_seconds *seconds,
                            void *context, uint32_t *first_of_last, double *end_s,
                            ty_error *error) TY_MUST_CHECK;

/**
 * Divisions of a chain into stages, exact by dynamic programming: minimises the time of the slowest
 * stage, (compute of the stage + exposed share of its gradient exchange) / replicas or the transfer
 * over either of its cuts / replicas, whichever is larger, over all ways to cut at `cuts` and to
 * give `devices` replicas out; of those that reach it, the one that spends least on its cuts.
 * Source: Narayanan et al., "PipeDream", SOSP 2019, section 3.1, on a
 * flat machine list; there as here, replicas share what crosses a cut, and the side with fewer
 * paces it.
 *
 * What is found of the last layers serves all numbers of stages: open once, divide into 1 to
 * `stages`.
 * @param layer_s      [layer_count] forward + backward seconds of one micro-batch
 * @param transfer_s   [layer_count + 1] seconds for one micro-batch across the cut before a layer,
 * both ways
 * @param exchange_s   callback: seconds a step's gradient exchange of layers [first, first+count)
 * among r replicas adds per micro-batch; 0 for r == 1
 * @param fits         callback: whether a stage fits its devices with that many stages behind it;
 * what does not fit as the last stage does not fit before others; NULL: all fit
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
    /* Replicas are given out in so many at once, of which `devices` is a multiple; 0 counts as 1.
     * Time grows with devices / granule. */
    uint32_t granule;
} ty_partition_input;
typedef struct ty_partitioner ty_partitioner;
/** @param input keeps belonging to the caller, with all it points to; it lives as long as *out */
ty_status ty_partitioner_open(const ty_partition_input *input, ty_partitioner **out,
                              ty_error *error) TY_MUST_CHECK;
/** @return TY_EINFEASIBLE: no division into that many stages fits, or it has too few cuts */
ty_status ty_partitioner_divide(ty_partitioner *partitioner, uint32_t stages,
                                uint32_t *first_layers, uint32_t *replicas, double *bottleneck_s,
                                ty_error *error) TY_MUST_CHECK;
void ty_partitioner_close(ty_partitioner *partitioner);

/* ==== systems ================================================================================= */

/*
 * The systems that people know, as presets over the space of plans: what each of them would do with
 * a workload and a cluster, so that they can be set side by side, simulated and run alike.
 *
 *     const ty_system *system = ty_system_find("horovod");
 *     TY_CHECK(ty_plan_system(system, workload, cluster, NULL, &options, &plan, error), ...);
 *
 * A preset is the system's strategy, exchange and defaults, not its implementation: it is costed,
 * simulated and run as any plan is. Where a system tunes itself or leaves a choice to its users
 * (fusion threshold, cycle, stages, ZeRO level), the best of the choices is taken; the best plan of
 * each is among the candidates of the answer, in front, with what it loses.
 */

struct ty_plan_options;

typedef struct ty_system {
    const char *name;   /* "gpipe" */
    const char *what;   /* a line: what it does */
    const char *source; /* of its defaults */
} ty_system;

/** In the order they came up; NULL behind the last. */
const ty_system *ty_system_at(uint32_t index);
/** NULL when there is none of that name. */
const ty_system *ty_system_find(const char *name);

/**
 * The batch that systems are given where none is asked for: the workload's usual one, or the next
 * that all devices of the cluster share evenly.
 */
uint32_t ty_system_batch(const ty_workload *workload, const ty_cluster *cluster);

/**
 * Opens the stack of a system where none is named: the usual one of the question
 * (ty_stack_open_default) where that has all of the system's plans, else Trainyard's own worker's,
 * which says why.
 */
ty_status ty_system_open_stack(const ty_system *system, const ty_workload *workload,
                               const ty_cluster *cluster, const ty_profile *profile,
                               const struct ty_plan_options *options, ty_stack **out,
                               ty_error *error) TY_MUST_CHECK;

/**
 * The best plan among what the system can do. What `options` ask for (stages, replicas, ranks,
 * schedule, buckets, compression, algorithm, sharding, recomputing, late gradients) is in the plan,
 * or the system does not have it and says so; what they leave open is as the system does it. Batch,
 * seed, simulation and the rest are theirs, the batch that they leave open ty_system_batch.
 * @param options a NULL stack is that of ty_system_open_stack
 * @return what ty_plan_search returns; TY_EINFEASIBLE with the system's name, what was found and
 *         what it has instead, where something is asked for that it has not; TY_EINFEASIBLE or
 *         TY_EINVAL of the choice that came closest when none is possible
 */
ty_status ty_plan_system(const ty_system *system, const ty_workload *workload,
                         const ty_cluster *cluster, const ty_profile *profile,
                         const struct ty_plan_options *options, ty_plan **out,
                         ty_error *error) TY_MUST_CHECK;

/**
 * Whether two plans for one workload and cluster are the same under two names: one program of
 * one stack on the same devices, its buckets exchanged alike. Systems agree where nothing that
 * distinguishes them comes up: a network smaller than a bucket, no pipeline that is faster than
 * replicas.
 */
ty_status ty_systems_agree(const ty_plan *a, const ty_plan *b, bool *out,
                           ty_error *error) TY_MUST_CHECK;

#endif
