/* What the compressors' kernels share, beside kernel.cuh. */
#ifndef TY_EXECUTE_CUDA_CODEC_KERNEL_CUH
#define TY_EXECUTE_CUDA_CODEC_KERNEL_CUH

#include "kernel.cuh"

#include "codec_math.h"
#include "cuda_codec_kernels.h"
#include "ty_profile.h"

static_assert((int)CODEC_SUM_LANES == (int)WARP, "a warp sums a group");

/* Blocks for so many warps. */
static inline uint64_t warps_grid(uint64_t warps)
{
    return (warps * WARP + BLOCK - 1) / BLOCK;
}

/* Which warp of the grid this is. */
static __device__ __forceinline__ uint64_t warp_index(void)
{
    return ((uint64_t)blockIdx.x * blockDim.x + threadIdx.x) / WARP;
}

#endif
