/* From a candidate to a plan: stages, devices, gradient buckets, names. */
#include "candidate.h"

#include <string.h>

static uint32_t stage_end(const search_question *q, const candidate *c, uint32_t stage)
{
    return stage + 1 < c->stage_count ? c->first_layers[stage + 1] : q->workload->layer_count;
}

static ty_bucket bucket_of(const ty_plan *plan, const candidate *c, uint32_t stage,
                           uint32_t first_layer)
{
    bool is_exchanged = plan->stages[stage].replicas > 1;
    ty_bucket bucket = {.stage = stage,
                        .first_layer = first_layer,
                        .layer_count = 1,
                        .tied_stage = TY_NO_STAGE,
                        .algorithm = TY_RING};

    bucket.compression = is_exchanged ? c->compression : TY_COMPRESSION_NONE;
    bucket.top_k_ratio = bucket.compression == TY_COMPRESSION_TOP_K ? c->top_k_ratio : 0;
    bucket.gradient_bytes = ty_bucket_gradient_bytes(plan, &bucket);
    return bucket;
}

/* The buckets of one stage, from its last layer down: each is closed once it is large enough. */
static void add_stage_buckets(const candidate *c, uint32_t stage, ty_plan *plan)
{
    const ty_plan_stage *planned = &plan->stages[stage];
    uint64_t limit = planned->replicas > 1 ? c->bucket_bytes : UINT64_MAX;
    ty_bucket *open = NULL;

    for (uint32_t l = planned->first_layer + planned->layer_count; l-- > planned->first_layer;) {
        ty_bucket one = bucket_of(plan, c, stage, l);
        if (one.gradient_bytes == 0)
            continue;
        if (open == NULL || open->gradient_bytes >= limit) {
            open = &plan->buckets[plan->bucket_count++];
            *open = one;
            continue;
        }
        open->layer_count += open->first_layer - l;
        open->first_layer = l;
        open->gradient_bytes += one.gradient_bytes;
    }
}

/* A bucket for each matrix that is used on two stages, uncompressed whatever the others are. */
static void add_tied_buckets(const candidate *c, ty_plan *plan)
{
    for (uint32_t l = 0; l < plan->workload->layer_count; l++) {
        uint32_t owner = ty_plan_stage_of_layer(plan, l), user = ty_plan_tied_stage(plan, l);
        ty_bucket *tied = &plan->buckets[plan->bucket_count];
        if (user == TY_NO_STAGE || plan->workload->layers[l].is_frozen)
            continue;
        *tied = bucket_of(plan, c, owner, l);
        tied->tied_stage = user;
        tied->compression = TY_COMPRESSION_NONE;
        tied->top_k_ratio = 0;
        tied->gradient_bytes = ty_bucket_gradient_bytes(plan, tied);
        plan->bucket_count++;
    }
}

static ty_status plan_buckets(const search_question *q, const candidate *c, ty_plan *plan,
                              ty_error *error)
{
    plan->buckets = ty_alloc((size_t)q->workload->layer_count * 2, sizeof *plan->buckets);
    if (plan->buckets == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t s = 0; s < plan->stage_count; s++)
        add_stage_buckets(c, s, plan);
    add_tied_buckets(c, plan);
    return TY_OK;
}

