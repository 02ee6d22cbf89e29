/* From a candidate to a plan: stages, devices, gradient buckets, names. */
#include "candidate.h"
#include "costing.h"
#include "lowering.h"

#include <string.h>

/* Of all buckets that are not chosen individually: only embeddings have rows. */
static ty_compression common_compression(const candidate *c)
{
    return ty_compression_at(c->compression.kind)->sends_rows ? (ty_compression){0}
                                                              : c->compression;
}

static ty_bucket bucket_of(const ty_plan *plan, const candidate *c, uint32_t stage,
                           uint32_t first_layer)
{
    ty_bucket bucket = {.stage = stage,
                        .first_layer = first_layer,
                        .layer_count = 1,
                        .tied_stage = TY_NO_STAGE,
                        .algorithm = TY_RING};

    if (ty_bucket_device_count(plan, &bucket) > 1)
        bucket.compression = common_compression(c);
    bucket.gradient_bytes = ty_bucket_gradient_bytes(plan, &bucket);
    return bucket;
}

/* Layers from the first bag to the last, if ranks shard trained tables of a stage; else none. */
static ty_bucket tables_of(const ty_plan *plan, const candidate *c, uint32_t stage)
{
    const ty_plan_stage *planned = &plan->stages[stage];
    const ty_layer *layers = plan->workload->layers;
    const uint32_t first = ty_plan_tables(plan).first_bag;
    ty_bucket tables = {0};

    if (first == TY_NO_LAYER || layers[first].is_frozen || first < planned->first_layer ||
        first >= planned->first_layer + planned->layer_count)
        return tables;
    tables = bucket_of(plan, c, stage, first);
    for (uint32_t l = first; l < planned->first_layer + planned->layer_count; l++)
        if (ty_layer_is_bag(&layers[l]))
            tables.layer_count = l - first + 1;
    tables.gradient_bytes = ty_bucket_gradient_bytes(plan, &tables);
    return tables;
}

/* Sharding of a bucket's layers. */
static ty_bucket experts_of(const ty_plan *plan, const candidate *c, const ty_bucket *bucket)
{
    ty_bucket experts = *bucket;

    experts.of_experts = true;
    experts.compression =
        ty_bucket_device_count(plan, &experts) > 1 ? common_compression(c) : (ty_compression){0};
    experts.gradient_bytes = ty_bucket_gradient_bytes(plan, &experts);
    return experts;
}

/* The buckets of one stage, from its last layer down: each is closed once it is large enough, or at
 * a frozen layer, whose weights would be inside it. Sharded tables share a bucket, separate from
 * others if no other layer is between them. */
