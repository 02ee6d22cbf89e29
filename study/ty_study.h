/**
 * @file ty_study.h
 * Studies made of many planner and simulator calls: the best plan by an objective, what-if sweeps,
 * profiles and calibration of this machine, long runs under failures, and the documents that a
 * report adds to a plan. The rest of the module is ty_convergence.h, ty_economics.h and
 * ty_validate.h.
 *
 *     ty_question question = {.workload = "vgg16", .cluster = "4x p100-server", .seed = 1};
 *     const char *hosts[] = {"1", "2", "4"};
 *     ty_whatif_axis axis = {"hosts", hosts, 3};
 *     TY_CHECK(ty_whatif_new(&question, &axis, 1, &whatif, error), status, cleanup);
 *     TY_CHECK(ty_whatif_run(whatif, NULL, NULL, NULL, error), status, cleanup);
 *     for (uint32_t row = 0; row < ty_whatif_row_count(whatif); row++)
 *         puts(ty_whatif_row(whatif, row));
 *
 * Nothing here prints. The members of a question have the names and the syntax of command line
 * options. Messages name the options: "--fix pp: ..." is about the member `fix`.
 */
#ifndef TY_STUDY_H
#define TY_STUDY_H

#include "ty_convergence.h"
#include "ty_core.h"
#include "ty_economics.h"
#include "ty_evidence.h"
#include "ty_planner.h"
#include "ty_simulate.h"
#include "ty_topologies.h"
#include "ty_validate.h"
#include "ty_workloads.h"

/** Callbacks of the caller while it waits for an answer. NULL, like {0}, never stops and takes no
 * notes. */
typedef struct ty_watch {
    bool (*should_stop)(void *context); /* polled; NULL: never */
    /* Polled after should_stop returned true, while the current work ends in order and is saved.
     * True stops at once and loses unsaved work, as on a user's second interrupt; NULL: never. */
    bool (*should_stop_now)(void *context);
    /* A progress line without newline; NULL: none. Workers run with --quiet if it is set, else they
     * print their progress on the stderr of this process. */
    void (*note)(void *context, const char *line);
    void *context;
} ty_watch;

/* ---- A question, and the best plan for it ------------------------------------------------ */

/** Texts are borrowed; NULL: not specified. */
typedef struct ty_question {
    const char *workload, *cluster; /* as for ty_workload_open and ty_cluster_open, or local:N and
                                       the like: N ranks on this machine */
    ty_workload **given; /* an open workload that replaces `workload`; the first ty_question_open
                            takes it over; NULL: none */
    const char *profile; /* a file; NULL: data sheets, or a measurement if the cluster is local */
    const char *profile_device; /* "v100-sxm2-16gb": device of the measured times in the workload's
                                   file; NULL: the cluster's */
    const char *stack;          /* framework, as for ty_stack_open; NULL: ty_stack_open_default */
    const char *fix;            /* "pp=2,micro_batch=4": pinned, not searched */
    /* "tp=8,pp=16; tp=8,pp=8,zero=1": layouts in the syntax of `fix`, which does not apply to them;
     * they are added to the candidates with their slowdown; NULL: none */
    const char *against;
    const char *input;     /* "data=1.3TB,decode=250": as for ty_input_read */
    const char *budget;    /* "phone", "memory=100KB": limits of the deployment device, as for
                              ty_budget_open; NULL: none */
    const char *precision; /* fp32, bf16, fp16; NULL: bf16 for language models if it is faster, else
                              the workload's */
    const char *optimizer; /* as for ty_optimizer_set; NULL: the workload's */
    const char *system;    /* plans instead of the search */
    const char *objective; /* throughput, time-to-target, cost, energy */
    const char *task;      /* as for ty_convergence_open; NULL: that of the workload */
    double learning_rate;  /* 0: by the rule of `task` if that is a calibration */
    uint32_t global_batch; /* 0: the workload's, or chosen by the objective */
    uint64_t sequence;     /* tokens per sample; 0: the workload's */
    uint32_t image_height, image_width; /* pixels per sample; 0: the workload's */
    ty_cost_question cost;              /* a length fills the plan's `cost` */
    uint64_t seed;
    uint32_t top;     /* simulations at most (simulate_top); 0: none, or TY_USUAL_TOP in
                         ty_question_answer */
    bool no_simulate; /* none, whatever `top` says */
    bool no_interval; /* the plan has no interval and no nearest runs (ty_plan_judge) */
    bool allow_lossy;
    /* `cluster` if it is open already; it is shared. NULL: opened by its text */
    const ty_cluster *open_cluster;
    bool is_fastest; /* the fastest plan by any margin, not the simplest one within
                        TY_USUAL_TOLERANCE; systems always return the fastest */
    /* "4%": share of every device's usable memory that stays free; NULL: TY_USUAL_MEMORY_RESERVE,
     * or none if a layout pinned with `fix` fits only without it */
    const char *memory_reserve;
} ty_question;

