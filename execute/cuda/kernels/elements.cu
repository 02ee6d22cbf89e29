/* Elementwise kernels and column sums. */
#include "vectors.cuh"

#include "activation.h"

template <typename A, typename B>
static __global__ void convert(uint64_t count, const A *from, B *to)
{
    FOR_EACH (i, count)
        to[i] = of_float<B>(to_float(from[i]));
}

template <typename A>
static void convert_from(const void *from, cuda_type to_type, void *to, uint64_t count,
                         cudaStream_t stream)
{
    TY_DISPATCH(to_type, TY_LAUNCH((convert<A, T>), grid_for(count), BLOCK, 0, stream, count,
                                   (const A *)from, (T *)to))
}

void cuda_convert(cuda_type from_type, const void *from, cuda_type to_type, void *to,
                  uint64_t count, cudaStream_t stream)
{
    TY_MOVES(bytes_of(from_type, count), bytes_of(to_type, count));
    TY_DISPATCH(from_type, convert_from<T>(from, to_type, to, count, stream))
}

template <typename T>
static __global__ void accumulate(uint64_t count, const T *from, bool adds, T *to)
{
    FOR_EACH (i, count)
        put(&to[i], to_float(from[i]), adds);
}

void cuda_accumulate(cuda_type type, uint64_t count, const void *from, bool adds, void *to,
                     cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, (adds ? 2 : 1) * count), bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(accumulate<T>, grid_for(count), BLOCK, 0, stream, count,
                                (const T *)from, adds, (T *)to))
}

template <typename T>
static __global__ void accumulate_float(uint64_t count, const T *from, bool adds, float *to)
{
    FOR_EACH (i, count)
        put(&to[i], to_float(from[i]), adds);
}

void cuda_accumulate_float(cuda_type type, uint64_t count, const void *from, bool adds, float *to,
                           cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, count) + (adds ? float_bytes(count) : 0), float_bytes(count));
    TY_DISPATCH(type, TY_LAUNCH(accumulate_float<T>, grid_for(count), BLOCK, 0, stream, count,
                                (const T *)from, adds, to))
}

template <typename T>
static __global__ void take_floats(uint64_t count, const float *from, bool adds, T *to)
{
    FOR_EACH (i, count)
        put(&to[i], from[i], adds);
}

void cuda_take_floats(cuda_type type, uint64_t count, const float *from, bool adds, void *to,
                      cudaStream_t stream)
{
    TY_MOVES(float_bytes(count) + (adds ? bytes_of(type, count) : 0), bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(take_floats<T>, grid_for(count), BLOCK, 0, stream, count, from,
                                adds, (T *)to))
}

template <typename T>
static __global__ void sum_pair(uint64_t count, const T *a, const T *b, bool has_relu, T *y)
{
    FOR_EACH (i, count) {
        float sum = to_float(a[i]) + to_float(b[i]);
        y[i] = of_float<T>(has_relu && !(sum > 0.0f) ? 0.0f : sum);
    }
}

void cuda_sum(cuda_type type, uint64_t count, const void *a, const void *b, bool has_relu, void *y,
              cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, 2 * count), bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(sum_pair<T>, grid_for(count), BLOCK, 0, stream, count, (const T *)a,
                                (const T *)b, has_relu, (T *)y))
}

static __device__ __forceinline__ float activated(cuda_activation kind, float x)
{
    switch (kind) {
    case CUDA_RELU:
        return x > 0.0f ? x : 0.0f;
    case CUDA_GELU:
        return gelu_of(x);
    case CUDA_SILU:
        return x * sigmoid_of(x);
    case CUDA_TANH:
        return tanhf(x);
    }
    return x;
}

static __device__ __forceinline__ float slope(cuda_activation kind, float x)
{
    switch (kind) {
    case CUDA_RELU:
        return x > 0.0f ? 1.0f : 0.0f;
    case CUDA_GELU:
        return gelu_slope(x);
    case CUDA_SILU:
        return silu_slope(x);
    case CUDA_TANH:
        return 1.0f - x * x;
    }
    return 1.0f;
}

