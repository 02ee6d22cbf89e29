/* trainyard.cluster/1: the graph, written out.
 * - device_types: what devices are;
 * - link_types: what links are, bandwidth and latency of one lane, with a source;
 * - storage: where samples are read, caches first;
 * - vertices: name and kind; a device has a type and a host, a host may have cores
 *                 and a type;
 * - links: from, to, type; lanes (1 unless said) multiply the bandwidth. */
#include "cluster.h"

#include <string.h>

static const char schema[] = "trainyard.cluster/1";

/* ---- Device types: one table for reading and writing ------------------------------------- */

static const cluster_figure figures[] = {
    {"peak_fp32_flop_per_s", offsetof(ty_device_type, peak_fp32_flop_per_s), 1, 1e18, false},
    {"peak_tf32_flop_per_s", offsetof(ty_device_type, peak_tf32_flop_per_s), 0, 1e18, false},
    {"peak_fp16_flop_per_s", offsetof(ty_device_type, peak_fp16_flop_per_s), 0, 1e18, false},
    {"peak_fp8_flop_per_s", offsetof(ty_device_type, peak_fp8_flop_per_s), 0, 1e18, true},
    {"peak_fp4_flop_per_s", offsetof(ty_device_type, peak_fp4_flop_per_s), 0, 1e18, true},
    {"memory_bandwidth_bytes_per_s", offsetof(ty_device_type, memory_bandwidth_bytes_per_s), 1,
     1e18, false},
    {"launch_overhead_s", offsetof(ty_device_type, launch_overhead_s), 0, 1, false},
    {"matmul_efficiency", offsetof(ty_device_type, matmul_efficiency), 1e-3, 1, false},
    {"fp8_efficiency", offsetof(ty_device_type, fp8_efficiency), 0, 1, true},
    {"fp4_efficiency", offsetof(ty_device_type, fp4_efficiency), 0, 1, true},
    {"product_edge", offsetof(ty_device_type, product_edge), 0, 1e4, true},
    {"attention_efficiency", offsetof(ty_device_type, attention_efficiency), 0, 1, true},
    {"attention_backward", offsetof(ty_device_type, attention_backward), 0, 100, true},
    {"memory_efficiency", offsetof(ty_device_type, memory_efficiency), 1e-3, 1, false},
    {"convolution_efficiency", offsetof(ty_device_type, convolution_efficiency), 0, 1, true},
    {"core_share", offsetof(ty_device_type, core_share), 0, 1e6, false},
    {"power_w", offsetof(ty_device_type, power_w), 0, 1e6, false},
};
enum { FIGURE_COUNT = sizeof figures / sizeof figures[0] };

const cluster_figure *ty_cluster_figure_at(uint32_t index)
{
    return index < FIGURE_COUNT ? &figures[index] : NULL;
}

ty_status ty_cluster_read_device(const ty_json *row, bool is_whole, ty_device_type *out,
                                 ty_error *error)
{
    ty_status status = TY_OK;

    for (int i = 0; i < FIGURE_COUNT; i++)
        if ((is_whole && !figures[i].is_optional) || ty_json_has(row, figures[i].key))
            TY_CHECK(ty_json_number(row, figures[i].key, figures[i].minimum, figures[i].maximum,
                                    (double *)(void *)((char *)out + figures[i].offset), error),
                     status, done);
    if (is_whole || ty_json_has(row, "memory_bytes"))
        status =
            ty_json_uint64(row, "memory_bytes", 1, (uint64_t)1 << 50, &out->memory_bytes, error);
done:
    return status;
}

static ty_status read_device_type(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    ty_device_type type = {0};
    const char *name, *source;
    uint32_t index;
    ty_status status;

    TY_CHECK(ty_json_string(row, "name", &name, error), status, done);
    TY_CHECK(ty_json_string(row, "source", &source, error), status, done);
    TY_CHECK(ty_cluster_read_device(row, true, &type, error), status, done);
    TY_CHECK(ty_json_end(row, error), status, done);
    for (uint32_t i = 0; i < cluster->device_type_count; i++)
        if (strcmp(cluster->device_types[i].name, name) == 0)
            return ty_json_fail(row, error, "a name that no other device type has");
    type.name = (char *)name; /* copied, never written */
    type.source = (char *)source;
    status = ty_cluster_add_device_type(cluster, &type, &index, error);
done:
    return status;
}

