/*
 * Mixtures of experts; cpu_moe.c defines them and their tensors. No token is dropped. Copies are
 * ordered by expert, in the stage's type, and each expert's rows are padded with zeros (moe.cu).
 * cuBLASLt computes the products of each expert with its number of rows. The host waits for these
 * numbers inside forward, so stages with experts are no graphs. Scores are floats in every
 * precision.
 *
 * With expert parallelism, an all-to-all sends the copies of all ranks' tokens to the experts, and
 * another returns the outputs (cuda_experts.c). The buffers fit the worst case, in which all tokens
 * choose the same experts.
 *
 * Tensor-parallel ranks shard every expert's hidden features and the columns of the router. So
 * scores are sums over ranks, and so are the gradients of each copy's weight.
 */
#include "cuda_stage.h"
#include "gpu_scratch.h"

typedef struct mixture {
    cuda_mixture core;
    uint64_t hidden, up;        /* per expert; up: columns of its first product */
    uint64_t shared, shared_up; /* of the experts that read every token */
    uint64_t copies, own;       /* own: rows of copies, with padding */
    uint64_t ranks, here, most; /* here: experts of this rank; most: rows they may receive */
    uint64_t parts, part;       /* TP size, and columns of the router per rank */
    uint64_t stride;            /* of the scores' gradients */
    bool is_gated, has_bias;
} mixture;

typedef struct mixture_state {
    /* [slots], pinned; first row of each expert's copies: */
    int32_t **starts;    /* of the own ones, [experts + 1] */
    int32_t **first;     /* of the local experts, [here + 1]; without EP `starts` */
    int32_t **arrived;   /* [experts]; see cuda_expert_copies */
    int32_t *host_index; /* [most], of one forward at a time */
} mixture_state;

static mixture mixture_of(const ty_stage_device *stage, const stage_node *node)
{
    const uint64_t *a = node->layer->attributes;
    const uint64_t rows = stage_batch(stage) * node->whole_output.dimensions[0];
    const uint64_t fast = 16 / stage->element; /* elements: rows of products are multiples */
    const bool is_gated = a[TY_IS_GATED] != 0;
    const uint64_t ranks = ep_size_of(&stage->options), here = a[TY_EXPERTS] / ranks;
    const uint64_t chosen = a[TY_EXPERTS_PER_TOKEN], parts = stage_shards(stage, node);
    const uint64_t own = ty_expert_rows(rows * chosen, a[TY_EXPERTS]);
    const mixture m = {.core = {.rows = rows,
                                .experts = a[TY_EXPERTS],
                                .chosen = chosen,
                                .features = a[TY_FEATURES]},
                       .hidden = a[TY_HIDDEN_FEATURES] / parts,
                       .up = a[TY_HIDDEN_FEATURES] / parts * (is_gated ? 2 : 1),
                       .shared = a[TY_SHARED_FEATURES] / parts,
                       .shared_up = a[TY_SHARED_FEATURES] / parts * (is_gated ? 2 : 1),
                       .copies = rows * chosen,
                       .own = own,
                       .ranks = ranks,
                       .here = here,
                       .parts = parts,
                       .part = a[TY_FEATURES] / parts,
                       .most = ty_rank_expert_rows(rows, chosen, a[TY_EXPERTS], ranks),
                       .stride = (a[TY_EXPERTS] + fast - 1) / fast * fast,
                       .is_gated = is_gated,
                       .has_bias = a[TY_HAS_BIAS] != 0};

    return m;
}

/* ---- Memory ---- */

/* Tensors stored per slot. */
typedef struct kept {
    int32_t *choice, *place; /* [rows][chosen] */
    int32_t *starts;         /* [experts + 1] */
    int32_t *copy_of;        /* [own] */
    float *weight;           /* [rows][chosen] */
    char *y;                 /* [own][features]: expert outputs of the copies */
    int32_t *index;          /* [most]: see cuda_expert_copies; only with EP */
    char *x;                 /* [most][features]: inputs of the local experts */
    char *h, *a;             /* [most][up], [most][hidden] */
    char *shared_h, *shared_a;
    /* Backward, if split in two, as the second part reads them; else scratch. */
    char *dscores;   /* [rows][stride] */
    char *dh;        /* [most][up] */
    char *shared_dh; /* [rows][shared up] */
    char *dy;        /* [most][features]; only with EP */
} kept;

