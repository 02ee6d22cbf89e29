/* Several jobs as one plan whose parts do not communicate. See ty_simulate.h. */
#include "ty_simulate.h"

#include "parallel_exchange.h"
#include "ty_base.h"

#include <math.h>
#include <string.h>

enum { MOST_JOINED_MICRO_BATCHES = 1 << 24 };

/* The combined plan that is simulated. Its pointers are the tenants', except the arrays. */
typedef struct joined {
    const ty_tenant *tenants;
    uint32_t count;
    const ty_cluster *cluster;
    ty_plan plan;
    ty_program program;
    ty_costs costs;
    ty_parallel_exchanges parallel;
    uint32_t pipeline_rank, bucket, stage_replica; /* first ones of the tenant being added */
} joined;

static ty_status check_alike(const ty_tenant *tenants, uint32_t count, ty_error *error)
{
    const ty_plan *first = tenants[0].plan;

    for (uint32_t t = 0; t < count && count > 1; t++)
        if (tenants[t].plan->servers.count > 0)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "job %u has %u servers of gradients; expected none, to be simulated "
                           "with others",
                           t, tenants[t].plan->servers.count);
    for (uint32_t t = 1; t < count; t++) {
        const ty_plan *other = tenants[t].plan;
        const char *what = NULL;
        for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
            if (ty_plan_parallel_size(other, (ty_parallelism)k) !=
                ty_plan_parallel_size(first, (ty_parallelism)k))
                return ty_fail(error, TY_EUNSUPPORTED,
                               "jobs 0 and %u differ in %s parallelism; expected the same, to be "
                               "simulated together",
                               t, ty_parallelism_name((ty_parallelism)k));
        if (ty_plan_virtual_stages(other) != ty_plan_virtual_stages(first))
            what = "interleaving";
        else if ((other->zero > 0) != (first->zero > 0))
            what = "sharding";
        else if (other->staleness != first->staleness)
            what = "staleness";
        else if (other->lag != first->lag ||
                 (ty_plan_actors(other) > 0) != (ty_plan_actors(first) > 0))
            what = "actors";
        else if ((other->exchange_order != NULL) != (first->exchange_order != NULL))
            what = "priority";
        else if (other->workload->learning != first->workload->learning ||
                 other->workload->local_steps != first->workload->local_steps)
            what = "the kind of learning";
        if (what != NULL)
            return ty_fail(
                error, TY_EUNSUPPORTED,
                "jobs 0 and %u differ in %s; expected the same, to be simulated together", t, what);
    }
    return TY_OK;
}

