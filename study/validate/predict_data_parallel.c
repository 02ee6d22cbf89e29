/*
 * Data-parallel training of image networks, asked as a user would. The first measurement of a
 * series, that on the fewest devices, is predicted from data sheets; the others from it: layers are
 * costed by the roofline, scaled by one factor (a stack's compute_scale) such that the first
 * measurement comes out, and what more devices change is the model's.
 */
#include "asked.h"
#include "predictors.h"
#include "published.h"
#include "series.h"
#include "ty_topologies.h"

#include <stdio.h>
#include <string.h>

#define SECONDS_PER_MINUTE 60.0
#define LARGEST_BATCH 65536.0 /* per device */
#define IMAGE_STACK "tensorflow-2017"
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
           (ty_is_benchmark_time(r) || ty_record_also_measured(r, "epochs") > 0 ||
            ty_record_also_measured(r, "epochs_to_target") > 0);
}

bool ty_takes_data_parallel_scaling(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];

    if (is_scaling(r))
        return true;
    if (!is_image_rate(r) && !is_epoch_time(r))
        return false;
    return ty_baseline_of(records, index) != index;
}

bool ty_takes_data_parallel_absolute(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return is_image_rate(r) || is_epoch_time(r);
}

/* ---- Questions ---------------------------------------------------------------------------- */

typedef struct question {
    ty_asked asked;
    uint32_t devices, batch; /* batch of a device */
    bool is_fitted; /* the jitter, and convolutions of some devices, were fitted to this model */
    bool has_tensor_cores;
} question;

static const char *precision_of(const ty_record *r)
{
    if (strcmp(r->dtype, "amp-fp16") == 0)
        return "fp16";
    return r->dtype[0] != '\0' ? r->dtype : "fp32";
}

/* Devices of the cluster, where they are not all of it, and what is exchanged among them. */
static void write_fix(question *q, uint32_t devices, const ty_published_exchange *exchange,
                      uint32_t all)
{
    char *fix = q->asked.fix;
    size_t at = (size_t)snprintf(
        fix, TY_ASKED_SIZE, "dp=%u,pp=1,tp=1,micro_batch=%u,recompute=none", devices, q->batch);

    q->asked.global_batch = devices * q->batch;
    if (devices != all)
        at += (size_t)snprintf(fix + at, TY_ASKED_SIZE - at, ",devices=0-%u", devices - 1);
    if (devices > 1)
        snprintf(fix + at, TY_ASKED_SIZE - at, ",compression=none,algorithm=%s,bucket=%lluB",
                 exchange->algorithm, (unsigned long long)exchange->bucket_bytes);
}

/* The record as a question; without a workload or a cluster, and with a reason, where it is none.
 */
static ty_status question_make(const ty_record *r, question *q, char reason[TY_SKIP_REASON_SIZE],
                               ty_error *error)
{
    const double batch = ty_batch_per_device(r);
    const ty_device_type *device;
    ty_cluster *cluster = NULL;
    ty_published_exchange exchange;
    char *line = NULL;
    ty_status status = TY_OK;

    if (!(batch >= 1 && batch <= LARGEST_BATCH)) {
        snprintf(reason, TY_SKIP_REASON_SIZE, "batch per device not stated, or above %g",
                 LARGEST_BATCH);
        return TY_OK;
    }
    TY_CHECK(ty_published_workload(r, q->asked.workload, reason, error), status, cleanup);
    if (q->asked.workload[0] == '\0')
        goto cleanup;
    TY_CHECK(ty_published_cluster_line(r, &line, reason, error), status, cleanup);
    if (line == NULL)
        goto cleanup;
    TY_CHECK(ty_cluster_open(line, NULL, &cluster, error), status, cleanup);
    TY_CHECK(ty_published_exchange_of(r, &exchange, error), status, cleanup);
    TY_CHECK(ty_published_is_fitted(r, &q->is_fitted, error), status, cleanup);
    device = ty_cluster_device_type(cluster, 0);
    q->has_tensor_cores = device->peak_fp16_flop_per_s > 4 * device->peak_fp32_flop_per_s;
    q->devices = (uint32_t)r->gpus;
    q->batch = (uint32_t)batch;
    snprintf(q->asked.cluster, sizeof q->asked.cluster, "%s", line);
    snprintf(q->asked.precision, sizeof q->asked.precision, "%s", precision_of(r));
    ty_asked_set_scale(&q->asked, IMAGE_STACK, 1);
    write_fix(q, q->devices, &exchange, ty_cluster_device_count(cluster));

cleanup:
    ty_cluster_free(cluster);
    ty_free(line);
    return status;
}

