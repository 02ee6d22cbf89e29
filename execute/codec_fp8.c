/*
 * 8-bit floats, E4M3 and E5M2, of Micikevicius et al., "FP8 formats for deep learning", 2022, in
 * groups that are scaled so that the largest magnitude is the format's largest number. Rounding to
 * nearest, ties to even. As in codec_fp16.c, but nothing can overflow.
 */
#include "codec_kinds.h"

/* Fraction bits, exponent bias, largest number. */
enum { E4M3_FRACTION = 3, E4M3_BIAS = 7, E5M2_FRACTION = 2, E5M2_BIAS = 15 };
#define E4M3_LARGEST 448.0f
#define E5M2_LARGEST 57344.0f

enum { FLOAT_FRACTION = 23, FLOAT_BIAS = 127 };

CPU_INLINE uint8_t to_fp8(float value, uint32_t fraction, uint32_t bias)
{
    const uint32_t dropped = FLOAT_FRACTION - fraction;
    const uint32_t smallest_normal = (FLOAT_BIAS + 1 - bias) << FLOAT_FRACTION;
    const uint32_t shifter = (FLOAT_BIAS + 1 - bias + dropped) << FLOAT_FRACTION;
    const uint32_t rebias = (FLOAT_BIAS - bias) << FLOAT_FRACTION;
    uint32_t bits = bits_of_float(value), magnitude = bits & CODEC_MAGNITUDE;
    uint32_t small = bits_of_float(float_of_bits(magnitude) + float_of_bits(shifter)) - shifter;
    uint32_t half = (1u << (dropped - 1)) - 1;
    uint32_t normal = (magnitude - rebias + half + (magnitude >> dropped & 1u)) >> dropped;

    return (uint8_t)((magnitude < smallest_normal ? small : normal) | bits >> 31 << 7);
}

CPU_INLINE float of_fp8(uint8_t code, uint32_t fraction, uint32_t bias)
{
    const uint32_t dropped = FLOAT_FRACTION - fraction;
    uint32_t magnitude = ((uint32_t)code & 127u) << dropped;
    uint32_t normal = magnitude + ((FLOAT_BIAS - bias) << FLOAT_FRACTION);
    float one = float_of_bits((FLOAT_BIAS + 1 - bias) << FLOAT_FRACTION);
    uint32_t small =
        bits_of_float(float_of_bits(magnitude + ((FLOAT_BIAS + 1 - bias) << FLOAT_FRACTION)) - one);
    uint32_t bits = magnitude >> FLOAT_FRACTION == 0 ? small : normal;

    return float_of_bits(bits | ((uint32_t)code & 128u) << 24);
}

/* The scale of a group, and its inverse; false where there is nothing but zeros or no number. */
CPU_INLINE bool scale_of(uint64_t count, const float *values, float largest_code, float *scale,
                         float *inverse)
{
    const uint32_t largest = codec_largest(count, values);
    const float maximum = float_of_bits(largest);

    *scale = largest >= CODEC_INFINITY ? NAN : maximum / largest_code;
    *inverse = largest_code / maximum;
    return *scale > 0.0f && *inverse <= FLT_MAX;
}

/* Nothing to tell: zeros, or a scale that is not a number. */
static void encode_nothing(uint64_t count, float *scale, uint8_t *codes)
{
    *scale = isnan(*scale) ? NAN : 0.0f;
    memset(codes, 1, count);
}

/* One group in a format that is a constant where this is called. */
CPU_INLINE void encode_group(uint64_t count, const float *restrict values, uint32_t fraction,
                             uint32_t bias, float largest_code, float *restrict scale,
                             uint8_t *restrict codes)
{
    float inverse;

    if (!scale_of(count, values, largest_code, scale, &inverse)) {
        encode_nothing(count, scale, codes);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        codes[i] = to_fp8(values[i] * inverse, fraction, bias);
}

CPU_CLONES static void e4m3_encode(uint64_t count, const float *restrict values, uint32_t key,
                                   float *restrict scale, uint8_t *restrict codes)
{
    (void)key;
    encode_group(count, values, E4M3_FRACTION, E4M3_BIAS, E4M3_LARGEST, scale, codes);
}

CPU_CLONES static void e5m2_encode(uint64_t count, const float *restrict values, uint32_t key,
                                   float *restrict scale, uint8_t *restrict codes)
{
    (void)key;
    encode_group(count, values, E5M2_FRACTION, E5M2_BIAS, E5M2_LARGEST, scale, codes);
}

CPU_CLONES static void e4m3_add(uint64_t count, float scale, const uint8_t *restrict codes,
                                float *restrict sums)
{
    for (uint64_t i = 0; i < count; i++)
        sums[i] += scale * of_fp8(codes[i], E4M3_FRACTION, E4M3_BIAS);
}

CPU_CLONES static void e5m2_add(uint64_t count, float scale, const uint8_t *restrict codes,
                                float *restrict sums)
{
    for (uint64_t i = 0; i < count; i++)
        sums[i] += scale * of_fp8(codes[i], E5M2_FRACTION, E5M2_BIAS);
}

static void encode_e4m3(ty_codec *codec, const float *gradients)
{
    codec_groups_encode(codec, gradients, TY_COMPRESSION_GROUP, e4m3_encode);
}

static void decode_e4m3(ty_codec *codec, float *gradients)
{
    codec_groups_decode(codec, gradients, TY_COMPRESSION_GROUP, e4m3_add);
}

static void encode_e5m2(ty_codec *codec, const float *gradients)
{
    codec_groups_encode(codec, gradients, TY_COMPRESSION_GROUP, e5m2_encode);
}

static void decode_e5m2(ty_codec *codec, float *gradients)
{
    codec_groups_decode(codec, gradients, TY_COMPRESSION_GROUP, e5m2_add);
}

const codec_kind codec_fp8_e4m3 = {.encode = {encode_e4m3}, .decode = decode_e4m3};
const codec_kind codec_fp8_e5m2 = {.encode = {encode_e5m2}, .decode = decode_e5m2};
