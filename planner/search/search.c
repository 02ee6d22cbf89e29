/* The search: enumerate candidates, estimate them quickly, estimate the promising ones in full,
 * simulate the finalists.
 *
 * There are two rounds of estimates. The first is for scouts: one promising candidate of each
 * strategy, so that no strategy is lost because another one has many variants. The error of the
 * quick estimate for a scout corrects it for the variants of its strategy; the second round is for
 * the best by that. */
#include "candidate.h"
#include "costing.h"
#include "layout.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SCOUTS 16
#define ESTIMATES 32 /* scouts included; candidates that do not fit are not counted */
/* Margins for pruning: over the zoo on five clusters of 8 to 32 devices, quick estimates were at
 * most 1.8 times the estimate, corrected ones at most 1.25 times. */
#define HOPELESS_SCOUT 1.8
#define HOPELESS_VARIANT 1.25
/* Up to here a transformer's layouts are searched in addition to all else, beyond instead of it. */
#define FEW_DEVICES 16

typedef struct search {
    const search_question *q;
    candidate_list list;
    double *corrections; /* [strategies]: estimate / quick estimate of the scout; 0: none yet */
    uint32_t estimates, misfits;
    uint64_t layouts; /* that were bounded */
    uint64_t walked;  /* instructions */
    double best_s;    /* least estimate so far; HUGE_VAL: none */
    bool is_beside;   /* fewer devices than in an earlier search: slower plans do not help */
} search;

/* ---- Judging one candidate --------------------------------------------------------------- */

/* The largest peak memory, and the bytes by which the worst stage exceeds it. */
static ty_status judge_memory(const search_question *q, const ty_plan *plan, candidate *c,
                              ty_error *error)
{
    ty_server_map map = {0};

    for (uint32_t s = 0; s < plan->stage_count; s++) {
        uint64_t need = ty_memory_use_total(&plan->memory[s]);
        if (need > c->peak_memory_bytes)
            c->peak_memory_bytes = need;
        const uint32_t devices =
            q->has_equal_memory ? 1 : plan->stages[s].replicas * ty_plan_replica_ranks(plan);
        for (uint32_t r = 0; r < devices; r++) {
            const uint64_t room =
                ty_device_room_bytes(ty_cluster_device_type(q->cluster, plan->stages[s].devices[r]),
                                     plan->memory_reserve);
            if (need > room && need - room > c->missing_bytes) {
                c->missing_bytes = need - room;
                c->missing_stage = s;
            }
        }
    }
    if (plan->servers.count > 0) {
        TY_TRY(ty_server_map_make(plan, &map, error));
        for (uint32_t k = 0; k < plan->servers.count; k++) {
            const uint64_t need = ty_server_bytes(plan, &map, k);
            const uint64_t room = ty_device_room_bytes(
                ty_cluster_device_type(q->cluster, plan->servers.devices[k]), plan->memory_reserve);
            if (need > room && need - room > c->missing_bytes)
                c->missing_bytes = need - room;
        }
        ty_server_map_clear(&map);
    }
    c->is_judged = true;
    return TY_OK;
}

/* Whether the form in which embeddings are sent is open. */
static bool may_compare_rows(const ty_pins *pins)
{
    return !ty_is_pinned(pins, TY_AXIS(COMPRESSION) | TY_AXIS(EMBEDDINGS));
}

/* The candidate's plan, and whether it fits: with dense embeddings if rows need too much memory. */
static ty_status draft_that_fits(const search_question *q, candidate *c, draft *out,
                                 ty_error *error)
{
    const candidate asked = *c;

    TY_TRY(ty_draft_plan(q, c, out, error));
    TY_TRY(judge_memory(q, out->plan, c, error));
    c->has_rows = ty_has_rows(out->plan);
    if (c->missing_bytes == 0 || !c->has_rows || !may_compare_rows(q->pins))
        return TY_OK;
    ty_draft_clear(out);
    *c = asked;
    c->has_dense_embeddings = true;
    TY_TRY(ty_draft_plan(q, c, out, error));
    return judge_memory(q, out->plan, c, error);
}

/* Estimates a candidate, if it fits. */
static ty_status judge(search *s, candidate *c, ty_error *error)
{
    ty_status status = TY_OK;
    draft d = {0};

    TY_CHECK(draft_that_fits(s->q, c, &d, error), status, done);
    if (c->missing_bytes > 0) {
        s->misfits++;
        goto done;
    }
    TY_CHECK(ty_draft_lower(&d, error), status, done);
    TY_CHECK(ty_draft_estimate(s->q, d.plan, d.program, &c->estimate, error), status, done);
    for (uint32_t i = 0; i < d.program->stage_count; i++)
        s->walked += d.program->stages[i].instruction_count;
    s->estimates++;
    s->best_s = fmin(s->best_s, c->estimate.step_time_s);
    if (s->corrections != NULL && s->corrections[c->strategy] <= 0)
        s->corrections[c->strategy] = c->estimate.step_time_s / c->quick_s;
done:
    ty_draft_clear(&d);
    return status;
}

static ty_status simulate(const search_question *q, candidate *c, ty_error *error)
{
    ty_status status = TY_OK;
    draft d = {0};
    ty_costs *costs = NULL;

    TY_CHECK(ty_draft_make(q, c, &d, error), status, done);
    TY_CHECK(ty_costs_by_networks(d.plan, d.program, q->networks, &costs, error), status, done);
    status = q->options->simulate(q->options->simulate_context, d.plan, d.program, costs,
                                  &c->simulation, error);
done:
    ty_costs_free(costs);
    ty_draft_clear(&d);
    return status;
}

/* ---- Order ------------------------------------------------------------------------------- */

static int compare_numbers(double a, double b)
{
    return (a > b) - (a < b);
}

