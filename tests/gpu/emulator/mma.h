/**
 * @file mma.h
 * Stands in for CUDA's <mma.h>: products of 16 x 16 tiles by a warp, of half or bf16 with sums in
 * floats. Every call is checked against the requirements of the CUDA C++ Programming Guide ("Warp
 * Matrix Functions"). All 32 threads of a warp call it together, with the same arguments. Matrices
 * begin at multiples of 32 bytes, and their rows or columns are a multiple of 16 bytes apart. A
 * violation prints a line with FAIL, and the result is NaN.
 *
 * CUDA leaves open which thread has which elements. Here element i belongs to thread (i + 5) mod
 * 32; elements that were not filled or loaded are NaN.
 */
#ifndef TY_TEST_GPU_EMULATOR_MMA_H
#define TY_TEST_GPU_EMULATOR_MMA_H

#include "emulated_device.h"
#include "emulator.h"

namespace nvcuda
{
namespace wmma
{
struct matrix_a {
};
struct matrix_b {
};
struct accumulator {
};
struct row_major {
};
struct col_major {
};
enum layout_t { mem_row_major, mem_col_major };

enum { EMULATED_SIDE = 16, EMULATED_LANES = 32 };

template <typename Use, int m, int n, int k, typename T, typename Layout = void> struct fragment {
    static_assert(m == EMULATED_SIDE && n == EMULATED_SIDE && k == EMULATED_SIDE,
                  "the other shapes are not emulated");
    static constexpr int num_elements = EMULATED_SIDE * EMULATED_SIDE / EMULATED_LANES;
    T x[num_elements];

    fragment()
    {
        std::memset((void *)x, 0xff, sizeof x);
    }
};

static inline float emulated_float(float x)
{
    return x;
}
static inline float emulated_float(half x)
{
    return __half2float(x);
}
static inline float emulated_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}

/* The tile element that is a thread's e-th, and the location of an element. */
static inline int emulated_element(int e)
{
    return e * EMULATED_LANES + ((int)threadIdx.x + EMULATED_LANES - 5) % EMULATED_LANES;
}
static inline int emulated_lane(int element)
{
    return (element + 5) % EMULATED_LANES;
}

/* The arguments that must be equal in all threads of the warp, as one number. */
static inline uint64_t emulated_same(const void *at, unsigned stride, int layout)
{
    return ((uint64_t)(uintptr_t)at * 31 + stride) * 31 + (uint64_t)layout;
}

/* Whether a matrix is aligned as required, and all threads passed the same one. */
template <typename T>
static bool emulated_matrix(const char *what, const T *at, unsigned stride, bool is_by_rows)
{
    const bool is_whole =
        emulated_together(what, emulated_same(at, stride, is_by_rows), at) != nullptr;
    const bool is_first = threadIdx.x % EMULATED_LANES == 0;

    if ((uintptr_t)at % 32 != 0 && is_first)
        emulated_broken("%s: a pointer that is no multiple of 32 bytes", what);
    if (stride * sizeof(T) % 16 != 0 && is_first)
        emulated_broken("%s: a leading dimension that is no multiple of 16 bytes", what);
    return is_whole && (uintptr_t)at % 32 == 0 && stride * sizeof(T) % 16 == 0;
}

template <typename Fragment, typename T>
static void emulated_load(Fragment &to, const T *at, unsigned stride, bool is_by_rows)
{
    if (!emulated_matrix("load_matrix_sync", at, stride, is_by_rows)) {
        std::memset((void *)to.x, 0xff, sizeof to.x);
        return;
    }
    for (int e = 0; e < Fragment::num_elements; e++) {
        const unsigned row = (unsigned)emulated_element(e) / EMULATED_SIDE;
        const unsigned column = (unsigned)emulated_element(e) % EMULATED_SIDE;
        to.x[e] = at[is_by_rows ? row * stride + column : column * stride + row];
    }
}

template <typename Use, int m, int n, int k, typename T, typename Layout>
static void load_matrix_sync(fragment<Use, m, n, k, T, Layout> &to, const T *at, unsigned stride)
{
    emulated_load(to, at, stride, std::is_same<Layout, row_major>::value);
}

template <int m, int n, int k>
static void load_matrix_sync(fragment<accumulator, m, n, k, float> &to, const float *at,
                             unsigned stride, layout_t layout)
{
    emulated_load(to, at, stride, layout == mem_row_major);
}

template <int m, int n, int k>
static void store_matrix_sync(float *at, const fragment<accumulator, m, n, k, float> &from,
                              unsigned stride, layout_t layout)
{
    if (!emulated_matrix("store_matrix_sync", at, stride, layout == mem_row_major))
        return;
    for (int e = 0; e < from.num_elements; e++) {
        const unsigned row = (unsigned)emulated_element(e) / EMULATED_SIDE;
        const unsigned column = (unsigned)emulated_element(e) % EMULATED_SIDE;
        at[layout == mem_row_major ? row * stride + column : column * stride + row] = from.x[e];
    }
}

template <typename Use, int m, int n, int k, typename T, typename Layout>
static void fill_fragment(fragment<Use, m, n, k, T, Layout> &to, const T &value)
{
    for (T &x : to.x)
        x = value;
}

/* out = a b + c. A thread's elements are in one column, in every second row. */
template <int m, int n, int k, typename T, typename LayoutA, typename LayoutB>
static void mma_sync(fragment<accumulator, m, n, k, float> &out,
                     const fragment<matrix_a, m, n, k, T, LayoutA> &a,
                     const fragment<matrix_b, m, n, k, T, LayoutB> &b,
                     const fragment<accumulator, m, n, k, float> &c)
{
    enum { EACH = EMULATED_SIDE * EMULATED_SIDE / EMULATED_LANES };
    struct numbers {
        float a[EACH], b[EACH];
    } own;
    const numbers *const *all;

    for (int e = 0; e < EACH; e++) {
        own.a[e] = emulated_float(a.x[e]);
        own.b[e] = emulated_float(b.x[e]);
    }
    all = (const numbers *const *)emulated_together(
        "mma_sync", emulated_same(nullptr, 0, std::is_same<T, half>::value), &own);
    for (int e = 0; e < EACH; e++)
        out.x[e] = all == nullptr ? NAN : c.x[e];
    for (int i = 0; i < EMULATED_SIDE && all != nullptr; i++) {
        const int right = i * EMULATED_SIDE + emulated_element(0) % EMULATED_SIDE;
        const float factor = all[emulated_lane(right)]->b[right / EMULATED_LANES];
        const int left = emulated_element(0) / EMULATED_SIDE * EMULATED_SIDE + i;
        const float *lefts = all[emulated_lane(left)]->a; /* of every second row */
        for (int e = 0; e < EACH; e++)
            out.x[e] += lefts[e] * factor;
    }
    __syncwarp(); /* all threads have read all values */
}
} // namespace wmma
} // namespace nvcuda

#endif
