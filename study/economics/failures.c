/* Checkpoint interval and goodput under failures. */
#include "ty_economics.h"

#include <math.h>

static ty_status check(const ty_failure_question *q, ty_error *error)
{
    if (!(q->device_mtbf_s > 0) || !(q->host_mtbf_s > 0))
        return ty_fail(
            error, TY_EINVAL,
            "found %g and %g s between failures of a device and a host, expected both > 0",
            q->device_mtbf_s, q->host_mtbf_s);
    if (!(q->checkpoint_write_s >= 0) || !(q->restart_s >= 0) || !(q->checkpoint_interval_s >= 0) ||
        isinf(q->checkpoint_write_s) || isinf(q->restart_s))
        return ty_fail(error, TY_EINVAL,
                       "found %g s to write a checkpoint, %g s to restart, %g s between "
                       "checkpoints, expected all >= 0",
                       q->checkpoint_write_s, q->restart_s, q->checkpoint_interval_s);
    return TY_OK;
}

/* Daly 2006, equation 37. */
static double best_interval_s(double write_s, double mtbf_s)
{
    double ratio = write_s / (2 * mtbf_s);

    if (isinf(mtbf_s))
        return HUGE_VAL;
    if (write_s >= 2 * mtbf_s)
        return mtbf_s;
    return sqrt(2 * write_s * mtbf_s) * (1 + sqrt(ratio) / 3 + ratio / 9) - write_s;
}

/* Goodput of an interval; equation 20 for one interval. */
static double goodput(double work_s, double write_s, double restart_s, double mtbf_s)
{
    if (isinf(work_s))
        return isinf(mtbf_s) ? 1 : 0;
    if (isinf(mtbf_s))
        return work_s / (work_s + write_s);
    return work_s / (mtbf_s * exp(restart_s / mtbf_s) * expm1((work_s + write_s) / mtbf_s));
}

ty_status ty_failures(const ty_failure_question *q, ty_failure_forecast *out, ty_error *error)
{
    ty_failure_forecast result;
    double rate, interval_s;

    TY_TRY(check(q, error));
    rate = q->devices / q->device_mtbf_s + q->hosts / q->host_mtbf_s;
    result.system_mtbf_s = rate > 0 ? 1 / rate : HUGE_VAL;
    interval_s = q->checkpoint_interval_s;
    if (!(interval_s > 0))
        interval_s = best_interval_s(q->checkpoint_write_s, result.system_mtbf_s);
    if (!(interval_s > 0)) /* checkpoints are free: they are written continuously */
        result.goodput =
            isinf(result.system_mtbf_s) ? 1 : exp(-q->restart_s / result.system_mtbf_s);
    else
        result.goodput =
            goodput(interval_s, q->checkpoint_write_s, q->restart_s, result.system_mtbf_s);
    result.checkpoint_interval_s = interval_s;
    *out = result;
    return TY_OK;
}
