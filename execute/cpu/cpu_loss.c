/* Softmax and cross-entropy over the innermost dimension, one label per row. Ranks with shards of
 * the vocabulary all-reduce the largest score, the sum of exponentials and the label's score of
 * every row (Shoeybi et al., "Megatron-LM", 2019, section 3). A single score is that of label 1
 * against 0 for label 0: the logistic loss. */
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

static const stage_value *logits_of(const ty_stage_device *stage, const stage_node *node)
{
    return &stage->values[node->inputs[0]];
}

/* This rank's shard of a row's scores, and their total number; `stride` includes padding. */
typedef struct scores {
    uint64_t rows, classes, stride;
    shard_range own;
    bool is_one; /* of label 1 */
} scores;

static scores scores_of(const ty_stage_device *stage, const stage_node *node)
{
    const stage_value *logits = logits_of(stage, node);
    const ty_shape *whole = &node->whole_input;
    const uint64_t classes = whole->dimensions[whole->dimension_count - 1];
    const uint32_t ranks = node->is_divided ? tp_size_of(&stage->options) : 1;

    if (classes == 1)
        return (scores){.rows = stage_rows(logits),
                        .classes = 2,
                        .stride = 1,
                        .own = {.first = 1, .count = 1},
                        .is_one = true};
    return (scores){
        .rows = stage_rows(logits),
        .classes = classes,
        .stride = logits->shape.dimensions[logits->shape.dimension_count - 1],
        .own = shard_range_of(classes, ranks, ranks > 1 ? stage->options.parallel.tp_rank : 0),
    };
}

static bool has_label(const scores *s, int32_t label)
{
    return (uint64_t)label >= s->own.first && (uint64_t)label - s->own.first < s->own.count;
}

/* Stash: log-sum-exp of each row, the teacher's and the student's if there are two. Scratch: one
 * row, or the data of all-reduces. */
static ty_status loss_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const scores s = scores_of(stage, node);
    const uint64_t exchanged = node->is_divided ? 3 * s.rows : 0;

    (void)error;
    node->stash_bytes =
        (ty_workload_has_teacher(stage->options.workload) ? 2 : 1) * s.rows * sizeof(float);
    node->scratch_bytes = (s.stride > exchanged ? s.stride : exchanged) * sizeof(float);
    return TY_OK;
}

/* With a teacher, a row may have no label in training. */
static ty_status labels_check(const ty_stage_device *stage, const stage_node *node, const scores *s,
                              const int32_t *labels, ty_error *error)
{
    const bool is_taught = ty_workload_has_teacher(stage->options.workload);
    const bool may_lack = is_taught && !stage->is_evaluating;
    const uint64_t classes = is_taught ? s->classes / 2 : s->classes;

    for (uint64_t r = 0; r < s->rows; r++)
        if ((labels[r] < 0 || (uint64_t)labels[r] >= classes) &&
            !(may_lack && labels[r] == TY_NO_LABEL))
            return ty_fail(error, TY_EINVAL, "layer %s: label %ld of row %lu, expected 0 to %lu",
                           node->layer->name, (long)labels[r], (unsigned long)r,
                           (unsigned long)(classes - 1));
    return TY_OK;
}

static void loss_alone(const scores *s, const float *logits, const int32_t *labels, float *log_sums,
                       cpu_loss *loss)
{
    for (uint64_t r = 0; r < s->rows; r++, logits += s->classes) {
        uint64_t best;
        row_statistics(s->classes, logits, &log_sums[r], &best);
        loss->sum += (double)log_sums[r] - (double)logits[labels[r]];
        loss->correct += best == (uint64_t)labels[r];
    }
}

static void loss_of_one_score(const scores *s, const float *logits, const int32_t *labels,
                              float *log_sums, cpu_loss *loss)
{
    for (uint64_t r = 0; r < s->rows; r++) {
        const float x = logits[r];
        log_sums[r] = (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));
        loss->sum += (double)log_sums[r] - (labels[r] == 1 ? (double)x : 0.0);
        loss->correct += (x > 0.0f) == (labels[r] == 1);
    }
}

CPU_CLONES static float largest(uint64_t count, const float *x)
{
    float maximum = -FLT_MAX;

    for (uint64_t i = 0; i < count; i++)
        maximum = x[i] > maximum ? x[i] : maximum;
    return maximum;
}

CPU_CLONES static float exponentials(uint64_t count, const float *x, float maximum)
{
    float sum = 0.0f;

#pragma omp simd reduction(+ : sum)
    for (uint64_t i = 0; i < count; i++)
        sum += cpu_exp(x[i] - maximum);
    return sum;
}

