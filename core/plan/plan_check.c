/* Invariants of every plan, from any source. */
#include "plan_check.h"

#include "json_parts.h"
#include "ty_base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef plan_checker checker;

/* ---- Batch and optimizer ------------------------------------------------------------------- */

static ty_status check_batch(const checker *c)
{
    const ty_plan *p = c->plan;
    const struct {
        const char *name;
        uint32_t value, maximum;
    } counts[] = {
        {"global_batch", p->global_batch, UINT32_MAX},
        {"micro_batch_size", p->micro_batch_size, UINT32_MAX},
        {"micro_batches", p->micro_batches, TY_MAX_MICRO_BATCHES},
    };

    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (counts[i].value == 0 || counts[i].value > counts[i].maximum)
            return ty_plan_complain(c, "/%s: found %u, expected 1 to %u", counts[i].name,
                                    counts[i].value, counts[i].maximum);
    if ((uint64_t)p->micro_batches * p->micro_batch_size != p->global_batch)
        return ty_plan_complain(
            c, "/global_batch: found %u, expected micro_batches * micro_batch_size = %llu",
            p->global_batch, (unsigned long long)p->micro_batches * p->micro_batch_size);
    if ((unsigned)p->schedule >= TY_SCHEDULE_COUNT)
        return ty_plan_complain(c, "/schedule: found %d, expected a schedule", (int)p->schedule);
    if (p->seed > TY_JSON_MAX_INTEGER)
        return ty_plan_complain(c, "/seed: found %llu, expected less than 2^53",
                                (unsigned long long)p->seed);
    return TY_OK;
}

static ty_status check_optimizer(const checker *c)
{
    const ty_optimizer *o = &c->plan->optimizer;
    const struct {
        const char *name;
        double value, maximum;
    } rates[] = {
        {"learning_rate", o->learning_rate, 1e6},
        {"momentum", o->momentum, 1},
        {"beta1", o->beta1, 1},
        {"beta2", o->beta2, 1},
        {"epsilon", o->epsilon, 1},
        {"weight_decay", o->weight_decay, 1e6},
    };

    if ((unsigned)o->kind >= TY_OPTIMIZER_COUNT)
        return ty_plan_complain(c, "/optimizer/kind: found %d, expected an optimizer",
                                (int)o->kind);
    for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++)
        if (!(rates[i].value >= 0) || rates[i].value > rates[i].maximum)
            return ty_plan_complain(c, "/optimizer/%s: found %g, expected a number from 0 to %g",
                                    rates[i].name, rates[i].value, rates[i].maximum);
    return TY_OK;
}

/* ---- Stages -------------------------------------------------------------------------------- */

/* Requirements of a schedule on the stages. */
static ty_status check_schedule(const checker *c)
{
    const ty_plan *p = c->plan;
    const uint32_t pipeline_size = ty_plan_pipeline_size(p);

    for (uint32_t s = 0; s < p->stage_count; s++) {
        const uint32_t replicas = p->stages[s].replicas;
        const uint32_t local = replicas > 0 ? p->micro_batches / replicas : 0;
        const ty_schedule_use use = {.pipeline_size = pipeline_size,
                                     .virtual_stages = ty_plan_virtual_stages(p),
                                     .micro_batches = local,
                                     .zero = p->zero,
                                     .has_segments =
                                         ty_recompute_has_segments(p->stages[s].recompute)};
        const ty_schedule_problem problem = ty_schedule_check(p->schedule, &use);

        if (problem == TY_SCHEDULE_VIRTUAL_STAGES)
            return ty_plan_complain(
                c,
                "/interleave: found %u with schedule \"%s\", expected more than 1 with "
                "\"interleaved\" and with no other",
                use.virtual_stages, ty_schedule_name(p->schedule));
        if (problem == TY_SCHEDULE_MULTIPLE ||
            (use.virtual_stages > 1 && replicas != p->stages[0].replicas))
            return ty_plan_complain(
                c,
                "/stages/%u/replicas: found %u with %u micro-batches each, expected as "
                "many as in stage 0, and a multiple of the %u pipeline ranks",
                s, replicas, local, pipeline_size);
        if (problem == TY_SCHEDULE_TOO_FEW)
            return ty_plan_complain(
                c,
                "/stages/%u/replicas: found %u with %u micro-batches each, expected at "
                "least %u, one for each stage",
                s, replicas, local, pipeline_size);
        if (problem == TY_SCHEDULE_SEGMENTS)
            return ty_plan_complain(
                c,
                "/stages/%u/recompute: found \"%s\" with schedule \"%s\", whose "
                "backward comes in two parts, expected \"none\" or \"selective\"",
                s, ty_recompute_name(p->stages[s].recompute), ty_schedule_name(p->schedule));
        if (problem == TY_SCHEDULE_ZERO)
            return ty_plan_complain(c, "/zero: found %u with schedule \"%s\", expected 0", p->zero,
                                    ty_schedule_name(p->schedule));
    }
    return TY_OK;
}

