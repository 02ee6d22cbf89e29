/* TP, CP and EP collectives: see parallel_exchange.h. */
#include "parallel_exchange.h"

#include "ty_base.h"

#include <math.h>

/* ---- Groups of ranks ------------------------------------------------------------------------- */

/* Between the ranks of a group. */
static uint32_t stride_of(const ty_plan *plan, ty_parallelism kind)
{
    uint32_t stride = 1;

    for (int inner = 0; inner < (int)kind; inner++)
        stride *= ty_plan_parallel_size(plan, (ty_parallelism)inner);
    return stride;
}

uint32_t ty_parallel_group_count(const ty_plan *plan, ty_parallelism kind)
{
    return ty_plan_replica_ranks(plan) / ty_plan_parallel_size(plan, kind);
}

uint32_t ty_parallel_group_of(const ty_plan *plan, ty_parallelism kind, uint32_t replica_rank)
{
    const uint32_t stride = stride_of(plan, kind);
    return replica_rank / (stride * ty_plan_parallel_size(plan, kind)) * stride +
           replica_rank % stride;
}

uint32_t ty_rank_of_parallel_group(const ty_plan *plan, ty_parallelism kind, uint32_t group,
                                   uint32_t n)
{
    const uint32_t stride = stride_of(plan, kind);
    return (group / stride * ty_plan_parallel_size(plan, kind) + n) * stride + group % stride;
}

static uint32_t device_of(const ty_plan *plan, uint32_t pipeline_rank, ty_parallelism kind,
                          uint32_t group, uint32_t n)
{
    const uint32_t groups = ty_parallel_group_count(plan, kind),
                   width = ty_plan_replica_ranks(plan);
    return plan->stages[pipeline_rank]
        .devices[(size_t)(group / groups) * width +
                 ty_rank_of_parallel_group(plan, kind, group % groups, n)];
}

/* Counts host changes between neighbors: the group on most hosts has most. */
static uint32_t widest_group(const ty_plan *plan, const ty_cluster *cluster, uint32_t pipeline_rank,
                             ty_parallelism kind)
{
    const uint32_t n = ty_plan_parallel_size(plan, kind);
    const uint32_t groups =
        plan->stages[pipeline_rank].replicas * ty_parallel_group_count(plan, kind);
    uint32_t widest = 0, most = 0;

    for (uint32_t g = 0; g < groups; g++) {
        uint32_t changes = 0;
        for (uint32_t m = 1; m < n; m++)
            changes +=
                ty_cluster_device_host(cluster, device_of(plan, pipeline_rank, kind, g, m)) !=
                ty_cluster_device_host(cluster, device_of(plan, pipeline_rank, kind, g, m - 1));
        if (changes > most) {
            most = changes;
            widest = g;
        }
    }
    return widest;
}

ty_status ty_parallel_rails(const ty_plan *plan, const ty_cluster *cluster, uint32_t pipeline_rank,
                            ty_parallelism kind, ty_rails *out, ty_error *error)
{
    const uint32_t n = ty_plan_parallel_size(plan, kind);
    const uint32_t group = widest_group(plan, cluster, pipeline_rank, kind);
    uint32_t *devices = ty_alloc(n, sizeof *devices);
    ty_status status;

    TY_TRY(ty_check_memory(devices != NULL, error));
    for (uint32_t m = 0; m < n; m++)
        devices[m] = device_of(plan, pipeline_rank, kind, group, m);
    status = ty_cluster_rails(cluster, devices, n, out, error);
    ty_free(devices);
    return status;
}

/* ---- Collectives of an instruction ----------------------------------------------------------- */

/* Cost of all collectives of one kind of an instruction, over the links between its ranks. */
typedef struct demand {
    uint32_t collectives;
    double latency_s, edge_bytes, seconds;
} demand;

typedef struct finder {
    const ty_plan *plan;
    const ty_cluster *cluster;
    uint32_t pipeline_rank;
    bool is_known[TY_PARALLELISM_COUNT], is_all_to_all[TY_PARALLELISM_COUNT];
    ty_rails rails[TY_PARALLELISM_COUNT]; /* of the pipeline rank */
    ty_error *error;
} finder;

static ty_status add_collective(finder *f, const ty_inner_collective *inner, demand *demands)
{
    const uint32_t parallel = ty_plan_parallel_size(f->plan, inner->among);
    ty_instruction_cost one;
    ty_rails *rails = &f->rails[inner->among];
    demand *d = &demands[inner->among];

    if (parallel < 2 || inner->count == 0)
        return TY_OK;
    if (!f->is_known[inner->among]) {
        const ty_status status =
            ty_parallel_rails(f->plan, f->cluster, f->pipeline_rank, inner->among, rails, f->error);
        if (status != TY_OK)
            return status;
        f->is_known[inner->among] = true;
    }
    if (inner->kind == TY_ALL_TO_ALL)
        f->is_all_to_all[inner->among] = true;
    if (rails->torus.axis_count > 0) {
        ty_torus_cost(&rails->torus, inner->kind, inner->bytes, &one);
    } else {
        const ty_status status = ty_collective_cost(
            inner->kind, TY_RING, parallel, inner->bytes, rails->bandwidth_bytes_per_s,
            fmax(rails->around_latency_s, rails->across_latency_s), &one, f->error);
        if (status != TY_OK)
            return status;
    }
    d->collectives += inner->count;
    d->latency_s += inner->count * one.latency_s;
    d->edge_bytes += inner->count * one.edge_bytes;
    d->seconds += inner->count * one.seconds;
    return TY_OK;
}

