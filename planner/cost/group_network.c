/* The network between the members of a bucket, and the cost of collectives over it. */
#include "group_network.h"

#include <math.h>

/* Devices are numbered host by host. */
static uint32_t devices_of_host(const ty_cluster *cluster, uint32_t device)
{
    const uint32_t host = ty_cluster_device_host(cluster, device);
    const uint32_t all = ty_cluster_device_count(cluster);
    uint32_t first = device, end = device + 1;

    while (first > 0 && ty_cluster_device_host(cluster, first - 1) == host)
        first--;
    while (end < all && ty_cluster_device_host(cluster, end) == host)
        end++;
    return end - first;
}

ty_status ty_group_network_find(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                                ty_group_network *out, ty_error *error)
{
    ty_group_network network = {.members = count};
    bool is_library = true;
    ty_status status;

    network.memory_bytes_per_s = HUGE_VAL;
    for (uint32_t i = 0; i < count; i++) {
        const ty_device_type *device = ty_cluster_device_type(cluster, devices[i]);
        network.memory_bytes_per_s =
            fmin(network.memory_bytes_per_s,
                 device->memory_bandwidth_bytes_per_s * device->memory_efficiency);
    }
    for (uint32_t i = 0; i < count && is_library; i++)
        is_library = ty_is_nccl_device(ty_cluster_device_type(cluster, devices[i])->name);
    TY_CHECK(ty_cluster_rails(cluster, devices, count, &network.rails, error), status, cleanup);
    TY_CHECK(ty_cluster_ring(cluster, devices, count, &network.ring_bandwidth_bytes_per_s,
                             &network.ring_latency_s, error),
             status, cleanup);
    network.groups_per_host = devices_of_host(cluster, devices[0]) / network.rails.per_host;
    if (is_library) {
        TY_CHECK(
            ty_check_memory((network.table = ty_alloc(1, sizeof *network.table)) != NULL, error),
            status, cleanup);
        TY_CHECK(ty_communicator_on_rails(cluster, devices, count, &network.rails, &network.library,
                                          error),
                 status, cleanup);
        TY_CHECK(ty_collective_table_make(&network.library, NULL, network.table, error), status,
                 cleanup);
    }
    *out = network;
    return TY_OK;
cleanup:
    ty_group_network_clear(&network);
    return status;
}

/* Rate of a NIC for data of a framework: as the stack, or the connections over sockets, limit it.
 */
static double adapter_rate(const ty_communicator *c, double share, double flows)
{
    return fmin(c->nic_bytes_per_s * share,
                ty_socket_rate(c->transport, c->flows > 0 ? c->flows : flows));
}

/* The share of its links' rate that an algorithm of the framework reaches between hosts. */
static double reached(const ty_group_network *network)
{
    const ty_communicator *c = &network->library;

    return network->rails.hosts > 1 && c->network_share > 0
               ? c->network_share * adapter_rate(c, 1, 0) / c->nic_bytes_per_s
               : 1;
}

double ty_group_pair_share(const ty_group_network *pair, const ty_stack *stack, double *latency_s)
{
    const ty_communicator *c = &pair->library;
    const bool is_across = pair->rails.hosts > 1;

    *latency_s = 0;
    if (is_across && ty_link_transport_is_sockets(c->transport)) {
        *latency_s = c->message_latency_s;
        return adapter_rate(c, 1, stack->socket_flows) / c->nic_bytes_per_s;
    }
    return !is_across && c->is_staged ? c->path_bytes_per_s / pair->rails.around_bytes_per_s : 1;
}

void ty_group_network_clear(ty_group_network *network)
{
    ty_rails_clear(&network->rails);
    ty_free(network->table);
    *network = (ty_group_network){0};
}

/* ---- The library's own choice ------------------------------------------------------------ */

/* Bytes over each edge, in units of `bytes`: those of a ring. A reducing switch receives each GPU's
 * data once and returns a share of the result; a tree between two hosts crosses them once each way;
 * a broadcast sends slices around the ring, each over every edge once. */
