/* Layer norm and RMS norm over rows. Rows that fit a warp's or a block's registers are read once.
 * Backward reads longer rows once too, or twice if they have more columns than fit shared memory.
 * Formulas: cpu_norm.c. */
#include "vectors.cuh"

#define NORM_EPSILON 1e-5f

/* Input of the norm: x, or its sum with another tensor, rounded as stored. */
template <typename T>
static __device__ __forceinline__ float summed(const T *x, const T *other, uint64_t i)
{
    const float value = to_float(x[i]);

    return other == NULL ? value : to_float(of_float<T>(value + to_float(other[i])));
}

/* ---- Rows in registers: NUMBERS columns a thread, side by side, up to HELD times ---- */

enum { NUMBERS = 4, HELD = 6, ROWS_OF_WARPS = BLOCK / WARP };

/* Most columns of a row for a warp, or for a block. */
enum { MOST_OF_WARP = WARP * NUMBERS * HELD, MOST_OF_BLOCK = BLOCK * NUMBERS * HELD };

static bool is_of_numbers(cuda_type type, uint64_t n, uintptr_t places)
{
    return n % NUMBERS == 0 && places % bytes_of(type, NUMBERS) == 0;
}

/* Loads unaligned floats. */
static __device__ __forceinline__ void floats_load(const float *from, bool is_aligned,
                                                   float (&x)[NUMBERS])
{
    if (is_aligned)
        numbers_load(from, x);
    else
#pragma unroll
        for (int k = 0; k < NUMBERS; k++)
            x[k] = from[k];
}

static bool is_aligned(const float *x, const float *y)
{
    return ((uintptr_t)x | (uintptr_t)y) % (NUMBERS * sizeof(float)) == 0;
}

template <bool IS_OF_WARP> static __device__ __forceinline__ float row_sum(float value)
{
    return IS_OF_WARP ? warp_sum(value) : block_sum(value);
}

template <typename T, bool IS_OF_WARP>
static __global__ void __launch_bounds__(BLOCK, 3)
    norm_held(bool is_rms, uint64_t rows, unsigned n, const T *__restrict__ x,
              const T *__restrict__ other, T *__restrict__ sum, const float *__restrict__ gain,
              const float *__restrict__ shift, bool is_aligned, T *__restrict__ y,
              float *__restrict__ statistics)
{
    const unsigned threads = IS_OF_WARP ? WARP : blockDim.x, lane = threadIdx.x % threads;
    const uint64_t row = IS_OF_WARP ? blockIdx.x * (uint64_t)ROWS_OF_WARPS + threadIdx.x / WARP
                                    : (uint64_t)blockIdx.x;
    const uint64_t at = row * n;
    float values[HELD][NUMBERS], mean = 0.0f, squares = 0.0f, scale;

    if (row >= rows)
        return;
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        const unsigned c = (h * threads + lane) * NUMBERS;
        if (c < n)
            numbers_load(x + at + c, values[h]);
    }
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        const unsigned c = (h * threads + lane) * NUMBERS;
        float others[NUMBERS];
        if (c >= n || other == NULL)
            continue;
        numbers_load(other + at + c, others);
#pragma unroll
        for (int k = 0; k < NUMBERS; k++)
            values[h][k] = to_float(of_float<T>(values[h][k] + others[k]));
    }
    if (!is_rms) {
#pragma unroll
        for (int h = 0; h < HELD; h++)
#pragma unroll
            for (int k = 0; k < NUMBERS; k++)
                mean += (h * threads + lane) * NUMBERS < n ? values[h][k] : 0.0f;
        mean = row_sum<IS_OF_WARP>(mean) / (float)n;
    }
#pragma unroll
    for (int h = 0; h < HELD; h++)
#pragma unroll
        for (int k = 0; k < NUMBERS; k++) {
            const float d = (h * threads + lane) * NUMBERS < n ? values[h][k] - mean : 0.0f;
            squares += d * d;
        }
    scale = 1.0f / sqrtf(row_sum<IS_OF_WARP>(squares) / (float)n + NORM_EPSILON);
