/* Time and memory of one layer for one micro-batch on one tensor parallel rank, and of the model's
 * two ends. Sources: docs/layout.md. */
#include "parts.h"

#include <math.h>

/* Kernels of a forward pass as Megatron-LM launches them: norms, products, transposes, scores,
 * softmax, dropout, bias and activation, residuals. Backward launches two for each. */
#define KERNELS 18.0
#define KERNELS_OF_SCORES 4.0 /* of which: what a fused attention does in one */
#define KERNELS_OF_EXPERTS 12.0
#define KERNELS_OF_HEAD 30.0
#define BACKWARD_KERNELS 2.0

/* Each of the two gradients reads the gradient of the output and one factor. */
#define BACKWARD_TRAFFIC 2.0
/* Gradients of inputs and of weights cost one product each. */
#define BACKWARD_PRODUCTS 2.0
/* A fused attention makes its scores anew: five products for forward's two (Dao et al. 2022). */
#define BACKWARD_FUSED 2.5
#define CAUSAL_SHARE 0.5 /* of the blocks that a fused attention computes */

/* The fused softmax of Megatron-LM needs a multiple of four of (sequence, head) pairs. */
#define SOFTMAX_BATCH 4

typedef struct scene {
    const ty_layout_question *q;
    const ty_layout *l;
    const ty_layout_shape *s;
    double tokens;   /* of a micro-batch on this rank */
    double t, split; /* tensor degree; 1/t where activations between parts are split, else 1 */
    double element;  /* bytes */
    double peak;
    double queries, keys; /* features of all heads; of keys alone */
    ty_layout_group tensor_group;
} scene;

/* Device seconds of a pass, and what the host takes to launch it. */
typedef struct pass {
    double product_s, score_s, bytes, kernels, collectives;
    double tensor_s, context_s, expert_s;
    double host_extra_s;
} pass;

static scene scene_of(const ty_layout_question *q, const ty_layout *l)
{
    const ty_layout_shape *s = &q->shape;
    return (scene){.q = q,
                   .l = l,
                   .s = s,
                   .tokens = (double)l->micro_batch * s->sequence / l->context,
                   .t = l->tensor,
                   .split = l->sequence_parallel ? 1.0 / l->tensor : 1.0,
                   .element = layout_element_bytes(l->precision),
                   .peak = layout_peak(&q->device, l->precision),
                   .queries = (double)s->heads * s->head_size,
                   .keys = (double)s->kv_heads * s->head_size,
                   .tensor_group = layout_group(&q->cluster, 1, l->tensor)};
}

/* ---- Products ----------------------------------------------------------------------------------
 */

static double edges(const scene *c, double m, double n, double k)
{
    double edge = c->q->constants.matmul_edge;
    return (1 + edge / m) * (1 + edge / n) * (1 + edge / k);
}

static double product(const scene *c, double peak, double m, double n, double k)
{
    return 2 * m * n * k / (peak * c->q->constants.matmul_efficiency) * edges(c, m, n, k);
}

/* Projections of attention. A layer with latents has other matrices of another size in all. */
static double projections(const scene *c)
{
    const ty_layout_shape *s = c->s;
    double h = s->hidden, plain = h * (2 * c->queries + 2 * c->keys);
    double in = product(c, c->peak, c->tokens, (c->queries + 2 * c->keys) / c->t, h);
    double out = product(c, c->peak, c->tokens, h, c->queries / c->t);
    return (in + out) * (s->attention_parameters / plain);
}

static double mlp(const scene *c, double tokens, double features)
{
    double matrices_in = c->s->is_gated ? 2 : 1, h = c->s->hidden;
    if (!(features > 0 && tokens > 0))
        return 0;
    return product(c, c->peak, tokens, matrices_in * features / c->t, h) +
           product(c, c->peak, tokens, h, features / c->t);
}

/* Share of the layers that have experts. */
static double expert_share(const scene *c)
{
    return layout_expert_layers(c->s) / c->s->layers;
}

