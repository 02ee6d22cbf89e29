/* Cost of stale and compressed gradients in steps. */
#include "convergence_catalogue.h"

#include <math.h>
#include <string.h>

static double half_depth(double n)
{
    return n / 2;
}

static double mean_over_stages(double n)
{
    return (n - 1) / 2;
}

static double last_stage(double n)
{
    return n - 1;
}

static double all(double n)
{
    return n;
}

static double one(double n)
{
    (void)n;
    return 1;
}

static double zero(double n)
{
    (void)n;
    return 0;
}

static double (*const delays[TY_STALENESS_KIND_COUNT])(double depth) = {
    [TY_STALENESS_NONE] = zero,
    [TY_STALENESS_WEIGHT_STASHING] = mean_over_stages,
    [TY_STALENESS_VERTICAL_SYNC] = last_stage,
    [TY_STALENESS_DOUBLE_BUFFERED] = one,
    [TY_STALENESS_ASYNCHRONOUS] = last_stage,
    [TY_STALENESS_BOUNDED] = half_depth,
    [TY_STALENESS_DELAYED] = all,
};

double ty_staleness_delay(ty_staleness_kind kind, uint32_t depth)
{
    return (size_t)kind < TY_STALENESS_KIND_COUNT && depth > 0 ? delays[kind](depth) : 0;
}

static ty_status delay_coefficient(ty_interval *out, ty_error *error)
{
    ty_convergence_catalogue c = {0};
    ty_status status = TY_OK;

    status = ty_convergence_catalogue_open(&c, error);
    if (status == TY_OK)
        status = ty_interval_read(c.staleness, 0, out, error);
    ty_convergence_catalogue_close(&c);
    return status;
}

static ty_status check_batch(double batch, ty_error *error)
{
    if (!(batch > 0) || isinf(batch))
        return ty_fail(error, TY_EINVAL, "found batch %g, expected a number > 0", batch);
    return TY_OK;
}

/* 1 + c x for each bound of c. */
static ty_interval one_plus(ty_interval c, double x)
{
    return (ty_interval){1 + c.low * x, 1 + c.expected * x, 1 + c.high * x};
}

ty_status ty_staleness_multiplier(const ty_convergence *task, double batch, double delay,
                                  ty_interval *out, ty_error *error)
{
    ty_interval c;
    ty_status status = TY_OK;

    TY_TRY(check_batch(batch, error));
    if (!(delay >= 0) || isinf(delay))
        return ty_fail(error, TY_EINVAL, "found a delay of %g updates, expected a number >= 0",
                       delay);
    if (task->has_staleness) {
        *out = one_plus(task->staleness, delay / ty_convergence_steps(task, batch));
        return TY_OK;
    }
    status = delay_coefficient(&c, error);
    if (status == TY_OK)
        *out = one_plus(c, delay / (1 + task->noise_scale_samples / batch));
    return status;
}

/* ---- Compression ------------------------------------------------------------------------- */

static ty_status find_compressor(const ty_convergence_catalogue *c, const char *name,
                                 const ty_json **out, ty_error *error)
{
    const char *names[64];
    const char *close;
    size_t count = ty_json_size(c->compressors);

    if (count > sizeof names / sizeof names[0])
        count = sizeof names / sizeof names[0];
    for (size_t i = 0; i < count; i++) {
        const ty_json *row = ty_json_at(c->compressors, i);
        ty_status status = ty_json_string(row, "name", &names[i], error);
        if (status != TY_OK)
            return status;
        if (strcmp(names[i], name) == 0) {
            *out = row;
            return TY_OK;
        }
    }
    close = ty_suggest(name, names, count, sizeof names[0]);
    return ty_fail(error, TY_EINVAL, "no known compressor is called '%s'%s%s", name,
                   close != NULL ? "; did you mean " : "", close != NULL ? close : "");
}

/* From measured figures of an unbiased compressor, or of one with error feedback. */
static ty_status measured_multiplier(const ty_convergence *task, double batch,
                                     const ty_compressor_effect *effect, ty_interval *out,
                                     ty_error *error)
{
    double noise = task->noise_scale_samples / batch, workers = effect->workers;
    ty_interval c;
    ty_status status;

    if (effect->workers == 0 || isinf(effect->omega) || effect->omega < 0 || effect->delta <= 0 ||
        effect->delta > 1)
        return ty_fail(
            error, TY_EINVAL,
            "found omega %g, delta %g of %u workers, expected omega >= 0, 0 < delta <= 1 "
            "and at least one worker",
            effect->omega, effect->delta, effect->workers);
    if (!isnan(effect->omega)) {
        *out = ty_interval_exact((1 + effect->omega / workers + (1 + effect->omega) * noise) /
                                 (1 + noise));
        return TY_OK;
    }
    if (isnan(effect->delta))
        return ty_fail(error, TY_EINVAL, "found neither omega nor delta, expected one of them");
    status = delay_coefficient(&c, error);
    if (status == TY_OK)
        *out = one_plus(c, (1 / effect->delta - 1) / (1 + noise));
    return status;
}

ty_status ty_compression_multiplier(const ty_convergence *task, double batch,
                                    const char *compressor, const ty_compressor_effect *effect,
                                    ty_interval *out, ty_error *error)
{
    ty_convergence_catalogue c = {0};
    const ty_json *row = NULL;
    ty_status status = TY_OK;

    TY_CHECK(check_batch(batch, error), status, cleanup);
    TY_CHECK(ty_convergence_catalogue_open(&c, error), status, cleanup);
    TY_CHECK(find_compressor(&c, compressor, &row, error), status, cleanup);
    status = effect != NULL ? measured_multiplier(task, batch, effect, out, error)
                            : ty_interval_read(row, 1, out, error);

cleanup:
    ty_convergence_catalogue_close(&c);
    return status;
}

ty_status ty_compression_cost(const ty_convergence *task, double batch,
                              const ty_compression *compression, ty_interval *out, ty_error *error)
{
    TY_TRY(check_batch(batch, error));
    for (uint32_t i = 0; i < task->compressor_count; i++) {
        const ty_compressor_calibration *known = &task->compressors[i];
        if (!ty_compression_equals(&known->compression, compression))
            continue;
        *out = ty_compression_has_feedback(compression)
                   ? one_plus(known->lag, 1 / ty_convergence_steps(task, batch))
                   : known->factor;
        return TY_OK;
    }
    return ty_compression_multiplier(task, batch, ty_compression_name(compression->kind), NULL, out,
                                     error);
}
