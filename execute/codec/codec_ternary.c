/*
 * Minus one, zero or one times the largest magnitude: TernGrad, Wen et al., NeurIPS 2017, in groups
 * instead of layers. Elements are first clipped to 2.5 deviations, as in the paper. Otherwise it is
 * unbiased: an element is sent with probability magnitude / scale.
 * Two bits each: sent, negative. Byte j of a group holds elements j, j + q, j + 2q, j + 3q, q being
 * a quarter of the group, so that packing is vector code.
 */
#include "codec_kinds.h"

enum { PER_BYTE = CODEC_TERNARY_PER_BYTE, GROUP_BYTES = TY_COMPRESSION_GROUP / PER_BYTE };

/* The smaller of the largest magnitude and 2.5 deviations around zero; NaN if there is one. */
CPU_INLINE float scale_of(uint64_t count, const float *values)
{
    const uint32_t largest = codec_largest(count, values);
    const float maximum = float_of_bits(largest);
    float lanes[CODEC_SUM_LANES] = {0}, scale;
    uint64_t i = 0;

    if (!codec_ternary_has_scale(largest, &scale))
        return scale;
    for (; i + CODEC_SUM_LANES <= count; i += CODEC_SUM_LANES)
        for (uint32_t l = 0; l < CODEC_SUM_LANES; l++)
            lanes[l] += (values[i + l] / maximum) * (values[i + l] / maximum);
    for (uint32_t l = 0; i + l < count; l++)
        lanes[l] += (values[i + l] / maximum) * (values[i + l] / maximum);
    return codec_ternary_scale(maximum, count, codec_lanes_sum(lanes));
}

CPU_CLONES static void ternary_encode(uint64_t count, const float *restrict values, uint32_t key,
                                      float *restrict scale, uint8_t *restrict codes)
{
    const uint64_t quarter = (count + PER_BYTE - 1) / PER_BYTE;
    uint8_t each[TY_COMPRESSION_GROUP] = {0};

    *scale = scale_of(count, values);
    if (!(*scale > 0.0f)) {
        memset(codes, CODEC_NOTHING, quarter);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        each[i] = codec_to_ternary(values[i], *scale, key + (uint32_t)i);
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
        for (uint64_t j = 0; j < size; j++)
            sums[first + j] += scale * codec_of_ternary(codes[j] >> shift & 3);
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
