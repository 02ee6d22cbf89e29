/** @file byte_pairs.h  Learning byte pairs from a text. Internal to core/; see tokens.h. */
#ifndef TY_BYTE_PAIRS_H
#define TY_BYTE_PAIRS_H

#include "ty_base.h"

#include <stddef.h>
#include <stdint.h>

typedef struct byte_pairs {
    uint32_t (*pairs)[2]; /* [pair_count]: token 256 + i stands for pairs[i] */
    uint32_t pair_count;
    uint32_t *tokens; /* [count]: the text */
    uint64_t count;
} byte_pairs;

/** Learns at most `most` pairs, each with at least two occurrences when it was added. */
ty_status ty_byte_pairs_learn(const char *text, size_t length, uint32_t most, byte_pairs *out,
                              ty_error *error) TY_MUST_CHECK;
void ty_byte_pairs_clear(byte_pairs *pairs);

#endif
