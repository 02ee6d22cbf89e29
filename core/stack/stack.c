/* Stacks in memory: the table of constants for reading, writing and fitting, and all functions of
 * stacks except files. */
#include "stack_on.h"
#include "ty_base.h"

#include <float.h>
#include <string.h>

/* clang-format off */
#define CONSTANT(key, minimum, maximum) \
    { #key, offsetof(ty_stack, key), minimum, maximum, false, false, 0 }
#define OF_DEVICE(key, minimum, maximum) \
    { #key, offsetof(ty_stack, key), minimum, maximum, true, false, 0 }
#define OR_USUAL(key, minimum, maximum, usual) \
    { #key, offsetof(ty_stack, key), minimum, maximum, false, true, usual }
#define OR_OF_DEVICE(key, minimum, maximum) \
    { #key, offsetof(ty_stack, key), minimum, maximum, true, true, TY_OF_DEVICE }
/* clang-format on */

static const ty_stack_constant constants[] = {
    OF_DEVICE(product_share, DBL_MIN, 1),
    OF_DEVICE(product_edge, 0, 1e4),
    OR_OF_DEVICE(fp8_share, DBL_MIN, 1),
    OR_OF_DEVICE(fp4_share, DBL_MIN, 1),
    OR_USUAL(expert_share, DBL_MIN, 1, 1),
    OF_DEVICE(attention_share, DBL_MIN, 1),
    OF_DEVICE(attention_backward, DBL_MIN, 100),
    OR_USUAL(device_share, DBL_MIN, 2, 1),
    OF_DEVICE(memory_share, DBL_MIN, 1),
    OF_DEVICE(kernel_s, 0, 1),
    CONSTANT(traffic_share, DBL_MIN, 10),
    OR_USUAL(cast_bytes, 0, 100, 3),         /* two bytes read, one written */
    OR_USUAL(permutation_passes, 0, 100, 4), /* to the experts and back, each read and written */
    CONSTANT(attention_kernels, 0, 1e4),
    CONSTANT(loss_kernels, 0, 1e4),
    CONSTANT(logit_bytes, 0, 1e4),
    CONSTANT(accumulate_bytes, 0, 1e4),
    OF_DEVICE(optimizer_bytes, 0, 1e4),
    CONSTANT(host_kernel_s, 0, 1),
    CONSTANT(host_collective_s, 0, 1),
    OR_USUAL(host_expert_s, 0, 1, 0),
    CONSTANT(host_unfused_s, 0, 1),
    CONSTANT(host_pass_s, 0, 1),
    CONSTANT(host_step_s, 0, 10),
    CONSTANT(host_link_share, DBL_MIN, 1.25),
    CONSTANT(network_share, DBL_MIN, 1.25),
    CONSTANT(network_contention, 0, 10),
    CONSTANT(network_group_bytes_per_s, 0, 1e15),
    CONSTANT(collective_s, 0, 1),
    CONSTANT(collective_member_s, 0, 1),
    OR_USUAL(tensor_hidden, 0, 1, 0),
    OR_USUAL(gather_hidden, 0, 1, 1),
    OR_USUAL(expert_hidden, 0, 1, 0),
    OR_USUAL(expert_once, 0, 1, 0),
    OR_USUAL(expert_hosts, 0, 1e6, 0),
    OR_USUAL(dispatch_share, 0, 1, 1),
    OR_USUAL(overlap_loss, 0, 1, 0),
    CONSTANT(transfer_share, DBL_MIN, 1),
    CONSTANT(transfer_s, 0, 1),
    CONSTANT(context_bytes, 0, 1e12),
    CONSTANT(memory_waste, 0, 10),
    OR_USUAL(loss_bytes, 0, 100, 8),
    CONSTANT(gradient_bytes, 1, 16),
    OR_USUAL(narrow_copies, 0, 4, 0),
    OR_USUAL(compute_scale, DBL_MIN, 1e4, 1),
    OR_USUAL(step_jitter, 0, 1, 0),
    OR_USUAL(jitter_devices, 1, 1e6, 1),
    OR_USUAL(exchange_cycle_s, 0, 10, 0),
    OR_USUAL(agreement_rounds, 0, 1e3, 0),
    OR_USUAL(coordinator_s, 0, 1, 0),
    OR_USUAL(task_s, 0, 10, 0),
    OR_USUAL(socket_flows, 1, 1024, 2),
};
#define CONSTANT_COUNT (sizeof constants / sizeof constants[0])

const ty_stack_constant *ty_stack_constant_at(uint32_t i)
{
    return i < CONSTANT_COUNT ? &constants[i] : NULL;
}

double *ty_stack_value(ty_stack *stack, const ty_stack_constant *constant)
{
    return (double *)(void *)((char *)stack + constant->offset);
}

const char *ty_stack_source(const ty_stack *stack, uint32_t i)
{
    return stack->sources[i] != NULL ? stack->sources[i] : stack->source;
}

const char *ty_stack_attention_name(ty_stack_attention attention)
{
    static const char *const names[] = {"workload", "scores", "fused"};
    return (unsigned)attention < TY_STACK_ATTENTION_COUNT ? names[attention] : "unknown";
}

const char *ty_stack_memory_name(ty_stack_memory memory)
{
    static const char *const names[] = {"worker", "autograd"};
    return (unsigned)memory < TY_STACK_MEMORY_COUNT ? names[memory] : "unknown";
}

bool ty_stack_is_fitted(const ty_stack *stack, const char *source, const char *model)
{
    for (uint32_t i = 0; i < stack->fitted_count; i++)
        if (strcmp(stack->fitted[i].source, source) == 0 &&
            (stack->fitted[i].model == NULL || strcmp(stack->fitted[i].model, model) == 0))
            return true;
    return false;
}

const ty_stack_judged *ty_stack_judged_on(const ty_stack *stack, const char *device)
{
    const ty_stack_judged *found = NULL;

    for (uint32_t i = 0; i < stack->judged_count; i++) {
        const ty_stack_judged *j = &stack->judged[i];
        if (ty_stack_names_device(j->device, device) &&
            (found == NULL || strlen(j->device) > strlen(found->device)))
            found = j;
    }
    return found;
}

const char *ty_stack_words(const ty_stack *stack)
{
    return stack->asked != NULL ? stack->asked : stack->name;
}