static int compare_counts(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* Break ties by fewer devices, fewer stages, fewer micro-batches, less compression, fewer buckets,
 * then the schedule with less activation memory, so that the same question gives the same plan. */
static int compare_shape(const candidate *a, const candidate *b)
{
    const division *da = a->division, *db = b->division;
    int orders[] = {
        compare_counts(a->set->count, b->set->count),
        compare_counts(a->dimensions.expert_parallel, b->dimensions.expert_parallel),
        compare_counts((uint64_t)a->dimensions.table_shard, (uint64_t)b->dimensions.table_shard),
        compare_counts(a->dimensions.context_parallel, b->dimensions.context_parallel),
        compare_counts(a->dimensions.tensor_parallel, b->dimensions.tensor_parallel),
        compare_counts((uint64_t)a->dimensions.recompute, (uint64_t)b->dimensions.recompute),
        compare_counts(a->dimensions.recompute_blocks, b->dimensions.recompute_blocks),
        compare_counts(a->dimensions.zero, b->dimensions.zero),
        compare_counts(a->dimensions.virtual_stages, b->dimensions.virtual_stages),
        compare_counts(da->stage_count, db->stage_count),
        compare_counts(a->micro_batches, b->micro_batches),
        compare_counts((uint64_t)a->compression.kind, (uint64_t)b->compression.kind),
        (int)b->has_dense_embeddings - (int)a->has_dense_embeddings,
        compare_counts(b->bucket_bytes, a->bucket_bytes),
        (int)a->has_fitted_buckets - (int)b->has_fitted_buckets,
        compare_counts((uint64_t)b->schedule, (uint64_t)a->schedule),
    };

    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        if (orders[i] != 0)
            return orders[i];
    for (uint32_t s = 0; s < da->stage_count; s++) {
        if (da->first_layers[s] != db->first_layers[s])
            return compare_counts(da->first_layers[s], db->first_layers[s]);
        if (da->replicas[s] != db->replicas[s])
            return compare_counts(da->replicas[s], db->replicas[s]);
    }
    return 0;
}

static int by_quick_estimate(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    int order = compare_numbers(a->quick_s, b->quick_s);

    return order != 0 ? order : compare_shape(a, b);
}

/* 0 simulated or too slow to simulate, 1 estimated, 2 neither, 3 too large. */
static int order_of(const candidate *c)
{
    if (c->missing_bytes > 0)
        return 3;
    if (c->estimate.step_time_s <= 0)
        return 2;
    return c->simulation.step_time_s > 0 || c->has_no_simulation ? 0 : 1;
}

static int by_outcome(const void *left, const void *right)
{
    const candidate *a = left, *b = right;
    int order = (int)b->is_preferred - (int)a->is_preferred;

    if (order == 0)
        order = order_of(a) - order_of(b);
    if (order == 0)
        order = compare_numbers(ty_candidate_time_s(a), ty_candidate_time_s(b));
    return order != 0 ? order : compare_shape(a, b);
}

static int by_place(const void *left, const void *right)
{
    const candidate *a = left, *b = right;

    if (a->is_preferred != b->is_preferred)
        return a->is_preferred ? -1 : 1;
    if (a->is_best_of_strategy != b->is_best_of_strategy)
        return a->is_best_of_strategy ? -1 : 1;
    return by_outcome(left, right);
}

/* ---- The two rounds ---------------------------------------------------------------------- */

/* On interrupt without a result, returns the first candidate that fits. Gives up after PATIENCE
 * that do not. */
#define PATIENCE 8

static bool is_over(const search *s)
{
    return (s->estimates > 0 || s->misfits >= PATIENCE) && ty_search_must_stop(s->q);
}

/* Data parallelism alone is the baseline for every other answer. */
static ty_status send_baseline(search *s, ty_error *error)
{
    for (uint32_t i = 0; i < s->list.count; i++) {
        candidate *c = &s->list.items[i];
        if (c->division->stage_count == 1 && c->compression.kind == TY_COMPRESSION_NONE)
            return c->is_judged ? TY_OK : judge(s, c, error);
    }
    return TY_OK;
}

static ty_status send_scouts(search *s, ty_error *error)
{
    if (!s->is_beside)
        TY_TRY(send_baseline(s, error));
    for (uint32_t i = 0; i < s->list.count && s->estimates < SCOUTS && !is_over(s); i++) {
        candidate *c = &s->list.items[i];
        if (c->quick_s > HOPELESS_SCOUT * s->best_s)
            break;
        if (s->corrections[c->strategy] <= 0 && !c->is_judged)
            TY_TRY(judge(s, c, error));
    }
    return TY_OK;
}

/* Expected step time of a candidate; uncorrected without a scout. */
static double expected_s(const search *s, const candidate *c)
{
    double correction = s->corrections[c->strategy];

    return correction > 0 ? c->quick_s * correction : c->quick_s;
}

static ty_status refine(search *s, ty_error *error)
{
    while (s->estimates < ESTIMATES && !is_over(s)) {
        /* The most promising variant of a strategy that has a scout; NULL when none is left. */
        candidate *next = NULL;
        for (uint32_t i = 0; i < s->list.count; i++) {
            candidate *c = &s->list.items[i];
            if (!c->is_judged && s->corrections[c->strategy] > 0 &&
                (next == NULL || expected_s(s, c) < expected_s(s, next)))
                next = c;
        }
        if (next == NULL || expected_s(s, next) > HOPELESS_VARIANT * s->best_s)
            break;
        TY_TRY(judge(s, next, error));
    }
    return TY_OK;
}

/* ---- Buckets for the best ------------------------------------------------------------------ */

#define REFITTED 3 /* candidates, best first */
/* Minimum exposed share of gradient collectives in the step to estimate other buckets. */
#define LEAST_EXPOSED 0.01

static bool may_refit(const search_question *q, const candidate *c)
{
    return !ty_is_pinned(q->pins, TY_AXIS(BUCKET) | TY_AXIS(CYCLE)) &&
           c->estimate.exposed_collective_share >= LEAST_EXPOSED && !c->has_fitted_buckets &&
           ty_can_fit_buckets(q, &c->dimensions, NULL) == TY_OK;
}

static bool is_refitted(const candidate_list *list, const candidate *c)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].has_fitted_buckets && list->items[i].division == c->division &&
            list->items[i].schedule == c->schedule &&
            list->items[i].micro_batches == c->micro_batches &&
            list->items[i].has_dense_embeddings == c->has_dense_embeddings &&
            ty_compression_equals(&list->items[i].compression, &c->compression))
            return true;
    return false;
}

