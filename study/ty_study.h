/**
 * @file ty_study.h
 * What asks many questions of the planner and the simulator: the best plan by an objective, what
 * changes if something else does, measuring and calibrating this machine, a long run under
 * failures, and the documents that a report shows beside a plan. ty_convergence.h, ty_economics.h
 * and ty_validate.h are the rest of the module.
 *
 *     ty_question question = {.workload = "vgg16", .cluster = "4x p100-server", .seed = 1};
 *     const char *hosts[] = {"1", "2", "4"};
 *     ty_whatif_axis axis = {"hosts", hosts, 3};
 *     TY_CHECK(ty_whatif_new(&question, &axis, 1, &whatif, error), status, cleanup);
 *     TY_CHECK(ty_whatif_run(whatif, NULL, NULL, NULL, error), status, cleanup);
 *     for (uint32_t row = 0; row < ty_whatif_row_count(whatif); row++)
 *         puts(ty_whatif_row(whatif, row));
 *
 * Nothing here prints. A question is given in the words of the command line, whose options have the
 * names of its members; messages name them so: "--fix pp: ..." is about the member `fix`.
 */
#ifndef TY_STUDY_H
#define TY_STUDY_H

#include "ty_convergence.h"
#include "ty_core.h"
#include "ty_economics.h"
#include "ty_planner.h"
#include "ty_simulate.h"
#include "ty_topologies.h"
#include "ty_validate.h"
#include "ty_workloads.h"

/** Who waits for an answer. Everywhere NULL, as {0}, is somebody who neither stops nor listens. */
typedef struct ty_watch {
    bool (*should_stop)(void *context); /* polled; NULL: never */
    /* Polled once should_stop has said so, where what is under way is ended with care and saved: a
     * user who interrupts a second time wants it over at once, whatever is lost; NULL: never. */
    bool (*should_stop_now)(void *context);
    /* A line, without its end, on what goes on beside the answer; NULL: nobody reads. Workers are
     * started with --quiet then, else they tell their progress on the stderr of this process. */
    void (*note)(void *context, const char *line);
    void *context;
} ty_watch;

/* ---- A question, and the best plan for it ------------------------------------------------ */

/** Texts are borrowed; those that are NULL were not asked for. */
typedef struct ty_question {
    const char *workload, *cluster; /* as ty_workload_open and ty_cluster_open have them, or local:N
                                       and the like: N ranks of this machine */
    ty_workload **given;            /* one that is there already, in place of `workload`: the first
                                       ty_question_open takes it over; NULL: none */
    const char *profile;            /* a file; NULL: data sheets, or what is measured first where
                                       the cluster is local */
    const char *profile_device; /* "v100-sxm2-16gb": on which the times in the workload's own file
                                   were measured, as one line of a cluster has it behind "@"; NULL:
                                   on the cluster's */
    const char *stack; /* that runs it, as ty_stack_open has it; NULL: ty_stack_open_default */
    const char *fix;   /* "pp=2,micro_batch=4": what is not searched */
    /* "tp=8,pp=16; tp=8,pp=8,zero=1": layouts in the words of `fix`, which stands behind none of
     * them, that are to be among the candidates with what they are slower by; NULL: none */
    const char *against;
    const char *input;     /* "data=1.3TB,decode=250": as ty_input_read has it */
    const char *budget;    /* "phone", "memory=100KB": as ty_budget_open has it, of the device that
                              what is trained is for; NULL: nothing is said of one */
    const char *precision; /* fp32, bf16, fp16; NULL: bf16 for language models where it
                              pays, else the workload's */
    const char *system;    /* that plans in the place of the search */
    const char *objective; /* throughput, time-to-target, cost, energy */
    const char *task;      /* as ty_convergence_open has it; NULL: that of the workload */
    double learning_rate;  /* 0: by the rule of `task` where that is a calibration */
    uint32_t global_batch; /* 0: the workload's, or what the objective finds */
    uint64_t sequence;     /* tokens a sample; 0: the workload's */
    uint32_t image_height, image_width; /* pixels a sample; 0: the workload's */
    ty_cost_question cost;              /* a length fills the plan's `cost` */
    uint64_t seed;
    uint32_t
        top; /* the most simulations (simulate_top); 0: none, of ty_question_answer TY_USUAL_TOP */
    bool no_simulate; /* none, whatever `top` says */
    bool allow_lossy;
    /* `cluster`, where it has been opened already: it is shared. NULL: opened by its text */
    const ty_cluster *open_cluster;
    bool is_fastest; /* the fastest plan however little it wins by, not the simplest of those within
                        TY_USUAL_TOLERANCE; systems always answer with that */
    /* "4%": share of every device's usable memory that stays free; NULL: TY_USUAL_MEMORY_RESERVE,
     * or nothing if a layout is pinned with `fix` and fits only so */
    const char *memory_reserve;
} ty_question;