/** Inputs that a question opens. */
typedef struct ty_question_inputs {
    ty_workload *workload;
    ty_cluster *cluster;
    ty_profile *profile; /* NULL: data sheets */
    ty_stack *stack;
} ty_question_inputs;
/**
 * Opens workload, cluster and profile. If replicas take local steps, training runs on the
 * deployment devices, so the budget's memory limits every device of the cluster. A local cluster
 * without a profile is measured and cached in the user's cache directory; an invalid question is
 * refused before.
 * @return the status of the input that failed to open; TY_EPARSE for a profile of other layers;
 *         before measuring, also the errors that ty_plan_search returns without a search
 */
ty_status ty_question_open(const ty_question *question, const ty_watch *watch,
                           ty_question_inputs *out, ty_error *error) TY_MUST_CHECK;
void ty_question_inputs_clear(ty_question_inputs *inputs);
/** The question's memory reserve as a share. @return TY_EINVAL if it is no percentage */
ty_status ty_question_memory_reserve(const ty_question *question, double *out,
                                     ty_error *error) TY_MUST_CHECK;

/**
 * The best plan for a question: by the planner's search, by a system, or by an objective that
 * includes the steps to the target. Such an objective also tries global batches from an eighth to
 * eight times the workload's, unless one is specified. When stopped, returns the best so far.
 * @return as ty_plan_search; TY_EINVAL for an unknown word
 */
ty_status ty_question_plan(const ty_question *question, const ty_question_inputs *inputs,
                           const ty_watch *watch, ty_plan **out, ty_error *error) TY_MUST_CHECK;

/**
 * Finds uneven splits in the plan of a question. Batch over devices: a nearby batch gives more than
 * TY_UNEVEN_SHARE more samples/s. Blocks over stages with equal replicas: the mean stage computes
 * that much less than the slowest. The planner estimates, under the same pins, nearby batches that
 * are multiples of the device count or of a divisor of it. If `pp` is pinned, it also tries nearby
 * numbers of stages that divide the blocks. Skipped with an objective, which chooses the batch
 * itself, and above TY_MOST_DEVICES_FOR_UNEVEN devices, where each question takes seconds.
 * @param plan ty_question_plan's; gets its `uneven`
 */
ty_status ty_question_imbalance(const ty_question *question, const ty_question_inputs *inputs,
                                const ty_watch *watch, ty_plan *plan,
                                ty_error *error) TY_MUST_CHECK;
#define TY_MOST_DEVICES_FOR_UNEVEN 16384

/** Defaults of the command line. */
#define TY_USUAL_TOP 5
#define TY_USUAL_SEED 1

/**
 * The plan that `trainyard plan` prints for the options of the same names:
 *
 *     ty_question question = {.workload = "gpt2", .cluster = "2x dgx-a100"};
 *     TY_CHECK(ty_question_answer(&question, NULL, &plan, error), status, cleanup);
 *
 * Every member may be 0: precision, framework, batch and seed are then those of the command line.
 * Opens the question, plans it and finds uneven splits.
 * @return as ty_question_open and ty_question_plan
 */
ty_status ty_question_answer(const ty_question *question, const ty_watch *watch, ty_plan **out,
                             ty_error *error) TY_MUST_CHECK;

