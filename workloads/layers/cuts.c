/* Finds the cuts between pipeline stages in one pass from the loss to the batch. At a cut, every
 * path from the batch to the loss passes one layer. As layers are in topological order, that is the
 * one before the cut, and no layer after the cut may read an older one. (igraph's dominator tree is
 * equivalent, but igraph 0.10 aborts when out of memory.)
 */
#include "ty_workloads.h"

/* The oldest input of any layer from `layer` on, plus one; 0: the batch. */
static uint32_t oldest_input(const ty_layer *layer, uint32_t oldest)
{
    if (layer->input_count == 0)
        return 0;
    for (uint32_t i = 0; i < layer->input_count; i++)
        if (layer->inputs[i] + 1 < oldest)
            oldest = layer->inputs[i] + 1;
    return oldest;
}

ty_status ty_workload_cuts(const ty_workload *workload, uint32_t **cuts, uint32_t *count,
                           ty_error *error)
{
    uint32_t layers = workload->layer_count, oldest = layers, n = 0, *list;

    if (layers == 0)
        return ty_fail(error, TY_EINVAL, "%s: has no layers", workload->name);
    list = ty_alloc(layers, sizeof *list);
    TY_TRY(ty_check_memory(list != NULL, error));
    for (uint32_t position = layers - 1; position > 0; position--) {
        oldest = oldest_input(&workload->layers[position], oldest);
        if (oldest == position) /* only the layer before it */
            list[n++] = position;
    }
    for (uint32_t i = 0; i < n / 2; i++) { /* ascending */
        uint32_t swapped = list[i];
        list[i] = list[n - 1 - i];
        list[n - 1 - i] = swapped;
    }
    *cuts = list;
    *count = n;
    return TY_OK;
}
