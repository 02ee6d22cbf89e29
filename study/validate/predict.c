/*
 * The predictors: each accepts some kinds of records, plans the same question as a user would, and
 * converts the answer to the record's unit. Series over device counts are predicted from the run
 * with the fewest. docs/results/README.md documents each predictor.
 */
#include "row_question.h"

#include "ty_convergence.h"
#include "ty_planner.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define SECONDS_PER_MINUTE 60.0
#define LARGEST_BATCH 65536.0 /* per device */
#define MOST_STAGES 64

/* State of a prediction. */
typedef struct asking {
    const ty_json *names;
    const ty_records *records;
    const ty_record *record;
    ty_verdict *out;
} asking;

static ty_status skip(const asking *a, const char *format, ...) TY_PRINTF(2, 3);
static ty_status skip(const asking *a, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(a->out->reason, sizeof a->out->reason, format, arguments);
    va_end(arguments);
    return TY_OK;
}

static bool is_same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

static bool is_speed(const ty_record *r)
{
    return is_same(r->kind, "training-speed");
}

/* The zoo's name of a record's model. @return false with a reason */
static bool find_workload(const asking *a, const ty_record *r, ty_row_question *asked)
{
    const ty_json *row = ty_names_row(a->names, "models", r);

    if (row == NULL)
        (void)skip(a, "model is not in the zoo: %.100s", r->model[0] ? r->model : "not stated");
    else
        snprintf(asked->workload, sizeof asked->workload, "%s", ty_find_text(row, "workload"));
    return row != NULL;
}

/* The scale at which a baseline's step takes the measured time. @param scale [out] 0: skipped */
static ty_status calibrate(const asking *a, ty_row_question *first, const ty_record *baseline,
                           const char *stack, double measured_s, double *scale, ty_error *error)
{
    ty_error detail = {0};
    const ty_status status =
        ty_row_question_calibrate(first, baseline, stack, measured_s, scale, &detail);

    if (status == TY_OK)
        return TY_OK;
    *scale = 0;
    if (status == TY_EINFEASIBLE)
        return skip(a, "baseline: %.130s", detail.message);
    return ty_fail(error, status, "%s", detail.message);
}

/* ---- Series ---------------------------------------------------------------------------------- */

/* Step time of a benchmark with a fixed model and target, whose log has the steps, including
 * evaluation; 0 for other records. Its runs on one kind of device are a series, whatever their
 * batches. */
static double benchmark_step_s(const ty_record *r)
{
    const double steps = ty_record_also_measured(r, "steps_to_target_derived");

    return is_same(r->kind, "time-to-train") && is_same(r->unit, "min") && steps > 0
               ? r->value * SECONDS_PER_MINUTE / steps
               : 0;
}

static bool is_benchmark(const ty_record *r)
{
    return benchmark_step_s(r) > 0;
}

/* Samples per device and pass; 0 if not stated. */
static double batch_per_device(const ty_record *r)
{
    const double micro = ty_find_number(r->json, "batch.per_gpu_micro", 0);

    if (r->batch_per_gpu > 0)
        return r->batch_per_gpu;
    if (micro > 0)
        return micro;
    return r->gpus > 0 ? r->global_batch / r->gpus : 0;
}

static bool may_be_same(const char *a, const char *b)
{
    return a[0] == '\0' || b[0] == '\0' || is_same(a, b);
}

/* Whether two records differ only in the number of devices, or are of one benchmark. */
static bool is_of_series(const ty_record *a, const ty_record *b)
{
    if (!is_same(a->model, b->model) || !is_same(a->gpu, b->gpu))
        return false;
    if (is_benchmark(a) && is_benchmark(b))
        return true;
    return is_same(a->dtype, b->dtype) && may_be_same(a->node, b->node) &&
           may_be_same(a->update, b->update) && is_same(a->input_data, b->input_data) &&
           is_same(a->software, b->software) && is_same(a->framework, b->framework) &&
           is_same(a->source_table, b->source_table) && is_same(a->metric, b->metric) &&
           !(fabs(batch_per_device(a) - batch_per_device(b)) > 0.5);
}

/* The first record of a series with the fewest devices; the record itself if its series has no
 * other. */
static const ty_record *baseline_of(const ty_records *records, const ty_record *record)
{
    const ty_record *best = record;

    for (uint32_t i = 0; i < records->count; i++) {
        const ty_record *r = &records->items[i];
        if (!(r->gpus >= 1 && r->value > 0) || !is_of_series(r, record))
            continue;
        if (r->gpus < best->gpus || (!(r->gpus > best->gpus) && r < best))
            best = r;
    }
    return best;
}

/* Whether a run repeats the devices and the batch of its series' baseline. */
static bool runs_again(const ty_record *r, const ty_record *baseline)
{
    return is_benchmark(r) && !(r->gpus > baseline->gpus) &&
           !(fabs(r->global_batch - baseline->global_batch) > 0.5);
}

/* ---- Image models ---------------------------------------------------------------------------- */

#define IMAGE_STACK "tensorflow-2017"
#define IMAGENET_IMAGES 1281167.0 /* ILSVRC 2012, training set */

static bool is_cnn(const ty_record *r)
{
    return is_same(r->model_family, "cnn");
}

