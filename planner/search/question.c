/* Validates the question of a search: options against workload and cluster, so that the search gets
 * only valid questions. */
#include "candidate.h"

#include <stdlib.h>
#include <string.h>

#define MOST_CUTS 64     /* on many devices */
#define FEWEST_CUTS 40   /* on few */
#define CUTS_PER_STAGE 2 /* if that many stages are requested */
#define DEEP_PIPELINE 32 /* stages; in deeper pipelines, cuts are only where one tensor crosses */
#define SEED_LIMIT ((uint64_t)1 << 53) /* as in plan files */

/* Default proposals: a ratio at which the sparse methods of the literature still converge, and the
 * rank at which PowerSGD matched uncompressed training in all its experiments (Vogels et al.,
 * NeurIPS 2019, tables 3 and 7). */
#define USUAL_RATIO 0.01
#define USUAL_RANK 4

ty_plan_options ty_plan_options_default(void)
{
    return (ty_plan_options){.seed = 1, .memory_reserve = TY_USUAL_MEMORY_RESERVE};
}

void ty_search_question_clear(search_question *q)
{
    ty_free(q->servers);
    ty_free(q->all_cuts);
    ty_free(q->cuts);
    ty_network_cache_free(q->networks);
    ty_stack_free(q->own_stack);
    ty_device_sets_free(q->sets, q->set_count);
    *q = (search_question){0};
}

bool ty_chooses_compressed(const ty_pins *o)
{
    return o->compress == TY_COMPRESS_SHORTER ||
           !ty_is_pinned(o, TY_AXIS(COMPRESS) | TY_AXIS(COMPRESSION));
}

ty_status ty_can_fit_buckets(const search_question *q, const ty_plan_dimensions *d, ty_error *error)
{
    const ty_rule_scene scene = {.workload = q->workload, .pins = q->pins, .dimensions = d};
    const char *why = ty_axis_refusal(TY_AXIS_BUCKET, &scene);

    return why == NULL
               ? TY_OK
               : ty_fail(error, TY_EINVAL, "bucket: found fitted, expected a size or one: %s", why);
}

bool ty_search_must_stop(const search_question *q)
{
    return q->options->should_stop != NULL && q->options->should_stop(q->options->stop_context);
}

/* The sum of the pinned replicas must be the device count. */
static ty_status check_replicas(search_question *q, ty_error *error)
{
    const ty_stage_list *replicas = &q->pins->replicas;
    uint64_t sum = 0;
    ty_text text = {0};
    ty_status status = TY_OK;

    for (uint32_t s = 0; s < replicas->count; s++)
        sum += replicas->numbers[s];
    ty_stage_list_print(replicas->numbers, replicas->count, &text);
    if (sum != q->stage_replica_count)
        status = ty_fail(error, TY_EINVAL, "replicas: '%s' needs %llu devices, %s has %u",
                         text.data != NULL ? text.data : "",
                         (unsigned long long)sum * (q->device_count / q->stage_replica_count),
                         ty_cluster_name(q->cluster), q->device_count);
    ty_text_clear(&text);
    q->fixed_stages = replicas->count;
    q->has_fixed_replicas = true;
    memcpy(q->fixed_replicas, replicas->numbers, replicas->count * sizeof *q->fixed_replicas);
    return status;
}

static ty_status check_stages(search_question *q, ty_error *error)
{
    const ty_pins *o = q->pins;

    const uint32_t virtual_stages = at_least_one(q->dimensions.virtual_stages);
    const uint32_t ranks = q->device_count / q->stage_replica_count;

    if (ty_is_pinned(o, TY_AXIS(REPLICAS)))
        TY_TRY(check_replicas(q, error));
    else if (!q->has_fixed_replicas)
        q->fixed_stages = o->pipeline_stages;
    if (q->has_fixed_layers && q->fixed_stages == 0 && (q->all_cut_count + 1) % virtual_stages == 0)
        q->fixed_stages = (q->all_cut_count + 1) / virtual_stages;
    if (q->has_fixed_layers && q->fixed_stages * virtual_stages != q->all_cut_count + 1)
        return ty_fail(
            error, TY_EINVAL,
            "layers: found those of %u stages, expected %u: %u pipeline ranks of %u each",
            q->all_cut_count + 1, q->fixed_stages * virtual_stages, q->fixed_stages,
            virtual_stages);
    if (ty_is_pinned(o, TY_AXIS(PP)) && o->pipeline_stages != q->fixed_stages)
        return ty_fail(error, TY_EINVAL, "%u pipeline stages were asked for, and replicas for %u",
                       o->pipeline_stages, q->fixed_stages);
    if (q->fixed_stages > q->stage_replica_count)
        return ty_fail(error, TY_EINVAL,
                       "%u pipeline stages%s need %llu devices, the cluster has %u",
                       q->fixed_stages, ranks > 1 ? " with these tp, cp and ep" : "",
                       (unsigned long long)q->fixed_stages * ranks, q->device_count);
    if ((uint64_t)q->fixed_stages * virtual_stages > q->all_cut_count + 1)
        return ty_fail(error, TY_EINVAL,
                       "%s can be divided into at most %u stages, %llu were asked for",
                       q->workload->name, q->all_cut_count + 1,
                       (unsigned long long)q->fixed_stages * virtual_stages);
    if (q->fixed_stages > TY_MAX_STAGES)
        return ty_fail(error, TY_EINVAL, "%u pipeline stages were asked for, expected at most %d",
                       q->fixed_stages, TY_MAX_STAGES);
    return TY_OK;
}

