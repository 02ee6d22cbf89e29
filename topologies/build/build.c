/* Builds a cluster from entries of the catalogue. */
#include "build.h"

#include <stdio.h>
#include <string.h>

enum { NAME_ROOM = 320 };

ty_status builder_open(builder *b, ty_cluster *cluster, const catalogue *c, ty_error *error)
{
    size_t links = c->link_count, devices = c->device_type_count, hosts = c->host_count;
    size_t count = 2 * links + devices + hosts;

    *b = (builder){.cluster = cluster, .catalogue = c, .host = {.network = NO_INDEX}};
    b->links = ty_alloc(count, sizeof *b->links);
    TY_TRY(ty_check_memory(b->links != NULL, error));
    b->trunks = b->links + links;
    b->device_types = b->trunks + links;
    b->host_types = b->device_types + devices;
    for (size_t i = 0; i < count; i++)
        b->links[i] = NO_INDEX;
    return TY_OK;
}

void builder_close(builder *b)
{
    ty_free(b->links);
    *b = (builder){0};
}

/* A network over another transport carries that transport's share of its line rate. */
static void change_link(const catalogue *c, const link_words *words, bool is_trunk, link_type *kind)
{
    const catalogue_transport *own = &c->transports[kind->transport];
    const catalogue_transport *other = &c->transports[words->transport];

    kind->flows = words->flows;
    if (words->transport != TY_LINK_NONE && words->transport != kind->transport) {
        if (own->rate_share > 0)
            kind->bandwidth_bytes_per_s *= other->rate_share / own->rate_share;
        kind->latency_s = is_trunk ? other->trunk_latency_s : other->latency_s;
        kind->transport = words->transport;
    }
    if (words->rate > 0)
        kind->bandwidth_bytes_per_s = words->rate;
}

ty_status builder_link(builder *b, uint32_t from, uint32_t to, uint32_t link, bool is_trunk,
                       double lanes, ty_error *error)
{
    const catalogue_link *entry = &b->catalogue->links[link];
    uint32_t *type = is_trunk ? &b->trunks[link] : &b->links[link];
    link_type kind = is_trunk ? entry->trunk : entry->type;

    if (b->words != NULL)
        change_link(b->catalogue, &b->words[link], is_trunk, &kind);
    if (*type == NO_INDEX)
        TY_TRY(ty_cluster_add_link_type(b->cluster, &kind, type, error));
    return ty_cluster_add_link(b->cluster, from, to, *type, lanes, error);
}

ty_status builder_own_link(builder *b, uint32_t from, uint32_t to, const link_type *type,
                           double lanes, ty_error *error)
{
    const ty_cluster *cluster = b->cluster;
    uint32_t index = 0;

    while (index < cluster->link_type_count &&
           strcmp(cluster->link_types[index].name, type->name) != 0)
        index++;
    if (index == cluster->link_type_count)
        TY_TRY(ty_cluster_add_link_type(b->cluster, type, &index, error));
    return ty_cluster_add_link(b->cluster, from, to, index, lanes, error);
}

ty_status builder_device(builder *b, const char *name, uint32_t type, uint32_t host,
                         uint32_t *vertex, ty_error *error)
{
    uint32_t *index = &b->device_types[type];

    if (*index == NO_INDEX)
        TY_TRY(ty_cluster_add_device_type(b->cluster, &b->catalogue->device_types[type], index,
                                          error));
    return ty_cluster_add_device(b->cluster, name, *index, host, vertex, error);
}

/* The host vertex, with its type. Price and power apply to a full host, so a partial one has
 * none. */
static ty_status add_hub(builder *b, uint32_t host, const char *name, uint32_t *vertex,
                         ty_error *error)
{
    const catalogue_host *h = &b->catalogue->hosts[host];
    ty_host_type type = h->type;
    uint32_t *index = &b->host_types[host];

    TY_TRY(ty_cluster_add_vertex(b->cluster, TY_VERTEX_HOST, name, 0, vertex, error));
    b->cluster->vertices[*vertex].is_staged =
        b->host.has_p2p ? b->host.is_staged : b->catalogue->devices[h->device_type].is_staged;
    if (b->devices_per_host > 0)
        return TY_OK;
    if (b->host.network != NO_INDEX)
        type.nics_per_link = 1;
    if (*index == NO_INDEX)
        TY_TRY(ty_cluster_add_host_type(b->cluster, &type, index, error));
    b->cluster->vertices[*vertex].host_type = *index;
    return TY_OK;
}

