/**
 * @file quick_estimate.h
 * What the search looks at before it estimates: seconds and bytes of any range of layers as
 * differences of running sums, exchanges over a ring. Internal to planner/.
 */
#ifndef TY_PLANNER_QUICK_ESTIMATE_H
#define TY_PLANNER_QUICK_ESTIMATE_H

#include "candidate.h"

typedef struct quick_costs {
    const search_question *q;
    ty_status status; /* of the first look-up that failed: what it was for is infinite */
    /* [layers + 1]: bytes of all layers before; gradients without those of experts that are on
     * fewer ranks; state: parameters, gradients and optimizer; stash: of a sample */
    uint64_t *gradient_sums, *expert_sums, *state_sums, *stash_sums;
    ty_gradient_extent *factor_sums; /* [layers + 1]: of powersgd, likewise */
    /* [devices + 1] by devices that exchange; NULL: not asked for yet */
    const ty_group_network **networks, **expert_networks;
    const ty_group_network *parallel[TY_PARALLELISM_COUNT]; /* of the first rank; likewise */
    ty_server_network server_network; /* of all devices; workers 0: likewise */
    bool *takes_part;                 /* [layers]: in backward */
    /* Exchanges of all gradients between two cuts at once and plain, asked again for every division
     * and micro-batch size: [positions][positions][ranks + 1], < 0: not asked for yet; NULL where
     * that would be much. Positions are 0, the cuts and the end. */
    double *plain_exchanges;
    uint32_t *position_of; /* [layers + 1]: UINT32_MAX where no stage begins or ends */
    /* Embeddings that may travel as rows; seconds of their exchange, [row_layer_count][ranks + 1]
     * by members, < 0: not asked for yet. */
    uint32_t row_layer_count, *row_layers;
    double *row_seconds;
    uint32_t first_backward;
    uint32_t *narrow_cuts, narrow_count; /* of the question's, those that one tensor crosses */
    /* Of the micro-batch size in hand. */
    uint32_t micro_batches;
    double *layer_s;                      /* [layers]: forward + backward */
    double *compute_sums, *backward_sums; /* [layers + 1]: seconds of all layers before */
    double *transfer_s; /* [layers + 1]: activation and gradient across the cut before a layer */
    /* Where stages have replicas of their own: by all cuts, and by narrow ones; NULL: not asked for
     * yet. divisions.c's. */
    ty_partitioner *by_all_cuts, *by_narrow_cuts;
} quick_costs;

ty_status ty_quick_costs_make(const search_question *question, quick_costs *out,
                              ty_error *error) TY_MUST_CHECK;
void ty_quick_costs_clear(quick_costs *costs);
/** For a step of that many micro-batches. */
ty_status ty_quick_costs_set(quick_costs *costs, uint32_t micro_batches,
                             ty_error *error) TY_MUST_CHECK;

/**
 * Seconds of the exchange of layers [first, end) among neighbouring devices in `buckets` equal
 * parts, less what is saved by embeddings that travel as rows; infinite once a look-up failed.
 */
double ty_quick_exchange_s(quick_costs *costs, uint32_t first, uint32_t end, uint32_t members,
                           const candidate *c, double *buckets);

/** Whether a stage may fit the largest device: what it needs at least. */
bool ty_quick_fits(const quick_costs *costs, uint32_t first, uint32_t end, uint32_t replicas,
                   uint32_t stages_after);

/**
 * A step, neither from above nor from below: the slowest stage working without a pause, filling and
 * draining the others, and what of an exchange does not hide behind the last backward, or with late
 * gradients the longest exchange where that is more. It knows
 * nothing of the schedule, of shared cores, or of transfers that hide or queue.
 */
double ty_quick_step_s(quick_costs *costs, const candidate *c);

/** What compression takes off the exchanges of a step, were nothing hidden: the most it can gain.
 */
double ty_quick_compression_gain_s(quick_costs *costs, const candidate *c);

/* divisions.c */

#define TY_MOST_DIVISIONS 8

/**
 * Divisions into that many stages for the micro-batch size in hand: the one with the least
 * bottleneck, the one with as many replicas for each stage, whose transfers pair up, and both with
 * their cuts nudged; the same where one tensor crosses every cut, since a bottleneck says nothing
 * of what the pipe fills with; those of them that exist and differ.
 * @param arena owns what is found
 */
ty_status ty_divisions_propose(quick_costs *costs, uint32_t stages, ty_arena *arena,
                               const division *found[TY_MOST_DIVISIONS], uint32_t *count,
                               ty_error *error) TY_MUST_CHECK;

#endif
