/* Maximum and average pooling of images with their channels last, [B,H,W,C]: a thread handles some
 * channels of an output in forward. In backward it handles those of an input, and sums over the
 * windows that contain it. A block takes one image row after the other; offsets in an image have 32
 * bits. */
#include "vectors.cuh"

typedef struct span {
    unsigned first, end;
} span;

/* The windows of one image: `pool_windows` in 32 bit. */
typedef struct windows {
    unsigned channels;
    unsigned in_height, in_width, out_height, out_width;
    unsigned height, width, stride, padding_height, padding_width;
    bool is_average;
} windows;

static windows windows_from(const pool_windows *w)
{
    windows made;

    made.channels = (unsigned)w->channels;
    made.in_height = (unsigned)w->in_height;
    made.in_width = (unsigned)w->in_width;
    made.out_height = (unsigned)w->out_height;
    made.out_width = (unsigned)w->out_width;
    made.height = (unsigned)w->height;
    made.width = (unsigned)w->width;
    made.stride = (unsigned)w->stride;
    made.padding_height = (unsigned)w->padding_height;
    made.padding_width = (unsigned)w->padding_width;
    made.is_average = w->is_average;
    return made;
}

static uint64_t in_elements(const pool_windows *w)
{
    return w->in_height * w->in_width * w->channels;
}

static uint64_t out_elements(const pool_windows *w)
{
    return w->out_height * w->out_width * w->channels;
}

/* Neighbors along x share a row. */
static dim3 grid_of(uint64_t rows, uint64_t pieces)
{
    return dim3(grid_for(pieces), (unsigned)(rows < MOST_BLOCKS ? rows : MOST_BLOCKS));
}

#define FOR_EACH_ROW(r, count) for (uint64_t r = blockIdx.y; r < (count); r += gridDim.y)
#define FOR_EACH_OF_ROW(i, count)                                                                  \
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < (count);                          \
         i += gridDim.x * blockDim.x)

/* Whether these pointers allow a thread to access 16 bytes of channels at a time. */
template <typename T>
static bool is_of_pieces(const cuda_pool *pool, const void *a, const void *b, const void *c,
                         const void *d)
{
    const uintptr_t places = (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)d;

    return pool->windows.channels % piece<T>::SIZE == 0 && places % 16 == 0;
}

/* Runs the statement with N as the channels of a thread. */
#define DISPATCH_PIECES(is_of_pieces, ...)                                                         \
    if (is_of_pieces) {                                                                            \
        constexpr int N = piece<T>::SIZE;                                                          \
        __VA_ARGS__;                                                                               \
    } else {                                                                                       \
        constexpr int N = 1;                                                                       \
        __VA_ARGS__;                                                                               \
    }

/* The part of window `at` inside the image. */
static __device__ __forceinline__ span window(unsigned at, unsigned stride, unsigned padding,
                                              unsigned size, unsigned limit)
{
    unsigned start = at * stride, stop = start + size;
    span s;

    s.first = start > padding ? start - padding : 0;
    stop = stop > padding ? stop - padding : 0;
    s.end = stop < limit ? stop : limit;
    return s;
}

static __device__ __forceinline__ span window_rows(const windows &w, unsigned row)
{
    return window(row, w.stride, w.padding_height, w.height, w.in_height);
}

static __device__ __forceinline__ span window_columns(const windows &w, unsigned column)
{
    return window(column, w.stride, w.padding_width, w.width, w.in_width);
}

/* The windows that contain pixel `at`. */
static __device__ __forceinline__ span windows_of(unsigned at, unsigned stride, unsigned padding,
                                                  unsigned size, unsigned count)
{
    unsigned place = at + padding; /* in the padded image */
    span s;

    s.first = place >= size ? (place - size) / stride + 1 : 0;
    s.end = place / stride + 1;
    s.end = s.end < count ? s.end : count;
    return s;
}

