/* The cluster: building it, and the accessors of the finished, immutable object. */
#include "cluster.h"

#include <string.h>

const char *ty_vertex_kind_name(ty_vertex_kind kind)
{
    static const char *const names[TY_VERTEX_KIND_COUNT] = {
        [TY_VERTEX_DEVICE] = "device",
        [TY_VERTEX_HOST] = "host",
        [TY_VERTEX_DEVICE_SWITCH] = "device_switch",
        [TY_VERTEX_NIC] = "nic",
        [TY_VERTEX_SWITCH] = "switch",
    };
    return (unsigned)kind < TY_VERTEX_KIND_COUNT ? names[kind] : "unknown";
}

const char *ty_link_transport_name(ty_link_transport transport)
{
    static const char *const names[TY_LINK_COUNT] = {
        [TY_LINK_NONE] = "none",   [TY_LINK_INFINIBAND] = "infiniband",
        [TY_LINK_ROCE] = "roce",   [TY_LINK_EFA] = "efa",
        [TY_LINK_TCP] = "tcp",     [TY_LINK_ENA] = "ena",
        [TY_LINK_GVNIC] = "gvnic", [TY_LINK_TCPX] = "tcpx",
    };
    return (unsigned)transport < TY_LINK_COUNT ? names[transport] : "unknown";
}

bool ty_link_transport_is_sockets(ty_link_transport transport)
{
    return transport == TY_LINK_TCP || transport == TY_LINK_ENA || transport == TY_LINK_GVNIC;
}

static ty_status grow(void *array, uint32_t count, uint32_t limit, uint32_t *room, size_t size,
                      ty_error *error)
{
    if (count >= limit)
        return ty_fail(error, TY_EPARSE, "cluster: found more than %u of its parts, expected fewer",
                       limit);
    return ty_reserve(array, count, room, size, error);
}

ty_status ty_cluster_new(const char *name, ty_cluster **out, ty_error *error)
{
    ty_cluster *cluster = ty_alloc(1, sizeof *cluster);

    TY_TRY(ty_check_memory(cluster != NULL, error));
    atomic_init(&cluster->owners, 1);
    if ((cluster->arena = ty_arena_new()) == NULL ||
        (cluster->name = ty_arena_strdup(cluster->arena, name)) == NULL) {
        ty_cluster_free(cluster);
        return ty_check_memory(false, error);
    }
    *out = cluster;
    return TY_OK;
}

ty_cluster *ty_cluster_share(const ty_cluster *cluster)
{
    ty_cluster *owned = (ty_cluster *)cluster; /* only the number of owners changes */

    atomic_fetch_add(&owned->owners, 1);
    return owned;
}

void ty_cluster_free(ty_cluster *cluster)
{
    if (cluster == NULL || atomic_fetch_sub(&cluster->owners, 1) > 1)
        return;
    if (cluster->origin != NULL) {
        ty_free(cluster->device_types);
        ty_free(cluster->link_types);
        ty_free(cluster->links);
        ty_cluster_free(cluster->origin);
        ty_free(cluster);
        return;
    }
    ty_free(cluster->device_types);
    ty_free(cluster->host_types);
    ty_free(cluster->link_types);
    ty_free(cluster->vertices);
    ty_free(cluster->links);
    ty_free(cluster->link_kinds);
    ty_free(cluster->link_lanes);
    ty_free(cluster->device_vertices);
    ty_free(cluster->host_vertices);
    ty_free(cluster->names);
    ty_free(cluster->port_starts);
    ty_free(cluster->ports);
    ty_free(cluster->island_gates);
    ty_free(cluster->root_links);
    ty_free(cluster->root_distances);
    ty_free(cluster->tori);
    ty_free(cluster->routers);
    ty_arena_free(cluster->arena);
    ty_free(cluster);
}

