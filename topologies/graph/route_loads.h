/* Contention of routes that are all busy: the load of each direction of a link. The cost is linear
 * in the routes' length, whatever the size of the cluster. */
#ifndef TY_ROUTE_LOADS_H
#define TY_ROUTE_LOADS_H

#include "route.h"

/** The ways (link directions) that routes use, in the order of first use, and the load of each. */
typedef struct route_loads {
    router router;
    uint64_t *ways;  /* [count]: 2 link + 0 forward, 1 backward */
    double *loads;   /* [count] */
    uint32_t *slots; /* [slot_count], a power of two: index of a way plus one; 0: empty */
    uint32_t count, room, slot_count;
} route_loads;

/** Consecutive routes. The caller frees `ways`. */
typedef struct route_ways {
    uint32_t *ways; /* [count]: indices into the loads */
    uint64_t count, room;
    double latency_s; /* of the longest */
} route_ways;

route_loads route_loads_on(const ty_cluster *cluster);
void route_loads_clear(route_loads *loads);
/** Appends the route between two devices. */
ty_status route_loads_note(route_loads *loads, uint32_t from, uint32_t to, route_ways *out,
                           ty_error *error) TY_MUST_CHECK;
/** Adds `weight` to the load of all these routes. */
void route_loads_add(route_loads *loads, const route_ways *routes, double weight);
/** Bytes per second per unit of weight on the link with the least bandwidth per load: the lowest
 * share of max-min fairness. HUGE_VAL without load. */
double route_loads_rate(const route_loads *loads);
/** Removes all loads. */
void route_loads_forget(route_loads *loads);

#endif
