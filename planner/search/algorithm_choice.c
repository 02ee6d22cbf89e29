/* Chooses algorithms. A library chooses its own. Else ring or tree: a ring moves fewer bytes over
 * each edge, a tree has fewer latency steps. */
#include "costing.h"

static ty_status choose(ty_costing *costing, ty_bucket *bucket, uint32_t index)
{
    static const ty_algorithm choices[] = {TY_RING, TY_TREE};
    double best_s = 0;

    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++) {
        double sum_s = 0;
        for (uint32_t phase = 0; phase < ty_compression_phases(&bucket->compression); phase++) {
            ty_instruction_cost cost;
            ty_status status =
                ty_cost_bucket(costing, index, phase, choices[i],
                               ty_plan_exchange_bytes(costing->plan, bucket, phase), &cost);
            if (status != TY_OK)
                return status;
            sum_s += cost.seconds;
        }
        if (i > 0 && !(sum_s < best_s))
            continue;
        bucket->algorithm = choices[i];
        best_s = sum_s;
    }
    return TY_OK;
}

static ty_status choose_any(ty_costing *costing, ty_bucket *bucket, uint32_t index)
{
    uint32_t members = ty_bucket_device_count(costing->plan, bucket);
    bool is_library = false;

    if (members < 2)
        return TY_OK;
    TY_TRY(ty_cost_is_library(costing, bucket, &is_library));
    if (is_library)
        bucket->algorithm = TY_AUTOMATIC;
    /* Only all-reduces have a choice, and between two members a tree is a ring with more bytes. */
    else if (ty_plan_exchange_kind(costing->plan, bucket, 0) == TY_ALL_REDUCE && members > 2)
        return choose(costing, bucket, index);
    return TY_OK;
}

ty_status ty_choose_algorithms(ty_plan *plan, ty_network_cache *networks, ty_error *error)
{
    ty_costing costing = ty_costing_of(plan, networks, error);
    ty_status status = TY_OK;

    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        ty_bucket *bucket = &plan->buckets[b];
        if (bucket->stage != costing.stage.stage) {
            ty_cost_stage_close(&costing);
            costing.stage.stage = bucket->stage;
        }
        TY_CHECK(choose_any(&costing, bucket, b), status, done);
    }
done:
    ty_cost_stage_close(&costing);
    return status;
}
