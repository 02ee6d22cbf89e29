/* Waiting for the slowest of many devices. */
#include "ty_stack.h"

#include <math.h>

/* Acklam's rational approximation, to 1e-9, of the inverse normal distribution for p >= 0.5. */
static double inverse_normal(double p)
{
    static const double a[] = {-39.69683028665376, 220.9460984245205,  -275.9285104469687,
                               138.3577518672690,  -30.66479806614716, 2.506628277459239};
    static const double b[] = {-54.47609879822406, 161.5858368580409, -155.6989798598866,
                               66.80131188771972, -13.28068155288572};
    static const double c[] = {-0.007784894002430293, -0.3223964580411365, -2.400758277161838,
                               -2.549732539343734,    4.374664141464968,   2.938163982698783};
    static const double d[] = {0.007784695709041462, 0.3224671290700398, 2.445134137142996,
                               3.754408661907416};
    const double centre = 0.97575; /* below it the first form holds */
    double q = p - 0.5, r = q * q, t = sqrt(-2 * log(1 - p));

    if (p <= centre)
        return (((((a[0] * r + a[1]) * r + a[2]) * r + a[3]) * r + a[4]) * r + a[5]) * q /
               (((((b[0] * r + b[1]) * r + b[2]) * r + b[3]) * r + b[4]) * r + 1);
    return -(((((c[0] * t + c[1]) * t + c[2]) * t + c[3]) * t + c[4]) * t + c[5]) /
           ((((d[0] * t + d[1]) * t + d[2]) * t + d[3]) * t + 1);
}

double ty_expected_largest(uint32_t n)
{
    return n > 1 ? inverse_normal((n - 0.375) / (n + 0.25)) : 0;
}

double ty_stack_waiting(const ty_stack *stack, uint32_t devices)
{
    const double all = 1 + stack->step_jitter * ty_expected_largest(devices);
    const double known =
        1 + stack->step_jitter * ty_expected_largest((uint32_t)stack->jitter_devices);

    return fmax(1, all / known);
}