static void add_stage_buckets(const candidate *c, uint32_t stage, ty_plan *plan)
{
    const ty_plan_stage *planned = &plan->stages[stage];
    const bool is_exchanged = planned->replicas * ty_plan_replica_ranks(plan) >
                              ty_plan_parallel_size(plan, TY_TENSOR_PARALLEL);
    uint64_t limit = is_exchanged ? c->bucket_bytes : UINT64_MAX;
    const ty_bucket tables = tables_of(plan, c, stage);
    ty_bucket *open = NULL;

    for (uint32_t l = planned->first_layer + planned->layer_count; l-- > planned->first_layer;) {
        ty_bucket one = bucket_of(plan, c, stage, l);
        if (tables.layer_count > 0 && l + 1 == tables.first_layer + tables.layer_count) {
            one = tables;
            l = tables.first_layer;
        }
        if (one.layer_count > 1 && one.gradient_bytes == 0) {
            plan->buckets[plan->bucket_count++] = experts_of(plan, c, &one);
            open = NULL;
        }
        if (plan->workload->layers[l].is_frozen && plan->workload->layers[l].parameter_bytes > 0)
            open = NULL;
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

/* Inserts, after each bucket from `first` on, the experts of its layers
 * if they are on fewer ranks. */
static void add_expert_buckets(const candidate *c, uint32_t first, ty_plan *plan)
{
    if (ty_plan_parallel_size(plan, TY_EXPERT_PARALLEL) == 1)
        return;
    for (uint32_t b = first; b < plan->bucket_count; b++) {
        const ty_bucket experts = experts_of(plan, c, &plan->buckets[b]);
        if (experts.gradient_bytes == 0 || plan->buckets[b].of_experts)
            continue;
        memmove(&plan->buckets[b + 2], &plan->buckets[b + 1],
                (plan->bucket_count - b - 1) * sizeof *plan->buckets);
        plan->buckets[++b] = experts;
        plan->bucket_count++;
    }
}

/* A bucket for each matrix that is used on two stages, always uncompressed. */
static void add_tied_buckets(const candidate *c, ty_plan *plan)
{
    bool has_tied = false;

    for (uint32_t l = 0; l < plan->workload->layer_count; l++)
        has_tied = has_tied || plan->workload->layers[l].tied_to != TY_NO_LAYER;
    for (uint32_t l = 0; has_tied && l < plan->workload->layer_count; l++) {
        uint32_t owner = ty_plan_stage_of_layer(plan, l), user = ty_plan_tied_stage(plan, l);
        ty_bucket *tied = &plan->buckets[plan->bucket_count];
        if (user == TY_NO_STAGE || plan->workload->layers[l].is_frozen)
            continue;
        *tied = bucket_of(plan, c, owner, l);
        tied->tied_stage = user;
        tied->compression = (ty_compression){0};
        tied->gradient_bytes = ty_bucket_gradient_bytes(plan, tied);
        plan->bucket_count++;
    }
}

static ty_status plan_buckets(const search_question *q, const candidate *c, ty_plan *plan,
                              ty_error *error)
{
    plan->buckets = ty_alloc((size_t)q->workload->layer_count * 3, sizeof *plan->buckets);
    TY_TRY(ty_check_memory(plan->buckets != NULL, error));
    for (uint32_t s = 0; s < plan->stage_count; s++) {
        const ty_compression compression = common_compression(c);
        const uint32_t first = plan->bucket_count;
        bool is_done = false;
        ty_status status = TY_OK;
        if (ty_is_pinned(q->pins, TY_AXIS(CYCLE)) && plan->stages[s].replicas > 1)
            status = ty_stage_buckets_by_cycle(plan, s, q->networks, &compression, q->pins->cycle_s,
                                               c->bucket_bytes, &is_done, error);
        else if (c->has_fitted_buckets && plan->stages[s].replicas > 1)
            status = ty_stage_buckets_choose(plan, s, q->networks, &compression, &is_done, error);
        if (status != TY_OK)
            return status;
        if (!is_done)
            add_stage_buckets(c, s, plan);
        add_expert_buckets(c, first, plan);
    }
    add_tied_buckets(c, plan);
    return TY_OK;
}

/* For a candidate made by hand, the full set of the question. */
static const device_set *set_of(const search_question *q, const candidate *c)
{
    return c->set != NULL ? c->set : &q->sets[0];
}

/* Before the learners. */
static ty_status plan_actors(const search_question *q, ty_plan *plan, ty_error *error)
{
    ty_plan_stage *actors = &plan->stages[0];

    actors->replicas = q->pins->actors;
    TY_TRY(ty_check_memory(
        (actors->devices = ty_alloc(actors->replicas, sizeof *actors->devices)) != NULL, error));
    for (uint32_t a = 0; a < actors->replicas; a++)
        actors->devices[a] = ty_actor_device(q->cluster, q->pins, a);
    return TY_OK;
}

static ty_status plan_stages(const search_question *q, const candidate *c, ty_plan *plan,
                             ty_error *error)
{
    const division *d = c->division;
    const uint32_t *devices = set_of(q, c)->devices;
    const uint32_t acting = q->pins->actors > 0 ? 1 : 0;
    uint32_t device = 0;

    plan->stages = ty_alloc((size_t)acting + d->stage_count, sizeof *plan->stages);
    plan->memory = ty_alloc((size_t)acting + d->stage_count, sizeof *plan->memory);
    TY_TRY(ty_check_memory(plan->stages != NULL && plan->memory != NULL, error));
    plan->stage_count = acting + d->stage_count;
    if (acting > 0 && plan_actors(q, plan, error) != TY_OK)
        return TY_ENOMEM;
    for (uint32_t s = 0; s < d->stage_count; s++) {
        ty_plan_stage *stage = &plan->stages[acting + s];
        stage->first_layer = d->first_layers[s];
        stage->layer_count = ty_division_end(q, d, s) - d->first_layers[s];
        stage->replicas = d->replicas[s];
        stage->recompute = c->dimensions.recompute;
        stage->recompute_blocks = c->dimensions.recompute_blocks;
        stage->devices =
            ty_alloc((size_t)stage->replicas * ty_plan_replica_ranks(plan), sizeof *stage->devices);
        TY_TRY(ty_check_memory(stage->devices != NULL, error));
        for (uint32_t r = 0; r < stage->replicas * ty_plan_replica_ranks(plan); r++)
            stage->devices[r] = s < ty_plan_pipeline_size(plan)
                                    ? devices[device++]
                                    : plan->stages[s % ty_plan_pipeline_size(plan)].devices[r];
    }
    return TY_OK;
}

static ty_status plan_servers(const search_question *q, ty_plan *plan, ty_error *error)
{
    const uint32_t count = q->pins->servers;

    if (count == 0)
        return TY_OK;
    TY_TRY(ty_check_memory(
        (plan->servers.devices = ty_alloc(count, sizeof *plan->servers.devices)) != NULL, error));
    memcpy(plan->servers.devices, q->servers, count * sizeof *q->servers);
    plan->servers.count = count;
    plan->servers.shard = q->pins->shard;
    return TY_OK;
}

static ty_status make_plan(const search_question *q, const candidate *c, ty_plan *plan,
                           ty_error *error)
{
    plan->workload = (ty_workload *)q->workload;
    plan->profile = (ty_profile *)q->profile;
    plan->stack = (ty_stack *)q->stack;
    plan->cluster = (ty_cluster *)q->cluster;
    plan->workload_digest = q->workload_digest;
    plan->schedule = c->schedule;
    plan->virtual_stages = c->dimensions.virtual_stages;
    plan->tensor_parallel = c->dimensions.tensor_parallel;
    plan->context_parallel = c->dimensions.context_parallel;
    plan->expert_parallel = c->dimensions.expert_parallel;
    plan->sequence_parallel = c->dimensions.sequence_parallel;
    plan->table_shard = c->dimensions.table_shard;
    plan->zero = c->dimensions.zero;
    plan->staleness = q->pins->staleness;
    plan->lag = q->pins->lag;
    plan->global_batch = q->global_batch;
    plan->micro_batches = c->micro_batches;
    plan->micro_batch_size = q->global_batch / c->micro_batches;
    plan->optimizer = q->workload->optimizer;
    plan->seed = q->options->seed;
    plan->input = q->options->input;
    plan->memory_reserve = q->options->memory_reserve;
    plan->idle_devices = ty_cluster_device_count(q->cluster) - set_of(q, c)->count -
                         q->pins->servers - q->pins->actors;
    TY_TRY(ty_check_memory((plan->cluster_name = ty_strdup(ty_cluster_name(q->cluster))) != NULL,
                           error));
    TY_TRY(ty_candidate_name(q, c, false, &plan->strategy, error));
    TY_TRY(plan_stages(q, c, plan, error));
    TY_TRY(plan_servers(q, plan, error));
    TY_TRY(plan_buckets(q, c, plan, error));
    /* Rows are lossless, so they need no request. */
    if (!c->has_dense_embeddings && ty_may_have_rows(q->pins))
        TY_TRY(ty_choose_rows(plan, q->networks, q->pins, error));
    if (ty_chooses_compressed(q->pins))
        TY_TRY(ty_choose_compressions(plan, q->networks, error));
    if (!ty_is_pinned(q->pins, TY_AXIS(ALGORITHM)))
        TY_TRY(ty_choose_algorithms(plan, q->networks, error));
    for (uint32_t b = 0; b < plan->bucket_count && ty_is_pinned(q->pins, TY_AXIS(ALGORITHM)); b++)
        plan->buckets[b].algorithm = q->pins->algorithm;
    ty_plan_set_learning_rate(plan, q->workload->optimizer.learning_rate);
    return ty_choose_exchange_order(q, plan, error);
}

ty_status ty_plan_count_memory(ty_plan *plan, ty_error *error)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);
    ty_program *passes = NULL;
    ty_status status = TY_OK;

    TY_CHECK(ty_plan_lower_passes(plan, &passes, error), status, done);
    for (uint32_t s = 0; s < pipeline_size; s++)
        TY_CHECK(ty_stage_memory(plan, passes, s, &plan->memory[s], error), status, done);
    for (uint32_t s = pipeline_size; s < plan->stage_count; s++) /* on the same devices */
        plan->memory[s] = plan->memory[s % pipeline_size];
done:
    ty_program_free(passes);
    return status;
}