static void write_device_type(const ty_device_type *type, ty_json_writer *writer)
{
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "name", type->name);
    ty_json_put_string(writer, "source", type->source);
    for (int i = 0; i < FIGURE_COUNT; i++) {
        double value;
        memcpy(&value, (const char *)type + figures[i].offset, sizeof value);
        if (value > 0 || !figures[i].is_optional)
            ty_json_put_number(writer, figures[i].key, value);
    }
    ty_json_put_uint(writer, "memory_bytes", type->memory_bytes);
    ty_json_close(writer, '}');
}

/* ---- Storage: likewise -------------------------------------------------------------------- */

static const cluster_figure storage_figures[] = {
    {"bandwidth_bytes_per_s", offsetof(ty_storage, bandwidth_bytes_per_s), BANDWIDTH_MINIMUM,
     BANDWIDTH_MAXIMUM, false},
    {"host_bytes_per_s", offsetof(ty_storage, host_bytes_per_s), 0, BANDWIDTH_MAXIMUM, true},
    {"latency_s", offsetof(ty_storage, latency_s), 0, LATENCY_MAXIMUM, false},
    {"requests", offsetof(ty_storage, requests), 1, 1e9, false},
    {"request_bytes", offsetof(ty_storage, request_bytes), 0, 1e15, true},
    {"capacity_bytes", offsetof(ty_storage, capacity_bytes), 0, 1e21, true},
};
enum { STORAGE_FIGURE_COUNT = sizeof storage_figures / sizeof storage_figures[0] };

const cluster_figure *ty_storage_figure_at(uint32_t index)
{
    return index < STORAGE_FIGURE_COUNT ? &storage_figures[index] : NULL;
}

static ty_status read_storage(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    ty_storage storage = {0};
    ty_error detail = {0};
    const char *name, *source;
    ty_status status;

    TY_CHECK(ty_json_string(row, "name", &name, error), status, done);
    TY_CHECK(ty_json_string(row, "source", &source, error), status, done);
    TY_CHECK(ty_json_bool(row, "is_shared", &storage.is_shared, error), status, done);
    for (int i = 0; i < STORAGE_FIGURE_COUNT; i++)
        if (!storage_figures[i].is_optional || ty_json_has(row, storage_figures[i].key))
            TY_CHECK(ty_json_number(
                         row, storage_figures[i].key, storage_figures[i].minimum,
                         storage_figures[i].maximum,
                         (double *)(void *)((char *)&storage + storage_figures[i].offset), error),
                     status, done);
    TY_CHECK(ty_json_end(row, error), status, done);
    storage.name = (char *)name; /* copied, never written */
    storage.source = (char *)source;
    status = ty_cluster_add_storage(cluster, &storage, "/storage", &detail);
    if (status == TY_EPARSE)
        return ty_json_fail(row, error, "a level of storage that fits behind those before (%.120s)",
                            detail.message);
    if (status != TY_OK && error != NULL)
        *error = detail;
done:
    return status;
}

static void write_storage(const ty_storage *storage, ty_json_writer *writer)
{
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "name", storage->name);
    ty_json_put_string(writer, "source", storage->source);
    ty_json_put_bool(writer, "is_shared", storage->is_shared);
    for (int i = 0; i < STORAGE_FIGURE_COUNT; i++) {
        double value;
        memcpy(&value, (const char *)storage + storage_figures[i].offset, sizeof value);
        if (value > 0 || !storage_figures[i].is_optional)
            ty_json_put_number(writer, storage_figures[i].key, value);
    }
    ty_json_close(writer, '}');
}

/* ---- Host types -------------------------------------------------------------------------- */

