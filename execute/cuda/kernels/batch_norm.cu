/* Batch norm of [rows][channels], where a row is a pixel of a channels-last image. Many blocks sum
 * bands of rows, then the bands are summed. Formulas: cpu_batch_norm.c. */
#include "vectors.cuh"

#define NORM_EPSILON 1e-5f

/* A thread handles NUMBERS channels at a time, or one if channels are no multiple of that, and
 * loads AT_ONCE rows before it uses the first. A band has LEAST_ROWS rows per thread, or more if
 * the blocks would exceed what an H100 runs at a time: four on each of 132 multiprocessors. */
enum {
    NUMBERS = 4,
    AT_ONCE = 4,
    GRADIENTS_AT_ONCE = 2, /* from several arrays */
    MOMENTS_AT_ONCE = 8,   /* from one array */
    LEAST_ROWS = 8,
    MOST_WIDTH = 16,
    MOST_BLOCKS_OF_BANDS = 4 * 132
};

/* Work of a block: `width` times the channels of a thread, in a band of rows. */
typedef struct bands {
    unsigned numbers;       /* channels of a thread */
    unsigned width, across; /* threads across channels; blocks for all channels */
    unsigned count;
    uint64_t rows; /* per band; the last may have fewer */
} bands;

static bands bands_of(uint64_t rows, uint64_t channels)
{
    const unsigned numbers = channels % NUMBERS == 0 ? NUMBERS : 1;
    const uint64_t pieces = channels / numbers, widest = numbers > 1 ? 1u * MOST_WIDTH : 1u * WARP;
    const unsigned width = (unsigned)(pieces < widest ? pieces : widest);
    const unsigned across = (unsigned)((pieces + width - 1) / width);
    const uint64_t most = across < MOST_BLOCKS_OF_BANDS ? MOST_BLOCKS_OF_BANDS / across : 1;
    const uint64_t least = (uint64_t)BLOCK / width * LEAST_ROWS;
    const uint64_t wanted = (rows + least - 1) / least;
    const uint64_t count = wanted < most ? wanted : most;
    bands b;

    b.numbers = numbers;
    b.width = width;
    b.across = across;
    b.rows = (rows + count - 1) / count;
    b.count = (unsigned)((rows + b.rows - 1) / b.rows);
    return b;
}

/* Runs the statement with N as the channels of a thread. */
#define DISPATCH_NUMBERS(b, ...)                                                                   \
    if ((b).numbers == NUMBERS) {                                                                  \
        constexpr int N = NUMBERS;                                                                 \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        constexpr int N = 1;                                                                       \
        __VA_ARGS__;                                                                               \
    }

uint64_t cuda_batch_norm_scratch(uint64_t rows, uint64_t channels)
{
    return (2 * (uint64_t)bands_of(rows, channels).count + 2) * channels;
}

/* Rows of a band. */
static __device__ __forceinline__ unsigned band_rows(const bands &b, uint64_t rows, unsigned band)
{
    const uint64_t left = rows - band * b.rows;

    return (unsigned)(left < b.rows ? left : b.rows);
}

/* Work of a thread: every `step`-th row of its channels. */
typedef struct column {
    unsigned count; /* rows; 0: the thread is idle */
    uint64_t channel;
    uint64_t at, stride; /* elements: the first, and the distance between rows */
} column;

/* Number of `count` rows for the thread that begins with this one. */
static __device__ __forceinline__ unsigned own_rows(unsigned count, unsigned row, unsigned step)
{
    return row < step ? count / step + (row < count % step) : 0;
}

template <int N>
static __device__ __forceinline__ column column_of(const bands &b, uint64_t rows, uint64_t channels)
{
    const unsigned step = blockDim.x / b.width, row = threadIdx.x / b.width;
    column c;

    c.channel = ((uint64_t)blockIdx.x * b.width + threadIdx.x % b.width) * N;
    c.count = c.channel < channels ? own_rows(band_rows(b, rows, blockIdx.y), row, step) : 0;
    c.at = (blockIdx.y * b.rows + row) * channels + c.channel;
    c.stride = step * channels;
    return c;
}

