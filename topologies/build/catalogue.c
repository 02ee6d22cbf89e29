/* Reads the catalogue. Every figure is {"value": ..., "source": KEY}, where the key names a text in
 * the file's "sources". A figure without a source is refused. */
#include "catalogue_read.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static const char folder[] = "topologies/catalogue";

/* Whether a figure exists and its source is more than an estimate. */
static bool is_known(const ty_json *object, const ty_json *sources, const char *key)
{
    const ty_json *figure;
    const char *source, *text;

    return ty_json_has(object, key) && ty_json_object(object, key, &figure, NULL) == TY_OK &&
           ty_json_string(figure, "source", &source, NULL) == TY_OK &&
           ty_json_string(sources, source, &text, NULL) == TY_OK &&
           strncmp(text, "estimate", strlen("estimate")) != 0;
}

/* ---- Entries ----------------------------------------------------------------------------- */

/* A device that is "like" an earlier one has its figures, unless it gives its own. */
static ty_status read_like(const catalogue *c, const ty_json *object, ty_device_type *type,
                           catalogue_device *device, ty_error *error)
{
    const char *name;
    uint32_t like;

    if (!ty_json_has(object, "like"))
        return TY_OK;
    TY_TRY(ty_json_string(object, "like", &name, error));
    if ((like = catalogue_find_device(c, name)) == NO_INDEX)
        return ty_json_fail(object, error, "to be like an earlier device");
    *type = c->device_types[like];
    *device = c->devices[like];
    return TY_OK;
}

static ty_status read_device(const catalogue *c, const ty_json *object, const ty_json *sources,
                             ty_device_type *out, ty_error *error)
{
    citation cited = {.sources = sources};
    const ty_device_type like = *out;
    const bool is_like = like.name != NULL;
    double memory_bytes = (double)like.memory_bytes;
    double usable_memory_bytes =
        ty_json_has(object, "memory_bytes") ? 0 : (double)like.usable_memory_bytes;
    const struct {
        const char *key;
        double *value, minimum, maximum;
        bool is_optional;
    } figures[] = {
        {"peak_fp32_flop_per_s", &out->peak_fp32_flop_per_s, 1, 1e18, false},
        {"peak_tf32_flop_per_s", &out->peak_tf32_flop_per_s, 1, 1e18, true},
        {"peak_fp16_flop_per_s", &out->peak_fp16_flop_per_s, 1, 1e18, true},
        {"peak_fp8_flop_per_s", &out->peak_fp8_flop_per_s, 1, 1e18, true},
        {"peak_fp4_flop_per_s", &out->peak_fp4_flop_per_s, 1, 1e18, true},
        {"memory_bandwidth_bytes_per_s", &out->memory_bandwidth_bytes_per_s, 1, 1e18, false},
        {"memory_bytes", &memory_bytes, 1, 1e15, false},
        {"usable_memory_bytes", &usable_memory_bytes, 1, 1e15, true},
        {"launch_overhead_s", &out->launch_overhead_s, 0, 1, false},
        {"matmul_efficiency", &out->matmul_efficiency, 1e-3, 1, false},
        {"fp8_efficiency", &out->fp8_efficiency, 1e-3, 1, true},
        {"fp4_efficiency", &out->fp4_efficiency, 1e-3, 1, true},
        {"product_edge", &out->product_edge, 0, 1e4, true},
        {"attention_efficiency", &out->attention_efficiency, 1e-3, 1, true},
        {"attention_backward", &out->attention_backward, 1e-3, 100, true},
        {"memory_efficiency", &out->memory_efficiency, 1e-3, 1, false},
        {"convolution_efficiency", &out->convolution_efficiency, 1e-3, 1, true},
        {"power_w", &out->power_w, 0, 1e6, true},
    };
    ty_status status;

    TY_CHECK(catalogue_copy_member(c, object, "name", &out->name, error), status, cleanup);
    if (!is_like || ty_json_has(object, "generation"))
        TY_CHECK(catalogue_copy_member(c, object, "generation", &out->generation, error), status,
                 cleanup);
    if (ty_json_has(object, "noun")) {
        const char *noun;
        TY_CHECK(ty_json_string(object, "noun", &noun, error), status, cleanup);
        snprintf(out->noun, sizeof out->noun, "%s", noun);
    }
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if ((!figures[i].is_optional && !is_like) || ty_json_has(object, figures[i].key))
            TY_CHECK(catalogue_read_figure(object, figures[i].key, figures[i].minimum,
                                           figures[i].maximum, &cited, figures[i].value, error),
                     status, cleanup);
    out->memory_bytes = (uint64_t)memory_bytes;
    out->is_fp8_estimate =
        out->peak_fp8_flop_per_s > 0 && (is_like || !is_known(object, sources, "fp8_efficiency"));
    out->is_fp4_estimate =
        out->peak_fp4_flop_per_s > 0 && (is_like || !is_known(object, sources, "fp4_efficiency"));
    if (is_like)
        ty_text_addf(&cited.text, "; for the rest the %s", like.name);
    out->usable_memory_bytes = (uint64_t)usable_memory_bytes;
    if (out->usable_memory_bytes > out->memory_bytes) {
        status = ty_json_fail(object, error, "usable_memory_bytes up to memory_bytes");
        goto cleanup;
    }
    status = catalogue_take_citation(c, &cited, &out->source, error);
cleanup:
    ty_text_clear(&cited.text);
    return status;
}

