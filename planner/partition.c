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
    uint32_t most_replicas;  /* devices - stages + 1: every other stage has one at least */
    double *prefix_s;        /* [layer_count + 1] seconds of the layers before */
    double *stage_s;         /* [position][position][replica count - 1]; HUGE_VAL: empty */
    double *best;            /* [stages + 1][devices + 1][position], of the current pass */
} search;

static uint32_t layer_at(const search *s, uint32_t position)
{
    if (position == 0)
        return 0;
    return position <= s->in->cut_count ? s->in->cuts[position - 1] : s->in->layer_count;
}

static double *stage_s(const search *s, uint32_t from, uint32_t to, uint32_t replicas)
{
    return &s->stage_s[((size_t)from * s->position_count + to) * s->most_replicas + replicas - 1];
}

/* Value of the best division of everything from `position` on into `stages` with `devices`. */
static double *best(const search *s, uint32_t stages, uint32_t devices, uint32_t position)
{
    return &s->best[((size_t)stages * (s->in->devices + 1) + devices) * s->position_count +
                    position];
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

static ty_status check_input(const ty_partition_input *in, ty_error *error)
{
    ty_status status = TY_OK;

    if (in->layer_count == 0 || in->stages == 0)
        return ty_fail(error, TY_EINVAL, "found %u layers and %u stages, expected at least one",
                       in->layer_count, in->stages);
    if (in->devices < in->stages)
        return ty_fail(error, TY_EINVAL, "found %u devices, expected one for each of %u stages",
                       in->devices, in->stages);
    for (uint32_t i = 0; i < in->cut_count; i++)
        if (in->cuts[i] == 0 || in->cuts[i] >= in->layer_count ||
            (i > 0 && in->cuts[i] <= in->cuts[i - 1]))
            return ty_fail(error, TY_EINVAL,
                           "cuts[%u]: found %u, expected positions inside %u layers, ascending", i,
                           in->cuts[i], in->layer_count);
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

static ty_status fill_stages(search *s, ty_error *error)
{
    const ty_partition_input *in = s->in;
    for (uint32_t from = 0; from + 1 < s->position_count; from++)
        for (uint32_t to = from + 1; to < s->position_count; to++) {
            uint32_t first = layer_at(s, from), end = layer_at(s, to);
            double compute = s->prefix_s[end] - s->prefix_s[first];
            for (uint32_t r = 1; r <= s->most_replicas; r++) {
                double exchange = in->exchange_s == NULL || r == 1
                                      ? 0
                                      : in->exchange_s(in->context, first, end - first, r);
                if (!(exchange >= 0 && exchange < HUGE_VAL))
                    return ty_fail(error, TY_EINVAL,
                                   "exchange of layers %u to %u: found %g s, expected a finite "
                                   "number >= 0",
                                   first, end - 1, exchange);
                *stage_s(s, from, to, r) = (compute + exchange) / r;
            }
        }
    return TY_OK;
}

static ty_status prepare(search *s, ty_error *error)
{
    const ty_partition_input *in = s->in;
    size_t square = (size_t)s->position_count * s->position_count;

    s->prefix_s = ty_alloc((size_t)in->layer_count + 1, sizeof(double));
    s->stage_s = ty_alloc(square, s->most_replicas * sizeof(double));
    s->best = ty_alloc(((size_t)in->stages + 1) * ((size_t)in->devices + 1),
                       s->position_count * sizeof(double));
    if (s->prefix_s == NULL || s->stage_s == NULL || s->best == NULL)
        return ty_fail(error, TY_ENOMEM, "partition: out of memory");
    for (uint32_t i = 0; i < in->layer_count; i++)
        s->prefix_s[i + 1] = s->prefix_s[i] + in->layer_s[i];
    return fill_stages(s, error);
}

/* ---- The two passes -------------------------------------------------------------------------- */

/* How a stage and the rest behind it make the whole; `cut_s` is the transfer between them. */
typedef double (*combine)(double stage, double cut_s, double rest, double limit_s);

static double slowest(double stage, double cut_s, double rest, double limit_s)
{
    (void)limit_s;
    return fmax(fmax(stage, cut_s), rest);
}

static double cut_total(double stage, double cut_s, double rest, double limit_s)
{
    return stage <= limit_s && cut_s <= limit_s ? cut_s + rest : HUGE_VAL;
}

/* One choice for the first of `stages` stages: it ends at `to` and has `replicas`. */
static double choice(const search *s, uint32_t stages, uint32_t devices, uint32_t from, uint32_t to,
                     uint32_t replicas, combine join, double limit_s)
{
    bool is_last = stages == 1;
    double cut_s = is_last ? 0 : s->in->transfer_s[layer_at(s, to)];
    double rest = is_last ? 0 : *best(s, stages - 1, devices - replicas, to);
    return join(*stage_s(s, from, to, replicas), cut_s, rest, limit_s);
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

/* `best` of `stages` stages from `from` on, for all numbers of devices at once, so that `fits` is
 * asked once for each stage. */
static void fill_from(const search *s, uint32_t stages, uint32_t from, combine join, double limit_s)
{
    uint32_t lowest, highest, spare = s->most_replicas - 1;

    for (uint32_t d = stages; d <= stages + spare; d++)
        *best(s, stages, d, from) = HUGE_VAL;
    end_range(s, stages, from, &lowest, &highest);
    for (uint32_t to = lowest; to <= highest; to++)
        for (uint32_t r = 1; r <= s->most_replicas; r++) {
            if (*stage_s(s, from, to, r) > limit_s || !fits(s, stages, from, to, r))
                continue;
            for (uint32_t d = stages - 1 + r; d <= stages + spare; d++) {
                double value;
                if (stages == 1 && d != r)
                    break;
                value = choice(s, stages, d, from, to, r, join, limit_s);
                if (value < *best(s, stages, d, from))
                    *best(s, stages, d, from) = value;
            }
        }
}

static double run_pass(const search *s, combine join, double limit_s)
{
    uint32_t end = s->position_count - 1;
    for (uint32_t stages = 1; stages <= s->in->stages; stages++) {
        uint32_t before = s->in->stages - stages; /* stages in front: one cut for each */
        uint32_t highest = before == 0 ? 0 : end - stages;
        for (uint32_t from = before; from <= highest; from++)
            fill_from(s, stages, from, join, limit_s);
    }
    return *best(s, s->in->stages, s->in->devices, 0);
}

/* The first choice, by earliest end and then fewest replicas, that has the value of the second
 * pass's table; there is one, computed by the same sums. */
static void find_choice(const search *s, uint32_t stages, uint32_t devices, uint32_t from,
                        double limit_s, uint32_t *to, uint32_t *replicas)
{
    double wanted = *best(s, stages, devices, from);
    uint32_t lowest, highest;

    end_range(s, stages, from, &lowest, &highest);
    for (*to = lowest; *to <= highest; (*to)++)
        for (*replicas = stages == 1 ? devices : 1; *replicas + stages - 1 <= devices;
             (*replicas)++)
            if (choice(s, stages, devices, from, *to, *replicas, cut_total, limit_s) == wanted &&
                fits(s, stages, from, *to, *replicas))
                return;
    assert(false && "the table holds a value that no choice has");
}

static void trace(const search *s, double limit_s, uint32_t *first_layers, uint32_t *replicas)
{
    uint32_t devices = s->in->devices, from = 0;

    for (uint32_t stages = s->in->stages; stages > 0; stages--) {
        uint32_t stage = s->in->stages - stages, to;
        first_layers[stage] = layer_at(s, from);
        find_choice(s, stages, devices, from, limit_s, &to, &replicas[stage]);
        devices -= replicas[stage];
        from = to;
    }
}

ty_status ty_partition(const ty_partition_input *input, uint32_t *first_layers, uint32_t *replicas,
                       double *bottleneck_s, ty_error *error)
{
    ty_status status = TY_OK;
    search s = {.in = input};
    double limit_s;

    TY_CHECK(check_input(input, error), status, cleanup);
    s.position_count = input->cut_count + 2;
    s.most_replicas = input->devices - input->stages + 1;
    TY_CHECK(prepare(&s, error), status, cleanup);
    limit_s = run_pass(&s, slowest, HUGE_VAL);
    if (limit_s == HUGE_VAL) {
        status = ty_fail(error, TY_EINFEASIBLE, "no division into %u stages on %u devices fits",
                         input->stages, input->devices);
        goto cleanup;
    }
    run_pass(&s, cut_total, limit_s);
    trace(&s, limit_s, first_layers, replicas);
    *bottleneck_s = limit_s;

cleanup:
    ty_free(s.prefix_s);
    ty_free(s.stage_s);
    ty_free(s.best);
    return status;
}
