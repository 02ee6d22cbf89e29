/*
 * Rows of activations in pieces of 16 bytes, the widest load and store of a thread. Rows may be
 * unaligned: numbers before the first aligned piece and after the last one are accessed one by one.
 */
#ifndef TY_EXECUTE_CUDA_VECTORS_CUH
#define TY_EXECUTE_CUDA_VECTORS_CUH

#include "kernel.cuh"

/* A word of that size, for a single load or store. */
template <int BYTES> struct word;
template <> struct word<2> {
    typedef unsigned short bits;
};
template <> struct word<4> {
    typedef unsigned bits;
};
template <> struct word<8> {
    typedef unsigned long long bits;
};
template <> struct word<16> {
    typedef uint4 bits;
};

/* N adjacent numbers, aligned to their size. */
template <typename T, int N> struct alignas(N * sizeof(T)) numbers {
    T at[N];
};

/* As many as fit 16 bytes. */
template <typename T> struct piece {
    static constexpr int SIZE = 16 / sizeof(T);
};

template <typename T, int N>
static __device__ __forceinline__ numbers<T, N> numbers_at(const T *from)
{
    typedef typename word<N * sizeof(T)>::bits word_bits;
    const word_bits bits = *reinterpret_cast<const word_bits *>(from);
    numbers<T, N> found;

    memcpy(&found, &bits, sizeof found);
    return found;
}

template <typename T, int N>
static __device__ __forceinline__ void numbers_load(const T *from, float (&x)[N])
{
    const numbers<T, N> found = numbers_at<T, N>(from);

#pragma unroll
    for (int i = 0; i < N; i++)
        x[i] = to_float(found.at[i]);
}

/* Packs two 16-bit numbers. */
static __device__ __forceinline__ unsigned pair_of(float x, float y, const bf16 *)
{
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x, y);
    unsigned bits;

    memcpy(&bits, &pair, sizeof bits);
    return bits;
}
static __device__ __forceinline__ unsigned pair_of(float x, float y, const half *)
{
    const __half2 pair = __floats2half2_rn(x, y);
    unsigned bits;

    memcpy(&bits, &pair, sizeof bits);
    return bits;
}

template <typename T, int N>
static __device__ __forceinline__ void numbers_store(T *to, const float (&x)[N])
{
    typedef typename word<N * sizeof(T)>::bits word_bits;

    if constexpr (N == 1) {
        *to = of_float<T>(x[0]);
    } else if constexpr (sizeof(T) == sizeof(float)) {
        word_bits bits;
        memcpy(&bits, x, sizeof bits);
        *reinterpret_cast<word_bits *>(to) = bits;
    } else {
        unsigned pairs[N / 2];
        word_bits bits;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            pairs[i] = pair_of(x[2 * i], x[2 * i + 1], to);
        memcpy(&bits, pairs, sizeof bits);
        *reinterpret_cast<word_bits *>(to) = bits;
    }
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

/* The aligned pieces of a row: [first, end); `odd` numbers are outside them. */
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

/* Index of the i-th odd number. */
static __device__ __forceinline__ int odd_at(const row_pieces &p, int i)
{
    return i < p.first ? i : p.end + i - p.first;
}

/* Threads of a block for one row; at least the largest number of odd ones. */
template <typename T> static inline unsigned threads_for_row(uint64_t count)
{
    return threads_for((count + piece<T>::SIZE - 1) / piece<T>::SIZE);
}

#endif
