/* The digests of training state in a checkpoint, which decide the plans that can resume from it. */
#include "ty_plan.h"

bool ty_bucket_keeps_state(const ty_bucket *bucket)
{
    const ty_compression_row *row = ty_compression_at(bucket->compression.kind);

    return !row->is_elementwise && !row->sends_rows;
}

bool ty_plan_state_is_of_ranks(const ty_plan *plan)
{
    bool is_compressed = false;

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        is_compressed = is_compressed || ty_bucket_keeps_state(&plan->buckets[b]);
    return is_compressed || plan->zero > 0 || ty_schedule_at(plan->schedule)->is_asynchronous;
}

static void add_bound(const ty_plan *plan, ty_text *text)
{
    ty_text_addf(text, "%s zero %u, %u micro-batches\n", ty_schedule_name(plan->schedule),
                 plan->zero, plan->micro_batches);
    for (uint32_t s = 0; s < plan->stage_count; s++)
        ty_text_addf(text, "%u replicas\n", plan->stages[s].replicas);
    for (uint32_t b = 0; b < plan->bucket_count; b++) {
        const ty_bucket *bucket = &plan->buckets[b];

        ty_text_addf(text, "bucket %u %u %u %u ", bucket->stage, bucket->first_layer,
                     bucket->layer_count, bucket->tied_stage);
        ty_compression_text(&bucket->compression, text);
        ty_text_add(text, "\n");
    }
}

/* All that determines the values of tensors, and the parallelism within a layer. */
static ty_status add_model(const ty_plan *plan, ty_text *text, ty_error *error)
{
    const ty_optimizer *o = &plan->optimizer;
    ty_digest network;

    TY_TRY(ty_workload_network_digest(plan->workload, &network, error));
    /* A phase may have a different momentum, but not 0. */
    ty_text_addf(text, "%s seed %llu\n%s %u %.17g %.17g %.17g %.17g\n", network.hex,
                 (unsigned long long)plan->seed, ty_optimizer_name(o->kind),
                 ty_optimizer_state_count(o), o->beta1, o->beta2, o->epsilon, o->weight_decay);
    ty_text_addf(text, "lanes %u %u %u%s\n", ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL),
                 ty_plan_parallel_size(plan, TY_CONTEXT_PARALLEL),
                 ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL),
                 plan->sequence_parallel ? " along the sequence" : "");
    if (plan->table_shard != TY_TABLES_WHOLE)
        ty_text_addf(text, "tables by %s\n", ty_table_shard_name(plan->table_shard));
    return TY_OK;
}

static void add_stages(const ty_plan *plan, ty_text *text)
{
    ty_text_addf(text, "interleave %u\n", ty_plan_virtual_stages(plan));
    for (uint32_t s = 0; s < plan->stage_count; s++)
        ty_text_addf(text, "stage %u %u\n", plan->stages[s].first_layer,
                     plan->stages[s].layer_count);
}

/* Takes the text. */
static ty_status digest_take(ty_text *text, ty_status status, ty_digest *out, ty_error *error)
{
    if (status == TY_OK)
        status = ty_text_check(text, error);
    if (status == TY_OK)
        *out = ty_digest_of(text->data, text->length);
    ty_text_clear(text);
    return status;
}

ty_status ty_plan_state_digest(const ty_plan *plan, ty_digest *out, ty_error *error)
{
    ty_text text = {0};
    const ty_status status = add_model(plan, &text, error);

    add_stages(plan, &text);
    if (ty_plan_state_is_of_ranks(plan))
        add_bound(plan, &text);
    return digest_take(&text, status, out, error);
}

ty_status ty_plan_tensors_digest(const ty_plan *plan, ty_digest *out, ty_error *error)
{
    bool is_bound = ty_schedule_at(plan->schedule)->is_asynchronous ||
                    plan->workload->local_steps > 1 ||
                    plan->workload->learning != TY_LEARNING_GRADIENT;
    ty_text text = {0};
    const ty_status status = add_model(plan, &text, error);

    for (uint32_t b = 0; b < plan->bucket_count; b++)
        is_bound |= ty_bucket_keeps_state(&plan->buckets[b]);
    if (is_bound) {
        add_stages(plan, &text);
        add_bound(plan, &text);
    }
    return digest_take(&text, status, out, error);
}
