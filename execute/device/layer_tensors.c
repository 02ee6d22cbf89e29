/* Options of layers that a backend does not support. */
#include "layer_tensors.h"

ty_attribute layer_unknown_option(const ty_layer *layer, uint64_t known)
{
    known |= LAYER_OPTION(TY_IS_FUSED) | LAYER_OPTION(TY_TOKEN_TYPES);
    for (ty_attribute a = 0; a < TY_ATTRIBUTE_COUNT; a++)
        if (ty_layer_attribute_use(layer->kind, a) == TY_ATTRIBUTE_OPTIONAL &&
            (known & LAYER_OPTION(a)) == 0 && layer->attributes[a] != 0)
            return a;
    return TY_ATTRIBUTE_COUNT;
}
