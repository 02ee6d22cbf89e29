/* Kernels on weights and gradients: optimizer steps on fp32 weights, with the copy that the passes
 * read (formulas: optimizer.c), norms, means. */
#include "kernel.cuh"

/* The tensor of a set's i-th float: the last one that begins at or before it. */
static __device__ uint32_t part_of(const cuda_copy &copy, uint64_t i)
{
    uint32_t low = 0, high = copy.part_count;

    while (high - low > 1) {
        const uint32_t middle = (low + high) / 2;
        if (copy.starts[middle] <= i)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static __device__ uint64_t copy_place(const cuda_copy &copy, uint64_t i)
{
    const uint32_t part = part_of(copy, i);

    return copy.places[part] + (i - copy.starts[part]);
}

template <typename T>
static __global__ void copy_make(cuda_copy copy, uint64_t first, uint64_t count, const float *from)
{
    FOR_EACH (i, count)
        ((T *)copy.weights)[copy_place(copy, first + i)] = of_float<T>(from[i]);
}

void cuda_copy_make(cuda_type type, const cuda_copy *copy, uint64_t first, uint64_t count,
                    const float *from, cudaStream_t stream)
{
    TY_MOVES(float_bytes(count) + copy->part_count * 2 * sizeof *copy->starts,
             bytes_of(type, count));
    TY_DISPATCH(
        type, TY_LAUNCH(copy_make<T>, grid_for(count), BLOCK, 0, stream, *copy, first, count, from))
}

template <typename T>
static __global__ void copy_spread(cuda_copy copy, uint64_t first, uint64_t count, const T *from,
                                   float *set)
{
    FOR_EACH (i, count) {
        const uint32_t part = part_of(copy, first + i);
        const uint64_t at = first + i - copy.starts[part];

        ((T *)copy.weights)[copy.places[part] + at] = from[i];
        if (copy.floats[part] != CUDA_NO_FLOATS)
            set[copy.floats[part] + at] = to_float(from[i]);
    }
}

void cuda_copy_spread(cuda_type type, const cuda_copy *copy, uint64_t first, uint64_t count,
                      const void *from, float *set, cudaStream_t stream)
{
    /* Excludes the floats, which are gains and biases. */
    TY_MOVES(bytes_of(type, count) + copy->part_count * 3 * sizeof *copy->starts,
             bytes_of(type, count));
    TY_DISPATCH(type, TY_LAUNCH(copy_spread<T>, grid_for(count), BLOCK, 0, stream, *copy, first,
                                count, (const T *)from, set))
}

template <typename T>
static __global__ void update(cuda_update u, uint64_t first, uint64_t count, float *w,
                              const float *g, float *state, cuda_copy copy)
{
    FOR_EACH (i, count) {
        if (u.is_adamw) {
            float m = u.beta1 * state[2 * i] + (1.0f - u.beta1) * g[i];
            float v = u.beta2 * state[2 * i + 1] + (1.0f - u.beta2) * g[i] * g[i];
            state[2 * i] = m;
            state[2 * i + 1] = v;
            w[i] = u.keep * w[i] - u.rate * m / (sqrtf(v) * u.root_scale + u.epsilon);
        } else {
            float v = g[i] + u.decay * w[i];
            if (state != NULL)
                state[i] = v = u.momentum * state[i] + v;
            w[i] -= u.rate * v;
        }
        if (copy.weights != NULL)
            ((T *)copy.weights)[copy_place(copy, first + i)] = of_float<T>(w[i]);
    }
}

void cuda_update_step(cuda_type type, const cuda_update *u, uint64_t first, uint64_t count,
                      float *parameters, const float *gradients, float *state,
                      const cuda_copy *copy, cudaStream_t stream)
{
    const cuda_copy none = {}, to = copy != NULL ? *copy : none;

    [[maybe_unused]] const uint64_t states = state == NULL ? 0 : u->is_adamw ? 2 : 1;

    TY_MOVES(float_bytes((2 + states) * count) + to.part_count * 2 * sizeof *to.starts,
             float_bytes((1 + states) * count) + (copy != NULL ? bytes_of(type, count) : 0));
    TY_DISPATCH(type, TY_LAUNCH(update<T>, grid_for(count), BLOCK, 0, stream, *u, first, count,
                                parameters, gradients, state, to))
}

/* Adds the threads' sums in order. */
static __device__ double block_total(double own)
{
    __shared__ double sums[BLOCK];
    double total = 0.0;

    sums[threadIdx.x] = own;
    __syncthreads();
    for (unsigned t = 0; t < BLOCK && threadIdx.x == 0; t++)
        total += sums[t];
    return total;
}

static __global__ void square_parts(uint64_t count, const float *x, double *parts)
{
    double own = 0.0, total;

    FOR_EACH (i, count)
        own += (double)x[i] * (double)x[i];
    total = block_total(own);
    if (threadIdx.x == 0)
        parts[blockIdx.x] = total;
}

static __global__ void square_join(unsigned count, double *parts)
{
    double total = block_total(threadIdx.x < count ? parts[threadIdx.x] : 0.0);

    if (threadIdx.x == 0)
        parts[0] = total;
}

void cuda_squares(uint64_t count, const float *x, double *parts, cudaStream_t stream)
{
    const unsigned blocks = grid_for(count),
                   made = blocks < CUDA_SQUARE_PARTS ? blocks : CUDA_SQUARE_PARTS;

    static_assert((int)CUDA_SQUARE_PARTS <= (int)BLOCK, "one block joins them");
    TY_MOVES(float_bytes(count), made * sizeof *parts);
    TY_LAUNCH(square_parts, made, BLOCK, 0, stream, count, x, parts);
    TY_MOVES(made * sizeof *parts, sizeof *parts);
    TY_LAUNCH(square_join, 1, BLOCK, 0, stream, made, parts);
}

static __global__ void divide(uint64_t count, float divisor, float *x)
{
    FOR_EACH (i, count)
        x[i] /= divisor;
}

void cuda_divide(uint64_t count, float divisor, float *x, cudaStream_t stream)
{
    TY_MOVES(float_bytes(count), float_bytes(count));
    TY_LAUNCH(divide, grid_for(count), BLOCK, 0, stream, count, divisor, x);
}

static __global__ void unscale(uint64_t count, float factor, float *gradients, int32_t *is_bad)
{
    FOR_EACH (i, count) {
        float value = gradients[i] * factor;
        gradients[i] = value;
        if (!isfinite(value))
            *is_bad = 1; /* all threads write the same value */
    }
}

void cuda_unscale(uint64_t count, float factor, float *gradients, int32_t *is_bad,
                  cudaStream_t stream)
{
    TY_MOVES(float_bytes(count), float_bytes(count));
    TY_LAUNCH(unscale, grid_for(count), BLOCK, 0, stream, count, factor, gradients, is_bad);
}
