/* Step times of one GPU by its own clock, without a plan, input or start-up. */
#include "gpu_cases.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EXIT_USAGE = 2, EXIT_SKIP = 77, WARM_UPS = 3, RATE_CALLS = 10 };

typedef enum pass { FORWARD, BACKWARD, UPDATE, PASSES } pass;
static const char *const pass_names[PASSES] = {"forward_s", "backward_s", "update_s"};

typedef struct step_times {
    double wall_s;
    double device_s[PASSES];
    double loss;
} step_times;

static int value_compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Of the steps' values of one kind, `offset` bytes into each. @param rank 0: least, 1: greatest */
static double quantile(const step_times *steps, uint32_t count, size_t offset, double rank)
{
    double *values = malloc(count * sizeof *values), found;

    for (uint32_t i = 0; i < count; i++)
        values[i] = *(const double *)((const char *)&steps[i] + offset);
    qsort(values, count, sizeof *values, value_compare);
    found = values[(uint32_t)(rank * (count - 1) + 0.5)];
    free(values);
    return found;
}

static ty_status pass_run(ty_stage_device *stage, const ty_workload *w, pass which, uint64_t step,
                          ty_error *error)
{
    bool is_finite;

    switch (which) {
    case FORWARD:
        return gpu->forward(stage, 0, 0, w->layer_count, error);
    case BACKWARD:
        return gpu->backward(stage, 0, 0, w->layer_count, true, error);
    case UPDATE:
    case PASSES:
        break;
    }
    return gpu->memory->update(stage, &w->optimizer, step, 0, gpu->parameter_count(stage),
                               &is_finite, error);
}

static ty_status step_run(ty_stage_device *stage, const ty_workload *w, uint64_t step,
                          step_times *out, ty_error *error)
{
    const double started = ty_now_s();
    double loss;
    uint64_t correct, labels;

    for (pass p = FORWARD; p < PASSES; p++) {
        TY_TRY(pass_run(stage, w, p, step, error));
        TY_TRY(gpu->memory->seconds(stage, &out->device_s[p], error));
        if (p == FORWARD) {
            gpu->loss(stage, 0, &loss, &correct, &labels);
            out->loss = loss / (double)labels;
        }
    }
    out->wall_s = ty_now_s() - started;
    return TY_OK;
}

static void bench_write(ty_stage_device *stage, const step_times *steps, uint32_t count,
                        ty_json_writer *w)
{
    const ty_device_graphs graphs = gpu->memory->graphs(stage);
    double device_s = 0;

    ty_json_put_string(w, "device", gpu->memory->describe(stage));
    ty_json_put_uint(w, "steps", count);
    ty_json_put_number(w, "step_time_s", quantile(steps, count, offsetof(step_times, wall_s), 0.5));
    ty_json_put_number(w, "p10_s", quantile(steps, count, offsetof(step_times, wall_s), 0.1));
    ty_json_put_number(w, "p90_s", quantile(steps, count, offsetof(step_times, wall_s), 0.9));
    for (pass p = FORWARD; p < PASSES; p++) {
        const double s = quantile(steps, count,
                                  offsetof(step_times, device_s) + (size_t)p * sizeof(double), 0.5);
        ty_json_put_number(w, pass_names[p], s);
        device_s += s;
    }
    ty_json_put_number(w, "device_time_s", device_s);
    ty_json_put_uint(w, "graphs", graphs.count);
    ty_json_put_uint(w, "graph_replays", graphs.replays);
    ty_json_put_uint(w, "queued_passes", graphs.queued);
    if (graphs.given_up != NULL)
        ty_json_put_string(w, "graphs_given_up", graphs.given_up);
    ty_json_put_uint(w, "peak_bytes", gpu->memory->peak_bytes(stage));
    ty_json_open_flat(w, "losses", '[');
    for (uint32_t i = 0; i < count; i++)
        ty_json_put_number(w, NULL, steps[i].loss);
    ty_json_close(w, ']');
}

/* A profiler that was started with --profile-from-start off records between "cuProfilerStart" and
 * "cuProfilerStop". */
