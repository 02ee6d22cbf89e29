/**
 * @file codec_math.h
 * Arithmetic of compressors on one element or one group: formats, random numbers, thresholds. The
 * CPU's loops (codec_*.c) and the GPU's kernels (cuda/codec_*.cu) call the same functions. Both are
 * compiled without contraction of products and sums, and sum a group in one order, so that they
 * give the same bits. Compiled as C and as CUDA, there after kernel.cuh.
 */
#ifndef TY_EXECUTE_CODEC_MATH_H
#define TY_EXECUTE_CODEC_MATH_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
#define CODEC_INLINE static __host__ __device__ __forceinline__
#else
#include "cpu_math.h"
#define CODEC_INLINE CPU_INLINE
#endif

/* ---- Bits -------------------------------------------------------------------------------- */

#define CODEC_MAGNITUDE 0x7fffffffu
#define CODEC_INFINITY 0x7f800000u /* magnitudes from here on are not finite */

CODEC_INLINE float float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

CODEC_INLINE uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/** Bits of |value|: ordered like the magnitudes, those of a NaN above all others. */
CODEC_INLINE uint32_t codec_magnitude(float value)
{
    return bits_of_float(value) & CODEC_MAGNITUDE;
}

/* ---- Random numbers ---------------------------------------------------------------------- */

/** Scrambles 32 bits so that results of neighbors are unrelated: "lowbias32" of C. Wellons,
 *  hash-prospector, 2018 (public domain). Two multiplications, so that it vectorizes. */
CODEC_INLINE uint32_t codec_hash(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    x ^= x >> 16;
    return x;
}

/** Uniform in [0, 1), in steps of 2^-24. */
CODEC_INLINE float codec_uniform(uint32_t hash)
{
    return (float)(int32_t)(hash >> 8) * 0x1p-24f;
}

/* ---- Sums -------------------------------------------------------------------------------- */

/* A sum over a group is this many partial sums, each of every 32nd element; then halves of them are
 * added until one is left. They are the SIMD lanes of vector code, and the threads of a warp. */
enum { CODEC_SUM_LANES = 32 };

/* ---- Groups with a scale ----------------------------------------------------------------- */

/* 8-bit floats: fraction bits, exponent bias, largest number. */
enum {
    CODEC_E4M3_FRACTION = 3,
    CODEC_E4M3_BIAS = 7,
    CODEC_E5M2_FRACTION = 2,
    CODEC_E5M2_BIAS = 15
};
#define CODEC_E4M3_LARGEST 448.0f
#define CODEC_E5M2_LARGEST 57344.0f
#define CODEC_INT8_LARGEST 127.0f
#define CODEC_INT8_OFFSET 128.0f /* makes numbers positive before truncation */
#define CODEC_CLIPPED_DEVIATIONS 2.5f
/* Every code of a group without a scale: it has no value, and shows a scale that is NaN. */
enum { CODEC_NOTHING = 1, CODEC_TERNARY_PER_BYTE = 4 };

enum { CODEC_FLOAT_FRACTION = 23, CODEC_FLOAT_BIAS = 127 };

/**
 * The scale of a group whose largest magnitude has these bits, in a format whose largest number is
 * `largest_code`: NaN if an element is not finite, 0 if all are zeros or so small that the inverse
 * is infinite.
 */
CODEC_INLINE float codec_scale_of(uint32_t largest, float largest_code, float *inverse)
{
    const float maximum = float_of_bits(largest);

    *inverse = largest_code / maximum;
    if (largest >= CODEC_INFINITY)
        return NAN;
    return *inverse <= FLT_MAX ? maximum / largest_code : 0.0f;
}

