/**
 * @file ty_run.h
 * Timelines and runs.
 *
 *   timeline  when each instruction ran, predicted or measured
 *   run       a job for the worker, and the worker's measurements
 */
#ifndef TY_RUN_H
#define TY_RUN_H

#include "ty_base.h"
#include "ty_json.h"
#include "ty_plan.h"
#include "ty_program.h"

#include <stdbool.h>
#include <stdint.h>

/* ==== timeline ================================================================================ */

/*
 * A timeline: when each instruction of each stage replica ran, in one or more steps. The estimator,
 * the simulator and the executor all write one, so predicted and measured ones can be compared by
 * instruction.
 */

typedef struct ty_event {
    uint32_t stage_replica;
    uint32_t step;         /* 0-based, of the recorded steps */
    uint32_t instruction;  /* index in the stage replica's stage program */
    double start_s, end_s; /* since the start of step 0; for waiting instructions (receive,
                              collective) start is when the stage replica was ready */
} ty_event;

typedef struct ty_timeline {
    ty_digest plan_digest;
    uint32_t stage_replica_count, step_count;
    uint64_t event_count, capacity;
    ty_event *events; /* ascending by step, stage replica, instruction after ty_timeline_sort */
} ty_timeline;

ty_status ty_timeline_new(const ty_plan *plan, uint32_t step_count, ty_timeline **out,
                          ty_error *error) TY_MUST_CHECK;
/** The same without the plan's digest, which takes long on large clusters: for timelines that are
 * summarized and never written. */
ty_status ty_timeline_new_unsigned(const ty_plan *plan, uint32_t step_count, ty_timeline **out,
                                   ty_error *error) TY_MUST_CHECK;
ty_status ty_timeline_add(ty_timeline *timeline, const ty_event *event) TY_MUST_CHECK;
void ty_timeline_sort(ty_timeline *timeline);
void ty_timeline_free(ty_timeline *timeline);

/** `trainyard.timeline/2`: rows of [stage replica, step, instruction, start_s, end_s]. */
ty_status ty_timeline_from_json(const ty_json *object, ty_timeline **out,
                                ty_error *error) TY_MUST_CHECK;
void ty_timeline_to_json(const ty_timeline *timeline, ty_json_writer *writer, const char *key);

/**
 * Checks that every instruction of every stage replica and step is there exactly once, inside its
 * stage replica's stage program, with finite times and end_s >= start_s. Needs a sorted timeline.
 */
ty_status ty_timeline_check(const ty_plan *plan, const ty_program *program,
                            const ty_timeline *timeline, const char *name,
                            ty_error *error) TY_MUST_CHECK;

/** The event of (step, stage replica, instruction) in a sorted, checked timeline: arithmetic, no
 * search. */
const ty_event *ty_timeline_find(const ty_timeline *timeline, const ty_program *program,
                                 const ty_plan *plan, uint32_t step, uint32_t stage_replica,
                                 uint32_t instruction);

/**
 * The breakdown of a step; one definition for predicted and measured timelines.
 *
 * Step time: with several steps, (end of the last step - end of the first) / (steps - 1). The end
 * of a step is the last end of its compute instructions; with one step it is the step time. With
 * more than 8 steps, the median of the differences of successive ends is taken instead, to ignore
 * single disturbed steps. If steps overlap, the program's lead in steps is left out at either end,
 * down to two steps.
 *
 * Shares: each gap in a stage replica's compute stream is charged to the last wait of the next
 * compute instruction: a collective or its codec -> exposed_collective; a load -> input; a receive
 * -> exposed transfer from the start of its send, bubble before that; none -> bubble. The shares
 * are of the time from the end of the first step to the end of the last (with one step: from 0),
 * over all stage replicas; a stage replica's idle time at its end is bubble.
 * @param program passed ty_program_check
 * @param timeline sorted; checked here
 * @return TY_EPARSE if the timeline is not of this program, TY_EINVAL if its steps take no time.
 */