static ty_status check_tensor(const ty_plan *p, uint32_t ranks, ty_error *why)
{
    return ty_tensor_check(p->workload, ranks, ty_plan_sequence_parts(p), why);
}

static ty_status check_context(const ty_plan *p, uint32_t ranks, ty_error *why)
{
    return ty_context_check(p->workload, ranks, why);
}

static ty_status check_expert(const ty_plan *p, uint32_t ranks, ty_error *why)
{
    const ty_status status = ty_expert_check(p->workload, ranks, p->table_shard, why);

    if (status == TY_OK && p->micro_batch_size % ranks != 0)
        return ty_fail(why, TY_EINVAL,
                       "expert parallel %u: micro-batches of %u samples, expected a multiple of it",
                       ranks, p->micro_batch_size);
    return status;
}

/* Ranks with the same weights sum up their gradients in every step. */
static ty_status check_learning(const ty_plan *p, ty_parallelism kind, ty_error *why)
{
    if (kind == TY_TENSOR_PARALLEL && !ty_workload_has_teacher(p->workload))
        return TY_OK;
    if (ty_workload_whole_reason(p->workload) != NULL || p->workload->local_steps > 1)
        return ty_fail(why, TY_EINVAL, "expected 1 where %s",
                       p->workload->local_steps > 1 ? "replicas take local steps"
                                                    : ty_workload_whole_reason(p->workload));
    return TY_OK;
}

static ty_status check_ranks(const checker *c)
{
    static const struct {
        const char *name;
        ty_status (*check)(const ty_plan *p, uint32_t ranks, ty_error *why);
    } kinds[TY_PARALLELISM_COUNT] = {
        [TY_TENSOR_PARALLEL] = {"tensor_parallel", check_tensor},
        [TY_CONTEXT_PARALLEL] = {"context_parallel", check_context},
        [TY_EXPERT_PARALLEL] = {"expert_parallel", check_expert},
    };

    for (int k = 0; k < TY_PARALLELISM_COUNT; k++) {
        const uint32_t ranks = ty_plan_parallel_size(c->plan, (ty_parallelism)k);
        ty_error why = {0};
        if (ranks > TY_MAX_PARALLEL_SIZE)
            return ty_plan_complain(c, "/%s: found %u, expected at most %d", kinds[k].name, ranks,
                                    TY_MAX_PARALLEL_SIZE);
        if (ranks > 1 && (kinds[k].check(c->plan, ranks, &why) != TY_OK ||
                          check_learning(c->plan, (ty_parallelism)k, &why) != TY_OK))
            return ty_plan_complain(c, "/%s: found %u: %s", kinds[k].name, ranks, why.message);
    }
    if ((unsigned)c->plan->table_shard >= TY_TABLE_SHARD_COUNT)
        return ty_plan_complain(c, "/table_shard: found %d, expected a way to divide tables",
                                (int)c->plan->table_shard);
    if (c->plan->table_shard != TY_TABLES_WHOLE &&
        ty_plan_parallel_size(c->plan, TY_EXPERT_PARALLEL) == 1)
        return ty_plan_complain(
            c, "/table_shard: found \"%s\" without expert parallelism, expected \"whole\"",
            ty_table_shard_name(c->plan->table_shard));
    for (uint32_t s = 0; s < c->plan->stage_count; s++)
        if (ty_table_recompute_refusal(c->plan->table_shard, c->plan->stages[s].recompute) != NULL)
            return ty_plan_complain(
                c, "/stages/%u/recompute: found \"%s\", expected \"none\": %s", s,
                ty_recompute_name(c->plan->stages[s].recompute),
                ty_table_recompute_refusal(c->plan->table_shard, c->plan->stages[s].recompute));
    if (c->plan->sequence_parallel && ty_plan_parallel_size(c->plan, TY_TENSOR_PARALLEL) == 1)
        return ty_plan_complain(
            c, "/sequence_parallel: found true without tensor parallelism, expected "
               "false");
    return TY_OK;
}

