/* Error, pair order, regret. */
#include "ty_validate.h"

#include <math.h>
#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Of sorted values: the smallest that at least `share` of them do not exceed. */
static double percentile(const double *sorted, uint32_t count, double share)
{
    double rank = ceil(share * count);
    return sorted[rank < 1 ? 0 : (uint32_t)rank - 1];
}

static ty_status score_errors(const ty_scored_row *rows, uint32_t count, ty_validation_score *out,
                              ty_error *error)
{
    double *errors = ty_alloc(count, sizeof *errors), sum = 0;

    if (errors == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++) {
        errors[i] = fabs(rows[i].predicted / rows[i].measured - 1);
        sum += errors[i];
    }
    qsort(errors, count, sizeof *errors, by_value);
    out->mean_error = sum / count;
    out->median_error = percentile(errors, count, 0.5);
    out->p90_error = percentile(errors, count, 0.9);
    ty_free(errors);
    return TY_OK;
}

static int by_group(const void *a, const void *b)
{
    const ty_scored_row *const *x = a, *const *y = b;

    if ((*x)->group != (*y)->group)
        return (*x)->group > (*y)->group ? 1 : -1;
    return (*x > *y) - (*x < *y); /* rows keep their order */
}

static double points_of_pair(const ty_scored_row *a, const ty_scored_row *b)
{
    double measured = a->measured - b->measured, predicted = a->predicted - b->predicted;

    if (!(predicted < 0) && !(predicted > 0))
        return 0.5;
    return (measured > 0) == (predicted > 0) ? 1 : 0;
}

static bool is_better(double a, double b, bool more_is_better)
{
    return more_is_better ? a > b : a < b;
}

/* How much worse the chosen row is than the best one. */
static double regret_of(const ty_scored_row *const *rows, uint32_t count)
{
    const ty_scored_row *chosen = rows[0], *best = rows[0];
    bool more = rows[0]->more_is_better;

    for (uint32_t i = 1; i < count; i++) {
        if (is_better(rows[i]->predicted, chosen->predicted, more))
            chosen = rows[i];
        if (is_better(rows[i]->measured, best->measured, more))
            best = rows[i];
    }
    return more ? best->measured / chosen->measured - 1 : chosen->measured / best->measured - 1;
}

static void score_group(const ty_scored_row *const *rows, uint32_t count, ty_validation_score *sum)
{
    for (uint32_t i = 0; i < count; i++) {
        for (uint32_t j = i + 1; j < count; j++) {
            if (!(rows[i]->measured < rows[j]->measured) &&
                !(rows[i]->measured > rows[j]->measured))
                continue;
            sum->pair_order += points_of_pair(rows[i], rows[j]);
            sum->pairs++;
        }
    }
    if (count > 1) {
        sum->mean_regret += regret_of(rows, count);
        sum->choices++;
    }
}

static ty_status score_groups(const ty_scored_row *rows, uint32_t count, ty_validation_score *out,
                              ty_error *error)
{
    const ty_scored_row **sorted = ty_alloc(count, sizeof *sorted);

    if (sorted == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &rows[i];
    qsort(sorted, count, sizeof *sorted, by_group);
    out->pair_order = out->mean_regret = 0;
    for (uint32_t first = 0, end; first < count; first = end) {
        for (end = first + 1; end < count && sorted[end]->group == sorted[first]->group; end++)
            ;
        score_group(sorted + first, end - first, out);
    }
    out->pair_order = out->pairs > 0 ? out->pair_order / out->pairs : (double)NAN;
    out->mean_regret = out->choices > 0 ? out->mean_regret / out->choices : (double)NAN;
    ty_free(sorted);
    return TY_OK;
}

ty_status ty_validation_score_rows(const ty_scored_row *rows, uint32_t count,
                                   ty_validation_score *out, ty_error *error)
{
    ty_validation_score s = {.rows = count,
                             .mean_error = NAN,
                             .median_error = NAN,
                             .p90_error = NAN,
                             .pair_order = NAN,
                             .mean_regret = NAN};
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < count; i++)
        if (!(rows[i].measured > 0 && rows[i].predicted > 0) || isinf(rows[i].predicted))
            return ty_fail(error, TY_EINVAL,
                           "row %u: found measured %g and predicted %g, expected both > 0", i,
                           rows[i].measured, rows[i].predicted);
    if (count > 0) {
        TY_CHECK(score_errors(rows, count, &s, error), status, done);
        TY_CHECK(score_groups(rows, count, &s, error), status, done);
    }
    *out = s;
done:
    return status;
}
