/*
 * Gradients as IEEE 754 halves. Conversion by integer and float arithmetic without branches, after
 * F. Giesen, "Float->half variants" (public domain, 2012), so that it vectorizes on any CPU and
 * gives the same bits on all of them.
 */
#include "codec_kinds.h"

CPU_INLINE uint16_t to_half(float value)
{
    const uint32_t infinity = 255u << 23;
    const uint32_t overflow = (127u + 16u) << 23;                     /* 2^16: above every half */
    const uint32_t smallest_normal = 113u << 23;                      /* 2^-14 */
    const uint32_t shifter = ((127u - 15u) + (23u - 10u) + 1u) << 23; /* 1/2: aligns subnormals */
    uint32_t bits = bits_of_float(value);
    uint32_t sign = bits & 0x80000000u, magnitude = bits ^ sign;
    uint32_t special = magnitude > infinity ? 0x7e00u : 0x7c00u;
    uint32_t small = bits_of_float(float_of_bits(magnitude) + float_of_bits(shifter)) - shifter;
    uint32_t normal = (magnitude + 0xc8000fffu + (magnitude >> 13 & 1u)) >> 13; /* (15-127)<<23 */
    uint32_t half = magnitude >= overflow ? special : magnitude < smallest_normal ? small : normal;

    return (uint16_t)(half | sign >> 16);
}

CPU_INLINE float of_half(uint16_t half)
{
    const uint32_t exponents = 0x7c00u << 13;
    uint32_t magnitude = ((uint32_t)half & 0x7fffu) << 13, exponent = magnitude & exponents;
    uint32_t normal = magnitude + ((127u - 15u) << 23);
    uint32_t special = normal + ((128u - 16u) << 23);
    uint32_t small = bits_of_float(float_of_bits(normal + (1u << 23)) - float_of_bits(113u << 23));
    uint32_t bits = exponent == exponents ? special : exponent == 0 ? small : normal;

    return float_of_bits(bits | ((uint32_t)half & 0x8000u) << 16);
}

CPU_CLONES void half_from_float(uint64_t count, const float *restrict from, uint16_t *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = to_half(from[i]);
}

CPU_CLONES void half_to_float(uint64_t count, const uint16_t *restrict from, float *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] = of_half(from[i]);
}

CPU_CLONES void ty_half_add(uint16_t *restrict target, const uint16_t *restrict source,
                            uint64_t count)
{
    for (uint64_t i = 0; i < count; i++)
        target[i] = to_half(of_half(target[i]) + of_half(source[i]));
}

static void fp16_encode(ty_codec *codec, const float *gradients)
{
    half_from_float(codec->options.count, gradients, codec->payloads[0]);
}

/* The all-reduce has summed the members' halves. */
static void fp16_decode(ty_codec *codec, float *gradients)
{
    half_to_float(codec->options.count, codec->payloads[0], gradients);
}

const codec_kind codec_fp16 = {.encode = {fp16_encode}, .decode = fp16_decode};