ty_status ty_timeline_summarize(const ty_plan *plan, const ty_program *program,
                                const ty_timeline *timeline, ty_step_summary *out,
                                ty_error *error) TY_MUST_CHECK;
/**
 * Adds to the summary of a step `periods` times what a step with one more period has more.
 * @param longer the summary of the step with one more period
 */
void ty_step_summary_extend(const ty_plan *plan, const ty_step_summary *longer, double periods,
                            ty_step_summary *summary);

/** Uses of the time of a stage replica's compute stream, in more detail than in a summary. */
typedef enum ty_time_kind {
    TY_TIME_FORWARD,
    TY_TIME_BACKWARD,
    TY_TIME_RECOMPUTE,
    TY_TIME_OPTIMIZER,
    TY_TIME_TENSOR_EXCHANGE,   /* inside passes, between the ranks of a stage replica */
    TY_TIME_GRADIENT_EXCHANGE, /* exposed, as are the kinds from here on */
    TY_TIME_WEIGHT_GATHER,
    TY_TIME_CODEC,
    TY_TIME_TRANSFER, /* send/recv of activations and their gradients */
    TY_TIME_INPUT,
    TY_TIME_BUBBLE, /* another stage's compute */
    TY_TIME_KIND_COUNT
} ty_time_kind;
const char *ty_time_kind_name(ty_time_kind kind); /* "forward", "gradient_exchange" */

/**
 * Shares of the time window of ty_timeline_summarize, over all stage replicas. They add up to 1,
 * and those of a summary are sums of them.
 * @param costs has the time of a pass's inner collectives (inner_s); NULL: it is counted in the
 *   passes
 * @param shares [out, TY_TIME_KIND_COUNT]
 * @param busy   [out, stage replica] share of the window that its compute stream is busy; may be
 * NULL
 * @return as ty_timeline_summarize
 */
ty_status ty_timeline_breakdown(const ty_plan *plan, const ty_program *program,
                                const ty_costs *costs, const ty_timeline *timeline, double *shares,
                                double *busy, ty_error *error) TY_MUST_CHECK;

/* ==== run ===================================================================================== */

/*
 * The worker's input (a job) and output (a run).
 */

/** A target of training on the test set. At most one field is set. */
typedef struct ty_target {
    double accuracy; /* at least; 0: unset */
    double loss;     /* at most, mean over the test set; 0: unset */
} ty_target;
bool ty_target_is_set(const ty_target *target);
/**
 * "accuracy=0.88" (above 0, at most 1) or "loss=0.35" (above 0).
 * @return TY_EINVAL with the value found and the value expected
 */
ty_status ty_target_parse(const char *text, ty_target *out, ty_error *error) TY_MUST_CHECK;
bool ty_target_is_met(const ty_target *target, double accuracy, double loss);
/** The text that ty_target_parse reads; "none" if nothing is set. */
void ty_target_text(const ty_target *target, ty_text *text);

/**
 * Environment variable with the name of a folder. The worker creates empty files in it to signal
 * the program that started it:
 *   begun     all ranks have started; SIGUSR1 now makes them stop after the current step
 *   said      a failure message was printed
 *   diverged  that message was about a loss that is no longer finite
 *   kept      a failed or interrupted run wrote its measurements
 */
#define TY_WORKER_SIGNS "TRAINYARD_SIGNS"
#define TY_WORKER_BEGUN "begun"
#define TY_WORKER_SAID "said"
#define TY_WORKER_DIVERGED "diverged"
#define TY_WORKER_KEPT "kept"

/**
 * The secret of all ranks of a job, as an environment variable, or the file with it (mode 0600).
 * Ranks on several hosts reject peers that do not prove that they have it.
 */
#define TY_SECRET_VARIABLE "TRAINYARD_SECRET"
#define TY_SECRET_FILE_VARIABLE "TRAINYARD_SECRET_FILE"

/** Usual number of checkpoints kept: if the newest is damaged, a run resumes from the one before.
 */
