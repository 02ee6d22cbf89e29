/* PipeDream's partition of a graph's states: a dynamic program over states and units, level by
 * level. The search for a part starts where time would be even, and stops where its own time, or
 * the least possible time of the layers before it, reaches the best found. */
#include "ty_partition.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define SLACK (1 + 1e-9) /* for rounding: sums of a few thousand terms err less */

/* A way to run a part that ends at some position. */
typedef struct way {
    uint32_t level, units, positions; /* number of positions that it uses, before its end */
    bool is_first;
    double share;         /* of a unit's time: 1 / units */
    double exchange_s;    /* per byte of parameters */
    double in_s, out_s;   /* per byte of the cut before and after; 0: free */
    double in_flight;     /* the factor of PipeDream's memory check */
    double devices;       /* all positions that it uses */
    const double *unit_s; /* [state `to`][state `from`] seconds in a unit; NULL: compute time */
} way;

/* The last part of the best chain that ends at a place and a position. */
typedef struct cell {
    double time_s; /* HUGE_VAL: none */
    uint32_t from, end, level, units;
} cell;

typedef struct division_search {
    const ty_states *states;
    const ty_divide_options *options;
    uint32_t devices[TY_MOST_LEVELS + 1]; /* of a unit of each level */
    double *unit_s[TY_MOST_LEVELS];       /* [level][to][from] full units; [0] is NULL */
    uint32_t place_count, *places;        /* states from one to another, in order */
    cell *cells;                          /* [position][place] */
    ty_division_part *parts;
    uint32_t part_count;
} division_search;

/* The problem of one level assigns its units. That of replicas on devices, numbered after the last
 * level, assigns devices, by units of any level. */
static bool is_flat(const division_search *s, uint32_t problem)
{
    return problem == s->options->level_count;
}

static uint32_t positions_of(const division_search *s, uint32_t problem)
{
    return is_flat(s, problem) ? s->devices[problem] : s->options->levels[problem].units;
}

static uint32_t position_devices(const division_search *s, uint32_t problem)
{
    return is_flat(s, problem) ? 1 : s->devices[problem];
}

/* Bandwidth between two positions: of the lowest level at which they
 * are in one unit of the next. */
static double bandwidth(const division_search *s, uint32_t problem, uint32_t a, uint32_t b)
{
    uint32_t level = is_flat(s, problem) ? 0 : problem;

    while (is_flat(s, problem) && a / s->devices[level + 1] != b / s->devices[level + 1])
        level++;
    return s->options->levels[level].bandwidth_bytes_per_s;
}

static way way_of(const division_search *s, uint32_t problem, uint32_t end, uint32_t level,
                  uint32_t units)
{
    const uint32_t all = positions_of(s, problem);
    const uint32_t positions = is_flat(s, problem) ? units * s->devices[level] : units;
    const uint32_t first = end - positions;
    const double r = units, ratio = s->options->activation_ratio;
    way w = {.level = level,
             .units = units,
             .positions = positions,
             .is_first = first == 0,
             .share = 1 / r,
             .exchange_s = 4 * (r - 1) / (bandwidth(s, problem, first, end - 1) * r) / r,
             .in_flight = ceil((double)(all - end) / positions),
             .devices = r * s->devices[level],
             .unit_s = s->unit_s[level]};

    if (w.is_first && !is_flat(s, problem) && level > 0)
        w.exchange_s /= s->options->levels[level - 1].units;
    if (w.is_first || ratio == 0)
        return w;
    w.in_s = 2 / (bandwidth(s, problem, first - 1, end - 1) * r) / ratio;
    if (!is_flat(s, problem))
        w.out_s = w.in_s;
    else if (end < all)
        w.out_s = 2 / (bandwidth(s, problem, first, end) * r) / ratio;
    return w;
}

/* ---- One problem ----------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* A part between two states, without its cuts. */
static double own_s(const division_search *s, const way *w, uint32_t from, uint32_t to)
{
    const ty_states *t = s->states;
    const double unit = w->unit_s == NULL ? t->compute_s[to] - t->compute_s[from]
                                          : w->unit_s[(size_t)to * t->count + from];

    return unit * w->share + (t->parameter_bytes[to] - t->parameter_bytes[from]) * w->exchange_s;
}