static void profiler_call(const char *name)
{
    void *const driver = dlopen("libcuda.so.1", RTLD_NOW);
    int (*call)(void) = NULL;

    if (driver != NULL)
        *(void **)&call = dlsym(driver, name);
    if (call != NULL)
        call();
}

static ty_status bench(const ty_workload *w, const ty_stage_options *o, uint32_t steps,
                       bool is_profiled, ty_json_writer *out, ty_error *error)
{
    step_times *times = calloc(steps + WARM_UPS, sizeof *times);
    const double started = ty_now_s();
    ty_stage_device *stage = NULL;
    ty_status status;

    TY_CHECK(gpu->open(o, &stage, error), status, done);
    batch_fill(gpu, stage, 0, w, o->micro_batch_size, 11);
    TY_CHECK(gpu->memory->time(stage, true, error), status, done);
    ty_json_put_number(out, "open_s", ty_now_s() - started);
    for (uint32_t i = 0; i < steps + WARM_UPS; i++) {
        if (is_profiled && i == WARM_UPS)
            profiler_call("cuProfilerStart");
        TY_CHECK(step_run(stage, w, i + 1, &times[i], error), status, done);
    }
    if (is_profiled)
        profiler_call("cuProfilerStop");
    bench_write(stage, times + WARM_UPS, steps, out);
done:
    if (stage != NULL)
        gpu->close(stage);
    free(times);
    return status;
}

static int outcome_print(ty_status status, ty_text *text, ty_error *error)
{
    if (status == TY_OK)
        status = ty_text_check(text, error);
    if (status == TY_OK)
        printf("%s\n", text->data);
    else
        fprintf(stderr, "%s\n", error->message);
    ty_text_clear(text);
    return status != TY_OK;
}

/* The precision and the backend. @return exit code */
static int bench_begin(const char *precision, ty_precision *out)
{
    ty_error error = {0};

    if (ty_precision_find(precision, out, &error) != TY_OK) {
        fprintf(stderr, "%s\n", error.message);
        return EXIT_USAGE;
    }
    if (ty_device_backend_find("cuda", false, &gpu, &error) != TY_OK) {
        printf("skipped: %s\n", error.message);
        return EXIT_SKIP;
    }
    return 0;
}

int bench_run(const char *workload, const char *precision, uint32_t batch, uint32_t steps,
              bool is_profiled)
{
    ty_text text = {0};
    ty_json_writer out = ty_json_writer_on(&text);
    ty_error error = {0};
    ty_precision in;
    ty_workload *w;
    ty_stage_options o;
    ty_status status;
    int code = bench_begin(precision, &in);

    if (code != 0)
        return code;
    if (batch == 0 || steps == 0) {
        fprintf(stderr, "found batch %u and %u steps, expected at least 1\n", batch, steps);
        return EXIT_USAGE;
    }
    w = open_workload(workload);
    o = options_of(w, batch, in);
    o.slots = 1;
    o.loss_scale = 1.0 / batch;
    o.is_deterministic = is_deterministic;
    ty_json_open(&out, NULL, '{');
    ty_json_put_string(&out, "workload", workload);
    ty_json_put_string(&out, "precision", precision);
    ty_json_put_uint(&out, "batch", batch);
    status = bench(w, &o, steps, is_profiled, &out, &error);
    ty_json_close(&out, '}');
    ty_workload_free(w);
    return outcome_print(status, &text, &error);
}

/* ---- Rates ---- */

/* The least seconds of some calls. */
static ty_status copy_time(ty_stage_device *stage, void *to, const void *from, uint64_t bytes,
                           double *seconds, ty_error *error)
{
    double one;

    *seconds = INFINITY;
    for (int i = 0; i < RATE_CALLS; i++) {
        TY_TRY(gpu->memory->copy(stage, to, from, bytes, error));
        TY_TRY(gpu->memory->seconds(stage, &one, error));
        *seconds = fmin(*seconds, one);
    }
    return TY_OK;
}