static bool is_scaling(const ty_record *r)
{
    return is_speed(r) && is_cnn(r) && is_same(r->metric, "scaling_efficiency");
}

static double epochs_of(const ty_record *r)
{
    const double epochs = ty_record_also_measured(r, "epochs");
    return epochs > 0 ? epochs : ty_record_also_measured(r, "epochs_to_target");
}

static bool is_epoch_time(const ty_record *r)
{
    return is_same(r->kind, "time-to-train") && is_cnn(r) && is_same(r->unit, "min") &&
           (is_benchmark(r) || epochs_of(r) > 0);
}

static bool takes_absolute(const asking *a)
{
    const ty_record *r = a->record;

    return is_epoch_time(r) ||
           (is_speed(r) && is_cnn(r) &&
            (is_same(r->metric, "images_per_s") || is_same(r->metric, "samples_per_s")) &&
            !(r->pp > 1) && !(r->tp > 1) && r->schedule[0] == '\0' && r->recompute[0] == '\0');
}

static bool takes_scaling(const asking *a)
{
    return is_scaling(a->record) ||
           (takes_absolute(a) && baseline_of(a->records, a->record) != a->record);
}

/* Pins the number of devices, if not the entire cluster, and the gradient all-reduce. */
static void fix_devices(const asking *a, const ty_record *r, uint32_t devices, bool is_all,
                        ty_row_question *asked)
{
    const ty_json *exchange = ty_names_row(a->names, "buckets", r);
    const char *algorithm = ty_find_text(exchange, "algorithm");
    const uint32_t batch = (uint32_t)batch_per_device(r);

    asked->global_batch = devices * batch;
    snprintf(asked->fix, sizeof asked->fix, "dp=%u,pp=1,tp=1,micro_batch=%u,recompute=none",
             devices, batch);
    if (!is_all)
        ty_row_question_add(asked->fix, ",devices=0-%u", devices - 1);
    if (devices > 1)
        ty_row_question_add(asked->fix, ",compression=none,algorithm=%s,bucket=%.0fB",
                            algorithm[0] != '\0' ? algorithm : "automatic",
                            ty_find_number(exchange, "bytes", 0));
}

/* Converts the record to a question; a reason if it is none. */
static ty_status ask_images(const asking *a, const ty_record *r, ty_row_question *asked,
                            bool *has_tensor_cores, ty_error *error)
{
    const double batch = batch_per_device(r);
    const ty_device_type *device;
    ty_cluster *cluster = NULL;
    ty_status status = TY_OK;

    *asked = (ty_row_question){.precision = "fp32"};
    if (!(batch >= 1 && batch <= LARGEST_BATCH))
        return skip(a, "batch per device not stated, or above %g", LARGEST_BATCH);
    if (!find_workload(a, r, asked) ||
        !ty_names_cluster(a->names, r, asked->cluster, a->out->reason))
        return TY_OK;
    TY_CHECK(ty_cluster_open(asked->cluster, NULL, &cluster, error), status, done);
    if (r->dtype[0] != '\0')
        snprintf(asked->precision, sizeof asked->precision, "%s",
                 is_same(r->dtype, "amp-fp16") ? "fp16" : r->dtype);
    ty_row_question_set_scale(asked, IMAGE_STACK, 1);
    fix_devices(a, r, (uint32_t)r->gpus, (uint32_t)r->gpus == ty_cluster_device_count(cluster),
                asked);
    device = ty_cluster_device_type(cluster, 0);
    *has_tensor_cores = device->peak_fp16_flop_per_s > 4 * device->peak_fp32_flop_per_s;
    /* The jitter and some devices' convolutions were fitted to one model. */
    a->out->is_fitted = ty_names_row(a->names, "fitted_images", r) != NULL;
done:
    ty_cluster_free(cluster);
    return status;
}

static double measured_image_step_s(const ty_record *r)
{
    const double batch = batch_per_device(r) * r->gpus;

    if (!is_epoch_time(r))
        return batch / r->value;
    return is_benchmark(r)
               ? benchmark_step_s(r)
               : r->value * SECONDS_PER_MINUTE * batch / (epochs_of(r) * IMAGENET_IMAGES);
}

/* Answers a question in the record's unit. */
static ty_status answer_images(const asking *a, const ty_row_question *asked, ty_error *error)
{
    const ty_record *r = a->record;
    const double measured_s = measured_image_step_s(r);
    double step_s;
    bool ignored;

    TY_TRY(ty_row_question_step(asked, r, &step_s, &ignored, error));
    a->out->value =
        is_epoch_time(r) ? r->value * step_s / measured_s : r->value * measured_s / step_s;
    return ty_row_question_answer(asked, step_s, a->out, error);
}

/* Efficiency over one device of the same cluster. */
static ty_status predict_efficiency(const asking *a, const ty_row_question *asked, ty_error *error)
{
    ty_row_question alone = *asked;
    double alone_s, all_s;
    bool ignored;

    fix_devices(a, a->record, 1, false, &alone);
    TY_TRY(ty_row_question_step(&alone, a->record, &alone_s, &ignored, error));
    TY_TRY(ty_row_question_step(asked, a->record, &all_s, &ignored, error));
    TY_TRY(ty_row_question_answer(asked, all_s, a->out, error));
    a->out->value = (is_same(a->record->unit, "%") ? 100 : 1) * alone_s / all_s;
    return TY_OK;
}

