/* Bandwidth between groups of devices: flows, and the least cut between two halves of the hosts. */
#include "cluster.h"
#include "flow_reduce.h"
#include "graph.h"
#include "ty_topologies.h"

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

/* Between two vertices behind those of the cluster. */
static ty_status flow_between_ends(const ty_cluster *cluster, flow_graph *graph,
                                   double *bandwidth_bytes_per_s, ty_error *error)
{
    ty_status status = TY_OK;

    graph->vertex_count = cluster->vertex_count + 2;
    TY_CHECK(flow_reduce(graph, cluster->vertex_count, cluster->vertex_count + 1, error), status,
             done);
    status = graph_max_flow(&(graph_edges){graph->vertex_count, graph->edge_count, graph->ends},
                            graph->capacities, 0, 1, bandwidth_bytes_per_s, error);
done:
    return status;
}

/* The cluster's links; a device is the end of its half, as nothing limits what is between them. */
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

    if (graph.ends == NULL || graph.capacities == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a cut");
        goto cleanup;
    }
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

/* ---- Between two groups ------------------------------------------------------------------ */

enum { OTHER, FROM, TO };

static ty_status mark(const ty_cluster *cluster, const uint32_t *devices, uint32_t count,
                      uint8_t side, uint8_t *sides, ty_error *error)
{
    if (count == 0)
        return ty_fail(error, TY_EINVAL, "flow: found a group without devices, expected some");
    for (uint32_t i = 0; i < count; i++) {
        if (devices[i] >= cluster->device_count)
            return ty_fail(error, TY_EINVAL, "flow: found device %u, expected one below %u",
                           devices[i], cluster->device_count);
        if (sides[devices[i]] != OTHER)
            return ty_fail(error, TY_EINVAL, "flow: found device %u twice, expected it once",
                           devices[i]);
        sides[devices[i]] = side;
    }
    return TY_OK;
}

static bool is_open(const ty_cluster *cluster, const uint8_t *sides, uint32_t vertex)
{
    uint32_t device = cluster->vertices[vertex].device;
    return device == NO_INDEX || sides[device] != OTHER;
}

static uint32_t end_of(const ty_cluster *cluster, const uint8_t *sides, uint32_t vertex)
{
    const uint32_t device = cluster->vertices[vertex].device;
    return device == NO_INDEX ? vertex : cluster->vertex_count + (sides[device] == TO);
}

/* The links without those of other devices; a member is the end of its group. */
static void fill_flow(const ty_cluster *cluster, const uint8_t *sides, flow_graph *graph)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < cluster->link_count; i++) {
        const ty_link_edge *link = &cluster->links[i];
        if (!is_open(cluster, sides, link->from) || !is_open(cluster, sides, link->to))
            continue;
        graph->ends[2 * (size_t)count] = end_of(cluster, sides, link->from);
        graph->ends[2 * (size_t)count + 1] = end_of(cluster, sides, link->to);
        graph->capacities[count++] = link->bandwidth_bytes_per_s;
    }
    graph->edge_count = count;
}

ty_status ty_cluster_flow(const ty_cluster *cluster, const uint32_t *from, uint32_t from_count,
                          const uint32_t *to, uint32_t to_count, double *bandwidth_bytes_per_s,
                          ty_error *error)
{
    flow_graph graph = {
        .ends = ty_alloc(2 * (size_t)cluster->link_count, sizeof *graph.ends),
        .capacities = ty_alloc(cluster->link_count, sizeof *graph.capacities),
    };
    uint8_t *sides = ty_alloc(cluster->device_count, 1);
    ty_status status;

    if (graph.ends == NULL || graph.capacities == NULL || sides == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a flow");
        goto cleanup;
    }
    TY_CHECK(mark(cluster, from, from_count, FROM, sides, error), status, cleanup);
    TY_CHECK(mark(cluster, to, to_count, TO, sides, error), status, cleanup);
    fill_flow(cluster, sides, &graph);
    status = flow_between_ends(cluster, &graph, bandwidth_bytes_per_s, error);
cleanup:
    ty_free(graph.ends);
    ty_free(graph.capacities);
    ty_free(sides);
    return status;
}