/* Temporary tensors of a call. */
typedef struct room {
    float *scores;            /* [rows][experts] */
    float *gain;              /* [rows][chosen] */
    char *packed;             /* [own][features]: to send; without EP inputs of experts, as dy */
    char *made;               /* [most][features]: outputs of experts, and their gradients */
    char *da, *shared_da;     /* [most][hidden], [rows][shared] */
    char *part, *dpart;       /* [rows][part]: of the input and its gradient; only with TP */
    char *whole_x, *whole_dy; /* [rows][features]: all-gathered by TP, if not stored */
    /* Only with EP: */
    char *received;  /* [most][features] */
    int32_t *counts; /* [2][experts] */
} room;

static void backward_cut(const ty_stage_device *stage, const mixture *m, cuda_cutter *c, kept *out)
{
    out->dscores = cuda_cut_off(c, m->core.rows * m->stride * stage->element);
    out->dh = cuda_cut_off(c, m->most * m->up * stage->element);
    out->shared_dh = cuda_cut_off(c, m->core.rows * m->shared_up * stage->element);
    if (m->ranks > 1)
        out->dy = cuda_cut_off(c, m->most * m->core.features * stage->element);
}

static void activations_cut(const ty_stage_device *stage, const mixture *m, cuda_cutter *c,
                            kept *out)
{
    out->a = cuda_cut_off(c, m->most * m->hidden * stage->element);
    out->shared_a = cuda_cut_off(c, m->core.rows * m->shared * stage->element);
}

/* Whether outputs of activation functions are recomputed; only those are in the stash then. */
static bool makes_activation(const ty_stage_device *stage, const stage_node *node)
{
    return stage->segments.again[node->layer_index].what == TY_AGAIN_ACTIVATION;
}

/* `found` and `stash` are the same unless activations are recomputed; NULL to count.
 * @return bytes of `found` */
static uint64_t kept_cut(const ty_stage_device *stage, const stage_node *node, const mixture *m,
                         void *found, void *stash, kept *out)
{
    cuda_cutter c = {found, 0}, again = {stash, 0};

    out->choice = cuda_cut_off(&c, m->copies * sizeof *out->choice);
    out->place = cuda_cut_off(&c, m->copies * sizeof *out->place);
    out->starts = cuda_cut_off(&c, (m->core.experts + 1) * sizeof *out->starts);
    out->copy_of = cuda_cut_off(&c, m->own * sizeof *out->copy_of);
    out->weight = cuda_cut_off(&c, m->copies * sizeof *out->weight);
    out->y = cuda_cut_off(&c, m->own * m->core.features * stage->element);
    out->index = cuda_cut_off(&c, m->ranks > 1 ? m->most * sizeof *out->index : 0);
    out->x = cuda_cut_off(&c, m->most * m->core.features * stage->element);
    out->h = cuda_cut_off(&c, m->most * m->up * stage->element);
    out->shared_h = cuda_cut_off(&c, m->core.rows * m->shared_up * stage->element);
    activations_cut(stage, m, makes_activation(stage, node) ? &again : &c, out);
    if (stage->options.splits_backward)
        backward_cut(stage, m, &c, out);
    return c.used;
}

