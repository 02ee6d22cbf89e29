/* Activations as trainyard-worker allocates them, per sample: every layer stores its output and all
 * else that its backward reads. */
#include "cost/kernels.h"
#include "memory/memory.h"

#include <math.h>

/* Minimum chunk size in which the CPU backend pools the images of a convolution
 * (execute/cpu/cpu_conv2d.c). */
#define PIECE_BYTES (512 << 10)
#define PIECE_PIXELS 2048

static bool splits_backward(const stage_memory *m)
{
    return ty_schedule_at(m->plan->schedule)->splits_backward;
}

static bool is_in_stage(const stage_memory *m, uint32_t layer)
{
    return layer >= m->first && layer < m->end;
}

/* ---- Readers of outputs ---------------------------------------------------------------------- */

/* The layer in whose memory the gradient of an output is stored: that of a sum is that of the first
 * of its inputs, so a residual stream has one. */
static uint32_t gradient_holder(const stage_memory *m, uint32_t layer)
{
    layer = ty_memory_holder(m, layer);
    while (is_in_stage(m, layer) && memory_row_at(m, layer)->is_sum)
        layer = ty_memory_holder(m, memory_layer(m, layer)->inputs[0]);
    return layer;
}

static void mark_reader(const stage_memory *m, uint32_t layer, uint32_t input,
                        uint32_t segment_start)
{
    const uint32_t read = memory_layer(m, layer)->inputs[input];
    const uint32_t made = ty_memory_holder(m, read), gradient = gradient_holder(m, read);
    layer_use *layers = m->layers;

    if (read < m->first)
        return;
    layers[read].is_added = !layers[read].is_read && memory_row_at(m, layer)->is_sum && input > 0;
    layers[read].is_read = true;
    if (made >= m->first) {
        layers[made].is_kept = layers[made].is_kept || m->takes_part[layer];
        if (made < segment_start)
            layers[made].is_between = !layers[made].is_sent;
    }
    if (gradient >= m->first && gradient < segment_start)
        layers[gradient].has_gradient_between = true;
}

static void mark_outputs(const stage_memory *m)
{
    uint32_t segment = 0;

    for (uint32_t i = m->first; i < m->end; i++)
        m->layers[i] = (layer_use){0};
    for (uint32_t i = 0; i < m->crossing_count; i++) {
        const uint32_t made = ty_memory_holder(m, m->crossing[i]);
        if (made >= m->first)
            m->layers[made].is_kept = m->layers[made].is_sent = true;
    }
    for (uint32_t i = m->first; i < m->end; i++) {
        while (segment + 1 < m->segment_count && i >= m->segments[segment + 1])
            segment++;
        for (uint32_t k = 0; k < memory_layer(m, i)->input_count; k++)
            mark_reader(m, i, k, segment > 0 ? m->segments[segment] : m->first);
    }
}

/* Scores that only the loss reads: on accelerators they become their gradient. */
static bool becomes_gradient(const stage_memory *m, uint32_t layer)
{
    const ty_layer *next = memory_layer(m, layer + 1 < m->end ? layer + 1 : layer);

    return !m->is_on_cores && memory_row_at(m, layer)->gives_scores &&
           ty_memory_row_of(next->kind)->is_loss && next->inputs[0] == layer;
}

/* ---- Images ---------------------------------------------------------------------------------- */

/* Whether channels-last images differ from planes. */
static bool has_two_orders(const ty_shape *shape)
{
    return shape->dimension_count == 3 && shape->dimensions[0] > 1 &&
           shape->dimensions[1] * shape->dimensions[2] > 1;
}

/* The convolution whose images only a pool reads, possibly through a rectifier: they never exist
 * all at once. TY_NO_LAYER: none. */
static uint32_t pooled_convolution(const stage_memory *m, uint32_t pool)
{
    const uint32_t *last_readers = m->plan->workload->index.last_readers;
    uint32_t at = pool;
    bool is_rectified = false;

    if (!memory_row_at(m, pool)->is_pool || splits_backward(m))
        return TY_NO_LAYER;
    do {
        const ty_layer *l = memory_layer(m, at);
        if (l->input_count != 1 || l->inputs[0] + 1 != at || at == m->first ||
            last_readers[at - 1] != at)
            return TY_NO_LAYER;
        at--;
        is_rectified = is_rectified || memory_row_at(m, at)->is_rectifier;
    } while (memory_row_at(m, at)->is_rectifier);
    return memory_row_at(m, at)->is_convolution &&
                   !(is_rectified && memory_layer(m, pool)->attributes[TY_IS_AVERAGE] != 0)
               ? at
               : TY_NO_LAYER;
}

