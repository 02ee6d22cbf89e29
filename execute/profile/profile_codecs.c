/* Times of compressors without communication: one rank's payload stands for those of all members. A
 * device with memory of its own runs its own compressors; those that it lacks get no rows. */
#include "codec.h"
#include "profile_job.h"

#include <math.h>
#include <string.h>

enum { RANK_COUNTS = 2, MOST_CASES = 4 /* of a kind */ };
static const double codec_budget_s = 0.01;

/* Squares, so that powersgd has a matrix to factor. */
static const uint64_t sides[] = {64, 256, 1024};
enum { SIDES = sizeof sides / sizeof sides[0] };

/* On the host, or on a device: then arrays are in its memory. */
typedef struct codec_work {
    ty_codec *codec;
    const ty_device_memory *memory; /* NULL: on the host */
    ty_stage_device *device;
    uint32_t phase;
    float *gradients, *source;
    float *host_source, *touched; /* on the host, even if the compressor is not */
} codec_work;

static ty_status encode_run(void *context, ty_error *error)
{
    codec_work *work = context;

    if (work->memory != NULL)
        return work->memory->codec_encode(work->codec, work->phase, work->source, error);
    ty_codec_encode(work->codec, work->phase, work->source);
    return TY_OK;
}

static ty_status decode_run(void *context, ty_error *error)
{
    codec_work *work = context;

    if (work->memory != NULL)
        return work->memory->codec_decode(work->codec, work->gradients, error);
    ty_codec_decode(work->codec, work->gradients);
    return TY_OK;
}

/* Copies the payload of the first member, this one, to all, as if all had sent the same. */
static ty_status gather(const codec_work *work, ty_error *error)
{
    const ty_collective_options exchange = ty_codec_exchange(work->codec, work->phase);
    char *payloads = exchange.data;

    for (uint32_t m = 1; exchange.kind == TY_ALL_GATHER && m < exchange.member_count; m++) {
        char *to = payloads + m * exchange.count;
        if (work->memory != NULL)
            TY_TRY(work->memory->copy(work->device, to, payloads, exchange.count, error));
        else
            memcpy(to, payloads, exchange.count);
    }
    return TY_OK;
}

/* Copies the gradients to where the compressor reads them. */
static ty_status source_place(codec_work *work, const float *host, uint64_t elements,
                              ty_error *error)
{
    if (work->memory == NULL) {
        memcpy(work->source, host, elements * sizeof *host);
        return TY_OK;
    }
    return work->memory->write(work->device, work->source, host, elements * sizeof *host, error);
}

/* Fills `room` rows of a square, evenly spread; all others are zero. */
static void rows_touch(uint64_t side, uint64_t room, codec_work *work)
{
    memset(work->touched, 0, side * side * sizeof *work->touched);
    for (uint64_t i = 0; i < room; i++)
        memcpy(work->touched + i * side / room * side, work->host_source,
               side * sizeof *work->host_source);
}

static ty_status codec_open(codec_work *work, const ty_codec_options *options, ty_error *error)
{
    return work->memory != NULL
               ? work->memory->codec_open(work->device, options, &work->codec, error)
               : ty_codec_open(options, &work->codec, error);
}

/* Phase by phase, then decode. */
static ty_status phases_time(ty_profiler *p, codec_work *work, uint32_t phases,
                             double seconds[TY_MOST_PHASES + 1], ty_error *error)
{
    ty_stage_device *device = work->device;

    for (work->phase = 0; work->phase < phases; work->phase++) {
        TY_TRY(
            ty_measure(p, device, encode_run, work, codec_budget_s, &seconds[work->phase], error));
        TY_TRY(gather(work, error));
    }
    return ty_measure(p, device, decode_run, work, codec_budget_s, &seconds[TY_MOST_PHASES], error);
}

static ty_status codec_time(ty_profiler *p, ty_codec_time *row, const codec_work *buffers,
                            ty_error *error)
{
    const bool are_rows = ty_compression_at(row->compression.kind)->sends_rows;
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
    TY_CHECK(source_place(&work, are_rows ? work.touched : work.host_source, row->elements, error),
             status, cleanup);
    TY_CHECK(codec_open(&work, &options, error), status, cleanup);
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    TY_CHECK(phases_time(p, &work, ty_compression_phases(&row->compression), seconds, error),
             status, cleanup);
    TY_CHECK(ty_mean_over_ranks(p, seconds, TY_MOST_PHASES + 1, error), status, cleanup);
    memcpy(row->cost.encode_s, seconds, sizeof row->cost.encode_s);
    row->cost.decode_s = seconds[TY_MOST_PHASES];
cleanup:
    ty_codec_close(work.codec);
    return status;
}

