/**
 * @file kernels.h
 * From a layer to kernels to seconds: the one place where the work of layers is priced. Internal to
 * planner/; what the module tells others of it is in ty_planner.h.
 *
 * A layer on one rank of a rank is a list of kernels: products of matrices, attention, passes over
 * memory. Which ones, and how much they move, is the layer's and the stack's; what they take is the
 * device's and the stack's (ty_stack.h):
 *
 *     product     max(2 m n k / (peak share) (1 + e/m)(1 + e/n)(1 + e/k), bytes / bandwidth)
 *     attention   likewise, with the rate of fused attention where the stack has one
 *     pass        bytes / bandwidth
 *
 * and the device's time between two kernels beside each. Sources: Williams, Waterman, Patterson,
 * "Roofline", CACM 52(4), 2009; Narayanan et al., SC 2021, for the products of a transformer;
 * Korthikanti et al. 2022, section 4, for what passes between them; Dao et al. 2022 for attention.
 */
#ifndef TY_PLANNER_KERNELS_H
#define TY_PLANNER_KERNELS_H

#include "ty_planner.h"

/** A plan's stack; of plans made by hand without one what data sheets say: nothing is added to the
 * device's own figures. */
const ty_stack *ty_stack_of(const ty_plan *plan);

typedef enum ty_kernel_kind {
    TY_KERNEL_PRODUCT,
    TY_KERNEL_ATTENTION, /* fused: both products and the softmax */
    TY_KERNEL_PASS,
    TY_KERNEL_KIND_COUNT
} ty_kernel_kind;

/** Kernels that are alike and run one after the other. */
typedef struct ty_kernel {
    ty_kernel_kind kind;
    bool
        is_of_scores; /* what selective recomputing makes again: all of attention without weights */
    bool is_of_activation; /* the activation function inside an mlp or of experts */
    bool is_narrow;        /* of numbers in 8 or 4 bits */
    bool is_grouped;       /* of experts */
    double times;
    double m, n, k;     /* of one product; 0: sizes that no edge is known of */
    double flop, bytes; /* of one; bytes of all operands */
    double launches;    /* of all together */
} ty_kernel;
#define TY_MOST_KERNELS 20

/**
 * The kernels of one pass of a layer over a micro-batch on one rank of a plan's rank.
 * @param plan of which workload, stack, micro-batch size and ranks are read
 * @return how many
 */
uint32_t ty_layer_kernels(const ty_plan *plan, uint32_t layer, bool is_backward,
                          ty_kernel out[TY_MOST_KERNELS]);

/** Features that activation functions make of a token inside a layer: the hidden ones of an mlp, of
 * all experts that see it. */
double ty_layer_hidden_features(const ty_layer *layer);

/** Whether a stack keeps no scores of an attention layer. Our worker computes in 16 bits on
 * accelerators only, whose attention is fused. */
bool ty_attention_is_fused(const ty_stack *stack, ty_precision precision, const ty_layer *layer);

/** What a device does in a second by a stack; 0 where it cannot compute in that precision. */
typedef struct ty_rates {
    double product_flop_per_s;
    double narrow_flop_per_s;    /* of products in 8 or 4 bits */
    double attention_flop_per_s; /* forward; 0: as products */
    double attention_backward;   /* its backward's rate over that */
    double grouped;              /* rate of the products of experts over single ones */
    double bytes_per_s, kernel_s;
    double edge;
} ty_rates;
ty_rates ty_rates_of(const ty_device_type *device, const ty_stack *stack, ty_precision precision);
double ty_kernels_seconds(const ty_kernel *kernels, uint32_t count, const ty_rates *rates,
                          bool is_backward);

/** What a pass of a layer takes: of the device, and of the host that launches it. */
typedef struct ty_layer_pass {
    double device_s, host_s;
} ty_layer_pass;
typedef struct ty_layer_price {
    ty_layer_pass forward, backward;
    double scores_s; /* of forward: what selective recomputing makes again */
    /* Of forward: activation functions inside an mlp or of experts. Of a layer that was measured
     * their part by kernels; 0 without a device. */
    double activation_s;
    ty_provenance provenance;
} ty_layer_price;
/**
 * A layer on one rank: measured where the plan's profile has it (the host's time is in it then),
 * else by its kernels.
 * @return TY_EINVAL without a device for what was not measured; TY_EUNSUPPORTED for a device
 *         without a rate in the workload's precision
 */
ty_status ty_layer_price_of(const ty_plan *plan, uint32_t layer, const ty_device_type *device,
                            ty_layer_price *out, ty_error *error) TY_MUST_CHECK;

/** Seconds of a layer that is made again, by its price. */
double ty_layer_again_s(const ty_layer *layer, const ty_layer_price *price, ty_again again);

/**
 * A run of layers of a plan, as they follow one another. A host queues the kernels of a block of
 * layers (what lies between two cuts that one tensor crosses, attention and mlp together) ahead of
 * the device: where that takes longer than the device and the collectives between ranks, the
 * difference is shared out among the block's layers, so that `device_s` of any range add up.
 * @param talk_s     [2][layers of the workload] seconds of each layer's collectives among ranks,
 *                   forward and backward; NULL: none
 * @param takes_part [layers of the workload] in backward; a layer that does not has no backward
 * @param out        [layers of the workload] filled from first_layer on
 */
ty_status ty_layer_prices_of(const ty_plan *plan, uint32_t first_layer, uint32_t layer_count,
                             const ty_device_type *device, double *const talk_s[2],
                             const bool *takes_part, ty_layer_price *out,
                             ty_error *error) TY_MUST_CHECK;

#endif
