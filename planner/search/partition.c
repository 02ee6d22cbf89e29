/* Partitions a chain of layers into stages with replicas: exact dynamic programming over suffixes.
 *
 * There are two passes. The first finds the least bottleneck of all suffixes, for one stage, two,
 * and so on; its results serve every number of stages. The second finds, among all partitions with
 * the bottleneck of one number of stages, the one with the least time on its cuts. It is a separate
 * search, because a suffix that is not the fastest alone may cost less at its cuts and still not be
 * the bottleneck. Remaining ties go to the first partition in the order of cuts and replicas from
 * the front. */
#include "ty_planner.h"

#include <assert.h>
#include <math.h>

/* Values of the best partitions of all layers from a position on. */
typedef struct pass {
    bool is_sum;    /* of the cuts, instead of the bottleneck */
    double limit_s; /* of every stage and cut; HUGE_VAL: none */
    double **best;  /* [stages]: [position][units + 1], by units; NULL: not filled yet */
} pass;

/* Positions at which a stage may begin: 0, the cuts, and the end. */
struct ty_partitioner {
    ty_partition_input in;
    uint32_t position_count; /* cut_count + 2 */
    uint32_t *choices;       /* numbers of replicas that any stage can have, ascending */
    uint32_t choice_count, most_choices;
    uint32_t units;         /* assigned: granules, or one per stage if its replicas are fixed */
    double *prefix_s;       /* [layer_count + 1] seconds of the layers before */
    double *stage_s;        /* [position][position][most_choices]; HUGE_VAL: empty */
    uint32_t levels;        /* numbers of stages with known bottlenecks */
    pass bottlenecks, sums; /* the latter of the current partition */
    bool *may_end;          /* [position]: the current stage, before promising suffixes */
    bool *can_sum_up; /* [stages + 1][units + 1]: whether that many choices fill these units */
};

static uint32_t layer_at(const ty_partitioner *s, uint32_t position)
{
    if (position == 0)
        return 0;
    return position <= s->in.cut_count ? s->in.cuts[position - 1] : s->in.layer_count;
}

static double *stage_s(const ty_partitioner *s, uint32_t from, uint32_t to, uint32_t choice)
{
    return &s->stage_s[((size_t)from * s->position_count + to) * s->most_choices + choice];
}

static uint32_t granule_of(const ty_partition_input *in)
{
    return in->granule > 1 && in->fixed_replicas == NULL ? in->granule : 1;
}

static uint32_t units_of(const ty_partitioner *s, uint32_t choice)
{
    return s->in.fixed_replicas != NULL ? 1 : s->choices[choice] / granule_of(&s->in);
}

static double *best(const ty_partitioner *s, const pass *p, uint32_t stages, uint32_t position)
{
    return &p->best[stages][(size_t)position * (s->units + 1)];
}

/* ---- Input ----------------------------------------------------------------------------------- */

static ty_status check_seconds(const double *values, uint32_t count, const char *name,
                               ty_error *error)
{
    for (uint32_t i = 0; i < count; i++)
        if (!(values[i] >= 0 && values[i] < HUGE_VAL))
            return ty_fail(error, TY_EINVAL, "%s[%u]: found %g, expected a finite number >= 0",
                           name, i, values[i]);
    return TY_OK;
}

static ty_status check_fixed(const ty_partition_input *in, ty_error *error)
{
    uint64_t sum = 0;

    for (uint32_t stage = 0; in->fixed_replicas != NULL && stage < in->stages; stage++)
        sum += in->fixed_replicas[stage];
    if (in->fixed_replicas != NULL && sum != in->devices)
        return ty_fail(error, TY_EINVAL,
                       "fixed_replicas: found %llu in all, expected one for each of %u devices",
                       (unsigned long long)sum, in->devices);
    return TY_OK;
}

