/* The path of one message. */
#include "route.h"

#include "ty_base.h"

struct ty_routes {
    router router;
};

ty_status ty_routes_new(const ty_cluster *cluster, ty_routes **out, ty_error *error)
{
    ty_routes *routes = ty_alloc(1, sizeof *routes);

    TY_TRY(ty_check_memory(routes != NULL, error));
    routes->router = router_on(cluster);
    routes->router.is_kept = true;
    *out = routes;
    return TY_OK;
}

void ty_routes_free(ty_routes *routes)
{
    if (routes == NULL)
        return;
    router_clear(&routes->router);
    ty_free(routes);
}

ty_status ty_routes_find(ty_routes *routes, uint32_t from_device, uint32_t to_device, ty_path *out,
                         ty_error *error)
{
    router *r = &routes->router;

    TY_TRY(router_find(r, from_device, to_device, error));
    *out = (ty_path){.link_count = r->link_count,
                     .links = r->links,
                     .bandwidth_bytes_per_s = r->bandwidth_bytes_per_s,
                     .latency_s = r->latency_s};
    return TY_OK;
}

ty_status ty_cluster_path(const ty_cluster *cluster, uint32_t from_device, uint32_t to_device,
                          ty_path *out, ty_error *error)
{
    router r = router_on(cluster);
    ty_status status = router_find(&r, from_device, to_device, error);

    if (status == TY_OK) {
        *out = (ty_path){.link_count = r.link_count,
                         .links = r.links,
                         .bandwidth_bytes_per_s = r.bandwidth_bytes_per_s,
                         .latency_s = r.latency_s};
        r.links = NULL; /* ownership moved */
    }
    router_clear(&r);
    return status;
}

void ty_path_clear(ty_path *path)
{
    ty_free(path->links);
    *path = (ty_path){0};
}