/* Also the temporary tensors. @return bytes */
static uint64_t room_cut(const ty_stage_device *stage, const mixture *m, void *scratch, room *out,
                         kept *keep)
{
    cuda_cutter c = {scratch, 0};

    out->scores = cuda_cut_off(&c, m->core.rows * m->core.experts * sizeof *out->scores);
    out->gain = cuda_cut_off(&c, m->copies * sizeof *out->gain);
    out->packed = cuda_cut_off(&c, m->own * m->core.features * stage->element);
    out->made = cuda_cut_off(&c, m->most * m->core.features * stage->element);
    out->da = cuda_cut_off(&c, m->most * m->hidden * stage->element);
    out->shared_da = cuda_cut_off(&c, m->core.rows * m->shared * stage->element);
    if (m->parts > 1) {
        out->part = cuda_cut_off(&c, m->core.rows * m->part * stage->element);
        out->dpart = cuda_cut_off(&c, m->core.rows * m->part * stage->element);
    }
    if (m->parts > 1 && stage->options.parallel.divides_sequence &&
        !stage->options.splits_backward) {
        out->whole_x = cuda_cut_off(&c, m->core.rows * m->core.features * stage->element);
        out->whole_dy = cuda_cut_off(&c, m->core.rows * m->core.features * stage->element);
    }
    if (m->ranks > 1) {
        out->received = cuda_cut_off(&c, m->most * m->core.features * stage->element);
        out->counts = cuda_cut_off(&c, 2 * m->core.experts * sizeof *out->counts);
    } else {
        keep->dy = out->packed;
    }
    if (!stage->options.splits_backward)
        backward_cut(stage, m, &c, keep);
    return c.used;
}

/* Host memory for each slot; NULL if out of memory. */
static int32_t **slots_make(ty_stage_device *stage, uint64_t count)
{
    int32_t **made = cuda_host_buffer(stage, stage->options.slots * sizeof *made);

    for (uint32_t s = 0; made != NULL && s < stage->options.slots; s++)
        if ((made[s] = cuda_host_buffer(stage, count * sizeof *made[s])) == NULL)
            return NULL;
    return made;
}

static ty_status state_make(ty_stage_device *stage, stage_node *node, const mixture *m,
                            ty_error *error)
{
    mixture_state *state = ty_alloc(1, sizeof *state);
    bool is_there;

    TY_TRY(ty_check_memory(state != NULL, error));
    node->state = state;
    state->starts = state->first = slots_make(stage, m->core.experts + 1);
    is_there = state->starts != NULL;
    if (is_there && m->ranks > 1) {
        state->first = slots_make(stage, m->here + 1);
        state->arrived = slots_make(stage, m->core.experts);
        state->host_index = cuda_host_buffer(stage, m->most * sizeof *state->host_index);
        is_there = state->first != NULL && state->arrived != NULL && state->host_index != NULL;
    }
    return is_there ? TY_OK : ty_fail(error, TY_ENOMEM, "out of memory for experts");
}

static uint64_t largest(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static ty_status moe_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const mixture m = mixture_of(stage, node);
    const uint64_t widest = m.up > m.core.features ? m.up : m.core.features;
    kept none;
    room nowhere;

    if (m.most > INT32_MAX || m.own > INT32_MAX || m.core.experts > INT32_MAX)
        return ty_fail(
            error, TY_EUNSUPPORTED, "layer %s: found %llu copies of tokens, expected at most %d",
            node->layer->name, (unsigned long long)(m.most > m.own ? m.most : m.own), INT32_MAX);
    node->stash_bytes = kept_cut(stage, node, &m, NULL, NULL, &none);
    if (makes_activation(stage, node)) {
        cuda_cutter again = {NULL, 0};
        activations_cut(stage, &m, &again, &none);
        node->kept_bytes = node->stash_bytes;
        node->stash_bytes = again.used;
    }
    node->scratch_bytes = room_cut(stage, &m, NULL, &nowhere, &none);
    node->sum_floats = cuda_affine_sums(m.most > m.core.rows ? m.most : m.core.rows,
                                        widest > m.shared_up ? widest : m.shared_up);
    if (node->is_divided) /* scores and gains are reduced there too */
        node->tp_elements =
            largest(m.core.rows * m.core.features, largest(m.core.rows * m.core.experts, m.copies));
    stage->own->waits_inside = true;
    return state_make(stage, node, &m, error);
}

static void moe_release(ty_stage_device *stage, stage_node *node)
{
    (void)stage;
    ty_free(node->state);
}

/* ---- Experts, and those that are shared, as mlps ---- */

/* One expert, or its gradients. */
typedef struct expert {
    uint64_t rows, hidden, up;
    uint32_t tensor; /* MOE_UP or MOE_SHARED_UP: the first of four */
    uint64_t index;  /* among the experts of the tensors */
    bool adds_down, adds_up;
    const char *x, *dy;
    char *y, *h, *a, *da, *dh, *dx; /* its rows; da, dx may be NULL */
    bool adds_x;
} expert;

