/*
 * Batch norm over channels, in channels-last layout. Ioffe and Szegedy, 2015. Training normalizes
 * with the statistics of the current micro-batch; evaluation, and a frozen layer always, with the
 * running ones. Backward updates those, once for each micro-batch, however often forward is
 * repeated.
 */
#include "cpu_layer.h"
#include "cpu_math.h"

/* Both as in torch.nn.BatchNorm2d. */
#define BATCH_NORM_EPSILON 1e-5f
#define RUNNING_SHARE 0.1f

/* Rows that are summed in floats before the sum continues in doubles. */
#define SUM_ROWS 64

static uint64_t channels_of(const stage_node *node)
{
    return node->layer->attributes[TY_FEATURES];
}

static uint64_t rows_of(const ty_stage_device *stage, const stage_node *node)
{
    return stage->values[node->output].count / channels_of(node);
}

static ty_status batch_norm_supports(const ty_workload *workload, uint32_t index, ty_error *error)
{
    const ty_layer *layer = &workload->layers[index];

    if (layer->output.dimension_count == 2)
        return ty_fail(error, TY_EUNSUPPORTED,
                       "layer %s: the cpu backend normalises batches of images or of vectors, not "
                       "of sequences",
                       layer->name);
    return TY_OK;
}

/* Stash: mean and 1 / deviation as used, and the variance of the micro-batch. Scratch: two
 * sums of each channel, in doubles and in floats. */
static ty_status batch_norm_build(ty_stage_device *stage, stage_node *node, ty_error *error)
{
    const uint64_t channels = channels_of(node);

    (void)error;
    node->stash_bytes = 3 * channels * sizeof(float);
    node->scratch_bytes = 2 * channels * (sizeof(double) + sizeof(float));
    node->statistic_offset = stage->statistic_count;
    stage->statistic_count += 2 * channels;
    return TY_OK;
}

/* Running mean and variance. */
static float *running_of(const ty_stage_device *stage, const stage_node *node)
{
    return stage->statistics + node->statistic_offset;
}

/* sums[c] = sum over rows of a(x), a being x - mean, or its square. */
CPU_CLONES static void deviation_sums(uint64_t rows, uint64_t n, const float *x, const float *mean,
                                      bool is_square, double *sums, float *some)
{
    for (uint64_t c = 0; c < n; c++)
        sums[c] = 0.0;
    for (uint64_t r = 0; r < rows;) {
        uint64_t end = r + SUM_ROWS < rows ? r + SUM_ROWS : rows;
        memset(some, 0, n * sizeof *some);
        for (; r < end; r++, x += n)
            for (uint64_t c = 0; c < n; c++) {
                float d = x[c] - mean[c];
                some[c] += is_square ? d * d : d;
            }
        for (uint64_t c = 0; c < n; c++)
            sums[c] += (double)some[c];
    }
}

/* shifts[c] = sum over rows of dy, gains[c] = sum over rows of dy (x - mean) scale. */
CPU_CLONES static void gradient_sums(uint64_t rows, uint64_t n, const float *x, const float *dy,
                                     const float *mean, const float *scale, double *shifts,
                                     double *gains, float *some)
{
    for (uint64_t c = 0; c < n; c++)
        shifts[c] = gains[c] = 0.0;
    for (uint64_t r = 0; r < rows;) {
        uint64_t end = r + SUM_ROWS < rows ? r + SUM_ROWS : rows;
        memset(some, 0, 2 * n * sizeof *some);
        for (; r < end; r++, x += n, dy += n)
            for (uint64_t c = 0; c < n; c++) {
                some[c] += dy[c];
                some[n + c] += dy[c] * (x[c] - mean[c]);
            }
        for (uint64_t c = 0; c < n; c++) {
            shifts[c] += (double)some[c];
            gains[c] += (double)(some[n + c] * scale[c]);
        }
    }
}

CPU_CLONES static void normalise(uint64_t rows, uint64_t n, const float *x, const float *mean,
                                 const float *scale, const float *gain, const float *shift,
                                 float *y)
{
    for (uint64_t r = 0; r < rows; r++, x += n, y += n)
        for (uint64_t c = 0; c < n; c++)
            y[c] = (x[c] - mean[c]) * scale[c] * gain[c] + shift[c];
}

/* dx = gain scale (dy - mean dy - z mean(dy z)), z being the normalized x; the means are 0 if
 * running statistics were used. */
CPU_CLONES static void input_gradient(uint64_t rows, uint64_t n, const float *x, const float *dy,
                                      const float *mean, const float *scale, const float *gain,
                                      const float *means, bool adds, float *dx)
{
    for (uint64_t r = 0; r < rows; r++, x += n, dy += n, dx += n)
        for (uint64_t c = 0; c < n; c++) {
            float z = (x[c] - mean[c]) * scale[c];
            float d = gain[c] * scale[c] * (dy[c] - means[c] - z * means[n + c]);
            dx[c] = adds ? dx[c] + d : d;
        }
}

/* A teacher's layers use the micro-batch's statistics, like their student's, without a backward. */
static bool is_of_teacher(const ty_stage_device *stage, const stage_node *node)
{
    return node->layer->is_frozen && ty_workload_has_teacher(stage->options.workload);
}

