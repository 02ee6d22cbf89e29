/* The smooth activations, for kernels and for the host. Formulas and sources: cpu_math.h. */
#ifndef TY_EXECUTE_CUDA_ACTIVATION_H
#define TY_EXECUTE_CUDA_ACTIVATION_H

#include <math.h>

#ifdef __CUDACC__
#define TY_BOTH static __host__ __device__ __forceinline__
#else
#define TY_BOTH static inline
#endif

#define GELU_SCALE 1.5957691216057308f /* 2 sqrt(2/pi) */
#define GELU_CUBIC 0.044715f

TY_BOTH float sigmoid_of(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

TY_BOTH float gelu_of(float x)
{
    return x * sigmoid_of(GELU_SCALE * (x + GELU_CUBIC * x * x * x));
}

TY_BOTH float gelu_slope(float x)
{
    float s = sigmoid_of(GELU_SCALE * (x + GELU_CUBIC * x * x * x));

    return s + x * s * (1.0f - s) * GELU_SCALE * (1.0f + 3.0f * GELU_CUBIC * x * x);
}

TY_BOTH float silu_slope(float x)
{
    float s = sigmoid_of(x);

    return s * (1.0f + x * (1.0f - s));
}

#endif