static void *array_new(const codec_work *work, uint64_t count)
{
    return work->memory != NULL ? work->memory->allocate(work->device, count * sizeof(float))
                                : ty_alloc(count, sizeof(float));
}

static void array_free(const codec_work *work, void *array)
{
    if (work->memory == NULL)
        ty_free(array);
    else if (array != NULL)
        work->memory->release(work->device, array);
}

static void work_close(const ty_profiler *p, codec_work *work)
{
    array_free(work, work->source);
    array_free(work, work->gradients);
    ty_free(work->host_source);
    ty_free(work->touched);
    if (work->device != NULL)
        p->backend->close(work->device);
}

static ty_status work_open(const ty_profiler *p, uint64_t elements, codec_work *out,
                           ty_error *error)
{
    codec_work work = {.memory = ty_profiler_has_clock(p) ? p->backend->memory : NULL};
    ty_status status = TY_OK;

    if (work.memory != NULL)
        TY_CHECK(ty_profiler_open(p, 1, 1, false, &work.device, error), status, failed);
    work.source = array_new(&work, elements);
    work.gradients = array_new(&work, elements);
    work.host_source = ty_alloc(elements, sizeof(float));
    work.touched = ty_alloc(elements, sizeof(float));
    TY_CHECK(ty_check_memory(work.source != NULL && work.gradients != NULL &&
                                 work.host_source != NULL && work.touched != NULL,
                             error),
             status, failed);
    ty_noise_fill(work.host_source, elements);
    *out = work;
    return TY_OK;
failed:
    work_close(p, &work);
    return status;
}

/* Number of sizes: up to the first that holds all gradients of the workload, since no bucket is
 * larger; at least two, for the slope with which look-ups extrapolate. */
static uint32_t size_count(const ty_workload *workload)
{
    const uint64_t elements =
        ty_workload_parameter_bytes(workload, 0, workload->layer_count) / sizeof(float);
    uint32_t count = 2;

    while (count < SIDES && sides[count - 1] * sides[count - 1] < elements)
        count++;
    return count;
}

/* One compressor over `ranks` ranks. After a bucket that takes a device long, larger ones are
 * skipped. */
static ty_status sizes_time(ty_profiler *p, const ty_compression *kind, uint32_t ranks,
                            const codec_work *work, ty_error *error)
{
    static const double long_s = 0.05; /* the next size has 16 times the elements */
    const double most_s = work->memory != NULL ? long_s : HUGE_VAL;
    const uint32_t sizes = size_count(p->workload);
    ty_profile *profile = p->profile;
    double last_s = 0;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < sizes && last_s < most_s && status == TY_OK; i++) {
        ty_codec_time row = {.compression = *kind, .ranks = ranks, .elements = sides[i] * sides[i]};

        status = codec_time(p, &row, work, error);
        if (status == TY_OK)
            profile->codec_times[profile->codec_time_count++] = row;
        last_s = row.cost.encode_s[0] + row.cost.encode_s[1] + row.cost.decode_s;
    }
    return status;
}

/* Always two ranks, since a gathered payload grows with them; also all ranks if there are more. */
/* A compressor with each of the ratios or factor ranks in its row. */
static ty_status kind_time(ty_profiler *p, ty_compression_kind kind, uint32_t ranks,
                           codec_work *work, ty_error *error)
{
    const ty_compression_row *row = ty_compression_at(kind);
    ty_status status = TY_OK;

    for (uint32_t m = 0; status == TY_OK && (m == 0 || row->measured[m] > 0); m++) {
        ty_compression c = {.kind = kind};
        if (row->has_rank)
            c.rank = (uint32_t)row->measured[m];
        else
            c.ratio = row->measured[m];
        status = sizes_time(p, &c, ranks, work, error);
    }
    return status;
}

ty_status ty_profile_codecs(ty_profiler *p, ty_error *error)
{
    const uint32_t rank_counts[RANK_COUNTS] = {2, p->transport->size};
    codec_work work = {0};
    ty_profile *profile = p->profile;
    ty_status status = TY_OK;

    profile->codec_times = ty_alloc((size_t)RANK_COUNTS * TY_COMPRESSION_COUNT * MOST_CASES * SIDES,
                                    sizeof *profile->codec_times);
    TY_TRY(ty_check_memory(profile->codec_times != NULL, error));
    TY_CHECK(work_open(p, sides[SIDES - 1] * sides[SIDES - 1], &work, error), status, done);
    for (uint32_t r = 0; r < (p->transport->size > 2 ? RANK_COUNTS : 1); r++)
        for (int k = TY_COMPRESSION_NONE + 1; k < TY_COMPRESSION_COUNT; k++)
            TY_CHECK(kind_time(p, (ty_compression_kind)k, rank_counts[r], &work, error), status,
                     cleanup);
cleanup:
    work_close(p, &work);
done:
    return status;
}
