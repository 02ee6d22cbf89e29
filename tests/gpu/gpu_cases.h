/**
 * @file gpu_cases.h
 * The cuda backend against the CPU backend: passes, stages, ranks, updates, compressors, whole
 * plans with several virtual ranks on one GPU. A program without a test framework, so that it runs
 * on machines that have nothing but a GPU. A case is a function that says by `wrong` what it found.
 */
#ifndef TY_TEST_GPU_CASES_H
#define TY_TEST_GPU_CASES_H

#include "../execute/network.h"
#include "../execute/plans.h"
#include "device.h"

extern const ty_device_backend *const cpu;
extern const ty_device_backend *gpu;
extern bool is_quick;         /* smaller workloads and fewer precisions, for the emulator */
extern bool is_deterministic; /* of jobs, in cases that compare bits */
extern char message[512];

/** Leaves a message. @return false */
bool wrong(const char *format, ...) __attribute__((format(printf, 1, 2)));
/** Whether the program was asked for the case with this name: then it begins. */
bool is_asked(const char *name);
/** One line, and an entry of the results. A case that failed has left its message. */
void report(const char *name, bool is_right);

/* ---- What cases share (gpu_common.c) ---- */

typedef struct precision_case {
    ty_precision precision;
    double tolerance;
} precision_case;
enum { PRECISIONS = 4 };
extern const precision_case precisions[PRECISIONS];

uint64_t next_random(uint64_t *state);
float next_float(uint64_t *state); /* -1 to 1 */
/** The same batch into a slot of either backend; both keep it in host memory. */
void batch_fill(const ty_device_backend *b, ty_stage_device *stage, uint32_t slot,
                const ty_workload *w, uint32_t samples, uint64_t seed);
bool device_read(ty_stage_device *stage, const float *from, uint64_t count, float *to);
bool device_write(ty_stage_device *stage, float *to, const float *from, uint64_t count);
/** The CPU stage says where each layer's slice is. Differences are relative to the slice's norm and
 * a hundredth of the largest. */
bool is_close(const ty_workload *w, const ty_stage_device *stage, const float *found,
              const float *expected, double tolerance);
ty_stage_options options_of(const ty_workload *w, uint32_t batch, ty_precision precision);
bool stage_open(const ty_device_backend *b, const ty_stage_options *o, ty_stage_device **out);
/** Two micro-batches, both forward before the first backward, as a pipeline has it; what the
 * options recompute is. */
bool two_passes(const ty_device_backend *b, ty_stage_device *stage, const ty_stage_options *o);

/* ---- The cases ---- */

void attention_run(void);
void passes_run(void);    /* gpu_passes.c: networks in one stage, and in several */
void parallel_run(void);  /* gpu_parallel.c */
void updates_run(void);   /* gpu_updates.c */
void codecs_run(void);    /* gpu_codecs.c */
void plans_run(void);     /* gpu_plans.c */
void schedules_run(void); /* gpu_schedules.c: asynchronous and split ones, ZeRO, checkpoints */
void graphs_run(void);    /* gpu_graphs.c */
void links_run(void);     /* gpu_links.c: between emulated devices */

/**
 * Collectives of this many ranks, each with a device of its own, over the link that training has
 * (with its rendezvous), as a log of nccl-tests on standard output: in place in both halves, since
 * the link knows no other. gpu_sweep.c
 * @param collective all_reduce, all_gather, reduce_scatter, all_to_all
 * @return exit code: 77 where there is no GPU, or fewer than ranks
 */
int sweep_run(const char *collective, uint32_t ranks, uint64_t largest_bytes);

/**
 * Trains one batch on one GPU for this many steps, by the backend alone, and prints JSON. It has
 * the step time by the host's clock and the device's, the time of each pass, and the losses. It
 * also names whose attention ran, how many passes were graphs, and why not all. gpu_bench.c
 * @param steps measured steps, >= 1, after three that are not
 * @param is_profiled a profiler that waits for cuProfilerStart records the measured steps alone
 * @return exit code: 77 where there is no GPU
 */
int bench_run(const char *workload, const char *precision, uint32_t batch, uint32_t steps,
              bool is_profiled);
/**
 * Rates of the device, as JSON: a copy in its memory (bytes read and written), and a product
 * of two square matrices of random numbers.
 * @param side rows and columns of the matrices
 * @return exit code: 77 where there is no GPU
 */
int rates_run(const char *precision, uint32_t side);

/**
 * Kernels and bytes of a step of one rank with one micro-batch, as JSON on standard output: by
 * kernel in forward, backward and the update. On the emulator, of networks of any size, since
 * nothing is computed. gpu_counts.c
 * @return exit code
 */
