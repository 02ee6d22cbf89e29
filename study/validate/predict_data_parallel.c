/*
 * Data-parallel training of image networks. The first measurement of a series, that on the fewest
 * devices, is predicted from data sheets; the others from it: layers are costed by the roofline,
 * scaled by one factor (a stack's compute_scale) such that the first measurement comes out, and
 * what more devices change is the model's. Where the command line has words for it, the question is
 * asked as a user would.
 */
#include "asked.h"
#include "fixed_plan.h"
#include "predictors.h"
#include "published.h"
#include "series.h"
#include "ty_study.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SECONDS_PER_MINUTE 60.0
#define LARGEST_BATCH 65536.0 /* per device */
#define IMAGE_STACK "tensorflow-2017"
#define MOST_ROUNDS 200
#define SCALE_TOLERANCE 1e-6
#define SMALLEST_SCALE 1e-4
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

/* ---- Plans ------------------------------------------------------------------------------- */

typedef struct question {
    ty_workload *workload;
    ty_cluster *cluster;
    ty_fixed_plan plan;
    bool is_fitted; /* the jitter, and convolutions of some devices, were fitted to this model */
    /* The same in the words of the command line; NULL where those cannot say it: gradients over
     * servers, and devices that do not fill their host. */
    char *line;
    char fix[TY_ASKED_SIZE];
} question;

static void question_clear(question *q)
{
    ty_free(q->line);
    ty_cluster_free(q->cluster);
    ty_workload_free(q->workload);
}

/* The line of the cluster in hand, where it has no more devices than the record used; of one device
 * the device alone. */
static ty_status write_words(const ty_record *r, const ty_published_exchange *exchange, question *q,
                             char reason[TY_SKIP_REASON_SIZE], ty_error *error)
{
    const uint32_t devices = q->plan.devices, batch = q->plan.micro_batch_size;
    ty_text text = {0};

    snprintf(q->fix, sizeof q->fix, "dp=%u,pp=1,tp=1,micro_batch=%u,recompute=none", devices,
             batch);
    if (devices == 1) {
        ty_text_addf(&text, "host:1 gpu:1 @%s pcie3 eth10",
                     ty_cluster_device_type(q->cluster, 0)->name);
        return ty_text_take(&text, &q->line, error);
    }
    if (exchange->is_server || devices != ty_cluster_device_count(q->cluster))
        return TY_OK;
    snprintf(q->fix + strlen(q->fix), sizeof q->fix - strlen(q->fix),
             ",compression=none,algorithm=automatic,bucket=%llu",
             (unsigned long long)exchange->bucket_bytes);
    return ty_published_cluster_line(r, &q->line, reason, error);
}