/* The best candidates with buckets fitted to the times at which their gradients are ready. `list`
 * is sorted by outcome. */
static ty_status refit_buckets(search *s, ty_error *error)
{
    candidate best[REFITTED];
    uint32_t count = 0;

    for (uint32_t i = 0; i < s->list.count && i < REFITTED && order_of(&s->list.items[i]) <= 1; i++)
        if (may_refit(s->q, &s->list.items[i]) && !is_refitted(&s->list, &s->list.items[i]))
            best[count++] = s->list.items[i];
    for (uint32_t i = 0; i < count && !is_over(s); i++) {
        candidate refitted = {.set = best[i].set,
                              .division = best[i].division,
                              .dimensions = best[i].dimensions,
                              .micro_batches = best[i].micro_batches,
                              .schedule = best[i].schedule,
                              .bucket_bytes = UINT64_MAX,
                              .has_fitted_buckets = true,
                              .compression = best[i].compression,
                              .has_dense_embeddings = best[i].has_dense_embeddings,
                              .strategy = best[i].strategy,
                              .quick_s = best[i].quick_s};
        if (is_refitted(&s->list, &refitted)) /* another of them differs only in its buckets */
            continue;
        TY_TRY(ty_candidates_add(&s->list, &refitted, error));
        TY_TRY(judge(s, &s->list.items[s->list.count - 1], error));
    }
    return TY_OK;
}

/* Whether an equal candidate is in the list. */
static bool is_listed(const candidate_list *list, const candidate *c)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].has_dense_embeddings == c->has_dense_embeddings &&
            list->items[i].has_fitted_buckets == c->has_fitted_buckets &&
            list->items[i].division == c->division && compare_shape(&list->items[i], c) == 0)
            return true;
    return false;
}

/* The best candidate without rows, to report their gain. `list` is sorted by outcome. */
static ty_status compare_rows(search *s, ty_error *error)
{
    candidate dense = s->list.items[0];
    ty_status status;

    if (!dense.has_rows || order_of(&dense) > 1 || !may_compare_rows(s->q->pins) || is_over(s))
        return TY_OK;
    dense.has_dense_embeddings = true;
    if (is_listed(&s->list, &dense))
        return TY_OK;
    dense.has_rows = dense.is_judged = false;
    dense.estimate = dense.simulation = (ty_step_summary){0};
    dense.peak_memory_bytes = 0;
    status = ty_candidates_add(&s->list, &dense, error);
    return status == TY_OK ? judge(s, &s->list.items[s->list.count - 1], error) : status;
}

/* Evaluates those that were not evaluated before, then sorts all again. */
static ty_status judge_list(search *s, ty_error *error)
{
    candidate *all = s->list.items;

    ty_free(s->corrections);
    TY_TRY(ty_check_memory(
        (s->corrections = ty_alloc(s->list.strategy_count, sizeof *s->corrections)) != NULL,
        error));
    qsort(all, s->list.count, sizeof *all, by_quick_estimate);
    TY_TRY(send_scouts(s, error));
    TY_TRY(refine(s, error));
    for (uint32_t i = 0; i < s->list.count; i++)
        all[i].expected_s = expected_s(s, &all[i]);
    qsort(all, s->list.count, sizeof *all, by_outcome);
    TY_TRY(refit_buckets(s, error));
    qsort(s->list.items, s->list.count, sizeof *all, by_outcome);
    TY_TRY(compare_rows(s, error));
    qsort(s->list.items, s->list.count, sizeof *all, by_outcome);
    return TY_OK;
}

/* Adds candidates with the proposed dimensions. Other pinned fields may exclude some. */
static ty_status enumerate_ranks(search *s, const ty_plan_dimensions *dimensions, uint32_t count,
                                 ty_error *error)
{
    ty_error refusal = {0};

    for (uint32_t i = 0; i < count && !is_over(s); i++) {
        search_question divided = *s->q; /* borrows from the current question */
        const ty_status status = ty_search_question_divide(&divided, &dimensions[i], &refusal);
        if (status == TY_EINVAL)
            continue;
        if (status != TY_OK)
            return ty_fail(error, status, "%s", refusal.message);
        TY_TRY(ty_candidates_enumerate(&divided, &s->list, error));
    }
    return TY_OK;
}

/* All candidates of the current question. */
static ty_status search_candidates(search *s, bool may_have_ranks, ty_error *error)
{
    TY_TRY(ty_candidates_enumerate(s->q, &s->list, error));
    if (may_have_ranks) {
        ty_plan_dimensions dimensions[TY_MOST_DIMENSIONS];
        const uint32_t count = ty_dimensions_of_tensor_parallel(s->q, dimensions);
        TY_TRY(enumerate_ranks(s, dimensions, count, error));
    }
    return s->list.count > 0 ? judge_list(s, error) : TY_OK;
}

static bool has_found(const search *s)
{
    return s->estimates > 0 || s->list.is_cut_short;
}

/* ---- Layouts ------------------------------------------------------------------------------- */

/* Maximum number of instructions of layouts' programs to estimate before the search returns the
 * best so far. */
#define MOST_WALKED 1500000
/* Number of best layouts to try with other partitions, compressors and buckets. */
#define MOST_FIXED_LAYOUTS 4
/* Equal stages of a layout need cuts near those of an equal partition, to a fraction of a stage. */
#define CUTS_PER_CHUNK 4

static ty_status candidate_of(search *s, const ty_layouts *layouts, const layout *l, double bound_s,
                              candidate *out, ty_error *error)
{
    const uint32_t virtual_stages = at_least_one(l->dimensions.virtual_stages);
    division *d;

    if (s->list.divisions == NULL)
        s->list.divisions = ty_arena_new();
    d = s->list.divisions == NULL ? NULL : ty_arena_alloc(s->list.divisions, 1, sizeof *d);
    TY_TRY(ty_check_memory(d != NULL, error));
    d->stage_count = l->pipeline_size * virtual_stages;
    ty_layout_divide(layouts, l, d->first_layers);
    for (uint32_t k = 0; k < d->stage_count; k++)
        d->replicas[k] = l->replicas;
    *out = (candidate){.set = s->q->set,
                       .division = d,
                       .dimensions = l->dimensions,
                       .micro_batches = s->q->global_batch / l->micro_batch_size,
                       .schedule = l->schedule,
                       .bucket_bytes = l->bucket_bytes,
                       .has_fitted_buckets = s->q->pins->fit_buckets &&
                                             ty_dimensions_exchange(&l->dimensions, l->replicas),
                       .has_dense_embeddings = s->q->pins->embeddings == TY_EMBEDDINGS_DENSE,
                       .quick_s = bound_s,
                       .expected_s = bound_s};
    ty_dimensions_normalize(&out->dimensions);
    if (l->compression != TY_COMPRESSION_NONE)
        out->compression = ty_proposed_compression(s->q->pins, l->compression);
    return ty_candidates_strategy(&s->list, out, &out->strategy, error);
}

