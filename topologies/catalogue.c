/* Reading the catalogue. Every figure is {"value": ..., "source": KEY}, the key standing for a text
 * in the file's "sources": a figure without a source is refused. */
#include "catalogue.h"

#include <stdio.h>
#include <string.h>

static const char folder[] = "topologies/catalogue";

static ty_status out_of_memory(ty_error *error)
{
    return ty_fail(error, TY_ENOMEM, "out of memory for the catalogue");
}

static ty_status copy_string(const catalogue *c, const char *text, char **out, ty_error *error)
{
    char *copy = ty_arena_strdup(c->arena, text);
    if (copy == NULL)
        return out_of_memory(error);
    *out = copy;
    return TY_OK;
}

static ty_status copy_member(const catalogue *c, const ty_json *object, const char *key, char **out,
                             ty_error *error)
{
    const char *text;
    ty_status status = ty_json_string(object, key, &text, error);
    return status == TY_OK ? copy_string(c, text, out, error) : status;
}

/* ---- Figures and their sources ----------------------------------------------------------- */

/* The sources an entry has named, each once: "NVIDIA data sheet; Calculon systems/a100_80g.json".
 */
typedef struct citation {
    const ty_json *sources; /* of the file: key -> text */
    ty_text text;
    const char *seen[16];
    uint32_t count;
} citation;

static ty_status cite(citation *cited, const ty_json *figure, ty_error *error)
{
    const char *key, *text;
    ty_status status = ty_json_string(figure, "source", &key, error);

    if (status != TY_OK)
        return status;
    if (!ty_json_has(cited->sources, key))
        return ty_json_fail(figure, error, "a source that is a key of /sources");
    if ((status = ty_json_string(cited->sources, key, &text, error)) != TY_OK)
        return status;
    for (uint32_t i = 0; i < cited->count; i++)
        if (strcmp(cited->seen[i], key) == 0)
            return TY_OK;
    if (cited->count == sizeof cited->seen / sizeof cited->seen[0])
        return ty_json_fail(figure, error, "at most %u sources in an entry", cited->count);
    ty_text_addf(&cited->text, "%s%s", cited->count == 0 ? "" : "; ", text);
    cited->seen[cited->count++] = key;
    return TY_OK;
}

static ty_status take_citation(const catalogue *c, citation *cited, char **out, ty_error *error)
{
    char *text;
    ty_status status = ty_text_take(&cited->text, &text, error);

    if (status != TY_OK)
        return status;
    status = copy_string(c, text, out, error);
    ty_free(text);
    return status;
}

static ty_status read_figure(const ty_json *object, const char *key, double minimum, double maximum,
                             citation *cited, double *out, ty_error *error)
{
    const ty_json *figure;
    ty_status status;

    TY_CHECK(ty_json_object(object, key, &figure, error), status, done);
    TY_CHECK(ty_json_number(figure, "value", minimum, maximum, out, error), status, done);
    TY_CHECK(cite(cited, figure, error), status, done);
    status = ty_json_end(figure, error);
done:
    return status;
}

/* ---- Entries ----------------------------------------------------------------------------- */

static ty_status read_device(const catalogue *c, const ty_json *object, const ty_json *sources,
                             ty_device_type *out, ty_error *error)
{
    citation cited = {.sources = sources};
    double memory_bytes;
    const struct {
        const char *key;
        double *value, minimum, maximum;
        bool is_optional;
    } figures[] = {
        {"peak_fp32_flop_per_s", &out->peak_fp32_flop_per_s, 1, 1e18, false},
        {"peak_tf32_flop_per_s", &out->peak_tf32_flop_per_s, 1, 1e18, true},
        {"peak_fp16_flop_per_s", &out->peak_fp16_flop_per_s, 1, 1e18, true},
        {"memory_bandwidth_bytes_per_s", &out->memory_bandwidth_bytes_per_s, 1, 1e18, false},
        {"memory_bytes", &memory_bytes, 1, 1e15, false},
        {"launch_overhead_s", &out->launch_overhead_s, 0, 1, false},
        {"matmul_efficiency", &out->matmul_efficiency, 1e-3, 1, false},
        {"memory_efficiency", &out->memory_efficiency, 1e-3, 1, false},
        {"power_w", &out->power_w, 0, 1e6, false},
    };
    ty_status status;

    TY_CHECK(copy_member(c, object, "name", &out->name, error), status, cleanup);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (!figures[i].is_optional || ty_json_has(object, figures[i].key))
            TY_CHECK(read_figure(object, figures[i].key, figures[i].minimum, figures[i].maximum,
                                 &cited, figures[i].value, error),
                     status, cleanup);
    out->memory_bytes = (uint64_t)memory_bytes;
    TY_CHECK(ty_json_end(object, error), status, cleanup);
    status = take_citation(c, &cited, &out->source, error);
cleanup:
    ty_text_clear(&cited.text);
    return status;
}