/* Of all replicas. */
static ty_status check_micro_batches(const search_question *q, ty_error *error)
{
    const uint32_t size = q->pins->micro_batch_size;

    if (ty_is_pinned(q->pins, TY_AXIS(MICRO_BATCH)) && q->global_batch % size != 0)
        return ty_fail(error, TY_EINVAL,
                       "a global batch of %u cannot be cut into micro-batches of %u",
                       q->global_batch, size);
    return TY_OK;
}

static ty_status check_batch(const search_question *q, ty_error *error)
{
    const bool is_pinned = ty_is_pinned(q->pins, TY_AXIS(MICRO_BATCH));
    const uint32_t size = at_least_one(q->pins->micro_batch_size);
    const uint32_t samples = is_pinned ? size : q->global_batch;
    const uint32_t micro_batches = q->global_batch / size;

    if (samples % at_least_one(q->dimensions.expert_parallel) != 0)
        return ty_fail(error, TY_EINVAL,
                       "expert parallel %u: %u samples, expected a multiple of it",
                       q->dimensions.expert_parallel, samples);
    for (uint32_t s = 0; q->has_fixed_replicas && s < q->fixed_stages; s++)
        if (micro_batches % q->fixed_replicas[s] != 0)
            return ty_fail(error, TY_EINVAL,
                           "replicas: the %u of stage %u do not share %u micro-batches evenly: ask "
                           "for a batch that is a multiple of %u",
                           q->fixed_replicas[s], s, micro_batches, q->fixed_replicas[s] * size);
    /* If stage replicas may have several ranks, there are fewer of them. */
    if (micro_batches < q->stage_replica_count && q->fixed_stages == 0 &&
        (ty_is_pinned(q->pins, TY_AXIS(TP)) || ty_tensor_check(q->workload, 2, 1, NULL) != TY_OK) &&
        q->cut_count + 1 < q->stage_replica_count)
        return ty_fail(error, TY_EINVAL,
                       "a global batch of %u%s is too small for %u devices: ask for at least %u",
                       q->global_batch, size > 1 ? " in such micro-batches" : "", q->device_count,
                       q->device_count * size);
    return TY_OK;
}

ty_compression ty_proposed_compression(const ty_pins *pins, ty_compression_kind kind)
{
    if (ty_is_pinned(pins, TY_AXIS(COMPRESSION)))
        return pins->compression;
    return (ty_compression){.kind = kind,
                            .ratio = ty_compression_has_ratio(kind) ? USUAL_RATIO : 0,
                            .rank = ty_compression_has_rank(kind) ? USUAL_RANK : 0};
}

bool ty_may_compress(const search_question *q, ty_compression_kind kind)
{
    return stack_may(q, TY_AXIS_COMPRESSION, kind) &&
           (kind == TY_COMPRESSION_NONE || ty_is_pinned(q->pins, TY_AXIS(COMPRESSION)) ||
            q->options->allow_lossy || !q->stack->plans.compression_on_request);
}