static ty_status read_host_type(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    ty_host_type type = {0};
    const char *name, *source, *date, *price_source;
    uint32_t index;
    ty_status status;

    TY_CHECK(ty_json_string(row, "name", &name, error), status, done);
    TY_CHECK(ty_json_string(row, "source", &source, error), status, done);
    if (ty_json_has(row, "price_usd_per_hour")) {
        TY_CHECK(ty_json_number(row, "price_usd_per_hour", 0, 1e6, &type.price_usd_per_hour, error),
                 status, done);
        TY_CHECK(ty_json_string(row, "price_date", &date, error), status, done);
        TY_CHECK(ty_json_string(row, "price_source", &price_source, error), status, done);
        type.price_date = (char *)date; /* copied, never written */
        type.price_source = (char *)price_source;
    }
    if (ty_json_has(row, "power_w"))
        TY_CHECK(ty_json_number(row, "power_w", 0, 1e7, &type.power_w, error), status, done);
    TY_CHECK(ty_json_end(row, error), status, done);
    for (uint32_t i = 0; i < cluster->host_type_count; i++)
        if (strcmp(cluster->host_types[i].name, name) == 0)
            return ty_json_fail(row, error, "a name that no other host type has");
    type.name = (char *)name;
    type.source = (char *)source;
    status = ty_cluster_add_host_type(cluster, &type, &index, error);
done:
    return status;
}

static void write_host_type(const ty_host_type *type, ty_json_writer *writer)
{
    ty_json_open(writer, NULL, '{');
    ty_json_put_string(writer, "name", type->name);
    ty_json_put_string(writer, "source", type->source);
    if (type->price_date != NULL) {
        ty_json_put_number(writer, "price_usd_per_hour", type->price_usd_per_hour);
        ty_json_put_string(writer, "price_date", type->price_date);
        ty_json_put_string(writer, "price_source", type->price_source);
    }
    if (type->power_w > 0)
        ty_json_put_number(writer, "power_w", type->power_w);
    ty_json_close(writer, '}');
}

/* ---- Link types -------------------------------------------------------------------------- */

static ty_status read_link_type(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    link_type type = {0};
    const char *name, *source;
    uint32_t index;
    ty_status status;

    TY_CHECK(ty_json_string(row, "name", &name, error), status, done);
    TY_CHECK(ty_json_string(row, "source", &source, error), status, done);
    TY_CHECK(ty_json_number(row, "bandwidth_bytes_per_s", BANDWIDTH_MINIMUM, BANDWIDTH_MAXIMUM,
                            &type.bandwidth_bytes_per_s, error),
             status, done);
    TY_CHECK(ty_json_number(row, "latency_s", 0, LATENCY_MAXIMUM, &type.latency_s, error), status,
             done);
    TY_CHECK(ty_json_end(row, error), status, done);
    for (uint32_t i = 0; i < cluster->link_type_count; i++)
        if (strcmp(cluster->link_types[i].name, name) == 0)
            return ty_json_fail(row, error, "a name that no other link type has");
    type.name = (char *)name;
    type.source = (char *)source;
    status = ty_cluster_add_link_type(cluster, &type, &index, error);
done:
    return status;
}

/* ---- Vertices and links ------------------------------------------------------------------ */

static uint32_t find_device_type(const ty_cluster *cluster, const char *name)
{
    for (uint32_t i = 0; i < cluster->device_type_count; i++)
        if (strcmp(cluster->device_types[i].name, name) == 0)
            return i;
    return NO_INDEX;
}

static uint32_t find_link_type(const ty_cluster *cluster, const char *name)
{
    for (uint32_t i = 0; i < cluster->link_type_count; i++)
        if (strcmp(cluster->link_types[i].name, name) == 0)
            return i;
    return NO_INDEX;
}

static ty_status read_type_of_host(ty_cluster *cluster, const ty_json *row, uint32_t *index,
                                   ty_error *error)
{
    const char *name;
    ty_status status = ty_json_string(row, "type", &name, error);

    if (status != TY_OK)
        return status;
    for (*index = 0; *index < cluster->host_type_count; (*index)++)
        if (strcmp(cluster->host_types[*index].name, name) == 0)
            return TY_OK;
    return ty_json_fail(row, error, "a type that is in /host_types");
}