int counts_run(const char *workload, const char *precision, uint32_t batch);

/** A run's gradients of the first step, as ty_interpreter_save_gradients has them, and its record.
 */
typedef struct outcome {
    char *gradients;
    size_t length;
    ty_run *run;
} outcome;
/** @param workload a name with changes, or the text of a zoo file */
bool plan_run(const char *workload, const plan_shape *shape, const char *backend,
              const char *precision, uint32_t steps, outcome *out);
/** With a test pass after every so many steps; 0: none. */
bool plan_run_evaluated(const char *workload, const plan_shape *shape, const char *backend,
                        const char *precision, uint32_t steps, uint32_t evaluate_every,
                        outcome *out);
void outcome_free(outcome *o);

/** What a run says of its graphs; see ty_interpreter_describe. */
typedef struct graph_record {
    unsigned graphs;
    unsigned long long replays, passes;
    bool is_given_up;
} graph_record;
bool graph_record_read(const ty_run *run, graph_record *out);

typedef struct plan_case {
    const char *name;
    const char *workload, *quick_workload; /* a name with changes, or the text of a zoo file */
    plan_shape shape;
    const char *precision;
    double gradient_tolerance, loss_tolerance;
    /* The measure is the CPU backend with the same plan, not on one rank: training, or its noise,
     * depends on how it is divided. */
    bool is_alike;
    uint32_t evaluate_every; /* steps; 0: never */
} plan_case;
#define BATCH .global_batch = 8, .micro_batch_size = 2
#define EXACT NULL, 1e-4, 1e-3
/* How plans are divided that several tables try: of the mlp, of the small one, whose layers are as
 * many, of gpt-tiny, of the small gpt and of any network. */
#define MLP_INTERLEAVED                                                                            \
    .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {2, 4, 5}, .buckets = 1, BATCH,  \
    .virtual_stages = 2
#define GPT_INTERLEAVED                                                                            \
    .schedule = TY_INTERLEAVED, .replicas = {1, 1, 1, 1}, .cuts = {7, 13, 19}, .buckets = 1,       \
    BATCH, .virtual_stages = 2
#define GPT_INTERLEAVED_TWICE                                                                      \
    .schedule = TY_INTERLEAVED, .replicas = {2, 2, 2, 2}, .cuts = {7, 13, 19}, .buckets = 1,       \
    BATCH, .virtual_stages = 2
#define MLP_PIPEDREAM                                                                              \
    .schedule = TY_PIPEDREAM, .replicas = {1, 1, 1}, .cuts = {2, 4}, .buckets = 1, BATCH
#define MLP_2BW .schedule = TY_PIPEDREAM_2BW, .replicas = {2, 1}, .cuts = {3}, .buckets = 1, BATCH
#define GPT_2BW .schedule = TY_PIPEDREAM_2BW, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH
#define LSTM_ZERO_BUBBLE                                                                           \
    .schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {2}, .buckets = 1, BATCH
#define GPT_ZERO_BUBBLE                                                                            \
    .schedule = TY_ZERO_BUBBLE, .replicas = {1, 1}, .cuts = {13}, .buckets = 1, BATCH
#define MLP_TWICE .schedule = TY_ONE_F_ONE_B, .replicas = {2, 2}, .cuts = {3}, .buckets = 2, BATCH
#define SMALL_GPT_HALVES                                                                           \
    .schedule = TY_ONE_F_ONE_B, .replicas = {1, 1}, .cuts = {5}, .buckets = 2, BATCH
#define THREE_REPLICAS .replicas = {3}, .buckets = 2, .global_batch = 12, .micro_batch_size = 2

bool case_plan(const plan_case *c);
/** Gradients and losses within the case's tolerances. */
bool outcome_compare(const plan_case *c, const outcome *found, const outcome *expected);
/** Convolutions with batch norm between them. */
extern const char batch_norm_small[];
/** A mixture whose tokens see two of four experts each. */
#define MIXTURE                                                                                    \
    "{\"schema\": \"trainyard.zoo/1\", \"source\": \"mixtral-8x7b.json\", \"name\": "              \
    "\"mixture\", \"family\": \"decoder\", \"blocks\": 2, \"features\": 16, \"heads\": 2, "        \
    "\"kv_heads\": 1, \"experts\": 4, \"experts_per_token\": 2, \"expert_features\": 24, "         \
    "\"vocabulary\": 34, \"sequence\": 12, \"longest_sequence\": 12, \"token_bytes\": 1, "         \
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\", "         \
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}}"
/** Three linear layers; two have matrices that PowerSGD factors at rank 8. */
extern const char mlp_small[];
/** A gpt of 2 blocks, 40 words and 8 positions, tied. */
extern const char gpt_small[];

#endif
