/* Parameters of a model, and which of them a device of each kind of stage holds. */
#include "parts.h"

#include <math.h>

double layout_element_bytes(ty_layout_precision precision)
{
    return precision == TY_LAYOUT_FP32 ? 4 : 2;
}

double layout_peak(const ty_layout_device *device, ty_layout_precision precision)
{
    switch (precision) {
    case TY_LAYOUT_FP8:
        return device->peak_fp8_flop_per_s;
    case TY_LAYOUT_FP32:
        return device->peak_fp32_flop_per_s;
    case TY_LAYOUT_HALF:
    case TY_LAYOUT_PRECISION_COUNT:
        break;
    }
    return device->peak_half_flop_per_s;
}

/* ---- Parameters ------------------------------------------------------------------------------ */

double layout_expert_layers(const ty_layout_shape *s)
{
    return s->experts == 0 ? 0 : (double)(s->layers - s->dense_layers);
}

static double mlp_parameters(const ty_layout_shape *s, double features)
{
    return (s->is_gated ? 3.0 : 2.0) * s->hidden * features;
}

/* Averages over the layers where the first few are dense. Norms and biases as in GPT-2: two of two
 * vectors; biases of all products, in plain mlps. */
layout_parameters layout_parameters_of(const ty_layout_shape *s)
{
    double h = s->hidden, with = layout_expert_layers(s) / s->layers;
    double biases =
        s->is_gated ? 0 : (double)(s->heads + 2 * s->kv_heads) * s->head_size + h + s->ffn + h;
    double norms = s->is_gated ? 2 * h : 4 * h;
    double dense = (1 - with) * mlp_parameters(s, s->ffn);
    double routed = with * (h * s->experts + mlp_parameters(s, s->shared_ffn));
    return (layout_parameters){.layer = s->attention_parameters + biases + norms + dense + routed,
                               .experts = with * s->experts * mlp_parameters(s, s->expert_ffn),
                               .embedding = (double)s->vocabulary * h + (double)s->positions * h,
                               .head = s->is_tied ? 0 : (double)s->vocabulary * h};
}

double ty_layout_parameters(const ty_layout_shape *shape)
{
    layout_parameters p = layout_parameters_of(shape);
    double last_norm = shape->is_gated ? shape->hidden : 2.0 * shape->hidden;
    return shape->layers * (p.layer + p.experts) + p.embedding + p.head + last_norm;
}

/* 2 flop per parameter and token forward, twice that backward, and the two products of attention.
 * Source: Narayanan et al. 2021, appendix, without its recomputation. */
double ty_layout_model_flop(const ty_layout_shape *s, uint32_t global_batch)
{
    double tokens = (double)global_batch * s->sequence, with = layout_expert_layers(s);
    double layers = s->layers * s->attention_parameters +
                    (s->layers - with) * mlp_parameters(s, s->ffn) +
                    with * (mlp_parameters(s, (double)s->experts_per_token * s->expert_ffn) +
                            mlp_parameters(s, s->shared_ffn) + (double)s->hidden * s->experts);
    double scores = 2.0 * s->layers * s->sequence * s->heads * s->head_size;
    return 6 * tokens * (layers + (double)s->vocabulary * s->hidden + scores);
}

/* ---- Stages ---------------------------------------------------------------------------------- */

layout_stages layout_stages_of(uint32_t layers, uint32_t pipeline)
{
    uint32_t base = layers / pipeline, rest = layers % pipeline;
    uint32_t middles = pipeline > 2 ? pipeline - 2 : 0;
    bool first_has_more = rest > middles;
    if (pipeline == 1)
        return (layout_stages){layers, layers, layers};
    return (layout_stages){.first = base + (first_has_more ? 1 : 0),
                           .middle = base + (rest > 0 && middles > 0 ? 1 : 0),
                           .last = base};
}

static layout_share share(const ty_layout_question *q, const ty_layout *l, double layers,
                          double ends)
{
    layout_parameters p = layout_parameters_of(&q->shape);
    return (layout_share){.dense = (layers * p.layer + ends) / l->tensor,
                          .experts = layers * p.experts / ((double)l->tensor * l->expert)};
}

layout_share layout_first_share(const ty_layout_question *q, const ty_layout *l)
{
    layout_parameters p = layout_parameters_of(&q->shape);
    layout_stages stages = layout_stages_of(q->shape.layers, l->pipeline);
    return share(q, l, stages.first, p.embedding + (l->pipeline == 1 ? p.head : 0));
}

layout_share layout_middle_share(const ty_layout_question *q, const ty_layout *l)
{
    return share(q, l, layout_stages_of(q->shape.layers, l->pipeline).middle, 0);
}

/* A tied head has a copy of the matrix in the last stage. */
layout_share layout_last_share(const ty_layout_question *q, const ty_layout *l)
{
    double matrix = (double)q->shape.vocabulary * q->shape.hidden;
    if (l->pipeline == 1)
        return layout_first_share(q, l);
    return share(q, l, layout_stages_of(q->shape.layers, l->pipeline).last, matrix);
}