/* The roofline costs layers, scaled by one factor (the framework's compute_scale) to match the
 * first measurement of the series; the model predicts the effect of more devices. */
static ty_status predict_scaling(const asking *a, ty_error *error)
{
    const ty_record *r = a->record, *baseline = baseline_of(a->records, r);
    ty_row_question asked, first;
    double scale;
    bool ignored;
    ty_status status = ask_images(a, r, &asked, &ignored, error);

    if (status != TY_OK || a->out->reason[0] != '\0')
        return status;
    if (is_scaling(r))
        return predict_efficiency(a, &asked, error);
    if (runs_again(r, baseline))
        return skip(a, "runs again what others of its series are predicted from");
    TY_TRY(ask_images(a, baseline, &first, &ignored, error));
    if (a->out->reason[0] != '\0')
        return status;
    TY_TRY(calibrate(a, &first, baseline, IMAGE_STACK, measured_image_step_s(baseline), &scale,
                     error));
    if (scale == 0)
        return status;
    ty_row_question_set_scale(&asked, IMAGE_STACK, scale);
    TY_TRY(answer_images(a, &asked, error));
    snprintf(a->out->assumed, sizeof a->out->assumed, "rates as in %.100s%s", baseline->id,
             is_benchmark(r) ? ", the measured number of steps" : "");
    return status;
}

/* From data sheets. An unstated precision may have been mixed. */
static ty_status predict_absolute(const asking *a, ty_error *error)
{
    const ty_record *r = a->record;
    ty_row_question asked;
    bool has_tensor_cores = false;
    ty_status status = ask_images(a, r, &asked, &has_tensor_cores, error);

    if (status != TY_OK || a->out->reason[0] != '\0')
        return status;
    if (r->dtype[0] == '\0' && (has_tensor_cores || is_benchmark(r)))
        return skip(a,
                    "precision not stated, and the fewest devices of its series: what others are "
                    "predicted from");
    return answer_images(a, &asked, error);
}

/* ---- GPipe's tables -------------------------------------------------------------------------- */

/* None of these sources states the batch. Times are proportional to it except for launches and
 * latencies, so this takes the largest usual size that fits. If the number of micro-batches is not
 * stated either, it takes enough to make the bubble small. */
#define ASSUMED_MICRO_BATCH 32
#define ASSUMED_MICRO_BATCHES 32
#define MOST_MICRO_BATCHES 4096    /* more have no effect */
#define PIPELINE_STACK "trainyard" /* has GPipe's schedule, and no other framework's constants */

static bool is_pipeline(const ty_record *r)
{
    const bool is_gpipe = is_same(r->schedule, "gpipe");

    return is_speed(r) && ((is_cnn(r) && (is_gpipe || r->recompute[0] != '\0')) ||
                           (is_same(r->model_family, "transformer") && is_gpipe));
}

static bool takes_pipeline(const asking *a)
{
    return is_pipeline(a->record);
}

/* Pipeline of a record: stages, micro-batches, recomputation. */
typedef struct shape {
    uint32_t stages, micro_batches;
    bool recompute; /* a stage only stores its input */
} shape;

static shape shape_of(const ty_record *r)
{
    const double stages = r->pp >= 1 ? r->pp : 1;
    const double micro_batches = r->micro_batches >= 1 ? r->micro_batches : ASSUMED_MICRO_BATCHES;
    const bool is_gpipe = is_same(r->schedule, "gpipe");

    return (shape){(uint32_t)fmin(stages, MOST_STAGES),
                   is_gpipe ? (uint32_t)fmin(micro_batches, MOST_MICRO_BATCHES) : 1,
                   is_gpipe && !is_same(r->recompute, "none")};
}

/* Step time with the largest micro-batch that fits. @param asked [in, out] the answered question */
static ty_status pipeline_step(ty_row_question *asked, const ty_record *r, const shape *s,
                               double scale, double *step_s, ty_error *error)
{
    ty_status status = TY_EINFEASIBLE;
    bool ignored;

    ty_row_question_set_scale(asked, PIPELINE_STACK, scale);
    for (uint32_t size = ASSUMED_MICRO_BATCH; status == TY_EINFEASIBLE && size > 0; size /= 2) {
        asked->global_batch = s->micro_batches * size;
        snprintf(asked->fix, sizeof asked->fix,
                 "devices=0-%u,pp=%u,dp=1,tp=1%s,micro_batch=%u,recompute=%s,compression=none",
                 s->stages - 1, s->stages, s->stages > 1 ? ",schedule=gpipe,vpp=1" : "", size,
                 s->recompute ? "stage" : "none");
        status = ty_row_question_step(asked, r, step_s, &ignored, error);
    }
    return status;
}

static const ty_record *pipeline_baseline_of(const ty_records *records, const ty_record *record)
{
    const ty_record *best = record;

    for (uint32_t i = 0; i < records->count; i++) {
        const ty_record *r = &records->items[i];
        if (!is_pipeline(r) || !(r->value > 0) || !is_same(r->model, record->model) ||
            !is_same(r->gpu, record->gpu) || !is_same(r->source_table, record->source_table) ||
            !is_same(r->metric, record->metric))
            continue;
        if (r->gpus < best->gpus ||
            (!(r->gpus > best->gpus) && (r->micro_batches < best->micro_batches ||
                                         (!(r->micro_batches > best->micro_batches) && r < best))))
            best = r;
    }
    return best;
}

