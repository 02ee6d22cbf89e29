/**
 * @file corridor.h
 * A small environment: a robot in a winding corridor, which sees how far the walls are and steers.
 * Internal to execute/.
 *
 * The corridor's middle is a sum of two sines of x, whose amplitudes, lengths and phases follow
 * from a seed; its walls are half a width to either side. The robot begins in the middle, looking
 * along x, goes CORRIDOR_STRIDE in each step and may turn by CORRIDOR_TURN to either side before.
 * It sees CORRIDOR_RAYS distances to the walls, from 60 degrees to its right to 60 to its left, as
 * shares of the farthest distance that it sees. When it touches a wall it returns to the middle,
 * looking along x. An episode is a given number of steps. Its score is the distance along x, as a
 * share of the distance straight on, minus CORRIDOR_PENALTY for each touch. The same seed and the
 * same actions give the same numbers.
 */
#ifndef TY_EXECUTE_CORRIDOR_H
#define TY_EXECUTE_CORRIDOR_H

#include <stdint.h>

enum {
    CORRIDOR_RAYS = 9,
    CORRIDOR_ACTIONS = 3,   /* right, straight on, left */
    CORRIDOR_STEPS = 400,   /* most of an episode */
    CORRIDOR_POINTS = 2400, /* stored points of the middle */
};
#define CORRIDOR_STRIDE 0.2 /* the corridor is 2 wide */
#define CORRIDOR_TURN 0.2   /* radians */
#define CORRIDOR_PENALTY 0.05

typedef struct corridor {
    float middle[CORRIDOR_POINTS]; /* y, from before the start on, at equal distances along x */
    double x, y, heading;
    uint32_t steps, touches;
} corridor;

void corridor_begin(corridor *c, uint64_t seed);
/** @param rays [out] [CORRIDOR_RAYS], each 0 to 1 */
void corridor_observe(const corridor *c, float *rays);
/** @param action 0, 1 or 2: to the right, straight on, to the left */
void corridor_step(corridor *c, uint32_t action);
/** Score of the steps so far: at most 1. */
double corridor_score(const corridor *c);

#endif