static ty_status check_staleness(const checker *c)
{
    const ty_plan *p = c->plan;
    const char *why = p->staleness > 0 ? ty_plan_refusal(TY_AXIS_STALENESS, p) : NULL;

    if (p->staleness > TY_MAX_STALENESS)
        return ty_plan_complain(c, "/staleness: found %u, expected at most %d", p->staleness,
                                TY_MAX_STALENESS);
    if (why != NULL)
        return ty_plan_complain(c, "/staleness: found %u, expected 0: %s", p->staleness, why);
    return TY_OK;
}

/* Actors and their policy staleness. */
static ty_status check_actors(const checker *c)
{
    const ty_plan *p = c->plan;
    const bool has_episodes = p->workload->learning == TY_LEARNING_REINFORCEMENT;
    const char *why = has_episodes ? ty_plan_refusal(TY_AXIS_ACTORS, p) : NULL;
    const uint32_t actors = ty_plan_actors(p);

    if (why != NULL)
        return ty_plan_complain(c, "/workload/learning: found reinforcement, expected another: %s",
                                why);
    if (actors == 0 && p->lag > 0)
        return ty_plan_complain(c, "/lag: found %u, expected 0 without actors", p->lag);
    if (p->lag > TY_MAX_LAG)
        return ty_plan_complain(c, "/lag: found %u, expected at most %d", p->lag, TY_MAX_LAG);
    if (actors == 0)
        return TY_OK;
    if (!has_episodes)
        return ty_plan_complain(c,
                                "/stages/0/layer_count: found 0, expected some: %s has no "
                                "episodes to play",
                                p->workload->name);
    if (p->stage_count != 2)
        return ty_plan_complain(c,
                                "/stages: found %u, expected 2: actors, and learners who have "
                                "the whole network",
                                p->stage_count);
    if (p->servers.count > 0)
        return ty_plan_complain(c, "/servers: found %u, expected none beside actors",
                                p->servers.count);
    if (!ty_actors_suit(actors, p->stages[1].replicas, p->micro_batches))
        return ty_plan_complain(c,
                                "/stages/0/replicas: found %u actors of %u learners, expected a "
                                "multiple or a divisor of them, and a divisor of the %u "
                                "micro-batches",
                                actors, p->stages[1].replicas, p->micro_batches);
    return TY_OK;
}

static ty_status check_dimensions(const checker *c)
{
    const ty_plan *p = c->plan;
    const uint32_t virtual_stages = ty_plan_virtual_stages(p);

    if (p->stage_count % virtual_stages != 0 ||
        (virtual_stages > 1 && p->stage_count / virtual_stages < 2))
        return ty_plan_complain(
            c,
            "/interleave: found %u with %u stages, expected a divisor that leaves at "
            "least two pipeline ranks",
            virtual_stages, p->stage_count);
    TY_TRY(check_ranks(c));
    if (p->zero > 3)
        return ty_plan_complain(c, "/zero: found %u, expected 0 to 3", p->zero);
    TY_TRY(check_schedule(c));
    TY_TRY(check_actors(c));
    return check_staleness(c);
}

