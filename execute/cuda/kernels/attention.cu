/*
 * Attention without stored scores (Dao et al., "FlashAttention", NeurIPS 2022). A block has a tile
 * of queries and iterates over tiles of keys, or the reverse in backward, which recomputes the
 * scores from the stored log-sums. Backward is two kernels, one that owns keys and one that owns
 * queries, so that no sum depends on the order of blocks.
 *
 * Tiles are in shared memory, with rows padded against bank conflicts. Their products run in 16 x
 * 16 blocks on tensor cores (bf16 from compute capability 8.0 on, half from 7.0), or element by
 * element. Sums are fp32.
 */
#include "kernel.cuh"

#include <mma.h>

enum { SIDE = 16, ATTENTION_THREADS = 128, WARPS = ATTENTION_THREADS / WARP, ALIGNMENT = 128 };

/* ---- Products of tiles ---- */

/* A matrix in shared memory. */
template <typename T> struct tile {
    T *data;
    int stride;
    bool is_transposed; /* element (r, c) is data[c * stride + r] */

    __device__ __forceinline__ T *at(int r, int c) const
    {
        return is_transposed ? data + c * stride + r : data + r * stride + c;
    }
};

/* One 16 x 16 block of c (+)= a b, by one warp, some elements per thread. */
template <typename T>
static __device__ void part_multiply_scalar(int depth, tile<T> a, tile<T> b, int row, int column,
                                            bool adds, float *c, int stride)
{
    for (int e = (int)(threadIdx.x % WARP); e < SIDE * SIDE; e += WARP) {
        int r = row + e / SIDE, n = column + e % SIDE;
        float sum = adds ? c[r * stride + n] : 0.0f;
        for (int k = 0; k < depth; k++)
            sum += to_float(*a.at(r, k)) * to_float(*b.at(k, n));
        c[r * stride + n] = sum;
    }
}

template <typename T>
static __device__ __forceinline__ void part_multiply(int depth, tile<T> a, tile<T> b, int row,
                                                     int column, bool adds, float *c, int stride)
{
    part_multiply_scalar(depth, a, b, row, column, adds, c, stride);
}

template <typename T, typename LayoutA, typename LayoutB>
static __device__ __forceinline__ void part_multiply_cores(int depth, tile<T> a, tile<T> b, int row,
                                                           int column, bool adds, float *c,
                                                           int stride)
{
    using namespace nvcuda::wmma;
    fragment<accumulator, SIDE, SIDE, SIDE, float> sum;
    fragment<matrix_a, SIDE, SIDE, SIDE, T, LayoutA> left;
    fragment<matrix_b, SIDE, SIDE, SIDE, T, LayoutB> right;
    float *to = c + row * stride + column;

    if (adds)
        load_matrix_sync(sum, to, (unsigned)stride, mem_row_major);
    else
        fill_fragment(sum, 0.0f);
    for (int k = 0; k < depth; k += SIDE) {
        load_matrix_sync(left, a.at(row, k), (unsigned)a.stride);
        load_matrix_sync(right, b.at(k, column), (unsigned)b.stride);
        mma_sync(sum, left, right, sum);
    }
    store_matrix_sync(to, sum, (unsigned)stride, mem_row_major);
}

template <typename T>
static __device__ __forceinline__ void part_multiply_any(int depth, tile<T> a, tile<T> b, int row,
                                                         int column, bool adds, float *c,
                                                         int stride)
{
    using namespace nvcuda::wmma;

    if (a.is_transposed && b.is_transposed)
        part_multiply_cores<T, col_major, col_major>(depth, a, b, row, column, adds, c, stride);
    else if (a.is_transposed)
        part_multiply_cores<T, col_major, row_major>(depth, a, b, row, column, adds, c, stride);
    else if (b.is_transposed)
        part_multiply_cores<T, row_major, col_major>(depth, a, b, row, column, adds, c, stride);
    else
        part_multiply_cores<T, row_major, row_major>(depth, a, b, row, column, adds, c, stride);
}

