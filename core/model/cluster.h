/* Inside of a cluster, for core and for the files of topologies/, which build them: how one is
 * built, checked and held. */
#ifndef TY_CLUSTER_PARTS_H
#define TY_CLUSTER_PARTS_H

#include "ty_base.h"
#include "ty_cluster.h"
#include "ty_json.h"
#include "ty_program.h"

#include <stdatomic.h>

#define NO_INDEX UINT32_MAX

/* Bounds of what is believed. A quarter of a million devices is ten times the largest training run
 * published; a link of 1e18 bytes/s or 1000 s of latency is a slip of the unit. */
enum { DEVICE_LIMIT = 1 << 18, VERTEX_LIMIT = 1 << 21, LINK_LIMIT = 1 << 22 };
#define BANDWIDTH_MINIMUM 1.0
#define BANDWIDTH_MAXIMUM 1e18
#define LATENCY_MAXIMUM 1e3
#define LANES_MINIMUM 1e-6
#define LANES_MAXIMUM 1e9

/** What links of one kind have in common; the strings belong to the cluster. */
typedef struct link_type {
    char *name, *source;
    double bandwidth_bytes_per_s; /* of one lane, per direction */
    double latency_s;
} link_type;

typedef struct cluster_vertex {
    char *name;
    ty_vertex_kind kind;
    uint32_t device;      /* index among devices; NO_INDEX for others */
    uint32_t host;        /* index among hosts: a device's own, a host's itself; else NO_INDEX */
    uint32_t device_type; /* devices */
    uint32_t cores;       /* hosts */
    uint32_t host_type;   /* hosts; NO_INDEX where nothing more is known of it */
    char *bus_id;    /* devices and NICs: PCI address where a file of the machine gave it; NULL */
    uint32_t island; /* part of the graph without its network switches; NO_INDEX for those */
} cluster_vertex;

/** One end of a link, seen from a vertex. */
typedef struct cluster_port {
    uint32_t vertex, link;
} cluster_port;

typedef struct cluster_name {
    const char *name;
    uint32_t vertex;
} cluster_name;

/** Devices in the order of a torus or a mesh (the first axis changes first), each with a network
 * switch of its own that is linked to its neighbours'. */
typedef struct cluster_torus {
    uint32_t first, count, axis_count;
    uint32_t sizes[TY_TORUS_AXES]; /* >= 2 */
    bool is_closed[TY_TORUS_AXES]; /* the last of an axis of three or more is linked to its first */
} cluster_torus;

enum { NO_DIGEST, DIGEST_IN_WORK, HAS_DIGEST };

struct ty_cluster {
    atomic_uint owners;
    /* Made when it is first asked for, by whoever comes first. */
    atomic_int digest_state; /* NO_DIGEST, ...; others make their own while it is being written */
    ty_digest digest;
    /* Of a cluster with other figures: it has device and link types, links and storage of its own,
     * everything else is the origin's. NULL else. */
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
    ty_link_edge *links; /* bandwidth: that of the type times the lanes */
    uint32_t link_kind_room, link_lane_room;
    uint32_t *link_kinds; /* [link_count] index of the type */
    double *link_lanes;   /* [link_count] parallel links in one; a fraction if oversubscribed */
    uint32_t device_count, device_room;
    uint32_t *device_vertices;
    uint32_t host_count, host_room;
    uint32_t *host_vertices;
    /* From here on: made by ty_cluster_finish. */
    cluster_name *names;   /* sorted */
    uint32_t *port_starts; /* [vertex_count + 1] */
    cluster_port *ports;   /* [2 * link_count], of one vertex by ascending link */
    uint32_t island_count;
    uint32_t *island_gates; /* the only network switch an island is linked to, else NO_INDEX */
    /* [vertex_count] Where network switches alone make trees: the link that leads from one to its
     * root, NO_INDEX of roots and of other vertices, and how many there are up to it. NULL where
     * there is a cycle. */
    uint32_t *root_links, *root_distances;
    uint32_t torus_count;
    cluster_torus *tori;
    uint32_t *routers; /* [device_count] switches of their own; NULL where there is no torus */
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
/** Behind those that are there. TY_EPARSE: one too many, of a name that is taken, behind one that
 * holds everything, or with figures that no file may have. @param name of the source */
ty_status ty_cluster_add_storage(ty_cluster *cluster, const ty_storage *storage, const char *name,
                                 ty_error *error) TY_MUST_CHECK;
/** Anything but a device. @param cores of a host vertex, else 0 */
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

/** What is wrong with a graph, for the caller to put into the words of its source. */
typedef struct cluster_problem {
    const char *expected; /* NULL: nothing */
    uint32_t vertex;
} cluster_problem;

/** Sorts the names; reports two that are equal. Needed before ty_cluster_find. */
ty_status ty_cluster_sort_names(ty_cluster *cluster, cluster_problem *problem,
                                ty_error *error) TY_MUST_CHECK;
/** Union and find: the least vertex stands for all that are joined. */
uint32_t ty_cluster_root_of(uint32_t *parents, uint32_t vertex);
/** Vertex of that name, or NO_INDEX. */
uint32_t ty_cluster_find(const ty_cluster *cluster, const char *name);

/**
 * Checks the whole and derives what queries need. Refused: no device, equal names, a vertex that
 * cannot be reached, devices that can only be reached through another device.
 */
ty_status ty_cluster_finish(ty_cluster *cluster, cluster_problem *problem,
                            ty_error *error) TY_MUST_CHECK;

/** The tori of a cluster that has its ports. */
ty_status ty_cluster_find_tori(ty_cluster *cluster, ty_error *error) TY_MUST_CHECK;
/** A link between two vertices; NO_INDEX where there is none. */
uint32_t ty_cluster_link_between(const ty_cluster *cluster, uint32_t from, uint32_t to);

/** The figures of a device type and of storage, doubles, as files have them: what reading,
 * writing, changing and the schema of clusters follow. Absent ones are 0. NULL: there are no more.
 */
const json_field *ty_cluster_figure_at(uint32_t index);
const json_field *ty_storage_figure_at(uint32_t index);
/** The figures of a device that `row` has, in the keys of a cluster's file; others stay as they
 * are. */
ty_status ty_cluster_read_device(const ty_json *row, ty_device_type *out,
                                 ty_error *error) TY_MUST_CHECK;

/** TY_EPARSE where a figure is beyond what trainyard.cluster/1 may hold. @param name of the source
 */
ty_status ty_cluster_check_figures(const ty_cluster *cluster, const char *name,
                                   ty_error *error) TY_MUST_CHECK;

#endif