static ty_status check_input(const ty_partition_input *in, ty_error *error)
{
    if (in->layer_count == 0 || in->stages == 0)
        return ty_fail(error, TY_EINVAL, "found %u layers and %u stages, expected at least one",
                       in->layer_count, in->stages);
    if (in->devices / granule_of(in) < in->stages || in->devices % granule_of(in) != 0)
        return ty_fail(error, TY_EINVAL,
                       "found %u devices, expected a multiple of %u, one or more for each of %u "
                       "stages",
                       in->devices, granule_of(in), in->stages);
    for (uint32_t i = 0; i < in->cut_count; i++)
        if (in->cuts[i] == 0 || in->cuts[i] >= in->layer_count ||
            (i > 0 && in->cuts[i] <= in->cuts[i - 1]))
            return ty_fail(error, TY_EINVAL,
                           "cuts[%u]: found %u, expected positions inside %u layers, ascending", i,
                           in->cuts[i], in->layer_count);
    TY_TRY(check_fixed(in, error));
    TY_TRY(check_seconds(in->layer_s, in->layer_count, "layer_s", error));
    TY_TRY(check_seconds(in->transfer_s, in->layer_count + 1, "transfer_s", error));
    return TY_OK;
}

/* ---- Stage times ----------------------------------------------------------------------------- */

static bool is_fixed_otherwise(const ty_partitioner *s, uint32_t replicas)
{
    if (s->in.fixed_replicas == NULL)
        return false;
    for (uint32_t stage = 0; stage < s->in.stages; stage++)
        if (s->in.fixed_replicas[stage] == replicas)
            return false;
    return true;
}

/* The time of one stage; HUGE_VAL if it does not fit even as the last one. */
static ty_status find_stage(ty_partitioner *s, uint32_t first, uint32_t end, uint32_t replicas,
                            double *seconds, ty_error *error)
{
    const ty_partition_input *in = &s->in;
    double exchange = 0;

    *seconds = HUGE_VAL;
    if (in->fits != NULL && !in->fits(in->context, first, end - first, replicas, 0))
        return TY_OK;
    if (in->exchange_s != NULL && replicas > 1)
        exchange = in->exchange_s(in->context, first, end - first, replicas);
    if (!(exchange >= 0 && exchange < HUGE_VAL))
        return ty_fail(error, TY_EINVAL,
                       "exchange of layers %u to %u: found %g s, expected a finite number >= 0",
                       first, end - 1, exchange);
    *seconds = (s->prefix_s[end] - s->prefix_s[first] + exchange) / replicas;
    return TY_OK;
}

/* One column of the table; the number of replicas is a choice if any stage can have it. */
static ty_status fill_choice(ty_partitioner *s, uint32_t replicas, ty_error *error)
{
    bool is_possible = false;

    for (uint32_t from = 0; from + 1 < s->position_count; from++)
        for (uint32_t to = from + 1; to < s->position_count; to++) {
            double *seconds = stage_s(s, from, to, s->choice_count);
            TY_TRY(find_stage(s, layer_at(s, from), layer_at(s, to), replicas, seconds, error));
            is_possible = is_possible || *seconds < HUGE_VAL;
        }
    if (is_possible)
        s->choices[s->choice_count++] = replicas;
    return TY_OK;
}

static ty_status prepare(ty_partitioner *s, ty_error *error)
{
    const ty_partition_input *in = &s->in;
    const size_t square = (size_t)s->position_count * s->position_count;
    ty_status status = TY_OK;

    for (uint32_t r = granule_of(in); r <= in->devices; r += granule_of(in))
        s->most_choices += !is_fixed_otherwise(s, r);
    s->prefix_s = ty_alloc((size_t)in->layer_count + 1, sizeof(double));
    s->stage_s = ty_alloc(square, s->most_choices * sizeof(double));
    s->choices = ty_alloc(s->most_choices, sizeof *s->choices);
    s->bottlenecks =
        (pass){false, HUGE_VAL, ty_alloc((size_t)in->stages + 1, sizeof *s->bottlenecks.best)};
    s->may_end = ty_alloc(s->position_count, sizeof *s->may_end);
    s->sums = (pass){true, HUGE_VAL, ty_alloc((size_t)in->stages + 1, sizeof *s->sums.best)};
    s->can_sum_up = ty_alloc(((size_t)in->stages + 1) * (s->units + 1), sizeof *s->can_sum_up);
    TY_TRY(ty_check_memory(s->can_sum_up != NULL && s->prefix_s != NULL && s->stage_s != NULL &&
                               s->choices != NULL && s->may_end != NULL &&
                               s->bottlenecks.best != NULL && s->sums.best != NULL,
                           error));
    for (uint32_t i = 0; i < in->layer_count; i++)
        s->prefix_s[i + 1] = s->prefix_s[i] + in->layer_s[i];
    for (uint32_t r = granule_of(in); status == TY_OK && r <= in->devices; r += granule_of(in))
        if (!is_fixed_otherwise(s, r))
            status = fill_choice(s, r, error);
    /* The total numbers of units that each number of stages can have. */
    const size_t row = (size_t)s->units + 1;
    s->can_sum_up[0] = true;
    for (uint32_t stages = 1; stages <= s->in.stages; stages++)
        for (uint32_t i = 0; i < s->choice_count; i++)
            for (uint32_t d = units_of(s, i); d <= s->units; d++)
                if (s->can_sum_up[(stages - 1) * row + d - units_of(s, i)])
                    s->can_sum_up[stages * row + d] = true;
    return status;
}