enum { DOWN = 1, UP_BIAS = 2, DOWN_BIAS = 3 };

static const void *weights_of(const ty_stage_device *stage, const stage_node *node, const expert *e,
                              uint32_t which, uint64_t count)
{
    return (const char *)cuda_weights(stage, node, e->tensor + which) +
           e->index * count * stage->element;
}

/* NULL if not needed. */
static float *gradient_of(const ty_stage_device *stage, const stage_node *node, const expert *e,
                          uint32_t which, uint64_t count)
{
    float *all = cuda_parameter_gradient(stage, node, e->tensor + which);

    return all != NULL ? all + e->index * count : NULL;
}

static ty_status up_forward(ty_stage_device *stage, const stage_node *node, const mixture *m,
                            const expert *e, ty_error *error)
{
    const cuda_affine up = {.rows = e->rows,
                            .in = m->core.features,
                            .out = e->up,
                            .x = e->x,
                            .weight = weights_of(stage, node, e, 0, e->up * m->core.features),
                            .bias = m->has_bias ? weights_of(stage, node, e, UP_BIAS, e->up) : NULL,
                            .y = e->h};

    return cuda_affine_forward(stage, &up, error);
}

static ty_status down_forward(ty_stage_device *stage, const stage_node *node, const mixture *m,
                              const expert *e, ty_error *error)
{
    const cuda_affine down = {.rows = e->rows,
                              .in = e->hidden,
                              .out = m->core.features,
                              .x = e->a,
                              .weight =
                                  weights_of(stage, node, e, DOWN, e->hidden * m->core.features),
                              .bias = m->has_bias && m->parts == 1
                                          ? weights_of(stage, node, e, DOWN_BIAS, m->core.features)
                                          : NULL,
                              .y = e->y};
    const ty_status status = cuda_affine_forward(stage, &down, error);

    if (status == TY_OK && m->has_bias && m->parts > 1)
        cuda_add_tp_bias(stage, e->rows, m->core.features,
                         cuda_parameters(stage, node, e->tensor + DOWN_BIAS) + e->index * m->part,
                         e->y);
    return status;
}

static void activate(const ty_stage_device *stage, const mixture *m, uint64_t rows, uint64_t hidden,
                     const void *h, void *a)
{
    if (rows * hidden == 0)
        return;
    if (m->is_gated)
        cuda_gate(stage->own->type, rows, hidden, h, a, stage->own->stream);
    else
        cuda_activate(stage->own->type, CUDA_GELU, rows * hidden, h, a, stage->own->stream);
}

static void activate_backward(const ty_stage_device *stage, const mixture *m, uint64_t rows,
                              uint64_t hidden, const void *h, const void *da, void *dh)
{
    if (rows * hidden == 0)
        return;
    if (m->is_gated)
        cuda_gate_backward(stage->own->type, rows, hidden, h, da, dh, stage->own->stream);
    else
        cuda_activate_backward(stage->own->type, CUDA_GELU, rows * hidden, h, da, false, dh,
                               stage->own->stream);
}

/* Gradients of the second product. */
static ty_status down_backward(ty_stage_device *stage, const stage_node *node, const mixture *m,
                               const expert *e, ty_error *error)
{
    const uint64_t matrix = e->hidden * m->core.features;
    float *dbias = m->has_bias ? gradient_of(stage, node, e, DOWN_BIAS, m->part) : NULL;
    const cuda_affine_gradient down = {.rows = e->rows,
                                       .in = e->hidden,
                                       .out = m->core.features,
                                       .x = e->a,
                                       .weight = weights_of(stage, node, e, DOWN, matrix),
                                       .dy = e->dy,
                                       .dweight = gradient_of(stage, node, e, DOWN, matrix),
                                       .dbias = m->parts == 1 ? dbias : NULL,
                                       .dx = e->da,
                                       .adds_weight = e->adds_down,
                                       .adds_bias = e->adds_down};

    if (dbias != NULL && m->parts > 1)
        cuda_tp_bias_gradient(stage, e->rows, m->core.features, e->dy, e->adds_down, dbias);
    return cuda_affine_backward(stage, &down, error);
}