/* Layouts in the order of their bounds, until no other can be faster than the best. */
static ty_status estimate_layouts(search *s, ty_layouts *layouts, ty_error *error)
{
    while (s->walked < MOST_WALKED && !is_over(s)) {
        layout l;
        double bound_s;
        bool found;
        candidate c;
        TY_TRY(ty_layouts_next(layouts, &l, &bound_s, &found, error));
        if (!found || bound_s >= s->best_s)
            break;
        TY_TRY(candidate_of(s, layouts, &l, bound_s, &c, error));
        TY_TRY(ty_candidates_add(&s->list, &c, error));
        TY_TRY(judge(s, &s->list.items[s->list.count - 1], error));
    }
    s->list.is_cut_short = is_over(s) && ty_search_must_stop(s->q);
    return TY_OK;
}

/* Makes a layout's question the current one. */
static ty_status fix_layout(search_question *q, const candidate *c, ty_error *error)
{
    const uint32_t virtual_stages = at_least_one(c->dimensions.virtual_stages);
    ty_status status;

    q->fixed_stages = c->division->stage_count / virtual_stages;
    q->fixed_micro_batch_size = q->global_batch / c->micro_batches;
    q->has_fixed_replicas = true;
    for (uint32_t s = 0; s < q->fixed_stages; s++)
        q->fixed_replicas[s] = c->division->replicas[0];
    status = ty_search_question_divide(q, &c->dimensions, error);
    ty_search_question_thin(q, CUTS_PER_CHUNK * c->division->stage_count);
    return status;
}

static bool is_same_layout(const candidate *a, const candidate *b)
{
    return a->division->stage_count == b->division->stage_count &&
           a->micro_batches == b->micro_batches &&
           ty_dimensions_equal(&a->dimensions, &b->dimensions);
}

/* Removes candidates from `first` on that are in the list before. */
static void drop_repetitions(candidate_list *list, uint32_t first)
{
    uint32_t kept = first;

    for (uint32_t i = first; i < list->count; i++) {
        bool is_there = false;
        for (uint32_t k = 0; k < first && !is_there; k++)
            is_there = list->items[k].has_dense_embeddings == list->items[i].has_dense_embeddings &&
                       list->items[k].has_fitted_buckets == list->items[i].has_fitted_buckets &&
                       compare_shape(&list->items[k], &list->items[i]) == 0;
        if (!is_there)
            list->items[kept++] = list->items[i];
    }
    list->count = kept;
}

/* The best layouts with all other choices of a plan. */
static ty_status search_best_layouts(search *s, ty_error *error)
{
    const uint32_t judged = s->list.count;
    search_question fixed = *s->q; /* borrows from the current one, except the cuts */
    candidate best[MOST_FIXED_LAYOUTS];
    uint32_t count = 0;
    ty_status status = TY_OK;

    qsort(s->list.items, judged, sizeof *s->list.items, by_outcome);
    for (uint32_t i = 0;
         i < judged && count < MOST_FIXED_LAYOUTS && order_of(&s->list.items[i]) <= 1; i++) {
        bool is_taken = false;
        for (uint32_t k = 0; k < count; k++)
            is_taken = is_taken || is_same_layout(&best[k], &s->list.items[i]);
        if (!is_taken)
            best[count++] = s->list.items[i];
    }
    TY_TRY(ty_check_memory(
        (fixed.cuts = ty_alloc(s->q->all_cut_count + 1, sizeof *fixed.cuts)) != NULL, error));
    for (uint32_t i = 0; i < count; i++) {
        TY_CHECK(fix_layout(&fixed, &best[i], error), status, done);
        TY_CHECK(ty_candidates_enumerate(&fixed, &s->list, error), status, done);
    }
    drop_repetitions(&s->list, judged);
done:
    ty_free(fixed.cuts);
    return status;
}

/* Number of layouts of other sizes to list with the answer, and to try for them. */
#define ALTERNATIVES 6
#define MOST_TRIED 24

static bool has_sizes(const candidate *c, const layout *l, uint32_t global_batch)
{
    const ty_plan_dimensions *a = &c->dimensions, *b = &l->dimensions;
    const uint32_t virtual_stages = at_least_one(b->virtual_stages);

    return c->division->stage_count == l->pipeline_size * virtual_stages &&
           global_batch / c->micro_batches == l->micro_batch_size &&
           at_least_one(a->tensor_parallel) == at_least_one(b->tensor_parallel) &&
           at_least_one(a->context_parallel) == at_least_one(b->context_parallel) &&
           at_least_one(a->expert_parallel) == at_least_one(b->expert_parallel) &&
           at_least_one(a->virtual_stages) == virtual_stages;
}

/* The search for the fastest stops when no bound is lower. The next layouts by bound, with sizes
 * that are not listed yet, are estimated for the report; they take no part in the choice. */
static ty_status add_alternatives(search *s, ty_layouts *layouts, ty_error *error)
{
    uint32_t estimated = 0, considered = 0;

    ty_free(s->corrections); /* of the strategies so far */
    s->corrections = NULL;
    while (estimated < ALTERNATIVES && considered < MOST_TRIED && s->walked < MOST_WALKED &&
           !is_over(s)) {
        layout l;
        double bound_s;
        bool found, is_known = false;
        candidate c;
        TY_TRY(ty_layouts_next(layouts, &l, &bound_s, &found, error));
        if (!found)
            break;
        for (uint32_t i = 0; i < s->list.count && !is_known; i++)
            is_known = has_sizes(&s->list.items[i], &l, s->q->global_batch);
        if (is_known)
            continue;
        TY_TRY(candidate_of(s, layouts, &l, bound_s, &c, error));
        c.is_alternative = true;
        considered++;
        TY_TRY(ty_candidates_add(&s->list, &c, error));
        TY_TRY(judge(s, &s->list.items[s->list.count - 1], error));
        estimated += s->list.items[s->list.count - 1].missing_bytes == 0;
    }
    return TY_OK;
}