static double feed_forward(const scene *c)
{
    const ty_layout_shape *s = c->s;
    double experts = expert_share(c), routed, local;
    double dense = (1 - experts) > 0 ? mlp(c, c->tokens, s->ffn) : 0;
    if (!(experts > 0))
        return dense;
    local = (double)s->experts / c->l->expert; /* on this rank, each with its share of the tokens */
    routed = c->tokens * s->experts_per_token * c->l->expert / s->experts;
    return (1 - experts) * dense +
           experts * (local * mlp(c, routed, s->expert_ffn) + mlp(c, c->tokens, s->shared_ffn));
}

/* Scores and values: both products for every head. */
static double scores(const scene *c)
{
    const ty_layout_shape *s = c->s;
    double peak = layout_peak(&c->q->device,
                              c->l->precision == TY_LAYOUT_FP8 ? TY_LAYOUT_HALF : c->l->precision);
    double rows = (double)s->sequence / c->l->context;
    double one = product(c, peak, rows, s->sequence, s->head_size);
    double causal = s->is_fused && s->is_causal ? CAUSAL_SHARE : 1;
    return 2 * one * c->l->micro_batch * s->heads / c->t * causal;
}

/* ---- Memory traffic of forward ------------------------------------------------------------------
 */

static double score_traffic(const scene *c)
{
    const ty_layout_shape *s = c->s;
    double dropout = s->has_dropout ? 2 * c->element + 1 : 0;
    if (s->is_fused)
        return 0;
    return c->tokens * s->sequence * s->heads / c->t * (2 * c->element + dropout);
}

static double traffic(const scene *c)
{
    const ty_layout_shape *s = c->s;
    double h = s->hidden, e = c->element, mask = s->has_dropout ? 1 : 0;
    double experts = expert_share(c);
    double features = (1 - experts) * s->ffn +
                      experts * ((double)s->experts_per_token * s->expert_ffn + s->shared_ffn);
    double whole = 2 * (2 * e * h) + 2 * ((3 * e + mask) * h); /* norms; residuals */
    double shared = (s->is_gated ? 3 : 2) * e * features +     /* activation */
                    2 * e * (c->queries + 2 * c->keys) +       /* heads out of the product, in */
                    2 * e * c->queries;
    double permuted = experts * 4 * e * h * s->experts_per_token; /* to the experts and back */
    return c->tokens * (whole * c->split + shared / c->t + permuted * c->split);
}

/* ---- Communication inside a layer
 * ----------------------------------------------------------------- */

/* Sums of activations over the tensor parallel ranks: `count` all-reduces, or as many pairs of
 * all-gather and reduce-scatter with sequence parallelism. In pieces they hide behind the products
 * beside them, all but the first piece. */
static double sums(const scene *c, double count, double product_s)
{
    double bytes = c->tokens * c->s->hidden * c->element, all, pieces;
    if (c->l->tensor == 1)
        return 0;
    all = c->l->sequence_parallel
              ? layout_collect(c->q, TY_ALL_GATHER, &c->tensor_group, bytes) +
                    layout_collect(c->q, TY_REDUCE_SCATTER, &c->tensor_group, bytes)
              : layout_collect(c->q, TY_ALL_REDUCE, &c->tensor_group, bytes);
    all *= count;
    if (!c->l->overlap_tensor)
        return all;
    pieces = c->t;
    return all / pieces + fmax(0, (all - product_s) * (1 - 1 / pieces)) +
           c->q->constants.overlap_loss * fmin(all, product_s);
}

/* Keys and values of the other ranks arrive while scores are computed (ring attention). */
static double ring(const scene *c, double tensors, double score_s)
{
    ty_layout_group group = layout_group(&c->q->cluster, c->l->tensor, c->l->context);
    double bytes = tensors * c->tokens * c->l->context * c->keys / c->t * c->element;
    if (c->l->context == 1)
        return 0;
    return fmax(0, layout_collect(c->q, TY_ALL_GATHER, &group, bytes) - score_s);
}

/* Tokens travel to their experts and back. */
static double exchange(const scene *c)
{
    ty_layout_group group = layout_group(&c->q->cluster, c->l->tensor, c->l->expert);
    double bytes = c->tokens * c->split * c->s->experts_per_token * c->s->hidden * c->element;
    if (c->l->expert == 1)
        return 0;
    return 2 * expert_share(c) * layout_all_to_all(c->q, &group, bytes);
}

