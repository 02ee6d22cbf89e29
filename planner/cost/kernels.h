/**
 * @file kernels.h
 * Prices the work of layers, from kernels to seconds. No other code does. Internal to planner/; the
 * public functions are in ty_planner.h.
 *
 * A layer on one rank is a list of kernels: matrix products, attention, passes over memory. The
 * layer and the stack determine the kernels and their bytes; the device and the stack (ty_stack.h)
 * their time:
 *
 *     product     max(2 m n k / (peak share) (1 + e/m)(1 + e/n)(1 + e/k), bytes / bandwidth)
 *     attention   likewise, with the rate of fused attention if the stack has one
 *     pass        bytes / bandwidth
 *
 * plus the device's time between two kernels for each. Sources: Williams, Waterman, Patterson,
 * "Roofline", CACM 52(4), 2009; Narayanan et al., SC 2021, for the products of a transformer;
 * Korthikanti et al. 2022, section 4, for the passes between them; Dao et al. 2022 for attention.
 */
#ifndef TY_PLANNER_KERNELS_H
#define TY_PLANNER_KERNELS_H

#include "ty_planner.h"

/** A plan's stack; for plans made by hand without one, the data sheets: nothing is added to the
 * device's own figures. */
const ty_stack *ty_stack_of(const ty_plan *plan);

typedef enum ty_kernel_kind {
    TY_KERNEL_PRODUCT,
    TY_KERNEL_ATTENTION, /* fused: both products and the softmax */
    TY_KERNEL_PASS,
    TY_KERNEL_KIND_COUNT
} ty_kernel_kind;

/** Equal kernels that run one after another. */
typedef struct ty_kernel {
    ty_kernel_kind kind;
    bool is_of_scores; /* recomputed by selective recomputation: all of attention without weights */
    bool is_of_activation; /* the activation function inside an mlp or of experts */
    bool is_narrow;        /* of numbers in 8 or 4 bits */
    bool is_grouped;       /* of experts */
    double times;
    double m, n, k;     /* of one product; 0: sizes not known */
    double flop, bytes; /* of one; bytes of all operands */
    double launches;    /* of all together */
} ty_kernel;
#define TY_MOST_KERNELS 20

/**
 * Lists the kernels of one pass of a layer over a micro-batch on one rank of a stage replica.
 * @param plan its workload, stack, micro-batch size and TP, CP and EP sizes are read
 * @return the number of kernels
 */
uint32_t ty_layer_kernels(const ty_plan *plan, uint32_t layer, bool is_backward,
                          ty_kernel out[TY_MOST_KERNELS]);

/** Features per token that activation functions compute inside a layer: the hidden ones of an mlp,
 * of all experts that get the token. */
double ty_layer_hidden_features(const ty_layer *layer);

/** Whether a stack stores no scores of an attention layer. The worker computes in 16 bits on
 * accelerators only, and their attention is fused. */
bool ty_attention_is_fused(const ty_stack *stack, ty_precision precision, const ty_layer *layer);

/** Rates of a device with a stack; 0 if it cannot compute in that precision. */
typedef struct ty_rates {
    double product_flop_per_s;
    double narrow_flop_per_s;    /* of products in 8 or 4 bits */
    double attention_flop_per_s; /* forward; 0: as products */
    double attention_backward;   /* its backward's rate over that */
    double grouped;              /* rate of grouped products (experts) over single ones */
    double bytes_per_s, kernel_s;
    double edge;
} ty_rates;
ty_rates ty_rates_of(const ty_device_type *device, const ty_stack *stack, ty_precision precision);
double ty_kernels_seconds(const ty_kernel *kernels, uint32_t count, const ty_rates *rates,
                          bool is_backward);

/** Seconds of a layer's pass: on the device, and on the host that launches it. */
typedef struct ty_layer_pass {
    double device_s, host_s;
} ty_layer_pass;
typedef struct ty_layer_price {
    ty_layer_pass forward, backward;
    double scores_s; /* of forward: recomputed by selective recomputation */
    /* Of forward: activation functions inside an mlp or of experts. For a measured layer, their
     * share by kernels; 0 without a device. */
    double activation_s;
    ty_provenance provenance;
} ty_layer_price;
/**
 * Price of a layer on one rank: measured if the plan's profile has it (host time included), else
 * from its kernels.
 * @return TY_EINVAL without a device for a layer that was not measured; TY_EUNSUPPORTED for a
 * device without a rate in the workload's precision
 */
ty_status ty_layer_price_of(const ty_plan *plan, uint32_t layer, const ty_device_type *device,
                            ty_layer_price *out, ty_error *error) TY_MUST_CHECK;

/** Seconds to recompute a layer, by its price. */
double ty_layer_again_s(const ty_layer *layer, const ty_layer_price *price, ty_again again);

/**
 * Prices of consecutive layers of a plan. A host queues the kernels of a block of layers (the
 * layers between two cuts that one tensor crosses, attention and mlp together) ahead of the device.
 * If that takes longer than the device and the collectives, the block's layers share the
 * difference, so that `device_s` of any range add up.
 * @param talk_s     [2][layers of the workload] seconds of each layer's TP, CP and EP collectives,
 * forward and backward; NULL: none
 * @param takes_part [layers of the workload] in backward; a layer that does not has no backward
 * @param out        [layers of the workload] filled from first_layer on
 */
ty_status ty_layer_prices_of(const ty_plan *plan, uint32_t first_layer, uint32_t layer_count,
                             const ty_device_type *device, double *const talk_s[2],
                             const bool *takes_part, ty_layer_price *out,
                             ty_error *error) TY_MUST_CHECK;

#endif