/* Among equal largest scores the label's counts, wherever it is. */
static ty_status loss_among_tp_ranks(ty_stage_device *stage, const scores *s, const float *logits,
                                     const int32_t *labels, float *log_sums, cpu_loss *loss,
                                     ty_error *error)
{
    float *maxima = stage->scratch, *sums = maxima + s->rows, *of_labels = sums + s->rows;

    for (uint64_t r = 0; r < s->rows; r++)
        maxima[r] = largest(s->own.count, logits + r * s->stride);
    TY_TRY(stage_ranks_all_reduce(stage, true, s->rows, maxima, error));
    for (uint64_t r = 0; r < s->rows; r++) {
        const float *row = logits + r * s->stride;
        sums[r] = exponentials(s->own.count, row, maxima[r]);
        of_labels[r] = has_label(s, labels[r]) ? row[(uint64_t)labels[r] - s->own.first] : 0.0f;
    }
    TY_TRY(stage_ranks_all_reduce(stage, false, s->rows, sums, error));
    TY_TRY(stage_ranks_all_reduce(stage, false, s->rows, of_labels, error));
    for (uint64_t r = 0; r < s->rows; r++) {
        log_sums[r] = maxima[r] + logf(sums[r]);
        loss->sum += (double)log_sums[r] - (double)of_labels[r];
        loss->correct += of_labels[r] == maxima[r];
    }
    return TY_OK;
}

/* ---- With a teacher ---------------------------------------------------------------------- */

/* A row has the teacher's scores first, then as many of the student's (ty_teacher). */
static bool has_teacher(const ty_stage_device *stage)
{
    return ty_workload_has_teacher(stage->options.workload);
}

/* Log-sum-exp and largest score of a row, the teacher's and the student's. */
static void both_sums(uint64_t classes, const float *logits, float sums[2], uint64_t best[2])
{
    row_statistics(classes, logits, &sums[0], &best[0]);
    row_statistics(classes, logits + classes, &sums[1], &best[1]);
}

CPU_CLONES static float squared_distance(uint64_t classes, const float *logits, const float sums[2])
{
    float sum = 0.0f;

    for (uint64_t c = 0; c < classes; c++) {
        const float difference =
            cpu_exp(logits[classes + c] - sums[1]) - cpu_exp(logits[c] - sums[0]);
        sum += difference * difference;
    }
    return sum;
}

/* The teacher's cross-entropy on a test set, the student's loss in training. */
static void loss_beside_teacher(const ty_stage_device *stage, const scores *s, const float *logits,
                                const int32_t *labels, float *log_sums, cpu_loss *loss)
{
    const ty_teacher *teacher = &stage->options.workload->teacher;
    const uint64_t classes = s->classes / 2;
    const double of_distance = teacher->consistency / (double)classes;
    const int which = stage->is_evaluating ? 0 : 1;

    for (uint64_t r = 0; r < s->rows; r++, logits += s->classes) {
        float *sums = log_sums + 2 * r;
        uint64_t best[2];

        both_sums(classes, logits, sums, best);
        if (!stage->is_evaluating)
            loss->sum += of_distance * (double)squared_distance(classes, logits, sums);
        if (labels[r] == TY_NO_LABEL)
            continue;
        loss->sum +=
            (stage->is_evaluating ? 1 : teacher->every) *
            ((double)sums[which] - (double)logits[(uint64_t)which * classes + (uint64_t)labels[r]]);
        loss->correct += best[which] == (uint64_t)labels[r];
    }
}

/* p being the student's softmax and d its distance from the teacher's:
 * every (p - 1 at the label) + consistency 2 / classes p (d - sum of d p). */
CPU_CLONES static void row_beside_teacher(uint64_t classes, const float *logits,
                                          const float sums[2], float of_label, float of_distance,
                                          float *gradient)
{
    float mean = 0.0f;

    for (uint64_t c = 0; c < classes; c++) {
        const float own = cpu_exp(logits[classes + c] - sums[1]);
        gradient[c] = own - cpu_exp(logits[c] - sums[0]);
        mean += gradient[c] * own;
    }
    for (uint64_t c = 0; c < classes; c++) {
        const float own = cpu_exp(logits[classes + c] - sums[1]);
        gradient[c] = own * (of_label + of_distance * (gradient[c] - mean));
    }
}

