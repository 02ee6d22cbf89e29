/*
 * PipeDream's table: epoch time of an asynchronous pipeline against data parallelism, both as
 * `plan` answers. A step of the pipeline is one mini-batch, of as many samples as a device of data
 * parallelism has, by each replica of every stage.
 */
#include "asked.h"
#include "predictors.h"
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_STAGES 64
#define LARGEST_BATCH 65536 /* of a device */
#define MOST_SAMPLES 1000000000

bool ty_takes_pipedream(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return strcmp(r->kind, "training-speed") == 0 &&
           strcmp(r->metric, "epoch_time_speedup_over_data_parallel") == 0;
}

/* "15-1", "straight"; 0 stages where it is neither. */
static uint32_t read_configuration(const ty_record *r, uint32_t *replicas)
{
    const char *text = r->configuration;
    uint32_t stages = 0, sum = 0;

    if (strcmp(text, "straight") == 0) {
        stages = r->gpus >= 1 && r->gpus <= MOST_STAGES ? (uint32_t)r->gpus : 0;
        for (uint32_t s = 0; s < stages; s++)
            replicas[s] = 1;
        return stages;
    }
    while (*text >= '1' && *text <= '9' && stages < MOST_STAGES) {
        char *end;
        unsigned long n = strtoul(text, &end, 10);
        if (n > TY_MAX_RANKS)
            return 0;
        replicas[stages++] = (uint32_t)n;
        sum += (uint32_t)n;
        text = *end == '-' ? end + 1 : end;
    }
    return *text == '\0' && fabs(r->gpus - sum) < 0.5 ? stages : 0;
}

static uint64_t least_common_multiple(uint64_t a, uint64_t b)
{
    uint64_t x = a, y = b;

    while (y != 0) {
        const uint64_t rest = x % y;
        x = y;
        y = rest;
    }
    return a / x * b;
}

static ty_status predict(const ty_record *r, const char *line, uint32_t stages,
                         const uint32_t *replicas, ty_asked *asked, ty_verdict *out,
                         ty_error *error)
{
    const uint32_t batch = (uint32_t)r->batch_per_gpu, devices = (uint32_t)r->gpus;
    ty_published_exchange exchange;
    ty_asked parallel;
    uint64_t at_once = 1;
    size_t at;
    double parallel_s, step_s;
    bool is_fitted;
    ty_status status = TY_OK;

    TY_CHECK(ty_published_exchange_of(r, &exchange, error), status, done);
    snprintf(asked->cluster, sizeof asked->cluster, "%s", line);
    ty_asked_set_scale(asked, exchange.stack, 1);
    parallel = *asked;
    parallel.global_batch = devices * batch;
    snprintf(parallel.fix, sizeof parallel.fix,
             "dp=%u,pp=1,tp=1,micro_batch=%u,recompute=none,compression=none,algorithm=%s,"
             "bucket=%lluB",
             devices, batch, exchange.algorithm, (unsigned long long)exchange.bucket_bytes);
    at = (size_t)snprintf(asked->fix, sizeof asked->fix,
                          "pp=%u,tp=1,schedule=pipedream,micro_batch=%u,recompute=none,"
                          "compression=none,replicas=",
                          stages, batch);
    for (uint32_t s = 0; s < stages; s++) {
        at_once = least_common_multiple(at_once, replicas[s]);
        if (at_once * batch > MOST_SAMPLES || at >= sizeof asked->fix) {
            snprintf(out->reason, sizeof out->reason,
                     "replicas share no batch of at most %d samples", MOST_SAMPLES);
            return TY_OK;
        }
        at += (size_t)snprintf(asked->fix + at, sizeof asked->fix - at, "%s%u", s > 0 ? "+" : "",
                               replicas[s]);
    }
    asked->global_batch = (uint32_t)at_once * batch;
    TY_CHECK(ty_asked_step(&parallel, r, &parallel_s, &is_fitted, error), status, done);
    TY_CHECK(ty_asked_step(asked, r, &step_s, &is_fitted, error), status, done);
    TY_CHECK(ty_asked_answer(asked, step_s, out, error), status, done);
    out->value = parallel_s / parallel.global_batch / (step_s / asked->global_batch);
done:
    return status;
}

ty_status ty_predict_pipedream(const ty_records *records, uint32_t index, ty_verdict *out,
                               ty_error *error)
{
    const ty_record *r = &records->items[index];
    uint32_t replicas[MOST_STAGES];
    uint32_t stages = read_configuration(r, replicas);
    ty_asked asked = {.precision = "fp32"};
    char *line = NULL;
    ty_status status = TY_OK;

    if (stages == 0 || !(r->batch_per_gpu >= 1 && r->batch_per_gpu <= LARGEST_BATCH)) {
        snprintf(out->reason, sizeof out->reason, "configuration or batch not stated");
        return TY_OK;
    }
    if (stages == 1) {
        snprintf(out->reason, sizeof out->reason,
                 "data parallelism was chosen: 1 over itself by definition");
        return TY_OK;
    }
    TY_CHECK(ty_published_workload(r, asked.workload, out->reason, error), status, cleanup);
    if (asked.workload[0] == '\0')
        goto cleanup;
    TY_CHECK(ty_published_cluster_line(r, &line, out->reason, error), status, cleanup);
    if (line != NULL)
        status = predict(r, line, stages, replicas, &asked, out, error);

cleanup:
    ty_free(line);
    return status;
}
