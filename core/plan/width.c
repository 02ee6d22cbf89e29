/* Parallel sizes of a plan, and the process groups of its buckets. */
#include "parallel_ranks.h"

uint32_t ty_plan_parallel_size(const ty_plan *plan, ty_parallelism kind)
{
    const uint32_t ranks[TY_PARALLELISM_COUNT] = {
        [TY_TENSOR_PARALLEL] = plan->tensor_parallel,
        [TY_CONTEXT_PARALLEL] = plan->context_parallel,
        [TY_EXPERT_PARALLEL] = plan->expert_parallel,
    };
    return ranks[kind] > 1 ? ranks[kind] : 1;
}

uint32_t ty_plan_replica_ranks(const ty_plan *plan)
{
    return ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL) *
           ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL) *
           ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);
}

uint32_t ty_plan_rank_along(const ty_plan *plan, ty_parallelism kind, uint32_t rank, uint32_t n)
{
    const uint32_t count = ty_plan_parallel_size(plan, kind);
    uint32_t stride = 1;

    for (int inner = 0; inner < (int)kind; inner++)
        stride *= ty_plan_parallel_size(plan, (ty_parallelism)inner);
    return rank + (n - rank / stride % count) * stride; /* unsigned: a step back wraps twice */
}

uint64_t ty_context_run_start(uint64_t length, uint32_t ranks, uint32_t rank, uint32_t run)
{
    const uint64_t tokens = length / (TY_CONTEXT_RUNS * (uint64_t)ranks);
    return run == 0 ? rank * tokens : length - (rank + 1) * tokens;
}

uint32_t ty_plan_token_ranks(const ty_plan *plan)
{
    return ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL) *
           ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);
}

uint64_t ty_rank_bytes(const ty_plan *plan, uint64_t bytes)
{
    return bytes * plan->micro_batch_size / ty_plan_token_ranks(plan);
}

uint32_t ty_bucket_rank_count(const ty_plan *plan, const ty_bucket *bucket)
{
    const uint32_t context = ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL);
    return bucket->of_experts ? context : context * ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL);
}

bool ty_bucket_is_beside(const ty_plan *plan, uint32_t bucket)
{
    const ty_bucket *own = &plan->buckets[bucket], *before = own - 1;

    return own->of_experts && bucket > 0 && !before->of_experts && before->stage == own->stage &&
           before->tied_stage == TY_NO_STAGE && before->first_layer == own->first_layer;
}

uint32_t ty_bucket_group_count(const ty_plan *plan, const ty_bucket *bucket)
{
    return ty_plan_replica_ranks(plan) / ty_bucket_rank_count(plan, bucket);
}

uint32_t ty_bucket_rank(const ty_plan *plan, const ty_bucket *bucket, uint32_t group, uint32_t n)
{
    const uint32_t tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    const uint32_t outer = group / tensor; /* for experts, the expert-parallel rank; else 0 */
    return (outer * ty_bucket_rank_count(plan, bucket) + n) * tensor + group % tensor;
}

uint32_t ty_bucket_group_of(const ty_plan *plan, const ty_bucket *bucket, uint32_t rank)
{
    const uint32_t tensor = ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    return rank / (tensor * ty_bucket_rank_count(plan, bucket)) * tensor + rank % tensor;
}
