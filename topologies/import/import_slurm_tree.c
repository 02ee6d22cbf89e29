/* Switches, blocks and nodes of Slurm, for both file formats. */
#include "hostlist.h"
#include "import_slurm.h"

#include <stdio.h>

ty_status slurm_tree_open(slurm_tree *s, importer *im, ty_error *error)
{
    ty_status status = import_need_host(im, "names no devices", error);

    if (status == TY_OK)
        status = tree_open(&s->tree, im, error);
    if (status == TY_OK)
        (void)tree_host(&s->tree);
    return status;
}

void slurm_tree_close(slurm_tree *s)
{
    tree_close(&s->tree);
}

ty_status slurm_tree_switch(slurm_tree *s, const char *name, size_t length, bool is_block,
                            ty_error *error)
{
    importer *im = s->tree.im;
    char copy[200];

    if (length == 0 || length >= sizeof copy)
        return import_fail(im, error, s->line,
                           "found nodes or switches without the name of a switch or block, "
                           "expected one");
    snprintf(copy, sizeof copy, "%.*s", (int)length, name);
    TY_TRY(tree_node_of(&s->tree, copy, s->line, &s->parent, error));
    if (s->tree.nodes[s->parent].is_defined || s->tree.nodes[s->parent].host != NO_INDEX)
        return import_fail(im, error, s->line, "found %.60s a second time, expected it once", copy);
    s->tree.nodes[s->parent].is_defined = true;
    s->domain = NO_INDEX;
    if (is_block)
        TY_TRY(tree_domain_of(&s->tree, copy, &s->domain, error));
    *(is_block ? &s->blocks : &s->switches) += 1;
    return TY_OK;
}

static ty_status hang(void *data, const char *name, ty_error *error)
{
    slurm_tree *s = data;
    importer *im = s->tree.im;
    uint32_t node;

    TY_TRY(tree_node_of(&s->tree, name, s->line, &node, error));
    if (s->are_nodes ? s->tree.nodes[node].is_defined : s->tree.nodes[node].host != NO_INDEX)
        return import_fail(im, error, s->line,
                           "found %.60s as a node and as a switch, expected one", name);
    if (s->are_nodes) {
        s->tree.nodes[node].host = im->host;
        s->tree.nodes[node].domain = s->domain;
    }
    return tree_hang(&s->tree, node, s->parent, s->line, error);
}

ty_status slurm_tree_below(slurm_tree *s, const char *list, size_t length, bool are_nodes,
                           ty_error *error)
{
    char where[200];

    snprintf(where, sizeof where, "%.160s:%u", s->tree.im->name, s->line);
    s->are_nodes = are_nodes;
    return hostlist_each(list, length, DEVICE_LIMIT, where, hang, s, error);
}

static ty_status check_defined(const slurm_tree *s, ty_error *error)
{
    for (uint32_t n = 0; n < s->tree.count; n++)
        if (s->tree.nodes[n].host == NO_INDEX && !s->tree.nodes[n].is_defined)
            return import_fail(s->tree.im, error, s->tree.nodes[n].line,
                               "found switch %.60s, expected a line that says what is below it",
                               s->tree.nodes[n].name);
    if (s->blocks > 0 && s->switches > 0)
        return import_fail(s->tree.im, error, 0,
                           "found both BlockName and SwitchName, expected one of them");
    return TY_OK;
}

ty_status slurm_tree_build(slurm_tree *s, ty_error *error)
{
    importer *im = s->tree.im;

    TY_TRY(check_defined(s, error));
    if (im->catalogue->hosts[im->host].domain_hosts > 0)
        import_note(im, s->blocks > 0
                            ? "nodes of a block share one NVLink domain"
                            : "NVLink is drawn inside each node only: switches are no NVLink "
                              "domains, blocks (BlockName) are");
    if (s->has_sizes)
        import_note(im, "block sizes are for the scheduler and left out");
    if (im->options->oversubscription == 0)
        import_note(im, "uplinks are taken as wide as what is below them: Slurm does not say "
                        "(oversubscription is an option)");
    return tree_build(&s->tree, s->blocks > 0 ? "blocks" : NULL, error);
}