static bool copy_string(ty_cluster *cluster, char **text)
{
    if (*text == NULL)
        return true;
    *text = ty_arena_strdup(cluster->arena, *text);
    return *text != NULL;
}

ty_status ty_cluster_add_device_type(ty_cluster *cluster, const ty_device_type *type,
                                     uint32_t *index, ty_error *error)
{
    ty_device_type copy = *type;

    TY_TRY(grow(&cluster->device_types, cluster->device_type_count, VERTEX_LIMIT,
                &cluster->device_type_room, sizeof copy, error));
    copy.name = ty_arena_strdup(cluster->arena, type->name);
    copy.source = ty_arena_strdup(cluster->arena, type->source);
    TY_TRY(ty_check_memory(
        copy.name != NULL && copy.source != NULL && copy_string(cluster, &copy.generation), error));
    *index = cluster->device_type_count;
    cluster->device_types[cluster->device_type_count++] = copy;
    return TY_OK;
}

ty_status ty_cluster_add_host_type(ty_cluster *cluster, const ty_host_type *type, uint32_t *index,
                                   ty_error *error)
{
    ty_host_type copy = *type;

    TY_TRY(grow(&cluster->host_types, cluster->host_type_count, VERTEX_LIMIT,
                &cluster->host_type_room, sizeof copy, error));
    TY_TRY(ty_check_memory(copy_string(cluster, &copy.name) && copy_string(cluster, &copy.source) &&
                               copy_string(cluster, &copy.price_date) &&
                               copy_string(cluster, &copy.price_source),
                           error));
    *index = cluster->host_type_count;
    cluster->host_types[cluster->host_type_count++] = copy;
    return TY_OK;
}

ty_status ty_cluster_add_link_type(ty_cluster *cluster, const link_type *type, uint32_t *index,
                                   ty_error *error)
{
    link_type copy = *type;

    TY_TRY(grow(&cluster->link_types, cluster->link_type_count, LINK_LIMIT,
                &cluster->link_type_room, sizeof copy, error));
    copy.name = ty_arena_strdup(cluster->arena, type->name);
    copy.source = ty_arena_strdup(cluster->arena, type->source);
    TY_TRY(ty_check_memory(copy.name != NULL && copy.source != NULL, error));
    *index = cluster->link_type_count;
    cluster->link_types[cluster->link_type_count++] = copy;
    return TY_OK;
}

ty_status ty_cluster_add_storage(ty_cluster *cluster, const ty_storage *storage, const char *name,
                                 ty_error *error)
{
    ty_storage copy = *storage;

    if (cluster->storage_count == TY_MOST_STORAGE)
        return ty_fail(error, TY_EPARSE, "%.80s: found more than %d levels of storage", name,
                       TY_MOST_STORAGE);
    for (uint32_t i = 0; i < cluster->storage_count; i++) {
        const ty_storage *before = &cluster->storage[i];
        if (strcmp(before->name, storage->name) == 0)
            return ty_fail(error, TY_EPARSE, "%.80s: found storage \"%.40s\" twice", name,
                           storage->name);
        if (before->is_shared || !(before->capacity_bytes > 0))
            return ty_fail(error, TY_EPARSE,
                           "%.80s: found storage \"%.40s\" behind \"%.40s\", which %s; expected "
                           "caches of a host, with a capacity, before what holds everything",
                           name, storage->name, before->name,
                           before->is_shared ? "hosts share" : "holds everything");
    }
    TY_TRY(ty_check_memory(copy_string(cluster, &copy.name) && copy_string(cluster, &copy.source),
                           error));
    cluster->storage[cluster->storage_count++] = copy;
    return TY_OK;
}

static ty_status add_vertex(ty_cluster *cluster, const cluster_vertex *vertex, uint32_t *index,
                            ty_error *error)
{
    cluster_vertex copy = *vertex;

    TY_TRY(grow(&cluster->vertices, cluster->vertex_count, VERTEX_LIMIT, &cluster->vertex_room,
                sizeof copy, error));
    TY_TRY(ty_check_memory((copy.name = ty_arena_strdup(cluster->arena, vertex->name)) != NULL,
                           error));
    *index = cluster->vertex_count;
    cluster->vertices[cluster->vertex_count++] = copy;
    return TY_OK;
}

