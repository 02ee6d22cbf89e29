/* Folding: simulates one representative of each class of interchangeable devices, flows and links.
 *
 * Devices (the ranks of all stage replicas), the routes between communicating devices, and the
 * links of the routes are partitioned into classes. Every member of a class meets equally many
 * members of every other class. The partition is the coarsest such, by color refinement (Cardon,
 * Crochemore, "Partitioning a graph in O(|A| log2 |V|)", 1982), from each device's pipeline rank,
 * each route's latency and each link's bandwidth. Equal starts then stay equal: all of a class do
 * the same at the same time, and links shared evenly give all flows of a class the same rate. So
 * one of each class is enough, on a platform where a flow that represents m flows over each link of
 * a class has weight m there. */
#ifndef TY_FOLD_H
#define TY_FOLD_H

#include "pattern.h"

/** Classes of routes, used one after another: those of a strand of a
 * pattern, or the one of a send. */
typedef struct ty_fold_way {
    uint32_t member, strand;      /* the strand, which represents all of its class */
    uint32_t flows[TY_MOST_LEGS]; /* TY_NO_FLOW: no leg, or one within a device */
} ty_fold_way;
#define TY_NO_FLOW UINT32_MAX

/** One route of a class, without contention. */
typedef struct ty_fold_flow {
    double latency_s, bandwidth_bytes_per_s;
} ty_fold_flow;

/** Weight of one flow of class `flow` on a link of class `link`. */
typedef struct ty_fold_weight {
    uint32_t flow, link, count;
} ty_fold_weight;

typedef struct ty_fold ty_fold;

/**
 * @param parallel TP, CP and EP collectives; NULL: none
 * @param slowdowns [rank]; NULL: all the same
 * @param out [out] NULL if there is little to fold: stage replicas share cores, or few devices are
 * interchangeable
 * @return TY_ENOMEM, or the error of a route look-up
 */
ty_status ty_fold_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                      const double *slowdowns, ty_fold **out, ty_error *error) TY_MUST_CHECK;
void ty_fold_free(ty_fold *fold);

/** Whether all readers of the hosts' shared store are of one pipeline rank and in one class: then
 * they run in step, and each gets an equal share. Also true without readers. */
bool ty_fold_reads_alike(const ty_fold *fold, const ty_program *program, const ty_costs *costs);

uint32_t ty_fold_class_count(const ty_fold *fold);
/** [rank]; classes are numbered in the order of their first rank. */
const uint32_t *ty_fold_classes(const ty_fold *fold);
/** The first rank of a class. */
uint32_t ty_fold_first(const ty_fold *fold, uint32_t class_index);

uint32_t ty_fold_flow_count(const ty_fold *fold);
const ty_fold_flow *ty_fold_flow_of(const ty_fold *fold, uint32_t flow);
/** By flow, then by link. */
const ty_fold_weight *ty_fold_weights(const ty_fold *fold, uint64_t *count);
/** Bandwidths of the classes of links, divided by the common divisor of their weights; 0: unused.
 */
const double *ty_fold_links(const ty_fold *fold, uint32_t *count);
/** The class of a send's route; TY_NO_FLOW: no such send. */
uint32_t ty_fold_transfer(const ty_fold *fold, uint32_t rank, const ty_instruction *send);
/** The patterns of the plan. */
const ty_pattern_set *ty_fold_patterns(const ty_fold *fold);
/**
 * Adds the classes of the strands of one group of a pattern, each once. A quiet pattern has none.
 * @param ways, count [in, out] those of its other groups; NULL and 0 at first; free with ty_free
 */
ty_status ty_fold_exchange(const ty_fold *fold, const ty_pattern *pattern, uint32_t side,
                           ty_fold_way **ways, uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** SimGrid platform (XML): hosts "from-N" and "to-N" for every class of routes, and "anywhere". */
void ty_fold_platform(const ty_fold *fold, ty_text *xml);

#endif
