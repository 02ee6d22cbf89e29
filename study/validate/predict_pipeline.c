/*
 * GPipe's tables: the network as a chain, divided for the shortest slowest stage, its program for
 * so many micro-batches walked by the estimator. Rates are predicted from the first measurement of
 * their series as data parallelism is; speed-ups from the model alone.
 */
#include "fixed_plan.h"
#include "predictors.h"
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* None of these sources states the batch. Times are in proportion to it but for launches and
   latencies, so any usual size does; where the number of micro-batches is not stated either, as
   many as make the bubble small. */
#define ASSUMED_MICRO_BATCH 32
#define ASSUMED_MICRO_BATCHES 32
#define MOST_MICRO_BATCHES 4096 /* more change nothing */

bool ty_takes_pipeline(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    bool is_cnn = strcmp(r->model_family, "cnn") == 0;
    bool is_gpipe = strcmp(r->schedule, "gpipe") == 0;

    if (strcmp(r->kind, "training-speed") != 0)
        return false;
    return (is_cnn && (is_gpipe || r->recompute[0] != '\0')) ||
           (strcmp(r->model_family, "transformer") == 0 && is_gpipe);
}

/* What is asked of the model: stages, micro-batches, recomputation. */
typedef struct shape {
    uint32_t stages, micro_batches;
    bool recompute;
} shape;

static shape shape_of(const ty_record *r)
{
    double stages = r->pp >= 1 ? r->pp : 1;
    double micro_batches = r->micro_batches >= 1 ? r->micro_batches : ASSUMED_MICRO_BATCHES;
    bool is_pipeline = strcmp(r->schedule, "gpipe") == 0;

    return (shape){(uint32_t)fmin(stages, TY_FIXED_PLAN_STAGES),
                   is_pipeline ? (uint32_t)fmin(micro_batches, MOST_MICRO_BATCHES) : 1,
                   is_pipeline && strcmp(r->recompute, "none") != 0};
}

static ty_fixed_plan plan_of(const shape *s)
{
    return (ty_fixed_plan){.micro_batch_size = ASSUMED_MICRO_BATCH,
                           .micro_batches = s->micro_batches,
                           .schedule = TY_GPIPE,
                           .bucket_bytes = UINT64_MAX,
                           .compute_scale = 1};
}

/* Samples per second at a compute scale; or, with a measured rate, the scale at which it comes out.
 */
static ty_status rate_of(const ty_workload *chain, const ty_cluster *cluster, const shape *s,
                         double scale, double measured_rate, double *out, ty_error *error)
{
    ty_fixed_plan plan = plan_of(s);
    double samples = (double)s->micro_batches * ASSUMED_MICRO_BATCH, step_s;
    ty_status status = TY_OK;

    TY_CHECK(ty_chain_divide(chain, cluster, s->stages, NULL, s->recompute, &plan, error), status,
             done);
    plan.compute_scale = scale;
    if (measured_rate > 0) {
        status = ty_fixed_plan_calibrate(&plan, samples / measured_rate, out, error);
    } else {
        TY_CHECK(ty_fixed_plan_step(&plan, &step_s, error), status, done);
        *out = samples / step_s;
    }
done:
    return status;
}

/* ---- Rates ------------------------------------------------------------------------------- */

static bool is_of_series(const ty_record *a, const ty_record *b)
{
    return strcmp(a->model, b->model) == 0 && strcmp(a->gpu, b->gpu) == 0 &&
           strcmp(a->source_table, b->source_table) == 0 && strcmp(a->metric, b->metric) == 0;
}

static uint32_t baseline_of(const ty_records *records, uint32_t index)
{
    uint32_t best = index;

    for (uint32_t i = 0; i < records->count; i++) {
        const ty_record *r = &records->items[i], *b = &records->items[best];
        if (!ty_takes_pipeline(records, i) || !is_of_series(r, &records->items[index]) ||
            !(r->value > 0))
            continue;
        if (r->gpus < b->gpus ||
            (!(r->gpus > b->gpus) && (r->micro_batches < b->micro_batches ||
                                      (!(r->micro_batches > b->micro_batches) && i < best))))
            best = i;
    }
    return best;
}

