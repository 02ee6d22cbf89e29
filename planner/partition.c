/* Dividing a chain of layers into stages with replicas: exact dynamic programming over suffixes.
 *
 * Two passes. The first finds the least bottleneck. The second, among all divisions that reach it,
 * finds the one that spends least on its cuts; it is a search of its own because a suffix that is
 * not the fastest by itself may cost less at its cuts and still not be the slowest part of the
 * whole. Remaining ties go to the division that is first when cuts and replicas are read from the
 * front. */
#include "ty_planner.h"

#include <assert.h>
#include <math.h>

/* Positions are where a stage may begin: 0, the cuts, and the end. */
typedef struct search {
    const ty_partition_input *in;
    uint32_t position_count; /* cut_count + 2 */
    uint32_t *choices;       /* numbers of replicas that any stage can have, ascending */
    uint32_t choice_count, most_choices;
    uint32_t units;   /* given out: granules, or one a stage where its replicas are fixed */
    double *prefix_s; /* [layer_count + 1] seconds of the layers before */
    double *stage_s;  /* [position][position][most_choices]; HUGE_VAL: empty */
    double *best;     /* [stages + 1][position][units + 1], of the current pass */
} search;

static uint32_t layer_at(const search *s, uint32_t position)
{
    if (position == 0)
        return 0;
    return position <= s->in->cut_count ? s->in->cuts[position - 1] : s->in->layer_count;
}

static double *stage_s(const search *s, uint32_t from, uint32_t to, uint32_t choice)
{
    return &s->stage_s[((size_t)from * s->position_count + to) * s->most_choices + choice];
}

static uint32_t granule_of(const ty_partition_input *in)
{
    return in->granule > 1 && in->fixed_replicas == NULL ? in->granule : 1;
}

static uint32_t units_of(const search *s, uint32_t choice)
{
    return s->in->fixed_replicas != NULL ? 1 : s->choices[choice] / granule_of(s->in);
}

/* Value of the best division of everything from `position` on into `stages`, by units. */
static double *best(const search *s, uint32_t stages, uint32_t position)
{
    return &s->best[((size_t)stages * s->position_count + position) * (s->units + 1)];
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
    ty_status status = TY_OK;

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
    TY_CHECK(check_fixed(in, error), status, cleanup);
    TY_CHECK(check_seconds(in->layer_s, in->layer_count, "layer_s", error), status, cleanup);
    TY_CHECK(check_seconds(in->transfer_s, in->layer_count + 1, "transfer_s", error), status,
             cleanup);
    if (in->cut_count + 1 < in->stages)
        status = ty_fail(error, TY_EINFEASIBLE,
                         "%u stages need %u cuts, but the workload can be cut at %u places",
                         in->stages, in->stages - 1, in->cut_count);

cleanup:
    return status;
}

/* ---- Stage times ----------------------------------------------------------------------------- */

static bool is_fixed_otherwise(const search *s, uint32_t replicas)
{
    if (s->in->fixed_replicas == NULL)
        return false;
    for (uint32_t stage = 0; stage < s->in->stages; stage++)
        if (s->in->fixed_replicas[stage] == replicas)
            return false;
    return true;
}

