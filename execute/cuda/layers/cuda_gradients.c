/*
 * Where gradients of values lie, and who writes them first.
 *
 * Backward of a sum copies its output's gradient to each input. In a residual network that is a
 * copy of every activation, twice per block, so an input shares the output's memory wherever nobody
 * can tell, as the CPU backend has it: the whole residual stream has one gradient, which each
 * branch reads and adds to. Messages are copied from and to gradients at the ends of a backward, so
 * that what crosses the cut before the stage may carry one, and what crosses either may not follow.
 * Where backward comes in two parts the second reads what the first did: nothing is shared.
 */
#include "cuda_stage.h"

#include <string.h>

/* Node n's inputs that lie in the group of values with this gradient. */
static uint32_t reads_of_group(const ty_stage_device *stage, uint32_t n, uint32_t root)
{
    const cuda_node *node = &stage->nodes[n];
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->input_count; i++)
        count += stage->values[node->inputs[i]].gradient_of == root;
    return count;
}

/* The first of the inputs that a node sums: behind a batch norm's own there is at most one other.
 */
static uint32_t first_summand(const cuda_node *node)
{
    return node->kind == &cuda_batch_norm_kind ? 1 : 0;
}

/* Whether a node's output is a sum with what else it reads. */
static bool is_sum(const cuda_node *node)
{
    return (node->kind == &cuda_add || node->kind == &cuda_batch_norm_kind) &&
           node->input_count > 1;
}

/* Whether a node's backward changes its output's gradient in place. */
static bool is_masked(const cuda_node *node)
{
    return node->has_relu && is_sum(node);
}

/* One behind the last node that adds to a group's gradient or changes it in place, n left out. */
static uint32_t group_end(const ty_stage_device *stage, uint32_t root, uint32_t n)
{
    uint32_t end = 0;

    for (uint32_t other = 0; other < stage->node_count; other++) {
        const cuda_node *node = &stage->nodes[other];
        const bool masks = is_masked(node) && stage->values[node->output].gradient_of == root;
        if (other != n && (masks || reads_of_group(stage, other, root) > 0))
            end = other + 1;
    }
    return end;
}

static bool crosses(const cuda_cut *cut, const ty_stage_device *stage, uint32_t root)
{
    for (uint32_t i = 0; i < cut->count; i++)
        if (stage->values[cut->tensors[i].value].gradient_of == root)
            return true;
    return false;
}

/* Whether the sum's output can use this group's memory: all else that is added to the group's
 * gradient is added after the sum's backward, and the sum itself contributes once. */
static bool can_carry(const ty_stage_device *stage, uint32_t n, uint32_t root)
{
    return stage->values[root].needs_gradient && !crosses(&stage->behind, stage, root) &&
           reads_of_group(stage, n, root) == 1 && group_end(stage, root, n) <= n;
}

/* Whether an input can look on: only the sum reads it, and the node that made it reads the
 * gradient, unchanged, before anybody adds to the group it lies in. */
static bool can_follow(const ty_stage_device *stage, uint32_t n, uint32_t value, uint32_t root)
{
    if (stage->values[value].gradient_of != value || !stage->values[value].needs_gradient ||
        crosses(&stage->before, stage, value) || crosses(&stage->behind, stage, value) ||
        reads_of_group(stage, n, value) != 1)
        return false;
    for (uint32_t other = 0; other < stage->node_count; other++) {
        const cuda_node *node = &stage->nodes[other];
        if (other != n && reads_of_group(stage, other, value) > 0)
            return false;
        if (stage->values[node->output].gradient_of == value &&
            (is_masked(node) || group_end(stage, root, n) > other))
            return false;
    }
    return true;
}

static void group_join(ty_stage_device *stage, uint32_t from, uint32_t to)
{
    for (uint32_t v = 0; v < stage->value_count; v++)
        if (stage->values[v].gradient_of == from)
            stage->values[v].gradient_of = to;
}

static void sum_share(ty_stage_device *stage, uint32_t n)
{
    const cuda_node *node = &stage->nodes[n];
    bool *follows = node->adds; /* borrowed: filled for good in gradients_order */
    const uint32_t none = stage->value_count;
    uint32_t carrier = none;

    for (uint32_t i = first_summand(node); i < node->input_count && carrier == none; i++) {
        const uint32_t root = stage->values[node->inputs[i]].gradient_of;
        if (can_carry(stage, n, root))
            carrier = root;
    }
    if (carrier == none)
        return;
    for (uint32_t i = first_summand(node); i < node->input_count; i++)
        follows[i] = node->inputs[i] != carrier && can_follow(stage, n, node->inputs[i], carrier);
    for (uint32_t i = first_summand(node); i < node->input_count; i++)
        if (follows[i])
            group_join(stage, node->inputs[i], carrier);
    group_join(stage, stage->values[node->output].gradient_of, carrier);
}

/* Backward goes down the nodes: the first to reach a gradient writes it, later ones add, and all
 * where a neighbour was before them. */
static void gradients_order(ty_stage_device *stage, bool *is_written)
{
    cuda_cut_order(stage, is_written);
    for (uint32_t n = stage->node_count; n-- > 0;) {
        cuda_node *node = &stage->nodes[n];

        for (uint32_t i = 0; i < node->input_count; i++) {
            const uint32_t root = stage->values[node->inputs[i]].gradient_of;
            node->adds[i] = is_written[root];
            is_written[root] = true;
        }
        for (uint32_t later = n + 1; node->tensor_count > 0 && later < stage->node_count; later++) {
            const cuda_node *other = &stage->nodes[later];
            if (other->tensor_count > 0 && !other->layer->is_frozen &&
                other->offsets[0] == node->offsets[0])
                node->adds_matrix = true;
        }
    }
}

void cuda_gradients_place(ty_stage_device *stage, bool *flags)
{
    for (uint32_t v = 0; v < stage->value_count; v++)
        stage->values[v].gradient_of = stage->values[v].same_as;
    for (uint32_t n = 0; n < stage->node_count && !stage->options.splits_backward; n++)
        if (is_sum(&stage->nodes[n]) && stage->values[stage->nodes[n].output].needs_gradient)
            sum_share(stage, n);
    memset(flags, 0, stage->value_count * sizeof *flags);
    gradients_order(stage, flags);
}
