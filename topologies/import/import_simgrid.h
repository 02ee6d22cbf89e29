/* SimGrid platforms on their way to a cluster: points (hosts, routers) and the wires between them.
 * import_simgrid.c reads zones and routes, import_simgrid_cluster.c draws <cluster>. */
#ifndef TY_IMPORT_SIMGRID_H
#define TY_IMPORT_SIMGRID_H

#include "import_tree.h"
#include "xml.h"

enum { SIMGRID_NAME_ROOM = 200 };

typedef struct point {
    bool is_host, is_linked;
    double flop_per_s;
    uint32_t vertex, device;
    uint32_t group; /* a point it is linked to, itself at the end of the chain */
} point;

typedef struct wire {
    double bandwidth, latency, lanes;
    uint32_t from, to; /* points; NO_INDEX: not placed by a route yet */
    bool is_fatpipe;   /* bounds messages one by one: may lie in several places */
} wire;

/** A route between two hosts, as the platform says it. */
typedef struct route_read {
    uint32_t from, to; /* points */
    double latency, bandwidth;
} route_read;

typedef struct platform {
    importer *im;
    tree names, link_names; /* of points and of links that routes name */
    point *points;
    uint32_t point_room;
    wire *wires;
    uint32_t wire_count, wire_room;
    uint32_t *link_wires; /* [link_names] */
    uint32_t link_room;
    route_read *routes;
    uint32_t route_count, route_room;
    bool is_apart; /* routes between two hosts are wires of their own */
    uint32_t junctions;
    uint32_t redrawn; /* routes with wires of their own, since no graph has theirs */
    double speed;     /* of the hosts, the first's */
    bool has_backbone;
} platform;

/** An attribute with a unit, in SI units. @param minimum, maximum of what is accepted */
ty_status simgrid_quantity(const importer *im, const xml_element *e, const char *key,
                           double minimum, double maximum, double *out,
                           ty_error *error) TY_MUST_CHECK;
/** An attribute that must be there and not empty. */
ty_status simgrid_need(const importer *im, const xml_element *e, const char *key, const char **out,
                       ty_error *error) TY_MUST_CHECK;
/** A point by its name; new where nothing has named it yet. */
ty_status simgrid_point(platform *p, const char *name, unsigned line, uint32_t *index,
                        ty_error *error) TY_MUST_CHECK;
/** A host, router or switch of a name of its own. @param flop_per_s 0: no host */
ty_status simgrid_new_point(platform *p, const char *name, unsigned line, double flop_per_s,
                            uint32_t *index, ty_error *error) TY_MUST_CHECK;
ty_status simgrid_new_junction(platform *p, uint32_t *index, ty_error *error) TY_MUST_CHECK;
/** @param lanes wires of that bandwidth side by side */
ty_status simgrid_new_wire(platform *p, uint32_t from, uint32_t to, double bandwidth,
                           double latency, double lanes, ty_error *error) TY_MUST_CHECK;
/** The link that an attribute names, also by one of its directions (l_UP, l_DOWN). */
ty_status simgrid_wire_named(platform *p, const xml_element *e, const char *key, uint32_t *out,
                             ty_error *error) TY_MUST_CHECK;
/** What a zone with routing="Cluster" has beside hosts, links and routers: cabinet, host_link,
 * backbone. */
bool simgrid_is_of_star(const xml_element *e);
/** Draws them, once the zone's own hosts, links and routers are there. */
ty_status simgrid_add_star(platform *p, const xml_element *zone, ty_error *error) TY_MUST_CHECK;
/** A <cluster>: FLAT, TORUS, FAT_TREE or DRAGONFLY. */
ty_status simgrid_add_cluster(platform *p, const xml_element *e, ty_error *error) TY_MUST_CHECK;

#endif
