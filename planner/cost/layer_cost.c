/* Work of a layer with weights, and the cost of one layer alone. */
#include "cost/kernels.h"

#include <math.h>

double ty_layer_weight_share(const ty_workload *workload, const ty_layer *layer)
{
    if (ty_layer_has_table(layer)) /* no layer comes before it */
        return 1;
    if (ty_layer_row_of(layer)->is_opaque)
        return layer->parameter_bytes > 0 ? 0.5 : 0; /* of the two products of backward */
    return layer->backward_flop > 0
               ? fmin(1, ty_layer_weight_flop(workload, layer) / layer->backward_flop)
               : 0;
}

ty_status ty_layer_cost(const ty_workload *workload, uint32_t layer, uint32_t samples,
                        const ty_device_type *device, const ty_profile *profile, double *forward_s,
                        double *backward_s, ty_provenance *provenance, ty_error *error)
{
    const ty_plan alone = {.workload = (ty_workload *)workload,
                           .profile = (ty_profile *)profile,
                           .micro_batch_size = samples};
    ty_layer_price price;

    TY_TRY(ty_layer_price_of(&alone, layer, device, &price, error));
    *forward_s = price.forward.device_s;
    *backward_s = price.backward.device_s;
    *provenance = price.provenance;
    return TY_OK;
}
