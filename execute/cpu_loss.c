/* Softmax and cross-entropy over the innermost dimension, one label per row. */
#include "cpu_layer.h"
#include "cpu_math.h"

#include <stdlib.h>

/* max and log-sum-exp of a row; the index of the maximum, the lowest of equals. */
CPU_CLONES static void row_statistics(uint64_t classes, const float *logits, float *log_sum,
                                      uint64_t *best)
{
    float maximum = logits[0], sum = 0.0f;
    uint64_t at = 0;

    for (uint64_t c = 1; c < classes; c++)
        maximum = logits[c] > maximum ? logits[c] : maximum;
#pragma omp simd reduction(+ : sum)
    for (uint64_t c = 0; c < classes; c++)
        sum += cpu_exp(logits[c] - maximum);
    while (at < classes - 1 && logits[at] != maximum)
        at++;
    *log_sum = maximum + logf(sum);
    *best = at;
}

CPU_CLONES static void row_gradient(uint64_t classes, const float *logits, float log_sum,
                                    float scale, float *gradient)
{
    for (uint64_t c = 0; c < classes; c++)
        gradient[c] = scale * cpu_exp(logits[c] - log_sum);
}

static const cpu_value *logits_of(const ty_stage_device *stage, const cpu_node *node)
{
    return &stage->values[node->inputs[0]];
}

static uint64_t class_count(const cpu_value *logits)
{
    return logits->shape.dimensions[logits->shape.dimension_count - 1];
}

static ty_status loss_build(ty_stage_device *stage, cpu_node *node, ty_error *error)
{
    const cpu_value *logits = logits_of(stage, node);

    (void)error;
    node->stash_bytes = cpu_rows(logits) * sizeof(float); /* log-sum-exp of each row */
    node->scratch_bytes = class_count(logits) * sizeof(float);
    return TY_OK;
}

static ty_status loss_forward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                              ty_error *error)
{
    const cpu_value *logits = logits_of(stage, node);
    const int32_t *labels = stage->labels[slot];
    uint64_t classes = class_count(logits), rows = cpu_rows(logits);
    float *log_sums = node->stash[slot];
    cpu_loss loss = {0};

    for (uint64_t r = 0; r < rows; r++) {
        const float *row = logits->data[slot] + r * classes;
        uint64_t best;
        if (labels[r] < 0 || (uint64_t)labels[r] >= classes)
            return ty_fail(error, TY_EINVAL, "layer %s: label %ld of row %lu, expected 0 to %lu",
                           node->layer->name, (long)labels[r], (unsigned long)r,
                           (unsigned long)(classes - 1));
        row_statistics(classes, row, &log_sums[r], &best);
        loss.sum += (double)log_sums[r] - (double)row[labels[r]];
        loss.correct += best == (uint64_t)labels[r];
    }
    stage->losses[slot] = loss;
    return TY_OK;
}

/* d loss / d logit = softmax - (1 at the label). */
static ty_status loss_backward(ty_stage_device *stage, const cpu_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const cpu_value *logits = logits_of(stage, node);
    const int32_t *labels = stage->labels[slot];
    uint64_t classes = class_count(logits), rows = cpu_rows(logits);
    const float *log_sums = node->stash[slot];
    float *dx = cpu_in_gradient(stage, node, 0, slot);
    float scale = (float)stage->options.loss_scale;

    (void)is_first, (void)error;
    if (dx == NULL)
        return TY_OK;
    for (uint64_t r = 0; r < rows; r++, dx += classes) {
        float *to = node->adds[0] ? stage->scratch : dx;
        row_gradient(classes, logits->data[slot] + r * classes, log_sums[r], scale, to);
        to[labels[r]] -= scale;
        if (to != dx)
            cpu_accumulate(classes, to, true, dx);
    }
    return TY_OK;
}

const cpu_kind cpu_loss_layer = {
    .build = loss_build, .forward = loss_forward, .backward = loss_backward};
