/* How tensor parallelism shards layers over the ranks of a stage replica, and its collectives. */
#include "parallel_ranks.h"

#include <inttypes.h>

/* The loss over a sharded vocabulary all-reduces three numbers per label: the largest score, the
 * sum of exponentials and the score of the label. Source: Shoeybi et al., "Megatron-LM", 2019,
 * section 3.
 */
#define LOSS_NUMBERS_PER_LABEL 3
#define LOSS_NUMBER_BYTES 4

/* ---- Checks ----------------- */

uint32_t ty_plan_sequence_parts(const ty_plan *plan)
{
    return plan->sequence_parallel ? ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) *
                                         ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL)
                                   : 1;
}

static ty_status refuse(const ty_layer *layer, uint32_t index, uint32_t ranks,
                        ty_attribute attribute, const char *expected, ty_error *error)
{
    return ty_fail(error, TY_EINVAL,
                   "tensor parallel %u: layer %u (\"%s\") has %s %" PRIu64 ", expected %s of it",
                   ranks, index, layer->name, ty_attribute_name(attribute),
                   layer->attributes[attribute], expected);
}

static ty_status check_heads(const ty_layer *l, uint32_t index, uint32_t ranks, ty_error *error)
{
    const uint64_t keys = l->attributes[TY_KV_HEADS];

    if (l->attributes[TY_HEADS] % ranks != 0)
        return refuse(l, index, ranks, TY_HEADS, "a divisor", error);
    if (keys % ranks != 0 && (keys == 0 || ranks % keys != 0))
        return refuse(l, index, ranks, TY_KV_HEADS, "a divisor or a multiple", error);
    return TY_OK;
}

/* Layers with sharded heads or hidden features. */
static bool is_inner_divided(ty_tensor_split split)
{
    return split == TY_SPLIT_HEADS || split == TY_SPLIT_HIDDEN || split == TY_SPLIT_EXPERTS;
}

/* Requirements of every plan on such a layer. */
static ty_status check_layer(const ty_workload *workload, uint32_t index, uint32_t ranks,
                             uint32_t sequence_parts, ty_error *error)
{
    const ty_layer *l = &workload->layers[index];
    const uint64_t tokens = l->output.dimensions[0];

    if (ty_layer_tensor_split(workload, index) == TY_SPLIT_HEADS) {
        const ty_status status = check_heads(l, index, ranks, error);
        if (status != TY_OK)
            return status;
    } else if (l->attributes[TY_HIDDEN_FEATURES] % ranks != 0) {
        return refuse(l, index, ranks, TY_HIDDEN_FEATURES, "a divisor", error);
    }
    if (sequence_parts > 1 && ty_layer_is_along_sequence(workload, l) &&
        tokens % sequence_parts != 0)
        return ty_fail(error, TY_EINVAL,
                       "tensor parallel %u: layer %u (\"%s\") has sequences of %" PRIu64
                       ", which sequence parallelism divides by %u, expected a multiple of that",
                       ranks, index, l->name, tokens, sequence_parts);
    return TY_OK;
}

bool ty_tensor_shares_key_heads(const ty_workload *workload, uint32_t ranks)
{
    for (uint32_t l = 0; ranks > 1 && l < workload->layer_count; l++)
        if (ty_layer_has_heads(&workload->layers[l]) &&
            workload->layers[l].attributes[TY_KV_HEADS] < ranks)
            return true;
    return false;
}

ty_status ty_tensor_check(const ty_workload *workload, uint32_t ranks, uint32_t sequence_parts,
                          ty_error *error)
{
    bool is_divided = false;

    if (ranks <= 1)
        return TY_OK;
    for (uint32_t i = 0; i < workload->layer_count; i++) {

        if (!is_inner_divided(ty_layer_tensor_split(workload, i)))
            continue;
        is_divided = true;
        TY_TRY(check_layer(workload, i, ranks, sequence_parts, error));
    }
    if (!is_divided)
        return ty_fail(
            error, TY_EINVAL,
            "tensor parallel %u: workload \"%s\" has no attention, mlp or moe layer that "
            "could be divided, expected 1",
            ranks, workload->name);
    return TY_OK;
}

static bool is_matrix_divided(const ty_workload *workload, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(workload, layer);

    return split != TY_SPLIT_NONE && split != TY_SPLIT_SEQUENCE;
}

