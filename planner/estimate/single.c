/* The trivial plan: everything on one device. */
#include "candidate.h"

/* A device with unlimited memory. Its rates are nominal: no prediction uses this plan. */
static const ty_profile nominal_machine = {
    .cores = 1,
    .concurrent_ranks = 1,
    .memory_bytes = (uint64_t)1 << 50,
    .peak_flop_per_s = 1e12,
    .memory_bandwidth_bytes_per_s = 1e12,
};

ty_status ty_plan_of_workload(const ty_workload *workload, ty_plan **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_cluster *cluster = NULL;
    search_question q = {0};
    const division whole = {.stage_count = 1, .replicas = {1}};
    candidate c = {.division = &whole,
                   .micro_batches = 1,
                   .schedule = ty_schedule_default(false),
                   .bucket_bytes = UINT64_MAX};
    ty_plan_options options = ty_plan_options_default();
    draft d = {0};

    TY_CHECK(ty_cluster_local(1, &nominal_machine, &cluster, error), status, done);
    TY_CHECK(ty_search_question_make(workload, cluster, NULL, &options, &q, error), status, done);
    TY_CHECK(ty_draft_make(&q, &c, &d, error), status, done);
    TY_CHECK(ty_plan_copy(d.plan, out, error), status, done);
done:
    ty_draft_clear(&d);
    ty_search_question_clear(&q);
    ty_cluster_free(cluster);
    return status;
}
