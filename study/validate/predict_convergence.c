/*
 * Samples to target at one batch size from those at others. Of a task's batch sizes, in order, the
 * first, the third and so on and the last one are fitted; those between are judged. A task of two
 * sizes has only fitted ones.
 */
#include "predictors.h"
#include "ty_convergence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Figures of one task at one batch size that are further apart are not in the same unit. */
#define LARGEST_SPREAD 5.0

bool ty_takes_convergence(const ty_records *records, uint32_t index)
{
    const ty_record *r = &records->items[index];
    return strcmp(r->kind, "convergence") == 0 && strcmp(r->metric, "median_to_converge") == 0;
}

static bool is_of_task(const ty_records *records, const ty_record *r, uint32_t index)
{
    const ty_record *other = &records->items[index];
    return ty_takes_convergence(records, index) && strcmp(other->model, r->model) == 0 &&
           strcmp(other->unit, r->unit) == 0 && other->global_batch > 0 && other->value > 0;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The task's batch sizes, ascending, each once. */
static uint32_t batches_of(const ty_records *records, const ty_record *r, double *batches)
{
    uint32_t all = 0, count = 0;

    for (uint32_t i = 0; i < records->count; i++)
        if (is_of_task(records, r, i))
            batches[all++] = records->items[i].global_batch;
    qsort(batches, all, sizeof *batches, by_value);
    for (uint32_t i = 0; i < all; i++)
        if (count == 0 || batches[i] > batches[count - 1])
            batches[count++] = batches[i];
    return count;
}

static bool is_fitted_batch(const double *batches, uint32_t count, double batch)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(batches[i] < batch) && !(batches[i] > batch))
            return i % 2 == 0 || i + 1 == count;
    return false;
}

static bool is_of_one_unit(const ty_records *records, const ty_record *r)
{
    for (uint32_t i = 0; i < records->count; i++)
        for (uint32_t j = 0; j < i; j++)
            if (is_of_task(records, r, i) && is_of_task(records, r, j) &&
                !(records->items[i].global_batch < records->items[j].global_batch) &&
                !(records->items[i].global_batch > records->items[j].global_batch) &&
                fabs(log(records->items[i].value / records->items[j].value)) > log(LARGEST_SPREAD))
                return false;
    return true;
}

static ty_status predict(const ty_records *records, const ty_record *r, const double *batches,
                         uint32_t count, ty_verdict *out, ty_error *error)
{
    ty_convergence_point *points = ty_alloc(records->count, sizeof *points);
    uint32_t used = 0;
    double noise, minimum, rms;
    ty_status status;

    if (points == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t i = 0; i < records->count; i++) {
        const ty_record *other = &records->items[i];
        if (is_of_task(records, r, i) && is_fitted_batch(batches, count, other->global_batch))
            points[used++] = (ty_convergence_point){other->global_batch, other->value,
                                                    sqrt(fmax(1, other->runs))};
    }
    status = ty_convergence_fit(points, used, 0, &noise, &minimum, &rms, error);
    if (status == TY_OK) {
        out->is_predicted = true;
        out->is_fitted = is_fitted_batch(batches, count, r->global_batch);
        out->value = minimum * (1 + r->global_batch / noise);
    }
    ty_free(points);
    return status;
}

ty_status ty_predict_convergence(const ty_records *records, uint32_t index, ty_verdict *out,
                                 ty_error *error)
{
    const ty_record *r = &records->items[index];
    double *batches;
    uint32_t count;
    ty_status status = TY_OK;

    if (!(r->global_batch > 0 && r->value > 0)) {
        snprintf(out->reason, sizeof out->reason, "batch not stated");
        return TY_OK;
    }
    if ((batches = ty_alloc(records->count, sizeof *batches)) == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    count = batches_of(records, r, batches);
    if (count < 2)
        snprintf(out->reason, sizeof out->reason, "one batch size: no law to fit");
    else if (!is_of_one_unit(records, r))
        snprintf(out->reason, sizeof out->reason,
                 "unit in doubt: figures at one batch size differ by more than %g times",
                 LARGEST_SPREAD);
    else
        status = predict(records, r, batches, count, out, error);
    ty_free(batches);
    return status;
}