/* Only the loss may read sharded scores. */
static ty_status check_readers(const ty_workload *workload, uint32_t index, ty_error *error)
{
    const ty_layer *l = &workload->layers[index];

    for (uint32_t i = 0; i < l->input_count; i++) {
        const ty_layer *read = &workload->layers[l->inputs[i]];
        if (ty_layer_has_split_scores(workload, l->inputs[i]) && !ty_layer_row_of(l)->is_loss)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "layer %s reads layer %s, but each rank has one shard of that layer",
                           l->name, read->name);
    }
    return TY_OK;
}

/* Additional requirements of the worker's layers. */
static ty_status check_run(const ty_workload *workload, uint32_t index, uint32_t ranks,
                           bool divides_sequence, ty_error *error)
{
    const ty_layer *l = &workload->layers[index];
    const bool is_divided = is_matrix_divided(workload, index);
    const ty_shape *input = ty_layer_input_shape(workload, index, 0);
    const uint64_t features = l->attributes[TY_FEATURES], keys = l->attributes[TY_KV_HEADS];

    if (is_divided && features % ranks != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %" PRIu64 " features among %u ranks, expected a multiple "
                       "of them",
                       l->name, features, ranks);
    if (ty_layer_has_heads(l) && keys % ranks != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %" PRIu64 " key and value heads among %u ranks, expected a "
                       "multiple of them",
                       l->name, keys, ranks);
    if (l->attributes[TY_HAS_QK_NORM] != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: ranks of the worker do not share the norms of queries and keys "
                       "(has_qk_norm), expected a plan without tensor parallelism",
                       l->name);
    if (l->attributes[TY_SHARED_FEATURES] % ranks != 0)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %" PRIu64 " shared features among %u ranks, expected a "
                       "multiple of them",
                       l->name, l->attributes[TY_SHARED_FEATURES], ranks);
    if (ty_layer_has_split_scores(workload, index) &&
        (input->dimension_count != 2 ||
         (divides_sequence && input->dimensions[0] != workload->tokens_per_sample)))
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: ranks of the worker shard the classes of tokens, not those of an "
                       "entire sequence",
                       l->name);
    if (divides_sequence && ty_layer_tensor_split(workload, index) == TY_SPLIT_NONE)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: a %s is not sharded along the sequence, expected a plan without "
                       "sequence parallelism",
                       l->name, ty_layer_kind_name(l->kind));
    if (l->tied_to != TY_NO_LAYER && is_matrix_divided(workload, l->tied_to) != is_divided)
        return ty_fail(
            error, TY_EUNSUPPORTED,
            "layer %s: its matrix is sharded in another way than that of its owner, layer %s",
            l->name, workload->layers[l->tied_to].name);
    return check_readers(workload, index, error);
}

ty_status ty_tensor_run_check(const ty_workload *workload, uint32_t ranks, uint32_t sequence_parts,
                              uint32_t first_layer, uint32_t layer_count, ty_error *error)
{
    ty_status status = ty_tensor_check(workload, ranks, sequence_parts, error);

    for (uint32_t i = 0; ranks > 1 && i < layer_count && status == TY_OK; i++)
        status = check_run(workload, first_layer + i, ranks, sequence_parts > 1, error);
    return status;
}

/* ---- Shares per rank ---- */

double ty_tensor_parameter_share(const ty_plan *plan, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(plan->workload, layer);

    return split == TY_SPLIT_NONE || split == TY_SPLIT_SEQUENCE
               ? 1
               : 1.0 / ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
}

double ty_tensor_work_share(const ty_plan *plan, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(plan->workload, layer);

    return split == TY_SPLIT_NONE || (split == TY_SPLIT_SEQUENCE && !plan->sequence_parallel)
               ? 1
               : 1.0 / ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
}

static ty_inner_collective of_tensors(ty_collective_kind kind, uint64_t bytes, uint32_t count)
{
    return (ty_inner_collective){
        .among = TY_TENSOR_PARALLEL, .kind = kind, .bytes = bytes, .count = count};
}

/* Collectives of unsharded tensors for tensor or sequence parallelism: a number of inputs, and one
 * sum. */
