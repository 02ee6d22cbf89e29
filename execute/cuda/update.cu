/* Optimizer steps on fp32 weights, with the copy that the passes read. Formulas: optimizer.c. */
#include "kernel.cuh"

template <typename T>
static __global__ void update(cuda_update u, uint64_t count, float *w, const float *g, float *state,
                              T *copy)
{
    FOR_EACH (i, count) {
        if (u.is_adamw) {
            float m = u.beta1 * state[i] + (1.0f - u.beta1) * g[i];
            float v = u.beta2 * state[count + i] + (1.0f - u.beta2) * g[i] * g[i];
            state[i] = m;
            state[count + i] = v;
            w[i] = u.keep * w[i] - u.rate * m / (sqrtf(v) * u.root_scale + u.epsilon);
        } else {
            float v = g[i] + u.decay * w[i];
            if (state != NULL)
                state[i] = v = u.momentum * state[i] + v;
            w[i] -= u.rate * v;
        }
        if (copy != NULL)
            copy[i] = of_float<T>(w[i]);
    }
}

void cuda_update_step(cuda_type type, const cuda_update *u, uint64_t count, float *parameters,
                      const float *gradients, float *state, void *copy, cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(update<T>, grid_for(count), BLOCK, 0, stream, *u, count, parameters,
                                gradients, state, (T *)copy))
}

static __global__ void unscale(uint64_t count, float factor, float *gradients, int32_t *is_bad)
{
    FOR_EACH (i, count) {
        float value = gradients[i] * factor;
        gradients[i] = value;
        if (!isfinite(value))
            *is_bad = 1; /* whoever is last, they all say the same */
    }
}

void cuda_unscale(uint64_t count, float factor, float *gradients, int32_t *is_bad,
                  cudaStream_t stream)
{
    TY_LAUNCH(unscale, grid_for(count), BLOCK, 0, stream, count, factor, gradients, is_bad);
}
