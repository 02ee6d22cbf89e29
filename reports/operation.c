/* Names of operations. */
#include "operation.h"

#include <stdio.h>
#include <string.h>

/* A name that had to be cut must not end inside a character. */
static void trim_character(char *text)
{
    size_t length = strlen(text), start = length;

    while (start > 0 && ((unsigned char)text[start - 1] & 0xc0) == 0x80)
        start--;
    if (start > 0) {
        unsigned char lead = (unsigned char)text[start - 1];
        size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;
        if (length - (start - 1) < size)
            text[start - 1] = '\0';
    }
}

void ty_operation_name(const ty_plan *plan, ty_op op, uint32_t first_layer, uint32_t layer_count,
                       uint32_t bucket, uint32_t phase, char *out, size_t size)
{
    const char *verb = ty_op_name(op);

    if (op == TY_OP_COLLECTIVE)
        verb = ty_collective_name(ty_plan_exchange_kind(plan, &plan->buckets[bucket], phase));
    if (bucket != TY_NO_BUCKET && op != TY_OP_BACKWARD && op != TY_OP_BACKWARD_WEIGHT)
        snprintf(out, size, "%s bucket %u%s", verb, bucket, phase > 0 ? ", phase 1" : "");
    else if (layer_count == 1)
        snprintf(out, size, "%s %s", verb, plan->workload->layers[first_layer].name);
    else if (layer_count > 1)
        snprintf(out, size, "%s %s .. %s", verb, plan->workload->layers[first_layer].name,
                 plan->workload->layers[first_layer + layer_count - 1].name);
    else
        snprintf(out, size, "%s", verb);
    trim_character(out);
}
