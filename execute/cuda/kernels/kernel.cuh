/*
 * Common code of kernels: types, launches, reductions. nvcc compiles the sources for GPUs, and g++
 * for the emulator of the tests (tests/gpu/emulator), where a block's threads take turns on one
 * core. Only this file differs between the two.
 */
#ifndef TY_EXECUTE_CUDA_KERNEL_CUH
#define TY_EXECUTE_CUDA_KERNEL_CUH

#include "cuda_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifdef TY_CUDA_EMULATED
#include "emulator.h"
#else
/* A pointer to the kernel, so that template arguments may have commas. */
#define TY_LAUNCH_GRID(kernel, grid, threads, shared_bytes, stream, ...)                           \
    do {                                                                                           \
        auto *launched_ = kernel;                                                                  \
        launched_<<<(grid), (unsigned)(threads), (shared_bytes), (stream)>>>(__VA_ARGS__);         \
    } while (0)
#define TY_DYNAMIC_SHARED(name)                                                                    \
    extern __shared__ __align__(128) unsigned char shared_[];                                      \
    unsigned char *name = shared_
/* Bytes of device memory that the next launch reads and writes, each counted once. The emulator
 * counts them, and a test compares them with the observed accesses. */
#define TY_MOVES(read, written) ((void)0)
#endif

#define TY_LAUNCH(kernel, blocks, threads, shared_bytes, stream, ...)                              \
    TY_LAUNCH_GRID(kernel, dim3((unsigned)(blocks)), threads, shared_bytes, stream, __VA_ARGS__)

typedef __nv_bfloat16 bf16;

/* Runs the statement with T as the type of activations. */
#define TY_DISPATCH(type, ...)                                                                     \
    switch (type) {                                                                                \
    case CUDA_TYPE_FLOAT: {                                                                        \
        typedef float T;                                                                           \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case CUDA_TYPE_BF16: {                                                                         \
        typedef bf16 T;                                                                            \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    case CUDA_TYPE_HALF: {                                                                         \
        typedef half T;                                                                            \
        __VA_ARGS__;                                                                               \
        break;                                                                                     \
    }                                                                                              \
    }

enum { BLOCK = 256, WARP = 32, MOST_BLOCKS = 65535 };

/* Bytes of `count` activations. */
static inline uint64_t bytes_of(cuda_type type, uint64_t count)
{
    return count * (type == CUDA_TYPE_FLOAT ? sizeof(float) : sizeof(uint16_t));
}

/* Bytes of `count` floats. */
static inline uint64_t float_bytes(uint64_t count)
{
    return count * sizeof(float);
}

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(bf16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float to_float(half x)
{
    return __half2float(x);
}

template <typename T> __device__ __forceinline__ T of_float(float x);
template <> __device__ __forceinline__ float of_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ bf16 of_float<bf16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ half of_float<half>(float x)
{
    return __float2half_rn(x);
}

/* Blocks for a loop that strides over `count` elements with all threads of the grid. */
static inline unsigned grid_for(uint64_t count)
{
    uint64_t blocks = (count + BLOCK - 1) / BLOCK;

    return (unsigned)(blocks < 1 ? 1 : blocks < 16384 ? blocks : 16384);
}

/* Threads of a single block for `count` elements, without idle warps. */
static inline unsigned threads_for(uint64_t count)
{
    return count >= BLOCK ? (unsigned)BLOCK
           : count < WARP ? (unsigned)WARP
                          : (unsigned)((count + WARP - 1) / WARP * WARP);
}

#define FOR_EACH(i, count)                                                                         \
    for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < (count);                \
         i += (uint64_t)gridDim.x * blockDim.x)

static __device__ __forceinline__ float warp_sum(float value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

static __device__ __forceinline__ float warp_maximum(float value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2)
        value = fmaxf(value, __shfl_xor_sync(0xffffffffu, value, offset));
    return value;
}

/* Sum over all threads of a block whose size is a multiple of a warp. Every thread gets the result;
 * the order of additions is fixed. */
static __device__ __forceinline__ float block_sum(float value)
{
    __shared__ float parts[WARP];
    float sum = 0.0f;

    value = warp_sum(value);
    __syncthreads(); /* the last call's sums have been read */
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = value;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / WARP; w++)
        sum += parts[w];
    return sum;
}

static __device__ __forceinline__ float block_maximum(float value)
{
    __shared__ float parts[WARP];
    float maximum;

    value = warp_maximum(value);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        parts[threadIdx.x / WARP] = value;
    __syncthreads();
    maximum = parts[0];
    for (unsigned w = 1; w < blockDim.x / WARP; w++)
        maximum = fmaxf(maximum, parts[w]);
    return maximum;
}

/* Writes or adds a value. */
template <typename T> __device__ __forceinline__ void put(T *to, float value, bool adds)
{
    *to = of_float<T>(adds ? to_float(*to) + value : value);
}

#endif