static ty_status check_compression(const search_question *q, ty_error *error)
{
    const ty_pins *o = q->pins;
    const bool is_pinned = ty_is_pinned(o, TY_AXIS(COMPRESSION));
    const bool is_compressed = o->compression.kind != TY_COMPRESSION_NONE;
    ty_error detail = {0};

    if (is_pinned && ty_compression_check(&o->compression, &detail) != TY_OK)
        return ty_fail(error, TY_EINVAL, "compression: %s", detail.message);
    if (is_pinned && o->dimensions.zero > 0 && !ty_compression_shards(&o->compression))
        return ty_fail(error, TY_EINVAL,
                       "compression: found %s with zero %u, expected none, fp16, bf16 or random-k, "
                       "which leave each replica its share of the sum",
                       ty_compression_name(o->compression.kind), o->dimensions.zero);
    if (is_compressed && q->dimensions.context_parallel <= 1 &&
        q->dimensions.expert_parallel <= 1 &&
        (q->stage_replica_count == 1 || q->fixed_stages == q->stage_replica_count))
        return ty_fail(error, TY_EINVAL,
                       "%u stages on %u devices exchange no gradients: nothing is there for %s",
                       q->device_count, q->device_count, ty_compression_name(o->compression.kind));
    if (o->compress == TY_COMPRESS_SHORTER && is_pinned && (!is_compressed || ty_asks_for_rows(o)))
        return ty_fail(error, TY_EINVAL,
                       "compress: compression %s leaves shorter nothing to choose",
                       ty_compression_name(o->compression.kind));
    if (ty_asks_for_rows(o) && ty_is_pinned(o, TY_AXIS(EMBEDDINGS)))
        return ty_fail(error, TY_EINVAL,
                       "embeddings: compression rows says already how they travel");
    if (o->embeddings == TY_EMBEDDINGS_SHORTER &&
        !stack_may(q, TY_AXIS_COMPRESSION, TY_COMPRESSION_ROWS))
        return ty_fail(error, TY_EINVAL, "embeddings: stack %s sends none as rows", q->stack->name);
    return ty_asks_for_rows(o) || o->embeddings == TY_EMBEDDINGS_SHORTER
               ? ty_rows_possible(q, error)
               : TY_OK;
}

static ty_status check_tables(const search_question *q, ty_error *error)
{
    const ty_table_shard tables = q->pins->dimensions.table_shard;

    for (uint32_t l = 0; l < q->workload->layer_count; l++)
        if (ty_layer_is_bag(&q->workload->layers[l]))
            return TY_OK;
    return tables == TY_TABLES_WHOLE
               ? TY_OK
               : ty_fail(error, TY_EINVAL,
                         "tables: found \"%s\", expected \"whole\": %s has no embedding_bag",
                         ty_table_shard_name(tables), q->workload->name);
}

/* A population's members are evaluated unsharded, and only their scores are gathered. A teacher's
 * weights derive from its student's. */
static ty_status check_whole_network(const search_question *q, ty_error *error)
{
    const ty_pins *o = q->pins;
    const char *why = ty_workload_whole_reason(q->workload);

    if (why == NULL)
        return TY_OK;
    if (q->fixed_stages > 1)
        return ty_fail(error, TY_EINVAL,
                       "%u pipeline stages were asked for, but %s is whole on one device: %s",
                       q->fixed_stages, q->workload->name, why);
    if (o->dimensions.zero > 0 && ty_workload_has_teacher(q->workload))
        return ty_fail(error, TY_EINVAL, "zero: found %u, expected 0: %s", o->dimensions.zero, why);
    if (ty_is_pinned(o, TY_AXIS(SCHEDULE)) &&
        ty_schedule_at(o->schedule)->versions == TY_WEIGHTS_DOUBLE &&
        ty_workload_has_teacher(q->workload))
        return ty_fail(error, TY_EINVAL,
                       "schedule: found %s, which keeps two sets of weights, expected another: %s",
                       ty_schedule_name(o->schedule), why);
    if (q->workload->learning != TY_LEARNING_EVOLUTION)
        return TY_OK;
    if (ty_is_pinned(o, TY_AXIS(COMPRESSION)) && o->compression.kind != TY_COMPRESSION_NONE)
        return ty_fail(error, TY_EINVAL,
                       "%s exchanges scores, no gradients: nothing is there for %s",
                       q->workload->name, ty_compression_name(o->compression.kind));
    return TY_OK;
}

static ty_status check_rest(const search_question *q, ty_error *error)
{
    const ty_plan_options *o = q->options;

    if (o->seed >= SEED_LIMIT)
        return ty_fail(error, TY_EINVAL, "seed: found %llu, expected less than 2^53",
                       (unsigned long long)o->seed);
    if (o->simulate_top > 0 && o->simulate == NULL)
        return ty_fail(error, TY_EINVAL, "%u finalists are to be simulated, but nothing does that",
                       o->simulate_top);
    return TY_OK;
}

/* Why a value cannot be combined with what the question fixes; NULL: it can. */
static const char *refusal_of(const search_question *q, ty_axis axis)
{
    const bool is_alone = q->stage_replica_count == 1 || q->fixed_stages == q->stage_replica_count;
    const ty_rule_scene scene = {.workload = q->workload,
                                 .pins = q->pins,
                                 .dimensions = &q->pins->dimensions,
                                 .stages = q->fixed_stages,
                                 .replicas = is_alone ? 1 : 0};

    return ty_axis_refusal(axis, &scene);
}