/* A link by its name and use; absent is NO_INDEX. */
static ty_status read_link_name(const catalogue *c, const ty_json *object, const char *key,
                                link_use use, uint32_t *out, ty_error *error)
{
    const char *name;

    *out = NO_INDEX;
    if (!ty_json_has(object, key))
        return TY_OK;
    TY_TRY(ty_json_string(object, key, &name, error));
    *out = catalogue_find_link(c, name);
    if (*out == NO_INDEX || c->links[*out].use != use)
        return ty_json_fail(object, error, "as %s a link of links.json with that use", key);
    return TY_OK;
}

/* "p2p": "host": devices without peer-to-peer access over PCIe. */
static ty_status read_p2p(const ty_json *object, bool *is_staged, ty_error *error)
{
    static const char *const paths[] = {"pcie", "host"};
    int path = 0;

    if (ty_json_has(object, "p2p"))
        TY_TRY(ty_json_enum(object, "p2p", paths, 2, &path, error));
    *is_staged = path == 1;
    return TY_OK;
}

/* Links of a device to others and to its host. */
static ty_status read_ports(const catalogue *c, const ty_json *object, catalogue_device *out,
                            ty_error *error)
{
    const bool is_like = ty_json_has(object, "like");

    if (!is_like || ty_json_has(object, "port"))
        TY_TRY(read_link_name(c, object, "port", LINK_TO_HOST, &out->port, error));
    if (out->port == NO_INDEX)
        return ty_json_fail(object, error, "a port: the link of the device to its host");
    if (!is_like || ty_json_has(object, "scale_up"))
        TY_TRY(read_link_name(c, object, "scale_up", LINK_TO_SWITCH, &out->scale_up, error));
    if (!is_like || ty_json_has(object, "direct"))
        TY_TRY(read_link_name(c, object, "direct", LINK_DIRECT, &out->direct, error));
    if (ty_json_has(object, "scale_up_links"))
        TY_TRY(ty_json_number(object, "scale_up_links", 1, 1000, &out->scale_up_links, error));
    return !is_like || ty_json_has(object, "p2p") ? read_p2p(object, &out->is_staged, error)
                                                  : TY_OK;
}

static ty_status add_match(catalogue *c, const ty_json *entry, const ty_json *value,
                           uint32_t device, ty_error *error)
{
    const char *text;
    char *copy;

    TY_TRY(ty_json_as_string(value, &text, error));
    for (uint32_t i = 0; i < c->match_count; i++)
        if (strcmp(c->matches[i].text, text) == 0)
            return ty_json_fail(value, error, "a match that no other device has");
    if (strchr(text, ':') == NULL)
        return ty_json_fail(entry, error, "matches of the form \"KEY:TEXT\"");
    if (c->match_count == c->match_room) {
        uint32_t room = c->match_room == 0 ? 64 : 2 * c->match_room;
        catalogue_match *matches = ty_arena_alloc(c->arena, room, sizeof *matches);
        TY_TRY(ty_check_memory(matches != NULL, error));
        if (c->match_count > 0)
            memcpy(matches, c->matches, c->match_count * sizeof *matches);
        c->matches = matches;
        c->match_room = room;
    }
    TY_TRY(catalogue_copy(c, text, &copy, error));
    c->matches[c->match_count++] = (catalogue_match){copy, device};
    return TY_OK;
}

