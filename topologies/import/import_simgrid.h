/* Converts SimGrid platforms to clusters: points (hosts, routers) and the wires between them.
 * import_simgrid.c reads zones and routes, import_simgrid_cluster.c builds <cluster>. */
#ifndef TY_IMPORT_SIMGRID_H
#define TY_IMPORT_SIMGRID_H

#include "import_tree.h"
#include "xml.h"

enum { SIMGRID_NAME_ROOM = 200 };

typedef struct point {
    bool is_host, is_linked;
    double flop_per_s;
    uint32_t vertex, device;
    uint32_t group; /* a point it is connected to; itself at the end of the chain */
} point;

typedef struct wire {
    double bandwidth, latency, lanes;
    uint32_t from, to; /* points; NO_INDEX: not placed by a route yet */
    bool is_fatpipe;   /* limits each message separately: may be in several places */
} wire;

/** A route between two hosts in the platform. */
typedef struct route_read {
    uint32_t from, to; /* points */
    double latency, bandwidth;
} route_read;

typedef struct platform {
    importer *im;
    tree names, link_names; /* of points, and of links in routes */
    point *points;
    uint32_t point_room;
    wire *wires;
    uint32_t wire_count, wire_room;
    uint32_t *link_wires; /* [link_names] */
    uint32_t link_room;
    route_read *routes;
    uint32_t route_count, route_room;
    bool is_apart; /* routes between two hosts are separate wires */
    uint32_t junctions;
    uint32_t redrawn; /* routes with separate wires, as they fit no graph */
    double speed;     /* speed of the first host */
    bool has_backbone;
} platform;

/** An attribute with a unit, in SI units. @param minimum, maximum accepted values */
ty_status simgrid_quantity(const importer *im, const xml_element *e, const char *key,
                           double minimum, double maximum, double *out,
                           ty_error *error) TY_MUST_CHECK;
/** A required attribute, not empty. */
ty_status simgrid_need(const importer *im, const xml_element *e, const char *key, const char **out,
                       ty_error *error) TY_MUST_CHECK;
/** Finds a point by its name, or adds it. */
ty_status simgrid_point(platform *p, const char *name, unsigned line, uint32_t *index,
                        ty_error *error) TY_MUST_CHECK;
/** Adds a host, router or switch with a new name. @param flop_per_s 0: no host */
ty_status simgrid_new_point(platform *p, const char *name, unsigned line, double flop_per_s,
                            uint32_t *index, ty_error *error) TY_MUST_CHECK;
ty_status simgrid_new_junction(platform *p, uint32_t *index, ty_error *error) TY_MUST_CHECK;
/** @param lanes parallel wires of that bandwidth */
ty_status simgrid_new_wire(platform *p, uint32_t from, uint32_t to, double bandwidth,
                           double latency, double lanes, ty_error *error) TY_MUST_CHECK;
/** The link named by an attribute, also by one of its directions (l_UP, l_DOWN). */
ty_status simgrid_wire_named(platform *p, const xml_element *e, const char *key, uint32_t *out,
                             ty_error *error) TY_MUST_CHECK;
/** Elements of a zone with routing="Cluster" other than hosts, links and routers: cabinet,
 * host_link, backbone. */
bool simgrid_is_of_star(const xml_element *e);
/** Adds them, after the zone's own hosts, links and routers. */
ty_status simgrid_add_star(platform *p, const xml_element *zone, ty_error *error) TY_MUST_CHECK;
/** Adds a <cluster>: FLAT, TORUS, FAT_TREE or DRAGONFLY. */
ty_status simgrid_add_cluster(platform *p, const xml_element *e, ty_error *error) TY_MUST_CHECK;

#endif