/* Staleness, servers and an order of collectives, if they are requested. */
static ty_status check_requested(const search_question *q, ty_error *error)
{
    const ty_pins *o = q->pins;
    const struct {
        ty_axis axis;
        uint32_t found;
    } requested[] = {{TY_AXIS_STALENESS, o->staleness},
                     {TY_AXIS_SERVERS, o->servers},
                     {TY_AXIS_PRIORITY, o->priority == TY_PRIORITY_FRONT}};

    if (o->staleness > TY_MAX_STALENESS)
        return ty_fail(error, TY_EINVAL, "staleness: found %u, expected at most %d", o->staleness,
                       TY_MAX_STALENESS);
    for (size_t i = 0; i < sizeof requested / sizeof *requested; i++) {
        const char *why = refusal_of(q, requested[i].axis);
        if (requested[i].found > 0 && why != NULL)
            return ty_fail(error, TY_EINVAL, "%s: found %u, expected 0: %s",
                           ty_axis_name(requested[i].axis), requested[i].found, why);
    }
    if (o->servers == 0 && ty_is_pinned(o, TY_AXIS(SHARD)))
        return ty_fail(error, TY_EINVAL,
                       "shard: found \"%s\" without servers of their own, expected servers=N too",
                       ty_server_shard_name(o->shard));
    return TY_OK;
}

/* Conditions of ty_plan_check on plans with episodes, as far as the question fixes them. */
static ty_status check_actors(const search_question *q, ty_error *error)
{
    const ty_pins *o = q->pins;
    const uint32_t learners = q->set->count, actors = o->actors;
    const uint32_t larger = actors > learners ? actors : learners;
    const uint32_t micro_batch = q->fixed_micro_batch_size > 0 ? q->fixed_micro_batch_size : 1;
    const bool has_episodes = q->workload->learning == TY_LEARNING_REINFORCEMENT;
    const char *why = has_episodes ? refusal_of(q, TY_AXIS_ACTORS) : NULL;

    if (why != NULL)
        return ty_fail(error, TY_EINVAL, "%s learns by reinforcement, and that is not combined: %s",
                       q->workload->name, why);
    if (actors == 0 && o->lag > 0 && (ty_is_pinned(o, TY_AXIS(ACTORS)) || !has_episodes))
        return ty_fail(error, TY_EINVAL, "lag: found %u, expected 0 without actors", o->lag);
    if (actors == 0) /* or the search chooses their number */
        return TY_OK;
    if (q->workload->learning != TY_LEARNING_REINFORCEMENT)
        return ty_fail(error, TY_EINVAL, "actors: found %u, expected 0: %s has no episodes to play",
                       actors, q->workload->name);
    if (o->servers > 0)
        return ty_fail(error, TY_EINVAL,
                       "actors: found %u and %u servers, expected one or the "
                       "other",
                       actors, o->servers);
    if (!ty_actors_suit(actors, learners, larger))
        return ty_fail(error, TY_EINVAL,
                       "actors: found %u beside %u learners, expected a multiple "
                       "or a divisor of them",
                       actors, learners);
    if (q->global_batch % micro_batch != 0 || q->global_batch / micro_batch % larger != 0)
        return ty_fail(error, TY_EINVAL,
                       "actors: found %u beside %u learners, who share %u "
                       "micro-batches; expected numbers that both divide them",
                       actors, learners, q->global_batch / micro_batch);
    return TY_OK;
}

static ty_status servers_find(search_question *q, ty_error *error)
{
    if (q->pins->servers == 0)
        return TY_OK;
    TY_TRY(ty_check_memory((q->servers = ty_alloc(q->pins->servers, sizeof *q->servers)) != NULL,
                           error));
    return ty_server_devices(q->cluster, q->pins->servers, q->servers, error);
}

