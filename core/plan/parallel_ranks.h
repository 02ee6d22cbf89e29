/* Functions of width.c, tensor_parallel.c and tables.c for parallel_ranks.c. Internal to core/. */
#ifndef TY_PARALLEL_RANKS_H
#define TY_PARALLEL_RANKS_H

#include "ty_plan.h"

/** Context-parallel times expert-parallel size: ranks with different tokens. */
uint32_t ty_plan_token_ranks(const ty_plan *plan);
/** The tensor-parallel collectives of ty_layer_inner_collectives. */
uint32_t ty_tensor_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                     ty_inner_collective *out);

/** Checks that the tables can be sharded over expert-parallel ranks in this form; else TY_EINVAL
 * naming the obstacle. */
ty_status ty_table_check(const ty_workload *workload, uint32_t ranks, ty_table_shard tables,
                         ty_error *error);
/** The first bag, whose collectives serve all bags; TY_NO_LAYER: there is none. */
uint32_t ty_table_first_bag(const ty_workload *workload);
/** Elements of a sharded table per rank; with TY_TABLES_TABLE, on the rank with the most. */
uint64_t ty_table_part(const ty_plan *plan, uint32_t layer);
/** The collectives of tables in ty_layer_inner_collectives. */
uint32_t ty_table_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                              ty_inner_collective *out);

#endif
