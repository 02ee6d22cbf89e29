/* Time of a device in kernels of a kind: sums the cost model's kernels, as a profiler shows
 * them. */
#include "traced_kernels.h"

#include "ty_base.h"

#include <math.h>

/* A layer's kernels: all, or those that selective recomputation repeats. */
typedef enum part { ALL_KERNELS, OF_SCORES, OF_ACTIVATION } part;

static bool is_of(const ty_kernel *kernel, part which)
{
    if (which == OF_SCORES)
        return kernel->is_of_scores && kernel->kind != TY_KERNEL_ATTENTION;
    return which == ALL_KERNELS || kernel->is_of_activation;
}

/* Kernels of a kind in one pass over a layer. */
static double kernels_s(const ty_plan *plan, const ty_rates *rates, uint32_t layer,
                        bool is_backward, part which, ty_traced_kind kind)
{
    static const ty_traced_kind kinds[TY_KERNEL_KIND_COUNT] = {
        TY_TRACED_PRODUCTS, TY_TRACED_ATTENTION, TY_TRACED_PASSES};
    ty_kernel kernels[TY_MOST_KERNELS];
    const uint32_t count = ty_layer_kernels(plan, layer, is_backward, kernels);
    double seconds = 0;

    for (uint32_t k = 0; k < count; k++)
        if (kinds[kernels[k].kind] == kind && is_of(&kernels[k], which))
            seconds += ty_kernels_seconds(&kernels[k], 1, rates, is_backward);
    return seconds * ty_stack_of(plan)->compute_scale;
}

/* Time of recomputing a layer. */
static double again_s(const ty_plan *plan, const ty_rates *rates, uint32_t stage, uint32_t layer,
                      uint32_t served_from, ty_again again, ty_traced_kind kind)
{
    if (plan->stages[stage].recompute == TY_RECOMPUTE_SELECTIVE)
        return kernels_s(plan, rates, layer, false, OF_SCORES, kind);
    if (plan->stages[stage].recompute == TY_RECOMPUTE_NONE || layer >= served_from)
        return 0;
    if (again == TY_AGAIN_ACTIVATION)
        return kernels_s(plan, rates, layer, false, OF_ACTIVATION, kind);
    return kernels_s(plan, rates, layer, false, ALL_KERNELS, kind) *
           ty_layer_recompute_share(&plan->workload->layers[layer], again);
}

/* Optimizer time of the first stage's devices, without the host. */
static double updates_s(ty_plan *plan, const ty_program *program, ty_network_cache *networks,
                        const ty_stack *stack)
{
    ty_stack device = *stack;
    ty_stack *own = plan->stack;
    ty_costs *costs = NULL;
    double seconds = 0;

    device.host_step_s = 0;
    plan->stack = &device;
    if (ty_costs_by_networks(plan, program, networks, &costs, NULL) != TY_OK)
        seconds = NAN;
    plan->stack = own;
    for (uint32_t i = 0; costs != NULL && i < costs->instruction_counts[0]; i++)
        if (program->stages[0].instructions[i].op == TY_OP_UPDATE)
            seconds += costs->instructions[0][i].seconds - costs->instructions[0][i].inner_s;
    ty_costs_free(costs);
    return seconds;
}

double ty_traced_kernels_s(ty_plan *plan, const ty_program *program, ty_network_cache *networks,
                           ty_traced_kind kind, ty_stack *stack)
{
    const ty_device_type *device =
        ty_cluster_device_type(ty_network_cache_cluster(networks), plan->stages[0].devices[0]);
    const ty_rates rates = ty_rates_of(device, stack, plan->workload->precision);
    const uint32_t layers = plan->workload->layer_count;
    ty_rates only_work = rates; /* a trace shows the time between kernels separately */
    ty_layer_again *again = ty_alloc(layers, sizeof *again);
    bool *takes_part = ty_alloc(layers, sizeof *takes_part);
    uint32_t *starts = ty_alloc(layers, sizeof *starts);
    double seconds = NAN;
    ty_stack *own = plan->stack;

    only_work.kernel_s = 0;
    plan->stack = stack;
    if (again == NULL || takes_part == NULL || starts == NULL ||
        ty_plan_mark_again(plan, again, NULL) != TY_OK)
        goto done;
    ty_workload_mark_backward(plan->workload, takes_part);
    seconds = 0;
    for (uint32_t s = 0; s < plan->stage_count; s += ty_plan_pipeline_size(plan)) {
        const ty_plan_stage *planned = &plan->stages[s];
        const uint32_t end = planned->first_layer + planned->layer_count;
        const double passes = (double)plan->micro_batches / planned->replicas;
        const uint32_t segments = ty_plan_segments(plan, s, starts);
        const uint32_t served_from =
            segments > 0 && ty_plan_forward_serves_backward(plan, s) ? starts[segments - 1] : end;
        for (uint32_t l = planned->first_layer; l < end; l++) {
            seconds += passes * kernels_s(plan, &only_work, l, false, ALL_KERNELS, kind);
            if (takes_part[l])
                seconds +=
                    passes * (kernels_s(plan, &only_work, l, true, ALL_KERNELS, kind) +
                              again_s(plan, &only_work, s, l, served_from, again[l].what, kind));
        }
    }
    if (kind == TY_TRACED_PASSES)
        seconds += updates_s(plan, program, networks, stack);
done:
    plan->stack = own;
    ty_free(again);
    ty_free(takes_part);
    ty_free(starts);
    return seconds;
}