static ty_status read_matches(catalogue *c, const ty_json *object, uint32_t device, ty_error *error)
{
    const ty_json *list;
    ty_status status;

    if (!ty_json_has(object, "matches"))
        return TY_OK;
    status = ty_json_array(object, "matches", 1, 100, &list, error);
    for (size_t i = 0; status == TY_OK && i < ty_json_size(list); i++)
        status = add_match(c, object, ty_json_at(list, i), device, error);
    return status;
}

static const char *const *transport_names(void)
{
    static const char *names[TY_LINK_COUNT];

    for (int t = 0; t < TY_LINK_COUNT; t++)
        names[t] = ty_link_transport_name((ty_link_transport)t);
    return names;
}

/* A network has the latencies of its transport, unless it gives its own. */
static ty_status read_network(const catalogue *c, const ty_json *object, citation *cited,
                              catalogue_link *out, ty_error *error)
{
    const catalogue_transport *transport;
    const char *port;
    char name[80];
    int index = TY_LINK_NONE;

    if (ty_json_has(object, "transport"))
        TY_TRY(ty_json_enum(object, "transport", transport_names(), TY_LINK_COUNT, &index, error));
    transport = &c->transports[index];
    out->type.transport = out->trunk.transport = (ty_link_transport)index;
    if (transport->source != NULL)
        ty_text_addf(&cited->text, "%s%s", out->needs_rate ? "" : "; ", transport->source);
    else if (out->needs_rate)
        return ty_json_fail(object, error, "a bandwidth, or a transport whose share it has");
    if (out->needs_rate)
        ty_text_addf(&cited->text, "; %s", transport->rate_source);
    if (transport->source == NULL || ty_json_has(object, "latency_s"))
        TY_TRY(catalogue_read_figure(object, "latency_s", 0, LATENCY_MAXIMUM, cited,
                                     &out->type.latency_s, error));
    else
        out->type.latency_s = transport->latency_s;
    if (transport->source == NULL || ty_json_has(object, "trunk_latency_s"))
        TY_TRY(catalogue_read_figure(object, "trunk_latency_s", 0, LATENCY_MAXIMUM, cited,
                                     &out->trunk.latency_s, error));
    else
        out->trunk.latency_s = transport->trunk_latency_s;
    TY_TRY(ty_json_string(object, "port", &port, error));
    out->port = catalogue_find_link(c, port);
    if (out->port == NO_INDEX || c->links[out->port].use != LINK_TO_HOST) {
        return ty_json_fail(object, error, "as port an earlier link used to reach the host");
    }
    snprintf(name, sizeof name, "%.60s-trunk", out->name);
    out->trunk.bandwidth_bytes_per_s = out->type.bandwidth_bytes_per_s;
    return catalogue_copy(c, name, &out->trunk.name, error);
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

    TY_CHECK(catalogue_copy_member(c, object, "name", &out->name, error), status, cleanup);
    TY_CHECK(ty_json_enum(object, "use", uses, LINK_USE_COUNT, &use, error), status, cleanup);
    out->use = (link_use)use;
    out->needs_rate = out->use == LINK_NETWORK && !ty_json_has(object, "bandwidth_bytes_per_s");
    if (!out->needs_rate)
        TY_CHECK(catalogue_read_figure(object, "bandwidth_bytes_per_s", BANDWIDTH_MINIMUM,
                                       BANDWIDTH_MAXIMUM, &cited, &out->type.bandwidth_bytes_per_s,
                                       error),
                 status, cleanup);
    if (out->use == LINK_NETWORK)
        TY_CHECK(read_network(c, object, &cited, out, error), status, cleanup);
    else
        TY_CHECK(catalogue_read_figure(object, "latency_s", 0, LATENCY_MAXIMUM, &cited,
                                       &out->type.latency_s, error),
                 status, cleanup);
    TY_CHECK(ty_json_end(object, error), status, cleanup);
    TY_CHECK(catalogue_take_citation(c, &cited, &out->type.source, error), status, cleanup);
    out->trunk.source = out->type.source;
    out->type.name = out->name;
cleanup:
    ty_text_clear(&cited.text);
    return status;
}

