/* Chooses the batch and its learning rate. */
#include "convergence_catalogue.h"

#include <math.h>

const char *const ty_scaling_rule_names[TY_SCALING_RULE_COUNT] = {
    [TY_SCALING_LINEAR] = "linear",
    [TY_SCALING_SQRT] = "sqrt",
};

const char *ty_scaling_rule_name(ty_scaling_rule rule)
{
    return (size_t)rule < TY_SCALING_RULE_COUNT ? ty_scaling_rule_names[rule] : "unknown";
}

ty_status ty_learning_rate(const ty_convergence *task, double base_rate, double base_batch,
                           double batch, double *rate, bool *is_beyond_limit, ty_error *error)
{
    double factor;

    if (!(base_rate > 0 && base_batch > 0 && batch > 0) || isinf(base_rate) || isinf(base_batch) ||
        isinf(batch))
        return ty_fail(error, TY_EINVAL,
                       "found rate %g at batch %g and new batch %g, expected all > 0", base_rate,
                       base_batch, batch);
    factor = (1 + task->noise_scale_samples / base_batch) / (1 + task->noise_scale_samples / batch);
    if (task->scaling_rule == TY_SCALING_SQRT)
        factor = sqrt(factor);
    *rate = base_rate * factor;
    *is_beyond_limit = task->scaling_limit_batch > 0 && batch > task->scaling_limit_batch;
    return TY_OK;
}

static ty_status check_options(const ty_batch_option *options, uint32_t count, ty_error *error)
{
    if (count == 0)
        return ty_fail(error, TY_EINVAL, "found no batch to choose from, expected at least one");
    for (uint32_t i = 0; i < count; i++)
        if (!(options[i].batch > 0 && options[i].step_time_s > 0) || isinf(options[i].batch) ||
            isinf(options[i].step_time_s))
            return ty_fail(error, TY_EINVAL,
                           "batch option %u: found batch %g and step time %g s, expected both > 0",
                           i, options[i].batch, options[i].step_time_s);
    return TY_OK;
}

/* The option with the least time for `steps` exact steps at a noise scale. */
static uint32_t best_option(const ty_convergence *task, const ty_batch_option *options,
                            uint32_t count, double steps, double noise, double *time_s)
{
    uint32_t best = 0;

    *time_s = HUGE_VAL;
    for (uint32_t i = 0; i < count; i++) {
        double t = steps * (1 + noise / options[i].batch) * options[i].step_time_s *
                   ty_temperature_multiplier(task, options[i].batch).expected;
        if (t < *time_s || (t <= *time_s && options[i].batch < options[best].batch)) {
            best = i;
            *time_s = t;
        }
    }
    return best;
}

ty_status ty_best_batch(const ty_convergence *task, const ty_batch_option *options, uint32_t count,
                        uint32_t *best, double *training_time_s, ty_error *error)
{
    ty_status status = check_options(options, count, error);

    if (status == TY_OK)
        *best = best_option(task, options, count, task->minimum_samples / task->noise_scale_samples,
                            task->noise_scale_samples, training_time_s);
    return status;
}

ty_status ty_batch_schedule(const ty_convergence *task, const ty_batch_option *options,
                            uint32_t count, uint32_t phases, uint32_t *chosen,
                            double *training_time_s, ty_error *error)
{
    double steps = task->minimum_samples / task->noise_scale_samples / phases;
    double ratio, mean = 0, total_s = 0;

    TY_TRY(check_options(options, count, error));
    if (phases == 0)
        return ty_fail(error, TY_EINVAL, "found 0 phases, expected at least 1");
    ratio = phases > 1 ? pow(task->noise_growth, 1.0 / (phases - 1)) : 1;
    for (uint32_t p = 0; p < phases; p++)
        mean += pow(ratio, p) / phases;
    for (uint32_t p = 0; p < phases; p++) {
        double time_s;
        chosen[p] = best_option(task, options, count, steps,
                                task->noise_scale_samples * pow(ratio, p) / mean, &time_s);
        total_s += time_s;
    }
    *training_time_s = total_s;
    return TY_OK;
}
