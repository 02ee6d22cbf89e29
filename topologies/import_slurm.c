/* Slurm's topology.conf (topology/tree and topology/block) and what `scontrol show topology` prints
 * of it. It names switches and nodes but neither devices nor rates: hosts are those of the options,
 * uplinks as wide as what is below. */
#include "hostlist.h"
#include "import_tree.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- key=value --------------------------------------------------------------------------- */

typedef struct pair {
    const char *key, *value;
    size_t key_length, value_length;
} pair;

/* The next key=value of a line; a comment ends it. TY_OK with key == NULL at the end. */
static ty_status next_pair(const importer *im, const import_lines *lines, size_t *at, pair *out,
                           ty_error *error)
{
    const char *line = lines->line;
    size_t start, equals;

    while (*at < lines->length && isspace((unsigned char)line[*at]))
        (*at)++;
    start = *at;
    *out = (pair){0};
    if (start == lines->length || line[start] == '#')
        return TY_OK;
    while (*at < lines->length && !isspace((unsigned char)line[*at]) && line[*at] != '#')
        (*at)++;
    for (equals = start; equals < *at && line[equals] != '='; equals++)
        continue;
    if (equals == start || equals >= *at)
        return import_fail(im, error, lines->number, "found \"%.*s\", expected KEY=VALUE",
                           (int)(*at - start < 60 ? *at - start : 60), line + start);
    *out = (pair){line + start, line + equals + 1, equals - start, *at - equals - 1};
    return TY_OK;
}

static bool is_key(const pair *p, const char *key)
{
    return p->key_length == strlen(key) && strncasecmp(p->key, key, p->key_length) == 0;
}

/* ---- Lines ------------------------------------------------------------------------------- */

typedef struct line {
    pair name, nodes, switches, level;
    bool is_block;
} line;

typedef struct reader {
    tree tree;
    uint32_t parent; /* switch that names are hung below */
    bool are_nodes;  /* names are of nodes, not switches */
    unsigned number; /* of the line */
    uint32_t blocks, switches;
    bool has_speeds, has_sizes;
} reader;

static ty_status read_line(reader *r, const import_lines *lines, line *out, ty_error *error)
{
    static const char *const keys[] = {"SwitchName", "BlockName",      "Nodes",      "Switches",
                                       "Level",      "LinkSpeed",      "BlockSizes", "BlockIndex",
                                       "BlockSize",  "AggregatedBlock"};
    const importer *im = r->tree.im;
    size_t at = 0;
    pair p;
    ty_status status;

    *out = (line){0};
    for (;;) {
        char key[24];
        const char *near;
        TY_CHECK(next_pair(im, lines, &at, &p, error), status, done);
        if (p.key == NULL)
            return TY_OK;
        if (is_key(&p, "SwitchName") || is_key(&p, "BlockName")) {
            out->name = p;
            out->is_block = is_key(&p, "BlockName");
        } else if (is_key(&p, "Nodes")) {
            out->nodes = p;
        } else if (is_key(&p, "Switches")) {
            out->switches = p;
        } else if (is_key(&p, "Level")) {
            out->level = p;
        } else if (is_key(&p, "LinkSpeed")) {
            r->has_speeds = true;
        } else if (is_key(&p, "BlockSizes") || is_key(&p, "BlockIndex") ||
                   is_key(&p, "BlockSize") || is_key(&p, "AggregatedBlock")) {
            r->has_sizes = true; /* for the scheduler: how blocks are lumped */
        } else {
            snprintf(key, sizeof key, "%.*s", (int)(p.key_length < 20 ? p.key_length : 20), p.key);
            near = ty_suggest(key, keys, sizeof keys / sizeof keys[0], sizeof keys[0]);
            return import_fail(im, error, lines->number,
                               "found key \"%s\", expected SwitchName, Switches, Nodes, BlockName "
                               "or BlockSizes%s%s%s",
                               key, near != NULL ? "; did you mean \"" : "",
                               near != NULL ? near : "", near != NULL ? "\"?" : "");
        }
    }
done:
    return status;
}

static ty_status hang(void *data, const char *name, ty_error *error)
{
    reader *r = data;
    importer *im = r->tree.im;
    uint32_t node;
    ty_status status;

    TY_CHECK(tree_node_of(&r->tree, name, r->number, &node, error), status, done);
    if (r->are_nodes ? r->tree.nodes[node].is_defined : r->tree.nodes[node].host != NO_INDEX)
        return import_fail(im, error, r->number,
                           "found %.60s as a node and as a switch, expected one", name);
    if (r->are_nodes)
        r->tree.nodes[node].host = im->host;
    status = tree_hang(&r->tree, node, r->parent, r->number, error);
done:
    return status;
}