static ty_status read_trunk(const catalogue *c, const ty_json *object, citation *cited,
                            catalogue_link *out, ty_error *error)
{
    const char *port;
    char name[80];
    ty_status status;

    TY_CHECK(read_figure(object, "trunk_latency_s", 0, LATENCY_MAXIMUM, cited,
                         &out->trunk.latency_s, error),
             status, done);
    TY_CHECK(ty_json_string(object, "port", &port, error), status, done);
    out->port = catalogue_find_link(c, port);
    if (out->port == NO_INDEX || c->links[out->port].use != LINK_TO_HOST) {
        status = ty_json_fail(object, error, "as port an earlier link used to reach the host");
        goto done;
    }
    snprintf(name, sizeof name, "%.60s-trunk", out->name);
    out->trunk.bandwidth_bytes_per_s = out->type.bandwidth_bytes_per_s;
    status = copy_string(c, name, &out->trunk.name, error);
done:
    return status;
}

static ty_status read_link(const catalogue *c, const ty_json *object, const ty_json *sources,
                           catalogue_link *out, ty_error *error)
{
    static const char *const uses[LINK_USE_COUNT] = {
        [LINK_TO_SWITCH] = "device_switch", [LINK_TO_HOST] = "host",    [LINK_DIRECT] = "device",
        [LINK_BRIDGE] = "bridge",           [LINK_NETWORK] = "network",
    };
    citation cited = {.sources = sources};
    int use;
    ty_status status;

    TY_CHECK(copy_member(c, object, "name", &out->name, error), status, cleanup);
    TY_CHECK(ty_json_enum(object, "use", uses, LINK_USE_COUNT, &use, error), status, cleanup);
    out->use = (link_use)use;
    TY_CHECK(read_figure(object, "bandwidth_bytes_per_s", BANDWIDTH_MINIMUM, BANDWIDTH_MAXIMUM,
                         &cited, &out->type.bandwidth_bytes_per_s, error),
             status, cleanup);
    TY_CHECK(
        read_figure(object, "latency_s", 0, LATENCY_MAXIMUM, &cited, &out->type.latency_s, error),
        status, cleanup);
    if (out->use == LINK_NETWORK)
        TY_CHECK(read_trunk(c, object, &cited, out, error), status, cleanup);
    TY_CHECK(ty_json_end(object, error), status, cleanup);
    TY_CHECK(take_citation(c, &cited, &out->type.source, error), status, cleanup);
    out->trunk.source = out->type.source;
    out->type.name = out->name;
cleanup:
    ty_text_clear(&cited.text);
    return status;
}

/* ---- Hosts ------------------------------------------------------------------------------- */

static uint32_t find_vertex(const catalogue_host *host, const char *name)
{
    for (uint32_t v = 0; v < host->vertex_count; v++)
        if (strcmp(host->vertices[v].name, name) == 0)
            return v;
    return NO_INDEX;
}

static ty_status read_vertices(const catalogue *c, const ty_json *object, catalogue_host *host,
                               ty_error *error)
{
    const ty_json *list, *row;
    const char *kinds[TY_VERTEX_KIND_COUNT];
    ty_status status;

    for (int k = 0; k < TY_VERTEX_KIND_COUNT; k++)
        kinds[k] = ty_vertex_kind_name((ty_vertex_kind)k);
    TY_CHECK(ty_json_array(object, "vertices", 1, 10000, &list, error), status, done);
    host->vertices = ty_arena_alloc(c->arena, ty_json_size(list), sizeof *host->vertices);
    if (host->vertices == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < ty_json_size(list); i++) {
        catalogue_vertex *vertex = &host->vertices[i];
        int kind;
        row = ty_json_at(list, i);
        TY_CHECK(ty_json_enum(row, "kind", kinds, TY_VERTEX_KIND_COUNT, &kind, error), status,
                 done);
        vertex->kind = (ty_vertex_kind)kind;
        TY_CHECK(copy_member(c, row, "name", &vertex->name, error), status, done);
        if ((vertex->kind == TY_VERTEX_HOST) != (i == 0) || vertex->kind == TY_VERTEX_SWITCH)
            return ty_json_fail(row, error, "one host, first, and no network switch");
        if (find_vertex(host, vertex->name) != NO_INDEX)
            return ty_json_fail(row, error, "a name that no other vertex has");
        host->vertex_count++;
        TY_CHECK(ty_json_end(row, error), status, done);
    }
done:
    return status;
}