#pragma unroll
    for (int h = 0; h < HELD; h++) {
        const unsigned c = (h * threads + lane) * NUMBERS;
        float gains[NUMBERS], shifts[NUMBERS] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (c >= n)
            continue;
        if (other != NULL)
            numbers_store(sum + at + c, values[h]);
        floats_load(gain + c, is_aligned, gains);
        if (shift != NULL)
            floats_load(shift + c, is_aligned, shifts);
#pragma unroll
        for (int k = 0; k < NUMBERS; k++)
            values[h][k] = (values[h][k] - mean) * scale * gains[k] + shifts[k];
        numbers_store(y + at + c, values[h]);
    }
    if (lane == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = scale;
    }
}

/* ---- Of any rows: one block a row ---- */

template <typename T>
static __global__ void norm(bool is_rms, uint64_t n, const T *x, const T *other, T *sum,
                            const float *gain, const float *shift, T *y, float *statistics)
{
    const uint64_t row = blockIdx.x, at = row * n;
    float mean = 0.0f, squares = 0.0f, scale;

    x += at;
    other = other != NULL ? other + at : NULL;
    if (!is_rms) {
        for (uint64_t i = threadIdx.x; i < n; i += blockDim.x)
            mean += summed(x, other, i);
        mean = block_sum(mean) / (float)n;
    }
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        float d = summed(x, other, i) - mean;
        squares += d * d;
    }
    scale = 1.0f / sqrtf(block_sum(squares) / (float)n + NORM_EPSILON);
    for (uint64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const float value = summed(x, other, i);
        y[at + i] =
            of_float<T>((value - mean) * scale * gain[i] + (shift != NULL ? shift[i] : 0.0f));
        if (other != NULL)
            sum[at + i] = of_float<T>(value);
    }
    if (threadIdx.x == 0) {
        statistics[2 * row] = mean;
        statistics[2 * row + 1] = scale;
    }
}

template <typename T>
static void norm_launch(bool fits, bool is_rms, uint64_t rows, uint64_t n, const T *x,
                        const T *other, T *sum, const float *gain, const float *shift, T *y,
                        float *statistics, cudaStream_t stream)
{
    if (fits && n <= MOST_OF_WARP)
        TY_LAUNCH((norm_held<T, true>), (rows + ROWS_OF_WARPS - 1) / ROWS_OF_WARPS, BLOCK, 0,
                  stream, is_rms, rows, (unsigned)n, x, other, sum, gain, shift,
                  is_aligned(gain, shift), y, statistics);
    else if (fits && n <= MOST_OF_BLOCK)
        TY_LAUNCH((norm_held<T, false>), rows, threads_for(n / NUMBERS), 0, stream, is_rms, rows,
                  (unsigned)n, x, other, sum, gain, shift, is_aligned(gain, shift), y, statistics);
    else
        TY_LAUNCH(norm<T>, rows, threads_for(n), 0, stream, is_rms, n, x, other, sum, gain, shift,
                  y, statistics);
}

void cuda_norm(cuda_type type, bool is_rms, uint64_t rows, uint64_t n, const void *x,
               const void *other, void *sum, const float *gain, const float *shift, void *y,
               float *statistics, cudaStream_t stream)
{
    [[maybe_unused]] const uint64_t tensors = other != NULL ? 2 : 1;
    const uintptr_t places = (uintptr_t)x | (uintptr_t)other | (uintptr_t)sum | (uintptr_t)y;
    const bool fits = is_of_numbers(type, n, places);

    TY_MOVES(bytes_of(type, tensors * rows * n) + float_bytes(shift != NULL ? 2 * n : n),
             bytes_of(type, tensors * rows * n) + float_bytes(2 * rows));
    TY_DISPATCH(type, norm_launch<T>(fits, is_rms, rows, n, (const T *)x, (const T *)other,
                                     (T *)sum, gain, shift, (T *)y, statistics, stream))
}