/* TP, CP and EP sizes that the workload and the cluster allow. */
static ty_status check_ranks(const search_question *q, const ty_plan_dimensions *d, ty_error *error)
{
    const uint32_t most =
        d->tensor_parallel > d->context_parallel ? d->tensor_parallel : d->context_parallel;
    const uint32_t ranks = ty_dimensions_width(d);

    if (most > TY_MAX_PARALLEL_SIZE || d->expert_parallel > TY_MAX_PARALLEL_SIZE)
        return ty_fail(error, TY_EINVAL, "found %u ranks, expected at most %d",
                       most > TY_MAX_PARALLEL_SIZE ? most : d->expert_parallel,
                       TY_MAX_PARALLEL_SIZE);
    TY_TRY(ty_stack_tensor_check(&q->stack->plans, q->workload, d->tensor_parallel,
                                 ty_dimensions_sequence_parts(d), error));
    TY_TRY(ty_context_check(q->workload, d->context_parallel, error));
    TY_TRY(ty_stack_expert_check(&q->stack->plans, q->workload, d->expert_parallel,
                                 (int)d->table_shard, q->is_fp16, error));
    if (d->table_shard != TY_TABLES_WHOLE && d->expert_parallel <= 1)
        return ty_fail(error, TY_EINVAL,
                       "tables: found \"%s\" without expert-parallel ranks, expected ep=N too",
                       ty_table_shard_name(d->table_shard));
    if (d->table_shard != TY_TABLES_WHOLE && ty_is_pinned(q->pins, TY_AXIS(CYCLE)))
        return ty_fail(error, TY_EINVAL,
                       "tables: found \"%s\" with a cycle: sharded tables are in one bucket, "
                       "whenever their gradients are ready",
                       ty_table_shard_name(d->table_shard));
    if (ty_table_recompute_refusal(d->table_shard, d->recompute) != NULL)
        return ty_fail(error, TY_EINVAL, "tables: found \"%s\" with recompute %s: %s",
                       ty_table_shard_name(d->table_shard), ty_recompute_name(d->recompute),
                       ty_table_recompute_refusal(d->table_shard, d->recompute));
    if (q->device_count % ranks != 0 && ranks == d->tensor_parallel)
        return ty_fail(error, TY_EINVAL,
                       "tensor parallel %u: %s has %u devices, expected a divisor of them", ranks,
                       ty_cluster_name(q->cluster), q->device_count);
    if (q->device_count % ranks != 0)
        return ty_fail(error, TY_EINVAL,
                       "replicas of %u devices (tensor x context x expert parallel): %s has %u "
                       "devices, expected a divisor of them",
                       ranks, ty_cluster_name(q->cluster), q->device_count);
    if ((d->context_parallel > 1 || d->expert_parallel > 1) &&
        (q->workload->learning == TY_LEARNING_EVOLUTION || q->workload->local_steps > 1))
        return ty_fail(error, TY_EINVAL,
                       "%s has no gradients that are summed up in every step: context and expert "
                       "parallelism need them",
                       q->workload->name);
    if (ranks > 1 && ty_workload_has_teacher(q->workload))
        return ty_fail(error, TY_EINVAL,
                       "found %u ranks per replica, but %s is whole on one device: %s", ranks,
                       q->workload->name, ty_workload_whole_reason(q->workload));
    return TY_OK;
}

/* As many equal stages as the devices allow. */
static ty_status replicate(search_question *q, ty_error *error)
{
    const uint32_t replicas = q->pins->data_parallel;
    const uint32_t stages = ty_is_pinned(q->pins, TY_AXIS(PP)) ? q->pins->pipeline_stages
                                                               : q->stage_replica_count / replicas;

    if ((uint64_t)stages * replicas != q->stage_replica_count) {
        const uint32_t ranks = q->device_count / q->stage_replica_count,
                       pp = stages > 0 ? stages : 1;
        const uint64_t needed = (uint64_t)ranks * pp * replicas;
        char suggestion[48] = "";
        if (needed < q->device_count)
            snprintf(suggestion, sizeof suggestion, ": add devices=%llu",
                     (unsigned long long)needed);
        return ty_fail(error, TY_EINVAL,
                       "--fix dp=%u needs %llu devices (tp x cp x ep %u, pp %u), and %s has %u%s",
                       replicas, (unsigned long long)needed, ranks, pp, ty_cluster_name(q->cluster),
                       q->device_count, suggestion);
    }
    if (stages > TY_MAX_STAGES)
        return ty_fail(error, TY_EINVAL, "%u pipeline stages were asked for, expected at most %d",
                       stages, TY_MAX_STAGES);
    q->fixed_stages = stages;
    q->has_fixed_replicas = true;
    for (uint32_t s = 0; s < stages; s++)
        q->fixed_replicas[s] = replicas;
    return TY_OK;
}

ty_status ty_search_question_divide(search_question *q, const ty_plan_dimensions *d,
                                    ty_error *error)
{
    const uint32_t ranks = ty_dimensions_width(d);

    TY_TRY(check_ranks(q, d, error));
    if (d->sequence_parallel && d->tensor_parallel <= 1)
        return ty_fail(error, TY_EINVAL, "sequence parallelism needs tensor parallelism");
    if (d->zero > 3)
        return ty_fail(error, TY_EINVAL, "zero: found %u, expected 0 to 3", d->zero);
    q->dimensions = *d;
    ty_dimensions_normalize(&q->dimensions);
    q->stage_replica_count = q->device_count / ranks;
    return ty_is_pinned(q->pins, TY_AXIS(DP)) && !ty_is_pinned(q->pins, TY_AXIS(REPLICAS))
               ? replicate(q, error)
               : TY_OK;
}