static ty_status search_layouts(search *s, bool *has_layouts, ty_error *error)
{
    ty_layouts *layouts = NULL;
    uint64_t count = 0;
    ty_status status = TY_OK;
    bool found = false;
    layout smallest;
    candidate c;

    TY_CHECK(ty_layouts_open(s->q, &layouts, error), status, done);
    if (layouts != NULL)
        count = ty_layouts_count(layouts);
    s->layouts += count;
    *has_layouts = count > 0;
    if (!*has_layouts)
        goto done;
    TY_CHECK(estimate_layouts(s, layouts, error), status, done);
    if (has_found(s)) {
        TY_CHECK(search_best_layouts(s, error), status, done);
    } else if (s->is_beside) {
        goto done;
    } else {
        TY_CHECK(ty_layouts_smallest(layouts, &smallest, &found, error), status, done);
        if (!found)
            goto done;
        TY_CHECK(candidate_of(s, layouts, &smallest, 1, &c, error), status, done);
        TY_CHECK(ty_candidates_add(&s->list, &c, error), status, done);
    }
    TY_CHECK(judge_list(s, error), status, done);
    if (has_found(s) && !s->is_beside && !s->q->options->answer_alone)
        status = add_alternatives(s, layouts, error);
done:
    ty_layouts_close(layouts);
    return status;
}

/* Tries TP, CP, EP, ZeRO and recomputation, the cheapest first. Earlier candidates stay in the
 * list: they did not fit. */
static ty_status search_more(search *s, search_question *q, ty_error *error)
{
    ty_plan_dimensions dimensions[TY_MOST_DIMENSIONS];
    const uint32_t count = ty_dimensions_propose(q, dimensions);

    q->is_short_of_memory = true;
    for (uint32_t i = 0; i < count && !has_found(s); i++) {
        TY_TRY(ty_search_question_divide(q, &dimensions[i], error));
        TY_TRY(search_candidates(s, false, error));
    }
    return TY_OK;
}

/* If layouts do not apply and the model does not fit one device: TP and EP in addition to PP.
 * Candidates without them stay. */
static ty_status search_parallelism(search *s, search_question *q, ty_error *error)
{
    ty_plan_dimensions dimensions[TY_MOST_DIMENSIONS];
    const uint32_t count = ty_dimensions_of_accelerators(q, dimensions), before = s->list.count;
    ty_status status;

    q->is_short_of_memory = true;
    status = enumerate_ranks(s, dimensions, count, error);
    return status == TY_OK && s->list.count > before ? judge_list(s, error) : status;
}

/* ---- All parts --------------------------------------------------------------------------- */

/* Adds the results of one part of the search to those of others. */
static ty_status take_over(search *s, const search *part, ty_error *error)
{
    for (uint32_t i = 0; i < part->list.count; i++) {
        candidate c = part->list.items[i];
        TY_TRY(ty_candidates_strategy(&s->list, &c, &c.strategy, error));
        TY_TRY(ty_candidates_add(&s->list, &c, error));
    }
    s->estimates += part->estimates;
    s->layouts += part->layouts;
    s->best_s = fmin(s->best_s, part->best_s);
    s->list.is_cut_short = s->list.is_cut_short || part->list.is_cut_short;
    return TY_OK;
}

/* Sharded tables, with a separate search for each way: they shorten the update, which quick
 * estimates leave out. */
static ty_status search_tables(search *s, ty_error *error)
{
    ty_plan_dimensions dimensions[TY_MOST_DIMENSIONS];
    const uint32_t count = ty_dimensions_of_tables(s->q, dimensions);
    ty_status status = TY_OK;

    if (count > 0 && s->list.divisions == NULL && (s->list.divisions = ty_arena_new()) == NULL)
        return out_of_memory(error);
    for (uint32_t i = 0; status == TY_OK && i < count && !is_over(s); i++) {
        search part = {.q = s->q, .best_s = s->best_s};
        part.list.divisions = s->list.divisions;
        status = enumerate_ranks(&part, &dimensions[i], 1, error);
        if (status == TY_OK && part.list.count > 0)
            status = judge_list(&part, error);
        if (status == TY_OK)
            status = take_over(s, &part, error);
        ty_candidates_drop(&part.list);
        ty_free(part.corrections);
    }
    return status;
}

/* Plans for the current set of devices. */
static ty_status search_set(search *s, search_question *q, ty_error *error)
{
    const ty_pins *pins = q->pins;
    const bool can_divide =
        !ty_is_pinned(pins, TY_AXES_OF_DIMENSIONS | TY_AXIS(SCHEDULE) | TY_AXIS(PP)) &&
        !q->has_fixed_replicas;
    bool is_open, has_layouts = false;

    if (pins->servers == 0 && pins->priority != TY_PRIORITY_FRONT &&
        q->workload->learning != TY_LEARNING_REINFORCEMENT)
        TY_TRY(search_layouts(s, &has_layouts, error));
    if (q->options->layouts_only)
        return TY_OK;
    /* Stages of different sizes and numbers of replicas: with few devices, or without layouts. */
    is_open = q->refusal.status == TY_OK;
    if (is_open && (has_layouts ? q->device_count <= FEW_DEVICES : !has_found(s)))
        TY_TRY(search_candidates(s, can_divide, error));
    if (s->is_beside)
        return TY_OK;
    /* If the usual micro-batches do not fit, tries smaller ones, then other dimensions; else
     * reports the candidate that misses least. */
    if (is_open && !has_found(s) && !has_layouts) {
        q->is_short_of_memory = true;
        ty_candidates_drop(&s->list); /* enumerates all of them again, and smaller ones */
        TY_TRY(search_candidates(s, false, error));
    }
    if (is_open && !has_found(s) && !has_layouts &&
        (pins->axes & TY_AXES_OF_DIMENSIONS) != TY_AXES_OF_DIMENSIONS && !q->has_fixed_replicas &&
        !ty_is_pinned(pins, TY_AXIS(SCHEDULE)))
        TY_TRY(search_more(s, q, error));
    /* Not if the model fits one device in the fastest plan. */
    const candidate *best = s->list.items;
    if (is_open && !has_layouts && !q->has_fixed_replicas &&
        !(s->list.count > 0 && order_of(best) <= 1 && best->division->stage_count == 1 &&
          best->dimensions.zero == 0 && best->dimensions.recompute == TY_RECOMPUTE_NONE) &&
        !ty_is_pinned(pins, TY_AXES_OF_RANKS))
        TY_TRY(search_parallelism(s, q, error));
    if (!q->has_fixed_replicas || ty_is_pinned(pins, TY_AXIS(DP)))
        TY_TRY(search_tables(s, error));
    if (is_open && !has_found(s) && s->list.count == 0) {
        q->ignore_memory = true;
        TY_TRY(search_candidates(s, false, error));
    }
    return TY_OK;
}

