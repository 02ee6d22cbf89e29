/* Shares of layers per rank of a stage replica, and the ranks' collectives. */
#include "parallel_ranks.h"

#include <inttypes.h>
#include <math.h>

/* ---- Checks -------------------------------------------------------------------------------- */

ty_status ty_context_check(const ty_workload *workload, uint32_t ranks, ty_error *error)
{
    if (ranks <= 1)
        return TY_OK;
    if (workload->tokens_per_sample % (2 * (uint64_t)ranks) != 0 ||
        workload->tokens_per_sample == 0)
        return ty_fail(error, TY_EINVAL,
                       "context parallel %u: workload \"%s\" has sequences of %" PRIu64
                       " tokens, expected a multiple of %" PRIu64 ", two parts for each",
                       ranks, workload->name, workload->tokens_per_sample, 2 * (uint64_t)ranks);
    for (uint32_t i = 0; i < workload->layer_count; i++) {
        const ty_layer *l = &workload->layers[i];
        const ty_layer_row *row = ty_layer_row_of(l);
        const ty_shape *shape = row->is_loss ? ty_layer_input_shape(workload, i, 0) : &l->output;
        if (!row->is_of_tokens || shape->dimension_count != 2)
            return ty_fail(error, TY_EINVAL,
                           "context parallel %u: layer %u (\"%s\", %s) is not of tokens, expected "
                           "1",
                           ranks, i, l->name, ty_layer_kind_name(l->kind));
        if (shape->dimensions[0] % (2 * (uint64_t)ranks) != 0)
            return ty_fail(error, TY_EINVAL,
                           "context parallel %u: layer %u (\"%s\") has %" PRIu64
                           " tokens, expected a multiple of %" PRIu64,
                           ranks, i, l->name, shape->dimensions[0], 2 * (uint64_t)ranks);
    }
    return TY_OK;
}

ty_status ty_expert_check(const ty_workload *workload, uint32_t ranks, ty_table_shard tables,
                          ty_error *error)
{
    bool is_any = tables != TY_TABLES_WHOLE;
    ty_status status;

    if (ranks <= 1)
        return TY_OK;
    if (is_any && (status = ty_table_check(workload, ranks, tables, error)) != TY_OK)
        return status;
    for (uint32_t i = 0; i < workload->layer_count; i++) {
        const ty_layer *l = &workload->layers[i];
        if (!ty_layer_row_of(l)->has_experts)
            continue;
        is_any = true;
        if (l->attributes[TY_EXPERTS] % ranks != 0)
            return ty_fail(error, TY_EINVAL,
                           "expert parallel %u: layer %u (\"%s\") has %" PRIu64
                           " experts, expected a divisor of them",
                           ranks, i, l->name, l->attributes[TY_EXPERTS]);
    }
    if (!is_any)
        return ty_fail(
            error, TY_EINVAL, "expert parallel %u: workload \"%s\" has no moe layer%s, expected 1",
            ranks, workload->name,
            ty_table_first_bag(workload) != TY_NO_LAYER ? ", and its tables are whole" : "");
    return TY_OK;
}

/* ---- Shares -------------------------------------------------------------------------------- */

/* Parameters of all routed experts. In doubles, exact below 2^53, because attributes of a file may
 * be arbitrarily large. */
static uint64_t expert_elements(const ty_workload *workload, const ty_layer *l)
{
    const uint64_t *a = l->attributes, all = l->parameter_bytes / workload->element_bytes;
    const double matrices = a[TY_IS_GATED] != 0 ? 3 : 2;
    const double features = (double)a[TY_FEATURES], hidden = (double)a[TY_HIDDEN_FEATURES];
    const double bias = a[TY_HAS_BIAS] != 0 ? (matrices - 1) * hidden + features : 0;
    const double experts = (double)a[TY_EXPERTS] * (matrices * features * hidden + bias);

    return experts < (double)all ? (uint64_t)experts : all;
}

uint64_t ty_layer_expert_elements(const ty_plan *plan, uint32_t layer)
{
    const ty_layer *l = &plan->workload->layers[layer];

    if (ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) == 1)
        return 0;
    if (ty_layer_is_bag(l))
        return plan->table_shard == TY_TABLES_WHOLE
                   ? 0
                   : l->parameter_bytes / plan->workload->element_bytes;
    return ty_layer_row_of(l)->has_experts ? expert_elements(plan->workload, l) : 0;
}

