/* Maximum and average pooling of [B,C,H,W]: a thread an output forward, a thread an input backward,
 * which gathers from the windows it lies in. */
#include "kernel.cuh"

typedef struct span {
    uint64_t first, end;
} span;

/* The part of window `at` that lies inside the image. */
static __device__ __forceinline__ span window(uint64_t at, uint64_t stride, uint64_t padding,
                                              uint64_t size, uint64_t limit)
{
    uint64_t start = at * stride, stop = start + size;
    span s;

    s.first = start > padding ? start - padding : 0;
    stop = stop > padding ? stop - padding : 0;
    s.end = stop < limit ? stop : limit;
    return s;
}

/* The windows that contain pixel `at`. */
static __device__ __forceinline__ span windows_of(uint64_t at, uint64_t stride, uint64_t padding,
                                                  uint64_t size, uint64_t count)
{
    uint64_t place = at + padding; /* of the padded image */
    span s;

    s.first = place >= size ? (place - size) / stride + 1 : 0;
    s.end = place / stride + 1;
    s.end = s.end < count ? s.end : count;
    return s;
}

template <typename T> static __global__ void pool_forward(cuda_pool p, const T *x, T *y)
{
    FOR_EACH (i, p.images * p.windows.out_height * p.windows.out_width) {
        span v = window(i % p.windows.out_width, p.windows.stride, p.windows.padding_width,
                        p.windows.width, p.windows.in_width);
        span h = window(i / p.windows.out_width % p.windows.out_height, p.windows.stride,
                        p.windows.padding_height, p.windows.height, p.windows.in_height);
        const T *image = x + i / (p.windows.out_width * p.windows.out_height) *
                                 p.windows.in_height * p.windows.in_width;
        float sum = 0.0f, maximum = to_float(image[h.first * p.windows.in_width + v.first]);
        for (uint64_t r = h.first; r < h.end; r++)
            for (uint64_t c = v.first; c < v.end; c++) {
                float value = to_float(image[r * p.windows.in_width + c]);
                sum += value;
                maximum = fmaxf(maximum, value);
            }
        y[i] = of_float<T>(p.windows.is_average ? sum / (float)(p.windows.height * p.windows.width)
                                                : maximum);
    }
}

void cuda_pool_forward(cuda_type type, const cuda_pool *pool, const void *x, void *y,
                       cudaStream_t stream)
{
    uint64_t count = pool->images * pool->windows.out_height * pool->windows.out_width;

    TY_MOVES(bytes_of(type, pool->images * pool->windows.in_height * pool->windows.in_width),
             bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(pool_forward<T>, grid_for(count), BLOCK, 0, stream, *pool,
                                (const T *)x, (T *)y))
}

/* Whether the pixel is the first of its window with the window's maximum. */
template <typename T>
static __device__ bool is_chosen(const cuda_pool *p, const T *image, span h, span v, uint64_t row,
                                 uint64_t column, float maximum)
{
    for (uint64_t r = h.first; r <= row; r++) {
        uint64_t end = r == row ? column : v.end;
        for (uint64_t c = v.first; c < end; c++)
            if (to_float(image[r * p->windows.in_width + c]) == maximum)
                return false;
    }
    return to_float(image[row * p->windows.in_width + column]) == maximum;
}

template <typename T>
static __global__ void pool_backward(cuda_pool p, const T *x, const T *y, const T *dy, bool adds,
                                     T *dx)
{
    FOR_EACH (i, p.images * p.windows.in_height * p.windows.in_width) {
        uint64_t column = i % p.windows.in_width,
                 row = i / p.windows.in_width % p.windows.in_height;
        uint64_t image = i / (p.windows.in_width * p.windows.in_height),
                 outs = p.windows.out_height * p.windows.out_width;
        span rows = windows_of(row, p.windows.stride, p.windows.padding_height, p.windows.height,
                               p.windows.out_height);
        span columns = windows_of(column, p.windows.stride, p.windows.padding_width,
                                  p.windows.width, p.windows.out_width);
        float sum = 0.0f;
        for (uint64_t r = rows.first; r < rows.end; r++)
            for (uint64_t c = columns.first; c < columns.end; c++) {
                uint64_t out = image * outs + r * p.windows.out_width + c;
                span h = window(r, p.windows.stride, p.windows.padding_height, p.windows.height,
                                p.windows.in_height);
                span v = window(c, p.windows.stride, p.windows.padding_width, p.windows.width,
                                p.windows.in_width);
                if (p.windows.is_average)
                    sum += to_float(dy[out]) / (float)(p.windows.height * p.windows.width);
                else if (is_chosen(&p, x + image * p.windows.in_height * p.windows.in_width, h, v,
                                   row, column, to_float(y[out])))
                    sum += to_float(dy[out]);
            }
        put(&dx[i], sum, adds);
    }
}

void cuda_pool_backward(cuda_type type, const cuda_pool *pool, const void *x, const void *y,
                        const void *dy, bool adds, void *dx, cudaStream_t stream)
{
    uint64_t count = pool->images * pool->windows.in_height * pool->windows.in_width;

    /* Of maxima as if each were the last of its window. */
    [[maybe_unused]] const uint64_t outs =
        pool->images * pool->windows.out_height * pool->windows.out_width;

    TY_MOVES(
        bytes_of(type, (pool->windows.is_average ? outs : 2 * outs + count) + (adds ? count : 0)),
        bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(pool_backward<T>, grid_for(count), BLOCK, 0, stream, *pool,
                                (const T *)x, (const T *)y, (const T *)dy, adds, (T *)dx))
}
