/* Time of a step: the pipeline over its micro-batches, then what is exposed of the exchange of
 * gradients, then the optimizer. Sources: docs/layout.md. */
#include "parts.h"

#include <math.h>

/* Passes over the gradients that an encoder makes: a conversion reads and writes once; the largest
 * magnitudes are found in some ten passes (bisection on the threshold), as are their values. */
#define CONVERT_BYTES 6.0 /* fp32 in, fp16 out */
#define SELECT_BYTES 40.0
#define TOP_K_SHARE 0.01
#define TOP_K_BYTES 8.0 /* value and index */
#define HALF_BYTES 2.0

/* ---- Exchange of gradients --------------------------------------------------------------------
 */

/* All that the ranks which hold the same numbers have to tell each other. */
typedef struct exchange {
    double reduce_s, last_s; /* of a whole exchange, and of its last bucket */
    double gather_s;         /* parameters after the update, or before each pass */
} exchange;

static double wire_bytes(const ty_layout_question *q, const ty_layout *l)
{
    return layout_is_cast(l->compression) ? fmin(HALF_BYTES, q->gradient_bytes) : q->gradient_bytes;
}

static double memory_s(const ty_layout_question *q, double bytes)
{
    return bytes / (q->device.memory_bandwidth_bytes_per_s * q->constants.memory_efficiency);
}

static double encode_s(const ty_layout_question *q, const ty_layout *l, double count)
{
    if (l->compression == TY_COMPRESSION_TOP_K)
        return memory_s(q, SELECT_BYTES * count);
    if (layout_is_cast(l->compression) && q->gradient_bytes > HALF_BYTES)
        return memory_s(q, 2 * CONVERT_BYTES * count); /* and back */
    return 0;
}

static double reduce_s(const ty_layout_question *q, const ty_layout *l,
                       const ty_layout_group *group, double count)
{
    ty_collective_kind kind = l->zero >= 1 ? TY_REDUCE_SCATTER : TY_ALL_REDUCE;
    if (group->members < 2)
        return 0;
    if (l->compression == TY_COMPRESSION_TOP_K)
        return encode_s(q, l, count) +
               layout_collect(q, TY_ALL_GATHER, group,
                              TOP_K_BYTES * TOP_K_SHARE * count * group->members);
    return encode_s(q, l, count) + layout_collect(q, kind, group, wire_bytes(q, l) * count);
}

static exchange exchange_of(const ty_layout_question *q, const ty_layout *l,
                            const ty_layout_group *group, double count)
{
    double bucket = l->bucket_bytes > 0 ? (double)l->bucket_bytes / 4 : count;
    double buckets = fmax(1, ceil(count / bucket));
    exchange e = {0};
    if (group->members < 2 || !(count > 0))
        return e;
    e.last_s = reduce_s(q, l, group, count / buckets);
    e.reduce_s = buckets * e.last_s;
    if (l->zero >= 1)
        e.gather_s =
            layout_collect(q, TY_ALL_GATHER, group, layout_element_bytes(l->precision) * count);
    return e;
}

/* Numbers that all replicas share, and experts, which have fewer replicas. */
static exchange exchange_of_stage(const ty_layout_question *q, const ty_layout *l,
                                  const layout_share *share)
{
    uint32_t replicas = l->context * l->data;
    ty_layout_group all = layout_group(&q->cluster, l->tensor, replicas);
    exchange dense = exchange_of(q, l, &all, share->dense), sparse;
    ty_layout_group some;

    if (!(share->experts > 0))
        return dense;
    some = layout_group(&q->cluster, l->tensor * l->expert, replicas / l->expert);
    sparse = exchange_of(q, l, &some, share->experts);
    return (exchange){dense.reduce_s + sparse.reduce_s, fmax(dense.last_s, sparse.last_s),
                      dense.gather_s + sparse.gather_s};
}

/* What is left of communication beside compute that takes `window`, the last bucket apart; and what
 * the compute loses by it. */
static double exposed(const ty_layout_question *q, double all_s, double last_s, double window_s)
{
    double rest = all_s - last_s;
    return last_s + fmax(0, rest - window_s) + q->constants.overlap_loss * fmin(rest, window_s);
}

/* ---- Stages -------------------------------------------------------------------------------------
 */

typedef struct stage {
    double layers, end_s;
    double slot_s;     /* forward and backward of a micro-batch, without transfers */
    double transfer_s; /* between two micro-batches: there and back with each neighbour */
    layout_share share;
    exchange exchange;
    double sharded_s; /* exposed per micro-batch: ZeRO-2 and ZeRO-3 */
} stage;

