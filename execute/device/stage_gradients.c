/*
 * The memory of gradients of values, and which node writes each first.
 *
 * Backward of a sum copies its output's gradient to each input. In a residual model that is a copy
 * of every activation, twice per block, so an input shares the output's memory wherever the result
 * is the same. Then the entire residual stream has one gradient, which each branch reads and adds
 * to. If backward has two parts, the second reads the gradients of the first: nothing is shared.
 */
#include "stage.h"

/* Number of node n's inputs in the group of values with this gradient. */
static uint32_t reads_of_group(const ty_stage_device *stage, uint32_t n, uint32_t root)
{
    const stage_node *node = &stage->nodes[n];
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->input_count; i++)
        count += stage->values[node->inputs[i]].gradient_of == root;
    return count;
}

/* Whether a node's output is a sum with its other inputs. */
static bool is_sum(const stage_node *node)
{
    return node->kind->is_sum && node->input_count > 1;
}

/* Whether a node's backward changes its output's gradient in place. */
static bool is_masked(const stage_node *node)
{
    return node->has_relu && node->pool == NULL && (node->kind->fuses_relu || is_sum(node));
}

/* One after the last node other than n that adds to a group's gradient or changes it in place. */
static uint32_t group_end(const ty_stage_device *stage, uint32_t root, uint32_t n)
{
    uint32_t end = 0;

    for (uint32_t other = 0; other < stage->node_count; other++) {
        const stage_node *node = &stage->nodes[other];
        const bool masks = is_masked(node) && stage->values[node->output].gradient_of == root;
        if (other != n && (masks || reads_of_group(stage, other, root) > 0))
            end = other + 1;
    }
    return end;
}

/* Whether the sum's output can use this group's memory: all else that is added to the group's
 * gradient is added after the sum's backward, and the sum itself contributes once. The next
 * gradient must not arrive in the memory of one that is being sent. A gradient that has arrived for
 * a group is not the sum's. */
static bool can_carry(const ty_stage_device *stage, uint32_t n, uint32_t root)
{
    const stage_value *output = &stage->values[stage->nodes[n].output];
    const stage_value *group = &stage->values[root];
    const bool is_relayed = group->crosses && output->crosses && !stage->backend->copies_messages;

    return group->needs_gradient && !group->gets_gradient && !is_relayed &&
           reads_of_group(stage, n, root) == 1 && group_end(stage, root, n) <= n;
}

/* Whether an input can share: only the sum reads it, and the node that computed it reads the
 * gradient, unchanged, before any node adds to that of its group. */
static bool can_follow(const ty_stage_device *stage, uint32_t n, uint32_t value, uint32_t root)
{
    const stage_value *input = &stage->values[value];

    if (input->gradient_of != value || !input->needs_gradient || input->crosses ||
        reads_of_group(stage, n, value) != 1)
        return false;
    for (uint32_t other = 0; other < stage->node_count; other++) {
        const stage_node *node = &stage->nodes[other];
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
    stage->values[to].crosses = stage->values[to].crosses || stage->values[from].crosses;
    stage->values[to].gets_gradient =
        stage->values[to].gets_gradient || stage->values[from].gets_gradient;
    for (uint32_t v = 0; v < stage->value_count; v++)
        if (stage->values[v].gradient_of == from)
            stage->values[v].gradient_of = to;
}

static void sum_share(ty_stage_device *stage, uint32_t n)
{
    const stage_node *node = &stage->nodes[n];
    const uint32_t first = node->kind->first_summand;
    uint32_t carrier = STAGE_NONE;
    bool *follows = node->adds; /* borrowed: filled for good in gradients_order */

    for (uint32_t i = first; i < node->input_count && carrier == STAGE_NONE; i++) {
        const uint32_t root = stage->values[node->inputs[i]].gradient_of;
        if (can_carry(stage, n, root))
            carrier = root;
    }
    if (carrier == STAGE_NONE)
        return;
    for (uint32_t i = first; i < node->input_count; i++)
        follows[i] = node->inputs[i] != carrier && can_follow(stage, n, node->inputs[i], carrier);
    for (uint32_t i = first; i < node->input_count; i++)
        if (follows[i])
            group_join(stage, node->inputs[i], carrier);
    group_join(stage, stage->values[node->output].gradient_of, carrier);
}

/* Backward begins with the message's parts and runs the nodes in reverse: the first to reach a
 * gradient writes it, later ones add. */
static void gradients_order(ty_stage_device *stage, bool *is_written)
{
    for (uint32_t i = 0; i < stage->behind.count; i++) {
        stage_crossing *tensor = &stage->behind.tensors[i];
        const uint32_t root = stage->values[tensor->value].gradient_of;
        if (!stage_has_gradient(stage, tensor))
            continue;
        tensor->adds = is_written[root];
        is_written[root] = true;
    }
    for (uint32_t n = stage->node_count; n-- > 0;) {
        stage_node *node = &stage->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            const uint32_t root = stage->values[node->inputs[i]].gradient_of;
            node->adds[i] = is_written[root];
            is_written[root] = true;
        }
        for (uint32_t later = n + 1; node->tensor_count > 0 && later < stage->node_count; later++) {
            const stage_node *other = &stage->nodes[later];
            if (other->tensor_count > 0 && !other->layer->is_frozen &&
                other->offsets[0] == node->offsets[0])
                node->adds_matrix = true;
        }
    }
}

ty_status stage_gradients_place(ty_stage_device *stage, ty_error *error)
{
    bool *is_written = ty_alloc(stage->value_count, sizeof *is_written);

    if (is_written == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors",
                       (unsigned)stage->value_count);
    for (uint32_t i = 0; i < stage->behind.count; i++)
        if (stage_has_gradient(stage, &stage->behind.tensors[i])) {
            const stage_value *value = &stage->values[stage->behind.tensors[i].value];
            stage->values[value->gradient_of].gets_gradient = true;
        }
    for (uint32_t n = 0; n < stage->node_count && !stage->options.splits_backward; n++)
        if (is_sum(&stage->nodes[n]) && stage->values[stage->nodes[n].output].needs_gradient)
            sum_share(stage, n);
    gradients_order(stage, is_written);
    ty_free(is_written);
    return TY_OK;
}
