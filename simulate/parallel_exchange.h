/* TP, CP and EP collectives inside the instructions of a stage replica, for the simulator. The
 * costs have their total, `inner_s`, and core lists them (ty_layer_inner_collectives); here they
 * become one cost per kind of parallelism. */
#ifndef TY_PARALLEL_EXCHANGE_H
#define TY_PARALLEL_EXCHANGE_H

#include "ty_core.h"
#include "ty_topologies.h"

/** The error of a simulation that runs out of memory. */
static inline ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "simulation: memory ran out");
}

/** An instruction, split into compute and collectives. */
typedef struct ty_parallel_instruction {
    double compute_s;     /* work of each rank alone */
    uint32_t collectives; /* of all kinds together */
    ty_instruction_cost
        costs[TY_PARALLELISM_COUNT]; /* of all collectives of a kind; seconds 0: none */
} ty_parallel_instruction;

typedef struct ty_parallel_exchanges {
    uint32_t pipeline_size;
    ty_parallel_instruction *
        *pipeline_ranks; /* [pipeline rank][instruction]; NULL: no collectives */
    bool (
        *is_used)[TY_PARALLELISM_COUNT]; /* [pipeline rank]: whether some instruction has a cost */
    bool (
        *is_all_to_all)[TY_PARALLELISM_COUNT]; /* [pipeline rank]: whether some collective is one */
} ty_parallel_exchanges;

/**
 * Splits the instructions of a program. The total `inner_s` stays; each kind of parallelism gets a
 * share in proportion to its time over its links. The bytes are those of rings, but at most what
 * these links carry in that time.
 * @param out [out] clear also after a failure; empty if stage replicas have one rank
 */
ty_status ty_parallel_exchanges_find(const ty_plan *plan, const ty_program *program,
                                     const ty_costs *costs, const ty_cluster *cluster,
                                     ty_parallel_exchanges *out, ty_error *error) TY_MUST_CHECK;
void ty_parallel_exchanges_clear(ty_parallel_exchanges *exchanges);
/** NULL if the instruction has no collectives, or there is no such pipeline rank. */
const ty_parallel_instruction *ty_parallel_instruction_of(const ty_parallel_exchanges *exchanges,
                                                          uint32_t pipeline_rank,
                                                          uint32_t instruction);

/** TP, CP or EP groups of a stage replica: their number, the group of a rank, and the n-th rank of
 * a group. */
uint32_t ty_parallel_group_count(const ty_plan *plan, ty_parallelism kind);
uint32_t ty_parallel_group_of(const ty_plan *plan, ty_parallelism kind, uint32_t replica_rank);
uint32_t ty_rank_of_parallel_group(const ty_plan *plan, ty_parallelism kind, uint32_t group,
                                   uint32_t n);
/**
 * The rails between the ranks of a kind of a pipeline rank: those of its group that spans most
 * hosts, which represents the others.
 * @param out [out] clear with ty_rails_clear
 */
ty_status ty_parallel_rails(const ty_plan *plan, const ty_cluster *cluster, uint32_t pipeline_rank,
                            ty_parallelism kind, ty_rails *out, ty_error *error) TY_MUST_CHECK;

struct ty_simulate_options;
/** ty_simulate with known TP, CP and EP collectives. */
ty_status ty_simulate_parallel(const ty_plan *plan, const ty_program *program,
                               const ty_costs *costs, const ty_parallel_exchanges *parallel,
                               const ty_cluster *cluster, const struct ty_simulate_options *options,
                               ty_timeline **out, ty_error *error) TY_MUST_CHECK;

#endif
