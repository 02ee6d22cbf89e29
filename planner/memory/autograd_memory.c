/* Activations as a framework's automatic differentiation stores them: see memory.h. */
#include "cost/kernels.h"
#include "memory/memory.h"

#include <math.h>

/* Bytes of a number that entered a narrow product and is stored that way; 0: none. */
static double narrow_bytes(const stage_memory *m)
{
    return m->stack->narrow_copies * ty_precision_narrow_bytes(m->plan->workload->precision);
}

/* Of an activation inside an mlp or an expert, which enters the second product. */
static double second_bytes(const stage_memory *m)
{
    const double narrow = narrow_bytes(m);

    return narrow > 0 ? narrow : m->plan->workload->element_bytes;
}

/* Samples of one rank: a fraction of a sequence counts as a fraction of a sample. */
static double rank_samples(const stage_memory *m)
{
    return m->samples / ty_plan_parallel_size(m->plan, TY_EXPERT_PARALLEL) /
           ty_plan_parallel_size(m->plan, TY_CONTEXT_PARALLEL);
}

/* Samples of one rank, for a layer that tensor-parallel ranks shard. */
static double sharded_samples(const stage_memory *m, uint32_t layer)
{
    return m->samples * ty_rank_work_share(m->plan, layer);
}

/* This rank's share of activations between tensor-parallel layers. */
static double along_sequence(const stage_memory *m)
{
    return m->plan->sequence_parallel ? 1.0 / ty_plan_parallel_size(m->plan, TY_TENSOR_PARALLEL)
                                      : 1;
}

static bool has_dropout(const stage_memory *m)
{
    return m->stack->has_dropout && m->plan->workload->tokens_per_sample > 0;
}

static memory_numbers numbers_of(const stage_memory *m, uint32_t layer)
{
    return ty_memory_numbers(m->plan->workload, layer);
}

static bool is_fused(const stage_memory *m, uint32_t layer)
{
    return ty_attention_is_fused(m->stack, m->plan->workload->precision, memory_layer(m, layer));
}

/* ---- Layers ---------------------------------------------------------------------------------- */

/* Sharded along the sequence; scores of a vocabulary by the vocabulary. */
static double output_bytes(const stage_memory *m, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(m->plan->workload, layer);
    const bool is_whole = split == TY_SPLIT_NONE;
    const bool is_scores = split == TY_SPLIT_VOCABULARY && memory_row_at(m, layer)->gives_scores;

    return (double)memory_layer(m, layer)->output_bytes *
           (is_scores ? sharded_samples(m, layer)
                      : rank_samples(m) * (is_whole ? 1 : along_sequence(m)));
}

/* Scores of attention: the softmax's result, and dropout's mask and result. */
static double score_bytes(const stage_memory *m, uint32_t layer)
{
    const double element = m->plan->workload->element_bytes;

    return is_fused(m, layer) ? 0
                              : sharded_samples(m, layer) * numbers_of(m, layer).scores *
                                    (element + (has_dropout(m) ? element + 1 : 0));
}

/* fp32 scores of a loss over a vocabulary, or their gradient. */
static double loss_bytes(const stage_memory *m, uint32_t layer)
{
    const ty_shape *input = ty_layer_input_shape(m->plan->workload, layer, 0);

    return m->stack->loss_bytes / 2 * sharded_samples(m, layer) * (double)ty_shape_elements(input);
}

/* Outputs of activation functions inside an mlp or experts. */
static double activation_bytes(const stage_memory *m, uint32_t layer)
{
    return sharded_samples(m, layer) * second_bytes(m) * numbers_of(m, layer).second;
}

/* Stored inside a layer, in addition to its input. Fused attention's
 * backward also reads its sum. */
static double inner_bytes(const stage_memory *m, uint32_t layer)
{
    const ty_layer *l = memory_layer(m, layer);
    const memory_row *row = memory_row_at(m, layer);
    const memory_numbers n = numbers_of(m, layer);
    const double element = m->plan->workload->element_bytes;
    const double second =
        n.scores > 0 && is_fused(m, layer) ? element + narrow_bytes(m) : second_bytes(m);
    double along = n.routed * (l->attributes[TY_LATENT_FEATURES] > 0 ? element : second_bytes(m));

    if (row->is_loss)
        return loss_bytes(m, layer);
    if (row->keeps_stash)
        return rank_samples(m) * fmax(0, (double)l->stash_bytes - (double)l->output_bytes);
    if (row->has_mask && has_dropout(m))
        along += (double)ty_shape_elements(&l->output);
    return sharded_samples(m, layer) * (element * n.projected + second * n.second) +
           rank_samples(m) * (element * n.latents + along_sequence(m) * along) +
           score_bytes(m, layer);
}

/* While a layer's backward runs: gradients of its output, of its input and of its widest tensor,
 * with unsharded rows if ranks shard them between layers; for a loss,
 * the gradient of the scores. */
