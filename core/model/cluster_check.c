/* Finishing a cluster: checks of its graph, and data for fast queries. */
#include "cluster.h"

#include <stdlib.h>
#include <string.h>

static int compare_names(const void *a, const void *b)
{
    const cluster_name *x = a, *y = b;
    int order = strcmp(x->name, y->name);
    if (order != 0)
        return order;
    return x->vertex < y->vertex ? -1 : x->vertex > y->vertex;
}

ty_status ty_cluster_sort_names(ty_cluster *cluster, cluster_problem *problem, ty_error *error)
{
    ty_free(cluster->names);
    cluster->names = ty_alloc(cluster->vertex_count, sizeof(cluster_name));
    TY_TRY(ty_check_memory(cluster->names != NULL, error));
    for (uint32_t v = 0; v < cluster->vertex_count; v++)
        cluster->names[v] = (cluster_name){cluster->vertices[v].name, v};
    qsort(cluster->names, cluster->vertex_count, sizeof(cluster_name), compare_names);
    for (uint32_t i = 1; i < cluster->vertex_count; i++)
        if (strcmp(cluster->names[i - 1].name, cluster->names[i].name) == 0) {
            *problem =
                (cluster_problem){"a name that no other vertex has", cluster->names[i].vertex};
            break;
        }
    return TY_OK;
}

uint32_t ty_cluster_find(const ty_cluster *cluster, const char *name)
{
    uint32_t low = 0, high = cluster->vertex_count;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        int order = strcmp(name, cluster->names[middle].name);
        if (order == 0)
            return cluster->names[middle].vertex;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NO_INDEX;
}

/* Ports of every vertex by a counting sort over the links, so each list ascends by link. */
static ty_status make_ports(ty_cluster *cluster, ty_error *error)
{
    uint32_t *starts = ty_alloc((size_t)cluster->vertex_count + 1, sizeof *starts);
    cluster_port *ports = ty_alloc(2 * (size_t)cluster->link_count, sizeof *ports);
    uint32_t *next = ty_alloc(cluster->vertex_count, sizeof *next);

    if (starts == NULL || ports == NULL || next == NULL) {
        ty_free(starts);
        ty_free(ports);
        ty_free(next);
        return ty_check_memory(false, error);
    }
    for (uint32_t i = 0; i < cluster->link_count; i++) {
        starts[cluster->links[i].from + 1]++;
        starts[cluster->links[i].to + 1]++;
    }
    for (uint32_t v = 0; v < cluster->vertex_count; v++) {
        starts[v + 1] += starts[v];
        next[v] = starts[v];
    }
    for (uint32_t i = 0; i < cluster->link_count; i++) {
        const ty_link_edge *link = &cluster->links[i];
        ports[next[link->from]++] = (cluster_port){link->to, i};
        ports[next[link->to]++] = (cluster_port){link->from, i};
    }
    ty_free(next);
    cluster->port_starts = starts;
    cluster->ports = ports;
    return TY_OK;
}

uint32_t ty_cluster_root_of(uint32_t *parents, uint32_t vertex)
{
    while (parents[vertex] != vertex)
        vertex = parents[vertex] = parents[parents[vertex]];
    return vertex;
}

/* Components of the graph without links at vertices of kind `cut`; TY_VERTEX_KIND_COUNT cuts
 * nothing. They are numbered by their least vertices. */
static ty_status components_without(const ty_cluster *cluster, ty_vertex_kind cut,
                                    uint32_t *members, uint32_t *count, ty_error *error)
{
    uint32_t *parents = ty_alloc(cluster->vertex_count, sizeof *parents), found = 0;

    TY_TRY(ty_check_memory(parents != NULL, error));
    for (uint32_t v = 0; v < cluster->vertex_count; v++)
        parents[v] = v;
    for (uint32_t i = 0; i < cluster->link_count; i++) {
        const ty_link_edge *link = &cluster->links[i];
        if (cluster->vertices[link->from].kind == cut || cluster->vertices[link->to].kind == cut)
            continue;
        const uint32_t a = ty_cluster_root_of(parents, link->from),
                       b = ty_cluster_root_of(parents, link->to);
        parents[a < b ? b : a] = a < b ? a : b;
    }
    for (uint32_t v = 0; v < cluster->vertex_count; v++) {
        const uint32_t root = ty_cluster_root_of(parents, v);
        members[v] = root == v ? found++ : members[root];
    }
    ty_free(parents);
    *count = found;
    return TY_OK;
}

