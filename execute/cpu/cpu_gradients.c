/*
 * Where gradients of values lie, and who writes them first.
 *
 * Backward of a sum copies its output's gradient to each input. In a residual network that is a
 * copy of every activation, twice per block, so an input shares the output's memory wherever nobody
 * can tell: then the whole residual stream has one gradient, which each branch reads and adds to.
 */
#include "cpu_layer.h"

/* Node n's inputs that lie in the group of values with this gradient. */
static uint32_t reads_of_group(const ty_stage_device *stage, uint32_t n, uint32_t root)
{
    const cpu_node *node = &stage->nodes[n];
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->input_count; i++)
        count += stage->values[node->inputs[i]].gradient_of == root;
    return count;
}

/* One behind the last node that adds to a group's gradient or changes it in place, n left out. */
static uint32_t group_end(const ty_stage_device *stage, uint32_t root, uint32_t n)
{
    uint32_t end = 0;

    for (uint32_t other = 0; other < stage->node_count; other++) {
        const cpu_node *node = &stage->nodes[other];
        bool is_masked =
            node->has_relu && node->pool == NULL && stage->values[node->output].gradient_of == root;
        if (other != n && (is_masked || reads_of_group(stage, other, root) > 0))
            end = other + 1;
    }
    return end;
}

/* Whether the sum's output can use this group's memory: all else that is added to the group's
 * gradient is added after the sum's backward, and the sum itself contributes once. */
static bool can_carry(const ty_stage_device *stage, uint32_t n, uint32_t root)
{
    const cpu_value *output = &stage->values[stage->nodes[n].output];
    const cpu_value *group = &stage->values[root];

    /* A gradient that is being sent must not be where the next one arrives; what has arrived of a
     * group is not the sum's. */
    return group->needs_gradient && !group->gets_gradient &&
           !(group->is_gradient_kept && output->is_gradient_kept) &&
           reads_of_group(stage, n, root) == 1 && group_end(stage, root, n) <= n;
}

/* Whether an input can look on: only the sum reads it, and the node that made it reads the
 * gradient, unchanged, before anybody adds to the group it lies in. */
static bool can_follow(const ty_stage_device *stage, uint32_t n, uint32_t value, uint32_t root)
{
    if (stage->values[value].gradient_of != value || !stage->values[value].needs_gradient ||
        stage->values[value].is_gradient_kept || reads_of_group(stage, n, value) != 1)
        return false;
    for (uint32_t other = 0; other < stage->node_count; other++) {
        const cpu_node *node = &stage->nodes[other];
        if (other != n && reads_of_group(stage, other, value) > 0)
            return false;
        if (node->output == value && group_end(stage, root, n) > other)
            return false;
    }
    return true;
}

static void group_join(ty_stage_device *stage, uint32_t from, uint32_t to)
{
    stage->values[to].is_gradient_kept =
        stage->values[to].is_gradient_kept || stage->values[from].is_gradient_kept;
    stage->values[to].gets_gradient =
        stage->values[to].gets_gradient || stage->values[from].gets_gradient;
    for (uint32_t v = 0; v < stage->value_count; v++)
        if (stage->values[v].gradient_of == from)
            stage->values[v].gradient_of = to;
}

static void sum_share(ty_stage_device *stage, uint32_t n)
{
    const cpu_node *node = &stage->nodes[n];
    uint32_t carrier = CPU_NONE;
    bool *follows = node->adds; /* borrowed: filled for good in gradients_order */

    for (uint32_t i = 0; i < node->input_count && carrier == CPU_NONE; i++) {
        uint32_t root = stage->values[node->inputs[i]].gradient_of;
        if (can_carry(stage, n, root))
            carrier = root;
    }
    if (carrier == CPU_NONE)
        return;
    for (uint32_t i = 0; i < node->input_count; i++)
        follows[i] = node->inputs[i] != carrier && can_follow(stage, n, node->inputs[i], carrier);
    for (uint32_t i = 0; i < node->input_count; i++)
        if (follows[i])
            group_join(stage, node->inputs[i], carrier);
    group_join(stage, stage->values[node->output].gradient_of, carrier);
}

/* Backward goes down the nodes: the first to reach a gradient writes it, later ones add, and all
 * where a neighbour was before them. */
static ty_status gradients_order(ty_stage_device *stage, ty_error *error)
{
    bool *is_written = ty_alloc(stage->value_count, sizeof *is_written);

    if (is_written == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for %u tensors",
                       (unsigned)stage->value_count);
    for (uint32_t v = 0; v < stage->value_count; v++)
        is_written[v] = stage->values[v].gets_gradient;
    for (uint32_t n = stage->node_count; n-- > 0;) {
        cpu_node *node = &stage->nodes[n];
        for (uint32_t i = 0; i < node->input_count; i++) {
            uint32_t root = stage->values[node->inputs[i]].gradient_of;
            node->adds[i] = is_written[root];
            is_written[root] = true;
        }
        if (node->tensor_count == 0)
            continue;
        for (uint32_t later = n + 1; later < stage->node_count; later++) {
            const cpu_node *other = &stage->nodes[later];
            if (other->tensor_count > 0 && !other->layer->is_frozen &&
                other->offsets[0] == node->offsets[0])
                node->adds_matrix = true;
        }
    }
    ty_free(is_written);
    return TY_OK;
}

/* The roots of what backward begins with. */
static void mark_received(ty_stage_device *stage)
{
    for (uint32_t i = 0; i < stage->output.count; i++) {
        const cpu_crossing *tensor = &stage->output.tensors[i];
        const cpu_value *value = &stage->values[tensor->value];
        stage->values[value->gradient_of].gets_gradient =
            stage->values[value->gradient_of].gets_gradient ||
            (tensor->has_gradient_part && value->needs_gradient);
    }
}

ty_status cpu_gradients_place(ty_stage_device *stage, ty_error *error)
{
    mark_received(stage);
    for (uint32_t n = 0; n < stage->node_count && !stage->options.splits_backward; n++)
        if (stage->nodes[n].kind == &cpu_add &&
            stage->values[stage->nodes[n].output].needs_gradient)
            sum_share(stage, n);
    return gradients_order(stage, error);
}
