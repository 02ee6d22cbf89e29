/*
 * Compressors where the gradients are; the bytes they make are those of codec_fp16.c,
 * codec_top_k.c and codec_rows.c. Top-k: the threshold is found digit by digit over the magnitudes'
 * bits, then the chosen elements are packed in the order of their indices, with counts per tile and
 * their prefix sums.
 */
#include "kernel.cuh"

#include <math.h>

static __global__ void half_encode(uint64_t count, const float *from, uint16_t *to)
{
    FOR_EACH (i, count)
        to[i] = __half_as_ushort(__float2half_rn(from[i]));
}

static __global__ void half_decode(uint64_t count, const uint16_t *from, float *to)
{
    FOR_EACH (i, count)
        to[i] = __half2float(__ushort_as_half(from[i]));
}

void cuda_half_encode(uint64_t count, const float *from, uint16_t *to, cudaStream_t stream)
{
    TY_LAUNCH(half_encode, grid_for(count), BLOCK, 0, stream, count, from, to);
}

void cuda_half_decode(uint64_t count, const uint16_t *from, float *to, cudaStream_t stream)
{
    TY_LAUNCH(half_decode, grid_for(count), BLOCK, 0, stream, count, from, to);
}

/* ---- Top-k ---- */

enum { DIGITS = 3, LARGEST_DIGIT = 4096, TILE = 2048 };

/* 31 bits of magnitude in digits of 12, 11 and 8 bits, the highest first. */
static __host__ __device__ __forceinline__ unsigned digit_shift(int digit)
{
    return digit == 0 ? 19 : digit == 1 ? 8 : 0;
}

static __host__ __device__ __forceinline__ unsigned digit_bits(int digit)
{
    return digit == 0 ? 12 : digit == 1 ? 11 : 8;
}

typedef struct selection {
    uint32_t threshold;      /* the digits found so far */
    unsigned long long rank; /* of the k-th largest among those that share them */
} selection;

typedef struct pair {
    uint32_t index;
    float value;
} pair;

/* [selection][histogram of each digit][tiles][tiles] */
typedef struct layout {
    selection *chosen;
    unsigned *histograms;
    uint32_t *above, *equal; /* [tiles]: counts, then how many are before the tile */
    uint64_t tiles;
} layout;

static uint64_t tile_count(uint64_t count)
{
    return (count + TILE - 1) / TILE;
}

uint64_t cuda_top_k_scratch(uint64_t count)
{
    return 256 + DIGITS * LARGEST_DIGIT * sizeof(unsigned) +
           2 * tile_count(count) * sizeof(uint32_t);
}

static layout layout_of(void *scratch, uint64_t count)
{
    unsigned char *at = (unsigned char *)scratch;
    layout l;

    l.tiles = tile_count(count);
    l.chosen = (selection *)at;
    l.histograms = (unsigned *)(at + 256);
    l.above = (uint32_t *)(l.histograms + DIGITS * LARGEST_DIGIT);
    l.equal = l.above + l.tiles;
    return l;
}

static __device__ __forceinline__ uint32_t magnitude(float value)
{
    return __float_as_uint(value) & 0x7fffffffu;
}

static __global__ void residual_add(uint64_t count, const float *gradients, float *residual)
{
    FOR_EACH (i, count)
        residual[i] += gradients[i];
}

static __global__ void histogram(uint64_t count, const float *residual, int digit,
                                 const selection *chosen, unsigned *histogram)
{
    uint32_t prefix = digit == 0 ? 0 : chosen->threshold;
    unsigned above = digit_shift(digit) + digit_bits(digit);

    FOR_EACH (i, count) {
        uint32_t bits = magnitude(residual[i]);
        if (digit > 0 && bits >> above != prefix >> above)
            continue;
        atomicAdd(&histogram[bits >> digit_shift(digit) & ((1u << digit_bits(digit)) - 1)], 1u);
    }
}

/* One thread: at most 4096 steps. */
static __global__ void digit_find(uint64_t k, int digit, const unsigned *histogram,
                                  selection *chosen)
{
    uint32_t at = (1u << digit_bits(digit)) - 1;
    unsigned long long rank = digit == 0 ? k : chosen->rank;
    uint32_t threshold = digit == 0 ? 0 : chosen->threshold;

    while (histogram[at] < rank)
        rank -= histogram[at--];
    chosen->rank = rank;
    chosen->threshold = threshold | at << digit_shift(digit);
}