static ty_status read_bus_id(ty_cluster *cluster, const ty_json *row, uint32_t vertex,
                             ty_error *error)
{
    const char *bus_id;
    ty_status status;

    if (!ty_json_has(row, "bus_id"))
        return TY_OK;
    status = ty_json_string(row, "bus_id", &bus_id, error);
    return status == TY_OK ? ty_cluster_set_bus_id(cluster, vertex, bus_id, error) : status;
}

/* A device's host may come later in the list: it is filled in by read_hosts_of. */
static ty_status read_vertex(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    const char *kinds[TY_VERTEX_KIND_COUNT], *name, *type;
    uint32_t cores = 0, vertex, device_type, host_type = NO_INDEX;
    int kind;
    ty_status status;

    for (int k = 0; k < TY_VERTEX_KIND_COUNT; k++)
        kinds[k] = ty_vertex_kind_name((ty_vertex_kind)k);
    TY_CHECK(ty_json_string(row, "name", &name, error), status, done);
    TY_CHECK(ty_json_enum(row, "kind", kinds, TY_VERTEX_KIND_COUNT, &kind, error), status, done);
    if (kind == TY_VERTEX_DEVICE) {
        TY_CHECK(ty_json_string(row, "type", &type, error), status, done);
        if ((device_type = find_device_type(cluster, type)) == NO_INDEX)
            return ty_json_fail(row, error, "a type that is in /device_types");
        TY_CHECK(ty_cluster_add_device(cluster, name, device_type, NO_INDEX, &vertex, error),
                 status, done);
        status = read_bus_id(cluster, row, vertex, error);
        goto done; /* "host" is still to be read */
    }
    if (kind == TY_VERTEX_HOST && ty_json_has(row, "cores"))
        TY_CHECK(ty_json_uint32(row, "cores", 1, 1000000, &cores, error), status, done);
    if (kind == TY_VERTEX_HOST && ty_json_has(row, "type"))
        TY_CHECK(read_type_of_host(cluster, row, &host_type, error), status, done);
    TY_CHECK(ty_cluster_add_vertex(cluster, (ty_vertex_kind)kind, name, cores, &vertex, error),
             status, done);
    cluster->vertices[vertex].host_type = host_type;
    if (kind == TY_VERTEX_NIC || kind == TY_VERTEX_DEVICE_SWITCH)
        TY_CHECK(read_bus_id(cluster, row, vertex, error), status, done);
    status = ty_json_end(row, error);
done:
    return status;
}

static ty_status read_hosts_of(ty_cluster *cluster, const ty_json *vertices, ty_error *error)
{
    for (uint32_t d = 0; d < cluster->device_count; d++) {
        uint32_t vertex = cluster->device_vertices[d], host;
        const ty_json *row = ty_json_at(vertices, vertex);
        const char *name;
        ty_status status = ty_json_string(row, "host", &name, error);
        if (status == TY_OK)
            status = ty_json_end(row, error);
        if (status != TY_OK)
            return status;
        host = ty_cluster_find(cluster, name);
        if (host == NO_INDEX || cluster->vertices[host].kind != TY_VERTEX_HOST)
            return ty_json_fail(row, error, "as host the name of a vertex of kind host");
        cluster->vertices[vertex].host = cluster->vertices[host].host;
    }
    return TY_OK;
}

static ty_status read_link(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    const char *from_name, *to_name, *type_name;
    uint32_t from, to, type;
    double lanes = 1;
    ty_status status;

    TY_CHECK(ty_json_string(row, "from", &from_name, error), status, done);
    TY_CHECK(ty_json_string(row, "to", &to_name, error), status, done);
    TY_CHECK(ty_json_string(row, "type", &type_name, error), status, done);
    if (ty_json_has(row, "lanes"))
        TY_CHECK(ty_json_number(row, "lanes", LANES_MINIMUM, LANES_MAXIMUM, &lanes, error), status,
                 done);
    TY_CHECK(ty_json_end(row, error), status, done);
    from = ty_cluster_find(cluster, from_name);
    to = ty_cluster_find(cluster, to_name);
    type = find_link_type(cluster, type_name);
    if (from == NO_INDEX || to == NO_INDEX || from == to)
        return ty_json_fail(row, error, "a link between two vertices of the cluster");
    if (type == NO_INDEX)
        return ty_json_fail(row, error, "a type that is in /link_types");
    status = ty_cluster_add_link(cluster, from, to, type, lanes, error);
done:
    return status;
}

