/**
 * @file codec_kinds.h
 * Internals of the compressors: one struct of functions per kind and backend. Payloads, state and
 * phases of a compressor are the same on every backend (codec.c, codec_layout.c). On the CPU a
 * kind's functions are loops (codec_*.c), on a GPU they queue kernels (cuda/cuda_codec_*.c).
 */
#ifndef TY_EXECUTE_CODEC_KINDS_H
#define TY_EXECUTE_CODEC_KINDS_H

#include "codec.h"
#include "codec_math.h"

typedef struct codec_kind {
    void (*encode[TY_MOST_PHASES])(ty_codec *codec, const float *gradients);
    void (*decode)(ty_codec *codec, float *gradients);
} codec_kind;

/** The device on which compressors compute, and its memory. */
typedef struct codec_backend {
    const codec_kind *kinds[TY_COMPRESSION_COUNT];   /* NULL: not a compressor */
    void *(*allocate)(void *device, uint64_t bytes); /* zeroed; NULL when there is none */
    void (*release)(void *device, void *memory);     /* NULL is ignored */
} codec_backend;

/* Arrays, by kind; docs/guides/compress-gradients.md describes them. */
enum {
    CODEC_RESIDUAL = 0,     /* top-k, random-k */
    CODEC_VELOCITY = 0,     /* dgc, */
    CODEC_SUM = 1,          /* and the sum of velocities */
    CODEC_MEMBER_ERROR = 0, /* one-bit: of all parts, */
    CODEC_OWNER_ERROR = 1,  /* and of the sum of this member's part */
    CODEC_ERRORS = 0,       /* powersgd: of all factored matrices, one after the other */
    CODEC_MOST_ARRAYS = 2
};

struct ty_codec {
    const codec_backend *backend;
    void *device; /* the backend's */
    const codec_kind *kind;
    ty_codec_options options; /* matrices: a copy */
    ty_gradient_extent extent;
    uint32_t steps_begun;                   /* wraps */
    uint32_t step;                          /* the current one; counts from 0, wraps */
    void *payloads[TY_MOST_PHASES];         /* of all members if they are gathered */
    uint64_t payload_bytes[TY_MOST_PHASES]; /* of this member in the current step */
    /* State from step to step, [array_counts] floats each, zero at first. */
    float *arrays[CODEC_MOST_ARRAYS];
    uint64_t array_counts[CODEC_MOST_ARRAYS];
    uint32_t *scratch;        /* [count], kinds that select: magnitudes; NULL for others */
    uint64_t allocated_bytes; /* payloads, arrays, scratch */
};

ty_status codec_open(const codec_backend *backend, void *device, const ty_codec_options *options,
                     ty_codec **out, ty_error *error) TY_MUST_CHECK;

/** Start of this member's payload of a phase. */
void *codec_own_payload(const ty_codec *codec, uint32_t phase);
/** Start of member `member`'s payload, once it was gathered. */
const void *codec_payload_of(const ty_codec *codec, uint32_t phase, uint32_t member);
/** The key of a step's random numbers: the same on all members, or each member's own. */
uint32_t codec_shared_key(const ty_codec *codec);
uint32_t codec_own_key(const ty_codec *codec);
/** Elements that the current step sends: top-k, random-k, dgc. */
uint64_t codec_kept(const ty_codec *codec);

/* ---- Layout of payloads and state (codec_layout.c) --------------------------------------- */

/** Groups that share a scale; the last one may be smaller. */
uint64_t codec_group_count(const ty_codec *codec);

/* One-bit: every member owns a part of the bucket, a multiple of a word; zeros follow the last
 * element. A part consists of groups, the last one maybe smaller; its payload is a scale for each,
 * then the words. Bit b of word w of a group of W words is the sign of element b W + w. */
enum { CODEC_WORD_BITS = 32 };
uint64_t codec_part_size(const ty_codec *codec);
uint64_t codec_part_groups(uint64_t part);
uint64_t codec_part_bytes(uint64_t part);
/** Elements of a member's part that belong to the bucket, without padding. */
uint64_t codec_part_real(const ty_codec *codec, uint32_t owner);

/** A factored matrix, and its offsets in the bucket, in the errors, in P and in Q. P is
 *  [rank][rows], Q is [rank][columns]. */
