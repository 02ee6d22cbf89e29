/* From a candidate to a plan: stages, devices, gradient buckets, names. */
#include "candidate.h"

#include <string.h>

static bool is_trainable(const ty_layer *layer)
{
    return layer->parameter_bytes > 0 && !layer->is_frozen;
}

static uint32_t stage_of_layer(const candidate *c, uint32_t layer)
{
    uint32_t stage = 0;

    while (stage + 1 < c->stage_count && c->first_layers[stage + 1] <= layer)
        stage++;
    return stage;
}

static uint32_t stage_end(const search_question *q, const candidate *c, uint32_t stage)
{
    return stage + 1 < c->stage_count ? c->first_layers[stage + 1] : q->workload->layer_count;
}

/* Bytes of an embedding's matrix, which another stage's output layer shares. */
static uint64_t matrix_bytes(const ty_workload *w, uint32_t layer)
{
    const ty_layer *l = &w->layers[layer];
    return l->attributes[TY_VOCABULARY] * l->attributes[TY_OUT_FEATURES] * w->element_bytes;
}

/* The stage that uses `layer`'s matrix from elsewhere, or TY_NO_STAGE. */
static uint32_t tied_stage_of(const search_question *q, const candidate *c, uint32_t layer)
{
    for (uint32_t l = layer + 1; l < q->workload->layer_count; l++)
        if (q->workload->layers[l].tied_to == layer &&
            stage_of_layer(c, l) != stage_of_layer(c, layer))
            return stage_of_layer(c, l);
    return TY_NO_STAGE;
}

static void bucket_settle(const search_question *q, const candidate *c, ty_bucket *bucket)
{
    bool is_exchanged = c->replicas[bucket->stage] > 1;

    bucket->tied_stage = TY_NO_STAGE;
    bucket->algorithm = TY_RING;
    bucket->compression = is_exchanged ? c->compression : TY_COMPRESSION_NONE;
    bucket->top_k_ratio = bucket->compression == TY_COMPRESSION_TOP_K ? c->top_k_ratio : 0;
    bucket->gradient_bytes = 0;
    for (uint32_t l = bucket->first_layer; l < bucket->first_layer + bucket->layer_count; l++) {
        const ty_layer *layer = &q->workload->layers[l];
        if (!is_trainable(layer))
            continue;
        bucket->gradient_bytes +=
            layer->parameter_bytes / q->workload->element_bytes * sizeof(float);
        if (tied_stage_of(q, c, l) != TY_NO_STAGE)
            bucket->gradient_bytes -=
                matrix_bytes(q->workload, l) / q->workload->element_bytes * sizeof(float);
    }
}

/* The buckets of one stage, from its last layer down: each is closed once it is large enough. */
static uint32_t stage_buckets(const search_question *q, const candidate *c, uint32_t stage,
                              ty_bucket *out)
{
    const ty_workload *w = q->workload;
    uint64_t limit = c->replicas[stage] > 1 ? c->bucket_bytes : UINT64_MAX;
    uint32_t count = 0;
    uint64_t bytes = 0;
    ty_bucket *open = NULL;

    for (uint32_t l = stage_end(q, c, stage); l-- > c->first_layers[stage];) {
        if (!is_trainable(&w->layers[l]))
            continue;
        if (open == NULL || bytes >= limit) {
            open = &out[count++];
            *open = (ty_bucket){.stage = stage, .first_layer = l, .layer_count = 1};
            bytes = 0;
        }
        open->layer_count += open->first_layer - l;
        open->first_layer = l;
        bytes += w->layers[l].parameter_bytes;
    }
    for (uint32_t b = 0; b < count; b++)
        bucket_settle(q, c, &out[b]);
    return count;
}

static ty_status plan_buckets(const search_question *q, const candidate *c, ty_plan *plan,
                              ty_error *error)
{
    const ty_workload *w = q->workload;

    plan->buckets = ty_alloc((size_t)w->layer_count * 2, sizeof *plan->buckets);
    if (plan->buckets == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory");
    for (uint32_t s = 0; s < c->stage_count; s++)
        plan->bucket_count += stage_buckets(q, c, s, plan->buckets + plan->bucket_count);
    for (uint32_t l = 0; l < w->layer_count; l++) {
        uint32_t user = is_trainable(&w->layers[l]) ? tied_stage_of(q, c, l) : TY_NO_STAGE;
        if (user == TY_NO_STAGE)
            continue;
        plan->buckets[plan->bucket_count++] = (ty_bucket){
            .stage = stage_of_layer(c, l),
            .first_layer = l,
            .layer_count = 1,
            .tied_stage = user,
            .gradient_bytes = matrix_bytes(w, l) / w->element_bytes * sizeof(float),
            .algorithm = TY_RING,
            .compression = TY_COMPRESSION_NONE,
        };
    }
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