template <>
__device__ __forceinline__ void part_multiply<half>(int depth, tile<half> a, tile<half> b, int row,
                                                    int column, bool adds, float *c, int stride)
{
    part_multiply_any(depth, a, b, row, column, adds, c, stride);
}

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
template <>
__device__ __forceinline__ void part_multiply<bf16>(int depth, tile<bf16> a, tile<bf16> b, int row,
                                                    int column, bool adds, float *c, int stride)
{
    part_multiply_any(depth, a, b, row, column, adds, c, stride);
}
#endif

/* c[rows][columns] (+)= a[rows][depth] b[depth][columns], by all threads of the block; all sizes
 * are multiples of 16. The caller adds barriers. */
template <typename T>
static __device__ void tile_multiply(int rows, int columns, int depth, tile<T> a, tile<T> b,
                                     bool adds, float *c, int stride)
{
    int across = columns / SIDE;

    for (int part = (int)(threadIdx.x / WARP); part < rows / SIDE * across; part += WARPS)
        part_multiply(depth, a, b, part / across * SIDE, part % across * SIDE, adds, c, stride);
}

/* ---- Memory layout ------- */

/* Row strides in elements: padded by 16 bytes. */
typedef struct strides {
    int size; /* the head's, rounded up to 16 */
    int head; /* of rows of queries, keys, values */
    int sum;  /* of fp32 rows with a head's length */
    int score, probability;
} strides;

static __host__ __device__ __forceinline__ strides strides_of(const cuda_attention *at)
{
    strides s;

    s.size = (int)((at->head_size + SIDE - 1) / SIDE * SIDE);
    s.head = s.size + 8;
    s.sum = s.size + 4;
    s.score = (int)at->tile_keys + 4;
    s.probability = (int)at->tile_keys + 8;
    return s;
}

/* Splits shared memory, or only counts its bytes if `base` is NULL. */
typedef struct carver {
    unsigned char *base;
    uint64_t used;
} carver;

