/* Random disturbances of a run: jitter and stragglers. */
#include "disturbance.h"
#include "ty_simulate.h"

#include <math.h>

#define TWO_PI 6.283185307179586

/* Of SimuMax's straggler model, see ty_straggler_law. */
#define STRAGGLER_WEIGHT 0.09

/* The use of a number: different uses get different numbers. */
enum { JITTER, SPREAD, CHANCE };

/* One number from several, spread evenly: SplitMix64 (Steele, Lea, Flood, 2014) of each in turn. */
static uint64_t scramble(uint64_t state, uint64_t value)
{
    uint64_t z = state + value * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Above 0, at most 1. */
static double uniform(uint64_t bits)
{
    return ((double)(bits >> 11) + 1.0) * 0x1p-53;
}

/* Box and Muller, 1958. */
static double log_normal(double deviation, uint64_t bits)
{
    const double normal =
        sqrt(-2.0 * log(uniform(bits))) * cos(TWO_PI * uniform(scramble(bits, 1)));
    return exp(deviation * normal);
}

double ty_jitter(double deviation, uint64_t seed, uint32_t rank, uint32_t step,
                 uint32_t instruction)
{
    if (deviation <= 0.0)
        return 1.0;
    return log_normal(
        deviation, scramble(scramble(scramble(scramble(JITTER, seed), rank), step), instruction));
}

double ty_spread(double deviation, uint64_t seed, uint32_t rank)
{
    return deviation <= 0.0 ? 1.0 : log_normal(deviation, scramble(scramble(SPREAD, seed), rank));
}

double ty_uniform(uint64_t seed, uint32_t n)
{
    return uniform(scramble(scramble(CHANCE, seed), n));
}

double ty_straggler_law(uint32_t members)
{
    const double l = members > 1 ? log2((double)members) : 0.0;
    return 1.0 + l / (l + 1.0) * STRAGGLER_WEIGHT * sqrt(l);
}
