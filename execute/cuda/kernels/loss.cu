/* Softmax and cross-entropy: one block per row, then one block for the sums; with TP, where ranks
 * have shards of every row, in three steps. */
#include "vectors.cuh"

/* Below all scores, but finite, so that differences stay finite. */
#define LOWEST (-3.402823466e38f)

static __device__ __forceinline__ float exponential(float x)
{
    return exp2f(x * 1.44269504f);
}

/* Softmax in one pass (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018):
 * the sum is of exp(score - maximum so far). A larger score beats the label, and so does an equal
 * one before it. */
struct softmax_state {
    float maximum, sum, of_label;
    int label;
    bool is_beaten;
};

template <int N>
static __device__ __forceinline__ void softmax_take(softmax_state &s, int at, const float (&x)[N])
{
    float largest = x[0], sum = 0.0f;

#pragma unroll
    for (int i = 1; i < N; i++)
        largest = fmaxf(largest, x[i]);
    if (largest > s.maximum) {
        s.sum *= exponential(s.maximum - largest);
        s.maximum = largest;
    }
#pragma unroll
    for (int i = 0; i < N; i++)
        sum += exponential(x[i] - s.maximum);
    s.sum += sum;
    if (largest < s.of_label)
        return;
#pragma unroll
    for (int i = 0; i < N; i++)
        s.is_beaten = s.is_beaten || x[i] > s.of_label || (x[i] == s.of_label && at + i < s.label);
}

template <typename T>
static __global__ void cross_entropy(cuda_scores s, const T *__restrict__ logits,
                                     const int32_t *__restrict__ labels, float *log_sums,
                                     float *row_loss, int32_t *row_best)
{
    const int classes = (int)s.classes, size = piece<T>::SIZE;
    const uint64_t row = blockIdx.x;
    const T *scores = logits + row * s.stride;
    const row_pieces pieces = pieces_of(scores, classes);
    const int label = labels[row];
    const bool is_label = label >= 0 && label < classes;
    softmax_state state = {LOWEST, 0.0f, is_label ? to_float(scores[label]) : 0.0f, label, false};
    float maximum, sum;
    bool is_beaten;

#pragma unroll 2
    for (int c = pieces.first + (int)threadIdx.x * size; c < pieces.end;
         c += (int)blockDim.x * size) {
        float x[size];
        numbers_load(scores + c, x);
        softmax_take(state, c, x);
    }
    if ((int)threadIdx.x < pieces.odd) {
        const int c = odd_at(pieces, (int)threadIdx.x);
        const float x[1] = {to_float(scores[c])};
        softmax_take(state, c, x);
    }
    maximum = block_maximum(state.maximum);
    sum = block_sum(state.sum * exponential(state.maximum - maximum));
    is_beaten = block_maximum(state.is_beaten ? 1.0f : 0.0f) > 0.0f;
    if (threadIdx.x != 0)
        return;
    log_sums[row] = maximum + logf(sum);
    row_loss[row] = is_label ? log_sums[row] - state.of_label : 0.0f;
    row_best[row] = !is_label ? -1 : state.of_label == maximum && !is_beaten ? 1 : 0;
}

/* Sums in double precision, over rows in each thread, then over threads in order. */
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
    TY_DISPATCH(type,
                TY_LAUNCH(cross_entropy<T>, s->rows, threads_for_row<T>(s->classes), 0, stream, *s,
                          (const T *)logits, labels, log_sums, row_loss, row_best))
    TY_MOVES(float_bytes(2 * s->rows), sizeof *loss);
    TY_LAUNCH(loss_sum, 1, BLOCK, 0, stream, s->rows, row_loss, row_best, loss);
}

/* A row and its gradient's terms. */
struct softmax_row {
    int label, own; /* indices of scores; label -1: on another rank */
    float log_sum, factor;
};

