/* Batch norm of [rows][channels], a row being a pixel of images whose channels lie last. Sums over
 * rows go by bands of them, to many blocks, and then over the bands. Formulas: cpu_batch_norm.c. */
#include "kernel.cuh"

#define NORM_EPSILON 1e-5f

/* A band gives each thread CHUNK elements to load at once, or where blocks would be more than a GPU
 * takes at a time several times that. */
enum { CHUNK = 8, BAND_ELEMENTS = CHUNK * BLOCK, MOST_BLOCKS_OF_BANDS = 1024 };
enum { AT_ONCE = 4 }; /* where there are several arrays */

/* A block's part: `width` channels of a band of rows. */
typedef struct bands {
    unsigned width, across; /* channels of a block; blocks for all of them */
    unsigned count;
    uint64_t rows; /* of each but the last, which may have less */
} bands;

static bands bands_of(uint64_t rows, uint64_t channels)
{
    const unsigned width = channels < WARP ? (unsigned)channels : WARP;
    const unsigned across = (unsigned)((channels + width - 1) / width);
    const uint64_t most = across < MOST_BLOCKS_OF_BANDS ? MOST_BLOCKS_OF_BANDS / across : 1;
    const uint64_t wanted = (rows * width + BAND_ELEMENTS - 1) / BAND_ELEMENTS;
    const uint64_t count = wanted < most ? wanted : most;
    bands b;

    b.width = width;
    b.across = across;
    b.rows = (rows + count - 1) / count;
    b.count = (unsigned)((rows + b.rows - 1) / b.rows);
    return b;
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

/* A thread's part of its block's: every `step`-th row of one channel. */
typedef struct column {
    unsigned count; /* rows; 0: the thread has nothing to do */
    uint64_t channel;
    uint64_t at, stride; /* elements: the first one, and from one to the next */
} column;

/* Of `count` rows those of the thread that begins with this one. */
static __device__ __forceinline__ unsigned own_rows(unsigned count, unsigned row, unsigned step)
{
    return row < step && row < count ? (count - row - 1) / step + 1 : 0;
}

static __device__ __forceinline__ column column_of(const bands &b, uint64_t rows, uint64_t channels)
{
    const unsigned step = blockDim.x / b.width, row = threadIdx.x / b.width;
    column c;

    c.channel = (uint64_t)blockIdx.x * b.width + threadIdx.x % b.width;
    c.count = c.channel < channels ? own_rows(band_rows(b, rows, blockIdx.y), row, step) : 0;
    c.at = (blockIdx.y * b.rows + row) * channels + c.channel;
    c.stride = step * channels;
    return c;
}

/* ---- Statistics: of every band the mean and the sum of squared differences from it ---- */

typedef struct moments {
    float mean, squares;
} moments;

/* With `count` rows before, after another `n` whose values are given (Chan, Golub and LeVeque,
 * "Updating Formulae and a Pairwise Algorithm for Computing Sample Variances", 1979). */
static __device__ __forceinline__ moments moments_add(moments m, unsigned count,
                                                      const float *values, unsigned n)
{
    const float share = (float)n / (float)(count + n);
    float mean = 0.0f, squares = 0.0f, apart;

#pragma unroll
    for (unsigned k = 0; k < CHUNK; k++)
        mean += k < n ? values[k] : 0.0f;
    mean /= (float)n;
#pragma unroll
    for (unsigned k = 0; k < CHUNK; k++) {
        const float d = k < n ? values[k] - mean : 0.0f;
        squares += d * d;
    }
    apart = mean - m.mean;
    m.mean += apart * share;
    m.squares += squares + apart * apart * (float)count * share;
    return m;
}

/* bands: [2][bands][channels], means and squares */
template <typename T>
static __global__ void band_moments(bands b, uint64_t rows, uint64_t channels, const T *x,
                                    float *of_bands)
{
    __shared__ float means[BLOCK], squares[BLOCK];
    const column c = column_of(b, rows, channels);
    const unsigned step = blockDim.x / b.width, all = band_rows(b, rows, blockIdx.y);
    moments m = {0.0f, 0.0f};

    for (unsigned done = 0; done < c.count; done += CHUNK) {
        const T *from = x + c.at + done * c.stride;
        const unsigned n = c.count - done < CHUNK ? c.count - done : CHUNK;
        float values[CHUNK];
#pragma unroll
        for (unsigned k = 0; k < CHUNK; k++)
            values[k] = k < n ? to_float(from[k * c.stride]) : 0.0f;
        m = moments_add(m, done, values, n);
    }
    means[threadIdx.x] = m.mean;
    squares[threadIdx.x] = m.squares;
    __syncthreads();
    if (threadIdx.x >= b.width || c.count == 0)
        return;
    m = (moments){0.0f, 0.0f};
    for (unsigned r = 0; r < step; r++)
        m.mean += means[r * b.width + threadIdx.x] * (float)own_rows(all, r, step);
    m.mean /= (float)all;
    for (unsigned r = 0; r < step; r++) {
        const float apart = means[r * b.width + threadIdx.x] - m.mean;
        m.squares +=
            squares[r * b.width + threadIdx.x] + apart * apart * (float)own_rows(all, r, step);
    }
    of_bands[blockIdx.y * channels + c.channel] = m.mean;
    of_bands[((uint64_t)b.count + blockIdx.y) * channels + c.channel] = m.squares;
}

/* The sum of what a block's warps have, where they have the same WARP channels; of all threads. */
static __device__ __forceinline__ float warps_sum(float value)
{
    __shared__ float parts[BLOCK];
    float sum = 0.0f;

    __syncthreads(); /* the last call's parts have been read */
    parts[threadIdx.x] = value;
    __syncthreads();
    for (unsigned w = 0; w < BLOCK / WARP; w++)
        sum += parts[w * WARP + threadIdx.x % WARP];
    return sum;
}

static __device__ __forceinline__ void statistics_put(float *statistics, float mean, float variance)
{
    statistics[0] = mean;
    statistics[1] = 1.0f / sqrtf(variance + NORM_EPSILON);
    statistics[2] = variance;
}

/* A block has WARP channels, each of its warps every so manieth band. */
static __global__ void moments_join(bands b, uint64_t rows, uint64_t channels,
                                    const float *of_bands, float *statistics)
{
    const uint64_t channel = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const float *means = of_bands + channel;
    const float *squares = means + b.count * channels;
    const unsigned end = channel < channels ? b.count : 0;
    float mean = 0.0f, variance = 0.0f;

    for (unsigned i = threadIdx.x / WARP; i < end; i += BLOCK / WARP)
        mean += means[i * channels] * (float)band_rows(b, rows, i);
    mean = warps_sum(mean) / (float)rows;
    for (unsigned i = threadIdx.x / WARP; i < end; i += BLOCK / WARP) {
        const float apart = means[i * channels] - mean;
        variance += squares[i * channels] + apart * apart * (float)band_rows(b, rows, i);
    }
    variance = warps_sum(variance) / (float)rows;
    if (threadIdx.x < WARP && channel < channels)
        statistics_put(statistics + 3 * channel, mean, variance);
}

static __global__ void running_take(uint64_t channels, const float *running, float *statistics)
{
    FOR_EACH (c, channels)
        statistics_put(statistics + 3 * c, running[c], running[channels + c]);
}

template <typename T>
static __global__ void normalise(bands b, uint64_t rows, uint64_t channels, const T *x,
                                 const float *statistics, const float *gain, const float *shift,
                                 const T *other, bool has_relu, T *y)
{
    const column c = column_of(b, rows, channels);
    float mean, scale, above;

    if (c.count == 0)
        return;
    mean = statistics[3 * c.channel];
    scale = statistics[3 * c.channel + 1] * gain[c.channel];
    above = shift[c.channel];
    for (unsigned done = 0; done < c.count; done += CHUNK) {
        const uint64_t at = c.at + done * c.stride;
        const unsigned n = c.count - done < CHUNK ? c.count - done : CHUNK;
        float values[CHUNK], others[CHUNK];
#pragma unroll
        for (unsigned k = 0; k < CHUNK; k++) {
            values[k] = k < n ? to_float(x[at + k * c.stride]) : 0.0f;
            others[k] = k < n && other != NULL ? to_float(other[at + k * c.stride]) : 0.0f;
        }
#pragma unroll
        for (unsigned k = 0; k < CHUNK; k++) {
            const float z = (values[k] - mean) * scale + above + others[k];
            if (k < n)
                y[at + k * c.stride] = of_float<T>(has_relu && !(z > 0.0f) ? 0.0f : z);
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
        TY_DISPATCH(type, TY_LAUNCH_GRID(band_moments<T>, grid, BLOCK, 0, stream, b, rows, channels,
                                         (const T *)x, scratch))
        TY_MOVES(float_bytes(2 * b.count * channels), float_bytes(3 * channels));
        TY_LAUNCH(moments_join, (channels + WARP - 1) / WARP, BLOCK, 0, stream, b, rows, channels,
                  scratch, statistics);
    }
    TY_MOVES(bytes_of(type, (other != NULL ? 2 : 1) * rows * channels) + float_bytes(4 * channels),
             bytes_of(type, rows * channels));
    TY_DISPATCH(type, TY_LAUNCH_GRID(normalise<T>, grid, BLOCK, 0, stream, b, rows, channels,
                                     (const T *)x, statistics, gain, shift, (const T *)other,
                                     has_relu, (T *)y))
}

/* ---- Gradients ---- */

/* What the relu behind the norm lets through: where forward's sum, made again from the input, is
 * above 0. Without a relu that is all. */
typedef struct gate {
    float factor, above; /* 0 and 1 where everything passes */
} gate;

static __device__ __forceinline__ gate gate_of(const column &c, const float *statistics,
                                               const float *gain, const float *shift)
{
    gate g = {0.0f, 1.0f};

    if (shift != NULL) {
        g.factor = statistics[3 * c.channel + 1] * gain[c.channel];
        g.above = shift[c.channel];
    }
    return g;
}

static __device__ __forceinline__ float gated(const gate &g, float from_mean, float d)
{
    return from_mean * g.factor + g.above > 0.0f ? d : 0.0f;
}

/* bands: [2][bands][channels], sums of dy z and of dy, with z = (x - mean) scale. Where the relu is
 * behind a sum, whose output is y, what it stops of dy becomes 0 in its place. */
template <typename T>
static __global__ void band_gradients(bands b, uint64_t rows, uint64_t channels, const T *x,
                                      const float *gain, const float *shift, const T *y,
                                      const float *statistics, T *dy, float *of_bands)
{
    __shared__ float products[BLOCK], sums[BLOCK];
    const column c = column_of(b, rows, channels);
    const unsigned step = blockDim.x / b.width;
    float product = 0.0f, sum = 0.0f, mean = 0.0f, scale = 0.0f;
    gate g = {0.0f, 1.0f};

    if (c.count > 0) {
        mean = statistics[3 * c.channel];
        scale = statistics[3 * c.channel + 1];
        g = gate_of(c, statistics, gain, shift);
    }
    for (unsigned done = 0; done < c.count; done += AT_ONCE) {
        const uint64_t at = c.at + done * c.stride;
        const unsigned n = c.count - done < AT_ONCE ? c.count - done : AT_ONCE;
        float values[AT_ONCE], slopes[AT_ONCE], made[AT_ONCE];
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; k++) {
            values[k] = k < n ? to_float(x[at + k * c.stride]) : 0.0f;
            slopes[k] = k < n ? to_float(dy[at + k * c.stride]) : 0.0f;
            made[k] = k < n && y != NULL ? to_float(y[at + k * c.stride]) : 1.0f;
        }
#pragma unroll
        for (unsigned k = 0; k < AT_ONCE; k++) {
            const float from_mean = values[k] - mean;
            const float d = made[k] > 0.0f ? gated(g, from_mean, slopes[k]) : 0.0f;
            product += d * from_mean * scale;
            sum += d;
            if (y != NULL && k < n)
                dy[at + k * c.stride] = of_float<T>(d);
        }
    }
    products[threadIdx.x] = product;
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= b.width || c.count == 0)
        return;
    for (unsigned r = 1; r < step; r++) {
        product += products[r * b.width + threadIdx.x];
        sum += sums[r * b.width + threadIdx.x];
    }
    of_bands[blockIdx.y * channels + c.channel] = product;
    of_bands[((uint64_t)b.count + blockIdx.y) * channels + c.channel] = sum;
}

