/*
 * Internal to planner/: models concurrent work that shares the cores of its hosts. A fluid model:
 * if the demand exceeds a host's cores, all work on it slows to cores/demand; work on several hosts
 * (a transfer, a collective) progresses at the rate of the slowest.
 *
 *     ty_sharing_start(sharing, slot, seconds);
 *     ty_sharing_use(sharing, slot, host, core_share);     // once per host it uses
 *     while (ty_sharing_next(sharing, &slot))              // sharing->now_s is when it ended
 *         ...start what follows...
 */
#ifndef TY_CORE_SHARING_H
#define TY_CORE_SHARING_H

#include "event_heap.h"

typedef struct ty_sharing_host ty_sharing_host;
typedef struct ty_sharing_work ty_sharing_work;
typedef struct ty_sharing_use_node ty_sharing_use_node;

typedef struct ty_sharing {
    double now_s;
    ty_event_heap ends;         /* of running slots */
    ty_sharing_work *works;     /* [slots] */
    ty_sharing_host *hosts;     /* [hosts] */
    ty_sharing_use_node *nodes; /* [uses]: which slot uses which host */
    uint32_t free_node;
    uint32_t changed_count;
    uint32_t *changed; /* [hosts]: demand changed at now_s, rates not yet adjusted */
} ty_sharing;

/**
 * @param slots       number of concurrent pieces of work
 * @param uses        maximum of concurrent (slot, host) pairs
 * @param host_cores  [hosts], > 0
 * @param host_demand [hosts]: maximum demand; hosts with as many cores cost nothing
 */
ty_status ty_sharing_init(ty_sharing *sharing, uint32_t slots, uint32_t uses, uint32_t hosts,
                          const double *host_cores, const double *host_demand,
                          ty_error *error) TY_MUST_CHECK;
void ty_sharing_clear(ty_sharing *sharing);

/** Starts an idle slot now; alone it takes `seconds`. */
void ty_sharing_start(ty_sharing *sharing, uint32_t slot, double seconds);
/** The slot, just started, keeps `core_share` cores of a host busy; with 0 the host only slows it.
 */
void ty_sharing_use(ty_sharing *sharing, uint32_t slot, uint32_t host, double core_share);
/** Advances to the next end and returns its slot; false if nothing runs. */
bool ty_sharing_next(ty_sharing *sharing, uint32_t *slot);

#endif
