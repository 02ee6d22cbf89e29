/* steps(B) = S (1 + N/B): evaluating it, fitting it to points, measuring N. */
#include "ty_convergence.h"

#include <math.h>

/* The search for N extends this far beyond the tried batches, where the law is constant or linear
 * to 1 %. */
#define NOISE_RANGE 100.0
#define GOLDEN_SECTION 0.6180339887498949
#define GOLDEN_STEPS 80 /* 0.618^80: below rounding */

double ty_convergence_steps(const ty_convergence *task, double batch)
{
    return task->minimum_samples * (1 / batch + 1 / task->noise_scale_samples) *
           ty_temperature_multiplier(task, batch).expected;
}

/* exp(c change), where c is the cost of the calibration's temperature. */
static ty_interval cost_of(const ty_convergence *task, double change)
{
    const ty_interval *cost = &task->temperature_cost;

    if (!task->has_temperature_cost)
        return ty_interval_exact(1);
    return (ty_interval){exp(change * (change > 0 ? cost->low : cost->high)),
                         exp(change * cost->expected),
                         exp(change * (change > 0 ? cost->high : cost->low))};
}

/* Temperature at the rule's rate, over the calibration's. */
static double temperature(const ty_convergence *task, double batch)
{
    return (task->batch + task->noise_scale_samples) / (batch + task->noise_scale_samples);
}

ty_interval ty_temperature_multiplier(const ty_convergence *task, double batch)
{
    return cost_of(task, temperature(task, batch) - 1);
}

ty_interval ty_rate_multiplier(const ty_convergence *task, double batch, double share)
{
    return ty_interval_scale(cost_of(task, temperature(task, batch) * (share - 1)), 1 / share);
}

static double doublings_outside(const ty_convergence *task, double batch)
{
    if (batch > task->largest_batch)
        return log2(batch / task->largest_batch);
    return batch < task->smallest_batch ? log2(task->smallest_batch / batch) : 0;
}

ty_interval ty_convergence_samples(const ty_convergence *task, double batch)
{
    double deviation =
        task->log_deviation + TY_EXTRAPOLATION_DEVIATION * doublings_outside(task, batch);

    double samples = task->minimum_samples * (1 + batch / task->noise_scale_samples);

    return ty_interval_product(ty_interval_of_deviation(samples, deviation),
                               ty_temperature_multiplier(task, batch));
}

/* ---- Fitting ----------------------------------------------------------------------------- */

/* The best log E for a log N, and the weighted mean square of the residuals. */
static double residual(const ty_convergence_point *points, uint32_t count, double log_noise,
                       double *log_minimum)
{
    double noise = exp(log_noise), weights = 0, sum = 0, squares = 0;

    for (uint32_t i = 0; i < count; i++) {
        sum += points[i].weight * (log(points[i].samples) - log1p(points[i].batch / noise));
        weights += points[i].weight;
    }
    *log_minimum = sum / weights;
    for (uint32_t i = 0; i < count; i++) {
        double left = log(points[i].samples) - log1p(points[i].batch / noise) - *log_minimum;
        squares += points[i].weight * left * left;
    }
    return squares / weights;
}

/* Source: Kiefer 1953; the mean square has one minimum in log N, since the law is convex. */
static double golden_section(const ty_convergence_point *points, uint32_t count, double low,
                             double high)
{
    double ignored, width = high - low;
    double a = high - GOLDEN_SECTION * width, b = low + GOLDEN_SECTION * width;
    double at_a = residual(points, count, a, &ignored), at_b = residual(points, count, b, &ignored);

    for (int i = 0; i < GOLDEN_STEPS; i++) {
        if (at_a <= at_b) {
            high = b;
            b = a;
            at_b = at_a;
            a = high - GOLDEN_SECTION * (high - low);
            at_a = residual(points, count, a, &ignored);
        } else {
            low = a;
            a = b;
            at_a = at_b;
            b = low + GOLDEN_SECTION * (high - low);
            at_b = residual(points, count, b, &ignored);
        }
    }
    return (low + high) / 2;
}

static ty_status check_points(const ty_convergence_point *points, uint32_t count, double *smallest,
                              double *largest, ty_error *error)
{
    if (count == 0)
        return ty_fail(error, TY_EINVAL, "found no points, expected at least one");
    *smallest = *largest = points[0].batch;
    for (uint32_t i = 0; i < count; i++) {
        const ty_convergence_point *p = &points[i];
        if (!(p->batch > 0 && p->samples > 0 && p->weight > 0) || isinf(p->batch) ||
            isinf(p->samples) || isinf(p->weight))
            return ty_fail(error, TY_EINVAL,
                           "point %u: found batch %g, samples %g, weight %g, expected all > 0", i,
                           p->batch, p->samples, p->weight);
        *smallest = fmin(*smallest, p->batch);
        *largest = fmax(*largest, p->batch);
    }
    return TY_OK;
}

ty_status ty_convergence_fit(const ty_convergence_point *points, uint32_t count,
                             double assumed_noise, double *noise_scale_samples,
                             double *minimum_samples, double *rms_log_error, ty_error *error)
{
    double smallest, largest, log_noise, log_minimum, mean_square;

    TY_TRY(check_points(points, count, &smallest, &largest, error));
    if (smallest < largest)
        log_noise =
            golden_section(points, count, log(smallest / NOISE_RANGE), log(largest * NOISE_RANGE));
    else if (assumed_noise > 0 && !isinf(assumed_noise))
        log_noise = log(assumed_noise);
    else
        return ty_fail(error, TY_EINVAL,
                       "all points have batch %g: expected two batch sizes, or a noise scale",
                       smallest);
    mean_square = residual(points, count, log_noise, &log_minimum);
    *noise_scale_samples = exp(log_noise);
    *minimum_samples = exp(log_minimum);
    *rms_log_error = sqrt(mean_square);
    return TY_OK;
}
