/**
 * @file gpu_cases.h
 * The cuda backend against the CPU backend: passes, stages, ranks, updates, compressors, and
 * complete plans with several virtual ranks on one GPU. A program without a test framework, so that
 * it runs on hosts that have nothing but a GPU. A case is a function that reports its findings with
 * `wrong`.
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
/** Whether the program was asked to run the case with this name; if so, the case begins. */
bool is_asked(const char *name);
/** Prints a line, and adds an entry to the results. A failed case has left its message. */
void report(const char *name, bool is_right);

/* ---- Shared by the cases (gpu_common.c) ---- */

typedef struct precision_case {
    ty_precision precision;
    double tolerance;
} precision_case;
enum { PRECISIONS = 4 };
extern const precision_case precisions[PRECISIONS];

uint64_t next_random(uint64_t *state);
float next_float(uint64_t *state); /* -1 to 1 */
/** Copies the same batch into a slot of either backend; both store it in host memory. */
void batch_fill(const ty_device_backend *b, ty_stage_device *stage, uint32_t slot,
                const ty_workload *w, uint32_t samples, uint64_t seed);
bool device_read(ty_stage_device *stage, const float *from, uint64_t count, float *to);
bool device_write(ty_stage_device *stage, float *to, const float *from, uint64_t count);
/** The CPU stage provides the offset of each layer's slice. Differences are relative to the slice's
 * norm and a hundredth of the largest one. */
bool is_close(const ty_workload *w, const ty_stage_device *stage, const float *found,
              const float *expected, double tolerance);
ty_stage_options options_of(const ty_workload *w, uint32_t batch, ty_precision precision);
bool stage_open(const ty_device_backend *b, const ty_stage_options *o, ty_stage_device **out);
/** Two micro-batches, both forward before the first backward, as in a pipeline, with the
 * recomputation of the options. */
bool two_passes(const ty_device_backend *b, ty_stage_device *stage, const ty_stage_options *o);

/* ---- The cases ---- */

void attention_run(void);
void passes_run(void);    /* gpu_passes.c: models in one stage, and in several */
void parallel_run(void);  /* gpu_parallel.c */
void updates_run(void);   /* gpu_updates.c */
void codecs_run(void);    /* gpu_codecs.c */
void plans_run(void);     /* gpu_plans.c */
void schedules_run(void); /* gpu_schedules.c: asynchronous and split ones, ZeRO, checkpoints */
void graphs_run(void);    /* gpu_graphs.c */
void links_run(void);     /* gpu_links.c: between emulated devices */

/**
 * Collectives of the given number of ranks, one device each, over the link that training uses (with
 * its rendezvous). Prints a log of nccl-tests to standard output: in place in both halves, since
 * the link supports no other. gpu_sweep.c
 * @param collective all_reduce, all_gather, reduce_scatter, all_to_all
 * @return exit code: 77 if there is no GPU, or fewer than ranks
 */
int sweep_run(const char *collective, uint32_t ranks, uint64_t largest_bytes);

/**
 * Trains one batch on one GPU for this many steps, by the backend alone, and prints JSON. It has
 * the step time by the host's clock and the device's, the time of each pass, and the losses. It
 * also names the attention implementation, the number of passes that ran as graphs, and why others
 * did not. gpu_bench.c
 * @param steps measured steps, >= 1, after three unmeasured ones
 * @param is_profiled a profiler that waits for cuProfilerStart records only the measured steps
 * @return exit code: 77 if there is no GPU
 */
int bench_run(const char *workload, const char *precision, uint32_t batch, uint32_t steps,
              bool is_profiled);
/**
 * Rates of the device, as JSON: a copy in its memory (bytes read and written), and a product of two
 * square matrices of random numbers.
 * @param side rows and columns of the matrices
 * @return exit code: 77 if there is no GPU
 */
int rates_run(const char *precision, uint32_t side);

/**
 * Kernels and bytes of one rank's step with one micro-batch, as JSON on standard output: by kernel
 * in forward, backward and the update. On the emulator it supports models of any size, since
 * nothing is computed. gpu_counts.c
 * @return exit code
 */
int counts_run(const char *workload, const char *precision, uint32_t batch);

/** A run's gradients of the first step, in the format of ty_interpreter_save_gradients, and its
 * record. */
typedef struct outcome {
    char *gradients;
    size_t length;
    ty_run *run;
} outcome;
/** @param workload a name with changes, or the text of a zoo file */
bool plan_run(const char *workload, const plan_shape *shape, const char *backend,
              const char *precision, uint32_t steps, outcome *out);
/** With a test pass after every N steps; 0: none. */
bool plan_run_evaluated(const char *workload, const plan_shape *shape, const char *backend,
                        const char *precision, uint32_t steps, uint32_t evaluate_every,
                        outcome *out);
void outcome_free(outcome *o);

/** A run's report about its graphs; see ty_interpreter_describe. */
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
    /* Compares with the CPU backend on the same plan, not on one rank: training, or its noise,
     * depends on the layout. */
    bool is_alike;
    uint32_t evaluate_every; /* steps; 0: never */
} plan_case;
#define BATCH .global_batch = 8, .micro_batch_size = 2
#define EXACT NULL, 1e-4, 1e-3
/* Layouts that several tables use: of the mlp; of the small one, which has as many layers; of
 * gpt-tiny; of the small gpt; and of any model. */
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
/** A mixture of experts with two of four experts per token. */
#define MIXTURE                                                                                    \
    "{\"schema\": \"trainyard.zoo/1\", \"source\": \"mixtral-8x7b.json\", \"name\": "              \
    "\"mixture\", \"family\": \"decoder\", \"blocks\": 2, \"features\": 16, \"heads\": 2, "        \
    "\"kv_heads\": 1, \"experts\": 4, \"experts_per_token\": 2, \"expert_features\": 24, "         \
    "\"vocabulary\": 34, \"sequence\": 12, \"longest_sequence\": 12, \"token_bytes\": 1, "         \
    "\"dataset\": \"synthetic\", \"global_batch\": 8, \"optimizer\": {\"kind\": \"sgd\", "         \
    "\"learning_rate\": 0.1, \"momentum\": 0.9, \"weight_decay\": 0}}"
/** Three linear layers; PowerSGD factors the matrices of two of them at rank 8. */
extern const char mlp_small[];
/** A tied gpt with 2 blocks, 40 tokens and sequence length 8. */
extern const char gpt_small[];

#endif