/* One block a tile. */
static __global__ void tiles_count(uint64_t count, const float *residual, const selection *chosen,
                                   uint32_t *above, uint32_t *equal)
{
    __shared__ unsigned counts[2];
    uint64_t first = (uint64_t)blockIdx.x * TILE;
    uint64_t end = first + TILE < count ? first + TILE : count;

    if (threadIdx.x < 2)
        counts[threadIdx.x] = 0;
    __syncthreads();
    for (uint64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
        uint32_t bits = magnitude(residual[i]);
        if (bits > chosen->threshold)
            atomicAdd(&counts[0], 1u);
        if (bits == chosen->threshold)
            atomicAdd(&counts[1], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        above[blockIdx.x] = counts[0];
        equal[blockIdx.x] = counts[1];
    }
}

/* One block: each thread sums a run of tiles, then the runs are put in front of each other. */
static __global__ void tiles_scan(uint64_t tiles, uint32_t *above, uint32_t *equal)
{
    __shared__ uint32_t runs[2][BLOCK];
    uint64_t first = tiles * threadIdx.x / BLOCK, end = tiles * (threadIdx.x + 1) / BLOCK;
    uint32_t a = 0, e = 0;

    for (uint64_t t = first; t < end; t++) {
        a += above[t];
        e += equal[t];
    }
    runs[0][threadIdx.x] = a;
    runs[1][threadIdx.x] = e;
    __syncthreads();
    a = e = 0;
    for (unsigned r = 0; r < threadIdx.x; r++) {
        a += runs[0][r];
        e += runs[1][r];
    }
    for (uint64_t t = first; t < end; t++) {
        uint32_t own_a = above[t], own_e = equal[t];
        above[t] = a;
        equal[t] = e;
        a += own_a;
        e += own_e;
    }
}

/* One warp a tile: it walks the tile in order, 32 elements at a time. */
static __global__ void tiles_pack(uint64_t count, uint64_t tiles, float *residual,
                                  const selection *chosen, const uint32_t *above,
                                  const uint32_t *equal, pair *out)
{
    uint64_t tile = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    unsigned lane = threadIdx.x % WARP, before = (1u << lane) - 1;
    uint64_t ties = chosen->rank, a, e, end;

    if (tile >= tiles)
        return;
    a = above[tile];
    e = equal[tile];
    end = (tile + 1) * TILE < count ? (tile + 1) * TILE : count;
    for (uint64_t first = tile * TILE; first < end; first += WARP) {
        uint64_t i = first + lane;
        uint32_t bits = i < end ? magnitude(residual[i]) : 0;
        bool is_above = i < end && bits > chosen->threshold;
        bool is_equal = i < end && bits == chosen->threshold;
        unsigned above_mask = __ballot_sync(0xffffffffu, is_above);
        unsigned equal_mask = __ballot_sync(0xffffffffu, is_equal);
        uint64_t own_a = a + __popc(above_mask & before), own_e = e + __popc(equal_mask & before);
        if (is_above || (is_equal && own_e < ties)) {
            pair *to = &out[own_a + (own_e < ties ? own_e : ties)];
            to->index = (uint32_t)i;
            to->value = residual[i];
            residual[i] = 0.0f;
        }
        a += __popc(above_mask);
        e += __popc(equal_mask);
    }
}

void cuda_top_k_encode(uint64_t count, uint64_t k, const float *gradients, float *residual,
                       void *encoded, void *scratch, cudaStream_t stream)
{
    layout l = layout_of(scratch, count);

    TY_LAUNCH(residual_add, grid_for(count), BLOCK, 0, stream, count, gradients, residual);
    cudaMemsetAsync(l.histograms, 0, DIGITS * LARGEST_DIGIT * sizeof(unsigned), stream);
    for (int digit = 0; digit < DIGITS; digit++) {
        unsigned *own = l.histograms + digit * LARGEST_DIGIT;
        TY_LAUNCH(histogram, grid_for(count), BLOCK, 0, stream, count, residual, digit, l.chosen,
                  own);
        TY_LAUNCH(digit_find, 1, 1, 0, stream, k, digit, own, l.chosen);
    }
    TY_LAUNCH(tiles_count, l.tiles, BLOCK, 0, stream, count, residual, l.chosen, l.above, l.equal);
    TY_LAUNCH(tiles_scan, 1, BLOCK, 0, stream, l.tiles, l.above, l.equal);
    TY_LAUNCH(tiles_pack, (l.tiles * WARP + BLOCK - 1) / BLOCK, BLOCK, 0, stream, count, l.tiles,
              residual, l.chosen, l.above, l.equal, (pair *)encoded);
}

/* Indices of one member differ, so that no two threads add to one element; they are believed only
 * if they fit. */
static __global__ void pairs_add(uint64_t count, uint64_t k, const pair *pairs, float *gradients)
{
    FOR_EACH (i, k)
        if (pairs[i].index < count)
            gradients[pairs[i].index] += pairs[i].value;
}

void cuda_top_k_decode(uint64_t count, uint64_t k, uint32_t members, const void *encoded,
                       float *gradients, cudaStream_t stream)
{
    cudaMemsetAsync(gradients, 0, count * sizeof *gradients, stream);
    for (uint32_t m = 0; m < members; m++)
        TY_LAUNCH(pairs_add, grid_for(k), BLOCK, 0, stream, count, k, (const pair *)encoded + m * k,
                  gradients);
}

/* ---- Rows ---- */

/* [rows] flags, which become places, and then how many there are. */
uint64_t cuda_rows_scratch(uint64_t rows)
{
    return (rows + 1) * sizeof(uint32_t);
}

/* One warp a row: whether anything in it is not zero. */
static __global__ void rows_mark(cuda_row_table shape, const float *matrix, uint32_t *flags)
{
    uint64_t row = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    uint32_t bits = 0;

    if (row >= shape.rows)
        return;
    for (uint64_t c = threadIdx.x % WARP; c < shape.columns; c += WARP)
        bits |= magnitude(matrix[row * shape.columns + c]);
    bits = __ballot_sync(0xffffffffu, bits != 0);
    if (threadIdx.x % WARP == 0)
        flags[row] = bits != 0;
}

/* One block, as in tiles_scan: the flag of a row becomes its place, or UINT32_MAX. Places that are
 * left over have no index. */
static __global__ void rows_place(cuda_row_table shape, uint32_t *flags, uint32_t *indices)
{
    __shared__ uint32_t runs[BLOCK];
    uint64_t first = shape.rows * threadIdx.x / BLOCK;
    uint64_t end = shape.rows * (threadIdx.x + 1) / BLOCK;
    uint32_t place = 0, all = 0;

    for (uint64_t row = first; row < end; row++)
        place += flags[row];
    runs[threadIdx.x] = place;
    __syncthreads();
    place = 0;
    for (unsigned r = 0; r < BLOCK; r++) {
        place += r < threadIdx.x ? runs[r] : 0;
        all += runs[r];
    }
    for (uint64_t row = first; row < end; row++)
        flags[row] = flags[row] != 0 ? place++ : UINT32_MAX;
    for (uint64_t i = all + threadIdx.x; i < shape.room; i += BLOCK)
        indices[i] = UINT32_MAX;
    if (threadIdx.x == 0)
        flags[shape.rows] = all;
}

/* One warp a row. More rows than there is room for can only be a mistake, and must be seen. */
static __global__ void rows_pack(cuda_row_table shape, const float *matrix, const uint32_t *places,
                                 uint32_t *indices, float *values)
{
    uint64_t row = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    unsigned lane = threadIdx.x % WARP;

    if (row >= shape.rows || places[row] >= shape.room)
        return;
    for (uint64_t c = lane; c < shape.columns; c += WARP) {
        bool is_spoilt = places[row] == 0 && c == 0 && places[shape.rows] > shape.room;
        values[places[row] * shape.columns + c] = is_spoilt ? NAN : matrix[row * shape.columns + c];
    }
    if (lane == 0)
        indices[places[row]] = (uint32_t)row;
}

static uint64_t warps_grid(uint64_t warps)
{
    return (warps * WARP + BLOCK - 1) / BLOCK;
}

void cuda_rows_encode(const cuda_row_table *shape, const float *gradients, void *encoded,
                      void *scratch, cudaStream_t stream)
{
    uint32_t *indices = (uint32_t *)encoded, *places = (uint32_t *)scratch;
    float *values = (float *)(indices + shape->room);

    TY_LAUNCH(rows_mark, warps_grid(shape->rows), BLOCK, 0, stream, *shape, gradients, places);
    TY_LAUNCH(rows_place, 1, BLOCK, 0, stream, *shape, places, indices);
    TY_LAUNCH(rows_pack, warps_grid(shape->rows), BLOCK, 0, stream, *shape, gradients, places,
              indices, values);
    cudaMemcpyAsync(values + shape->room * shape->columns, gradients + shape->rows * shape->columns,
                    shape->dense_elements * sizeof *values, cudaMemcpyDeviceToDevice, stream);
}

/* One warp a place; the indices of one member differ, and are believed only if they fit. */
static __global__ void rows_add(cuda_row_table shape, const uint32_t *indices, const float *values,
                                float *gradients)
{
    uint64_t place = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;

    if (place >= shape.room || indices[place] >= shape.rows)
        return;
    for (uint64_t c = threadIdx.x % WARP; c < shape.columns; c += WARP)
        gradients[indices[place] * shape.columns + c] += values[place * shape.columns + c];
}

void cuda_rows_decode(const cuda_row_table *shape, uint32_t members, const void *encoded,
                      float *gradients, cudaStream_t stream)
{
    uint64_t matrix = shape->rows * shape->columns;
    uint64_t words = shape->room * (1 + shape->columns) + shape->dense_elements;

    cudaMemsetAsync(gradients, 0, (matrix + shape->dense_elements) * sizeof *gradients, stream);
    for (uint32_t m = 0; m < members; m++) {
        const uint32_t *indices = (const uint32_t *)encoded + m * words;
        const float *values = (const float *)(indices + shape->room);
        TY_LAUNCH(rows_add, warps_grid(shape->room), BLOCK, 0, stream, *shape, indices, values,
                  gradients);
        if (shape->dense_elements > 0)
            cuda_accumulate_float(CUDA_TYPE_FLOAT, shape->dense_elements,
                                  values + shape->room * shape->columns, true, gradients + matrix,
                                  stream);
    }
}