#define TY_CHECKPOINTS_KEPT 2

typedef enum ty_job_kind {
    TY_JOB_TRAIN,   /* run the program */
    TY_JOB_PROFILE, /* measure the layers of the workload and the collectives between the started
                       ranks */
    TY_JOB_SAMPLES, /* measure the read rate of its samples, on one rank */
    TY_JOB_COUNT
} ty_job_kind;

/**
 * A self-contained job: all input of `trainyard-worker` except the data set. A job that measures
 * has any plan of the workload; that of a profile also lists the micro-batch sizes.
 */
typedef struct ty_job {
    ty_job_kind kind;
    ty_plan *plan;           /* owned */
    ty_program *program;     /* owned; NULL for a job that measures */
    char *backend;           /* "cpu", "cuda", "replay" */
    double **instruction_s;  /* replay: [pipeline rank][instruction of the program] seconds of those
                                that are not messages; NULL for others */
    char *precision;         /* see ty_job_precision; NULL: the plan's */
    char *data;              /* directory of the data set; NULL: its default one */
    char *output;            /* file to write: trainyard.run/2, trainyard.profile/1 or
                                trainyard.samples/1 */
    uint32_t steps;          /* train: optimizer steps */
    uint32_t warmup_steps;   /* not recorded in the timeline */
    uint32_t timeline_steps; /* recorded after the warm-up; at most steps - warmup_steps */
    ty_target until;         /* stop when it is met; none: never evaluate */
    uint32_t evaluate_every; /* steps between evaluations while there is a target */
    char *checkpoint;        /* folder for checkpoints; NULL: none */
    uint32_t checkpoint_every; /* steps between two; 0: only after the last step */
    double checkpoint_every_s; /* seconds between two; 0: not by time */
    uint32_t keep;             /* newest checkpoints that remain; 0: TY_CHECKPOINTS_KEPT */
    bool resume;               /* resume from the newest in `checkpoint` */
    char *init;                /* weights to start from, safetensors; NULL: the seed's */
    char *save_weights;        /* file for the weights at the end; NULL: none */
    uint32_t bad_samples;      /* unreadable samples that a stage replica may skip */
    bool deterministic;        /* bitwise reproducible on GPUs too, but slower */
    bool measure_distortion;   /* of gradients by lossy compressors, sampled */
    char *gradients;           /* file for all gradients after the first step (tests); NULL: none */
    uint32_t micro_batch_count; /* profile: sizes to time */
    uint32_t *micro_batches;
    bool is_kept; /* set after a run, never in a file: it failed or was interrupted, and the output
                     has the steps until then */
} ty_job;

/** Zeroed rows for `instruction_s`, in one block for ty_free; NULL if memory runs out. */
double **ty_job_times(const ty_program *program);

/** Whether the worker evaluates the test set: during training if there is a target, and at the end
 * if the plan has a variant to deploy. A replay does not. */
bool ty_job_evaluates(const ty_job *job);

