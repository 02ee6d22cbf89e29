/* The gradient of a convolution's input as a product of matrices. */
#include "cpu_conv_product.h"
#include "cpu_math.h"

/* Channels that oneDNN's kernels for AVX-512 compute at once. */
#define VECTOR 16
/* Bytes of the columns computed at once: a quarter of the smallest second-level cache per core of
 * servers since 2017 (1 MiB, Skylake-SP); they are added before they leave it. */
#define COLUMN_BYTES (256 << 10)

static uint64_t kernel_size(const cpu_conv_shape *s)
{
    return s->kernel_height * s->kernel_width;
}

/* Size of a column: input channels of each pixel under the kernel. */
static uint64_t column_size(const cpu_conv_shape *s)
{
    return kernel_size(s) * s->in_channels;
}

/* Rows of the output whose columns are computed at once. */
static uint64_t rows_at_once(const cpu_conv_shape *s)
{
    const uint64_t row_bytes = s->out_width * column_size(s) * sizeof(float);
    const uint64_t rows = s->batch * s->out_height;
    const uint64_t fit = COLUMN_BYTES / row_bytes > 0 ? COLUMN_BYTES / row_bytes : 1;

    return fit < rows ? fit : rows;
}

/* True if at least a quarter of the vectors' numbers would be empty, and the sums of the product,
 * which are along the output's channels, are long enough for it to be fast. */
bool cpu_conv_product_suits(const cpu_conv_shape *s)
{
    const uint64_t computed = (s->in_channels + VECTOR - 1) / VECTOR * VECTOR;

    return s->groups == 1 && 4 * s->in_channels <= 3 * computed &&
           s->out_channels >= (uint64_t)2 * VECTOR;
}

uint64_t cpu_conv_product_bytes(const cpu_conv_shape *s)
{
    const uint64_t columns = rows_at_once(s) * s->out_width * column_size(s);

    return (s->out_channels * column_size(s) + columns) * sizeof(float);
}

/* [out][in][kernel] to [out][kernel][in], the order of a column. */
static void weights_turn(const cpu_conv_shape *s, const float *weight, float *turned)
{
    const uint64_t kernel = kernel_size(s), in = s->in_channels;

    for (uint64_t o = 0; o < s->out_channels; o++, weight += kernel * in)
        for (uint64_t k = 0; k < kernel; k++)
            for (uint64_t i = 0; i < in; i++)
                *turned++ = weight[i * kernel + k];
}

CPU_INLINE void run_add(uint64_t count, const float *restrict from, float *restrict to)
{
    for (uint64_t i = 0; i < count; i++)
        to[i] += from[i];
}

/* Adds the columns of one row of the output to the image, without the padding. A row of the kernel
 * is one run of numbers in the column and in the image. */
CPU_CLONES static void columns_add(const cpu_conv_shape *s, uint64_t row, const float *columns,
                                   float *image)
{
    const uint64_t channels = s->in_channels, run = s->kernel_width * channels;

    for (uint64_t column = 0; column < s->out_width; column++)
        for (uint64_t k = 0; k < s->kernel_height; k++, columns += run) {
            const uint64_t h = row * s->stride + k, v = column * s->stride;
            const uint64_t before = v < s->padding_width ? s->padding_width - v : 0;
            const uint64_t left = v + before - s->padding_width;
            const uint64_t room = left < s->in_width ? s->in_width - left : 0;
            const uint64_t wide = before < s->kernel_width ? s->kernel_width - before : 0;
            if (h >= s->padding_height && h - s->padding_height < s->in_height)
                run_add((wide < room ? wide : room) * channels, columns + before * channels,
                        image + ((h - s->padding_height) * s->in_width + left) * channels);
        }
}

void cpu_conv_product_data(const cpu_conv_shape *s, const float *dy, const float *weight, float *dx,
                           float *scratch)
{
    const uint64_t image = s->in_height * s->in_width * s->in_channels, size = column_size(s);
    const uint64_t rows = s->batch * s->out_height, at_once = rows_at_once(s);
    float *turned = scratch, *columns = scratch + s->out_channels * size;

    weights_turn(s, weight, turned);
    memset(dx, 0, s->batch * image * sizeof *dx);
    for (uint64_t first = 0; first < rows; first += at_once) {
        const uint64_t count = rows - first < at_once ? rows - first : at_once;
        cpu_gemm(false, false, count * s->out_width, size, s->out_channels, 1.0f,
                 dy + first * s->out_width * s->out_channels, s->out_channels, turned, size, 0.0f,
                 columns, size);
        for (uint64_t row = first; row < first + count; row++)
            columns_add(s, row % s->out_height, columns + (row - first) * s->out_width * size,
                        dx + row / s->out_height * image);
    }
}
