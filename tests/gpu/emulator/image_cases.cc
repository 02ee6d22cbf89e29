/*
 * Kernels of images by themselves, beside sums in doubles that are spelled out: changes of order,
 * and batch norm of numbers that are far from 0 and close to one another, of any number of channels
 * and pixels. What is done twice gives the same bits.
 */
#include "case_numbers.h"
#include "cuda_kernels.h"

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

/* ---- Batch norm ---- */

constexpr double norm_epsilon = 1e-5;

/* Of one channel, in doubles. */
struct reference {
    double mean = 0, variance = 0, product = 0, sum = 0;

    double scale() const
    {
        return 1 / std::sqrt(variance + norm_epsilon);
    }
};

/* What is behind the norm: another summand, then a relu. */
struct behind {
    bool has_other, has_relu;
};

struct batch {
    uint64_t rows, channels;
    bool has_relu;
    std::vector<float> x, other, dy, left, gain, shift, y, dx, statistics, dgain, dshift, scratch;

    batch(uint64_t some_rows, uint64_t some_channels, float offset, const behind &is)
        : rows(some_rows), channels(some_channels), has_relu(is.has_relu),
          x(numbers(rows * channels, 5)), other(is.has_other ? numbers(rows * channels, 17) : x),
          dy(numbers(rows * channels, 7)), left(dy),
          gain(numbers(channels, 11)), shift(numbers(channels, 13)), y(x.size()),
          dx(x.size(), 0.25f), statistics(3 * channels), dgain(channels, 2.0f),
          dshift(channels, 3.0f), scratch(cuda_batch_norm_scratch(rows, channels), NAN)
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
                                 false, left.data(), dgain.data(), dshift.data(), true, true,
                                 dx.data(), scratch.data(), nullptr);
        cudaStreamSynchronize(nullptr);
    }

    /* What the relu let through, by the output that it made. */
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
    /* By what the float next to a mean is away from it all results may be off; by their squares
     * variances would be by far more. */
    const double tolerance = 2e-5 + 1.5e-6 * offset, n = (double)rows;
    double y_found = 0, y_expected = 0, dx_found = 0, dx_expected = 0;
    bool is_y_right = true, is_dx_right = true, is_left_right = true;

    for (uint64_t c = 0; c < channels; c++) {
        const reference of = b.channel(c);

        if (!is_close(b.statistics[3 * c + 2], of.variance, 0, tolerance))
            expect(false, "variance", rows, channels, b.statistics[3 * c + 2], of.variance);
        if (!is_close(b.dgain[c], 2 + of.product, std::sqrt(n), tolerance))
            expect(false, "gain's gradient", rows, channels, b.dgain[c], 2 + of.product);
        if (!is_close(b.dshift[c], 3 + of.sum, std::sqrt(n), tolerance))
            expect(false, "shift's gradient", rows, channels, b.dshift[c], 3 + of.sum);
        for (uint64_t at = c; at < b.x.size(); at += channels) {
            const double z = (b.x[at] - of.mean) * of.scale(), made = z * b.gain[c] + b.shift[c] + b.other[at];
            const double y = is.has_relu && made < 0 ? 0 : made;
            const double inner = b.gradient(at) - of.sum / n - z * of.product / n;
            const double dx = 0.25 + b.gain[c] * of.scale() * inner;
            if (is_y_right && !is_close(b.y[at], y, 1, tolerance))
                is_y_right = false, y_found = b.y[at], y_expected = y;
            is_left_right = is_left_right && b.left[at] == (is.has_other ? b.gradient(at) : b.dy[at]);
            if (is_dx_right && !is_close(b.dx[at], dx, 1 + of.scale(), tolerance))
                is_dx_right = false, dx_found = b.dx[at], dx_expected = dx;
        }
    }
    expect(is_y_right, "output", rows, channels, y_found, y_expected);
    expect(is_dx_right, "input's gradient", rows, channels, dx_found, dx_expected);
    expect(is_left_right, "the other summand's gradient", rows, channels, 0, 0);
    expect(b.y == again.y && b.dx == again.dx && b.dgain == again.dgain &&
               b.left == again.left && b.statistics == again.statistics,
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
    for (const auto &size : sizes)
        for (float offset : {0.0f, 1000.0f})
            for (const behind &is : {behind{false, false}, {false, true}, {true, false}, {true, true}})
                batch_norm(size[0], size[1], offset, is);
    printf("%d cases, %d failed\n", cases, failures);
    return failures > 0;
}
