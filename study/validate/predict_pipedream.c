/*
 * PipeDream's table: epoch time of an asynchronous pipeline against data parallelism. In the steady
 * state a mini-batch takes as long as the slowest stage needs for it: a stage of r replicas does r
 * at a time, and exchanges its gradients once for these r, behind the computation of the next. No
 * bubbles. Data parallelism is the estimator's, all devices in one step.
 */
#include "fixed_plan.h"
#include "layer_profile.h"
#include "predictors.h"
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
        stages = r->gpus >= 1 && r->gpus <= TY_FIXED_PLAN_STAGES ? (uint32_t)r->gpus : 0;
        for (uint32_t s = 0; s < stages; s++)
            replicas[s] = 1;
        return stages;
    }
    while (*text >= '1' && *text <= '9' && stages < TY_FIXED_PLAN_STAGES) {
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

typedef struct exchange_context {
    const ty_workload *workload;
    const ty_cluster *cluster;
    const double *layer_s;
    double passes;
    ty_status status;
    ty_error *error;
} exchange_context;

/* What of a stage's gradient exchange its computation does not hide. */
static double exposed_exchange_s(void *context, uint32_t first, uint32_t count, uint32_t replicas)
{
    exchange_context *c = context;
    double compute_s = 0, exchange_s = 0;

    for (uint32_t i = first; i < first + count; i++)
        compute_s += c->layer_s[i];
    c->status = ty_passes_seconds(c->cluster, replicas, c->passes,
                                  (double)ty_workload_parameter_bytes(c->workload, first, count),
                                  &exchange_s, c->error);
    return fmax(0, exchange_s - compute_s);
}

/* Seconds of every layer, and of every cut, for one mini-batch. */
static void cost_chain(const ty_workload *chain, uint32_t batch, const ty_path *path,
                       double *layer_s, double *transfer_s, uint32_t *cuts)
{
    for (uint32_t i = 0; i < chain->layer_count; i++) {
        layer_s[i] =
            batch * (chain->layers[i].measured_forward_s + chain->layers[i].measured_backward_s);
        if (i == 0)
            continue;
        cuts[i - 1] = i;
        /* Activations one way, gradients the other: links are full duplex. */
        transfer_s[i] = path->latency_s + batch * (double)ty_workload_cut_bytes(chain, i) /
                                              path->bandwidth_bytes_per_s;
    }
}

/* Seconds per mini-batch of the best pipeline with such replicas. */
static ty_status pipeline_s(const ty_workload *chain, const ty_cluster *cluster, uint32_t batch,
                            double passes, uint32_t stages, const uint32_t *replicas,
                            double *seconds, ty_error *error)
{
    uint32_t n = chain->layer_count, last = ty_cluster_device_count(cluster) - 1;
    uint32_t first_layers[TY_FIXED_PLAN_STAGES], given[TY_FIXED_PLAN_STAGES];
    double *layer_s = ty_alloc(n, sizeof *layer_s);
    double *transfer_s = ty_alloc((size_t)n + 1, sizeof *transfer_s);
    uint32_t *cuts = ty_alloc(n, sizeof *cuts);
    exchange_context context = {chain, cluster, layer_s, passes, TY_OK, error};
    ty_partition_input input = {.layer_count = n,
                                .layer_s = layer_s,
                                .transfer_s = transfer_s,
                                .cut_count = n - 1,
                                .cuts = cuts,
                                .stages = stages,
                                .exchange_s = exposed_exchange_s,
                                .context = &context,
                                .fixed_replicas = replicas};
    ty_path path = {0};
    ty_status status = TY_OK;

    if (layer_s == NULL || transfer_s == NULL || cuts == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto cleanup;
    }
    TY_CHECK(ty_cluster_path(cluster, 0, last, &path, error), status, cleanup);
    cost_chain(chain, batch, &path, layer_s, transfer_s, cuts);
    for (uint32_t s = 0; s < stages; s++)
        input.devices += replicas[s];
    TY_CHECK(ty_partition(&input, first_layers, given, seconds, error), status, cleanup);
    status = context.status;

cleanup:
    ty_path_clear(&path);
    ty_free(cuts);
    ty_free(transfer_s);
    ty_free(layer_s);
    return status;
}

static ty_status predict(const ty_record *r, const ty_workload *workload, const ty_cluster *cluster,
                         uint32_t stages, const uint32_t *replicas, ty_verdict *out,
                         ty_error *error)
{
    uint32_t batch = (uint32_t)r->batch_per_gpu, devices = (uint32_t)r->gpus;
    ty_workload *chain = NULL;
    ty_fixed_plan parallel;
    ty_published_exchange exchange;
    double step_s, minibatch_s;
    ty_status status = TY_OK;

    TY_CHECK(ty_workload_chain(workload, ty_cluster_device_type(cluster, 0), batch, &chain, error),
             status, cleanup);
    TY_CHECK(ty_published_exchange_of(r, &exchange, error), status, cleanup);
    parallel = ty_fixed_data_parallel(chain, cluster, devices, batch, exchange.bucket_bytes);
    TY_CHECK(ty_fixed_plan_use_passes(&parallel, exchange.passes, error), status, cleanup);
    TY_CHECK(ty_fixed_plan_step(&parallel, &step_s, error), status, cleanup);
    TY_CHECK(
        pipeline_s(chain, cluster, batch, exchange.passes, stages, replicas, &minibatch_s, error),
        status, cleanup);
    out->is_predicted = true;
    out->value = step_s / devices / minibatch_s;

cleanup:
    ty_workload_free(chain);
    return status;
}

ty_status ty_predict_pipedream(const ty_records *records, uint32_t index, ty_verdict *out,
                               ty_error *error)
{
    const ty_record *r = &records->items[index];
    uint32_t replicas[TY_FIXED_PLAN_STAGES];
    uint32_t stages = read_configuration(r, replicas);
    ty_workload *workload = NULL;
    ty_cluster *cluster = NULL;
    ty_status status = TY_OK;

    if (stages == 0 || !(r->batch_per_gpu >= 1 && r->batch_per_gpu <= 65536)) {
        snprintf(out->reason, sizeof out->reason, "configuration or batch not stated");
        return TY_OK;
    }
    if (stages == 1) {
        snprintf(out->reason, sizeof out->reason,
                 "data parallelism was chosen: 1 over itself by definition");
        return TY_OK;
    }
    TY_CHECK(ty_layer_profile_find(records, r, &workload, error), status, cleanup);
    if (workload == NULL)
        TY_CHECK(ty_published_workload(r, &workload, out->reason, error), status, cleanup);
    if (workload == NULL)
        goto cleanup;
    TY_CHECK(ty_published_cluster(r, &cluster, out->reason, error), status, cleanup);
    if (cluster == NULL)
        goto cleanup;
    status = predict(r, workload, cluster, stages, replicas, out, error);

cleanup:
    ty_cluster_free(cluster);
    ty_workload_free(workload);
    return status;
}
