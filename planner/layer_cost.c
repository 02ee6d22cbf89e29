/* Seconds of one layer: measured if a profile has it, else the roofline of the device. */
#include "convolution_cost.h"
#include "ty_planner.h"

#include <math.h>

/* Backward against forward, activations read and written: with weights, each of the two gradients
 * reads the output's gradient and one factor; without, the input's gradient is written from the
 * output's and one kept tensor, three transfers for forward's two. */
#define BACKWARD_TRAFFIC_WITH_WEIGHTS 2.0
#define BACKWARD_TRAFFIC_WITHOUT 1.5
/* Backward reads the weights, and reads and writes their accumulated gradient. */
#define BACKWARD_WEIGHT_TRAFFIC 3.0

/* Bytes of weights that a pass reads whole. An embedding reads only the rows of its tokens, which
 * its traffic holds; a tied layer reads a matrix that is another layer's. */
static double weight_bytes(const ty_workload *workload, const ty_layer *layer)
{
    if (layer->kind == TY_LAYER_EMBEDDING)
        return 0;
    if (layer->tied_to == TY_NO_LAYER)
        return (double)layer->parameter_bytes;
    return (double)layer->parameter_bytes + (double)layer->attributes[TY_IN_FEATURES] *
                                                (double)layer->attributes[TY_OUT_FEATURES] *
                                                workload->element_bytes;
}

typedef struct pass {
    double flop, bytes, kernels;
} pass;

static double seconds(const pass *p, double peak_flop_per_s, const ty_device_type *device)
{
    double compute = p->flop / (peak_flop_per_s * device->matmul_efficiency);
    double memory = p->bytes / (device->memory_bandwidth_bytes_per_s * device->memory_efficiency);
    return fmax(compute, memory) + p->kernels * device->launch_overhead_s;
}

/* Source: Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009, with a fixed time per
 * kernel. Assumes full overlap of computing and memory traffic within a kernel and none between
 * kernels. */
static ty_status roofline(const ty_workload *workload, const ty_layer *layer, double samples,
                          ty_layer_share share, const ty_device_type *device, double *forward_s,
                          double *backward_s, ty_error *error)
{
    double peak =
        workload->element_bytes <= 2 ? device->peak_fp16_flop_per_s : device->peak_fp32_flop_per_s;
    double weights = weight_bytes(workload, layer) * share.parameters;
    double traffic = samples * (double)layer->traffic_bytes * share.work;
    bool has_weights = layer->parameter_bytes > 0 || layer->tied_to != TY_NO_LAYER;
    pass forward = {samples * layer->forward_flop * share.work, traffic + weights,
                    layer->kernel_count};
    pass backward = {samples * layer->backward_flop * share.work,
                     has_weights ? BACKWARD_TRAFFIC_WITH_WEIGHTS * traffic +
                                       BACKWARD_WEIGHT_TRAFFIC * weights
                                 : BACKWARD_TRAFFIC_WITHOUT * traffic,
                     (has_weights ? 2.0 : 1.0) * layer->kernel_count};

    if (!(peak > 0 && device->matmul_efficiency > 0 && device->memory_efficiency > 0 &&
          device->memory_bandwidth_bytes_per_s > 0))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "device %s: has no peak rate or bandwidth for numbers of %u bytes",
                       device->name, workload->element_bytes);
    *forward_s = seconds(&forward, peak, device);
    *backward_s = seconds(&backward, peak, device);
    if (ty_convolution_is_chosen(workload, layer, device)) {
        convolution_times t = ty_convolution_cost(layer, samples * share.work, device);
        *forward_s = t.forward_s + forward.kernels * device->launch_overhead_s;
        *backward_s = t.backward_s + backward.kernels * device->launch_overhead_s;
    }
    return TY_OK;
}

