/* Figures other than layers and messages: rates of the host or device, batch assembly. */
#include "dnnl_wrap.h"
#include "profile_job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SAMPLES = 400, MIN_SAMPLES = 5 };
static const double shortest_sample_s = 20e-6; /* a thousand times the time to read the clock */
static const double part_budget_s = 0.04;

/* ---- Measuring --------------------------------------------------------------------------- */

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double ty_median(double *values, uint32_t count)
{
    qsort(values, count, sizeof *values, compare_doubles);
    return count % 2 == 1 ? values[count / 2] : (values[count / 2 - 1] + values[count / 2]) / 2;
}

uint32_t ty_profiler_least(const ty_profiler *p, uint32_t samples)
{
    const uint32_t least = (uint32_t)(samples / p->haste);

    return least > 1 ? least : 1;
}

bool ty_profiler_is_active(const ty_profiler *p)
{
    return p->transport->rank < p->active;
}

bool ty_profiler_has_clock(const ty_profiler *p)
{
    return p->backend->memory != NULL && p->backend->memory->time != NULL;
}

ty_status ty_profiler_lap(const ty_profiler *p, ty_stage_device *device, double *started_s,
                          double *seconds, ty_error *error)
{
    const double now_s = ty_now_s();

    *seconds = now_s - *started_s;
    *started_s = now_s;
    return ty_profiler_has_clock(p) ? p->backend->memory->seconds(device, seconds, error) : TY_OK;
}

/* A power of two of calls that together take long enough for the host's clock. */
static ty_status batch_find(ty_work *work, void *context, uint32_t *batch, ty_error *error)
{
    double started_s = ty_now_s();

    TY_TRY(work(context, error));
    while ((ty_now_s() - started_s) * *batch < shortest_sample_s) {
        *batch *= 2;
        started_s = ty_now_s();
        TY_TRY(work(context, error));
    }
    return TY_OK;
}

ty_status ty_measure(const ty_profiler *p, ty_stage_device *device, ty_work *work, void *context,
                     double budget_s, double *seconds, ty_error *error)
{
    double samples[MAX_SAMPLES];
    const uint32_t least = ty_profiler_least(p, MIN_SAMPLES);
    double started_s, end_s;
    uint32_t batch = 1, count = 0, i;

    *seconds = 0;
    if (!ty_profiler_is_active(p))
        return TY_OK;
    TY_TRY(work(context, error));
    if (device == NULL)
        TY_TRY(batch_find(work, context, &batch, error));
    end_s = ty_now_s() + budget_s / p->haste;
    while (count < MAX_SAMPLES && (count < least || ty_now_s() < end_s)) {
        started_s = ty_now_s();
        for (i = 0; i < batch; i++)
            TY_TRY(work(context, error));
        samples[count] = (ty_now_s() - started_s) / batch;
        if (device != NULL)
            TY_TRY(ty_profiler_lap(p, device, &started_s, &samples[count], error));
        count++;
    }
    *seconds = ty_median(samples, count);
    return TY_OK;
}

ty_status ty_mean_over_ranks(const ty_profiler *p, double *values, uint64_t count, ty_error *error)
{
    enum { MEAN_TAG = 10 };
    ty_status status;

    if (!ty_profiler_is_active(p))
        memset(values, 0, count * sizeof *values);
    status = ty_collective_run(p->transport,
                               &(ty_collective_options){.kind = TY_ALL_REDUCE,
                                                        .algorithm = TY_TREE,
                                                        .member_count = p->transport->size,
                                                        .data = values,
                                                        .count = count,
                                                        .element = TY_ELEMENT_DOUBLE,
                                                        .tag = MEAN_TAG},
                               error);
    for (uint64_t i = 0; i < count && status == TY_OK; i++)
        values[i] /= p->active;
    return status;
}

void ty_noise_fill(float *values, uint64_t count)
{
    for (uint64_t i = 0; i < count; i++) {
        uint64_t hash = (i + 1) * UINT64_C(0x9E3779B97F4A7C15);
        values[i] = (float)(int32_t)(hash >> 32) * 0x1p-31f;
    }
}

