/* Functions of width.c, tensor_parallel.c and tables.c for ranks.c. Internal to core/. */
#ifndef TY_PARALLEL_RANKS_H
#define TY_PARALLEL_RANKS_H

#include "ty_plan.h"

/** Context-parallel times expert-parallel size: ranks with different tokens. */
uint32_t ty_plan_token_ranks(const ty_plan *plan);
/** Of ty_layer_inner_collectives, those among tensor-parallel ranks. */
uint32_t ty_tensor_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                     ty_inner_collective *out);

/** Whether expert-parallel ranks can divide the tables so; else TY_EINVAL naming what is in the
 * way. */
ty_status ty_table_check(const ty_workload *workload, uint32_t ranks, ty_table_shard tables,
                         ty_error *error);
/** The first bag, which the ranks exchange with for all; TY_NO_LAYER: there is none. */
uint32_t ty_table_first_bag(const ty_workload *workload);
/** What a rank has of a divided table, where tables are on ranks whole the one that has most. */
uint64_t ty_table_part(const ty_plan *plan, uint32_t layer);
/** Of ty_layer_inner_collectives, those of tables. */
uint32_t ty_table_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                              ty_inner_collective *out);

#endif
