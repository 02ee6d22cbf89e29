/**
 * @file relative_buckets.h
 * Biases of attention scores by the distance from query to key (Raffel et al., "T5", 2020,
 * section 2.1). A head has one bias for each of `buckets` ranges of that distance, before or after
 * the query; ranges get wider with the distance. With a causal mask there are no ranges after the
 * query. The same on every backend. Internal to execute/.
 */
#ifndef TY_EXECUTE_RELATIVE_BUCKETS_H
#define TY_EXECUTE_RELATIVE_BUCKETS_H

#include <stdbool.h>
#include <stdint.h>

/** The range of the distance `at` = keys - 1 + key - query, less than 2 keys - 1. */
uint64_t relative_bucket(uint64_t at, uint64_t keys, uint64_t buckets, bool is_causal);

#endif