template <typename T> static __host__ __device__ __forceinline__ T *take(carver *from, int count)
{
    T *piece = from->base == NULL ? NULL : (T *)(from->base + from->used);

    from->used += ((uint64_t)count * sizeof(T) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return piece;
}

template <typename T> struct forward_memory {
    T *q, *k, *v, *p;
    float *scores, *sums, *maximum, *total;
};

template <typename T>
static __host__ __device__ __forceinline__ forward_memory<T> forward_carve(const cuda_attention *at,
                                                                           carver *from)
{
    strides s = strides_of(at);
    int queries = (int)at->tile_queries, keys = (int)at->tile_keys;
    forward_memory<T> m;

    m.q = take<T>(from, queries * s.head);
    m.k = take<T>(from, keys * s.head);
    m.v = take<T>(from, keys * s.head);
    m.p = take<T>(from, queries * s.probability);
    m.scores = take<float>(from, queries * s.score);
    m.sums = take<float>(from, queries * s.sum);
    m.maximum = take<float>(from, queries);
    m.total = take<float>(from, queries);
    return m;
}

template <typename T> struct backward_memory {
    T *q, *k, *v, *dout, *p, *ds;
    float *scores, *dp, *sums, *other_sums, *log_sums, *delta;
};

template <typename T>
static __host__ __device__ __forceinline__ backward_memory<T>
backward_carve(const cuda_attention *at, carver *from)
{
    strides s = strides_of(at);
    int queries = (int)at->tile_queries, keys = (int)at->tile_keys;
    int most = queries > keys ? queries : keys;
    backward_memory<T> m;

    m.q = take<T>(from, queries * s.head);
    m.dout = take<T>(from, queries * s.head);
    m.k = take<T>(from, keys * s.head);
    m.v = take<T>(from, keys * s.head);
    m.p = take<T>(from, queries * s.probability);
    m.ds = take<T>(from, queries * s.probability);
    m.scores = take<float>(from, queries * s.score);
    m.dp = take<float>(from, queries * s.score);
    m.sums = take<float>(from, most * s.sum);
    m.other_sums = take<float>(from, keys * s.sum);
    m.log_sums = take<float>(from, queries);
    m.delta = take<float>(from, queries);
    return m;
}

/* Loads rows [first, first + rows) of one head, with zeros after the last of `all` rows and after
 * the head's size. */
template <typename T>
static __device__ void tile_load(const T *from, uint64_t stride, uint64_t first, int rows,
                                 uint64_t all, const cuda_attention *at, T *to)
{
    strides s = strides_of(at);

    for (int i = (int)threadIdx.x; i < rows * s.size; i += ATTENTION_THREADS) {
        int r = i / s.size, c = i % s.size;
        bool is_inside = first + (uint64_t)r < all && (uint64_t)c < at->head_size;
        to[r * s.head + c] =
            is_inside ? from[(first + (uint64_t)r) * stride + (uint64_t)c] : of_float<T>(0.0f);
    }
}

/* Stores them, times `scale`. */
template <typename T>
static __device__ void tile_store(const float *from, float scale, uint64_t first, int rows,
                                  uint64_t all, const cuda_attention *at, T *to, uint64_t stride)
{
    strides s = strides_of(at);

    for (int i = (int)threadIdx.x; i < rows * s.size; i += ATTENTION_THREADS) {
        int r = i / s.size, c = i % s.size;
        if (first + (uint64_t)r < all && (uint64_t)c < at->head_size)
            to[(first + (uint64_t)r) * stride + (uint64_t)c] =
                of_float<T>(from[r * s.sum + c] * scale);
    }
}

static __device__ void zero(float *to, int count)
{
    for (int i = (int)threadIdx.x; i < count; i += ATTENTION_THREADS)
        to[i] = 0.0f;
}

/* Number of keys that a query sees, from the first on. */
static __device__ __forceinline__ uint64_t keys_of(const cuda_attention *at, uint64_t query)
{
    if (query >= at->length)
        return 0;
    return at->is_causal ? token_place(&at->runs, query) + 1 : at->keys;
}

/* Number of keys that the query tile from `first` on sees: its last query sees the most. */
static __device__ __forceinline__ uint64_t keys_of_tile(const cuda_attention *at, uint64_t first)
{
    uint64_t end = first + at->tile_queries;

    return keys_of(at, (end < at->length ? end : at->length) - 1);
}

/* Rows of query head h of sample b, or their gradients. */
template <typename T>
static __device__ __forceinline__ T *query_rows(const cuda_attention *at, T *queries, uint64_t b,
                                                uint64_t h)
{
    return queries + b * at->length * at->stride + h * at->head_size;
}

template <typename T>
static __device__ __forceinline__ T *context_rows(const cuda_attention *at, T *context, uint64_t b,
                                                  uint64_t h)
{
    return context + b * at->length * at->context_stride + h * at->head_size;
}

/* The same for keys or values, by the offset of the first head. */
template <typename T>
static __device__ __forceinline__ T *key_rows(const cuda_attention *at, T *keys, uint64_t b,
                                              uint64_t kv_head, uint64_t offset)
{
    return keys + b * at->keys * at->key_stride + offset + kv_head * at->head_size;
}

template <typename T> static __device__ __forceinline__ tile<T> tile_of(T *data, int stride)
{
    tile<T> made = {data, stride, false};
    return made;
}

template <typename T> static __device__ __forceinline__ tile<T> transposed(T *data, int stride)
{
    tile<T> made = {data, stride, true};
    return made;
}

/* A tile of keys and values of a head. */
template <typename T>
static __device__ void keys_load(const cuda_attention *at, uint64_t b, uint64_t kv, uint64_t first,
                                 const T *all_keys, T *k, T *v)
{
    int rows = (int)at->tile_keys;

    tile_load(key_rows(at, all_keys, b, kv, at->key_at), at->key_stride, first, rows, at->keys, at,
              k);
    tile_load(key_rows(at, all_keys, b, kv, at->value_at), at->key_stride, first, rows, at->keys,
              at, v);
}

/* Adds the biases of the distances from queries to keys to a tile of unscaled scores; ends with a
 * barrier. */
static __device__ void biases_add(const cuda_attention *at, uint64_t h, uint64_t first_query,
                                  uint64_t first_key, float *scores)
{
    strides s = strides_of(at);
    int queries = (int)at->tile_queries, keys = (int)at->tile_keys;

    if (at->biases == NULL)
        return;
    for (int i = (int)threadIdx.x; i < queries * keys; i += ATTENTION_THREADS) {
        uint64_t query = first_query + (uint64_t)(i / keys), key = first_key + (uint64_t)(i % keys);
        if (key < keys_of(at, query)) {
            uint64_t by = at->keys - 1 + key - token_place(&at->runs, query);
            scores[i / keys * s.score + i % keys] +=
                at->biases[(uint64_t)at->bucket_of[by] * at->heads + h] / at->scale;
        }
    }
    __syncthreads();
}

/* ---- Forward ---- */

/* One step of the running softmax: a warp takes every fourth row. Scores become probabilities
 * relative to the row's maximum so far, and earlier sums are rescaled from the old maximum to the
 * new one. Rows after the last query are unchanged, as their results are never stored. */
template <typename T>
static __device__ void softmax_step(const cuda_attention *at, const forward_memory<T> *m,
                                    uint64_t first_query, uint64_t first_key)
{
    strides s = strides_of(at);
    int lane = (int)(threadIdx.x % WARP), keys = (int)at->tile_keys;
    int rows = (int)at->tile_queries;

    if (first_query + (uint64_t)rows > at->length)
        rows = (int)(at->length - first_query);
    for (int r = (int)(threadIdx.x / WARP); r < rows; r += WARPS) {
        float before = m->maximum[r], maximum = before, sum = 0.0f, keep;
        uint64_t seen = keys_of(at, first_query + (uint64_t)r);
        for (int c = lane; c < keys; c += WARP) {
            bool sees = first_key + (uint64_t)c < seen;
            float score = sees ? m->scores[r * s.score + c] * at->scale : -INFINITY;
            m->scores[r * s.score + c] = score;
            maximum = fmaxf(maximum, score);
        }
        maximum = warp_maximum(maximum);
        for (int c = lane; c < keys; c += WARP) {
            float score = m->scores[r * s.score + c];
            float p = score == -INFINITY ? 0.0f : expf(score - maximum);
            m->p[r * s.probability + c] = of_float<T>(p);
            sum += p;
        }
        sum = warp_sum(sum);
        keep = before == -INFINITY ? 0.0f : expf(before - maximum);
        for (int c = lane; c < s.size; c += WARP)
            m->sums[r * s.sum + c] *= keep;
        __syncwarp();
        if (lane == 0) {
            m->maximum[r] = maximum;
            m->total[r] = m->total[r] * keep + sum;
        }
    }
}

/* The context's rows and the log of each row's sum. */
template <typename T>
static __device__ void forward_finish(const cuda_attention *at, const forward_memory<T> *m,
                                      uint64_t first, uint64_t b, uint64_t h, T *context,
                                      float *log_sums)
{
    strides s = strides_of(at);
    int queries = (int)at->tile_queries;

    for (int i = (int)threadIdx.x; i < queries * s.size; i += ATTENTION_THREADS)
        m->sums[i / s.size * s.sum + i % s.size] /= m->total[i / s.size];
    for (int r = (int)threadIdx.x; r < queries; r += ATTENTION_THREADS)
        if (first + (uint64_t)r < at->length)
            log_sums[(b * at->heads + h) * at->length + first + (uint64_t)r] =
                m->maximum[r] + logf(m->total[r]);
    __syncthreads();
    tile_store(m->sums, 1.0f, first, queries, at->length, at, context_rows(at, context, b, h),
               at->context_stride);
}

/* Block (x, y, z): query tile x of head y of sample z. */
template <typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS, 6)
    attention_forward(cuda_attention at, const T *all_queries, const T *all_keys, T *context,
                      float *log_sums)
{
    TY_DYNAMIC_SHARED(shared);
    carver from = {shared, 0};
    forward_memory<T> m = forward_carve<T>(&at, &from);
    strides s = strides_of(&at);
    int queries = (int)at.tile_queries, keys = (int)at.tile_keys;
    uint64_t first = (uint64_t)blockIdx.x * at.tile_queries, h = blockIdx.y, b = blockIdx.z;
    uint64_t kv = h / (at.heads / at.kv_heads), end = keys_of_tile(&at, first);

    tile_load(query_rows(&at, all_queries, b, h), at.stride, first, queries, at.length, &at, m.q);
    zero(m.sums, queries * s.sum);
    for (int r = (int)threadIdx.x; r < queries; r += ATTENTION_THREADS) {
        m.maximum[r] = -INFINITY;
        m.total[r] = 0.0f;
    }
    for (uint64_t key = 0; key < end; key += at.tile_keys) {
        __syncthreads();
        keys_load(&at, b, kv, key, all_keys, m.k, m.v);
        __syncthreads();
        tile_multiply(queries, keys, s.size, tile_of(m.q, s.head), transposed(m.k, s.head), false,
                      m.scores, s.score);
        __syncthreads();
        biases_add(&at, h, first, key, m.scores);
        softmax_step(&at, &m, first, key);
        __syncthreads();
        tile_multiply(queries, s.size, keys, tile_of(m.p, s.probability), tile_of(m.v, s.head),
                      true, m.sums, s.sum);
    }
    __syncthreads();
    /* Rows after the end have no keys. */
    for (int r = (int)threadIdx.x; r < queries; r += ATTENTION_THREADS)
        if (m.total[r] == 0.0f)
            m.total[r] = 1.0f;
    __syncthreads();
    forward_finish(&at, &m, first, b, h, context, log_sums);
}