/* The CPU backend stores images channels-last within a stage, and as planes at its cuts and where
 * they are flattened, each a copy; maxima with their indices. */
static void add_images_of_cores(const stage_memory *m, uint32_t layer)
{
    const ty_workload *w = m->plan->workload;
    const ty_layer *l = memory_layer(m, layer);
    const memory_row *row = memory_row_at(m, layer);
    const bool comes_in = l->input_count == 0 || l->inputs[0] < m->first;
    const ty_shape *in = ty_layer_input_shape(w, layer, 0);
    const double bytes = (double)ty_shape_elements(in) * w->element_bytes;
    const uint32_t convolution = pooled_convolution(m, layer);
    layer_use *use = &m->layers[layer];

    if (row->is_pool && l->attributes[TY_IS_AVERAGE] == 0)
        use->all += (double)l->output_bytes; /* indices of the maxima */
    if (convolution != TY_NO_LAYER)
        m->layers[convolution].kept = 0;
    if (!row->is_image || !has_two_orders(in) || row->is_flatten == comes_in)
        return;
    use->copies += bytes;
    if (row->is_flatten || ty_memory_transfer(m, m->index, TY_GRADIENT) > 0)
        use->copied += bytes;
}

/* Accelerators receive images in the order in which they are read, so only flattened ones are
 * copied; batch norms compute the sums after them. */
static void add_images_of_accelerators(const stage_memory *m, uint32_t layer)
{
    const ty_layer *l = memory_layer(m, layer);
    const uint32_t norm = ty_workload_norm_of_sum(m->plan->workload, layer);
    layer_use *use = &m->layers[layer];

    if (norm != TY_NO_LAYER && norm >= m->first && m->segment_count == 0)
        m->layers[norm].kept -= (double)memory_layer(m, norm)->output_bytes;
    if (memory_row_at(m, layer)->is_flatten && l->input_count > 0 && l->inputs[0] >= m->first &&
        has_two_orders(ty_layer_input_shape(m->plan->workload, layer, 0)))
        use->copies = use->copied = (double)l->output_bytes;
}

/* Scratch of a convolution on cores: its weights in the order of oneDNN's kernels, their gradient
 * before it is added to that of other micro-batches, and the images pooled at once. */
static double scratch_bytes(const stage_memory *m, uint32_t layer)
{
    const ty_layer *l = memory_layer(m, layer);
    const double weights = (double)l->parameter_bytes, image = (double)l->output_bytes;
    double pieces = 0;

    if (!m->is_on_cores || !memory_row_at(m, layer)->is_convolution)
        return 0;
    if (m->layers[layer].kept <= 0)
        pieces =
            image * fmin(m->samples, ceil(fmax(PIECE_BYTES / image,
                                               PIECE_PIXELS / ((double)l->output.dimensions[1] *
                                                               (double)l->output.dimensions[2]))));
    return weights + (l->is_frozen ? 0 : weights) + pieces;
}

/* ---- Bytes of layers ------------------------------------------------------------------------- */

/* Rows of experts beyond the copies of tokens, per sample of all ranks: GPUs allocate for the
 * maximum. */
static double rows_beyond_copies(const stage_memory *m, uint32_t layer)
{
    const ty_layer *l = memory_layer(m, layer);
    double own, most;

    if (m->is_on_cores || l->attributes[TY_EXPERTS_PER_TOKEN] == 0)
        return 0;
    ty_memory_expert_rows(m, layer, &own, &most);
    return most * ty_plan_parallel_size(m->plan, TY_EXPERT_PARALLEL) *
               ty_plan_parallel_size(m->plan, TY_CONTEXT_PARALLEL) / m->samples -
           ty_memory_tokens(&l->output) * (double)l->attributes[TY_EXPERTS_PER_TOKEN];
}

/* Scores that the workload counts but that are not stored: fused attention and recomputation store
 * one number per row of queries and head. */
static double dropped_scores(const stage_memory *m, uint32_t layer, const memory_numbers *n)
{
    const ty_layer *l = memory_layer(m, layer);
    const ty_workload *w = m->plan->workload;
    const double keys = (double)ty_layer_input_shape(w, layer, 0)->dimensions[0];
    const bool is_made_again = m->stage->recompute == TY_RECOMPUTE_SELECTIVE ||
                               m->stage->recompute == TY_RECOMPUTE_OPERATOR;

    if (n->scores <= 0 || l->attributes[TY_IS_FUSED] > 0 ||
        !(is_made_again || ty_attention_is_fused(m->stack, w->precision, l)))
        return 0;
    return fmin(n->scores / keys * (keys - 1) * w->element_bytes, (double)l->stash_bytes);
}