/* ---- The same bounds, for clusters that come from elsewhere -------------------------------- */

static ty_status check_device_type(const ty_device_type *type, const char *name, ty_error *error)
{
    for (int i = 0; i < FIGURE_COUNT; i++) {
        double value;
        memcpy(&value, (const char *)type + figures[i].offset, sizeof value);
        if (!(value >= figures[i].minimum && value <= figures[i].maximum))
            return ty_fail(error, TY_EPARSE, "%.120s: found %s of %g, expected %g to %g", name,
                           figures[i].key, value, figures[i].minimum, figures[i].maximum);
    }
    return TY_OK;
}

static ty_status check_storage(const ty_storage *storage, const char *name, ty_error *error)
{
    for (int i = 0; i < STORAGE_FIGURE_COUNT; i++) {
        const cluster_figure *figure = &storage_figures[i];
        double value;
        memcpy(&value, (const char *)storage + figure->offset, sizeof value);
        if (!(value >= figure->minimum && value <= figure->maximum))
            return ty_fail(error, TY_EPARSE,
                           "%.80s: found storage \"%.40s\" with %s of %g, expected %g to %g", name,
                           storage->name, figure->key, value, figure->minimum, figure->maximum);
    }
    return TY_OK;
}

static ty_status check_link_type(const link_type *type, const char *name, ty_error *error)
{
    if (!(type->bandwidth_bytes_per_s >= BANDWIDTH_MINIMUM &&
          type->bandwidth_bytes_per_s <= BANDWIDTH_MAXIMUM))
        return ty_fail(
            error, TY_EPARSE, "%.120s: found link \"%.40s\" of %g bytes/s, expected %g to %g", name,
            type->name, type->bandwidth_bytes_per_s, BANDWIDTH_MINIMUM, BANDWIDTH_MAXIMUM);
    if (!(type->latency_s >= 0 && type->latency_s <= LATENCY_MAXIMUM))
        return ty_fail(error, TY_EPARSE, "%.120s: found link \"%.40s\" of %g s, expected 0 to %g",
                       name, type->name, type->latency_s, LATENCY_MAXIMUM);
    return TY_OK;
}

ty_status ty_cluster_check_figures(const ty_cluster *cluster, const char *name, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < cluster->device_type_count; i++)
        TY_CHECK(check_device_type(&cluster->device_types[i], name, error), status, done);
    for (uint32_t i = 0; i < cluster->link_type_count; i++)
        TY_CHECK(check_link_type(&cluster->link_types[i], name, error), status, done);
    for (uint32_t i = 0; i < cluster->storage_count; i++)
        TY_CHECK(check_storage(&cluster->storage[i], name, error), status, done);
    for (uint32_t i = 0; i < cluster->link_count; i++)
        if (!(cluster->link_lanes[i] >= LANES_MINIMUM && cluster->link_lanes[i] <= LANES_MAXIMUM))
            return ty_fail(
                error, TY_EPARSE, "%.120s: found a link \"%.40s\" %g wide, expected %g to %g", name,
                cluster->links[i].kind, cluster->link_lanes[i], LANES_MINIMUM, LANES_MAXIMUM);
done:
    return status;
}

/* ---- The whole --------------------------------------------------------------------------- */

typedef ty_status (*read_row)(ty_cluster *cluster, const ty_json *row, ty_error *error);

static ty_status read_rows(ty_cluster *cluster, const ty_json *list, read_row read, ty_error *error)
{
    for (size_t i = 0; i < ty_json_size(list); i++) {
        ty_status status = read(cluster, ty_json_at(list, i), error);
        if (status != TY_OK)
            return status;
    }
    return TY_OK;
}

/* At the vertex's name, so that the message has it. */
static ty_status fail_for(const ty_json *vertices, const cluster_problem *problem, ty_error *error)
{
    const ty_json *row, *at = vertices;

    if (problem->expected == NULL)
        return TY_OK;
    if (problem->vertex != NO_INDEX) {
        at = row = ty_json_at(vertices, problem->vertex);
        for (size_t i = 0; i < ty_json_size(row); i++)
            if (strcmp(ty_json_key(ty_json_at(row, i)), "name") == 0)
                at = ty_json_at(row, i);
    }
    return ty_json_fail(at, error, "%s", problem->expected);
}

