/* Layer norm and RMS norm over rows. Formulas: cpu_norm.c. */
#include "kernel.cuh"

#define NORM_EPSILON 1e-5f

/* One block a row. */
template <typename T>
static __global__ void norm(bool is_rms, uint64_t n, const T *x, const float *gain,
                            const float *shift, T *y, float *statistics)
{
    uint64_t row = blockIdx.x;
    float mean = 0.0f, squares = 0.0f, scale;

    x += row * n;
    y += row * n;
    if (!is_rms) {
        for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
            mean += to_float(x[i]);
        mean = block_sum(mean) / (float)n;
    }
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float d = to_float(x[i]) - mean;
        squares += d * d;
    }
    scale = 1.0f / sqrtf(block_sum(squares) / (float)n + NORM_EPSILON);
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
        y[i] = of_float<T>((to_float(x[i]) - mean) * scale * gain[i] +
                           (shift != NULL ? shift[i] : 0.0f));
    if (threadIdx.x == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = scale;
    }
}

void cuda_norm(cuda_type type, bool is_rms, uint64_t rows, uint64_t n, const void *x,
               const float *gain, const float *shift, void *y, float *statistics,
               cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, rows * n) + float_bytes(shift != NULL ? 2 * n : n),
             bytes_of(type, rows * n) + float_bytes(2 * rows));
    TY_DISPATCH(type, TY_LAUNCH(norm<T>, rows, threads_for(n), 0, stream, is_rms, n, (const T *)x,
                                gain, shift, (T *)y, statistics))
}

/* With z = (x - mean) scale and e = dy gain: dx = (e - mean(e) - z mean(e z)) scale; rms has no
 * mean(e). */
template <typename T>
static __global__ void norm_input(bool is_rms, uint64_t n, const T *x, const float *gain,
                                  const float *statistics, const T *dy, bool adds, T *dx)
{
    uint64_t row = blockIdx.x;
    float mean = statistics[2 * row], scale = statistics[2 * row + 1], sum = 0.0f, product = 0.0f;

    x += row * n;
    dy += row * n;
    dx += row * n;
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float e = to_float(dy[i]) * gain[i];
        sum += e;
        product += e * (to_float(x[i]) - mean);
    }
    sum = is_rms ? 0.0f : block_sum(sum) / (float)n;
    product = block_sum(product) * scale * scale / (float)n;
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
        put(&dx[i], (to_float(dy[i]) * gain[i] - sum - (to_float(x[i]) - mean) * product) * scale,
            adds);
}

enum { BAND_ROWS = 64 };

static uint64_t band_count(uint64_t rows)
{
    uint64_t bands = (rows + BAND_ROWS - 1) / BAND_ROWS;

    return bands < 1 ? 1 : bands < 512 ? bands : 512;
}

uint64_t cuda_norm_scratch(uint64_t rows, uint64_t n)
{
    return 2 * band_count(rows) * n;
}

/* Block (x, y): 32 columns of band y. bands: [2][bands][n], of gain and of shift. */
template <typename T>
static __global__ void norm_bands(uint64_t rows, uint64_t n, const T *x, const float *statistics,
                                  const T *dy, float *bands)
{
    __shared__ float gains[BLOCK], shifts[BLOCK];
    uint64_t column = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    uint64_t first = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
    float gain = 0.0f, shift = 0.0f;

    if (column < n)
        for (uint64_t r = first + threadIdx.x / WARP; r < end; r += BLOCK / WARP) {
            float d = to_float(dy[r * n + column]);
            gain += d * (to_float(x[r * n + column]) - statistics[2 * r]) * statistics[2 * r + 1];
            shift += d;
        }
    gains[threadIdx.x] = gain;
    shifts[threadIdx.x] = shift;
    __syncthreads();
    if (threadIdx.x < WARP && column < n) {
        for (unsigned w = 1; w < BLOCK / WARP; w++) {
            gain += gains[w * WARP + threadIdx.x];
            shift += shifts[w * WARP + threadIdx.x];
        }
        bands[blockIdx.y * n + column] = gain;
        bands[((uint64_t)gridDim.y + blockIdx.y) * n + column] = shift;
    }
}

static __global__ void norm_bands_join(uint64_t band_count, uint64_t n, const float *bands,
                                       bool adds, float *dgain, float *dshift)
{
    FOR_EACH (c, n) {
        float gain = 0.0f, shift = 0.0f;
        for (uint64_t b = 0; b < band_count; b++) {
            gain += bands[b * n + c];
            shift += bands[(band_count + b) * n + c];
        }
        put(&dgain[c], gain, adds);
        if (dshift != NULL)
            put(&dshift[c], shift, adds);
    }
}

void cuda_norm_backward(cuda_type type, bool is_rms, uint64_t rows, uint64_t n, const void *x,
                        const float *gain, const float *statistics, const void *dy, float *dgain,
                        float *dshift, bool adds_parameters, bool adds_x, void *dx, float *scratch,
                        cudaStream_t stream)
{
    dim3 grid((unsigned)((n + WARP - 1) / WARP), (unsigned)band_count(rows));
    [[maybe_unused]] const uint64_t parts = dshift != NULL ? 2 : 1;

    if (dgain != NULL) {
        TY_MOVES(bytes_of(type, 2 * rows * n) + float_bytes(2 * rows),
                 float_bytes(2 * band_count(rows) * n));
        TY_DISPATCH(type, TY_LAUNCH_GRID(norm_bands<T>, grid, BLOCK, 0, stream, rows, n,
                                         (const T *)x, statistics, (const T *)dy, scratch))
        TY_MOVES(float_bytes((2 * band_count(rows) + (adds_parameters ? parts : 0)) * n),
                 float_bytes(parts * n));
        TY_LAUNCH(norm_bands_join, grid_for(n), BLOCK, 0, stream, band_count(rows), n, scratch,
                  adds_parameters, dgain, dshift);
    }
    if (dx == NULL)
        return;
    TY_MOVES(bytes_of(type, (adds_x ? 3 : 2) * rows * n) + float_bytes(n + 2 * rows),
             bytes_of(type, rows * n));
    TY_DISPATCH(type, TY_LAUNCH(norm_input<T>, rows, threads_for(n), 0, stream, is_rms, n,
                                (const T *)x, gain, statistics, (const T *)dy, adds_x, (T *)dx))
}
