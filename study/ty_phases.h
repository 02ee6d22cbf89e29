/**
 * @file ty_phases.h
 * Trainings of several consecutive phases, each with its own batch size, learning rate, momentum
 * and image size. The ordinary search plans each phase, and each phase resumes from the state of
 * the one before.
 *
 *     TY_CHECK(ty_phases_load("phases.json", &phases, error), status, done);
 *     TY_CHECK(ty_phased_plan_make(&question, phases, &watch, &plan, error), status, done);
 *     TY_CHECK(ty_phased_plan_save(plan, "phased.json", error), status, done);
 */
#ifndef TY_PHASES_H
#define TY_PHASES_H

#include "ty_json.h"
#include "ty_study.h"

#define TY_MOST_TRAINING_PHASES 100

/** One phase of a file; 0 or NULL: the same as without phases. */
typedef struct ty_phase {
    uint32_t steps;
    double epochs; /* where `steps` is 0: of the file's `samples` */
    uint32_t global_batch;
    double learning_rate;
    double momentum;                    /* below 0: not specified */
    uint32_t image_height, image_width; /* pixels */
    char *fix;
} ty_phase;

typedef struct ty_phases {
    uint64_t samples; /* per epoch; 0: not specified */
    uint32_t count;
    ty_phase *phases;
} ty_phases;

/** Members of a phases file. */
extern const json_record ty_phases_record;
/** Reads `trainyard.phases/1` (docs/reference/file-formats.md). TY_EPARSE names file, pointer, what
 * was found and what was expected. */
ty_status ty_phases_load(const char *path, ty_phases **out, ty_error *error) TY_MUST_CHECK;
void ty_phases_free(ty_phases *phases);

/** The plans of consecutive phases. */
typedef struct ty_phased_plan {
    uint32_t count;
    uint32_t *steps; /* [count] */
    ty_plan **plans; /* [count], owned */
} ty_phased_plan;

/**
 * The best plan of each phase. A checkpoint carries over weights, optimizer states and the place in
 * the data. So later phases keep the stages, TP, CP and EP sizes, VPP, schedule, compression and
 * ZeRO stage of the first, unless they or the question pin others. Replicas, micro-batches and
 * buckets are searched again. They are kept too if ranks hold more state than weights (ZeRO, most
 * compressors, a schedule without a flush).
 * @return as ty_question_open and ty_question_plan, with the phase; TY_EINVAL: a momentum that is
 *         not the optimizer's, or epochs shorter than a step
 */
ty_status ty_phased_plan_make(const ty_question *question, const ty_phases *phases,
                              const ty_watch *watch, ty_phased_plan **out,
                              ty_error *error) TY_MUST_CHECK;

/** Whether the image size of any phase differs from that of the first. */
bool ty_phased_plan_resizes(const ty_phased_plan *plan);

/** Reads and writes `trainyard.phased-plan/1`. */
ty_status ty_phased_plan_load(const char *path, ty_phased_plan **out,
                              ty_error *error) TY_MUST_CHECK;
ty_status ty_phased_plan_save(const ty_phased_plan *plan, const char *path,
                              ty_error *error) TY_MUST_CHECK;
void ty_phased_plan_to_json(const ty_phased_plan *plan, ty_json_writer *writer);
void ty_phased_plan_free(ty_phased_plan *plan);

/** One phase and its share of the training to the target. */
typedef struct ty_phase_score {
    ty_score score; /* of its plan, as if it trained to the target alone */
    uint32_t steps, batch;
    double share; /* of the way to the target that its steps cover; 0 without a target */
} ty_phase_score;

/**
 * Progress of phases towards a target, each at its batch, rate and momentum. Alone, a phase's plan
 * reaches the target after `steps` of its score; its `noise_multiplier` m is the factor that noise
 * adds to them. The next phase keeps the progress made, while the effect of noise follows the
 * current temperature. So one step adds m / steps, and the target is met when the sum reaches the m
 * of the current phase. If m is the same in all phases, as without a measured temperature cost, a
 * step adds 1 / steps. If the phases end before the target, the last one is assumed to continue.
 */
typedef struct ty_phased_score {
    uint32_t count;
    ty_phase_score *phases; /* [count], owned */
    double time_s, samples; /* of all phases, without failures */
    bool has_target;        /* the workload's convergence is known; valid from here on */
    bool is_reached;
    bool is_prior;
    uint32_t last;     /* the phase that reaches the target, or would reach it */
    ty_interval share; /* of the training to the target, by the steps of that phase, that all phases
                          cover */
    double steps_of_last; /* until the target */
    double missing_steps; /* more of the last phase than it has; 0 where the target is reached */
    double missing_time_s;
    ty_interval steps_to_target, samples_to_target;
    ty_interval time_to_target_s;    /* with failures and checkpoints */
    bool has_price, has_power;       /* of all phases */
    ty_interval money_usd, energy_j; /* to the target */
    char *notes;                     /* assumptions about any phase, one per line */
} ty_phased_score;

/**
 * Adds up phases. Intervals are sums of the phases' intervals, weighted by expected steps. So one
 * phase, or several of the same plan, have the result of ty_score_plan.
 * @param phases  [count] with score, steps and batch; takes the contents of the scores; cleared in
 *                any case
 * @param is_resized image sizes differ, which the convergence model ignores
 * @param out     [out] clear with ty_phased_score_clear
 */
ty_status ty_phased_score_make(ty_phase_score *phases, uint32_t count, bool is_resized,
                               ty_phased_score *out, ty_error *error) TY_MUST_CHECK;
/** The same for a plan. @param task and cost as in ty_plan_score, without a length */
ty_status ty_phased_plan_score(const ty_phased_plan *plan, const char *task,
                               const ty_cost_question *cost, ty_phased_score *out,
                               ty_error *error) TY_MUST_CHECK;
/** `trainyard.phased-score/1`. */
void ty_phased_score_to_json(const ty_phased_score *score, ty_json_writer *writer);
void ty_phased_score_clear(ty_phased_score *score);

/** Measurements of the phases: one run per phase, with the losses of all steps so far. */
typedef struct ty_phased_run {
    uint32_t count; /* fewer than in the plan if a target was met or the run ended early */
    ty_run **runs;  /* [count], owned */
} ty_phased_run;

/**
 * Runs the phases one after the other on local ranks. Each resumes from the checkpoint of the one
 * before and continues with the next samples. The checkpoint is in the training's folder, else in a
 * temporary one. With a target, the phase that meets it is the last. Backend "replay" only replays
 * each. A resumed run continues in the phase of the checkpoint; the measurements of the earlier
 * phases are stored next to the checkpoint.
 * @param plan     its plans are consumed, also on failure
 * @param training without steps, which the plan has
 * @param output   gets `trainyard.phased-run/1`
 * @param written [out] number of phases written; after a failure those until then, the last one
 *                with the steps it completed; 0: nothing was written
 * @return as ty_worker_run, with the phase
 */
ty_status ty_phased_plan_run(ty_phased_plan *plan, const ty_training *training, const char *output,
                             uint32_t *written, const ty_watch *watch,
                             ty_error *error) TY_MUST_CHECK;
ty_status ty_phased_run_load(const char *path, ty_phased_run **out, ty_error *error) TY_MUST_CHECK;
void ty_phased_run_free(ty_phased_run *run);

/** Whether the first 1,024 bytes of a file contain the schema of a phased plan. False for a file
 * that cannot be read twice, such as a pipe. */
bool ty_is_phased_plan(const char *path);

#endif
