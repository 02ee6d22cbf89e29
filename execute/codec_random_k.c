/*
 * k places that all members draw alike, so that only values travel and are summed on their way,
 * with error feedback. Stich, Cordonnier and Jaggi, "Sparsified SGD with memory", NeurIPS 2018. The
 * bucket is cut into k equal strata and one place is drawn in each: every element has the same
 * chance, the places come in order, and memory is walked once.
 */
#include "codec_kinds.h"

enum { RESIDUAL }; /* arrays */

static ty_status random_k_open(ty_codec *codec, ty_error *error)
{
    return codec_array_add(codec, codec->options.count, error);
}

/* The place in stratum i of k. */
CPU_INLINE uint64_t place_of(uint64_t count, uint64_t k, uint64_t i, uint32_t key)
{
    uint64_t first = i * count / k, end = (i + 1) * count / k;
    return first + ((uint64_t)codec_hash(key + (uint32_t)i) * (end - first) >> 32);
}

static void random_k_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count;
    const uint64_t k = ty_compression_kept(&codec->options.compression, count);
    const uint32_t key = codec_shared_key(codec);
    float *residual = codec->arrays[RESIDUAL], *values = codec->payloads[0];

    codec_add(count, gradients, residual);
    for (uint64_t i = 0; i < k; i++) {
        uint64_t place = place_of(count, k, i, key);
        values[i] = residual[place];
        residual[place] = 0.0f;
    }
}

static void random_k_decode(ty_codec *codec, float *gradients)
{
    const uint64_t count = codec->options.count;
    const uint64_t k = ty_compression_kept(&codec->options.compression, count);
    const uint32_t key = codec_shared_key(codec);
    const float *values = codec->payloads[0];

    memset(gradients, 0, count * sizeof *gradients);
    for (uint64_t i = 0; i < k; i++)
        gradients[place_of(count, k, i, key)] = values[i];
}

const codec_kind codec_random_k = {.open = random_k_open,
                                   .encode = {random_k_encode},
                                   .decode = random_k_decode,
                                   .element = TY_ELEMENT_FLOAT};
