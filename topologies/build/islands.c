/* Groups devices whose routes are identical up to their leaf switch. An island is a component
 * without the network switches: a host, or a rack with its own switch. If an island is a copy of
 * another, shifted in the lists of vertices and links, both have the same routes inside and up to
 * their gates. This includes ties, which the order in these lists breaks. */
#include "cluster.h"
#include "ty_topologies.h"

#include "ty_base.h"

#include <stdlib.h>
#include <string.h>

typedef struct island {
    uint64_t shape; /* hash of all its vertices and links */
    uint32_t vertex_count;
    uint32_t first_device, device_count; /* in the order of the cluster's devices */
    uint32_t first_host, last_host;      /* so far */
    bool is_plain; /* one gate; its devices and hosts are numbered consecutively */
} island;

/* Finalizer of splitmix64, as in classes.c. */
static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static void add(island *i, uint64_t word)
{
    i->shape = mix(i->shape ^ word);
}

/* Counts devices and hosts. @param at [out, vertex_count] the place of each vertex in its island */
static void count_vertices(const ty_cluster *c, island *islands, uint32_t *at)
{
    for (uint32_t v = 0; v < c->vertex_count; v++)
        if (c->vertices[v].island != NO_INDEX)
            at[v] = islands[c->vertices[v].island].vertex_count++;
    for (uint32_t d = 0; d < c->device_count; d++) {
        const cluster_vertex *v = &c->vertices[c->device_vertices[d]];
        island *i = &islands[v->island];
        if (i->device_count == 0) {
            i->first_device = d;
            i->first_host = i->last_host = v->host;
            i->is_plain = c->island_gates[v->island] != NO_INDEX;
        }
        i->is_plain = i->is_plain && i->first_device + i->device_count == d &&
                      (v->host == i->last_host || v->host == i->last_host + 1);
        i->last_host = v->host;
        i->device_count++;
    }
}

static void describe_vertices(const ty_cluster *c, island *islands, const uint32_t *at)
{
    for (uint32_t v = 0; v < c->vertex_count; v++) {
        const cluster_vertex *vertex = &c->vertices[v];
        island *i = vertex->island == NO_INDEX ? NULL : &islands[vertex->island];
        if (i == NULL || !i->is_plain)
            continue;
        add(i, (uint64_t)vertex->kind << 1 | (c->island_gates[vertex->island] < v));
        if (vertex->kind == TY_VERTEX_DEVICE) {
            const uint32_t hub = c->host_vertices[vertex->host];
            add(i, (uint64_t)vertex->device_type << 32 | (vertex->device - i->first_device));
            add(i, (uint64_t)(vertex->host - i->first_host) << 32 |
                       (c->vertices[hub].island == vertex->island ? at[hub] : NO_INDEX));
        }
        if (vertex->kind == TY_VERTEX_HOST) {
            add(i, (uint64_t)vertex->host_type << 32 | vertex->cores);
            add(i, (uint64_t)vertex->is_staged << 32 | (vertex->host - i->first_host));
        }
    }
}

/* Hashes an island's own links and those to its gate, in the order of the list. */
static void describe_links(const ty_cluster *c, island *islands, const uint32_t *at)
{
    for (uint32_t l = 0; l < c->link_count; l++) {
        const uint32_t ends[2] = {c->links[l].from, c->links[l].to};
        const uint32_t from = c->vertices[ends[0]].island, to = c->vertices[ends[1]].island;
        island *i = from != NO_INDEX ? &islands[from] : to != NO_INDEX ? &islands[to] : NULL;
        uint64_t lanes;
        if (i == NULL || !i->is_plain)
            continue;
        memcpy(&lanes, &c->link_lanes[l], sizeof lanes);
        add(i, (uint64_t)(from != NO_INDEX ? at[ends[0]] : NO_INDEX) << 32 |
                   (to != NO_INDEX ? at[ends[1]] : NO_INDEX));
        add(i, c->link_kinds[l]);
        add(i, lanes);
    }
}

/* Key of a kind. */
typedef struct placed {
    uint64_t shape;
    uint32_t at, device; /* index among its island's devices; among all */
} placed;

static int compare_placed(const void *left, const void *right)
{
    const placed *a = left, *b = right;

    if (a->shape != b->shape)
        return a->shape < b->shape ? -1 : 1;
    if (a->at != b->at)
        return a->at < b->at ? -1 : 1;
    return a->device < b->device ? -1 : a->device > b->device;
}

static ty_status number_kinds(const ty_cluster *c, const island *islands, ty_device_place *places,
                              ty_error *error)
{
    placed *list = ty_alloc(c->device_count, sizeof *list);
    uint32_t count = 0, kind = 0;

    TY_TRY(ty_check_memory(list != NULL, error));
    for (uint32_t d = 0; d < c->device_count; d++) {
        const uint32_t index = c->vertices[c->device_vertices[d]].island;
        const island *i = &islands[index];
        places[d] = (ty_device_place){TY_NO_PLACE, i->first_device, c->island_gates[index]};
        if (i->is_plain)
            list[count++] = (placed){i->shape, d - i->first_device, d};
    }
    qsort(list, count, sizeof *list, compare_placed);
    for (uint32_t p = 0; p < count; p++) {
        kind += p > 0 && (list[p].shape != list[p - 1].shape || list[p].at != list[p - 1].at);
        places[list[p].device].kind = kind;
    }
    ty_free(list);
    return TY_OK;
}

ty_status ty_cluster_places(const ty_cluster *cluster, ty_device_place *places, ty_error *error)
{
    island *islands = ty_alloc(cluster->island_count, sizeof *islands);
    uint32_t *at = ty_alloc(cluster->vertex_count, sizeof *at);
    bool has_order = true;
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(islands != NULL && at != NULL, error), status, cleanup);
    count_vertices(cluster, islands, at);
    for (uint32_t d = 1; d < cluster->device_count; d++)
        has_order = has_order &&
                    ty_cluster_device_host(cluster, d - 1) <= ty_cluster_device_host(cluster, d);
    for (uint32_t i = 0; i < cluster->island_count && !has_order; i++)
        islands[i].is_plain = false; /* hosts and devices are ordered differently */
    describe_vertices(cluster, islands, at);
    describe_links(cluster, islands, at);
    status = number_kinds(cluster, islands, places, error);
cleanup:
    ty_free(islands);
    ty_free(at);
    return status;
}
