/**
 * @file ty_topologies.h
 * A cluster: devices, hosts, switches and the links between them, as a graph (igraph underneath).
 * Vertices are devices, hosts (the PCIe/memory hub of a node), NVLink switches, NICs and network
 * switches; edges are links with a bandwidth per direction, a latency and a kind.
 *
 * Clusters come from one line of text, from the catalogue (data: topologies/catalogue/), from a
 * `trainyard.cluster/1` file, or from this machine:
 * - "16x dgx-a100", "4x p100-server": hosts of the catalogue around one non-blocking switch.
 * - "leaf:4 host:8 gpu:8 @h100-sxm nvlink4 ndr400 oversub:2": leaves, hosts per leaf, devices per
 *   host; device, link inside the host, link of each device's own NIC to its leaf, oversubscription
 *   of the leaf's uplinks. "pod:4" before them adds a level, "leaf:1" may be left out, and a
 *   device's name may be cut to a unique prefix ("@h100"). "leaf:4 host:8 dgx-a100" takes hosts of
 *   the catalogue instead.
 * - "8x dgx-a100 + 4x dgx1-v100": several kinds of host; "torus:4x4x4 @tpu-v4 ici-v4 host:4",
 *   "mesh:4x8 @tpu-v6e ici-v6e host:4"; and sites joined by a WAN: "site:2 [4x dgx-a100] wan10",
 *   "[4x p4d.24xlarge] + [8x g5.48xlarge] wan10".
 * - A cluster of the catalogue by its name, or a file of another tool
 *   (docs/guides/describe-a-cluster.md).
 * - "local:4": four ranks on this machine, as measured by a profile.
 * - In a line, "@./mine.json" for a custom device (docs/reference/file-formats.md:
 *   trainyard.device/1).
 * - Any of these followed by "storage=nas" or "storage=nas{bandwidth=65GB/s}": storage of samples.
 *
 * Devices are numbered host by host, and within a host in the catalogue's order. That order gives
 * the best links to devices with adjacent numbers, and to the last and the first one. Functions on
 * the whole graph (opening, bisection) use igraph: call them from one thread at a time. Paths and
 * rings have no such limit.
 */
#ifndef TY_TOPOLOGIES_H
#define TY_TOPOLOGIES_H

#include "ty_core.h"

/**
 * Opens a cluster by its name, one-line description or file path.
 * @param local needed for "local:N" only: this machine's profile (TY_EINVAL without it)
 * @return TY_EPARSE: bad content or grammar, with the place and the nearest known name.
 */
ty_status ty_cluster_open(const char *text, const ty_profile *local, ty_cluster **out,
                          ty_error *error) TY_MUST_CHECK;
/**
 * Expands a short form to the line that ty_cluster_open reads: "H100x8" to "1x dgx-h100"; other
 * texts stay as they are. @param line [out] free with ty_free
 */
ty_status ty_cluster_line(const char *text, char **line, ty_error *error) TY_MUST_CHECK;
/** Checks a custom device file, as "@FILE" in a line reads it (trainyard.device/1). */
ty_status ty_device_file_check(const char *path, ty_error *error) TY_MUST_CHECK;
/** Whether `text` names this machine, and how many ranks (only "local": one per core, 0 here). */
bool ty_cluster_is_local(const char *text, uint32_t *ranks);
/** "local:N" from a measured profile: one device per rank, all on one host whose cores they share.
 */
ty_status ty_cluster_local(uint32_t ranks, const ty_profile *profile, ty_cluster **out,
                           ty_error *error) TY_MUST_CHECK;
/**
 * Adds the storage of the words "storage=..." in a line, and sets the cluster's name to the line;
 * does nothing if it has none. ty_cluster_open calls this. The cluster must have no other owner
 * yet.
 */
ty_status ty_cluster_describe_storage(ty_cluster *cluster, const char *text,
                                      ty_error *error) TY_MUST_CHECK;

/* ---- Importing --------------------------------------------------------------------------- */

typedef struct ty_cluster_import_options {
    const char *format;      /* name of a format; NULL: detected from the content */
    const char *host;        /* the catalogue's host for machines whose inside the file omits */
    const char *device;      /* the catalogue's device if the file names none */
    uint32_t hosts;          /* copies of a machine that is described once; 0: 1 */
    double oversubscription; /* of switches whose uplinks have no rate in the file; 0: 1 */
    const char *root;        /* switch at the root of the part to import; NULL: all */
} ty_cluster_import_options;

/** Result of an import: the format, and notes on what it assumed or left out. */
typedef struct ty_import_notes {
    const char *format; /* static */
    char *text;         /* one per line, "" for none; free with ty_import_notes_clear */
} ty_import_notes;
void ty_import_notes_clear(ty_import_notes *notes);