static ty_status look_up(const ty_workload *workload, uint32_t layer, uint32_t samples,
                         const ty_profile *profile, double *forward_s, double *backward_s,
                         bool *is_found, ty_error *error)
{
    ty_status status = TY_OK;
    char *signature = NULL;

    *is_found = false;
    if (profile == NULL)
        return TY_OK;
    TY_CHECK(ty_layer_signature(workload, layer, &signature, error), status, cleanup);
    *is_found = ty_profile_layer(profile, signature, samples, forward_s, backward_s);

cleanup:
    ty_free(signature);
    return status;
}

/* An opaque layer that was never timed but has work is costed like any other. */
static bool has_own_times(const ty_layer *l)
{
    bool is_timed = l->measured_forward_s > 0 || l->measured_backward_s > 0;
    bool has_work = l->forward_flop > 0 || l->backward_flop > 0 || l->traffic_bytes > 0;
    return l->kind == TY_LAYER_OPAQUE && (is_timed || !has_work);
}

double ty_layer_weight_flop(const ty_workload *workload, const ty_layer *layer)
{
    const double elements = (double)layer->parameter_bytes / workload->element_bytes;
    const double rows =
        layer->output.dimension_count == 2 ? (double)layer->output.dimensions[0] : 1;

    if (layer->kind == TY_LAYER_CONV2D)
        return layer->forward_flop;
    if (layer->kind == TY_LAYER_LINEAR) /* a tied one has no parameters of its own */
        return layer->forward_flop;
    if (layer->kind == TY_LAYER_EMBEDDING)
        return 0;
    return fmin(2 * elements * rows, layer->forward_flop);
}

double ty_layer_weight_share(const ty_workload *workload, const ty_layer *layer)
{
    if (layer->kind == TY_LAYER_EMBEDDING) /* nothing comes before it */
        return 1;
    if (layer->kind == TY_LAYER_OPAQUE)
        return layer->parameter_bytes > 0 ? 0.5 : 0; /* of the two products of backward */
    return layer->backward_flop > 0
               ? fmin(1, ty_layer_weight_flop(workload, layer) / layer->backward_flop)
               : 0;
}

ty_status ty_layer_cost(const ty_workload *workload, uint32_t layer, uint32_t samples,
                        const ty_device_type *device, const ty_profile *profile, double *forward_s,
                        double *backward_s, ty_provenance *provenance, ty_error *error)
{
    const ty_layer_share all = {1, 1};
    return ty_layer_share_cost(workload, layer, samples, all, device, profile, forward_s,
                               backward_s, provenance, error);
}

ty_status ty_layer_share_cost(const ty_workload *workload, uint32_t layer, uint32_t samples,
                              ty_layer_share share, const ty_device_type *device,
                              const ty_profile *profile, double *forward_s, double *backward_s,
                              ty_provenance *provenance, ty_error *error)
{
    ty_status status = TY_OK;
    double forward = 0, backward = 0;
    ty_provenance source = TY_MEASURED;
    const ty_layer *l;
    bool is_found;

    if (layer >= workload->layer_count || samples == 0)
        return ty_fail(error, TY_EINVAL,
                       "found layer %u for %u samples, expected one of %u layers "
                       "and at least one sample",
                       layer, samples, workload->layer_count);
    l = &workload->layers[layer];
    TY_CHECK(look_up(workload, layer, samples, profile, &forward, &backward, &is_found, error),
             status, cleanup);
    if (!is_found && has_own_times(l)) {
        forward = l->measured_forward_s * samples; /* imported: measured, but not on this device */
        backward = l->measured_backward_s * samples;
        source = TY_CALIBRATED;
        is_found = true;
    } else if (!is_found && device == NULL) {
        status = ty_fail(error, TY_EINVAL, "layer %s: not in the profile, and no device is given",
                         l->name);
        goto cleanup;
    } else if (!is_found) {
        TY_CHECK(roofline(workload, l, samples, share, device, &forward, &backward, error), status,
                 cleanup);
        source = TY_DATASHEET;
    }
    if (is_found && share.work < 1) {
        forward *= share.work;
        backward *= share.work;
        source = TY_CALIBRATED;
    }
    *forward_s = forward;
    *backward_s = backward;
    *provenance = source;

cleanup:
    return status;
}
