/**
 * @file shards.h
 * A rank's shards of layers and of their parameter tensors: the rules of ty_parallel_group
 * (device.h), the same on every backend. Internal to execute/.
 *
 * A rank's shard of n rows, columns or words begins at ceil(n / ranks) * rank and has at most
 * ceil(n / ranks) of them. A rank's tensors have room for as many; elements after the last are 0.
 */
#ifndef TY_EXECUTE_SHARDS_H
#define TY_EXECUTE_SHARDS_H

#include "device.h"
#include "token_runs.h"

typedef ty_layer_tensor sharded_tensor;

/** One of the ranks over which a tensor is sharded. */
typedef struct shard_place {
    uint32_t ranks, rank;
} shard_place;

typedef struct shard_range {
    uint64_t first, count;
} shard_range;

/** A run of elements that are contiguous in the unsharded tensor and in a rank's shard of it. */
typedef struct rank_run {
    uint64_t whole, part, count; /* starts in the two, and length */
} rank_run;

uint32_t tp_size_of(const ty_stage_options *options); /* at least 1 */
/** Elements of `count` for which each rank has room. */
static inline uint64_t shard_size(uint64_t count, uint32_t ranks)
{
    return (count + ranks - 1) / ranks;
}
/** The rank's actual range of `count`. */
shard_range shard_range_of(uint64_t count, uint32_t ranks, uint32_t rank);

uint32_t cp_size_of(const ty_stage_options *options); /* at least 1 */
uint32_t ep_size_of(const ty_stage_options *options); /* at least 1 */
/** Shape of this context-parallel rank's shard of a tensor along the sequence, [T] or [T, D]. */
ty_shape cp_shape(const ty_stage_options *options, const ty_shape *whole);
/** The tokens of a sequence that this CP rank has, or that CP rank `rank` has. */
token_runs cp_token_runs(const ty_stage_options *options, uint64_t sequence);
token_runs cp_token_runs_of(uint64_t sequence, uint32_t ranks, uint32_t rank);

/** Whether the TP size is above 1 and the layer's parameters are sharded over TP ranks. */
bool is_tp_sharded(const ty_stage_options *options, uint32_t layer);
/** Shape per sample of a rank's shard of a layer's output. */
ty_shape tp_shape(const ty_stage_options *options, uint32_t layer);
/** Whether the stage's layers can be sharded as requested; else the status says why. */
ty_status parallel_check(const ty_stage_options *options, ty_error *error) TY_MUST_CHECK;

/** Whether a tensor is in the slice of experts, which exists if experts or tables are sharded over
 * expert-parallel ranks. */
bool is_ep_sharded(const ty_stage_options *options, const sharded_tensor *tensor);
/** The tensor whose shards ranks have, and the place of this rank among them. TP ranks shard all of
 * a layer's tensor, or this EP rank's experts of it. EP ranks shard a table.
 * @param first [out] its first element in the unsharded tensor */
sharded_tensor sharded_tensor_here(const ty_stage_options *options, uint32_t layer,
                                   const sharded_tensor *tensor, uint64_t *first,
                                   shard_place *place);
/** The EP rank that has a layer's table if ranks have entire tables; else TY_NO_LAYER. */
uint32_t ep_rank_of_table(const ty_stage_options *options, uint32_t layer);
/** Padding after a layer's table, so that all ranks have as much as the one with most tables. */
uint64_t table_shard_padding(const ty_stage_options *options, uint32_t layer);
/** Elements of a tensor on each rank. */
uint64_t sharded_tensor_count(const sharded_tensor *tensor, uint32_t ranks);
/** The index-th run of a rank's shard; false after the last one. */
bool sharded_tensor_run(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank, uint64_t index,
                        rank_run *out);
/** Copies a rank's shard to its place in the unsharded tensor. */
void sharded_tensor_join(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank,
                         const float *part, float *whole);

#endif