/* Copies cuts that one tensor crosses, or the others, from `all_cuts` to the same place of `cuts`:
 * all of the kind, or `most` of them, those nearest to an equal partition. @return their number */
static uint32_t choose_cuts(search_question *q, bool are_narrow, uint32_t most)
{
    const ty_workload *w = q->workload;
    const double total = ty_workload_forward_flop(w, 0, w->layer_count);
    double before = 0;
    uint32_t kept = 0, layer = 0, count = 0;

    for (uint32_t i = 0; i < q->all_cut_count; i++)
        count += ty_workload_is_cut(w, q->all_cuts[i]) == are_narrow;
    for (uint32_t i = 0; i < q->all_cut_count; i++) {
        if (ty_workload_is_cut(w, q->all_cuts[i]) != are_narrow)
            continue;
        before += ty_workload_forward_flop(w, layer, q->all_cuts[i] - layer);
        layer = q->all_cuts[i];
        if (count <= most || !(total > 0) ||
            (before >= total * (kept + 1) / (most + 1) && kept < most)) {
            q->cuts[i] = q->all_cuts[i];
            kept++;
        }
    }
    return kept;
}

/* Whether a stage must have more than its share because no cut of one tensor splits the layers
 * between two of them. */
static bool has_heavy_piece(const search_question *q)
{
    const ty_workload *w = q->workload;
    const uint32_t stages = q->device_count < DEEP_PIPELINE ? q->device_count : DEEP_PIPELINE;
    const double share = ty_workload_forward_flop(w, 0, w->layer_count) / stages;
    uint32_t first = 0;

    for (uint32_t i = 0; i <= q->all_cut_count; i++) {
        const uint32_t end = i < q->all_cut_count ? q->all_cuts[i] : w->layer_count;
        if (i < q->all_cut_count && !ty_workload_is_cut(w, end))
            continue;
        if (ty_workload_forward_flop(w, first, end - first) > share)
            return true;
        first = end;
    }
    return false;
}

void ty_search_question_thin(search_question *q, uint32_t least)
{
    uint32_t most = q->device_count * 2 < MOST_CUTS ? q->device_count * 2 : MOST_CUTS;
    uint32_t kept;

    if (q->has_fixed_layers) {
        memcpy(q->cuts, q->all_cuts, q->all_cut_count * sizeof *q->cuts);
        q->cut_count = q->all_cut_count;
        return;
    }
    most = most < FEWEST_CUTS ? FEWEST_CUTS : most;
    most = most < least ? least : most;
    for (uint32_t i = 0; i < q->all_cut_count; i++)
        q->cuts[i] = 0;
    kept = choose_cuts(q, true, most);
    choose_cuts(q, false, 2 * kept <= most ? most - kept : has_heavy_piece(q) ? most / 2 : 0);
    q->cut_count = 0;
    for (uint32_t i = 0; i < q->all_cut_count; i++)
        if (q->cuts[i] > 0)
            q->cuts[q->cut_count++] = q->cuts[i];
}

/* Cuts that the question's stages fix, regardless of what crosses them. */
static uint32_t wanted_cuts(const ty_pins *pins)
{
    const uint32_t virtual_stages = at_least_one(pins->dimensions.virtual_stages);
    uint32_t stages =
        ty_is_pinned(pins, TY_AXIS(REPLICAS)) ? pins->replicas.count : pins->pipeline_stages;

    if (stages < UINT32_MAX / virtual_stages)
        stages *= virtual_stages;
    return stages > 0 ? stages - 1 : 0;
}

/* Layers at which stages may begin: only starts of blocks for a stack that does not split them.
 * @param least as ty_cut_positions */
static ty_status find_cuts(const search_question *q, uint32_t least, uint32_t **out,
                           uint32_t *count, ty_error *error)
{
    const uint32_t *starts;
    uint32_t head;
    const uint32_t blocks = ty_workload_blocks(q->workload, &starts, &head);

    if (!q->stack->plans.whole_blocks)
        return ty_cut_positions(q->workload, least, out, count, error);
    TY_TRY(ty_check_memory((*out = ty_alloc(blocks, sizeof **out)) != NULL, error));
    *count = 0;
    if (ty_stack_first_block(q->workload) > 0)
        (*out)[(*count)++] = ty_stack_first_block(q->workload);
    for (uint32_t b = 1; b < blocks; b++) /* the first is of stage 0 */
        if (ty_workload_is_divisible(q->workload, starts[b]))
            (*out)[(*count)++] = starts[b];
    return TY_OK;
}