/**
 * Reads a cluster from a file of another tool: NCCL/RCCL topology XML, `nvidia-smi topo -m`, Slurm
 * topology.conf, and so on (docs/guides/describe-a-cluster.md). A single machine becomes
 * options->hosts equal ones around one switch. "-" is standard input.
 * @param options may be NULL
 * @param notes   [out] may be NULL
 * @return TY_EPARSE: invalid content, or none of these formats; TY_EINVAL: a needed option is
 *         missing or names nothing; TY_EUNSUPPORTED: a known format that does not describe a
 *         cluster, such as an NCCL graph file.
 */
ty_status ty_cluster_import(const char *path, const ty_cluster_import_options *options,
                            ty_cluster **out, ty_import_notes *notes,
                            ty_error *error) TY_MUST_CHECK;
/** The same from memory. @param name file name for messages */
ty_status ty_cluster_import_text(const char *text, size_t length, const char *name,
                                 const ty_cluster_import_options *options, ty_cluster **out,
                                 ty_import_notes *notes, ty_error *error) TY_MUST_CHECK;

/** Names of the catalogue's hosts (each is a cluster, and so is "Nx HOST") and clusters, sorted;
 * free each and the array with ty_free. */
ty_status ty_catalogue_list(char ***names, uint32_t *count, ty_error *error) TY_MUST_CHECK;

/** The catalogue's device that `typed` stands for, "h100-sxm" for "h100".
 *  @param name [out] free with ty_free; NULL: none */
ty_status ty_device_named(const char *typed, char **name, ty_error *error) TY_MUST_CHECK;

/**
 * Another tool's name for a device of the catalogue: of the texts that identify the device, the one
 * with this key ("sky": SkyPilot's accelerators, "pci": vendor and device).
 * @param alias [out] free with ty_free; NULL if the catalogue has no such text, or no such device
 */
ty_status ty_device_alias(const char *device, const char *key, char **alias,
                          ty_error *error) TY_MUST_CHECK;
/**
 * Names in brackets, as Slurm writes them: "node[01-04,07],login1".
 * @param count expected number of names; else TY_EINVAL
 * @param names [out, count] free each and the array with ty_free
 */
ty_status ty_host_names(const char *text, uint32_t count, char ***names,
                        ty_error *error) TY_MUST_CHECK;
/**
 * Copies a cluster with slower or removed links.
 * @param factors [link] remaining share of its bandwidth; 0: removes the link, which lowers the
 *                index of later links by one
 * @return TY_EINVAL: a factor outside 0 to 1, or above 0 and below a millionth; TY_EINFEASIBLE: a
 *         device or switch, which the message names, is cut off
 */
ty_status ty_cluster_impaired(const ty_cluster *cluster, const double *factors, ty_cluster **out,
                              ty_error *error) TY_MUST_CHECK;
/** The link between two vertices by their names, in either order; TY_EINVAL names the missing
 * one. */
ty_status ty_cluster_find_link(const ty_cluster *cluster, const char *from, const char *to,
                               uint32_t *link, ty_error *error) TY_MUST_CHECK;

/** Route of one message between two devices. */
typedef struct ty_path {
    uint32_t link_count;
    uint32_t *links;              /* in order from the first device; free with ty_path_clear */
    double bandwidth_bytes_per_s; /* narrowest link; HUGE_VAL from a device to itself */
    double latency_s;             /* sum */
} ty_path;
/**
 * The path of least latency (to the picosecond); ties go to the highest bandwidth, then to the
 * lowest link index. Devices do not forward, so a path passes only hosts, switches and NICs, or is
 * one direct link. Hosts do not forward for other hosts unless there is no other route. The way
 * back is the same. So traffic leaves a host by the NIC nearest to its device. Costs microseconds,
 * whatever the size of the cluster.
 * @return TY_EINVAL for a device that does not exist.
 */
ty_status ty_cluster_path(const ty_cluster *cluster, uint32_t from_device, uint32_t to_device,
                          ty_path *out, ty_error *error) TY_MUST_CHECK;
void ty_path_clear(ty_path *path);

/** Cache for many path queries: finds the common parts of routes once. Belongs to one thread; the
 * cluster outlives it. */
typedef struct ty_routes ty_routes;
ty_status ty_routes_new(const ty_cluster *cluster, ty_routes **out, ty_error *error) TY_MUST_CHECK;
void ty_routes_free(ty_routes *routes);
/** As ty_cluster_path. @param out [out] links are valid until the next query; the caller must not
 * clear them */
ty_status ty_routes_find(ty_routes *routes, uint32_t from_device, uint32_t to_device, ty_path *out,
                         ty_error *error) TY_MUST_CHECK;

