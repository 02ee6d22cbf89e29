/* Limits of a framework on tensor and expert parallelism. */
#include "stack_plans.h"
#include "ty_plan.h"

ty_status ty_stack_tensor_check(const ty_stack_plans *plans, const ty_workload *workload,
                                uint32_t ranks, uint32_t sequence_parts, ty_error *error)
{
    const ty_status status = ty_tensor_check(workload, ranks, sequence_parts, error);

    if (status == TY_OK && plans->whole_key_heads && ty_tensor_shares_key_heads(workload, ranks))
        return ty_fail(error, TY_EINVAL,
                       "tensor parallel %u: expected a rank for a head of keys and values at most, "
                       "as the stack has it",
                       ranks);
    if (status == TY_OK && plans->experts_along_sequences && ranks > 1 && sequence_parts <= 1 &&
        ty_workload_has_experts(workload))
        return ty_fail(error, TY_EINVAL,
                       "tensor parallel %u: expected sequence parallelism beside it, as the stack "
                       "has it in networks with experts",
                       ranks);
    return status;
}

ty_status ty_stack_expert_check(const ty_stack_plans *plans, const ty_workload *workload,
                                uint32_t ranks, int tables, bool is_fp16, ty_error *error)
{
    const ty_status status = ty_expert_check(workload, ranks, (ty_table_shard)tables, error);

    if (status == TY_OK && plans->experts_without_fp16 && ranks > 1 && is_fp16)
        return ty_fail(error, TY_EINVAL,
                       "expert parallel %u: expected 1, as the stack has it in fp16", ranks);
    return status;
}
