/* Which layouts are layouts at all, their names and their order. */
#include "parts.h"

#include <stdio.h>
#include <string.h>

const char *ty_layout_schedule_name(ty_layout_schedule schedule)
{
    static const char *const names[] = {"gpipe", "1f1b", "zb-h1"};
    return (unsigned)schedule < TY_LAYOUT_SCHEDULE_COUNT ? names[schedule] : "?";
}

const char *ty_layout_recompute_name(ty_layout_recompute recompute)
{
    static const char *const names[] = {"none", "selective", "full"};
    return (unsigned)recompute < TY_LAYOUT_RECOMPUTE_COUNT ? names[recompute] : "?";
}

const char *ty_layout_precision_name(ty_layout_precision precision)
{
    static const char *const names[] = {"half", "fp8", "fp32"};
    return (unsigned)precision < TY_LAYOUT_PRECISION_COUNT ? names[precision] : "?";
}

void ty_layout_text(const ty_layout *l, char out[TY_LAYOUT_TEXT_SIZE])
{
    char chunks[16] = "", context[16] = "", expert[16] = "";
    if (l->interleave > 1)
        snprintf(chunks, sizeof chunks, " x %u", l->interleave);
    if (l->context > 1)
        snprintf(context, sizeof context, ", cp %u", l->context);
    if (l->expert > 1)
        snprintf(expert, sizeof expert, ", ep %u", l->expert);
    snprintf(out, TY_LAYOUT_TEXT_SIZE,
             "tp %u%s%s%s, pp %u%s %s, dp %u, micro-batch %u, %s recompute, zero %u%s%s", l->tensor,
             l->sequence_parallel ? "+sp" : "", context, expert, l->pipeline, chunks,
             ty_layout_schedule_name(l->schedule), l->data, l->micro_batch,
             l->recompute == TY_LAYOUT_KEEP_ALL ? "no" : ty_layout_recompute_name(l->recompute),
             l->zero, l->overlap_gradients || l->overlap_tensor ? ", overlap" : "",
             l->compression == TY_COMPRESSION_NONE ? "" : ", compressed");
}