static ty_status read_edge(const catalogue *c, const ty_json *row, const catalogue_host *host,
                           catalogue_edge *out, ty_error *error)
{
    const char *from, *to, *link;
    ty_status status;

    out->lanes = 1;
    TY_CHECK(ty_json_string(row, "from", &from, error), status, done);
    TY_CHECK(ty_json_string(row, "to", &to, error), status, done);
    TY_CHECK(ty_json_string(row, "type", &link, error), status, done);
    if (ty_json_has(row, "lanes"))
        TY_CHECK(ty_json_number(row, "lanes", LANES_MINIMUM, LANES_MAXIMUM, &out->lanes, error),
                 status, done);
    TY_CHECK(ty_json_end(row, error), status, done);
    out->from = find_vertex(host, from);
    out->to = find_vertex(host, to);
    out->link = catalogue_find_link(c, link);
    if (out->from == NO_INDEX || out->to == NO_INDEX || out->from == out->to)
        return ty_json_fail(row, error, "a link between two vertices of the host");
    if (out->link == NO_INDEX || c->links[out->link].use == LINK_NETWORK)
        return ty_json_fail(row, error, "a type of link used inside hosts");
done:
    return status;
}

static ty_status read_edges(const catalogue *c, const ty_json *object, catalogue_host *host,
                            ty_error *error)
{
    const ty_json *list;
    ty_status status = ty_json_array(object, "links", 1, 100000, &list, error);

    if (status != TY_OK)
        return status;
    host->edges = ty_arena_alloc(c->arena, ty_json_size(list), sizeof *host->edges);
    if (host->edges == NULL)
        return out_of_memory(error);
    for (size_t i = 0; i < ty_json_size(list) && status == TY_OK; i++)
        status = read_edge(c, ty_json_at(list, i), host, &host->edges[host->edge_count++], error);
    return status;
}

/* The inside of a host: its own, or that of an earlier host it is "like" but for its devices. */
static ty_status read_inside(const catalogue *c, const ty_json *object, catalogue_host *host,
                             ty_error *error)
{
    const char *name;
    uint32_t like;
    ty_status status;

    if (!ty_json_has(object, "like")) {
        status = read_vertices(c, object, host, error);
        return status == TY_OK ? read_edges(c, object, host, error) : status;
    }
    if ((status = ty_json_string(object, "like", &name, error)) != TY_OK)
        return status;
    if ((like = catalogue_find_host(c, name)) == NO_INDEX)
        return ty_json_fail(object, error, "to be like an earlier host");
    host->vertex_count = c->hosts[like].vertex_count;
    host->vertices = c->hosts[like].vertices;
    host->edge_count = c->hosts[like].edge_count;
    host->edges = c->hosts[like].edges;
    return TY_OK;
}

static ty_status read_host(const catalogue *c, const ty_json *object, const ty_json *sources,
                           catalogue_host *out, ty_error *error)
{
    citation cited = {.sources = sources};
    const char *device, *network;
    ty_status status;

    TY_CHECK(copy_member(c, object, "name", &out->name, error), status, cleanup);
    TY_CHECK(cite(&cited, object, error), status, cleanup);
    TY_CHECK(take_citation(c, &cited, &out->source, error), status, cleanup);
    TY_CHECK(ty_json_string(object, "device", &device, error), status, cleanup);
    TY_CHECK(ty_json_string(object, "network", &network, error), status, cleanup);
    out->device_type = catalogue_find_device(c, device);
    out->network = catalogue_find_link(c, network);
    if (out->device_type == NO_INDEX) {
        status = ty_json_fail(object, error, "as device one of devices.json");
        goto cleanup;
    }
    if (out->network == NO_INDEX || c->links[out->network].use != LINK_NETWORK) {
        status = ty_json_fail(object, error, "as network one of links.json");
        goto cleanup;
    }
    TY_CHECK(read_inside(c, object, out, error), status, cleanup);
    status = ty_json_end(object, error);
cleanup:
    ty_text_clear(&cited.text);
    return status;
}

/* ---- Files ------------------------------------------------------------------------------- */

/* Adds an entry to its table, which has room for `room` of them. */
typedef ty_status (*add_entry)(catalogue *c, const ty_json *entry, const ty_json *sources,
                               size_t room, ty_error *error);

