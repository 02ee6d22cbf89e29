/* A tree of network switches with hosts below. */
#include "import_tree.h"

#include <stdio.h>
#include <string.h>

enum { NODE_LIMIT = 1 << 20, DEPTH_LIMIT = 32 };

ty_status tree_open(tree *t, importer *im, ty_error *error)
{
    *t = (tree){.im = im, .arena = ty_arena_new()};
    return ty_check_memory(t->arena != NULL, error);
}

void tree_close(tree *t)
{
    ty_free(t->nodes);
    ty_free(t->slots);
    ty_free(t->domains);
    ty_arena_free(t->arena);
    *t = (tree){0};
}

/* ---- Names ------------------------------------------------------------------------------- */

/* FNV-1a; does not affect the order of nodes. */
static uint32_t hash_of(const char *name)
{
    uint32_t hash = 2166136261u;

    for (; *name != '\0'; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return hash;
}

static uint32_t *slot_of(const tree *t, const char *name)
{
    uint32_t slot = hash_of(name) & (t->slot_count - 1);

    while (t->slots[slot] != 0 && strcmp(t->nodes[t->slots[slot] - 1].name, name) != 0)
        slot = (slot + 1) & (t->slot_count - 1);
    return &t->slots[slot];
}

static ty_status grow(tree *t, ty_error *error)
{
    uint32_t room = t->room == 0 ? 64 : 2 * t->room;
    tree_node *nodes = ty_resize(t->nodes, room, sizeof *nodes);
    uint32_t *slots = ty_alloc(2 * (size_t)room, sizeof *slots);

    if (nodes != NULL)
        t->nodes = nodes;
    if (nodes == NULL || slots == NULL) {
        ty_free(slots);
        return ty_check_memory(false, error);
    }
    ty_free(t->slots);
    t->slots = slots;
    t->slot_count = 2 * room;
    t->room = room;
    for (uint32_t n = 0; n < t->count; n++)
        *slot_of(t, t->nodes[n].name) = n + 1;
    return TY_OK;
}

ty_status tree_node_of(tree *t, const char *name, unsigned line, uint32_t *node, ty_error *error)
{
    tree_node added = {.parent = NO_INDEX, .host = NO_INDEX, .domain = NO_INDEX, .line = line};
    uint32_t *slot;

    if (t->count == NODE_LIMIT)
        return import_fail(t->im, error, line, "found more than %d names, expected fewer",
                           NODE_LIMIT);
    if (t->count == t->room)
        TY_TRY(grow(t, error));
    slot = slot_of(t, name);
    if (*slot == 0) {
        TY_TRY(ty_check_memory((added.name = ty_arena_strdup(t->arena, name)) != NULL, error));
        t->nodes[t->count++] = added;
        *slot = t->count;
    }
    *node = *slot - 1;
    return TY_OK;
}

uint32_t tree_find(const tree *t, const char *name)
{
    uint32_t slot = t->slot_count > 0 ? *slot_of(t, name) : 0;
    return slot > 0 ? slot - 1 : NO_INDEX;
}

/* Files list the hosts of a domain together, so the last domain is tried first. */
ty_status tree_domain_of(tree *t, const char *name, uint32_t *domain, ty_error *error)
{
    tree_domain added = {.vertex = NO_INDEX};

    for (uint32_t d = t->domain_count; d > 0; d--)
        if (strcmp(t->domains[d - 1].name, name) == 0) {
            *domain = d - 1;
            return TY_OK;
        }
    TY_TRY(ty_reserve(&t->domains, t->domain_count, &t->domain_room, sizeof *t->domains, error));
    TY_TRY(ty_check_memory((added.name = ty_arena_strdup(t->arena, name)) != NULL, error));
    *domain = t->domain_count;
    t->domains[t->domain_count++] = added;
    return TY_OK;
}

uint32_t tree_host(tree *t)
{
    importer *im = t->im;
    uint32_t host = im->host, tray = im->catalogue->hosts[host].tray;

    if (tray == NO_INDEX)
        return host;
    import_note(im, "a node is taken as a %s: a %s is a rack of them",
                im->catalogue->hosts[tray].name, im->catalogue->hosts[host].name);
    im->host = tray;
    return tray;
}

ty_status tree_hang(tree *t, uint32_t node, uint32_t parent, unsigned line, ty_error *error)
{
    tree_node *n = &t->nodes[node];

    if (n->parent != NO_INDEX && n->parent != parent)
        return import_fail(t->im, error, line,
                           "found %.60s below %.60s and below %.60s, expected one place", n->name,
                           t->nodes[n->parent].name, t->nodes[parent].name);
    n->parent = parent;
    return TY_OK;
}

/* ---- Into the cluster -------------------------------------------------------------------- */

/* Real networks have few levels; a longer path up is a cycle. */
static ty_status check_depth(const tree *t, ty_error *error)
{
    for (uint32_t n = 0; n < t->count; n++) {
        uint32_t at = n, steps = 0;
        for (; at != NO_INDEX && steps <= DEPTH_LIMIT; steps++)
            at = t->nodes[at].parent;
        if (steps > DEPTH_LIMIT)
            return import_fail(t->im, error, t->nodes[n].line,
                               "found %.60s below itself, or more than %d switches above it, "
                               "expected a tree",
                               t->nodes[n].name, DEPTH_LIMIT);
    }
    return TY_OK;
}

/* Marks the part to build: everything below the chosen root. Counts hosts' NICs up the tree. */
static void count_ports(const tree *t, uint32_t root, bool *is_wanted)
{
    for (uint32_t n = 0; n < t->count; n++) {
        uint32_t at = n;
        while (at != root && t->nodes[at].parent != NO_INDEX)
            at = t->nodes[at].parent;
        is_wanted[n] = root == NO_INDEX || at == root;
        if (!is_wanted[n] || t->nodes[n].host == NO_INDEX)
            continue;
        for (at = n; at != NO_INDEX; at = at == root ? NO_INDEX : t->nodes[at].parent)
            t->nodes[at].ports +=
                catalogue_host_count_of(&t->im->catalogue->hosts[t->nodes[n].host], TY_VERTEX_NIC);
    }
}

static bool is_switch(const tree_node *n)
{
    return n->host == NO_INDEX;
}

/* The only root, the requested one, or (with `joint`) a new one above all; ignores switches without
 * children. */
static ty_status find_root(tree *t, const char *joint, uint32_t *root, ty_error *error)
{
    const char *wanted = t->im->options->root;
    uint32_t roots = 0, last = NO_INDEX;
    char names[120] = "";

    *root = NO_INDEX;
    for (uint32_t n = 0; n < t->count; n++) {
        const tree_node *node = &t->nodes[n];
        size_t length = strlen(names);
        if (wanted != NULL && is_switch(node) && strcmp(node->name, wanted) == 0)
            *root = n;
        if (node->parent != NO_INDEX || !(node->ports > 0))
            continue;
        roots++;
        last = n;
        if (length < 80)
            snprintf(names + length, sizeof names - length, "%s%.30s", length > 0 ? ", " : "",
                     node->name);
    }
    if (wanted != NULL && *root == NO_INDEX)
        return ty_fail(error, TY_EINVAL, "root: found \"%.60s\", expected a switch of %.160s",
                       wanted, t->im->name);
    if (wanted != NULL || roots == 0)
        return TY_OK;
    if (roots == 1 && is_switch(&t->nodes[last])) {
        *root = last;
        return TY_OK;
    }
    if (joint == NULL)
        return ty_fail(error, TY_EINVAL,
                       "%.160s: found %u switches with nothing above them (%s%s), expected one, or "
                       "the name of one (--root)",
                       t->im->name, roots, names, strlen(names) >= 80 ? ", ..." : "");
    TY_TRY(tree_node_of(t, joint, 0, root, error));
    for (uint32_t n = 0; n < t->count; n++)
        if (n != *root && t->nodes[n].parent == NO_INDEX && t->nodes[n].ports > 0)
            TY_TRY(tree_hang(t, n, *root, 0, error));
    return TY_OK;
}

/* Kind of network of a host below each switch, which is the kind of its trunks. */
static void find_networks(const tree *t, uint32_t *networks)
{
    for (uint32_t n = 0; n < t->count; n++) {
        if (t->nodes[n].host == NO_INDEX)
            continue;
        networks[n] = t->im->catalogue->hosts[t->nodes[n].host].network;
        for (uint32_t at = t->nodes[n].parent; at != NO_INDEX && networks[at] == NO_INDEX;
             at = t->nodes[at].parent)
            networks[at] = networks[n];
    }
}

static ty_status add_trunk(const tree *t, uint32_t n, const uint32_t *vertices,
                           const uint32_t *networks, ty_error *error)
{
    const tree_node *node = &t->nodes[n];
    double oversubscription =
        t->im->options->oversubscription > 0 ? t->im->options->oversubscription : 1;

    return builder_link(&t->im->builder, vertices[n], vertices[node->parent], networks[n], true,
                        node->ports / oversubscription, error);
}

/* Adds a host with its NICs on the switch above; hosts of a domain share a device switch.
 */
static ty_status add_tree_host(const tree *t, const tree_node *node, uint32_t above,
                               ty_error *error)
{
    const catalogue_host *host = &t->im->catalogue->hosts[node->host];
    tree_domain *domain =
        node->domain != NO_INDEX && host->domain_hosts > 0 ? &t->domains[node->domain] : NULL;
    uint32_t shared = NO_INDEX;
    char name[240];

    if (domain != NULL && ++domain->hosts > host->domain_hosts)
        return import_fail(t->im, error, node->line,
                           "found more than %u nodes in NVLink domain %.60s, expected at most as "
                           "many %s as share one",
                           host->domain_hosts, domain->name, host->name);
    if (domain != NULL && domain->vertex == NO_INDEX) {
        snprintf(name, sizeof name, "%.200s/nvswitch", domain->name);
        TY_TRY(ty_cluster_add_vertex(t->im->cluster, TY_VERTEX_DEVICE_SWITCH, name, 0,
                                     &domain->vertex, error));
    }
    if (domain != NULL)
        shared = domain->vertex;
    return builder_host_in_domain(&t->im->builder, node->host, node->name, above, shared, error);
}

/* Adds switches before hosts, both in the order of the file. */
static ty_status add_all(const tree *t, uint32_t root, const bool *is_wanted, uint32_t *vertices,
                         const uint32_t *networks, ty_error *error)
{
    for (uint32_t n = 0; n < t->count; n++) {
        if (!is_wanted[n] || !is_switch(&t->nodes[n]) || !(t->nodes[n].ports > 0))
            continue;
        TY_TRY(ty_cluster_add_vertex(t->im->cluster, TY_VERTEX_SWITCH, t->nodes[n].name, 0,
                                     &vertices[n], error));
    }
    for (uint32_t n = 0; n < t->count; n++) {
        const tree_node *node = &t->nodes[n];
        if (!is_wanted[n] || !(node->ports > 0) || n == root)
            continue;
        if (is_switch(node))
            TY_TRY(add_trunk(t, n, vertices, networks, error));
        else
            TY_TRY(add_tree_host(t, node, vertices[node->parent], error));
    }
    return TY_OK;
}

ty_status tree_build(tree *t, const char *joint, ty_error *error)
{
    bool *is_wanted = ty_alloc((size_t)t->count + 1, sizeof *is_wanted);
    uint32_t *vertices = ty_alloc(2 * ((size_t)t->count + 1), sizeof *vertices);
    uint32_t *networks = vertices == NULL ? NULL : vertices + t->count + 1, root;
    ty_status status;

    TY_CHECK(ty_check_memory(is_wanted != NULL && vertices != NULL, error), status, cleanup);
    TY_CHECK(check_depth(t, error), status, cleanup);
    count_ports(t, NO_INDEX, is_wanted);
    TY_CHECK(find_root(t, joint, &root, error), status, cleanup);
    for (uint32_t n = 0; n < t->count; n++)
        t->nodes[n].ports = 0;
    count_ports(t, root, is_wanted);
    for (uint32_t n = 0; n < t->count; n++) {
        vertices[n] = networks[n] = NO_INDEX;
        if (t->nodes[n].host != NO_INDEX && t->nodes[n].parent == NO_INDEX && is_wanted[n]) {
            status = import_fail(t->im, error, t->nodes[n].line,
                                 "found %.60s below no switch, expected one", t->nodes[n].name);
            goto cleanup;
        }
    }
    find_networks(t, networks);
    status = add_all(t, root, is_wanted, vertices, networks, error);
cleanup:
    ty_free(is_wanted);
    ty_free(vertices);
    return status;
}