/* The record as a plan; q->workload or q->cluster stays NULL, with a reason, where it cannot be. */
static ty_status question_make(const ty_record *r, question *q, char reason[TY_SKIP_REASON_SIZE],
                               ty_error *error)
{
    double batch = ty_batch_per_device(r);
    ty_published_exchange exchange;
    ty_stack *stack = NULL;
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
    TY_CHECK(ty_stack_open(IMAGE_STACK, &stack, error), status, done);
    q->plan.jitter = stack->step_jitter;
    TY_CHECK(ty_published_is_fitted(r, &q->is_fitted, error), status, done);
    if (exchange.is_server)
        TY_CHECK(ty_fixed_plan_use_server(&q->plan, exchange.root_bytes_per_s, (uint32_t)per_host,
                                          error),
                 status, done);
    status = write_words(r, &exchange, q, reason, error);
done:
    ty_stack_free(stack);
    return status;
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

/* ---- Asking ------------------------------------------------------------------------------ */

static void write_stack(double scale, char out[TY_ASKED_SIZE])
{
    char number[32];

    ty_format_number(scale, number);
    snprintf(out, TY_ASKED_SIZE, IMAGE_STACK "%s%s",
             scale < 1 || scale > 1 ? " compute_scale=" : "", scale < 1 || scale > 1 ? number : "");
}

/* Seconds of a step with layers so many times as long as costed: as `plan` answers, or where that
 * has no words for it from the fixed plan. What ran in mixed precision and does not fit in fp32, in
 * which image networks are costed, has none. */
static ty_status step_of(question *q, double scale, double *step_s, ty_error *error)
{
    char stack[TY_ASKED_SIZE];
    const ty_question words = {.workload = q->workload->name,
                               .cluster = q->line,
                               .stack = stack,
                               .precision = "fp32",
                               .fix = q->fix,
                               .global_batch = q->plan.devices * q->plan.micro_batch_size,
                               .seed = 1};
    ty_question_inputs inputs = {0};
    ty_fixed_plan fixed = q->plan;
    ty_plan *plan = NULL;
    ty_status status = TY_OK;

    if (q->line != NULL) {
        write_stack(scale, stack);
        TY_CHECK(ty_question_open(&words, NULL, &inputs, error), status, cleanup);
        status = ty_question_plan(&words, &inputs, NULL, &plan, error);
        if (status == TY_OK)
            *step_s = plan->prediction.step_time_s;
        if (status == TY_EINFEASIBLE) {
            ty_free(q->line);
            q->line = NULL;
        }
    }
    if (q->line == NULL) {
        fixed.compute_scale = scale;
        status = ty_fixed_plan_step(&fixed, step_s, error);
    }
cleanup:
    ty_plan_free(plan);
    ty_question_inputs_clear(&inputs);
    return status;
}

static ty_status write_command(const question *q, double scale, double step_s, ty_verdict *out,
                               ty_error *error)
{
    char stack[TY_ASKED_SIZE], batch[16];

    if (q->line == NULL)
        return TY_OK;
    write_stack(scale, stack);
    snprintf(batch, sizeof batch, "%u", q->plan.devices * q->plan.micro_batch_size);
    out->answer = step_s;
    out->answer_at = TY_STEP_TIME_AT;
    return ty_verdict_command(
        (const char *const[]){"plan", "--workload", q->workload->name, "--cluster", q->line,
                              "--stack", stack, "--precision", "fp32", "--fix", q->fix,
                              "--global-batch", batch, "--no-simulate", "--json", NULL},
        &out->command, error);
}

/* The scale at which a step takes as long as was measured; each round leaves the share of the error
 * that does not depend on computing. TY_EINFEASIBLE where there is none. */
static ty_status scale_for(question *q, double measured_s, double *out, ty_error *error)
{
    double scale = 1, step_s;
    ty_status status;

    for (int round = 0; round < MOST_ROUNDS && scale > SMALLEST_SCALE; round++) {
        status = step_of(q, scale, &step_s, error);
        if (status != TY_OK)
            return status;
        if (fabs(step_s / measured_s - 1) < SCALE_TOLERANCE) {
            *out = scale;
            return TY_OK;
        }
        scale *= measured_s / step_s;
    }
    return ty_fail(error, TY_EINFEASIBLE, "no scale makes a step take %g s", measured_s);
}

/* ---- Predicting -------------------------------------------------------------------------- */

static ty_status efficiency(const ty_record *r, question *q, ty_verdict *out, ty_error *error)
{
    ty_fixed_plan alone =
        ty_fixed_data_parallel(q->workload, q->cluster, 1, q->plan.micro_batch_size, UINT64_MAX);
    double alone_s, all_s;
    ty_status status = TY_OK;

    TY_CHECK(ty_fixed_plan_step(&alone, &alone_s, error), status, done);
    TY_CHECK(step_of(q, 1, &all_s, error), status, done);
    TY_CHECK(write_command(q, 1, all_s, out, error), status, done);
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
    double step_s, scale = 1;
    ty_status status = TY_OK;

    if (ty_runs_again(r, baseline)) {
        snprintf(out->reason, sizeof out->reason,
                 "runs again what others of its series are predicted from");
        return TY_OK;
    }
    TY_CHECK(question_make(baseline, &first, out->reason, error), status, cleanup);
    if (first.cluster == NULL)
        goto cleanup;
    status = scale_for(&first, measured_step_s(baseline), &scale, &detail);
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
    TY_CHECK(step_of(q, scale, &step_s, error), status, cleanup);
    TY_CHECK(write_command(q, scale, step_s, out, error), status, cleanup);
    out->is_predicted = true;
    out->value = value_for_step(r, step_s);
    snprintf(out->assumed, sizeof out->assumed, "rates as in %.100s%s", baseline->id,
             ty_is_benchmark_time(r) ? ", the measured number of steps" : "");

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
            status =
                from_baseline(r, &records->items[ty_baseline_of(records, index)], &q, out, error);
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

    if (strcmp(r->dtype, "fp32") == 0 ||
        (r->dtype[0] == '\0' && !has_tensor_cores && !ty_is_benchmark_time(r)))
        return true;
    snprintf(reason, TY_SKIP_REASON_SIZE,
             "%s, and the fewest devices of its series: what others are predicted from",
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
        status = step_of(&q, 1, &step_s, error);
        if (status == TY_OK)
            status = write_command(&q, 1, step_s, out, error);
        if (status == TY_OK) {
            out->is_predicted = true;
            out->is_fitted = q.is_fitted;
            out->value = value_for_step(r, step_s);
        }
    }
    question_clear(&q);
    return status;
}
