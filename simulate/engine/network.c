/* Networks of clusters and folds. See network.h.
 *
 * Links of a cluster's network: both directions of each of its links, the cores of each host, the
 * store. Hosts: each device, each host, the store. */
#include "network.h"

#include "fold.h"
#include "platform.h"
#include "ty_base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ty_network {
    const ty_cluster *cluster; /* NULL: of a fold */
    const ty_fold *fold;
    uint32_t host_count, link_count;
    double *capacities;     /* [link] */
    uint32_t *host_devices; /* [host of the cluster]: its first device */
    ty_routes *found;       /* routes of the cluster */
    ty_hop *fold_hops;
    ty_route *fold_routes; /* [class of routes] */
    /* Routes of the cluster that were asked for: open addressing, `room` is a power of two. */
    ty_route **places;
    size_t room, count;
    ty_arena *blocks;
};

ty_status ty_network_of_cluster(const ty_cluster *cluster, ty_network **out, ty_error *error)
{
    ty_status status = TY_OK;
    const uint32_t links = ty_cluster_link_count(cluster), hosts = ty_cluster_host_count(cluster),
                   devices = ty_cluster_device_count(cluster);
    ty_network *network;

    TY_TRY(ty_simgrid_check_cores(cluster, error));
    TY_TRY(ty_check_memory((network = ty_alloc(1, sizeof *network)) != NULL, error));
    network->cluster = cluster;
    network->host_count = devices + hosts + 1;
    network->link_count = 2 * links + hosts + 1;
    network->capacities = ty_alloc(network->link_count, sizeof *network->capacities);
    network->host_devices = ty_alloc(hosts, sizeof *network->host_devices);
    network->blocks = ty_arena_new();
    TY_CHECK(ty_check_memory(network->capacities != NULL && network->host_devices != NULL &&
                                 network->blocks != NULL,
                             error),
             status, cleanup);
    TY_CHECK(ty_routes_new(cluster, &network->found, error), status, cleanup);
    for (uint32_t l = 0; l < 2 * links; l++)
        network->capacities[l] = ty_cluster_link(cluster, l / 2)->bandwidth_bytes_per_s;
    for (uint32_t h = 0; h < hosts; h++)
        network->capacities[2 * links + h] = ty_cluster_host_cores(cluster, h);
    network->capacities[2 * links + hosts] = 1.0;
    for (uint32_t d = devices; d-- > 0;)
        network->host_devices[ty_cluster_device_host(cluster, d)] = d;
    *out = network;
    network = NULL;
cleanup:
    ty_network_free(network);
    return status;
}

ty_status ty_network_of_fold(const ty_fold *fold, ty_network **out, ty_error *error)
{
    uint64_t count;
    const ty_fold_weight *weights = ty_fold_weights(fold, &count);
    const uint32_t flows = ty_fold_flow_count(fold);
    const double *bandwidths;
    ty_network *network = ty_alloc(1, sizeof *network);

    TY_TRY(ty_check_memory(network != NULL, error));
    network->fold = fold;
    network->host_count = 2 * flows + 1;
    bandwidths = ty_fold_links(fold, &network->link_count);
    network->capacities = ty_alloc(network->link_count, sizeof *network->capacities);
    network->fold_hops = ty_alloc(count, sizeof *network->fold_hops);
    network->fold_routes = ty_alloc(flows, sizeof *network->fold_routes);
    if (network->capacities == NULL || network->fold_hops == NULL || network->fold_routes == NULL) {
        ty_network_free(network);
        return ty_check_memory(false, error);
    }
    memcpy(network->capacities, bandwidths, network->link_count * sizeof *bandwidths);
    for (uint64_t i = 0; i < count; i++)
        network->fold_hops[i] = (ty_hop){weights[i].link, weights[i].count};
    uint64_t at = 0;
    for (uint32_t f = 0; f < flows; f++) {
        const ty_fold_flow *way = ty_fold_flow_of(fold, f);
        const uint64_t first = at;
        while (at < count && weights[at].flow == f)
            at++;
        network->fold_routes[f] = (ty_route){2 * f,
                                             2 * f + 1,
                                             way->latency_s,
                                             way->bandwidth_bytes_per_s,
                                             (uint32_t)(at - first),
                                             &network->fold_hops[first]};
    }
    *out = network;
    return TY_OK;
}

void ty_network_free(ty_network *network)
{
    if (network == NULL)
        return;
    ty_free(network->capacities);
    ty_free(network->host_devices);
    ty_free(network->fold_hops);
    ty_free(network->fold_routes);
    ty_free(network->places);
    ty_routes_free(network->found);
    ty_arena_free(network->blocks);
    ty_free(network);
}

/* ---- Hosts --------------------------------------------------------------------------------- */

/* Of a cluster's network: the first host that is not a device's own. */
static uint32_t first_common(const ty_network *network)
{
    return ty_cluster_device_count(network->cluster);
}