ty_status ty_draft_plan(const search_question *q, const candidate *c, draft *out, ty_error *error)
{
    ty_status status = TY_OK;
    draft d = {.plan = ty_alloc(1, sizeof *d.plan)};

    TY_TRY(ty_check_memory(d.plan != NULL, error));
    ty_network_cache_trim(q->networks, TY_NETWORK_CACHE_BYTES);
    TY_CHECK(make_plan(q, c, d.plan, error), status, failed);
    TY_CHECK(ty_plan_count_memory(d.plan, error), status, failed);
    *out = d;
    return TY_OK;

failed:
    ty_draft_clear(&d);
    return status;
}

ty_status ty_draft_lower(draft *d, ty_error *error)
{
    return ty_plan_lower_short(d->plan, ty_plan_steady_micro_batches(d->plan), &d->program, error);
}

ty_status ty_draft_make(const search_question *q, const candidate *c, draft *out, ty_error *error)
{
    ty_status status = ty_draft_plan(q, c, out, error);

    if (status == TY_OK &&
        (status = ty_plan_lower_unsigned(out->plan, &out->program, error)) != TY_OK)
        ty_draft_clear(out);
    return status;
}

void ty_draft_clear(draft *d)
{
    if (d->plan != NULL) { /* not borrowed data */
        d->plan->workload = NULL;
        d->plan->profile = NULL;
        d->plan->stack = NULL;
        d->plan->cluster = NULL;
    }
    ty_plan_free(d->plan);
    ty_program_free(d->program);
    *d = (draft){0};
}