/* From the first measurement of the series, as for data parallelism. */
static ty_status predict_rate(const asking *a, ty_row_question *asked, ty_error *error)
{
    const ty_record *first = pipeline_baseline_of(a->records, a->record);
    const shape s = shape_of(a->record), s0 = shape_of(first);
    ty_row_question from = *asked;
    double scale = 1, step_s;

    if (first != a->record) {
        TY_TRY(pipeline_step(&from, first, &s0, 1, &step_s, error));
        TY_TRY(calibrate(a, &from, first, PIPELINE_STACK, from.global_batch / first->value, &scale,
                         error));
        if (scale == 0)
            return TY_OK;
        snprintf(a->out->assumed, sizeof a->out->assumed, "rates as in %.100s", first->id);
    }
    TY_TRY(pipeline_step(asked, a->record, &s, scale, &step_s, error));
    TY_TRY(ty_row_question_answer(asked, step_s, a->out, error));
    a->out->value = asked->global_batch / step_s;
    return TY_OK;
}

/* From the model only. */
static ty_status predict_speedup(const asking *a, ty_row_question *asked, ty_error *error)
{
    static const struct {
        const char *metric;
        uint32_t stages, micro_batches; /* of the reference; 0: the record's own */
        bool recompute;
    } references[] = {{"speedup_over_k2_m1", 2, 1, true},
                      {"speedup_over_k2", 2, 0, true},
                      {"speedup_over_one_device_without_pipeline", 1, 1, false}};
    const size_t count = sizeof references / sizeof references[0];
    const shape s = shape_of(a->record);
    shape over = s;
    ty_row_question other = *asked;
    double other_s, step_s;
    size_t i = 0;

    while (i < count && !is_same(references[i].metric, a->record->metric))
        i++;
    if (i == count)
        return skip(a, "no predictor for %.100s", a->record->metric);
    over.stages = references[i].stages;
    over.recompute = references[i].recompute;
    if (references[i].micro_batches > 0)
        over.micro_batches = references[i].micro_batches;
    if (over.stages == s.stages && over.micro_batches == s.micro_batches &&
        over.recompute == s.recompute)
        return skip(a, "speed-up over itself: 1 by definition");
    TY_TRY(pipeline_step(&other, a->record, &over, 1, &other_s, error));
    TY_TRY(pipeline_step(asked, a->record, &s, 1, &step_s, error));
    TY_TRY(ty_row_question_answer(asked, step_s, a->out, error));
    a->out->value = asked->global_batch / step_s / (other.global_batch / other_s);
    return TY_OK;
}

static ty_status predict_pipeline(const asking *a, ty_error *error)
{
    ty_row_question asked = {.precision = "fp32"};

    if (!find_workload(a, a->record, &asked) ||
        !ty_names_cluster(a->names, a->record, asked.cluster, a->out->reason))
        return TY_OK;
    return is_same(a->record->unit, "x") ? predict_speedup(a, &asked, error)
                                         : predict_rate(a, &asked, error);
}

/* ---- PipeDream's table ----------------------------------------------------------------------- */

#define MOST_SAMPLES 1000000000

static bool takes_pipedream(const asking *a)
{
    return is_speed(a->record) &&
           is_same(a->record->metric, "epoch_time_speedup_over_data_parallel");
}

