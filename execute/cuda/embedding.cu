/* Rows of a table chosen by tokens, and positions. */
#include "kernel.cuh"

template <typename T>
static __global__ void embedding(uint64_t count, uint64_t length, uint64_t features,
                                 const int32_t *tokens, const float *table, const float *positions,
                                 T *y)
{
    FOR_EACH (i, count * features) {
        uint64_t place = i / features, f = i % features;
        float value = table[(uint64_t)tokens[place] * features + f];
        if (positions != NULL)
            value += positions[place % length * features + f];
        y[i] = of_float<T>(value);
    }
}

void cuda_embedding(cuda_type type, uint64_t count, uint64_t length, uint64_t features,
                    const int32_t *tokens, const float *table, const float *positions, void *y,
                    cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(embedding<T>, grid_for(count * features), BLOCK, 0, stream, count,
                                length, features, tokens, table, positions, (T *)y))
}

/* One block a group of places that hold one token. */
template <typename T>
static __global__ void table_gradient(cuda_token_groups groups, uint64_t features, const T *dy,
                                      float *dtable)
{
    int32_t group = (int32_t)blockIdx.x;

    if (group >= *groups.group_count)
        return;
    for (uint64_t f = threadIdx.x; f < features; f += blockDim.x) {
        float sum = 0.0f;
        for (int32_t k = groups.starts[group]; k < groups.starts[group + 1]; k++)
            sum += to_float(dy[(uint64_t)groups.order[k] * features + f]);
        dtable[(uint64_t)groups.group_tokens[group] * features + f] += sum;
    }
}

template <typename T>
static __global__ void position_gradient(uint64_t count, uint64_t length, uint64_t features,
                                         const T *dy, float *dpositions)
{
    FOR_EACH (i, length * features) {
        float sum = 0.0f;
        for (uint64_t at = i; at < count * features; at += length * features)
            sum += to_float(dy[at]);
        dpositions[i] += sum;
    }
}

void cuda_embedding_backward(cuda_type type, uint64_t count, uint64_t length, uint64_t features,
                             const cuda_token_groups *groups, uint64_t most_groups, const void *dy,
                             float *dtable, float *dpositions, cudaStream_t stream)
{
    TY_DISPATCH(type, TY_LAUNCH(table_gradient<T>, most_groups, BLOCK, 0, stream, *groups, features,
                                (const T *)dy, dtable))
    if (dpositions != NULL)
        TY_DISPATCH(type, TY_LAUNCH(position_gradient<T>, grid_for(length * features), BLOCK, 0,
                                    stream, count, length, features, (const T *)dy, dpositions))
}
