/* Memory of the device that needs most: of the first stage, which has most micro-batches in flight,
 * of the second, which may have more layers, or of the last, which has the logits. */
#include "parts.h"

#include <math.h>

/* Adam in mixed precision keeps a master copy and two moments in fp32; with half parameters and
 * fp32 gradients that is 18 bytes per parameter. Source: Megatron-LM's memory estimate. */
#define OPTIMIZER_BYTES 12.0
#define OPTIMIZER_BYTES_FP32 8.0 /* the parameters are the master copy */
#define MESSAGES 4               /* activation and gradient, each way */
#define GATHERED_LAYERS 2        /* ZeRO-3: the one at work and the next */
#define ERROR_FEEDBACK_BYTES 4   /* per parameter, of sparse gradients */

typedef struct stage {
    layout_share share;
    double layers, in_flight; /* micro-batches */
    double kept_bytes;        /* by an end of the model, per micro-batch in flight */
    double end_bytes;         /* while an end is at work */
} stage;

/* Micro-batches alive on stage i; of chunks, v times as many, each 1/v of the stage's layers.
 * Source: Narayanan et al. 2021, section 2.2; Korthikanti et al. 2022, section 4.2.3. */
static double in_flight(const ty_layout_question *q, const ty_layout *l, uint32_t i)
{
    double m = layout_micro_batches(q, l), p = l->pipeline, v = l->interleave;
    if (l->schedule == TY_LAYOUT_GPIPE || p < 2)
        return p < 2 ? 1 : m;
    if (l->interleave == 1)
        return fmin(p - i, m);
    return fmin((2 * (p - i - 1) + (v - 1) * p + 1) / v, m);
}

static double replicas(const ty_layout *l)
{
    return (double)l->data * l->context;
}

static void states(const ty_layout_question *q, const ty_layout *l, const layout_share *s,
                   ty_layout_memory *out)
{
    double dense = replicas(l), sparse = dense / l->expert;
    double all = s->dense + s->experts, sharded = s->dense / dense + s->experts / sparse;
    double element = layout_element_bytes(l->precision);

    out->parameters = element * (l->zero >= 3 ? sharded : all);
    out->gradients = q->gradient_bytes * (l->zero >= 2 ? sharded : all);
    out->optimizer = (l->precision == TY_LAYOUT_FP32 ? OPTIMIZER_BYTES_FP32 : OPTIMIZER_BYTES) *
                     (l->zero >= 1 ? sharded : all);
}

static double wire_buffers(const ty_layout_question *q, const ty_layout *l, const layout_share *s)
{
    double all = s->dense + s->experts, bytes = 0;
    double bucket = l->bucket_bytes > 0 ? fmin((double)l->bucket_bytes / 4, all) : all;
    if (replicas(l) < 2)
        return 0;
    if (layout_is_cast(l->compression) && q->gradient_bytes > 2)
        bytes += 2 * bucket;
    if (l->compression == TY_COMPRESSION_TOP_K)
        bytes += ERROR_FEEDBACK_BYTES * all;
    if (l->overlap_gradients)
        bytes += q->gradient_bytes * bucket;
    return bytes;
}

static double buffers(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                      const stage *s)
{
    double bytes = wire_buffers(q, l, &s->share);
    if (l->pipeline > 1)
        bytes += MESSAGES * cell->message_bytes;
    if (l->zero >= 3)
        bytes += GATHERED_LAYERS * layout_element_bytes(l->precision) *
                 (s->share.dense + s->share.experts) / s->layers;
    return bytes;
}

static void stage_memory(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                         const stage *s, ty_layout_memory *out)
{
    states(q, l, &s->share, out);
    out->activations = s->in_flight * (s->layers * cell->kept_bytes + s->kept_bytes);
    out->transient = fmax(cell->layer_bytes, s->end_bytes);
    out->buffers = buffers(q, l, cell, s);
    out->reserve = q->constants.context_bytes +
                   q->constants.memory_waste * (out->activations + out->transient);
    out->total = out->parameters + out->gradients + out->optimizer + out->activations +
                 out->transient + out->buffers + out->reserve;
}

static void keep_larger(const ty_layout_memory *memory, ty_layout_memory *out)
{
    if (memory->total > out->total)
        *out = *memory;
}

void layout_memory_with(const ty_layout_question *q, const ty_layout *l, const layout_cell *cell,
                        ty_layout_memory *out)
{
    layout_stages layers = layout_stages_of(q->shape.layers, l->pipeline);
    /* Logits and their gradient. */
    double logits = cell->head_bytes + 4.0 * l->micro_batch * q->shape.sequence *
                                           q->shape.vocabulary / ((double)l->tensor * l->context);
    stage first = {.share = layout_first_share(q, l),
                   .layers = layers.first,
                   .in_flight = in_flight(q, l, 0),
                   .kept_bytes = cell->embedding_bytes,
                   .end_bytes = l->pipeline == 1 ? logits : 0};
    ty_layout_memory other;

    stage_memory(q, l, cell, &first, out);
    if (l->pipeline > 2) {
        stage middle = {layout_middle_share(q, l), layers.middle, in_flight(q, l, 1), 0, 0};
        stage_memory(q, l, cell, &middle, &other);
        keep_larger(&other, out);
    }
    if (l->pipeline > 1) {
        stage last = {layout_last_share(q, l), layers.last, in_flight(q, l, l->pipeline - 1), 0,
                      logits};
        stage_memory(q, l, cell, &last, &other);
        keep_larger(&other, out);
    }
}

void ty_layout_memory_of(const ty_layout_question *question, const ty_layout *layout,
                         ty_layout_memory *out)
{
    layout_cell cell;
    layout_cell_of(question, layout, &cell);
    layout_memory_with(question, layout, &cell, out);
}
