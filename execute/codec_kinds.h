/** @file codec_kinds.h  Inside the compressors: one struct of functions per kind. */
#ifndef TY_EXECUTE_CODEC_KINDS_H
#define TY_EXECUTE_CODEC_KINDS_H

#include "codec.h"
#include "cpu_math.h"

typedef struct codec_kind {
    ty_status (*open)(ty_codec *codec, ty_error *error); /* NULL: nothing to allocate */
    void (*encode[TY_MOST_PHASES])(ty_codec *codec, const float *gradients);
    void (*decode)(ty_codec *codec, float *gradients);
    ty_element element; /* of what is summed */
    bool keeps_payload; /* the last phase's is where the next step begins */
} codec_kind;

enum { CODEC_MOST_ARRAYS = 3 };

struct ty_codec {
    const codec_kind *kind;
    ty_codec_options options; /* matrices: a copy */
    ty_gradient_extent extent;
    uint32_t steps_begun;                   /* wraps */
    uint32_t step;                          /* in hand; counts from 0, wraps */
    void *payloads[TY_MOST_PHASES];         /* of all members where they are gathered */
    uint64_t payload_bytes[TY_MOST_PHASES]; /* of this member in the step in hand */
    /* Kept from step to step, [array_counts] floats each, zero at first; each kind says which. */
    float *arrays[CODEC_MOST_ARRAYS];
    uint64_t array_counts[CODEC_MOST_ARRAYS];
};

extern const codec_kind codec_fp16, codec_bf16, codec_fp8_e4m3, codec_fp8_e5m2, codec_int8,
    codec_ternary, codec_one_bit, codec_top_k, codec_top_k_sampled, codec_random_k, codec_dgc,
    codec_powersgd, codec_rows;

/** Adds an array of zeros to a compressor that is being opened. */
ty_status codec_array_add(ty_codec *codec, uint64_t count, ty_error *error) TY_MUST_CHECK;
/** Where this member's payload of a phase begins. */
void *codec_own_payload(const ty_codec *codec, uint32_t phase);
/** Where member `member`'s begins, once it was gathered. */
const void *codec_payload_of(const ty_codec *codec, uint32_t phase, uint32_t member);

/* Rounding to nearest, ties to even; overflow gives infinity, NaN stays NaN. */
void half_from_float(uint64_t count, const float *from, uint16_t *to);
void half_to_float(uint64_t count, const uint16_t *from, float *to);
void bfloat_from_float(uint64_t count, const float *from, uint16_t *to);
void bfloat_to_float(uint64_t count, const uint16_t *from, float *to);

/* ---- Bits -------------------------------------------------------------------------------- */

CPU_INLINE float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

CPU_INLINE uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

#define CODEC_MAGNITUDE 0x7fffffffu
#define CODEC_INFINITY 0x7f800000u /* magnitudes from here on are not finite */

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

/* ---- Random numbers ---------------------------------------------------------------------- */

/** Scrambles 32 bits so that neighbours have nothing to do with each other: "lowbias32" of C.
 *  Wellons, hash-prospector, 2018 (public domain). Two multiplications, so that it vectorises. */
CPU_INLINE uint32_t codec_hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

/** Uniform in [0, 1), in steps of 2^-24. */
CPU_INLINE float codec_uniform(uint32_t hash)
{
    return (float)(int32_t)(hash >> 8) * 0x1p-24f;
}

/** The key of a step's random numbers: alike on all members, or each member's own. */
uint32_t codec_shared_key(const ty_codec *codec);
uint32_t codec_own_key(const ty_codec *codec);

/* ---- Groups with a scale (codec_groups.c) ------------------------------------------------ */

/**
 * Codes of up to TY_COMPRESSION_GROUP elements; numbers that are not finite make the scale NaN, so
 * that they are not lost. `key` is that of the group's first element, the next one's is larger
 * by 1.
 */
typedef void (*codec_group_encode)(uint64_t count, const float *values, uint32_t key, float *scale,
                                   uint8_t *codes);
/** sums += scale * what the codes stand for. */
typedef void (*codec_group_add)(uint64_t count, float scale, const uint8_t *codes, float *sums);

/* A payload is all scales and then all codes, `group_bytes` of them for each whole group. */
void codec_groups_encode(ty_codec *codec, const float *gradients, uint64_t group_bytes,
                         codec_group_encode encode);
void codec_groups_decode(ty_codec *codec, float *gradients, uint64_t group_bytes,
                         codec_group_add add);

/* ---- Selection (codec_select.c) ---------------------------------------------------------- */

typedef struct codec_pair {
    uint32_t index;
    float value;
} codec_pair;
#define CODEC_NO_INDEX UINT32_MAX /* of pairs and rows that are not used */

/** Bits of a magnitude that separates the largest from the others. */
typedef struct codec_threshold {
    uint32_t bits;
    uint64_t ties; /* how many of the elements equal to it belong to the largest */
} codec_threshold;

/** The k-th largest magnitude, exactly, in linear time. @param scratch [count] */
codec_threshold codec_threshold_exact(uint64_t count, const float *values, uint64_t k,
                                      uint32_t *scratch);
/**
 * One that about k elements reach, by a sample; never more than k. Lin et al., "Deep gradient
 * compression", ICLR 2018, section 3 and the authors' code: 1 % are looked at, the threshold is
 * lowered while fewer than 0.8 k reach it, and where more than k do, the largest k of those are
 * found. @param scratch [count]
 */
codec_threshold codec_threshold_sampled(uint64_t count, const float *values, uint64_t k,
                                        uint32_t key, uint32_t *scratch);
/** The elements above the threshold as pairs, in the order of their indices, and zeroes them;
 *  returns how many. */
uint64_t codec_take(uint64_t count, codec_threshold threshold, float *values, codec_pair *out);
/** Sums gathered pairs; indices from other ranks are believed only if they fit. */
void codec_pairs_decode(ty_codec *codec, float *gradients);
/** target += source. */
void codec_add(uint64_t count, const float *source, float *target);

#endif