static ty_status up_backward(ty_stage_device *stage, const stage_node *node, const mixture *m,
                             const expert *e, ty_error *error)
{
    const uint64_t matrix = e->up * m->core.features;
    const cuda_affine_gradient up = {
        .rows = e->rows,
        .in = m->core.features,
        .out = e->up,
        .x = e->x,
        .weight = weights_of(stage, node, e, 0, matrix),
        .dy = e->dh,
        .dweight = gradient_of(stage, node, e, 0, matrix),
        .dbias = m->has_bias ? gradient_of(stage, node, e, UP_BIAS, e->up) : NULL,
        .dx = e->dx,
        .adds_weight = e->adds_up,
        .adds_bias = e->adds_up,
        .adds_x = e->adds_x};

    return cuda_affine_backward(stage, &up, error);
}

/* ---- All of them ---- */

/* The rows of expert e in a pass. */
static expert expert_of(const ty_stage_device *stage, const mixture *m, const kept *keep,
                        const room *own, const int32_t *first, uint64_t e, bool is_first)
{
    const uint64_t at = (uint64_t)first[e], wide = at * m->core.features * stage->element;
    const bool is_asked = stage->part != STAGE_WEIGHTS;

    return (expert){.rows = (uint64_t)first[e + 1] - at,
                    .hidden = m->hidden,
                    .up = m->up,
                    .tensor = MOE_UP,
                    .index = e,
                    .adds_down = !is_first,
                    .adds_up = !is_first,
                    .x = keep->x + wide,
                    .y = (m->ranks > 1 ? own->made : keep->y) + wide,
                    .h = keep->h + at * m->up * stage->element,
                    .a = keep->a + at * m->hidden * stage->element,
                    .dy = keep->dy + wide,
                    .da = is_asked ? own->da + at * m->hidden * stage->element : NULL,
                    .dh = keep->dh + at * m->up * stage->element,
                    .dx = is_asked ? own->made + wide : NULL};
}

/* The shared experts act as one, which reads all tokens. */
static expert shared_of(const mixture *m, const kept *keep, bool is_first)
{
    return (expert){.rows = m->core.rows,
                    .hidden = m->shared,
                    .up = m->shared_up,
                    .tensor = MOE_SHARED_UP,
                    .adds_down = !is_first,
                    .adds_up = !is_first,
                    .h = keep->shared_h,
                    .a = keep->shared_a,
                    .dh = keep->shared_dh};
}

/* Gradients of an expert without copies. */
static ty_status expert_clear(ty_stage_device *stage, const stage_node *node, const mixture *m,
                              const expert *e, ty_error *error)
{
    const uint64_t counts[] = {e->up * m->core.features, e->hidden * m->core.features, e->up,
                               m->part};
    ty_status status = TY_OK;

    for (uint32_t t = 0; t < (m->has_bias ? 4U : 2U); t++) {
        float *gradient = gradient_of(stage, node, e, t, counts[t]);
        if (gradient != NULL)
            CUDA_CHECK(
                cudaMemsetAsync(gradient, 0, counts[t] * sizeof *gradient, stage->own->stream),
                status, done);
    }
done:
    return status;
}

/* Bytes of a row before this rank's columns of the router. */
static uint64_t before_part(const ty_stage_device *stage, const mixture *m)
{
    return m->parts > 1 ? stage->options.parallel.tp_rank * m->part * stage->element : 0;
}

/* Computes scores, choices and places of copies, then reads the number of copies per expert to the
 * host. */
static ty_status route(ty_stage_device *stage, const stage_node *node, const mixture *m,
                       const kept *keep, const room *own, uint32_t slot, const char *x,
                       ty_error *error)
{
    int32_t *starts = ((mixture_state *)node->state)->starts[slot];
    const cuda_strided scores = {.rows = m->core.rows,
                                 .in = m->part,
                                 .out = m->core.experts,
                                 .x_stride = m->core.features,
                                 .y_stride = m->core.experts,
                                 .x = x + before_part(stage, m),
                                 .weight = cuda_weights(stage, node, MOE_ROUTER),
                                 .y = own->scores};
    ty_status status;

    TY_CHECK(cuda_strided_forward(stage, &scores, error), status, done);
    if (m->parts > 1)
        TY_CHECK(stage_ranks_all_reduce(stage, false, m->core.rows * m->core.experts, own->scores,
                                        error),
                 status, done);
    cuda_route(&m->core, own->scores, keep->choice, keep->weight, stage->own->stream);
    cuda_experts_place(&m->core, keep->choice, keep->starts, keep->place, keep->copy_of,
                       stage->own->stream);
    CUDA_CHECK(cudaMemcpyAsync(starts, keep->starts, (m->core.experts + 1) * sizeof *starts,
                               cudaMemcpyDeviceToHost, stage->own->stream),
               status, done);
    status = cuda_pass_wait(stage, error);
done:
    return status;
}

