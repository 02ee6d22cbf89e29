/* Common code of the compressors' kernels, in addition to kernel.cuh. */
#ifndef TY_EXECUTE_CUDA_CODEC_KERNEL_CUH
#define TY_EXECUTE_CUDA_CODEC_KERNEL_CUH

#include "kernel.cuh"

#include "codec_math.h"
#include "cuda_codec_kernels.h"
#include "ty_profile.h"

static_assert((int)CODEC_SUM_LANES == (int)WARP, "a warp sums a group");

/* Blocks for `warps` warps. */
static inline uint64_t warps_grid(uint64_t warps)
{
    return (warps * WARP + BLOCK - 1) / BLOCK;
}

/* Index of this warp in the grid. */
static __device__ __forceinline__ uint64_t warp_index(void)
{
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}

#endif
