/* Names of recomputation, parallelism and sharding kinds, in files and options. */
#include "ty_plan.h"

const char *ty_recompute_name(ty_recompute recompute)
{
    static const char *const names[TY_RECOMPUTE_COUNT] = {
        [TY_RECOMPUTE_NONE] = "none",
        [TY_RECOMPUTE_SELECTIVE] = "selective",
        [TY_RECOMPUTE_ELEMENTWISE] = "elementwise",
        [TY_RECOMPUTE_OPERATOR] = "operator",
        [TY_RECOMPUTE_FULL] = "full",
    };
    return (unsigned)recompute < TY_RECOMPUTE_COUNT ? names[recompute] : "unknown";
}

const char *ty_parallelism_name(ty_parallelism kind)
{
    static const char *const names[TY_PARALLELISM_COUNT] = {
        [TY_TENSOR_PARALLEL] = "tensor",
        [TY_CONTEXT_PARALLEL] = "context",
        [TY_EXPERT_PARALLEL] = "expert",
    };
    return (unsigned)kind < TY_PARALLELISM_COUNT ? names[kind] : "unknown";
}

const char *ty_table_shard_name(ty_table_shard shard)
{
    static const char *const names[TY_TABLE_SHARD_COUNT] = {
        [TY_TABLES_WHOLE] = "whole",
        [TY_TABLES_ROW] = "row",
        [TY_TABLES_COLUMN] = "column",
        [TY_TABLES_TABLE] = "table",
    };
    return (unsigned)shard < TY_TABLE_SHARD_COUNT ? names[shard] : "unknown";
}

const char *ty_imbalance_name(ty_imbalance_kind kind)
{
    static const char *const names[TY_IMBALANCE_COUNT] = {"global_batch", "blocks"};
    return (unsigned)kind < TY_IMBALANCE_COUNT ? names[kind] : "unknown";
}
