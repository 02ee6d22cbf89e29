/* Piper's search over ideals, devices and degrees.
 *
 * Pipelines are built from the back, so that the micro-batches a stage holds are known: behind an
 * ideal lie the stages of all layers not in it. Each ideal keeps the suffixes that no other beats
 * in devices, replicas and time. Rounds with a growing bound on the time skip all that cannot stay
 * below it; the first round that finds a pipeline has found the best. */
#include "bit_rows.h"
#include "piper_stage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NO_SUFFIX UINT32_MAX

/* A way to run everything behind an ideal. */
typedef struct suffix {
    uint32_t devices, replicas; /* all of them, and the sum of replicas over stages */
    double time_s;
    uint32_t next_ideal, next; /* what follows the first stage; `next` counts in all suffixes */
    uint32_t tensor, stage_replicas;
} suffix;

/* What part of the grid holds suffixes. */
typedef struct used_grid {
    uint32_t first_replicas, last_replicas, most_beyond; /* devices beyond one per replica */
} used_grid;

typedef struct search {
    piper_costs *costs;
    const ty_ideals *ideals;
    uint32_t devices, most_replicas;
    double bound_s;    /* of this round */
    double *compute_s; /* [ideal] least device-seconds of what is in it */
    uint32_t *starts;  /* [ideal + 1], [ideal] of its suffixes; ideals are done from the last on */
    uint32_t *ends;
    suffix *suffixes;
    uint32_t suffix_count, suffix_capacity;
    suffix *grid; /* [devices - replicas][replicas] of the ideal at hand; time_s HUGE_VAL: none */
    used_grid used;
    double *best_s; /* [most_replicas + 1] */
    uint64_t pair_count;
} search;

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "piper: out of memory");
}

/* Rows are of devices beyond one per replica: one row will do where nothing is tensor-parallel. */
static suffix *grid_at(const search *s, uint32_t devices, uint32_t replicas)
{
    return &s->grid[(size_t)(devices - replicas) * (s->most_replicas + 1) + replicas];
}

/* ---- One ideal ------------------------------------------------------------------------------- */

/* Whether what is before an ideal can still be done in time with the devices left. */
static bool can_begin(const search *s, uint32_t ideal, uint32_t devices)
{
    return devices <= s->devices &&
           s->compute_s[ideal] <= s->bound_s * (s->devices - devices) * (1 + 1e-9);
}

static void put(search *s, const suffix *one)
{
    const uint32_t beyond = one->devices - one->replicas;

    *grid_at(s, one->devices, one->replicas) = *one;
    if (one->replicas < s->used.first_replicas)
        s->used.first_replicas = one->replicas;
    if (one->replicas > s->used.last_replicas)
        s->used.last_replicas = one->replicas;
    if (beyond > s->used.most_beyond)
        s->used.most_beyond = beyond;
}

/* Lets one stage in front of every suffix of `next` compete. */
static void try_stage(search *s, piper_stage *stage, uint32_t ideal, uint32_t next, uint32_t degree,
                      uint32_t replicas)
{
    const uint32_t tensor = s->costs->tensors[degree], devices = tensor * replicas;
    uint32_t most_total = s->most_replicas;
    double least_s;

    least_s = piper_least_s(stage, degree, replicas) * (1 - 1e-9); /* rounding */
    if (!can_begin(s, ideal, devices) || least_s > s->bound_s)
        return;
    for (uint32_t i = s->starts[next]; i < s->ends[next]; i++) {
        const suffix *rest = &s->suffixes[i];
        uint32_t total = rest->replicas + replicas;
        double time_s;
        const suffix *best;
        if (!can_begin(s, ideal, rest->devices + devices))
            break; /* the others have more */
        if (total > most_total)
            continue;
        best = grid_at(s, rest->devices + devices, total);
        if (rest->time_s >= best->time_s || least_s >= best->time_s)
            continue;
        time_s = piper_stage_s(stage, degree, replicas, total);
        if (time_s == HUGE_VAL)
            most_total = total - 1; /* more in flight fit even less */
        time_s = rest->time_s > time_s ? rest->time_s : time_s;
        if (time_s < best->time_s && time_s <= s->bound_s)
            put(s, &(suffix){rest->devices + devices, total, time_s, next, i, tensor, replicas});
    }
}

