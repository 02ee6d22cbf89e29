/* Cuts and replicas of each stage: the results of the partition, and others near them. */
#include "quick_estimate.h"

#include <string.h>

/* ---- By the partition -------------------------------------------------------------------- */

typedef struct cut_list {
    uint32_t count;
    const uint32_t *cuts;
} cut_list;

static double exchange_s(void *context, uint32_t first, uint32_t count, uint32_t replicas)
{
    quick_costs *costs = context;
    const candidate plain = {.bucket_bytes = UINT64_MAX};
    double ignored;

    return ty_quick_exchange_s(costs, first, first + count, replicas, &plain, &ignored) * replicas /
           costs->micro_batches;
}

static bool fits(void *context, uint32_t first, uint32_t count, uint32_t replicas,
                 uint32_t stages_after)
{
    const quick_costs *costs = context;

    return costs->micro_batches % replicas == 0 &&
           (costs->q->ignore_memory ||
            ty_quick_fits(costs, first, first + count, replicas, stages_after));
}

static uint32_t virtual_stages_of(const search_question *q)
{
    return at_least_one(q->dimensions.virtual_stages);
}

/* Replicas are assigned in multiples so that there are this many granules: the partition takes time
 * by them, and on many devices one replica more or less makes no difference. */
#define MOST_GRANULES 256
/* With fewer, the stages could just be equal. */
#define FEWEST_GRANULES 32

/* 0: there is none. */
static uint32_t granule_of(uint32_t devices)
{
    for (uint32_t g = 1; devices / g >= FEWEST_GRANULES || g == 1; g++)
        if (devices % g == 0 && devices / g <= MOST_GRANULES)
            return g;
    return 0;
}

/* @param stages exact number if the replicas of each are fixed; else the maximum */
static ty_status open_partitioner(quick_costs *costs, const cut_list *cuts, uint32_t stages,
                                  const uint32_t *replicas, ty_partitioner **out, ty_error *error)
{
    const search_question *q = costs->q;
    const ty_partition_input input = {
        .layer_count = q->workload->layer_count,
        .layer_s = costs->layer_s,
        .transfer_s = costs->transfer_s,
        .cut_count = cuts->count,
        .cuts = cuts->cuts,
        .devices = q->stage_replica_count * virtual_stages_of(q),
        .stages = stages,
        .fixed_replicas = replicas,
        .granule = replicas == NULL ? granule_of(q->stage_replica_count) : 0,
        .exchange_s = exchange_s,
        .fits = fits,
        .context = costs,
    };

    return ty_partitioner_open(&input, out, error);
}

/* The partition with the least bottleneck at these cuts, or NULL if there is none of that many
 * stages. @param shared stores the partitioner for any replicas, for other numbers of stages */
static ty_status divide(quick_costs *costs, const cut_list *cuts, uint32_t stages,
                        const uint32_t *replicas, ty_partitioner **shared, ty_arena *arena,
                        division **out, ty_error *error)
{
    const uint32_t stage_replicas = costs->q->stage_replica_count;
    uint32_t most = stages;
    ty_partitioner *own = NULL, **partitioner = replicas == NULL ? shared : &own;
    ty_error detail = {0};
    double ignored;
    ty_status status = TY_OK;
    division *d = ty_arena_alloc(arena, 1, sizeof *d);

    *out = NULL;
    TY_TRY(ty_check_memory(d != NULL, error));
    d->stage_count = stages;
    if (replicas == NULL) {
        most = stage_replicas / granule_of(stage_replicas);
        most = most < cuts->count + 1 ? most : cuts->count + 1;
        most = most < TY_MAX_STAGES ? most : TY_MAX_STAGES;
    }
    if (*partitioner == NULL)
        status = open_partitioner(costs, cuts, most, replicas, partitioner, &detail);
    if (status == TY_OK)
        status = ty_partitioner_divide(*partitioner, stages, d->first_layers, d->replicas, &ignored,
                                       &detail);
    ty_partitioner_close(own);
    if (costs->status != TY_OK)
        return ty_fail(error, costs->status, "looking up a ring failed");
    if (status == TY_EINFEASIBLE)
        return TY_OK;
    if (status != TY_OK)
        return ty_fail(error, status, "%s", detail.message);
    *out = d;
    return TY_OK;
}

/* ---- Near the partition's ---------------------------------------------------------------- */

