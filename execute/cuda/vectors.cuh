/*
 * Rows of activations, 16 bytes at a time: as wide as a thread loads and stores. A row may begin
 * and end anywhere: the numbers before its first whole piece and after its last go one by one.
 */
#ifndef TY_EXECUTE_CUDA_VECTORS_CUH
#define TY_EXECUTE_CUDA_VECTORS_CUH

#include "kernel.cuh"

template <typename T> struct piece {
    static constexpr int SIZE = 16 / sizeof(T);
    struct alignas(16) bits {
        T at[SIZE];
    };
};

/** @param from a multiple of 16 bytes */
template <typename T>
static __device__ __forceinline__ void piece_load(const T *from, float (&x)[piece<T>::SIZE])
{
    const typename piece<T>::bits bits = *reinterpret_cast<const typename piece<T>::bits *>(from);

#pragma unroll
    for (int i = 0; i < piece<T>::SIZE; i++)
        x[i] = to_float(bits.at[i]);
}

template <typename T>
static __device__ __forceinline__ void piece_store(T *to, const float (&x)[piece<T>::SIZE])
{
    typename piece<T>::bits bits;

#pragma unroll
    for (int i = 0; i < piece<T>::SIZE; i++)
        bits.at[i] = of_float<T>(x[i]);
    *reinterpret_cast<typename piece<T>::bits *>(to) = bits;
}

/* A piece, or one number. */
template <typename T, int N>
static __device__ __forceinline__ void numbers_load(const T *from, float (&x)[N])
{
    if constexpr (N == 1)
        x[0] = to_float(*from);
    else
        piece_load(from, x);
}

template <typename T, int N>
static __device__ __forceinline__ void numbers_store(T *to, const float (&x)[N])
{
    if constexpr (N == 1)
        *to = of_float<T>(x[0]);
    else
        piece_store(to, x);
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