static void try_stages(search *s, uint32_t ideal, uint32_t next)
{
    const ty_piper_input *in = s->costs->input;
    piper_stage stage;

    piper_stage_begin(&stage, s->costs, s->ideals, ideal, next);
    for (uint32_t degree = 0; degree < s->costs->tensor_count; degree++) {
        uint32_t most = s->devices / s->costs->tensors[degree];
        if (!piper_stage_has(&stage, degree))
            continue;
        most = most < s->most_replicas ? most : s->most_replicas;
        for (uint32_t d = 1; d <= most; d++)
            if (in->micro_batches % d == 0)
                try_stage(s, &stage, ideal, next, degree, d);
    }
}

static ty_status keep(search *s, const suffix *one, ty_error *error)
{
    if (s->suffix_count == s->suffix_capacity) {
        uint32_t capacity = s->suffix_capacity * 2;
        suffix *more = ty_resize(s->suffixes, capacity, sizeof *more);
        if (more == NULL)
            return out_of_memory(error);
        s->suffixes = more;
        s->suffix_capacity = capacity;
    }
    s->suffixes[s->suffix_count++] = *one;
    return TY_OK;
}

/* Keeps the grid's suffixes that none with as few devices and replicas beats, and empties it. */
static ty_status keep_best(search *s, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t r = s->used.first_replicas; r <= s->used.last_replicas; r++)
        s->best_s[r] = HUGE_VAL; /* with so many replicas, of fewer devices */
    for (uint32_t k = s->used.first_replicas; k <= s->used.last_replicas + s->used.most_beyond;
         k++) {
        uint32_t first = s->used.first_replicas, last = s->used.last_replicas;
        double least_s = HUGE_VAL; /* of as few replicas */
        if (k > s->used.most_beyond && k - s->used.most_beyond > first) {
            first = k - s->used.most_beyond;
            least_s = s->best_s[first - 1];
        }
        for (uint32_t r = first; r <= last && r <= k; r++) {
            suffix *at = grid_at(s, k, r);
            least_s = s->best_s[r] < least_s ? s->best_s[r] : least_s;
            if (at->time_s < least_s) {
                TY_CHECK(keep(s, at, error), status, done);
                least_s = at->time_s;
            }
            s->best_s[r] = least_s;
            at->time_s = HUGE_VAL;
        }
    }
    s->used = (used_grid){.first_replicas = s->most_replicas};
done:
    return status;
}