static bool all_fit(quick_costs *costs, const division *d)
{
    for (uint32_t s = 0; s < d->stage_count; s++) {
        uint32_t count = ty_division_end(costs->q, d, s) - d->first_layers[s];
        if (!fits(costs, d->first_layers[s], count, d->replicas[s], d->stage_count - 1 - s))
            return false;
    }
    return true;
}

/* The nearest cut before or after a stage's first layer that leaves both stages at least one layer;
 * 0: none. */
static uint32_t nearest_cut(const search_question *q, const cut_list *cuts, const division *d,
                            uint32_t stage, bool is_later)
{
    uint32_t lowest = is_later ? d->first_layers[stage] : d->first_layers[stage - 1];
    uint32_t limit = is_later ? ty_division_end(q, d, stage) : d->first_layers[stage];
    uint32_t found = 0;

    for (uint32_t i = 0; i < cuts->count && cuts->cuts[i] < limit; i++)
        if (cuts->cuts[i] > lowest && (found == 0 || !is_later))
            found = cuts->cuts[i];
    return found;
}

/* Moves the first layer of a stage to the nearest cut if that shortens the step. */
static bool try_cut(quick_costs *costs, const cut_list *cuts, division *d, uint32_t stage,
                    bool is_later, double *step_s)
{
    const candidate c = {
        .division = d, .micro_batches = costs->micro_batches, .bucket_bytes = UINT64_MAX};
    uint32_t old = d->first_layers[stage], cut = nearest_cut(costs->q, cuts, d, stage, is_later);
    double seconds;

    if (cut == 0)
        return false;
    d->first_layers[stage] = cut;
    seconds = ty_quick_step_s(costs, &c);
    if (seconds < *step_s && all_fit(costs, d)) {
        *step_s = seconds;
        return true;
    }
    d->first_layers[stage] = old;
    return false;
}

/* ---- Equal stages ------------------------------------------------------------------------ */

/* Equal numbers of blocks per stage; the remainder goes to the stages in the middle, which have
 * neither end of the model, then to the first. */
static ty_status propose_equal(const search_question *q, uint32_t stages, uint32_t replicas,
                               ty_arena *arena, const division **found, uint32_t *count,
                               ty_error *error)
{
    const ty_workload *w = q->workload;
    const uint32_t *starts;
    uint32_t head, rest, block = 0;
    uint32_t blocks = ty_workload_blocks(w, &starts, &head);
    division *d = ty_arena_alloc(arena, 1, sizeof *d);

    TY_TRY(ty_check_memory(d != NULL, error));
    blocks -= blocks > 0 && head != TY_NO_LAYER ? 1 : 0; /* it goes with the last stage */
    if (blocks < stages)
        return TY_OK;
    rest = blocks % stages;
    d->stage_count = stages;
    for (uint32_t s = 0; s < stages; s++) {
        const uint32_t middles = stages > 2 ? stages - 2 : 0;
        const bool has_more =
            s == 0 ? rest > middles : s + 1 < stages && s <= (rest > middles ? middles : rest);
        d->first_layers[s] = s == 0 ? 0 : starts[block];
        d->replicas[s] = replicas;
        block += blocks / stages + (has_more ? 1 : 0);
    }
    for (uint32_t l = stages > 1 ? d->first_layers[1] : w->layer_count; l < w->layer_count; l++)
        if (w->layers[l].input_count == 0) /* it reads the batch, which the first stage has */
            return TY_OK;
    found[(*count)++] = d;
    return TY_OK;
}

/* ---- All of them ------------------------------------------------------------------------- */

static void add_new(const division *d, const division **found, uint32_t *count)
{
    for (uint32_t i = 0; i < *count; i++)
        if (memcmp(found[i], d, sizeof *d) == 0) /* unused entries are 0 */
            return;
    found[(*count)++] = d;
}

static ty_status propose_at(quick_costs *costs, const cut_list *cuts, uint32_t stages,
                            const uint32_t *replicas, ty_partitioner **shared, ty_arena *arena,
                            const division **found, uint32_t *count, ty_error *error)
{
    division *best = NULL, *nudged;
    ty_status status = divide(costs, cuts, stages, replicas, shared, arena, &best, error);

    if (status != TY_OK || best == NULL)
        return status;
    TY_TRY(ty_check_memory((nudged = ty_arena_alloc(arena, 1, sizeof *nudged)) != NULL, error));
    *nudged = *best;
    /* The partition minimizes the slowest stage, but a step also has warm-up and cool-down: moves
     * single cuts as long as that lowers the quick estimate. */
    const candidate c = {
        .division = nudged, .micro_batches = costs->micro_batches, .bucket_bytes = UINT64_MAX};
    double step_s = ty_quick_step_s(costs, &c);
    for (bool has_moved = true; has_moved;) {
        has_moved = false;
        for (uint32_t s = 1; s < nudged->stage_count; s++)
            for (int later = 0; later < 2; later++)
                has_moved = try_cut(costs, cuts, nudged, s, later == 1, &step_s) || has_moved;
    }
    add_new(best, found, count);
    add_new(nudged, found, count);
    return TY_OK;
}