/** What a question opens. */
typedef struct ty_question_inputs {
    ty_workload *workload;
    ty_cluster *cluster;
    ty_profile *profile; /* NULL: data sheets */
    ty_stack *stack;
} ty_question_inputs;
/**
 * Opens workload, cluster and profile. Where replicas take local steps, so that training is on the
 * devices themselves, a budget's memory is all that a device of the cluster has. A local cluster
 * without a profile is measured, which is kept in the user's cache directory; before that, a
 * question that has no sense is refused.
 * @return the status of what could not be opened; TY_EPARSE for a profile of other layers; where
 *         the machine would be measured, also what ty_plan_search refuses without looking
 */
ty_status ty_question_open(const ty_question *question, const ty_watch *watch,
                           ty_question_inputs *out, ty_error *error) TY_MUST_CHECK;
void ty_question_inputs_clear(ty_question_inputs *inputs);
/** The question's memory reserve as a share. @return TY_EINVAL for what is no percentage */
ty_status ty_question_memory_reserve(const ty_question *question, double *out,
                                     ty_error *error) TY_MUST_CHECK;

/**
 * The best plan for a question: by the planner's search, by a system, or by an objective that takes
 * the steps to the target in; global batches from an eighth to eight times the workload's are tried
 * for that, unless one was asked for. Stopped, it is the best so far.
 * @return as ty_plan_search; TY_EINVAL for a word that has no meaning
 */
ty_status ty_question_plan(const ty_question *question, const ty_question_inputs *inputs,
                           const ty_watch *watch, ty_plan **out, ty_error *error) TY_MUST_CHECK;

/**
 * What divides badly in the plan of a question: the batch over the devices, where a batch near it
 * does more than TY_UNEVEN_SHARE more samples a second; blocks over stages of equally many
 * replicas, where the mean stage computes that much less than the slowest. By the estimate: batches
 * near it that are multiples of the devices or of a divisor of theirs are asked under the same
 * pins, and with `pp` asked for the numbers of stages near it that divide the blocks. Not with an
 * objective, which chooses the batch itself, nor for clusters of more than
 * TY_MOST_DEVICES_FOR_UNEVEN devices, where each question takes seconds.
 * @param plan ty_question_plan's; gets its `uneven`
 */
ty_status ty_question_uneven(const ty_question *question, const ty_question_inputs *inputs,
                             const ty_watch *watch, ty_plan *plan, ty_error *error) TY_MUST_CHECK;
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
 * Every member may be left at 0: the precision, the stack, the batch and the seed are then those
 * of the command line. It opens the question, plans it, and looks at what divides badly.
 * @return as ty_question_open and ty_question_plan
 */
ty_status ty_question_answer(const ty_question *question, const ty_watch *watch, ty_plan **out,
                             ty_error *error) TY_MUST_CHECK;

/** A change with which a question that has no plan has one. */
typedef struct ty_remedy {
    char *words;   /* "without tp=1 it fits"; NULL: no change that was asked gives a plan */
    char *cluster; /* on which; the question's, or a larger one */
    ty_plan *plan; /* the answer, estimated */
} ty_remedy;
/**
 * What to change where ty_question_plan says TY_EINFEASIBLE: the first change that the planner,
 * really asked, has a plan for. Whatever is left open was tried already; so pins are given up, one
 * by one in the order recompute, zero, sp, micro_batch and on, then several; then the system; then
 * bf16 in place of 32 bits; the next global batch that the devices share, halves of it; and
 * twice, four times ... as many hosts, with the pins, then without. Where parameters, gradients and
 * optimizer state alone have no room, only precision and hosts are asked for.
 * @param out [out] clear with ty_remedy_clear, also after a failure
 * @return TY_EINTERRUPTED once the watch says so; TY_ENOMEM
 */
