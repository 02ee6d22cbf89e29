/* Compressors of two phases: signs and factors. */
#include "cuda_codec.h"

/* ---- One-bit ---- */

static cuda_sign_parts parts_of(const ty_codec *codec)
{
    const uint64_t part = codec_part_size(codec);

    return (cuda_sign_parts){.count = codec->options.count,
                             .part = part,
                             .groups = codec_part_groups(part),
                             .bytes = codec_part_bytes(part)};
}

static void signs_to_owners(ty_codec *codec, const float *gradients)
{
    const cuda_sign_parts shape = parts_of(codec);
    float *error = cuda_codec_add(codec, gradients, CODEC_MEMBER_ERROR);

    cuda_signs_encode(&shape, 0, codec->options.member_count, error, codec->payloads[0],
                      cuda_codec_stream(codec));
}

static void sum_of_signs(ty_codec *codec, const float *gradients)
{
    const cuda_sign_parts shape = parts_of(codec);
    cudaStream_t stream = cuda_codec_stream(codec);
    float *error = codec->arrays[CODEC_OWNER_ERROR];

    (void)gradients;
    cuda_signs_add(&shape, codec->options.member_count, codec->payloads[0], error, stream);
    cuda_signs_encode(&shape, codec->options.position, 1, error, codec_own_payload(codec, 1),
                      stream);
}

static void signs_of_all(ty_codec *codec, float *gradients)
{
    const cuda_sign_parts shape = parts_of(codec);

    cuda_signs_write(&shape, codec->payloads[1], gradients, cuda_codec_stream(codec));
}

/* ---- PowerSGD ---- */

/* The next matrices; false after the last. `gradients` may be read only. */
static bool batch_next(const ty_codec *codec, const float *gradients, uint32_t *index,
                       codec_factored *at, cuda_factored_batch *batch)
{
    *batch = (cuda_factored_batch){.rank = codec->options.compression.rank};
    while (batch->count < CUDA_FACTORED_BATCH && codec_next_factored(codec, index, at))
        batch->of[batch->count++] = (cuda_factored){.rows = at->rows,
                                                    .columns = at->columns,
                                                    .m = codec->arrays[CODEC_ERRORS] + at->m,
                                                    .p = (float *)codec->payloads[0] + at->p,
                                                    .q = (float *)codec->payloads[1] + at->q,
                                                    .gradients = (float *)gradients + at->offset,
                                                    .key = at->key};
    return batch->count > 0;
}

/* Copies elements outside factored matrices between the bucket and the payload, where they follow
 * P. */
static void dense_copy(const ty_codec *codec, const float *gradients, bool is_back)
{
    float *payload = (float *)codec->payloads[0] + codec->extent.p_elements;
    codec_factored behind = {0};
    codec_dense dense = {0};

    for (uint32_t index = 0; codec_next_dense(codec, &index, &behind, &dense);) {
        float *in_bucket = (float *)gradients + dense.offset, *in_payload = payload + dense.at;
        if (dense.count > 0)
            cudaMemcpyAsync(is_back ? in_bucket : in_payload, is_back ? in_payload : in_bucket,
                            dense.count * sizeof *payload, cudaMemcpyDeviceToDevice,
                            cuda_codec_stream(codec));
    }
}

static void first_factor(ty_codec *codec, const float *gradients)
{
    cuda_factored_batch batch;
    codec_factored at = {0};

    for (uint32_t index = 0; batch_next(codec, gradients, &index, &at, &batch);)
        cuda_first_factor(&batch, cuda_codec_stream(codec));
    dense_copy(codec, gradients, false);
}

static void second_factor(ty_codec *codec, const float *gradients)
{
    cuda_factored_batch batch;
    codec_factored at = {0};

    for (uint32_t index = 0; batch_next(codec, gradients, &index, &at, &batch);)
        cuda_second_factor(&batch, cuda_codec_stream(codec));
}

static void product(ty_codec *codec, float *gradients)
{
    cuda_factored_batch batch;
    codec_factored at = {0};

    for (uint32_t index = 0; batch_next(codec, gradients, &index, &at, &batch);)
        cuda_reconstruct(&batch, codec->options.member_count, cuda_codec_stream(codec));
    dense_copy(codec, gradients, true);
}

const codec_kind cuda_codec_one_bit = {.encode = {signs_to_owners, sum_of_signs},
                                       .decode = signs_of_all};
const codec_kind cuda_codec_powersgd = {.encode = {first_factor, second_factor}, .decode = product};
