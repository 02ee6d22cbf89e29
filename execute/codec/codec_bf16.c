/* Gradients as bfloat16: the upper half of a float, rounded to nearest, ties to even. */
#include "codec_kinds.h"

CPU_INLINE uint16_t to_bfloat(float value)
{
    uint32_t bits = bits_of_float(value);
    uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    bool is_nan = (bits & CODEC_MAGNITUDE) > CODEC_INFINITY;

    return (uint16_t)((is_nan ? bits | 0x400000u : rounded) >> 16);
}

CPU_INLINE float of_bfloat(uint16_t bfloat)
{
    return float_of_bits((uint32_t)bfloat << 16);
}

CPU_CLONES void bfloat_from_float(uint64_t count, const float *restrict from, uint16_t *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = to_bfloat(from[i]);
}

CPU_CLONES void bfloat_to_float(uint64_t count, const uint16_t *restrict from, float *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = of_bfloat(from[i]);
}

CPU_CLONES void ty_bfloat_add(uint16_t *restrict target, const uint16_t *restrict source,
                              uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        target[i] = to_bfloat(of_bfloat(target[i]) + of_bfloat(source[i]));
}

static void bf16_encode(ty_codec *codec, const float *gradients)
{
    bfloat_from_float(codec->options.count, gradients, codec->payloads[0]);
}

static void bf16_decode(ty_codec *codec, float *gradients)
{
    bfloat_to_float(codec->options.count, codec->payloads[0], gradients);
}

const codec_kind codec_bf16 = {.encode = {bf16_encode}, .decode = bf16_decode};