/** A suggestion: a change that gives an infeasible question a plan. */
typedef struct ty_suggestion {
    char *words;   /* "without tp=1 it fits"; NULL: no change that was tried gives a plan */
    char *cluster; /* the question's, or a larger one */
    ty_plan *plan; /* the answer, estimated */
} ty_suggestion;
/**
 * Suggests a change if ty_question_plan returns TY_EINFEASIBLE: the first one for which the planner
 * finds a plan. The search has tried all open choices, so this drops pins: one at a time in the
 * order recompute, zero, sp, micro_batch and so on, then several. Next it drops the system, then
 * replaces fp32 by bf16. Then it tries the next global batch that the devices divide, and halves of
 * it. Last it doubles the hosts repeatedly, with the pins, then without. If parameters, gradients
 * and optimizer states alone do not fit, it only tries precision and hosts.
 * @param out [out] clear with ty_suggestion_clear, also after a failure
 * @return TY_EINTERRUPTED if the watch stops it; TY_ENOMEM
 */
ty_status ty_question_suggestion(const ty_question *question, const ty_question_inputs *inputs,
                                 const ty_watch *watch, ty_suggestion *out,
                                 ty_error *error) TY_MUST_CHECK;
void ty_suggestion_clear(ty_suggestion *suggestion);

/** A plan with its program, cluster and costs. */
typedef struct ty_plan_inputs {
    ty_plan *plan;
    ty_program *program;
    ty_cluster *cluster;
    ty_costs *costs;
} ty_plan_inputs;
/**
 * Reads a plan. If its estimated step differs from the prediction in the file (written by another
 * version, or edited), the watch gets a note with both.
 * @param stack framework to cost it with, a name or a file; NULL: its own
 */
ty_status ty_plan_inputs_load(const char *path, const char *stack, const ty_watch *watch,
                              ty_plan_inputs *out, ty_error *error) TY_MUST_CHECK;
/** The note of ty_plan_inputs_load. @param name of the file */
ty_status ty_plan_inputs_compare(const ty_plan_inputs *inputs, const char *name,
                                 const ty_watch *watch, ty_error *error) TY_MUST_CHECK;
/** Takes ownership of the plan, also on failure. */
ty_status ty_plan_inputs_from(ty_plan *plan, ty_plan_inputs *out, ty_error *error) TY_MUST_CHECK;
/** Converts a plan for another framework to Trainyard's worker: costs, memory and prediction become
 * the worker's. */
ty_status ty_plan_inputs_of_worker(ty_plan_inputs *inputs, ty_error *error) TY_MUST_CHECK;
void ty_plan_inputs_clear(ty_plan_inputs *inputs);

/**
 * ty_score_plan with a task and the staleness of the plan's schedule.
 * @param task as for ty_convergence_open; NULL: that of the plan's workload, if there is one
 * @param cost NULL: the catalogue's prices, and no length
 * @param out  [out] clear with ty_score_clear, also after a failure
 */
ty_status ty_plan_score(const ty_plan *plan, const ty_cluster *cluster, const char *task,
                        const ty_cost_question *cost, ty_score *out, ty_error *error) TY_MUST_CHECK;

/* ---- What if ----------------------------------------------------------------------------- */

/**
 * A key and its values. Keys:
 *   workload, cluster, batch, seq,
 *   system, stack, precision, optimizer, objective, task    the member of that name
 *   workload.KEY                          KEY=VALUE after the workload: "gpt2 sequence=512"
 *   hosts                                 N of "Nx HOST", or of "host:N"
 *   pod, leaf, host, gpu, oversub         that word of a described fabric
 *   device                                the "@DEVICE" of a described fabric
 *   bandwidth.LINK, latency.LINK          of every link of that type; LINK may be "all"
 *   memory, compute, memory_bandwidth     of every device
 *   price, power, failure_rate            as in ty_cost_question
 *   the keys of `fix`                     tp, pp, dp, zero, micro_batch, schedule, ...
 * Figures of links and devices are quantities ("100Gb/s", "5us", "80GiB") or factors ("x0.5").
 */
typedef struct ty_whatif_axis {
    const char *key;
    const char *const *values; /* [count] */
    uint32_t count;
} ty_whatif_axis;

/** The best plans for all combinations, one per row; the last axis changes fastest. */
typedef struct ty_whatif ty_whatif;

