/**
 * @file scenario.h
 * Workloads that learn from episodes in corridors (corridor.h): evolution.c and reinforcement.c.
 * Internal to execute/.
 *
 * The interpreter calls the hooks of a scenario in place of its own code. Their common code is in
 * scenario.c: a player, which runs a policy in several corridors at once, the test of a policy, and
 * the profile of an episode.
 */
#ifndef TY_EXECUTE_SCENARIO_H
#define TY_EXECUTE_SCENARIO_H

#include "corridor.h"
#include "interpreter_state.h"

/** A policy, which is ty_workload_step_make of a workload without the loss, and `count` robots.
 * The members of a population have parameters of their own, so that their `count` is 1. */
typedef struct player {
    const ty_device_backend *backend;
    ty_stage_device *device; /* opened for `count` samples in one slot */
    ty_workload *policy;
    uint32_t count, steps; /* steps of an episode */
    corridor *robots;      /* [count] */
} player;

/** @return TY_EUNSUPPORTED, TY_EINVAL: the workload has episodes that the worker cannot play */
ty_status player_check(const ty_workload *workload, ty_error *error) TY_MUST_CHECK;
/** @param options of a stage of the workload; with its micro-batch size as the count */
ty_status player_open(const ty_device_backend *backend, ty_stage_options options, player *out,
                      ty_error *error) TY_MUST_CHECK;
void player_close(player *player);
/** One pass of the policy over what each robot sees. @param scores [out] [count][actions] */
ty_status player_look(const player *player, const float **scores, ty_error *error) TY_MUST_CHECK;
uint32_t player_likeliest(const float *scores);
/** Takes robots that have begun to the end of their episodes, by the likeliest action each time. */
ty_status player_run(const player *player, ty_error *error) TY_MUST_CHECK;

/** A rank's data for its scenario. */
struct scenario_state {
    player player; /* its device is the stage's, except on learners of reinforcement learning */
    uint64_t parameter_count;
    void *played;   /* reinforcement: the episodes of each slot; evolution: all scores */
    float *weights; /* reinforcement: weights in transit; evolution: shared weights, then noise */
};

struct scenario {
    /** Allocates the rest of in->scenario_state; the player's device may become the stage's. */
    ty_status (*start)(ty_interpreter *in, held_stage *held, ty_error *error);
    /** Instructions, on the compute thread. NULL: an episode is played in its forward. */
    ty_status (*load)(ty_interpreter *in, const ty_instruction *load, uint32_t step, uint32_t slot,
                      ty_error *error);
    ty_status (*forward)(ty_interpreter *in, const ty_instruction *forward, uint32_t step,
                         uint32_t slot, ty_error *error);
    /** Actors: the weights that arrived in a step become their own. After each update, if not
     * NULL: the weights of learners are set aside. */
    void (*begin)(ty_interpreter *in, uint32_t step);
    void (*updated)(ty_interpreter *in, uint32_t bucket, uint32_t step);
    /** The buffer of a send or receive. */
    void *(*buffer)(const ty_interpreter *in, const ty_instruction *transfer, uint32_t slot,
                    uint32_t step);
    /** The collective of a bucket, and the gradients that follow from it. NULL: the all-reduce of
     * gradients, and those of the backward pass. */
    void (*exchange)(const ty_interpreter *in, ty_collective_options *options);
    void (*gradient)(ty_interpreter *in, uint32_t bucket, uint32_t step);
    /** The n-th call of those that a profile times. @param memory for parameters and for episodes
     */
    ty_status (*play)(const player *player, uint32_t n, void *memory, ty_error *error);
};

extern const scenario evolution, reinforcement;
/** NULL: learning from a data set, or an evolution without computation. */
const scenario *scenario_of(const ty_workload *workload, bool is_timed);

/** Opens the player of a stage whose device would be opened with `options`. */
ty_status scenario_start(ty_interpreter *in, const ty_stage_options *options, held_stage *held,
                         ty_error *error) TY_MUST_CHECK;
/** Before the devices of the stages are closed. */
void scenario_close(ty_interpreter *in);
/** Copies the weights of a learner to its own player, if it has one. */
void scenario_weights_take(ty_interpreter *in);
/** Adds this rank's part of a test, in corridors of no training step: losses are 1 - score, correct
 * are episodes without a touch. */
ty_status scenario_test(ty_interpreter *in, double *loss_sum, double *correct, double *count,
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