/* Loads R rows; rows from n on are `fill`. */
template <typename T, unsigned R, int N>
static __device__ __forceinline__ void rows_load(const T *from, uint64_t stride, unsigned n,
                                                 float fill, float (&x)[R][N])
{
#pragma unroll
    for (unsigned r = 0; r < R; r++) {
#pragma unroll
        for (int k = 0; k < N; k++)
            x[r][k] = fill;
        if (r < n)
            numbers_load(from + r * stride, x[r]);
    }
}

/* The channel of a block whose partial sums a thread adds, and the first of these; they are `width`
 * apart, one per row. */
typedef struct share {
    bool is_there;
    uint64_t channel;
    unsigned first;
} share;

template <int N> static __device__ __forceinline__ share share_of(const bands &b, uint64_t channels)
{
    const unsigned piece = threadIdx.x % b.width, k = threadIdx.x / b.width;
    share s;

    s.channel = ((uint64_t)blockIdx.x * b.width + piece) * N + k;
    s.is_there = k < N && s.channel < channels;
    s.first = k * BLOCK + piece;
    return s;
}

/* ---- Statistics: of every band the mean and the sum of squared differences from it ---- */

typedef struct moments {
    float mean, squares;
} moments;

/* Moments of N channels over rows, by sums of differences from the first row. */
template <typename T, int N>
static __device__ __forceinline__ void rows_moments(const column &c, const T *x, moments (&m)[N])
{
    float first[N], sums[N], squares[N];

#pragma unroll
    for (int k = 0; k < N; k++)
        first[k] = sums[k] = squares[k] = 0.0f;
    if (c.count > 0)
        numbers_load(x + c.at, first);
    for (unsigned done = 0; done < c.count; done += MOMENTS_AT_ONCE) {
        const unsigned n = c.count - done < MOMENTS_AT_ONCE ? c.count - done : MOMENTS_AT_ONCE;
        float values[MOMENTS_AT_ONCE][N];
        rows_load(x + c.at + done * c.stride, c.stride, n, 0.0f, values);
#pragma unroll
        for (unsigned r = 0; r < MOMENTS_AT_ONCE; r++)
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float apart = r < n ? values[r][k] - first[k] : 0.0f;
                sums[k] += apart;
                squares[k] += apart * apart;
            }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        const float apart = c.count > 0 ? sums[k] / (float)c.count : 0.0f;
        m[k].mean = first[k] + apart;
        m[k].squares = fmaxf(squares[k] - sums[k] * apart, 0.0f);
    }
}

/* bands: [2][bands][channels], means and squares */
template <typename T, int N>
static __global__ void band_moments(bands b, uint64_t rows, uint64_t channels,
                                    const T *__restrict__ x, float *__restrict__ of_bands)
{
    __shared__ float means[N * BLOCK], squares[N * BLOCK];
    const column c = column_of<N>(b, rows, channels);
    const share s = share_of<N>(b, channels);
    const unsigned step = blockDim.x / b.width, all = band_rows(b, rows, blockIdx.y);
    moments of_rows[N], m = {0.0f, 0.0f};
    float sum = 0.0f;

    rows_moments(c, x, of_rows);
#pragma unroll
    for (int k = 0; k < N; k++) {
        means[k * BLOCK + threadIdx.x] = of_rows[k].mean;
        squares[k * BLOCK + threadIdx.x] = of_rows[k].squares;
    }
    __syncthreads();
    if (!s.is_there)
        return;
    for (unsigned r = 0; r < step; r++) {
        const float apart = means[s.first + r * b.width] - means[s.first];
        const float count = (float)own_rows(all, r, step);
        sum += apart * count;
        m.squares += squares[s.first + r * b.width] + apart * apart * count;
    }
    m.mean = means[s.first] + sum / (float)all;
    m.squares = fmaxf(m.squares - sum * (sum / (float)all), 0.0f);
    of_bands[blockIdx.y * channels + s.channel] = m.mean;
    of_bands[((uint64_t)b.count + blockIdx.y) * channels + s.channel] = m.squares;
}