/**
 * Bandwidth and latency of a closed ring over `devices`, in this order, with all its edges busy:
 * the bandwidth per edge after contention among the ring's own edges, and the largest edge latency.
 */
ty_status ty_cluster_ring(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                          double *bandwidth_bytes_per_s, double *latency_s,
                          ty_error *error) TY_MUST_CHECK;

/**
 * Devices host by host, for collectives that keep every NIC of a host busy. Each device sends to
 * the next device of its host ("around") and to the device of the same index in the next host
 * ("across"). A ring in channels, as in NCCL, uses all rings of this kind at once: of E bytes over
 * each edge, a device sends (g-1)/g E around and E/g across.
 */
typedef struct ty_rails {
    uint32_t hosts, per_host; /* unequal numbers of devices count as hosts of one */
    uint32_t *order;          /* [hosts][per_host] index into `devices`, on a torus by their
                                 numbers; ty_rails_clear */
    double around_share; /* share of the traffic around on the direct link to the next device, as
                            meshes have several rings; 1 else */
    double around_bytes_per_s; /* per device, when all send around; HUGE_VAL with one per host */
    double across_bytes_per_s; /* when all send across; HUGE_VAL with one host */
    double around_latency_s, across_latency_s; /* largest; 0 if there is no such edge */
    double exchange_bytes_per_s;  /* all-to-all: S over the seconds in which every device sends S/n
                                     to every other; HUGE_VAL for one device */
    double bandwidth_bytes_per_s; /* E over the seconds of the channeled ring, both ways at once;
                                     on a torus, of an all-gather along all its axes */
    ty_torus torus;               /* ty_cluster_torus */
} ty_rails;
/**
 * Rate of each of many routes while all are in use: the minimum over all links of the link's
 * bandwidth divided by the routes that use it in one direction. Routes from a device to itself have
 * no limit.
 * @param from, to [count] devices
 * @param use      share of the time that each route is in use; 1: always
 * @param bytes_per_s [out] of the slowest; HUGE_VAL if no route uses a link
 */
ty_status ty_cluster_shared_rate(const ty_cluster *cluster, const uint32_t *from,
                                 const uint32_t *to, uint32_t count, double use,
                                 double *bytes_per_s, ty_error *error) TY_MUST_CHECK;

/**
 * The box that different devices fill on a torus or mesh (ty_program.h). axis_count is 0 if there
 * are fewer than two, if they are not all of one torus, or if they are not evenly spaced along its
 * axes. O(count x axes).
 */
ty_status ty_cluster_torus(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                           ty_torus *out, ty_error *error) TY_MUST_CHECK;

/** O(count) routes. */
ty_status ty_cluster_rails(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                           ty_rails *out, ty_error *error) TY_MUST_CHECK;
void ty_rails_clear(ty_rails *rails);

/** Links of a device to others of its host and to the network, as far as its routes show them. */
typedef struct ty_device_ports {
    double links_bytes_per_s;   /* sum of its direct links to devices or device switches that are no
                                   PCI; 0: none */
    const char *network_kind;   /* of the link from its NIC to the network; NULL: no network */
    uint32_t network_link;      /* index of that link */
    double network_bytes_per_s; /* of that link */
    double up_bytes_per_s;      /* narrowest link from the device up to it */
    const char *bridge_kind;    /* of a link of its host's hub; NULL: none */
} ty_device_ports;
/** @param outside a device of another host, whose route shows the network link; TY_NO_DEVICE: no
 *                network */
ty_status ty_cluster_device_ports(const ty_cluster *cluster, uint32_t device, uint32_t outside,
                                  ty_device_ports *out, ty_error *error) TY_MUST_CHECK;
#define TY_NO_DEVICE UINT32_MAX

/** Least capacity, in bytes/s, of any cut that splits the hosts into two halves as equal as can be:
 * exact max-flow between the first and the second half in host order. 0 with fewer than two hosts.
 */
ty_status ty_cluster_bisection(const ty_cluster *cluster, double *bandwidth_bytes_per_s,
                               ty_error *error) TY_MUST_CHECK;

/**
 * Writes a cluster in the format of another tool: "dot" (Graphviz), "slurm" (topology.conf) or
 * "nccl" (topology XML, which describes one host). Slurm gets blocks if hosts share NVLink domains.
 * In a fabric whose switches have several parents, it gets the leaves below one switch. It refuses
 * a torus.
 * @param host host that a file of one host describes; NULL: any, if all are alike
 * @param text appended to
 * @return TY_EINVAL: no such format or host, or no host and they differ; TY_EUNSUPPORTED: the
 * format cannot express the cluster
 */
