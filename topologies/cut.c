/* Bandwidth between groups of devices: flows, and the least cut between two halves of the hosts. */
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

/* The links without those of other devices, and from each member one to the end of its group. */
static uint32_t fill_flow(const ty_cluster *cluster, const uint8_t *sides, uint32_t *ends,
                          double *capacities)
{
    uint32_t count = 0;
    double sum = 1;

    for (uint32_t i = 0; i < cluster->link_count; i++) {
        const ty_link_edge *link = &cluster->links[i];
        if (!is_open(cluster, sides, link->from) || !is_open(cluster, sides, link->to))
            continue;
        ends[2 * count] = link->from;
        ends[2 * count + 1] = link->to;
        capacities[count++] = link->bandwidth_bytes_per_s;
        sum += link->bandwidth_bytes_per_s;
    }
    for (uint32_t d = 0; d < cluster->device_count; d++) {
        if (sides[d] == OTHER)
            continue;
        ends[2 * count] = cluster->device_vertices[d];
        ends[2 * count + 1] = cluster->vertex_count + (sides[d] == TO);
        capacities[count++] = sum;
    }
    return count;
}

ty_status ty_cluster_flow(const ty_cluster *cluster, const uint32_t *from, uint32_t from_count,
                          const uint32_t *to, uint32_t to_count, double *bandwidth_bytes_per_s,
                          ty_error *error)
{
    size_t room = (size_t)cluster->link_count + cluster->device_count;
    uint32_t *ends = ty_alloc(2 * room, sizeof *ends);
    double *capacities = ty_alloc(room, sizeof *capacities);
    uint8_t *sides = ty_alloc(cluster->device_count, 1);
    graph_edges edges = {.vertex_count = cluster->vertex_count + 2, .ends = ends};
    ty_status status;

    if (ends == NULL || capacities == NULL || sides == NULL) {
        status = ty_fail(error, TY_ENOMEM, "out of memory for a flow");
        goto cleanup;
    }
    TY_CHECK(mark(cluster, from, from_count, FROM, sides, error), status, cleanup);
    TY_CHECK(mark(cluster, to, to_count, TO, sides, error), status, cleanup);
    edges.edge_count = fill_flow(cluster, sides, ends, capacities);
    status = graph_max_flow(&edges, capacities, cluster->vertex_count, cluster->vertex_count + 1,
                            bandwidth_bytes_per_s, error);
cleanup:
    ty_free(ends);
    ty_free(capacities);
    ty_free(sides);
    return status;
}