static ty_status add_layers(finder *f, const ty_instruction *in, bool is_backward, demand *demands)
{
    ty_inner_collective inner[TY_MAX_INNER_COLLECTIVES];
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < in->layer_count; i++) {
        const uint32_t layer = in->first_layer + i;
        if (layer >= f->plan->workload->layer_count)
            break;
        const uint32_t count = ty_layer_inner_collectives(f->plan, layer, is_backward, inner);
        for (uint32_t c = 0; c < count; c++)
            TY_TRY(add_collective(f, &inner[c], demands));
    }
    return status;
}

static ty_status find_demands(finder *f, const ty_instruction *in, demand *demands)
{
    const bool is_backward = in->op == TY_OP_BACKWARD || in->op == TY_OP_BACKWARD_INPUT;
    ty_inner_collective sum = {.among = TY_TENSOR_PARALLEL, .kind = TY_ALL_REDUCE, .count = 1};

    if (is_backward || in->op == TY_OP_FORWARD || in->op == TY_OP_RECOMPUTE)
        return add_layers(f, in, is_backward, demands);
    if (in->op != TY_OP_UPDATE || in->bucket >= f->plan->bucket_count)
        return TY_OK;
    sum.bytes = ty_bucket_rank_bytes(f->plan, &f->plan->buckets[in->bucket]);
    return sum.bytes > 0 ? add_collective(f, &sum, demands) : TY_OK;
}

static void take_apart(const demand *demands, const ty_instruction_cost *cost,
                       ty_parallel_instruction *out)
{
    double wanted_s = 0.0;

    *out = (ty_parallel_instruction){.compute_s = cost->seconds};
    for (int k = 0; k < TY_PARALLELISM_COUNT; k++)
        wanted_s += demands[k].seconds;
    if (!(wanted_s > 0.0))
        return;
    const double scale = fmin(cost->inner_s, cost->seconds) / wanted_s;
    for (int k = 0; k < TY_PARALLELISM_COUNT; k++) {
        const demand *d = &demands[k];
        if (!(d->seconds > 0.0))
            continue;
        const double transfer_s = (d->seconds - d->latency_s) * scale;
        ty_instruction_cost *c = &out->costs[k];
        *c = (ty_instruction_cost){.seconds = d->seconds * scale,
                                   .latency_s = d->latency_s * scale,
                                   .edge_bytes = d->edge_bytes * fmin(1.0, scale),
                                   .core_share = cost->core_share};
        if (transfer_s > 0.0)
            c->rate_limit_bytes_per_s = c->edge_bytes / transfer_s;
        out->collectives += d->collectives;
        out->compute_s -= c->seconds;
    }
    out->compute_s = fmax(0.0, out->compute_s);
}

static ty_status find_position(finder *f, const ty_stage_program *code,
                               const ty_instruction_cost *costs, ty_parallel_instruction **out)
{
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < code->instruction_count; i++) {
        demand demands[TY_PARALLELISM_COUNT] = {{0}};
        if (!(costs[i].inner_s > 0.0))
            continue;
        if (*out == NULL && (*out = ty_alloc(code->instruction_count, sizeof **out)) == NULL)
            return out_of_memory(f->error);
        TY_TRY(find_demands(f, &code->instructions[i], demands));
        take_apart(demands, &costs[i], &(*out)[i]);
    }
    return status;
}

ty_status ty_parallel_exchanges_find(const ty_plan *plan, const ty_program *program,
                                     const ty_costs *costs, const ty_cluster *cluster,
                                     ty_parallel_exchanges *out, ty_error *error)
{
    ty_status status = TY_OK;

    *out = (ty_parallel_exchanges){0};
    if (ty_plan_replica_ranks(plan) == 1)
        return TY_OK;
    out->pipeline_ranks = ty_alloc(program->stage_count, sizeof(ty_parallel_instruction *));
    out->is_used = ty_alloc(program->stage_count, sizeof *out->is_used);
    out->is_all_to_all = ty_alloc(program->stage_count, sizeof *out->is_all_to_all);
    TY_TRY(ty_check_memory(
        out->pipeline_ranks != NULL && out->is_used != NULL && out->is_all_to_all != NULL, error));
    out->pipeline_size = program->stage_count;
    for (uint32_t p = 0; status == TY_OK && p < program->stage_count; p++) {
        finder f = {.plan = plan, .cluster = cluster, .pipeline_rank = p, .error = error};
        status =
            find_position(&f, &program->stages[p], costs->instructions[p], &out->pipeline_ranks[p]);
        for (int k = 0; k < TY_PARALLELISM_COUNT; k++) {
            out->is_used[p][k] = f.is_known[k];
            out->is_all_to_all[p][k] = f.is_all_to_all[k];
            ty_rails_clear(&f.rails[k]);
        }
    }
    return status;
}

void ty_parallel_exchanges_clear(ty_parallel_exchanges *exchanges)
{
    for (uint32_t p = 0; p < exchanges->pipeline_size; p++)
        ty_free(exchanges->pipeline_ranks[p]);
    ty_free(exchanges->pipeline_ranks);
    ty_free(exchanges->is_used);
    ty_free(exchanges->is_all_to_all);
    *exchanges = (ty_parallel_exchanges){0};
}

const ty_parallel_instruction *ty_parallel_instruction_of(const ty_parallel_exchanges *exchanges,
                                                          uint32_t pipeline_rank,
                                                          uint32_t instruction)
{
    if (exchanges == NULL || pipeline_rank >= exchanges->pipeline_size ||
        exchanges->pipeline_ranks[pipeline_rank] == NULL)
        return NULL;
    const ty_parallel_instruction *found = &exchanges->pipeline_ranks[pipeline_rank][instruction];
    return found->collectives > 0 ? found : NULL;
}
