/**
 * @file attention_scratch.h
 * What the backward of attention works in on GPUs: planners count it, and tests hold it against the
 * plans that cuDNN makes. Included by both, C and CUDA.
 */
#ifndef ATTENTION_SCRATCH_H
#define ATTENTION_SCRATCH_H

#include <stdbool.h>
#include <stdint.h>

/** Where cuDNN would work in more, the worker's own kernels do all of it, in none. */
#define TY_ATTENTION_SCRATCH_LIMIT (UINT64_C(2) << 30)

/**
 * Bytes by cuDNN 9.19. In any order (the default): the gradients of queries in floats, on Ampere
 * twice. In a fixed order (`--deterministic`): a gradient of every score in 16 bits, queries
 * rounded up to 64 and keys to 128. If heads share keys, also the gradients of keys and values for
 * each head in 16 bits; in both a few numbers per row.
 * @param heads,kv_heads of one rank
 * @param length,keys queries and keys per sequence
 */
static inline uint64_t ty_attention_scratch(uint64_t samples, uint64_t heads, uint64_t kv_heads,
                                            uint64_t head_size, uint64_t length, uint64_t keys,
                                            bool is_ordered)
{
    const uint64_t sums = is_ordered ? samples * heads * length * keys * sizeof(uint16_t)
                                     : 2 * samples * heads * length * head_size * sizeof(float);
    const uint64_t shared = heads == kv_heads ? 0 : 2 * samples * heads * keys * head_size;

    return sums + shared * sizeof(uint16_t);
}

#endif
