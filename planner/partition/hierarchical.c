/* PipeDream's hierarchy: the best time of every interval of states on a whole unit, level by level,
 * and the division traced from the top. */
#include "chains.h"

#include <string.h>

/* ---- Options --------------------------------------------------------------------------------- */

static ty_status check_level(const ty_level *level, uint32_t number, ty_error *error)
{
    if (level->units == 0)
        return ty_fail(error, TY_EINVAL, "level %u: found 0 units, expected at least 1", number);
    if (!(level->bandwidth_bytes_per_s > 0 && level->bandwidth_bytes_per_s < HUGE_VAL))
        return ty_fail(error, TY_EINVAL, "level %u: found %g bytes/s, expected a finite number > 0",
                       number, level->bandwidth_bytes_per_s);
    return TY_OK;
}

static ty_status check_options(const ty_divide_options *o, ty_error *error)
{
    ty_status status = TY_OK;
    uint64_t devices = 1;

    if (o->level_count == 0 || o->level_count > TY_MOST_LEVELS)
        return ty_fail(error, TY_EINVAL, "found %u levels, expected 1 to %d", o->level_count,
                       TY_MOST_LEVELS);
    for (uint32_t l = 0; l < o->level_count; l++) {
        TY_CHECK(check_level(&o->levels[l], l, error), status, done);
        devices *= o->levels[l].units;
        if (devices > TY_MOST_DEVICES)
            return ty_fail(error, TY_EINVAL, "found more than %d devices, expected at most that",
                           TY_MOST_DEVICES);
    }
    if (!(o->activation_ratio >= 0 && o->activation_ratio < HUGE_VAL))
        return ty_fail(error, TY_EINVAL, "activation ratio: found %g, expected a number >= 0",
                       o->activation_ratio);
    if (!(o->memory_bytes >= 0 && o->memory_bytes < HUGE_VAL))
        return ty_fail(error, TY_EINVAL, "memory: found %g bytes, expected a number >= 0",
                       o->memory_bytes);
done:
    return status;
}

/* ---- Levels ---------------------------------------------------------------------------------- */

/* The choices for a part that ends at position m and takes the last `units` of them. */
static chain_choice choice_of(const hierarchy *h, uint32_t level, uint32_t position, uint32_t units)
{
    const ty_level *l = &h->options->levels[level];
    const double bandwidth = l->bandwidth_bytes_per_s, r = units;
    const double ratio = h->options->activation_ratio;
    const double inner_units = level > 0 ? h->options->levels[level - 1].units : 1;
    chain_choice c = {.positions = units,
                      .level = level,
                      .units = units,
                      .is_first = units == position,
                      .share = 1 / r,
                      .in_flight = ceil((l->units - position) / r),
                      .devices = r * h->unit_devices[level],
                      .unit_s = h->unit_s[level]};

    c.exchange_s = 4 * (r - 1) / (bandwidth * r) / r;
    if (c.is_first)
        c.exchange_s /= inner_units;
    else if (ratio > 0)
        c.in_s = c.out_s = 2 / (bandwidth * r) / ratio;
    return c;
}

static ty_status make_problem(const hierarchy *h, uint32_t level, chain_problem *p, ty_error *error)
{
    ty_status status = TY_OK;

    *p = (chain_problem){.states = h->states,
                         .options = h->options,
                         .positions = h->options->levels[level].units,
                         .position_devices = h->unit_devices[level]};
    TY_CHECK(ty_chain_make(p, error), status, done);
    for (uint32_t m = 1; m <= p->positions; m++) {
        ty_chain_begin(p, m);
        for (uint32_t units = 1; units <= m; units++) {
            chain_choice c = choice_of(h, level, m, units);
            if (units > 1 && h->options->is_straight)
                continue;
            TY_CHECK(ty_chain_add(p, &c, error), status, done);
        }
    }
    ty_chain_begin(p, p->positions + 1);
done:
    return status;
}

