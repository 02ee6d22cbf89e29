/*
 * Mixture of experts (Shazeer et al., 2017): a router scores every token for every expert. A fixed
 * number of best experts, which are mlps, process the token. Their outputs are summed, weighted by
 * the softmax of the chosen experts' scores (Jiang et al., "Mixtral of experts", 2024, section
 * 2.1). No token is dropped: an expert processes every token that chose it. Tokens are copied,
 * ordered by expert, so that each expert needs one product. There is no load-balancing loss:
 * workloads have none.
 *
 * Shared experts (Dai et al., "DeepSeekMoE", 2024, section 3.2) process all tokens, with weight 1:
 * they are one mlp, whose hidden features are those of all of them.
 *
 * A tensor-parallel rank has a shard of every expert's hidden features and of the router's columns.
 * Scores are sums over TP ranks, and so are the gradients of the weights of copies.
 *
 * With expert parallelism, ranks send copies: a rank's experts process those of all ranks' tokens
 * and return their outputs. There is room for all copies that may arrive, even if all tokens choose
 * the same experts; the system never allocates pages that are never written.
 */
#include "cpu_layer.h"
#include "cpu_math.h"

#include <string.h>

typedef struct moe {
    uint64_t rows, features, hidden, up; /* up: columns of an expert's first product */
    uint64_t experts, chosen, copies;    /* chosen for a token; copies: rows * chosen */
    uint64_t ranks, here, most; /* EP size, experts of this rank, copies that may arrive for them */
    uint64_t shared, shared_up; /* hidden features of the shared experts, and columns */
    uint64_t parts, part;       /* tensor-parallel ranks, and columns of the router that each has */
    bool is_gated, has_bias, gathers;
} moe;

static moe moe_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t rows = stage_batch(stage) * node->whole_output.dimensions[0];
    const uint64_t parts = tp_size_of(&stage->options);
    const uint64_t ranks = ep_size_of(&stage->options), here = a[TY_EXPERTS] / ranks;
    const uint64_t chosen = a[TY_EXPERTS_PER_TOKEN];
    const bool is_gated = a[TY_IS_GATED] != 0;

    return (moe){
        .rows = rows,
        .features = a[TY_FEATURES],
        .hidden = a[TY_HIDDEN_FEATURES] / parts,
        .up = a[TY_HIDDEN_FEATURES] / parts * (is_gated ? 2 : 1),
        .experts = a[TY_EXPERTS],
        .chosen = chosen,
        .copies = rows * chosen,
        .ranks = ranks,
        .here = here,
        .most = ranks * rows * (chosen < here ? chosen : here),
        .shared = a[TY_SHARED_FEATURES] / parts,
        .shared_up = a[TY_SHARED_FEATURES] / parts * (is_gated ? 2 : 1),
        .parts = parts,
        .part = a[TY_FEATURES] / parts,
        .gathers = stage_gathers(stage, node),
        .is_gated = is_gated,
        .has_bias = a[TY_HAS_BIAS] != 0,
    };
}

/* Stash of a slot. Copies are ordered by expert, then by token. */
typedef struct kept {
    uint32_t *choice; /* [rows][chosen] experts, best first */
    uint32_t *place;  /* [rows][chosen] of the copies */
    uint32_t *start;  /* [experts + 1]: of each expert's copies */
    float *weight;    /* [rows][chosen] */
    float *y;         /* [copies][features]: experts' outputs */
    /* Of this rank's experts: */
    uint32_t *arrived; /* [ranks][here]: see cpu_expert_copies; NULL without expert parallelism */
    uint32_t *first;   /* [here + 1]: of each one's copies; `start` without expert parallelism */
    float *x;          /* [most][features]: their inputs */
    float *h, *a;      /* [most][up], [most][hidden] */
    /* Of the shared experts: */
    float *shared_h, *shared_a; /* [rows][shared_up], [rows][shared] */
    /* If backward has two parts, else scratch: */
    float *dscore;             /* [rows][experts] */
    float *shared_dh;          /* [rows][shared_up] */
    float *dh;                 /* [most][up] */
    float *dy;                 /* [most][features]; scratch without expert parallelism, too */
    float *whole_x, *whole_dy; /* [rows][features]: gathered from tensor-parallel ranks */
} kept;