template <typename T, int N>
static __global__ void pool_forward(uint64_t images, windows w, const T *__restrict__ x,
                                    T *__restrict__ y)
{
    const unsigned pieces = w.channels / N, width = w.out_width * pieces;

    FOR_EACH_ROW(line, images * w.out_height)
    {
        const span h = window_rows(w, (unsigned)(line % w.out_height));
        const T *image = x + line / w.out_height * (w.in_height * w.in_width * w.channels);
        FOR_EACH_OF_ROW(i, width)
        {
            const span v = window_columns(w, i / pieces);
            const T *from = image + i % pieces * N;
            float sum[N], maximum[N], value[N];
            numbers_load(from + (h.first * w.in_width + v.first) * w.channels, maximum);
            for (int k = 0; k < N; k++)
                sum[k] = 0.0f;
            for (unsigned r = h.first; r < h.end; r++)
                for (unsigned c = v.first; c < v.end; c++) {
                    numbers_load(from + (r * w.in_width + c) * w.channels, value);
#pragma unroll
                    for (int k = 0; k < N; k++) {
                        sum[k] += value[k];
                        maximum[k] = fmaxf(maximum[k], value[k]);
                    }
                }
#pragma unroll
            for (int k = 0; k < N; k++)
                maximum[k] = w.is_average ? sum[k] / (float)(w.height * w.width) : maximum[k];
            numbers_store(y + (line * width + i) * N, maximum);
        }
    }
}

void cuda_pool_forward(cuda_type type, const cuda_pool *pool, const void *x, void *y,
                       cudaStream_t stream)
{
    const pool_windows *w = &pool->windows;
    const uint64_t rows = pool->images * w->out_height;

    TY_MOVES(bytes_of(type, pool->images * in_elements(w)),
             bytes_of(type, pool->images * out_elements(w)));
    TY_DISPATCH(type, DISPATCH_PIECES(is_of_pieces<T>(pool, x, y, x, y),
                                      TY_LAUNCH_GRID((pool_forward<T, N>),
                                                     grid_of(rows, w->out_width * w->channels / N),
                                                     BLOCK, 0, stream, pool->images,
                                                     windows_from(w), (const T *)x, (T *)y)))
}

/* Compares adjacent numbers: all bits set where equal, else 0. A single 16-bit number is in the low
 * half of its word. */
template <typename T, int N> struct words {
    static constexpr int COUNT = (int)((N * sizeof(T) + sizeof(unsigned) - 1) / sizeof(unsigned));
    unsigned at[COUNT];
};

template <typename T, int N> static __device__ __forceinline__ words<T, N> words_load(const T *from)
{
    const numbers<T, N> found = numbers_at<T, N>(from);
    words<T, N> loaded;

    loaded.at[0] = 0;
    memcpy(loaded.at, &found, sizeof found);
    return loaded;
}

static __device__ __forceinline__ unsigned same(unsigned x, unsigned y, const float *)
{
    float a, b;

    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    return a == b ? ~0u : 0u;
}
static __device__ __forceinline__ unsigned same(unsigned x, unsigned y, const bf16 *)
{
    __nv_bfloat162 a, b;

    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    return __heq2_mask(a, b);
}
static __device__ __forceinline__ unsigned same(unsigned x, unsigned y, const half *)
{
    __half2 a, b;

    memcpy(&a, &x, sizeof a);
    memcpy(&b, &y, sizeof b);
    return __heq2_mask(a, b);
}

/* Channels in which this pixel is the first maximum of its window. `image` starts at the first of
 * the channels. */
template <typename T, int N>
static __device__ __forceinline__ words<T, N>
firsts(const windows &w, const T *image, unsigned row, unsigned column, span h, span v,
       const words<T, N> &own, const words<T, N> &maximum)
{
    words<T, N> is_first;
    unsigned any = 0;

#pragma unroll
    for (int k = 0; k < words<T, N>::COUNT; k++)
        any |= is_first.at[k] = same(own.at[k], maximum.at[k], image);
    for (unsigned r = h.first; r <= row && any != 0; r++) {
        const unsigned end = r == row ? column : v.end;
        for (unsigned c = v.first; c < end; c++) {
            const words<T, N> other = words_load<T, N>(image + (r * w.in_width + c) * w.channels);
#pragma unroll
            for (int k = 0; k < words<T, N>::COUNT; k++)
                is_first.at[k] &= ~same(other.at[k], maximum.at[k], image);
        }
    }
    return is_first;
}

