/* Finds routes by a search in the part of the cluster that a route can use: it takes microseconds,
 * whatever the size of the cluster. Reuse a router for many queries. */
#ifndef TY_ROUTE_H
#define TY_ROUTE_H

#include "cluster.h"
#include "ty_topologies.h"

/** State of a vertex in the search. */
typedef struct route_label {
    uint32_t vertex; /* plus one; 0: an empty slot */
    uint32_t link, previous;
    uint64_t latency_ps;
    double bandwidth_bytes_per_s;
    bool is_settled;
} route_label;

typedef struct route_candidate {
    uint64_t latency_ps;
    double bandwidth_bytes_per_s;
    uint32_t vertex;
} route_candidate;

/** A common part of many routes: from a device up to its island's gate, or between gates. */
typedef struct route_part {
    uint32_t from, to;     /* vertices; `from` plus one, 0: an empty slot */
    uint32_t first, count; /* in the router's part_links */
} route_part;

typedef struct router {
    const ty_cluster *cluster;
    route_label *labels; /* hash table by vertex, a power of two of slots */
    uint32_t label_room, label_count;
    route_candidate *heap;
    uint32_t heap_room, heap_count;
    uint32_t *links; /* the last route found, in order from its first device */
    uint32_t link_room, link_count;
    double bandwidth_bytes_per_s, latency_s;
    bool is_asked_again; /* parts are stored from the second query on */
    route_part *parts;   /* hash table, a power of two of slots */
    uint32_t part_room, part_count;
    uint32_t *part_links;
    uint32_t part_link_room, part_link_count;
    bool is_kept;    /* for many queries: finds paths between gates from one to all */
    uint32_t *gates; /* [gate_count] ascending; NULL: not needed yet */
    uint32_t gate_count;
} router;

router router_on(const ty_cluster *cluster);
void router_clear(router *router);

/**
 * Routing rule, in this order:
 * - Devices do not forward: a route passes hosts, switches and NICs only. Two devices with a direct
 *   link may use it.
 * - A host does not forward for others if there is any other route.
 * - Least latency (to the picosecond), then most bandwidth, then least link index.
 * The way back is the same. Traffic leaves a host by the NIC nearest to its device.
 */
ty_status router_find(router *router, uint32_t from_device, uint32_t to_device,
                      ty_error *error) TY_MUST_CHECK;

#endif
