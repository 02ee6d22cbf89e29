/* Precisions by name. */
#include "ty_workload.h"

#include <string.h>
#include <strings.h>

static const char *const names[TY_PRECISION_COUNT] = {"fp32", "tf32", "bf16", "fp16", "fp8", "fp4"};
static const char *const long_names[TY_PRECISION_COUNT] = {"float32", "tensorfloat32", "bfloat16",
                                                           "float16", "float8",        "float4"};

const char *ty_precision_name(ty_precision precision)
{
    return (unsigned)precision < TY_PRECISION_COUNT ? names[precision] : "unknown";
}

ty_status ty_precision_find(const char *name, ty_precision *out, ty_error *error)
{
    for (int p = 0; p < TY_PRECISION_COUNT; p++)
        if (strcasecmp(name, names[p]) == 0 || strcasecmp(name, long_names[p]) == 0) {
            *out = (ty_precision)p;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL, "precision: found '%.40s', expected " TY_PRECISION_NAMES,
                   name);
}

uint32_t ty_precision_bytes(ty_precision precision)
{
    return precision == TY_PRECISION_FP32 || precision == TY_PRECISION_TF32 ? 4 : 2;
}

double ty_precision_narrow_bytes(ty_precision precision)
{
    return precision == TY_PRECISION_FP8 ? 1 : precision == TY_PRECISION_FP4 ? 0.5 : 0;
}

bool ty_precision_is_narrow(ty_precision precision)
{
    return ty_precision_narrow_bytes(precision) > 0;
}