/* "15-1", "straight"; 0 stages for any other text. */
static uint32_t read_configuration(const ty_record *r, uint32_t *replicas)
{
    const char *text = r->configuration;
    uint32_t stages = 0, sum = 0;

    if (is_same(text, "straight")) {
        stages = r->gpus >= 1 && r->gpus <= MOST_STAGES ? (uint32_t)r->gpus : 0;
        for (uint32_t s = 0; s < stages; s++)
            replicas[s] = 1;
        return stages;
    }
    while (*text >= '1' && *text <= '9' && stages < MOST_STAGES) {
        char *end;
        const unsigned long n = strtoul(text, &end, 10);
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

/* Epoch time of an asynchronous pipeline over data parallelism. A pipeline step is one mini-batch
 * per stage replica, with the samples of one data-parallel device. */
static ty_status predict_pipedream(const asking *a, ty_error *error)
{
    const ty_record *r = a->record;
    const ty_json *exchange = ty_names_row(a->names, "buckets", r);
    uint32_t replicas[MOST_STAGES], batch;
    const uint32_t stages = read_configuration(r, replicas);
    ty_row_question asked = {.precision = "fp32"}, parallel;
    uint64_t at_once = 1;
    double parallel_s, step_s;
    bool ignored;

    if (stages == 0 || !(r->batch_per_gpu >= 1 && r->batch_per_gpu <= LARGEST_BATCH))
        return skip(a, "configuration or batch not stated");
    if (stages == 1)
        return skip(a, "data parallelism was chosen: 1 over itself by definition");
    if (!find_workload(a, r, &asked) ||
        !ty_names_cluster(a->names, r, asked.cluster, a->out->reason))
        return TY_OK;
    batch = (uint32_t)r->batch_per_gpu;
    ty_row_question_set_scale(&asked, ty_find_text(exchange, "stack"), 1);
    parallel = asked;
    fix_devices(a, r, (uint32_t)r->gpus, true, &parallel);
    snprintf(asked.fix, sizeof asked.fix,
             "pp=%u,tp=1,schedule=pipedream,micro_batch=%u,recompute=none,compression=none,"
             "replicas=",
             stages, batch);
    for (uint32_t s = 0; s < stages; s++) {
        at_once = least_common_multiple(at_once, replicas[s]);
        if (at_once * batch > MOST_SAMPLES)
            return skip(a, "replicas share no batch of at most %d samples", MOST_SAMPLES);
        ty_row_question_add(asked.fix, "%s%u", s > 0 ? "+" : "", replicas[s]);
    }
    asked.global_batch = (uint32_t)at_once * batch;
    TY_TRY(ty_row_question_step(&parallel, r, &parallel_s, &ignored, error));
    TY_TRY(ty_row_question_step(&asked, r, &step_s, &ignored, error));
    TY_TRY(ty_row_question_answer(&asked, step_s, a->out, error));
    a->out->value = parallel_s / parallel.global_batch / (step_s / asked.global_batch);
    return TY_OK;
}

/* ---- Collectives ----------------------------------------------------------------------------- */

/* Below this, launches dominate, and programs differ in them. */
#define LARGE_BYTES 1048576.0

static bool takes_collective(const asking *a)
{
    return is_same(a->record->kind, "collective");
}

static bool takes_large_collective(const asking *a)
{
    return takes_collective(a) && a->record->collective_bytes >= LARGE_BYTES;
}

/* Seconds and bus bandwidth of a collective on a cluster. */
static ty_status ask_collective(const char *line, const ty_collective_question *question,
                                uint64_t bytes, ty_collective_answer *out, ty_error *error)
{
    ty_cluster *cluster = NULL;
    ty_status status = ty_cluster_open(line, NULL, &cluster, error);

    if (status == TY_OK)
        status = ty_collective_ask(cluster, question, &bytes, 1, out, error);
    ty_cluster_free(cluster);
    return status;
}

/* Measured time, in any unit that rows of a series share. */
static double collective_took(const ty_record *r)
{
    return is_same(r->unit, "us") ? r->value : r->collective_bytes / r->value;
}

/* Whether more data took a quarter of the time in the same series, whose rows differ in the last
 * part of their names: the first calls of a program also make its connections. */
static bool is_first_call(const asking *a)
{
    const ty_record *r = a->record;
    const size_t stem = (size_t)(strrchr(r->id, '-') - r->id);

    for (uint32_t i = 0; i < a->records->count; i++) {
        const ty_record *other = &a->records->items[i];
        if (takes_collective(&(asking){.record = other}) && is_same(other->unit, r->unit) &&
            strncmp(other->id, r->id, stem + 1) == 0 &&
            strrchr(other->id, '-') == other->id + stem &&
            other->collective_bytes > r->collective_bytes && other->value > 0 &&
            collective_took(other) < collective_took(r) / 4)
            return true;
    }
    return false;
}

/* With the record's algorithm, or the library's choice. */
static ty_status predict_collective(const asking *a, ty_error *error)
{
    static const ty_nccl_algorithm forced[] = {TY_NCCL_RING, TY_NCCL_TREE, TY_NCCL_NVLS};
    const ty_record *r = a->record;
    const bool is_time = is_same(r->unit, "us");
    ty_collective_question question = {.ranks = (uint32_t)r->gpus};
    ty_collective_answer found;
    char line[TY_ROW_QUESTION_SIZE], sizes[32], ranks[16];
    int kind = 0;

    while (kind < TY_COLLECTIVE_COUNT &&
           !is_same(ty_collective_name((ty_collective_kind)kind), r->operation))
        kind++;
    if (kind == TY_COLLECTIVE_COUNT || !(r->gpus >= 2) || !(r->collective_bytes >= 1))
        return skip(a, "collective not known, or without a size");
    if (strrchr(r->id, '-') != NULL && is_first_call(a))
        return skip(a, "more data took a quarter of the time: a first call");
    question.kind = (ty_collective_kind)kind;
    for (size_t i = 0; i < sizeof forced / sizeof forced[0]; i++)
        if (strcasecmp(r->algorithm, ty_nccl_algorithm_name(forced[i])) == 0)
            question.algorithm = ty_nccl_algorithm_name(forced[i]);
    if (!ty_names_cluster(a->names, r, line, a->out->reason))
        return TY_OK;
    TY_TRY(ask_collective(line, &question, (uint64_t)r->collective_bytes, &found, error));
    snprintf(sizes, sizeof sizes, "%llu", (unsigned long long)r->collective_bytes);
    snprintf(ranks, sizeof ranks, "%u", question.ranks);
    a->out->is_fitted = ty_names_row(a->names, "fitted_collectives", r) != NULL;
    a->out->answer = is_time ? found.seconds : found.bus_bandwidth_bytes_per_s;
    a->out->answer_at = is_time ? "/rows/0/time_s" : "/rows/0/bus_bandwidth_bytes_per_s";
    a->out->value = is_time ? found.seconds * 1e6 : found.bus_bandwidth_bytes_per_s / 1e9;
    return ty_verdict_command(
        (const char *const[]){"cluster", "collective", line, "--collective", r->operation,
                              "--ranks", ranks, "--size", sizes, "--json",
                              question.algorithm != NULL ? "--algorithm" : NULL, question.algorithm,
                              NULL},
        a->out, error);
}

/* ---- Samples to target ----------------------------------------------------------------------- */

/* Figures of one task and batch size that differ by more are in different units. */
#define LARGEST_SPREAD 5.0
#define LARGEST_TARGET_BATCH 1073741824.0

static bool is_convergence(const ty_record *r)
{
    return is_same(r->kind, "convergence") && is_same(r->metric, "median_to_converge");
}

static bool takes_convergence(const asking *a)
{
    return is_convergence(a->record);
}

static int by_batch(const void *left, const void *right)
{
    const ty_record *a = *(const ty_record *const *)left, *b = *(const ty_record *const *)right;

    if (a->global_batch != b->global_batch)
        return a->global_batch < b->global_batch ? -1 : 1;
    return (a > b) - (a < b);
}

/* Of a task's sorted batch sizes, every second one from the first, and the last one, are fitted;
 * the others are held out. With two sizes, both are fitted. */
static bool is_fitted_size(const ty_record *const *sorted, uint32_t count, double size)
{
    uint32_t before = 0, i = 0;

    for (; sorted[i]->global_batch < size; i++)
        before += sorted[i + 1]->global_batch > sorted[i]->global_batch;
    return before % 2 == 0 || !(size < sorted[count - 1]->global_batch);
}

static bool is_of_task(const ty_record *r, const ty_record *of)
{
    return is_convergence(r) && is_same(r->model, of->model) && is_same(r->unit, of->unit) &&
           r->global_batch > 0 && r->value > 0;
}

static ty_status predict_task(const asking *a, const ty_record *const *sorted, uint32_t count,
                              ty_error *error)
{
    const uint32_t batch = (uint32_t)a->record->global_batch;
    ty_text text = {0};
    char *points = NULL, number[16];
    ty_reached reached = {0};
    ty_convergence law;
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < a->records->count; i++) {
        const ty_record *r = &a->records->items[i];
        char size[32], figure[32], runs[32];
        if (!is_of_task(r, a->record) || !is_fitted_size(sorted, count, r->global_batch))
            continue;
        ty_format_number(r->global_batch, size);
        ty_format_number(r->value, figure);
        ty_format_number(fmax(1, r->runs), runs);
        ty_text_addf(&text, "%s%s:%s%s*%s", text.length > 0 ? "," : "", size, figure, r->unit,
                     runs);
    }
    TY_CHECK(ty_text_take(&text, &points, error), status, cleanup);
    TY_CHECK(ty_reached_parse(points, &reached, error), status, cleanup);
    TY_CHECK(ty_reached_fit(&reached, &law, error), status, cleanup);
    snprintf(number, sizeof number, "%u", batch);
    a->out->is_fitted = is_fitted_size(sorted, count, a->record->global_batch);
    a->out->value = a->out->answer = ty_convergence_samples(&law, batch).expected;
    a->out->answer_at = "/to_target/expected";
    status = ty_verdict_command((const char *const[]){"calibrate", "--reached", points,
                                                      "--global-batch", number, "--json", NULL},
                                a->out, error);

cleanup:
    ty_reached_clear(&reached);
    ty_free(points);
    return status;
}

static ty_status predict_convergence(const asking *a, ty_error *error)
{
    const ty_record *r = a->record, **rows;
    uint32_t count = 0;
    bool is_one_unit = true;
    ty_status status;

    if (!(r->global_batch >= 1 && r->global_batch <= LARGEST_TARGET_BATCH && r->value > 0))
        return skip(a, "batch not stated, or above %g", LARGEST_TARGET_BATCH);
    TY_TRY(ty_check_memory((rows = ty_alloc(a->records->count, sizeof *rows)) != NULL, error));
    for (uint32_t i = 0; i < a->records->count; i++)
        if (is_of_task(&a->records->items[i], r))
            rows[count++] = &a->records->items[i];
    qsort(rows, count, sizeof *rows, by_batch);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t j = i; j-- > 0 && !(rows[j]->global_batch < rows[i]->global_batch);)
            is_one_unit &= !(fabs(log(rows[i]->value / rows[j]->value)) > log(LARGEST_SPREAD));
    if (!(rows[0]->global_batch < rows[count - 1]->global_batch))
        status = skip(a, "one batch size: no law to fit");
    else if (!is_one_unit)
        status = skip(a, "unit in doubt: figures at one batch size differ by more than %g times",
                      LARGEST_SPREAD);
    else
        status = predict_task(a, rows, count, error);
    ty_free(rows);
    return status;
}