/**
 * Checks every value, so that typing errors show before work starts. Question and axes are
 * borrowed.
 * @return TY_EINVAL: no axis, unknown key (names the nearest), invalid value, or more than 100,000
 *         combinations
 */
ty_status ty_whatif_new(const ty_question *question, const ty_whatif_axis *axes,
                        uint32_t axis_count, ty_whatif **out, ty_error *error) TY_MUST_CHECK;
void ty_whatif_free(ty_whatif *whatif);
/** Takes over the rows of a document of the same question. @return TY_EPARSE: of another question
 */
ty_status ty_whatif_resume(ty_whatif *whatif, const char *path, ty_error *error) TY_MUST_CHECK;

/** Called when a row is done, to save it. */
typedef ty_status ty_whatif_taken(void *context, const ty_whatif *whatif, ty_error *error);
/**
 * Computes the missing rows, each in its own process, one process per core. Measurements of this
 * machine run one at a time.
 * @param taken called after each row; NULL: nothing is saved
 * @return the first failure of any row. "Does not fit" and "makes no sense" are rows, not failures
 */
ty_status ty_whatif_run(ty_whatif *whatif, const ty_watch *watch, ty_whatif_taken *taken,
                        void *context, ty_error *error) TY_MUST_CHECK;

uint32_t ty_whatif_row_count(const ty_whatif *whatif);
uint32_t ty_whatif_done_count(const ty_whatif *whatif);
/** A JSON object in one line (docs/schemas/whatif.json): its values and the plan's figures, or the
 * "reason" for no plan; NULL: not done yet. Valid as long as `whatif`. */
const char *ty_whatif_row(const ty_whatif *whatif, uint32_t row);
const char *ty_whatif_value(const ty_whatif *whatif, uint32_t row, uint32_t axis);
/** `trainyard.whatif/1`: the question, the axes, the rows that are done. */
void ty_whatif_to_json(const ty_whatif *whatif, ty_json_writer *writer);

/* ---- This machine ------------------------------------------------------------------------ */

/**
 * Path of trainyard-worker: $TRAINYARD_WORKER, else next to this program, else in
 * ../libexec/trainyard.
 * @param out [out, PATH_MAX]
 * @return TY_EIO: not found; TY_EUNSUPPORTED: not found, and this build leaves it out
 */
ty_status ty_worker_path(char *out, ty_error *error) TY_MUST_CHECK;

/**
 * Saves the job to a temporary file, starts `ranks` local workers under mpirun and waits. When
 * `should_stop` returns true, the workers finish the current step, save it if the job has a
 * checkpoint, and write their measurements (`is_kept`). They are interrupted after 120 s, when
 * `should_stop_now` returns true, or if they had not begun, and killed 10 s later. If mpirun hangs
 * for $TRAINYARD_START_SECONDS (default 30), all are killed, and the error lists the limits of this
 * process. The workers run in their own network namespace with only a loopback, if the system
 * allows it and $TRAINYARD_NETWORK is not "host". The worker is that of ty_worker_path.
 * @return TY_OK, TY_EINTERRUPTED; TY_EUNSUPPORTED, before any is started: too few cores or too
 *         little memory for `ranks`; TY_ELIMIT if the loss diverged; else the status of the
 *         worker's exit code, with an empty message if the worker printed the reason on stderr
 */
ty_status ty_worker_run(ty_job *job, uint32_t ranks, const ty_watch *watch,
                        ty_error *error) TY_MUST_CHECK;
/** Creates an empty private file in $TMPDIR (or /tmp); the caller unlinks it.
 *  @param path [out] "" on failure */
ty_status ty_scratch_file(const char *name, char *path, size_t room, ty_error *error) TY_MUST_CHECK;

/** Options of a training run. */
typedef struct ty_training {
    const char *backend;     /* NULL: cpu */
    const char *precision;   /* NULL: the plan's */
    const char *data;        /* NULL: the workload's */
    uint32_t steps;          /* 0: 60, or with a target at most 100,000 */
    ty_target until;         /* not set: all steps run */
    uint32_t evaluate_every; /* steps; with a target; 0: 50 */
    const char *checkpoint;  /* folder; NULL: none */
    uint32_t checkpoint_every;
    double checkpoint_every_s; /* as in ty_job */
    uint32_t keep;             /* as in ty_job */
    bool resume;
    const char *init;         /* weights to start from, safetensors; NULL: the seed's */
    bool deterministic;       /* as in ty_job */
    const char *save_weights; /* file written at the end; NULL: none */
    uint32_t bad_samples;     /* unreadable samples that a rank may skip */
} ty_training;
/** The job of a training. Takes plan and program out of the inputs, also on failure.
 *  @param output where the run is written */
