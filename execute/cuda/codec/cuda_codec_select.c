/* Compressors that select elements: top-k, deep gradient compression (by momentum), random-k,
 * rows. */
#include "cuda_codec.h"

/* ---- The largest ---- */

static void top_k_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count, k = codec_kept(codec);
    void *workspace = cuda_codec_workspace(codec);
    cudaStream_t stream = cuda_codec_stream(codec);
    float *residual = cuda_codec_add(codec, gradients, CODEC_RESIDUAL);

    cuda_threshold_exact(workspace, count, k, residual, codec->scratch, stream);
    cuda_pairs_take(workspace, count, k, residual, NULL, codec_own_payload(codec, 0), stream);
}

static void top_k_sampled_encode(ty_codec *codec, const float *gradients)
{
    const uint64_t count = codec->options.count, k = codec_kept(codec);
    void *workspace = cuda_codec_workspace(codec);
    cudaStream_t stream = cuda_codec_stream(codec);
    float *residual = cuda_codec_add(codec, gradients, CODEC_RESIDUAL);

    cuda_threshold_sampled(workspace, count, k, codec_own_key(codec), residual, codec->scratch,
                           stream);
    cuda_pairs_take(workspace, count, k, residual, NULL, codec_own_payload(codec, 0), stream);
}

/* Sum of squares for clipping, in the stage's memory for it, which is unused meanwhile. */
static const double *clipped_squares(const ty_codec *codec, const float *gradients)
{
    const ty_stage_device *stage = codec->device;

    if (!(codec->options.compression.clip_norm > 0))
        return NULL;
    cuda_squares(codec->options.count, gradients, stage->own->squares, stage->own->side);
    return stage->own->squares;
}

static void dgc_encode(ty_codec *codec, const float *gradients)
{
    const ty_codec_options *o = &codec->options;
    const uint64_t count = o->count, k = codec_kept(codec);
    void *workspace = cuda_codec_workspace(codec);
    cudaStream_t stream = cuda_codec_stream(codec);
    float *velocity = codec->arrays[CODEC_VELOCITY], *sum = codec->arrays[CODEC_SUM];

    cuda_velocity(count, (float)o->momentum, o->member_count, o->compression.clip_norm,
                  clipped_squares(codec, gradients), gradients, velocity, sum, stream);
    cuda_threshold_sampled(workspace, count, k, codec_own_key(codec), sum, codec->scratch, stream);
    cuda_pairs_take(workspace, count, k, sum, velocity, codec_own_payload(codec, 0), stream);
}

static void pairs_decode(ty_codec *codec, float *gradients)
{
    cuda_pairs_add(codec->options.count, codec_kept(codec), codec->options.member_count,
                   codec->payloads[0], gradients, cuda_codec_stream(codec));
}

/* ---- Random ones ---- */

static void random_k_encode(ty_codec *codec, const float *gradients)
{
    float *residual = cuda_codec_add(codec, gradients, CODEC_RESIDUAL);

    cuda_places_take(codec->options.count, codec_kept(codec), codec_shared_key(codec), residual,
                     codec->payloads[0], cuda_codec_stream(codec));
}

static void random_k_decode(ty_codec *codec, float *gradients)
{
    cuda_places_put(codec->options.count, codec_kept(codec), codec_shared_key(codec),
                    codec->payloads[0], gradients, cuda_codec_stream(codec));
}

/* ---- Rows ---- */

static cuda_row_table table_of(const ty_codec *codec)
{
    return (cuda_row_table){.rows = codec->options.matrices[0].rows,
                            .columns = codec->extent.row_elements,
                            .room = codec->extent.row_room,
                            .dense_elements = codec->extent.dense_elements};
}

static void rows_encode(ty_codec *codec, const float *gradients)
{
    const cuda_row_table table = table_of(codec);

    cuda_rows_encode(&table, gradients, codec_own_payload(codec, 0), cuda_codec_workspace(codec),
                     cuda_codec_stream(codec));
}

static void rows_decode(ty_codec *codec, float *gradients)
{
    const cuda_row_table table = table_of(codec);

    cuda_rows_decode(&table, codec->options.member_count, codec->payloads[0], gradients,
                     cuda_codec_stream(codec));
}

const codec_kind cuda_codec_top_k = {.encode = {top_k_encode}, .decode = pairs_decode};
const codec_kind cuda_codec_top_k_sampled = {.encode = {top_k_sampled_encode},
                                             .decode = pairs_decode};
const codec_kind cuda_codec_dgc = {.encode = {dgc_encode}, .decode = pairs_decode};
const codec_kind cuda_codec_random_k = {.encode = {random_k_encode}, .decode = random_k_decode};
const codec_kind cuda_codec_rows = {.encode = {rows_encode}, .decode = rows_decode};
