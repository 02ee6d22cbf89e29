/* The path of one message. */
#include "route.h"

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
        r.links = NULL; /* given away */
    }
    router_clear(&r);
    return status;
}

void ty_path_clear(ty_path *path)
{
    ty_free(path->links);
    *path = (ty_path){0};
}
