/* When training is over: a target that the test set has to reach. */
#include "run_parts.h"

#include "ty_run.h"

#include <float.h>
#include <math.h>
#include <stdio.h>

bool ty_target_is_set(const ty_target *target)
{
    return target->accuracy > 0 || target->loss > 0;
}

ty_status ty_target_parse(const char *text, ty_target *out, ty_error *error)
{
    double value;
    char after;

    /* Beyond range is infinite, which is refused. NOLINTBEGIN(cert-err34-c) */
    if (sscanf(text, "accuracy=%lf%c", &value, &after) == 1 && value > 0 && value <= 1)
        *out = (ty_target){.accuracy = value};
    else if (sscanf(text, "loss=%lf%c", &value, &after) == 1 && value > 0 && isfinite(value))
        *out = (ty_target){.loss = value};
    else /* NOLINTEND(cert-err34-c) */
        return ty_fail(error, TY_EINVAL,
                       "found '%s', expected accuracy=X with X above 0 and up to 1, or loss=X with "
                       "X above 0, both of the test set",
                       text);
    return TY_OK;
}

void ty_target_text(const ty_target *target, ty_text *text)
{
    if (target->accuracy > 0)
        ty_text_addf(text, "accuracy=%g", target->accuracy);
    else if (target->loss > 0)
        ty_text_addf(text, "loss=%g", target->loss);
    else
        ty_text_add(text, "none");
}

bool ty_target_is_met(const ty_target *target, double accuracy, double loss)
{
    return target->accuracy > 0 ? accuracy >= target->accuracy
                                : target->loss > 0 && loss <= target->loss;
}

ty_status ty_target_read(const ty_json *root, ty_target *target, ty_error *error)
{
    const ty_json *value;
    ty_status status = TY_OK;

    if (!ty_json_has(root, "until"))
        return TY_OK;
    TY_CHECK(ty_json_object(root, "until", &value, error), status, done);
    if (ty_json_has(value, "loss"))
        TY_CHECK(ty_json_number(value, "loss", DBL_MIN, DBL_MAX, &target->loss, error), status,
                 done);
    else
        TY_CHECK(ty_json_number(value, "accuracy", DBL_MIN, 1, &target->accuracy, error), status,
                 done);
    status = ty_json_end(value, error);
done:
    return status;
}

void ty_target_write(const ty_target *target, ty_json_writer *writer)
{
    if (!ty_target_is_set(target))
        return;
    ty_json_open_flat(writer, "until", '{');
    if (target->accuracy > 0)
        ty_json_put_number(writer, "accuracy", target->accuracy);
    else
        ty_json_put_number(writer, "loss", target->loss);
    ty_json_close(writer, '}');
}
