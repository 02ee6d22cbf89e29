/**
 * @file ty_phases.h
 * Trainings of several phases: one behind the other, with batches, learning rates, momenta and
 * sizes of images of their own, each planned by the ordinary search and run from the state that the
 * one before left.
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

/** One of a file; what is 0 or NULL is as without phases. */
typedef struct ty_phase {
    uint32_t steps;
    double epochs; /* where `steps` is 0: of the file's `samples` */
    uint32_t global_batch;
    double learning_rate;
    double momentum;                    /* below 0: not said */
    uint32_t image_height, image_width; /* pixels */
    char *fix;
} ty_phase;

typedef struct ty_phases {
    uint64_t samples; /* of an epoch; 0: not said */
    uint32_t count;
    ty_phase *phases;
} ty_phases;

/** What there is in such a file. */
extern const json_record ty_phases_record;
/** Reads `trainyard.phases/1` (docs/reference/file-formats.md). TY_EPARSE names file, pointer, what
 * was found and what was expected. */
ty_status ty_phases_load(const char *path, ty_phases **out, ty_error *error) TY_MUST_CHECK;
void ty_phases_free(ty_phases *phases);

/** Plans, one behind the other. */
typedef struct ty_phased_plan {
    uint32_t count;
    uint32_t *steps; /* [count] */
    ty_plan **plans; /* [count], owned */
} ty_phased_plan;

/**
 * The best plan of each phase. Weights, optimizer state and the place in the data are carried on by
 * a checkpoint, so later phases have the stages, ranks, interleaving, schedule, compression and
 * ZeRO of the first, unless they or the question pin others; replicas, micro-batches and buckets
 * are searched for anew. Where more than weights belongs to ranks (ZeRO, most compressors, a
 * schedule without a flush), so do they.
 * @return as ty_question_open and ty_question_plan, with the phase; TY_EINVAL: a momentum that is
 *         not the optimizer's, or epochs shorter than a step
 */
ty_status ty_phased_plan_make(const ty_question *question, const ty_phases *phases,
                              const ty_watch *watch, ty_phased_plan **out,
                              ty_error *error) TY_MUST_CHECK;

/** Whether images of some phases have another size than those of the first. */
bool ty_phased_plan_resizes(const ty_phased_plan *plan);

/** Reads and writes `trainyard.phased-plan/1`. */
ty_status ty_phased_plan_load(const char *path, ty_phased_plan **out,
                              ty_error *error) TY_MUST_CHECK;
ty_status ty_phased_plan_save(const ty_phased_plan *plan, const char *path,
                              ty_error *error) TY_MUST_CHECK;
void ty_phased_plan_to_json(const ty_phased_plan *plan, ty_json_writer *writer);
void ty_phased_plan_free(ty_phased_plan *plan);

/** One phase on the way to the target. */
typedef struct ty_phase_score {
    ty_score score; /* of its plan, as if it went the whole way */
    uint32_t steps, batch;
    double share; /* of the way that all of its steps go; 0 without a target */
} ty_phase_score;

/**
 * How far phases go towards a target, each at its batch, rate and momentum. Alone a phase's plan is
 * there after `steps` of its score, of which its `noise_multiplier` m is how much longer noise
 * makes the way. What is gone is kept by the next phase; what noise adds goes as its temperature
 * does: so a step goes m / steps, and the target is met where the steps so far have gone m of the
 * phase that they are in. Where m is the same in all, as where no temperature cost was measured,
 * a step makes 1 / steps of the way. Where the phases end before the target the last one is thought
 * to go on.
 */
typedef struct ty_phased_score {
    uint32_t count;
    ty_phase_score *phases; /* [count], owned */
    double time_s, samples; /* of all phases, without failures */
    bool has_target;        /* of here on: how the workload converges is known */
    bool is_reached;
    bool is_prior;
    uint32_t last;        /* the phase that reaches the target, or would */
    ty_interval share;    /* of the way, as long as that phase makes it, that all phases go */
    double steps_of_last; /* until the target */
    double missing_steps; /* more of the last phase than it has; 0 where the target is reached */
    double missing_time_s;
    ty_interval steps_to_target, samples_to_target;
    ty_interval time_to_target_s;    /* with failures and checkpoints */
    bool has_price, has_power;       /* of all phases */
    ty_interval money_usd, energy_j; /* to the target */
    char *notes;                     /* a line each: what was assumed of any phase */
} ty_phased_score;

/**
 * Adds phases up. Intervals are sums of the phases' by their expected steps, so that one phase, and
 * several of the same plan, have what ty_score_plan has for it.
 * @param phases  [count] with score, steps and batch; copied, with what scores own; cleared in any
 *                case
 * @param is_resized images are not of one size, of which convergence knows nothing
 * @param out     [out] clear with ty_phased_score_clear
 */
ty_status ty_phased_score_make(ty_phase_score *phases, uint32_t count, bool is_resized,
                               ty_phased_score *out, ty_error *error) TY_MUST_CHECK;
/** The same of a plan. @param task and cost as ty_plan_score has them, without a length */
ty_status ty_phased_plan_score(const ty_phased_plan *plan, const char *task,
                               const ty_cost_question *cost, ty_phased_score *out,
                               ty_error *error) TY_MUST_CHECK;
/** `trainyard.phased-score/1`. */
void ty_phased_score_to_json(const ty_phased_score *score, ty_json_writer *writer);
void ty_phased_score_clear(ty_phased_score *score);

/** What the phases measured: of each a run whose losses are those of all steps so far. */
typedef struct ty_phased_run {
    uint32_t count; /* fewer than the plan's where a target was met, or it ended before */
    ty_run **runs;  /* [count], owned */
} ty_phased_run;

/**
 * Runs the phases one behind the other on local ranks: each goes on from the checkpoint of the one
 * before, in the training's folder or one that is removed at the end, behind the samples that it
 * took. With a target the phase that meets it is the last. Backend "replay" only plays each. To
 * resume is to go on in the phase that the checkpoint is of; what the phases before it measured
 * lies beside the checkpoint.
 * @param plan     its plans are used up, also on a failure
 * @param training without steps, which are the plan's
 * @param output   gets `trainyard.phased-run/1`
 * @param written [out] phases in it; after a failure those until then, the last one of the steps
 *                that it had done; 0: nothing was written
 * @return as ty_worker_run, with the phase
 */
ty_status ty_phased_plan_run(ty_phased_plan *plan, const ty_training *training, const char *output,
                             uint32_t *written, const ty_watch *watch,
                             ty_error *error) TY_MUST_CHECK;
ty_status ty_phased_run_load(const char *path, ty_phased_run **out, ty_error *error) TY_MUST_CHECK;
void ty_phased_run_free(ty_phased_run *run);

/** Whether a file says so in its first 1,024 bytes, where its schema is. What cannot be read twice,
 * as a pipe, is none. */
bool ty_is_phased_plan(const char *path);

#endif
