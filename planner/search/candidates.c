/* Points of the plan space to evaluate: micro-batch sizes, PP sizes, and for each partition its
 * schedules, compressors and buckets. */
#include "quick_estimate.h"

#include <string.h>

/* Maximum number of micro-batches per step: beyond it, overheads grow by
 * more than bubbles shrink. */
#define MOST_MICRO_BATCHES_PER_STAGE 8
/* Up to here every stage count is tried, above it every fourth. */
#define MOST_DENSE_STAGES 8
/* A compressor is proposed if it may save this share of the step; it costs accuracy. */
#define LEAST_COMPRESSION_GAIN 0.01

typedef struct strategy {
    const device_set *set;
    ty_schedule schedule;
    ty_plan_dimensions dimensions;
    const division *division; /* one of those with its replicas */
} strategy;

typedef struct enumeration {
    const search_question *q;
    quick_costs costs;
    candidate_list *list;
    ty_error *error;
} enumeration;

void ty_candidates_drop(candidate_list *list)
{
    ty_free(list->items);
    ty_free(list->strategies);
    *list = (candidate_list){.divisions = list->divisions};
}

void ty_candidates_clear(candidate_list *list)
{
    ty_candidates_drop(list);
    ty_arena_free(list->divisions);
    *list = (candidate_list){0};
}

/* ---- One candidate ----------------------------------------------------------------------- */

ty_status ty_candidates_strategy(candidate_list *list, const candidate *c, uint32_t *index,
                                 ty_error *error)
{
    const strategy wanted = {c->set, c->schedule, c->dimensions, c->division};

    for (*index = 0; *index < list->strategy_count; ++*index) {
        const strategy *s = &list->strategies[*index];
        if (s->set == wanted.set && ty_dimensions_equal(&s->dimensions, &wanted.dimensions) &&
            s->schedule == wanted.schedule &&
            s->division->stage_count == wanted.division->stage_count &&
            memcmp(s->division->replicas, wanted.division->replicas,
                   s->division->stage_count * sizeof *s->division->replicas) == 0)
            return TY_OK;
    }
    if (list->strategy_count == list->strategy_room) {
        uint32_t room = list->strategy_room > 0 ? list->strategy_room * 2 : 32;
        strategy *more = ty_resize(list->strategies, room, sizeof *more);
        TY_TRY(ty_check_memory(more != NULL, error));
        list->strategies = more;
        list->strategy_room = room;
    }
    list->strategies[list->strategy_count++] = wanted;
    return TY_OK;
}

ty_status ty_candidates_add(candidate_list *list, const candidate *c, ty_error *error)
{
    if (list->count == list->capacity) {
        uint32_t capacity = list->capacity > 0 ? list->capacity * 2 : 64;
        candidate *more = ty_resize(list->items, capacity, sizeof *more);
        TY_TRY(ty_check_memory(more != NULL, error));
        list->items = more;
        list->capacity = capacity;
    }
    list->items[list->count++] = *c;
    return TY_OK;
}

static ty_status push(enumeration *e, const candidate *c)
{
    candidate copy = *c;

    copy.quick_s = ty_quick_step_s(&e->costs, c);
    if (e->costs.status != TY_OK)
        return out_of_memory(e->error);
    return ty_candidates_add(e->list, &copy, e->error);
}

/* ---- Buckets, compression, schedules of one partition ------------------------------------ */

/* Sizes to try: everything at once, PyTorch's 25 MiB, and smaller ones for models with fewer bytes
 * (facts: DDP's bucket_cap is 25 MiB with a first bucket of 1 MiB). */
static const uint64_t usual_bucket_bytes[] = {UINT64_MAX, 25u << 20, 4u << 20, 1u << 20,
                                              256u << 10};

static bool is_any_exchanged(const search_question *q, const division *d)
{
    for (uint32_t s = 0; s < d->stage_count; s++)
        if (ty_dimensions_exchange(&q->dimensions, d->replicas[s]))
            return true;
    return false;
}

