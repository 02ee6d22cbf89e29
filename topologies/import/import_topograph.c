/* topograph's cluster model (YAML): a tree of switches, and blocks of nodes below leaves. It names
 * no devices. Accelerator domains (annotations) are NVLink domains of hosts that can share one. */
#include "hostlist.h"
#include "import_tree.h"
#include "yml.h"

#include <stdio.h>
#include <string.h>

typedef struct reader {
    tree tree;
    uint32_t parent;
    unsigned line;
    uint32_t domain;  /* of the block at hand; NO_INDEX */
    uint32_t domains; /* blocks that have one */
} reader;

static ty_status add_switches(reader *r, yml_node switches, ty_error *error)
{
    for (size_t i = 0; i < yml_size(switches); i++) {
        yml_node key, value = yml_at(switches, i, &key), below = yml_get(value, "switches");
        uint32_t parent, child;
        if (!yml_is_mapping(switches) || yml_text(key)[0] == '\0')
            return import_fail(r->tree.im, error, yml_line(switches),
                               "found switches without names, expected NAME: {switches: [...]}");
        TY_TRY(tree_node_of(&r->tree, yml_text(key), yml_line(key), &parent, error));
        for (size_t s = 0; s < yml_size(below); s++) {
            yml_node name = yml_at(below, s, NULL);
            TY_TRY(tree_node_of(&r->tree, yml_text(name), yml_line(name), &child, error));
            TY_TRY(tree_hang(&r->tree, child, parent, yml_line(name), error));
        }
    }
    return TY_OK;
}

static ty_status hang(void *data, const char *name, ty_error *error)
{
    reader *r = data;
    uint32_t node, before = r->tree.count;

    TY_TRY(tree_node_of(&r->tree, name, r->line, &node, error));
    if (r->tree.count == before && r->tree.nodes[node].host == NO_INDEX)
        return import_fail(r->tree.im, error, r->line,
                           "found %.60s as a node and as a switch, expected one", name);
    r->tree.nodes[node].host = r->tree.im->host;
    r->tree.nodes[node].domain = r->domain;
    return tree_hang(&r->tree, node, r->parent, r->line, error);
}

/* "accelerator.topology.test/domain: nvl-1-1": the prefix is the provider's. */
static ty_status read_domain(reader *r, yml_node annotations, ty_error *error)
{
    r->domain = NO_INDEX;
    for (size_t i = 0; i < yml_size(annotations) && yml_is_mapping(annotations); i++) {
        yml_node key, value = yml_at(annotations, i, &key);
        const char *name = strrchr(yml_text(key), '/');
        name = name != NULL ? name + 1 : yml_text(key);
        if (yml_text(value)[0] == '\0' ||
            (strcmp(name, "domain") != 0 && strcmp(name, "accelerator") != 0))
            continue;
        r->domains++;
        return tree_domain_of(&r->tree, yml_text(value), &r->domain, error);
    }
    return TY_OK;
}

static ty_status add_block(reader *r, yml_node block, ty_error *error)
{
    yml_node leaf = yml_get(block, "switch"), nodes = yml_get(block, "nodes");
    char where[200];

    if (yml_text(leaf)[0] == '\0' || yml_size(nodes) == 0)
        return import_fail(r->tree.im, error, yml_line(block),
                           "found a block without switch or nodes, expected both");
    TY_TRY(tree_node_of(&r->tree, yml_text(leaf), yml_line(leaf), &r->parent, error));
    TY_TRY(read_domain(r, yml_get(block, "annotations"), error));
    for (size_t n = 0; n < yml_size(nodes); n++) {
        yml_node names = yml_at(nodes, n, NULL);
        r->line = yml_line(names);
        snprintf(where, sizeof where, "%.160s:%u", r->tree.im->name, r->line);
        TY_TRY(hostlist_each(yml_text(names), strlen(yml_text(names)), DEVICE_LIMIT, where, hang, r,
                             error));
    }
    return TY_OK;
}

static ty_status read_root(importer *im, yml_node root, ty_error *error)
{
    yml_node blocks = yml_get(root, "blocks");
    reader r = {0};
    ty_status status;

    if (yml_size(blocks) == 0 || !yml_is_sequence(blocks))
        return import_fail(im, error, yml_line(root), "found no blocks, expected a list of them");
    TY_CHECK(import_need_host(im, "names no devices", error), status, cleanup);
    TY_CHECK(tree_open(&r.tree, im, error), status, cleanup);
    (void)tree_host(&r.tree);
    TY_CHECK(add_switches(&r, yml_get(root, "switches"), error), status, cleanup);
    for (size_t b = 0; b < yml_size(blocks); b++)
        TY_CHECK(add_block(&r, yml_at(blocks, b, NULL), error), status, cleanup);
    if (r.domains > 0 && im->catalogue->hosts[im->host].domain_hosts == 0)
        import_note(im,
                    "accelerator domains of %u blocks are not drawn: what NVLink reaches is as "
                    "a %s has it",
                    r.domains, im->catalogue->hosts[im->host].name);
    if (im->options->oversubscription == 0)
        import_note(im, "uplinks are taken as wide as what is below them (oversubscription is an "
                        "option)");
    status = tree_build(&r.tree, NULL, error);
cleanup:
    tree_close(&r.tree);
    return status;
}

static ty_status read(importer *im, ty_error *error)
{
    return import_yml(im, read_root, error);
}

static bool probe(const char *text, size_t length)
{
    import_lines l = import_lines_of(text, length);
    bool has_blocks = false, has_switches = false;

    while (import_next_line(&l)) {
        has_blocks = has_blocks || (l.length >= 7 && memcmp(l.line, "blocks:", 7) == 0);
        has_switches = has_switches || (l.length >= 9 && memcmp(l.line, "switches:", 9) == 0);
    }
    return has_blocks && has_switches;
}

const import_format import_topograph = {"topograph", "topograph cluster model (YAML)", probe, read};