/* The pinned layers into the cuts between stages: at allowed layers, for all layers. */
static ty_status read_layers(search_question *q, ty_error *error)
{
    const bool is_of_blocks = q->stack->plans.whole_blocks;
    const ty_stage_list *layers = &q->pins->layers;
    uint32_t *possible = NULL, possible_count = 0, p = 0;
    uint64_t layer = 0;
    ty_status status = find_cuts(q, UINT32_MAX, &possible, &possible_count, error);

    for (uint32_t s = 0; status == TY_OK && s < layers->count; s++) {
        layer += layers->numbers[s];
        if (s + 1 == layers->count)
            break;
        while (p < possible_count && possible[p] < layer)
            p++;
        if (p == possible_count || possible[p] != layer)
            status = ty_fail(error, TY_EINVAL,
                             "layers: found a stage that begins at layer %llu of the %u of %s, "
                             "expected one of %u to %u%s%s%s",
                             (unsigned long long)layer, q->workload->layer_count, q->workload->name,
                             possible_count > 0 ? possible[0] : 0,
                             possible_count > 0 ? possible[possible_count - 1] : 0,
                             is_of_blocks ? " that a block begins at: stages of stack " : "",
                             is_of_blocks ? q->stack->name : "",
                             is_of_blocks ? " are of whole blocks" : "");
        else
            possible[s] = (uint32_t)layer; /* no later than it was found */
    }
    if (status == TY_OK && layer != q->workload->layer_count)
        status = ty_fail(error, TY_EINVAL, "layers: found %llu in all, %s has %u",
                         (unsigned long long)layer, q->workload->name, q->workload->layer_count);
    if (status != TY_OK) {
        ty_free(possible);
        return status;
    }
    q->has_fixed_layers = true;
    q->all_cuts = possible;
    q->all_cut_count = layers->count - 1;
    return TY_OK;
}

/* The requested layers, if any, by the rules of the stack. */
static ty_status check_layers(const search_question *q, ty_error *error)
{
    const ty_plan_dimensions *d = &q->pins->dimensions;
    uint32_t first_layers[TY_MAX_STAGES] = {0};

    if (!q->has_fixed_layers)
        return TY_OK;
    memcpy(first_layers + 1, q->all_cuts, q->all_cut_count * sizeof *first_layers);
    return ty_stack_stages_check(&q->stack->plans, q->workload, first_layers, q->all_cut_count + 1,
                                 d->recompute == TY_RECOMPUTE_FULL, d->recompute_blocks, error);
}

/* The stack's cycle equals the one by which gradients are fused. */
static ty_status set_cycle(search_question *q, ty_error *error)
{
    const double cycle_s = q->pins->cycle_s;
    const ty_stack_constant *constant;
    ty_stack *stack = NULL;

    if (!ty_is_pinned(q->pins, TY_AXIS(CYCLE)) || !(q->stack->exchange_cycle_s > 0) ||
        q->stack->exchange_cycle_s == cycle_s)
        return TY_OK;
    TY_TRY(ty_stack_copy(q->stack, &stack, error));
    ty_stack_free(q->own_stack);
    q->stack = q->own_stack = stack;
    stack->exchange_cycle_s = cycle_s;
    for (uint32_t i = 0; (constant = ty_stack_constant_at(i)) != NULL; i++) {
        char *source;
        if (ty_stack_value(stack, constant) != &stack->exchange_cycle_s)
            continue;
        TY_TRY(ty_check_memory((source = ty_strdup("as the plan fuses its gradients")) != NULL,
                               error));
        ty_free(stack->sources[i]);
        stack->sources[i] = source;
    }
    return TY_OK;
}

/* The question with only the requested dimensions. */
static ty_status stand(search_question *q, ty_error *error)
{
    TY_TRY(ty_search_question_divide(q, &q->pins->dimensions, error));
    TY_TRY(check_stages(q, error));
    ty_search_question_thin(q, CUTS_PER_STAGE * q->fixed_stages *
                                   at_least_one(q->dimensions.virtual_stages));
    TY_TRY(check_batch(q, error));
    return TY_OK;
}