ty_status ty_question_remedy(const ty_question *question, const ty_question_inputs *inputs,
                             const ty_watch *watch, ty_remedy *out, ty_error *error) TY_MUST_CHECK;
void ty_remedy_clear(ty_remedy *remedy);

/** Everything a plan stands for. */
typedef struct ty_plan_inputs {
    ty_plan *plan;
    ty_program *program;
    ty_cluster *cluster;
    ty_costs *costs;
} ty_plan_inputs;
/**
 * Reads a plan. If its estimated step is not the prediction that the file stores (another version
 * wrote it, or somebody edited it), the watch gets a note with both.
 * @param stack to cost it with instead of its own: a name or a file; NULL: its own
 */
ty_status ty_plan_inputs_load(const char *path, const char *stack, const ty_watch *watch,
                              ty_plan_inputs *out, ty_error *error) TY_MUST_CHECK;
/** The note of ty_plan_inputs_load. @param name of the file */
ty_status ty_plan_inputs_compare(const ty_plan_inputs *inputs, const char *name,
                                 const ty_watch *watch, ty_error *error) TY_MUST_CHECK;
/** Takes ownership of the plan, also on failure. */
ty_status ty_plan_inputs_from(ty_plan *plan, ty_plan_inputs *out, ty_error *error) TY_MUST_CHECK;
/** The same as Trainyard's worker runs it: where the plan was made for other software, costs,
 * memory and prediction are the worker's from here on. */
ty_status ty_plan_inputs_of_worker(ty_plan_inputs *inputs, ty_error *error) TY_MUST_CHECK;
void ty_plan_inputs_clear(ty_plan_inputs *inputs);

/**
 * ty_score_plan by a task, with the staleness of the plan's schedule.
 * @param task as ty_convergence_open has it; NULL: that of the plan's workload, if there is one
 * @param cost NULL: the catalogue's prices, and no length
 * @param out  [out] clear with ty_score_clear, also after a failure
 */
ty_status ty_plan_score(const ty_plan *plan, const ty_cluster *cluster, const char *task,
                        const ty_cost_question *cost, ty_score *out, ty_error *error) TY_MUST_CHECK;

/* ---- What if ----------------------------------------------------------------------------- */

/**
 * A key and the values that it takes. Keys:
 *   workload, cluster, batch, seq,
 *   system, stack, precision, objective, task    the member of that name
 *   workload.KEY                          KEY=VALUE behind the workload: "gpt2 sequence=512"
 *   hosts                                 N of "Nx HOST", or of "host:N"
 *   pod, leaf, host, gpu, oversub         that word of a described fabric
 *   device                                the "@DEVICE" of a described fabric
 *   bandwidth.LINK, latency.LINK          of every link of that type; LINK may be "all"
 *   memory, compute, memory_bandwidth     of every device
 *   price, power, failure_rate            as in ty_cost_question
 *   what `fix` knows                      tp, pp, dp, zero, micro_batch, schedule, ...
 * Figures of links and devices are quantities ("100Gb/s", "5us", "80GiB") or factors ("x0.5").
 */
typedef struct ty_whatif_axis {
    const char *key;
    const char *const *values; /* [count] */
    uint32_t count;
} ty_whatif_axis;

/** The best plans for all combinations, one a row; the last axis changes fastest. */
typedef struct ty_whatif ty_whatif;

/**
 * Tries every value, so that typing errors show before work starts. Question and axes are borrowed.
 * @return TY_EINVAL: no axis, no such key (with the nearest), a value that it cannot have, or more
 *         than 100,000 combinations
 */
ty_status ty_whatif_new(const ty_question *question, const ty_whatif_axis *axes,
                        uint32_t axis_count, ty_whatif **out, ty_error *error) TY_MUST_CHECK;