static ty_status solve_ideal(search *s, uint32_t ideal, ty_error *error)
{
    const uint32_t last = s->ideals->count - 1;
    ty_status status = TY_OK;

    s->starts[ideal] = s->suffix_count;
    for (uint32_t next = ideal + 1; next <= last; next++)
        if (s->starts[next] < s->ends[next] && ty_ideal_is_inside(s->ideals, ideal, next))
            try_stages(s, ideal, next);
    TY_CHECK(keep_best(s, error), status, done);
    s->ends[ideal] = s->suffix_count;
done:
    return status;
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

static ty_status solve_round(search *s, ty_error *error)
{
    const uint32_t last = s->ideals->count - 1;
    ty_status status = TY_OK;

    for (size_t i = 0; i < ((size_t)s->devices + 1) * (s->most_replicas + 1); i++)
        s->grid[i].time_s = HUGE_VAL;
    s->used = (used_grid){.first_replicas = s->most_replicas};
    s->suffixes[0] = (suffix){.next = NO_SUFFIX}; /* nothing is left */
    s->suffix_count = 1;
    s->starts[last] = 0;
    s->ends[last] = 1;
    for (uint32_t ideal = last; ideal-- > 0;)
        TY_CHECK(solve_ideal(s, ideal, error), status, done);
done:
    return status;
}

/* The suffix of everything with the least time, and among those the fewest devices. */
static uint32_t best_of_all(const search *s)
{
    uint32_t best = NO_SUFFIX;
    for (uint32_t i = s->starts[0]; i < s->ends[0]; i++)
        if (best == NO_SUFFIX || s->suffixes[i].time_s < s->suffixes[best].time_s)
            best = i;
    return best;
}

/* Bounds of the rounds, as multiples of the time that all devices need for the compute alone. The
 * last one is no bound: Piper's own infinity (algo.cpp, INFTY). */
static const double round_factors[] = {1.03, 1.1, 1.25, 1.6, 2.5, 6, 40};
#define NO_BOUND_S 1e30

static ty_status solve_rounds(search *s, uint32_t *best, ty_error *error)
{
    const size_t rounds = sizeof round_factors / sizeof *round_factors + 1;
    const double least_s = s->compute_s[s->ideals->count - 1] / s->devices;
    ty_status status = TY_OK;

    *best = NO_SUFFIX;
    for (size_t i = 0; i < rounds && *best == NO_SUFFIX; i++) {
        s->bound_s = i + 1 < rounds ? least_s * round_factors[i] : NO_BOUND_S;
        TY_CHECK(solve_round(s, error), status, done);
        *best = best_of_all(s);
    }
done:
    return status;
}

static void count_pairs(search *s)
{
    for (uint32_t whole = 0; whole < s->ideals->count; whole++)
        for (uint32_t part = 0; part < whole; part++)
            s->pair_count += ty_ideal_is_inside(s->ideals, part, whole);
}

static ty_status allocate(search *s, ty_error *error)
{
    const uint32_t count = s->ideals->count;

    s->compute_s = ty_alloc(count, sizeof *s->compute_s);
    s->starts = ty_alloc(count, sizeof *s->starts);
    s->ends = ty_alloc(count, sizeof *s->ends);
    s->suffix_capacity = 1024;
    s->suffixes = ty_alloc(s->suffix_capacity, sizeof *s->suffixes);
    s->grid = ty_alloc(((size_t)s->devices + 1) * (s->most_replicas + 1), sizeof *s->grid);
    s->best_s = ty_alloc((size_t)s->most_replicas + 1, sizeof *s->best_s);
    if (s->compute_s == NULL || s->starts == NULL || s->ends == NULL || s->suffixes == NULL ||
        s->grid == NULL || s->best_s == NULL)
        return out_of_memory(error);
    for (uint32_t i = 0; i < count; i++)
        for (uint32_t v = 0; v < s->ideals->layer_count; v++)
            if (ty_ideal_has(s->ideals, i, v))
                s->compute_s[i] += s->costs->least_device_s[v];
    return TY_OK;
}

static void clear(search *s)
{
    ty_free(s->compute_s);
    ty_free(s->starts);
    ty_free(s->ends);
    ty_free(s->suffixes);
    ty_free(s->grid);
    ty_free(s->best_s);
}

/* ---- Answers --------------------------------------------------------------------------------- */

static ty_status describe_stage(const search *s, const suffix *at, uint32_t ideal,
                                ty_piper_division *division, ty_error *error)
{
    ty_piper_stage *out = &division->stages[division->stage_count++];
    uint32_t degree = 0;
    piper_stage stage;

    while (s->costs->tensors[degree] != at->tensor)
        degree++;
    out->layers = ty_arena_alloc(division->arena, s->ideals->layer_count, sizeof *out->layers);
    if (out->layers == NULL)
        return out_of_memory(error);
    out->tensor = at->tensor;
    out->replicas = at->stage_replicas;
    out->in_flight = (at->replicas + at->stage_replicas - 1) / at->stage_replicas;
    piper_stage_begin(&stage, s->costs, s->ideals, ideal, at->next_ideal);
    piper_stage_describe(&stage, degree, at->replicas, out);
    return TY_OK;
}

static ty_status describe(const search *s, uint32_t best, ty_piper_division **out, ty_error *error)
{
    ty_status status = TY_OK;
    ty_piper_division *division = ty_alloc(1, sizeof *division);
    uint32_t ideal = 0, stages = 0;

    if (division != NULL)
        division->arena = ty_arena_new();
    if (division == NULL || division->arena == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    for (uint32_t i = best; s->suffixes[i].next != NO_SUFFIX; i = s->suffixes[i].next)
        stages++;
    division->stages = ty_arena_alloc(division->arena, stages, sizeof *division->stages);
    if (division->stages == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    division->time_s = s->suffixes[best].time_s;
    division->ideal_count = s->ideals->count;
    division->pair_count = s->pair_count;
    for (uint32_t i = best; s->suffixes[i].next != NO_SUFFIX; i = s->suffixes[i].next) {
        TY_CHECK(describe_stage(s, &s->suffixes[i], ideal, division, error), status, cleanup);
        ideal = s->suffixes[i].next_ideal;
    }
    *out = division;
    division = NULL;

cleanup:
    ty_piper_division_free(division);
    return status;
}

void ty_piper_division_free(ty_piper_division *division)
{
    if (division == NULL)
        return;
    ty_arena_free(division->arena);
    ty_free(division);
}

static ty_status find_ideals(const piper_costs *costs, ty_ideals **out, ty_error *error)
{
    const ty_piper_input *in = costs->input;
    ty_status status = TY_OK;
    ty_layer_graph *graph = NULL;
    ty_graph_layer *layers = ty_alloc(in->layer_count, sizeof *layers);

    if (layers == NULL)
        return out_of_memory(error);
    for (uint32_t v = 0; v < in->layer_count; v++)
        layers[v].compute_s = costs->least_device_s[v];
    TY_CHECK(ty_layer_graph_make(layers, in->layer_count, in->edges, in->edge_count, &graph, error),
             status, cleanup);
    status = ty_ideals_find(graph, TY_IDEALS_ALL, 0, out, error);

cleanup:
    ty_layer_graph_free(graph);
    ty_free(layers);
    return status;
}

static ty_status fail_infeasible(const ty_piper_input *in, ty_error *error)
{
    char memory[32];

    ty_format_memory(in->memory_bytes, memory);
    return ty_fail(error, TY_EINFEASIBLE,
                   "no pipeline of %u layers fits %u devices of %s, whatever it recomputes",
                   in->layer_count, in->devices, memory);
}

ty_status ty_divide_piper(const ty_piper_input *input, ty_piper_division **out, ty_error *error)
{
    ty_status status = TY_OK;
    piper_costs costs = {0};
    ty_ideals *ideals = NULL;
    search s = {.costs = &costs, .devices = input->devices};
    uint32_t best;

    TY_CHECK(piper_costs_make(input, &costs, error), status, cleanup);
    TY_CHECK(find_ideals(&costs, &ideals, error), status, cleanup);
    s.ideals = ideals;
    s.most_replicas = input->micro_batches < input->devices ? input->micro_batches : input->devices;
    TY_CHECK(allocate(&s, error), status, cleanup);
    TY_CHECK(piper_costs_sum(&costs, ideals, error), status, cleanup);
    TY_CHECK(solve_rounds(&s, &best, error), status, cleanup);
    if (best == NO_SUFFIX) {
        status = fail_infeasible(input, error);
        goto cleanup;
    }
    count_pairs(&s);
    status = describe(&s, best, out, error);

cleanup:
    clear(&s);
    ty_ideals_free(ideals);
    piper_costs_clear(&costs);
    return status;
}