/* Cuts 4-byte elements off a block of memory, or only counts them if it is NULL. */
typedef struct cutter {
    float *from;
    uint64_t used;
} cutter;

static void *cut(cutter *c, uint64_t count)
{
    float *piece = c->from != NULL ? c->from + c->used : NULL;

    c->used += count;
    return piece;
}

static void backward_cut(const moe *m, cutter *c, kept *out)
{
    out->dscore = cut(c, m->rows * m->experts);
    out->shared_dh = cut(c, m->rows * m->shared_up);
    out->dh = cut(c, m->most * m->up);
    if (m->ranks > 1)
        out->dy = cut(c, m->most * m->features);
    if (m->gathers) {
        out->whole_x = cut(c, m->rows * m->features);
        out->whole_dy = cut(c, m->rows * m->features);
    }
}

/* Whether the activations are recomputed: then they are all that is in the stash. */
static bool makes_activation(const ty_stage_device *stage, const stage_node *node)
{
    return stage->segments.again[node->layer_index].what == TY_AGAIN_ACTIVATION;
}

static void activation_cut(const moe *m, cutter *c, kept *out)
{
    out->shared_a = cut(c, m->rows * m->shared);
    out->a = cut(c, m->most * m->hidden);
}

/* `found` and `stash` differ only if activations are recomputed; NULL to count.
 * @return elements of `found` */
static uint64_t kept_cut(const ty_stage_device *stage, const stage_node *node, const moe *m,
                         void *found, void *stash, kept *out)
{
    cutter c = {found, 0}, again = {stash, 0};

    out->choice = cut(&c, m->copies);
    out->place = cut(&c, m->copies);
    out->start = cut(&c, m->experts + 1);
    out->weight = cut(&c, m->copies);
    out->y = cut(&c, m->copies * m->features);
    out->shared_h = cut(&c, m->rows * m->shared_up);
    out->arrived = m->ranks > 1 ? cut(&c, m->experts) : NULL;
    out->first = m->ranks > 1 ? cut(&c, m->here + 1) : out->start;
    out->x = cut(&c, m->most * m->features);
    out->h = cut(&c, m->most * m->up);
    activation_cut(m, makes_activation(stage, node) ? &again : &c, out);
    if (stage->options.splits_backward)
        backward_cut(m, &c, out);
    return c.used;
}

/* Scratch of a call. */
typedef struct room {
    float *score;          /* [rows][experts] */
    float *made;           /* [most][features]: experts' outputs, or in backward their gradients */
    float *da;             /* [most][hidden] */
    float *shared_da;      /* [rows][shared] */
    float *packed, *mixed; /* [copies][features], [most][features]: messages; only with EP */
    float *part, *dpart;   /* [rows][part]: of the input and its gradient; only with TP */
    float *gain;           /* [copies]: gradient of a copy's weight */
} room;

/* Also cuts the gradients that are not in the stash. */
static uint64_t room_cut(const ty_stage_device *stage, const moe *m, void *scratch, room *out,
                         kept *keep)
{
    cutter c = {scratch, 0};

    out->score = cut(&c, m->rows * m->experts);
    out->made = cut(&c, m->most * m->features);
    out->da = cut(&c, m->most * m->hidden);
    out->shared_da = cut(&c, m->rows * m->shared);
    out->part = cut(&c, m->parts > 1 ? m->rows * m->part : 0);
    out->dpart = cut(&c, m->parts > 1 ? m->rows * m->part : 0);
    out->gain = cut(&c, m->copies);
    if (m->ranks > 1) {
        out->packed = cut(&c, m->copies * m->features);
        out->mixed = cut(&c, m->most * m->features);
    } else {
        keep->dy = cut(&c, m->copies * m->features);
    }
    if (!stage->options.splits_backward)
        backward_cut(m, &c, keep);
    return c.used;
}