static double working_bytes(const stage_memory *m, uint32_t layer)
{
    const double element = m->plan->workload->element_bytes;
    const bool is_sharded = ty_layer_tensor_split(m->plan->workload, layer) == TY_SPLIT_VOCABULARY;
    const double row = is_sharded ? output_bytes(m, layer)
                                  : rank_samples(m) * (double)memory_layer(m, layer)->output_bytes;

    if (memory_row_at(m, layer)->is_loss)
        return loss_bytes(m, layer);
    return 2 * row + 2 * sharded_samples(m, layer) * numbers_of(m, layer).widest * element;
}

/* ---- Tensors --------------------------------------------------------------------------------- */

static void forget_tensors(const stage_memory *m)
{
    for (uint32_t i = 0; i < m->end; i++)
        m->layers[i].is_seen[0] = m->layers[i].is_seen[1] = false;
}

/* A tensor with one more reader: all narrow readers share a copy, all others share one. Routers of
 * experts store it unconverted. */
static double tensor_bytes(const stage_memory *m, uint32_t reader, uint32_t tensor)
{
    const ty_workload *w = m->plan->workload;
    const bool is_narrow = narrow_bytes(m) > 0 && memory_row_at(m, reader)->is_narrow &&
                           ty_layer_tensor_split(w, reader) != TY_SPLIT_VOCABULARY;
    bool *is_seen = &m->layers[tensor].is_seen[is_narrow];
    const double bytes =
        *is_seen ? 0
                 : output_bytes(m, tensor) * (is_narrow ? narrow_bytes(m) / w->element_bytes : 1);

    *is_seen = true;
    return bytes;
}

/* Inputs of a layer that its backward reads. */
static double input_bytes(const stage_memory *m, uint32_t layer)
{
    const ty_layer *l = memory_layer(m, layer);
    double bytes = 0;

    for (uint32_t k = 0; !memory_row_at(m, layer)->ignores_input && k < l->input_count; k++)
        bytes += tensor_bytes(m, layer, ty_memory_holder(m, l->inputs[k]));
    return bytes;
}

/* Bytes of a micro-batch that layers [first, end) store until its backward. */
static double kept_bytes(const stage_memory *m, uint32_t first, uint32_t end)
{
    double bytes = 0;

    forget_tensors(m);
    for (uint32_t i = first; i < end; i++) {
        m->layers[i].all = m->takes_part[i] ? inner_bytes(m, i) + input_bytes(m, i) : 0;
        bytes += m->layers[i].all;
    }
    return bytes;
}

/* Inputs of a segment, each once. */
static double entering_bytes(const stage_memory *m, uint32_t first, uint32_t end)
{
    double bytes = 0;

    forget_tensors(m);
    for (uint32_t i = first; i < end; i++)
        for (uint32_t k = 0; k < memory_layer(m, i)->input_count; k++) {
            const uint32_t tensor = ty_memory_holder(m, memory_layer(m, i)->inputs[k]);
            if (tensor < first && !m->layers[tensor].is_seen[0])
                bytes += output_bytes(m, tensor);
            m->layers[tensor].is_seen[0] = true;
        }
    return bytes;
}

/* The bytes of a segment that recomputation does not compute again, without its inputs. */
static double found_bytes(const stage_memory *m, uint32_t first, uint32_t end)
{
    double bytes = 0;

    forget_tensors(m);
    for (uint32_t i = first; i < end; i++) {
        const ty_layer *l = memory_layer(m, i);
        const ty_again again = m->again[i].what;
        if (!m->takes_part[i])
            continue;
        if (again != TY_AGAIN_ALL)
            bytes += inner_bytes(m, i);
        if (again == TY_AGAIN_SECOND)
            bytes -= score_bytes(m, i);
        if (again == TY_AGAIN_ACTIVATION ||
            (again == TY_AGAIN_SECOND && numbers_of(m, i).scores <= 0))
            bytes -= activation_bytes(m, i);
        for (uint32_t k = 0; !memory_row_at(m, i)->ignores_input && k < l->input_count; k++) {
            const uint32_t tensor = ty_memory_holder(m, l->inputs[k]);
            if (tensor >= first && m->again[tensor].keeps_output)
                bytes += tensor_bytes(m, i, tensor);
        }
    }
    return bytes;
}

void ty_autograd_activations(const stage_memory *m, double *slot, double *once)
{
    const bool is_selective = m->stage->recompute == TY_RECOMPUTE_SELECTIVE;
    double again = 0, working = 0;

    *slot = 0;
    if (m->segment_count == 0)
        *slot = kept_bytes(m, m->first, m->end);
    for (uint32_t i = m->first; i < m->end; i++) {
        if (!m->takes_part[i])
            continue;
        working = fmax(working, working_bytes(m, i));
        if (is_selective) {
            *slot -= score_bytes(m, i);
            again = fmax(again, score_bytes(m, i));
        }
    }
    for (uint32_t s = 0; s < m->segment_count; s++) {
        const uint32_t first = m->segments[s];
        const uint32_t end = s + 1 < m->segment_count ? m->segments[s + 1] : m->end;
        const double found = found_bytes(m, first, end);
        *slot += entering_bytes(m, first, end) + found;
        again = fmax(again, kept_bytes(m, first, end) - found);
    }
    *once = again + working;
}