static ty_status predict_rate(const ty_records *records, uint32_t index, const ty_workload *chain,
                              const ty_cluster *cluster, ty_verdict *out, ty_error *error)
{
    const ty_record *r = &records->items[index];
    uint32_t first = baseline_of(records, index);
    shape s = shape_of(r), s0 = shape_of(&records->items[first]);
    double scale = 1;
    ty_error detail = {0};
    ty_status status = TY_OK;

    if (first != index)
        status = rate_of(chain, cluster, &s0, 1, records->items[first].value, &scale, &detail);
    if (status == TY_EINFEASIBLE) {
        snprintf(out->reason, sizeof out->reason,
                 "baseline: communication alone is predicted longer than the measured step");
        return TY_OK;
    }
    if (status != TY_OK)
        return ty_fail(error, status, "%s", detail.message);
    status = rate_of(chain, cluster, &s, scale, 0, &out->value, error);
    out->is_predicted = status == TY_OK;
    return status;
}

/* ---- Speed-ups --------------------------------------------------------------------------- */

static const struct {
    const char *metric;
    uint32_t stages, micro_batches; /* of what it is over; 0: the record's own */
    bool recompute;
} references[] = {
    {"speedup_over_k2_m1", 2, 1, true},
    {"speedup_over_k2", 2, 0, true},
    {"speedup_over_one_device_without_pipeline", 1, 1, false},
};

static ty_status predict_speedup(const ty_record *r, const ty_workload *chain,
                                 const ty_cluster *cluster, ty_verdict *out, ty_error *error)
{
    shape s = shape_of(r), over = s;
    double rate, reference;
    size_t i = 0;
    ty_status status = TY_OK;

    while (i < sizeof references / sizeof references[0] &&
           strcmp(references[i].metric, r->metric) != 0)
        i++;
    if (i == sizeof references / sizeof references[0]) {
        snprintf(out->reason, sizeof out->reason, "no predictor for %.100s", r->metric);
        return TY_OK;
    }
    over.stages = references[i].stages;
    over.recompute = references[i].recompute;
    if (references[i].micro_batches > 0)
        over.micro_batches = references[i].micro_batches;
    if (over.stages == s.stages && over.micro_batches == s.micro_batches &&
        over.recompute == s.recompute) {
        snprintf(out->reason, sizeof out->reason, "speed-up over itself: 1 by definition");
        return TY_OK;
    }
    TY_CHECK(rate_of(chain, cluster, &s, 1, 0, &rate, error), status, done);
    TY_CHECK(rate_of(chain, cluster, &over, 1, 0, &reference, error), status, done);
    out->is_predicted = true;
    out->value = rate / reference;
done:
    return status;
}

ty_status ty_predict_pipeline(const ty_records *records, uint32_t index, ty_verdict *out,
                              ty_error *error)
{
    const ty_record *r = &records->items[index];
    ty_workload *workload = NULL, *chain = NULL;
    ty_cluster *cluster = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_published_workload(r, &workload, out->reason, error), status, cleanup);
    if (workload == NULL)
        goto cleanup;
    TY_CHECK(ty_published_cluster(r, &cluster, out->reason, error), status, cleanup);
    if (cluster == NULL)
        goto cleanup;
    TY_CHECK(ty_workload_chain(workload, ty_cluster_device_type(cluster, 0), ASSUMED_MICRO_BATCH,
                               &chain, error),
             status, cleanup);
    if (strcmp(r->unit, "x") == 0)
        status = predict_speedup(r, chain, cluster, out, error);
    else
        status = predict_rate(records, index, chain, cluster, out, error);

cleanup:
    ty_cluster_free(cluster);
    ty_workload_free(chain);
    ty_workload_free(workload);
    return status;
}
