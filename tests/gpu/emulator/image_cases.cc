/*
 * Image kernels in isolation against explicit sums in doubles: changes of order, pooling, and batch
 * norm of close numbers far from 0, for any number of channels and pixels. Repeated runs give the
 * same bits.
 */
#include "case_numbers.h"
#include "cuda_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

namespace
{
int failures, cases;

void expect(bool is_right, const char *what, uint64_t rows, uint64_t columns, double found,
            double expected)
{
    cases++;
    failures += !is_right;
    if (!is_right)
        printf("FAIL %s of %lu x %lu: %.9g, expected %.9g\n", what, (unsigned long)rows,
               (unsigned long)columns, found, expected);
}

bool is_close(double found, double expected, double scale, double tolerance)
{
    return std::fabs(found - expected) <= tolerance * (scale + std::fabs(expected));
}

/* ---- Orders ---- */

void orders(uint64_t matrices, uint64_t rows, uint64_t columns)
{
    const std::vector<float> from = numbers(matrices * rows * columns, 3);
    std::vector<float> to(from.size(), 0.5f), sum(from.size(), 0.5f);
    bool is_right = true;

    cuda_transpose(CUDA_TYPE_FLOAT, matrices, rows, columns, from.data(), CUDA_TYPE_FLOAT, false,
                   to.data(), nullptr);
    cuda_transpose(CUDA_TYPE_FLOAT, matrices, rows, columns, from.data(), CUDA_TYPE_FLOAT, true,
                   sum.data(), nullptr);
    cudaStreamSynchronize(nullptr);
    for (uint64_t m = 0; m < matrices; m++)
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < columns; c++) {
                const float x = from[(m * rows + r) * columns + c];
                const uint64_t at = (m * columns + c) * rows + r;
                is_right = is_right && to[at] == x && sum[at] == 0.5f + x;
            }
    expect(is_right, "order", rows, columns, 0, 0);
}

/* ---- Pooling against explicit windows; few distinct values, so that maxima are equal ---- */

template <typename T> std::vector<T> typed(const std::vector<float> &from)
{
    return std::vector<T>(from.begin(), from.end());
}

template <typename T> void pools(cuda_type type, uint64_t channels, const pool_windows &like)
{
    constexpr uint64_t IMAGES = 2;
    pool_windows w = like;
    w.channels = channels;
    w.out_height = (w.in_height + 2 * w.padding_height - w.height) / w.stride + 1;
    w.out_width = (w.in_width + 2 * w.padding_width - w.width) / w.stride + 1;
    const cuda_pool pool = {IMAGES, w};
    const uint64_t ins = IMAGES * w.in_height * w.in_width * channels;
    const uint64_t outs = IMAGES * w.out_height * w.out_width * channels;
    std::vector<float> x = numbers(ins, 3), dy = numbers(outs, 5), expected_dx(ins, 0.5f);
    const double tolerance = type == CUDA_TYPE_FLOAT ? 1e-6 : w.is_average ? 1e-2 : 0;
    bool is_right = true;

    for (float &number : x)
        number = std::floor(number * 3);
    for (float &number : dy) /* exact in 16 bits, and so are their sums */
        number = std::floor(number * 8) / 8;
    std::vector<T> of_x = typed<T>(x), y(outs), of_dy = typed<T>(dy), dx = typed<T>(expected_dx);
    cuda_pool_forward(type, &pool, of_x.data(), y.data(), nullptr);
    cuda_pool_backward(type, &pool, of_x.data(), y.data(), of_dy.data(), true, dx.data(), nullptr);
    cudaStreamSynchronize(nullptr);
    for (uint64_t o = 0; o < outs; o++) {
        const uint64_t channel = o % channels, column = o / channels % w.out_width;
        const uint64_t row = o / channels / w.out_width % w.out_height;
        const uint64_t image = o / channels / w.out_width / w.out_height;
        double sum = 0, maximum = -1e30;
        uint64_t best = 0;
        std::vector<uint64_t> places;
        for (uint64_t r = row * w.stride; r < row * w.stride + w.height; r++)
            for (uint64_t c = column * w.stride; c < column * w.stride + w.width; c++) {
                const uint64_t i = r - w.padding_height, j = c - w.padding_width;
                if (i >= w.in_height || j >= w.in_width)
                    continue;
                places.push_back(((image * w.in_height + i) * w.in_width + j) * channels + channel);
                sum += x[places.back()];
                if (x[places.back()] > maximum) {
                    maximum = x[places.back()];
                    best = places.back();
                }
            }
        const double area = (double)(w.height * w.width);
        is_right = is_right && is_close((float)y[o], w.is_average ? sum / area : maximum, 1,
                                        w.is_average ? tolerance : 0);
        for (uint64_t place : places)
            expected_dx[place] += w.is_average ? dy[o] / (float)area : place == best ? dy[o] : 0;
    }
    for (uint64_t i = 0; i < ins; i++)
        is_right = is_right && is_close((float)dx[i], expected_dx[i], 1, tolerance);
    expect(is_right, w.is_average ? "averages" : "maxima", w.in_height, channels, 0, 0);
}

