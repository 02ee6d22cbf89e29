/*
 * Minus one, zero or one times the largest magnitude: TernGrad, Wen et al., NeurIPS 2017, in groups
 * in place of their layers. Elements are clipped to 2.5 deviations first, as they do; but for that
 * it is unbiased: an element is sent with the probability that its magnitude is of the scale.
 * Two bits each: sent, negative. Byte j of a group holds elements j, j + q, j + 2q, j + 3q, q being
 * a quarter of the group, so that packing is vector code.
 */
#include "codec_kinds.h"

#define CLIPPED_DEVIATIONS 2.5f
enum { PER_BYTE = 4, GROUP_BYTES = TY_COMPRESSION_GROUP / PER_BYTE };

/* The smaller of the largest magnitude and 2.5 deviations around zero; NaN if there is one. */
CPU_INLINE float scale_of(uint64_t count, const float *values)
{
    const uint32_t largest = codec_largest(count, values);
    const float maximum = float_of_bits(largest);
    float squares = 0.0f, clip;

    if (largest >= CODEC_INFINITY)
        return NAN;
    if (!(maximum >= FLT_MIN)) /* too small to be divided by */
        return 0.0f;
#pragma omp simd reduction(+ : squares)
    for (uint64_t i = 0; i < count; i++)
        squares += (values[i] / maximum) * (values[i] / maximum);
    clip = CLIPPED_DEVIATIONS * maximum * sqrtf(squares / (float)count);
    return clip < maximum ? clip : maximum;
}

CPU_CLONES static void ternary_encode(uint64_t count, const float *restrict values, uint32_t key,
                                      float *restrict scale, uint8_t *restrict codes)
{
    const uint64_t quarter = (count + PER_BYTE - 1) / PER_BYTE;
    uint8_t each[TY_COMPRESSION_GROUP] = {0};

    *scale = scale_of(count, values);
    if (!(*scale > 0.0f)) {
        memset(codes, 1, quarter);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        float share = codec_uniform(codec_hash(key + (uint32_t)i)) * *scale;
        uint32_t is_sent = fabsf(values[i]) > share;
        each[i] = (uint8_t)(is_sent | (bits_of_float(values[i]) >> 31 & is_sent) << 1);
    }
    for (uint64_t j = 0; j < quarter; j++)
        codes[j] = (uint8_t)(each[j] | each[j + quarter] << 2 | each[j + 2 * quarter] << 4 |
                             each[j + 3 * quarter] << 6);
}

CPU_CLONES static void ternary_add(uint64_t count, float scale, const uint8_t *restrict codes,
                                   float *restrict sums)
{
    const uint64_t quarter = (count + PER_BYTE - 1) / PER_BYTE;

    for (uint64_t part = 0; part * quarter < count; part++) {
        const uint64_t first = part * quarter;
        const uint64_t size = count - first < quarter ? count - first : quarter;
        const unsigned shift = (unsigned)(2 * part);
        for (uint64_t j = 0; j < size; j++) {
            int32_t code = codes[j] >> shift & 3;
            sums[first + j] += scale * (float)((code & 1) - (code & 2));
        }
    }
}

static void encode(ty_codec *codec, const float *gradients)
{
    codec_groups_encode(codec, gradients, GROUP_BYTES, ternary_encode);
}

static void decode(ty_codec *codec, float *gradients)
{
    codec_groups_decode(codec, gradients, GROUP_BYTES, ternary_add);
}

const codec_kind codec_ternary = {.encode = {encode}, .decode = decode};
