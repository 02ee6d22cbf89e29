/* What compressors take, by themselves: on a payload that one rank made for all members. */
#include "codec.h"
#include "profile_job.h"

#include <math.h>
#include <string.h>

enum { RANK_COUNTS = 2 };
static const double codec_budget_s = 0.01;

/* Squares, so that powersgd has a matrix to factor. */
static const uint64_t sides[] = {64, 256, 1024};
enum { SIDES = sizeof sides / sizeof sides[0] };

static const ty_compression kinds[] = {
    {.kind = TY_COMPRESSION_ROWS, .ratio = 0.01}, /* as profiles have them: of so many rows */
    {.kind = TY_COMPRESSION_ROWS, .ratio = 0.1},
    {.kind = TY_COMPRESSION_ROWS, .ratio = 0.5},
    {.kind = TY_COMPRESSION_FP16},
    {.kind = TY_COMPRESSION_BF16},
    {.kind = TY_COMPRESSION_FP8_E4M3},
    {.kind = TY_COMPRESSION_FP8_E5M2},
    {.kind = TY_COMPRESSION_INT8},
    {.kind = TY_COMPRESSION_TERNARY},
    {.kind = TY_COMPRESSION_ONE_BIT},
    {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.001},
    {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.01},
    {.kind = TY_COMPRESSION_TOP_K, .ratio = 0.1},
    {.kind = TY_COMPRESSION_TOP_K_SAMPLED, .ratio = 0.001},
    {.kind = TY_COMPRESSION_TOP_K_SAMPLED, .ratio = 0.01},
    {.kind = TY_COMPRESSION_TOP_K_SAMPLED, .ratio = 0.1},
    {.kind = TY_COMPRESSION_RANDOM_K, .ratio = 0.01},
    {.kind = TY_COMPRESSION_RANDOM_K, .ratio = 0.1},
    {.kind = TY_COMPRESSION_DGC, .ratio = 0.001},
    {.kind = TY_COMPRESSION_DGC, .ratio = 0.01},
    {.kind = TY_COMPRESSION_POWERSGD, .rank = 1},
    {.kind = TY_COMPRESSION_POWERSGD, .rank = 2},
    {.kind = TY_COMPRESSION_POWERSGD, .rank = 4},
    {.kind = TY_COMPRESSION_POWERSGD, .rank = 16},
};
enum { KINDS = sizeof kinds / sizeof kinds[0] };

typedef struct codec_work {
    ty_codec *codec;
    uint32_t phase;
    float *gradients, *source, *touched;
} codec_work;

static void encode_run(void *context)
{
    codec_work *work = context;

    ty_codec_encode(work->codec, work->phase, work->source);
}

static void decode_run(void *context)
{
    codec_work *work = context;

    ty_codec_decode(work->codec, work->gradients);
}

/* What the first member, this one, encoded, as if all had sent the same. */
static void gather(const ty_codec *codec, uint32_t phase)
{
    ty_collective_options exchange = ty_codec_exchange(codec, phase);
    char *payloads = exchange.data;

    for (uint32_t m = 1; exchange.kind == TY_ALL_GATHER && m < exchange.member_count; m++)
        memcpy(payloads + m * exchange.count, payloads, exchange.count);
}

/* As many rows of a square as there is room for, evenly spread; all others are zero. */
static void rows_touch(uint64_t side, uint64_t room, codec_work *work)
{
    memset(work->touched, 0, side * side * sizeof *work->touched);
    for (uint64_t i = 0; i < room; i++)
        memcpy(work->touched + i * side / room * side, work->source, side * sizeof *work->source);
    work->source = work->touched;
}

static ty_status codec_time(ty_profiler *p, ty_codec_time *row, const codec_work *buffers,
                            ty_error *error)
{
    const bool are_rows = row->compression.kind == TY_COMPRESSION_ROWS;
    const uint32_t phases = ty_compression_phases(&row->compression);
    codec_work work = *buffers;
    ty_codec_options options = {.compression = row->compression,
                                .count = row->elements,
                                .member_count = row->ranks,
                                .seed = 1,
                                .matrix_count = 1};
    double seconds[TY_MOST_PHASES + 1] = {0};
    uint64_t side = sides[0];
    ty_status status;

    while (side * side < row->elements)
        side *= 2;
    options.matrices = &(ty_bucket_matrix){0, side, side};
    if (are_rows) {
        options.compression.ratio = 0;
        options.row_room = (uint64_t)ceil(row->compression.ratio * (double)side);
        rows_touch(side, options.row_room, &work);
    }
    TY_CHECK(ty_codec_open(&options, &work.codec, error), status, cleanup);
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    for (work.phase = 0; work.phase < phases; work.phase++) {
        seconds[work.phase] = ty_measure(p, encode_run, &work, codec_budget_s);
        gather(work.codec, work.phase);
    }
    seconds[TY_MOST_PHASES] = ty_measure(p, decode_run, &work, codec_budget_s);
    TY_CHECK(ty_mean_over_ranks(p, seconds, TY_MOST_PHASES + 1, error), status, cleanup);
    memcpy(row->cost.encode_s, seconds, sizeof row->cost.encode_s);
    row->cost.decode_s = seconds[TY_MOST_PHASES];
cleanup:
    ty_codec_close(work.codec);
    return status;
}

/* Two ranks always, since a gathered payload is what grows; all that were started if more. */
ty_status ty_profile_codecs(ty_profiler *p, ty_error *error)
{
    const uint32_t rank_counts[RANK_COUNTS] = {2, p->transport->size};
    uint64_t largest = sides[SIDES - 1] * sides[SIDES - 1];
    codec_work buffers = {.source = ty_alloc(largest, sizeof(float)),
                          .gradients = ty_alloc(largest, sizeof(float)),
                          .touched = ty_alloc(largest, sizeof(float))};
    ty_profile *profile = p->profile;
    ty_status status = TY_OK;

    profile->codec_times = ty_alloc(RANK_COUNTS * KINDS * SIDES, sizeof *profile->codec_times);
    if (buffers.source == NULL || buffers.gradients == NULL || buffers.touched == NULL ||
        profile->codec_times == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a profile");
        goto cleanup;
    }
    ty_noise_fill(buffers.source, largest);
    for (uint32_t r = 0; r < (p->transport->size > 2 ? RANK_COUNTS : 1); r++) {
        for (uint32_t i = 0; i < KINDS * SIDES; i++) {
            ty_codec_time row = {.compression = kinds[i / SIDES],
                                 .ranks = rank_counts[r],
                                 .elements = sides[i % SIDES] * sides[i % SIDES]};
            TY_CHECK(codec_time(p, &row, &buffers, error), status, cleanup);
            profile->codec_times[profile->codec_time_count++] = row;
        }
    }
cleanup:
    ty_free(buffers.source);
    ty_free(buffers.gradients);
    ty_free(buffers.touched);
    return status;
}