static ty_status make_room(joined *j, ty_error *error)
{
    uint64_t stages = 0, pipeline_size = 0, buckets = 0, stage_replicas = 0, micro_batches = 1;

    for (uint32_t t = 0; t < j->count; t++) {
        const ty_plan *plan = j->tenants[t].plan;
        stages += plan->stage_count;
        pipeline_size += ty_plan_pipeline_size(plan);
        buckets += plan->bucket_count;
        stage_replicas += ty_plan_stage_replica_count(plan);
        micro_batches = micro_batches / ty_greatest_divisor(micro_batches, plan->micro_batches) *
                        plan->micro_batches;
        if (micro_batches > MOST_JOINED_MICRO_BATCHES || stages > UINT32_MAX ||
            stage_replicas > UINT32_MAX)
            return ty_fail(error, TY_EUNSUPPORTED,
                           "jobs: found %llu micro-batches in common, expected at most %d",
                           (unsigned long long)micro_batches, MOST_JOINED_MICRO_BATCHES);
    }
    j->plan = *j->tenants[0].plan;
    j->plan.micro_batches = (uint32_t)micro_batches;
    j->plan.stage_count = (uint32_t)stages;
    j->plan.bucket_count = (uint32_t)buckets;
    j->plan.stages = ty_alloc(stages, sizeof *j->plan.stages);
    j->plan.buckets = ty_alloc(buckets, sizeof *j->plan.buckets);
    j->program.stage_count = j->costs.stage_count = (uint32_t)pipeline_size;
    j->program.stages = ty_alloc(pipeline_size, sizeof *j->program.stages);
    j->costs.instruction_counts = ty_alloc(pipeline_size, sizeof *j->costs.instruction_counts);
    j->costs.instructions = ty_alloc(pipeline_size, sizeof *j->costs.instructions);
    j->costs.stage_replica_count = (uint32_t)stage_replicas;
    j->costs.replica_host = ty_alloc(stage_replicas, sizeof *j->costs.replica_host);
    j->costs.host_count = ty_cluster_host_count(j->cluster);
    j->costs.host_cores = ty_alloc(j->costs.host_count, sizeof *j->costs.host_cores);
    j->parallel.pipeline_ranks = ty_alloc(pipeline_size, sizeof(ty_parallel_instruction *));
    j->parallel.is_used = ty_alloc(pipeline_size, sizeof *j->parallel.is_used);
    j->parallel.is_all_to_all = ty_alloc(pipeline_size, sizeof *j->parallel.is_all_to_all);
    j->parallel.pipeline_size = (uint32_t)pipeline_size;
    TY_TRY(ty_check_memory(j->plan.stages != NULL && j->plan.buckets != NULL &&
                               j->program.stages != NULL && j->costs.instruction_counts != NULL &&
                               j->costs.instructions != NULL && j->costs.replica_host != NULL &&
                               j->costs.host_cores != NULL && j->parallel.pipeline_ranks != NULL &&
                               j->parallel.is_used != NULL && j->parallel.is_all_to_all != NULL,
                           error));
    for (uint32_t h = 0; h < j->costs.host_count; h++)
        j->costs.host_cores[h] = HUGE_VAL;
    return TY_OK;
}

/* Index of a tenant's stage among all: pipeline rank by pipeline rank, then the next virtual stage
 * of each.
 */
static uint32_t stage_of(const joined *j, const ty_plan *plan, uint32_t stage)
{
    const uint32_t pipeline_size = ty_plan_pipeline_size(plan);
    return stage / pipeline_size * j->program.stage_count + j->pipeline_rank +
           stage % pipeline_size;
}

static ty_status add_stages(joined *j, const ty_tenant *tenant, ty_error *error)
{
    for (uint32_t s = 0; s < tenant->plan->stage_count; s++) {
        const ty_plan_stage *from = &tenant->plan->stages[s];
        ty_plan_stage *to = &j->plan.stages[stage_of(j, tenant->plan, s)];
        const size_t devices = (size_t)from->replicas * ty_plan_replica_ranks(tenant->plan);
        *to = *from;
        TY_TRY(
            ty_check_memory((to->devices = ty_alloc(devices, sizeof *to->devices)) != NULL, error));
        for (size_t d = 0; d < devices; d++) {
            if (from->devices[d] >= ty_cluster_device_count(j->cluster) ||
                tenant->first_device >= ty_cluster_device_count(j->cluster) - from->devices[d])
                return ty_fail(error, TY_EINVAL, "job %u: found device %u from %u on, %s has %u",
                               (uint32_t)(tenant - j->tenants), from->devices[d],
                               tenant->first_device, ty_cluster_name(j->cluster),
                               ty_cluster_device_count(j->cluster));
            to->devices[d] = from->devices[d] + tenant->first_device;
        }
    }
    return TY_OK;
}

