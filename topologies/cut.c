/* Bisection bandwidth: the least cut between two halves of the hosts. */
#include "cluster.h"
#include "graph.h"

/* Splits the hosts that have devices: those before the answer form the first half, which gets the
 * odd one. 0 when fewer than two have any. */
static ty_status first_of_second_half(const ty_cluster *cluster, uint32_t *host, ty_error *error)
{
    uint32_t count = 0, seen = 0;
    bool *has_device = ty_alloc(cluster->host_count, sizeof *has_device);

    if (has_device == NULL)
        return ty_fail(error, TY_ENOMEM, "out of memory for a cut");
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

/* The cluster's links, and from every device one to the end of its half that never is the
 * bottleneck. */
static void fill(const ty_cluster *cluster, uint32_t host, uint32_t *ends, double *capacities)
{
    uint32_t links = cluster->link_count;
    double sum = 1;

    for (uint32_t i = 0; i < links; i++) {
        ends[2 * i] = cluster->links[i].from;
        ends[2 * i + 1] = cluster->links[i].to;
        capacities[i] = cluster->links[i].bandwidth_bytes_per_s;
        sum += capacities[i];
    }
    for (uint32_t d = 0; d < cluster->device_count; d++) {
        ends[2 * (links + d)] = cluster->device_vertices[d];
        ends[2 * (links + d) + 1] =
            cluster->vertex_count + (ty_cluster_device_host(cluster, d) >= host);
        capacities[links + d] = sum;
    }
}

ty_status ty_cluster_bisection(const ty_cluster *cluster, double *bandwidth_bytes_per_s,
                               ty_error *error)
{
    uint32_t count = cluster->link_count + cluster->device_count, host = 0;
    uint32_t *ends = ty_alloc(2 * (size_t)count, sizeof *ends);
    double *capacities = ty_alloc(count, sizeof *capacities);
    graph_edges edges = {.vertex_count = cluster->vertex_count + 2, .edge_count = count};
    ty_status status;

    if (ends == NULL || capacities == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a cut");
        goto cleanup;
    }
    TY_CHECK(first_of_second_half(cluster, &host, error), status, cleanup);
    if (host == 0) {
        *bandwidth_bytes_per_s = 0;
        goto cleanup;
    }
    fill(cluster, host, ends, capacities);
    edges.ends = ends;
    status = graph_max_flow(&edges, capacities, cluster->vertex_count, cluster->vertex_count + 1,
                            bandwidth_bytes_per_s, error);
cleanup:
    ty_free(ends);
    ty_free(capacities);
    return status;
}
