/* Which measurements differ in the number of devices alone. */
#include "series.h"

#include <math.h>
#include <string.h>

#define SECONDS_PER_MINUTE 60.0

double ty_benchmark_step_s(const ty_record *r)
{
    const double steps = ty_record_also_measured(r, "steps_to_target_derived");

    if (strcmp(r->kind, "time-to-train") != 0 || strcmp(r->unit, "min") != 0 || !(steps > 0))
        return 0;
    return r->value * SECONDS_PER_MINUTE / steps;
}

bool ty_is_benchmark_time(const ty_record *r)
{
    return ty_benchmark_step_s(r) > 0;
}

bool ty_runs_again(const ty_record *r, const ty_record *baseline)
{
    return ty_is_benchmark_time(r) && !(r->gpus > baseline->gpus) &&
           !(fabs(r->global_batch - baseline->global_batch) > 0.5);
}

double ty_batch_per_device(const ty_record *r)
{
    double micro = ty_record_number(r, "batch", "per_gpu_micro");

    if (r->batch_per_gpu > 0)
        return r->batch_per_gpu;
    if (micro > 0)
        return micro;
    return r->gpus > 0 ? r->global_batch / r->gpus : 0;
}

static bool is_same(const char *a, const char *b)
{
    return strcmp(a, b) == 0;
}

/* Equal, as far as both sources say. */
static bool is_same_or_not_stated(const char *a, const char *b)
{
    return a[0] == '\0' || b[0] == '\0' || strcmp(a, b) == 0;
}

/* Whether two records differ in the number of devices alone, or are of one benchmark. */
static bool is_of_series(const ty_record *a, const ty_record *b)
{
    if (ty_is_benchmark_time(a) && ty_is_benchmark_time(b))
        return is_same(a->model, b->model) && is_same(a->gpu, b->gpu);
    return is_same(a->model, b->model) && is_same(a->dtype, b->dtype) && is_same(a->gpu, b->gpu) &&
           is_same_or_not_stated(a->node, b->node) && is_same_or_not_stated(a->update, b->update) &&
           is_same(a->input_data, b->input_data) && is_same(a->software, b->software) &&
           is_same(a->framework, b->framework) && is_same(a->source_table, b->source_table) &&
           is_same(a->metric, b->metric) &&
           !(fabs(ty_batch_per_device(a) - ty_batch_per_device(b)) > 0.5);
}

uint32_t ty_baseline_of(const ty_records *records, uint32_t index)
{
    uint32_t best = index;

    for (uint32_t i = 0; i < records->count; i++) {
        const ty_record *r = &records->items[i];
        if (!(r->gpus >= 1 && r->value > 0) || !is_of_series(r, &records->items[index]))
            continue;
        if (r->gpus < records->items[best].gpus ||
            (!(r->gpus > records->items[best].gpus) && i < best))
            best = i;
    }
    return best;
}
