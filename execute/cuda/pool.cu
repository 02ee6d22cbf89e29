/* Maximum and average pooling of images with their channels last, [B,H,W,C]: a thread an output
 * forward, a thread an input backward, which gathers from the windows it lies in. Blocks go through
 * one image after the other, in which places are 32 bit. */
#include "kernel.cuh"

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

/* Blocks beside one another share an image. */
static dim3 grid_of(uint64_t images, uint64_t elements)
{
    return dim3(grid_for(elements), (unsigned)(images < MOST_BLOCKS ? images : MOST_BLOCKS));
}

#define FOR_EACH_OF_IMAGE(i, count)                                                                \
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < (count);                          \
         i += gridDim.x * blockDim.x)

/* The part of window `at` that lies inside the image. */
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
    unsigned place = at + padding; /* of the padded image */
    span s;

    s.first = place >= size ? (place - size) / stride + 1 : 0;
    s.end = place / stride + 1;
    s.end = s.end < count ? s.end : count;
    return s;
}

template <typename T>
static __global__ void pool_forward(uint64_t images, windows w, const T *x, T *y)
{
    const unsigned outs = w.out_height * w.out_width * w.channels;

    for (uint64_t n = blockIdx.y; n < images; n += gridDim.y) {
        const T *image = x + n * (w.in_height * w.in_width * w.channels);
        FOR_EACH_OF_IMAGE(i, outs)
        {
            const unsigned channel = i % w.channels, place = i / w.channels;
            const span h = window_rows(w, place / w.out_width);
            const span v = window_columns(w, place % w.out_width);
            const T *from = image + channel;
            float sum = 0.0f;
            float maximum = to_float(from[(h.first * w.in_width + v.first) * w.channels]);
            for (unsigned r = h.first; r < h.end; r++)
                for (unsigned c = v.first; c < v.end; c++) {
                    const float value = to_float(from[(r * w.in_width + c) * w.channels]);
                    sum += value;
                    maximum = fmaxf(maximum, value);
                }
            y[n * outs + i] =
                of_float<T>(w.is_average ? sum / (float)(w.height * w.width) : maximum);
        }
    }
}

void cuda_pool_forward(cuda_type type, const cuda_pool *pool, const void *x, void *y,
                       cudaStream_t stream)
{
    const uint64_t outs = out_elements(&pool->windows);

    TY_MOVES(bytes_of(type, pool->images * in_elements(&pool->windows)),
             bytes_of(type, pool->images * outs));
    TY_DISPATCH(type,
                TY_LAUNCH_GRID(pool_forward<T>, grid_of(pool->images, outs), BLOCK, 0, stream,
                               pool->images, windows_from(&pool->windows), (const T *)x, (T *)y))
}

/* Whether the pixel is the first of its window with the window's maximum. `image`: of one channel.
 */
template <typename T>
static __device__ bool is_chosen(const windows &w, const T *image, span h, span v, unsigned row,
                                 unsigned column, float maximum)
{
    for (unsigned r = h.first; r <= row; r++) {
        const unsigned end = r == row ? column : v.end;
        for (unsigned c = v.first; c < end; c++)
            if (to_float(image[(r * w.in_width + c) * w.channels]) == maximum)
                return false;
    }
    return to_float(image[(row * w.in_width + column) * w.channels]) == maximum;
}

template <typename T>
static __global__ void pool_backward(uint64_t images, windows w, const T *x, const T *y,
                                     const T *dy, bool adds, T *dx)
{
    const unsigned ins = w.in_height * w.in_width * w.channels;
    const unsigned outs = w.out_height * w.out_width * w.channels;

    for (uint64_t n = blockIdx.y; n < images; n += gridDim.y) {
        FOR_EACH_OF_IMAGE(i, ins)
        {
            const unsigned channel = i % w.channels, place = i / w.channels;
            const unsigned row = place / w.in_width, column = place % w.in_width;
            const span rows = windows_of(row, w.stride, w.padding_height, w.height, w.out_height);
            const span columns =
                windows_of(column, w.stride, w.padding_width, w.width, w.out_width);
            float sum = 0.0f;
            for (unsigned r = rows.first; r < rows.end; r++)
                for (unsigned c = columns.first; c < columns.end; c++) {
                    const uint64_t out = n * outs + (r * w.out_width + c) * w.channels + channel;
                    if (w.is_average)
                        sum += to_float(dy[out]) / (float)(w.height * w.width);
                    else if (is_chosen(w, x + n * ins + channel, window_rows(w, r),
                                       window_columns(w, c), row, column, to_float(y[out])))
                        sum += to_float(dy[out]);
                }
            put(&dx[n * ins + i], sum, adds);
        }
    }
}

void cuda_pool_backward(cuda_type type, const cuda_pool *pool, const void *x, const void *y,
                        const void *dy, bool adds, void *dx, cudaStream_t stream)
{
    const uint64_t ins = in_elements(&pool->windows);
    [[maybe_unused]] const uint64_t count = pool->images * ins;
    [[maybe_unused]] const uint64_t outs = pool->images * out_elements(&pool->windows);

    /* Of maxima as if each were the last of its window. */
    TY_MOVES(
        bytes_of(type, (pool->windows.is_average ? outs : 2 * outs + count) + (adds ? count : 0)),
        bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH_GRID(pool_backward<T>, grid_of(pool->images, ins), BLOCK, 0, stream,
                                     pool->images, windows_from(&pool->windows), (const T *)x,
                                     (const T *)y, (const T *)dy, adds, (T *)dx))
}
