/*
 * Layer norm and RMS norm in isolation, for any number of rows and columns, against explicit sums
 * in doubles. The columns cover every shape of the kernel that computes all gradients at once, and
 * more than it supports; with and without gradients of the input, of gain and of shift. Repeated
 * runs give the same bits, and scratch has the stated size.
 */
#include "case_numbers.h"
#include "cuda_kernels.h"

#include <cmath>
#include <cstdio>
#include <vector>

namespace
{
int failures, cases;
constexpr double epsilon = 1e-5;
constexpr float beyond = -7.0f; /* after the scratch */

struct asked {
    bool is_rms, adds;
    bool has_parameters, has_input; /* whose gradients are wanted */
    bool is_sum;                    /* the normalized input is a sum of two */
};

struct norm {
    uint64_t rows, n;
    std::vector<float> one, other, x, dy, gain, shift, y, dx, statistics, dgain, dshift, scratch;

    norm(uint64_t some_rows, uint64_t some_n, const asked &a)
        : rows(some_rows), n(some_n), one(numbers(rows * n, 5)), other(numbers(rows * n, 17)),
          x(one.size(), NAN), dy(numbers(rows * n, 7)), gain(numbers(n, 11)), shift(numbers(n, 13)),
          y(x.size()), dx(x.size(), 0.25f), statistics(2 * rows), dgain(n, 2.0f), dshift(n, 3.0f),
          scratch(cuda_norm_scratch(a.is_rms, rows, n), NAN)
    {
        for (float &value : one)
            value += 0.5f;
        if (!a.is_sum)
            x = one;
        scratch.push_back(beyond);
        cuda_norm(CUDA_TYPE_FLOAT, a.is_rms, rows, n, one.data(), a.is_sum ? other.data() : nullptr,
                  a.is_sum ? x.data() : nullptr, gain.data(), a.is_rms ? nullptr : shift.data(),
                  y.data(), statistics.data(), nullptr);
        cuda_norm_backward(CUDA_TYPE_FLOAT, a.is_rms, rows, n, x.data(), gain.data(),
                           statistics.data(), dy.data(), a.has_parameters ? dgain.data() : nullptr,
                           a.has_parameters && !a.is_rms ? dshift.data() : nullptr, a.adds, a.adds,
                           a.has_input ? dx.data() : nullptr, scratch.data(), nullptr);
        cudaStreamSynchronize(nullptr);
    }
};

/* Reports the first error in one of the results. */
struct found {
    const char *what;
    double tolerance;
    bool is_wrong;
    uint64_t at;
    double value, expected;

    void compare(uint64_t i, double is, double should)
    {
        if (is_wrong || std::fabs(is - should) <= tolerance * (1 + std::fabs(should)))
            return;
        *this = {what, tolerance, true, i, is, should};
    }
};

void check(uint64_t rows, uint64_t n, const asked &a)
{
    const norm done(rows, n, a), again(rows, n, a);
    const double many = std::sqrt((double)rows), count = (double)n;
    const bool has_shift = a.has_parameters && !a.is_rms;
    found results[] = {{"output", 1e-4, false, 0, 0, 0},
                       {"input's gradient", 3e-4, false, 0, 0, 0},
                       {"gain's gradient", 1e-4 * many, false, 0, 0, 0},
                       {"shift's gradient", 1e-4 * many, false, 0, 0, 0}};
    std::vector<double> dgain(n, a.adds && a.has_parameters ? 2 : 0),
        dshift(n, a.adds && has_shift ? 3 : 0);

    for (uint64_t r = 0; r < rows; r++) {
        const float *x = &done.x[r * n], *dy = &done.dy[r * n];
        double mean = 0, squares = 0, sum = 0, product = 0;
        for (uint64_t c = 0; c < n; c++)
            mean += a.is_rms ? 0 : x[c] / count;
        for (uint64_t c = 0; c < n; c++)
            squares += std::pow(x[c] - mean, 2) / count;
        const double scale = 1 / std::sqrt(squares + epsilon);
        for (uint64_t c = 0; c < n; c++) {
            const double e = dy[c] * (double)done.gain[c];
            sum += a.is_rms ? 0 : e / count;
            product += e * (x[c] - mean) * scale / count;
        }
        for (uint64_t c = 0; c < n; c++) {
            const double z = (x[c] - mean) * scale;
            const double d = (dy[c] * (double)done.gain[c] - sum - z * product) * scale;
            results[0].compare(r * n + c, done.y[r * n + c],
                               z * done.gain[c] + (a.is_rms ? 0 : done.shift[c]));
            results[1].compare(r * n + c, done.dx[r * n + c],
                               !a.has_input ? 0.25
                               : a.adds     ? 0.25 + d
                                            : d);
            dgain[c] += a.has_parameters ? dy[c] * z : 0;
            dshift[c] += has_shift ? dy[c] : 0;
        }
    }
    for (uint64_t c = 0; c < n; c++) {
        results[2].compare(c, done.dgain[c], a.has_parameters ? dgain[c] : 2);
        results[3].compare(c, done.dshift[c], has_shift ? dshift[c] : 3);
    }
    const bool is_same = done.y == again.y && done.dx == again.dx && done.dgain == again.dgain &&
                         done.dshift == again.dshift;
    bool is_sum = true;
    for (uint64_t i = 0; i < done.x.size() && a.is_sum; i++)
        is_sum = is_sum && done.x[i] == done.one[i] + done.other[i];
    const bool is_inside = done.scratch.back() == beyond;
    bool is_right = is_same && is_inside && is_sum;
    for (const found &f : results) {
        is_right = is_right && !f.is_wrong;
        if (f.is_wrong)
            printf("%s %lu: %.9g, expected %.9g\n", f.what, (unsigned long)f.at, f.value,
                   f.expected);
    }
    cases++;
    failures += !is_right;
    if (!is_right)
        printf("FAIL %s of %lu x %lu%s%s%s%s%s%s\n", a.is_rms ? "rms norm" : "layer norm",
               (unsigned long)rows, (unsigned long)n, a.adds ? ", added" : "",
               a.has_parameters ? "" : ", of the input alone",
               a.has_input ? "" : ", of gain and shift alone", is_sum ? "" : ": another sum",
               is_same ? "" : ": not the same again",
               is_inside ? "" : ": writes behind its scratch");
}
} // namespace

int main()
{
    const uint64_t sizes[][2] = {{1, 1},     {1, 5},     {40, 3},    {5000, 8},  {300, 64},
                                 {150, 70},  {77, 300},  {50, 768},  {9000, 33}, {33, 1024},
                                 {21, 1025}, {30, 1600}, {13, 3000}, {2, 5000},  {11, 5000},
                                 {9, 6016},  {9, 6017},  {5, 12032}, {5, 12033}};

    for (const auto &size : sizes)
        for (bool is_rms : {false, true}) {
            check(size[0], size[1], {is_rms, false, true, true, false});
            check(size[0], size[1], {is_rms, true, true, true, true});
            check(size[0], size[1], {is_rms, true, false, true, false});
            check(size[0], size[1], {is_rms, true, true, false, false});
        }
    printf("%d cases, %d failed\n", cases, failures);
    return failures > 0;
}
