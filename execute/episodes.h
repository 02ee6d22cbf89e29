/**
 * @file episodes.h
 * Episodes of a workload that learns by reinforcement: several corridors (corridor.h) at once, in
 * which one policy plays. Internal to execute/.
 *
 * Actions are drawn from the softmax of the policy's scores. What comes of an action is how far the
 * robot goes along x, less what a touch of a wall costs, in the units of corridor_score; what is
 * ahead of a step is the mean of that and all later ones, each of them weighted EPISODE_DISCOUNT
 * times as the one before it. The advantage is what is ahead of a step less the mean over all steps
 * of the batch, in its standard deviations (Williams, 1992, section 3: any baseline that no single
 * action has made leaves the gradient's direction; that of a whole batch nearly does).
 */
#ifndef TY_EXECUTE_EPISODES_H
#define TY_EXECUTE_EPISODES_H

#include "corridor.h"
#include "device.h"

#define EPISODE_DISCOUNT 0.9

/** A micro-batch's, in one piece of count * ty_workload_episode_bytes. */
typedef struct episodes {
    uint32_t count, steps;
    float *seen;       /* [count][steps][CORRIDOR_RAYS] */
    int32_t *actions;  /* [count][steps] */
    float *advantages; /* [count][steps] */
    float *scores;     /* [count]: corridor_score at the end */
} episodes;
/** The parts of a piece of memory. */
episodes episodes_in(void *memory, uint32_t count, uint32_t steps);

/** What playing needs beside a device: ty_workload_step_make of the workload, opened for `count`
 * samples in one slot, its layers but the loss. */
typedef struct episode_player {
    const ty_device_backend *backend;
    ty_stage_device *device;
    const ty_workload *policy;
    uint32_t count;
    corridor *robots; /* [count] */
} episode_player;
ty_status episode_player_open(const ty_device_backend *backend, ty_stage_options options,
                              const ty_workload *policy, episode_player *out,
                              ty_error *error) TY_MUST_CHECK;
void episode_player_close(episode_player *player);

/** Seed of the corridor of an episode, numbered through the step's batch; and where in the softmax
 * its action of time `t` is, 0 <= x < 1: the first action at which the sum of probabilities is
 * above. */
uint64_t episode_corridor(uint64_t seed, uint32_t step, uint64_t episode);
double episode_draw(uint64_t seed, uint32_t step, uint64_t episode, uint32_t t);

/**
 * Plays episodes [first, first + player->count) of a step's batch with the weights that the player
 * has. All follows from seed, step, an episode's number and the weights.
 * @param out [out] of player->count
 */
ty_status episodes_play(const episode_player *player, uint64_t seed, uint32_t step, uint64_t first,
                        const episodes *out, ty_error *error) TY_MUST_CHECK;

/** Corridors [first, first + count) of those that policies are tested in (evolution_test_corridor),
 * count <= player->count, with the likeliest action each time.
 * @param scores,touches [out] [count] */
ty_status episodes_test(const episode_player *player, uint32_t first, uint32_t count,
                        uint32_t steps, double *scores, uint32_t *touches,
                        ty_error *error) TY_MUST_CHECK;

#endif
