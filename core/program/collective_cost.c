/* Collectives by the latency-bandwidth model: the table of ty_program.h. */
#include "ty_program.h"

#include <math.h>

ty_collective_terms ty_collective_terms_of(ty_collective_kind kind, ty_algorithm algorithm,
                                           uint32_t members)
{
    const double n = members, others = n - 1, levels = ceil(log2(n));
    const bool has_tree = kind == TY_ALL_REDUCE || kind == TY_BROADCAST || kind == TY_REDUCE;

    if (members < 2)
        return (ty_collective_terms){0};
    if (algorithm == TY_TREE && has_tree) {
        const double ways = kind == TY_ALL_REDUCE ? 2 : 1;
        return (ty_collective_terms){ways * levels, ways * levels};
    }
    switch (kind) {
    case TY_ALL_REDUCE:
        return (ty_collective_terms){
            algorithm == TY_PARAMETER_SERVER || algorithm == TY_BLOCK_MANAGER ? 2 : 2 * others,
            2 * others / n};
    case TY_ALL_GATHER:
        return (ty_collective_terms){others, others};
    case TY_REDUCE_SCATTER:
    case TY_ALL_TO_ALL:
        return (ty_collective_terms){others, others / n};
    case TY_BROADCAST:
    case TY_REDUCE:
        return (ty_collective_terms){levels + others, 2 * others / n};
    case TY_SEND_RECEIVE:
    case TY_COLLECTIVE_COUNT:
        break;
    }
    return (ty_collective_terms){1, 1};
}

ty_status ty_collective_cost(ty_collective_kind kind, ty_algorithm algorithm, uint32_t members,
                             uint64_t bytes, double bandwidth_bytes_per_s, double latency_s,
                             ty_instruction_cost *cost, ty_error *error)
{
    ty_collective_terms terms;

    if ((size_t)kind >= TY_COLLECTIVE_COUNT || (size_t)algorithm >= TY_ALGORITHM_COUNT)
        return ty_fail(error, TY_EINVAL, "collective %d by algorithm %d: there is no such thing",
                       (int)kind, (int)algorithm);
    if (members == 0)
        return ty_fail(error, TY_EINVAL, "%s: found 0 members, expected at least 1",
                       ty_collective_name(kind));
    if (!(bandwidth_bytes_per_s > 0) || !(latency_s >= 0) || isinf(latency_s))
        return ty_fail(error, TY_EINVAL,
                       "%s: found %g bytes/s and %g s of latency, expected a bandwidth > 0 and a "
                       "latency >= 0",
                       ty_collective_name(kind), bandwidth_bytes_per_s, latency_s);
    terms = ty_collective_terms_of(kind, algorithm, members);
    *cost = (ty_instruction_cost){.latency_s = terms.steps * latency_s,
                                  .edge_bytes = terms.edge_share * (double)bytes};
    cost->seconds = cost->latency_s + cost->edge_bytes / bandwidth_bytes_per_s;
    return TY_OK;
}

/* ---- On a torus ------------------------------------------------------------------------------ */

uint32_t ty_torus_members(const ty_torus *torus)
{
    uint32_t members = 1;

    for (uint32_t i = 0; i < torus->axis_count; i++)
        members *= torus->axes[i].members;
    return members;
}

static double axis_rate(const ty_torus_axis *axis, bool is_crowded)
{
    const double rate = (axis->is_ring ? 2 : 1) * axis->bandwidth_bytes_per_s;
    return is_crowded ? rate / axis->spacing : rate;
}

/* Time of the slowest set of the axes in `among` for data of 1, and that set. */
static double slowest_set(const ty_torus *torus, uint32_t among, uint32_t *slowest)
{
    double all = 1, most_s = 0;

    for (uint32_t i = 0; i < torus->axis_count; i++)
        all *= among >> i & 1 ? torus->axes[i].members : 1;
    for (uint32_t set = among; set > 0; set = (set - 1) & among) { /* the largest first */
        double members = 1, rate = 0, seconds;
        for (uint32_t i = 0; i < torus->axis_count; i++)
            if (set >> i & 1) {
                members *= torus->axes[i].members;
                rate += axis_rate(&torus->axes[i], true);
            }
        seconds = (members - 1) / all / rate;
        if (seconds > most_s) {
            most_s = seconds;
            *slowest = set;
        }
    }
    return most_s;
}

void ty_torus_shares(const ty_torus *torus, ty_collective_kind kind, double shares[TY_TORUS_AXES])
{
    const double n = ty_torus_members(torus), sent = (n - 1) / n; /* of data of 1 */
    uint32_t rest = (1u << torus->axis_count) - 1;

    if (kind == TY_ALL_TO_ALL) {
        for (uint32_t i = 0; i < torus->axis_count; i++) {
            const uint64_t m = torus->axes[i].members, pairs = m * m / 4; /* over the middle */
            shares[i] = (double)pairs / (double)m / sent;
        }
        return;
    }
    /* The slowest set works all the time, last in every order of a gather; the others share the
     * time before it. */
    while (rest > 0) {
        uint32_t slowest = rest;
        const double seconds = slowest_set(torus, rest, &slowest);
        for (uint32_t i = 0; i < torus->axis_count; i++)
            if (slowest >> i & 1)
                shares[i] = seconds * axis_rate(&torus->axes[i], true) / sent;
        rest &= ~slowest;
    }
}

double ty_torus_rate(const ty_torus *torus, ty_collective_kind kind, bool is_crowded)
{
    double shares[TY_TORUS_AXES], most_s = 0;

    ty_torus_shares(torus, kind, shares);
    for (uint32_t i = 0; i < torus->axis_count; i++)
        most_s = fmax(most_s, shares[i] / axis_rate(&torus->axes[i], is_crowded));
    return 1 / most_s;
}

void ty_torus_cost(const ty_torus *torus, ty_collective_kind kind, uint64_t bytes,
                   ty_instruction_cost *cost)
{
    const bool is_twice = kind == TY_ALL_REDUCE || kind == TY_BROADCAST || kind == TY_REDUCE;
    const uint32_t members = ty_torus_members(torus);
    double latency_s = 0;

    for (uint32_t i = 0; i < torus->axis_count; i++) {
        const ty_torus_axis *axis = &torus->axes[i];
        const uint32_t hops = axis->is_ring ? axis->members / 2 : axis->members - 1;
        latency_s += (double)hops * axis->spacing * axis->latency_s;
    }
    *cost = (ty_instruction_cost){
        .latency_s = (is_twice ? 2 : 1) * latency_s,
        .edge_bytes = ty_collective_terms_of(kind, TY_RING, members).edge_share * (double)bytes};
    cost->seconds = cost->latency_s + cost->edge_bytes / ty_torus_rate(torus, kind, false);
}
