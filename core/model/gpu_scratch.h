/**
 * @file gpu_scratch.h
 * Sizes of scratch memory on GPUs, which planners count and the worker's GPU backend allocates or
 * limits. Included by C and CUDA.
 */
#ifndef GPU_SCRATCH_H
#define GPU_SCRATCH_H

#include <stdint.h>

/** If cuDNN's attention needs more scratch, the worker's own kernels run, which need none. */
#define TY_ATTENTION_SCRATCH_LIMIT (UINT64_C(2) << 30)
/** Scratch of a convolution's engine; in fp32 in addition to both images, copied as planes. */
#define TY_CONVOLUTION_SCRATCH_LIMIT (UINT64_C(256) << 20)

/** The fewest rows of one expert; rows without a token are zeros. */
#define TY_LEAST_EXPERT_ROWS 16

/** The most rows of `copies` of tokens for `experts`: the rows of each are rounded up to an eighth
 * of them or to TY_LEAST_EXPERT_ROWS. */
static inline uint64_t ty_expert_rows(uint64_t copies, uint64_t experts)
{
    return copies + copies / 8 + (copies < experts ? copies : experts) * TY_LEAST_EXPERT_ROWS;
}

/**
 * Rows that one of `ranks` expert-parallel ranks allocates: all that may arrive at its experts if
 * every token chooses the same. Copies are sent with their sender's zeros, and the receiver pads
 * them again.
 * @param rows tokens of a rank
 * @param chosen experts per token
 */
static inline uint64_t ty_rank_expert_rows(uint64_t rows, uint64_t chosen, uint64_t experts,
                                           uint64_t ranks)
{
    const uint64_t here = experts / ranks;

    return ranks == 1
               ? ty_expert_rows(rows * chosen, experts)
               : ty_expert_rows(
                     ranks * ty_expert_rows(rows * (chosen < here ? chosen : here), here), here);
}

#endif
