/* Slurm's topology.yaml (Slurm 25.05 and later; man 5 topology.yaml): a list of topologies, each a
 * tree, blocks or flat. One of them becomes the cluster: that of cluster_default, else the first
 * with nodes. */
#include "import_slurm.h"
#include "yml.h"

#include <string.h>

static bool is_true(yml_node node)
{
    return strcmp(yml_text(node), "true") == 0;
}

/* Checks that a mapping has only these keys. */
static ty_status check_keys(const importer *im, yml_node node, const char *const *keys,
                            size_t count, ty_error *error)
{
    if (!yml_is_mapping(node))
        return import_fail(im, error, yml_line(node), "found no mapping, expected one of %s",
                           keys[0]);
    for (size_t i = 0; i < yml_size(node); i++) {
        yml_node key;
        size_t k = 0;
        (void)yml_at(node, i, &key);
        while (k < count && strcmp(keys[k], yml_text(key)) != 0)
            k++;
        if (k == count) {
            const char *near = ty_suggest(yml_text(key), keys, count, sizeof keys[0]);
            return import_fail(im, error, yml_line(key), "found key \"%.40s\", expected %s%s%s%s",
                               yml_text(key), keys[0], near != NULL ? "; did you mean \"" : "",
                               near != NULL ? near : "", near != NULL ? "\"?" : "");
        }
    }
    return TY_OK;
}

static ty_status add_list(slurm_tree *s, yml_node list, bool are_nodes, ty_error *error)
{
    const char *text = yml_text(list);

    if (list.document == NULL)
        return TY_OK;
    s->line = yml_line(list);
    if (text[0] == '\0')
        return import_fail(s->tree.im, error, s->line,
                           "found no list of names, expected one such as node[01-04]");
    return slurm_tree_below(s, text, strlen(text), are_nodes, error);
}

static ty_status add_entry(slurm_tree *s, yml_node entry, bool is_block, ty_error *error)
{
    static const char *const switch_keys[] = {"switch", "children", "nodes"};
    static const char *const block_keys[] = {"block", "nodes"};
    yml_node name = yml_get(entry, is_block ? "block" : "switch");

    s->line = yml_line(entry);
    if (!yml_is_mapping(entry))
        return import_fail(s->tree.im, error, s->line, "found no %s, expected its name and nodes",
                           is_block ? "block" : "switch");
    TY_TRY(check_keys(s->tree.im, entry, is_block ? block_keys : switch_keys, is_block ? 2 : 3,
                      error));
    TY_TRY(slurm_tree_switch(s, yml_text(name), strlen(yml_text(name)), is_block, error));
    if (!is_block)
        TY_TRY(add_list(s, yml_get(entry, "children"), false, error));
    return add_list(s, yml_get(entry, "nodes"), true, error);
}

/* "tree: {switches: [...]}" or "block: {block_sizes: [...], blocks: [...]}" */
static ty_status add_topology(slurm_tree *s, yml_node topology, ty_error *error)
{
    static const char *const tree_keys[] = {"switches"};
    static const char *const block_keys[] = {"blocks", "block_sizes"};
    bool is_block = yml_get(topology, "block").document != NULL;
    yml_node body = yml_get(topology, is_block ? "block" : "tree");
    yml_node list = yml_get(body, is_block ? "blocks" : "switches");

    TY_TRY(
        check_keys(s->tree.im, body, is_block ? block_keys : tree_keys, is_block ? 2 : 1, error));
    s->has_sizes = yml_get(body, "block_sizes").document != NULL;
    if (!yml_is_sequence(list) || yml_size(list) == 0)
        return import_fail(s->tree.im, error, yml_line(body),
                           "found no %s, expected a list of them",
                           is_block ? "blocks" : "switches");
    for (size_t i = 0; i < yml_size(list); i++)
        TY_TRY(add_entry(s, yml_at(list, i, NULL), is_block, error));
    return TY_OK;
}

static bool names_nodes(yml_node topology)
{
    return yml_get(topology, "tree").document != NULL ||
           yml_get(topology, "block").document != NULL;
}

/* Chooses the default one if it names nodes, else the first that does. */
static ty_status choose(importer *im, yml_node root, yml_node *out, ty_error *error)
{
    static const char *const keys[] = {"topology", "cluster_default", "tree", "block", "flat"};
    uint32_t usable = 0;

    *out = (yml_node){0};
    for (size_t i = 0; i < yml_size(root); i++) {
        yml_node topology = yml_at(root, i, NULL);
        TY_TRY(check_keys(im, topology, keys, sizeof keys / sizeof keys[0], error));
        if (!names_nodes(topology))
            continue;
        if (usable++ == 0 || (is_true(yml_get(topology, "cluster_default")) &&
                              !is_true(yml_get(*out, "cluster_default"))))
            *out = topology;
    }
    if (usable == 0)
        return import_fail(im, error, yml_line(root),
                           "found no topology that names nodes, expected one with tree or block "
                           "(flat says nothing of the network)");
    if (yml_size(root) > 1)
        import_note(im, "of %zu topologies %.80s is read, the others are left out", yml_size(root),
                    yml_text(yml_get(*out, "topology")));
    return TY_OK;
}

static ty_status read_root(importer *im, yml_node root, ty_error *error)
{
    slurm_tree s = {0};
    yml_node topology;
    ty_status status;

    if (!yml_is_sequence(root))
        return import_fail(im, error, yml_line(root),
                           "found no list, expected one of topologies (- topology: NAME)");
    TY_CHECK(slurm_tree_open(&s, im, error), status, cleanup);
    TY_CHECK(choose(im, root, &topology, error), status, cleanup);
    TY_CHECK(add_topology(&s, topology, error), status, cleanup);
    status = slurm_tree_build(&s, error);
cleanup:
    slurm_tree_close(&s);
    return status;
}

static ty_status read(importer *im, ty_error *error)
{
    return import_yml(im, read_root, error);
}

/* Whether the text has a list entry named topology. */
static bool probe(const char *text, size_t length)
{
    import_lines l = import_lines_of(text, length);
    static const char key[] = "topology:";

    while (import_next_line(&l)) {
        size_t at = strspn(l.line, "- ");
        if (at > 0 && l.line[0] == '-' && at + sizeof key - 1 <= l.length &&
            memcmp(l.line + at, key, sizeof key - 1) == 0)
            return true;
    }
    return false;
}

const import_format import_slurm_yaml = {"slurm-yaml", "Slurm topology.yaml", probe, read};