static ty_status moe_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const moe m = moe_of(stage, node);
    kept none;
    room nowhere;

    if (m.most > UINT32_MAX || m.copies > UINT32_MAX || m.experts > UINT32_MAX)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: found %llu copies of tokens, expected at "
                       "most %lu",
                       node->layer->name,
                       (unsigned long long)(m.most > m.copies ? m.most : m.copies),
                       (unsigned long)UINT32_MAX);
    node->stash_bytes = kept_cut(stage, node, &m, NULL, NULL, &none) * sizeof(float);
    if (makes_activation(stage, node)) {
        cutter again = {NULL, 0};
        activation_cut(&m, &again, &none);
        node->kept_bytes = node->stash_bytes;
        node->stash_bytes = again.used * sizeof(float);
    }
    node->scratch_bytes = room_cut(stage, &m, NULL, &nowhere, &none) * sizeof(float);
    node->tp_elements = m.parts > 1 ? m.rows * m.features : 0;
    return TY_OK;
}

/* ---- Routing ---- */

static bool is_chosen(const uint32_t *choice, uint64_t count, uint32_t expert)
{
    for (uint64_t c = 0; c < count; c++)
        if (choice[c] == expert)
            return true;
    return false;
}

/* The best experts of one token, the first among equals, and the softmax of their scores. */
static void token_route(const moe *m, const float *score, uint32_t *choice, float *weight)
{
    float sum = 0.0f;

    for (uint64_t c = 0; c < m->chosen; c++) {
        uint32_t best = UINT32_MAX;

        for (uint32_t e = 0; e < m->experts; e++)
            if (!is_chosen(choice, c, e) && (best == UINT32_MAX || score[e] > score[best]))
                best = e;
        choice[c] = best;
        weight[c] = cpu_exp(score[best] - score[choice[0]]);
        sum += weight[c];
    }
    for (uint64_t c = 0; c < m->chosen; c++)
        weight[c] /= sum;
}

/* Copies the input columns of this rank's shard of the router. */
static void part_take(const ty_stage_device *stage, const moe *m, const float *x, float *part)
{
    const uint64_t first = stage->options.parallel.tp_rank * m->part;

    for (uint64_t r = 0; r < m->rows; r++)
        memcpy(part + r * m->part, x + r * m->features + first, m->part * sizeof *x);
}

static ty_status scores_make(ty_stage_device *stage, const stage_node *node, const moe *m,
                             const float *x, const room *own, ty_error *error)
{
    const float *router = cpu_parameters(stage, node, MOE_ROUTER);

    if (m->parts == 1) {
        cpu_affine(m->rows, m->features, m->experts, x, router, NULL, own->score);
        return TY_OK;
    }
    part_take(stage, m, x, own->part);
    cpu_affine(m->rows, m->part, m->experts, own->part, router, NULL, own->score);
    return stage_ranks_all_reduce(stage, false, m->rows * m->experts, own->score, error);
}

/* Routes tokens to experts: a counting sort of the copies by expert. */
static void route(const moe *m, const float *score, const kept *keep)
{
    memset(keep->start, 0, (m->experts + 1) * sizeof *keep->start);
    for (uint64_t r = 0; r < m->rows; r++)
        token_route(m, score + r * m->experts, keep->choice + r * m->chosen,
                    keep->weight + r * m->chosen);
    for (uint64_t i = 0; i < m->copies; i++)
        keep->start[keep->choice[i] + 1]++;
    for (uint64_t e = 0; e < m->experts; e++)
        keep->start[e + 1] += keep->start[e];
    for (uint64_t i = 0; i < m->copies; i++)
        keep->place[i] = keep->start[keep->choice[i]]++;
    for (uint64_t e = m->experts; e > 0; e--) /* the starts have become the ends */
        keep->start[e] = keep->start[e - 1];
    keep->start[0] = 0;
}

/* ---- Forward ---- */