/* Rounds a number of at most the format's largest to nearest, ties to even. */
CODEC_INLINE uint8_t codec_to_fp8(float value, uint32_t fraction, uint32_t bias)
{
    const uint32_t dropped = CODEC_FLOAT_FRACTION - fraction;
    const uint32_t smallest_normal = (CODEC_FLOAT_BIAS + 1 - bias) << CODEC_FLOAT_FRACTION;
    const uint32_t shifter = (CODEC_FLOAT_BIAS + 1 - bias + dropped) << CODEC_FLOAT_FRACTION;
    const uint32_t rebias = (CODEC_FLOAT_BIAS - bias) << CODEC_FLOAT_FRACTION;
    uint32_t bits = bits_of_float(value), magnitude = bits & CODEC_MAGNITUDE;
    uint32_t small = bits_of_float(float_of_bits(magnitude) + float_of_bits(shifter)) - shifter;
    uint32_t half = (1u << (dropped - 1)) - 1;
    uint32_t normal = (magnitude - rebias + half + (magnitude >> dropped & 1u)) >> dropped;

    return (uint8_t)((magnitude < smallest_normal ? small : normal) | bits >> 31 << 7);
}

CODEC_INLINE float codec_of_fp8(uint8_t code, uint32_t fraction, uint32_t bias)
{
    const uint32_t dropped = CODEC_FLOAT_FRACTION - fraction;
    const uint32_t one = (CODEC_FLOAT_BIAS + 1 - bias) << CODEC_FLOAT_FRACTION;
    uint32_t magnitude = ((uint32_t)code & 127u) << dropped;
    uint32_t normal = magnitude + ((CODEC_FLOAT_BIAS - bias) << CODEC_FLOAT_FRACTION);
    uint32_t small = bits_of_float(float_of_bits(magnitude + one) - float_of_bits(one));
    uint32_t bits = magnitude >> CODEC_FLOAT_FRACTION == 0 ? small : normal;

    return float_of_bits(bits | ((uint32_t)code & 128u) << 24);
}

/** Rounds up with a probability equal to the fraction cut off. */
CODEC_INLINE uint8_t codec_to_int8(float value, float inverse, uint32_t key)
{
    float level = value * inverse + CODEC_INT8_OFFSET + codec_uniform(codec_hash(key));
    int32_t code = (int32_t)level - (int32_t)CODEC_INT8_OFFSET;

    return (uint8_t)(int8_t)(code > 127 ? 127 : code);
}

CODEC_INLINE float codec_of_int8(uint8_t code)
{
    return (float)(int8_t)code;
}

/** Whether ternary's scale needs the sum of squares; else `*scale` is NaN or 0. */
CODEC_INLINE bool codec_ternary_has_scale(uint32_t largest, float *scale)
{
    *scale = largest >= CODEC_INFINITY ? NAN : 0.0f;
    return largest < CODEC_INFINITY && float_of_bits(largest) >= FLT_MIN;
}

/** The smaller of the largest magnitude and 2.5 deviations around zero. @param squares the sum of
 *  (value / maximum)^2 */
CODEC_INLINE float codec_ternary_scale(float maximum, uint64_t count, float squares)
{
    const float clip = CODEC_CLIPPED_DEVIATIONS * maximum * sqrtf(squares / (float)count);

    return clip < maximum ? clip : maximum;
}

/** Two bits: sent, with probability magnitude / scale; negative. */
CODEC_INLINE uint8_t codec_to_ternary(float value, float scale, uint32_t key)
{
    float share = codec_uniform(codec_hash(key)) * scale;
    uint32_t is_sent = fabsf(value) > share;

    return (uint8_t)(is_sent | (bits_of_float(value) >> 31 & is_sent) << 1);
}

CODEC_INLINE float codec_of_ternary(int32_t code)
{
    return (float)((code & 1) - (code & 2));
}

/** One-bit: plus or minus the scale. */
CODEC_INLINE float codec_signed(float scale, uint32_t sign)
{
    return float_of_bits(bits_of_float(scale) ^ sign << 31);
}

/* ---- Selection --------------------------------------------------------------------------- */

typedef struct codec_pair {
    uint32_t index;
    float value;
} codec_pair;
#define CODEC_NO_INDEX UINT32_MAX /* of pairs and rows that are not used */

/* 31 bits of magnitude in digits of 12, 11 and 8 bits, the highest first: the k-th largest is found
 * digit by digit. */
