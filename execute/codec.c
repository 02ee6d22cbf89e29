/* Compressors of gradients: the interface, over a table of kinds. */
#include "codec_kinds.h"

#include <assert.h>

static const codec_kind *const kinds[TY_COMPRESSION_COUNT] = {
    [TY_COMPRESSION_ROWS] = &codec_rows,
    [TY_COMPRESSION_FP16] = &codec_fp16,
    [TY_COMPRESSION_BF16] = &codec_bf16,
    [TY_COMPRESSION_FP8_E4M3] = &codec_fp8_e4m3,
    [TY_COMPRESSION_FP8_E5M2] = &codec_fp8_e5m2,
    [TY_COMPRESSION_INT8] = &codec_int8,
    [TY_COMPRESSION_TERNARY] = &codec_ternary,
    [TY_COMPRESSION_ONE_BIT] = &codec_one_bit,
    [TY_COMPRESSION_TOP_K] = &codec_top_k,
    [TY_COMPRESSION_TOP_K_SAMPLED] = &codec_top_k_sampled,
    [TY_COMPRESSION_RANDOM_K] = &codec_random_k,
    [TY_COMPRESSION_DGC] = &codec_dgc,
    [TY_COMPRESSION_POWERSGD] = &codec_powersgd,
};

static const uint64_t element_bytes[TY_ELEMENT_COUNT] = {
    [TY_ELEMENT_FLOAT] = 4,  [TY_ELEMENT_HALF] = 2, [TY_ELEMENT_BFLOAT] = 2,
    [TY_ELEMENT_DOUBLE] = 8, [TY_ELEMENT_BYTE] = 1,
};

/* ---- Opening ------------------------------------------------------------------------------- */

/* Rows are of a matrix that begins the bucket. */
static ty_status rows_check(const ty_codec_options *o, ty_error *error)
{
    const ty_bucket_matrix *m = o->matrices;

    if (o->matrix_count == 0 || m->offset != 0 || m->rows >= UINT32_MAX)
        return ty_fail(error, TY_EINVAL,
                       "found no matrix for rows, expected one of less than 2^32 - 1 rows that "
                       "begins the bucket");
    if (o->row_room == 0 || o->row_room > m->rows)
        return ty_fail(error, TY_EINVAL, "found room for %llu rows, expected 1 to %llu",
                       (unsigned long long)o->row_room, (unsigned long long)m->rows);
    return TY_OK;
}

static ty_status options_check(const ty_codec_options *o, ty_error *error)
{
    ty_status status = ty_compression_check(&o->compression, error);

    if (status != TY_OK)
        return status;
    if (kinds[o->compression.kind] == NULL)
        return ty_fail(error, TY_EINVAL, "found compression %s, expected a compressor",
                       ty_compression_name(o->compression.kind));
    if (o->count == 0)
        return ty_fail(error, TY_EINVAL, "found a bucket of 0 elements, expected at least 1");
    if (ty_compression_has_ratio(o->compression.kind) && o->count >= UINT32_MAX)
        return ty_fail(error, TY_EINVAL, "found %llu elements for %s, expected less than 2^32 - 1",
                       (unsigned long long)o->count, ty_compression_name(o->compression.kind));
    if (o->position >= o->member_count)
        return ty_fail(error, TY_EINVAL, "found member %u of %u", o->position, o->member_count);
    return o->compression.kind == TY_COMPRESSION_ROWS ? rows_check(o, error) : TY_OK;
}

static ty_status matrices_copy(ty_codec *codec, ty_error *error)
{
    ty_codec_options *o = &codec->options;
    ty_bucket_matrix *matrices = ty_alloc(o->matrix_count, sizeof *matrices);

    codec->extent = (ty_gradient_extent){.elements = o->count, .dense_elements = o->count};
    if (matrices == NULL) {
        o->matrices = NULL;
        return ty_fail(error, TY_ENOMEM, "out of memory for a compressor");
    }
    for (uint32_t i = 0; i < o->matrix_count; i++) {
        matrices[i] = o->matrices[i];
        assert(matrices[i].offset + matrices[i].rows * matrices[i].columns <= o->count);
        ty_powersgd_count(&o->compression, matrices[i].rows, matrices[i].columns, &codec->extent);
    }
    o->matrices = matrices;
    if (o->compression.kind == TY_COMPRESSION_ROWS)
        codec->extent =
            ty_rows_extent(o->count, matrices[0].rows, matrices[0].columns, o->row_room);
    return TY_OK;
}

static bool is_gathered(const ty_codec *codec, uint32_t phase)
{
    return ty_compression_collective(&codec->options.compression, phase) == TY_ALL_GATHER;
}

static uint64_t step_bytes(const ty_codec *codec, uint32_t phase)
{
    const ty_codec_options *o = &codec->options;

    if (o->compression.warmup_steps > 0)
        return ty_compression_warmup_bytes(&o->compression, &codec->extent, o->member_count,
                                           codec->step);
    return ty_compression_wire_bytes(&o->compression, &codec->extent, o->member_count, phase);
}

