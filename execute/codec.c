/* Compressors of gradients: the interface, over a table of kinds. */
#include "codec.h"

static const codec_kind *const kinds[TY_COMPRESSION_COUNT] = {
    [TY_COMPRESSION_FP16] = &codec_fp16,
    [TY_COMPRESSION_TOP_K] = &codec_top_k,
};

ty_status ty_codec_open(ty_compression_kind kind, uint64_t count, uint64_t top_k, ty_codec **out,
                        ty_error *error)
{
    ty_codec *codec = NULL;
    ty_status status = TY_OK;

    if ((unsigned)kind >= TY_COMPRESSION_COUNT || kinds[kind] == NULL)
        return ty_fail(error, TY_EINVAL, "found compression %d, expected fp16 or top-k", (int)kind);
    if (count == 0)
        return ty_fail(error, TY_EINVAL, "found a bucket of 0 elements, expected at least 1");
    codec = ty_alloc(1, sizeof *codec);
    if (codec == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a compressor");
    codec->kind = kinds[kind];
    codec->count = count;
    codec->top_k = top_k;
    if (codec->kind->open != NULL)
        TY_CHECK(codec->kind->open(codec, error), status, cleanup);
    *out = codec;
    codec = NULL; /* given away */

cleanup:
    ty_codec_close(codec);
    return status;
}

void ty_codec_close(ty_codec *codec)
{
    if (codec == NULL)
        return;
    ty_free(codec->residual);
    ty_free(codec->candidates);
    ty_free(codec);
}

uint64_t ty_codec_bytes(const ty_codec *codec)
{
    return codec->kind->bytes(codec);
}

void ty_codec_encode(ty_codec *codec, const float *gradients, void *encoded)
{
    codec->kind->encode(codec, gradients, encoded);
}

void ty_codec_decode(ty_codec *codec, const void *encoded, uint32_t members, float *gradients)
{
    codec->kind->decode(codec, encoded, members, gradients);
}