/* ---- Backward ---- */

/* delta: the dot product of a row's context and its gradient. One warp per row. */
template <typename T>
static __global__ void context_delta(cuda_attention at, const T *context, const T *dcontext,
                                     float *delta)
{
    uint64_t row = ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
    uint64_t b = row / (at.heads * at.length), h = row / at.length % at.heads, t = row % at.length;
    uint64_t place = (b * at.length + t) * at.context_stride + h * at.head_size;
    float sum = 0.0f;

    if (b >= at.batch)
        return;
    for (uint64_t i = threadIdx.x % WARP; i < at.head_size; i += WARP)
        sum += to_float(context[place + i]) * to_float(dcontext[place + i]);
    sum = warp_sum(sum);
    if (threadIdx.x % WARP == 0)
        delta[row] = sum;
}

/* Queries of a tile with their gradients, log-sums and deltas. */
template <typename T>
static __device__ void queries_load(const cuda_attention *at, const backward_memory<T> *m,
                                    uint64_t b, uint64_t h, uint64_t first, const T *all_queries,
                                    const T *dcontext, const float *log_sums, const float *delta)
{
    int queries = (int)at->tile_queries;
    uint64_t row = (b * at->heads + h) * at->length + first;

    tile_load(query_rows(at, all_queries, b, h), at->stride, first, queries, at->length, at, m->q);
    tile_load(context_rows(at, dcontext, b, h), at->context_stride, first, queries, at->length, at,
              m->dout);
    for (int r = (int)threadIdx.x; r < queries; r += ATTENTION_THREADS) {
        bool is_inside = first + (uint64_t)r < at->length;
        m->log_sums[r] = is_inside ? log_sums[row + (uint64_t)r] : 0.0f;
        m->delta[r] = is_inside ? delta[row + (uint64_t)r] : 0.0f;
    }
}