static cuda_expert_copies copies_of(const stage_node *node, const mixture *m, const kept *keep,
                                    const room *own, uint32_t slot)
{
    const mixture_state *state = node->state;

    return (cuda_expert_copies){.experts = m->here,
                                .features = m->core.features,
                                .starts = state->starts[slot],
                                .arrived = state->arrived[slot],
                                .first = state->first[slot],
                                .host_index = state->host_index,
                                .index = keep->index,
                                .counts = own->counts,
                                .received = own->received};
}

/* Sends own copies to their experts, on any rank. */
static ty_status copies_go(ty_stage_device *stage, const stage_node *node, const mixture *m,
                           const kept *keep, const room *own, uint32_t slot, const char *x,
                           ty_error *error)
{
    const mixture_state *state = node->state;
    const uint64_t padded = (uint64_t)state->starts[slot][m->core.experts];
    cuda_expert_copies copies;

    cuda_copies_take(stage->own->type, &m->core, padded, keep->copy_of, NULL, x,
                     m->ranks > 1 ? own->packed : keep->x, stage->own->stream);
    if (m->ranks == 1)
        return TY_OK;
    copies = copies_of(node, m, keep, own, slot);
    TY_TRY(cuda_experts_meet(stage, &copies, error));
    return cuda_experts_send(stage, &copies, own->packed, keep->x, error);
}

/* Receives expert outputs, or gradients of expert inputs. */
static ty_status copies_come(ty_stage_device *stage, const stage_node *node, const mixture *m,
                             const kept *keep, const room *own, uint32_t slot, void *to,
                             ty_error *error)
{
    cuda_expert_copies copies;

    if (m->ranks == 1)
        return TY_OK; /* they are in place */
    copies = copies_of(node, m, keep, own, slot);
    return cuda_experts_return(stage, &copies, own->made, to, error);
}

static ty_status moe_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                             ty_error *error)
{
    const mixture m = mixture_of(stage, node);
    const int32_t *first = ((const mixture_state *)node->state)->first[slot];
    char *y = stage_summand(stage, node, false, cuda_out(stage, node, slot));
    const void *x;
    expert shared;
    kept keep;
    room own = {0};

    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    room_cut(stage, &m, stage->scratch, &own, &keep);
    TY_TRY(stage_whole_input(stage, node, 0, slot, stage->gather_workspace, &x, error));
    TY_TRY(route(stage, node, &m, &keep, &own, slot, x, error));
    TY_TRY(copies_go(stage, node, &m, &keep, &own, slot, x, error));
    for (uint64_t e = 0; e < m.here; e++) {
        const expert one = expert_of(stage, &m, &keep, &own, first, e, false);
        if (one.rows > 0)
            TY_TRY(up_forward(stage, node, &m, &one, error));
    }
    activate(stage, &m, (uint64_t)first[m.here], m.hidden, keep.h, keep.a);
    for (uint64_t e = 0; e < m.here; e++) {
        const expert one = expert_of(stage, &m, &keep, &own, first, e, false);
        if (one.rows > 0)
            TY_TRY(down_forward(stage, node, &m, &one, error));
    }
    TY_TRY(copies_come(stage, node, &m, &keep, &own, slot, keep.y, error));
    shared = shared_of(&m, &keep, false);
    shared.x = x; /* its last reader; y may alias x */
    shared.y = y;
    if (m.shared > 0) {
        TY_TRY(up_forward(stage, node, &m, &shared, error));
        activate(stage, &m, shared.rows, m.shared, shared.h, shared.a);
        TY_TRY(down_forward(stage, node, &m, &shared, error));
    }
    cuda_copies_sum(stage->own->type, &m.core, keep.place, keep.weight, keep.y, m.shared > 0, y,
                    stage->own->stream);
    return stage_ranks_sum(stage, node, &node->whole_output, y, false, cuda_out(stage, node, slot),
                           error);
}