ty_status ty_training_job(const ty_training *training, ty_plan_inputs *inputs, const char *output,
                          ty_job **out, ty_error *error) TY_MUST_CHECK;

/**
 * Measures a profile of this machine for the workload, with `ranks` concurrent ranks.
 * @param backend       "cpu" or "cuda"
 * @param precision     NULL: fp32
 * @param micro_batches [micro_batch_count] sizes to time, ascending
 */
ty_status ty_profile_measure(const ty_workload *workload, const char *backend,
                             const char *precision, uint32_t ranks, const uint32_t *micro_batches,
                             uint32_t micro_batch_count, const ty_watch *watch, ty_profile **out,
                             ty_error *error) TY_MUST_CHECK;
/**
 * Measures how fast the worker on one rank reads the training part of a data set, by threads.
 * @param data        path of the data set
 * @param bad_samples unreadable samples that may be skipped
 */
ty_status ty_samples_measure(const ty_workload *workload, const char *data, uint32_t bad_samples,
                             const ty_watch *watch, ty_samples **out,
                             ty_error *error) TY_MUST_CHECK;
/**
 * As ty_profile_measure on the CPU with the usual sizes for a batch, read from
 * $XDG_CACHE_HOME/trainyard (or ~/.cache/trainyard) if measured before. Without such a folder,
 * which the user must own, nothing is cached, and the watch gets a note.
 * @param global_batch 0: the workload's
 */
ty_status ty_profile_measure_cached(const ty_workload *workload, uint32_t ranks,
                                    uint32_t global_batch, const ty_watch *watch, ty_profile **out,
                                    ty_error *error) TY_MUST_CHECK;

/* ---- Calibrating convergence by short trainings ------------------------------------------ */

typedef struct ty_calibration_question {
    ty_question question;               /* on two or more local ranks; `seed` is the first run's */
    ty_training training;               /* with a target */
    uint32_t runs;                      /* runs to the target, each with its own seed; 0: 1 */
    const ty_compression *compressions; /* [compression_count] to measure; none of them "none" */
    uint32_t compression_count;
} ty_calibration_question;

#define TY_CALIBRATION_POWERS 3 /* batches from an eighth to eight times the calibrated one */
#define TY_CALIBRATION_PHASES 4

typedef struct ty_calibration_batch {
    uint32_t batch;
    double learning_rate, steps, step_time_s;
    bool is_beyond_limit; /* above the largest batch for which the learning rate rule is known to
                             hold */
} ty_calibration_batch;

/** Convergence of a task, measured by short trainings. */
typedef struct ty_calibration {
    ty_convergence *task;
    uint32_t ranks, batch, run_count;
    ty_run **runs;            /* [run_count] to the target */
    uint64_t *seeds;          /* [run_count] */
    double *steps;            /* [run_count] steps to the target */
    double step_time_s;       /* measured, their mean */
    ty_noise_sample *samples; /* [sample_count] of all runs, ordered by their place in the run */
    uint32_t sample_count;
    /* Reason for no measurement, or "": */
    char staleness_note[sizeof((ty_error *)0)->message];
    char temperature_note[sizeof((ty_error *)0)->message];
    ty_text notes; /* one line per missing run or measurement */
    ty_calibration_batch batches[2 * TY_CALIBRATION_POWERS + 1]; /* that have a plan */
    uint32_t batch_count, best;               /* the batch with the least time to the target */
    uint32_t schedule[TY_CALIBRATION_PHASES]; /* a batch for each quarter of the training */
} ty_calibration;

