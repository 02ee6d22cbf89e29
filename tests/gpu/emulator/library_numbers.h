/**
 * @file library_numbers.h
 * Numbers of any type, for the stand-ins of libraries.
 */
#ifndef TY_TEST_GPU_LIBRARY_NUMBERS_H
#define TY_TEST_GPU_LIBRARY_NUMBERS_H

#include "codec_kinds.h"
#include "emulated_queue.h"

#include <cudnn.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* Whether a call fails as if it needed memory and got none. */
static inline bool is_out_of_memory(void)
{
    void *memory = NULL;

    if (!emulated_fault("allocate"))
        return false;
    if (cudaMalloc(&memory, 1) != cudaSuccess)
        return true;
    cudaFree(memory);
    return false;
}

static inline float number_get(cudaDataType_t type, const void *from, uint64_t i)
{
    float value;
    uint32_t bits;

    if (type == CUDA_R_32F)
        return ((const float *)from)[i];
    if (type == CUDA_R_16F) {
        half_to_float(1, (const uint16_t *)from + i, &value);
        return value;
    }
    bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void number_put(cudaDataType_t type, void *to, uint64_t i, float value)
{
    uint32_t bits;

    if (type == CUDA_R_32F) {
        ((float *)to)[i] = value;
    } else if (type == CUDA_R_16F) {
        half_from_float(1, &value, (uint16_t *)to + i);
    } else {
        memcpy(&bits, &value, sizeof bits);
        ((uint16_t *)to)[i] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}

static inline cudaDataType_t number_type(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT  ? CUDA_R_32F
           : type == CUDNN_DATA_HALF ? CUDA_R_16F
                                     : CUDA_R_16BF;
}

#endif