/* ---- The two passes -------------------------------------------------------------------------- */

/* Cost of the first of `stages` stages alone if it ends at `to`: its compute and its side of the
 * cuts around it, or the cut after it; HUGE_VAL if too slow. */
static double own_value(const ty_partitioner *s, const pass *p, uint32_t stages, uint32_t from,
                        uint32_t to, uint32_t choice)
{
    const double before_s = from == 0 ? 0 : s->in.transfer_s[layer_at(s, from)];
    const double behind_s = stages == 1 ? 0 : s->in.transfer_s[layer_at(s, to)];
    const double cuts_s = (before_s > behind_s ? before_s : behind_s) / s->choices[choice];
    const double seconds = *stage_s(s, from, to, choice);

    if (seconds > p->limit_s || cuts_s > p->limit_s || !(seconds < HUGE_VAL))
        return HUGE_VAL;
    if (p->is_sum)
        return behind_s;
    return seconds > cuts_s ? seconds : cuts_s;
}

static double join(bool is_sum, double own, double rest)
{
    if (is_sum)
        return own + rest;
    return own > rest ? own : rest;
}

static bool fits(const ty_partitioner *s, uint32_t stages, uint32_t from, uint32_t to,
                 uint32_t replicas)
{
    const ty_partition_input *in = &s->in;
    uint32_t first = layer_at(s, from);
    if (in->fixed_replicas != NULL && in->fixed_replicas[in->stages - stages] != replicas)
        return false;
    return in->fits == NULL ||
           in->fits(in->context, first, layer_at(s, to) - first, replicas, stages - 1);
}

/* Lower bound of a stage's time for any replicas. */
static double least_s(const ty_partitioner *s, uint32_t from, uint32_t to)
{
    const double most = s->choice_count > 0 ? s->choices[s->choice_count - 1] : 1;

    return (s->prefix_s[layer_at(s, to)] - s->prefix_s[layer_at(s, from)]) / most;
}

/* The first choice, by replicas, whose compute alone is no slower than `most_s`: fewer replicas
 * take longer. Sums and quotients of doubles may be inexact in their last digits. */
static uint32_t first_choice(const ty_partitioner *s, uint32_t from, uint32_t to, double most_s)
{
    const double compute_s = s->prefix_s[layer_at(s, to)] - s->prefix_s[layer_at(s, from)];
    const double least = compute_s / most_s * (1 - 1e-9);
    uint32_t found = 0;

    while (found < s->choice_count && s->choices[found] < least)
        found++;
    return found;
}

/* Ends that the first of `stages` stages may have if it begins at `from`: the last one ends with
 * the layers, any other leaves a cut for each stage after it, and is within the limit. */
static void end_range(const ty_partitioner *s, const pass *p, uint32_t stages, uint32_t from,
                      uint32_t *lowest, uint32_t *highest)
{
    const uint32_t end = s->position_count - 1;

    *lowest = stages == 1 ? end : from + 1;
    *highest = end - (stages - 1);
    while (*highest > *lowest && least_s(s, from, *highest) > p->limit_s)
        --*highest;
}

/* The slowest of a position's cells that can be filled. */
static double worst_of(const ty_partitioner *s, const pass *p, uint32_t stages, uint32_t from,
                       uint32_t spared)
{
    const bool *can_sum_up = &s->can_sum_up[(size_t)stages * (s->units + 1)];
    const double *row = best(s, p, stages, from);
    double worst = 0;

    for (uint32_t d = stages; d + spared <= s->units; d++)
        if (can_sum_up[d] && row[d] > worst)
            worst = row[d];
    return worst;
}

