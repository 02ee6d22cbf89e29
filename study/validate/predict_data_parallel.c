/*
 * Data-parallel training of image networks. The first measurement of a series, that on the fewest
 * devices, is predicted from data sheets; the others from it: layers are costed by the roofline,
 * scaled by one factor such that the first measurement comes out, and what more devices change is
 * the model's.
 */
#include "fixed_plan.h"
#include "predictors.h"
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SECONDS_PER_MINUTE 60.0
#define LARGEST_BATCH 65536.0     /* per device */
#define IMAGENET_IMAGES 1281167.0 /* ILSVRC 2012, training set */

static bool is_image_rate(const ty_record *r)
{
    return strcmp(r->kind, "training-speed") == 0 && strcmp(r->model_family, "cnn") == 0 &&
           (strcmp(r->metric, "images_per_s") == 0 || strcmp(r->metric, "samples_per_s") == 0) &&
           !(r->pp > 1) && !(r->tp > 1) && r->schedule[0] == '\0' && r->recompute[0] == '\0';
}

static bool is_scaling(const ty_record *r)
{
    return strcmp(r->kind, "training-speed") == 0 && strcmp(r->model_family, "cnn") == 0 &&
           strcmp(r->metric, "scaling_efficiency") == 0;
}

static bool is_epoch_time(const ty_record *r)
{
    return strcmp(r->kind, "time-to-train") == 0 && strcmp(r->model_family, "cnn") == 0 &&
           strcmp(r->unit, "min") == 0 &&
           (ty_record_also_measured(r, "epochs") > 0 ||
            ty_record_also_measured(r, "epochs_to_target") > 0);
}

static double batch_per_device(const ty_record *r)
{
    double micro = ty_record_number(r, "batch", "per_gpu_micro");

    if (r->batch_per_gpu > 0)
        return r->batch_per_gpu;
    if (micro > 0)
        return micro;
    return r->gpus > 0 ? r->global_batch / r->gpus : 0;
}

/* ---- Series ------------------------------------------------------------------------------ */

static bool is_same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Equal, as far as both sources say. */
static bool is_same_or_not_stated(const char *a, const char *b)
{
    return a[0] == '\0' || b[0] == '\0' || strcmp(a, b) == 0;
}

/* Whether two records differ in the number of devices alone. */
static bool is_of_series(const ty_record *a, const ty_record *b)
{
    return is_same(a->model, b->model) && is_same(a->dtype, b->dtype) && is_same(a->gpu, b->gpu) &&
           is_same_or_not_stated(a->node, b->node) && is_same_or_not_stated(a->update, b->update) &&
           is_same(a->input_data, b->input_data) && is_same(a->software, b->software) &&
           is_same(a->framework, b->framework) && is_same(a->source_table, b->source_table) &&
           is_same(a->metric, b->metric) &&
           !(fabs(batch_per_device(a) - batch_per_device(b)) > 0.5);
}

/* The record of the series with the fewest devices; the first such one. */
static uint32_t baseline_of(const ty_records *records, uint32_t index)
{
    uint32_t best = index;

    for (uint32_t i = 0; i < records->count; i++) {
        const ty_record *r = &records->items[i];
        if (!(r->gpus >= 1 && r->value > 0) || !is_of_series(r, &records->items[index]))
            continue;
        if (r->gpus < records->items[best].gpus ||
            (!(r->gpus > records->items[best].gpus) && i < best))
            best = i;
    }
    return best;
}

bool ty_takes_data_parallel_scaling(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];

    if (is_scaling(r))
        return true;
    if (!is_image_rate(r) && !is_epoch_time(r))
        return false;
    return baseline_of(records, index) != index;
}

bool ty_takes_data_parallel_absolute(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return is_image_rate(r) || is_epoch_time(r);
}

/* ---- Plans ------------------------------------------------------------------------------- */

typedef struct question {
    ty_workload *workload;
    ty_cluster *cluster;
    ty_fixed_plan plan;
    bool is_fitted; /* the jitter, and convolutions of some devices, were fitted to this model */
} question;

static void question_clear(question *q)
{
    ty_cluster_free(q->cluster);
    ty_workload_free(q->workload);
}

/* The record as a plan; q->workload or q->cluster stays NULL, with a reason, where it cannot be. */
static ty_status question_make(const ty_record *r, question *q, char reason[TY_SKIP_REASON_SIZE],
                               ty_error *error)
{
    double batch = batch_per_device(r);
    ty_published_exchange exchange;
    double per_host = r->gpus_per_node >= 1 ? r->gpus_per_node : r->gpus;
    ty_status status = TY_OK;

    if (!(batch >= 1 && batch <= LARGEST_BATCH)) {
        snprintf(reason, TY_SKIP_REASON_SIZE, "batch per device not stated, or above %g",
                 LARGEST_BATCH);
        return TY_OK;
    }
    TY_CHECK(ty_published_workload(r, &q->workload, reason, error), status, done);
    if (q->workload == NULL)
        goto done;
    TY_CHECK(ty_published_cluster(r, &q->cluster, reason, error), status, done);
    if (q->cluster == NULL)
        goto done;
    TY_CHECK(ty_published_exchange_of(r, &exchange, error), status, done);
    q->plan = ty_fixed_data_parallel(q->workload, q->cluster, (uint32_t)r->gpus, (uint32_t)batch,
                                     exchange.bucket_bytes);
    TY_CHECK(ty_published_jitter(r, &q->plan.jitter, &q->is_fitted, error), status, done);
    if (exchange.is_server)
        status = ty_fixed_plan_use_server(&q->plan, exchange.root_bytes_per_s, (uint32_t)per_host,
                                          error);
done:
    return status;
}

