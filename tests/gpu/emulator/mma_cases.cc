/*
 * The stand-in for <mma.h>: the result of a product by a warp, and mistakes, each inserted alone in
 * a process whose output must name it.
 */
#include "mma.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

namespace
{
enum { SIDE = 16, WARP = 32, STRIDE = 24 };
int failures;

/* Parameters of a case; a mistake changes one of them. */
struct doing {
    unsigned shift = 0; /* elements by which the matrices begin after a multiple of 32 bytes */
    unsigned stride = STRIDE; /* of the 16-bit ones */
    unsigned sum_stride = STRIDE;
    unsigned threads = WARP; /* that take part in the product */
    unsigned of_lane_3 = 0;  /* elements by which the matrix of that thread differs */
    bool is_filled = true;
};

struct matrices {
    alignas(32) half a[SIDE * STRIDE + SIDE], b[SIDE * STRIDE + SIDE];
    alignas(32) float c[SIDE * STRIDE];
};

template <typename LayoutA, typename LayoutB> void multiply(matrices *m, doing as)
{
    using namespace nvcuda::wmma;
    fragment<accumulator, SIDE, SIDE, SIDE, float> sum;
    fragment<matrix_a, SIDE, SIDE, SIDE, half, LayoutA> left;
    fragment<matrix_b, SIDE, SIDE, SIDE, half, LayoutB> right;

    if (threadIdx.x >= as.threads)
        return;
    if (as.is_filled)
        fill_fragment(sum, 0.0f);
    load_matrix_sync(left, m->a + as.shift + (threadIdx.x == 3 ? as.of_lane_3 : 0), as.stride);
    load_matrix_sync(right, m->b, STRIDE);
    mma_sync(sum, left, right, sum);
    store_matrix_sync(m->c, sum, as.sum_stride, mem_row_major);
}

float number(int i)
{
    return (float)(i * 7 % 13 - 6);
}

/* Small integers: the sums are exact. */
template <typename LayoutA, typename LayoutB> bool is_right(const doing &as)
{
    using nvcuda::wmma::row_major;
    static matrices m;
    bool is_equal = true;

    for (int i = 0; i < SIDE * STRIDE; i++) {
        m.a[i] = __float2half_rn(number(i));
        m.b[i] = __float2half_rn(number(3 * i + 1));
    }
    emulate(dim3(1), WARP, 0, [&] { multiply<LayoutA, LayoutB>(&m, as); });
    for (int r = 0; r < SIDE; r++)
        for (int c = 0; c < SIDE; c++) {
            float sum = 0;
            for (int i = 0; i < SIDE; i++)
                sum += number(std::is_same<LayoutA, row_major>::value ? r * STRIDE + i
                                                                      : i * STRIDE + r) *
                       number(3 * (std::is_same<LayoutB, row_major>::value ? i * STRIDE + c
                                                                           : c * STRIDE + i) +
                              1);
            is_equal = is_equal && m.c[r * STRIDE + c] == sum;
        }
    return is_equal;
}

void expect(bool is_so, const char *what)
{
    printf("%s %s\n", is_so ? "ok  " : "MISSED", what);
    failures += !is_so;
}

void planted(const char *what, const char *said, const doing &as)
{
    using nvcuda::wmma::row_major;
    std::string found;
    char piece[512];
    ssize_t count;
    int ends[2];

    if (pipe(ends) != 0)
        exit(1);
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        const bool is_equal = is_right<row_major, row_major>(as);
        printf("%s", is_equal ? "equal" : "other numbers");
        fflush(stdout);
        _exit(0);
    }
    close(ends[1]);
    while ((count = read(ends[0], piece, sizeof piece)) > 0)
        found.append(piece, (size_t)count);
    close(ends[0]);
    waitpid(child, nullptr, 0);
    expect(found.find(said) != std::string::npos, what);
}
} // namespace

int main()
{
    using namespace nvcuda::wmma;
    doing as;

    expect(is_right<row_major, row_major>(as), "rows by rows");
    expect(is_right<row_major, col_major>(as), "rows by columns");
    expect(is_right<col_major, row_major>(as), "columns by rows");
    expect(is_right<col_major, col_major>(as), "columns by columns");
    as = {};
    as.shift = 8;
    planted("a matrix at 16 bytes", "load_matrix_sync: a pointer that is no multiple of 32", as);
    as = {};
    as.stride = 20;
    planted("rows of 40 bytes", "load_matrix_sync: a leading dimension", as);
    as = {};
    as.sum_stride = 18;
    planted("sums whose rows are 72 bytes", "store_matrix_sync: a leading dimension", as);
    as = {};
    as.threads = 31;
    planted("a warp without its last thread", "load_matrix_sync: 31 threads", as);
    as = {};
    as.of_lane_3 = 16;
    planted("a lane with a matrix of its own",
            "load_matrix_sync: the threads of a warp have different", as);
    as = {};
    as.is_filled = false;
    planted("sums that begin with anything", "other numbers", as);
    printf("%d missed\n", failures);
    return failures > 0;
}
