/* trainyard.cluster/1: the graph.
 * - device_types: kinds of devices.
 * - link_types: bandwidth and latency of one of the parallel links, with a source.
 * - storage: levels in read order, caches first.
 * - vertices: name and kind. A device has a type and a host; a host may have cores and a type.
 * - links: from, to, type. `lanes`, the parallel links (default 1), multiply the bandwidth.
 */
#include "cluster.h"

#include <string.h>

static const char schema[] = "trainyard.cluster/1";

/* ---- Device types ------------------------------------------------------------------------ */

#define MEMORY_MAXIMUM ((uint64_t)1 << 50)
#define FIGURE(name) #name, JSON_NUMBER, JSON_AT(ty_device_type, name)
static const json_field figures[] = {
    {FIGURE(peak_fp32_flop_per_s), 1, 1e18},
    {FIGURE(peak_tf32_flop_per_s), 0, 1e18},
    {FIGURE(peak_fp16_flop_per_s), 0, 1e18},
    {FIGURE(peak_fp8_flop_per_s), 0, 1e18, .is_optional = true},
    {FIGURE(peak_fp4_flop_per_s), 0, 1e18, .is_optional = true},
    {FIGURE(memory_bandwidth_bytes_per_s), 1, 1e18},
    {FIGURE(launch_overhead_s), 0, 1},
    {FIGURE(matmul_efficiency), 1e-3, 1},
    {FIGURE(fp8_efficiency), 0, 1, .is_optional = true},
    {FIGURE(fp4_efficiency), 0, 1, .is_optional = true},
    {FIGURE(product_edge), 0, 1e4, .is_optional = true},
    {FIGURE(attention_efficiency), 0, 1, .is_optional = true},
    {FIGURE(attention_backward), 0, 100, .is_optional = true},
    {FIGURE(memory_efficiency), 1e-3, 1},
    {FIGURE(convolution_efficiency), 0, 1, .is_optional = true},
    {FIGURE(core_share), 0, 1e6},
    {FIGURE(power_w), 0, 1e6},
};
static const json_record figures_record = JSON_RECORD(ty_device_type, figures);

static const json_field device_figures_fields[] = {
    {NULL, JSON_MEMBERS, .of = &figures_record},
    {"memory_bytes", JSON_UINT64, JSON_AT(ty_device_type, memory_bytes), 1, MEMORY_MAXIMUM},
    {"usable_memory_bytes", JSON_UINT64, JSON_AT(ty_device_type, usable_memory_bytes), 1,
     MEMORY_MAXIMUM, .is_optional = true},
    {"is_fp8_estimate", JSON_BOOL, JSON_AT(ty_device_type, is_fp8_estimate), .is_optional = true,
     .about = "what it reaches in 8 bits is an estimate: no kernel of it was measured"},
    {"is_fp4_estimate", JSON_BOOL, JSON_AT(ty_device_type, is_fp4_estimate), .is_optional = true},
};
const json_record ty_device_figures_record = JSON_RECORD(ty_device_type, device_figures_fields);

static const json_field device_type_fields[] = {
    {"name", JSON_WORD, JSON_AT(ty_device_type, name)},
    {"generation", JSON_WORD, JSON_AT(ty_device_type, generation), .is_optional = true,
     .about = "of its architecture, such as hopper: what stacks say of one holds on all its "
              "devices"},
    {"source", JSON_WORD, JSON_AT(ty_device_type, source)},
    {"noun", JSON_CHARS, JSON_AT(ty_device_type, noun), 1, sizeof((ty_device_type *)NULL)->noun - 1,
     .is_optional = true, .about = "name in rates; absent: a GPU, or cores of a host"},
    {NULL, JSON_MEMBERS, .of = &ty_device_figures_record},
};
static const json_record device_type_record = JSON_RECORD(ty_device_type, device_type_fields);

const json_field *ty_cluster_figure_at(uint32_t index)
{
    return index < figures_record.field_count ? &figures[index] : NULL;
}

