/* Whether samples come as fast as they are used. */
#include "ty_economics.h"

#include <math.h>

#define MAXIMUM_LEVELS (sizeof((ty_input_outlook *)0)->level_share / sizeof(double))

static ty_status check(const ty_input_question *q, ty_error *error)
{
    if (q->level_count == 0 || q->level_count > MAXIMUM_LEVELS || q->data_bytes == 0)
        return ty_fail(
            error, TY_EINVAL,
            "input: found %u storage levels for %llu bytes, expected 1 to %zu levels and "
            "data",
            q->level_count, (unsigned long long)q->data_bytes, MAXIMUM_LEVELS);
    if (!(q->sample_bytes > 0) || isinf(q->sample_bytes) || !(q->preprocess_samples_per_s > 0) ||
        !(q->preprocess_cores > 0) || isinf(q->preprocess_cores))
        return ty_fail(error, TY_EINVAL,
                       "input: found samples of %g bytes, %g samples/s a core and %g cores, "
                       "expected all > 0",
                       q->sample_bytes, q->preprocess_samples_per_s, q->preprocess_cores);
    for (uint32_t i = 0; i < q->level_count; i++)
        if (!(q->levels[i].bytes_per_s > 0))
            return ty_fail(error, TY_EINVAL, "input: %s: found %g bytes/s, expected a number > 0",
                           q->levels[i].name, q->levels[i].bytes_per_s);
    return TY_OK;
}

ty_status ty_input_rate(const ty_input_question *q, ty_input_outlook *out, ty_error *error)
{
    ty_input_outlook result = {.bound_by = "preprocessing"};
    uint64_t left;
    ty_status status = check(q, error);

    if (status != TY_OK)
        return status;
    result.samples_per_s = q->preprocess_samples_per_s * q->preprocess_cores;
    left = q->data_bytes;
    for (uint32_t i = 0; i < q->level_count; i++) {
        const ty_storage_level *level = &q->levels[i];
        uint64_t held = level->capacity_bytes < left ? level->capacity_bytes : left;
        double rate;
        result.level_share[i] = (double)held / (double)q->data_bytes;
        left -= held;
        if (held == 0)
            continue;
        rate = level->bytes_per_s / (q->sample_bytes * result.level_share[i]);
        if (rate < result.samples_per_s) {
            result.samples_per_s = rate;
            result.bound_by = level->name;
        }
    }
    if (left > 0)
        return ty_fail(error, TY_EINVAL, "input: %llu of %llu bytes have room on no storage level",
                       (unsigned long long)left, (unsigned long long)q->data_bytes);
    *out = result;
    return TY_OK;
}