static ty_status product_time(ty_stage_device *stage, uint32_t side, float *const matrices[3],
                              double *seconds, ty_error *error)
{
    double one;

    *seconds = INFINITY;
    for (int i = 0; i < RATE_CALLS; i++) {
        TY_TRY(gpu->memory->multiply(stage, side, matrices[0], matrices[1], matrices[2], error));
        TY_TRY(gpu->memory->seconds(stage, &one, error));
        *seconds = fmin(*seconds, one);
    }
    return TY_OK;
}

/* Random numbers of 16 or 32 bits that, in every type, are between 1 / 4 and 1. */
static ty_status matrix_fill(ty_stage_device *stage, float *matrix, uint64_t bytes,
                             ty_precision precision, ty_error *error)
{
    const bool is_half = ty_precision_bytes(precision) == 2;
    uint32_t *host = malloc(bytes);
    uint64_t state = 5;
    ty_status status;

    TY_TRY(ty_check_memory(host != NULL, error));
    for (uint64_t i = 0; i < bytes / sizeof *host; i++) {
        const uint32_t bits = (uint32_t)next_random(&state);
        const uint32_t half = precision == TY_PRECISION_FP16 ? 0x3400 : 0x3e80;
        host[i] = is_half ? (half | (bits & 0xff) | (half << 16) | (bits & 0xff00) << 8)
                          : 0x3e800000u | (bits & 0xffffff);
    }
    status = gpu->memory->write(stage, matrix, host, bytes, error);
    free(host);
    return status;
}

static ty_status rates(const ty_workload *w, ty_precision precision, uint32_t side,
                       ty_json_writer *out, ty_error *error)
{
    const uint64_t count = (uint64_t)side * side, bytes = count * ty_precision_bytes(precision);
    ty_stage_options o = options_of(w, 2, precision);
    ty_stage_device *stage = NULL;
    float *matrices[3] = {NULL};
    double copy_s, product_s;
    ty_status status;

    TY_CHECK(gpu->open(&o, &stage, error), status, done);
    TY_CHECK(gpu->memory->time(stage, true, error), status, done);
    for (int i = 0; i < 3; i++) {
        matrices[i] = gpu->memory->allocate(stage, count * sizeof(float));
        if (matrices[i] == NULL) {
            status = ty_fail(error, TY_ENOMEM, "out of GPU memory for matrices of %u", side);
            goto done;
        }
        TY_CHECK(matrix_fill(stage, matrices[i], bytes, precision, error), status, done);
    }
    TY_CHECK(product_time(stage, side, matrices, &product_s, error), status, done);
    TY_CHECK(copy_time(stage, matrices[1], matrices[0], count * sizeof(float), &copy_s, error),
             status, done);
    ty_json_put_string(out, "device", gpu->memory->describe(stage));
    ty_json_put_uint(out, "capacity_bytes", gpu->memory->capacity_bytes(stage));
    ty_json_put_number(out, "copy_bytes_per_s", 2.0 * (double)count * sizeof(float) / copy_s);
    ty_json_put_number(out, "product_flop_per_s", 2.0 * pow(side, 3) / product_s);
done:
    if (stage != NULL) {
        for (int i = 0; i < 3; i++)
            gpu->memory->release(stage, matrices[i]);
        gpu->close(stage);
    }
    return status;
}

int rates_run(const char *precision, uint32_t side)
{
    ty_text text = {0};
    ty_json_writer out = ty_json_writer_on(&text);
    ty_error error = {0};
    ty_precision in;
    ty_workload *w;
    ty_status status;
    int code = bench_begin(precision, &in);

    if (code != 0)
        return code;
    if (side == 0) {
        fprintf(stderr, "found matrices of 0 rows, expected at least 1\n");
        return EXIT_USAGE;
    }
    w = open_workload(mlp_small);
    ty_json_open_flat(&out, NULL, '{');
    ty_json_put_string(&out, "precision", precision);
    ty_json_put_uint(&out, "side", side);
    status = rates(w, in, side, &out, &error);
    ty_json_close(&out, '}');
    ty_workload_free(w);
    return outcome_print(status, &text, &error);
}