ty_status ty_cluster_read_device(const ty_json *row, ty_device_type *out, ty_error *error)
{
    ty_status status = TY_OK;

    for (uint32_t i = 0; i < figures_record.field_count; i++)
        if (ty_json_has(row, figures[i].key))
            TY_TRY(ty_json_number(row, figures[i].key, figures[i].minimum, figures[i].maximum,
                                  (double *)(void *)((char *)out + figures[i].at), error));
    if (ty_json_has(row, "memory_bytes")) {
        out->usable_memory_bytes = 0; /* unknown for another size */
        TY_TRY(ty_json_uint64(row, "memory_bytes", 1, MEMORY_MAXIMUM, &out->memory_bytes, error));
    }
    if (ty_json_has(row, "usable_memory_bytes"))
        status = ty_json_uint64(row, "usable_memory_bytes", 1, out->memory_bytes,
                                &out->usable_memory_bytes, error);
    return status;
}

static ty_status read_device_type(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    ty_device_type type = {0};
    uint32_t index;

    TY_TRY(ty_record_read_all(row, &device_type_record, &type, NULL, error));
    if (type.usable_memory_bytes > type.memory_bytes)
        return ty_json_fail(row, error, "usable_memory_bytes up to memory_bytes");
    for (uint32_t i = 0; i < cluster->device_type_count; i++)
        if (strcmp(cluster->device_types[i].name, type.name) == 0)
            return ty_json_fail(row, error, "a name that no other device type has");
    return ty_cluster_add_device_type(cluster, &type, &index, error);
}

/* ---- Storage ------------------------------------------------------------------------------ */

static const json_field storage_figures[] = {
    {"bandwidth_bytes_per_s", JSON_NUMBER, JSON_AT(ty_storage, bandwidth_bytes_per_s),
     BANDWIDTH_MINIMUM, BANDWIDTH_MAXIMUM},
    {"host_bytes_per_s", JSON_NUMBER, JSON_AT(ty_storage, host_bytes_per_s), 0, BANDWIDTH_MAXIMUM,
     .is_optional = true},
    {"latency_s", JSON_NUMBER, JSON_AT(ty_storage, latency_s), 0, LATENCY_MAXIMUM},
    {"requests", JSON_NUMBER, JSON_AT(ty_storage, requests), 1, 1e9},
    {"request_bytes", JSON_NUMBER, JSON_AT(ty_storage, request_bytes), 0, 1e15,
     .is_optional = true},
    {"capacity_bytes", JSON_NUMBER, JSON_AT(ty_storage, capacity_bytes), 0, 1e21,
     .is_optional = true},
};
static const json_record storage_figures_record = JSON_RECORD(ty_storage, storage_figures);

static const json_field storage_fields[] = {
    {"name", JSON_WORD, JSON_AT(ty_storage, name)},
    {"source", JSON_WORD, JSON_AT(ty_storage, source)},
    {"is_shared", JSON_BOOL, JSON_AT(ty_storage, is_shared)},
    {NULL, JSON_MEMBERS, .of = &storage_figures_record},
};
static const json_record storage_record = JSON_RECORD(ty_storage, storage_fields);

const json_field *ty_storage_figure_at(uint32_t index)
{
    return index < storage_figures_record.field_count ? &storage_figures[index] : NULL;
}

static ty_status read_storage(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    ty_storage storage = {0};
    ty_error detail = {0};
    ty_status status = TY_OK;

    TY_TRY(ty_record_read_all(row, &storage_record, &storage, NULL, error));
    status = ty_cluster_add_storage(cluster, &storage, "/storage", &detail);
    if (status == TY_EPARSE)
        return ty_json_fail(row, error, "a level of storage that fits behind those before (%.120s)",
                            detail.message);
    if (status != TY_OK && error != NULL)
        *error = detail;
    return status;
}

/* ---- Host types -------------------------------------------------------------------------- */

static bool has_price(const void *type)
{
    return ((const ty_host_type *)type)->price_date != NULL;
}

/* A price needs a date and a source. */
static ty_status read_price(const ty_json *object, const json_field *field, void *record,
                            const void *context, ty_error *error)
{
    ty_host_type *type = record;
    const char *date;
    ty_status status = ty_json_number(object, field->key, field->minimum, field->maximum,
                                      &type->price_usd_per_hour, error);

    (void)context;
    if (status == TY_OK)
        status = ty_json_string(object, "price_date", &date, error);
    if (status == TY_OK)
        type->price_date = (char *)date; /* copied, never written */
    return status;
}