/* ---- Files ------------------------------------------------------------------------------- */

/* Adds an entry to its table of capacity `room`. */
typedef ty_status (*add_entry)(catalogue *c, const ty_json *entry, const ty_json *sources,
                               size_t room, ty_error *error);

static ty_status add_device(catalogue *c, const ty_json *entry, const ty_json *sources, size_t room,
                            ty_error *error)
{
    ty_device_type type = {0};
    catalogue_device device = {0};

    TY_TRY(read_like(c, entry, &type, &device, error));
    TY_TRY(read_device(c, entry, sources, &type, error));
    TY_TRY(read_ports(c, entry, &device, error));
    TY_TRY(read_matches(c, entry, c->device_type_count, error));
    if (ty_json_has(entry, "sm"))
        TY_TRY(ty_json_uint32(entry, "sm", 1, 10000, &device.sm, error));
    TY_TRY(ty_json_end(entry, error));
    if (catalogue_find_device(c, type.name) != NO_INDEX)
        return ty_json_fail(entry, error, "a name that no other device has");
    if (c->device_types == NULL)
        c->device_types = ty_arena_alloc(c->arena, room, sizeof type);
    if (c->devices == NULL)
        c->devices = ty_arena_alloc(c->arena, room, sizeof device);
    TY_TRY(ty_check_memory(c->device_types != NULL && c->devices != NULL, error));
    c->devices[c->device_type_count] = device;
    c->device_types[c->device_type_count++] = type;
    return TY_OK;
}

static ty_status add_transport(catalogue *c, const ty_json *entry, const ty_json *sources,
                               size_t room, ty_error *error)
{
    citation cited = {.sources = sources}, rate = {.sources = sources};
    catalogue_transport *out;
    int index;
    ty_status status;

    (void)room;
    TY_CHECK(ty_json_enum(entry, "name", transport_names(), TY_LINK_COUNT, &index, error), status,
             cleanup);
    out = &c->transports[index];
    TY_CHECK(catalogue_read_figure(entry, "rate_share", 1e-3, 1, &rate, &out->rate_share, error),
             status, cleanup);
    TY_CHECK(catalogue_take_citation(c, &rate, &out->rate_source, error), status, cleanup);
    TY_CHECK(catalogue_read_figure(entry, "latency_s", 0, LATENCY_MAXIMUM, &cited, &out->latency_s,
                                   error),
             status, cleanup);
    TY_CHECK(catalogue_read_figure(entry, "trunk_latency_s", 0, LATENCY_MAXIMUM, &cited,
                                   &out->trunk_latency_s, error),
             status, cleanup);
    TY_CHECK(ty_json_end(entry, error), status, cleanup);
    status = catalogue_take_citation(c, &cited, &out->source, error);
cleanup:
    ty_text_clear(&cited.text);
    ty_text_clear(&rate.text);
    return status;
}

static ty_status add_link(catalogue *c, const ty_json *entry, const ty_json *sources, size_t room,
                          ty_error *error)
{
    catalogue_link link = {0};

    TY_TRY(read_link(c, entry, sources, &link, error));
    if (catalogue_find_link(c, link.name) != NO_INDEX)
        return ty_json_fail(entry, error, "a name that no other link has");
    if (c->links == NULL)
        c->links = ty_arena_alloc(c->arena, room, sizeof link);
    TY_TRY(ty_check_memory(c->links != NULL, error));
    c->links[c->link_count++] = link;
    return TY_OK;
}

static ty_status add_host(catalogue *c, const ty_json *entry, const ty_json *sources, size_t room,
                          ty_error *error)
{
    catalogue_host host = {0};

    TY_TRY(catalogue_read_host(c, entry, sources, &host, error));
    if (catalogue_find_host(c, host.name) != NO_INDEX)
        return ty_json_fail(entry, error, "a name that no other host has");
    if (c->hosts == NULL)
        c->hosts = ty_arena_alloc(c->arena, room, sizeof host);
    TY_TRY(ty_check_memory(c->hosts != NULL, error));
    c->hosts[c->host_count++] = host;
    return TY_OK;
}

