/* Layout of payloads and of compressors' state, for every backend. */
#include "codec_kinds.h"

uint64_t codec_group_count(const ty_codec *codec)
{
    return (codec->options.count + TY_COMPRESSION_GROUP - 1) / TY_COMPRESSION_GROUP;
}

/* ---- One-bit ----------------------------------------------------------------------------- */

uint64_t codec_part_size(const ty_codec *codec)
{
    return ty_one_bit_part(codec->options.count, codec->options.member_count);
}

uint64_t codec_part_groups(uint64_t part)
{
    return (part + TY_COMPRESSION_SIGN_GROUP - 1) / TY_COMPRESSION_SIGN_GROUP;
}

uint64_t codec_part_bytes(uint64_t part)
{
    return codec_part_groups(part) * sizeof(float) + part / 8;
}

uint64_t codec_part_real(const ty_codec *codec, uint32_t owner)
{
    uint64_t part = codec_part_size(codec), first = owner * part, count = codec->options.count;
    uint64_t left = first < count ? count - first : 0;

    return left < part ? left : part;
}

/* ---- PowerSGD ---------------------------------------------------------------------------- */

bool codec_next_factored(const ty_codec *codec, uint32_t *index, codec_factored *at)
{
    const ty_compression *c = &codec->options.compression;

    if (*index == 0)
        at->key = codec_shared_key(codec);
    at->m += at->rows * at->columns;
    at->p += c->rank * at->rows;
    at->q += c->rank * at->columns;
    at->rows = at->columns = 0;
    while (*index < codec->options.matrix_count) {
        const ty_bucket_matrix *matrix = &codec->options.matrices[(*index)++];
        if (!ty_powersgd_factors(c, matrix->rows, matrix->columns))
            continue;
        at->rows = matrix->rows;
        at->columns = matrix->columns;
        at->offset = matrix->offset;
        at->key = codec_hash(at->key + *index);
        return true;
    }
    at->offset = codec->options.count;
    return false;
}

/* The range between the matrix at which the last range ended and the next one, or the end. */
bool codec_next_dense(const ty_codec *codec, uint32_t *index, codec_factored *behind,
                      codec_dense *out)
{
    const uint64_t first = behind->offset + behind->rows * behind->columns;

    if (behind->offset == codec->options.count)
        return false;
    (void)codec_next_factored(codec, index, behind);
    out->at += out->count;
    out->offset = first;
    out->count = behind->offset - first;
    return true;
}

uint32_t codec_shared_key(const ty_codec *codec)
{
    uint64_t seed = codec->options.seed;
    return codec_hash(codec_hash((uint32_t)seed ^ codec_hash((uint32_t)(seed >> 32))) ^
                      codec->step);
}
