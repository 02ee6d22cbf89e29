/* Parallel sizes of a plan, and the ranks that exchange a bucket. */
#include "lanes.h"

uint32_t ty_plan_lanes(const ty_plan *plan, ty_lane_kind kind)
{
    const uint32_t lanes[TY_LANE_KIND_COUNT] = {
        [TY_TENSOR_LANES] = plan->tensor_parallel,
        [TY_CONTEXT_LANES] = plan->context_parallel,
        [TY_EXPERT_LANES] = plan->expert_parallel,
    };
    return lanes[kind] > 1 ? lanes[kind] : 1;
}

uint32_t ty_plan_width(const ty_plan *plan)
{
    return ty_plan_lanes(plan, TY_TENSOR_LANES) * ty_plan_lanes(plan, TY_CONTEXT_LANES) *
           ty_plan_lanes(plan, TY_EXPERT_LANES);
}

uint32_t ty_plan_lane_along(const ty_plan *plan, ty_lane_kind kind, uint32_t lane, uint32_t n)
{
    const uint32_t count = ty_plan_lanes(plan, kind);
    uint32_t stride = 1;

    for (int inner = 0; inner < (int)kind; inner++)
        stride *= ty_plan_lanes(plan, (ty_lane_kind)inner);
    return lane + (n - lane / stride % count) * stride; /* unsigned: a way back wraps round twice */
}

uint64_t ty_context_run_start(uint64_t length, uint32_t lanes, uint32_t lane, uint32_t run)
{
    const uint64_t tokens = length / (TY_CONTEXT_RUNS * (uint64_t)lanes);
    return run == 0 ? lane * tokens : length - (lane + 1) * tokens;
}

uint32_t ty_plan_token_lanes(const ty_plan *plan)
{
    return ty_plan_lanes(plan, TY_CONTEXT_LANES) * ty_plan_lanes(plan, TY_EXPERT_LANES);
}

uint64_t ty_lane_bytes(const ty_plan *plan, uint64_t bytes)
{
    return bytes * plan->micro_batch_size / ty_plan_token_lanes(plan);
}

uint32_t ty_bucket_lane_count(const ty_plan *plan, const ty_bucket *bucket)
{
    const uint32_t context = ty_plan_lanes(plan, TY_CONTEXT_LANES);
    return bucket->of_experts ? context : context * ty_plan_lanes(plan, TY_EXPERT_LANES);
}

bool ty_bucket_is_beside(const ty_plan *plan, uint32_t bucket)
{
    const ty_bucket *own = &plan->buckets[bucket], *before = own - 1;

    return own->of_experts && bucket > 0 && !before->of_experts && before->stage == own->stage &&
           before->tied_stage == TY_NO_STAGE && before->first_layer == own->first_layer;
}

uint32_t ty_bucket_group_count(const ty_plan *plan, const ty_bucket *bucket)
{
    return ty_plan_width(plan) / ty_bucket_lane_count(plan, bucket);
}

uint32_t ty_bucket_lane(const ty_plan *plan, const ty_bucket *bucket, uint32_t group, uint32_t n)
{
    const uint32_t tensor = ty_plan_lanes(plan, TY_TENSOR_LANES);
    const uint32_t outer = group / tensor; /* of experts, the expert-parallel rank; else 0 */
    return (outer * ty_bucket_lane_count(plan, bucket) + n) * tensor + group % tensor;
}

uint32_t ty_bucket_group_of(const ty_plan *plan, const ty_bucket *bucket, uint32_t lane)
{
    const uint32_t tensor = ty_plan_lanes(plan, TY_TENSOR_LANES);
    return lane / (tensor * ty_bucket_lane_count(plan, bucket)) * tensor + lane % tensor;
}
