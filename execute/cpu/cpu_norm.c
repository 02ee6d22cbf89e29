/* Layer norm and RMS norm over the innermost dimension. */
#include "cpu_layer.h"
#include "cpu_math.h"

/* Inside the root, as in GPT-2 and Llama 2. */
#define NORM_EPSILON 1e-5f

/* statistics: mean and 1 / deviation of each row. Ba, Kiros and Hinton, 2016. */
CPU_CLONES static void layer_norm_rows(uint64_t rows, uint64_t n, const float *x, const float *gain,
                                       const float *shift, float *y, float *statistics)
{
    for (uint64_t r = 0; r < rows; r++, x += n, y += n) {
        float sum = 0.0f, squares = 0.0f, mean, scale;
#pragma omp simd reduction(+ : sum)
        for (uint64_t i = 0; i < n; i++)
            sum += x[i];
        mean = sum / (float)n;
#pragma omp simd reduction(+ : squares)
        for (uint64_t i = 0; i < n; i++)
            squares += (x[i] - mean) * (x[i] - mean);
        scale = 1.0f / sqrtf(squares / (float)n + NORM_EPSILON);
        for (uint64_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * scale * gain[i] + shift[i];
        statistics[2 * r] = mean;
        statistics[2 * r + 1] = scale;
    }
}

/* With z = (x - mean) / deviation and e = dy gain: dx = (e - mean(e) - z mean(e z)) / deviation.
 * Adds to dgain and dshift; dx may be NULL, and so may both others. */
CPU_CLONES static void layer_norm_gradient(uint64_t rows, uint64_t n, const float *x,
                                           const float *gain, const float *statistics,
                                           const float *dy, float *dgain, float *dshift, bool adds,
                                           float *dx)
{
    for (uint64_t r = 0; r < rows; r++, x += n, dy += n) {
        float mean = statistics[2 * r], scale = statistics[2 * r + 1];
        float sum = 0.0f, product = 0.0f;
        if (dgain != NULL)
            for (uint64_t i = 0; i < n; i++) {
                dgain[i] += dy[i] * (x[i] - mean) * scale;
                dshift[i] += dy[i];
            }
        if (dx == NULL)
            continue;
#pragma omp simd reduction(+ : sum, product)
        for (uint64_t i = 0; i < n; i++) {
            float e = dy[i] * gain[i];
            sum += e;
            product += e * (x[i] - mean);
        }
        sum /= (float)n;
        product *= scale * scale / (float)n;
        if (adds)
            for (uint64_t i = 0; i < n; i++)
                dx[i] += (dy[i] * gain[i] - sum - (x[i] - mean) * product) * scale;
        else
            for (uint64_t i = 0; i < n; i++)
                dx[i] = (dy[i] * gain[i] - sum - (x[i] - mean) * product) * scale;
        dx += n;
    }
}

/* statistics: 1 / root mean square of each row. Zhang and Sennrich, NeurIPS 2019. */
CPU_CLONES void cpu_rms_norm_rows(uint64_t rows, uint64_t n, const float *x, const float *gain,
                                  float *y, float *statistics)
{
    for (uint64_t r = 0; r < rows; r++, x += n, y += n) {
        float squares = 0.0f;
#pragma omp simd reduction(+ : squares)
        for (uint64_t i = 0; i < n; i++)
            squares += x[i] * x[i];
        statistics[r] = 1.0f / sqrtf(squares / (float)n + NORM_EPSILON);
        for (uint64_t i = 0; i < n; i++)
            y[i] = x[i] * statistics[r] * gain[i];
    }
}

CPU_CLONES void cpu_rms_norm_gradient(uint64_t rows, uint64_t n, const float *x, const float *gain,
                                      const float *statistics, const float *dy, float *dgain,
                                      bool adds, float *dx)
{
    for (uint64_t r = 0; r < rows; r++, x += n, dy += n) {
        float scale = statistics[r], product = 0.0f;
        if (dgain != NULL)
            for (uint64_t i = 0; i < n; i++)
                dgain[i] += dy[i] * x[i] * scale;
        if (dx == NULL)
            continue;
#pragma omp simd reduction(+ : product)
        for (uint64_t i = 0; i < n; i++)
            product += dy[i] * gain[i] * x[i];
        product *= scale * scale / (float)n;
        if (adds)
            for (uint64_t i = 0; i < n; i++)
                dx[i] += (dy[i] * gain[i] - x[i] * product) * scale;
        else
            for (uint64_t i = 0; i < n; i++)
                dx[i] = (dy[i] * gain[i] - x[i] * product) * scale;
        dx += n;
    }
}

static uint64_t features_of(const stage_node *node)
{
    return node->layer->attributes[TY_FEATURES];
}

static ty_status norm_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    (void)error;
    node->stash_bytes = 2 * stage_rows(&stage->values[node->output]) * sizeof(float);
    return TY_OK;
}

/* The gradient of a tensor, to add to; cleared if it is to be overwritten. */
static float *cleared_gradient(const ty_stage_device *stage, const stage_node *node,
                               uint32_t tensor, bool is_first)
{
    float *gradient = cpu_parameter_gradient(stage, node, tensor);

    if (gradient != NULL && !stage_adds(node, tensor, is_first))
        memset(gradient, 0, features_of(node) * sizeof *gradient);
    return gradient;
}

static ty_status layer_norm_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    ty_error *error)
{
    (void)error;
    layer_norm_rows(stage_rows(&stage->values[node->output]), features_of(node),
                    cpu_in(stage, node, 0, slot), cpu_parameters(stage, node, 0),
                    cpu_parameters(stage, node, 1), cpu_out(stage, node, slot), node->stash[slot]);
    return TY_OK;
}

static ty_status layer_norm_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     bool is_first, ty_error *error)
{
    (void)error;
    layer_norm_gradient(
        stage_rows(&stage->values[node->output]), features_of(node), cpu_in(stage, node, 0, slot),
        cpu_parameters(stage, node, 0), node->stash[slot], cpu_out_gradient(stage, node, slot),
        cleared_gradient(stage, node, 0, is_first), cleared_gradient(stage, node, 1, is_first),
        node->adds[0], cpu_in_gradient(stage, node, 0, slot));
    return TY_OK;
}

static ty_status rms_norm_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                  ty_error *error)
{
    (void)error;
    cpu_rms_norm_rows(stage_rows(&stage->values[node->output]), features_of(node),
                      cpu_in(stage, node, 0, slot), cpu_parameters(stage, node, 0),
                      cpu_out(stage, node, slot), node->stash[slot]);
    return TY_OK;
}

static ty_status rms_norm_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                   bool is_first, ty_error *error)
{
    (void)error;
    cpu_rms_norm_gradient(stage_rows(&stage->values[node->output]), features_of(node),
                          cpu_in(stage, node, 0, slot), cpu_parameters(stage, node, 0),
                          node->stash[slot], cpu_out_gradient(stage, node, slot),
                          cleared_gradient(stage, node, 0, is_first), node->adds[0],
                          cpu_in_gradient(stage, node, 0, slot));
    return TY_OK;
}

const stage_kind cpu_layer_norm = {
    .build = norm_build,
    .forward = layer_norm_forward,
    .backward = layer_norm_backward,
};
const stage_kind cpu_rms_norm = {
    .build = norm_build,
    .forward = rms_norm_forward,
    .backward = rms_norm_backward,
};