enum { JOINING = 1024 }; /* threads of a block that sums bands */

/* Sum over the warps of a block, which all have the same WARP channels; call from all threads. */
static __device__ __forceinline__ float warps_sum(float value)
{
    __shared__ float parts[JOINING];
    float sum = 0.0f;

    __syncthreads(); /* the last call's sums have been read */
    parts[threadIdx.x] = value;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / WARP; w++)
        sum += parts[w * WARP + threadIdx.x % WARP];
    return sum;
}

/* Threads that sum bands. */
static unsigned joining_threads(const bands &b)
{
    return (b.count < JOINING / WARP ? b.count : JOINING / WARP) * WARP;
}

static __device__ __forceinline__ void statistics_put(float *statistics, float mean, float variance)
{
    statistics[0] = mean;
    statistics[1] = 1.0f / sqrtf(variance + NORM_EPSILON);
    statistics[2] = variance;
}

/* A block has WARP channels, and its warps take bands in turn; as rows_moments. */
static __global__ void moments_join(bands b, uint64_t rows, uint64_t channels,
                                    const float *__restrict__ of_bands, float *statistics)
{
    const uint64_t channel = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const float *means = of_bands + channel;
    const float *squares = means + b.count * channels;
    const unsigned end = channel < channels ? b.count : 0;
    const float first = end > 0 ? means[0] : 0.0f;
    float sum = 0.0f, variance = 0.0f;

#pragma unroll 8
    for (unsigned i = threadIdx.x / WARP; i < end; i += blockDim.x / WARP) {
        const float apart = means[i * channels] - first, count = (float)band_rows(b, rows, i);
        sum += apart * count;
        variance += squares[i * channels] + apart * apart * count;
    }
    sum = warps_sum(sum);
    variance = fmaxf(warps_sum(variance) - sum * (sum / (float)rows), 0.0f) / (float)rows;
    if (threadIdx.x < WARP && channel < channels)
        statistics_put(statistics + 3 * channel, first + sum / (float)rows, variance);
}

static __global__ void running_take(uint64_t channels, const float *running, float *statistics)
{
    FOR_EACH (c, channels)
        statistics_put(statistics + 3 * c, running[c], running[channels + c]);
}

template <typename T, int N>
static __global__ void __launch_bounds__(BLOCK, 4)
    normalise(bands b, uint64_t rows, uint64_t channels, const T *__restrict__ x,
              const float *__restrict__ statistics, const float *__restrict__ gain,
              const float *__restrict__ shift, const T *__restrict__ other, bool has_relu,
              T *__restrict__ y)
{
    constexpr unsigned R = sizeof(T) < sizeof(float) ? AT_ONCE : AT_ONCE / 2;
    const column c = column_of<N>(b, rows, channels);
    float mean[N], scale[N], above[N];

    if (c.count == 0)
        return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        mean[k] = statistics[3 * (c.channel + k)];
        scale[k] = statistics[3 * (c.channel + k) + 1] * gain[c.channel + k];
        above[k] = shift[c.channel + k];
    }
    for (unsigned done = 0; done < c.count; done += R) {
        const uint64_t at = c.at + done * c.stride;
        const unsigned n = c.count - done < R ? c.count - done : R;
        float values[R][N], others[R][N];
        rows_load(x + at, c.stride, n, 0.0f, values);
        rows_load(other + at, c.stride, other != NULL ? n : 0, 0.0f, others);
#pragma unroll
        for (unsigned r = 0; r < R; r++) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float z = (values[r][k] - mean[k]) * scale[k] + above[k] + others[r][k];
                values[r][k] = has_relu && !(z > 0.0f) ? 0.0f : z;
            }
            if (r < n)
                numbers_store(y + at + r * c.stride, values[r]);
        }
    }
}