/* Probabilities and the gradient of the scores of one pair of tiles; with barriers around. */
template <typename T>
static __device__ void scores_again(const cuda_attention *at, const backward_memory<T> *m,
                                    uint64_t h, uint64_t first_query, uint64_t first_key)
{
    strides s = strides_of(at);
    int queries = (int)at->tile_queries, keys = (int)at->tile_keys;

    __syncthreads();
    tile_multiply(queries, keys, s.size, tile_of(m->q, s.head), transposed(m->k, s.head), false,
                  m->scores, s.score);
    tile_multiply(queries, keys, s.size, tile_of(m->dout, s.head), transposed(m->v, s.head), false,
                  m->dp, s.score);
    __syncthreads();
    biases_add(at, h, first_query, first_key, m->scores);
    for (int i = (int)threadIdx.x; i < queries * keys; i += ATTENTION_THREADS) {
        int r = i / keys, c = i % keys;
        bool sees = first_key + (uint64_t)c < keys_of(at, first_query + (uint64_t)r);
        float p = sees ? expf(m->scores[r * s.score + c] * at->scale - m->log_sums[r]) : 0.0f;
        m->p[r * s.probability + c] = of_float<T>(p);
        m->ds[r * s.probability + c] = of_float<T>(p * (m->dp[r * s.score + c] - m->delta[r]));
    }
    __syncthreads();
}

