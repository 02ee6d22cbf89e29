/*
 * 8-bit integers with stochastic rounding: QSGD with 127 levels on each side of zero, Alistarh et
 * al., NeurIPS 2017, in groups with the largest magnitude as scale (their section 4, "bucketing").
 * Unbiased: an element is rounded up with a probability equal to the fraction cut off.
 */
#include "codec_kinds.h"

CPU_CLONES static void int8_encode(uint64_t count, const float *restrict values, uint32_t key,
                                   float *restrict scale, uint8_t *restrict codes)
{
    float inverse;

    *scale = codec_scale_of(codec_largest(count, values), CODEC_INT8_LARGEST, &inverse);
    if (!(*scale > 0.0f)) {
        memset(codes, CODEC_NOTHING, count);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        codes[i] = codec_to_int8(values[i], inverse, key + (uint32_t)i);
}

CPU_CLONES static void int8_add(uint64_t count, float scale, const uint8_t *restrict codes,
                                float *restrict sums)
{
    for (uint64_t i = 0; i < count; i++)
        sums[i] += scale * codec_of_int8(codes[i]);
}

static void encode(ty_codec *codec, const float *gradients)
{
    codec_groups_encode(codec, gradients, TY_COMPRESSION_GROUP, int8_encode);
}

static void decode(ty_codec *codec, float *gradients)
{
    codec_groups_decode(codec, gradients, TY_COMPRESSION_GROUP, int8_add);
}

const codec_kind codec_int8 = {.encode = {encode}, .decode = decode};