/* ---- Language models ------------------------------------------------------------------------- */

static bool takes_language_model(const asking *a)
{
    return ty_names_row(a->names, "language_families", a->record) != NULL &&
           (is_speed(a->record) || (is_same(a->record->kind, "time-to-train") &&
                                    is_same(a->record->metric, "time_to_train")));
}

static bool replace(char text[TY_ROW_QUESTION_SIZE], const char *from, const char *to)
{
    char tail[TY_ROW_QUESTION_SIZE];
    char *at = strstr(text, from);

    if (at == NULL)
        return false;
    snprintf(tail, sizeof tail, "%s", at + strlen(from));
    snprintf(at, TY_ROW_QUESTION_SIZE - (size_t)(at - text), "%s%s", to, tail);
    return true;
}

/* Published runs did fit, so unstated recomputation must have been the cheapest that fits.
 */
static ty_status recompute_more(const ty_record *r, ty_row_question *asked, double *step_s,
                                bool *is_fitted, ty_error *error)
{
    static const struct {
        const char *fix, *assumed;
    } ways[] = {{"recompute=none", TY_ASSUMED_NO_RECOMPUTE},
                {"recompute=elementwise", "norms and activation functions recomputed"},
                {"recompute=full", "blocks recomputed"}};
    ty_status status = TY_EINFEASIBLE;

    /* A framework refuses recomputation that it lacks. */
    for (size_t w = 1;
         (status == TY_EINFEASIBLE || status == TY_EINVAL) && w < sizeof ways / sizeof ways[0] &&
         r->recompute[0] == '\0' && replace(asked->fix, ways[w - 1].fix, ways[w].fix) &&
         replace(asked->assumed, ways[w - 1].assumed, ways[w].assumed);
         w++)
        status = ty_row_question_step(asked, r, step_s, is_fitted, error);
    return status;
}