/* All stages of a pipeline rank are on the same devices. */
static ty_status check_pipeline_rank(const checker *c, uint32_t index)
{
    const ty_plan *p = c->plan;
    const uint32_t first = index % ty_plan_pipeline_size(p);
    const size_t devices = (size_t)p->stages[index].replicas * ty_plan_replica_ranks(p);

    if (index == first)
        return TY_OK;
    if (p->stages[index].replicas != p->stages[first].replicas)
        return ty_plan_complain(
            c,
            "/stages/%u/replicas: found %u, expected %u as in stage %u, which shares "
            "its devices",
            index, p->stages[index].replicas, p->stages[first].replicas, first);
    if (memcmp(p->stages[index].devices, p->stages[first].devices,
               devices * sizeof *p->stages[index].devices) != 0)
        return ty_plan_complain(
            c, "/stages/%u/devices: expected those of stage %u, %u pipeline ranks before it", index,
            first, ty_plan_pipeline_size(p));
    return TY_OK;
}

static ty_status check_stage(const checker *c, uint32_t index, uint32_t first_layer)
{
    const ty_plan *p = c->plan;
    const ty_plan_stage *s = &p->stages[index];

    if (s->first_layer != first_layer)
        return ty_plan_complain(
            c,
            "/stages/%u/first_layer: found %u, expected %u, the layer after the "
            "stage before",
            index, s->first_layer, first_layer);
    if ((s->layer_count == 0 && !ty_plan_is_of_actors(p, index)) ||
        s->layer_count > p->workload->layer_count - first_layer)
        return ty_plan_complain(c, "/stages/%u/layer_count: found %u, expected 1 to %u", index,
                                s->layer_count, p->workload->layer_count - first_layer);
    if (first_layer > 0 && !ty_workload_is_divisible(p->workload, first_layer))
        return ty_plan_complain(
            c,
            "/stages/%u/first_layer: the workload cannot be divided before layer %u "
            "(\"%s\"): expected all layers that read the batch before the cut",
            index, first_layer, p->workload->layers[first_layer].name);
    if (s->replicas == 0 || p->micro_batches % s->replicas != 0)
        return ty_plan_complain(
            c, "/stages/%u/replicas: found %u, expected a divisor of micro_batches, %u", index,
            s->replicas, p->micro_batches);
    if ((unsigned)s->recompute >= TY_RECOMPUTE_COUNT)
        return ty_plan_complain(
            c,
            "/stages/%u/recompute: found %d, expected \"none\", \"selective\", \"elementwise\", "
            "\"operator\" or \"full\"",
            index, (int)s->recompute);
    if (s->recompute_blocks > (s->recompute == TY_RECOMPUTE_FULL ? TY_MAX_RECOMPUTE_BLOCKS : 0))
        return ty_plan_complain(c,
                                "/stages/%u/recompute_blocks: found %u with recompute \"%s\", "
                                "expected 1 to %d, with \"full\" only",
                                index, s->recompute_blocks, ty_recompute_name(s->recompute),
                                TY_MAX_RECOMPUTE_BLOCKS);
    if (s->devices == NULL)
        return ty_plan_complain(
            c, "/stages/%u/devices: found none, expected one per replica and rank", index);
    return check_pipeline_rank(c, index);
}

