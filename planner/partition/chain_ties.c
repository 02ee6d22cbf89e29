/* Which of the chains that are quick enough is taken: three more passes over one interval. The
 * first finds how little the largest stage can hold, the second how few bytes then go over cuts
 * with how few parts, and the last walks back along them. They are passes of their own because the
 * beginning of the best whole need not be the best beginning. */
#include "chains.h"

#include <assert.h>

typedef struct tables {
    const chain_row *row;
    double limit_s, limit_bytes;
    double *stash;   /* [positions + 1][count] bytes of the largest part; HUGE_VAL: none */
    double *cut;     /* [positions + 1][count] bytes over cuts; HUGE_VAL: none */
    uint32_t *parts; /* [positions + 1][count] of those */
} tables;

static size_t cell(const tables *t, uint32_t position, uint32_t place)
{
    return (size_t)position * t->row->count + place;
}

/* What a device of a part holds: PipeDream's check is one version short of what its runtime does.
 */
static double own_stash(const tables *t, const chain_choice *c, uint32_t from, uint32_t to)
{
    return chain_stash(t->row, from, to, c->in_flight + 1);
}

static bool is_allowed(const tables *t, const chain_choice *c, uint32_t from, uint32_t to)
{
    const chain_row *row = t->row;
    return chain_has(row, from, to) && chain_fits(row, c, from, to) &&
           chain_part_s(row, c, from, to) <= t->limit_s &&
           row->output_bytes[from] * c->in_s <= t->limit_s &&
           own_stash(t, c, from, to) <= t->limit_bytes;
}

/* First and last place where the part before may end: by the compute there is. */
static void range_of(const tables *t, const chain_choice *c, uint32_t position, uint32_t to,
                     uint32_t *lowest, uint32_t *end)
{
    const chain_row *row = t->row;
    const double rest = (position - c->positions) * row->problem->position_devices;
    const double least = row->compute_s[to] - t->limit_s * c->devices * CHAIN_SLACK;
    const double most = row->compute_s[0] + t->limit_s * rest * CHAIN_SLACK;
    uint32_t low = 1, high = to;

    while (low < high) { /* first place with at least `least` */
        uint32_t middle = low + (high - low) / 2;
        if (row->compute_s[middle] < least)
            low = middle + 1;
        else
            high = middle;
    }
    *lowest = low;
    for (high = low; high < to && row->compute_s[high] <= most; high++)
        continue;
    *end = high;
}

/* ---- Passes ---------------------------------------------------------------------------------- */

typedef void (*offer)(const tables *t, const chain_choice *c, uint32_t position, uint32_t from,
                      uint32_t to);

static void offer_stash(const tables *t, const chain_choice *c, uint32_t position, uint32_t from,
                        uint32_t to)
{
    double own = own_stash(t, c, from, to);
    double before = t->stash[cell(t, position - c->positions, from)];
    double *best = &t->stash[cell(t, position, to)];
    double value = own > before ? own : before;
    *best = value < *best ? value : *best;
}

static void offer_cut(const tables *t, const chain_choice *c, uint32_t position, uint32_t from,
                      uint32_t to)
{
    const size_t before = cell(t, position - c->positions, from), here = cell(t, position, to);
    double cut = t->cut[before] + (from > 0 ? t->row->output_bytes[from] : 0);

    if (cut < t->cut[here] || (cut == t->cut[here] && t->parts[before] + 1 < t->parts[here])) {
        t->cut[here] = cut;
        t->parts[here] = t->parts[before] + 1;
    }
}

/* Offers all allowed ways to end with one choice. */
static void offer_choice(const tables *t, const chain_choice *c, const double *reached,
                         uint32_t position, uint32_t to, offer offer_one)
{
    uint32_t lowest, end;

    if (c->is_first) {
        if (is_allowed(t, c, 0, to))
            offer_one(t, c, position, 0, to);
        return;
    }
    if (chain_out_s(t->row, c, to) > t->limit_s)
        return;
    range_of(t, c, position, to, &lowest, &end);
    for (uint32_t from = lowest; from < end; from++)
        if (reached[cell(t, position - c->positions, from)] < HUGE_VAL &&
            is_allowed(t, c, from, to))
            offer_one(t, c, position, from, to);
}

static void copy_fewer(const tables *t, uint32_t position, uint32_t place)
{
    const size_t here = cell(t, position, place), before = cell(t, position - 1, place);
    t->stash[here] = t->stash[before];
    t->cut[here] = t->cut[before];
    t->parts[here] = t->parts[before];
}