/* Bytes that recomputation does not compute again, without an output that goes to another segment
 * or stage. */
static double found_bytes(const stage_memory *m, uint32_t layer, const memory_numbers *n,
                          double beyond, double output, double scores)
{
    const layer_use *use = &m->layers[layer];
    const double element = m->plan->workload->element_bytes;
    const ty_again what = m->again[layer].what;
    double bytes = use->kept - scores - output;

    if (what == TY_AGAIN_ALL)
        return 0;
    if (what == TY_AGAIN_SECOND && n->scores <= 0)
        bytes = n->projected * element;
    if (what == TY_AGAIN_ACTIVATION)
        bytes -=
            (n->second + beyond * (double)memory_layer(m, layer)->attributes[TY_HIDDEN_FEATURES]) *
            element;
    if (m->again[layer].keeps_output && !use->is_between && !use->is_sent)
        bytes += output;
    return fmax(0, fmin(bytes, use->kept));
}

/* The input and output of a layer that tensor parallelism shards, gathered along the sequence for
 * the first part of backward, stay for the second. */
static double gathered_elements(const stage_memory *m, uint32_t layer)
{
    const ty_tensor_split split = ty_layer_tensor_split(m->plan->workload, layer);
    const ty_layer *l = memory_layer(m, layer);
    double elements;

    if (!m->plan->sequence_parallel || l->input_count == 0 ||
        (split != TY_SPLIT_HEADS && split != TY_SPLIT_HIDDEN && split != TY_SPLIT_VOCABULARY))
        return 0;
    elements = (double)ty_shape_elements(ty_layer_input_shape(m->plan->workload, layer, 0));
    if (split != TY_SPLIT_VOCABULARY)
        elements += (double)ty_shape_elements(&l->output);
    return elements / ty_plan_parallel_size(m->plan, TY_CONTEXT_PARALLEL);
}

/* From the first part of a split backward to the second: gradients of the layer's output and of the
 * first product's, which no other layer reads. */
static double split_bytes(const stage_memory *m, uint32_t layer, const memory_numbers *n,
                          double beyond, double share)
{
    const ty_layer *l = memory_layer(m, layer);
    const layer_use *use = &m->layers[layer];
    const double inner =
        n->projected + n->router +
        beyond * (double)(l->attributes[TY_HIDDEN_FEATURES] * (l->attributes[TY_IS_GATED] ? 2 : 1));

    return (becomes_gradient(m, layer) ? 0 : use->gradient) + use->copied +
           m->plan->workload->element_bytes * (inner * share + gathered_elements(m, layer));
}

static void measure(const stage_memory *m, uint32_t layer)
{
    const ty_layer *l = memory_layer(m, layer);
    const memory_row *row = memory_row_at(m, layer);
    const double share = ty_rank_work_share(m->plan, layer);
    const double beyond = rows_beyond_copies(m, layer);
    const bool takes_part = m->takes_part[layer];
    layer_use *use = &m->layers[layer];
    const memory_numbers n = ty_memory_numbers(m->plan->workload, layer);
    const double output = fmin(use->kept, (double)l->output_bytes);
    const double scores = dropped_scores(m, layer, &n);

    use->all = (use->kept + use->copies + use->all - scores) * share;
    use->output = output * share;
    use->inner = takes_part ? (use->kept - output) * share : 0;
    use->gradient = takes_part ? use->output : 0;
    use->copies *= share;
    use->copied *= takes_part ? share : 0;
    use->found = found_bytes(m, layer, &n, beyond, output, scores) * share;
    /* A sum has no gradient of its own, nor have the inputs that it adds to its first. */
    use->at_once = use->copied + (use->has_gradient_between || row->is_sum || use->is_added ||
                                          becomes_gradient(m, layer)
                                      ? 0
                                      : use->gradient);
    use->split = takes_part && splits_backward(m) ? split_bytes(m, layer, &n, beyond, share) : 0;
}