static bool is_made(const question *q)
{
    return q->asked.cluster[0] != '\0';
}

/* Seconds of one step, as measured. */
static double measured_step_s(const ty_record *r)
{
    double epochs = ty_record_also_measured(r, "epochs");
    double batch = ty_batch_per_device(r) * r->gpus;

    if (!is_epoch_time(r))
        return batch / r->value;
    if (ty_is_benchmark_time(r))
        return ty_benchmark_step_s(r);
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

/* Over one device of the same cluster. */
static ty_status efficiency(const ty_record *r, question *q, ty_verdict *out, ty_error *error)
{
    question alone = *q;
    double alone_s, all_s;
    bool is_fitted;
    ty_status status = TY_OK;

    write_fix(&alone, 1, NULL, 0);
    TY_CHECK(ty_asked_step(&alone.asked, r, &alone_s, &is_fitted, error), status, done);
    TY_CHECK(ty_asked_step(&q->asked, r, &all_s, &is_fitted, error), status, done);
    TY_CHECK(ty_asked_answer(&q->asked, all_s, out, error), status, done);
    out->value = (strcmp(r->unit, "%") == 0 ? 100 : 1) * alone_s / all_s;
done:
    return status;
}

static ty_status from_baseline(const ty_record *r, const ty_record *baseline, question *q,
                               ty_verdict *out, ty_error *error)
{
    question first = {0};
    ty_error detail = {0};
    double step_s, scale;
    bool is_fitted;
    ty_status status = TY_OK;

    if (ty_runs_again(r, baseline)) {
        snprintf(out->reason, sizeof out->reason,
                 "runs again what others of its series are predicted from");
        return TY_OK;
    }
    TY_CHECK(question_make(baseline, &first, out->reason, error), status, done);
    if (!is_made(&first))
        goto done;
    status = ty_asked_calibrate(&first.asked, baseline, IMAGE_STACK, measured_step_s(baseline),
                                &scale, &detail);
    if (status == TY_EINFEASIBLE) {
        snprintf(out->reason, sizeof out->reason, "baseline: %.130s", detail.message);
        status = TY_OK;
        goto done;
    }
    if (status != TY_OK) {
        status = ty_fail(error, status, "%s", detail.message);
        goto done;
    }
    ty_asked_set_scale(&q->asked, IMAGE_STACK, scale);
    TY_CHECK(ty_asked_step(&q->asked, r, &step_s, &is_fitted, error), status, done);
    TY_CHECK(ty_asked_answer(&q->asked, step_s, out, error), status, done);
    out->value = value_for_step(r, step_s);
    snprintf(out->assumed, sizeof out->assumed, "rates as in %.100s%s", baseline->id,
             ty_is_benchmark_time(r) ? ", the measured number of steps" : "");
done:
    return status;
}

ty_status ty_predict_data_parallel_scaling(const ty_records *records, uint32_t index,
                                           ty_verdict *out, ty_error *error)
{
    const ty_record *r = &records->items[index];
    question q = {0};
    ty_status status = question_make(r, &q, out->reason, error);

    if (status == TY_OK && is_made(&q)) {
        if (is_scaling(r))
            status = efficiency(r, &q, out, error);
        else
            status =
                from_baseline(r, &records->items[ty_baseline_of(records, index)], &q, out, error);
        out->is_fitted = q.is_fitted;
    }
    return status;
}

/* Where the precision is not stated, it may have been mixed. */
static bool is_precision_known(const ty_record *r, const question *q,
                               char reason[TY_SKIP_REASON_SIZE])
{
    if (r->dtype[0] != '\0' || (!q->has_tensor_cores && !ty_is_benchmark_time(r)))
        return true;
    snprintf(reason, TY_SKIP_REASON_SIZE,
             "precision not stated, and the fewest devices of its series: what others are "
             "predicted from");
    return false;
}

ty_status ty_predict_data_parallel_absolute(const ty_records *records, uint32_t index,
                                            ty_verdict *out, ty_error *error)
{
    const ty_record *r = &records->items[index];
    question q = {0};
    double step_s;
    ty_status status = TY_OK;

    TY_CHECK(question_make(r, &q, out->reason, error), status, done);
    if (!is_made(&q) || !is_precision_known(r, &q, out->reason))
        goto done;
    TY_CHECK(ty_asked_step(&q.asked, r, &step_s, &out->is_fitted, error), status, done);
    TY_CHECK(ty_asked_answer(&q.asked, step_s, out, error), status, done);
    out->is_fitted = q.is_fitted;
    out->value = value_for_step(r, step_s);
done:
    return status;
}