/* Seconds of one step, as measured. */
static double measured_step_s(const ty_record *r)
{
    double epochs = ty_record_also_measured(r, "epochs");
    double batch = batch_per_device(r) * r->gpus;

    if (!is_epoch_time(r))
        return batch / r->value;
    if (!(epochs > 0))
        epochs = ty_record_also_measured(r, "epochs_to_target");
    return r->value * SECONDS_PER_MINUTE * batch / (epochs * IMAGENET_IMAGES);
}

/* The measured figure's counterpart for another step time. */
static double value_for_step(const ty_record *r, double step_s)
{
    double measured_s = measured_step_s(r);
    return is_epoch_time(r) ? r->value * step_s / measured_s : r->value * measured_s / step_s;
}

/* ---- Predicting -------------------------------------------------------------------------- */

static ty_status efficiency(const ty_record *r, question *q, ty_verdict *out, ty_error *error)
{
    ty_fixed_plan alone =
        ty_fixed_data_parallel(q->workload, q->cluster, 1, q->plan.micro_batch_size, UINT64_MAX);
    double alone_s, all_s;
    ty_status status = TY_OK;

    TY_CHECK(ty_fixed_plan_step(&alone, &alone_s, error), status, done);
    TY_CHECK(ty_fixed_plan_step(&q->plan, &all_s, error), status, done);
    out->is_predicted = true;
    out->value = (strcmp(r->unit, "%") == 0 ? 100 : 1) * alone_s / all_s;
done:
    return status;
}

static ty_status from_baseline(const ty_record *r, const ty_record *baseline, question *q,
                               ty_verdict *out, ty_error *error)
{
    question first = {0};
    ty_error detail = {0};
    double step_s;
    ty_status status = TY_OK;

    TY_CHECK(question_make(baseline, &first, out->reason, error), status, cleanup);
    if (first.cluster == NULL)
        goto cleanup;
    status = ty_fixed_plan_calibrate(&first.plan, measured_step_s(baseline), &q->plan.compute_scale,
                                     &detail);
    if (status == TY_EINFEASIBLE) {
        snprintf(out->reason, sizeof out->reason,
                 "baseline: communication alone is predicted "
                 "longer than the measured step");
        status = TY_OK;
        goto cleanup;
    }
    if (status != TY_OK) {
        status = ty_fail(error, status, "%s", detail.message);
        goto cleanup;
    }
    TY_CHECK(ty_fixed_plan_step(&q->plan, &step_s, error), status, cleanup);
    out->is_predicted = true;
    out->value = value_for_step(r, step_s);

cleanup:
    question_clear(&first);
    return status;
}

ty_status ty_predict_data_parallel_scaling(const ty_records *records, uint32_t index,
                                           ty_verdict *out, ty_error *error)
{
    const ty_record *r = &records->items[index];
    question q = {0};
    ty_status status = question_make(r, &q, out->reason, error);

    if (status == TY_OK && q.cluster != NULL) {
        if (is_scaling(r))
            status = efficiency(r, &q, out, error);
        else
            status = from_baseline(r, &records->items[baseline_of(records, index)], &q, out, error);
        out->is_fitted = q.is_fitted;
    }
    question_clear(&q);
    return status;
}

/* Half precision of the time was mixed precision on tensor cores: of that the layer costs know
   nothing. Where the precision is not stated, it may have been. */
static bool is_single_precision(const ty_record *r, const ty_cluster *cluster,
                                char reason[TY_SKIP_REASON_SIZE])
{
    const ty_device_type *device = ty_cluster_device_type(cluster, 0);
    bool has_tensor_cores = device->peak_fp16_flop_per_s > 4 * device->peak_fp32_flop_per_s;

    if (is_same(r->dtype, "fp32") || (r->dtype[0] == '\0' && !has_tensor_cores))
        return true;
    snprintf(reason, TY_SKIP_REASON_SIZE, "%s: layer costs of image networks are for fp32",
             r->dtype[0] != '\0' ? "reduced precision" : "precision not stated");
    return false;
}

ty_status ty_predict_data_parallel_absolute(const ty_records *records, uint32_t index,
                                            ty_verdict *out, ty_error *error)
{
    const ty_record *r = &records->items[index];
    question q = {0};
    double step_s;
    ty_status status = question_make(r, &q, out->reason, error);

    if (status == TY_OK && q.cluster != NULL && is_single_precision(r, q.cluster, out->reason)) {
        status = ty_fixed_plan_step(&q.plan, &step_s, error);
        if (status == TY_OK) {
            out->is_predicted = true;
            out->is_fitted = q.is_fitted;
            out->value = value_for_step(r, step_s);
        }
    }
    question_clear(&q);
    return status;
}
