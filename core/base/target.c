/* The end of training: a target on the test set. */
#include "ty_json.h"

#include "ty_run.h"

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

    /* A number out of range is infinite, which is rejected. NOLINTBEGIN(cert-err34-c) */
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

static bool is_of_accuracy(const void *target)
{
    return !(((const ty_target *)target)->loss > 0);
}

static bool is_set(const void *target)
{
    return ty_target_is_set(target);
}

/* One of the two. */
static const json_field target_fields[] = {
    {"loss", JSON_NUMBER, JSON_AT(ty_target, loss), DBL_MIN, DBL_MAX, .is_optional = true},
    {"accuracy", JSON_NUMBER, JSON_AT(ty_target, accuracy), DBL_MIN, 1, .applies = is_of_accuracy},
};
static const json_record target_record = JSON_FLAT_RECORD(ty_target, target_fields);

static const json_field until_fields[] = {
    {"until", JSON_STRUCT, .of = &target_record, .is_optional = true, .is_said = is_set,
     .about = "accuracy or loss that the test set was to reach"},
};
const json_record ty_until_record = JSON_RECORD(ty_target, until_fields);