typedef struct codec_factored {
    uint64_t rows, columns, offset, m, p, q;
    uint32_t key; /* of random numbers for Q */
} codec_factored;
/** Goes through the factored matrices; `*index` and `*at` are zero at first. */
bool codec_next_factored(const ty_codec *codec, uint32_t *index, codec_factored *at);

/** A range of the bucket that is in no factored matrix. */
typedef struct codec_dense {
    uint64_t offset, count, at; /* in the bucket; `at`: after P in the payload */
} codec_dense;
/** Goes through those ranges, which may be empty; all three are zero at first. */
bool codec_next_dense(const ty_codec *codec, uint32_t *index, codec_factored *behind,
                      codec_dense *out);

/* ---- The CPU's (codec_cpu.c) --------------------------------------------------------------- */

#define CODEC_DECLARE(kind, symbol, name) extern const codec_kind codec_##symbol;
TY_COMPRESSIONS(CODEC_DECLARE)
#undef CODEC_DECLARE

/* Rounding to nearest, ties to even; overflow gives infinity, NaN stays NaN. */
void half_from_float(uint64_t count, const float *from, uint16_t *to);
void half_to_float(uint64_t count, const uint16_t *from, float *to);
void bfloat_from_float(uint64_t count, const float *from, uint16_t *to);
void bfloat_to_float(uint64_t count, const uint16_t *from, float *to);

/** target += source. */
void codec_add(uint64_t count, const float *source, float *target);

/** Bits of the largest magnitude; those of a NaN are larger than all others. */
CPU_INLINE uint32_t codec_largest(uint64_t count, const float *values)
{
    int32_t largest = 0;
    for (uint64_t i = 0; i < count; i++) {
        int32_t magnitude = (int32_t)(bits_of_float(values[i]) & CODEC_MAGNITUDE);
        largest = magnitude > largest ? magnitude : largest;
    }
    return (uint32_t)largest;
}

/** Sum of CODEC_SUM_LANES partial sums. */
CPU_INLINE float codec_lanes_sum(float *lanes)
{
    for (uint32_t width = CODEC_SUM_LANES / 2; width > 0; width /= 2)
        for (uint32_t l = 0; l < width; l++)
            lanes[l] += lanes[l + width];
    return lanes[0];
}

/* ---- Groups with a scale (codec_groups.c) ------------------------------------------------ */

/**
 * Codes of up to TY_COMPRESSION_GROUP elements; numbers that are not finite make the scale NaN, so
 * that they are not lost. `key` is the group's first element's; each next one's is larger by 1.
 */
typedef void (*codec_group_encode)(uint64_t count, const float *values, uint32_t key, float *scale,
                                   uint8_t *codes);
/** sums += scale * values of the codes. */
typedef void (*codec_group_add)(uint64_t count, float scale, const uint8_t *codes, float *sums);

/* A payload is all scales and then all codes, `group_bytes` of them for each full group. */
void codec_groups_encode(ty_codec *codec, const float *gradients, uint64_t group_bytes,
                         codec_group_encode encode);
void codec_groups_decode(ty_codec *codec, float *gradients, uint64_t group_bytes,
                         codec_group_add add);

/* ---- Selection (codec_select.c) ---------------------------------------------------------- */

/** Bits of a magnitude that separates the largest from the others. */
typedef struct codec_threshold {
    uint32_t bits;
    uint64_t ties; /* number of elements equal to it that belong to the largest */
} codec_threshold;

/** The k-th largest magnitude, exactly, in linear time. @param scratch [count] */
codec_threshold codec_threshold_exact(uint64_t count, const float *values, uint64_t k,
                                      uint32_t *scratch);
/**
 * A threshold that about k elements reach, from a sample; never more than k. Lin et al., "Deep
 * gradient compression", ICLR 2018, section 3 and the authors' code: samples 1 %, lowers the
 * threshold while fewer than 0.8 k reach it, and if more than k do, finds the largest k of those.
 * @param scratch [count]
 */
codec_threshold codec_threshold_sampled(uint64_t count, const float *values, uint64_t k,
                                        uint32_t key, uint32_t *scratch);
/** Writes the elements above the threshold as pairs, in the order of their indices, and zeroes
 * them; returns their number. */
uint64_t codec_take(uint64_t count, codec_threshold threshold, float *values, codec_pair *out);
/** Sums gathered pairs; ignores indices from other ranks that are out of range. */
void codec_pairs_decode(ty_codec *codec, float *gradients);

#endif