static double edge_share(const ty_group_network *network, ty_collective_kind kind,
                         ty_nccl_algorithm algorithm)
{
    double n = network->members;

    if (kind == TY_BROADCAST || kind == TY_REDUCE)
        return 1;
    if (kind == TY_ALL_REDUCE && algorithm == TY_NCCL_NVLS)
        return 1 + 1 / n;
    if (kind == TY_ALL_REDUCE && network->rails.hosts == 2 &&
        (algorithm == TY_NCCL_NVLS_TREE || algorithm == TY_NCCL_TREE))
        return 1 + 1.0 / network->rails.per_host;
    return ty_collective_terms_of(kind, TY_RING, network->members).edge_share;
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

void ty_group_library_cost(const ty_group_network *network, ty_collective_kind kind, uint64_t bytes,
                           const ty_collective_choice *choice, ty_instruction_cost *cost)
{
    double transfer_s = choice->seconds - choice->latency_s;
    double rate = network->rails.bandwidth_bytes_per_s;

    *cost = (ty_instruction_cost){.latency_s = choice->latency_s,
                                  .edge_bytes =
                                      edge_share(network, kind, choice->algorithm) * (double)bytes};
    if (transfer_s > 0 && cost->edge_bytes / transfer_s < rate)
        rate = cost->rate_limit_bytes_per_s = cost->edge_bytes / transfer_s;
    cost->seconds = cost->latency_s + (cost->edge_bytes > 0 ? cost->edge_bytes / rate : 0);
}

static ty_status rings_cost(const ty_group_network *network, ty_collective_kind kind,
                            uint64_t bytes, ty_instruction_cost *cost, ty_error *error)
{
    double latency_s = fmax(network->rails.around_latency_s, network->rails.across_latency_s);

    if (network->rails.torus.axis_count > 0) {
        ty_torus_cost(&network->rails.torus, kind, bytes, cost);
        return TY_OK;
    }
    return ty_collective_cost(kind, TY_RING, network->members, bytes,
                              network->rails.bandwidth_bytes_per_s, latency_s, cost, error);
}

/* ---- Phases ------------------------------------------------------------------------------ */

/* `moved`: total bytes that a member sends. */
static void phased_cost(const ty_group_network *network, ty_algorithm algorithm, uint64_t bytes,
                        ty_instruction_cost *cost)
{
    const ty_exchange_links links = {.hosts = network->rails.hosts,
                                     .per_host = network->rails.per_host,
                                     .host_bytes_per_s = network->rails.around_bytes_per_s,
                                     .host_latency_s = network->rails.around_latency_s,
                                     .rail_bytes_per_s =
                                         network->rails.across_bytes_per_s * reached(network),
                                     .rail_latency_s = network->rails.across_latency_s,
                                     .exchange_bytes_per_s = network->rails.exchange_bytes_per_s};
    double moved = ty_collective_terms_of(TY_ALL_REDUCE, algorithm, network->members).edge_share;
    ty_exchange_time time = ty_block_manager_all_reduce(&links, (double)bytes);
    double transfer_s;

    if (algorithm == TY_HIERARCHICAL) {
        time = ty_hierarchical_all_reduce(&links, (double)bytes);
        moved =
            ty_collective_terms_of(TY_ALL_REDUCE, TY_RING, links.per_host).edge_share +
            ty_collective_terms_of(TY_ALL_REDUCE, TY_RING, links.hosts).edge_share / links.per_host;
    }
    transfer_s = time.seconds - time.latency_s;
    *cost = (ty_instruction_cost){
        .seconds = time.seconds, .latency_s = time.latency_s, .edge_bytes = moved * (double)bytes};
    if (transfer_s > 0)
        cost->rate_limit_bytes_per_s = cost->edge_bytes / transfer_s;
    if (transfer_s > 0 && algorithm == TY_HIERARCHICAL)
        cost->across_share = time.rail_s / transfer_s;
}

bool ty_group_is_inside(const ty_group_network *network)
{
    return network->rails.hosts <= 1 || network->rails.torus.axis_count > 0;
}

bool ty_group_has_library(const ty_group_network *network)
{
    return network->table != NULL || network->rails.torus.axis_count > 0;
}

void ty_exchange_by_stack(const ty_group_network *network, const ty_stack *stack,
                          ty_collective_kind kind, ty_instruction_cost *cost)
{
    const bool is_across = !ty_group_is_inside(network);
    const ty_communicator *c = &network->library;
    const double others = network->groups_per_host > 1 ? network->groups_per_host - 1 : 0;
    const double alone_s = cost->seconds - cost->latency_s;
    double transfer_s = alone_s;

    if (network->members < 2)
        return;
    if (is_across && c->nic_bytes_per_s > 0)
        transfer_s +=
            transfer_s * (cost->across_share > 0 ? cost->across_share : 1) *
            (adapter_rate(c, 1, 0) / adapter_rate(c, stack->network_share, stack->socket_flows) -
             1);
    else
        transfer_s /= is_across ? stack->network_share : stack->host_link_share;
    if (is_across) {
        transfer_s *= 1 + stack->network_contention * others;
        if (others > 0 && stack->network_group_bytes_per_s > 0)
            transfer_s = fmax(transfer_s, cost->edge_bytes / stack->network_group_bytes_per_s);
    }
    cost->latency_s += stack->collective_s + (kind == TY_ALL_REDUCE ? 2 : 1) *
                                                 (network->rails.per_host - 1) *
                                                 stack->collective_member_s;
    cost->seconds = cost->latency_s + transfer_s;
    if ((transfer_s < alone_s || transfer_s > alone_s) && cost->edge_bytes > 0)
        cost->rate_limit_bytes_per_s = cost->edge_bytes / transfer_s;
}

void ty_sum_hide(double sum_s, ty_instruction_cost *cost)
{
    const double way_s = (cost->seconds - cost->latency_s) / 2;

    if (sum_s <= way_s)
        return;
    cost->seconds = cost->latency_s + way_s + sum_s;
    cost->rate_limit_bytes_per_s = cost->edge_bytes / (way_s + sum_s);
}

void ty_exchange_add_sums(const ty_group_network *network, ty_collective_kind kind,
                          ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost)
{
    const double n = network->members;

    if (kind != TY_ALL_REDUCE || network->members < 2 || !(network->memory_bytes_per_s > 0) ||
        (algorithm != TY_PARAMETER_SERVER && algorithm != TY_BLOCK_MANAGER))
        return;
    ty_sum_hide(3 * (n - 1) / n * (double)bytes / network->memory_bytes_per_s, cost);
}

double ty_talk_hidden(const ty_group_network *ranks, const ty_stack *stack,
                      const ty_inner_collective *inner)
{
    if (inner->among == TY_EXPERT_PARALLEL)
        return inner->chosen > 0 ? stack->expert_hidden : 0;
    return inner->among == TY_TENSOR_PARALLEL && ty_group_is_inside(ranks) ? stack->tensor_hidden
                                                                           : 0;
}

double ty_agreement_s(const ty_group_network *network, const ty_stack *stack)
{
    if (network->members < 2)
        return 0;
    return stack->exchange_cycle_s / 2 +
           stack->agreement_rounds * 2 * ceil(log2(network->members)) * network->ring_latency_s +
           stack->coordinator_s * network->members;
}

ty_status ty_group_exchange_cost(const ty_group_network *network, ty_collective_kind kind,
                                 ty_algorithm algorithm, uint64_t bytes, ty_instruction_cost *cost,
                                 ty_error *error)
{
    if (algorithm == TY_AUTOMATIC && network->table != NULL) {
        const ty_collective_choice choice = ty_collective_choose(network->table, kind, bytes);
        ty_group_library_cost(network, kind, bytes, &choice, cost);
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
    TY_TRY(ty_collective_cost(kind, algorithm == TY_TREE ? TY_TREE : TY_RING, network->members,
                              bytes, network->ring_bandwidth_bytes_per_s * reached(network),
                              network->ring_latency_s, cost, error));
    if (reached(network) < 1)
        cost->rate_limit_bytes_per_s = network->ring_bandwidth_bytes_per_s * reached(network);
    return TY_OK;
}

/* ---- Inside layers ------------------------------------------------------------------------- */

static ty_status inner_cost(const ty_group_network *ranks, const ty_stack *stack,
                            const ty_inner_collective *inner, double bytes, double inside_s,
                            ty_instruction_cost *cost, ty_error *error)
{
    TY_TRY(ty_group_exchange_cost(ranks, inner->kind,
                                  ty_group_has_library(ranks) ? TY_AUTOMATIC : TY_RING,
                                  (uint64_t)bytes, cost, error));
    ty_exchange_by_stack(ranks, stack, inner->kind, cost);
    cost->seconds = fmax(cost->seconds, cost->latency_s + inside_s);
    return TY_OK;
}

ty_status ty_group_inner_cost(const ty_group_network *ranks, const ty_stack *stack,
                              const ty_inner_collective *inner, ty_instruction_cost *cost,
                              ty_error *error)
{
    const bool is_dispatch = inner->chosen > 0 && ranks->members > 1;
    double bytes = (double)inner->bytes, inside_s = 0;
    ty_instruction_cost dispatch;

    if (is_dispatch && !ty_group_is_inside(ranks)) {
        const ty_rails *rails = &ranks->rails;
        const double copy = bytes / inner->chosen, n = ranks->members, hosts = rails->hosts;
        const double most = stack->expert_hosts > 0 ? fmin(stack->expert_hosts, hosts) : hosts;
        const double across = bytes * (n - rails->per_host) / n;
        const double once = copy * ty_expert_parts_met(inner, hosts, most);
        bytes *= 1 - stack->expert_once * (1 - fmin(1, once / across));
        if (rails->per_host > 1)
            inside_s = stack->expert_once * copy *
                       ty_expert_parts_met(inner, n, most * rails->per_host) /
                       (rails->around_bytes_per_s * stack->host_link_share);
    }
    TY_TRY(inner_cost(ranks, stack, inner, bytes, inside_s, cost, error));
    if (!is_dispatch || stack->dispatch_share >= 1)
        return TY_OK;
    TY_TRY(inner_cost(ranks, stack, inner, bytes * stack->dispatch_share,
                      inside_s * stack->dispatch_share, &dispatch, error));
    cost->seconds = (cost->seconds + dispatch.seconds) / 2;
    cost->latency_s = (cost->latency_s + dispatch.latency_s) / 2;
    cost->edge_bytes = (cost->edge_bytes + dispatch.edge_bytes) / 2;
    return TY_OK;
}