/* Whether an embedding that may be sent as rows is reduced. */
static bool is_embedding_exchanged(const enumeration *e, const division *d)
{
    for (uint32_t i = 0; i < e->costs.row_layer_count; i++)
        for (uint32_t s = 0; s < d->stage_count; s++)
            if (d->first_layers[s] <= e->costs.row_layers[i] &&
                e->costs.row_layers[i] < ty_division_end(e->q, d, s) && d->replicas[s] > 1)
                return true;
    return false;
}

/* Maximum gradient bytes that any stage reduces. */
static uint64_t largest_exchange(const enumeration *e, const division *d)
{
    uint64_t largest = 0;

    for (uint32_t s = 0; s < d->stage_count; s++) {
        uint64_t bytes = e->costs.gradient_sums[ty_division_end(e->q, d, s)] -
                         e->costs.gradient_sums[d->first_layers[s]];
        if (ty_dimensions_exchange(&e->q->dimensions, d->replicas[s]) && bytes > largest)
            largest = bytes;
    }
    return largest;
}

static ty_status push_buckets(enumeration *e, candidate *c)
{
    const bool is_pinned = ty_is_pinned(e->q->pins, TY_AXIS(BUCKET));
    uint64_t largest = largest_exchange(e, c->division);
    ty_status status = TY_OK;

    /* Smaller buckets start earlier; after local steps, and with scores, all start at the end. */
    if (e->q->workload->local_steps > 1 || e->q->workload->learning == TY_LEARNING_EVOLUTION)
        return push(e, c);

    if (e->q->pins->fit_buckets && largest > 0) {
        c->has_fitted_buckets = true;
        if (ty_can_fit_buckets(e->q, &e->q->dimensions, NULL) == TY_OK)
            status = push(e, c);
        c->has_fitted_buckets = false;
        return status;
    }
    if (!is_pinned &&
        !e->q->stack->overlaps_exchange) /* no collective starts before all gradients are ready */
        return push(e, c);
    if (is_pinned && largest > 0) {
        c->bucket_bytes = e->q->pins->bucket_bytes;
        return push(e, c);
    }
    for (size_t i = 0; status == TY_OK && i < sizeof usual_bucket_bytes / sizeof(uint64_t); i++) {
        uint64_t bytes = usual_bucket_bytes[i];
        c->bucket_bytes = bytes;
        if (bytes == UINT64_MAX ||
            (bytes < largest && largest / bytes < ty_most_buckets(e->q->dimensions.zero)))
            status = push(e, c);
    }
    return status;
}

/* Compression changes convergence, so it needs a predicted gain unless it was requested. */
static bool is_worth_compressing(enumeration *e, const candidate *c)
{
    candidate plain = *c;

    if (ty_compression_is_lossy(&c->compression) && !e->q->options->allow_lossy)
        return false;
    plain.compression = (ty_compression){0};
    return ty_quick_compression_gain_s(&e->costs, c) >=
           LEAST_COMPRESSION_GAIN * ty_quick_step_s(&e->costs, &plain);
}

static ty_status push_compressions(enumeration *e, candidate *c)
{
    const ty_pins *o = e->q->pins;
    const bool is_pinned = ty_is_pinned(o, TY_AXIS(COMPRESSION));
    ty_status status = TY_OK;

    c->bucket_bytes = UINT64_MAX;
    for (int k = 0; status == TY_OK && k < TY_COMPRESSION_COUNT; k++) {
        if (k != TY_COMPRESSION_NONE && e->q->workload->learning == TY_LEARNING_EVOLUTION)
            break;
        c->compression = ty_proposed_compression(o, (ty_compression_kind)k);
        if (is_pinned ? k != (int)o->compression.kind
                      : ty_compression_at((ty_compression_kind)k)->sends_rows)
            continue; /* every candidate has rows if they pay (row_choice.c) */
        if (e->q->dimensions.zero > 0 && !ty_compression_shards(&c->compression))
            continue;
        if (o->servers > 0 && !ty_server_can_sum(&c->compression))
            continue;
        if (!ty_may_compress(e->q, (ty_compression_kind)k))
            continue;
        if (k != TY_COMPRESSION_NONE &&
            (!is_any_exchanged(e->q, c->division) || (!is_pinned && !is_worth_compressing(e, c))))
            continue;
        if (ty_compression_at((ty_compression_kind)k)->sends_rows &&
            !is_embedding_exchanged(e, c->division))
            continue;
        status = push_buckets(e, c);
        c->bucket_bytes = UINT64_MAX;
    }
    return status;
}

