#include "relative_buckets.h"

#include <math.h>

/* Larger distances share the last bucket (Raffel et al., 2020, section 2.1). */
#define FARTHEST 128

/* The bucket of a distance in one direction: buckets of the first half have one distance each,
 * those of the second half grow logarithmically. */
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

static uint64_t bucket_between(uint64_t query, uint64_t key, uint64_t buckets, bool is_causal)
{
    const uint64_t behind = buckets / 2;

    if (is_causal || buckets == 1)
        return bucket_of(query > key ? query - key : 0, buckets);
    return key > query ? behind + bucket_of(key - query, buckets - behind)
                       : bucket_of(query - key, behind);
}

/* Either the query or the key is 0. */
uint64_t relative_bucket(uint64_t at, uint64_t keys, uint64_t buckets, bool is_causal)
{
    const uint64_t none = keys - 1;

    return at < none ? bucket_between(none - at, 0, buckets, is_causal)
                     : bucket_between(0, at - none, buckets, is_causal);
}