static ty_status add_device(catalogue *c, const ty_json *entry, const ty_json *sources, size_t room,
                            ty_error *error)
{
    ty_device_type type = {0};
    ty_status status = read_device(c, entry, sources, &type, error);

    if (status != TY_OK)
        return status;
    if (catalogue_find_device(c, type.name) != NO_INDEX)
        return ty_json_fail(entry, error, "a name that no other device has");
    if (c->device_types == NULL)
        c->device_types = ty_arena_alloc(c->arena, room, sizeof type);
    if (c->device_types == NULL)
        return out_of_memory(error);
    c->device_types[c->device_type_count++] = type;
    return TY_OK;
}

static ty_status add_link(catalogue *c, const ty_json *entry, const ty_json *sources, size_t room,
                          ty_error *error)
{
    catalogue_link link = {0};
    ty_status status = read_link(c, entry, sources, &link, error);

    if (status != TY_OK)
        return status;
    if (catalogue_find_link(c, link.name) != NO_INDEX)
        return ty_json_fail(entry, error, "a name that no other link has");
    if (c->links == NULL)
        c->links = ty_arena_alloc(c->arena, room, sizeof link);
    if (c->links == NULL)
        return out_of_memory(error);
    c->links[c->link_count++] = link;
    return TY_OK;
}

static ty_status add_host(catalogue *c, const ty_json *entry, const ty_json *sources, size_t room,
                          ty_error *error)
{
    catalogue_host host = {0};
    ty_status status = read_host(c, entry, sources, &host, error);

    if (status != TY_OK)
        return status;
    if (catalogue_find_host(c, host.name) != NO_INDEX)
        return ty_json_fail(entry, error, "a name that no other host has");
    if (c->hosts == NULL)
        c->hosts = ty_arena_alloc(c->arena, room, sizeof host);
    if (c->hosts == NULL)
        return out_of_memory(error);
    c->hosts[c->host_count++] = host;
    return TY_OK;
}

/* A file of the catalogue: {"schema", "sources", LIST}; every source must be used. */
typedef struct catalogue_file {
    const char *name, *schema, *list;
    add_entry add;
} catalogue_file;

static ty_status load_file(catalogue *c, const catalogue_file *file, ty_error *error)
{
    ty_json_document *document = NULL;
    char *path = NULL;
    const ty_json *root, *sources, *list;
    ty_status status;

    TY_CHECK(ty_data_path(folder, file->name, &path, error), status, cleanup);
    TY_CHECK(ty_json_load(path, &document, error), status, cleanup);
    root = ty_json_root(document);
    TY_CHECK(ty_json_schema(root, file->schema, error), status, cleanup);
    TY_CHECK(ty_json_object(root, "sources", &sources, error), status, cleanup);
    TY_CHECK(ty_json_array(root, file->list, 1, 10000, &list, error), status, cleanup);
    TY_CHECK(ty_json_end(root, error), status, cleanup);
    for (size_t i = 0; i < ty_json_size(list); i++)
        TY_CHECK(file->add(c, ty_json_at(list, i), sources, ty_json_size(list), error), status,
                 cleanup);
    status = ty_json_end(sources, error);
cleanup:
    ty_json_free(document);
    ty_free(path);
    return status;
}

ty_status catalogue_load(catalogue **out, ty_error *error)
{
    static const catalogue_file files[] = {
        /* in this order: links and hosts name what came before */
        {"devices.json", "trainyard.devices/1", "devices", add_device},
        {"links.json", "trainyard.links/1", "links", add_link},
        {"hosts.json", "trainyard.hosts/1", "hosts", add_host},
    };
    catalogue *c = ty_alloc(1, sizeof *c);
    ty_status status;

    if (c == NULL || (c->arena = ty_arena_new()) == NULL) {
        status = out_of_memory(error);
        goto cleanup;
    }
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        TY_CHECK(load_file(c, &files[i], error), status, cleanup);
    *out = c;
    c = NULL; /* given away */
cleanup:
    catalogue_free(c);
    return status;
}

void catalogue_free(catalogue *c)
{
    if (c == NULL)
        return;
    ty_arena_free(c->arena);
    ty_free(c);
}

uint32_t catalogue_find_device(const catalogue *c, const char *name)
{
    for (uint32_t i = 0; i < c->device_type_count; i++)
        if (strcmp(c->device_types[i].name, name) == 0)
            return i;
    return NO_INDEX;
}

uint32_t catalogue_find_link(const catalogue *c, const char *name)
{
    for (uint32_t i = 0; i < c->link_count; i++)
        if (strcmp(c->links[i].name, name) == 0)
            return i;
    return NO_INDEX;
}

uint32_t catalogue_find_host(const catalogue *c, const char *name)
{
    for (uint32_t i = 0; i < c->host_count; i++)
        if (strcmp(c->hosts[i].name, name) == 0)
            return i;
    return NO_INDEX;
}