static ty_status plan_stages(const search_question *q, const candidate *c, ty_plan *plan,
                             ty_error *error)
{
    uint32_t device = 0;

    plan->stages = ty_alloc(c->stage_count, sizeof *plan->stages);
    plan->memory = ty_alloc(c->stage_count, sizeof *plan->memory);
    if (plan->stages == NULL || plan->memory == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    plan->stage_count = c->stage_count;
    for (uint32_t s = 0; s < c->stage_count; s++) {
        ty_plan_stage *stage = &plan->stages[s];
        stage->first_layer = c->first_layers[s];
        stage->layer_count = stage_end(q, c, s) - c->first_layers[s];
        stage->replicas = c->replicas[s];
        stage->devices = ty_alloc(stage->replicas, sizeof *stage->devices);
        if (stage->devices == NULL)
            return ty_fail(error, TY_ENOMEM, "out of memory");
        for (uint32_t r = 0; r < stage->replicas; r++)
            stage->devices[r] = device++;
    }
    return TY_OK;
}

ty_status ty_candidate_to_plan(const search_question *q, const candidate *c, ty_plan **out,
                               ty_error *error)
{
    ty_status status = TY_OK;
    ty_program *program = NULL;
    ty_plan *plan = ty_alloc(1, sizeof *plan);

    if (plan == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    plan->workload = (ty_workload *)q->workload;
    plan->profile = (ty_profile *)q->profile;
    plan->cluster_json = q->cluster_json;
    plan->cluster_name = ty_strdup(ty_cluster_name(q->cluster));
    if (plan->cluster_name == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory");
        goto failed;
    }
    TY_CHECK(ty_candidate_name(q, c, false, &plan->strategy, error), status, failed);
    plan->workload_digest = q->workload_digest;
    plan->cluster_digest = q->cluster_digest;
    plan->schedule = c->schedule;
    plan->global_batch = q->global_batch;
    plan->micro_batches = c->micro_batches;
    plan->micro_batch_size = q->global_batch / c->micro_batches;
    plan->optimizer = q->workload->optimizer;
    plan->seed = q->options->seed;
    TY_CHECK(plan_stages(q, c, plan, error), status, failed);
    TY_CHECK(plan_buckets(q, c, plan, error), status, failed);
    TY_CHECK(ty_plan_lower(plan, &program, error), status, failed);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        TY_CHECK(ty_stage_memory(plan, program, s, &plan->memory[s], error), status, failed);
    ty_program_free(program);
    *out = plan;
    return TY_OK;

failed:
    ty_program_free(program);
    ty_candidate_plan_free(plan);
    return status;
}

void ty_candidate_plan_free(ty_plan *plan)
{
    if (plan == NULL)
        return;
    plan->workload = NULL;
    plan->profile = NULL;
    plan->cluster_json = NULL;
    ty_plan_free(plan);
}

static bool is_equal_replication(const candidate *c)
{
    for (uint32_t s = 1; s < c->stage_count; s++)
        if (c->replicas[s] != c->replicas[0])
            return false;
    return true;
}

ty_status ty_candidate_name(const search_question *q, const candidate *c, bool with_details,
                            char **out, ty_error *error)
{
    ty_text name = {0};
    ty_status status;

    if (c->stage_count == 1 && c->replicas[0] == 1)
        ty_text_add(&name, "single device");
    else if (c->stage_count == 1)
        ty_text_addf(&name, "data parallel %u", c->replicas[0]);
    else
        ty_text_addf(&name, "%s %u stages", ty_schedule_name(c->schedule), c->stage_count);
    if (c->stage_count > 1 && (!is_equal_replication(c) || c->replicas[0] > 1)) {
        ty_text_add(&name, ", replicas ");
        for (uint32_t s = 0; s < c->stage_count; s++)
            ty_text_addf(&name, "%s%u", s > 0 ? "+" : "", c->replicas[s]);
    }
    if (with_details) {
        ty_text_addf(&name, ", %u x %u", c->micro_batches, q->global_batch / c->micro_batches);
        if (c->bucket_bytes != UINT64_MAX) {
            char bytes[32];
            ty_format_bytes((double)c->bucket_bytes, bytes);
            ty_text_addf(&name, ", %s buckets", bytes);
        }
    }
    if (c->compression == TY_COMPRESSION_TOP_K)
        ty_text_addf(&name, ", top-k %.3g %%", c->top_k_ratio * 100);
    else if (c->compression != TY_COMPRESSION_NONE)
        ty_text_addf(&name, ", %s", ty_compression_name(c->compression));
    status = ty_text_take(&name, out, error);
    ty_text_clear(&name);
    return status;
}
