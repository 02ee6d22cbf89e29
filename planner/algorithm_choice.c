/* Ring or tree: a ring moves fewer bytes over each edge, a tree has fewer steps to wait for. */
#include "costing.h"

static ty_status choose(ty_costing *costing, ty_bucket *bucket, uint32_t index)
{
    double best_s = 0;

    for (int a = 0; a < TY_ALGORITHM_COUNT; a++) {
        ty_instruction_cost cost;
        ty_status status = ty_cost_bucket(costing, index, (ty_algorithm)a,
                                          ty_plan_exchange_bytes(costing->plan, bucket), &cost);
        if (status != TY_OK)
            return status;
        if (a > 0 && !(cost.seconds < best_s))
            continue;
        bucket->algorithm = (ty_algorithm)a;
        best_s = cost.seconds;
    }
    return TY_OK;
}

ty_status ty_choose_algorithms(ty_plan *plan, const ty_cluster *cluster, ty_error *error)
{
    ty_costing costing = ty_costing_of(plan, cluster, error);
    ty_status status = TY_OK;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        ty_bucket *bucket = &plan->buckets[b];
        /* Only all-reduces have a choice, and among two members a tree is a ring with more bytes.
         */
        if (ty_plan_exchange_kind(plan, bucket) != TY_ALL_REDUCE ||
            ty_bucket_member_count(plan, bucket) < 3)
            continue;
        if (bucket->stage != costing.stage.stage)
            costing.stage = (ty_stage_costing){.stage = bucket->stage};
        TY_CHECK(choose(&costing, bucket, b), status, done);
    }
done:
    return status;
}
