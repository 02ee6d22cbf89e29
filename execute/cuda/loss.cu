/* Softmax and cross-entropy: one block a row, then one block for the sums; among lanes, which have
 * parts of every row, in three steps. */
#include "kernel.cuh"

template <typename T>
static __global__ void cross_entropy(cuda_scores s, const T *logits, const int32_t *labels,
                                     float *log_sums, float *row_loss, int32_t *row_best)
{
    __shared__ unsigned long long best;
    const uint64_t classes = s.classes;
    uint64_t row = blockIdx.x;
    int32_t label = labels[row];
    bool is_label = label >= 0 && (uint64_t)label < classes;
    float maximum = -INFINITY, sum = 0.0f;

    logits += row * s.stride;
    for (uint64_t c = threadIdx.x; c < classes; c += blockDim.x)
        maximum = fmaxf(maximum, to_float(logits[c]));
    maximum = block_maximum(maximum);
    if (threadIdx.x == 0)
        best = classes;
    for (uint64_t c = threadIdx.x; c < classes; c += blockDim.x)
        sum += expf(to_float(logits[c]) - maximum);
    sum = block_sum(sum); /* its barriers also show everyone `best` */
    for (uint64_t c = threadIdx.x; c < classes; c += blockDim.x)
        if (to_float(logits[c]) == maximum)
            atomicMin(&best, (unsigned long long)c); /* the lowest of equals, in any order */
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    log_sums[row] = maximum + logf(sum);
    row_loss[row] = is_label ? log_sums[row] - to_float(logits[label]) : 0.0f;
    row_best[row] = !is_label ? -1 : best == (unsigned long long)label ? 1 : 0;
}

/* Sums in double, row by row in each thread and then thread by thread. */
static __global__ void loss_sum(uint64_t rows, const float *row_loss, const int32_t *row_best,
                                cuda_loss *loss)
{
    __shared__ double sums[BLOCK];
    __shared__ unsigned long long rights[BLOCK];
    __shared__ unsigned long long bad;
    double sum = 0.0;
    unsigned long long right = 0;

    if (threadIdx.x == 0)
        bad = rows;
    __syncthreads();
    for (uint64_t r = threadIdx.x; r < rows; r += blockDim.x) {
        sum += (double)row_loss[r];
        right += row_best[r] == 1;
        if (row_best[r] < 0)
            atomicMin(&bad, (unsigned long long)r);
    }
    sums[threadIdx.x] = sum;
    rights[threadIdx.x] = right;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (unsigned t = 1; t < blockDim.x; t++) {
        sum += sums[t];
        right += rights[t];
    }
    loss->sum = sum;
    loss->correct = right;
    loss->bad_row = bad < rows ? (int64_t)bad : -1;
}

void cuda_cross_entropy(cuda_type type, const cuda_scores *s, const void *logits,
                        const int32_t *labels, float *log_sums, float *row_loss, int32_t *row_best,
                        cuda_loss *loss, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, s->rows * s->own) + float_bytes(s->rows), float_bytes(3 * s->rows));
    TY_DISPATCH(type, TY_LAUNCH(cross_entropy<T>, s->rows, threads_for(s->classes), 0, stream, *s,
                                (const T *)logits, labels, log_sums, row_loss, row_best))
    TY_MOVES(float_bytes(2 * s->rows), sizeof *loss);
    TY_LAUNCH(loss_sum, 1, BLOCK, 0, stream, s->rows, row_loss, row_best, loss);
}

/* One block a row: a division per element would cost more than the rest. */
template <typename T>
static __global__ void cross_entropy_backward(cuda_scores s, const T *logits, const int32_t *labels,
                                              const float *log_sums, const float *scale, bool adds,
                                              T *dx)
{
    uint64_t row = blockIdx.x;
    float log_sum = log_sums[row], factor = *scale;

    logits += row * s.stride;
    dx += row * s.stride;
    for (uint64_t c = threadIdx.x; c < s.stride; c += blockDim.x) {
        float p = c < s.own ? expf(to_float(logits[c]) - log_sum) : 0.0f;
        bool is_label = c < s.own && s.first + c == (uint64_t)labels[row];
        put(&dx[c], factor * (is_label ? p - 1.0f : p), adds);
    }
}

