/* Collectives by the latency-bandwidth model: the table of ty_costs.h. */
#include "ty_costs.h"

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