uint32_t ty_network_host(const ty_network *network, uint32_t device)
{
    if (network->fold != NULL)
        return network->host_count - 1;
    const uint32_t host = ty_cluster_device_host(network->cluster, device);
    return ty_cluster_host_cores(network->cluster, host) > 0 ? first_common(network) + host
                                                             : device;
}

uint32_t ty_network_store(const ty_network *network)
{
    return network->fold == NULL && ty_simgrid_store(network->cluster) != NULL
               ? network->host_count - 1
               : TY_NO_HOST;
}

uint32_t ty_network_fold_count(const ty_network *network)
{
    return network->fold != NULL ? ty_fold_flow_count(network->fold) : 0;
}

uint32_t ty_network_host_count(const ty_network *network)
{
    return network->host_count;
}

double ty_network_cores(const ty_network *network, uint32_t host, uint32_t *link)
{
    if (network->fold != NULL || host < first_common(network)) {
        *link = TY_NO_LINK;
        return 1.0;
    }
    *link = 2 * ty_cluster_link_count(network->cluster) + host - first_common(network);
    return network->capacities[*link];
}

void ty_network_host_name(const ty_network *network, uint32_t host, char out[TY_SIMGRID_NAME_SIZE])
{
    if (host + 1 == network->host_count)
        snprintf(out, TY_SIMGRID_NAME_SIZE, "%s",
                 network->fold != NULL ? TY_SIMGRID_ANYWHERE : TY_SIMGRID_STORE);
    else if (network->fold != NULL)
        snprintf(out, TY_SIMGRID_NAME_SIZE, "%s-%u", host % 2 == 0 ? "from" : "to", host / 2);
    else if (host < first_common(network))
        snprintf(out, TY_SIMGRID_NAME_SIZE, "device-%u", host);
    else
        snprintf(out, TY_SIMGRID_NAME_SIZE, "host-%u", host - first_common(network));
}

/* ---- Routes -------------------------------------------------------------------------------- */

const double *ty_network_capacities(const ty_network *network, uint32_t *count)
{
    *count = network->link_count;
    return network->capacities;
}

static ty_route **place_of(ty_network *network, uint32_t from, uint32_t to)
{
    const uint64_t key = (uint64_t)from << 32 | to;
    size_t at = (size_t)(key * 0x9e3779b97f4a7c15u >> 20) & (network->room - 1);

    while (network->places[at] != NULL &&
           (network->places[at]->from != from || network->places[at]->to != to))
        at = (at + 1) & (network->room - 1);
    return &network->places[at];
}

static ty_status grow(ty_network *network, ty_error *error)
{
    ty_route **const before = network->places;
    const size_t room = network->room;
    ty_route **grown = ty_alloc(room == 0 ? 1024 : 2 * room, sizeof(ty_route *));

    TY_TRY(ty_check_memory(grown != NULL, error));
    network->places = grown;
    network->room = room == 0 ? 1024 : 2 * room;
    for (size_t i = 0; i < room; i++)
        if (before[i] != NULL)
            *place_of(network, before[i]->from, before[i]->to) = before[i];
    ty_free(before);
    return TY_OK;
}

static uint32_t device_of(const ty_network *network, uint32_t host)
{
    return host < first_common(network) ? host
                                        : network->host_devices[host - first_common(network)];
}

static ty_status find(ty_network *network, uint32_t from, uint32_t to, ty_route **out,
                      ty_error *error)
{
    const ty_cluster *cluster = network->cluster;
    const uint32_t device = device_of(network, from);
    uint32_t at = ty_cluster_device_vertex(cluster, device);
    ty_path path;
    ty_route *route = ty_arena_alloc(network->blocks, 1, sizeof *route);

    TY_TRY(ty_routes_find(network->found, device, device_of(network, to), &path, error));
    ty_hop *hops = ty_arena_alloc(network->blocks, path.link_count, sizeof *hops);
    TY_TRY(ty_check_memory(route != NULL && hops != NULL, error));
    for (uint32_t i = 0; i < path.link_count; i++) {
        const ty_link_edge *link = ty_cluster_link(cluster, path.links[i]);
        hops[i] = (ty_hop){2 * path.links[i] + (link->from != at), 1};
        at = link->from == at ? link->to : link->from;
    }
    *route =
        (ty_route){from, to, path.latency_s, path.bandwidth_bytes_per_s, path.link_count, hops};
    *out = route;
    return TY_OK;
}

const ty_route *ty_network_route(ty_network *network, uint32_t from, uint32_t to)
{
    ty_error error = {0};
    ty_route **place;

    if (network->fold != NULL)
        return &network->fold_routes[from / 2];
    if (network->count * 2 >= network->room && grow(network, &error) != TY_OK)
        goto failed;
    place = place_of(network, from, to);
    if (*place == NULL) {
        if (find(network, from, to, place, &error) != TY_OK)
            goto failed;
        network->count++;
    }
    return *place;
failed:
    fprintf(stderr, "%s\n", error.message);
    exit(EXIT_FAILURE);
}