/* ---- Gradients ---- */

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

static unsigned band_count(uint64_t rows)
{
    uint64_t bands = (rows + BAND_ROWS - 1) / BAND_ROWS;

    return (unsigned)(bands < 1 ? 1 : bands < 512 ? bands : 512);
}

/* Block (x, y): 32 columns of band y. bands: [2][bands][n], of gain and, if present, of shift.
 */
template <typename T>
static __global__ void norm_bands(uint64_t rows, uint64_t n, const T *x, const float *statistics,
                                  const T *dy, bool has_shift, float *bands)
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
        if (has_shift)
            bands[((uint64_t)gridDim.y + blockIdx.y) * n + column] = shift;
    }
}

enum { MOST_JOINED = 1024 };

/* A block has WARP columns, and each of its W warps every W-th band. */
static __global__ void norm_bands_join(unsigned band_count, uint64_t n, const float *bands,
                                       bool adds, float *dgain, float *dshift)
{
    __shared__ float gains[MOST_JOINED], shifts[MOST_JOINED];
    const uint64_t column = (uint64_t)blockIdx.x * WARP + threadIdx.x % WARP;
    const unsigned warps = blockDim.x / WARP, end = column < n ? band_count : 0;
    float gain = 0.0f, shift = 0.0f;

#pragma unroll 8
    for (unsigned b = threadIdx.x / WARP; b < end; b += warps) {
        gain += bands[b * n + column];
        shift += dshift != NULL ? bands[(band_count + b) * n + column] : 0.0f;
    }
    gains[threadIdx.x] = gain;
    shifts[threadIdx.x] = shift;
    __syncthreads();
    if (threadIdx.x >= WARP || column >= n)
        return;
    for (unsigned w = 1; w < warps; w++) {
        gain += gains[w * WARP + threadIdx.x];
        shift += shifts[w * WARP + threadIdx.x];
    }
    put(&dgain[column], gain, adds);
    if (dshift != NULL)
        put(&dshift[column], shift, adds);
}

/* ---- All gradients at once ----
 * A block processes a band of rows in tiles. Its warps compute the terms of every row of a tile.
 * Then its threads, one per column, compute the gradients while the tile is still in the cache;
 * those of gain and shift add up in shared memory. As in llm.c (layernorm_backward_kernel10) and
 * Apex (cuComputePartGradGammaBeta) no sum uses atomics; there, too, a second kernel or the last
 * block adds the bands. */

enum {
    AT_ONCE = 4, /* numbers that a thread loads ahead */
    TILE_ELEMENTS = 8192,
    MOST_TILE_ROWS = 32,
    LEAST_BAND_ROWS = 4,        /* and at least two tiles */
    THREADS_OF_BANDS = 1 << 17, /* half of an H100's threads */
    MOST_SUMS_BYTES = 47 << 10, /* of shared memory, in addition to the rows of a tile */
};

typedef struct strips {
    unsigned threads;
    unsigned tile;         /* rows; a power of 2 */
    unsigned across, deep; /* threads across columns, and threads across rows */
    unsigned count;        /* bands */
    unsigned rows;         /* per band; the last may have fewer */
} strips;

static strips strips_of(uint64_t rows, uint64_t n)
{
    strips s = {.threads = n <= 1024 ? 1u * BLOCK : 2u * BLOCK, .tile = MOST_TILE_ROWS};
    uint64_t wanted, most;

    while (s.tile > 1 && s.tile * n > TILE_ELEMENTS)
        s.tile /= 2;
    s.across = n < s.threads ? (unsigned)n : s.threads;
    s.deep = s.threads / s.across;
    most = THREADS_OF_BANDS / s.threads;
    wanted = (rows + most - 1) / most;
    wanted = wanted < LEAST_BAND_ROWS ? LEAST_BAND_ROWS : wanted;
    wanted = wanted < 2 * s.tile ? 2 * s.tile : wanted;
    s.rows = (unsigned)((wanted + s.tile - 1) / s.tile * s.tile);
    s.count = (unsigned)((rows + s.rows - 1) / s.rows);
    return s;
}

