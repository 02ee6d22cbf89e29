/* What routes leave each other when all are busy: how much each direction of a link carries. What
 * is asked costs no more than the routes are long, whatever the size of the cluster. */
#ifndef TY_ROUTE_LOADS_H
#define TY_ROUTE_LOADS_H

#include "route.h"

/** The ways (a link in one direction) that routes take, in the order in which they were met, and
 * how much each carries. */
typedef struct route_loads {
    router router;
    uint64_t *ways;  /* [count]: 2 link + 0 forth, 1 back */
    double *loads;   /* [count] */
    uint32_t *slots; /* [slot_count], a power of two: index of a way plus one; 0: empty */
    uint32_t count, room, slot_count;
} route_loads;

/** Routes, one behind the other. Freed by who made it: `ways`. */
typedef struct route_ways {
    uint32_t *ways; /* [count]: indices among the loads */
    uint64_t count, room;
    double latency_s; /* of the longest */
} route_ways;

route_loads route_loads_on(const ty_cluster *cluster);
void route_loads_clear(route_loads *loads);
/** Appends the route between two devices. */
ty_status route_loads_note(route_loads *loads, uint32_t from, uint32_t to, route_ways *out,
                           ty_error *error) TY_MUST_CHECK;
/** All of the routes carry `weight` more. */
void route_loads_add(route_loads *loads, const route_ways *routes, double weight);
/** Bytes per second of a unit of weight, by the link with least bandwidth for what it carries: the
 * least share of max-min fairness. HUGE_VAL where nothing is carried. */
double route_loads_rate(const route_loads *loads);
/** Nothing carries anything. */
void route_loads_forget(route_loads *loads);

#endif