void ty_whatif_free(ty_whatif *whatif);
/** Takes the rows that a document of the same question has. @return TY_EPARSE: of another question
 */
ty_status ty_whatif_resume(ty_whatif *whatif, const char *path, ty_error *error) TY_MUST_CHECK;

/** A row is done: keep what must not be lost with the process. */
typedef ty_status ty_whatif_taken(void *context, const ty_whatif *whatif, ty_error *error);
/**
 * Finds the rows that are not there yet, each in a process of its own, as many at once as there are
 * cores. Machines that are measured here are measured one at a time.
 * @param taken called after each row; NULL: nothing is kept
 * @return the first failure of any row. "Does not fit" and "makes no sense" are rows, not failures
 */
ty_status ty_whatif_run(ty_whatif *whatif, const ty_watch *watch, ty_whatif_taken *taken,
                        void *context, ty_error *error) TY_MUST_CHECK;

uint32_t ty_whatif_row_count(const ty_whatif *whatif);
uint32_t ty_whatif_done_count(const ty_whatif *whatif);
/** An object of JSON in one line (docs/schemas/whatif.json): its values and the plan's figures, or
 * the "reason" why there is no plan; NULL: not done yet. Valid as long as `whatif`. */
const char *ty_whatif_row(const ty_whatif *whatif, uint32_t row);
const char *ty_whatif_value(const ty_whatif *whatif, uint32_t row, uint32_t axis);
/** `trainyard.whatif/1`: the question, the axes, the rows that are done. */
void ty_whatif_to_json(const ty_whatif *whatif, ty_json_writer *writer);

/* ---- This machine ------------------------------------------------------------------------ */

/**
 * trainyard-worker: $TRAINYARD_WORKER, or beside this program, or in ../libexec/trainyard.
 * @param out [out, PATH_MAX]
 * @return TY_EIO: it is not there; TY_EUNSUPPORTED: and this build leaves it out
 */
ty_status ty_worker_path(char *out, ty_error *error) TY_MUST_CHECK;

/**
 * Saves the job to a temporary file, starts `ranks` local workers under mpirun and waits. Once
 * `should_stop` says so they end the step under way, save it, where the job has a checkpoint, and
 * write what was measured (`is_kept`); after 120 s, once `should_stop_now` says so, or where they
 * had not begun, they are interrupted, 10 s later killed. Where mpirun hangs, for
 * $TRAINYARD_START_SECONDS or 30, all are killed, and the error says so with the limits that this
 * process has. They are in a network namespace of their own, with nothing but a loopback, where the
 * system allows one and $TRAINYARD_NETWORK is not "host". The worker is that of ty_worker_path.
 * @return TY_OK, TY_EINTERRUPTED; TY_EUNSUPPORTED, before any is started: this machine has not the
 *         cores or the memory for so many; or TY_ELIMIT, where the loss diverged, or the status
 *         that the worker's exit code stands for; with an empty message where the worker itself has
 *         said why on stderr
 */
ty_status ty_worker_run(ty_job *job, uint32_t ranks, const ty_watch *watch,
                        ty_error *error) TY_MUST_CHECK;
/** An empty file of one's own in $TMPDIR (or /tmp), for the caller to unlink.
 *  @param path [out] "" on failure */
ty_status ty_scratch_file(const char *name, char *path, size_t room, ty_error *error) TY_MUST_CHECK;

/** How a plan is trained. */
typedef struct ty_training {
    const char *backend;     /* NULL: cpu */
    const char *precision;   /* NULL: the plan's */
    const char *data;        /* NULL: the workload's */
    uint32_t steps;          /* 0: 60, or with a target at most 100,000 */
    ty_target until;         /* not set: all steps are done */
    uint32_t evaluate_every; /* steps; with a target; 0: 50 */
    const char *checkpoint;  /* folder; NULL: none */
    uint32_t checkpoint_every;
    bool resume;
    const char *init;         /* weights to start from, safetensors; NULL: the seed's */
    bool deterministic;       /* as in ty_job */
    const char *save_weights; /* where they go at the end; NULL: nowhere */
    uint32_t bad_samples;     /* that a rank may skip */
} ty_training;
/** The job of a training. Takes plan and program out of the inputs, also on failure.
 *  @param output where the run is written */