static ty_status no_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for a profile");
}

/* ---- Rates: one product of matrices, one copy ---- */

enum { MATRIX_SIDE = 768, COPY_BYTES = 64 << 20 };
static const double rate_budget_s = 0.2;

typedef struct matrix_work {
    float *a, *b, *c;
} matrix_work;

static ty_status matrix_run(void *context, ty_error *error)
{
    matrix_work *work = context;

    (void)error;
    cpu_gemm(false, false, MATRIX_SIDE, MATRIX_SIDE, MATRIX_SIDE, 1.0f, work->a, MATRIX_SIDE,
             work->b, MATRIX_SIDE, 0.0f, work->c, MATRIX_SIDE);
    return TY_OK;
}

static ty_status copy_run(void *context, ty_error *error)
{
    char **halves = context;

    (void)error;
    memcpy(halves[1], halves[0], COPY_BYTES);
    return TY_OK;
}

static ty_status host_rates_time(ty_profiler *p, double rates[2], ty_error *error)
{
    enum { CELLS = MATRIX_SIDE * MATRIX_SIDE };
    matrix_work matrix = {ty_alloc(CELLS, sizeof(float)), ty_alloc(CELLS, sizeof(float)),
                          ty_alloc(CELLS, sizeof(float))};
    char *halves[2] = {ty_alloc(COPY_BYTES, 1), ty_alloc(COPY_BYTES, 1)};
    double seconds[2];
    ty_status status = TY_OK;

    if (matrix.a == NULL || matrix.b == NULL || matrix.c == NULL || halves[0] == NULL ||
        halves[1] == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    ty_noise_fill(matrix.a, CELLS);
    ty_noise_fill(matrix.b, CELLS);
    memset(halves[0], 1, COPY_BYTES);
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    TY_CHECK(ty_measure(p, NULL, matrix_run, &matrix, rate_budget_s, &seconds[0], error), status,
             cleanup);
    TY_CHECK(ty_transport_barrier(p->transport, error), status, cleanup);
    TY_CHECK(ty_measure(p, NULL, copy_run, halves, rate_budget_s, &seconds[1], error), status,
             cleanup);
    rates[0] = 2.0 * MATRIX_SIDE * CELLS / seconds[0];
    rates[1] = 2.0 * COPY_BYTES / seconds[1];
cleanup:
    ty_free(matrix.a);
    ty_free(matrix.b);
    ty_free(matrix.c);
    ty_free(halves[0]);
    ty_free(halves[1]);
    return status;
}

/* On a device of its own memory: as large as it takes to fill it, which is found out by doubling.
 */
enum { LEAST_SIDE = 128, MOST_SIDE = 8192, LEAST_COPY = 1 << 20, MOST_COPY = 256 << 20 };
static const double filled_s = 2e-3; /* longer work has filled the device */

typedef struct device_work {
    const ty_device_memory *memory;
    ty_stage_device *device;
    uint64_t side, bytes;
    float *buffers[3];
} device_work;

static ty_status device_matrix_run(void *context, ty_error *error)
{
    device_work *work = context;

    return work->memory->multiply(work->device, work->side, work->buffers[0], work->buffers[1],
                                  work->buffers[2], error);
}

static ty_status device_copy_run(void *context, ty_error *error)
{
    device_work *work = context;

    return work->memory->copy(work->device, work->buffers[1], work->buffers[0], work->bytes, error);
}

/* Doubles the size from `least` until it fills the device; seconds of the last. */
static ty_status doubling_time(const ty_profiler *p, device_work *work, ty_work *run,
                               uint32_t count, double *seconds, ty_error *error)
{
    const bool is_copy = run == device_copy_run;
    bool is_filled = false;
    ty_status status = TY_OK;

    while (!is_filled && status == TY_OK) {
        for (uint32_t i = 0; i < count && status == TY_OK; i++) {
            work->buffers[i] = work->memory->allocate(work->device, work->bytes);
            if (work->buffers[i] == NULL)
                status = ty_fail(error, TY_ENOMEM, "out of the device's memory for a profile");
        }
        if (status == TY_OK)
            status = ty_measure(p, work->device, run, work, rate_budget_s, seconds, error);
        for (uint32_t i = 0; i < count; i++) {
            if (work->buffers[i] != NULL)
                work->memory->release(work->device, work->buffers[i]);
            work->buffers[i] = NULL;
        }
        is_filled =
            *seconds > filled_s || (is_copy ? work->bytes >= MOST_COPY : work->side >= MOST_SIDE);
        if (!is_filled) {
            work->side *= 2;
            work->bytes *= is_copy ? 2 : 4;
        }
    }
    return status;
}

static ty_status device_rates_time(const ty_profiler *p, double rates[2], ty_error *error)
{
    device_work work = {.memory = p->backend->memory};
    double seconds = 0;
    ty_status status = TY_OK;

    if (!ty_profiler_is_active(p))
        return TY_OK;
    TY_CHECK(ty_profiler_open(p, 1, 1, false, &work.device, error), status, cleanup);
    work.side = LEAST_SIDE;
    work.bytes = (uint64_t)LEAST_SIDE * LEAST_SIDE * sizeof(float);
    TY_CHECK(doubling_time(p, &work, device_matrix_run, 3, &seconds, error), status, cleanup);
    rates[0] = 2.0 * pow((double)work.side, 3) / seconds;
    work.bytes = LEAST_COPY;
    seconds = 0;
    TY_CHECK(doubling_time(p, &work, device_copy_run, 2, &seconds, error), status, cleanup);
    rates[1] = 2.0 * (double)work.bytes / seconds;
cleanup:
    if (work.device != NULL)
        p->backend->close(work.device);
    return status;
}

static ty_status rates_time(ty_profiler *p, ty_error *error)
{
    double rates[2] = {0};

    if (ty_profiler_has_clock(p))
        TY_TRY(device_rates_time(p, rates, error));
    else
        TY_TRY(host_rates_time(p, rates, error));
    TY_TRY(ty_mean_over_ranks(p, rates, 2, error));
    p->profile->peak_flop_per_s = rates[0];
    p->profile->memory_bandwidth_bytes_per_s = rates[1];
    return TY_OK;
}

/* ---- Batch assembly ---------------------------------------------------------------------- */

enum { LOAD_SAMPLES = 64 };

typedef struct load_work {
    const ty_dataset *dataset;
    uint64_t position, inputs, labels;
    float *input;
    int32_t *tokens, *label;
} load_work;

static ty_status load_run(void *context, ty_error *error)
{
    load_work *work = context;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < LOAD_SAMPLES && status == TY_OK; i++) {
        uint64_t sample = ty_dataset_shuffled(work->dataset, 1, work->position++);

        status = ty_dataset_sample(work->dataset, sample,
                                   work->input != NULL ? work->input + i * work->inputs : NULL,
                                   work->tokens != NULL ? work->tokens + i * work->inputs : NULL,
                                   work->label + i * work->labels, error);
    }
    return status;
}

