/*
 * Deep gradient compression: Lin et al., ICLR 2018. Momentum is applied before elements are
 * selected ("momentum correction"), and velocities of sent elements are reset ("factor masking").
 * Each member clips its own gradient to 1 / sqrt(members) of the norm. The share that is sent falls
 * from a quarter to its final value over the warm-up.
 */
#include "codec_kinds.h"

CPU_CLONES static double squares_of(uint64_t count, const float *values)
{
    double sum = 0;
#pragma omp simd reduction(+ : sum)
    for (uint64_t i = 0; i < count; i++)
        sum += (double)values[i] * (double)values[i];
    return sum;
}

static float clipping_scale(const ty_codec *codec, const float *gradients)
{
    const double clip = codec->options.compression.clip_norm;

    return clip > 0 ? codec_clipping_scale(codec->options.member_count, clip,
                                           squares_of(codec->options.count, gradients))
                    : 1.0f;
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
    const uint64_t count = codec->options.count, k = codec_kept(codec);
    float *velocity = codec->arrays[CODEC_VELOCITY], *sum = codec->arrays[CODEC_SUM];
    codec_pair *pairs = codec_own_payload(codec, 0);
    codec_threshold threshold;
    uint64_t taken;

    accumulate(count, (float)codec->options.momentum, clipping_scale(codec, gradients), gradients,
               velocity, sum);
    threshold = codec_threshold_sampled(count, sum, k, codec_own_key(codec), codec->scratch);
    taken = codec_take(count, threshold, sum, pairs);
    for (uint64_t i = 0; i < taken; i++)
        velocity[pairs[i].index] = 0.0f;
    for (uint64_t i = taken; i < k; i++)
        pairs[i] = (codec_pair){.index = CODEC_NO_INDEX};
}

const codec_kind codec_dgc = {.encode = {dgc_encode}, .decode = codec_pairs_decode};