template <typename T>
static __global__ void activate(cuda_activation kind, uint64_t count, const T *x, T *y)
{
    FOR_EACH (i, count)
        y[i] = of_float<T>(activated(kind, to_float(x[i])));
}

void cuda_activate(cuda_type type, cuda_activation kind, uint64_t count, const void *x, void *y,
                   cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, count), bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(activate<T>, grid_for(count), BLOCK, 0, stream, kind, count,
                                (const T *)x, (T *)y))
}

template <typename T>
static __global__ void activate_backward(cuda_activation kind, uint64_t count, const T *x,
                                         const T *dy, bool adds, T *dx)
{
    FOR_EACH (i, count)
        put(&dx[i], to_float(dy[i]) * slope(kind, to_float(x[i])), adds);
}

void cuda_activate_backward(cuda_type type, cuda_activation kind, uint64_t count, const void *x,
                            const void *dy, bool adds, void *dx, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, (adds ? 3 : 2) * count), bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(activate_backward<T>, grid_for(count), BLOCK, 0, stream, kind,
                                count, (const T *)x, (const T *)dy, adds, (T *)dx))
}

template <typename T> static __global__ void gate(uint64_t rows, uint64_t n, const T *h, T *a)
{
    FOR_EACH (i, rows * n) {
        uint64_t at = i / n * 2 * n + i % n;
        float g = to_float(h[at]);
        a[i] = of_float<T>(g * sigmoid_of(g) * to_float(h[at + n]));
    }
}

void cuda_gate(cuda_type type, uint64_t rows, uint64_t n, const void *h, void *a,
               cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, 2 * rows * n), bytes_of(type, rows * n));
    TY_DISPATCH(type, TY_LAUNCH(gate<T>, grid_for(rows * n), BLOCK, 0, stream, rows, n,
                                (const T *)h, (T *)a))
}

template <typename T>
static __global__ void gate_backward(uint64_t rows, uint64_t n, const T *h, const T *da, T *dh)
{
    FOR_EACH (i, rows * n) {
        uint64_t at = i / n * 2 * n + i % n;
        float g = to_float(h[at]), value = to_float(h[at + n]), d = to_float(da[i]);
        dh[at] = of_float<T>(d * value * silu_slope(g));
        dh[at + n] = of_float<T>(d * g * sigmoid_of(g));
    }
}

void cuda_gate_backward(cuda_type type, uint64_t rows, uint64_t n, const void *h, const void *da,
                        void *dh, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, 3 * rows * n), bytes_of(type, 2 * rows * n));
    TY_DISPATCH(type, TY_LAUNCH(gate_backward<T>, grid_for(rows * n), BLOCK, 0, stream, rows, n,
                                (const T *)h, (const T *)da, (T *)dh))
}

template <typename T>
static __global__ void add_bias(uint64_t count, uint64_t columns, const float *bias, T *y)
{
    FOR_EACH (i, count)
        y[i] = of_float<T>(to_float(y[i]) + bias[i % columns]);
}

void cuda_add_bias(cuda_type type, uint64_t count, uint64_t columns, const float *bias, void *y,
                   cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, count) + float_bytes(columns), bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(add_bias<T>, grid_for(count), BLOCK, 0, stream, count, columns,
                                bias, (T *)y))
}

template <typename T>
static __global__ void copy_rows(uint64_t rows, uint64_t width, const T *from, uint64_t from_stride,
                                 bool adds, T *to, uint64_t to_stride)
{
    FOR_EACH (i, rows * width)
        put(&to[i / width * to_stride + i % width],
            to_float(from[i / width * from_stride + i % width]), adds);
}

void cuda_copy_rows(cuda_type type, uint64_t rows, uint64_t width, const void *from,
                    uint64_t from_stride, bool adds, void *to, uint64_t to_stride,
                    cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, (adds ? 2 : 1) * rows * width), bytes_of(type, rows * width));
    TY_DISPATCH(type, TY_LAUNCH(copy_rows<T>, grid_for(rows * width), BLOCK, 0, stream, rows, width,
                                (const T *)from, from_stride, adds, (T *)to, to_stride))
}

/* ---- Column sums: bands of rows first, then the bands ---- */