/* Isolated vertices are outside the largest component. */
static ty_status check_reachable(const ty_cluster *cluster, uint32_t *members,
                                 cluster_problem *problem, ty_error *error)
{
    uint32_t count, largest = 0;
    uint32_t *sizes = ty_alloc(cluster->vertex_count, sizeof *sizes);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(sizes != NULL, error));
    TY_CHECK(components_without(cluster, TY_VERTEX_KIND_COUNT, members, &count, error), status,
             cleanup);
    for (uint32_t v = 0; v < cluster->vertex_count; v++)
        sizes[members[v]]++;
    for (uint32_t c = 1; c < count; c++)
        if (sizes[c] > sizes[largest])
            largest = c;
    for (uint32_t v = 0; v < cluster->vertex_count; v++)
        if (members[v] != largest) {
            *problem = (cluster_problem){"a vertex linked, directly or not, to all others", v};
            break;
        }
cleanup:
    ty_free(sizes);
    return status;
}

/* Number of devices at each component, each counted once per component. */
static void count_devices(const ty_cluster *cluster, const uint32_t *members, uint32_t *touching,
                          uint32_t *last)
{
    for (uint32_t d = 0; d < cluster->device_count; d++) {
        uint32_t v = cluster->device_vertices[d];
        for (uint32_t p = cluster->port_starts[v]; p < cluster->port_starts[v + 1]; p++) {
            uint32_t next = cluster->ports[p].vertex;
            if (cluster->vertices[next].kind == TY_VERTEX_DEVICE || last[members[next]] == d + 1)
                continue;
            last[members[next]] = d + 1;
            touching[members[next]]++;
        }
    }
}

static bool touches(const ty_cluster *cluster, uint32_t vertex, const uint32_t *members,
                    uint32_t component)
{
    for (uint32_t p = cluster->port_starts[vertex]; p < cluster->port_starts[vertex + 1]; p++) {
        uint32_t next = cluster->ports[p].vertex;
        if (cluster->vertices[next].kind != TY_VERTEX_DEVICE && members[next] == component)
            return true;
    }
    return false;
}

/* Devices do not forward, so one component of the graph without devices must touch every device. */
static ty_status check_forwarding(const ty_cluster *cluster, uint32_t *members,
                                  cluster_problem *problem, ty_error *error)
{
    uint32_t count, best = 0;
    uint32_t *touching = ty_alloc(cluster->vertex_count, sizeof *touching);
    uint32_t *last = ty_alloc(cluster->vertex_count, sizeof *last);
    ty_status status = TY_ENOMEM;

    TY_CHECK(ty_check_memory(touching != NULL && last != NULL, error), status, cleanup);
    TY_CHECK(components_without(cluster, TY_VERTEX_DEVICE, members, &count, error), status,
             cleanup);
    count_devices(cluster, members, touching, last);
    for (uint32_t c = 1; c < count; c++)
        if (touching[c] > touching[best])
            best = c;
    for (uint32_t d = 0; d < cluster->device_count && cluster->device_count > 1; d++) {
        uint32_t v = cluster->device_vertices[d];
        if (!touches(cluster, v, members, best)) {
            *problem = (cluster_problem){"a device that hosts, switches and NICs join to all "
                                         "others (devices do not forward)",
                                         v};
            break;
        }
    }
cleanup:
    ty_free(touching);
    ty_free(last);
    return status;
}

/* Islands are the components without network switches: usually hosts. */
static ty_status make_islands(ty_cluster *cluster, uint32_t *members, ty_error *error)
{
    uint32_t count;
    ty_status status = components_without(cluster, TY_VERTEX_SWITCH, members, &count, error);
    bool *has_several;

    if (status != TY_OK)
        return status;
    cluster->island_gates = ty_alloc(count, sizeof(uint32_t));
    has_several = ty_alloc(count, sizeof *has_several);
    if (cluster->island_gates == NULL || has_several == NULL) {
        ty_free(has_several);
        return ty_check_memory(false, error);
    }
    cluster->island_count = count;
    for (uint32_t i = 0; i < count; i++)
        cluster->island_gates[i] = NO_INDEX;
    for (uint32_t v = 0; v < cluster->vertex_count; v++)
        cluster->vertices[v].island =
            cluster->vertices[v].kind == TY_VERTEX_SWITCH ? NO_INDEX : members[v];
    for (uint32_t i = 0; i < cluster->link_count; i++) {
        uint32_t from = cluster->links[i].from, to = cluster->links[i].to, island;
        if (cluster->vertices[from].kind == TY_VERTEX_SWITCH) {
            uint32_t swapped = from;
            from = to;
            to = swapped;
        }
        island = cluster->vertices[from].island;
        if (island == NO_INDEX || cluster->vertices[to].kind != TY_VERTEX_SWITCH)
            continue;
        if (cluster->island_gates[island] != NO_INDEX && cluster->island_gates[island] != to)
            has_several[island] = true;
        cluster->island_gates[island] = to;
    }
    for (uint32_t i = 0; i < count; i++)
        if (has_several[i])
            cluster->island_gates[i] = NO_INDEX;
    ty_free(has_several);
    return TY_OK;
}