static uint64_t sums_bytes(const strips *s, uint64_t n, bool has_shift)
{
    return float_bytes((has_shift ? 2 : 1) * s->deep * n);
}

/* Terms of a row's gradients. */
typedef struct alignas(16) row_terms {
    float mean, scale, sum, product; /* the last two as in norm_input */
} row_terms;

/* Per row, the sums over columns of e and of e (x - mean). `wide` threads share a row; each of
 * their warps stores its partial sum. */
template <typename T>
static __device__ __forceinline__ void
tile_sums(unsigned count, unsigned wide, unsigned n, const T *x, const float *gain,
          const float *statistics, const T *dy, float *sums, float *products)
{
    const unsigned first = threadIdx.x % wide;

    for (unsigned r = threadIdx.x / wide; r < count; r += blockDim.x / wide) {
        const float mean = statistics[2 * r];
        float sum = 0.0f, product = 0.0f;
#pragma unroll 4
        for (unsigned c = first; c < n; c += wide) {
            const float e = to_float(dy[r * n + c]) * gain[c];
            sum += e;
            product += e * (to_float(x[r * n + c]) - mean);
        }
        sum = warp_sum(sum);
        product = warp_sum(product);
        if (threadIdx.x % WARP == 0) {
            sums[(r * wide + first) / WARP] = sum;
            products[(r * wide + first) / WARP] = product;
        }
    }
}

static __device__ __forceinline__ row_terms terms_of(bool is_rms, unsigned parts, unsigned n,
                                                     const float *statistics, const float *sums,
                                                     const float *products)
{
    row_terms t = {statistics[0], statistics[1], 0.0f, 0.0f};

    for (unsigned w = 0; w < parts; w++) {
        t.sum += sums[w];
        t.product += products[w];
    }
    t.sum = is_rms ? 0.0f : t.sum / (float)n;
    t.product *= t.scale * t.scale / (float)n;
    return t;
}

/* A thread takes ROWS rows of one column at once, or more columns if a tile has fewer than AT_ONCE
 * rows. */
template <typename T, unsigned ROWS>
static __device__ __forceinline__ void
tile_gradients(const strips &s, unsigned count, unsigned n, const T *x, const float *gain,
               const row_terms *terms, const T *dy, bool adds, T *dx, float *gains, float *shifts)
{
    constexpr unsigned COLUMNS = AT_ONCE / ROWS;
    const unsigned row_step = s.deep * n;

    for (unsigned row = threadIdx.x / s.across; row < count; row += s.deep * ROWS)
        for (unsigned c = threadIdx.x % s.across; c < n; c += s.across * COLUMNS) {
            const unsigned at = row * n + c, end = count * n;
            float values[AT_ONCE], slopes[AT_ONCE], old[AT_ONCE];
#pragma unroll
            for (unsigned k = 0; k < AT_ONCE; k++) {
                const unsigned i = at + k % ROWS * row_step + k / ROWS * s.across;
                const bool is_there = i < end && (k < ROWS || c + k / ROWS * s.across < n);
                values[k] = is_there ? to_float(x[i]) : 0.0f;
                slopes[k] = is_there ? to_float(dy[i]) : 0.0f;
                old[k] = is_there && adds ? to_float(dx[i]) : 0.0f;
            }
#pragma unroll
            for (unsigned j = 0; j < COLUMNS; j++) {
                const unsigned column = c + j * s.across;
                float by, dgain = 0.0f, dshift = 0.0f;
                if (j > 0 && column >= n)
                    break;
                by = gain[column];
#pragma unroll
                for (unsigned r = 0; r < ROWS; r++) {
                    const unsigned k = j * ROWS + r, i = at + r * row_step + j * s.across;
                    if (r == 0 || i < end) {
                        const row_terms t = terms[row + r * s.deep];
                        const float from_mean = values[k] - t.mean;
                        const float d = (slopes[k] * by - t.sum - from_mean * t.product) * t.scale;
                        dgain += slopes[k] * from_mean * t.scale;
                        dshift += slopes[k];
                        dx[i] = of_float<T>(adds ? old[k] + d : d);
                    }
                }
                gains[column] += dgain;
                if (shifts != NULL)
                    shifts[column] += dshift;
            }
        }
}

