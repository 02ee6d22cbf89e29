/* Compressors on the GPU: the table of kinds, memory, and waiting for kernels. */
#include "cuda_codec.h"

#define KIND(kind, symbol, name) [TY_COMPRESSION_##kind] = &cuda_codec_##symbol,
static const codec_backend backend = {
    .kinds = {TY_COMPRESSIONS(KIND)},
    .allocate = cuda_memory_allocate,
    .release = cuda_memory_release,
};
#undef KIND

/* ---- Workspace ---- */

static uint64_t workspace_bytes(const ty_codec_options *o)
{
    if (ty_compression_at(o->compression.kind)->sends_rows)
        return cuda_rows_workspace(o->matrices[0].rows);
    return ty_compression_at(o->compression.kind)->selects ? cuda_select_workspace() : 0;
}

/* Grows the workspace for one more compressor; no kernel is running. */
static ty_status workspace_grow(ty_stage_device *stage, uint64_t bytes, ty_error *error)
{
    if (bytes <= stage->own->codec_workspace_bytes)
        return TY_OK;
    cuda_memory_release(stage, stage->own->codec_workspace);
    stage->own->codec_workspace_bytes = 0;
    stage->own->codec_workspace = cuda_memory_allocate(stage, bytes);
    TY_TRY(ty_check_memory(stage->own->codec_workspace != NULL, error));
    stage->own->codec_workspace_bytes = bytes;
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
    codec = NULL; /* owned by the result */
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
