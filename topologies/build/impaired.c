/* A cluster with slowed or removed links. */
#include "cluster.h"
#include "ty_topologies.h"

#include <math.h>
#include <string.h>

#define LEAST_FACTOR 1e-6

static ty_status check_factors(const ty_cluster *cluster, const double *factors, ty_error *error)
{
    for (uint32_t l = 0; l < cluster->link_count; l++)
        if (!(factors[l] == 0.0 || (factors[l] >= LEAST_FACTOR && factors[l] <= 1.0)))
            return ty_fail(error, TY_EINVAL,
                           "link %u: found factor %g, expected 0, or a millionth to 1", l,
                           factors[l]);
    return TY_OK;
}

static ty_status copy_types(const ty_cluster *from, ty_cluster *to, ty_error *error)
{
    uint32_t index;

    for (uint32_t i = 0; i < from->device_type_count; i++)
        TY_TRY(ty_cluster_add_device_type(to, &from->device_types[i], &index, error));
    for (uint32_t i = 0; i < from->host_type_count; i++)
        TY_TRY(ty_cluster_add_host_type(to, &from->host_types[i], &index, error));
    for (uint32_t i = 0; i < from->link_type_count; i++)
        TY_TRY(ty_cluster_add_link_type(to, &from->link_types[i], &index, error));
    for (uint32_t i = 0; i < from->storage_count; i++)
        TY_TRY(ty_cluster_add_storage(to, &from->storage[i], from->name, error));
    return TY_OK;
}

static ty_status copy_vertices(const ty_cluster *from, ty_cluster *to, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t v = 0; v < from->vertex_count && status == TY_OK; v++) {
        const cluster_vertex *vertex = &from->vertices[v];
        uint32_t index = 0;
        status = vertex->kind == TY_VERTEX_DEVICE
                     ? ty_cluster_add_device(to, vertex->name, vertex->device_type, NO_INDEX,
                                             &index, error)
                     : ty_cluster_add_vertex(to, vertex->kind, vertex->name, vertex->cores, &index,
                                             error);
        if (status != TY_OK)
            break;
        to->vertices[index].host = vertex->host;
        to->vertices[index].host_type = vertex->host_type;
    }
    return status;
}

static ty_status copy_links(const ty_cluster *from, const double *factors, ty_cluster *to,
                            ty_error *error)
{
    for (uint32_t l = 0; l < from->link_count; l++) {
        const ty_link_edge *link = &from->links[l];
        ty_status status = factors[l] == 0.0
                               ? TY_OK
                               : ty_cluster_add_link(to, link->from, link->to, from->link_kinds[l],
                                                     from->link_lanes[l] * factors[l], error);
        if (status != TY_OK)
            return status;
    }
    return TY_OK;
}

ty_status ty_cluster_impaired(const ty_cluster *cluster, const double *factors, ty_cluster **out,
                              ty_error *error)
{
    ty_status status;
    ty_cluster *made = NULL;
    cluster_problem problem = {0};

    TY_CHECK(check_factors(cluster, factors, error), status, cleanup);
    TY_CHECK(ty_cluster_new(cluster->name, &made, error), status, cleanup);
    TY_CHECK(copy_types(cluster, made, error), status, cleanup);
    TY_CHECK(copy_vertices(cluster, made, error), status, cleanup);
    TY_CHECK(copy_links(cluster, factors, made, error), status, cleanup);
    TY_CHECK(ty_cluster_finish(made, &problem, error), status, cleanup);
    if (problem.expected != NULL) {
        status = ty_fail(
            error, TY_EINFEASIBLE, "cluster %s without that link: %s: expected %s", cluster->name,
            problem.vertex == NO_INDEX ? "the graph" : cluster->vertices[problem.vertex].name,
            problem.expected);
        goto cleanup;
    }
    *out = made;
    made = NULL;
cleanup:
    ty_cluster_free(made);
    return status;
}

ty_status ty_cluster_find_link(const ty_cluster *cluster, const char *from, const char *to,
                               uint32_t *link, ty_error *error)
{
    const uint32_t a = ty_cluster_find(cluster, from), b = ty_cluster_find(cluster, to);

    if (a == NO_INDEX || b == NO_INDEX)
        return ty_fail(error, TY_EINVAL, "found '%.80s', expected a part of cluster %s, as in '%s'",
                       a == NO_INDEX ? from : to, cluster->name, cluster->vertices[0].name);
    for (uint32_t p = cluster->port_starts[a]; p < cluster->port_starts[a + 1]; p++)
        if (cluster->ports[p].vertex == b) {
            *link = cluster->ports[p].link;
            return TY_OK;
        }
    return ty_fail(error, TY_EINVAL, "found no link between %s and %s of cluster %s", from, to,
                   cluster->name);
}
