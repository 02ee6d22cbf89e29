/* Figures with an interval: positive, and more nearly log-normal than anything else. */
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

ty_interval ty_interval_sum(ty_interval a, ty_interval b)
{
    return (ty_interval){a.low + b.low, a.expected + b.expected, a.high + b.high};
}

ty_interval ty_interval_scale(ty_interval a, double factor)
{
    return (ty_interval){a.low * factor, a.expected * factor, a.high * factor};
}

void ty_interval_to_json(ty_interval interval, ty_json_writer *writer, const char *key)
{
    ty_json_open_flat(writer, key, '{');
    ty_json_put_number(writer, "low", interval.low);
    ty_json_put_number(writer, "expected", interval.expected);
    ty_json_put_number(writer, "high", interval.high);
    ty_json_close(writer, '}');
}
