/* Routing of tokens to experts, and the copies to the experts and back. */
#include "gpu_scratch.h"
#include "kernel.cuh"

/* One thread per token. The first expert wins among equal scores; weights are the softmax over the
 * chosen experts' scores. */
static __global__ void route(cuda_mixture m, const float *scores, int32_t *choice, float *weight)
{
    FOR_EACH (r, m.rows) {
        const float *score = scores + r * m.experts;
        int32_t *own = choice + r * m.chosen;
        float *of = weight + r * m.chosen, sum = 0.0f;

        for (uint64_t c = 0; c < m.chosen; c++) {
            int32_t best = -1;
            for (int32_t e = 0; e < (int32_t)m.experts; e++) {
                bool is_new = best < 0 || score[e] > score[best];
                for (uint64_t k = 0; is_new && k < c; k++)
                    is_new = own[k] != e;
                best = is_new ? e : best;
            }
            own[c] = best;
            of[c] = expf(score[best] - score[own[0]]);
            sum += of[c];
        }
        for (uint64_t c = 0; c < m.chosen; c++)
            of[c] /= sum;
    }
}

void cuda_route(const cuda_mixture *m, const float *scores, int32_t *choice, float *weight,
                cudaStream_t stream)
{
    TY_MOVES(float_bytes(m->rows * m->experts), float_bytes(2 * m->rows * m->chosen));
    TY_LAUNCH(route, grid_for(m->rows), BLOCK, 0, stream, *m, scores, choice, weight);
}

/* ---- Where copies go: a counting sort by expert, in each by token ---- */

enum { ROW_STEPS = 16 };

/* Limits the number of product shapes, whatever the routing; at most an eighth is padding if there
 * are many copies. */
static __host__ __device__ uint32_t padded_rows(uint32_t copies)
{
    uint32_t step = TY_LEAST_EXPERT_ROWS;

    while (step * ROW_STEPS < copies)
        step *= 2;
    return (copies + step - 1) / step * step;
}

uint32_t cuda_expert_padded(uint32_t copies)
{
    return padded_rows(copies);
}

/* One block per expert; counts[e + 1] becomes its number of copies. */
static __global__ void expert_counts(uint64_t copies, const int32_t *choice, int32_t *counts)
{
    __shared__ int32_t parts[BLOCK / WARP];
    int32_t sum = 0;

    for (uint64_t first = 0; first < copies; first += blockDim.x) {
        uint64_t i = first + threadIdx.x;
        bool is_own = i < copies && choice[i] == (int32_t)blockIdx.x;
        sum += __popc(__ballot_sync(0xffffffffu, is_own));
    }
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = sum;
    __syncthreads();
    if (threadIdx.x != 0)
        return;
    for (unsigned w = 1; w < BLOCK / WARP; w++)
        sum += parts[w];
    counts[blockIdx.x + 1] = sum;
}

static __global__ void expert_starts(uint64_t experts, int32_t *starts)
{
    if (threadIdx.x != 0)
        return;
    starts[0] = 0;
    for (uint64_t e = 0; e < experts; e++)
        starts[e + 1] = starts[e] + (int32_t)padded_rows((uint32_t)starts[e + 1]);
}

/* One block per expert finds its copies in their order. */
static __global__ void expert_places(uint64_t copies, const int32_t *choice, const int32_t *starts,
                                     int32_t *place, int32_t *copy_of)
{
    __shared__ int32_t parts[BLOCK / WARP];
    const unsigned lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    int32_t at = starts[blockIdx.x];
    const int32_t end = starts[blockIdx.x + 1];

    for (uint64_t first = 0; first < copies; first += blockDim.x) {
        uint64_t i = first + threadIdx.x;
        bool is_own = i < copies && choice[i] == (int32_t)blockIdx.x;
        unsigned own = __ballot_sync(0xffffffffu, is_own);
        int32_t before = 0, all = 0;

        if (lane == 0)
            parts[warp] = __popc(own);
        __syncthreads();
        for (unsigned w = 0; w < BLOCK / WARP; w++) {
            before += w < warp ? parts[w] : 0;
            all += parts[w];
        }
        if (is_own) {
            place[i] = at + before + __popc(own & ((1u << lane) - 1));
            copy_of[place[i]] = (int32_t)i;
        }
        at += all;
        __syncthreads();
    }
    for (int32_t r = at + (int32_t)threadIdx.x; r < end; r += (int32_t)blockDim.x)
        copy_of[r] = -1;
}