/** Reads `trainyard.job/1`. Its plan and program have passed their checks. */
ty_status ty_job_from_json(const ty_json *object, ty_job **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_job_load(const char *path, ty_job **out, ty_error *error) TY_MUST_CHECK;
/** Writes a job whose plan and program pass their checks; rejects any other. */
ty_status ty_job_save(const ty_job *job, const char *path, ty_error *error) TY_MUST_CHECK;
/** The same as text, for other destinations. @param name its name in messages */
ty_status ty_job_to_text(const ty_job *job, const char *name, ty_text *text,
                         ty_error *error) TY_MUST_CHECK;
/** The precision of the passes: the job's, else the plan's. Parameters, gradients and optimizer
 * states are fp32 in all of them; tensors between stages have the plan's element_bytes.
 * @return TY_EPARSE: unknown; TY_EUNSUPPORTED for fp8 and fp4, which can be planned but not run
 */
ty_status ty_job_precision(const ty_job *job, ty_precision *out, ty_error *error) TY_MUST_CHECK;
void ty_job_free(ty_job *job);

typedef struct ty_evaluation {
    uint32_t step;                         /* steps done before it */
    double seconds;                        /* of training time, evaluations excluded */
    double accuracy, loss;                 /* on the test set */
    double variant_accuracy, variant_loss; /* of the run's variant, if it has one */
} ty_evaluation;

/**
 * The gradient of a batch, estimated from those of replicas and their mean (McCandlish et al.,
 * 2018). The noise scale, in samples, is variance / square, if square > 0: an estimate from few
 * steps may be less.
 */
typedef struct ty_gradient_noise {
    uint32_t steps;  /* steps that measured it; 0: none */
    double square;   /* |G|^2: squared norm of the mean gradient, averaged over those steps */
    double variance; /* of one sample's gradient, summed over parameters, likewise */
} ty_gradient_noise;

/** The estimate of one step. Single estimates scatter widely and may be negative. */
typedef struct ty_noise_sample {
    uint32_t step; /* counted from 0 */
    double square, variance;
} ty_noise_sample;

/** Load by other programs on the host of rank 0 during a run; steps 0: unknown. */
typedef struct ty_disturbance {
    uint32_t steps;           /* observed */
    uint32_t disturbed_steps; /* of these: preempted while others used TY_BUSY_SHARE of the cores */
    double switches;          /* involuntary context switches of all ranks */
    double others_share;      /* of the cores, by other processes and guests */
    double steal_share;       /* of the cores, by other guests of the hypervisor */
    double load;              /* load average of the last minute, at the end of the run */
    uint32_t timeline_step_count;
    uint32_t *timeline_steps; /* [timeline_step_count] of the timeline, disturbed, ascending */
} ty_disturbance;

/** A measurement: `trainyard.run/2`. */
typedef struct ty_run {
    ty_digest plan_digest;
    char *backend, *machine, *versions, *date;
    uint32_t stage_replica_count;
    uint32_t step_count;
    double *losses; /* [step_count]: mean over the global batch, before the step's update; NULL:
                       replay, no training */
    double wall_s;  /* all steps, evaluations excluded */
    ty_step_summary summary; /* of the timeline */
    /* [stage_replica_count]: peak resident set; with backend cuda, GPU memory allocated except by
     * its libraries. Of a stage replica's ranks, the one with the most. */
    uint64_t *peak_memory_bytes;
    ty_gradient_noise noise;     /* steps 0 without data parallelism */
    uint32_t noise_sample_count; /* noise.steps */
    ty_noise_sample *noise_samples;
    ty_target until; /* the target of the run; none: a fixed number of steps */
    /* The variant to deploy (ty_plan's deployment); bits 0: none. */
    ty_variant variant;
    double distortion; /* |Cg - g|^2 / |g|^2 of lossy compressors, mean over stage replicas and
                          steps */
    uint32_t distortion_steps; /* steps that measured it; 0: not requested */
    ty_disturbance disturbance;
    uint32_t evaluation_count;
    ty_evaluation *evaluations;
    ty_timeline *timeline; /* owned; NULL: none was recorded */
} ty_run;

/** The first evaluation that met the run's target; NULL: there is no target, or it was not met. */
const ty_evaluation *ty_run_reached(const ty_run *run);

/** Reads `trainyard.run/2`. The timeline, if any, is of the run's plan; ty_timeline_check checks
 * more, and needs that plan and its program. */
ty_status ty_run_from_json(const ty_json *object, ty_run **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_run_load(const char *path, ty_run **out, ty_error *error) TY_MUST_CHECK;
/** TY_EINVAL for an incomplete run; TY_ELIMIT if its losses are not finite: JSON has no NaN, and
 * such a run has diverged. */
ty_status ty_run_save(const ty_run *run, const char *path, ty_error *error) TY_MUST_CHECK;
void ty_run_free(ty_run *run);

#endif