static ty_status read_graph(ty_cluster *cluster, const ty_json *object, ty_error *error)
{
    const ty_json *device_types, *host_types = NULL, *link_types, *storage = NULL, *vertices;
    const ty_json *links;
    cluster_problem problem = {0};
    ty_status status;

    TY_CHECK(ty_json_array(object, "device_types", 1, 10000, &device_types, error), status, done);
    if (ty_json_has(object, "host_types"))
        TY_CHECK(ty_json_array(object, "host_types", 0, 10000, &host_types, error), status, done);
    TY_CHECK(ty_json_array(object, "link_types", 0, 10000, &link_types, error), status, done);
    if (ty_json_has(object, "storage"))
        TY_CHECK(ty_json_array(object, "storage", 0, TY_MOST_STORAGE, &storage, error), status,
                 done);
    TY_CHECK(ty_json_array(object, "vertices", 1, VERTEX_LIMIT, &vertices, error), status, done);
    TY_CHECK(ty_json_array(object, "links", 0, LINK_LIMIT, &links, error), status, done);
    TY_CHECK(ty_json_end(object, error), status, done);
    TY_CHECK(read_rows(cluster, device_types, read_device_type, error), status, done);
    if (host_types != NULL)
        TY_CHECK(read_rows(cluster, host_types, read_host_type, error), status, done);
    TY_CHECK(read_rows(cluster, link_types, read_link_type, error), status, done);
    if (storage != NULL)
        TY_CHECK(read_rows(cluster, storage, read_storage, error), status, done);
    TY_CHECK(read_rows(cluster, vertices, read_vertex, error), status, done);
    TY_CHECK(ty_cluster_sort_names(cluster, &problem, error), status, done);
    TY_CHECK(fail_for(vertices, &problem, error), status, done);
    TY_CHECK(read_hosts_of(cluster, vertices, error), status, done);
    TY_CHECK(read_rows(cluster, links, read_link, error), status, done);
    TY_CHECK(ty_cluster_finish(cluster, &problem, error), status, done);
    status = fail_for(vertices, &problem, error);
done:
    return status;
}

ty_status ty_cluster_from_json(const ty_json *object, ty_cluster **out, ty_error *error)
{
    ty_cluster *cluster = NULL;
    const char *name;
    ty_status status;

    TY_CHECK(ty_json_schema(object, schema, error), status, cleanup);
    TY_CHECK(ty_json_string(object, "name", &name, error), status, cleanup);
    TY_CHECK(ty_cluster_new(name, &cluster, error), status, cleanup);
    TY_CHECK(read_graph(cluster, object, error), status, cleanup);
    *out = cluster;
    cluster = NULL; /* given away */
cleanup:
    ty_cluster_free(cluster);
    return status;
}

ty_status ty_cluster_parse(const char *json, const char *name, ty_cluster **out, ty_error *error)
{
    ty_json_document *document = NULL;
    ty_status status = ty_json_parse(json, strlen(json), name, &document, error);

    if (status == TY_OK)
        status = ty_cluster_from_json(ty_json_root(document), out, error);
    ty_json_free(document);
    return status;
}

static void write_vertex(const ty_cluster *cluster, const cluster_vertex *vertex,
                         ty_json_writer *writer)
{
    ty_json_open_flat(writer, NULL, '{');
    ty_json_put_string(writer, "name", vertex->name);
    ty_json_put_string(writer, "kind", ty_vertex_kind_name(vertex->kind));
    if (vertex->kind == TY_VERTEX_DEVICE) {
        uint32_t host = cluster->host_vertices[vertex->host];
        ty_json_put_string(writer, "type", cluster->device_types[vertex->device_type].name);
        ty_json_put_string(writer, "host", cluster->vertices[host].name);
    }
    if (vertex->host_type != NO_INDEX)
        ty_json_put_string(writer, "type", cluster->host_types[vertex->host_type].name);
    if (vertex->cores > 0)
        ty_json_put_uint(writer, "cores", vertex->cores);
    if (vertex->bus_id != NULL)
        ty_json_put_string(writer, "bus_id", vertex->bus_id);
    ty_json_close(writer, '}');
}

