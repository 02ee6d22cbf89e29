/**
 * @file shards.h
 * What a rank of a rank has of layers and of their parameter tensors: the rules of
 * ty_parallel_group (device.h), the same on every backend. Internal to execute/.
 *
 * Of n rows, columns or words a rank has those from ceil(n / ranks) * rank on, at most
 * ceil(n / ranks); a rank's tensors have room for as many, and what is behind the last is 0.
 */
#ifndef TY_EXECUTE_SHARDS_H
#define TY_EXECUTE_SHARDS_H

#include "device.h"
#include "token_runs.h"

typedef ty_layer_tensor sharded_tensor;

/** One of the ranks that divide a tensor. */
typedef struct shard_place {
    uint32_t ranks, rank;
} shard_place;

typedef struct shard_range {
    uint64_t first, count;
} shard_range;

/** A run of elements that lie together in the whole tensor and in a rank's part of it. */
typedef struct rank_run {
    uint64_t whole, part, count; /* starts, and length */
} rank_run;

uint32_t tp_size_of(const ty_stage_options *options); /* at least 1 */
/** How much of `count` each rank has room for. */
static inline uint64_t shard_size(uint64_t count, uint32_t ranks)
{
    return (count + ranks - 1) / ranks;
}
/** What a rank really has of it. */
shard_range shard_range_of(uint64_t count, uint32_t ranks, uint32_t rank);

uint32_t cp_size_of(const ty_stage_options *options); /* at least 1 */
uint32_t ep_size_of(const ty_stage_options *options); /* at least 1 */
/** What this context-parallel rank has of something along the sequence, [T] or [T, D]. */
ty_shape cp_shape(const ty_stage_options *options, const ty_shape *whole);
/** Which tokens of a sequence it has, and which another one has. */
token_runs cp_token_runs(const ty_stage_options *options, uint64_t sequence);
token_runs cp_token_runs_of(uint64_t sequence, uint32_t ranks, uint32_t rank);

/** Whether ranks, of which there are several, have parts of the layer's parameters. */
bool is_tp_sharded(const ty_stage_options *options, uint32_t layer);
/** Shape per sample of what a rank has of a layer's output. */
ty_shape tp_shape(const ty_stage_options *options, uint32_t layer);
/** Whether the stage's layers can be divided as asked; else the status says why. */
ty_status parallel_check(const ty_stage_options *options, ty_error *error) TY_MUST_CHECK;

/** Whether a tensor is in the slice of experts, which there is where expert-parallel ranks divide
 * them, or tables. */
bool is_ep_sharded(const ty_stage_options *options, const sharded_tensor *tensor);
/** What ranks divide of a layer's tensor, and which of them this is: tensor-parallel ranks all of
 * it or this expert-parallel rank's experts, expert-parallel ranks a table.
 * @param first [out] its first element in the whole */
sharded_tensor sharded_tensor_here(const ty_stage_options *options, uint32_t layer,
                                   const sharded_tensor *tensor, uint64_t *first,
                                   shard_place *place);
/** Of ranks that have whole tables, the one that has a layer's; TY_NO_LAYER where they have not. */
uint32_t ep_rank_of_table(const ty_stage_options *options, uint32_t layer);
/** Room behind a layer's table, so that all ranks have as much as the one with most of them. */
uint64_t table_shard_padding(const ty_stage_options *options, uint32_t layer);
/** Elements of a tensor on each rank. */
uint64_t sharded_tensor_count(const sharded_tensor *tensor, uint32_t ranks);
/** The index-th run of a rank's part; false behind the last one. */
bool sharded_tensor_run(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank, uint64_t index,
                        rank_run *out);
/** A rank's part into its place in the whole. */
void sharded_tensor_join(const sharded_tensor *tensor, uint32_t ranks, uint32_t rank,
                         const float *part, float *whole);

#endif
