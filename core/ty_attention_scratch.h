/**
 * @file ty_attention_scratch.h
 * What the backward of attention works in on GPUs: planners count it, and tests hold it against the
 * plans that cuDNN makes. Included by both, C and CUDA.
 */
#ifndef TY_ATTENTION_SCRATCH_H
#define TY_ATTENTION_SCRATCH_H

#include <stdint.h>

/** Where cuDNN would work in more, the worker's own kernels do all of it, in none. */
#define TY_ATTENTION_SCRATCH_LIMIT (UINT64_C(2) << 30)

/**
 * Bytes of the form that sums in a fixed order, in 16 bits: a gradient of every score between two
 * kernels, and where heads share keys those of both for each head. Plans of cuDNN 9.19 round
 * queries up to 64 and keys to 128, and have a few numbers a row besides.
 * @param heads,kv_heads of one lane
 * @param length,keys tokens that ask, and are asked
 */
static inline uint64_t ty_attention_scratch(uint64_t samples, uint64_t heads, uint64_t kv_heads,
                                            uint64_t head_size, uint64_t length, uint64_t keys)
{
    const uint64_t scores = samples * heads * length * keys;
    const uint64_t shared = heads == kv_heads ? 0 : 2 * samples * heads * keys * head_size;

    return (scores + shared) * sizeof(uint16_t);
}

#endif
