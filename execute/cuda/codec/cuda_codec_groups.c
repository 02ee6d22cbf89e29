/* Casts, and groups that share a scale. */
#include "cuda_codec.h"

/* ---- 16 bits: rounded to nearest, as the passes' are ---- */

static void cast_encode(const ty_codec *codec, cuda_type type, const float *gradients)
{
    cuda_convert(CUDA_TYPE_FLOAT, gradients, type, codec->payloads[0], codec->options.count,
                 cuda_codec_stream(codec));
}

/* The all-reduce has summed the members' numbers. */
static void cast_decode(const ty_codec *codec, cuda_type type, float *gradients)
{
    cuda_convert(type, codec->payloads[0], CUDA_TYPE_FLOAT, gradients, codec->options.count,
                 cuda_codec_stream(codec));
}

static void fp16_encode(ty_codec *codec, const float *gradients)
{
    cast_encode(codec, CUDA_TYPE_HALF, gradients);
}

static void fp16_decode(ty_codec *codec, float *gradients)
{
    cast_decode(codec, CUDA_TYPE_HALF, gradients);
}

static void bf16_encode(ty_codec *codec, const float *gradients)
{
    cast_encode(codec, CUDA_TYPE_BF16, gradients);
}

static void bf16_decode(ty_codec *codec, float *gradients)
{
    cast_decode(codec, CUDA_TYPE_BF16, gradients);
}

/* ---- Groups ---- */

static cuda_group_format format_of(const ty_codec *codec)
{
    static const cuda_group_format formats[TY_COMPRESSION_COUNT] = {
        [TY_COMPRESSION_FP8_E4M3] = CUDA_GROUP_E4M3,
        [TY_COMPRESSION_FP8_E5M2] = CUDA_GROUP_E5M2,
        [TY_COMPRESSION_INT8] = CUDA_GROUP_INT8,
        [TY_COMPRESSION_TERNARY] = CUDA_GROUP_TERNARY};

    return formats[codec->options.compression.kind];
}

static void groups_encode(ty_codec *codec, const float *gradients)
{
    cuda_groups_encode(format_of(codec), codec->options.count, codec_own_key(codec), gradients,
                       codec_own_payload(codec, 0), cuda_codec_stream(codec));
}

static void groups_decode(ty_codec *codec, float *gradients)
{
    cuda_groups_decode(format_of(codec), codec->options.count, codec->options.member_count,
                       codec->payload_bytes[0], codec->payloads[0], gradients,
                       cuda_codec_stream(codec));
}

#define GROUPS                                                                                     \
    {                                                                                              \
        .encode = {groups_encode}, .decode = groups_decode                                         \
    }

const codec_kind cuda_codec_fp16 = {.encode = {fp16_encode}, .decode = fp16_decode};
const codec_kind cuda_codec_bf16 = {.encode = {bf16_encode}, .decode = bf16_decode};
const codec_kind cuda_codec_fp8_e4m3 = GROUPS, cuda_codec_fp8_e5m2 = GROUPS,
                 cuda_codec_int8 = GROUPS, cuda_codec_ternary = GROUPS;