/* What a step of warm-up sends is largest in the first. */
static ty_status payloads_open(ty_codec *codec, ty_error *error)
{
    for (uint32_t p = 0; p < ty_compression_phases(&codec->options.compression); p++) {
        codec->payload_bytes[p] = step_bytes(codec, p);
        codec->payloads[p] = ty_alloc(is_gathered(codec, p) ? codec->options.member_count : 1,
                                      codec->payload_bytes[p]);
        if (codec->payloads[p] == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory for an encoded bucket");
    }
    return TY_OK;
}

ty_status codec_array_add(ty_codec *codec, uint64_t count, ty_error *error)
{
    uint32_t i = 0;

    while (codec->arrays[i] != NULL)
        i++;
    assert(i < CODEC_MOST_ARRAYS);
    codec->arrays[i] = ty_alloc(count, sizeof(float));
    codec->array_counts[i] = count;
    if (codec->arrays[i] == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for error feedback of %llu elements",
                       (unsigned long long)count);
    return TY_OK;
}

ty_status ty_codec_open(const ty_codec_options *options, ty_codec **out, ty_error *error)
{
    ty_codec *codec = NULL;
    ty_status status = options_check(options, error);

    if (status != TY_OK)
        return status;
    codec = ty_alloc(1, sizeof *codec);
    if (codec == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a compressor");
    codec->kind = kinds[options->compression.kind];
    codec->options = *options;
    TY_CHECK(matrices_copy(codec, error), status, cleanup);
    TY_CHECK(payloads_open(codec, error), status, cleanup);
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
    ty_free((void *)codec->options.matrices);
    for (uint32_t i = 0; i < CODEC_MOST_ARRAYS; i++)
        ty_free(codec->arrays[i]);
    for (uint32_t p = 0; p < TY_MOST_PHASES; p++)
        ty_free(codec->payloads[p]);
    ty_free(codec);
}

/* ---- What kinds share ---------------------------------------------------------------------- */

void *codec_own_payload(const ty_codec *codec, uint32_t phase)
{
    return (void *)codec_payload_of(codec, phase,
                                    is_gathered(codec, phase) ? codec->options.position : 0);
}

const void *codec_payload_of(const ty_codec *codec, uint32_t phase, uint32_t member)
{
    return (const char *)codec->payloads[phase] + member * codec->payload_bytes[phase];
}

uint32_t codec_shared_key(const ty_codec *codec)
{
    uint64_t seed = codec->options.seed;
    return codec_hash(codec_hash((uint32_t)seed ^ codec_hash((uint32_t)(seed >> 32))) ^
                      codec->step);
}

uint32_t codec_own_key(const ty_codec *codec)
{
    return codec_hash(codec_shared_key(codec) + codec->options.position + 1);
}

CPU_CLONES void codec_add(uint64_t count, const float *restrict source, float *restrict target)
{
    for (uint64_t i = 0; i < count; i++)
        target[i] += source[i];
}

/* ---- A step -------------------------------------------------------------------------------- */

void ty_codec_encode(ty_codec *codec, uint32_t phase, const float *gradients)
{
    assert(phase < ty_compression_phases(&codec->options.compression));
    if (phase == 0) {
        codec->step = codec->steps_begun++;
    }
    codec->payload_bytes[phase] = step_bytes(codec, phase);
    codec->kind->encode[phase](codec, gradients);
}

ty_collective_options ty_codec_exchange(const ty_codec *codec, uint32_t phase)
{
    const ty_codec_options *o = &codec->options;
    ty_collective_options exchange = {.kind = ty_compression_collective(&o->compression, phase),
                                      .member_count = o->member_count,
                                      .data = codec->payloads[phase],
                                      .element = TY_ELEMENT_BYTE};

    if (exchange.kind == TY_ALL_REDUCE)
        exchange.element = codec->kind->element;
    exchange.count = codec->payload_bytes[phase] / element_bytes[exchange.element];
    if (exchange.kind == TY_ALL_TO_ALL)
        exchange.count /= o->member_count;
    return exchange;
}

void ty_codec_decode(ty_codec *codec, float *gradients)
{
    codec->kind->decode(codec, gradients);
}

bool ty_codec_state(ty_codec *codec, uint32_t index, void **data, uint64_t *bytes)
{
    const uint32_t last = ty_compression_phases(&codec->options.compression) - 1;
    uint32_t arrays = 0;

    while (arrays < CODEC_MOST_ARRAYS && codec->arrays[arrays] != NULL)
        arrays++;
    if (index == 0) {
        *data = &codec->steps_begun;
        *bytes = sizeof codec->steps_begun;
    } else if (index <= arrays) {
        *data = codec->arrays[index - 1];
        *bytes = codec->array_counts[index - 1] * sizeof(float);
    } else if (index == arrays + 1 && codec->kind->keeps_payload) {
        *data = codec->payloads[last];
        *bytes = codec->payload_bytes[last];
    } else {
        return false;
    }
    return true;
}

uint64_t ty_codec_memory_bytes(const ty_codec *codec)
{
    const ty_codec_options *o = &codec->options;
    uint64_t bytes = ty_compression_payload_bytes(&o->compression, &codec->extent, o->member_count);

    for (uint32_t i = 0; i < CODEC_MOST_ARRAYS; i++)
        bytes += codec->array_counts[i] * sizeof(float);
    return bytes;
}