/* "searched plans for 8000 of 8000 devices: 4.26 s per step so far" */
static void report_progress(const search *s, const search_question *q)
{
    const uint32_t devices = ty_cluster_device_count(q->cluster);
    char seconds[32], line[160];

    if (q->options->note == NULL || devices < TY_MANY_DEVICES)
        return;
    if (s->estimates > 0)
        ty_format_seconds(s->best_s, seconds);
    snprintf(line, sizeof line, "searched plans for %u of %u devices: %s%s", q->device_count,
             devices, s->estimates > 0 ? seconds : "none",
             s->estimates > 0 ? " per step so far" : " yet");
    q->options->note(q->options->note_context, line);
}

/* With many sets, as on hundreds of hosts, stops after this many in a row without a faster plan,
 * but for regular ones. With fewer hosts all sets are searched: from 8 to 4 hosts, 7, 6 and 5 may
 * divide worse. */
#define MANY_SETS 16
#define PATIENCE_WITH_SETS 2

/* All devices first; then fewer, as long as these could be faster. Partitions of all sets are
 * stored together. */
static ty_status search_sets(search *s, search_question *q, ty_error *error)
{
    uint32_t vain = 0;
    bool all_found = false; /* a plan for all devices */
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < q->set_count && !s->list.is_cut_short; i++) {
        const double best_s = s->best_s;
        search part = {.q = q, .best_s = s->best_s, .is_beside = i > 0};
        ty_error refusal = {0};
        if (q->set_count > MANY_SETS && vain >= PATIENCE_WITH_SETS && !q->sets[i].is_regular)
            continue;
        if (i > 0 &&
            ((q->sets[i].is_spare && all_found) || (s->estimates > 0 && ty_search_must_stop(q)) ||
             ty_device_set_bound_s(q, &q->sets[i]) >= s->best_s))
            continue;
        if (i > 0) {
            status = ty_search_question_use(q, &q->sets[i], &refusal);
            if (status == TY_EINVAL) { /* the question is not possible on these */
                status = TY_OK;
                continue;
            }
            if (status != TY_OK)
                return ty_fail(error, status, "%s", refusal.message);
        }
        if (s->list.divisions == NULL && (s->list.divisions = ty_arena_new()) == NULL)
            return out_of_memory(error);
        part.list.divisions = s->list.divisions;
        status = search_set(&part, q, i == 0 ? error : &refusal);
        if (status == TY_OK && (i == 0 || part.estimates > 0))
            status = take_over(s, &part, error);
        ty_candidates_drop(&part.list);
        ty_free(part.corrections);
        if (i > 0 && (status == TY_EINVAL || status == TY_EINFEASIBLE))
            status = TY_OK;
        if (i > 0 && status == TY_EINTERRUPTED && s->estimates > 0) {
            s->list.is_cut_short = true;
            status = TY_OK;
        }
        if (status != TY_OK)
            return status;
        all_found = all_found || (i == 0 && s->estimates > 0);
        report_progress(s, q);
        vain = i > 0 && s->estimates > 0 && !(s->best_s < best_s) ? vain + 1 : 0;
    }
    return TY_OK;
}

/* ---- Simpler plans ----------------------------------------------------------------------- */

/* Complexity of a plan: number of kinds of parallelism, then VPP. */
static int compare_complexity(const candidate *a, const candidate *b)
{
    const candidate *const both[] = {a, b};
    int ways[2];
    uint32_t virtual_stages[2];

    for (int i = 0; i < 2; i++) {
        const division *d = both[i]->division;
        const ty_plan_dimensions *dimensions = &both[i]->dimensions;
        virtual_stages[i] = at_least_one(dimensions->virtual_stages);
        ways[i] = (dimensions->tensor_parallel > 1) + (dimensions->context_parallel > 1) +
                  (dimensions->expert_parallel > 1) + (d->stage_count > 1) +
                  !has_equal_replicas(d) +
                  (virtual_stages[i] > 1 || !ty_schedule_is_plain(both[i]->schedule));
    }
    return ways[0] != ways[1] ? ways[0] - ways[1]
                              : compare_counts(virtual_stages[0], virtual_stages[1]);
}

/* Whether two plans are equal except for buckets, compression and rows. */
static bool has_same_layout(const candidate *a, const candidate *b)
{
    const size_t bytes = a->division->stage_count * sizeof *a->division->replicas;

    return a->set == b->set && a->schedule == b->schedule && is_same_layout(a, b) &&
           memcmp(a->division->first_layers, b->division->first_layers, bytes) == 0 &&
           memcmp(a->division->replicas, b->division->replicas, bytes) == 0;
}

/* A simulated candidate with the layout of `c`; NULL: none. */
static const candidate *find_simulated(const candidate_list *list, const candidate *c)
{
    for (uint32_t i = 0; i < list->count; i++)
        if (list->items[i].simulation.step_time_s > 0 && has_same_layout(&list->items[i], c))
            return &list->items[i];
    return NULL;
}

