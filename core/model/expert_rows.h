/**
 * @file expert_rows.h
 * Rows of copies of tokens that go to experts, as GPUs have room for them: planners count them,
 * and the worker's GPU backend allocates them. Included by both, C and CUDA.
 */
#ifndef EXPERT_ROWS_H
#define EXPERT_ROWS_H

#include <stdint.h>

/** Copies of one expert are so many at least, the rest of them zeros. */
#define TY_LEAST_EXPERT_ROWS 16

/** Most rows of so many copies for so many experts, each expert's rounded up to an eighth of them
 * or to TY_LEAST_EXPERT_ROWS. */
static inline uint64_t ty_expert_rows(uint64_t copies, uint64_t experts)
{
    return copies + copies / 8 + (copies < experts ? copies : experts) * TY_LEAST_EXPERT_ROWS;
}

/**
 * Rows that one of `lanes` has room for: all that may come to its experts, of tokens that all
 * choose the same. Copies travel with the zeros of their lane, and are padded again where they
 * arrive.
 * @param rows tokens of a lane
 * @param chosen experts of a token
 */
static inline uint64_t ty_lane_expert_rows(uint64_t rows, uint64_t chosen, uint64_t experts,
                                           uint64_t lanes)
{
    const uint64_t here = experts / lanes;

    return lanes == 1
               ? ty_expert_rows(rows * chosen, experts)
               : ty_expert_rows(
                     lanes * ty_expert_rows(rows * (chosen < here ? chosen : here), here), here);
}

#endif
