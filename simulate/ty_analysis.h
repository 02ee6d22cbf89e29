/**
 * @file ty_analysis.h
 * What a simulated timeline says of links and memory: how full the busiest links are over time, who
 * sends how much to whom, how a rank's memory fills.
 */
#ifndef TY_ANALYSIS_H
#define TY_ANALYSIS_H

#include "ty_core.h"
#include "ty_topologies.h"

/** One direction of a link over time. */
typedef struct ty_link_curve {
    uint32_t link;
    bool is_backward;
    const double *bytes; /* [bins]; within the one block of all curves */
} ty_link_curve;

typedef struct ty_link_history {
    double bin_s; /* the bins follow each other from 0 */
    uint32_t bin_count, curve_count;
    ty_link_curve *curves;
    double *block;
} ty_link_history;

/**
 * Bytes over some links in equal spans of time, of a timeline of this program: what a transfer or a
 * collective carries, spread evenly from when the last of its members was ready to its end; what
 * lanes exchange, over the whole pass. The sum over the bins is the bytes of ty_link_loads, times
 * the steps.
 * @param links [count] 2 * link, + 1 for the way against its direction
 * @param bins  >= 1
 * @param out   [out] clear with ty_link_history_clear
 */
ty_status ty_link_history_of(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                             const ty_cluster *cluster, const ty_timeline *timeline,
                             const uint32_t *links, uint32_t count, uint32_t bins,
                             ty_link_history *out, ty_error *error) TY_MUST_CHECK;
void ty_link_history_clear(ty_link_history *history);

/** Between what a traffic matrix tells apart. */
typedef enum ty_traffic_ends { TY_BETWEEN_DEVICES, TY_BETWEEN_HOSTS } ty_traffic_ends;
/** Bytes that one device sends to another in a step, or the devices of one host to those of another
 * or to each other. */
typedef struct ty_traffic {
    uint32_t from, to;
    double bytes;
} ty_traffic;
/**
 * The traffic matrix, without its zeros: most bytes first. Transfers, collectives and what lanes of
 * a rank exchange, as they are played as flows; not what is exchanged in every few steps only.
 * @param out [out] free with ty_free
 */
ty_status ty_traffic_matrix(const ty_plan *plan, const ty_program *program, const ty_costs *costs,
                            const ty_cluster *cluster, ty_traffic_ends ends, ty_traffic **out,
                            uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** A rank's memory from a time on. */
typedef struct ty_memory_point {
    double time_s;
    uint64_t bytes;
} ty_memory_point;
/**
 * Memory of a device of `rank` over the steps of a timeline: what the memory model says of its
 * position, of the activations so many micro-batches as are in flight: from the start of forward to
 * the end of the backward that needs them last. Stages that share the device keep in proportion to
 * their layers. The highest point is the model's figure where the timeline has as many in flight as
 * the program allows.
 * @param out   [out] ascending in time; free with ty_free
 * @return TY_EINVAL: a plan without a memory model's answer, or no such rank
 */
ty_status ty_memory_curve(const ty_plan *plan, const ty_program *program,
                          const ty_timeline *timeline, uint32_t rank, ty_memory_point **out,
                          uint32_t *count, ty_error *error) TY_MUST_CHECK;

#endif
