/*
 * Rows of activations, 16 bytes at a time: as wide as a thread loads and stores. A row may begin
 * and end anywhere: the numbers before its first whole piece and after its last go one by one.
 */
#ifndef TY_EXECUTE_CUDA_VECTORS_CUH
#define TY_EXECUTE_CUDA_VECTORS_CUH

#include "kernel.cuh"

/* N numbers side by side, at a multiple of their size. */
template <typename T, int N> struct alignas(N * sizeof(T)) numbers {
    T at[N];
};

/* As many as 16 bytes are. */
template <typename T> struct piece {
    static constexpr int SIZE = 16 / sizeof(T);
};

template <typename T, int N>
static __device__ __forceinline__ void numbers_load(const T *from, float (&x)[N])
{
    const numbers<T, N> bits = *reinterpret_cast<const numbers<T, N> *>(from);

#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = to_float(bits.at[i]);
}

template <typename T, int N>
static __device__ __forceinline__ void numbers_store(T *to, const float (&x)[N])
{
    numbers<T, N> bits;

#pragma unroll
    for (int i = 0; i < N; i++)
        bits.at[i] = of_float<T>(x[i]);
    *reinterpret_cast<numbers<T, N> *>(to) = bits;
}

/* As `put`. */
template <typename T, int N>
static __device__ __forceinline__ void numbers_put(T *to, float (&x)[N], bool adds)
{
    if (adds) {
        float before[N];
        numbers_load(to, before);
#pragma unroll
        for (int i = 0; i < N; i++)
            x[i] += before[i];
    }
    numbers_store(to, x);
}

/* The whole pieces of a row: [first, end); of those before and after there are `odd`. */
struct row_pieces {
    int first, end, odd;
};

template <typename T>
static __device__ __forceinline__ row_pieces pieces_of(const T *row, int count)
{
    const int size = piece<T>::SIZE, lead = (int)((uintptr_t)row % 16 / sizeof(T));
    row_pieces p;

    p.first = lead > 0 ? size - lead : 0;
    p.first = p.first < count ? p.first : count;
    p.end = p.first + (count - p.first) / size * size;
    p.odd = count - (p.end - p.first);
    return p;
}

/* The i-th of the odd ones. */
static __device__ __forceinline__ int odd_at(const row_pieces &p, int i)
{
    return i < p.first ? i : p.end + i - p.first;
}

/* Threads of a block that takes a row by itself; at least as many as there may be odd ones. */
template <typename T> static inline unsigned threads_for_row(uint64_t count)
{
    return threads_for((count + piece<T>::SIZE - 1) / piece<T>::SIZE);
}

#endif