/* Whether a choice is faster than any cell of a run, without a branch for each. */
static bool wins_somewhere(bool is_sum, double own, const double *rest, const double *row,
                           uint32_t count)
{
    enum { RUN = 64 };
    uint32_t wins = 0;

    for (uint32_t start = 0; start < count && wins == 0; start += RUN) {
        const uint32_t end = count - start < RUN ? count : start + RUN;
        for (uint32_t d = start; d < end; d++)
            wins |= join(is_sum, own, rest[d]) < row[d] ? 1 : 0;
    }
    return wins != 0;
}

/* Tries one choice for the first stage, for all numbers of units at once; `fits` is called once,
 * and only if the choice would win. @param spared units that earlier stages need; the choice leaves
 * enough for all others @param worst [in, out] of the cells: a choice that is slower alone fills
 * none */
static void try_choice(const ty_partitioner *s, const pass *p, uint32_t stages, uint32_t from,
                       uint32_t to, uint32_t choice, uint32_t spared, double *worst)
{
    const double own = own_value(s, p, stages, from, to, choice);
    const uint32_t taken = units_of(s, choice);
    const double *rest = best(s, p, stages - 1, to) + (stages - 1);
    const bool is_sum = p->is_sum;
    double *row;
    uint32_t count;

    if (own >= *worst)
        return;
    row = best(s, p, stages, from) + (stages - 1 + taken);
    count = s->units - spared - (stages - 1) - taken + 1;
    if (!wins_somewhere(is_sum, own, rest, row, count) ||
        !fits(s, stages, from, to, s->choices[choice]))
        return;
    for (uint32_t d = 0; d < count; d++) {
        double value = join(is_sum, own, rest[d]);
        row[d] = value < row[d] ? value : row[d];
    }
    *worst = worst_of(s, p, stages, from, spared);
}

/* Whether some partition from `position` on is within the limit of the second pass, which has cells
 * only for these. */
static bool is_within(const ty_partitioner *s, uint32_t stages, uint32_t position, uint32_t spared)
{
    const double *bottlenecks = best(s, &s->bottlenecks, stages, position);

    for (uint32_t d = stages; d + spared <= s->units; d++)
        if (bottlenecks[d] <= s->sums.limit_s)
            return true;
    return false;
}

/* Solves one more stage, for suffixes that begin at `before` to `last`, or at the end of the cuts.
 * @param before minimum number of earlier stages: a cut and a unit for each */
static ty_status add_level(const ty_partitioner *s, const pass *p, uint32_t stages, uint32_t before,
                           uint32_t last, ty_error *error)
{
    const size_t cells = s->position_count * ((size_t)s->units + 1);
    const uint32_t end = s->position_count - 1;

    if (p->best[stages] == NULL)
        p->best[stages] = ty_alloc(cells, sizeof **p->best);
    TY_TRY(ty_check_memory(p->best[stages] != NULL, error));
    for (size_t i = 0; i < cells; i++)
        p->best[stages][i] = HUGE_VAL;
    if (stages == 0) {
        best(s, p, 0, end)[0] = 0; /* no layers and no units are left */
        return TY_OK;
    }
    for (uint32_t to = 0; to <= end; to++)
        s->may_end[to] = !p->is_sum || is_within(s, stages - 1, to, before + 1);
    if (before + stages > s->units)
        return TY_OK;
    for (uint32_t from = before; from <= last && from + stages <= end; from++) {
        const uint32_t most = s->units - before - (stages - 1); /* units of the first of them */
        double worst = HUGE_VAL;
        uint32_t lowest, highest;
        if (p->is_sum && !is_within(s, stages, from, before))
            continue;
        end_range(s, p, stages, from, &lowest, &highest);
        for (uint32_t to = lowest; to <= highest; to++) {
            if (!p->is_sum && least_s(s, from, to) >= worst)
                break; /* no later end fills a cell */
            if (!s->may_end[to])
                continue;
            for (uint32_t i = first_choice(s, from, to, p->is_sum ? p->limit_s : worst);
                 i < s->choice_count && units_of(s, i) <= most; i++)
                try_choice(s, p, stages, from, to, i, before, &worst);
        }
    }
    return TY_OK;
}

/* The first choice, by earliest end and then fewest replicas, with the value of the pass's table;
 * it exists, because the sums are the same. */