/* Recomputes outputs of activation functions from their inputs. */
static ty_status moe_again(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                           ty_error *error)
{
    const mixture m = mixture_of(stage, node);
    const int32_t *first = ((const mixture_state *)node->state)->first[slot];
    kept keep;

    (void)error;
    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    activate(stage, &m, (uint64_t)first[m.here], m.hidden, keep.h, keep.a);
    activate(stage, &m, m.core.rows, m.shared, keep.shared_h, keep.shared_a);
    return TY_OK;
}

/* ---- Backward ---- */

/* The input and the output's gradient of all tokens. With sequence parallelism, TP ranks all-gather
 * them in the first part of a split backward. */
typedef struct operands {
    const void *x, *dy;
} operands;

static ty_status operands_take(ty_stage_device *stage, const stage_node *node, const room *own,
                               uint32_t slot, operands *out, ty_error *error)
{
    void *x = node->tp_kept != NULL ? node->tp_kept[stage->slot] : own->whole_x;

    out->x = x;
    if (!stage_gathers(stage, node) ||
        stage->part != STAGE_WEIGHTS) /* else it is gathered already */
        TY_TRY(stage_whole_input(stage, node, 0, slot, x, &out->x, error));
    return cuda_whole_gradient(stage, node, own->whole_dy, &out->dy, error);
}

/* Into `dx`, unless NULL; each TP rank has the part of its columns. */
static ty_status router_backward(ty_stage_device *stage, const stage_node *node, const mixture *m,
                                 const kept *keep, const room *own, const void *x, bool is_first,
                                 bool adds, void *dx, ty_error *error)
{
    const bool is_divided = m->parts > 1;
    const uint64_t first = stage->options.parallel.tp_rank * m->part;
    const cuda_affine_gradient to = {.rows = m->core.rows,
                                     .in = m->part,
                                     .out = m->core.experts,
                                     .dy_stride = m->stride,
                                     .x = is_divided ? own->part : x,
                                     .weight = cuda_weights(stage, node, MOE_ROUTER),
                                     .dy = keep->dscores,
                                     .dweight = cuda_parameter_gradient(stage, node, MOE_ROUTER),
                                     .dx = dx != NULL && is_divided ? own->dpart : dx,
                                     .adds_weight = stage_adds(node, MOE_ROUTER, is_first),
                                     .adds_x = adds};
    ty_status status;

    if (is_divided)
        cuda_columns_take(stage->own->type, m->core.rows, m->core.features, first, m->part, x,
                          own->part, stage->own->stream);
    status = cuda_affine_backward(stage, &to, error);
    if (is_divided && dx != NULL)
        cuda_columns_put(stage->own->type, m->core.rows, m->core.features, first, m->part,
                         own->dpart, dx, stage->own->stream);
    return status;
}

static ty_status experts_backward(ty_stage_device *stage, const stage_node *node, const mixture *m,
                                  const kept *keep, const room *own, const int32_t *first,
                                  bool is_first, ty_error *error)
{
    for (uint64_t e = 0; e < m->here; e++) {
        const expert one = expert_of(stage, m, keep, own, first, e, is_first);
        if (one.rows > 0)
            TY_TRY(down_backward(stage, node, m, &one, error));
        else if (is_first)
            TY_TRY(expert_clear(stage, node, m, &one, error));
    }
    if (stage->part != STAGE_WEIGHTS)
        activate_backward(stage, m, (uint64_t)first[m->here], m->hidden, keep->h, own->da,
                          keep->dh);
    for (uint64_t e = 0; e < m->here; e++) {
        const expert one = expert_of(stage, m, keep, own, first, e, is_first);
        if (one.rows > 0)
            TY_TRY(up_backward(stage, node, m, &one, error));
    }
    return TY_OK;
}

