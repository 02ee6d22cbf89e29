/* Documents that a report adds to a plan: gain of compression by bandwidth, score, memory over
 * time. */
#include "ty_study.h"

#include <math.h>
#include <string.h>

/* ---- Where compression pays ---------------------------------------------------------------- */

const char *const ty_shown_compressions[] = {"fp16",       "int8",       "one-bit",
                                             "top-k:0.01", "powersgd-4", NULL};

/* From an edge device's uplink to several NVLinks, with equal numbers of points per decade. */
#define SLOWEST_BYTES_PER_S 1e7
#define FASTEST_BYTES_PER_S 1e12
#define POINTS_IN_TENFOLD 8
#define POINT_COUNT (5 * POINTS_IN_TENFOLD + 1)

static double bandwidth_at(uint32_t point)
{
    const double tenfolds = log10(FASTEST_BYTES_PER_S / SLOWEST_BYTES_PER_S);
    return SLOWEST_BYTES_PER_S * pow(10, tenfolds * point / (POINT_COUNT - 1));
}

static void put_curve(const char *name, ty_exchange_terms terms, ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "compression", name);
    ty_json_open_flat(w, "seconds", '[');
    for (uint32_t i = 0; i < POINT_COUNT; i++)
        ty_json_put_number(w, NULL, terms.fixed_s + terms.edge_bytes / bandwidth_at(i));
    ty_json_close(w, ']');
    ty_json_close(w, '}');
}

static ty_status put_curves(const ty_plan_inputs *in, double *ring, ty_json_writer *w,
                            ty_error *error)
{
    ty_json_open(w, "curves", '[');
    for (size_t i = 0; ty_shown_compressions[i] != NULL; i++) {
        ty_compression c = {0};
        ty_exchange_terms plain, compressed;
        TY_TRY(ty_compression_parse(ty_shown_compressions[i], &c, error));
        TY_TRY(ty_plan_exchange_terms(in->plan, in->cluster, &c, &plain, &compressed, ring, error));
        if (i == 0)
            put_curve("none", plain, w);
        put_curve(ty_shown_compressions[i], compressed, w);
    }
    ty_json_close(w, ']');
    return TY_OK;
}

/* Parses a writer's text; NULL if it is empty. */
static ty_status document_of(ty_text *text, const char *name, ty_json_document **out,
                             ty_error *error)
{
    ty_status status = ty_text_check(text, error);

    *out = NULL;
    if (status == TY_OK && text->length > 0)
        status = ty_json_parse(text->data, text->length, name, out, error);
    return status;
}

ty_status ty_plan_compression_document(const ty_plan_inputs *inputs, ty_json_document **out,
                                       ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    double ring = HUGE_VAL;
    ty_status status = TY_OK;

    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.compression/1");
    ty_json_open_flat(&w, "bandwidths_bytes_per_s", '[');
    for (uint32_t i = 0; i < POINT_COUNT; i++)
        ty_json_put_number(&w, NULL, bandwidth_at(i));
    ty_json_close(&w, ']');
    TY_CHECK(put_curves(inputs, &ring, &w, error), status, done);
    if (isfinite(ring))
        ty_json_put_number(&w, "ring_bandwidth_bytes_per_s", ring);
    ty_json_close(&w, '}');
    if (!isfinite(ring))
        ty_text_clear(&text);
    status = document_of(&text, "trainyard.compression/1", out, error);
done:
    ty_text_clear(&text);
    return status;
}

/* ---- Score --------------------------------------------------------------------------------- */

ty_status ty_plan_score_document(const ty_plan_inputs *inputs, const char *task,
                                 ty_json_document **out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_score score = {0};
    ty_status status = TY_OK;

    if (inputs->plan->prediction.step_time_s > 0) {
        TY_CHECK(ty_plan_score(inputs->plan, inputs->cluster, task, NULL, &score, error), status,
                 done);
        ty_score_to_json(&score, &w, NULL);
    }
    status = document_of(&text, "trainyard.score/1", out, error);
done:
    ty_score_clear(&score);
    ty_text_clear(&text);
    return status;
}

/* ---- Memory over time ---------------------------------------------------------------------- */

static ty_status put_memory(const ty_plan_inputs *in, const ty_timeline *timeline,
                            uint32_t stage_replica, ty_json_writer *w, ty_error *error)
{
    ty_memory_point *points = NULL;
    uint32_t count;

    TY_TRY(ty_memory_curve(in->plan, in->program, timeline, stage_replica, &points, &count, error));
    ty_json_open(w, NULL, '{');
    ty_json_put_uint(w, "stage_replica", stage_replica);
    ty_json_open_flat(w, "time_s", '[');
    for (uint32_t i = 0; i < count; i++)
        ty_json_put_number(w, NULL, points[i].time_s);
    ty_json_close(w, ']');
    ty_json_open_flat(w, "bytes", '[');
    for (uint32_t i = 0; i < count; i++)
        ty_json_put_uint(w, NULL, points[i].bytes);
    ty_json_close(w, ']');
    ty_json_close(w, '}');
    ty_free(points);
    return TY_OK;
}

ty_status ty_plan_memory_document(const ty_plan_inputs *in, const ty_timeline *timeline,
                                  ty_json_document **out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer w = ty_json_writer_on(&text);
    ty_status status = TY_OK;

    *out = NULL;
    if (in->plan->memory == NULL)
        return TY_OK;
    ty_json_open(&w, NULL, '{');
    ty_json_put_string(&w, "schema", "trainyard.simulation/2");
    ty_json_open(&w, "memory_over_time", '[');
    for (uint32_t p = 0; p < ty_plan_pipeline_size(in->plan); p++)
        TY_CHECK(put_memory(in, timeline, ty_plan_first_replica(in->plan, p), &w, error), status,
                 done);
    ty_json_close(&w, ']');
    ty_json_close(&w, '}');
    status = document_of(&text, "memory over time", out, error);
done:
    ty_text_clear(&text);
    return status;
}