/* bands: [2][bands][n], as in norm_bands. Bounds: registers for five blocks of BLOCK, two of twice
 * as many. */
template <typename T, unsigned ROWS>
static __global__ void __launch_bounds__(5 * BLOCK / 2, 2)
    gradients_at_once(strips s, bool is_rms, unsigned rows, unsigned n, const T *x,
                      const float *gain, const float *statistics, const T *dy, bool adds, T *dx,
                      bool has_shift, float *bands)
{
    __shared__ row_terms terms[MOST_TILE_ROWS];
    __shared__ float sums[MOST_TILE_ROWS], products[MOST_TILE_ROWS]; /* [row][warp] */
    TY_DYNAMIC_SHARED(room);                                         /* [2][deep][n] */
    float *gains = (float *)room, *shifts = has_shift ? gains + s.deep * n : NULL;
    const unsigned depth = threadIdx.x / s.across, warps = blockDim.x / WARP;
    const unsigned wide = s.tile < warps ? blockDim.x / s.tile : WARP;
    const unsigned end = rows < (blockIdx.x + 1) * s.rows ? rows : (blockIdx.x + 1) * s.rows;

    for (unsigned i = threadIdx.x; i < s.deep * n; i += blockDim.x) {
        gains[i] = 0.0f;
        if (has_shift)
            shifts[i] = 0.0f;
    }
    for (unsigned first = blockIdx.x * s.rows; first < end; first += s.tile) {
        const unsigned count = end - first < s.tile ? end - first : s.tile;
        const uint64_t at = (uint64_t)first * n;
        tile_sums(count, wide, n, x + at, gain, statistics + 2ull * first, dy + at, sums, products);
        __syncthreads();
        if (threadIdx.x < count)
            terms[threadIdx.x] = terms_of(
                is_rms, wide / WARP, n, statistics + 2ull * (first + threadIdx.x),
                sums + threadIdx.x * (wide / WARP), products + threadIdx.x * (wide / WARP));
        __syncthreads();
        if (depth < s.deep)
            tile_gradients<T, ROWS>(s, count, n, x + at, gain, terms, dy + at, adds, dx + at,
                                    gains + depth * n, has_shift ? shifts + depth * n : NULL);
    }
    __syncthreads();
    for (unsigned c = threadIdx.x; c < n; c += blockDim.x) {
        float dgain = 0.0f, dshift = 0.0f;
        for (unsigned d = 0; d < s.deep; d++) {
            dgain += gains[d * n + c];
            dshift += has_shift ? shifts[d * n + c] : 0.0f;
        }
        bands[(uint64_t)blockIdx.x * n + c] = dgain;
        if (has_shift)
            bands[((uint64_t)gridDim.x + blockIdx.x) * n + c] = dshift;
    }
}

/* ---- All gradients of rows in registers: a warp has a row, and columns of every band ---- */

/* Two blocks each on an H100's 132 multiprocessors. */
enum { MOST_BLOCKS_OF_ROWS = 2 * 132 };

static unsigned held_bands(uint64_t rows)
{
    const uint64_t blocks = (rows + ROWS_OF_WARPS - 1) / ROWS_OF_WARPS;

    return (unsigned)(blocks < MOST_BLOCKS_OF_ROWS ? blocks : MOST_BLOCKS_OF_ROWS);
}