void cuda_cross_entropy_backward(cuda_type type, const cuda_scores *s, const void *logits,
                                 const int32_t *labels, const float *log_sums, const float *scale,
                                 bool adds, void *dx, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, s->rows * (s->own + (adds ? s->stride : 0))) +
                 float_bytes(2 * s->rows + 1),
             bytes_of(type, s->rows * s->stride));
    TY_DISPATCH(type,
                TY_LAUNCH(cross_entropy_backward<T>, s->rows, threads_for(s->stride), 0, stream, *s,
                          (const T *)logits, labels, log_sums, scale, adds, (T *)dx))
}

/* ---- Among lanes ---- */

template <typename T>
static __global__ void lane_maxima(cuda_scores s, const T *logits, float *maxima)
{
    float maximum = -INFINITY;

    logits += blockIdx.x * s.stride;
    for (uint64_t c = threadIdx.x; c < s.own; c += blockDim.x)
        maximum = fmaxf(maximum, to_float(logits[c]));
    maximum = block_maximum(maximum);
    if (threadIdx.x == 0)
        maxima[blockIdx.x] = maximum;
}

void cuda_lane_maxima(cuda_type type, const cuda_scores *s, const void *logits, float *maxima,
                      cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(lane_maxima<T>, s->rows, threads_for(s->own), 0, stream, *s,
                                (const T *)logits, maxima))
}

template <typename T>
static __global__ void lane_exponentials(cuda_scores s, const T *logits, const int32_t *labels,
                                         const float *maxima, float *sums, float *of_labels)
{
    uint64_t row = blockIdx.x, label = (uint64_t)labels[row];
    float maximum = maxima[row], sum = 0.0f;
    bool is_here = label >= s.first && label - s.first < s.own;

    logits += row * s.stride;
    for (uint64_t c = threadIdx.x; c < s.own; c += blockDim.x)
        sum += expf(to_float(logits[c]) - maximum);
    sum = block_sum(sum);
    if (threadIdx.x != 0)
        return;
    sums[row] = sum;
    of_labels[row] = is_here ? to_float(logits[label - s.first]) : 0.0f;
}

void cuda_lane_exponentials(cuda_type type, const cuda_scores *s, const void *logits,
                            const int32_t *labels, const float *maxima, float *sums,
                            float *of_labels, cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(lane_exponentials<T>, s->rows, threads_for(s->own), 0, stream, *s,
                                (const T *)logits, labels, maxima, sums, of_labels))
}

static __global__ void lane_rows(cuda_scores s, const int32_t *labels, const float *maxima,
                                 const float *sums, const float *of_labels, float *log_sums,
                                 float *row_loss, int32_t *row_best)
{
    FOR_EACH (r, s.rows) {
        bool is_label = labels[r] >= 0 && (uint64_t)labels[r] < s.classes;

        log_sums[r] = maxima[r] + logf(sums[r]);
        row_loss[r] = is_label ? log_sums[r] - of_labels[r] : 0.0f;
        row_best[r] = !is_label ? -1 : of_labels[r] == maxima[r] ? 1 : 0;
    }
}

void cuda_lane_cross_entropy(const cuda_scores *s, const int32_t *labels, const float *maxima,
                             const float *sums, const float *of_labels, float *log_sums,
                             float *row_loss, int32_t *row_best, cuda_loss *loss,
                             cudaStream_t stream)
{
    TY_LAUNCH(lane_rows, grid_for(s->rows), BLOCK, 0, stream, *s, labels, maxima, sums, of_labels,
              log_sums, row_loss, row_best);
    TY_MOVES(float_bytes(2 * s->rows), sizeof *loss);
    TY_LAUNCH(loss_sum, 1, BLOCK, 0, stream, s->rows, row_loss, row_best, loss);
}
