/* Compressors on the GPU: the table of kinds, memory, and waiting for kernels. */
#include "cuda_codec.h"

static const codec_backend backend = {
    .kinds = {[TY_COMPRESSION_ROWS] = &cuda_codec_rows,
              [TY_COMPRESSION_FP16] = &cuda_codec_fp16,
              [TY_COMPRESSION_BF16] = &cuda_codec_bf16,
              [TY_COMPRESSION_FP8_E4M3] = &cuda_codec_fp8_e4m3,
              [TY_COMPRESSION_FP8_E5M2] = &cuda_codec_fp8_e5m2,
              [TY_COMPRESSION_INT8] = &cuda_codec_int8,
              [TY_COMPRESSION_TERNARY] = &cuda_codec_ternary,
              [TY_COMPRESSION_ONE_BIT] = &cuda_codec_one_bit,
              [TY_COMPRESSION_TOP_K] = &cuda_codec_top_k,
              [TY_COMPRESSION_TOP_K_SAMPLED] = &cuda_codec_top_k_sampled,
              [TY_COMPRESSION_RANDOM_K] = &cuda_codec_random_k,
              [TY_COMPRESSION_DGC] = &cuda_codec_dgc,
              [TY_COMPRESSION_POWERSGD] = &cuda_codec_powersgd},
    .allocate = cuda_memory_allocate,
    .release = cuda_memory_release,
};

/* ---- Workspace ---- */

static uint64_t workspace_bytes(const ty_codec_options *o)
{
    if (o->compression.kind == TY_COMPRESSION_ROWS)
        return cuda_rows_workspace(o->matrices[0].rows);
    if (o->compression.kind == TY_COMPRESSION_RANDOM_K)
        return 0;
    return ty_compression_has_ratio(o->compression.kind) ? cuda_select_workspace() : 0;
}

/* Enough for one more compressor; no kernel is under way. */
static ty_status workspace_grow(ty_stage_device *stage, uint64_t bytes, ty_error *error)
{
    if (bytes <= stage->codec_workspace_bytes)
        return TY_OK;
    cuda_memory_release(stage, stage->codec_workspace);
    stage->codec_workspace_bytes = 0;
    stage->codec_workspace = cuda_memory_allocate(stage, bytes);
    if (stage->codec_workspace == NULL)
        return ty_fail(error, TY_ENOMEM, "out of GPU memory for compressors");
    stage->codec_workspace_bytes = bytes;
    return TY_OK;
}

/* ---- A step ---- */

ty_status cuda_codec_open(ty_stage_device *stage, const ty_codec_options *options, ty_codec **out,
                          ty_error *error)
{
    ty_codec *codec = NULL;
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, cleanup);
    TY_CHECK(codec_open(&backend, stage, options, &codec, error), status, cleanup);
    TY_CHECK(workspace_grow(stage, workspace_bytes(options), error), status, cleanup);
    *out = codec;
    codec = NULL; /* given away */
cleanup:
    ty_codec_close(codec);
    return status;
}

ty_status cuda_codec_encode(ty_codec *codec, uint32_t phase, const float *gradients,
                            ty_error *error)
{
    ty_status status = cuda_use(codec->device, error);

    if (status != TY_OK)
        return status;
    ty_codec_encode(codec, phase, gradients);
    return cuda_side_wait(codec->device, error);
}

ty_status cuda_codec_decode(ty_codec *codec, float *gradients, ty_error *error)
{
    ty_status status = cuda_use(codec->device, error);

    if (status != TY_OK)
        return status;
    ty_codec_decode(codec, gradients);
    return cuda_side_wait(codec->device, error);
}