/* Compares the chain to a place, plus one part from there, with the best. */
static void offer(const division_search *s, const way *w, const cell *before, uint32_t end,
                  uint32_t from, uint32_t to, cell *best)
{
    const ty_states *t = s->states;
    const uint32_t a = s->places[from], b = s->places[to];
    const double limit = s->options->memory_bytes;
    double time = before[from].time_s;

    if (time >= best->time_s || !ty_state_is_inside(t, a, b))
        return;
    if (limit > 0 && w->in_flight * (t->activation_bytes[b] - t->activation_bytes[a] +
                                     t->parameter_bytes[b] - t->parameter_bytes[a]) >
                         limit)
        return;
    time = larger(time, larger(own_s(s, w, a, b), t->output_bytes[a] * w->in_s));
    if (b + 1 != t->count)
        time = larger(time, t->output_bytes[b] * w->out_s);
    if (time < best->time_s)
        *best = (cell){time, from, end, w->level, w->units};
}

/* All parts of one way that end at one position. */
static void offer_way(division_search *s, uint32_t problem, uint32_t end, const way *w)
{
    const uint32_t count = s->place_count, rest = end - w->positions;
    const double *compute_s = s->states->compute_s, begin_s = compute_s[s->places[0]];
    const double rest_devices = (double)rest * position_devices(s, problem);
    const cell *before = &s->cells[(size_t)rest * count];
    uint32_t even = 0;

    for (uint32_t to = 1; to < count; to++) {
        cell *best = &s->cells[(size_t)end * count + to];
        const double end_s = compute_s[s->places[to]];
        const double even_s =
            begin_s + (end_s - begin_s) * (rest_devices / (rest_devices + w->devices));
        if (w->is_first) {
            offer(s, w, before, end, 0, to, best);
            continue;
        }
        while (even + 1 < to && compute_s[s->places[even + 1]] <= even_s)
            even++;
        for (uint32_t k = even + 1;
             k < to && compute_s[s->places[k]] - begin_s < best->time_s * rest_devices * SLACK; k++)
            offer(s, w, before, end, k, to, best);
        for (uint32_t k = even;
             k > 0 && end_s - compute_s[s->places[k]] < best->time_s * w->devices * SLACK; k--)
            offer(s, w, before, end, k, to, best);
    }
}

/* Fills the cells of a problem for the states between two. */
static void solve(division_search *s, uint32_t problem, uint32_t from, uint32_t to)
{
    const uint32_t positions = positions_of(s, problem);
    const uint32_t lowest = is_flat(s, problem) ? 0 : problem;
    const uint32_t highest = is_flat(s, problem) ? problem - 1 : problem;
    uint32_t count = 0;

    for (uint32_t i = from; i <= to; i++)
        if (ty_state_is_inside(s->states, from, i) && ty_state_is_inside(s->states, i, to))
            s->places[count++] = i;
    s->place_count = count;
    for (size_t i = 0; i < ((size_t)positions + 1) * count; i++)
        s->cells[i] = (cell){.time_s = i == 0 ? 0 : HUGE_VAL};
    for (uint32_t end = 1; end <= positions; end++) {
        if (s->options->may_use_fewer && end > 1)
            memcpy(&s->cells[(size_t)end * count], &s->cells[(size_t)(end - 1) * count],
                   count * sizeof *s->cells);
        for (uint32_t level = lowest; level <= highest; level++) {
            const uint32_t size = is_flat(s, problem) ? s->devices[level] : 1;
            const uint32_t most = s->options->is_straight ? 1 : end / size;
            for (uint32_t units = end % size == 0 && size <= end ? most : 0; units > 0; units--) {
                const way w = way_of(s, problem, end, level, units);
                offer_way(s, problem, end, &w);
            }
        }
    }
}

