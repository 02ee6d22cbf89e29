/* Slurm's topology.conf (topology/tree and topology/block) and the output of `scontrol show
 * topology`. It names switches and nodes but neither devices nor rates: hosts come from the
 * options, and uplinks are as wide as the links below. */
#include "import_slurm.h"

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

static ty_status read_line(slurm_tree *r, const import_lines *lines, line *out, ty_error *error)
{
    static const char *const keys[] = {"SwitchName", "BlockName",      "Nodes",      "Switches",
                                       "Level",      "LinkSpeed",      "BlockSizes", "BlockIndex",
                                       "BlockSize",  "AggregatedBlock"};
    const importer *im = r->tree.im;
    size_t at = 0;
    pair p;

    *out = (line){0};
    for (;;) {
        char key[24];
        const char *near;
        TY_TRY(next_pair(im, lines, &at, &p, error));
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
            r->has_sizes = true; /* for the scheduler: sizes of block groups */
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
    return TY_OK;
}

static ty_status add_line(slurm_tree *s, const line *l, ty_error *error)
{
    if (l->name.key == NULL && l->nodes.key == NULL && l->switches.key == NULL)
        return TY_OK;
    TY_TRY(slurm_tree_switch(s, l->name.value, l->name.value_length, l->is_block, error));
    if (l->switches.value_length > 0)
        TY_TRY(slurm_tree_below(s, l->switches.value, l->switches.value_length, false, error));
    /* scontrol repeats the nodes of all levels below */
    if (l->nodes.value_length > 0 && !(l->switches.value_length > 0 && l->level.key != NULL))
        TY_TRY(slurm_tree_below(s, l->nodes.value, l->nodes.value_length, true, error));
    return TY_OK;
}

static ty_status read(importer *im, ty_error *error)
{
    import_lines lines = import_lines_of(im->text, im->length);
    slurm_tree s = {0};
    line l;
    ty_status status;

    TY_CHECK(slurm_tree_open(&s, im, error), status, cleanup);
    while (import_next_line(&lines)) {
        s.line = lines.number;
        TY_CHECK(read_line(&s, &lines, &l, error), status, cleanup);
        TY_CHECK(add_line(&s, &l, error), status, cleanup);
    }
    if (s.has_speeds)
        import_note(im, "LinkSpeed has no unit in Slurm and is left out");
    status = slurm_tree_build(&s, error);
cleanup:
    slurm_tree_close(&s);
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