/* Adds a warp's gradients of gain and shift to the block's; warps take turns. */
static __device__ __forceinline__ void held_add(unsigned n, const float (&parts)[HELD][NUMBERS],
                                                float *all)
{
    const unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;

    for (unsigned w = 0; w < ROWS_OF_WARPS; w++) {
        if (w == warp) {
#pragma unroll
            for (int h = 0; h < HELD; h++) {
                const unsigned c = (h * WARP + lane) * NUMBERS;
#pragma unroll
                for (int k = 0; k < NUMBERS; k++)
                    if (c < n)
                        all[c + k] = w == 0 ? parts[h][k] : all[c + k] + parts[h][k];
            }
        }
        __syncthreads();
    }
}

/* bands: [2][bands][n], as in norm_bands. Formulas: norm_input. */
template <typename T>
static __global__ void __launch_bounds__(BLOCK, 2)
    gradients_held(bool is_rms, unsigned rows, unsigned n, const T *__restrict__ x,
                   const float *__restrict__ gain, const float *__restrict__ statistics,
                   const T *dy, bool is_aligned, bool adds, T *dx, bool has_shift,
                   float *__restrict__ bands)
{
    __shared__ float sums[MOST_OF_WARP];
    const unsigned lane = threadIdx.x % WARP;
    float dgain[HELD][NUMBERS], dshift[HELD][NUMBERS];

#pragma unroll
    for (int h = 0; h < HELD; h++)
#pragma unroll
        for (int k = 0; k < NUMBERS; k++)
            dgain[h][k] = dshift[h][k] = 0.0f;
    for (unsigned row = blockIdx.x * ROWS_OF_WARPS + threadIdx.x / WARP; row < rows;
         row += gridDim.x * ROWS_OF_WARPS) {
        const uint64_t at = (uint64_t)row * n;
        const float mean = statistics[2 * row], scale = statistics[2 * row + 1];
        numbers<T, NUMBERS> values[HELD], slopes[HELD];
        float sum = 0.0f, product = 0.0f;
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            const unsigned c = (h * WARP + lane) * NUMBERS;
            if (c >= n)
                continue;
            values[h] = numbers_at<T, NUMBERS>(x + at + c);
            slopes[h] = numbers_at<T, NUMBERS>(dy + at + c);
        }
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            const unsigned c = (h * WARP + lane) * NUMBERS;
            float gains[NUMBERS];
            if (c >= n)
                continue;
            floats_load(gain + c, is_aligned, gains);
#pragma unroll
            for (int k = 0; k < NUMBERS; k++) {
                const float d = to_float(slopes[h].at[k]), e = d * gains[k];
                const float from_mean = to_float(values[h].at[k]) - mean;
                sum += e;
                product += e * from_mean;
                dgain[h][k] += d * from_mean * scale;
                dshift[h][k] += d;
            }
        }
        sum = is_rms ? 0.0f : warp_sum(sum) / (float)n;
        product = warp_sum(product) * scale * scale / (float)n;
#pragma unroll
        for (int h = 0; h < HELD; h++) {
            const unsigned c = (h * WARP + lane) * NUMBERS;
            float gains[NUMBERS], made[NUMBERS];
            if (c >= n)
                continue;
            floats_load(gain + c, is_aligned, gains);
#pragma unroll
            for (int k = 0; k < NUMBERS; k++) {
                const float from_mean = to_float(values[h].at[k]) - mean;
                made[k] =
                    (to_float(slopes[h].at[k]) * gains[k] - sum - from_mean * product) * scale;
            }
            numbers_put(dx + at + c, made, adds);
        }
    }
    held_add(n, dgain, sums);
    for (unsigned c = threadIdx.x; c < n; c += BLOCK)
        bands[(uint64_t)blockIdx.x * n + c] = sums[c];
    if (!has_shift)
        return;
    __syncthreads();
    held_add(n, dshift, sums);
    for (unsigned c = threadIdx.x; c < n; c += BLOCK)
        bands[((uint64_t)gridDim.x + blockIdx.x) * n + c] = sums[c];
}

template <typename T> static auto norm_gradients(unsigned tile)
{
    return tile >= AT_ONCE ? gradients_at_once<T, AT_ONCE>
           : tile == 2     ? gradients_at_once<T, 2>
                           : gradients_at_once<T, 1>;
}