/* A batch on its way to memory of the device. */
typedef struct send_work {
    const ty_device_memory *memory;
    ty_stage_device *device;
    void *room;
    float *host;
} send_work;

static ty_status send_run(void *context, ty_error *error)
{
    const send_work *work = context;

    return work->memory->input_send(work->device, work->room, work->host, error);
}

/* Seconds per sample; 0 if the device reads the host's memory, and for tokens, which are few. */
static ty_status send_time(const ty_profiler *p, double *seconds, ty_error *error)
{
    const uint32_t micro_batch = p->job->micro_batches[0];
    const uint64_t bytes = ty_shape_elements(&p->workload->input) * micro_batch * sizeof(float);
    send_work work = {.memory = p->backend->memory};
    ty_status status;

    *seconds = 0;
    if (work.memory == NULL || p->workload->input_kind != TY_INPUT_REAL)
        return TY_OK;
    TY_TRY(ty_profiler_open(p, micro_batch, 1, false, &work.device, error));
    work.room = work.memory->allocate(work.device, bytes);
    work.host = work.memory->host_allocate(work.device, bytes);
    status = work.room != NULL && work.host != NULL
                 ? ty_measure(p, NULL, send_run, &work, part_budget_s, seconds, error)
                 : no_memory(error);
    *seconds /= micro_batch;
    if (work.room != NULL)
        work.memory->release(work.device, work.room);
    if (work.host != NULL)
        work.memory->host_release(work.device, work.host);
    p->backend->close(work.device);
    return status;
}