static uint32_t exchange_whole(const ty_plan *plan, uint64_t bytes, uint32_t gathers, bool scatters,
                               ty_inner_collective *out)
{
    uint32_t count = 0;

    if (!plan->sequence_parallel) {
        if (scatters) /* an all-reduce: every rank needs the sum; inputs are unsharded already */
            out[count++] = of_tensors(TY_ALL_REDUCE, bytes, 1);
        return count;
    }
    if (gathers > 0)
        out[count++] = of_tensors(TY_ALL_GATHER,
                                  bytes / ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL), gathers);
    if (scatters)
        out[count++] = of_tensors(TY_REDUCE_SCATTER, bytes, 1);
    return count;
}

/* With fewer key and value heads than ranks: the projections of all heads; each rank computed its
 * part. */
static uint32_t exchange_projections(const ty_plan *plan, uint32_t layer, bool is_backward,
                                     ty_inner_collective *out)
{
    const ty_workload *workload = plan->workload;
    const ty_layer *l = &workload->layers[layer];
    const uint64_t *a = l->attributes, ranks = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    const uint64_t values = a[TY_VALUE_HEAD_SIZE] > 0 ? a[TY_VALUE_HEAD_SIZE] : a[TY_HEAD_SIZE];
    uint64_t numbers;

    if (a[TY_KV_HEADS] >= ranks)
        return 0;
    numbers = a[TY_HEADS] * a[TY_HEAD_SIZE] * l->output.dimensions[0] +
              a[TY_KV_HEADS] * (a[TY_HEAD_SIZE] + values) *
                  ty_layer_input_shape(workload, layer, 0)->dimensions[0];
    numbers = ty_rank_bytes(plan, numbers * workload->element_bytes);
    out[0] = is_backward ? of_tensors(TY_REDUCE_SCATTER, numbers, 1)
                         : of_tensors(TY_ALL_GATHER, numbers / ranks, 1);
    return 1;
}

uint32_t ty_tensor_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                     ty_inner_collective *out)
{
    const ty_workload *workload = plan->workload;
    const ty_layer *l = &workload->layers[layer];
    const uint64_t output = ty_rank_bytes(plan, l->output_bytes);
    const ty_shape *input = ty_layer_input_shape(workload, layer, 0);
    const uint64_t read = ty_rank_bytes(plan, ty_shape_elements(input) * workload->element_bytes);
    /* Backward gathers the input once more, because a rank stores only its own shard. */
    const uint32_t inputs = !is_backward || ty_layer_is_trained(workload, layer) ? 1 : 0;
    const uint32_t gradients = is_backward ? 1 : 0;
    uint32_t count;

    if (ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) == 1)
        return 0;
    switch (ty_layer_tensor_split(workload, layer)) {
    case TY_SPLIT_HEADS:
        /* The input with the keys and values, if it is not the one with the queries. */
        count =
            l->input_count > 1 && !is_backward ? exchange_whole(plan, read, inputs, false, out) : 0;
        count += exchange_whole(plan, output, inputs + gradients, true, out + count);
        if (l->input_count > 1 && is_backward)
            count += exchange_whole(plan, read, inputs, true, out + count);
        return count + exchange_projections(plan, layer, is_backward, out + count);
    case TY_SPLIT_HIDDEN:
    case TY_SPLIT_EXPERTS:
        return exchange_whole(plan, output, inputs + gradients, true, out);
    case TY_SPLIT_VOCABULARY:
        if (ty_layer_has_table(l))
            return exchange_whole(plan, output, gradients, !is_backward, out);
        if (ty_layer_has_split_scores(workload, layer))
            return exchange_whole(plan, read, inputs, is_backward, out);
        if (is_backward)
            return 0;
        out[0] = of_tensors(TY_ALL_REDUCE,
                            ty_rank_bytes(plan, ty_shape_elements(input) /
                                                    input->dimensions[input->dimension_count - 1] *
                                                    LOSS_NUMBER_BYTES),
                            LOSS_NUMBERS_PER_LABEL);
        return 1;
    case TY_SPLIT_NONE:
    case TY_SPLIT_SEQUENCE:
        break;
    }
    return 0;
}

uint64_t ty_layer_rank_bytes(const ty_plan *plan, uint32_t layer)
{
    const ty_layer *l = &plan->workload->layers[layer];
    const uint64_t ranks = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);

    if (ranks > 1 && ty_layer_has_split_scores(plan->workload, layer)) {
        const uint64_t rows = l->attributes[TY_OUT_FEATURES];
        return l->output_bytes / rows * ((rows + ranks - 1) / ranks);
    }
    return plan->sequence_parallel ? l->output_bytes / ranks : l->output_bytes;
}
