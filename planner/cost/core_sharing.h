/*
 * Internal to planner/: things that run at the same time and share the cores of their hosts. A
 * fluid model: what is demanded beyond a host's cores slows everything on it alike, by
 * cores/demand; what uses several hosts (a transfer, a collective) goes at the pace of the slowest.
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
 * @param slots       things that can run at the same time
 * @param uses        most (slot, host) pairs at the same time
 * @param host_cores  [hosts], > 0
 * @param host_demand [hosts]: the most that can ever be demanded; hosts with as many cores cost
 * nothing
 */
ty_status ty_sharing_init(ty_sharing *sharing, uint32_t slots, uint32_t uses, uint32_t hosts,
                          const double *host_cores, const double *host_demand,
                          ty_error *error) TY_MUST_CHECK;
void ty_sharing_clear(ty_sharing *sharing);

/** Starts an idle slot now; alone it takes `seconds`. */
void ty_sharing_start(ty_sharing *sharing, uint32_t slot, double seconds);
/** The slot, just started, keeps `core_share` cores of a host busy; with 0 it is only slowed by it.
 */
void ty_sharing_use(ty_sharing *sharing, uint32_t slot, uint32_t host, double core_share);
/** Goes to the next end and says which slot it is; false when nothing runs. */
bool ty_sharing_next(ty_sharing *sharing, uint32_t *slot);

#endif
