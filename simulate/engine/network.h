/* Hosts, links and routes of a simulation: those of a cluster, or of a fold.
 *
 * A device computes on its own host, or, if devices share the cores of their host
 * (ty_cluster_host_cores > 0), on the common one. Each direction of a link is a link here, and so
 * are the cores of such a host and the cluster's shared store: what is shared evenly. */
#ifndef TY_NETWORK_H
#define TY_NETWORK_H

#include "flow.h"
#include "ty_topologies.h"

#include <stdbool.h>

struct ty_fold;
typedef struct ty_network ty_network;

#define TY_NO_HOST UINT32_MAX
#define TY_NO_LINK UINT32_MAX

/** A route between two hosts, without contention. */
typedef struct ty_route {
    uint32_t from, to;
    double latency_s, bandwidth_bytes_per_s;
    uint32_t hop_count;
    const ty_hop *hops;
} ty_route;

/** @return TY_EUNSUPPORTED: devices that share cores, but not their links */
ty_status ty_network_of_cluster(const ty_cluster *cluster, ty_network **out,
                                ty_error *error) TY_MUST_CHECK;
/** With the hosts 2 f and 2 f + 1 at the ends of each class f of routes, and one for all devices.
 * The fold outlives it. */
ty_status ty_network_of_fold(const struct ty_fold *fold, ty_network **out,
                             ty_error *error) TY_MUST_CHECK;
void ty_network_free(ty_network *network);

/** The host of a device. */
uint32_t ty_network_host(const ty_network *network, uint32_t device);
/** The host that represents the shared store, on whose one core a reader works with its share of
 * the store's rate; TY_NO_HOST: none, or a fold. */
uint32_t ty_network_store(const ty_network *network);
/** Number of classes of routes; 0: not of a fold. */
uint32_t ty_network_fold_count(const ty_network *network);
uint32_t ty_network_host_count(const ty_network *network);
/** Cores of a host, and the link that they are; TY_NO_LINK: no works share them. */
double ty_network_cores(const ty_network *network, uint32_t host, uint32_t *link);
/** The name of a host on the network's SimGrid platform. */
enum { TY_SIMGRID_NAME_SIZE = 64 };
void ty_network_host_name(const ty_network *network, uint32_t host, char out[TY_SIMGRID_NAME_SIZE]);

/** Bytes or cores per second of every link. */
const double *ty_network_capacities(const ty_network *network, uint32_t *count);
/** The route between two different hosts; ends the process, a child, if there is none. */
const ty_route *ty_network_route(ty_network *network, uint32_t from, uint32_t to);

#endif
