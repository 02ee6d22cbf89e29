/**
 * @file ty_run.h
 * What happened: timelines and runs.
 *
 *   timeline  when each instruction ran, predicted or measured
 *   run       a job for the worker, and what the worker measured
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
 * the simulator and the executor all write one, so predicted and measured can be laid over each
 * other instruction by instruction.
 */

typedef struct ty_event {
    uint32_t stage_replica;
    uint32_t step;         /* 0-based, of the recorded steps */
    uint32_t instruction;  /* index in the stage replica's stage program */
    double start_s, end_s; /* since the start of step 0; on waiting instructions (receive,
                              collective) start is when the stage replica was ready for it */
} ty_event;

typedef struct ty_timeline {
    ty_digest plan_digest;
    uint32_t stage_replica_count, step_count;
    uint64_t event_count, capacity;
    ty_event *
        events; /* ascending by step, stage replica, instruction once ty_timeline_sort was called */
} ty_timeline;

ty_status ty_timeline_new(const ty_plan *plan, uint32_t step_count, ty_timeline **out,
                          ty_error *error) TY_MUST_CHECK;
/** The same without the plan's digest, which takes long on large clusters: for timelines that are
 * summed up and never written. */
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
 * Every instruction of every stage replica and step exactly once, inside its stage replica's stage
 * program, with finite times and end_s >= start_s. Needs a sorted timeline.
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
 * What a step is made of; one definition for predicted and measured timelines.
 *
 * Step time: with several steps, (end of the last step - end of the first) / (steps - 1), the end
 * of a step being the last end of any compute instruction in it; with one step, its end. With more
 * than 8 steps the median of the differences of successive ends is taken instead, so that one
 * disturbed step does not count. Where steps overlap, as many steps at either end are left out as
 * the program runs ahead, down to two. Shares: each gap in a stage replica's compute stream is
 * charged to what the next compute instruction waited for last: a collective or its codec ->
 * exposed_collective; a load
 * -> input; a receive -> exposed transfer for as long as its send had started, bubble before that;
 * nothing -> bubble. They are shares of the time from the end of the first step to the end of the
 * last (with one step: from 0), over all stage replicas; what a stage replica has left at the end
 * of it is bubble.
 * @param program  one that passed ty_program_check
 * @param timeline sorted; checked here
 * @return TY_EPARSE when the timeline is not of this program, TY_EINVAL when its steps take no
 * time.
 */
ty_status ty_timeline_summarize(const ty_plan *plan, const ty_program *program,
                                const ty_timeline *timeline, ty_step_summary *out,
                                ty_error *error) TY_MUST_CHECK;

/** What the time of a stage replica's compute stream goes to, in more detail than a summary has. */
typedef enum ty_time_kind {
    TY_TIME_FORWARD,
    TY_TIME_BACKWARD,
    TY_TIME_RECOMPUTE,
    TY_TIME_OPTIMIZER,
    TY_TIME_TENSOR_EXCHANGE,   /* inside passes, among the ranks of a stage replica */
    TY_TIME_GRADIENT_EXCHANGE, /* compute waits for it, as for the kinds from here on */
    TY_TIME_WEIGHT_GATHER,
    TY_TIME_CODEC,
    TY_TIME_TRANSFER, /* of activations and their gradients, while it is being sent */
    TY_TIME_INPUT,
    TY_TIME_BUBBLE, /* another stage's compute */
    TY_TIME_KIND_COUNT
} ty_time_kind;
const char *ty_time_kind_name(ty_time_kind kind); /* "forward", "gradient_exchange" */

/**
 * Shares of the window that ty_timeline_summarize looks at, over all stage replicas; they add up to
 * 1, and those of a summary are sums of them.
 * @param costs  where a pass's exchange among ranks is known from (inner_s); NULL: it stays with
 * the passes
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
 * What goes to the worker (a job) and what comes back (a run).
 */

/** What training is to reach on the test set. At most one is asked for. */
typedef struct ty_target {
    double accuracy; /* at least; 0: not asked for */
    double loss;     /* at most, mean over the test set; 0: not asked for */
} ty_target;
bool ty_target_is_set(const ty_target *target);
/**
 * "accuracy=0.88" (above 0, at most 1) or "loss=0.35" (above 0).
 * @return TY_EINVAL with what was found and what was expected
 */
