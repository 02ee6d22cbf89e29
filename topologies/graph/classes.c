/* Classes of interchangeable devices. Colour refinement gives every vertex a colour by its type,
 * then repeatedly one by its own and its neighbors' colours, until no class splits. If the cluster
 * is small enough, automorphisms split the remaining classes exactly. */
#include "cluster.h"
#include "graph.h"
#include "ty_topologies.h"

#include <stdlib.h>
#include <string.h>

/* Up to this size, BLISS takes less than a second on graphs of clusters. */
enum { EXACT_LIMIT = 6000 };

typedef struct coloured {
    uint64_t key; /* equal for vertices of the same colour */
    uint32_t index;
} coloured;

static int compare_coloured(const void *a, const void *b)
{
    const coloured *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Finalizer of splitmix64: sums of such values do not collide in practice.
 */
static uint64_t mix(uint64_t z)
{
    z += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Maps keys to colours 0, 1, ...; returns their number. */
static uint32_t number(coloured *list, uint32_t count, uint32_t *colours)
{
    uint32_t next = 0;

    qsort(list, count, sizeof *list, compare_coloured);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0 && list[i].key != list[i - 1].key)
            next++;
        colours[list[i].index] = next;
    }
    return count == 0 ? 0 : next + 1;
}

static uint64_t what_it_is(const cluster_vertex *v)
{
    uint64_t key = mix((uint64_t)v->kind);

    if (v->kind == TY_VERTEX_DEVICE)
        key = mix(key ^ v->device_type);
    if (v->kind == TY_VERTEX_HOST)
        key = mix(mix(key ^ v->host_type) ^ v->cores ^ ((uint64_t)v->is_staged << 32));
    return key;
}

/* Links with the same kind and number of link lanes have the same colour. */
static uint32_t colour_links(const ty_cluster *c, coloured *list, uint32_t *colours)
{
    for (uint32_t i = 0; i < c->link_count; i++) {
        uint64_t lanes;
        memcpy(&lanes, &c->link_lanes[i], sizeof lanes);
        list[i] = (coloured){mix(mix(c->link_kinds[i]) ^ lanes), i};
    }
    return number(list, c->link_count, colours);
}

/* One round: a sum over the neighbors does not depend on their order. A device's neighbors
 * include its host, linked or not, and a host's include its devices. */
static uint32_t refine(const ty_cluster *c, const uint32_t *links, coloured *list,
                       uint32_t *colours)
{
    for (uint32_t v = 0; v < c->vertex_count; v++) {
        uint64_t sum = 0;
        for (uint32_t p = c->port_starts[v]; p < c->port_starts[v + 1]; p++)
            sum += mix(mix(links[c->ports[p].link]) ^ colours[c->ports[p].vertex]);
        list[v] = (coloured){mix(mix(colours[v]) ^ sum), v};
    }
    for (uint32_t d = 0; d < c->device_count; d++) {
        uint32_t device = c->device_vertices[d];
        uint32_t host = c->host_vertices[c->vertices[device].host];
        list[device].key = mix(list[device].key ^ mix(colours[host] + 1));
        list[host].key += mix(~(uint64_t)colours[device]);
    }
    return number(list, c->vertex_count, colours);
}

/* Links become vertices, since only vertices have colours; so do the relations of devices to
 * hosts. */
static ty_status part_exactly(const ty_cluster *c, const uint32_t *links, uint32_t link_colours,
                              uint32_t *colours, uint32_t colour_count, ty_error *error)
{
    uint32_t vertices = c->vertex_count + c->link_count + c->device_count;
    uint32_t *ends = ty_alloc(4 * ((size_t)c->link_count + c->device_count), sizeof *ends);
    uint32_t *all = ty_alloc(2 * (size_t)vertices, sizeof *all), *orbits = NULL;
    graph_edges edges = {.vertex_count = vertices, .ends = ends};
    ty_status status;

    TY_CHECK(ty_check_memory(ends != NULL && all != NULL, error), status, cleanup);
    orbits = all + vertices;
    memcpy(all, colours, c->vertex_count * sizeof *all);
    for (uint32_t i = 0; i < c->link_count + c->device_count; i++) {
        uint32_t middle = c->vertex_count + i, d = i - c->link_count;
        uint32_t a = i < c->link_count ? c->links[i].from : c->device_vertices[d];
        uint32_t b = i < c->link_count ? c->links[i].to : c->host_vertices[c->vertices[a].host];
        all[middle] = colour_count + (i < c->link_count ? links[i] : link_colours);
        ends[4 * i] = a;
        ends[4 * i + 1] = ends[4 * i + 2] = middle;
        ends[4 * i + 3] = b;
    }
    edges.edge_count = 2 * (c->link_count + c->device_count);
    TY_CHECK(graph_orbits(&edges, all, orbits, error), status, cleanup);
    memcpy(colours, orbits, c->vertex_count * sizeof *colours);
cleanup:
    ty_free(ends);
    ty_free(all);
    return status;
}

/* Maps colours of devices to classes, in the order of their first device. */
static ty_status name_classes(const ty_cluster *c, const uint32_t *colours, uint32_t *classes,
                              uint32_t *count, ty_error *error)
{
    uint32_t *names = ty_alloc(c->vertex_count, sizeof *names); /* plus one */

    TY_TRY(ty_check_memory(names != NULL, error));
    *count = 0;
    for (uint32_t d = 0; d < c->device_count; d++) {
        uint32_t colour = colours[c->device_vertices[d]];
        if (names[colour] == 0)
            names[colour] = ++*count;
        classes[d] = names[colour] - 1;
    }
    ty_free(names);
    return TY_OK;
}

ty_status ty_cluster_classes(const ty_cluster *cluster, uint32_t *classes, uint32_t *class_count,
                             bool *is_exact, ty_error *error)
{
    size_t vertices = cluster->vertex_count, links = cluster->link_count;
    coloured *list = ty_alloc(vertices > links ? vertices : links, sizeof *list);
    uint32_t *colours = ty_alloc(vertices + links, sizeof *colours), count = 0, last, of_links;
    bool is_small = vertices + links <= EXACT_LIMIT;
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(list != NULL && colours != NULL, error), status, cleanup);
    of_links = colour_links(cluster, list, colours + vertices);
    for (uint32_t v = 0; v < vertices; v++)
        list[v] = (coloured){what_it_is(&cluster->vertices[v]), v};
    last = number(list, cluster->vertex_count, colours);
    while ((count = refine(cluster, colours + vertices, list, colours)) > last)
        last = count;
    if (is_small)
        TY_CHECK(part_exactly(cluster, colours + vertices, of_links, colours, count, error), status,
                 cleanup);
    status = name_classes(cluster, colours, classes, class_count, error);
    if (status == TY_OK && is_exact != NULL)
        *is_exact = is_small;
cleanup:
    ty_free(list);
    ty_free(colours);
    return status;
}