static const json_field host_type_fields[] = {
    {"name", JSON_WORD, JSON_AT(ty_host_type, name)},
    {"source", JSON_WORD, JSON_AT(ty_host_type, source)},
    {"price_usd_per_hour", JSON_NUMBER, JSON_AT(ty_host_type, price_usd_per_hour), 0, 1e6,
     .is_optional = true, .is_said = has_price, .read = read_price},
    {"price_date", JSON_WORD, JSON_AT(ty_host_type, price_date), .applies = has_price},
    {"price_source", JSON_WORD, JSON_AT(ty_host_type, price_source), .applies = has_price},
    {"power_w", JSON_NUMBER, JSON_AT(ty_host_type, power_w), 0, 1e7, .is_optional = true},
    {"memory_bytes", JSON_UINT64, JSON_AT(ty_host_type, memory_bytes), 1, MEMORY_MAXIMUM,
     .is_optional = true},
    {"nics_per_link", JSON_UINT32, JSON_AT(ty_host_type, nics_per_link), 1, 1024,
     .is_optional = true, .about = "NICs that are drawn as one; absent: one"},
};
static const json_record host_type_record = JSON_RECORD(ty_host_type, host_type_fields);

static ty_status read_host_type(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    ty_host_type type = {0};
    uint32_t index;

    TY_TRY(ty_record_read_all(row, &host_type_record, &type, NULL, error));
    for (uint32_t i = 0; i < cluster->host_type_count; i++)
        if (strcmp(cluster->host_types[i].name, type.name) == 0)
            return ty_json_fail(row, error, "a name that no other host type has");
    return ty_cluster_add_host_type(cluster, &type, &index, error);
}

/* ---- Link types -------------------------------------------------------------------------- */

JSON_NAMES(transport_name, ty_link_transport, ty_link_transport_name)

static const json_field link_type_fields[] = {
    {"name", JSON_WORD, JSON_AT(link_type, name)},
    {"source", JSON_WORD, JSON_AT(link_type, source)},
    {"bandwidth_bytes_per_s", JSON_NUMBER, JSON_AT(link_type, bandwidth_bytes_per_s),
     BANDWIDTH_MINIMUM, BANDWIDTH_MAXIMUM, .about = "of one lane, per direction"},
    {"latency_s", JSON_NUMBER, JSON_AT(link_type, latency_s), 0, LATENCY_MAXIMUM},
    {"transport", JSON_NAME, JSON_AT(link_type, transport), .name = transport_name,
     .name_count = TY_LINK_COUNT, .is_optional = true,
     .about = "protocol between hosts; absent: a link inside hosts or between chips"},
    {"flows", JSON_UINT32, JSON_AT(link_type, flows), 1, FLOWS_MAXIMUM, .is_optional = true,
     .about = "connections of an adapter to each peer; absent: the framework's usual number"},
};
static const json_record link_type_record = JSON_RECORD(link_type, link_type_fields);

