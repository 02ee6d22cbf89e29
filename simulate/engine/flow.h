/* Fluid flows: activities that share links evenly, in simulated time.
 *
 *     ty_flows *flows;
 *     TY_CHECK(ty_flows_new((double[]){1e9}, 1, &flows, error), status, cleanup);
 *     TY_CHECK(ty_flows_start(flows, &(ty_hop){0, 1}, 1, 1e6, HUGE_VAL, &me), status, cleanup);
 *     while ((who = ty_flows_next(flows)) != NULL)
 *         printf("%p ended at %g s\n", who, ty_flows_clock(flows));
 *
 * Rates are max-min fair: the rate of a flow cannot grow without that of one that is not faster
 * falling (Bertsekas, Gallager, Data Networks, 1992, section 6.5.2). A flow has a rate limit of its
 * own, and a weight on each link, which it loads with its rate times the weight. Rates change only
 * when flows start or end, and only among flows that are connected by links which cannot carry all
 * limits of their flows at once. */
#ifndef TY_FLOW_H
#define TY_FLOW_H

#include "ty_base.h"

#include <stdint.h>

typedef struct ty_flows ty_flows;

/** A link of a flow. */
typedef struct ty_hop {
    uint32_t link, weight;
} ty_hop;

/** @param capacities [link] above 0, of links that flows use */
ty_status ty_flows_new(const double *capacities, uint32_t link_count, ty_flows **out,
                       ty_error *error) TY_MUST_CHECK;
void ty_flows_free(ty_flows *flows);

/** Simulated seconds since the start. */
double ty_flows_clock(const ty_flows *flows);
/**
 * Starts a flow at the current time.
 * @param hops    each link once
 * @param amount  >= 0; the time without hops is amount / limit
 * @param limit   of its rate; > 0, may be HUGE_VAL
 * @param context what ty_flows_next returns at its end; not NULL
 */
ty_status ty_flows_start(ty_flows *flows, const ty_hop *hops, uint32_t hop_count, double amount,
                         double limit, void *context) TY_MUST_CHECK;
/** Advances to the next end of a flow, in the order of their starts for equal times.
 * @return its context; NULL: no flow is left. O(flows and links connected to those that started or
 * ended before). */
void *ty_flows_next(ty_flows *flows);

#endif
