/* The catalogue: kinds of devices, links and hosts, read from topologies/catalogue/. */
#ifndef TY_CATALOGUE_H
#define TY_CATALOGUE_H

#include "cluster.h"
#include "ty_topologies.h"

/** Use of a kind of link. */
typedef enum link_use {
    LINK_TO_SWITCH, /* a device to its host's device switch */
    LINK_TO_HOST,   /* a device to its host's hub */
    LINK_DIRECT,    /* device to device */
    LINK_BRIDGE,    /* between switches, hubs and NICs of a host */
    LINK_NETWORK,   /* a NIC to its network switch */
    LINK_USE_COUNT
} link_use;

/** Common properties of the networks of a ty_link_transport. */
typedef struct catalogue_transport {
    char *source;      /* of the latencies */
    char *rate_source; /* of the share */
    double rate_share; /* of the line rate that carries data */
    double latency_s, trunk_latency_s;
} catalogue_transport;

typedef struct catalogue_link {
    char *name; /* first, for ty_suggest */
    link_type type;
    link_use use;
    /* Networks only: */
    link_type trunk; /* between network switches */
    uint32_t port;   /* kind of link between a device and its own NIC */
    bool needs_rate; /* of any rate: a line has to give it */
} catalogue_link;

/** Data of a kind of device, in addition to ty_device_type. */
typedef struct catalogue_device {
    uint32_t scale_up, direct; /* links to a device switch, and between two devices; NO_INDEX */
    double scale_up_links;     /* number of links in `scale_up` */
    uint32_t port;             /* link to its host */
    bool is_staged;            /* its driver has no peer-to-peer access over PCIe */
    uint32_t sm; /* as in NCCL: NVIDIA compute capability, AMD compute units; 0: unknown */
} catalogue_device;

/** A device's name in other tools: "name:NVIDIA A10G", "pci:10de:2237", "gcn:906", "alias:h100". */
typedef struct catalogue_match {
    char *text;
    uint32_t device;
} catalogue_match;

/** A named cluster: short for a one-line description. */
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

/** A host: its inside, and the kind of link from each of its NICs to the network. */
typedef struct catalogue_host {
    char *name;        /* first, for ty_suggest */
    ty_host_type type; /* repeats name and source; price and power */
    uint32_t device_type;
    uint32_t network;
    uint32_t tray; /* host that other tools count, for a rack modeled as one host; NO_INDEX */
    uint32_t domain_hosts;  /* number of these hosts that may share a device switch; 0: none */
    uint32_t domain_switch; /* that switch, one of the vertices */
    uint32_t vertex_count;  /* the host vertex is the first */
    catalogue_vertex *vertices;
    uint32_t edge_count;
    catalogue_edge *edges;
} catalogue_host;

typedef struct catalogue {
    ty_arena *arena; /* all memory */
    uint32_t device_type_count;
    ty_device_type *device_types;
    catalogue_device *devices; /* [device_type_count] */
    uint32_t match_count, match_room;
    catalogue_match *matches;
    catalogue_transport transports[TY_LINK_COUNT]; /* by transport; the first is unused */
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
/** Device with the name `text` in other tools, ignoring case. @param key "name", "pci", ... */
/** A device's name with this key in other tools; NULL: none. */
const char *catalogue_alias(const catalogue *catalogue, uint32_t device, const char *key);
uint32_t catalogue_match_device(const catalogue *catalogue, const char *key, const char *text);
/** A device by user input: its name, an alias, its driver's name for it, or a unique prefix:
 * "h100". */
uint32_t catalogue_match_name(const catalogue *catalogue, const char *name);

#endif