static void write_link(const ty_cluster *cluster, uint32_t link, ty_json_writer *writer)
{
    const ty_link_edge *edge = &cluster->links[link];
    double lanes = cluster->link_lanes[link];

    ty_json_open_flat(writer, NULL, '{');
    ty_json_put_string(writer, "from", cluster->vertices[edge->from].name);
    ty_json_put_string(writer, "to", cluster->vertices[edge->to].name);
    ty_json_put_string(writer, "type", edge->kind);
    if (lanes < 1 || lanes > 1)
        ty_json_put_number(writer, "lanes", lanes);
    ty_json_close(writer, '}');
}

void ty_cluster_to_json(const ty_cluster *cluster, ty_json_writer *writer, const char *key)
{
    ty_json_open(writer, key, '{');
    ty_json_put_string(writer, "schema", schema);
    ty_json_put_string(writer, "name", cluster->name);
    ty_json_open(writer, "device_types", '[');
    for (uint32_t i = 0; i < cluster->device_type_count; i++)
        write_device_type(&cluster->device_types[i], writer);
    ty_json_close(writer, ']');
    if (cluster->host_type_count > 0) {
        ty_json_open(writer, "host_types", '[');
        for (uint32_t i = 0; i < cluster->host_type_count; i++)
            write_host_type(&cluster->host_types[i], writer);
        ty_json_close(writer, ']');
    }
    ty_json_open(writer, "link_types", '[');
    for (uint32_t i = 0; i < cluster->link_type_count; i++) {
        const link_type *type = &cluster->link_types[i];
        ty_json_open(writer, NULL, '{');
        ty_json_put_string(writer, "name", type->name);
        ty_json_put_string(writer, "source", type->source);
        ty_json_put_number(writer, "bandwidth_bytes_per_s", type->bandwidth_bytes_per_s);
        ty_json_put_number(writer, "latency_s", type->latency_s);
        ty_json_close(writer, '}');
    }
    ty_json_close(writer, ']');
    if (cluster->storage_count > 0) {
        ty_json_open(writer, "storage", '[');
        for (uint32_t i = 0; i < cluster->storage_count; i++)
            write_storage(&cluster->storage[i], writer);
        ty_json_close(writer, ']');
    }
    ty_json_open(writer, "vertices", '[');
    for (uint32_t v = 0; v < cluster->vertex_count; v++)
        write_vertex(cluster, &cluster->vertices[v], writer);
    ty_json_close(writer, ']');
    ty_json_open(writer, "links", '[');
    for (uint32_t i = 0; i < cluster->link_count; i++)
        write_link(cluster, i, writer);
    ty_json_close(writer, ']');
    ty_json_close(writer, '}');
}

ty_status ty_cluster_text(const ty_cluster *cluster, char **out, ty_error *error)
{
    ty_text text = {0};
    ty_json_writer writer = ty_json_writer_compact_on(&text);
    ty_status status;

    ty_cluster_to_json(cluster, &writer, NULL);
    status = ty_text_take(&text, out, error);
    ty_text_clear(&text);
    return status;
}

ty_status ty_cluster_digest(const ty_cluster *cluster, ty_digest *out, ty_error *error)
{
    ty_cluster *kept = (ty_cluster *)cluster; /* nobody sees a difference but in time */
    int expected = NO_DIGEST;
    char *text;
    ty_status status;

    if (atomic_load(&kept->digest_state) == HAS_DIGEST) {
        *out = cluster->digest;
        return TY_OK;
    }
    if ((status = ty_cluster_text(cluster, &text, error)) != TY_OK)
        return status;
    *out = ty_digest_of(text, strlen(text));
    ty_free(text);
    if (atomic_compare_exchange_strong(&kept->digest_state, &expected, DIGEST_IN_WORK)) {
        kept->digest = *out;
        atomic_store(&kept->digest_state, HAS_DIGEST);
    }
    return TY_OK;
}
