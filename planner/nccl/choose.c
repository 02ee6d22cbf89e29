/* Queries of a table. A search makes millions, so this file looks up and allocates nothing. */
#include "nccl_constants.h"

#include <math.h>

static const nccl_constants *const k = &ty_nccl_constants;

/* floor(log2(bytes / 64)). */
static int magnitude(double bytes)
{
    int exponent;

    frexp(bytes / 64, &exponent);
    return exponent - 1;
}

/* Trees are slower than their table at medium sizes. */
static double tree_share(const ty_collective_table *table, const ty_collective_pair *pair,
                         double bytes)
{
    bool is_corrected = pair->algorithm == TY_NCCL_TREE || (pair->algorithm == TY_NCCL_NVLS_TREE &&
                                                            table->generation >= TY_BLACKWELL &&
                                                            table->processor != TY_PROCESSOR_OTHER);
    int m = magnitude(bytes);

    if (!is_corrected || m < 0 || m >= NCCL_RUNGS || !(k->tree_correction[pair->protocol][m] > 0))
        return 1;
    return k->tree_correction[pair->protocol][m];
}

/* Simple rings over the network have a longer latency once their messages are not tiny. */
static double plateau(const ty_collective_table *table, ty_collective_kind kind,
                      const ty_collective_pair *pair, double bytes)
{
    if (pair->algorithm != TY_NCCL_RING || pair->protocol != TY_NCCL_SIMPLE ||
        kind != TY_ALL_REDUCE || table->nodes < 2 ||
        bytes < k->plateau_bytes * table->ring_channels * table->ranks)
        return 1;
    return k->plateau_factor[table->generation];
}

static ty_collective_choice answer(const ty_collective_table *table, ty_collective_kind kind,
                                   const ty_collective_pair *pair, double payload, double bytes)
{
    double latency_s =
        pair->real_latency_s + pair->latency_s * (plateau(table, kind, pair, bytes) - 1);
    /* NCCL rates Blackwell's NVLS trees below Hopper's; that affects only the choice. */
    double rate = pair->real_bytes_per_s *
                  (pair->algorithm == TY_NCCL_TREE ? tree_share(table, pair, bytes) : 1);

    if (bytes > k->packet_bytes * table->ring_channels)
        latency_s += table->long_latency_s;
    return (ty_collective_choice){.algorithm = pair->algorithm,
                                  .protocol = pair->protocol,
                                  .latency_s = latency_s,
                                  .seconds = latency_s + bytes / rate,
                                  .bytes_per_s = rate * (payload > 0 ? payload / bytes : 1)};
}

static ty_collective_choice choose(const ty_collective_table *table, ty_collective_kind kind,
                                   int algorithm, uint64_t payload)
{
    /* NCCL counts an all-gather by its result. */
    double bytes = (double)payload * (kind == TY_ALL_GATHER ? table->ranks : 1), best_s = HUGE_VAL;
    const ty_collective_pair *best = NULL;
    ty_collective_choice found;

    for (uint32_t i = 0; i < table->pair_counts[kind]; i++) {
        const ty_collective_pair *pair = &table->pairs[kind][i];
        double seconds;
        if (algorithm >= 0 && pair->algorithm != (ty_nccl_algorithm)algorithm)
            continue;
        /* By NCCL's own figures, which decide. */
        seconds = pair->latency_s * plateau(table, kind, pair, bytes) +
                  bytes / (pair->bytes_per_s * tree_share(table, pair, bytes));
        if (seconds < best_s) {
            best_s = seconds;
            best = pair;
        }
    }
    if (best == NULL && algorithm >= 0)
        return choose(table, kind, -1, payload);
    if (best == NULL) /* alone */
        return (ty_collective_choice){.algorithm = TY_NCCL_RING, .bytes_per_s = HUGE_VAL};
    found = answer(table, kind, best, (double)payload, bytes);
    for (uint32_t i = 0; i < table->pair_counts[kind] && table->nodes > 1; i++) {
        const ty_collective_pair *pair = &table->pairs[kind][i];
        if (pair->algorithm == best->algorithm && pair->protocol == TY_NCCL_SIMPLE) {
            const ty_collective_choice simple = answer(table, kind, pair, (double)payload, bytes);
            if (simple.seconds < found.seconds && best->protocol == TY_NCCL_LL128)
                return simple;
        }
    }
    return found;
}

ty_collective_choice ty_collective_choose(const ty_collective_table *table, ty_collective_kind kind,
                                          uint64_t bytes)
{
    return choose(table, kind, -1, bytes);
}

ty_collective_choice ty_collective_choose_by(const ty_collective_table *table,
                                             ty_collective_kind kind, ty_nccl_algorithm algorithm,
                                             uint64_t bytes)
{
    return choose(table, kind, (int)algorithm, bytes);
}

double ty_collective_seconds(const ty_collective_table *table, ty_collective_kind kind,
                             uint64_t bytes)
{
    return choose(table, kind, -1, bytes).seconds;
}

double ty_collective_bus_factor(ty_collective_kind kind, uint32_t ranks)
{
    double others = ranks > 0 ? (ranks - 1.0) / ranks : 0;

    if (kind == TY_ALL_REDUCE)
        return 2 * others;
    return kind == TY_ALL_GATHER || kind == TY_REDUCE_SCATTER || kind == TY_ALL_TO_ALL ? others : 1;
}

bool ty_collective_entry(const ty_collective_table *table, ty_collective_kind kind,
                         ty_nccl_algorithm algorithm, ty_nccl_protocol protocol, double *latency_s,
                         double *bytes_per_s)
{
    for (uint32_t i = 0; i < table->pair_counts[kind]; i++) {
        const ty_collective_pair *pair = &table->pairs[kind][i];
        if (pair->algorithm != algorithm || pair->protocol != protocol)
            continue;
        *latency_s = pair->latency_s;
        *bytes_per_s = pair->bytes_per_s;
        return true;
    }
    return false;
}