ty_status ty_target_parse(const char *text, ty_target *out, ty_error *error) TY_MUST_CHECK;
bool ty_target_is_met(const ty_target *target, double accuracy, double loss);
/** What ty_target_parse reads; "none" where nothing is asked for. */
void ty_target_text(const ty_target *target, ty_text *text);

/**
 * Who starts the worker names a folder in this variable of its environment; there the worker leaves
 * empty files as signs: that all stage replicas have begun and take SIGUSR1 as a request to stop
 * after the step under way, that a message about a failure was printed, that it was one about a
 * loss that is no finite number any more, and that a run which failed or was interrupted wrote what
 * it had measured.
 */
#define TY_WORKER_SIGNS "TRAINYARD_SIGNS"
#define TY_WORKER_BEGUN "begun"
#define TY_WORKER_SAID "said"
#define TY_WORKER_DIVERGED "diverged"
#define TY_WORKER_KEPT "kept"

/**
 * The secret that all stage replicas of a job have, in their environment, or the file that it is in
 * (mode 0600): stage replicas of several hosts refuse who does not prove to have it.
 */
#define TY_SECRET_VARIABLE "TRAINYARD_SECRET"
#define TY_SECRET_FILE_VARIABLE "TRAINYARD_SECRET_FILE"

typedef enum ty_job_kind {
    TY_JOB_TRAIN,   /* run the program */
    TY_JOB_PROFILE, /* measure the layers of the workload and the collectives between the stage
                       replicas started */
    TY_JOB_SAMPLES, /* measure how fast its samples are read, on one stage replica */
    TY_JOB_COUNT
} ty_job_kind;

/**
 * A self-contained job: everything `trainyard-worker` needs but the data set. For what measures the
 * plan is any plan of the workload; a profile's micro-batch sizes are listed beside it.
 */
typedef struct ty_job {
    ty_job_kind kind;
    ty_plan *plan;             /* owned */
    ty_program *program;       /* owned; NULL for a job that measures */
    char *backend;             /* "cpu", "cuda", "replay" */
    double **instruction_s;    /* replay: [position][instruction] how long each takes that is no
                                  message, as the program has them; NULL for others */
    char *precision;           /* ty_job_precision reads it; NULL: the plan's */
    char *data;                /* directory of the data set; NULL: its usual place */
    char *output;              /* file to write: trainyard.run/2, trainyard.profile/1 or
                                  trainyard.samples/1 */
    uint32_t steps;            /* train: optimizer steps */
    uint32_t warmup_steps;     /* not recorded in the timeline */
    uint32_t timeline_steps;   /* recorded after the warm-up; at most steps - warmup_steps */
    ty_target until;           /* stop once it is met; none: never evaluate */
    uint32_t evaluate_every;   /* steps between evaluations while there is a target */
    char *checkpoint;          /* folder for the state of the run; NULL: none is kept */
    uint32_t checkpoint_every; /* steps between two; 0: only behind the last step */
    bool resume;               /* go on from the newest in `checkpoint` */
    char *init;                /* weights to start from, safetensors; NULL: the seed's */
    char *save_weights;        /* file for the weights at the end; NULL: none */
    uint32_t bad_samples;      /* that a stage replica may skip because they cannot be read */
    bool deterministic;        /* the same job gives the same bits on GPUs too, more slowly */
    bool measure_distortion;   /* what lossy compressors lose of the gradients, now and then */
    char *gradients;           /* file for all gradients after the first step (tests); NULL: none */
    uint32_t micro_batch_count; /* profile: sizes to time */
    uint32_t *micro_batches;
    bool is_kept; /* of who ran it, and in no file: it failed or was interrupted, and the output is
                     of the steps until then */
} ty_job;

/** Rows of zeros for `instruction_s`, in one block for ty_free; NULL when memory ran out. */
double **ty_job_times(const ty_program *program);

/** Whether the test set is looked at: on the way to a target, and at the end where the plan says
 * as which variant the network is deployed. Not by who only plays the plan. */
bool ty_job_evaluates(const ty_job *job);