static int compare_indices(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static ty_status check_devices(const checker *c, uint32_t used)
{
    const ty_plan *p = c->plan;
    ty_status status = TY_OK;
    uint32_t count = 0;
    uint32_t *devices = ty_alloc(used, sizeof *devices);

    TY_TRY(ty_check_memory(devices != NULL, c->error));
    for (uint32_t s = 0; s < ty_plan_pipeline_size(p); s++)
        for (uint32_t q = 0; q < p->stages[s].replicas * ty_plan_replica_ranks(p); q++)
            devices[count++] = p->stages[s].devices[q];
    qsort(devices, count, sizeof *devices, compare_indices);
    for (uint32_t i = 1; i < count; i++)
        if (devices[i] == devices[i - 1]) {
            status = ty_plan_complain(c, "/stages: found device %u twice, expected each once",
                                      devices[i]);
            break;
        }
    ty_free(devices);
    return status;
}

static ty_status check_stages(const checker *c)
{
    const ty_plan *p = c->plan;
    uint64_t devices = 0;
    uint32_t next_layer = 0;

    if (p->stages == NULL || p->stage_count == 0 || p->stage_count > TY_MAX_STAGES_OF_A_PLAN)
        return ty_plan_complain(c, "/stages: found %u, expected 1 to %d", p->stage_count,
                                TY_MAX_STAGES_OF_A_PLAN);
    TY_TRY(check_dimensions(c));
    for (uint32_t s = 0; s < p->stage_count; s++) {
        TY_TRY(check_stage(c, s, next_layer));
        next_layer += p->stages[s].layer_count;
        if (s < ty_plan_pipeline_size(p))
            devices += (uint64_t)p->stages[s].replicas * ty_plan_replica_ranks(p);
    }
    if (next_layer != p->workload->layer_count)
        return ty_plan_complain(c, "/stages: found layers 0 to %u, expected all %u of the workload",
                                next_layer - 1, p->workload->layer_count);
    if (devices > TY_MAX_RANKS)
        return ty_plan_complain(c, "/stages: found %llu devices in all, expected at most %d",
                                (unsigned long long)devices, TY_MAX_RANKS);
    return check_devices(c, (uint32_t)devices);
}

/* ---- Predictions --------------------------------------------------------------------------- */

static ty_status check_summary(const checker *c, const char *key, const ty_step_summary *s)
{
    const struct {
        const char *name;
        double value, maximum;
    } figures[] = {
        {"step_time_s", s->step_time_s, HUGE_VAL},
        {"samples_per_s", s->samples_per_s, HUGE_VAL},
        {"tokens_per_s", s->tokens_per_s, HUGE_VAL},
        {"mfu", s->mfu, HUGE_VAL},
        {"tflops_per_device", s->tflops_per_device, HUGE_VAL},
        {"tokens_per_s_per_device", s->tokens_per_s_per_device, HUGE_VAL},
        {"compute_share", s->compute_share, 1 + 1e-6},
        {"exposed_collective_share", s->exposed_collective_share, 1 + 1e-6},
        {"exposed_transfer_share", s->exposed_transfer_share, 1 + 1e-6},
        {"bubble_share", s->bubble_share, 1 + 1e-6},
        {"input_share", s->input_share, 1 + 1e-6},
    };

    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (!isfinite(figures[i].value) || figures[i].value < 0 ||
            figures[i].value > figures[i].maximum)
            return ty_plan_complain(
                c, "/%s/%s: found %g, expected %s", key, figures[i].name, figures[i].value,
                isfinite(figures[i].maximum) ? "a share from 0 to 1" : "a finite number >= 0");
    return TY_OK;
}

static ty_status check_answer(const checker *c)
{
    const ty_plan *p = c->plan;

    for (uint32_t i = 0; i < p->candidate_count; i++) {
        const ty_candidate *candidate = &p->candidates[i];
        if (candidate->name == NULL || candidate->reason == NULL)
            return ty_plan_complain(c, "/candidates/%u: found no %s", i,
                                    candidate->name == NULL ? "name" : "reason");
        if (!isfinite(candidate->step_time_s) || candidate->step_time_s < 0 ||
            !isfinite(candidate->simulated_step_time_s) || candidate->simulated_step_time_s < 0)
            return ty_plan_complain(
                c,
                "/candidates/%u: found step times %g s and %g s, expected finite "
                "numbers >= 0",
                i, candidate->step_time_s, candidate->simulated_step_time_s);
    }
    if (!p->has_prediction)
        return TY_OK;
    if (p->memory == NULL)
        return ty_plan_complain(c,
                                "/memory: found none, expected one per stage with the prediction");
    if ((unsigned)p->provenance > TY_DATASHEET)
        return ty_plan_complain(c, "/provenance: found %d, expected a provenance",
                                (int)p->provenance);
    if (!isfinite(p->most_step_time_s) || p->least_step_time_s < 0 ||
        !(p->least_step_time_s <= p->most_step_time_s))
        return ty_plan_complain(c,
                                "/outside_measurements: found steps of %g s to %g s, expected a "
                                "finite number >= 0 and one that is no less",
                                p->least_step_time_s, p->most_step_time_s);
    for (int kind = 0; kind < TY_IMBALANCE_COUNT; kind++) {
        const ty_imbalance *uneven = &p->uneven[kind];
        if (uneven->better_count > sizeof uneven->better / sizeof uneven->better[0] ||
            !(uneven->lost_share >= 0 && uneven->lost_share <= 1))
            return ty_plan_complain(c,
                                    "/divides_badly/%s: found %u better and a share of %g, "
                                    "expected at most %zu, 0 to 1",
                                    ty_imbalance_name((ty_imbalance_kind)kind),
                                    uneven->better_count, uneven->lost_share,
                                    sizeof uneven->better / sizeof uneven->better[0]);
    }
    TY_TRY(check_summary(c, "prediction", &p->prediction));
    return check_summary(c, "simulation", &p->simulation);
}

/* ---- Documents ----------------------------------------------------------------------------- */

static ty_status check_documents(const checker *c)
{
    const ty_plan *p = c->plan;
    ty_digest digest;

    if (p->cluster_name == NULL || p->cluster_name[0] == '\0' || p->strategy == NULL ||
        p->strategy[0] == '\0')
        return ty_plan_complain(
            c, "/%s: found nothing, expected a name",
            p->cluster_name == NULL || p->cluster_name[0] == '\0' ? "cluster_name" : "strategy");
    TY_TRY(ty_workload_digest(p->workload, &digest, c->error));
    if (strcmp(digest.hex, p->workload_digest.hex) != 0)
        return ty_plan_complain(c,
                                "/workload_digest: this plan was made for another workload (digest "
                                "%.12s...), found one with digest %.12s...",
                                p->workload_digest.hex, digest.hex);
    if (p->cluster == NULL)
        return ty_plan_complain(c,
                                "/cluster: found none, expected the cluster the plan was made for");
    for (uint32_t s = 0; s < ty_plan_pipeline_size(p); s++)
        for (uint32_t q = 0; q < p->stages[s].replicas * ty_plan_replica_ranks(p); q++)
            if (p->stages[s].devices[q] >= ty_cluster_device_count(p->cluster))
                return ty_plan_complain(
                    c, "/stages/%u/devices/%u: found %u, expected one of the cluster's %u devices",
                    s, q, p->stages[s].devices[q], ty_cluster_device_count(p->cluster));
    for (uint32_t i = 0; i < p->servers.count; i++)
        if (p->servers.devices[i] >= ty_cluster_device_count(p->cluster))
            return ty_plan_complain(
                c, "/servers/devices/%u: found %u, expected one of the cluster's %u devices", i,
                p->servers.devices[i], ty_cluster_device_count(p->cluster));
    return TY_OK;
}

ty_status ty_plan_check_at(const ty_plan *plan, const char *place, ty_error *error)
{
    static ty_status (*const checks[])(const checker *) = {
        check_batch,           check_optimizer,     check_stages, ty_plan_check_buckets,
        ty_plan_check_servers, ty_plan_check_order, check_answer, check_documents,
    };
    const checker c = {plan, place, error};

    if (plan->workload == NULL || plan->workload->layer_count == 0)
        return ty_plan_complain(&c, "/workload: found none, expected one with layers");
    for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++) {
        ty_status status = checks[i](&c);
        if (status != TY_OK)
            return status;
    }
    return TY_OK;
}

ty_status ty_plan_check(const ty_plan *plan, const char *name, ty_error *error)
{
    char place[TY_JSON_PLACE_SIZE];

    snprintf(place, sizeof place, "%s:", name);
    return ty_plan_check_at(plan, place, error);
}