static ty_status expand(reader *r, const pair *list, bool are_nodes, ty_error *error)
{
    char where[200];

    snprintf(where, sizeof where, "%.160s:%u", r->tree.im->name, r->number);
    r->are_nodes = are_nodes;
    return hostlist_each(list->value, list->value_length, DEVICE_LIMIT, where, hang, r, error);
}

static ty_status add_line(reader *r, const line *l, ty_error *error)
{
    importer *im = r->tree.im;
    char name[200];
    ty_status status = TY_OK;

    if (l->name.key == NULL && l->nodes.key == NULL && l->switches.key == NULL)
        return TY_OK;
    if (l->name.value_length == 0 || l->name.value_length >= sizeof name)
        return import_fail(im, error, r->number,
                           "found nodes or switches without SwitchName or BlockName, expected one");
    snprintf(name, sizeof name, "%.*s", (int)l->name.value_length, l->name.value);
    TY_CHECK(tree_node_of(&r->tree, name, r->number, &r->parent, error), status, done);
    if (r->tree.nodes[r->parent].is_defined || r->tree.nodes[r->parent].host != NO_INDEX)
        return import_fail(im, error, r->number, "found %.60s a second time, expected it once",
                           name);
    r->tree.nodes[r->parent].is_defined = true;
    *(l->is_block ? &r->blocks : &r->switches) += 1;
    if (l->switches.value_length > 0)
        TY_CHECK(expand(r, &l->switches, false, error), status, done);
    /* scontrol lists the nodes of all levels below again */
    if (l->nodes.value_length > 0 && !(l->switches.value_length > 0 && l->level.key != NULL))
        TY_CHECK(expand(r, &l->nodes, true, error), status, done);
done:
    return status;
}

static ty_status check_defined(const reader *r, ty_error *error)
{
    for (uint32_t n = 0; n < r->tree.count; n++)
        if (r->tree.nodes[n].host == NO_INDEX && !r->tree.nodes[n].is_defined)
            return import_fail(r->tree.im, error, r->tree.nodes[n].line,
                               "found switch %.60s, expected a line that says what is below it",
                               r->tree.nodes[n].name);
    if (r->blocks > 0 && r->switches > 0)
        return import_fail(r->tree.im, error, 0,
                           "found both BlockName and SwitchName, expected one of them");
    return TY_OK;
}

static ty_status read(importer *im, ty_error *error)
{
    import_lines lines = import_lines_of(im->text, im->length);
    reader r = {0};
    line l;
    ty_status status;

    TY_CHECK(import_need_host(im, "names no devices", error), status, cleanup);
    TY_CHECK(tree_open(&r.tree, im, error), status, cleanup);
    while (import_next_line(&lines)) {
        r.number = lines.number;
        TY_CHECK(read_line(&r, &lines, &l, error), status, cleanup);
        TY_CHECK(add_line(&r, &l, error), status, cleanup);
    }
    TY_CHECK(check_defined(&r, error), status, cleanup);
    if (r.has_speeds)
        import_note(im, "LinkSpeed has no unit in Slurm and is left out");
    if (r.has_sizes)
        import_note(im, "block sizes are for the scheduler and left out");
    if (im->options->oversubscription == 0)
        import_note(im, "uplinks are taken as wide as what is below them: Slurm does not say "
                        "(oversubscription is an option)");
    status = tree_build(&r.tree, r.blocks > 0 ? "blocks" : NULL, error);
cleanup:
    tree_close(&r.tree);
    return status;
}

static bool probe(const char *text, size_t length)
{
    import_lines lines = import_lines_of(text, length);

    while (import_next_line(&lines) && lines.number < 1000) {
        size_t at = 0;
        while (at < lines.length && isspace((unsigned char)lines.line[at]))
            at++;
        if (lines.length - at > 11 && strncasecmp(lines.line + at, "SwitchName=", 11) == 0)
            return true;
        if (lines.length - at > 10 && strncasecmp(lines.line + at, "BlockName=", 10) == 0)
            return true;
    }
    return false;
}

const import_format import_slurm = {"slurm", "Slurm topology.conf", probe, read};
