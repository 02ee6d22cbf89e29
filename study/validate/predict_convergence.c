/*
 * Samples to target at one batch size from those at others. Of a task's batch sizes, in order, the
 * first, the third and so on and the last one are fitted; those between are judged. A task of two
 * sizes has only fitted ones.
 */
#include "asked.h"
#include "predictors.h"
#include "ty_convergence.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Figures of one task at one batch size that are further apart are not in the same unit. */
#define LARGEST_SPREAD 5.0
#define LARGEST_BATCH 1073741824.0

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

/* The points that are fitted, as they are typed. */
static ty_status write_points(const ty_records *records, const ty_record *r, const double *batches,
                              uint32_t count, char **out, ty_error *error)
{
    ty_text text = {0};

    for (uint32_t i = 0; i < records->count; i++) {
        const ty_record *other = &records->items[i];
        char batch[32], figure[32], runs[32];
        if (!is_of_task(records, r, i) || !is_fitted_batch(batches, count, other->global_batch))
            continue;
        ty_format_number(other->global_batch, batch);
        ty_format_number(other->value, figure);
        ty_format_number(fmax(1, other->runs), runs);
        ty_text_addf(&text, "%s%s:%s%s*%s", text.length > 0 ? "," : "", batch, figure, r->unit,
                     runs);
    }
    return ty_text_take(&text, out, error);
}

static ty_status predict(const ty_records *records, const ty_record *r, const double *batches,
                         uint32_t count, ty_verdict *out, ty_error *error)
{
    const uint32_t batch = (uint32_t)r->global_batch;
    char *points = NULL, number[16];
    ty_reached reached = {0};
    ty_convergence law;
    ty_status status = TY_OK;

    TY_CHECK(write_points(records, r, batches, count, &points, error), status, cleanup);
    TY_CHECK(ty_reached_parse(points, &reached, error), status, cleanup);
    TY_CHECK(ty_reached_fit(&reached, &law, error), status, cleanup);
    snprintf(number, sizeof number, "%u", batch);
    TY_CHECK(ty_verdict_command((const char *const[]){"calibrate", "--reached", points,
                                                      "--global-batch", number, "--json", NULL},
                                &out->command, error),
             status, cleanup);
    out->is_predicted = true;
    out->is_fitted = is_fitted_batch(batches, count, r->global_batch);
    out->value = ty_convergence_samples(&law, batch).expected;
    out->answer = out->value;
    out->answer_at = "/to_target/expected";

cleanup:
    ty_reached_clear(&reached);
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

    if (!(r->global_batch >= 1 && r->global_batch <= LARGEST_BATCH && r->value > 0)) {
        snprintf(out->reason, sizeof out->reason, "batch not stated, or above %g", LARGEST_BATCH);
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