/* Adds to `dx`, unless NULL. */
static ty_status shared_backward(ty_stage_device *stage, const stage_node *node, const mixture *m,
                                 const kept *keep, const room *own, const operands *of,
                                 bool is_first, void *dx, ty_error *error)
{
    expert shared = shared_of(m, keep, is_first);

    if (m->shared == 0)
        return TY_OK;
    shared.x = of->x;
    shared.dy = of->dy;
    shared.da = stage->part != STAGE_WEIGHTS ? own->shared_da : NULL;
    shared.dx = dx;
    shared.adds_x = true;
    TY_TRY(down_backward(stage, node, m, &shared, error));
    if (stage->part != STAGE_WEIGHTS)
        activate_backward(stage, m, shared.rows, m->shared, shared.h, shared.da, shared.dh);
    return up_backward(stage, node, m, &shared, error);
}

/* Gradients of the scores and of the local experts' outputs; sends the copies' gradients like the
 * copies. With EP, the second part of a split backward reuses those of the first. */
static ty_status gradients_go(ty_stage_device *stage, const stage_node *node, const mixture *m,
                              const kept *keep, const room *own, uint32_t slot, const void *dy,
                              ty_error *error)
{
    const mixture_state *state = node->state;
    const uint64_t padded = (uint64_t)state->starts[slot][m->core.experts];
    cuda_expert_copies copies;
    ty_status status = TY_OK;

    if (stage->part != STAGE_WEIGHTS) {
        cuda_copy_gains(stage->own->type, &m->core, keep->place, keep->y, dy, own->gain,
                        stage->own->stream);
        if (m->parts > 1)
            status = stage_ranks_all_reduce(stage, false, m->copies, own->gain, error);
        if (status != TY_OK)
            return status;
        cuda_scores_gradient(stage->own->type, &m->core, keep->choice, keep->weight, own->gain,
                             m->stride, keep->dscores, stage->own->stream);
    }
    if (m->ranks > 1 && stage->part == STAGE_WEIGHTS)
        return TY_OK;
    cuda_copies_take(stage->own->type, &m->core, padded, keep->copy_of, keep->weight, dy,
                     own->packed, stage->own->stream);
    if (m->ranks == 1)
        return TY_OK;
    copies = copies_of(node, m, keep, own, slot);
    return cuda_experts_send(stage, &copies, own->packed, keep->dy, error);
}

static ty_status moe_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              bool is_first, ty_error *error)
{
    const mixture m = mixture_of(stage, node);
    const int32_t *first = ((const mixture_state *)node->state)->first[slot];
    const bool adds = node->adds[0];
    void *to = cuda_in_gradient(stage, node, 0), *dx = stage_summand(stage, node, adds, to);
    operands of;
    kept keep;
    room own = {0};

    kept_cut(stage, node, &m, node->kept[slot], node->stash[slot], &keep);
    room_cut(stage, &m, stage->scratch, &own, &keep);
    TY_TRY(operands_take(stage, node, &own, slot, &of, error));
    TY_TRY(gradients_go(stage, node, &m, &keep, &own, slot, of.dy, error));
    TY_TRY(experts_backward(stage, node, &m, &keep, &own, first, is_first, error));
    if (dx != NULL) /* on all ranks or on none */
        TY_TRY(copies_come(stage, node, &m, &keep, &own, slot, own.packed, error));
    TY_TRY(
        router_backward(stage, node, &m, &keep, &own, of.x, is_first, dx == to && adds, dx, error));
    TY_TRY(shared_backward(stage, node, &m, &keep, &own, &of, is_first, dx, error));
    if (dx != NULL)
        cuda_copies_sum(stage->own->type, &m.core, keep.place, NULL,
                        m.ranks > 1 ? own.packed : own.made, true, dx, stage->own->stream);
    return stage_ranks_sum(stage, node, &node->whole_input, dx, adds, to, error);
}

const stage_kind cuda_moe = {.floats = STAGE_BIT(MOE_SHARED_DOWN_BIAS) | STAGE_BIT(MOE_DOWN_BIAS),
                             .build = moe_build,
                             .forward = moe_forward,
                             .again = moe_again,
                             .backward = moe_backward,
                             .release = moe_release};
