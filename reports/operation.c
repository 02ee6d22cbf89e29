/* Names of operations. */
#include "operation.h"

#include <stdio.h>

void ty_operation_name(const ty_plan *plan, ty_op op, uint32_t first_layer, uint32_t layer_count,
                       uint32_t bucket, char *out, size_t size)
{
    const char *verb = ty_op_name(op);

    if (op == TY_OP_COLLECTIVE)
        verb = ty_collective_name(ty_bucket_collective(&plan->buckets[bucket]));
    if (bucket != TY_NO_BUCKET && op != TY_OP_BACKWARD)
        snprintf(out, size, "%s bucket %u", verb, bucket);
    else if (layer_count == 1)
        snprintf(out, size, "%s %s", verb, plan->workload->layers[first_layer].name);
    else if (layer_count > 1)
        snprintf(out, size, "%s %s .. %s", verb, plan->workload->layers[first_layer].name,
                 plan->workload->layers[first_layer + layer_count - 1].name);
    else
        snprintf(out, size, "%s", verb);
}