/* Whether what is left after a place can be done in time. */
static bool can_end(const tables *t, uint32_t position, uint32_t place)
{
    const chain_row *row = t->row;
    double left = row->compute_s[row->count - 1] - row->compute_s[place];
    return left <= t->limit_s * (row->problem->positions - position) *
                       row->problem->position_devices * CHAIN_SLACK;
}

static void run_pass(const tables *t, const double *reached, offer offer_one)
{
    const chain_problem *p = t->row->problem;

    for (uint32_t m = 1; m <= p->positions; m++)
        for (uint32_t place = 1; place < t->row->count; place++) {
            if (p->options->may_use_fewer && m > 1)
                copy_fewer(t, m, place);
            if (!can_end(t, m, place))
                continue;
            for (uint32_t i = p->starts[m]; i < p->starts[m + 1]; i++)
                offer_choice(t, &p->choices[i], reached, m, place, offer_one);
        }
}

/* ---- Tracing --------------------------------------------------------------------------------- */

static bool is_way(const tables *t, const chain_choice *c, uint32_t position, uint32_t from,
                   uint32_t to)
{
    const size_t before = cell(t, position - c->positions, from), here = cell(t, position, to);

    if (c->is_first != (from == 0) || t->cut[before] == HUGE_VAL || !is_allowed(t, c, from, to) ||
        (!c->is_first && chain_out_s(t->row, c, to) > t->limit_s))
        return false;
    return t->cut[before] + (from > 0 ? t->row->output_bytes[from] : 0) == t->cut[here] &&
           t->parts[before] + 1 == t->parts[here];
}

/* The choice of the last part: the earliest place, then the first choice. */
static void find_way(const tables *t, uint32_t position, uint32_t to, uint32_t *from,
                     uint32_t *choice)
{
    const chain_problem *p = t->row->problem;

    for (*from = 0; *from < to; (*from)++)
        for (*choice = p->starts[position]; *choice < p->starts[position + 1]; (*choice)++)
            if (is_way(t, &p->choices[*choice], position, *from, to))
                return;
    assert(false && "the tables hold a value that no choice has");
}

static bool is_same(const tables *t, uint32_t position, uint32_t place)
{
    const size_t here = cell(t, position, place), before = cell(t, position - 1, place);
    return t->cut[here] == t->cut[before] && t->parts[here] == t->parts[before];
}

static void walk_back(const tables *t, chain_link *links, uint32_t *count)
{
    const chain_row *row = t->row;
    const chain_problem *p = row->problem;
    uint32_t position = p->positions, to = row->count - 1;
    uint32_t total = t->parts[cell(t, position, to)];

    *count = total;
    while (to > 0) {
        uint32_t from, choice;
        while (p->options->may_use_fewer && position > 1 && is_same(t, position, to))
            position--;
        find_way(t, position, to, &from, &choice);
        position -= p->choices[choice].positions;
        links[--total] = (chain_link){choice, row->states[from], row->states[to], position,
                                      chain_part_s(row, &p->choices[choice], from, to)};
        to = from;
    }
}

ty_status ty_chain_row_trace(const chain_row *row, double limit_s, chain_link *links,
                             uint32_t *count, ty_error *error)
{
    ty_status status = TY_OK;
    const size_t cells = ((size_t)row->problem->positions + 1) * row->count;
    tables t = {.row = row, .limit_s = limit_s, .limit_bytes = HUGE_VAL};

    t.stash = ty_alloc(cells, sizeof *t.stash);
    t.cut = ty_alloc(cells, sizeof *t.cut);
    t.parts = ty_alloc(cells, sizeof *t.parts);
    if (t.stash == NULL || t.cut == NULL || t.parts == NULL) {
        status = ty_fail(error, TY_ENOMEM, "division: out of memory");
        goto cleanup;
    }
    for (size_t i = 0; i < cells; i++)
        t.stash[i] = t.cut[i] = i == 0 ? 0 : HUGE_VAL;
    run_pass(&t, t.stash, offer_stash);
    t.limit_bytes = t.stash[cells - 1];
    assert(t.limit_bytes < HUGE_VAL && "there is no chain in time");
    run_pass(&t, t.cut, offer_cut);
    walk_back(&t, links, count);

cleanup:
    ty_free(t.stash);
    ty_free(t.cut);
    ty_free(t.parts);
    return status;
}