void cuda_experts_place(const cuda_mixture *m, const int32_t *choice, int32_t *starts,
                        int32_t *place, int32_t *copy_of, cudaStream_t stream)
{
    const uint64_t copies = m->rows * m->chosen;

    TY_MOVES(float_bytes(copies), float_bytes(m->experts));
    TY_LAUNCH(expert_counts, m->experts, BLOCK, 0, stream, copies, choice, starts);
    TY_MOVES(float_bytes(m->experts), float_bytes(m->experts + 1));
    TY_LAUNCH(expert_starts, 1, WARP, 0, stream, m->experts, starts);
    /* Plus the padding, whose size only the device knows. */
    TY_MOVES(float_bytes(copies + m->experts + 1), float_bytes(2 * copies));
    TY_LAUNCH(expert_places, m->experts, BLOCK, 0, stream, copies, choice, starts, place, copy_of);
}

/* ---- Copies to experts and back ---- */

template <typename T>
static __global__ void copies_take(cuda_mixture m, uint64_t padded, const int32_t *copy_of,
                                   const float *weight, const T *from, T *to)
{
    FOR_EACH (i, padded * m.features) {
        const int32_t copy = copy_of[i / m.features];
        float value = 0.0f;

        if (copy >= 0) {
            value = to_float(from[(uint64_t)copy / m.chosen * m.features + i % m.features]);
            value *= weight != NULL ? weight[copy] : 1.0f;
        }
        to[i] = of_float<T>(value);
    }
}

void cuda_copies_take(cuda_type type, const cuda_mixture *m, uint64_t padded,
                      const int32_t *copy_of, const float *weight, const void *from, void *to,
                      cudaStream_t stream)
{
    const uint64_t count = padded * m->features;

    TY_MOVES(bytes_of(type, m->rows * m->features) + float_bytes(padded) +
                 float_bytes(weight != NULL ? m->rows * m->chosen : 0),
             bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(copies_take<T>, grid_for(count), BLOCK, 0, stream, *m, padded,
                                copy_of, weight, (const T *)from, (T *)to))
}

template <typename T>
static __global__ void copies_sum(cuda_mixture m, const int32_t *place, const float *weight,
                                  const T *of_copies, bool adds, T *to)
{
    FOR_EACH (i, m.rows * m.features) {
        const uint64_t first = i / m.features * m.chosen;
        float sum = 0.0f;

        for (uint64_t c = first; c < first + m.chosen; c++)
            sum += (weight != NULL ? weight[c] : 1.0f) *
                   to_float(of_copies[(uint64_t)place[c] * m.features + i % m.features]);
        put(&to[i], sum, adds);
    }
}

void cuda_copies_sum(cuda_type type, const cuda_mixture *m, const int32_t *place,
                     const float *weight, const void *of_copies, bool adds, void *to,
                     cudaStream_t stream)
{
    const uint64_t count = m->rows * m->features;

    TY_MOVES(bytes_of(type, (m->chosen + (adds ? 1 : 0)) * count) +
                 float_bytes((weight != NULL ? 2 : 1) * m->rows * m->chosen),
             bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(copies_sum<T>, grid_for(count), BLOCK, 0, stream, *m, place, weight,
                                (const T *)of_copies, adds, (T *)to))
}

/* ---- Copies to other ranks' experts and back ---- */

template <typename T>
static __global__ void rows_take(uint64_t rows, uint64_t columns, const int32_t *index,
                                 const T *message, T *to)
{
    FOR_EACH (i, rows * columns) {
        const int32_t row = index[i / columns];
        to[i] = row < 0 ? of_float<T>(0.0f) : message[(uint64_t)row * columns + i % columns];
    }
}

void cuda_rows_take(cuda_type type, uint64_t rows, uint64_t columns, const int32_t *index,
                    const void *message, void *to, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, rows * columns) + float_bytes(rows), bytes_of(type, rows * columns));
    TY_DISPATCH(type, TY_LAUNCH(rows_take<T>, grid_for(rows * columns), BLOCK, 0, stream, rows,
                                columns, index, (const T *)message, (T *)to))
}

template <typename T>
static __global__ void rows_put(uint64_t rows, uint64_t columns, const int32_t *index,
                                const T *from, T *message)
{
    FOR_EACH (i, rows * columns) {
        const int32_t row = index[i / columns];
        if (row >= 0)
            message[(uint64_t)row * columns + i % columns] = from[i];
    }
}

