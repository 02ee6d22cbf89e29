/* Memory over time: the curves of a trainyard.simulation/1 document, one for each kind of rank. */
#include "page.h"

#include <math.h>
#include <stdio.h>

#define MOST_CURVES 10
#define POINT_COUNT 199 /* of the picture, each with a row of the table; the curves are steps */

typedef struct memory_curves {
    uint32_t count;
    char names[MOST_CURVES][32];
    const ty_json *times[MOST_CURVES], *bytes[MOST_CURVES];
    double end_s;
    double x[POINT_COUNT], values[MOST_CURVES][POINT_COUNT];
} memory_curves;

/* The position of a rank; without a plan, or of a rank that the plan has not, nobody knows. */
static bool find_position(const ty_plan *plan, uint32_t rank, uint32_t *out)
{
    if (plan == NULL || rank >= ty_plan_rank_count(plan))
        return false;
    *out = ty_plan_stage_of_rank(plan, rank);
    return true;
}

/* Which curves are drawn: of positions that are alike the first one's; of too many as many as can
 * be told apart, from the first to the last. */
static ty_status choose_curves(const ty_plan *plan, const ty_json *all, size_t *chosen,
                               uint32_t *count, ty_error *error)
{
    const size_t size = ty_json_size(all);
    size_t *kinds = ty_alloc(size, sizeof *kinds);
    uint32_t found = 0, rank, position;
    ty_status status = TY_OK;

    if (kinds == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (size_t i = 0; i < size; i++) {
        TY_CHECK(ty_json_uint32(ty_json_at(all, i), "rank", 0, UINT32_MAX, &rank, error), status,
                 done);
        if (!find_position(plan, rank, &position) ||
            ty_page_alike_position(plan, position) == position)
            kinds[found++] = i;
    }
    *count = found < MOST_CURVES ? found : MOST_CURVES;
    for (uint32_t k = 0; k < *count; k++)
        chosen[k] = kinds[found <= MOST_CURVES ? k : (size_t)k * (found - 1) / (MOST_CURVES - 1)];
done:
    ty_free(kinds);
    return status;
}

static ty_status read_curve(const ty_plan *plan, memory_curves *c, const ty_json *curve,
                            ty_error *error)
{
    const uint32_t i = c->count;
    uint32_t rank, position;
    size_t points;
    double last_s = 0;
    ty_status status = TY_OK;

    TY_CHECK(ty_json_uint32(curve, "rank", 0, UINT32_MAX, &rank, error), status, done);
    TY_CHECK(ty_json_array(curve, "time_s", 1, SIZE_MAX, &c->times[i], error), status, done);
    points = ty_json_size(c->times[i]);
    TY_CHECK(ty_json_array(curve, "bytes", points, points, &c->bytes[i], error), status, done);
    TY_CHECK(ty_json_as_number(ty_json_at(c->times[i], points - 1), 0, 1e300, &last_s, error),
             status, done);
    if (find_position(plan, rank, &position))
        snprintf(c->names[i], sizeof c->names[i], "%s %u",
                 ty_plan_interleave(plan) > 1 ? "position" : "stage", position);
    else
        snprintf(c->names[i], sizeof c->names[i], "rank %u", rank);
    c->end_s = fmax(c->end_s, last_s);
    c->count++;
done:
    return status;
}

/* The steps of a curve at the picture's points in time. */
static ty_status fill_curve(memory_curves *c, uint32_t i, ty_error *error)
{
    const size_t points = ty_json_size(c->times[i]);
    ty_status status = TY_OK;
    double time_s = 0, bytes = NAN;
    size_t next = 0;

    for (uint32_t p = 0; p < POINT_COUNT; p++) {
        while (next < points) {
            TY_CHECK(ty_json_as_number(ty_json_at(c->times[i], next), 0, 1e300, &time_s, error),
                     status, done);
            if (time_s > c->x[p])
                break;
            TY_CHECK(ty_json_as_number(ty_json_at(c->bytes[i], next), 0, 1e300, &bytes, error),
                     status, done);
            next++;
        }
        c->values[i][p] = bytes;
    }
done:
    return status;
}

static ty_status put_curves(page *p, memory_curves *c, const ty_json *all, ty_error *error)
{
    ty_status status = TY_OK;
    page_series series[MOST_CURVES];
    size_t chosen[MOST_CURVES];
    uint32_t count;

    TY_CHECK(choose_curves(p->in->plan, all, chosen, &count, error), status, done);
    for (uint32_t i = 0; i < count; i++)
        TY_CHECK(read_curve(p->in->plan, c, ty_json_at(all, chosen[i]), error), status, done);
    for (uint32_t i = 0; i < POINT_COUNT; i++)
        c->x[i] = c->end_s * i / (POINT_COUNT - 1);
    for (uint32_t i = 0; i < c->count; i++) {
        TY_CHECK(fill_curve(c, i, error), status, done);
        series[i] = (page_series){.name = c->names[i], .values = c->values[i]};
    }
    if (p->in->plan == NULL)
        ty_page_section(p, "memory", "Memory");
    ty_page_plot(p, &(page_plot){.id = "memory-time",
                                 .caption = "Memory of a device over the simulated time",
                                 .alternative = "Curves of memory over time, one for each kind of "
                                                "stage: it rises with the micro-batches in flight",
                                 .x_name = "time",
                                 .x = c->x,
                                 .x_unit = PAGE_SECONDS,
                                 .unit = PAGE_MEMORY,
                                 .count = POINT_COUNT,
                                 .series = series,
                                 .series_count = c->count,
                                 .is_line = true});
done:
    return status;
}

ty_status ty_page_memory_curves(page *p, ty_error *error)
{
    const ty_report_document *document = ty_page_document(p, "trainyard.simulation/1");
    const ty_json *all;
    memory_curves *curves = NULL;
    ty_status status = TY_OK;

    if (document == NULL || document->root == NULL ||
        !ty_json_has(document->root, "memory_over_time"))
        return TY_OK;
    TY_CHECK(ty_json_array(document->root, "memory_over_time", 0, SIZE_MAX, &all, error), status,
             done);
    if (ty_json_size(all) == 0)
        return TY_OK;
    curves = ty_alloc(1, sizeof *curves);
    if (curves == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    TY_CHECK(put_curves(p, curves, all, error), status, done);
done:
    ty_free(curves);
    return status;
}