/* totals: [2][channels], of dy z and of dy; it and dgain may be NULL. */
static __global__ void gradients_join(bands b, uint64_t channels, const float *of_bands, bool adds,
                                      float *dgain, float *dshift, float *totals)
{
    const uint64_t channel = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const float *products = of_bands + channel;
    const float *sums = products + b.count * channels;
    const unsigned end = channel < channels ? b.count : 0;
    float product = 0.0f, sum = 0.0f;

    for (unsigned i = threadIdx.x / WARP; i < end; i += BLOCK / WARP) {
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
}

/* dx = gain scale (dy - mean(dy) - z mean(dy z)); without totals the means are 0. */
template <typename T>
static __global__ void input_gradient(bands b, uint64_t rows, uint64_t channels, const T *x,
                                      const float *gain, const float *shift,
                                      const float *statistics, const float *totals, const T *dy,
                                      bool adds, T *dx)
{
    const column c = column_of(b, rows, channels);
    float mean, scale, factor, product = 0.0f, sum = 0.0f;
    gate g;

    if (c.count == 0)
        return;
    mean = statistics[3 * c.channel];
    scale = statistics[3 * c.channel + 1];
    factor = gain[c.channel] * scale;
    g = gate_of(c, statistics, gain, shift);
    if (totals != NULL) {
        product = totals[c.channel] / (float)rows * scale;
        sum = totals[channels + c.channel] / (float)rows;
    }
#pragma unroll 4
    for (unsigned i = 0; i < c.count; i++) {
        const uint64_t at = c.at + i * c.stride;
        const float from_mean = to_float(x[at]) - mean;
        const float d = gated(g, from_mean, to_float(dy[at]));
        put(&dx[at], factor * (d - sum - from_mean * product), adds);
    }
}

void cuda_batch_norm_backward(cuda_type type, uint64_t rows, uint64_t channels, const void *x,
                              const float *gain, const float *shift, const void *y,
                              const float *statistics, bool is_given, void *dy, float *dgain,
                              float *dshift, bool adds_parameters, bool adds_x, void *dx,
                              float *scratch, cudaStream_t stream)
{
    const bands b = bands_of(rows, channels);
    const dim3 grid(b.across, b.count);
    float *totals = dx != NULL && !is_given ? scratch + 2 * b.count * channels : NULL;
    [[maybe_unused]] const uint64_t count = rows * channels, gates = shift != NULL ? 2 : 0;
    [[maybe_unused]] const uint64_t parts = dgain != NULL ? 2 : 0, sums = totals != NULL ? 2 : 0;

    if (dgain != NULL || totals != NULL || y != NULL) {
        TY_MOVES(bytes_of(type, (y != NULL ? 3 : 2) * count) + float_bytes((2 + gates) * channels),
                 bytes_of(type, y != NULL ? count : 0) + float_bytes(2 * b.count * channels));
        TY_DISPATCH(type, TY_LAUNCH_GRID(band_gradients<T>, grid, BLOCK, 0, stream, b, rows,
                                         channels, (const T *)x, gain, shift, (const T *)y,
                                         statistics, (T *)dy, scratch))
    }
    if (dgain != NULL || totals != NULL) {
        TY_MOVES(float_bytes((2 * b.count + (adds_parameters ? parts : 0)) * channels),
                 float_bytes((parts + sums) * channels));
        TY_LAUNCH(gradients_join, (channels + WARP - 1) / WARP, BLOCK, 0, stream, b, channels,
                  scratch, adds_parameters, dgain, dshift, totals);
    }
    if (dx == NULL)
        return;
    TY_MOVES(bytes_of(type, (adds_x ? 3 : 2) * count) +
                 float_bytes((3 + gates / 2 + sums) * channels),
             bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH_GRID(input_gradient<T>, grid, BLOCK, 0, stream, b, rows, channels,
                                     (const T *)x, gain, shift, statistics, totals, (const T *)dy,
                                     adds_x, (T *)dx))
}

/* ---- Running statistics ---- */

/* As in torch.nn.BatchNorm2d. */
#define RUNNING_SHARE 0.1f

/* The running variance is that of the population. */
static __global__ void running_move(uint64_t channels, float population, const float *statistics,
                                    float *running)
{
    FOR_EACH (c, channels) {
        float variance = population * statistics[3 * c + 2];

        running[c] += RUNNING_SHARE * (statistics[3 * c] - running[c]);
        running[channels + c] += RUNNING_SHARE * (variance - running[channels + c]);
    }
}

void cuda_running_move(uint64_t channels, uint64_t rows, const float *statistics, float *running,
                       cudaStream_t stream)
{
    const float population = rows > 1 ? (float)((double)rows / (double)(rows - 1)) : 1.0f;

    TY_MOVES(float_bytes(4 * channels), float_bytes(2 * channels));
    TY_LAUNCH(running_move, grid_for(channels), BLOCK, 0, stream, channels, population, statistics,
              running);
}
