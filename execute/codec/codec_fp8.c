/*
 * 8-bit floats, E4M3 and E5M2, of Micikevicius et al., "FP8 formats for deep learning", 2022, in
 * groups that are scaled so that the largest magnitude is the format's largest number. Rounding to
 * nearest, ties to even. As in codec_fp16.c, but nothing can overflow.
 */
#include "codec_kinds.h"

/* One group in a format that is a constant at each call. */
CPU_INLINE void encode_group(uint64_t count, const float *restrict values, uint32_t fraction,
                             uint32_t bias, float largest_code, float *restrict scale,
                             uint8_t *restrict codes)
{
    float inverse;

    *scale = codec_scale_of(codec_largest(count, values), largest_code, &inverse);
    if (!(*scale > 0.0f)) {
        memset(codes, CODEC_NOTHING, count);
        return;
    }
    for (uint64_t i = 0; i < count; i++)
        codes[i] = codec_to_fp8(values[i] * inverse, fraction, bias);
}

CPU_CLONES static void e4m3_encode(uint64_t count, const float *restrict values, uint32_t key,
                                   float *restrict scale, uint8_t *restrict codes)
{
    (void)key;
    encode_group(count, values, CODEC_E4M3_FRACTION, CODEC_E4M3_BIAS, CODEC_E4M3_LARGEST, scale,
                 codes);
}

CPU_CLONES static void e5m2_encode(uint64_t count, const float *restrict values, uint32_t key,
                                   float *restrict scale, uint8_t *restrict codes)
{
    (void)key;
    encode_group(count, values, CODEC_E5M2_FRACTION, CODEC_E5M2_BIAS, CODEC_E5M2_LARGEST, scale,
                 codes);
}

CPU_CLONES static void e4m3_add(uint64_t count, float scale, const uint8_t *restrict codes,
                                float *restrict sums)
{
    for (uint64_t i = 0; i < count; i++)
        sums[i] += scale * codec_of_fp8(codes[i], CODEC_E4M3_FRACTION, CODEC_E4M3_BIAS);
}

CPU_CLONES static void e5m2_add(uint64_t count, float scale, const uint8_t *restrict codes,
                                float *restrict sums)
{
    for (uint64_t i = 0; i < count; i++)
        sums[i] += scale * codec_of_fp8(codes[i], CODEC_E5M2_FRACTION, CODEC_E5M2_BIAS);
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