/* Times of a whole unit of the level above, for every interval. */
static ty_status fill_units(hierarchy *h, uint32_t level, ty_error *error)
{
    const uint32_t count = h->states->ideals->count;
    const chain_problem *p = &h->problems[level];
    ty_status status = TY_OK;
    chain_row row = {0};
    double *out = ty_alloc((size_t)count * count, sizeof *out);

    if (out == NULL)
        return ty_fail(error, TY_ENOMEM, "division of %u states: out of memory", count);
    h->unit_s[level + 1] = out;
    TY_CHECK(ty_chain_row_make(p, count, &row, error), status, cleanup);
    for (uint32_t from = 0; from < count; from++) {
        ty_chain_row_set(&row, from, count - 1);
        ty_chain_row_solve(&row);
        for (uint32_t place = 1; place < row.count; place++)
            out[(size_t)row.states[place] * count + from] = *chain_time(&row, p->positions, place);
    }

cleanup:
    ty_chain_row_clear(&row);
    return status;
}

static ty_status solve_top(hierarchy *h, ty_error *error)
{
    const uint32_t top = h->options->level_count - 1, count = h->states->ideals->count;
    ty_status status = TY_OK;
    chain_row row = {0};

    TY_CHECK(ty_chain_row_make(&h->problems[top], count, &row, error), status, cleanup);
    ty_chain_row_set(&row, 0, count - 1);
    ty_chain_row_solve(&row);
    h->time_s = *chain_time(&row, h->problems[top].positions, row.count - 1);

cleanup:
    ty_chain_row_clear(&row);
    return status;
}

ty_status ty_hierarchy_solve(const ty_states *states, const ty_divide_options *options,
                             hierarchy *out, ty_error *error)
{
    ty_status status = TY_OK;
    hierarchy h = {.states = states, .options = options, .unit_devices = {1}};

    TY_CHECK(check_options(options, error), status, cleanup);
    if (states->ideals->count < 2)
        return ty_fail(error, TY_EINVAL, "found no state, expected one at least");
    for (uint32_t l = 0; l < options->level_count; l++) {
        h.unit_devices[l + 1] = h.unit_devices[l] * options->levels[l].units;
        TY_CHECK(make_problem(&h, l, &h.problems[l], error), status, cleanup);
        if (l + 1 < options->level_count)
            TY_CHECK(fill_units(&h, l, error), status, cleanup);
    }
    TY_CHECK(solve_top(&h, error), status, cleanup);
    *out = h;
    return TY_OK;

cleanup:
    ty_hierarchy_clear(&h);
    return status;
}

void ty_hierarchy_clear(hierarchy *h)
{
    for (uint32_t l = 0; l < TY_MOST_LEVELS; l++) {
        ty_chain_clear(&h->problems[l]);
        ty_free(h->unit_s[l]);
        h->unit_s[l] = NULL;
    }
}

/* ---- Answers --------------------------------------------------------------------------------- */

static ty_status add_part(division_parts *parts, const ty_division_part *part, ty_error *error)
{
    if (parts->count == parts->capacity) {
        uint32_t capacity = parts->capacity == 0 ? 16 : parts->capacity * 2;
        ty_division_part *more = ty_resize(parts->parts, capacity, sizeof *more);
        if (more == NULL)
            return ty_fail(error, TY_ENOMEM, "division: out of memory");
        parts->parts = more;
        parts->capacity = capacity;
    }
    parts->parts[parts->count++] = *part;
    return TY_OK;
}

/* Appends a part and, where it is a run of stages, what is inside; at most a call per level deep.
 */
static ty_status add_link(const hierarchy *h, const chain_problem *problem, const chain_link *link,
                          const ty_division_part *whole, uint32_t whole_index,
                          division_parts *parts, ty_error *error)
{
    const chain_choice *c = &problem->choices[link->choice];
    const size_t count = h->states->ideals->count;
    ty_status status = TY_OK;
    ty_division_part part = {.parent = whole_index,
                             .level = c->level,
                             .from = link->from,
                             .to = link->to,
                             .units = c->units,
                             .first_device = whole->first_device +
                                             link->position * (uint32_t)problem->position_devices,
                             .time_s = link->time_s};

    TY_CHECK(add_part(parts, &part, error), status, done);
    if (part.level > 0)
        status = ty_hierarchy_trace(h, &h->problems[part.level - 1],
                                    c->unit_s[part.to * count + part.from], &part, parts->count - 1,
                                    parts, error);
done:
    return status;
}

