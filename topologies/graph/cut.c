/* Bisection bandwidth: the minimum cut between two halves of the hosts. */
#include "cluster.h"
#include "flow_reduce.h"
#include "graph.h"
#include "ty_topologies.h"

/* Splits the hosts with devices: those before the result form the first half, which gets the odd
 * one. 0 if fewer than two have devices. */
static ty_status first_of_second_half(const ty_cluster *cluster, uint32_t *host, ty_error *error)
{
    uint32_t count = 0, seen = 0;
    bool *has_device = ty_alloc(cluster->host_count, sizeof *has_device);

    TY_TRY(ty_check_memory(has_device != NULL, error));
    for (uint32_t d = 0; d < cluster->device_count; d++)
        has_device[ty_cluster_device_host(cluster, d)] = true;
    for (uint32_t h = 0; h < cluster->host_count; h++)
        count += has_device[h];
    *host = 0;
    for (uint32_t h = 0; h < cluster->host_count && count >= 2; h++) {
        seen += has_device[h];
        if (seen == (count + 1) / 2) {
            *host = h + 1;
            break;
        }
    }
    ty_free(has_device);
    return TY_OK;
}

/* Maximum flow between two vertices added after those of the cluster. */
static ty_status flow_between_ends(const ty_cluster *cluster, flow_graph *graph,
                                   double *bandwidth_bytes_per_s, ty_error *error)
{
    ty_status status = TY_OK;

    graph->vertex_count = cluster->vertex_count + 2;
    TY_TRY(flow_reduce(graph, cluster->vertex_count, cluster->vertex_count + 1, error));
    status = graph_max_flow(&(graph_edges){graph->vertex_count, graph->edge_count, graph->ends},
                            graph->capacities, 0, 1, bandwidth_bytes_per_s, error);
    return status;
}

/* Adds the cluster's links; a device is a terminal of its half, with no limit between them. */
static void fill(const ty_cluster *cluster, uint32_t host, flow_graph *graph)
{
    for (uint32_t i = 0; i < cluster->link_count; i++) {
        const uint32_t vertices[] = {cluster->links[i].from, cluster->links[i].to};
        for (uint32_t end = 0; end < 2; end++) {
            const uint32_t device = cluster->vertices[vertices[end]].device;
            graph->ends[2 * (size_t)i + end] =
                device == NO_INDEX
                    ? vertices[end]
                    : cluster->vertex_count + (ty_cluster_device_host(cluster, device) >= host);
        }
        graph->capacities[i] = cluster->links[i].bandwidth_bytes_per_s;
    }
    graph->edge_count = cluster->link_count;
}

ty_status ty_cluster_bisection(const ty_cluster *cluster, double *bandwidth_bytes_per_s,
                               ty_error *error)
{
    uint32_t host = 0;
    flow_graph graph = {
        .ends = ty_alloc(2 * (size_t)cluster->link_count, sizeof *graph.ends),
        .capacities = ty_alloc(cluster->link_count, sizeof *graph.capacities),
    };
    ty_status status;

    TY_CHECK(ty_check_memory(graph.ends != NULL && graph.capacities != NULL, error), status,
             cleanup);
    TY_CHECK(first_of_second_half(cluster, &host, error), status, cleanup);
    if (host == 0) {
        *bandwidth_bytes_per_s = 0;
        goto cleanup;
    }
    fill(cluster, host, &graph);
    status = flow_between_ends(cluster, &graph, bandwidth_bytes_per_s, error);
cleanup:
    ty_free(graph.ends);
    ty_free(graph.capacities);
    return status;
}