void cuda_rows_put(cuda_type type, uint64_t rows, uint64_t columns, const int32_t *index,
                   const void *from, void *message, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, rows * columns) + float_bytes(rows), bytes_of(type, rows * columns));
    TY_DISPATCH(type, TY_LAUNCH(rows_put<T>, grid_for(rows * columns), BLOCK, 0, stream, rows,
                                columns, index, (const T *)from, (T *)message))
}

/* ---- The scores' gradient ---- */

/* One warp per copy. */
template <typename T>
static __global__ void copy_gains(cuda_mixture m, const int32_t *place, const T *of_copies,
                                  const T *dy, float *gain)
{
    const uint64_t copy = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    float sum = 0.0f;

    if (copy >= m.rows * m.chosen)
        return;
    of_copies += (uint64_t)place[copy] * m.features;
    dy += copy / m.chosen * m.features;
    for (uint64_t f = threadIdx.x % WARP; f < m.features; f += WARP)
        sum += to_float(of_copies[f]) * to_float(dy[f]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        gain[copy] = sum;
}

/* Gradient through the softmax of the chosen experts; 0 for all others. One thread per token. */
template <typename T>
static __global__ void scores_gradient(cuda_mixture m, const int32_t *choice, const float *weight,
                                       const float *gain, uint64_t stride, T *dscores)
{
    FOR_EACH (r, m.rows) {
        const uint64_t first = r * m.chosen, end = first + m.chosen;
        T *row = dscores + r * stride;
        float mean = 0.0f;

        for (uint64_t e = 0; e < stride; e++)
            row[e] = of_float<T>(0.0f);
        for (uint64_t c = first; c < end; c++)
            mean += weight[c] * gain[c];
        for (uint64_t c = first; c < end; c++)
            row[choice[c]] = of_float<T>(weight[c] * (gain[c] - mean));
    }
}

void cuda_copy_gains(cuda_type type, const cuda_mixture *m, const int32_t *place,
                     const void *of_copies, const void *dy, float *gain, cudaStream_t stream)
{
    const uint64_t copies = m->rows * m->chosen;

    TY_MOVES(bytes_of(type, (copies + m->rows) * m->features) + float_bytes(copies),
             float_bytes(copies));
    TY_DISPATCH(type, TY_LAUNCH(copy_gains<T>, (copies * WARP + BLOCK - 1) / BLOCK, BLOCK, 0,
                                stream, *m, place, (const T *)of_copies, (const T *)dy, gain))
}

void cuda_scores_gradient(cuda_type type, const cuda_mixture *m, const int32_t *choice,
                          const float *weight, const float *gain, uint64_t stride, void *dscores,
                          cudaStream_t stream)
{
    TY_MOVES(float_bytes(3 * m->rows * m->chosen), bytes_of(type, m->rows * stride));
    TY_DISPATCH(type, TY_LAUNCH(scores_gradient<T>, grid_for(m->rows), BLOCK, 0, stream, *m, choice,
                                weight, gain, stride, (T *)dscores))
}

/* ---- Columns of a router on a tensor-parallel rank ----- */

template <typename T>
static __global__ void columns_take(uint64_t rows, uint64_t columns, uint64_t first, uint64_t count,
                                    const T *from, T *to)
{
    FOR_EACH (i, rows * count)
        to[i] = from[i / count * columns + first + i % count];
}

void cuda_columns_take(cuda_type type, uint64_t rows, uint64_t columns, uint64_t first,
                       uint64_t count, const void *from, void *to, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, rows * count), bytes_of(type, rows * count));
    TY_DISPATCH(type, TY_LAUNCH(columns_take<T>, grid_for(rows * count), BLOCK, 0, stream, rows,
                                columns, first, count, (const T *)from, (T *)to))
}

template <typename T>
static __global__ void columns_put(uint64_t rows, uint64_t columns, uint64_t first, uint64_t count,
                                   const T *from, T *to)
{
    FOR_EACH (i, rows * columns) {
        const uint64_t column = i % columns;
        to[i] = column >= first && column < first + count
                    ? from[i / columns * count + column - first]
                    : of_float<T>(0.0f);
    }
}

void cuda_columns_put(cuda_type type, uint64_t rows, uint64_t columns, uint64_t first,
                      uint64_t count, const void *from, void *to, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, rows * count), bytes_of(type, rows * columns));
    TY_DISPATCH(type, TY_LAUNCH(columns_put<T>, grid_for(rows * columns), BLOCK, 0, stream, rows,
                                columns, first, count, (const T *)from, (T *)to))
}