/* The vertices of a host except the first, `hub`; one of them may exist already.
 * @param vertices [out] [vertex_count] index of each in the cluster */
static ty_status add_parts(builder *b, const catalogue_host *h, const char *name, uint32_t hub,
                           uint32_t shared, uint32_t *vertices, ty_error *error)
{
    const uint32_t most = b->devices_per_host > 0 ? b->devices_per_host : UINT32_MAX;
    const uint32_t all = catalogue_host_count_of(h, TY_VERTEX_NIC);
    const uint32_t nics = b->host.nics > 0 ? b->host.nics : all;
    uint32_t devices = 0, nic = 0;
    char inner[NAME_ROOM];

    vertices[0] = hub;
    for (uint32_t v = 1; v < h->vertex_count; v++) {
        snprintf(inner, sizeof inner, "%.200s/%.100s", name, h->vertices[v].name);
        vertices[v] = NO_INDEX;
        if (h->vertices[v].kind == TY_VERTEX_DEVICE && devices++ >= most)
            continue;
        if (h->vertices[v].kind == TY_VERTEX_NIC) { /* those that are left are spread evenly */
            if ((uint64_t)nic++ * nics % all >= nics)
                continue;
        }
        if (shared != NO_INDEX && v == h->domain_switch)
            vertices[v] = shared;
        else if (h->vertices[v].kind == TY_VERTEX_DEVICE)
            TY_TRY(builder_device(b, inner, h->device_type, hub, &vertices[v], error));
        else
            TY_TRY(ty_cluster_add_vertex(b->cluster, h->vertices[v].kind, inner, 0, &vertices[v],
                                         error));
    }
    for (uint32_t e = 0; e < h->edge_count; e++) {
        const catalogue_edge *edge = &h->edges[e];
        if (vertices[edge->from] != NO_INDEX && vertices[edge->to] != NO_INDEX)
            TY_TRY(builder_link(b, vertices[edge->from], vertices[edge->to], edge->link, false,
                                edge->lanes, error));
    }
    return TY_OK;
}

static ty_status add_host(builder *b, uint32_t host, const char *name, uint32_t network_switch,
                          uint32_t shared, uint32_t *first, ty_error *error)
{
    const catalogue_host *h = &b->catalogue->hosts[host];
    const uint32_t network = b->host.network != NO_INDEX ? b->host.network : h->network;
    uint32_t *vertices = ty_alloc(h->vertex_count, sizeof *vertices), hub;
    ty_status status;

    TY_TRY(ty_check_memory(vertices != NULL, error));
    TY_CHECK(add_hub(b, host, name, &hub, error), status, cleanup);
    TY_CHECK(add_parts(b, h, name, hub, shared, vertices, error), status, cleanup);
    for (uint32_t v = 1; v < h->vertex_count && network_switch != NO_INDEX; v++)
        if (h->vertices[v].kind == TY_VERTEX_NIC && vertices[v] != NO_INDEX)
            TY_CHECK(builder_link(b, vertices[v], network_switch, network, false, 1, error), status,
                     cleanup);
    *first = hub;
cleanup:
    ty_free(vertices);
    return status;
}

ty_status builder_host(builder *b, uint32_t host, const char *name, uint32_t *first,
                       ty_error *error)
{
    return add_host(b, host, name, NO_INDEX, NO_INDEX, first, error);
}

ty_status builder_host_below(builder *b, uint32_t host, const char *name, uint32_t network_switch,
                             ty_error *error)
{
    return builder_host_in_domain(b, host, name, network_switch, NO_INDEX, error);
}

ty_status builder_host_in_domain(builder *b, uint32_t host, const char *name,
                                 uint32_t network_switch, uint32_t shared, ty_error *error)
{
    uint32_t first;

    return add_host(b, host, name, network_switch, shared, &first, error);
}

uint32_t catalogue_host_count_of(const catalogue_host *host, ty_vertex_kind kind)
{
    uint32_t count = 0;

    for (uint32_t v = 0; v < host->vertex_count; v++)
        count += host->vertices[v].kind == kind;
    return count;
}