static void expert_forward(const ty_stage_device *stage, const stage_node *node, const moe *m,
                           const kept *keep, uint64_t e, float *y)
{
    const uint64_t at = keep->first[e], rows = keep->first[e + 1] - at;
    const float *up = cpu_parameters(stage, node, MOE_UP) + e * m->up * m->features;
    const float *down = cpu_parameters(stage, node, MOE_DOWN) + e * m->features * m->hidden;
    const float *up_bias = NULL, *down_bias = NULL;
    float *h = keep->h + at * m->up, *a = keep->a + at * m->hidden;

    if (rows == 0)
        return;
    if (m->has_bias) {
        up_bias = cpu_parameters(stage, node, MOE_UP_BIAS) + e * m->up;
        down_bias = cpu_parameters(stage, node, MOE_DOWN_BIAS) + e * m->part;
    }
    cpu_affine(rows, m->features, m->up, keep->x + at * m->features, up, NULL, h);
    cpu_mlp_activate(m->is_gated, rows, m->hidden, up_bias, h, a);
    cpu_affine(rows, m->hidden, m->features, a, down, NULL, y + at * m->features);
    if (m->has_bias)
        cpu_add_tp_bias(stage, rows, m->features, down_bias, y + at * m->features);
}

/* The shared experts' output, 0 without any. */
static void shared_forward(const ty_stage_device *stage, const stage_node *node, const moe *m,
                           const kept *keep, const float *x, float *y)
{
    const float *up_bias = NULL, *down_bias = NULL;

    if (m->shared == 0) {
        memset(y, 0, m->rows * m->features * sizeof *y);
        return;
    }
    if (m->has_bias) {
        up_bias = cpu_parameters(stage, node, MOE_SHARED_UP_BIAS);
        down_bias = cpu_parameters(stage, node, MOE_SHARED_DOWN_BIAS);
    }
    cpu_affine(m->rows, m->features, m->shared_up, x, cpu_parameters(stage, node, MOE_SHARED_UP),
               NULL, keep->shared_h);
    cpu_mlp_activate(m->is_gated, m->rows, m->shared, up_bias, keep->shared_h, keep->shared_a);
    cpu_affine(m->rows, m->shared, m->features, keep->shared_a,
               cpu_parameters(stage, node, MOE_SHARED_DOWN), NULL, y);
    if (m->has_bias)
        cpu_add_tp_bias(stage, m->rows, m->features, down_bias, y);
}

static cpu_expert_copies copies_of(const moe *m, const kept *keep)
{
    return (cpu_expert_copies){.experts = m->here,
                               .features = m->features,
                               .start = keep->start,
                               .arrived = keep->arrived,
                               .first = keep->first};
}

/* Sends this rank's copies, in the order of experts, to the ranks of these. */
static ty_status copies_send(ty_stage_device *stage, const moe *m, const kept *keep,
                             const room *own, ty_error *error)
{
    const cpu_expert_copies copies = copies_of(m, keep);

    if (m->ranks == 1)
        return TY_OK;
    TY_TRY(cpu_experts_meet(stage, &copies, error));
    return cpu_experts_send(stage, &copies, own->packed, own->mixed, keep->x, error);
}

/* Returns the outputs of experts, or the gradients of their inputs, into `to`. */
static ty_status copies_return(ty_stage_device *stage, const moe *m, const kept *keep,
                               const room *own, float *to, ty_error *error)
{
    const cpu_expert_copies copies = copies_of(m, keep);

    if (m->ranks == 1)
        return TY_OK;
    return cpu_experts_return(stage, &copies, own->made, own->mixed, to, error);
}

CPU_CLONES static void add_scaled(uint64_t count, float factor, const float *from, float *to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] += factor * from[i];
}

static ty_status moe_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error)
{
    const moe m = moe_of(stage, node);
    float *y = stage_summand(stage, node, false, cpu_out(stage, node, slot)), *packed;
    const float *x;
    kept keep;
    room own;

    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    room_cut(stage, &m, stage->scratch, &own, &keep);
    TY_TRY(cpu_whole_input(stage, node, 0, slot, stage->gather_workspace, &x, error));
    TY_TRY(scores_make(stage, node, &m, x, &own, error));
    route(&m, own.score, &keep);
    packed = m.ranks > 1 ? own.packed : keep.x;
    for (uint64_t i = 0; i < m.copies; i++)
        memcpy(packed + keep.place[i] * m.features, x + i / m.chosen * m.features,
               m.features * sizeof *x);
    TY_TRY(copies_send(stage, &m, &keep, &own, error));
    for (uint64_t e = 0; e < m.here; e++)
        expert_forward(stage, node, &m, &keep, e, m.ranks > 1 ? own.made : keep.y);
    TY_TRY(copies_return(stage, &m, &keep, &own, keep.y, error));
    shared_forward(stage, node, &m, &keep, x, y); /* the last reader of x: y may be in its memory */
    for (uint64_t i = 0; i < m.copies; i++)
        add_scaled(m.features, keep.weight[i], keep.y + keep.place[i] * m.features,
                   y + i / m.chosen * m.features);
    return stage_ranks_sum(stage, node, &node->whole_output, y, false, cpu_out(stage, node, slot),
                           error);
}