/* ---- Passes
 * --------------------------------------------------------------------------------------- */

static bool is_softmax_unfused(const scene *c)
{
    return !c->s->is_fused &&
           ((uint64_t)c->l->micro_batch * c->s->heads / c->l->tensor) % SOFTMAX_BATCH != 0;
}

static pass forward_of(const scene *c)
{
    double kernels = KERNELS - (c->s->is_fused ? KERNELS_OF_SCORES - 1 : 0);
    pass p = {.product_s = projections(c) + feed_forward(c),
              .score_s = scores(c),
              .bytes = traffic(c) + score_traffic(c),
              .kernels = kernels + KERNELS_OF_EXPERTS * expert_share(c),
              .collectives = c->l->tensor > 1 ? 2 : 0,
              .host_extra_s = is_softmax_unfused(c) ? c->q->constants.host_unfused_s : 0};
    p.tensor_s = sums(c, 2, p.product_s);
    p.context_s = ring(c, 2, p.score_s);
    p.expert_s = exchange(c);
    return p;
}

static double layer_weights(const scene *c)
{
    layout_parameters p = layout_parameters_of(c->s);
    return (p.layer + p.experts / c->l->expert) / c->t;
}

static pass backward_of(const scene *c, const pass *forward)
{
    double accumulated = layer_weights(c) * (2 * c->element + 2 * c->q->gradient_bytes);
    pass p = {.product_s = BACKWARD_PRODUCTS * forward->product_s,
              .score_s = (c->s->is_fused ? BACKWARD_FUSED : BACKWARD_PRODUCTS) * forward->score_s,
              .bytes = BACKWARD_TRAFFIC * forward->bytes + accumulated,
              .kernels = BACKWARD_KERNELS * forward->kernels,
              .collectives = forward->collectives,
              .host_extra_s = forward->host_extra_s};
    p.tensor_s = sums(c, 2, p.product_s);
    p.context_s = ring(c, 4, p.score_s); /* and their gradients */
    p.expert_s = forward->expert_s;
    return p;
}

/* What is done again before backward. */
static pass again_of(const scene *c, const pass *forward)
{
    if (c->l->recompute == TY_LAYOUT_FULL)
        return *forward;
    if (c->l->recompute == TY_LAYOUT_KEEP_ALL || c->s->is_fused)
        return (pass){0};
    return (pass){.score_s = forward->score_s,
                  .bytes = score_traffic(c),
                  .kernels = KERNELS_OF_SCORES,
                  .host_extra_s = forward->host_extra_s};
}

static double device_s(const scene *c, const pass *p)
{
    const ty_layout_constants *k = &c->q->constants;
    double bandwidth = c->q->device.memory_bandwidth_bytes_per_s * k->memory_efficiency;
    return p->product_s + p->score_s + p->bytes / bandwidth + p->kernels * k->kernel_s;
}

/* The longer of device and host; communication that the host's time hides is not exposed. */
static double pass_s(const scene *c, const pass *p, layout_cell *out)
{
    const ty_layout_constants *k = &c->q->constants;
    double host =
        p->kernels * k->host_kernel_s + p->collectives * k->host_collective_s + p->host_extra_s;
    double own = device_s(c, p), talk = p->tensor_s + p->context_s + p->expert_s;
    double all = fmax(own + talk, host), exposed = all - fmax(own, host);
    double share = talk > 0 ? exposed / talk : 0;

    out->tensor_s += share * p->tensor_s;
    out->context_s += share * p->context_s;
    out->expert_s += share * p->expert_s;
    return all;
}

/* ---- Ends
 * ------------------------------------------------------------------------------------------- */

static double embedding(const scene *c)
{
    const ty_layout_constants *k = &c->q->constants;
    double bandwidth = c->q->device.memory_bandwidth_bytes_per_s * k->memory_efficiency;
    double rows = c->tokens * c->s->hidden * c->element;
    double matrix = (double)c->s->vocabulary * c->s->hidden / c->t;
    double bytes = 4 * rows + matrix * (c->element + 2 * c->q->gradient_bytes);
    double sum =
        c->l->tensor == 1 ? 0 : layout_collect(c->q, TY_ALL_REDUCE, &c->tensor_group, rows);
    return bytes / bandwidth + sum;
}

