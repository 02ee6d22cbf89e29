/*
 * The k largest magnitudes with error feedback: what is not sent is added to the next step's
 * gradients. Exact, or by a sampled threshold, which may send fewer. Stich, Cordonnier and Jaggi,
 * "Sparsified SGD with memory", NeurIPS 2018; Lin et al., "Deep gradient compression", ICLR 2018.
 */
#include "codec_kinds.h"

static void top_k_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count;
    float *residual = codec->arrays[CODEC_RESIDUAL];

    codec_add(count, gradients, residual);
    codec_take(count, codec_threshold_exact(count, residual, codec_kept(codec), codec->scratch),
               residual, codec_own_payload(codec, 0));
}

static void top_k_sampled_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count, k = codec_kept(codec);
    float *residual = codec->arrays[CODEC_RESIDUAL];
    codec_pair *pairs = codec_own_payload(codec, 0);
    codec_threshold threshold;

    codec_add(count, gradients, residual);
    threshold = codec_threshold_sampled(count, residual, k, codec_own_key(codec), codec->scratch);
    for (uint64_t i = codec_take(count, threshold, residual, pairs); i < k; i++)
        pairs[i] = (codec_pair){.index = CODEC_NO_INDEX};
}

const codec_kind codec_top_k = {.encode = {top_k_encode}, .decode = codec_pairs_decode};
const codec_kind codec_top_k_sampled = {.encode = {top_k_sampled_encode},
                                        .decode = codec_pairs_decode};