static bool is_given(const ty_stage_device *stage, const stage_node *node)
{
    return stage->is_evaluating || (node->layer->is_frozen && !is_of_teacher(stage, node));
}

static void statistics_make(const ty_stage_device *stage, const stage_node *node, const float *x,
                            float *mean, float *scale, float *variance)
{
    const uint64_t n = channels_of(node), rows = rows_of(stage, node);
    double *sums = stage->scratch;
    float *some = (float *)(void *)(sums + 2 * n);

    memset(mean, 0, n * sizeof *mean);
    deviation_sums(rows, n, x, mean, false, sums, some);
    for (uint64_t c = 0; c < n; c++)
        mean[c] = (float)(sums[c] / (double)rows);
    deviation_sums(rows, n, x, mean, true, sums, some);
    for (uint64_t c = 0; c < n; c++) {
        variance[c] = (float)(sums[c] / (double)rows);
        scale[c] = 1.0f / sqrtf(variance[c] + BATCH_NORM_EPSILON);
    }
}

/* The running variance is that of the population: rows / (rows - 1) times the micro-batch's. */
static void running_move(const ty_stage_device *stage, const stage_node *node, const float *mean,
                         const float *variance)
{
    const uint64_t n = channels_of(node), rows = rows_of(stage, node);
    const float population = rows > 1 ? (float)((double)rows / (double)(rows - 1)) : 1.0f;
    float *running = running_of(stage, node);

    for (uint64_t c = 0; c < n; c++) {
        running[c] += RUNNING_SHARE * (mean[c] - running[c]);
        running[n + c] += RUNNING_SHARE * (population * variance[c] - running[n + c]);
    }
}

static ty_status batch_norm_forward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                    ty_error *error)
{
    const uint64_t n = channels_of(node);
    float *mean = node->stash[slot], *scale = mean + n, *variance = scale + n;
    const float *x = cpu_in(stage, node, 0, slot), *running = running_of(stage, node);

    (void)error;
    if (is_given(stage, node))
        for (uint64_t c = 0; c < n; c++) {
            mean[c] = running[c];
            scale[c] = 1.0f / sqrtf(running[n + c] + BATCH_NORM_EPSILON);
        }
    else
        statistics_make(stage, node, x, mean, scale, variance);
    if (!stage->is_evaluating && is_of_teacher(stage, node))
        running_move(stage, node, mean, variance);
    normalise(rows_of(stage, node), n, x, mean, scale, cpu_parameters(stage, node, 0),
              cpu_parameters(stage, node, 1), cpu_out(stage, node, slot));
    return TY_OK;
}

static void parameters_add(const ty_stage_device *stage, const stage_node *node, uint32_t tensor,
                           const double *sums, bool is_first)
{
    float *gradient = cpu_parameter_gradient(stage, node, tensor);
    const bool adds = stage_adds(node, tensor, is_first);

    for (uint64_t c = 0; c < channels_of(node); c++)
        gradient[c] = (adds ? gradient[c] : 0.0f) + (float)sums[c];
}

static ty_status batch_norm_backward(ty_stage_device *stage, const stage_node *node, uint32_t slot,
                                     bool is_first, ty_error *error)
{
    const uint64_t n = channels_of(node), rows = rows_of(stage, node);
    const float *mean = node->stash[slot], *scale = mean + n, *x = cpu_in(stage, node, 0, slot);
    const float *dy = cpu_out_gradient(stage, node, slot);
    float *dx = cpu_in_gradient(stage, node, 0, slot);
    double *shifts = stage->scratch, *gains = shifts + n;
    float *some = (float *)(void *)(gains + n);

    (void)error;
    gradient_sums(rows, n, x, dy, mean, scale, shifts, gains, some);
    if (cpu_parameter_gradient(stage, node, 0) != NULL) {
        parameters_add(stage, node, 0, gains, is_first);
        parameters_add(stage, node, 1, shifts, is_first);
        running_move(stage, node, mean, scale + n);
    }
    if (dx == NULL)
        return TY_OK;
    for (uint64_t c = 0; c < n; c++) {
        some[c] = is_given(stage, node) ? 0.0f : (float)(shifts[c] / (double)rows);
        some[n + c] = is_given(stage, node) ? 0.0f : (float)(gains[c] / (double)rows);
    }
    input_gradient(rows, n, x, dy, mean, scale, cpu_parameters(stage, node, 0), some, node->adds[0],
                   dx);
    return TY_OK;
}

void cpu_batch_norm_start(const ty_stage_device *stage, const stage_node *node)
{
    const ty_weights *weights = stage->options.weights;
    const uint64_t n = channels_of(node);

    for (uint64_t c = 0; c < n; c++) {
        running_of(stage, node)[c] = 0.0f;
        running_of(stage, node)[n + c] = 1.0f;
    }
    if (weights != NULL && weights->read(weights, node->layer_index, LAYER_RUNNING_MEAN, 0, n,
                                         running_of(stage, node)))
        (void)weights->read(weights, node->layer_index, LAYER_RUNNING_VARIANCE, 0, n,
                            running_of(stage, node) + n);
}

const stage_kind cpu_batch_norm = {
    .supports = batch_norm_supports,
    .order = STAGE_CHANNELS_LAST,
    .build = batch_norm_build,
    .forward = batch_norm_forward,
    .backward = batch_norm_backward,
};
