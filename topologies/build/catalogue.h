/* The catalogue: kinds of devices, links and hosts, read from topologies/catalogue/. */
#ifndef TY_CATALOGUE_H
#define TY_CATALOGUE_H

#include "cluster.h"
#include "ty_topologies.h"

/** Where links of a kind are used. */
typedef enum link_use {
    LINK_TO_SWITCH, /* a device to its host's device switch */
    LINK_TO_HOST,   /* a device to its host's hub */
    LINK_DIRECT,    /* device to device */
    LINK_BRIDGE,    /* between switches, hubs and NICs of a host */
    LINK_NETWORK,   /* a NIC to its network switch */
    LINK_USE_COUNT
} link_use;

typedef struct catalogue_link {
    char *name; /* first, for ty_suggest */
    link_type type;
    link_use use;
    /* Networks only: */
    link_type trunk; /* between network switches */
    uint32_t port;   /* kind of link between a device and a NIC of its own */
} catalogue_link;

/** What the catalogue knows of a kind of device beyond ty_device_type. */
typedef struct catalogue_device {
    uint32_t scale_up, direct; /* links: to a switch among devices, and one between two; NO_INDEX */
    double scale_up_links;     /* links that `scale_up` stands for */
    uint32_t port;             /* link to its host */
    uint32_t sm; /* as NCCL writes it: NVIDIA's compute capability ("90"), AMD's compute units; 0:
                    not known */
} catalogue_device;

/** What other tools call a device: "name:NVIDIA A10G", "pci:10de:2237", "gcn:906", "alias:h100". */
typedef struct catalogue_match {
    char *text;
    uint32_t device;
} catalogue_match;

/** A whole cluster by name: short for a one-line description. */
typedef struct catalogue_cluster {
    char *name;
    char *source, *line;
} catalogue_cluster;

typedef struct catalogue_vertex {
    char *name;
    ty_vertex_kind kind;
} catalogue_vertex;

typedef struct catalogue_edge {
    uint32_t from, to; /* vertices of the host */
    uint32_t link;
    double lanes;
} catalogue_edge;

/** A server: its inside, and the kind of link from each of its NICs to the network. */
typedef struct catalogue_host {
    char *name;        /* first, for ty_suggest */
    ty_host_type type; /* the name and the source again, price and power */
    uint32_t device_type;
    uint32_t network;
    uint32_t tray;         /* host that is a part of it as machines are counted elsewhere: of a rack
                              drawn as one; NO_INDEX */
    uint32_t domain_hosts; /* how many of it may share the switch among their devices; 0: none */
    uint32_t domain_switch; /* that switch, one of the vertices */
    uint32_t vertex_count;  /* the host vertex is the first */
    catalogue_vertex *vertices;
    uint32_t edge_count;
    catalogue_edge *edges;
} catalogue_host;

typedef struct catalogue {
    ty_arena *arena; /* everything */
    uint32_t device_type_count;
    ty_device_type *device_types;
    catalogue_device *devices; /* [device_type_count] */
    uint32_t match_count, match_room;
    catalogue_match *matches;
    uint32_t link_count;
    catalogue_link *links;
    uint32_t host_count;
    catalogue_host *hosts;
    uint32_t cluster_count;
    catalogue_cluster *clusters;
    uint32_t storage_count;
    ty_storage *storage;
    uint32_t budget_count;
    ty_budget *budgets;
} catalogue;

ty_status catalogue_load(catalogue **out, ty_error *error) TY_MUST_CHECK;
void catalogue_free(catalogue *catalogue);

/* Index of the entry with a name, or NO_INDEX. */
uint32_t catalogue_find_device(const catalogue *catalogue, const char *name);
uint32_t catalogue_find_link(const catalogue *catalogue, const char *name);
uint32_t catalogue_find_host(const catalogue *catalogue, const char *name);
uint32_t catalogue_find_cluster(const catalogue *catalogue, const char *name);
/** Device that is called `text` elsewhere; case does not matter. @param key "name", "pci", ... */
/** The text with a key among those by which a device is recognised; NULL: it has none. */
const char *catalogue_alias(const catalogue *catalogue, uint32_t device, const char *key);
uint32_t catalogue_match_device(const catalogue *catalogue, const char *key, const char *text);
/** A device by what people type: its name, an alias, what its driver prints as its name, or the
 * start of one name alone: "h100". */
uint32_t catalogue_match_name(const catalogue *catalogue, const char *name);

#endif