static int order(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

int ty_layout_compare(const ty_layout *a, const ty_layout *b)
{
    const int orders[] = {order(a->tensor, b->tensor),
                          order(a->context, b->context),
                          order(a->expert, b->expert),
                          order(a->pipeline, b->pipeline),
                          order(a->data, b->data),
                          order(a->interleave, b->interleave),
                          order(a->micro_batch, b->micro_batch),
                          order(a->zero, b->zero),
                          order(a->schedule, b->schedule),
                          order(a->recompute, b->recompute),
                          order(a->precision, b->precision),
                          order(a->compression, b->compression),
                          order(a->sequence_parallel, b->sequence_parallel),
                          order(a->overlap_gradients, b->overlap_gradients),
                          order(a->overlap_tensor, b->overlap_tensor),
                          order(a->bucket_bytes, b->bucket_bytes)};
    for (size_t i = 0; i < sizeof orders / sizeof *orders; i++)
        if (orders[i] != 0)
            return orders[i];
    return 0;
}

/* ---- Rules ----------------------------------------------------------------------------------- */

static const char *broken_degree(const ty_layout_question *q, const ty_layout *l)
{
    const ty_layout_shape *s = &q->shape;
    uint64_t product = (uint64_t)l->tensor * l->context;

    if (l->tensor == 0 || l->context == 0 || l->expert == 0 || l->pipeline == 0 || l->data == 0 ||
        l->interleave == 0 || l->micro_batch == 0)
        return "degrees and micro-batch are at least 1";
    if (l->tensor > s->heads || s->heads % l->tensor != 0 || s->ffn % l->tensor != 0)
        return "tensor divides heads and ffn";
    if (s->kv_heads % l->tensor != 0 && l->tensor % s->kv_heads != 0)
        return "tensor divides the key-value heads, or they divide it";
    if (s->sequence % (l->context == 1 ? 1 : 2 * (uint64_t)l->context) != 0)
        return "2 context divides the sequence";
    if (l->sequence_parallel && s->sequence % product != 0)
        return "with sequence parallelism tensor x context divides the sequence";
    if (l->pipeline > s->layers || (uint64_t)l->pipeline * l->interleave > s->layers)
        return "each stage and chunk has a layer";
    if (product * l->pipeline > q->cluster.devices ||
        product * l->pipeline * l->data != q->cluster.devices)
        return "tensor x context x pipeline x data is the number of devices";
    if (s->experts == 0
            ? l->expert != 1
            : s->experts % l->expert != 0 || (uint64_t)l->context * l->data % l->expert != 0)
        return "expert divides the experts and context x data";
    return NULL;
}

static const char *broken_batch(const ty_layout_question *q, const ty_layout *l)
{
    uint64_t step = (uint64_t)l->data * l->micro_batch;
    uint32_t micro_batches;

    if (q->global_batch % step != 0)
        return "data x micro-batch divides the global batch";
    micro_batches = (uint32_t)(q->global_batch / step);
    if (l->interleave > 1 &&
        (l->pipeline == 1 || micro_batches % l->pipeline != 0 || l->schedule != TY_LAYOUT_1F1B))
        return "interleaving is for 1f1b, and stages divide the micro-batches";
    if (l->schedule == TY_LAYOUT_ZERO_BUBBLE && (l->pipeline == 1 || micro_batches < l->pipeline))
        return "zero bubble needs stages, and as many micro-batches";
    return NULL;
}

bool layout_compresses(ty_compression_kind kind)
{
    return kind == TY_COMPRESSION_NONE || layout_is_cast(kind) || kind == TY_COMPRESSION_TOP_K;
}

bool layout_is_cast(ty_compression_kind kind)
{
    return kind == TY_COMPRESSION_FP16 || kind == TY_COMPRESSION_BF16;
}

static const char *broken_choice(const ty_layout_question *q, const ty_layout *l)
{
    bool has_replicas = (uint64_t)l->context * l->data > 1;

    if ((unsigned)l->schedule >= TY_LAYOUT_SCHEDULE_COUNT ||
        (unsigned)l->recompute >= TY_LAYOUT_RECOMPUTE_COUNT ||
        (unsigned)l->precision >= TY_LAYOUT_PRECISION_COUNT ||
        (unsigned)l->compression >= TY_COMPRESSION_COUNT || l->zero > 3)
        return "names and stages that are known";
    if (!layout_compresses(l->compression))
        return "compression is none, fp16, bf16 or top-k";
    if (l->schedule == TY_LAYOUT_GPIPE && l->pipeline == 1)
        return "gpipe needs stages";
    if (l->tensor == 1 && (l->sequence_parallel || l->overlap_tensor))
        return "sequence parallelism and its overlap need tensor parallelism";
    if (l->overlap_tensor && l->tensor > q->cluster.devices_per_host)
        return "overlap of tensor parallelism needs direct links: groups inside a host";
    if (l->recompute == TY_LAYOUT_SELECTIVE && q->shape.is_fused)
        return "selective recomputation is for attention that keeps its scores";
    if (!has_replicas && (l->zero > 0 || l->overlap_gradients || l->bucket_bytes > 0 ||
                          l->compression != TY_COMPRESSION_NONE))
        return "zero, overlap, buckets and compression need replicas";
    if (l->compression == TY_COMPRESSION_TOP_K && l->zero > 0)
        return "sparse gradients cannot be scattered";
    if (!l->overlap_gradients && l->bucket_bytes > 0)
        return "buckets are for overlap";
    if (!(layout_peak(&q->device, l->precision) > 0))
        return "the device computes in that precision";
    return NULL;
}

const char *layout_broken_rule(const ty_layout_question *q, const ty_layout *l)
{
    const char *rule = broken_degree(q, l);
    if (rule == NULL)
        rule = broken_batch(q, l);
    if (rule == NULL)
        rule = broken_choice(q, l);
    return rule;
}

ty_status ty_layout_check(const ty_layout_question *question, const ty_layout *layout,
                          ty_error *error)
{
    const char *rule = layout_broken_rule(question, layout);
    char text[TY_LAYOUT_TEXT_SIZE];
    if (rule == NULL)
        return TY_OK;
    ty_layout_text(layout, text);
    return ty_fail(error, TY_EINVAL, "layout %s: breaks the rule: %s", text, rule);
}
