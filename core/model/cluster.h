/* Internals of a cluster, for core and for the files of topologies/, which build clusters:
 * building, checking and layout in memory. */
#ifndef TY_CLUSTER_PARTS_H
#define TY_CLUSTER_PARTS_H

#include "ty_base.h"
#include "ty_cluster.h"
#include "ty_json.h"
#include "ty_program.h"

#include <stdatomic.h>

#define NO_INDEX UINT32_MAX

/* Plausibility limits. A quarter of a million devices is ten times the largest published training
 * run; a link of 1e18 bytes/s or 1000 s of latency is a wrong unit. */
enum { DEVICE_LIMIT = 1 << 18, VERTEX_LIMIT = 1 << 21, LINK_LIMIT = 1 << 22 };
#define BANDWIDTH_MINIMUM 1.0
#define BANDWIDTH_MAXIMUM 1e18
#define LATENCY_MAXIMUM 1e3
#define LANES_MINIMUM 1e-6
#define LANES_MAXIMUM 1e9
#define FLOWS_MAXIMUM 1024

/** Common properties of the links of one kind; the cluster owns the strings. */
typedef struct link_type {
    char *name, *source;
    double bandwidth_bytes_per_s; /* of one of its parallel links, per direction */
    double latency_s;
    ty_link_transport transport; /* of links to and between network switches */
    uint32_t flows;              /* see ty_link_edge */
} link_type;

typedef struct cluster_vertex {
    char *name;
    ty_vertex_kind kind;
    uint32_t device;      /* index among devices; NO_INDEX for others */
    uint32_t host;        /* index among hosts: a device's own, a host's itself; else NO_INDEX */
    uint32_t device_type; /* devices */
    uint32_t cores;       /* hosts */
    uint32_t host_type;   /* hosts; NO_INDEX if unknown */
    bool is_staged;       /* hosts: see ty_cluster_host_is_staged */
    char *bus_id;         /* devices and NICs: PCI address from a file of the machine; else NULL */
    uint32_t island;      /* component of the graph without network switches; NO_INDEX for those */
} cluster_vertex;

/** One end of a link, at a vertex. */
typedef struct cluster_port {
    uint32_t vertex, link;
} cluster_port;

typedef struct cluster_name {
    const char *name;
    uint32_t vertex;
} cluster_name;

/** Devices in the order of a torus or a mesh (the first axis changes first), each with a network
 * switch of its own that is linked to those of its neighbors. */
typedef struct cluster_torus {
    uint32_t first, count, axis_count;
    uint32_t sizes[TY_TORUS_AXES]; /* >= 2 */
    bool
        is_closed[TY_TORUS_AXES]; /* in an axis of three or more, the last is linked to the first */
} cluster_torus;

enum { NO_DIGEST, DIGEST_IN_WORK, HAS_DIGEST };

struct ty_cluster {
    atomic_uint owners;
    /* Computed on first use, by the first thread. */
    atomic_int digest_state; /* NO_DIGEST, ...; other threads compute their own while it is being
                                written */
    ty_digest digest;
    /* For a copy with changed figures, the original: the copy owns only device and link types,
     * links and storage. Else NULL. */
    ty_cluster *origin;
    ty_arena *arena; /* every string */
    char *name;
    uint32_t device_type_count, device_type_room;
    ty_device_type *device_types;
    uint32_t host_type_count, host_type_room;
    ty_host_type *host_types;
    uint32_t link_type_count, link_type_room;
    link_type *link_types;
    uint32_t storage_count;
    ty_storage storage[TY_MOST_STORAGE];
    uint32_t vertex_count, vertex_room;
    cluster_vertex *vertices;
    uint32_t link_count, link_room;
    ty_link_edge *links; /* bandwidth: that of the type times the parallel links */
    uint32_t link_kind_room, link_lane_room;
    uint32_t *link_kinds; /* [link_count] index of the type */
    double *link_lanes;   /* [link_count] parallel links in one; a fraction if oversubscribed */
    uint32_t device_count, device_room;
    uint32_t *device_vertices;
    uint32_t host_count, host_room;
    uint32_t *host_vertices;
    /* The members below are set by ty_cluster_finish. */
    cluster_name *names;   /* sorted */
    uint32_t *port_starts; /* [vertex_count + 1] */
    cluster_port *ports;   /* [2 * link_count], per vertex by ascending link */
    uint32_t island_count;
    uint32_t *island_gates; /* the only network switch an island is linked to, else NO_INDEX */
    /* [vertex_count] If network switches alone form trees: the link from each to its root, NO_INDEX
     * for roots and other vertices, and the number of links to the root. NULL if there is a
     * cycle. */
    uint32_t *root_links, *root_distances;
    uint32_t torus_count;
    cluster_torus *tori;
    uint32_t *routers; /* [device_count] the devices' own switches; NULL without a torus */
};

