/* Replicas on devices instead of servers, with PipeDream's hierarchy among the choices. */
#include "chains.h"

/* The lowest level at which two devices are in one unit of the level above. */
static uint32_t level_between(const hierarchy *h, uint32_t a, uint32_t b)
{
    uint32_t level = 0;
    while (a / h->unit_devices[level + 1] != b / h->unit_devices[level + 1])
        level++;
    return level;
}

static double bandwidth_between(const hierarchy *h, uint32_t a, uint32_t b)
{
    return h->options->levels[level_between(h, a, b)].bandwidth_bytes_per_s;
}

/* The part on the last `units` units of a level before device `end`; of level 0, devices. */
static chain_choice choice_of(const hierarchy *h, uint32_t level, uint32_t end, uint32_t units)
{
    const uint32_t size = h->unit_devices[level], first = end - units * size;
    const uint32_t devices = h->unit_devices[h->options->level_count];
    const double r = units, ratio = h->options->activation_ratio;
    chain_choice c = {.positions = units * size,
                      .level = level,
                      .units = units,
                      .is_first = first == 0,
                      .share = 1 / r,
                      .in_flight = ceil((devices - end) / (r * size)),
                      .devices = r * size,
                      .unit_s = h->unit_s[level]};

    if (units > 1)
        c.exchange_s = 4 * (r - 1) / (bandwidth_between(h, first, end - 1) * r) / r;
    if (!c.is_first && ratio > 0) {
        c.in_s = 2 / (bandwidth_between(h, first - 1, end - 1) * r) / ratio;
        if (end < devices)
            c.out_s = 2 / (bandwidth_between(h, first, end) * r) / ratio;
    }
    return c;
}

static ty_status add_choices(const hierarchy *h, uint32_t end, chain_problem *p, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t level = 0; level < h->options->level_count; level++) {
        const uint32_t size = h->unit_devices[level];
        for (uint32_t units = 1; units <= end / size && end % size == 0; units++) {
            chain_choice c = choice_of(h, level, end, units);
            if (units > 1 && h->options->is_straight)
                break;
            TY_CHECK(ty_chain_add(p, &c, error), status, done);
        }
    }
done:
    return status;
}

static ty_status make_problem(const hierarchy *h, chain_problem *p, ty_error *error)
{
    ty_status status = TY_OK;

    *p = (chain_problem){.states = h->states,
                         .options = h->options,
                         .positions = h->unit_devices[h->options->level_count],
                         .position_devices = 1};
    TY_CHECK(ty_chain_make(p, error), status, done);
    for (uint32_t end = 1; end <= p->positions; end++) {
        ty_chain_begin(p, end);
        TY_CHECK(add_choices(h, end, p, error), status, done);
    }
    ty_chain_begin(p, p->positions + 1);
done:
    return status;
}

static ty_status solve(const chain_problem *p, double *time_s, ty_error *error)
{
    const uint32_t count = p->states->ideals->count;
    ty_status status = TY_OK;
    chain_row row = {0};

    TY_CHECK(ty_chain_row_make(p, count, &row, error), status, cleanup);
    ty_chain_row_set(&row, 0, count - 1);
    ty_chain_row_solve(&row);
    *time_s = *chain_time(&row, p->positions, row.count - 1);

cleanup:
    ty_chain_row_clear(&row);
    return status;
}

ty_status ty_divide_flat(const ty_states *states, const ty_divide_options *options,
                         ty_division **out, ty_error *error)
{
    ty_status status = TY_OK;
    hierarchy h = {0};
    chain_problem flat = {0};
    division_parts parts = {0};
    ty_division_part whole = {0};
    double flat_s = HUGE_VAL;

    TY_CHECK(ty_hierarchy_solve(states, options, &h, error), status, cleanup);
    TY_CHECK(make_problem(&h, &flat, error), status, cleanup);
    TY_CHECK(solve(&flat, &flat_s, error), status, cleanup);
    if (flat_s == HUGE_VAL && h.time_s == HUGE_VAL) {
        status = ty_hierarchy_fail(&h, error);
        goto cleanup;
    }
    whole.to = states->ideals->count - 1;
    if (h.time_s <= flat_s)
        TY_CHECK(ty_hierarchy_trace(&h, &h.problems[options->level_count - 1], h.time_s, &whole,
                                    TY_NO_PART, &parts, error),
                 status, cleanup);
    else
        TY_CHECK(ty_hierarchy_trace(&h, &flat, flat_s, &whole, TY_NO_PART, &parts, error), status,
                 cleanup);
    status = ty_hierarchy_answer(&h, h.time_s <= flat_s ? h.time_s : flat_s, &parts, out, error);

cleanup:
    ty_free(parts.parts);
    ty_chain_clear(&flat);
    ty_hierarchy_clear(&h);
    return status;
}
