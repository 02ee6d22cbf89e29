/* Folding: devices, flows and links that cannot be told apart are simulated once.
 *
 * Devices (processes: the ranks of all stage replicas), the routes between those that talk to each
 * other, and the links of the routes are divided into classes such that every member of a class
 * meets as many members of every other class as its like: the coarsest such division, by colour
 * refinement (Cardon, Crochemore, "Partitioning a graph in O(|A| log2 |V|)", 1982), from each
 * device's pipeline rank, each route's latency and each link's bandwidth. Equal starts then stay
 * equal: all of a class do the same at the same time, and links shared evenly give all flows of a
 * class the same rate. So one of each class is enough, on a platform where a flow that stands for m
 * flows over each link of a class weighs m times there. */
#ifndef TY_FOLD_H
#define TY_FOLD_H

#include "pattern.h"

/** Classes of routes, taken one after the other: those of a strand of a pattern, or the one of a
 * transfer. */
typedef struct ty_fold_way {
    uint32_t member, strand;      /* whose strand this is, for all that are alike */
    uint32_t flows[TY_MOST_LEGS]; /* TY_NO_FLOW: no leg, or one that goes nowhere */
} ty_fold_way;
#define TY_NO_FLOW UINT32_MAX

/** Of a class of routes: what one of them is alone. */
typedef struct ty_fold_flow {
    double latency_s, bandwidth_bytes_per_s;
} ty_fold_flow;

typedef struct ty_fold ty_fold;

/**
 * @param parallel     what ranks exchange; NULL: nothing
 * @param slowdowns [process]; NULL: all the same
 * @param out [out] NULL where there is little to fold: stage replicas share cores, or few devices
 * are alike
 * @return TY_ENOMEM, or what went wrong when looking for a route
 */
ty_status ty_fold_new(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                      const ty_parallel_exchanges *parallel, const ty_cluster *cluster,
                      const double *slowdowns, ty_fold **out, ty_error *error) TY_MUST_CHECK;
void ty_fold_free(ty_fold *fold);

/** Whether all that read from the store which hosts share are of one pipeline rank and in one
 * class: they are in step then, and each gets an equal part of it. Also where nobody does. */
bool ty_fold_reads_alike(const ty_fold *fold, const ty_program *program, const ty_costs *costs);

uint32_t ty_fold_class_count(const ty_fold *fold);
/** [process]; classes are numbered in the order of their first process. */
const uint32_t *ty_fold_classes(const ty_fold *fold);
/** The first process of a class. */
uint32_t ty_fold_first(const ty_fold *fold, uint32_t class_index);

uint32_t ty_fold_flow_count(const ty_fold *fold);
const ty_fold_flow *ty_fold_flow_of(const ty_fold *fold, uint32_t flow);
/** The class of the route that a process sends over; TY_NO_FLOW: there is no such send. */
uint32_t ty_fold_transfer(const ty_fold *fold, uint32_t rank, const ty_instruction *send);
/** The patterns of the plan. */
const ty_pattern_set *ty_fold_patterns(const ty_fold *fold);
/**
 * Adds the classes of the strands of one of the groups of a pattern; each once. Of a quiet pattern
 * there are none.
 * @param ways, count [in, out] what others of its groups have; NULL and 0 at first; free with
 * ty_free
 */
ty_status ty_fold_exchange(const ty_fold *fold, const ty_pattern *pattern, uint32_t side,
                           ty_fold_way **ways, uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** SimGrid platform (XML): hosts "from-N" and "to-N" for every class of routes, and "anywhere". */
void ty_fold_platform(const ty_fold *fold, ty_text *xml);

#endif
