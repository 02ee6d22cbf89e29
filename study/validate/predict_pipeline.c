/*
 * GPipe's tables: a pipeline of as many stages and micro-batches, divided as `plan` divides it.
 * Rates are predicted from the first measurement of their series as data parallelism is; speed-ups
 * from the model alone.
 */
#include "asked.h"
#include "predictors.h"
#include "published.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* None of these sources states the batch. Times are in proportion to it but for launches and
   latencies, so the largest usual size that fits does; where the number of micro-batches is not
   stated either, as many as make the bubble small. */
#define ASSUMED_MICRO_BATCH 32
#define ASSUMED_MICRO_BATCHES 32
#define MOST_MICRO_BATCHES 4096 /* more change nothing */
#define MOST_STAGES 64
#define PIPELINE_STACK "trainyard" /* has GPipe's schedule, and no constants of others */

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
    bool recompute; /* a stage keeps its input alone */
} shape;

static shape shape_of(const ty_record *r)
{
    double stages = r->pp >= 1 ? r->pp : 1;
    double micro_batches = r->micro_batches >= 1 ? r->micro_batches : ASSUMED_MICRO_BATCHES;
    bool is_pipeline = strcmp(r->schedule, "gpipe") == 0;

    return (shape){(uint32_t)fmin(stages, MOST_STAGES),
                   is_pipeline ? (uint32_t)fmin(micro_batches, MOST_MICRO_BATCHES) : 1,
                   is_pipeline && strcmp(r->recompute, "none") != 0};
}

/* `asked` has workload, cluster and precision. */
static void ask_for(ty_asked *asked, const shape *s, uint32_t micro_batch)
{
    const char *schedule = s->stages > 1 ? ",schedule=gpipe,interleave=1" : "";

    asked->global_batch = s->micro_batches * micro_batch;
    snprintf(asked->fix, sizeof asked->fix,
             "devices=0-%u,pp=%u,dp=1,tp=1%s,micro_batch=%u,recompute=%s,compression=none",
             s->stages - 1, s->stages, schedule, micro_batch, s->recompute ? "stage" : "none");
    ty_asked_set_scale(asked, PIPELINE_STACK, 1);
}

/* Samples a second, with the largest micro-batch that fits. @param asked [out] as answered */
static ty_status rate_of(ty_asked *asked, const ty_record *r, const shape *s, double scale,
                         double *rate, double *step_s, ty_error *error)
{
    ty_status status = TY_EINFEASIBLE;
    bool is_fitted;

    for (uint32_t size = ASSUMED_MICRO_BATCH; status == TY_EINFEASIBLE && size > 0; size /= 2) {
        ask_for(asked, s, size);
        ty_asked_set_scale(asked, PIPELINE_STACK, scale);
        status = ty_asked_step(asked, r, step_s, &is_fitted, error);
    }
    if (status == TY_OK)
        *rate = asked->global_batch / *step_s;
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

static ty_status predict_rate(const ty_records *records, uint32_t index, ty_asked *asked,
                              ty_verdict *out, ty_error *error)
{
    const ty_record *r = &records->items[index];
    const ty_record *first = &records->items[baseline_of(records, index)];
    shape s = shape_of(r), s0 = shape_of(first);
    ty_asked from = *asked;
    double scale = 1, step_s;
    ty_error detail = {0};
    ty_status status = TY_OK;

    if (first != r) {
        TY_CHECK(rate_of(&from, first, &s0, 1, &out->value, &step_s, error), status, done);
        status = ty_asked_calibrate(&from, first, PIPELINE_STACK, from.global_batch / first->value,
                                    &scale, &detail);
        if (status == TY_EINFEASIBLE) {
            snprintf(out->reason, sizeof out->reason, "baseline: %.130s", detail.message);
            return TY_OK;
        }
        if (status != TY_OK)
            return ty_fail(error, status, "%s", detail.message);
        snprintf(out->assumed, sizeof out->assumed, "rates as in %.100s", first->id);
    }
    TY_CHECK(rate_of(asked, r, &s, scale, &out->value, &step_s, error), status, done);
    status = ty_asked_answer(asked, step_s, out, error);
done:
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

static ty_status predict_speedup(const ty_record *r, ty_asked *asked, ty_verdict *out,
                                 ty_error *error)
{
    shape s = shape_of(r), over = s;
    ty_asked other = *asked;
    double rate, reference, step_s;
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
    TY_CHECK(rate_of(&other, r, &over, 1, &reference, &step_s, error), status, done);
    TY_CHECK(rate_of(asked, r, &s, 1, &rate, &step_s, error), status, done);
    TY_CHECK(ty_asked_answer(asked, step_s, out, error), status, done);
    out->value = rate / reference;
done:
    return status;
}

ty_status ty_predict_pipeline(const ty_records *records, uint32_t index, ty_verdict *out,
                              ty_error *error)
{
    const ty_record *r = &records->items[index];
    ty_asked asked = {.precision = "fp32"};
    char *line = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_published_workload(r, asked.workload, out->reason, error), status, cleanup);
    if (asked.workload[0] == '\0')
        goto cleanup;
    TY_CHECK(ty_published_cluster_line(r, &line, out->reason, error), status, cleanup);
    if (line == NULL)
        goto cleanup;
    snprintf(asked.cluster, sizeof asked.cluster, "%s", line);
    status = strcmp(r->unit, "x") == 0 ? predict_speedup(r, &asked, out, error)
                                       : predict_rate(records, index, &asked, out, error);

cleanup:
    ty_free(line);
    return status;
}