/* Block (x, y, z): key tile x of key head y of sample z, over all query heads that share it. */
template <typename T>
static __global__ void keys_backward(cuda_attention at, const T *all_queries, const T *all_keys,
                                     const T *dcontext, const float *log_sums, const float *delta,
                                     T *dkeys)
{
    TY_DYNAMIC_SHARED(shared);
    carver from = {shared, 0};
    backward_memory<T> m = backward_carve<T>(&at, &from);
    strides s = strides_of(&at);
    int keys = (int)at.tile_keys, queries = (int)at.tile_queries;
    uint64_t first = (uint64_t)blockIdx.x * at.tile_keys, kv = blockIdx.y, b = blockIdx.z;
    uint64_t group = at.heads / at.kv_heads;
    uint64_t start =
        at.is_causal ? token_from(&at.runs, first) / at.tile_queries * at.tile_queries : 0;

    keys_load(&at, b, kv, first, all_keys, m.k, m.v);
    zero(m.sums, keys * s.sum);
    zero(m.other_sums, keys * s.sum);
    for (uint64_t h = kv * group; h < (kv + 1) * group; h++)
        for (uint64_t query = start; query < at.length; query += at.tile_queries) {
            __syncthreads();
            queries_load(&at, &m, b, h, query, all_queries, dcontext, log_sums, delta);
            scores_again(&at, &m, h, query, first);
            tile_multiply(keys, s.size, queries, transposed(m.p, s.probability),
                          tile_of(m.dout, s.head), true, m.other_sums, s.sum);
            tile_multiply(keys, s.size, queries, transposed(m.ds, s.probability),
                          tile_of(m.q, s.head), true, m.sums, s.sum);
        }
    __syncthreads();
    tile_store(m.sums, at.scale, first, keys, at.keys, &at, key_rows(&at, dkeys, b, kv, at.key_at),
               at.key_stride);
    tile_store(m.other_sums, 1.0f, first, keys, at.keys, &at,
               key_rows(&at, dkeys, b, kv, at.value_at), at.key_stride);
}

/* Sums of the scores' gradients by distance: one thread per diagonal of this tile. Queries and keys
 * past the end add nothing. */
template <typename T>
static __device__ void distances_add(const cuda_attention *at, const backward_memory<T> *m,
                                     uint64_t first_query, uint64_t first_key, float *distances)
{
    strides s = strides_of(at);
    int queries = (int)at->tile_queries, keys = (int)at->tile_keys;

    for (int d = (int)threadIdx.x; d < queries + keys - 1; d += ATTENTION_THREADS) {
        int first = d < queries ? queries - 1 - d : 0; /* row of the diagonal's start, */
        int column = d < queries ? 0 : d - queries + 1;
        int64_t by = (int64_t)(first_key + (uint64_t)column) - (int64_t)(first_query + first);
        float sum = 0.0f;
        for (int r = first, c = column; r < queries && c < keys; r++, c++)
            sum += to_float(m->ds[r * s.probability + c]);
        by += (int64_t)at->keys - 1;
        if (by >= 0 && by < 2 * (int64_t)at->keys - 1)
            distances[by] += sum;
    }
}

/* Block (x, y, z): query tile x of head y of sample z. */
template <typename T>
static __global__ void queries_backward(cuda_attention at, const T *all_queries, const T *all_keys,
                                        const T *dcontext, const float *log_sums,
                                        const float *delta, T *dqueries, float *distances)
{
    TY_DYNAMIC_SHARED(shared);
    carver from = {shared, 0};
    backward_memory<T> m = backward_carve<T>(&at, &from);
    strides s = strides_of(&at);
    int queries = (int)at.tile_queries, keys = (int)at.tile_keys;
    uint64_t first = (uint64_t)blockIdx.x * at.tile_queries, h = blockIdx.y, b = blockIdx.z;
    uint64_t kv = h / (at.heads / at.kv_heads), end = keys_of_tile(&at, first);
    uint64_t part = (h * at.batch + b) * gridDim.x + blockIdx.x;

    if (distances != NULL)
        distances += part * (2 * at.keys - 1);
    for (uint64_t i = threadIdx.x; distances != NULL && i < 2 * at.keys - 1; i += ATTENTION_THREADS)
        distances[i] = 0.0f;
    queries_load(&at, &m, b, h, first, all_queries, dcontext, log_sums, delta);
    zero(m.sums, queries * s.sum);
    for (uint64_t key = 0; key < end; key += at.tile_keys) {
        __syncthreads();
        keys_load(&at, b, kv, key, all_keys, m.k, m.v);
        scores_again(&at, &m, h, first, key);
        if (distances != NULL)
            distances_add(&at, &m, first, key, distances);
        tile_multiply(queries, s.size, keys, tile_of(m.ds, s.probability), tile_of(m.k, s.head),
                      true, m.sums, s.sum);
    }
    __syncthreads();
    tile_store(m.sums, at.scale, first, queries, at.length, &at, query_rows(&at, dqueries, b, h),
               at.stride);
}