static ty_status read_link_type(ty_cluster *cluster, const ty_json *row, ty_error *error)
{
    link_type type = {0};
    uint32_t index;

    TY_TRY(ty_record_read_all(row, &link_type_record, &type, NULL, error));
    for (uint32_t i = 0; i < cluster->link_type_count; i++)
        if (strcmp(cluster->link_types[i].name, type.name) == 0)
            return ty_json_fail(row, error, "a name that no other link type has");
    return ty_cluster_add_link_type(cluster, &type, &index, error);
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

static uint32_t find_host_type(const ty_cluster *cluster, const char *name)
{
    for (uint32_t i = 0; i < cluster->host_type_count; i++)
        if (strcmp(cluster->host_types[i].name, name) == 0)
            return i;
    return NO_INDEX;
}

typedef struct vertex_row {
    const char *name, *type, *host, *bus_id;
    ty_vertex_kind kind;
    uint32_t cores;
    bool is_staged;
} vertex_row;

JSON_NAMES(kind_name, ty_vertex_kind, ty_vertex_kind_name)

static bool is_device(const void *row)
{
    return ((const vertex_row *)row)->kind == TY_VERTEX_DEVICE;
}

static bool is_host(const void *row)
{
    return ((const vertex_row *)row)->kind == TY_VERTEX_HOST;
}

static bool is_on_a_bus(const void *row)
{
    const ty_vertex_kind kind = ((const vertex_row *)row)->kind;

    return kind == TY_VERTEX_DEVICE || kind == TY_VERTEX_NIC || kind == TY_VERTEX_DEVICE_SWITCH;
}

static const json_field vertex_fields[] = {
    {"name", JSON_WORD, JSON_AT(vertex_row, name)},
    {"kind", JSON_NAME, JSON_AT(vertex_row, kind), .name = kind_name,
     .name_count = TY_VERTEX_KIND_COUNT},
    {"type", JSON_WORD, JSON_AT(vertex_row, type), .applies = is_device},
    {"host", JSON_WORD, JSON_AT(vertex_row, host), .applies = is_device},
    {"type", JSON_WORD, JSON_AT(vertex_row, type), .applies = is_host, .is_optional = true},
    {"cores", JSON_UINT32, JSON_AT(vertex_row, cores), 1, 1000000, .applies = is_host,
     .is_optional = true},
    {"is_staged", JSON_BOOL, JSON_AT(vertex_row, is_staged), .applies = is_host,
     .is_optional = true,
     .about = "devices without peer-to-peer access over PCIe: they exchange through host memory"},
    {"bus_id", JSON_WORD, JSON_AT(vertex_row, bus_id), .applies = is_on_a_bus, .is_optional = true,
     .about = "PCI address of a device, NIC or PCIe switch, where a file of the machine gave it"},
};
static const json_record vertex_record = JSON_FLAT_RECORD(vertex_row, vertex_fields);

/* A device's host may come later in the list; read_hosts_of sets it. */
static ty_status read_vertex(ty_cluster *cluster, const ty_json *object, ty_error *error)
{
    vertex_row row = {0};
    uint32_t vertex, type = NO_INDEX;

    TY_TRY(ty_record_read_all(object, &vertex_record, &row, NULL, error));
    if (row.kind == TY_VERTEX_DEVICE) {
        if ((type = find_device_type(cluster, row.type)) == NO_INDEX)
            return ty_json_fail(object, error, "a type that is in /device_types");
        TY_TRY(ty_cluster_add_device(cluster, row.name, type, NO_INDEX, &vertex, error));
    } else {
        if (row.type != NULL && (type = find_host_type(cluster, row.type)) == NO_INDEX)
            return ty_json_fail(object, error, "a type that is in /host_types");
        TY_TRY(ty_cluster_add_vertex(cluster, row.kind, row.name, row.cores, &vertex, error));
        cluster->vertices[vertex].host_type = type;
        cluster->vertices[vertex].is_staged = row.is_staged;
    }
    return row.bus_id == NULL ? TY_OK : ty_cluster_set_bus_id(cluster, vertex, row.bus_id, error);
}

static ty_status read_hosts_of(ty_cluster *cluster, const ty_json *vertices, ty_error *error)
{
    for (uint32_t d = 0; d < cluster->device_count; d++) {
        uint32_t vertex = cluster->device_vertices[d], host;
        const ty_json *row = ty_json_at(vertices, vertex);
        const char *name;
        ty_status status = ty_json_string(row, "host", &name, error);
        if (status != TY_OK)
            return status;
        host = ty_cluster_find(cluster, name);
        if (host == NO_INDEX || cluster->vertices[host].kind != TY_VERTEX_HOST)
            return ty_json_fail(row, error, "as host the name of a vertex of kind host");
        cluster->vertices[vertex].host = cluster->vertices[host].host;
    }
    return TY_OK;
}

typedef struct link_row {
    const char *from, *to, *type;
    double lanes;
} link_row;

static const json_field link_fields[] = {
    {"from", JSON_WORD, JSON_AT(link_row, from)},
    {"to", JSON_WORD, JSON_AT(link_row, to)},
    {"type", JSON_WORD, JSON_AT(link_row, type)},
    {"lanes", JSON_NUMBER, JSON_AT(link_row, lanes), LANES_MINIMUM, LANES_MAXIMUM,
     .is_optional = true, .absent = 1},
};
static const json_record link_record = JSON_FLAT_RECORD(link_row, link_fields);

static ty_status read_link(ty_cluster *cluster, const ty_json *object, ty_error *error)
{
    link_row row = {0};
    uint32_t from, to, type;

    TY_TRY(ty_record_read_all(object, &link_record, &row, NULL, error));
    from = ty_cluster_find(cluster, row.from);
    to = ty_cluster_find(cluster, row.to);
    type = find_link_type(cluster, row.type);
    if (from == NO_INDEX || to == NO_INDEX || from == to)
        return ty_json_fail(object, error, "a link between two vertices of the cluster");
    if (type == NO_INDEX)
        return ty_json_fail(object, error, "a type that is in /link_types");
    return ty_cluster_add_link(cluster, from, to, type, row.lanes, error);
}

/* ---- The same bounds, for clusters that come from elsewhere -------------------------------- */

static ty_status check_device_type(const ty_device_type *type, const char *name, ty_error *error)
{
    for (uint32_t i = 0; i < figures_record.field_count; i++) {
        double value;
        memcpy(&value, (const char *)type + figures[i].at, sizeof value);
        if (!(value >= figures[i].minimum && value <= figures[i].maximum))
            return ty_fail(error, TY_EPARSE, "%.120s: found %s of %g, expected %g to %g", name,
                           figures[i].key, value, figures[i].minimum, figures[i].maximum);
    }
    return TY_OK;
}

static ty_status check_storage(const ty_storage *storage, const char *name, ty_error *error)
{
    for (uint32_t i = 0; i < storage_figures_record.field_count; i++) {
        const json_field *figure = &storage_figures[i];
        double value;
        memcpy(&value, (const char *)storage + figure->at, sizeof value);
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
    for (uint32_t i = 0; i < cluster->device_type_count; i++)
        TY_TRY(check_device_type(&cluster->device_types[i], name, error));
    for (uint32_t i = 0; i < cluster->link_type_count; i++)
        TY_TRY(check_link_type(&cluster->link_types[i], name, error));
    for (uint32_t i = 0; i < cluster->storage_count; i++)
        TY_TRY(check_storage(&cluster->storage[i], name, error));
    for (uint32_t i = 0; i < cluster->link_count; i++)
        if (!(cluster->link_lanes[i] >= LANES_MINIMUM && cluster->link_lanes[i] <= LANES_MAXIMUM))
            return ty_fail(
                error, TY_EPARSE, "%.120s: found a link \"%.40s\" %g wide, expected %g to %g", name,
                cluster->links[i].kind, cluster->link_lanes[i], LANES_MINIMUM, LANES_MAXIMUM);
    return TY_OK;
}

/* ---- Documents ----------------------------------------------------------------------------- */

/* Rows that are added to a cluster one by one. */
static ty_status read_rows(const ty_json *object, const json_field *field, ty_cluster *cluster,
                           ty_status (*read)(ty_cluster *, const ty_json *, ty_error *),
                           const ty_json **rows, ty_error *error)
{
    ty_status status = ty_json_array(object, field->key, (size_t)field->minimum,
                                     (size_t)field->maximum, rows, error);

    for (size_t i = 0; status == TY_OK && i < ty_json_size(*rows); i++)
        status = read(cluster, ty_json_at(*rows, i), error);
    return status;
}

/* Their readers, and the writers of a cluster's rows. */
#define ROWS(name, list)                                                                           \
    static ty_status read_##list(const ty_json *object, const json_field *field, void *record,     \
                                 const void *context, ty_error *error)                             \
    {                                                                                              \
        const ty_json *rows;                                                                       \
        (void)context;                                                                             \
        return read_rows(object, field, record, read_##name, &rows, error);                        \
    }
ROWS(device_type, device_types)
ROWS(host_type, host_types)
ROWS(link_type, link_types)
ROWS(storage, storages)
ROWS(link, links)
#undef ROWS

/* Reports at the vertex's name, so the message contains it. */
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

static ty_status read_vertices(const ty_json *object, const json_field *field, void *record,
                               const void *context, ty_error *error)
{
    ty_cluster *cluster = record;
    cluster_problem problem = {0};
    const ty_json *rows;

    (void)context;
    TY_TRY(read_rows(object, field, cluster, read_vertex, &rows, error));
    TY_TRY(ty_cluster_sort_names(cluster, &problem, error));
    TY_TRY(fail_for(rows, &problem, error));
    return read_hosts_of(cluster, rows, error);
}

static void write_vertices(const json_field *field, const void *record, const void *context,
                           ty_json_writer *writer)
{
    const ty_cluster *cluster = record;

    (void)context;
    ty_json_open(writer, field->key, '[');
    for (uint32_t v = 0; v < cluster->vertex_count; v++) {
        const cluster_vertex *vertex = &cluster->vertices[v];
        vertex_row row = {.name = vertex->name, .kind = vertex->kind, .cores = vertex->cores};
        row.bus_id = vertex->bus_id;
        row.is_staged = vertex->is_staged;
        if (vertex->kind == TY_VERTEX_DEVICE) {
            row.type = cluster->device_types[vertex->device_type].name;
            row.host = cluster->vertices[cluster->host_vertices[vertex->host]].name;
        } else if (vertex->host_type != NO_INDEX) {
            row.type = cluster->host_types[vertex->host_type].name;
        }
        ty_record_write(field->of, &row, NULL, writer, NULL);
    }
    ty_json_close(writer, ']');
}

static void write_links(const json_field *field, const void *record, const void *context,
                        ty_json_writer *writer)
{
    const ty_cluster *cluster = record;

    (void)context;
    ty_json_open(writer, field->key, '[');
    for (uint32_t i = 0; i < cluster->link_count; i++) {
        const ty_link_edge *edge = &cluster->links[i];
        const link_row row = {.from = cluster->vertices[edge->from].name,
                              .to = cluster->vertices[edge->to].name,
                              .type = edge->kind,
                              .lanes = cluster->link_lanes[i]};
        ty_record_write(field->of, &row, NULL, writer, NULL);
    }
    ty_json_close(writer, ']');
}

static const json_field cluster_fields[] = {
    {"name", JSON_WORD, JSON_AT(ty_cluster, name), .read = ty_record_pass_by},
    {"device_types", JSON_ROWS, JSON_AT(ty_cluster, device_types), 1, 10000,
     .of = &device_type_record, .count_at = offsetof(ty_cluster, device_type_count),
     .read = read_device_types},
    {"host_types", JSON_ROWS, JSON_AT(ty_cluster, host_types), 0, 10000, .is_optional = true,
     .of = &host_type_record, .count_at = offsetof(ty_cluster, host_type_count),
     .read = read_host_types},
    {"link_types", JSON_ROWS, JSON_AT(ty_cluster, link_types), 0, 10000, .of = &link_type_record,
     .count_at = offsetof(ty_cluster, link_type_count), .read = read_link_types},
    {"storage", JSON_HERE, JSON_AT(ty_cluster, storage), 0, TY_MOST_STORAGE, .is_optional = true,
     .of = &storage_record, .count_at = offsetof(ty_cluster, storage_count), .read = read_storages,
     .about = "where samples are read: caches of each host first, what holds everything last"},
    {"vertices", JSON_ROWS, .minimum = 1, .maximum = VERTEX_LIMIT, .of = &vertex_record,
     .read = read_vertices, .write = write_vertices},
    {"links", JSON_ROWS, .minimum = 0, .maximum = LINK_LIMIT, .of = &link_record,
     .read = read_links, .write = write_links},
};
const json_record ty_cluster_record = JSON_RECORD(ty_cluster, cluster_fields);

ty_status ty_cluster_from_json(const ty_json *object, ty_cluster **out, ty_error *error)
{
    ty_cluster *cluster = NULL;
    const ty_json *vertices;
    cluster_problem problem = {0};
    const char *name;
    ty_status status;

    TY_CHECK(ty_json_schema(object, schema, error), status, cleanup);
    TY_CHECK(ty_json_string(object, "name", &name, error), status, cleanup);
    TY_CHECK(ty_cluster_new(name, &cluster, error), status, cleanup);
    TY_CHECK(ty_record_read_all(object, &ty_cluster_record, cluster, NULL, error), status, cleanup);
    TY_CHECK(ty_json_array(object, "vertices", 1, VERTEX_LIMIT, &vertices, error), status, cleanup);
    TY_CHECK(ty_cluster_finish(cluster, &problem, error), status, cleanup);
    TY_CHECK(fail_for(vertices, &problem, error), status, cleanup);
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

void ty_cluster_to_json(const ty_cluster *cluster, ty_json_writer *writer, const char *key)
{
    ty_record_write_document(schema, &ty_cluster_record, cluster, NULL, writer, key);
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
    ty_cluster *kept = (ty_cluster *)cluster; /* affects only speed */
    int expected = NO_DIGEST;
    char *text;

    if (atomic_load(&kept->digest_state) == HAS_DIGEST) {
        *out = cluster->digest;
        return TY_OK;
    }
    TY_TRY(ty_cluster_text(cluster, &text, error));
    *out = ty_digest_of(text, strlen(text));
    ty_free(text);
    if (atomic_compare_exchange_strong(&kept->digest_state, &expected, DIGEST_IN_WORK)) {
        kept->digest = *out;
        atomic_store(&kept->digest_state, HAS_DIGEST);
    }
    return TY_OK;
}