#define LISTED_REPLICAS 8 /* stages whose replicas are listed one by one */

/* "2+1", or with many stages "94x8+2x4". */
static void name_replicas(const division *d, ty_text *name)
{
    uint32_t run;

    for (uint32_t s = 0; s < d->stage_count; s += run) {
        for (run = 1; d->stage_count > LISTED_REPLICAS && s + run < d->stage_count; run++)
            if (d->replicas[s + run] != d->replicas[s])
                break;
        if (d->stage_count <= LISTED_REPLICAS)
            ty_text_addf(name, "%s%u", s > 0 ? "+" : "", d->replicas[s]);
        else
            ty_text_addf(name, "%s%ux%u", s > 0 ? "+" : "", run, d->replicas[s]);
    }
}

static void name_dimensions(const ty_plan_dimensions *d, ty_text *name)
{
    if (d->virtual_stages > 1)
        ty_text_addf(name, ", VPP %u", d->virtual_stages);
    if (d->tensor_parallel > 1)
        ty_text_addf(name, ", tensor parallel %u", d->tensor_parallel);
    if (d->context_parallel > 1)
        ty_text_addf(name, ", context parallel %u", d->context_parallel);
    if (d->expert_parallel > 1)
        ty_text_addf(name, ", expert parallel %u", d->expert_parallel);
    if (d->table_shard != TY_TABLES_WHOLE)
        ty_text_addf(name, ", tables by %s", ty_table_shard_name(d->table_shard));
    if (d->sequence_parallel)
        ty_text_add(name, ", sequence parallel");
    if (d->zero > 0)
        ty_text_addf(name, ", ZeRO %u", d->zero);
    if (d->recompute != TY_RECOMPUTE_NONE) {
        ty_text_add(name, ", ");
        ty_recompute_text(d->recompute, d->recompute_blocks, name);
        ty_text_add(name, " recompute");
    }
}