/* ---- Starting ---- */

/* Bytes of shared memory of a block. Backward has its own function: with its larger size, fewer of
 * forward's blocks would fit a multiprocessor. */
template <typename T> static uint64_t forward_carved(const cuda_attention *at)
{
    carver counted = {NULL, 0};

    (void)forward_carve<T>(at, &counted);
    return counted.used;
}

template <typename T> static uint64_t backward_carved(const cuda_attention *at)
{
    carver counted = {NULL, 0};

    (void)backward_carve<T>(at, &counted);
    return counted.used;
}

static uint64_t forward_shared(cuda_type type, const cuda_attention *at)
{
    TY_DISPATCH(type, return forward_carved<T>(at))
    return 0;
}

static uint64_t backward_shared(cuda_type type, const cuda_attention *at)
{
    TY_DISPATCH(type, return backward_carved<T>(at))
    return 0;
}

bool cuda_attention_tiles(cuda_type type, uint64_t shared_bytes, cuda_attention *at)
{
    static const uint32_t tiles[][2] = {{64, 64}, {32, 64}, {32, 32}, {16, 32}, {16, 16}};

    const size_t count = sizeof tiles / sizeof *tiles;

    for (size_t i = 0; i < count; i++) {
        at->tile_queries = tiles[i][0];
        at->tile_keys = tiles[i][1];
        if (i + 1 < count && tiles[i + 1][0] >= at->length && tiles[i + 1][1] >= at->keys)
            continue; /* the rest of the tile would be empty */
        if (forward_shared(type, at) <= shared_bytes && backward_shared(type, at) <= shared_bytes)
            return true;
    }
    return false;
}

template <typename T> static cudaError_t prepare(int bytes)
{
    const cudaFuncAttribute most = cudaFuncAttributeMaxDynamicSharedMemorySize;
    cudaError_t code = cudaFuncSetAttribute((const void *)attention_forward<T>, most, bytes);

    if (code == cudaSuccess)
        code = cudaFuncSetAttribute((const void *)keys_backward<T>, most, bytes);
    if (code == cudaSuccess)
        code = cudaFuncSetAttribute((const void *)queries_backward<T>, most, bytes);
    return code;
}

cudaError_t cuda_attention_prepare(uint64_t shared_bytes)
{
    cudaError_t code = prepare<float>((int)shared_bytes);

    if (code == cudaSuccess)
        code = prepare<half>((int)shared_bytes);
    if (code == cudaSuccess)
        code = prepare<bf16>((int)shared_bytes);
    return code;
}

/* One block per tile of `side` rows, head and sample. */
static dim3 grid_of(const cuda_attention *at, uint64_t rows, uint32_t side, uint64_t heads)
{
    return dim3((unsigned)((rows + side - 1) / side), (unsigned)heads, (unsigned)at->batch);
}

/* Elements of the queries, and of the context; then of keys and values. */
[[maybe_unused]] static uint64_t query_elements(const cuda_attention *at)
{
    return at->batch * at->length * at->heads * at->head_size;
}

[[maybe_unused]] static uint64_t key_elements(const cuda_attention *at)
{
    return 2 * at->batch * at->keys * at->kv_heads * at->head_size;
}

void cuda_attention_forward(cuda_type type, const cuda_attention *at, const void *queries,
                            const void *keys, void *context, float *log_sums, cudaStream_t stream)
{
    dim3 grid = grid_of(at, at->length, at->tile_queries, at->heads);
    uint64_t shared = forward_shared(type, at);

    TY_MOVES(bytes_of(type, query_elements(at) + key_elements(at)),
             bytes_of(type, query_elements(at)) + float_bytes(at->batch * at->heads * at->length));
    TY_DISPATCH(type,
                TY_LAUNCH_GRID(attention_forward<T>, grid, ATTENTION_THREADS, shared, stream, *at,
                               (const T *)queries, (const T *)keys, (T *)context, log_sums))
}

