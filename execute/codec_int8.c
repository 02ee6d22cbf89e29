/*
 * 8-bit integers with stochastic rounding: QSGD with 127 levels on each side of zero, Alistarh et
 * al., NeurIPS 2017, in groups with the largest magnitude as scale (their section 4, "bucketing").
 * Unbiased: an element is rounded up with the probability of what would be cut off.
 */
#include "codec_kinds.h"

#define LEVELS 127.0f
#define OFFSET 128.0f /* makes what is truncated positive */

CPU_CLONES static void int8_encode(uint64_t count, const float *restrict values, uint32_t key,
                                   float *restrict scale, uint8_t *restrict codes)
{
    const uint32_t largest = codec_largest(count, values);
    const float maximum = float_of_bits(largest);
    const float inverse = largest > 0 && largest < CODEC_INFINITY ? LEVELS / maximum : 0.0f;

    /* The inverse of a number that small is infinite. */
    *scale = largest >= CODEC_INFINITY ? NAN : inverse <= FLT_MAX ? maximum / LEVELS : 0.0f;
    if (!(*scale > 0.0f)) {
        memset(codes, 1, count);
        return;
    }
    for (uint64_t i = 0; i < count; i++) {
        float level = values[i] * inverse + OFFSET + codec_uniform(codec_hash(key + (uint32_t)i));
        int32_t code = (int32_t)level - (int32_t)OFFSET;
        codes[i] = (uint8_t)(int8_t)(code > 127 ? 127 : code);
    }
}

CPU_CLONES static void int8_add(uint64_t count, float scale, const uint8_t *restrict codes,
                                float *restrict sums)
{
    for (uint64_t i = 0; i < count; i++)
        sums[i] += scale * (float)(int8_t)codes[i];
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