static bool has_replicas(const division *d)
{
    for (uint32_t s = 0; s < d->stage_count; s++)
        if (d->replicas[s] > 1)
            return true;
    return false;
}

/* Conditions of ty_plan_check and the stack on each schedule, and on stale gradients. */
static bool suits_schedule(const search_question *q, const candidate *c, ty_schedule schedule)
{
    const uint32_t stages = c->division->stage_count;
    const uint32_t virtual_stages = at_least_one(q->dimensions.virtual_stages);
    ty_schedule_use use = {.pipeline_size = stages / virtual_stages,
                           .virtual_stages = virtual_stages,
                           .zero = q->dimensions.zero,
                           .has_segments = ty_recompute_has_segments(q->dimensions.recompute)};

    for (uint32_t s = 0; s < stages; s++) {
        use.micro_batches = c->micro_batches / c->division->replicas[s];
        if (ty_schedule_check(schedule, &use) != TY_SCHEDULE_SUITS)
            return false;
    }
    if (stages > 1 && !stack_may(q, TY_AXIS_SCHEDULE, schedule))
        return false;
    return q->pins->staleness == 0 || (q->dimensions.zero == 0 && has_replicas(c->division));
}

static ty_status push_schedules(enumeration *e, candidate *c)
{
    const ty_pins *o = e->q->pins;
    ty_status status = TY_OK;

    for (int k = 0; status == TY_OK && k < TY_SCHEDULE_COUNT; k++) {
        /* With one stage, 1F1B is gradient accumulation with the least activations. Schedules that
         * change convergence, or need special stages, are only used on request. */
        const ty_schedule_row *row = ty_schedule_at((ty_schedule)k);
        const bool is_usual =
            row->is_usual && (c->division->stage_count > 1 || !row->has_full_in_flight);
        if (c->dimensions.virtual_stages > 1     ? !row->is_interleaved
            : ty_is_pinned(o, TY_AXIS(SCHEDULE)) ? k != (int)o->schedule
                                                 : !is_usual)
            continue;
        if (!suits_schedule(e->q, c, (ty_schedule)k))
            continue;
        c->schedule = (ty_schedule)k;
        status = ty_candidates_strategy(e->list, c, &c->strategy, e->error);
        if (status == TY_OK)
            status = push_compressions(e, c);
    }
    return status;
}

static uint32_t stage_of(const enumeration *e, const division *d, uint32_t layer)
{
    uint32_t stage = 0;

    while (layer >= ty_division_end(e->q, d, stage))
        stage++;
    return stage;
}

/* Whether a matrix and its tied copy are in two stages of one pipeline rank, which would then
 * reduce it with itself. */
static bool ties_to_itself(const enumeration *e, const division *d)
{
    const uint32_t virtual_stages = at_least_one(e->q->dimensions.virtual_stages);
    const uint32_t pipeline_size = d->stage_count / virtual_stages;

    for (uint32_t l = 0; virtual_stages > 1 && l < e->q->workload->layer_count; l++) {
        const uint32_t owner = e->q->workload->layers[l].tied_to;
        if (owner != TY_NO_LAYER) {
            const uint32_t a = stage_of(e, d, l), b = stage_of(e, d, owner);
            if (a != b && a % pipeline_size == b % pipeline_size)
                return true;
        }
    }
    return false;
}