static ty_status propose(quick_costs *costs, uint32_t stages, const uint32_t *replicas,
                         ty_arena *arena, const division **found, uint32_t *count, ty_error *error)
{
    const cut_list all = {costs->q->cut_count, costs->q->cuts};
    const cut_list narrow = {costs->narrow_count, costs->narrow_cuts};

    if (stages > 1 && narrow.count < all.count)
        TY_TRY(propose_at(costs, &narrow, stages, replicas, &costs->by_narrow_cuts, arena, found,
                          count, error));
    return propose_at(costs, &all, stages, replicas, &costs->by_all_cuts, arena, found, count,
                      error);
}

/* The partition with the requested layers and replicas; equal replicas if not requested. */
static ty_status propose_fixed(const quick_costs *costs, uint32_t stages, ty_arena *arena,
                               const division **found, uint32_t *count, ty_error *error)
{
    const search_question *q = costs->q;
    const uint32_t pipeline_size = stages / virtual_stages_of(q);
    division *d = ty_arena_alloc(arena, 1, sizeof *d);

    TY_TRY(ty_check_memory(d != NULL, error));
    if (!q->has_fixed_replicas && q->stage_replica_count % pipeline_size != 0)
        return TY_OK;
    d->stage_count = stages;
    for (uint32_t s = 0; s < stages; s++) {
        d->first_layers[s] = s == 0 ? 0 : q->all_cuts[s - 1];
        d->replicas[s] = q->has_fixed_replicas ? q->fixed_replicas[s % pipeline_size]
                                               : q->stage_replica_count / pipeline_size;
        if (costs->micro_batches % d->replicas[s] != 0)
            return TY_OK;
    }
    found[(*count)++] = d;
    return TY_OK;
}

ty_status ty_divisions_propose(quick_costs *costs, uint32_t stages, ty_arena *arena,
                               const division *found[TY_MOST_DIVISIONS], uint32_t *count,
                               ty_error *error)
{
    const search_question *q = costs->q;
    const uint32_t pipeline_size = stages / virtual_stages_of(q);
    uint32_t replicas[TY_MAX_STAGES];
    ty_status status = TY_OK;

    *count = 0;
    if (q->has_fixed_layers && (q->has_fixed_replicas || stages == 1 || virtual_stages_of(q) > 1))
        return propose_fixed(costs, stages, arena, found, count, error);
    if (!q->has_fixed_layers && q->stack->has_equal_stages && stages > 1 &&
        q->stage_replica_count % pipeline_size == 0 &&
        costs->micro_batches % (q->stage_replica_count / pipeline_size) == 0 &&
        (!q->has_fixed_replicas ||
         q->fixed_replicas[0] == q->stage_replica_count / pipeline_size)) {
        status = propose_equal(q, stages, q->stage_replica_count / pipeline_size, arena, found,
                               count, error);
        if (status != TY_OK || *count > 0)
            return status;
    }
    replicas[0] = q->stage_replica_count;
    /* Stages may have different numbers of replicas if there are granules. */
    const uint32_t granule = granule_of(q->stage_replica_count);
    if (virtual_stages_of(q) == 1 && (stages == 1 || q->has_fixed_replicas ||
                                      (stack_may(q, TY_AXIS_REPLICAS, TY_KIND_UNEQUAL) &&
                                       granule > 0 && stages <= q->stage_replica_count / granule)))
        status = propose(costs, stages,
                         q->has_fixed_replicas ? q->fixed_replicas
                         : stages == 1         ? replicas
                                               : NULL,
                         arena, found, count, error);
    if (status != TY_OK || (q->has_fixed_replicas && virtual_stages_of(q) == 1) || stages == 1 ||
        q->stage_replica_count % pipeline_size != 0)
        return status;
    for (uint32_t s = 0; s < stages; s++)
        replicas[s] = q->stage_replica_count / pipeline_size;
    return propose(costs, stages, replicas, arena, found, count, error);
}