/* The time of one stage; HUGE_VAL where it does not fit even as the last one. */
static ty_status find_stage(search *s, uint32_t first, uint32_t end, uint32_t replicas,
                            double *seconds, ty_error *error)
{
    const ty_partition_input *in = s->in;
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
static ty_status fill_choice(search *s, uint32_t replicas, ty_error *error)
{
    bool is_possible = false;
    ty_status status = TY_OK;

    for (uint32_t from = 0; from + 1 < s->position_count; from++)
        for (uint32_t to = from + 1; to < s->position_count; to++) {
            double *seconds = stage_s(s, from, to, s->choice_count);
            TY_CHECK(find_stage(s, layer_at(s, from), layer_at(s, to), replicas, seconds, error),
                     status, done);
            is_possible = is_possible || *seconds < HUGE_VAL;
        }
    if (is_possible)
        s->choices[s->choice_count++] = replicas;
done:
    return status;
}

/* Every other stage has one granule at least. */
static uint32_t most_replicas(const ty_partition_input *in)
{
    return in->devices - (in->stages - 1) * granule_of(in);
}

static uint32_t count_choices(const search *s)
{
    uint32_t count = 0;

    for (uint32_t r = granule_of(s->in); r <= most_replicas(s->in); r += granule_of(s->in))
        count += !is_fixed_otherwise(s, r);
    return count;
}

static ty_status prepare(search *s, ty_error *error)
{
    const ty_partition_input *in = s->in;
    const size_t square = (size_t)s->position_count * s->position_count;
    ty_status status = TY_OK;

    s->most_choices = count_choices(s);
    s->prefix_s = ty_alloc((size_t)in->layer_count + 1, sizeof(double));
    s->stage_s = ty_alloc(square, s->most_choices * sizeof(double));
    s->choices = ty_alloc(s->most_choices, sizeof *s->choices);
    s->best = ty_alloc(((size_t)in->stages + 1) * ((size_t)s->units + 1),
                       s->position_count * sizeof(double));
    if (s->prefix_s == NULL || s->stage_s == NULL || s->choices == NULL || s->best == NULL)
        return ty_fail(error, TY_ENOMEM, "partition: out of memory");
    for (uint32_t i = 0; i < in->layer_count; i++)
        s->prefix_s[i + 1] = s->prefix_s[i] + in->layer_s[i];
    for (uint32_t r = granule_of(in); status == TY_OK && r <= most_replicas(in);
         r += granule_of(in))
        if (!is_fixed_otherwise(s, r))
            status = fill_choice(s, r, error);
    return status;
}

/* ---- The two passes -------------------------------------------------------------------------- */

typedef struct pass {
    bool is_sum;    /* of the cuts, instead of the slowest part */
    double limit_s; /* of every stage and cut; HUGE_VAL: none yet */
} pass;

/* What the first of `stages` stages adds by itself if it ends at `to`: its compute and its side of
 * the cuts around it, or the cut behind it; HUGE_VAL where that is too slow. */
static double own_value(const search *s, const pass *p, uint32_t stages, uint32_t from, uint32_t to,
                        uint32_t choice)
{
    const double before_s = from == 0 ? 0 : s->in->transfer_s[layer_at(s, from)];
    const double behind_s = stages == 1 ? 0 : s->in->transfer_s[layer_at(s, to)];
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

static bool fits(const search *s, uint32_t stages, uint32_t from, uint32_t to, uint32_t replicas)
{
    const ty_partition_input *in = s->in;
    uint32_t first = layer_at(s, from);
    if (in->fixed_replicas != NULL && in->fixed_replicas[in->stages - stages] != replicas)
        return false;
    return in->fits == NULL ||
           in->fits(in->context, first, layer_at(s, to) - first, replicas, stages - 1);
}

/* Where the first of `stages` stages that begins at `from` may end: the last one ends with the
 * layers, any other leaves a cut for each stage behind it. */
static void end_range(const search *s, uint32_t stages, uint32_t from, uint32_t *lowest,
                      uint32_t *highest)
{
    uint32_t end = s->position_count - 1;
    *lowest = stages == 1 ? end : from + 1;
    *highest = end - (stages - 1);
}

/* Lets one choice for the first stage compete, for all numbers of units at once; `fits` is asked
 * once, and not before the choice would win. */
static void try_choice(const search *s, const pass *p, uint32_t stages, uint32_t from, uint32_t to,
                       uint32_t choice)
{
    const double own = own_value(s, p, stages, from, to, choice);
    const uint32_t taken = units_of(s, choice);
    const double *rest = best(s, stages - 1, to) + (stages - 1);
    double *row = best(s, stages, from) + (stages - 1 + taken);
    const uint32_t count = s->units - s->in->stages + 1 - taken + 1;
    const bool is_sum = p->is_sum;
    bool wins = false;

    if (own == HUGE_VAL)
        return;
    for (uint32_t d = 0; d < count; d++)
        wins |= join(is_sum, own, rest[d]) < row[d];
    if (!wins || !fits(s, stages, from, to, s->choices[choice]))
        return;
    for (uint32_t d = 0; d < count; d++) {
        double value = join(is_sum, own, rest[d]);
        row[d] = value < row[d] ? value : row[d];
    }
}

static double run_pass(const search *s, const pass *p)
{
    uint32_t end = s->position_count - 1;
    size_t cells = ((size_t)s->in->stages + 1) * s->position_count * (s->units + 1);

    for (size_t i = 0; i < cells; i++)
        s->best[i] = HUGE_VAL;
    best(s, 0, end)[0] = 0; /* nothing is left, for nobody */
    for (uint32_t stages = 1; stages <= s->in->stages; stages++) {
        uint32_t before = s->in->stages - stages; /* stages in front: one cut for each */
        uint32_t last = before == 0 ? 0 : end - stages;
        for (uint32_t from = before; from <= last; from++) {
            uint32_t lowest, highest;
            end_range(s, stages, from, &lowest, &highest);
            for (uint32_t to = lowest; to <= highest; to++)
                for (uint32_t i = 0; i < s->choice_count; i++)
                    try_choice(s, p, stages, from, to, i);
        }
    }
    return best(s, s->in->stages, 0)[s->units];
}

/* The first choice, by earliest end and then fewest replicas, that has the value of the pass's
 * table; there is one, computed by the same sums. */
static uint32_t find_choice(const search *s, const pass *p, uint32_t stages, uint32_t units,
                            uint32_t from, uint32_t *to)
{
    double wanted = best(s, stages, from)[units];
    uint32_t lowest, highest;

    end_range(s, stages, from, &lowest, &highest);
    for (*to = lowest; *to <= highest; (*to)++)
        for (uint32_t i = 0; i < s->choice_count; i++) {
            const uint32_t taken = units_of(s, i);
            if (taken + stages - 1 <= units &&
                join(p->is_sum, own_value(s, p, stages, from, *to, i),
                     best(s, stages - 1, *to)[units - taken]) == wanted &&
                fits(s, stages, from, *to, s->choices[i]))
                return i;
        }
    assert(false && "the table holds a value that no choice has");
    return 0;
}

static void trace(const search *s, const pass *p, uint32_t *first_layers, uint32_t *replicas)
{
    uint32_t units = s->units, from = 0;

    for (uint32_t stages = s->in->stages; stages > 0; stages--) {
        const uint32_t stage = s->in->stages - stages;
        uint32_t to, choice = find_choice(s, p, stages, units, from, &to);
        first_layers[stage] = layer_at(s, from);
        replicas[stage] = s->choices[choice];
        units -= units_of(s, choice);
        from = to;
    }
}

ty_status ty_partition(const ty_partition_input *input, uint32_t *first_layers, uint32_t *replicas,
                       double *bottleneck_s, ty_error *error)
{
    ty_status status = TY_OK;
    search s = {.in = input};
    pass p = {.is_sum = false, .limit_s = HUGE_VAL};

    TY_CHECK(check_input(input, error), status, cleanup);
    s.position_count = input->cut_count + 2;
    s.units = input->fixed_replicas != NULL ? input->stages : input->devices / granule_of(input);
    TY_CHECK(prepare(&s, error), status, cleanup);
    p.limit_s = run_pass(&s, &p);
    if (p.limit_s == HUGE_VAL) {
        status = ty_fail(error, TY_EINFEASIBLE, "no division into %u stages on %u devices fits",
                         input->stages, input->devices);
        goto cleanup;
    }
    p.is_sum = true;
    run_pass(&s, &p);
    trace(&s, &p, first_layers, replicas);
    *bottleneck_s = p.limit_s;

cleanup:
    ty_free(s.prefix_s);
    ty_free(s.stage_s);
    ty_free(s.choices);
    ty_free(s.best);
    return status;
}