/** Reads `trainyard.job/1`. Its plan and program have passed their checks. */
ty_status ty_job_from_json(const ty_json *object, ty_job **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_job_load(const char *path, ty_job **out, ty_error *error) TY_MUST_CHECK;
/** Writes a job whose plan and program pass their checks; any other is refused. */
ty_status ty_job_save(const ty_job *job, const char *path, ty_error *error) TY_MUST_CHECK;
/** The same as text, for those who put it elsewhere. @param name what messages call it */
ty_status ty_job_to_text(const ty_job *job, const char *name, ty_text *text,
                         ty_error *error) TY_MUST_CHECK;
/** What passes compute in: as asked, else the plan's. Parameters, gradients and optimizer state are
 * fp32 in all of them; what crosses between stages is of the plan's element_bytes.
 * @return TY_EPARSE: none there is; TY_EUNSUPPORTED for fp8 and fp4, which are planned and not run
 */
ty_status ty_job_precision(const ty_job *job, ty_precision *out, ty_error *error) TY_MUST_CHECK;
void ty_job_free(ty_job *job);

typedef struct ty_evaluation {
    uint32_t step;                         /* steps done before it */
    double seconds;                        /* of training time, evaluations excluded */
    double accuracy, loss;                 /* on the test set */
    double variant_accuracy, variant_loss; /* the same of the run's variant, where it has one */
} ty_evaluation;

/**
 * The gradient of a batch, estimated from those of replicas and their mean (McCandlish et al.,
 * 2018). The noise scale, in samples, is variance / square, where square > 0: few steps may
 * estimate it as less.
 */
typedef struct ty_gradient_noise {
    uint32_t steps;  /* it was measured in; 0: none */
    double square;   /* |G|^2: squared norm of the mean gradient, averaged over those steps */
    double variance; /* of one sample's gradient, summed over parameters, likewise */
} ty_gradient_noise;

/** One of the steps it was measured in. Single estimates scatter widely and may be negative. */
typedef struct ty_noise_sample {
    uint32_t step; /* counted from 0 */
    double square, variance;
} ty_noise_sample;

/** What others on the host of stage replica 0 took while a run was under way; steps 0: nothing is
 * known. */
typedef struct ty_disturbance {
    uint32_t steps;           /* that were looked at */
    uint32_t disturbed_steps; /* of them: put aside while others took TY_BUSY_SHARE of the cores */
    double switches;          /* involuntary ones of all stage replicas */
    double others_share;      /* of the cores, by other processes and guests */
    double steal_share;       /* of the cores, by other guests of the hypervisor */
    double load;              /* of the last minute, when the run ended */
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
                       nothing was trained, only played ("replay") */
    double wall_s;  /* all steps, evaluations excluded */
    ty_step_summary summary; /* of the timeline */
    /* [rank_count]: resident set at its highest; of backend cuda what was taken of the GPU's
     * memory, but by its libraries. Of several ranks that of the rank with most. */
    uint64_t *peak_memory_bytes;
    ty_gradient_noise noise;     /* steps 0 where nothing is data parallel */
    uint32_t noise_sample_count; /* noise.steps */
    ty_noise_sample *noise_samples;
    ty_target until; /* what the run was to reach; none: so many steps */
    /* As which what was trained is deployed (ty_plan's deployment); bits 0: nothing is said. */
    ty_variant variant;
    double distortion; /* |Cg - g|^2 / |g|^2 of lossy compressors, mean over stage replicas and
                          steps */
    uint32_t distortion_steps; /* it was measured in; 0: it was not asked for */
    ty_disturbance disturbance;
    uint32_t evaluation_count;
    ty_evaluation *evaluations;
    ty_timeline *timeline; /* owned; NULL: none was recorded */
} ty_run;

/** The first evaluation that met the run's target; NULL: it had none, or none did. */
const ty_evaluation *ty_run_reached(const ty_run *run);

/** Reads `trainyard.run/2`. The timeline, if any, is of the run's plan; only with that plan and its
 *  program at hand can ty_timeline_check tell more. */
ty_status ty_run_from_json(const ty_json *object, ty_run **out, ty_error *error) TY_MUST_CHECK;
ty_status ty_run_load(const char *path, ty_run **out, ty_error *error) TY_MUST_CHECK;
/** TY_EINVAL for a run that is incomplete; TY_ELIMIT for one whose losses are not finite: JSON has
 * no NaN, and such a run has diverged. */
ty_status ty_run_save(const ty_run *run, const char *path, ty_error *error) TY_MUST_CHECK;
void ty_run_free(ty_run *run);

#endif