static void backward_beside_teacher(ty_stage_device *stage, const scores *s, const float *logits,
                                    const int32_t *labels, const float *log_sums, bool adds,
                                    float *dx)
{
    const ty_teacher *teacher = &stage->options.workload->teacher;
    const uint64_t classes = s->classes / 2;
    const float scale = (float)stage->options.loss_scale;
    const float of_label = scale * (float)teacher->every;
    const float of_distance = scale * (float)(teacher->consistency * 2 / (double)classes);

    for (uint64_t r = 0; r < s->rows; r++, logits += s->classes, dx += s->classes) {
        const bool is_labelled = labels[r] != TY_NO_LABEL;
        float *to = adds ? stage->scratch : dx;

        memset(to, 0, classes * sizeof *to);
        row_beside_teacher(classes, logits, log_sums + 2 * r, is_labelled ? of_label : 0.0f,
                           of_distance, to + classes);
        if (is_labelled)
            to[classes + (uint64_t)labels[r]] -= of_label;
        if (to != dx)
            cpu_accumulate(s->classes, to, true, dx);
    }
}

/* ---- With sampled actions ----------------------------------------------------------------- */

/* The advantage of each row's action, after all labels (device.h). */
static const float *advantages_of(const ty_stage_device *stage, const scores *s,
                                  const int32_t *labels)
{
    if (stage->options.workload->learning != TY_LEARNING_REINFORCEMENT)
        return NULL;
    return (const float *)(const void *)(labels + s->rows);
}

static void loss_of_actions(const scores *s, const float *logits, const int32_t *labels,
                            const float *advantages, float *log_sums, cpu_loss *loss)
{
    for (uint64_t r = 0; r < s->rows; r++, logits += s->classes) {
        uint64_t best;
        row_statistics(s->classes, logits, &log_sums[r], &best);
        loss->sum += (double)advantages[r] * ((double)log_sums[r] - (double)logits[labels[r]]);
        loss->correct += best == (uint64_t)labels[r];
    }
}

/* ---- The layer --------------------------------------------------------------------------- */

static ty_status loss_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                              ty_error *error)
{
    const scores s = scores_of(stage, node);
    const float *logits = logits_of(stage, node)->data[slot];
    const int32_t *labels = stage->labels[slot];
    const float *advantages = advantages_of(stage, &s, labels);
    cpu_loss loss = {0};
    ty_status status = labels_check(stage, node, &s, labels, error);

    if (status != TY_OK)
        return status;
    if (has_teacher(stage))
        loss_beside_teacher(stage, &s, logits, labels, node->stash[slot], &loss);
    else if (advantages != NULL)
        loss_of_actions(&s, logits, labels, advantages, node->stash[slot], &loss);
    else if (s.is_one)
        loss_of_one_score(&s, logits, labels, node->stash[slot], &loss);
    else if (node->is_divided)
        status = loss_among_tp_ranks(stage, &s, logits, labels, node->stash[slot], &loss, error);
    else
        loss_alone(&s, logits, labels, node->stash[slot], &loss);
    stage->own->losses[slot] = loss;
    return status;
}

/* d loss / d logit = softmax - (1 at the label), times the row's advantage if it has one. */
static ty_status loss_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                               bool is_first, ty_error *error)
{
    const scores s = scores_of(stage, node);
    const float *logits = logits_of(stage, node)->data[slot], *log_sums = node->stash[slot];
    const int32_t *labels = stage->labels[slot];
    const float *advantages = advantages_of(stage, &s, labels);
    float *dx = cpu_in_gradient(stage, node, 0, slot);
    const float of_all = (float)stage->options.loss_scale;

    (void)is_first, (void)error;
    if (dx == NULL)
        return TY_OK;
    if (has_teacher(stage)) {
        backward_beside_teacher(stage, &s, logits, labels, log_sums, node->adds[0], dx);
        return TY_OK;
    }
    for (uint64_t r = 0; r < s.rows; r++, dx += s.stride) {
        const float scale = advantages != NULL ? of_all * advantages[r] : of_all;
        float *to = node->adds[0] ? stage->scratch : dx;
        row_gradient(s.own.count, logits + r * s.stride, log_sums[r], scale, to);
        memset(to + s.own.count, 0, (s.stride - s.own.count) * sizeof *to);
        if (has_label(&s, labels[r]))
            to[(uint64_t)labels[r] - s.own.first] -= scale;
        if (to != dx)
            cpu_accumulate(s.stride, to, true, dx);
    }
    return TY_OK;
}

const stage_kind cpu_loss_layer = {
    .build = loss_build, .forward = loss_forward, .backward = loss_backward};
