/* Rows of a table chosen by tokens, and positions; both in this rank's shard. */
#include "kernel.cuh"

static __device__ __forceinline__ bool is_within(uint64_t i, uint64_t first, uint64_t count)
{
    return i >= first && i - first < count;
}

template <typename T>
static __global__ void embedding(cuda_embedding_part p, const int32_t *tokens, const T *table,
                                 const T *positions, T *y)
{
    FOR_EACH (i, p.count * p.features) {
        uint64_t place = i / p.features, f = i % p.features, word = (uint64_t)tokens[place];
        float value = 0.0f;
        if (is_within(word, p.first_word, p.words))
            value = to_float(table[(word - p.first_word) * p.features + f]);
        if (positions != NULL && is_within(f, p.first_feature, p.own_features))
            value += to_float(positions[token_place(&p.runs, place % p.length) * p.own_features +
                                        f - p.first_feature]);
        y[i] = of_float<T>(value);
    }
}

void cuda_embedding(cuda_type type, const cuda_embedding_part *part, const int32_t *tokens,
                    const void *table, const void *positions, void *y, cudaStream_t stream)
{
    /* Assumes that no two places have the same word. */
    TY_MOVES(float_bytes(part->count) + bytes_of(type, part->count * part->features) +
                 (positions != NULL ? bytes_of(type, part->length * part->own_features) : 0),
             bytes_of(type, part->count * part->features));
    TY_DISPATCH(type,
                TY_LAUNCH(embedding<T>, grid_for(part->count * part->features), BLOCK, 0, stream,
                          *part, tokens, (const T *)table, (const T *)positions, (T *)y))
}

/* One block per group of places with the same token. */
template <typename T>
static __global__ void table_gradient(cuda_embedding_part p, cuda_token_groups groups, const T *dy,
                                      float *dtable)
{
    int32_t group = (int32_t)blockIdx.x;
    uint64_t word;

    if (group >= *groups.group_count)
        return;
    word = (uint64_t)groups.group_tokens[group];
    if (!is_within(word, p.first_word, p.words))
        return;
    for (uint64_t f = threadIdx.x; f < p.features; f += blockDim.x) {
        float sum = 0.0f;
        for (int32_t k = groups.starts[group]; k < groups.starts[group + 1]; k++)
            sum += to_float(dy[(uint64_t)groups.order[k] * p.features + f]);
        dtable[(word - p.first_word) * p.features + f] += sum;
    }
}

template <typename T>
static __global__ void position_gradient(cuda_embedding_part p, const T *dy, float *dpositions)
{
    FOR_EACH (i, p.length * p.own_features) {
        uint64_t token = i / p.own_features, f = i % p.own_features;
        uint64_t at = token * p.features + p.first_feature + f;
        float sum = 0.0f;
        for (; at < p.count * p.features; at += p.length * p.features)
            sum += to_float(dy[at]);
        dpositions[token_place(&p.runs, token) * p.own_features + f] += sum;
    }
}

void cuda_embedding_backward(cuda_type type, const cuda_embedding_part *part,
                             const cuda_token_groups *groups, uint64_t most_groups, const void *dy,
                             float *dtable, float *dpositions, cudaStream_t stream)
{
    TY_MOVES(bytes_of(type, part->count * part->features) +
                 float_bytes(part->count + most_groups * (2 + part->features) + 2),
             float_bytes(most_groups * part->features));
    TY_DISPATCH(type, TY_LAUNCH(table_gradient<T>, most_groups, BLOCK, 0, stream, *part, *groups,
                                (const T *)dy, dtable))
    if (dpositions == NULL)
        return;
    TY_MOVES(bytes_of(type, part->count * part->own_features) +
                 float_bytes(part->length * part->own_features),
             float_bytes(part->length * part->own_features));
    TY_DISPATCH(type, TY_LAUNCH(position_gradient<T>, grid_for(part->length * part->own_features),
                                BLOCK, 0, stream, *part, (const T *)dy, dpositions))
}