/* Gradients are reduced for each micro-batch where no device keeps them all (ZeRO-2), and
 * parameters gathered for each pass where none keeps those (ZeRO-3). */
static double sharded_s(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                        const stage *s)
{
    double forward = s->layers * cell->forward_s;
    double backward = s->layers * (cell->backward_s + cell->recompute_s);
    double reduce = l->zero >= 2 ? s->exchange.reduce_s : 0;
    double gather = l->zero >= 3 ? s->exchange.gather_s : 0;

    if (l->context * l->data < 2 || l->zero < 2)
        return 0;
    if (!l->overlap_gradients)
        return 2 * gather + reduce;
    return exposed(q, gather, gather / s->layers, forward) +
           exposed(q, gather + reduce, (gather + reduce) / s->layers, backward);
}

static stage stage_of(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                      double layers, double end_s, double transfer_s, layout_share share)
{
    stage s = {.layers = layers, .end_s = end_s, .transfer_s = transfer_s, .share = share};
    s.exchange = exchange_of_stage(q, l, &share);
    s.sharded_s = sharded_s(q, l, cell, &s);
    s.slot_s = layers * (cell->forward_s + cell->backward_s + cell->recompute_s) + end_s +
               q->constants.host_slot_s + s.sharded_s;
    return s;
}

/* Exposed exchange at the end of the step; with overlap it hides behind the backward of the last
 * micro-batch, and the gathering of updated parameters behind the next forward. */
static double data_s(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                     const stage *s)
{
    double forward = s->layers * cell->forward_s;
    double backward = s->layers * (cell->backward_s + cell->recompute_s);
    double gather = l->zero == 3 ? 0 : s->exchange.gather_s;
    double reduce = l->zero >= 2 ? 0 : s->exchange.reduce_s;
    if (!l->overlap_gradients)
        return reduce + gather;
    return exposed(q, reduce, fmin(reduce, s->exchange.last_s), backward) +
           exposed(q, gather, gather / s->layers, forward);
}

static double optimizer_s(const ty_layout_question *q, const ty_layout *l, const stage *s)
{
    double replicas = (double)l->context * l->data, count = s->share.dense + s->share.experts;
    if (l->zero >= 1)
        count = s->share.dense / replicas + s->share.experts * l->expert / replicas;
    return memory_s(q, count * q->constants.optimizer_bytes) + q->constants.host_step_s;
}

/* The matrix of a tied embedding is in the first stage and in the last. */
static double tied_s(const ty_layout_question *q, const ty_layout *l)
{
    ty_layout_group pair;
    if (!q->shape.is_tied || l->pipeline == 1)
        return 0;
    pair = layout_group(&q->cluster, l->tensor * l->context * l->data, 2);
    return layout_collect(q, TY_ALL_REDUCE, &pair,
                          wire_bytes(q, l) * q->shape.vocabulary * q->shape.hidden / l->tensor);
}

/* ---- The pipeline
 * --------------------------------------------------------------------------------- */

typedef struct pipeline {
    stage first, middle, last;
    const stage *slowest;
    double sum_s; /* of one micro-batch's slots over all stages */
} pipeline;

static void take(pipeline *p, const stage *s)
{
    if (p->slowest == NULL ||
        s->slot_s + s->transfer_s > p->slowest->slot_s + p->slowest->transfer_s)
        p->slowest = s;
}

/* What a stage sends to a neighbour and what it receives from it pass each other. */
static void pipeline_of(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                        pipeline *out)
{
    layout_stages layers = layout_stages_of(q->shape.layers, l->pipeline);
    double both = l->pipeline == 1 ? cell->head_s : 0;
    double pass = layout_send(q, l, cell->message_bytes) * l->interleave;

    out->slowest = NULL;
    out->first = stage_of(q, l, cell, layers.first, cell->embedding_s + both, pass,
                          layout_first_share(q, l));
    take(out, &out->first);
    out->sum_s = out->first.slot_s;
    if (l->pipeline > 2) {
        out->middle = stage_of(q, l, cell, layers.middle, 0, 2 * pass, layout_middle_share(q, l));
        take(out, &out->middle);
        /* What does not divide makes some of the middle stages longer, not all. */
        out->sum_s += (q->shape.layers - layers.first - layers.last) *
                          (cell->forward_s + cell->backward_s + cell->recompute_s) +
                      (l->pipeline - 2) * (q->constants.host_slot_s + out->middle.sharded_s);
    }
    if (l->pipeline > 1) {
        out->last = stage_of(q, l, cell, layers.last, cell->head_s, pass, layout_last_share(q, l));
        take(out, &out->last);
        out->sum_s += out->last.slot_s;
    }
}