static ty_status add_program(joined *j, const ty_tenant *tenant, ty_error *error)
{
    for (uint32_t p = 0; p < tenant->program->stage_count; p++) {
        const ty_stage_program *from = &tenant->program->stages[p];
        ty_stage_program *to = &j->program.stages[j->pipeline_rank + p];
        to->instructions = ty_alloc(from->instruction_count, sizeof *to->instructions);
        TY_TRY(ty_check_memory(to->instructions != NULL, error));
        to->instruction_count = from->instruction_count;
        for (uint32_t i = 0; i < from->instruction_count; i++) {
            ty_instruction *in = &to->instructions[i];
            *in = from->instructions[i];
            if (in->stage < tenant->plan->stage_count)
                in->stage = stage_of(j, tenant->plan, in->stage);
            if (in->peer_stage < tenant->plan->stage_count)
                in->peer_stage = stage_of(j, tenant->plan, in->peer_stage);
            if (in->bucket < tenant->plan->bucket_count)
                in->bucket += j->bucket;
        }
        j->costs.instruction_counts[j->pipeline_rank + p] = tenant->costs->instruction_counts[p];
        j->costs.instructions[j->pipeline_rank + p] = tenant->costs->instructions[p];
    }
    return TY_OK;
}

/* Its TP, CP and EP collectives follow from its own layers, on its new devices. */
static ty_status add_parallel(joined *j, const ty_tenant *tenant, ty_error *error)
{
    ty_plan moved = *tenant->plan;
    ty_parallel_exchanges own = {0};
    ty_status status;

    TY_TRY(ty_check_memory(
        (moved.stages = ty_alloc(moved.stage_count, sizeof *moved.stages)) != NULL, error));
    for (uint32_t s = 0; s < moved.stage_count; s++)
        moved.stages[s] = j->plan.stages[stage_of(j, tenant->plan, s)];
    status =
        ty_parallel_exchanges_find(&moved, tenant->program, tenant->costs, j->cluster, &own, error);
    for (uint32_t p = 0; status == TY_OK && p < own.pipeline_size; p++) {
        j->parallel.pipeline_ranks[j->pipeline_rank + p] = own.pipeline_ranks[p];
        memcpy(j->parallel.is_used[j->pipeline_rank + p], own.is_used[p], sizeof *own.is_used);
        memcpy(j->parallel.is_all_to_all[j->pipeline_rank + p], own.is_all_to_all[p],
               sizeof *own.is_all_to_all);
        own.pipeline_ranks[p] = NULL;
    }
    ty_parallel_exchanges_clear(&own);
    ty_free(moved.stages);
    return status;
}

static ty_status check_devices(const joined *j, ty_error *error)
{
    ty_status status = TY_OK;
    bool *is_used = ty_alloc(ty_cluster_device_count(j->cluster), sizeof *is_used);

    TY_TRY(ty_check_memory(is_used != NULL, error));
    for (uint32_t p = 0; p < j->program.stage_count; p++)
        for (size_t d = 0; d < (size_t)j->plan.stages[p].replicas * ty_plan_replica_ranks(&j->plan);
             d++) {
            const uint32_t device = j->plan.stages[p].devices[d];
            if (status == TY_OK && is_used[device])
                status = ty_fail(error, TY_EINVAL, "jobs: device %u is used twice", device);
            is_used[device] = true;
        }
    ty_free(is_used);
    return status;
}