/* The plan with the stated layout pinned. */
static ty_status predict_language_model(const asking *a, ty_error *error)
{
    const ty_record *r = a->record;
    ty_row_question asked;
    double step_s, slower;
    ty_status status;

    ty_ask_language_model(a->names, r, &asked, a->out->reason);
    if (a->out->reason[0] != '\0')
        return TY_OK;
    status = ty_row_question_step(&asked, r, &step_s, &a->out->is_fitted, error);
    if (status == TY_EINFEASIBLE)
        status = recompute_more(r, &asked, &step_s, &a->out->is_fitted, error);
    /* Likewise, replicas with unstated sharding must have sharded their states. */
    if (status == TY_EINFEASIBLE && asked.sharded_stack[0] != '\0' &&
        replace(asked.fix, "zero=0", "zero=3")) {
        snprintf(asked.stack, sizeof asked.stack, "%s", asked.sharded_stack);
        ty_row_question_add(asked.assumed, "%sZeRO 3", asked.assumed[0] != '\0' ? ", " : "");
        status = ty_row_question_step(&asked, r, &step_s, &a->out->is_fitted, error);
    }
    snprintf(a->out->assumed, sizeof a->out->assumed, "%.255s", asked.assumed);
    if (status != TY_OK)
        return status;
    slower = step_s / asked.measured_step_s;
    a->out->value = ty_record_more_is_better(r) ? r->value / slower : r->value * slower;
    return ty_row_question_answer(&asked, step_s, a->out, error);
}

/* ---- Other models, by their number of parameters --------------------------------------------- */

#define WAITING_STACK "tensorflow-2017" /* whose step_jitter is that of image models */
#define BACKWARD_SHARE (2.0 / 3.0)      /* of a step's work: two of three products */
#define FEWEST_SAMPLES 0.5              /* per device; below, kernels are too small */
#define BUCKET_BYTES 26214400.0         /* the last one, which is exposed; PyTorch's default */

static bool takes_series(const asking *a)
{
    const ty_record *r = a->record;
    const bool is_rate =
        is_speed(r) && ty_record_more_is_better(r) && strstr(r->metric, "_per_s") != NULL;

    return (is_rate || is_benchmark(r)) && !(r->pp > 1) && !(r->tp > 1) && r->schedule[0] == '\0' &&
           ty_names_row(a->names, "series_families", r) != NULL;
}

typedef struct exchange {
    char line[TY_ROW_QUESTION_SIZE]; /* cluster line; "": one device, or none with a reason */
    uint64_t bytes;
    double seconds;
} exchange;

static ty_status exchange_of(const asking *a, const ty_record *r, double parameters, exchange *out,
                             ty_error *error)
{
    const bool is_half = is_same(r->dtype, "amp-fp16") || is_same(r->dtype, "bf16") ||
                         (r->dtype[0] == '\0' && is_benchmark(r));
    const ty_collective_question question = {.kind = TY_ALL_REDUCE, .ranks = (uint32_t)r->gpus};
    ty_collective_answer found;
    ty_status status;

    *out = (exchange){.bytes = (uint64_t)(parameters * (is_half ? 2 : 4))};
    if (!(r->gpus > 1) || !ty_names_cluster(a->names, r, out->line, a->out->reason))
        return TY_OK;
    status = ask_collective(out->line, &question, out->bytes, &found, error);
    if (status == TY_OK)
        out->seconds = found.seconds;
    return status;
}

/* Step time for `work_s`: adds the wait for the slowest device and the exposed all-reduce, at least
 * that of the last bucket. */
static double step_of(const exchange *e, double work_s, double jitter, double devices)
{
    const double last = fmin(1, BUCKET_BYTES / (double)e->bytes);

    return work_s * (1 + jitter * ty_expected_largest((uint32_t)devices)) +
           fmax(e->seconds - BACKWARD_SHARE * work_s, e->seconds * last);
}

/* The work of a given step time, by bisection: the step time grows with the work. */
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