/* Filling and draining. 1F1B and GPipe: every other stage's slot once; of v chunks, 1/v of it
 * (Narayanan et al. 2021); zero bubble: gradients of weights fill two thirds (Qi et al. 2024). */
static double bubble_s(const ty_layout *l, const layout_cell *cell, const pipeline *p,
                       double layers)
{
    double fill = p->sum_s - p->slowest->slot_s;
    if (l->schedule == TY_LAYOUT_ZERO_BUBBLE)
        return fmax(0, fill - 2 * (layers - p->slowest->layers) * cell->weight_s);
    return fill / l->interleave;
}

static double data_hosts(const ty_layout_question *q, const ty_layout *l)
{
    ty_layout_group g = layout_group(&q->cluster, l->tensor, l->context * l->data);
    return (double)g.members / g.members_per_host;
}

/* The exchange of the stage that needs longest. */
static double longest_data_s(const ty_layout_question *q, const ty_layout *l,
                             const layout_cell *cell, const pipeline *p)
{
    double longest = data_s(q, l, cell, &p->first);
    if (l->pipeline > 2)
        longest = fmax(longest, data_s(q, l, cell, &p->middle));
    if (l->pipeline > 1)
        longest = fmax(longest, data_s(q, l, cell, &p->last));
    return longest + tied_s(q, l);
}

static double longest_optimizer_s(const ty_layout_question *q, const ty_layout *l,
                                  const pipeline *p)
{
    double longest = optimizer_s(q, l, &p->first);
    if (l->pipeline > 1)
        longest = fmax(longest, optimizer_s(q, l, &p->last));
    if (l->pipeline > 2)
        longest = fmax(longest, optimizer_s(q, l, &p->middle));
    return longest;
}

static void divide(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                   const stage *s, ty_layout_estimate *out)
{
    double passes = (double)layout_micro_batches(q, l) * s->layers;
    double talk = cell->tensor_s + cell->context_s + cell->expert_s;
    double work = cell->forward_s + cell->backward_s;
    double again = l->recompute == TY_LAYOUT_KEEP_ALL ? 0 : cell->recompute_s;

    out->tensor_s = passes * cell->tensor_s;
    out->context_s = passes * cell->context_s;
    out->expert_s = passes * cell->expert_s;
    /* Communication of the recomputed pass counts as communication. */
    out->recompute_s = passes * fmax(0, again - talk * again / (work + again));
    out->compute_s = passes * (work + again - talk) - out->recompute_s;
    out->data_s += layout_micro_batches(q, l) * s->sharded_s;
}

void layout_time_with(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                      ty_layout_estimate *out)
{
    double m = layout_micro_batches(q, l), send = layout_send(q, l, cell->message_bytes), skew;
    double flop = ty_layout_model_flop(&q->shape, q->global_batch);
    pipeline p;

    pipeline_of(q, l, cell, &p);
    out->data_s = longest_data_s(q, l, cell, &p);
    divide(q, l, cell, p.slowest, out);
    out->bubble_s = bubble_s(l, cell, &p, q->shape.layers);
    out->transfer_s = (m - 1) * p.slowest->transfer_s + 2 * send * (l->pipeline - 1);
    out->optimizer_s = longest_optimizer_s(q, l, &p);
    out->other_s = m * (p.slowest->end_s + q->constants.host_slot_s);
    skew = q->constants.data_skew * log2(data_hosts(q, l));
    out->other_s += skew * (m * p.slowest->slot_s + out->bubble_s);
    out->step_time_s = out->compute_s + out->recompute_s + out->tensor_s + out->context_s +
                       out->expert_s + out->transfer_s + out->bubble_s + out->data_s +
                       out->optimizer_s + out->other_s;
    out->model_flop_utilisation =
        flop / (out->step_time_s * q->cluster.devices * layout_peak(&q->device, l->precision));
}

ty_status ty_layout_estimate_of(const ty_layout_question *question, const ty_layout *layout,
                                ty_layout_estimate *out, ty_error *error)
{
    ty_status status = ty_layout_check(question, layout, error);
    layout_cell cell;

    if (status != TY_OK)
        return status;
    layout_cell_of(question, layout, &cell);
    layout_memory_with(question, layout, &cell, &out->memory);
    layout_time_with(question, layout, &cell, out);
    return TY_OK;
}
