/* Compressors on the GPU, with the residuals of top-k there too. */
#include "cuda_stage.h"

struct ty_device_codec {
    ty_stage_device *stage;
    ty_compression_kind kind;
    uint64_t count, top_k, payload_bytes; /* of one member */
    cuda_row_table rows;
    uint32_t member_count, position;
    float *residual;
    void *scratch;
    char *payload; /* encoded; of all members where they are gathered */
};

void cuda_codec_close(ty_device_codec *codec)
{
    if (codec == NULL)
        return;
    cudaFree(codec->residual);
    cudaFree(codec->scratch);
    cudaFree(codec->payload);
    ty_free(codec);
}

static ty_status top_k_open(ty_device_codec *codec, ty_error *error)
{
    uint64_t scratch = cuda_top_k_scratch(codec->count);
    ty_status status = TY_OK;

    if (codec->count >= UINT32_MAX)
        return ty_fail(error, TY_EINVAL,
                       "found %llu elements for top-k, expected less than 2^32 - 1",
                       (unsigned long long)codec->count);
    CUDA_CHECK(cudaMalloc((void **)&codec->residual, codec->count * sizeof(float)), status, done);
    CUDA_CHECK(cudaMemset(codec->residual, 0, codec->count * sizeof(float)), status, done);
    CUDA_CHECK(cudaMalloc(&codec->scratch, scratch), status, done);
done:
    return status;
}

/* What the payload of a bucket of rows is made of, a checked plan's. */
static ty_status rows_open(ty_device_codec *codec, const ty_codec_options *o, ty_error *error)
{
    ty_status status = TY_OK;

    if (o->matrix_count == 0 || o->matrices->rows >= UINT32_MAX || o->row_room == 0 ||
        o->row_room > o->matrices->rows)
        return ty_fail(error, TY_EINVAL, "found room for %llu rows, expected 1 to all of a matrix",
                       (unsigned long long)o->row_room);
    codec->rows =
        (cuda_row_table){.rows = o->matrices->rows,
                         .columns = o->matrices->columns,
                         .room = o->row_room,
                         .dense_elements = o->count - o->matrices->rows * o->matrices->columns};
    CUDA_CHECK(cudaMalloc(&codec->scratch, cuda_rows_scratch(codec->rows.rows)), status, done);
done:
    return status;
}

/* What of the bucket its payload depends on. */
static ty_gradient_extent extent_of(const ty_device_codec *codec)
{
    return (ty_gradient_extent){.elements = codec->count,
                                .dense_elements = codec->rows.dense_elements,
                                .row_room = codec->rows.room,
                                .row_elements = codec->rows.columns};
}

static bool is_gathered(const ty_device_codec *codec)
{
    return codec->kind != TY_COMPRESSION_FP16;
}

static ty_status options_check(const ty_codec_options *o, ty_error *error)
{
    ty_status status = ty_compression_check(&o->compression, error);

    if (status != TY_OK)
        return status;
    if (o->compression.kind != TY_COMPRESSION_FP16 && o->compression.kind != TY_COMPRESSION_TOP_K &&
        o->compression.kind != TY_COMPRESSION_ROWS)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "the cuda backend does not compress by %s, expected none, fp16, top-k or "
                       "rows",
                       ty_compression_name(o->compression.kind));
    if (o->count == 0)
        return ty_fail(error, TY_EINVAL, "found a bucket of 0 elements, expected at least 1");
    if (o->position >= o->member_count)
        return ty_fail(error, TY_EINVAL, "found member %u of %u", o->position, o->member_count);
    return TY_OK;
}