static const cell *last_cell(const division_search *s, uint32_t problem)
{
    return &s->cells[((size_t)positions_of(s, problem) + 1) * s->place_count - 1];
}

/* ---- Levels ---------------------------------------------------------------------------------- */

/* Times of full units of the next level, for every interval of states. */
static ty_status fill_units(division_search *s, uint32_t level, ty_error *error)
{
    const uint32_t count = s->states->count;
    double *unit_s = ty_alloc((size_t)count * count, sizeof *unit_s);

    if (unit_s == NULL)
        return ty_fail(error, TY_ENOMEM, "division of %u states: out of memory", count);
    s->unit_s[level + 1] = unit_s;
    for (uint32_t from = 0; from + 1 < count; from++) {
        const cell *row;
        solve(s, level, from, count - 1);
        row = &s->cells[(size_t)positions_of(s, level) * s->place_count];
        for (uint32_t i = 1; i < s->place_count; i++)
            unit_s[(size_t)s->places[i] * count + from] = row[i].time_s;
    }
    return TY_OK;
}

/* Appends the parts of the best chain of a problem, each followed by its inner parts; recursion
 * depth at most the number of levels. */
static ty_status add_parts(division_search *s, uint32_t problem, uint32_t from, uint32_t to,
                           uint32_t parent, uint32_t first_device, ty_error *error)
{
    uint32_t position = positions_of(s, problem), count = 0;
    ty_division_part *chain = ty_alloc(position, sizeof *chain); /* last part first */
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(chain != NULL, error));
    solve(s, problem, from, to);
    for (uint32_t place = s->place_count - 1; place > 0;) {
        const cell *c = &s->cells[(size_t)position * s->place_count + place];
        const way w = way_of(s, problem, c->end, c->level, c->units);
        position = c->end - w.positions;
        chain[count++] = (ty_division_part){parent,
                                            c->level,
                                            s->places[c->from],
                                            s->places[place],
                                            c->units,
                                            first_device + position * position_devices(s, problem),
                                            own_s(s, &w, s->places[c->from], s->places[place])};
        place = c->from;
    }
    while (count > 0 && status == TY_OK) {
        const ty_division_part part = chain[--count];
        s->parts[s->part_count++] = part;
        if (part.level > 0)
            status = add_parts(s, part.level - 1, part.from, part.to, s->part_count - 1,
                               part.first_device, error);
    }
    ty_free(chain);
    return status;
}

/* ---- All levels -------------------------------------------------------------------------- */

static ty_status check_options(const ty_divide_options *o, ty_error *error)
{
    uint64_t devices = 1;

    if (o->level_count == 0 || o->level_count > TY_MOST_LEVELS)
        return ty_fail(error, TY_EINVAL, "found %u levels, expected 1 to %d", o->level_count,
                       TY_MOST_LEVELS);
    for (uint32_t l = 0; l < o->level_count; l++) {
        const double rate = o->levels[l].bandwidth_bytes_per_s;
        devices *= o->levels[l].units;
        if (devices == 0 || devices > TY_MOST_DEVICES)
            return ty_fail(error, TY_EINVAL, "level %u: found %u units, expected 1 to %d devices",
                           l, o->levels[l].units, TY_MOST_DEVICES);
        if (!(rate > 0 && rate < HUGE_VAL))
            return ty_fail(error, TY_EINVAL,
                           "level %u: found %g bytes/s, expected a finite number > 0", l, rate);
    }
    if (!(o->activation_ratio >= 0 && o->activation_ratio < HUGE_VAL))
        return ty_fail(error, TY_EINVAL, "activation ratio: found %g, expected a number >= 0",
                       o->activation_ratio);
    if (!(o->memory_bytes >= 0 && o->memory_bytes < HUGE_VAL))
        return ty_fail(error, TY_EINVAL, "memory: found %g bytes, expected a number >= 0",
                       o->memory_bytes);
    return TY_OK;
}