static ty_status push_divisions(enumeration *e, uint32_t stages)
{
    const division *found[TY_MOST_DIVISIONS];
    uint32_t count = 0;
    ty_status status =
        ty_divisions_propose(&e->costs, stages, e->list->divisions, found, &count, e->error);

    for (uint32_t i = 0; status == TY_OK && i < count; i++) {
        candidate c = {.set = e->q->set,
                       .division = found[i],
                       .dimensions = e->q->dimensions,
                       .micro_batches = e->costs.micro_batches,
                       .has_dense_embeddings = e->q->pins->embeddings == TY_EMBEDDINGS_DENSE};
        if (!ties_to_itself(e, found[i]) &&
            ty_stack_stages_check(&e->q->stack->plans, e->q->workload, found[i]->first_layers,
                                  stages, e->q->dimensions.recompute == TY_RECOMPUTE_FULL,
                                  e->q->dimensions.recompute_blocks, NULL) == TY_OK)
            status = push_schedules(e, &c);
    }
    return status;
}

/* ---- Micro-batch sizes ------------------------------------------------------------------- */

/* Whether a step of the global batch may have that many micro-batches in `stages` stages. */
static bool is_sensible(const search_question *q, uint32_t stages, uint32_t micro_batches)
{
    uint32_t replicas = q->stage_replica_count / stages > 0 ? q->stage_replica_count / stages : 1;

    if (q->dimensions.expert_parallel > 1 &&
        q->global_batch / micro_batches % q->dimensions.expert_parallel != 0)
        return false;
    if (q->pins->actors > 0 &&
        !ty_actors_suit(q->pins->actors, q->stage_replica_count, micro_batches))
        return false;
    if (q->fixed_micro_batch_size > 0)
        return q->global_batch / micro_batches == q->fixed_micro_batch_size;
    if (stages == 1) /* accumulation only if memory requires it */
        return micro_batches % q->stage_replica_count == 0;
    return micro_batches >= replicas &&
           (q->is_short_of_memory ||
            micro_batches <= replicas * stages * MOST_MICRO_BATCHES_PER_STAGE);
}

static bool is_stage_count(const search_question *q, uint32_t stages)
{
    if (q->fixed_stages > 0)
        return stages == q->fixed_stages;
    return stages <= MOST_DENSE_STAGES || stages % 4 == 0 || stages == q->stage_replica_count;
}

static ty_status enumerate_size(enumeration *e, uint32_t micro_batches)
{
    const search_question *q = e->q;
    const uint32_t virtual_stages = at_least_one(q->dimensions.virtual_stages);
    uint32_t most = (q->cut_count + 1) / virtual_stages;

    most = most < q->stage_replica_count ? most : q->stage_replica_count;
    if (most > TY_MAX_STAGES / virtual_stages)
        most = TY_MAX_STAGES / virtual_stages;
    if (ty_workload_whole_reason(q->workload) != NULL || !stack_may(q, TY_AXIS_PP, TY_KIND_MORE))
        most = 1;
    for (uint32_t pipeline_size = virtual_stages > 1 ? 2 : 1; pipeline_size <= most;
         pipeline_size++) {
        if (!is_stage_count(q, pipeline_size) || !is_sensible(q, pipeline_size, micro_batches))
            continue;
        if (e->costs.micro_batches != micro_batches)
            TY_TRY(ty_quick_costs_set(&e->costs, micro_batches, e->error));
        TY_TRY(push_divisions(e, pipeline_size * virtual_stages));
    }
    return TY_OK;
}

ty_status ty_candidates_enumerate(const search_question *q, candidate_list *list, ty_error *error)
{
    ty_status status = TY_OK;
    enumeration e = {.q = q, .list = list, .error = error};

    TY_CHECK(ty_quick_costs_make(q, &e.costs, error), status, done);
    if (list->divisions == NULL)
        list->divisions = ty_arena_new();
    TY_CHECK(ty_check_memory(list->divisions != NULL, error), status, done);
    if (!stack_may(q, TY_AXIS_ZERO, q->dimensions.zero) ||
        !ty_has_recompute(q, q->dimensions.recompute))
        goto done;
    for (uint32_t m = 1; m > 0; m = ty_next_divisor(q->global_batch, m)) {
        list->is_cut_short = list->count > 0 && ty_search_must_stop(q);
        if (list->is_cut_short)
            break;
        TY_CHECK(enumerate_size(&e, m), status, done);
    }
done:
    ty_quick_costs_clear(&e.costs);
    return status;
}
