/*
 * Data parallelism of networks that are not in the zoo, by their name's number of parameters alone:
 * what a step takes on the fewest devices of a series is measured, and more devices add an exchange
 * of gradients, the library's, behind the backward, which is two thirds of the work, but for a last
 * bucket; and waiting for the slowest. Runs of a benchmark have batches of their own: their work is
 * taken to be in proportion to a device's samples, where it has no less than half of the others'.
 */
#include "asked.h"
#include "predictors.h"
#include "published.h"
#include "series.h"
#include "ty_planner.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define WAITING_STACK "tensorflow-2017" /* whose step_jitter is that of image networks */
#define BACKWARD_SHARE (2.0 / 3.0)      /* of a step's work; two products of three */
#define FEWEST_SAMPLES 0.5              /* of a device: below, its kernels are too small */
#define BUCKET_BYTES 26214400.0         /* the last one, which nothing hides; PyTorch's usual */

bool ty_takes_series(const ty_records *records, uint32_t index)
{
    static const char *const families[] = {
        "cnn-segmentation", "cnn-detector", "cnn-face", "transformer",
        "speech",           "seq2seq",      "rnn",      "diffusion"};
    const ty_record *r = &records->items[index];
    const bool is_rate = strcmp(r->kind, "training-speed") == 0 && ty_record_more_is_better(r) &&
                         strstr(r->metric, "_per_s") != NULL;

    if ((!is_rate && !ty_is_benchmark_time(r)) || r->pp > 1 || r->tp > 1 || r->schedule[0] != '\0')
        return false;
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++)
        if (strcmp(r->model_family, families[i]) == 0)
            return true;
    return false;
}

typedef struct exchange {
    char *line; /* of the cluster; NULL: one device, or none with a reason */
    uint64_t bytes;
    double seconds;
} exchange;

static ty_status exchange_of(const ty_record *r, double parameters, exchange *out,
                             char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    const bool is_half = strcmp(r->dtype, "amp-fp16") == 0 || strcmp(r->dtype, "bf16") == 0 ||
                         (r->dtype[0] == '\0' && ty_is_benchmark_time(r));
    const ty_collective_question question = {.kind = TY_ALL_REDUCE, .ranks = (uint32_t)r->gpus};
    ty_collective_answer answer;
    ty_cluster *cluster = NULL;
    ty_status status = TY_OK;

    *out = (exchange){.bytes = (uint64_t)(parameters * (is_half ? 2 : 4))};
    if (!(r->gpus > 1))
        return TY_OK;
    TY_CHECK(ty_published_cluster_line(r, &out->line, reason, error), status, cleanup);
    if (out->line == NULL)
        goto cleanup;
    TY_CHECK(ty_cluster_open(out->line, NULL, &cluster, error), status, cleanup);
    TY_CHECK(ty_collective_ask(cluster, &question, &out->bytes, 1, &answer, error), status,
             cleanup);
    out->seconds = answer.seconds;

cleanup:
    ty_cluster_free(cluster);
    return status;
}

/* What of an exchange a step with so much work waits for. */
static double exposed_s(const exchange *e, double work_s)
{
    const double last = fmin(1, BUCKET_BYTES / (double)e->bytes);

    return fmax(e->seconds - BACKWARD_SHARE * work_s, e->seconds * last);
}

static double step_of(const exchange *e, double work_s, double jitter, double devices)
{
    const double waiting = 1 + jitter * ty_expected_largest((uint32_t)devices);
    return work_s * waiting + exposed_s(e, work_s);
}

/* The work at which a step takes so long, by halving: a step only grows with it. */
static double work_for(const exchange *e, double step_s, double jitter, double devices)
{
    double low = 0, high = step_s;

    while (high - low > 1e-12 * step_s) {
        const double middle = (low + high) / 2;
        if (step_of(e, middle, jitter, devices) > step_s)
            high = middle;
        else
            low = middle;
    }
    return low;
}

static ty_status write_command(const exchange *e, double devices, ty_verdict *out, ty_error *error)
{
    char bytes[32], ranks[16];

    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)e->bytes);
    snprintf(ranks, sizeof ranks, "%.0f", devices);
    out->answer = e->seconds;
    out->answer_at = "/rows/0/time_s";
    return ty_verdict_command((const char *const[]){"cluster", "collective", e->line, "--ranks",
                                                    ranks, "--size", bytes, "--json", NULL},
                              &out->command, error);
}

ty_status ty_predict_series(const ty_records *records, uint32_t index, ty_verdict *out,
                            ty_error *error)
{
    const ty_record *r = &records->items[index];
    const ty_record *first = &records->items[ty_baseline_of(records, index)];
    const double batch = ty_batch_per_device(r);
    ty_published_gradients known;
    exchange fewest = {0}, all = {0};
    ty_stack *stack = NULL;
    double work_s, step_s, samples, first_s;
    ty_status status = TY_OK;

    TY_CHECK(ty_published_gradients_of(r, &known, error), status, cleanup);
    if (ty_runs_again(r, first) && r != first) {
        snprintf(out->reason, sizeof out->reason,
                 "runs again what others of its series are predicted from");
        goto cleanup;
    }
    if (r == first || (!(r->gpus > first->gpus) && !ty_is_benchmark_time(r))) {
        snprintf(out->reason, sizeof out->reason,
                 "not in the zoo, and on the fewest devices of its series");
        goto cleanup;
    }
    if (!(batch > 0)) {
        snprintf(out->reason, sizeof out->reason, "batch per device not stated");
        goto cleanup;
    }
    if (ty_is_benchmark_time(r) && batch < FEWEST_SAMPLES * ty_batch_per_device(first)) {
        snprintf(out->reason, sizeof out->reason,
                 "less than half of the samples a device of the run it would be predicted from");
        goto cleanup;
    }
    if (!(known.parameters > 0)) {
        snprintf(out->reason, sizeof out->reason, "not in the zoo, and its size is not known");
        goto cleanup;
    }
    TY_CHECK(ty_stack_open(WAITING_STACK, &stack, error), status, cleanup);
    TY_CHECK(exchange_of(first, known.parameters, &fewest, out->reason, error), status, cleanup);
    TY_CHECK(exchange_of(r, known.parameters, &all, out->reason, error), status, cleanup);
    if (out->reason[0] != '\0')
        goto cleanup;
    samples = batch * known.items; /* of each device, in the measure's items */
    first_s = ty_is_benchmark_time(first) ? ty_benchmark_step_s(first)
                                          : samples * first->gpus / first->value;
    work_s = work_for(&fewest, first_s, stack->step_jitter, first->gpus);
    if (ty_is_benchmark_time(r))
        work_s *= batch / ty_batch_per_device(first);
    step_s = step_of(&all, work_s, stack->step_jitter, r->gpus);
    if (all.line != NULL)
        TY_CHECK(write_command(&all, r->gpus, out, error), status, cleanup);
    out->is_predicted = true;
    out->value = ty_is_benchmark_time(r) ? r->value * step_s / ty_benchmark_step_s(r)
                                         : samples * r->gpus / step_s;
    snprintf(out->assumed, sizeof out->assumed,
             "work as in %.100s%s, %.3g M parameters exchanged behind two thirds of it", first->id,
             ty_is_benchmark_time(r) ? " by samples a device, the measured number of steps" : "",
             known.parameters / 1e6);

cleanup:
    ty_stack_free(stack);
    ty_free(fewest.line);
    ty_free(all.line);
    return status;
}