ty_status ty_candidate_name(const search_question *q, const candidate *c, bool with_details,
                            char **out, ty_error *error)
{
    const division *d = c->division;
    ty_text name = {0};

    if (q->pins->actors > 0)
        ty_text_addf(&name, "%u actor%s, %u learner%s", q->pins->actors,
                     q->pins->actors > 1 ? "s" : "", d->replicas[0], d->replicas[0] > 1 ? "s" : "");
    else if (d->stage_count == 1 && d->replicas[0] == 1 && ty_dimensions_width(&c->dimensions) == 1)
        ty_text_add(&name, "single device");
    else if (d->stage_count == 1)
        ty_text_addf(&name, "data parallel %u", d->replicas[0]);
    else
        ty_text_addf(&name, "%s %u stages", ty_schedule_name(c->schedule), d->stage_count);
    if (d->stage_count > 1 && (!has_equal_replicas(d) || d->replicas[0] > 1)) {
        ty_text_add(&name, ", replicas ");
        name_replicas(d, &name);
    }
    name_dimensions(&c->dimensions, &name);
    if (q->pins->staleness > 0)
        ty_text_addf(&name, ", staleness %u", q->pins->staleness);
    if (q->pins->lag > 0)
        ty_text_addf(&name, ", lag %u", q->pins->lag);
    if (q->pins->servers > 0)
        ty_text_addf(&name, ", %u server%s%s", q->pins->servers, q->pins->servers > 1 ? "s" : "",
                     q->pins->shard == TY_SHARD_TENSOR ? " by tensor" : "");
    if (set_of(q, c)->count + q->pins->servers + q->pins->actors <
        ty_cluster_device_count(q->cluster))
        ty_text_addf(&name, ", %u of %u devices", set_of(q, c)->count + q->pins->actors,
                     ty_cluster_device_count(q->cluster));
    if (with_details) {
        ty_text_addf(&name, ", %u x %u", c->micro_batches, q->global_batch / c->micro_batches);
        if (c->has_fitted_buckets)
            ty_text_add(&name, ", fitted buckets");
        else if (c->bucket_bytes != UINT64_MAX) {
            char bytes[32];
            ty_format_memory((double)c->bucket_bytes, bytes);
            ty_text_addf(&name, ", %s buckets", bytes);
        }
        if (ty_is_pinned(q->pins, TY_AXIS(CYCLE))) {
            char cycle[32];
            ty_format_seconds(q->pins->cycle_s, cycle);
            ty_text_addf(&name, ", cycle %s", cycle);
        }
    }
    if (c->compression.kind != TY_COMPRESSION_NONE)
        ty_text_addf(&name, ", gradients %s", ty_compression_name(c->compression.kind));
    if (ty_compression_has_ratio(c->compression.kind))
        ty_text_addf(&name, " %.3g %%", c->compression.ratio * 100);
    if (ty_compression_has_rank(c->compression.kind))
        ty_text_addf(&name, "-%u", c->compression.rank);
    if (c->has_dense_embeddings)
        ty_text_add(&name, ", dense embeddings");
    return ty_text_take(&name, out, error);
}