static ty_status join(joined *j, ty_error *error)
{
    TY_TRY(check_alike(j->tenants, j->count, error));
    TY_TRY(make_room(j, error));
    for (uint32_t t = 0; t < j->count; t++) {
        const ty_tenant *tenant = &j->tenants[t];
        TY_TRY(add_stages(j, tenant, error));
        for (uint32_t b = 0; b < tenant->plan->bucket_count; b++) {
            ty_bucket *to = &j->plan.buckets[j->bucket + b];
            *to = tenant->plan->buckets[b];
            to->stage = stage_of(j, tenant->plan, to->stage);
            if (to->tied_stage != TY_NO_STAGE)
                to->tied_stage = stage_of(j, tenant->plan, to->tied_stage);
        }
        TY_TRY(add_program(j, tenant, error));
        TY_TRY(add_parallel(j, tenant, error));
        /* Stage replicas are on the hosts of their new devices; their
         * cores are those of the costs. */
        for (uint32_t r = 0; r < ty_plan_stage_replica_count(tenant->plan); r++) {
            const uint32_t device =
                ty_plan_device_of_replica(tenant->plan, r) + tenant->first_device;
            const uint32_t host = ty_cluster_device_host(j->cluster, device);
            const uint32_t cores = ty_cluster_host_cores(j->cluster, host);
            j->costs.replica_host[j->stage_replica + r] = host;
            if (cores > 0 && isfinite(tenant->costs->host_cores[tenant->costs->replica_host[r]]))
                j->costs.host_cores[host] = cores;
        }
        j->pipeline_rank += ty_plan_pipeline_size(tenant->plan);
        j->bucket += tenant->plan->bucket_count;
        j->stage_replica += ty_plan_stage_replica_count(tenant->plan);
    }
    return check_devices(j, error);
}

/* Each job's events, with its own stage replica numbers. */
static ty_status part(const joined *j, const ty_timeline *all, ty_timeline **timelines,
                      ty_error *error)
{
    ty_status status = TY_OK;
    uint32_t first = 0;

    for (uint32_t t = 0; status == TY_OK && t < j->count; t++) {
        const uint32_t stage_replicas = ty_plan_stage_replica_count(j->tenants[t].plan);
        status = ty_timeline_new(j->tenants[t].plan, all->step_count, &timelines[t], error);
        for (uint64_t e = 0; status == TY_OK && e < all->event_count; e++) {
            ty_event event = all->events[e];
            if (event.stage_replica < first || event.stage_replica - first >= stage_replicas)
                continue;
            event.stage_replica -= first;
            if (ty_timeline_add(timelines[t], &event) != TY_OK)
                status = out_of_memory(error);
        }
        if (status == TY_OK)
            ty_timeline_sort(timelines[t]);
        first += stage_replicas;
    }
    return status;
}

ty_status ty_simulate_tenants(const ty_tenant *tenants, uint32_t count, const ty_cluster *cluster,
                              const ty_simulate_options *options, ty_timeline **timelines,
                              ty_error *error)
{
    ty_status status;
    joined j = {.tenants = tenants, .count = count, .cluster = cluster};
    ty_timeline *all = NULL;
    ty_timeline **made = ty_alloc(count, sizeof *made);

    if (count < 1 || made == NULL) {
        ty_free(made);
        return count < 1 ? ty_fail(error, TY_EINVAL, "found no job to simulate")
                         : out_of_memory(error);
    }
    TY_CHECK(join(&j, error), status, cleanup);
    TY_CHECK(ty_simulate_parallel(&j.plan, &j.program, &j.costs, &j.parallel, cluster, options,
                                  &all, error),
             status, cleanup);
    TY_CHECK(part(&j, all, made, error), status, cleanup);
    memcpy(timelines, made, count * sizeof *made);
    memset(made, 0, count * sizeof *made);
cleanup:
    for (uint32_t t = 0; t < count; t++)
        ty_timeline_free(made[t]);
    ty_free(made);
    ty_timeline_free(all);
    for (uint32_t s = 0; j.plan.stages != NULL && s < j.plan.stage_count; s++)
        ty_free(j.plan.stages[s].devices);
    for (uint32_t p = 0; j.program.stages != NULL && p < j.program.stage_count; p++)
        ty_free(j.program.stages[p].instructions);
    ty_free(j.plan.stages);
    ty_free(j.plan.buckets);
    ty_free(j.program.stages);
    ty_free(j.costs.instruction_counts);
    ty_free(j.costs.instructions);
    ty_free(j.costs.replica_host);
    ty_free(j.costs.host_cores);
    if (j.parallel.pipeline_ranks == NULL)
        j.parallel.pipeline_size = 0;
    ty_parallel_exchanges_clear(&j.parallel);
    return status;
}