ty_status ty_hierarchy_trace(const hierarchy *h, const chain_problem *problem, double limit_s,
                             const ty_division_part *whole, uint32_t whole_index,
                             division_parts *parts, ty_error *error)
{
    const uint32_t count = h->states->ideals->count;
    ty_status status = TY_OK;
    chain_row row = {0};
    uint32_t link_count = 0;
    chain_link *links = ty_alloc(problem->positions, sizeof *links);

    if (links == NULL)
        return ty_fail(error, TY_ENOMEM, "division: out of memory");
    TY_CHECK(ty_chain_row_make(problem, count, &row, error), status, cleanup);
    ty_chain_row_set(&row, whole->from, whole->to);
    TY_CHECK(ty_chain_row_trace(&row, limit_s, links, &link_count, error), status, cleanup);
    for (uint32_t i = 0; i < link_count; i++)
        TY_CHECK(add_link(h, problem, &links[i], whole, whole_index, parts, error), status,
                 cleanup);

cleanup:
    ty_chain_row_clear(&row);
    ty_free(links);
    return status;
}

/* All layers on every device: each level in turn, as PipeDream sets beside its answer. */
static double data_parallel_s(const hierarchy *h)
{
    const uint32_t last = h->states->ideals->count - 1;
    double time = h->states->compute_s[last], inner_units = 1;

    for (uint32_t l = 0; l < h->options->level_count; l++) {
        const ty_level *level = &h->options->levels[l];
        double exchange = 4 * (level->units - 1.0) * h->states->parameter_bytes[last] /
                          (level->bandwidth_bytes_per_s * level->units) / inner_units;
        time = (time + exchange) / level->units;
        inner_units = level->units;
    }
    return time;
}

ty_status ty_hierarchy_answer(const hierarchy *h, double time_s, division_parts *parts,
                              ty_division **out, ty_error *error)
{
    ty_division *division = ty_alloc(1, sizeof *division);

    if (division == NULL)
        return ty_fail(error, TY_ENOMEM, "division: out of memory");
    *division = (ty_division){.time_s = time_s,
                              .single_device_s = h->states->compute_s[h->states->ideals->count - 1],
                              .data_parallel_s = data_parallel_s(h),
                              .part_count = parts->count,
                              .parts = parts->parts};
    *parts = (division_parts){0};
    *out = division;
    return TY_OK;
}

ty_status ty_hierarchy_fail(const hierarchy *h, ty_error *error)
{
    const ty_states *s = h->states;
    const uint32_t last = s->ideals->count - 1;
    const uint32_t devices = h->unit_devices[h->options->level_count];
    char limit[32], held[32];

    if (h->options->memory_bytes == 0)
        return ty_fail(error, TY_EINFEASIBLE,
                       "no division of %u states uses all of %u devices without replicas; let some "
                       "stay idle",
                       last, devices);
    ty_format_memory(h->options->memory_bytes, limit);
    ty_format_memory(s->activation_bytes[last] + s->parameter_bytes[last], held);
    return ty_fail(error, TY_EINFEASIBLE,
                   "no division of %u states on %u devices holds the mini-batches in flight within "
                   "%s per device; activations and parameters of one are %s in all",
                   last, devices, limit, held);
}

void ty_division_free(ty_division *division)
{
    if (division == NULL)
        return;
    ty_free(division->parts);
    ty_free(division);
}

ty_status ty_divide_hierarchical(const ty_states *states, const ty_divide_options *options,
                                 ty_division **out, ty_error *error)
{
    ty_status status = TY_OK;
    hierarchy h = {0};
    division_parts parts = {0};
    ty_division_part whole = {0};

    TY_CHECK(ty_hierarchy_solve(states, options, &h, error), status, cleanup);
    if (h.time_s == HUGE_VAL) {
        status = ty_hierarchy_fail(&h, error);
        goto cleanup;
    }
    whole.to = states->ideals->count - 1;
    TY_CHECK(ty_hierarchy_trace(&h, &h.problems[options->level_count - 1], h.time_s, &whole,
                                TY_NO_PART, &parts, error),
             status, cleanup);
    status = ty_hierarchy_answer(&h, h.time_s, &parts, out, error);

cleanup:
    ty_free(parts.parts);
    ty_hierarchy_clear(&h);
    return status;
}