ty_status ty_training_job(const ty_training *training, ty_plan_inputs *inputs, const char *output,
                          ty_job **out, ty_error *error) TY_MUST_CHECK;

/**
 * A profile of this machine for the workload, with `ranks` ranks side by side.
 * @param backend       "cpu" or "cuda"
 * @param precision     NULL: fp32
 * @param micro_batches [micro_batch_count] sizes to time, ascending
 */
ty_status ty_profile_measure(const ty_workload *workload, const char *backend,
                             const char *precision, uint32_t ranks, const uint32_t *micro_batches,
                             uint32_t micro_batch_count, const ty_watch *watch, ty_profile **out,
                             ty_error *error) TY_MUST_CHECK;
/**
 * How fast the worker reads the training part of a data set here, on one rank, by threads.
 * @param data        where it lies
 * @param bad_samples that may be skipped because they cannot be read
 */
ty_status ty_samples_measure(const ty_workload *workload, const char *data, uint32_t bad_samples,
                             const ty_watch *watch, ty_samples **out,
                             ty_error *error) TY_MUST_CHECK;
/**
 * As ty_profile_measure on the processors with the usual sizes for a batch, from
 * $XDG_CACHE_HOME/trainyard (or
 * ~/.cache/trainyard) if it was measured before. Without such a folder, which has to be the user's
 * own, nothing is kept, which is noted.
 * @param global_batch 0: the workload's
 */
ty_status ty_profile_measure_cached(const ty_workload *workload, uint32_t ranks,
                                    uint32_t global_batch, const ty_watch *watch, ty_profile **out,
                                    ty_error *error) TY_MUST_CHECK;

/* ---- Calibrating convergence by short trainings ------------------------------------------ */

typedef struct ty_calibration_question {
    ty_question question;               /* on local ranks, two or more; `seed` is the first run's */
    ty_training training;               /* with a target */
    uint32_t runs;                      /* to the target, each with a seed of its own; 0: 1 */
    const ty_compression *compressions; /* [compression_count] to measure; none of them "none" */
    uint32_t compression_count;
} ty_calibration_question;

#define TY_CALIBRATION_POWERS 3 /* batches from an eighth to eight times the calibrated one */
#define TY_CALIBRATION_PHASES 4

typedef struct ty_calibration_batch {
    uint32_t batch;
    double learning_rate, steps, step_time_s;
    bool is_beyond_limit; /* larger than any that the rule of the rate is known to hold for */
} ty_calibration_batch;

/** How a task converges, as short trainings told. */
typedef struct ty_calibration {
    ty_convergence *task;
    uint32_t ranks, batch, run_count;
    ty_run **runs;            /* [run_count] to the target */
    uint64_t *seeds;          /* [run_count] */
    double *steps;            /* [run_count] that they took */
    double step_time_s;       /* measured, their mean */
    ty_noise_sample *samples; /* [sample_count] of all runs, by their share of the run */
    uint32_t sample_count;
    /* Why they were not measured, or "": */
    char staleness_note[sizeof((ty_error *)0)->message];
    char temperature_note[sizeof((ty_error *)0)->message];
    ty_text notes; /* a line for each run and each other measurement that is missing */
    ty_calibration_batch batches[2 * TY_CALIBRATION_POWERS + 1]; /* that can be planned */
    uint32_t batch_count, best;               /* the batch of least time to the target */
    uint32_t schedule[TY_CALIBRATION_PHASES]; /* a batch for each quarter of the way */
} ty_calibration;

/**
 * Data-parallel runs to the target, one for each seed, give the number of steps and the gradient
 * noise. The first steps of each run, repeated with each compressor and with stale gradients, give
 * the cost of those. The first half at half the learning rate gives the cost of noise at the full
 * rate.
 * docs/design/convergence-model.md has the method.
 * @param out [out] clear with ty_calibration_clear, also after a failure
 * A run that diverges or does not reach the target is left out, and so is a measurement that fails;
 * the notes say so. With fewer estimates intervals are wider.
 * @return TY_ELIMIT: no run reached the target; TY_EINVAL: not local, a single rank, no target
 */
