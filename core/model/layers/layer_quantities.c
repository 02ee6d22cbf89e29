/* Flop, bytes and kernel counts of a layer, from the formulas of its kind.
 *
 * Flop. Those of matrix products and convolutions, as published figures and MFU count them; a
 * multiply-add is 2. Backward repeats every product once for the gradient of either factor, hence
 * twice forward; a layer whose input needs no gradient saves the products with its input.
 * Elementwise work is bound by memory everywhere, so it is in the traffic. Source: Narayanan et
 * al., "Efficient large-scale language model training on GPU clusters using Megatron-LM", SC 2021,
 * appendix.
 *
 * Stash. An executor stores all outputs of a micro-batch until its backward pass is done; the
 * formula `stashed` adds what a kind stores in addition. A view is its input under another shape:
 * no memory, no kernel, no traffic.
 *
 * Traffic. Activations that forward reads and writes with one kernel per product and per fused
 * elementwise group, without weights. */
#include "layer_kind.h"

#include "ty_base.h"

static double value(layer_formula f, const layer_view *v)
{
    return f != NULL ? f(v) : 0;
}

static double elements(const ty_shape *shape)
{
    double product = 1;
    for (uint32_t i = 0; i < shape->dimension_count; i++)
        product *= (double)shape->dimensions[i];
    return product;
}

static layer_view view_of(const ty_workload *workload, uint32_t layer)
{
    const ty_layer *l = &workload->layers[layer];
    const ty_shape *first = ty_layer_input_shape(workload, layer, 0);
    layer_view v = {.layer = l, .out = elements(&l->output)};

    for (uint32_t i = 0; i < (l->input_count > 0 ? l->input_count : 1); i++)
        v.in += elements(ty_layer_input_shape(workload, layer, i));
    v.rows = first->dimension_count > 0
                 ? elements(first) / (double)first->dimensions[first->dimension_count - 1]
                 : 1;
    return v;
}

#define LARGEST 9007199254740992.0 /* 2^53: what JSON carries exactly */

/* Parameters, flop and times of an opaque layer are given; sizes follow from its shapes. One
 * without a kernel is a view of its input; a traffic of 1 requests the computed figure. */
static ty_status set_opaque(const ty_workload *workload, ty_layer *l, const layer_view *v,
                            ty_error *error)
{
    double size = (double)workload->element_bytes, traffic = (v->in + v->out) * size;

    if (!(traffic <= LARGEST && (double)l->parameter_bytes <= LARGEST))
        return ty_fail(error, TY_EINVAL, "%s: sizes above 2^53 bytes", l->name);
    l->output_bytes = (uint64_t)(v->out * size);
    l->stash_bytes = l->kernel_count == 0 ? 0 : l->output_bytes;
    l->traffic_bytes = l->traffic_bytes == 0 ? 0 : (uint64_t)traffic;
    return TY_OK;
}

/* Every product is repeated for the gradient of either factor: of the input if anything before it
 * is trained, of the parameters if they are trained. */
static double backward_flop(const layer_kind *kind, const layer_view *v, bool needs_input_gradient)
{
    double forward = value(kind->forward_flop, v);
    double of_parameters = forward - value(kind->unweighted, v);

    if (v->layer->is_frozen)
        return needs_input_gradient ? 2 * forward - of_parameters : 0;
    return 2 * forward - (needs_input_gradient ? 0 : value(kind->input_product, v));
}

ty_status ty_layer_set_quantities(ty_workload *workload, uint32_t layer, bool needs_input_gradient,
                                  ty_error *error)
{
    ty_layer *l = &workload->layers[layer];
    const layer_kind *kind = ty_layer_kind_of(l);
    const layer_view v = view_of(workload, layer);
    const double size = (double)workload->element_bytes, stashed = value(kind->stashed, &v);
    const double parameters = value(kind->parameters, &v) * size;
    const bool has_memory = !kind->row.is_view;
    const double stash = has_memory ? (v.out + stashed) * size : 0;
    const double traffic = !has_memory             ? 0
                           : kind->traffic != NULL ? kind->traffic(&v) * size
                                                   : (v.in + v.out + 2 * stashed) * size;

    if (kind->row.is_opaque)
        return set_opaque(workload, l, &v, error);
    if (!(parameters <= LARGEST && stash <= LARGEST && traffic <= LARGEST))
        return ty_fail(error, TY_EINVAL, "%s: sizes above 2^53 bytes", l->name);
    l->forward_flop = value(kind->forward_flop, &v);
    l->backward_flop = backward_flop(kind, &v, needs_input_gradient);
    l->parameter_bytes = (uint64_t)parameters;
    l->output_bytes = (uint64_t)(v.out * size);
    l->stash_bytes = (uint64_t)stash;
    l->traffic_bytes = (uint64_t)traffic;
    l->kernel_count = !has_memory ? 0 : kind->kernels != NULL ? (uint32_t)kind->kernels(&v) : 1;
    return TY_OK;
}
