/* Biases of attention's scores by the distance from query to key. */
#include "cpu_layer.h"
#include "relative_buckets.h"

void cpu_relative_spread(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *biases, float *by_distance)
{
    for (uint64_t i = 0; i < 2 * keys - 1; i++)
        by_distance[i] = biases[relative_bucket(i, keys, buckets, is_causal) * heads + head];
}

void cpu_relative_gather(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *by_distance, float *biases)
{
    for (uint64_t i = 0; i < 2 * keys - 1; i++)
        biases[relative_bucket(i, keys, buckets, is_causal) * heads + head] += by_distance[i];
}