ty_status ty_search_question_use(search_question *q, const device_set *set, ty_error *error)
{
    const ty_plan_options *o = q->options;
    ty_status status;

    q->set = set;
    q->device_count = q->stage_replica_count = set->count;
    q->dimensions = (ty_plan_dimensions){0};
    q->fixed_stages = 0;
    q->has_fixed_replicas = false;
    q->is_short_of_memory = q->ignore_memory = false;
    q->refusal = (ty_error){0};
    q->has_equal_memory = true;
    q->largest_memory_bytes = 0;
    for (uint32_t d = 0; d < set->count; d++) {
        const uint64_t bytes = ty_device_room_bytes(
            ty_cluster_device_type(q->cluster, set->devices[d]), o->memory_reserve);
        q->has_equal_memory = q->has_equal_memory && (d == 0 || bytes == q->largest_memory_bytes);
        q->largest_memory_bytes = bytes > q->largest_memory_bytes ? bytes : q->largest_memory_bytes;
    }
    if (q->pins->servers > 0 && set->count < 2)
        return ty_fail(error, TY_EINVAL,
                       "servers: found %u, expected 0: they serve two replicas and more, and one "
                       "device is left",
                       q->pins->servers);
    status = stand(q, &q->refusal);
    /* With one of the sizes open, layouts have more combinations than the question itself. */
    if (status == TY_OK || (status == TY_EINVAL && !ty_is_pinned(q->pins, TY_AXIS(REPLICAS)) &&
                            (q->pins->axes & TY_AXES_OF_RANKS) != TY_AXES_OF_RANKS))
        return TY_OK;
    return ty_fail(error, status, "%s", q->refusal.message);
}

ty_status ty_search_question_make(const ty_workload *workload, const ty_cluster *cluster,
                                  const ty_profile *profile, const ty_plan_options *options,
                                  search_question *q, ty_error *error)
{
    ty_status status = TY_OK;

    *q = (search_question){.workload = workload,
                           .cluster = cluster,
                           .profile = profile,
                           .options = options,
                           .pins = &options->pins,
                           .stack = options->stack};
    q->fixed_micro_batch_size = q->pins->micro_batch_size;
    q->global_batch = options->global_batch > 0 ? options->global_batch : workload->global_batch;
    TY_CHECK(check_micro_batches(q, error), status, failed);
    TY_CHECK(servers_find(q, error), status, failed);
    if (q->pins->actors >= ty_cluster_device_count(cluster)) {
        status =
            ty_fail(error, TY_EINVAL,
                    "actors: found %u, expected fewer than the %u devices of %s, of which "
                    "others learn",
                    q->pins->actors, ty_cluster_device_count(cluster), ty_cluster_name(cluster));
        goto failed;
    }
    TY_CHECK(ty_device_sets_propose(cluster, q->pins, options->idle == TY_IDLE_MAY, q->servers,
                                    q->global_batch, &q->sets, &q->set_count, error),
             status, failed);
    if (q->stack == NULL) {
        TY_CHECK(ty_stack_open_default(workload, cluster, profile, options, &q->own_stack, error),
                 status, failed);
        q->stack = q->own_stack;
    }
    TY_CHECK(set_cycle(q, error), status, failed);
    TY_CHECK(ty_network_cache_new(cluster, &q->networks, error), status, failed);
    if (ty_is_pinned(q->pins, TY_AXIS(LAYERS)))
        status = read_layers(q, error);
    else
        status = find_cuts(q, wanted_cuts(q->pins), &q->all_cuts, &q->all_cut_count, error);
    TY_CHECK(status, status, failed);
    TY_CHECK(
        ty_check_memory((q->cuts = ty_alloc(q->all_cut_count + 1, sizeof *q->cuts)) != NULL, error),
        status, failed);
    q->is_fp16 = ty_trains_in_fp16(workload, cluster, q->sets[0].devices[0]);
    TY_CHECK(ty_search_question_use(q, &q->sets[0], error), status, failed);
    q->recomputes = ty_stack_recomputes(&q->stack->plans, ty_workload_is_dense(workload));
    TY_CHECK(ty_stack_check(q->stack, q->pins, workload, q->is_fp16, error), status, failed);
    TY_CHECK(check_layers(q, error), status, failed);
    TY_CHECK(check_compression(q, error), status, failed);
    TY_CHECK(check_tables(q, error), status, failed);
    if (q->pins->fit_buckets)
        TY_CHECK(ty_can_fit_buckets(q, &q->pins->dimensions, error), status, failed);
    TY_CHECK(check_whole_network(q, error), status, failed);
    TY_CHECK(check_requested(q, error), status, failed);
    TY_CHECK(check_actors(q, error), status, failed);
    TY_CHECK(check_rest(q, error), status, failed);
    TY_CHECK(ty_workload_digest(workload, &q->workload_digest, error), status, failed);
    return TY_OK;

failed:
    ty_search_question_clear(q);
    return status;
}