void cuda_batch_norm(cuda_type type, uint64_t rows, uint64_t channels, const void *x,
                     const float *gain, const float *shift, const float *running, const void *other,
                     bool has_relu, void *y, float *statistics, float *scratch, cudaStream_t stream)
{
    const bands b = bands_of(rows, channels);
    const dim3 grid(b.across, b.count);

    if (running != NULL) {
        TY_MOVES(float_bytes(2 * channels), float_bytes(3 * channels));
        TY_LAUNCH(running_take, grid_for(channels), BLOCK, 0, stream, channels, running,
                  statistics);
    } else {
        TY_MOVES(bytes_of(type, rows * channels), float_bytes(2 * b.count * channels));
        TY_DISPATCH(type,
                    DISPATCH_NUMBERS(b, TY_LAUNCH_GRID((band_moments<T, N>), grid, BLOCK, 0, stream,
                                                       b, rows, channels, (const T *)x, scratch)))
        TY_MOVES(float_bytes(2 * b.count * channels), float_bytes(3 * channels));
        TY_LAUNCH(moments_join, (channels + WARP - 1) / WARP, joining_threads(b), 0, stream, b,
                  rows, channels, scratch, statistics);
    }
    TY_MOVES(bytes_of(type, (other != NULL ? 2 : 1) * rows * channels) + float_bytes(4 * channels),
             bytes_of(type, rows * channels));
    TY_DISPATCH(type,
                DISPATCH_NUMBERS(b, TY_LAUNCH_GRID((normalise<T, N>), grid, BLOCK, 0, stream, b,
                                                   rows, channels, (const T *)x, statistics, gain,
                                                   shift, (const T *)other, has_relu, (T *)y)))
}

/* ---- Gradients ---- */

/* Gate of the relu after the norm: open where forward's output before the relu, recomputed from the
 * input, is above 0. Always open without a relu. */
typedef struct gate {
    float factor, above; /* 0 and 1 if always open */
} gate;

static __device__ __forceinline__ gate gate_of(uint64_t channel, const float *statistics,
                                               const float *gain, const float *shift)
{
    gate g = {0.0f, 1.0f};

    if (shift != NULL) {
        g.factor = statistics[3 * channel + 1] * gain[channel];
        g.above = shift[channel];
    }
    return g;
}

static __device__ __forceinline__ float gated(const gate &g, float from_mean, float d)
{
    return from_mean * g.factor + g.above > 0.0f ? d : 0.0f;
}

/* bands: [2][bands][channels], sums of dy z and of dy, with z = (x - mean) scale. If the relu
 * follows a sum, with output y, sets dy to 0 in place where the relu is closed. */
template <typename T, int N>
static __global__ void band_gradients(bands b, uint64_t rows, uint64_t channels,
                                      const T *__restrict__ x, const float *__restrict__ gain,
                                      const float *__restrict__ shift, const T *__restrict__ y,
                                      const float *__restrict__ statistics, T *dy,
                                      float *__restrict__ of_bands)
{
    __shared__ float products[N * BLOCK], sums[N * BLOCK];
    const column c = column_of<N>(b, rows, channels);
    const share s = share_of<N>(b, channels);
    const unsigned step = blockDim.x / b.width;
    float product[N], sum[N], mean[N];
    gate g[N];

#pragma unroll
    for (int k = 0; k < N; k++) {
        product[k] = sum[k] = mean[k] = 0.0f;
        if (c.count > 0) {
            mean[k] = statistics[3 * (c.channel + k)];
            g[k] = gate_of(c.channel + k, statistics, gain, shift);
        }
    }
    for (unsigned done = 0; done < c.count; done += GRADIENTS_AT_ONCE) {
        const uint64_t at = c.at + done * c.stride;
        const unsigned n = c.count - done < GRADIENTS_AT_ONCE ? c.count - done : GRADIENTS_AT_ONCE;
        float values[GRADIENTS_AT_ONCE][N], slopes[GRADIENTS_AT_ONCE][N],
            made[GRADIENTS_AT_ONCE][N];
        rows_load(x + at, c.stride, n, 0.0f, values);
        rows_load(dy + at, c.stride, n, 0.0f, slopes);
        rows_load(y + at, c.stride, y != NULL ? n : 0, 1.0f, made);
#pragma unroll
        for (unsigned r = 0; r < GRADIENTS_AT_ONCE; r++) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float from_mean = values[r][k] - mean[k];
                const float d = made[r][k] > 0.0f ? gated(g[k], from_mean, slopes[r][k]) : 0.0f;
                product[k] += d * from_mean;
                sum[k] += d;
                slopes[r][k] = d;
            }
            if (y != NULL && r < n)
                numbers_store(dy + at + r * c.stride, slopes[r]);
        }
    }