uint64_t ty_rank_expert_elements(const ty_plan *plan, uint32_t layer)
{
    const uint64_t all = ty_layer_expert_elements(plan, layer);
    const uint32_t ranks = ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);

    return ty_layer_is_bag(&plan->workload->layers[layer]) && all > 0 ? ty_table_part(plan, layer)
                                                                      : all / ranks;
}

double ty_rank_parameter_share(const ty_plan *plan, uint32_t layer)
{
    const ty_layer *l = &plan->workload->layers[layer];
    const double share = ty_tensor_parameter_share(plan, layer);
    const double all = (double)l->parameter_bytes / plan->workload->element_bytes;
    const double divided = (double)ty_layer_expert_elements(plan, layer);

    if (!(divided > 0))
        return share;
    return share * (1 - (divided - (double)ty_rank_expert_elements(plan, layer)) / all);
}

double ty_rank_work_share(const ty_plan *plan, uint32_t layer)
{
    return ty_tensor_work_share(plan, layer) / ty_plan_token_ranks(plan);
}

/* Bytes of keys and values per rank, for its shard of a micro-batch's sequences. With fewer key
 * heads than tensor-parallel ranks, each rank has one. */
static uint64_t key_bytes(const ty_plan *plan, uint32_t layer)
{
    const ty_workload *workload = plan->workload;
    const ty_layer *l = &workload->layers[layer];
    const uint64_t *a = l->attributes, tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    uint64_t heads, features;

    if (!ty_layer_has_heads(l))
        return 0;
    heads = (a[TY_KV_HEADS] + tensor - 1) / tensor;
    features =
        a[TY_HEAD_SIZE] + (a[TY_VALUE_HEAD_SIZE] > 0 ? a[TY_VALUE_HEAD_SIZE] : a[TY_HEAD_SIZE]);
    return ty_rank_bytes(plan, ty_layer_input_shape(workload, layer, 0)->dimensions[0] * heads *
                                   features * workload->element_bytes);
}

/* ---- Collectives --------------------------------------------------------------------------- */

static uint32_t context_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                    ty_inner_collective *out)
{
    const uint32_t ranks = ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL);
    const uint64_t part = ranks > 1 ? key_bytes(plan, layer) : 0;

    if (part == 0)
        return 0;
    out[0] = (ty_inner_collective){
        .among = TY_CONTEXT_PARALLEL, .kind = TY_ALL_GATHER, .bytes = part, .count = 1};
    out[1] = (ty_inner_collective){
        .among = TY_CONTEXT_PARALLEL, .kind = TY_REDUCE_SCATTER, .bytes = part * ranks, .count = 1};
    return is_backward ? 2 : 1;
}

static uint32_t expert_collectives(const ty_plan *plan, uint32_t layer, ty_inner_collective *out)
{
    const ty_layer *l = &plan->workload->layers[layer];
    const uint32_t tensor =
        plan->sequence_parallel ? ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) : 1;
    uint64_t sent = l->output_bytes; /* per token and expert: the token, or its latent */

    if (ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) == 1 || !ty_layer_row_of(l)->has_experts)
        return 0;
    if (l->attributes[TY_LATENT_FEATURES] > 0)
        sent = sent / l->attributes[TY_FEATURES] * l->attributes[TY_LATENT_FEATURES];
    out[0] = (ty_inner_collective){
        .among = TY_EXPERT_PARALLEL,
        .kind = TY_ALL_TO_ALL,
        .bytes = ty_rank_bytes(plan, sent * l->attributes[TY_EXPERTS_PER_TOKEN]) / tensor,
        .count = 2,
        .experts = (uint32_t)l->attributes[TY_EXPERTS],
        .chosen = (uint32_t)l->attributes[TY_EXPERTS_PER_TOKEN]};
    return 1;
}

double ty_expert_parts_met(const ty_inner_collective *inner, double parts, double most)
{
    const double open = most > 0 ? fmin(most, parts) : parts;
    const double all = inner->experts * open / parts, others = all - all / open;
    double missed = 1;

    for (uint32_t i = 0; i < inner->chosen; i++)
        missed *= i < others ? (others - i) / (all - i) : 0;
    return (1 - 1 / parts) * open * (1 - missed);
}

uint32_t ty_layer_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                    ty_inner_collective *out)
{
    uint32_t count = ty_tensor_inner_collectives(plan, layer, is_backward, out);

    count += context_collectives(plan, layer, is_backward, out + count);
    count += ty_table_collectives(plan, layer, is_backward, out + count);
    return count + expert_collectives(plan, layer, out + count);
}
