/**
 * @file emulator.h
 * Runs the kernels of execute/cuda on a CPU: the same sources, compiled by a C++ compiler. The
 * threads of a block are fibers of one thread that take turns at barriers and shuffles; blocks run
 * one after the other. Included by kernel.cuh in place of nvcc's keywords.
 */
#ifndef TY_TEST_GPU_EMULATOR_H
#define TY_TEST_GPU_EMULATOR_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>
#include <type_traits>

using std::isfinite;

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __forceinline__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __shared__ static thread_local
#define __forceinline__ inline
#define __launch_bounds__(...)

struct emulated_index {
    unsigned x, y, z;
};
/* Read in every line of every kernel: types without an initializer, since thread_local with one
 * would check each time. */
extern __thread emulated_index threadIdx, blockIdx, gridDim, blockDim;

void emulate(dim3 grid, unsigned threads, size_t shared_bytes, const std::function<void()> &body);
unsigned char *emulated_shared(void);
/* Barriers of the block, and of the 32 threads of a warp. */
void __syncthreads(void);
void __syncwarp(void);
/* The 32 bits from each thread of the warp; valid until its next barrier but one. */
const uint32_t *emulated_lanes(uint32_t own);
/* The arguments of each thread of the warp in a call that all 32 make together, valid as long. NULL
 * if some are missing or their arguments differ (`same` is a number that stands for them); an error
 * is printed. */
const void *const *emulated_together(const char *call, uint64_t same, const void *own);

/* Puts a kernel's work on a stream. It runs at once, or in its turn, or is recorded in the graph if
 * the stream is being captured. */
void emulated_work(cudaStream_t stream, const void *kernel, std::function<void()> work);
/* Bytes that the next launch of this thread reads and writes; see kernel.cuh. */
void emulated_moves(uint64_t read, uint64_t written);
/* Counts the launch if launches are only counted (emulated_counts.h).
 * @return whether it was counted */
bool emulated_launch_counted(const char *name, dim3 grid);
/* Whether a GPU would accept such a launch. If not, the next error query returns the reason. */
bool emulated_launch_check(const void *kernel, dim3 grid, unsigned threads, size_t shared_bytes);

/* As in CUDA, a launch takes its arguments by value: a graph reruns it with their values at
 * capture. */
template <typename... Parameters, typename... Arguments>
static inline void emulated_launch(const char *name, void (*kernel)(Parameters...), dim3 grid,
                                   unsigned threads, size_t shared_bytes, cudaStream_t stream,
                                   Arguments &&...arguments)
{
    std::tuple<std::remove_cv_t<Parameters>...> taken(static_cast<Parameters>(arguments)...);

    if (!emulated_launch_check((const void *)kernel, grid, threads, shared_bytes) ||
        emulated_launch_counted(name, grid))
        return;
    emulated_work(stream, (const void *)kernel, [=] {
        emulate(grid, threads, shared_bytes, [&] { std::apply(kernel, taken); });
    });
}

#define TY_LAUNCH_GRID(kernel, grid, threads, shared_bytes, stream, ...)                           \
    do {                                                                                           \
        auto *launched_ = kernel;                                                                  \
        emulated_launch(#kernel, launched_, (grid), (unsigned)(threads), (shared_bytes), (stream), \
                        __VA_ARGS__);                                                              \
    } while (0)
#define TY_MOVES(read, written) emulated_moves((read), (written))
#define TY_DYNAMIC_SHARED(name) unsigned char *name = emulated_shared()

static inline float __shfl_xor_sync(unsigned, float value, int mask)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    bits = emulated_lanes(bits)[(threadIdx.x % 32) ^ (unsigned)mask];
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

static inline unsigned __ballot_sync(unsigned, bool is_set)
{
    const uint32_t *lanes = emulated_lanes(is_set ? 1 : 0);
    unsigned mask = 0;
    for (unsigned lane = 0; lane < 32; lane++)
        mask |= lanes[lane] << lane;
    return mask;
}

static inline int __popc(unsigned bits)
{
    return __builtin_popcount(bits);
}

static inline uint32_t __float_as_uint(float value)
{
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

#ifdef TY_EMULATED_RACES /* blocks run concurrently, and the sanitizer sees which accesses are     \
                          * atomic */
template <typename T> static inline T atomicAdd(T *to, T value)
{
    return __atomic_fetch_add(to, value, __ATOMIC_RELAXED);
}

template <typename T> static inline T atomicMin(T *to, T value)
{
    T before = __atomic_load_n(to, __ATOMIC_RELAXED);

    while (value < before && !__atomic_compare_exchange_n(to, &before, value, true,
                                                          __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        ;
    return before;
}
#else /* one fiber runs at a time, so that nothing needs to be atomic */
template <typename T> static inline T atomicAdd(T *to, T value)
{
    T before = *to;
    *to += value;
    return before;
}

template <typename T> static inline T atomicMin(T *to, T value)
{
    T before = *to;
    if (value < before)
        *to = value;
    return before;
}
#endif

#endif