static ty_status add_cluster(catalogue *c, const ty_json *entry, const ty_json *sources,
                             size_t room, ty_error *error)
{
    catalogue_cluster cluster = {0};
    citation cited = {.sources = sources};
    ty_status status;

    TY_CHECK(catalogue_copy_member(c, entry, "name", &cluster.name, error), status, cleanup);
    TY_CHECK(catalogue_copy_member(c, entry, "line", &cluster.line, error), status, cleanup);
    TY_CHECK(catalogue_cite(&cited, entry, error), status, cleanup);
    TY_CHECK(catalogue_take_citation(c, &cited, &cluster.source, error), status, cleanup);
    TY_CHECK(ty_json_end(entry, error), status, cleanup);
    if (catalogue_find_cluster(c, cluster.name) != NO_INDEX ||
        catalogue_find_host(c, cluster.name) != NO_INDEX) {
        status = ty_json_fail(entry, error, "a name that no other cluster and no host has");
        goto cleanup;
    }
    if (c->clusters == NULL)
        c->clusters = ty_arena_alloc(c->arena, room, sizeof cluster);
    TY_CHECK(ty_check_memory(c->clusters != NULL, error), status, cleanup);
    c->clusters[c->cluster_count++] = cluster;
cleanup:
    ty_text_clear(&cited.text);
    return status;
}

static ty_status add_storage(catalogue *c, const ty_json *entry, const ty_json *sources,
                             size_t room, ty_error *error)
{
    ty_storage storage = {0};
    citation cited = {.sources = sources};
    const json_field *figure;
    ty_status status;

    TY_CHECK(catalogue_copy_member(c, entry, "name", &storage.name, error), status, cleanup);
    TY_CHECK(ty_json_bool(entry, "is_shared", &storage.is_shared, error), status, cleanup);
    for (uint32_t i = 0; (figure = ty_storage_figure_at(i)) != NULL; i++)
        if (!figure->is_optional || ty_json_has(entry, figure->key))
            TY_CHECK(
                catalogue_read_figure(entry, figure->key, figure->minimum, figure->maximum, &cited,
                                      (double *)(void *)((char *)&storage + figure->at), error),
                status, cleanup);
    TY_CHECK(ty_json_end(entry, error), status, cleanup);
    TY_CHECK(catalogue_take_citation(c, &cited, &storage.source, error), status, cleanup);
    for (uint32_t i = 0; i < c->storage_count; i++)
        if (strcmp(c->storage[i].name, storage.name) == 0) {
            status = ty_json_fail(entry, error, "a name that no other storage has");
            goto cleanup;
        }
    if (c->storage == NULL)
        c->storage = ty_arena_alloc(c->arena, room, sizeof storage);
    TY_CHECK(ty_check_memory(c->storage != NULL, error), status, cleanup);
    c->storage[c->storage_count++] = storage;
cleanup:
    ty_text_clear(&cited.text);
    return status;
}

