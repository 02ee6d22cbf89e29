/* What lanes.c asks of tensor_parallel.c. Internal to core/. */
#ifndef TY_LANES_H
#define TY_LANES_H

#include "ty_plan.h"

/** Of ty_layer_inner_collectives, those among tensor lanes. */
uint32_t ty_tensor_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                     ty_inner_collective *out);

#endif