/* Recomputes activations from their inputs, to which forward has added biases. */
static ty_status moe_again(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                           ty_error *error)
{
    const moe m = moe_of(stage, node);
    kept keep;

    (void)error;
    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    cpu_mlp_activate(m.is_gated, keep.first[m.here] - keep.first[0], m.hidden, NULL,
                     keep.h + keep.first[0] * m.up, keep.a + keep.first[0] * m.hidden);
    cpu_mlp_activate(m.is_gated, m.shared > 0 ? m.rows : 0, m.shared, NULL, keep.shared_h,
                     keep.shared_a);
    return TY_OK;
}

/* ---- Backward ---- */

/* The gradient of experts' outputs. */
static void copies_gradient(const moe *m, const kept *keep, const float *dy, float *of_copies)
{
    for (uint64_t i = 0; i < m->copies; i++) {
        float *to = of_copies + keep->place[i] * m->features;

        memset(to, 0, m->features * sizeof *to);
        add_scaled(m->features, keep->weight[i], dy + i / m->chosen * m->features, to);
    }
}

CPU_CLONES static float product_sum(uint64_t count, const float *a, const float *b)
{
    float sum = 0.0f;

#pragma omp simd reduction(+ : sum)
    for (uint64_t i = 0; i < count; i++)
        sum += a[i] * b[i];
    return sum;
}

/* The gradient of each copy's weight, from this rank's summand of experts' outputs. */
static void gains_make(const moe *m, const kept *keep, const float *dy, float *gain)
{
    for (uint64_t i = 0; i < m->copies; i++)
        gain[i] = product_sum(m->features, dy + i / m->chosen * m->features,
                              keep->y + keep->place[i] * m->features);
}

/* The scores' gradient: through the softmax of the chosen ones; 0 for all others. */
static void scores_gradient(const moe *m, const kept *keep, const float *gain)
{
    memset(keep->dscore, 0, m->rows * m->experts * sizeof *keep->dscore);
    for (uint64_t r = 0; r < m->rows; r++) {
        const uint64_t first = r * m->chosen;
        float *of_row = keep->dscore + r * m->experts, mean = 0.0f;

        for (uint64_t i = first; i < first + m->chosen; i++)
            mean += keep->weight[i] * gain[i];
        for (uint64_t i = first; i < first + m->chosen; i++)
            of_row[keep->choice[i]] = keep->weight[i] * (gain[i] - mean);
    }
}

/* One expert's part of a tensor's gradient, or NULL if it is not computed. */
static float *expert_gradient(const ty_stage_device *stage, const stage_node *node, uint32_t tensor,
                              uint64_t e, uint64_t count)
{
    float *all = cpu_parameter_gradient(stage, node, tensor);

    return all != NULL ? all + e * count : NULL;
}

static void clear(float *gradient, uint64_t count)
{
    if (gradient != NULL)
        memset(gradient, 0, count * sizeof *gradient);
}