/**
 * Data-parallel runs to the target, one per seed, give the number of steps and the gradient noise.
 * The first steps of each run, repeated with each compressor and with stale gradients, give the
 * cost of compression and staleness. The first half at half the learning rate gives the cost of
 * noise at the full rate. docs/design/convergence-model.md has the method.
 * @param out [out] clear with ty_calibration_clear, also after a failure
 * Runs that diverge or miss the target, and measurements that fail, are left out with a note. Fewer
 * estimates widen the intervals.
 * @return TY_ELIMIT: no run reached the target; TY_EINVAL: not local, a single rank, no target
 */
ty_status ty_calibrate(const ty_calibration_question *question, const ty_watch *watch,
                       ty_calibration *out, ty_error *error) TY_MUST_CHECK;
void ty_calibration_clear(ty_calibration *calibration);
/** `trainyard.calibration/1` */
void ty_calibration_to_json(const ty_calibration *calibration, ty_json_writer *writer);

/* ---- A long run under failures ----------------------------------------------------------- */

typedef enum ty_fault_kind { TY_FAULT_DEVICE, TY_FAULT_HOST, TY_FAULT_LINK } ty_fault_kind;

/** A fault at a known time. */
typedef struct ty_fault {
    ty_fault_kind kind;
    uint32_t index; /* of the device, host or link in the cluster */
    double time_s;
    const char *name; /* for messages; borrowed */
} ty_fault;

typedef struct ty_forecast_question {
    const ty_fault *faults; /* [fault_count], ascending by time */
    uint32_t fault_count;
    bool is_random;  /* further faults at the rates of the catalogue */
    bool is_elastic; /* the run continues with fewer replicas; else spares replace failed ones */
    double horizon_s, repair_s;   /* > 0, >= 0 */
    double checkpoint_interval_s; /* of work; 0: the best one */
    double restart_s;             /* NaN: the catalogue's */
    uint32_t seeds;               /* 0: 1 */
    uint64_t seed;                /* of the first */
} ty_forecast_question;
/** A horizon of thirty days, one day per repair, no faults. */
ty_forecast_question ty_forecast_question_default(void);

/** Forecast of a long run of a plan. */
typedef struct ty_forecast {
    ty_endurance_question question;
    ty_endurance endurance;         /* of the first seed */
    double p50_goodput, p5_goodput; /* over all seeds: reached by 50 %, by 95 % */
    uint32_t seeds;
    ty_known_fault *known; /* [question.known_count] */
    char **names;          /* [question.known_count] */
    double *rates;         /* [question.rate_count] */
} ty_forecast;
/**
 * Replays the run; simulates its steps on the remaining cluster and replicas.
 * @param how         options with which the plan's own step was simulated
 * @param step_time_s of the plan without faults
 * @param out         [out] clear with ty_forecast_clear, also after a failure
 */
ty_status ty_forecast_find(const ty_plan_inputs *inputs, const ty_simulate_options *how,
                           double step_time_s, const ty_forecast_question *question,
                           ty_forecast *out, ty_error *error) TY_MUST_CHECK;
void ty_forecast_clear(ty_forecast *forecast);
/** The member "endurance" of a `trainyard.simulation/2`. */
void ty_forecast_to_json(const ty_forecast *forecast, ty_json_writer *writer);

/** For qsort: doubles, ascending. */
int ty_compare_numbers(const void *left, const void *right);

/* ---- Documents that a report adds to a plan ----------------------------------------- */

/** Compressors to compare with no compression, NULL at the end. */
extern const char *const ty_shown_compressions[];
/** `trainyard.compression/1`: seconds of gradient all-reduces per step over bandwidth, by
 * compressor.
 *  @param out [out] NULL: no gradient communication */
ty_status ty_plan_compression_document(const ty_plan_inputs *inputs, ty_json_document **out,
                                       ty_error *error) TY_MUST_CHECK;
/** `trainyard.score/1` of ty_plan_score. @param out [out] NULL: the plan has no prediction */
ty_status ty_plan_score_document(const ty_plan_inputs *inputs, const char *task,
                                 ty_json_document **out, ty_error *error) TY_MUST_CHECK;
/** `trainyard.simulation/2` with the memory over time of one stage replica per pipeline rank.
 *  @param out [out] NULL: the plan has no memory figures */
ty_status ty_plan_memory_document(const ty_plan_inputs *inputs, const ty_timeline *timeline,
                                  ty_json_document **out, ty_error *error) TY_MUST_CHECK;

#endif
