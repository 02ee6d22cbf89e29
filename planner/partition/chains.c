/* The least time of chains: a dynamic program over states and positions. A part is looked for
 * around the place where time would be even, and no further than where its own time or the least
 * possible time of what is before it reaches the best found. */
#include "chains.h"

#include <string.h>

/* ---- Problems -------------------------------------------------------------------------------- */

ty_status ty_chain_make(chain_problem *problem, ty_error *error)
{
    problem->starts = ty_alloc((size_t)problem->positions + 2, sizeof *problem->starts);
    return problem->starts != NULL ? TY_OK : ty_fail(error, TY_ENOMEM, "division: out of memory");
}

void ty_chain_begin(chain_problem *problem, uint32_t position)
{
    problem->starts[position] = problem->choice_count;
}

ty_status ty_chain_add(chain_problem *problem, const chain_choice *choice, ty_error *error)
{
    if (problem->choice_count == problem->choice_capacity) {
        uint32_t capacity = problem->choice_capacity == 0 ? 64 : problem->choice_capacity * 2;
        chain_choice *more = ty_resize(problem->choices, capacity, sizeof *more);
        if (more == NULL)
            return ty_fail(error, TY_ENOMEM, "division: out of memory");
        problem->choices = more;
        problem->choice_capacity = capacity;
    }
    problem->choices[problem->choice_count++] = *choice;
    return TY_OK;
}

void ty_chain_clear(chain_problem *problem)
{
    ty_free(problem->starts);
    ty_free(problem->choices);
    *problem = (chain_problem){0};
}

/* ---- Rows ------------------------------------------------------------------------------------ */

ty_status ty_chain_row_make(const chain_problem *problem, uint32_t most_states, chain_row *row,
                            ty_error *error)
{
    *row = (chain_row){.problem = problem};
    row->states = ty_alloc(most_states, sizeof *row->states);
    row->compute_s = ty_alloc(most_states, sizeof(double));
    row->parameter_bytes = ty_alloc(most_states, sizeof(double));
    row->activation_bytes = ty_alloc(most_states, sizeof(double));
    row->output_bytes = ty_alloc(most_states, sizeof(double));
    row->time_s = ty_alloc((size_t)problem->positions + 1, most_states * sizeof(double));
    row->hints = ty_alloc((size_t)problem->choice_count + 1, sizeof *row->hints);
    if (row->states == NULL || row->compute_s == NULL || row->parameter_bytes == NULL ||
        row->activation_bytes == NULL || row->output_bytes == NULL || row->time_s == NULL ||
        row->hints == NULL) {
        ty_chain_row_clear(row);
        return ty_fail(error, TY_ENOMEM, "division: out of memory");
    }
    return TY_OK;
}

void ty_chain_row_clear(chain_row *row)
{
    ty_free(row->states);
    ty_free(row->compute_s);
    ty_free(row->parameter_bytes);
    ty_free(row->activation_bytes);
    ty_free(row->output_bytes);
    ty_free(row->time_s);
    ty_free(row->hints);
    *row = (chain_row){0};
}

void ty_chain_row_set(chain_row *row, uint32_t from, uint32_t to)
{
    const ty_states *s = row->problem->states;

    row->from = from;
    row->to = to;
    row->count = 0;
    for (uint32_t i = from; i <= to; i++) {
        const uint64_t *inside = &s->inside[(size_t)i * s->row_words];
        const uint64_t *in_whole = &s->inside[(size_t)to * s->row_words];
        if ((inside[from / 64] >> (from % 64) & 1) == 0 || (in_whole[i / 64] >> (i % 64) & 1) == 0)
            continue;
        row->states[row->count] = i;
        row->compute_s[row->count] = s->compute_s[i];
        row->parameter_bytes[row->count] = s->parameter_bytes[i];
        row->activation_bytes[row->count] = s->activation_bytes[i];
        row->output_bytes[row->count] = s->output_bytes[i];
        row->count++;
    }
    memset(row->hints, 0, row->problem->choice_count * sizeof *row->hints);
}

/* ---- Solving --------------------------------------------------------------------------------- */

static double larger(double a, double b)
{
    return a > b ? a : b;
}

/* The chain to `from` and then one part to `to`. */
static double joined(const chain_row *row, const chain_choice *c, const double *before,
                     uint32_t from, uint32_t to)
{
    double time = larger(before[from], chain_part_s(row, c, from, to));
    return larger(time, row->output_bytes[from] * c->in_s);
}

/* The last place, from the hint on, with at most that much compute before it. Searches for later
 * places begin where this one ended. */
static uint32_t place_of(const chain_row *row, uint32_t *hint, uint32_t end, double compute_s)
{
    uint32_t place = *hint;
    while (place + 1 < end && row->compute_s[place + 1] <= compute_s)
        place++;
    *hint = place;
    return place;
}

/* Lets all ways to end with one choice compete with `best`. */
static double try_choice(chain_row *row, uint32_t position, uint32_t index, uint32_t to,
                         double best)
{
    const chain_choice *c = &row->problem->choices[index];
    const uint32_t rest = position - c->positions;
    const double *before = chain_time(row, rest, 0);
    const double rest_devices = rest * row->problem->position_devices;
    const double begin_s = row->compute_s[0], end_s = row->compute_s[to];
    const double even_s =
        begin_s + (end_s - begin_s) * (rest_devices / (rest_devices + c->devices));
    const double out_s = chain_out_s(row, c, to);
    uint32_t middle;

    middle = place_of(row, &row->hints[index], to, even_s);
    for (uint32_t k = middle + 1;
         k < to && row->compute_s[k] - begin_s < best * rest_devices * CHAIN_SLACK; k++)
        if (chain_has(row, k, to) && chain_fits(row, c, k, to)) {
            double time = larger(out_s, joined(row, c, before, k, to));
            best = time < best ? time : best;
        }
    for (uint32_t k = middle; k > 0 && end_s - row->compute_s[k] < best * c->devices * CHAIN_SLACK;
         k--)
        if (chain_has(row, k, to) && chain_fits(row, c, k, to)) {
            double time = larger(out_s, joined(row, c, before, k, to));
            best = time < best ? time : best;
        }
    return best;
}

static double solve_cell(chain_row *row, uint32_t position, uint32_t to)
{
    const chain_problem *p = row->problem;
    double best = HUGE_VAL;

    if (p->options->may_use_fewer && position > 1)
        best = *chain_time(row, position - 1, to);
    for (uint32_t i = p->starts[position]; i < p->starts[position + 1]; i++)
        if (p->choices[i].is_first && chain_fits(row, &p->choices[i], 0, to)) {
            double time = chain_part_s(row, &p->choices[i], 0, to);
            best = time < best ? time : best;
        }
    for (uint32_t i = p->starts[position]; i < p->starts[position + 1]; i++)
        if (!p->choices[i].is_first && chain_out_s(row, &p->choices[i], to) < best)
            best = try_choice(row, position, i, to, best);
    return best;
}

void ty_chain_row_solve(chain_row *row)
{
    const uint32_t positions = row->problem->positions;

    for (uint32_t m = 0; m <= positions; m++)
        *chain_time(row, m, 0) = m == 0 ? 0 : HUGE_VAL;
    for (uint32_t place = 1; place < row->count; place++)
        *chain_time(row, 0, place) = HUGE_VAL;
    for (uint32_t m = 1; m <= positions; m++)
        for (uint32_t place = 1; place < row->count; place++)
            *chain_time(row, m, place) = solve_cell(row, m, place);
}
