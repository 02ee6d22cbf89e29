/*
 * The k largest magnitudes with error feedback: what is not sent is added to the next step's
 * gradients. Exact, or by a sampled threshold, which may send fewer. Stich, Cordonnier and Jaggi,
 * "Sparsified SGD with memory", NeurIPS 2018; Lin et al., "Deep gradient compression", ICLR 2018.
 */
#include "codec_kinds.h"

enum { RESIDUAL, SCRATCH }; /* arrays */

static ty_status top_k_open(ty_codec *codec, ty_error *error)
{
    ty_status status;

    TY_CHECK(codec_array_add(codec, codec->options.count, error), status, done);
    TY_CHECK(codec_array_add(codec, codec->options.count, error), status, done);
done:
    return status;
}

static uint64_t kept(const ty_codec *codec)
{
    return ty_compression_kept(&codec->options.compression, codec->options.count);
}

static void top_k_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count;
    float *residual = codec->arrays[RESIDUAL];

    codec_add(count, gradients, residual);
    codec_take(count,
               codec_threshold_exact(count, residual, kept(codec),
                                     (uint32_t *)(void *)codec->arrays[SCRATCH]),
               residual, codec_own_payload(codec, 0));
}

static void top_k_sampled_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count, k = kept(codec);
    float *residual = codec->arrays[RESIDUAL];
    codec_pair *pairs = codec_own_payload(codec, 0);
    codec_threshold threshold;

    codec_add(count, gradients, residual);
    threshold = codec_threshold_sampled(count, residual, k, codec_own_key(codec),
                                        (uint32_t *)(void *)codec->arrays[SCRATCH]);
    for (uint64_t i = codec_take(count, threshold, residual, pairs); i < k; i++)
        pairs[i] = (codec_pair){.index = CODEC_NO_INDEX};
}

const codec_kind codec_top_k = {
    .open = top_k_open, .encode = {top_k_encode}, .decode = codec_pairs_decode};
const codec_kind codec_top_k_sampled = {
    .open = top_k_open, .encode = {top_k_sampled_encode}, .decode = codec_pairs_decode};
