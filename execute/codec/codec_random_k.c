/*
 * k random indices, the same on all members, so that only values are sent and an all-reduce sums
 * them; with error feedback. Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS
 * 2018. The bucket is cut into k equal strata and one index is drawn in each: every element has the
 * same probability, indices are ascending, and memory is read once.
 */
#include "codec_kinds.h"

static void random_k_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count, k = codec_kept(codec);
    const uint32_t key = codec_shared_key(codec);
    float *residual = codec->arrays[CODEC_RESIDUAL], *values = codec->payloads[0];

    codec_add(count, gradients, residual);
    for (uint64_t i = 0; i < k; i++) {
        uint64_t place = codec_place(count, k, i, key);
        values[i] = residual[place];
        residual[place] = 0.0f;
    }
}

static void random_k_decode(ty_codec *codec, float *gradients)
{
    const uint64_t count = codec->options.count, k = codec_kept(codec);
    const uint32_t key = codec_shared_key(codec);
    const float *values = codec->payloads[0];

    memset(gradients, 0, count * sizeof *gradients);
    for (uint64_t i = 0; i < k; i++)
        gradients[codec_place(count, k, i, key)] = values[i];
}

const codec_kind codec_random_k = {.encode = {random_k_encode}, .decode = random_k_decode};