ty_status ty_cluster_set_bus_id(ty_cluster *cluster, uint32_t vertex, const char *bus_id,
                                ty_error *error)
{
    char *copy = ty_arena_strdup(cluster->arena, bus_id);

    TY_TRY(ty_check_memory(copy != NULL, error));
    cluster->vertices[vertex].bus_id = copy;
    return TY_OK;
}

ty_status ty_cluster_add_vertex(ty_cluster *cluster, ty_vertex_kind kind, const char *name,
                                uint32_t cores, uint32_t *vertex, ty_error *error)
{
    cluster_vertex added = {
        .kind = kind, .device = NO_INDEX, .host = NO_INDEX, .cores = cores, .host_type = NO_INDEX};
    uint32_t index = 0;

    added.name = (char *)name; /* copied below, never written */
    if (kind == TY_VERTEX_HOST) {
        added.host = cluster->host_count;
        TY_TRY(grow(&cluster->host_vertices, cluster->host_count, VERTEX_LIMIT, &cluster->host_room,
                    sizeof(uint32_t), error));
    }
    TY_TRY(add_vertex(cluster, &added, &index, error));
    if (kind == TY_VERTEX_HOST)
        cluster->host_vertices[cluster->host_count++] = index;
    *vertex = index;
    return TY_OK;
}

ty_status ty_cluster_add_device(ty_cluster *cluster, const char *name, uint32_t type, uint32_t host,
                                uint32_t *vertex, ty_error *error)
{
    cluster_vertex added = {.kind = TY_VERTEX_DEVICE,
                            .device = cluster->device_count,
                            .host = host == NO_INDEX ? NO_INDEX : cluster->vertices[host].host,
                            .device_type = type,
                            .host_type = NO_INDEX};
    uint32_t index = 0;

    added.name = (char *)name;
    TY_TRY(grow(&cluster->device_vertices, cluster->device_count, DEVICE_LIMIT,
                &cluster->device_room, sizeof(uint32_t), error));
    TY_TRY(add_vertex(cluster, &added, &index, error));
    cluster->device_vertices[cluster->device_count++] = index;
    *vertex = index;
    return TY_OK;
}

ty_status ty_cluster_add_link(ty_cluster *cluster, uint32_t from, uint32_t to, uint32_t type,
                              double lanes, ty_error *error)
{
    const link_type *kind = &cluster->link_types[type];
    uint32_t count = cluster->link_count;

    TY_TRY(
        grow(&cluster->links, count, LINK_LIMIT, &cluster->link_room, sizeof(ty_link_edge), error));
    TY_TRY(grow(&cluster->link_kinds, count, LINK_LIMIT, &cluster->link_kind_room, sizeof(uint32_t),
                error));
    TY_TRY(grow(&cluster->link_lanes, count, LINK_LIMIT, &cluster->link_lane_room, sizeof(double),
                error));
    cluster->links[count] =
        (ty_link_edge){.from = from,
                       .to = to,
                       .bandwidth_bytes_per_s = kind->bandwidth_bytes_per_s * lanes,
                       .latency_s = kind->latency_s,
                       .kind = kind->name,
                       .source = kind->source,
                       .transport = kind->transport,
                       .flows = kind->flows};
    cluster->link_kinds[count] = type;
    cluster->link_lanes[count] = lanes;
    cluster->link_count++;
    return TY_OK;
}

/* ---- Accessors --------------------------------------------------------------------------- */

const char *ty_cluster_name(const ty_cluster *cluster)
{
    return cluster->name;
}

uint32_t ty_cluster_device_count(const ty_cluster *cluster)
{
    return cluster->device_count;
}

