/* Biases of attention's scores by the distance from query to key. */
#include "cpu_layer.h"

#include <math.h>

/* Farther ones share the last bucket (Raffel et al., 2020, section 2.1). */
#define FARTHEST 128

/* Of the distances in one direction: the first half of the buckets has one each, those of the other
 * half grow with the logarithm. */
static uint64_t bucket_of(uint64_t distance, uint64_t buckets)
{
    const uint64_t exact = buckets / 2;
    uint64_t bucket;

    if (distance < exact)
        return distance;
    if (exact == 0 || exact >= FARTHEST)
        return buckets - 1;
    bucket = exact + (uint64_t)(log((double)distance / (double)exact) /
                                log(FARTHEST / (double)exact) * (double)(buckets - exact));
    return bucket < buckets ? bucket : buckets - 1;
}

/* Raffel et al., "T5", 2020, section 2.1: those of a head are looked up by how far a key is before
 * or behind a query, in one of `buckets` ranges, which get wider with the distance; under a mask
 * there are none behind. */
static uint64_t cpu_relative_bucket(uint64_t query, uint64_t key, uint64_t buckets, bool is_causal)
{
    const uint64_t behind = buckets / 2;

    if (is_causal || buckets == 1)
        return bucket_of(query > key ? query - key : 0, buckets);
    return key > query ? behind + bucket_of(key - query, buckets - behind)
                       : bucket_of(query - key, behind);
}

/* Of keys - 1 + key - query, with one of the two being 0. */
static uint64_t bucket_at(uint64_t at, uint64_t keys, uint64_t buckets, bool is_causal)
{
    const uint64_t none = keys - 1;

    return at < none ? cpu_relative_bucket(none - at, 0, buckets, is_causal)
                     : cpu_relative_bucket(0, at - none, buckets, is_causal);
}

void cpu_relative_spread(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *biases, float *by_distance)
{
    for (uint64_t i = 0; i < 2 * keys - 1; i++)
        by_distance[i] = biases[bucket_at(i, keys, buckets, is_causal) * heads + head];
}

void cpu_relative_gather(uint64_t keys, uint64_t buckets, uint64_t heads, uint64_t head,
                         bool is_causal, const float *by_distance, float *biases)
{
    for (uint64_t i = 0; i < 2 * keys - 1; i++)
        biases[bucket_at(i, keys, buckets, is_causal) * heads + head] += by_distance[i];
}