static void measure_layers(const stage_memory *m)
{
    for (uint32_t i = m->first; i < m->end; i++) {
        const uint64_t *a = memory_layer(m, i)->attributes;
        /* A token's copy inside an expert: its input, the first product and the second's input. */
        m->layers[i].kept =
            (double)memory_layer(m, i)->stash_bytes +
            rows_beyond_copies(m, i) *
                (double)(a[TY_FEATURES] + a[TY_HIDDEN_FEATURES] * (a[TY_IS_GATED] ? 3 : 2)) *
                m->plan->workload->element_bytes;
    }
    for (uint32_t i = m->first; i < m->end; i++)
        (m->is_on_cores ? add_images_of_cores : add_images_of_accelerators)(m, i);
    for (uint32_t n = 0; m->is_on_cores && n < m->crossing_count; n++) {
        layer_use *use = &m->layers[m->crossing[n]];
        const ty_layer *l = memory_layer(m, m->crossing[n]);
        if (m->crossing[n] >= m->first && has_two_orders(&l->output)) {
            use->copies += (double)l->output_bytes;
            use->copied += (double)l->output_bytes;
        }
    }
    for (uint32_t i = m->first; i < m->end; i++)
        measure(m, i);
}

/* ---- A stage --------------------------------------------------------------------------------- */

/* Numbers of a batch reach accelerators as floats, which then convert them. @return bytes that
 * layers read, and in `arrives` the bytes that enter the stage */
static double input_bytes(const stage_memory *m, double *arrives)
{
    const ty_workload *w = m->plan->workload;
    const uint64_t elements = ty_shape_elements(&w->input);
    const bool is_converted = m->first == 0 && !m->is_on_cores && w->input_kind == TY_INPUT_REAL;
    const double bytes = (double)ty_rank_bytes(m->plan, elements * w->element_bytes) / m->samples;

    *arrives = is_converted ? (double)ty_rank_bytes(m->plan, elements * sizeof(float)) / m->samples
               : m->first > 0 ? ty_memory_transfer(m, m->index, TY_ACTIVATION)
                              : bytes;
    return is_converted ? bytes : 0;
}

/* Activations from before the stage that it forwards: a separate copy. */
static double relayed_bytes(const stage_memory *m)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < m->crossing_count; i++)
        if (m->crossing[i] < m->first)
            bytes += memory_layer(m, m->crossing[i])->output_bytes;
    bytes = ty_rank_bytes(m->plan, bytes);
    if (m->plan->sequence_parallel)
        bytes /= ty_plan_parallel_size(m->plan, TY_TENSOR_PARALLEL);
    return (double)bytes / m->samples;
}

/* Activations that the recomputation of layers [first, end) produces, and their gradients. */
static double working_set(const stage_memory *m, uint32_t first, uint32_t end)
{
    double bytes = 0;

    for (uint32_t i = first; i < end; i++) {
        const layer_use *use = &m->layers[i];
        bytes += use->all - use->found + use->at_once;
        if (use->is_between || use->is_sent)
            bytes -= use->output;
    }
    return bytes;
}

void ty_worker_activations(const stage_memory *m, double *slot, double *once)
{
    const bool has_segments = m->segment_count > 0;
    double arrives, converted = input_bytes(m, &arrives);
    double stash = 0, passing = 0, between = 0, split = 0, at_once = 0, late = 0, inner = 0;

    mark_outputs(m);
    measure_layers(m);
    for (uint32_t i = m->first; i < m->end; i++) {
        const layer_use *use = &m->layers[i];
        const double kept = m->takes_part[i] ? use->all
                            : use->is_kept   ? use->output + use->copies
                                             : 0;
        stash += kept;
        passing += use->all - kept; /* only forward uses it */
        between += (use->is_between ? use->output : 0) + use->found;
        split += use->split;
        at_once += use->at_once;
        late += use->has_gradient_between ? use->gradient : 0;
        inner = fmax(inner, m->samples * use->inner + scratch_bytes(m, i));
    }
    *slot = has_segments ? ty_memory_transfer(m, m->index + 1, TY_ACTIVATION) + between
                         : converted + stash + relayed_bytes(m);
    *slot = m->samples * (arrives + *slot + split);
    *once = splits_backward(m) ? passing : passing + at_once; /* gradients are in the slots */
    for (uint32_t s = 0; s < m->segment_count; s++) {
        const uint32_t end = s + 1 < m->segment_count ? m->segments[s + 1] : m->end;
        const double bytes = (s == 0 ? converted : 0) + working_set(m, m->segments[s], end);
        *once = s == 0 ? bytes : fmax(*once, bytes);
    }
    *once = inner + m->samples * (late + *once);
}