template <typename T> void all_pools(cuda_type type)
{
    for (uint64_t channels : {1, 3, 8, 12})
        for (bool is_average : {false, true}) {
            pools<T>(type, channels,
                     {.in_height = 9,
                      .in_width = 7,
                      .height = 3,
                      .width = 3,
                      .stride = 2,
                      .padding_height = 1,
                      .padding_width = 1,
                      .is_average = is_average});
            pools<T>(type, channels,
                     {.in_height = 8,
                      .in_width = 11,
                      .height = 2,
                      .width = 3,
                      .stride = 3,
                      .is_average = is_average});
            pools<T>(type, channels,
                     {.in_height = 5,
                      .in_width = 7,
                      .height = 5,
                      .width = 7,
                      .stride = 1,
                      .is_average = is_average});
        }
}

/* ---- Batch norm ---- */

constexpr double norm_epsilon = 1e-5;

/* One channel, in doubles. */
struct reference {
    double mean = 0, variance = 0, product = 0, sum = 0;

    double scale() const
    {
        return 1 / std::sqrt(variance + norm_epsilon);
    }
};

/* Operations after the norm: another summand, then a relu. */
struct behind {
    bool has_other, has_relu;
};

struct batch {
    uint64_t rows, channels;
    bool has_relu;
    std::vector<float> x, other, dy, left, gain, shift, y, dx, statistics, dgain, dshift, running,
        scratch;

    batch(uint64_t some_rows, uint64_t some_channels, float offset, const behind &is)
        : rows(some_rows), channels(some_channels), has_relu(is.has_relu),
          x(numbers(rows * channels, 5)), other(is.has_other ? numbers(rows * channels, 17) : x),
          dy(numbers(rows * channels, 7)), left(dy), gain(numbers(channels, 11)),
          shift(numbers(channels, 13)), y(x.size()), dx(x.size(), 0.25f), statistics(3 * channels),
          dgain(channels, 2.0f), dshift(channels, 3.0f), running(2 * channels, 0.5f),
          scratch(cuda_batch_norm_scratch(rows, channels), NAN)
    {
        for (uint64_t i = 0; i < x.size(); i++)
            x[i] += offset * (1 + (float)(i % channels % 3));
        if (!is.has_other)
            std::fill(other.begin(), other.end(), 0.0f);
        cuda_batch_norm(CUDA_TYPE_FLOAT, rows, channels, x.data(), gain.data(), shift.data(),
                        nullptr, is.has_other ? other.data() : nullptr, has_relu, y.data(),
                        statistics.data(), scratch.data(), nullptr);
        cuda_batch_norm_backward(CUDA_TYPE_FLOAT, rows, channels, x.data(), gain.data(),
                                 has_relu && !is.has_other ? shift.data() : nullptr,
                                 has_relu && is.has_other ? y.data() : nullptr, statistics.data(),
                                 false, left.data(), dgain.data(), dshift.data(), true,
                                 running.data(), true, dx.data(), scratch.data(), nullptr);
        cudaStreamSynchronize(nullptr);
    }

    /* Elements that the relu passed, from its output. */
    double gradient(uint64_t at) const
    {
        return !has_relu || y[at] > 0 ? dy[at] : 0;
    }

