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

/** Reads `trainyard.phases/1` (docs/files.md). TY_EPARSE names file, pointer, what was found and
 * what was expected. */
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
 * a checkpoint, so later phases have the stages, lanes, interleaving, schedule, compression and
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

/** What the phases measured: of each a run whose losses are those of all steps so far. */
typedef struct ty_phased_run {
    uint32_t count; /* fewer than the plan's where a target was met, or it ended before */
    ty_run **runs;  /* [count], owned */
} ty_phased_run;

/**
 * Runs the phases one behind the other on local ranks: each goes on from the checkpoint of the one
 * before, in the training's folder or one that is removed at the end, behind the samples that it
 * took. With a target the phase that meets it is the last. Backend "replay" only plays each.
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