#pragma unroll
    for (int k = 0; k < N; k++) {
        products[k * BLOCK + threadIdx.x] = product[k];
        sums[k * BLOCK + threadIdx.x] = sum[k];
    }
    __syncthreads();
    if (!s.is_there)
        return;
    product[0] = sum[0] = 0.0f;
    for (unsigned r = 0; r < step; r++) {
        product[0] += products[s.first + r * b.width];
        sum[0] += sums[s.first + r * b.width];
    }
    of_bands[blockIdx.y * channels + s.channel] = product[0] * statistics[3 * s.channel + 1];
    of_bands[((uint64_t)b.count + blockIdx.y) * channels + s.channel] = sum[0];
}

/* As in torch.nn.BatchNorm2d. */
#define RUNNING_SHARE 0.1f

/* Moves a channel's running statistics towards the batch's; the variance is that of the population.
 */
static __device__ __forceinline__ void running_move(uint64_t channels, uint64_t channel,
                                                    float population, const float *statistics,
                                                    float *running)
{
    const float variance = population * statistics[3 * channel + 2];

    running[channel] += RUNNING_SHARE * (statistics[3 * channel] - running[channel]);
    running[channels + channel] += RUNNING_SHARE * (variance - running[channels + channel]);
}

/* totals: [2][channels], of dy z and of dy; totals, dgain and running may be NULL. */
static __global__ void gradients_join(bands b, uint64_t channels,
                                      const float *__restrict__ of_bands, bool adds, float *dgain,
                                      float *dshift, float *totals, float population,
                                      const float *statistics, float *running)
{
    const uint64_t channel = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const float *products = of_bands + channel;
    const float *sums = products + b.count * channels;
    const unsigned end = channel < channels ? b.count : 0;
    float product = 0.0f, sum = 0.0f;

#pragma unroll 8
    for (unsigned i = threadIdx.x / WARP; i < end; i += blockDim.x / WARP) {
        product += products[i * channels];
        sum += sums[i * channels];
    }
    product = warps_sum(product);
    sum = warps_sum(sum);
    if (threadIdx.x >= WARP || channel >= channels)
        return;
    if (dgain != NULL) {
        put(&dgain[channel], product, adds);
        put(&dshift[channel], sum, adds);
    }
    if (totals != NULL) {
        totals[channel] = product;
        totals[channels + channel] = sum;
    }
    if (running != NULL)
        running_move(channels, channel, population, statistics, running);
}

