/**
 * @file token_runs.h
 * The tokens of a sequence that a rank has, and the keys that they see under a causal mask: plain
 * arithmetic, the same for the host and for kernels. Internal to execute/.
 */
#ifndef TY_EXECUTE_TOKEN_RUNS_H
#define TY_EXECUTE_TOKEN_RUNS_H

#include <stdint.h>

#ifdef __CUDACC__
#define TOKEN_FUNCTION static __host__ __device__ __forceinline__
#else
#define TOKEN_FUNCTION static inline
#endif

enum { TOKEN_MOST_RUNS = 2 };

/** `count` runs of `length` tokens, one after the other, from the positions `starts` of their
 * sequence, ascending. Without context parallelism a rank has one run, of all tokens. */
typedef struct token_runs {
    uint32_t count;
    uint64_t length, starts[TOKEN_MOST_RUNS];
} token_runs;

/** The position in the sequence of the rank's `token`-th token. */
TOKEN_FUNCTION uint64_t token_place(const token_runs *runs, uint64_t token)
{
    return token < runs->length ? runs->starts[0] + token /* a division would cost kernels more */
                                : runs->starts[1] + token - runs->length;
}

/** The first token that is not before position `place`, or the number of tokens: the first query
 * that sees the key there. */
TOKEN_FUNCTION uint64_t token_from(const token_runs *runs, uint64_t place)
{
    for (uint32_t r = 0; r < runs->count; r++)
        if (place < runs->starts[r] + runs->length)
            return r * runs->length + (place > runs->starts[r] ? place - runs->starts[r] : 0);
    return runs->count * runs->length;
}

#endif