/* Adds a pixel's gradient from its window to sums. */
template <typename T, int N>
static __device__ __forceinline__ void gain_add(const words<T, N> &gained, float (&sums)[N])
{
    numbers<T, N> parts;

    memcpy(&parts, gained.at, sizeof parts);
#pragma unroll
    for (int k = 0; k < N; k++)
        sums[k] += to_float(parts.at[k]);
}

template <typename T, int N, bool IS_AVERAGE>
static __global__ void pool_backward(uint64_t images, windows w, const T *__restrict__ x,
                                     const T *__restrict__ y, const T *__restrict__ dy, bool adds,
                                     T *__restrict__ dx)
{
    const unsigned pieces = w.channels / N, width = w.in_width * pieces;
    const float area = (float)(w.height * w.width);

    FOR_EACH_ROW(line, images * w.in_height)
    {
        const uint64_t n = line / w.in_height;
        const unsigned row = (unsigned)(line % w.in_height);
        const span rows = windows_of(row, w.stride, w.padding_height, w.height, w.out_height);
        FOR_EACH_OF_ROW(i, width)
        {
            const unsigned column = i / pieces, channel = i % pieces * N;
            const span columns =
                windows_of(column, w.stride, w.padding_width, w.width, w.out_width);
            const uint64_t at = (line * width + i) * N;
            const T *image = x + n * (w.in_height * w.in_width * w.channels) + channel;
            words<T, N> own = {};
            float sum[N];
#pragma unroll
            for (int k = 0; k < N; k++)
                sum[k] = 0.0f;
            if (!IS_AVERAGE)
                own = words_load<T, N>(x + at);
            for (unsigned r = rows.first; r < rows.end; r++)
                for (unsigned c = columns.first; c < columns.end; c++) {
                    const uint64_t out =
                        ((n * w.out_height + r) * w.out_width + c) * w.channels + channel;
                    if (IS_AVERAGE) {
                        float gained[N];
                        numbers_load(dy + out, gained);
#pragma unroll
                        for (int k = 0; k < N; k++)
                            sum[k] += gained[k] / area;
                    } else {
                        const words<T, N> is_first =
                            firsts(w, image, row, column, window_rows(w, r), window_columns(w, c),
                                   own, words_load<T, N>(y + out));
                        words<T, N> gained = words_load<T, N>(dy + out);
#pragma unroll
                        for (int k = 0; k < words<T, N>::COUNT; k++)
                            gained.at[k] &= is_first.at[k];
                        gain_add(gained, sum);
                    }
                }
            numbers_put(dx + at, sum, adds);
        }
    }
}

template <typename T, int N> static auto pool_gradient(bool is_average)
{
    return is_average ? pool_backward<T, N, true> : pool_backward<T, N, false>;
}

void cuda_pool_backward(cuda_type type, const cuda_pool *pool, const void *x, const void *y,
                        const void *dy, bool adds, void *dx, cudaStream_t stream)
{
    const pool_windows *w = &pool->windows;
    const uint64_t rows = pool->images * w->in_height;
    [[maybe_unused]] const uint64_t count = pool->images * in_elements(w);
    [[maybe_unused]] const uint64_t outs = pool->images * out_elements(w);

    TY_MOVES(bytes_of(type, (w->is_average ? outs : 2 * outs + count) + (adds ? count : 0)),
             bytes_of(type, count));
    TY_DISPATCH(
        type, DISPATCH_PIECES(is_of_pieces<T>(pool, x, y, dy, dx),
                              TY_LAUNCH_GRID((pool_gradient<T, N>(w->is_average)),
                                             grid_of(rows, w->in_width * w->channels / N), BLOCK, 0,
                                             stream, pool->images, windows_from(w), (const T *)x,
                                             (const T *)y, (const T *)dy, adds, (T *)dx)))
}
