/* Copies of plans: they share only the cluster. */
#include "ty_plan.h"

#include "ty_base.h"
#include "ty_json.h"

#include <string.h>

static ty_status copy_text(const char *from, char **to, ty_error *error)
{
    *to = ty_strdup(from);
    return *to == NULL && from != NULL ? ty_fail(error, TY_ENOMEM, "out of memory") : TY_OK;
}

static ty_status copy_block(const void *from, size_t count, size_t size, void **to, ty_error *error)
{
    *to = NULL;
    if (from == NULL)
        return TY_OK;
    *to = ty_alloc(count, size);
    TY_TRY(ty_check_memory(*to != NULL, error));
    memcpy(*to, from, count * size);
    return TY_OK;
}

/* Documents are copied by writing and reading them, because their files are complete. */
static ty_status copy_documents(const ty_plan *plan, ty_plan *copy, ty_error *error)
{
    ty_status status = TY_OK;
    ty_text text = {0};
    char *json = NULL;
    ty_json_document *document = NULL;
    const ty_json *root, *value;
    ty_json_writer writer = ty_json_writer_on(&text);

    ty_json_open(&writer, NULL, '{');
    if (plan->workload != NULL)
        ty_workload_to_json(plan->workload, &writer, "workload");
    if (plan->profile != NULL)
        ty_profile_to_json(plan->profile, &writer, "profile");
    ty_json_close(&writer, '}');
    TY_CHECK(ty_text_take(&text, &json, error), status, cleanup);
    TY_CHECK(ty_json_parse(json, strlen(json), "copy of a plan", &document, error), status,
             cleanup);
    root = ty_json_root(document);
    if (plan->workload != NULL) {
        TY_CHECK(ty_json_object(root, "workload", &value, error), status, cleanup);
        TY_CHECK(ty_workload_from_json(value, &copy->workload, error), status, cleanup);
    }
    if (plan->profile != NULL) {
        TY_CHECK(ty_json_object(root, "profile", &value, error), status, cleanup);
        TY_CHECK(ty_profile_from_json(value, &copy->profile, error), status, cleanup);
    }

cleanup:
    ty_json_free(document);
    ty_free(json);
    ty_text_clear(&text);
    return status;
}

static ty_status copy_stages(const ty_plan *plan, ty_plan *copy, ty_error *error)
{
    if (plan->stages == NULL)
        return TY_OK;
    copy->stages = ty_alloc(plan->stage_count, sizeof *copy->stages);
    TY_TRY(ty_check_memory(copy->stages != NULL, error));
    copy->stage_count = plan->stage_count;
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        void *devices = NULL;
        TY_TRY(copy_block(plan->stages[s].devices,
                          (size_t)plan->stages[s].replicas * ty_plan_replica_ranks(plan),
                          sizeof(uint32_t), &devices, error));
        copy->stages[s] = plan->stages[s];
        copy->stages[s].devices = devices;
    }
    return TY_OK;
}

static ty_status copy_candidates(const ty_plan *plan, ty_plan *copy, ty_error *error)
{
    if (plan->candidates == NULL)
        return TY_OK;
    copy->candidates = ty_alloc(plan->candidate_count, sizeof *copy->candidates);
    TY_TRY(ty_check_memory(copy->candidates != NULL, error));
    copy->candidate_count = plan->candidate_count;
    for (uint32_t c = 0; c < plan->candidate_count; c++) {
        ty_candidate *to = &copy->candidates[c];
        *to = plan->candidates[c];
        to->name = to->reason = to->fix = NULL;
        TY_TRY(copy_text(plan->candidates[c].name, &to->name, error));
        TY_TRY(copy_text(plan->candidates[c].reason, &to->reason, error));
        TY_TRY(copy_text(plan->candidates[c].fix, &to->fix, error));
    }
    return TY_OK;
}

ty_status ty_plan_copy(const ty_plan *plan, ty_plan **out, ty_error *error)
{
    ty_status status = TY_OK;
    void *block;
    ty_plan *copy = ty_alloc(1, sizeof *copy);

    TY_TRY(ty_check_memory(copy != NULL, error));
    *copy = *plan; /* the numbers; all owned members are replaced below, so free is safe */
    copy->workload = NULL;
    copy->profile = NULL;
    copy->stack = NULL;
    copy->cluster = NULL;
    copy->cluster_name = copy->strategy = copy->fix = NULL;
    copy->servers.devices = NULL;
    copy->stages = NULL;
    copy->buckets = NULL;
    copy->exchange_order = NULL;
    copy->memory = NULL;
    copy->candidates = NULL;

    TY_CHECK(copy_documents(plan, copy, error), status, cleanup);
    if (plan->stack != NULL)
        TY_CHECK(ty_stack_copy(plan->stack, &copy->stack, error), status, cleanup);
    TY_CHECK(copy_text(plan->cluster_name, &copy->cluster_name, error), status, cleanup);
    if (plan->cluster != NULL)
        copy->cluster = ty_cluster_share(plan->cluster);
    TY_CHECK(copy_text(plan->strategy, &copy->strategy, error), status, cleanup);
    TY_CHECK(copy_text(plan->fix, &copy->fix, error), status, cleanup);
    TY_CHECK(copy_block(plan->servers.devices, plan->servers.count, sizeof *plan->servers.devices,
                        &block, error),
             status, cleanup);
    copy->servers.devices = block;
    TY_CHECK(copy_stages(plan, copy, error), status, cleanup);
    TY_CHECK(copy_block(plan->buckets, plan->bucket_count, sizeof *plan->buckets, &block, error),
             status, cleanup);
    copy->buckets = block;
    if (plan->exchange_order != NULL)
        TY_CHECK(copy_block(plan->exchange_order, plan->bucket_count, sizeof *plan->exchange_order,
                            &block, error),
                 status, cleanup);
    else
        block = NULL;
    copy->exchange_order = block;
    TY_CHECK(copy_block(plan->memory, plan->stage_count, sizeof *plan->memory, &block, error),
             status, cleanup);
    copy->memory = block;
    TY_CHECK(copy_candidates(plan, copy, error), status, cleanup);
    *out = copy;
    copy = NULL;

cleanup:
    ty_plan_free(copy);
    return status;
}