enum { BAND_ROWS = 128, NUMBERS = 4, MOST_JOINED = 1024 };

static uint64_t band_count(uint64_t rows)
{
    uint64_t bands = (rows + BAND_ROWS - 1) / BAND_ROWS;

    return bands < 1 ? 1 : bands < 512 ? bands : 512;
}

uint64_t cuda_column_sums_scratch(uint64_t rows, uint64_t columns)
{
    return band_count(rows) * columns;
}

/* Block (x, y): band y, N columns per thread of 32 threads; each of its 8 warps takes every 8th
 * row. */
template <typename T, int N>
static __global__ void band_sums(uint64_t rows, uint64_t columns, uint64_t stride,
                                 const T *__restrict__ dy, float *__restrict__ bands)
{
    __shared__ float parts[N * BLOCK];
    const uint64_t column = ((uint64_t)blockIdx.x * WARP + threadIdx.x % WARP) * N;
    const unsigned first = (unsigned)(rows * blockIdx.y / gridDim.y);
    const unsigned end = (unsigned)(rows * (blockIdx.y + 1) / gridDim.y);
    float sums[N];

#pragma unroll
    for (int k = 0; k < N; k++)
        sums[k] = 0.0f;
    if (column < columns) {
#pragma unroll 4
        for (unsigned r = first + threadIdx.x / WARP; r < end; r += BLOCK / WARP) {
            float x[N];
            numbers_load(dy + r * stride + column, x);
#pragma unroll
            for (int k = 0; k < N; k++)
                sums[k] += x[k];
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++)
        parts[threadIdx.x * N + k] = sums[k];
    __syncthreads();
    if (threadIdx.x < N * WARP && blockIdx.x * WARP * N + threadIdx.x < columns) {
        float sum = 0.0f;
        for (unsigned w = 0; w < BLOCK / WARP; w++)
            sum += parts[w * N * WARP + threadIdx.x];
        bands[blockIdx.y * columns + blockIdx.x * WARP * N + threadIdx.x] = sum;
    }
}

/* A block has WARP columns, and its warps take their bands in turn. */
static __global__ void bands_join(unsigned band_count, uint64_t columns,
                                  const float *__restrict__ bands, bool adds, float *sums)
{
    __shared__ float parts[MOST_JOINED];
    const uint64_t column = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const unsigned warps = blockDim.x / WARP, end = column < columns ? band_count : 0;
    float sum = 0.0f;

#pragma unroll 4
    for (unsigned b = threadIdx.x / WARP; b < end; b += warps)
        sum += bands[b * columns + column];
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP || column >= columns)
        return;
    for (unsigned w = 1; w < warps; w++)
        sum += parts[w * WARP + threadIdx.x];
    put(&sums[column], sum, adds);
}

void cuda_column_sums(cuda_type type, uint64_t rows, uint64_t columns, uint64_t stride,
                      const void *dy, bool adds, float *sums, float *scratch, cudaStream_t stream)
{
    const unsigned bands = (unsigned)band_count(rows);
    const uint64_t size = bytes_of(type, NUMBERS), places = (uintptr_t)dy | bytes_of(type, stride);
    const bool is_of_several = columns % NUMBERS == 0 && places % size == 0;
    const uint64_t width = is_of_several ? WARP * NUMBERS : WARP;
    const dim3 grid((unsigned)((columns + width - 1) / width), bands);

    TY_MOVES(bytes_of(type, rows * columns), float_bytes(bands * columns));
    TY_DISPATCH(type,
                if (is_of_several) TY_LAUNCH_GRID((band_sums<T, NUMBERS>), grid, BLOCK, 0, stream,
                                                  rows, columns, stride, (const T *)dy, scratch);
                else TY_LAUNCH_GRID((band_sums<T, 1>), grid, BLOCK, 0, stream, rows, columns,
                                    stride, (const T *)dy, scratch))
    TY_MOVES(float_bytes((bands + (adds ? 1 : 0)) * columns), float_bytes(columns));
    TY_LAUNCH(bands_join, (columns + WARP - 1) / WARP, bands < WARP ? bands * WARP : MOST_JOINED, 0,
              stream, bands, columns, scratch, adds, sums);
}
