/* Compressors of gradients: the interface, and the parts common to all backends: memory, phases and
 * state. */
#include "codec_kinds.h"

#include <assert.h>

ty_element ty_codec_element(const ty_compression *compression)
{
    static const ty_element elements[TY_PRECISION_COUNT] = {
        [TY_PRECISION_FP16] = TY_ELEMENT_HALF, [TY_PRECISION_BF16] = TY_ELEMENT_BFLOAT};

    return elements[ty_compression_at(compression->kind)->summed];
}

/* ---- Opening ------------------------------------------------------------------------------- */

/* Rows must be those of a matrix that begins the bucket. */
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

static ty_status options_check(const codec_backend *backend, const ty_codec_options *o,
                               ty_error *error)
{
    ty_status status = ty_compression_check(&o->compression, error);

    if (status != TY_OK)
        return status;
    if (backend->kinds[o->compression.kind] == NULL ||
        backend->kinds[o->compression.kind]->decode == NULL)
        return ty_fail(error, TY_EINVAL, "found compression %s, expected a compressor",
                       ty_compression_name(o->compression.kind));
    if (o->count == 0)
        return ty_fail(error, TY_EINVAL, "found a bucket of 0 elements, expected at least 1");
    if (ty_compression_has_ratio(o->compression.kind) && o->count >= UINT32_MAX)
        return ty_fail(error, TY_EINVAL, "found %llu elements for %s, expected less than 2^32 - 1",
                       (unsigned long long)o->count, ty_compression_name(o->compression.kind));
    if (o->position >= o->member_count)
        return ty_fail(error, TY_EINVAL, "found member %u of %u", o->position, o->member_count);
    return ty_compression_at(o->compression.kind)->sends_rows ? rows_check(o, error) : TY_OK;
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
    if (ty_compression_at(o->compression.kind)->sends_rows)
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

/* NULL when memory runs out. */
static void *room_new(ty_codec *codec, uint64_t parts, uint64_t bytes)
{
    if (parts > 0 && bytes > UINT64_MAX / parts)
        return NULL;
    codec->allocated_bytes += parts * bytes;
    return codec->backend->allocate(codec->device, parts * bytes);
}

static ty_status no_room(const ty_codec *codec, ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for a compressor of %llu elements",
                   (unsigned long long)codec->options.count);
}

/* During warm-up, payloads are largest in the first step. */
static ty_status payloads_open(ty_codec *codec, ty_error *error)
{
    for (uint32_t p = 0; p < ty_compression_phases(&codec->options.compression); p++) {
        codec->payload_bytes[p] = step_bytes(codec, p);
        codec->payloads[p] =
            room_new(codec, is_gathered(codec, p) ? codec->options.member_count : 1,
                     codec->payload_bytes[p]);
        if (codec->payloads[p] == NULL)
            return no_room(codec, error);
    }
    return TY_OK;
}

static ty_status arrays_open(ty_codec *codec, ty_error *error)
{
    const ty_compression_kind kind = codec->options.compression.kind;

    for (uint32_t i = 0; i < ty_compression_at(kind)->arrays; i++) {
        codec->array_counts[i] = ty_compression_array(&codec->options.compression, &codec->extent,
                                                      codec->options.member_count, i);
        codec->arrays[i] = room_new(codec, codec->array_counts[i], sizeof(float));
        if (codec->arrays[i] == NULL)
            return no_room(codec, error);
    }
    if (ty_compression_at(kind)->selects) {
        codec->scratch = room_new(codec, codec->options.count, sizeof *codec->scratch);
        if (codec->scratch == NULL)
            return no_room(codec, error);
    }
    return TY_OK;
}

ty_status codec_open(const codec_backend *backend, void *device, const ty_codec_options *options,
                     ty_codec **out, ty_error *error)
{
    ty_codec *codec = NULL;
    ty_status status = options_check(backend, options, error);

    if (status != TY_OK)
        return status;
    codec = ty_alloc(1, sizeof *codec);
    TY_TRY(ty_check_memory(codec != NULL, error));
    codec->backend = backend;
    codec->device = device;
    codec->kind = backend->kinds[options->compression.kind];
    codec->options = *options;
    TY_CHECK(matrices_copy(codec, error), status, cleanup);
    TY_CHECK(payloads_open(codec, error), status, cleanup);
    TY_CHECK(arrays_open(codec, error), status, cleanup);
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
        codec->backend->release(codec->device, codec->arrays[i]);
    for (uint32_t p = 0; p < TY_MOST_PHASES; p++)
        codec->backend->release(codec->device, codec->payloads[p]);
    codec->backend->release(codec->device, codec->scratch);
    ty_free(codec);
}

/* ---- Common to kinds ----------------------------------------------------------------------- */

void *codec_own_payload(const ty_codec *codec, uint32_t phase)
{
    return (void *)codec_payload_of(codec, phase,
                                    is_gathered(codec, phase) ? codec->options.position : 0);
}

const void *codec_payload_of(const ty_codec *codec, uint32_t phase, uint32_t member)
{
    return (const char *)codec->payloads[phase] + member * codec->payload_bytes[phase];
}

uint32_t codec_own_key(const ty_codec *codec)
{
    return codec_hash(codec_shared_key(codec) + codec->options.position + 1);
}

uint64_t codec_kept(const ty_codec *codec)
{
    const ty_codec_options *o = &codec->options;

    return ty_compression_at(o->compression.kind)->has_warmup
               ? codec->payload_bytes[0] / sizeof(codec_pair)
               : ty_compression_kept(&o->compression, o->count);
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
        exchange.element = ty_codec_element(&o->compression);
    exchange.count = codec->payload_bytes[phase] / ty_element_bytes(exchange.element);
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
    const ty_compression_kind kind = codec->options.compression.kind;
    const uint32_t last = ty_compression_phases(&codec->options.compression) - 1;
    const uint32_t arrays = ty_compression_at(kind)->arrays;

    if (index == 0) {
        *data = &codec->steps_begun;
        *bytes = sizeof codec->steps_begun;
    } else if (index <= arrays) {
        *data = codec->arrays[index - 1];
        *bytes = codec->array_counts[index - 1] * sizeof(float);
    } else if (index == arrays + 1 && ty_compression_at(kind)->keeps_payload) {
        *data = codec->payloads[last];
        *bytes = codec->payload_bytes[last];
    } else {
        return false;
    }
    return true;
}

uint64_t ty_codec_memory_bytes(const ty_codec *codec)
{
    return codec->allocated_bytes;
}