/* The step on the fewest devices of a series is measured; more devices add an all-reduce of
 * gradients and waiting. Runs of a benchmark have different batches: their work is assumed
 * proportional to the samples per device, if these are at least half of the baseline's.
 */
static ty_status predict_series(const asking *a, ty_error *error)
{
    const ty_record *r = a->record, *first = baseline_of(a->records, r);
    const ty_json *known = ty_names_row(a->names, "gradients", r);
    const double batch = batch_per_device(r);
    const double parameters = known != NULL ? ty_find_number(known, "parameters", 0) : 0;
    exchange fewest, all;
    ty_stack *stack = NULL;
    double work_s, samples, step_s;
    char bytes[32], ranks[16];
    ty_status status = TY_OK;

    if (runs_again(r, first) && r != first)
        return skip(a, "runs again what others of its series are predicted from");
    if (r == first || (!(r->gpus > first->gpus) && !is_benchmark(r)))
        return skip(a, "not in the zoo, and on the fewest devices of its series");
    if (!(batch > 0))
        return skip(a, "batch per device not stated");
    if (is_benchmark(r) && batch < FEWEST_SAMPLES * batch_per_device(first))
        return skip(a,
                    "less than half of the samples a device of the run it would be predicted from");
    if (!(parameters > 0))
        return skip(a, "not in the zoo, and its size is not known");
    TY_CHECK(ty_stack_open(WAITING_STACK, &stack, error), status, cleanup);
    TY_CHECK(exchange_of(a, first, parameters, &fewest, error), status, cleanup);
    TY_CHECK(exchange_of(a, r, parameters, &all, error), status, cleanup);
    if (a->out->reason[0] != '\0')
        goto cleanup;
    samples = batch * ty_find_number(known, "items", 1); /* per device, in the measure's items */
    work_s = work_for(&fewest,
                      is_benchmark(first) ? benchmark_step_s(first)
                                          : samples * first->gpus / first->value,
                      stack->step_jitter, first->gpus);
    if (is_benchmark(r))
        work_s *= batch / batch_per_device(first);
    step_s = step_of(&all, work_s, stack->step_jitter, r->gpus);
    a->out->value =
        is_benchmark(r) ? r->value * step_s / benchmark_step_s(r) : samples * r->gpus / step_s;
    a->out->is_predicted = true;
    snprintf(a->out->assumed, sizeof a->out->assumed,
             "work as in %.100s%s, %.3g M parameters exchanged behind two thirds of it", first->id,
             is_benchmark(r) ? " by samples a device, the measured number of steps" : "",
             parameters / 1e6);
    if (all.line[0] == '\0')
        goto cleanup;
    snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)all.bytes);
    snprintf(ranks, sizeof ranks, "%.0f", r->gpus);
    a->out->answer = all.seconds;
    a->out->answer_at = "/rows/0/time_s";
    status = ty_verdict_command((const char *const[]){"cluster", "collective", all.line, "--ranks",
                                                      ranks, "--size", bytes, "--json", NULL},
                                a->out, error);

cleanup:
    ty_stack_free(stack);
    return status;
}

/* ---- The table ------------------------------------------------------------------------------- */

static const struct predictor {
    const char *name;
    bool (*takes)(const asking *a);
    ty_status (*predict)(const asking *a, ty_error *error);
} predictors[] = {
    {"data-parallel-scaling", takes_scaling, predict_scaling},
    {"data-parallel-absolute", takes_absolute, predict_absolute},
    {"pipeline", takes_pipeline, predict_pipeline},
    {"pipedream", takes_pipedream, predict_pipedream},
    {"collective", takes_large_collective, predict_collective},
    {"collective-small", takes_collective, predict_collective},
    {"noise-scale-law", takes_convergence, predict_convergence},
    {"language-model", takes_language_model, predict_language_model},
    {"series", takes_series, predict_series},
    {"none", NULL, NULL}, /* for all others */
};

const char *ty_predictor_name(uint32_t index)
{
    return index < sizeof predictors / sizeof predictors[0] ? predictors[index].name : NULL;
}

ty_status ty_predict(const ty_json *names, const ty_records *records, const ty_record *record,
                     ty_verdict *out, ty_error *error)
{
    const asking a = {names, records, record, out};
    const struct predictor *p = predictors;
    ty_error detail = {0};
    ty_status status;

    *out = (ty_verdict){0};
    while (p->takes != NULL && !p->takes(&a))
        p++;
    status = p->takes != NULL ? p->predict(&a, &detail)
                              : skip(&a, "no predictor for %s of %.60s", record->kind,
                                     record->model_family[0] != '\0' ? record->model_family
                                                                     : "what it measures");
    if (status == TY_ENOMEM || status == TY_EIO)
        return ty_fail(error, status, "%s: %s", record->id, detail.message);
    if (status != TY_OK) { /* an invalid row must not stop the others */
        ty_free(out->command);
        *out = (ty_verdict){0};
        (void)skip(&a, "%.*s", TY_SKIP_REASON_SIZE - 1, detail.message);
    }
    out->predictor = p->name;
    if (out->is_predicted && !(record->value > 0)) {
        out->is_predicted = false;
        (void)skip(&a, "measured figure is not above 0");
    }
    return TY_OK;
}