static double head(const scene *c)
{
    const ty_layout_constants *k = &c->q->constants;
    double bandwidth = c->q->device.memory_bandwidth_bytes_per_s * k->memory_efficiency;
    double peak = layout_peak(&c->q->device,
                              c->l->precision == TY_LAYOUT_FP8 ? TY_LAYOUT_HALF : c->l->precision);
    double columns = c->s->vocabulary / c->t;
    double products = 3 * product(c, peak, c->tokens, columns, c->s->hidden);
    double bytes = c->tokens * columns * k->logit_bytes +
                   columns * c->s->hidden * (2 * c->element + 2 * c->q->gradient_bytes);
    double host = KERNELS_OF_HEAD * k->host_kernel_s;
    double sum = c->l->tensor == 1
                     ? 0
                     : layout_collect(c->q, TY_ALL_REDUCE, &c->tensor_group,
                                      c->tokens * c->s->hidden * c->element) +
                           3 * layout_collect(c->q, TY_ALL_REDUCE, &c->tensor_group, 4 * c->tokens);
    return fmax(products + bytes / bandwidth + KERNELS_OF_HEAD * k->kernel_s + sum, host);
}

/* ---- Memory: Korthikanti et al. 2022, section 4, for layers of any sizes
 * ------------------------------- */

static double score_bytes(const scene *c)
{
    double dropout = c->s->has_dropout ? c->element + 1 : 0;
    if (c->s->is_fused)
        return 0;
    return c->tokens * c->s->sequence * c->s->heads / c->t * (c->element + dropout);
}

static double all_bytes(const scene *c)
{
    const ty_layout_shape *s = c->s;
    double h = s->hidden, e = c->element, mask = s->has_dropout ? 1 : 0;
    double experts = expert_share(c);
    double features = (1 - experts) * s->ffn +
                      experts * ((double)s->experts_per_token * s->expert_ffn + s->shared_ffn);
    /* Inputs of both norms, of the projection and of the mlp; masks of both dropouts. */
    double whole = (4 * e + 2 * mask) * h + experts * e * h * s->experts_per_token;
    /* Queries, keys, values, what goes to the output projection; both sides of the activation. */
    double shared = e * (2 * c->queries + 2 * c->keys) + (s->is_gated ? 3 : 2) * e * features;
    return c->tokens * (whole * c->split + shared / c->t) + score_bytes(c);
}

static void memory(const scene *c, layout_cell *out)
{
    const ty_layout_shape *s = c->s;
    double row = c->tokens * s->hidden * c->element, all = all_bytes(c);
    double widest = fmax(s->ffn, c->queries + 2 * c->keys) / c->t;

    out->kept_bytes = all;
    /* The gradients of a layer's input and of its widest tensor. */
    out->layer_bytes = 2 * row + 2 * c->tokens * widest * c->element;
    if (c->l->recompute == TY_LAYOUT_SELECTIVE) {
        out->kept_bytes = all - score_bytes(c);
        out->layer_bytes += score_bytes(c);
    } else if (c->l->recompute == TY_LAYOUT_FULL) {
        out->kept_bytes = row * c->split;
        out->layer_bytes += all;
    }
    /* fp32 logits; the norm's and the head's inputs. */
    out->head_bytes = 4 * c->tokens * s->vocabulary / c->t + row * (1 + c->split);
    out->embedding_bytes = s->has_dropout ? c->tokens * s->hidden * c->split : 0;
    out->message_bytes = row;
}

void layout_cell_of(const ty_layout_question *q, const ty_layout *l, layout_cell *out)
{
    scene c = scene_of(q, l);
    pass forward = forward_of(&c), backward = backward_of(&c, &forward);
    pass again = again_of(&c, &forward);

    *out = (layout_cell){0};
    out->forward_s = pass_s(&c, &forward, out);
    out->backward_s = pass_s(&c, &backward, out);
    out->recompute_s = pass_s(&c, &again, out);
    out->weight_s = fmin(backward.product_s / BACKWARD_PRODUCTS, out->backward_s / 2);
    out->embedding_s = embedding(&c);
    out->head_s = head(&c);
    memory(&c, out);
}