static uint32_t find_choice(const ty_partitioner *s, const pass *p, uint32_t stages, uint32_t units,
                            uint32_t from, uint32_t *to)
{
    double wanted = best(s, p, stages, from)[units];
    uint32_t lowest, highest;

    end_range(s, p, stages, from, &lowest, &highest);
    for (*to = lowest; *to <= highest; (*to)++)
        for (uint32_t i = 0; i < s->choice_count; i++) {
            const uint32_t taken = units_of(s, i);
            if (taken + stages - 1 <= units &&
                join(p->is_sum, own_value(s, p, stages, from, *to, i),
                     best(s, p, stages - 1, *to)[units - taken]) == wanted &&
                fits(s, stages, from, *to, s->choices[i]))
                return i;
        }
    assert(false && "the table holds a value that no choice has");
    return 0;
}

/* ---- Interface ------------------------------------------------------------------------------- */

ty_status ty_partitioner_open(const ty_partition_input *input, ty_partitioner **out,
                              ty_error *error)
{
    ty_partitioner *s = NULL;
    ty_status status = check_input(input, error);

    if (status != TY_OK)
        return status;
    TY_TRY(ty_check_memory((s = ty_alloc(1, sizeof *s)) != NULL, error));
    s->in = *input;
    s->position_count = input->cut_count + 2;
    s->units = input->fixed_replicas != NULL ? input->stages : input->devices / granule_of(input);
    TY_CHECK(prepare(s, error), status, cleanup);
    TY_CHECK(add_level(s, &s->bottlenecks, 0, 0, 0, error), status, cleanup);
    TY_CHECK(add_level(s, &s->sums, 0, 0, 0, error), status, cleanup);
    *out = s;
    s = NULL;

cleanup:
    ty_partitioner_close(s);
    return status;
}

ty_status ty_partitioner_divide(ty_partitioner *s, uint32_t stages, uint32_t *first_layers,
                                uint32_t *replicas, double *bottleneck_s, ty_error *error)
{
    const bool is_fixed = s->in.fixed_replicas != NULL;

    if (s->in.cut_count + 1 < stages)
        return ty_fail(error, TY_EINFEASIBLE,
                       "%u stages need %u cuts, but the workload can be cut at %u places", stages,
                       stages - 1, s->in.cut_count);
    if (stages == 0 || stages > s->in.stages || (is_fixed && stages != s->in.stages))
        return ty_fail(error, TY_EINVAL, "found %u stages, expected %s%u", stages,
                       is_fixed ? "" : "1 to ", s->in.stages);
    while (s->levels < stages) {
        const uint32_t level = s->levels + 1;
        TY_TRY(add_level(s, &s->bottlenecks, level, is_fixed ? stages - level : 0,
                         is_fixed && level == stages ? 0 : UINT32_MAX, error));
        s->levels = level;
    }
    s->sums.limit_s = best(s, &s->bottlenecks, stages, 0)[s->units];
    if (s->sums.limit_s == HUGE_VAL)
        return ty_fail(error, TY_EINFEASIBLE, "no division into %u stages on %u devices fits",
                       stages, s->in.devices);
    for (uint32_t level = 1; level <= stages; level++)
        TY_TRY(
            add_level(s, &s->sums, level, stages - level, level == stages ? 0 : UINT32_MAX, error));
    uint32_t units = s->units, from = 0;
    for (uint32_t i = 0; i < stages; i++) {
        uint32_t to, choice = find_choice(s, &s->sums, stages - i, units, from, &to);
        first_layers[i] = layer_at(s, from);
        replicas[i] = s->choices[choice];
        units -= units_of(s, choice);
        from = to;
    }
    *bottleneck_s = s->sums.limit_s;
    return TY_OK;
}

void ty_partitioner_close(ty_partitioner *s)
{
    if (s == NULL)
        return;
    for (uint32_t stages = 0; stages <= s->in.stages; stages++) {
        if (s->bottlenecks.best != NULL)
            ty_free(s->bottlenecks.best[stages]);
        if (s->sums.best != NULL)
            ty_free(s->sums.best[stages]);
    }
    ty_free(s->bottlenecks.best);
    ty_free(s->sums.best);
    ty_free(s->prefix_s);
    ty_free(s->stage_s);
    ty_free(s->choices);
    ty_free(s->may_end);
    ty_free(s->can_sum_up);
    ty_free(s);
}
