/* Functions of width.c, tensor_parallel.c and tables.c for lanes.c. Internal to core/. */
#ifndef TY_LANES_H
#define TY_LANES_H

#include "ty_plan.h"

/** Context-parallel times expert-parallel size: ranks with different tokens. */
uint32_t ty_plan_token_lanes(const ty_plan *plan);
/** Of ty_layer_inner_collectives, those among tensor lanes. */
uint32_t ty_tensor_inner_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                                     ty_inner_collective *out);

/** Whether expert lanes can divide the tables so; else TY_EINVAL naming what is in the way. */
ty_status ty_table_check(const ty_workload *workload, uint32_t lanes, ty_table_shard tables,
                         ty_error *error);
/** The first bag, which the lanes exchange with for all; TY_NO_LAYER: there is none. */
uint32_t ty_table_first_bag(const ty_workload *workload);
/** What a lane has of a divided table, where tables are on lanes whole the one that has most. */
uint64_t ty_table_part(const ty_plan *plan, uint32_t layer);
/** Of ty_layer_inner_collectives, those of tables. */
uint32_t ty_table_collectives(const ty_plan *plan, uint32_t layer, bool is_backward,
                              ty_inner_collective *out);

#endif