static ty_status add_budget(catalogue *c, const ty_json *entry, const ty_json *sources, size_t room,
                            ty_error *error)
{
    static const struct {
        const char *key;
        size_t offset;
    } figures[] = {{"memory_bytes", offsetof(ty_budget, memory_bytes)},
                   {"time_s", offsetof(ty_budget, time_s)},
                   {"flop_per_s", offsetof(ty_budget, flop_per_s)},
                   {"bandwidth_bytes_per_s", offsetof(ty_budget, bandwidth_bytes_per_s)}};
    const double smallest = 1e-9, largest = 1e21;
    ty_budget budget = {0};
    citation cited = {.sources = sources};
    const char *name;
    ty_status status;

    TY_CHECK(ty_json_string(entry, "name", &name, error), status, cleanup);
    if (strlen(name) >= sizeof budget.name) {
        status = ty_json_fail(entry, error, "a shorter name");
        goto cleanup;
    }
    snprintf(budget.name, sizeof budget.name, "%s", name);
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        if (ty_json_has(entry, figures[i].key))
            TY_CHECK(catalogue_read_figure(entry, figures[i].key, smallest, largest, &cited,
                                           (double *)(void *)((char *)&budget + figures[i].offset),
                                           error),
                     status, cleanup);
    TY_CHECK(ty_json_end(entry, error), status, cleanup);
    TY_CHECK(ty_budget_check(&budget, error), status, cleanup);
    if (c->budgets == NULL)
        c->budgets = ty_arena_alloc(c->arena, room, sizeof budget);
    TY_CHECK(ty_check_memory(c->budgets != NULL, error), status, cleanup);
    c->budgets[c->budget_count++] = budget;
cleanup:
    ty_text_clear(&cited.text);
    return status;
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
        /* in this order: each refers to earlier ones */
        {"transports.json", "trainyard.transports/1", "transports", add_transport},
        {"links.json", "trainyard.links/1", "links", add_link},
        {"devices.json", "trainyard.devices/1", "devices", add_device},
        {"hosts.json", "trainyard.hosts/1", "hosts", add_host},
        {"clusters.json", "trainyard.clusters/1", "clusters", add_cluster},
        {"storage.json", "trainyard.storage/1", "storage", add_storage},
        {"budgets.json", "trainyard.budgets/1", "budgets", add_budget},
    };
    catalogue *c = ty_alloc(1, sizeof *c);
    ty_status status;

    TY_CHECK(ty_check_memory(c != NULL && (c->arena = ty_arena_new()) != NULL, error), status,
             cleanup);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        TY_CHECK(load_file(c, &files[i], error), status, cleanup);
    *out = c;
    c = NULL; /* ownership moved */
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

const char *catalogue_alias(const catalogue *c, uint32_t device, const char *key)
{
    const size_t length = strlen(key);

    for (uint32_t i = 0; i < c->match_count; i++) {
        const char *match = c->matches[i].text;
        if (c->matches[i].device == device && strncmp(match, key, length) == 0 &&
            match[length] == ':')
            return match + length + 1;
    }
    return NULL;
}

ty_status ty_device_alias(const char *device, const char *key, char **alias, ty_error *error)
{
    catalogue *known = NULL;
    const char *found = NULL;
    uint32_t index;
    ty_status status;

    TY_CHECK(catalogue_load(&known, error), status, cleanup);
    index = catalogue_find_device(known, device);
    if (index != NO_INDEX)
        found = catalogue_alias(known, index, key);
    *alias = ty_strdup(found);
    if (found != NULL && *alias == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");

cleanup:
    catalogue_free(known);
    return status;
}

ty_status ty_device_named(const char *typed, char **name, ty_error *error)
{
    catalogue *known = NULL;
    uint32_t index;
    ty_status status;

    *name = NULL;
    TY_CHECK(catalogue_load(&known, error), status, cleanup);
    index = catalogue_match_name(known, typed);
    if (index != NO_INDEX && (*name = ty_strdup(known->device_types[index].name)) == NULL)
        status = ty_fail(error, TY_ENOMEM, "out of memory");

cleanup:
    catalogue_free(known);
    return status;
}

uint32_t catalogue_match_device(const catalogue *c, const char *key, const char *text)
{
    size_t length = strlen(key);

    for (uint32_t i = 0; i < c->match_count; i++) {
        const char *match = c->matches[i].text;
        if (strncmp(match, key, length) == 0 && match[length] == ':' &&
            strcasecmp(match + length + 1, text) == 0)
            return c->matches[i].device;
    }
    return NO_INDEX;
}

uint32_t catalogue_match_name(const catalogue *c, const char *name)
{
    static const char *const keys[] = {"alias:", "name:"};
    bool is_whole;
    const char *meant = ty_name_find(name, &c->device_types[0].name, c->device_type_count,
                                     sizeof c->device_types[0], &is_whole);

    for (uint32_t i = 0; i < c->match_count && !is_whole; i++)
        for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++) {
            const char *other = c->matches[i].text;
            if (strncmp(other, keys[k], strlen(keys[k])) != 0)
                continue;
            other += strlen(keys[k]);
            if (ty_name_find(name, &other, 1, sizeof other, &is_whole) != NULL && is_whole)
                return c->matches[i].device;
        }
    return meant != NULL ? catalogue_find_device(c, meant) : NO_INDEX;
}
