/*
 * Deep gradient compression: Lin et al., ICLR 2018. Momentum is taken before what is sent is
 * chosen ("momentum correction"), velocities of what was sent start anew ("factor masking"), each
 * member clips its own gradient to 1 / sqrt(members) of the norm, and the share that is sent falls
 * from a quarter to its final value over the warm-up.
 */
#include "codec_kinds.h"

enum { VELOCITY, SUM, SCRATCH }; /* arrays */

static ty_status dgc_open(ty_codec *codec, ty_error *error)
{
    ty_status status;

    TY_CHECK(codec_array_add(codec, codec->options.count, error), status, done);
    TY_CHECK(codec_array_add(codec, codec->options.count, error), status, done);
    TY_CHECK(codec_array_add(codec, codec->options.count, error), status, done);
done:
    return status;
}

CPU_CLONES static double squares_of(uint64_t count, const float *values)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (uint64_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

/* What gradients are multiplied with. A member's gradient is its part of the average: 1 / members
   of what the paper clips. */
static float clipping_scale(const ty_codec *codec, const float *gradients)
{
    double members = codec->options.member_count, clip = codec->options.compression.clip_norm;
    double largest = clip / sqrt(members) / members, norm;

    if (!(clip > 0))
        return 1.0f;
    norm = sqrt(squares_of(codec->options.count, gradients));
    return norm > largest ? (float)(largest / norm) : 1.0f;
}

CPU_CLONES static void accumulate(uint64_t count, float momentum, float scale,
                                  const float *restrict gradients, float *restrict velocity,
                                  float *restrict sum)
{
    for (uint64_t i = 0; i < count; i++) {
        velocity[i] = momentum * velocity[i] + scale * gradients[i];
        sum[i] += velocity[i];
    }
}

static void dgc_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count;
    const uint64_t k = codec->payload_bytes[0] / sizeof(codec_pair);
    float *velocity = codec->arrays[VELOCITY], *sum = codec->arrays[SUM];
    codec_pair *pairs = codec_own_payload(codec, 0);
    codec_threshold threshold;
    uint64_t taken;

    accumulate(count, (float)codec->options.momentum, clipping_scale(codec, gradients), gradients,
               velocity, sum);
    threshold = codec_threshold_sampled(count, sum, k, codec_own_key(codec),
                                        (uint32_t *)(void *)codec->arrays[SCRATCH]);
    taken = codec_take(count, threshold, sum, pairs);
    for (uint64_t i = 0; i < taken; i++)
        velocity[pairs[i].index] = 0.0f;
    for (uint64_t i = taken; i < k; i++)
        pairs[i] = (codec_pair){.index = CODEC_NO_INDEX};
}

const codec_kind codec_dgc = {
    .open = dgc_open, .encode = {dgc_encode}, .decode = codec_pairs_decode};
