/* Seconds of a convolution on devices whose library chooses among algorithms (cuDNN, fp32):
 * implicit matrix products, or Winograd's transforms if they apply, whichever is faster. For device
 * types with a `convolution_efficiency`. */
#ifndef CONVOLUTION_COST_H
#define CONVOLUTION_COST_H

#include "ty_planner.h"

typedef struct convolution_times {
    double forward_s, backward_s; /* launches not included */
} convolution_times;

/**
 * Three passes: forward, the gradient of the input (none if backward has no more flop than forward:
 * no layer before needs it), the gradient of the weights. Each moves its two operands and its
 * result at least once.
 * @param samples of one pass; a fraction if ranks share the work
 */
convolution_times ty_convolution_cost(const ty_layer *layer, double samples,
                                      const ty_device_type *device);

#endif
