/* The network between the members of a bucket, and what exchanges over it cost. */
#include "group_network.h"

#include <math.h>

ty_status ty_group_network_find(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                                ty_group_network *out, ty_error *error)
{
    ty_group_network network = {.members = count};
    ty_communicator communicator;
    bool is_library = true;
    ty_status status;

    for (uint32_t i = 0; i < count && is_library; i++)
        is_library = ty_is_nccl_device(ty_cluster_device_type(cluster, devices[i])->name);
    TY_CHECK(ty_cluster_rails(cluster, devices, count, &network.rails, error), status, cleanup);
    TY_CHECK(ty_cluster_ring(cluster, devices, count, &network.ring_bandwidth_bytes_per_s,
                             &network.ring_latency_s, error),
             status, cleanup);
    if (is_library) {
        if ((network.table = ty_alloc(1, sizeof *network.table)) == NULL) {
            status = ty_fail(error, TY_ENOMEM, "out of memory");
            goto cleanup;
        }
        TY_CHECK(
            ty_communicator_on_rails(cluster, devices, count, &network.rails, &communicator, error),
            status, cleanup);
        TY_CHECK(ty_collective_table_make(&communicator, NULL, network.table, error), status,
                 cleanup);
    }
    *out = network;
    return TY_OK;
cleanup:
    ty_group_network_clear(&network);
    return status;
}

void ty_group_network_clear(ty_group_network *network)
{
    ty_rails_clear(&network->rails);
    ty_free(network->table);
    *network = (ty_group_network){0};
}

/* ---- The library's own choice ------------------------------------------------------------ */

/* Bytes over each edge, in units of `bytes`. A switch that reduces sends each GPU's data once and a
 * share of the result back; a tree between two hosts crosses them once each way. */
static double edge_share(const ty_group_network *network, ty_collective_kind kind,
                         ty_nccl_algorithm algorithm)
{
    double n = network->members;

    if (kind == TY_ALL_GATHER)
        return n - 1;
    if (kind == TY_ALL_REDUCE && algorithm == TY_NCCL_NVLS)
        return 1 + 1 / n;
    if (kind == TY_ALL_REDUCE && network->rails.hosts == 2 &&
        (algorithm == TY_NCCL_NVLS_TREE || algorithm == TY_NCCL_TREE))
        return 1 + 1.0 / network->rails.per_host;
    return ty_collective_bus_factor(kind, network->members);
}

void ty_group_automatic_edge(const ty_group_network *network, ty_collective_kind kind,
                             uint64_t bytes, double *edge_bytes, double *link_bytes_per_s)
{
    ty_nccl_algorithm algorithm = TY_NCCL_RING;

    if (network->table != NULL)
        algorithm = ty_collective_choose(network->table, kind, bytes).algorithm;
    *edge_bytes = edge_share(network, kind, algorithm) * (double)bytes;
    *link_bytes_per_s = network->rails.bandwidth_bytes_per_s;
}

static void library_cost(const ty_group_network *network, ty_collective_kind kind, uint64_t bytes,
                         ty_instruction_cost *cost)
{
    ty_collective_choice choice = ty_collective_choose(network->table, kind, bytes);
    double transfer_s = choice.seconds - choice.latency_s, rate;

    *cost = (ty_instruction_cost){.latency_s = choice.latency_s};
    ty_group_automatic_edge(network, kind, bytes, &cost->edge_bytes, &rate);
    if (transfer_s > 0 && cost->edge_bytes / transfer_s < rate)
        rate = cost->rate_limit_bytes_per_s = cost->edge_bytes / transfer_s;
    cost->seconds = cost->latency_s + (cost->edge_bytes > 0 ? cost->edge_bytes / rate : 0);
}

static ty_status rings_cost(const ty_group_network *network, ty_collective_kind kind,
                            uint64_t bytes, ty_instruction_cost *cost, ty_error *error)
{
    double latency_s = fmax(network->rails.around_latency_s, network->rails.across_latency_s);

    return ty_collective_cost(kind, TY_RING, network->members, bytes,
                              network->rails.bandwidth_bytes_per_s, latency_s, cost, error);
}

/* ---- Phases ------------------------------------------------------------------------------ */

static ty_exchange_links links_of(const ty_rails *rails)
{
    return (ty_exchange_links){.hosts = rails->hosts,
                               .per_host = rails->per_host,
                               .host_bytes_per_s = rails->around_bytes_per_s,
                               .host_latency_s = rails->around_latency_s,
                               .rail_bytes_per_s = rails->across_bytes_per_s,
                               .rail_latency_s = rails->across_latency_s,
                               .exchange_bytes_per_s = rails->exchange_bytes_per_s};
}

/* `moved`: bytes a member sends in all. */
static void phased_cost(const ty_group_network *network, ty_algorithm algorithm, uint64_t bytes,
                        ty_instruction_cost *cost)
{
    const ty_exchange_links links = links_of(&network->rails);
    double g = links.per_host, hosts = links.hosts, n = g * hosts, moved = 2 * (n - 1) / n;
    ty_exchange_time time = ty_block_manager_all_reduce(&links, (double)bytes);
    double transfer_s;

    if (algorithm == TY_HIERARCHICAL) {
        time = ty_hierarchical_all_reduce(&links, (double)bytes);
        moved = 2 * (g - 1) / g + 2 * (hosts - 1) / hosts / g;
    }
    transfer_s = time.seconds - time.latency_s;
    *cost = (ty_instruction_cost){
        .seconds = time.seconds, .latency_s = time.latency_s, .edge_bytes = moved * (double)bytes};
    if (transfer_s > 0)
        cost->rate_limit_bytes_per_s = cost->edge_bytes / transfer_s;
    if (transfer_s > 0 && algorithm == TY_HIERARCHICAL)
        cost->across_share = time.rail_s / transfer_s;
}

ty_status ty_group_exchange_cost(const ty_group_network *network, ty_collective_kind kind,
                                 ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost,
                                 ty_error *error)
{
    if (algorithm == TY_AUTOMATIC && network->table != NULL) {
        library_cost(network, kind, bytes, cost);
        return TY_OK;
    }
    if (algorithm == TY_AUTOMATIC)
        return rings_cost(network, kind, bytes, cost, error);
    if (kind == TY_ALL_REDUCE && network->members > 1 &&
        (algorithm == TY_HIERARCHICAL || algorithm == TY_PARAMETER_SERVER ||
         algorithm == TY_BLOCK_MANAGER)) {
        phased_cost(network, algorithm, bytes, cost);
        return TY_OK;
    }
    return ty_collective_cost(kind, algorithm == TY_TREE ? TY_TREE : TY_RING, network->members,
                              bytes, network->ring_bandwidth_bytes_per_s, network->ring_latency_s,
                              cost, error);
}
