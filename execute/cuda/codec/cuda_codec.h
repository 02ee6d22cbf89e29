/**
 * @file cuda_codec.h
 * Common part of the GPU compressors. A compressor is a ty_codec whose `device` is the stage and
 * whose arrays and payloads are device memory. A kind's functions queue kernels
 * (cuda_codec_kernels.h) on the stage's side stream, and cuda_codec_encode and _decode wait.
 */
#ifndef TY_EXECUTE_CUDA_CODEC_H
#define TY_EXECUTE_CUDA_CODEC_H

#include "codec_kinds.h"
#include "cuda_codec_kernels.h"
#include "cuda_stage.h"

#define CUDA_CODEC_DECLARE(kind, symbol, name) extern const codec_kind cuda_codec_##symbol;
TY_COMPRESSIONS(CUDA_CODEC_DECLARE)
#undef CUDA_CODEC_DECLARE

static inline cudaStream_t cuda_codec_stream(const ty_codec *codec)
{
    const ty_stage_device *stage = codec->device;

    return stage->own->side;
}

/** Workspace of the kernels; shared by all compressors of a stage, which take turns. */
static inline void *cuda_codec_workspace(const ty_codec *codec)
{
    const ty_stage_device *stage = codec->device;

    return stage->own->codec_workspace;
}

/** Adds gradients to an array of the same length. */
static inline float *cuda_codec_add(const ty_codec *codec, const float *gradients, uint32_t array)
{
    cuda_accumulate_float(CUDA_TYPE_FLOAT, codec->options.count, gradients, true,
                          codec->arrays[array], cuda_codec_stream(codec));
    return codec->arrays[array];
}

#endif