ty_status cuda_codec_open(ty_stage_device *stage, const ty_codec_options *options,
                          ty_device_codec **out, ty_error *error)
{
    ty_device_codec *codec = NULL;
    ty_gradient_extent extent;
    uint64_t bytes;
    ty_status status;

    TY_CHECK(cuda_use(stage, error), status, cleanup);
    TY_CHECK(options_check(options, error), status, cleanup);
    codec = ty_alloc(1, sizeof *codec);
    if (codec == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a compressor");
    *codec = (ty_device_codec){.stage = stage,
                               .kind = options->compression.kind,
                               .count = options->count,
                               .member_count = options->member_count,
                               .position = options->position};
    if (codec->kind == TY_COMPRESSION_TOP_K) {
        codec->top_k = ty_compression_kept(&options->compression, options->count);
        TY_CHECK(top_k_open(codec, error), status, cleanup);
    }
    if (codec->kind == TY_COMPRESSION_ROWS)
        TY_CHECK(rows_open(codec, options, error), status, cleanup);
    extent = extent_of(codec);
    codec->payload_bytes =
        ty_compression_wire_bytes(&options->compression, &extent, options->member_count, 0);
    bytes = codec->payload_bytes * (is_gathered(codec) ? options->member_count : 1);
    CUDA_CHECK(cudaMalloc((void **)&codec->payload, bytes), status, cleanup);
    CUDA_CHECK(cudaMemset(codec->payload, 0, bytes), status, cleanup); /* places may be left over */
    *out = codec;
    codec = NULL; /* given away */
cleanup:
    cuda_codec_close(codec);
    return status;
}

static char *own_payload(const ty_device_codec *codec)
{
    return is_gathered(codec) ? codec->payload + codec->position * codec->payload_bytes
                              : codec->payload;
}

ty_status cuda_codec_encode(ty_device_codec *codec, uint32_t phase, const float *gradients,
                            ty_error *error)
{
    cudaStream_t side = codec->stage->side;
    ty_status status;

    if (phase != 0)
        return ty_fail(error, TY_EINVAL, "found phase %u, expected 0", phase);
    TY_CHECK(cuda_use(codec->stage, error), status, done);
    if (codec->kind == TY_COMPRESSION_FP16)
        cuda_half_encode(codec->count, gradients, (void *)own_payload(codec), side);
    else if (codec->kind == TY_COMPRESSION_ROWS)
        cuda_rows_encode(&codec->rows, gradients, own_payload(codec), codec->scratch, side);
    else
        cuda_top_k_encode(codec->count, codec->top_k, gradients, codec->residual,
                          (void *)own_payload(codec), codec->scratch, side);
    status = cuda_side_wait(codec->stage, error);
done:
    return status;
}

ty_collective_options cuda_codec_exchange(const ty_device_codec *codec, uint32_t phase)
{
    const bool is_half = !is_gathered(codec);

    (void)phase; /* there is one */
    return (ty_collective_options){.kind = is_half ? TY_ALL_REDUCE : TY_ALL_GATHER,
                                   .member_count = codec->member_count,
                                   .data = codec->payload,
                                   .count = is_half ? codec->count : codec->payload_bytes,
                                   .element = is_half ? TY_ELEMENT_HALF : TY_ELEMENT_BYTE};
}

bool cuda_codec_state(const ty_device_codec *codec, uint32_t index, void **data, uint64_t *bytes)
{
    if (index > 0 || codec->residual == NULL)
        return false;
    *data = codec->residual;
    *bytes = codec->count * sizeof *codec->residual;
    return true;
}

ty_status cuda_codec_decode(ty_device_codec *codec, float *gradients, ty_error *error)
{
    cudaStream_t side = codec->stage->side;
    ty_status status;

    TY_CHECK(cuda_use(codec->stage, error), status, done);
    if (codec->kind == TY_COMPRESSION_FP16)
        cuda_half_decode(codec->count, (void *)codec->payload, gradients, side);
    else if (codec->kind == TY_COMPRESSION_ROWS)
        cuda_rows_decode(&codec->rows, codec->member_count, codec->payload, gradients, side);
    else
        cuda_top_k_decode(codec->count, codec->top_k, codec->member_count, (void *)codec->payload,
                          gradients, side);
    status = cuda_side_wait(codec->stage, error);
done:
    return status;
}