/* The step time of a candidate that was estimated: simulated, or corrected by a simulation of its
 * layout, or as estimated. */
static double known_s(const candidate_list *list, const candidate *c)
{
    const candidate *other = c->simulation.step_time_s > 0 ? c : find_simulated(list, c);

    return other == NULL ? c->estimate.step_time_s
                         : c->estimate.step_time_s *
                               (other->simulation.step_time_s / other->estimate.step_time_s);
}

/* The simplest candidate of order `most_order` or less that takes at most `limit_s`; ties: the
 * fastest; NULL: none. */
static candidate *simplest_within(const candidate_list *list, int most_order, double limit_s)
{
    candidate *best = NULL;
    double best_s = HUGE_VAL;

    for (uint32_t i = 0; i < list->count; i++) {
        candidate *c = &list->items[i];
        double c_s;
        int order;
        if (c->is_alternative || order_of(c) > most_order || (c_s = known_s(list, c)) > limit_s)
            continue;
        order = best == NULL ? -1 : compare_complexity(c, best);
        if (order == 0)
            order = compare_numbers(c_s, best_s);
        if (order < 0 || (order == 0 && compare_shape(c, best) < 0)) {
            best = c;
            best_s = c_s;
        }
    }
    return best;
}

/* The simplest candidate within the tolerance of the fastest. */
static candidate *find_answer(const search *s, int most_order)
{
    const candidate_list *list = &s->list;
    double least_s = HUGE_VAL;

    for (uint32_t i = 0; i < list->count; i++)
        if (!list->items[i].is_alternative && order_of(&list->items[i]) <= most_order)
            least_s = fmin(least_s, known_s(list, &list->items[i]));
    return simplest_within(list, most_order, least_s * (1 + s->q->options->tolerance));
}

/* Simplifications: no TP, CP, EP and PP; no PP; VPP 1; at most 2, 4 and 8. */
enum { NO_DIVISION, NO_PIPELINE, ONE_STAGE, NARROWINGS = ONE_STAGE + 4 };

/* @param out options with the simplification
 * @return whether the requested options allow it */
static bool leave_out(const ty_plan_options *asked, uint32_t what, ty_plan_options *out)
{
    *out = *asked;
    if (ty_is_pinned(&asked->pins, TY_AXIS(VPP) | TY_AXIS(SCHEDULE)))
        return false;
    if (what >= ONE_STAGE)
        return true;
    if (ty_is_pinned(&asked->pins, TY_AXIS(PP) | TY_AXIS(DP) | TY_AXIS(REPLICAS)) ||
        (what == NO_DIVISION && ty_is_pinned(&asked->pins, TY_AXES_OF_RANKS | TY_AXIS(SP))))
        return false;
    ty_pin(&out->pins, TY_AXIS_PP, 1);
    out->pins.axes |= what == NO_DIVISION ? TY_AXES_OF_RANKS : 0; /* each of them 1 */
    return true;
}

/* Whether a plan already has the simplification. */
static bool is_without(const candidate *c, uint32_t what)
{
    if (what >= ONE_STAGE)
        return c->dimensions.virtual_stages <= 1u << (what - ONE_STAGE);
    return c->division->stage_count == 1 &&
           (what == NO_PIPELINE || ty_dimensions_width(&c->dimensions) == 1);
}

/* The search for the fastest pruned slower plans. This one finds simpler plans within the
 * tolerance, on the devices of the fastest. */
static ty_status search_simpler(search *s, search_question *q, ty_error *error)
{
    const ty_plan_options *options = q->options;
    const candidate *fastest = &s->list.items[0];
    const double limit_s = fastest->estimate.step_time_s * (1 + options->tolerance);
    const device_set *set = fastest->set != NULL ? fastest->set : &q->sets[0];
    const candidate simplest = *simplest_within(&s->list, 1, limit_s);
    ty_plan_options narrow;
    bool is_found = false;

    for (uint32_t what = 0;
         what < NARROWINGS && !is_found && !is_without(&simplest, what) && !ty_search_must_stop(q);
         what++) {
        search part = {.q = q, .best_s = limit_s, .is_beside = true};
        ty_error refusal = {0};
        ty_status status;
        if (!leave_out(options, what, &narrow))
            continue;
        q->options = &narrow;
        q->pins = &narrow.pins;
        q->most_virtual_stages = what >= ONE_STAGE ? 1u << (what - ONE_STAGE) : 0;
        part.list.divisions = s->list.divisions;
        status = ty_search_question_use(q, set, &refusal);
        if (status == TY_OK)
            status = search_set(&part, q, &refusal);
        is_found = status == TY_OK && part.estimates > 0 &&
                   simplest_within(&part.list, 1, limit_s) != NULL;
        if (is_found)
            status = take_over(s, &part, &refusal);
        ty_candidates_drop(&part.list);
        ty_free(part.corrections);
        q->options = options;
        q->pins = &options->pins;
        q->most_virtual_stages = 0;
        if (status == TY_ENOMEM)
            return ty_fail(error, status, "%s", refusal.message);
    }
    return ty_search_question_use(q, set, error);
}

/* ---- Finalists --------------------------------------------------------------------------- */

/* Its estimate is the answer if a simulation would take too long. With many devices, it notes
 * "simulated a plan: 5.3 s per step", because simulations take long. */
static ty_status simulate_or_note(const search_question *q, candidate *c, ty_error *error)
{
    ty_error why = {0};
    char seconds[32], line[sizeof why.message + 48];
    const ty_status status = simulate(q, c, &why);

    if (status != TY_OK && status != TY_ELIMIT)
        return ty_fail(error, status, "%s", why.message);
    c->has_no_simulation = c->has_no_simulation || status == TY_ELIMIT;
    ty_format_seconds(c->simulation.step_time_s, seconds);
    if (status == TY_OK)
        snprintf(line, sizeof line, "simulated a plan: %s per step", seconds);
    else
        snprintf(line, sizeof line, "the step time is an estimate: %s", why.message);
    if (q->options->note != NULL &&
        (status == TY_ELIMIT || ty_cluster_device_count(q->cluster) >= TY_MANY_DEVICES))
        q->options->note(q->options->note_context, line);
    return TY_OK;
}

