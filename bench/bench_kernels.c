/*
 * One rank that trains without communication: samples per second and CPU seconds per step of the
 * CPU backend, as JSON.
 *
 *     bench_kernels [seconds per row]
 *
 * CPU time is the time of one idle core, so it is comparable between a busy machine and an idle
 * one; wall time is not.
 */
#include "device.h"
#include "timing.h"
#include "ty_workloads.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_STEPS 4096

typedef struct trial {
    ty_workload *workload;
    ty_dataset *dataset;
    ty_stage_device *stage;
    float *state; /* of the optimizer */
    uint32_t batch;
    double loss; /* mean of the last step */
} trial;

static void trial_close(trial *t)
{
    ty_device_cpu.close(t->stage);
    ty_dataset_close(t->dataset);
    ty_workload_free(t->workload);
    ty_free(t->state);
}

static ty_status trial_open(const char *name, trial *t, ty_error *error)
{
    ty_stage_options options = {.micro_batch_size = 0, .slots = 1, .seed = 1};
    ty_status status = TY_OK;

    TY_CHECK(ty_workload_open(name, &t->workload, error), status, done);
    TY_CHECK(ty_dataset_open(t->workload, NULL, false, &t->dataset, error), status, done);
    t->batch = t->workload->global_batch;
    options.workload = t->workload;
    options.layer_count = t->workload->layer_count;
    options.micro_batch_size = t->batch;
    options.loss_scale = 1.0 / t->batch;
    if (t->workload->tokens_per_sample > 0)
        options.loss_scale /= (double)t->workload->tokens_per_sample;
    options.tied_layer = TY_NO_LAYER;
    TY_CHECK(ty_device_cpu.open(&options, &t->stage, error), status, done);
    t->state = ty_alloc_large(ty_device_cpu.parameter_count(t->stage) * 2, sizeof *t->state);
    if (t->state == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory for the optimizer");
done:
    return status;
}

static ty_status batch_load(trial *t, uint64_t step, ty_error *error)
{
    const ty_device_backend *d = &ty_device_cpu;
    uint64_t inputs = ty_shape_elements(&t->workload->input);
    uint64_t labels = t->workload->tokens_per_sample > 0 ? t->workload->tokens_per_sample : 1;
    float *input = d->input(t->stage, 0);
    int32_t *tokens = d->tokens(t->stage, 0), *label = d->labels(t->stage, 0);

    ty_status status = TY_OK;

    for (uint64_t b = 0; b < t->batch && status == TY_OK; b++)
        status = ty_dataset_sample(
            t->dataset, ty_dataset_shuffled(t->dataset, 1, step * t->batch + b),
            input == NULL ? NULL : input + b * inputs, tokens == NULL ? NULL : tokens + b * inputs,
            label + b * labels, error);
    return status;
}

/* Seconds of CPU time of load, forward, backward and update. */
enum { LOAD, FORWARD, BACKWARD, UPDATE, PARTS };

static ty_status step_run(trial *t, uint64_t step, double parts[PARTS], ty_error *error)
{
    const ty_device_backend *d = &ty_device_cpu;
    uint32_t layers = t->workload->layer_count;
    double at[PARTS + 1], loss;
    uint64_t correct, labels;

    at[0] = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    TY_TRY(batch_load(t, step, error));
    at[1] = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    TY_TRY(d->forward(t->stage, 0, 0, layers, error));
    at[2] = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    TY_TRY(d->backward(t->stage, 0, 0, layers, true, error));
    at[3] = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    ty_optimizer_step(&t->workload->optimizer, step + 1, d->parameter_count(t->stage),
                      d->parameters(t->stage), d->gradients(t->stage), t->state);
    at[4] = clock_s(CLOCK_PROCESS_CPUTIME_ID);
    d->loss(t->stage, 0, &loss, &correct, &labels);
    t->loss = loss / (double)labels;
    for (int p = 0; p < PARTS; p++)
        parts[p] = at[p + 1] - at[p];
    return TY_OK;
}

static void trial_put(ty_json_writer *w, const trial *t, double parts[PARTS + 1][MAX_STEPS],
                      size_t steps, double wall_s)
{
    static const char *const keys[] = {"load_cpu_s", "forward_cpu_s", "backward_cpu_s",
                                       "update_cpu_s", "step_cpu_s"};
    double step_s, tokens = (double)t->workload->tokens_per_sample;

    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "workload", t->workload->name);
    ty_json_put_uint(w, "batch", t->batch);
    ty_json_put_uint(w, "parameters", ty_device_cpu.parameter_count(t->stage));
    ty_json_put_uint(w, "steps", steps);
    for (int p = 0; p <= PARTS; p++)
        ty_json_put_number(w, keys[p], median(parts[p], steps));
    step_s = parts[PARTS][steps / 2];
    ty_json_put_number(w, "step_cpu_s_least", parts[PARTS][0]);
    ty_json_put_number(w, "samples_per_cpu_s", t->batch / step_s);
    ty_json_put_number(w, "tokens_per_cpu_s", tokens * t->batch / step_s);
    ty_json_put_number(w, "samples_per_s", (double)steps * t->batch / wall_s);
    ty_json_put_number(w, "loss", t->loss);
    ty_json_put_uint(w, "memory_bytes", ty_device_cpu.memory_bytes(t->stage));
    ty_json_close(w, '}');
}

static ty_status workload_bench(const char *name, double seconds, ty_json_writer *w,
                                ty_error *error)
{
    static double parts[PARTS + 1][MAX_STEPS];
    trial t = {0};
    double start = 0.0, part[PARTS];
    size_t steps = 0;
    ty_status status = TY_OK;

    TY_CHECK(trial_open(name, &t, error), status, done);
    for (uint64_t warm = 0; warm < 3; warm++)
        TY_CHECK(step_run(&t, warm, part, error), status, done);
    start = clock_s(CLOCK_MONOTONIC);
    while (steps < MAX_STEPS && (steps < 5 || clock_s(CLOCK_MONOTONIC) - start < seconds)) {
        TY_CHECK(step_run(&t, steps + 3, part, error), status, done);
        parts[PARTS][steps] = 0.0;
        for (int p = 0; p < PARTS; p++) {
            parts[p][steps] = part[p];
            parts[PARTS][steps] += part[p];
        }
        steps++;
    }
    trial_put(w, &t, parts, steps, clock_s(CLOCK_MONOTONIC) - start);
done:
    trial_close(&t);
    return status;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"mlp", "lenet", "gpt-tiny"};
    double seconds = argc > 1 ? strtod(argv[1], NULL) : 5.0;
    ty_error error = {0};
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    char *json = NULL;
    ty_status status = TY_OK;

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.bench-kernels/1");
    ty_json_open(&w, "workloads", '[');
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        TY_CHECK(workload_bench(names[i], seconds, &w, &error), status, done);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    TY_CHECK(ty_text_take(&text, &json, &error), status, done);
    printf("%s\n", json);
done:
    if (status != TY_OK)
        fprintf(stderr, "bench_kernels: %s\n", error.message);
    ty_text_clear(&text);
    ty_free(json);
    return status == TY_OK ? 0 : 1;
}