/* dx = gain scale (dy - mean(dy) - z mean(dy z)); without totals the means are 0. */
template <typename T, int N>
static __global__ void
input_gradient(bands b, uint64_t rows, uint64_t channels, const T *__restrict__ x,
               const float *__restrict__ gain, const float *__restrict__ shift,
               const float *__restrict__ statistics, const float *__restrict__ totals, const T *dy,
               bool adds, T *dx)
{
    const column c = column_of<N>(b, rows, channels);
    float mean[N], factor[N], product[N], sum[N];
    gate g[N];

    if (c.count == 0)
        return;
#pragma unroll
    for (int k = 0; k < N; k++) {
        const uint64_t channel = c.channel + k;
        const float scale = statistics[3 * channel + 1];
        mean[k] = statistics[3 * channel];
        factor[k] = gain[channel] * scale;
        g[k] = gate_of(channel, statistics, gain, shift);
        product[k] = totals != NULL ? totals[channel] / (float)rows * scale : 0.0f;
        sum[k] = totals != NULL ? totals[channels + channel] / (float)rows : 0.0f;
    }
    for (unsigned done = 0; done < c.count; done += GRADIENTS_AT_ONCE) {
        const uint64_t at = c.at + done * c.stride;
        const unsigned n = c.count - done < GRADIENTS_AT_ONCE ? c.count - done : GRADIENTS_AT_ONCE;
        float values[GRADIENTS_AT_ONCE][N], slopes[GRADIENTS_AT_ONCE][N], old[GRADIENTS_AT_ONCE][N];
        rows_load(x + at, c.stride, n, 0.0f, values);
        rows_load(dy + at, c.stride, n, 0.0f, slopes);
        rows_load(dx + at, c.stride, adds ? n : 0, 0.0f, old);
#pragma unroll
        for (unsigned r = 0; r < GRADIENTS_AT_ONCE; r++) {
#pragma unroll
            for (int k = 0; k < N; k++) {
                const float from_mean = values[r][k] - mean[k];
                const float d = gated(g[k], from_mean, slopes[r][k]);
                values[r][k] = factor[k] * (d - sum[k] - from_mean * product[k]);
                values[r][k] += old[r][k];
            }
            if (r < n)
                numbers_store(dx + at + r * c.stride, values[r]);
        }
    }
}

void cuda_batch_norm_backward(cuda_type type, uint64_t rows, uint64_t channels, const void *x,
                              const float *gain, const float *shift, const void *y,
                              const float *statistics, bool is_given, void *dy, float *dgain,
                              float *dshift, bool adds_parameters, float *running, bool adds_x,
                              void *dx, float *scratch, cudaStream_t stream)
{
    const float population = rows > 1 ? (float)((double)rows / (double)(rows - 1)) : 1.0f;
    const bands b = bands_of(rows, channels);
    const dim3 grid(b.across, b.count);
    float *totals = dx != NULL && !is_given ? scratch + 2 * b.count * channels : NULL;
    [[maybe_unused]] const uint64_t count = rows * channels, gates = shift != NULL ? 2 : 0;
    [[maybe_unused]] const uint64_t parts = dgain != NULL ? 2 : 0, sums = totals != NULL ? 2 : 0;
    [[maybe_unused]] const uint64_t moved = running != NULL ? 2 : 0;

    if (dgain != NULL || totals != NULL || y != NULL) {
        TY_MOVES(bytes_of(type, (y != NULL ? 3 : 2) * count) + float_bytes((2 + gates) * channels),
                 bytes_of(type, y != NULL ? count : 0) + float_bytes(2 * b.count * channels));
        TY_DISPATCH(
            type, DISPATCH_NUMBERS(b, TY_LAUNCH_GRID((band_gradients<T, N>), grid, BLOCK, 0, stream,
                                                     b, rows, channels, (const T *)x, gain, shift,
                                                     (const T *)y, statistics, (T *)dy, scratch)))
    }
    if (dgain != NULL || totals != NULL) {
        TY_MOVES(float_bytes((2 * b.count + (adds_parameters ? parts : 0) + 2 * moved) * channels),
                 float_bytes((parts + sums + moved) * channels));
        TY_LAUNCH(gradients_join, (channels + WARP - 1) / WARP, joining_threads(b), 0, stream, b,
                  channels, scratch, adds_parameters, dgain, dshift, totals, population, statistics,
                  running);
    }
    if (dx == NULL)
        return;
    TY_MOVES(bytes_of(type, (adds_x ? 3 : 2) * count) +
                 float_bytes((3 + gates / 2 + sums) * channels),
             bytes_of(type, count));
    TY_DISPATCH(type, DISPATCH_NUMBERS(b, TY_LAUNCH_GRID((input_gradient<T, N>), grid, BLOCK, 0,
                                                         stream, b, rows, channels, (const T *)x,
                                                         gain, shift, statistics, totals,
                                                         (const T *)dy, adds_x, (T *)dx)))
}