uint64_t cuda_norm_scratch(bool is_rms, uint64_t rows, uint64_t n)
{
    const strips s = strips_of(rows, n);
    const bool fits = sums_bytes(&s, n, !is_rms) <= MOST_SUMS_BYTES;
    const uint64_t held = n <= MOST_OF_WARP ? held_bands(rows) : 0;
    uint64_t bands = band_count(rows);

    bands = fits && s.count > bands ? s.count : bands;
    bands = held > bands ? held : bands;

    return (is_rms ? 1 : 2) * bands * n;
}

void cuda_norm_backward(cuda_type type, bool is_rms, uint64_t rows, uint64_t n, const void *x,
                        const float *gain, const float *statistics, const void *dy, float *dgain,
                        float *dshift, bool adds_parameters, bool adds_x, void *dx, float *scratch,
                        cudaStream_t stream)
{
    const strips s = strips_of(rows, n);
    const uint64_t shared = sums_bytes(&s, n, dshift != NULL);
    /* Otherwise, separate kernels compute the requested gradients. */
    const bool is_at_once = dgain != NULL && dx != NULL && shared <= MOST_SUMS_BYTES;
    const bool is_held = is_at_once && n <= MOST_OF_WARP &&
                         is_of_numbers(type, n, (uintptr_t)x | (uintptr_t)dy | (uintptr_t)dx);
    const unsigned bands = is_held ? held_bands(rows) : is_at_once ? s.count : band_count(rows);
    const dim3 grid((unsigned)((n + WARP - 1) / WARP), bands);
    [[maybe_unused]] const uint64_t parts = dshift != NULL ? 2 : 1;

    if (is_at_once)
        TY_MOVES(bytes_of(type, (adds_x ? 3 : 2) * rows * n) + float_bytes(n + 2 * rows),
                 bytes_of(type, rows * n) + float_bytes(parts * bands * n));
    if (is_held) {
        TY_DISPATCH(type,
                    TY_LAUNCH(gradients_held<T>, bands, BLOCK, 0, stream, is_rms, (unsigned)rows,
                              (unsigned)n, (const T *)x, gain, statistics, (const T *)dy,
                              is_aligned(gain, gain), adds_x, (T *)dx, dshift != NULL, scratch))
    } else if (is_at_once) {
        TY_DISPATCH(type,
                    TY_LAUNCH(norm_gradients<T>(s.tile), bands, s.threads, shared, stream, s,
                              is_rms, (unsigned)rows, (unsigned)n, (const T *)x, gain, statistics,
                              (const T *)dy, adds_x, (T *)dx, dshift != NULL, scratch))
    } else if (dgain != NULL) {
        TY_MOVES(bytes_of(type, 2 * rows * n) + float_bytes(2 * rows),
                 float_bytes(parts * bands * n));
        TY_DISPATCH(type,
                    TY_LAUNCH_GRID(norm_bands<T>, grid, BLOCK, 0, stream, rows, n, (const T *)x,
                                   statistics, (const T *)dy, dshift != NULL, scratch))
    }
    if (dgain != NULL) {
        TY_MOVES(float_bytes((bands + (adds_parameters ? 1 : 0)) * parts * n),
                 float_bytes(parts * n));
        TY_LAUNCH(norm_bands_join, grid.x, bands < WARP ? bands * WARP : MOST_JOINED, 0, stream,
                  bands, n, scratch, adds_parameters, dgain, dshift);
    }
    if (dx == NULL || is_at_once)
        return;
    TY_MOVES(bytes_of(type, (adds_x ? 3 : 2) * rows * n) + float_bytes(n + 2 * rows),
             bytes_of(type, rows * n));
    TY_DISPATCH(type, TY_LAUNCH(norm_input<T>, rows, threads_for(n), 0, stream, is_rms, n,
                                (const T *)x, gain, statistics, (const T *)dy, adds_x, (T *)dx))
}