static ty_status fail(const division_search *s, ty_error *error)
{
    const uint32_t last = s->states->count - 1, devices = s->devices[s->options->level_count];
    char limit[32], held[32];

    if (s->options->memory_bytes == 0)
        return ty_fail(error, TY_EINFEASIBLE,
                       "no division of %u states uses all of %u devices without replicas; let some "
                       "stay idle",
                       last, devices);
    ty_format_memory(s->options->memory_bytes, limit);
    ty_format_memory(s->states->activation_bytes[last] + s->states->parameter_bytes[last], held);
    return ty_fail(error, TY_EINFEASIBLE,
                   "no division of %u states on %u devices holds the mini-batches in flight within "
                   "%s per device; activations and parameters of one are %s in all",
                   last, devices, limit, held);
}

/* Allocates for the largest problem of the options; every part has at least one device, and parts
 * of one level share none. */
static ty_status prepare(division_search *s, ty_error *error)
{
    const ty_divide_options *o = s->options;
    uint32_t positions = 1;

    s->devices[0] = 1;
    for (uint32_t l = 0; l < o->level_count; l++) {
        s->devices[l + 1] = s->devices[l] * o->levels[l].units;
        positions = o->levels[l].units > positions ? o->levels[l].units : positions;
    }
    if (o->is_flat)
        positions = s->devices[o->level_count];
    s->places = ty_alloc(s->states->count, sizeof *s->places);
    s->cells = ty_alloc((size_t)positions + 1, s->states->count * sizeof *s->cells);
    s->parts = ty_alloc((size_t)o->level_count * s->devices[o->level_count], sizeof *s->parts);
    return s->places != NULL && s->cells != NULL && s->parts != NULL
               ? TY_OK
               : ty_fail(error, TY_ENOMEM, "division: out of memory");
}

ty_status ty_divide(const ty_states *states, const ty_divide_options *options, ty_division **out,
                    ty_error *error)
{
    const uint32_t last = states->count - 1;
    division_search s = {.states = states, .options = options};
    ty_division *division = NULL;
    uint32_t problem = options->level_count - 1;
    double time_s;
    ty_status status = check_options(options, error);

    if (status != TY_OK)
        return status;
    TY_CHECK(prepare(&s, error), status, cleanup);
    for (uint32_t l = 0; l < problem; l++)
        TY_CHECK(fill_units(&s, l, error), status, cleanup);
    solve(&s, problem, 0, last);
    time_s = last_cell(&s, problem)->time_s;
    if (options->is_flat) {
        solve(&s, options->level_count, 0, last);
        if (last_cell(&s, options->level_count)->time_s < time_s) {
            problem = options->level_count;
            time_s = last_cell(&s, problem)->time_s;
        }
    }
    if (!(time_s < HUGE_VAL)) {
        status = fail(&s, error);
        goto cleanup;
    }
    TY_CHECK(add_parts(&s, problem, 0, last, TY_NO_PART, 0, error), status, cleanup);
    TY_CHECK(ty_check_memory((division = ty_alloc(1, sizeof *division)) != NULL, error), status,
             cleanup);
    /* Data parallelism on all devices, level by level, as PipeDream reports with its answer. */
    double data_parallel_s = states->compute_s[last], inner_units = 1;
    for (uint32_t l = 0; l < options->level_count; l++) {
        const ty_level *level = &options->levels[l];
        const double exchange = 4 * (level->units - 1.0) * states->parameter_bytes[last] /
                                (level->bandwidth_bytes_per_s * level->units) / inner_units;
        data_parallel_s = (data_parallel_s + exchange) / level->units;
        inner_units = level->units;
    }
    *division =
        (ty_division){time_s, states->compute_s[last], data_parallel_s, s.part_count, s.parts};
    s.parts = NULL;
    *out = division;

cleanup:
    ty_free(s.parts);
    ty_free(s.cells);
    ty_free(s.places);
    for (uint32_t l = 0; l < options->level_count; l++)
        ty_free(s.unit_s[l]);
    return status;
}

void ty_division_free(ty_division *division)
{
    if (division == NULL)
        return;
    ty_free(division->parts);
    ty_free(division);
}