/* 0 in the padding. */
template <int N>
static __device__ __forceinline__ void softmax_gradient(const softmax_row &r, int at, float (&x)[N])
{
#pragma unroll
    for (int i = 0; i < N; i++) {
        const float p = exponential(x[i] - r.log_sum);
        x[i] = r.factor * (at + i == r.label ? p - 1.0f : p);
    }
    if (at + N <= r.own)
        return;
#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = at + i < r.own ? x[i] : 0.0f;
}

/* One block per row. dx may alias the scores, which have the same row alignment. */
template <typename T>
static __global__ void cross_entropy_backward(cuda_scores s, const T *logits,
                                              const int32_t *__restrict__ labels,
                                              const float *__restrict__ log_sums,
                                              const float *__restrict__ scale, bool adds, T *dx)
{
    const int own = (int)s.own, size = piece<T>::SIZE;
    const uint64_t row = blockIdx.x, first = row * s.stride;
    const int64_t label = (int64_t)labels[row] - (int64_t)s.first;
    const softmax_row r = {label >= 0 && label < own ? (int)label : -1, own, log_sums[row], *scale};
    const row_pieces pieces = pieces_of(logits + first, (int)s.stride);

    for (int c = pieces.first + (int)threadIdx.x * size; c < pieces.end;
         c += (int)blockDim.x * size) {
        float x[size];
        if (c + size <= own)
            numbers_load(logits + first + c, x);
        else
            for (int i = 0; i < size; i++)
                x[i] = c + i < own ? to_float(logits[first + c + i]) : 0.0f;
        softmax_gradient(r, c, x);
        numbers_put(dx + first + c, x, adds);
    }
    if ((int)threadIdx.x < pieces.odd) {
        const int c = odd_at(pieces, (int)threadIdx.x);
        float x[1] = {c < own ? to_float(logits[first + c]) : 0.0f};
        softmax_gradient(r, c, x);
        put(&dx[first + c], x[0], adds);
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
                TY_LAUNCH(cross_entropy_backward<T>, s->rows, threads_for_row<T>(s->stride), 0,
                          stream, *s, (const T *)logits, labels, log_sums, scale, adds, (T *)dx))
}

/* ---- Among ranks ---- */

template <typename T>
static __global__ void tp_maxima(cuda_scores s, const T *logits, float *maxima)
{
    float maximum = -INFINITY;

    logits += blockIdx.x * s.stride;
    for (uint64_t c = threadIdx.x; c < s.own; c += blockDim.x)
        maximum = fmaxf(maximum, to_float(logits[c]));
    maximum = block_maximum(maximum);
    if (threadIdx.x == 0)
        maxima[blockIdx.x] = maximum;
}

void cuda_tp_maxima(cuda_type type, const cuda_scores *s, const void *logits, float *maxima,
                    cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(tp_maxima<T>, s->rows, threads_for(s->own), 0, stream, *s,
                                (const T *)logits, maxima))
}

template <typename T>
static __global__ void tp_exponentials(cuda_scores s, const T *logits, const int32_t *labels,
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

void cuda_tp_exponentials(cuda_type type, const cuda_scores *s, const void *logits,
                          const int32_t *labels, const float *maxima, float *sums, float *of_labels,
                          cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(tp_exponentials<T>, s->rows, threads_for(s->own), 0, stream, *s,
                                (const T *)logits, labels, maxima, sums, of_labels))
}

static __global__ void tp_rows(cuda_scores s, const int32_t *labels, const float *maxima,
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

void cuda_tp_cross_entropy(const cuda_scores *s, const int32_t *labels, const float *maxima,
                           const float *sums, const float *of_labels, float *log_sums,
                           float *row_loss, int32_t *row_best, cuda_loss *loss, cudaStream_t stream)
{
    TY_LAUNCH(tp_rows, grid_for(s->rows), BLOCK, 0, stream, *s, labels, maxima, sums, of_labels,
              log_sums, row_loss, row_best);
    TY_MOVES(float_bytes(2 * s->rows), sizeof *loss);
    TY_LAUNCH(loss_sum, 1, BLOCK, 0, stream, s->rows, row_loss, row_best, loss);
}