/* ---- Building: new, add, finish ---------------------------------------------------------- */

ty_status ty_cluster_new(const char *name, ty_cluster **out, ty_error *error) TY_MUST_CHECK;
/* Copy the type and its strings. */
ty_status ty_cluster_add_device_type(ty_cluster *cluster, const ty_device_type *type,
                                     uint32_t *index, ty_error *error) TY_MUST_CHECK;
ty_status ty_cluster_add_host_type(ty_cluster *cluster, const ty_host_type *type, uint32_t *index,
                                   ty_error *error) TY_MUST_CHECK;
ty_status ty_cluster_add_link_type(ty_cluster *cluster, const link_type *type, uint32_t *index,
                                   ty_error *error) TY_MUST_CHECK;
/** Appends a level of storage. TY_EPARSE: too many, a duplicate name, a level after one with
 * unlimited capacity, or figures out of range. @param name of the source */
ty_status ty_cluster_add_storage(ty_cluster *cluster, const ty_storage *storage, const char *name,
                                 ty_error *error) TY_MUST_CHECK;
/** Any vertex except a device. @param cores of a host vertex, else 0 */
ty_status ty_cluster_add_vertex(ty_cluster *cluster, ty_vertex_kind kind, const char *name,
                                uint32_t cores, uint32_t *vertex, ty_error *error) TY_MUST_CHECK;
/** @param host vertex of its host, or NO_INDEX to fill in later */
ty_status ty_cluster_add_device(ty_cluster *cluster, const char *name, uint32_t type, uint32_t host,
                                uint32_t *vertex, ty_error *error) TY_MUST_CHECK;
ty_status ty_cluster_add_link(ty_cluster *cluster, uint32_t from, uint32_t to, uint32_t type,
                              double lanes, ty_error *error) TY_MUST_CHECK;

/** PCI address of a vertex; the text is copied. */
ty_status ty_cluster_set_bus_id(ty_cluster *cluster, uint32_t vertex, const char *bus_id,
                                ty_error *error) TY_MUST_CHECK;

/** An error in a graph, which the caller reports in the terms of its source. */
typedef struct cluster_problem {
    const char *expected; /* NULL: nothing */
    uint32_t vertex;
} cluster_problem;

/** Sorts the names and reports duplicates. Needed before ty_cluster_find. */
ty_status ty_cluster_sort_names(ty_cluster *cluster, cluster_problem *problem,
                                ty_error *error) TY_MUST_CHECK;
/** Union and find: the least vertex represents all that are joined. */
uint32_t ty_cluster_root_of(uint32_t *parents, uint32_t vertex);
/** Vertex of that name, or NO_INDEX. */
uint32_t ty_cluster_find(const ty_cluster *cluster, const char *name);

/**
 * Checks the cluster and computes the data for queries. Rejects: no device, equal names, an
 * unreachable vertex, devices that are only reachable through another device.
 */
ty_status ty_cluster_finish(ty_cluster *cluster, cluster_problem *problem,
                            ty_error *error) TY_MUST_CHECK;

/** The tori of a cluster, from its ports. */
ty_status ty_cluster_find_tori(ty_cluster *cluster, ty_error *error) TY_MUST_CHECK;
/** A link between two vertices; NO_INDEX if there is none. */
uint32_t ty_cluster_link_between(const ty_cluster *cluster, uint32_t from, uint32_t to);

/** The figures of a device type and of storage, doubles, with their keys in files: the table for
 * reading, writing, changing and the schema of clusters. Absent ones are 0. NULL: there are no
 * more.
 */
const json_field *ty_cluster_figure_at(uint32_t index);
const json_field *ty_storage_figure_at(uint32_t index);
/** Sets the figures of a device that are in `row`, by the keys of a cluster's file; others are
 * unchanged. */
ty_status ty_cluster_read_device(const ty_json *row, ty_device_type *out,
                                 ty_error *error) TY_MUST_CHECK;

/** TY_EPARSE if a figure is out of the range of trainyard.cluster/1. @param name of the source
 */
ty_status ty_cluster_check_figures(const ty_cluster *cluster, const char *name,
                                   ty_error *error) TY_MUST_CHECK;

#endif
