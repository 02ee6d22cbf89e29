/* The cluster: building it up, and the accessors of the finished, immutable thing. */
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
                       .source = kind->source};
    cluster->link_kinds[count] = type;
    cluster->link_lanes[count] = lanes;
    cluster->link_count++;
    return TY_OK;
}

/* ---- Other figures ------------------------------------------------------------------------ */

static bool is_of(const ty_cluster_edit *edit, const char *name)
{
    return edit->name == NULL || strcmp(edit->name, name) == 0;
}

static double edited(const ty_cluster_edit *edit, double figure)
{
    return edit->is_factor ? figure * edit->value : edit->value;
}

/* @return whether the edit is of this type */
static bool edit_device_type(const ty_cluster_edit *edit, ty_device_type *type)
{
    const bool is_of_peaks = strcmp(edit->field, "peak_") == 0;
    const json_field *figure;
    bool is_used = false;

    if (strcmp(edit->field, "memory_bytes") == 0) {
        const double usable_share = (double)type->usable_memory_bytes / (double)type->memory_bytes;
        type->memory_bytes = (uint64_t)edited(edit, (double)type->memory_bytes);
        type->usable_memory_bytes = (uint64_t)(usable_share * (double)type->memory_bytes);
        return true;
    }
    for (uint32_t i = 0; (figure = ty_cluster_figure_at(i)) != NULL; i++) {
        double *value = (double *)(void *)((char *)type + figure->at);
        if (is_of_peaks ? strncmp(figure->key, edit->field, strlen(edit->field)) != 0
                        : strcmp(figure->key, edit->field) != 0)
            continue;
        if (!is_of_peaks || *value > 0)
            *value = edited(edit, *value);
        is_used = true;
    }
    return is_used;
}

static bool edit_link_type(const ty_cluster_edit *edit, link_type *type)
{
    double *figure = strcmp(edit->field, "bandwidth_bytes_per_s") == 0
                         ? &type->bandwidth_bytes_per_s
                     : strcmp(edit->field, "latency_s") == 0 ? &type->latency_s
                                                             : NULL;
    if (figure != NULL)
        *figure = edited(edit, *figure);
    return figure != NULL;
}

/* Figures are those of the files; what is not there stays unlimited by a factor. */
static bool edit_storage(const ty_cluster_edit *edit, ty_storage *storage)
{
    const json_field *figure;

    for (uint32_t i = 0; (figure = ty_storage_figure_at(i)) != NULL; i++)
        if (strcmp(figure->key, edit->field) == 0) {
            double *value = (double *)(void *)((char *)storage + figure->at);
            *value = edited(edit, *value);
            return true;
        }
    return false;
}

/* Of storage without a name, the last is meant. */
static bool edit_part(const ty_cluster_edit *edit, ty_cluster *made)
{
    bool is_used = false;

    if (edit->part == TY_PART_DEVICES)
        for (uint32_t i = 0; i < made->device_type_count; i++)
            if (is_of(edit, made->device_types[i].name))
                is_used |= edit_device_type(edit, &made->device_types[i]);
    if (edit->part == TY_PART_LINKS)
        for (uint32_t i = 0; i < made->link_type_count; i++)
            if (is_of(edit, made->link_types[i].name))
                is_used |= edit_link_type(edit, &made->link_types[i]);
    if (edit->part == TY_PART_STORAGE)
        for (uint32_t i = 0; i < made->storage_count; i++)
            if (edit->name == NULL ? i + 1 == made->storage_count
                                   : is_of(edit, made->storage[i].name))
                is_used |= edit_storage(edit, &made->storage[i]);
    return is_used;
}

/* An edit that nothing is of: says what there is of its kind. */
static ty_status fail_edit(const ty_cluster_edit *edit, const ty_cluster *cluster, ty_error *error)
{
    static const char *const parts[] = {
        [TY_PART_DEVICES] = "device", [TY_PART_LINKS] = "link type", [TY_PART_STORAGE] = "storage"};
    const uint32_t count = edit->part == TY_PART_DEVICES ? cluster->device_type_count
                           : edit->part == TY_PART_LINKS ? cluster->link_type_count
                                                         : cluster->storage_count;
    ty_text known = {0};
    ty_status status;

    for (uint32_t i = 0; i < count && i < 12; i++)
        ty_text_addf(&known, "%s%s", i == 0 ? "" : ", ",
                     edit->part == TY_PART_DEVICES ? cluster->device_types[i].name
                     : edit->part == TY_PART_LINKS ? cluster->link_types[i].name
                                                   : cluster->storage[i].name);
    ty_text_add(&known, count == 0 ? "none" : count > 12 ? ", ..." : "");
    status =
        ty_fail(error, TY_EINVAL, "cluster \"%s\" has no %s \"%s\" with a %s; it has %s",
                cluster->name, parts[edit->part], edit->name != NULL ? edit->name : "of any name",
                edit->field, known.data != NULL ? known.data : "others");
    ty_text_clear(&known);
    return status;
}

ty_status ty_cluster_edited(const ty_cluster *cluster, const ty_cluster_edit *edits, uint32_t count,
                            ty_cluster **out, ty_error *error)
{
    const size_t devices = cluster->device_type_count, links = cluster->link_type_count;
    ty_cluster *made = ty_alloc(1, sizeof *made);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(made != NULL, error));
    memcpy(made, cluster, sizeof *made);
    atomic_init(&made->owners, 1);
    atomic_init(&made->digest_state, NO_DIGEST);
    made->origin = ty_cluster_share(cluster);
    made->device_types = ty_alloc(devices, sizeof *made->device_types);
    made->link_types = ty_alloc(links, sizeof *made->link_types);
    made->links = ty_alloc(cluster->link_count, sizeof *made->links);
    TY_CHECK(ty_check_memory(made->device_types != NULL && made->link_types != NULL &&
                                 made->links != NULL,
                             error),
             status, done);
    memcpy(made->device_types, cluster->device_types, devices * sizeof *made->device_types);
    if (links > 0)
        memcpy(made->link_types, cluster->link_types, links * sizeof *made->link_types);
    for (uint32_t e = 0; e < count; e++)
        if (!edit_part(&edits[e], made)) {
            status = fail_edit(&edits[e], cluster, error);
            goto done;
        }
    for (uint32_t l = 0; l < cluster->link_count; l++) {
        const link_type *type = &made->link_types[cluster->link_kinds[l]];
        made->links[l] = cluster->links[l];
        made->links[l].bandwidth_bytes_per_s = type->bandwidth_bytes_per_s * cluster->link_lanes[l];
        made->links[l].latency_s = type->latency_s;
    }
    TY_CHECK(ty_cluster_check_figures(made, "cluster", error), status, done);
    *out = made;
    made = NULL;
done:
    ty_cluster_free(made);
    return status;
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

const char *ty_cluster_host_name(const ty_cluster *cluster, uint32_t host)
{
    return cluster->vertices[cluster->host_vertices[host]].name;
}