/* Simulates the answer until the first candidate is a simulated one: then no estimate is good
 * enough that its simulation could change the choice. */
static ty_status simulate_finalists(search *s, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < s->q->options->simulate_top && !ty_search_must_stop(s->q); i++) {
        candidate *c = find_answer(s, 1);
        if (order_of(c) == 0 || find_simulated(&s->list, c) != NULL)
            break;
        TY_CHECK(simulate_or_note(s->q, c, error), status, done);
    }
done:
    return status == TY_EINTERRUPTED ? TY_OK : status;
}

/* Only layouts were requested, and none fits. */
static ty_status refuse_layouts(const search_question *q, const search *s, ty_error *error)
{
    if (s->list.count > 0)
        return ty_answer_refuse(q, &s->list, error);
    return ty_fail(error, TY_EINVAL,
                   "%s on %s: no layout: expected a stack of equal attention and mlp layers, and "
                   "equal accelerators",
                   q->workload->name, ty_cluster_name(q->cluster));
}

/* The best of each strategy first. `list` is sorted by outcome. */
static ty_status put_in_place(search *s, ty_error *error)
{
    bool *is_met = ty_alloc(s->list.strategy_count, sizeof *is_met);

    TY_TRY(ty_check_memory(is_met != NULL, error));
    for (uint32_t i = 0; i < s->list.count; i++) {
        candidate *c = &s->list.items[i];
        c->is_best_of_strategy = !is_met[c->strategy];
        is_met[c->strategy] = true;
    }
    ty_free(is_met);
    qsort(s->list.items, s->list.count, sizeof *s->list.items, by_place);
    return TY_OK;
}

/* Parameter servers, priority orders and learners of episodes require replicas of the unsharded
 * model. */
static ty_plan_options settled(const ty_workload *workload, const ty_plan_options *options)
{
    ty_plan_options o = *options;

    if (o.pins.servers == 0 && o.pins.priority != TY_PRIORITY_FRONT &&
        workload->learning != TY_LEARNING_REINFORCEMENT)
        return o;
    if (o.pins.servers > 0 && !ty_is_pinned(&o.pins, TY_AXIS(ALGORITHM)))
        ty_pin(&o.pins, TY_AXIS_ALGORITHM, TY_PARAMETER_SERVER);
    if (!ty_is_pinned(&o.pins, TY_AXIS(PP) | TY_AXIS(REPLICAS)))
        ty_pin(&o.pins, TY_AXIS_PP, 1);
    /* Open ones are 0. CP is never proposed; with one pin less, sets of fewer devices are searched,
     * too. */
    o.pins.axes |= TY_AXIS(TP) | TY_AXIS(EP) | TY_AXIS(SP) | TY_AXIS(ZERO) | TY_AXIS(VPP) |
                   (o.pins.priority == TY_PRIORITY_FRONT ? TY_AXIS(RECOMPUTE) : 0);
    if (o.pins.dimensions.context_parallel <= 1)
        ty_unpin(&o.pins, TY_AXIS_CP);
    return o;
}

ty_status ty_plan_search_check(const ty_workload *workload, const ty_cluster *cluster,
                               const ty_profile *profile, const ty_plan_options *options,
                               ty_error *error)
{
    const ty_plan_options asked = settled(workload, options);
    search_question q;
    ty_status status = ty_search_question_make(workload, cluster, profile, &asked, &q, error);

    ty_search_question_clear(&q);
    return status;
}

ty_status ty_plan_search_once(const ty_workload *workload, const ty_cluster *cluster,
                              const ty_profile *profile, const ty_plan_options *options,
                              ty_plan **out, ty_error *error)
{
    const ty_plan_options asked = settled(workload, options);
    ty_status status = TY_OK;
    search_question q = {0};
    search s = {.q = &q, .best_s = HUGE_VAL};
    ty_error refusal;

    TY_CHECK(ty_search_question_make(workload, cluster, profile, &asked, &q, error), status, done);
    refusal = q.refusal; /* of all devices */
    TY_CHECK(search_sets(&s, &q, error), status, done);
    if (s.estimates == 0 && !s.list.is_cut_short) {
        if (options->idle == TY_IDLE_IF_NEEDED && refusal.status == TY_OK && s.list.count == 0) {
            ty_plan_options fewer = *options;
            ty_error why = {0};
            fewer.idle = TY_IDLE_MAY;
            status = ty_plan_search_once(workload, cluster, profile, &fewer, out, &why);
            if (status != TY_EINFEASIBLE && status != TY_EINVAL) {
                status = status == TY_OK ? TY_OK : ty_fail(error, status, "%s", why.message);
                goto done;
            }
        }
        TY_CHECK(ty_search_question_use(&q, &q.sets[0], error), status, done);
        if (options->layouts_only)
            status = refuse_layouts(&q, &s, error);
        else if (refusal.status != TY_OK && s.list.count == 0)
            status = ty_fail(error, refusal.status, "%s", refusal.message);
        else
            status = ty_answer_refuse(&q, &s.list, error);
        goto done;
    }
    if (s.estimates == 0) {
        status = ty_fail(error, TY_EINTERRUPTED, "stopped before a plan that fits was found");
        goto done;
    }
    qsort(s.list.items, s.list.count, sizeof *s.list.items, by_outcome);
    if (options->tolerance > 0)
        TY_CHECK(search_simpler(&s, &q, error), status, done);
    TY_CHECK(simulate_finalists(&s, error), status, done);
    /* Marks the answer, and moves it to the front. */
    candidate_list *list = &s.list;

    for (uint32_t i = 0; i < list->count; i++)
        list->items[i].is_preferred = false;
    qsort(list->items, list->count, sizeof *list->items, by_outcome);
    find_answer(&s, order_of(&list->items[0]))->is_preferred = true;
    qsort(list->items, list->count, sizeof *list->items, by_outcome);
    TY_CHECK(put_in_place(&s, error), status, done);
    status = ty_answer_make(&q, &s.list, out, error);
    if (status == TY_OK)
        (*out)->searched = (ty_plan_searched){s.layouts, s.estimates};
done:
    ty_free(s.corrections);
    ty_candidates_clear(&s.list);
    ty_search_question_clear(&q);
    return status;
}
