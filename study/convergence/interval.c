/* Positive figures with an interval, treated as log-normal. */
#include "ty_convergence.h"

#include <math.h>

ty_interval ty_interval_exact(double value)
{
    return (ty_interval){value, value, value};
}

ty_interval ty_interval_of_deviation(double expected, double log_deviation)
{
    double factor = exp(TY_INTERVAL_DEVIATIONS * log_deviation);
    return (ty_interval){expected / factor, expected, expected * factor};
}

ty_interval ty_interval_product(ty_interval a, ty_interval b)
{
    double expected = a.expected * b.expected;
    double below, above;

    if (!(expected > 0))
        return ty_interval_exact(0);
    below = hypot(log(a.expected / a.low), log(b.expected / b.low));
    above = hypot(log(a.high / a.expected), log(b.high / b.expected));
    return (ty_interval){expected * exp(-below), expected, expected * exp(above)};
}

ty_interval ty_interval_scale(ty_interval a, double factor)
{
    return (ty_interval){a.low * factor, a.expected * factor, a.high * factor};
}

ty_interval ty_interval_mean(const ty_interval *estimates, uint32_t count)
{
    double mean = 0, own = 0, scatter = 0;

    for (uint32_t i = 0; i < count; i++) {
        const double deviation =
            log(estimates[i].high / estimates[i].low) / (2 * TY_INTERVAL_DEVIATIONS);
        mean += log(estimates[i].expected) / count;
        own += deviation * deviation;
    }
    for (uint32_t i = 0; i < count; i++)
        scatter += pow(log(estimates[i].expected) - mean, 2);
    if (count > 1)
        scatter *= (double)count / (count - 1);
    return ty_interval_of_deviation(exp(mean), sqrt(fmax(own, scatter)) / count);
}

void ty_interval_to_json(ty_interval interval, ty_json_writer *writer, const char *key)
{
    ty_json_open_flat(writer, key, '{');
    ty_json_put_number(writer, "low", interval.low);
    ty_json_put_number(writer, "expected", interval.expected);
    ty_json_put_number(writer, "high", interval.high);
    ty_json_close(writer, '}');
}
