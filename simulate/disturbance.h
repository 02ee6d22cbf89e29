/* Random disturbances of a run: numbers that depend only on a seed and on their use. */
#ifndef TY_DISTURBANCE_H
#define TY_DISTURBANCE_H

#include <stdint.h>

/** The factor of an instruction's compute time: log-normal, median 1, a function of its arguments
 * only. */
double ty_jitter(double deviation, uint64_t seed, uint32_t rank, uint32_t step,
                 uint32_t instruction);
/** The factor of all compute of a rank: log-normal, median 1. */
double ty_spread(double deviation, uint64_t seed, uint32_t rank);
/** The n-th number above 0 and at most 1. */
double ty_uniform(uint64_t seed, uint32_t n);

#endif
