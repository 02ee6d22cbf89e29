/* Estimates from short runs: the factor of a change on steps, and the growth of noise. */
#include "ty_convergence.h"

#include <math.h>

enum { LEAST_STEPS = 64, PARTS = 8 };
/* Single noise estimates scatter by about 100 %. The mean of this many varies less than seeds
 * do. */
enum { ENOUGH_ESTIMATES = 8, PART_ESTIMATES = 16 };

static double mean(const double *values, uint32_t from, uint32_t to)
{
    double sum = 0;

    for (uint32_t i = from; i < to; i++)
        sum += values[i];
    return sum / (to - from);
}

/* Mean of log(changed / losses) over the parts of the last half, and its standard error. */
static double log_ratio(const double *losses, const double *changed, uint32_t count, double *error)
{
    const uint32_t first = count / 2;
    double sum = 0, squares = 0;

    for (uint32_t p = 0; p < PARTS; p++) {
        const uint32_t from = first + (count - first) * p / PARTS;
        const uint32_t to = first + (count - first) * (p + 1) / PARTS;
        double ratio = log(mean(changed, from, to) / mean(losses, from, to));
        sum += ratio;
        squares += ratio * ratio;
    }
    sum /= PARTS;
    *error = sqrt(fmax(0, squares / PARTS - sum * sum) / (PARTS - 1));
    return sum;
}

/* Standard error of the log of the mean of losses from..to: from the scatter of its parts' logs
 * around a line in the log of the step. */
static double mean_error(const double *losses, uint32_t from, uint32_t to)
{
    double x[PARTS], y[PARTS], x_mean = 0, y_mean = 0, xx = 0, xy = 0, left = 0;

    for (uint32_t p = 0; p < PARTS; p++) {
        const uint32_t first = from + (to - from) * p / PARTS;
        const uint32_t last = from + (to - from) * (p + 1) / PARTS;
        x[p] = log((first + last) / 2.0);
        y[p] = log(mean(losses, first, last));
        x_mean += x[p] / PARTS;
        y_mean += y[p] / PARTS;
    }
    for (uint32_t p = 0; p < PARTS; p++) {
        xx += (x[p] - x_mean) * (x[p] - x_mean);
        xy += (x[p] - x_mean) * (y[p] - y_mean);
    }
    for (uint32_t p = 0; p < PARTS; p++)
        left += pow(y[p] - y_mean - xy / xx * (x[p] - x_mean), 2);
    return sqrt(left / (PARTS - 2) / PARTS);
}

static ty_status check_losses(const double *losses, uint32_t count, ty_error *error)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(losses[i] > 0) || isinf(losses[i]))
            return ty_fail(error, TY_EINVAL, "found a loss of %g in step %u, expected a number > 0",
                           losses[i], i);
    return TY_OK;
}

ty_status ty_loss_stretch(const double *losses, const double *changed, uint32_t count,
                          ty_interval *factor, ty_error *error)
{
    double ratio, scatter, doubling, doubling_error, power;

    if (count < LEAST_STEPS)
        return ty_fail(error, TY_EINVAL, "found losses of %u steps, expected at least %d", count,
                       LEAST_STEPS);
    TY_TRY(check_losses(losses, count, error));
    TY_TRY(check_losses(changed, count, error));
    doubling = log(mean(losses, count / 4, count / 2) / mean(losses, count / 2, count));
    if (!(doubling > 0))
        return ty_fail(error, TY_EINFEASIBLE,
                       "the loss does not fall between steps %u and %u: more steps are needed",
                       count / 4, count);
    ratio = log_ratio(losses, changed, count, &scatter);
    doubling_error =
        hypot(mean_error(losses, count / 4, count / 2), mean_error(losses, count / 2, count));
    power = ratio / doubling;
    *factor = ty_interval_of_deviation(exp2(power),
                                       hypot(scatter, power * doubling_error) / doubling * log(2));
    return TY_OK;
}

ty_interval ty_lag_of_stretch(ty_interval factor, double count)
{
    const double middle = TY_STRETCH_MIDDLE * count;

    return (ty_interval){fmax(0, middle * (1 - 1 / factor.low)),
                         fmax(0, middle * (1 - 1 / factor.expected)),
                         fmax(0, middle * (1 - 1 / factor.high))};
}

ty_interval ty_temperature_cost_of_stretch(ty_interval factor, double share)
{
    const double whole = 1 / (1 - share);

    return (ty_interval){fmax(0, -whole * log(factor.high)), fmax(0, -whole * log(factor.expected)),
                         fmax(0, -whole * log(factor.low))};
}

static double ratio_of_sums(const ty_noise_sample *samples, uint32_t from, uint32_t to)
{
    double variance = 0, square = 0;

    for (uint32_t i = from; i < to; i++) {
        variance += samples[i].variance;
        square += samples[i].square;
    }
    return square > 0 && variance > 0 ? variance / square : (double)NAN;
}

void ty_noise_parts(const ty_noise_sample *samples, uint32_t count, uint32_t parts, double *scales)
{
    for (uint32_t p = 0; p < parts; p++)
        scales[p] = ratio_of_sums(samples, (uint32_t)((uint64_t)count * p / parts),
                                  (uint32_t)((uint64_t)count * (p + 1) / parts));
}

/* Mean of the valid scales; NaN if there is none. */
static double mean_scale(const double *scales, uint32_t from, uint32_t to)
{
    double sum = 0;
    uint32_t known = 0;

    for (uint32_t p = from; p < to; p++)
        if (!isnan(scales[p])) {
            sum += scales[p];
            known++;
        }
    return known > 0 ? sum / known : (double)NAN;
}

ty_status ty_noise_over_run(const ty_noise_sample *samples, uint32_t count, double *noise_scale,
                            double *growth, double *log_deviation, ty_error *error)
{
    double scales[TY_NOISE_PARTS], mean_of_all, first, last;
    uint32_t parts = count / PART_ESTIMATES;

    if (count == 0)
        return ty_fail(error, TY_EINFEASIBLE,
                       "found no estimate of the gradient noise: run more steps, on two replicas "
                       "or more");
    parts = parts < 1 ? 1 : parts > TY_NOISE_PARTS ? TY_NOISE_PARTS : parts;
    ty_noise_parts(samples, count, parts, scales);
    mean_of_all = mean_scale(scales, 0, parts);
    first = mean_scale(scales, 0, parts / 2);
    last = mean_scale(scales, parts - parts / 2, parts);
    if (isnan(mean_of_all))
        return ty_fail(error, TY_EINFEASIBLE,
                       "%u estimates leave no signal or no noise: average over more steps", count);
    *noise_scale = mean_of_all;
    *growth = last > first ? pow(last / first, 2) : 1; /* NaN: not measurable */
    *log_deviation = count < ENOUGH_ESTIMATES ? sqrt(1.0 / count - 1.0 / ENOUGH_ESTIMATES) : 0;
    return TY_OK;
}

double ty_run_deviation(const double *steps, uint32_t count, double *mean_log)
{
    const double prior = TY_PRIOR_RUNS * TY_PRIOR_RUN_DEVIATION * TY_PRIOR_RUN_DEVIATION;
    double sum = 0, squares = 0;

    for (uint32_t i = 0; i < count; i++)
        sum += log(steps[i]) / count;
    for (uint32_t i = 0; i < count; i++)
        squares += pow(log(steps[i]) - sum, 2);
    *mean_log = sum;
    return sqrt((prior + squares) / (TY_PRIOR_RUNS + count - 1) * (1 + 1.0 / count));
}