ty_status ty_cluster_export(const ty_cluster *cluster, const char *format, const char *host,
                            ty_text *text, ty_error *error) TY_MUST_CHECK;

/* ---- Analyses ---------------------------------------------------------------------------- */

/** Rings through all given devices that can run concurrently, each on its own link lanes. */
typedef struct ty_ring_set {
    uint32_t ring_count, device_count;
    uint32_t *devices;            /* [ring_count][device_count]; free with ty_ring_set_clear */
    double bandwidth_bytes_per_s; /* sum over the rings of their slowest link lane, per direction */
    bool is_routed;               /* over the routes, without link lanes of their own */
} ty_ring_set;
void ty_ring_set_clear(ty_ring_set *set);
/**
 * As many rings over direct links (NVLink meshes) as the links' lanes allow, each lane used once.
 * If up to nine devices have no such ring, the best one in which some edges pass through a common
 * neighbor, as in NCCL (src/graph/paths.cc, PATH_NVB): five GPUs of a DGX-1. Else the ring over
 * the routes in the given order. Exact for meshes of up to eight devices; for more, the best within
 * a fixed budget of steps.
 * @param count 2 to 64
 */
ty_status ty_cluster_find_rings(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                                ty_ring_set *out, ty_error *error) TY_MUST_CHECK;

/** A switch, a NIC, another host or a link without which devices are cut off. */
typedef struct ty_weak_point {
    bool is_link;
    uint32_t index;   /* of the vertex, or link */
    uint32_t devices; /* cut off from the larger part of the network (counted in vertices) */
} ty_weak_point;
/**
 * Single points of failure, those that cut off the most devices first. A host counts if devices of
 * other hosts need it.
 * @param points [out] free with ty_free
 */
ty_status ty_cluster_weak_points(const ty_cluster *cluster, ty_weak_point **points, uint32_t *count,
                                 ty_error *error) TY_MUST_CHECK;

/**
 * Classes of interchangeable devices, by their type and all their links: colour refinement, and for
 * clusters of up to some thousand vertices the orbits of the automorphisms, which are exact.
 * (Colour refinement alone never separates interchangeable devices, but may join others.)
 * @param classes  [out, device_count] numbered from 0 in the order of their first device
 * @param is_exact [out] may be NULL
 */
ty_status ty_cluster_classes(const ty_cluster *cluster, uint32_t *classes, uint32_t *class_count,
                             bool *is_exact, ty_error *error) TY_MUST_CHECK;

/** Place of a device in the routes. */
typedef struct ty_device_place {
    uint32_t kind;   /* TY_NO_PLACE: unique */
    uint32_t island; /* first device of its host, or of its rack with its own switches */
    uint32_t gate;   /* vertex of the only network switch that the island is linked to */
} ty_device_place;
#define TY_NO_PLACE UINT32_MAX
/**
 * Places of all devices. Two groups of devices have the same routes, up to a choice of equal links,
 * on two conditions. Corresponding members have the same kinds and gates. Their islands are the
 * same ones for the same members and in the same order. If all members of a group have one gate,
 * which one does not matter. Computes no routes: O(vertices + links).
 * @param places [out, device_count]
 */
ty_status ty_cluster_places(const ty_cluster *cluster, ty_device_place *places,
                            ty_error *error) TY_MUST_CHECK;

/**
 * Opens a budget by a text: "phone", "phone,time=20ms", "memory=100KB". The name is from
 * `topologies/catalogue/budgets.json`; the words after it are those of ty_budget_read.
 * @return TY_EINVAL: unknown name, with the nearest one; as ty_budget_read and ty_budget_check
 */
ty_status ty_budget_open(const char *text, ty_budget *out, ty_error *error) TY_MUST_CHECK;

/** Weaknesses of a cluster, to know before buying it. */
typedef enum ty_finding_kind {
    TY_FINDING_OVERSUBSCRIBED, /* a switch; value: downlink over uplink bandwidth */
    TY_FINDING_WEAK_POINT,     /* value: devices cut off */
    TY_FINDING_SLOW_LINK,      /* slower than similar links; value: share of the usual bandwidth */
    TY_FINDING_ODD_DEVICE,     /* few devices are linked like it; value: their number */
    TY_FINDING_KIND_COUNT
} ty_finding_kind;
typedef struct ty_finding {
    ty_finding_kind kind;
    bool is_link;
    uint32_t index; /* of a vertex, or link */
    double value;
} ty_finding;
const char *ty_finding_kind_name(ty_finding_kind kind);
/** @param findings [out] by kind, then the worst first; free with ty_free */
ty_status ty_cluster_examine(const ty_cluster *cluster, ty_finding **findings, uint32_t *count,
                             ty_error *error) TY_MUST_CHECK;

#endif