static void expert_backward(const ty_stage_device *stage, const stage_node *node, const moe *m,
                            const kept *keep, const room *own, uint64_t e, bool is_first)
{
    const uint64_t at = keep->first[e], rows = keep->first[e + 1] - at;
    const uint64_t matrix = m->features * m->hidden, wide = m->features * m->up;
    const bool is_asked = stage->part != STAGE_WEIGHTS;
    float *dh = keep->dh + at * m->up, *da = own->da + at * m->hidden;
    float *down_bias = m->has_bias ? expert_gradient(stage, node, MOE_DOWN_BIAS, e, m->part) : NULL;
    cpu_affine_gradient down = {.weight = expert_gradient(stage, node, MOE_DOWN, e, matrix),
                                .x = is_asked ? da : NULL,
                                .adds_weight = !is_first};
    cpu_affine_gradient up = {
        .weight = expert_gradient(stage, node, MOE_UP, e, wide),
        .bias = m->has_bias ? expert_gradient(stage, node, MOE_UP_BIAS, e, m->up) : NULL,
        .x = is_asked ? own->made + at * m->features : NULL,
        .adds_weight = !is_first,
        .adds_bias = !is_first};

    if (rows == 0 && is_first) { /* no token chose it */
        clear(down.weight, matrix);
        clear(down_bias, m->part);
        clear(up.weight, wide);
        clear(up.bias, m->up);
    }
    if (rows == 0)
        return;
    cpu_affine_backward(rows, m->hidden, m->features, keep->a + at * m->hidden,
                        cpu_parameters(stage, node, MOE_DOWN) + e * matrix,
                        keep->dy + at * m->features, &down);
    if (down_bias != NULL)
        cpu_tp_bias_gradient(stage, rows, m->features, keep->dy + at * m->features, !is_first,
                             down_bias);
    if (is_asked)
        cpu_mlp_activate_backward(m->is_gated, rows, m->hidden, keep->h + at * m->up, da, dh);
    cpu_affine_backward(rows, m->features, m->up, keep->x + at * m->features,
                        cpu_parameters(stage, node, MOE_UP) + e * wide, dh, &up);
}

/* The input, and the gradient of the output, of all tokens. With sequence parallelism TP ranks
 * gather them, in the first part of a backward in two parts. */
typedef struct operands {
    const float *x, *dy;
} operands;

static ty_status operands_take(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               const kept *keep, operands *out, ty_error *error)
{
    const bool is_trained = ty_layer_is_trained(stage->options.workload, node->layer_index);

    *out = (operands){keep->whole_x, keep->whole_dy};
    if (stage_gathers(stage, node) && stage->part == STAGE_WEIGHTS)
        return TY_OK; /* they are in place */
    if (!stage_gathers(stage, node) || is_trained)
        TY_TRY(cpu_whole_input(stage, node, 0, slot, keep->whole_x, &out->x, error));
    return cpu_whole_gradient(stage, node, slot, keep->whole_dy, &out->dy, error);
}

/* Adds to `dx` unless it is NULL. */
static void shared_backward(const ty_stage_device *stage, const stage_node *node, const moe *m,
                            const kept *keep, const room *own, const operands *of, bool is_first,
                            float *dx)
{
    float *down_bias =
        m->has_bias ? cpu_parameter_gradient(stage, node, MOE_SHARED_DOWN_BIAS) : NULL;
    const cpu_affine_gradient down = {.weight =
                                          cpu_parameter_gradient(stage, node, MOE_SHARED_DOWN),
                                      .x = stage->part != STAGE_WEIGHTS ? own->shared_da : NULL,
                                      .adds_weight = !is_first};
    const cpu_affine_gradient up = {
        .weight = cpu_parameter_gradient(stage, node, MOE_SHARED_UP),
        .bias = m->has_bias ? cpu_parameter_gradient(stage, node, MOE_SHARED_UP_BIAS) : NULL,
        .x = dx,
        .adds_weight = !is_first,
        .adds_bias = !is_first,
        .adds_x = true};

    if (m->shared == 0)
        return;
    cpu_affine_backward(m->rows, m->shared, m->features, keep->shared_a,
                        cpu_parameters(stage, node, MOE_SHARED_DOWN), of->dy, &down);
    if (down_bias != NULL)
        cpu_tp_bias_gradient(stage, m->rows, m->features, of->dy, !is_first, down_bias);
    if (stage->part != STAGE_WEIGHTS)
        cpu_mlp_activate_backward(m->is_gated, m->rows, m->shared, keep->shared_h, own->shared_da,
                                  keep->shared_dh);
    cpu_affine_backward(m->rows, m->features, m->shared_up, of->x,
                        cpu_parameters(stage, node, MOE_SHARED_UP), keep->shared_dh, &up);
}

