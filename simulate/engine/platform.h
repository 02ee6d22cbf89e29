/* The SimGrid platform of a cluster, for the files of simulate/: names of its hosts. */
#ifndef TY_PLATFORM_H
#define TY_PLATFORM_H

#include "network.h"
#include "ty_simulate.h"

/** Speed of one core of every simulated host: `seconds` of compute are seconds * this. */
#define TY_SIMGRID_FLOP_PER_S 1e9

/**
 * Name of the SimGrid host that a device computes on: "device-7", or, if devices share the cores of
 * their host (ty_cluster_host_cores > 0), their common multi-core host: "host-0".
 * @return TY_EINVAL for a device the cluster does not have.
 */
ty_status ty_simgrid_host_name(const ty_cluster *cluster, uint32_t device,
                               char out[TY_SIMGRID_NAME_SIZE], ty_error *error) TY_MUST_CHECK;

/** Name of the host that represents the cluster's shared store, if any: a reader keeps it busy with
 * its share of the store's rate. */
#define TY_SIMGRID_STORE "store"
/** Name of the host of all devices on the platform of a fold. */
#define TY_SIMGRID_ANYWHERE "anywhere"
/** That store; NULL: the hosts share none. */
const ty_storage *ty_simgrid_store(const ty_cluster *cluster);

/** @return TY_EUNSUPPORTED naming devices that share the cores of their host, but are linked
 * differently. */
ty_status ty_simgrid_check_cores(const ty_cluster *cluster, ty_error *error) TY_MUST_CHECK;

/** As ty_cluster_to_simgrid, for the simulator: hosts of TY_SIMGRID_FLOP_PER_S and links without
 * latency, which would be the weight of their sharing. */
ty_status ty_simgrid_platform(const ty_cluster *cluster, ty_text *xml,
                              ty_error *error) TY_MUST_CHECK;

#endif
