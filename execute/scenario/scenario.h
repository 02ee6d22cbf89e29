/**
 * @file scenario.h
 * Workloads that do not learn only from gradients of a data set: teacher.c, evolution.c and
 * reinforcement.c. Internal to execute/.
 *
 * A scenario is a table of hooks, which the interpreter calls if they are not NULL. Hooks see the
 * rank only through its scenario_run. Scenarios with episodes in corridors (corridor.h) share
 * player.c, which runs a policy in several corridors at once, and scenario.c, which tests it.
 */
#ifndef TY_EXECUTE_SCENARIO_H
#define TY_EXECUTE_SCENARIO_H

#include "corridor.h"
#include "device.h"
#include "transport.h"

/** A policy, which is ty_workload_step_make of a workload without the loss, and `count` robots.
 * The members of a population have parameters of their own, so that their `count` is 1. */
typedef struct player {
    const ty_device_backend *backend;
    ty_stage_device *device; /* opened for `count` samples in one slot */
    ty_workload *policy;
    uint32_t count, steps; /* steps of an episode */
    corridor *robots;      /* [count] */
} player;

/** @return TY_EUNSUPPORTED, TY_EINVAL: the workload has episodes that the worker cannot run */
ty_status player_check(const ty_workload *workload, ty_error *error) TY_MUST_CHECK;
/** @param options of a stage of the workload; with its micro-batch size as the count */
ty_status player_open(const ty_device_backend *backend, ty_stage_options options, player *out,
                      ty_error *error) TY_MUST_CHECK;
void player_close(player *player);
/** One pass of the policy over each robot's view. @param scores [out] [count][actions] */
ty_status player_observe(const player *player, const float **scores, ty_error *error) TY_MUST_CHECK;
uint32_t player_likeliest(const float *scores);
/** Runs robots that have begun to the end of their episodes, with the most likely action each time.
 */
ty_status player_run(const player *player, ty_error *error) TY_MUST_CHECK;

typedef struct scenario scenario;

/** A rank, and the scenario's data on it. */
typedef struct scenario_run {
    const scenario *hooks; /* never NULL */
    const ty_plan *plan;
    const ty_device_backend *backend;
    uint32_t position, replica;
    uint32_t slots, window;  /* micro-batches, and steps, whose data is stored at once */
    ty_stage_device *device; /* the stage's */
    player player; /* its device is the stage's, except on learners of reinforcement learning */
    uint64_t parameter_count;
    void *played;   /* reinforcement: the episodes of each slot; evolution: all scores */
    float *weights; /* reinforcement: weights in transit; evolution: shared weights, then noise */
} scenario_run;

/** A pass's summand of the loss of its step. */
typedef struct scenario_loss {
    double sum, count;
} scenario_loss;

struct scenario {
    /** Allocates the rest of the run's data. The player's device may become the stage's. */
    ty_status (*start)(scenario_run *run, ty_error *error);
    /** Runs a load; NULL: a batch of the data set. */
    ty_status (*load)(scenario_run *run, const ty_instruction *load, uint32_t step, uint32_t slot,
                      ty_error *error);
    /** A sample of the data set, after it was loaded. Either pointer may be NULL. */
    void (*view)(const scenario_run *run, const ty_dataset *dataset, uint64_t position,
                 bool has_label, float *input, int32_t *labels);
    /** Runs a forward, instead of the device's. */
    ty_status (*forward)(scenario_run *run, const ty_instruction *forward, uint32_t step,
                         uint32_t slot, scenario_loss *loss, ty_error *error);
    /** The buffer of a send or receive. */
    void *(*buffer)(const scenario_run *run, const ty_instruction *transfer, uint32_t slot,
                    uint32_t step);
    /** Replaces the weights by those that arrived in a step. */
    void (*begin)(const scenario_run *run, uint32_t step);
    /** After the update of a bucket. */
    void (*updated)(const scenario_run *run, uint32_t bucket, uint32_t step);
    /** The collective of a bucket instead of the all-reduce of gradients, and the gradients of
     * parameters [offset, offset + count) that follow from it. */
    void (*exchange)(const scenario_run *run, ty_collective_options *options);
    void (*gradient)(const scenario_run *run, uint64_t offset, uint64_t count, float *gradients);
    /** The n-th call that a profile times; NULL: there are no episodes. @param memory for
     * parameters and for episodes */
    ty_status (*play)(const player *player, uint32_t n, void *memory, ty_error *error);
};

extern const scenario evolution, reinforcement, teacher;
/** Has no hooks if the workload learns from a data set, or the backend is timed. */
const scenario *scenario_of(const ty_workload *workload, bool is_timed);
/** Whether episodes replace the data set. */
bool scenario_plays(const scenario_run *run);

/** Opens the player of a stage whose device would be opened with `options`, if the scenario has
 * one. `run` has all members up to the window set. */
ty_status scenario_start(scenario_run *run, const ty_stage_options *options,
                         ty_error *error) TY_MUST_CHECK;
/** Call it before the stage's device is closed. @return whether this closed it */
bool scenario_close(scenario_run *run);
/** Copies the weights of a learner to its own player, if it has one. */
void scenario_weights_take(scenario_run *run);
/** Adds this rank's results of a test, in corridors of no training step: losses are 1 - score,
 * correct are episodes without a touch. */
ty_status scenario_test(scenario_run *run, double *loss_sum, double *correct, double *count,
                        ty_error *error) TY_MUST_CHECK;

/* ---- Random numbers ------------------------------------------------------------------------ */

enum { SCENARIO_TESTS = 100 }; /* corridors of a test */
#define EPISODE_DISCOUNT 0.9   /* of returns */

/** Seed of the n-th corridor of a test. */
uint64_t scenario_test_corridor(uint32_t n);

/** The seed of a member of a population; its lowest bit is the sign of the noise, so that members
 * 2n and 2n + 1 are mirrored. */
uint32_t evolution_seed(uint64_t seed, uint32_t step, uint64_t member);
/** Standard normal noise of a member's parameters, without its sign. */
void evolution_noise(uint32_t member_seed, uint64_t first, uint64_t count, float *out);
/** Seed of the corridor of a step. */
uint64_t evolution_corridor(uint64_t seed, uint32_t step);

/** Seed of the corridor of an episode of a step's batch; and, in [0, 1), the sum of probabilities
 * that selects its action at time `t`. */
uint64_t episode_corridor(uint64_t seed, uint32_t step, uint64_t episode);
double episode_draw(uint64_t seed, uint32_t step, uint64_t episode, uint32_t t);

#endif