uint32_t ty_cluster_host_count(const ty_cluster *cluster)
{
    return cluster->host_count;
}

static double said(double figure, double otherwise)
{
    return figure > 0 ? figure : otherwise;
}

double ty_device_peak(const ty_device_type *device, ty_precision precision)
{
    switch (precision) {
    case TY_PRECISION_TF32:
        return said(device->peak_tf32_flop_per_s, device->peak_fp32_flop_per_s);
    case TY_PRECISION_BF16:
    case TY_PRECISION_FP16:
        return device->peak_fp16_flop_per_s;
    case TY_PRECISION_FP8:
        return device->peak_fp8_flop_per_s;
    case TY_PRECISION_FP4:
        return device->peak_fp4_flop_per_s;
    case TY_PRECISION_FP32:
    case TY_PRECISION_COUNT:
        break;
    }
    return device->peak_fp32_flop_per_s;
}

const char *ty_device_noun(const ty_device_type *device)
{
    return device->noun[0] != '\0' ? device->noun : device->core_share > 0 ? "device" : "GPU";
}

uint64_t ty_device_usable_bytes(const ty_device_type *device)
{
    return device->usable_memory_bytes > 0 ? device->usable_memory_bytes : device->memory_bytes;
}

uint64_t ty_device_room_bytes(const ty_device_type *device, double reserve)
{
    return (uint64_t)((double)ty_device_usable_bytes(device) * (1 - reserve));
}

const ty_device_type *ty_cluster_device_type(const ty_cluster *cluster, uint32_t device)
{
    uint32_t vertex = cluster->device_vertices[device];
    return &cluster->device_types[cluster->vertices[vertex].device_type];
}

uint32_t ty_cluster_device_host(const ty_cluster *cluster, uint32_t device)
{
    return cluster->vertices[cluster->device_vertices[device]].host;
}

uint32_t ty_cluster_host_cores(const ty_cluster *cluster, uint32_t host)
{
    return cluster->vertices[cluster->host_vertices[host]].cores;
}

bool ty_cluster_host_is_staged(const ty_cluster *cluster, uint32_t host)
{
    return cluster->vertices[cluster->host_vertices[host]].is_staged;
}

const ty_host_type *ty_cluster_host_type(const ty_cluster *cluster, uint32_t host)
{
    uint32_t type = cluster->vertices[cluster->host_vertices[host]].host_type;
    return type == NO_INDEX ? NULL : &cluster->host_types[type];
}

uint32_t ty_cluster_storage_count(const ty_cluster *cluster)
{
    return cluster->storage_count;
}

const ty_storage *ty_cluster_storage(const ty_cluster *cluster, uint32_t level)
{
    return &cluster->storage[level];
}

uint32_t ty_cluster_vertex_count(const ty_cluster *cluster)
{
    return cluster->vertex_count;
}

ty_vertex_kind ty_cluster_vertex_kind(const ty_cluster *cluster, uint32_t vertex)
{
    return cluster->vertices[vertex].kind;
}

const char *ty_cluster_vertex_name(const ty_cluster *cluster, uint32_t vertex)
{
    return cluster->vertices[vertex].name;
}

uint32_t ty_cluster_device_vertex(const ty_cluster *cluster, uint32_t device)
{
    return cluster->device_vertices[device];
}

uint32_t ty_cluster_link_count(const ty_cluster *cluster)
{
    return cluster->link_count;
}

const ty_link_edge *ty_cluster_link(const ty_cluster *cluster, uint32_t link)
{
    return &cluster->links[link];
}

double ty_cluster_link_lanes(const ty_cluster *cluster, uint32_t link)
{
    return cluster->link_lanes[link];
}

const char *ty_cluster_host_name(const ty_cluster *cluster, uint32_t host)
{
    return cluster->vertices[cluster->host_vertices[host]].name;
}