/* Without the data set there is nothing to time and the figure stays 0: layers and the network can
 * be measured on a host that has no data yet. */
static ty_status load_time(ty_profiler *p, ty_error *error)
{
    const ty_workload *w = p->workload;
    const ty_shape *scores = ty_layer_input_shape(w, w->layer_count - 1, 0);
    bool is_token = w->input_kind == TY_INPUT_TOKEN;
    ty_dataset *dataset = NULL;
    load_work work = {.inputs = ty_shape_elements(&w->input)};
    double seconds = 0, sending;
    ty_status status = TY_OK;

    work.labels = ty_shape_elements(scores) / scores->dimensions[scores->dimension_count - 1];
    work.input = is_token ? NULL : ty_alloc(LOAD_SAMPLES, work.inputs * sizeof(float));
    work.tokens = is_token ? ty_alloc(LOAD_SAMPLES, work.inputs * sizeof(int32_t)) : NULL;
    work.label = ty_alloc(LOAD_SAMPLES, work.labels * sizeof(int32_t));
    if ((work.input == NULL && work.tokens == NULL) || work.label == NULL) {
        status = no_memory(error);
        goto cleanup;
    }
    if (ty_dataset_open(w, p->job->data, false, &dataset, NULL) == TY_OK) {
        work.dataset = dataset;
        ty_dataset_fill(dataset); /* as after the first steps of training */
        TY_CHECK(ty_measure(p, NULL, load_run, &work, part_budget_s, &seconds, error), status,
                 cleanup);
        TY_CHECK(send_time(p, &sending, error), status, cleanup);
        seconds += LOAD_SAMPLES * sending; /* by the same thread */
    }
    TY_CHECK(ty_mean_over_ranks(p, &seconds, 1, error), status, cleanup);
    if (dataset == NULL)
        goto cleanup;
    if (w->sample_bytes > 0)
        p->profile->load_s_per_byte = seconds / LOAD_SAMPLES / (double)w->sample_bytes;
    p->profile->input_s_per_sample = seconds / LOAD_SAMPLES;
    p->profile->input_source = ty_strdup(w->name);
    if (p->profile->input_source == NULL)
        status = no_memory(error);
cleanup:
    if (dataset != NULL)
        ty_dataset_close(dataset);
    ty_free(work.input);
    ty_free(work.tokens);
    ty_free(work.label);
    return status;
}

ty_status ty_profile_parts(ty_profiler *p, ty_error *error)
{
    TY_TRY(rates_time(p, error));
    TY_TRY(load_time(p, error));
    return TY_OK;
}

ty_status ty_profiler_open(const ty_profiler *p, uint32_t micro_batch, uint32_t slots,
                           bool splits_backward, ty_stage_device **out, ty_error *error)
{
    const ty_stage_options options = {.workload = p->workload,
                                      .layer_count = p->workload->layer_count,
                                      .micro_batch_size = micro_batch,
                                      .slots = slots,
                                      .loss_scale = 1.0 / micro_batch,
                                      .seed = 1,
                                      .tied_layer = TY_NO_LAYER,
                                      .precision = p->precision,
                                      .local_rank = p->transport->local_rank,
                                      .splits_backward = splits_backward,
                                      .measures_algorithms = true};
    ty_status status;

    TY_CHECK(p->backend->open(&options, out, error), status, done);
    if (ty_profiler_has_clock(p))
        TY_CHECK(p->backend->memory->time(*out, true, error), status, failed);
    return TY_OK;
failed:
    p->backend->close(*out);
    *out = NULL;
done:
    return status;
}
