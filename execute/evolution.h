/**
 * @file evolution.h
 * Evolution strategies: a population is played in an environment, scores are exchanged, and every
 * replica moves its copy of the shared parameters by all members' noise. Internal to execute/.
 *
 * Source: Salimans et al., "Evolution Strategies as a Scalable Alternative to Reinforcement
 * Learning", arXiv:1703.03864: algorithm 2, with mirrored members (2n and 2n + 1 have opposite
 * noise) and scores replaced by their centred ranks (section 2). All members of a step play in the
 * same corridor (corridor.h), another one in each step.
 */
#ifndef TY_EXECUTE_EVOLUTION_H
#define TY_EXECUTE_EVOLUTION_H

#include "device.h"

/** What is exchanged of a member. */
typedef struct evolution_score {
    float score;
    uint32_t seed; /* of its noise; the lowest bit is its sign */
} evolution_score;

/**
 * ty_workload_step_make, of what the worker can play; the scores of actions leave the stage where
 * it ends before the loss.
 * @return TY_EUNSUPPORTED, TY_EINVAL: the worker cannot play it
 */
ty_status evolution_policy_make(const ty_workload *workload, ty_workload **out,
                                ty_error *error) TY_MUST_CHECK;

/** The member's seed, by its place in the batch. */
uint32_t evolution_seed(uint64_t seed, uint32_t step, uint64_t member);
/** Standard normal noise [first, first + count) of a member's parameters, without its sign. */
void evolution_noise(uint32_t member_seed, uint64_t first, uint64_t count, float *out);
/** Seed of the corridor of a step, and of the n-th that a policy is tested in. */
uint64_t evolution_corridor(uint64_t seed, uint32_t step);
uint64_t evolution_test_corridor(uint32_t n);
enum { EVOLUTION_TESTS = 100 };

/**
 * Plays an episode with the parameters that the device has.
 * @param touches [out] of walls
 */
ty_status evolution_play(const ty_device_backend *backend, ty_stage_device *device,
                         const ty_workload *policy, uint64_t corridor_seed, uint32_t steps,
                         double *score, uint32_t *touches, ty_error *error) TY_MUST_CHECK;

/** Centred ranks, -1/2 to 1/2; equal scores have the mean of theirs. @param ranks [out] [count] */
void evolution_rank(const evolution_score *scores, uint64_t count, float *ranks);
/**
 * What descends: -1 / (count deviation) sum of rank x sign x noise, of parameters [first, first +
 * parameter_count), in the order of members. @param noise room for parameter_count
 */
void evolution_gradient(const evolution_score *scores, const float *ranks, uint64_t count,
                        double deviation, uint64_t first, uint64_t parameter_count, float *noise,
                        float *gradient);

#endif
