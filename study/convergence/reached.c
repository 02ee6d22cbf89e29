/* Fits the law to published figures: parses points, fits and writes. */
#include "ty_convergence.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const units[] = {"samples", "epochs", "tokens"};
#define UNIT_COUNT (sizeof units / sizeof units[0])
#define MOST_POINTS 4096

/* "512:23epochs*5", up to a comma. */
static bool read_point(const char *text, ty_convergence_point *point, const char **unit,
                       const char **end)
{
    char *at;
    double runs = 1;

    *unit = units[0];
    point->batch = strtod(text, &at);
    if (at == text || *at != ':')
        return false;
    text = at + 1;
    point->samples = strtod(text, &at);
    if (at == text)
        return false;
    for (size_t u = 0; u < UNIT_COUNT; u++)
        if (strncmp(at, units[u], strlen(units[u])) == 0) {
            *unit = units[u];
            at += strlen(units[u]);
            break;
        }
    if (*at == '*') {
        text = at + 1;
        runs = strtod(text, &at);
        if (at == text)
            return false;
    }
    point->weight = sqrt(runs);
    *end = at;
    return (*at == ',' || *at == '\0') && isfinite(point->batch) && point->batch > 0 &&
           isfinite(point->samples) && point->samples > 0 && isfinite(runs) && runs >= 1;
}

ty_status ty_reached_parse(const char *text, ty_reached *out, ty_error *error)
{
    ty_reached reached = {0};
    uint32_t count = 1;
    ty_status status = TY_OK;

    for (const char *c = text; *c != '\0'; c++)
        count += *c == ',';
    if (count > MOST_POINTS)
        return ty_fail(error, TY_EINVAL, "found %u points, expected at most %d", count,
                       MOST_POINTS);
    reached.points = ty_alloc(count, sizeof *reached.points);
    TY_TRY(ty_check_memory(reached.points != NULL, error));
    while (reached.count < count) {
        const char *unit, *end = text;
        if (!read_point(text, &reached.points[reached.count], &unit, &end)) {
            status = ty_fail(error, TY_EINVAL,
                             "found '%.*s', expected BATCH:FIGURE with samples, epochs or tokens "
                             "as the unit and *RUNS, as in 512:23epochs*5",
                             (int)strcspn(text, ","), text);
            goto cleanup;
        }
        if (reached.unit != NULL && strcmp(reached.unit, unit) != 0) {
            status =
                ty_fail(error, TY_EINVAL, "found %s and %s, expected one unit", reached.unit, unit);
            goto cleanup;
        }
        reached.unit = unit;
        reached.count++;
        text = end + (*end == ',');
    }
    *out = reached;
    return TY_OK;
cleanup:
    ty_reached_clear(&reached);
    return status;
}

void ty_reached_clear(ty_reached *reached)
{
    ty_free(reached->points);
    *reached = (ty_reached){0};
}

ty_status ty_reached_fit(const ty_reached *reached, ty_convergence *out, ty_error *error)
{
    ty_convergence law = {.smallest_batch = HUGE_VAL};
    const double count = reached->count, prior = TY_PRIOR_RUN_DEVIATION;
    double left;

    TY_TRY(ty_convergence_fit(reached->points, reached->count, 0, &law.noise_scale_samples,
                              &law.minimum_samples, &left, error));
    law.log_deviation =
        sqrt((TY_PRIOR_RUNS * prior * prior + count * left * left) / (TY_PRIOR_RUNS + count - 2));
    for (uint32_t i = 0; i < reached->count; i++) {
        law.smallest_batch = fmin(law.smallest_batch, reached->points[i].batch);
        law.largest_batch = fmax(law.largest_batch, reached->points[i].batch);
    }
    *out = law;
    return TY_OK;
}

void ty_reached_to_json(const ty_reached *reached, const ty_convergence *law, double batch,
                        ty_json_writer *w)
{
    ty_json_open(w, NULL, '{');
    ty_json_put_string(w, "schema", "trainyard.law/1");
    ty_json_put_string(w, "unit", reached->unit);
    ty_json_put_uint(w, "points", reached->count);
    ty_json_put_number(w, "noise_scale_samples", law->noise_scale_samples);
    ty_json_put_number(w, "with_smallest_batches", law->minimum_samples);
    ty_json_put_number(w, "log_deviation", law->log_deviation);
    ty_json_put_number(w, "smallest_batch", law->smallest_batch);
    ty_json_put_number(w, "largest_batch", law->largest_batch);
    if (batch > 0) {
        ty_json_put_number(w, "batch", batch);
        ty_interval_to_json(ty_convergence_samples(law, batch), w, "to_target");
    }
    ty_json_close(w, '}');
}
