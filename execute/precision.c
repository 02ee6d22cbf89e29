/* Precisions by name. */
#include "device.h"

#include <string.h>

static const char *const precision_names[TY_PRECISION_COUNT] = {
    [TY_PRECISION_FP32] = "fp32",
    [TY_PRECISION_TF32] = "tf32",
    [TY_PRECISION_BF16] = "bf16",
    [TY_PRECISION_FP16] = "fp16",
};

const char *ty_precision_name(ty_precision precision)
{
    return precision_names[precision];
}

ty_status ty_precision_find(const char *name, ty_precision *out, ty_error *error)
{
    for (ty_precision p = 0; p < TY_PRECISION_COUNT; p++) {
        if (name == NULL || strcmp(name, precision_names[p]) == 0) {
            *out = p;
            return TY_OK;
        }
    }
    return ty_fail(error, TY_EPARSE, "precision: found \"%s\", expected fp32, tf32, bf16 or fp16",
                   name);
}