ty_status ty_calibrate(const ty_calibration_question *question, const ty_watch *watch,
                       ty_calibration *out, ty_error *error) TY_MUST_CHECK;
void ty_calibration_clear(ty_calibration *calibration);
/** `trainyard.calibration/1` */
void ty_calibration_to_json(const ty_calibration *calibration, ty_json_writer *writer);

/* ---- A long run under failures ----------------------------------------------------------- */

typedef enum ty_fault_kind { TY_FAULT_DEVICE, TY_FAULT_HOST, TY_FAULT_LINK } ty_fault_kind;

/** Something that fails at a time that is known. */
typedef struct ty_fault {
    ty_fault_kind kind;
    uint32_t index; /* device, host or link of the cluster */
    double time_s;
    const char *name; /* for people; borrowed */
} ty_fault;

typedef struct ty_outlook_question {
    const ty_fault *faults; /* [fault_count], ascending by time */
    uint32_t fault_count;
    bool is_random;  /* others beside them, at the rates of the catalogue */
    bool is_elastic; /* the run goes on with fewer replicas; else spares take their place */
    double horizon_s, repair_s;   /* > 0, >= 0 */
    double checkpoint_interval_s; /* of work; 0: what pays best */
    double restart_s;             /* NaN: the catalogue's */
    uint32_t seeds;               /* 0: 1 */
    uint64_t seed;                /* of the first */
} ty_outlook_question;
/** Thirty days without failures, a day until what failed is back. */
ty_outlook_question ty_outlook_question_default(void);

/** What becomes of a long run of a plan. */
typedef struct ty_outlook {
    ty_endurance_question question;
    ty_endurance endurance;         /* of the first seed */
    double p50_goodput, p5_goodput; /* of all seeds: half, and nineteen of twenty, reach it */
    uint32_t seeds;
    ty_known_fault *known; /* [question.known_count] */
    char **names;          /* [question.known_count] */
    double *rates;         /* [question.rate_count] */
} ty_outlook;
/**
 * Plays the run, its steps simulated on what is left of cluster and replicas.
 * @param how         as the plan's own step was simulated
 * @param step_time_s of the plan as it is
 * @param out         [out] clear with ty_outlook_clear, also after a failure
 */
ty_status ty_outlook_find(const ty_plan_inputs *inputs, const ty_simulate_options *how,
                          double step_time_s, const ty_outlook_question *question, ty_outlook *out,
                          ty_error *error) TY_MUST_CHECK;
void ty_outlook_clear(ty_outlook *outlook);
/** The member "endurance" of a `trainyard.simulation/2`. */
void ty_outlook_to_json(const ty_outlook *outlook, ty_json_writer *writer);

/** For qsort: doubles, ascending. */
int ty_compare_numbers(const void *left, const void *right);

/* ---- What a report shows of a plan beside itself ----------------------------------------- */

/** Compressors that are compared with none, NULL at the end. */
extern const char *const ty_shown_compressions[];
/** `trainyard.compression/1`: seconds of the exchanges of a step over bandwidth, by compressor.
 *  @param out [out] NULL: nothing is exchanged */
ty_status ty_plan_compression_document(const ty_plan_inputs *inputs, ty_json_document **out,
                                       ty_error *error) TY_MUST_CHECK;
/** `trainyard.score/1` of ty_plan_score. @param out [out] NULL: the plan has no prediction */
ty_status ty_plan_score_document(const ty_plan_inputs *inputs, const char *task,
                                 ty_json_document **out, ty_error *error) TY_MUST_CHECK;
/** `trainyard.simulation/2` with the memory over time of one rank of each stage.
 *  @param out [out] NULL: the plan says nothing of memory */
ty_status ty_plan_memory_document(const ty_plan_inputs *inputs, const ty_timeline *timeline,
                                  ty_json_document **out, ty_error *error) TY_MUST_CHECK;

#endif