    reference channel(uint64_t c) const
    {
        reference of;

        for (uint64_t at = c; at < x.size(); at += channels)
            of.mean += x[at] / (double)rows;
        for (uint64_t at = c; at < x.size(); at += channels)
            of.variance += std::pow(x[at] - of.mean, 2) / (double)rows;
        for (uint64_t at = c; at < x.size(); at += channels) {
            of.sum += gradient(at);
            of.product += gradient(at) * (x[at] - of.mean) * of.scale();
        }
        return of;
    }
};

void batch_norm(uint64_t rows, uint64_t channels, float offset, const behind &is)
{
    const batch b(rows, channels, offset, is), again(rows, channels, offset, is);
    /* All results may differ by the distance of a mean to the next float. Variances from squares
     * would differ by far more. */
    const double tolerance = 2e-5 + 1.5e-6 * offset, n = (double)rows;
    double y_found = 0, y_expected = 0, dx_found = 0, dx_expected = 0;
    bool is_y_right = true, is_dx_right = true, is_left_right = true;

    for (uint64_t c = 0; c < channels; c++) {
        const reference of = b.channel(c);

        if (!is_close(b.statistics[3 * c + 2], of.variance, 0, tolerance))
            expect(false, "variance", rows, channels, b.statistics[3 * c + 2], of.variance);
        const double population = rows > 1 ? of.variance * n / (n - 1) : of.variance;
        if (!is_close(b.running[c], 0.45 + 0.1 * of.mean, 0, tolerance) ||
            !is_close(b.running[channels + c], 0.45 + 0.1 * population, 0, tolerance))
            expect(false, "running statistics", rows, channels, b.running[c], 0.45 + 0.1 * of.mean);
        if (!is_close(b.dgain[c], 2 + of.product, std::sqrt(n), tolerance))
            expect(false, "gain's gradient", rows, channels, b.dgain[c], 2 + of.product);
        if (!is_close(b.dshift[c], 3 + of.sum, std::sqrt(n), tolerance))
            expect(false, "shift's gradient", rows, channels, b.dshift[c], 3 + of.sum);
        for (uint64_t at = c; at < b.x.size(); at += channels) {
            const double z = (b.x[at] - of.mean) * of.scale(),
                         made = z * b.gain[c] + b.shift[c] + b.other[at];
            const double y = is.has_relu && made < 0 ? 0 : made;
            const double inner = b.gradient(at) - of.sum / n - z * of.product / n;
            const double dx = 0.25 + b.gain[c] * of.scale() * inner;
            if (is_y_right && !is_close(b.y[at], y, 1, tolerance))
                is_y_right = false, y_found = b.y[at], y_expected = y;
            is_left_right =
                is_left_right && b.left[at] == (is.has_other ? b.gradient(at) : b.dy[at]);
            if (is_dx_right && !is_close(b.dx[at], dx, 1 + of.scale(), tolerance))
                is_dx_right = false, dx_found = b.dx[at], dx_expected = dx;
        }
    }
    expect(is_y_right, "output", rows, channels, y_found, y_expected);
    expect(is_dx_right, "input's gradient", rows, channels, dx_found, dx_expected);
    expect(is_left_right, "the other summand's gradient", rows, channels, 0, 0);
    expect(b.y == again.y && b.dx == again.dx && b.dgain == again.dgain && b.left == again.left &&
               b.statistics == again.statistics,
           "the same again", rows, channels, 0, 0);
}
} // namespace

int main()
{
    const uint64_t sides[][2] = {{1, 1},   {3, 5},   {3, 5000}, {5000, 3},
                                 {64, 49}, {33, 65}, {9, 512}};
    const uint64_t sizes[][2] = {{1, 5},    {2, 1},     {40, 3},    {9000, 3},  {70000, 1},
                                 {257, 32}, {1000, 33}, {4100, 64}, {49, 2048}, {300, 31}};

    for (const auto &side : sides)
        orders(3, side[0], side[1]);
    all_pools<float>(CUDA_TYPE_FLOAT);
    all_pools<__nv_bfloat16>(CUDA_TYPE_BF16);
    all_pools<__half>(CUDA_TYPE_HALF);
    for (const auto &size : sizes)
        for (float offset : {0.0f, 1000.0f})
            for (const behind &is :
                 {behind{false, false}, {false, true}, {true, false}, {true, true}})
                batch_norm(size[0], size[1], offset, is);
    printf("%d cases, %d failed\n", cases, failures);
    return failures > 0;
}
