/**
 * @file quick_estimate.h
 * Quick figures before the estimate: seconds and bytes of any range of layers as differences of
 * running sums, collectives over a ring. Internal to planner/.
 */
#ifndef TY_PLANNER_QUICK_ESTIMATE_H
#define TY_PLANNER_QUICK_ESTIMATE_H

#include "candidate.h"

typedef struct quick_costs {
    const search_question *q;
    ty_status status; /* of the first failed look-up; its figure is infinite */
    /* [layers + 1]: bytes of all layers before; gradients without those of experts on fewer ranks;
     * state: parameters, gradients and optimizer; stash: per sample */
    uint64_t *gradient_sums, *expert_sums, *state_sums, *stash_sums;
    ty_gradient_extent *factor_sums; /* [layers + 1]: of powersgd, likewise */
    /* [devices + 1] by group size; NULL: not known yet */
    const ty_group_network **networks, **expert_networks;
    const ty_group_network
        *parallel[TY_PARALLELISM_COUNT]; /* of the first stage replica; likewise */
    ty_server_network server_network;    /* of all devices; workers 0: likewise */
    bool *takes_part;                    /* [layers]: in backward */
    /* All-reduces of all gradients between two cuts at once and uncompressed, reused for every
     * division and micro-batch size: [positions][positions][stage replicas + 1], < 0: not known
     * yet; NULL if too large. Positions are 0, the cuts and the end. */
    double *plain_exchanges;
    uint32_t *position_of; /* [layers + 1]: UINT32_MAX: no stage begins or ends */
    /* Embeddings that may be sent as rows; seconds of their collective, [row_layer_count][stage
     * replicas + 1] by members, < 0: not known yet. */
    uint32_t row_layer_count, *row_layers;
    double *row_seconds;
    uint32_t first_backward;
    uint32_t *narrow_cuts, narrow_count; /* of the question's, those that one tensor crosses */
    /* Of the current micro-batch size. */
    uint32_t micro_batches;
    double *layer_s;                      /* [layers]: forward + backward */
    double *compute_sums, *backward_sums; /* [layers + 1]: seconds of all layers before */
    double *transfer_s; /* [layers + 1]: activation and gradient across the cut before a layer */
    /* For stages with different replicas: by all cuts, and by narrow ones; NULL: not built yet. For
     * divisions.c. */
    ty_partitioner *by_all_cuts, *by_narrow_cuts;
} quick_costs;

ty_status ty_quick_costs_make(const search_question *question, quick_costs *out,
                              ty_error *error) TY_MUST_CHECK;
void ty_quick_costs_clear(quick_costs *costs);
/** Sets the number of micro-batches of a step. */
ty_status ty_quick_costs_set(quick_costs *costs, uint32_t micro_batches,
                             ty_error *error) TY_MUST_CHECK;

/**
 * Seconds to reduce layers [first, end) among neighboring devices in `buckets` equal buckets, less
 * the savings of embeddings sent as rows; infinite once a look-up failed.
 */
double ty_quick_exchange_s(quick_costs *costs, uint32_t first, uint32_t end, uint32_t members,
                           const candidate *c, double *buckets);

/** Whether a stage may fit the largest device, by a lower bound of its memory. */
bool ty_quick_fits(const quick_costs *costs, uint32_t first, uint32_t end, uint32_t replicas,
                   uint32_t stages_after);

/**
 * A step time, not a bound: the slowest stage without idle time, the warm-up and cool-down of the
 * others, and the gradient collectives that the last backward does not hide; with stale gradients,
 * the longest collective if that is more. It ignores the schedule, shared cores, and overlap or
 * queues of send/recv.
 */
double ty_quick_step_s(quick_costs *costs, const candidate *c);

/** The time that compression saves in a step's collectives without overlap: an upper bound of its
 * gain.
 */
double ty_quick_compression_gain_s(quick_costs *costs, const candidate *c);

/* divisions.c */

#define TY_MOST_DIVISIONS 8

/**
 * Partitions into that many stages for the current micro-batch size: the one with the least
 * bottleneck, the one with equal replicas for each stage, whose sends pair up, and both with
 * shifted cuts. The same with only cuts that one tensor crosses, because a bottleneck ignores
 * warm-up. Returns those that exist and differ.
 * @param arena owns the results
 */
ty_status ty_divisions_propose(quick_costs *costs, uint32_t stages, ty_arena *arena,
                               const division *found[TY_MOST_DIVISIONS], uint32_t *count,
                               ty_error *error) TY_MUST_CHECK;

#endif
