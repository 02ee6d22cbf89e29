/* Compressors on the GPU, with the residuals of top-k there too. */
#include "cuda_stage.h"

struct ty_device_codec {
    ty_stage_device *stage;
    ty_compression_kind kind;
    uint64_t count, top_k;
    float *residual;
    void *scratch;
};

static uint64_t pair_bytes(void)
{
    return sizeof(uint32_t) + sizeof(float);
}

void cuda_codec_close(ty_device_codec *codec)
{
    if (codec == NULL)
        return;
    cudaFree(codec->residual);
    cudaFree(codec->scratch);
    ty_free(codec);
}

static ty_status top_k_open(ty_device_codec *codec, ty_error *error)
{
    uint64_t scratch = cuda_top_k_scratch(codec->count);
    ty_status status = TY_OK;

    if (codec->top_k == 0 || codec->top_k > codec->count || codec->count > UINT32_MAX)
        return ty_fail(error, TY_EINVAL,
                       "found top-k of %llu of %llu elements, expected 1 to %llu of less than 2^32",
                       (unsigned long long)codec->top_k, (unsigned long long)codec->count,
                       (unsigned long long)codec->count);
    CUDA_CHECK(cudaMalloc((void **)&codec->residual, codec->count * sizeof(float)), status, done);
    CUDA_CHECK(cudaMemset(codec->residual, 0, codec->count * sizeof(float)), status, done);
    CUDA_CHECK(cudaMalloc(&codec->scratch, scratch), status, done);
done:
    return status;
}

ty_status cuda_codec_open(ty_stage_device *stage, ty_compression_kind kind, uint64_t count,
                          uint64_t top_k, ty_device_codec **out, ty_error *error)
{
    ty_device_codec *codec = NULL;
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, cleanup);
    if (kind != TY_COMPRESSION_FP16 && kind != TY_COMPRESSION_TOP_K)
        return ty_fail(error, TY_EUNSUPPORTED, "the cuda backend has no compression %d", (int)kind);
    if (count == 0)
        return ty_fail(error, TY_EINVAL, "found a bucket of 0 elements, expected at least 1");
    codec = ty_alloc(1, sizeof *codec);
    if (codec == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a compressor");
    *codec = (ty_device_codec){.stage = stage, .kind = kind, .count = count, .top_k = top_k};
    if (kind == TY_COMPRESSION_TOP_K)
        TY_CHECK(top_k_open(codec, error), status, cleanup);
    *out = codec;
    codec = NULL; /* given away */
cleanup:
    cuda_codec_close(codec);
    return status;
}

uint64_t cuda_codec_bytes(const ty_device_codec *codec)
{
    return codec->kind == TY_COMPRESSION_FP16 ? codec->count * sizeof(uint16_t)
                                              : codec->top_k * pair_bytes();
}

ty_status cuda_codec_encode(ty_device_codec *codec, const float *gradients, void *encoded,
                            ty_error *error)
{
    cudaStream_t side = codec->stage->side;
    ty_status status;

    TY_CHECK(cuda_use(codec->stage, error), status, done);
    if (codec->kind == TY_COMPRESSION_FP16)
        cuda_half_encode(codec->count, gradients, encoded, side);
    else
        cuda_top_k_encode(codec->count, codec->top_k, gradients, codec->residual, encoded,
                          codec->scratch, side);
    status = cuda_side_wait(codec->stage, error);
done:
    return status;
}

ty_status cuda_codec_decode(ty_device_codec *codec, const void *encoded, uint32_t members,
                            float *gradients, ty_error *error)
{
    cudaStream_t side = codec->stage->side;
    ty_status status;

    TY_CHECK(cuda_use(codec->stage, error), status, done);
    if (codec->kind == TY_COMPRESSION_FP16)
        cuda_half_decode(codec->count, encoded, gradients, side);
    else
        cuda_top_k_decode(codec->count, codec->top_k, members, encoded, gradients, side);
    status = cuda_side_wait(codec->stage, error);
done:
    return status;
}