/* Into `dx` unless it is NULL; a tensor-parallel rank computes that of its columns. */
static void router_backward(const ty_stage_device *stage, const stage_node *node, const moe *m,
                            const kept *keep, const room *own, const float *x, bool is_first,
                            bool adds, float *dx)
{
    const uint64_t first = stage->options.parallel.tp_rank * m->part;
    const bool is_divided = m->parts > 1;
    const cpu_affine_gradient to = {
        .weight = cpu_parameter_gradient(stage, node, MOE_ROUTER),
        .x = dx != NULL && is_divided ? own->dpart : dx,
        .adds_weight = stage_adds(node, MOE_ROUTER, is_first),
        .adds_x = adds,
    };

    if (is_divided && to.weight != NULL)
        part_take(stage, m, x, own->part);
    cpu_affine_backward(m->rows, m->part, m->experts, is_divided ? own->part : x,
                        cpu_parameters(stage, node, MOE_ROUTER), keep->dscore, &to);
    if (dx == NULL || !is_divided)
        return;
    memset(dx, 0, m->rows * m->features * sizeof *dx);
    for (uint64_t r = 0; r < m->rows; r++)
        memcpy(dx + r * m->features + first, own->dpart + r * m->part, m->part * sizeof *dx);
}

/* The gradients of the scores and of this rank's experts' outputs. With expert parallelism the
 * second part of a backward has them from the first. */
static ty_status gradients_take(ty_stage_device *stage, const moe *m, const kept *keep,
                                const room *own, const float *dy, ty_error *error)
{
    const cpu_expert_copies copies = copies_of(m, keep);
    ty_status status = TY_OK;

    if (stage->part != STAGE_WEIGHTS) {
        gains_make(m, keep, dy, own->gain);
        if (m->parts > 1)
            TY_CHECK(stage_ranks_all_reduce(stage, false, m->copies, own->gain, error), status,
                     done);
        scores_gradient(m, keep, own->gain);
    }
    if (m->ranks == 1) {
        copies_gradient(m, keep, dy, keep->dy);
    } else if (stage->part != STAGE_WEIGHTS) {
        copies_gradient(m, keep, dy, own->packed);
        status = cpu_experts_send(stage, &copies, own->packed, own->mixed, keep->dy, error);
    }
done:
    return status;
}

static ty_status moe_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    const moe m = moe_of(stage, node);
    const bool adds = node->adds[0];
    float *to = cpu_in_gradient(stage, node, 0, slot), *dx = stage_summand(stage, node, adds, to);
    const float *of_copies;
    operands of;
    kept keep = {0};
    room own;
    ty_status status = TY_OK;

    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    room_cut(stage, &m, stage->scratch, &own, &keep);
    TY_CHECK(operands_take(stage, node, slot, &keep, &of, error), status, done);
    TY_CHECK(gradients_take(stage, &m, &keep, &own, of.dy, error), status, done);
    for (uint64_t e = 0; e < m.here; e++)
        expert_backward(stage, node, &m, &keep, &own, e, is_first);
    if (dx != NULL) /* on all ranks or on none */
        TY_CHECK(copies_return(stage, &m, &keep, &own, own.packed, error), status, done);
    of_copies = m.ranks > 1 ? own.packed : own.made;
    router_backward(stage, node, &m, &keep, &own, of.x, is_first, dx == to && adds, dx);
    shared_backward(stage, node, &m, &keep, &own, &of, is_first, dx);
    for (uint64_t i = 0; i < m.copies && dx != NULL; i++)
        cpu_accumulate(m.features, of_copies + keep.place[i] * m.features, true,
                       dx + i / m.chosen * m.features);
    if (dx != NULL)
        status = stage_ranks_sum(stage, node, &node->whole_input, dx, adds, to, error);
done:
    return status;
}

const stage_kind cpu_moe = {
    .build = moe_build,
    .forward = moe_forward,
    .again = moe_again,
    .backward = moe_backward,
};