/* Visits the switches linked to `root`, breadth first: false if there is a cycle. */
static bool walk_tree(const ty_cluster *cluster, uint32_t root, uint32_t *links,
                      uint32_t *distances, bool *is_seen, uint32_t *queue)
{
    uint32_t count = 1;

    queue[0] = root;
    is_seen[root] = true;
    for (uint32_t i = 0; i < count; i++) {
        const uint32_t v = queue[i];
        for (uint32_t p = cluster->port_starts[v]; p < cluster->port_starts[v + 1]; p++) {
            const cluster_port *port = &cluster->ports[p];
            if (cluster->vertices[port->vertex].kind != TY_VERTEX_SWITCH || port->link == links[v])
                continue;
            if (is_seen[port->vertex])
                return false;
            is_seen[port->vertex] = true;
            links[port->vertex] = port->link;
            distances[port->vertex] = distances[v] + 1;
            queue[count++] = port->vertex;
        }
    }
    return true;
}

/* Trees have one path between two of their switches, so routes need no search. */
static ty_status find_trees(ty_cluster *cluster, ty_error *error)
{
    const uint32_t count = cluster->vertex_count;
    uint32_t *links = ty_alloc(count, sizeof *links);
    uint32_t *distances = ty_alloc(count, sizeof *distances);
    uint32_t *queue = ty_alloc(count, sizeof *queue);
    bool *is_seen = ty_alloc(count, sizeof *is_seen), has_cycle = false;
    ty_status status = TY_OK;

    TY_CHECK(ty_check_memory(links != NULL && distances != NULL && queue != NULL && is_seen != NULL,
                             error),
             status, cleanup);
    for (uint32_t v = 0; v < count; v++)
        links[v] = NO_INDEX;
    for (uint32_t v = 0; v < count && !has_cycle; v++)
        if (cluster->vertices[v].kind == TY_VERTEX_SWITCH && !is_seen[v])
            has_cycle = !walk_tree(cluster, v, links, distances, is_seen, queue);
    if (has_cycle)
        goto cleanup;
    cluster->root_links = links;
    cluster->root_distances = distances;
    links = distances = NULL; /* given away */

cleanup:
    ty_free(links);
    ty_free(distances);
    ty_free(queue);
    ty_free(is_seen);
    return status;
}

ty_status ty_cluster_finish(ty_cluster *cluster, cluster_problem *problem, ty_error *error)
{
    uint32_t *members = ty_alloc(cluster->vertex_count, sizeof *members);
    ty_status status = TY_OK;

    TY_TRY(ty_check_memory(members != NULL, error));
    if (cluster->device_count == 0) {
        *problem = (cluster_problem){"a cluster with at least one device", NO_INDEX};
        goto cleanup;
    }
    if (cluster->names == NULL)
        TY_CHECK(ty_cluster_sort_names(cluster, problem, error), status, cleanup);
    if (problem->expected == NULL)
        TY_CHECK(check_reachable(cluster, members, problem, error), status, cleanup);
    if (problem->expected != NULL)
        goto cleanup;
    TY_CHECK(make_ports(cluster, error), status, cleanup);
    TY_CHECK(check_forwarding(cluster, members, problem, error), status, cleanup);
    if (problem->expected == NULL)
        TY_CHECK(make_islands(cluster, members, error), status, cleanup);
    if (problem->expected == NULL)
        TY_CHECK(find_trees(cluster, error), status, cleanup);
    if (problem->expected == NULL)
        TY_CHECK(ty_cluster_find_tori(cluster, error), status, cleanup);
cleanup:
    ty_free(members);
    return status;
}