void cuda_attention_backward(cuda_type type, const cuda_attention *at, const void *queries,
                             const void *keys, const void *context, const float *log_sums,
                             const void *dcontext, float *delta, void *dqueries, void *dkeys,
                             float *distances, cudaStream_t stream)
{
    dim3 of_keys = grid_of(at, at->keys, at->tile_keys, at->kv_heads);
    dim3 of_queries = grid_of(at, at->length, at->tile_queries, at->heads);
    uint64_t shared = backward_shared(type, at);
    uint64_t rows = at->batch * at->heads * at->length;

    TY_MOVES(bytes_of(type, 2 * query_elements(at)), float_bytes(rows));
    TY_DISPATCH(type, TY_LAUNCH(context_delta<T>, (rows * WARP + BLOCK - 1) / BLOCK, BLOCK, 0,
                                stream, *at, (const T *)context, (const T *)dcontext, delta))
    TY_MOVES(bytes_of(type, 2 * query_elements(at) + key_elements(at)) + float_bytes(2 * rows),
             bytes_of(type, key_elements(at)));
    TY_DISPATCH(type, TY_LAUNCH_GRID(keys_backward<T>, of_keys, ATTENTION_THREADS, shared, stream,
                                     *at, (const T *)queries, (const T *)keys, (const T *)dcontext,
                                     log_sums, delta, (T *)dkeys))
    TY_MOVES(bytes_of(type, 2 * query_elements(at) + key_elements(at)) + float_bytes(2 * rows),
             bytes_of(type, query_elements(at)));
    TY_DISPATCH(type,
                TY_LAUNCH_GRID(queries_backward<T>, of_queries, ATTENTION_THREADS, shared, stream,
                               *at, (const T *)queries, (const T *)keys, (const T *)dcontext,
                               log_sums, delta, (T *)dqueries, distances))
}

/* ---- Gradients of biases by distance ---- */

static uint64_t query_tiles(const cuda_attention *at)
{
    return (at->length + at->tile_queries - 1) / at->tile_queries;
}

/* [heads][batch][tiles][distances], followed by [heads][distances]. */
uint64_t cuda_attention_distances(const cuda_attention *at)
{
    return at->heads * (at->batch * query_tiles(at) + 1) * (2 * at->keys - 1);
}

static __global__ void distances_join(uint64_t heads, uint64_t parts, uint64_t count,
                                      const float *distances, float *sums)
{
    FOR_EACH (i, heads * count) {
        const float *from = distances + i / count * parts * count + i % count;
        float sum = 0.0f;
        for (uint64_t p = 0; p < parts; p++)
            sum += from[p * count];
        sums[i] = sum;
    }
}

/* One thread per bias. */
static __global__ void biases_gradient(cuda_attention at, const float *sums, bool adds,
                                       float *dbiases)
{
    const uint64_t count = 2 * at.keys - 1;

    FOR_EACH (i, at.buckets * at.heads) {
        const float *from = sums + i % at.heads * count;
        float sum = 0.0f;
        for (uint64_t d = 0; d < count; d++)
            if ((uint64_t)at.bucket_of[d] == i / at.heads)
                sum += from[d];
        put(&dbiases[i], sum, adds);
    }
}

void cuda_attention_biases(const cuda_attention *at, float *distances, bool adds, float *dbiases,
                           cudaStream_t stream)
{
    const uint64_t count = 2 * at->keys - 1, parts = at->batch * query_tiles(at);
    float *sums = distances + at->heads * parts * count;

    TY_MOVES(float_bytes(at->heads * parts * count), float_bytes(at->heads * count));
    TY_LAUNCH(distances_join, grid_for(at->heads * count), BLOCK, 0, stream, at->heads, parts,
              count, distances, sums);
    TY_MOVES(float_bytes((at->heads + 1) * count + (adds ? at->buckets * at->heads : 0)),
             float_bytes(at->buckets * at->heads));
    TY_LAUNCH(biases_gradient, grid_for(at->buckets * at->heads), BLOCK, 0, stream, *at, sums, adds,
              dbiases);
}