enum { CODEC_DIGITS = 3, CODEC_LARGEST_DIGIT = 4096 };

CODEC_INLINE unsigned codec_digit_shift(int digit)
{
    return digit == 0 ? 19 : digit == 1 ? 8 : 0;
}

CODEC_INLINE unsigned codec_digit_bits(int digit)
{
    return digit == 0 ? 12 : digit == 1 ? 11 : 8;
}

CODEC_INLINE uint32_t codec_digit_of(uint32_t bits, int digit)
{
    return bits >> codec_digit_shift(digit) & ((1u << codec_digit_bits(digit)) - 1);
}

/* Constants of deep gradient compression, from its authors' code (dgc/compression.py). The sample
   is larger than 1 % if that would leave few of the largest in it. */
#define CODEC_SAMPLED_SHARE 0.01
#define CODEC_LEAST_SAMPLED_RANK 32
#define CODEC_LEAST_FOUND 0.8
#define CODEC_LOWERED_BY 0.8f
enum { CODEC_MOST_LOWERINGS = 10 };

/** Every stride-th element from a random one on, and the rank in the sample that estimates the
 * k-th.
 */
typedef struct codec_sample {
    uint64_t first, stride, count, rank;
} codec_sample;

CODEC_INLINE codec_sample codec_sample_of(uint64_t count, uint64_t k, uint32_t key)
{
    double wanted = fmax(CODEC_SAMPLED_SHARE * (double)count,
                         (double)CODEC_LEAST_SAMPLED_RANK * (double)count / (double)k);
    codec_sample sample;

    sample.stride = wanted < (double)count ? (uint64_t)((double)count / wanted) : 1;
    sample.first = codec_hash(key) % sample.stride;
    sample.count = (count - 1 - sample.first) / sample.stride + 1;
    sample.rank = (uint64_t)ceil((double)k * (double)sample.count / (double)count);
    return sample;
}

/** The next lower threshold, if too few elements reached one. */
CODEC_INLINE uint32_t codec_lowered(uint32_t bits)
{
    return bits_of_float(float_of_bits(bits) * CODEC_LOWERED_BY);
}

CODEC_INLINE bool codec_is_enough(uint64_t reached, uint64_t k)
{
    return (double)reached >= CODEC_LEAST_FOUND * (double)k;
}

/** The index that random-k draws in stratum i of k. */
CODEC_INLINE uint64_t codec_place(uint64_t count, uint64_t k, uint64_t i, uint32_t key)
{
    uint64_t first = i * count / k, end = (i + 1) * count / k;

    return first + ((uint64_t)codec_hash(key + (uint32_t)i) * (end - first) >> 32);
}

/** Factor of dgc's gradient clipping. A member's gradient is its summand of the average: 1 /
 * members of the gradient that the paper clips. */
CODEC_INLINE float codec_clipping_scale(double members, double clip_norm, double squares)
{
    const double largest = clip_norm / sqrt(members) / members, norm = sqrt(squares);

    return norm > largest ? (float)(largest / norm) : 1.0f;
}

/* ---- PowerSGD ---------------------------------------------------------------------------- */

/* After a projection, a vector shorter than this share of its length is only rounding error. */
#define CODEC_NO_LENGTH 1e-5f

/** Factor that makes a vector's length 1 if projections left `after` of `before`; 0: nothing is
 * left. */
CODEC_INLINE float codec_unit_scale(float before, float after)
{
    return after > CODEC_NO_LENGTH * before ? 1.0f / after : 0.0f;
}

/** Whether a vector with this scale has no direction of its own. NaN has no length either, but must
 *  not be replaced by random numbers, so that it shows. */
CODEC_INLINE bool codec_is_lost(float before, float scale)
{
    return !(scale > 0.0f) && before >= 0.0f;
}

CODEC_INLINE float codec_drawn(uint32_t key, uint64_t i)
{
    return codec_uniform(codec_hash(key + (uint32_t)i)) - 0.5f;
}

#endif
